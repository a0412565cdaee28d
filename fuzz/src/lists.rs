//! Lists and tables of the pool: space, frees, dedup, history, keys.

pub mod names;

use ondisk::blkptr::ChecksumType;
use ondisk::bookmark::BookmarkPhys;
use ondisk::bpobj::{self, BpobjPhys};
use ondisk::brt::{self, BrtVdevPhys};
use ondisk::crypto_key::{DslCryptoKey, KeyFormat};
use ondisk::ddt::log::{DdtLogHeader, DdtLogRecord};
use ondisk::ddt::{self, DdtFlat, DdtHistogram, DdtKey, DdtPhys, DdtSlot, PackedPhys, PhysForm};
use ondisk::deadlist::{self, DeadlistPhys};
use ondisk::history::{self, HistoryPhys};
use ondisk::indirect::{self, BirthEntry, IndirectMapping, MappingPhys, SpaRemovingPhys};
use ondisk::metaslab::{self, MetaslabLayout, MetaslabUnflushedPhys};
use ondisk::redaction::{RedactBlockPhys, RedactionListPhys};
use ondisk::space_map::{Entries, Entry, SpaceMapPhys};
use ondisk::zap::ZapValue;
use ondisk::{BlockId, ByteOffset, ObjectId, Reader, Txg, VdevId, Writer};

use crate::input::{Input, ORDERS, ends, stable, stable_in_both_orders};

/// Lists of block pointers.
pub fn bpobj(bytes: &[u8]) {
    stable_in_both_orders!(bytes, BpobjPhys);
    for order in ORDERS {
        if let Ok(phys) = BpobjPhys::parse(bytes, order) {
            let _ = phys.included();
        }
        for pointer in ends(bytes, bpobj::blkptrs(bytes, order)).into_iter().flatten() {
            let _ = bpobj::is_free(&pointer);
        }
        let _ = ends(bytes, bpobj::subobjs(bytes, order));
    }
}

/// Deadlists and their keys.
pub fn deadlist(bytes: &[u8]) {
    stable_in_both_orders!(bytes, DeadlistPhys);
    if let Ok(txg) = deadlist::parse_key(bytes) {
        assert_eq!(deadlist::parse_key(deadlist::key(txg).as_bytes()), Ok(txg));
    }
}

/// Space maps.
pub fn space_map(bytes: &[u8]) {
    stable_in_both_orders!(bytes, SpaceMapPhys);
    let mut input = Input(bytes);
    let (start, size, shift) = (ByteOffset(input.u64()), input.u64(), input.u8());
    for order in ORDERS {
        for entry in ends(bytes, Entries::new(bytes, order)).into_iter().flatten() {
            match entry {
                Entry::Segment(segment) => {
                    assert!(segment.one_word().is_some() || segment.two_words().is_some());
                    if let Ok((offset, length)) = segment.bytes(start, size, shift) {
                        let end = offset.get().checked_add(length);
                        assert!(offset >= start && end.is_some_and(|end| end - start.get() <= size));
                    }
                }
                Entry::Debug(debug) => assert!(debug.is_padding() || debug.word() >> 62 == 0b10),
            }
        }
    }
}

/// Log space maps and what metaslabs say of them.
pub fn log_space_map(bytes: &[u8]) {
    stable_in_both_orders!(bytes, MetaslabUnflushedPhys);
    let mut input = Input(bytes);
    let unflushed = MetaslabUnflushedPhys { unflushed_txg: Txg(input.u64()) };
    let _ = ondisk::log_space_map::applies(Txg(input.u64()), unflushed);
    if let Ok(txg) = ondisk::log_space_map::parse_key(bytes) {
        assert_eq!(ondisk::log_space_map::parse_key(ondisk::log_space_map::key(txg).as_bytes()), Ok(txg));
    }
}

/// Headers and log blocks of cache devices.
pub fn l2arc(bytes: &[u8]) {
    use ondisk::l2arc::{DeviceHeader, EntryProperties, LogBlock, LogEntry, LogPointer};
    stable_in_both_orders!(bytes, LogPointer, LogEntry);
    if let Ok((header, order)) = DeviceHeader::parse_sector(bytes) {
        let again = DeviceHeader::parse_sector(&header.encode_sector(bytes.len(), order));
        assert_eq!(again, Ok((header, order)));
    }
    let mut input = Input(bytes);
    let entries = usize::from(input.u8());
    if let Ok(block) = LogBlock::parse(bytes, entries) {
        for order in ORDERS {
            assert_eq!(LogBlock::parse(&block.encode(order), entries).as_ref(), Ok(&block));
        }
        for entry in &block.entries {
            if let Ok(properties) = EntryProperties::from_word(entry.prop) {
                assert_eq!(EntryProperties::from_word(properties.to_word()), Ok(properties));
            }
        }
    }
}

/// Metaslabs.
pub fn metaslab(bytes: &[u8]) {
    for order in ORDERS {
        let _ = ends(bytes, metaslab::space_maps(bytes, order));
    }
    let mut input = Input(bytes);
    for shift in [input.u64(), u64::from(input.u8())] {
        let Ok(layout) = MetaslabLayout::new(shift, input.u64()) else { continue };
        let _ = (layout.count(), layout.size_bytes());
        for index in [0, layout.count(), input.u64(), u64::MAX] {
            if let Some(start) = layout.start(index) {
                assert_eq!(layout.index_of(start), Some(index));
            }
        }
        let _ = layout.index_of(ByteOffset(u64::MAX));
    }
}

/// Mappings of removed vdevs.
pub fn indirect(bytes: &[u8]) {
    stable_in_both_orders!(bytes, MappingPhys, BirthEntry, SpaRemovingPhys);
    let mut input = Input(bytes);
    let (offset, length) = (ByteOffset(input.u64()), input.u64());
    for order in ORDERS {
        let _ = ends(bytes, indirect::obsolete_counts(bytes, order));
        let entries: Vec<_> =
            ends(bytes, indirect::mapping_entries(bytes, order)).into_iter().flatten().collect();
        for entry in &entries {
            let mut writer = Writer::new(order);
            let _ = entry.write(&mut writer);
        }
        if let Ok(mapping) = IndirectMapping::new(entries) {
            let mut asked = vec![(offset, length)];
            asked.extend(
                mapping.entries().iter().take(8).map(|entry| (entry.source, entry.target.asize.get())),
            );
            for (offset, length) in asked {
                let Ok(pieces) = mapping.pieces(offset, length) else { continue };
                assert_eq!(pieces.iter().map(|piece| piece.length_bytes).sum::<u64>(), length);
            }
        }
        let births: Vec<BirthEntry> =
            bytes.as_chunks::<16>().0.iter().flat_map(|entry| BirthEntry::parse(entry, order)).collect();
        let _ = indirect::phys_birth(&births, offset);
    }
}

/// Dedup tables.
pub fn ddt(bytes: &[u8]) {
    stable_in_both_orders!(bytes, DdtKey, DdtSlot, DdtFlat);
    let mut input = Input(bytes);
    let form = PhysForm::from_flags(input.u64());
    for order in ORDERS {
        let Ok(key) = DdtKey::parse(bytes, order) else { continue };
        let _ = (key.lsize(), key.psize(), key.compress(), key.is_encrypted());
        let Ok(phys) = DdtPhys::parse(input.0, form, order) else { continue };
        assert_eq!(phys.form(), form);
        let _ = phys.total_refcount();
        for slot in phys.slots() {
            let _ =
                (slot.is_used(), slot.dvas(true), slot.dvas(false), slot.blkptr(&key, ChecksumType::Sha256));
        }
    }
    stable(
        bytes,
        |value| {
            PackedPhys::parse(value).ok().map(|packed| (packed.order, packed.compress, packed.bytes.to_vec()))
        },
        |(order, compress, bytes)| Some(PackedPhys { order: *order, compress: *compress, bytes }.encode()),
    );
    let words: Vec<u64> =
        bytes.as_chunks().0.iter().map(|word: &[u8; 8]| u64::from_le_bytes(*word)).collect();
    for words in [words.as_slice(), &words.repeat(DdtHistogram::WORDS / words.len().max(1) + 1)[..]] {
        let words = &words[..words.len().min(DdtHistogram::WORDS)];
        if let Ok(histogram) = DdtHistogram::from_words(words) {
            let _ = histogram.total();
        }
    }
    let _ = DdtHistogram::bucket_of(input.u64());
    for checksum in ChecksumType::ALL {
        let _ = (ddt::directory_name(*checksum), ddt::log_name(*checksum, bytes.len() as u8));
    }
}

/// Logs of dedup tables.
pub fn ddt_log(bytes: &[u8]) {
    stable_in_both_orders!(bytes, DdtLogHeader);
    for order in ORDERS {
        if let Ok(header) = DdtLogHeader::parse(bytes, order) {
            let _ = (header.check_version(), header.flags(), header.checkpoint());
        }
        for form in [0, u64::MAX].map(PhysForm::from_flags) {
            let _ = DdtLogRecord::size(form);
            for record in ends(bytes, ondisk::ddt::log::records(bytes, form, order)).into_iter().flatten() {
                let mut writer = Writer::new(order);
                record.write(&mut writer);
                let written = writer.finish();
                let again = ends(&written, ondisk::ddt::log::records(&written, form, order));
                assert!(matches!(&again[..], [Ok(same)] if *same == record), "written otherwise than read");
            }
        }
    }
}

/// Block reference tables.
pub fn brt(bytes: &[u8]) {
    stable_in_both_orders!(bytes, BrtVdevPhys);
    for order in ORDERS {
        if let Ok(phys) = BrtVdevPhys::parse(bytes, order) {
            let _ = (phys.array_order(), phys.range_of(ByteOffset(u64::MAX)), phys.range_of(ByteOffset(0)));
        }
        let _ = ends(bytes, brt::entry_counts(bytes, order));
        let _ = brt::parse_entry_count(bytes, order);
    }
    let _ = brt::directory_key(VdevId(bytes.len() as u32));
}

/// The pool's history.
pub fn history(bytes: &[u8]) {
    stable_in_both_orders!(bytes, HistoryPhys);
    for order in ORDERS {
        if let Ok(phys) = HistoryPhys::parse(bytes, order)
            && let Ok(extents) = phys.extents()
        {
            assert!(
                extents.iter().all(|extent| extent.start <= extent.end && extent.end <= phys.phys_max_off)
            );
        }
    }
    for record in ends(bytes, history::records(bytes)).into_iter().flatten() {
        let _ = (record.time(), record.elapsed_ns(), record.who(), record.host(), record.zone());
        let _ = format!("{:?}", record.event());
        let encoded = history::encode_record(&record).expect("what was parsed encodes");
        let again = ends(&encoded, history::records(&encoded));
        assert!(matches!(&again[..], [Ok(_)]), "written otherwise than read");
    }
}

/// Keys of encrypted datasets.
pub fn crypto_key(bytes: &[u8]) {
    let mut input = Input(bytes);
    let template = DslCryptoKey { suite: input.u64(), guid: ondisk::Guid(input.u64()), ..empty_key() };
    // The entries of a key, with the kind, the size and the presence of each under the input's control.
    let entries: Vec<(&str, ZapValue)> = template
        .entries()
        .into_iter()
        .filter_map(|(name, value)| match input.u8() % 16 {
            0 => None,
            1 => Some((name, ZapValue::U64(vec![input.u64()]))),
            2 => Some((name, ZapValue::U8(input.take(usize::from(value.len() as u8)).to_vec()))),
            3 => {
                let length = usize::from(input.u8());
                Some((name, ZapValue::U8(input.take(length).to_vec())))
            }
            4 => Some((name, ZapValue::U32(vec![input.u16().into(); usize::from(input.u8())]))),
            _ => Some((name, value)),
        })
        .collect();
    if let Ok(key) = DslCryptoKey::from_entries(entries.iter().map(|(name, value)| (name.as_bytes(), value)))
    {
        let written = key.entries();
        let again = DslCryptoKey::from_entries(written.iter().map(|(name, value)| (name.as_bytes(), value)));
        assert!(again.is_ok_and(|again| again.entries() == written), "written otherwise than read");
    }
}

fn empty_key() -> DslCryptoKey {
    DslCryptoKey {
        suite: 8,
        guid: ondisk::Guid(1),
        version: 1,
        iv: [0; 12],
        mac: [0; 16],
        master_key: [0; 32],
        hmac_key: [0; 64],
        root_dd: ObjectId(0),
        refcount: 1,
        keyformat: KeyFormat::Raw,
        pbkdf2_salt: 0,
        pbkdf2_iters: 0,
    }
}

/// Bookmarks.
pub fn bookmark(bytes: &[u8]) {
    stable_in_both_orders!(bytes, BookmarkPhys);
    let words: Vec<u64> =
        bytes.as_chunks().0.iter().map(|word: &[u8; 8]| u64::from_le_bytes(*word)).collect();
    for words in [&words[..], &words[..words.len().min(BookmarkPhys::WORDS_V1)]] {
        if let Ok(bookmark) = BookmarkPhys::from_words(words) {
            let _ = (bookmark.needs_v2(), bookmark.written());
        }
    }
}

/// Redaction lists.
pub fn redaction(bytes: &[u8]) {
    stable_in_both_orders!(bytes, RedactionListPhys, RedactBlockPhys);
    for order in ORDERS {
        if let Ok(list) = RedactionListPhys::parse(bytes, order) {
            let _ = list.is_complete();
        }
        let mut reader = Reader::new("redaction", bytes, order);
        if let Ok(block) = RedactBlockPhys::read(&mut reader) {
            let (size, count) = (block.block_bytes(), block.count());
            let made = RedactBlockPhys::new(block.object, block.block, size, count);
            let _ = (made, BlockId(count));
        }
    }
}
