//! Names of groups, and how each driver writes them as a path.
//!
//! Pure. Upstream: pkg/kubelet/cm/cgroup_manager_linux.go (CgroupName).

use std::fmt;

/// Longest component the kernel takes.
const COMPONENT_MAX: usize = 255;
const SLICE: &str = ".slice";
/// The slice above all others.
const ROOT_SLICE: &str = "-.slice";

/// Who makes the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// Directories, made by whoever needs them.
    Cgroupfs,
    /// Units, made by systemd.
    Systemd,
}

/// A text that cannot name a group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} cannot be part of a control group's name: {why}")]
pub struct NameError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// A group, whatever the driver: its components from the root on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CgroupName(Vec<String>);

impl CgroupName {
    /// The root of the tree.
    pub fn root() -> Self {
        Self::default()
    }

    /// A configured path such as `/` or `/machine/pods`.
    pub fn parse(path: &str) -> Result<Self, NameError> {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.map(|part| check(part).map(|()| part.to_owned())).collect::<Result<_, _>>().map(Self)
    }

    /// A configured group as a driver names it: `/system.slice` is a unit under systemd
    /// and a directory otherwise.
    pub fn parse_for(path: &str, driver: Driver) -> Result<Self, NameError> {
        match driver {
            Driver::Cgroupfs => Self::parse(path),
            Driver::Systemd => {
                let unit = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
                let parts = unit.strip_suffix(SLICE).unwrap_or(unit).split('-');
                let parts = parts.map(|part| part.replace('_', "-"));
                parts.map(|part| check(&part).map(|()| part)).collect::<Result<_, _>>().map(Self)
            }
        }
    }

    /// The slice of this group and the one above it.
    pub(crate) fn unit(&self) -> (String, String) {
        let depth = self.0.len();
        let parent = if depth > 1 { self.slice(depth - 1) } else { ROOT_SLICE.to_owned() };
        (if depth > 0 { self.slice(depth) } else { ROOT_SLICE.to_owned() }, parent)
    }

    /// The group of this name below this one. An underscore is refused: systemd's
    /// spelling uses it for a dash, and the way back must be unambiguous.
    pub fn child(&self, component: &str) -> Result<Self, NameError> {
        check(component)?;
        if component.contains(['/', '_']) {
            let why = "it contains a slash or an underscore";
            return Err(NameError { text: component.to_owned(), why });
        }
        let mut parts = self.0.clone();
        parts.push(component.to_owned());
        Ok(Self(parts))
    }

    /// Is it the root of the tree?
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path below a mount, from a leading slash on.
    pub fn path(&self, driver: Driver) -> String {
        match driver {
            Driver::Cgroupfs => format!("/{}", self.0.join("/")),
            Driver::Systemd => {
                let mut path = String::new();
                for depth in 1..=self.0.len() {
                    path = format!("{path}/{}", self.slice(depth));
                }
                if path.is_empty() { "/".to_owned() } else { path }
            }
        }
    }

    /// Every group from the outermost to this one.
    pub fn lineage(&self) -> impl Iterator<Item = Self> + '_ {
        (1..=self.0.len()).map(|depth| Self(self.0[..depth].to_vec()))
    }

    /// The component that a directory right below this group stands for; `None` if
    /// the driver would not have made it.
    pub fn component_of(&self, directory: &str, driver: Driver) -> Option<String> {
        match driver {
            Driver::Cgroupfs => Some(directory.to_owned()),
            Driver::Systemd => {
                let unit = directory.strip_suffix(SLICE)?;
                let own = match self.0.len() {
                    0 => unit,
                    depth => unit.strip_prefix(self.stem(depth).as_str())?.strip_prefix('-')?,
                };
                (!own.contains('-')).then(|| own.replace('_', "-"))
            }
        }
    }

    fn stem(&self, depth: usize) -> String {
        let parts: Vec<String> = self.0[..depth].iter().map(|p| p.replace('-', "_")).collect();
        parts.join("-")
    }

    fn slice(&self, depth: usize) -> String {
        format!("{}{SLICE}", self.stem(depth))
    }
}

fn check(component: &str) -> Result<(), NameError> {
    let bad = |why| Err(NameError { text: component.to_owned(), why });
    match component {
        "" => bad("it is empty"),
        "." | ".." => bad("it leads elsewhere"),
        _ if component.len() > COMPONENT_MAX => bad("it is longer than 255 bytes"),
        _ if component.chars().any(char::is_control) => bad("it contains a control character"),
        _ => Ok(()),
    }
}

impl fmt::Display for CgroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path(Driver::Cgroupfs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(parts: &[&str]) -> CgroupName {
        parts.iter().fold(CgroupName::root(), |name, part| name.child(part).expect("a component"))
    }

    #[test]
    fn as_each_driver_writes_them() {
        for (parts, cgroupfs, systemd) in [
            (&[] as &[&str], "/", "/"),
            (&["kubepods"], "/kubepods", "/kubepods.slice"),
            (
                &["kubepods", "burstable"],
                "/kubepods/burstable",
                "/kubepods.slice/kubepods-burstable.slice",
            ),
            (
                &["kubepods", "pod1234-abcd-5678"],
                "/kubepods/pod1234-abcd-5678",
                "/kubepods.slice/kubepods-pod1234_abcd_5678.slice",
            ),
            (
                &["kubepods", "besteffort", "podab-cd"],
                "/kubepods/besteffort/podab-cd",
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podab_cd.slice",
            ),
        ] {
            let name = name(parts);
            assert_eq!(name.path(Driver::Cgroupfs), cgroupfs);
            assert_eq!(name.path(Driver::Systemd), systemd);
        }
    }

    #[test]
    fn directories_lead_back_to_components() {
        let tier = name(&["kubepods", "burstable"]);
        for (parent, directory, driver, component) in [
            (&tier, "podab-cd", Driver::Cgroupfs, Some("podab-cd")),
            (&tier, "kubepods-burstable-podab_cd.slice", Driver::Systemd, Some("podab-cd")),
            (&tier, "kubepods-burstable.slice", Driver::Systemd, None),
            (&tier, "kubepods-burstable-podab-x.slice", Driver::Systemd, None),
            (&tier, "cri-containerd-abc.scope", Driver::Systemd, None),
            (&CgroupName::root(), "kubepods.slice", Driver::Systemd, Some("kubepods")),
        ] {
            assert_eq!(parent.component_of(directory, driver).as_deref(), component, "{directory}");
        }
    }

    #[test]
    fn configured_groups_and_their_units() {
        for (path, driver, expected) in [
            ("/system.slice", Driver::Systemd, "/system.slice"),
            ("/system.slice/", Driver::Systemd, "/system.slice"),
            ("kube-reserved.slice", Driver::Systemd, "/kube.slice/kube-reserved.slice"),
            ("/a.slice/a-b_c.slice", Driver::Systemd, "/a.slice/a-b_c.slice"),
            ("/system", Driver::Systemd, "/system.slice"),
            ("/system.slice", Driver::Cgroupfs, "/system.slice"),
            ("/a/b", Driver::Cgroupfs, "/a/b"),
        ] {
            assert_eq!(CgroupName::parse_for(path, driver).unwrap().path(driver), expected);
        }
        assert!(CgroupName::parse_for("/", Driver::Systemd).is_err());
        assert!(CgroupName::parse_for("a--b.slice", Driver::Systemd).is_err());
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let pod = name(&["kubepods", "burstable", "podab-cd"]);
        let unit = pair("kubepods-burstable-podab_cd.slice", "kubepods-burstable.slice");
        assert_eq!(pod.unit(), unit);
        assert_eq!(name(&["kubepods"]).unit(), pair("kubepods.slice", "-.slice"));
    }

    #[test]
    fn hostile_names_are_refused() {
        let root = CgroupName::root();
        let long = "x".repeat(256);
        for bad in ["", ".", "..", "a/b", "a_b", "../x", "a\nb", "a\0b", &long] {
            assert!(root.child(bad).is_err(), "{bad:?}");
        }
        assert!(CgroupName::parse("/a/../b").is_err());
        assert_eq!(CgroupName::parse("//a/b_c/").unwrap().path(Driver::Cgroupfs), "/a/b_c");
        assert!(CgroupName::parse("/").unwrap().is_root());
    }
}
