//! What a caller may ask of a volume: checks of its capability, as strict as
//! CSI allows, so that a kubelet that breaks the protocol is found out.

use std::collections::BTreeSet;

use plugin_apis::csi::volume_capability::AccessType;
use plugin_apis::csi::{AccessMode, NodeCapability, VolumeCapability};
use rustix::mount::MountFlags;
use tonic::Status;

/// How a volume shall be mounted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) flags: MountFlags,
    /// Group that may read and write.
    pub(super) group: Option<u32>,
    /// A device instead of a directory.
    pub(super) block: bool,
}

/// Reads the capability for a driver that offers `offered`.
pub(super) fn parse(
    capability: Option<&VolumeCapability>,
    offered: &BTreeSet<NodeCapability>,
) -> Result<Wanted, Status> {
    let wrong = Status::invalid_argument;
    let capability = capability.ok_or_else(|| wrong("volume_capability is not set"))?;
    let mode = capability.access_mode.map_or(0, |mode| mode.mode);
    match AccessMode::try_from(mode) {
        Err(_) | Ok(AccessMode::Unknown) => {
            return Err(wrong("access_mode is not set, or unknown"));
        }
        Ok(AccessMode::SingleNodeSingleWriter | AccessMode::SingleNodeMultiWriter)
            if !offered.contains(&NodeCapability::SingleNodeMultiWriter) =>
        {
            return Err(wrong("access_mode needs SINGLE_NODE_MULTI_WRITER"));
        }
        Ok(_) => (),
    }
    // Every file system type will do: the volume is a directory.
    let mount = match &capability.access_type {
        Some(AccessType::Mount(mount)) => mount,
        Some(AccessType::Block(_)) => {
            return Ok(Wanted { flags: MountFlags::empty(), group: None, block: true });
        }
        None => return Err(wrong("access_type is not set")),
    };
    let group = match mount.volume_mount_group.as_str() {
        "" => None,
        _ if !offered.contains(&NodeCapability::VolumeMountGroup) => {
            return Err(wrong("volume_mount_group needs VOLUME_MOUNT_GROUP"));
        }
        group => Some(group.parse().map_err(|_| wrong("volume_mount_group is no number"))?),
    };
    let flags = mount.mount_flags.iter().map(|flag| flag_named(flag));
    Ok(Wanted { flags: flags.collect::<Result<MountFlags, Status>>()?, group, block: false })
}

fn flag_named(name: &str) -> Result<MountFlags, Status> {
    Ok(match name {
        "ro" => MountFlags::RDONLY,
        "noexec" => MountFlags::NOEXEC,
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noatime" => MountFlags::NOATIME,
        _ => return Err(Status::invalid_argument("unknown mount flag")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plugin_apis::csi::volume_capability::{self, BlockVolume, MountVolume};

    fn capability(mode: AccessMode, access_type: AccessType) -> VolumeCapability {
        let access_mode = Some(volume_capability::AccessMode { mode: mode as i32 });
        VolumeCapability { access_type: Some(access_type), access_mode }
    }

    fn mount(flags: &[&str], group: &str) -> AccessType {
        AccessType::Mount(MountVolume {
            fs_type: "ext4".to_owned(),
            mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            volume_mount_group: group.to_owned(),
        })
    }

    #[test]
    fn what_the_driver_offers_decides() {
        let offers = BTreeSet::from([
            NodeCapability::SingleNodeMultiWriter,
            NodeCapability::VolumeMountGroup,
        ]);
        let asked = capability(AccessMode::SingleNodeMultiWriter, mount(&["ro", "nodev"], "7"));
        let flags = MountFlags::RDONLY | MountFlags::NODEV;
        let expected = Wanted { flags, group: Some(7), block: false };
        assert_eq!(parse(Some(&asked), &offers).unwrap(), expected);
        let device = capability(AccessMode::SingleNodeWriter, AccessType::Block(BlockVolume {}));
        assert!(parse(Some(&device), &offers).unwrap().block);
        let writer = AccessMode::SingleNodeWriter;
        let refused = [
            (asked, "SINGLE_NODE_MULTI_WRITER"),
            (capability(writer, mount(&[], "7")), "VOLUME_MOUNT_GROUP"),
            (capability(AccessMode::Unknown, mount(&[], "")), "access_mode"),
            (capability(writer, mount(&["user=me"], "")), "mount flag"),
        ];
        for (asked, why) in refused {
            let status = parse(Some(&asked), &BTreeSet::new()).unwrap_err();
            assert!(status.message().contains(why), "{status}");
        }
        assert!(parse(None, &offers).is_err());
        let no_number = capability(writer, mount(&[], "staff"));
        assert!(parse(Some(&no_number), &offers).is_err());
    }
}
