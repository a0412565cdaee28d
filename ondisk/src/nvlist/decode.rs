//! Unpacking. One walk over values serves both encodings; [`Source`] is what differs.

use super::{ByteString, Encoding, MAX_DEPTH, NvValue, Nvlist};
use crate::{ByteOrder, Error, Reader, Result};

const WHAT: &str = "nvlist";

pub(super) fn packed(bytes: &[u8]) -> Result<(Nvlist, Encoding, usize)> {
    let mut header = Reader::new(WHAT, bytes, ByteOrder::Big);
    let [encoding, endian, _, _] = header.array()?;
    let order = match endian {
        0 => ByteOrder::Big,
        1 => ByteOrder::Little,
        other => return Err(Error::unsupported(WHAT, format!("endianness {other}"))),
    };
    let body = header.rest();
    let (list, encoding, reader) = match encoding {
        0 => {
            let mut reader = Reader::new(WHAT, body, order);
            let flags = list_header(&mut reader)?;
            (native_pairs(&mut reader, flags, 1)?, Encoding::Native(order), reader)
        }
        1 => {
            let mut reader = Reader::new(WHAT, body, ByteOrder::Big);
            (xdr_list(&mut reader, 1)?, Encoding::Xdr, reader)
        }
        other => return Err(Error::unsupported(WHAT, format!("encoding {other}"))),
    };
    Ok((list, encoding, header.position() + reader.position()))
}

fn list_header(reader: &mut Reader<'_>) -> Result<u32> {
    let version = reader.u32()?;
    if version != 0 {
        return Err(Error::unsupported(WHAT, format!("version {version}")));
    }
    reader.u32()
}

fn check_depth(depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Error::TooLarge { what: "nvlist depth", limit: MAX_DEPTH as u64 });
    }
    Ok(())
}

fn xdr_list(reader: &mut Reader<'_>, depth: usize) -> Result<Nvlist> {
    check_depth(depth)?;
    let flags = list_header(reader)?;
    let mut pairs = Vec::new();
    loop {
        let _encoded_size = reader.u32()?;
        if reader.u32()? == 0 {
            return Ok(Nvlist { flags, pairs });
        }
        let name = xdr_string(reader)?;
        let ty = reader.u32()?;
        let count = reader.u32()?;
        let value = value(&mut Xdr { reader, depth }, ty, count)?;
        pairs.push((name, value));
    }
}

fn xdr_string(reader: &mut Reader<'_>) -> Result<ByteString> {
    let length = reader.u32()? as usize;
    xdr_opaque(reader, length).map(ByteString::new)
}

fn xdr_opaque<'a>(reader: &mut Reader<'a>, length: usize) -> Result<&'a [u8]> {
    let bytes = reader.bytes(length)?;
    reader.skip(length.wrapping_neg() & 3)?;
    Ok(bytes)
}

fn native_pairs(reader: &mut Reader<'_>, flags: u32, depth: usize) -> Result<Nvlist> {
    check_depth(depth)?;
    let mut pairs = Vec::new();
    loop {
        let mut peek = reader.clone();
        let size = peek.u32()? as usize;
        if size == 0 {
            reader.skip(4)?;
            return Ok(Nvlist { flags, pairs });
        }
        let mut pair = reader.sub(size)?;
        pair.skip(4)?;
        let name_size = usize::from(pair.u16()?);
        pair.skip(2)?;
        let count = pair.u32()?;
        let ty = pair.u32()?;
        let name = match pair.bytes(name_size)? {
            [name @ .., 0] => ByteString::new(name),
            _ => return Err(Error::invalid(WHAT, "name without end")),
        };
        // A pair without value may end right after its name.
        if !pair.is_empty() {
            pair.align(8)?;
        }
        let value = value(&mut Native { value: pair, stream: reader, depth }, ty, count)?;
        pairs.push((name, value));
    }
}

/// The differences between the two encodings.
trait Source {
    /// An integer of `size` bytes in memory, zero extended (or sign extended, which callers cut off).
    fn integer(&mut self, size: usize) -> Result<u64>;
    /// Whatever stands before the elements of an array of integers.
    fn array_header(&mut self, count: u32) -> Result<()>;
    /// Raw bytes.
    fn opaque(&mut self, length: usize) -> Result<&[u8]>;
    /// Whatever stands before the strings of an array.
    fn string_array_header(&mut self, count: u32) -> Result<()>;
    /// A string.
    fn string(&mut self) -> Result<ByteString>;
    /// Nested lists; `array`: the value is an array of them.
    fn lists(&mut self, count: u32, array: bool) -> Result<Vec<Nvlist>>;
    /// Bytes left: the bound of all counts.
    fn remaining(&self) -> usize;
}

struct Xdr<'r, 'a> {
    reader: &'r mut Reader<'a>,
    depth: usize,
}

impl Source for Xdr<'_, '_> {
    fn integer(&mut self, size: usize) -> Result<u64> {
        if size == 8 { self.reader.u64() } else { Ok(self.reader.u32()?.into()) }
    }

    fn array_header(&mut self, count: u32) -> Result<()> {
        let repeated = self.reader.u32()?;
        if repeated != count {
            return Err(Error::invalid(WHAT, format!("array of {count} elements says {repeated}")));
        }
        Ok(())
    }

    fn opaque(&mut self, length: usize) -> Result<&[u8]> {
        xdr_opaque(self.reader, length)
    }

    fn string_array_header(&mut self, _count: u32) -> Result<()> {
        Ok(())
    }

    fn string(&mut self) -> Result<ByteString> {
        xdr_string(self.reader)
    }

    fn lists(&mut self, count: u32, _array: bool) -> Result<Vec<Nvlist>> {
        (0..count).map(|_| xdr_list(self.reader, self.depth + 1)).collect()
    }

    fn remaining(&self) -> usize {
        self.reader.remaining()
    }
}

struct Native<'r, 'a> {
    /// The value inside the pair.
    value: Reader<'a>,
    /// The bytes after the pair: the pairs of nested lists.
    stream: &'r mut Reader<'a>,
    depth: usize,
}

impl Source for Native<'_, '_> {
    fn integer(&mut self, size: usize) -> Result<u64> {
        Ok(match size {
            1 => self.value.u8()?.into(),
            2 => self.value.u16()?.into(),
            4 => self.value.u32()?.into(),
            _ => self.value.u64()?,
        })
    }

    fn array_header(&mut self, _count: u32) -> Result<()> {
        Ok(())
    }

    fn opaque(&mut self, length: usize) -> Result<&[u8]> {
        self.value.bytes(length)
    }

    fn string_array_header(&mut self, count: u32) -> Result<()> {
        self.value.skip(pointers(count)?)
    }

    fn string(&mut self) -> Result<ByteString> {
        let Some(end) = self.value.rest().iter().position(|byte| *byte == 0) else {
            return Err(Error::invalid(WHAT, "string without end"));
        };
        let text = ByteString::new(self.value.bytes(end)?);
        self.value.skip(1)?;
        Ok(text)
    }

    fn lists(&mut self, count: u32, array: bool) -> Result<Vec<Nvlist>> {
        if array {
            self.value.skip(pointers(count)?)?;
        }
        (0..count)
            .map(|_| {
                let mut dead = self.value.sub(24)?;
                let flags = list_header(&mut dead)?;
                native_pairs(self.stream, flags, self.depth + 1)
            })
            .collect()
    }

    fn remaining(&self) -> usize {
        self.value.remaining()
    }
}

/// Bytes of the dead pointers before the elements of a native array.
fn pointers(count: u32) -> Result<usize> {
    (count as usize).checked_mul(8).ok_or(Error::TooLarge { what: "nvlist array", limit: u32::MAX.into() })
}

fn integers<T>(
    source: &mut impl Source,
    count: u32,
    size: usize,
    convert: impl Fn(u64) -> T,
) -> Result<Vec<T>> {
    let mut values = Vec::with_capacity((count as usize).min(source.remaining()));
    if count > 0 {
        source.array_header(count)?;
    }
    for _ in 0..count {
        values.push(convert(source.integer(size)?));
    }
    Ok(values)
}

fn value(source: &mut impl Source, ty: u32, count: u32) -> Result<NvValue> {
    let is_array = matches!(ty, 10..=17 | 20 | 24..=26);
    let expected = u32::from(ty != 1);
    if !is_array && count != expected {
        return Err(Error::invalid(WHAT, format!("{count} elements of scalar type {ty}")));
    }
    Ok(match ty {
        1 => NvValue::Boolean,
        2 => NvValue::Byte(source.integer(1)? as u8),
        3 => NvValue::Int16(source.integer(2)? as i16),
        4 => NvValue::Uint16(source.integer(2)? as u16),
        5 => NvValue::Int32(source.integer(4)? as i32),
        6 => NvValue::Uint32(source.integer(4)? as u32),
        7 => NvValue::Int64(source.integer(8)? as i64),
        8 => NvValue::Uint64(source.integer(8)?),
        9 => NvValue::String(source.string()?),
        10 => NvValue::ByteArray(source.opaque(count as usize)?.to_vec()),
        11 => NvValue::Int16Array(integers(source, count, 2, |word| word as i16)?),
        12 => NvValue::Uint16Array(integers(source, count, 2, |word| word as u16)?),
        13 => NvValue::Int32Array(integers(source, count, 4, |word| word as i32)?),
        14 => NvValue::Uint32Array(integers(source, count, 4, |word| word as u32)?),
        15 => NvValue::Int64Array(integers(source, count, 8, |word| word as i64)?),
        16 => NvValue::Uint64Array(integers(source, count, 8, |word| word)?),
        17 => {
            source.string_array_header(count)?;
            NvValue::StringArray((0..count).map(|_| source.string()).collect::<Result<_>>()?)
        }
        18 => NvValue::Hrtime(source.integer(8)? as i64),
        19 => match source.lists(1, false)?.pop() {
            Some(list) => NvValue::Nvlist(list),
            None => return Err(Error::invalid(WHAT, "nested list without content")),
        },
        20 => NvValue::NvlistArray(source.lists(count, true)?),
        21 => NvValue::BooleanValue(source.integer(4)? as u32 != 0),
        22 => NvValue::Int8(source.integer(1)? as i8),
        23 => NvValue::Uint8(source.integer(1)? as u8),
        24 => NvValue::BooleanArray(integers(source, count, 4, |word| word as u32 != 0)?),
        25 => NvValue::Int8Array(integers(source, count, 1, |word| word as i8)?),
        26 => NvValue::Uint8Array(integers(source, count, 1, |word| word as u8)?),
        27 => NvValue::Double(f64::from_bits(source.integer(8)?)),
        other => return Err(Error::unsupported(WHAT, format!("value type {other}"))),
    })
}
