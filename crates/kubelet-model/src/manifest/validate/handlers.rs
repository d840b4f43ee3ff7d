//! Probes and lifecycle hooks.

use k8s_openapi::api::core::v1::{
    ExecAction, HTTPGetAction, LifecycleHandler, PodSpec, Probe, SleepAction, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::problem::{Field, Report, quote};
use super::containers::View;
use super::{given, names, one_of};
use crate::action::Grace;

/// Signals by name; those of the kernel's real-time range are counted from its ends.
const SIGNALS: &[&str] = &[
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGRTMIN",
    "SIGRTMAX",
];

pub(super) fn check(container: &View<'_>, spec: &PodSpec, field: &Field, report: &mut Report) {
    let grace = spec.termination_grace_period_seconds;
    let probes = [
        ("livenessProbe", container.liveness_probe, true),
        ("readinessProbe", container.readiness_probe, false),
        ("startupProbe", container.startup_probe, true),
    ];
    for (key, probe, once) in probes {
        if let Some(probe) = probe {
            check_probe(probe, once, &field.key(key), report);
        }
    }
    if let Some(probe) = container.readiness_probe
        && probe.termination_grace_period_seconds.is_some()
    {
        let field = field.key("readinessProbe").key("terminationGracePeriodSeconds");
        report.add(&field, "a readiness probe cannot have one");
    }
    let Some(lifecycle) = container.lifecycle else {
        return;
    };
    let field = field.key("lifecycle");
    for (key, hook) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
        if let Some(hook) = hook {
            check_hook(hook, grace, &field.key(key), report);
        }
    }
    if let Some(signal) = &lifecycle.stop_signal {
        check_signal(signal, spec, &field.key("stopSignal"), report);
    }
}

fn check_signal(signal: &str, spec: &PodSpec, field: &Field, report: &mut Report) {
    if spec.os.is_none() {
        report.add(field, "needs spec.os.name");
    }
    let number = |rest: &str| rest.parse::<u8>().ok().filter(|_| !rest.starts_with(['0', '+']));
    let from_min = signal.strip_prefix("SIGRTMIN+").and_then(number);
    let from_max = signal.strip_prefix("SIGRTMAX-").and_then(number);
    let known = SIGNALS.contains(&signal)
        || from_min.is_some_and(|number| number <= 15)
        || from_max.is_some_and(|number| number <= 14);
    if !known {
        report.add(field, format!("{} is no signal such as SIGTERM or SIGRTMIN+3", quote(signal)));
    }
}

fn check_probe(probe: &Probe, once: bool, field: &Field, report: &mut Report) {
    let handlers = [
        probe.exec.is_some(),
        probe.grpc.is_some(),
        probe.http_get.is_some(),
        probe.tcp_socket.is_some(),
    ];
    check_count(&handlers, "exec, grpc, httpGet or tcpSocket", field, report);
    check_actions(&probe.exec, &probe.http_get, &probe.tcp_socket, field, report);
    if let Some(grpc) = &probe.grpc {
        report.check(&field.key("grpc").key("port"), names::port_number(grpc.port));
    }
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (key, value) in numbers {
        if value.is_some_and(|value| value < 0) {
            report.add(&field.key(key), "must not be negative");
        }
    }
    if once && probe.success_threshold.is_some_and(|value| value != 1) {
        report.add(&field.key("successThreshold"), "must be 1");
    }
    if probe.termination_grace_period_seconds.is_some_and(|seconds| seconds <= 0) {
        report.add(&field.key("terminationGracePeriodSeconds"), "must be more than 0");
    }
}

fn check_hook(hook: &LifecycleHandler, grace: Option<i64>, field: &Field, report: &mut Report) {
    let handlers = [
        hook.exec.is_some(),
        hook.http_get.is_some(),
        hook.sleep.is_some(),
        hook.tcp_socket.is_some(),
    ];
    check_count(&handlers, "exec, httpGet, sleep or tcpSocket", field, report);
    check_actions(&hook.exec, &hook.http_get, &hook.tcp_socket, field, report);
    if let Some(SleepAction { seconds }) = hook.sleep
        && !(0..=grace.unwrap_or(Grace::DEFAULT_SECONDS)).contains(&seconds)
    {
        let message = "must be between 0 and terminationGracePeriodSeconds";
        report.add(&field.key("sleep").key("seconds"), message);
    }
}

fn check_count(handlers: &[bool], names: &str, field: &Field, report: &mut Report) {
    if handlers.iter().filter(|set| **set).count() != 1 {
        report.add(field, format!("must have exactly one of {names}"));
    }
}

fn check_actions(
    exec: &Option<ExecAction>,
    http: &Option<HTTPGetAction>,
    tcp: &Option<TCPSocketAction>,
    field: &Field,
    report: &mut Report,
) {
    if exec.as_ref().is_some_and(|exec| exec.command.iter().flatten().next().is_none()) {
        report.add(&field.key("exec").key("command"), "missing");
    }
    if let Some(http) = http {
        let field = field.key("httpGet");
        check_port(&http.port, &field.key("port"), report);
        one_of(&http.scheme, &["HTTP", "HTTPS"], &field.key("scheme"), report);
        if given(&http.path).is_none() {
            report.add(&field.key("path"), "missing");
        }
        for (index, header) in http.http_headers.iter().flatten().enumerate() {
            let field = field.key("httpHeaders").index(index).key("name");
            report.check(&field, names::header_name(&header.name));
        }
    }
    if let Some(tcp) = tcp {
        check_port(&tcp.port, &field.key("tcpSocket").key("port"), report);
    }
}

fn check_port(port: &IntOrString, field: &Field, report: &mut Report) {
    match port {
        IntOrString::Int(number) => report.check(field, names::port_number(*number)),
        IntOrString::String(name) => report.check(field, names::port_name(name)),
    }
}
