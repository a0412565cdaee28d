//! `-dd` and more: the objects of an object set: a line each, then dnode, meaning, block tree and the ranges
//! with data.

use anyhow::{Result, anyhow, ensure};
use engine::dmu::Object;
use engine::{Bookmark, Error};
use ondisk::ObjectId;
use ondisk::blkptr::{Blkptr, ChecksumType, CompressType};
use ondisk::dmu::DmuType;
use ondisk::dnode::{DNODES_PER_BLOCK, Dnode};

use super::objset_view::ObjsetView;
use super::text::pointer;
use super::{Out, contents};

/// Bits of a dnode's flags, in the order in which they are shown.
const DNODE_FLAGS: [(u8, &str); 4] = [
    (1, "USED_BYTES "),
    (1 << 1, "USERUSED_ACCOUNTED "),
    (1 << 3, "USEROBJUSED_ACCOUNTED "),
    (1 << 2, "SPILL_BLKPTR"),
];
/// Most block pointers of one object that are listed: the pointers of a damaged tree may lead to one block
/// over and over.
const MAX_POINTERS: usize = 1 << 28;
/// Most runs of data of one object that are listed.
const MAX_SEGMENTS: usize = 1 << 20;

/// Objects to be shown, as `FIRST[:LAST[:TYPES]]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    first: u64,
    last: u64,
    types: Types,
}

/// Kinds of objects, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Types(u8);

impl Types {
    const ALL: Self = Self(0b1_1111);

    /// The kinds of a letter: directories, files, space maps, ZAPs, or all that there are.
    fn of_letter(letter: char) -> Option<Self> {
        match letter {
            'd' => Some(Self(1)),
            'f' => Some(Self(1 << 1)),
            'm' => Some(Self(1 << 2)),
            'z' => Some(Self(1 << 3)),
            'A' => Some(Self::ALL),
            _ => None,
        }
    }

    /// Letters one after the other; one behind `-` is taken away from those before it.
    fn parse(text: &str) -> Option<Self> {
        let (mut types, mut letters) = (0, text.chars());
        while let Some(letter) = letters.next() {
            match letter {
                '-' => types &= !Self::of_letter(letters.next()?)?.0,
                _ => types |= Self::of_letter(letter)?.0,
            }
        }
        Some(Self(types))
    }

    fn includes(self, ty: DmuType) -> bool {
        let kind = match ty {
            DmuType::DIRECTORY_CONTENTS => 0,
            DmuType::PLAIN_FILE_CONTENTS => 1,
            DmuType::SPACE_MAP => 2,
            // Those that have no name of their own.
            _ if ty.name() == "zap" => 3,
            _ => 4,
        };
        self.0 & 1 << kind != 0
    }
}

impl Range {
    /// One object.
    pub fn of(id: ObjectId) -> Self {
        Self { first: id.get(), last: id.get(), types: Types::ALL }
    }

    pub fn parse(text: &str) -> Result<Self> {
        let number = |part: &str| -> Option<u64> {
            match part.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => part.parse().or_else(|_| part.parse::<i64>().map(|number| number as u64)).ok(),
            }
        };
        let wrong = || anyhow!("'{text}' is neither the number of an object nor a range FIRST:LAST[:TYPES]");
        let mut parts = text.split(':');
        let first = parts.next().and_then(number).ok_or_else(wrong)?;
        let last = parts.next().map_or(Some(first), number).ok_or_else(wrong)?;
        let types = match parts.next() {
            None => Types::ALL,
            Some(letters) => Types::parse(letters).filter(|_| !letters.is_empty()).ok_or_else(wrong)?,
        };
        ensure!(first <= last && parts.next().is_none(), wrong());
        Ok(Self { first, last, types })
    }
}

/// The objects of a range.
pub(super) async fn dump_range(objects: &mut ObjsetView<'_>, range: &Range, out: &mut Out<'_>) -> Result<()> {
    let meta_dnode = objects.objset.meta_dnode();
    if range.first == 0 && range.types.includes(meta_dnode.dnode().dmu_type) {
        dump(objects, &meta_dnode, out).await?;
    }
    let accounting = [objects.objset.user_used(), objects.objset.group_used(), objects.objset.project_used()];
    if let Some(object) = accounting.into_iter().flatten().find(|object| object.id().get() == range.first) {
        return dump(objects, &object, out).await;
    }
    if range.first == range.last && range.first != 0 {
        let object = objects.objset.object(ObjectId(range.first)).await?;
        return dump(objects, &object, out).await;
    }
    let mut next = range.first.max(1);
    while let Some(id) = objects.objset.next_object(ObjectId(next)).await?.filter(|id| id.get() <= range.last)
    {
        match objects.objset.object(id).await {
            Ok(object) if range.types.includes(object.dnode().dmu_type) => {
                dump(objects, &object, out).await?
            }
            Ok(_) => {}
            Err(error) => writeln!(out, "{:>10}  {error}", id.get())?,
        }
        next = id.get().saturating_add(1);
    }
    Ok(())
}

/// All objects: the array of dnodes itself, the accounting, the rest by number.
pub(super) async fn dump_all(objects: &mut ObjsetView<'_>, out: &mut Out<'_>) -> Result<()> {
    dump(objects, &objects.objset.meta_dnode(), out).await?;
    let accounting = [objects.objset.user_used(), objects.objset.group_used(), objects.objset.project_used()];
    for object in accounting.into_iter().flatten() {
        dump(objects, &object, out).await?;
    }
    let (mut next, mut used_slots, mut last_slot) = (1u64, 0u64, 0u64);
    while let Some(id) = objects.objset.next_object(ObjectId(next)).await? {
        next = id.get().saturating_add(1);
        match objects.objset.object(id).await {
            Ok(object) => {
                dump(objects, &object, out).await?;
                used_slots = used_slots.saturating_add(object.dnode().slots());
                last_slot = id.get().saturating_add(object.dnode().slots()).saturating_sub(1);
            }
            Err(error) => writeln!(out, "{:>10}  {error}", id.get())?,
        }
    }
    let empty = last_slot.saturating_sub(used_slots) as f64 * 100.0 / last_slot.max(1) as f64;
    writeln!(out, "\n    Dnode slots:")?;
    writeln!(out, "\tTotal used:    {used_slots:>10}")?;
    writeln!(out, "\tMax used:      {last_slot:>10}")?;
    writeln!(out, "\tPercent empty: {empty:>10.6}\n")?;
    Ok(())
}

async fn dump(objects: &mut ObjsetView<'_>, object: &Object, out: &mut Out<'_>) -> Result<()> {
    let verbosity = objects.verbosity();
    if std::mem::take(&mut objects.header_due) {
        let columns = ["Object", "lvl", "iblk", "dblk", "dsize", "dnsize", "lsize", "%full"];
        let [object, levels, indirect, data, used, dnode, size, full] = columns;
        writeln!(
            out,
            "\n{object:>10}  {levels:>3}  {indirect:>5}  {data:>5}  {used:>5}  {dnode:>6}  {size:>5}  \
             {full:>6}  type"
        )?;
    }
    write_line(objects, object, out)?;
    if verbosity >= 4 {
        let dnode = object.dnode();
        let flags = DNODE_FLAGS.iter().filter(|(bit, _)| dnode.flags & bit != 0).map(|(_, name)| *name);
        writeln!(out, "\tdnode flags: {}", flags.collect::<String>())?;
        writeln!(out, "\tdnode maxblkid: {}", dnode.max_block_id)?;
        if objects.keyless && dnode.bonus_type.is_encrypted() {
            writeln!(out, "\t\t(bonus encrypted)")?;
        } else {
            contents::dump_bonus(objects, object, out).await?;
        }
        if objects.keyless && dnode.dmu_type.is_encrypted() {
            writeln!(out, "\t\t(object encrypted)")?;
        } else {
            contents::dump_object(objects, object, out).await?;
        }
        objects.header_due = true;
    }
    if verbosity >= 5 {
        if let Some(spill) = &object.dnode().spill {
            writeln!(out, "\nSpill block: {}", pointer(spill, objects.view.arguments))?;
        }
        write_tree(objects, object, out).await?;
        write_segments(objects, object, out).await?;
    }
    Ok(())
}

fn write_line(objects: &ObjsetView<'_>, object: &Object, out: &mut Out<'_>) -> Result<()> {
    let (verbosity, dnode) = (objects.verbosity(), object.dnode());
    let show = |value| objects.view.numbers.show(value);
    // The array of dnodes counts dnodes where others count blocks.
    let per_block = if object.id() == ObjectId::META_DNODE { DNODES_PER_BLOCK } else { 1 };
    let fill = dnode.blkptrs.iter().fold(0u64, |sum, bp| sum.saturating_add(bp.fill()));
    let full = 100.0 * fill as f64 * dnode.data_block_size() as f64 / per_block as f64 / object.end() as f64;
    let mut more = String::new();
    if dnode.checksum != ChecksumType::Inherit || verbosity >= 6 {
        more += &format!(" (K={})", dnode.checksum);
    }
    if dnode.compress != CompressType::Inherit || verbosity >= 6 {
        more += &format!(" (Z={})", dnode.compress);
    }
    writeln!(
        out,
        "{:>10}  {:>3}  {:>5}  {:>5}  {:>5}  {:>6}  {:>5}  {full:>6.2}  {}{more}",
        object.id().get() as i64,
        dnode.levels,
        show(dnode.indirect_block_size()),
        show(dnode.data_block_size()),
        show(dnode.used_bytes().saturating_add(256) >> 9 << 9),
        show(dnode.slots() * 512),
        show(object.end()),
        dnode.dmu_type,
    )?;
    if dnode.bonus_type != DmuType::NONE && verbosity > 3 {
        let size = show(dnode.bonus.len() as u64);
        writeln!(out, "{:>50}  {:>6}  {}", size, "bonus", dnode.bonus_type)?;
    }
    Ok(())
}

/// The pointers of all levels, parents before their children.
async fn write_tree(objects: &ObjsetView<'_>, object: &Object, out: &mut Out<'_>) -> Result<()> {
    let dnode = object.dnode();
    let top = dnode.levels.saturating_sub(1);
    writeln!(out, "Indirect blocks:")?;
    let mut pending: Vec<(u8, u64, Blkptr)> =
        (0..).zip(&dnode.blkptrs).map(|(id, bp)| (top, id, *bp)).collect();
    pending.reverse();
    for _ in 0..MAX_POINTERS {
        let Some((level, id, bp)) = pending.pop() else { break };
        if bp.is_hole() && bp.logical_birth().get() == 0 {
            continue;
        }
        let indent = " ".repeat(usize::from(top - level));
        let after = " ".repeat(usize::from(level) + 1);
        let header = if objects.view.arguments.zstd_headers { zstd_header(objects, &bp).await } else { None };
        writeln!(
            out,
            "{:>16x} {indent}L{level:x}{after}{}{}",
            offset(dnode, level, id),
            pointer(&bp, objects.view.arguments),
            header.unwrap_or_default()
        )?;
        if level == 0 || bp.is_hole() || bp.is_redacted() {
            continue;
        }
        let at = Bookmark {
            objset: objects.objset.id().get(),
            object: object.id().get(),
            level: level.into(),
            blkid: id,
        };
        let block = match read(objects, &bp, &at).await {
            Ok(block) => block,
            Err(error) => {
                writeln!(out, "\t\t{error}")?;
                continue;
            }
        };
        // Numbers of blocks wrap only where a damaged dnode has more levels than numbers have bits.
        let first = id << dnode.pointers_per_indirect_shift();
        let children = block.chunks_exact(Blkptr::SIZE).enumerate().rev();
        for (index, bytes) in children {
            let id = first.wrapping_add(index as u64);
            match Blkptr::parse(bytes, bp.byte_order()) {
                Ok(bp) => pending.push((level - 1, id, bp)),
                Err(error) => writeln!(out, "\t\tblock {id} of level {}: {error}", level - 1)?,
            }
        }
    }
    writeln!(out)?;
    Ok(())
}

/// What the header of a block that zstd compressed says.
async fn zstd_header(objects: &ObjsetView<'_>, bp: &Blkptr) -> Option<String> {
    let (block, place) = match bp.embedded() {
        Some(embedded) if embedded.compress == CompressType::Zstd => (embedded.bytes().to_vec(), "EMBEDDED"),
        None if !bp.is_hole() && bp.compress() == CompressType::Zstd => {
            let at = Bookmark::data(objects.objset.id().get(), 0, 0);
            (objects.objset.pool().read_raw(bp, &at).await.ok()?.to_vec(), "NORMAL")
        }
        _ => return None,
    };
    let header = codec::compress::zstd_header(&block)?;
    Some(format!(
        " ZSTD:size={}:version={}:level={}:{place}",
        header.frame_bytes, header.version, header.level
    ))
}

async fn read(objects: &ObjsetView<'_>, bp: &Blkptr, at: &Bookmark) -> Result<engine::Block, Error> {
    let pool = objects.objset.pool();
    if objects.keyless { pool.read_block_without_key(bp, at).await } else { pool.read_block(bp, at).await }
}

/// Where in the object a block of any level begins.
fn offset(dnode: &Dnode, level: u8, id: u64) -> u64 {
    let shift = u32::from(level) * dnode.pointers_per_indirect_shift();
    id.checked_shl(shift).unwrap_or(0).saturating_mul(dnode.data_block_size())
}

/// The ranges of the object that are not holes.
async fn write_segments(objects: &ObjsetView<'_>, object: &Object, out: &mut Out<'_>) -> Result<()> {
    let end = object.end();
    let mut at = 0;
    for _ in 0..MAX_SEGMENTS {
        let start = object.next_data(at, end).await?;
        if start >= end {
            break;
        }
        at = object.next_hole(start, end).await?;
        writeln!(
            out,
            "\t\tsegment [{start:016x}, {at:016x}) size {:>5}",
            objects.view.numbers.show(at - start)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_objects_is_one_or_several_of_some_types() {
        let range = |first, last, types| Range { first, last, types: Types(types) };
        let all = Types::ALL.0;
        assert_eq!(Range::parse("7").unwrap(), range(7, 7, all));
        assert_eq!(Range::parse("-1").unwrap(), range(u64::MAX, u64::MAX, all));
        assert_eq!(Range::parse("0x10:-1:f").unwrap(), range(16, u64::MAX, 2));
        assert_eq!(Range::parse("0:9:A-f-d").unwrap(), range(0, 9, all & !3));
        let wrong = [
            "x", "9:7", "1:2:q", "1:2:f:3", ":", "::", ":9", "0:", "0:1:", "0:1::", "0::f", "0a:1", "0:1:A-",
            "0:1:+",
        ];
        for wrong in wrong {
            assert!(Range::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_object_is_of_one_kind() {
        let types = Types::parse("A-f-d").unwrap();
        assert!(types.includes(DmuType::SPACE_MAP) && types.includes(DmuType::DNODE));
        assert!(
            !types.includes(DmuType::PLAIN_FILE_CONTENTS) && !types.includes(DmuType::DIRECTORY_CONTENTS)
        );
        assert!(!Types::parse("z").unwrap().includes(DmuType::DIRECTORY_CONTENTS));
    }
}
