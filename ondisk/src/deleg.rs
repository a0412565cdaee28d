//! Delegated permissions (`zfs allow`).
//!
//! A directory's `dd_deleg_zapobj` is a ZAP whose keys say who and where, and whose values are the numbers of
//! further ZAPs: there each key is a permission (or, for the set forms, the name of a permission set with its
//! `@`) and the value is meaningless. A key is a class letter, a scope letter, `$`, and an id or name:
//!
//! | key | who | contents |
//! |---|---|---|
//! | `ul$ID` `ud$ID` | user, on this dataset / on descendants | permissions |
//! | `gl$ID` `gd$ID` | group | permissions |
//! | `el$` `ed$` | everyone | permissions |
//! | `c-$` | the creator of a descendant | permissions |
//! | `s-$@NAME` | definition of a permission set | permissions |
//! | upper case first letter | the same | names of permission sets |
//!
//! Ids are decimal. Source of the facts: OpenZFS 2.3 `dsl_deleg.c`, `zfs_deleg.c`.

/// Who is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    /// The user with this id.
    User(u64),
    /// The group with this id.
    Group(u64),
    /// Everyone.
    Everyone,
    /// The creator of a descendant, for that descendant.
    Creator,
    /// No user yet: the definition of the set with this name (`@` included).
    NamedSet(String),
}

/// Where a permission holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// On the dataset itself.
    Local,
    /// On its descendants.
    Descendent,
    /// Does not apply (creators and set definitions).
    None,
}

/// A key of the delegation ZAP.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DelegKey {
    /// Who is allowed.
    pub who: Who,
    /// Where.
    pub scope: Scope,
    /// True when the contents are names of permission sets, false when they are permissions.
    pub sets: bool,
}

impl DelegKey {
    /// Reads a key; nothing if it is not of this form.
    pub fn parse(key: &str) -> Option<DelegKey> {
        let (head, tail) = key.split_once('$')?;
        let &[class, scope] = head.as_bytes() else { return None };
        let scope = match scope {
            b'l' => Scope::Local,
            b'd' => Scope::Descendent,
            b'-' => Scope::None,
            _ => return None,
        };
        let id = || tail.parse().ok().filter(|_| tail.bytes().all(|c| c.is_ascii_digit()));
        let who = match class.to_ascii_lowercase() {
            b'u' => Who::User(id()?),
            b'g' => Who::Group(id()?),
            b'e' if tail.is_empty() => Who::Everyone,
            b'c' if tail.is_empty() => Who::Creator,
            b's' if tail.starts_with('@') => Who::NamedSet(tail.to_owned()),
            _ => return None,
        };
        let scoped = matches!(who, Who::User(_) | Who::Group(_) | Who::Everyone);
        (scoped == (scope != Scope::None)).then_some(DelegKey {
            who,
            scope,
            sets: class.is_ascii_uppercase(),
        })
    }

    /// The key in the ZAP.
    pub fn encode(&self) -> String {
        let (class, tail) = match &self.who {
            Who::User(id) => ('u', id.to_string()),
            Who::Group(id) => ('g', id.to_string()),
            Who::Everyone => ('e', String::new()),
            Who::Creator => ('c', String::new()),
            Who::NamedSet(name) => ('s', name.clone()),
        };
        let class = if self.sets { class.to_ascii_uppercase() } else { class };
        let scope = match self.scope {
            Scope::Local => 'l',
            Scope::Descendent => 'd',
            Scope::None => '-',
        };
        format!("{class}{scope}${tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_documented_form_is_read() {
        let key = |who, scope, sets| DelegKey { who, scope, sets };
        assert_eq!(DelegKey::parse("ul$12"), Some(key(Who::User(12), Scope::Local, false)));
        assert_eq!(DelegKey::parse("Gd$0"), Some(key(Who::Group(0), Scope::Descendent, true)));
        assert_eq!(DelegKey::parse("el$"), Some(key(Who::Everyone, Scope::Local, false)));
        assert_eq!(DelegKey::parse("c-$"), Some(key(Who::Creator, Scope::None, false)));
        assert_eq!(DelegKey::parse("s-$@x"), Some(key(Who::NamedSet("@x".into()), Scope::None, false)));
        for bad in ["", "u$1", "ul$", "ul$+1", "ul$x", "u-$1", "cl$", "el$1", "s-$x", "xl$1"] {
            assert_eq!(DelegKey::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_back(key in "[ugecsUGECS][ld-]\\$(@?[a-z0-9]{0,6})") {
            if let Some(found) = DelegKey::parse(&key) {
                prop_assert_eq!(DelegKey::parse(&found.encode()), Some(found));
            }
        }
    }
}
