//! Small changes of pools: `zpool sync`, `set`, `checkpoint`, `reguid`, `labelclear`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use server::api::{CheckpointPool, ClearLabel, FreezePool, Listed, ReguidPool, SetPoolProperty, SyncPools};

use crate::output::{self, complain, usage};
use crate::{client, command_line, remotes};

/// Arguments of `zpool sync`.
#[derive(Debug, clap::Args)]
pub struct SyncArguments {
    /// Write the labels even if nothing changed (every sync here does)
    #[arg(short = 'f', hide = true)]
    force: bool,
    /// The pools; all if none is named
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl SyncArguments {
    /// Commits what was written so far.
    pub fn run(self) -> Result<()> {
        let synced = output::ask(&SyncPools { pools: self.pools }, |request| Listed {
            entries: Vec::new(),
            failed: output::none_of(&request.pools, "no such pool"),
        })?;
        complain(&synced.failed)
    }
}

/// Arguments of `zpool freeze`, which OpenZFS has for its tests.
#[derive(Debug, clap::Args)]
pub struct FreezeArguments {
    /// The pool
    #[arg(value_name = "POOL")]
    pool: Option<String>,
}

impl FreezeArguments {
    /// Stops committing.
    pub fn run(self) -> Result<()> {
        let pool = self.pool.ok_or_else(|| usage("missing pool name"))?;
        client::call_running(&FreezePool { pool: pool.clone() })?.ok_or_else(|| super::no_such_pool(&pool))
    }
}

/// Arguments of `zpool set`.
#[derive(Debug, clap::Args)]
pub struct SetArguments {
    /// The property and its value
    #[arg(value_name = "PROPERTY=VALUE")]
    property: Option<String>,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    /// A vdev of the pool
    #[arg(value_name = "VDEV")]
    vdev: Option<String>,
}

impl SetArguments {
    /// Sets it.
    pub fn run(self) -> Result<()> {
        let property = self.property.ok_or_else(|| usage("missing property=value argument"))?;
        let pool = self.pool.ok_or_else(|| usage("missing pool name"))?;
        if pool.contains('=') {
            return Err(usage(format!(
                "too many properties: 'zpool set' sets one at a time; '{pool}' is another"
            )));
        }
        let (property, value) =
            property.split_once('=').ok_or_else(|| usage("missing value in property=value argument"))?;
        let request = SetPoolProperty {
            pool: pool.clone(),
            vdev: self.vdev,
            property: property.to_owned(),
            value: value.to_owned(),
            command: command_line::command(),
        };
        client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&pool))?;
        Ok(())
    }
}

/// Arguments of `zpool reguid`.
#[derive(Debug, clap::Args)]
pub struct ReguidArguments {
    /// The new guid
    #[arg(short, value_name = "GUID", allow_hyphen_values = true, value_parser = parse_guid)]
    guid: Option<u64>,
    /// The pool
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// A guid as C's `strtoull` reads it: a negative number is what it leaves of 2^64.
fn parse_guid(text: &str) -> Result<u64, String> {
    let bad = || format!("invalid GUID: {text}");
    match text.strip_prefix('-') {
        Some(digits) => digits.parse::<u64>().map(u64::wrapping_neg).map_err(|_| bad()),
        None => text.parse().map_err(|_| bad()),
    }
}

impl ReguidArguments {
    /// Gives the pool another guid.
    pub fn run(self) -> Result<()> {
        let pool = match self.pools.as_slice() {
            [] => return Err(usage("missing pool name")),
            [pool] => pool.clone(),
            _ => return Err(usage("too many arguments")),
        };
        let request = ReguidPool { pool: pool.clone(), guid: self.guid, command: command_line::command() };
        client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&pool))
    }
}

/// Arguments of `zpool checkpoint`.
#[derive(Debug, clap::Args)]
pub struct CheckpointArguments {
    /// Discard the checkpoint
    #[arg(short, long)]
    discard: bool,
    /// Wait until its space is freed
    #[arg(short, long, requires = "discard")]
    wait: bool,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: Option<String>,
}

impl CheckpointArguments {
    /// Takes the checkpoint, or gives it up.
    pub fn run(self) -> Result<()> {
        let pool = self.pool.ok_or_else(|| usage("missing pool argument"))?;
        let request = CheckpointPool {
            pool: pool.clone(),
            discard: self.discard,
            wait: self.wait,
            command: command_line::command(),
        };
        client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&pool))
    }
}

/// Arguments of `zpool labelclear`.
#[derive(Debug, clap::Args)]
pub struct LabelClearArguments {
    /// Clear it even if it seems to be part of an exported or foreign pool
    #[arg(short)]
    force: bool,
    /// The device
    #[arg(value_name = "VDEV")]
    device: Option<PathBuf>,
}

impl LabelClearArguments {
    /// Wipes its labels.
    pub fn run(self) -> Result<()> {
        let device = self.device.ok_or_else(|| usage("missing vdev name"))?;
        let in_dev = Path::new("/dev").join(&device);
        let is_in_dev = match remotes::is_afar() {
            true => !device.is_absolute(),
            false => !device.exists() && in_dev.exists(),
        };
        let device = if is_in_dev { in_dev } else { command_line::absolute(&device)? };
        client::call(&ClearLabel { device, force: self.force })
    }
}
