//! `zpool ddtprune` and `zpool prefetch`: keeping dedup tables small, and having them in memory.
//!
//! Source of the texts: OpenZFS 2.4 `zpool_main.c` (`zpool_do_ddt_prune`, `zpool_do_prefetch`).

use anyhow::Result;
use server::api::{PrefetchPool, PrunePool, PrunedEntries, TableKind};

use crate::output::usage;
use crate::{client, command_line};

/// Arguments of `zpool ddtprune`.
#[derive(Debug, clap::Args)]
pub struct PruneArguments {
    /// Remove entries that are older than so many days
    #[arg(short = 'd', value_name = "DAYS")]
    days: Option<String>,
    /// Remove so many percent of the entries, the oldest first
    #[arg(short = 'p', value_name = "PERCENT")]
    percent: Option<String>,
    /// The pool
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl PruneArguments {
    /// Prunes the dedup tables of a pool.
    pub fn run(self) -> Result<()> {
        let number = |text: &str| text.parse().ok().filter(|number: &u64| *number > 0);
        let which = match (&self.days, &self.percent) {
            (Some(_), Some(_)) => return Err(usage("-d option cannot be combined with -p option")),
            (None, None) => return Err(usage("missing amount option (-d|-p <value>)")),
            (Some(days), None) => {
                PrunedEntries::OlderThanDays(number(days).ok_or_else(|| usage("invalid days value"))?)
            }
            (None, Some(percent)) => {
                let percent = number(percent).filter(|percent| *percent <= 100);
                PrunedEntries::Percent(percent.ok_or_else(|| usage("invalid percentage value"))?)
            }
        };
        let pool = only(&self.pools, "missing pool argument")?;
        let request = PrunePool { pool, which, command: command_line::command() };
        client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&request.pool))?;
        Ok(())
    }
}

/// Arguments of `zpool prefetch`.
#[derive(Debug, clap::Args)]
pub struct PrefetchArguments {
    /// Which tables: ddt (deduplication) or brt (block cloning); both without
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
    /// The pool
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl PrefetchArguments {
    /// Reads tables of a pool into the ARC.
    pub fn run(self) -> Result<()> {
        let kind = match self.kind.as_deref() {
            None => None,
            Some("ddt") => Some(TableKind::Ddt),
            Some("brt") => Some(TableKind::Brt),
            Some(other) => return Err(usage(format!("unsupported prefetch type '{other}'"))),
        };
        let pool = only(&self.pools, "missing pool name argument")?;
        let request = PrefetchPool { pool, kind };
        client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&request.pool))?;
        Ok(())
    }
}

fn only(pools: &[String], missing: &str) -> Result<String> {
    match pools {
        [] => Err(usage(missing)),
        [pool] => Ok(pool.clone()),
        _ => Err(usage("too many arguments")),
    }
}
