//! `-h`: the pool's history, with all internal events. `-s`: space and errors of its vdevs.

use anyhow::Result;
use engine::dsl::history;
use engine::vdev::{Class, Kind, Vdev};
use ondisk::history::{HistoryEvent, HistoryRecord, legacy_event_name};

use super::config::write_nvlist;
use super::{Out, View};
use crate::output::history_date;

/// Column in which the names of vdevs end.
const NAME_WIDTH: usize = 26;

/// All records, oldest first; with `-hh` each as it is stored too.
pub(super) async fn dump_history(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    writeln!(out, "\nHistory:")?;
    for record in history::read(&view.dsl).await? {
        let known = write_record(&record, out)?;
        if view.arguments.history > 1 {
            if !known {
                writeln!(out, "unrecognized record:")?;
            }
            write_nvlist(&record.nvlist, 2, out)?;
        }
    }
    Ok(())
}

/// One record. False when nothing was written, because the record is of no known kind.
fn write_record(record: &HistoryRecord, out: &mut Out<'_>) -> Result<bool> {
    let when = record.time().map_or_else(String::new, history_date);
    match record.event() {
        HistoryEvent::Command(command) => writeln!(out, "{when} {command}")?,
        HistoryEvent::LegacyInternal { event, txg, text } => match legacy_event_name(event) {
            Some(name) => writeln!(out, " {when} [internal {name} txg:{txg}] {text}")?,
            None => return Ok(false),
        },
        HistoryEvent::Internal { name, txg, dataset, text } => {
            let dataset = dataset.map_or_else(String::new, |(name, id)| format!(" {name} ({id})"));
            writeln!(out, "{when} [txg:{txg}] {name}{dataset} {text}")?;
        }
        HistoryEvent::Ioctl { name, input, output, errno, .. } => {
            writeln!(out, "{when} ioctl {name}")?;
            for (title, list) in [("input", input), ("output", output)] {
                if let Some(list) = list {
                    writeln!(out, "    {title}:")?;
                    write_nvlist(list, 8, out)?;
                }
            }
            if let Some(errno) = errno {
                writeln!(out, "    errno: {errno}")?;
            }
        }
        HistoryEvent::Unknown => return Ok(false),
    }
    Ok(true)
}

/// Space and errors by vdev. Operations are not counted: only this command has used the devices.
pub(super) async fn dump_statistics(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    let (pool, space) = (view.dsl.pool(), view.dsl.pool_space().await?);
    let show = |value| view.numbers.show(value);
    writeln!(out, "{:NAME_WIDTH$}  capacity   ---- errors ----", "")?;
    writeln!(out, "{:NAME_WIDTH$} used avail  read write cksum", "description")?;
    let errors = pool.root_errors();
    let row = |name: &str, used: &str, free: &str, errors: [u64; 3]| {
        let [read, write, checksum] = errors.map(show);
        format!("{name:<NAME_WIDTH$}{used:>5} {free:>5} {read:>5} {write:>5} {checksum:>5}")
    };
    let counts = [errors.read(), errors.write(), errors.checksum()];
    writeln!(out, "{}", row(pool.name(), &show(space.allocated_bytes()), &show(space.free_bytes()), counts))?;
    for (id, top) in (0u64..).zip(&pool.vdevs().tops) {
        if matches!(top.kind, Kind::Hole | Kind::Missing) {
            continue;
        }
        let of_top = space.vdevs.iter().find(|vdev| vdev.id == id);
        let (used, free) = of_top.map_or_else(Default::default, |vdev| {
            (show(vdev.allocated_bytes), show(vdev.size_bytes.saturating_sub(vdev.allocated_bytes)))
        });
        let mut pending: Vec<(&Vdev, usize)> = vec![(top, 2)];
        while let Some((vdev, indent)) = pending.pop() {
            let class = match vdev.class() {
                Class::Log if indent == 2 => " (log)",
                Class::Special if indent == 2 => " (special)",
                Class::Dedup if indent == 2 => " (dedup)",
                _ => "",
            };
            let name = format!("{:indent$}{}{class}", "", vdev.name);
            let (used, free) = if indent == 2 { (used.as_str(), free.as_str()) } else { ("", "") };
            let counts = [vdev.errors.read(), vdev.errors.write(), vdev.errors.checksum()];
            writeln!(out, "{}", row(&name, used, free, counts))?;
            pending.extend(vdev.children.iter().rev().map(|child| (child, indent + 2)));
        }
    }
    Ok(())
}
