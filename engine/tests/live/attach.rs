//! Devices that are attached and detached while a pool is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{FileDevice, block_on};
use engine::dmu::{Objset, zap};
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::dsl::history;
use engine::inject::{ALWAYS, BlockError, Blocks, Fault};
use engine::pool::live::{Layout, LivePool, NewTop, TakeOffline};
use engine::pool::status;
use engine::vdev::label::read_labels;
use engine::vdev::topology::Purpose;
use engine::vdev::{Class, Kind, State, Vdev};
use engine::zvol::LiveZvol;
use ondisk::pool_directory::{DIRECTORY_OBJECT, HISTORY};
use ondisk::vdev_config::{PoolState, VdevConfig};
use ondisk::{Guid, ObjsetId, Txg};

use crate::support::{Disks, committing, new_pool, objset_of, surroundings};

pub const MIB: u64 = 1 << 20;

/// Spares are known by their guids in all pools of a process, so each pool gets guids of its own.
static SEEDS: AtomicU64 = AtomicU64::new(1000);

/// A pool of these vdevs, with a volume that is called `vol`. It is not started, so that nothing is
/// resilvered by itself.
pub async fn pool_of(tops: Vec<NewTop>) -> Arc<LivePool> {
    let pool = LivePool::create(new_pool(tops, 12), surroundings(SEEDS.fetch_add(1, Ordering::Relaxed)))
        .await
        .unwrap();
    let new = NewDataset {
        name: "tank/vol".into(),
        contents: NewContents::Volume { size: 64 * MIB, sparse: true },
        properties: vec![("compression".into(), "off".into())],
    };
    pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
    pool
}

pub async fn volume(pool: &Arc<LivePool>) -> Arc<LiveZvol> {
    let dataset = pool.dataset(objset_of(pool, "vol").await.unwrap()).await.unwrap();
    LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.unwrap()
}

pub async fn commit(pool: &Arc<LivePool>) {
    pool.sync().await.unwrap();
}

/// Writes a mebibyte, of which `holds` knows what it must be.
pub async fn write(pool: &Arc<LivePool>, at: u64) {
    let volume = volume(pool).await;
    let bytes = vec![at as u8 + 1; MIB as usize];
    committing(pool, volume.write_at(at * MIB, &bytes, false)).await.unwrap();
    commit(pool).await;
}

/// Reads the first mebibytes, from the devices.
pub async fn holds(pool: &Arc<LivePool>, mib: u64) {
    let volume = volume(pool).await;
    let mut read = vec![0; MIB as usize];
    for at in 0..mib {
        volume.read_at(at * MIB, &mut read).await.unwrap();
        assert!(read.iter().all(|byte| *byte == at as u8 + 1), "mebibyte {at}");
    }
}

/// The tree of a top-level vdev in words: kinds, and the names of files.
pub fn shape(vdev: &Vdev) -> String {
    let name = vdev.name.rsplit('/').next().unwrap_or_default();
    let inside: Vec<String> = vdev.children.iter().map(shape).collect();
    if inside.is_empty() { name.to_owned() } else { format!("{name}({})", inside.join(" ")) }
}

/// The same of a configuration.
pub fn shape_in(vdev: &VdevConfig) -> String {
    let path = vdev.path.as_ref().map(|path| String::from_utf8_lossy(path.as_bytes()).into_owned());
    let inside: Vec<String> = vdev.children.iter().map(shape_in).collect();
    match path {
        Some(path) => path.rsplit('/').next().unwrap_or_default().to_owned(),
        None => {
            let id = vdev.id.map_or(0, |id| id.get());
            format!("{}-{id}({})", vdev.kind.type_name(), inside.join(" "))
        }
    }
}

pub fn top(pool: &LivePool) -> &Vdev {
    pool.pool().vdevs().top(0).unwrap()
}

pub fn leaf<'a>(pool: &'a LivePool, name: &str) -> &'a Vdev {
    let mut leaves = pool.pool().vdevs().leaves();
    leaves.find(|leaf| leaf.name.ends_with(&format!("/{name}"))).unwrap()
}

/// The shape that all good labels of a file tell, or what else they say that it is.
pub async fn label_of(disks: &Disks, name: &str) -> Option<String> {
    let device = FileDevice::open(disks.file(name)).unwrap();
    let mut shapes: Vec<String> = Vec::new();
    for label in read_labels(&device).await.into_iter().flatten() {
        shapes.push(match (&label.vdev_tree, label.txg) {
            (Some(tree), _) => shape_in(tree),
            (None, Some(Txg::NONE)) => "left the pool".to_owned(),
            (None, _) => format!("{:?}", label.state),
        });
    }
    shapes.dedup();
    assert!(shapes.len() <= 1, "{shapes:?}");
    shapes.pop()
}

/// Copies what a leaf lacks from one that has all. For copies only: no parity.
pub async fn copy(pool: &Arc<LivePool>, from: &str, to: &str) {
    commit(pool).await;
    let device = |name| match &leaf(pool, name).kind {
        Kind::Leaf(slot) => slot.device().unwrap(),
        _ => unreachable!(),
    };
    let (source, target) = (device(from), device(to));
    let end = source.size_bytes().min(target.size_bytes()) - (512 << 10);
    for offset in ((4 << 20)..end).step_by(MIB as usize) {
        let length = MIB.min(end - offset) as usize;
        target.write(offset, source.read(offset, length).await.unwrap()).await.unwrap();
    }
    leaf(pool, to).missing_txgs.forget(Txg(0), Txg(u64::MAX));
    commit(pool).await;
}

/// Commits groups until something has come about by itself. The pool is started.
pub async fn until(pool: &Arc<LivePool>, what: impl Fn(&LivePool) -> bool) {
    let start = std::time::Instant::now();
    while !what(pool) {
        assert!(start.elapsed() < std::time::Duration::from_secs(60), "{}", shape(top(pool)));
        pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
    }
}

pub fn lacks_nothing(pool: &LivePool) -> bool {
    pool.pool().vdevs().leaves().all(|leaf| leaf.missing_txgs.is_empty())
}

pub async fn export(pool: Arc<LivePool>) {
    pool.close(PoolState::Exported).await.unwrap();
}

#[test]
fn a_device_that_is_attached_to_a_single_one_makes_a_mirror() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = pool_of(vec![disks.top(Layout::Single, Class::Normal, "d", 1)]).await;
        write(&pool, 0).await;
        let (old, asize) = (top(&pool).guid, top(&pool).asize());
        let new = pool.attach(old, disks.leaf("d1"), Purpose::Mirror, None).await.unwrap();
        assert_eq!(shape(top(&pool)), "mirror-0(d0 d1)");
        assert_eq!((top(&pool).asize(), top(&pool).class()), (asize, Class::Normal));
        assert!(top(&pool).guid != old && leaf(&pool, "d1").guid == new);

        // It lacks all groups up to the present, and has those that come.
        let missed = leaf(&pool, "d1").missing_txgs.ranges();
        let [(first, end)] = missed.ranges() else { panic!("{missed:?}") };
        assert!(*first == Txg::INITIAL.get() && *end <= pool.txgs().synced_txg().get() + 1, "{missed:?}");
        write(&pool, 1).await;
        assert_eq!(leaf(&pool, "d1").missing_txgs.ranges(), missed);
        holds(&pool, 2).await;
        assert_eq!(leaf(&pool, "d1").errors.checksum(), 0);
        let view = status::vdevs(&pool.view());
        let listed = view.walk().find(|vdev| vdev.guid == new.get()).unwrap();
        assert!(listed.awaits_resilver);
        let is_online = |vdev: &status::VdevNode| vdev.state == State::Healthy;
        assert!(view.walk().all(is_online), "a device that is resilvered does not lower its parents");
        assert_eq!(pool.detach(leaf(&pool, "d0").guid).await.unwrap_err().to_string(), "no valid replicas");
        assert!(pool.offline(leaf(&pool, "d0").guid, TakeOffline::Temporarily).await.is_err());

        let events = history::read(&Dsl::open(&pool.view()).await.unwrap()).await.unwrap();
        let events = format!("{events:?}");
        assert!(
            events.contains("vdev attach") && events.contains("attach vdev=") && events.contains(" to vdev=")
        );
        export(pool).await;
    });
    for name in ["d0", "d1"] {
        assert_eq!(block_on(label_of(&disks, name)).unwrap(), "mirror-0(d0 d1)");
    }
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 2).await;
        assert_eq!(shape(top(&pool)), "mirror-0(d0 d1)");
        let config = pool.view().config().vdev_tree.clone().unwrap();
        let new = &config.children[0].children[1];
        assert!(new.dtl_object.is_some() && new.leaf_zap.is_some() && new.resilver_txg.is_some());
        assert!(!leaf(&pool, "d1").missing_txgs.is_empty());
        holds(&pool, 2).await;
        write(&pool, 2).await;
        export(pool).await;
        // Without the old one there is nothing.
        std::fs::rename(disks.file("d1"), disks.file("elsewhere")).unwrap();
        let pool = disks.import("tank", 3).await;
        holds(&pool, 3).await;
        export(pool).await;
    });
}

#[test]
fn a_device_is_detached_when_the_others_have_everything() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = pool_of(vec![disks.top(Layout::Single, Class::Normal, "d", 1)]).await;
        write(&pool, 0).await;
        let old = top(&pool).guid;
        pool.attach(old, disks.leaf("d1"), Purpose::Mirror, None).await.unwrap();
        pool.attach(old, disks.leaf("d2"), Purpose::Mirror, None).await.unwrap();
        assert_eq!(shape(top(&pool)), "mirror-0(d0 d1 d2)");
        let mirror = top(&pool).guid;
        copy(&pool, "d0", "d1").await;
        // One that lacks everything can go too.
        pool.detach(leaf(&pool, "d2").guid).await.unwrap();
        pool.detach(leaf(&pool, "d0").guid).await.unwrap();
        assert_eq!((shape(top(&pool)), top(&pool).guid), ("d1".into(), mirror));
        write(&pool, 1).await;
        holds(&pool, 2).await;
        assert!(pool.detach(mirror).await.unwrap_err().to_string().contains("only applicable to mirror"));
        // Devices are free for others.
        pool.attach(mirror, disks.leaf("d0"), Purpose::Mirror, None).await.unwrap();
        copy(&pool, "d1", "d0").await;
        write(&pool, 2).await;
        export(pool).await;
    });
    assert_eq!(block_on(label_of(&disks, "d2")).unwrap(), "left the pool");
    assert_eq!(block_on(label_of(&disks, "d0")).unwrap(), "mirror-0(d1 d0)");
    disks.judge("tank");
    block_on(async {
        std::fs::remove_file(disks.file("d1")).unwrap();
        let pool = disks.import("tank", 2).await;
        holds(&pool, 3).await;
        write(&pool, 3).await;
        pool.detach(top(&pool).children[0].guid).await.unwrap();
        assert_eq!(shape(top(&pool)), "d0");
        export(pool).await;
    });
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 3).await;
        holds(&pool, 4).await;
        export(pool).await;
    });
}

#[test]
fn what_cannot_be_attached_keeps_what_it_holds() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let tops = vec![
            disks.top(Layout::Single, Class::Normal, "d", 1),
            disks.top(Layout::Raidz { nparity: 1 }, Class::Normal, "r", 3),
        ];
        let pool = pool_of(tops).await;
        let (single, raidz) = (top(&pool).guid, pool.pool().vdevs().top(1).unwrap());
        let attach = async |at: Guid, name: &str, purpose| {
            let error = pool.attach(at, disks.leaf(name), purpose, None).await.unwrap_err().to_string();
            let content = std::fs::read(disks.file(name)).unwrap();
            assert!(content.iter().all(|byte| *byte == 0), "{error}");
            error
        };
        assert!(attach(raidz.guid, "new", Purpose::Mirror).await.contains("raidz"));
        assert!(attach(raidz.children[0].guid, "new", Purpose::Mirror).await.contains("top-level disks"));
        assert!(attach(Guid(1), "new", Purpose::Mirror).await.contains("device 1"));
        let small = Disks::new(80 * MIB);
        for (at, purpose) in [(single, Purpose::Mirror), (raidz.children[1].guid, Purpose::Replace)] {
            let error = pool.attach(at, small.leaf("new"), purpose, None).await.unwrap_err().to_string();
            assert_eq!(error, "device is too small");
        }
        let error = pool.attach(single, disks.leaf("new"), Purpose::Mirror, Some(13)).await.unwrap_err();
        assert!(error.to_string().contains("optimal sector size"), "{error}");
        export(pool).await;
    });
    disks.judge("tank");
}

#[test]
fn what_is_attached_is_resilvered_by_itself() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = pool_of(vec![disks.top(Layout::Single, Class::Normal, "d", 1)]).await;
        for at in 0..8 {
            write(&pool, at).await;
        }
        pool.start().unwrap();
        let old = top(&pool).guid;
        pool.attach(old, disks.leaf("d1"), Purpose::Mirror, None).await.unwrap();
        pool.attach(old, disks.leaf("d2"), Purpose::Mirror, None).await.unwrap();
        until(&pool, lacks_nothing).await;
        pool.detach(leaf(&pool, "d0").guid).await.unwrap();
        pool.detach(leaf(&pool, "d1").guid).await.unwrap();
        assert_eq!(shape(top(&pool)), "d2");
        holds(&pool, 8).await;
        export(pool).await;
    });
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 2).await;
        holds(&pool, 8).await;
        assert_eq!(top(&pool).errors.checksum(), 0);
        export(pool).await;
    });
}

#[test]
fn a_device_that_is_said_to_have_failed_is_used_on_where_nothing_else_has_its_data() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = pool_of(vec![disks.top(Layout::Single, Class::Normal, "d", 1)]).await;
        write(&pool, 0).await;
        let only = top(&pool).guid;
        assert!(pool.offline(only, TakeOffline::Persistently).await.is_err());
        pool.offline(only, TakeOffline::Faulted).await.unwrap();
        assert_eq!(top(&pool).status().state, State::Degraded);
        write(&pool, 1).await;
        export(pool).await;
        let pool = disks.import("tank", 2).await;
        assert_eq!(top(&pool).status().state, State::Degraded);
        holds(&pool, 2).await;
        pool.clear(None).await.unwrap();
        assert_eq!(top(&pool).status().state, State::Healthy);
        export(pool).await;
    });
}

#[test]
fn a_pool_stops_when_a_device_is_in_the_tree_and_the_mos_cannot_say_so() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = pool_of(vec![disks.top(Layout::Single, Class::Normal, "d", 1)]).await;
        write(&pool, 0).await;
        let view = pool.view();
        let mos = Objset::open(&view, ObjsetId::MOS, view.root_blkptr()).await.unwrap();
        let directory = mos.object(DIRECTORY_OBJECT).await.unwrap();
        let history = zap::lookup_u64(&directory, HISTORY).await.unwrap().unwrap();
        drop((view, mos, directory));
        let blocks =
            Blocks { objset: 0, object: Some(history), level: None, blocks: (0, u64::MAX), copies: 0 };
        pool.inject(Fault::Block { blocks, error: BlockError::Io }, ALWAYS).unwrap();
        pool.flush_cache();
        let at = leaf(&pool, "d0").guid;
        assert!(pool.attach(at, disks.leaf("d1"), Purpose::Mirror, None).await.is_err());
        assert!(pool.suspended().is_some(), "nothing of it was committed");
        assert!(pool.close(PoolState::Exported).await.is_err());
    });
    block_on(async {
        std::fs::remove_file(disks.file("d1")).unwrap();
        let pool = disks.import("tank", 2).await;
        assert_eq!(shape(top(&pool)), "d0");
        holds(&pool, 1).await;
        export(pool).await;
    });
    disks.judge("tank");
}
