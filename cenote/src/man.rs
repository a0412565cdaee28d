//! `cenote man DIR`: the manual pages, written from what the program itself is made of.
//!
//! Section 8 has a page for each command, from the definition of the command line, so that a page and
//! `--help` never differ. Section 7 has the tables: properties of datasets and of pools, and tunables
//! ([`tables`]). Pages of `zpool` and `zfs` are called `cenote-zpool-list` and so on, because OpenZFS's own
//! may be installed beside them.

mod tables;

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;

/// The section of commands of administrators.
const COMMANDS: &str = "8";
/// The name of the book, at the head of each page.
const MANUAL: &str = "Cenote";

/// Arguments of `cenote man`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The directory, such as /usr/local/share/man
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

impl Arguments {
    /// Writes the pages of this command line, in `man7` and `man8` below the directory.
    pub fn run(&self, mut root: Command) -> Result<()> {
        root.build();
        let mut pages = Vec::new();
        collect("", &root, &mut pages)?;
        for (name, page) in &pages {
            write(&self.directory.join("man8").join(format!("{name}.{COMMANDS}")), page)?;
        }
        for (name, page) in tables::all() {
            write(&self.directory.join("man7").join(format!("{name}.7")), page.as_bytes())?;
        }
        Ok(())
    }
}

/// The page of a command, and those of the commands below it.
fn collect(above: &str, command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let name = match above.is_empty() {
        true => command.get_name().to_owned(),
        false => format!("{above}-{}", command.get_name()),
    };
    let below: Vec<&Command> = command
        .get_subcommands()
        .filter(|below| below.get_name() != "help" && !below.is_hide_set())
        .collect();
    pages.push((name.clone(), page(&name, command)?));
    below.into_iter().try_for_each(|command| collect(&name, command, pages))
}

fn page(name: &str, command: &Command) -> Result<Vec<u8>> {
    let typed = name.replacen('-', " ", name.matches('-').count().min(2));
    let version = format!("cenote {}", env!("CARGO_PKG_VERSION"));
    // A page says its own name, and its synopsis what is typed.
    // The name of a command is kept for as long as the program runs.
    let lasting: &'static str = name.to_owned().leak();
    let mut command = command.clone().name(lasting).display_name(name).disable_help_subcommand(true);
    if command.get_bin_name().is_none() {
        command = command.bin_name(typed);
    }
    let man = Man::new(command).title(name.to_uppercase()).section(COMMANDS).source(version).manual(MANUAL);
    let mut text = Vec::new();
    man.render(&mut text).with_context(|| format!("cannot make the page of {name}"))?;
    String::from_utf8(text)
        .map(|text| tidied(&text).into_bytes())
        .map_err(|error| Error::new(ErrorKind::InvalidData, error))
        .with_context(|| format!("cannot make the page of {name}"))
}

/// A page without what programs that read pages complain about: empty lines, two breaks in a row, and a place
/// for the date that is not there.
fn tidied(page: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in page.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        if line == ".br" && lines.last().is_some_and(|last| last == ".br") {
            continue;
        }
        let is_head = line.starts_with(".TH ");
        let head = format!(" {COMMANDS}  ");
        lines.push(if is_head {
            line.replacen(&head, &format!(" {COMMANDS} \"\" "), 1)
        } else {
            line.to_owned()
        });
    }
    lines.join("\n") + "\n"
}

fn write(path: &Path, page: &[u8]) -> Result<()> {
    let cannot = || format!("cannot write '{}'", path.display());
    path.parent().map_or(Ok(()), fs::create_dir_all).with_context(cannot)?;
    fs::write(path, page).with_context(cannot)
}
