//! `zpool`: the commands about pools, with OpenZFS's options, texts and exit codes.
//!
//! Each command sends typed requests to the daemon and prints the replies; nothing here reads a pool. Source
//! of the facts about texts and layout: OpenZFS 2.3 `zpool_main.c`, `zpool-*.8`.

mod attach;
mod change;
mod create;
mod dedup;
mod destroy;
mod device;
mod events;
mod export;
mod get;
mod history;
mod import;
mod importable;
mod initialize_trim;
mod iostat;
mod list;
mod progress;
mod reason;
mod repeat;
mod scripts;
mod scrub;
mod status;
mod upgrade;
mod vdev_spec;
mod vdevs;
mod wait;

use anyhow::Result;
use clap::Subcommand;
use serde_json::{Map, Value};
use server::api::PoolEntry;

use crate::output::{self, JsonOptions, Numbers};
use crate::version;

/// The version that pools with feature flags have.
const POOL_VERSION: u64 = 5000;
/// The newest version of filesystems.
const FILESYSTEM_VERSION: u64 = 5;

/// The `zpool` commands.
#[derive(Debug, Subcommand)]
pub enum Zpool {
    /// Create a pool on files or disks
    Create(create::CreateArguments),
    /// Destroy a pool
    Destroy(destroy::Arguments),
    /// Add vdevs to a pool
    Add(create::AddArguments),
    /// Open pools, or list those that could be opened
    Import(import::Arguments),
    /// Close pools
    Export(export::Arguments),
    /// Show the health of pools
    Status(status::Arguments),
    /// Show what is read and written
    Iostat(iostat::Arguments),
    /// List pools with their space
    List(list::Arguments),
    /// Show properties of pools
    Get(get::Arguments),
    /// Set a property of a pool
    Set(change::SetArguments),
    /// Commit what was written so far
    Sync(change::SyncArguments),
    /// For tests: commit nothing until the pool is exported, so that only intent logs grow
    #[command(hide = true)]
    Freeze(change::FreezeArguments),
    /// Enable the features that pools do not have yet
    Upgrade(upgrade::Arguments),
    /// Keep the state of a pool, to be able to go back to it (import --rewind-to-checkpoint)
    Checkpoint(change::CheckpointArguments),
    /// Give a pool another guid
    Reguid(change::ReguidArguments),
    /// Forget errors, and let a suspended pool go on
    Clear(device::ClearArguments),
    /// Take devices offline
    Offline(device::OfflineArguments),
    /// Take devices back
    Online(device::OnlineArguments),
    /// Verify all blocks, and mend what is wrong
    Scrub(scrub::ScrubArguments),
    /// Remove entries of old blocks with one reference from dedup tables
    Ddtprune(dedup::PruneArguments),
    /// Read the tables of deduplicated and cloned blocks into the ARC
    Prefetch(dedup::PrefetchArguments),
    /// Copy what devices missed, beginning anew
    Resilver(scrub::ResilverArguments),
    /// Report free space to devices
    Trim(initialize_trim::TrimArguments),
    /// Write a pattern over the free space of devices
    Initialize(initialize_trim::InitializeArguments),
    /// Attach a device to another one, as a mirror
    Attach(attach::AttachArguments),
    /// Detach a device from a mirror, or give up its replacement
    Detach(attach::DetachArguments),
    /// Replace a device by another one, or by a hot spare
    Replace(attach::ReplaceArguments),
    /// Remove spares, cache and log devices
    Remove(device::RemoveArguments),
    /// Return when nothing goes on in the background of a pool any more
    Wait(wait::Arguments),
    /// Look again for devices that are missing
    Reopen(device::ReopenArguments),
    /// Wipe the labels of a device that no pool uses
    Labelclear(change::LabelClearArguments),
    /// Show what happened to pools: errors, changes of devices and of pools
    Events(events::Arguments),
    /// Show the command history of pools
    History(history::Arguments),
    /// Show the version of this program
    Version(version::Arguments),
}

impl Zpool {
    /// Does it.
    pub fn run(self) -> Result<()> {
        let done = match self {
            Self::Create(arguments) => arguments.run(),
            Self::Destroy(arguments) => arguments.run(),
            Self::Add(arguments) => arguments.run(),
            Self::Import(arguments) => arguments.run(),
            Self::Export(arguments) => arguments.run(),
            Self::Status(arguments) => arguments.run(),
            Self::Iostat(arguments) => arguments.run(),
            Self::List(arguments) => arguments.run(),
            Self::Get(arguments) => arguments.run(),
            Self::Set(arguments) => arguments.run(),
            Self::Sync(arguments) => arguments.run(),
            Self::Freeze(arguments) => arguments.run(),
            Self::Upgrade(arguments) => arguments.run(),
            Self::Checkpoint(arguments) => arguments.run(),
            Self::Reguid(arguments) => arguments.run(),
            Self::Clear(arguments) => arguments.run(),
            Self::Offline(arguments) => arguments.run(),
            Self::Online(arguments) => arguments.run(),
            Self::Scrub(arguments) => arguments.run(),
            Self::Ddtprune(arguments) => arguments.run(),
            Self::Prefetch(arguments) => arguments.run(),
            Self::Resilver(arguments) => arguments.run(),
            Self::Trim(arguments) => arguments.run(),
            Self::Initialize(arguments) => arguments.run(),
            Self::Attach(arguments) => arguments.run(),
            Self::Detach(arguments) => arguments.run(),
            Self::Replace(arguments) => arguments.run(),
            Self::Remove(arguments) => arguments.run(),
            Self::Wait(arguments) => arguments.run(),
            Self::Reopen(arguments) => arguments.run(),
            Self::Labelclear(arguments) => arguments.run(),
            Self::Events(arguments) => arguments.run(),
            Self::History(arguments) => arguments.run(),
            Self::Version(arguments) => arguments.run("zpool version"),
        };
        done.map_err(output::report)
    }
}

/// What a command says of a pool when no daemon runs, so that none is open.
fn no_such_pool(pool: &str) -> anyhow::Error {
    anyhow::anyhow!("cannot open '{pool}': no such pool")
}

/// Options of `zpool` commands that can print JSON.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct PoolJson {
    #[command(flatten)]
    base: JsonOptions,
    /// Call pools by guid instead of by name
    #[arg(long, requires = "json")]
    json_pool_key_guid: bool,
}

impl PoolJson {
    fn key(self, name: &str, guid: u64) -> String {
        if self.json_pool_key_guid { guid.to_string() } else { name.to_owned() }
    }
}

/// What the JSON of a listed pool begins with.
fn entry_json(pool: &PoolEntry, typed: bool, numbers: Numbers) -> Map<String, Value> {
    let state = vdevs::pool_word(pool.state, pool.suspended);
    pool_json(&pool.name, pool.guid, pool.txg, &state, typed, numbers)
}

/// What the JSON of each pool begins with.
fn pool_json(
    name: &str,
    guid: u64,
    txg: u64,
    state: &str,
    typed: bool,
    numbers: Numbers,
) -> Map<String, Value> {
    let mut item = Map::new();
    item.insert("name".into(), name.into());
    if typed {
        item.insert("type".into(), "POOL".into());
    }
    item.insert("state".into(), state.into());
    let exact = |number| Numbers { literal: true, ..numbers }.exact(number);
    item.insert("pool_guid".into(), exact(guid));
    item.insert("txg".into(), exact(txg));
    item.insert("spa_version".into(), exact(POOL_VERSION));
    item.insert("zpl_version".into(), exact(FILESYSTEM_VERSION));
    item
}
