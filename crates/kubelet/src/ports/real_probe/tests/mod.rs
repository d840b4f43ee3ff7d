//! Probes of real servers on the loopback address.
#![allow(clippy::disallowed_methods)] // tests may spawn their servers

mod grpc;
mod http;
mod https;

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::RealProbeNet;
use crate::ports::probe::{HttpRequest, ProbeNet, Scheme};

const SECOND: Duration = Duration::from_secs(1);
/// Long enough for any answer, short enough to wait for.
const SHORT: Duration = Duration::from_millis(200);

fn request(port: u16, path: &str) -> HttpRequest {
    HttpRequest {
        scheme: Scheme::Http,
        host: "127.0.0.1".to_owned(),
        port,
        path: path.to_owned(),
        headers: Vec::new(),
        user_agent: "kube-probe/1.36".to_owned(),
        timeout: 5 * SECOND,
    }
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A port on which nobody listens.
async fn deaf_port() -> u16 {
    listen().await.1
}

/// Serves one canned answer per connection; yields the requests.
async fn serve(answers: Vec<Vec<u8>>) -> (u16, JoinHandle<Vec<String>>) {
    let (listener, port) = listen().await;
    let server = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(socket.read_u8().await.unwrap());
            }
            requests.push(String::from_utf8(request).unwrap());
            // Who reads only the beginning closes before all is written.
            let _ = socket.write_all(&answer).await;
        }
        requests
    });
    (port, server)
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}").into_bytes()
}

#[tokio::test]
async fn tcp_connects_or_says_why_not() {
    let net = RealProbeNet::default();
    let (_listener, port) = listen().await;
    assert_eq!(net.tcp("127.0.0.1", port, SECOND).await, Ok(()));
    let port = deaf_port().await;
    let why = net.tcp("127.0.0.1", port, SECOND).await.unwrap_err();
    assert_eq!(why, format!("dial tcp 127.0.0.1:{port}: connect: connection refused"));
    let why = net.tcp("no such host", 1, SECOND).await.unwrap_err();
    assert!(why.starts_with("dial tcp: lookup no such host: "), "{why}");
    let why = net.tcp("127.0.0.1", port, Duration::ZERO).await;
    assert!(why.is_err(), "no time, no answer");
}
