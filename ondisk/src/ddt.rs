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
/// The version of fast dedup tables.
pub const VERSION_FAST: u64 = 1;

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

    /// The class of entries with so many references.
    pub const fn of_references(references: u64) -> DdtClass {
        if references > 1 { DdtClass::Duplicate } else { DdtClass::Unique }
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

    /// The key of a plain block that has these sizes, multiples of 512, and this compression.
    pub fn of_parts(checksum: [u64; 4], lsize: Lsize, psize: Psize, compress: CompressType) -> DdtKey {
        let sectors = |bytes: u64| (bytes >> 9).wrapping_sub(1) & 0xffff;
        let prop = sectors(lsize.get()) | sectors(psize.get()) << 16 | u64::from(compress.raw()) << 32;
        DdtKey { checksum, prop }
    }

    /// The same of an encrypted block. Its checksum has the MAC in its second half.
    #[must_use]
    pub const fn encrypted(self) -> DdtKey {
        DdtKey { prop: self.prop | 1 << 39, ..self }
    }

    /// The words, which are the key in the ZAP. Their order is the order in which logs are flushed.
    pub const fn words(&self) -> [u64; DdtKey::WORDS] {
        let [first, second, third, fourth] = self.checksum;
        [first, second, third, fourth, self.prop]
    }

    /// The key of these words.
    pub fn from_words(words: [u64; DdtKey::WORDS]) -> DdtKey {
        let [first, second, third, fourth, prop] = words;
        DdtKey { checksum: [first, second, third, fourth], prop }
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
    /// The slot of a block without references yet, whose copies are at these addresses: at most three, or two
    /// of an encrypted block, which has its salt and IV in the third place
    /// ([`Blkptr::salt_and_iv_words`]).
    pub fn of_block(dvas: &[Dva], salt_and_iv: Option<[u64; 2]>, phys_birth: Txg) -> Result<DdtSlot> {
        let mut slot = DdtSlot { phys_birth, ..DdtSlot::default() };
        let places = slot.dva_words.len() - usize::from(salt_and_iv.is_some());
        if dvas.len() > places || dvas.is_empty() || phys_birth.get() == 0 {
            return Err(Error::invalid(WHAT, format!("{} copies of a block of {phys_birth}", dvas.len())));
        }
        for (place, dva) in slot.dva_words.iter_mut().zip(dvas) {
            *place = dva.to_words()?;
        }
        if let Some(words) = salt_and_iv {
            slot.dva_words[2] = words;
        }
        Ok(slot)
    }

    /// Salt and IV of its block, if that is encrypted.
    pub const fn salt_and_iv(&self, encrypted: bool) -> Option<[u64; 2]> {
        if encrypted { Some(self.dva_words[2]) } else { None }
    }

    /// Whether a pointer leads to the block of this slot. The first address and the time of writing tell: a
    /// pointer may know fewer copies than the slot.
    pub fn is_of(&self, bp: &Blkptr) -> bool {
        let words = bp.words();
        self.is_used()
            && words.first_chunk() == self.dva_words.first()
            && bp.physical_birth() == self.phys_birth
    }

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

    /// The value of an entry without a block.
    pub fn unused(form: PhysForm) -> DdtPhys {
        match form {
            PhysForm::Traditional => DdtPhys::Traditional([DdtSlot::default(); 4]),
            PhysForm::Flat => DdtPhys::Flat(DdtFlat::default()),
        }
    }

    /// The number of the slot for blocks that are written in so many copies, 1 to 3.
    pub fn place_of(form: PhysForm, copies: u8) -> usize {
        match form {
            PhysForm::Traditional => usize::from(copies.clamp(1, 3)),
            PhysForm::Flat => 0,
        }
    }

    /// Whether the slot of this number belonged to ditto copies, to which no pointer leads.
    pub const fn is_ditto(&self, place: usize) -> bool {
        matches!(self, DdtPhys::Traditional(_)) && place == 0
    }

    /// All slots, used or not.
    pub const fn all_slots(&self) -> &[DdtSlot] {
        match self {
            DdtPhys::Traditional(slots) => slots,
            DdtPhys::Flat(flat) => std::slice::from_ref(&flat.slot),
        }
    }

    /// All slots, to be changed.
    pub fn all_slots_mut(&mut self) -> &mut [DdtSlot] {
        match self {
            DdtPhys::Traditional(slots) => slots,
            DdtPhys::Flat(flat) => std::slice::from_mut(&mut flat.slot),
        }
    }

    /// The number of the slot of the block that a pointer leads to.
    pub fn slot_of(&self, bp: &Blkptr) -> Option<usize> {
        self.all_slots().iter().position(|slot| slot.is_of(bp))
    }

    /// Notes when the entry changed, in values that have a place for it.
    pub const fn set_class_start(&mut self, seconds: u64) {
        if let DdtPhys::Flat(flat) = self {
            flat.class_start = seconds;
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
        self.all_slots().iter().filter(|slot| slot.is_used())
    }

    /// Whether it describes no block at all.
    pub fn is_unused(&self) -> bool {
        self.slots().next().is_none()
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
    /// The sum over the slots of one entry. `dsize` says how many bytes an address takes without parity.
    pub fn of_entry(key: &DdtKey, phys: &DdtPhys, dsize: impl Fn(&Dva) -> u64) -> Result<DdtStat> {
        let mut all = DdtStat::default();
        for slot in phys.slots() {
            let copies = slot.dvas(key.is_encrypted())?;
            let dsize = copies.iter().fold(0u64, |bytes, dva| bytes.saturating_add(dsize(dva)));
            let (lsize, psize, references) = (key.lsize().get(), key.psize().get(), slot.refcount);
            all.add(&DdtStat {
                blocks: 1,
                lsize,
                psize,
                dsize,
                ref_blocks: references,
                ref_lsize: lsize.saturating_mul(references),
                ref_psize: psize.saturating_mul(references),
                ref_dsize: dsize.saturating_mul(references),
            });
        }
        Ok(all)
    }

    /// The words, in their order on disk.
    pub const fn words(&self) -> [u64; DdtStat::SIZE / 8] {
        let &DdtStat { blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize } = self;
        [blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize]
    }

    const fn from_words(words: [u64; DdtStat::SIZE / 8]) -> DdtStat {
        let [blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize] = words;
        DdtStat { blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize }
    }

    fn combine(&mut self, other: &DdtStat, combine: impl Fn(u64, u64) -> u64) {
        let mut words = self.words();
        for (mine, theirs) in words.iter_mut().zip(other.words()) {
            *mine = combine(*mine, theirs);
        }
        *self = DdtStat::from_words(words);
    }

    /// Adds another sum; sums that do not fit stay at the largest number.
    pub fn add(&mut self, other: &DdtStat) {
        self.combine(other, u64::saturating_add);
    }

    /// Takes another sum away. Statistics that were wrong before end at 0.
    pub fn take_away(&mut self, other: &DdtStat) {
        self.combine(other, u64::saturating_sub);
    }
}

/// Statistics of one ZAP of entries, by number of references: bucket `i` has those with `2^i` up to
/// `2^(i+1) - 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DdtHistogram {
    /// The 64 buckets.
    pub buckets: Vec<DdtStat>,
}

impl Default for DdtHistogram {
    fn default() -> DdtHistogram {
        DdtHistogram { buckets: vec![DdtStat::default(); DdtHistogram::BUCKETS] }
    }
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
        let buckets = words.as_chunks().0.iter().map(|words| DdtStat::from_words(*words)).collect();
        Ok(DdtHistogram { buckets })
    }

    /// The integers of the ZAP value.
    pub fn to_words(&self) -> Vec<u64> {
        self.buckets.iter().flat_map(DdtStat::words).collect()
    }

    /// Counts an entry. One without references is in no bucket.
    pub fn add_entry(&mut self, entry: &DdtStat) {
        if let Some(bucket) = self.bucket_mut(entry) {
            bucket.add(entry);
        }
    }

    /// Counts an entry no longer.
    pub fn take_entry(&mut self, entry: &DdtStat) {
        if let Some(bucket) = self.bucket_mut(entry) {
            bucket.take_away(entry);
        }
    }

    fn bucket_mut(&mut self, entry: &DdtStat) -> Option<&mut DdtStat> {
        let counts = entry.ref_blocks > 0;
        self.buckets.get_mut(Self::bucket_of(entry.ref_blocks)).filter(|_| counts)
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
    fn a_slot_is_found_by_its_first_address_and_its_birth() {
        let dva = |offset: u64| Dva { vdev: 1.into(), offset: offset.into(), asize: 512.into(), gang: false };
        let key = DdtKey::of_parts([4, 3, 2, 1], Lsize(8192), Psize(512), CompressType::Lz4);
        let slot = DdtSlot::of_block(&[dva(0x2000), dva(0x4000)], None, Txg(9)).unwrap();
        let bp = slot.blkptr(&key, ChecksumType::Sha256).unwrap();
        assert_eq!((DdtKey::of(&bp), DdtKey::from_words(key.words())), (key, key));
        let mut phys = DdtPhys::unused(PhysForm::Traditional);
        assert!(phys.is_unused() && phys.slot_of(&bp).is_none());
        let place = DdtPhys::place_of(PhysForm::Traditional, 2);
        phys.all_slots_mut()[place] = DdtSlot { refcount: 1, ..slot };
        assert_eq!(
            (place, phys.slot_of(&bp), phys.is_ditto(place), phys.is_ditto(0)),
            (2, Some(2), false, true)
        );
        let later = DdtSlot { phys_birth: Txg(10), ..slot };
        assert_eq!(phys.slot_of(&later.blkptr(&key, ChecksumType::Sha256).unwrap()), None);
        let elsewhere = DdtSlot::of_block(&[dva(0x4000)], None, Txg(9)).unwrap();
        assert_eq!(phys.slot_of(&elsewhere.blkptr(&key, ChecksumType::Sha256).unwrap()), None);
        assert!(DdtSlot::of_block(&[], None, Txg(9)).is_err());
        assert!(DdtSlot::of_block(&[dva(0); 4], None, Txg(9)).is_err());
        assert_eq!(DdtPhys::place_of(PhysForm::Flat, 3), 0);
        assert!(!DdtPhys::unused(PhysForm::Flat).is_ditto(0));
    }

    #[test]
    fn a_slot_of_an_encrypted_block_has_its_salt_and_iv() {
        let dva = |offset: u64| Dva { vdev: 1.into(), offset: offset.into(), asize: 512.into(), gang: false };
        let plain = DdtKey::of_parts([4, 3, 2, 1], Lsize(8192), Psize(512), CompressType::Lz4);
        let key = plain.encrypted();
        assert!(key.is_encrypted() && !plain.is_encrypted() && key.compress() == plain.compress());
        let words = [7, u64::MAX];
        let slot = DdtSlot::of_block(&[dva(0x2000), dva(0x4000)], Some(words), Txg(9)).unwrap();
        let bp = slot.blkptr(&key, ChecksumType::Sha256).unwrap();
        assert_eq!((DdtKey::of(&bp), bp.salt_and_iv_words(), bp.copies()), (key, Some(words), 2));
        assert_eq!((slot.salt_and_iv(true), slot.salt_and_iv(false)), (Some(words), None));
        assert_eq!(slot.dvas(true), Ok(vec![dva(0x2000), dva(0x4000)]));
        assert!(slot.is_of(&bp));
        assert!(DdtSlot::of_block(&[dva(0x2000); 3], Some(words), Txg(9)).is_err());
        let one = DdtSlot::of_block(&[dva(0x2000)], Some(words), Txg(9)).unwrap();
        assert_eq!(one.dvas(true), Ok(vec![dva(0x2000)]));
    }

    #[test]
    fn entries_count_in_the_bucket_of_their_references_and_are_taken_out_again() {
        let dva = Dva { vdev: 0.into(), offset: 0.into(), asize: 4096.into(), gang: false };
        let key = DdtKey::of_parts([1; 4], Lsize(8192), Psize(4096), CompressType::Lz4);
        let mut slot = DdtSlot::of_block(&[dva; 2], None, Txg(5)).unwrap();
        slot.refcount = 3;
        let phys = DdtPhys::Flat(DdtFlat { slot, class_start: 0 });
        let entry = DdtStat::of_entry(&key, &phys, |dva| dva.asize.get()).unwrap();
        assert_eq!(entry.words(), [1, 8192, 4096, 8192, 3, 3 * 8192, 3 * 4096, 3 * 8192]);
        let mut histogram = DdtHistogram::default();
        histogram.add_entry(&entry);
        assert_eq!((histogram.buckets[1], histogram.total()), (entry, entry));
        assert_eq!(DdtHistogram::from_words(&histogram.to_words()).unwrap(), histogram);
        histogram.add_entry(&DdtStat { ref_blocks: 0, ..entry });
        histogram.take_entry(&entry);
        assert_eq!(histogram, DdtHistogram::default());
        histogram.take_entry(&entry);
        assert_eq!(histogram, DdtHistogram::default());
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
