//! Micro ZAPs: one block of entries of 64 bytes.

use device::IoBuf;
use ondisk::ByteOrder;
use ondisk::zap::{LeafMut, MICRO_ENTRY_SIZE, MICRO_NAME_MAX, MicroEntry, MicroZap, ZapFlags};

use super::draft::{Changes, Draft, Source, rules};
use super::fat::Fat;
use crate::dmu::zap::normalize::NameRules;
use crate::dmu::zap::{Key, Value};
use crate::error::Result;

/// The limit of the size of a micro ZAP (`zap_micro_max_size` without the feature `large_microzap`).
const MAX_BYTES: u32 = 128 << 10;
/// Blocks grow by a sector at a time.
const STEP_BYTES: u32 = 512;
/// log2 of the size of a fat ZAP's blocks (`fzap_default_block_shift`).
const FAT_BLOCK_SHIFT: u32 = 14;
/// Chunks of a leaf that an entry of a micro ZAP can take: itself, three for the name, one for the value.
const CHUNKS_AS_LEAF_ENTRY: usize = 5;
/// Chunks in a leaf of 16 KiB.
const LEAF_CHUNKS: usize = 638;

/// The outcome of adding an entry.
pub(super) enum Put {
    /// The name exists, and its entry must stay.
    Exists,
    Done(Changes),
    /// The ZAP must become fat first.
    TooSmall,
}

/// The prepared name's hash.
fn hash(view: &MicroZap<'_>, rules: NameRules, name: &[u8]) -> u64 {
    if rules.is_exact() { view.hash_name(name) } else { view.hash_name(&rules.prepare(name)) }
}

pub(super) async fn lookup<S: Source>(draft: &Draft<'_, S>, key: &Key) -> Result<Option<Value>> {
    let Some(name) = key.name() else {
        return Ok(None);
    };
    let block = draft.peek(0).await?;
    let view = MicroZap::parse(&block, ByteOrder::Little).map_err(|error| draft.corrupt(error))?;
    Ok(view.lookup(name).map(|entry| Value::U64(vec![entry.value])))
}

pub(super) async fn put<S: Source>(
    draft: &mut Draft<'_, S>,
    key: &Key,
    value: &Value,
    replace: bool,
) -> Result<Put> {
    let Some(name) = key.name() else {
        let what = draft.source.describe();
        return Err(crate::Error::Invalid(format!("{what}: a key of numbers for a ZAP of names")));
    };
    let block = draft.peek(0).await?;
    let view = MicroZap::parse(&block, ByteOrder::Little).map_err(|error| draft.corrupt(error))?;
    let existing = view.find(name);
    if existing.is_some() && !replace {
        return Ok(Put::Exists);
    }
    let number = match value {
        Value::U64(words) if words.len() == 1 => words[0],
        _ => return Ok(Put::TooSmall),
    };
    if let Some((offset, _)) = existing {
        let bytes = number.to_le_bytes().to_vec();
        return Ok(Put::Done(Changes::Patch { offset: offset as u64, bytes }));
    }
    if name.len() > MICRO_NAME_MAX {
        return Ok(Put::TooSmall);
    }
    let rules = rules(draft.source, view.normalization)?;
    let wanted = hash(&view, rules, name);
    let (mut same, mut free) = (Vec::new(), None);
    for (offset, entry) in view.slots() {
        match entry {
            None => free = free.or(Some(offset)),
            Some(entry) if hash(&view, rules, entry.name) == wanted => same.push(entry.cd),
            Some(_) => {}
        }
    }
    if (same.len() + 1) * CHUNKS_AS_LEAF_ENTRY >= LEAF_CHUNKS {
        return Ok(Put::TooSmall);
    }
    same.sort_unstable();
    let cd = same.iter().fold(0, |free, cd| if *cd == free { free + 1 } else { free });
    let entry = MicroEntry { name, value: number, cd };
    let bytes = entry.encode(ByteOrder::Little).map_err(|error| draft.corrupt(error))?;
    if let Some(offset) = free {
        return Ok(Put::Done(Changes::Patch { offset: offset as u64, bytes: bytes.to_vec() }));
    }
    let old = draft.block_bytes;
    if old + STEP_BYTES > MAX_BYTES {
        return Ok(Put::TooSmall);
    }
    let mut grown = IoBuf::zeroed((old + STEP_BYTES) as usize);
    grown[..block.len()].copy_from_slice(&block);
    let place = block.len() / MICRO_ENTRY_SIZE * MICRO_ENTRY_SIZE;
    grown[place..place + MICRO_ENTRY_SIZE].copy_from_slice(&bytes);
    let written = [(0, grown)].into();
    Ok(Put::Done(Changes::Blocks { block_bytes: old + STEP_BYTES, written, freed: Vec::new() }))
}

pub(super) async fn remove<S: Source>(draft: &Draft<'_, S>, key: &Key) -> Result<Option<Changes>> {
    let Some(name) = key.name() else {
        return Ok(None);
    };
    let block = draft.peek(0).await?;
    let view = MicroZap::parse(&block, ByteOrder::Little).map_err(|error| draft.corrupt(error))?;
    let found = view.find(name);
    Ok(found.map(|(offset, _)| Changes::Patch { offset: offset as u64, bytes: vec![0; MICRO_ENTRY_SIZE] }))
}

/// Makes the ZAP a fat ZAP with the same entries.
pub(super) async fn upgrade<S: Source>(draft: &mut Draft<'_, S>) -> Result<Fat> {
    let block = draft.peek(0).await?.to_vec();
    let view = MicroZap::parse(&block, ByteOrder::Little).map_err(|error| draft.corrupt(error))?;
    draft.block_bytes = 1 << FAT_BLOCK_SHIFT;
    let mut fat = Fat::create(draft, view.salt, view.normalization, ZapFlags::default())?;
    for entry in view.entries() {
        let (key, value) = (Key::Name(entry.name.to_vec()), Value::U64(vec![entry.value]));
        if !fat.put(draft, &key, &value, Some(entry.cd), false).await? {
            return Err(draft.corrupt("two entries of one name"));
        }
    }
    Ok(fat)
}

/// Makes `block` an empty leaf for all hashes.
pub(super) fn first_leaf(block: &mut [u8], sorted: bool) -> ondisk::Result<()> {
    LeafMut::initialize(block, 0, 0, sorted).map(|_| ())
}
