//! Which statuses are refused.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{Pod, PodStatus};

use super::case::Case;
use crate::status_manager::Statuses;

/// Whether the second status is taken over after the first.
fn is_taken(case: &Case, first: &PodStatus, second: PodStatus) -> bool {
    let statuses = Statuses::default();
    statuses.set(&case.pod, first.clone());
    statuses.set(&case.pod, second.clone());
    let told = statuses.get(case.pod.uid()).expect("a status");
    assert!(*told == second || *told == *first);
    *told == second
}

#[test]
fn what_ended_for_good_stays_so() {
    let cases = [
        ("Always | app |", "app exited=0", "app running restarts=1", true),
        ("OnFailure | app |", "app exited=1", "app running restarts=1", true),
        ("OnFailure | app |", "app exited=0", "app running restarts=1", false),
        ("Never | app db |", "app exited=1; db running", "app running; db running", false),
        ("Never | app db |", "app running; db running", "app exited=1; db running", true),
        ("Never setup | app |", "setup exited=0", "setup running", false),
        ("OnFailure setup | app |", "setup exited=0", "setup running", true),
        ("Never proxy* | app |", "proxy exited=0; app running", "proxy running; app running", true),
        ("Never | app | debug", "app running; debug exited=0", "app running; debug running", true),
    ];
    for (pod, first, second, taken) in cases {
        let case = Case::new(pod);
        let (before, after) = (case.sees(first), case.sees(second));
        assert_eq!(is_taken(&case, &before, after), taken, "{pod}: {first} -> {second}");
    }
}

#[test]
fn rules_let_a_container_come_back() {
    let rule = |action: &str| {
        format!(
            r#"{{"restartPolicy":"Never","restartPolicyRules":[{{"action":"{action}",
            "exitCodes":{{"operator":"NotIn","values":[0,1]}}}}]}}"#
        )
    };
    for (action, code, taken) in
        [("Restart", 2, true), ("Restart", 1, false), ("RestartAllContainers", 1, true)]
    {
        let case = Case::new("Never | app db |").container("app", &rule(action));
        let before = case.sees(&format!("app exited={code}; db running"));
        let after = case.sees("app running restarts=1; db running");
        assert_eq!(is_taken(&case, &before, after), taken, "{action} {code}");
    }
}

#[test]
fn an_end_that_was_only_inferred_is_taken_back() {
    let case = Case::new("Never | app db |").then("app running; db running");
    let before = case.sees("app unknown; db running");
    assert!(is_taken(&case, &before, case.sees("app running; db running")));
}

#[test]
fn a_refused_status_does_not_hide_a_new_version_of_the_pod() {
    let case = Case::new("Never | app |");
    let statuses = Statuses::default();
    statuses.set(&case.pod, case.sees("app exited=0"));
    let newer = case.pod(|pod: &mut Pod| pod.metadata.generation = Some(2));
    statuses.set(&newer.pod, newer.sees("app running restarts=1"));
    let [view] = &statuses.all()[..] else { panic!("one pod") };
    assert!(Arc::ptr_eq(&view.pod, newer.pod.pod()));
    assert_eq!(view.status.phase.as_deref(), Some("Succeeded"));
}

/// What is logged, line by line.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("log").write(text)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn during(work: impl FnOnce()) -> Vec<String> {
        let log = Self::default();
        let writer = log.clone();
        let logger =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(logger, work);
        let text = log.0.lock().expect("log").clone();
        String::from_utf8(text).expect("text").lines().map(str::to_owned).collect()
    }
}

#[test]
fn a_refusal_is_logged_once_until_another_comes() {
    let case = Case::new("Never | app db |");
    let ended = || case.sees("app exited=1; db exited=1");
    let statuses = Statuses::default();
    statuses.set(&case.pod, ended());
    let refusals = |status: PodStatus| {
        let lines = Log::during(|| statuses.set(&case.pod, status));
        assert_eq!(*statuses.get(case.pod.uid()).expect("a status"), ended(), "refused");
        lines.into_iter().filter(|line| line.contains("ERROR")).collect::<Vec<_>>()
    };
    let [line] = &refusals(case.sees("app running; db exited=1"))[..] else { panic!("one line") };
    assert!(line.contains("status refused: a container that ended for good came back"), "{line}");
    assert!(line.contains("container=\"app\""), "{line}");
    for _ in 0..3 {
        assert!(refusals(case.sees("app running; db exited=1")).is_empty());
    }
    assert_eq!(refusals(case.sees("app exited=1; db running")).len(), 1, "another container");
    statuses.set(&case.pod, ended());
    assert_eq!(refusals(case.sees("app exited=1; db running")).len(), 1, "it had ended again");
}
