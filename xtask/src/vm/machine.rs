//! The guest: a qemu process, its console, and its end.
//!
//! Owns the process, which dies with its owner, however that dies. Writes no file: the
//! guest's disks are memory.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::console::Console;
use crate::interrupt::Interrupt;

/// Without emulation a kernel is up in a few seconds.
const KVM_UP_LIMIT: Duration = Duration::from_secs(20);
/// With emulation, on a busy machine.
const TCG_UP_LIMIT: Duration = Duration::from_secs(300);
/// Lines on their way to the terminal.
const LINES_MAX: usize = 1000;
/// How often an interrupt is looked for while the guest is silent.
const EVERY: Duration = Duration::from_millis(200);

/// What runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Accelerator {
    /// The processor itself.
    Kvm,
    /// qemu, some ten times slower.
    Tcg,
}

impl Accelerator {
    fn up_limit(self) -> Duration {
        match self {
            Self::Kvm => KVM_UP_LIMIT,
            Self::Tcg => TCG_UP_LIMIT,
        }
    }

    /// How many times longer than usual tests wait.
    fn patience(self) -> u32 {
        match self {
            Self::Kvm => 1,
            Self::Tcg => 4,
        }
    }

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // Five levels of page tables would be walked by hand.
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"],
        }
    }
}

/// What the guest is made of.
#[derive(Debug)]
pub struct Machine {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    /// Lies over the machine's own files.
    pub packages: PathBuf,
    pub memory_mib: u32,
    pub processors: u32,
}

/// How a guest ended.
#[derive(Debug)]
pub enum Ended {
    /// It never said that it is up.
    NotUp,
    /// It switched itself off.
    Off(Console),
}

impl Machine {
    fn command(&self, accelerator: Accelerator) -> Result<Command> {
        let qemu = testkit::host::program("qemu-system-x86_64", "qemu-system-x86")?;
        // So that qemu ends also when this program is killed.
        let mut command = Command::new(testkit::host::program("setpriv", "util-linux")?);
        let share = |path: &Path, tag: &str| {
            let path = path.display();
            format!(
                "local,path={path},mount_tag={tag},security_model=none,readonly=on,multidevs=remap"
            )
        };
        command
            .args(["--pdeathsig", "KILL"])
            .arg(qemu)
            .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
            .args(["-machine", "q35", "-serial", "stdio"])
            .args(accelerator.arguments())
            .args(["-smp", &self.processors.to_string(), "-m", &self.memory_mib.to_string()])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initramfs)
            .arg("-append")
            // The kernel hands on what it does not know to the first process's environment.
            .arg(format!(
                "console=ttyS0 quiet panic=-1 mitigations=off KLET_PATIENCE={}",
                accelerator.patience()
            ))
            .args(["-virtfs", &share(Path::new("/"), "machine")])
            .args(["-virtfs", &share(&self.packages, "packages")]);
        Ok(command)
    }

    /// Runs the guest to its end, showing what it says.
    pub fn run(
        &self,
        accelerator: Accelerator,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<Ended> {
        let mut command = self.command(accelerator)?;
        // Ctrl-C is for us: we end the guest.
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn();
        let mut guest = Guest(child.context("cannot start qemu")?);
        let output = guest.0.stdout.take().context("qemu has no output")?;
        let lines = lines_of(output);
        let (start, mut console) = (Instant::now(), Console::default());
        loop {
            match lines.recv_timeout(EVERY) {
                Ok(line) => {
                    console.hear(&line);
                    println!("{line}");
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            ensure!(!interrupt.is_set(), "interrupted; the guest is gone");
            if !console.up && start.elapsed() > accelerator.up_limit() {
                return Ok(Ended::NotUp);
            }
            if start.elapsed() > limit {
                bail!("the guest has not come to its end within {limit:?}");
            }
        }
        let status = guest.0.wait().context("cannot wait for qemu")?;
        if !console.up {
            eprintln!("vm: qemu ended with {status} before the guest was up");
            return Ok(Ended::NotUp);
        }
        Ok(Ended::Off(console))
    }
}

/// Killed when dropped.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended; there is nobody left to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The console's lines, which need not be text throughout.
fn lines_of(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = sync_channel(LINES_MAX);
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            let Ok(line) = line else { return };
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
