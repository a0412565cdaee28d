//! The error log: what could not be read is known after the next import, until it is mended, overwritten or
//! freed.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use device::block_on;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::errlog::{self, DamagedBlock};
use engine::pool::import::{ImportOptions, import};
use engine::pool::live::{Layout, LivePool, NewPool, rotate_error_log};
use engine::vdev::{Class, LABEL_START_BYTES};
use ondisk::blkptr::Blkptr;
use ondisk::features::Feature;
use ondisk::vdev_config::PoolState;
use ondisk::{BlockId, ObjectId, ObjsetId};
use testkit::tree::Change;

use crate::support::{Disks, make_change, new_pool, objset_of, surroundings};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 16 << 10;
const DATA: ObjectId = ObjectId(1);

/// A pool with a volume of some blocks and a snapshot of it, closed. Gives the pointers of the blocks.
async fn create(new: NewPool, snapshot: bool) -> Vec<Blkptr> {
    let pool = LivePool::create(new, surroundings(1)).await.unwrap();
    pool.start().unwrap();
    let new = NewDataset {
        name: "tank/vol".into(),
        contents: NewContents::Volume { size: MIB, sparse: true },
        properties: vec![("compression".into(), "off".into())],
    };
    let id = pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
    let volume = pool.volume(id).await.unwrap();
    for block in 0..8 {
        volume.write_at(block * BLOCK as u64, &[block as u8 + 1; BLOCK], false).await.unwrap();
    }
    committed(&pool).await;
    if snapshot {
        make_change(&pool, &Change::Snapshot { of: "vol".into(), to: "vol@one".into() }).await.unwrap();
    }
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let dataset = dsl.find("tank/vol").await.unwrap();
    let data = dsl.open_objset(&dataset).await.unwrap().object(DATA).await.unwrap();
    let mut pointers = Vec::new();
    for block in 0..8 {
        pointers.push(data.blkptr_at(0, block).await.unwrap().unwrap());
    }
    drop((volume, dsl, data));
    pool.close(PoolState::Exported).await.unwrap();
    pointers
}

async fn committed(pool: &Arc<LivePool>) {
    pool.change(|_| async { Ok(()) }).await.unwrap();
}

/// Exchanges the first bytes of all copies of a block, as written to `disks`, and gives what was there.
fn garble(disks: &Disks, pointer: &Blkptr, bytes: &[u8]) {
    for dva in pointer.dvas() {
        let name = format!("d{}", dva.vdev.get());
        let file = std::fs::OpenOptions::new().write(true).open(disks.path().join(name)).unwrap();
        file.write_all_at(bytes, dva.offset.get() + LABEL_START_BYTES).unwrap();
    }
}

async fn log(pool: &Arc<LivePool>) -> Vec<DamagedBlock> {
    errlog::read(&Dsl::open(&pool.view()).await.unwrap()).await.unwrap()
}

fn damaged(objset: ObjsetId, block: u64) -> DamagedBlock {
    DamagedBlock { objset, object: DATA, level: 0, block: BlockId(block) }
}

async fn read(pool: &Arc<LivePool>, block: u64) -> bool {
    let volume = pool.volume(objset_of(pool, "vol").await.unwrap()).await.unwrap();
    let mut bytes = vec![0; BLOCK];
    let read = volume.read_at(block * BLOCK as u64, &mut bytes).await;
    assert!(read.is_err() || bytes.iter().all(|byte| *byte == block as u8 + 1));
    read.is_ok()
}

#[test]
fn the_log_outlives_an_export_and_names_snapshots_until_no_version_has_the_block() {
    let disks = Disks::new(96 * MIB);
    let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
    let pointers = block_on(create(new, true));
    garble(&disks, &pointers[2], &[0x5a; 512]);
    garble(&disks, &pointers[5], &[0x5a; 512]);
    let (head, snapshot) = block_on(async {
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        assert!(log(&pool).await.is_empty());
        assert!(read(&pool, 1).await && !read(&pool, 2).await && !read(&pool, 5).await);
        let (head, snapshot) =
            (objset_of(&pool, "vol").await.unwrap(), objset_of(&pool, "vol@one").await.unwrap());
        let mut all: Vec<_> =
            [head, snapshot].into_iter().flat_map(|id| [damaged(id, 2), damaged(id, 5)]).collect();
        all.sort();
        assert_eq!(log(&pool).await, all, "before it is written down");
        assert_eq!(pool.pool().damage().blocks().len(), 2);
        committed(&pool).await;
        assert_eq!(pool.pool().damage().blocks(), [], "the pool has it");
        assert_eq!(log(&pool).await, all);
        pool.close(PoolState::Exported).await.unwrap();
        (head, snapshot)
    });
    // A reader without any right to write sees it too.
    block_on(async {
        let found = disks.found("tank").await;
        let options = ImportOptions { readonly: true, ..Default::default() };
        let pool = import(&found, &options).await.unwrap();
        let found = errlog::read(&Dsl::open(&pool).await.unwrap()).await.unwrap();
        assert_eq!(found.len(), 4);
    });
    block_on(async {
        let pool = disks.import("tank", 3).await;
        pool.start().unwrap();
        let volume = pool.volume(head).await.unwrap();
        for block in [2u64, 5] {
            volume.write_at(block * BLOCK as u64, &[block as u8 + 1; BLOCK], false).await.unwrap();
        }
        drop(volume);
        committed(&pool).await;
        let mut all = vec![damaged(snapshot, 2), damaged(snapshot, 5)];
        assert_eq!(log(&pool).await, all, "the head is right again");
        // A clone has what the snapshot has.
        make_change(&pool, &Change::Clone { from: "vol@one".into(), to: "clone".into() }).await.unwrap();
        let clone = objset_of(&pool, "clone").await.unwrap();
        all.extend([damaged(clone, 2), damaged(clone, 5)]);
        all.sort();
        assert_eq!(log(&pool).await, all);
        pool.change(|s| async move { edit::promote(&s, "tank/clone").await }).await.unwrap();
        assert_eq!(log(&pool).await, all, "the snapshot is the clone's now");
        make_change(&pool, &Change::DestroyHead("vol".into())).await.unwrap();
        assert_eq!(log(&pool).await, all);
        make_change(&pool, &Change::DestroyHead("clone".into())).await.unwrap_err();
        make_change(&pool, &Change::DestroySnapshot("clone@one".into())).await.unwrap();
        assert_eq!(log(&pool).await, [damaged(clone, 2), damaged(clone, 5)]);
        make_change(&pool, &Change::DestroyHead("clone".into())).await.unwrap();
        assert_eq!(log(&pool).await, []);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_scan_that_ends_replaces_the_log_and_a_log_of_the_old_form_becomes_one_by_head() {
    let disks = Disks::new(96 * MIB);
    let mut new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
    new.features.retain(|feature| *feature != Feature::HeadErrlog);
    let pointers = block_on(create(new, false));
    for block in [2, 3] {
        garble(&disks, &pointers[block], &[0x5a; 512]);
    }
    block_on(async {
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        let head = objset_of(&pool, "vol").await.unwrap();
        assert!(!read(&pool, 2).await && !read(&pool, 3).await);
        committed(&pool).await;
        assert_eq!(log(&pool).await, [damaged(head, 2), damaged(head, 3)]);
        // The old form does not know which blocks were overwritten.
        let volume = pool.volume(head).await.unwrap();
        volume.write_at(2 * BLOCK as u64, &[3; BLOCK], false).await.unwrap();
        drop(volume);
        committed(&pool).await;
        assert_eq!(log(&pool).await.len(), 2);
        pool.change(|s| async move { s.enable_feature(Feature::HeadErrlog).await }).await.unwrap();
        // What is there now counts: OpenZFS notes the birth of the present block.
        assert_eq!(log(&pool).await, [damaged(head, 2), damaged(head, 3)]);
        pool.change(|s| async move { rotate_error_log(&s).await }).await.unwrap();
        assert_eq!(log(&pool).await, [], "a scan that found nothing");
        pool.close(PoolState::Exported).await.unwrap();
    });
    garble(&disks, &pointers[3], &[4; 512]);
    block_on(async {
        let pool = disks.import("tank", 3).await;
        pool.start().unwrap();
        assert!(read(&pool, 3).await && log(&pool).await.is_empty());
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
#[ignore = "boots a virtual machine"]
fn the_kernel_module_sees_the_log_and_its_own_entries_are_seen_here() {
    let Some(vm) = testkit::kernel::KernelVm::find() else { return };
    let disks = Disks::new(96 * MIB);
    let mut top = disks.top(Layout::Single, Class::Normal, "d", 1);
    // There it is a disk.
    top.leaves.iter_mut().for_each(|leaf| leaf.is_file = false);
    let new = new_pool(vec![top], 12);
    let pointers = block_on(create(new, true));
    garble(&disks, &pointers[2], &[0x5a; 512]);
    block_on(async {
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        assert!(!read(&pool, 2).await);
        committed(&pool).await;
        pool.close(PoolState::Exported).await.unwrap();
    });
    garble(&disks, &pointers[5], &[0x5a; 512]);
    // The module's scrub replaces the log, and finds both blocks.
    let script = "zpool import -f tank || exit 1\n\
                  echo before; zpool status -v tank\n\
                  zpool scrub -w tank; zpool scrub -w tank\n\
                  echo after; zpool status -v tank\n\
                  zpool export tank\n";
    let job = testkit::kernel::Job::new(script, vec![disks.path().join("d0")]);
    let outcome = vm.run(&job).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.output);
    let (before, _) = outcome.output.split_once("after").unwrap();
    for entry in ["tank/vol:<0x1>", "tank/vol@one:<0x1>"] {
        assert!(before.contains(entry), "{}", outcome.output);
    }
    block_on(async {
        let pool = disks.import("tank", 3).await;
        let (head, snapshot) =
            (objset_of(&pool, "vol").await.unwrap(), objset_of(&pool, "vol@one").await.unwrap());
        let mut all: Vec<_> =
            [head, snapshot].into_iter().flat_map(|id| [damaged(id, 2), damaged(id, 5)]).collect();
        all.sort();
        assert_eq!(log(&pool).await, all, "{}", outcome.output);
        pool.close(PoolState::Exported).await.unwrap();
    });
}
