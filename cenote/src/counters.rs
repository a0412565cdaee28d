//! `cenote counters`: the daemon's counters, as a listing, as JSON, or as OpenZFS's kstats look in `/proc`.
//!
//! Source of the form of kstats: OpenZFS 2.4 `spl-kstat.c`, `spa_stats.c` (`txgs`).

use std::fmt::Write as _;

use anyhow::{Result, bail};
use engine::stats::{Field, GROUPS, Kind};
use server::api::{CounterGroup, Counters, Failed, GetCounters, PoolTxgs, TxgTimes};

use crate::client;
use crate::output::{self, Exit, FAILED, usage};

/// The type of a named kstat.
const TYPE_NAMED: u32 = 1;
/// The type of a kstat that is a table.
const TYPE_RAW: u32 = 0;
/// Bytes of an entry of a named kstat in the kernel, which its first line reports.
const ENTRY_BYTES: usize = 272;
/// Types of values: `INT64`, `UINT64`, `STRING`.
const SIGNED: u32 = 3;
const UNSIGNED: u32 = 4;
const TEXT: u32 = 7;

/// Arguments of `cenote counters`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Groups: arcstats (the ARC), zfetchstats (reading ahead), zil (intent logs), dmu_tx (changes), fm (errors that
became no events), objset (clients
and intent log of each dataset; objset-0x36 is that of one), amplification (bytes of each dataset at each
layer), ddt (dedup tables of each pool), vdev (transfers), store (requests to object stores), txgs (the last
transaction groups of each pool).
Counters only grow while the daemon runs.")]
pub struct Arguments {
    /// Only these groups
    #[arg(value_name = "GROUP")]
    groups: Vec<String>,
    /// Only of this pool; may be given several times
    #[arg(long, value_name = "POOL")]
    pool: Vec<String>,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// Print one group as OpenZFS shows it in /proc/spl/kstat/zfs, for scripts that read that
    #[arg(long, conflicts_with = "json", requires = "groups")]
    kstat: bool,
    /// List the groups, their fields, and what each counts
    #[arg(long, conflicts_with_all = ["json", "kstat"])]
    list: bool,
    /// The same as tables of the manual
    #[arg(long, hide = true, conflicts_with_all = ["json", "kstat"])]
    markdown: bool,
}

/// The counters of the daemon that runs.
///
/// # Errors
/// None runs, or it refuses.
pub fn ask(request: &GetCounters) -> Result<Counters> {
    match client::call_running(request)? {
        Some(counters) => Ok(counters),
        None => {
            bail!("no daemon runs, so there are no counters; 'cenote serve' or any pool command starts one")
        }
    }
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        if self.list || self.markdown {
            return output::print(&if self.markdown { manual() } else { listed() });
        }
        if self.kstat && self.groups.len() != 1 {
            return Err(usage("--kstat prints one group"));
        }
        let counters = ask(&GetCounters { groups: self.groups.clone(), pools: self.pool })?;
        if self.json {
            output::print(&format!("{}\n", serde_json::to_string(&counters)?))?;
        } else if self.kstat {
            output::print(&kstats(&counters)?)?;
        } else {
            output::print(&listing(&counters))?;
        }
        complain(&counters.failed)
    }
}

fn complain(failed: &[Failed]) -> Result<()> {
    for Failed { message } in failed {
        eprintln!("{message}");
    }
    if failed.is_empty() { Ok(()) } else { Err(Exit(FAILED).into()) }
}

/// All groups as a person reads them.
fn listing(counters: &Counters) -> String {
    let mut text = String::new();
    for group in &counters.groups {
        let _ = writeln!(text, "{}", title(group));
        for (name, number) in &group.counters.0 {
            let _ = writeln!(text, "    {name:<34}  {}", shown(name, *number));
        }
    }
    for PoolTxgs { pool, txgs } in &counters.txgs {
        let _ = write!(text, "txgs {pool}\n{}", table(txgs));
    }
    text
}

fn title(group: &CounterGroup) -> String {
    let mut title = group.name.clone();
    for part in [
        group.pool.clone(),
        group.dataset.as_ref().map(|dataset| dataset.name.clone().unwrap_or_else(|| "<metadata>".into())),
        group.vdev.as_ref().map(|vdev| vdev.name.clone()),
    ]
    .into_iter()
    .flatten()
    {
        let _ = write!(title, " {part}");
    }
    title
}

fn field(name: &str) -> Option<&'static Field> {
    GROUPS.iter().flat_map(|(_, fields)| fields.iter()).find(|field| field.name == name)
}

fn shown(name: &str, number: u64) -> String {
    match field(name).map(|field| field.kind) {
        // The bits of a signed number.
        Some(Kind::Signed) => (number as i64).to_string(),
        _ => number.to_string(),
    }
}

/// Groups as kstats. Several only where a group is one of each dataset or pool.
fn kstats(counters: &Counters) -> Result<String> {
    let mut text: String =
        counters.groups.iter().enumerate().map(|(id, group)| kstat(id, group, counters.time_ns)).collect();
    for (id, PoolTxgs { txgs, .. }) in counters.txgs.iter().enumerate() {
        text.push_str(&first_line(id, TYPE_RAW, txgs.len(), counters.time_ns));
        text.push_str(&table(txgs));
    }
    if text.is_empty() {
        bail!("there is no such kstat: no pool is open, or the dataset was not used since the import");
    }
    Ok(text)
}

/// The line with the number, type, flags, entries, bytes, and times of a kstat.
fn first_line(id: usize, kind: u32, entries: usize, time_ns: u64) -> String {
    format!("{id} {kind} 0x01 {entries} {} 0 {time_ns}\n", entries * ENTRY_BYTES)
}

/// One group, as the kernel shows it.
pub fn kstat(id: usize, group: &CounterGroup, time_ns: u64) -> String {
    let name = group.dataset.as_ref().and_then(|dataset| dataset.name.as_deref());
    let entries = group.counters.0.len() + usize::from(name.is_some());
    let mut text = first_line(id, TYPE_NAMED, entries, time_ns);
    let _ = writeln!(text, "{:<31} {:<4} data", "name", "type");
    if let Some(name) = name {
        let _ = writeln!(text, "{:<31} {TEXT:<4} {name}", "dataset_name");
    }
    for (name, number) in &group.counters.0 {
        let is_signed = field(name).is_some_and(|field| field.kind == Kind::Signed);
        let kind = if is_signed { SIGNED } else { UNSIGNED };
        let _ = writeln!(text, "{name:<31} {kind:<4} {}", shown(name, *number));
    }
    text
}

/// Transaction groups, as the kernel shows them.
fn table(txgs: &[TxgTimes]) -> String {
    let mut text = format!(
        "{:<8} {:<16} {:<5} {:<12} {:<12} {:<12} {:<8} {:<8} {:<12} {:<12} {:<12} {:<12}\n",
        "txg",
        "birth",
        "state",
        "ndirty",
        "nread",
        "nwritten",
        "reads",
        "writes",
        "otime",
        "qtime",
        "wtime",
        "stime"
    );
    for txg in txgs {
        let _ = writeln!(
            text,
            "{:<8} {:<16} {:<5} {:<12} {:<12} {:<12} {:<8} {:<8} {:<12} {:<12} {:<12} {:<12}",
            txg.txg,
            txg.birth_ns,
            txg.state,
            txg.ndirty,
            txg.nread,
            txg.nwritten,
            txg.reads,
            txg.writes,
            txg.otime_ns,
            txg.qtime_ns,
            txg.wtime_ns,
            txg.stime_ns
        );
    }
    text
}

/// The groups and their fields.
fn listed() -> String {
    let mut text = String::new();
    for (name, fields) in GROUPS {
        let _ = writeln!(text, "{name}");
        for field in fields {
            let _ = writeln!(text, "    {:<34}  {}", field.name, field.text);
        }
    }
    text
}

/// The same as tables of the manual.
fn manual() -> String {
    let mut text = String::new();
    for (name, fields) in GROUPS {
        let _ = writeln!(text, "### `{name}`\n\n| field | kind | what it counts |\n|---|---|---|");
        for field in fields {
            let kind = match field.kind {
                Kind::Counter => "counter",
                Kind::Gauge | Kind::Signed => "state",
            };
            let _ = writeln!(text, "| `{}` | {kind} | {} |", field.name, field.text);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use server::api::{CountedDataset, Numbers};

    use super::*;

    #[test]
    fn a_group_looks_as_the_kernel_shows_it() {
        let group = CounterGroup {
            name: "objset-0x36".into(),
            dataset: Some(CountedDataset { name: Some("tank/home".into()), objset: 0x36 }),
            counters: Numbers(vec![("writes".into(), 7), ("memory_available_bytes".into(), u64::MAX)]),
            ..CounterGroup::default()
        };
        let expected = "\
9 1 0x01 3 816 0 5
name                            type data
dataset_name                    7    tank/home
writes                          4    7
memory_available_bytes          3    -1
";
        assert_eq!(kstat(9, &group, 5), expected);
    }

    #[test]
    fn the_manual_has_all_that_is_counted() {
        let page = include_str!("../../docs/src/counters.md");
        let tables = manual();
        let missing: Vec<_> = tables.lines().filter(|line| !page.contains(line)).collect();
        assert!(missing.is_empty(), "cenote counters --markdown prints what is new: {missing:#?}");
    }
}
