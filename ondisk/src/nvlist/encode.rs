//! Packing, the mirror of `decode`.

use super::{ByteString, Encoding, MAX_DEPTH, NvValue, Nvlist};
use crate::{ByteOrder, Error, Result, Writer};

const TOO_LARGE: Error = Error::TooLarge { what: "packed nvlist", limit: i32::MAX as u64 };

/// Bytes before the name of a native pair.
const PAIR_HEADER: usize = 16;
/// Bytes of a list in memory, which stand dead in native pairs.
const LIST_HEADER: usize = 24;

pub(super) fn packed(list: &Nvlist, encoding: Encoding) -> Result<Vec<u8>> {
    let (number, order) = match encoding {
        Encoding::Xdr => (1, ByteOrder::HOST),
        Encoding::Native(order) => (0, order),
    };
    let header = [number, u8::from(order == ByteOrder::Little), 0, 0];
    let bytes = match encoding {
        Encoding::Xdr => {
            let mut writer = Writer::new(ByteOrder::Big);
            writer.bytes(&header);
            xdr_list(&mut writer, list, 1)?;
            writer.finish()
        }
        Encoding::Native(order) => {
            let mut writer = Writer::new(order);
            writer.bytes(&header).u32(0).u32(list.flags);
            native_pairs(&mut writer, list, 1)?;
            writer.finish()
        }
    };
    if bytes.len() > i32::MAX as usize { Err(TOO_LARGE) } else { Ok(bytes) }
}

/// Elements, and bytes in memory without what is padding.
fn measure(value: &NvValue) -> (usize, usize) {
    let array = |count: usize, size: usize| (count, count.saturating_mul(size));
    match value {
        NvValue::Boolean => (0, 0),
        NvValue::Byte(_) | NvValue::Int8(_) | NvValue::Uint8(_) => (1, 1),
        NvValue::Int16(_) | NvValue::Uint16(_) => (1, 2),
        NvValue::Int32(_) | NvValue::Uint32(_) | NvValue::BooleanValue(_) => (1, 4),
        NvValue::Int64(_) | NvValue::Uint64(_) | NvValue::Hrtime(_) | NvValue::Double(_) => (1, 8),
        NvValue::String(text) => (1, text.as_bytes().len() + 1),
        NvValue::ByteArray(values) | NvValue::Uint8Array(values) => array(values.len(), 1),
        NvValue::Int8Array(values) => array(values.len(), 1),
        NvValue::Int16Array(values) => array(values.len(), 2),
        NvValue::Uint16Array(values) => array(values.len(), 2),
        NvValue::Int32Array(values) => array(values.len(), 4),
        NvValue::Uint32Array(values) => array(values.len(), 4),
        NvValue::BooleanArray(values) => array(values.len(), 4),
        NvValue::Int64Array(values) => array(values.len(), 8),
        NvValue::Uint64Array(values) => array(values.len(), 8),
        NvValue::StringArray(values) => {
            (values.len(), values.iter().map(|text| 8 + text.as_bytes().len() + 1).sum())
        }
        NvValue::Nvlist(_) => (1, LIST_HEADER),
        NvValue::NvlistArray(lists) => array(lists.len(), 8 + LIST_HEADER),
    }
}

/// Size of a pair in memory: what native form stores and XDR form announces.
fn native_size(name: &ByteString, value: &NvValue) -> usize {
    (PAIR_HEADER + name.as_bytes().len() + 1).next_multiple_of(8) + measure(value).1.next_multiple_of(8)
}

fn as_u32(value: usize) -> Result<u32> {
    i32::try_from(value).map(|value| value as u32).map_err(|_| TOO_LARGE)
}

fn check_depth(depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Error::TooLarge { what: "nvlist depth", limit: MAX_DEPTH as u64 });
    }
    Ok(())
}

fn xdr_list(writer: &mut Writer, list: &Nvlist, depth: usize) -> Result<()> {
    check_depth(depth)?;
    writer.u32(0).u32(list.flags);
    for (name, value) in &list.pairs {
        let start = writer.position();
        writer.u32(0).u32(as_u32(native_size(name, value))?);
        xdr_string(writer, name)?;
        writer.u32(value.type_number()).u32(as_u32(measure(value).0)?);
        xdr_value(writer, value, depth)?;
        let size = as_u32(writer.position() - start)?;
        writer.patch(start, &size.to_be_bytes());
    }
    writer.zeros(8);
    Ok(())
}

fn xdr_string(writer: &mut Writer, text: &ByteString) -> Result<()> {
    writer.u32(as_u32(text.as_bytes().len())?);
    xdr_opaque(writer, text.as_bytes());
    Ok(())
}

fn xdr_opaque(writer: &mut Writer, bytes: &[u8]) {
    writer.bytes(bytes).zeros(bytes.len().wrapping_neg() & 3);
}

fn xdr_array<T: Copy>(
    writer: &mut Writer,
    values: &[T],
    put: impl Fn(&mut Writer, T) -> &mut Writer,
) -> Result<()> {
    if !values.is_empty() {
        writer.u32(as_u32(values.len())?);
    }
    for value in values {
        put(writer, *value);
    }
    Ok(())
}

fn xdr_value(writer: &mut Writer, value: &NvValue, depth: usize) -> Result<()> {
    fn put32<T: Into<i64>>(writer: &mut Writer, value: T) -> &mut Writer {
        writer.u32(value.into() as u32)
    }
    match value {
        NvValue::Boolean => {}
        NvValue::Byte(value) | NvValue::Uint8(value) => {
            put32(writer, *value);
        }
        NvValue::Int8(value) => {
            put32(writer, *value);
        }
        NvValue::Int16(value) => {
            put32(writer, *value);
        }
        NvValue::Uint16(value) => {
            put32(writer, *value);
        }
        NvValue::Int32(value) => {
            put32(writer, *value);
        }
        NvValue::Uint32(value) => {
            put32(writer, *value);
        }
        NvValue::BooleanValue(value) => {
            put32(writer, *value);
        }
        NvValue::Int64(value) | NvValue::Hrtime(value) => {
            writer.u64(*value as u64);
        }
        NvValue::Uint64(value) => {
            writer.u64(*value);
        }
        NvValue::Double(value) => {
            writer.u64(value.to_bits());
        }
        NvValue::String(text) => xdr_string(writer, text)?,
        NvValue::ByteArray(bytes) => xdr_opaque(writer, bytes),
        NvValue::Uint8Array(values) => xdr_array(writer, values, put32)?,
        NvValue::Int8Array(values) => xdr_array(writer, values, put32)?,
        NvValue::Int16Array(values) => xdr_array(writer, values, put32)?,
        NvValue::Uint16Array(values) => xdr_array(writer, values, put32)?,
        NvValue::Int32Array(values) => xdr_array(writer, values, put32)?,
        NvValue::Uint32Array(values) => xdr_array(writer, values, put32)?,
        NvValue::BooleanArray(values) => xdr_array(writer, values, put32)?,
        NvValue::Int64Array(values) => xdr_array(writer, values, |w, value| w.u64(value as u64))?,
        NvValue::Uint64Array(values) => xdr_array(writer, values, |w, value| w.u64(value))?,
        NvValue::StringArray(values) => values.iter().try_for_each(|text| xdr_string(writer, text))?,
        NvValue::Nvlist(list) => xdr_list(writer, list, depth + 1)?,
        NvValue::NvlistArray(lists) => lists.iter().try_for_each(|list| xdr_list(writer, list, depth + 1))?,
    }
    Ok(())
}

fn native_pairs(writer: &mut Writer, list: &Nvlist, depth: usize) -> Result<()> {
    check_depth(depth)?;
    for (name, value) in &list.pairs {
        let name_size = u16::try_from(name.as_bytes().len() + 1).map_err(|_| TOO_LARGE)?;
        // The name size is signed in memory.
        if name_size > i16::MAX as u16 {
            return Err(TOO_LARGE);
        }
        writer.u32(as_u32(native_size(name, value))?).u16(name_size).zeros(2);
        writer.u32(as_u32(measure(value).0)?).u32(value.type_number());
        let name_end = writer.position() + usize::from(name_size);
        writer.bytes(name.as_bytes()).zeros_to(name_end);
        // Positions count from the start of the packed list, whose headers are 12 bytes; pairs are multiples
        // of 8.
        writer.zeros((PAIR_HEADER + usize::from(name_size)).wrapping_neg() & 7);
        let start = writer.position();
        native_value(writer, value);
        let written = writer.position() - start;
        writer.zeros(written.wrapping_neg() & 7);
        match value {
            NvValue::Nvlist(list) => native_pairs(writer, list, depth + 1)?,
            NvValue::NvlistArray(lists) => {
                lists.iter().try_for_each(|list| native_pairs(writer, list, depth + 1))?;
            }
            _ => {}
        }
    }
    writer.zeros(4);
    Ok(())
}

fn native_value(writer: &mut Writer, value: &NvValue) {
    fn dead_list(writer: &mut Writer, list: &Nvlist) {
        writer.u32(0).u32(list.flags).zeros(LIST_HEADER - 8);
    }
    fn each<T: Copy>(writer: &mut Writer, values: &[T], put: impl Fn(&mut Writer, T) -> &mut Writer) {
        for value in values {
            put(writer, *value);
        }
    }
    match value {
        NvValue::Boolean => {}
        NvValue::Byte(value) | NvValue::Uint8(value) => {
            writer.u8(*value);
        }
        NvValue::Int8(value) => {
            writer.u8(*value as u8);
        }
        NvValue::Int16(value) => {
            writer.u16(*value as u16);
        }
        NvValue::Uint16(value) => {
            writer.u16(*value);
        }
        NvValue::Int32(value) => {
            writer.u32(*value as u32);
        }
        NvValue::Uint32(value) => {
            writer.u32(*value);
        }
        NvValue::BooleanValue(value) => {
            writer.u32((*value).into());
        }
        NvValue::Int64(value) | NvValue::Hrtime(value) => {
            writer.u64(*value as u64);
        }
        NvValue::Uint64(value) => {
            writer.u64(*value);
        }
        NvValue::Double(value) => {
            writer.u64(value.to_bits());
        }
        NvValue::String(text) => {
            writer.bytes(text.as_bytes()).zeros(1);
        }
        NvValue::ByteArray(bytes) | NvValue::Uint8Array(bytes) => {
            writer.bytes(bytes);
        }
        NvValue::Int8Array(values) => each(writer, values, |w, value| w.u8(value as u8)),
        NvValue::Int16Array(values) => each(writer, values, |w, value| w.u16(value as u16)),
        NvValue::Uint16Array(values) => each(writer, values, |w, value| w.u16(value)),
        NvValue::Int32Array(values) => each(writer, values, |w, value| w.u32(value as u32)),
        NvValue::Uint32Array(values) => each(writer, values, |w, value| w.u32(value)),
        NvValue::BooleanArray(values) => each(writer, values, |w, value| w.u32(value.into())),
        NvValue::Int64Array(values) => each(writer, values, |w, value| w.u64(value as u64)),
        NvValue::Uint64Array(values) => {
            writer.u64s(values);
        }
        NvValue::StringArray(values) => {
            writer.zeros(values.len() * 8);
            for text in values {
                writer.bytes(text.as_bytes()).zeros(1);
            }
        }
        NvValue::Nvlist(list) => dead_list(writer, list),
        NvValue::NvlistArray(lists) => {
            writer.zeros(lists.len() * 8);
            lists.iter().for_each(|list| dead_list(writer, list));
        }
    }
}
