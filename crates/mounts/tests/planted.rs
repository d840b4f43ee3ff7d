//! Links that appear where the agent is about to make something: it has looked, and not
//! yet made it. A tree outside must stay untouched. Needs root.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mounts::ownership::FsGroup;
use mounts::publish::{Payload, PayloadFile, publish};
use mounts::remove_tree;
use mounts::sub_path::{SubPath, bind, clean};
use support::{Canary, Enemy, World};

const GROUP: FsGroup = FsGroup { gid: 4321, read_only: false };
const ROUNDS: usize = 2_000;
const ROUNDS_MAX: usize = 200_000;
/// Attempts that must have met a link, and as many that must have met none.
const MET_MIN: usize = 100;
/// What a version could be called.
const VERSION: &str = "..2020_01_01_00_00_00.1";

/// Puts a link at a name and takes it away again. It is renamed to its place, so nothing
/// that somebody makes there meanwhile is lost.
fn toggling(canary: &Canary, aside: PathBuf, at: PathBuf) -> Enemy {
    symlink(&canary.root, &aside).unwrap();
    Enemy::new(move || {
        let put = fs::rename(&aside, &at).is_ok();
        if put {
            fs::rename(&at, &aside).unwrap();
        }
        u64::from(put)
    })
}

/// Runs attempts until links were met often, and often were not.
fn until_met(enemy: &Enemy, mut attempt: impl FnMut() -> bool) {
    let mut met = [0; 2];
    for _ in 0..ROUNDS_MAX {
        met[usize::from(attempt())] += 1;
        if met.iter().all(|count| *count >= MET_MIN) && met.iter().sum::<usize>() >= ROUNDS {
            return;
        }
    }
    panic!("no race was run: {met:?}, {} links", enemy.hits());
}

#[test]
fn cve_2021_25741_a_link_where_a_sub_path_is_made() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let (volume, root) = (world.dir("volume"), world.at("subpaths"));
    let enemy = toggling(&canary, world.at("link"), volume.join("new"));
    until_met(&enemy, || {
        let path = Path::new("new/er");
        let sub_path = SubPath { volume: &volume, path, root: &root, target: ["v", "c", "0"] };
        let bound = bind(&sub_path);
        clean(&root, "v").unwrap();
        // What was made is in the enemy's way.
        if bound.is_ok() {
            remove_tree(&volume.join("new")).unwrap();
        }
        bound.is_ok()
    });
    drop(enemy);
    canary.assert_untouched();
}

/// Files in front of the two that matter take a while to write.
fn payload(round: usize, front: usize) -> Payload {
    let file = |path: String| {
        let data = format!("round {round}").into_bytes();
        (path, PayloadFile { data, mode: 0o644, owner: Some(7) })
    };
    let first = (0..front).map(|number| format!("Front-{number}"));
    Payload::new(first.chain(["a", "b/c"].map(str::to_owned)).map(file)).unwrap()
}

fn now(round: usize) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000 + round as u64)
}

fn versions(volume: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(volume).unwrap().flatten().map(|entry| entry.path());
    all.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("..2")).collect()
}

/// Publishes while an enemy works on whatever version it finds in the volume. That it is
/// refused at times is all it gains.
fn publish_against(
    front: usize,
    rounds: usize,
    attack: impl Fn(&Path, &Path) -> u64 + Send + 'static,
) {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let volume = world.dir("volume");
    let enemy = {
        let (volume, aim) = (volume.clone(), canary.root.clone());
        Enemy::new(move || versions(&volume).iter().map(|version| attack(version, &aim)).sum())
    };
    for round in 0..rounds {
        let _ = publish(&volume, &payload(round, front), Some(GROUP), now(round));
    }
    assert!(enemy.hits() > 10, "no race was run: {} hits", enemy.hits());
    drop(enemy);
    canary.assert_untouched();
    // What it left is no obstacle.
    publish(&volume, &payload(rounds, front), Some(GROUP), now(rounds)).unwrap();
    assert_eq!(fs::read_to_string(volume.join("b/c")).unwrap(), format!("round {rounds}"));
    canary.assert_untouched();
}

/// `O_EXCL` and `O_NOFOLLOW` keep it out.
#[test]
fn cve_2017_1002102_a_link_where_a_file_is_written() {
    let attack = |version: &Path, canary: &Path| {
        u64::from(symlink(canary.join("a"), version.join("a")).is_ok())
    };
    publish_against(50, 20, attack);
}

/// The lookup of each directory on the way to a file passes no link.
#[test]
fn cve_2017_1002102_a_link_where_a_directory_of_a_file_is_made() {
    let attack =
        |version: &Path, canary: &Path| u64::from(symlink(canary, version.join("b")).is_ok());
    publish_against(50, 20, attack);
}

/// A version is swapped between its making and its opening, which is a moment.
#[test]
fn cve_2017_1002102_a_version_that_becomes_a_link_at_once() {
    let attack = |version: &Path, canary: &Path| {
        let away = version.with_file_name("away");
        let moved = fs::rename(version, &away).is_ok();
        if moved {
            let _ = symlink(canary, version);
            let _ = fs::remove_dir_all(&away);
        }
        u64::from(moved)
    };
    publish_against(0, ROUNDS / 2, attack);
}

/// The link that users see gets an owner: itself, not what it says by then.
#[test]
fn cve_2017_1002102_a_visible_link_that_is_swapped_gives_nothing_away() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let volume = world.dir("volume");
    let enemy = {
        let (at, aside) = (volume.join("a"), world.at("aside"));
        let secret = canary.root.join("a");
        Enemy::new(move || {
            let _ = symlink(&secret, &aside);
            // Only over what is there: the publisher is to make one first.
            u64::from(at.symlink_metadata().is_ok() && fs::rename(&aside, &at).is_ok())
        })
    };
    let file = PayloadFile { data: b"x".to_vec(), mode: 0o644, owner: Some(7) };
    let payload = Payload::new([("a".to_owned(), file)]).unwrap();
    for round in 0..ROUNDS * 5 {
        publish(&volume, &payload, None, now(round)).unwrap();
    }
    assert!(enemy.hits() > 10, "no race was run: {} hits", enemy.hits());
    drop(enemy);
    canary.assert_untouched();
}

/// Whoever points `..data` to a copy could change it later, and what the pod sees. Layers:
/// only the name of a version is believed, and it is looked up without passing a link.
#[test]
fn cve_2017_1002102_a_data_link_to_a_copy_is_not_believed() {
    let Some(world) = World::new() else { return };
    let volume = world.dir("volume");
    let file = PayloadFile { data: b"x".to_vec(), mode: 0o644, owner: None };
    let payload = Payload::new([("a".to_owned(), file)]).unwrap();
    world.file(&format!("outside/{VERSION}/a"), "x");
    world.file("volume/..copy/a", "x");
    for (round, planted) in
        ["..copy", &format!("../outside/{VERSION}"), VERSION].into_iter().enumerate()
    {
        for (name, to) in [(VERSION, format!("../outside/{VERSION}")), ("..data", planted.into())] {
            let _ = fs::remove_file(volume.join(name));
            symlink(to, volume.join(name)).unwrap();
        }
        publish(&volume, &payload, None, now(round)).unwrap();
        let data = fs::read_link(volume.join("..data")).unwrap();
        assert_ne!(data, Path::new(planted), "it was believed");
        assert!(volume.join(data).symlink_metadata().unwrap().is_dir());
    }
    assert!(world.at(&format!("outside/{VERSION}/a")).exists());
}
