//! `zfs`: the commands about datasets, with OpenZFS's options, texts and exit codes.
//!
//! Each command sends typed requests to the daemon and prints the replies; nothing here reads a pool. Source of the facts about
//! texts and layout: OpenZFS 2.3 `zfs_main.c`, `zfs_iter.c`, `libzfs_crypto.c`, `zfs-*.8`.

mod get;
mod holds;
mod keys;
mod list;
mod mount;
mod select;
mod sort;

use anyhow::Result;
use clap::Subcommand;
use serde_json::{Map, Value};
use server::api::{DatasetEntry, DatasetKind};

use crate::output::{self, Numbers};
use crate::version;

pub use keys::load_missing_keys;
pub use mount::mount_pool;

/// The `zfs` commands.
#[derive(Debug, Subcommand)]
pub enum Zfs {
    /// List datasets
    List(list::Arguments),
    /// Show properties of datasets
    Get(get::Arguments),
    /// Load the keys of encrypted datasets
    LoadKey(keys::LoadArguments),
    /// Forget the keys of encrypted datasets
    UnloadKey(keys::UnloadArguments),
    /// Mount filesystems, or list those that are mounted
    Mount(mount::MountArguments),
    /// Unmount filesystems
    #[command(alias = "umount")]
    Unmount(mount::UnmountArguments),
    /// List the holds on snapshots
    Holds(holds::Arguments),
    /// Show the version of this program
    Version(version::Arguments),
}

impl Zfs {
    /// Does it.
    pub fn run(self) -> Result<()> {
        let done = match self {
            Self::List(arguments) => arguments.run(),
            Self::Get(arguments) => arguments.run(),
            Self::LoadKey(arguments) => arguments.run(),
            Self::UnloadKey(arguments) => arguments.run(),
            Self::Mount(arguments) => arguments.run(),
            Self::Unmount(arguments) => arguments.run(),
            Self::Holds(arguments) => arguments.run(),
            Self::Version(arguments) => arguments.run("zfs version"),
        };
        done.map_err(|error| output::report(error).into())
    }
}

/// The pool that a dataset is in.
fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or(name)
}

/// What the JSON of each dataset begins with.
fn dataset_json(dataset: &DatasetEntry, numbers: Numbers) -> Map<String, Value> {
    let mut item = Map::new();
    item.insert("name".into(), dataset.name.as_str().into());
    item.insert("type".into(), dataset.kind.word().to_uppercase().into());
    item.insert("pool".into(), pool_of(&dataset.name).into());
    item.insert("createtxg".into(), Numbers { literal: true, ..numbers }.exact(dataset.createtxg));
    if dataset.kind == DatasetKind::Snapshot
        && let Some((head, snapshot)) = dataset.name.split_once('@')
    {
        item.insert("dataset".into(), head.into());
        item.insert("snapshot_name".into(), snapshot.into());
    }
    item
}
