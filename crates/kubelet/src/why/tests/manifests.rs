//! Manifests that lead to no pod.

use kubelet_model::manifest::Origin;
use serde_json::json;

use super::super::{Manifest, explain_absent, explain_unread, render};
use super::{Case, has, now};
use crate::pod_sources::{Namesake, UrlTrouble};

fn named(file: &str, problem: Option<&str>) -> Namesake {
    let origin = match file.contains("://") {
        true => Origin::Url(file.to_owned()),
        false => Origin::File(file.into()),
    };
    Namesake { origin, problem: problem.map(str::to_owned) }
}

#[test]
fn a_refused_manifest_is_explained_by_the_name_of_its_pod() {
    let text = |named: &[Namesake]| {
        explain_absent("default/web", named).map(|found| render(&found, now())).unwrap_or_default()
    };
    assert_eq!(text(&[]), "");
    let wrong = "line 8: spec.restartPolicy: must be one of Always, OnFailure, Never";
    let refused = text(&[named("/m/a.yaml", None), named("/m/b.yaml", Some(wrong))]);
    has(
        &refused,
        &[
            "default/web: There is no such pod: its manifest was refused.",
            "Last error: /m/b.yaml: line 8: spec.restartPolicy",
            "Mend the manifest where the error says",
            "Also: /m/a.yaml defines a pod of the same name",
            "Manifest: /m/b.yaml",
        ],
    );
    let flex = "line 9: spec.volumes[0].flexVolume: not supported by this release";
    has(&text(&[named("/m/b.yaml", Some(flex))]), &["must go: running the pod without it"]);
    has(&text(&[named("/m/a.yaml", None)]), &["klet has not taken the pod up", "klet's log"]);
}

#[test]
fn a_manifest_behind_a_url_is_explained_as_well() {
    let url = "http://u:secret@h/pods";
    let wrong = "line 8: spec.restartPolicy: must be one of Always, OnFailure, Never";
    let found = explain_absent("web", &[named(url, Some(wrong))]).unwrap();
    has(
        &render(&found, now()),
        &[
            "web: There is no such pod: its manifest was refused.",
            "Last error: http://***@h/pods: line 8: spec.restartPolicy",
            "Next: fetch the URL again",
            "Mend the manifest where the error says; it is fetched again",
        ],
    );
    let problem = "answered with status 500, not 200".to_owned();
    let trouble = UrlTrouble { origin: Origin::Url(url.to_owned()), problem, claims: None };
    let text = render(&explain_unread("web", &trouble), now());
    has(
        &text,
        &["There is no such pod.", "status 500", "curl -v http://***@h/pods", "Next: fetch"],
    );
    assert!(!text.contains("secret"), "{text}");
    // A pod that runs goes on with what was good.
    let mut case = Case::new(json!({"containers": []}), json!({"phase": "Running"}));
    let problem = Some(wrong.to_owned());
    case.manifest = Manifest::Url { url: "http://***@h/pods".to_owned(), problem };
    has(&case.text(), &["runs and is ready", "cannot be used as it is now", "restartPolicy"]);
}

#[test]
fn manifests_of_the_same_name_are_told_of() {
    let status = json!({"phase": "Running", "containerStatuses": []});
    let mut case = Case::new(json!({"containers": []}), status);
    case.namesakes = vec![named("/m/b.yaml", None)];
    has(
        &case.text(),
        &["runs and is ready", "Also: /m/b.yaml defines a pod of the same name", "rename one"],
    );
}

#[test]
fn what_a_pod_runs_without_is_told() {
    let mut case = Case::new(json!({"containers": []}), json!({"phase": "Running"}));
    case.unheeded = vec!["line 9: spec.containers[0].comand: unknown field, ignored".to_owned()];
    let told = "Also: The pod runs without something that its manifest says: line 9: \
                spec.containers[0].comand: unknown field, ignored.";
    has(&case.text(), &[told]);
}
