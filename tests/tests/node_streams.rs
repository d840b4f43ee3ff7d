//! Streams through the node's own API to a real runtime: commands, attached
//! containers, forwarded ports, over SPDY/3.1 and WebSocket.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::future::poll_fn;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use streaming::spdy::{Connection, Frame, Side, StreamId};
use streaming::{Channel, Command, Event, Wants};
use testkit::plain_door::PlainDoor;
use testkit::{Cluster, PodManifest};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::{WebSocketStream, client_async};

/// How long one stream may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes on their way through a tunnel.
const TUNNEL_BYTES: usize = 64 << 10;

/// A cluster with a pod, and a way to its node's API for somebody who may do anything.
struct World {
    cluster: Cluster,
    door: PlainDoor,
    runtime: tokio::runtime::Runtime,
}

impl World {
    fn start(pod: &PodManifest) -> Result<Self> {
        let cluster = Cluster::start()?;
        cluster.create_pod(pod)?;
        cluster.wait_ready("web")?;
        let now = jiff::Timestamp::now();
        let own = cluster.api.authority().client("admin", Some("system:masters"), now)?;
        let door = PlainDoor::open(cluster.port, Some((&own.certificate, &own.key)))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { cluster, door, runtime })
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.door.host())
    }

    fn run<T>(&self, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let timed = async { tokio::time::timeout(LIMIT, work).await };
        self.runtime.block_on(timed).context("it took too long").flatten().context(what.to_owned())
    }

    async fn web_socket(
        &self,
        path: &str,
        protocol: &'static str,
    ) -> Result<WebSocketStream<TcpStream>> {
        let mut request = format!("ws://{}{path}", self.door.host()).into_client_request()?;
        let offered = HeaderValue::from_static(protocol);
        request.headers_mut().insert("sec-websocket-protocol", offered);
        let stream = TcpStream::connect(self.door.host()).await?;
        let (socket, told) = client_async(request, stream).await?;
        assert_eq!(told.headers()["sec-websocket-protocol"], protocol);
        Ok(socket)
    }
}

/// What a command said on each of its streams.
#[derive(Debug, Default)]
struct Said {
    out: String,
    err: String,
    end: String,
}

impl Said {
    fn add(&mut self, channel: u8, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        match channel {
            1 => self.out.push_str(&text),
            2 => self.err.push_str(&text),
            3 => self.end.push_str(&text),
            other => panic!("channel {other} says {text:?}"),
        }
    }

    /// How it ended: its exit code.
    fn code(&self) -> Result<i64> {
        let status: Value = serde_json::from_str(&self.end).context(self.end.clone())?;
        if status["status"] == "Success" {
            return Ok(0);
        }
        ensure!(status["reason"] == "NonZeroExitCode", "{status:#}");
        let causes = status["details"]["causes"].as_array().context("no causes")?;
        let code = causes.iter().find(|cause| cause["reason"] == "ExitCode");
        Ok(code.context("no code")?["message"].as_str().context("no text")?.parse()?)
    }
}

fn exec(script: &str, options: &str) -> String {
    let script: String = script.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("/exec/default/web/main?command=sh&command=-c&command={script}&{options}")
}

/// Gives a command its input, and takes down all that it says.
async fn converse(mut command: Command, input: Option<&[u8]>) -> Result<Said> {
    if let Some(input) = input {
        command.send(Channel::Stdin, input);
        command.end_input();
    }
    let mut said = Said::default();
    while let Some(event) = command.next().await? {
        if let Event::Output(channel, bytes) = event {
            said.add(channel as u8, &bytes);
        }
    }
    Ok(said)
}

/// Says a line until the command has said a word.
async fn converse_until(command: &mut Command, word: &str) -> Result<String> {
    let mut heard = String::new();
    while !heard.contains(word) {
        match command.next().await? {
            Some(Event::Output(Channel::Stdout, bytes)) => {
                heard.push_str(&String::from_utf8_lossy(&bytes));
            }
            Some(Event::Output(channel, bytes)) => {
                bail!("{channel:?} says {:?} after {heard:?}", String::from_utf8_lossy(&bytes))
            }
            Some(Event::Sent) => {}
            None => bail!("it ended after {heard:?}"),
        }
    }
    Ok(heard)
}

const STAYS: &str = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
const TALKS: &str = "read word; echo said $word; echo complains >&2; exit 7";
const ALL: &str = "input=1&output=1&error=1";

#[test]
fn commands_over_spdy_and_websocket() -> Result<()> {
    let world = World::start(&PodManifest::script("web", STAYS))?;
    for protocol in ["SPDY/3.1", "v5.channel.k8s.io"] {
        let run = |script: &str, input: Option<&[u8]>| {
            let options = if input.is_some() { ALL } else { "output=1&error=1" };
            let url = world.url(&exec(script, options));
            world.run(protocol, async {
                let wants = Wants { stdin: input.is_some(), tty: false };
                let command = match protocol {
                    "SPDY/3.1" => Command::over_spdy(&url, wants).await?,
                    _ => Command::over_websocket(&url).await?,
                };
                converse(command, input).await
            })
        };
        let said = run(TALKS, Some(b"hello\n"))?;
        assert_eq!((said.out.as_str(), said.err.as_str()), ("said hello\n", "complains\n"));
        assert_eq!(said.code()?, 7, "{protocol}");
        // The end of the input is told, too.
        let said = run("wc -c", Some(&[b'x'; 100_000]))?;
        assert_eq!((said.out.trim(), said.code()?), ("100000", 0), "{protocol}");
        let said = run("echo done", None)?;
        assert_eq!((said.out.trim(), said.code()?), ("done", 0), "{protocol}");
        // What is not there cannot be run, which is not an exit code.
        let url = world.url("/exec/default/web/main?command=no-such-program&output=1&error=1");
        let said = world.run(protocol, async {
            let command = match protocol {
                "SPDY/3.1" => Command::over_spdy(&url, Wants { stdin: false, tty: false }).await?,
                _ => Command::over_websocket(&url).await?,
            };
            converse(command, None).await
        })?;
        assert!(said.end.contains("no-such-program"), "{protocol}: {said:?}");
    }
    // Version 4 cannot tell the input's end; this command does not wait for it.
    let said = world.run("v4.channel.k8s.io", async {
        let mut socket = world.web_socket(&exec(TALKS, ALL), "v4.channel.k8s.io").await?;
        socket.send(Message::binary(b"\0hello\n".to_vec())).await?;
        let mut said = Said::default();
        while let Some(message) = socket.next().await {
            match message? {
                Message::Binary(bytes) if bytes.len() > 1 => said.add(bytes[0], &bytes[1..]),
                Message::Close(_) => break,
                _ => {}
            }
        }
        Ok(said)
    })?;
    assert_eq!((said.out.as_str(), said.err.as_str()), ("said hello\n", "complains\n"));
    assert_eq!(said.code()?, 7);
    Ok(())
}

#[test]
fn a_terminal_has_the_size_it_is_told() -> Result<()> {
    let world = World::start(&PodManifest::script("web", STAYS))?;
    // It gives up after a while, so that a failure shows.
    let script = r#"n=0; until [ "$(stty size 2>/dev/null)" = "31 97" ] || [ $n -gt 100 ]
        do n=$((n+1)); sleep 0.1; done; echo then $(stty size); exit 3"#;
    let url = world.url(&exec(script, "input=1&output=1&tty=1"));
    for protocol in ["SPDY/3.1", "v5.channel.k8s.io"] {
        let said = world.run(protocol, async {
            let mut command = match protocol {
                "SPDY/3.1" => Command::over_spdy(&url, Wants { stdin: true, tty: true }).await?,
                _ => Command::over_websocket(&url).await?,
            };
            command.send(Channel::Resize, br#"{"Width":97,"Height":31}"#);
            converse(command, None).await
        })?;
        assert_eq!((said.out.as_str(), said.code()?), ("then 31 97\r\n", 3), "{protocol}");
        assert_eq!(said.err, "", "a terminal is for both");
    }
    Ok(())
}

#[test]
fn a_container_is_attached_to() -> Result<()> {
    let script = "echo begun; while read word; do echo said $word; done; echo over; sleep 3600";
    let pod = PodManifest::script("web", script).with("stdin", json!(true));
    let world = World::start(&pod)?;
    world.cluster.node.wait_word("web", "main", "begun")?;
    let before = world.cluster.node.instances()?;
    let url = world.url(&format!("/attach/default/web/main?{ALL}"));
    for (protocol, word) in [("SPDY/3.1", "one"), ("v5.channel.k8s.io", "two")] {
        let heard = world.run(protocol, async {
            let mut command = match protocol {
                "SPDY/3.1" => Command::over_spdy(&url, Wants { stdin: true, tty: false }).await?,
                _ => Command::over_websocket(&url).await?,
            };
            command.send(Channel::Stdin, format!("{word}\n").as_bytes());
            converse_until(&mut command, &format!("said {word}\n")).await
        })?;
        assert!(!heard.contains("begun"), "that was before: {heard:?}");
        // Whoever is attached and leaves takes neither container nor input away.
        world.cluster.node.wait_word("web", "main", &format!("said {word}"))?;
    }
    assert_eq!(world.cluster.node.instances()?, before);
    Ok(())
}

/// One connection of a port that is forwarded: what came, and what went wrong.
async fn forward<S: AsyncRead + AsyncWrite + Unpin>(
    mut link: Connection<S>,
    port: u16,
    ask: &[u8],
) -> Result<(String, String)> {
    let mut open = |kind: &str| -> StreamId {
        let pair = |name: &str, value: String| (name.to_owned(), value);
        link.open(vec![
            pair("streamtype", kind.to_owned()),
            pair("port", port.to_string()),
            pair("requestid", "0".to_owned()),
        ])
    };
    let (error, data) = (open("error"), open("data"));
    link.queue(&Frame::Data { stream: error, fin: true, bytes: Vec::new() });
    link.queue(&Frame::Data { stream: data, fin: false, bytes: ask.to_vec() });
    let (mut said, mut wrong) = (Vec::new(), Vec::new());
    let mut ended = [false; 2];
    while ended != [true; 2] {
        let event = poll_fn(|context| link.poll_event(context)).await?;
        match event.context("the link broke off")? {
            streaming::spdy::Event::Frame(Frame::Data { stream, fin, bytes }) => {
                let list = if stream == error { &mut wrong } else { &mut said };
                list.extend_from_slice(&bytes);
                ended[usize::from(stream == error)] |= fin;
            }
            streaming::spdy::Event::Frame(Frame::RstStream { stream, .. }) => {
                ended[usize::from(stream == error)] = true;
            }
            _ => {}
        }
    }
    Ok((String::from_utf8(said)?, String::from_utf8(wrong)?))
}

/// Asks for SPDY/3.1 to forward ports, as `kubectl` did before WebSockets.
async fn upgrade(host: &str, path: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(host).await?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: portforward.k8s.io\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut told = Vec::new();
    while !told.ends_with(b"\r\n\r\n") {
        told.push(stream.read_u8().await?);
    }
    let told = String::from_utf8(told)?;
    ensure!(told.starts_with("HTTP/1.1 101"), "{told}");
    Ok(stream)
}

/// Carries bytes of one end as messages of a WebSocket.
async fn tunnel(socket: WebSocketStream<TcpStream>, inside: DuplexStream) -> Result<()> {
    let (mut to, mut from) = socket.split();
    let (mut read, mut write) = tokio::io::split(inside);
    let there = async {
        let mut buffer = vec![0; TUNNEL_BYTES];
        loop {
            let count = read.read(&mut buffer).await?;
            if count == 0 {
                return Ok(to.close().await?);
            }
            to.send(Message::binary(buffer[..count].to_vec())).await?;
        }
    };
    let back = async {
        while let Some(message) = from.next().await {
            if let Message::Binary(bytes) = message? {
                write.write_all(&bytes).await?;
            }
        }
        Ok(write.shutdown().await?)
    };
    tokio::try_join!(there, back).map(|((), ())| ())
}

#[test]
fn ports_are_forwarded() -> Result<()> {
    let script = "mkdir /tmp/www; echo hi >/tmp/www/here; exec httpd -f -p 8080 -h /tmp/www";
    let probe = json!({"httpGet": {"path": "/here", "port": 8080}, "periodSeconds": 1});
    let world = World::start(&PodManifest::script("web", script).with("readinessProbe", probe))?;
    let (host, path) = (world.door.host(), "/portForward/default/web");
    let ask = b"GET /here HTTP/1.0\r\n\r\n";
    let over_spdy = |port: u16| {
        world.run("SPDY/3.1", async {
            let link = Connection::new(upgrade(&host, path).await?, Side::Client, &[]);
            forward(link, port, ask).await
        })
    };
    let over_tunnel = |port: u16| {
        world.run("a tunnel", async {
            let socket = world.web_socket(path, "SPDY/3.1+portforward.k8s.io").await?;
            let (near, far) = tokio::io::duplex(TUNNEL_BYTES);
            let link = forward(Connection::new(near, Side::Client, &[]), port, ask);
            tokio::select! {
                biased;
                said = link => said,
                ended = tunnel(socket, far) => ended.and_then(|()| bail!("the tunnel ended")),
            }
        })
    };
    for (said, wrong) in [over_spdy(8080)?, over_tunnel(8080)?] {
        assert!(said.contains("200 OK") && said.ends_with("\r\n\r\nhi\n"), "{said:?} {wrong:?}");
        assert_eq!(wrong, "");
    }
    // Nobody listens there.
    for (said, wrong) in [over_spdy(8081)?, over_tunnel(8081)?] {
        assert!(said.is_empty() && wrong.contains("refused"), "{said:?} {wrong:?}");
    }
    // As `kubectl` never did, but others do: the port in the query, two channels for it.
    let said = world.run("v4.channel.k8s.io", async {
        let path = format!("{path}?port=8080");
        let mut socket = world.web_socket(&path, "v4.channel.k8s.io").await?;
        socket.send(Message::binary([b"\0", &ask[..]].concat())).await?;
        let mut said = Vec::new();
        while !said.ends_with(b"hi\n") {
            let message = socket.next().await.context("it ended")??;
            if let Message::Binary(bytes) = message
                && bytes.first() == Some(&0)
            {
                said.extend_from_slice(&bytes[1..]);
            }
        }
        Ok(said)
    })?;
    // First comes the port, as a number of two bytes.
    assert!(said.starts_with(&8080_u16.to_le_bytes()), "{said:?}");
    Ok(())
}
