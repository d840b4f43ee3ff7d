//! Why a container waits, one answer per reason. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, ContainerStatus};
use kubelet_config::go_duration::GoDuration;
use kubelet_model::{ContainerKind, ContainerName, RestartPolicy, WaitReason, restart};

use super::advice::{full_name, hook_text, logs_command};
use super::image::PullTrouble;
use super::{Finding, Rank, WhyFacts, config, exits, image};
use crate::progress::Progress;

/// One container that waits.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) facts: &'a WhyFacts<'a>,
    pub(super) kind: ContainerKind,
    pub(super) container: &'a Container,
    pub(super) status: &'a ContainerStatus,
    /// The status' own words.
    pub(super) message: &'a str,
}

impl<'a> Case<'a> {
    /// The image that the status tells of: the container's own, unless it names that
    /// of a volume.
    fn image(&self) -> &'a str {
        let own = self.container.image.as_deref().unwrap_or_default();
        self.volume().map_or(own, |(_, image)| image)
    }

    /// The image volume that the status tells of, if it does: its name and image.
    /// Of several names in its text the longest is meant.
    fn volume(&self) -> Option<(&'a str, &'a str)> {
        let spec = self.facts.pod.spec.as_ref()?;
        let mounts = self.container.volume_mounts.as_deref().unwrap_or_default();
        let mounted = |name: &str| mounts.iter().any(|mount| mount.name == name);
        let volumes = spec.volumes.iter().flatten().filter(|volume| mounted(&volume.name));
        let volumes = volumes.filter_map(|volume| {
            let image = volume.image.as_ref()?.reference.as_deref()?;
            Some((Some(volume.name.as_str()), image))
        });
        let own = (None, self.container.image.as_deref().unwrap_or_default());
        let told = volumes.chain([own]).filter(|(_, image)| self.message.contains(image));
        let (volume, image) = told.max_by_key(|(_, image)| image.len())?;
        Some((volume?, image))
    }

    /// Whose image that is.
    fn whose(&self) -> String {
        let name = &self.container.name;
        self.volume().map_or(name.clone(), |(volume, _)| format!("{name}'s volume {volume}"))
    }

    /// What restarts it: its own policy, else the pod's.
    pub(super) fn policy(&self) -> RestartPolicy {
        let spec = self.facts.pod.spec.as_ref();
        spec.map_or(RestartPolicy::Always, |spec| restart::container_policy(spec, self.container))
    }

    /// Since when it fails to start in this way.
    pub(super) fn failing_since(&self) -> Option<Timestamp> {
        let failing = &self.facts.progress?.failing;
        let since = failing.get(&ContainerName::new(&self.container.name))?;
        self.facts.wall_of(*since)
    }

    /// How its last instance ended.
    fn last(&self) -> Option<&ContainerStateTerminated> {
        self.status.last_state.as_ref()?.terminated.as_ref()
    }
}

/// The answer to each reason.
pub(super) fn answer(reason: WaitReason, case: Case<'_>) -> Finding {
    let found = of_reason(reason, case);
    let since = found.since.or_else(|| case.failing_since());
    found.since(since)
}

/// No catch-all, so that a new reason gets its own answer.
fn of_reason(reason: WaitReason, case: Case<'_>) -> Finding {
    let (image, whose) = (case.image(), case.whose());
    match reason {
        WaitReason::ContainerCreating => creating(case),
        WaitReason::PodInitializing => initializing(case),
        WaitReason::CrashLoopBackOff => crash_loop(case),
        WaitReason::ErrImagePull | WaitReason::ImagePullBackOff => pull(case, reason),
        WaitReason::ErrImageNeverPull => {
            let field = if case.volume().is_some() { "pullPolicy" } else { "imagePullPolicy" };
            let headline = format!("The image of {whose} is not on this node, and {field}: Never forbids pulling it.");
            Finding::new(Rank::Failed, headline)
                .waits_for(format!("the image {image:?} to appear on this node"))
                .error(case.message)
                .advise(format!("Set {field}: IfNotPresent to have it pulled."))
                .advise(format!("Or bring the image here: `ctr -n k8s.io images import FILE.tar`, under the name {image}."))
        }
        WaitReason::ImageInspectError => {
            Finding::new(Rank::Failed, format!("The runtime could not look up the image of {whose}."))
                .waits_for("the runtime's list of images")
                .error(case.message)
                .advise(format!("Ask it yourself: `crictl inspecti {image}`; `journalctl -u containerd -n 50` says more."))
                .advise("If its image store is damaged, remove the image with `crictl rmi` and have it pulled again.")
        }
        WaitReason::InvalidImageName => {
            Finding::new(Rank::Failed, format!("The image name of {whose} makes no sense: {}.", image::name_problem(image)))
                .waits_for("a correct image name in the manifest")
                .error(case.message)
                .advise(format!("Correct {image:?} in the manifest: {}.", image::name_problem(image)))
        }
        WaitReason::RegistryUnavailable => {
            let host = image::registry(image);
            Finding::new(Rank::Failed, format!("The registry of the image of {whose} does not answer."))
                .waits_for(format!("the registry {host}"))
                .error(case.message)
                .advise(format!("Check that this node reaches it: `curl -v https://{host}/v2/`; look at DNS, proxy and firewall."))
                .advise("klet tries again by itself, less and less often; a restart of klet makes it try at once.")
        }
        WaitReason::SignatureValidationFailed => {
            Finding::new(Rank::Failed, format!("The image of {whose} is not signed as this node's policy demands."))
                .waits_for("an image with a valid signature")
                .error(case.message)
                .advise("Use an image that was signed, or have it signed with a key the policy trusts.")
                .advise("The policy belongs to the runtime (CRI-O: /etc/containers/policy.json).")
        }
        WaitReason::CreateContainerConfigError => config::config_error(case),
        WaitReason::PreCreateHookError => config::node_resources(case, "created"),
        WaitReason::PreStartHookError => config::node_resources(case, "started"),
        WaitReason::CreateContainerError => config::create_error(case, "create"),
        WaitReason::RunContainerError => config::create_error(case, "start"),
        WaitReason::PostStartHookError => post_start(case),
        WaitReason::RestartingAllContainers => restarting_all(case),
    }
}

fn creating(case: Case<'_>) -> Finding {
    let name = &case.container.name;
    let since = case.facts.status.start_time.as_ref().map(|time| time.0);
    let finding = Finding::new(Rank::Underway, format!("{name} is being made.")).since(since);
    let conditions = case.facts.status.conditions.iter().flatten();
    let mut sandbox = conditions
        .filter(|one| one.type_ == "PodReadyToStartContainers" && one.status == "False")
        .filter_map(|one| one.message.as_deref().filter(|message| !message.is_empty()));
    let finding = match (case.message, sandbox.next()) {
        ("", Some(sandbox)) => {
            finding.waits_for(sandbox.strip_prefix("waiting for ").unwrap_or(sandbox))
        }
        ("", None) => finding.waits_for("its image and then the runtime; the sandbox is ready"),
        (message, _) => finding.waits_for(message),
    };
    finding
        .advise("Nothing yet: a large image takes minutes. `klet pods` shows how far it is, where the runtime tells.")
        .advise("If a call above has been in flight for long, look at the runtime: `journalctl -u containerd -n 50`.")
}

fn initializing(case: Case<'_>) -> Finding {
    let spec = case.facts.pod.spec.as_ref();
    let init: Vec<_> = spec.iter().flat_map(|s| s.init_containers.iter().flatten()).collect();
    let statuses = || case.facts.status.init_container_statuses.iter().flatten();
    let done = |one: &Container| {
        let status = statuses().find(|status| status.name == one.name);
        let sidecar = ContainerKind::of_init(one) != ContainerKind::Init;
        status.is_some_and(|status| {
            let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
            let ended_well = ended.is_some_and(|ended| ended.exit_code == 0);
            ended_well || (sidecar && status.started == Some(true))
        })
    };
    let next = init.iter().enumerate().find(|(_, one)| !done(one));
    let since = case.facts.status.start_time.as_ref().map(|time| time.0);
    let headline = format!("{} waits for the init containers before it.", case.container.name);
    let finding = Finding::new(Rank::Underway, headline).since(since);
    let Some((at, one)) = next else {
        return finding
            .waits_for("the start of the main containers, all init containers being done")
            .advise("Nothing: this takes moments.");
    };
    finding
        .waits_for(format!("init container {} ({} of {})", one.name, at + 1, init.len()))
        .advise(format!(
            "See what it is doing: {}",
            logs_command(case.facts.pod, &one.name, false)
        ))
        .advise("An init container must end with exit code 0 before the next one starts; one with restartPolicy: Always (a sidecar) must pass its startup probe.")
}

fn crash_loop(case: Case<'_>) -> Finding {
    let name = &case.container.name;
    let Some(last) = case.last() else {
        return Finding::new(Rank::Failed, format!("{name} keeps failing to start."))
            .waits_for("the end of its back-off")
            .error(case.message)
            .advise(format!("`klet events {}` shows what went wrong.", full_name(case.facts.pod)));
    };
    let finished = last.finished_at.as_ref().map(|time| time.0);
    let next = back_off_end(case.message, finished)
        .map(|at| format!("start {name} again {}", super::render::until(at, case.facts.wall)));
    let never_ran = matches!(last.reason.as_deref(), Some("StartError" | "ContainerCannotRun"));
    if let Some(message) = last.message.as_deref().filter(|_| never_ran) {
        let mut finding = config::create_error(Case { message, ..case }, "start").since(finished);
        finding.next = next;
        return finding;
    }
    let (code, meaning) = (last.exit_code, exits::meaning(last));
    let headline = format!("{name} keeps ending: exit code {code}, {meaning}.");
    let mut finding = Finding::new(Rank::Failed, headline)
        .waits_for(format!("the end of its back-off; restarted {} so far", times(case.status)))
        .since(finished)
        .error(last.message.clone().unwrap_or_default());
    finding.next = next;
    if let Some(why) = exits::killed_by_probe(case.facts, name, last) {
        finding = finding.advise(why);
    }
    finding.log = case.facts.logs.get(name).cloned().unwrap_or_default();
    let logs = logs_command(case.facts.pod, name, true);
    finding.advice.extend(exits::advice(last, case.container, case.policy(), &logs));
    finding
}

fn times(status: &ContainerStatus) -> String {
    match status.restart_count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

/// When the back-off ends: `back-off 40s restarting …`, counted from the end.
fn back_off_end(message: &str, finished: Option<Timestamp>) -> Option<Timestamp> {
    let text = message.strip_prefix("back-off ")?.split(' ').next()?;
    let length: GoDuration = text.parse().ok()?;
    finished?.checked_add(SignedDuration::from_nanos(length.nanos())).ok()
}

fn pull(case: Case<'_>, reason: WaitReason) -> Finding {
    let image = case.image();
    let trouble = image::classify(case.message);
    let under_way = case.facts.progress.and_then(Progress::pull);
    if let Some(again) = under_way.filter(|pull| pull.image == image) {
        let (whose, far) = (case.whose(), again.state);
        let headline = format!("The image of {whose} is pulled again: {far}.");
        return Finding::new(Rank::Failed, headline)
            .waits_for(format!("the pull of {image:?}"))
            .error(case.message)
            .advise(format!(
                "Nothing yet. The try before failed: {}; should this one fail too:",
                image::meaning(trouble, image)
            ))
            .advise_all(image::advice(trouble, image));
    }
    let headline = format!(
        "The image of {} cannot be pulled: {}.",
        case.whose(),
        image::meaning(trouble, image)
    );
    let waits = match reason {
        WaitReason::ImagePullBackOff => {
            format!("the next try to pull {image:?}; tries get rarer, up to 5 minutes apart")
        }
        _ => format!("another try to pull {image:?}"),
    };
    let mut finding = Finding::new(Rank::Failed, headline).waits_for(waits).error(case.message);
    finding.advice.extend(image::provider_advice(case.message));
    finding.advice.extend(image::advice(trouble, image));
    let always = case.container.image_pull_policy.as_deref() == Some("Always");
    if always && case.volume().is_none() {
        finding = finding.advise(
            "If this node has the image already, imagePullPolicy: IfNotPresent uses it. An image \
             without a tag, or of tag latest, is asked for each time unless the manifest says so.",
        );
    }
    match trouble {
        // The runtime was not asked, so it has no error to show.
        PullTrouble::PullSecret => {
            finding.advise("A corrected Secret is used at the next try, within moments.")
        }
        _ => finding.advise(format!(
            "A corrected manifest is picked up at once. By hand: `crictl pull {image}` shows the same error."
        )),
    }
}

/// The whole pod starts over, because a container ended in a way that a rule names.
fn restarting_all(case: Case<'_>) -> Finding {
    let spec = case.facts.pod.spec.as_ref();
    let ruled = spec.into_iter().flat_map(restart::regular_and_init).filter(|one| {
        let mut rules = one.restart_policy_rules.iter().flatten();
        rules.any(|rule| rule.action == "RestartAllContainers")
    });
    let ruled: Vec<&str> = ruled.map(|one| one.name.as_str()).collect();
    let mut conditions = case.facts.status.conditions.iter().flatten();
    let began = conditions.find(|one| one.type_ == "AllContainersRestarting");
    let since = began.and_then(|one| one.last_transition_time.as_ref()).map(|time| time.0);
    let headline = format!(
        "{} was removed, because the whole pod starts over: a rule asks for it.",
        case.container.name
    );
    let finding = Finding::new(Rank::Underway, headline)
        .waits_for("the removal of every other container; then the pod begins anew, init containers first")
        .since(since)
        .advise(format!(
            "Nothing, if that is meant. The rule is in restartPolicyRules of {}: its exit code makes all start over.",
            ruled.join(" or ")
        ));
    ruled.iter().fold(finding, |finding, name| {
        let logs = logs_command(case.facts.pod, name, true);
        finding.advise(format!("See why {name} ended: {logs}"))
    })
}

fn post_start(case: Case<'_>) -> Finding {
    let hook = case.container.lifecycle.as_ref().and_then(|cycle| cycle.post_start.as_ref());
    let what = hook.map(hook_text).unwrap_or_else(|| "is not in the manifest any more".to_owned());
    let name = &case.container.name;
    let headline = format!(
        "The postStart hook of {name} failed, so the container was stopped. The hook {what}."
    );
    Finding::new(Rank::Failed, headline)
        .waits_for("the next start of the container")
        .error(case.message)
        .advise("Make lifecycle.postStart succeed: it runs inside the container, at the same time as the main command, so what it needs may not be up yet.")
        .advise("Try the hook's command by hand with `klet exec` in a pod without the hook; its files must be in the image.")
}
