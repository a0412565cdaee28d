//! Requests about pools.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Action;

/// Imports one pool, or every pool that is found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ImportPool {
    /// Name or guid; `None` imports every pool found.
    pub pool: Option<String>,
    /// Name to import it under.
    pub new_name: Option<String>,
    /// Directories and devices to look into; empty means `/dev`.
    pub search: Vec<PathBuf>,
    /// Also pools that were destroyed.
    pub destroyed: bool,
    /// Import although another machine seems to use the pool.
    pub force: bool,
    /// Go back to an earlier transaction group if the newest does not load.
    pub rewind: Option<Rewind>,
    /// Open at the pool's checkpoint.
    pub rewind_to_checkpoint: bool,
    /// Import although log devices are missing.
    pub missing_log: bool,
    /// Mount nothing.
    pub no_mount: bool,
    /// Load keys whose location can be read without asking.
    pub load_keys: bool,
    /// Directory under which all mountpoints are placed.
    pub altroot: Option<PathBuf>,
    /// Pool and mount options as given by `-o name=value`.
    pub options: Vec<(String, String)>,
}

/// How far an import may go back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Rewind {
    /// Only say whether it would work.
    pub dry_run: bool,
    /// Try any older transaction group, however long ago.
    pub extreme: bool,
    /// Go to just this transaction group.
    pub txg: Option<u64>,
}

/// What an import did.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Imported {
    /// Names of the pools that are now open.
    pub pools: Vec<String>,
    /// Things that went wrong without stopping the import, each a sentence.
    pub warnings: Vec<String>,
}

impl Action for ImportPool {
    const NAME: &'static str = "pool-import";
    type Reply = Imported;
}

/// Closes pools: unmounts, takes exports down, releases the devices.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ExportPool {
    /// Names; empty with `all`.
    pub pools: Vec<String>,
    /// Every open pool.
    pub all: bool,
    /// Although something uses it.
    pub force: bool,
}

impl Action for ExportPool {
    const NAME: &'static str = "pool-export";
    type Reply = Vec<String>;
}
