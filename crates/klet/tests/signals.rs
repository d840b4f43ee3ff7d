//! A started agent: what it tells systemd, and how signals end it.
//!
//! The agent needs no runtime for this: it waits for one. It makes a directory
//! below /var/log, so only root can start it.

use std::fs::File;
use std::io::{ErrorKind, PipeReader, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(20);

/// An agent that reports to a socket of this test.
struct Agent {
    child: Child,
    /// Nobody reads it, but the agent must not see it closed.
    _stderr: PipeReader,
    directory: tempfile::TempDir,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    fn start(notify: &str, watchdog: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n\
             authentication: {{webhook: {{enabled: false}}}}\nauthorization: {{mode: AlwaysAllow}}\n\
             healthzPort: 0\npodLogsDir: {}\ncontainerRuntimeEndpoint: {}\noomScoreAdj: 0\n",
            at("logs"),
            at("none.sock")
        );
        std::fs::write(at("k.yaml"), config).unwrap();
        let (stderr, write) = std::io::pipe().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_klet"));
        command
            .arg("kubelet")
            .arg(format!("--config={}", at("k.yaml")))
            .arg(format!("--root-dir={}", at("root")))
            .env("NOTIFY_SOCKET", notify)
            .env_remove("RUST_LOG")
            .env_remove("WATCHDOG_USEC")
            .env_remove("WATCHDOG_PID")
            .stderr(write);
        if let Some(micros) = watchdog {
            command.env("WATCHDOG_USEC", micros);
        }
        let child = command.spawn().unwrap();
        Self { child, _stderr: stderr, directory }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The exit code, once there is one.
    fn code_within(&mut self, limit: Duration) -> Option<i32> {
        let step = Duration::from_millis(20);
        for _ in 0..limit.as_millis() / step.as_millis() {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status.code().expect("ended by a signal"));
            }
            std::thread::sleep(step);
        }
        None
    }

    /// Makes the next log line block. A way of its own to the pipe, so that the
    /// agent's stays a blocking one.
    fn stop_reading_its_log(&self) {
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
        let path = format!("/proc/{}/fd/2", self.child.id());
        let mut options = File::options();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
        let mut pipe = options.write(true).open(path).unwrap();
        assert!(pipe.as_raw_fd() > 2);
        for chunk in [4096, 1] {
            let full = loop {
                if let Err(error) = pipe.write(&vec![b'x'; chunk]) {
                    break error;
                }
            };
            assert_eq!(full.kind(), ErrorKind::WouldBlock);
        }
    }
}

fn heard(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 256];
    let length = socket.recv(&mut bytes).expect("the agent says nothing");
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

fn may_start() -> bool {
    let root = rustix::process::getuid().is_root();
    if !root {
        eprintln!("skipped: the agent starts as root only");
    }
    root
}

#[test]
fn the_first_signal_stops_the_agent_in_peace() {
    if !may_start() {
        return;
    }
    let name = format!("klet-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut agent = Agent::start(&format!("@{name}"), Some("1200000"));
    assert_eq!(heard(&socket), "READY=1");
    for _ in 0..3 {
        assert_eq!(heard(&socket), "WATCHDOG=1");
    }
    agent.signal(Signal::INT);
    assert_eq!(agent.code_within(LIMIT), Some(0));
    assert!(agent.directory.path().join("root").is_dir());
}

#[test]
fn a_second_signal_ends_an_agent_that_is_stuck() {
    if !may_start() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut agent = Agent::start(path.to_str().unwrap(), None);
    assert_eq!(heard(&socket), "READY=1");
    agent.stop_reading_its_log();
    agent.signal(Signal::TERM);
    assert_eq!(
        agent.code_within(Duration::from_millis(500)),
        None,
        "it must be stuck for this test"
    );
    agent.signal(Signal::TERM);
    assert_eq!(agent.code_within(LIMIT), Some(1));
}
