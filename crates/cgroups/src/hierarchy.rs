//! Which control groups a machine has and where they are mounted.
//!
//! Version 1 has one tree per controller or joint controllers (`cpu,cpuacct`),
//! beside them perhaps a version 2 tree without controllers (hybrid): no groups are
//! made there, but runtimes make theirs, and leave their parents. Version 2 has one
//! tree for all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::CgroupError;
use crate::files;
use crate::name::{CgroupName, Driver};
use crate::systemd::Systemd;

/// Version 2 controllers that pods need, as far as the machine has them.
const V2_WANTED: [&str; 5] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];
/// Version 1 controllers without which nothing works.
const V1_REQUIRED: [&str; 4] = ["cpu", "cpuacct", "cpuset", "memory"];

/// Which of the kernel's two interfaces carries the controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A tree per controller.
    V1,
    /// One tree.
    V2,
}

/// The control groups of a machine.
#[derive(Debug, Clone)]
pub struct Hierarchy {
    root: PathBuf,
    version: Version,
    /// Version 1: the mount of each controller. Version 2: the root for each.
    controllers: BTreeMap<String, PathBuf>,
    /// Where groups are made, each once.
    mounts: Vec<PathBuf>,
    /// Version 1: the version 2 tree beside the others, where runtimes make groups.
    beside: Option<PathBuf>,
}

impl Hierarchy {
    /// Looks below `root`, which is `/sys/fs/cgroup` on a machine.
    pub fn detect(root: &Path) -> Result<Self, CgroupError> {
        let unified = root.join("cgroup.controllers");
        if let Some(text) = files::read_if_any(&unified)? {
            let has: BTreeSet<&str> = text.split_whitespace().collect();
            let wanted = V2_WANTED.into_iter().filter(|name| has.contains(name));
            let controllers = wanted.map(|name| (name.to_owned(), root.to_owned())).collect();
            let (root, mounts) = (root.to_owned(), vec![root.to_owned()]);
            return Ok(Self { root, version: Version::V2, controllers, mounts, beside: None });
        }
        let controllers = v1_mounts(root)?;
        if controllers.is_empty() {
            return Err(CgroupError::NotMounted(root.to_owned()));
        }
        let absent = V1_REQUIRED.into_iter().filter(|name| !controllers.contains_key(*name));
        let missing: Vec<String> = absent.map(str::to_owned).collect();
        if !missing.is_empty() {
            return Err(CgroupError::MissingControllers { root: root.to_owned(), missing });
        }
        let mounts: BTreeSet<PathBuf> = controllers.values().cloned().collect();
        let mounts = mounts.into_iter().collect();
        let unified = root.join("unified");
        let beside = unified.join("cgroup.controllers").exists().then_some(unified);
        Ok(Self { root: root.to_owned(), version: Version::V1, controllers, mounts, beside })
    }

    /// Which interface carries the controllers.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The controllers that groups are made for.
    pub fn controllers(&self) -> impl Iterator<Item = &str> {
        self.controllers.keys().map(String::as_str)
    }

    /// Can swap be limited? `own` is this process's version 2 path: the root of
    /// the tree has no limits to look at.
    pub fn limits_swap(&self, own: &str) -> bool {
        match self.version {
            Version::V1 => self
                .controllers
                .get("memory")
                .is_some_and(|mount| mount.join("memory.memsw.limit_in_bytes").exists()),
            Version::V2 => {
                self.root.join(own.trim_start_matches('/')).join("memory.swap.max").exists()
            }
        }
    }
}

/// Controllers and their mounts. A link such as `cpu` to `cpu,cpuacct` counts once.
fn v1_mounts(root: &Path) -> Result<BTreeMap<String, PathBuf>, CgroupError> {
    let entries = std::fs::read_dir(root).map_err(|error| CgroupError::read(root, error))?;
    let mut mounts = BTreeMap::new();
    for entry in entries.filter_map(Result::ok) {
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let Ok(path) = entry.path().canonicalize() else { continue };
        let is_group = path.join("cgroup.procs").exists();
        if !is_group || path.join("cgroup.controllers").exists() {
            continue;
        }
        for controller in name.split(',') {
            mounts.insert(controller.to_owned(), path.clone());
        }
    }
    Ok(mounts)
}

/// The groups of a machine as one driver names and makes them.
#[derive(Debug, Clone)]
pub struct Tree {
    pub(crate) hierarchy: Hierarchy,
    /// Whom to ask for groups, where they are systemd's units.
    pub(crate) systemd: Option<Arc<Systemd>>,
}

impl Tree {
    /// A view of the machine's groups.
    pub fn new(hierarchy: Hierarchy, driver: Driver) -> Self {
        let systemd = (driver == Driver::Systemd).then(Arc::default);
        Self { hierarchy, systemd }
    }

    /// A view of the machine's groups, which are units of this systemd.
    pub fn under(hierarchy: Hierarchy, systemd: Systemd) -> Self {
        Self { hierarchy, systemd: Some(Arc::new(systemd)) }
    }

    /// Who makes the groups.
    pub fn driver(&self) -> Driver {
        if self.systemd.is_some() { Driver::Systemd } else { Driver::Cgroupfs }
    }

    /// The machine's side.
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Does the group exist with every controller it needs?
    pub fn exists(&self, name: &CgroupName) -> bool {
        let path = name.path(self.driver());
        let below = |mount: &Path| mount.join(path.trim_start_matches('/'));
        match self.hierarchy.version {
            Version::V1 => self.hierarchy.mounts.iter().all(|mount| below(mount).is_dir()),
            Version::V2 => {
                let file = below(&self.hierarchy.root).join("cgroup.controllers");
                let text = files::read_if_any(&file).ok().flatten().unwrap_or_default();
                let has: BTreeSet<&str> = text.split_whitespace().collect();
                file.exists() && self.hierarchy.controllers().all(|name| has.contains(name))
            }
        }
    }

    /// The group's directory in each mount.
    pub(crate) fn dirs(&self, name: &CgroupName) -> Vec<PathBuf> {
        let path = name.path(self.driver());
        let mounts = self.hierarchy.mounts.iter();
        mounts.map(|mount| mount.join(path.trim_start_matches('/'))).collect()
    }

    /// The same, and where others may have made it: for whoever looks for the group or
    /// removes it. systemd looks after its own.
    pub(crate) fn all_dirs(&self, name: &CgroupName) -> Vec<PathBuf> {
        let mut dirs = self.dirs(name);
        if let (Some(beside), None) = (&self.hierarchy.beside, &self.systemd) {
            dirs.push(beside.join(name.path(self.driver()).trim_start_matches('/')));
        }
        dirs
    }

    /// The group's directory of one controller; `None` if the machine lacks it.
    pub(crate) fn dir(&self, controller: &str, name: &CgroupName) -> Option<PathBuf> {
        let mount = self.hierarchy.controllers.get(controller)?;
        Some(mount.join(name.path(self.driver()).trim_start_matches('/')))
    }

    /// As `dir`, for a controller that the limit asked for cannot do without.
    pub(crate) fn needed_dir(
        &self,
        controller: &str,
        name: &CgroupName,
    ) -> Result<PathBuf, CgroupError> {
        self.dir(controller, name).ok_or_else(|| CgroupError::MissingControllers {
            root: self.hierarchy.root.clone(),
            missing: vec![controller.to_owned()],
        })
    }
}
