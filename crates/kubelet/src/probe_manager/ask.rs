//! Trying a container once: the question, put to the runtime or the network.
//!
//! Owns nothing. Upstream: pkg/kubelet/prober/prober.go, pkg/probe.

use std::time::Duration;

use kubelet_config::go_duration::GoDuration;
use kubelet_model::ContainerId;

use super::question::Question;
use crate::ports::{BODY_MAX, HttpAnswer, Ports};

/// Tries while the try itself goes wrong.
const TRIES_MAX: u32 = 3;

/// What a container said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    /// Good enough, but worth a word.
    Warning(String),
    Failure(String),
    /// The try went wrong; `state` is what upstream calls that.
    Error {
        state: &'static str,
        why: String,
    },
}

/// Asks until there is an answer, three times at the most.
pub(super) async fn ask(
    ports: &Ports,
    question: &Result<Question, String>,
    id: &ContainerId,
    pod_ip: Option<&str>,
    timeout: Duration,
) -> Outcome {
    let question = match question {
        Ok(question) => question,
        // Trying again would not change it.
        Err(why) => return unknown(why.clone()),
    };
    let mut outcome = ask_once(ports, question, id, pod_ip, timeout).await;
    for _ in 1..TRIES_MAX {
        if !matches!(outcome, Outcome::Error { .. }) {
            break;
        }
        outcome = ask_once(ports, question, id, pod_ip, timeout).await;
    }
    outcome
}

async fn ask_once(
    ports: &Ports,
    question: &Question,
    id: &ContainerId,
    pod_ip: Option<&str>,
    timeout: Duration,
) -> Outcome {
    let of_pod = |host: &str| match (host, pod_ip) {
        ("", Some(ip)) => Ok(ip.to_owned()),
        ("", None) => Err(unknown("the pod has no address yet".to_owned())),
        (host, _) => Ok(host.to_owned()),
    };
    let result = match question {
        Question::Exec { command } => return exec(ports, id, command, timeout).await,
        Question::Http(request) => match of_pod(&request.host) {
            Ok(host) => {
                let mut request = request.clone();
                request.host = host;
                return match ports.probe_net.http(&request).await {
                    Ok(answer) => judge(&answer),
                    Err(why) => Outcome::Failure(why),
                };
            }
            Err(outcome) => return outcome,
        },
        Question::Tcp { host, port } => match of_pod(host) {
            Ok(host) => ports.probe_net.tcp(&host, *port, timeout).await,
            Err(outcome) => return outcome,
        },
        Question::Grpc { port, service } => match of_pod("") {
            Ok(host) => ports.probe_net.grpc(&host, *port, service, timeout).await,
            Err(outcome) => return outcome,
        },
    };
    match result {
        Ok(()) => Outcome::Success,
        Err(why) => Outcome::Failure(why),
    }
}

fn unknown(why: String) -> Outcome {
    Outcome::Error { state: "unknown", why }
}

fn judge(answer: &HttpAnswer) -> Outcome {
    if let Some(why) = &answer.body_error {
        return Outcome::Error { state: "failure", why: why.clone() };
    }
    match answer.status {
        200..=299 => Outcome::Success,
        300..=399 => {
            let body = String::from_utf8_lossy(&answer.body);
            Outcome::Warning(format!("Probe terminated redirects, Response body: {body}"))
        }
        // The body may hold secrets and stays out of events.
        status => Outcome::Failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}

async fn exec(ports: &Ports, id: &ContainerId, command: &[String], timeout: Duration) -> Outcome {
    match ports.runtime.exec_sync(id.as_str(), command.to_vec(), Some(timeout)).await {
        Ok(answer) if answer.exit_code == 0 => Outcome::Success,
        Ok(answer) => {
            let mut output = answer.stdout;
            output.extend_from_slice(&answer.stderr);
            output.truncate(BODY_MAX);
            Outcome::Failure(String::from_utf8_lossy(&output).into_owned())
        }
        Err(error) if error.is_deadline() => {
            let after = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
            Outcome::Failure(format!(
                "command timed out: {:?} timed out after {}",
                command.join(" "),
                GoDuration::from_nanos(after)
            ))
        }
        // The error's own text names the instance, and would make a new event of each.
        Err(error) => unknown(match error.code() {
            Some(code) => format!("rpc error: code = {code:?} desc = {}", error.reason_text()),
            None => error.reason_text(),
        }),
    }
}
