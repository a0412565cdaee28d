//! Changing ZAPs.
//!
//! # The idea
//! Each change first reads the blocks that it needs into a `draft`: copies of the few blocks that it touches.
//! Only when the change is certain to succeed, the new blocks go into the object, in one step without waiting
//! in between. So a change that fails, or whose future is dropped, leaves the ZAP unchanged. Functions on
//! bytes change the format itself: [`ondisk::zap::LeafMut`] for leaves, `MicroEntry` for micro ZAPs. This
//! module decides which block to change, when leaves split, and how the pointer table grows.
//!
//! | change | blocks written |
//! |---|---|
//! | entry of a micro ZAP | 64 bytes of block 0 |
//! | entry of a fat ZAP added, removed | its leaf; block 0, which counts entries |
//! | value replaced | its leaf |
//! | leaf full | both halves, block 0 and the part of the pointer table that leads to them |
//! | pointer table full | the new table, twice as large; the old one becomes a hole |
//! | last entry of two sibling leaves removed | one of them, the pointers to the other, which becomes a hole |
//!
//! # When micro becomes fat
//! A micro ZAP becomes fat in four cases: a value is not one 64-bit number; a name has more than 49 bytes;
//! more names share a hash than fit into one leaf; or the block, which grows by 512 bytes at a time, would
//! exceed 128 KiB. The hashes of entries and their collision differentiators stay, and so do the cookies of
//! walks.
//!
//! # Concurrent calls
//! There must be none: the caller orders changes of one ZAP, and reads of it during changes, by the locks of
//! directories. Only one task at a time changes the MOS anyway.
//!
//! Source: behaviour of OpenZFS 2.3 `zap_micro.c`, `zap.c`, `zap_leaf.c`.

mod draft;
mod fat;
mod micro;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use ondisk::dmu::DmuType;
use ondisk::zap::VALUE_MAX;

use super::{Key, Value};
use crate::dmu::{LiveObject, LiveObjset, NewObject};
use crate::error::{Error, Result};
use crate::txg::Tx;
use draft::{Changes, Source};

/// Blocks of a ZAP that many changes have in memory before they go into the object.
const MOST_BLOCKS: usize = 256;

/// The description of a new ZAP.
#[derive(Debug, Clone, Copy)]
pub struct NewZap {
    /// Type of its object.
    pub dmu_type: DmuType,
    /// Raw flags (`ZapFlags`): 0 for most; with flags it is fat from the beginning.
    pub flags: u64,
    /// Normalization of names (`U8_*` bits), 0 for none.
    pub normalization: u64,
    /// The initial number of bytes in a block of a micro ZAP; it grows up to 128 KiB before it becomes fat.
    /// With flags: bytes in every block, a power of two.
    pub micro_block_bytes: u32,
}

impl NewZap {
    /// An ordinary ZAP of metadata.
    pub fn of(dmu_type: DmuType) -> Self {
        Self { dmu_type, flags: 0, normalization: 0, micro_block_bytes: 512 }
    }
}

/// Creates a ZAP.
pub async fn create(objset: &Arc<LiveObjset>, tx: &Tx, new: NewZap) -> Result<Arc<LiveObject>> {
    let object = objset.allocate(tx, new.object()).await?;
    initialize(&object, tx, new).await?;
    Ok(object)
}

impl NewZap {
    /// The object for the ZAP, without a bonus.
    pub fn object(&self) -> NewObject {
        NewObject {
            dmu_type: self.dmu_type,
            block_size: self.micro_block_bytes,
            bonus_type: DmuType::NONE,
            bonus: Vec::new(),
            slots: 1,
        }
    }
}

/// Makes an object that was just created, or that has no data yet, a ZAP (`mzap_create_impl`; also for
/// `dmu_object_zapify`).
pub async fn initialize(object: &Arc<LiveObject>, tx: &Tx, new: NewZap) -> Result<()> {
    let changes = draft::initialize(object, new, salt(object, tx))?;
    commit(object, tx, changes).await
}

/// The value under a key.
pub async fn lookup(object: &Arc<LiveObject>, key: &Key) -> Result<Option<Value>> {
    draft::lookup(object, key).await
}

/// The values under many keys, in the order of the keys. Each block is read once, `at_once` of them side by
/// side.
pub async fn lookup_many(
    object: &Arc<LiveObject>,
    keys: &[Key],
    at_once: usize,
) -> Result<Vec<Option<Value>>> {
    draft::lookup_many(object, keys, at_once.max(1)).await
}

/// One of many changes.
#[derive(Debug, Clone)]
pub enum Edit {
    /// A new entry.
    Insert(Key, Value),
    /// An entry, whether it exists or not.
    Set(Key, Value),
    /// An entry that exists goes.
    Remove(Key),
}

impl Edit {
    /// The key of the entry.
    pub fn key(&self) -> &Key {
        match self {
            Self::Insert(key, _) | Self::Set(key, _) | Self::Remove(key) => key,
        }
    }
}

/// Makes many changes. In the order of hashes those of one leaf cost little more than one of them does: the
/// leaf is copied once.
///
/// # Errors
/// A new entry exists, or one that goes does not. Some of the changes may be made.
pub async fn edit_many(object: &Arc<LiveObject>, tx: &Tx, mut edits: &[Edit]) -> Result<()> {
    while !edits.is_empty() {
        let (done, changes) = draft::edit_many(object, edits, MOST_BLOCKS).await?;
        commit(object, tx, changes).await?;
        edits = edits.get(done..).unwrap_or_default();
    }
    Ok(())
}

/// The number under a name; an error when its value is anything but one integer.
pub async fn lookup_u64(object: &Arc<LiveObject>, name: impl AsRef<[u8]>) -> Result<Option<u64>> {
    let name = name.as_ref();
    let Some(value) = lookup(object, &Key::Name(name.to_vec())).await? else {
        return Ok(None);
    };
    let number = value.as_u64().ok_or_else(|| {
        let name = String::from_utf8_lossy(name);
        Error::corrupt(object.describe(), format!("{name:?} has {} integers, expected one", value.len()))
    });
    number.map(Some)
}

/// The number of entries, according to the ZAP.
pub async fn count(object: &Arc<LiveObject>) -> Result<u64> {
    draft::count(object).await
}

/// Adds an entry. Returns false, without a change, when the key exists.
pub async fn insert(object: &Arc<LiveObject>, tx: &Tx, key: &Key, value: &Value) -> Result<bool> {
    put(object, tx, key, value, false).await
}

/// Sets an entry, whether it exists or not.
pub async fn set(object: &Arc<LiveObject>, tx: &Tx, key: &Key, value: &Value) -> Result<()> {
    put(object, tx, key, value, true).await.map(|_| ())
}

/// Sets the number under a name.
pub async fn set_u64(object: &Arc<LiveObject>, tx: &Tx, name: impl AsRef<[u8]>, number: u64) -> Result<()> {
    set(object, tx, &Key::Name(name.as_ref().to_vec()), &Value::U64(vec![number])).await
}

/// Adds to the number under a key. A missing key counts as 0, and a key whose number becomes 0 is removed
/// (`zap_increment`). Returns the sum.
pub async fn add(object: &Arc<LiveObject>, tx: &Tx, key: &Key, delta: i64) -> Result<u64> {
    let old = lookup(object, key).await?.and_then(|value| value.as_u64()).unwrap_or(0);
    let sum = old.wrapping_add_signed(delta);
    if sum == 0 {
        remove(object, tx, key).await?;
    } else if delta != 0 {
        set(object, tx, key, &Value::U64(vec![sum])).await?;
    }
    Ok(sum)
}

/// Removes an entry. Returns false when it does not exist.
pub fn remove<'a>(object: &'a Arc<LiveObject>, tx: &'a Tx, key: &'a Key) -> BoxFuture<'a, Result<bool>> {
    Box::pin(async move {
        match draft::remove(object, key).await? {
            Some(changes) => commit(object, tx, changes).await.map(|()| true),
            None => Ok(false),
        }
    })
}

fn put<'a>(
    object: &'a Arc<LiveObject>,
    tx: &'a Tx,
    key: &'a Key,
    value: &'a Value,
    replace: bool,
) -> BoxFuture<'a, Result<bool>> {
    Box::pin(async move {
        match draft::put(object, key, value, replace).await? {
            Some(changes) => commit(object, tx, changes).await.map(|()| true),
            None => Ok(false),
        }
    })
}

/// Puts the changed blocks into the object. From the first to the last of them there is no wait.
fn commit<'a>(object: &'a Arc<LiveObject>, tx: &'a Tx, changes: Changes) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        match changes {
            Changes::Patch { offset, bytes } => object.write_at(tx, offset, &bytes).await,
            Changes::Blocks { block_bytes, written, freed } => {
                if object.block_size() != u64::from(block_bytes) {
                    object.set_block_size(tx, block_bytes).await?;
                }
                for (id, block) in written {
                    object.write_block(tx, id, block.into());
                }
                for range in freed {
                    let size = u64::from(block_bytes);
                    object.punch(tx, range.start * size, (range.end - range.start) * size).await?;
                }
                Ok(())
            }
        }
    })
}

/// The salt of a new ZAP's hashes: a different value for each ZAP, and the same when a sequence of changes is
/// repeated. Never 0.
fn salt(object: &LiveObject, tx: &Tx) -> u64 {
    let seed = object.id().0 << 32 ^ object.objset().id().0 << 56 ^ tx.txg().get();
    mix(seed) | 1
}

/// Spreads the bits of a number over all 64 (the finalizer of MurmurHash3).
fn mix(mut bits: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        bits = (bits ^ bits >> 33).wrapping_mul(factor);
    }
    bits ^ bits >> 33
}

impl Source for Arc<LiveObject> {
    fn block_bytes(&self) -> u64 {
        self.block_size()
    }

    async fn block(&self, id: u64) -> Result<Option<crate::dmu::OrderedBlock>> {
        LiveObject::block(self, id).await
    }

    fn is_directory(&self) -> bool {
        self.dnode().dmu_type == DmuType::DIRECTORY_CONTENTS
    }

    fn describe(&self) -> String {
        format!("ZAP in objset {}, object {}", self.objset().id(), self.id())
    }
}

/// The longest name without its NUL: the feature `longname` allows more in directories.
const fn longest_name(is_directory: bool) -> usize {
    if is_directory { 1023 } else { 255 }
}

/// Refuses keys and values that no ZAP can hold.
fn check(source: &impl Source, key: &Key, value: &Value) -> Result<()> {
    match key {
        Key::Name(name) => {
            let limit = if name.len() > longest_name(false) {
                longest_name(source.is_directory())
            } else {
                name.len()
            };
            if name.is_empty() || name.contains(&0) || name.len() > limit {
                return Err(Error::Invalid(format!("{}: a name of {} bytes", source.describe(), name.len())));
            }
        }
        Key::Words(words) => {
            if words.is_empty() || words.len() > longest_name(false) / 8 {
                return Err(Error::Invalid(format!("{}: a key of {} words", source.describe(), words.len())));
            }
        }
    }
    let bytes = value.len() * value.integer_size();
    if bytes > VALUE_MAX {
        return Err(Error::Invalid(format!("{}: a value of {bytes} bytes", source.describe())));
    }
    Ok(())
}
