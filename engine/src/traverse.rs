//! Going through the blocks of an object set, from its root down to its data.
//!
//! # The idea
//! Code that has to see many blocks of a pool (a verification, a scrub, a resilver, a send stream, the
//! freeing of a destroyed dataset) walks the same trees: an object set's own block leads to the meta-dnode,
//! its blocks to dnodes, those to block trees. What differs is the order, what is done with a block, and what
//! becomes of damage. This module owns the trees; a *visitor* owns the rest.
//!
//! There are two ways to walk, with one description of what a block leads to (`below`):
//!
//! | way | visitor | order | for |
//! |---|---|---|---|
//! | [`Walk`] | [`Visitor`], synchronous | depth first, by bookmark; it stops at a bookmark and goes on there | what is stored and resumed: scrubs, freeing; what must be in order: streams |
//! | [`survey`] | [`Survey`], asynchronous | none: neighbours together, on several threads | reading everything at once as fast as devices can |
//!
//! # Births
//! A block is in the range of a walk when it was born after one group and not after another one
//! ([`Births`]). A pointer is never older than what it leads to, so that what was born too early leads to
//! nothing that is in the range. What was born too late is not visited, but may lead to what is.
//!
//! # Gaps
//! A walk for a stream (`Walk::with_gaps`) also comes to what is not there: holes that were made in the
//! range, or whose time of birth is not known, and slots of dnodes that are in no object. Its range goes by
//! logical births: a block that was only rewritten is as old as it was.
//!
//! # Damage
//! A block that cannot be read, or that makes no sense, is reported to the visitor with its bookmark. What is
//! below it is left out, and the walk goes on, unless the visitor makes an error of it.
//!
//! # Bounds
//! - Levels only go down: a pointer in an indirect block must be of the level below, a pointer in a dnode of
//!   the level that the dnode states, and only the meta-dnode's blocks hold dnodes. So no walk is endless,
//!   and none is deeper than two trees on top of each other, however damaged the pool. Nothing recurs.
//! - A [`Walk`] holds the pointers of the blocks on its path, and what it reads ahead has a bound.
//! - A [`survey`] holds a stack that is last in, first out, and so bounded by the depth of the trees too.
//!
//! # Who walks trees without this module
//! - `dmu` (`Tree`, `differing_objects`), which stands below: it goes through one object with the handles of
//!   indirect blocks that it keeps, through the ARC.
//! - `dmu::live`, which goes through what a group changed, as layers in memory over the committed tree.
//! - `zil`, whose chains are no trees.
//! - `dsl`, which walks datasets by name.
//!
//! | module | what it owns |
//! |---|---|
//! | `below` | from a block to what it points to |
//! | `place` | which of two blocks comes first, and what lies before a bookmark |
//! | `walk` | the walk in order |
//! | `read_ahead` | blocks that a walk in order will need next |
//! | `survey` | many blocks at a time |
//! | `queue` | the shared stack of that |
//!
//! Source of the facts: OpenZFS 2.4 `dmu_traverse.c`, `dsl_scan.c`, `zio.c` (`zbookmark_compare`).

mod below;
mod place;
mod queue;
mod read_ahead;
mod survey;
#[cfg(test)]
mod tests;
mod walk;

use ondisk::Txg;
use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;
use ondisk::dnode::Dnode;

use crate::Bookmark;
use crate::error::{Error, Result};

pub use place::Order;
pub use read_ahead::ReadBlocks;
pub use survey::{Survey, survey};
pub use walk::{End, Walk};

/// In which groups the blocks of a walk were born.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Births {
    /// After this one.
    pub after: Txg,
    /// Not after this one.
    pub until: Txg,
}

impl Births {
    /// In any.
    pub const ALL: Births = Births::after(Txg::NONE);

    /// In any group after this one.
    pub const fn after(after: Txg) -> Births {
        Births { after, until: Txg(u64::MAX) }
    }

    /// Whether a pointer can lead to a block of the range, or to itself.
    pub fn may_lead_there(&self, bp: &Blkptr) -> bool {
        !bp.is_hole() && !bp.is_redacted() && bp.birth() > self.after
    }

    /// Whether a block is of the range.
    pub fn has(&self, bp: &Blkptr) -> bool {
        self.may_lead_there(bp) && bp.birth() <= self.until
    }
}

/// A block: the pointer to it, and where it stands.
#[derive(Debug, Clone, Copy)]
pub struct Node<T = ()> {
    /// The pointer.
    pub bp: Blkptr,
    /// Its place.
    pub at: Bookmark,
    /// What the root had, for the visitor. All below the root has it too.
    pub tag: T,
}

/// What the contents of a block are to a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leads {
    /// Data, which lead nowhere.
    Nowhere,
    /// Pointers of the level below.
    ToPointers,
    /// Dnodes.
    ToDnodes,
    /// An object set's own structure.
    ToObjects,
}

impl<T> Node<T> {
    /// What the block leads to.
    pub fn leads(&self) -> Leads {
        match self.bp.dmu_type() {
            _ if self.at.level == Bookmark::LEVEL_ZIL => Leads::Nowhere,
            _ if self.bp.level().get() > 0 => Leads::ToPointers,
            DmuType::DNODE if self.at.object == 0 => Leads::ToDnodes,
            DmuType::OBJSET if self.at.level == Bookmark::LEVEL_ROOT => Leads::ToObjects,
            _ => Leads::Nowhere,
        }
    }
}

/// Whether a walk goes on below a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descend {
    /// It does.
    Into,
    /// What is below is left out.
    Past,
}

/// What a [`Walk`] is for.
pub trait Visitor {
    /// Whether to stop before this block, which is one that a walk can go on at: of level 0. Asked before
    /// it is visited. This is where a budget ends. A walk with gaps asks before everything
    /// that it comes to, and only goes on itself from there.
    fn stops(&mut self, at: &Bookmark) -> bool {
        let _ = at;
        false
    }

    /// An object comes, and its blocks after it. Not called again for an object in the middle of which the
    /// walk goes on.
    fn object(&mut self, objset: u64, object: u64, dnode: &Dnode) {
        let _ = (objset, object, dnode);
    }

    /// An object comes in a walk with gaps, in the place of [`Visitor::object`], and also
    /// where the walk goes on in the middle of it. `slots` are the bytes of its dnode.
    fn dnode(&mut self, object: u64, dnode: &Dnode, slots: &[u8]) {
        let _ = (object, dnode, slots);
    }

    /// A slot that is in no object comes, in a walk with gaps.
    fn free_slot(&mut self, object: u64) {
        let _ = object;
    }

    /// A hole comes, in a walk with gaps. It may be of any level.
    fn hole(&mut self, node: &Node) {
        let _ = node;
    }

    /// A block comes. With [`Order::ParentsFirst`] the answer says whether what it leads to comes next; with
    /// [`Order::ChildrenFirst`] that came before.
    fn block(&mut self, node: &Node) -> Descend;

    /// A block cannot be read or makes no sense; what is below it is left out.
    ///
    /// # Errors
    /// Ends the walk with that error.
    fn damaged(&mut self, at: Bookmark, error: Error) -> Result<()>;
}
