//! Phases.

use super::case::Case;
use super::story;
use crate::status_manager::is_terminal;

fn check_phase(text: &str, phase: &str) {
    assert_eq!(story(&[text]).phase.as_deref(), Some(phase), "{text}");
}

#[test]
fn phases() {
    for (text, phase) in [
        ("web Always: app running", "Running"),
        ("web Always: app exited=0", "Running"),
        ("web Always: app exited=1", "Running"),
        ("web OnFailure: app exited=0", "Succeeded"),
        ("web OnFailure: app exited=1", "Running"),
        ("web Never: app exited=0", "Succeeded"),
        ("web Never: app exited=1", "Failed"),
        ("web Never app,db: app exited=0; db exited=0", "Succeeded"),
        ("web Never app,db: app exited=0; db exited=1", "Failed"),
        ("web Never app,db: app exited=1; db running", "Running"),
        ("web Never app,db: app exited=1", "Pending"),
        ("web Always app,db: app running", "Pending"),
        ("web OnFailure app,db: app exited=0; db exited=1", "Running"),
        ("web OnFailure app,db: app exited=0; db exited=0", "Succeeded"),
        ("web OnFailure app,db: app exited=0; db exited=1 ago=3s crashes=2", "Running"),
        ("terminated web Always: app exited=0", "Running"),
        ("terminated web Never: app exited=137", "Failed"),
    ] {
        check_phase(text, phase);
    }
}

/// Met in seed 8543: its liveness probe had stopped the one before it, which ended well.
#[test]
fn a_container_that_was_made_and_not_started_is_yet_to_run() {
    let made = "app exited=0 restarts=0; app created restarts=1";
    let lost = "sandbox 0 dead; app exited=0 restarts=0; app created restarts=1";
    for (text, phase) in [
        (format!("web OnFailure: {made}"), "Running"),
        (format!("web OnFailure: {lost}"), "Running"),
        (format!("web Never: {made}"), "Running"),
        (format!("web Never: {lost}"), "Running"),
        (format!("terminated web OnFailure: {made}"), "Succeeded"),
    ] {
        check_phase(&text, phase);
    }
}

#[test]
fn a_terminal_phase_stays() {
    let status = story(&["web Never: app exited=1", "web Never: app running restarts=1"]);
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert!(is_terminal(&status));
    let status = story(&["web Never: app exited=0", "terminated web Never: app exited=1"]);
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    assert!(!is_terminal(&story(&["web Always: app exited=1"])));
}

fn check_kinds(pod: &str, items: &str, phase: &str) {
    let status = Case::new(pod).sees(items);
    assert_eq!(status.phase.as_deref(), Some(phase), "{pod}: {items}");
}

#[test]
fn phases_with_init_containers() {
    for (pod, items, phase) in [
        ("Always setup | app |", "no sandbox", "Pending"),
        ("Always setup | app |", "setup running", "Pending"),
        ("Always setup | app |", "setup exited=1", "Pending"),
        ("OnFailure setup | app |", "setup exited=1", "Pending"),
        ("Never setup | app |", "setup exited=1", "Failed"),
        ("Never setup | app |", "setup exited=0", "Pending"),
        ("Never setup | app |", "setup exited=0; app running", "Running"),
        ("Never setup | app |", "setup exited=0; app exited=0", "Succeeded"),
        ("Never setup | app |", "setup exited=0; app exited=1", "Failed"),
        ("Always setup | app |", "setup running restarts=1; app running", "Pending"),
    ] {
        check_kinds(pod, items, phase);
    }
}

#[test]
fn phases_with_sidecars() {
    for (pod, items, phase) in [
        ("Always proxy* | app |", "proxy running", "Pending"),
        ("Never proxy* | app |", "proxy exited=1", "Pending"),
        ("Never proxy* | app |", "proxy running; app running", "Running"),
        ("Never proxy* | app |", "proxy running; app exited=0", "Running"),
        ("Never proxy* | app |", "proxy exited=137; app exited=0", "Succeeded"),
        ("Never proxy* | app |", "proxy exited=0; app exited=1", "Failed"),
        ("Never proxy* | app |", "proxy exited=137; app running", "Running"),
    ] {
        check_kinds(pod, items, phase);
    }
}

/// A pod whose regular containers exist does not go back to its beginning.
#[test]
fn a_sidecar_that_starts_again_holds_back_only_what_has_not_begun() {
    let case = Case::new("Never proxy* | app |")
        .container("proxy", r#"{"startupProbe":{"tcpSocket":{"port":1}}}"#);
    let phase = |items: &str| case.sees(items).phase.unwrap_or_default();
    assert_eq!(phase("proxy running restarts=1; app running"), "Running");
    let fresh = "sandbox 0 dead; sandbox 1 ready; proxy running in=1; app exited=0 in=0";
    assert_eq!(phase(fresh), "Pending");
}

#[test]
fn phases_follow_a_containers_own_policy_and_rules() {
    let rules = r#"{"restartPolicy":"Never","restartPolicyRules":[
        {"action":"Restart","exitCodes":{"operator":"In","values":[3]}}]}"#;
    for (pod, json, code, phase) in [
        ("Always | app |", r#"{"restartPolicy":"Never"}"#, 1, "Failed"),
        ("Always | app |", r#"{"restartPolicy":"OnFailure"}"#, 0, "Succeeded"),
        ("Never | app |", r#"{"restartPolicy":"OnFailure"}"#, 1, "Running"),
        ("Never | app |", r#"{"restartPolicy":"Always"}"#, 0, "Running"),
        ("Never | app |", rules, 3, "Running"),
        ("Never | app |", rules, 4, "Failed"),
        ("Always | app |", rules, 0, "Succeeded"),
    ] {
        let status = Case::new(pod).container("app", json).sees(&format!("app exited={code}"));
        assert_eq!(status.phase.as_deref(), Some(phase), "{pod} {json} {code}");
    }
    let init = Case::new("Never setup | app |").container("setup", rules);
    assert_eq!(init.sees("setup exited=3").phase.as_deref(), Some("Pending"));
    assert_eq!(init.sees("setup exited=4").phase.as_deref(), Some("Failed"));
}

/// The last sandbox died, its successor failed, and traces of the beginning are gone.
#[test]
fn a_pod_whose_work_is_over_does_not_wait_for_a_sandbox() {
    for pod in ["Always setup | app |", "Always proxy* | app |"] {
        let case = Case::new(pod).container("app", r#"{"restartPolicy":"Never"}"#);
        let phase = |items: &str| case.sees(items).phase.unwrap_or_default();
        assert_eq!(phase("sandbox 0 dead; app exited=143"), "Failed", "{pod}");
        assert_eq!(phase("sandbox 0 dead; app exited=0"), "Succeeded", "{pod}");
    }
}
