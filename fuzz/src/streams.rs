//! Send streams and intent logs.

use ondisk::blkptr::{Blkptr, ChecksumType};
use ondisk::crypto_key::KeyFormat;
use ondisk::dnode::Dnode;
use ondisk::nvlist::Nvlist;
use ondisk::send::key_data::{KeyData, RawObjset};
use ondisk::send::stream::{StreamReader, StreamWriter};
use ondisk::send::{Package, Record as SendRecord};
use ondisk::zil::record::Record;
use ondisk::zil::{LogBlock, ZilChain};
use ondisk::{ByteOrder, Txg};

use crate::input::{Input, ORDERS, ends, stable, stable_in_both_orders};

/// Records of send streams.
pub fn send_record(bytes: &[u8]) {
    stable_in_both_orders!(bytes, SendRecord);
    for order in ORDERS {
        if let Ok(record) = SendRecord::parse(bytes, order) {
            let _ = (record.kind_number(), record.payload_bytes());
        }
    }
}

/// What compound streams say of their datasets.
pub fn send_package(bytes: &[u8]) {
    let Ok(package) = Package::parse(bytes) else { return };
    let Ok(encoded) = package.encode() else { return };
    assert_eq!(Package::parse(&encoded).as_ref(), Ok(&package));
    for dataset in &package.datasets {
        for (name, guid) in &dataset.snapshots {
            assert!(dataset.guid_of(name.as_bytes()).is_some() && package.with_snapshot(*guid).is_some());
        }
    }
}

/// What raw streams say of keys and structure: what is accepted can be kept by dnodes.
pub fn key_data(bytes: &[u8]) {
    let Ok(list) = Nvlist::parse(bytes) else { return };
    let Ok(keys) = KeyData::parse(&list) else { return };
    let RawObjset { levels, indirect_block_shift, max_block_id, .. } = keys.objset;
    assert!((1..=Dnode::MAX_LEVELS).contains(&levels) && (12..=17).contains(&indirect_block_shift));
    let pointers_shift = u32::from(indirect_block_shift) - Blkptr::SHIFT;
    let reach = 3u128 << (pointers_shift * (u32::from(levels) - 1)).min(64);
    assert!(u128::from(max_block_id.0) < reach, "a block that no pointer leads to");
    assert_eq!(keys.keyformat == KeyFormat::Passphrase, keys.pbkdf2_iters != 0);
}

/// Whole streams. Their checksums are made right first, since no mutation would get past the first record
/// else.
pub fn send_stream(bytes: &[u8]) {
    read_stream(bytes);
    let order =
        if bytes.first().is_some_and(|byte| byte & 1 == 0) { ByteOrder::Little } else { ByteOrder::Big };
    let mut writer = StreamWriter::new(order);
    let mut sealed = Vec::new();
    let mut input = Input(bytes);
    while input.0.len() >= ondisk::send::RECORD_SIZE {
        let Ok(record) = SendRecord::parse(input.take(ondisk::send::RECORD_SIZE), order) else { break };
        let payload = usize::try_from(record.payload_bytes()).unwrap_or(usize::MAX);
        let payload = input.take(payload);
        let Ok(written) = writer.put(&record, payload) else { break };
        sealed.extend_from_slice(&written);
    }
    read_stream(&sealed);
}

fn read_stream(mut bytes: &[u8]) {
    let mut reader = StreamReader::new();
    let most = bytes.len() / ondisk::send::RECORD_SIZE + 1;
    for _ in 0..=most {
        match reader.next_in(&mut bytes) {
            // A caller makes a buffer of this size.
            Ok(Some(_)) => assert!(reader.wants() <= 64 << 20),
            Ok(None) | Err(_) => return,
        }
    }
    panic!("more records than the input has bytes for");
}

/// Blocks of intent logs: a block pointer, then the block.
pub fn zil_block(bytes: &[u8]) {
    for order in ORDERS {
        stable(bytes, |bytes| ZilChain::parse(bytes).ok(), |(chain, order)| Some(chain.encode(*order)));
        for checksum in ChecksumType::ALL {
            let _ = ZilChain::offset(*checksum, bytes.len());
        }
        let mut input = Input(bytes);
        let Ok(bp) = Blkptr::parse(input.take(Blkptr::SIZE), order) else { continue };
        let Ok(block) = LogBlock::parse(&bp, input.0) else { continue };
        for record in ends(bytes, block.records()).into_iter().flatten() {
            if let Ok(record) = record.parse() {
                look_at(&record);
            }
        }
    }
}

/// Single records of intent logs.
pub fn zil_record(bytes: &[u8]) {
    // The length in the header must be that of the record, which hardly any mutation gets right.
    let mut sized = bytes.to_vec();
    for order in ORDERS {
        if let Some(length) = sized.get_mut(8..16) {
            length.copy_from_slice(&order.u64_bytes(bytes.len() as u64));
        }
        for bytes in [bytes, &sized] {
            let Ok(record) = Record::parse(bytes, order) else { continue };
            look_at(&record);
            // Encoding may refuse what only old software wrote; what it gives must be right.
            let Ok(encoded) = record.encode(Txg(1), 2, order) else { continue };
            let again = Record::parse(&encoded, order).expect("what was encoded parses");
            assert_eq!(again.encode(Txg(1), 2, order).as_ref(), Ok(&encoded));
        }
    }
}

fn look_at(record: &Record<'_>) {
    let _ = (record.kind_number(), record.may_be_out_of_order());
}
