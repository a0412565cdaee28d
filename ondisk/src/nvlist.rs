//! Name-value lists: the self-describing records of labels, pool configurations, history and send streams.
//!
//! A packed list begins with four bytes: encoding (0 native, 1 XDR), endianness of the writer (0 big, 1
//! little), two zeros. Then the list itself:
//!
//! | encoding | list | pair | end |
//! |---|---|---|---|
//! | XDR | version (4), flags (4), pairs | encoded size (4), in-memory size (4), name, type (4), elements (4), value | 8 zero bytes |
//! | native | version (4), flags (4), pairs; nested lists: pairs only | size (4), name size (2), zero (2), elements (4), type (4), name, value | 4 zero bytes |
//!
//! XDR is big endian in units of four bytes: small integers take four, strings carry their length and are
//! padded, arrays (but not byte arrays, string arrays and list arrays) repeat their element count. In native
//! form every integer is in the writer's order, names and values are padded to eight bytes, and a nested list
//! occupies 24 bytes of dead in-memory structure inside the pair while its own pairs follow after it.
//!
//! Names and strings are bytes, not UTF-8: file names of vdevs and names of extended attributes stand here.
//! Pairs keep their order. Depth is limited to [`MAX_DEPTH`]; counts are bounded by the input.
//!
//! Source: OpenZFS 2.3 `nvpair.h`, `nvpair.c`.

use std::fmt;

use crate::{ByteOrder, Error, Result};

mod decode;
mod encode;

/// Deepest nesting that is read or written.
pub const MAX_DEPTH: usize = 64;

/// Pairs of one name replace each other.
pub const UNIQUE_NAME: u32 = 1;

/// Bytes that are usually text: no NUL inside, but not necessarily UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteString(Box<[u8]>);

impl ByteString {
    /// The bytes up to the first NUL.
    pub fn new(bytes: &[u8]) -> ByteString {
        ByteString(bytes.split(|byte| *byte == 0).next().unwrap_or_default().into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, if it is UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl From<&str> for ByteString {
    fn from(text: &str) -> ByteString {
        ByteString::new(text.as_bytes())
    }
}

impl fmt::Display for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

/// A value with its type.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // The variants are the types of `data_type_t`, in its order.
pub enum NvValue {
    /// Presence is the value.
    Boolean,
    Byte(u8),
    Int16(i16),
    Uint16(u16),
    Int32(i32),
    Uint32(u32),
    Int64(i64),
    Uint64(u64),
    String(ByteString),
    ByteArray(Vec<u8>),
    Int16Array(Vec<i16>),
    Uint16Array(Vec<u16>),
    Int32Array(Vec<i32>),
    Uint32Array(Vec<u32>),
    Int64Array(Vec<i64>),
    Uint64Array(Vec<u64>),
    StringArray(Vec<ByteString>),
    /// Nanoseconds since an arbitrary point in time.
    Hrtime(i64),
    Nvlist(Nvlist),
    NvlistArray(Vec<Nvlist>),
    BooleanValue(bool),
    Int8(i8),
    Uint8(u8),
    BooleanArray(Vec<bool>),
    Int8Array(Vec<i8>),
    Uint8Array(Vec<u8>),
    Double(f64),
}

impl NvValue {
    /// Number of the type on disk (`data_type_t`).
    pub const fn type_number(&self) -> u32 {
        match self {
            NvValue::Boolean => 1,
            NvValue::Byte(_) => 2,
            NvValue::Int16(_) => 3,
            NvValue::Uint16(_) => 4,
            NvValue::Int32(_) => 5,
            NvValue::Uint32(_) => 6,
            NvValue::Int64(_) => 7,
            NvValue::Uint64(_) => 8,
            NvValue::String(_) => 9,
            NvValue::ByteArray(_) => 10,
            NvValue::Int16Array(_) => 11,
            NvValue::Uint16Array(_) => 12,
            NvValue::Int32Array(_) => 13,
            NvValue::Uint32Array(_) => 14,
            NvValue::Int64Array(_) => 15,
            NvValue::Uint64Array(_) => 16,
            NvValue::StringArray(_) => 17,
            NvValue::Hrtime(_) => 18,
            NvValue::Nvlist(_) => 19,
            NvValue::NvlistArray(_) => 20,
            NvValue::BooleanValue(_) => 21,
            NvValue::Int8(_) => 22,
            NvValue::Uint8(_) => 23,
            NvValue::BooleanArray(_) => 24,
            NvValue::Int8Array(_) => 25,
            NvValue::Uint8Array(_) => 26,
            NvValue::Double(_) => 27,
        }
    }
}

macro_rules! from_value {
    ($($from:ty => $variant:ident,)*) => {
        $(impl From<$from> for NvValue {
            fn from(value: $from) -> NvValue {
                NvValue::$variant(value.into())
            }
        })*
    };
}

from_value! {
    u64 => Uint64,
    &str => String,
    ByteString => String,
    bool => BooleanValue,
    Nvlist => Nvlist,
    Vec<Nvlist> => NvlistArray,
    Vec<u64> => Uint64Array,
}

/// How a packed list is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Portable: what labels and configurations use.
    Xdr,
    /// In-memory layout of the writer: what history and send streams use.
    Native(ByteOrder),
}

/// An ordered list of named values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Nvlist {
    /// `nvl_nvflag`: [`UNIQUE_NAME`] for nearly all lists.
    pub flags: u32,
    pairs: Vec<(ByteString, NvValue)>,
}

impl Nvlist {
    /// An empty list of unique names.
    pub const fn new() -> Nvlist {
        Nvlist { flags: UNIQUE_NAME, pairs: Vec::new() }
    }

    /// Unpacks a list. Bytes after its end are ignored (areas on disk are padded).
    pub fn parse(bytes: &[u8]) -> Result<Nvlist> {
        decode::packed(bytes).map(|(list, _, _)| list)
    }

    /// Unpacks a list, and says how it was encoded and how many bytes it took.
    pub fn parse_packed(bytes: &[u8]) -> Result<(Nvlist, Encoding, usize)> {
        decode::packed(bytes)
    }

    /// Packs the list.
    pub fn encode(&self, encoding: Encoding) -> Result<Vec<u8>> {
        encode::packed(self, encoding)
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// True without pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&ByteString, &NvValue)> {
        self.pairs.iter().map(|(name, value)| (name, value))
    }

    /// Appends a pair, whether or not the name is taken.
    pub fn push(&mut self, name: impl Into<ByteString>, value: impl Into<NvValue>) {
        self.pairs.push((name.into(), value.into()));
    }

    /// Sets the value of a name: in its place if it is taken, at the end otherwise.
    pub fn set(&mut self, name: impl Into<ByteString>, value: impl Into<NvValue>) {
        let name = name.into();
        match self.pairs.iter_mut().find(|(other, _)| *other == name) {
            Some((_, old)) => *old = value.into(),
            None => self.pairs.push((name, value.into())),
        }
    }

    /// Removes all pairs of a name.
    pub fn remove(&mut self, name: &str) {
        self.pairs.retain(|(other, _)| other.as_bytes() != name.as_bytes());
    }

    /// The first value of this name.
    pub fn get(&self, name: &str) -> Option<&NvValue> {
        self.get_bytes(name.as_bytes())
    }

    /// The first value of a name that need not be UTF-8.
    pub fn get_bytes(&self, name: &[u8]) -> Option<&NvValue> {
        self.pairs.iter().find(|(other, _)| other.as_bytes() == name).map(|(_, value)| value)
    }

    /// True when the name is present, with whatever type.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// A boolean in either of its two forms: present without value, or present and true.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(NvValue::Boolean | NvValue::BooleanValue(true)))
    }

    fn required<T>(&self, name: &str, found: Option<T>) -> Result<T> {
        found.ok_or_else(|| match self.get(name) {
            None => Error::missing("nvlist", name),
            Some(other) => Error::invalid("nvlist", format!("{name:?} has type {}", other.type_number())),
        })
    }
}

macro_rules! getters {
    ($($find:ident $get:ident $type:ty, $pattern:pat => $value:expr;)*) => {
        impl Nvlist {
            $(
                /// The value, if the name is present with this type.
                pub fn $find(&self, name: &str) -> Option<$type> {
                    match self.get(name)? {
                        $pattern => $value,
                        _ => None,
                    }
                }

                /// The value; an error when the name is absent or has another type.
                pub fn $get(&self, name: &str) -> Result<$type> {
                    self.required(name, self.$find(name))
                }
            )*
        }
    };
}

getters! {
    find_u64 get_u64 u64, NvValue::Uint64(value) => Some(*value);
    find_i64 get_i64 i64, NvValue::Int64(value) => Some(*value);
    find_u32 get_u32 u32, NvValue::Uint32(value) => Some(*value);
    find_bool get_bool bool, NvValue::BooleanValue(value) => Some(*value);
    find_string get_string &ByteString, NvValue::String(value) => Some(value);
    find_str get_str &str, NvValue::String(value) => value.to_str();
    find_nvlist get_nvlist &Nvlist, NvValue::Nvlist(value) => Some(value);
    find_nvlist_array get_nvlist_array &[Nvlist], NvValue::NvlistArray(value) => Some(value.as_slice());
    find_u64_array get_u64_array &[u64], NvValue::Uint64Array(value) => Some(value.as_slice());
    find_string_array get_string_array &[ByteString], NvValue::StringArray(value) => Some(value.as_slice());
    find_byte_array get_byte_array &[u8],
        NvValue::ByteArray(value) | NvValue::Uint8Array(value) => Some(value.as_slice());
}

/// One line a value, nested lists indented by four: the form that `zdb` prints. The alternate form (`{:#}`)
/// begins with an indentation of four.
impl fmt::Display for Nvlist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dump(f, if f.alternate() { 4 } else { 0 })
    }
}

impl Nvlist {
    /// Writes the list in the form that `zdb` prints, indented.
    pub fn dump(&self, out: &mut impl fmt::Write, indent: usize) -> fmt::Result {
        for (name, value) in &self.pairs {
            let mut line = |value: &dyn fmt::Display| writeln!(out, "{:indent$}{name}: {value}", "");
            match value {
                NvValue::Boolean => writeln!(out, "{:indent$}{name}", "")?,
                NvValue::BooleanValue(value) => line(value)?,
                NvValue::Byte(value) | NvValue::Uint8(value) => line(value)?,
                NvValue::Int8(value) => line(value)?,
                NvValue::Int16(value) => line(value)?,
                NvValue::Uint16(value) => line(value)?,
                NvValue::Int32(value) => line(value)?,
                NvValue::Uint32(value) => line(value)?,
                NvValue::Int64(value) | NvValue::Hrtime(value) => line(value)?,
                NvValue::Uint64(value) => line(value)?,
                NvValue::Double(value) => line(value)?,
                NvValue::String(value) => line(&format_args!("'{value}'"))?,
                NvValue::ByteArray(values) | NvValue::Uint8Array(values) => {
                    dump_array(out, indent, name, values)?
                }
                NvValue::Int8Array(values) => dump_array(out, indent, name, values)?,
                NvValue::Int16Array(values) => dump_array(out, indent, name, values)?,
                NvValue::Uint16Array(values) => dump_array(out, indent, name, values)?,
                NvValue::Int32Array(values) => dump_array(out, indent, name, values)?,
                NvValue::Uint32Array(values) => dump_array(out, indent, name, values)?,
                NvValue::Int64Array(values) => dump_array(out, indent, name, values)?,
                NvValue::Uint64Array(values) => dump_array(out, indent, name, values)?,
                NvValue::BooleanArray(values) => dump_array(out, indent, name, values)?,
                NvValue::StringArray(values) => {
                    for (index, value) in values.iter().enumerate() {
                        writeln!(out, "{:indent$}{name}[{index}]: '{value}'", "")?;
                    }
                }
                NvValue::Nvlist(list) => {
                    writeln!(out, "{:indent$}{name}:", "")?;
                    list.dump(out, indent + 4)?;
                }
                NvValue::NvlistArray(lists) => {
                    for (index, list) in lists.iter().enumerate() {
                        writeln!(out, "{:indent$}{name}[{index}]:", "")?;
                        list.dump(out, indent + 4)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn dump_array<T: fmt::Display>(
    out: &mut impl fmt::Write,
    indent: usize,
    name: &ByteString,
    values: &[T],
) -> fmt::Result {
    for (index, value) in values.iter().enumerate() {
        writeln!(out, "{:indent$}{name}[{index}]: {value}", "")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
