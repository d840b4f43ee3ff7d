//! A container that swaps directories and links while the agent works, as in
//! the holes that were found upstream. A tree outside must stay untouched.
//! Needs root.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mounts::ownership::{ChangePolicy, FsGroup, own};
use mounts::publish::{Payload, PayloadFile, Published, publish};
use mounts::sub_path::{SubPath, bind, clean};
use mounts::{Bind, MountsError, Place, Unmounted, remove_tree, unmount, usage};
use support::{Canary, Enemy, World};

const ROUNDS: usize = 3_000;
const ROUNDS_MAX: usize = 500_000;
const CHANGES_MIN: usize = 200;
/// Directories between a swapped name and what is wanted.
const LONG_WAY: usize = 200;
const GROUP: FsGroup = FsGroup { gid: 4321, read_only: false };

fn payload(round: usize) -> Payload {
    let data = format!("round {round}").into_bytes();
    let file = PayloadFile { data, mode: 0o644, owner: Some(7) };
    Payload::new(["a", "b/c"].map(|path| (path.to_owned(), file.clone()))).unwrap()
}

fn now(round: usize) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000 + round as u64)
}

/// A directory, and beside it a link to the canary to swap it with.
fn bait(world: &World, canary: &Canary, dir: &str) -> Enemy {
    let path = world.dir(dir);
    let link = world.at(&format!("{dir}-link"));
    symlink(&canary.root, &link).unwrap();
    Enemy::swapping(path, link)
}

/// Runs an attempt against a swapper, many times and until its outcome has
/// changed often: a swapper that never runs between two attempts proves nothing.
fn race(swapper: Enemy, mut attempt: impl FnMut(usize) -> bool) {
    let (mut changes, mut last) = (0, true);
    for round in 0..ROUNDS_MAX {
        let outcome = attempt(round);
        changes += usize::from(outcome != last);
        last = outcome;
        if round >= ROUNDS && changes >= CHANGES_MIN {
            return;
        }
    }
    panic!("no race was run: {changes} changes, {} swaps", swapper.hits());
}

#[test]
fn cve_2017_1002101_a_planted_link_is_no_sub_path() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let (volume, root) = (world.dir("volume"), world.at("subpaths"));
    symlink(&canary.root, volume.join("host")).unwrap();
    symlink("host", volume.join("chain")).unwrap();
    for path in ["host", "host/deep", "chain", "chain/deep/er/file"] {
        let path = Path::new(path);
        let sub_path = SubPath { volume: &volume, path, root: &root, target: ["v", "c", "0"] };
        let error = bind(&sub_path).unwrap_err();
        assert!(matches!(error, MountsError::LeavesVolume { .. }), "{error}");
    }
    assert!(!root.exists());
    canary.assert_untouched();
}

/// The way below the swapped name is long, and so is the moment between two lookups of it:
/// whoever checks a path and then uses it again is caught.
#[test]
fn cve_2021_25741_swapped_directories_are_never_bound_from_outside() {
    let Some(world) = World::new() else { return };
    let way = "d/".repeat(LONG_WAY);
    world.dir(&format!("canary/{way}"));
    let canary = world.canary();
    let (volume, root) = (world.dir("volume"), world.at("subpaths"));
    world.file(&format!("volume/dir/{way}inside"), "");
    let swapper = bait(&world, &canary, "volume/dir");
    let path = PathBuf::from(format!("dir/{way}"));
    race(swapper, |_| {
        let target = ["v", "c", "0"];
        let bound = bind(&SubPath { volume: &volume, path: &path, root: &root, target });
        if let Ok(target) = &bound {
            assert!(target.join("inside").exists(), "bound something else");
        }
        clean(&root, "v").unwrap();
        bound.is_ok()
    });
    canary.assert_untouched();
}

#[test]
fn cve_2021_25741_directories_are_never_made_outside() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let (volume, root) = (world.dir("volume"), world.at("subpaths"));
    let swapper = bait(&world, &canary, "volume/dir");
    race(swapper, |round| {
        let path = PathBuf::from(format!("dir/new-{round}/er"));
        let target = ["v", "c", "0"];
        let bound = bind(&SubPath { volume: &volume, path: &path, root: &root, target });
        clean(&root, "v").unwrap();
        bound.is_ok()
    });
    canary.assert_untouched();
}

#[test]
fn cve_2017_1002102_a_planted_data_link_removes_nothing_outside() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let dir = world.dir("volume");
    let inner = canary.root.join("..2020_01_01_00_00_00.1");
    let relative = "../canary/..2020_01_01_00_00_00.1";
    let mut round = 0;
    for planted in [canary.root.as_path(), &inner, Path::new(relative), Path::new("../canary")] {
        for name in ["..data", "..data_tmp", "a", "b", "..2020_01_01_00_00_00.1"] {
            publish(&dir, &payload(round), Some(GROUP), now(round)).unwrap();
            let _ = fs::remove_file(dir.join(name));
            symlink(planted, dir.join(name)).unwrap();
            round += 1;
            let published = publish(&dir, &payload(round), Some(GROUP), now(round)).unwrap();
            assert_ne!(published, Published::Unchanged);
            let text = fs::read_to_string(dir.join("b/c")).unwrap();
            assert_eq!(text, format!("round {round}"), "{name} -> {}", planted.display());
            canary.assert_untouched();
        }
    }
}

#[test]
fn cve_2017_1002102_directories_in_the_place_of_links_are_no_obstacle() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let dir = world.dir("volume");
    for (round, name) in ["..data", "..data_tmp", "..data", "..data_tmp"].iter().enumerate() {
        let _ = fs::remove_file(dir.join(name));
        symlink(&canary.root, world.dir(&format!("volume/{name}/deep")).join("out")).unwrap();
        publish(&dir, &payload(round), None, now(round)).unwrap();
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), format!("round {round}"));
    }
    canary.assert_untouched();
}

#[test]
fn cve_2017_1002102_versions_swapped_while_publishing_lead_nowhere() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let dir = world.dir("volume");
    publish(&dir, &payload(0), None, now(0)).unwrap();
    symlink(&canary.root, dir.join("planted")).unwrap();
    let swapper = Enemy::swapping(dir.join("..data"), dir.join("planted")).started();
    let mut outcomes = [0; 2];
    for round in 1..ROUNDS / 10 {
        let published = publish(&dir, &payload(round), Some(GROUP), now(round));
        outcomes[usize::from(published.is_err())] += 1;
    }
    assert!(swapper.hits() > 50 && outcomes[0] > 0, "{outcomes:?}");
    drop(swapper);
    canary.assert_untouched();
}

#[test]
fn cve_2017_1002102_a_swapped_version_directory_leads_nowhere() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let dir = world.dir("volume");
    let mut outcomes = [0; 2];
    let mut swaps = 0;
    for round in 0..ROUNDS / 10 {
        publish(&dir, &payload(round), None, now(round)).unwrap();
        let version = dir.join(fs::read_link(dir.join("..data")).unwrap());
        let _ = fs::remove_file(dir.join("planted"));
        symlink(&canary.root, dir.join("planted")).unwrap();
        let swapper = Enemy::swapping(version, dir.join("planted")).started();
        let published = publish(&dir, &payload(round + 1), Some(GROUP), now(round + 1));
        outcomes[usize::from(published.is_err())] += 1;
        swaps += swapper.hits();
        drop(swapper);
        let _ = remove_tree(&dir.join("planted"));
    }
    assert!(swaps > 100 && outcomes[0] > 0, "{swaps} {outcomes:?}");
    canary.assert_untouched();
}

/// Removes a tree again and again whose directory, or itself, is swapped for a link all
/// the time: each removal finds a directory and may open a link.
fn remove_swapped(swapped: &str) {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let link = world.at(&format!("{swapped}-link"));
    let swapper = Enemy::swapping(world.at(swapped), link.clone());
    for round in 0..ROUNDS_MAX {
        fs::create_dir_all(world.at("tree/dir")).unwrap();
        symlink(&canary.root, &link).unwrap();
        // A link in the place of the tree is removed as such.
        remove_tree(&world.at("tree")).unwrap();
        remove_tree(&link).unwrap();
        let _ = fs::remove_file(world.at("tree"));
        remove_tree(&world.at("tree")).unwrap();
        if round >= ROUNDS * 3 && swapper.hits() > ROUNDS as u64 {
            canary.assert_untouched();
            return;
        }
        assert!(canary.root.join("file").exists(), "round {round}");
    }
    panic!("no race was run: {} swaps", swapper.hits());
}

#[test]
fn cve_2022_21658_a_directory_swapped_while_its_tree_is_removed_leads_nowhere() {
    remove_swapped("tree/dir");
}

#[test]
fn cve_2022_21658_a_root_swapped_while_removed_leads_nowhere() {
    remove_swapped("tree");
}

/// Layers: the tree is searched for mounts before anything is removed, and no step of the
/// removal enters another mount. The search alone is too early for this one.
#[test]
fn a_mount_that_appears_during_a_removal_keeps_its_content() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let point = world.at("tree/a/point");
    let enemy = {
        let (source, point) = (Place::follow(&canary.root).unwrap(), point.clone());
        Enemy::new(move || {
            let mounted = mounts::bind(&source, &point, Bind::default()).is_ok();
            if mounted {
                let _ = unmount(&point);
            }
            u64::from(mounted)
        })
    };
    let mut outcomes = [0; 2];
    for _ in 0..ROUNDS_MAX {
        fs::create_dir_all(&point).unwrap();
        for file in 0..20 {
            world.file(&format!("tree/a/{file}"), "");
        }
        let removed = remove_tree(&world.at("tree"));
        outcomes[usize::from(removed.is_err())] += 1;
        if let Err(error) = removed {
            assert!(matches!(error, MountsError::MountInside { .. }), "{error}");
        }
        assert!(canary.root.join("file").exists(), "a mount was emptied: {outcomes:?}");
        if outcomes.iter().all(|count| *count >= 50) && outcomes.iter().sum::<usize>() >= 500 {
            drop(enemy);
            while unmount(&point).unwrap() == Unmounted::Done {}
            canary.assert_untouched();
            return;
        }
    }
    panic!("no race was run: {outcomes:?}, {} mounts", enemy.hits());
}

/// Many directories and files, each with a link to the canary it is swapped
/// with: one walk meets many chances to go wrong.
fn baits(world: &World, canary: &Canary) -> Enemy {
    let mut pairs = Vec::new();
    for number in 0..20 {
        let (dir, file) = (format!("volume/dir-{number}"), format!("volume/file-{number}"));
        world.dir(&format!("{dir}/deep"));
        world.file(&file, "");
        for (path, to) in [(dir, canary.root.clone()), (file, canary.root.join("file"))] {
            let link = world.at(&format!("{path}-link"));
            symlink(to, &link).unwrap();
            pairs.push((world.at(&path), link));
        }
    }
    Enemy::swapping_all(pairs).started()
}

#[test]
fn cve_2021_25741_ownership_of_swapped_files_and_directories_stays_inside() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    let volume = world.dir("volume");
    let swapper = baits(&world, &canary);
    for _ in 0..ROUNDS / 5 {
        let owned = own(&volume, GROUP, ChangePolicy::Always, &mut |_| {}).unwrap();
        assert_eq!(owned.failed, 0, "{:?}", owned.first_failure);
    }
    assert!(swapper.hits() > 500);
    drop(swapper);
    canary.assert_untouched();
}

#[test]
fn usage_of_swapped_directories_never_counts_what_is_outside() {
    let Some(world) = World::new() else { return };
    let canary = world.canary();
    for number in 0..200 {
        fs::write(canary.root.join("deep").join(number.to_string()), "").unwrap();
    }
    let volume = world.dir("volume");
    let swapper = baits(&world, &canary);
    for _ in 0..ROUNDS / 5 {
        let usage = usage(&volume).unwrap();
        // Twenty directories in twenty, twenty files, forty links, one root; a
        // name that moves while it is listed may come twice.
        assert!(usage.inodes <= 200, "{usage:?}");
    }
    assert!(swapper.hits() > 500);
}
