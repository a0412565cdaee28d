//! Circles of files: files that import each other, by however many others between them.
//!
//! An import is a path that begins with `crate::`, `super::` or `self::`, in a `use` or elsewhere in code. It
//! counts for the longest beginning of the path that is a file: `crate::a::B` for `a.rs`, and
//! `crate::a::b::C` for `a/b.rs`. What a file takes from the files of its own folder by their bare names does
//! not count: it puts them together. Unit tests at the end of a file do not count either.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{code_end, sources};

/// The crates that are judged, each with the number of files that its largest circle may have; 0 for none.
const LARGEST: [(&str, usize); 3] = [("cenote", 0), ("lab", 0), ("server", 8)];

/// A file as a path of modules; that of the crate's root is empty.
pub(crate) type Module = Vec<String>;

pub(crate) fn module(path: &str) -> Module {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    match path {
        "lib" | "main" => Module::new(),
        path => path.split('/').map(str::to_owned).collect(),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The code of a file without comments and unit tests.
pub(crate) fn plain(text: &str) -> String {
    let lines = text[..code_end(text)].lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths that a tree of a `use` names: `a::{b, c::d}` names `a::b` and `a::c::d`.
fn expand(tree: &str, before: &[String], found: &mut Vec<Module>) {
    let names = |text: &str| -> Module {
        text.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
    };
    let tree = tree.trim();
    let Some((head, list)) = tree.strip_suffix('}').and_then(|tree| tree.split_once('{')) else {
        let path = tree.split(" as ").next().unwrap_or_default();
        if !path.is_empty() {
            found.push([before, &names(path)].concat());
        }
        return;
    };
    let before = [before, &names(head)].concat();
    let (mut depth, mut begin) = (0_usize, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                expand(&list[begin..at], &before, found);
                begin = at + 1;
            }
            _ => {}
        }
    }
    expand(&list[begin..], &before, found);
}

/// The paths that code names and that begin with `crate`, `super` or `self`.
pub(crate) fn paths(code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let mut rest = String::new();
    let mut left = code;
    let begins = |text: &str| ["crate", "super", "self"].iter().any(|word| text.starts_with(word));
    while let Some(at) = left.find("use ") {
        let (before, tree) = (&left[..at], left[at + 4..].trim_start());
        rest.push_str(before);
        left = &left[at + 4..];
        if before.ends_with(is_word) || !begins(tree) {
            continue;
        }
        if let Some((tree, after)) = tree.split_once(';') {
            expand(tree, &[], &mut found);
            left = after;
        }
    }
    rest.push_str(left);
    let mut left = rest.as_str();
    while let Some(at) = ["crate::", "super::"].iter().filter_map(|word| left.find(word)).min() {
        let (before, path) = left.split_at(at);
        let end = path.find(|c: char| !is_word(c) && c != ':').unwrap_or(path.len());
        if !before.ends_with(is_word) {
            found.push(path[..end].split("::").map(str::to_owned).collect());
        }
        left = &path[end..];
    }
    found
}

/// A path in a file, from the root of the crate; `None` where it leads out of the crate.
pub(crate) fn absolute(from: &Module, path: &[String]) -> Option<Module> {
    let (first, path) = path.split_first()?;
    let mut base = match first.as_str() {
        "crate" => Module::new(),
        "self" => from.clone(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        _ => return None,
    };
    let ups = path.iter().take_while(|name| *name == "super").count();
    base.truncate(base.len().checked_sub(ups)?);
    base.extend(path[ups..].iter().cloned());
    Some(base)
}

/// The file that a path in a file leads to, where it is another one.
fn leads_to<'a>(from: &Module, path: &[String], files: &'a BTreeSet<Module>) -> Option<&'a Module> {
    let base = absolute(from, path)?;
    let found = (0..=base.len()).rev().find_map(|length| files.get(&base[..length]));
    found.filter(|found| *found != from)
}

/// The files that each file of a crate imports.
fn imports(sources: &[(String, String)]) -> BTreeMap<Module, BTreeSet<Module>> {
    let files: BTreeSet<Module> = sources.iter().map(|(path, _)| module(path)).collect();
    let of = |(path, text): &(String, String)| {
        let from = module(path);
        let to = paths(&plain(text)).into_iter().filter_map(|path| leads_to(&from, &path, &files).cloned());
        (from.clone(), to.collect())
    };
    sources.iter().map(of).collect()
}

/// All that is reached from a file.
fn reached(from: &Module, imports: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    let mut left: Vec<&Module> = imports[from].iter().collect();
    while let Some(module) = left.pop() {
        if found.insert(module.clone()) {
            left.extend(&imports[module]);
        }
    }
    found
}

/// The files of the largest circle of a crate of a tree, by their paths as modules.
pub(crate) fn largest(root: &Path, name: &str) -> Vec<String> {
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs");
    let mut sources = sources(&root.join(name).join("src"));
    sources.retain(|(path, _)| !is_test(path));
    let imports = imports(&sources);
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        imports.keys().map(|from| (from, self::reached(from, &imports))).collect();
    let circle = |from: &Module| -> Vec<String> {
        let both = reached[from].iter().filter(|to| reached[to].contains(from));
        both.map(|module| module.join("::")).collect()
    };
    imports.keys().map(circle).max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn circles_of_files_do_not_grow() {
    for (name, allowed) in LARGEST {
        super::ratchet(&format!("LARGEST of {name}"), allowed, super::SLACK, &largest(&super::root(), name));
    }
}

#[test]
fn paths_are_followed_through_trees_and_upwards() {
    let named = |code: &str| paths(code).iter().map(|path| path.join("::")).collect::<Vec<_>>();
    assert_eq!(
        named("use crate::{a::{self, B}, c};\nuse super::d::E as F;\nuse std::fs;\n"),
        ["crate::a::self", "crate::a::B", "crate::c", "super::d::E"]
    );
    assert_eq!(
        named("pub(crate) use self::a::B;\nlet x = super::super::of(crate::c::D::new());"),
        ["self::a::B", "super::super::of", "crate::c::D::new"]
    );
    let files = ["lib.rs", "a.rs", "a/b.rs", "a/c.rs"].map(module).into_iter().collect();
    let to = |from: &str, path: &str| {
        let path: Module = path.split("::").map(str::to_owned).collect();
        leads_to(&module(from), &path, &files).map(|found| found.join("::"))
    };
    assert_eq!(to("a/b.rs", "super::c::X").as_deref(), Some("a::c"));
    assert_eq!(to("a/b.rs", "super::X").as_deref(), Some("a"));
    assert_eq!(to("a/b.rs", "super::super::X").as_deref(), Some(""));
    assert_eq!(to("a.rs", "crate::a::X"), None);
    assert_eq!(to("a.rs", "self::b::X").as_deref(), Some("a::b"));
}
