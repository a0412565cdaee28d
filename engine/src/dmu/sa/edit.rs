//! Changing system attributes.
//!
//! # The tables of a filesystem
//! The *registry* gives each attribute a number. The first sixteen numbers are fixed; other attributes got
//! the next free number when they were first used. Attributes that are not in it yet are registered before
//! the first object is written. A *layout* is a sequence of attributes; each area contains the number of its
//! layout. A new sequence gets a new number when it is first needed; a filesystem has about ten layouts. Both
//! tables only grow. They are kept in memory, and in two ZAPs that the *master* object lists.
//!
//! # Groups
//! A layout is stored in the group that first needs it. If that group is not committed yet and an operation
//! of the group before it needs the layout too, the layout is stored once more.
//!
//! # Concurrent calls
//! The caller orders the changes of one object, by the locks of files. All objects share the tables.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `tables` | the tables in memory; held for a look-up | taken alone |
//! | `shown` | the readers of the filesystem; held while their tables are updated | before the tables of a [`Registry`] |
//! | `growing` | additions to the ZAPs; held while waiting for them | before `tables` |
//!
//! Source: behaviour of OpenZFS 2.3 `sa.c`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use device::{IgnorePoison, IoBuf};
use futures_util::lock::Mutex as AsyncMutex;
use ondisk::dmu::DmuType;
use ondisk::dnode::{DNODE_CORE_SIZE, DNODE_MIN_SIZE};
use ondisk::sa::{Attr, Registration};
use ondisk::zpl::master;
use ondisk::{ObjectId, Txg};

use super::Registry;
use super::set::{AttrSet, Schema};
use crate::dmu::zap::{Key, Value, Zap, edit};
use crate::dmu::{LiveObject, LiveObjset};
use crate::error::{Error, Result};
use crate::txg::Tx;

/// Attributes and layouts have numbers of 16 and 10 bits.
const MOST_ENTRIES: usize = 1 << 16;
const MOST_LAYOUTS: u16 = 1 << 10;
/// The number of attributes whose numbers are the same everywhere.
const LEGACY: usize = 16;
/// Layout 0 belongs to files before system attributes, layout 1 has no attributes; neither is stored.
const FIRST_LAYOUT: u16 = 2;

/// The tables of attributes of a filesystem that is written.
#[derive(Debug)]
pub struct LiveRegistry {
    objset: Arc<LiveObjset>,
    master: ObjectId,
    tables: Mutex<Tables>,
    /// The readers of the filesystem.
    shown: Mutex<Vec<Registry>>,
    growing: AsyncMutex<()>,
}

#[derive(Debug)]
struct Tables {
    schema: Arc<Schema>,
    /// The number of each layout, and the group that stored it.
    by_content: HashMap<Box<[u16]>, (u16, Txg)>,
    /// Attributes that are not stored in the registry yet.
    unregistered: Vec<Attr>,
}

/// Creates the object that lists the tables; the tables are created when they are needed.
pub async fn create(objset: &Arc<LiveObjset>, tx: &Tx) -> Result<ObjectId> {
    Ok(edit::create(objset, tx, edit::NewZap::of(DmuType::SA_MASTER_NODE)).await?.id())
}

impl LiveRegistry {
    /// Reads the tables that the object `master` lists.
    pub async fn load(objset: &Arc<LiveObjset>, master: ObjectId) -> Result<Self> {
        let object = objset.object(master).await?;
        let view = objset.view();
        let mut lengths: BTreeMap<u16, u16> =
            (0u16..).zip(Attr::ALL).take(LEGACY).map(|(number, attr)| (number, attr.length())).collect();
        let mut named: HashMap<Vec<u8>, u16> = HashMap::new();
        let mut count = 0u16;
        if let Some(id) = edit::lookup_u64(&object, master::SA_REGISTRY).await? {
            for entry in Zap::open(&view.object(ObjectId(id)).await?).await?.entries(MOST_ENTRIES).await? {
                let (Key::Name(name), Some(raw)) = (entry.key, entry.value.as_u64()) else { continue };
                let entry = Registration::from_raw(raw);
                lengths.insert(entry.number, entry.length);
                named.insert(name, entry.number);
                count = count.saturating_add(1);
            }
        }
        let mut next = count.max(LEGACY as u16).max(lengths.keys().next_back().map_or(0, |last| last + 1));
        let mut numbers = Vec::with_capacity(Attr::ALL.len());
        let mut unregistered = Vec::new();
        for (index, attr) in Attr::ALL.iter().enumerate() {
            let known = named.get(attr.name().as_bytes()).copied();
            if known.is_none() {
                unregistered.push(*attr);
            }
            let number = known.unwrap_or_else(|| {
                let number = if index < LEGACY { index as u16 } else { next };
                next = next.max(number + 1);
                number
            });
            let length = *lengths.entry(number).or_insert(attr.length());
            if length != attr.length() {
                return Err(object.corrupt(format!("{} has {length} bytes", attr.name())));
            }
            numbers.push(number);
        }
        let mut layouts: BTreeMap<u16, Box<[u16]>> = BTreeMap::new();
        if let Some(id) = edit::lookup_u64(&object, master::SA_LAYOUTS).await? {
            for entry in Zap::open(&view.object(ObjectId(id)).await?).await?.entries(MOST_ENTRIES).await? {
                let number = entry.key.name().and_then(|name| std::str::from_utf8(name).ok()?.parse().ok());
                let (Some(number), Value::U16(attributes)) = (number, entry.value) else {
                    return Err(object.corrupt("a layout that is none"));
                };
                layouts.insert(number, attributes.into());
            }
        }
        let by_content =
            layouts.iter().map(|(number, attributes)| (attributes.clone(), (*number, Txg::NONE))).collect();
        let schema = Arc::new(Schema { numbers, lengths, layouts });
        Ok(Self {
            objset: Arc::clone(objset),
            master,
            tables: Mutex::new(Tables { schema, by_content, unregistered }),
            shown: Mutex::new(Vec::new()),
            growing: AsyncMutex::new(()),
        })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().ignore_poison()
    }

    /// Shows the readers of `registry` the layouts known now, and those added from now on.
    pub(crate) fn show_to(&self, registry: &Registry) -> Result<()> {
        let tables = self.schema().to_tables().map_err(Error::format("tables of attributes"))?;
        registry.show(tables);
        self.shown.lock().ignore_poison().push(registry.clone());
        Ok(())
    }

    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.tables().schema)
    }

    /// The attributes of an object.
    pub(crate) async fn read(&self, object: &Arc<LiveObject>) -> Result<AttrSet> {
        let schema = self.schema();
        let mut set = AttrSet::default();
        let damaged = |error| object.corrupt(error);
        set.take(&schema, &object.bonus()).map_err(damaged)?;
        if let Some(spill) = object.spill().await? {
            set.take(&schema, &spill.block).map_err(damaged)?;
        }
        Ok(set)
    }

    /// Changes attributes of a set: `None` removes one.
    pub(crate) fn change(&self, set: &mut AttrSet, changes: &[(Attr, Option<&[u8]>)]) -> Result<()> {
        let schema = self.schema();
        for (attr, value) in changes {
            match value {
                Some(value) => set.set(&schema, *attr, value).map_err(Error::format("a file"))?,
                None => set.remove(&schema, *attr),
            }
        }
        Ok(())
    }

    /// Whether all of these attributes are in the bonus area.
    pub(crate) fn in_bonus(&self, object: &Arc<LiveObject>, attrs: &[Attr]) -> Result<bool> {
        let schema = self.schema();
        let places = schema.locate(&object.bonus()).map_err(|error| object.corrupt(error))?;
        let has =
            |attr: &Attr| places.iter().any(|(other, _)| Some(other) == schema.numbers.get(*attr as usize));
        Ok(attrs.iter().all(has))
    }

    /// Whether an object certainly has none of these attributes now. May be called during changes by others,
    /// and reads nothing.
    pub(crate) fn has_none(&self, object: &Arc<LiveObject>, attrs: &[Attr]) -> bool {
        let Some(bonus) = object.bonus_alone() else { return false };
        let schema = self.schema();
        let is_asked_for =
            |number: &u16| attrs.iter().any(|attr| schema.numbers.get(*attr as usize) == Some(number));
        schema.locate(&bonus).is_ok_and(|places| !places.iter().any(|(number, _)| is_asked_for(number)))
    }

    /// Merges values into attributes of the same length in place, in the bonus area, by `how` (old, new).
    /// Callers do that concurrently, so the result of `how` must not depend on the order. Returns false,
    /// without a change, when an attribute is not there.
    pub(crate) fn merge(
        &self,
        object: &Arc<LiveObject>,
        tx: &Tx,
        values: &[(Attr, &[u8])],
        how: impl Fn(Attr, &mut [u8], &[u8]),
    ) -> Result<bool> {
        let schema = self.schema();
        object.merge_bonus(tx, DmuType::SA, |area| {
            let places = schema.locate(area).map_err(|error| object.corrupt(error))?;
            let found: Option<Vec<_>> = values
                .iter()
                .map(|(attr, value)| {
                    let number = schema.numbers.get(*attr as usize);
                    let place = places.iter().find(|(other, _)| Some(other) == number);
                    Some((*attr, *value, place.map(|(_, place)| place.clone())?))
                })
                .collect();
            let Some(found) = found else { return Ok(false) };
            for (attr, value, place) in found {
                if let Some(old) = area.get_mut(place).filter(|old| old.len() == value.len()) {
                    how(attr, old, value);
                }
            }
            Ok(true)
        })
    }

    /// Overwrites attributes with values of the same length in place, in the bonus area. Returns false,
    /// without a change, if that is not possible.
    pub(crate) fn overwrite(
        &self,
        object: &Arc<LiveObject>,
        tx: &Tx,
        values: &[(Attr, &[u8])],
    ) -> Result<bool> {
        let schema = self.schema();
        let old = object.bonus();
        let places = schema.locate(&old).map_err(|error| object.corrupt(error))?;
        let mut new: Option<Vec<u8>> = None;
        for (attr, value) in values {
            let number = schema.numbers.get(*attr as usize);
            let place =
                places.iter().find(|(other, place)| Some(other) == number && place.len() == value.len());
            let Some(target) =
                place.and_then(|(_, place)| new.get_or_insert_with(|| old.to_vec()).get_mut(place.clone()))
            else {
                return Ok(false);
            };
            target.copy_from_slice(value);
        }
        if let Some(new) = new {
            object.set_bonus(tx, DmuType::SA, &new);
        }
        Ok(true)
    }

    /// Stores all attributes of an object.
    pub(crate) async fn write(&self, object: &Arc<LiveObject>, tx: &Tx, set: &AttrSet) -> Result<()> {
        let schema = self.schema();
        let dnode = object.dnode();
        let size = (usize::from(dnode.extra_slots) + 1) * DNODE_MIN_SIZE;
        let pointers = dnode.blkptrs.len() * ondisk::blkptr::Blkptr::SIZE;
        let capacity = size.saturating_sub(DNODE_CORE_SIZE + pointers);
        let damaged = |error| object.corrupt(error);
        let in_bonus = set.split(&schema, capacity).map_err(damaged)?;
        let (first, second) = set.numbers(in_bonus);
        let layout = self.layout(tx, first).await?;
        let spill = match second.is_empty() {
            true => None,
            false => {
                let layout = self.layout(tx, second).await?;
                Some(set.spill(&schema, in_bonus, layout).map_err(Error::format(format!("{object:?}")))?)
            }
        };
        let bonus = set.bonus(&schema, in_bonus, layout, capacity).map_err(damaged)?;
        let had_spill = spill.is_some() || object.spill().await?.is_some();
        if had_spill {
            let spill = spill.map(|bytes| IoBuf::from(&*bytes).into());
            object.set_bonus_and_spill(tx, DmuType::SA, &bonus, spill);
        } else {
            object.set_bonus(tx, DmuType::SA, &bonus);
        }
        Ok(())
    }

    /// The number of the layout of these attributes, stored as of the group of `tx`.
    async fn layout(&self, tx: &Tx, attributes: Vec<u16>) -> Result<u16> {
        if let Some(number) = self.known(tx, &attributes) {
            return Ok(number);
        }
        let _growing = self.growing.lock().await;
        if let Some(number) = self.known(tx, &attributes) {
            return Ok(number);
        }
        let master = self.objset.object(self.master).await?;
        self.register(tx, &master).await?;
        let number = {
            let tables = self.tables();
            let next = tables.schema.layouts.keys().next_back().map_or(FIRST_LAYOUT, |last| last + 1);
            tables.by_content.get(&*attributes).map_or(next, |(number, _)| *number)
        };
        if number >= MOST_LAYOUTS {
            return Err(Error::Unsupported(format!(
                "objset {}: no more layouts of attributes",
                self.objset.id()
            )));
        }
        let zap = self.linked(tx, &master, master::SA_LAYOUTS, DmuType::SA_ATTR_LAYOUTS).await?;
        edit::set(&zap, tx, &Key::Name(number.to_string().into()), &Value::U16(attributes.clone())).await?;
        let schema = {
            let mut tables = self.tables();
            Arc::make_mut(&mut tables.schema).layouts.insert(number, attributes.as_slice().into());
            tables.by_content.insert(attributes.into(), (number, tx.txg()));
            Arc::clone(&tables.schema)
        };
        for registry in &*self.shown.lock().ignore_poison() {
            registry.show(schema.to_tables().map_err(Error::format("tables of attributes"))?);
        }
        Ok(number)
    }

    /// The number of a layout that the group of `tx`, or an earlier one, stored.
    fn known(&self, tx: &Tx, attributes: &[u16]) -> Option<u16> {
        let tables = self.tables();
        let (number, since) = tables.by_content.get(attributes)?;
        (*since <= tx.txg() && tables.unregistered.is_empty()).then_some(*number)
    }

    /// Stores the attributes that are not in the registry yet.
    async fn register(&self, tx: &Tx, master: &Arc<LiveObject>) -> Result<()> {
        let (missing, numbers) = {
            let tables = self.tables();
            (tables.unregistered.clone(), tables.schema.numbers.clone())
        };
        if missing.is_empty() {
            return Ok(());
        }
        let zap = self.linked(tx, master, master::SA_REGISTRY, DmuType::SA_ATTR_REGISTRATION).await?;
        for attr in missing {
            let number = numbers.get(attr as usize).copied().unwrap_or(u16::MAX);
            let entry = Registration { number, byteswap: attr.byteswap() as u8, length: attr.length() };
            edit::set_u64(&zap, tx, attr.name(), entry.to_raw()).await?;
        }
        self.tables().unregistered.clear();
        Ok(())
    }

    /// The ZAP that the master object lists, created if there is none.
    async fn linked(
        &self,
        tx: &Tx,
        master: &Arc<LiveObject>,
        name: &str,
        dmu_type: DmuType,
    ) -> Result<Arc<LiveObject>> {
        if let Some(id) = edit::lookup_u64(master, name).await? {
            return self.objset.object(ObjectId(id)).await;
        }
        let zap = edit::create(&self.objset, tx, edit::NewZap::of(dmu_type)).await?;
        edit::set_u64(master, tx, name, zap.id().0).await?;
        Ok(zap)
    }
}
