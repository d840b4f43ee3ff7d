//! Debian's kernel and tools, for the guest only: fetched by apt-get, unpacked into a
//! directory, never installed on this machine.
//!
//! Owns that directory and what apt-get puts beside it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use testkit::process;

/// Its dependency is the kernel of the day. The one for clouds has no 9p.
const KERNEL: &str = "linux-image-amd64";

/// What the tests in the guest talk to, and what klet calls there. Whatever else they need
/// and this machine does not have comes with them.
const TOOLS: [&str; 6] = ["nfs-kernel-server", "tgt", "open-iscsi", "kmod", "udev", "xfsprogs"];

/// Says what was unpacked.
const STAMP: &str = "packages.list";

/// Links of Debian's root. Packages that still use the old names are unpacked through them;
/// as directories they would hide the machine's own programs.
const LINKS: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// An unpacked kernel beside the tools.
#[derive(Debug)]
pub struct Packages {
    /// Lies over the machine's files.
    pub root: PathBuf,
    /// The kernel's version.
    pub version: String,
    /// As long as guests use them, nobody replaces them.
    _lock: fs::File,
}

impl Packages {
    /// Fetches and unpacks them, unless an earlier run has.
    pub fn ready(dir: &Path) -> Result<Self> {
        let root = dir.join("packages");
        let lock = fs::File::create(dir.join("packages.lock"))?;
        lock.lock_shared().context("cannot wait for another run")?;
        let version = match fetched_before(dir) {
            Some(version) => version,
            None => {
                lock.unlock().and_then(|()| lock.lock()).context("cannot wait for another run")?;
                let version = fetch_all(dir, &root)?;
                lock.unlock().and_then(|()| lock.lock_shared()).context("cannot share them")?;
                version
            }
        };
        Ok(Self { root, version, _lock: lock })
    }

    /// The kernel itself.
    pub fn kernel(&self) -> PathBuf {
        self.root.join("boot").join(format!("vmlinuz-{}", self.version))
    }

    /// Where its modules are.
    pub fn modules(&self) -> PathBuf {
        self.root.join("usr/lib/modules").join(&self.version)
    }
}

/// The version of the kernel that an earlier run has unpacked.
fn fetched_before(dir: &Path) -> Option<String> {
    let had = fs::read_to_string(dir.join(STAMP)).ok()?;
    let (names, version) = had.split_once('\n')?;
    (names == wanted()).then(|| version.to_owned())
}

fn wanted() -> String {
    format!("{KERNEL} {}", TOOLS.join(" "))
}

/// Fetches and unpacks everything; returns the kernel's version.
fn fetch_all(dir: &Path, root: &Path) -> Result<String> {
    for program in ["apt-get", "apt-cache", "dpkg-deb", "tar"] {
        testkit::host::program(program, program)
            .context("the guest's kernel and tools are Debian packages")?;
    }
    let wanted = wanted();
    println!("vm: fetching {wanted} (about 80 MB) into {}", root.display());
    let kernel = kernel_of_the_day()?;
    let fetched = dir.join("fetched");
    for dir in [root, &fetched] {
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
    }
    fetch(&kernel, &fetched)?;
    unpack(&fetched, root)?;
    let version = kernel.trim_start_matches("linux-image-").to_owned();
    list_modules(root, &version)?;
    fs::remove_dir_all(&fetched)?;
    // The last of all: what is half unpacked is fetched again.
    fs::write(dir.join(STAMP), format!("{wanted}\n{version}"))?;
    Ok(version)
}

fn kernel_of_the_day() -> Result<String> {
    let told = process::run(Command::new("apt-cache").args(["depends", KERNEL]));
    let told = told.context("apt-cache knows no kernel; run `apt-get update` as root")?;
    kernel_in(&told).with_context(|| format!("{KERNEL} depends on no kernel: {told}"))
}

/// What `apt-cache depends` names.
fn kernel_in(told: &str) -> Option<String> {
    let mut names = told.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.find(|name| name.starts_with("linux-image-")).map(str::to_owned)
}

fn fetch(kernel: &str, into: &Path) -> Result<()> {
    fs::create_dir_all(into.join("partial"))?;
    let advice = "cannot fetch packages; `apt-get update` as root may help";
    let mut get = Command::new("apt-get");
    process::run(get.current_dir(into).args(["download", "-qq", kernel])).context(advice)?;
    let mut get = Command::new("apt-get");
    get.args(["install", "--download-only", "--no-install-recommends", "--yes", "-qq"])
        // It locks and writes only what is ours.
        .args(["-o", "Debug::NoLocking=1", "-o"])
        .arg(format!("Dir::Cache::archives={}", into.display()))
        .args(TOOLS);
    process::run(&mut get).context(advice)?;
    Ok(())
}

fn unpack(fetched: &Path, root: &Path) -> Result<()> {
    fs::create_dir_all(root)?;
    for link in LINKS {
        fs::create_dir_all(root.join("usr").join(link))?;
        std::os::unix::fs::symlink(format!("usr/{link}"), root.join(link))?;
    }
    for entry in fs::read_dir(fetched)? {
        let package = entry?.path();
        if package.extension().is_some_and(|kind| kind == "deb") {
            unpack_one(&package, root)
                .with_context(|| format!("cannot unpack {}", package.display()))?;
        }
    }
    Ok(())
}

fn unpack_one(package: &Path, root: &Path) -> Result<()> {
    let mut read = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()?;
    let files = read.stdout.take().context("dpkg-deb has no output")?;
    let mut write = Command::new("tar");
    write.args(["--extract", "--keep-directory-symlink", "--no-same-owner", "--directory"]);
    let written = write.arg(root).stdin(files).status()?;
    let read = read.wait()?;
    ensure!(written.success() && read.success(), "dpkg-deb ended with {read}, tar with {written}");
    Ok(())
}

/// Has `depmod` write which module needs which, and which the kernel asks for by what name.
fn list_modules(root: &Path, version: &str) -> Result<()> {
    // Called by its other name: the link would lead to this machine's.
    let own = root.join("usr/bin/kmod");
    // Where kmod is installed, apt-get has not fetched it.
    let mut depmod = if own.exists() {
        let mut own = Command::new(own);
        own.arg0("depmod").env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
        own
    } else {
        Command::new(testkit::host::program("depmod", "kmod")?)
    };
    process::run(depmod.arg("--basedir").arg(root).arg(version))?;
    if !root.join("usr/lib/modules").join(version).join("modules.dep").exists() {
        bail!("depmod has written no modules.dep for {version}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_what_the_package_depends_on() {
        let told = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n  Conflicts: x\n";
        assert_eq!(kernel_in(told).as_deref(), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(kernel_in("linux-image-amd64\n"), None);
    }
}
