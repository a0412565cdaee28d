//! The command history kept in the pool: reading its ring, and the lines of `zpool history`.
//!
//! One object of the MOS holds the records in order, each a packed nvlist behind its length (8 bytes, little
//! endian). The first part, with the command that created the pool, is never overwritten; the rest is a ring
//! whose oldest records give way to new ones. A record is a command of a user, an ioctl with its
//! arguments, or an internal event (in an older form by number). Source of the facts: OpenZFS 2.3
//! `spa_history.c`, `zpool_main.c`.

mod append;

pub use append::{append, command, event, ioctl};

use std::fmt::Write as _;

use ondisk::ObjectId;
use ondisk::history::{self, HistoryEvent, HistoryPhys, HistoryRecord, MAX_RING_BYTES};
use ondisk::pool_directory::{self, DIRECTORY_OBJECT};

use crate::dsl::Dsl;
use crate::error::Result;
use crate::properties::format::Civil;

/// All records of the pool's history, oldest first. Records that cannot be decoded are left out.
pub async fn read(dsl: &Dsl) -> Result<Vec<HistoryRecord>> {
    let Some(id) = dsl.mos().u64(DIRECTORY_OBJECT, pool_directory::HISTORY).await? else {
        return Ok(Vec::new());
    };
    let object = dsl.mos().object(ObjectId(id)).await?;
    let (bytes, order) = object.bonus();
    let phys = HistoryPhys::parse(bytes, order).map_err(|error| object.corrupt(error))?;
    let mut all = Vec::new();
    for extent in phys.extents().map_err(|error| object.corrupt(error))? {
        let length = extent.end.saturating_sub(extent.start);
        if extent.end > object.end() || length > MAX_RING_BYTES {
            return Err(object.corrupt("the history reaches beyond its object"));
        }
        let start = all.len();
        all.resize(start + length as usize, 0);
        object.read_at(extent.start, &mut all[start..]).await?;
    }
    Ok(history::records(&all).filter_map(std::result::Result::ok).collect())
}

/// How records are shown.
#[derive(Clone, Copy)]
pub struct Form<'a> {
    /// `-i`: internal events too.
    pub internal: bool,
    /// `-l`: who did it, on which host.
    pub long: bool,
    /// Seconds to add to UTC at the given time (seconds since 1970) for the reader's clock.
    pub utc_offset: fn(i64) -> i32,
    /// Name of a user by number.
    pub user_name: &'a dyn Fn(u64) -> Option<String>,
}

/// The lines of one record, each ended; `None` for a record that the form leaves out.
pub fn render(record: &HistoryRecord, form: &Form<'_>) -> Option<String> {
    let mut when = record.time().map_or_else(String::new, |time| date(time, form.utc_offset));
    if let Some(elapsed) = record.elapsed_ns() {
        let _ = write!(when, " ({}ms)", elapsed / 1_000_000);
    }
    let event = record.event();
    if !form.internal && !matches!(event, HistoryEvent::Command(_)) {
        return None;
    }
    let mut out = what_happened(record, &event, &when)?;
    if form.long {
        out.push_str(" [");
        if let Some(who) = record.who() {
            let _ = write!(out, "user {who} ");
            if let Some(name) = (form.user_name)(who) {
                let _ = write!(out, "({name}) ");
            }
        }
        if let Some(host) = record.host() {
            let _ = write!(out, "on {host}");
        }
        if let Some(zone) = record.zone() {
            let _ = write!(out, ":{zone}");
        }
        out.push(']');
    }
    out.push('\n');
    Some(out)
}

fn what_happened(record: &HistoryRecord, event: &HistoryEvent<'_>, when: &str) -> Option<String> {
    let mut out = String::new();
    match event {
        HistoryEvent::Command(command) => {
            let _ = write!(out, "{when} {command}");
        }
        HistoryEvent::Internal { name, txg, dataset, text } => {
            let _ = write!(out, "{when} [txg:{txg}] {name}");
            if let Some((dataset, id)) = dataset {
                let _ = write!(out, " {dataset} ({id})");
            }
            let _ = write!(out, " {text}");
        }
        HistoryEvent::LegacyInternal { event, txg, text } if history::legacy_event_name(*event).is_some() => {
            let name = history::legacy_event_name(*event).unwrap_or_default();
            let _ = write!(out, "{when} [internal {name} txg:{txg}] {text}");
        }
        HistoryEvent::Ioctl { name, input, output, omitted_output_bytes, errno } => {
            let _ = writeln!(out, "{when} ioctl {name}");
            for (list, title) in [(input, "input"), (output, "output")] {
                if let Some(list) = list {
                    let _ = writeln!(out, "    {title}:");
                    list.dump(&mut out, 8).ok()?;
                }
            }
            if let Some(size) = omitted_output_bytes {
                let _ = writeln!(out, "    output nvlist omitted; original size: {}KB", size / 1024);
            }
            if let Some(errno) = errno {
                let _ = writeln!(out, "    errno: {errno}");
            }
        }
        HistoryEvent::LegacyInternal { .. } | HistoryEvent::Unknown => {
            let _ = writeln!(out, "{when} unrecognized record:");
            record.nvlist.dump(&mut out, 4).ok()?;
        }
    }
    Some(out)
}

/// The date in front of a record: `2026-11-21.06:06:33`.
pub fn date(seconds: u64, utc_offset: fn(i64) -> i32) -> String {
    let civil = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Civil::at(seconds.checked_add(i64::from(utc_offset(seconds)))?));
    match civil {
        Some(at) => format!(
            "{}-{:02}-{:02}.{:02}:{:02}:{:02}",
            at.year, at.month, at.day, at.hour, at.minute, at.second
        ),
        None => seconds.to_string(),
    }
}
