//! Requests about the tables of deduplicated and of cloned blocks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

/// Removes entries of old blocks with one reference from the dedup tables of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PrunePool {
    /// The pool.
    pub pool: String,
    /// Which entries.
    pub which: PrunedEntries,
    /// For the history.
    pub command: Option<String>,
}

/// Which entries of blocks with one reference go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PrunedEntries {
    /// Those that are older than so many days.
    OlderThanDays(u64),
    /// So many percent of them, the oldest first.
    Percent(u64),
}

impl Default for PrunedEntries {
    fn default() -> Self {
        Self::Percent(0)
    }
}

impl Action for PrunePool {
    const DECLARED: Declaration = Declaration::changes(
        "pool-ddt-prune",
        Part::Devices,
        Role::Operator,
        Effects::VDEVS,
        "Removes entries of old blocks with one reference from the dedup tables; answers how many",
    )
    .in_words("prune the dedup tables of", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// Entries that were removed.
    type Reply = u64;
}

/// Reads tables of a pool into the ARC, as far as they fit there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PrefetchPool {
    /// The pool.
    pub pool: String,
    /// Which tables; none for both.
    pub kind: Option<TableKind>,
}

/// A kind of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TableKind {
    /// Of deduplicated blocks.
    Ddt,
    /// Of cloned blocks.
    Brt,
}

impl Action for PrefetchPool {
    const DECLARED: Declaration = Declaration::reads(
        "pool-prefetch",
        Part::Devices,
        Role::Operator,
        "Reads the tables of deduplicated or of cloned blocks into the ARC; answers how many bytes",
    )
    .in_words("prefetch the tables of", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// Bytes of the tables that were read.
    type Reply = u64;
}
