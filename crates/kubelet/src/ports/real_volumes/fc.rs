//! Disks of Fibre Channel networks: found by the links that the machine makes for them.
//!
//! Nobody logs in anywhere: the network shows the disk, or does not. The device over
//! several paths is taken if there is one. Upstream: pkg/volume/fc/fc_util.go.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::remote_disk::FcDisk;
use super::super::volumes::VolumeError;
use super::machine::Machine;
use super::tool::ToolError;

/// How long a device may take to be flushed.
const FLUSH_LIMIT: Duration = Duration::from_secs(60);

/// Finds the disk, and has the buses looked at again if need be.
pub(super) fn attach(machine: &Machine, disk: &FcDisk, name: &str) -> Result<PathBuf, VolumeError> {
    let mut found = find(machine, disk);
    // Several ways to it should end in one device over all of them.
    let enough = |found: &Found| found.over || (found.device.is_some() && disk.ids.len() == 1);
    if !enough(&found) {
        for host in machine.names("/sys/class/scsi_host") {
            if let Err(error) = machine.tell(&format!("/sys/class/scsi_host/{host}/scan"), "- - -")
            {
                tracing::debug!(host, %error, "the bus is not looked at again");
            }
        }
        found = find(machine, disk);
    }
    found.device.ok_or_else(|| VolumeError::Remote {
        what: "attach",
        disk: name.to_owned(),
        why: "no fc disk found; see whether the network shows it to this node".to_owned(),
    })
}

/// What there is of a disk.
struct Found {
    device: Option<PathBuf>,
    /// It is a device over several paths.
    over: bool,
}

fn find(machine: &Machine, disk: &FcDisk) -> Found {
    let dir = if disk.lun.is_some() { "/dev/disk/by-path" } else { "/dev/disk/by-id" };
    let links = machine.names(dir);
    let mut device = None;
    for id in &disk.ids {
        let link = links.iter().find(|link| disk.is_link(id, link));
        let Some(one) = link.and_then(|link| machine.device_of(&format!("{dir}/{link}"))) else {
            continue;
        };
        if let Some(map) = machine.multipath_of(&one) {
            return Found { device: Some(map), over: true };
        }
        device = Some(one);
    }
    Found { device, over: false }
}

/// Has the kernel forget the disk. One that is not here is fine.
pub(super) fn detach(machine: &Machine, disk: &FcDisk, name: &str) -> Result<(), VolumeError> {
    let Found { device: Some(device), over } = find(machine, disk) else { return Ok(()) };
    machine.check_unheld(&device, name)?;
    let parts = machine.parts_of(&device);
    if over {
        flush_map(machine, &device).map_err(|why| VolumeError::Remote {
            what: "detach",
            disk: name.to_owned(),
            why,
        })?;
    }
    for part in parts {
        flush(machine, &part);
        machine.forget(&part);
    }
    Ok(())
}

/// Ends a device over several paths, which fails while something uses it.
pub(super) fn flush_map(machine: &Machine, map: &Path) -> Result<(), String> {
    let shown = map.display().to_string();
    match (machine.run)("multipath", &["-f", &shown], FLUSH_LIMIT) {
        Ok(said) if said.status.success() => Ok(()),
        Ok(said) => Err(format!("failed to flush multipath device {shown}: {}", said.complaint())),
        Err(ToolError::Missing) => {
            Err("multipath is not installed; install multipath-tools".to_owned())
        }
        Err(error) => Err(format!("failed to flush multipath device {shown}: {error:?}")),
    }
}

fn flush(machine: &Machine, device: &Path) {
    let shown = device.display().to_string();
    match (machine.run)("blockdev", &["--flushbufs", &shown], FLUSH_LIMIT) {
        Ok(said) if said.status.success() => {}
        // As upstream: the kernel flushes it, too, when it goes.
        other => tracing::warn!(device = shown, ?other, "not flushed"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::fake::{Fake, said};
    use super::*;

    fn disk(wwns: &[&str]) -> FcDisk {
        FcDisk::of_targets(wwns.iter().map(|wwn| (*wwn).to_owned()).collect(), 1)
    }

    fn attached(fake: &Fake, disk: &FcDisk) -> Result<String, String> {
        let attached = attach(&fake.machine(), disk, "the disk");
        attached.map(|path| path.display().to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_disk_is_found_by_its_link() {
        let fake = Fake::new(|_, _| Ok(said(0, "")));
        fake.put("/sys/class/scsi_host/host0/scan", "");
        let none = "cannot attach the disk: no fc disk found; see whether the network shows it to \
                    this node";
        assert_eq!(attached(&fake, &disk(&["500a"])), Err(none.to_owned()));
        assert_eq!(fake.text("/sys/class/scsi_host/host0/scan"), "- - -");
        fake.put("/sys/class/scsi_host/host0/scan", "");
        fake.link("/dev/disk/by-path/fc-0x500a-lun-1", "/dev/sda");
        fake.link("/dev/disk/by-id/scsi-36_0", "/dev/sdb");
        assert_eq!(attached(&fake, &disk(&["500a"])), Ok("/dev/sda".to_owned()));
        let named = FcDisk::of_names(&["36 0".to_owned()]);
        assert_eq!(attached(&fake, &named), Ok("/dev/sdb".to_owned()));
        assert_eq!(fake.text("/sys/class/scsi_host/host0/scan"), "", "it was there");
        // One way of two: perhaps the bus has not seen the other yet.
        assert_eq!(attached(&fake, &disk(&["500a", "500b"])), Ok("/dev/sda".to_owned()));
        assert_eq!(fake.text("/sys/class/scsi_host/host0/scan"), "- - -");
        fake.put("/sys/block/dm-2/slaves/sda", "");
        assert_eq!(attached(&fake, &disk(&["500b", "500a"])), Ok("/dev/dm-2".to_owned()));
    }

    #[test]
    fn the_kernel_forgets_every_path_to_it() {
        let fake = Fake::new(|_, _| Ok(said(0, "")));
        let gone = |fake: &Fake| detach(&fake.machine(), &disk(&["500a"]), "the disk");
        assert_eq!(gone(&fake), Ok(()), "it is not here");
        fake.link("/dev/disk/by-path/fc-0x500a-lun-1", "/dev/sda");
        for part in ["sda", "sdb"] {
            fake.put(&format!("/sys/block/dm-2/slaves/{part}"), "");
            fake.put(&format!("/sys/block/{part}/device/delete"), "");
        }
        assert_eq!(gone(&fake), Ok(()));
        assert_eq!(
            fake.calls(),
            [
                "multipath -f /dev/dm-2",
                "blockdev --flushbufs /dev/sda",
                "blockdev --flushbufs /dev/sdb"
            ]
        );
        for part in ["sda", "sdb"] {
            assert_eq!(fake.text(&format!("/sys/block/{part}/device/delete")), "1");
        }
        fake.put("/dev/dm-2", "held");
        let error = gone(&fake).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot detach the disk: the device /dev/dm-2 is in use when it was no longer expected \
             to be in use; lsblk /dev/dm-2 and fuser -vm /dev/dm-2 show by whom"
        );
        assert_eq!(fake.calls().len(), 3, "nothing was done");
        let busy = Fake::new(|_, _| Ok(said(1, "map in use")));
        busy.link("/dev/disk/by-path/fc-0x500a-lun-1", "/dev/sda");
        busy.put("/sys/block/dm-2/slaves/sda", "");
        let error = gone(&busy).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot detach the disk: ") && error.contains("in use"),
            "{error}"
        );
    }
}
