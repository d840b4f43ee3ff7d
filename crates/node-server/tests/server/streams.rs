//! Streams, with a little server as the runtime.

use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use node_server::{Handlers, ViewError};
use streaming::spdy::{Connection, Event, Frame, Side, StreamId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::world::{Setup, World, request};

pub const SPDY: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                    Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
pub const EXEC: &str = "/exec/default/web/app?command=cat&command=-u&input=1&output=1&error=1";

/// A runtime's server; the view sends everybody there.
pub async fn runtime(world: &World) -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/exec/t0ken", listener.local_addr().unwrap());
    *world.view.url.lock().unwrap() = Some(Ok(url));
    listener
}

/// Accepts a request and answers it.
pub async fn answer(listener: &TcpListener, words: &str) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        asked.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(words.as_bytes()).await.unwrap();
    (stream, String::from_utf8(asked).unwrap())
}

async fn begin(world: &World, head: &str) -> (TlsStream<TcpStream>, String) {
    let mut stream = world.connect(Ipv4Addr::LOCALHOST.into(), None).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut told = Vec::new();
    while !told.ends_with(b"\r\n\r\n") {
        told.push(stream.read_u8().await.unwrap());
    }
    (stream, String::from_utf8(told).unwrap().to_lowercase())
}

fn upgrade(path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         Authorization: Bearer s3cret\r\nX-Forwarded-For: 10.0.0.9\r\nContent-Length: 0\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\
         X-Stream-Protocol-Version: v3.channel.k8s.io\r\n\r\n"
    )
}

#[tokio::test]
async fn spdy_is_carried_byte_for_byte() {
    let world = World::start(Setup::default()).await;
    let listener = runtime(&world).await;
    let server = async {
        // The first bytes come with the answer.
        let (mut stream, asked) = answer(&listener, &format!("{SPDY}first ")).await;
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        stream.write_all(&heard).await.unwrap();
        stream.shutdown().await.unwrap();
        asked
    };
    let client = async {
        let (stream, told) = begin(&world, &upgrade(EXEC)).await;
        assert!(told.starts_with("http/1.1 101"), "{told}");
        assert!(told.contains("x-stream-protocol-version: v4.channel.k8s.io\r\n"), "{told}");
        let (mut from, mut to) = tokio::io::split(stream);
        let sent: Vec<u8> = (0..3 << 20u32).map(|n| (n % 251) as u8).collect();
        to.write_all(&sent).await.unwrap();
        // The end of what is sent is not the end of what is said.
        to.shutdown().await.unwrap();
        let mut heard = Vec::new();
        from.read_to_end(&mut heard).await.unwrap();
        assert!(heard == [b"first ", sent.as_slice()].concat(), "{} bytes", heard.len());
    };
    let (asked, ()) = tokio::join!(server, client);
    assert!(asked.starts_with("POST /exec/t0ken HTTP/1.1\r\n"), "{asked}");
    let asked = asked.to_lowercase();
    assert!(asked.contains("upgrade: spdy/3.1\r\n") && asked.contains("host: 127.0.0.1:"));
    assert!(asked.contains("v4.channel.k8s.io") && asked.contains("v3.channel.k8s.io"));
    assert!(asked.contains("x-forwarded-for: 10.0.0.9, 127.0.0.1\r\n"), "{asked}");
    assert!(!asked.contains("s3cret"), "{asked}");
    let wanted = r#"command: ["cat", "-u"], stdio: Stdio { stdin: true, stdout: true, stderr: true, tty: false }"#;
    assert!(world.view.asked()[0].contains(wanted));
}

#[tokio::test]
async fn refusals_are_passed_on() {
    let world = World::start(Setup::default()).await;
    let headers = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    let ask = async |path: &str| world.ask(request("POST", path, &headers), None).await;
    ask("/exec/default/web/app")
        .await
        .is(400, "you must specify at least 1 of stdin, stdout, stderr");
    ask("/attach/default/web/app?tty=1&error=1")
        .await
        .is(400, "you must specify at least 1 of stdin, stdout, stderr");
    ask("/exec/default/none/app?output=1").await.is(404, "pod does not exist");
    ask("/exec/default/web/app?output=1").await.is(404, "container not found (\"app\")");
    ask("/portForward/default/none").await.is(404, "pod does not exist");
    ask("/portForward/default/web/other").await.is(404, "pod not found");
    let busy = ViewError::of_runtime(8, "maximum number of in-flight requests exceeded");
    *world.view.url.lock().unwrap() = Some(Err(busy));
    let told = ask(EXEC).await;
    told.is(429, "maximum number of in-flight requests exceeded");
    assert_eq!(told.headers["retry-after"], "60");

    let listener = runtime(&world).await;
    let plain = world.ask(request("POST", EXEC, &[]), None).await;
    plain.is(500, "Upgrade request required\n");
    let words =
        "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nno\n";
    let (told, _) = tokio::join!(ask(EXEC), answer(&listener, words));
    told.is(403, "no\n");
    let words = "HTTP/1.1 302 Found\r\nLocation: http://evil/\r\nContent-Length: 0\r\n\r\n";
    let (told, _) = tokio::join!(ask(EXEC), answer(&listener, words));
    told.is(500, "invalid upgrade response: status code 302\n");
    assert!(!told.headers.contains_key("location"));
    drop(listener);
    let told = ask(EXEC).await;
    assert!(told.status == 500 && told.body.starts_with("error dialing backend: "), "{told:?}");
    *world.view.url.lock().unwrap() = Some(Ok("https://127.0.0.1:1/secret".into()));
    let told = ask(EXEC).await;
    assert!(told.status == 500 && !told.body.contains("secret"), "{told:?}");
}

#[tokio::test]
async fn a_stream_on_which_nothing_passes_ends() {
    let setup = Setup { stream_idle: Duration::from_millis(300), ..Setup::default() };
    let world = World::start(setup).await;
    let listener = runtime(&world).await;
    let (server, head) = (answer(&listener, SPDY), upgrade(EXEC));
    let ((mut stream, _), (mut runtime, _)) = tokio::join!(begin(&world, &head), server);
    stream.write_all(b"x").await.unwrap();
    assert_eq!(runtime.read_u8().await.unwrap(), b'x');
    let mut rest = Vec::new();
    timeout(Duration::from_secs(5), runtime.read_to_end(&mut rest)).await.unwrap().unwrap();
    let mut rest = Vec::new();
    let _ = timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_no_headers_to_be_late_with() {
    let setup = Setup { stream_idle: Duration::from_secs(4 * 3600), ..Setup::default() };
    let world = World::start(setup).await;
    let listener = runtime(&world).await;
    let (server, head) = (answer(&listener, SPDY), upgrade(EXEC));
    let ((mut stream, _), (mut runtime, _)) = tokio::join!(begin(&world, &head), server);
    for _ in 0..3 {
        stream.write_all(b"x").await.unwrap();
        assert_eq!(runtime.read_u8().await.unwrap(), b'x');
        runtime.write_all(b"y").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'y');
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
}

pub type Socket = WebSocketStream<TlsStream<TcpStream>>;

pub async fn socket(world: &World, path: &str, protocol: &'static str) -> Result<Socket, String> {
    let mut request = format!("wss://node{path}").into_client_request().unwrap();
    let offered = HeaderValue::from_static(protocol);
    request.headers_mut().insert("sec-websocket-protocol", offered);
    let stream = world.connect(Ipv4Addr::LOCALHOST.into(), None).await.unwrap();
    match client_async(request, stream).await {
        Ok((socket, told)) => {
            assert_eq!(
                told.headers()["sec-websocket-protocol"],
                protocol.split(',').next().unwrap()
            );
            Ok(socket)
        }
        Err(tokio_tungstenite::tungstenite::Error::Http(told)) => {
            let body = told.body().clone().unwrap_or_default();
            Err(format!("{} {}", told.status().as_u16(), String::from_utf8_lossy(&body)))
        }
        Err(error) => panic!("{error}"),
    }
}

async fn event(server: &mut Connection<TcpStream>) -> Option<Event> {
    poll_fn(|context| server.poll_event(context)).await.unwrap()
}

/// Accepts streams; tells what they are for.
async fn accept(
    listener: &TcpListener,
    count: usize,
) -> (Connection<TcpStream>, Vec<(String, StreamId)>) {
    let (stream, asked) = answer(listener, SPDY).await;
    assert!(asked.starts_with("POST /exec/t0ken HTTP/1.1\r\n"), "{asked}");
    let mut server = Connection::new(stream, Side::Server, &[]);
    let mut streams = Vec::new();
    while streams.len() < count {
        if let Some(Event::Frame(Frame::SynStream { stream, headers, .. })) =
            event(&mut server).await
        {
            streams.push((headers[0].1.clone(), stream));
        }
    }
    for (_, stream) in &streams {
        server.queue(&Frame::SynReply { stream: *stream, fin: false, headers: Vec::new() });
    }
    (server, streams)
}

#[tokio::test]
async fn version_five_of_the_websocket_protocol_becomes_spdy() {
    let world = World::start(Setup::default()).await;
    let listener = runtime(&world).await;
    let status = r#"{"metadata":{},"status":"Failure","reason":"NonZeroExitCode"}"#;
    // Says what it is told until that ends.
    let server = async {
        let (mut server, streams) = accept(&listener, 4).await;
        let of = |name: &str| streams.iter().find(|(found, _)| found == name).unwrap().1;
        loop {
            let heard = event(&mut server).await.expect("the input ends first");
            if let Event::Frame(Frame::Data { stream, fin, bytes }) = heard {
                assert_eq!(stream, of("stdin"));
                server.queue(&Frame::Data { stream: of("stdout"), fin: false, bytes });
                if fin {
                    break;
                }
            }
        }
        let (half, rest) = status.split_at(10);
        for (bytes, fin) in [(half, false), (rest, true)] {
            server.queue(&Frame::Data { stream: of("error"), fin, bytes: bytes.into() });
        }
        server.queue(&Frame::Data { stream: of("stderr"), fin: true, bytes: b"bye".to_vec() });
        server.queue(&Frame::Data { stream: of("stdout"), fin: true, bytes: Vec::new() });
        while event(&mut server).await.is_some() {}
    };
    let client = async {
        let mut socket = socket(&world, EXEC, "v5.channel.k8s.io,v4.channel.k8s.io").await.unwrap();
        let first = socket.next().await.unwrap().unwrap();
        assert_eq!(first, Message::binary(vec![1]));
        let sent: Vec<u8> = (0..2 << 20u32).map(|n| (n % 253) as u8).collect();
        let (mut to, mut from) = socket.split();
        let send = async {
            for piece in sent.chunks(100_000) {
                to.send(Message::binary([&[0], piece].concat())).await.unwrap();
            }
            // Channels that are nobody's, and a message that says nothing.
            for odd in [&[9, 1][..], &[], &[4], &[255, 7], &[1, 1]] {
                to.send(Message::binary(odd.to_vec())).await.unwrap();
            }
            to.send(Message::binary(vec![255, 0])).await.unwrap();
        };
        let receive = async {
            let (mut out, mut err, mut end) = (Vec::new(), Vec::new(), Vec::new());
            while let Some(Ok(message)) = from.next().await {
                match message {
                    Message::Binary(bytes) => match bytes[0] {
                        1 => out.extend_from_slice(&bytes[1..]),
                        2 => err.extend_from_slice(&bytes[1..]),
                        3 => end.extend_from_slice(&bytes[1..]),
                        other => panic!("channel {other}"),
                    },
                    Message::Close(frame) => {
                        let code = frame.map(|frame| u16::from(frame.code));
                        assert_eq!(code, Some(1000), "clients take any other for a broken stream");
                        break;
                    }
                    other => panic!("{other:?}"),
                }
            }
            (out, err, end)
        };
        let ((), (out, err, end)) = tokio::join!(send, receive);
        assert!(out == sent, "{} bytes", out.len());
        assert_eq!((err.as_slice(), end.as_slice()), (&b"bye"[..], status.as_bytes()));
    };
    timeout(Duration::from_secs(30), async { tokio::join!(server, client) }).await.unwrap();
}

#[tokio::test]
async fn a_terminal_can_be_resized_and_a_broken_runtime_is_told() {
    let world = World::start(Setup::default()).await;
    let listener = runtime(&world).await;
    let server = async {
        let (mut server, streams) = accept(&listener, 3).await;
        let names: Vec<&str> = streams.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["error", "stdout", "resize"]);
        let wanted = Frame::Data { stream: streams[2].1, fin: false, bytes: b"{}".to_vec() };
        while event(&mut server).await.expect("it comes") != Event::Frame(wanted.clone()) {}
    };
    let client = async {
        let path = "/attach/default/web/app?output=1&tty=1";
        let mut socket = socket(&world, path, "v5.channel.k8s.io").await.unwrap();
        socket.send(Message::binary(b"\x04{}".to_vec())).await.unwrap();
        let mut last = String::new();
        while let Some(Ok(Message::Binary(bytes))) = socket.next().await {
            last = String::from_utf8(bytes.to_vec()).unwrap();
        }
        last
    };
    let ((), last) = tokio::join!(server, client);
    assert!(last.starts_with('\u{3}') && last.contains("ended before"), "{last:?}");
    // One that refuses is told about as well.
    let words = "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone";
    let client = async {
        let mut socket = socket(&world, EXEC, "v5.channel.k8s.io").await.unwrap();
        socket.next().await.unwrap().unwrap().into_data()
    };
    let (told, _) = tokio::join!(client, answer(&listener, words));
    let told = String::from_utf8(told.to_vec()).unwrap();
    assert!(told.contains("unable to upgrade connection: gone"), "{told}");
}

#[tokio::test]
async fn ports_are_tunnelled() {
    let world = World::start(Setup::default()).await;
    let listener = runtime(&world).await;
    let words = SPDY.replace("v4.channel.k8s.io", "portforward.k8s.io");
    let server = async {
        let (mut stream, asked) = answer(&listener, &words).await;
        let mut heard = [0; 6];
        stream.read_exact(&mut heard).await.unwrap();
        stream.write_all(&heard).await.unwrap();
        drop(stream);
        asked
    };
    let client = async {
        let path = "/portForward/default/web/u1";
        let mut socket = socket(&world, path, "SPDY/3.1+portforward.k8s.io").await.unwrap();
        for piece in [&b"abc"[..], b"def"] {
            socket.send(Message::binary(piece.to_vec())).await.unwrap();
        }
        let mut heard = Vec::new();
        while let Some(Ok(Message::Binary(bytes))) = socket.next().await {
            heard.extend_from_slice(&bytes);
        }
        heard
    };
    let (asked, heard) = tokio::join!(server, client);
    assert_eq!(heard, b"abcdef");
    assert!(asked.starts_with("POST /exec/t0ken"), "{asked}");
    let asked = asked.to_lowercase();
    assert!(asked.contains("upgrade: spdy/3.1\r\n"), "{asked}");
    assert!(asked.contains("x-stream-protocol-version: portforward.k8s.io\r\n"), "{asked}");
    assert!(!asked.contains("websocket"), "{asked}");
    assert!(world.view.asked()[0].contains("ports: []"));
}

#[tokio::test]
async fn older_websockets_are_the_runtimes_business() {
    let world = World::start(Setup::default()).await;
    let listener = runtime(&world).await;
    let path = "/portForward/default/web?port=80,443";
    let words = "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno";
    let (told, (_, asked)) =
        tokio::join!(socket(&world, path, "v4.channel.k8s.io"), answer(&listener, words));
    assert_eq!(told.unwrap_err(), "400 no");
    assert!(asked.starts_with("GET /exec/t0ken"), "{asked}");
    assert!(asked.to_lowercase().contains("sec-websocket-protocol: v4.channel.k8s.io\r\n"));
    assert!(world.view.asked()[0].contains("ports: [80, 443]"));
    let told = socket(&world, "/portForward/default/web", "v4.channel.k8s.io").await;
    assert_eq!(told.unwrap_err(), "400 query parameter \"port\" is required");
    // Without the gate version 5 is the runtime's business too.
    let handlers = Handlers { websockets: false, ..Handlers::default() };
    let world = World::start(Setup { handlers, ..Setup::default() }).await;
    let listener = runtime(&world).await;
    let (told, (_, asked)) =
        tokio::join!(socket(&world, EXEC, "v5.channel.k8s.io"), answer(&listener, words));
    assert_eq!(told.unwrap_err(), "400 no");
    assert!(asked.contains("v5.channel.k8s.io"));
}
