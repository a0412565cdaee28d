//! `-m` and `-M`: how the top-level vdevs are cut into metaslabs, and what their space maps and the log space
//! maps say.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use engine::dmu::Object;
use engine::dmu::zap::{Zap, lookup_u64};
use engine::dsl::pool_space::fragmentation;
use engine::pool::verify::metaslab_bounds;
use engine::space_maps::replay;
use engine::vdev::indirect::Moved;
use engine::vdev::{Class, Kind, Vdev};
use ondisk::indirect::MappingEntry;
use ondisk::metaslab::{MetaslabLayout, MetaslabUnflushedPhys, space_maps};
use ondisk::pool_directory::{DIRECTORY_OBJECT, LOG_SPACEMAP_ZAP, top_zap};
use ondisk::space_map::{Entries, Entry, MapType, Segment, SpaceMapPhys};
use ondisk::{ByteOffset, ByteOrder, ObjectId, Reader, Txg, log_space_map};

use super::text::write_histogram;
use super::{Out, View};

/// Most metaslabs of one vdev.
const MAX_METASLABS: u64 = 1 << 20;
/// Most log space maps.
const MAX_LOGS: usize = 1 << 20;
/// Log space maps count in sectors of 512 bytes.
const LOG_SHIFT: u8 = 9;
/// Names of the actions of a debug entry.
const ACTIONS: [&str; 3] = ["ALLOC", "FREE", "CONDENSE"];
/// What stands for the vdev in an entry that names none.
const NO_VDEV: u64 = 1 << 24;

/// All metaslabs, or those of the vdev and with the numbers that are given.
pub(super) async fn dump(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    let wanted = match view.arguments.datasets {
        0 => view.arguments.objects.iter().map(|text| text.parse::<u64>()).collect::<Result<Vec<_>, _>>(),
        _ => Ok(Vec::new()),
    };
    let wanted = wanted.context("with -m, VDEV and METASLAB are numbers")?;
    writeln!(out, "\nMetaslabs:")?;
    let tops = (0u64..).zip(&view.dsl.pool().vdevs().tops);
    for (id, top) in tops.filter(|(id, _)| wanted.first().is_none_or(|wanted| wanted == id)) {
        dump_vdev(view, id, top, wanted.get(1..).unwrap_or_default(), out).await?;
    }
    if wanted.is_empty() {
        dump_logs(view, out).await?;
    }
    Ok(())
}

/// `-M`: fragmentation and free runs of the vdevs of the normal class, with `-MM` also of special ones, and
/// of the pool.
pub(super) async fn dump_groups(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    let shows_special = view.arguments.metaslab_groups > 1;
    let space = view.dsl.pool_space().await?;
    let mark =
        |fragmentation: Option<u64>| fragmentation.map_or("  -".to_owned(), |mark| format!("{mark:>3}%"));
    let mut of_pool = [0u64; 64];
    for (id, top) in (0u64..).zip(&view.dsl.pool().vdevs().tops) {
        let Some(found) = space.vdevs.iter().find(|found| found.id == id) else { continue };
        if found.class != Class::Normal && !(shows_special && found.class == Class::Special) {
            continue;
        }
        let (Some(array), Some(shift)) = (top.config.metaslab_array, top.config.metaslab_shift) else {
            continue;
        };
        let count = MetaslabLayout::new(shift.into(), top.asize())?.count();
        writeln!(
            out,
            "\tvdev {id:>10}\t\tmetaslabs{count:>5}\t\tfragmentation{}",
            mark(found.fragmentation)
        )?;
        let runs = free_runs(view, array, count, top.ashift).await?;
        write_histogram(&runs, 0, out)?;
        if found.class == Class::Normal {
            of_pool.iter_mut().zip(runs).for_each(|(sum, runs)| *sum = sum.saturating_add(runs));
        }
    }
    let name = view.dsl.pool().name();
    writeln!(out, "\tpool {name}\tfragmentation\t{}", mark(space.fragmentation()))?;
    write_histogram(&of_pool, 0, out)
}

/// How many free runs of which size the space maps of a vdev have, as powers of two of bytes.
async fn free_runs(view: &View<'_>, array: ObjectId, count: u64, ashift: u32) -> Result<[u64; 64]> {
    let mut runs = [0u64; 64];
    if count > MAX_METASLABS {
        return Ok(runs);
    }
    let maps = view.mos.object(array).await?;
    let maps = numbers(&maps, count, |bytes, order| space_maps(bytes, order).collect::<Vec<_>>()).await?;
    for map in maps.into_iter().flatten() {
        let object = view.mos.object(map).await?;
        let (bonus, order) = object.bonus();
        let phys = SpaceMapPhys::parse(bonus, order).map_err(|error| object.corrupt(error))?;
        let of_map = phys.histogram.iter().flatten();
        for (sum, runs) in runs.iter_mut().skip(ashift as usize).zip(of_map) {
            *sum = sum.saturating_add(*runs);
        }
    }
    Ok(runs)
}

async fn dump_vdev(view: &View<'_>, id: u64, top: &Vdev, wanted: &[u64], out: &mut Out<'_>) -> Result<()> {
    let class = match top.class() {
        Class::Normal => "",
        Class::Log => "log",
        Class::Special => "special",
        Class::Dedup => "dedup",
    };
    let gone = matches!(top.kind, Kind::Indirect(_) | Kind::Hole | Kind::Missing);
    let layout = match (top.config.metaslab_array, top.config.metaslab_shift) {
        (Some(array), Some(shift)) if !gone => Some((array, MetaslabLayout::new(shift.into(), top.asize())?)),
        _ => None,
    };
    let unflushed = unflushed_object(view, top).await?;
    write!(out, "\tvdev {id:>10}   {class}")?;
    if let Some(object) = &unflushed {
        write!(out, "   ms_unflushed_phys object {}", object.id())?;
    }
    let count = layout.as_ref().map_or(0, |(_, layout)| layout.count());
    writeln!(
        out,
        "\n\t{:<10}{count:>5}   {:<19}   {:<15}   {:<12}",
        "metaslabs", "offset", "spacemap", "free"
    )?;
    writeln!(out, "\t{:->15}   {:->19}   {:->15}   {:->12}", "", "", "", "")?;
    if let Kind::Indirect(moved) = &top.kind
        && let Some(moved) = moved.get()
    {
        write_moved(view, top, moved, out)?;
    }
    if let Some((array, layout)) = layout.filter(|(_, layout)| layout.count() <= MAX_METASLABS) {
        let count = layout.count();
        let maps = view.mos.object(array).await?;
        let maps = numbers(&maps, count, |bytes, order| space_maps(bytes, order).collect::<Vec<_>>()).await?;
        let txgs = match &unflushed {
            Some(object) => numbers(object, count, unflushed_txgs).await?,
            None => Vec::new(),
        };
        for (index, map) in (0u64..).zip(maps) {
            if !wanted.is_empty() && !wanted.contains(&index) {
                continue;
            }
            let start = layout.start(index).map_or(0, ByteOffset::get);
            let (start, size) = metaslab_bounds(top, start, layout.size_bytes());
            let metaslab = Metaslab { index, start, size, map };
            dump_metaslab(view, top, &metaslab, out).await?;
            if unflushed.is_some() {
                let txg = usize::try_from(index).ok().and_then(|index| txgs.get(index));
                writeln!(out, "\tFlush data:\n\tunflushed txg={}\n", txg.map_or(0, |txg| txg.get()))?;
            }
        }
    }
    writeln!(out)?;
    Ok(())
}

/// Where the space of a removed vdev went.
fn write_moved(view: &View<'_>, top: &Vdev, moved: &Moved, out: &mut Out<'_>) -> Result<()> {
    let number = |object: Option<ObjectId>| object.map_or(0, ObjectId::get);
    writeln!(out, "indirect births obj {}:", number(top.config.indirect_births))?;
    writeln!(out, "    vib_count = {}", moved.births.len())?;
    for birth in &moved.births {
        writeln!(out, "\toffset {:x} -> txg {}", birth.end_offset.get(), birth.phys_birth)?;
    }
    let entries = moved.mapping.entries();
    let size = |entry: &MappingEntry| entry.target.asize.get();
    let end = entries.iter().map(|entry| entry.source.get().saturating_add(size(entry))).max().unwrap_or(0);
    let mapped = entries.iter().fold(0u64, |sum, entry| sum.saturating_add(size(entry)));
    writeln!(out, "\nindirect mapping obj {}:", number(top.config.indirect_object))?;
    writeln!(out, "    vim_max_offset = 0x{end:x}")?;
    writeln!(out, "    vim_bytes_mapped = 0x{mapped:x}")?;
    writeln!(out, "    vim_count = {}", entries.len())?;
    if view.arguments.datasets > 5 || view.arguments.metaslabs > 3 {
        for entry in entries {
            let (id, source, target) = (top.id, entry.source.get(), &entry.target);
            let (vdev, offset, size) = (target.vdev.get(), target.offset.get(), target.asize.get());
            writeln!(out, "\t<{id:x}:{source:x}:{size:x}> -> <{vdev:x}:{offset:x}:{size:x}>")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The object with the txgs up to which metaslabs are flushed, where changes are logged first.
async fn unflushed_object(view: &View<'_>, top: &Vdev) -> Result<Option<Object>> {
    let Some(zap) = top.config.top_zap else { return Ok(None) };
    match lookup_u64(&view.mos.object(zap).await?, top_zap::MS_UNFLUSHED_PHYS_TXGS).await? {
        Some(id) => Ok(Some(view.mos.object(ObjectId(id)).await?)),
        None => Ok(None),
    }
}

fn unflushed_txgs(bytes: &[u8], order: ByteOrder) -> Vec<Txg> {
    let mut reader = Reader::new("unflushed txgs", bytes, order);
    let next = || MetaslabUnflushedPhys::read(&mut reader).ok().map(|phys| phys.unflushed_txg);
    std::iter::from_fn(next).collect()
}

/// An object that is an array of `count` words.
async fn numbers<T>(object: &Object, count: u64, parse: impl Fn(&[u8], ByteOrder) -> T) -> Result<T> {
    let bytes = object.read_all(count * 8, MAX_METASLABS as usize * 8).await?;
    let order = object.block(0).await?.map_or(object.dnode().order, |first| first.order);
    Ok(parse(&bytes, order))
}

/// A part of a vdev's space.
struct Metaslab {
    index: u64,
    start: u64,
    size: u64,
    /// Its space map, once it has been allocated from.
    map: Option<ObjectId>,
}

async fn dump_metaslab(view: &View<'_>, top: &Vdev, metaslab: &Metaslab, out: &mut Out<'_>) -> Result<()> {
    let verbosity = view.arguments.metaslabs;
    let map = match metaslab.map {
        Some(map) => {
            let object = view.mos.object(map).await?;
            let (bonus, order) = object.bonus();
            let phys = SpaceMapPhys::parse(bonus, order).map_err(|error| object.corrupt(error))?;
            Some((object, phys))
        }
        None => None,
    };
    let allocated = map.as_ref().map_or(0, |(_, phys)| u64::try_from(phys.allocated_bytes).unwrap_or(0));
    writeln!(
        out,
        "\tmetaslab {:>6}   offset {:>12x}   spacemap {:>6}   free    {:>5}",
        metaslab.index,
        metaslab.start,
        metaslab.map.map_or(0, ObjectId::get),
        view.numbers.show(metaslab.size.saturating_sub(allocated)),
    )?;
    let Some((object, phys)) = map else { return Ok(()) };
    // At most 16; the parser of vdev configurations bounds it.
    let shift = top.ashift as u8;
    if verbosity > 2 && !view.arguments.ignore_leaks {
        write_free(view, metaslab, object.id(), shift, out).await?;
    }
    if let Some(histogram) = phys.histogram.as_ref().filter(|_| verbosity > 1) {
        let fragmentation = fragmentation(histogram, top.ashift);
        writeln!(out, "\tOn-disk histogram:\t\tfragmentation {fragmentation}")?;
        write_histogram(histogram, top.ashift as usize, out)?;
    }
    dump_map(view, &object, &phys, Some((metaslab.start, metaslab.size)), shift, out).await
}

/// The free runs that the space map alone leaves.
async fn write_free(
    view: &View<'_>,
    metaslab: &Metaslab,
    map: ObjectId,
    shift: u8,
    out: &mut Out<'_>,
) -> Result<()> {
    let allocated = match replay::load(&view.mos, map, metaslab.start, metaslab.size, shift).await {
        Ok(allocated) => allocated,
        Err(error) => return Ok(writeln!(out, "\t\t({error})")?),
    };
    let end = metaslab.start.saturating_add(metaslab.size);
    let (mut at, mut segments, mut largest, mut free) = (metaslab.start, 0u64, 0u64, 0u64);
    let mut histogram = [0u64; 64];
    let runs: Vec<(u64, u64)> = allocated.iter().chain([(end, end)]).collect();
    for (start, next) in runs {
        let run = start.saturating_sub(at);
        if let Some(bucket) = run.checked_ilog2().and_then(|bucket| histogram.get_mut(bucket as usize)) {
            *bucket += 1;
            (segments, largest, free) = (segments + 1, largest.max(run), free.saturating_add(run));
        }
        at = next;
    }
    let percent = u128::from(free) * 100 / u128::from(metaslab.size.max(1));
    let largest = view.numbers.show(largest);
    writeln!(
        out,
        "\t {:>25} {segments:>10}   {:>7}  {largest:>6}   {:>4} {percent:>4}%",
        "segments", "maxsize", "freepct"
    )?;
    writeln!(out, "\tFree segments by size, as the space map has them:")?;
    write_histogram(&histogram, 0, out)
}

/// A space map, with `-mmmm` its entries. `bounds` are the offset and size of its metaslab.
async fn dump_map(
    view: &View<'_>,
    object: &Object,
    phys: &SpaceMapPhys,
    bounds: Option<(u64, u64)>,
    shift: u8,
    out: &mut Out<'_>,
) -> Result<()> {
    writeln!(out, "space map object {}:", object.id())?;
    writeln!(out, "  smp_length = 0x{:x}", phys.length_bytes)?;
    writeln!(out, "  smp_alloc = 0x{:x}", phys.allocated_bytes)?;
    if view.arguments.datasets < 6 && view.arguments.metaslabs < 4 {
        return Ok(());
    }
    let (start, size) = bounds.unwrap_or((0, u64::MAX));
    let (mut number, mut left) = (0u64, phys.length_bytes);
    for block in 0..=object.dnode().max_block_id.get() {
        let Some(found) = object.block(block).await?.filter(|_| left > 0) else { break };
        let used = left.min(found.block.len() as u64);
        left -= used;
        let bytes = found.block.get(..used as usize).unwrap_or_default();
        for entry in Entries::new(bytes, found.order) {
            match entry.map_err(|error| object.corrupt(error))? {
                Entry::Debug(debug) if debug.is_padding() => writeln!(out, "\t    [{number:>6}] PADDING")?,
                Entry::Debug(debug) => {
                    let action = ACTIONS.get(usize::from(debug.action)).unwrap_or(&"INVALID");
                    let (txg, pass) = (debug.txg, debug.sync_pass);
                    writeln!(out, "\t    [{number:>6}] {action}: txg {txg} pass {pass}")?;
                }
                Entry::Segment(segment) => {
                    let (from, length) = segment
                        .bytes(ByteOffset(start), size, shift)
                        .map_err(|error| object.corrupt(error))?;
                    write_segment(number, &segment, from.get(), length, out)?;
                }
            }
            number += 1;
        }
    }
    Ok(())
}

fn write_segment(number: u64, segment: &Segment, from: u64, length: u64, out: &mut Out<'_>) -> Result<()> {
    let kind = match segment.kind {
        MapType::Alloc => 'A',
        MapType::Free => 'F',
    };
    let vdev = segment.vdev.map_or(NO_VDEV, |vdev| vdev.get().into());
    let words = if segment.vdev.is_some() { 2 } else { 1 };
    writeln!(
        out,
        "\t    [{number:>6}]    {kind}  range: {from:010x}-{:010x}  size: {length:06x} vdev: {vdev:06} \
         words: {words}",
        from.saturating_add(length)
    )?;
    Ok(())
}

async fn dump_logs(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    let directory = view.mos.object(DIRECTORY_OBJECT).await?;
    let Some(id) = lookup_u64(&directory, LOG_SPACEMAP_ZAP).await? else { return Ok(()) };
    let zap = view.mos.object(ObjectId(id)).await?;
    let mut logs = BTreeMap::new();
    for entry in Zap::open(&zap).await?.entries(MAX_LOGS).await? {
        let txg = log_space_map::parse_key(entry.key.name().unwrap_or_default());
        let txg = txg.map_err(|error| zap.corrupt(error))?;
        logs.insert(txg, ObjectId(entry.value.as_u64().unwrap_or(0)));
    }
    writeln!(out, "\nLog Space Maps in Pool:")?;
    for (txg, id) in logs {
        writeln!(out, "Log Spacemap object {id} txg {txg}")?;
        let object = view.mos.object(id).await?;
        let (bonus, order) = object.bonus();
        let phys = SpaceMapPhys::parse(bonus, order).map_err(|error| object.corrupt(error))?;
        dump_map(view, &object, &phys, None, LOG_SHIFT, out).await?;
    }
    writeln!(out)?;
    Ok(())
}
