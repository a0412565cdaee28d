//! `cenote ls`: directories of an exported pool.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use engine::properties::format::Civil;
use engine::zpl::{Stat, Znode, Zpl};
use ondisk::zpl::FileType;
use serde::Serialize;

use super::target::{Content, Target, find};
use crate::exported::PoolPlace;

/// Directories nested deeper than this are taken for a loop.
const MAX_DEPTH: usize = 1024;

/// Arguments of `cenote ls`.
#[derive(Debug, clap::Args)]
pub struct LsArguments {
    #[command(flatten)]
    place: PoolPlace,
    /// One line for each file: mode, links, owner, group, size, time (UTC), name
    #[arg(short = 'l', long)]
    long: bool,
    /// Also the contents of each directory, at any depth
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print one JSON array
    #[arg(short = 'j', long)]
    json: bool,
    /// What to list: POOL/FS[@SNAPSHOT][:/PATH]
    target: Target,
}

/// One file as JSON.
#[derive(Debug, Serialize)]
struct Row {
    path: String,
    /// Present where the path is not UTF-8: its exact bytes in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    r#type: &'static str,
    mode: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    size: u64,
    ino: u64,
    mtime_ns: i128,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

/// Lists it.
pub fn run(arguments: &LsArguments) -> Result<()> {
    device::block_on(async {
        let target = &arguments.target;
        let (_dsl, content, _) = target.open(&arguments.place).await?;
        let Content::Filesystem(zpl) = content else {
            bail!(
                "'{}' is a volume; it has no files ('cenote cat' or 'extract' copy it out)",
                target.dataset
            );
        };
        let node = find(&zpl, &target.path).await?;
        let mut listing = Listing { arguments, zpl, rows: Vec::new(), failed: 0, directories: 0 };
        if node.file_type() == FileType::Directory {
            listing.directory(node, &target.path).await?;
        } else {
            listing.file(target.path.as_bytes(), &node).await?;
        }
        if arguments.json {
            println!("{}", serde_json::to_string_pretty(&listing.rows)?);
        }
        match listing.failed {
            0 => Ok(()),
            failed => bail!("{failed} files could not be read"),
        }
    })
}

struct Listing<'a> {
    arguments: &'a LsArguments,
    zpl: Arc<Zpl>,
    rows: Vec<Row>,
    failed: usize,
    directories: usize,
}

impl Listing<'_> {
    async fn directory(&mut self, node: Znode, path: &str) -> Result<()> {
        let mut due = vec![(node, path.as_bytes().to_vec(), 0)];
        while let Some((node, path, depth)) = due.pop() {
            let mut entries = Vec::new();
            let mut cursor = node.read_dir(0).await?;
            while let Some(entry) =
                cursor.next().await.with_context(|| format!("cannot list '/{}'", path.escape_ascii()))?
            {
                if entry.name != b"." && entry.name != b".." {
                    entries.push(entry);
                }
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            if self.arguments.recursive && !self.arguments.json {
                if self.directories > 0 {
                    println!();
                }
                print_bytes(&[b"/", path.as_slice(), b":\n"].concat())?;
            }
            self.directories += 1;
            let mut below = Vec::new();
            for entry in entries {
                let child = if path.is_empty() {
                    entry.name.clone()
                } else {
                    [&path[..], b"/", &entry.name].concat()
                };
                let shown = if self.arguments.json { &child } else { &entry.name };
                if !self.arguments.long && !self.arguments.json && !self.arguments.recursive {
                    print_bytes(&[shown, &b"\n"[..]].concat())?;
                    continue;
                }
                match self.zpl.node(entry.object).await {
                    Ok(node) => {
                        self.file(shown, &node).await?;
                        if self.arguments.recursive
                            && node.file_type() == FileType::Directory
                            && depth < MAX_DEPTH
                        {
                            below.push((node, child, depth + 1));
                        }
                    }
                    Err(error) => {
                        eprintln!("cenote: '/{}': {error}", child.escape_ascii());
                        self.failed += 1;
                    }
                }
            }
            due.extend(below.into_iter().rev());
        }
        Ok(())
    }

    async fn file(&mut self, shown: &[u8], node: &Znode) -> Result<()> {
        let stat = node.stat()?;
        let target = match node.file_type() {
            FileType::Symlink if self.arguments.long || self.arguments.json => Some(node.read_link().await?),
            _ => None,
        };
        if self.arguments.json {
            let text = String::from_utf8_lossy(shown).into_owned();
            let exact = std::str::from_utf8(shown).is_ok();
            self.rows.push(Row {
                path: text,
                path_hex: (!exact).then(|| shown.iter().map(|byte| format!("{byte:02x}")).collect()),
                r#type: type_word(node.file_type()),
                mode: stat.mode & 0o7777,
                uid: stat.uid,
                gid: stat.gid,
                nlink: stat.nlink,
                size: stat.size,
                ino: stat.ino,
                mtime_ns: stat.mtime.as_nanoseconds(),
                target: target.map(|target| String::from_utf8_lossy(&target).into_owned()),
            });
            return Ok(());
        }
        let mut line = Vec::new();
        if self.arguments.long {
            line.extend(long_columns(&stat, node.file_type()).bytes());
        }
        line.extend(shown);
        if let Some(target) = target {
            line.extend(b" -> ");
            line.extend(target);
        }
        line.push(b'\n');
        print_bytes(&line)
    }
}

/// Names are bytes; they go out as they are.
fn print_bytes(bytes: &[u8]) -> Result<()> {
    std::io::stdout().write_all(bytes).context("cannot write")
}

fn long_columns(stat: &Stat, kind: FileType) -> String {
    let size = match kind {
        FileType::CharDevice | FileType::BlockDevice => format!("{}, {}", stat.device.0, stat.device.1),
        _ => stat.size.to_string(),
    };
    let time = Civil::at(stat.mtime.seconds).map_or_else(
        || stat.mtime.seconds.to_string(),
        |at| format!("{:04}-{:02}-{:02} {:02}:{:02}", at.year, at.month, at.day, at.hour, at.minute),
    );
    let mode = mode_word(kind, stat.mode);
    format!("{mode} {:>3} {:>5} {:>5} {size:>12} {time} ", stat.nlink, stat.uid, stat.gid)
}

fn type_word(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        _ => "file",
    }
}

fn mode_word(kind: FileType, mode: u32) -> String {
    let mut word = String::with_capacity(10);
    word.push(match kind {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        _ => '-',
    });
    for (shift, special, set, both) in [(6, 0o4000, 'S', 's'), (3, 0o2000, 'S', 's'), (0, 0o1000, 'T', 't')] {
        let bits = mode >> shift;
        word.push(if bits & 4 != 0 { 'r' } else { '-' });
        word.push(if bits & 2 != 0 { 'w' } else { '-' });
        word.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => both,
            (true, false) => set,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_shown_as_ls_shows_them() {
        assert_eq!(mode_word(FileType::Regular, 0o644), "-rw-r--r--");
        assert_eq!(mode_word(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_word(FileType::Regular, 0o4711), "-rws--x--x");
        assert_eq!(mode_word(FileType::Regular, 0o6640), "-rwSr-S---");
    }
}
