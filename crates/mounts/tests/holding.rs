//! Devices kept open, on real loop devices.
//!
//! Needs root, losetup and loop devices; says SKIPPED where one of them is missing.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mounts::held::{hold, holders, release};
use mounts::{Bind, MountsError, Place, Unmounted, bind, unmount};
use support::World;

fn losetup(arguments: &[&str], path: &Path) -> Option<String> {
    let output = Command::new("losetup").args(arguments).arg(path).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A disk that is a file; taken away again, also when a test fails.
struct Disk(PathBuf, PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = release(&self.1.join("pv/u1"));
        if self.is_of_world() {
            losetup(&["--detach"], &self.0);
        }
    }
}

impl Disk {
    fn new(world: &World) -> Option<Self> {
        let image = world.file("image", "hello");
        fs::File::options().write(true).open(&image).unwrap().set_len(1 << 20).unwrap();
        let device = losetup(&["--find", "--show"], &image);
        if device.is_none() {
            eprintln!("SKIPPED, nothing was tested: needs loop devices and losetup");
        }
        device.map(|device| Self(device.into(), world.path().canonicalize().unwrap()))
    }

    /// Is it still the test's, and not gone or another's?
    fn is_of_world(&self) -> bool {
        let name = self.0.file_name().unwrap().to_str().unwrap();
        let behind = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
        behind.is_ok_and(|behind| Path::new(&behind).starts_with(&self.1))
    }
}

#[test]
fn a_device_stays_what_it_is_while_it_is_held() {
    let Some(world) = World::new() else { return };
    let Some(disk) = Disk::new(&world) else { return };
    let bound = world.file("pv/u1", "");
    bind(&Place::follow(&disk.0).unwrap(), &bound, Bind::default()).unwrap();
    // What is found by a link is found by the kernel's path, too.
    std::os::unix::fs::symlink(world.at("pv"), world.at("link")).unwrap();
    let linked = world.at("link/u1");
    release(&bound).unwrap();
    assert_eq!(holders(&bound).unwrap(), Vec::<String>::new());
    hold(&linked).unwrap();
    let held = holders(&bound).unwrap();
    assert_eq!(held.len(), 1);
    assert_ne!(Path::new(&format!("/dev/{}", held[0])), disk.0);
    hold(&bound).unwrap();
    assert_eq!(holders(&linked).unwrap(), held, "once");
    let read_only = fs::read_to_string(format!("/sys/block/{}/ro", held[0])).unwrap();
    assert_eq!(read_only.trim(), "1");
    // Nobody forgets it by accident.
    assert_eq!(unmount(&bound).unwrap_err(), MountsError::Busy { path: bound.clone() });

    // Somebody takes the device away: it goes when it is released, and not before.
    losetup(&["--detach"], &disk.0).unwrap();
    assert!(disk.is_of_world());
    assert_eq!(&fs::read(&bound).unwrap()[..5], b"hello");
    release(&bound).unwrap();
    assert_eq!(holders(&bound).unwrap(), Vec::<String>::new());
    assert!(!disk.is_of_world());
    assert_eq!(unmount(&bound).unwrap(), Unmounted::Done);
    release(&bound).unwrap();
    release(&world.at("never/there")).unwrap();
}

#[test]
fn what_is_no_device_is_not_held() {
    let Some(world) = World::new() else { return };
    let absent = world.at("absent");
    assert!(hold(&absent).unwrap_err().is_not_found());
    assert_eq!(holders(&absent).unwrap(), Vec::<String>::new());
}
