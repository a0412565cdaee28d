//! The persistent error log: blocks known to be damaged, by dataset, object and path.
//!
//! The pool directory names two logs, of the last scrub and of one still running. Old logs name each block by
//! its object set. With the feature `head_errlog` a log names the head dataset and the transaction group in
//! which the block was born; the same block may also be in snapshots, and in clones of those, so that each
//! version of the dataset is asked whether it still points to a block of that birth. Objects are shown by
//! path where they are files. Source of the facts: OpenZFS 2.3 `spa_errlog.c`, `zfs_znode_os.c`,
//! `libzfs_pool.c`.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use ondisk::blkptr::Blkptr;
use ondisk::errlog::{ErrorBookmark, HeadError};
use ondisk::features::Feature;
use ondisk::objset::ObjsetType;
use ondisk::pool_directory::{self, DIRECTORY_OBJECT, parse_hex_key};
use ondisk::{BlockId, ObjectId, ObjsetId, Txg};

use crate::Bookmark;
use crate::dmu::Objset;
use crate::dsl::pool_features::Features;
use crate::dsl::{Dataset, Dsl};
use crate::error::{Error, Result};
use crate::zpl::{Zpl, ZplOptions};

/// More than a log can have: OpenZFS stops to remember long before.
const MAX_ERRORS: usize = 1 << 20;
/// Origins of a clone, before they are taken for a loop.
const MAX_ORIGINS: usize = 4096;

/// A damaged block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DamagedBlock {
    /// Object set; 0 is the MOS.
    pub objset: ObjsetId,
    /// Object.
    pub object: ObjectId,
    /// Level.
    pub level: i64,
    /// Block.
    pub block: BlockId,
}

/// All damaged blocks that the pool knows of, from its log and from reads that failed since it was opened, in
/// order.
///
/// With `head_errlog`, a block that no version of its dataset has any more is not damage: the log of a pool
/// that is open for writing forgets it.
pub async fn read(dsl: &Dsl) -> Result<Vec<DamagedBlock>> {
    let by_head = Features::load(dsl.mos()).await?.is_enabled(Feature::HeadErrlog);
    let mut found = BTreeSet::new();
    for (at, birth) in dsl.pool().damage().blocks() {
        match by_head {
            false => drop(found.insert(from_bookmark(at))),
            true => add_noted(dsl, at, birth, &mut found).await?,
        }
    }
    for name in [pool_directory::ERRLOG_SCRUB, pool_directory::ERRLOG_LAST] {
        let log = dsl.mos().u64(DIRECTORY_OBJECT, name).await?.unwrap_or(0);
        if log == 0 {
            continue;
        }
        let bad_key = |key: &str| Error::corrupt(format!("error log {name}"), format!("key {key:?}"));
        for (key, value) in dsl.mos().u64_entries(ObjectId(log)).await? {
            if !by_head {
                let error = ErrorBookmark::parse(key.as_bytes()).ok_or_else(|| bad_key(&key))?;
                let ErrorBookmark { objset, object, level, block } = error;
                found.insert(DamagedBlock { objset, object, level, block });
                continue;
            }
            let head = ObjectId(parse_hex_key(key.as_bytes()).ok_or_else(|| bad_key(&key))?);
            for (key, _) in dsl.mos().u64_entries(ObjectId(value)).await? {
                let error = HeadError::parse(key.as_bytes()).ok_or_else(|| bad_key(&key))?;
                add_known(dsl, head, &error, &mut found).await?;
            }
        }
        if found.len() > MAX_ERRORS {
            return Err(Error::corrupt(format!("error log {name}"), "more errors than a log can have"));
        }
    }
    Ok(found.into_iter().collect())
}

fn from_bookmark(at: Bookmark) -> DamagedBlock {
    DamagedBlock {
        objset: ObjsetId(at.objset),
        object: ObjectId(at.object),
        level: at.level,
        block: BlockId(at.blkid),
    }
}

/// Adds a block that could not be read since the pool was opened.
async fn add_noted(dsl: &Dsl, at: Bookmark, birth: Txg, found: &mut BTreeSet<DamagedBlock>) -> Result<()> {
    let head = match dsl.dataset_of_object(ObjectId(at.objset)).await {
        Ok(dataset) => dsl.dir_of_object(dataset.phys.dir).await?.phys.head_dataset,
        Err(_) => ObjectId::default(),
    };
    if head.is_none() {
        found.insert(from_bookmark(at));
        return Ok(());
    }
    let (object, block) = (ObjectId(at.object), BlockId(at.blkid));
    add_known(dsl, head, &HeadError { object, level: at.level, block, birth }, found).await
}

/// Adds a block of a head, in each dataset that has it. If none has it, the log may forget it.
async fn add_known(
    dsl: &Dsl,
    head: ObjectId,
    error: &HeadError,
    found: &mut BTreeSet<DamagedBlock>,
) -> Result<()> {
    if error.birth > dsl.pool().uberblock().txg {
        // The group that wrote it is not committed yet.
        let HeadError { object, level, block, .. } = *error;
        found.insert(DamagedBlock { objset: ObjsetId(head.get()), object, level, block });
        return Ok(());
    }
    if !add_versions(dsl, head, error, found).await? {
        let (objset, object, blkid) = (head.get(), error.object.get(), error.block.0);
        let at = Bookmark { objset, object, level: error.level, blkid };
        dsl.pool().damage().mended(&at, error.birth);
    }
    Ok(())
}

/// Adds a block of a head for each version of the dataset that still has it. Returns whether any has.
async fn add_versions(
    dsl: &Dsl,
    head: ObjectId,
    error: &HeadError,
    found: &mut BTreeSet<DamagedBlock>,
) -> Result<bool> {
    let block = |objset: ObjsetId| DamagedBlock {
        objset,
        object: error.object,
        level: error.level,
        block: error.block,
    };
    // Without a birth, or without a dataset, the block could not be looked up when it was noted either.
    if error.birth == Txg(0) || head.is_none() {
        found.insert(block(ObjsetId(head.0)));
        return Ok(true);
    }
    let mut is_there = false;
    let mut seen = HashSet::new();
    let mut heads = vec![oldest_with(dsl, head, error.birth).await?];
    while let Some(head) = heads.pop() {
        let head = match dsl.dataset_of_object(head).await {
            Ok(head) => head,
            Err(Error::NotFound(_)) => continue,
            Err(other) => return Err(other),
        };
        if !seen.insert(head.object) {
            continue;
        }
        let snapshots = dsl.snapshots(&head).await?;
        for version in snapshots.iter().chain([&head]) {
            let born_later = version.is_snapshot() && version.phys.creation_txg < error.birth;
            if born_later || !has_block(dsl, version, error).await {
                continue;
            }
            is_there = true;
            found.insert(block(version.objset_id()));
            for clone in dsl.clones(version).await? {
                heads.push(dsl.find(&clone).await?.object);
            }
        }
    }
    Ok(is_there)
}

/// The oldest head that may have a block of this birth: a clone has it from its origin if that is not older
/// (`find_top_affected_fs`).
async fn oldest_with(dsl: &Dsl, head: ObjectId, birth: Txg) -> Result<ObjectId> {
    let mut at = head;
    for _ in 0..MAX_ORIGINS {
        let Ok(dataset) = dsl.dataset_of_object(at).await else { break };
        let origin = dsl.dir_of_object(dataset.phys.dir).await?.phys.origin;
        if origin.is_none() {
            break;
        }
        let origin = dsl.dataset_of_object(origin).await?;
        if origin.phys.creation_txg < birth {
            break;
        }
        at = dsl.dir_of_object(origin.phys.dir).await?.phys.head_dataset;
    }
    Ok(at)
}

/// Whether a version of a dataset has the block of this birth in this place: OpenZFS 2.3 notes the logical
/// birth, 2.4 the physical one. If a head cannot be searched, it counts as having the block, because what
/// leads to the block may be as damaged as the block.
async fn has_block(dsl: &Dsl, version: &Dataset, error: &HeadError) -> bool {
    let is_it = |pointer: &Blkptr| [pointer.logical_birth(), pointer.physical_birth()].contains(&error.birth);
    if error.level == Bookmark::LEVEL_ROOT {
        return is_it(&version.phys.bp);
    }
    let objset = version.objset_id();
    let at = Bookmark {
        objset: objset.get(),
        object: error.object.get(),
        level: error.level,
        blkid: error.block.0,
    };
    let pointer = async {
        let objset = Objset::open_without_key(dsl.pool(), objset, &version.phys.bp).await?;
        objset.pointer_of(&at).await
    };
    match pointer.await {
        Ok(pointer) => pointer.as_ref().is_some_and(is_it),
        Err(Error::NotFound(_)) => false,
        Err(_) => !version.is_snapshot(),
    }
}

/// The bytes of a file or volume that a block has, or that are below it; `None` for other blocks, and where
/// the object cannot be looked at.
pub async fn bytes_of(dsl: &Dsl, block: &DamagedBlock) -> Option<Range<u64>> {
    let is_data = block.objset != ObjsetId::MOS && !block.object.is_none();
    let level =
        u64::try_from(block.level).ok().filter(|_| is_data && block.block.0 != Bookmark::BLKID_SPILL)?;
    let dataset = dsl.dataset_of_object(ObjectId(block.objset.0)).await.ok()?;
    let object = dsl.open_objset(&dataset).await.ok()?.object(block.object).await.ok()?;
    // A block pointer has 128 bytes.
    let shift = u64::from(object.dnode().indirect_block_shift.saturating_sub(7)).checked_mul(level)?;
    let blocks = 1u64.checked_shl(u32::try_from(shift).ok()?)?;
    let bytes = object.block_size().checked_mul(blocks)?;
    let start = bytes.checked_mul(block.block.0)?;
    Some(start..start.checked_add(bytes)?)
}

/// What `zpool status -v` calls an object: `dataset:/path` (with its mountpoint in place of the dataset where
/// `mountpoint` knows one), `dataset:<0x…>` where it is no file, `<metadata>:<0x…>` in the MOS.
pub async fn describe(
    dsl: &Dsl,
    block: &DamagedBlock,
    mountpoint: &(dyn Fn(&str) -> Option<String> + Sync),
) -> String {
    let DamagedBlock { objset, object, .. } = *block;
    if objset == ObjsetId::MOS {
        return format!("<metadata>:<{:#x}>", object.0);
    }
    let Ok(dataset) = dsl.dataset_of_object(ObjectId(objset.0)).await else {
        return format!("<{:#x}>:<{:#x}>", objset.0, object.0);
    };
    match path_of(dsl, &dataset, object).await {
        Ok(Some(path)) => match mountpoint(&dataset.name) {
            Some(mountpoint) => format!("{mountpoint}{path}"),
            None => format!("{}:{path}", dataset.name),
        },
        _ => format!("{}:<{:#x}>", dataset.name, object.0),
    }
}

/// The path of a file from the root of its filesystem; `None` where the object is no file, or in no
/// directory.
async fn path_of(dsl: &Dsl, dataset: &Dataset, object: ObjectId) -> Result<Option<String>> {
    let objset = dsl.open_objset(dataset).await?;
    if objset.objset_type() != ObjsetType::Zfs {
        return Ok(None);
    }
    let zpl = Zpl::open(&objset, ZplOptions::default()).await?;
    let path = zpl.path_of(object).await?;
    Ok(path.map(|path| String::from_utf8_lossy(&path).into_owned()))
}
