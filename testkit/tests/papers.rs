//! The documents say what is there: links lead somewhere, the book has all its chapters, and lists that
//! repeat the source are complete.
//!
//! | rule | of |
//! |---|---|
//! | a relative link leads to a file, and its anchor to a heading there | all documents |
//! | a path in backticks that begins with a folder of the repository exists | all documents |
//! | lines have at most 110 columns, but for tables | all documents but lists of results |
//! | each chapter is in the book's table of contents, and links inside the book only | `docs/src` |
//! | the README and `--help` say the same of socket, memory and completion | both |
//! | sentences have a subject: not "whoever", "nobody" and the like | the same, but for the chapter on style |
//! | each action, on-disk module, outside crate and missing command is listed | its chapter |
//! | the numbers of groups and of all follow from the cases that are listed | results of OpenZFS's suite |
//!
//! Nothing here needs a tool. Where `mdbook` is installed, `./test` builds the book with it too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The widest line, in characters.
const MOST_COLUMNS: usize = 110;
/// The README is to be read in one go.
const MOST_README_LINES: usize = 130;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is a folder of the repository")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files with an ending in a folder, by their paths in the repository.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join(folder)).expect("a folder of the repository");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut found: Vec<PathBuf> =
        names.filter(|name| name.ends_with(ending)).map(|name| Path::new(folder).join(name)).collect();
    found.sort();
    found
}

/// All documents, by their paths in the repository.
fn documents() -> Vec<PathBuf> {
    ["", "docs/src", "scripts", "fuzz"].into_iter().flat_map(|folder| files(folder, ".md")).collect()
}

/// Those that are read from beginning to end: not the lists of results of test suites.
fn written_here() -> impl Iterator<Item = PathBuf> {
    documents().into_iter().filter(|document| !document.starts_with("scripts"))
}

/// The lines outside of blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence && !line.starts_with("    ")).then_some((index + 1, line))
    })
}

/// A line as its parts: those outside of backticks, and those within.
fn split_code(line: &str) -> (String, Vec<&str>) {
    let parts: Vec<&str> = line.split('`').collect();
    let outside: Vec<&str> = parts.iter().copied().step_by(2).collect();
    (outside.join(" "), parts.into_iter().skip(1).step_by(2).collect())
}

/// The targets of the links and pictures of a line.
fn links(line: &str) -> Vec<String> {
    let (outside, _) = split_code(line);
    let after = outside.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// The anchors of a document's headings, as forges and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    let anchor = |(_, line): (usize, &str)| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        if *times == 1 { name } else { format!("{name}-{}", *times - 1) }
    };
    headings.map(anchor).collect()
}

/// The links of a document that lead nowhere. `text_of` has the text of each document that exists, and an
/// empty one for other files.
fn broken(document: &Path, text: &str, text_of: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in prose(text) {
        for target in links(line) {
            if target.contains("://") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let folder = document.parent().unwrap_or(Path::new(""));
            let file = if path.is_empty() { document.to_owned() } else { folder.join(path) };
            let leads = match text_of(&file) {
                None => false,
                Some(text) => anchor.is_empty() || anchors(&text).contains(anchor),
            };
            if !leads {
                wrong.push(format!("{}:{number}: {target} leads nowhere", document.display()));
            }
        }
    }
    wrong
}

fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn links_lead_somewhere() {
    let text_of = |path: &Path| {
        let path = repository().join(path);
        match path.extension().is_some_and(|ending| ending == "md") {
            true => fs::read_to_string(path).ok(),
            false => path.exists().then(String::new),
        }
    };
    let wrong: Vec<String> =
        documents().iter().flat_map(|document| broken(document, &read(document), text_of)).collect();
    none(&wrong);
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text_of =
        |path: &Path| (path == Path::new("docs/a.md")).then(|| "# One\n## The other `one`\n".into());
    let of = |text: &str| broken(Path::new("docs/b.md"), text, text_of);
    none(&of("[a](a.md), [a](a.md#one), [a](a.md#the-other-one), ![a](a.md)\n"));
    none(&of("`[code](none.md)`, [elsewhere](https://example.org/none.md)\n```\n[a](none.md)\n```\n"));
    assert_eq!(of("\n[a](none.md)"), ["docs/b.md:2: none.md leads nowhere"]);
    assert_eq!(of("[a](a.md) ![a](one.svg)"), ["docs/b.md:1: one.svg leads nowhere"]);
    assert_eq!(of("[a](a.md#two)"), ["docs/b.md:1: a.md#two leads nowhere"]);
    assert_eq!(of("# Title\n[a](#title) [a](#none)").len(), 1 + 1, "this document is not a.md");
}

#[test]
fn paths_that_are_named_exist() {
    let folders = ["cenote/", "codec/", "device/", "docs/", "engine/", "fuzz/", "lab/", "ondisk/"];
    let folders = [&folders[..], &["packaging/", "scripts/", "server/", "testkit/"]].concat();
    let mut wrong = Vec::new();
    for document in documents() {
        let text = read(&document);
        for (number, line) in prose(&text) {
            for code in split_code(line).1 {
                // The first word of a command may be a path too; placeholders and patterns are none.
                let path = code.split_whitespace().next().unwrap_or("");
                let is_path = folders.iter().any(|folder| path.starts_with(folder));
                let is_pattern = path.contains(['*', '{', '…', '<', '$']) || path.contains("NAME");
                if is_path && !is_pattern && !repository().join(path).exists() {
                    wrong.push(format!("{}:{number}: there is no {path}", document.display()));
                }
            }
        }
    }
    none(&wrong);
}

#[test]
fn lines_are_no_wider_than_a_screen() {
    let mut wrong = Vec::new();
    for document in written_here() {
        for (index, line) in read(&document).lines().enumerate() {
            let columns = line.chars().count();
            if columns > MOST_COLUMNS && !line.starts_with('|') {
                wrong.push(format!("{}:{}: {columns} columns", document.display(), index + 1));
            }
        }
    }
    none(&wrong);
    let lines = read("README.md").lines().count();
    assert!(lines <= MOST_README_LINES, "README.md has {lines} lines: what is not for all goes to docs/");
}

#[test]
fn the_book_has_all_its_chapters() {
    let listed: BTreeSet<String> =
        prose(&read("docs/src/SUMMARY.md")).flat_map(|(_, line)| links(line)).collect();
    let mut there = BTreeSet::new();
    for path in files("docs/src", ".md") {
        there.insert(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
    }
    there.remove("SUMMARY.md");
    assert_eq!(listed, there);

    let mut wrong = Vec::new();
    for chapter in &there {
        for (number, line) in prose(&read(Path::new("docs/src").join(chapter))) {
            let outside = links(line).into_iter().filter(|target| target.contains(".."));
            wrong.extend(outside.map(|target| format!("{chapter}:{number}: {target} is not in the book")));
        }
    }
    none(&wrong);
}

#[test]
fn the_two_commands_are_in_the_readme() {
    let readme = read("README.md");
    let commands: Vec<&str> = readme.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    assert_eq!(commands, ["cargo run --release -- up", "./test"]);
}

/// Words without quotes and in one line.
fn plain(text: &str) -> String {
    let text = text.replace(['`', '\''], "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_readme_and_the_help_say_the_same() {
    let (readme, help) = (plain(&read("README.md")), plain(&read("cenote/src/cli.rs")));
    for said in [
        "(default: /run/cenote/cenote.sock for root, else in $XDG_RUNTIME_DIR/cenote)",
        "--arc-max SIZE of cenote serve and cenote up bounds the memory for cached blocks and for data not \
         on disk yet (default: a quarter of the machines).",
        "cenote completion bash|zsh|fish prints the completion script of a shell, which completes zpool, zfs \
         and zdb too.",
    ] {
        assert!(readme.contains(said), "README.md does not say: {said}");
        assert!(help.contains(said), "cenote --help does not say: {said}");
    }
}

#[test]
fn sentences_have_a_subject() {
    let vague = ["whoever", "somebody", "nobody", "anybody", "foretold", "foretell"];
    let mut wrong = Vec::new();
    for document in written_here().filter(|document| !document.ends_with("style.md")) {
        for (number, line) in prose(&read(&document)) {
            let (outside, _) = split_code(line);
            let words = outside.split(|c: char| !c.is_alphabetic()).map(str::to_lowercase);
            let found = words.filter(|word| vague.contains(&word.as_str()));
            wrong.extend(found.map(|word| format!("{}:{number}: '{word}'", document.display())));
        }
    }
    none(&wrong);
}

/// The names that a document must have in backticks.
fn all_are_named(document: &str, names: &[String]) {
    let text = read(document);
    let missing = names.iter().filter(|name| !text.contains(&format!("`{name}`")));
    let missing: Vec<String> = missing.map(|name| format!("{document} does not name `{name}`")).collect();
    assert!(!names.is_empty());
    none(&missing);
}

#[test]
fn every_module_of_structures_is_in_the_index() {
    let modules = files("ondisk/src", ".rs").into_iter();
    let names = modules.map(|path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    let names: Vec<String> = names.filter(|name| name != "lib").collect();
    all_are_named("docs/src/format.md", &names);
}

#[test]
fn every_command_that_is_not_there_yet_is_listed() {
    let source = read("cenote/src/not_yet.rs");
    let after = source.split("const COMMANDS").nth(1).unwrap_or_default();
    let table = after.split("\n];").next().unwrap_or_default();
    let words: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
    let commands = words.windows(2).filter(|pair| matches!(pair[0], "zpool" | "zfs")).map(|pair| pair[1]);
    let commands: BTreeSet<&str> = commands.collect();
    assert!(commands.contains("split"), "{commands:?}");

    let chapter = read("docs/src/administration.md");
    let list = chapter.split("## Not there yet").nth(1).and_then(|rest| rest.split("\n## ").next());
    let codes = list.unwrap_or_default().lines().flat_map(|line| split_code(line).1);
    let listed: BTreeSet<&str> = codes.flat_map(str::split_whitespace).collect();
    let missing: Vec<_> = commands.difference(&listed).collect();
    assert!(missing.is_empty(), "docs/src/administration.md does not list {missing:?}");
}

/// Results of OpenZFS's suite: how many cases were asked, passed, failed and were not run.
type Results = [usize; 4];

/// The rows of numbers in a list of results: the head's, and those of groups.
fn results(text: &str) -> (Vec<Results>, BTreeMap<&str, Results>) {
    let (mut heads, mut groups) = (Vec::new(), BTreeMap::new());
    for line in text.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let numbers: Vec<usize> = cells.iter().take(4).map_while(|cell| cell.parse().ok()).collect();
        let Ok(numbers) = Results::try_from(numbers) else { continue };
        match cells[4..] {
            [] => heads.push(numbers),
            [group] => assert!(groups.insert(group, numbers).is_none(), "{group} has two rows"),
            _ => panic!("{line}"),
        }
    }
    (heads, groups)
}

/// The cases of a table below a heading, each with its group; and each with a reason.
fn listed_cases<'a>(text: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    let (_, after) = text.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let table = after.split("\n## ").next().unwrap_or_default();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let cases = rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert!(cells.len() == 2 && !cells[1].is_empty(), "{line}");
        cells[0].rsplit_once('/').unwrap_or_else(|| panic!("{line}"))
    });
    cases.collect()
}

#[test]
fn the_results_of_openzfs_s_suite_add_up() {
    let text = read("scripts/zts-results.md");
    let (heads, groups) = results(&text);
    let sum = |at: usize| groups.values().map(|row| row[at]).sum::<usize>();
    assert_eq!(heads, [[sum(0), sum(1), sum(2), sum(3)]], "`scripts/run-zts --head` makes the numbers");
    let mut seen = BTreeSet::new();
    let mut counts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for (at, heading) in ["Cases that fail, and why", "Cases that were not run, and why"].iter().enumerate() {
        for (group, case) in listed_cases(&text, heading) {
            assert!(seen.insert((group, case)), "{group}/{case} is listed twice");
            counts.entry(group).or_default()[at] += 1;
        }
    }
    let none: Vec<&&str> = counts.keys().filter(|group| !groups.contains_key(**group)).collect();
    assert!(none.is_empty(), "cases of groups without a row: {none:?}");
    for (group, [asked, passed, failed, not_run]) in groups {
        let listed = counts.get(group).copied().unwrap_or_default();
        assert_eq!(([failed, not_run], asked), (listed, passed + failed + not_run), "{group}");
    }
}

#[test]
fn every_outside_crate_has_a_reason() {
    let manifest = read("Cargo.toml");
    let after = manifest.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    let lines =
        after.lines().take_while(|line| !line.starts_with('[')).filter(|line| !line.contains("path = "));
    let names: Vec<String> =
        lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.to_owned()).collect();
    all_are_named("docs/src/dependencies.md", &names);
}
