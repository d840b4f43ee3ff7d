//! Manifests that do not lead to a pod: refused, ignored, or not read yet. Pure.

use super::Explanation;
use crate::pod_sources::Namesake;

/// What is told of a manifest that is left out because another one has its name.
pub(super) fn ignored(other: &Namesake) -> String {
    let file = other.path.display();
    match &other.problem {
        None => format!(
            "{file} defines a pod of the same name. One of the two is ignored: rename one, or remove its file."
        ),
        Some(problem) => {
            format!("{file} seems to define this pod too, but cannot be used: {problem}.")
        }
    }
}

/// Why there is no pod of this name although manifests name it; `None` if none does.
pub fn explain_absent(name: &str, named: &[Namesake]) -> Option<Explanation> {
    // What is wrong tells more than what is well.
    let main = named.iter().find(|one| one.problem.is_some()).or_else(|| named.first())?;
    let mut found = Explanation {
        pod: name.to_owned(),
        manifest: main.path.display().to_string(),
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
    found.last_error = Some(format!("{}: {problem}", main.path.display()));
    found.advice = vec![
        "Mend the manifest where the error says; it is read again at once.".to_owned(),
        "One problem in a list of pods refuses the whole list. klet's log has every problem of the file.".to_owned(),
    ];
    if problem.contains("not supported") {
        found.advice.push("A field that this release does not act on must go: running the pod without it would be running something else.".to_owned());
    }
    Some(found)
}
