//! Finding one entry of a ZAP.

use ondisk::ByteOrder;
use ondisk::zap::{Leaf, LeafEntry};

use super::normalize::NameRules;
use super::{Fat, Kind, Value, Zap};
use crate::dmu::OrderedBlock;
use crate::{Block, Error, Result};

/// When two names with different bytes count as the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// When they are equal after the ZAP prepares them.
    Normalized,
    /// When they are, and also agree in case.
    NormalizedCase,
}

/// An entry found by a name that may differ from its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The name as it is stored.
    pub name: Vec<u8>,
    /// The value.
    pub value: Value,
}

impl Zap {
    /// The value of exactly this name.
    pub async fn lookup(&self, name: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let name = name.as_ref();
        match &self.kind {
            Kind::Micro(micro) => {
                let view = micro.view().map_err(|error| self.corrupt(error))?;
                Ok(view.lookup(name).map(|entry| Value::U64(vec![entry.value])))
            }
            Kind::Fat(fat) => {
                let value = |entry: Option<LeafEntry<'_>>| entry.map(|entry| entry.value()).transpose();
                self.in_leaf(fat, self.hash(fat, name)?, |leaf, hash| leaf.lookup(hash, name).and_then(value))
                    .await
            }
        }
    }

    /// The number of exactly this name; an error when the value is anything but one integer.
    pub async fn lookup_u64(&self, name: impl AsRef<[u8]>) -> Result<Option<u64>> {
        let name = name.as_ref();
        if let Kind::Micro(micro) = &self.kind {
            let view = micro.view().map_err(|error| self.corrupt(error))?;
            return Ok(view.lookup(name).map(|entry| entry.value));
        }
        let Some(value) = self.lookup(name).await? else {
            return Ok(None);
        };
        let single = value.as_u64().ok_or_else(|| {
            self.corrupt(format!(
                "{:?} has {} integers, expected one",
                String::from_utf8_lossy(name),
                value.len()
            ))
        });
        single.map(Some)
    }

    /// The number of exactly this name, which must be there.
    pub async fn require_u64(&self, name: &str) -> Result<u64> {
        let found = self.lookup_u64(name).await?;
        found.ok_or_else(|| self.corrupt(format!("no entry {name:?}")))
    }

    /// The value of exactly this key of numbers.
    pub async fn lookup_words(&self, key: &[u64]) -> Result<Option<Value>> {
        match &self.kind {
            Kind::Micro(_) => Ok(None),
            Kind::Fat(fat) => {
                let value = |entry: Option<LeafEntry<'_>>| entry.map(|entry| entry.value()).transpose();
                let hash = fat.header.hash_words(key);
                self.in_leaf(fat, hash, |leaf, hash| leaf.lookup_words(hash, key).and_then(value)).await
            }
        }
    }

    /// The entry of this name, or of an equal name by the rules of this ZAP. Of several entries, the oldest
    /// one.
    pub async fn lookup_normalized(&self, name: &[u8], how: Match) -> Result<Option<Found>> {
        let rules = self.name_rules()?;
        let rules = match how {
            Match::Normalized => rules,
            Match::NormalizedCase => rules.case_sensitive(),
        };
        let wanted = rules.prepare(name);
        match &self.kind {
            Kind::Micro(micro) => {
                let view = micro.view().map_err(|error| self.corrupt(error))?;
                let same = view.entries().filter(|entry| rules.prepare(entry.name) == wanted);
                Ok(same
                    .min_by_key(|entry| entry.cd)
                    .map(|entry| Found { name: entry.name.to_vec(), value: Value::U64(vec![entry.value]) }))
            }
            Kind::Fat(fat) => {
                let hash = self.hash(fat, name)?;
                self.in_leaf(fat, hash, |leaf, hash| first_same(leaf, hash, rules, &wanted)).await
            }
        }
    }

    /// The hash of a name: always that of the prepared name.
    fn hash(&self, fat: &Fat, name: &[u8]) -> Result<u64> {
        let rules = self.name_rules()?;
        Ok(if rules.is_exact() {
            fat.header.hash_name(name)
        } else {
            fat.header.hash_name(&rules.prepare(name))
        })
    }

    async fn in_leaf<T>(
        &self,
        fat: &Fat,
        hash: u64,
        find: impl FnOnce(&Leaf<'_>, u64) -> ondisk::Result<T>,
    ) -> Result<T> {
        let (block, order) = self.leaf_block(fat, hash).await?;
        find(&self.leaf(&block, order, fat, hash)?, hash).map_err(|error| self.corrupt(error))
    }

    /// The block of the leaf for a hash.
    async fn leaf_block(&self, fat: &Fat, hash: u64) -> Result<(Block, ByteOrder)> {
        self.leaf_block_by(fat, hash, &mut None).await
    }

    /// The same, for a walk that holds the block of the pointer table into which it looked last.
    pub(super) async fn leaf_block_by(
        &self,
        fat: &Fat,
        hash: u64,
        held: &mut Option<(u64, OrderedBlock)>,
    ) -> Result<(Block, ByteOrder)> {
        let place = fat.header.pointer(hash);
        let id = if place.block.0 == 0 {
            fat.header.leaf_at(&fat.block, place)
        } else {
            let table = match held.take().filter(|(id, _)| *id == place.block.0) {
                Some((_, table)) => table,
                None => self.block(place.block.0).await?,
            };
            let id = fat.header.leaf_at(&table.block, place);
            *held = Some((place.block.0, table));
            id
        };
        let leaf = self.block(id.map_err(|error| self.corrupt(error))?.0).await?;
        Ok((leaf.block, leaf.order))
    }

    async fn block(&self, id: u64) -> Result<OrderedBlock> {
        let found = self.object().block(id).await?;
        found.ok_or_else(|| Error::corrupt(self.object().bookmark(id).to_string(), "a hole in a ZAP"))
    }
}

fn first_same(leaf: &Leaf<'_>, hash: u64, rules: NameRules, wanted: &[u8]) -> ondisk::Result<Option<Found>> {
    let mut first: Option<(u32, Found)> = None;
    for entry in leaf.chain(hash) {
        let entry = entry?;
        let name = entry.name()?;
        if rules.prepare(&name) == wanted && first.as_ref().is_none_or(|(cd, _)| entry.cd < *cd) {
            first = Some((entry.cd, Found { name, value: entry.value()? }));
        }
    }
    Ok(first.map(|(_, found)| found))
}
