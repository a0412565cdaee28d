//! The intent logs of filesystems: what was made stable is there after a crash, as it was.
//!
//! Nothing commits groups here but the test itself, so that it knows what the log must have done. A crash is
//! a copy of the devices between two operations.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use device::block_on;
use device::simulated::{Fault, SimulatedDevice};
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::dsl::{Dsl, LiveDataset};
use engine::env::{Env, Seeded};
use engine::error::Error;
use engine::pool::import::{ImportError, ImportOptions};
use engine::pool::live::{Layout, LivePool};
use engine::vdev::topology::Purpose;
use engine::vdev::{Class, Kind};
use engine::zil::SyncMode;
use engine::zpl::live::{SetAttributes, WriteOptions, XattrPlace, XattrSet};
use engine::zpl::{LiveZpl, ZplOptions};
use futures_util::FutureExt;
use ondisk::dmu::DmuType;
use ondisk::features::Feature;
use ondisk::vdev_config::PoolState;
use ondisk::zpl::{Ace, AceType, AceWho, Fuid, ZnodeFlags, ace_mask, write_aces};
use ondisk::{ByteOrder, ObjectId};

use crate::attach;
use crate::files::{FILE, Seen, change, see};
use crate::scrub::{garble, scanned, scrubbed};
use crate::support::{Disks, committing, crashed, new_pool, surroundings};

/// Where a file without extended attributes has its generation and its flags.
const GENERATION: std::ops::Range<usize> = 24..32;
const FLAGS: std::ops::Range<usize> = 56..64;

async fn create(layout: Layout, count: usize, disks: &Disks) -> Arc<LivePool> {
    let mut tops = vec![disks.top(layout, Class::Normal, "d", count)];
    if count > 1 {
        tops.push(disks.top(Layout::Single, Class::Log, "log", 1));
    }
    LivePool::create(new_pool(tops, 12), surroundings(1)).await.unwrap()
}

async fn open(pool: &Arc<LivePool>) -> (Arc<LiveDataset>, Arc<LiveZpl>) {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let head = dsl.find("tank").await.unwrap();
    let dataset = pool.dataset(head.objset_id()).await.unwrap();
    let zpl = LiveZpl::open(pool.txgs(), &dataset.objset, &dataset.zil, ZplOptions::default()).await.unwrap();
    (dataset, zpl)
}

fn random_history(layout: Layout, count: usize, xattrs: XattrPlace, for_throughput: bool, seed: u64) {
    let random = Seeded::new(seed);
    let pick = |below: u64| random.random() % below;
    let mut disks = Disks::new(96 << 20);
    let mut pool = block_on(create(layout, count, &disks));
    for round in 0..5 {
        let (dataset, zpl) = block_on(open(&pool));
        dataset.zil.set_for_throughput(for_throughput);
        dataset.zil.set_sync_mode(if round == 4 { SyncMode::Always } else { SyncMode::Standard });
        // The first of a chain waits for its group, and so does every change of attributes in the file. A
        // crash ends a chain, so each round begins one.
        let name = format!("first{round}");
        let first = async {
            zpl.create(zpl.zpl().root(), name.as_bytes(), &FILE).await?;
            zpl.sync_all().await
        };
        block_on(committing(&pool, first)).unwrap();
        for _ in 0..60 {
            match pick(12) {
                0 => drop(block_on(pool.sync()).unwrap()),
                1 => block_on(committing(&pool, zpl.fsync(ObjectId(pick(40))))).unwrap(),
                _ => block_on(committing(&pool, change(&zpl, &random, xattrs))),
            }
        }
        let before = pool.txgs().synced_txg();
        if xattrs == XattrPlace::Directory {
            block_on(zpl.sync_all()).unwrap();
            assert_eq!(pool.txgs().synced_txg(), before, "this is the log's work alone");
        } else {
            block_on(committing(&pool, zpl.sync_all())).unwrap();
        }
        let expected = block_on(see(zpl.zpl()));
        drop(zpl);
        let copy = crashed(&disks);
        drop((dataset, pool));
        disks = copy;
        pool = block_on(disks.import("tank", seed + 1));
        let (_, zpl) = block_on(open(&pool));
        let found = block_on(see(zpl.zpl()));
        for (path, seen) in &expected {
            let found = found.get(path).map(|seen| Seen { content: Vec::new(), ..seen.clone() });
            let shown = Seen { content: Vec::new(), ..seen.clone() };
            assert_eq!(found.as_ref(), Some(&shown), "seed {seed}, round {round}: {path}");
        }
        assert!(found == expected, "seed {seed}, round {round}");
    }
    block_on(async {
        pool.start().unwrap();
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn what_was_made_stable_of_files_survives_crashes_on_a_single_device() {
    random_history(Layout::Single, 1, XattrPlace::Directory, false, 1);
}

#[test]
fn what_was_made_stable_of_files_survives_crashes_on_a_mirror_with_a_log_device() {
    random_history(Layout::Mirror, 2, XattrPlace::Attributes, false, 2);
}

#[test]
fn what_was_made_stable_of_files_by_pointers_survives_crashes() {
    for seed in 3..6 {
        random_history(Layout::Single, 1, XattrPlace::Directory, true, seed);
    }
}

#[test]
fn large_stable_writes_of_files_are_logged_by_pointer() {
    const RECORD_BYTES: usize = 128 << 10;
    let disks = Disks::new(96 << 20);
    let bytes: Vec<u8> = (0..RECORD_BYTES * 4).map(|at| (at / 1000 % 251) as u8 + 1).collect();
    block_on(async {
        let pool = create(Layout::Single, 1, &disks).await;
        let (dataset, zpl) = open(&pool).await;
        let file = zpl.create(zpl.zpl().root(), b"file", &FILE).await.unwrap();
        committing(&pool, zpl.write(file, 0, &[9; RECORD_BYTES + 1], &WriteOptions::default()))
            .await
            .unwrap();
        committing(&pool, zpl.sync_all()).await.unwrap();
        pool.sync().await.unwrap();
        let before = pool.txgs().synced_txg();
        let indirect = || dataset.objset.stats().zil().snapshot().zil_itx_indirect_bytes;
        let logged = indirect();
        zpl.write(file, 0, &bytes, &WriteOptions::default()).await.unwrap();
        zpl.fsync(file).await.unwrap();
        assert_eq!(pool.txgs().synced_txg(), before, "this is the log's work alone");
        assert_eq!(indirect() - logged, bytes.len() as u64);
        // A write that a later one cuts off is not brought back by its block, and what is left of it is.
        zpl.write(file, 5 * RECORD_BYTES as u64, &bytes[..RECORD_BYTES], &WriteOptions::default())
            .await
            .unwrap();
        let size = Some(5 * RECORD_BYTES as u64 + 1000);
        zpl.set_attributes(file, &SetAttributes { size, ..SetAttributes::default() }).await.unwrap();
        zpl.fsync(file).await.unwrap();
        assert_eq!(pool.txgs().synced_txg(), before, "this is the log's work alone");
        assert_eq!(indirect() - logged, bytes.len() as u64);
    });
    let disks = crashed(&disks);
    block_on(async {
        let pool = disks.import("tank", 2).await;
        let (_, zpl) = open(&pool).await;
        let file = zpl.lookup(zpl.zpl().root(), b"file").await.unwrap().unwrap();
        let mut read = vec![0; 6 * RECORD_BYTES];
        assert_eq!(zpl.read(file, 0, &mut read).await.unwrap(), 5 * RECORD_BYTES + 1000);
        assert!(read[..bytes.len()] == bytes);
        assert!(read[5 * RECORD_BYTES..5 * RECORD_BYTES + 1000] == bytes[..1000]);
        drop(zpl);
        pool.start().unwrap();
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn extended_attributes_inside_files_are_in_the_log() {
    let disks = Disks::new(96 << 20);
    let place = XattrPlace::Attributes;
    block_on(async {
        let pool = create(Layout::Single, 1, &disks).await;
        let (_dataset, zpl) = open(&pool).await;
        let file = zpl.create(zpl.zpl().root(), b"file", &FILE).await.unwrap();
        let set = async |name: &[u8], value: &[u8]| {
            zpl.set_xattr(file, name, value, XattrSet::Any, place).await.unwrap();
        };
        // Before the dataset uses the feature, a group has to be waited for.
        set(b"user.first", b"in its group").await;
        set(b"user.gone", b"for a while").await;
        committing(&pool, zpl.sync_all()).await.unwrap();
        assert_eq!(pool.feature_count(Feature::Zilsaxattr), Some(1));
        let before = pool.txgs().synced_txg();
        set(b"user.second", b"in the log").await;
        zpl.remove_xattr(file, b"user.gone").await.unwrap();
        zpl.fsync(file).await.unwrap();
        assert_eq!(pool.txgs().synced_txg(), before, "this is the log's work alone");
    });
    let disks = crashed(&disks);
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 2).await;
        let (dataset, zpl) = open(&pool).await;
        let file = zpl.lookup(zpl.zpl().root(), b"file").await.unwrap().unwrap();
        let found = |name: &'static [u8]| {
            let zpl = Arc::clone(&zpl);
            async move { zpl.zpl().node(file).await.unwrap().xattr(name).await.unwrap() }
        };
        assert_eq!(found(b"user.first").await.as_deref(), Some(&b"in its group"[..]));
        assert_eq!(found(b"user.second").await.as_deref(), Some(&b"in the log"[..]));
        assert_eq!(found(b"user.gone").await, None);
        assert!(dataset.zil.logs_xattrs(), "the dataset says so");
        drop((zpl, dataset));
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

/// An attribute that is a file becomes one inside the file, or the other way round, and something else is
/// made stable.
#[test]
fn an_extended_attribute_that_moves_has_its_old_value_or_its_new_one() {
    use XattrPlace::{Attributes, Directory};
    // No record tells of an empty value.
    for (from, to, value) in
        [(Directory, Attributes, &b"new"[..]), (Directory, Attributes, b""), (Attributes, Directory, b"new")]
    {
        let disks = Disks::new(96 << 20);
        block_on(async {
            let pool = create(Layout::Single, 1, &disks).await;
            let (dataset, zpl) = open(&pool).await;
            let root = zpl.zpl().root();
            let file = zpl.create(root, b"file", &FILE).await.unwrap();
            let other = zpl.create(root, b"other", &FILE).await.unwrap();
            let set = async |value: &[u8], place| {
                zpl.set_xattr(file, b"user.a", value, XattrSet::Any, place).await.unwrap();
            };
            set(b"old", from).await;
            committing(&pool, zpl.sync_all()).await.unwrap();
            pool.sync().await.unwrap();
            assert!(dataset.zil.logs_xattrs());
            set(value, to).await;
            zpl.write(other, 0, b"something", &WriteOptions::default()).await.unwrap();
            match value.is_empty() {
                // This is the log's work alone: no group is committed.
                false => zpl.fsync(other).await.unwrap(),
                true => committing(&pool, zpl.fsync(other)).await.unwrap(),
            }
        });
        let disks = crashed(&disks);
        block_on(async {
            let pool = disks.import("tank", 2).await;
            let (_dataset, zpl) = open(&pool).await;
            let root = zpl.zpl().root();
            let file = zpl.lookup(root, b"file").await.unwrap().unwrap();
            let other = zpl.lookup(root, b"other").await.unwrap().unwrap();
            assert_eq!(zpl.zpl().stat(other).await.unwrap().size, 9);
            let found = zpl.xattr(file, b"user.a").await.unwrap();
            assert_eq!(found.as_deref(), Some(value), "to {to:?}");
            // There is no other one behind it.
            zpl.remove_xattr(file, b"user.a").await.unwrap();
            assert_eq!(zpl.xattr(file, b"user.a").await.unwrap(), None);
        });
    }
}

#[test]
fn a_log_is_applied_as_the_properties_of_its_dataset_say() {
    let disks = Disks::new(96 << 20);
    let is_users = |ace: &Ace| ace.who() == AceWho::User(Fuid(501));
    block_on(async {
        let pool = create(Layout::Single, 1, &disks).await;
        let properties: Vec<_> = [("aclmode", "passthrough"), ("acltype", "nfsv4"), ("recordsize", "16K")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let set =
            pool.change(|s| async move { edit::set_properties(&s, "tank", &properties).await.map(drop) });
        committing(&pool, set).await.unwrap();
        let id = Dsl::open(&pool.view()).await.unwrap().find("tank").await.unwrap().objset_id();
        let zpl = pool.filesystem(id).await.unwrap();
        let root = zpl.zpl().root();
        let file = zpl.create(root, b"acl", &FILE).await.unwrap();
        {
            // Its first two entries give way to one that is as long, of a user.
            let mut aces = zpl.zpl().node(file).await.unwrap().acl().await.unwrap();
            let old = write_aces(&aces, 1, ByteOrder::Little).unwrap();
            let (flags, mask) = (0, ace_mask::READ_DATA);
            let ace = Ace { ace_type: AceType::Allow, flags, mask, fuid: Some(Fuid(501)), object: None };
            let count = aces.len() as u64;
            aces.splice(..2, [ace]);
            let new = write_aces(&aces, 1, ByteOrder::Little).unwrap();
            let object = zpl.objset().object(file).await.unwrap();
            let mut bonus = object.bonus().to_vec();
            let at = bonus.windows(old.len()).position(|bytes| bytes == old).unwrap();
            assert_eq!((new.len(), bonus[at - 8..at].to_vec()), (old.len(), count.to_le_bytes().to_vec()));
            bonus[at..at + new.len()].copy_from_slice(&new);
            bonus[at - 8..at].copy_from_slice(&(count - 1).to_le_bytes());
            let flags = zpl.zpl().stat(file).await.unwrap().flags.0;
            assert_eq!(bonus[FLAGS], flags.to_le_bytes());
            bonus[FLAGS].copy_from_slice(&(flags & !ZnodeFlags::ACL_TRIVIAL.0).to_le_bytes());
            let tx = pool.txgs().begin(0).await.unwrap();
            object.set_bonus(&tx, DmuType::SA, &bonus);
        }
        committing(&pool, zpl.sync_all()).await.unwrap();
        pool.sync().await.unwrap();
        let chmod = SetAttributes { mode: Some(0o604), ..SetAttributes::default() };
        zpl.set_attributes(file, &chmod).await.unwrap();
        assert!(zpl.zpl().node(file).await.unwrap().acl().await.unwrap().iter().any(is_users));
        let long = zpl.create(root, b"long", &FILE).await.unwrap();
        zpl.write(long, 0, &vec![3; 100 << 10], &WriteOptions::default()).await.unwrap();
        // The log's work alone: no group is committed.
        zpl.sync_all().await.unwrap();
    });
    let disks = crashed(&disks);
    block_on(async {
        let pool = disks.import("tank", 2).await;
        let (_dataset, zpl) = open(&pool).await;
        let root = zpl.zpl().root();
        let node = zpl.zpl().node(zpl.lookup(root, b"acl").await.unwrap().unwrap()).await.unwrap();
        assert_eq!(node.mode() & 0o7777, 0o604);
        assert!(node.acl().await.unwrap().iter().any(is_users), "aclmode");
        let long = zpl.lookup(root, b"long").await.unwrap().unwrap();
        assert_eq!(zpl.objset().object(long).await.unwrap().block_size(), 16 << 10, "recordsize");
    });
    disks.judge("tank");
}

/// Generations are groups of the pool where a file was made, which says nothing of those here.
#[test]
fn a_file_that_was_received_is_made_stable_by_the_log_alone() {
    let disks = Disks::new(96 << 20);
    block_on(async {
        let pool = create(Layout::Single, 1, &disks).await;
        let (_dataset, zpl) = open(&pool).await;
        let file = zpl.create(zpl.zpl().root(), b"file", &FILE).await.unwrap();
        {
            let object = zpl.objset().object(file).await.unwrap();
            let mut bonus = object.bonus().to_vec();
            let generation = zpl.zpl().stat(file).await.unwrap().generation;
            assert_eq!(bonus[GENERATION], generation.to_le_bytes());
            bonus[GENERATION].copy_from_slice(&(1u64 << 40).to_le_bytes());
            let tx = pool.txgs().begin(0).await.unwrap();
            object.set_bonus(&tx, DmuType::SA, &bonus);
        }
        committing(&pool, zpl.sync_all()).await.unwrap();
        pool.sync().await.unwrap();
        zpl.write(file, 0, b"in the log", &WriteOptions::default()).await.unwrap();
        // No group is committed that this could wait for.
        zpl.fsync(file).await.unwrap();
    });
    let disks = crashed(&disks);
    block_on(async {
        let pool = disks.import("tank", 2).await;
        let (_dataset, zpl) = open(&pool).await;
        let file = zpl.lookup(zpl.zpl().root(), b"file").await.unwrap().unwrap();
        let mut content = [0; 20];
        assert_eq!(zpl.read(file, 0, &mut content).await.unwrap(), 10);
        assert_eq!(&content[..10], b"in the log");
    });
    disks.judge("tank");
}

/// Imports a pool with a bad place on the device of this name.
fn import_with_bad_place(
    disks: &Disks,
    (name, bad): (&str, u64),
    missing_log: bool,
) -> Result<Arc<LivePool>, ImportError> {
    let options = ImportOptions { force: true, missing_log, ..ImportOptions::default() };
    block_on(async {
        let mut found = disks.found("tank").await;
        for candidate in found.candidates.values_mut() {
            if candidate.device.path().ends_with(name) {
                let device = SimulatedDevice::new(Arc::clone(&candidate.device), 1);
                device.inject(Fault::ReadError(bad..bad + 4096));
                candidate.device = Arc::new(device);
            }
        }
        LivePool::import(&found, &options, surroundings(3)).await
    })
}

/// The content of the file of a pool.
fn file_of(pool: &Arc<LivePool>) -> Vec<u8> {
    block_on(async {
        let (_, zpl) = open(pool).await;
        let file = zpl.lookup(zpl.zpl().root(), b"file").await.unwrap().unwrap();
        let mut content = vec![0; zpl.zpl().node(file).await.unwrap().size() as usize];
        zpl.read(file, 0, &mut content).await.unwrap();
        content
    })
}

fn is_refused_by_name(disks: &Disks, bad: (&str, u64)) {
    let refused = import_with_bad_place(disks, bad, false).unwrap_err();
    assert!(matches!(refused, ImportError::UnreadableLog { .. }), "{refused}");
    let message = refused.to_string();
    assert!(["'-m'", "log of 'tank'", bad.0].iter().all(|part| message.contains(part)), "{message}");
}

#[test]
fn a_log_that_its_device_cannot_read_is_given_up_only_by_name() {
    let disks = Disks::new(96 << 20);
    let bad = block_on(async {
        let pool = create(Layout::Mirror, 2, &disks).await;
        let (dataset, zpl) = open(&pool).await;
        let file = zpl.create(zpl.zpl().root(), b"file", &FILE).await.unwrap();
        committing(&pool, zpl.sync_all()).await.unwrap();
        let options = WriteOptions::default();
        zpl.write(file, 0, b"in the log alone", &options).await.unwrap();
        zpl.fsync(file).await.unwrap();
        // Past the labels and the boot area.
        let log = dataset.objset.zil_header().log.dva(0).unwrap();
        log.offset.get() + (4 << 20)
    });
    let copy = crashed(&disks);
    is_refused_by_name(&copy, ("log0", bad));
    assert_eq!(file_of(&block_on(copy.import("tank", 4))), b"in the log alone", "refusing did no harm");
    assert_eq!(file_of(&import_with_bad_place(&crashed(&disks), ("log0", bad), true).unwrap()), b"");
}

#[test]
fn a_large_write_whose_block_a_device_cannot_read_is_given_up_only_by_name() {
    let disks = Disks::new(96 << 20);
    let random = Seeded::new(1);
    let noise: Vec<u8> = (0..128 << 10).map(|_| random.random() as u8).collect();
    block_on(async {
        let pool = create(Layout::Single, 1, &disks).await;
        let (_dataset, zpl) = open(&pool).await;
        let file = zpl.create(zpl.zpl().root(), b"file", &FILE).await.unwrap();
        committing(&pool, zpl.sync_all()).await.unwrap();
        zpl.write(file, 0, &noise, &WriteOptions::default()).await.unwrap();
        zpl.fsync(file).await.unwrap();
    });
    let copy = crashed(&disks);
    let device = std::fs::read(copy.path().join("d0")).unwrap();
    let is_first = |(_, sector): &(usize, &[u8])| *sector == &noise[..512];
    let places: Vec<usize> = device.chunks(512).enumerate().filter(is_first).map(|(at, _)| at).collect();
    assert_eq!(places.len(), 1, "the block alone has the data");
    let bad = places[0] as u64 * 512;
    is_refused_by_name(&copy, ("d0", bad));
    assert!(file_of(&block_on(copy.import("tank", 4))) == noise, "refusing did no harm");
    assert_eq!(file_of(&import_with_bad_place(&crashed(&disks), ("d0", bad), true).unwrap()), b"");
}

/// An operation that still holds a closed group changes a block after an operation of the open group did.
/// Were the block in the log as it was in between, a replay would undo the change.
#[test]
fn a_change_of_a_committed_group_is_not_undone_by_a_block_of_the_log() {
    let disks = Disks::new(96 << 20);
    block_on(async {
        let pool = attach::pool_of(vec![disks.top(Layout::Single, Class::Normal, "d", 1)]).await;
        let volume = attach::volume(&pool).await;
        let half = volume.block_size() as usize / 2;
        volume.zil().set_for_throughput(true);
        committing(&pool, volume.write_at(0, &vec![1; 2 * half], true)).await.unwrap();
        attach::commit(&pool).await;
        let held = pool.txgs().begin(half as u64).await.unwrap();
        let mut sync = pool.sync();
        assert!(poll_fn(|context| Poll::Ready(sync.poll_unpin(context).is_pending())).await, "it is held");
        assert!(pool.txgs().open_txg() > held.txg());
        volume.write_at(half as u64, &vec![2; half], true).await.unwrap();
        let content = volume.objset().object(ObjectId(1)).await.unwrap();
        content.write_at(&held, 0, &vec![3; half]).await.unwrap();
        drop(held);
        sync.await.unwrap();
    });
    let disks = crashed(&disks);
    block_on(async {
        let pool = disks.import("tank", 2).await;
        let volume = attach::volume(&pool).await;
        let half = volume.block_size() as usize / 2;
        let mut read = vec![0; 2 * half];
        volume.read_at(0, &mut read).await.unwrap();
        assert!(read[..half].iter().all(|byte| *byte == 3), "the committed change");
        assert!(read[half..].iter().all(|byte| *byte == 2), "the stable write");
    });
}

/// Where a pool has its log devices taken away and given others, while volumes use the log.
#[test]
fn a_log_device_that_is_in_use_is_taken_away_and_nothing_is_lost() {
    let disks = Disks::new(96 << 20);
    let volume = |pool: &Arc<LivePool>, name: &'static str| {
        let pool = Arc::clone(pool);
        async move {
            let new = NewDataset {
                name: name.into(),
                contents: NewContents::Volume { size: 8 << 20, sparse: true },
                properties: vec![],
            };
            let id = pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
            (pool.volume(id).await.unwrap(), id)
        }
    };
    let log = |name| disks.top(Layout::Mirror, Class::Log, name, 2);
    let log_bytes = |pool: &LivePool| pool.allocator().space(Class::Log);
    let (busy_id, idle_id) = block_on(async {
        let tops = vec![disks.top(Layout::Single, Class::Normal, "d", 1), log("log")];
        let pool = LivePool::create(new_pool(tops, 12), surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let (busy, busy_id) = volume(&pool, "tank/busy").await;
        let (idle, idle_id) = volume(&pool, "tank/idle").await;
        for at in 0..4 {
            busy.write_at(at << 16, &[1; 4096], true).await.unwrap();
            idle.write_at(at << 16, &[1; 4096], true).await.unwrap();
        }
        assert!(log_bytes(&pool).allocated_bytes > 0);
        let guid = pool.pool().vdevs().tops[1].guid;
        let writing = std::thread::scope(|scope| {
            let busy = Arc::clone(&busy);
            let writing = scope.spawn(move || {
                block_on(async {
                    for at in 0..200u64 {
                        busy.write_at(at << 12, &[2; 4096], true).await.unwrap();
                    }
                });
            });
            block_on(pool.remove(guid)).unwrap();
            writing.join()
        });
        writing.unwrap();
        assert_eq!(log_bytes(&pool).size_bytes, 0);
        assert!(pool.remove(guid).await.is_err(), "it is gone");
        // The place stays empty; the next one has another number.
        pool.add(vec![log("more")], None).await.unwrap();
        pool.change(|_| async { Ok(()) }).await.unwrap();
        busy.write_at(1 << 20, &[3; 4096], true).await.unwrap();
        pool.change(|_| async { Ok(()) }).await.unwrap();
        busy.write_at(1 << 20, &[3; 8192], true).await.unwrap();
        assert!(log_bytes(&pool).allocated_bytes > 0);
        let second = pool.pool().vdevs().tops[2].guid;
        pool.take_checkpoint().await.unwrap();
        assert!(matches!(pool.remove(second).await, Err(Error::Busy(_))), "a checkpoint may refer to it");
        drop((busy, idle));
        pool.close(PoolState::Exported).await.unwrap();
        (busy_id, idle_id)
    });
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 2).await;
        let tops = &pool.pool().vdevs().tops;
        assert!(tops.len() == 3 && matches!(tops[1].kind, Kind::Hole));
        let mut read = vec![0; 4096];
        pool.volume(busy_id).await.unwrap().read_at(199 << 12, &mut read).await.unwrap();
        assert!(read.iter().all(|byte| *byte == 2));
        pool.volume(idle_id).await.unwrap().read_at(3 << 16, &mut read).await.unwrap();
        assert!(read.iter().all(|byte| *byte == 1));
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

/// A pool after a crash, with a volume that was not opened since. Its log has data inside and data elsewhere.
async fn with_a_waiting_log(layout: Layout, count: usize) -> (Disks, Arc<LivePool>) {
    let disks = Disks::new(96 << 20);
    let pool = attach::pool_of(vec![disks.top(layout, Class::Normal, "d", count)]).await;
    let volume = attach::volume(&pool).await;
    // The first log waits for its group.
    committing(&pool, volume.write_at(0, &[9; 4096], true)).await.unwrap();
    attach::commit(&pool).await;
    let before = pool.txgs().synced_txg();
    volume.write_at(0, &[1; 4096], true).await.unwrap();
    volume.write_at(1 << 20, &[2; 128 << 10], true).await.unwrap();
    assert_eq!(pool.txgs().synced_txg(), before, "this is the log's work alone");
    let copy = crashed(&disks);
    drop((volume, pool));
    let pool = copy.import("tank", 2).await;
    pool.start().unwrap();
    (copy, pool)
}

async fn applied_log_holds(pool: &Arc<LivePool>) {
    let volume = attach::volume(pool).await;
    for (at, length, byte) in [(0, 4096, 1), (1 << 20, 128 << 10, 2)] {
        let mut read = vec![0; length];
        volume.read_at(at, &mut read).await.unwrap();
        assert!(read.iter().all(|other| *other == byte), "{length} bytes at {at}");
    }
}

#[test]
fn a_log_that_waits_for_its_dataset_is_resilvered() {
    block_on(async {
        let (disks, pool) = with_a_waiting_log(Layout::Single, 1).await;
        let old = pool.pool().vdevs().leaves().next().unwrap().guid;
        pool.attach(old, disks.leaf("d1"), Purpose::Mirror, None).await.unwrap();
        scanned(&pool).await;
        pool.detach(old).await.unwrap();
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        let pool = disks.import("tank", 3).await;
        pool.start().unwrap();
        applied_log_holds(&pool).await;
        pool.close(PoolState::Exported).await.unwrap();
        disks.judge("tank");
    });
}

#[test]
fn a_log_that_waits_for_its_dataset_is_scrubbed() {
    block_on(async {
        let (disks, pool) = with_a_waiting_log(Layout::Mirror, 2).await;
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        garble(&disks.path().join("d1"), |_| true);
        let pool = disks.import("tank", 3).await;
        pool.start().unwrap();
        assert_eq!(scrubbed(&pool).await.errors, 0);
        pool.clear(None).await.unwrap();
        let again = scrubbed(&pool).await;
        assert_eq!((again.processed, again.errors), (0, 0), "the second finds nothing wrong");
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        garble(&disks.path().join("d0"), |_| true);
        let pool = disks.import("tank", 4).await;
        pool.start().unwrap();
        applied_log_holds(&pool).await;
        pool.close(PoolState::Exported).await.unwrap();
    });
}
