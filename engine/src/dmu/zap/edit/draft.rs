//! One change of a ZAP before it goes into its object.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::{Deref, Range};

use device::IoBuf;
use futures_util::{StreamExt, TryStreamExt, stream};
use ondisk::ByteOrder;
use ondisk::zap::{FatHeader, MicroZap, ZapFlags, ZapKind};

use super::fat::Fat;
use super::{Edit, NewZap, check, micro};
use crate::Block;
use crate::dmu::OrderedBlock;
use crate::dmu::zap::normalize::NameRules;
use crate::dmu::zap::{Key, Value};
use crate::error::{Error, Result};

/// The source of the blocks of a ZAP.
pub(super) trait Source: Sync {
    /// Bytes in a block.
    fn block_bytes(&self) -> u64;
    /// A block; `None` for a hole.
    fn block(&self, id: u64) -> impl Future<Output = Result<Option<OrderedBlock>>> + Send;
    /// Whether it holds a directory, whose names may be longer.
    fn is_directory(&self) -> bool;
    /// The ZAP, for messages.
    fn describe(&self) -> String;
}

/// The changes to make in the object.
#[derive(Debug)]
pub(super) enum Changes {
    /// A few bytes in block 0.
    Patch { offset: u64, bytes: Vec<u8> },
    /// Whole blocks.
    Blocks {
        /// The new number of bytes in a block. It changes only while there is no block but the first.
        block_bytes: u32,
        written: BTreeMap<u64, IoBuf>,
        /// Blocks that become holes.
        freed: Vec<Range<u64>>,
    },
}

/// A ZAP with the changes of one operation.
pub(super) struct Draft<'a, S> {
    pub(super) source: &'a S,
    pub(super) block_bytes: u32,
    changed: BTreeMap<u64, IoBuf>,
    pub(super) freed: Vec<Range<u64>>,
}

/// A block in its state in the draft.
pub(super) enum Peek<'a> {
    Changed(&'a [u8]),
    Kept(Block),
}

impl Deref for Peek<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Peek::Changed(bytes) => bytes,
            Peek::Kept(block) => block,
        }
    }
}

impl<'a, S: Source> Draft<'a, S> {
    pub(super) fn new(source: &'a S) -> Self {
        let block_bytes = source.block_bytes().min(u64::from(u32::MAX)) as u32;
        Self { source, block_bytes, changed: BTreeMap::new(), freed: Vec::new() }
    }

    pub(super) fn corrupt(&self, error: impl std::fmt::Display) -> Error {
        Error::corrupt(self.source.describe(), error)
    }

    /// A block to look at.
    pub(super) async fn peek(&self, id: u64) -> Result<Peek<'_>> {
        match self.changed.get(&id) {
            Some(bytes) => Ok(Peek::Changed(bytes)),
            None => self.read(id).await.map(Peek::Kept),
        }
    }

    async fn read(&self, id: u64) -> Result<Block> {
        let Some(found) = self.source.block(id).await? else {
            return Err(self.corrupt(format!("block {id} is a hole")));
        };
        if found.order != ByteOrder::Little {
            let what = self.source.describe();
            return Err(Error::Unsupported(format!(
                "{what}: written by a big-endian machine, cannot be changed"
            )));
        }
        if found.block.len() != self.block_bytes as usize {
            return Err(self.corrupt(format!("block {id} has {} bytes", found.block.len())));
        }
        Ok(found.block)
    }

    /// A block to change.
    pub(super) async fn edit(&mut self, id: u64) -> Result<&mut IoBuf> {
        if !self.changed.contains_key(&id) {
            let block = self.read(id).await?;
            self.changed.insert(id, IoBuf::from(&*block));
        }
        self.changed.get_mut(&id).ok_or_else(|| Error::Invalid("a block that was just read".into()))
    }

    /// Block `id` becomes this.
    pub(super) fn write(&mut self, id: u64, block: IoBuf) {
        self.changed.insert(id, block);
    }

    /// Block `id` becomes zeroes.
    pub(super) fn fresh(&mut self, id: u64) -> &mut IoBuf {
        let block = IoBuf::zeroed(self.block_bytes as usize);
        self.changed.entry(id).insert_entry(block).into_mut()
    }

    /// Block `id` becomes a hole.
    pub(super) fn free(&mut self, blocks: Range<u64>) {
        for id in blocks.clone() {
            self.changed.remove(&id);
        }
        self.freed.push(blocks);
    }

    pub(super) fn finish(self) -> Changes {
        Changes::Blocks { block_bytes: self.block_bytes, written: self.changed, freed: self.freed }
    }

    /// The kind of the ZAP, with the header when it is fat.
    async fn kind(&self) -> Result<Option<Fat>> {
        let block = self.peek(0).await?;
        let order = ByteOrder::Little;
        match ZapKind::of(&block, order).map_err(|error| self.corrupt(error))? {
            ZapKind::Micro => Ok(None),
            ZapKind::Fat => {
                let header = FatHeader::parse(&block, order).map_err(|error| self.corrupt(error))?;
                let rules = rules(self.source, header.normalization)?;
                Ok(Some(Fat { header, rules }))
            }
        }
    }
}

/// How names of a ZAP are made comparable.
pub(super) fn rules(source: &impl Source, normalization: u64) -> Result<NameRules> {
    NameRules::from_flags(normalization).ok_or_else(|| {
        Error::corrupt(source.describe(), format!("normalization flags {normalization:#x} are unknown"))
    })
}

/// The blocks of an empty ZAP.
pub(super) fn initialize(source: &impl Source, new: NewZap, salt: u64) -> Result<Changes> {
    rules(source, new.normalization)?;
    let mut draft = Draft::new(source);
    if new.flags == 0 {
        let size = draft.block_bytes as usize;
        let block = MicroZap::encode(size, ByteOrder::Little, salt, new.normalization, &[])
            .map_err(|error| draft.corrupt(error))?;
        draft.write(0, IoBuf::from(&*block));
    } else {
        Fat::create(&mut draft, salt, new.normalization, ZapFlags(new.flags))?;
    }
    Ok(draft.finish())
}

/// The value under a key.
pub(super) async fn lookup(source: &impl Source, key: &Key) -> Result<Option<Value>> {
    let draft = Draft::new(source);
    match draft.kind().await? {
        Some(fat) => fat.lookup(&draft, key).await,
        None => micro::lookup(&draft, key).await,
    }
}

/// The number of entries.
pub(super) async fn count(source: &impl Source) -> Result<u64> {
    let draft = Draft::new(source);
    match draft.kind().await? {
        Some(fat) => Ok(fat.header.entries),
        None => {
            let block = draft.peek(0).await?;
            let micro = MicroZap::parse(&block, ByteOrder::Little).map_err(|error| draft.corrupt(error))?;
            Ok(micro.entries().count() as u64)
        }
    }
}

/// The values under many keys, in their order. Each leaf is read once, `at_once` leaves side by side.
pub(super) async fn lookup_many(
    source: &impl Source,
    keys: &[Key],
    at_once: usize,
) -> Result<Vec<Option<Value>>> {
    let draft = Draft::new(source);
    let mut values = vec![None; keys.len()];
    let Some(fat) = draft.kind().await? else {
        for (key, value) in keys.iter().zip(&mut values) {
            *value = micro::lookup(&draft, key).await?;
        }
        return Ok(values);
    };
    let leaves = fat.leaves_of(&draft, keys).await?;
    let (fat, draft) = (&fat, &draft);
    let found = stream::iter(leaves).map(|(leaf, of_leaf)| fat.lookup_in(draft, leaf, of_leaf, keys));
    let found: Vec<_> = found.buffer_unordered(at_once).try_collect().await?;
    for (number, found) in found.into_iter().flatten() {
        if let Some(value) = values.get_mut(number) {
            *value = found;
        }
    }
    Ok(values)
}

/// Makes some of many changes at once: the number of those that were made, from the first one on, and what
/// changes in the object. Each leaf among them is copied and written once.
///
/// # Errors
/// An entry is there that is to be new, or is not there that is to be removed. Nothing is changed then.
pub(super) async fn edit_many(
    source: &impl Source,
    edits: &[Edit],
    most_blocks: usize,
) -> Result<(usize, Changes)> {
    let mut draft = Draft::new(source);
    let mut fat = match draft.kind().await? {
        Some(fat) => fat,
        None => micro::upgrade(&mut draft).await?,
    };
    let mut done = 0;
    for edit in edits {
        // A block that becomes a hole must not be used again before it is one.
        if draft.changed.len() >= most_blocks || !draft.freed.is_empty() {
            break;
        }
        let is_as_it_should = match edit {
            Edit::Insert(key, value) => {
                check(source, key, value)?;
                fat.put(&mut draft, key, value, None, false).await?
            }
            Edit::Set(key, value) => {
                check(source, key, value)?;
                fat.put(&mut draft, key, value, None, true).await?
            }
            Edit::Remove(key) => fat.remove(&mut draft, key).await?,
        };
        if !is_as_it_should {
            let what = match edit {
                Edit::Remove(_) => "lacks an entry that should be in it",
                _ => "has an entry that should not be in it",
            };
            return Err(draft.corrupt(what));
        }
        done += 1;
    }
    Ok((done, draft.finish()))
}

/// Adds an entry, or changes it if `replace`. `None` when it exists and must stay.
pub(super) async fn put(
    source: &impl Source,
    key: &Key,
    value: &Value,
    replace: bool,
) -> Result<Option<Changes>> {
    check(source, key, value)?;
    let mut draft = Draft::new(source);
    let mut fat = match draft.kind().await? {
        Some(fat) => fat,
        None => match micro::put(&mut draft, key, value, replace).await? {
            micro::Put::Exists => return Ok(None),
            micro::Put::Done(changes) => return Ok(Some(changes)),
            micro::Put::TooSmall => micro::upgrade(&mut draft).await?,
        },
    };
    let done = fat.put(&mut draft, key, value, None, replace).await?;
    Ok(done.then(|| draft.finish()))
}

/// Removes an entry. `None` when it does not exist.
pub(super) async fn remove(source: &impl Source, key: &Key) -> Result<Option<Changes>> {
    let mut draft = Draft::new(source);
    match draft.kind().await? {
        None => micro::remove(&draft, key).await,
        Some(mut fat) => {
            let done = fat.remove(&mut draft, key).await?;
            Ok(done.then(|| draft.finish()))
        }
    }
}
