//! [`Block`]: one logical block's bytes, verified, decrypted and decompressed, shared by handle.
//!
//! A clone is one reference count. The bytes start on a 64-byte boundary, so that SIMD code and copies into
//! network buffers run at full speed. A block is immutable while it is shared: no holder can see it change. A
//! hole of any size is a window on one static run of zeroes and costs nothing.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use device::{IoBuf, SharedBuf};
use ondisk::blkptr::{CompressType, CryptParts};

/// The largest block of any pool (`SPA_MAXBLOCKSIZE`), 16 MiB.
pub const MAX_BLOCK_BYTES: usize = 16 << 20;

/// The bytes of holes. As a constant they would be as large in the program's file. The buffer is a byte
/// longer than recycled buffers, so that it is fresh memory, whose pages need memory only after they are
/// read.
static ZEROES: LazyLock<IoBuf> = LazyLock::new(|| IoBuf::zeroed(MAX_BLOCK_BYTES + 1));

/// One logical block's bytes; cheap to clone, immutable.
#[derive(Clone)]
pub struct Block(Bytes);

#[derive(Clone)]
enum Bytes {
    Zero(usize),
    Owned(Arc<IoBuf>),
    Packed(Arc<Packed>),
    Sealed(Arc<SealedForm>),
}

/// A block of an encrypted dataset as it is stored: what a raw stream brings.
#[derive(Debug)]
pub(crate) struct SealedForm {
    /// The logical size.
    len_bytes: usize,
    /// The bytes, of the physical size: compressed, and encrypted where the type asks for that.
    pub stored: Arc<IoBuf>,
    /// How they are compressed.
    pub compress: CompressType,
    /// Salt, IV and MAC.
    pub crypt: CryptParts,
}

/// Bytes with the compressed form in which they are to be stored.
struct Packed {
    plain: Arc<IoBuf>,
    compress: CompressType,
    stored: Box<[u8]>,
}

impl Block {
    /// A block of zeroes: the contents of a hole. `len_bytes` is capped at [`MAX_BLOCK_BYTES`].
    pub fn zero(len_bytes: usize) -> Self {
        Self(Bytes::Zero(len_bytes.min(MAX_BLOCK_BYTES)))
    }

    /// A block that came compressed, and is to be stored as it came as long as nothing changes it. `stored`
    /// must decompress to `plain`.
    pub(crate) fn packed(plain: IoBuf, compress: CompressType, stored: &[u8]) -> Self {
        Self(Bytes::Packed(Arc::new(Packed { plain: Arc::new(plain), compress, stored: stored.into() })))
    }

    /// A block of `len_bytes` that is stored as it is, without a key. Its bytes are those that are stored
    /// where they have the block's size, and zeroes for all who look at it otherwise: nothing may be made of
    /// them.
    pub(crate) fn sealed(len_bytes: usize, stored: IoBuf, compress: CompressType, crypt: CryptParts) -> Self {
        let len_bytes = len_bytes.min(MAX_BLOCK_BYTES);
        Self(Bytes::Sealed(Arc::new(SealedForm { len_bytes, stored: Arc::new(stored), compress, crypt })))
    }

    /// The form in which a block of an encrypted dataset is to be stored as it is.
    pub(crate) fn sealed_form(&self) -> Option<&SealedForm> {
        match &self.0 {
            Bytes::Sealed(form) => Some(form),
            Bytes::Zero(_) | Bytes::Owned(_) | Bytes::Packed(_) => None,
        }
    }

    /// The form in which a block that came compressed is to be stored.
    pub(crate) fn stored_form(&self) -> Option<(CompressType, &[u8])> {
        match &self.0 {
            Bytes::Packed(packed) => Some((packed.compress, &packed.stored)),
            Bytes::Zero(_) | Bytes::Owned(_) | Bytes::Sealed(_) => None,
        }
    }

    /// The bytes alone.
    pub(crate) fn plain(&self) -> Self {
        match &self.0 {
            Bytes::Packed(packed) => Self(Bytes::Owned(Arc::clone(&packed.plain))),
            Bytes::Zero(_) | Bytes::Owned(_) | Bytes::Sealed(_) => self.clone(),
        }
    }

    /// True when the block was made from a hole. For a stored block full of zeroes it is false.
    pub fn is_hole(&self) -> bool {
        matches!(self.0, Bytes::Zero(_))
    }

    /// The bytes for writing, if no other handle shares the block. Shared bytes never change.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            Bytes::Zero(_) | Bytes::Packed(_) | Bytes::Sealed(_) => None,
            Bytes::Owned(buf) => Arc::get_mut(buf).map(|buf| &mut **buf),
        }
    }

    /// Whether both are handles on the same bytes.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.plain().0, &other.plain().0) {
            (Bytes::Zero(one), Bytes::Zero(other)) => one == other,
            (Bytes::Owned(one), Bytes::Owned(other)) => Arc::ptr_eq(one, other),
            (Bytes::Sealed(one), Bytes::Sealed(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The bytes to write to a device, shared with the block.
    pub fn to_shared(&self) -> SharedBuf {
        match &self.0 {
            Bytes::Zero(len_bytes) => IoBuf::zeroed(*len_bytes).into(),
            Bytes::Owned(buf) => Arc::clone(buf).into(),
            Bytes::Packed(packed) => Arc::clone(&packed.plain).into(),
            Bytes::Sealed(form) => Arc::clone(&form.stored).into(),
        }
    }

    /// The memory of the block, for accounting.
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Bytes::Zero(_) => 0,
            Bytes::Owned(buf) => buf.capacity(),
            Bytes::Packed(packed) => packed.plain.capacity() + packed.stored.len(),
            Bytes::Sealed(form) => form.stored.capacity(),
        }
    }

    /// Whether a copy of the bytes would take no less memory.
    pub(crate) fn has_memory_of_its_size(&self) -> bool {
        match &self.0 {
            Bytes::Zero(_) => true,
            Bytes::Owned(buf) => buf.is_fitted(),
            Bytes::Packed(packed) => packed.plain.is_fitted(),
            Bytes::Sealed(form) => form.stored.is_fitted(),
        }
    }
}

impl From<IoBuf> for Block {
    fn from(buf: IoBuf) -> Self {
        // Windows onto direct reads begin at sectors of 512 bytes, other buffers at pages.
        debug_assert!((buf.as_ptr() as usize).is_multiple_of(64));
        Self(Bytes::Owned(Arc::new(buf)))
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Zero(len_bytes) => &ZEROES[..*len_bytes],
            Bytes::Owned(buf) => buf,
            Bytes::Packed(packed) => &packed.plain,
            Bytes::Sealed(form) if form.stored.len() == form.len_bytes => &form.stored,
            Bytes::Sealed(form) => &ZEROES[..form.len_bytes],
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_hole() { "hole" } else { "data" };
        write!(f, "Block({kind}, {} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_start_on_a_64_byte_boundary() {
        for len in [1, 63, 64, 65, 4096] {
            let block = Block::from(IoBuf::zeroed(len));
            assert_eq!(block.len(), len);
            assert_eq!(block.as_ptr() as usize % 64, 0);
        }
        assert_eq!(Block::zero(512).as_ptr() as usize % 64, 0);
    }

    #[test]
    fn only_a_block_that_nobody_else_holds_can_be_written_to() {
        let mut block = Block::from(IoBuf::zeroed(512));
        let other = block.clone();
        assert!(block.get_mut().is_none() && block.is_same(&other));
        drop(other);
        block.get_mut().unwrap()[3] = 7;
        assert_eq!(block[3], 7);
        assert!(Block::zero(512).get_mut().is_none());
    }

    #[test]
    fn a_block_that_came_compressed_is_the_same_without_that_form() {
        let block = Block::packed(IoBuf::from(&[7; 512][..]), CompressType::Lz4, &[1, 2, 3]);
        assert_eq!(block.stored_form(), Some((CompressType::Lz4, &[1, 2, 3][..])));
        let plain = block.plain();
        assert!(plain.is_same(&block) && plain.stored_form().is_none());
        assert_eq!((&*plain, &*block), (&[7; 512][..], &[7; 512][..]));
        assert_eq!(block.memory_bytes(), plain.memory_bytes() + 3);
    }

    #[test]
    fn a_sealed_block_has_its_logical_size_and_shows_nothing_that_is_compressed() {
        let crypt = CryptParts::default();
        let block = Block::sealed(4096, IoBuf::from(&[9; 512][..]), CompressType::Lz4, crypt);
        assert_eq!((block.len(), block.is_hole(), block.to_shared().len()), (4096, false, 512));
        assert!(block.iter().all(|byte| *byte == 0) && block.clone().is_same(&block));
        let whole = Block::sealed(512, IoBuf::from(&[9; 512][..]), CompressType::Off, crypt);
        assert_eq!(&*whole, &[9; 512][..]);
        assert!(whole.stored_form().is_none() && whole.sealed_form().is_some());
    }

    #[test]
    fn a_hole_reads_as_zeroes_of_any_block_size() {
        assert!(Block::zero(MAX_BLOCK_BYTES).iter().all(|&b| b == 0));
        assert!(Block::zero(0).is_empty());
    }
}
