//! Slices of a machine whose systemd is a thread of the test.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::{CgroupName, Hierarchy, Tree};
use dbus::{self as wire, Body, Message, PREFIX, Reader};

/// What a systemd does when it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Works,
    /// Hangs up after each answer.
    HangsUp,
    /// Never answers.
    Silent,
    /// Jobs do not end well.
    Fails,
    /// Says no, by this name.
    Refuses(&'static str),
    /// Speaks, but not D-Bus.
    Babbles,
}

/// A fake systemd, and what it was asked.
struct Fake {
    dir: tempfile::TempDir,
    asked: Arc<Mutex<Vec<String>>>,
    mood: Arc<Mutex<Mood>>,
}

impl Fake {
    fn new(bus: bool) -> (Self, Systemd) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus.sock");
        let fake = Self { asked: Arc::default(), mood: Arc::new(Mutex::new(Mood::Works)), dir };
        let root = fake.root();
        fs::create_dir(&root).unwrap();
        group(&root);
        let listener = UnixListener::bind(&path).unwrap();
        let (asked, mood) = (Arc::clone(&fake.asked), Arc::clone(&fake.mood));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let talk = Talk {
                    stream: stream.unwrap(),
                    root: root.clone(),
                    asked: Arc::clone(&asked),
                    mood: Arc::clone(&mood),
                };
                // The other side leaving is how it ends.
                std::thread::spawn(move || talk.run());
            }
        });
        (fake, Systemd::at(vec![Address { path, bus }]))
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("cgroup")
    }

    fn be(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

/// Files as the kernel fills a version 2 group.
fn group(dir: &Path) {
    for (file, text) in [
        ("cgroup.controllers", "cpu memory pids hugetlb"),
        ("cgroup.subtree_control", "cpu memory pids hugetlb"),
        ("cpu.weight", "100"),
        ("cpu.max", "max 100000"),
        ("memory.max", "max"),
        ("pids.max", "max"),
        ("hugetlb.2MB.max", "max"),
    ] {
        fs::write(dir.join(file), text).unwrap();
    }
}

/// One conversation, seen from systemd.
struct Talk {
    stream: UnixStream,
    root: PathBuf,
    asked: Arc<Mutex<Vec<String>>>,
    mood: Arc<Mutex<Mood>>,
}

impl Talk {
    fn run(mut self) -> Option<()> {
        let mut reader = BufReader::new(self.stream.try_clone().ok()?);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let uid = rustix::process::getuid().as_raw().to_string();
        let hex: String = uid.bytes().map(|digit| format!("{digit:02x}")).collect();
        assert_eq!(line, format!("\0AUTH EXTERNAL {hex}\r\n"));
        self.stream.write_all(b"OK 0123456789abcdef0123456789abcdef\r\n").ok()?;
        line.clear();
        reader.read_line(&mut line).ok()?;
        assert_eq!(line, "BEGIN\r\n");
        loop {
            let mut prefix = [0; PREFIX];
            reader.read_exact(&mut prefix).ok()?;
            let mut bytes = prefix.to_vec();
            bytes.resize(PREFIX + wire::rest_of(&prefix).unwrap(), 0);
            reader.read_exact(&mut bytes[PREFIX..]).ok()?;
            self.answer(&Message::parse(&bytes).unwrap())?;
        }
    }

    fn answer(&mut self, call: &Message) -> Option<()> {
        let mood = *self.mood.lock().unwrap();
        let told = describe(call);
        self.asked.lock().unwrap().push(told);
        match mood {
            Mood::Silent => return Some(()),
            Mood::Babbles => return self.stream.write_all(&[b'x'; 64]).ok(),
            Mood::Refuses(name)
                if !call.signature.is_empty() && !call.member.starts_with("Add") =>
            {
                let body = Body::default().text("because");
                return self.send(&message(3, call.serial, Some(("", name)), &body));
            }
            _ => {}
        }
        let unit = call.body().text().unwrap_or_default();
        match call.member.as_str() {
            "StartTransientUnit" | "StopUnit" => {
                let dir = self.root.join(expand(&unit));
                if call.member == "StopUnit" {
                    let _ = fs::remove_dir_all(dir);
                } else {
                    fs::create_dir_all(&dir).unwrap();
                    group(&dir);
                }
                let job = "/org/freedesktop/systemd1/job/7";
                let how = if mood == Mood::Fails { "failed" } else { "done" };
                let mut end = Body { signature: "u".to_owned(), bytes: 7_u32.to_le_bytes().into() };
                end = end.text(job).text(&unit).text(how);
                end.signature = "uoss".to_owned();
                let mut answer = Body::default().text(job);
                answer.signature = "o".to_owned();
                // The end may overtake the answer.
                self.send(&message(4, 0, Some(("JobRemoved", "")), &end))?;
                self.send(&message(2, call.serial, None, &answer))?;
            }
            "Get" => {
                let mut version = Body { signature: "v".to_owned(), bytes: b"\x01s\0".to_vec() };
                version = version.text("252.4-1~deb12u1");
                version.signature = "v".to_owned();
                self.send(&message(2, call.serial, None, &version))?;
            }
            _ => self.send(&message(2, call.serial, None, &Body::default()))?,
        }
        (mood != Mood::HangsUp).then_some(())
    }

    fn send(&mut self, bytes: &[u8]) -> Option<()> {
        self.stream.write_all(bytes).ok()
    }
}

/// `a-b.slice` lies in `a.slice/a-b.slice`.
fn expand(unit: &str) -> PathBuf {
    let parts: Vec<&str> = unit.trim_end_matches(".slice").split('-').collect();
    (1..=parts.len()).map(|depth| format!("{}.slice", parts[..depth].join("-"))).collect()
}

/// A message to us: of which kind, in answer to what, with a member or an error's name.
fn message(kind: u8, answers: u32, named: Option<(&str, &str)>, body: &Body) -> Vec<u8> {
    let mut bytes = vec![b'l', kind, 1, 1];
    wire::put_u32(&mut bytes, body.bytes.len() as u32);
    wire::put_u32(&mut bytes, 1);
    wire::put_array(&mut bytes, 8, |bytes| {
        let (member, error) = named.unwrap_or_default();
        if !member.is_empty() {
            wire::put_field(bytes, 3, 's', member);
        }
        if !error.is_empty() {
            wire::put_field(bytes, 4, 's', error);
        }
        if answers != 0 {
            wire::align(bytes, 8);
            bytes.push(5);
            wire::put_signature(bytes, "u");
            wire::put_u32(bytes, answers);
        }
        wire::put_field(bytes, 8, 'g', &body.signature);
    });
    wire::align(&mut bytes, 8);
    bytes.extend_from_slice(&body.bytes);
    bytes
}

/// `SetUnitProperties a.slice CPUWeight=39`.
fn describe(call: &Message) -> String {
    let mut body = call.body();
    let mut words = vec![call.member.clone()];
    for kind in call.signature.split('a').next().unwrap_or_default().chars() {
        match kind {
            's' => words.push(body.text().unwrap()),
            'b' => words.push((body.u32().unwrap() == 1).to_string()),
            other => panic!("{other}"),
        }
    }
    if call.signature.contains("a(sv)") {
        words.extend(properties(&mut body));
    }
    if call.signature.ends_with("a(sa(sv))") {
        assert_eq!(body.u32().unwrap(), 0, "no other units");
    }
    words.join(" ")
}

fn properties(body: &mut Reader<'_>) -> Vec<String> {
    let length = body.u32().unwrap() as usize;
    body.align(8).unwrap();
    let mut inner = body.of(length).unwrap();
    let mut words = Vec::new();
    while inner.align(8).is_ok()
        && let Ok(name) = inner.text()
    {
        let value = match inner.signature().unwrap().as_str() {
            "s" => format!("{:?}", inner.text().unwrap()),
            "b" => (inner.u32().unwrap() == 1).to_string(),
            "t" => {
                inner.align(8).unwrap();
                let raw = inner.take(8).unwrap().first_chunk::<8>().unwrap();
                u64::from_le_bytes(*raw).to_string()
            }
            "as" => {
                inner.u32().unwrap();
                format!("[{}]", inner.text().unwrap())
            }
            other => panic!("{other}"),
        };
        words.push(format!("{name}={value}"));
    }
    words
}

fn pod() -> CgroupName {
    let parts = ["kubepods", "burstable", "podab-cd"];
    parts.iter().fold(CgroupName::root(), |name, part| name.child(part).unwrap())
}

fn limits() -> Limits {
    Limits {
        cpu_shares: Some(1024),
        cpu_quota_us: Some(12_345),
        cpu_period_us: Some(100_000),
        memory_bytes: Some(64 << 20),
        pids: Some(100),
        huge_pages: Some([(2 << 20, 4 << 20)].into()),
    }
}

const POD: &str = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice";

fn tree(fake: &Fake, systemd: Systemd) -> Tree {
    Tree::under(Hierarchy::detect(&fake.root()).unwrap(), systemd)
}

#[test]
fn a_pods_slice_from_its_start_to_its_end() {
    for bus in [true, false] {
        let (fake, systemd) = Fake::new(bus);
        let tree = tree(&fake, systemd);
        tree.create(&pod()).unwrap();
        assert!(tree.exists(&pod()));
        let greeting = ["Hello", &format!("AddMatch {}", connection::JOBS)].map(str::to_owned);
        let slice = |unit: &str, parent: &str| {
            format!(
                "StartTransientUnit {unit} replace Description=\"libcontainer container {unit}\" \
                 Wants=[{parent}] MemoryAccounting=true CPUAccounting=true IOAccounting=true \
                 TasksAccounting=true DefaultDependencies=false"
            )
        };
        let mut expected = if bus { greeting.to_vec() } else { Vec::new() };
        expected.extend([
            slice("kubepods.slice", "-.slice"),
            slice("kubepods-burstable.slice", "kubepods.slice"),
            slice("kubepods-burstable-podab_cd.slice", "kubepods-burstable.slice"),
        ]);
        assert_eq!(fake.asked(), expected);
        tree.create(&pod()).unwrap();
        assert!(fake.asked().is_empty(), "what exists is not asked for");

        tree.apply(&pod(), &limits()).unwrap();
        let set = "SetUnitProperties kubepods-burstable-podab_cd.slice true MemoryMax=67108864 \
                   CPUWeight=39 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=130000 TasksMax=100";
        let version = "Get org.freedesktop.systemd1.Manager Version";
        assert_eq!(fake.asked(), [version, set]);
        tree.apply(&pod(), &limits()).unwrap();
        assert_eq!(fake.asked(), [set], "the version is asked for once");
        let read = |file: &str| fs::read_to_string(fake.root().join(POD).join(file)).unwrap();
        assert_eq!(read("cpu.max"), "13000 100000", "as systemd rounds it");
        assert_eq!(
            (read("memory.max").as_str(), read("hugetlb.2MB.max").as_str()),
            ("67108864", "4194304")
        );

        tree.remove(&pod()).unwrap();
        let unit = "kubepods-burstable-podab_cd.slice";
        assert_eq!(
            fake.asked(),
            [format!("StopUnit {unit} replace"), format!("ResetFailedUnit {unit}")]
        );
        assert!(!fake.root().join(POD).exists());
        tree.remove(&pod()).unwrap();
        assert!(fake.asked().is_empty(), "what is gone needs no stopping");
    }
}

#[test]
fn answers_that_are_no_trouble() {
    let (fake, systemd) = Fake::new(false);
    fake.be(Mood::Refuses("org.freedesktop.systemd1.UnitExists"));
    systemd.start("a.slice", "-.slice", Version::V2).unwrap();
    fake.be(Mood::Refuses("org.freedesktop.systemd1.NoSuchUnit"));
    systemd.stop("a.slice").unwrap();
}

#[test]
fn refusals_say_what_and_why() {
    let (fake, systemd) = Fake::new(true);
    fake.be(Mood::Refuses("org.freedesktop.DBus.Error.AccessDenied"));
    let error = systemd.start("a.slice", "-.slice", Version::V2).unwrap_err().to_string();
    let expected =
        "systemd refused to start a.slice: org.freedesktop.DBus.Error.AccessDenied: because";
    assert!(error.starts_with(expected), "{error}");
    fake.be(Mood::Fails);
    let error = systemd.start("a.slice", "-.slice", Version::V2).unwrap_err().to_string();
    assert!(error.contains("the job ended as failed"), "{error}");
    assert_eq!(fake.asked().last().unwrap(), "ResetFailedUnit a.slice");
    fake.be(Mood::Works);
    systemd.start("a.slice", "-.slice", Version::V2).unwrap();
}

#[test]
fn a_systemd_that_was_restarted_is_asked_again() {
    let (fake, systemd) = Fake::new(false);
    fake.be(Mood::HangsUp);
    assert_eq!(systemd.version("a.slice").unwrap(), 252);
    fake.be(Mood::Works);
    systemd.stop("a.slice").unwrap();
    fake.be(Mood::HangsUp);
    // Stopped, but hung up before the unit was reset, and once more.
    let error = systemd.stop("a.slice").unwrap_err().to_string();
    assert!(error.contains("cannot ask systemd"), "{error}");
    fake.be(Mood::Works);
    systemd.stop("a.slice").unwrap();
    fake.be(Mood::Babbles);
    let error = systemd.stop("a.slice").unwrap_err().to_string();
    assert!(error.contains("not a D-Bus message"), "{error}");
    fake.be(Mood::Works);
    systemd.stop("a.slice").unwrap();
}

/// The agent has one thread: it waits once, and then not for a while.
#[test]
fn a_silent_systemd_is_left_alone() {
    let (fake, systemd) = Fake::new(false);
    fake.be(Mood::Silent);
    let began = Moment::now();
    let error = systemd.stop("a.slice").unwrap_err().to_string();
    assert!(error.contains("no answer in time when asked to stop a.slice"), "{error}");
    assert!(Moment::now() >= began.plus(ANSWER) && Moment::now() < began.plus(2 * ANSWER));
    fake.be(Mood::Works);
    let began = Moment::now();
    let error = systemd.start("a.slice", "-.slice", Version::V2).unwrap_err().to_string();
    assert!(error.contains("left alone for ten seconds"), "{error}");
    assert!(Moment::now() < began.plus(Duration::from_millis(100)));
}

#[test]
fn versions() {
    for (text, number) in
        [("252", 252), ("v245.4-1.fc32", 245), ("\"249\"", 249), ("", 0), ("x", 0)]
    {
        assert_eq!(version_number(text), number, "{text}");
    }
}
