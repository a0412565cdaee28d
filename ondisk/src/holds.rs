//! Names of snapshots, and holds on them.
//!
//! | ZAP | of | key | value (one u64) |
//! |---|---|---|---|
//! | `ds_snapnames_zapobj` | a head dataset | name of a snapshot | number of its dataset object |
//! | `ds_userrefs_obj` | a snapshot | tag of a hold | when it was made, seconds since 1970 |
//! | `tmp_userrefs` | the pool | snapshot object in hexadecimal, `-`, tag of a temporary hold | the same |
//!
//! When the filesystem is case-insensitive ([`crate::dsl_dataset::FLAG_CI_DATASET`]) the ZAP is a normalizing
//! one and a lookup must match as the filesystem does.
//!
//! A temporary hold (of a running send or receive) has an entry in both of the latter, so that a pool that is
//! imported after a crash can release it.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_userhold.c`, `dsl_pool.c`, `zfs.h`.

use crate::ObjectId;
use crate::pool_directory::{hex_key, parse_hex_key};

/// Longest name of a dataset, snapshot or bookmark with its path, terminator included
/// (`ZFS_MAX_DATASET_NAME_LEN`).
pub const MAX_DATASET_NAME_BYTES: usize = 256;

/// The character between a dataset and a snapshot.
pub const SNAPSHOT_SEPARATOR: char = '@';
/// The character between a dataset and a bookmark.
pub const BOOKMARK_SEPARATOR: char = '#';

/// A dataset's name taken apart: `pool/fs@snap`, `pool/fs#mark` or `pool/fs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetName<'a> {
    /// The filesystem or volume.
    pub dataset: &'a str,
    /// What of it.
    pub part: Part<'a>,
}

/// Which version of a dataset a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// The head.
    Head,
    /// This snapshot.
    Snapshot(&'a str),
    /// This bookmark.
    Bookmark(&'a str),
}

impl<'a> DatasetName<'a> {
    /// Takes a name apart. No name contains a separator twice, nor an empty component, nor is it too long.
    pub fn parse(name: &'a str) -> Option<DatasetName<'a>> {
        let separators = [SNAPSHOT_SEPARATOR, BOOKMARK_SEPARATOR];
        let (dataset, part) = match name.find(separators) {
            None => (name, Part::Head),
            Some(at) => {
                let (dataset, rest) = (name.get(..at)?, name.get(at + 1..)?);
                if rest.is_empty() || rest.contains(separators) || rest.contains('/') {
                    return None;
                }
                let part = if name.get(at..)?.starts_with('@') {
                    Part::Snapshot(rest)
                } else {
                    Part::Bookmark(rest)
                };
                (dataset, part)
            }
        };
        let whole = name.len() < MAX_DATASET_NAME_BYTES && dataset.split('/').all(|one| !one.is_empty());
        whole.then_some(DatasetName { dataset, part })
    }
}

/// The key of a temporary hold in `tmp_userrefs`.
pub fn temporary_hold_key(snapshot: ObjectId, tag: &str) -> String {
    format!("{}-{tag}", hex_key(snapshot.get()))
}

/// The snapshot and tag of a key in `tmp_userrefs`.
pub fn parse_temporary_hold_key(key: &[u8]) -> Option<(ObjectId, &[u8])> {
    let dash = key.iter().position(|&c| c == b'-')?;
    let snapshot = parse_hex_key(key.get(..dash)?)?;
    Some((ObjectId(snapshot), key.get(dash + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_dataset_and_at_most_one_part() {
        let parse = DatasetName::parse;
        assert_eq!(parse("a/b"), Some(DatasetName { dataset: "a/b", part: Part::Head }));
        assert_eq!(parse("a/b@c"), Some(DatasetName { dataset: "a/b", part: Part::Snapshot("c") }));
        assert_eq!(parse("a#c"), Some(DatasetName { dataset: "a", part: Part::Bookmark("c") }));
        for bad in ["", "@a", "a@", "a@b@c", "a@b#c", "a//b", "/a", "a/", "a@b/c"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse(&"x".repeat(256)), None);
    }

    proptest::proptest! {
        #[test]
        fn keys_of_temporary_holds_round_trip(snapshot: u64, tag in "[-a-z0-9:.]{0,20}") {
            let key = temporary_hold_key(ObjectId(snapshot), &tag);
            let parsed = parse_temporary_hold_key(key.as_bytes());
            proptest::prop_assert_eq!(parsed, Some((ObjectId(snapshot), tag.as_bytes())));
        }

        #[test]
        fn names_are_put_together_from_their_parts(dataset in "[a-z]{1,3}(/[a-z0-9 \
            _.:-]{1,5}){0,3}", part in "[a-z0-9]{1,5}") {
            for (name, part) in [
                (dataset.clone(), Part::Head),
                (format!("{dataset}@{part}"), Part::Snapshot(&part)),
                (format!("{dataset}#{part}"), Part::Bookmark(&part)),
            ] {
                proptest::prop_assert_eq!(DatasetName::parse(&name), Some(DatasetName { dataset: &dataset, part }));
            }
        }
    }

    #[test]
    fn a_temporary_hold_names_snapshot_and_tag() {
        let key = temporary_hold_key(ObjectId(0x1a), ".send-12-1");
        assert_eq!(key, "1a-.send-12-1");
        assert_eq!(parse_temporary_hold_key(key.as_bytes()), Some((ObjectId(0x1a), &b".send-12-1"[..])));
        assert_eq!(parse_temporary_hold_key(b"tag"), None);
        assert_eq!(parse_temporary_hold_key(b"-tag"), None);
    }
}
