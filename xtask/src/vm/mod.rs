//! `make vm`: tests of klet on Debian's own kernel, in a virtual machine.
//!
//! The guest sees this machine's files as its own, read-only, with Debian's packages for
//! NFS and iSCSI over them and memory for what it writes: the klet and the tests just built
//! run there as root, beside servers of their own. Owns `target/vm`; installs nothing and
//! needs no root.

mod archive;
mod console;
mod machine;
mod modules;
mod packages;
mod plan;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::interrupt::Interrupt;
use archive::Entry;
use console::Console;
use machine::{Accelerator, Ended, Machine};
use packages::Packages;

/// Directories of the first root.
const EARLY_DIRS: [&str; 8] =
    ["bin", "dev", "proc", "modules", "machine", "packages", "memory", "root"];

/// What to run.
#[derive(clap::Args)]
pub struct Options {
    /// The klet to test; built if not given.
    #[arg(long)]
    klet: Option<PathBuf>,
    /// What runs the guest; KVM where it works, else TCG, if not given.
    #[arg(long)]
    accelerator: Option<Accelerator>,
    /// Memory of the guest in MiB; half of it is its disk.
    #[arg(long, default_value_t = 4096)]
    memory: u32,
    /// Processors of the guest.
    #[arg(long, default_value_t = 2)]
    processors: u32,
    /// Minutes after which the guest is ended.
    #[arg(long, default_value_t = 180)]
    minutes: u64,
    /// Tests to run instead of the usual ones: the name of a file of tests, or NAME:FILTER.
    tests: Vec<String>,
}

/// Runs the tests in a guest; fails if one of them does.
pub fn run(options: &Options) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let workspace = fs::canonicalize(testkit::binaries::workspace())?;
    let klet = match &options.klet {
        Some(path) => path.clone(),
        None => testkit::binaries::klet_binary()?,
    };
    let klet = fs::canonicalize(&klet).with_context(|| format!("no {}", klet.display()))?;
    let programs = plan::build(&workspace, &plan::wanted(&options.tests))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or(workspace.join("target"), PathBuf::from);
    let dir = target.join("vm");
    fs::create_dir_all(&dir)?;
    let dir = fs::canonicalize(&dir)?;
    let packages = Packages::ready(&dir)?;
    let own = OwnDir::new(&dir)?;
    let initramfs = write_guest(&own.0, &packages, &klet, &plan::lines(&programs)?)?;
    let machine = Machine {
        kernel: packages.kernel(),
        initramfs,
        packages: packages.root.clone(),
        memory_mib: options.memory,
        processors: options.processors,
    };
    let limit = Duration::from_secs(options.minutes * 60);
    let accelerators = match options.accelerator {
        Some(one) => vec![one],
        None => vec![Accelerator::Kvm, Accelerator::Tcg],
    };
    for accelerator in accelerators {
        println!("vm: starting Debian's {} ({accelerator:?})", packages.version);
        match machine.run(accelerator, limit, &interrupt)? {
            Ended::Off(console) => return conclude(&console),
            Ended::NotUp => eprintln!("vm: no guest comes up with {accelerator:?} here"),
        }
    }
    bail!("no guest comes up on this machine")
}

/// What one run writes, removed with it; runs in the same tree have one each.
struct OwnDir(PathBuf);

impl OwnDir {
    const PREFIX: &str = "run-";

    /// Makes one, and removes those of runs that were killed.
    fn new(dir: &Path) -> Result<Self> {
        for entry in fs::read_dir(dir)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let id = name.strip_prefix(Self::PREFIX);
            if id.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let own = dir.join(format!("{}{}", Self::PREFIX, std::process::id()));
        fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
        Ok(Self(own))
    }
}

impl Drop for OwnDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Writes what the guest reads beside the packages; returns the first root's archive.
fn write_guest(dir: &Path, packages: &Packages, klet: &Path, plan: &str) -> Result<PathBuf> {
    let fill = |script: &str| {
        script
            .replace("@DIR@", &dir.display().to_string())
            .replace("@KLET@", &klet.display().to_string())
    };
    let late = dir.join("late.sh");
    fs::write(&late, fill(include_str!("late.sh")))?;
    fs::set_permissions(&late, fs::Permissions::from_mode(0o755))?;
    fs::write(dir.join("plan"), plan)?;
    let busybox = fs::read(testkit::host::program("busybox", "busybox-static")?)?;
    let mut entries: Vec<Entry> =
        EARLY_DIRS.iter().map(|dir| Entry::Dir((*dir).to_owned())).collect();
    entries.push(Entry::File("bin/busybox".to_owned(), busybox));
    entries.push(Entry::File("init".to_owned(), fill(include_str!("early.sh")).into()));
    let mut order = String::new();
    let listed = fs::read_to_string(packages.modules().join("modules.dep"))?;
    for path in modules::for_the_root(&listed)? {
        let module = fs::read(packages.modules().join(&path))
            .with_context(|| format!("cannot read the kernel's module {path}"))?;
        let name = path.replace('/', "-");
        order = order + &name + "\n";
        entries.push(Entry::File(format!("modules/{name}"), module));
    }
    entries.push(Entry::File("modules/order".to_owned(), order.into()));
    let initramfs = dir.join("initramfs");
    fs::write(&initramfs, archive::archive(&entries))?;
    Ok(initramfs)
}

/// Says what was skipped and what ended how.
fn conclude(console: &Console) -> Result<()> {
    println!("\nvm: the guest has ended");
    for line in console.skipped.iter().chain(&console.ended) {
        println!("  {line}");
    }
    let failed = console.failed.context("the guest ended before its tests did")?;
    ensure!(failed == 0, "{failed} of {} programs failed in the guest", console.ended.len());
    Ok(())
}
