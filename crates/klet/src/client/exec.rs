//! `klet exec`: runs a command in a container, over the runtime's own stream.
//!
//! The agent asks the runtime for an address on this machine; this dials it and
//! carries input, output and the terminal's size. Upstream:
//! staging/src/k8s.io/client-go/tools/remotecommand.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::ArgMatches;
use kubelet::server::local::wire::{ExecAnswer, ExecQuestion, PodsAnswer};
use serde_json::Value;
use streaming::{Channel, Command, Event, StreamError, Wants};
use tokio::sync::mpsc;

use super::endpoint::Endpoint;
use super::terminal::{self, Endings, Raw};
use super::which;
use crate::cli::complain;

/// Largest account of how a command ended.
const STATUS_BYTES_MAX: usize = 64 << 10;

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
    let command = dial(endpoint, &path, &question).await?;
    // From here on the terminal is not its own; whatever happens, `_raw` gives it back.
    let _raw = (tty && stdin).then(Raw::enter).transpose()?;
    let input = stdin.then(terminal::input).transpose()?;
    let code = Session { command, tty, status: Vec::new() }.run(input).await?;
    Ok(ExitCode::from(code))
}

/// Starts the command. Every runtime speaks SPDY today, and may one day speak
/// WebSockets only.
async fn dial(endpoint: &Endpoint, path: &str, question: &ExecQuestion) -> anyhow::Result<Command> {
    let wants = Wants { stdin: question.stdin, tty: question.tty };
    let answer: ExecAnswer = endpoint.post(path, question).await?;
    match Command::over_spdy(&answer.url, wants).await {
        Err(refusal @ StreamError::Refused { .. }) => {
            // An address works once.
            let answer: ExecAnswer = endpoint.post(path, question).await?;
            let command = Command::over_websocket(&answer.url).await;
            command.map_err(|error| anyhow!("{refusal}; over a WebSocket: {error}"))
        }
        command => Ok(command?),
    }
}

struct Session {
    command: Command,
    tty: bool,
    /// How the command ended, as far as the runtime has told.
    status: Vec<u8>,
}

impl Session {
    /// Carries streams back and forth until the command ends.
    async fn run(mut self, mut input: Option<mpsc::Receiver<Vec<u8>>>) -> anyhow::Result<u8> {
        let mut endings = Endings::listen()?;
        let mut resizes = terminal::resizes()?;
        self.resize();
        loop {
            let takes_input = self.command.takes_input();
            let typed = async {
                match &mut input {
                    Some(input) if takes_input => input.recv().await,
                    _ => std::future::pending().await,
                }
            };
            // Input comes before output, so that Ctrl-C reaches a command that
            // never stops writing; it waits until what came before is sent.
            tokio::select! { biased;
                code = endings.next() => return Ok(code),
                portion = typed => match portion {
                    Some(portion) => self.command.send(Channel::Stdin, &portion),
                    None => {
                        input = None;
                        self.command.end_input();
                    }
                },
                _ = resizes.recv() => self.resize(),
                event = self.command.next() => match event? {
                    Some(Event::Output(channel, bytes)) => self.take(channel, &bytes)?,
                    Some(Event::Sent) => {}
                    None => break,
                },
            }
            // Nothing comes after the whole of it. Waiting for the connection's
            // end could take for ever, if there is input that nobody reads.
            if let Ok(status) = serde_json::from_slice(&self.status) {
                return exit_code(&status);
            }
        }
        match String::from_utf8_lossy(&self.status).trim() {
            "" => bail!(
                "the runtime ended the connection and did not tell how the command ended; if it ran, it may still run"
            ),
            words => bail!("the runtime says: {words}"),
        }
    }

    /// Hands on what came from the command.
    fn take(&mut self, channel: Channel, bytes: &[u8]) -> anyhow::Result<()> {
        match channel {
            Channel::Stdout => super::emit(bytes)?,
            Channel::Stderr => {
                let mut to = std::io::stderr().lock();
                to.write_all(bytes).and_then(|()| to.flush()).context("cannot write errors")?;
            }
            Channel::Error => {
                let room = STATUS_BYTES_MAX.saturating_sub(self.status.len());
                self.status.extend(&bytes[..bytes.len().min(room)]);
            }
            Channel::Stdin | Channel::Resize => {}
        }
        Ok(())
    }

    fn resize(&mut self) {
        let Some((width, height)) = terminal::size().filter(|_| self.tty) else { return };
        let size = serde_json::json!({"Width": width, "Height": height}).to_string();
        self.command.send(Channel::Resize, size.as_bytes());
    }
}

/// How the command ended, from the status the runtime sends last.
fn exit_code(status: &Value) -> anyhow::Result<u8> {
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
    use serde_json::json;

    #[test]
    fn the_commands_exit_code_is_read() {
        assert_eq!(exit_code(&json!({"metadata": {}, "status": "Success"})).unwrap(), 0);
        let failed = json!({"status": "Failure", "message": "command terminated with non-zero exit code",
            "reason": "NonZeroExitCode", "details": {"causes": [{"reason": "ExitCode", "message": "42"}]}});
        assert_eq!(exit_code(&failed).unwrap(), 42);
        let refused = json!({"status": "Failure", "message": "no such file"});
        assert_eq!(exit_code(&refused).unwrap_err().to_string(), "no such file");
    }
}
