//! Properties whose names contain a user, a group or a project: `userused@root` and similar ones.
//!
//! They are shown only when a user asks for them by name. The caller resolves names of users and groups.
//! Source of the facts: OpenZFS 2.3 `zfs_quota.c`, `libzfs_dataset.c`.

use ondisk::accounting::{AccountingObject, Counted};

use super::Style;

/// A property of a user, group or project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserProperty {
    /// The kind of owner.
    pub owner: AccountingObject,
    /// Bytes or objects.
    pub counted: Counted,
    /// Whether it is the quota, and not the usage.
    pub quota: bool,
}

impl UserProperty {
    /// All, with the prefixes of their names.
    pub const ALL: [(&'static str, UserProperty); 12] = {
        const fn property(owner: AccountingObject, counted: Counted, quota: bool) -> UserProperty {
            UserProperty { owner, counted, quota }
        }
        use AccountingObject::{Group, Project, User};
        use Counted::{Bytes, Objects};
        [
            ("userused@", property(User, Bytes, false)),
            ("userquota@", property(User, Bytes, true)),
            ("groupused@", property(Group, Bytes, false)),
            ("groupquota@", property(Group, Bytes, true)),
            ("userobjused@", property(User, Objects, false)),
            ("userobjquota@", property(User, Objects, true)),
            ("groupobjused@", property(Group, Objects, false)),
            ("groupobjquota@", property(Group, Objects, true)),
            ("projectused@", property(Project, Bytes, false)),
            ("projectquota@", property(Project, Bytes, true)),
            ("projectobjused@", property(Project, Objects, false)),
            ("projectobjquota@", property(Project, Objects, true)),
        ]
    };

    /// Splits `userused@root` into the property and `root`.
    pub fn parse(name: &str) -> Option<(UserProperty, &str)> {
        Self::ALL.iter().find_map(|(prefix, property)| Some((*property, name.strip_prefix(prefix)?)))
    }

    /// The value as `zfs get` shows it.
    pub fn show(self, value: u64, style: Style) -> String {
        match (self.quota, self.counted) {
            (true, _) if value == 0 && !style.parsable => "none".to_owned(),
            (_, Counted::Bytes) => style.bytes(value),
            (_, Counted::Objects) => style.number(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_at_their_prefix() {
        let (property, who) = UserProperty::parse("groupobjquota@staff").unwrap();
        assert_eq!(
            (property.owner, property.counted, property.quota, who),
            (AccountingObject::Group, Counted::Objects, true, "staff")
        );
        assert_eq!(UserProperty::parse("used@root"), None);
    }

    #[test]
    fn no_quota_is_none() {
        let (quota, _) = UserProperty::parse("userquota@root").unwrap();
        let (used, _) = UserProperty::parse("userused@root").unwrap();
        assert_eq!(quota.show(0, Style::HUMAN_UTC), "none");
        assert_eq!(quota.show(0, Style::PARSABLE), "0");
        assert_eq!(used.show(0, Style::HUMAN_UTC), "0B");
    }
}
