//! Courses as tables: what is seen, tick by tick, and what comes of it.

use super::*;

/// Seconds by the wall clock at which the agent of these tests started.
const AGENT_STARTED: i64 = 1_000;

/// Runs a course. Items, in order:
/// `nothing`, `ended`, `ID@SINCE` running, `ID@SINCE+` running and started,
/// `ID` not running; each a tick at the time of the last `t=SECONDS`. If the
/// tick leads to a try, the next `ok`, `bad` or `void` is its outcome.
fn run(rules: Rules, script: &str) -> String {
    let at = |secs: i64| Timestamp::from_second(secs).unwrap();
    let mut course = Course::default();
    let mut now = AGENT_STARTED + 100;
    let mut trying = None;
    let mut out = Vec::new();
    for item in script.split_whitespace() {
        if let Some(secs) = item.strip_prefix("t=") {
            now = AGENT_STARTED + secs.parse::<i64>().unwrap();
            continue;
        }
        let verdict = match item {
            "ok" => Some(Verdict::Well),
            "bad" => Some(Verdict::Unwell),
            "void" => Some(Verdict::Void),
            _ => None,
        };
        if let Some(verdict) = verdict {
            let id: ContainerId = trying.take().expect("an outcome needs a try");
            let change = course.count(rules, &id, verdict);
            out.push(render(&change.into_iter().collect::<Vec<_>>(), None));
            continue;
        }
        let (changes, next) = course.tick(
            rules,
            &seen(item),
            Moment { now: at(now), agent_started: at(AGENT_STARTED) },
        );
        out.push(render(&changes, Some(&next)));
        trying = if let Next::Probe(id) = next { Some(id) } else { None };
    }
    out.join(" | ")
}

fn seen(item: &str) -> Seen {
    match item {
        "nothing" => return Seen::Nothing,
        "ended" => return Seen::PodEnded,
        _ => {}
    }
    let (id, since) = item.split_once('@').map_or((item, None), |(id, since)| (id, Some(since)));
    let started = since.is_some_and(|since| since.ends_with('+'));
    let since = since.map(|since| since.trim_end_matches('+').parse::<i64>().unwrap());
    Seen::Instance {
        id: ContainerId::new(id),
        running_since: since.map(|s| Timestamp::from_second(AGENT_STARTED + s).unwrap()),
        started,
    }
}

fn render(changes: &[Change], next: Option<&Next>) -> String {
    let mut words: Vec<String> = changes
        .iter()
        .map(|change| match change {
            Change::Set(id, result) => format!("{id}={result:?}"),
            Change::Forget(id) => format!("-{id}"),
        })
        .collect();
    words.extend(next.map(|next| match next {
        Next::Probe(id) => format!("try-{id}"),
        Next::Wait => "wait".to_owned(),
        Next::End => "end".to_owned(),
    }));
    if words.is_empty() { "-".to_owned() } else { words.join(" ") }
}

fn rules(kind: ProbeKind) -> Rules {
    Rules {
        kind,
        sidecar: false,
        deleting: false,
        initial_delay_secs: 0,
        period_secs: 10,
        failures_needed: 3,
        successes_needed: 1,
    }
}

fn check(rules: Rules, script: &str, expected: &str) {
    assert_eq!(run(rules, script), expected, "{script}");
}

#[test]
fn waits_until_there_is_something_to_try() {
    let rules = rules(ProbeKind::Liveness);
    check(rules, "nothing nothing", "wait | wait");
    check(rules, "ended", "end");
    check(rules, "a@50+ ok ended", "a=Success try-a | a=Success | end");
}

#[test]
fn initial_values_by_kind() {
    check(rules(ProbeKind::Liveness), "a@50", "a=Success wait");
    check(rules(ProbeKind::Readiness), "a@50", "a=Failure wait");
    check(rules(ProbeKind::Startup), "a@50", "a=Unknown try-a");
}

#[test]
fn only_the_startup_probe_runs_before_the_start_is_over() {
    check(rules(ProbeKind::Readiness), "a@50 a@50+", "a=Failure wait | try-a");
    check(rules(ProbeKind::Startup), "a@50+ a@50", "a=Unknown wait | try-a");
}

#[test]
fn the_initial_delay_counts_from_the_containers_start() {
    let rules = Rules { initial_delay_secs: 30, ..rules(ProbeKind::Readiness) };
    check(rules, "t=50 a@50+ t=79 a@50+ t=80 a@50+", "a=Failure wait | wait | try-a");
    // A wall clock that went back tells nothing; the period does.
    check(rules, "t=10 a@50+ a@50+ a@50+ a@50+", "a=Failure wait | wait | wait | try-a");
}

#[test]
fn thresholds_need_equal_outcomes_in_a_row() {
    let rules = Rules { successes_needed: 2, ..rules(ProbeKind::Readiness) };
    check(
        rules,
        "a@50+ ok a@50+ ok a@50+ bad a@50+ bad a@50+ ok a@50+ bad a@50+ bad a@50+ bad",
        "a=Failure try-a | - | try-a | a=Success | try-a | - | try-a | - | try-a | - | \
         try-a | - | try-a | - | try-a | a=Failure",
    );
}

#[test]
fn a_try_that_went_wrong_counts_for_nothing() {
    check(
        rules(ProbeKind::Liveness),
        "a@50+ bad a@50+ bad a@50+ void a@50+ bad",
        "a=Success try-a | - | try-a | - | try-a | - | try-a | a=Failure",
    );
}

#[test]
fn a_container_that_must_be_restarted_is_left_alone() {
    let rules = Rules { failures_needed: 1, ..rules(ProbeKind::Liveness) };
    check(
        rules,
        "a@50+ bad a@50+ a b@60+ bad",
        "a=Success try-a | a=Failure | wait | wait | -a b=Success try-b | b=Failure",
    );
}

#[test]
fn the_row_is_not_ended_by_a_new_container() {
    check(
        rules(ProbeKind::Readiness),
        "a@50+ bad a@50+ bad b@60+ bad",
        "a=Failure try-a | - | try-a | - | -a b=Failure try-b | b=Failure",
    );
}

#[test]
fn a_startup_probe_rests_after_its_verdict() {
    let rules = Rules { failures_needed: 2, ..rules(ProbeKind::Startup) };
    check(rules, "a@50 ok a@50 a@50+", "a=Unknown try-a | a=Success | wait | wait");
    check(
        rules,
        "a@50 bad a@50 bad a@50 b@60 bad",
        "a=Unknown try-a | - | try-a | a=Failure | wait | -a b=Unknown try-b | -",
    );
}

#[test]
fn a_container_that_does_not_run_is_unwell() {
    check(
        rules(ProbeKind::Readiness),
        "a@50+ ok a a b@70+",
        "a=Failure try-a | a=Success | a=Failure wait | a=Failure wait | -a b=Failure try-b",
    );
}

#[test]
fn a_restart_of_the_agent_does_not_take_readiness_away() {
    check(rules(ProbeKind::Readiness), "a@-60+ bad a@-60+ ok", "try-a | - | try-a | a=Success");
    check(rules(ProbeKind::Readiness), "a@-11+", "try-a");
    check(rules(ProbeKind::Readiness), "a@-10+", "a=Failure try-a");
    check(rules(ProbeKind::Liveness), "a@-60+", "try-a");
    check(rules(ProbeKind::Startup), "a@-60 ok", "try-a | a=Success");
    let sidecar = Rules { sidecar: true, ..rules(ProbeKind::Startup) };
    check(sidecar, "a@-60+", "a=Success try-a");
    check(sidecar, "a@-60", "try-a");
}

#[test]
fn what_is_taken_to_have_started_is_asked_all_the_same() {
    let startup = Rules { failures_needed: 2, ..rules(ProbeKind::Startup) };
    check(startup, "a@-60+ ok a@-60+", "try-a | a=Success | wait");
    check(startup, "a@-60+ bad a@-60+ bad a@-60", "try-a | - | try-a | a=Failure | wait");
    check(startup, "a@50+ a@50+", "a=Unknown wait | wait");
    let sidecar = Rules { sidecar: true, ..startup };
    check(sidecar, "a@-60+ bad a@-60+ bad", "a=Success try-a | - | try-a | a=Failure");
}

#[test]
fn a_pod_being_deleted_is_only_asked_whether_it_is_ready() {
    let deleting = |kind| Rules { deleting: true, ..rules(kind) };
    check(deleting(ProbeKind::Liveness), "a@50+", "a=Success a=Success end");
    check(deleting(ProbeKind::Startup), "a@50", "a=Unknown a=Success end");
    check(deleting(ProbeKind::Readiness), "a@50+", "a=Failure try-a");
}

#[test]
fn rules_fall_back_to_upstreams_defaults() {
    let probe = Probe { failure_threshold: Some(0), ..Probe::default() };
    let read = Rules::new(ProbeKind::Readiness, &probe, false, false);
    assert_eq!(read, rules(ProbeKind::Readiness));
}
