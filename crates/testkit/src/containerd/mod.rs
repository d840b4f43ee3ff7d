//! A containerd of one's own, beside whatever the host runs.
//!
//! Owns the slot, the process and everything the process made; all of it goes
//! when the handle is dropped, also while a test panics. Can be killed,
//! restarted, stopped and continued, to show a kubelet every way a runtime fails.

mod config;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::cleanup;
use crate::cri_client::Cri;
use crate::host;
use crate::image::Image;
use crate::process::{self, Process};
use crate::slot::{self, Slot};
use crate::wait::eventually;
use config::Paths;

/// How long containerd may take to answer.
const START_LIMIT: Duration = Duration::from_secs(60);

/// What a private containerd starts with.
#[derive(Debug, Clone)]
pub struct ContainerdOptions {
    /// Images to import: made anew, so no registry is needed.
    pub images: Vec<Image>,
    /// A directory of `HOST/hosts.toml`: where to pull from instead of those hosts.
    pub registry_hosts: Option<PathBuf>,
}

impl ContainerdOptions {
    /// The pause and busybox images.
    pub fn with_usual_images() -> Result<Self> {
        Ok(Self { images: vec![Image::pause(), Image::busybox()?], registry_hosts: None })
    }
}

/// A private containerd.
#[derive(Debug)]
pub struct Containerd {
    // Before the slot: a process must be gone before its lock is.
    process: Option<Process>,
    options: ContainerdOptions,
    paths: Paths,
    slot: Slot,
}

impl Containerd {
    /// Starts one and imports its images.
    pub fn start(options: ContainerdOptions) -> Result<Self> {
        let mut containerd = Self::prepare(options)?;
        containerd.launch()?;
        Ok(containerd)
    }

    /// Prepares everything but starts nothing: [`Self::launch`] does.
    pub fn prepare(options: ContainerdOptions) -> Result<Self> {
        host::require_architecture()?;
        host::require_root()?;
        for (program, package) in [
            ("containerd", "containerd"),
            ("ctr", "containerd"),
            ("runc", "runc"),
            ("ip", "iproute2"),
        ] {
            host::program(program, package)?;
        }
        host::program("iptables", "iptables").context("the CNI bridge plugin needs it")?;
        host::require_cni(
            Path::new(config::CNI_PLUGINS),
            &["bridge", "host-local", "loopback", "portmap"],
        )?;
        slot::reap_stale()?;
        let slot = Slot::take()?;
        slot.hold_in_memory()?;
        let paths = Paths::new(slot.dir());
        config::write(&slot, &paths, options.registry_hosts.as_deref())?;
        Ok(Self { process: None, options, paths, slot })
    }

    /// Starts the process, waits until it answers, and imports the images.
    pub fn launch(&mut self) -> Result<()> {
        self.launch_bare()?;
        for (number, image) in self.options.images.clone().iter().enumerate() {
            let archive = self.slot.dir().join(format!("image-{number}.tar"));
            image.write(&archive)?;
            self.import(&archive).with_context(|| format!("cannot import {}", image.name()))?;
            std::fs::remove_file(&archive)
                .with_context(|| format!("cannot remove {}", archive.display()))?;
        }
        Ok(())
    }

    fn launch_bare(&mut self) -> Result<()> {
        let program = host::program("containerd", "containerd")?;
        let mut command = Command::new(program);
        command.arg("--config").arg(&self.paths.config);
        let process = Process::spawn("containerd", &mut command, &self.paths.log)?;
        let process = self.process.insert(process);
        let socket = &self.paths.socket;
        let cri = Cri::connect(socket)?;
        eventually(START_LIMIT, "containerd to answer", || {
            process.check_alive()?;
            anyhow::ensure!(socket.exists(), "{} does not exist yet", socket.display());
            cri.require_ready()
        })
    }

    /// Imports an OCI archive.
    pub fn import(&self, archive: &Path) -> Result<()> {
        self.ctr(&["images", "import", &archive.display().to_string()]).map(drop)
    }

    /// Runs `ctr` on this instance, in the namespace CRI uses.
    pub fn ctr(&self, arguments: &[&str]) -> Result<String> {
        let ctr = host::program("ctr", "containerd")?;
        let mut command = Command::new(ctr);
        command.arg("--address").arg(&self.paths.socket).args(["--namespace", "k8s.io"]);
        process::run(command.args(arguments))
    }

    /// A new connection to its CRI service.
    pub fn cri(&self) -> Result<Cri> {
        Cri::connect(&self.paths.socket)
    }

    /// Its CRI address, in the form kubelet flags take.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.paths.socket.display())
    }

    /// Process id of the daemon, while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// The control group (`cgroupRoot`) for pods of this instance; goes with it.
    pub fn cgroup_root(&self) -> String {
        self.slot.cgroup_root()
    }

    /// Makes that group in every hierarchy: the upstream kubelet wants it to be there.
    pub fn make_cgroup_root(&self) -> Result<()> {
        let root = self.cgroup_root();
        let name = root.trim_start_matches('/');
        let one = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        for hierarchy in host::cgroup_hierarchies()? {
            let group = hierarchy.join(name);
            fs::create_dir_all(&group)
                .with_context(|| format!("cannot create {}", group.display()))?;
            // A new group of cgroup v1 has no processors and no memory to run on.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let (false, Ok(all)) = (one, fs::read(hierarchy.join(file))) {
                    fs::write(group.join(file), all)?;
                }
            }
        }
        Ok(())
    }

    /// Everything below here is removed with the instance.
    pub fn dir(&self) -> &Path {
        self.slot.dir()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        process::tail(&self.paths.log, 40)
    }

    /// SIGKILL to the daemon. Containers live on under their shims.
    pub fn kill(&mut self) -> Result<()> {
        match self.process.take() {
            Some(mut process) => process.kill(),
            None => Ok(()),
        }
    }

    /// Removes the socket a killed daemon leaves, as if none had ever run.
    pub fn remove_socket(&self) -> Result<()> {
        let socket = &self.paths.socket;
        std::fs::remove_file(socket).with_context(|| format!("cannot remove {}", socket.display()))
    }

    /// Kills the daemon, if it runs, and starts it again on the same state.
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.launch_bare()
    }

    /// Makes the daemon hang: its socket stays open, nothing answers.
    pub fn pause(&self) -> Result<()> {
        self.running()?.suspend()
    }

    /// Ends a [`Self::pause`].
    pub fn resume(&self) -> Result<()> {
        self.running()?.signal(Signal::CONT)
    }

    fn running(&self) -> Result<&Process> {
        self.process.as_ref().context("containerd is not running")
    }

    /// Removes the instance and says what would not go.
    pub fn remove(mut self) -> Result<()> {
        self.kill()?;
        cleanup::sweep(&self.slot)
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let result = self.kill().and_then(|()| cleanup::sweep(&self.slot));
        if let Err(err) = result {
            eprintln!("cannot remove the private containerd in {}: {err:#}", self.dir().display());
        }
    }
}
