//! Block pointer lists (bpobj): blocks to be freed some day, with their total space.
//!
//! The contents of the object (type `BPOBJ`) are an array of block pointers; blocks hold a whole number of
//! them. Checksums and fill counts are mostly zeroed, embedded pointers keep only their sizes and birth. A
//! list may include other lists: `bpo_subobjs` is an object whose contents are the numbers of further bpobjs,
//! as u64. Lists nest, so a walk needs a bound on its depth.
//!
//! The header is the bonus buffer (type `BPOBJ_HDR`), of one of four sizes:
//!
//! | offset | size | name | meaning | since |
//! |---|---|---|---|---|
//! | 0 | 8 | `bpo_num_blkptrs` | entries in the contents | 16 bytes |
//! | 8 | 8 | `bpo_bytes` | space of all, lists included | 16 bytes |
//! | 16 | 8 | `bpo_comp` | before allocation overhead | 32 bytes |
//! | 24 | 8 | `bpo_uncomp` | before compression | 32 bytes |
//! | 32 | 8 | `bpo_subobjs` | object of the included lists, 0 if none | 48 bytes |
//! | 40 | 8 | `bpo_num_subobjs` | how many | 48 bytes |
//! | 48 | 8 | `bpo_num_freed` | entries that are frees (livelists) | 56 bytes |
//!
//! Source of the facts: OpenZFS 2.3 `bpobj.h`, `bpobj.c`.

use crate::blkptr::Blkptr;
use crate::{ByteOrder, ObjectId, Reader, Result, Writer};

const WHAT: &str = "bpobj";

/// Space by what it was before compression and allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CompressedSpace {
    /// Before allocation overhead.
    pub comp_bytes: u64,
    /// Before compression.
    pub uncomp_bytes: u64,
}

/// Lists that a list includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SubObjects {
    /// Object whose contents are the lists' numbers, 0 if there are none.
    pub object: ObjectId,
    /// How many.
    pub count: u64,
}

/// The header of a block pointer list (`bpobj_phys_t`). A later field is only present together with the ones
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BpobjPhys {
    /// Entries in the contents.
    pub num_blkptrs: u64,
    /// Space of all entries, included lists too.
    pub bytes: u64,
    /// Absent in the oldest pools.
    pub space: Option<CompressedSpace>,
    /// Absent before version 26.
    pub subobjs: Option<SubObjects>,
    /// Entries that are frees; absent before livelists.
    pub num_freed: Option<u64>,
}

impl BpobjPhys {
    /// Reads a header from a bonus buffer of any of the sizes.
    pub fn parse(bonus: &[u8], order: ByteOrder) -> Result<BpobjPhys> {
        let mut reader = Reader::new(WHAT, bonus, order);
        let [num_blkptrs, bytes] = reader.u64s()?;
        let mut phys = BpobjPhys { num_blkptrs, bytes, ..BpobjPhys::default() };
        if reader.remaining() >= 16 {
            let [comp_bytes, uncomp_bytes] = reader.u64s()?;
            phys.space = Some(CompressedSpace { comp_bytes, uncomp_bytes });
            if reader.remaining() >= 16 {
                let [object, count] = reader.u64s()?;
                phys.subobjs = Some(SubObjects { object: ObjectId(object), count });
                if reader.remaining() >= 8 {
                    phys.num_freed = Some(reader.u64()?);
                }
            }
        }
        Ok(phys)
    }

    /// The bytes on disk, as long as the last field that is present demands.
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let mut writer = Writer::new(order);
        writer.u64s(&[self.num_blkptrs, self.bytes]);
        if let Some(space) = self.space {
            writer.u64s(&[space.comp_bytes, space.uncomp_bytes]);
            if let Some(subobjs) = self.subobjs {
                writer.u64s(&[subobjs.object.get(), subobjs.count]);
                if let Some(freed) = self.num_freed {
                    writer.u64(freed);
                }
            }
        }
        writer.finish()
    }

    /// Lists that this includes; none in the older forms.
    pub fn included(&self) -> SubObjects {
        self.subobjs.unwrap_or_default()
    }
}

/// The block pointers in one block of a list's contents (cut it to the entries that count). A malformed entry
/// is an error in its place; the ones after it still follow.
pub fn blkptrs(block: &[u8], order: ByteOrder) -> impl Iterator<Item = Result<Blkptr>> {
    block.chunks(Blkptr::SIZE).map(move |entry| Blkptr::parse(entry, order))
}

/// The lists named in one block of a list of lists.
pub fn subobjs(block: &[u8], order: ByteOrder) -> impl Iterator<Item = ObjectId> {
    let mut reader = Reader::new(WHAT, block, order);
    std::iter::from_fn(move || reader.u64().ok().map(ObjectId))
}

/// In a livelist: true when the entry is a free, false when it is an allocation.
pub const fn is_free(entry: &Blkptr) -> bool {
    const FILL_WORD: usize = 11;
    entry.words()[FILL_WORD] & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_of_all_sizes_round_trip(words: [u64; 7], size in prop::sample::select(vec![16usize, 32, 48, 56]), big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let bytes: Vec<u8> = words.iter().flat_map(|&w| order.u64_bytes(w)).take(size).collect();
            let phys = BpobjPhys::parse(&bytes, order).unwrap();
            prop_assert_eq!(phys.num_freed.is_some(), size == 56);
            prop_assert_eq!(phys.encode(order), bytes);
        }

        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..1000)) {
            prop_assert!(blkptrs(&bytes, ByteOrder::Little).count() <= bytes.len() / Blkptr::SIZE + 1);
        }
    }

    #[test]
    fn an_old_header_includes_no_lists() {
        assert_eq!(BpobjPhys::parse(&[0; 16], ByteOrder::Little).unwrap().included(), SubObjects::default());
        assert!(BpobjPhys::parse(&[0; 15], ByteOrder::Little).is_err());
    }

    #[test]
    fn every_whole_entry_is_read_and_a_torn_one_is_an_error() {
        let block = [0; 300];
        let found: Vec<_> = blkptrs(&block, ByteOrder::Little).collect();
        assert_eq!(found.len(), 3);
        assert_eq!(found[..2], [Ok(Blkptr::HOLE), Ok(Blkptr::HOLE)]);
        assert!(found[2].is_err());
    }
}
