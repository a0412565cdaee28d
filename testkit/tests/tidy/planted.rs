//! The rules against a small source tree in which each of them is broken.

use std::fs;

use super::{ORDERED, circles, folders_upwards, lengths, public, root, wide_lines};

/// A tree with one file of the engine and one of another crate.
fn tree(engine: &str, server: &str) -> tempfile::TempDir {
    let tree = tempfile::tempdir().expect("a folder");
    for (path, text) in [("engine/src/zio/read.rs", engine), ("server/src/lib.rs", server)] {
        let path = tree.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, text).expect("a file");
    }
    tree
}

#[test]
fn a_tree_that_keeps_the_rules_has_no_findings() {
    let tree =
        tree("use crate::vdev::Vdev;\n\npub fn read_block() {}\n", "fn of() { engine::read_block() }\n");
    let root = tree.path();
    assert!(folders_upwards(root, &ORDERED[0]).is_empty());
    let found = [
        public::unused(root),
        wide_lines(root),
        lengths::functions_of(root),
        circles::largest(root, "server"),
    ];
    assert_eq!(found.concat(), Vec::<String>::new());
    assert_eq!(lengths::files_of(root), []);
}

#[test]
fn an_import_upwards_that_is_planted_is_found() {
    let tree = tree("use crate::pool::import;\n", "");
    let found: Vec<_> = folders_upwards(tree.path(), &ORDERED[0]).into_iter().collect();
    assert_eq!(found, [(("zio".into(), "pool".into()), vec!["zio/read.rs".into()])]);
}

#[test]
fn a_public_item_that_is_planted_and_unused_is_found() {
    let tree = tree("pub fn read_block() {}\n", "// read_block\n");
    assert_eq!(public::unused(tree.path()), ["engine/src/zio/read.rs: read_block"]);
}

#[test]
fn a_wide_line_that_is_planted_is_found() {
    let tree = tree(&format!("// {}\n// {}\n", "x".repeat(107), "x".repeat(108)), "");
    assert_eq!(wide_lines(tree.path()), ["engine/src/zio/read.rs:2"]);
}

#[test]
fn a_long_function_and_a_long_file_that_are_planted_are_found() {
    let long = format!("fn long() {{\n{}}}\n", "    a();\n".repeat(700));
    let tree = tree("", &long);
    assert_eq!(lengths::functions_of(tree.path()), ["server/src/lib.rs: long has 702 lines"]);
    assert_eq!(lengths::files_of(tree.path()), [("server/src/lib.rs".to_owned(), 702)]);
}

#[test]
fn a_circle_of_files_that_is_planted_is_found() {
    let tree = tree("", "mod a;\nmod b;\nmod c;\n");
    let write = |name: &str, text: &str| {
        fs::write(tree.path().join("server/src").join(name), text).expect("a file");
    };
    write("a.rs", "use crate::b::{self, X};\n");
    write("b.rs", "// crate::c\nfn of() { super::c::of() }\n");
    write("c.rs", "use crate::d::X;\n");
    write("d.rs", "#[cfg(test)]\nmod tests {\n    use crate::a::X;\n}\n");
    assert_eq!(circles::largest(tree.path(), "server"), Vec::<String>::new());
    write("d.rs", "use crate::{\n    a as first,\n};\n");
    assert_eq!(circles::largest(tree.path(), "server"), ["a", "b", "c", "d"]);
}

#[test]
fn only_what_is_built_is_left_out_of_the_tree() {
    let tree = tree("", "");
    let root = tree.path();
    let wide = format!("// {}\n", "x".repeat(108));
    for path in ["server/src/target/made.rs", "server/target/built.rs"] {
        fs::create_dir_all(root.join(path).parent().expect("a folder")).expect("folders");
        fs::write(root.join(path), &wide).expect("a file");
    }
    fs::write(root.join("server/Cargo.toml"), "").expect("a file");
    assert_eq!(wide_lines(root), ["server/src/target/made.rs:1"]);
}

#[test]
fn the_tree_that_is_judged_is_there() {
    assert!(root().join("engine/src/lib.rs").is_file());
}
