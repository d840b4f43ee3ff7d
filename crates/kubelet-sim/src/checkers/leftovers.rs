//! Nothing of a pod outlives it: no object, control group, volume, log or link.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Layout, ReportedPod, fail};
use crate::manifest::{NAMESPACE, PodTemplate};
use crate::runtime::short;
use crate::world::{State, Violation};

/// Everything of a removed pod is gone from the runtime.
pub(super) fn nothing_left_behind(
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

/// No control group outlives its pod.
pub(super) fn no_stale_groups(state: &State, uids: &BTreeSet<String>) -> Result<(), Violation> {
    match state.groups.pods.keys().find(|uid| !uids.contains(uid.as_str())) {
        Some(uid) => fail("", format!("control group of {uid} left behind")),
        None => Ok(()),
    }
}

/// No volume outlives its pod, and nothing of the host's goes with one.
pub(super) fn no_stale_volumes(
    state: &State,
    uids: &BTreeSet<String>,
    reported: &[ReportedPod],
) -> Result<(), Violation> {
    let lost = || state.lost_host_file().or_else(|| state.lost_foreign_file());
    match state.stale_volume(uids, reported).or_else(lost) {
        Some(text) => fail("", text),
        None => Ok(()),
    }
}

/// No log link and no log directory outlives its pod.
pub(super) fn no_stale_files(
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
