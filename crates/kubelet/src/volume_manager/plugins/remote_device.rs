//! Disks of other machines as what they are: devices, bound for each pod.
//!
//! Nothing is written to them. The pod's link is made first and removed last, so that
//! another life of the agent finds it. Upstream: pkg/volume/iscsi, pkg/volume/fc,
//! pkg/volume/util/volumepathhandler.

use super::super::VolumeMountable;
use super::super::layout::{PluginName, VolumeName};
use super::super::network::DiskSpec;
use super::super::plan::Doing;
use super::others::check_alone;
use super::remote_place::{self, Global};
use super::{Means, NotMade, mapped};
use crate::ports::VolumeError;

/// Gives the disk to the pod, or finds that it has it.
pub(super) async fn set_up(means: &Means<'_>, spec: &DiskSpec) -> Result<VolumeMountable, NotMade> {
    let map = || NotMade::when(Doing::MapPodDevice);
    let attach = || NotMade::when(Doing::AttachDevice);
    remote_place::make_room(means, spec).await.map_err(map())?;
    let global = Global::of(spec);
    let _turn = global.turn(means).await;
    let alone = check_alone(means, spec.once_pod, &spec.plugin(), &spec.volume, true).await;
    alone.map_err(|why| NotMade { doing: Doing::SetUpDevice, why })?;
    let dir = global.dir(means);
    let bound = dir.join(means.layout.uid());
    let link = means.layout.device_link(&spec.plugin(), &spec.volume);
    means.host.link(&bound, &link).await.map_err(map())?;
    remote_place::write_note(means, spec, &global).await.map_err(map())?;
    let disk = spec.with_secret(|key| means.objects.get(key));
    let disk = disk.map_err(|why| NotMade { doing: Doing::AttachDevice, why })?;
    // Before the node reaches for it: whoever undoes it has to know what to leave.
    global.prepare(means, &disk).await.map_err(attach())?;
    let device = means.host.attach(&disk).await.map_err(attach())?;
    let mapped = mapped::map(means, &device, &bound).await;
    mapped.map_err(NotMade::when(Doing::MapDevice))?;
    Ok(VolumeMountable {
        host_path: link,
        read_only: spec.read_only,
        managed: false,
        persistent: Some(spec.volume.clone()),
        device: Some(dir),
        gid: None,
    })
}

/// Takes it away from the pod, and after the last pod lets go of it.
pub(super) async fn tear_down(
    means: &Means<'_>,
    plugin: &PluginName,
    name: &VolumeName,
) -> Result<(), VolumeError> {
    let globals = match remote_place::read_note(means, plugin, name, true)? {
        Some(global) => vec![global],
        // Another agent made it. All that the pod has goes: it needs none any more.
        None => all_of_pod(means, plugin).await?,
    };
    for global in globals {
        let _turn = global.turn(means).await;
        let bound = global.dir(means).join(means.layout.uid());
        mapped::unmap(means, &bound).await?;
        if let Err(error) = global.leave(means).await {
            // Without a note, it is by this that whoever tries again finds the disk.
            means.host.mark(&bound).await?;
            return Err(error);
        }
    }
    means.host.remove_tree(&means.layout.meta_dir(plugin, name)).await?;
    means.host.unlink(&means.layout.device_link(plugin, name)).await
}

/// Every disk that is bound for the pod.
async fn all_of_pod(means: &Means<'_>, plugin: &PluginName) -> Result<Vec<Global>, VolumeError> {
    let mut found = Vec::new();
    for name in remote_place::names(means, plugin, true).await? {
        let Some(global) = Global::named(plugin, true, &name) else { continue };
        if means.host.exists(&global.dir(means).join(means.layout.uid())).await? {
            found.push(global);
        }
    }
    Ok(found)
}
