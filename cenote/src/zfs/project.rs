//! `zfs project`: the projects of files and directories of mounted filesystems, through the kernel's ioctls.

#![allow(unsafe_code, reason = "ioctls on files")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, FileTypeExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use server::fuse::ZFS_DIRECTORY_INODE;

use crate::output::{Exit, FAILED, in_words, print, usage};
use crate::remotes;

/// `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`.
const GET: libc::Ioctl = 0x801c_581f;
const SET: libc::Ioctl = 0x401c_5820;
/// `FS_XFLAG_PROJINHERIT`.
const INHERIT: u32 = 0x200;

/// Arguments of `zfs project`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Only the directory itself, not its contents
    #[arg(short = 'd', overrides_with = "recursive")]
    directory: bool,
    /// Also the contents of directories, at any depth
    #[arg(short = 'r', overrides_with = "directory")]
    recursive: bool,
    /// List files that have another project, or do not pass it on
    #[arg(short = 'c')]
    check: bool,
    /// With -c: print only names, each ended by NUL
    #[arg(short = '0')]
    nul: bool,
    /// Remove the project and its inheritance
    #[arg(short = 'C')]
    clear: bool,
    /// With -C: keep the project
    #[arg(short = 'k')]
    keep: bool,
    /// Let directories pass their project on to new files
    #[arg(short = 's')]
    set: bool,
    /// The project; without it, that of the first directory
    #[arg(short = 'p', value_name = "ID")]
    project: Option<u32>,
    /// Files and directories
    #[arg(value_name = "FILE|DIRECTORY", required = true)]
    paths: Vec<PathBuf>,
}

/// `struct fsxattr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    unused: [u8; 8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    List,
    Check { nul: bool },
    Clear { keep: bool },
    Set { inherit: bool },
}

impl Arguments {
    fn action(&self) -> Result<Action> {
        let set = self.set || (self.project.is_some() && !self.check);
        let action = match (self.check, self.clear, set) {
            (false, false, false) => Action::List,
            (true, false, false) => Action::Check { nul: self.nul },
            (false, true, false) => Action::Clear { keep: self.keep },
            (false, false, true) => Action::Set { inherit: self.set },
            _ => return Err(usage("only one of '-c', '-C' and '-s' (or '-p') may be given")),
        };
        if self.nul && !self.check {
            return Err(usage("'-0' is only for '-c'"));
        }
        if self.keep && !self.clear {
            return Err(usage("'-k' is only for '-C'"));
        }
        if self.directory && !matches!(action, Action::List | Action::Check { .. }) {
            return Err(usage("'-d' is useless when a project is set or taken away"));
        }
        if self.clear && self.project.is_some() {
            return Err(usage("'-p' is useless together with '-C'"));
        }
        if self.project == Some(u32::MAX) {
            return Err(usage("invalid project ID"));
        }
        Ok(action)
    }

    /// Shows or changes the projects.
    pub fn run(self) -> Result<()> {
        remotes::only_here("it works on files by their paths")?;
        let action = self.action()?;
        let mut failed = false;
        for path in &self.paths {
            if let Err(error) = self.handle(path, action) {
                eprintln!("{}", in_words(&error));
                failed = true;
            }
        }
        if failed { Err(Exit(FAILED).into()) } else { Ok(()) }
    }

    fn handle(&self, top: &Path, action: Action) -> Result<()> {
        let shown = top.display();
        let kind = std::fs::metadata(top).with_context(|| format!("failed to stat {shown}"))?.file_type();
        if !kind.is_file() && !kind.is_dir() {
            anyhow::bail!("only support project quota on regular file or directory");
        }
        for (given, letter) in [(self.directory, 'd'), (self.recursive, 'r')] {
            if given && !kind.is_dir() {
                anyhow::bail!("'-{letter}' option on non-dir target {shown}");
            }
        }
        let project = match (self.project, action) {
            (Some(project), _) => project,
            (None, Action::Check { .. } | Action::Set { .. }) => get(top)?.project,
            _ => 0,
        };
        one(top, action, project)?;
        let looks_inside = self.recursive || matches!(action, Action::List | Action::Check { .. });
        if !kind.is_dir() || self.directory || !looks_inside {
            return Ok(());
        }
        let mut waiting = vec![top.to_owned()];
        while let Some(directory) = waiting.pop() {
            let entries = match std::fs::read_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.with_context(|| format!("failed to opendir {}", directory.display()))?,
            };
            for entry in entries {
                let entry = entry.with_context(|| format!("failed to readdir {}", directory.display()))?;
                let Ok(kind) = entry.file_type() else { continue };
                // Snapshots cannot be changed. Others cannot be opened without effects, and
                // have no project that could be changed.
                if entry.ino() == ZFS_DIRECTORY_INODE
                    || kind.is_symlink()
                    || kind.is_fifo()
                    || kind.is_socket()
                    || kind.is_block_device()
                    || kind.is_char_device()
                {
                    continue;
                }
                match one(&entry.path(), action, project) {
                    Err(error) if is_gone(&error) => continue,
                    done => done?,
                }
                if self.recursive && kind.is_dir() {
                    waiting.push(entry.path());
                }
            }
        }
        Ok(())
    }
}

/// What is removed while we walk is none of our business.
fn is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn get(path: &Path) -> Result<Attributes> {
    let file = File::open(path).with_context(|| format!("failed to open {}", path.display()))?;
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes a `struct fsxattr`, which `Attributes` is.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), GET, &mut attributes) };
    match code {
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error())
            .with_context(|| format!("failed to get xattr for {}", path.display())),
    }
}

fn set(path: &Path, attributes: &Attributes) -> Result<()> {
    let file = File::open(path).with_context(|| format!("failed to open {}", path.display()))?;
    // SAFETY: the kernel reads a `struct fsxattr`, which `Attributes` is.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), SET, attributes) };
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error())
            .with_context(|| format!("failed to set xattr for {}", path.display())),
    }
}

fn one(path: &Path, action: Action, project: u32) -> Result<()> {
    let old = get(path)?;
    let name = path.display();
    let inherits = old.flags & INHERIT != 0;
    let new = match action {
        Action::List => {
            let mark = if inherits { 'P' } else { '-' };
            return print(&format!("{:>5} {mark} {name}\n", old.project));
        }
        Action::Check { nul } => {
            let mut text = String::new();
            if nul && (old.project != project || !inherits) {
                text = format!("{name}\0");
            } else if !nul {
                if old.project != project {
                    text = format!("{name} - project ID is not set properly ({}/{project})\n", old.project);
                }
                if !inherits {
                    text.push_str(&format!("{name} - project inherit flag is not set\n"));
                }
            }
            return print(&text);
        }
        Action::Clear { keep } => {
            let project = if keep { old.project } else { 0 };
            Attributes { flags: old.flags & !INHERIT, project, ..old }
        }
        Action::Set { inherit } => {
            Attributes { flags: old.flags | if inherit { INHERIT } else { 0 }, project, ..old }
        }
    };
    if (new.flags, new.project) == (old.flags, old.project) { Ok(()) } else { set(path, &new) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Action> {
        #[derive(clap::Parser)]
        struct Program {
            #[command(flatten)]
            arguments: Arguments,
        }
        let words = ["project"].iter().chain(words).chain(&["/x"]);
        let parsed: Program = clap::Parser::try_parse_from(words)?;
        parsed.arguments.action()
    }

    #[test]
    fn one_thing_is_done_at_a_time() {
        assert_eq!(parsed(&[]).unwrap(), Action::List);
        assert_eq!(parsed(&["-p", "7"]).unwrap(), Action::Set { inherit: false });
        assert_eq!(parsed(&["-s", "-p", "7", "-r"]).unwrap(), Action::Set { inherit: true });
        assert_eq!(parsed(&["-c", "-p", "7"]).unwrap(), Action::Check { nul: false });
        assert_eq!(parsed(&["-C", "-k"]).unwrap(), Action::Clear { keep: true });
        let useless: [&[&str]; 4] = [&["-C", "-d"], &["-s", "-d"], &["-p", "7", "-d"], &["-C", "-p", "7"]];
        for bad in [&["-c", "-C"][..], &["-C", "-s"], &["-0"], &["-k"]].into_iter().chain(useless) {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }
}
