//! A sentence names its subject: comments say "the client" or "the caller", not "whoever" or "somebody".

use std::path::Path;

use super::sources;

/// Words that stand for an unnamed subject, or that are not the field's.
const VAGUE: [&str; 7] = ["whoever", "somebody", "nobody", "anybody", "foretold", "foretell", "foretells"];

/// The comment lines of a tree with such words, of files whose path `is_judged`.
fn vague(root: &Path, is_judged: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources(root).iter().filter(|(path, _)| is_judged(path)) {
        for (number, line) in (1..).zip(text.lines()) {
            let comment = line.trim_start().strip_prefix("//").unwrap_or_default();
            let mut words = comment.split(|c: char| !c.is_alphabetic()).map(str::to_lowercase);
            if let Some(word) = words.find(|word| VAGUE.contains(&word.as_str())) {
                found.push(format!("{path}:{number}: {word}"));
            }
        }
    }
    found
}

#[test]
fn comments_name_their_subject() {
    let is_own = |path: &str| path.starts_with("testkit/tests/tidy") || path == "testkit/tests/papers.rs";
    let found = vague(&super::root(), |path| !is_own(path));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_comment_without_a_subject_is_found() {
    let tree = tempfile::tempdir().expect("a folder");
    std::fs::write(tree.path().join("a.rs"), "/// Whoever asks.\nlet nobody = 1;\n").expect("a file");
    assert_eq!(vague(tree.path(), |_| true), ["a.rs:1: whoever"]);
}
