//! Clients and runtimes that send what nobody honest sends.
//!
//! Whatever comes, no connection's task panics, each is answered or ended, and the next
//! client is served.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use streaming::spdy::{Encoder, Frame, StreamId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::streams::{EXEC, SPDY, answer, runtime, socket};
use super::world::{Setup, World, request};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// By then a connection that misbehaves must be over.
const PATIENCE: Duration = Duration::from_secs(20);

fn cases(count: u32) -> TestRunner {
    let config = ProptestConfig { cases: count, failure_persistence: None, ..Default::default() };
    TestRunner::new(config)
}

fn tokio() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The bytes of a request: one that could be meant, or one that could not.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let method = "GET|POST|PUT|DELETE|HEAD|OPTIONS|PATCH|BREW|get|";
    let part = "pods|exec|default|web|app|logs|metrics|slis|healthz|run|portForward|debug|flags|v|\
                stats|summary|\\.\\.|%2e%2e|%00|%|[ -~]{0,5}";
    let path = proptest::collection::vec(part, 0..6);
    let query = r"(\?([a-zA-Z]{1,8}=[!-~]{0,8}&?){0,4})?";
    let header = prop_oneof![
        Just("Connection: Upgrade".to_owned()),
        Just("Connection: close".to_owned()),
        Just("Upgrade: websocket".to_owned()),
        Just("Upgrade: SPDY/3.1".to_owned()),
        Just("Sec-WebSocket-Version: 13".to_owned()),
        Just("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==".to_owned()),
        Just("Sec-WebSocket-Protocol: v5.channel.k8s.io".to_owned()),
        Just("Transfer-Encoding: chunked".to_owned()),
        Just("Expect: 100-continue".to_owned()),
        "Content-Length: (-1|0|3|99999999999999999999|x)",
        "Accept: [ -~]{0,20}",
        "Authorization: (Bearer|Basic)? ?[ -~]{0,12}",
        "Range: bytes=[0-9]{0,3}-[0-9]{0,25}",
        "[a-zA-Z-]{0,8}:[ -~]{0,16}",
        "[ -~]{0,12}",
    ];
    let headers = proptest::collection::vec(header, 0..6);
    let body = prop_oneof![Just(Vec::new()), proptest::collection::vec(any::<u8>(), 0..40)];
    let spoilt = proptest::option::of((any::<prop::sample::Index>(), any::<u8>()));
    (method, path, query, headers, body, spoilt).prop_map(
        |(method, path, query, headers, body, spoilt)| {
            let path = path.join("/");
            let mut all = format!("{method} /{path}{query} HTTP/1.1\r\nHost: node\r\n");
            for header in headers {
                all.push_str(&header);
                all.push_str("\r\n");
            }
            all.push_str("\r\n");
            let mut all = all.into_bytes();
            all.extend(body);
            if let Some((at, byte)) = spoilt {
                let at = at.index(all.len());
                all[at] = byte;
            }
            all
        },
    )
}

#[test]
fn no_request_harms_the_server() {
    let tokio = tokio();
    let logs = tempfile::tempdir().unwrap();
    std::fs::write(logs.path().join("app"), "0123456789").unwrap();
    let log_dir = logs.path().to_owned();
    let world = tokio.block_on(World::start(Setup { log_dir, ..Setup::default() }));
    let tried = cases(150).run(&requests(), |bytes| {
        tokio.block_on(async {
            let mut stream = world.connect(HERE, None).await.unwrap();
            // It may hang up before it has read all.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let mut told = [0; 12];
            match timeout(PATIENCE, stream.read_exact(&mut told)).await {
                Ok(Ok(_)) => assert!(told.starts_with(b"HTTP/1."), "{told:?}"),
                Ok(Err(_)) => {}
                Err(_) => panic!("neither answered nor over"),
            }
        });
        world.check_panics();
        Ok(())
    });
    tried.unwrap();
    tokio.block_on(async { world.get("/healthz").await.is(200, "ok") });
}

/// Frames of SPDY, some of which cannot be.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let stream = || (0u32..12).prop_map(StreamId);
    let headers = || proptest::collection::vec(("[a-z]{0,6}", "[ -~]{0,6}"), 0..3);
    let bytes = proptest::collection::vec(any::<u8>(), 0..64);
    let frame =
        prop_oneof![
            (stream(), any::<bool>(), headers())
                .prop_map(|(stream, fin, headers)| Frame::SynReply { stream, fin, headers }),
            (stream(), any::<bool>(), headers())
                .prop_map(|(stream, fin, headers)| Frame::SynStream { stream, fin, headers }),
            (stream(), any::<bool>(), headers())
                .prop_map(|(stream, fin, headers)| Frame::Headers { stream, fin, headers }),
            (stream(), any::<bool>(), bytes).prop_map(|(stream, fin, bytes)| Frame::Data {
                stream,
                fin,
                bytes
            }),
            (stream(), any::<u32>())
                .prop_map(|(stream, status)| Frame::RstStream { stream, status }),
            any::<u32>().prop_map(Frame::Ping),
            (any::<u32>(), any::<u32>()).prop_map(|(last, status)| Frame::GoAway { last, status }),
        ];
    let spoilt = proptest::option::of((any::<prop::sample::Index>(), any::<u8>()));
    (proptest::collection::vec(frame, 0..12), spoilt).prop_map(|(frames, spoilt)| {
        let (mut encoder, mut all) = (Encoder::default(), Vec::new());
        for frame in &frames {
            encoder.encode(frame, &mut all);
        }
        if let (Some((at, byte)), false) = (spoilt, all.is_empty()) {
            let at = at.index(all.len());
            all[at] = byte;
        }
        all
    })
}

#[test]
fn no_runtime_harms_the_server() {
    let tokio = tokio();
    let world = tokio.block_on(World::start(Setup::default()));
    let listener = tokio.block_on(runtime(&world));
    let tried = cases(60).run(&frames(), |bytes| {
        tokio.block_on(async {
            let server = async {
                let (mut stream, _) = answer(&listener, SPDY).await;
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
                let mut rest = Vec::new();
                let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
            };
            let client = async {
                let mut socket = socket(&world, EXEC, "v5.channel.k8s.io").await.unwrap();
                while let Some(Ok(_)) = timeout(PATIENCE, socket.next()).await.unwrap() {}
            };
            tokio::join!(server, client);
        });
        world.check_panics();
        Ok(())
    });
    tried.unwrap();
    tokio.block_on(async { world.get("/healthz").await.is(200, "ok") });
}

#[test]
fn no_websocket_harms_the_server() {
    let tokio = tokio();
    let world = tokio.block_on(World::start(Setup::default()));
    let listener = tokio.block_on(runtime(&world));
    // Bytes that are no frames, and messages on channels that nobody has.
    let raw = proptest::collection::vec(any::<u8>(), 0..80);
    let messages = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..24), 0..8);
    let tried = cases(40).run(&(raw, messages, any::<bool>()), |(raw, messages, tunnel)| {
        let (path, protocol) = match tunnel {
            true => ("/portForward/default/web", "SPDY/3.1+portforward.k8s.io"),
            false => (EXEC, "v5.channel.k8s.io"),
        };
        let words = match tunnel {
            true => SPDY.replace("v4.channel.k8s.io", "portforward.k8s.io"),
            false => SPDY.to_owned(),
        };
        tokio.block_on(async {
            let server = async {
                let (mut stream, _) = answer(&listener, &words).await;
                // Accepts every stream that may be opened.
                let (mut encoder, mut replies) = (Encoder::default(), Vec::new());
                for id in [1, 3, 5, 7] {
                    let stream = StreamId(id);
                    let reply = Frame::SynReply { stream, fin: false, headers: Vec::new() };
                    encoder.encode(&reply, &mut replies);
                }
                let _ = stream.write_all(&replies).await;
                let mut rest = Vec::new();
                let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
            };
            let client = async {
                let mut socket = socket(&world, path, protocol).await.unwrap();
                for message in messages {
                    let _ = socket.send(Message::binary(message)).await;
                }
                let mut stream = socket.into_inner();
                let _ = stream.write_all(&raw).await;
                let _ = stream.shutdown().await;
                let mut rest = Vec::new();
                let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
            };
            tokio::join!(server, client);
        });
        world.check_panics();
        Ok(())
    });
    tried.unwrap();
    tokio.block_on(async { world.get("/healthz").await.is(200, "ok") });
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_its_websocket() {
    let world = World::start(Setup::default()).await;
    let listener = runtime(&world).await;
    let server = async {
        let words = SPDY.replace("v4.channel.k8s.io", "portforward.k8s.io");
        let (mut stream, _) = answer(&listener, &words).await;
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
        heard.len()
    };
    let client = async {
        let path = "/portForward/default/web";
        let socket = socket(&world, path, "SPDY/3.1+portforward.k8s.io").await.unwrap();
        let mut stream = socket.into_inner();
        // The head of a frame of a pebibyte, and as much of it as is taken.
        let head = [0x82, 0xff, 0, 4, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        stream.write_all(&head).await.unwrap();
        let piece = vec![0; 64 << 10];
        let mut taken = 0;
        while taken < 64 << 20 && stream.write_all(&piece).await.is_ok() {
            taken += piece.len();
        }
        taken
    };
    let (heard, taken) = timeout(PATIENCE, async { tokio::join!(server, client) }).await.unwrap();
    assert_eq!(heard, 0, "nothing of it reached the runtime");
    assert!(taken < 64 << 20, "{taken} bytes were taken");
    world.check_panics();
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_byte_by_byte_is_too_slow() {
    let world = World::start(Setup::default()).await;
    let mut stream = world.connect(HERE, None).await.unwrap();
    let head = b"PUT /debug/flags/v HTTP/1.1\r\nhost: node\r\ncontent-length: 1000\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let begun = Instant::now();
    let (mut from, mut to) = tokio::io::split(stream);
    let dribble = async {
        while to.write_all(b"4").await.is_ok() && to.flush().await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let told = async {
        let mut told = [0; 12];
        from.read_exact(&mut told).await.unwrap();
        told
    };
    let told = tokio::select! { told = told => told, () = dribble => panic!("it was cut off") };
    assert_eq!(&told, b"HTTP/1.1 408");
    assert!((15..60).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert!(world.view.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_wants_keeps_no_connection() {
    let world = World::start(Setup::default()).await;
    let mut stream = world.connect(HERE, None).await.unwrap();
    let head = b"GET /pods HTTP/1.1\r\nhost: node\r\ncontent-length: 1000000000\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let (mut from, mut to) = tokio::io::split(stream);
    let mut told = vec![0; 12];
    from.read_exact(&mut told).await.unwrap();
    assert_eq!(told, b"HTTP/1.1 200");
    let begun = Instant::now();
    let dribble = async {
        while to.write_all(b"x").await.is_ok() && to.flush().await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let rest = async {
        let mut rest = Vec::new();
        let _ = from.read_to_end(&mut rest).await;
    };
    tokio::select! { () = rest => {}, () = dribble => {} }
    assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn many_who_shake_hands_and_stop_there_keep_nobody_out() {
    let connections = node_server::ConnectionLimits { total: 30, per_peer: 20 };
    let world = World::start(Setup { connections, ..Setup::default() }).await;
    let mut idle = Vec::new();
    for n in 0..200u32 {
        let from = Ipv4Addr::new(127, 0, 2, u8::try_from(n % 4 + 1).unwrap());
        if n % 2 == 0 {
            // A handshake, and half a request.
            let mut stream = world.connect(from.into(), None).await.unwrap();
            stream.write_all(b"GET /pods HTTP/1.1\r\nhost:").await.unwrap();
            idle.push(Box::new(stream) as Box<dyn std::any::Any>);
        } else {
            // Half a handshake.
            let mut stream = world.tcp(from.into()).await.unwrap();
            stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1]).await.unwrap();
            idle.push(Box::new(stream));
        }
        if n % 20 == 0 {
            world.get("/healthz").await.is(200, "ok");
        }
    }
    world.get("/healthz").await.is(200, "ok");
    let jane = world.client("jane", "devs");
    world.ask(request("GET", "/pods", &[]), Some(&jane)).await.is(200, "{}");
    world.check_panics();
    drop(idle);
}
