//! Descriptor chains: where in guest memory a request and its answer are.
//!
//! # The idea
//! A request of a ring is a chain of descriptors: first those that the device reads, then those that it
//! writes. Descriptors are in the ring's table, or in a table of the request's own (*indirect*), which is in
//! guest memory too. All of it comes from the guest, so each rule of the standard is checked, and a chain
//! that breaks one is an error: nothing is known then about where an answer would belong.
//!
//! Source of the facts: Virtual I/O Device (VIRTIO) Version 1.2, 2.7.5.

use std::fmt;

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress};

use super::memory::{Memory, Piece};

/// Descriptors of one chain.
pub(super) const MOST_DESCRIPTORS: usize = 1024;
const DESCRIPTOR_BYTES: u32 = 16;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// What a guest did that no driver may do. It ends the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Violation(pub &'static str);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A chain, without the lengths and addresses of its pieces being checked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    pub readable: Vec<Piece>,
    pub writable: Vec<Piece>,
}

impl Chain {
    /// Reads the chain that begins with descriptor `head` of a ring's table.
    ///
    /// # Errors
    /// It breaks a rule.
    pub fn read(memory: &Memory, table: GuestAddress, size: u16, head: u16) -> Result<Self, Violation> {
        let mut chain = Self::default();
        let (mut table, mut size, mut index) = (table, size, head);
        let mut is_indirect = false;
        for _ in 0..MOST_DESCRIPTORS {
            if index >= size {
                return Err(Violation("a descriptor that is not in its table"));
            }
            let address = table.0.checked_add(u64::from(index) * u64::from(DESCRIPTOR_BYTES));
            let address = address.ok_or(Violation("a table beyond all addresses"))?;
            let descriptor = memory.map().read_obj::<Descriptor>(GuestAddress(address));
            let descriptor = descriptor.map_err(|_| Violation("a table outside of guest memory"))?;
            let flags = descriptor.flags();
            if flags & INDIRECT != 0 {
                let length = descriptor.len();
                if is_indirect || flags & NEXT != 0 {
                    return Err(Violation("an indirect descriptor in the wrong place"));
                }
                let entries = length / DESCRIPTOR_BYTES;
                if entries == 0 || !length.is_multiple_of(DESCRIPTOR_BYTES) {
                    return Err(Violation("an indirect table of a wrong length"));
                }
                // A longer one cannot be used in full.
                size = u16::try_from(entries).unwrap_or(u16::MAX);
                (table, index, is_indirect) = (descriptor.addr(), 0, true);
                continue;
            }
            let piece = Piece { address: descriptor.addr(), len: descriptor.len() };
            if flags & WRITE != 0 {
                chain.writable.push(piece);
            } else if chain.writable.is_empty() {
                chain.readable.push(piece);
            } else {
                return Err(Violation("a descriptor to read after one to write"));
            }
            if flags & NEXT == 0 {
                return Ok(chain);
            }
            index = descriptor.next();
        }
        Err(Violation("a chain that is too long, or does not end"))
    }
}
