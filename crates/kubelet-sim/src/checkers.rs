//! What must be true once everything is quiet.
//!
//! Compares three views: the manifests, the runtime's objects, and what the
//! agent reports. Each check returns the first disagreement it finds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use cri::v1::ContainerState;

use crate::container_template::{ContainerTemplate, ProbeRole};
use crate::manifest::{NAMESPACE, PodTemplate, Restart};
use crate::runtime::{Container, Sandbox, short};
use crate::world::{State, Violation};

/// Slack on top of the longest back-off before a crashed container counts as lost.
const BACKOFF_SLACK: Duration = Duration::from_secs(60);
/// Dead instances of one container beside a live one: the policy's one, and one
/// that its replacement has just pushed out.
const DEAD_MAX: usize = 2;

/// How long after a change of health every probe has noticed it, at the longest
/// periods and thresholds of simulated manifests, and something was done about it.
const PROBES_TAKE: Duration = Duration::from_secs(45);

/// Longest postStart hook of simulated manifests, and a look after it.
const HOOK_TAKES: Duration = Duration::from_secs(25);

/// What the agent reports of one pod.
#[derive(Debug, Clone)]
pub struct ReportedPod {
    /// Uid.
    pub uid: String,
    /// Name on the node.
    pub name: String,
    /// Revision of its manifest.
    pub revision: u64,
    /// `status.phase`.
    pub phase: String,
    /// Container statuses.
    pub containers: Vec<ReportedContainer>,
}

/// What the agent reports of one container.
#[derive(Debug, Clone)]
pub struct ReportedContainer {
    /// Name.
    pub name: String,
    /// `containerID` without its scheme.
    pub id: Option<String>,
    /// `restartCount`.
    pub restarts: i32,
    /// Does `state.running` stand?
    pub running: bool,
    /// `ready`.
    pub ready: bool,
    /// `state.waiting.reason`.
    pub waiting: Option<String>,
}

/// Where the agent keeps things on the node.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// The node's name.
    pub node: &'a str,
    /// Root of log directories.
    pub logs_dir: &'a Path,
    /// Directory of log links.
    pub links_dir: &'a Path,
    /// Longest back-off.
    pub backoff_max: Duration,
}

/// Everything of one wanted pod in the runtime.
struct Actual<'a> {
    uid: String,
    template: &'a PodTemplate,
    sandboxes: Vec<&'a Sandbox>,
    /// Newest instance per container name of the manifest.
    newest: BTreeMap<&'a str, &'a Container>,
}

/// Checks everything; `None` once all agree.
pub(crate) fn unsettled(
    state: &State,
    reported: &[ReportedPod],
    layout: Layout<'_>,
) -> Option<Violation> {
    check(state, reported, layout).err()
}

fn check(state: &State, reported: &[ReportedPod], layout: Layout<'_>) -> Result<(), Violation> {
    let wanted = state.oracle.wanted();
    nothing_left_behind(state, &wanted, layout)?;
    let mut uids = BTreeSet::new();
    for (name, candidates) in &wanted {
        let pod = format!("{name}-{}", layout.node);
        let actual = no_lost_pod(state, &pod, candidates, reported)?;
        let done = is_done(&actual) || stays_ended(&actual, reported);
        if !done {
            runs_as_asked(state, &pod, &actual, layout.backoff_max)?;
        }
        few_dead_instances(state, &pod, &actual)?;
        if done && actual.newest.values().any(|c| c.is_running()) {
            return fail(&pod, "runs on though it has ended");
        }
        status_matches_runtime(state, &pod, &actual, done, reported)?;
        uids.insert(actual.uid);
    }
    for pod in reported {
        let known = wanted.values().flatten();
        if !known.into_iter().any(|t| t.revision == pod.revision) {
            return fail(&pod.name, format!("reported though gone: uid {}", pod.uid));
        }
        uids.insert(pod.uid.clone());
    }
    no_stale_groups(state, &uids)?;
    no_stale_files(state, &uids, layout)
}

/// No control group outlives its pod.
fn no_stale_groups(state: &State, uids: &BTreeSet<String>) -> Result<(), Violation> {
    match state.groups.pods.keys().find(|uid| !uids.contains(uid.as_str())) {
        Some(uid) => fail("", format!("control group of {uid} left behind")),
        None => Ok(()),
    }
}

fn fail<T>(pod: &str, text: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { pod: pod.to_owned(), text: text.into() })
}

/// Everything of a removed pod is gone from the runtime.
fn nothing_left_behind(
    state: &State,
    wanted: &BTreeMap<String, Vec<&PodTemplate>>,
    layout: Layout<'_>,
) -> Result<(), Violation> {
    let is_wanted = |pod: &str| {
        let suffix = format!("-{}", layout.node);
        pod.strip_suffix(suffix.as_str()).is_some_and(|name| wanted.contains_key(name))
    };
    for sandbox in state.objects.sandboxes.values().filter(|s| !s.foreign) {
        if !is_wanted(sandbox.pod()) {
            return fail(sandbox.pod(), format!("sandbox {} left behind", short(&sandbox.id)));
        }
    }
    for container in state.objects.containers.values().filter(|c| !c.foreign) {
        if !is_wanted(container.pod()) {
            return fail(
                container.pod(),
                format!("container {} left behind", short(&container.id)),
            );
        }
    }
    Ok(())
}

/// A wanted pod exists under exactly one uid, from one of the texts that want it.
fn no_lost_pod<'a>(
    state: &'a State,
    pod: &str,
    candidates: &[&'a PodTemplate],
    reported: &[ReportedPod],
) -> Result<Actual<'a>, Violation> {
    let mine = |s: &&Sandbox| !s.foreign && s.pod() == pod;
    let mut sandboxes: Vec<&Sandbox> = state.objects.sandboxes.values().filter(mine).collect();
    let template_of = |s: &Sandbox| {
        let mut wanted = candidates.iter();
        wanted.find(|t| t.revision == s.revision() || t.fixed_uid.as_deref() == Some(s.uid()))
    };
    // One that can neither go on nor end keeps its name from the other.
    let is_stuck = |s: &Sandbox| {
        let pending = |r: &ReportedPod| r.uid == s.uid() && r.phase == "Pending";
        let never = template_of(s).is_some_and(|t| t.restart == Restart::Never);
        never && reported.iter().any(pending)
    };
    sandboxes.sort_by_key(|s| (!s.ready, !is_stuck(s), std::cmp::Reverse(s.attempt())));
    let Some(first) = sandboxes.first().copied() else {
        return fail(pod, "lost: no sandbox");
    };
    // Where two texts want one name, the other may have run and ended before.
    for other in sandboxes.iter().filter(|s| s.uid() != first.uid()) {
        if other.ready || template_of(other).is_none() {
            let text = format!("two uids exist: {} and {}", first.uid(), other.uid());
            return fail(pod, text);
        }
    }
    let Some(template) = template_of(first).copied() else {
        let text = format!("runs revision {}, which nobody wants", first.revision());
        return fail(pod, text);
    };
    sandboxes.retain(|s| s.uid() == first.uid());
    let mut newest: BTreeMap<&str, &Container> = BTreeMap::new();
    for container in state.objects.containers.values().filter(|c| c.uid() == first.uid()) {
        if template.container(container.name()).is_none() {
            if container.is_running() {
                let text = format!("{} runs, which the manifest does not name", container.name());
                return fail(pod, text);
            }
            continue;
        }
        let slot = newest.entry(container.name()).or_insert(container);
        if container.attempt() > slot.attempt() {
            *slot = container;
        }
    }
    Ok(Actual { uid: first.uid().to_owned(), template, sandboxes, newest })
}

/// Is the pod finished, so that nothing needs to run?
fn is_done(actual: &Actual<'_>) -> bool {
    let template = actual.template;
    let ready = actual.sandboxes.iter().any(|s| s.ready);
    if template.restart == Restart::Never && !ready && !actual.newest.is_empty() {
        return true;
    }
    let ended = |c: &ContainerTemplate| {
        actual.newest.get(c.name.as_str()).is_some_and(|instance| {
            instance.has_exited() && !c.restarts(template.restart, instance.exit_code)
        })
    };
    template.containers.iter().all(ended) || init_failed(actual)
}

/// Did an init container fail for good?
fn init_failed(actual: &Actual<'_>) -> bool {
    let template = actual.template;
    template.init.iter().any(|c| {
        actual.newest.get(c.name.as_str()).is_some_and(|instance| {
            let code = instance.exit_code;
            instance.has_exited() && code != 0 && !c.restarts(template.restart, code)
        })
    })
}

/// A pod that ended stays ended, even if an edit in place would let it run again,
/// or if a container that never restarts was stopped with its sandbox.
fn stays_ended(actual: &Actual<'_>, reported: &[ReportedPod]) -> bool {
    let report = reported.iter().find(|r| r.uid == actual.uid);
    let ended = report.is_some_and(|r| r.phase == "Succeeded" || r.phase == "Failed");
    let alive = actual.newest.values().any(|c| c.is_running());
    let regular = &actual.template.containers;
    let own_end =
        regular.iter().any(|c| c.own_restart.is_some() && c.never_restarts(Restart::Never));
    (actual.template.fixed_uid.is_some() || own_end) && ended && !alive
}

/// An unfinished pod has one ready sandbox, and its containers run or wait out a back-off.
fn runs_as_asked(
    state: &State,
    pod: &str,
    actual: &Actual<'_>,
    backoff_max: Duration,
) -> Result<(), Violation> {
    let ready: Vec<&&Sandbox> = actual.sandboxes.iter().filter(|s| s.ready).collect();
    let [sandbox] = ready[..] else {
        return fail(pod, format!("{} ready sandboxes instead of one", ready.len()));
    };
    let mut may_be_absent = false;
    let initialised = actual.template.containers.iter().any(|c| {
        let newest = actual.newest.get(c.name.as_str());
        newest.is_some_and(|newest| newest.sandbox == sandbox.id)
    });
    for defined in &actual.template.init {
        let instance = actual.newest.get(defined.name.as_str());
        let here = instance.filter(|c| c.sandbox == sandbox.id);
        let done = here.is_some_and(|c| c.has_exited() && c.exit_code == 0);
        if !defined.sidecar && (initialised || done) {
            continue;
        }
        if !may_be_absent || here.is_some() {
            runs_or_rests(state, pod, actual, defined, sandbox, backoff_max)?;
        }
        let passes = defined.sidecar && here.is_some_and(|c| has_started(state, defined, c));
        may_be_absent |= !passes && !initialised;
    }
    for defined in &actual.template.containers {
        let newest = actual.newest.get(defined.name.as_str());
        if !may_be_absent || newest.is_some_and(|c| c.sandbox == sandbox.id) {
            runs_or_rests(state, pod, actual, defined, sandbox, backoff_max)?;
        }
    }
    Ok(())
}

/// Has an instance got through its start, as far as its program tells?
fn has_started(state: &State, defined: &ContainerTemplate, instance: &Container) -> bool {
    let probed = defined.probe_of(ProbeRole::Startup).is_some();
    instance.is_running()
        && (!probed || state.answers.has_started(&instance.sandbox, instance.name()))
}

/// A container runs what it should where it should, or has reason not to.
fn runs_or_rests(
    state: &State,
    pod: &str,
    actual: &Actual<'_>,
    defined: &ContainerTemplate,
    sandbox: &Sandbox,
    backoff_max: Duration,
) -> Result<(), Violation> {
    let name = &defined.name;
    let Some(container) = actual.newest.get(name.as_str()) else {
        return fail(pod, format!("{name} was never created"));
    };
    let restarts = defined.restarts(actual.template.restart, container.exit_code);
    match container.state {
        ContainerState::ContainerRunning if container.sandbox != sandbox.id => {
            fail(pod, format!("{name} runs in an old sandbox"))
        }
        ContainerState::ContainerRunning if container.image != defined.program.image() => {
            fail(pod, format!("{name} runs {}", container.image))
        }
        ContainerState::ContainerRunning => Ok(()),
        ContainerState::ContainerExited if !restarts => Ok(()),
        ContainerState::ContainerExited
            if container.ended_at + backoff_max + BACKOFF_SLACK > state.now() =>
        {
            Ok(())
        }
        other => fail(pod, format!("{name} is {}", other.as_str_name())),
    }
}

/// Probes have done their work: what is well is ready, what is not is not, and
/// what its liveness condemns does not run.
fn follows_probes(
    state: &State,
    pod: &str,
    actual: &Actual<'_>,
    report: &ReportedPod,
) -> Result<(), Violation> {
    let init = actual.template.init.iter().filter(|c| c.sidecar);
    for defined in init.chain(&actual.template.containers) {
        let name = defined.name.as_str();
        let Some(instance) = actual.newest.get(name).filter(|c| c.is_running()) else { continue };
        let age = state.now().saturating_sub(instance.ran_at);
        if !instance.program().is_steady(age, PROBES_TAKE) {
            continue;
        }
        let Some(status) = report.containers.iter().find(|c| c.name == name) else { continue };
        let well = state.is_well(instance);
        let probed = |role| defined.probe_of(role).is_some();
        let started = !probed(ProbeRole::Startup)
            || state.answers.has_started(&instance.sandbox, instance.name());
        if !well && started && probed(ProbeRole::Liveness) {
            return fail(pod, format!("{name} runs though its liveness fails"));
        }
        if well && !status.ready {
            return fail(pod, format!("{name} is well but not ready"));
        }
        if !well && status.ready && (probed(ProbeRole::Readiness) || !started) {
            return fail(pod, format!("{name} is ready but not well"));
        }
    }
    Ok(())
}

/// Dead instances do not pile up.
fn few_dead_instances(state: &State, pod: &str, actual: &Actual<'_>) -> Result<(), Violation> {
    for name in actual.newest.keys() {
        let dead = state
            .objects
            .containers
            .values()
            .filter(|c| c.uid() == actual.uid && c.name() == *name && !c.is_running())
            .count();
        if dead > DEAD_MAX {
            return fail(pod, format!("{dead} dead instances of {name}"));
        }
    }
    Ok(())
}

/// The agent reports what the runtime holds.
fn status_matches_runtime(
    state: &State,
    pod: &str,
    actual: &Actual<'_>,
    done: bool,
    reported: &[ReportedPod],
) -> Result<(), Violation> {
    let Some(report) = reported.iter().find(|r| r.uid == actual.uid) else {
        return fail(pod, format!("uid {} is not reported", actual.uid));
    };
    if report.revision != actual.template.revision {
        return fail(pod, format!("revision {} is reported", report.revision));
    }
    for (name, container) in &actual.newest {
        if is_in_hook(state, actual.template, container) {
            continue;
        }
        let Some(status) = report.containers.iter().find(|c| c.name == *name) else {
            return fail(pod, format!("no status of {name}"));
        };
        if status.id.as_deref() != Some(container.id.as_str()) {
            let text =
                format!("status of {name} has id {:?}, runtime has {}", status.id, container.id);
            return fail(pod, text);
        }
        if status.running != container.is_running() {
            let text = format!("status of {name} says running: {}", status.running);
            return fail(pod, text);
        }
        // Where the whole pod restarts, instances are removed and the status counts on.
        let counts = i64::from(status.restarts).cmp(&container.attempt().into());
        if counts.is_lt() || (counts.is_gt() && !may_start_over(actual.template)) {
            let text = format!(
                "{name}: {} restarts reported, attempt {}",
                status.restarts,
                container.attempt()
            );
            return fail(pod, text);
        }
    }
    follows_probes(state, pod, actual, report)?;
    let newest_of = |c: &ContainerTemplate| actual.newest.get(c.name.as_str());
    let regular = &actual.template.containers;
    let all_zero = !init_failed(actual)
        && regular.iter().all(|c| newest_of(c).is_some_and(|c| c.exit_code == 0));
    let all_ran = regular
        .iter()
        .all(|c| newest_of(c).is_some_and(|c| c.state != ContainerState::ContainerCreated));
    let initialises = !actual.template.init.is_empty();
    let phase = match (done, all_zero) {
        // A pod goes back to its beginning with each sandbox.
        (false, _) if initialises && report.phase == "Pending" => return Ok(()),
        (false, _) => "Running",
        // A pod that never restarts and lost its sandbox before all of its
        // containers ran cannot go on; upstream leaves it pending.
        (true, _) if !all_ran && report.phase == "Pending" => return Ok(()),
        // A pod that never restarts gets no new sandbox, though some of its
        // containers would restart; upstream's phase waits for those.
        (true, _) if report.phase == "Running" && some_would_restart(actual) => return Ok(()),
        // Which of the two depends on the text that was in force when it ended.
        (true, _) if stays_ended(actual, reported) => return Ok(()),
        (true, true) => "Succeeded",
        (true, false) => "Failed",
    };
    if report.phase != phase {
        return fail(pod, format!("phase is {} instead of {phase}", report.phase));
    }
    Ok(())
}

/// While a postStart hook runs, the pod's status waits.
fn is_in_hook(state: &State, template: &PodTemplate, container: &Container) -> bool {
    let mut all = template.init.iter().chain(&template.containers);
    let hooks = all.any(|c| c.post_start.is_some_and(|hook| hook.takes_ms > 0));
    hooks && container.ran_at + HOOK_TAKES > state.now()
}

/// May an exit start the whole pod over?
fn may_start_over(template: &PodTemplate) -> bool {
    let mut all = template.init.iter().chain(&template.containers);
    all.any(|c| c.own_restart.is_some_and(|own| own.all))
}

fn some_would_restart(actual: &Actual<'_>) -> bool {
    actual.template.containers.iter().any(|c| {
        let newest = actual.newest.get(c.name.as_str());
        newest.is_some_and(|i| c.restarts(actual.template.restart, i.exit_code))
    })
}

/// No log link and no log directory outlives its pod.
fn no_stale_files(
    state: &State,
    uids: &BTreeSet<String>,
    layout: Layout<'_>,
) -> Result<(), Violation> {
    for link in state.files.names_in(layout.links_dir) {
        let name = file_name(&link);
        let id = name
            .strip_suffix(".log")
            .and_then(|stem| stem.rsplit_once('-'))
            .map_or("", |(_, id)| id);
        if !state.objects.containers.contains_key(id) {
            return fail("", format!("log link {name} left behind"));
        }
    }
    for dir in state.files.names_in(layout.logs_dir) {
        let name = file_name(&dir);
        let ours = name.starts_with(&format!("{NAMESPACE}_"));
        let uid = name.rsplit_once('_').map_or("", |(_, uid)| uid);
        if ours && !uids.contains(uid) {
            return fail("", format!("log directory {name} left behind"));
        }
    }
    Ok(())
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
