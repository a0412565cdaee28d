//! Volumes that get another block size under the hands of NBD clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use device::block_on;
use engine::pool::live::VolumeUsers;
use server::api::{
    ApiError, CloneSnapshot, CreateDataset, DatasetKind, DestroyDataset, ErrorKind, ListDatasets,
    ListReshapes, ListVolumes, Promote, RenameDataset, ReshapeAction, ReshapeState, ReshapeVolume, Rollback,
    SetProperties, TakeSnapshots,
};
use server::daemon::OpenPool;

use crate::harness::Running;
use crate::nbd_client::{Client, preferred_block_bytes};
use crate::volumes::{MEBIBYTE, new_volume};

const FLAG_FUA: u16 = 1;

fn reshape(action: ReshapeAction, volblocksize: u64) -> ReshapeVolume {
    ReshapeVolume { volume: "tank/vol".into(), action, volblocksize, ..ReshapeVolume::default() }
}

fn state(running: &Running) -> ReshapeState {
    let all = running.daemon.list_reshapes(&ListReshapes::default()).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].state
}

fn served(running: &Running) -> Vec<(String, u32)> {
    let served = running.daemon.list_volumes(ListVolumes {}).unwrap();
    served.into_iter().map(|volume| (volume.name, volume.block_bytes)).collect()
}

fn snapshot(running: &Running, name: &str, recursive: bool) {
    let names = vec![name.to_owned()];
    let request = TakeSnapshots { names, recursive, ..TakeSnapshots::default() };
    block_on(running.daemon.take_snapshots(request)).unwrap();
}

#[test]
fn clients_go_on_with_the_copy() {
    let running = Running::start();
    new_volume(&running);
    let socket = running.place.path().join("nbd.sock");
    let [mut one, mut other] = [0; 2].map(|_| Client::connect(&socket, "tank/vol"));
    let mut model = vec![0u8; 8 * MEBIBYTE as usize];
    for (at, byte) in (0..8 * MEBIBYTE).step_by(3 * 8192).zip((1..=250).cycle()) {
        assert_eq!(one.write(at, &[byte; 8192], 0), 0);
        model[at as usize..][..8192].fill(byte);
    }
    snapshot(&running, "tank/vol@before", false);
    let mut of_snapshot = Client::connect(&socket, "tank/vol@before");
    let before = model.clone();
    let set = SetProperties {
        datasets: vec!["tank/vol".into()],
        properties: vec![("volblocksize".into(), "64K".into()), ("org.test:a".into(), "b".into())],
        ..SetProperties::default()
    };
    let set = block_on(running.daemon.set_properties(set)).unwrap();
    assert!(set.failed.is_empty() && set.warnings[0].contains("cenote reshape"), "{set:?}");
    // All through the exchange, stable and not.
    let mut round = 0u64;
    while state(&running) == ReshapeState::Active {
        let (at, byte) = (round * 7919 * 512 % (8 * MEBIBYTE - 4096), (round % 251) as u8 + 1);
        let (client, flags) = if round.is_multiple_of(2) { (&mut one, 0) } else { (&mut other, FLAG_FUA) };
        assert_eq!(client.write(at, &[byte; 4096], flags), 0);
        model[at as usize..][..4096].fill(byte);
        round += 1;
    }
    assert_eq!(state(&running), ReshapeState::Complete);
    assert_eq!(one.write(4096, &[77; 4096], FLAG_FUA), 0);
    model[4096..8192].fill(77);
    for client in [&mut one, &mut other, &mut Client::connect(&socket, "tank/vol")] {
        assert_eq!(client.read(0, 8 * MEBIBYTE as u32), 0);
        assert!(client.bytes == model, "after {round} writes");
    }
    assert_eq!(of_snapshot.read(0, 8 * MEBIBYTE as u32), 0);
    assert!(of_snapshot.bytes == before);
    let kept = "tank/vol.volblocksize-16K".to_owned();
    let expected = [("tank/vol".to_owned(), 65536), (kept.clone(), 16384), (format!("{kept}@before"), 16384)];
    assert_eq!(served(&running), expected);
    // One that negotiates now is told of them, which NBD cannot tell those that are connected.
    assert_eq!(preferred_block_bytes(&socket, "tank/vol"), Some(65536));
    assert_eq!(preferred_block_bytes(&socket, &kept), Some(16384));

    // The client of the snapshot keeps it, under its new name.
    let destroy =
        |name: &str, recursive| DestroyDataset { name: name.into(), recursive, ..Default::default() };
    let refused = block_on(running.daemon.destroy_dataset(destroy(&kept, true))).unwrap_err();
    assert!(refused.kind == ErrorKind::Busy && refused.message.contains("@before"), "{refused}");
    drop(of_snapshot);
    block_on(running.daemon.destroy_dataset(destroy(&kept, true))).unwrap();
    assert_eq!((one.read(0, 4096), other.read(4096, 4096)), (0, 0));
    assert_eq!(other.bytes[0], 77);
}

#[test]
fn clients_that_come_during_the_exchange_are_let_in() {
    let running = Running::start();
    new_volume(&running);
    let socket = running.place.path().join("nbd.sock");
    assert_eq!(Client::connect(&socket, "tank/vol").write(0, &[9; 8192], FLAG_FUA), 0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let comers = [0; 2].map(|_| {
            scope.spawn(|| {
                let mut came = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let mut client = Client::try_connect(&socket, "tank/vol").expect("it is let in");
                    assert_eq!((client.read(0, 4096), client.bytes[0]), (0, 9));
                    came += 1;
                }
                came
            })
        });
        for size in [4096, 65536] {
            block_on(running.daemon.reshape_volume(reshape(ReshapeAction::Start, size))).unwrap();
            while states(&running).contains(&ReshapeState::Active) {
                std::thread::yield_now();
            }
            assert!(states(&running).iter().all(|state| *state == ReshapeState::Complete));
        }
        is_over.store(true, Ordering::Relaxed);
        for comer in comers {
            assert!(comer.join().unwrap() > 0);
        }
    });
}

#[test]
fn a_client_of_a_pool_that_is_being_imported_is_kept_waiting() {
    let running = Running::start();
    let socket = running.place.path().join("nbd.sock");
    let importing = running.daemon.expect_imports();
    std::thread::scope(|scope| {
        let early = scope.spawn(|| Client::try_connect(&socket, "tank/vol").is_some());
        new_volume(&running);
        drop(importing);
        assert!(early.join().unwrap());
    });
    assert!(Client::try_connect(&socket, "tank/none").is_none(), "nothing is awaited any more");
}

fn states(running: &Running) -> Vec<ReshapeState> {
    let all = running.daemon.list_reshapes(&ListReshapes::default()).unwrap();
    all.into_iter().map(|reshape| reshape.state).collect()
}

fn clone(running: &Running, snapshot: &str, target: &str) -> Result<(), ApiError> {
    let (snapshot, target) = (snapshot.to_owned(), target.to_owned());
    let clone = CloneSnapshot { snapshot, target, ..CloneSnapshot::default() };
    block_on(running.daemon.clone_snapshot(clone)).map(drop)
}

fn promote(running: &Running, dataset: &str) -> Result<(), ApiError> {
    block_on(running.daemon.promote(Promote { dataset: dataset.into(), ..Promote::default() }))
}

fn first_byte(running: &Running, volume: &str) -> u8 {
    let mut client = Client::connect(&running.place.path().join("nbd.sock"), volume);
    assert_eq!(client.read(0, 4096), 0);
    client.bytes[0]
}

#[test]
fn clones_of_a_volume_stay_with_the_old_one_and_can_replace_it() {
    let running = Running::start();
    new_volume(&running);
    let socket = running.place.path().join("nbd.sock");
    let write = |volume: &str, byte: u8| {
        assert_eq!(Client::connect(&socket, volume).write(0, &[byte; 4096], FLAG_FUA), 0);
    };
    write("tank/vol", 1);
    snapshot(&running, "tank/vol@one", false);
    clone(&running, "tank/vol@one", "tank/before").unwrap();
    write("tank/vol", 2);
    // As if nothing could hold the clients: the copy waits, with the snapshots that it is made of.
    let pool = running.daemon.open_pools().remove(0);
    let nothing: Weak<OpenPool> = Weak::new();
    pool.live().unwrap().set_volume_users(nothing);
    block_on(running.daemon.reshape_volume(reshape(ReshapeAction::Start, 65536))).unwrap();
    let taken = || {
        let kinds = vec![DatasetKind::Snapshot];
        let listed = block_on(running.daemon.list_datasets(ListDatasets { kinds, ..Default::default() }));
        let mut names = listed.unwrap().entries.into_iter().map(|entry| entry.name);
        names.find(|name| name.contains("@cenote-reshape-"))
    };
    let taken = std::iter::repeat_with(taken).flatten().next().unwrap();
    let refused = clone(&running, &taken, "tank/of-copy").unwrap_err();
    assert!(refused.kind == ErrorKind::Busy && refused.message.contains("of your own"), "{refused}");
    snapshot(&running, "tank/vol@two", false);
    clone(&running, "tank/vol@two", "tank/during").unwrap();
    for dataset in ["tank/before", "tank/during"] {
        let refused = promote(&running, dataset).unwrap_err();
        assert!(refused.message.contains("cenote reshape tank/vol --cancel"), "{refused}");
    }
    // It goes on, and is complete.
    let users: Arc<dyn VolumeUsers> = pool.clone();
    pool.live().unwrap().set_volume_users(Arc::downgrade(&users));
    while state(&running) == ReshapeState::Active {
        std::thread::yield_now();
    }
    assert_eq!(state(&running), ReshapeState::Complete);
    let kept = "tank/vol.volblocksize-16K";
    clone(&running, &format!("{kept}@one"), "tank/after").unwrap();
    let found =
        ["tank/before", "tank/during", "tank/after", "tank/vol"].map(|name| first_byte(&running, name));
    assert_eq!(found, [1, 2, 1, 2]);
    // The newest of the clones takes all snapshots; the old volume goes, and the others stay.
    promote(&running, "tank/during").unwrap();
    let destroy = DestroyDataset { name: kept.into(), recursive: true, ..Default::default() };
    block_on(running.daemon.destroy_dataset(destroy)).unwrap();
    write("tank/vol", 3);
    write("tank/after", 4);
    let found = ["tank/before", "tank/during", "tank/during@one", "tank/after", "tank/vol"]
        .map(|name| first_byte(&running, name));
    assert_eq!(found, [1, 2, 1, 4, 3]);
}

#[test]
fn what_would_disturb_a_copy_is_refused_until_it_is_canceled() {
    let running = Running::start();
    new_volume(&running);
    let daemon = &running.daemon;
    snapshot(&running, "tank/vol@one", false);
    let dry = ReshapeVolume { dry_run: true, ..reshape(ReshapeAction::Start, 65536) };
    let plan = block_on(daemon.reshape_volume(dry)).unwrap().unwrap();
    assert_eq!((plan.old_volblocksize, plan.new_volblocksize), (16384, 65536));
    assert!(plan.time.is_none(), "there is nothing to read");
    assert!(daemon.list_reshapes(&ListReshapes::default()).unwrap().is_empty());

    // As if nothing could hold the clients: the copy waits.
    let nothing: Weak<OpenPool> = Weak::new();
    daemon.open_pools()[0].live().unwrap().set_volume_users(nothing);
    block_on(daemon.reshape_volume(reshape(ReshapeAction::Start, 65536))).unwrap();
    block_on(daemon.reshape_volume(reshape(ReshapeAction::Pause, 0))).unwrap();
    assert_eq!(state(&running), ReshapeState::Paused);
    assert!(served(&running).iter().all(|(name, _)| !name.starts_with("tank/vol.reshape")), "not served");
    let destroy = DestroyDataset { name: "tank/vol".into(), recursive: true, ..Default::default() };
    let of_copy = DestroyDataset { name: "tank/vol.reshape".into(), ..Default::default() };
    let rename = RenameDataset { from: "tank/vol".into(), to: "tank/other".into(), ..Default::default() };
    let back = Rollback { snapshot: "tank/vol@one".into(), destroy_later: true, ..Default::default() };
    let again = reshape(ReshapeAction::Start, 32768);
    let refusals = [
        block_on(daemon.destroy_dataset(destroy)).map(drop).unwrap_err(),
        block_on(daemon.destroy_dataset(of_copy)).map(drop).unwrap_err(),
        block_on(daemon.rename_dataset(rename)).map(drop).unwrap_err(),
        block_on(daemon.rollback(back)).map(drop).unwrap_err(),
    ];
    for refusal in refusals {
        assert!(refusal.message.contains("cenote reshape tank/vol --cancel"), "{refusal}");
    }
    assert_eq!(block_on(daemon.reshape_volume(again)).unwrap_err().kind, ErrorKind::Busy);
    let set = |name: &str, value: &str| SetProperties {
        datasets: vec!["tank/vol".into()],
        properties: vec![(name.into(), value.into())],
        ..SetProperties::default()
    };
    let resized = block_on(daemon.set_properties(set("volsize", "16M"))).unwrap();
    assert!(resized.failed[0].message.contains("--cancel"), "{resized:?}");
    assert!(block_on(daemon.set_properties(set("compression", "zstd"))).unwrap().failed.is_empty());
    snapshot(&running, "tank@all", true);

    block_on(daemon.reshape_volume(reshape(ReshapeAction::Cancel, 0))).unwrap();
    assert_eq!(state(&running), ReshapeState::Canceled);
    let list = ListDatasets { ..ListDatasets::default() };
    let listed = block_on(daemon.list_datasets(list)).unwrap();
    let names: Vec<String> = listed.entries.into_iter().map(|entry| entry.name).collect();
    assert!(names.iter().all(|name| !name.contains("reshape")), "{names:?}");
    let volume = CreateDataset {
        name: "tank/vol.reshape".into(),
        volume_bytes: Some(MEBIBYTE),
        sparse: true,
        ..CreateDataset::default()
    };
    block_on(daemon.create_dataset(volume)).unwrap();
    let taken = block_on(daemon.reshape_volume(reshape(ReshapeAction::Start, 65536))).unwrap_err();
    assert_eq!(taken.kind, ErrorKind::Busy, "{taken}");
}
