//! What disks of other machines need of this one: its tools, and what /sys and /dev tell.
//!
//! Reads and writes below a root, which is `/` but for tests. Upstream:
//! pkg/volume/util/device_util_linux.go.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::super::volumes::VolumeError;
use super::tool::{self, Said, ToolError};

/// Bytes of a file in /sys.
const SYS_BYTES_MAX: u64 = 4 << 10;
/// How long a device may take to appear, as upstream.
const DEVICE_PATIENCE: Duration = Duration::from_secs(30);
/// How long the device over several paths may, as upstream.
const MULTIPATH_PATIENCE: Duration = Duration::from_secs(10);

/// Runs a tool: its name, its arguments, how long it may take.
type Runner = Box<dyn Fn(&str, &[&str], Duration) -> Result<Said, ToolError>>;

/// This machine.
pub(super) struct Machine {
    pub root: PathBuf,
    pub run: Runner,
    /// Is there such a tool?
    pub has: fn(&str) -> bool,
    /// Does somebody have hold of a device?
    pub is_held: fn(&Path) -> bool,
    pub device_patience: Duration,
    pub multipath_patience: Duration,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            root: PathBuf::from("/"),
            run: Box::new(tool::run),
            has: |name| tool::find(name).is_some(),
            is_held,
            device_patience: DEVICE_PATIENCE,
            multipath_patience: MULTIPATH_PATIENCE,
        }
    }
}

impl Machine {
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Names in a directory, sorted; none if it cannot be read.
    pub(super) fn names(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(dir)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn text(&self, path: &str) -> Option<String> {
        let mut text = String::new();
        let file = fs::File::open(self.at(path)).ok()?;
        file.take(SYS_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned())
    }

    /// Writes to a file of the kernel's, which must be there.
    pub(super) fn tell(&self, path: &str, text: &str) -> std::io::Result<()> {
        fs::OpenOptions::new().write(true).open(self.at(path))?.write_all(text.as_bytes())
    }

    /// The device that a link leads to, such as /dev/sda.
    pub(super) fn device_of(&self, link: &str) -> Option<PathBuf> {
        let real = fs::canonicalize(self.at(link)).ok()?;
        let root = fs::canonicalize(&self.root).ok()?;
        Some(Path::new("/").join(real.strip_prefix(root).ok()?))
    }

    /// The device over several paths that a device is one of.
    pub(super) fn multipath_of(&self, device: &Path) -> Option<PathBuf> {
        let name = device.strip_prefix("/dev").ok()?.to_str()?;
        let maps = self.names("/sys/block").into_iter().filter(|map| map.starts_with("dm-"));
        let mut over = maps.filter(|map| self.names(&slaves(map)).iter().any(|one| one == name));
        over.next().map(|map| Path::new("/dev").join(map))
    }

    /// The devices that a device over several paths is made of; of any other, itself.
    pub(super) fn parts_of(&self, device: &Path) -> Vec<PathBuf> {
        match name_of(device) {
            Some(map) if map.starts_with("dm-") => {
                self.names(&slaves(map)).iter().map(|one| Path::new("/dev").join(one)).collect()
            }
            _ => vec![device.to_owned()],
        }
    }

    /// Fails if somebody has hold of a device of a disk that is to be let go: what they have
    /// not written yet would be lost.
    pub(super) fn check_unheld(&self, device: &Path, disk: &str) -> Result<(), VolumeError> {
        if !(self.is_held)(&self.at(&device.to_string_lossy())) {
            return Ok(());
        }
        let shown = device.display();
        let why = format!(
            "the device {shown} is in use when it was no longer expected to be in use; lsblk \
             {shown} and fuser -vm {shown} show by whom"
        );
        Err(VolumeError::Remote { what: "detach", disk: disk.to_owned(), why })
    }

    /// Has the kernel forget a SCSI device; one that is none, or is gone, is fine.
    pub(super) fn forget(&self, device: &Path) {
        let Some(name) = name_of(device) else { return };
        match self.tell(&format!("/sys/block/{name}/device/delete"), "1") {
            Ok(()) => tracing::debug!(name, "the kernel has forgotten the device"),
            Err(error) => tracing::debug!(name, %error, "no SCSI device to forget"),
        }
    }

    /// The sessions with an iSCSI target: directory and number of the SCSI host.
    fn sessions(&self, iqn: &str) -> Vec<(String, u32)> {
        let mut found = Vec::new();
        for host in self.names("/sys/class/iscsi_host") {
            let Some(number) = host.strip_prefix("host").and_then(|n| n.parse().ok()) else {
                continue;
            };
            let device = format!("/sys/class/iscsi_host/{host}/device");
            for session in self.names(&device) {
                let target = format!("{device}/{session}/iscsi_session/{session}/targetname");
                if session.starts_with("session") && self.text(&target).as_deref() == Some(iqn) {
                    found.push((format!("{device}/{session}"), number));
                }
            }
        }
        found
    }

    /// Is the node logged in to a target?
    pub(super) fn has_session(&self, iqn: &str) -> bool {
        !self.sessions(iqn).is_empty()
    }

    /// Number of the SCSI host by portal, where the node is logged in.
    pub(super) fn portal_hosts(&self, iqn: &str) -> BTreeMap<String, u32> {
        let mut hosts = BTreeMap::new();
        for (dir, number) in self.sessions(iqn) {
            for connection in self.names(&dir) {
                if !connection.starts_with("connection") {
                    continue;
                }
                let facts = format!("{dir}/{connection}/iscsi_connection/{connection}");
                for kind in ["", "persistent_"] {
                    let address = self.text(&format!("{facts}/{kind}address"));
                    let port = self.text(&format!("{facts}/{kind}port"));
                    let (Some(address), Some(port)) = (address, port) else { continue };
                    let portal = match address.contains(':') {
                        true => format!("[{address}]:{port}"),
                        false => format!("{address}:{port}"),
                    };
                    hosts.insert(portal, number);
                }
            }
        }
        hosts
    }

    /// The devices of a logical unit of a target, one for each path.
    pub(super) fn unit_devices(&self, iqn: &str, lun: u32) -> Vec<PathBuf> {
        let block = |(dir, host): (String, u32)| {
            self.names(&format!("{dir}/target{host}:0:0/{host}:0:0:{lun}/block"))
        };
        let names = self.sessions(iqn).into_iter().flat_map(block);
        names.map(|name| Path::new("/dev").join(name)).collect()
    }
}

/// A file system, another device or a program has a block device for itself. What cannot
/// be opened for another reason, as a disk whose server is gone, nobody has. Upstream:
/// DeviceOpened in pkg/volume/util/hostutil.
fn is_held(device: &Path) -> bool {
    let is_device = |facts: fs::Metadata| facts.file_type().is_block_device();
    if !fs::metadata(device).is_ok_and(is_device) {
        return false;
    }
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    matches!(open(device, flags, Mode::empty()), Err(Errno::BUSY))
}

fn slaves(map: &str) -> String {
    format!("/sys/block/{map}/slaves")
}

fn name_of(device: &Path) -> Option<&str> {
    device.file_name()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_block_device_can_be_held() {
        let temp = tempfile::tempdir().expect("a directory");
        let file = temp.path().join("file");
        fs::write(&file, "").expect("a file");
        for path in [file.as_path(), &temp.path().join("none"), Path::new("/dev/null")] {
            assert!(!is_held(path), "{}", path.display());
        }
    }
}

/// A machine of files, for tests.
#[cfg(test)]
pub(super) mod fake {
    use std::cell::RefCell;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::rc::Rc;

    use super::*;

    /// How a tool ends that complains so.
    pub(in super::super) fn said(code: i32, complaint: &str) -> Said {
        let status = ExitStatus::from_raw(code << 8);
        Said { status, output: Vec::new(), errors: complaint.as_bytes().to_vec() }
    }

    type Answers = dyn Fn(&str, Duration) -> Result<Said, ToolError>;

    pub(in super::super) struct Fake {
        root: tempfile::TempDir,
        calls: Rc<RefCell<Vec<String>>>,
        answers: Rc<Answers>,
    }

    impl Fake {
        /// Its tools answer so: to name and arguments, and how long they have.
        pub(in super::super) fn new(
            answers: impl Fn(&str, Duration) -> Result<Said, ToolError> + 'static,
        ) -> Self {
            let root = tempfile::tempdir().expect("a directory");
            Self { root, calls: Rc::default(), answers: Rc::new(answers) }
        }

        pub(in super::super) fn root(&self) -> &Path {
            self.root.path()
        }

        pub(in super::super) fn machine(&self) -> Machine {
            let (calls, answers) = (Rc::clone(&self.calls), Rc::clone(&self.answers));
            Machine {
                root: self.root.path().to_owned(),
                run: Box::new(move |tool, arguments, limit| {
                    let call = format!("{tool} {}", arguments.join(" "));
                    calls.borrow_mut().push(call.clone());
                    answers(&call, limit)
                }),
                has: |_| true,
                is_held: |device| fs::read(device).is_ok_and(|text| text == b"held"),
                device_patience: Duration::ZERO,
                multipath_patience: Duration::ZERO,
            }
        }

        /// What tools were asked.
        pub(in super::super) fn calls(&self) -> Vec<String> {
            self.calls.borrow().clone()
        }

        fn path(&self, path: &str) -> PathBuf {
            let path = self.root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            path
        }

        pub(in super::super) fn put(&self, path: &str, text: &str) {
            fs::write(self.path(path), text).expect("a file");
        }

        pub(in super::super) fn text(&self, path: &str) -> String {
            fs::read_to_string(self.path(path)).expect("a file")
        }

        pub(in super::super) fn remove(&self, dir: &str) {
            fs::remove_dir_all(self.path(dir)).expect("a directory");
        }

        /// A link, and what it leads to.
        pub(in super::super) fn link(&self, link: &str, device: &str) {
            self.put(device, "");
            std::os::unix::fs::symlink(self.path(device), self.path(link)).expect("a link");
        }

        /// A session with a target behind a portal, and a unit of it.
        pub(in super::super) fn session(&self, host: u32, iqn: &str, portal: (&str, &str)) {
            let session = format!("/sys/class/iscsi_host/host{host}/device/session{host}");
            self.put(&format!("{session}/iscsi_session/session{host}/targetname"), iqn);
            let facts = format!("{session}/connection{host}:0/iscsi_connection/connection{host}:0");
            for kind in ["", "persistent_"] {
                self.put(&format!("{facts}/{kind}address"), &format!("{}\n", portal.0));
                self.put(&format!("{facts}/{kind}port"), &format!("{}\n", portal.1));
            }
            self.put(&format!("/sys/class/scsi_host/host{host}/scan"), "");
            let unit = format!("{session}/target{host}:0:0/{host}:0:0:3/block/sd{host}/size");
            self.put(&unit, "");
            self.put(&format!("/sys/block/sd{host}/device/delete"), "");
        }
    }
}
