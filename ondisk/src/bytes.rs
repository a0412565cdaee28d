//! Bounded cursors over bytes in either byte order.
//!
//! [`Reader`] walks a borrowed slice, [`Writer`] grows a vector. Neither panics: a read past the end is
//! [`Error::Truncated`]. All other modules reach raw bytes through these two.

use crate::{Error, Result};

/// Byte order of a block on disk, as stated by the block pointer or by a magic number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ByteOrder {
    /// Least significant byte first (x86, ARM): what nearly all pools hold.
    #[default]
    Little,
    /// Most significant byte first (SPARC, POWER, s390x).
    Big,
}

impl ByteOrder {
    /// The byte order of the machine that runs this code.
    pub const HOST: ByteOrder = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };

    /// The opposite byte order.
    pub const fn swapped(self) -> ByteOrder {
        match self {
            ByteOrder::Little => ByteOrder::Big,
            ByteOrder::Big => ByteOrder::Little,
        }
    }

    /// True when bytes in this order are host integers as they stand.
    pub const fn is_host(self) -> bool {
        matches!(
            (self, ByteOrder::HOST),
            (ByteOrder::Little, ByteOrder::Little) | (ByteOrder::Big, ByteOrder::Big)
        )
    }

    /// The integer that `bytes` spell.
    pub const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        }
    }

    /// The integer that `bytes` spell.
    pub const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The integer that `bytes` spell.
    pub const fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        }
    }

    /// The bytes of an integer.
    pub const fn u16_bytes(self, value: u16) -> [u8; 2] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of an integer.
    pub const fn u32_bytes(self, value: u32) -> [u8; 4] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of an integer.
    pub const fn u64_bytes(self, value: u64) -> [u8; 8] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    /// Which order turns `bytes` into `magic`, if either does.
    pub fn of_magic(magic: u64, bytes: [u8; 8]) -> Option<ByteOrder> {
        [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| order.u64(bytes) == magic)
    }
}

/// A cursor over borrowed bytes. Reads advance it; a read past the end fails and does not advance.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    order: ByteOrder,
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`. `what` names the structure in errors.
    pub const fn new(what: &'static str, bytes: &'a [u8], order: ByteOrder) -> Reader<'a> {
        Reader { bytes, position: 0, order, what }
    }

    /// Byte order in which integers are read.
    pub const fn order(&self) -> ByteOrder {
        self.order
    }

    /// Bytes consumed so far.
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Bytes left.
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// True when all bytes are consumed.
    pub const fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The bytes left, without consuming them.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// Consumes `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some(found) = self.rest().get(..count) else {
            return Err(Error::Truncated {
                what: self.what,
                offset: self.position,
                needed: count,
                available: self.remaining(),
            });
        };
        self.position += count;
        Ok(found)
    }

    /// Consumes `count` bytes without looking at them.
    pub fn skip(&mut self, count: usize) -> Result<()> {
        self.bytes(count).map(|_| ())
    }

    /// Moves to an absolute position inside the input.
    pub fn seek(&mut self, position: usize) -> Result<()> {
        if position > self.bytes.len() {
            return Err(Error::Truncated {
                what: self.what,
                offset: position,
                needed: 0,
                available: self.bytes.len(),
            });
        }
        self.position = position;
        Ok(())
    }

    /// Skips padding so that the position is a multiple of `alignment` (a power of two).
    pub fn align(&mut self, alignment: usize) -> Result<()> {
        debug_assert!(alignment.is_power_of_two());
        self.skip(self.position.wrapping_neg() & (alignment - 1))
    }

    /// Consumes `count` bytes as a reader of their own.
    pub fn sub(&mut self, count: usize) -> Result<Reader<'a>> {
        Ok(Reader::new(self.what, self.bytes(count)?, self.order))
    }

    /// Consumes exactly `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    /// Reads an integer.
    pub fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads an integer.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(self.order.u16(self.array()?))
    }

    /// Reads an integer.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(self.order.u32(self.array()?))
    }

    /// Reads an integer.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(self.order.u64(self.array()?))
    }

    /// Reads a two's complement integer.
    pub fn i32(&mut self) -> Result<i32> {
        Ok(self.u32()? as i32)
    }

    /// Reads a two's complement integer.
    pub fn i64(&mut self) -> Result<i64> {
        Ok(self.u64()? as i64)
    }

    /// Reads `N` integers.
    pub fn u64s<const N: usize>(&mut self) -> Result<[u64; N]> {
        let bytes = self.bytes(N.saturating_mul(8))?;
        let mut words = [0; N];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = self.order.u64(*chunk);
        }
        Ok(words)
    }
}

/// A growing output in one byte order.
#[derive(Debug, Clone)]
pub struct Writer {
    bytes: Vec<u8>,
    order: ByteOrder,
}

impl Writer {
    /// An empty output.
    pub const fn new(order: ByteOrder) -> Writer {
        Writer { bytes: Vec::new(), order }
    }

    /// Byte order in which integers are written.
    pub const fn order(&self) -> ByteOrder {
        self.order
    }

    /// Bytes written so far.
    pub const fn position(&self) -> usize {
        self.bytes.len()
    }

    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends `count` zero bytes.
    pub fn zeros(&mut self, count: usize) -> &mut Writer {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }

    /// Appends zero bytes until `position` bytes are written; does nothing when there are more already.
    pub fn zeros_to(&mut self, position: usize) -> &mut Writer {
        self.zeros(position.saturating_sub(self.bytes.len()))
    }

    /// Appends zero bytes until the length is a multiple of `alignment` (a power of two).
    pub fn align(&mut self, alignment: usize) -> &mut Writer {
        debug_assert!(alignment.is_power_of_two());
        self.zeros(self.bytes.len().wrapping_neg() & (alignment - 1))
    }

    /// Appends an integer.
    pub fn u8(&mut self, value: u8) -> &mut Writer {
        self.bytes(&[value])
    }

    /// Appends an integer.
    pub fn u16(&mut self, value: u16) -> &mut Writer {
        let bytes = self.order.u16_bytes(value);
        self.bytes(&bytes)
    }

    /// Appends an integer.
    pub fn u32(&mut self, value: u32) -> &mut Writer {
        let bytes = self.order.u32_bytes(value);
        self.bytes(&bytes)
    }

    /// Appends an integer.
    pub fn u64(&mut self, value: u64) -> &mut Writer {
        let bytes = self.order.u64_bytes(value);
        self.bytes(&bytes)
    }

    /// Appends integers.
    pub fn u64s(&mut self, values: &[u64]) -> &mut Writer {
        for &value in values {
            self.u64(value);
        }
        self
    }

    /// Overwrites bytes that are written already. Panics if they are not: that is a bug of the caller, whose
    /// positions come from [`Writer::position`] and never from a disk.
    pub fn patch(&mut self, position: usize, bytes: &[u8]) {
        self.bytes[position..position + bytes.len()].copy_from_slice(bytes);
    }

    /// The bytes written.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_read_past_the_end_fails_and_does_not_advance() {
        let mut reader = Reader::new("test", &[1, 2, 3], ByteOrder::Big);
        assert_eq!(reader.u16(), Ok(0x0102));
        assert_eq!(reader.u32(), Err(Error::Truncated { what: "test", offset: 2, needed: 4, available: 1 }));
        assert_eq!(reader.u8(), Ok(3));
        assert!(reader.is_empty());
    }

    #[test]
    fn magic_tells_the_byte_order() {
        assert_eq!(ByteOrder::of_magic(0x0102, [2, 1, 0, 0, 0, 0, 0, 0]), Some(ByteOrder::Little));
        assert_eq!(ByteOrder::of_magic(0x0102, [0, 0, 0, 0, 0, 0, 1, 2]), Some(ByteOrder::Big));
        assert_eq!(ByteOrder::of_magic(0x0102, [9; 8]), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(a: u8, b: u16, c: u32, d: u64, big: bool, tail: Vec<u8>) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let mut writer = Writer::new(order);
            writer.u8(a).align(2).u16(b).u32(c).u64(d).u64s(&[d, d]).bytes(&tail);
            let bytes = writer.finish();
            let mut reader = Reader::new("test", &bytes, order);
            prop_assert_eq!(reader.u8().unwrap(), a);
            reader.align(2).unwrap();
            prop_assert_eq!(reader.u16().unwrap(), b);
            prop_assert_eq!(reader.u32().unwrap(), c);
            prop_assert_eq!(reader.u64().unwrap(), d);
            prop_assert_eq!(reader.u64s::<2>().unwrap(), [d, d]);
            prop_assert_eq!(reader.rest(), &tail[..]);
        }
    }
}
