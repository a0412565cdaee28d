//! Structures that are nothing but 64-bit words in a row.
//!
//! Most of the pool's own structures were laid out that way so that a pool can be byte-swapped blindly.
//! [`word_struct!`] declares such a structure once and gives it `SIZE`, `parse`, `read`, `encode` and
//! `write`; the order of the fields in the declaration is the layout on disk. Reserved words at the end are
//! part of `SIZE`: they are skipped on reading and zero on writing.

use crate::blkptr::Blkptr;
use crate::{
    Asize, BlockId, ByteOffset, Guid, Lsize, ObjectId, ObjsetId, Psize, Reader, Result, Txg, Writer,
};

/// A field that takes a whole number of 64-bit words.
pub trait Word: Sized {
    /// How many words.
    const WORDS: usize;
    /// Consumes the field.
    fn read(reader: &mut Reader<'_>) -> Result<Self>;
    /// Appends the field.
    fn write(&self, writer: &mut Writer);
}

macro_rules! word {
    ($($type:ty: $from:expr, $into:expr;)*) => {$(
        impl Word for $type {
            const WORDS: usize = 1;
            fn read(reader: &mut Reader<'_>) -> Result<Self> {
                reader.u64().map($from)
            }
            fn write(&self, writer: &mut Writer) {
                writer.u64($into(*self));
            }
        }
    )*};
}

word! {
    u64: |word| word, |word| word;
    i64: |word| word as i64, |word| word as u64;
    Txg: Txg, Txg::get;
    Guid: Guid, Guid::get;
    ObjectId: ObjectId, ObjectId::get;
    ObjsetId: ObjsetId, ObjsetId::get;
    BlockId: BlockId, BlockId::get;
    ByteOffset: ByteOffset, ByteOffset::get;
    Asize: Asize, Asize::get;
    Psize: Psize, Psize::get;
    Lsize: Lsize, Lsize::get;
}

impl Word for Blkptr {
    const WORDS: usize = Blkptr::SIZE / 8;
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Blkptr::read(reader)
    }
    fn write(&self, writer: &mut Writer) {
        Blkptr::write(self, writer);
    }
}

impl<T: Word + Copy + Default, const N: usize> Word for [T; N] {
    const WORDS: usize = T::WORDS * N;
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let mut all = [T::default(); N];
        for one in &mut all {
            *one = T::read(reader)?;
        }
        Ok(all)
    }
    fn write(&self, writer: &mut Writer) {
        for one in self {
            one.write(writer);
        }
    }
}

/// Declares a structure of words; `+ N` states how many reserved words follow the last field.
macro_rules! word_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(+ $reserved:literal)? {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $name {
            /// Bytes on disk, reserved words included.
            pub const SIZE: usize = 8 * (0 $(+ <$type as $crate::words::Word>::WORDS)* $(+ $reserved)?);

            /// The structure at the start of `bytes`.
            pub fn parse(bytes: &[u8], order: $crate::ByteOrder) -> $crate::Result<$name> {
                $name::read(&mut $crate::Reader::new(stringify!($name), bytes, order))
            }

            /// Consumes the structure.
            pub fn read(reader: &mut $crate::Reader<'_>) -> $crate::Result<$name> {
                let found = $name { $($field: $crate::words::Word::read(reader)?,)* };
                $(reader.skip($reserved * 8)?;)?
                Ok(found)
            }

            /// The bytes on disk.
            pub fn encode(&self, order: $crate::ByteOrder) -> Vec<u8> {
                let mut writer = $crate::Writer::new(order);
                self.write(&mut writer);
                writer.finish()
            }

            /// Appends the structure.
            pub fn write(&self, writer: &mut $crate::Writer) {
                $($crate::words::Word::write(&self.$field, writer);)*
                $(writer.zeros($reserved * 8);)?
            }
        }

        impl $crate::words::Word for $name {
            const WORDS: usize = $name::SIZE / 8;
            fn read(reader: &mut $crate::Reader<'_>) -> $crate::Result<Self> {
                $name::read(reader)
            }
            fn write(&self, writer: &mut $crate::Writer) {
                $name::write(self, writer);
            }
        }
    };
}
pub(crate) use word_struct;

/// Tests that a structure of words survives the way to disk and back, from arbitrary words, in both byte
/// orders.
#[cfg(test)]
macro_rules! word_struct_round_trips {
    ($($test:ident: $name:ident;)*) => {
        proptest::proptest! {$(
            #[test]
            fn $test(words in proptest::collection::vec(proptest::prelude::any::<u64>(), $name::SIZE / 8), big: bool) {
                let order = if big { $crate::ByteOrder::Big } else { $crate::ByteOrder::Little };
                let bytes: Vec<u8> = words.iter().flat_map(|&word| order.u64_bytes(word)).collect();
                let found = $name::parse(&bytes, order).unwrap();
                let again = found.encode(order);
                proptest::prop_assert_eq!(again.len(), $name::SIZE);
                proptest::prop_assert_eq!($name::parse(&again, order).unwrap(), found);
                proptest::prop_assert!($name::parse(&bytes[..$name::SIZE - 1], order).is_err());
            }
        )*}
    };
}
#[cfg(test)]
pub(crate) use word_struct_round_trips;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteOrder;

    word_struct! {
        /// Test.
        pub struct Sample + 2 {
            /// One word.
            pub txg: Txg,
            /// Negative numbers too.
            pub balance: i64,
            /// Three words.
            pub histogram: [u64; 3],
        }
    }

    word_struct_round_trips! { sample_round_trips: Sample; }

    #[test]
    fn fields_lie_in_the_order_of_their_declaration() {
        let sample = Sample { txg: Txg(7), balance: -1, histogram: [1, 2, 3] };
        let bytes = sample.encode(ByteOrder::Big);
        assert_eq!(Sample::SIZE, 56);
        assert_eq!(bytes[7], 7);
        assert_eq!(bytes[8..16], [0xff; 8]);
        assert_eq!(bytes[39], 3);
        assert_eq!(bytes[40..], [0; 16]);
    }
}
