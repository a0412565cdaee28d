//! What the reference of an experiment's file is made of: tables with their keys.
//!
//! Each kind of target has its tables beside its fields ([`crate::site::Kind::tables`]);
//! [`crate::experiment::format`] has all others, and puts them together.

use serde::Serialize;

/// A table of an experiment's file.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TableOf {
    /// How it begins in the file; empty for what stands before all tables.
    pub head: &'static str,
    /// Its text.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// A key of a table.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub takes: &'static str,
    /// What it is where left out, as the file has it; none where it is required, or where leaving it out
    /// says something by itself.
    pub default: Option<&'static str>,
    /// An example, as the file has it.
    pub example: &'static str,
    /// Its text.
    pub about: &'static str,
}

/// A key.
pub(crate) const fn key(
    name: &'static str,
    takes: &'static str,
    default: Option<&'static str>,
    example: &'static str,
    about: &'static str,
) -> Key {
    Key { name, takes, default, example, about }
}

/// That of a target's size.
pub(crate) const SIZE: Key = key("size", "a size", None, "\"512M\"", "Bytes of it that are used; required");
/// That of consent to overwrite.
pub(crate) const OVERWRITE: Key = key(
    "overwrite",
    "true or false",
    Some("false"),
    "true",
    "Whether workloads may overwrite the contents of a file, device or export; one that is in use is never \
     written",
);
