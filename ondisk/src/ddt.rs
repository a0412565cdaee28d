//! Dedup tables: which block has which content, and how many references it has.
//!
//! There is one table for each checksum function in use. Its entries lie in ZAPs divided by class, so that
//! those of the many unshared blocks do not crowd the others: `ditto` (obsolete), `duplicate`, `unique`.
//!
//! | | legacy table | fast dedup (feature `fast_dedup`) |
//! |---|---|---|
//! | where the names are | pool directory | ZAP `DDT-<checksum>`, itself named in the pool directory |
//! | describes itself | no | entries `version` (1) and `flags` ([`FLAG_FLAT`], [`FLAG_LOG`]) in that ZAP |
//! | entries | ZAP `DDT-<checksum>-zap-<class>` | the same name |
//! | value | [`Traditional`](DdtPhys::Traditional) | [`Flat`](DdtPhys::Flat) |
//! | log | none | objects `DDT-log-<checksum>-0` and `-1`, see [`log`] |
//!
//! The ZAP `DDT-statistics` of the pool directory holds for each of those entry ZAPs, under its name, a
//! [histogram](DdtHistogram) as 512 u64.
//!
//! **Key**, five words (a ZAP with u64 keys): the checksum, then a property word: bits 0-15 lsize, 16-31
//! psize (both in sectors of 512, less one), 32-38 compression, 39 encrypted.
//!
//! **Value**, bytes: the first tells how the rest is packed (bit 7: it was little endian, bits 0-6: the
//! compression, which is ZLE or off), see [`PackedPhys`]. Unpacked there are either four slots of 64 bytes,
//! by number of copies (slot 0 belonged to ditto copies), or one flat slot of 72 bytes:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 48 | `ddp_dva` | three DVAs; of an encrypted block the third is salt and IV as in its block pointer |
//! | 48 | 8 | `ddp_refcnt` | references |
//! | 56 | 8 | `ddp_phys_birth` | txg in which it was written, 0: slot not in use |
//! | 64 | 8 | `ddp_class_start` | only flat: when it entered its class, seconds since 1970 |
//!
//! Source of the facts: OpenZFS 2.3 `ddt.h`, `ddt_impl.h`, `ddt.c`, `ddt_zap.c`, `ddt_log.c`.

use crate::blkptr::{Blkptr, ChecksumType, CompressType, Dva};
use crate::dmu::DmuType;
use crate::words::word_struct;
use crate::{ByteOrder, Error, Lsize, Psize, Reader, Result, Txg, Writer};

pub mod log;

const WHAT: &str = "dedup table";

/// Keys of the ZAP that describes a fast dedup table.
pub mod dir_key {
    /// Version, 1.
    pub const VERSION: &str = "version";
    /// Flags.
    pub const FLAGS: &str = "flags";
}

/// Entries have the flat value.
pub const FLAG_FLAT: u64 = 1;
/// Changes go through a log.
pub const FLAG_LOG: u64 = 1 << 1;

/// The classes of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DdtClass {
    /// Blocks with additional ditto copies; no longer made.
    Ditto,
    /// Blocks with several references.
    Duplicate,
    /// Blocks with one reference.
    Unique,
}

impl DdtClass {
    /// All classes, in the order in which a block is looked up.
    pub const ALL: [DdtClass; 3] = [DdtClass::Ditto, DdtClass::Duplicate, DdtClass::Unique];

    /// The class with this number in a log.
    pub fn from_raw(raw: u8) -> Result<DdtClass> {
        let found = DdtClass::ALL.get(usize::from(raw)).copied();
        found.ok_or_else(|| Error::unsupported(WHAT, format!("class {raw}")))
    }

    /// The name within object names.
    pub const fn name(self) -> &'static str {
        match self {
            DdtClass::Ditto => "ditto",
            DdtClass::Duplicate => "duplicate",
            DdtClass::Unique => "unique",
        }
    }
}

/// The name of the ZAP with the entries of a class.
pub fn object_name(checksum: ChecksumType, class: DdtClass) -> String {
    format!("DDT-{}-zap-{}", checksum.name(), class.name())
}

/// The name in the pool directory of the ZAP that describes a fast dedup table.
pub fn directory_name(checksum: ChecksumType) -> String {
    format!("DDT-{}", checksum.name())
}

/// The name of one of the two logs of a fast dedup table.
pub fn log_name(checksum: ChecksumType, which: u8) -> String {
    format!("DDT-log-{}-{which}", checksum.name())
}

word_struct! {
    /// The key of an entry (`ddt_key_t`).
    pub struct DdtKey {
        /// Checksum of the block.
        pub checksum: [u64; 4],
        /// Sizes, compression and encryption.
        pub prop: u64,
    }
}

impl DdtKey {
    /// Words of a key.
    pub const WORDS: usize = DdtKey::SIZE / 8;

    /// The key of the block that a block pointer leads to.
    pub fn of(bp: &Blkptr) -> DdtKey {
        let sectors = |bytes: u64| (bytes >> 9).wrapping_sub(1) & 0xffff;
        let prop = sectors(bp.lsize().get())
            | sectors(bp.psize().get()) << 16
            | u64::from(bp.compress().raw()) << 32
            | u64::from(bp.uses_crypt()) << 39;
        DdtKey { checksum: bp.checksum(), prop }
    }

    /// Logical size.
    pub const fn lsize(&self) -> Lsize {
        Lsize(((self.prop & 0xffff) + 1) << 9)
    }

    /// Physical size.
    pub const fn psize(&self) -> Psize {
        Psize(((self.prop >> 16 & 0xffff) + 1) << 9)
    }

    /// Compression.
    pub fn compress(&self) -> Result<CompressType> {
        CompressType::from_raw((self.prop >> 32 & 0x7f) as u8)
    }

    /// True for an encrypted block.
    pub const fn is_encrypted(&self) -> bool {
        self.prop >> 39 & 1 != 0
    }
}

word_struct! {
    /// A slot: one set of copies of a block.
    pub struct DdtSlot {
        /// Raw addresses, see [`DdtSlot::dvas`].
        pub dva_words: [[u64; 2]; 3],
        /// References.
        pub refcount: u64,
        /// When it was written, 0 when the slot is not in use.
        pub phys_birth: Txg,
    }
}

impl DdtSlot {
    /// True when the slot describes a block.
    pub const fn is_used(&self) -> bool {
        self.phys_birth.get() != 0
    }

    /// Where the copies are.
    pub fn dvas(&self, encrypted: bool) -> Result<Vec<Dva>> {
        let places = if encrypted { 2 } else { 3 };
        self.dva_words.iter().take(places).filter_map(|&words| Dva::from_words(words).transpose()).collect()
    }

    /// A block pointer to the block, as good as the table knows: the object type is [`DmuType::DEDUP`].
    pub fn blkptr(&self, key: &DdtKey, checksum: ChecksumType) -> Result<Blkptr> {
        let mut words = [0; 16];
        words[..6].copy_from_slice(self.dva_words.as_flattened());
        let sizes_and_compression = key.prop & 0x7f_ffff_ffff;
        words[6] = sizes_and_compression
            | u64::from(checksum.raw()) << 40
            | u64::from(DmuType::DEDUP.raw()) << 48
            | u64::from(key.is_encrypted()) << 61
            | 1 << 62
            | u64::from(ByteOrder::HOST == ByteOrder::Little) << 63;
        words[10] = self.phys_birth.get();
        words[11] = 1;
        words[12..].copy_from_slice(&key.checksum);
        Blkptr::from_words(words)
    }
}

word_struct! {
    /// The value of an entry of a fast dedup table.
    pub struct DdtFlat {
        /// The block.
        pub slot: DdtSlot,
        /// When the entry entered its class, seconds since 1970.
        pub class_start: u64,
    }
}

/// Which of the two values a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PhysForm {
    /// Four slots.
    Traditional,
    /// One slot and a time.
    Flat,
}

impl PhysForm {
    /// From the flags of a fast dedup table; a legacy table has none.
    pub const fn from_flags(flags: u64) -> PhysForm {
        if flags & FLAG_FLAT != 0 { PhysForm::Flat } else { PhysForm::Traditional }
    }

    /// Bytes of the unpacked value.
    pub const fn size(self) -> usize {
        match self {
            PhysForm::Traditional => 4 * DdtSlot::SIZE,
            PhysForm::Flat => DdtFlat::SIZE,
        }
    }
}

/// The value of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DdtPhys {
    /// Slots by number of copies; slot 0 belonged to ditto copies.
    Traditional([DdtSlot; 4]),
    /// The fast dedup form.
    Flat(DdtFlat),
}

impl DdtPhys {
    /// Reads an unpacked value.
    pub fn parse(bytes: &[u8], form: PhysForm, order: ByteOrder) -> Result<DdtPhys> {
        DdtPhys::read(&mut Reader::new(WHAT, bytes, order), form)
    }

    /// Consumes an unpacked value.
    pub fn read(reader: &mut Reader<'_>, form: PhysForm) -> Result<DdtPhys> {
        use crate::words::Word;
        Ok(match form {
            PhysForm::Traditional => DdtPhys::Traditional(Word::read(reader)?),
            PhysForm::Flat => DdtPhys::Flat(DdtFlat::read(reader)?),
        })
    }

    /// Appends the unpacked value.
    pub fn write(&self, writer: &mut Writer) {
        match self {
            DdtPhys::Traditional(slots) => slots.iter().for_each(|slot| slot.write(writer)),
            DdtPhys::Flat(flat) => flat.write(writer),
        }
    }

    /// Which form it has.
    pub const fn form(&self) -> PhysForm {
        match self {
            DdtPhys::Traditional(_) => PhysForm::Traditional,
            DdtPhys::Flat(_) => PhysForm::Flat,
        }
    }

    /// The slots that are in use.
    pub fn slots(&self) -> impl Iterator<Item = &DdtSlot> {
        let all = match self {
            DdtPhys::Traditional(slots) => &slots[..],
            DdtPhys::Flat(flat) => std::slice::from_ref(&flat.slot),
        };
        all.iter().filter(|slot| slot.is_used())
    }

    /// References of all slots together.
    pub fn total_refcount(&self) -> u64 {
        self.slots().fold(0, |sum, slot| sum.saturating_add(slot.refcount))
    }
}

/// The value as it lies in the ZAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedPhys<'a> {
    /// Byte order of the unpacked value.
    pub order: ByteOrder,
    /// How it is compressed: `Zle` (of level 64), or `Off`.
    pub compress: CompressType,
    /// The compressed value. Unpacked it is as long as [`PhysForm::size`] says.
    pub bytes: &'a [u8],
}

const LITTLE_ENDIAN_BIT: u8 = 0x80;

impl<'a> PackedPhys<'a> {
    /// Takes a ZAP value (integers of one byte) apart.
    pub fn parse(value: &'a [u8]) -> Result<PackedPhys<'a>> {
        let (&head, bytes) = value.split_first().ok_or_else(|| Error::invalid(WHAT, "empty value"))?;
        let order = if head & LITTLE_ENDIAN_BIT != 0 { ByteOrder::Little } else { ByteOrder::Big };
        let compress = CompressType::from_raw(head & !LITTLE_ENDIAN_BIT)?;
        match compress {
            CompressType::Off | CompressType::Zle => Ok(PackedPhys { order, compress, bytes }),
            other => Err(Error::unsupported(WHAT, format!("value compressed with {other}"))),
        }
    }

    /// The ZAP value.
    pub fn encode(&self) -> Vec<u8> {
        let order = if self.order == ByteOrder::Little { LITTLE_ENDIAN_BIT } else { 0 };
        let mut value = vec![order | self.compress.raw()];
        value.extend_from_slice(self.bytes);
        value
    }
}

word_struct! {
    /// Sums over entries (`ddt_stat_t`).
    pub struct DdtStat {
        /// Blocks.
        pub blocks: u64,
        /// Their logical size.
        pub lsize: u64,
        /// Their physical size.
        pub psize: u64,
        /// Their allocated size without parity.
        pub dsize: u64,
        /// References.
        pub ref_blocks: u64,
        /// Logical size times references.
        pub ref_lsize: u64,
        /// Physical size times references.
        pub ref_psize: u64,
        /// Allocated size times references.
        pub ref_dsize: u64,
    }
}

impl DdtStat {
    /// Adds another sum; sums that do not fit stay at the largest number.
    pub fn add(&mut self, other: &DdtStat) {
        let mine = [
            &mut self.blocks,
            &mut self.lsize,
            &mut self.psize,
            &mut self.dsize,
            &mut self.ref_blocks,
            &mut self.ref_lsize,
            &mut self.ref_psize,
            &mut self.ref_dsize,
        ];
        let theirs = [
            other.blocks,
            other.lsize,
            other.psize,
            other.dsize,
            other.ref_blocks,
            other.ref_lsize,
            other.ref_psize,
            other.ref_dsize,
        ];
        for (mine, theirs) in mine.into_iter().zip(theirs) {
            *mine = mine.saturating_add(theirs);
        }
    }
}

/// Statistics of one ZAP of entries, by number of references: bucket `i` has those with `2^i` up to
/// `2^(i+1) - 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DdtHistogram {
    /// The 64 buckets.
    pub buckets: Vec<DdtStat>,
}

impl DdtHistogram {
    /// Buckets of a histogram.
    pub const BUCKETS: usize = 64;
    /// Words of a histogram in `DDT-statistics`.
    pub const WORDS: usize = Self::BUCKETS * DdtStat::SIZE / 8;

    /// From the integers of the ZAP value.
    pub fn from_words(words: &[u64]) -> Result<DdtHistogram> {
        if words.len() != Self::WORDS {
            return Err(Error::invalid("dedup histogram", format!("{} words", words.len())));
        }
        let bucket = |w: &[u64; 8]| {
            let &[blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize] = w;
            DdtStat { blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize }
        };
        Ok(DdtHistogram { buckets: words.as_chunks::<8>().0.iter().map(bucket).collect() })
    }

    /// The bucket of entries with so many references.
    pub const fn bucket_of(refcount: u64) -> usize {
        match refcount.checked_ilog2() {
            Some(log2) => log2 as usize,
            None => 0,
        }
    }

    /// The sum of all buckets.
    pub fn total(&self) -> DdtStat {
        let mut total = DdtStat::default();
        self.buckets.iter().for_each(|bucket| total.add(bucket));
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::word_struct_round_trips;
    use proptest::prelude::*;

    word_struct_round_trips! {
        keys_round_trip: DdtKey;
        slots_round_trip: DdtSlot;
        flat_values_round_trip: DdtFlat;
    }

    #[test]
    fn sizes_are_those_of_openzfs() {
        assert_eq!((DdtKey::SIZE, PhysForm::Traditional.size(), PhysForm::Flat.size()), (40, 256, 72));
        assert_eq!(DdtHistogram::WORDS, 512);
        assert_eq!(object_name(ChecksumType::Sha256, DdtClass::Unique), "DDT-sha256-zap-unique");
        assert_eq!(directory_name(ChecksumType::Blake3), "DDT-blake3");
        assert_eq!(log_name(ChecksumType::Blake3, 1), "DDT-log-blake3-1");
    }

    #[test]
    fn key_and_slot_make_the_block_pointer_they_came_from() {
        let dva = Dva { vdev: 1.into(), offset: 0x2000.into(), asize: 0x1000.into(), gang: false };
        let mut slot = DdtSlot { refcount: 2, phys_birth: Txg(77), ..DdtSlot::default() };
        slot.dva_words[0] = dva.to_words().unwrap();
        let key = DdtKey { checksum: [1, 2, 3, 4], prop: 0xff | 7 << 16 | 15 << 32 };
        let bp = slot.blkptr(&key, ChecksumType::Sha256).unwrap();
        assert_eq!(DdtKey::of(&bp), key);
        assert_eq!((key.lsize(), key.psize()), (Lsize(131072), Psize(4096)));
        assert_eq!(key.compress(), Ok(CompressType::Lz4));
        assert_eq!(bp.dva(0), Some(dva));
        assert_eq!(slot.dvas(false), Ok(vec![dva]));
        assert_eq!(bp.physical_birth(), Txg(77));
        assert!(bp.is_dedup());
    }

    #[test]
    fn the_first_byte_tells_order_and_compression() {
        let packed = PackedPhys::parse(&[0x8e, 1, 2]).unwrap();
        assert_eq!(
            packed,
            PackedPhys { order: ByteOrder::Little, compress: CompressType::Zle, bytes: &[1, 2] }
        );
        assert_eq!(packed.encode(), [0x8e, 1, 2]);
        assert_eq!(PackedPhys::parse(&[2]).unwrap().compress, CompressType::Off);
        assert!(PackedPhys::parse(&[]).is_err());
        assert!(PackedPhys::parse(&[15]).is_err());
        assert!(PackedPhys::parse(&[0x7f]).is_err());
    }

    #[test]
    fn only_used_slots_count() {
        let mut slots = [DdtSlot::default(); 4];
        slots[1] = DdtSlot { refcount: 3, phys_birth: Txg(1), ..DdtSlot::default() };
        slots[2].refcount = 5;
        assert_eq!(DdtPhys::Traditional(slots).total_refcount(), 3);
    }

    #[test]
    fn buckets_are_powers_of_two() {
        assert_eq!(DdtHistogram::bucket_of(1), 0);
        assert_eq!(DdtHistogram::bucket_of(3), 1);
        assert_eq!(DdtHistogram::bucket_of(u64::MAX), 63);
        let mut words = vec![0; 512];
        words[0] = 1;
        words[8 * 63 + 7] = u64::MAX;
        words[7] = 1;
        let total = DdtHistogram::from_words(&words).unwrap().total();
        assert_eq!((total.blocks, total.ref_dsize), (1, u64::MAX));
        assert!(DdtHistogram::from_words(&words[1..]).is_err());
    }

    proptest! {
        #[test]
        fn both_values_round_trip(words in proptest::collection::vec(any::<u64>(), 32), flat: bool, big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let form = if flat { PhysForm::Flat } else { PhysForm::Traditional };
            let bytes: Vec<u8> = words.iter().flat_map(|&w| order.u64_bytes(w)).take(form.size()).collect();
            let phys = DdtPhys::parse(&bytes, form, order).unwrap();
            prop_assert_eq!(phys.form(), form);
            let mut writer = Writer::new(order);
            phys.write(&mut writer);
            prop_assert_eq!(writer.finish(), bytes);
        }
    }
}
