//! Manifests that lead to no pod.

use serde_json::json;

use super::super::{explain_absent, render};
use super::{Case, has, now};
use crate::pod_sources::Namesake;

fn named(file: &str, problem: Option<&str>) -> Namesake {
    Namesake { path: file.into(), problem: problem.map(str::to_owned) }
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
    let nfs = "line 9: spec.volumes[0].nfs: not supported by this release";
    has(&text(&[named("/m/b.yaml", Some(nfs))]), &["must go: running the pod without it"]);
    has(&text(&[named("/m/a.yaml", None)]), &["klet has not taken the pod up", "klet's log"]);
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
