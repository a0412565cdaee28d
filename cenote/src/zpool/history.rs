//! `zpool history`: the commands and events that a pool has recorded.

use anyhow::Result;
use serde_json::{Map, Value, json};
use server::api::{History, Listed, PoolHistory};

use crate::dead_mounts;
use crate::output::{self, JsonOptions, Numbers, complain};

/// Arguments of `zpool history`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Show internal events too
    #[arg(short)]
    internal: bool,
    /// Show user and host
    #[arg(short)]
    long: bool,
    #[command(flatten)]
    json: JsonOptions,
    /// The pools; all open ones if none is named
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl Arguments {
    /// Prints the history of each pool.
    pub fn run(self) -> Result<()> {
        let request = PoolHistory { pools: self.pools, internal: self.internal, long: self.long };
        let listed = output::ask(&request, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.pools, "no such pool"),
        })?;
        if self.json.json {
            print_json(&listed.entries, self.json.numbers(false))?;
            return complain(&listed.failed);
        }
        if request.pools.is_empty() && listed.entries.is_empty() && listed.failed.is_empty() {
            eprintln!("no pools available");
            dead_mounts::explain();
            return Ok(());
        }
        let mut text = String::new();
        for history in &listed.entries {
            text.push_str(&format!("History for '{}':\n", history.pool));
            for record in &history.records {
                text.push_str(&record.time.map_or_else(String::new, output::history_date));
                text.push_str(&record.text);
            }
            text.push('\n');
        }
        output::print(&text)?;
        complain(&listed.failed)
    }
}

/// OpenZFS has no such form; this follows that of its other listings.
fn print_json(histories: &[History], numbers: Numbers) -> Result<()> {
    let pools = histories.iter().map(|history| {
        let records = history.records.iter().map(
            |record| json!({"time": record.time.map(|time| numbers.date(time)), "event": record.text.trim()}),
        );
        let pool = json!({"name": history.pool, "history": records.collect::<Vec<_>>()});
        (history.pool.clone(), pool)
    });
    let pools: Map<String, Value> = pools.collect();
    let mut document = output::document("zpool history");
    document.insert("pools".into(), pools.into());
    output::print_json(&document)
}
