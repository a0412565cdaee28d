//! `-C`: the pool's configuration as its own meta object set tells it; without a pool, those in the cache
//! file.

use anyhow::{Context, Result, ensure};
use engine::Pool;
use ondisk::nvlist::{NvValue, Nvlist};
use serde_json::Value;

use super::{Arguments, Out};

/// How far the configuration is indented.
const INDENT: usize = 8;

/// The trusted configuration.
pub(super) fn dump(pool: &Pool, out: &mut Out<'_>) -> Result<()> {
    writeln!(out, "\nMOS Configuration:")?;
    write_nvlist(&pool.config().raw, INDENT, out)
}

/// The pools of the cache file.
pub(super) fn dump_cachefile(arguments: &Arguments, out: &mut Out<'_>) -> Result<()> {
    let file = arguments.cachefile().context("there is no cache file here; -U names one")?;
    let cannot = || format!("cannot open '{}'", file.display());
    ensure!(file.exists(), "{}: it does not exist", cannot());
    let list = server::cachefile::read_list(&file).with_context(cannot)?;
    if arguments.json {
        return super::write_json(json(&list).as_object().cloned().unwrap_or_default(), out);
    }
    write_nvlist(&list, 0, out)
}

/// A list, one value on a line.
pub(super) fn write_nvlist(list: &Nvlist, indent: usize, out: &mut Out<'_>) -> Result<()> {
    let mut text = String::new();
    list.dump(&mut text, indent)?;
    out.write_all(text.as_bytes())?;
    Ok(())
}

/// A list as a JSON object. Flags without a value become `true`.
pub(super) fn json(list: &Nvlist) -> Value {
    list.iter().map(|(name, value)| (name.to_string(), json_value(value))).collect()
}

fn json_value(value: &NvValue) -> Value {
    match value {
        NvValue::Boolean => Value::Bool(true),
        NvValue::BooleanValue(value) => (*value).into(),
        NvValue::Byte(value) | NvValue::Uint8(value) => (*value).into(),
        NvValue::Int8(value) => (*value).into(),
        NvValue::Int16(value) => (*value).into(),
        NvValue::Uint16(value) => (*value).into(),
        NvValue::Int32(value) => (*value).into(),
        NvValue::Uint32(value) => (*value).into(),
        NvValue::Int64(value) | NvValue::Hrtime(value) => (*value).into(),
        NvValue::Uint64(value) => (*value).into(),
        NvValue::Double(value) => (*value).into(),
        NvValue::String(value) => value.to_string().into(),
        NvValue::StringArray(values) => values.iter().map(ToString::to_string).collect(),
        NvValue::ByteArray(values) | NvValue::Uint8Array(values) => values.iter().copied().collect(),
        NvValue::Int8Array(values) => values.iter().copied().collect(),
        NvValue::Int16Array(values) => values.iter().copied().collect(),
        NvValue::Uint16Array(values) => values.iter().copied().collect(),
        NvValue::Int32Array(values) => values.iter().copied().collect(),
        NvValue::Uint32Array(values) => values.iter().copied().collect(),
        NvValue::Int64Array(values) => values.iter().copied().collect(),
        NvValue::Uint64Array(values) => values.iter().copied().collect(),
        NvValue::BooleanArray(values) => values.iter().copied().collect(),
        NvValue::Nvlist(list) => json(list),
        NvValue::NvlistArray(lists) => lists.iter().map(json).collect(),
    }
}
