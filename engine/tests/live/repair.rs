//! Read repair: what a read finds wrong is rewritten, in every layout.

use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::block_on;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::dsl::with_room;
use engine::pool::import::{ImportOptions, import};
use engine::pool::live::{Layout, LivePool, NewTop, TakeOffline};
use engine::vdev::{Class, LABEL_END_BYTES, LABEL_START_BYTES};
use engine::zvol::LiveZvol;
use ondisk::ObjsetId;
use ondisk::vdev_config::PoolState;

use crate::golden_support::EngineTree;
use crate::support::{Disks, new_pool, objset_of, surroundings};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 4 * MIB;

fn content(at: u64) -> Vec<u8> {
    (0..MIB).map(|byte| ((byte ^ (byte >> 9)).wrapping_mul(at + 3) >> 1) as u8 | 1).collect()
}

/// A pool with a volume, closed.
async fn create(tops: Vec<NewTop>, properties: &[(&str, &str)], size: u64) {
    let pool = LivePool::create(new_pool(tops, 12), surroundings(1)).await.unwrap();
    pool.start().unwrap();
    let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let new = NewDataset {
        name: "tank/vol".into(),
        contents: NewContents::Volume { size, sparse: true },
        properties,
    };
    let id = pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
    let volume = pool.volume(id).await.unwrap();
    for at in 0..size / MIB {
        let bytes = content(at);
        with_room(pool.txgs(), || volume.write_at(at * MIB, &bytes, false)).await.unwrap();
    }
    drop(volume);
    pool.close(PoolState::Exported).await.unwrap();
}

/// Makes all that a file holds wrong, labels aside.
fn garble(path: &Path) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let end = file.metadata().unwrap().len() - LABEL_END_BYTES;
    let mut sector = vec![0; 4096];
    for at in (LABEL_START_BYTES..end).step_by(sector.len()) {
        file.read_exact_at(&mut sector, at).unwrap();
        if sector.iter().any(|byte| *byte != 0) {
            sector.iter_mut().for_each(|byte| *byte ^= 0x5a);
            file.write_all_at(&sector, at).unwrap();
        }
    }
}

/// Makes what a file holds of the volume wrong. Gives its bytes.
fn garble_content(path: &Path) -> u64 {
    let expected: Vec<Vec<u8>> = (0..SIZE / MIB).map(content).collect();
    let sectors: HashSet<&[u8]> = expected.iter().flat_map(|mib| mib.chunks(4096)).collect();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let (mut sector, mut bytes) = (vec![0; 4096], 0);
    for at in (LABEL_START_BYTES..file.metadata().unwrap().len() - LABEL_END_BYTES).step_by(4096) {
        file.read_exact_at(&mut sector, at).unwrap();
        if sectors.contains(&sector[..]) {
            sector[77] ^= 0x10;
            file.write_all_at(&sector, at).unwrap();
            bytes += 4096;
        }
    }
    bytes
}

async fn read(volume: &LiveZvol, size: u64) {
    for at in 0..size / MIB {
        let mut read = vec![0; MIB as usize];
        volume.read_at(at * MIB, &mut read).await.unwrap();
        assert!(read == content(at), "other bytes at {at} MiB");
    }
}

/// Checksum errors and rewritten bytes of all leaves.
fn counted(pool: &LivePool) -> (u64, u64) {
    let leaves = pool.pool().vdevs().leaves();
    leaves.fold((0, 0), |(errors, bytes), leaf| {
        (errors + leaf.errors.checksum(), bytes + leaf.stats.healed_bytes())
    })
}

/// Reads the volume of the pool in a process's worth of its own. Gives what was counted.
async fn read_all(disks: &Disks, size: u64) -> (u64, u64) {
    let pool = disks.import("tank", 2).await;
    pool.start().unwrap();
    let id = objset_of(&pool, "vol").await.unwrap();
    read(&pool.volume(id).await.unwrap(), size).await;
    pool.repairs_done().await;
    let counted = counted(&pool);
    pool.close(PoolState::Exported).await.unwrap();
    counted
}

/// Reads find what is wrong with a device, and mend it.
fn repairs(victim: &str, tops: impl Fn(&Disks) -> Vec<NewTop>, properties: &[(&str, &str)], size: u64) {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        create(tops(&disks), properties, size).await;
        garble(&disks.path().join(victim));
        let (errors, bytes) = read_all(&disks, size).await;
        assert!(errors > 0 && bytes > 0, "{errors} errors, {bytes} bytes rewritten");
        assert_eq!(read_all(&disks, size).await, (0, 0), "the second reader finds nothing wrong");
    });
    disks.judge("tank");
}

const PLAIN: [(&str, &str); 1] = [("compression", "off")];

#[test]
fn a_mirror_child_is_mended_and_can_be_read_alone() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        create(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], &PLAIN, SIZE).await;
        let wrong = garble_content(&disks.path().join("d0"));
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        let id = objset_of(&pool, "vol").await.unwrap();
        // The other child is not asked first.
        pool.pool().vdevs().leaves().nth(1).unwrap().in_flight.fetch_add(1 << 20, Ordering::Relaxed);
        read(&pool.volume(id).await.unwrap(), SIZE).await;
        pool.repairs_done().await;
        let (errors, bytes) = counted(&pool);
        assert_eq!((errors * (16 << 10), bytes), (wrong, wrong), "one error a block, each counted once");
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
    std::fs::remove_file(disks.path().join("d1")).unwrap();
    let pool = block_on(disks.import("tank", 3));
    block_on(async {
        pool.start().unwrap();
        let id = objset_of(&pool, "vol").await.unwrap();
        read(&pool.volume(id).await.unwrap(), SIZE).await;
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn columns_of_raidz_and_draid_are_mended() {
    let raidz = |nparity| Layout::Raidz { nparity };
    let draid = Layout::Draid { nparity: 1, ndata: 2, nspares: 1 };
    for (layout, count, victim) in [(raidz(1), 3, "d0"), (raidz(2), 5, "d0"), (draid, 4, "d1")] {
        repairs(victim, |disks| vec![disks.top(layout, Class::Normal, "d", count)], &PLAIN, SIZE);
    }
}

#[test]
fn a_copy_on_another_vdev_mends_the_first() {
    let two = |disks: &Disks| {
        ["d", "e"].map(|prefix| disks.top(Layout::Single, Class::Normal, prefix, 1)).into_iter().collect()
    };
    repairs("d0", two, &[("compression", "off"), ("copies", "2")], SIZE);
}

#[test]
fn headers_and_members_of_gangs_are_mended() {
    // A block of this size fits no metaslab.
    let properties = [("compression", "off"), ("volblocksize", "16M")];
    let top = |disks: &Disks| vec![disks.top(Layout::Raidz { nparity: 1 }, Class::Normal, "d", 2)];
    repairs("d1", top, &properties, 16 * MIB);
}

/// Reads block 0 of the volume while its first child is wrong.
async fn noticed(disks: &Disks) -> (Arc<LivePool>, ObjsetId) {
    create(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], &PLAIN, SIZE).await;
    garble(&disks.path().join("d0"));
    let pool = disks.import("tank", 2).await;
    let id = objset_of(&pool, "vol").await.unwrap();
    read(&pool.volume(id).await.unwrap(), SIZE).await;
    (pool, id)
}

#[test]
fn a_block_that_was_freed_meanwhile_is_not_written() {
    // All that is written is more than there is space, so that the places of the first blocks have others.
    let disks = Disks::new(80 * MIB);
    block_on(async {
        // Nothing is repaired before the pool is started.
        let (pool, id) = noticed(&disks).await;
        let volume = pool.volume(id).await.unwrap();
        for round in 0..24 {
            for at in 0..SIZE / MIB {
                volume.write_at(at * MIB, &content(at + round + 1), false).await.unwrap();
            }
            pool.sync().await.unwrap();
        }
        pool.start().unwrap();
        pool.repairs_done().await;
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        let pool = disks.import("tank", 3).await;
        let volume = pool.volume(id).await.unwrap();
        for at in 0..SIZE / MIB {
            let mut read = vec![0; MIB as usize];
            volume.read_at(at * MIB, &mut read).await.unwrap();
            assert!(read == content(at + 24));
        }
        let (_, bytes) = counted(&pool);
        assert_eq!(bytes, 0);
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_device_that_is_offline_is_not_repaired_and_a_pool_that_is_read_only_is_not_written() {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let (pool, _) = noticed(&disks).await;
        let leaf = pool.pool().vdevs().leaves().next().unwrap();
        pool.start().unwrap();
        pool.repairs_done().await;
        let healed = leaf.stats.healed_bytes();
        assert!(healed > 0);
        pool.offline(leaf.guid, TakeOffline::Temporarily).await.unwrap();
        assert_eq!(leaf.stats.healed_bytes(), healed);
        pool.close(PoolState::Exported).await.unwrap();
    });
    garble(&disks.path().join("d0"));
    let before = std::fs::read(disks.path().join("d0")).unwrap();
    block_on(async {
        let found = disks.found("tank").await;
        let pool = import(&found, &ImportOptions::read_only()).await.unwrap();
        let tree = EngineTree::open(&pool, "tank").unwrap();
        drop(tree);
        assert!(pool.vdevs().leaves().any(|leaf| leaf.errors.checksum() > 0));
    });
    assert!(std::fs::read(disks.path().join("d0")).unwrap() == before);
}

#[test]
fn a_pool_of_openzfs_with_thousands_of_scribbles_is_mended_by_reading_it() {
    let Some(disks) = Disks::of_golden("corrupt") else { return };
    let golden = testkit::golden::pool("corrupt").unwrap();
    // The children take turns by offset and by load, and only one of them is wrong.
    let read_all = |seed, other: Option<usize>| {
        block_on(async {
            let pool = disks.import("corrupt", seed).await;
            pool.start().unwrap();
            let leaves: Vec<_> = pool.pool().vdevs().leaves().collect();
            if let Some(other) = other {
                leaves[other].in_flight.fetch_add(1 << 20, Ordering::Relaxed);
            }
            for name in golden.filesystems().unwrap() {
                let tree = EngineTree::open(&pool.view(), &name).unwrap();
                let differences = golden.manifest(&name).unwrap().differences(&tree);
                assert!(differences.is_empty(), "{name}: {differences:?}");
            }
            pool.repairs_done().await;
            let errors = [0, 1].map(|leaf: usize| leaves[leaf].errors.checksum());
            let (_, bytes) = counted(&pool);
            assert_eq!(errors.iter().sum::<u64>() > 0, bytes > 0);
            pool.close(PoolState::Exported).await.unwrap();
            errors
        })
    };
    let victim = usize::from(read_all(2, None)[0] == 0);
    let (first, second) = (read_all(3, Some(1 - victim))[victim], read_all(4, Some(1 - victim))[victim]);
    // What is read before the other child is made busy takes turns.
    assert!(first > 0 && second == 0, "{first} errors, then {second}");
}
