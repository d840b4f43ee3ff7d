//! Fetching from a real socket.
#![allow(clippy::disallowed_methods)] // tests may spawn their server

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Serves one canned answer per connection; yields the address and the requests.
async fn serve(answers: Vec<String>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(socket.read_u8().await.unwrap());
            }
            requests.push(String::from_utf8(request).unwrap());
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
        requests
    });
    (address, server)
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
}

#[tokio::test]
async fn sends_headers_and_reads_the_body() {
    let (address, server) = serve(vec![answer("200 OK", "", "hello")]).await;
    let headers = [("X-Key".to_owned(), "v1".to_owned()), ("X-Key".to_owned(), "v2".to_owned())];
    let fetched = HyperFetch::new().get(&format!("http://{address}/p?q"), &headers, 5).await;
    assert_eq!(fetched.unwrap(), Fetched { status: 200, body: b"hello".to_vec() });
    let request = server.await.unwrap().remove(0);
    assert!(request.starts_with("GET /p?q HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("x-key: v1\r\n") && request.contains("x-key: v2\r\n"), "{request}");
}

#[tokio::test]
async fn follows_redirects_and_gives_up_on_loops() {
    let hop = answer("302 Found", "Location: /next\r\n", "");
    let (address, server) = serve(vec![hop.clone(), answer("404 Not Found", "", "no")]).await;
    let fetched = HyperFetch::new().get(&format!("http://{address}/"), &[], 10).await.unwrap();
    assert_eq!((fetched.status, fetched.body), (404, b"no".to_vec()));
    assert!(server.await.unwrap()[1].starts_with("GET /next "));

    let (address, _server) = serve(vec![hop; 11]).await;
    let error = HyperFetch::new().get(&format!("http://{address}/"), &[], 10).await.unwrap_err();
    assert!(error.to_string().contains("redirected more than 10 times"), "{error}");
}

#[tokio::test]
async fn refuses_large_answers() {
    let (address, _server) = serve(vec![answer("200 OK", "", "123456")]).await;
    let error = HyperFetch::new().get(&format!("http://{address}/"), &[], 5).await.unwrap_err();
    assert!(matches!(error, HttpFetchError::TooLarge { limit: 5, .. }), "{error}");
}

#[tokio::test]
async fn says_why_it_failed() {
    let fetch = HyperFetch::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let error = fetch.get(&closed, &[], 5).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    let error = fetch.get("http://u:secret@h/", &[], 5).await.unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    let bad_header = [("a b".to_owned(), "hidden".to_owned())];
    let error = fetch.get("http://h/", &bad_header, 5).await.unwrap_err();
    assert!(matches!(error, HttpFetchError::BadRequest { .. }), "{error}");
    assert!(!error.to_string().contains("hidden"), "{error}");
}

#[tokio::test]
async fn speaks_tls_to_https_urls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_u8().await.unwrap()
    });
    let error = HyperFetch::new().get(&url, &[], 5).await.unwrap_err().to_string();
    // A machine without root certificates cannot get as far as the handshake.
    if !error.contains("root certificates") {
        assert_eq!(server.await.unwrap(), 22, "a TLS handshake, not plain text: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn gives_up_after_ten_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let started = tokio::time::Instant::now();
    let error = HyperFetch::new().get(&url, &[], 5).await.unwrap_err();
    assert!(error.to_string().contains("within 10 s"), "{error}");
    assert_eq!(started.elapsed().as_secs(), 10);
}
