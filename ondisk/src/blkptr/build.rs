//! Making block pointers.

use super::{
    Blkptr, CHECKSUM, ChecksumType, CompressType, Dva, EMBEDDED_PAYLOAD_MAX, FILL, LOGICAL_BIRTH,
    MORE_PROPERTIES, PHYSICAL_BIRTH, PROPERTIES, field, is_payload_word, sectors,
};
use crate::dmu::DmuType;
use crate::{ByteOrder, Error, Level, Lsize, Psize, Result, Txg};

/// The parts of a regular block pointer, for building one. Encryption parameters go in with
/// [`BlkptrParts::crypt`].
#[derive(Debug, Clone)]
pub struct BlkptrParts {
    /// Addresses, at most three (two when encrypted).
    pub dvas: Vec<Dva>,
    /// Logical size, a multiple of 512.
    pub lsize: Lsize,
    /// Physical size, a multiple of 512.
    pub psize: Psize,
    /// Compression of the block.
    pub compress: CompressType,
    /// Checksum function.
    pub checksum_type: ChecksumType,
    /// Checksum in host order; its last two words are overwritten by the MAC when there is one.
    pub checksum: [u64; 4],
    /// Object type.
    pub dmu_type: DmuType,
    /// Level in the block tree.
    pub level: Level,
    /// D bit.
    pub dedup: bool,
    /// Byte order of the block.
    pub byte_order: ByteOrder,
    /// Logical birth.
    pub logical_birth: Txg,
    /// Physical birth.
    pub physical_birth: Txg,
    /// Fill count.
    pub fill: u64,
    /// Sets the X bit and the words that it gives a meaning.
    pub crypt: Option<CryptParts>,
}

/// Encryption parameters of a block pointer. Salt and IV are used only where the object type is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CryptParts {
    /// Salt of the block key.
    pub salt: [u8; 8],
    /// Initialisation vector.
    pub iv: [u8; 12],
    /// Message authentication code.
    pub mac: [u8; 16],
}

impl CryptParts {
    /// The MAC as the last two words of the checksum.
    pub fn mac_words(&self, order: ByteOrder) -> [u64; 2] {
        let (halves, _) = self.mac.as_chunks::<8>();
        [0, 1].map(|half| halves.get(half).map_or(0, |bytes| order.u64(*bytes)))
    }
}

impl BlkptrParts {
    /// Packs the parts, refusing what does not fit its field.
    pub fn build(&self) -> Result<Blkptr> {
        let mut words = [0; 16];
        let level =
            u8::try_from(self.level.0).map_err(|_| Error::invalid("block pointer", "negative level"))?;
        words[PROPERTIES] = field("lsize", sectors(self.lsize.0)?.wrapping_sub(1), 16)?
            | field("psize", sectors(self.psize.0)?.wrapping_sub(1), 16)? << 16
            | u64::from(self.compress.raw()) << 32
            | u64::from(self.checksum_type.raw()) << 40
            | u64::from(self.dmu_type.raw()) << 48
            | field("level", level.into(), 5)? << 56
            | u64::from(self.crypt.is_some()) << 61
            | u64::from(self.dedup) << 62
            | u64::from(self.byte_order == ByteOrder::Little) << 63;
        let places = Blkptr { words }.dva_slots();
        if self.dvas.len() > places {
            return Err(Error::invalid("block pointer", format!("{} copies of {places}", self.dvas.len())));
        }
        for (place, dva) in words.as_chunks_mut::<2>().0.iter_mut().zip(&self.dvas) {
            *place = dva.to_words()?;
        }
        words[LOGICAL_BIRTH] = self.logical_birth.0;
        if self.physical_birth != self.logical_birth {
            words[PHYSICAL_BIRTH] = self.physical_birth.0;
        }
        words[FILL] = self.fill;
        words[CHECKSUM..].copy_from_slice(&self.checksum);
        if let Some(crypt) = &self.crypt {
            let order = self.byte_order;
            if places == 2 {
                let [iv @ .., i8, i9, i10, i11] = crypt.iv;
                words[4] = order.u64(crypt.salt);
                words[5] = order.u64(iv);
                words[FILL] = field("fill", self.fill, 32)? | u64::from(order.u32([i8, i9, i10, i11])) << 32;
            }
            if self.dmu_type != DmuType::OBJSET {
                words[CHECKSUM + 2..].copy_from_slice(&crypt.mac_words(order));
            }
        }
        Blkptr::from_words(words)
    }
}

/// Packs a small block into a block pointer.
pub fn embed(
    payload: &[u8],
    lsize: Lsize,
    compress: CompressType,
    dmu_type: DmuType,
    level: Level,
    birth: Txg,
) -> Result<Blkptr> {
    if payload.is_empty() || payload.len() > EMBEDDED_PAYLOAD_MAX {
        return Err(Error::invalid("embedded block pointer", format!("payload of {} bytes", payload.len())));
    }
    let level = u8::try_from(level.0).map_err(|_| Error::invalid("block pointer", "negative level"))?;
    let mut padded = [0; EMBEDDED_PAYLOAD_MAX];
    padded[..payload.len()].copy_from_slice(payload);
    let mut words = [0; 16];
    let places = words.iter_mut().enumerate().filter(|(index, _)| is_payload_word(*index));
    for (chunk, (_, word)) in padded.as_chunks::<8>().0.iter().zip(places) {
        *word = u64::from_le_bytes(*chunk);
    }
    words[LOGICAL_BIRTH] = birth.0;
    words[PROPERTIES] = field("embedded lsize", lsize.0.wrapping_sub(1), 25)?
        | (payload.len() as u64 - 1) << 25
        | u64::from(compress.raw()) << 32
        | 1 << 39
        | u64::from(dmu_type.raw()) << 48
        | field("level", level.into(), 5)? << 56
        | u64::from(ByteOrder::HOST == ByteOrder::Little) << 63;
    Blkptr::from_words(words)
}

impl Blkptr {
    /// A pointer to the same block as one that is born in `birth`: what refers to a block that was cloned
    /// then.
    pub fn cloned_in(&self, birth: Txg) -> Blkptr {
        let mut words = self.words;
        let physical = self.physical_birth();
        words[LOGICAL_BIRTH] = birth.0;
        words[PHYSICAL_BIRTH] = if physical == birth { 0 } else { physical.0 };
        words[MORE_PROPERTIES] &= !(1 << 63);
        Blkptr { words }
    }

    /// This pointer to a block just written, as one that was rewritten and has the contents that it had since
    /// `birth`.
    pub fn rewritten_since(&self, birth: Txg) -> Blkptr {
        let mut words = self.words;
        let physical = self.physical_birth();
        words[LOGICAL_BIRTH] = birth.0;
        words[PHYSICAL_BIRTH] = if physical == birth { 0 } else { physical.0 };
        words[MORE_PROPERTIES] |= 1 << 63;
        Blkptr { words }
    }
}

/// A hole that remembers when it was made (`hole_birth`): what takes the place of a block that became zeroes.
pub fn hole(lsize: Lsize, dmu_type: DmuType, level: Level, birth: Txg) -> Result<Blkptr> {
    let level = u8::try_from(level.0).map_err(|_| Error::invalid("block pointer", "negative level"))?;
    let mut words = [0; 16];
    words[PROPERTIES] = field("lsize", sectors(lsize.0)?.wrapping_sub(1), 16)?
        | u64::from(dmu_type.raw()) << 48
        | field("level", level.into(), 5)? << 56;
    words[LOGICAL_BIRTH] = birth.0;
    Blkptr::from_words(words)
}
