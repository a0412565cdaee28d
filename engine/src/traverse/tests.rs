//! Walks over golden pools: what is visited, in which order, and that nothing is lost where one stops.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use device::block_on;
use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;
use ondisk::dnode::Dnode;
use ondisk::dsl_dataset::DslDatasetPhys;
use ondisk::{Reader, Txg};

use super::place::{Relation, Resume};
use super::{Births, Descend, End, Leads, Node, Order, Survey, Visitor, Walk, survey};
use crate::error::{Error, Result};
use crate::pool::discovery;
use crate::pool::import::{ImportOptions, import};
use crate::vdev::LABEL_START_BYTES;
use crate::zio::decode;
use crate::{Block, Bookmark, Pool};

const BOTH: [Order; 2] = [Order::ParentsFirst, Order::ChildrenFirst];

fn open(dir: &Path) -> Arc<Pool> {
    block_on(async {
        let found = discovery::scan(&[dir]).await.unwrap().remove(0);
        import(&found, &ImportOptions::read_only()).await.unwrap()
    })
}

/// `None` when golden pools are to be skipped.
fn golden(name: &str) -> Option<Arc<Pool>> {
    Some(open(&testkit::golden::pool(name)?.dir))
}

/// Notes what it visits.
#[derive(Default)]
struct Seen {
    blocks: Vec<Node>,
    objects: Vec<u64>,
    damage: Vec<Bookmark>,
    datasets: Vec<(u64, Blkptr, Txg)>,
    /// Stops before this block, once.
    stop: Option<Bookmark>,
    /// What is below this block is left out.
    past: Option<Bookmark>,
}

impl Seen {
    fn places(&self) -> Vec<Bookmark> {
        self.blocks.iter().map(|node| node.at).collect()
    }
}

impl Visitor for Seen {
    fn stops(&mut self, at: &Bookmark) -> bool {
        self.stop.take_if(|stop| stop == at).is_some()
    }

    fn object(&mut self, objset: u64, object: u64, dnode: &Dnode) {
        self.objects.push(object);
        if objset == 0 && dnode.bonus_type == DmuType::DSL_DATASET {
            let mut reader = Reader::new("dataset", &dnode.bonus, dnode.order);
            let phys = DslDatasetPhys::read(&mut reader).unwrap();
            self.datasets.push((object, phys.bp, phys.prev_snap_txg));
        }
    }

    fn block(&mut self, node: &Node) -> Descend {
        self.blocks.push(*node);
        if self.past == Some(node.at) { Descend::Past } else { Descend::Into }
    }

    fn damaged(&mut self, at: Bookmark, _: Error) -> Result<()> {
        self.damage.push(at);
        Ok(())
    }
}

fn walk_of(pool: &Pool, (objset, root): (u64, Blkptr), births: Births, order: Order) -> Walk {
    Walk::new(pool.store(), objset, root, births, order)
}

fn seen(mut walk: Walk, mut seen: Seen) -> Seen {
    assert_eq!(block_on(walk.run(&mut seen)).unwrap(), End::Complete);
    seen
}

fn all(pool: &Pool, of: (u64, Blkptr), order: Order) -> Seen {
    seen(walk_of(pool, of, Births::ALL, order), Seen::default())
}

/// Says where two walks part.
fn assert_same(what: &str, found: &[Bookmark], expected: &[Bookmark]) {
    let part = (0..).zip(found.iter().zip(expected)).find(|(_, (found, expected))| found != expected);
    assert!(part.is_none(), "{what}: {part:?}");
    assert_eq!(found.len(), expected.len(), "{what}");
}

fn mos(pool: &Pool) -> (u64, Blkptr) {
    (0, *pool.root_blkptr())
}

/// The object sets of a pool, the MOS first.
fn objsets(pool: &Pool) -> Vec<(u64, Blkptr)> {
    let datasets = all(pool, mos(pool), Order::ParentsFirst).datasets;
    let datasets = datasets.into_iter().map(|(objset, bp, _)| (objset, bp));
    [mos(pool)].into_iter().chain(datasets.filter(|(_, bp)| !bp.is_hole())).collect()
}

#[test]
fn each_block_comes_once_and_beside_what_it_leads_to() {
    for name in ["single", "codecs", "volumes", "crypt", "legacy28"] {
        let Some(pool) = golden(name) else { return };
        for of in objsets(&pool) {
            let [first, last] = BOTH.map(|order| all(&pool, of, order));
            let set = |seen: &Seen| seen.places().into_iter().collect::<BTreeSet<_>>();
            assert!(set(&first) == set(&last), "{name}, objset {}", of.0);
            assert!(first.damage.is_empty() && set(&first).len() == first.blocks.len());
            assert_eq!(first.objects, last.objects);
            for (seen, order) in [(&first, Order::ParentsFirst), (&last, Order::ChildrenFirst)] {
                let index: BTreeMap<Bookmark, usize> = seen.places().into_iter().zip(0..).collect();
                for node in seen.blocks.iter().filter(|node| node.leads() == Leads::ToPointers) {
                    let per_block = node.bp.lsize().get() / Blkptr::SIZE as u64;
                    let (blkid, level) = (node.at.blkid * per_block, node.at.level - 1);
                    let below = (blkid..blkid + per_block).map(|blkid| Bookmark { blkid, level, ..node.at });
                    for below in below.filter_map(|at| index.get(&at)) {
                        assert_eq!(index[&node.at] < *below, order == Order::ParentsFirst);
                    }
                }
                let data: Vec<Bookmark> = seen.places().into_iter().filter(|at| at.level == 0).collect();
                for pair in data.windows(2) {
                    let relation = Resume::new(pair[1], order).relation(&pair[0], 0);
                    assert!(matches!(relation, Relation::Done | Relation::Within), "{pair:?}");
                }
            }
        }
    }
}

#[test]
fn only_blocks_of_the_range_are_visited() {
    let Some(pool) = golden("single") else { return };
    for of in objsets(&pool) {
        let whole = all(&pool, of, Order::ParentsFirst);
        let births: BTreeSet<Txg> = whole.blocks.iter().map(|node| node.bp.birth()).collect();
        let births: Vec<Txg> = births.into_iter().collect();
        let middle = births[births.len() / 2];
        for births in [
            Births::after(middle),
            Births { after: Txg::NONE, until: middle },
            Births { after: births[births.len() / 3], until: middle },
            Births::after(births[births.len() - 1]),
        ] {
            let is_in = |node: &&Node| node.bp.birth() > births.after && node.bp.birth() <= births.until;
            let expected: Vec<Bookmark> = whole.blocks.iter().filter(is_in).map(|node| node.at).collect();
            let found = seen(walk_of(&pool, of, births, Order::ParentsFirst), Seen::default());
            assert_same(&format!("objset {}, {births:?}", of.0), &found.places(), &expected);
        }
    }
}

#[test]
fn a_walk_that_stops_anywhere_goes_on_with_exactly_the_rest() {
    let Some(pool) = golden("single") else { return };
    for of in objsets(&pool).into_iter().take(3) {
        for order in BOTH {
            let whole = all(&pool, of, order);
            let places: Vec<Bookmark> =
                whole.places().into_iter().filter(|at| Resume::is_stop(at, order)).collect();
            for place in places.iter().step_by(places.len() / 100 + 1) {
                let what = format!("objset {}, {order:?}, {place}", of.0);
                let mut walk = walk_of(&pool, of, Births::ALL, order);
                let mut before = Seen { stop: Some(*place), ..Seen::default() };
                assert_eq!(block_on(walk.run(&mut before)).unwrap(), End::Stopped(*place), "{what}");
                let after = seen(walk_of(&pool, of, Births::ALL, order).resume_at(*place), Seen::default());
                assert_same(&what, &[before.places(), after.places()].concat(), &whole.places());
                if order == Order::ParentsFirst {
                    assert_eq!([&before.objects[..], &after.objects].concat(), whole.objects, "{what}");
                }
                // The same walk goes on, too.
                let same = seen(walk, before);
                assert_same(&what, &same.places(), &whole.places());
            }
        }
    }
}

#[test]
fn the_first_block_of_dnodes_is_the_beginning() {
    let Some(pool) = golden("single") else { return };
    let whole = all(&pool, mos(&pool), Order::ParentsFirst);
    let walk = walk_of(&pool, mos(&pool), Births::ALL, Order::ParentsFirst);
    let again = seen(walk.resume_at(Bookmark::data(0, 0, 0)), Seen::default());
    assert_same("again", &again.places(), &whole.places());
}

#[test]
fn what_is_damaged_is_reported_and_what_is_below_it_is_left_out() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let dir = tempfile::tempdir().unwrap();
    let disks = golden.private_copy(dir.path()).unwrap();
    let pool = open(dir.path());
    // One that has a block of dnodes with something below, and an indirect block.
    let (of, whole) = objsets(&pool)
        .into_iter()
        .skip(1)
        .map(|of| (of, all(&pool, of, Order::ParentsFirst)))
        .find(|(_, whole)| whole.blocks.iter().any(|node| node.at.object > 0 && node.at.level > 0))
        .unwrap();
    let indirect = whole.blocks.iter().find(|node| node.at.object > 0 && node.at.level > 0).unwrap();
    let dnodes = whole.blocks.iter().find(|node| node.leads() == Leads::ToDnodes).unwrap();
    for damaged in [indirect, dnodes] {
        let past = Seen { past: Some(damaged.at), ..Seen::default() };
        let rest = seen(walk_of(&pool, of, Births::ALL, Order::ParentsFirst), past);
        assert!(rest.blocks.len() < whole.blocks.len());
        for dva in damaged.bp.dvas() {
            let disk = std::fs::OpenOptions::new().write(true).open(&disks[dva.vdev.get() as usize]).unwrap();
            disk.write_all_at(&[0xa5; 512], LABEL_START_BYTES + dva.offset.get()).unwrap();
        }
        let pool = open(dir.path());
        let found = all(&pool, of, Order::ParentsFirst);
        assert_same("damaged", &found.places(), &rest.places());
        assert!(found.damage.contains(&damaged.at));
        // What was not read whole is not visited after what it leads to.
        let last = all(&pool, of, Order::ChildrenFirst);
        assert_eq!(last.blocks.len() + last.damage.len(), found.blocks.len());
    }
}

/// Notes blocks, in no order.
struct Counting(Arc<Pool>);

impl Survey for Counting {
    type Tag = Txg;
    type Found = Vec<Bookmark>;
    type Ahead = ();

    fn after(&self, after: &Txg) -> Txg {
        *after
    }

    async fn read_ahead(&self, _: &[Node<Txg>]) {}

    async fn block(&self, node: &Node<Txg>, (): &(), found: &mut Self::Found) -> Result<Option<Block>> {
        found.push(node.at);
        if node.leads() == Leads::Nowhere {
            return Ok(None);
        }
        decode(&node.bp, &node.at, self.0.read_raw(&node.bp, &node.at).await?, None).map(Some)
    }

    fn object(
        &self,
        node: &Node<Txg>,
        object: u64,
        dnode: &Dnode,
        _: &mut Self::Found,
    ) -> Result<Option<Node<Txg>>> {
        let mut seen = Seen::default();
        seen.object(node.at.objset, object, dnode);
        let root = seen.datasets.pop().filter(|(_, bp, after)| bp.birth() > *after);
        Ok(root.map(|(objset, bp, after)| Node { bp, at: Bookmark::objset_root(objset), tag: after }))
    }

    fn damaged(&self, at: Bookmark, error: Error, _: &mut Self::Found) {
        panic!("{at}: {error}");
    }

    fn merge(&self, found: &mut Self::Found, more: Self::Found) {
        found.extend(more);
    }

    fn is_cancelled(&self) -> bool {
        false
    }
}

#[test]
fn many_at_a_time_are_the_same_blocks() {
    for name in ["single", "codecs", "crypt"] {
        let Some(pool) = golden(name) else { return };
        let (_, bp) = mos(&pool);
        let root = Node { bp, at: Bookmark::objset_root(0), tag: Txg::NONE };
        let mut found = survey(&Counting(Arc::clone(&pool)), 3, [root]).unwrap();
        found.sort_unstable();
        let of_mos = all(&pool, mos(&pool), Order::ParentsFirst);
        let mut expected = of_mos.places();
        for (objset, bp, after) in of_mos.datasets {
            let walk = walk_of(&pool, (objset, bp), Births::after(after), Order::ParentsFirst);
            expected.extend(seen(walk, Seen::default()).places());
        }
        expected.sort_unstable();
        assert_same(name, &found, &expected);
    }
}

/// What a walk with gaps comes to, in words.
#[derive(Default)]
struct WithGaps {
    seen: Vec<String>,
    objects: Vec<u64>,
    blocks: usize,
    free: usize,
    /// Stops before so many of all that comes.
    budget: usize,
}

impl Visitor for WithGaps {
    fn stops(&mut self, _: &Bookmark) -> bool {
        let stops = self.budget == 0;
        self.budget = if stops { 7 } else { self.budget - 1 };
        stops
    }

    fn object(&mut self, _: u64, object: u64, _: &Dnode) {
        panic!("object {object} comes with its slots");
    }

    fn dnode(&mut self, object: u64, dnode: &Dnode, slots: &[u8]) {
        if object != 0 {
            assert_eq!(slots.len() as u64, dnode.slots() * 512, "{object}");
        }
        self.objects.push(object);
        self.seen.push(format!("object {object}"));
    }

    fn free_slot(&mut self, object: u64) {
        self.free += 1;
        self.seen.push(format!("free {object}"));
    }

    fn hole(&mut self, node: &Node) {
        assert!(node.bp.is_hole());
        self.seen.push(format!("hole {}", node.at));
    }

    fn block(&mut self, node: &Node) -> Descend {
        assert!(!node.bp.is_hole());
        self.blocks += 1;
        self.seen.push(format!("block {}", node.at));
        Descend::Into
    }

    fn damaged(&mut self, _: Bookmark, error: Error) -> Result<()> {
        Err(error)
    }
}

fn with_gaps(mut walk: Walk, budget: usize) -> WithGaps {
    let mut seen = WithGaps { budget, ..WithGaps::default() };
    while block_on(walk.run(&mut seen)).unwrap() != End::Complete {}
    seen
}

#[test]
fn a_walk_with_gaps_comes_to_what_is_not_there_too_and_goes_on_where_it_stopped() {
    let Some(pool) = golden("single") else { return };
    for of in objsets(&pool).into_iter().skip(1) {
        let walk = || walk_of(&pool, of, Births::ALL, Order::ParentsFirst);
        let plain = seen(walk(), Seen::default());
        let whole = with_gaps(walk().with_gaps(), usize::MAX);
        let objects: Vec<u64> =
            plain.objects.iter().copied().filter(|object| *object < u64::MAX - 2).collect();
        assert_eq!(whole.objects, objects, "all but those that count space");
        let blocks = plain.blocks.iter().filter(|node| node.at.object < u64::MAX - 2).count();
        assert_eq!(whole.blocks, blocks);
        assert_eq!(whole.seen, with_gaps(walk().with_gaps(), 7).seen, "stops change nothing");
        // Each slot of a block of dnodes is in an object, or free.
        assert!(whole.free > 0);
        let Some(last) = objects.last().filter(|last| **last > 0) else { continue };
        let rest = with_gaps(walk().with_gaps().resume_at(Bookmark::data(of.0, *last, 0)), usize::MAX);
        assert_eq!(rest.objects.last(), Some(last), "an object in the middle of which a walk goes on comes");
        let from = whole.seen.iter().position(|seen| *seen == format!("object {last}")).unwrap();
        let begun = rest.seen.iter().position(|seen| *seen == format!("object {last}")).unwrap();
        assert_eq!(rest.seen[begun..], whole.seen[from..]);
        assert!(rest.objects.iter().all(|object| *object == 0 || object >= last));
    }
}
