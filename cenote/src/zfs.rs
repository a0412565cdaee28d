//! `zfs`: the commands about datasets, with OpenZFS's options, texts and exit codes.
//!
//! Each command sends typed requests to the daemon and prints the replies; nothing here reads a pool. Source
//! of the facts about texts and layout: OpenZFS 2.3 `zfs_main.c`, `zfs_iter.c`, `libzfs_crypto.c`, `zfs-*.8`.

mod allow;
mod create;
mod destroy;
mod diff;
mod get;
mod holds;
mod keys;
mod list;
mod mount;
mod project;
mod receive;
mod rename;
mod rewrite;
mod select;
mod send;
mod set;
mod share;
mod snapshot;
mod sort;
mod upgrade;
mod userspace;
mod wait;

use anyhow::Result;
use clap::Subcommand;
use serde_json::{Map, Value};
use server::api::{DatasetEntry, DatasetKind, Owner};

use crate::output::{self, Numbers};
use crate::version;

pub use keys::{AskedKey, load_missing_keys};
pub use mount::mount_pool;

/// The `zfs` commands.
#[derive(Debug, Subcommand)]
pub enum Zfs {
    /// Create a filesystem or volume
    Create(create::Arguments),
    /// Destroy filesystems, volumes, snapshots, bookmarks
    Destroy(destroy::Arguments),
    /// Take snapshots
    #[command(alias = "snap")]
    Snapshot(snapshot::Arguments),
    /// Go back to a snapshot
    Rollback(snapshot::RollbackArguments),
    /// Make a filesystem or volume out of a snapshot
    Clone(create::CloneArguments),
    /// Make a clone the origin of what it was cloned from
    Promote(rename::PromoteArguments),
    /// Rename a filesystem, volume, or snapshot
    Rename(rename::Arguments),
    /// Bookmark a snapshot
    Bookmark(snapshot::BookmarkArguments),
    /// List datasets
    List(list::Arguments),
    /// Show properties of datasets
    Get(get::Arguments),
    /// Set properties of datasets
    Set(set::Arguments),
    /// Take a property away from datasets: they have their parents' again
    Inherit(set::InheritArguments),
    /// Show what happened to the files of a filesystem since a snapshot
    Diff(diff::Arguments),
    /// Receive a stream from standard input
    #[command(alias = "recv", disable_help_flag = true)]
    Receive(receive::Arguments),
    /// Show what users use of a filesystem
    Userspace(userspace::Arguments),
    /// Show what groups use of a filesystem
    Groupspace(userspace::Arguments),
    /// Show what projects use of a filesystem
    Projectspace(userspace::Arguments),
    /// Show or change the projects of files
    Project(project::Arguments),
    /// Write files again as they are, elsewhere and as their filesystem writes now
    Rewrite(rewrite::Arguments),
    /// Send a snapshot, or what changed since an earlier one, as a stream
    Send(send::Arguments),
    /// Load the keys of encrypted datasets
    LoadKey(keys::LoadArguments),
    /// Forget the keys of encrypted datasets
    UnloadKey(keys::UnloadArguments),
    /// Change the key of an encrypted dataset
    ChangeKey(keys::ChangeArguments),
    /// Mount filesystems, or list those that are mounted
    Mount(mount::MountArguments),
    /// Unmount filesystems
    #[command(alias = "umount")]
    Unmount(mount::UnmountArguments),
    /// Share filesystems with the network, as their properties say
    Share(share::ShareArguments),
    /// End the sharing of filesystems
    Unshare(share::UnshareArguments),
    /// Hold snapshots, so that they cannot be destroyed
    Hold(snapshot::HoldArguments),
    /// Take holds away
    Release(snapshot::HoldArguments),
    /// List the holds on snapshots
    Holds(holds::Arguments),
    /// Give users permissions on datasets, or show which they have
    Allow(allow::AllowArguments),
    /// Take permissions on datasets away
    Unallow(allow::UnallowArguments),
    /// List filesystems of older versions, or upgrade them
    Upgrade(upgrade::Arguments),
    /// Wait until what goes on in a filesystem has ended
    Wait(wait::Arguments),
    /// Show the version of this program
    Version(version::Arguments),
}

impl Zfs {
    /// Does it.
    pub fn run(self) -> Result<()> {
        let done = match self {
            Self::Create(arguments) => arguments.run(),
            Self::Destroy(arguments) => arguments.run(),
            Self::Snapshot(arguments) => arguments.run(),
            Self::Rollback(arguments) => arguments.run(),
            Self::Clone(arguments) => arguments.run(),
            Self::Promote(arguments) => arguments.run(),
            Self::Rename(arguments) => arguments.run(),
            Self::Bookmark(arguments) => arguments.run(),
            Self::List(arguments) => arguments.run(),
            Self::Get(arguments) => arguments.run(),
            Self::Set(arguments) => arguments.run(),
            Self::Inherit(arguments) => arguments.run(),
            Self::Diff(arguments) => arguments.run(),
            Self::Receive(arguments) => arguments.run(),
            Self::Userspace(arguments) => arguments.run(Owner::User),
            Self::Groupspace(arguments) => arguments.run(Owner::Group),
            Self::Projectspace(arguments) => arguments.run(Owner::Project),
            Self::Project(arguments) => arguments.run(),
            Self::Rewrite(arguments) => arguments.run(),
            Self::Send(arguments) => arguments.run(),
            Self::LoadKey(arguments) => arguments.run(),
            Self::UnloadKey(arguments) => arguments.run(),
            Self::ChangeKey(arguments) => arguments.run(),
            Self::Mount(arguments) => arguments.run(),
            Self::Share(arguments) => arguments.run(),
            Self::Unshare(arguments) => arguments.run(),
            Self::Unmount(arguments) => arguments.run(),
            Self::Hold(arguments) => arguments.run(false),
            Self::Release(arguments) => arguments.run(true),
            Self::Holds(arguments) => arguments.run(),
            Self::Allow(arguments) => arguments.run(),
            Self::Unallow(arguments) => arguments.run(),
            Self::Upgrade(arguments) => arguments.run(),
            Self::Wait(arguments) => arguments.run(),
            Self::Version(arguments) => arguments.run("zfs version"),
        };
        done.map_err(output::report)
    }
}

/// Sends a request that changes something. Without a daemon there are no pools, of which `absent` speaks.
fn change<A: server::api::Action>(action: &A, absent: impl FnOnce() -> String) -> Result<A::Reply> {
    crate::client::call_running(action)?.ok_or_else(|| anyhow::anyhow!(absent()))
}

/// What is said of a dataset that is not there.
pub fn absent(name: &str) -> String {
    format!("cannot open '{name}': dataset does not exist")
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
