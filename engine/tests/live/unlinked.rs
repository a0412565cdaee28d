//! Files without a name whose extended attributes are objects of their own: they go as a whole, and nothing
//! that belongs to another file goes with them.

use std::sync::Arc;

use device::block_on;
use device::simulated::{Fault, SimulatedDevice};
use engine::dmu::zap::{Key, Value, edit};
use engine::pool::import::ImportOptions;
use engine::pool::live::{Layout, LivePool};
use engine::txg::Tx;
use engine::vdev::Class;
use engine::zpl::LiveZpl;
use engine::zpl::live::{XattrPlace, XattrSet};
use ondisk::ObjectId;
use ondisk::dmu::DmuType;
use ondisk::vdev_config::PoolState;
use ondisk::zpl::{Dirent, FileType, MASTER_NODE, master};

use crate::files::FILE;
use crate::filesystem::open;
use crate::support::{Disks, new_pool, surroundings};

/// Where a directory without extended attributes has its number of links.
const LINKS: std::ops::Range<usize> = 128..136;

async fn create(disks: &Disks) -> Arc<LivePool> {
    let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
    LivePool::create(new, surroundings(1)).await.unwrap()
}

async fn set(zpl: &LiveZpl, file: ObjectId, name: &[u8]) {
    zpl.set_xattr(file, name, &[7; 100], XattrSet::Any, XattrPlace::Directory).await.unwrap();
}

/// All files, directories, and extended attributes that are objects, with the objects that they say they are
/// in.
async fn objects(zpl: &LiveZpl) -> Vec<(ObjectId, u64)> {
    let mut found = Vec::new();
    let mut from = ObjectId(1);
    while let Some(id) = zpl.objset().next_object(from).await.unwrap() {
        if zpl.objset().object(id).await.unwrap().dnode().bonus_type == DmuType::SA {
            found.push((id, zpl.zpl().stat(id).await.unwrap().parent));
        }
        from = ObjectId(id.0 + 1);
    }
    found
}

/// Says of a directory of extended attributes that it has one that is `object`.
async fn claim(zpl: &LiveZpl, tx: &Tx, dir: ObjectId, name: &[u8], object: ObjectId) {
    let dir = zpl.objset().object(dir).await.unwrap();
    let dirent = Dirent { object, file_type: Some(FileType::Regular) };
    edit::insert(&dir, tx, &Key::Name(name.into()), &Value::U64(vec![dirent.to_raw()])).await.unwrap();
}

#[test]
fn a_file_that_cannot_be_read_whole_is_freed_later_and_whole() {
    let disks = Disks::new(96 << 20);
    block_on(async {
        let pool = create(&disks).await;
        pool.start().unwrap();
        let zpl = open(&pool).await;
        let root = zpl.zpl().root();
        let file = zpl.create(root, b"file", &FILE).await.unwrap();
        set(&zpl, file, b"user.a").await;
        for number in 0..64 {
            zpl.create(root, format!("{number}").as_bytes(), &FILE).await.unwrap();
        }
        // In another block of dnodes.
        set(&zpl, file, b"user.b").await;
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
    });
    block_on(async {
        let mut devices = Vec::new();
        let mut found = disks.found("tank").await;
        for candidate in found.candidates.values_mut() {
            let device = Arc::new(SimulatedDevice::new(Arc::clone(&candidate.device), 1));
            devices.push(Arc::clone(&device));
            candidate.device = device;
        }
        let options = ImportOptions { force: true, ..ImportOptions::default() };
        let pool = LivePool::import(&found, &options, surroundings(2)).await.unwrap();
        let zpl = open(&pool).await;
        let root = zpl.zpl().root();
        let file = zpl.lookup(root, b"file").await.unwrap().unwrap();
        zpl.hold(file);
        zpl.unlink(root, b"file").await.unwrap();
        // All but the second attribute is in memory.
        assert!(zpl.zpl().node(file).await.unwrap().xattr(b"user.a").await.unwrap().is_some());
        devices[0].inject(Fault::ReadError(0..u64::MAX));
        assert!(zpl.close(file, 1).await.is_err());
        drop(zpl);
        let zpl = open(&pool).await;
        assert_eq!(zpl.unlinked().await.unwrap(), [file], "it keeps nobody from opening the filesystem");
        drop(zpl);
        devices[0].heal();
        let zpl = open(&pool).await;
        assert_eq!(zpl.unlinked().await.unwrap(), []);
        assert_eq!(objects(&zpl).await.len(), 1 + 64, "nothing is left over");

        // One without users goes the same way.
        let file = zpl.create(root, b"file", &FILE).await.unwrap();
        set(&zpl, file, b"user.a").await;
        pool.sync().await.unwrap();
        zpl.unlink(root, b"file").await.unwrap();
        assert_eq!(objects(&zpl).await.len(), 1 + 64);
        drop(zpl);
        pool.start().unwrap();
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn what_a_directory_of_extended_attributes_claims_without_right_stays() {
    let disks = Disks::new(96 << 20);
    block_on(async {
        let pool = create(&disks).await;
        pool.start().unwrap();
        let zpl = open(&pool).await;
        let root = zpl.zpl().root();
        let other = zpl.create(root, b"other", &FILE).await.unwrap();
        set(&zpl, other, b"user.its").await;
        let before = objects(&zpl).await;
        let its = before.iter().rev().find(|(_, parent)| *parent != root.0 && *parent != other.0).unwrap().0;
        let file = zpl.create(root, b"file", &FILE).await.unwrap();
        set(&zpl, file, b"user.own").await;
        let dir = objects(&zpl).await.iter().find(|(_, parent)| *parent == file.0).unwrap().0;
        let tx = pool.txgs().begin(0).await.unwrap();
        // As if they had the numbers of some that were freed, like the last.
        for (name, object) in [(&b"user.1"[..], other), (b"user.2", its), (b"user.3", ObjectId(1 << 20))] {
            claim(&zpl, &tx, dir, name, object).await;
        }
        drop(tx);
        zpl.unlink(root, b"file").await.unwrap();
        assert_eq!(objects(&zpl).await, before);
        assert!(zpl.zpl().node(other).await.unwrap().xattr(b"user.its").await.unwrap().is_some());
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

/// OpenZFS frees the file first and puts the directory of its extended attributes into the set.
#[test]
fn a_directory_of_extended_attributes_without_a_file_is_freed_with_its_entries() {
    let disks = Disks::new(96 << 20);
    block_on(async {
        let pool = create(&disks).await;
        pool.start().unwrap();
        let zpl = open(&pool).await;
        let root = zpl.zpl().root();
        let other = zpl.create(root, b"other", &FILE).await.unwrap();
        let before = objects(&zpl).await;
        let file = zpl.create_nameless(root, &FILE, false).await.unwrap();
        set(&zpl, file, b"user.a").await;
        set(&zpl, file, b"user.b").await;
        let dir = objects(&zpl).await.iter().find(|(_, parent)| *parent == file.0).unwrap().0;
        let objset = zpl.objset();
        let master_node = objset.object(MASTER_NODE).await.unwrap();
        let unlinked = edit::lookup_u64(&master_node, master::DELETE_QUEUE).await.unwrap().unwrap();
        let tx = pool.txgs().begin(0).await.unwrap();
        claim(&zpl, &tx, dir, b"user.c", other).await;
        objset.free(&tx, file).await.unwrap();
        objset.take_from_set(&tx, ObjectId(unlinked), file.0);
        let object = objset.object(dir).await.unwrap();
        let mut bonus = object.bonus().to_vec();
        assert_eq!(bonus[LINKS], 2u64.to_le_bytes());
        bonus[LINKS].fill(0);
        object.set_bonus(&tx, DmuType::SA, &bonus);
        objset.put_in_set(&tx, ObjectId(unlinked), dir.0);
        drop((tx, object, master_node));
        assert_eq!(zpl.unlinked().await.unwrap(), [dir]);
        drop(zpl);
        let zpl = open(&pool).await;
        assert_eq!(zpl.unlinked().await.unwrap(), []);
        assert_eq!(objects(&zpl).await, before, "nothing is left over");
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
