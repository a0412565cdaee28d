//! What holds a pool together: labels, configs, block pointers, dnodes, object sets, DSL.

pub mod files;

use ondisk::blkptr::{Blkptr, Dva};
use ondisk::checkpoint;
use ondisk::dnode::Dnode;
use ondisk::dsl_dataset::DslDatasetPhys;
use ondisk::dsl_dir::DslDirPhys;
use ondisk::label::{self, BootEnv, Trailer};
use ondisk::nvlist::{Encoding, Nvlist};
use ondisk::objset::Objset;
use ondisk::uberblock::Uberblock;
use ondisk::vdev_config::{PoolConfig, VdevConfig};
use ondisk::zil::ZilHeader;
use ondisk::{BlockId, ByteOffset, Level, Txg};

use crate::input::{Input, ORDERS, stable, stable_in_both_orders};

/// Packed nvlists of either encoding.
pub fn nvlist(bytes: &[u8]) {
    let Ok((list, encoding, used)) = Nvlist::parse_packed(bytes) else { return };
    assert!(used <= bytes.len());
    let mut text = String::new();
    let _ = list.dump(&mut text, 0);
    for into in [Encoding::Xdr, encoding] {
        // Encoding may refuse, as what XDR cannot express; what it gives must be right.
        let Ok(encoded) = list.encode(into) else { continue };
        let again = Nvlist::parse(&encoded).expect("what was encoded parses");
        // Not a comparison of lists: a double that is no number is unequal to itself.
        assert!(again.encode(into).as_ref() == Ok(&encoded), "encodes otherwise the second time");
    }
}

/// The configs of vdevs and pools.
pub fn vdev_config(bytes: &[u8]) {
    let Ok(list) = Nvlist::parse(bytes) else { return };
    if let Ok(vdev) = VdevConfig::parse(&list) {
        let _ = vdev.leaves();
        let written = vdev.to_nvlist();
        let again = VdevConfig::parse(&written).expect("what was written parses");
        assert!(again == vdev, "written otherwise than read");
    }
    for name in ["spares", "l2cache"] {
        let _ = VdevConfig::parse_auxiliary(&list, name);
    }
    if let Ok(nested) = list.get_nvlist("vdev_tree") {
        let _ = VdevConfig::parse(nested);
    }
    let _ = PoolConfig::parse(list);
}

/// Areas of a label, the boot environment, and the arithmetic around them.
pub fn label(bytes: &[u8]) {
    let _ = label::parse_config(bytes);
    if let Ok(trailer) = Trailer::parse(bytes) {
        assert!(bytes.ends_with(&trailer.encode()));
    }
    if let Ok(env) = BootEnv::parse(bytes)
        && let Ok(area) = env.encode()
    {
        let again = BootEnv::parse(&area).expect("what was encoded parses");
        assert!(again.encode().as_ref() == Ok(&area), "encodes otherwise the second time");
    }
    let mut input = Input(bytes);
    let (size, ashift) = (input.u64(), u32::from(input.u8()));
    let (slot, multihost) = (input.u64(), input.u8() & 1 != 0);
    let _ = label::aligned_size(size);
    for index in 0..=label::LABELS {
        if let Some(offset) = label::label_offset(size, index) {
            assert!(offset.get().checked_add(label::LABEL_SIZE).is_some_and(|end| end <= size));
        }
    }
    let count = label::uberblock_count(ashift);
    let _ = label::uberblock_slot(ashift, slot % count);
    assert!(label::uberblock_slot_of(ashift, Txg(slot), multihost) < count);
}

/// Uberblocks and the checkpoint's copy.
pub fn uberblock(bytes: &[u8]) {
    let found = stable(bytes, |bytes| Uberblock::parse(bytes).ok(), |uberblock| Some(uberblock.encode()));
    if let Some(uberblock) = found {
        let _ = (uberblock.recency(), uberblock.is_checkpoint(), uberblock.is_multihost());
        let _ = (uberblock.reflow_offset(), uberblock.reflow_scratch());
        if let Some(mmp) = uberblock.mmp {
            let _ = (mmp.interval_ms(), mmp.sequence(), mmp.fail_intervals());
        }
    }
    let words: Vec<u64> =
        bytes.as_chunks().0.iter().map(|word: &[u8; 8]| u64::from_le_bytes(*word)).collect();
    let _ = checkpoint::uberblock(&words);
}

/// Block pointers and what they say of themselves.
pub fn blkptr(bytes: &[u8]) {
    for order in ORDERS {
        let found = stable(bytes, |b| Blkptr::parse(b, order).ok(), |bp| Some(bp.encode(order).to_vec()));
        let Some(bp) = found else { continue };
        let _ = format!("{bp} {bp:?}");
        assert_eq!(bp.dvas().count(), bp.copies());
        let _ = (bp.asize(), bp.lsize(), bp.psize(), bp.compress(), bp.checksum_type(), bp.dmu_type());
        let _ = (bp.level(), bp.fill(), bp.physical_birth(), bp.protection(), bp.is_metadata(), bp.is_gang());
        let _ = (bp.salt(), bp.iv(), bp.mac());
        if let Some(embedded) = bp.embedded() {
            let _ = format!("{embedded:?}");
            assert_eq!(embedded.bytes().len() as u64, embedded.psize.get());
        }
        for dva in bp.dvas() {
            let _ = dva.to_words();
        }
        let _ = (ondisk::zil::ChainSeed::of(&bp).next(), ondisk::ddt::DdtKey::of(&bp));
    }
    let mut input = Input(bytes);
    if let Ok(Some(dva)) = Dva::from_words([input.u64(), input.u64()]) {
        dva.to_words().expect("what was parsed encodes");
    }
}

/// Dnodes of all sizes.
pub fn dnode(bytes: &[u8]) {
    for order in ORDERS {
        let found = stable(bytes, |b| Dnode::parse(b, order).ok().flatten(), |dnode| dnode.encode().ok());
        let Some(dnode) = found else { continue };
        look_at(&dnode);
    }
}

fn look_at(dnode: &Dnode) {
    let _ = (dnode.slots(), dnode.data_block_size(), dnode.indirect_block_size(), dnode.used_bytes());
    let _ = (dnode.pointers_per_indirect_shift(), dnode.bonus_capacity());
    for level in [0, 1, 2, 6, 29, 30] {
        let _ = dnode.ancestor(BlockId(u64::MAX), Level(level));
    }
}

/// The blocks at the root of object sets.
pub fn objset(bytes: &[u8]) {
    for order in ORDERS {
        let found = stable(bytes, |b| Objset::parse(b, order).ok(), |objset| objset.encode().ok());
        let Some(objset) = found else { continue };
        look_at(&objset.meta_dnode);
        if let Ok(header) = ZilHeader::parse(&objset.zil_header, order) {
            let _ = (header.is_empty(), header.includes_block(u64::MAX), header.includes_record(0));
        }
    }
}

/// Directories and datasets of the DSL.
pub fn dsl(bytes: &[u8]) {
    stable_in_both_orders!(bytes, DslDirPhys, DslDatasetPhys, ZilHeader);
    for order in ORDERS {
        if let Ok(dir) = DslDirPhys::parse(bytes, order) {
            let _ = dir.used_breakdown();
        }
        if let Ok(dataset) = DslDatasetPhys::parse(bytes, order) {
            let _ = (dataset.is_snapshot(), dataset.has(u64::MAX), ByteOffset(dataset.flags));
        }
    }
}
