//! Trees of blocks that are being taken down (`bptree`).
//!
//! The pool's list of them is an object whose contents are entries of 168 bytes; its bonus area says which
//! are left and what they count:
//!
//! | offset | size | entry | | offset | size | bonus |
//! |---|---|---|---|---|---|---|
//! | 0 | 128 | root of the object set | | 0 | 8 | first entry left |
//! | 128 | 8 | only blocks born after this group go | | 8 | 8 | first entry not there yet |
//! | 136 | 32 | where to go on: object set, object, level, block | | 16 | 24 | space left, in three ways |
//!
//! A tree is walked depth first, each block after what it points to, so that what is left is always a tree. A
//! walk stops only before a block of level 0; that block is where it goes on. An object set's order is that
//! of its block tree: the meta-dnode's blocks, and before each block of dnodes the blocks of its objects;
//! then the objects that count space (project, group, user).
//!
//! A tree that is done while one before it is not keeps its place; only blocks born after the last group there
//! can be go, which are none.
//!
//! Source of the facts: OpenZFS 2.3 `bptree.c`, `dmu_traverse.c`, `dsl_scan.c`.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;
use ondisk::dnode::{DNODE_MIN_SIZE, DNODES_PER_BLOCK, Dnode};
use ondisk::features::Feature;
use ondisk::objset::Objset as ObjsetPhys;
use ondisk::pool_directory::{BPTREE_OBJ, DIRECTORY_OBJECT};
use ondisk::{Reader, Txg, Writer};

use super::bpobj::BLOCK_BYTES;
use super::objects::{self, ORDER};
use super::space::{difference, sum};
use crate::dmu::{LiveObject, NewObject, Space};
use crate::dsl::SyncTask;
use crate::error::{Error, Result};
use crate::zio::{decode, decode_embedded};
use crate::{Block, Bookmark, Pool};

const ENTRY_BYTES: u64 = 168;
/// The object set that destroyed ones have in bookmarks (`ZB_DESTROYED_OBJSET`).
const DESTROYED: u64 = u64::MAX;
/// Deeper than any block tree within block trees.
const MAX_DEPTH: usize = 80;

/// The list's header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub begin: u64,
    pub end: u64,
    pub space: Space,
}

impl Header {
    fn parse(bytes: &[u8], order: ondisk::ByteOrder) -> ondisk::Result<Header> {
        let mut reader = Reader::new("list of trees to be freed", bytes, order);
        let [begin, end, used, compressed, uncompressed] = reader.u64s()?;
        Ok(Header { begin, end, space: Space { used, compressed, uncompressed } })
    }

    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(ORDER);
        let Space { used, compressed, uncompressed } = self.space;
        writer.u64s(&[self.begin, self.end, used, compressed, uncompressed]);
        writer.finish()
    }
}

/// A block of level 0, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub object: u64,
    pub block: u64,
}

/// One tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub bp: Blkptr,
    pub since: Txg,
    pub resume: Option<Place>,
}

impl Entry {
    fn parse(bytes: &[u8]) -> ondisk::Result<Entry> {
        let mut reader = Reader::new("tree to be freed", bytes, ORDER);
        let bp = Blkptr::read(&mut reader)?;
        let [since, objset, object, level, block] = reader.u64s()?;
        let fresh = [objset, object, level, block] == [0; 4];
        Ok(Entry { bp, since: Txg(since), resume: (!fresh).then_some(Place { object, block }) })
    }

    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(ORDER);
        self.bp.write(&mut writer);
        writer.u64s(&[self.since.get()]);
        match self.resume {
            None => writer.u64s(&[0; 4]),
            Some(at) => writer.u64s(&[DESTROYED, at.object, 0, at.block]),
        };
        writer.finish()
    }
}

/// The list of trees of a pool.
pub(super) struct List {
    object: Arc<LiveObject>,
    pub header: Header,
}

/// Opens the list, where there is one.
pub(super) async fn open(s: &SyncTask) -> Result<Option<List>> {
    let Some(id) = objects::pool_entry(s, BPTREE_OBJ).await? else { return Ok(None) };
    let (object, header) = objects::bonus(s, id, objects::NUMBERS_METADATA, Header::parse).await?;
    Ok(Some(List { object, header }))
}

/// Adds a tree, of which what was born after `since` is to be freed.
pub(super) async fn add(s: &SyncTask, bp: &Blkptr, since: Txg, space: Space) -> Result<()> {
    let mut list = match open(s).await? {
        Some(list) => list,
        None => create(s).await?,
    };
    let entry = Entry { bp: *bp, since, resume: None };
    list.object.write_at(&s.tx, list.header.end * ENTRY_BYTES, &entry.encode()).await?;
    list.header.end += 1;
    list.header.space = sum(list.header.space, space);
    list.put(s);
    Ok(())
}

async fn create(s: &SyncTask) -> Result<List> {
    let new = NewObject {
        dmu_type: objects::NUMBERS_METADATA,
        block_size: BLOCK_BYTES,
        bonus_type: objects::NUMBERS_METADATA,
        bonus: Header::default().encode(),
        slots: 1,
    };
    let object = s.mos().allocate(&s.tx, new).await?;
    s.use_feature(Feature::AsyncDestroy, 1).await?;
    let value = objects::one(object.id().get());
    objects::add(s, DIRECTORY_OBJECT, &objects::name(BPTREE_OBJ), &value).await?;
    Ok(List { object, header: Header::default() })
}

impl List {
    fn put(&self, s: &SyncTask) {
        self.object.set_bonus(&s.tx, objects::NUMBERS_METADATA, &self.header.encode());
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.header.begin >= self.header.end
    }

    /// Places of the trees that are left. Some may have nothing any more.
    pub fn places(&self) -> Range<u64> {
        self.header.begin..self.header.end
    }

    /// The tree at a place.
    pub async fn entry(&self, place: u64) -> Result<Entry> {
        let mut bytes = [0; ENTRY_BYTES as usize];
        self.object.read_at(place * ENTRY_BYTES, &mut bytes).await?;
        Entry::parse(&bytes).map_err(|error| objects::corrupt(self.object.id(), error))
    }

    /// Notes that blocks of the tree at `place` are freed: how much, and how the walk ended. A tree all of
    /// which is freed is removed, or emptied while there is one before it.
    pub async fn freed(
        &mut self,
        s: &SyncTask,
        place: u64,
        entry: Entry,
        space: Space,
        resume: Option<Place>,
    ) -> Result<()> {
        let at = place * ENTRY_BYTES;
        self.header.space = difference(self.header.space, space);
        let left = match resume {
            Some(_) => Some(Entry { resume, ..entry }),
            None if place > self.header.begin => Some(Entry { since: Txg(u64::MAX), ..entry }),
            None => None,
        };
        match left {
            Some(entry) => self.object.write_at(&s.tx, at, &entry.encode()).await?,
            None => {
                self.object.punch(&s.tx, at, ENTRY_BYTES).await?;
                self.header.begin += 1;
            }
        }
        self.put(s);
        Ok(())
    }

    /// Removes the list, which is empty.
    pub async fn destroy(self, s: &SyncTask) -> Result<()> {
        s.use_feature(Feature::AsyncDestroy, -1).await?;
        objects::take(s, DIRECTORY_OBJECT, &objects::name(BPTREE_OBJ)).await?;
        objects::free_object(s, self.object.id()).await
    }
}

/// One block on the way down: what it points to and is still to be walked, and the block itself, which goes
/// after that.
#[derive(Debug)]
struct Step {
    after: Option<Node>,
    /// The last first.
    left: Vec<Below>,
}

/// A pointer and where it stands.
#[derive(Debug, Clone, Copy)]
struct Node {
    bp: Blkptr,
    /// Absent for the root.
    at: Option<At>,
}

/// Where in an object a block stands.
#[derive(Debug, Clone, Copy)]
struct At {
    object: u64,
    level: u64,
    block: u64,
    /// How many blocks of level 0 are below one of this level, as a power of two.
    shift: u32,
}

#[derive(Debug)]
enum Below {
    Pointer(Node),
    Dnode(Box<Dnode>, u64),
}

/// Whether a part of the tree was freed when the walk stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Done,
    /// The walk stopped before this very block: what it points to is done.
    Here,
    Open,
}

impl Place {
    /// Its position in the order of the walk: a block of dnodes comes after the blocks of its objects.
    fn position(self) -> (u64, u64, u64) {
        const PROJECT_USED: u64 = u64::MAX - 2;
        match self.object {
            0 => (self.block, u64::MAX, 0),
            object if object >= PROJECT_USED => (u64::MAX, object, self.block),
            object => (object / DNODES_PER_BLOCK, object, self.block),
        }
    }
}

impl At {
    fn before(&self, resume: Place) -> Before {
        let last = (self.block.saturating_add(1)).checked_shl(self.shift).map_or(u64::MAX, |end| end - 1);
        let last = if self.shift == 0 { self.block } else { last };
        let position = Place { object: self.object, block: last }.position();
        match position.cmp(&resume.position()) {
            Ordering::Less => Before::Done,
            Ordering::Equal if self.level == 0 => Before::Here,
            _ => Before::Open,
        }
    }
}

/// A walk over the blocks of a tree that are to be freed.
#[derive(Debug)]
pub(super) struct Walk {
    since: Txg,
    resume: Option<Place>,
    path: Vec<Step>,
    /// The block before which the walk stopped; none when it is over.
    pub stopped: Option<Place>,
}

impl Walk {
    /// A walk over what was born after `since` in the object set at `root`, from `resume` on.
    pub fn new(root: Blkptr, since: Txg, resume: Option<Place>) -> Walk {
        let left = vec![Below::Pointer(Node { bp: root, at: None })];
        Walk { since, resume, path: vec![Step { after: None, left }], stopped: None }
    }

    /// The next blocks, `most` or a few more; none when the walk is over.
    pub async fn next(&mut self, pool: &Pool, most: usize) -> Result<Vec<Blkptr>> {
        let mut found = Vec::new();
        self.stopped = None;
        while let Some(step) = self.path.last_mut() {
            match step.left.pop() {
                Some(Below::Dnode(dnode, object)) => self.descend(None, pointers_of(&dnode, object))?,
                Some(Below::Pointer(node)) => {
                    if node.bp.is_hole() || node.bp.is_redacted() || node.bp.birth() <= self.since {
                        continue;
                    }
                    let before = self.resume.zip(node.at).map_or(Before::Open, |(to, at)| at.before(to));
                    match before {
                        Before::Done => {}
                        Before::Here => self.descend(Some(node), Vec::new())?,
                        Before::Open => {
                            let below = children(pool, &node).await?;
                            self.descend(Some(node), below)?;
                        }
                    }
                }
                None => {
                    if let Some(node) = step.after {
                        if let Some(at) = node.at.filter(|at| at.level == 0)
                            && found.len() >= most
                        {
                            self.stopped = Some(Place { object: at.object, block: at.block });
                            return Ok(found);
                        }
                        found.push(node.bp);
                    }
                    self.path.pop();
                }
            }
        }
        Ok(found)
    }

    fn descend(&mut self, after: Option<Node>, mut left: Vec<Below>) -> Result<()> {
        if self.path.len() >= MAX_DEPTH {
            return Err(Error::corrupt("tree of blocks being freed", "it is deeper than trees can be"));
        }
        left.reverse();
        self.path.push(Step { after, left });
        Ok(())
    }
}

/// The pointers of a dnode, in order.
fn pointers_of(dnode: &Dnode, object: u64) -> Vec<Below> {
    const SPILL_BLOCK: u64 = u64::MAX;
    let level = u64::from(dnode.levels.max(1)) - 1;
    let shift = u32::from(dnode.levels.max(1) - 1) * dnode.pointers_per_indirect_shift();
    let blocks = (0..).zip(&dnode.blkptrs);
    let mut all: Vec<Below> = blocks
        .map(|(block, bp)| Below::Pointer(Node { bp: *bp, at: Some(At { object, level, block, shift }) }))
        .collect();
    if let Some(bp) = dnode.spill {
        let at = At { object, level: 0, block: SPILL_BLOCK, shift: 0 };
        all.push(Below::Pointer(Node { bp, at: Some(at) }));
    }
    all
}

/// What a block points to, in order.
async fn children(pool: &Pool, node: &Node) -> Result<Vec<Below>> {
    let of_dnodes = node.bp.dmu_type() == DmuType::DNODE;
    if node.at.is_some_and(|at| at.level == 0 && !of_dnodes) {
        return Ok(Vec::new());
    }
    let block = read(pool, &node.bp).await?;
    let order = node.bp.byte_order();
    let corrupt = |error: ondisk::Error| Error::corrupt("object set being freed", error);
    let mut all = Vec::new();
    let Some(at) = node.at else {
        let phys = ObjsetPhys::parse(&block, order).map_err(corrupt)?;
        all.push(Below::Dnode(Box::new(phys.meta_dnode), 0));
        let counting = [
            (phys.project_used_dnode, u64::MAX - 2),
            (phys.group_used_dnode, u64::MAX - 1),
            (phys.user_used_dnode, u64::MAX),
        ];
        for (dnode, number) in counting {
            all.extend(dnode.map(|dnode| Below::Dnode(Box::new(dnode), number)));
        }
        return Ok(all);
    };
    if at.level == 0 {
        let mut slot = 0;
        while let Some(bytes) = block.get(slot * DNODE_MIN_SIZE..).filter(|bytes| !bytes.is_empty()) {
            let dnode = Dnode::parse(bytes, order).map_err(corrupt)?;
            let slots = dnode.as_ref().map_or(1, |dnode| dnode.slots() as usize);
            let object = at.block.saturating_mul(DNODES_PER_BLOCK).saturating_add(slot as u64);
            all.extend(dnode.map(|dnode| Below::Dnode(Box::new(dnode), object)));
            slot += slots;
        }
        return Ok(all);
    }
    let per_block = (block.len() / Blkptr::SIZE).max(1) as u64;
    for (index, bytes) in (0..).zip(block.chunks_exact(Blkptr::SIZE)) {
        let bp = Blkptr::parse(bytes, order).map_err(corrupt)?;
        let below = At {
            object: at.object,
            level: at.level - 1,
            block: at.block.saturating_mul(per_block).saturating_add(index),
            shift: at.shift.saturating_sub(per_block.trailing_zeros()),
        };
        all.push(Below::Pointer(Node { bp, at: Some(below) }));
    }
    Ok(all)
}

/// Reads a block that leads to others; what leads on is in the clear in encrypted datasets too.
async fn read(pool: &Pool, bp: &Blkptr) -> Result<Block> {
    let at = Bookmark::objset_root(0);
    match bp.embedded() {
        Some(embedded) => decode_embedded(&embedded, &at),
        None => decode(bp, &at, pool.read_raw(bp, &at).await?, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_round_trips() {
        let entry = Entry { bp: Blkptr::HOLE, since: Txg(7), resume: None };
        assert_eq!(Entry::parse(&entry.encode()).unwrap().resume, None);
        let at = Place { object: 5, block: 9 };
        let bytes = Entry { resume: Some(at), ..entry }.encode();
        assert_eq!(bytes.len() as u64, ENTRY_BYTES);
        let again = Entry::parse(&bytes).unwrap();
        assert_eq!((again.since, again.resume), (Txg(7), Some(at)));
    }

    #[test]
    fn a_block_of_dnodes_comes_after_the_blocks_of_its_objects() {
        let position = |object, block| Place { object, block }.position();
        assert!(position(31, 100) < position(0, 0));
        assert!(position(0, 0) < position(32, 0));
        assert!(position(33, 5) < position(33, u64::MAX));
        assert!(position(0, 1 << 40) < position(u64::MAX - 2, 0));
        assert!(position(u64::MAX - 2, 9) < position(u64::MAX, 0));
    }

    #[test]
    fn what_lies_before_the_place_is_done_and_what_holds_it_is_open() {
        let to = Place { object: 40, block: 1500 };
        let at = |object, level, block, shift| At { object, level, block, shift }.before(to);
        assert_eq!(at(40, 1, 0, 10), Before::Done);
        assert_eq!(at(40, 1, 1, 10), Before::Open);
        assert_eq!(at(40, 0, 1499, 0), Before::Done);
        assert_eq!(at(40, 0, 1500, 0), Before::Here);
        assert_eq!(at(39, 2, 0, 20), Before::Done);
        assert_eq!(at(0, 0, 0, 0), Before::Done);
        assert_eq!(at(0, 0, 1, 0), Before::Open);
        assert_eq!(at(41, 0, 0, 0), Before::Open);
    }
}
