//! HTTP over TLS, with a certificate that nobody vouches for.

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;

/// A server that says which version of HTTP it was asked in.
async fn serve_tls(alpn: &[&[u8]]) -> u16 {
    // Made for this test; it opens nothing.
    let certificate = CertificateDer::from_pem_slice(include_bytes!("nobody.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("nobody.key")).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| async move {
                let host = request.uri().host().map(str::to_owned);
                let text = format!("{:?} {host:?}", request.version());
                Ok::<_, Infallible>(hyper::Response::new(Full::new(Bytes::from(text))))
            });
            let io = TokioIo::new(stream);
            if h2 {
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(io, service));
            } else {
                let server = hyper::server::conn::http1::Builder::new();
                tokio::spawn(server.serve_connection(io, service));
            }
        }
    });
    port
}

fn https(port: u16) -> HttpRequest {
    let headers = vec![("Host".to_owned(), "web.example".to_owned())];
    HttpRequest { scheme: Scheme::Https, headers, ..request(port, "/") }
}

#[tokio::test]
async fn any_certificate_will_do_and_any_version_of_http() {
    let net = RealProbeNet::default();
    for (alpn, expected) in [
        (&[][..], "HTTP/1.1 None"),
        (&[&b"http/1.1"[..]][..], "HTTP/1.1 None"),
        (&[&b"h2"[..]][..], "HTTP/2.0 Some(\"web.example\")"),
    ] {
        let port = serve_tls(alpn).await;
        let got = net.http(&https(port)).await.unwrap();
        assert_eq!(got.status, 200);
        assert_eq!(String::from_utf8(got.body).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_server_without_tls_is_told_apart() {
    let (listener, port) = listen().await;
    let _server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let refusal = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
        socket.write_all(refusal).await.unwrap();
        std::future::pending::<()>().await;
    });
    let why = RealProbeNet::default().http(&https(port)).await.unwrap_err();
    let expected = format!(
        "Get \"https://127.0.0.1:{port}/\": http: server gave HTTP response to HTTPS client"
    );
    assert_eq!(why, expected);
}

#[tokio::test]
async fn a_handshake_that_hangs_is_cut_short() {
    let (_listener, port) = listen().await;
    let asked = HttpRequest { timeout: SHORT, ..https(port) };
    let why = RealProbeNet::default().http(&asked).await.unwrap_err();
    assert!(why.contains("exceeded while awaiting headers"), "{why}");
}
