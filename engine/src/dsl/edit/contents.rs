//! What new object sets begin with, and what is asked of those that are there.

use std::sync::Arc;

use futures_util::FutureExt;
use ondisk::ObjsetId;
use ondisk::blkptr::{Blkptr, LARGE_BLOCK_BYTES};
use ondisk::features::Feature;
use ondisk::objset::ObjsetType;
use ondisk::pool_version;
use ondisk::zil::ZilHeader;
use ondisk::zpl::{MASTER_NODE, master};

use super::create::{NewContents, NewDataset};
use super::properties::{Assignment, assigned};
use super::{FoundHead, account, clone, features, objects};
use crate::Bookmark;
use crate::dmu::zap::{Zap, edit};
use crate::dmu::{LiveObjset, Objset};
use crate::dsl::SyncTask;
use crate::error::{Error, Result};
use crate::properties::set::ZplProperties;
use crate::properties::{Prop, Value};
use crate::zil;
use crate::zpl::CaseSensitivity;
use crate::zpl::attr::Time;
use crate::zpl::create::{NewFilesystem, create_filesystem};
use crate::zvol::Zvol;
use crate::zvol::create::create_volume;

/// What new filesystems are like unless the caller says otherwise (`zfs_create_fs`).
const ROOT_MODE: u32 = 0o755;
/// The first version of filesystems that compare names by anything but their bytes
/// (`ZPL_VERSION_NORMALIZATION`).
const NORMALIZATION_VERSION: u64 = 3;

async fn open(s: &SyncTask, head: &FoundHead) -> Result<Arc<Objset>> {
    let id = ObjsetId(head.object.get());
    Objset::open_without_key(s.pool(), id, &head.phys.bp).await
}

/// What a head's object set is for.
pub(super) async fn kind(s: &SyncTask, head: &FoundHead) -> Result<ObjsetType> {
    match head.phys.bp.is_hole() {
        true => Ok(ObjsetType::None),
        false => Ok(open(s, head).await?.objset_type()),
    }
}

/// Whether a head has an intent log on disk.
pub(super) async fn has_log(s: &SyncTask, head: &FoundHead) -> Result<bool> {
    Ok(!log_header(s, head).await?.log.is_hole())
}

/// Whether a head says anything of an intent log, one that is over too.
pub(super) async fn has_header_of_log(s: &SyncTask, head: &FoundHead) -> Result<bool> {
    Ok(log_header(s, head).await? != ZilHeader::default())
}

/// Frees the intent log of a head whose key is not loaded, and takes it out of the head's contents: for a
/// head that goes in the same change.
pub(super) async fn give_up_log(s: &SyncTask, head: &FoundHead) -> Result<()> {
    let header = log_header(s, head).await?;
    if header.log.is_hole() {
        return Ok(());
    }
    let objset = head.object.get();
    let at = Bookmark { level: Bookmark::LEVEL_ZIL, ..Bookmark::objset_root(objset) };
    let read = |bp: Blkptr| async move { s.pool().read_raw(&bp, &at).await }.boxed();
    let held = zil::held(&header, read).await;
    for bp in held.blocks.iter().chain(&held.referred) {
        s.writer().free(s.txg(), bp).await?;
    }
    account::free(s, &held.clones).await?;
    clone::forget_log(s, head.object).await
}

async fn log_header(s: &SyncTask, head: &FoundHead) -> Result<ZilHeader> {
    if head.phys.bp.is_hole() {
        return Ok(ZilHeader::default());
    }
    let objset = open(s, head).await?;
    let header = ZilHeader::parse(&objset.phys().zil_header, objset.phys().order);
    header.map_err(|error| Error::corrupt(&head.name, error))
}

/// Size and block size of a volume, in bytes.
pub(super) async fn volume_size(s: &SyncTask, head: &FoundHead) -> Result<(u64, u64)> {
    let volume = Zvol::open(&open(s, head).await?).await?;
    Ok((volume.size(), volume.block_size()))
}

/// How names are in a new filesystem whose properties do not say it, and what quotas its users have: as in
/// its parent.
pub(super) async fn inherit_contents(
    s: &SyncTask,
    parent: &FoundHead,
    new: &NewDataset,
    plan: &mut Vec<Assignment>,
) -> Result<()> {
    if !matches!(new.contents, NewContents::Filesystem) {
        return Ok(());
    }
    let master_node = open(s, parent).await?.object(MASTER_NODE).await?;
    let names = Zap::open(&master_node).await?;
    for (prop, key) in [
        (Prop::Casesensitivity, master::CASESENSITIVITY),
        (Prop::Normalization, master::NORMALIZATION),
        (Prop::Utf8only, master::UTF8ONLY),
    ] {
        if assigned(plan, prop).is_some() {
            continue;
        }
        let value = names.lookup_u64(key).await?.unwrap_or_else(|| prop.desc().default_number());
        if prop.desc().knows_index(value) == Some(false) {
            return Err(Error::corrupt(&parent.name, format!("its {key} is {value:#x}")));
        }
        plan.push(Assignment::of(prop, Value::Number(value)));
    }
    for prop in ZplProperties::DEFAULT_QUOTAS {
        if assigned(plan, prop).is_none()
            && let Some(quota) = names.lookup_u64(prop.desc().name).await?
        {
            plan.push(Assignment::of(prop, Value::Number(quota)));
        }
    }
    Ok(())
}

/// The version of a filesystem.
pub(super) async fn version(s: &SyncTask, head: &FoundHead) -> Result<u64> {
    let master_node = open(s, head).await?.object(MASTER_NODE).await?;
    Zap::open(&master_node).await?.require_u64(master::VERSION).await
}

/// Fills a new object set.
pub(super) async fn fill(
    s: &SyncTask,
    objset: &Arc<LiveObjset>,
    new: &NewDataset,
    plan: &[Assignment],
) -> Result<()> {
    let number = |prop: Prop| assigned(plan, prop).unwrap_or_else(|| prop.desc().default_number());
    match new.contents {
        NewContents::Filesystem => {
            let case = match number(Prop::Casesensitivity) {
                0 => CaseSensitivity::Sensitive,
                1 => CaseSensitivity::Insensitive,
                _ => CaseSensitivity::Mixed,
            };
            let normalization = number(Prop::Normalization);
            let newest = pool_version::newest_filesystem(s.version());
            let version = assigned(plan, Prop::Version).unwrap_or(newest);
            if version < NORMALIZATION_VERSION && (normalization != 0 || case != CaseSensitivity::Sensitive) {
                return Err(Error::Invalid(format!(
                    "'normalization' and 'casesensitivity' need version {NORMALIZATION_VERSION} or newer"
                )));
            }
            let now = Time { seconds: i64::try_from(s.now()).unwrap_or(i64::MAX), nanoseconds: 0 };
            let (uid, gid) = s.owner();
            let filesystem = NewFilesystem {
                uid,
                gid,
                mode: ROOT_MODE,
                version,
                // Names that are compared by normal forms must have some.
                utf8_only: normalization != 0 || number(Prop::Utf8only) != 0,
                normalization,
                case,
                now,
            };
            let mut counting = vec![Feature::UserobjAccounting, Feature::ProjectQuota];
            counting.retain(|feature| s.feature_enabled(*feature));
            let counts = |feature| counting.contains(&feature);
            objset.count_also(counts(Feature::UserobjAccounting), counts(Feature::ProjectQuota));
            features::activate_all(s, ondisk::ObjectId(objset.id().get()), &counting).await?;
            create_filesystem(objset, &s.tx, &filesystem).await?;
            let master_node = objset.object(MASTER_NODE).await?;
            for prop in ZplProperties::DEFAULT_QUOTAS {
                let quota = number(prop);
                if quota != 0 {
                    edit::set_u64(&master_node, &s.tx, prop.desc().name, quota).await?;
                }
            }
            if case == CaseSensitivity::Insensitive {
                let head = ondisk::ObjectId(objset.id().get());
                objects::change_dataset(s, head, |head| {
                    head.flags |= ondisk::dsl_dataset::FLAG_CI_DATASET;
                })
                .await?;
            }
            Ok(())
        }
        NewContents::Volume { size, .. } => {
            let block = number(Prop::Volblocksize);
            let bytes = u32::try_from(block).map_err(|_| Error::Invalid("'volblocksize'".to_owned()))?;
            create_volume(objset, &s.tx, size, bytes).await?;
            if block > LARGE_BLOCK_BYTES {
                let head = ondisk::ObjectId(objset.id().get());
                features::activate_all(s, head, &[Feature::LargeBlocks]).await?;
            }
            Ok(())
        }
    }
}
