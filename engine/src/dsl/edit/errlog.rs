//! The persistent error log, as it is written: which blocks could not be read.
//!
//! There are two logs: `errlog_last`, and `errlog_scrub` of a scan that is running. When the scan ends, its
//! log takes the place of the last one; so what it did not find again is forgotten. The forms are in
//! [`ondisk::errlog`]: with the feature `head_errlog` by head dataset, where an entry says in which group its
//! block was written to its present place. Heads that are destroyed lose their entries, and a promotion moves
//! entries with the snapshots.
//!
//! Source of the facts: OpenZFS 2.4 `spa_errlog.c`.

use ondisk::dmu::DmuType;
use ondisk::errlog::{ErrorBookmark, HeadError};
use ondisk::features::Feature;
use ondisk::pool_directory::{DIRECTORY_OBJECT, ERRLOG_LAST, ERRLOG_SCRUB};
use ondisk::zap::ZapValue;
use ondisk::{BlockId, ObjectId, ObjsetId, Txg};

use super::objects;
use crate::Bookmark;
use crate::dmu::Objset;
use crate::dmu::zap::edit::NewZap;
use crate::dsl::SyncTask;
use crate::error::{Error, Result};
use crate::store::Noted;

/// The logs that the pool directory names.
const LOGS: [&str; 2] = [ERRLOG_LAST, ERRLOG_SCRUB];
const LAST: usize = 0;
const SCRUB: usize = 1;

/// The log objects, and those that the directory names.
struct Logs {
    now: [ObjectId; 2],
    before: [Option<ObjectId>; 2],
    by_head: bool,
}

/// Writes the notes of the pool down. `is_scanning`: what could not be read goes into the log of the running
/// scan. Returns whether the logs have entries.
pub(crate) async fn sync_error_log(s: &SyncTask, noted: &Noted, is_scanning: bool) -> Result<bool> {
    let mut logs = Logs::load(s).await?;
    for (at, birth) in &noted.mended {
        unless_damaged(logs.forget(s, at, *birth).await)?;
    }
    if noted.rotate {
        unless_damaged(logs.delete(s, LAST).await)?;
        logs.now = [logs.now[SCRUB], ObjectId::default()];
    }
    let into = if is_scanning && !noted.rotate { SCRUB } else { LAST };
    for (at, birth) in &noted.found {
        unless_damaged(logs.add(s, into, at, *birth).await)?;
    }
    logs.store(s).await?;
    Ok(logs.now.iter().any(|log| !log.is_none()))
}

/// A log that is damaged itself loses entries, and stops nothing.
fn unless_damaged(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.is_damage() => {
            tracing::warn!(%error, "the error log is damaged, and not complete");
            Ok(())
        }
        other => other,
    }
}

/// Whether the pool has an error log.
pub(crate) async fn has_error_log(s: &SyncTask) -> Result<bool> {
    Ok(Logs::load(s).await?.now.iter().any(|log| !log.is_none()))
}

/// Takes logs of the old form, which were written before `head_errlog` was enabled, into the new form
/// (`spa_upgrade_errlog`). Blocks that nothing refers to any more are left out.
pub(crate) async fn upgrade_error_log(s: &SyncTask) -> Result<()> {
    let mut logs = Logs::load(s).await?;
    for log in [LAST, SCRUB] {
        let old = std::mem::take(&mut logs.now[log]);
        if old.is_none() {
            continue;
        }
        let entries = match objects::entries(s, old).await {
            Err(error) if error.is_damage() => Vec::new(),
            entries => entries?,
        };
        for (key, _) in entries {
            let Some(error) = ErrorBookmark::parse(key.as_bytes()) else { continue };
            let at = Bookmark {
                objset: error.objset.get(),
                object: error.object.get(),
                level: error.level,
                blkid: error.block.0,
            };
            if error.objset == ObjsetId::MOS {
                logs.add(s, log, &at, Txg(0)).await?;
            } else if let Some(birth) = birth_of(s, &at).await {
                logs.add(s, log, &at, birth).await?;
            }
        }
        objects::free_object(s, old).await?;
    }
    logs.store(s).await
}

/// The group in which the block of a dataset was written to its present place, if it can be looked up.
async fn birth_of(s: &SyncTask, at: &Bookmark) -> Option<Txg> {
    let dataset = objects::dataset(s, ObjectId(at.objset)).await.ok()?;
    if at.level == Bookmark::LEVEL_ROOT {
        return Some(dataset.bp.physical_birth());
    }
    let objset = Objset::open_without_key(s.pool(), ObjsetId(at.objset), &dataset.bp).await.ok()?;
    let pointer = objset.pointer_of(at).await.ok()??;
    (!pointer.is_hole()).then(|| pointer.physical_birth())
}

/// A head dataset is destroyed: its entries go (`spa_delete_dataset_errlog`).
pub(super) async fn forget_head(s: &SyncTask, head: ObjectId) -> Result<()> {
    let logs = Logs::load(s).await?;
    for log in logs.now.into_iter().filter(|log| logs.by_head && !log.is_none()) {
        if let Some(below) = objects::lookup(s, log, &objects::number(head.get())).await? {
            objects::take(s, log, &objects::number(head.get())).await?;
            objects::free_object(s, ObjectId(below)).await?;
        }
    }
    Ok(())
}

/// A clone was promoted: entries of blocks up to the group `until`, that of the snapshot which was its
/// origin, move to it (`spa_swap_errlog`).
pub(super) async fn move_to_promoted(s: &SyncTask, from: ObjectId, to: ObjectId, until: Txg) -> Result<()> {
    let logs = Logs::load(s).await?;
    for log in logs.now.into_iter().filter(|log| logs.by_head && !log.is_none()) {
        let Some(below) = objects::lookup(s, log, &objects::number(from.get())).await?.map(ObjectId) else {
            continue;
        };
        for (key, _) in objects::entries(s, below).await? {
            let moves = HeadError::parse(key.as_bytes()).is_some_and(|error| error.birth <= until);
            if moves {
                let target = log_of_head(s, log, ObjsetId(to.get())).await?;
                objects::set(s, target, &objects::name(&key), &nameless()).await?;
                objects::take(s, below, &objects::name(&key)).await?;
            }
        }
    }
    Ok(())
}

impl Logs {
    async fn load(s: &SyncTask) -> Result<Self> {
        let mut before = [None; 2];
        for (log, name) in before.iter_mut().zip(LOGS) {
            *log = objects::pool_entry(s, name).await?;
        }
        let now = before.map(Option::unwrap_or_default);
        Ok(Self { now, before, by_head: s.feature_enabled(Feature::HeadErrlog) })
    }

    /// The directory names the logs.
    async fn store(&self, s: &SyncTask) -> Result<()> {
        for ((name, now), before) in LOGS.into_iter().zip(self.now).zip(self.before) {
            if before.unwrap_or_default() != now {
                let value = objects::one(now.get());
                objects::set(s, DIRECTORY_OBJECT, &objects::name(name), &value).await?;
            }
        }
        Ok(())
    }

    async fn add(&mut self, s: &SyncTask, log: usize, at: &Bookmark, birth: Txg) -> Result<()> {
        if self.now[log].is_none() {
            self.now[log] = create(s).await?;
        }
        let (into, key) = match self.by_head {
            false => (self.now[log], old_key(at)),
            true => (log_of_head(s, self.now[log], head_of(s, at).await?).await?, head_key(at, birth)),
        };
        objects::set(s, into, &objects::name(&key), &nameless()).await
    }

    /// Forgets a block, of whichever head.
    async fn forget(&self, s: &SyncTask, at: &Bookmark, birth: Txg) -> Result<()> {
        for log in self.now.into_iter().filter(|log| !log.is_none()) {
            if !self.by_head {
                objects::remove(s, log, &objects::name(&old_key(at))).await?;
                continue;
            }
            let head = objects::number(head_of(s, at).await?.get());
            if let Some(below) = objects::lookup(s, log, &head).await? {
                objects::remove(s, ObjectId(below), &objects::name(&head_key(at, birth))).await?;
            }
        }
        Ok(())
    }

    async fn delete(&self, s: &SyncTask, log: usize) -> Result<()> {
        let log = self.now[log];
        if log.is_none() {
            return Ok(());
        }
        if self.by_head {
            for (_, below) in objects::entries(s, log).await? {
                objects::free_object(s, ObjectId(below)).await?;
            }
        }
        objects::free_object(s, log).await
    }
}

async fn create(s: &SyncTask) -> Result<ObjectId> {
    objects::create_zap(s, NewZap::of(DmuType::ERROR_LOG)).await
}

/// The log of a head below a log.
async fn log_of_head(s: &SyncTask, log: ObjectId, head: ObjsetId) -> Result<ObjectId> {
    let key = objects::number(head.get());
    if let Some(below) = objects::lookup(s, log, &key).await? {
        return Ok(ObjectId(below));
    }
    let below = create(s).await?;
    objects::add(s, log, &key, &objects::one(below.get())).await?;
    Ok(below)
}

/// The head of the dataset that a block belongs to; the dataset itself if it is no more, and 0 for the MOS.
async fn head_of(s: &SyncTask, at: &Bookmark) -> Result<ObjsetId> {
    let itself = ObjsetId(at.objset);
    if itself == ObjsetId::MOS || s.mos().object(ObjectId(at.objset)).await.is_err() {
        return Ok(itself);
    }
    let head = async {
        Ok(objects::dir(s, objects::dataset(s, ObjectId(at.objset)).await?.dir).await?.head_dataset)
    };
    let head: Result<ObjectId> = head.await;
    match head {
        Ok(head) if !head.is_none() => Ok(ObjsetId(head.get())),
        Ok(_) | Err(Error::NotFound(_)) => Ok(itself),
        Err(error) if error.is_damage() => Ok(itself),
        Err(other) => Err(other),
    }
}

fn old_key(at: &Bookmark) -> String {
    let (objset, object) = (ObjsetId(at.objset), ObjectId(at.object));
    ErrorBookmark { objset, object, level: at.level, block: BlockId(at.blkid) }.encode()
}

fn head_key(at: &Bookmark, birth: Txg) -> String {
    HeadError { object: ObjectId(at.object), level: at.level, block: BlockId(at.blkid), birth }.encode()
}

/// The value of an entry: a name that is not known.
fn nameless() -> ZapValue {
    ZapValue::U8(vec![0])
}
