//! What a walk comes to, as steps of a stream.
//!
//! The walk goes through an object set in the order of a stream. This visitor turns blocks, holes and free
//! slots into [`Step`]s, each of which becomes one record or a few. It holds a bounded number of them: the
//! walk stops when there are enough, and goes on when they are taken.

use std::collections::VecDeque;

use ondisk::Txg;
use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;
use ondisk::dnode::{DNODE_MIN_SIZE, Dnode};

use crate::Bookmark;
use crate::error::{Error, Result};
use crate::traverse::{Descend, Node, Visitor};

/// Steps after which the walk stops.
const MOST_STEPS: usize = 512;

/// A block of data that goes into a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    /// Where it is.
    pub bp: Blkptr,
    /// Its place.
    pub at: Bookmark,
    /// Type of the object.
    pub dmu_type: DmuType,
}

/// An object.
#[derive(Debug)]
pub(super) struct Object {
    pub number: u64,
    pub dnode: Dnode,
    /// The bytes of its slots.
    pub slots: Vec<u8>,
}

/// What comes next in a stream.
#[derive(Debug)]
pub(super) enum Step {
    /// A block of dnodes: what they are encrypted with.
    ObjectRange {
        first: u64,
        slots: u64,
        bp: Blkptr,
    },
    Object(Box<Object>),
    FreeObjects {
        first: u64,
        count: u64,
    },
    /// A range of an object; the length may be all ones.
    Free {
        object: u64,
        offset: u64,
        length: u64,
    },
    Data(Data),
}

/// The sizes that the places of an object's blocks follow from.
#[derive(Debug, Clone, Copy)]
struct Shape {
    dmu_type: DmuType,
    block_bytes: u64,
    pointers_shift: u32,
    max_block_id: u64,
}

impl Shape {
    fn of(dnode: &Dnode) -> Shape {
        Shape {
            dmu_type: dnode.dmu_type,
            block_bytes: dnode.data_block_size(),
            pointers_shift: dnode.pointers_per_indirect_shift(),
            max_block_id: dnode.max_block_id.0,
        }
    }

    /// First and last but one block of level 0 below a place; nothing where there cannot be any.
    fn blocks(&self, at: &Bookmark) -> Option<(u64, u64)> {
        let shift = self.pointers_shift.checked_mul(u32::try_from(at.level).ok()?)?;
        let span = 1u64.checked_shl(shift)?;
        let first = span.checked_mul(at.blkid)?;
        if !self.dmu_type.is_metadata() && first > self.max_block_id {
            return None;
        }
        Some((first, first.saturating_add(span)))
    }
}

/// Gathers the steps.
#[derive(Debug)]
pub(super) struct Found {
    /// Of the meta-dnode.
    meta: Shape,
    /// Of the object that the walk is in.
    object: Option<(u64, Shape)>,
    /// What the stream is incremental from.
    after: Txg,
    /// Whether all blocks must be encrypted or authenticated.
    is_encrypted: bool,
    /// The steps that were found and not taken.
    pub steps: VecDeque<Step>,
    failed: Option<Error>,
}

impl Found {
    pub(super) fn new(meta: &Dnode, after: Txg, is_encrypted: bool) -> Found {
        Found {
            meta: Shape::of(meta),
            object: None,
            after,
            is_encrypted,
            steps: VecDeque::new(),
            failed: None,
        }
    }

    /// An error that a visit could not return.
    pub(super) fn take_error(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn shape(&self, object: u64) -> Option<Shape> {
        match self.object {
            _ if object == 0 => Some(self.meta),
            Some((number, shape)) if number == object => Some(shape),
            _ => None,
        }
    }

    fn check(&mut self, bp: &Blkptr, at: &Bookmark) {
        if self.is_encrypted && !bp.uses_crypt() {
            let why = "the block is not encrypted, and the dataset is";
            self.failed.get_or_insert_with(|| Error::corrupt(at.to_string(), why));
        }
    }
}

impl Visitor for Found {
    fn stops(&mut self, _: &Bookmark) -> bool {
        self.steps.len() >= MOST_STEPS || self.failed.is_some()
    }

    fn dnode(&mut self, object: u64, dnode: &Dnode, slots: &[u8]) {
        if object == 0 {
            return;
        }
        self.object = Some((object, Shape::of(dnode)));
        let unmodified = dnode.spill.filter(|spill| !spill.is_hole() && spill.logical_birth() <= self.after);
        let step = Object { number: object, dnode: dnode.clone(), slots: slots.to_vec() };
        self.steps.push_back(Step::Object(Box::new(step)));
        if let Some(bp) = unmodified {
            // Receivers before the flags of spill blocks might lose it.
            let at = Bookmark::spill(0, object);
            self.steps.push_back(Step::Data(Data { bp, at, dmu_type: dnode.dmu_type }));
        }
    }

    fn free_slot(&mut self, object: u64) {
        self.steps.push_back(Step::FreeObjects { first: object, count: 1 });
    }

    fn hole(&mut self, node: &Node) {
        let at = &node.at;
        let Some(shape) = self.shape(at.object).filter(|_| at.blkid != Bookmark::BLKID_SPILL) else { return };
        let Some((first, end)) = shape.blocks(at) else { return };
        if at.object == 0 {
            let slots = shape.block_bytes / DNODE_MIN_SIZE as u64;
            let (first, end) = (first.saturating_mul(slots), end.saturating_mul(slots));
            self.steps.push_back(Step::FreeObjects { first, count: end - first });
            return;
        }
        let Some(offset) = first.checked_mul(shape.block_bytes) else { return };
        let length = end.saturating_mul(shape.block_bytes) - offset;
        self.steps.push_back(Step::Free { object: at.object, offset, length });
    }

    fn block(&mut self, node: &Node) -> Descend {
        let at = &node.at;
        self.check(&node.bp, at);
        if at.level != 0 {
            return Descend::Into;
        }
        let Some(shape) = self.shape(at.object) else { return Descend::Into };
        if at.object == 0 {
            let slots = node.bp.lsize().get() / DNODE_MIN_SIZE as u64;
            let first = at.blkid.saturating_mul(slots);
            self.steps.push_back(Step::ObjectRange { first, slots, bp: node.bp });
            return Descend::Into;
        }
        let is_spill = at.blkid == Bookmark::BLKID_SPILL;
        if is_spill || shape.blocks(at).is_some() {
            if !is_spill && node.bp.lsize().get() != shape.block_bytes {
                let why =
                    format!("the pointer says {} bytes, the dnode {}", node.bp.lsize(), shape.block_bytes);
                self.failed.get_or_insert_with(|| Error::corrupt(at.to_string(), why));
                return Descend::Past;
            }
            self.steps.push_back(Step::Data(Data { bp: node.bp, at: *at, dmu_type: shape.dmu_type }));
        }
        Descend::Into
    }

    fn damaged(&mut self, _: Bookmark, error: Error) -> Result<()> {
        Err(error)
    }
}
