//! Large files and volumes are freed in parts, a bounded number of blocks in each group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::block_on;
use engine::dsl::{Dsl, with_room};
use engine::pool::live::LivePool;
use engine::tunables;
use engine::vdev::Class;
use engine::zpl::LiveZpl;
use engine::zpl::live::{NewKind, NewNode, WriteOptions};
use ondisk::ObjectId;

use crate::bed::{Bed, MIB, Turn};

const FILE: NewNode<'_> = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0 };
/// 8,192 blocks of 512 bytes, below eight indirect blocks.
const FILE_BYTES: u64 = 4 * MIB;
const BLOCK: u64 = 512;
/// Less than one indirect block has, so that each is a part, and the only one of its group.
const FEW: u64 = 50;

fn filesystem(pool: &Arc<LivePool>) -> Arc<LiveZpl> {
    block_on(async {
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        let id = dsl.find("tank").await.unwrap().objset_id();
        pool.filesystem(id).await.unwrap()
    })
}

fn content(length: u64) -> Vec<u8> {
    (0..length).map(|byte| (byte * 7 + byte / BLOCK) as u8 | 1).collect()
}

/// A file of [`FILE_BYTES`], which is committed.
fn large_file(bed: &Bed, zpl: &LiveZpl) -> ObjectId {
    zpl.set_record_size(BLOCK as u32);
    let root = zpl.zpl().root();
    let file = block_on(zpl.create(root, b"large", &FILE)).unwrap();
    let bytes = content(FILE_BYTES);
    for (piece, at) in bytes.chunks(MIB as usize).zip((0..).step_by(MIB as usize)) {
        let options = WriteOptions::default();
        let write = || zpl.write(file, at, piece, &options);
        block_on(with_room(bed.pool.txgs(), write)).unwrap();
    }
    bed.commit();
    file
}

fn read(zpl: &LiveZpl, file: ObjectId) -> Vec<u8> {
    let mut bytes = vec![0; 2 * FILE_BYTES as usize];
    let length = block_on(zpl.read(file, 0, &mut bytes)).unwrap();
    bytes.truncate(length);
    bytes
}

fn allocated(pool: &LivePool) -> u64 {
    pool.allocator().space(Class::Normal).allocated_bytes
}

/// Commits groups until the pool takes less than this.
fn wait_until_free(bed: &Bed, below: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    while allocated(&bed.pool) >= below {
        assert!(Instant::now() < until, "{} bytes are allocated", allocated(&bed.pool));
        bed.commit();
    }
}

/// Groups that are committed while this is done.
fn groups(bed: &Bed, change: impl FnOnce()) -> u64 {
    let before = bed.synced().get();
    change();
    bed.synced().get() - before
}

#[test]
fn a_large_file_is_deleted_in_parts_that_groups_share() {
    let turn = Turn::take();
    for (most, least, most_groups) in [(None, 1, 1), (Some(FEW), 7, 9), (Some(FEW * 20), 2, 2)] {
        if let Some(most) = most {
            turn.set(&tunables::ZFS_DELETE_BLOCKS, most);
        }
        let bed = Bed::new();
        let zpl = filesystem(&bed.pool);
        let before = allocated(&bed.pool);
        large_file(&bed, &zpl);
        let used = allocated(&bed.pool);
        assert!(used > before + FILE_BYTES);
        let root = zpl.zpl().root();
        let freed = groups(&bed, || {
            block_on(zpl.unlink(root, b"large")).unwrap();
            assert!(block_on(zpl.lookup(root, b"large")).unwrap().is_none(), "its name is gone at once");
            // With the group of the name a job begins.
            bed.commit();
            block_on(bed.pool.wait_for_jobs(|key, _| key.words().0 == "free_files"));
        });
        assert!((least..=most_groups).contains(&freed), "{most:?}: {freed} groups");
        assert_eq!(block_on(zpl.unlinked()).unwrap(), []);
        wait_until_free(&bed, before + FILE_BYTES / 4);
        drop(zpl);
        bed.end();
    }
}

#[test]
fn what_is_cut_off_or_made_a_hole_is_freed_in_parts() {
    let (turn, bed) = (Turn::take(), Bed::new());
    turn.set(&tunables::ZFS_DELETE_BLOCKS, FEW);
    let zpl = filesystem(&bed.pool);
    let before = allocated(&bed.pool);
    let file = large_file(&bed, &zpl);
    let mut expected = content(FILE_BYTES);
    let punch = (700_000, 2_000_001);
    let committed = groups(&bed, || block_on(zpl.punch(file, punch.0, punch.1)).unwrap());
    assert!((3..=6).contains(&committed), "{committed}");
    expected[punch.0 as usize..(punch.0 + punch.1) as usize].fill(0);
    assert_eq!(read(&zpl, file), expected);
    bed.commit();
    let committed = groups(&bed, || block_on(zpl.truncate(file, 1000)).unwrap());
    assert!((2..=6).contains(&committed), "{committed}");
    assert_eq!(read(&zpl, file), expected[..1000]);
    bed.commit();
    assert_eq!(read(&zpl, file), expected[..1000]);
    // What was cut off does not come back.
    block_on(zpl.truncate(file, FILE_BYTES)).unwrap();
    expected[1000..].fill(0);
    assert_eq!(read(&zpl, file), expected);
    wait_until_free(&bed, before + FILE_BYTES / 4);

    for at in 0..64 {
        bed.write(at * MIB, MIB);
    }
    bed.commit();
    let hole = (3 * MIB + 8192, 60 * MIB);
    let committed = groups(&bed, || block_on(bed.volume.trim(hole.0, hole.1, false)).unwrap());
    assert!((6..=9).contains(&committed), "8,192 blocks of 8 KiB: {committed}");
    let mut bytes = vec![0; 64 * MIB as usize];
    block_on(bed.volume.read_at(0, &mut bytes)).unwrap();
    let is_hole = |at: u64| (hole.0..hole.0 + hole.1).contains(&at);
    let differs = (0u64..).zip(&bytes).find(|(at, byte)| (**byte == 0) != is_hole(*at));
    assert_eq!(differs, None);
    bed.commit();
    block_on(bed.volume.resize(8 * MIB)).unwrap();
    assert_eq!(bed.volume.size(), 8 * MIB);
    wait_until_free(&bed, before + 8 * MIB);
    drop(zpl);
    bed.judged();
}

#[test]
fn a_large_file_that_is_half_free_is_freed_when_its_filesystem_is_opened_again() {
    let (turn, bed) = (Turn::take(), Bed::new());
    turn.set(&tunables::ZFS_DELETE_BLOCKS, FEW);
    let zpl = filesystem(&bed.pool);
    let before = allocated(&bed.pool);
    let file = large_file(&bed, &zpl);
    let used = allocated(&bed.pool);
    // A user keeps all of it.
    zpl.hold(file);
    block_on(zpl.unlink(zpl.zpl().root(), b"large")).unwrap();
    (0..3).for_each(|_| bed.commit());
    assert_eq!(read(&zpl, file), content(FILE_BYTES));
    assert!(allocated(&bed.pool) > before + FILE_BYTES);
    block_on(zpl.close(file, 1)).unwrap();
    bed.commit();
    wait_until_free(&bed, used - FILE_BYTES / 8);
    drop(zpl);
    let bed = bed.again();
    let zpl = filesystem(&bed.pool);
    wait_until_free(&bed, before + FILE_BYTES / 4);
    assert_eq!(block_on(zpl.unlinked()).unwrap(), []);
    drop(zpl);
    bed.judged();
}
