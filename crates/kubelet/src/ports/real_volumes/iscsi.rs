//! Disks of iSCSI targets: sessions by `iscsiadm`, devices as the kernel shows them.
//!
//! A login that is there is used. What fails at one portal is tried at the next. Nothing
//! secret is told to anybody but `iscsiadm`. Upstream: pkg/volume/iscsi/iscsi_util.go.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use super::super::remote_disk::IscsiDisk;
use super::super::volumes::VolumeError;
use super::fc::flush_map;
use super::iscsi_steps::{self as steps, Step};
use super::machine::Machine;
use super::tool::{Said, ToolError};

/// How long `iscsiadm` may take. By itself it gives up on a portal after two minutes.
const LIMIT: Duration = Duration::from_secs(180);
/// Rounds over all portals, as upstream: at most, and until two paths are enough.
const ROUNDS_MAX: u32 = 5;
const ROUNDS_ENOUGH: u32 = 2;
const PATHS_ENOUGH: usize = 2;
/// Pause between looks for a device.
const PAUSE: Duration = Duration::from_millis(200);

/// A disk at work.
struct Work<'a> {
    machine: &'a Machine,
    disk: &'a IscsiDisk,
    name: &'a str,
    what: &'static str,
}

/// Logs in, unless that is done, and finds the device.
pub(super) fn attach(
    machine: &Machine,
    disk: &IscsiDisk,
    name: &str,
) -> Result<PathBuf, VolumeError> {
    let work = Work { machine, disk, name, what: "attach" };
    let show = Step {
        arguments: steps::iface(&disk.init_iface, "show"),
        must: Some("read the interface"),
        ..Step::default()
    };
    let shown = String::from_utf8_lossy(&work.step(&show)?.output).into_owned();
    let Some(transport) = steps::transport(&shown) else {
        return Err(work.failed(format!("could not parse iface file for {}", disk.iface)));
    };
    if !disk.initiator.is_empty() {
        work.steps(&steps::copy_iface(disk, &shown))?;
    }
    let paths = work.reach_all(transport)?;
    let patience = match disk.portals.len() {
        1 => Duration::ZERO,
        _ => machine.multipath_patience,
    };
    let over = wait(patience, || {
        let devices = paths.iter().filter_map(|path| machine.device_of(path));
        devices.filter_map(|device| machine.multipath_of(&device)).next()
    });
    // Paths are never empty.
    Ok(over.unwrap_or_else(|| paths.into_iter().next().unwrap_or_default().into()))
}

/// Has the kernel forget the unit; if it is the last of its session, ends that, too.
pub(super) fn detach(
    machine: &Machine,
    disk: &IscsiDisk,
    last: bool,
    name: &str,
) -> Result<(), VolumeError> {
    let work = Work { machine, disk, name, what: "detach" };
    let devices = machine.unit_devices(&disk.iqn, disk.lun);
    let mut maps: Vec<PathBuf> =
        devices.iter().filter_map(|device| machine.multipath_of(device)).collect();
    maps.dedup();
    // A device below another is that one's.
    let bare = |device: &&PathBuf| machine.multipath_of(device).is_none();
    let linked = work.linked();
    for device in maps.iter().chain(devices.iter().chain(&linked).filter(bare)) {
        machine.check_unheld(device, name)?;
    }
    for map in maps {
        // As upstream: the devices below go all the same.
        if let Err(why) = flush_map(machine, &map) {
            tracing::warn!(disk = name, why, "going on without");
        }
    }
    devices.iter().for_each(|device| machine.forget(device));
    if !last {
        return Ok(());
    }
    match work.steps(&steps::logout(disk)) {
        // Without the tool nobody has logged in; or it was removed, and the session stays.
        Err(VolumeError::NoTool { .. }) if !machine.has_session(&disk.iqn) => Ok(()),
        done => done,
    }
}

impl Work<'_> {
    fn failed(&self, why: String) -> VolumeError {
        VolumeError::Remote { what: self.what, disk: self.name.to_owned(), why }
    }

    /// The devices that links lead to which the machine has made for the disk.
    fn linked(&self) -> Vec<PathBuf> {
        let dir = "/dev/disk/by-path";
        let links = self.machine.names(dir).into_iter().filter(|link| {
            let names = self.disk.portals.iter().map(|portal| self.disk.link(portal, "tcp").0);
            names.into_iter().any(|name| is_link(&name, link))
        });
        links.filter_map(|link| self.machine.device_of(&format!("{dir}/{link}"))).collect()
    }

    /// Links to the device, by all portals or by as many as can be reached.
    fn reach_all(&self, transport: &str) -> Result<Vec<String>, VolumeError> {
        let mut paths = BTreeMap::new();
        let mut last_error = None;
        for round in 1..=ROUNDS_MAX {
            for portal in &self.disk.portals {
                if paths.contains_key(portal) {
                    continue;
                }
                match self.reach(portal, transport) {
                    Ok(path) => {
                        paths.insert(portal, path);
                    }
                    Err(error @ VolumeError::NoTool { .. }) => return Err(error),
                    Err(error) => last_error = Some(error),
                }
            }
            let enough = paths.len() >= PATHS_ENOUGH && round >= ROUNDS_ENOUGH;
            if paths.is_empty() || enough || paths.len() == self.disk.portals.len() {
                break;
            }
        }
        if let Some(error) = &last_error {
            tracing::warn!(disk = self.name, %error, "not every path is there");
        }
        if paths.is_empty() {
            if self.disk.owns_iface() {
                // It may never have come to be.
                let _ = self.run(&steps::iface(&self.disk.iface, "delete"));
            }
            return Err(last_error.unwrap_or_else(|| self.failed("it has no portal".to_owned())));
        }
        Ok(paths.into_values().collect())
    }

    /// The link to the device by one portal.
    fn reach(&self, portal: &str, transport: &str) -> Result<String, VolumeError> {
        let iqn = &self.disk.iqn;
        if !self.machine.portal_hosts(iqn).contains_key(portal) {
            self.steps(&steps::login(self.disk, portal))?;
        }
        match self.machine.portal_hosts(iqn).get(portal) {
            Some(host) => {
                let scan = format!("/sys/class/scsi_host/host{host}/scan");
                let told = self.machine.tell(&scan, &format!("0 0 {}", self.disk.lun));
                told.map_err(|error| self.failed(format!("cannot write to {scan}: {error}")))?;
            }
            None => tracing::warn!(portal, iqn, "no SCSI host for the portal after logging in"),
        }
        let (name, is_end) = self.disk.link(portal, transport);
        let dir = "/dev/disk/by-path";
        let found = wait(self.machine.device_patience, || {
            let mut links = self.machine.names(dir).into_iter();
            links.find(|link| match is_end {
                true => link.starts_with("pci-") && link.ends_with(&name),
                false => *link == name,
            })
        });
        found.map(|link| format!("{dir}/{link}")).ok_or_else(|| {
            let waited = self.machine.device_patience.as_secs();
            self.failed(format!("no device {dir}/{name} appeared within {waited} s"))
        })
    }

    fn steps(&self, steps: &[Step]) -> Result<(), VolumeError> {
        steps.iter().try_for_each(|step| self.step(step).map(drop))
    }

    fn step(&self, step: &Step) -> Result<Said, VolumeError> {
        let said = self.run(&step.arguments);
        let (must, why) = match said {
            Err(ToolError::Missing) => {
                let (tool, by) = ("iscsiadm".to_owned(), self.name.to_owned());
                return Err(VolumeError::NoTool { tool, by, install: "open-iscsi" });
            }
            Ok(said) => {
                let code = said.status.code();
                let fine = code.is_some_and(|code| code == 0 || step.fine.contains(&code));
                match step.must {
                    Some(must) if !fine => (must, self.complaint(step, &said)),
                    _ => {
                        if !fine {
                            let why = said.complaint();
                            tracing::debug!(disk = self.name, why, "iscsiadm goes on without");
                        }
                        return Ok(said);
                    }
                }
            }
            Err(ToolError::Run(error)) => ("run iscsiadm", error.to_string()),
            Err(ToolError::TimedOut(limit, said)) => {
                let said = if step.secret { String::new() } else { said };
                ("wait for iscsiadm", format!("killed after {} s. {said}", limit.as_secs()))
            }
        };
        if !step.undo.is_empty() {
            // The next try begins anew either way.
            let _ = self.run(&step.undo);
        }
        Err(self.failed(format!("failed to {must}: {why}")))
    }

    /// Of what is secret, not even what the tool says about it.
    fn complaint(&self, step: &Step, said: &Said) -> String {
        match step.secret {
            true => said.status.to_string(),
            false => said.complaint(),
        }
    }

    fn run(&self, arguments: &[String]) -> Result<Said, ToolError> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        (self.machine.run)("iscsiadm", &arguments, LIMIT)
    }
}

/// Is a link that of a name, by the kernel's own initiator or by a card's?
fn is_link(name: &str, link: &str) -> bool {
    link.strip_suffix(name).is_some_and(|front| front.is_empty() || front.starts_with("pci-"))
}

/// Looks at least once, and again until something is found or time is up.
fn wait<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut waited = Duration::ZERO;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if waited >= patience {
            return None;
        }
        sleep(PAUSE);
        waited += PAUSE;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::remote_disk::Chap;
    use super::super::machine::fake::{Fake, said};
    use super::*;

    const IQN: &str = "iqn.2003-01.com.example:x";
    const LINK: &str = "/dev/disk/by-path/ip-10.0.0.1:3260-iscsi-iqn.2003-01.com.example:x-lun-3";

    fn disk(portals: &[&str]) -> IscsiDisk {
        let portals = portals.iter().map(|portal| (*portal).to_owned());
        IscsiDisk::new("pv", portals, (IQN, 3), None, None)
    }

    /// Everything works, but what has these words ends with this code.
    fn fake(words: &'static str, code: i32) -> Fake {
        Fake::new(move |call, _| {
            let mut answer = said(0, "");
            if call.contains("-m iface") {
                answer.output = b"iface.transport_name = tcp\n".to_vec();
            }
            match !words.is_empty() && call.contains(words) {
                true => Ok(said(code, "iscsiadm: no")),
                false => Ok(answer),
            }
        })
    }

    fn attached(fake: &Fake, disk: &IscsiDisk) -> Result<String, String> {
        let attached = attach(&fake.machine(), disk, "the disk");
        attached.map(|path| path.display().to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_missing_tool_is_named() {
        let fake = Fake::new(|_, _| Err(ToolError::Missing));
        let missing = "iscsiadm is not installed on this node, and the disk needs it; install \
                       open-iscsi";
        assert_eq!(attached(&fake, &disk(&["10.0.0.1"])), Err(missing.to_owned()));
        // Nobody can have logged in without it.
        let gone = |fake: &Fake| detach(&fake.machine(), &disk(&["10.0.0.1"]), true, "the disk");
        assert_eq!(gone(&fake), Ok(()));
        fake.session(7, IQN, ("10.0.0.1", "3260"));
        assert_eq!(gone(&fake).unwrap_err().to_string(), missing);
    }

    #[test]
    fn links_of_cards_count_and_those_of_other_units_do_not() {
        let name = disk(&["10.0.0.1"]).link("10.0.0.1:3260", "tcp").0;
        for (link, expected) in [
            (name.clone(), true),
            (format!("pci-0000:41:00.0-{name}"), true),
            (format!("{name}-part1"), false),
            (format!("x-{name}"), false),
        ] {
            assert_eq!(is_link(&name, &link), expected, "{link}");
        }
    }

    #[test]
    fn a_login_that_fails_is_told_and_leaves_no_record() {
        let fake = fake("--login", 8);
        let secret = [("node.session.auth.password", "hush")];
        let secret = secret.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let chap = Chap { session: true, secret, ..Chap::default() };
        let error = attached(&fake, &IscsiDisk { chap, ..disk(&["10.0.0.1"]) }).unwrap_err();
        assert_eq!(
            error,
            "cannot attach the disk: failed to log in: iscsiadm: no (exit status: 8)"
        );
        let last = fake.calls().pop().expect("calls");
        assert_eq!(
            last,
            format!("iscsiadm -m node -p 10.0.0.1:3260 -T {IQN} -I default -o delete")
        );
    }

    #[test]
    fn what_is_secret_stays_so_when_it_fails() {
        let fake = fake("hush", 6);
        let secret = [("node.session.auth.password", "hush")];
        let secret = secret.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let chap = Chap { session: true, secret, ..Chap::default() };
        let error = attached(&fake, &IscsiDisk { chap, ..disk(&["10.0.0.1"]) }).unwrap_err();
        assert_eq!(error, "cannot attach the disk: failed to set CHAP: exit status: 6");
    }

    #[test]
    fn a_tool_that_hangs_is_told() {
        let fake = Fake::new(|_, limit| Err(ToolError::TimedOut(limit, "waiting".to_owned())));
        let error = attached(&fake, &disk(&["10.0.0.1"])).unwrap_err();
        let why = "failed to wait for iscsiadm: killed after 180 s. waiting";
        assert_eq!(error, format!("cannot attach the disk: {why}"));
    }

    #[test]
    fn a_session_that_is_there_is_used() {
        let fake = fake("", 0);
        fake.session(7, IQN, ("10.0.0.1", "3260"));
        let error = attached(&fake, &disk(&["10.0.0.1"])).unwrap_err();
        assert!(error.contains(&format!("no device {LINK} appeared")), "{error}");
        fake.link(LINK, "/dev/sd7");
        assert_eq!(attached(&fake, &disk(&["10.0.0.1"])), Ok(LINK.to_owned()));
        assert_eq!(fake.text("/sys/class/scsi_host/host7/scan"), "0 0 3");
        assert!(fake.calls().iter().all(|call| call.contains("iface")), "{:?}", fake.calls());
        fake.put("/dev/sd7", "held");
        let error = detach(&fake.machine(), &disk(&["10.0.0.1"]), true, "the disk").unwrap_err();
        let why = "the device /dev/sd7 is in use when it was no longer expected to be in use";
        assert!(
            error.to_string().starts_with(&format!("cannot detach the disk: {why}")),
            "{error}"
        );
        assert_eq!(fake.text("/sys/block/sd7/device/delete"), "", "nothing was done");
        // Below another device, it is that one's; which is free.
        fake.put("/sys/block/dm-4/slaves/sd7", "");
        detach(&fake.machine(), &disk(&["10.0.0.1"]), false, "the disk").expect("gone");
        assert_eq!(fake.calls().pop().expect("calls"), "multipath -f /dev/dm-4");
        fake.remove("/sys/block/dm-4");
        fake.put("/dev/sd7", "");
        fake.put("/sys/block/sd7/device/delete", "");
        // Another unit of the target stays, and so does the session.
        detach(&fake.machine(), &disk(&["10.0.0.1"]), false, "the disk").expect("gone");
        assert_eq!(fake.text("/sys/block/sd7/device/delete"), "1");
        assert!(fake.calls().iter().all(|call| !call.contains("logout")));
    }

    #[test]
    fn one_portal_of_two_is_enough_and_a_device_over_both_is_better() {
        let fake = fake("10.0.0.2:3260 -I default --discover", 4);
        fake.link(LINK, "/dev/sd7");
        let both = disk(&["10.0.0.1", "10.0.0.2"]);
        assert_eq!(attached(&fake, &both), Ok(LINK.to_owned()));
        let tries = fake.calls().iter().filter(|call| call.contains("--discover")).count();
        assert_eq!(tries, 6, "five rounds at the one that fails");
        fake.put("/sys/block/dm-4/slaves/sd7", "");
        assert_eq!(attached(&fake, &both), Ok("/dev/dm-4".to_owned()));
    }

    #[test]
    fn the_last_unit_ends_the_session() {
        let gone = |code| {
            let fake = fake("--logout", code);
            let gone = detach(&fake.machine(), &disk(&["10.0.0.1"]), true, "the disk");
            (gone.map_err(|error| error.to_string()), fake.calls().len())
        };
        assert_eq!(gone(0), (Ok(()), 2));
        assert_eq!(gone(21), (Ok(()), 2), "there is none");
        let failed = "cannot detach the disk: failed to log out: iscsiadm: no (exit status: 9)";
        assert_eq!(gone(9), (Err(failed.to_owned()), 1));
    }
}
