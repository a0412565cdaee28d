//! The ZAPs of all dedup tables, as a committed state has them: for walks beside the groups.

use std::sync::Arc;

use ondisk::blkptr::ChecksumType;
use ondisk::ddt::{self, DdtClass, DdtKey, DdtPhys, PhysForm, dir_key};
use ondisk::pool_directory::DIRECTORY_OBJECT;
use ondisk::{ObjectId, ObjsetId};

use super::packed::unpack;
use crate::Pool;
use crate::cache::Primary;
use crate::dmu::zap::{self, Key, Zap};
use crate::dmu::{Object, Objset};
use crate::error::Result;

/// A table.
#[derive(Debug)]
pub(crate) struct StoredTable {
    /// The checksum function of its blocks.
    pub checksum: ChecksumType,
    /// The form of its values.
    pub form: PhysForm,
    /// The directory of a fast table.
    pub directory: Option<Object>,
    /// Its ZAPs, in the order of look-ups.
    pub zaps: Vec<(DdtClass, Object)>,
}

/// The tables of a state of a pool.
pub(crate) async fn stored_tables(mos: &Arc<Objset>) -> Result<Vec<StoredTable>> {
    let pool_directory = mos.object(DIRECTORY_OBJECT).await?;
    let mut tables = Vec::new();
    for checksum in ChecksumType::ALL.iter().copied() {
        let own = zap::lookup_u64(&pool_directory, ddt::directory_name(checksum)).await?;
        let (directory, flags) = match own {
            Some(own) => {
                let directory = mos.object(ObjectId(own)).await?;
                let flags = zap::lookup_u64(&directory, dir_key::FLAGS).await?.unwrap_or(0);
                (Some(directory), flags)
            }
            None => (None, 0),
        };
        let names = directory.as_ref().unwrap_or(&pool_directory);
        let mut zaps = Vec::new();
        for class in DdtClass::ALL {
            if let Some(id) = zap::lookup_u64(names, ddt::object_name(checksum, class)).await? {
                zaps.push((class, mos.object(ObjectId(id)).await?));
            }
        }
        if directory.is_some() || !zaps.is_empty() {
            tables.push(StoredTable { checksum, form: PhysForm::from_flags(flags), directory, zaps });
        }
    }
    Ok(tables)
}

/// The MOS of a state of a pool.
pub(crate) async fn mos_of(pool: &Arc<Pool>) -> Result<Arc<Objset>> {
    Objset::open(pool, ObjsetId::MOS, pool.root_blkptr()).await
}

/// The same, for a walk that leaves nothing in the ARC which was not there.
pub(crate) async fn mos_to_walk(pool: &Arc<Pool>) -> Result<Arc<Objset>> {
    let mos = mos_of(pool).await?;
    mos.primary().set(Primary::None);
    mos.primary().set_secondary(Primary::None);
    Ok(mos)
}

/// The key of an entry of a ZAP, and its value.
pub(crate) fn entry_of(object: &Object, entry: &zap::Entry, form: PhysForm) -> Result<(DdtKey, DdtPhys)> {
    let words = match &entry.key {
        Key::Words(words) => <[u64; DdtKey::WORDS]>::try_from(words.as_slice()).ok(),
        Key::Name(_) => None,
    };
    let words = words.ok_or_else(|| object.corrupt("a key that is none of a dedup table"))?;
    Ok((DdtKey::from_words(words), unpack(&entry.value, form)?))
}

/// Where a walk over the ZAPs of tables is: which table, which class, and the cookie there. Tables and ZAPs
/// may come and go between two parts of a walk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    checksum: u8,
    class: u8,
    cookie: u64,
}

/// A ZAP of a table in which a walk is.
#[derive(Debug)]
pub(crate) struct WalkedZap {
    /// The checksum function of its blocks.
    pub checksum: ChecksumType,
    /// The form of its values.
    pub form: PhysForm,
    /// The class of its entries.
    pub class: DdtClass,
    /// The ZAP.
    pub object: Object,
    place: Place,
}

impl Place {
    /// The ZAP in which a walk goes on; none at its end.
    pub(crate) async fn zap(self, mos: &Arc<Objset>) -> Result<Option<WalkedZap>> {
        for table in stored_tables(mos).await? {
            for (class, object) in table.zaps {
                let (checksum, form) = (table.checksum, table.form);
                let first = Self { checksum: checksum.raw(), class: class as u8, cookie: 0 };
                if (first.checksum, first.class) >= (self.checksum, self.class) {
                    return Ok(Some(WalkedZap { checksum, form, class, object, place: first.max(self) }));
                }
            }
        }
        Ok(None)
    }
}

impl WalkedZap {
    /// Up to `most` entries from here on, and where the walk goes on.
    pub(crate) async fn entries(&self, most: usize) -> Result<(Vec<(DdtKey, DdtPhys)>, Place)> {
        let zap = Zap::open(&self.object).await?;
        let mut cursor = zap.cursor(self.place.cookie);
        let mut entries = Vec::new();
        let mut cookie = self.place.cookie;
        while entries.len() < most {
            let Some(entry) = cursor.next().await? else { return Ok((entries, self.after())) };
            cookie = entry.cookie;
            entries.push(entry_of(&self.object, &entry, self.form)?);
        }
        Ok((entries, Place { cookie, ..self.place }))
    }

    /// The place behind this ZAP.
    pub(crate) fn after(&self) -> Place {
        Place { class: self.place.class + 1, cookie: 0, ..self.place }
    }
}
