//! `-i`: the intent log of an object set: its header, blocks and records.
//!
//! A log ends where a block does not have the checksum that its predecessor announces; that is not damage.
//! Records of an encrypted dataset are told as far as they are in the clear.

use std::collections::HashSet;

use anyhow::Result;
use engine::Bookmark;
use ondisk::Txg;
use ondisk::blkptr::Blkptr;
use ondisk::objset::Objset as ObjsetPhys;
use ondisk::zil::record::{CreateKind, NewObject, RenameKind, WriteData, set_attr_mask};
use ondisk::zil::{LogBlock, RawRecord, Record, ZilHeader};

use super::objset_view::ObjsetView;
use super::text::printable;
use super::{Out, View};
use crate::output::ctime;

/// Names of records, by number; 0 stands for all.
const NAMES: [&str; 25] = [
    "Total",
    "TX_CREATE",
    "TX_MKDIR",
    "TX_MKXATTR",
    "TX_SYMLINK",
    "TX_REMOVE",
    "TX_RMDIR",
    "TX_LINK",
    "TX_RENAME",
    "TX_WRITE",
    "TX_TRUNCATE",
    "TX_SETATTR",
    "TX_ACL_V0",
    "TX_ACL_ACL",
    "TX_CREATE_ACL",
    "TX_CREATE_ATTR",
    "TX_CREATE_ACL_ATTR",
    "TX_MKDIR_ACL",
    "TX_MKDIR_ATTR",
    "TX_MKDIR_ACL_ATTR",
    "TX_WRITE2",
    "TX_SETSAXATTR",
    "TX_RENAME_EXCHANGE",
    "TX_RENAME_WHITEOUT",
    "TX_CLONE_RANGE",
];
/// Most blocks of one log that are followed.
const MAX_BLOCKS: usize = 1 << 24;
/// Bytes of a write that are shown, unless all are asked for.
const SHOWN_BYTES: usize = 20;
/// What details of a record are indented with.
const TABS: &str = "\t\t\t";

/// The log of an object set.
pub(super) async fn dump(objects: &ObjsetView<'_>, out: &mut Out<'_>) -> Result<()> {
    let (view, objset) = (objects.view, objects.objset);
    let verbosity = view.arguments.datasets.max(view.arguments.intent_log);
    let phys: &ObjsetPhys = objset.phys();
    let header = ZilHeader::parse(&phys.zil_header, phys.order)?;
    if header.log.is_hole() {
        return Ok(());
    }
    writeln!(
        out,
        "\n    ZIL header: claim_txg {}, claim_blk_seq {}, claim_lr_seq {} replay_seq {}, flags 0x{:x}",
        header.claim_txg, header.claim_blk_seq, header.claim_lr_seq, header.replay_seq, header.flags
    )?;
    // At a checkpoint logs were not claimed: what they say now is of a later time.
    let at_checkpoint = view.dsl.pool().uberblock().is_checkpoint() && header.claim_txg == Txg::NONE;
    if verbosity < 2 || at_checkpoint {
        return Ok(());
    }
    writeln!(out)?;
    let mut counts = [0u64; NAMES.len()];
    walk(objects, &header, verbosity, &mut counts, out).await?;
    if verbosity > 3 {
        writeln!(out)?;
    }
    if counts.first().is_some_and(|total| *total > 0) {
        let width = counts.iter().map(|count| count.to_string().len()).max().unwrap_or(1);
        for (name, count) in NAMES.iter().zip(counts).filter(|(_, count)| *count > 0 || verbosity >= 3) {
            writeln!(out, "\t\t{name:<19} {count:>width$}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

async fn walk(
    objects: &ObjsetView<'_>,
    header: &ZilHeader,
    verbosity: u8,
    counts: &mut [u64; NAMES.len()],
    out: &mut Out<'_>,
) -> Result<()> {
    let pool = objects.view.dsl.pool();
    let mut next = header.log;
    let mut seen = HashSet::new();
    for _ in 0..MAX_BLOCKS {
        let [.., seq] = next.checksum();
        let claimed = header.claim_txg != Txg::NONE;
        let Some(first) = next.dva(0).filter(|first| seen.insert((first.vdev, first.offset))) else { break };
        if claimed && seq > header.claim_blk_seq {
            break;
        }
        let at =
            Bookmark { objset: objects.objset.id().get(), object: 0, level: Bookmark::LEVEL_ZIL, blkid: seq };
        let claim = match claimed {
            true => "already claimed",
            false => claim_of(objects.view, &next),
        };
        let place = if verbosity >= 5 { format!(", {next}") } else { String::new() };
        writeln!(out, "\tBlock seqno {seq}, {claim}{place}")?;
        tracing::trace!(vdev = first.vdev.get(), offset = first.offset.get(), "intent log block");
        let Ok(bytes) = pool.read_raw(&next, &at).await else { break };
        let Ok(block) = LogBlock::parse(&next, &bytes) else { break };
        for record in block.records() {
            let Ok(record) = record else { break };
            let kind = record.header.kind_number();
            for number in [0, kind] {
                if let Some(count) = usize::try_from(number).ok().and_then(|number| counts.get_mut(number)) {
                    *count += 1;
                }
            }
            if verbosity >= 3 {
                write_record(objects, &record, next.uses_crypt(), verbosity, out)?;
            }
        }
        next = block.next;
    }
    Ok(())
}

/// Whether an import would claim a block of a log that was not claimed: it is newer than the pool's state.
fn claim_of(view: &View<'_>, bp: &Blkptr) -> &'static str {
    let newest = view.dsl.pool().uberblock().txg;
    if !bp.is_hole() && bp.logical_birth() > newest { "will claim" } else { "won't claim" }
}

fn write_record(
    objects: &ObjsetView<'_>,
    record: &RawRecord<'_>,
    encrypted: bool,
    verbosity: u8,
    out: &mut Out<'_>,
) -> Result<()> {
    let header = &record.header;
    let name =
        usize::try_from(header.kind_number()).ok().and_then(|kind| NAMES.get(kind)).unwrap_or(&"UNKNOWN");
    let case = if header.is_case_insensitive() { "CI-" } else { "" };
    writeln!(out, "\t\t{case}{name:<19} len {:>6}, txg {}, seq {}", header.reclen, header.txg, header.seq)?;
    if encrypted {
        writeln!(out, "{TABS}(encrypted)")?;
        return Ok(());
    }
    match record.parse() {
        Ok(parsed) => write_parsed(objects.view, &parsed, verbosity, out),
        Err(error) => Ok(writeln!(out, "{TABS}({error})")?),
    }
}

fn write_parsed(view: &View<'_>, record: &Record<'_>, verbosity: u8, out: &mut Out<'_>) -> Result<()> {
    match record {
        Record::Create { kind, directory, object, name, .. } => {
            if *kind != CreateKind::XattrDirectory {
                writeln!(out, "{TABS}{}", printable(name))?;
            }
            write_new(directory.get(), object, out)?;
        }
        Record::Symlink { directory, object, name, target } => {
            writeln!(out, "{TABS}{} -> {}", printable(name), printable(target))?;
            write_new(directory.get(), object, out)?;
        }
        Record::Remove { directory, name } | Record::Rmdir { directory, name } => {
            writeln!(out, "{TABS}doid {directory}, name {}", printable(name))?;
        }
        Record::Link { directory, object, name } => {
            writeln!(out, "{TABS}doid {directory}, link_obj {object}, name {}", printable(name))?;
        }
        Record::Rename { kind, source, target, source_name, target_name } => {
            writeln!(out, "{TABS}sdoid {source}, tdoid {target}")?;
            writeln!(out, "{TABS}src {} tgt {}", printable(source_name), printable(target_name))?;
            match kind {
                RenameKind::Replace => {}
                RenameKind::Exchange => writeln!(out, "{TABS}flags RENAME_EXCHANGE")?,
                RenameKind::Whiteout(_) => writeln!(out, "{TABS}flags RENAME_WHITEOUT")?,
            }
        }
        Record::Write { object, offset, length, data } => {
            writeln!(out, "{TABS}foid {object}, offset {offset:x}, length {length:x}")?;
            match data {
                WriteData::Block(bp) if verbosity >= 4 => {
                    writeln!(out, "{TABS}has blkptr, {}\n{TABS}{bp}", claim_of(view, bp))?;
                }
                WriteData::Inline(bytes) if verbosity >= 5 => {
                    let shown = if verbosity >= 6 { bytes.len() } else { bytes.len().min(SHOWN_BYTES) };
                    write!(out, "{TABS}")?;
                    for byte in bytes.iter().take(shown) {
                        match byte.is_ascii_graphic() || *byte == b' ' {
                            true => write!(out, "{} ", char::from(*byte))?,
                            false => write!(out, "{byte:2X}")?,
                        }
                    }
                    writeln!(out)?;
                }
                WriteData::Block(_) | WriteData::Inline(_) => {}
            }
        }
        Record::Write2 { object, offset, length, .. } => {
            writeln!(out, "{TABS}foid {object}, offset {offset:x}, length {length:x}")?;
        }
        Record::Truncate { object, offset, length } => {
            writeln!(out, "{TABS}foid {object}, offset 0x{offset:x}, length 0x{length:x}")?;
        }
        Record::SetAttr { object, mask, mode, uid, gid, size, atime, mtime, .. } => {
            writeln!(out, "{TABS}foid {object}, mask 0x{mask:x}")?;
            let time = |time: &ondisk::zil::record::Time| {
                let seconds = u64::try_from(time.seconds).unwrap_or(0);
                format!("{}.{:09} {}", time.seconds, time.nanoseconds, ctime(seconds))
            };
            let changes = [
                (set_attr_mask::MODE, "AT_MODE ", format!("{mode:o}")),
                (set_attr_mask::UID, "AT_UID  ", uid.to_string()),
                (set_attr_mask::GID, "AT_GID  ", gid.to_string()),
                (set_attr_mask::SIZE, "AT_SIZE ", size.to_string()),
                (set_attr_mask::ATIME, "AT_ATIME", time(atime)),
                (set_attr_mask::MTIME, "AT_MTIME", time(mtime)),
            ];
            for (_, name, value) in changes.iter().filter(|(bit, ..)| mask & bit != 0) {
                writeln!(out, "{TABS}{name} {value}")?;
            }
        }
        Record::AclV0 { object, count, .. } => writeln!(out, "{TABS}foid {object}, aclcnt {count}")?,
        Record::Acl { object, acl, .. } => writeln!(out, "{TABS}foid {object}, aclcnt {}", acl.count)?,
        Record::SetSaXattr { object, name, value } => {
            writeln!(out, "{TABS}foid {object}\n{TABS}XAT_NAME  {}", printable(name))?;
            match value.is_empty() {
                true => writeln!(out, "{TABS}XAT_VALUE  NULL")?,
                false => writeln!(out, "{TABS}XAT_VALUE  {}", printable(value))?,
            }
        }
        Record::CloneRange { object, offset, length, block_bytes, blocks } => {
            writeln!(
                out,
                "{TABS}foid {object}, offset {offset:x}, length {length:x}, blksize {block_bytes:x}"
            )?;
            for (index, bp) in blocks.iter().enumerate().filter(|_| verbosity >= 4) {
                writeln!(out, "{TABS}[{}/{}] {bp}", index + 1, blocks.len())?;
            }
        }
    }
    Ok(())
}

fn write_new(directory: u64, object: &NewObject, out: &mut Out<'_>) -> Result<()> {
    writeln!(out, "{TABS}{}", ctime(u64::try_from(object.crtime.seconds).unwrap_or(0)))?;
    let (number, slots, mode) = (object.object(), object.dnode_slots(), object.mode);
    writeln!(out, "{TABS}doid {directory}, foid {number}, slots {slots}, mode {mode:o}")?;
    let (uid, gid, generation, rdev) = (object.uid, object.gid, object.generation, object.rdev);
    writeln!(out, "{TABS}uid {uid}, gid {gid}, gen {generation}, rdev 0x{rdev:x}")?;
    Ok(())
}
