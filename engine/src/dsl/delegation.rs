//! Delegated permissions: what `zfs allow` has granted, and what that allows a user to do.
//!
//! # The idea
//! A directory may have a list of grants ([`ondisk::deleg`]): to a user, a group or everyone, of permissions
//! or of *sets* of permissions, for the dataset itself (local) or for those below it (descendent). A
//! permission has the name of a subcommand or of a property. What is granted holds in addition to all else:
//! nothing takes a permission away that is granted elsewhere.
//!
//! A user has a permission on a dataset where a grant on the dataset itself (local), or on one above it
//! (descendent), gives it ([`allows`]). A snapshot counts as being below its dataset. A set is a name, and
//! means what the nearest dataset says that defines it, beginning at the dataset with the grant or the one
//! asked about, whichever is met first on the way up; a set may name other sets. Grants *to the creator* are
//! copied, when a dataset is made, into local grants to its creator
//! ([`super::edit::grant_to_creator`]).
//!
//! The pool's property `delegation` turns all of this off.
//!
//! Source of the facts: OpenZFS 2.4 `dsl_deleg.c`, `zfs_deleg.c`, `zfs_deleg.h`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ondisk::ObjectId;
use ondisk::deleg::{DelegKey, Scope, Who};
use ondisk::pool_directory::{self, DIRECTORY_OBJECT};

use super::{Dir, Dsl};
use crate::error::{Error, Result};
use crate::properties::Prop;

/// Permissions that are no properties.
pub const OTHER_PERMISSIONS: [&str; 34] = [
    "allow",
    "bookmark",
    "change-key",
    "clone",
    "create",
    "destroy",
    "diff",
    "groupobjquota",
    "groupobjused",
    "groupquota",
    "groupused",
    "hold",
    "load-key",
    "mount",
    "projectobjquota",
    "projectobjused",
    "projectquota",
    "projectused",
    "promote",
    "receive",
    "receive:append",
    "release",
    "rename",
    "rollback",
    "send",
    "send:encrypted",
    "send:raw",
    "share",
    "snapshot",
    "userobjquota",
    "userobjused",
    "userprop",
    "userquota",
    "userused",
];

/// Longest name of a set, its `@` and its end included (`ZFS_PERMSET_MAXLEN`).
const MAX_SET_NAME_BYTES: usize = 64;
/// More lists of grants than a directory may have, which bytes from a disk could claim to have.
const MAX_LISTS: usize = 1 << 16;

/// The name under which a permission is granted: that of a property for its alias. `None` where there is no
/// such permission.
pub fn permission(name: &str) -> Option<&'static str> {
    if let Some(known) = OTHER_PERMISSIONS.iter().find(|known| **known == name) {
        return Some(known);
    }
    let prop = Prop::from_name(name).filter(|prop| *prop != Prop::Mlslabel)?;
    let desc = prop.desc();
    (!desc.readonly() || desc.set_once()).then_some(desc.name)
}

/// Whether this can be the name of a set of permissions.
pub fn is_set_name(name: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c);
    name.len() < MAX_SET_NAME_BYTES
        && name.strip_prefix('@').is_some_and(|rest| !rest.is_empty() && rest.chars().all(is_valid))
}

/// What one directory grants: for each key the permissions, or the names of sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delegation {
    /// The lists.
    pub lists: BTreeMap<DelegKey, BTreeSet<String>>,
}

impl Delegation {
    fn list(&self, who: &Who, scope: Scope, sets: bool) -> Option<&BTreeSet<String>> {
        self.lists.get(&DelegKey { who: who.clone(), scope, sets })
    }

    /// The names of sets that a user has by this.
    fn sets_of(&self, user: &User<'_>, scope: Scope) -> impl Iterator<Item = &String> {
        user.names().filter_map(move |who| self.list(&who, scope, true)).flatten()
    }

    fn grants(&self, user: &User<'_>, scope: Scope, permission: &str) -> bool {
        let mut lists = user.names().filter_map(|who| self.list(&who, scope, false));
        lists.any(|list| list.contains(permission))
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct User<'a> {
    /// The user's number.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// The user's further groups.
    pub groups: &'a [u32],
}

impl User<'_> {
    /// To whom something may be granted so that this user has it.
    fn names(&self) -> impl Iterator<Item = Who> {
        let groups = std::iter::once(self.gid).chain(self.groups.iter().copied());
        [Who::User(self.uid.into()), Who::Everyone]
            .into_iter()
            .chain(groups.map(|group| Who::Group(group.into())).collect::<Vec<_>>())
    }
}

/// What is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The filesystem or volume whose own grants come first.
    Dataset,
    /// A snapshot of it.
    Snapshot,
    /// A dataset below it that the user is about to make: what creators get counts too.
    New,
}

/// The sets that a user has, and whether what they mean is known.
#[derive(Debug, Default)]
struct Sets(BTreeMap<String, bool>);

impl Sets {
    fn add<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        for name in names {
            self.0.entry(name.clone()).or_insert(false);
        }
    }

    /// Whether one of them has a permission, as this directory defines them.
    fn have(&mut self, here: &Delegation, permission: &str) -> bool {
        loop {
            let open: Vec<String> =
                self.0.iter().filter(|(_, is_known)| !**is_known).map(|(name, _)| name.clone()).collect();
            let mut has_more = false;
            for name in open {
                let who = Who::NamedSet(name.clone());
                let permissions = here.list(&who, Scope::None, false);
                if permissions.is_some_and(|list| list.contains(permission)) {
                    return true;
                }
                let inner = here.list(&who, Scope::None, true);
                if permissions.is_some() || inner.is_some() {
                    self.0.insert(name, true);
                }
                if let Some(inner) = inner {
                    self.add(inner.iter());
                    has_more = true;
                }
            }
            // Each name is known after one round, so that this ends.
            if !has_more {
                return false;
            }
        }
    }
}

/// Whether a user has a permission; `chain` is what the dataset's directory grants, then what the one above
/// it does, up to the root.
pub fn allows<'a>(
    chain: impl IntoIterator<Item = &'a Delegation>,
    subject: Subject,
    user: &User<'_>,
    permission: &str,
) -> bool {
    let mut scope = if subject == Subject::Dataset { Scope::Local } else { Scope::Descendent };
    let mut sets = Sets::default();
    let chain: Vec<&Delegation> = chain.into_iter().collect();
    if subject == Subject::New {
        let created =
            |is_set| chain.iter().filter_map(move |here| here.list(&Who::Creator, Scope::None, is_set));
        if created(false).any(|list| list.contains(permission)) {
            return true;
        }
        created(true).for_each(|names| sets.add(names.iter()));
    }
    for here in chain {
        sets.add(here.sets_of(user, scope));
        if sets.have(here, permission) || here.grants(user, scope, permission) {
            return true;
        }
        scope = Scope::Descendent;
    }
    false
}

impl Dsl {
    /// What a directory grants.
    pub async fn delegation(&self, dir: &Dir) -> Result<Delegation> {
        let mut found = Delegation::default();
        if dir.phys.deleg_zap.is_none() {
            return Ok(found);
        }
        let lists = self.mos().u64_entries(dir.phys.deleg_zap).await?;
        if lists.len() > MAX_LISTS {
            return Err(Error::corrupt(&dir.name, "has too many lists of permissions"));
        }
        for (key, object) in lists {
            // What makes no sense grants nothing.
            let Some(key) = DelegKey::parse(&key) else { continue };
            let entries = self.mos().u64_entries(ObjectId(object)).await?;
            found.lists.insert(key, entries.into_iter().map(|(name, _)| name).collect());
        }
        Ok(found)
    }

    /// What a directory and those above it grant, in this order.
    pub async fn delegations(&self, dir: &Arc<Dir>) -> Result<Vec<(String, Delegation)>> {
        let mut chain = Vec::new();
        for dir in std::iter::successors(Some(dir), |dir| dir.parent.as_ref()) {
            chain.push((dir.name.clone(), self.delegation(dir).await?));
        }
        Ok(chain)
    }

    /// Whether grants count in this pool (its property `delegation`).
    pub async fn has_delegation(&self) -> Result<bool> {
        let properties = self.mos().u64(DIRECTORY_OBJECT, pool_directory::PROPS).await?;
        let Some(properties) = properties else { return Ok(true) };
        Ok(self.mos().u64(ObjectId(properties), "delegation").await? != Some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: User<'static> = User { uid: 1, gid: 10, groups: &[11, 12] };

    fn delegation(lists: &[(&str, &str)]) -> Delegation {
        let list = |(key, permissions): &(&str, &str)| {
            (DelegKey::parse(key).unwrap(), permissions.split(',').map(str::to_owned).collect())
        };
        Delegation { lists: lists.iter().map(list).collect() }
    }

    #[test]
    fn grants_hold_here_or_below_for_users_groups_and_everyone() {
        let top = delegation(&[
            ("ul$1", "a"),
            ("ud$1", "b"),
            ("gl$10", "c"),
            ("gd$12", "d"),
            ("ed$", "e"),
            ("el$", "f"),
        ]);
        let none = Delegation::default();
        let here = |permission| allows([&top], Subject::Dataset, &ALICE, permission);
        let below = |permission| allows([&none, &top], Subject::Dataset, &ALICE, permission);
        let snapshot = |permission| allows([&top], Subject::Snapshot, &ALICE, permission);
        for (permission, is_here) in
            [("a", true), ("b", false), ("c", true), ("d", false), ("e", false), ("f", true)]
        {
            assert_eq!(here(permission), is_here, "{permission}");
            assert_eq!(below(permission), !is_here, "{permission}");
            assert_eq!(snapshot(permission), !is_here, "{permission}");
        }
        let bob = User { uid: 2, gid: 2, groups: &[] };
        assert!(allows([&top], Subject::Dataset, &bob, "f") && !allows([&top], Subject::Dataset, &bob, "a"));
        assert!(!here("g") && !here("") && !here("@x"));
        // A user is no group of the same number.
        let group = User { uid: 10, gid: 1, groups: &[] };
        assert!(!allows([&top], Subject::Dataset, &group, "c"));
    }

    #[test]
    fn a_set_means_what_the_nearest_definition_says() {
        let top = delegation(&[("s-$@set", "a"), ("Ul$1", "@set"), ("Ud$1", "@set")]);
        let child = delegation(&[("s-$@set", "b"), ("Ul$1", "@set"), ("Ud$1", "@set")]);
        let none = Delegation::default();
        let has = |chain: &[&Delegation], permission| {
            allows(chain.iter().copied(), Subject::Dataset, &ALICE, permission)
        };
        assert!(has(&[&top], "a") && !has(&[&top], "b"));
        assert!(has(&[&child, &top], "b") && !has(&[&child, &top], "a"));
        assert!(has(&[&none, &child, &top], "b") && !has(&[&none, &child, &top], "a"));
        assert!(has(&[&none, &top], "a"));
        // Defined above the grant.
        let only_granted = delegation(&[("Ul$1", "@set")]);
        let only_defined = delegation(&[("s-$@set", "c")]);
        assert!(has(&[&only_granted, &only_defined], "c"));
        // Not defined below it.
        assert!(!has(&[&only_defined, &only_granted], "c"));
    }

    #[test]
    fn sets_may_have_sets_and_go_round_in_circles() {
        let here = delegation(&[
            ("Ul$1", "@a"),
            ("S-$@a", "@b"),
            ("S-$@b", "@a,@c"),
            ("s-$@c", "x"),
            ("S-$@d", "@e"),
            ("s-$@e", "y"),
        ]);
        assert!(allows([&here], Subject::Dataset, &ALICE, "x"));
        assert!(!allows([&here], Subject::Dataset, &ALICE, "y"));
        // A set that was expanded here is not asked for again above.
        let above = delegation(&[("s-$@a", "z")]);
        assert!(!allows([&here, &above], Subject::Dataset, &ALICE, "z"));
    }

    #[test]
    fn who_creates_a_dataset_has_there_what_creators_get() {
        let top =
            delegation(&[("c-$", "a"), ("C-$", "@set"), ("s-$@set", "b"), ("ul$1", "c"), ("ud$1", "d")]);
        let new = |permission| allows([&top], Subject::New, &ALICE, permission);
        assert!(new("a") && new("b") && !new("c") && new("d"));
        assert!(!allows([&top], Subject::Dataset, &ALICE, "a"));
    }

    #[test]
    fn permissions_are_subcommands_and_properties_that_can_be_set() {
        assert_eq!(permission("compress"), Some("compression"));
        for known in
            ["create", "receive:append", "volsize", "volblocksize", "casesensitivity", "version", "quota"]
        {
            assert_eq!(permission(known), Some(known));
        }
        for none in [
            "",
            "list",
            "export",
            "type",
            "used",
            "mounted",
            "mlslabel",
            "created",
            "@set",
            "org:x",
            "available",
        ] {
            assert_eq!(permission(none), None, "{none}");
        }
        assert!(is_set_name("@basic") && !is_set_name("@") && !is_set_name("basic") && !is_set_name("@a/b"));
        assert!(
            !is_set_name(&format!("@{}", "a".repeat(63))) && is_set_name(&format!("@{}", "a".repeat(62)))
        );
    }
}
