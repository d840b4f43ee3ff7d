//! `GET /why`: how the node itself is.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use cluster::node::NodeHealth;
use cri::v1;

use super::Local;
use crate::pod_sources::broken_manifests;
use crate::why::{Explanation, InFlight};

pub(super) async fn node(State(local): State<Local>) -> Json<Explanation> {
    let mut found = Explanation {
        pod: format!("node {}", local.place.node_name),
        in_flight: in_flight(&local),
        ..Explanation::default()
    };
    let runtime = look_at_runtime(&local).await;
    let mut broken = match &local.place.manifests {
        Some(path) => broken_manifests(&*local.fs, path, &local.place.node_name).await,
        None => Vec::new(),
    };
    let trouble = local.view.url_news.trouble();
    broken.extend(trouble.map(|trouble| format!("{}: {}", trouble.origin, trouble.problem)));
    let pods = local.view.statuses.all();
    let unwell = pods.iter().filter(|view| {
        let phase = view.status.phase.as_deref();
        let ready = view.status.conditions.iter().flatten();
        let mut ready = ready.filter(|one| one.type_ == "Ready" && one.status == "True");
        phase != Some("Succeeded") && ready.next().is_none()
    });
    let unwell: Vec<String> = unwell
        .map(|view| {
            let meta = &view.pod.metadata;
            let name = meta.name.as_deref().unwrap_or_default();
            format!("{}/{name}", meta.namespace.as_deref().unwrap_or_default())
        })
        .collect();
    let health = local.cluster.as_ref().map(|cluster| cluster.health().borrow().clone());
    let nothing = local.place.manifests.is_none() && local.place.manifest_url.is_none();
    let nothing = nothing && health.is_none();
    if let Ok(warnings) = &runtime {
        found.also.extend(warnings.iter().cloned());
    }
    if let Err(problem) = runtime {
        found.headline =
            "The container runtime is not usable, so no pod can be started or stopped.".to_owned();
        found.waiting_for = "the container runtime".to_owned();
        found.last_error = Some(problem);
        found.advice = vec![
            "Look at it: `systemctl status containerd`, `journalctl -u containerd -n 50`."
                .to_owned(),
            "`klet check` shows which socket klet asks (--container-runtime-endpoint).".to_owned(),
        ];
    } else if !broken.is_empty() {
        found.headline =
            "Some manifests cannot be used. Pods that they defined before keep running.".to_owned();
        found.last_error = broken.first().cloned();
        found.advice =
            vec!["Mend the manifest at the line named; it is read again by itself.".to_owned()];
    } else if nothing {
        found.headline = "klet runs, but nobody tells it which pods to run.".to_owned();
        found.advice =
            vec!["Start it with --pod-manifest-path=DIR, and put manifests there.".to_owned()];
    } else if let Some(lack) = local.certificates.client_lack() {
        found.headline = "The node has no certificate that its API server accepts. Pods that it \
                          knows keep running; new ones do not come."
            .to_owned();
        found.waiting_for = "a client certificate".to_owned();
        found.last_error = Some(lack);
        found.advice = vec![
            "It is asked for by itself, again and again. Somebody has to approve the request, \
             unless the cluster approves requests of nodes by itself."
                .to_owned(),
        ];
    } else if let Some(running) = local.view.offline.running() {
        found.headline = format!(
            "The API server has not answered since klet started: {} pods run from the copies \
             kept on this node.",
            running.pods.len()
        );
        found.waiting_for = "the API server".to_owned();
        found.since = Some(running.since);
        let trouble = health.as_ref().and_then(|health| health.troubles.first());
        found.last_error = trouble.map(|one| format!("cannot {}: {}", one.what, one.why));
        found.advice = vec![
            "It is tried again by itself, and its word wins once it answers: pods that are gone \
             there end here, changed ones follow."
                .to_owned(),
        ];
        if !running.without_token.is_empty() {
            found.also.push(format!(
                "{} pods run without the files of their service account tokens, which only the \
                 API server can give.",
                running.without_token.len()
            ));
        }
    } else if let Some(trouble) = health.as_ref().and_then(|health| health.troubles.first()) {
        found.headline = "The node is not in order with its API server. Pods that it knows keep \
                          running; new ones do not come."
            .to_owned();
        found.waiting_for = "the API server".to_owned();
        found.last_error = Some(format!("cannot {}: {}", trouble.what, trouble.why));
        found.advice = vec![
            "It is tried again by itself. See whether the server in --kubeconfig answers, and \
             whether the node's credentials there are still good."
                .to_owned(),
        ];
    } else {
        found.headline = format!("klet runs {} pods; the runtime answers.", pods.len());
    }
    found.also.extend(health.iter().map(standing));
    found.also.extend(local.certificates.lines());
    let refused = local.view.offline.problems();
    found.also.extend(refused.into_iter().map(|problem| format!("Kept pod refused: {problem}.")));
    found.also.extend(broken.into_iter().skip(1));
    if !unwell.is_empty() {
        found
            .advice
            .push(format!("Not ready: {}. `klet why POD` tells the reason.", unwell.join(", ")));
    }
    Json(found)
}

/// How the node stands with its cluster, in a line.
fn standing(health: &NodeHealth) -> String {
    let time = |at: Option<jiff::Timestamp>| at.map_or("never".to_owned(), |at| at.to_string());
    format!(
        "In its cluster: registered {}, status written {}, lease renewed {}.",
        time(health.registered),
        time(health.status_written),
        time(health.lease_renewed)
    )
}

/// Everything that is under way for any pod, the oldest first.
fn in_flight(local: &Local) -> Vec<InFlight> {
    let now = local.clock.mono();
    let mut calls: Vec<InFlight> = Vec::new();
    for view in local.view.statuses.all() {
        let name = view.pod.metadata.name.clone().unwrap_or_default();
        let progress = local.view.progress.get(&view.uid).unwrap_or_default();
        calls.extend(
            progress
                .in_flight(now)
                .into_iter()
                .map(|one| InFlight { what: format!("{name}: {}", one.what), ..one }),
        );
    }
    calls.sort_by_key(|call| std::cmp::Reverse(call.seconds));
    calls.truncate(CALLS_MAX);
    calls
}

/// Calls shown: the oldest are the interesting ones.
const CALLS_MAX: usize = 5;

/// How long whoever asks waits for the runtime.
const PATIENCE: Duration = Duration::from_secs(3);

/// The conditions without which pods cannot be managed. A runtime may have others,
/// by which it only warns.
const NEEDED: [&str; 2] = ["RuntimeReady", "NetworkReady"];

/// What the runtime warns of, unless it is not usable.
async fn look_at_runtime(local: &Local) -> Result<Vec<String>, String> {
    let status = tokio::time::timeout(PATIENCE, local.runtime.status()).await;
    let late = || format!("the runtime has not answered within {} s", PATIENCE.as_secs());
    let status = status.map_err(|_| late())?.map_err(|error| error.to_string())?;
    judge(&status.status.unwrap_or_default().conditions)
}

fn judge(conditions: &[v1::RuntimeCondition]) -> Result<Vec<String>, String> {
    let bad = conditions.iter().filter(|one| !one.status);
    let (needed, other): (Vec<_>, Vec<_>) =
        bad.partition(|one| NEEDED.contains(&one.r#type.as_str()));
    if let Some(one) = needed.first() {
        return Err(format!("{} is false: {} {}", one.r#type, one.reason, one.message));
    }
    let warning = |one: &v1::RuntimeCondition| {
        format!("The runtime warns ({}): {} {}", one.r#type, one.reason, one.message)
    };
    Ok(other.into_iter().map(warning).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(name: &str, status: bool) -> v1::RuntimeCondition {
        let (reason, message) = ("Reason".to_owned(), "text".to_owned());
        v1::RuntimeCondition { r#type: name.to_owned(), status, reason, message }
    }

    /// containerd 2 has a condition for the use of what it will drop some day.
    #[test]
    fn a_warning_is_not_a_failure() {
        let well = condition("RuntimeReady", true);
        let warned = condition("ContainerdHasNoDeprecationWarnings", false);
        assert_eq!(judge(std::slice::from_ref(&well)), Ok(vec![]));
        let text = "The runtime warns (ContainerdHasNoDeprecationWarnings): Reason text".to_owned();
        assert_eq!(judge(&[warned.clone(), well]), Ok(vec![text]));
        let network = condition("NetworkReady", false);
        let text = "NetworkReady is false: Reason text".to_owned();
        assert_eq!(judge(&[warned, network]), Err(text));
    }
}
