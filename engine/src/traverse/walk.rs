//! The walk in order: depth first, by bookmark.
//!
//! # The idea
//! The walk keeps its path: for each block on the way down, what of it is still to be walked. A step takes
//! the next item of the lowest one, so nothing recurs, and the walk can stand still at any time. Where it
//! stops, a [`Bookmark`] says where it goes on, also in another process, and also in OpenZFS. A walk that
//! goes on at a bookmark finds its way by the order alone (`place`): what comes before it is left out without
//! being read, and the blocks on the path to it are read but not visited again. So both parts of a walk that
//! was stopped visit together what one walk does, each block once.
//!
//! Blocks that come soon and lead to others are read ahead (`read_ahead`), as long as they lie after the
//! place where the walk goes on: what lies before may be freed. Each block on the path has a share of that,
//! so that the upper ones do not keep the lower ones from it.

use std::sync::Arc;

use ondisk::Txg;
use ondisk::blkptr::Blkptr;
use ondisk::dnode::{DNODE_MIN_SIZE, DNODES_PER_BLOCK, Dnode};

use super::below::{self, Below};
use super::place::{Order, Relation, Resume};
use super::read_ahead::{ReadAhead, ReadBlocks};
use super::{Births, Descend, Leads, Node, Visitor};
use crate::Bookmark;
use crate::error::{Error, Result};
use crate::store::Store;

/// The lowest number of an object that counts space.
const FIRST_ACCOUNTING: u64 = u64::MAX - 2;
/// Items of one block on the path that are read ahead.
const ITEMS_AHEAD: usize = 16;

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All is visited.
    Complete,
    /// The visitor stopped it before this block.
    Stopped(Bookmark),
}

/// A block and how many blocks of level 0 are below it, as a power of two.
#[derive(Debug, Clone, Copy)]
struct Placed {
    node: Node,
    span_shift: u32,
}

/// What is still to be walked.
#[derive(Debug)]
enum Item {
    Block(Placed),
    Hole(Placed),
    /// An object, and the bytes of its slots where the walk has gaps.
    Object(u64, Box<(Dnode, Vec<u8>)>),
    FreeSlot(u64),
    Damage(Bookmark, Error),
}

/// One block, or object, on the way down.
#[derive(Debug, Default)]
struct Step {
    /// The block, where it is visited after what it leads to.
    after: Option<Placed>,
    /// What it leads to, the last first.
    left: Vec<Item>,
    /// So many of the first of them were not looked at for reading ahead.
    unseen: usize,
    /// So many of the others are read ahead.
    ahead: usize,
}

impl Item {
    /// Its place.
    fn at(&self, objset: u64) -> Bookmark {
        match self {
            Item::Block(block) | Item::Hole(block) => block.node.at,
            Item::Object(object, _) | Item::FreeSlot(object) => {
                Bookmark { objset, object: *object, level: 0, blkid: 0 }
            }
            Item::Damage(at, _) => *at,
        }
    }
}

/// What of an object set is walked, and from where on.
#[derive(Debug, Clone, Copy)]
struct Range {
    objset: u64,
    births: Births,
    order: Order,
    resume: Option<Resume>,
    /// Whether what is not there is visited too.
    gaps: bool,
}

/// A walk over the blocks of an object set.
///
/// One that was stopped goes on where it was with another [`Walk::run`]. After an error it is over.
#[derive(Debug)]
pub struct Walk {
    range: Range,
    path: Vec<Step>,
    ahead: ReadAhead,
}

impl Range {
    fn relation(&self, block: &Placed) -> Relation {
        match &self.resume {
            None => Relation::Open,
            // The root is above all places.
            Some(_) if block.node.at.level < 0 => match self.order {
                Order::ParentsFirst => Relation::Within,
                Order::ChildrenFirst => Relation::Open,
            },
            Some(resume) => resume.relation(&block.node.at, block.span_shift),
        }
    }

    fn relation_of_object(&self, object: u64) -> Relation {
        self.resume.as_ref().map_or(Relation::Open, |resume| resume.relation_of_object(object))
    }

    /// Whether to ask the visitor to stop before a block.
    fn may_stop(&self, block: &Placed) -> bool {
        Resume::is_stop(&block.node.at, self.order) && self.births.has(&block.node.bp)
    }

    /// Whether a block is visited.
    fn is_visited(&self, bp: &Blkptr) -> bool {
        self.gaps || self.births.has(bp)
    }

    /// The item for a pointer, if there is anything to be walked.
    fn item(&self, bp: Blkptr, at: Bookmark, span_shift: u32) -> Option<Item> {
        let block = Placed { node: Node { bp, at, tag: () }, span_shift };
        if !self.gaps {
            return self.births.may_lead_there(&bp).then_some(Item::Block(block));
        }
        let birth = bp.logical_birth();
        if bp.is_redacted() {
            let detail = "the block was left out of a redacted stream";
            return Some(Item::Damage(at, Error::Unsupported(format!("{at}: {detail}"))));
        }
        match bp.is_hole() {
            // When a hole without a time of birth was made is not known.
            true => (birth == Txg::NONE || birth > self.births.after).then_some(Item::Hole(block)),
            false => (birth > self.births.after).then_some(Item::Block(block)),
        }
    }

    /// The item for an object.
    fn object(&self, object: u64, dnode: Dnode, slots: &[u8]) -> Option<Item> {
        let slots = if self.gaps { slots.to_vec() } else { Vec::new() };
        // A stream has no accounting.
        let is_left_out = self.gaps && object >= FIRST_ACCOUNTING;
        (!is_left_out).then(|| Item::Object(object, Box::new((dnode, slots))))
    }

    /// What an object leads to, in order.
    fn items_of(&self, object: u64, dnode: &Dnode) -> Vec<Item> {
        let mut items = Vec::new();
        below::each_of_object(self.objset, object, dnode, |below| match below {
            Below::Pointer(bp, at) => {
                let levels = u32::try_from(at.level).unwrap_or(0);
                items.extend(self.item(bp, at, levels.saturating_mul(dnode.pointers_per_indirect_shift())));
            }
            Below::Damage(at, error) => items.push(Item::Damage(at, error)),
            Below::Object(..) | Below::FreeSlot(_) => {}
        });
        items
    }

    /// Whether a block is to be read, as others are below it that are to be walked.
    fn is_read(&self, block: &Placed) -> bool {
        let leads = block.node.leads() != Leads::Nowhere;
        leads && matches!(self.relation(block), Relation::Open | Relation::Within)
    }

    /// The blocks that are to be read when the walk comes to an item.
    fn blocks_of(&self, item: &Item) -> Vec<Node> {
        let is_block = |item: &Item| match item {
            Item::Block(block) if self.is_read(block) => Some(block.node),
            _ => None,
        };
        match item {
            Item::Object(object, _) if self.relation_of_object(*object) == Relation::Done => Vec::new(),
            Item::Object(object, of) if of.0.levels > 1 || *object == 0 => {
                self.items_of(*object, &of.0).iter().filter_map(is_block).collect()
            }
            item => is_block(item).into_iter().collect(),
        }
    }
}

impl Walk {
    /// A walk over the blocks of `births` in the object set at `root`, whose number in the MOS is `objset`.
    pub fn new(store: &Arc<Store>, objset: u64, root: Blkptr, births: Births, order: Order) -> Walk {
        let reader: Arc<dyn ReadBlocks> = Arc::<Store>::clone(store);
        Self::reading(reader, objset, root, births, order)
    }

    /// The same walk, with the blocks that lead on read by `reader`.
    pub fn reading(
        reader: Arc<dyn ReadBlocks>,
        objset: u64,
        root: Blkptr,
        births: Births,
        order: Order,
    ) -> Walk {
        let range = Range { objset, births, order, resume: None, gaps: false };
        let mut walk = Walk { range, path: Vec::new(), ahead: ReadAhead::new(reader) };
        walk.descend(None, range.item(root, Bookmark::objset_root(objset), 0).into_iter().collect());
        walk
    }

    /// The same from a block of level 0 on, before which another walk stopped.
    #[must_use]
    pub fn resume_at(mut self, at: Bookmark) -> Walk {
        // OpenZFS has the first block of dnodes for the beginning.
        let is_beginning = self.range.order == Order::ParentsFirst && (at.object, at.blkid) == (0, 0);
        self.range.resume = (!is_beginning).then(|| Resume::new(at, self.range.order));
        self
    }

    /// The same walk, which also comes to what is not there: holes and free slots. For
    /// [`Order::ParentsFirst`].
    #[must_use]
    pub(crate) fn with_gaps(mut self) -> Walk {
        self.range.gaps = true;
        self
    }

    /// Walks until all is visited or the visitor stops it.
    ///
    /// # Errors
    /// Those that the visitor makes of damage.
    pub async fn run(&mut self, visitor: &mut impl Visitor) -> Result<End> {
        while let Some(step) = self.path.last() {
            if self.range.gaps
                && let Some(item) = step.left.last()
                && visitor.stops(&item.at(self.range.objset))
            {
                return Ok(End::Stopped(item.at(self.range.objset)));
            }
            let next = match (step.left.last(), &step.after) {
                (Some(Item::Block(block)), _) if self.range.order == Order::ParentsFirst => Some(block),
                (None, Some(block)) => Some(block),
                _ => None,
            };
            if let Some(block) = next
                && !self.range.gaps
                && self.range.may_stop(block)
                && matches!(self.range.relation(block), Relation::Open | Relation::Last)
                && visitor.stops(&block.node.at)
            {
                return Ok(End::Stopped(block.node.at));
            }
            match self.next_item() {
                Some(Item::Block(block)) => self.enter(block, visitor).await?,
                Some(Item::Hole(hole)) => {
                    if self.range.relation(&hole) != Relation::Done {
                        visitor.hole(&hole.node);
                    }
                }
                Some(Item::Object(object, of)) => self.enter_object(object, &of.0, &of.1, visitor),
                Some(Item::FreeSlot(object)) => {
                    if self.range.relation_of_object(object) != Relation::Done {
                        visitor.free_slot(object);
                    }
                }
                Some(Item::Damage(at, error)) => visitor.damaged(at, error)?,
                None => {
                    let after = self.path.pop().and_then(|step| step.after);
                    if let Some(block) = after.filter(|block| self.range.births.has(&block.node.bp)) {
                        visitor.block(&block.node);
                    }
                }
            }
        }
        Ok(End::Complete)
    }

    /// The next item of the lowest step, while those that come after it are read ahead.
    fn next_item(&mut self) -> Option<Item> {
        let Self { range, path, ahead } = self;
        let step = path.last_mut()?;
        while let Some(item) = step.unseen.checked_sub(1).and_then(|index| step.left.get(index)) {
            let blocks = range.blocks_of(item);
            if !blocks.is_empty() {
                if step.ahead >= ITEMS_AHEAD || !blocks.iter().all(|block| ahead.begin(block)) {
                    break;
                }
                step.ahead += 1;
            }
            step.unseen -= 1;
        }
        let item = step.left.pop()?;
        match step.left.len() < step.unseen {
            true => step.unseen = step.left.len(),
            false if !range.blocks_of(&item).is_empty() => step.ahead = step.ahead.saturating_sub(1),
            false => {}
        }
        Some(item)
    }

    fn descend(&mut self, after: Option<Placed>, mut left: Vec<Item>) {
        left.reverse();
        let unseen = left.len();
        self.path.push(Step { after, left, unseen, ahead: 0 });
    }

    async fn enter(&mut self, block: Placed, visitor: &mut impl Visitor) -> Result<()> {
        let relation = self.range.relation(&block);
        let after = match (relation, self.range.order) {
            (Relation::Done, _) => return Ok(()),
            (Relation::Last, _) => {
                self.descend(Some(block), Vec::new());
                return Ok(());
            }
            (_, Order::ChildrenFirst) => Some(block),
            (Relation::Within, Order::ParentsFirst) => {
                // What the dnodes of a block belong to must be told again.
                if self.range.gaps && block.node.leads() == Leads::ToDnodes {
                    visitor.block(&block.node);
                }
                None
            }
            (Relation::Open, Order::ParentsFirst) => {
                let is_visited = self.range.is_visited(&block.node.bp);
                if is_visited && visitor.block(&block.node) == Descend::Past {
                    self.ahead.forget(&block.node);
                    return Ok(());
                }
                None
            }
        };
        let below = match block.node.leads() {
            Leads::Nowhere => Vec::new(),
            _ => match self.items_below(&block).await {
                Ok(below) => below,
                Err(error) => return visitor.damaged(block.node.at, error),
            },
        };
        if after.is_some() || !below.is_empty() {
            self.descend(after, below);
        }
        Ok(())
    }

    /// What a block leads to, in order.
    async fn items_below(&mut self, block: &Placed) -> Result<Vec<Item>> {
        let contents = self.ahead.take(&block.node).await?;
        let per_block = (contents.len() / Blkptr::SIZE).max(1);
        let span_shift = block.span_shift.saturating_sub(per_block.trailing_zeros());
        let mut items = Vec::new();
        let mut dnodes_per_block = DNODES_PER_BLOCK;
        below::each(&block.node, &contents, |below| match below {
            Below::Pointer(bp, at) => items.extend(self.range.item(bp, at, span_shift)),
            Below::Object(object, dnode, slots) => {
                if object == 0 {
                    dnodes_per_block = dnode.data_block_size() / DNODE_MIN_SIZE as u64;
                }
                items.extend(self.range.object(object, dnode, slots));
            }
            Below::FreeSlot(object) if self.range.gaps && object != 0 => items.push(Item::FreeSlot(object)),
            Below::FreeSlot(_) => {}
            Below::Damage(at, error) => items.push(Item::Damage(at, error)),
        })?;
        if let Some(resume) = self.range.resume.as_mut().filter(|_| block.node.leads() == Leads::ToObjects) {
            resume.per_block = dnodes_per_block.max(1);
        }
        Ok(items)
    }

    fn enter_object(&mut self, object: u64, dnode: &Dnode, slots: &[u8], visitor: &mut impl Visitor) {
        match self.range.relation_of_object(object) {
            Relation::Done => return,
            _ if self.range.gaps => visitor.dnode(object, dnode, slots),
            Relation::Open => visitor.object(self.range.objset, object, dnode),
            Relation::Within | Relation::Last => {}
        }
        let below = self.range.items_of(object, dnode);
        if !below.is_empty() {
            self.descend(None, below);
        }
    }
}
