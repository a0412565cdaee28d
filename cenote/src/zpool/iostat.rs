//! `zpool iostat`: what pools and their vdevs read and write.
//!
//! The daemon's counters only grow; a line is the difference of two looks at them, per second. The first is
//! since the pool was opened. Numbers that this program has no queues for are dashes: it gives reads to
//! the system at once, and writes of groups only behind stable writes.
//!
//! Source of the facts about texts and layout: OpenZFS 2.3 `zpool_main.c`, `zpool-iostat.8`.

mod counters;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use engine::properties::format::nicenum;
use serde_json::{Map, Value};
use server::api::{ActiveTransfers, GetIoStats, Listed, PoolIo, Transfers, VdevClass, VdevNode};

use super::repeat::{Repeat, TimeStamp};
use super::scripts::{Said, Scripts};
use super::vdevs::{Naming, SECTIONS, of_class, pool_word};
use super::{PoolJson, pool_json};
use crate::dead_mounts;
use crate::output::{self, complain, usage};
use crate::table::{pad_left, pad_right};
use counters::{Counted, nicetime};

/// The least width of the column of names.
const NAME_WIDTH: usize = 10;
/// Labels over columns, each with how many columns it is for, and those of the columns.
type Labels = (&'static [(&'static str, usize)], &'static [&'static str]);
const DEFAULT: Labels = (
    &[("capacity", 2), ("operations", 2), ("bandwidth", 2)],
    &["alloc", "free", "read", "write", "read", "write"],
);
const LATENCY: Labels = (
    &[
        ("total_wait", 2),
        ("disk_wait", 2),
        ("syncq_wait", 2),
        ("asyncq_wait", 2),
        ("scrub", 1),
        ("trim", 1),
        ("rebuild", 1),
    ],
    &["read", "write", "read", "write", "read", "write", "read", "write", "wait", "wait", "wait"],
);
const QUEUES: Labels = (
    &[
        ("syncq_read", 2),
        ("syncq_write", 2),
        ("asyncq_read", 2),
        ("asyncq_write", 2),
        ("scrubq_read", 2),
        ("trimq_write", 2),
        ("rebuildq_write", 2),
    ],
    &[
        "pend", "activ", "pend", "activ", "pend", "activ", "pend", "activ", "pend", "activ", "pend", "activ",
        "pend", "activ",
    ],
);
const LATENCIES: Labels = (
    &[("total_wait", 2), ("disk_wait", 2), ("syncq_wait", 2), ("asyncq_wait", 2)],
    &["read", "write", "read", "write", "read", "write", "read", "write", "scrub", "trim", "rebuild"],
);
const SIZES: Labels = (
    &[
        ("sync_read", 2),
        ("sync_write", 2),
        ("async_read", 2),
        ("async_write", 2),
        ("scrub", 2),
        ("trim", 2),
        ("rebuild", 2),
    ],
    &["ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg"],
);

/// Arguments of `zpool iostat`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    json: PoolJson,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    scripts: Scripts,
    #[command(flatten)]
    time: TimeStamp,
    /// No headings, tabs between the values
    #[arg(short = 'H')]
    scripted: bool,
    /// Show numbers in full
    #[arg(short = 'p')]
    literal: bool,
    /// Print the headings once
    #[arg(short = 'n')]
    headings_once: bool,
    /// Leave out the first report, which covers the time since the pool was opened
    #[arg(short = 'y')]
    skip_first: bool,
    /// Show vdevs too
    #[arg(short)]
    verbose: bool,
    /// The pools, all open ones if none is named, or vdevs of the first or of any; then seconds after which
    /// to repeat it, and how often
    #[arg(value_name = "POOL|VDEV|INTERVAL")]
    names: Vec<String>,
}

/// The columns besides, or instead of, operations and bandwidth.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
struct Shown {
    /// Average latencies
    #[arg(short = 'l')]
    latency: bool,
    /// Transfers in queues
    #[arg(short = 'q')]
    queues: bool,
    /// Histograms of latencies
    #[arg(short = 'w', conflicts_with_all = ["latency", "queues", "sizes"])]
    latencies: bool,
    /// Histograms of sizes
    #[arg(short = 'r', conflicts_with_all = ["latency", "queues"])]
    sizes: bool,
}

/// The counters at one moment.
struct Look {
    at: Instant,
    pools: Vec<PoolIo>,
}

impl Arguments {
    /// Prints the report, once or repeatedly.
    pub fn run(mut self) -> Result<()> {
        if self.scripts.are_to_be_listed() {
            return self.scripts.list("iostat");
        }
        let scripts = self.scripts.find()?;
        self.verbose |= self.scripts.are_given();
        let repeat = Repeat::take(&mut self.names)?;
        if self.skip_first && repeat == Repeat::default() {
            return Err(usage("-y needs an interval"));
        }
        let mut last: Option<Look> = None;
        let mut reports = 0u64;
        let mut show = |_| {
            let (look, failed) = self.look()?;
            let has_any = !look.pools.is_empty() || failed.is_empty();
            if has_any && (last.is_some() || !self.skip_first) {
                let with_header = reports == 0 || (self.verbose && !self.headings_once);
                reports += 1;
                self.print(&look, last.as_ref(), &scripts, with_header)?;
            }
            last = Some(look);
            complain(&failed)
        };
        // The first look of those who leave it out is not counted.
        if self.skip_first {
            show(true)?;
            repeat.wait();
        }
        repeat.run(show)
    }

    /// The vdevs of a pool that were asked for by name.
    fn wanted<'a>(&self, pool: &'a PoolIo) -> Vec<&'a VdevNode> {
        let is_wanted = |vdev: &&VdevNode| {
            vdev.kind != "root" && self.names.contains(&self.naming.name(&pool.name, vdev))
        };
        pool.vdevs.walk().filter(is_wanted).collect()
    }

    /// The counters now. Names that are no pools are vdevs of those that are.
    fn look(&self) -> Result<(Look, Vec<server::api::ApiError>)> {
        let mut listed = output::ask(&GetIoStats { pools: self.names.clone() }, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.pools, "no such pool"),
        })?;
        if listed.entries.is_empty() && !self.names.is_empty() {
            // Without a pool they are vdevs of any.
            let all = output::ask(&GetIoStats { pools: Vec::new() }, |_| Listed::default())?;
            listed.entries = all.entries.into_iter().filter(|pool| !self.wanted(pool).is_empty()).collect();
        }
        let of_vdevs = |error: &server::api::ApiError| {
            let named =
                |vdev: &VdevNode| error.message.contains(&format!("'{}'", self.naming.name("", vdev)));
            listed
                .entries
                .iter()
                .flat_map(|pool| pool.vdevs.walk())
                .any(|vdev| vdev.kind != "root" && named(vdev))
        };
        let failed = listed.failed.iter().filter(|error| !of_vdevs(error)).cloned().collect();
        if self.names.is_empty() && listed.entries.is_empty() && listed.failed.is_empty() && !self.scripted {
            eprintln!("no pools available");
            dead_mounts::explain();
        }
        Ok((Look { at: Instant::now(), pools: listed.entries }, failed))
    }

    fn print(&self, look: &Look, last: Option<&Look>, scripts: &[PathBuf], with_header: bool) -> Result<()> {
        let is_histogram = self.shown.latencies || self.shown.sizes;
        let scripts = if is_histogram { &[] } else { scripts };
        let shown = look.pools.iter().flat_map(|pool| {
            let wanted = self.wanted(pool);
            let vdevs = if wanted.is_empty() { pool.vdevs.walk().collect() } else { wanted };
            vdevs.into_iter().map(|vdev| (pool.name.as_str(), vdev))
        });
        let said = Said::ask(scripts, shown);
        if self.json.base.json {
            return self.print_json(look, last, &said);
        }
        let names = |pool: &PoolIo| match self.verbose {
            true => self.naming.width(&pool.name, &pool.vdevs, 0),
            false => pool.name.len(),
        };
        let width = look.pools.iter().map(names).fold(NAME_WIDTH, usize::max);
        let page = Page { arguments: self, said: &said, width };
        let mut text = self.time.line();
        if with_header && !self.scripted && !is_histogram {
            text.push_str(&page.header());
        }
        for pool in &look.pools {
            let changes = changes(pool, look, last);
            page.pool(pool, &changes, &mut text);
        }
        if look.pools.len() > 1 && !self.verbose && !self.scripted && !is_histogram {
            text.push_str(&page.separator());
        }
        output::print(&text)
    }

    fn print_json(&self, look: &Look, last: Option<&Look>, said: &Said) -> Result<()> {
        let numbers = self.json.base.numbers(self.literal);
        let items = look.pools.iter().map(|pool| {
            let changes = changes(pool, look, last);
            let state = pool_word(pool.vdevs.state, pool.suspended.is_some());
            let mut item = pool_json(&pool.name, pool.guid, 0, &state, false, numbers);
            item.remove("txg");
            let vdevs = pool.vdevs.walk().map(|vdev| {
                let counted = changes.of(vdev);
                let mut entry = Map::new();
                let space = vdev.space.unwrap_or_default();
                for (key, value) in [("alloc", space.allocated), ("free", space.free)] {
                    entry.insert(key.into(), numbers.bytes(value));
                }
                for (key, value) in [
                    ("read_ops", counted.per_second(counted.read.operations)),
                    ("write_ops", counted.per_second(counted.write.operations)),
                    ("trim_ops", counted.per_second(counted.trim.operations)),
                ] {
                    entry.insert(key.into(), numbers.count(value));
                }
                for (key, value) in [
                    ("read_bytes", counted.per_second(counted.read.bytes)),
                    ("write_bytes", counted.per_second(counted.write.bytes)),
                    ("trim_bytes", counted.per_second(counted.trim.bytes)),
                ] {
                    entry.insert(key.into(), numbers.bytes(value));
                }
                let latency = counted.leaves();
                for (key, histogram) in
                    [("total_wait_read", &latency.read.latency), ("total_wait_write", &latency.write.latency)]
                {
                    entry.insert(format!("{key}_ns"), numbers.exact(counters::average(histogram)));
                    entry.insert(format!("{key}_histogram"), histogram.clone().into());
                }
                said.add_json(&pool.name, vdev.path.as_deref(), &mut entry);
                (self.naming.name(&pool.name, vdev), Value::from(entry))
            });
            item.insert("vdevs".into(), Value::Object(vdevs.collect()));
            (self.json.key(&pool.name, pool.guid), Value::from(item))
        });
        let mut document = output::document("zpool iostat");
        self.time.add_json(self.json.base.json_int, &mut document);
        document.insert("pools".into(), Value::Object(items.collect()));
        output::print_json(&document)
    }
}

/// The counts between two looks, or since the pool was opened.
fn changes<'a>(pool: &'a PoolIo, look: &Look, last: Option<&'a Look>) -> counters::Changes<'a> {
    let before = last.and_then(|last| {
        let before =
            last.pools.iter().find(|before| before.guid == pool.guid && before.age_ns <= pool.age_ns)?;
        Some((before, look.at - last.at))
    });
    counters::Changes::new(pool, before)
}

/// How one report is laid out.
struct Page<'a> {
    arguments: &'a Arguments,
    said: &'a Said,
    width: usize,
}

impl Page<'_> {
    fn shown(&self) -> Shown {
        self.arguments.shown
    }

    /// The groups of columns, each with the width of its columns.
    fn groups(&self) -> Vec<(Labels, usize)> {
        let literal = self.arguments.literal;
        let width = |in_full: usize| if literal { in_full } else { 5 };
        match self.shown() {
            Shown { latencies: true, .. } => vec![(LATENCIES, width(10))],
            Shown { sizes: true, .. } => vec![(SIZES, width(6))],
            Shown { latency, queues, .. } => {
                let mut groups = vec![(DEFAULT, width(15))];
                groups.extend(latency.then_some((LATENCY, width(10))));
                groups.extend(queues.then_some((QUEUES, width(6))));
                groups
            }
        }
    }

    fn header(&self) -> String {
        self.headings(&" ".repeat(self.width), "pool")
    }

    fn headings(&self, above: &str, name: &str) -> String {
        let mut text = pad_right(above, self.width);
        for ((tops, _), width) in self.groups() {
            for (label, columns) in tops {
                let whole = width * columns + 2 * (columns - 1);
                let start = (whole / columns).saturating_sub(label.len() / columns);
                let end = whole.saturating_sub(start + label.len());
                text.push_str(&format!("  {}{label}{}", " ".repeat(start), " ".repeat(end)));
            }
        }
        text.push('\n');
        text.push_str(&pad_right(name, self.width));
        for ((_, bottoms), width) in self.groups() {
            text.extend(bottoms.iter().map(|label| format!("  {}", pad_left(label, width))));
        }
        text.push_str(&self.said.headings());
        text.push('\n');
        text + &self.separator()
    }

    /// A line of dashes.
    fn separator(&self) -> String {
        let mut text = "-".repeat(self.width);
        for ((_, bottoms), width) in self.groups() {
            text.extend(bottoms.iter().map(|_| format!("  {}", "-".repeat(width))));
        }
        text + &self.said.dashes() + "\n"
    }

    fn pool(&self, pool: &PoolIo, changes: &counters::Changes<'_>, text: &mut String) {
        let wanted = self.arguments.wanted(pool);
        for vdev in &wanted {
            self.vdev(pool, vdev, changes, 0, text);
        }
        if !wanted.is_empty() {
            return;
        }
        self.vdev(pool, &pool.vdevs, changes, 0, text);
        if !self.arguments.verbose {
            return;
        }
        for top in of_class(&pool.vdevs, VdevClass::Normal) {
            self.tree(pool, top, changes, 2, text);
        }
        let auxiliary = [(VdevClass::L2cache, "cache")];
        for (class, heading) in SECTIONS.into_iter().chain(auxiliary) {
            let mut tops = of_class(&pool.vdevs, class).peekable();
            let is_histogram = self.shown().latencies || self.shown().sizes;
            if tops.peek().is_some() && !self.arguments.scripted && !is_histogram {
                text.push_str(&pad_right(heading, self.width));
                for ((_, bottoms), width) in self.groups() {
                    text.extend(bottoms.iter().map(|_| format!("  {}", pad_left("-", width))));
                }
                text.push('\n');
            }
            tops.for_each(|top| self.tree(pool, top, changes, 2, text));
        }
        if !self.arguments.scripted && !self.shown().latencies && !self.shown().sizes {
            text.push_str(&self.separator());
        }
    }

    fn tree(
        &self,
        pool: &PoolIo,
        vdev: &VdevNode,
        changes: &counters::Changes<'_>,
        depth: usize,
        text: &mut String,
    ) {
        self.vdev(pool, vdev, changes, depth, text);
        for child in &vdev.children {
            self.tree(pool, child, changes, depth + 2, text);
        }
    }

    fn vdev(
        &self,
        pool: &PoolIo,
        vdev: &VdevNode,
        changes: &counters::Changes<'_>,
        depth: usize,
        text: &mut String,
    ) {
        let name = self.arguments.naming.name(&pool.name, vdev);
        let counted = changes.of(vdev);
        if self.shown().latencies || self.shown().sizes {
            return self.histogram(&name, &counted, text);
        }
        let values = self.values(vdev, &counted);
        if self.arguments.scripted {
            text.push_str(&name);
            text.extend(values.iter().map(|(value, _)| format!("\t{value}")));
        } else {
            text.push_str(&format!(
                "{}{}",
                " ".repeat(depth),
                pad_right(&name, self.width.saturating_sub(depth))
            ));
            text.extend(values.iter().map(|(value, width)| format!("  {}", pad_left(value, *width))));
        }
        text.push_str(&self.said.line(&pool.name, vdev.path.as_deref()));
        text.push('\n');
    }

    /// The values of a line, each with the width of its column.
    fn values(&self, vdev: &VdevNode, counted: &Counted) -> Vec<(String, usize)> {
        let literal = self.arguments.literal;
        let number = |number: u64| if literal { number.to_string() } else { nicenum(number) };
        let time = |histogram: &[u64]| nicetime(counters::average(histogram), literal);
        let nothing = || "-".to_owned();
        let mut values = Vec::new();
        for (labels, width) in self.groups() {
            let group: Vec<String> = if labels == DEFAULT {
                let none = || if literal { "0".to_owned() } else { nothing() };
                let space = vdev.space.filter(|space| space.size > 0);
                let rates = [
                    counted.read.operations,
                    counted.write.operations,
                    counted.read.bytes,
                    counted.write.bytes,
                ];
                [
                    space.map_or_else(none, |space| number(space.allocated)),
                    space.map_or_else(none, |space| number(space.size.saturating_sub(space.allocated))),
                ]
                .into_iter()
                .chain(rates.into_iter().map(|value| number(counted.per_second(value))))
                .collect()
            } else if labels == LATENCY {
                let leaves = counted.leaves();
                let totals = [total(&leaves.read), total(&leaves.write)];
                let waits = [&leaves.sync_queue.waited, &leaves.async_queue.waited].map(|waits| time(waits));
                let [sync, asynchronous] = waits;
                vec![
                    time(totals[0]),
                    time(totals[1]),
                    time(&leaves.read.latency),
                    time(&leaves.write.latency),
                    nothing(),
                    sync,
                    nothing(),
                    asynchronous,
                    time(&leaves.scrub.latency),
                    time(&leaves.trim.latency),
                    nothing(),
                ]
            } else {
                queues(&counted.leaves().under_way)
                    .into_iter()
                    .flat_map(|(pending, active)| [number(pending), number(active)])
                    .collect()
            };
            values.extend(group.into_iter().map(|value| (value, width)));
        }
        values
    }

    fn histogram(&self, name: &str, counted: &Counted, text: &mut String) {
        let leaves = counted.leaves();
        let zeroes = vec![0; leaves.read.latency.len().max(leaves.read.sizes.len())];
        let of_groups = counters::less(&leaves.write, &leaves.sync_write);
        let of_users = counters::less(&leaves.read, &leaves.scrub);
        // Of a daemon that does not tell it.
        let or_zeroes = |column| if Vec::is_empty(column) { &zeroes } else { column };
        let (sync_alone, sync_joined) = counters::apart(&leaves.sync_write.sizes, &leaves.sync_queue.joined);
        let (alone, joined) = counters::apart(&of_groups.sizes, &leaves.async_queue.joined);
        let (title, columns): (&str, Vec<&Vec<u64>>) = if self.shown().latencies {
            let (read, write, trim) = (&leaves.read.latency, &leaves.write.latency, &leaves.trim.latency);
            let (none, scrub) = (&zeroes, or_zeroes(&leaves.scrub.latency));
            let queues = [&leaves.sync_queue.waited, &leaves.async_queue.waited].map(or_zeroes);
            let [sync, asynchronous] = queues;
            let totals = [total(&leaves.read), total(&leaves.write)];
            let all = [totals[0], totals[1], read, write, none, sync, none, asynchronous, scrub, trim, none];
            ("latency", all.to_vec())
        } else {
            let mut columns = vec![&zeroes; 14];
            (columns[0], columns[2], columns[3]) = (&of_users.sizes, &sync_alone, &sync_joined);
            (columns[6], columns[7]) = (&alone, &joined);
            (columns[8], columns[10]) = (or_zeroes(&leaves.scrub.sizes), &leaves.trim.sizes);
            ("req_size", columns)
        };
        let width = self.groups().first().map_or(5, |(_, width)| *width);
        match self.arguments.scripted {
            true => text.push_str(&format!("{name}\n")),
            false => text.push_str(&format!("\n{}", self.headings(name, title))),
        }
        let buckets = columns.first().map_or(0, |column| column.len());
        for bucket in 0..buckets {
            let (value, label) = if self.shown().latencies {
                let end = (2u64 << bucket) - 1;
                (end, nicetime(end, false))
            } else {
                let size = 512u64 << bucket;
                (size, nicenum(size))
            };
            let count = |column: &&Vec<u64>| {
                let count = counted.scaled(column.get(bucket).copied().unwrap_or(0));
                if self.arguments.literal { count.to_string() } else { nicenum(count) }
            };
            if self.arguments.scripted {
                text.push_str(&value.to_string());
                text.extend(columns.iter().map(|column| format!("\t{}", count(column))));
            } else {
                text.push_str(&pad_right(&label, self.width));
                text.extend(columns.iter().map(|column| format!("  {}", pad_left(&count(column), width))));
            }
            text.push('\n');
        }
        if !self.arguments.scripted {
            text.push_str(&format!("{}\n", "-".repeat(self.width + (width + 2) * columns.len())));
        }
    }
}

/// How long transfers took, with the time that they waited before. A daemon of an older version does not
/// report that time.
fn total(transfers: &Transfers) -> &Vec<u64> {
    if transfers.total_latency.is_empty() { &transfers.latency } else { &transfers.total_latency }
}

/// Pending and active operations in each of [`QUEUES`]. Only writes of groups wait for others. There is
/// neither an asynchronous read nor a rebuild: what is read ahead is read as what is wanted, and a resilver
/// is a sweep.
fn queues(under_way: &ActiveTransfers) -> [(u64, u64); 7] {
    let ActiveTransfers { sync_read, sync_write, async_write, scrub, trim, async_write_pending } = *under_way;
    let writes = (async_write_pending, async_write);
    [(0, sync_read), (0, sync_write), (0, 0), writes, (0, scrub), (0, trim), (0, 0)]
}

/// Counters by guid.
type ByGuid<'a> = HashMap<u64, &'a server::api::VdevIo>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_active_in_the_columns_of_what_they_are_for() {
        let under_way = ActiveTransfers {
            sync_read: 1,
            sync_write: 2,
            async_write: 3,
            scrub: 4,
            trim: 5,
            async_write_pending: 6,
        };
        let shown: Vec<&str> = QUEUES.0.iter().map(|(name, _)| *name).collect();
        let active = shown.into_iter().zip(queues(&under_way)).filter(|(_, (_, active))| *active > 0);
        let expected = [
            ("syncq_read", (0, 1)),
            ("syncq_write", (0, 2)),
            ("asyncq_write", (6, 3)),
            ("scrubq_read", (0, 4)),
            ("trimq_write", (0, 5)),
        ];
        assert_eq!(active.collect::<Vec<_>>(), expected);
    }
}
