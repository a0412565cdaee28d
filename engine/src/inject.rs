//! Faults on demand: errors, delays and flipped bits for tests of pools, as OpenZFS's `zinject` makes them.
//!
//! # The idea
//! A pool has a table of [`Handler`]s. A handler says what goes wrong, where, and how often. Handlers of
//! devices act below the vdev tree: the device of a leaf is wrapped (`device`) as soon as there
//! is one for it, so that a pool without handlers does nothing more than before. Handlers of blocks act in
//! the block layer, which looks at one number before it reads or writes a block
//! (`has_blocks`).
//!
//! | kind | what goes wrong |
//! |---|---|
//! | [`Fault::Device`] | transfers of a leaf fail, or return flipped bits, or are not done at all |
//! | [`Fault::Delay`] | transfers of a leaf take longer, some at a time |
//! | [`Fault::Gone`] | the device is pulled until the handler is cleared |
//! | [`Fault::Block`] | reads of blocks of an object fail |
//! | [`Fault::Memory`] | a bit of a block in memory flips, before or after its checksum is made or checked |
//!
//! Some of these damage what is stored: those that drop or change writes, and flips in memory
//! ([`Fault::damages`]). The daemon asks for consent.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Injections::handlers` | the table; read for a few lines by each transfer of a wrapped device | taken alone |
//! | `Injections::wrapped` | which devices are wrapped; for a few lines | taken alone |
//!
//! Source of the facts: OpenZFS 2.4 `zinject.c`, `zio_inject.c`.

mod device;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::Duration;

use ::device::{Device, IgnorePoison, IoBuf};
use ondisk::Guid;

use crate::Bookmark;

pub(crate) use device::InjectedDevice;

/// The most handlers of a pool.
const MAX_HANDLERS: usize = 1024;
/// The number of the last handler of any pool.
static LAST_ID: AtomicU64 = AtomicU64::new(0);
/// A handler that always acts: all of a million.
pub const ALWAYS: u32 = 1_000_000;

/// What a transfer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A range is discarded.
    Trim,
    /// Written bytes are made durable.
    Flush,
    /// The pool finds out whether a device works.
    Probe,
    /// All but probes: as in OpenZFS, these must be asked for.
    All,
}

/// The part of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelPart {
    /// The blank part.
    Pad1,
    /// The boot block.
    Pad2,
    /// The configuration.
    Nvlist,
    /// The uberblocks.
    Uber,
}

/// What a transfer of a device ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceError {
    /// An I/O error.
    Io,
    /// No such device.
    Nxio,
    /// A flipped bit in what is read, as of a device that does not notice.
    Checksum,
    /// A flipped bit in what is read or written.
    Corrupt,
    /// Success, without anything being done.
    Noop,
}

/// What reading a block ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockError {
    /// An I/O error.
    Io,
    /// Wrong bytes on each device.
    Checksum,
    /// Bytes that cannot be decompressed.
    Decompress,
}

/// When a bit of a block in memory flips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flip {
    /// A block to be written, before its checksum is made: the wrong bytes have the right checksum.
    BeforeChecksum,
    /// A block to be written, after its checksum was made.
    AfterChecksum,
    /// A block that was read, before its checksum is checked.
    BeforeCheck,
    /// A block that was read, after its checksum was checked: the reader gets wrong bytes.
    AfterCheck,
}

/// Blocks of an object set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// The object set; 0 is the MOS.
    pub objset: u64,
    /// The object; `None` for all.
    pub object: Option<u64>,
    /// The level; `None` for all.
    pub level: Option<i64>,
    /// The first and the last block of it.
    pub blocks: (u64, u64),
    /// The copies, as bits: 1 for the first; 0 for all.
    pub copies: u8,
}

impl Blocks {
    fn has(&self, at: &Bookmark) -> bool {
        self.objset == at.objset
            && self.object.is_none_or(|object| object == at.object)
            && self.level.is_none_or(|level| level == at.level)
            && (self.blocks.0..=self.blocks.1).contains(&at.blkid)
    }
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Transfers of a leaf.
    Device {
        /// The leaf.
        leaf: u64,
        /// What they end with.
        error: DeviceError,
        /// Which of them.
        operation: Operation,
        /// Only those of this part of its labels; those of labels are left alone otherwise.
        label: Option<LabelPart>,
    },
    /// Transfers of a leaf take longer.
    Delay {
        /// The leaf.
        leaf: u64,
        /// The least time that one takes.
        latency: Duration,
        /// As many as this at a time.
        lanes: usize,
        /// Which of them.
        operation: Operation,
    },
    /// The device of a leaf is gone.
    Gone {
        /// The leaf.
        leaf: u64,
    },
    /// Reads of blocks.
    Block {
        /// The blocks.
        blocks: Blocks,
        /// What the reads end with.
        error: BlockError,
    },
    /// A bit flips in memory.
    Memory {
        /// The blocks.
        blocks: Blocks,
        /// When.
        flip: Flip,
    },
}

impl Fault {
    /// The leaf that it is about.
    pub fn leaf(&self) -> Option<Guid> {
        match self {
            Self::Device { leaf, .. } | Self::Delay { leaf, .. } | Self::Gone { leaf } => Some(Guid(*leaf)),
            Self::Block { .. } | Self::Memory { .. } => None,
        }
    }

    /// Whether it damages what is stored, or gives wrong bytes to readers.
    pub fn damages(&self) -> bool {
        match self {
            Self::Memory { flip, .. } => *flip != Flip::BeforeCheck,
            Self::Device { error: DeviceError::Corrupt | DeviceError::Noop, operation, .. } => {
                *operation != Operation::Read
            }
            _ => false,
        }
    }
}

/// A fault that is being made.
#[derive(Debug)]
pub struct Handler {
    /// Its number.
    pub id: u64,
    /// What goes wrong.
    pub fault: Fault,
    /// How often, out of a million.
    pub frequency: u32,
    matched: AtomicU64,
    injected: AtomicU64,
    lanes: device::Lanes,
}

impl Handler {
    /// How often it could have acted, and how often it did.
    pub fn counts(&self) -> (u64, u64) {
        (self.matched.load(Ordering::Relaxed), self.injected.load(Ordering::Relaxed))
    }

    /// Counts a match. Whether the handler acts this time.
    fn acts(&self) -> bool {
        self.matched.fetch_add(1, Ordering::Relaxed);
        let acts = self.frequency >= ALWAYS || random() % u64::from(ALWAYS) < u64::from(self.frequency);
        if acts {
            self.injected.fetch_add(1, Ordering::Relaxed);
        }
        acts
    }
}

/// The table of a pool.
#[derive(Debug, Default)]
pub(crate) struct Injections {
    handlers: RwLock<Vec<Arc<Handler>>>,
    /// Devices that were wrapped, by leaf.
    wrapped: Mutex<HashMap<Guid, Weak<InjectedDevice>>>,
    /// Handlers of blocks.
    of_blocks: AtomicUsize,
}

impl Injections {
    /// Adds a fault that is made so often out of a million. Returns its number; `None` if there are too many.
    pub(crate) fn add(&self, fault: Fault, frequency: u32) -> Option<u64> {
        let mut handlers = self.handlers.write().ignore_poison();
        if handlers.len() >= MAX_HANDLERS {
            return None;
        }
        let id = LAST_ID.fetch_add(1, Ordering::Relaxed) + 1;
        let lanes = match &fault {
            Fault::Delay { lanes, .. } => device::Lanes::new(*lanes),
            _ => device::Lanes::default(),
        };
        let (matched, injected) = Default::default();
        handlers.push(Arc::new(Handler { id, fault, frequency, matched, injected, lanes }));
        self.count(&handlers);
        Some(id)
    }

    /// Takes a handler away, or all. Returns those that went.
    pub(crate) fn remove(&self, id: Option<u64>) -> Vec<Arc<Handler>> {
        let mut handlers = self.handlers.write().ignore_poison();
        let gone = handlers.extract_if(.., |handler| id.is_none_or(|id| id == handler.id)).collect();
        self.count(&handlers);
        gone
    }

    fn count(&self, handlers: &[Arc<Handler>]) {
        let of_blocks = handlers.iter().filter(|handler| handler.fault.leaf().is_none()).count();
        self.of_blocks.store(of_blocks, Ordering::Release);
    }

    /// All handlers, in the order in which they were added.
    pub fn list(&self) -> Vec<Arc<Handler>> {
        self.handlers.read().ignore_poison().clone()
    }

    /// The device of a leaf, wrapped so that the handlers of the leaf can spoil its transfers.
    pub(crate) fn wrap(self: &Arc<Self>, leaf: Guid, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let mut wrapped = self.wrapped.lock().ignore_poison();
        let known = wrapped.get(&leaf).and_then(Weak::upgrade);
        if known.is_some_and(|known| std::ptr::addr_eq(Arc::as_ptr(&known), Arc::as_ptr(&device))) {
            return device;
        }
        let new = Arc::new(InjectedDevice::new(device, leaf, self));
        wrapped.insert(leaf, Arc::downgrade(&new));
        new
    }

    /// Whether there are handlers of this leaf.
    pub(crate) fn is_about(&self, leaf: Guid) -> bool {
        self.list().iter().any(|handler| handler.fault.leaf() == Some(leaf))
    }

    /// Whether the device of a leaf fails to be opened: handlers that make transfers fail as if the device
    /// were not there mean opening it too (`vdev_open`).
    pub(crate) fn fails_to_open(&self, leaf: Guid) -> bool {
        let is_absent =
            |fault: &Fault| matches!(fault, Fault::Device { error: DeviceError::Nxio, label: None, .. });
        let of_leaf = |handler: &&Arc<Handler>| handler.fault.leaf() == Some(leaf);
        self.list().iter().filter(of_leaf).any(|handler| is_absent(&handler.fault) && handler.acts())
    }

    /// Whether there are handlers of blocks.
    #[inline]
    pub(crate) fn has_blocks(&self) -> bool {
        self.of_blocks.load(Ordering::Relaxed) > 0
    }

    /// Whether there is a handler of this block.
    pub(crate) fn has_block(&self, at: &Bookmark) -> bool {
        let is_about = |handler: &Arc<Handler>| match &handler.fault {
            Fault::Block { blocks, .. } | Fault::Memory { blocks, .. } => blocks.has(at),
            Fault::Device { .. } | Fault::Delay { .. } | Fault::Gone { .. } => false,
        };
        self.has_blocks() && self.list().iter().any(is_about)
    }

    /// What reading a copy of a block ends with, if a handler says so.
    pub(crate) fn of_copy(&self, at: &Bookmark, copy: usize) -> Option<BlockError> {
        self.list().into_iter().find_map(|handler| match &handler.fault {
            Fault::Block { blocks, error } if blocks.has(at) => {
                let is_meant = blocks.copies == 0 || (copy < 8 && blocks.copies & (1 << copy) != 0);
                (is_meant && handler.acts()).then_some(*error)
            }
            _ => None,
        })
    }

    /// Flips a bit of a block if a handler says so for this moment. Returns whether it did.
    pub(crate) fn flip(&self, at: &Bookmark, when: Flip, bytes: &mut [u8]) -> bool {
        let flips = self.list().into_iter().any(|handler| match &handler.fault {
            Fault::Memory { blocks, flip } => *flip == when && blocks.has(at) && handler.acts(),
            _ => false,
        });
        flips && flip_bit(bytes)
    }

    /// The same for a copy of a block; `None` if nothing flips.
    pub(crate) fn flipped(&self, at: &Bookmark, when: Flip, bytes: &[u8]) -> Option<IoBuf> {
        let mut copy = IoBuf::for_overwrite(bytes.len());
        ::device::copy(&mut copy, bytes);
        self.flip(at, when, &mut copy).then_some(copy)
    }
}

/// Flips a bit in a random place. Returns false where there is none.
fn flip_bit(bytes: &mut [u8]) -> bool {
    let place = random();
    let index = usize::try_from(place >> 3).unwrap_or(0).checked_rem(bytes.len());
    match index.and_then(|index| bytes.get_mut(index)) {
        Some(byte) => {
            *byte ^= 1 << (place & 7);
            true
        }
        None => false,
    }
}

/// Numbers without a pattern. Nothing depends on their quality.
fn random() -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    let mut bits = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        bits = (bits ^ bits >> 30).wrapping_mul(factor);
    }
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_acts_on_its_blocks_copies_and_share() {
        let table = Injections::default();
        assert!(!table.has_blocks());
        let blocks = Blocks { objset: 54, object: Some(2), level: Some(0), blocks: (1, 3), copies: 0b10 };
        let id = table.add(Fault::Block { blocks, error: BlockError::Checksum }, ALWAYS).unwrap_or(0);
        let at = Bookmark::data(54, 2, 3);
        assert!(table.has_blocks());
        assert_eq!(table.of_copy(&at, 1), Some(BlockError::Checksum));
        assert_eq!([table.of_copy(&at, 0), table.of_copy(&Bookmark::data(54, 2, 4), 1)], [None, None]);
        assert_eq!(table.list()[0].counts(), (1, 1));
        assert_eq!((table.remove(Some(id)).len(), table.has_blocks()), (1, false));

        let all = Blocks { copies: 0, ..blocks };
        table.add(Fault::Memory { blocks: all, flip: Flip::AfterCheck }, ALWAYS / 2);
        let mut flipped = 0;
        for _ in 0..1000 {
            let mut bytes = [0u8; 64];
            if table.flip(&at, Flip::AfterCheck, &mut bytes) {
                flipped += 1;
                assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
            }
            assert!(!table.flip(&at, Flip::BeforeCheck, &mut bytes));
        }
        assert!((350..650).contains(&flipped), "{flipped} of 1000");
    }
}
