//! `zfs diff`: what happened to the files of a filesystem since a snapshot.
//!
//! The daemon sends the list in parts, and each is printed when it comes: it may be longer than memory has
//! room for. So a list can end with an error after some lines.
//!
//! Source of the facts: OpenZFS 2.4 `libzfs_diff.c`, `zfs_main.c`, `zfs-diff.8`.

use anyhow::Result;
use ondisk::zpl::FileType;
use serde_json::{Map, Value};
use server::api::{CompareFiles, DiffPart, FileChange, FileChangeKind, FilePath};

use super::absent;
use crate::client;
use crate::output::{self, Exit, FAILED, JsonOptions, complain, usage};

/// Arguments of `zfs diff`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, disable_help_flag = true)]
pub struct Arguments {
    /// Show the type of each file: B C / > | @ P = F
    #[arg(short = 'F')]
    classify: bool,
    /// Tabs between the values, no arrows
    #[arg(short = 'H')]
    scripted: bool,
    /// Show when each file changed last (ctime)
    #[arg(short = 't')]
    timestamps: bool,
    /// Do not escape bytes of paths that are no printable ASCII characters
    #[arg(short = 'h')]
    unescaped: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    json: JsonOptions,
    /// A snapshot, and a later one or a filesystem; without these the filesystem of the snapshot as it is now
    #[arg(value_name = "SNAPSHOT|FILESYSTEM")]
    names: Vec<String>,
}

/// A result as it is printed.
struct Printer {
    arguments: Arguments,
    /// Changes that were printed.
    printed: u64,
}

impl Arguments {
    /// Prints the changes.
    pub fn run(self) -> Result<()> {
        let request = match &self.names[..] {
            [] => return Err(usage("must provide at least one snapshot name")),
            [from] if from.starts_with('@') => return Err(usage("must provide a filesystem with '@'")),
            [from] => CompareFiles { from: from.clone(), to: None },
            [from, to] => CompareFiles { from: from.clone(), to: Some(to.clone()) },
            _ => return Err(usage("too many arguments")),
        };
        let mut printer = Printer { arguments: self, printed: 0 };
        let mut failed = false;
        let mut is_whole = false;
        let answered = client::call_in_parts(&request, |part| {
            match part {
                DiffPart::Begun { from, to } => printer.begin(&from, &to)?,
                DiffPart::Changes(changes) => printer.print(&changes)?,
                DiffPart::Unreadable(why) => {
                    eprintln!("{why}");
                    failed = true;
                }
                DiffPart::Failed(error) => {
                    is_whole = true;
                    complain(&[error])?;
                }
                DiffPart::Complete => {
                    is_whole = true;
                    printer.end()?;
                }
            }
            Ok(())
        })?;
        if answered.is_none() {
            let named = if request.from.starts_with('@') { request.to.as_ref() } else { None };
            let name = named.unwrap_or(&request.from).split('@').next().unwrap_or_default();
            anyhow::bail!(absent(name));
        }
        match (is_whole, failed) {
            (true, false) => Ok(()),
            (true, true) => Err(Exit(FAILED).into()),
            (false, _) => anyhow::bail!("zfs diff failed: the daemon's answer broke off"),
        }
    }
}

impl Printer {
    fn begin(&self, from: &str, to: &str) -> Result<()> {
        if !self.arguments.json.json {
            return Ok(());
        }
        let mut document = output::document("zfs diff");
        document.insert("from".into(), from.into());
        document.insert("to".into(), to.into());
        let document = serde_json::to_string(&document)?;
        output::print(&format!("{},\"changes\":[", document.trim_end_matches('}')))
    }

    fn print(&mut self, changes: &[FileChange]) -> Result<()> {
        let mut text = String::new().into_bytes();
        for change in changes {
            if self.arguments.json.json {
                let separator: &[u8] = if self.printed == 0 { b"" } else { b"," };
                text.extend_from_slice(separator);
                text.extend(serde_json::to_vec(&self.arguments.json_of(change))?);
            } else {
                text.extend(self.arguments.line(change));
            }
            self.printed += 1;
        }
        output::print_bytes(&text)
    }

    fn end(&self) -> Result<()> {
        if self.arguments.json.json { output::print("]}\n") } else { Ok(()) }
    }
}

impl Arguments {
    fn line(&self, change: &FileChange) -> Vec<u8> {
        let mut line = String::new();
        if self.timestamps {
            line += &format!("{:>10}.{:09}\t", change.ctime, change.ctime_nanoseconds);
        }
        line.push(match change.kind {
            FileChangeKind::Added => '+',
            FileChangeKind::Removed => '-',
            FileChangeKind::Modified => 'M',
            FileChangeKind::Renamed => 'R',
        });
        line.push('\t');
        if self.classify {
            line.push(sign(change.mode));
            line.push('\t');
        }
        let mut line = line.into_bytes();
        line.extend(self.path(&change.path));
        if let Some(new) = &change.new_path {
            line.extend_from_slice(if self.scripted { b"\t" } else { b" -> " });
            line.extend(self.path(new));
        }
        if change.links != 0 {
            line.extend_from_slice(format!("\t({:+})", change.links).as_bytes());
        }
        line.push(b'\n');
        line
    }

    /// OpenZFS has no such form; this follows that of its other listings.
    fn json_of(&self, change: &FileChange) -> Value {
        let numbers = self.json.numbers(true);
        let path = |path| Value::from(String::from_utf8_lossy(&self.path(path)).into_owned());
        let mut item = Map::new();
        item.insert("change".into(), serde_json::to_value(change.kind).unwrap_or_default());
        item.insert("type".into(), sign(change.mode).to_string().into());
        item.insert("path".into(), path(&change.path));
        if let Some(new) = &change.new_path {
            item.insert("new_path".into(), path(new));
        }
        if change.links != 0 {
            item.insert("links".into(), numbers.signed(change.links));
        }
        item.insert("ctime".into(), numbers.signed(change.ctime));
        item.insert("ctime_nanoseconds".into(), numbers.signed(change.ctime_nanoseconds.into()));
        Value::Object(item)
    }

    fn path(&self, path: &FilePath) -> Vec<u8> {
        if self.unescaped {
            return path.0.clone();
        }
        let mut text = Vec::with_capacity(path.0.len());
        for byte in &path.0 {
            match byte {
                b'\\' => text.extend_from_slice(b"\\0134"),
                b'!'..=b'~' => text.push(*byte),
                _ => text.extend_from_slice(format!("\\{byte:04o}").as_bytes()),
            }
        }
        text
    }
}

/// A character for the type of a file, as `ls -F` has them.
fn sign(mode: u32) -> char {
    match FileType::from_mode(mode) {
        FileType::BlockDevice => 'B',
        FileType::CharDevice => 'C',
        FileType::Directory => '/',
        FileType::Fifo => '|',
        FileType::Symlink => '@',
        FileType::Socket => '=',
        FileType::Regular => 'F',
        // Doors and event ports, which Linux does not have.
        FileType::Other(13) => '>',
        FileType::Other(14) => 'P',
        FileType::Other(_) => '?',
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn line(options: &[&str], change: &FileChange) -> String {
        let words = ["diff"].iter().chain(options).chain(&["t@a"]);
        let arguments = Line::try_parse_from(words).unwrap().arguments;
        String::from_utf8(arguments.line(change)).unwrap()
    }

    fn change(kind: FileChangeKind, mode: u32) -> FileChange {
        FileChange {
            kind,
            path: FilePath("/t/ü \\~".as_bytes().to_vec()),
            new_path: None,
            links: 0,
            mode,
            ctime: 5,
            ctime_nanoseconds: 77,
        }
    }

    #[test]
    fn bytes_are_escaped_with_a_zero_and_three_octal_digits() {
        let added = change(FileChangeKind::Added, 0o100_644);
        assert_eq!(line(&[], &added), "+\t/t/\\0303\\0274\\0040\\0134~\n");
        assert_eq!(line(&["-h"], &added), "+\t/t/ü \\~\n");
        assert_eq!(line(&["-Fht"], &added), "         5.000000077\t+\tF\t/t/ü \\~\n");
    }

    #[test]
    fn a_rename_has_an_arrow_and_hard_links_a_number() {
        let new_path = Some(FilePath(b"/t/b".to_vec()));
        let renamed = FileChange { new_path, ..change(FileChangeKind::Renamed, 0o040_755) };
        assert_eq!(line(&["-Fh"], &renamed), "R\t/\t/t/ü \\~ -> /t/b\n");
        assert_eq!(line(&["-FHh"], &renamed), "R\t/\t/t/ü \\~\t/t/b\n");
        let linked = FileChange { links: 2, ..change(FileChangeKind::Modified, 0o100_644) };
        assert_eq!(line(&["-h"], &linked), "M\t/t/ü \\~\t(+2)\n");
        assert_eq!(line(&["-h"], &FileChange { links: -1, ..linked }), "M\t/t/ü \\~\t(-1)\n");
    }

    #[test]
    fn every_type_of_file_has_a_sign() {
        let modes = [0o1, 0o2, 0o4, 0o6, 0o10, 0o12, 0o14, 0o15, 0o16, 0o17];
        let signs: String = modes.map(|kind| sign(kind << 12)).into_iter().collect();
        assert_eq!(signs, "|C/BF@=>P?");
    }
}
