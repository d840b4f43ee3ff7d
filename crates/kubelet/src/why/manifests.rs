//! Manifests that do not lead to a pod: refused, ignored, or not read yet. Pure.

use kubelet_model::manifest::Origin;

use super::Explanation;
use crate::pod_sources::{Namesake, UrlTrouble};

/// When a URL is looked at again.
const FETCH_AGAIN: &str = "fetch the URL again, at the latest after httpCheckFrequency";

/// What is told of a manifest that is left out because another one has its name.
pub(super) fn ignored(other: &Namesake) -> String {
    let Namesake { origin, problem } = other;
    match problem {
        None => format!(
            "{origin} defines a pod of the same name. One of the two is ignored: rename one, or remove its file."
        ),
        Some(problem) => {
            format!("{origin} seems to define this pod too, but cannot be used: {problem}.")
        }
    }
}

/// What is told of a field that the pod runs without: misspelt, or not in this release.
pub(super) fn unheeded(field: &str) -> String {
    format!("The pod runs without something that its manifest says: {field}.")
}

/// Why there is no pod of this name although manifests name it; `None` if none does.
pub fn explain_absent(name: &str, named: &[Namesake]) -> Option<Explanation> {
    // What is wrong tells more than what is well.
    let main = named.iter().find(|one| one.problem.is_some()).or_else(|| named.first())?;
    let mut found = Explanation {
        pod: name.to_owned(),
        manifest: main.origin.to_string(),
        also: named.iter().filter(|one| *one != main).map(ignored).collect(),
        ..Explanation::default()
    };
    let Some(problem) = &main.problem else {
        found.headline = "The manifest is good, but klet has not taken the pod up.".to_owned();
        found.waiting_for =
            "klet to read the manifest, at the latest after fileCheckFrequency".to_owned();
        found.advice = vec![
            "Nothing, if it was written just now.".to_owned(),
            "If it lasts, klet's log says why: there may be more manifests or pods than it reads."
                .to_owned(),
        ];
        return Some(found);
    };
    found.headline = "There is no such pod: its manifest was refused.".to_owned();
    found.waiting_for = "a manifest that can be used".to_owned();
    found.last_error = Some(format!("{}: {problem}", main.origin));
    let (again, next) = match main.origin {
        Origin::File(_) => ("it is read again at once", None),
        Origin::Url(_) => ("it is fetched again by itself", Some(FETCH_AGAIN)),
    };
    found.next = next.map(str::to_owned);
    found.advice = vec![
        format!("Mend the manifest where the error says; {again}."),
        "One problem in a list of pods refuses the whole list. klet's log has every problem of the manifest.".to_owned(),
    ];
    if problem.contains("not supported") {
        found.advice.push("A field that this release does not act on must go: running the pod without it would be running something else.".to_owned());
    }
    Some(found)
}

/// Why a pod that no manifest names may yet be defined: the URL cannot be read.
pub fn explain_unread(name: &str, trouble: &UrlTrouble) -> Explanation {
    let UrlTrouble { origin, problem, .. } = trouble;
    Explanation {
        pod: name.to_owned(),
        headline: "There is no such pod. The URL that could define it gives no pods.".to_owned(),
        waiting_for: "an answer of the URL that holds pods".to_owned(),
        last_error: Some(format!("{origin}: {problem}")),
        next: Some(FETCH_AGAIN.to_owned()),
        advice: vec![
            format!(
                "See what it answers: `curl -v {origin}`, with the headers of --manifest-url-header."
            ),
            "If the pod has a file of its own, check its name: `klet pods -A` lists what runs."
                .to_owned(),
        ],
        manifest: origin.to_string(),
        ..Explanation::default()
    }
}
