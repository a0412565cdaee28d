//! Which of two blocks of an object set comes first, and what of a tree lies before a bookmark.
//!
//! The order of an object set is that of its tree of dnodes: a block of dnodes goes with the blocks of its
//! objects, object by object, each in the order of its blocks, the spill block last. The objects that count
//! space (project, group, user) come after all others. A block of dnodes stands before the blocks of its
//! objects ([`Order::ParentsFirst`]) or after them ([`Order::ChildrenFirst`]).
//!
//! A walk stops before blocks of level 0 only, because the blocks above them have no places of their own in
//! that order: they are on the path to the next one. Such a bookmark is what OpenZFS stores too.

use ondisk::dnode::DNODES_PER_BLOCK;

use crate::Bookmark;

/// The order of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Each block before what it leads to: to read.
    ParentsFirst,
    /// Each block after what it leads to, so that what is left is always a tree: to free.
    ChildrenFirst,
}

/// The lowest number of an object that counts space (`DMU_PROJECTUSED_OBJECT`).
const PROJECT_USED: u64 = u64::MAX - 2;

/// A position in the order of an object set: block of dnodes, object, block.
type Position = (u64, u64, u64);

/// What a walk that goes on at a bookmark does with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// It is done, and all below it.
    Done,
    /// It is done, and only a part of what is below it.
    Within,
    /// All below it is done; only the block itself is left.
    Last,
    /// It is to be visited, and what is below it as far as that is not done.
    Open,
}

/// Where a walk goes on: before a block of level 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resume {
    pub at: Bookmark,
    pub order: Order,
    /// Slots of dnodes in a block of the meta-dnode.
    pub per_block: u64,
}

impl Resume {
    pub fn new(at: Bookmark, order: Order) -> Self {
        Self { at, order, per_block: DNODES_PER_BLOCK }
    }

    /// Whether a walk may stop before a block of level 0. What is before the first block of dnodes is the
    /// beginning, and is stored as that.
    pub fn is_stop(at: &Bookmark, order: Order) -> bool {
        let is_beginning = at.object == 0 && at.blkid == 0 && order == Order::ParentsFirst;
        at.level == 0 && !is_beginning
    }

    /// The position of a block of level 0.
    fn position(&self, object: u64, block: u64) -> Position {
        match (object, self.order) {
            (0, Order::ParentsFirst) => (block, 0, 0),
            (0, Order::ChildrenFirst) => (block, u64::MAX, 0),
            (object, _) if object >= PROJECT_USED => (u64::MAX, object, block),
            (object, _) => (object / self.per_block, object, block),
        }
    }

    /// How a block stands to this place. `span_shift` says how many blocks of level 0 are below it, as a
    /// power of two.
    pub fn relation(&self, at: &Bookmark, span_shift: u32) -> Relation {
        let here = self.position(self.at.object, self.at.blkid);
        let edge = |block: u64| match block {
            0 => 0,
            block if span_shift > block.leading_zeros() => u64::MAX,
            block => block << span_shift,
        };
        let is_level_0 = at.level == 0;
        let (first, last) = match is_level_0 {
            true => (at.blkid, at.blkid),
            false => (edge(at.blkid), edge(at.blkid.saturating_add(1)).saturating_sub(1)),
        };
        let first = self.position(at.object, first);
        match self.order {
            Order::ChildrenFirst => match self.position(at.object, last).cmp(&here) {
                std::cmp::Ordering::Less => Relation::Done,
                std::cmp::Ordering::Equal if is_level_0 => Relation::Last,
                _ => Relation::Open,
            },
            Order::ParentsFirst => {
                // The blocks of objects come after the block that holds their dnodes.
                let last = if at.object == 0 { (last, u64::MAX, 0) } else { self.position(at.object, last) };
                if last < here {
                    Relation::Done
                } else if first > here || (is_level_0 && first == here) {
                    Relation::Open
                } else {
                    Relation::Within
                }
            }
        }
    }

    /// How an object stands to this place: whether all of its blocks are done, some, or none.
    pub fn relation_of_object(&self, object: u64) -> Relation {
        if object == 0 || object == self.at.object {
            return Relation::Within;
        }
        match self.position(object, 0) < self.position(self.at.object, self.at.blkid) {
            true => Relation::Done,
            false => Relation::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(object: u64, level: i64, blkid: u64) -> Bookmark {
        Bookmark { objset: 5, object, level, blkid }
    }

    #[test]
    fn a_block_of_dnodes_comes_after_the_blocks_of_its_objects_when_children_are_first() {
        let resume = Resume::new(at(0, 0, 0), Order::ChildrenFirst);
        let position = |object, block| resume.position(object, block);
        assert!(position(31, 100) < position(0, 0));
        assert!(position(0, 0) < position(32, 0));
        assert!(position(33, 5) < position(33, Bookmark::BLKID_SPILL));
        assert!(position(0, 1 << 40) < position(PROJECT_USED, 0));
        assert!(position(PROJECT_USED, 9) < position(u64::MAX, 0));
    }

    #[test]
    fn what_lies_before_the_place_is_done_and_what_holds_it_is_open() {
        let resume = Resume::new(at(40, 0, 1500), Order::ChildrenFirst);
        let of = |object, level, block, shift| resume.relation(&at(object, level, block), shift);
        assert_eq!(of(40, 1, 0, 10), Relation::Done);
        assert_eq!(of(40, 1, 1, 10), Relation::Open);
        assert_eq!(of(40, 0, 1499, 0), Relation::Done);
        assert_eq!(of(40, 0, 1500, 0), Relation::Last);
        assert_eq!(of(39, 2, 0, 20), Relation::Done);
        assert_eq!(of(0, 0, 0, 0), Relation::Done);
        assert_eq!(of(0, 0, 1, 0), Relation::Open);
        assert_eq!(of(41, 0, 0, 0), Relation::Open);
        assert_eq!(of(40, 0, Bookmark::BLKID_SPILL, 0), Relation::Open);
    }

    #[test]
    fn what_holds_the_place_is_done_itself_when_parents_are_first() {
        let resume = Resume::new(at(40, 0, 1500), Order::ParentsFirst);
        let of = |object, level, block, shift| resume.relation(&at(object, level, block), shift);
        assert_eq!(of(40, 1, 0, 10), Relation::Done);
        assert_eq!(of(40, 1, 1, 10), Relation::Within);
        assert_eq!(of(40, 1, 2, 10), Relation::Open);
        assert_eq!(of(40, 0, 1499, 0), Relation::Done);
        assert_eq!(of(40, 0, 1500, 0), Relation::Open);
        // The indirect block whose first block it is was visited on the way to it.
        let first = Resume::new(at(40, 0, 1024), Order::ParentsFirst);
        assert_eq!(first.relation(&at(40, 1, 1), 10), Relation::Within);
        assert_eq!(of(39, 2, 0, 20), Relation::Done);
        assert_eq!(of(0, 0, 0, 0), Relation::Done);
        assert_eq!(of(0, 0, 1, 0), Relation::Within);
        assert_eq!(of(0, 0, 2, 0), Relation::Open);
        assert_eq!(of(0, 1, 0, 10), Relation::Within);
        assert_eq!(of(41, 0, 0, 0), Relation::Open);
        assert_eq!(of(u64::MAX, 0, 0, 0), Relation::Open);
        let of_dnodes = Resume::new(at(0, 0, 1), Order::ParentsFirst);
        assert_eq!(of_dnodes.relation(&at(0, 0, 1), 0), Relation::Open);
        assert_eq!(of_dnodes.relation(&at(0, 0, 0), 0), Relation::Done);
    }

    #[test]
    fn trees_of_any_depth_have_their_places() {
        let resume = Resume::new(at(40, 0, u64::MAX - 1), Order::ParentsFirst);
        assert_eq!(resume.relation(&at(40, 9, 0), 90), Relation::Within);
        assert_eq!(resume.relation(&at(40, 6, 1), 64), Relation::Open);
    }
}
