//! System attributes of objects: reads a filesystem's attribute tables, and the areas of an object with them.
//!
//! [`ondisk::sa`] describes the format. This module reads the tables from their ZAPs, once for a filesystem,
//! and searches the two areas that an object may have: the bonus area, and the spill block if there is one.

pub mod edit;
mod set;

use device::IgnorePoison;
use ondisk::ObjectId;
use ondisk::dmu::DmuType;
pub use ondisk::sa::Attr;
use ondisk::sa::{AreaKind, Located, Tables, ZNODE_SIZE};
use ondisk::zpl::master;

use super::zap::{Key, Value, Zap};
use super::{Object, Objset, OrderedBlock};
use crate::{Error, Result};

use std::sync::{Arc, RwLock};

/// Attributes and layouts have numbers of 16 and 10 bits.
const MOST_ENTRIES: usize = 1 << 16;

/// The tables of attributes of a filesystem. Clones show the same tables, which grow while the filesystem is
/// written.
#[derive(Clone, Debug, Default)]
pub struct Registry(Arc<RwLock<Arc<Tables>>>);

impl Registry {
    /// Reads the tables that the object `id` lists.
    pub async fn load(objset: &Arc<Objset>, id: ObjectId) -> Result<Self> {
        let names = Zap::open(&objset.object(id).await?).await?;
        // A filesystem that was upgraded has no registry until its first file with system attributes.
        let registry = match names.lookup_u64(master::SA_REGISTRY).await? {
            Some(id) => Zap::open(&objset.object(ObjectId(id)).await?).await?.entries(MOST_ENTRIES).await?,
            None => Vec::new(),
        };
        let registry = registry
            .iter()
            .filter_map(|entry| Some((entry.key.name()?, entry.value.as_u64()?)))
            .collect::<Vec<_>>();
        let layouts = match names.lookup_u64(master::SA_LAYOUTS).await? {
            Some(id) => Zap::open(&objset.object(ObjectId(id)).await?).await?.entries(MOST_ENTRIES).await?,
            None => Vec::new(),
        };
        let layouts = layouts.iter().filter_map(|entry| match (&entry.key, &entry.value) {
            (Key::Name(name), Value::U16(numbers)) => Some((name.as_slice(), numbers.clone())),
            _ => None,
        });
        let tables = Tables::new(registry, layouts).map_err(|error| names.object().corrupt(error))?;
        Ok(Self(Arc::new(RwLock::new(Arc::new(tables)))))
    }

    fn tables(&self) -> Arc<Tables> {
        Arc::clone(&self.0.read().ignore_poison())
    }

    /// Shows tables that have grown.
    fn show(&self, tables: Tables) {
        *self.0.write().ignore_poison() = Arc::new(tables);
    }

    /// Finds the attributes of an object.
    pub async fn of(&self, object: &Object) -> Result<Attributes> {
        let dnode = object.dnode();
        let kind = match dnode.bonus_type {
            DmuType::SA => AreaKind::Sa,
            DmuType::ZNODE => AreaKind::Znode,
            other => {
                let what = format!("objset {}, object {}", object.objset().id(), object.id());
                return Err(Error::WrongType {
                    what,
                    detail: format!("is no file: its bonus is {}", other.name()),
                });
            }
        };
        let damaged = |error| object.corrupt(error);
        let tables = self.tables();
        let bonus = tables.locate(&dnode.bonus, kind, dnode.order).map_err(damaged)?;
        let spill = match object.spill().await? {
            Some(spill) => {
                let located = tables.locate(&spill.block, AreaKind::Sa, spill.order).map_err(damaged)?;
                Some((spill, located))
            }
            None => None,
        };
        Ok(Attributes { object: object.clone(), kind, bonus, spill })
    }
}

/// The attributes of one object.
#[derive(Clone, Debug)]
pub struct Attributes {
    object: Object,
    kind: AreaKind,
    bonus: Located,
    spill: Option<(OrderedBlock, Located)>,
}

impl Attributes {
    /// True when the object is older than system attributes.
    pub fn is_old(&self) -> bool {
        self.kind == AreaKind::Znode
    }

    /// The bytes of an attribute.
    pub fn bytes(&self, attr: Attr) -> Option<&[u8]> {
        self.area(attr).and_then(|(area, located)| located.get(area, attr))
    }

    /// An attribute that is one number.
    pub fn number(&self, attr: Attr) -> Option<u64> {
        self.area(attr).and_then(|(area, located)| located.u64(area, attr))
    }

    /// An attribute that is one number and that every file has.
    pub fn required(&self, attr: Attr) -> Result<u64> {
        self.number(attr).ok_or_else(|| self.missing(attr))
    }

    /// An attribute that is two numbers and that every file has.
    pub fn pair(&self, attr: Attr) -> Result<[u64; 2]> {
        let found = self.area(attr).and_then(|(area, located)| located.pair(area, attr));
        found.ok_or_else(|| self.missing(attr))
    }

    /// The bytes after the fixed structure in the bonus area of an old object.
    pub fn after_znode(&self) -> Option<&[u8]> {
        if self.is_old() { self.object.dnode().bonus.get(ZNODE_SIZE..) } else { None }
    }

    /// Byte order of the numbers inside an attribute.
    pub fn order(&self, attr: Attr) -> ondisk::ByteOrder {
        self.area(attr).map_or(self.bonus.order, |(_, located)| located.order)
    }

    /// The area that contains an attribute.
    fn area(&self, attr: Attr) -> Option<(&[u8], &Located)> {
        if self.bonus.contains(attr) {
            return Some((&self.object.dnode().bonus, &self.bonus));
        }
        self.spill.as_ref().map(|(spill, located)| (&spill.block[..], located))
    }

    fn missing(&self, attr: Attr) -> Error {
        self.object.corrupt(format!("attribute {} is missing", attr.name()))
    }
}
