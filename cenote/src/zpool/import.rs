//! `zpool import`: lists pools that could be opened, and opens them.
//!
//! A pool is opened for writing unless `-o readonly=on` says otherwise.

use std::path::PathBuf;

use anyhow::Result;
use server::api::{
    ApiError, DiscoverPools, ErrorKind, ImportPool, ListPools, OpenedPool, PoolEntry, Reason, Rewind,
};

use super::importable;
use crate::output::{self, JsonOptions, complain, ctime, usage};
use crate::{client, command_line, zfs};

/// Arguments of `zpool import`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// All pools found
    #[arg(short)]
    all: bool,
    /// Look into this directory, or at this device, instead of the places under /dev
    #[arg(short = 'd', value_name = "DIR|DEVICE")]
    search: Vec<PathBuf>,
    /// Look for the pools of this cache file, on the devices that it names
    #[arg(short = 'c', value_name = "CACHEFILE", conflicts_with = "search")]
    cachefile: Option<PathBuf>,
    /// Only destroyed pools
    #[arg(short = 'D')]
    destroyed: bool,
    /// Import even if another machine used the pool last
    #[arg(short)]
    force: bool,
    /// Go back to an earlier state if the newest does not load
    #[arg(short = 'F')]
    rewind: bool,
    /// With -F: only report whether it would work
    #[arg(short = 'n')]
    dry_run: bool,
    /// With -F: go back as far as needed
    #[arg(short = 'X')]
    extreme: bool,
    /// Go back to this transaction group
    #[arg(short = 'T', value_name = "TXG")]
    txg: Option<String>,
    /// Import even if log devices are missing or cannot be read
    #[arg(short)]
    missing_log: bool,
    /// Mount nothing
    #[arg(short = 'N')]
    no_mount: bool,
    /// Load encryption keys, asking for those that are not in files or on servers
    #[arg(short)]
    load_keys: bool,
    /// Place all mountpoints under this directory
    #[arg(short = 'R', value_name = "ROOT")]
    altroot: Option<PathBuf>,
    /// A property (readonly=on) or mount options
    #[arg(short = 'o', value_name = "PROPERTY=VALUE|OPTIONS")]
    options: Vec<String>,
    /// The new name is for this import only
    #[arg(short = 't')]
    temporary: bool,
    /// Scan devices (always done)
    #[arg(short = 's', hide = true)]
    scan: bool,
    /// Open the pool as it was at its checkpoint
    #[arg(long)]
    rewind_to_checkpoint: bool,
    #[command(flatten)]
    json: JsonOptions,
    /// Name or id of the pool; without one, list pools that could be imported
    #[arg(value_name = "POOL|ID")]
    pool: Option<String>,
    /// A new name for it
    #[arg(value_name = "NEWPOOL")]
    new_name: Option<String>,
}

impl Arguments {
    /// Lists or imports.
    pub fn run(self) -> Result<()> {
        self.check()?;
        let search = self.search_places()?;
        match (&self.pool, self.all) {
            (None, false) => self.list(search),
            _ => self.import(search),
        }
    }

    /// Refuses what does not go together.
    fn check(&self) -> Result<()> {
        if self.load_keys && self.no_mount {
            return Err(usage("-l is incompatible with -N"));
        }
        if self.load_keys && !self.all && self.pool.is_none() {
            return Err(usage("-l is only meaningful during an import"));
        }
        if (self.dry_run || self.extreme) && !self.rewind {
            return Err(usage("-n or -X only meaningful with -F"));
        }
        if self.all && self.pool.is_some() {
            return Err(usage("too many arguments"));
        }
        if self.json.json && (self.all || self.pool.is_some()) {
            return Err(usage("-j is only meaningful for the list of pools"));
        }
        Ok(())
    }

    /// Where to look: as given, else as `$ZPOOL_IMPORT_PATH` says, else nothing for the default places.
    fn search_places(&self) -> Result<Vec<PathBuf>> {
        let from_environment = || {
            let places = std::env::var_os("ZPOOL_IMPORT_PATH").unwrap_or_default();
            std::env::split_paths(&places).filter(|path| !path.as_os_str().is_empty()).collect()
        };
        let places: Vec<PathBuf> =
            if self.search.is_empty() { from_environment() } else { self.search.clone() };
        places.iter().map(|place| command_line::absolute(place)).collect()
    }

    fn cachefile(&self) -> Result<Option<PathBuf>> {
        self.cachefile.as_deref().map(command_line::absolute).transpose()
    }

    fn list(&self, search: Vec<PathBuf>) -> Result<()> {
        let found = client::call(&DiscoverPools {
            search,
            cachefile: self.cachefile()?,
            destroyed: self.destroyed,
            pool: None,
        })?;
        if self.json.json {
            let numbers = self.json.numbers(false);
            // By guid: several may have one name.
            let pools =
                found.iter().map(|pool| (pool.guid.to_string(), importable::json(pool, numbers).into()));
            let mut document = output::document("zpool import");
            document.insert("pools".into(), pools.collect::<serde_json::Map<_, _>>().into());
            return output::print_json(&document);
        }
        if found.is_empty() {
            eprintln!("no pools available to import");
            return Ok(());
        }
        let pools: Vec<String> = found.iter().map(importable::render).collect();
        output::print(&pools.join("\n"))
    }

    fn import(&self, search: Vec<PathBuf>) -> Result<()> {
        let request = self.request(search)?;
        let newest = match &request.rewind {
            Some(_) => self.newest_states(&request)?,
            None => Vec::new(),
        };
        let imported = client::call(&request).map_err(|error| explain(error, &request))?;
        if imported.pools.is_empty() && imported.failed.is_empty() {
            eprintln!("no pools available to import");
        }
        let dry_run = request.rewind.as_ref().is_some_and(|rewind| rewind.dry_run);
        for pool in &imported.pools {
            for warning in &pool.warnings {
                eprintln!("{warning}");
            }
            output::print(&rewind_lines(pool, &newest, dry_run))?;
        }
        let mut keys = Ok(());
        if self.load_keys && !dry_run {
            for pool in &imported.pools {
                keys = keys.and(zfs::load_missing_keys(Some(&pool.name), true));
                keys = keys.and(zfs::mount_pool(&pool.name));
            }
        }
        complain(&imported.failed).and(keys)
    }

    fn request(&self, search: Vec<PathBuf>) -> Result<ImportPool> {
        let mut request = ImportPool {
            pool: self.pool.clone(),
            new_name: self.new_name.clone(),
            temporary: self.temporary,
            search,
            cachefile: self.cachefile()?,
            destroyed: self.destroyed,
            force: self.force,
            rewind: self.rewind_policy()?,
            rewind_to_checkpoint: self.rewind_to_checkpoint,
            missing_log: self.missing_log,
            // With keys to ask for, mounting comes after the asking.
            no_mount: self.no_mount || self.load_keys,
            load_keys: self.load_keys,
            command: command_line::command(),
            altroot: self.altroot.clone(),
            ..ImportPool::default()
        };
        for option in &self.options {
            match option.split_once('=') {
                Some((name, value)) => request.properties.push((name.to_owned(), value.to_owned())),
                None => request.mount_options = option.split(',').map(str::to_owned).collect(),
            }
        }
        let is_cachefile = |(name, _): &(String, String)| name == "cachefile";
        if (self.altroot.is_some() || self.temporary) && !request.properties.iter().any(is_cachefile) {
            request.properties.push(("cachefile".to_owned(), "none".to_owned()));
        }
        Ok(request)
    }

    fn rewind_policy(&self) -> Result<Option<Rewind>> {
        let txg = match &self.txg {
            Some(text) => Some(text.parse().map_err(|_| usage("invalid txg value"))?),
            None => None,
        };
        let rewind = Rewind { dry_run: self.dry_run, extreme: self.extreme, txg };
        Ok((self.rewind || txg.is_some()).then_some(rewind))
    }

    /// When each pool that may be imported was last written.
    fn newest_states(&self, request: &ImportPool) -> Result<Vec<(u64, u64)>> {
        let discover = DiscoverPools {
            search: request.search.clone(),
            cachefile: request.cachefile.clone(),
            destroyed: request.destroyed,
            pool: request.pool.clone(),
        };
        Ok(client::call(&discover)?.iter().map(|pool| (pool.guid, pool.timestamp)).collect())
    }
}

/// Says more about a refusal, in OpenZFS's words.
fn explain(error: anyhow::Error, request: &ImportPool) -> anyhow::Error {
    let kind = error.downcast_ref::<ApiError>().map(|refusal| refusal.kind);
    let more = match (kind, &request.pool) {
        (Some(ErrorKind::Busy), Some(_)) if !request.force => in_use_elsewhere(request),
        (Some(ErrorKind::NotFound), Some(pool)) if request.new_name.is_none() => open_already(pool),
        _ => None,
    };
    more.map_or(error, anyhow::Error::msg)
}

/// Which host seems to use the pool, and what would take it nevertheless.
fn in_use_elsewhere(request: &ImportPool) -> Option<String> {
    let discover = DiscoverPools {
        search: request.search.clone(),
        cachefile: request.cachefile.clone(),
        destroyed: request.destroyed,
        pool: request.pool.clone(),
    };
    let found = client::call(&discover).ok()?;
    let pool = found.iter().find(|pool| pool.reason == Reason::HostidMismatch)?;
    Some(format!(
        "cannot import '{}': pool was previously in use from another system.\n\
         Last accessed by {} (hostid={:x}) at {}\n\
         The pool can be imported, use 'zpool import -f' to import the pool.",
        pool.name,
        pool.hostname.as_deref().unwrap_or("<unknown>"),
        pool.hostid,
        ctime(pool.timestamp)
    ))
}

/// That a pool is not found because it is open.
fn open_already(pool: &str) -> Option<String> {
    let open = client::call(&ListPools::default()).ok()?;
    let is_open = |entry: &PoolEntry| entry.name == pool || pool.parse() == Ok(entry.guid);
    open.entries.iter().any(is_open).then(|| {
        format!(
            "cannot import '{pool}': a pool with that name already exists\n\
             use the form 'zpool import <pool | id> <newpool>' to give it a new name"
        )
    })
}

/// The message about a rewind, if there was one.
fn rewind_lines(pool: &OpenedPool, newest: &[(u64, u64)], dry_run: bool) -> String {
    let Some((_, newest)) = newest.iter().find(|(guid, _)| *guid == pool.guid) else { return String::new() };
    let lost = newest.saturating_sub(pool.timestamp);
    if lost == 0 && !dry_run {
        return String::new();
    }
    let at = ctime(pool.timestamp);
    let (state, discarded) = match dry_run {
        true => {
            (format!("Would be able to return {} to its state as of {at}.\n", pool.name), "Would discard")
        }
        false => (format!("Pool {} returned to its state as of {at}.\n", pool.name), "Discarded"),
    };
    let loss = match lost {
        0 => String::new(),
        1..=120 => format!("{discarded} approximately {lost} seconds of transactions.\n"),
        _ => format!("{discarded} approximately {} minutes of transactions.\n", (lost + 30) / 60),
    };
    state + &loss
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewind_tells_what_it_lost() {
        let pool = OpenedPool { name: "tank".into(), guid: 7, timestamp: 1_000, ..OpenedPool::default() };
        assert_eq!(rewind_lines(&pool, &[(7, 1_000)], false), "");
        let text = rewind_lines(&pool, &[(7, 1_300)], true);
        assert!(text.starts_with("Would be able to return tank to its state as of "), "{text}");
        assert!(text.ends_with("Would discard approximately 5 minutes of transactions.\n"), "{text}");
    }
}
