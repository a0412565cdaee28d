//! Importing a pool for writing.
//!
//! # The steps
//! 1. The pool is opened for reading as ever; that finds the best state and refuses what cannot be read
//!    ([`crate::pool::import`]).
//! 2. What cannot be *written* rightly is refused by name: features in use whose structures are not kept up
//!    here, attributes of the other byte order, pools that are in the middle of a removal or an expansion.
//! 3. Its devices are opened anew for writing, each under a lock, so that no other process can do the same.
//!    With multihost protection the pool is watched for a while, whether another host marks it as in use.
//! 4. Intent logs that a device keeps from being followed to their end are refused, unless what they hold is
//!    given up by name (`-m`).
//! 5. A pool that goes back to its checkpoint does so ([`super::checkpoint`]).
//! 6. The first group claims the blocks of all intent logs, before anything is allocated, and takes the pool
//!    over: labels with this host's name.
//! 7. Logs are replayed, dataset by dataset.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join;
use ondisk::blkptr::Blkptr;
use ondisk::features::{Feature, FeatureState};
use ondisk::objset::ObjsetType;
use ondisk::pool_directory as directory;
use ondisk::vdev_config::{PoolState, VdevKind};
use ondisk::{ByteOrder, ObjectId, ObjsetId, Txg};

use super::config::Config;
use super::multihost::watch;
use super::{LivePool, Surroundings, Syncing, checkpoint, errlog, upgrade, version};
use crate::Pool;
use crate::alloc::Allocator;
use crate::dmu::LiveObjset;
use crate::dsl::edit::receive;
use crate::dsl::pool_features::Features;
use crate::dsl::{Dsl, LiveDataset};
use crate::error::{Error, Result};
use crate::mos::LiveFeatures;
use crate::pool::discovery::FoundPool;
use crate::pool::import::{ImportError, ImportOptions, Rewind, uberblocks};
use crate::pool::replayed::log_header;
use crate::store::suspend::FailMode;
use crate::tables::Tables;
use crate::zil::{self, Replayed, Unreadable};
use crate::zpl::LiveZpl;
use crate::zvol::LiveZvol;

/// Features whose structures must be kept up when they are in use, and are not.
const NOT_WRITTEN: &[(Feature, &str)] = &[
    (Feature::RedactedDatasets, "it has redacted datasets"),
    (Feature::RedactionBookmarks, "it has redaction bookmarks"),
];

impl LivePool {
    /// Opens a found pool for writing: claims and replays intent logs, and takes the pool over for this host.
    /// `options.readonly` must not be set. The devices of `found` must be open for writing.
    pub async fn import(
        found: &FoundPool,
        options: &ImportOptions,
        surroundings: Surroundings,
    ) -> Result<Arc<Self>, ImportError> {
        let mut reading = options.clone();
        reading.readonly = true;
        reading.cache = options.cache.clone().or_else(|| surroundings.cache.clone());
        watch(found, options, &*surroundings.env).await?;
        let mut pool = crate::pool::import::import(found, &reading).await?;
        // Groups that are given up must not be the newest ones again when their blocks are overwritten.
        let newest =
            match options.rewind_to_checkpoint || options.rewind != Rewind::Never || options.at.is_some() {
                true => uberblocks(found).await.first().map(|uberblock| uberblock.txg),
                false => None,
            };
        let newest = newest.unwrap_or(Txg::NONE).max(pool.uberblock().txg);
        let goes_back = options.rewind_to_checkpoint || newest > pool.uberblock().txg;
        if goes_back {
            let checkpoint = pool.checkpoint().filter(|_| !options.rewind_to_checkpoint).cloned();
            let uberblock = checkpoint::rewound(pool.uberblock(), newest, surroundings.env.now().as_secs());
            pool = pool.at(uberblock, pool.config().clone(), checkpoint);
        }
        let name = pool.name().to_owned();
        let refused = |error: Error| match error {
            Error::Unsupported(why) => ImportError::OnlyReadable { name: name.clone(), why },
            Error::UnreadableLog { log, error } => {
                ImportError::UnreadableLog { name: name.clone(), log, error }
            }
            error @ (Error::NotWritten { .. } | Error::NoSpace(_) | Error::Suspended(_)) => {
                ImportError::NotWritten { name: name.clone(), error: Box::new(error) }
            }
            error => ImportError::Damaged { name: name.clone(), error: Box::new(error), rewind: None },
        };
        let live = open(pool, surroundings, options.temporary).await.map_err(refused)?;
        live.use_logs_that_are_there();
        live.list_spares();
        live.find_auxiliary().await;
        let unreadable = match options.missing_log {
            true => Unreadable::GivenUp,
            false => Unreadable::Refused,
        };
        let with_logs = live.heads_with_logs().await.map_err(refused)?;
        if unreadable == Unreadable::Refused {
            live.check_logs(&with_logs).await.map_err(refused)?;
        }
        if goes_back {
            live.make_newest(live.pool.uberblock(), true).await.map_err(refused)?;
        }
        let to_claim = with_logs.clone();
        let claimed = live.change(move |s| async move {
            // Without the claims of all logs, the next import would take records for committed.
            claim(&s, &to_claim, unreadable).await.inspect_err(|error| s.tx.note_half_done(error.clone()))
        });
        claimed.await.map_err(refused)?;
        live.replay(&with_logs).await.map_err(refused)?;
        live.destroy_remains().await.map_err(refused)?;
        Ok(live)
    }

    /// Fails with [`Error::UnreadableLog`] when a log may go on where no device can be read. Nothing has
    /// changed then.
    async fn check_logs(self: &Arc<Self>, with_logs: &[ObjsetId]) -> Result<()> {
        let next = self.txgs().open_txg();
        let is_checkpoint = self.pool.uberblock().is_checkpoint();
        for &id in with_logs {
            let dataset = self.dataset(id).await?;
            let header = dataset.objset.zil_header();
            // A log that the checkpoint had is given up if it was not claimed.
            let is_followed = !is_checkpoint || header.claim_txg != Txg::NONE;
            if is_followed && let Err(error) = zil::check(&self.pool, id, &header, next).await {
                let dsl = Dsl::open(&self.pool).await?;
                return Err(with_name(&dsl, id, error).await);
            }
            if dataset.objset.zil_header().is_empty() {
                self.datasets().remove(&id);
            }
        }
        Ok(())
    }

    /// Replays all intent logs, except those of encrypted datasets whose keys are not loaded: they stay
    /// ([`super::encrypted`]).
    async fn replay(self: &Arc<Self>, with_logs: &[ObjsetId]) -> Result<()> {
        for &id in with_logs {
            let dataset = self.dataset(id).await?;
            // With its key it is opened anew, and authenticated.
            let is_locked = matches!(dataset.objset.key(), Err(Error::KeyNotLoaded { .. }));
            if dataset.objset.zil_header().is_empty() || is_locked {
                self.datasets().remove(&id);
            } else {
                self.replay_dataset(&dataset).await?;
            }
        }
        Ok(())
    }

    /// Destroys what receives left that cannot be resumed.
    async fn destroy_remains(self: &Arc<Self>) -> Result<()> {
        let remains = {
            let _turn = self.syncing.take().await;
            inconsistent(self.mos()).await?
        };
        for id in remains {
            if let Err(error) =
                self.change(move |s| async move { receive::destroy_remains(&s, id).await }).await
            {
                tracing::warn!(objset = %id, %error, "what a receive left is not destroyed");
            }
        }
        Ok(())
    }

    async fn replay_dataset(self: &Arc<Self>, dataset: &Arc<LiveDataset>) -> Result<()> {
        let objset = dataset.objset.id();
        if !dataset.zil.needs_replay() {
            return Ok(());
        }
        // No thread commits groups yet, and a replay waits for some: to make room, and for the end of the
        // log.
        let done = AtomicBool::new(false);
        let replay = async {
            let replayed = self.replay_onto(dataset).await;
            done.store(true, Ordering::Relaxed);
            replayed
        };
        let commit = async {
            while !done.load(Ordering::Relaxed) {
                self.sync().await?;
            }
            Ok(())
        };
        let (replayed, committed): (_, Result<()>) = join(replay, commit).await;
        committed?;
        let replayed = replayed?;
        tracing::info!(%objset, records = replayed.records, "intent log replayed");
        Ok(())
    }

    pub(super) async fn replay_onto(self: &Arc<Self>, dataset: &LiveDataset) -> Result<Replayed> {
        let (objset, zil) = (&dataset.objset, &dataset.zil);
        match objset.kind() {
            ObjsetType::Zvol => zil.replay(&*LiveZvol::open(&self.txgs, objset, zil).await?).await,
            ObjsetType::Zfs => {
                let settings = dataset.filesystem_settings();
                let opened = LiveZpl::open(&self.txgs, objset, zil, settings.options()).await?;
                opened.set(&settings);
                zil.replay(&*opened).await
            }
            kind => {
                let what = format!("intent log of objset {}", objset.id());
                Err(Error::corrupt(what, format!("an object set of kind {kind} has none")))
            }
        }
    }

    /// The head datasets with object sets, hidden ones not included.
    pub(super) async fn heads(self: &Arc<Self>) -> Result<Vec<ObjsetId>> {
        let _turn = self.syncing.take().await;
        Ok(heads(self.mos()).await?.into_iter().map(|(id, _)| id).collect())
    }

    /// Those of them that have an intent log, as the pool was opened: of thousands of datasets few have one,
    /// and to open a dataset for writing costs many times what its header does. One whose header cannot be
    /// read is among them, so that opening it says why.
    async fn heads_with_logs(self: &Arc<Self>) -> Result<Vec<ObjsetId>> {
        let heads = {
            let _turn = self.syncing.take().await;
            heads(self.mos()).await?
        };
        let mut found = Vec::new();
        for (id, root) in heads {
            let header = log_header(&self.pool, id, &root).await;
            if header.is_ok_and(|header| header.is_empty()) {
                continue;
            }
            found.push(id);
        }
        Ok(found)
    }
}

/// The head datasets, and where their object sets begin.
async fn heads(mos: &Arc<LiveObjset>) -> Result<Vec<(ObjsetId, Blkptr)>> {
    let dsl = Dsl::open_in(mos.view()).await?;
    let mut heads = Vec::new();
    let mut dirs = vec![Arc::clone(dsl.root())];
    while let Some(dir) = dirs.pop() {
        if !dir.phys.head_dataset.is_none() {
            let head = dsl.head(&dir).await?;
            if !head.phys.bp.is_hole() && !head.is_inconsistent() {
                heads.push((ObjsetId(dir.phys.head_dataset.get()), head.phys.bp));
            }
        }
        dirs.extend(dsl.children(&dir).await?);
    }
    heads.sort_unstable_by_key(|(id, _)| *id);
    Ok(heads)
}

/// Head datasets that a receive did not finish.
async fn inconsistent(mos: &Arc<LiveObjset>) -> Result<Vec<ObjsetId>> {
    let dsl = Dsl::open_in(mos.view()).await?;
    let mut found = Vec::new();
    for dir in dsl.dirs(dsl.root()).await? {
        let head = dsl.head(&dir).await?;
        if head.is_inconsistent() {
            found.push(head.objset_id());
        }
    }
    Ok(found)
}

/// An error of the log of a dataset, with the dataset's name.
async fn with_name(dsl: &Dsl, id: ObjsetId, error: Error) -> Error {
    match error {
        Error::UnreadableLog { log, error } => {
            let name = dsl.name_of_object(ObjectId(id.get())).await;
            Error::UnreadableLog { log: name.map_or(log, |name| format!("'{name}'")), error }
        }
        error => error,
    }
}

/// The first group of an import.
async fn claim(s: &Syncing, with_logs: &[ObjsetId], unreadable: Unreadable) -> Result<()> {
    let opened = s.pool.pool().uberblock();
    let checkpoint = opened.is_checkpoint().then_some(opened.checkpoint_txg);
    for &id in with_logs {
        let dataset = s.dataset(id).await?;
        if dataset.objset.zil_header().is_empty() {
            s.forget_dataset(id);
            continue;
        }
        match dataset.zil.claim(&s.tx, checkpoint, unreadable).await {
            Ok(clones) => s.dsl_pool().tables().reference(s, &clones).await?,
            Err(error) => {
                let dsl = Dsl::open_in(s.mos().view()).await?;
                return Err(with_name(&dsl, id, error).await);
            }
        }
    }
    upgrade::complete(s).await?;
    errlog::begin(s).await?;
    s.pool.config().state = PoolState::Active;
    s.pool.config_changed();
    Ok(())
}

async fn open(pool: Arc<Pool>, surroundings: Surroundings, temporary: bool) -> Result<Arc<LivePool>> {
    let dsl = Dsl::open(&pool).await?;
    let features = Features::load(dsl.mos()).await?;
    refuse_unwritable(&pool, &dsl, &features).await?;
    let stored = dsl.mos().config().await?;
    let root = stored.vdev_tree.ok_or_else(|| Error::corrupt("pool configuration", "it has no vdev tree"))?;
    let stored_name = stored.name.as_ref().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
    let config = Config {
        name: stored_name.filter(|_| temporary).unwrap_or_else(|| pool.name().to_owned()),
        state: PoolState::Active,
        guid: pool.guid(),
        errata: stored.errata,
        comment: stored.comment,
        compatibility: stored.compatibility,
        host: surroundings.host.clone(),
        root: with_present_paths(root, &pool),
        has_vdev_zaps: stored.has_per_vdev_zaps,
    };
    let mos = LiveObjset::open(&pool, ObjsetId::MOS, pool.root_blkptr(), super::policy_of_mos()).await?;
    let allocator = Allocator::load(pool.store(), &mos).await?;
    let tables = Tables::load(&pool, &mos).await?;
    let props = dsl.mos().u64(directory::DIRECTORY_OBJECT, directory::PROPS).await?.map(ObjectId);
    let props = props.filter(|props| !props.is_none());
    if let Some(props) = props {
        let failmode = dsl.mos().u64(props, "failmode").await?;
        pool.suspension.set_mode(failmode.and_then(FailMode::from_number).unwrap_or_default());
    }
    let counts = Feature::ALL.iter().filter_map(|feature| Some((*feature, features.count(feature.guid())?)));
    let features = LiveFeatures::new(stored.version, counts);
    let live = LivePool::of(pool, &surroundings, config, mos, allocator, features, tables);
    for part in live.parts.all() {
        part.load(&live, &dsl).await?;
    }
    live.apply_thresholds().await?;
    for part in live.parts.all() {
        let Some((props, prop)) = props.zip(part.property()) else { continue };
        if dsl.mos().u64(props, prop.desc().name).await? == Some(1) {
            part.turn(&live, true);
        }
    }
    Ok(live)
}

/// The stored tree, with the paths at which the devices were found now.
fn with_present_paths(
    mut root: ondisk::vdev_config::VdevConfig,
    pool: &Pool,
) -> ondisk::vdev_config::VdevConfig {
    use std::os::unix::ffi::OsStrExt;
    fn visit(config: &mut ondisk::vdev_config::VdevConfig, pool: &Pool) {
        let device = match pool.vdevs().find(config.guid).map(|vdev| &vdev.kind) {
            Some(crate::vdev::Kind::Leaf(slot)) => slot.device(),
            _ => None,
        };
        if let Some(device) = device {
            let path = device.path().as_os_str().as_bytes();
            // Devices that are no files have a description in angle brackets, which leads nowhere.
            if path.first() == Some(&b'/') {
                config.path = Some(ondisk::nvlist::ByteString::new(path));
            }
        }
        config.children.iter_mut().for_each(|child| visit(child, pool));
    }
    visit(&mut root, pool);
    root
}

async fn refuse_unwritable(pool: &Pool, dsl: &Dsl, features: &Features) -> Result<()> {
    let only = |why: &str| Err(Error::Unsupported(why.to_owned()));
    if pool.uberblock().order != ByteOrder::Little && pool.uberblock().version >= version::SYSTEM_ATTRIBUTES {
        return only("it was written by a big-endian machine, with system attributes");
    }
    for (feature, why) in NOT_WRITTEN {
        if let FeatureState::Active(_) = features.state(*feature) {
            return only(&format!("{why} (feature@{} is active), which is not written yet", feature.name()));
        }
    }
    if let Some(unknown) = features.unknown().find(|guid| features.count(guid).is_some_and(|count| count > 0))
    {
        return only(&format!("it uses a feature that is not known here: {unknown}"));
    }
    let is_expanding = |vdev: &&crate::vdev::Vdev| {
        let kind = &vdev.config.kind;
        matches!(kind, VdevKind::Raidz { expanding: true, .. })
    };
    if let Some(vdev) = pool.vdevs().tops.iter().find(|top| is_expanding(top)) {
        return only(&format!("its vdev {} is being expanded; let OpenZFS finish it", vdev.name));
    }
    let odd = |vdev: &&crate::vdev::Vdev| vdev.config.kind == VdevKind::Missing || vdev.config.removing;
    if let Some(vdev) = pool.vdevs().tops.iter().flat_map(|top| top.walk()).find(odd) {
        return only(&format!("its vdev {} is {}", vdev.name, vdev.type_name()));
    }
    let entries = dsl.mos().u64_entries(directory::DIRECTORY_OBJECT).await?;
    for (name, why) in [
        (directory::OBSOLETE_BPOBJ, "what left removed devices is still being noted; let OpenZFS finish it"),
        (directory::CONDENSING_INDIRECT, "the mapping of a removed device is being condensed"),
    ] {
        if entries.iter().any(|(entry, _)| entry == name) {
            return only(why);
        }
    }
    Ok(())
}
