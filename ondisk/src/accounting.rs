//! Space and object accounting by user, group and project, and the quotas on it.
//!
//! A filesystem counts in three special objects of its object set, the ZAPs whose dnodes lie in the objset
//! itself: [`AccountingObject::User`] (-1), [`AccountingObject::Group`] (-2) and
//! [`AccountingObject::Project`] (-3).
//!
//! | key | value (one u64) |
//! |---|---|
//! | id in hexadecimal; of users and groups the FUID, which for a POSIX id is the id itself | bytes |
//! | `obj-`, then the same | objects |
//!
//! Quotas are set in ZAPs of the filesystem, found by name in its master node ([`quota_object_name`]), with
//! the same keys but without the prefix, and bytes or objects by the ZAP's own meaning. Who has no quota
//! there has the default one, a number in the master node ([`default_quota_name`]); absent or 0: no limit.
//!
//! Source of the facts: OpenZFS 2.4 `dmu_objset.c`, `zfs_quota.c`, `zfs_prop.c`.

use crate::pool_directory::{hex_key, parse_hex_key};

/// Prefix of the keys that count objects.
pub const OBJECT_COUNT_PREFIX: &str = "obj-";

/// One of the three special objects that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccountingObject {
    /// By owner.
    User,
    /// By group.
    Group,
    /// By project.
    Project,
}

impl AccountingObject {
    /// The object number, as block pointers' bookmarks and `zdb` call it.
    pub const fn object_id(self) -> i64 {
        match self {
            AccountingObject::User => -1,
            AccountingObject::Group => -2,
            AccountingObject::Project => -3,
        }
    }
}

/// The quantity that an entry counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Bytes of space.
    Bytes,
    /// Objects.
    Objects,
}

/// A key of an accounting ZAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccountingKey {
    /// What the value is.
    pub counted: Counted,
    /// FUID of a user or group, or id of a project.
    pub id: u64,
}

impl AccountingKey {
    /// Reads a key.
    pub fn parse(key: &[u8]) -> Option<AccountingKey> {
        let (counted, id) = match key.strip_prefix(OBJECT_COUNT_PREFIX.as_bytes()) {
            Some(id) => (Counted::Objects, id),
            None => (Counted::Bytes, key),
        };
        Some(AccountingKey { counted, id: parse_hex_key(id)? })
    }

    /// The key in the ZAP.
    pub fn encode(&self) -> String {
        let prefix = match self.counted {
            Counted::Bytes => "",
            Counted::Objects => OBJECT_COUNT_PREFIX,
        };
        format!("{prefix}{}", hex_key(self.id))
    }
}

/// The name in the master node of the ZAP with quotas on `counted` by `object`; there is none before the
/// first quota.
pub const fn quota_object_name(object: AccountingObject, counted: Counted) -> &'static str {
    match (object, counted) {
        (AccountingObject::User, Counted::Bytes) => "userquota@",
        (AccountingObject::User, Counted::Objects) => "userobjquota@",
        (AccountingObject::Group, Counted::Bytes) => "groupquota@",
        (AccountingObject::Group, Counted::Objects) => "groupobjquota@",
        (AccountingObject::Project, Counted::Bytes) => "projectquota@",
        (AccountingObject::Project, Counted::Objects) => "projectobjquota@",
    }
}

/// The name in the master node of the quota of all those that have none of their own; also the name of the
/// property.
pub const fn default_quota_name(object: AccountingObject, counted: Counted) -> &'static str {
    match (object, counted) {
        (AccountingObject::User, Counted::Bytes) => "defaultuserquota",
        (AccountingObject::User, Counted::Objects) => "defaultuserobjquota",
        (AccountingObject::Group, Counted::Bytes) => "defaultgroupquota",
        (AccountingObject::Group, Counted::Objects) => "defaultgroupobjquota",
        (AccountingObject::Project, Counted::Bytes) => "defaultprojectquota",
        (AccountingObject::Project, Counted::Objects) => "defaultprojectobjquota",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_and_objects_are_told_apart_by_the_prefix() {
        assert_eq!(AccountingKey::parse(b"3e8"), Some(AccountingKey { counted: Counted::Bytes, id: 1000 }));
        assert_eq!(
            AccountingKey::parse(b"obj-3e8"),
            Some(AccountingKey { counted: Counted::Objects, id: 1000 })
        );
        assert_eq!(AccountingKey::parse(b"obj-"), None);
    }

    proptest! {
        #[test]
        fn a_key_round_trips(id: u64, objects: bool) {
            let counted = if objects { Counted::Objects } else { Counted::Bytes };
            let key = AccountingKey { counted, id };
            prop_assert_eq!(AccountingKey::parse(key.encode().as_bytes()), Some(key));
        }
    }
}
