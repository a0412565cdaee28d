//! Random changes of a pool of datasets, judged by counting everything anew.
//!
//! After each few changes the blocks of every head and snapshot are collected from their trees. From these
//! sets follows what each dataset references, what is unique to it, what is on its deadlist, and what each
//! directory uses: all of it must be what the MOS says.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use device::{Device, MemoryDevice, block_on};
use ondisk::blkptr::Dva;
use ondisk::dsl_dataset::{DslDatasetPhys, FLAG_DEFER_DESTROY};
use ondisk::features::Feature;
use ondisk::pool_directory::{DELETED_CLONES, FREE_BPOBJ, hidden_dir};
use ondisk::{ObjectId, ObjsetId, Txg};

use super::objects;
use super::space::{sum, weigh};
use super::*;
use crate::dmu::Space;
use crate::env::{Env, Seeded};
use crate::pool::live::{
    Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, Syncing, default_features,
};
use crate::txg::{Limits, Tx};
use crate::vdev::Class;

type BlockKey = (Option<Dva>, Txg, [u64; 16]);

/// A pool in memory.
pub(super) async fn pool(seed: u64) -> Arc<LivePool> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("/d0", 256 << 20));
    let leaf = NewLeaf { device, path: "/d0".into(), is_file: true, whole_disk: false };
    let new = NewPool {
        name: "tank".into(),
        tops: vec![NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] }],
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(9),
        version: ondisk::pool_version::FEATURES,
        features: default_features(),
        properties: Vec::new(),
        root_properties: vec![("compression".into(), "off".into())],
        altroot: None,
        command: None,
    };
    let surroundings = Surroundings {
        env: Arc::new(Seeded::new(seed)),
        cache: None,
        limits: Limits::default(),
        host: (1, "test".into()),
    };
    LivePool::create(new, surroundings).await.unwrap()
}

fn volume(name: &str, size: u64) -> NewDataset {
    NewDataset {
        name: name.into(),
        contents: NewContents::Volume { size, sparse: true },
        properties: vec![("volblocksize".into(), "4K".into())],
    }
}

fn filesystem(name: &str) -> NewDataset {
    NewDataset { name: name.into(), contents: NewContents::Filesystem, properties: Vec::new() }
}

fn one_snapshot(name: &str) -> Vec<NewSnapshot> {
    vec![NewSnapshot { name: name.into(), properties: Vec::new() }]
}

/// Runs a change in a group of its own.
macro_rules! change {
    ($pool:expr, |$s:ident| $body:expr) => {
        $pool.change(move |$s: Syncing| async move { $body.await }).await
    };
}

const SIZE: u64 = 4 << 20;
const BLOCK: u64 = 4096;

async fn objset_id(pool: &Arc<LivePool>, name: &str) -> ObjsetId {
    let name = name.to_owned();
    change!(pool, |s| async move { find_head(&s, &name).await.map(|head| ObjsetId(head.object.get())) })
        .unwrap()
}

/// Fills blocks of a volume with a value each.
async fn write(pool: &Arc<LivePool>, name: &str, blocks: &[(u64, u8)]) {
    let id = objset_id(pool, name).await;
    let dataset = pool.dataset(id).await.unwrap();
    let content = dataset.objset.object(ObjectId(1)).await.unwrap();
    let tx: Tx = pool.txgs().begin(blocks.len() as u64 * BLOCK).await.unwrap();
    for (block, value) in blocks {
        match value {
            0 => content.punch(&tx, block * BLOCK, BLOCK).await.unwrap(),
            value => content.write_at(&tx, block * BLOCK, &vec![*value; BLOCK as usize]).await.unwrap(),
        }
    }
    drop(tx);
    pool.sync().await.unwrap();
}

/// The first byte of each block of a dataset.
async fn read(s: &Syncing, id: ObjectId, blocks: u64) -> Vec<u8> {
    let phys = objects::dataset(s, id).await.unwrap();
    let objset = crate::dmu::Objset::open(s.pool.pool(), ObjsetId(id.get()), &phys.bp).await.unwrap();
    let content = objset.object(ObjectId(1)).await.unwrap();
    let mut values = Vec::new();
    for block in 0..blocks {
        let mut byte = [0];
        content.read_at(block * BLOCK, &mut byte).await.unwrap();
        values.push(byte[0]);
    }
    values
}

/// Everything that a dataset refers to.
#[derive(Default)]
struct Blocks(HashMap<BlockKey, (Txg, Space)>);

impl Blocks {
    async fn of(s: &Syncing, phys: &DslDatasetPhys) -> Blocks {
        let mut all = HashMap::new();
        if !phys.bp.is_hole() {
            let mut walk = bptree::Walk::new(phys.bp, Txg::NONE, None);
            for (index, bp) in walk.next(s.pool.pool(), usize::MAX).await.unwrap().iter().enumerate() {
                // Embedded blocks have no address: each is itself.
                let mut words = [0; 16];
                if bp.is_embedded() {
                    words = *bp.words();
                    words[0] ^= (index as u64) << 32;
                }
                all.insert((bp.dva(0), bp.logical_birth(), words), (bp.logical_birth(), weigh(s, bp)));
            }
        }
        Blocks(all)
    }

    fn space(&self, counts: impl Fn(&BlockKey, Txg) -> bool) -> Space {
        let counted = self.0.iter().filter(|(key, (birth, _))| counts(key, *birth));
        counted.map(|(_, (_, space))| *space).fold(Space::default(), sum)
    }

    fn has(&self, key: &BlockKey) -> bool {
        self.0.contains_key(key)
    }
}

/// Counts everything anew, and compares. Embedded blocks cannot be told apart, so what they count is left out
/// by having none.
async fn check(s: &Syncing) {
    let mut datasets: BTreeMap<ObjectId, (DslDatasetPhys, Blocks)> = BTreeMap::new();
    let mut dirs = Vec::new();
    let mut pending = vec![(root_dir(s).await.unwrap(), "tank".to_owned())];
    while let Some((id, name)) = pending.pop() {
        let dir = objects::dir(s, id).await.unwrap();
        for (child, id) in objects::entries(s, dir.child_dir_zap).await.unwrap() {
            pending.push((ObjectId(id), format!("{name}/{child}")));
        }
        if !dir.head_dataset.is_none() {
            let head = objects::dataset(s, dir.head_dataset).await.unwrap();
            datasets.insert(dir.head_dataset, (head, Blocks::of(s, &head).await));
            for (_, snapshot) in objects::entries(s, head.snapnames_zap).await.unwrap() {
                let phys = objects::dataset(s, ObjectId(snapshot)).await.unwrap();
                assert_eq!(phys.dir, id, "{name}");
                datasets.insert(ObjectId(snapshot), (phys, Blocks::of(s, &phys).await));
            }
        }
        dirs.push((id, name, dir));
    }
    let none = Blocks::default();
    let blocks_of = |id: ObjectId| datasets.get(&id).map_or(&none, |(_, blocks)| blocks);
    for (id, (phys, blocks)) in &datasets {
        let referenced = blocks.space(|_, _| true);
        assert_eq!(phys.referenced_bytes, referenced.used, "{id} references");
        assert_eq!(phys.compressed_bytes, referenced.compressed, "{id} compressed");
        assert_eq!(phys.uncompressed_bytes, referenced.uncompressed, "{id} uncompressed");
        let previous = blocks_of(phys.prev_snap);
        let next = blocks_of(phys.next_snap);
        let unique = blocks.space(|key, _| !previous.has(key) && !next.has(key));
        assert_eq!(phys.unique_bytes, unique.used, "{id} unique: {phys:?}");
        // The deadlist has what the previous snapshot has and this has not.
        let dead = previous.space(|key, _| !blocks.has(key));
        let listed = deadlist::space(s, phys.deadlist).await.unwrap();
        assert_eq!(listed, dead, "{id} deadlist");
        let mut keys: Vec<Txg> = objects::entries(s, phys.deadlist)
            .await
            .unwrap()
            .iter()
            .map(|(key, _)| Txg(u64::from_str_radix(key, 16).unwrap()))
            .collect();
        keys.sort();
        for (index, since) in keys.iter().enumerate() {
            let until = keys.get(index + 1).copied().unwrap_or(Txg(u64::MAX));
            let range = deadlist::space_range(s, phys.deadlist, *since, until).await.unwrap();
            let dead = previous.space(|key, birth| !blocks.has(key) && birth > *since && birth <= until);
            assert_eq!(range, dead, "{id} deadlist from {since} to {until}");
        }
        if phys.is_snapshot() {
            let clones = datasets.values().filter(|(other, _)| other.prev_snap == *id).count() as u64;
            // The empty origin has clones whose heads are all counted.
            assert_eq!(phys.num_children, clones, "{id} children");
        }
    }
    for (id, name, dir) in &dirs {
        let breakdown = dir.used_breakdown().unwrap();
        let total = breakdown.head
            + breakdown.snap
            + breakdown.child
            + breakdown.child_reserved
            + breakdown.refreserved;
        assert_eq!(dir.used_bytes, total, "{name} breakdown");
        let children = dirs.iter().filter(|(_, _, child)| child.parent == *id);
        let (mut child, mut reserved) = (0, 0);
        for (_, _, of_child) in children {
            child += of_child.used_bytes;
            reserved += of_child.reserved.saturating_sub(of_child.used_bytes);
        }
        assert_eq!(breakdown.child, child, "{name} children");
        assert_eq!(breakdown.child_reserved, reserved, "{name} reservations of children");
        if dir.head_dataset.is_none() {
            continue;
        }
        let origin_txg = account::origin_txg(s, *id).await.unwrap();
        let head = blocks_of(dir.head_dataset);
        let own = head.space(|_, birth| birth > origin_txg);
        assert_eq!(breakdown.head, own.used, "{name} head");
        let mut seen: HashSet<BlockKey> = HashSet::new();
        let mut snapshots = Space::default();
        for (_, (phys, blocks)) in datasets.iter().filter(|(_, (phys, _))| phys.dir == *id) {
            if phys.is_snapshot() {
                for (key, (birth, space)) in &blocks.0 {
                    if *birth > origin_txg && !head.has(key) && seen.insert(*key) {
                        snapshots = sum(snapshots, *space);
                    }
                }
            }
        }
        assert_eq!(breakdown.snap, snapshots.used, "{name} snapshots");
        let (phys, _) = &datasets[&dir.head_dataset];
        let refreservation =
            properties::number(s, *id, crate::properties::Prop::Refreservation).await.unwrap();
        assert_eq!(breakdown.refreserved, refreservation.saturating_sub(phys.unique_bytes), "{name}");
        if let Some(livelist) = livelist::of(s, *id).await.unwrap() {
            let (listed, space, _) = livelist::contents(s, livelist).await;
            let mut listed: Vec<_> = listed.iter().map(|bp| (bp.dva(0), bp.logical_birth())).collect();
            let own = head.0.keys().filter(|(place, birth, _)| place.is_some() && *birth > origin_txg);
            let mut own: Vec<_> = own.map(|(place, birth, _)| (*place, *birth)).collect();
            listed.sort();
            own.sort();
            assert_eq!(listed, own, "{name} livelist");
            assert_eq!(space.used, breakdown.head, "{name} livelist");
        }
    }
    // What waits to be freed.
    let mut waiting = Space::default();
    let list = objects::pool_entry(s, FREE_BPOBJ).await.unwrap().unwrap();
    waiting = sum(waiting, bpobj::space(s, list).await.unwrap());
    if let Some(trees) = bptree::open(s).await.unwrap() {
        waiting = sum(waiting, trees.header.space);
    }
    if let Some(deleted) = objects::pool_entry(s, DELETED_CLONES).await.unwrap() {
        for (_, livelist) in objects::entries(s, deleted).await.unwrap() {
            waiting = sum(waiting, livelist::contents(s, ObjectId(livelist)).await.1);
        }
    }
    let free = objects::dir(s, account::hidden(s, hidden_dir::FREE).await.unwrap()).await.unwrap();
    assert_eq!(free.used_bytes, waiting.used, "$FREE");
}

async fn judge(pool: &Arc<LivePool>) {
    change!(pool, |s| async move {
        check(&s).await;
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_new_pool_counts_right() {
    block_on(async {
        let pool = pool(1).await;
        judge(&pool).await;
        change!(pool, |s| async move { create(&s, &filesystem("tank/fs")).await }).unwrap();
        change!(pool, |s| async move { create(&s, &volume("tank/fs/vol", SIZE)).await }).unwrap();
        judge(&pool).await;
        let again = change!(pool, |s| async move { create(&s, &filesystem("tank/fs")).await });
        assert!(matches!(again, Err(Error::Exists(_))));
        let below = change!(pool, |s| async move { create(&s, &filesystem("tank/fs/vol/x")).await });
        assert!(matches!(below, Err(Error::WrongType { .. })));
    });
}

#[test]
fn snapshots_keep_what_the_head_gives_up_until_they_go() {
    block_on(async {
        let pool = pool(2).await;
        change!(pool, |s| async move { create(&s, &volume("tank/v", SIZE)).await }).unwrap();
        write(&pool, "tank/v", &[(0, 1), (1, 1), (2, 1)]).await;
        change!(pool, |s| async move { snapshot(&s, &one_snapshot("tank/v@a")).await }).unwrap();
        judge(&pool).await;
        write(&pool, "tank/v", &[(0, 2), (5, 2)]).await;
        change!(pool, |s| async move { snapshot(&s, &one_snapshot("tank/v@b")).await }).unwrap();
        write(&pool, "tank/v", &[(1, 3), (5, 3)]).await;
        judge(&pool).await;
        change!(pool, |s| async move {
            let a = find_snapshot(&s, "tank/v@a").await?;
            let b = find_snapshot(&s, "tank/v@b").await?;
            assert_eq!(read(&s, a.object, 6).await, [1, 1, 1, 0, 0, 0]);
            assert_eq!(read(&s, b.object, 6).await, [2, 1, 1, 0, 0, 2]);
            destroy_snapshots(&s, &["tank/v@a".into()], false).await
        })
        .unwrap();
        judge(&pool).await;
        change!(pool, |s| async move { destroy_snapshots(&s, &["tank/v@b".into()], false).await }).unwrap();
        judge(&pool).await;
        change!(pool, |s| async move { destroy(&s, "tank/v").await }).unwrap();
        pool.sync().await.unwrap();
        judge(&pool).await;
        change!(pool, |s| async move {
            assert!(!free_some(&s, 1).await?, "nothing waits to be freed");
            Ok(())
        })
        .unwrap();
    });
}

#[test]
fn a_tree_is_taken_down_in_steps_each_of_which_goes_on_where_the_last_stopped() {
    block_on(async {
        let pool = pool(3).await;
        change!(pool, |s| async move { create(&s, &volume("tank/v", SIZE)).await }).unwrap();
        let blocks: Vec<(u64, u8)> = (0..500).map(|block| (block, 1 + (block % 200) as u8)).collect();
        write(&pool, "tank/v", &blocks).await;
        change!(pool, |s| async move { snapshot(&s, &one_snapshot("tank/v@a")).await }).unwrap();
        change!(pool, |s| async move { clone(&s, "tank/v@a", "tank/c", &[]).await }).unwrap();
        write(&pool, "tank/c", &blocks[..300].iter().map(|(block, _)| (*block, 7)).collect::<Vec<_>>()).await;
        change!(pool, |s| async move {
            let dir = find_head(&s, "tank/c").await?.phys.dir;
            assert_eq!(livelist::of(&s, dir).await?, None, "most of the clone is its own");
            destroy(&s, "tank/c").await?;
            let mut steps = 0;
            while free_some(&s, 7).await? {
                check(&s).await;
                steps += 1;
            }
            assert!(steps > 40, "300 blocks and more at 7 a step take more than {steps}");
            assert!(bptree::open(&s).await?.is_none(), "the list of trees goes with its last tree");
            check(&s).await;
            destroy_snapshots(&s, &["tank/v@a".into()], false).await?;
            destroy(&s, "tank/v").await?;
            while free_some(&s, 50).await? {}
            let free = objects::dir(&s, account::hidden(&s, hidden_dir::FREE).await?).await?;
            assert_eq!((free.used_bytes, free.compressed_bytes, free.uncompressed_bytes), (0, 0, 0));
            Ok(())
        })
        .unwrap();
    });
}

#[test]
fn a_clone_knows_its_own_blocks_and_is_freed_list_by_list() {
    block_on(async {
        let pool = pool(4).await;
        let uses = |pool: &Arc<LivePool>| pool.feature_count(Feature::Livelist).unwrap();
        change!(pool, |s| async move { create(&s, &volume("tank/v", SIZE)).await }).unwrap();
        let blocks: Vec<(u64, u8)> = (0..900).map(|block| (block, 1 + (block % 200) as u8)).collect();
        write(&pool, "tank/v", &blocks).await;
        change!(pool, |s| async move { snapshot(&s, &one_snapshot("tank/v@a")).await }).unwrap();
        change!(pool, |s| async move { clone(&s, "tank/v@a", "tank/c", &[]).await }).unwrap();
        assert_eq!(uses(&pool), 1);
        let (mut seen, mut now) = (BTreeSet::<Txg>::new(), BTreeSet::<Txg>::new());
        for round in 0..30u8 {
            // Some blocks again and again, some once.
            let once = 100 + u64::from(round) * 3;
            let blocks = [0, 1, 2, 3, once, once + 1, once + 2].map(|block| (block, round + 1));
            write(&pool, "tank/c", &blocks).await;
            judge(&pool).await;
            let lists = change!(pool, |s| async move {
                let dir = find_head(&s, "tank/c").await?.phys.dir;
                let livelist = livelist::of(&s, dir).await?.unwrap();
                Ok(livelist::contents(&s, livelist).await.2.into_iter().collect::<BTreeSet<_>>())
            });
            now = lists.unwrap();
            seen.extend(&now);
        }
        assert!(seen.len() > 6, "full lists are followed by others: {seen:?}");
        assert!(now.len() * 2 < seen.len(), "lists of which little is left are made one: {seen:?}, {now:?}");
        change!(pool, |s| async move { snapshot(&s, &one_snapshot("tank/c@s")).await }).unwrap();
        write(&pool, "tank/c", &[(0, 99), (1, 99), (700, 99)]).await;
        judge(&pool).await;
        change!(pool, |s| async move { destroy_snapshots(&s, &["tank/c@s".into()], false).await }).unwrap();
        judge(&pool).await;
        change!(pool, |s| async move {
            destroy(&s, "tank/c").await?;
            let mut steps = 0;
            while free_some(&s, 1).await? {
                check(&s).await;
                steps += 1;
            }
            assert!(steps >= 3, "one list is freed at a time: {steps}");
            assert_eq!(objects::pool_entry(&s, DELETED_CLONES).await?, None);
            check(&s).await;
            Ok(())
        })
        .unwrap();
        assert_eq!(uses(&pool), 0);
    });
}

/// Earlier versions promoted what a receive fills when they were asked to.
#[test]
fn a_hidden_child_that_was_promoted_gives_the_snapshots_back() {
    use super::receive::RECEIVE_CHILD;
    block_on(async {
        let pool = pool(7).await;
        change!(pool, |s| async move { create(&s, &volume("tank/v", SIZE)).await }).unwrap();
        write(&pool, "tank/v", &[(0, 1), (1, 2)]).await;
        change!(pool, |s| async move { snapshot(&s, &one_snapshot("tank/v@1")).await }).unwrap();
        let hidden = format!("tank/v/{RECEIVE_CHILD}");
        let name = hidden.clone();
        change!(pool, |s| async move {
            let snapshot = find_snapshot(&s, "tank/v@1").await?;
            let head = find_head(&s, "tank/v").await?;
            let dir = create::create_dir(&s, Some(head.phys.dir), RECEIVE_CHILD).await?;
            let id = create::create_dataset(&s, dir, Some(snapshot.object)).await?;
            clone::forget_log(&s, id).await?;
            promote::promote_head(&s, &find_any_head(&s, &name).await?).await
        })
        .unwrap();
        judge(&pool).await;
        let name = hidden.clone();
        let refused = change!(pool, |s| async move { promote(&s, &name).await }).unwrap_err();
        assert!(refused.to_string().contains("hidden datasets can only be destroyed"), "{refused}");
        let refused = change!(pool, |s| async move { destroy(&s, "tank/v").await }).unwrap_err();
        assert!(matches!(refused, Error::Busy(_)), "{refused}");
        assert!(change!(pool, |s| async move { promote_back(&s, "tank/v").await }).unwrap());
        assert!(!change!(pool, |s| async move { promote_back(&s, "tank/v").await }).unwrap());
        change!(pool, |s| async move { destroy(&s, &hidden).await }).unwrap();
        change!(pool, |s| async move { destroy_snapshots(&s, &["tank/v@1".to_owned()], false).await })
            .unwrap();
        judge(&pool).await;
    });
}

#[test]
fn livelists_end_when_clones_get_other_origins() {
    block_on(async {
        let pool = pool(5).await;
        let uses = |pool: &Arc<LivePool>| pool.feature_count(Feature::Livelist).unwrap();
        change!(pool, |s| async move { create(&s, &volume("tank/v", SIZE)).await }).unwrap();
        let blocks: Vec<(u64, u8)> = (0..500).map(|block| (block, 1 + (block % 200) as u8)).collect();
        write(&pool, "tank/v", &blocks).await;
        change!(pool, |s| async move { snapshot(&s, &one_snapshot("tank/v@a")).await }).unwrap();
        for name in ["tank/c", "tank/d"] {
            change!(pool, |s| async move { clone(&s, "tank/v@a", name, &[]).await }).unwrap();
            write(&pool, name, &[(0, 9)]).await;
            change!(pool, |s| async move { snapshot(&s, &one_snapshot(&format!("{name}@own"))).await })
                .unwrap();
        }
        change!(pool, |s| async move { clone(&s, "tank/c@own", "tank/e", &[]).await }).unwrap();
        assert_eq!(uses(&pool), 3);
        change!(pool, |s| async move { rollback(&s, "tank/d", None).await }).unwrap();
        assert_eq!(uses(&pool), 2, "what a rollback leaves was not written since the clone began");
        change!(pool, |s| async move { promote(&s, "tank/e").await }).unwrap();
        assert_eq!(uses(&pool), 0, "neither the new origin nor the new clone knows what is its own");
        write(&pool, "tank/c", &[(1, 5)]).await;
        write(&pool, "tank/e", &[(1, 5)]).await;
        judge(&pool).await;
    });
}

/// Names of everything, in order.
#[derive(Default, Debug)]
struct Names {
    heads: BTreeSet<String>,
    snapshots: BTreeSet<String>,
}

async fn names(s: &Syncing) -> Names {
    let mut names = Names::default();
    let mut pending = vec![(root_dir(s).await.unwrap(), "tank".to_owned())];
    while let Some((id, name)) = pending.pop() {
        let dir = objects::dir(s, id).await.unwrap();
        for (child, id) in objects::entries(s, dir.child_dir_zap).await.unwrap() {
            if !child.starts_with('$') {
                pending.push((ObjectId(id), format!("{name}/{child}")));
            }
        }
        let head = objects::dataset(s, dir.head_dataset).await.unwrap();
        for (snapshot, _) in objects::entries(s, head.snapnames_zap).await.unwrap() {
            names.snapshots.insert(format!("{name}@{snapshot}"));
        }
        if name != "tank" {
            names.heads.insert(name);
        }
    }
    names
}

/// Random changes against what each dataset must hold.
async fn random(seed: u64, steps: usize) {
    const BLOCKS: u64 = 12;
    let pool = pool(seed).await;
    let dice = Seeded::new(seed ^ 0x5eed);
    let roll = |sides: usize| (dice.random() % sides.max(1) as u64) as usize;
    let mut contents: HashMap<u64, Vec<u8>> = HashMap::new();
    let sizes = ["none", "8K", "24K", "100K", "1M"];
    for (name, sparse) in [("tank/a", true), ("tank/b", false)] {
        let contents_of = NewContents::Volume { size: SIZE, sparse };
        let mut new = NewDataset { contents: contents_of, ..volume(name, SIZE) };
        new.properties.push(("reservation".into(), sizes[roll(sizes.len())].into()));
        let id = change!(pool, |s| async move { create(&s, &new).await }).unwrap();
        contents.insert(id.0, vec![0; BLOCKS as usize]);
    }
    for step in 0..steps {
        let known = change!(pool, |s| async move { Ok(names(&s).await) }).unwrap();
        let pick = |set: &BTreeSet<String>| set.iter().nth(roll(set.len())).cloned();
        let (head, snap) = (pick(&known.heads), pick(&known.snapshots));
        let new_name = format!("n{step}");
        let what = roll(17);
        let size = sizes[roll(sizes.len())];
        let trace = format!("seed {seed} step {step} kind {what} head {head:?} snapshot {snap:?}");
        // Shown when the test fails.
        println!("{trace}");
        match (what, head, snap) {
            (0..=4, Some(head), _) => {
                let blocks: Vec<(u64, u8)> =
                    (0..1 + roll(6)).map(|_| (roll(BLOCKS as usize) as u64, roll(255) as u8)).collect();
                let id = objset_id(&pool, &head).await;
                for (block, value) in &blocks {
                    contents.get_mut(&id.0).unwrap()[*block as usize] = *value;
                }
                write(&pool, &head, &blocks).await;
            }
            (5..=7, Some(head), _) => {
                let name = format!("{head}@{new_name}");
                let of = objset_id(&pool, &head).await;
                let id = change!(pool, |s| async move {
                    snapshot(&s, &one_snapshot(&name)).await?;
                    find_snapshot(&s, &name).await
                });
                let id = id.unwrap_or_else(|error| panic!("{trace}: {error}")).object;
                contents.insert(id.get(), contents[&of.0].clone());
            }
            (8, _, Some(snap)) => {
                let defer = roll(2) == 0;
                let result = change!(pool, |s| async move { destroy_snapshots(&s, &[snap], defer).await });
                assert!(matches!(result, Ok(()) | Err(Error::Busy(_))), "{trace}: {result:?}");
            }
            (9, _, Some(snap)) => {
                let of = snap.clone();
                let origin = change!(pool, |s| async move { find_snapshot(&s, &of).await }).unwrap().object;
                let name = format!("tank/{new_name}");
                let properties = [("refreservation".to_owned(), size.to_owned())];
                let id = change!(pool, |s| async move { clone(&s, &snap, &name, &properties).await });
                let id = id.unwrap_or_else(|error| panic!("{trace}: {error}"));
                contents.insert(id.0, contents[&origin.get()].clone());
            }
            (10, Some(head), _) => {
                let result = change!(pool, |s| async move { promote(&s, &head).await });
                assert!(
                    matches!(result, Ok(()) | Err(Error::Invalid(_) | Error::Exists(_))),
                    "{trace}: {result:?}"
                );
            }
            (11, Some(head), _) => {
                let id = objset_id(&pool, &head).await;
                let result = change!(pool, |s| async move {
                    let previous = find_head(&s, &head).await?.phys.prev_snap;
                    rollback(&s, &head, None).await.map(|_| previous)
                });
                match result {
                    Ok(previous) => {
                        contents.insert(id.0, contents[&previous.get()].clone());
                    }
                    Err(Error::NotFound(_) | Error::Busy(_)) => {}
                    Err(error) => panic!("{trace}: {error}"),
                }
            }
            (12, Some(head), _) if known.heads.len() > 2 => {
                let result = change!(pool, |s| async move { destroy(&s, &head).await });
                assert!(matches!(result, Ok(_) | Err(Error::Busy(_))), "{trace}: {result:?}");
            }
            (13, Some(head), _) => {
                let to = format!("tank/{new_name}");
                change!(pool, |s| async move { rename(&s, &head, &to).await })
                    .unwrap_or_else(|error| panic!("{trace}: {error}"));
            }
            (14, _, Some(snap)) => {
                let of = snap.split('@').next().unwrap_or_default().to_owned();
                let mark = format!("{of}#{new_name}");
                change!(pool, |s| async move { create_bookmark(&s, &mark, &snap).await })
                    .unwrap_or_else(|error| panic!("{trace}: {error}"));
            }
            (15..=16, Some(head), _) => {
                let property = ["refreservation", "reservation"][what - 15];
                let set = [(property.to_owned(), size.to_owned())];
                change!(pool, |s| async move { set_properties(&s, &head, &set).await })
                    .unwrap_or_else(|error| panic!("{trace}: {error}"));
            }
            _ => {}
        }
        let expected = contents.clone();
        change!(pool, |s| async move {
            check(&s).await;
            let names = names(&s).await;
            let mut ids = Vec::new();
            for name in names.heads {
                ids.push((find_head(&s, &name).await?.object, name));
            }
            for name in names.snapshots {
                let found = find_snapshot(&s, &name).await?;
                let deferred = found.phys.has(FLAG_DEFER_DESTROY) && found.phys.num_children == 1;
                assert!(!deferred, "{name} waits for nothing");
                ids.push((found.object, name));
            }
            for (id, name) in ids {
                let found = read(&s, id, BLOCKS).await;
                assert_eq!(Some(&found), expected.get(&id.get()), "{trace}: {name}");
            }
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn random_changes_count_right_and_keep_contents() {
    let seeds = std::env::var("CENOTE_DSL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2);
    for seed in 0..seeds {
        block_on(random(seed, 60));
    }
}

/// Changes run on whatever thread syncs.
#[test]
fn changes_can_be_sent_to_another_thread() {
    fn check<T: Send>(_: impl FnOnce(Syncing) -> T) {}
    check(|s| async move { create_pool(&s, &[], None).await });
    check(|s| async move { mos_synced(&s, &Default::default()).await });
    check(|s| async move { synced(&s, ondisk::ObjsetId(1), &Default::default()).await });
    check(|s| async move { free_some(&s, 1).await });
    check(|s| async move { snapshot(&s, &[]).await });
    check(|s| async move { destroy_snapshots(&s, &[], true).await });
    check(|s| async move { release(&s, &[], "").await });
    check(|s| async move { destroy(&s, "").await });
    check(|s| async move { clone(&s, "", "", &[]).await });
    check(|s| async move { rollback(&s, "", None).await });
    check(|s| async move { promote(&s, "").await });
    check(|s| async move { rename(&s, "", "").await });
    check(|s| async move { create_bookmark(&s, "", "").await });
    check(|s| async move { destroy_bookmark(&s, "").await });
    check(|s| async move { set_properties(&s, "", &[]).await });
    check(|s| async move { inherit_property(&s, "", "", false).await });
    check(|s| async move { room(&s, ondisk::ObjsetId(1)).await });
}

#[test]
fn objects_that_differ_from_a_snapshot_are_those_that_were_changed_since() {
    use crate::dmu::{Objset, differing_objects};
    use crate::zpl::live::{NewKind, NewNode};

    const FILES: usize = 200;
    block_on(async {
        let pool = pool(5).await;
        change!(pool, |s| create(&s, &filesystem("tank/fs"))).unwrap();
        let id = objset_id(&pool, "tank/fs").await;
        let zpl = pool.filesystem(id).await.unwrap();
        let root = zpl.zpl().root();
        let new = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0 };
        let mut files = Vec::new();
        for number in 0..FILES {
            files.push(zpl.create(root, number.to_string().as_bytes(), &new).await.unwrap());
        }
        pool.sync().await.unwrap();
        change!(pool, |s| snapshot(&s, &one_snapshot("tank/fs@s"))).unwrap();
        let open = async |name: &str| -> Arc<Objset> {
            let dsl = crate::dsl::Dsl::open(&pool.view()).await.unwrap();
            dsl.open_objset(&dsl.find(name).await.unwrap()).await.unwrap()
        };
        let (head, snapshot) = (open("tank/fs").await, open("tank/fs@s").await);
        assert_eq!(differing_objects(&head, &snapshot).await.unwrap(), []);

        let changed = files[FILES / 2];
        zpl.write(changed, 0, b"changed", &Default::default()).await.unwrap();
        zpl.unlink(root, b"7").await.unwrap();
        for number in FILES..2 * FILES {
            files.push(zpl.create(root, number.to_string().as_bytes(), &new).await.unwrap());
        }
        pool.sync().await.unwrap();
        let head = open("tank/fs").await;
        let differing = differing_objects(&head, &snapshot).await.unwrap();
        assert_eq!(differing_objects(&snapshot, &head).await.unwrap(), differing);
        let dnodes = async |id| (head.dnode(id).await.ok(), snapshot.dnode(id).await.ok());
        let mut expected = Vec::new();
        for id in (1..8192).map(ObjectId) {
            let (ours, theirs) = dnodes(id).await;
            expected.extend((ours != theirs).then_some(id));
        }
        assert_eq!(differing, expected);
        assert!(differing.contains(&changed) && !differing.contains(&files[1]));
    });
}
