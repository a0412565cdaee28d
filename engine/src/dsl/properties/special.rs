//! Values of properties whose names carry an argument: `written@SNAPSHOT`, `userused@USER` and their kin.
//!
//! What users, groups and projects use is counted in objects of the filesystem's own object set; their quotas
//! stand in ZAPs that its master node names. A user without an entry uses nothing and has no quota. Source of
//! the facts: OpenZFS 2.3 `zfs_quota.c`, `libzfs_dataset.c`.

use std::sync::Arc;

use ondisk::ObjectId;
use ondisk::accounting::{self, AccountingKey, AccountingObject, Counted, quota_object_name};
use ondisk::objset::ObjsetType;
use ondisk::zpl::MASTER_NODE;

use crate::dmu::zap::{Key, Zap};
use crate::dmu::{Object, Objset};
use crate::dsl::{Dataset, Dsl, Found, ValueExt, zap_value};
use crate::error::Result;
use crate::properties::UserProperty;

/// More users than any filesystem has.
const MAX_USERS: usize = 4 << 20;

impl Dsl {
    /// The value of a property such as `userused@…` for the user, group or project numbered `id`; `None`
    /// where the dataset does not count it.
    pub async fn user_property(
        &self,
        dataset: &Dataset,
        property: UserProperty,
        id: u64,
    ) -> Result<Option<u64>> {
        let objset = self.clear_objset(dataset).await?;
        let Some(object) = user_object(&objset, property).await? else { return Ok(None) };
        let Some(object) = object.zap else { return Ok(Some(0)) };
        let counted = if property.quota { Counted::Bytes } else { property.counted };
        let key = AccountingKey { counted, id }.encode();
        Ok(Some(zap_value(&object, &key).await?.and_then(|value| value.first()).unwrap_or(0)))
    }

    /// All users, groups or projects that have such a value, by number.
    pub async fn user_properties(
        &self,
        dataset: &Dataset,
        property: UserProperty,
    ) -> Result<Vec<(u64, u64)>> {
        let objset = self.clear_objset(dataset).await?;
        let object = user_object(&objset, property).await?.and_then(|object| object.zap);
        let Some(object) = object else { return Ok(Vec::new()) };
        let wanted = if property.quota { Counted::Bytes } else { property.counted };
        let mut all = Vec::new();
        for entry in Zap::open(&object).await?.entries(MAX_USERS).await? {
            let Key::Name(name) = &entry.key else { continue };
            let key = accounting::AccountingKey::parse(name);
            let key = key.ok_or_else(|| object.corrupt("a key that names nobody"))?;
            if key.counted == wanted {
                all.push((key.id, entry.value.first().unwrap_or(0)));
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    /// The value of `written@since`, where `since` is the name of a snapshot of the dataset, or the full name
    /// of a snapshot or bookmark.
    pub async fn written_property(&self, dataset: &Dataset, since: &str) -> Result<u64> {
        let name = match since.contains(['@', '#']) {
            true => since.to_owned(),
            false => format!("{}@{since}", dataset.dir.name),
        };
        match self.lookup(&name).await? {
            Found::Dataset(older) => self.written_since(dataset, &older).await,
            Found::Bookmark(mark) => {
                let of = name.split('#').next().unwrap_or_default();
                let dir = self.find_dir(of).await?;
                self.written_since_bookmark(dataset, &dir, &mark.phys).await
            }
        }
    }
}

/// Where the values of a property stand, in a filesystem that counts them.
struct UserObject {
    /// The ZAP; none before the first entry.
    zap: Option<Object>,
}

async fn user_object(objset: &Arc<Objset>, property: UserProperty) -> Result<Option<UserObject>> {
    if objset.objset_type() != ObjsetType::Zfs {
        return Ok(None);
    }
    if property.quota {
        let master = objset.object(MASTER_NODE).await?;
        let name = quota_object_name(property.owner, property.counted);
        let zap = match zap_value(&master, name).await?.and_then(|value| value.first()) {
            Some(id) => Some(objset.object(ObjectId(id)).await?),
            None => None,
        };
        return Ok(Some(UserObject { zap }));
    }
    let (objects, projects) =
        (objset.phys().is_user_object_accounting_complete(), objset.phys().is_project_quota_complete());
    // What is not counted completely is not known.
    if property.counted == Counted::Objects && !objects
        || property.owner == AccountingObject::Project && !projects
    {
        return Ok(None);
    }
    let object = match property.owner {
        AccountingObject::User => objset.user_used(),
        AccountingObject::Group => objset.group_used(),
        AccountingObject::Project => objset.project_used(),
    };
    Ok(match object {
        Some(object) if object.block(0).await?.is_some() => Some(UserObject { zap: Some(object) }),
        Some(_) => Some(UserObject { zap: None }),
        None => None,
    })
}
