//! HTTP in the clear.

use super::*;
use crate::ports::probe::BODY_MAX;

#[tokio::test]
async fn asks_as_upstream_does() {
    let (port, server) = serve(vec![answer("200 OK", "", "well"); 2]).await;
    let net = RealProbeNet::default();
    let got = net.http(&request(port, "healthz?full")).await.unwrap();
    assert_eq!((got.status, got.body.as_slice(), got.body_error), (200, &b"well"[..], None));
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let given = vec![
        header("host", "web.example"),
        header("User-agent", "me"),
        header("accept", ""),
        header("X-Twice", "1"),
        header("X-Twice", "2"),
        header("Content-Length", "5"),
    ];
    net.http(&HttpRequest { headers: given, ..request(port, "/") }).await.unwrap();
    let requests = server.await.unwrap();
    let sorted = |request: &str| {
        let mut lines: Vec<_> = request.trim_end().lines().map(str::to_owned).collect();
        lines[1..].sort();
        lines
    };
    assert_eq!(
        sorted(&requests[0]),
        [
            "GET /healthz?full HTTP/1.1",
            "Accept: */*",
            "Connection: close",
            &format!("Host: 127.0.0.1:{port}"),
            "User-Agent: kube-probe/1.36",
        ]
    );
    assert_eq!(
        sorted(&requests[1]),
        [
            "GET / HTTP/1.1",
            "Connection: close",
            "Host: web.example",
            "User-Agent: me",
            "X-Twice: 1",
            "X-Twice: 2",
        ]
    );
}

#[tokio::test]
async fn follows_redirects_on_the_same_host_only() {
    let to = |location: &str| answer("302 Found", &format!("Location: {location}\r\n"), "gone");
    let (port, server) = serve(vec![to("/next"), answer("503 Busy", "", "")]).await;
    let net = RealProbeNet::default();
    let headers = vec![("Host".to_owned(), "web.example".to_owned())];
    let asked = HttpRequest { headers, ..request(port, "/") };
    assert_eq!(net.http(&asked).await.unwrap().status, 503);
    let requests = server.await.unwrap();
    assert!(requests[1].starts_with("GET /next "), "{requests:?}");
    assert!(requests[1].contains("Host: web.example\r\n"), "{requests:?}");

    let (port, _server) = serve(vec![to("http://elsewhere.example/")]).await;
    let got = net.http(&request(port, "/")).await.unwrap();
    assert_eq!((got.status, got.body.as_slice()), (302, &b"gone"[..]));
    assert_eq!(got.location.as_deref(), Some("http://elsewhere.example/"));

    let (port, server) = serve(vec![to("/again"); 10]).await;
    let why = net.http(&request(port, "/")).await.unwrap_err();
    let expected = format!("Get \"http://127.0.0.1:{port}/again\": stopped after 10 redirects");
    assert_eq!(why, expected);
    assert_eq!(server.await.unwrap().len(), 10);

    // A redirect that leads nowhere is the answer.
    let (port, _server) = serve(vec![answer("301 Moved", "", "")]).await;
    assert_eq!(net.http(&request(port, "/")).await.unwrap().status, 301);
}

#[tokio::test]
async fn reads_only_the_beginning_of_a_large_body() {
    let (port, _server) = serve(vec![answer("200 OK", "", &"x".repeat(1 << 22))]).await;
    let got = RealProbeNet::default().http(&request(port, "/")).await.unwrap();
    assert_eq!((got.body.len(), got.body_error), (BODY_MAX, None));
}

#[tokio::test]
async fn gives_up_in_time() {
    let net = RealProbeNet::default();
    // Accepted by the kernel, never answered.
    let (_listener, port) = listen().await;
    let asked = HttpRequest { timeout: SHORT, ..request(port, "/x") };
    let why = net.http(&asked).await.unwrap_err();
    let expected = format!(
        "Get \"http://127.0.0.1:{port}/x\": context deadline exceeded \
         (Client.Timeout exceeded while awaiting headers)"
    );
    assert_eq!(why, expected);

    let (listener, port) = listen().await;
    let _server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
        std::future::pending::<()>().await;
    });
    let asked = HttpRequest { timeout: SHORT, ..request(port, "/") };
    let got = net.http(&asked).await.unwrap();
    assert_eq!((got.status, got.body.as_slice()), (200, &b"half"[..]));
    assert!(got.body_error.unwrap().contains("while reading body"));
}

#[tokio::test]
async fn says_what_went_wrong() {
    let net = RealProbeNet::default();
    let port = deaf_port().await;
    let why = net.http(&request(port, "/")).await.unwrap_err();
    let expected = format!(
        "Get \"http://127.0.0.1:{port}/\": dial tcp 127.0.0.1:{port}: connect: connection refused"
    );
    assert_eq!(why, expected);

    let (port, _server) = serve(vec![Vec::new()]).await;
    let why = net.http(&request(port, "/")).await.unwrap_err();
    assert_eq!(why, format!("Get \"http://127.0.0.1:{port}/\": EOF"));

    let (port, _server) = serve(vec![b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()]).await;
    assert!(net.http(&request(port, "/")).await.is_err());

    let headers = vec![("X".to_owned(), "secret\n".to_owned())];
    let why = net.http(&HttpRequest { headers, ..request(port, "/") }).await.unwrap_err();
    assert_eq!(why, "net/http: invalid header field value for \"X\"");
}
