//! [`LiveDataset`]: a head dataset that is open for writing.
//!
//! It joins what belongs to one head: the live object set, the intent log, the gauge that is asked for room,
//! and the filesystem or volume in it. The last is the same for all who ask for it, because their changes
//! must be ordered; it is forgotten when its last user is gone. Open datasets are in the map of their
//! [`DslPool`](super::DslPool), which closes those that are idle.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `replaying` | that the log is replayed once; held across awaits | first |
//! | `opening` | that the filesystem is opened once; held across awaits | after it |
//! | `settings`, `volume`, `filesystem`, `resume_points` | the values; for a few lines, never across an await | after it, alone |

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use device::IgnorePoison;
use futures_util::lock::Mutex as AsyncMutex;
use ondisk::Txg;
use ondisk::features::Feature;
use ondisk::objset::ObjsetType;

use super::edit;
use super::edit::receive::ResumePoint;
use super::space_check::DatasetRoom;
use super::sync_task::SyncTask;
use crate::cache::Primary;
use crate::dmu::LiveObjset;
use crate::error::Result;
use crate::txg::Txgs;
use crate::zil::{SyncMode, Zil};
use crate::zpl::{self, LiveZpl};
use crate::zvol::LiveZvol;

/// A dataset that was not used for so many groups is closed.
const IDLE_TXGS: u32 = 16;

/// A head dataset that is open for writing.
#[derive(Debug)]
pub struct LiveDataset {
    /// Its objects. The number of the object set is that of the dataset in the MOS.
    pub objset: Arc<LiveObjset>,
    /// Its intent log.
    pub zil: Zil,
    /// Asked before data are accepted.
    pub room: Arc<DatasetRoom>,
    read_only: AtomicBool,
    settings: Mutex<Settings>,
    /// The volume in it, while it is used.
    volume: Mutex<Weak<LiveZvol>>,
    /// The filesystem in it, while it is used.
    filesystem: Mutex<Weak<LiveZpl>>,
    /// Held while the filesystem is opened, which frees files: once.
    opening: AsyncMutex<()>,
    /// Held while the log is replayed.
    pub(crate) replaying: AsyncMutex<()>,
    /// Its log may have records of extended attributes inside files when the group that is being written is
    /// committed.
    begins_xattr_log: AtomicBool,
    /// How far a stream that is received into it is, by groups that are not written yet.
    resume_points: Mutex<BTreeMap<Txg, ResumePoint>>,
    /// Groups committed since it was last used.
    idle_txgs: AtomicU32,
}

/// What properties say of a dataset that is open, beside how its blocks are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// `sync`.
    pub sync: SyncMode,
    /// `logbias=throughput`.
    pub for_throughput: bool,
    /// `readonly`.
    pub read_only: bool,
    /// `primarycache`.
    pub primary_cache: Primary,
    /// `secondarycache`.
    pub secondary_cache: Primary,
    /// What concerns filesystems.
    pub filesystem: zpl::Settings,
}

impl LiveDataset {
    pub(super) fn new(objset: Arc<LiveObjset>, zil: Zil, room: Arc<DatasetRoom>) -> Arc<Self> {
        Arc::new(Self {
            objset,
            zil,
            room,
            read_only: AtomicBool::new(false),
            settings: Mutex::default(),
            volume: Mutex::default(),
            filesystem: Mutex::default(),
            opening: AsyncMutex::new(()),
            replaying: AsyncMutex::new(()),
            begins_xattr_log: AtomicBool::new(false),
            resume_points: Mutex::default(),
            idle_txgs: AtomicU32::new(0),
        })
    }

    /// Whether it stays open after another group. The caller holds the map of open datasets, from which
    /// everything gets it.
    pub(super) fn stays_open(self: &Arc<Self>) -> bool {
        if Arc::strong_count(self) > 1 || !self.is_unused() {
            self.idle_txgs.store(0, Ordering::Relaxed);
            return true;
        }
        self.idle_txgs.fetch_add(1, Ordering::Relaxed) < IDLE_TXGS || !self.zil.settles()
    }

    /// Whether nothing of it is in use, and all of it is committed.
    fn is_unused(&self) -> bool {
        // The log has the object set too.
        Arc::strong_count(&self.objset) <= 2 && self.objset.is_clean()
    }

    /// Whether it can be closed now: nothing uses it, all of it is committed, and its log is given back. The
    /// caller holds the map of open datasets, and has no handle of its own.
    pub(super) fn can_be_closed(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.is_unused() && (self.zil.settles() || self.zil.needs_replay())
    }

    /// Whether users may not change it. What serves it asks before each change: the property may be set at
    /// any time.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// How the filesystem in it behaves.
    pub(crate) fn filesystem_settings(&self) -> zpl::Settings {
        self.settings.lock().ignore_poison().filesystem
    }

    /// Lets it behave as its properties say now.
    pub fn set(&self, settings: Settings) {
        self.zil.set_sync_mode(settings.sync);
        self.zil.set_for_throughput(settings.for_throughput);
        self.read_only.store(settings.read_only, Ordering::Release);
        self.objset.primary().set(settings.primary_cache);
        self.objset.primary().set_secondary(settings.secondary_cache);
        *self.settings.lock().ignore_poison() = settings;
        if let Some(filesystem) = self.open_filesystem() {
            filesystem.set(&settings.filesystem);
        }
    }

    /// Notes how far a stream that is received into it is with the group of `tx`.
    pub(crate) fn note_resume_point(&self, txg: Txg, point: ResumePoint) {
        self.resume_points.lock().ignore_poison().insert(txg, point);
    }

    /// How far the stream is with a group that is written now.
    pub(super) fn take_resume_point(&self, txg: Txg) -> Option<ResumePoint> {
        self.resume_points.lock().ignore_poison().remove(&txg)
    }

    /// The filesystem in it, if it is used.
    pub(crate) fn open_filesystem(&self) -> Option<Arc<LiveZpl>> {
        self.weak_filesystem().upgrade()
    }

    fn weak_filesystem(&self) -> MutexGuard<'_, Weak<LiveZpl>> {
        self.filesystem.lock().ignore_poison()
    }

    /// The volume in it, the same for all who ask for it.
    pub(crate) async fn volume(&self, txgs: &Arc<Txgs>) -> Result<Arc<LiveZvol>> {
        let of = || self.volume.lock().ignore_poison();
        if let Some(volume) = of().upgrade() {
            return Ok(volume);
        }
        let opened = LiveZvol::open(txgs, &self.objset, &self.zil).await?;
        opened.set_room(self.room.clone());
        let mut volume = of();
        if let Some(meanwhile) = volume.upgrade() {
            return Ok(meanwhile);
        }
        *volume = Arc::downgrade(&opened);
        drop(volume);
        Ok(opened)
    }

    /// The filesystem in it, the same for all who ask for it. True when it was opened just now, to be
    /// changed.
    pub(crate) async fn filesystem(&self, txgs: &Arc<Txgs>) -> Result<(Arc<LiveZpl>, bool)> {
        let _opening = self.opening.lock().await;
        if let Some(filesystem) = self.open_filesystem() {
            return Ok((filesystem, false));
        }
        let options = self.filesystem_settings().options();
        let opened = match self.is_read_only() {
            // Its users change nothing, so neither does opening it.
            true => LiveZpl::open_as_it_is(txgs, &self.objset, &self.zil, options).await?,
            false => LiveZpl::open(txgs, &self.objset, &self.zil, options).await?,
        };
        opened.set_room(self.room.clone());
        *self.weak_filesystem() = Arc::downgrade(&opened);
        // They may have been set since.
        opened.set(&self.filesystem_settings());
        Ok((opened, !self.is_read_only()))
    }

    /// A filesystem that has an intent log uses the feature that lets extended attributes be logged. What is
    /// logged relies on that, and so comes later.
    pub(super) async fn begin_xattr_log(&self, s: &SyncTask) -> Result<()> {
        let begins = self.objset.kind() == ObjsetType::Zfs
            && !self.objset.zil_header().is_empty()
            && !self.zil.logs_xattrs()
            && s.feature_enabled(Feature::Zilsaxattr)
            && !self.begins_xattr_log.swap(true, Ordering::Relaxed);
        match begins {
            true => edit::log_xattrs(s, self.objset.id()).await,
            false => Ok(()),
        }
    }

    /// The group `txg` is committed.
    pub(super) fn committed(&self, txg: Txg) {
        self.zil.synced(txg);
        if self.begins_xattr_log.swap(false, Ordering::Relaxed) {
            self.zil.set_logs_xattrs();
        }
    }
}
