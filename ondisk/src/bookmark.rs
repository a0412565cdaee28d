//! Bookmarks: what remains of a snapshot so that one can still send from it.
//!
//! The bookmarks of a dataset are a ZAP, named in the dataset's own ZAP under
//! [`BOOKMARK_NAMES`](crate::dsl_dataset::field::BOOKMARK_NAMES): short name to an array of u64. There are 3
//! words in the first form and 12 with the feature `bookmark_v2` (used when any of the later fields is
//! needed); a reader takes absent words for 0.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `zbm_guid` | guid of the snapshot |
//! | 8 | 8 | `zbm_creation_txg` | its creation txg |
//! | 16 | 8 | `zbm_creation_time` | seconds since 1970 |
//! | 24 | 8 | `zbm_redaction_obj` | redaction list ([`crate::redaction`]), 0 if none |
//! | 32 | 8 | `zbm_flags` | [`FLAG_HAS_FBN`], [`FLAG_SNAPSHOT_EXISTS`] |
//! | 40 | 24 | `zbm_*_bytes_refd` | space the snapshot referenced: allocated, compressed, uncompressed |
//! | 64 | 24 | `zbm_*_freed_before_next_snap` | space of its blocks freed before the next snapshot, likewise |
//! | 88 | 8 | `zbm_ivset_guid` | set of IVs of an encrypted snapshot |
//!
//! Source of the facts: OpenZFS 2.3 `dsl_bookmark.h`, `dsl_bookmark.c`.

use crate::words::word_struct;
use crate::{Error, Guid, ObjectId, Result, Txg};

/// The space fields are valid.
pub const FLAG_HAS_FBN: u64 = 1;
/// The snapshot was there when the flag was last kept.
pub const FLAG_SNAPSHOT_EXISTS: u64 = 1 << 1;

word_struct! {
    /// Space by what is counted.
    pub struct BookmarkSpace {
        /// Allocated.
        pub referenced_bytes: u64,
        /// Before allocation overhead.
        pub compressed_bytes: u64,
        /// Before compression.
        pub uncompressed_bytes: u64,
    }
}

word_struct! {
    /// A bookmark (`zfs_bookmark_phys_t`), in its long form.
    pub struct BookmarkPhys {
        /// Guid of the snapshot.
        pub guid: Guid,
        /// Its creation txg.
        pub creation_txg: Txg,
        /// Seconds since 1970.
        pub creation_time: u64,
        /// Redaction list, 0 if none.
        pub redaction_list: ObjectId,
        /// `FLAG_*`.
        pub flags: u64,
        /// Valid only through [`BookmarkPhys::written`].
        pub referenced: BookmarkSpace,
        /// Valid only through [`BookmarkPhys::written`].
        pub freed_before_next: BookmarkSpace,
        /// Set of IVs of an encrypted snapshot, else 0.
        pub ivset_guid: Guid,
    }
}

impl BookmarkPhys {
    /// Words of the first form.
    pub const WORDS_V1: usize = 3;
    /// Words of the long form.
    pub const WORDS_V2: usize = BookmarkPhys::SIZE / 8;

    /// From the integers of the ZAP value.
    pub fn from_words(words: &[u64]) -> Result<BookmarkPhys> {
        if words.len() < Self::WORDS_V1 {
            return Err(Error::invalid("bookmark", format!("{} words", words.len())));
        }
        let order = crate::ByteOrder::HOST;
        let mut bytes: Vec<u8> =
            words.iter().take(Self::WORDS_V2).flat_map(|&w| order.u64_bytes(w)).collect();
        bytes.resize(Self::SIZE, 0);
        BookmarkPhys::parse(&bytes, order)
    }

    /// True when the long form is needed, and with it the feature `bookmark_v2`.
    pub fn needs_v2(&self) -> bool {
        *self
            != BookmarkPhys {
                guid: self.guid,
                creation_txg: self.creation_txg,
                creation_time: self.creation_time,
                ..BookmarkPhys::default()
            }
    }

    /// Space the snapshot referenced, and how much of it was freed before the next snapshot; nothing if not
    /// kept.
    pub fn written(&self) -> Option<(BookmarkSpace, BookmarkSpace)> {
        (self.flags & FLAG_HAS_FBN != 0).then_some((self.referenced, self.freed_before_next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::word_struct_round_trips;

    word_struct_round_trips! { a_bookmark_round_trips: BookmarkPhys; }

    #[test]
    fn the_first_form_lacks_what_came_later() {
        let found = BookmarkPhys::from_words(&[1, 2, 3]).unwrap();
        assert_eq!((found.guid, found.creation_txg, found.creation_time), (Guid(1), Txg(2), 3));
        assert!(!found.needs_v2());
        assert_eq!(found.written(), None);
        assert!(BookmarkPhys::from_words(&[1, 2]).is_err());
    }

    #[test]
    fn the_long_form_has_twelve_words() {
        let words: Vec<u64> = (1..=12).collect();
        let found = BookmarkPhys::from_words(&words).unwrap();
        assert_eq!(BookmarkPhys::WORDS_V2, 12);
        assert!(found.needs_v2());
        assert_eq!(found.ivset_guid, Guid(12));
        let (referenced, freed) = found.written().unwrap();
        assert_eq!((referenced.referenced_bytes, freed.uncompressed_bytes), (6, 11));
    }
}
