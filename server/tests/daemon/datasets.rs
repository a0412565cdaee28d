//! Changes of datasets that mount nothing: what depends on what, and what is done together or not at all.

use std::fs::File;
use std::path::PathBuf;
use std::thread;

use device::block_on;
use futures_util::future::join_all;
use server::api::{
    ApiError, CloneSnapshot, CreateDataset, CreatePool, DestroyDataset, Destroyed, ErrorKind, GetCounters,
    HoldSnapshots, ListDatasets, NewDevices, NewLayout, NewVdev, Promote, RenameDataset, TakeSnapshots,
};

use crate::harness::Running;

/// Size of the file that a pool lies on.
const DISK_BYTES: u64 = 256 << 20;

/// A daemon with a pool `tank` that mounts nothing.
fn start() -> Running {
    let running = Running::start();
    add_pool(&running, "tank");
    running
}

fn add_pool(running: &Running, name: &str) -> PathBuf {
    let disk = running.place.path().join(format!("{name}.disk"));
    File::create(&disk).unwrap().set_len(DISK_BYTES).unwrap();
    let vdev = NewVdev { layout: NewLayout::Single, class: Default::default(), devices: vec![disk.clone()] };
    let create = CreatePool {
        name: name.into(),
        devices: NewDevices { vdevs: vec![vdev], ..NewDevices::default() },
        altroot: Some(running.altroot()),
        root_properties: vec![("mountpoint".into(), "none".into())],
        ..CreatePool::default()
    };
    block_on(running.daemon.create_pool(create)).unwrap();
    disk
}

fn create(running: &Running, name: &str) {
    let request = CreateDataset { name: name.into(), ..CreateDataset::default() };
    block_on(running.daemon.create_dataset(request)).unwrap();
}

fn snapshot(running: &Running, names: &[&str], recursive: bool) -> Result<Vec<String>, ApiError> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    block_on(running.daemon.take_snapshots(TakeSnapshots { names, recursive, ..TakeSnapshots::default() }))
}

fn clone(running: &Running, snapshot: &str, target: &str) {
    let request =
        CloneSnapshot { snapshot: snapshot.into(), target: target.into(), ..CloneSnapshot::default() };
    block_on(running.daemon.clone_snapshot(request)).unwrap();
}

fn destroy(running: &Running, name: &str, recursive: bool, clones: bool) -> Result<Destroyed, ApiError> {
    let request = DestroyDataset { name: name.into(), recursive, clones, ..DestroyDataset::default() };
    block_on(running.daemon.destroy_dataset(request))
}

/// Names of all datasets, snapshots and bookmarks.
fn names(running: &Running) -> Vec<String> {
    let listed = block_on(running.daemon.list_datasets(ListDatasets::default())).unwrap();
    listed.entries.into_iter().map(|entry| entry.name).collect()
}

#[test]
fn datasets_that_depend_on_each_other_are_not_destroyed_and_the_daemon_says_so() {
    let running = start();
    create(&running, "tank/a");
    snapshot(&running, &["tank/a@s"], false).unwrap();
    clone(&running, "tank/a@s", "tank/a/c");
    block_on(running.daemon.promote(Promote { dataset: "tank/a/c".into(), ..Promote::default() })).unwrap();
    let before = names(&running);
    let refused = destroy(&running, "tank/a", false, false).unwrap_err();
    assert!(refused.message.starts_with("cannot destroy 'tank/a': filesystem has children"), "{refused}");
    for clones in [false, true] {
        let refused = destroy(&running, "tank/a", true, clones).unwrap_err();
        let why = "cannot determine dependent datasets: recursive dependency at 'tank/a'";
        assert!(refused.message.starts_with(why), "{refused}");
    }
    let refused = destroy(&running, "tank/a/c@s", false, true).unwrap_err();
    assert!(refused.message.contains("recursive dependency"), "{refused}");
    assert_eq!(names(&running), before);
    // Once they are apart, both can go.
    let apart = RenameDataset { from: "tank/a/c".into(), to: "tank/c".into(), ..RenameDataset::default() };
    block_on(running.daemon.rename_dataset(apart)).unwrap();
    assert_eq!(destroy(&running, "tank/c", true, true).unwrap().names, ["tank/a", "tank/c@s", "tank/c"]);
}

#[test]
fn a_long_chain_of_clones_is_destroyed_with_a_small_stack() {
    const CLONES: usize = 80;
    const STACK_BYTES: usize = 512 << 10;
    let running = start();
    create(&running, "tank/0");
    snapshot(&running, &["tank/0@s"], false).unwrap();
    for number in 1..=CLONES {
        clone(&running, &format!("tank/{}@s", number - 1), &format!("tank/{number}"));
        snapshot(&running, &[&format!("tank/{number}@s")], false).unwrap();
    }
    thread::scope(|scope| {
        let work = || destroy(&running, "tank/0@s", false, true).unwrap();
        let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).unwrap();
        let gone = thread.join().unwrap().names;
        assert_eq!(gone.len(), 2 * CLONES + 1);
        assert_eq!(gone[..2], [format!("tank/{CLONES}@s"), format!("tank/{CLONES}")]);
    });
    assert_eq!(names(&running), ["tank", "tank/0"]);
}

#[test]
fn snapshots_are_renamed_held_and_destroyed_together_or_not_at_all() {
    let running = start();
    for name in ["tank/c", "tank/c/d", "tank/e"] {
        create(&running, name);
    }
    snapshot(&running, &["tank@s"], true).unwrap();
    snapshot(&running, &["tank/c@t"], false).unwrap();
    let before = names(&running);
    let rename = RenameDataset {
        from: "tank@s".into(),
        to: "tank@t".into(),
        recursive: true,
        ..RenameDataset::default()
    };
    let refused = block_on(running.daemon.rename_dataset(rename.clone())).unwrap_err();
    let why = "cannot rename 'tank/c@s': a child dataset already has a snapshot with the new name";
    assert_eq!(refused.message, why);
    assert_eq!(names(&running), before);
    // The engine checks all of them by itself before it renames the first one.
    let hold = |snapshot: &str, recursive, release| {
        let request = HoldSnapshots {
            tag: "keep".into(),
            snapshots: vec![snapshot.into()],
            recursive,
            release,
            ..HoldSnapshots::default()
        };
        block_on(running.daemon.hold_snapshots(request))
    };
    hold("tank/c/d@s", false, false).unwrap();
    assert_eq!(hold("tank@s", true, false).unwrap_err().kind, ErrorKind::Busy);
    let refused = destroy(&running, "tank@s", true, false).unwrap_err();
    assert!(refused.message.contains("tank/c/d@s"), "{refused}");
    assert_eq!(names(&running), before);
    // None of the others was held.
    hold("tank/c/d@s", false, true).unwrap();
    assert_eq!(hold("tank@s", true, true).unwrap_err().kind, ErrorKind::NotFound);
    destroy(&running, "tank/c@t", false, false).unwrap();
    block_on(running.daemon.rename_dataset(rename)).unwrap();
    let all = names(&running);
    assert!(!all.iter().any(|name| name.ends_with("@s")), "{all:?}");
    assert_eq!(snapshot(&running, &["tank@t"], true).unwrap_err().kind, ErrorKind::Busy);
    assert_eq!(destroy(&running, "tank@t", true, false).unwrap().names.len(), 4);
}

#[test]
fn filesystems_and_snapshots_that_come_at_the_same_time_share_groups() {
    const COUNT: usize = 48;
    let running = start();
    let groups = || -> u64 {
        let wanted = GetCounters { groups: vec!["txgs".into()], pools: vec![] };
        let counted = block_on(running.daemon.counters(wanted)).unwrap();
        counted.txgs[0].txgs.iter().map(|group| group.txg).max().unwrap()
    };
    let before = groups();
    let made = |number: usize| CreateDataset { name: format!("tank/{number}"), ..CreateDataset::default() };
    let creates = (0..COUNT).map(|number| running.daemon.create_dataset(made(number)));
    for created in block_on(join_all(creates)) {
        assert!(created.unwrap().warnings.is_empty());
    }
    let between = groups();
    let taken =
        |number: usize| TakeSnapshots { names: vec![format!("tank/{number}@s")], ..TakeSnapshots::default() };
    let snapshots = (0..COUNT).map(|number| running.daemon.take_snapshots(taken(number)));
    for taken in block_on(join_all(snapshots)) {
        taken.unwrap();
    }
    let after = groups();
    let most = COUNT as u64 / 2;
    assert!(between - before < most && after - between < most, "{before} {between} {after}");
    // Each is checked after those before it: one of two with the same name is made.
    let twice = block_on(join_all([made(COUNT), made(COUNT)].map(|new| running.daemon.create_dataset(new))));
    let refused: Vec<_> = twice.into_iter().filter_map(Result::err).collect();
    assert!(refused.len() == 1 && refused[0].kind == ErrorKind::Busy, "{refused:?}");
    assert_eq!(names(&running).iter().filter(|name| name.contains('/')).count(), 2 * COUNT + 1);
}
