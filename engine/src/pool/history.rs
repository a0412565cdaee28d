//! The command history kept in the pool: reading its ring, and the lines of `zpool history`.
//!
//! One object of the MOS holds the records in order, each a packed nvlist behind its length (8 bytes, little endian). The
//! first part, with the command that created the pool, is never overwritten; the rest is a ring whose oldest records
//! give way to new ones. A record is a command that somebody typed, an ioctl with its arguments, or an internal event
//! (in an older form by number). Source of the facts: OpenZFS 2.3 `spa_history.c`, `zpool_main.c`.

use std::fmt::Write as _;

use ondisk::nvlist::Nvlist;

use crate::dataset::properties::format::Civil;

/// Names of internal events that old records give by number.
const LEGACY_EVENTS: [&str; 41] = [
    "invalid event",
    "pool create",
    "vdev add",
    "pool remove",
    "pool destroy",
    "pool export",
    "pool import",
    "vdev attach",
    "vdev replace",
    "vdev detach",
    "vdev online",
    "vdev offline",
    "vdev upgrade",
    "pool clear",
    "pool scrub",
    "pool property set",
    "create",
    "clone",
    "destroy",
    "destroy_begin_sync",
    "inherit",
    "property set",
    "quota set",
    "permission update",
    "permission remove",
    "permission who remove",
    "promote",
    "receive",
    "rename",
    "reservation set",
    "replay_inc_sync",
    "replay_full_sync",
    "rollback",
    "snapshot",
    "filesystem version upgrade",
    "refquota set",
    "refreservation set",
    "pool scrub done",
    "user hold",
    "user release",
    "pool split",
];

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
pub fn render(record: &Nvlist, form: &Form<'_>) -> Option<String> {
    let mut when =
        record.find_u64("history time").map_or_else(String::new, |time| date(time, form.utc_offset));
    if let Some(elapsed) = record.find_i64("elapsed_ns") {
        let _ = write!(when, " ({}ms)", elapsed / 1_000_000);
    }
    let mut out = match record.find_string("history command") {
        Some(command) => format!("{when} {command}"),
        None if form.internal => internal(record, &when)?,
        None => return None,
    };
    if form.long {
        out.push_str(" [");
        if let Some(who) = record.find_u64("history who") {
            let _ = write!(out, "user {who} ");
            if let Some(name) = (form.user_name)(who) {
                let _ = write!(out, "({name}) ");
            }
        }
        if let Some(host) = record.find_string("history hostname") {
            let _ = write!(out, "on {host}");
        }
        if let Some(zone) = record.find_string("history zone") {
            let _ = write!(out, ":{zone}");
        }
        out.push(']');
    }
    out.push('\n');
    Some(out)
}

/// A record that nobody typed.
fn internal(record: &Nvlist, when: &str) -> Option<String> {
    let txg = record.find_u64("history txg").unwrap_or(0);
    let detail = record.find_string("history internal str").map(ToString::to_string).unwrap_or_default();
    let mut out = String::new();
    let legacy = record.find_u64("history internal event");
    let legacy_name = legacy.and_then(|event| LEGACY_EVENTS.get(usize::try_from(event).ok()?));
    if let Some(name) = legacy_name {
        let _ = write!(out, "{when} [internal {name} txg:{txg}] {detail}");
    } else if let Some(name) = record.find_string("internal_name").filter(|_| legacy.is_none()) {
        let _ = write!(out, "{when} [txg:{txg}] {name}");
        if let Some(dataset) = record.find_string("dsname") {
            let _ = write!(out, " {dataset} ({})", record.find_u64("dsid").unwrap_or(0));
        }
        let _ = write!(out, " {detail}");
    } else if let Some(ioctl) = record.find_string("ioctl").filter(|_| legacy.is_none()) {
        let _ = writeln!(out, "{when} ioctl {ioctl}");
        for (name, title) in [("in_nvl", "input"), ("out_nvl", "output")] {
            if let Some(list) = record.find_nvlist(name) {
                let _ = writeln!(out, "    {title}:");
                list.dump(&mut out, 8).ok()?;
            }
        }
        if let Some(size) = record.find_i64("out_size") {
            let _ = writeln!(out, "    output nvlist omitted; original size: {}KB", size / 1024);
        }
        if let Some(errno) = record.find_i64("errno") {
            let _ = writeln!(out, "    errno: {errno}");
        }
    } else {
        let _ = writeln!(out, "{when} unrecognized record:");
        record.dump(&mut out, 4).ok()?;
    }
    Some(out)
}

/// `2026-11-21.06:06:33`.
fn date(seconds: u64, utc_offset: fn(i64) -> i32) -> String {
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
