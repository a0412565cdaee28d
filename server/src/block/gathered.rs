//! What a read gives, gathered for a reply: blocks stay where the ARC has them, and go from there to the
//! client.
//!
//! # The idea
//! A reply is written to its socket from many places at once. So most of a read need not be copied into a
//! buffer of its own: the reply holds the blocks by handle until it has left. A block that changes meanwhile
//! does so in a copy, as always where more than one has it.
//!
//! A block that is held cannot leave memory, as small as the part of it may be that was asked for. So at
//! most twice the bytes of a reply are held; of larger blocks the part is copied. A reply of more than
//! [`MOST_HELD_BYTES`] is copied as a whole: the ARC goes on without blocks that it has evicted, and many
//! that are given back at once would then be kept in vain.

use std::ops::Range;

use device::IoBuf;
use engine::cache::Block;
use engine::dmu::Sink;

/// The largest reply that holds blocks.
const MOST_HELD_BYTES: usize = 1 << 20;

/// The bytes of a read, in pieces.
#[derive(Debug)]
pub struct Gathered {
    /// Most reads are of one piece, which needs no list.
    first: Option<Piece>,
    more: Vec<Piece>,
    len_bytes: usize,
    /// Bytes that are still to come.
    left: usize,
    may_hold: bool,
}

#[derive(Debug)]
enum Piece {
    Held(Block, Range<usize>),
    /// A copy, and how much of the buffer it fills.
    Copied(IoBuf, usize),
}

impl Piece {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Held(block, range) => block.get(range.clone()).unwrap_or_default(),
            Self::Copied(buffer, filled) => buffer.get(..*filled).unwrap_or_default(),
        }
    }
}

impl Gathered {
    /// For a read of so many bytes.
    pub fn new(len_bytes: usize) -> Self {
        Self {
            first: None,
            more: Vec::new(),
            len_bytes: 0,
            left: len_bytes,
            may_hold: len_bytes <= MOST_HELD_BYTES,
        }
    }

    /// The bytes that came.
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// Whether none came.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// The bytes, in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.first.iter().chain(&self.more).map(Piece::as_bytes)
    }

    fn add(&mut self, piece: Piece) {
        match self.first {
            None => self.first = Some(piece),
            Some(_) => self.more.push(piece),
        }
    }

    fn count(&mut self, bytes: usize) {
        self.len_bytes += bytes;
        self.left = self.left.saturating_sub(bytes);
    }
}

impl Sink for Gathered {
    fn put(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Some(Piece::Copied(buffer, filled)) = self.more.last_mut().or(self.first.as_mut())
            && let Some(free) = buffer.get_mut(*filled..).and_then(|free| free.get_mut(..bytes.len()))
        {
            device::copy(free, bytes);
            *filled += bytes.len();
        } else {
            // With room for all that may still come, so that there are few.
            let mut buffer = IoBuf::for_overwrite(self.left.max(bytes.len()));
            device::copy(&mut buffer[..bytes.len()], bytes);
            self.add(Piece::Copied(buffer, bytes.len()));
        }
        self.count(bytes.len());
    }

    fn put_zeroes(&mut self, len_bytes: usize) {
        let mut left = len_bytes;
        while left > 0 {
            let zeroes = Block::zero(left);
            let here = zeroes.len();
            self.add(Piece::Held(zeroes, 0..here));
            left -= here;
        }
        self.count(len_bytes);
    }

    fn put_block(&mut self, block: &Block, range: Range<usize>) {
        if !self.may_hold || block.memory_bytes() > 2 * range.len() {
            return self.put(block.get(range).unwrap_or_default());
        }
        let bytes = range.len();
        self.add(Piece::Held(block.clone(), range));
        self.count(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(first: u8, len_bytes: usize) -> Block {
        let mut buffer = IoBuf::for_overwrite(len_bytes);
        (0..len_bytes).for_each(|at| buffer[at] = first.wrapping_add((at / 512) as u8));
        Block::from(buffer)
    }

    fn is_held(gathered: &Gathered, block: &Block) -> bool {
        let memory = block.as_ptr_range();
        gathered.parts().any(|part| memory.contains(&part.as_ptr()))
    }

    #[test]
    fn pieces_of_all_kinds_follow_each_other() {
        let (large, small) = (block(1, 16 << 10), block(7, 8 << 10));
        let mut gathered = Gathered::new(24 << 10);
        gathered.put_block(&large, 12 << 10..16 << 10);
        gathered.put_zeroes(4 << 10);
        gathered.put_block(&small, 0..8 << 10);
        gathered.put(&large[..5000]);
        gathered.put(&large[5000..8 << 10]);
        let expected = [&large[12 << 10..], &[0; 4 << 10], &small[..], &large[..8 << 10]].concat();
        assert_eq!(gathered.parts().collect::<Vec<_>>().concat(), expected);
        assert_eq!(gathered.len(), expected.len());
    }

    #[test]
    fn a_block_is_held_only_where_at_least_half_of_it_was_asked_for() {
        let block = block(3, 64 << 10);
        let read = |bytes: usize| {
            let mut gathered = Gathered::new(bytes);
            gathered.put_block(&block, 512..512 + bytes);
            assert_eq!(gathered.parts().collect::<Vec<_>>().concat(), block[512..512 + bytes]);
            is_held(&gathered, &block)
        };
        assert!(read(32 << 10) && read(48 << 10));
        assert!(!read((32 << 10) - 512) && !read(512));
    }

    #[test]
    fn a_large_reply_is_copied() {
        let block = block(3, 64 << 10);
        let mut gathered = Gathered::new(MOST_HELD_BYTES + 512);
        gathered.put_block(&block, 0..64 << 10);
        assert!(!is_held(&gathered, &block));
        assert_eq!(gathered.parts().collect::<Vec<_>>().concat(), block[..]);
    }
}
