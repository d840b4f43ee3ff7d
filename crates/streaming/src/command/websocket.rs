//! A command over a WebSocket: each message begins with its channel's number.
//!
//! Only version 5 of the protocol will do: earlier ones cannot tell that the
//! input has ended. Upstream: client-go's tools/remotecommand (websocket.go).

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::{Channel, Event, StreamError};
use crate::upgrade::{connect as dial, split};

const PROTOCOL: &str = "v5.channel.k8s.io";
const PROTOCOL_HEADER: &str = "sec-websocket-protocol";
/// The channel on which the end of another is told.
const CLOSE: u8 = 255;
/// Largest message taken.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

pub(super) struct Socket {
    socket: WebSocketStream<TcpStream>,
    /// What waits to be sent; more is given only when nothing does.
    queue: VecDeque<Message>,
    /// Something was handed over and may not have left yet.
    unsent: bool,
    input_ended: bool,
}

pub(super) async fn connect(url: &str) -> Result<Socket, StreamError> {
    let (host, path) = split(url)?;
    let address = || StreamError::Address(url.to_owned());
    let mut request = format!("ws://{host}{path}").into_client_request().map_err(|_| address())?;
    request.headers_mut().insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let stream = dial(url).await?;
    let (socket, response) =
        client_async_with_config(request, stream, Some(limits)).await.map_err(Box::new)?;
    let chosen = response.headers().get(PROTOCOL_HEADER).map(HeaderValue::as_bytes);
    if chosen != Some(PROTOCOL.as_bytes()) {
        let chosen = String::from_utf8_lossy(chosen.unwrap_or_default()).into_owned();
        return Err(StreamError::Protocol(chosen));
    }
    Ok(Socket { socket, queue: VecDeque::new(), unsent: false, input_ended: false })
}

impl Socket {
    pub(super) fn takes_input(&self) -> bool {
        self.queue.is_empty() && !self.unsent && !self.input_ended
    }

    pub(super) fn send(&mut self, channel: Channel, bytes: &[u8]) {
        self.queue.push_back(Message::binary([&[channel as u8], bytes].concat()));
    }

    pub(super) fn end_input(&mut self) {
        self.input_ended = true;
        self.queue.push_back(Message::binary(vec![CLOSE, Channel::Stdin as u8]));
    }

    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Event>, StreamError>> {
        if self.unsent || !self.queue.is_empty() {
            match self.poll_send(context) {
                Poll::Ready(Ok(())) => return Poll::Ready(Ok(Some(Event::Sent))),
                // It reads no more; what it said last may still come.
                Poll::Ready(Err(_)) => {
                    self.queue.clear();
                    self.unsent = false;
                }
                Poll::Pending => {}
            }
        }
        loop {
            let message = match ready!(self.socket.poll_next_unpin(context)) {
                None => return Poll::Ready(Ok(None)),
                Some(Err(error)) => return Poll::Ready(Err(Box::new(error).into())),
                Some(Ok(message)) => message,
            };
            let bytes: &[u8] = match &message {
                Message::Binary(bytes) => bytes,
                Message::Text(text) => text.as_bytes(),
                Message::Close(_) => return Poll::Ready(Ok(None)),
                _ => continue,
            };
            let channel = match bytes.first() {
                Some(1) => Channel::Stdout,
                Some(2) => Channel::Stderr,
                Some(3) => Channel::Error,
                _ => continue,
            };
            if let Some(bytes) = bytes.get(1..).filter(|bytes| !bytes.is_empty()) {
                return Poll::Ready(Ok(Some(Event::Output(channel, bytes.to_vec()))));
            }
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
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
}
