//! What objects mean, by the type of their content and of their bonus area.

use anyhow::Result;
use engine::dmu::Object;
use engine::dmu::zap::{Entry, Key, Zap};
use ondisk::bpobj::{self, BpobjPhys};
use ondisk::dmu::{Byteswap, DmuType};
use ondisk::dsl_dataset::DslDatasetPhys;
use ondisk::dsl_dir::DslDirPhys;
use ondisk::history::HistoryPhys;
use ondisk::nvlist::Nvlist;
use ondisk::sa::Registration;
use ondisk::space_map::SpaceMapPhys;
use ondisk::zap::ZapValue;
use ondisk::zpl::{Dirent, FileType};
use ondisk::{ByteOrder, ObjectId, Reader};

use super::config::write_nvlist;
use super::objset_view::ObjsetView;
use super::text::{pointer, printable};
use super::{Out, znode};
use crate::output::ctime;

/// What begins the header of a fat ZAP.
const FAT_BLOCK_TYPE: u64 = 1 << 63 | 1;
/// Second word of the header of a fat ZAP.
const FAT_MAGIC: u64 = 0x2_f52a_b2ab;
/// Most bytes of an array of numbers that are shown.
const MAX_ARRAY_BYTES: u64 = 1 << 20;
/// Largest packed list that is shown.
const MAX_NVLIST_BYTES: usize = 64 << 20;
/// Values of ZAPs that are keys and hashes, not text.
const BINARY_VALUES: [&[u8]; 5] = [
    b"DSL_CRYPTO_MASTER_KEY_1",
    b"DSL_CRYPTO_HMAC_KEY_1",
    b"DSL_CRYPTO_IV",
    b"DSL_CRYPTO_MAC",
    b"org.illumos:checksum_salt",
];

/// The bonus area of an object.
pub(super) async fn dump_bonus(objects: &ObjsetView<'_>, object: &Object, out: &mut Out<'_>) -> Result<()> {
    let (bonus, order) = object.bonus();
    let shown = match object.dnode().bonus_type {
        DmuType::DSL_DIR => DslDirPhys::parse(bonus, order).map(|dir| write_dir(objects, &dir, out)),
        DmuType::DSL_DATASET => {
            DslDatasetPhys::parse(bonus, order).map(|dataset| write_dataset(objects, &dataset, out))
        }
        DmuType::BPOBJ_HDR => {
            BpobjPhys::parse(bonus, order).map(|list| write_list_header(objects, &list, out))
        }
        DmuType::SPA_HISTORY_OFFSETS => {
            HistoryPhys::parse(bonus, order).map(|history| write_history(&history, out))
        }
        DmuType::SPACE_MAP_HEADER if objects.view.arguments.datasets >= 5 => {
            SpaceMapPhys::parse(bonus, order).map(|map| write_space_map(&map, out))
        }
        DmuType::PACKED_NVLIST_SIZE | DmuType::FUID_SIZE => {
            return dump_packed(object, bonus, order, out).await;
        }
        DmuType::SA | DmuType::ZNODE => return znode::dump(objects, object, out).await,
        ty if ty.byteswap() == Byteswap::Uint64 && objects.view.arguments.datasets >= 6 => {
            return write_array(bonus, order, false, out);
        }
        _ => return Ok(()),
    };
    match shown {
        Ok(written) => written,
        Err(error) => Ok(writeln!(out, "\t\t(bonus cannot be read: {error})")?),
    }
}

/// The content of an object.
pub(super) async fn dump_object(objects: &ObjsetView<'_>, object: &Object, out: &mut Out<'_>) -> Result<()> {
    let ty = object.dnode().dmu_type;
    let written = match ty {
        DmuType::BPOBJ => dump_list(objects, object, out).await,
        DmuType::BPOBJ_SUBOBJ => dump_included(object, out).await,
        DmuType::OBJECT_ARRAY | DmuType::UINT64_OTHER => dump_array(objects, object, out).await,
        _ if ty.byteswap() == Byteswap::Zap => dump_zap(objects, object, out).await,
        _ if ty.is_self_describing() && ty.byteswap() == Byteswap::Uint64 => {
            dump_array(objects, object, out).await
        }
        _ => return Ok(()),
    };
    // Of a damaged object as much is shown as can be read; the next one may be whole.
    match written {
        Err(error) => Ok(writeln!(out, "\t\t({error:#})")?),
        Ok(()) => Ok(()),
    }
}

async fn dump_zap(objects: &ObjsetView<'_>, object: &Object, out: &mut Out<'_>) -> Result<()> {
    let zap = Zap::open(object).await?;
    write_zap_statistics(&zap, out)?;
    let ty = object.dnode().dmu_type;
    if ty == DmuType::DDT_ZAP && objects.view.arguments.datasets < 6 {
        return Ok(());
    }
    writeln!(out)?;
    let mut entries = zap.cursor(0);
    while let Some(entry) = entries.next().await? {
        match ty {
            DmuType::DIRECTORY_CONTENTS => write_dirent(&entry, out)?,
            DmuType::SA_ATTR_REGISTRATION => write_registration(&entry, out)?,
            DmuType::SA_ATTR_LAYOUTS => write_layout(&entry, out)?,
            _ => write_entry(&entry, out)?,
        }
    }
    Ok(())
}

fn write_zap_statistics(zap: &Zap, out: &mut Out<'_>) -> Result<()> {
    let Some(header) = zap.fat_header() else {
        let bytes = zap.object().block_size();
        writeln!(out, "\tmicrozap: {bytes} bytes, {} entries", zap.count()?)?;
        return Ok(());
    };
    let table = &header.table;
    writeln!(out, "\tFat ZAP stats:")?;
    writeln!(out, "\t\tPointer table:")?;
    writeln!(out, "\t\t\t{} elements", 1u64.checked_shl(table.shift).unwrap_or(0))?;
    writeln!(out, "\t\t\tzt_blk: {}", table.block)?;
    writeln!(out, "\t\t\tzt_numblks: {}", table.blocks)?;
    writeln!(out, "\t\t\tzt_shift: {}", table.shift)?;
    writeln!(out, "\t\t\tzt_blks_copied: {}", table.blocks_copied)?;
    writeln!(out, "\t\t\tzt_nextblk: {}", table.next_block)?;
    writeln!(out, "\t\tZAP entries: {}", header.entries)?;
    writeln!(out, "\t\tLeaf blocks: {}", header.leaves)?;
    writeln!(out, "\t\tTotal blocks: {}", header.free_block)?;
    writeln!(out, "\t\tzap_block_type: 0x{FAT_BLOCK_TYPE:x}")?;
    writeln!(out, "\t\tzap_magic: 0x{FAT_MAGIC:x}")?;
    writeln!(out, "\t\tzap_salt: 0x{:x}", header.salt)?;
    Ok(())
}

fn write_entry(entry: &Entry, out: &mut Out<'_>) -> Result<()> {
    let name = match &entry.key {
        Key::Name(name) => printable(name),
        Key::Words(words) => {
            words.iter().map(|word| format!("0x{word:016x} ")).collect::<String>().trim_end().to_owned()
        }
    };
    write!(out, "\t\t{name} = ")?;
    let binary = entry.key.name().is_none_or(|name| BINARY_VALUES.contains(&name));
    match &entry.value {
        ZapValue::U8(bytes) if binary => {
            bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
        }
        ZapValue::U8(bytes) => {
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            write!(out, "{}", printable(text))?;
        }
        ZapValue::U16(values) => values.iter().try_for_each(|value| write!(out, "{value} "))?,
        ZapValue::U32(values) => values.iter().try_for_each(|value| write!(out, "{value} "))?,
        ZapValue::U64(values) => values.iter().try_for_each(|value| write!(out, "{} ", *value as i64))?,
    }
    writeln!(out)?;
    Ok(())
}

fn write_dirent(entry: &Entry, out: &mut Out<'_>) -> Result<()> {
    let Some(raw) = entry.value.as_u64() else { return write_entry(entry, out) };
    let dirent = Dirent::from_raw(raw);
    let ty = match dirent.file_type {
        None => "not specified".to_owned(),
        Some(FileType::Fifo) => "FIFO".to_owned(),
        Some(FileType::CharDevice) => "Character Device".to_owned(),
        Some(FileType::Directory) => "Directory".to_owned(),
        Some(FileType::BlockDevice) => "Block Device".to_owned(),
        Some(FileType::Regular) => "Regular File".to_owned(),
        Some(FileType::Symlink) => "Symbolic Link".to_owned(),
        Some(FileType::Socket) => "Socket".to_owned(),
        Some(FileType::Other(raw)) => format!("{raw} (invalid)"),
    };
    let name = printable(entry.key.name().unwrap_or_default());
    writeln!(out, "\t\t{name} = {} (type: {ty})", dirent.object)?;
    Ok(())
}

fn write_registration(entry: &Entry, out: &mut Out<'_>) -> Result<()> {
    let Some(raw) = entry.value.as_u64() else { return write_entry(entry, out) };
    let registration = Registration::from_raw(raw);
    let (length, byteswap, number) = (registration.length, registration.byteswap, registration.number);
    let name = printable(entry.key.name().unwrap_or_default());
    writeln!(out, "\t\t{name} =  {raw:x} : [{length}:{byteswap}:{number}]")?;
    Ok(())
}

fn write_layout(entry: &Entry, out: &mut Out<'_>) -> Result<()> {
    let ZapValue::U16(numbers) = &entry.value else { return write_entry(entry, out) };
    write!(out, "\t\t{} = [", printable(entry.key.name().unwrap_or_default()))?;
    numbers.iter().try_for_each(|number| write!(out, " {number} "))?;
    writeln!(out, "]")?;
    Ok(())
}

async fn dump_packed(object: &Object, bonus: &[u8], order: ByteOrder, out: &mut Out<'_>) -> Result<()> {
    let length = Reader::new("packed nvlist size", bonus, order).u64().unwrap_or(0);
    let packed = match object.read_all(length, MAX_NVLIST_BYTES).await {
        Ok(packed) => packed,
        Err(error) => return Ok(writeln!(out, "\t\t({error})")?),
    };
    match Nvlist::parse(&packed) {
        Ok(list) => write_nvlist(&list, 8, out),
        Err(error) => Ok(writeln!(out, "\t\t({error})")?),
    }
}

async fn dump_array(objects: &ObjsetView<'_>, object: &Object, out: &mut Out<'_>) -> Result<()> {
    if objects.view.arguments.datasets < 6 {
        return Ok(());
    }
    let shown = object.end().min(MAX_ARRAY_BYTES);
    let bytes = object.read_all(shown, MAX_ARRAY_BYTES as usize).await?;
    write_array(&bytes, object.dnode().order, shown < object.end(), out)
}

fn write_array(bytes: &[u8], order: ByteOrder, cut: bool, out: &mut Out<'_>) -> Result<()> {
    let mut reader = Reader::new("array", bytes, order);
    write!(out, "\t\t[")?;
    let mut index = 0u64;
    while let Ok(word) = reader.u64() {
        let between = match index {
            0 => "",
            index if index.is_multiple_of(4) => ",\n\t\t",
            _ => ", ",
        };
        write!(out, "{between}{word:x}")?;
        index += 1;
    }
    writeln!(out, "{}]", if cut { ", ... " } else { "" })?;
    Ok(())
}

fn write_list_header(objects: &ObjsetView<'_>, list: &BpobjPhys, out: &mut Out<'_>) -> Result<()> {
    let show = |value| objects.view.numbers.show(value);
    writeln!(out, "\t\tnum_blkptrs = {}", list.num_blkptrs)?;
    writeln!(out, "\t\tbytes = {}", show(list.bytes))?;
    if let Some(space) = list.space {
        writeln!(out, "\t\tcomp = {}", show(space.comp_bytes))?;
        writeln!(out, "\t\tuncomp = {}", show(space.uncomp_bytes))?;
    }
    if let Some(included) = list.subobjs {
        writeln!(out, "\t\tsubobjs = {}", included.object)?;
        writeln!(out, "\t\tnum_subobjs = {}", included.count)?;
    }
    if let Some(freed) = list.num_freed {
        writeln!(out, "\t\tnum_freed = {freed}")?;
    }
    Ok(())
}

async fn dump_list(objects: &ObjsetView<'_>, object: &Object, out: &mut Out<'_>) -> Result<()> {
    let verbosity = objects.view.arguments.datasets;
    if verbosity < 5 {
        return Ok(());
    }
    let (bonus, order) = object.bonus();
    let list = BpobjPhys::parse(bonus, order).map_err(|error| object.corrupt(error))?;
    let mut left = usize::try_from(list.num_blkptrs).unwrap_or(usize::MAX);
    for block in 0..=object.dnode().max_block_id.get() {
        // A list has no holes.
        let Some(found) = object.block(block).await? else { break };
        for bp in bpobj::blkptrs(&found.block, found.order).take(left) {
            let bp = bp.map_err(|error| object.corrupt(error))?;
            let freed = if bpobj::is_free(&bp) { " FREE" } else { "" };
            writeln!(out, "\t{}{freed}", pointer(&bp, objects.view.arguments))?;
            left -= 1;
        }
        if left == 0 {
            break;
        }
    }
    Ok(())
}

async fn dump_included(object: &Object, out: &mut Out<'_>) -> Result<()> {
    for block in 0..=object.dnode().max_block_id.get() {
        // A list has no holes.
        let Some(found) = object.block(block).await? else { break };
        for list in bpobj::subobjs(&found.block, found.order).filter(|list| *list != ObjectId(0)) {
            writeln!(out, "\t{list}")?;
        }
    }
    Ok(())
}

fn write_history(history: &HistoryPhys, out: &mut Out<'_>) -> Result<()> {
    writeln!(out, "\t\tpool_create_len = {}", history.pool_create_len)?;
    writeln!(out, "\t\tphys_max_off = {}", history.phys_max_off)?;
    writeln!(out, "\t\tbof = {}", history.bof)?;
    writeln!(out, "\t\teof = {}", history.eof)?;
    writeln!(out, "\t\trecords_lost = {}", history.records_lost)?;
    Ok(())
}

fn write_space_map(map: &SpaceMapPhys, out: &mut Out<'_>) -> Result<()> {
    writeln!(out, "\t\tsmp_length = 0x{:x}", map.length_bytes)?;
    writeln!(out, "\t\tsmp_alloc = 0x{:x}", map.allocated_bytes)?;
    Ok(())
}

fn write_dir(objects: &ObjsetView<'_>, dir: &DslDirPhys, out: &mut Out<'_>) -> Result<()> {
    let show = |value| objects.view.numbers.show(value);
    writeln!(out, "\t\tcreation_time = {}", ctime(dir.creation_time))?;
    writeln!(out, "\t\thead_dataset_obj = {}", dir.head_dataset)?;
    writeln!(out, "\t\tparent_dir_obj = {}", dir.parent)?;
    writeln!(out, "\t\torigin_obj = {}", dir.origin)?;
    writeln!(out, "\t\tchild_dir_zapobj = {}", dir.child_dir_zap)?;
    writeln!(out, "\t\tused_bytes = {}", show(dir.used_bytes))?;
    writeln!(out, "\t\tcompressed_bytes = {}", show(dir.compressed_bytes))?;
    writeln!(out, "\t\tuncompressed_bytes = {}", show(dir.uncompressed_bytes))?;
    writeln!(out, "\t\tquota = {}", show(dir.quota))?;
    writeln!(out, "\t\treserved = {}", show(dir.reserved))?;
    writeln!(out, "\t\tprops_zapobj = {}", dir.props_zap)?;
    writeln!(out, "\t\tdeleg_zapobj = {}", dir.deleg_zap)?;
    writeln!(out, "\t\tflags = {:x}", dir.flags)?;
    let used = &dir.raw_used_breakdown;
    let breakdown = [
        ("HEAD", used.head),
        ("SNAP", used.snap),
        ("CHILD", used.child),
        ("CHILD_RSRV", used.child_reserved),
        ("REFRSRV", used.refreserved),
    ];
    for (name, bytes) in breakdown {
        writeln!(out, "\t\tused_breakdown[{name}] = {}", show(bytes))?;
    }
    writeln!(out, "\t\tclones = {}", dir.clones)?;
    Ok(())
}

fn write_dataset(objects: &ObjsetView<'_>, dataset: &DslDatasetPhys, out: &mut Out<'_>) -> Result<()> {
    let show = |value| objects.view.numbers.show(value);
    writeln!(out, "\t\tdir_obj = {}", dataset.dir)?;
    writeln!(out, "\t\tprev_snap_obj = {}", dataset.prev_snap)?;
    writeln!(out, "\t\tprev_snap_txg = {}", dataset.prev_snap_txg)?;
    writeln!(out, "\t\tnext_snap_obj = {}", dataset.next_snap)?;
    writeln!(out, "\t\tsnapnames_zapobj = {}", dataset.snapnames_zap)?;
    writeln!(out, "\t\tnum_children = {}", dataset.num_children)?;
    writeln!(out, "\t\tuserrefs_obj = {}", dataset.userrefs)?;
    writeln!(out, "\t\tcreation_time = {}", ctime(dataset.creation_time))?;
    writeln!(out, "\t\tcreation_txg = {}", dataset.creation_txg)?;
    writeln!(out, "\t\tdeadlist_obj = {}", dataset.deadlist)?;
    writeln!(out, "\t\tused_bytes = {}", show(dataset.referenced_bytes))?;
    writeln!(out, "\t\tcompressed_bytes = {}", show(dataset.compressed_bytes))?;
    writeln!(out, "\t\tuncompressed_bytes = {}", show(dataset.uncompressed_bytes))?;
    writeln!(out, "\t\tunique = {}", show(dataset.unique_bytes))?;
    writeln!(out, "\t\tfsid_guid = {}", dataset.fsid_guid)?;
    writeln!(out, "\t\tguid = {}", dataset.guid)?;
    writeln!(out, "\t\tflags = {:x}", dataset.flags)?;
    writeln!(out, "\t\tnext_clones_obj = {}", dataset.next_clones)?;
    writeln!(out, "\t\tprops_obj = {}", dataset.props)?;
    writeln!(out, "\t\tbp = {}", dataset.bp)?;
    Ok(())
}
