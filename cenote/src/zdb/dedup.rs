//! `-D`: the dedup tables: their objects, logs, entries, and histograms of how often blocks are referenced.
//!
//! Tables are kept by checksum function. Old ones are ZAPs named in the pool's directory, one for each class
//! of entries; those of fast dedup have a directory of their own, and logs of what is not in their ZAPs yet.

use std::collections::BTreeMap;

use anyhow::Result;
use codec::compress::decompress;
use engine::dmu::Object;
use engine::dmu::zap::{Entry, Key, Zap, lookup, lookup_u64};
use engine::pool::verify::References;
use engine::properties::format::{nicebytes, nicenum};
use ondisk::ObjectId;
use ondisk::blkptr::ChecksumType;
use ondisk::ddt::log::{self, DdtLogHeader, LOG_CHECKPOINT, LOG_FLUSHING};
use ondisk::ddt::{
    self, DdtClass, DdtHistogram, DdtKey, DdtPhys, DdtStat, FLAG_FLAT, FLAG_LOG, PackedPhys, PhysForm,
};
use ondisk::pool_directory::{DDT_STATISTICS, DIRECTORY_OBJECT};
use serde_json::{Value, json};

use super::{Out, View, blocks};

/// A dedup table of one checksum function.
struct Table {
    checksum: ChecksumType,
    version: u64,
    flags: u64,
    directory: ObjectId,
    zaps: Vec<TableZap>,
    logs: Vec<TableLog>,
}

/// The part of a table with one class of entries.
struct TableZap {
    name: String,
    class: DdtClass,
    object: Object,
    entries: u64,
    histogram: DdtHistogram,
}

/// One of the two logs of a table.
struct TableLog {
    name: String,
    id: ObjectId,
    header: DdtLogHeader,
    /// What counts of it, in the order of keys.
    entries: BTreeMap<[u64; 5], (DdtKey, DdtPhys)>,
}

impl Table {
    fn form(&self) -> PhysForm {
        PhysForm::from_flags(self.flags)
    }
}

/// The tables of all checksum functions.
pub(super) async fn dump(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    let tables = tables(view).await?;
    for table in &tables {
        dump_table(view, table, out).await?;
    }
    let histogram = aggregate(view, &tables).await?;
    let total = histogram.total();
    if total.blocks == 0 {
        writeln!(out, "All DDTs are empty")?;
        return Ok(());
    }
    writeln!(out)?;
    if view.arguments.dedup > 1 {
        writeln!(out, "DDT histogram (aggregated over all DDTs):")?;
        write_histogram(&histogram, Some(&total), out)?;
    }
    write_ratios(&total, out)
}

/// What a table of all data would hold (`-S`).
pub(super) fn dump_simulated(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    let mut histogram = DdtHistogram::default();
    for (key, References { count, dsize }) in blocks::simulate_dedup(view, usize::MAX)?.blocks {
        let (lsize, psize) = (key.lsize().get(), key.psize().get());
        if let Some(bucket) = histogram.buckets.get_mut(DdtHistogram::bucket_of(count)) {
            bucket.add(&DdtStat {
                blocks: 1,
                lsize,
                psize,
                dsize: dsize / count.max(1),
                ref_blocks: count,
                ref_lsize: lsize.saturating_mul(count),
                ref_psize: psize.saturating_mul(count),
                ref_dsize: dsize,
            });
        }
    }
    let total = histogram.total();
    writeln!(out, "Simulated DDT histogram:")?;
    write_histogram(&histogram, Some(&total), out)?;
    write_ratios(&total, out)
}

fn write_ratios(total: &DdtStat, out: &mut Out<'_>) -> Result<()> {
    let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let dedup = ratio(total.ref_dsize, total.dsize);
    let compress = ratio(total.ref_lsize, total.ref_psize);
    let copies = ratio(total.ref_dsize, total.ref_psize);
    writeln!(
        out,
        "dedup = {dedup:.2}, compress = {compress:.2}, copies = {copies:.2}, dedup * compress / copies = \
         {:.2}\n",
        dedup * compress / copies.max(f64::MIN_POSITIVE)
    )?;
    Ok(())
}

async fn tables(view: &View<'_>) -> Result<Vec<Table>> {
    let directory = view.mos.object(DIRECTORY_OBJECT).await?;
    let mut tables = Vec::new();
    for &checksum in ChecksumType::ALL {
        let fast = lookup_u64(&directory, ddt::directory_name(checksum)).await?.map(ObjectId);
        let mut table = Table {
            checksum,
            version: 0,
            flags: 0,
            directory: fast.unwrap_or(DIRECTORY_OBJECT),
            zaps: Vec::new(),
            logs: Vec::new(),
        };
        let own = view.mos.object(table.directory).await?;
        if fast.is_some() {
            table.version = lookup_u64(&own, ddt::dir_key::VERSION).await?.unwrap_or(0);
            table.flags = lookup_u64(&own, ddt::dir_key::FLAGS).await?.unwrap_or(0);
        }
        for class in DdtClass::ALL {
            let name = ddt::object_name(checksum, class);
            let Some(id) = lookup_u64(&own, &name).await? else { continue };
            let object = view.mos.object(ObjectId(id)).await?;
            let entries = Zap::open(&object).await?.count()?;
            let histogram = stored_histogram(view, &directory, &name).await?;
            table.zaps.push(TableZap { name, class, object, entries, histogram });
        }
        for which in 0..2 {
            let name = ddt::log_name(checksum, which);
            if let Some(id) = lookup_u64(&own, &name).await? {
                table.logs.push(read_log(view, name, ObjectId(id), table.form()).await?);
            }
        }
        if fast.is_some() || !table.zaps.is_empty() {
            tables.push(table);
        }
    }
    Ok(tables)
}

async fn stored_histogram(view: &View<'_>, directory: &Object, name: &str) -> Result<DdtHistogram> {
    let empty = DdtHistogram::default();
    let Some(statistics) = lookup_u64(directory, DDT_STATISTICS).await? else { return Ok(empty) };
    let statistics = view.mos.object(ObjectId(statistics)).await?;
    match lookup(&statistics, name).await? {
        Some(words) => {
            Ok(DdtHistogram::from_words(&words.to_u64s()).map_err(|error| statistics.corrupt(error))?)
        }
        None => Ok(empty),
    }
}

async fn read_log(view: &View<'_>, name: String, id: ObjectId, form: PhysForm) -> Result<TableLog> {
    let object = view.mos.object(id).await?;
    let (bonus, order) = object.bonus();
    let header = DdtLogHeader::parse(bonus, order).map_err(|error| object.corrupt(error))?;
    header.check_version().map_err(|error| object.corrupt(error))?;
    let done = header.checkpoint().map(|key| key.words());
    let mut entries = BTreeMap::new();
    for block in 0..header.length_bytes.min(object.end()).div_ceil(object.block_size()) {
        let Some(found) = object.block(block).await? else { continue };
        for record in log::records(&found.block, form, found.order) {
            let record = record.map_err(|error| object.corrupt(error))?;
            let key = record.key.words();
            // What stands up to the checkpoint is in the table already.
            if done.is_none_or(|done| key > done) {
                entries.insert(key, (record.key, record.phys));
            }
        }
    }
    Ok(TableLog { name, id, header, entries })
}

async fn dump_table(view: &View<'_>, table: &Table, out: &mut Out<'_>) -> Result<()> {
    let kind = match table.version {
        0 => "LEGACY",
        1 => "FDT",
        _ => "UNKNOWN",
    };
    let flags = flag_names(table.flags, &[(FLAG_FLAT, "FLAT"), (FLAG_LOG, "LOG")]);
    let (checksum, version, directory) = (table.checksum, table.version, table.directory);
    writeln!(
        out,
        "DDT-{checksum}: version={version} [{kind}]; flags=0x{:02x}{flags}; rootobj={directory}",
        table.flags
    )?;
    for zap in table.zaps.iter().filter(|zap| zap.entries > 0) {
        dump_zap(view, table, zap, out).await?;
    }
    for log in &table.logs {
        dump_log(view, table, log, out)?;
    }
    Ok(())
}

fn flag_names(flags: u64, names: &[(u64, &str)]) -> String {
    let mut shown: Vec<&str> =
        names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    let known = names.iter().fold(0, |known, (bit, _)| known | bit);
    if flags & !known != 0 {
        shown.push("UNKNOWN");
    }
    if shown.is_empty() { String::new() } else { format!(" [{}]", shown.join(" ")) }
}

async fn dump_zap(view: &View<'_>, table: &Table, zap: &TableZap, out: &mut Out<'_>) -> Result<()> {
    let (name, dnode) = (&zap.name, zap.object.dnode());
    let stored = dnode.used_bytes().saturating_add(256) >> 9 << 9;
    let fill = dnode.blkptrs.iter().fold(0u64, |sum, bp| sum.saturating_add(bp.fill()));
    let in_memory = fill.saturating_mul(dnode.data_block_size());
    writeln!(out, "{name}: dspace={stored}; mspace={in_memory}; entries={}", zap.entries)?;
    let verbosity = view.arguments.dedup;
    if verbosity < 3 {
        return Ok(());
    }
    writeln!(out, "{name}: object={}", zap.object.id())?;
    write_histogram(&zap.histogram, None, out)?;
    if verbosity < 4 || (verbosity < 5 && zap.class == DdtClass::Unique) {
        return Ok(());
    }
    writeln!(out, "{name} contents:\n")?;
    let mut entries = Zap::open(&zap.object).await?.cursor(0);
    while let Some(entry) = entries.next().await? {
        match decode(&entry, table.form()) {
            Some((key, phys)) => write_entry(table.checksum, entry.cookie, &key, &phys, out)?,
            None => writeln!(out, "an entry that cannot be decoded")?,
        }
    }
    writeln!(out)?;
    Ok(())
}

fn decode(entry: &Entry, form: PhysForm) -> Option<(DdtKey, DdtPhys)> {
    let Key::Words(words) = &entry.key else { return None };
    let &[a, b, c, d, prop] = words.as_slice() else { return None };
    let packed = PackedPhys::parse(entry.value.as_bytes()?).ok()?;
    let mut bytes = vec![0; form.size()];
    decompress(packed.compress, packed.bytes, &mut bytes).ok()?;
    let phys = DdtPhys::parse(&bytes, form, packed.order).ok()?;
    Some((DdtKey { checksum: [a, b, c, d], prop }, phys))
}

fn write_entry(
    checksum: ChecksumType,
    index: u64,
    key: &DdtKey,
    phys: &DdtPhys,
    out: &mut Out<'_>,
) -> Result<()> {
    let slots: &[_] = match phys {
        DdtPhys::Traditional(slots) => slots,
        DdtPhys::Flat(flat) => std::slice::from_ref(&flat.slot),
    };
    for (number, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.is_used()) {
        match slot.blkptr(key, checksum) {
            Ok(bp) => writeln!(out, "index {index:x} refcnt {} phys {number} {bp}", slot.refcount)?,
            Err(error) => writeln!(out, "index {index:x} refcnt {} phys {number} ({error})", slot.refcount)?,
        }
    }
    Ok(())
}

fn dump_log(view: &View<'_>, table: &Table, log: &TableLog, out: &mut Out<'_>) -> Result<()> {
    let flags = log.header.flags();
    let names = [(u64::from(LOG_FLUSHING), "FLUSHING"), (u64::from(LOG_CHECKPOINT), "CHECKPOINT")];
    writeln!(
        out,
        "{}: flags=0x{flags:02x}{}; obj={}; len={}; txg={}; entries={}",
        log.name,
        flag_names(flags.into(), &names),
        log.id,
        log.header.length_bytes,
        log.header.first_txg,
        log.entries.len()
    )?;
    if let Some(key) = log.header.checkpoint() {
        let words: Vec<String> = key.words().iter().map(|word| format!("{word:016x}")).collect();
        writeln!(out, "    checkpoint: {}", words.join(":"))?;
    }
    if view.arguments.dedup >= 4 {
        for (index, (key, phys)) in (0u64..).zip(log.entries.values()) {
            write_entry(table.checksum, index, key, phys, out)?;
        }
    }
    Ok(())
}

/// The histograms of all tables together, with what is only in logs.
async fn aggregate(view: &View<'_>, tables: &[Table]) -> Result<DdtHistogram> {
    let space = view.dsl.pool_space().await?;
    let mut sum = DdtHistogram::default();
    for table in tables {
        for zap in &table.zaps {
            sum.buckets.iter_mut().zip(&zap.histogram.buckets).for_each(|(sum, bucket)| sum.add(bucket));
        }
        // Where both logs have an entry, the one that still grows is right.
        let mut entries = BTreeMap::new();
        let flushing = |log: &&TableLog| log.header.flags() & LOG_FLUSHING != 0;
        for log in table.logs.iter().filter(flushing).chain(table.logs.iter().filter(|log| !flushing(log))) {
            entries.extend(log.entries.iter().map(|(order, entry)| (*order, *entry)));
        }
        for (key, phys) in entries.into_values() {
            for slot in phys.slots() {
                let Ok(bp) = slot.blkptr(&key, table.checksum) else { continue };
                let (dsize, count) = (space.block_bytes(&bp), slot.refcount);
                let (lsize, psize) = (key.lsize().get(), key.psize().get());
                if let Some(bucket) = sum.buckets.get_mut(DdtHistogram::bucket_of(count)) {
                    bucket.add(&DdtStat {
                        blocks: 1,
                        lsize,
                        psize,
                        dsize,
                        ref_blocks: count,
                        ref_lsize: lsize.saturating_mul(count),
                        ref_psize: psize.saturating_mul(count),
                        ref_dsize: dsize.saturating_mul(count),
                    });
                }
            }
        }
    }
    Ok(sum)
}

fn write_histogram(histogram: &DdtHistogram, total: Option<&DdtStat>, out: &mut Out<'_>) -> Result<()> {
    writeln!(out, "\nbucket              allocated                       referenced          ")?;
    writeln!(out, "{:_>6}   {:_>30}   {:_>30}", "", "", "")?;
    let mut row = |columns: [&str; 9]| -> Result<()> {
        let [count, blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize] = columns;
        writeln!(
            out,
            "{count:>6}   {blocks:>6}   {lsize:>5}   {psize:>5}   {dsize:>5}   {ref_blocks:>6}   \
             {ref_lsize:>5}   {ref_psize:>5}   {ref_dsize:>5}"
        )?;
        Ok(())
    };
    row(["refcnt", "blocks", "LSIZE", "PSIZE", "DSIZE", "blocks", "LSIZE", "PSIZE", "DSIZE"])?;
    row(["------", "------", "-----", "-----", "-----", "------", "-----", "-----", "-----"])?;
    let buckets = (0u32..).zip(&histogram.buckets);
    let buckets = buckets.map(|(power, bucket)| (nicenum(1u64.checked_shl(power).unwrap_or(0)), bucket));
    let total = total.map(|total| ("Total".to_owned(), total));
    for (name, stat) in buckets.chain(total).filter(|(_, stat)| stat.blocks > 0) {
        let stored =
            [nicenum(stat.blocks), nicebytes(stat.lsize), nicebytes(stat.psize), nicebytes(stat.dsize)];
        let [blocks, lsize, psize, dsize] = &stored;
        let referenced = [
            nicenum(stat.ref_blocks),
            nicebytes(stat.ref_lsize),
            nicebytes(stat.ref_psize),
            nicebytes(stat.ref_dsize),
        ];
        let [ref_blocks, ref_lsize, ref_psize, ref_dsize] = &referenced;
        row([&name, blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize])?;
    }
    writeln!(out)?;
    Ok(())
}

/// The tables for programs.
pub(super) async fn json(view: &View<'_>) -> Result<Value> {
    let tables = tables(view).await?;
    let stat = |stat: &DdtStat| {
        json!({
            "blocks": stat.blocks, "lsize": stat.lsize, "psize": stat.psize, "dsize": stat.dsize,
            "ref_blocks": stat.ref_blocks, "ref_lsize": stat.ref_lsize,
            "ref_psize": stat.ref_psize, "ref_dsize": stat.ref_dsize,
        })
    };
    let histogram = |histogram: &DdtHistogram| -> Value {
        let buckets = (0u32..).zip(&histogram.buckets).filter(|(_, bucket)| bucket.blocks > 0);
        buckets.map(|(power, bucket)| (format!("{}", 1u128 << power), stat(bucket))).collect()
    };
    let shown: Vec<Value> = tables
        .iter()
        .map(|table| {
            json!({
                "checksum": table.checksum.name(),
                "version": table.version,
                "flags": table.flags,
                "directory": table.directory.get(),
                "tables": table.zaps.iter().map(|zap| json!({
                    "name": zap.name,
                    "object": zap.object.id().get(),
                    "entries": zap.entries,
                    "histogram": histogram(&zap.histogram),
                })).collect::<Vec<_>>(),
                "logs": table.logs.iter().map(|log| json!({
                    "name": log.name,
                    "object": log.id.get(),
                    "flags": log.header.flags(),
                    "first_txg": log.header.first_txg.get(),
                    "entries": log.entries.len(),
                })).collect::<Vec<_>>(),
            })
        })
        .collect();
    let sum = aggregate(view, &tables).await?;
    Ok(json!({"tables": shown, "histogram": histogram(&sum), "total": stat(&sum.total())}))
}
