//! Opening a pool.
//!
//! # The steps
//! 1. The labels give a provisional vdev tree ([`super::discovery`]) and the uberblocks. The latest intact
//!    uberblock counts: highest txg, then time, then heartbeat.
//! 2. With these the MOS is opened and the *trusted config* is read from it. It knows all vdevs, also those
//!    of which no device was found.
//! 3. A second tree is built from the trusted config, and what reads through it depends on is loaded:
//!    mappings of removed vdevs, the salt of checksums, the dirty time logs.
//! 4. Whatever cannot be read rightly or completely is refused by name: unknown features, missing top-level
//!    vdevs.
//!
//! # Going back
//! An uberblock whose MOS does not load can be passed over for an older one, at the price of the txgs
//! between. That happens only when it was asked for ([`Rewind`]); otherwise the refusal says that it would
//! help. The older state may have devices that left the pool since; an import that goes back uses them, if
//! they were not used for something else ([`FoundPool::with_former`]).
//!
//! # Who else may be using the pool
//! A pool that another host did not export is refused unless forced. Whether that host is alive (the
//! multihost test, which watches its heartbeats for a while) matters to a writer
//! ([`super::live`]): a reader does no harm, and all that it reads is verified.
//!
//! Source of the facts: OpenZFS 2.3 `spa.c` (`spa_load_impl`, `spa_load_best`), `zpool_main.c`
//! (`zfs_force_import_required`).

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use ondisk::features::Feature;
use ondisk::uberblock::Uberblock;
use ondisk::vdev_config::{PoolConfig, PoolState};
use ondisk::{Guid, Txg};

use super::discovery::{Candidate, DEVICES_AT_ONCE, FoundPool};
use super::load::{Assembly, load};
use crate::Pool;
use crate::cache::ArcCache;
use crate::error::Error;
use crate::vdev::label::read_uberblocks;

/// Uberblocks further back than this many txgs may point to blocks that were reused since.
const SAFE_REWIND_TXGS: u64 = 2;
/// Newest version of pools with a version number; after it come feature flags.
const LAST_NUMBERED_VERSION: u64 = 28;
/// The version of all pools with feature flags.
const FEATURES_VERSION: u64 = 5000;

/// How a pool is to be opened.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Another name for the pool.
    pub new_name: Option<String>,
    /// The new name is for this time only: the devices keep the old one.
    pub temporary: bool,
    /// Open it although another host may be using it.
    pub force: bool,
    /// Only read; see [`crate::pool::live`] for the other way.
    pub readonly: bool,
    /// How far to go back when the newest state does not load.
    pub rewind: Rewind,
    /// Do without log devices that are missing, and with logs that cannot be read to their end.
    pub missing_log: bool,
    /// Open the pool as it was at its checkpoint.
    pub rewind_to_checkpoint: bool,
    /// Also open pools that were destroyed.
    pub destroyed: bool,
    /// Where the pool's mount points begin.
    pub altroot: Option<PathBuf>,
    /// Do not mount filesystems.
    pub no_mount: bool,
    /// This host's id, to tell whether the pool was in use elsewhere.
    pub host_id: u64,
    /// The cache to use; a new one when absent.
    pub cache: Option<Arc<ArcCache>>,
    /// Open the pool as of just this uberblock, which the process that writes the pool keeps readable.
    pub at: Option<Uberblock>,
}

impl ImportOptions {
    /// For reading, whichever host used the pool last.
    pub fn read_only() -> Self {
        Self { readonly: true, force: true, ..Self::default() }
    }
}

/// How far to go back in time to find a state that loads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rewind {
    /// Not at all.
    #[default]
    Never,
    /// As far as nothing can have been overwritten (`-F`).
    Recent,
    /// As far as uberblocks reach (`-FX`).
    Extreme,
    /// To the last state that is not newer than this txg (`-T`).
    ToTxg(Txg),
}

/// What to do when a pool that can be read cannot be written.
fn how_to_write(error: &Error) -> &'static str {
    match error {
        Error::NoSpace(_) => {
            "its intent logs hold more than it has room for: import it with -o readonly=on and copy what it holds"
        }
        _ => "make its devices writable, or import it with -o readonly=on",
    }
}

/// Why a pool is not opened, by what can be done about it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// No pool of this name or guid was found.
    #[error("cannot import '{0}': no such pool available")]
    NotFound(String),
    /// Several pools have the name.
    #[error("cannot import '{name}': more than one matching pool; import by numeric ID instead")]
    Ambiguous {
        /// The name.
        name: String,
        /// The guids of the pools.
        guids: Vec<Guid>,
    },
    /// Another host used it last and did not export it.
    #[error(
        "cannot import '{name}': pool was previously in use from another system.\n\
         Last accessed by {host} (hostid={host_id:x}); import with force if it is no longer in use there"
    )]
    InUse {
        /// The pool.
        name: String,
        /// The name of the host.
        host: String,
        /// Its id.
        host_id: u64,
        /// Seconds since 1970 of the last commit.
        timestamp: u64,
    },
    /// Another host marks it as in use.
    #[error(
        "cannot import '{name}': pool is imported on host '{host}' (hostid={host_id:x}).\n\
         Export the pool on the other system, then run 'zpool import'."
    )]
    Active {
        /// The pool.
        name: String,
        /// The name of the host.
        host: String,
        /// Its id.
        host_id: u64,
    },
    /// It has multihost protection, and this host has no id.
    #[error(
        "cannot import '{0}': pool has the multihost property on.\n\
         Set the system hostid with the zgenhostid(8) command."
    )]
    NoHostId(String),
    /// It was destroyed, and destroyed pools were not asked for.
    #[error("cannot import '{0}': the pool was destroyed; ask for destroyed pools to import it")]
    Destroyed(String),
    /// Its version is unknown.
    #[error("cannot import '{name}': pool is formatted using an unsupported ZFS version ({version})")]
    Version {
        /// The pool.
        name: String,
        /// The version.
        version: u64,
    },
    /// It uses features that are needed to read it and that are unknown.
    #[error("cannot import '{name}': the pool uses features that are not supported: {}", .features.join(", "))]
    UnsupportedFeatures {
        /// The pool.
        name: String,
        /// Guids of the features.
        features: Vec<String>,
    },
    /// Top-level vdevs are missing that hold data.
    #[error("cannot import '{name}': one or more devices are missing: {}", .missing.join(", "))]
    MissingDevices {
        /// The pool.
        name: String,
        /// Names of the top-level vdevs.
        missing: Vec<String>,
    },
    /// Log devices are missing; what was not yet replayed from them would be lost.
    #[error("cannot import '{name}': log devices are missing: {}; use '-m' to import the pool anyway, without what only they hold", .missing.join(", "))]
    MissingLog {
        /// The pool.
        name: String,
        /// Names of the log vdevs.
        missing: Vec<String>,
    },
    /// An intent log cannot be read; what was promised with it would be lost.
    #[error(
        "cannot import '{name}': the intent log of {log} cannot be followed to its end: {error}; see to the device and try again, or use '-m' to import the pool anyway, without what only that log holds"
    )]
    UnreadableLog {
        /// The pool.
        name: String,
        /// The dataset whose log it is.
        log: String,
        /// What failed.
        error: Box<Error>,
    },
    /// Its newest state cannot be read.
    #[error("cannot import '{name}': the pool metadata is damaged: {error}")]
    Damaged {
        /// The pool.
        name: String,
        /// What failed.
        error: Box<Error>,
        /// The newest older state that loads, if one was looked for.
        rewind: Option<RewindPoint>,
    },
    /// It has no checkpoint.
    #[error("cannot import '{0}': the pool has no checkpoint")]
    NoCheckpoint(String),
    /// No intact uberblock was found.
    #[error("cannot import '{0}': no valid uberblock found on any device")]
    NoUberblock(String),
    /// Its devices do not take what an import for writing begins with.
    #[error("cannot import '{name}' for writing: {error}; {}", how_to_write(.error))]
    NotWritten {
        /// The pool.
        name: String,
        /// What failed.
        error: Box<Error>,
    },
    /// It can be read, but not written rightly.
    #[error("cannot import '{name}' for writing: {why}; import it with -o readonly=on")]
    OnlyReadable {
        /// The pool.
        name: String,
        /// What stands against it.
        why: String,
    },
}

/// An older state of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RewindPoint {
    /// Its txg.
    pub txg: Txg,
    /// When it was committed, in seconds since 1970.
    pub timestamp: u64,
    /// How many seconds of changes are lost by going back to it.
    pub seconds_lost: u64,
    /// It takes [`Rewind::Extreme`].
    pub extreme: bool,
}

/// The pool that `wanted` names, by guid or by name.
pub fn select(pools: Vec<FoundPool>, wanted: &str) -> Result<FoundPool, ImportError> {
    let by_guid = wanted.parse().ok().map(Guid);
    let mut matching: Vec<FoundPool> =
        pools.into_iter().filter(|pool| Some(pool.guid) == by_guid || pool.name == wanted).collect();
    // Destroyed pools of the name do not make it ambiguous.
    if matching.len() > 1 {
        matching.retain(|pool| pool.state() != PoolState::Destroyed);
    }
    match (matching.pop(), matching.len()) {
        (Some(pool), 0) => Ok(pool),
        (None, _) => Err(ImportError::NotFound(wanted.into())),
        (Some(last), _) => {
            let guids = matching.iter().chain([&last]).map(|pool| pool.guid).collect();
            Err(ImportError::Ambiguous { name: wanted.into(), guids })
        }
    }
}

/// Whether a pool may be opened, by its labels and uberblocks alone: for devices that are taken from their
/// owner by opening them ([`FoundPool::is_taken_by_opening`]), before that is done. [`import`] asks the same.
///
/// # Errors
/// Why it may not.
pub async fn check(found: &FoundPool, options: &ImportOptions) -> Result<(), ImportError> {
    check_label(found, options)?;
    let uberblocks = uberblocks(found).await;
    let newest = uberblocks.first().ok_or_else(|| ImportError::NoUberblock(found.name.clone()))?;
    check_host(found, newest, options)
}

/// Opens a pool.
pub async fn import(found: &FoundPool, options: &ImportOptions) -> Result<Arc<Pool>, ImportError> {
    check_label(found, options)?;
    let with_former;
    let found = match options.rewind {
        Rewind::Never => found,
        _ => {
            with_former = found.with_former();
            &with_former
        }
    };
    if let Some(at) = &options.at {
        let assembly = Assembly { found, options, cache: ArcCache::or_default(options.cache.as_ref()) };
        return load(&assembly, at).await;
    }
    let uberblocks = uberblocks(found).await;
    let newest = uberblocks.first().ok_or_else(|| ImportError::NoUberblock(found.name.clone()))?;
    check_host(found, newest, options)?;
    let assembly = Assembly { found, options, cache: ArcCache::or_default(options.cache.as_ref()) };
    let mut first_error = None;
    for uberblock in tried(&uberblocks, options.rewind) {
        match load(&assembly, uberblock).await {
            Ok(pool) => return Ok(pool),
            // Only damage is a reason to look for an older state.
            Err(ImportError::Damaged { error, .. }) => {
                tracing::warn!(txg = %uberblock.txg, %error, "state of pool does not load");
                first_error.get_or_insert(error);
            }
            Err(refusal) => return Err(refusal),
        }
    }
    let error = first_error.ok_or_else(|| ImportError::NoUberblock(found.name.clone()))?;
    let rewind = match options.rewind {
        Rewind::Never => rewind_point(&assembly, &uberblocks).await,
        _ => None,
    };
    Err(ImportError::Damaged { name: found.name.clone(), error, rewind })
}

/// The states to try one after the other, newest first; `uberblocks` are sorted so.
fn tried(uberblocks: &[Uberblock], rewind: Rewind) -> impl Iterator<Item = &Uberblock> {
    const ANY: Txg = Txg(u64::MAX);
    let newest = uberblocks.first().map_or(Txg::NONE, |uberblock| uberblock.txg);
    // Where to begin, and the oldest state whose failure is a reason to try the one before it. That one may
    // be much older: groups without changes leave no state.
    let (limit, oldest) = match rewind {
        Rewind::Never => (ANY, ANY),
        Rewind::ToTxg(txg) => (txg, ANY),
        Rewind::Recent => (ANY, Txg(newest.get().saturating_sub(SAFE_REWIND_TXGS))),
        Rewind::Extreme => (ANY, Txg::INITIAL),
    };
    let mut is_last = false;
    let below = uberblocks.iter().filter(move |uberblock| uberblock.txg <= limit);
    below.take_while(move |uberblock| !std::mem::replace(&mut is_last, uberblock.txg < oldest))
}

/// The newest older state that loads, without opening it: what `-F` or `-FX` would do.
async fn rewind_point(assembly: &Assembly<'_>, uberblocks: &[Uberblock]) -> Option<RewindPoint> {
    let newest = uberblocks.first()?;
    let recent = tried(uberblocks, Rewind::Recent).count();
    for (place, uberblock) in tried(uberblocks, Rewind::Extreme).enumerate().skip(1) {
        if load(assembly, uberblock).await.is_ok() {
            return Some(RewindPoint {
                txg: uberblock.txg,
                timestamp: uberblock.timestamp,
                seconds_lost: newest.timestamp.saturating_sub(uberblock.timestamp),
                extreme: place >= recent,
            });
        }
    }
    None
}

/// The intact uberblocks of all devices of the pool, latest first, one a txg.
pub async fn uberblocks(found: &FoundPool) -> Vec<Uberblock> {
    let is_of_pool = |it: &&Candidate| {
        it.label.pool_guid == Some(found.guid) && it.label.txg.is_some_and(|txg| txg != Txg::NONE)
    };
    let of_pool = found.candidates.values().filter(is_of_pool);
    let of_device = |candidate: &Candidate| {
        let ashift = candidate.label.vdev_tree.as_ref().and_then(|tree| tree.ashift).map_or(9, u32::from);
        let device = Arc::clone(&candidate.device);
        async move { read_uberblocks(&*device, ashift).await }
    };
    let read: Vec<_> = stream::iter(of_pool).map(of_device).buffered(DEVICES_AT_ONCE).concat().await;
    let mut all: Vec<_> = read.into_iter().map(|(_, _, uberblock)| uberblock).collect();
    all.sort_by_key(|uberblock| std::cmp::Reverse(uberblock.recency()));
    all.dedup_by_key(|uberblock| uberblock.txg);
    all
}

/// Whether pools of this version can be read.
pub fn version_is_supported(version: u64) -> bool {
    (1..=LAST_NUMBERED_VERSION).contains(&version) || version == FEATURES_VERSION
}

/// The features in a label that are unknown here.
pub fn unknown_features(label: &PoolConfig) -> Vec<String> {
    let names = label.features_for_read.iter().map(|name| String::from_utf8_lossy(name.as_bytes()));
    names.filter(|name| Feature::from_guid(name).is_none()).map(|name| name.into_owned()).collect()
}

fn check_label(found: &FoundPool, options: &ImportOptions) -> Result<(), ImportError> {
    let name = || found.name.clone();
    if found.state() == PoolState::Destroyed && !options.destroyed {
        return Err(ImportError::Destroyed(name()));
    }
    let version = found.label.version;
    if !version_is_supported(version) {
        return Err(ImportError::Version { name: name(), version });
    }
    let features = unknown_features(&found.label);
    if !features.is_empty() {
        return Err(ImportError::UnsupportedFeatures { name: name(), features });
    }
    Ok(())
}

/// Refuses a pool that another host did not export.
fn check_host(found: &FoundPool, newest: &Uberblock, options: &ImportOptions) -> Result<(), ImportError> {
    let host_id = found.label.host_id.unwrap_or(0);
    if options.force || found.state() == PoolState::Exported || host_id == options.host_id {
        return Ok(());
    }
    let host =
        found.label.host_name.as_ref().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
    Err(ImportError::InUse {
        name: found.name.clone(),
        host: host.unwrap_or_else(|| "<unknown>".into()),
        host_id,
        timestamp: newest.timestamp,
    })
}
