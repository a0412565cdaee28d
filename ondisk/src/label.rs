//! Vdev labels: where on a device its pool describes itself, four times.
//!
//! Every leaf device carries four equal labels of 256 KiB, two at its start and two at its end, so that an
//! interrupted update always leaves a valid pair. Between them lies the space that DVAs address (from 4 MiB
//! on).
//!
//! | device offset | size | content |
//! |---|---|---|
//! | 0 | 256 KiB | label 0 |
//! | 256 KiB | 256 KiB | label 1 |
//! | 512 KiB | 3.5 MiB | reserved for boot loaders; scratch space of raidz expansion |
//! | 4 MiB | | allocatable space: DVA offset 0 |
//! | end - 512 KiB | 256 KiB | label 2 |
//! | end - 256 KiB | 256 KiB | label 3 |
//!
//! `end` is the size of the device rounded down to 256 KiB. Inside a label:
//!
//! | label offset | size | name | content |
//! |---|---|---|---|
//! | 0 | 8 KiB | pad1 | blank, so that a partition table does no harm |
//! | 8 KiB | 8 KiB | be | boot environment, see [`BootEnv`] |
//! | 16 KiB | 112 KiB | vdev_phys | packed XDR nvlist of the configuration ([`crate::vdev_config`]) |
//! | 128 KiB | 128 KiB | uberblock | ring of uberblocks ([`crate::uberblock`]), one slot a txg |
//!
//! The boot environment, the configuration and each uberblock slot end with a trailer of 40 bytes
//! (`zio_eck`): a magic number that tells the byte order, then a SHA-256 of the whole area. While that is
//! computed, the checksum words of the trailer hold the verifier: the offset of the area from the start of
//! the device, then three zeros. A label copied to another place is thus invalid.
//!
//! Source: OpenZFS 2.3 `vdev_impl.h`, `vdev_label.c`, `zio.h`.

use std::ops::Range;

use crate::nvlist::Nvlist;
use crate::{ByteOffset, ByteOrder, Error, Reader, Result, Txg, Writer};

/// Number of labels.
pub const LABELS: usize = 4;
/// Size of a label, and alignment of the device's usable size.
pub const LABEL_SIZE: u64 = 256 << 10;
/// Where the boot environment lies in a label.
pub const BOOT_ENV: Range<u64> = 8 << 10..16 << 10;
/// Where the configuration lies in a label.
pub const VDEV_PHYS: Range<u64> = 16 << 10..128 << 10;
/// Where the uberblock ring lies in a label.
pub const UBERBLOCK_RING: Range<u64> = 128 << 10..256 << 10;
/// Device offset of the region for boot loaders.
pub const BOOT_REGION: Range<u64> = 512 << 10..4 << 20;
/// Bytes before allocatable space: a DVA's offset counts from here.
pub const FRONT_SIZE: u64 = 4 << 20;
/// Bytes after allocatable space.
pub const BACK_SIZE: u64 = 2 * LABEL_SIZE;
/// Smallest device that a pool accepts.
pub const MIN_DEVICE_SIZE: u64 = 64 << 20;

/// Size of a checksum trailer.
pub const TRAILER_SIZE: usize = 40;
/// First word of a checksum trailer.
pub const TRAILER_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// Size of the device that counts: rounded down to whole labels.
pub const fn aligned_size(device_size: u64) -> u64 {
    device_size / LABEL_SIZE * LABEL_SIZE
}

/// Device offset of label `index` (0 to 3) on a device of `device_size` bytes; `None` when they do not fit.
pub fn label_offset(device_size: u64, index: usize) -> Option<ByteOffset> {
    let size = aligned_size(device_size);
    if size < FRONT_SIZE + BACK_SIZE || index >= LABELS {
        return None;
    }
    let before = LABEL_SIZE * index as u64;
    Some(ByteOffset(if index < LABELS / 2 { before } else { size - LABEL_SIZE * LABELS as u64 + before }))
}

/// log2 of the size of an uberblock slot on a vdev of this ashift: 1 KiB to 8 KiB.
pub const fn uberblock_shift(ashift: u32) -> u32 {
    if ashift < 10 {
        10
    } else if ashift > 13 {
        13
    } else {
        ashift
    }
}

/// Number of slots of the ring.
pub const fn uberblock_count(ashift: u32) -> u64 {
    (UBERBLOCK_RING.end - UBERBLOCK_RING.start) >> uberblock_shift(ashift)
}

/// Label offset of a slot of the ring.
pub const fn uberblock_slot(ashift: u32, slot: u64) -> ByteOffset {
    ByteOffset(UBERBLOCK_RING.start + ((slot % uberblock_count(ashift)) << uberblock_shift(ashift)))
}

/// The slot that the uberblock of a txg is written to. With multihost protection the last slot is kept for
/// heartbeats.
pub const fn uberblock_slot_of(ashift: u32, txg: Txg, multihost: bool) -> u64 {
    txg.0 % (uberblock_count(ashift) - multihost as u64)
}

/// A checksum trailer (`zio_eck`) at the end of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// Byte order of the writer, given by the magic number.
    pub order: ByteOrder,
    /// The checksum in host order.
    pub checksum: [u64; 4],
}

impl Trailer {
    /// Reads the trailer of an area.
    pub fn parse(area: &[u8]) -> Result<Trailer> {
        let Some(bytes) = area.last_chunk::<TRAILER_SIZE>() else {
            return Err(Error::Truncated {
                what: "checksum trailer",
                offset: 0,
                needed: TRAILER_SIZE,
                available: area.len(),
            });
        };
        let magic = Reader::new("checksum trailer", bytes, ByteOrder::Little).array()?;
        let Some(order) = ByteOrder::of_magic(TRAILER_MAGIC, magic) else {
            let found = u64::from_le_bytes(magic);
            return Err(Error::BadMagic { what: "checksum trailer", found });
        };
        let mut reader = Reader::new("checksum trailer", bytes, order);
        reader.skip(8)?;
        Ok(Trailer { order, checksum: reader.u64s()? })
    }

    /// The 40 bytes.
    pub fn encode(&self) -> [u8; TRAILER_SIZE] {
        let mut bytes = [0; TRAILER_SIZE];
        let words = [TRAILER_MAGIC, self.checksum[0], self.checksum[1], self.checksum[2], self.checksum[3]];
        for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *chunk = self.order.u64_bytes(word);
        }
        bytes
    }

    /// The value of the checksum words while the checksum of an area at this device offset is computed.
    pub const fn label_verifier(device_offset: ByteOffset) -> [u64; 4] {
        [device_offset.0, 0, 0, 0]
    }
}

/// The packed configuration in the area [`VDEV_PHYS`] of a label, whose checksum the caller has verified.
pub fn parse_config(area: &[u8]) -> Result<Nvlist> {
    let packed = area.len().saturating_sub(TRAILER_SIZE);
    Nvlist::parse(area.get(..packed).unwrap_or_default())
}

/// Boot environment block of a label, without its trailer.
///
/// | offset | size | name | meaning |
/// |---|---|---|---|
/// | 0 | 8 | version | 0: text, 1: packed nvlist; big endian |
/// | 8 | 8144 | bootenv | NUL-terminated text, or nvlist |
#[derive(Debug, Clone, PartialEq)]
pub enum BootEnv {
    /// Text of GRUB's environment.
    Raw(Vec<u8>),
    /// Named values.
    Nvlist(Nvlist),
}

impl BootEnv {
    const SIZE: usize = (BOOT_ENV.end - BOOT_ENV.start) as usize;

    /// Parses the area [`BOOT_ENV`] of a label.
    pub fn parse(area: &[u8]) -> Result<BootEnv> {
        let area = area.get(..area.len().saturating_sub(TRAILER_SIZE)).unwrap_or_default();
        let mut reader = Reader::new("boot environment", area, ByteOrder::Big);
        match reader.u64()? {
            0 => {
                let text = reader.rest();
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                Ok(BootEnv::Raw(text.get(..end).unwrap_or_default().to_vec()))
            }
            1 => Ok(BootEnv::Nvlist(Nvlist::parse(reader.rest())?)),
            version => Err(Error::unsupported("boot environment", format!("version {version}"))),
        }
    }

    /// The area, with room for the trailer at its end.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut writer = Writer::new(ByteOrder::Big);
        match self {
            BootEnv::Raw(text) => writer.u64(0).bytes(text).u8(0),
            BootEnv::Nvlist(list) => writer.u64(1).bytes(&list.encode(crate::nvlist::Encoding::Xdr)?),
        };
        if writer.position() > BootEnv::SIZE - TRAILER_SIZE {
            return Err(Error::TooLarge { what: "boot environment", limit: BootEnv::SIZE as u64 });
        }
        writer.zeros_to(BootEnv::SIZE);
        Ok(writer.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_at_both_ends_of_the_aligned_device() {
        let size = (64 << 20) + 1000;
        let offsets: Vec<u64> = (0..4).map(|index| label_offset(size, index).unwrap().0).collect();
        assert_eq!(offsets, [0, 256 << 10, (64 << 20) - (512 << 10), (64 << 20) - (256 << 10)]);
        assert_eq!(label_offset(size, 4), None);
        assert_eq!(label_offset(1 << 20, 0), None);
    }

    #[test]
    fn slots_grow_with_the_sector_size_up_to_8_kib() {
        assert_eq!([9, 10, 12, 13, 16].map(uberblock_count), [128, 128, 32, 16, 16]);
        assert_eq!(uberblock_slot(12, 33), ByteOffset((128 << 10) + 4096));
        assert_eq!(uberblock_slot_of(12, Txg(32), false), 0);
        assert_eq!(uberblock_slot_of(12, Txg(31), true), 0);
    }

    proptest::proptest! {
        #[test]
        fn trailers_round_trip_in_both_orders(checksum: [u64; 4], big: bool, before in 0usize..100) {
            let trailer = Trailer { order: if big { ByteOrder::Big } else { ByteOrder::Little }, checksum };
            let area = [&vec![7; before][..], &trailer.encode()].concat();
            proptest::prop_assert_eq!(Trailer::parse(&area), Ok(trailer));
        }

        #[test]
        fn texts_of_boot_environments_round_trip(text in proptest::collection::vec(1u8.., 0..200)) {
            let env = BootEnv::Raw(text);
            proptest::prop_assert_eq!(BootEnv::parse(&env.encode().unwrap()), Ok(env));
        }
    }

    #[test]
    fn what_is_no_trailer_is_refused() {
        assert!(matches!(Trailer::parse(&[0; 100]), Err(Error::BadMagic { .. })));
        assert!(matches!(Trailer::parse(&[0; 39]), Err(Error::Truncated { .. })));
    }

    #[test]
    fn boot_environments_round_trip() {
        let mut list = Nvlist::new();
        list.push("grub:next", "linux");
        for env in [BootEnv::Raw(b"saved_entry=1\n".to_vec()), BootEnv::Nvlist(list)] {
            assert_eq!(BootEnv::parse(&env.encode().unwrap()), Ok(env));
        }
        assert!(BootEnv::Raw(vec![b'x'; 9000]).encode().is_err());
    }
}
