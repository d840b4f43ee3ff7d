//! What NFS servers export, mounted for each pod by the machine's `mount`.
//!
//! It is never given to a group, and nothing in it is ever removed: the mount goes, and
//! the empty directory below it. Upstream: pkg/volume/nfs.

use std::path::Path;
use std::time::Duration;

use super::super::VolumeMountable;
use super::super::layout::{PluginName, PodLayout, VolumeName};
use super::super::network::ShareSpec;
use super::Means;
use super::others::check_alone;
use crate::ports::{VolumeError, VolumeHost};

/// Mode of the directory below the mount.
const MODE: u32 = 0o750;
/// How long a server may take to be left, as upstream.
const FORCE_AFTER: Duration = Duration::from_secs(60);
/// The least that one wait counts, so that the waits come to an end.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// Mounts the export, or finds that it is.
pub(super) async fn set_up(means: &Means<'_>, spec: &ShareSpec) -> Result<VolumeMountable, String> {
    let said = |error: VolumeError| error.to_string();
    let (host, plugin) = (means.host, PluginName::nfs());
    let _turn = means.turn(spec.once_pod, plugin.as_dir(), spec.volume.as_str()).await;
    check_alone(means, spec.once_pod, &plugin, &spec.volume, false).await?;
    let target = means.layout.volume_dir(&plugin, &spec.volume);
    // A server that is gone must not be asked what its directory is like.
    if !host.is_mount_point(&target).await.map_err(said)? {
        host.make_dir(&target, MODE).await.map_err(said)?;
        host.mount_share(&target, &spec.share).await.map_err(said)?;
    }
    Ok(VolumeMountable {
        host_path: target,
        read_only: spec.read_only,
        managed: false,
        persistent: spec.persistent.then(|| spec.volume.clone()),
        device: None,
        gid: None,
    })
}

/// Unmounts it, whichever agent mounted it.
pub(super) async fn tear_down(
    host: &dyn VolumeHost,
    layout: &PodLayout,
    name: &VolumeName,
) -> Result<(), VolumeError> {
    let target = layout.volume_dir(&PluginName::nfs(), name);
    unmount(host, &target).await?;
    host.remove_empty_dir(&target).await
}

/// What follows an unmount that was waited for.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It is asked for once more; so long was waited in all.
    Wait(Duration),
    Force,
    End(Result<(), VolumeError>),
}

fn next(waits: Duration, answer: Result<(), VolumeError>) -> Next {
    match answer {
        Err(VolumeError::UnderWay { waited, .. }) => match waits + waited.max(WAIT_MIN) {
            waits if waits < FORCE_AFTER => Next::Wait(waits),
            _ => Next::Force,
        },
        ended => Next::End(ended),
    }
}

/// Unmounts, by force if that takes too long: nothing of a server that is gone can be saved.
async fn unmount(host: &dyn VolumeHost, target: &Path) -> Result<(), VolumeError> {
    let mut waits = Duration::ZERO;
    loop {
        match next(waits, host.unmount_all(target).await) {
            Next::Wait(so_far) => waits = so_far,
            Next::Force => break,
            Next::End(ended) => return ended,
        }
    }
    let path = target.display();
    tracing::warn!(%path, "the unmount takes too long; the server is given up");
    host.force_unmount(target).await?;
    // What hung has ended by that, or ends now.
    host.unmount_all(target).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn force_is_used_on_what_hangs_for_a_minute_and_on_nothing_else() {
        let hangs = |seconds| {
            let waited = Duration::from_secs(seconds);
            Err(VolumeError::UnderWay { what: "unmounting".into(), path: "/v".into(), waited })
        };
        let busy = || Err(mounts::MountsError::Busy { path: "/v".into() }.into());
        let seconds = Duration::from_secs;
        for (waits, answer, expected) in [
            (0, hangs(20), Next::Wait(seconds(20))),
            (20, hangs(20), Next::Wait(seconds(40))),
            (40, hangs(20), Next::Force),
            (0, hangs(0), Next::Wait(WAIT_MIN)),
            (40, Ok(()), Next::End(Ok(()))),
            (59, busy(), Next::End(busy())),
        ] {
            assert_eq!(next(seconds(waits), answer), expected, "after {waits} s");
        }
    }
}
