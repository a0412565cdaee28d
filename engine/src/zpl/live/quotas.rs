//! Quotas of users, groups and projects, in bytes and in files.
//!
//! For each kind of owner and of count, the master node lists a ZAP from owners to quotas, which is created
//! with the first quota, and a number, the default quota of owners without an entry there. Usage is counted
//! when groups are written ([`crate::dmu`]). So a quota counts as reached when it is reached in the last
//! committed group; changes accepted since may exceed it.
//!
//! Source: behaviour of OpenZFS 2.4 `zfs_quota.c`, `zfs_acl.c` (`zfs_acl_ids_overquota`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::ObjectId;
use ondisk::accounting::{AccountingKey, AccountingObject, Counted, default_quota_name, quota_object_name};
use ondisk::dmu::DmuType;
use ondisk::sa::Attr;
use ondisk::zpl::{Fuid, MASTER_NODE, ZnodeFlags};

use super::nodes::Node;
use super::{LiveZpl, StatFs, errno};
use crate::dmu::LiveObject;
use crate::dmu::zap::{Key, Zap, edit};
use crate::error::{Error, Result};
use crate::properties::UserProperty;

const OWNERS: [AccountingObject; 3] =
    [AccountingObject::User, AccountingObject::Group, AccountingObject::Project];
const COUNTS: [Counted; 2] = [Counted::Bytes, Counted::Objects];

/// The first version of filesystems with quotas of users (`ZPL_VERSION_USERSPACE`).
const USERSPACE: u64 = 4;

/// A number for each kind of owner and of count.
type ByOwnerAndCount = [[AtomicU64; 2]; 3];

/// The quotas of a filesystem.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// The objects of the ZAPs with quotas; 0 if there is none.
    zaps: ByOwnerAndCount,
    /// The default quotas; 0 for none.
    defaults: ByOwnerAndCount,
}

fn place(all: &ByOwnerAndCount, owner: AccountingObject, counted: Counted) -> Option<&AtomicU64> {
    let owner = OWNERS.iter().position(|other| *other == owner)?;
    let counted = COUNTS.iter().position(|other| *other == counted)?;
    all.get(owner)?.get(counted)
}

/// The owners for which a file counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Owners {
    pub(super) user: Option<u64>,
    pub(super) group: Option<u64>,
    /// Files of project 0 belong to none.
    pub(super) project: Option<u64>,
}

impl Quotas {
    pub(super) async fn load(master_node: &Arc<LiveObject>) -> Result<Self> {
        let found = Self::default();
        for (all, name) in [
            (&found.zaps, quota_object_name as fn(AccountingObject, Counted) -> &'static str),
            (&found.defaults, default_quota_name),
        ] {
            for (owner, places) in OWNERS.into_iter().zip(all) {
                for (counted, place) in COUNTS.into_iter().zip(places) {
                    let number = edit::lookup_u64(master_node, name(owner, counted)).await?;
                    place.store(number.unwrap_or(0), Ordering::Release);
                }
            }
        }
        Ok(found)
    }

    fn zap(&self, owner: AccountingObject, counted: Counted) -> Option<ObjectId> {
        let id = place(&self.zaps, owner, counted)?.load(Ordering::Acquire);
        (id != 0).then_some(ObjectId(id))
    }

    /// The default quota.
    fn of_all_others(&self, owner: AccountingObject, counted: Counted) -> Option<u64> {
        let quota = place(&self.defaults, owner, counted)?.load(Ordering::Acquire);
        (quota != 0).then_some(quota)
    }
}

impl Node {
    /// The owners for which it counts.
    pub(super) fn owners(&self) -> Result<Owners> {
        let project = Some(self.project()?).filter(|project| *project != 0);
        Ok(Owners { user: Some(self.number(Attr::Uid)?), group: Some(self.number(Attr::Gid)?), project })
    }

    /// Its project, 0 for none.
    pub(super) fn project(&self) -> Result<u64> {
        let has = self.flags()?.contains(ZnodeFlags::PROJID);
        Ok(self.znode.attributes.number(Attr::ProjectId).filter(|_| has).unwrap_or(0))
    }
}

impl LiveZpl {
    /// Sets a quota of the user, group or project with the number `id`; 0 removes it.
    pub async fn set_quota(&self, property: UserProperty, id: u64, quota: u64) -> Result<()> {
        let UserProperty { owner, counted, quota: true } = property else {
            return Err(Error::Invalid("what is used cannot be set".into()));
        };
        if self.zpl.version() < USERSPACE {
            let version = self.zpl.version();
            return Err(Error::Unsupported(format!(
                "quotas of users need version {USERSPACE}, and this filesystem has version {version} (zfs upgrade)"
            )));
        }
        let counts_not = |what: &str| {
            let how = "'zpool upgrade' has it do so, and 'zpool status' shows how far that is";
            Err(Error::Unsupported(format!("this filesystem does not count {what}: {how}")))
        };
        if !self.objset.counts_users() {
            return counts_not("what users use");
        }
        if owner == AccountingObject::Project && !self.objset.counts_projects() {
            return counts_not("what projects use");
        }
        if counted == Counted::Objects && !self.objset.counts_files() {
            return counts_not("files");
        }
        let place = place(&self.quotas.zaps, owner, counted);
        let place = place.ok_or_else(|| Error::Invalid("no such quota".into()))?;
        // FUIDs of users and groups without a domain are their numbers.
        let key = Key::Name(AccountingKey { counted: Counted::Bytes, id }.encode().into_bytes());
        let _locked = self.locks.lock(&[MASTER_NODE]).await;
        let tx = self.begin_freeing().await?;
        let zap = match place.load(Ordering::Acquire) {
            0 if quota == 0 => return Ok(()),
            0 => {
                let zap = edit::create(&self.objset, &tx, edit::NewZap::of(DmuType::USERGROUP_QUOTA)).await?;
                let master_node = self.objset.object(MASTER_NODE).await?;
                edit::set_u64(&master_node, &tx, quota_object_name(owner, counted), zap.id().0).await?;
                place.store(zap.id().0, Ordering::Release);
                zap
            }
            id => self.objset.object(ObjectId(id)).await?,
        };
        if quota == 0 {
            edit::remove(&zap, &tx, &key).await?;
        } else {
            edit::set(&zap, &tx, &key, &crate::dmu::zap::Value::U64(vec![quota])).await?;
        }
        Ok(())
    }

    /// Sets the default quota of users, groups or projects without one of their own; 0 removes it.
    pub async fn set_default_quota(
        &self,
        owner: AccountingObject,
        counted: Counted,
        quota: u64,
    ) -> Result<()> {
        let place = place(&self.quotas.defaults, owner, counted);
        let place = place.ok_or_else(|| Error::Invalid("no such quota".into()))?;
        let name = default_quota_name(owner, counted);
        let _locked = self.locks.lock(&[MASTER_NODE]).await;
        let tx = self.begin_freeing().await?;
        let master_node = self.objset.object(MASTER_NODE).await?;
        match quota {
            0 => drop(edit::remove(&master_node, &tx, &Key::Name(name.as_bytes().to_vec())).await?),
            _ => edit::set_u64(&master_node, &tx, name, quota).await?,
        }
        place.store(quota, Ordering::Release);
        Ok(())
    }

    /// Fails when one of the owners has used up a quota.
    pub(super) async fn require_quota(&self, owners: Owners, counts: &[Counted]) -> Result<()> {
        if self.journal.is_applying() {
            return Ok(());
        }
        let ids = [owners.user, owners.group, owners.project];
        for (owner, id) in OWNERS.into_iter().zip(ids) {
            for counted in counts {
                if let Some(id) = id
                    && let Some((quota, used)) = self.quota(owner, *counted, id).await?
                    && used >= quota
                {
                    let what = format!("quota of {owner:?} {}", Fuid(id).id()).to_lowercase();
                    return Err(self.refuse(what, errno::EDQUOT));
                }
            }
        }
        Ok(())
    }

    /// The result of `statfs` for a file or directory. If new files in it inherit its project, and the
    /// project has a quota, the quota is the whole space.
    pub async fn statfs_in(&self, object: ObjectId) -> Result<StatFs> {
        let mut told = self.statfs();
        let stat = self.zpl.node(object).await?.stat()?;
        let project = u64::from(stat.project);
        if !stat.flags.contains(ZnodeFlags::PROJINHERIT) || project == 0 {
            return Ok(told);
        }
        if let Some((quota, used)) = self.quota(AccountingObject::Project, Counted::Bytes, project).await? {
            told.blocks = quota / told.block_size;
            told.free_blocks = quota.saturating_sub(used) / told.block_size;
        }
        if let Some((quota, used)) = self.quota(AccountingObject::Project, Counted::Objects, project).await? {
            (told.inodes, told.free_inodes) = (quota, quota.saturating_sub(used));
        }
        Ok(told)
    }

    /// An owner's quota, and its usage as of the last committed group; `None` if there is no quota.
    async fn quota(&self, owner: AccountingObject, counted: Counted, id: u64) -> Result<Option<(u64, u64)>> {
        let own = match self.quotas.zap(owner, counted) {
            Some(quotas) => {
                let key = AccountingKey { counted: Counted::Bytes, id }.encode();
                edit::lookup_u64(&self.objset.object(quotas).await?, &key).await?
            }
            None => None,
        };
        let Some(quota) = own.or_else(|| self.quotas.of_all_others(owner, counted)) else { return Ok(None) };
        let view = self.objset.view();
        let used = match owner {
            AccountingObject::User => view.user_used(),
            AccountingObject::Group => view.group_used(),
            AccountingObject::Project => view.project_used(),
        };
        let Some(used) = used else { return Ok(Some((quota, 0))) };
        if used.block(0).await?.is_none() {
            return Ok(Some((quota, 0)));
        }
        let key = AccountingKey { counted, id }.encode();
        Ok(Some((quota, Zap::open(&used).await?.lookup_u64(&key).await?.unwrap_or(0))))
    }
}
