//! Commands against a runtime that is a few lines long.

use std::future::poll_fn;

use futures_util::{SinkExt, StreamExt};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

use super::*;
use crate::spdy::{self, Connection, Frame, Side, StreamId};

const ECHO: Wants = Wants { stdin: true, tty: false };
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                      X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";

fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/exec/token", listener.local_addr().unwrap());
    (listener, url)
}

/// Gives a command all of `input` and gathers what it says: output and account.
async fn converse(mut command: Command, input: &[u8]) -> (Vec<u8>, String) {
    let mut portions = input.chunks(16 << 10);
    let (mut output, mut status, mut ended) = (Vec::new(), String::new(), false);
    loop {
        if command.takes_input() && !ended {
            match portions.next() {
                Some(portion) => command.send(Channel::Stdin, portion),
                None => {
                    ended = true;
                    command.end_input();
                }
            }
        }
        match command.next().await.unwrap() {
            Some(Event::Output(Channel::Stdout, bytes)) => output.extend(bytes),
            Some(Event::Output(Channel::Error, bytes)) => {
                status += &String::from_utf8(bytes).unwrap();
            }
            Some(Event::Output(channel, _)) => panic!("{channel:?} spoke"),
            Some(Event::Sent) => {}
            None => return (output, status),
        }
    }
}

/// Answers a request with these words.
async fn answer(listener: &TcpListener, words: &str) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(words.as_bytes()).await.unwrap();
    (stream, String::from_utf8(request).unwrap().to_lowercase())
}

async fn event(server: &mut Connection<TcpStream>) -> Option<spdy::Event> {
    poll_fn(|context| server.poll_event(context)).await.unwrap()
}

/// Waits for a frame, which must come.
async fn wait_for(server: &mut Connection<TcpStream>, frame: Frame) {
    let wanted = spdy::Event::Frame(frame);
    while event(server).await.expect("it comes before the end") != wanted {}
}

/// Accepts a connection and this many streams; tells what they are for.
async fn accept(
    listener: &TcpListener,
    count: usize,
) -> (Connection<TcpStream>, Vec<(String, StreamId)>) {
    let (stream, request) = answer(listener, SWITCH).await;
    assert!(request.starts_with("post /exec/token http/1.1\r\n"), "{request}");
    assert!(request.contains("upgrade: spdy/3.1\r\n"), "{request}");
    let mut server = Connection::new(stream, Side::Server, &[]);
    let mut streams = Vec::new();
    while streams.len() < count {
        if let Some(spdy::Event::Frame(Frame::SynStream { stream, headers, .. })) =
            event(&mut server).await
        {
            assert_eq!(headers[0].0, "streamtype");
            streams.push((headers[0].1.clone(), stream));
        }
    }
    for (_, stream) in &streams {
        server.queue(&Frame::SynReply { stream: *stream, fin: false, headers: Vec::new() });
    }
    (server, streams)
}

async fn drain(server: &mut Connection<TcpStream>) {
    while !server.is_drained() {
        event(server).await;
    }
}

/// Says what it is told, and ends when that ends.
async fn cat(listener: TcpListener) {
    let (mut server, streams) = accept(&listener, 4).await;
    let of = |name: &str| streams.iter().find(|(found, _)| found == name).unwrap().1;
    loop {
        match event(&mut server).await {
            Some(spdy::Event::Frame(Frame::Data { stream, fin, bytes })) => {
                assert_eq!(stream, of("stdin"));
                server.queue(&Frame::Data { stream: of("stdout"), fin: false, bytes });
                if fin {
                    break;
                }
            }
            Some(_) => {}
            None => return,
        }
    }
    // The account comes in two parts, and streams end in two ways.
    for (part, fin) in [(r#"{"status":"#, false), (r#""Success"}"#, true)] {
        server.queue(&Frame::Data { stream: of("error"), fin, bytes: part.into() });
    }
    for stream in [of("stdout"), of("stderr")] {
        server.queue(&Frame::RstStream { stream, status: 5 });
    }
    drain(&mut server).await;
    // The connection stays: the streams' ends are what counts.
    event(&mut server).await;
}

#[tokio::test]
async fn input_comes_back_whole_and_its_end_is_told() {
    for length in [0, 1, 5 << 20] {
        let (listener, url) = listen().await;
        let input = noise(length);
        let client = async {
            let command = Command::over_spdy(&url, ECHO).await.unwrap();
            converse(command, &input).await
        };
        let (said, ()) = tokio::join!(client, cat(listener));
        assert!(said.0 == input, "{} bytes came back of {length}", said.0.len());
        assert_eq!(said.1, r#"{"status":"Success"}"#);
    }
}

#[tokio::test]
async fn a_terminal_has_its_own_streams() {
    let (listener, url) = listen().await;
    let client = async {
        let mut command =
            Command::over_spdy(&url, Wants { stdin: false, tty: true }).await.unwrap();
        command.send(Channel::Resize, b"{}");
        assert!(!command.takes_input());
        while command.next().await.unwrap() != Some(Event::Sent) {}
    };
    let server = async {
        let (mut server, streams) = accept(&listener, 3).await;
        let names: Vec<&str> = streams.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["error", "stdout", "resize"]);
        let resized = Frame::Data { stream: streams[2].1, fin: false, bytes: b"{}".to_vec() };
        wait_for(&mut server, resized).await;
    };
    tokio::join!(client, server);
}

#[tokio::test]
async fn a_command_that_reads_no_more_is_given_no_more() {
    let (listener, url) = listen().await;
    let client = async {
        let mut command = Command::over_spdy(&url, ECHO).await.unwrap();
        let mut said = Vec::new();
        while said.len() < 2 {
            if command.takes_input() {
                command.send(Channel::Stdin, &[7; 1_000]);
            }
            match command.next().await.unwrap() {
                Some(Event::Output(channel, bytes)) => said.push((channel, bytes)),
                Some(Event::Sent) => {}
                None => panic!("it ended after {said:?}"),
            }
        }
        assert_eq!(said, [(Channel::Stdout, b"x".to_vec()), (Channel::Stderr, b"y".to_vec())]);
        assert!(!command.takes_input());
        command.end_input();
        // The refusal is still to be sent.
        while let Ok(Some(_)) = command.next().await {}
    };
    let server = async {
        let (mut server, streams) = accept(&listener, 4).await;
        let of = |name: &str| streams.iter().find(|(found, _)| found == name).unwrap().1;
        server.queue(&Frame::RstStream { stream: of("stdin"), status: 5 });
        server.queue(&Frame::Data { stream: of("stdout"), fin: false, bytes: b"x".to_vec() });
        server.queue(&Frame::Data { stream: of("stderr"), fin: true, bytes: b"y".to_vec() });
        // Nobody opens streams to a client.
        server.queue(&Frame::SynStream { stream: StreamId(2), fin: false, headers: Vec::new() });
        let refused = Frame::RstStream { stream: StreamId(2), status: spdy::RESET_REFUSED };
        wait_for(&mut server, refused).await;
    };
    tokio::join!(client, server);
}

#[tokio::test]
async fn refusals_are_told() {
    let words = "HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nno SPDY!\n";
    let (listener, url) = listen().await;
    let (refused, _) = tokio::join!(Command::over_spdy(&url, ECHO), answer(&listener, words));
    let refused = refused.err().unwrap();
    assert!(matches!(&refused, StreamError::Refused { status: 400, .. }), "{refused}");
    assert!(refused.to_string().contains("no SPDY!"), "{refused}");

    let older = SWITCH.replace("v4.", "v1.");
    let (other, _) = tokio::join!(Command::over_spdy(&url, ECHO), answer(&listener, &older));
    assert!(matches!(other.err(), Some(StreamError::Protocol(chosen)) if chosen.starts_with("v1")));

    let resets = async {
        let (mut server, _) = accept(&listener, 0).await;
        server.queue(&Frame::RstStream { stream: StreamId(3), status: 3 });
        drain(&mut server).await;
    };
    let (none, ()) = tokio::join!(Command::over_spdy(&url, ECHO), resets);
    assert!(matches!(none.err(), Some(StreamError::Streams)));

    drop(listener);
    assert!(matches!(
        Command::over_spdy(&url, ECHO).await.err(),
        Some(StreamError::Connect { .. })
    ));
    for url in ["https://127.0.0.1:1/x", "http:///x", "http://127.0.0.1:1", ""] {
        let error = Command::over_spdy(url, ECHO).await.err();
        assert!(matches!(error, Some(StreamError::Address(_))), "{url}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_end_only_if_the_commands_was_told() {
    for told in [false, true] {
        let (listener, url) = listen().await;
        let server = async {
            let (mut server, streams) = accept(&listener, 4).await;
            if told {
                let stream = streams[0].1;
                server.queue(&Frame::Data { stream, fin: false, bytes: b"{}".to_vec() });
            }
            drain(&mut server).await;
        };
        let client = async {
            let command = Command::over_spdy(&url, ECHO).await.unwrap();
            converse(command, b"").await
        };
        let ((output, status), ()) = tokio::join!(client, server);
        assert_eq!((output.as_slice(), status.as_str()), (&b""[..], if told { "{}" } else { "" }));
    }
}

#[tokio::test]
async fn a_websocket_does_as_well() {
    let (listener, url) = listen().await;
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        #[allow(clippy::result_large_err)] // the library's own type
        let choose = |request: &Request, mut response: Response| {
            let chosen = request.headers()["sec-websocket-protocol"].clone();
            response.headers_mut().insert("sec-websocket-protocol", chosen);
            Ok(response)
        };
        let mut socket = accept_hdr_async(stream, choose).await.unwrap();
        while let Some(Ok(Message::Binary(bytes))) = socket.next().await {
            match bytes[0] {
                0 => {
                    let echo = [&[1], &bytes[1..]].concat();
                    socket.send(Message::binary(echo)).await.unwrap();
                }
                255 => break,
                other => panic!("channel {other}"),
            }
        }
        socket.send(Message::binary(b"\x03{}".to_vec())).await.unwrap();
        socket.close(None).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    };
    let input = noise(5 << 20);
    let client = async {
        let command = Command::over_websocket(&url).await.unwrap();
        converse(command, &input).await
    };
    let (said, ()) = tokio::join!(client, server);
    assert!(said.0 == input, "{} bytes came back", said.0.len());
    assert_eq!(said.1, "{}");
}

/// Runs one case of hostile bytes; it has to be over soon, however it ends.
fn soon(work: impl Future<Output = ()>) {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async { tokio::time::timeout(CONNECT_TIMEOUT, work).await.unwrap() });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_runtime_makes_a_command_panic(
        accepts: bool,
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        frames in proptest::collection::vec((0_u32..10, any::<bool>(), "[ -~]{0,20}"), 0..8),
    ) {
        soon(async {
            let (ours, mut theirs) = tokio::io::duplex(4096);
            let runtime = async {
                let (mut encoder, mut all) = (spdy::Encoder::default(), Vec::new());
                for id in [1, 3, 5, 7].into_iter().filter(|_| accepts) {
                    let (stream, headers) = (StreamId(id), Vec::new());
                    encoder.encode(&Frame::SynReply { stream, fin: false, headers }, &mut all);
                }
                for (id, fin, text) in frames {
                    let (stream, bytes) = (StreamId(id), text.into_bytes());
                    encoder.encode(&Frame::Data { stream, fin, bytes }, &mut all);
                }
                all.extend(bytes);
                // It may be hung up on.
                let _ = theirs.write_all(&all).await;
                let _ = theirs.shutdown().await;
                let _ = theirs.read_to_end(&mut Vec::new()).await;
            };
            let command = async {
                let connection = Connection::new(ours, Side::Client, &[]);
                if let Ok(mut streams) = super::spdy::Streams::open(connection, ECHO).await {
                    while let Ok(Some(_)) = poll_fn(|context| streams.poll_next(context)).await {}
                }
            };
            tokio::join!(runtime, command);
        });
    }

    #[test]
    fn no_websocket_makes_a_command_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..6),
    ) {
        soon(async {
            let (listener, url) = listen().await;
            let runtime = async {
                let (stream, _) = listener.accept().await.unwrap();
                #[allow(clippy::result_large_err)] // the library's own type
                let choose = |request: &Request, mut response: Response| {
                    let chosen = request.headers()["sec-websocket-protocol"].clone();
                    response.headers_mut().insert("sec-websocket-protocol", chosen);
                    Ok(response)
                };
                let mut socket = accept_hdr_async(stream, choose).await.unwrap();
                for message in messages {
                    let _ = socket.send(Message::binary(message)).await;
                }
                let mut stream = socket.into_inner();
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            };
            let command = async {
                let mut command = Command::over_websocket(&url).await.unwrap();
                while let Ok(Some(_)) = command.next().await {}
            };
            tokio::join!(runtime, command);
        });
    }
}
