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
//! A tree is walked depth first ([`crate::traverse`]), each block after what it points to, so that what is
//! left is always a tree. A walk stops only before a block of level 0; that block is where it goes on.
//!
//! A tree that is done while one before it is not keeps its place; only blocks born after the last group
//! there can be go, which are none.
//!
//! Source of the facts: OpenZFS 2.3 `bptree.c`, `dsl_scan.c`.

use std::ops::Range;
use std::sync::Arc;

use ondisk::blkptr::Blkptr;
use ondisk::features::Feature;
use ondisk::pool_directory::{BPTREE_OBJ, DIRECTORY_OBJECT};
use ondisk::{Reader, Txg, Writer};

use super::bpobj::BLOCK_BYTES;
use super::objects::{self, ORDER};
use super::space::{difference, sum};
use crate::dmu::{LiveObject, NewObject, Space};
use crate::dsl::SyncTask;
use crate::error::{Error, Result};
use crate::traverse::{self, Births, Descend, End, Node, Order, Visitor};
use crate::{Bookmark, Pool};

const ENTRY_BYTES: u64 = 168;
/// The object set that destroyed ones have in bookmarks (`ZB_DESTROYED_OBJSET`).
const DESTROYED: u64 = u64::MAX;

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

/// A walk over the blocks of a tree that are to be freed, each after what it points to.
#[derive(Debug)]
pub(super) struct Walk {
    root: Blkptr,
    since: Txg,
    resume: Option<Place>,
    walk: Option<traverse::Walk>,
    /// The block before which the walk stopped; none when it is over.
    pub stopped: Option<Place>,
}

impl Walk {
    /// A walk over what was born after `since` in the object set at `root`, from `resume` on.
    pub fn new(root: Blkptr, since: Txg, resume: Option<Place>) -> Walk {
        Walk { root, since, resume, walk: None, stopped: None }
    }

    /// The next blocks, `most` or a few more; none when the walk is over.
    ///
    /// # Errors
    /// Damage: nothing that can be reached may be left out.
    pub async fn next(&mut self, pool: &Pool, most: usize) -> Result<Vec<Blkptr>> {
        let Self { root, since, resume, walk, .. } = self;
        let walk = walk.get_or_insert_with(|| {
            let (births, order) = (Births::after(*since), Order::ChildrenFirst);
            let walk = traverse::Walk::new(pool.store(), DESTROYED, *root, births, order);
            match *resume {
                Some(Place { object, block }) => walk.resume_at(Bookmark::data(DESTROYED, object, block)),
                None => walk,
            }
        });
        let mut batch = Batch { blocks: Vec::new(), most };
        self.stopped = match walk.run(&mut batch).await? {
            End::Stopped(at) => Some(Place { object: at.object, block: at.blkid }),
            End::Complete => None,
        };
        Ok(batch.blocks)
    }
}

/// Collects blocks.
struct Batch {
    blocks: Vec<Blkptr>,
    most: usize,
}

impl Visitor for Batch {
    fn stops(&mut self, _: &Bookmark) -> bool {
        self.blocks.len() >= self.most
    }

    fn block(&mut self, node: &Node) -> Descend {
        self.blocks.push(node.bp);
        Descend::Into
    }

    fn damaged(&mut self, _: Bookmark, error: Error) -> Result<()> {
        Err(error)
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
}
