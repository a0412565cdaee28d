//! What leads to data is damaged: indirect blocks. What is below them cannot be changed or freed, and all
//! else goes on.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use device::block_on;
use engine::Error;
use engine::dmu::LiveObject;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::dsl::with_room;
use engine::pool::live::{Layout, LivePool};
use engine::vdev::{Class, LABEL_START_BYTES};
use engine::zpl::live::WriteOptions;
use ondisk::vdev_config::PoolState;

use crate::files::FILE;
use crate::filesystem::open;
use crate::support::{Disks, full, make_change, new_pool, objset_of, surroundings};

const MIB: u64 = 1 << 20;
const RECORD: usize = 4096;
/// More records than a dnode has pointers.
const RECORDS: usize = 20;

async fn create(disks: &Disks) -> Arc<LivePool> {
    let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
    let pool = LivePool::create(new, surroundings(1)).await.unwrap();
    pool.start().unwrap();
    pool
}

/// Where the indirect blocks below the dnode of `object` are on the only disk.
fn indirect_blocks(object: &LiveObject) -> Vec<u64> {
    let dnode = object.dnode();
    assert_eq!(dnode.levels, 2, "the object has one level of indirect blocks");
    let dvas = dnode.blkptrs.iter().flat_map(|pointer| pointer.dvas().collect::<Vec<_>>());
    dvas.map(|dva| dva.offset.get() + LABEL_START_BYTES).collect()
}

fn garble(disks: &Disks, places: &[u64]) {
    let disk = std::fs::OpenOptions::new().write(true).open(disks.path().join("d0")).unwrap();
    places.iter().for_each(|at| disk.write_all_at(&[0x5a; 512], *at).unwrap());
}

#[test]
fn a_file_with_a_damaged_indirect_block_can_neither_be_changed_nor_freed_and_the_pool_goes_on() {
    let disks = Disks::new(96 << 20);
    let places = block_on(async {
        let pool = create(&disks).await;
        let zpl = open(&pool).await;
        zpl.set_record_size(RECORD as u32);
        let root = zpl.zpl().root();
        let file = zpl.create(root, b"file", &FILE).await.unwrap();
        zpl.write(file, 0, &[7; RECORD * RECORDS], &WriteOptions::default()).await.unwrap();
        pool.sync().await.unwrap();
        let places = indirect_blocks(&zpl.objset().object(file).await.unwrap());
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
        places
    });
    garble(&disks, &places);
    block_on(async {
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        let zpl = open(&pool).await;
        zpl.set_record_size(RECORD as u32);
        let root = zpl.zpl().root();
        let file = zpl.lookup(root, b"file").await.unwrap().unwrap();
        let record = RECORD as u64;
        let is_damage = |what: &str, result: engine::Result<()>| match result {
            Err(error @ Error::Checksum { .. }) => drop(error),
            other => panic!("{what}: {other:?}"),
        };
        let options = WriteOptions::default();
        is_damage("overwrite", zpl.write(file, record, &[8; RECORD], &options).await.map(drop));
        is_damage("overwrite a part", zpl.write(file, record + 5, &[8; 5], &options).await.map(drop));
        is_damage("append", zpl.write(file, record * RECORDS as u64, &[8; RECORD], &options).await.map(drop));
        is_damage(
            "append a part",
            zpl.write(file, record * RECORDS as u64 + 7, &[8; 7], &options).await.map(drop),
        );
        is_damage("punch", zpl.punch(file, record, record).await);
        is_damage("truncate", zpl.truncate(file, record).await);
        is_damage("truncate to nothing", zpl.truncate(file, 0).await);
        pool.sync().await.unwrap();
        assert_eq!(zpl.zpl().stat(file).await.unwrap().size, record * RECORDS as u64);
        // Its name goes, as OpenZFS does it.
        zpl.unlink(root, b"file").await.unwrap();
        pool.sync().await.unwrap();
        assert_eq!(zpl.unlinked().await.unwrap(), [file]);
        let other = zpl.create(root, b"other", &FILE).await.unwrap();
        zpl.write(other, 0, &[9; RECORD], &options).await.unwrap();
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
    });
    block_on(async {
        let pool = disks.import("tank", 3).await;
        pool.start().unwrap();
        let zpl = open(&pool).await;
        assert_eq!(zpl.unlinked().await.unwrap().len(), 1, "it stays in the set of unlinked files");
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn a_destroyed_volume_with_a_damaged_indirect_block_keeps_its_space_and_others_are_freed() {
    let disks = Disks::new(96 << 20);
    let names = ["damaged", "sound"];
    let size = 4 * MIB;
    let places = block_on(async {
        let pool = create(&disks).await;
        let mut places = Vec::new();
        for name in names {
            let new = NewDataset {
                name: full(name),
                contents: NewContents::Volume { size, sparse: true },
                properties: Vec::new(),
            };
            let id = pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
            let volume = pool.volume(id).await.unwrap();
            let bytes: Vec<u8> = (0..size).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
            with_room(pool.txgs(), || volume.write_at(0, &bytes, false)).await.unwrap();
            pool.sync().await.unwrap();
            if name == "damaged" {
                let content = ondisk::ObjectId(1);
                let objset = &pool.dataset(id).await.unwrap().objset;
                places = indirect_blocks(&objset.object(content).await.unwrap());
            }
        }
        pool.close(PoolState::Exported).await.unwrap();
        places
    });
    garble(&disks, &places);
    block_on(async {
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        let volume = pool.volume(objset_of(&pool, "damaged").await.unwrap()).await.unwrap();
        let written = volume.write_at(0, &[1; 1 << 16], false).await;
        assert!(matches!(written, Err(Error::Checksum { .. })), "{written:?}");
        let trimmed = volume.trim(0, size, false).await;
        assert!(matches!(trimmed, Err(Error::Checksum { .. })), "{trimmed:?}");
        drop(volume);
        let used = || pool.allocator().space(Class::Normal).allocated_bytes;
        let before = used();
        for name in names {
            make_change(&pool, &testkit::tree::Change::DestroyHead(name.into())).await.unwrap();
        }
        for _ in 0..6 {
            pool.sync().await.unwrap();
        }
        let freed = before - used();
        assert!((size * 3 / 4..size * 3 / 2).contains(&freed), "{freed} bytes were freed");
        pool.close(PoolState::Exported).await.unwrap();
    });
    block_on(async {
        // It is tried again, and nothing is worse.
        let pool = disks.import("tank", 3).await;
        pool.start().unwrap();
        for _ in 0..4 {
            pool.sync().await.unwrap();
        }
        pool.close(PoolState::Exported).await.unwrap();
    });
}
