//! TLS, and clients that mean no good.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use node_server::{ConnectionLimits, TlsOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ProtocolVersion;
use tokio_rustls::rustls::pki_types::ServerName;

use super::world::{Setup, World, client_config, now, request, tell};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[tokio::test]
async fn a_new_certificate_is_shown_and_old_connections_stay() {
    let world = World::start(Setup::default()).await;
    let old = world.connect(HERE, None).await.unwrap();
    let shown = |stream: &tokio_rustls::client::TlsStream<TcpStream>| {
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let before = shown(&old);
    let own = world.authority.server("node", &["node".to_owned()], now()).unwrap();
    world.tls.serving().set(own.certificate.as_bytes(), own.key.as_bytes()).unwrap();
    let new = world.connect(HERE, None).await.unwrap();
    assert_ne!(before, shown(&new));
    assert_eq!(new.get_ref().1.alpn_protocol(), None);
    // Certificate and key of different pairs, and no certificate at all.
    let other = world.authority.server("node", &["node".to_owned()], now()).unwrap();
    let wrong = world.tls.serving().set(own.certificate.as_bytes(), other.key.as_bytes());
    assert!(wrong.unwrap_err().to_string().contains("do not make a server"));
    assert!(world.tls.serving().set(b"", own.key.as_bytes()).is_err());
    for stream in [old, new] {
        tell(stream, request("GET", "/healthz", &[])).await.is(200, "ok");
    }
}

#[tokio::test]
async fn options_of_tls_are_kept() {
    let tls = TlsOptions { min_version: "VersionTLS13".into(), ..TlsOptions::default() };
    let world = World::start(Setup { tls, ..Setup::default() }).await;
    let stream = world.connect(HERE, None).await.unwrap();
    assert_eq!(stream.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    let mut config = client_config(world.authority.pem(), None);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from("node").unwrap();
    let tcp = world.tcp(HERE).await.unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let world = World::start(Setup::default()).await;
    let mut stream = world.connect(HERE, None).await.unwrap();
    for _ in 0..3 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: node\r\n\r\n").await.unwrap();
        let mut told = Vec::new();
        while !told.ends_with(b"\r\n\r\nok") {
            told.push(stream.read_u8().await.unwrap());
        }
    }
}

#[tokio::test]
async fn thousands_who_say_nothing_cost_nobody_else_theirs() {
    let connections = ConnectionLimits { total: 60, per_peer: 40 };
    let world = World::start(Setup { connections, ..Setup::default() }).await;
    let jane = world.client("jane", "devs");
    // One who is known before the flood keeps its connection through it.
    let mut known = world.connect(HERE, Some(&jane)).await.unwrap();
    known.write_all(b"GET /healthz HTTP/1.1\r\nhost: node\r\n\r\n").await.unwrap();
    assert_eq!(known.read_u8().await.unwrap(), b'H');
    let mut first = world.tcp(Ipv4Addr::new(127, 0, 1, 1).into()).await.unwrap();
    let mut silent = VecDeque::new();
    for n in 0..3000u32 {
        let from = Ipv4Addr::new(127, 0, 1, u8::try_from(n % 3 + 1).unwrap());
        silent.push_back(world.tcp(from.into()).await.unwrap());
        // Those before were evicted long ago; this process has few descriptors.
        if silent.len() > 300 {
            silent.pop_front();
        }
        if n % 200 == 0 {
            world.get("/healthz").await.is(200, "ok");
        }
    }
    world.get("/healthz").await.is(200, "ok");
    known.write_all(b"GET /pods HTTP/1.1\r\nhost: node\r\n\r\n").await.unwrap();
    let mut told = Vec::new();
    while !told.ends_with(b"\r\n\r\n{}") {
        told.push(known.read_u8().await.unwrap());
    }
    // The first of the silent ones are gone, the last are not.
    let mut byte = [0];
    assert_eq!(first.read(&mut byte).await.unwrap(), 0);
    let last = silent.back_mut().unwrap();
    assert!(timeout(Duration::from_millis(50), last.read(&mut byte)).await.is_err());
}

#[tokio::test]
async fn garbage_is_hung_up_on() {
    let world = World::start(Setup::default()).await;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &[22, 3, 1, 0xff, 0xff]] {
        let mut stream = world.tcp(HERE).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        // Reset or closed, but over.
        let _ = timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await.unwrap();
    }
    for garbage in
        [&b"\0\0\0\r\n\r\n"[..], b"GET /x y z HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n"]
    {
        let mut stream = world.connect(HERE, None).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        let mut rest = Vec::new();
        let _ = timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await.unwrap();
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 400"), "{rest:?}");
    }
    world.get("/healthz").await.is(200, "ok");
}

#[tokio::test]
async fn headers_have_bounds() {
    let world = World::start(Setup::default()).await;
    let ask = async |text: String| {
        let mut stream = world.connect(HERE, None).await.unwrap();
        // It may hang up before it has read all.
        let _ = stream.write_all(text.as_bytes()).await;
        let mut told = vec![0; 12];
        match timeout(Duration::from_secs(5), stream.read_exact(&mut told)).await.unwrap() {
            Ok(_) => String::from_utf8(told).unwrap(),
            Err(error) => error.to_string(),
        }
    };
    let long = "x".repeat(300 << 10);
    let wide = ask(format!("GET /healthz HTTP/1.1\r\nhost: node\r\nx: {long}\r\n\r\n")).await;
    assert_eq!(wide, "HTTP/1.1 431");
    let many = "a: b\r\n".repeat(1000);
    let many = ask(format!("GET /healthz HTTP/1.1\r\nhost: node\r\n{many}\r\n")).await;
    assert_eq!(many, "HTTP/1.1 431");
    let path = ask(format!("GET /{} HTTP/1.1\r\nhost: node\r\n\r\n", "x".repeat(70 << 10))).await;
    assert_eq!(path, "HTTP/1.1 414");
    let fits = "x".repeat(60 << 10);
    let fits = ask(format!("GET /healthz?{fits} HTTP/1.1\r\nhost: node\r\n\r\n")).await;
    assert_eq!(fits, "HTTP/1.1 200");
}

#[tokio::test(start_paused = true)]
async fn a_header_that_comes_byte_by_byte_is_too_slow() {
    let world = World::start(Setup::default()).await;
    let mut stream = world.connect(HERE, None).await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut sent = 0;
    loop {
        if stream
            .write_all(
                b"GET /healthz HTTP/1.1\r\nx: yyyyyyyyyyyyyyyyyyyyyyyy"
                    .get(sent..=sent)
                    .unwrap_or(b"z"),
            )
            .await
            .is_err()
        {
            break;
        }
        sent += 1;
        let mut byte = [0];
        match timeout(Duration::from_secs(1), stream.read(&mut byte)).await {
            Err(_) => {}
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(_)) => panic!("it was answered"),
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{sent} bytes, and still open");
    }
    assert!(begun.elapsed() >= Duration::from_secs(15));
}
