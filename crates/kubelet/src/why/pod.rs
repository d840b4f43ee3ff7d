//! A whole pod: what is found about it, and what of that comes first. Pure.

use jiff::Timestamp;
use kubelet_model::{EventObject, Grace};

use super::advice::full_name;
use super::{
    Explanation, Finding, Manifest, Rank, WhyFacts, containers, manifests, obstacle, rejected,
    render, resize,
};
use crate::progress::Obstacle;

/// Explains a pod.
pub fn explain(facts: &WhyFacts<'_>) -> Explanation {
    let mut findings = findings(facts);
    // Stable: of equal rank the first in the order of the spec.
    findings.sort_by_key(|one| std::cmp::Reverse(one.rank));
    let mut findings = findings.into_iter();
    let main = findings.next().unwrap_or_else(|| fine(facts));
    let also = findings.filter(|one| one.rank > Rank::Underway).map(|one| one.headline);
    let also = also.chain(facts.namesakes.iter().map(manifests::ignored));
    let also = also.chain(facts.unheeded.iter().map(|field| manifests::unheeded(field))).collect();
    let progress = facts.progress;
    let failed = progress.and_then(|progress| progress.last_error.as_ref()).map(|error| {
        let times = if error.count > 1 {
            format!(", {} times in a row", error.count)
        } else {
            String::new()
        };
        format!("{}: {} ({}{times})", error.step, error.message, render::ago(error.at, facts.wall))
    });
    let next = progress
        .and_then(|progress| progress.next.as_ref())
        .map(|next| format!("{} {}", next.what, render::soon(next.at.since(facts.mono).as_secs())));
    Explanation {
        pod: full_name(facts.pod),
        headline: main.headline,
        waiting_for: main.waiting_for,
        since: main.since,
        in_flight: progress.map(|progress| progress.in_flight(facts.mono)).unwrap_or_default(),
        last_error: main.error.or(failed),
        log: main.log,
        next: main.next.or(next),
        advice: main.advice,
        also,
        manifest: manifest(facts.manifest),
    }
}

fn manifest(manifest: &Manifest) -> String {
    match manifest {
        Manifest::File(path) => path.display().to_string(),
        Manifest::Gone(broken) if broken.is_empty() => {
            "no manifest has this pod any more: it is being removed".to_owned()
        }
        Manifest::Gone(broken) => {
            format!("it was changed or cannot be used; unusable: {}", broken.join("; "))
        }
        Manifest::Url { url, problem: None } => url.clone(),
        Manifest::Url { url, problem: Some(problem) } => {
            format!("{url}; it cannot be used as it is now, so the last good one counts: {problem}")
        }
        Manifest::Unknown => String::new(),
    }
}

fn findings(facts: &WhyFacts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(ending(facts));
    found.extend(obstacle_of(facts));
    found.extend(queued(facts));
    if facts.pod.spec.is_none() {
        return found;
    }
    found.extend(containers::findings(facts));
    found.extend(sandbox(facts));
    found.extend(resize::answers(facts));
    found
}

/// On its way out: its manifest is gone or somebody deleted it.
fn ending(facts: &WhyFacts<'_>) -> Option<Finding> {
    let end = facts.progress.and_then(|progress| progress.ending);
    let deleted = facts.pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    // With unusable manifests about, only its worker knows that none of them is the pod's.
    let gone = matches!(facts.manifest, Manifest::Gone(broken) if broken.is_empty());
    if end.is_none() && deleted.is_none() && !gone {
        return None;
    }
    let finding = Finding::new(Rank::Ending, "The pod is being removed.");
    let since = end.and_then(|end| facts.wall_of(end.since)).or(deleted);
    if end.is_some_and(|end| !end.runs) {
        return Some(
            finding
                .waits_for("the removal of what is left of it; its containers have ended")
                .since(since)
                .advise("Nothing: this takes moments. If it lasts, what is in flight or went wrong is told here."),
        );
    }
    let spec = facts.pod.spec.as_ref();
    let grace = end.map_or_else(
        || spec.map_or(Grace::DEFAULT_SECONDS, Grace::seconds_of).unsigned_abs(),
        |end| end.kill_at.since(end.since).as_secs(),
    );
    let mut finding = finding
        .waits_for(format!("its containers to end, within {grace} s (terminationGracePeriodSeconds)"))
        .since(since)
        .advise("Nothing: what has not ended by then is killed.")
        .advise("A program that always needs the whole time ignores SIGTERM: as process 1 of its container it must handle it, or set a stop signal it knows.");
    finding.next = end.map(|end| {
        let left = render::soon(end.kill_at.since(facts.mono).as_secs());
        format!("kill what has not ended, {left}")
    });
    Some(finding)
}

fn obstacle_of(facts: &WhyFacts<'_>) -> Option<Finding> {
    let waiting = facts.progress?.waiting.as_ref()?;
    if waiting.what == Obstacle::Nothing {
        return None;
    }
    let spec = facts.pod.spec.as_ref();
    let host_network = spec.and_then(|spec| spec.host_network).unwrap_or(false);
    let mut finding = obstacle::answer(&waiting.what, host_network);
    if let (Obstacle::Observation, Some((_, problem))) = (&waiting.what, unready(facts)) {
        finding.rank = Rank::Blocked;
        "The runtime does not tell how the pod is.".clone_into(&mut finding.headline);
        finding = finding.error(problem);
    }
    Some(finding.since(facts.wall_of(waiting.since)))
}

/// What the condition says that holds while there is no sandbox, and since when.
fn unready<'a>(facts: &WhyFacts<'a>) -> Option<(Option<Timestamp>, &'a str)> {
    let mut conditions = facts.status.conditions.iter().flatten();
    let condition = conditions.find(|one| one.type_ == "PodReadyToStartContainers")?;
    let message = condition.message.as_deref().filter(|message| !message.is_empty())?;
    // That is under way, or told by what it waits for.
    let told =
        message.starts_with("unmounted volumes=[") || message.starts_with("waiting for the ");
    let since = condition.last_transition_time.as_ref().map(|time| time.0);
    (condition.status == "False" && !told).then_some((since, message))
}

/// A pod that no worker has taken up yet has nothing but a message.
fn queued(facts: &WhyFacts<'_>) -> Option<Finding> {
    let message = facts.status.message.as_deref().filter(|message| !message.is_empty())?;
    let failed = facts.status.phase.as_deref() == Some("Failed");
    let reason = facts.status.reason.as_deref().unwrap_or_default();
    if failed {
        if let Some(refused) = message.strip_prefix("Pod was rejected: ") {
            return Some(rejected::answer(reason, refused, facts.pod));
        }
        let advice = match reason {
            "DeadlineExceeded" => {
                "Raise spec.activeDeadlineSeconds, or remove it, if the pod needs longer."
            }
            "SandboxLost" => {
                "Something outside ended the sandbox: look at the runtime's log. Set restartPolicy to OnFailure or Always if the pod should start over."
            }
            "Evicted" => evicted(message),
            "Preempting" => {
                "A critical pod needed the room. Give this one a higher priority, ask for less, or make it anew when there is room."
            }
            "Terminated" => {
                "The machine was being shut down: create the pod again. One of a manifest starts with the node."
            }
            _ => "The message says what this node lacks: change the pod, or the node.",
        };
        let headline = format!("The pod has failed: {reason}.");
        return Some(Finding::new(Rank::Blocked, headline).error(message).advise(advice));
    }
    let finding = Finding::new(Rank::Underway, "The pod has not been taken up yet.");
    Some(
        finding
            .waits_for(message)
            .advise("Nothing yet. If it lasts, `klet why node` tells whether the runtime answers."),
    )
}

/// What to do about an eviction, by what its message blames.
fn evicted(message: &str) -> &'static str {
    if message.starts_with("Usage of EmptyDir volume") {
        "Raise the volume's emptyDir.sizeLimit, or have the pod write less to it; then create the pod again."
    } else if message.starts_with("Pod ephemeral local storage usage") {
        "Its containers' files, its logs and its emptyDir volumes together are more than the sum of resources.limits.ephemeral-storage: raise a limit, or write less; then create the pod again."
    } else if message.contains("exceeded its local ephemeral storage limit") {
        "What the container writes outside of volumes, and its logs, are more than its resources.limits.ephemeral-storage: raise it, write to a volume, or write less; then create the pod again."
    } else {
        "The node ran short of a resource: lower what pods use, or give the node more."
    }
}

/// Why there is no sandbox, in the condition's words.
fn sandbox(facts: &WhyFacts<'_>) -> Option<Finding> {
    let (since, message) = unready(facts)?;
    let waiting = facts.progress.and_then(|progress| progress.waiting.as_ref());
    let blame = waiting.is_some_and(|waiting| {
        use Obstacle::{Network, Observation, Runtime, Volumes};
        matches!(waiting.what, Runtime(_) | Network(_) | Observation | Volumes { .. })
    });
    let over = matches!(facts.status.phase.as_deref(), Some("Succeeded" | "Failed"));
    (!blame && !over).then(|| {
        Finding::new(Rank::Blocked, "The pod's sandbox cannot be made.")
            .waits_for("a sandbox: the network and the frame that its containers share")
            .since(since)
            .error(message)
            .advise("Look at the runtime: `crictl pods`, `journalctl -u containerd -n 50`.")
            .advise("Often the network is the reason: /etc/cni/net.d, /opt/cni/bin; or the pause image cannot be pulled.")
    })
}

/// Nothing is wrong.
fn fine(facts: &WhyFacts<'_>) -> Finding {
    match facts.status.phase.as_deref() {
        Some("Succeeded") => Finding::new(
            Rank::Fine,
            "The pod has done its work: all containers ended with exit code 0.",
        )
        .advise("Remove its manifest with `klet rm` when you no longer need its logs."),
        Some("Running") => {
            if let Some(finding) = gates(facts) {
                return finding;
            }
            let mut finding =
                Finding::new(Rank::Fine, "The pod runs and is ready. It waits for nothing.");
            if let Some(past) = containers::last_trouble(facts) {
                finding.advice.push(format!("For the record: {past}"));
            }
            finding
        }
        phase => Finding::new(
            Rank::Fine,
            format!("The pod is {}; nothing wrong is known.", phase.unwrap_or("new")),
        ),
    }
}

/// All containers are ready, but conditions that the manifest asks for do not hold.
fn gates(facts: &WhyFacts<'_>) -> Option<Finding> {
    let mut conditions = facts.status.conditions.iter().flatten();
    let ready = conditions.find(|one| one.type_ == "Ready" && one.status != "True")?;
    let since = ready.last_transition_time.as_ref().map(|time| time.0);
    Some(
        Finding::new(Rank::NotReady, "All containers are ready, but the pod is not.")
            .waits_for("the conditions in spec.readinessGates")
            .since(since)
            .error(ready.message.clone().unwrap_or_default())
            .advise(
                "Somebody must set these conditions through an API server. On a node without \
                 one nobody does: remove spec.readinessGates from the manifest.",
            ),
    )
}

/// Events of one pod.
pub(crate) fn is_about(object: &EventObject, pod_uid: &str) -> bool {
    matches!(object, EventObject::Pod { uid, .. } if uid.as_str() == pod_uid)
}
