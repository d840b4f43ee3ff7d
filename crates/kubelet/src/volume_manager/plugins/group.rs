//! Giving a volume to the pod's group, which takes long if it has many files.
//!
//! Users hear of a walk that lasts, by an event and by what the pod is said to be doing.
//! Upstream: pkg/volume/volume_linux.go.

use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mounts::ownership::{ChangePolicy, FsGroup, Owned};
use tokio::time::{Instant, sleep};

use super::{Means, Operation};
use crate::ports::VolumeError;

/// Between two words on what the pod is doing.
const WORD_EVERY: Duration = Duration::from_secs(10);
/// When the first event is recorded.
const FIRST_EVENT: Duration = Duration::from_secs(30);
/// Pause between two further ones.
const EVENT_EVERY: Duration = Duration::from_secs(60);
/// Upstream's reason.
const REASON: &str = "VolumePermissionChangeInProgress";
/// Where users read what to do about it; part of upstream's message.
const ADVICE: &str = "https://kubernetes.io/docs/tasks/configure-pod-container/security-context/\
                      #configure-volume-permission-and-ownership-change-policy-for-pods";

/// Gives a volume to a group. As upstream, what cannot be given keeps no pod from
/// starting, and events are recorded of some kinds of volumes only.
pub(super) async fn give(
    means: &Means<'_>,
    plugin: &str,
    dir: &Path,
    gid: u32,
    policy: ChangePolicy,
    events: bool,
) -> Result<(), VolumeError> {
    let began = Instant::now();
    let owned = walk(means, dir, gid, policy, events).await;
    // As upstream: what the root alone vouches for is not counted.
    if !owned.as_ref().is_ok_and(|owned| owned.skipped) {
        means.metrics.time(plugin, Operation::Own, began, owned.is_ok());
    }
    let owned = owned?;
    if let Some(error) = owned.first_failure {
        let (path, failed) = (dir.display(), owned.failed);
        tracing::warn!(%path, gid, failed, %error, "not all given to the group");
    }
    Ok(())
}

async fn walk(
    means: &Means<'_>,
    dir: &Path,
    gid: u32,
    policy: ChangePolicy,
    events: bool,
) -> Result<Owned, VolumeError> {
    let visited = AtomicU64::new(0);
    let group = FsGroup { gid, read_only: false };
    let mut own = pin!(means.host.own(dir, group, policy, &visited));
    let mut lasted = Duration::ZERO;
    loop {
        tokio::select! { biased;
            owned = &mut own => return owned,
            () = sleep(WORD_EVERY) => {
                lasted += WORD_EVERY;
                let files = visited.load(Ordering::Relaxed);
                means.tells.does(&format!("giving it to group {gid}, {files} files so far"));
                if let Some(text) = event(dir, means.layout.uid(), lasted, files).filter(|_| events) {
                    means.tells.warn(REASON, text);
                }
            }
        }
    }
}

/// What is told of a walk that has lasted so long, if anything is then.
fn event(dir: &Path, uid: &str, lasted: Duration, files: u64) -> Option<String> {
    let more = lasted.checked_sub(FIRST_EVENT)?;
    let whole = dir.to_string_lossy();
    let shown = whole.find(uid).map_or(&*whole, |at| &whole[at..]);
    if more.is_zero() {
        return Some(format!(
            "Setting volume ownership for {shown} is taking longer than expected, consider using \
             OnRootMismatch - {ADVICE}"
        ));
    }
    let due = more.as_secs().is_multiple_of(EVENT_EVERY.as_secs());
    due.then(|| format!("Setting volume ownership for {shown}, processed {files} files."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_when_upstreams_do() {
        let dir = Path::new("/root/pods/u1/volumes/kubernetes.io~csi/pv/mount");
        let said = |seconds| event(dir, "u1", Duration::from_secs(seconds), 41);
        let seconds: Vec<u64> = (1..24).map(|n| n * 10).filter(|n| said(*n).is_some()).collect();
        assert_eq!(seconds, [30, 90, 150, 210]);
        let first = said(30).unwrap();
        assert_eq!(
            first,
            "Setting volume ownership for u1/volumes/kubernetes.io~csi/pv/mount is taking longer \
             than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/\
             configure-pod-container/security-context/\
             #configure-volume-permission-and-ownership-change-policy-for-pods"
        );
        assert_eq!(
            said(90).unwrap(),
            "Setting volume ownership for u1/volumes/kubernetes.io~csi/pv/mount, processed 41 files."
        );
        let elsewhere = event(Path::new("/mnt/x"), "u1", Duration::from_secs(90), 1).unwrap();
        assert_eq!(elsewhere, "Setting volume ownership for /mnt/x, processed 1 files.");
    }
}
