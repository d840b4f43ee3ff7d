//! Shares and disks of other machines: what they are, and what they are called.
//!
//! Pure. Names are upstream's, so that either agent finds what the other made. No name
//! leads out of the directory it is in. Upstream: pkg/volume/{nfs,iscsi,fc}.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;

use serde_json::{Value, json};

/// Where iSCSI targets listen.
const ISCSI_PORT: u16 = 3260;
/// What stands between a disk and the number of its logical unit.
const LUN: &str = "-lun-";
/// Begins the name of the directory of an interface.
const IFACE: &str = "iface-";

/// What a server shares, to be mounted by the machine's `mount`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The kind of file system.
    pub fs_type: &'static str,
    /// Server and path.
    pub source: String,
    /// Options as in fstab, one each.
    pub options: Vec<String>,
}

impl Share {
    /// What an NFS server exports.
    pub fn nfs(server: &str, path: &str, options: Vec<String>) -> Self {
        let source = match server.parse::<Ipv6Addr>() {
            Ok(_) => format!("[{server}]:{path}"),
            Err(_) => format!("{server}:{path}"),
        };
        Self { fs_type: "nfs", source, options }
    }
}

/// A disk that the node has to reach for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteDisk {
    /// Over a network, with `iscsiadm`.
    Iscsi(IscsiDisk),
    /// Over Fibre Channel.
    Fc(FcDisk),
}

impl RemoteDisk {
    /// The name of its directory, relative to that of its kind; `None` if it would lead
    /// elsewhere.
    pub fn global_name(&self) -> Option<String> {
        match self {
            Self::Iscsi(disk) => {
                let (iface, portal) = (&disk.iface, disk.portals.first()?);
                let name = format!("{portal}-{}{LUN}{}", disk.iqn, disk.lun);
                let parts = [format!("{IFACE}{iface}"), name];
                parts.iter().all(|part| is_part(part)).then(|| parts.join("/"))
            }
            Self::Fc(disk) => {
                let name = match disk.lun {
                    Some(lun) => format!("{}{LUN}{lun}", disk.ids.join("-")),
                    None => disk.ids.join("-"),
                };
                is_part(&name).then_some(name)
            }
        }
    }

    /// From the name of a directory, and from what is noted in it.
    pub fn of_global(plugin: &str, name: &str, note: Option<&[u8]>) -> Option<Self> {
        match plugin {
            "iscsi" => {
                let noted = note.and_then(IscsiDisk::of_note);
                noted.or_else(|| IscsiDisk::of_name(name)).map(Self::Iscsi)
            }
            _ => FcDisk::of_name(name).map(Self::Fc),
        }
    }

    /// What is reached, and left, as one: a target, or the disk itself.
    pub fn session(&self) -> String {
        match self {
            Self::Iscsi(disk) => disk.iqn.clone(),
            Self::Fc(disk) => disk.ids.join("-"),
        }
    }
}

impl fmt::Display for RemoteDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iscsi(IscsiDisk { portals, iqn, lun, .. }) => {
                write!(f, "iSCSI disk {iqn} lun {lun} at {}", portals.join(", "))
            }
            Self::Fc(FcDisk { ids, lun: Some(lun) }) => {
                write!(f, "FC disk {} lun {lun}", ids.join(", "))
            }
            Self::Fc(FcDisk { ids, lun: None }) => write!(f, "FC disk {}", ids.join(", ")),
        }
    }
}

/// A logical unit of an iSCSI target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IscsiDisk {
    /// Where the target listens, the first one first, each with its port.
    pub portals: Vec<String>,
    /// The target.
    pub iqn: String,
    /// Which unit.
    pub lun: u32,
    /// The interface the machine has.
    pub init_iface: String,
    /// The interface that is used: the same, or a copy with a name of its own.
    pub iface: String,
    /// Who this node says it is; empty leaves it to the machine.
    pub initiator: String,
    /// Under which name the volume lies.
    pub volume: String,
    /// How the node proves who it is. Not noted.
    pub chap: Chap,
}

/// How a node proves to a target who it is.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Chap {
    /// When asking which targets there are.
    pub discovery: bool,
    /// When logging in.
    pub session: bool,
    /// Names and passwords, under `iscsiadm`'s names for them.
    pub secret: BTreeMap<String, String>,
}

/// Never what is secret.
impl fmt::Debug for Chap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chap({}, {})", self.discovery, self.session)
    }
}

impl IscsiDisk {
    /// With upstream's defaults: the usual port, and with an initiator of its own an
    /// interface of its own.
    pub fn new(
        volume: &str,
        portals: impl IntoIterator<Item = String>,
        (iqn, lun): (&str, u32),
        iface: Option<&str>,
        initiator: Option<&str>,
    ) -> Self {
        let portals: Vec<String> = portals.into_iter().map(with_port).collect();
        let init_iface = iface.filter(|iface| !iface.is_empty()).unwrap_or("default").to_owned();
        let initiator = initiator.unwrap_or_default().to_owned();
        let iface = match portals.first() {
            Some(portal) if !initiator.is_empty() => format!("{portal}:{volume}"),
            _ => init_iface.clone(),
        };
        let (iqn, volume, chap) = (iqn.to_owned(), volume.to_owned(), Chap::default());
        Self { portals, iqn, lun, init_iface, iface, initiator, volume, chap }
    }

    /// Has the agent made the interface?
    pub fn owns_iface(&self) -> bool {
        let own = || self.portals.first().map(|portal| format!("{portal}:{}", self.volume));
        !self.initiator.is_empty() && own().as_ref() == Some(&self.iface)
    }

    /// What is noted beside its mount, in upstream's words: nothing secret.
    pub fn note(&self) -> Vec<u8> {
        let note = json!({
            "VolName": self.volume,
            "Portals": self.portals,
            "Iqn": self.iqn,
            "Lun": self.lun.to_string(),
            "InitIface": self.init_iface,
            "Iface": self.iface,
            "InitiatorName": self.initiator,
            "MetricsProvider": null,
        });
        format!("{note}\n").into_bytes()
    }

    fn of_note(note: &[u8]) -> Option<Self> {
        let note: Value = serde_json::from_slice(note).ok()?;
        let text = |key: &str| note[key].as_str().map(str::to_owned);
        let portals: Vec<String> = note["Portals"]
            .as_array()?
            .iter()
            .filter_map(|portal| portal.as_str().map(str::to_owned))
            .collect();
        let (iqn, iface) = (text("Iqn")?, text("Iface")?);
        if portals.is_empty() || iqn.is_empty() || iface.is_empty() {
            return None;
        }
        Some(Self {
            lun: text("Lun")?.parse().ok()?,
            init_iface: text("InitIface").unwrap_or_else(|| iface.clone()),
            initiator: text("InitiatorName").unwrap_or_default(),
            volume: text("VolName").unwrap_or_default(),
            chap: Chap::default(),
            portals,
            iqn,
            iface,
        })
    }

    /// From the name of its directory, which has the first portal only.
    fn of_name(name: &str) -> Option<Self> {
        let (iface, disk) = name.strip_prefix(IFACE)?.split_once('/')?;
        let (disk, lun) = disk.rsplit_once(LUN)?;
        let starts = ["-iqn.", "-eui.", "-naa."].iter().filter_map(|kind| disk.find(kind));
        let (portal, iqn) = disk.split_at(starts.min()?);
        let (iqn, lun) = (iqn.strip_prefix('-')?, lun.parse().ok()?);
        Some(Self::new("", [portal.to_owned()], (iqn, lun), Some(iface), None))
    }

    /// The link by which the machine shows it behind a portal, and whether that is only
    /// its end.
    pub fn link(&self, portal: &str, transport: &str) -> (String, bool) {
        let address = portal.replace(['[', ']'], "");
        let name = format!("ip-{address}-iscsi-{}{LUN}{}", self.iqn, self.lun);
        match transport {
            "tcp" => (name, false),
            _ => (format!("-{name}"), true),
        }
    }

    /// Does a directory belong to the same session?
    pub fn shares_session(&self, name: &str) -> bool {
        let disk = name.rsplit('/').next().unwrap_or_default();
        let portal = self.portals.first().map(String::as_str).unwrap_or_default();
        disk.rsplit_once(LUN).is_some_and(|(disk, _)| disk == format!("{portal}-{}", self.iqn))
    }
}

fn with_port(portal: String) -> String {
    match portal.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{portal}]:{ISCSI_PORT}"),
        Err(_) if portal.ends_with(']') || !portal.contains(':') => {
            format!("{portal}:{ISCSI_PORT}")
        }
        Err(_) => portal,
    }
}

/// A disk of a Fibre Channel network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FcDisk {
    /// Names of target ports, each a way to it, or names of the disk itself.
    pub ids: Vec<String>,
    /// Which unit of the targets; `None` if the disk is named itself.
    pub lun: Option<u32>,
}

impl FcDisk {
    /// Behind these ports.
    pub fn of_targets(wwns: Vec<String>, lun: u32) -> Self {
        Self { ids: wwns, lun: Some(lun) }
    }

    /// By its own names, in which the machine writes a blank as an underscore.
    pub fn of_names(wwids: &[String]) -> Self {
        Self { ids: wwids.iter().map(|wwid| wwid.replace(' ', "_")).collect(), lun: None }
    }

    fn of_name(name: &str) -> Option<Self> {
        let split = |ids: &str| ids.split('-').map(str::to_owned).collect();
        match name.rsplit_once(LUN) {
            Some(("", _)) => None,
            Some((ids, lun)) => Some(Self { ids: split(ids), lun: Some(lun.parse().ok()?) }),
            None => (!name.is_empty()).then(|| Self { ids: split(name), lun: None }),
        }
    }

    /// Whether a link of the machine's is one to this disk, under one of its ids.
    pub fn is_link(&self, id: &str, link: &str) -> bool {
        let Some(lun) = self.lun else { return link.strip_prefix("scsi-") == Some(id) };
        let Some(before) = link.strip_suffix(&format!("-0x{id}{LUN}{lun}")) else { return false };
        before == "fc" || (before.starts_with("pci-") && before.ends_with("-fc"))
    }
}

/// One part of a path.
fn is_part(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && name.len() <= 255 && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const IQN: &str = "iqn.2003-01.com.example:disk-lun-x";

    fn iscsi(portal: &str, initiator: Option<&str>) -> IscsiDisk {
        IscsiDisk::new("pv", [portal.to_owned()], (IQN, 7), None, initiator)
    }

    #[test]
    fn servers_have_brackets_around_colons() {
        for (server, expected) in
            [("s", "s:/p"), ("10.0.0.1", "10.0.0.1:/p"), ("fd00::1", "[fd00::1]:/p")]
        {
            assert_eq!(Share::nfs(server, "/p", vec![]).source, expected);
        }
    }

    #[test]
    fn portals_have_a_port() {
        for (portal, expected) in [
            ("10.0.0.1", "10.0.0.1:3260"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("host", "host:3260"),
            ("fd00::1", "[fd00::1]:3260"),
            ("[fd00::1]", "[fd00::1]:3260"),
            ("[fd00::1]:1", "[fd00::1]:1"),
        ] {
            assert_eq!(iscsi(portal, None).portals, [expected]);
        }
    }

    #[test]
    fn a_disk_is_found_again_by_its_directory() {
        let plain = iscsi("10.0.0.1", None);
        let name = RemoteDisk::Iscsi(plain.clone()).global_name().expect("a name");
        assert_eq!(name, format!("iface-default/10.0.0.1:3260-{IQN}-lun-7"));
        let of = |name: &str, note: Option<&[u8]>| RemoteDisk::of_global("iscsi", name, note);
        let known = IscsiDisk { volume: String::new(), ..plain.clone() };
        assert_eq!(of(&name, None), Some(RemoteDisk::Iscsi(known.clone())));
        assert_eq!(of(&name, Some(b"{")), Some(RemoteDisk::Iscsi(known)), "torn");
        let own = IscsiDisk {
            chap: Chap { session: true, ..Chap::default() },
            ..IscsiDisk::new(
                "pv",
                ["a".to_owned(), "b:1".to_owned()],
                (IQN, 7),
                Some("eth"),
                Some("iqn.1"),
            )
        };
        assert!(own.owns_iface() && !plain.owns_iface());
        assert_eq!((own.init_iface.as_str(), own.iface.as_str()), ("eth", "a:3260:pv"));
        let noted = IscsiDisk { chap: Chap::default(), ..own.clone() };
        assert_eq!(of("x", Some(&own.note())), Some(RemoteDisk::Iscsi(noted)));
        for bad in ["iface-default", "x/y-iqn.z-lun-1", "iface-a/b-lun-1", "iface-a/p-iqn.z-lun-x"]
        {
            assert_eq!(of(bad, None), None, "{bad}");
        }
        let fc =
            |ids: &[&str], lun| FcDisk { ids: ids.iter().map(|id| (*id).into()).collect(), lun };
        for (disk, expected) in [
            (fc(&["a", "b"], Some(3)), "a-b-lun-3"),
            (FcDisk::of_names(&["V 1".to_owned()]), "V_1"),
        ] {
            let disk = RemoteDisk::Fc(disk);
            assert_eq!(disk.global_name().as_deref(), Some(expected));
            assert_eq!(RemoteDisk::of_global("fc", expected, None), Some(disk));
        }
    }

    #[test]
    fn no_name_leads_elsewhere() {
        let none = |disk: RemoteDisk| assert_eq!(disk.global_name(), None, "{disk}");
        none(RemoteDisk::Fc(FcDisk::of_names(&["a/b".to_owned()])));
        none(RemoteDisk::Fc(FcDisk::of_names(&["..".to_owned()])));
        none(RemoteDisk::Iscsi(iscsi("../x", None)));
        let iface = IscsiDisk { iface: "../../x".to_owned(), ..iscsi("p", None) };
        none(RemoteDisk::Iscsi(iface));
    }

    #[test]
    fn links_of_the_machine() {
        let disk = iscsi("[fd00::1]", None);
        let (name, end) = disk.link(&disk.portals[0], "tcp");
        assert_eq!((name, end), (format!("ip-fd00::1:3260-iscsi-{IQN}-lun-7"), false));
        let (name, end) = disk.link("10.0.0.1:3260", "bnx2i");
        assert_eq!((name, end), (format!("-ip-10.0.0.1:3260-iscsi-{IQN}-lun-7"), true));
        let fc = FcDisk::of_targets(vec!["500a".to_owned()], 1);
        for (link, expected) in [
            ("fc-0x500a-lun-1", true),
            ("pci-0000:41:00.0-fc-0x500a-lun-1", true),
            ("pci-0000:41:00.0-fc-0x500a-lun-10", false),
            ("pci-0000:41:00.0-fc-0x500a-lun-1-part1", false),
            ("pci-0000:41:00.0-sas-0x500a-lun-1", false),
            ("x-fc-0x500a-lun-1", false),
        ] {
            assert_eq!(fc.is_link("500a", link), expected, "{link}");
        }
        let named = FcDisk::of_names(&["36 0".to_owned()]);
        assert!(named.is_link("36_0", "scsi-36_0") && !named.is_link("36_0", "scsi-36_0-part1"));
    }

    #[test]
    fn units_of_one_target_share_a_session() {
        let disk = iscsi("10.0.0.1", None);
        for (name, expected) in [
            (format!("iface-default/10.0.0.1:3260-{IQN}-lun-8"), true),
            (format!("iface-other/10.0.0.1:3260-{IQN}-lun-7"), true),
            (format!("iface-default/10.0.0.1:3260-{IQN}x-lun-7"), false),
            (format!("iface-default/10.0.0.2:3260-{IQN}-lun-7"), false),
        ] {
            assert_eq!(disk.shares_session(&name), expected, "{name}");
        }
    }

    #[test]
    fn what_is_secret_is_neither_noted_nor_shown() {
        let secret = BTreeMap::from([("password".to_owned(), "hush".to_owned())]);
        let chap = Chap { secret, ..Chap::default() };
        let disk = RemoteDisk::Iscsi(IscsiDisk { chap, ..iscsi("p", None) });
        assert!(!format!("{disk:?} {disk}").contains("hush"));
        let RemoteDisk::Iscsi(disk) = disk else { unreachable!("it is one") };
        assert!(!String::from_utf8_lossy(&disk.note()).contains("hush"));
    }
}
