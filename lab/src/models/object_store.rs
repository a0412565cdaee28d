//! What a pool on an object store costs: requests, bytes and money of a month, beside a local disk.
//!
//! A transaction group is two commits (before and after its uberblock), each one `PUT`, and its data in
//! segments of 16 MiB; up to 1 MiB go into the commit itself. Compaction writes again at most as many bytes
//! as are written (`moved`), and reads twice that in whole objects. A checkpoint every 512 commits or 32,768
//! writes is four `PUT`. A read that neither the cache in memory nor a cache device answers is a `GET`. The
//! store keeps at most `1 + moved` of what is in use.
//!
//! A cache device answers the share of reads that it has room for in what is read again and again
//! (`working_set`): reads that are skewed are answered more often.

use std::fmt;

use objects::Options;
use objects::bucket::StoreModel;
use serde::Serialize;

use super::{Model, bytes, percent};
use crate::error::{Error, Result};
use crate::size::Size;
use crate::table;

/// Seconds of a transaction group (`zfs_txg_timeout`).
const GROUP_SECONDS: f64 = 5.0;
/// Days of a month.
const DAYS: f64 = 30.0;
/// Commits of a group.
const COMMITS: f64 = 2.0;
/// Requests of a checkpoint: pages, the checkpoint, the hint, a pointer.
const CHECKPOINT_PUTS: f64 = 4.0;

/// The model of a store by its name.
pub fn store(name: &str) -> Option<StoreModel> {
    StoreModel::find(name)
}

/// A workload of a pool on a store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Workload {
    /// What is in use.
    pub used: Size,
    /// What is written in a day, with metadata.
    pub writes: Size,
    /// What is read in a day outside the cache in memory.
    pub reads: Size,
    /// Size of a block.
    pub block: Size,
    /// Hours of a day in which something is written.
    pub hours: f64,
    /// Bytes that compaction moves for each that is written: up to 1 for random overwrites, near 0 for large
    /// files.
    pub moved: f64,
    /// Writes a second that clients make stable, each with a commit of its own: 0 with a local log device.
    pub stable: f64,
    /// What reads come back to.
    pub working_set: Size,
    /// A local cache device.
    pub l2arc: Size,
    /// Dollars for a local disk, for 10^9 bytes and a month.
    pub disk_price: f64,
}

/// What a month of it costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ObjectStore {
    /// The store.
    pub store: &'static str,
    /// The workload.
    pub workload: Workload,
    /// The share of reads that the cache device answers.
    pub answered: f64,
    /// Without the cache device, and with it.
    pub without: Month,
    /// See there.
    pub with: Month,
    /// Dollars for the same bytes on local disks, and for the cache device.
    pub disk: f64,
    /// See there.
    pub cache_device: f64,
}

/// A month.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Month {
    /// Requests that write.
    pub puts: f64,
    /// Bytes of those.
    pub put_bytes: f64,
    /// Requests that read.
    pub gets: f64,
    /// Bytes of those.
    pub got_bytes: f64,
    /// Bytes that are kept.
    pub kept_bytes: f64,
    /// Dollars for requests that write.
    pub put_price: f64,
    /// Dollars for requests that read.
    pub get_price: f64,
    /// Dollars for what is kept.
    pub space_price: f64,
}

impl Month {
    /// Dollars.
    pub fn price(&self) -> f64 {
        self.put_price + self.get_price + self.space_price
    }

    /// One in which the cache device answers this share of the reads.
    fn of(store: StoreModel, it: &Workload, answered: f64) -> Self {
        let options = Options::default();
        let segment = options.segment_bytes as f64;
        let written = it.writes.0 as f64 * DAYS;
        let moved = written * it.moved;
        let groups = it.hours * 3600.0 / GROUP_SECONDS * DAYS;
        let in_group = |bytes: f64| match bytes / groups {
            none if none.is_nan() || none <= options.inline_bytes as f64 => 0.0,
            bytes => (bytes / segment).ceil(),
        };
        let segments = groups * (in_group(written) + in_group(moved));
        let commits = groups * COMMITS + it.stable * it.hours * 3600.0 * DAYS;
        let entries = (written + moved) / it.block.0 as f64;
        let checkpoints =
            (commits / options.checkpoint_commits as f64).max(entries / options.checkpoint_entries as f64);
        let puts = segments + commits + checkpoints * CHECKPOINT_PUTS;
        let missed = it.reads.0 as f64 * DAYS * (1.0 - answered);
        let gets = missed / it.block.0 as f64 + 2.0 * moved / segment;
        let kept_bytes = it.used.0 as f64 * (1.0 + it.moved);
        let prices = store.prices;
        Self {
            puts,
            put_bytes: written + moved,
            gets,
            got_bytes: missed + 2.0 * moved,
            kept_bytes,
            put_price: prices.of_requests(puts as u64, 0),
            get_price: prices.of_requests(0, gets as u64),
            space_price: prices.of_space(kept_bytes as u64),
        }
    }
}

impl ObjectStore {
    /// That of a workload on a store.
    ///
    /// # Errors
    /// Numbers that mean nothing.
    pub fn of(store: StoreModel, workload: Workload) -> Result<Self> {
        let it = &workload;
        super::require_size("bytes in use", it.used, super::LEAST, super::MOST)?;
        super::require_size("size of a block", it.block, Size(512), Size(16 << 20))?;
        super::require_size("written in a day", it.writes, Size(0), super::MOST)?;
        super::require_size("read in a day", it.reads, Size(0), super::MOST)?;
        super::require_size("working set", it.working_set, Size(1), super::MOST)?;
        super::require_size("cache device", it.l2arc, Size(0), super::MOST)?;
        let ranges = [
            ("hours", it.hours, 0.01, 24.0),
            ("moved", it.moved, 0.0, 1.0),
            ("stable writes", it.stable, 0.0, 1e4),
            ("price of a disk", it.disk_price, 0.0, 1e6),
        ];
        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(Error::Experiment(format!("{name}: {value} is not from {least} to {most}")));
            }
        }
        let answered = (it.l2arc.0 as f64 / it.working_set.0 as f64).min(1.0);
        let price = |size: Size| size.0 as f64 / 1e9 * it.disk_price;
        Ok(Self {
            store: store.name,
            answered,
            without: Month::of(store, it, 0.0),
            with: Month::of(store, it, answered),
            disk: price(it.used),
            cache_device: price(it.l2arc),
            workload,
        })
    }
}

impl Model for ObjectStore {
    const FORMULA: &'static str = "PUT = groups * (2 + segments of writes and of what is moved) + stable writes + \
        4 * checkpoints; GET = missed reads / block + 2 * moved bytes / 16 MiB; kept = used * (1 + moved)";
    const SOURCE: &'static str = "docs/src/object-stores.md; objects/src/core.rs (Options); the vendor's prices \
        of 2025 in objects/src/bucket/modelled.rs";
}

fn dollars(value: f64) -> String {
    format!("${value:.2}")
}

impl fmt::Display for ObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let it = &self.workload;
        writeln!(
            f,
            "{} in use on {}; {} written and {} read in a day, in blocks of {}; a month\n",
            it.used, self.store, it.writes, it.reads, it.block
        )?;
        let columns: [&dyn Fn(&Month) -> String; 7] = [
            &|month| format!("{:.0}", month.puts),
            &|month| bytes(month.put_bytes),
            &|month| format!("{:.0}", month.gets),
            &|month| bytes(month.got_bytes),
            &|month| dollars(month.put_price + month.get_price),
            &|month| format!("{} ({})", dollars(month.space_price), bytes(month.kept_bytes)),
            &|month| dollars(month.price()),
        ];
        let row = |name: String, month: &Month, more: f64| {
            let mut row = vec![name];
            row.extend(columns[..6].iter().map(|column| column(month)));
            row.push(dollars(month.price() + more));
            row
        };
        let mut rows = vec![row("no cache device".to_owned(), &self.without, 0.0)];
        if it.l2arc.0 > 0 {
            let name = format!("L2ARC of {}, answers {}", it.l2arc, percent(self.answered));
            rows.push(row(name, &self.with, self.cache_device));
        }
        let mut local = vec![format!("local disk at {} a GB", dollars(it.disk_price))];
        local.extend(vec![String::new(); 5]);
        local.extend([format!("{} ({})", dollars(self.disk), bytes(it.used.0 as f64)), dollars(self.disk)]);
        rows.push(local);
        let heads = ["", "PUT", "written", "GET", "read", "requests", "space", "together"];
        f.write_str(&table::plain(&heads, &rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm() -> Workload {
        Workload {
            used: Size(800 << 30),
            writes: Size(5760 * (50 << 20)),
            reads: Size(100 << 30),
            block: Size(8 << 10),
            hours: 8.0,
            moved: 1.0,
            stable: 0.0,
            working_set: Size(200 << 30),
            l2arc: Size(100 << 30),
            disk_price: 0.08,
        }
    }

    #[test]
    fn the_load_of_virtual_machines_costs_what_the_design_says() {
        let s3 = StoreModel::find("s3-standard").unwrap();
        let it = ObjectStore::of(s3, Workload { reads: Size(0), ..vm() }).unwrap();
        let (puts, gets) = (it.without.puts / DAYS, it.without.gets / DAYS);
        // Checkpoints come on top of the 57,600 of segments and commits.
        assert!((57_600.0..70_000.0).contains(&puts), "{puts}");
        assert!((gets - 36_000.0).abs() < 1.0, "{gets}");
        let day = (it.without.put_price + it.without.get_price) / DAYS;
        assert!((0.30..0.36).contains(&day), "{day}");
    }

    #[test]
    fn a_cache_device_answers_what_it_has_room_for() {
        let s3 = StoreModel::find("s3-standard").unwrap();
        let it = ObjectStore::of(s3, vm()).unwrap();
        assert_eq!(it.answered, 0.5);
        let read = |month: Month| month.gets - 36_000.0 * DAYS;
        assert!((read(it.without) - 2.0 * read(it.with)).abs() < 1.0);
        let text = it.to_string();
        assert!(text.contains("L2ARC of 100G, answers 50.0 %") && text.contains("local disk"), "{text}");
        let stable = ObjectStore::of(s3, Workload { stable: 40.0, hours: 24.0, ..vm() }).unwrap();
        assert!((stable.without.puts - it.without.puts) / DAYS > 3_450_000.0);
        for wrong in [
            Workload { hours: 25.0, ..vm() },
            Workload { moved: -1.0, ..vm() },
            Workload { block: Size(0), ..vm() },
            Workload { used: Size(1), ..vm() },
        ] {
            assert!(ObjectStore::of(s3, wrong).is_err());
        }
    }
}
