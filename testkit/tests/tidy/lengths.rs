//! How long functions and files are, unit tests left out.

use std::path::Path;

use super::{code_end, sources};

/// Lines that a function may have.
const MOST_LINES_OF_FUNCTION: usize = 100;
/// Longer functions that are still there.
const LONG_FUNCTIONS: usize = 8;
/// Lines that a file may have before its unit tests.
const MOST_LINES_OF_FILE: usize = 700;
/// Lines beyond that of all longer files that are still there.
const EXCESS_LINES: usize = 920;
/// So many fewer functions may be left before their number is to be lowered.
const SLACK: usize = 3;
/// The same of lines.
const SLACK_OF_LINES: usize = 150;

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let mut words = line.trim_start().split(' ').skip_while(|word| {
        matches!(*word, "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\"") || word.starts_with("pub(")
    });
    if words.next()? != "fn" || line.trim_end().ends_with(';') {
        return None;
    }
    let name = words.next()?;
    Some(&name[..name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len())])
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Functions in formatted code that have more lines than they may, with these lines.
fn long_functions(text: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    let mut open: Vec<(&str, usize, usize)> = Vec::new();
    for (number, line) in text[..code_end(text)].lines().enumerate() {
        if let Some(name) = function(line) {
            open.push((name, indent(line), number));
        }
        // `fn name() {}` and bodies in one line end where they begin.
        if line.trim_end().ends_with('}') {
            let closes = open.last().is_some_and(|(_, begin, at)| {
                indent(line) == *begin && { line.trim() == "}" || *at == number }
            });
            if let Some((name, _, began)) = open.pop_if(|_| closes) {
                let lines = number + 1 - began;
                found.extend((lines > MOST_LINES_OF_FUNCTION).then_some((name, lines)));
            }
        }
    }
    found
}

/// The sources that are judged: those of the crates, without tests in files of their own.
fn judged(root: &Path) -> impl Iterator<Item = (String, String)> {
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs");
    sources(root).into_iter().filter(move |(path, _)| path.contains("src/") && !is_test(path))
}

/// Every function of the tree that is too long.
pub(crate) fn functions_of(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in judged(root) {
        let long = long_functions(&text);
        found.extend(long.iter().map(|(name, lines)| format!("{path}: {name} has {lines} lines")));
    }
    found
}

/// Every file of the tree that is too long, with its lines.
pub(crate) fn files_of(root: &Path) -> Vec<(String, usize)> {
    let lines = |text: &str| text[..code_end(text)].lines().count();
    let all = judged(root).map(|(path, text)| (path, lines(&text)));
    all.filter(|(_, lines)| *lines > MOST_LINES_OF_FILE).collect()
}

#[test]
fn functions_do_not_become_longer() {
    super::ratchet("LONG_FUNCTIONS", LONG_FUNCTIONS, SLACK, &functions_of(&super::root()));
}

#[test]
fn files_do_not_become_longer() {
    let long = files_of(&super::root());
    let excess: usize = long.iter().map(|(_, lines)| lines - MOST_LINES_OF_FILE).sum();
    assert!(excess <= EXCESS_LINES, "{excess} lines are too many, EXCESS_LINES = {EXCESS_LINES}: {long:#?}");
    assert!(excess + SLACK_OF_LINES >= EXCESS_LINES, "fewer are too many: EXCESS_LINES can be {excess}");
}

#[test]
fn a_long_function_is_found() {
    let body = |lines: usize| {
        format!(
            "impl X {{\n    pub(crate) async fn of(\n    ) {{\n{}    }}\n}}\n",
            "        a();\n".repeat(lines)
        )
    };
    assert_eq!(long_functions(&body(97)), []);
    assert_eq!(long_functions(&body(98)), [("of", 101)]);
    assert_eq!(long_functions("fn a() {}\ntrait T {\n    fn b();\n}\n"), []);
    let tested = format!("fn a() {{}}\n\n#[cfg(test)]\nmod tests {{\n{}}}\n", body(98));
    assert_eq!(long_functions(&tested), []);
}
