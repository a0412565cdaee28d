//! ZAP: dictionaries from names, or from arrays of numbers, to arrays of integers.
//!
//! A small ZAP whose values are single 64-bit numbers is one block of fixed-size entries (*micro*). Any other
//! is an extensible hash table (*fat*): the high bits of the hash of a key select a pointer in the pointer
//! table, which selects a leaf block; the leaf holds all entries whose hashes begin with its prefix.
//!
//! # Order and cookies
//! Entries are visited in the order of (hash, collision differentiator), in micro ZAPs too. A
//! [`cookie`](Entry::cookie) contains the position at which the walk continues: the hash bits in use and the
//! differentiator, packed as in OpenZFS. So it stays valid over changes of the directory, and across OpenZFS
//! and Cenote.
//!
//! # Bounds
//! A leaf must have the prefix of the hash by which it was found. So each leaf is visited once in a walk, and
//! a walk ends even with a damaged pointer table.

mod cursor;
pub mod edit;
mod lookup;
pub mod normalize;

pub use cursor::Cursor;
pub use lookup::{Found, Match};

use std::sync::{Arc, OnceLock};

use ondisk::ByteOrder;
use ondisk::dmu::{Byteswap, DmuType};
pub use ondisk::zap::ZapValue as Value;
use ondisk::zap::{FatHeader, MicroZap, ZapFlags, ZapKind};

use super::object::Object;
use crate::{Block, Error, Result};
use normalize::NameRules;

/// The type of ZAPs that have no type of their own (`DMU_OTN_ZAP_METADATA`).
pub fn metadata_type() -> DmuType {
    DmuType::self_describing(Byteswap::Zap, true, false)
}

/// An open ZAP. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Zap {
    object: Object,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Micro(Arc<Micro>),
    Fat(Arc<Fat>),
}

/// A micro ZAP and, after the first walk over it, the order of its entries.
#[derive(Debug)]
struct Micro {
    block: Block,
    order: ByteOrder,
    sorted: OnceLock<Box<[cursor::Place]>>,
}

impl Micro {
    fn view(&self) -> ondisk::Result<MicroZap<'_>> {
        MicroZap::parse(&self.block, self.order)
    }
}

#[derive(Debug)]
struct Fat {
    block: Block,
    header: FatHeader,
}

/// The key of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A name, without the NUL that ends it on disk.
    Name(Vec<u8>),
    /// An array of numbers.
    Words(Vec<u64>),
}

impl Key {
    /// The name.
    pub fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Name(name) => Some(name),
            Self::Words(_) => None,
        }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// Its value.
    pub value: Value,
    /// The position at which a walk continues after this entry.
    pub cookie: u64,
}

/// The entry of `name` in the ZAP that `object` holds.
pub async fn lookup(object: &Object, name: impl AsRef<[u8]>) -> Result<Option<Value>> {
    Zap::open(object).await?.lookup(name).await
}

/// The number under `name` in the ZAP that `object` holds.
pub async fn lookup_u64(object: &Object, name: impl AsRef<[u8]>) -> Result<Option<u64>> {
    Zap::open(object).await?.lookup_u64(name).await
}

impl Zap {
    /// Opens the ZAP that `object` holds.
    pub async fn open(object: &Object) -> Result<Self> {
        let Some(first) = object.block(0).await? else {
            return Err(object.corrupt("a ZAP whose first block is a hole"));
        };
        let (block, order) = (first.block, first.order);
        let kind = match ZapKind::of(&block, order).map_err(|error| object.corrupt(error))? {
            ZapKind::Micro => Kind::Micro(Arc::new(Micro { block, order, sorted: OnceLock::new() })),
            ZapKind::Fat => {
                let header = FatHeader::parse(&block, order).map_err(|error| object.corrupt(error))?;
                Kind::Fat(Arc::new(Fat { block, header }))
            }
        };
        Ok(Self { object: object.clone(), kind })
    }

    /// The object that holds the ZAP.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The number of entries, according to the ZAP.
    pub fn count(&self) -> Result<u64> {
        match &self.kind {
            Kind::Micro(micro) => {
                Ok(micro.view().map_err(|error| self.corrupt(error))?.entries().count() as u64)
            }
            Kind::Fat(fat) => Ok(fat.header.entries),
        }
    }

    /// The header, when the ZAP is fat.
    pub fn fat_header(&self) -> Option<&FatHeader> {
        match &self.kind {
            Kind::Micro(_) => None,
            Kind::Fat(fat) => Some(&fat.header),
        }
    }

    /// How names of this ZAP are prepared before they are hashed, and compared when a caller asks for that.
    pub fn name_rules(&self) -> Result<NameRules> {
        let flags = match &self.kind {
            Kind::Micro(micro) => micro.view().map_err(|error| self.corrupt(error))?.normalization,
            Kind::Fat(fat) => fat.header.normalization,
        };
        NameRules::from_flags(flags)
            .ok_or_else(|| self.corrupt(format!("normalization flags {flags:#x} are unknown")))
    }

    fn flags(&self) -> ZapFlags {
        match &self.kind {
            Kind::Micro(_) => ZapFlags::default(),
            Kind::Fat(fat) => fat.header.flags,
        }
    }

    /// All entries, no more than `limit`.
    pub async fn entries(&self, limit: usize) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut cursor = self.cursor(0);
        while let Some(entry) = cursor.next().await? {
            if entries.len() >= limit {
                return Err(self.object.corrupt(format!("more than {limit} entries")));
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// A walk that begins at `cookie`; 0 is the beginning.
    pub fn cursor(&self, cookie: u64) -> Cursor {
        Cursor::new(self.clone(), cookie)
    }

    fn corrupt(&self, error: impl std::fmt::Display) -> Error {
        self.object.corrupt(error)
    }
}

#[cfg(test)]
mod tests;
