//! Extended attributes that are read while they are changed.

use std::sync::atomic::{AtomicBool, Ordering};

use device::block_on;
use engine::pool::live::{Layout, LivePool};
use engine::vdev::Class;
use engine::zpl::live::{XattrPlace, XattrSet};
use ondisk::vdev_config::PoolState;

use crate::files::FILE;
use crate::filesystem::open;
use crate::support::{Disks, new_pool, surroundings};

/// One gives an attribute one of two values in turn; another reads that and one that stays.
fn read_while_changed(place: XattrPlace, lengths: [usize; 2], rounds: usize) {
    let disks = Disks::new(96 << 20);
    let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
    let pool = block_on(LivePool::create(new, surroundings(1))).unwrap();
    pool.start().unwrap();
    let zpl = block_on(open(&pool));
    let file = block_on(zpl.create(zpl.zpl().root(), b"file", &FILE)).unwrap();
    let values = [vec![1; lengths[0]], vec![2; lengths[1]]];
    let set = |name: &[u8], value: &[u8]| {
        block_on(zpl.set_xattr(file, name, value, XattrSet::Any, place)).unwrap();
    };
    set(b"user.stays", b"as it is");
    set(b"user.changes", &values[0]);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let found = block_on(zpl.xattr(file, b"user.changes")).unwrap().unwrap_or_default();
                let told = (found.len(), found.iter().map(|byte| usize::from(*byte)).sum::<usize>());
                assert!(values.contains(&found), "length and sum {told:?}");
                let found = block_on(zpl.xattr(file, b"user.stays")).unwrap();
                assert_eq!(found.as_deref(), Some(&b"as it is"[..]));
                assert_eq!(block_on(zpl.list_xattrs(file)).unwrap().len(), 2);
            }
        });
        for round in 0..rounds {
            if reader.is_finished() {
                break;
            }
            set(b"user.changes", &values[(round + 1) % 2]);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    drop(zpl);
    block_on(pool.close(PoolState::Exported)).unwrap();
}

#[test]
fn an_attribute_that_is_a_file_is_read_whole() {
    read_while_changed(XattrPlace::Directory, [60_000, 3000], 1000);
}

/// The longer one does not fit into the dnode.
#[test]
fn attributes_that_move_between_the_dnode_and_its_spill_block_are_never_missing() {
    read_while_changed(XattrPlace::Attributes, [10, 1000], 4000);
}
