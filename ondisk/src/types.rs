//! Newtypes for the numbers that must not be mixed.
//!
//! Three sizes of one block are different types: [`Lsize`] (what a reader sees), [`Psize`] (after
//! compression, what is checksummed and transferred) and [`Asize`] (what it occupies on its vdev, parity
//! included). All are bytes.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> $name {
                $name(value)
            }
        }

        impl From<$name> for $inner {
            fn from(value: $name) -> $inner {
                value.0
            }
        }
    };
}

macro_rules! size {
    ($(#[$doc:meta])* $name:ident) => {
        number!($(#[$doc])* $name(u64));

        impl $name {
            /// No bytes.
            pub const ZERO: $name = $name(0);

            /// The sum, unless it overflows.
            pub const fn checked_add(self, other: $name) -> Option<$name> {
                match self.0.checked_add(other.0) {
                    Some(sum) => Some($name(sum)),
                    None => None,
                }
            }

            /// The difference, unless it is negative.
            pub const fn checked_sub(self, other: $name) -> Option<$name> {
                match self.0.checked_sub(other.0) {
                    Some(difference) => Some($name(difference)),
                    None => None,
                }
            }

            /// The size as a length in memory. Sizes of blocks fit by parsing (at most 16 MiB); others may
            /// not.
            pub fn to_usize(self) -> Option<usize> {
                usize::try_from(self.0).ok()
            }

            /// True for no bytes.
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }
        }
    };
}

number!(
    /// Transaction group: the number of an atomic commit of the pool.
    Txg(u64)
);
number!(
    /// Globally unique id of a pool, vdev or dataset.
    Guid(u64)
);
number!(
    /// Number of an object (dnode) within its object set.
    ObjectId(u64)
);
number!(
    /// Number of an object set: the object id of its dataset in the MOS; 0 is the MOS itself.
    ObjsetId(u64)
);
number!(
    /// Index of a top-level vdev in the pool.
    VdevId(u32)
);
number!(
    /// Index of a block within a level of an object's block tree.
    BlockId(u64)
);
number!(
    /// Level of a block in its tree: 0 is data, above it indirect blocks. Bookmarks use negative levels for
    /// blocks outside any tree.
    Level(i8)
);
size!(
    /// Logical size of a block in bytes: what a reader sees.
    Lsize
);
size!(
    /// Physical size of a block in bytes: after compression.
    Psize
);
size!(
    /// Allocated size in bytes on a top-level vdev: parity, padding and gang headers included.
    Asize
);
size!(
    /// Offset in bytes within a vdev (after its front labels for DVAs), an object or a device, as the user of
    /// the type states.
    ByteOffset
);

impl Txg {
    /// No transaction group: the birth of what was never written.
    pub const NONE: Txg = Txg(0);
    /// The txg of a new pool's first commit; labels written before it carry no data.
    pub const INITIAL: Txg = Txg(4);
}

impl ObjectId {
    /// Whether this is 0, which stands for no object wherever a structure names one.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The meta-dnode: the object whose content is the array of all other dnodes.
    pub const META_DNODE: ObjectId = ObjectId(0);
}

impl ObjsetId {
    /// The meta object set, which holds the pool's own structures.
    pub const MOS: ObjsetId = ObjsetId(0);
}

impl ByteOffset {
    /// The offset `bytes` further, unless it overflows.
    pub const fn checked_add_bytes(self, bytes: u64) -> Option<ByteOffset> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(ByteOffset(sum)),
            None => None,
        }
    }
}

impl Level {
    /// Data blocks.
    pub const DATA: Level = Level(0);
    /// ZIL blocks, in bookmarks.
    pub const ZIL: Level = Level(-1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_that_overflow_are_refused() {
        assert_eq!(Asize(u64::MAX).checked_add(Asize(1)), None);
        assert_eq!(Asize(1).checked_sub(Asize(2)), None);
        assert_eq!(ByteOffset(1).checked_add_bytes(2), Some(ByteOffset(3)));
    }
}
