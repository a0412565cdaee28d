//! What the engine shows to other crates: `pub` is for what one of them uses, `pub(crate)` for the rest.
//!
//! An item counts as used where its name is a word in the code of another crate, the tests and benchmarks of
//! the engine among them. So an item with a common name is not found when nothing uses it. A type that other
//! crates use without its name must be public and is counted here too.

use std::collections::HashSet;
use std::path::Path;

use super::{code, sources};

/// Public items of the engine that other crates do not name and that are still there.
const UNUSED: usize = 304;

/// The name of the public item that a line begins.
fn public_item(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let mut words =
        rest.split(' ').skip_while(|word| matches!(*word, "async" | "unsafe" | "extern" | "\"C\""));
    let mut word = words.next()?;
    if word == "const" {
        let next = words.next()?;
        if next != "fn" && next != "unsafe" {
            return Some(next.trim_end_matches(':'));
        }
        word = if next == "unsafe" { words.next()? } else { next };
    }
    let is_item = matches!(word, "fn" | "struct" | "enum" | "trait" | "type" | "static" | "mod" | "union");
    let name = words.next().filter(|_| is_item)?;
    Some(&name[..name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len())])
}

/// Public items of the engine of a tree that no other crate of it names.
pub(crate) fn unused(root: &Path) -> Vec<String> {
    let is_of_the_engine = |path: &str| path.starts_with("engine/src/");
    let all = sources(root);
    let mut words = HashSet::new();
    for (_, text) in all.iter().filter(|(path, _)| !is_of_the_engine(path)) {
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            words.extend(line.split(|c: char| !c.is_alphanumeric() && c != '_'));
        }
    }
    let mut found = Vec::new();
    for (path, text) in all.iter().filter(|(path, _)| is_of_the_engine(path) && !path.contains("tests")) {
        let unused = code(text).filter_map(public_item).filter(|name| !words.contains(name));
        found.extend(unused.map(|name| format!("{path}: {name}")));
    }
    found
}

#[test]
fn public_items_of_the_engine_are_used_outside() {
    super::ratchet("UNUSED", UNUSED, super::SLACK, &unused(&super::root()));
}

#[test]
fn public_items_are_known_by_their_first_line() {
    for (line, name) in [
        ("    pub async fn read(&self) -> u64 {", Some("read")),
        ("pub const fn of() {", Some("of")),
        ("pub const MOST: usize = 1;", Some("MOST")),
        ("pub struct Pool<T> {", Some("Pool")),
        ("pub mod zio;", Some("zio")),
        ("    pub size: u64,", None),
        ("pub(crate) fn read() {", None),
        ("pub use crate::zio;", None),
    ] {
        assert_eq!(public_item(line), name, "{line}");
    }
}
