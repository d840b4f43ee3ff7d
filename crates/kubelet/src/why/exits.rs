//! What exit codes mean, and what to do about them. Pure.

use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_model::{RestartPolicy, WaitReason};

use super::WhyFacts;
use super::advice::{full_name, is_of, memory_limit};
use crate::events::Event;

/// Reason of an end that nobody saw.
const UNKNOWN: &str = "ContainerStatusUnknown";
/// Reason of an end by which the whole pod starts over.
const RESTARTING_ALL: &str = WaitReason::RestartingAllContainers.as_str();

/// What a container's end means.
pub(super) fn meaning(ended: &ContainerStateTerminated) -> String {
    let known = match ended.reason.as_deref() {
        Some("OOMKilled") => "it used more memory than its limit allows and the kernel killed it",
        Some(UNKNOWN) => {
            "klet lost track of it, so nobody knows how it ended; the code only stands for that"
        }
        Some(RESTARTING_ALL) => {
            "klet removed it, because the whole pod started over; the code only stands for that"
        }
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let code = ended.exit_code;
    let text = match code {
        0 => "it ended, and said that all went well",
        1 => "the program reported an error",
        2 => "the program reported wrong usage: often a bad argument or a syntax error in a script",
        125 => "the container could not be set up",
        126 => "the command exists but cannot be executed",
        127 => "the command was not found",
        128 => {
            "the container could not be started: often its command or working directory is not in the image"
        }
        129 => "signal SIGHUP ended it",
        130 => "signal SIGINT ended it",
        132 => "it used an instruction this processor does not have (SIGILL)",
        134 => "it aborted itself (SIGABRT)",
        135 => "it touched memory that is not there (SIGBUS)",
        136 => "it failed in arithmetic (SIGFPE)",
        137 => "it was killed (SIGKILL)",
        139 => "it crashed on a bad memory access (SIGSEGV)",
        141 => "it wrote to a closed pipe (SIGPIPE)",
        143 => "it was asked to stop (SIGTERM)",
        255 => "the program reported an error outside the usual range",
        code if (129..=192).contains(&code) => return format!("signal {} ended it", code - 128),
        _ => "the program reported an error of its own",
    };
    text.to_owned()
}

/// What is told of a container's instance being killed: the last time that this
/// container was, unless that was before the instance began.
pub(super) fn killing<'e>(
    facts: &WhyFacts<'e>,
    container: &str,
    began: Option<&Time>,
) -> Option<&'e Event> {
    let mut events = facts.events.iter().rev();
    let killing = events.find(|event| event.reason == "Killing" && is_of(event, container))?;
    began.is_none_or(|began| killing.last >= began.0).then_some(killing)
}

/// The kind of probe that such an event blames.
pub(super) fn blamed_probe<'e>(killing: &'e Event, container: &str) -> Option<&'e str> {
    let kind = killing.message.strip_prefix(&format!("Container {container} failed "))?;
    Some(kind.strip_suffix("probe, will be restarted")?.trim())
}

/// The probe that had an instance killed, if one had.
pub(super) fn killed_by_probe(
    facts: &WhyFacts<'_>,
    container: &str,
    ended: &ContainerStateTerminated,
) -> Option<String> {
    let kind = blamed_probe(killing(facts, container, ended.started_at.as_ref())?, container)?;
    Some(format!(
        "Its {kind} probe failed and so klet stopped it: see the {kind}Probe in the manifest and `klet events {}`.",
        full_name(facts.pod)
    ))
}

/// What to do about it. `logs` is the command that shows the output.
pub(super) fn advice(
    ended: &ContainerStateTerminated,
    container: &Container,
    restart_policy: RestartPolicy,
    logs: &str,
) -> Vec<String> {
    match ended.reason.as_deref() {
        Some(UNKNOWN) => {
            return vec![
                "This happens when a container vanishes from the runtime, or the machine went down: see `journalctl -u containerd`, `last -x`.".to_owned(),
                format!("Read what it said last, if it is still there: {logs}"),
            ];
        }
        Some(RESTARTING_ALL) => {
            return vec!["Nothing about this one: see restartPolicyRules in the manifest, and the container whose exit code they name.".to_owned()];
        }
        _ => {}
    }
    if ended.reason.as_deref() == Some("OOMKilled") {
        let limit = memory_limit(container).unwrap_or_else(|| "no limit of its own".to_owned());
        return vec![
            format!("Raise resources.limits.memory (now {limit}), or make the program use less."),
            "`klet top` shows what it uses while it runs.".to_owned(),
        ];
    }
    let command = command_of(container);
    let mut advice = match ended.exit_code {
        0 if restart_policy == RestartPolicy::Always => vec![
            "It is started again because restartPolicy is Always. A job wants restartPolicy: OnFailure or Never."
                .to_owned(),
            "A server must stay in the foreground: look for an option like --foreground or `daemon off`.".to_owned(),
        ],
        126 => vec![format!(
            "Make {command} executable in the image (chmod +x), and check that a script names an interpreter \
             in its first line (#!/bin/sh)."
        )],
        127 | 128 => vec![format!(
            "Check command and args in the manifest: {command} must exist in the image under exactly that path; \
             arguments go into args, one item each."
        )],
        132 => vec!["Use an image built for this kind of processor.".to_owned()],
        137 => vec![
            "If it did not end within its grace period after SIGTERM, make it handle SIGTERM or raise \
             terminationGracePeriodSeconds."
                .to_owned(),
            "If nobody stopped it, the machine may have run out of memory: see `dmesg | grep -i oom`.".to_owned(),
        ],
        139 | 134 => vec!["This is a fault of the program: look for a newer image, or report it to its makers.".to_owned()],
        143 => vec!["Somebody or a failing liveness probe stopped it: see `klet events`.".to_owned()],
        _ => Vec::new(),
    };
    advice.push(format!("Read what it said last: {logs}"));
    advice
}

/// The program a container runs, as the manifest names it.
fn command_of(container: &Container) -> String {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    match words.into_iter().next() {
        Some(program) => format!("{program:?}"),
        None => "the image's own command".to_owned(),
    }
}
