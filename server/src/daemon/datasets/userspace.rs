//! What users, groups and projects use of a filesystem, and their quotas.
//!
//! Quotas stand in the filesystem itself, so that setting one is a change of its files: it goes through the
//! filesystem that is open for writing, whether that is mounted or not.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::Error;
use engine::dsl::Kind;
use engine::pool::live::LivePool;
use engine::properties::{Prop, UserProperty, typed};
use engine::zpl::LiveZpl;
use ondisk::accounting::{AccountingObject, Counted};

use crate::api::{self, ApiError, Owner, SpaceOf};
use crate::daemon::{Daemon, OpenPool, dataset_error};
use crate::users;

/// A quota that is to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::daemon) struct Quota {
    property: UserProperty,
    /// Whose; all those that have none of their own without one.
    id: Option<u64>,
    value: u64,
}

impl Daemon {
    /// The space that all users, groups or projects use in a filesystem or snapshot.
    ///
    /// # Errors
    /// The dataset does not exist, is no filesystem, or its key is not loaded.
    pub async fn list_space(&self, request: api::ListSpace) -> Result<Vec<SpaceOf>, ApiError> {
        let name = &request.dataset;
        let failed = |error| dataset_error("open", name, error);
        let dsl = self.pool_of(name)?.dsl().await.map_err(failed)?;
        let entry = dsl.entry(name).await.map_err(failed)?;
        let (Kind::Filesystem | Kind::Snapshot { of_volume: false }, Some(dataset)) =
            (entry.kind, entry.dataset())
        else {
            return Err(ApiError::invalid(format!(
                "cannot open '{name}': operation is only applicable to filesystems and their snapshots"
            )));
        };
        let owner = match request.owner {
            Owner::User => AccountingObject::User,
            Owner::Group => AccountingObject::Group,
            Owner::Project => AccountingObject::Project,
        };
        let mut all: BTreeMap<u64, SpaceOf> = BTreeMap::new();
        for counted in [Counted::Bytes, Counted::Objects] {
            for quota in [false, true] {
                let property = UserProperty { owner, counted, quota };
                for (id, value) in dsl.user_properties(dataset, property).await.map_err(failed)? {
                    let of = all.entry(id).or_insert_with(|| SpaceOf { id, ..SpaceOf::default() });
                    match (counted, quota) {
                        (Counted::Bytes, false) => of.used = value,
                        (Counted::Bytes, true) => of.quota = value,
                        (Counted::Objects, false) => of.objects = Some(value),
                        (Counted::Objects, true) => of.object_quota = value,
                    }
                }
            }
        }
        let mut all: Vec<SpaceOf> = all.into_values().collect();
        for of in &mut all {
            of.name = users::name_of(owner, of.id);
        }
        Ok(all)
    }
}

/// Takes the quotas out of properties that are to be set.
pub(in crate::daemon) fn take_quotas(
    doing: &str,
    properties: &mut Vec<(String, String)>,
) -> Result<Vec<Quota>, ApiError> {
    let mut quotas = Vec::new();
    for (name, value) in std::mem::take(properties) {
        let default = Prop::from_name(&name).and_then(Prop::default_quota);
        let Some((property, who)) = UserProperty::parse(&name) else {
            match default {
                Some((owner, counted)) => {
                    let property = UserProperty { owner, counted, quota: true };
                    quotas.push(Quota { property, id: None, value: amount(doing, &value)? });
                }
                None => properties.push((name, value)),
            }
            continue;
        };
        if !property.quota {
            return Err(ApiError::invalid(format!("{doing}: '{name}' is readonly")));
        }
        let id = users::id(property.owner, who).ok_or_else(|| {
            ApiError::invalid(format!(
                "{doing}: invalid property '{name}': there is no user or group \
                '{who}'"
            ))
        })?;
        quotas.push(Quota { property, id: Some(id), value: amount(doing, &value)? });
    }
    Ok(quotas)
}

fn amount(doing: &str, value: &str) -> Result<u64, ApiError> {
    match value {
        "none" => Ok(0),
        text => typed::parse_number(text)
            .ok_or_else(|| ApiError::invalid(format!("{doing}: bad numeric value '{text}'"))),
    }
}

/// The filesystem that quotas are to be set of, if there are any.
pub(super) async fn open_for_quotas(
    pool: &OpenPool,
    live: &Arc<LivePool>,
    name: &str,
    quotas: &[Quota],
) -> engine::Result<Option<Arc<LiveZpl>>> {
    if quotas.is_empty() {
        return Ok(None);
    }
    let dsl = pool.dsl().await?;
    let found = dsl.entry(name).await?;
    let id = match (found.kind, found.dataset()) {
        (Kind::Filesystem, Some(dataset)) => dataset.objset_id(),
        (Kind::Snapshot { .. } | Kind::Bookmark, _) => {
            return Err(Error::Invalid("this property can not be modified for snapshots".to_owned()));
        }
        _ => return Err(Error::Invalid("this property does not apply to datasets of this type".to_owned())),
    };
    live.filesystem(id).await.map(Some)
}

/// Sets quotas, and returns when they are on disk: a later request reads committed quotas.
pub(super) async fn set_quotas(
    live: &LivePool,
    filesystem: &LiveZpl,
    quotas: &[Quota],
) -> engine::Result<()> {
    for Quota { property, id, value } in quotas {
        match id {
            Some(id) => filesystem.set_quota(*property, *id, *value).await?,
            None => filesystem.set_default_quota(property.owner, property.counted, *value).await?,
        }
    }
    live.txgs().wait_synced(live.txgs().open_txg()).await
}

/// Sets quotas of users of what was just created.
pub(in crate::daemon) async fn set_quotas_at_once(
    pool: &OpenPool,
    live: &Arc<LivePool>,
    name: &str,
    quotas: &[Quota],
) -> engine::Result<()> {
    let Some(filesystem) = open_for_quotas(pool, live, name, quotas).await? else { return Ok(()) };
    set_quotas(live, &filesystem, quotas).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_told_from_other_properties() {
        let given = [
            ("compression", "on"),
            ("userquota@0", "10M"),
            ("projectobjquota@7", "none"),
            ("defaultgroupquota", "1K"),
        ];
        let mut properties: Vec<_> = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let quotas = take_quotas("x", &mut properties).unwrap();
        assert_eq!(properties, [("compression".to_owned(), "on".to_owned())]);
        assert_eq!(
            quotas.iter().map(|quota| (quota.id, quota.value)).collect::<Vec<_>>(),
            [(Some(0), 10 << 20), (Some(7), 0), (None, 1024)]
        );
        for bad in [("userused@0", "1"), ("userquota@no such user", "1"), ("groupquota@0", "much")] {
            assert!(take_quotas("x", &mut vec![(bad.0.to_owned(), bad.1.to_owned())]).is_err(), "{bad:?}");
        }
    }
}
