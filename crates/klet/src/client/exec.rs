//! `klet exec`: runs a command in a container, over the runtime's own stream.
//!
//! The agent asks the runtime for an address on this machine; this dials it and
//! speaks Kubernetes' channel protocol over a WebSocket. Upstream:
//! staging/src/k8s.io/client-go/tools/remotecommand.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::ArgMatches;
use futures_util::{SinkExt, StreamExt};
use kubelet::server::local::wire::{ExecAnswer, ExecQuestion, PodsAnswer};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Message, http};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::endpoint::Endpoint;
use super::terminal::{self, Endings, Raw};
use super::which;
use crate::cli::complain;

/// The newest protocol first: only that one can tell the end of the input.
const PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";
const WITH_CLOSE: &str = "v5.channel.k8s.io";

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

pub async fn run(endpoint: &Endpoint, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let wanted = matches.get_one::<String>("pod").map_or("", String::as_str);
    let namespace = matches.get_one::<String>("namespace").map(String::as_str);
    let pods: PodsAnswer = endpoint.get("/pods").await?;
    let pod = which::find(&pods, wanted, namespace)?;
    let container =
        which::container(pod, matches.get_one::<String>("container").map(String::as_str))?;
    let (stdin, mut tty) = (matches.get_flag("stdin"), matches.get_flag("tty"));
    if tty && stdin && !terminal::is_terminal() {
        complain("warning: -t has no effect: the input is not a terminal");
        tty = false;
    }
    let command = matches.get_many::<String>("command").into_iter().flatten().cloned().collect();
    // A terminal without input is one that containerd hangs up at once, output and all.
    let question = ExecQuestion { command, stdin: stdin || tty, tty };
    let path = format!("/exec/{}/{container}", which::full_name(pod));
    let answer: ExecAnswer = endpoint.post(&path, &question).await?;
    let (socket, closes) = dial(&answer.url).await?;
    // From here on the terminal is not its own; whatever happens, `_raw` gives it back.
    let _raw = (tty && stdin).then(Raw::enter).transpose()?;
    let input = stdin.then(terminal::input).transpose()?;
    let code = Session { socket, closes, tty, told: None }.run(input).await?;
    Ok(ExitCode::from(code))
}

type Socket = WebSocketStream<TcpStream>;

/// Connects to the runtime; tells whether it understands the end of the input.
async fn dial(url: &str) -> anyhow::Result<(Socket, bool)> {
    let failed = || format!("cannot reach the runtime's stream at {url}");
    let rest = url.strip_prefix("http://").with_context(failed)?;
    let address = rest.split('/').next().unwrap_or_default();
    let stream = TcpStream::connect(address).await.with_context(failed)?;
    let mut request = format!("ws://{rest}").into_client_request().with_context(failed)?;
    let protocols = http::HeaderValue::from_static(PROTOCOLS);
    request.headers_mut().insert("sec-websocket-protocol", protocols);
    let (socket, response) = client_async(request, stream).await.map_err(|error| {
        anyhow!(
            "{}: {error}; klet needs a runtime that streams over WebSockets, as containerd does",
            failed()
        )
    })?;
    let chosen = response.headers().get("sec-websocket-protocol");
    Ok((socket, chosen.is_some_and(|chosen| chosen == WITH_CLOSE)))
}

struct Session {
    socket: Socket,
    /// The runtime understands the end of the input.
    closes: bool,
    tty: bool,
    /// How the command ended, once the runtime has told.
    told: Option<anyhow::Result<u8>>,
}

impl Session {
    /// Carries streams back and forth until the command ends.
    async fn run(mut self, mut input: Option<mpsc::Receiver<Vec<u8>>>) -> anyhow::Result<u8> {
        let mut endings = Endings::listen()?;
        let mut resizes = terminal::resizes()?;
        self.resize().await?;
        loop {
            let typed = async {
                match &mut input {
                    Some(input) => input.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! { biased;
                code = endings.next() => return Ok(code),
                message = self.socket.next() => {
                    let Some(message) = message.transpose().context("the connection to the command broke")? else { break };
                    match message {
                        Message::Binary(bytes) => self.take(&bytes)?,
                        Message::Text(text) => self.take(text.as_bytes())?,
                        Message::Close(_) => break,
                        _ => {}
                    }
                }
                portion = typed => match portion {
                    Some(portion) => self.send(STDIN, &portion).await?,
                    None => {
                        input = None;
                        self.end_input().await?;
                    }
                },
                _ = resizes.recv() => self.resize().await?,
            }
        }
        self.told.unwrap_or_else(|| {
            Err(anyhow!("the runtime ended the connection and did not tell how the command ended"))
        })
    }

    /// Hands on what came from the command.
    fn take(&mut self, message: &[u8]) -> anyhow::Result<()> {
        let Some((channel, bytes)) = message.split_first().filter(|(_, bytes)| !bytes.is_empty())
        else {
            return Ok(());
        };
        match *channel {
            STDOUT => super::emit(bytes)?,
            STDERR => {
                let mut to = std::io::stderr().lock();
                to.write_all(bytes).and_then(|()| to.flush())?;
            }
            ERROR => self.told = Some(exit_code(bytes)),
            _ => {}
        }
        Ok(())
    }

    async fn send(&mut self, channel: u8, bytes: &[u8]) -> anyhow::Result<()> {
        let message = [&[channel], bytes].concat();
        match self.socket.send(Message::binary(message)).await {
            Ok(()) => Ok(()),
            // The command has ended; what it said last is still to be read.
            Err(_) if channel == STDIN => Ok(()),
            Err(error) => Err(error).context("the connection to the command broke"),
        }
    }

    async fn end_input(&mut self) -> anyhow::Result<()> {
        if self.closes {
            return self.send(CLOSE, &[STDIN]).await;
        }
        if !self.tty {
            complain(
                "note: this runtime cannot be told that the input ended; a command that waits for more will not \
                 end by itself (Ctrl-C ends it)",
            );
        }
        Ok(())
    }

    async fn resize(&mut self) -> anyhow::Result<()> {
        let Some((width, height)) = terminal::size().filter(|_| self.tty) else { return Ok(()) };
        let size = serde_json::json!({"Width": width, "Height": height}).to_string();
        self.send(RESIZE, size.as_bytes()).await
    }
}

/// How the command ended, from the status the runtime sends last.
fn exit_code(status: &[u8]) -> anyhow::Result<u8> {
    let status: Value = serde_json::from_slice(status)
        .map_err(|_| anyhow!("the runtime says: {}", String::from_utf8_lossy(status).trim()))?;
    if status["status"] == "Success" {
        return Ok(0);
    }
    let causes = status["details"]["causes"].as_array();
    let cause = causes.into_iter().flatten().find(|cause| cause["reason"] == "ExitCode");
    let code = cause.and_then(|cause| cause["message"].as_str()).and_then(|code| code.parse().ok());
    match code {
        Some(code) => Ok(code),
        None => bail!("{}", status["message"].as_str().unwrap_or("the command could not be run")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_exit_code_is_read() {
        assert_eq!(exit_code(br#"{"metadata":{},"status":"Success"}"#).unwrap(), 0);
        let failed = br#"{"status":"Failure","message":"command terminated with non-zero exit code",
            "reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"42"}]}}"#;
        assert_eq!(exit_code(failed).unwrap(), 42);
        let refused = br#"{"status":"Failure","message":"no such file"}"#;
        assert_eq!(exit_code(refused).unwrap_err().to_string(), "no such file");
        assert!(exit_code(b"nonsense").unwrap_err().to_string().contains("nonsense"));
    }
}
