//! Version 5 of the WebSocket protocol to a client, SPDY to the runtime.
//!
//! Each message of the WebSocket begins with its channel's number; each channel is a
//! stream of the SPDY connection. How the command ended is told last.
//! Upstream: apiserver util/proxy (streamtranslator.go, websocket.go).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use hyper::upgrade::OnUpgrade;
use serde_json::json;
use streaming::spdy::{Connection, Event, Frame, RESET_REFUSED, Side, StreamId};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::STREAM_VERSION;
use super::runtime::{Dialed, SPDY, dial};
use super::splice::{Activity, GRACE};
use super::websocket::{self, Socket};
use crate::view::Stdio;

/// What the client speaks.
pub(super) const PROTOCOL: &str = "v5.channel.k8s.io";
/// What the runtime speaks.
const RUNTIME_PROTOCOL: &str = "v4.channel.k8s.io";
/// The channel on which the end of another is told.
const CLOSE: u8 = 255;
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// Time for the runtime to accept the streams.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// Messages that wait for a client before the runtime is left waiting.
const QUEUE_MAX: usize = 16;
/// Bytes of what is told about the end.
const STATUS_BYTES_MAX: usize = 64 << 10;

/// A command to reach.
pub(super) struct Translation {
    pub url: String,
    pub stdio: Stdio,
    pub idle: Duration,
}

impl Translation {
    /// Translates until one end has had enough.
    pub(super) async fn run(self, client: OnUpgrade) {
        let Some(mut socket) = websocket::open(client).await else {
            return tracing::debug!("a client left before its stream began");
        };
        let opened = timeout(OPEN_LIMIT, self.open()).await;
        let opened = opened.unwrap_or_else(|_| Err("the runtime accepts no streams".to_owned()));
        let (runtime, channels, early) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                tracing::warn!(%error, "a stream could not be begun");
                let told = Message::binary(on(STATUS, failure(&error).as_bytes()));
                // Nobody is left to tell if this fails.
                let _ = timeout(GRACE, async {
                    socket.send(told).await.and(socket.close(Some(done())).await)
                })
                .await;
                return;
            }
        };
        let mut translator = Translator {
            socket,
            runtime,
            channels,
            early,
            queue: VecDeque::new(),
            unsent: false,
            status: Vec::new(),
            told: false,
        };
        // Tells the client that the streams are there.
        let first = if self.stdio.stdout {
            STDOUT
        } else if self.stdio.stderr {
            STDERR
        } else {
            STATUS
        };
        translator.queue.push_back(Message::binary(vec![first]));
        let activity = Activity::new(self.idle);
        tokio::select! {
            ended = translator.run(&activity) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a stream broke");
                }
            }
            () = activity.over() => tracing::debug!("nothing passed on a stream for too long"),
        }
    }

    /// Opens the command's streams and waits until the runtime has accepted all: it
    /// drops what comes on one before that.
    async fn open(&self) -> Result<Opened, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(SPDY));
        headers.insert(&STREAM_VERSION, HeaderValue::from_static(RUNTIME_PROTOCOL));
        let (head, stream, already) = match dial(&self.url, Method::POST, headers).await? {
            Dialed::Upgraded { head, stream, already } => (head, stream, already),
            Dialed::Refused(reply) => {
                // Its body is in memory already.
                let said = reply.into_body().collect().await.map(|said| said.to_bytes());
                let said = said.unwrap_or_default();
                let said = String::from_utf8_lossy(&said);
                return Err(format!("unable to upgrade connection: {}", said.trim()));
            }
        };
        let chosen = head.headers.get(&STREAM_VERSION).map(HeaderValue::as_bytes);
        if chosen != Some(RUNTIME_PROTOCOL.as_bytes()) {
            return Err(format!("the runtime does not speak {RUNTIME_PROTOCOL}"));
        }
        let mut runtime = Connection::new(stream, Side::Client, &already);
        let Stdio { stdin, stdout, stderr, tty } = self.stdio;
        let wanted = [
            (STATUS, "error", true),
            (STDIN, "stdin", stdin),
            (STDOUT, "stdout", stdout),
            (STDERR, "stderr", stderr),
            (RESIZE, "resize", tty),
        ];
        let mut channels = Vec::new();
        for (channel, name, _) in wanted.into_iter().filter(|(_, _, wanted)| *wanted) {
            let stream = runtime.open(vec![("streamtype".to_owned(), name.to_owned())]);
            channels.push((stream, channel));
        }
        let mut waiting: Vec<StreamId> = channels.iter().map(|(stream, _)| *stream).collect();
        let mut early = VecDeque::new();
        while !waiting.is_empty() {
            let event = poll_fn(|context| runtime.poll_event(context)).await;
            match event.map_err(|error| error.to_string())? {
                Some(Event::Drained) => {}
                Some(Event::Frame(Frame::SynReply { stream, .. })) => {
                    waiting.retain(|waiting| *waiting != stream);
                }
                Some(Event::Frame(Frame::RstStream { stream, .. }))
                    if waiting.contains(&stream) =>
                {
                    return Err("the runtime did not accept the command's streams".to_owned());
                }
                Some(Event::Frame(frame)) if early.len() < 4 * QUEUE_MAX => early.push_back(frame),
                Some(Event::Frame(_)) | None => {
                    return Err("the runtime did not accept the command's streams".to_owned());
                }
            }
        }
        Ok((runtime, channels, early))
    }
}

type Opened = (Connection<TcpStream>, Vec<(StreamId, u8)>, VecDeque<Frame>);

/// Clients take any other end for a broken stream, and do not read how it ended.
fn done() -> CloseFrame {
    CloseFrame { code: CloseCode::Normal, reason: Default::default() }
}

fn on(channel: u8, bytes: &[u8]) -> Vec<u8> {
    [&[channel], bytes].concat()
}

/// A status that says why there is no command.
fn failure(why: &str) -> String {
    json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
        "message": format!("Internal error occurred: {why}"),
        "details": {"causes": [{"message": why}]}})
    .to_string()
}

struct Translator {
    socket: Socket,
    runtime: Connection<TcpStream>,
    /// Streams that are open, and their channels.
    channels: Vec<(StreamId, u8)>,
    /// What the runtime said while its streams were opened.
    early: VecDeque<Frame>,
    /// What waits for the client.
    queue: VecDeque<Message>,
    /// Something was handed over and may not have left yet.
    unsent: bool,
    /// How the command ended, as far as it was told.
    status: Vec<u8>,
    told: bool,
}

enum Step {
    Client(Option<Message>),
    Runtime(Option<Event>),
    Delivered,
}

impl Translator {
    async fn run(&mut self, activity: &Activity) -> Result<(), String> {
        while self.speaks() {
            let step = poll_fn(|context| self.poll_step(context)).await?;
            activity.note();
            match step {
                Step::Delivered | Step::Runtime(Some(Event::Drained)) => {}
                Step::Runtime(Some(Event::Frame(frame))) => self.take_from_runtime(frame)?,
                Step::Runtime(None) => break,
                Step::Client(Some(Message::Binary(bytes))) => self.take_from_client(&bytes),
                Step::Client(Some(Message::Text(text))) => self.take_from_client(text.as_bytes()),
                Step::Client(Some(Message::Ping(_) | Message::Pong(_))) => {}
                // Nobody listens any more.
                Step::Client(Some(_) | None) => return Ok(()),
            }
        }
        if !self.told {
            let why = "the runtime's connection ended before the command's end was told";
            self.status = failure(why).into_bytes();
        }
        self.queue.push_back(Message::binary(on(STATUS, &self.status)));
        self.queue.push_back(Message::Close(Some(done())));
        while self.unsent || !self.queue.is_empty() {
            poll_fn(|context| self.poll_deliver(context))
                .await
                .map_err(|error| error.to_string())?;
        }
        // The client says that it has heard.
        let heard = async { while let Some(Ok(_)) = self.socket.next().await {} };
        let _ = timeout(GRACE, heard).await;
        Ok(())
    }

    /// The runtime may still say something.
    fn speaks(&self) -> bool {
        self.channels.iter().any(|(_, channel)| [STDOUT, STDERR, STATUS].contains(channel))
    }

    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Result<Step, String>> {
        if (self.unsent || !self.queue.is_empty())
            && let Poll::Ready(sent) = self.poll_deliver(context)
        {
            return Poll::Ready(sent.map(|()| Step::Delivered).map_err(|error| error.to_string()));
        }
        if self.queue.len() < QUEUE_MAX {
            if let Some(frame) = self.early.pop_front() {
                return Poll::Ready(Ok(Step::Runtime(Some(Event::Frame(frame)))));
            }
            match self.runtime.poll_event(context) {
                Poll::Ready(Ok(event)) => return Poll::Ready(Ok(Step::Runtime(event))),
                // The end was told; how the connection ended after it is no matter.
                Poll::Ready(Err(_)) if self.told => return Poll::Ready(Ok(Step::Runtime(None))),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.to_string())),
                Poll::Pending => {}
            }
        }
        // More is taken from the client once the runtime has what came before.
        if self.runtime.is_drained()
            && let Poll::Ready(message) = self.socket.poll_next_unpin(context)
        {
            let message = message.transpose().map_err(|error| error.to_string());
            return Poll::Ready(message.map(Step::Client));
        }
        Poll::Pending
    }

    fn poll_deliver(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while !self.queue.is_empty() {
            ready!(self.socket.poll_ready_unpin(context))?;
            if let Some(message) = self.queue.pop_front() {
                self.unsent = true;
                self.socket.start_send_unpin(message)?;
            }
        }
        ready!(self.socket.poll_flush_unpin(context))?;
        self.unsent = false;
        Poll::Ready(Ok(()))
    }

    fn stream_of(&self, channel: u8) -> Option<StreamId> {
        self.channels.iter().find(|(_, of)| *of == channel).map(|(stream, _)| *stream)
    }

    fn take_from_client(&mut self, message: &[u8]) {
        let Some((&channel, bytes)) = message.split_first() else { return };
        match channel {
            STDIN | RESIZE if !bytes.is_empty() => {
                if let Some(stream) = self.stream_of(channel) {
                    let bytes = bytes.to_vec();
                    self.runtime.queue(&Frame::Data { stream, fin: false, bytes });
                }
            }
            CLOSE if bytes == [STDIN] => {
                if let Some(stream) = self.stream_of(STDIN) {
                    self.runtime.queue(&Frame::Data { stream, fin: true, bytes: Vec::new() });
                    self.channels.retain(|(open, _)| *open != stream);
                }
            }
            // Channels on which a client has nothing to say.
            _ => {}
        }
    }

    fn take_from_runtime(&mut self, frame: Frame) -> Result<(), String> {
        let (stream, fin) = match frame {
            Frame::Data { stream, fin, bytes } => {
                let channel = self.channels.iter().find(|(open, _)| *open == stream);
                match channel.map(|(_, channel)| *channel) {
                    Some(STATUS) if self.status.len() + bytes.len() > STATUS_BYTES_MAX => {
                        return Err("the runtime tells too much of the command's end".to_owned());
                    }
                    Some(STATUS) => {
                        self.told = true;
                        self.status.extend(bytes);
                    }
                    Some(channel @ (STDOUT | STDERR)) if !bytes.is_empty() => {
                        self.queue.push_back(Message::binary(on(channel, &bytes)));
                    }
                    _ => {}
                }
                (stream, fin)
            }
            Frame::SynReply { stream, fin, .. } | Frame::Headers { stream, fin, .. } => {
                (stream, fin)
            }
            Frame::RstStream { stream, .. } => {
                self.channels.retain(|(open, _)| *open != stream);
                (stream, false)
            }
            // The runtime has no streams to open.
            Frame::SynStream { stream, .. } => {
                let refusal = Frame::RstStream { stream, status: RESET_REFUSED };
                self.runtime.answer(&refusal).map_err(|error| error.to_string())?;
                (stream, false)
            }
            _ => return Ok(()),
        };
        if fin {
            // The end of what it says on the input's stream is not the input's end.
            self.channels
                .retain(|(open, channel)| *open != stream || [STDIN, RESIZE].contains(channel));
        }
        Ok(())
    }
}
