//! The commands that the documents name are typed here: each must be one that the command line takes.
//!
//! What stands in a block of code is a whole command. What stands in backticks inside of a sentence may be
//! only its beginning (`zpool set`), but must not be wrong: a word that is no command, an option that is not
//! there, a value that is refused. Words in capitals are what the reader puts there (`POOL`, `N`).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::{self, Cli};
use crate::not_yet;

/// The programs that this one is.
const PROGRAMS: [&str; 4] = ["cenote", "zpool", "zfs", "zdb"];
/// What stands for something that the reader puts there, and something that is such.
const PLACEHOLDERS: [(&str, &str); 3] = [("N", "1"), ("SIZE", "1G"), ("ADDRESS:PORT", "127.0.0.1:9134")];

/// A command of a document.
#[derive(Debug)]
struct Typed {
    /// Where it stands.
    at: String,
    /// It as it stands there.
    text: String,
    /// Whether it is one by itself, and no mention of one.
    is_whole: bool,
}

fn documents() -> Vec<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let chapters = fs::read_dir(repository.join("docs/src")).expect("the book");
    let chapters = chapters.map(|entry| entry.expect("an entry").path());
    let mut all: Vec<PathBuf> =
        chapters.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    all.sort();
    all.push(repository.join("README.md"));
    all
}

/// The commands of a document's blocks, and those in backticks.
fn commands(name: &str, text: &str) -> Vec<Typed> {
    let mut all = Vec::new();
    let (mut block, mut is_fenced, mut prose) = (Vec::new(), false, String::new());
    let mut end_block = |block: &mut Vec<(usize, &str)>| {
        // Where some lines have a prompt, the others are what was printed.
        let has_prompt = block.iter().any(|(_, line)| line.starts_with("$ "));
        let mut lines = std::mem::take(block).into_iter();
        while let Some((number, line)) = lines.next() {
            let mut whole = match (line.strip_prefix("$ "), has_prompt) {
                (Some(line), _) => line.to_owned(),
                (None, true) => continue,
                (None, false) => line.to_owned(),
            };
            while whole.ends_with('\\') {
                whole.pop();
                whole.push_str(lines.next().map_or("", |(_, line)| line));
            }
            for text in in_pipeline(&whole) {
                all.push(Typed { at: format!("{name}:{number}"), text, is_whole: true });
            }
        }
    };
    for (number, line) in (1..).zip(text.lines()) {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        match line.strip_prefix("    ") {
            _ if is_fence => end_block(&mut block),
            _ if is_fenced => block.push((number, line.trim())),
            Some(line) => block.push((number, line.trim())),
            None => {
                end_block(&mut block);
                prose.push_str(line);
            }
        }
        prose.push('\n');
    }
    end_block(&mut block);
    // A span may go on in the next line.
    let mut number = 1;
    for (at, part) in prose.split('`').enumerate() {
        if at % 2 == 1 {
            let text = part.split_whitespace().collect::<Vec<_>>().join(" ");
            let is_command = PROGRAMS.iter().any(|program| text.starts_with(&format!("{program} ")));
            if is_command {
                all.push(Typed { at: format!("{name}:{number}"), text, is_whole: false });
            }
        }
        number += part.matches('\n').count();
    }
    all
}

/// The commands of a line of a shell that are this program's, without what they are redirected to.
fn in_pipeline(line: &str) -> Vec<String> {
    let line = line.split_once(" #").map_or(line, |(line, _)| line);
    // Parts end where a pipe, a redirection or `&` stands outside of quotes.
    let (mut parts, mut quote) = (vec![String::new()], None);
    let mut before = ' ';
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
        let is_end = quote.is_none() && (matches!(c, '>' | '<' | '&') || (c == '|' && before == ' '));
        before = c;
        match (is_end, parts.last_mut()) {
            (false, Some(part)) => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    let parts = parts.iter().map(|part| part.trim().to_owned());
    parts.filter(|part| PROGRAMS.iter().any(|program| part.starts_with(&format!("{program} ")))).collect()
}

/// The words of a command, as a shell splits them; of words with alternatives the first, and what stands for
/// something is something.
fn words(text: &str) -> Vec<OsString> {
    let (mut all, mut word, mut quote, mut is_word) = (Vec::new(), String::new(), None, false);
    for c in text.chars().chain([' ']) {
        match (quote, c) {
            (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
            (Some(open), c) if c == open => quote = None,
            (None, ' ') => {
                if is_word {
                    all.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            (_, c) => {
                word.push(c);
                is_word = true;
            }
        }
    }
    all.retain(|word| word != "…");
    let meant = |word: String| {
        let given = PLACEHOLDERS.iter().find(|(name, _)| *name == word).map(|(_, value)| (*value).to_owned());
        given.unwrap_or(word)
    };
    let first = |word: String| match word.contains('/') || word.contains(' ') {
        true => word,
        false => word.split('|').next().unwrap_or_default().to_owned(),
    };
    all.into_iter().map(first).map(meant).map(OsString::from).collect()
}

/// Why the command line does not take it, where it does not.
fn fault(typed: &Typed) -> Option<String> {
    let arguments = cli::arguments(words(&typed.text));
    let error = Cli::try_parse_from(&arguments).err()?;
    let is_open = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return None,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::TooFewValues
        | ErrorKind::WrongNumberOfValues => true,
        // An option without its value.
        ErrorKind::InvalidValue => {
            let value = error.get(ContextKind::InvalidValue);
            matches!(value, Some(ContextValue::String(value)) if value.is_empty())
        }
        _ => false,
    };
    // The book lists what is not there yet.
    let is_told =
        not_yet::explain(&error, &arguments).is_some_and(|(told, _)| told.contains("not there yet"));
    let is_right = !typed.is_whole && (is_open || is_told);
    (!is_right).then(|| format!("{}: {}: {}", typed.at, typed.text, error.to_string().trim_end()))
}

#[test]
fn every_command_of_the_documents_is_one() {
    let mut faults = Vec::new();
    let (mut whole, mut named) = (0, 0);
    for path in documents() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for typed in commands(&name, &fs::read_to_string(&path).expect("a document")) {
            *(if typed.is_whole { &mut whole } else { &mut named }) += 1;
            faults.extend(fault(&typed));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(whole > 40 && named > 150, "{whole} commands and {named} mentions were found");
}

#[test]
fn options_that_come_with_the_package_are_options() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging");
    let defaults = fs::read_to_string(packaging.join("cenote.default")).expect("the options");
    let image = fs::read_to_string(packaging.join("Containerfile")).expect("the image");
    // Lines "#   --option VALUE   what it does", and those of the assignment.
    let offered = defaults.lines().filter_map(|line| line.strip_prefix("#   "));
    let offered = offered.map(|line| line.split("   ").next().unwrap_or_default());
    let set = defaults.lines().filter_map(|line| line.strip_prefix("CENOTE_OPTIONS="));
    let set = set.map(|value| value.trim_matches('"'));
    let command = image.lines().find_map(|line| line.strip_prefix("CMD [")).expect("a command");
    let command = command.trim_end_matches(']').replace(['"', ','], "").replacen("serve ", "", 1);
    let all: Vec<String> = offered.chain(set).map(str::to_owned).chain([command]).collect();
    assert!(all.len() >= 6, "{all:?}");
    let typed = |options: String| Typed {
        at: "packaging".to_owned(),
        text: format!("cenote serve {options}"),
        is_whole: true,
    };
    let faults: Vec<String> = all.into_iter().map(typed).filter_map(|typed| fault(&typed)).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn what_is_typed_in_the_table_of_the_labs_questions_needs_nothing_more() {
    let chapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/lab.md");
    let chapter = fs::read_to_string(chapter).expect("the chapter");
    let table = chapter.lines().skip_while(|line| !line.starts_with("| question |"));
    let table: Vec<&str> = table.take_while(|line| line.starts_with('|')).collect();
    let typed = table.iter().flat_map(|line| commands("lab.md", line));
    let typed: Vec<Typed> = typed.map(|typed| Typed { is_whole: true, ..typed }).collect();
    assert!(typed.len() >= 25, "{}", typed.len());
    let faults: Vec<String> = typed.iter().filter_map(fault).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn what_is_wrong_in_a_document_is_found() {
    let faults = |text: &str| {
        let all = commands("x.md", text);
        (all.len(), all.iter().filter_map(fault).collect::<Vec<_>>())
    };
    let right = "`zpool set`, `zpool split`, `cenote lab run --accel`, `zfs list -t all`, `echo zpool`\n\n    \
                 $ cenote zfs list | sort > file   # all\n    zpool none\n";
    assert_eq!(faults(right), (5, Vec::new()));
    for wrong in [
        "`zpool sett`",
        "`zpool scrub\n--no-such tank`",
        "`cenote lab run x --quik`",
        "    cenote lab report\n",
        "```\ncenote zpool scrub \\\n --no-such tank\n```\n",
        "    cenote zfs list && cenote zfs lisst\n",
    ] {
        assert_eq!(faults(wrong).1.len(), 1, "{wrong}: {:?}", faults(wrong));
    }
}
