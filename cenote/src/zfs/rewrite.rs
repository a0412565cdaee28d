//! `zfs rewrite`: files of mounted filesystems written again, through the ioctl that OpenZFS's filesystems
//! have for it too.
//!
//! Source of the facts: OpenZFS 2.4 `zfs_main.c`, `zfs-rewrite.8`.

#![allow(unsafe_code, reason = "an ioctl on files")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use server::fuse::{REWRITE_KEEPS_BIRTHS, ZFS_DIRECTORY_INODE, ZFS_IOC_REWRITE};

use crate::output::{Exit, FAILED, in_words, print};
use crate::remotes;

/// Bytes that one call writes again, so that the command can be stopped between two.
const PIECE_BYTES: u64 = 256 << 20;

/// Arguments of `zfs rewrite`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Keep the logical births of blocks, so that incremental streams do not contain them again
    #[arg(short = 'P')]
    physical: bool,
    /// Also the contents of directories, at any depth
    #[arg(short = 'r')]
    recursive: bool,
    /// Write at most this number of bytes
    #[arg(short = 'l', value_name = "LENGTH", value_parser = number, default_value = "0", hide_default_value = true)]
    length: u64,
    /// Begin at this byte of a file
    #[arg(short = 'o', value_name = "OFFSET", value_parser = number, default_value = "0", hide_default_value = true)]
    offset: u64,
    /// Print the names of files that were written
    #[arg(short = 'v')]
    verbose: bool,
    /// Do not cross into other filesystems
    #[arg(short = 'x')]
    one_filesystem: bool,
    /// Files and directories
    #[arg(value_name = "DIRECTORY|FILE", required = true)]
    paths: Vec<PathBuf>,
}

/// A number as `strtoll` reads it: decimal, hexadecimal or octal.
fn number(text: &str) -> Result<u64, String> {
    let read = match (text.strip_prefix("0x").or(text.strip_prefix("0X")), text.strip_prefix('0')) {
        (Some(hexadecimal), _) => u64::from_str_radix(hexadecimal, 16),
        (None, Some(octal)) if !octal.is_empty() => u64::from_str_radix(octal, 8),
        _ => text.parse(),
    };
    read.ok().filter(|number| *number <= i64::MAX as u64).ok_or_else(|| "not a number of bytes".to_owned())
}

impl Arguments {
    /// Writes the files again.
    pub fn run(self) -> Result<()> {
        remotes::only_here("it works on files by their paths")?;
        let mut failed = false;
        let mut waiting = Vec::new();
        for path in &self.paths {
            failed |= complained(self.visit(path, &mut waiting));
        }
        while let Some((directory, device)) = waiting.pop() {
            failed |= complained(self.visit_directory(&directory, device, &mut waiting, &mut failed));
        }
        if failed { Err(Exit(FAILED).into()) } else { Ok(()) }
    }

    fn visit(&self, path: &Path, waiting: &mut Vec<(PathBuf, u64)>) -> Result<()> {
        let found =
            fs::symlink_metadata(path).with_context(|| format!("failed to stat {}", path.display()))?;
        if found.is_file() {
            self.rewrite(path)?;
        } else if found.is_dir() && self.recursive {
            waiting.push((path.to_owned(), found.dev()));
        }
        Ok(())
    }

    fn visit_directory(
        &self,
        directory: &Path,
        device: u64,
        waiting: &mut Vec<(PathBuf, u64)>,
        failed: &mut bool,
    ) -> Result<()> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.with_context(|| format!("failed to opendir {}", directory.display()))?,
        };
        for entry in entries {
            let entry = entry.with_context(|| format!("failed to readdir {}", directory.display()))?;
            let Ok(kind) = entry.file_type() else { continue };
            // What snapshots hold cannot be written.
            if entry.ino() == ZFS_DIRECTORY_INODE || !(kind.is_file() || kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            if self.one_filesystem && entry.metadata().is_ok_and(|found| found.dev() != device) {
                continue;
            }
            match kind.is_file() {
                true => *failed |= complained(self.rewrite(&path)),
                false => waiting.push((path, device)),
            }
        }
        Ok(())
    }

    /// What an error means and what mends it, where its own words do not say so.
    fn why(&self, error: &io::Error) -> &'static str {
        match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) if self.physical => {
                ": -P needs the feature physical_rewrite, which its pool does not have (`zpool set \
                 feature@physical_rewrite=enabled POOL`; OpenZFS before 2.4 cannot write it then). \
                 Without -P the file can be rewritten in any pool"
            }
            Some(libc::ENOTTY) => ": it is not on a filesystem of a pool",
            _ => "",
        }
    }

    fn rewrite(&self, path: &Path) -> Result<()> {
        let shown = path.display();
        let file =
            OpenOptions::new().write(true).open(path).with_context(|| format!("failed to open {shown}"))?;
        let size = file.metadata().with_context(|| format!("failed to stat {shown}"))?.len();
        let end = if self.length == 0 { size } else { self.offset.saturating_add(self.length).min(size) };
        let flags = if self.physical { REWRITE_KEEPS_BIRTHS } else { 0 };
        // An empty file is asked for too, so that what cannot be done anywhere is said.
        let mut at = next_data(&file, self.offset, end).unwrap_or(self.offset);
        loop {
            let length = end.saturating_sub(at).min(PIECE_BYTES);
            let argument: [u64; 4] = [at, length, flags, 0];
            // SAFETY: the kernel reads as many bytes as the number of the ioctl says, which `argument` has.
            if unsafe {
                libc::ioctl(file.as_raw_fd(), libc::Ioctl::from(ZFS_IOC_REWRITE), &raw const argument)
            } != 0
            {
                let error = io::Error::last_os_error();
                let why = self.why(&error);
                return Err(error).with_context(|| format!("failed to rewrite {shown}{why}"));
            }
            match next_data(&file, at.saturating_add(PIECE_BYTES), end) {
                Some(data) => at = data,
                None => break,
            }
        }
        if self.verbose { print(&format!("{shown}\n")) } else { Ok(()) }
    }
}

/// The first offset from `at` on, and below `end`, where a file has data. If the filesystem does not report
/// holes, all are.
fn next_data(file: &File, at: u64, end: u64) -> Option<u64> {
    if at >= end {
        return None;
    }
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(data) => Some(data).filter(|data| *data < end),
        Err(rustix::io::Errno::NXIO) => None,
        Err(_) => Some(at),
    }
}

/// Says what went wrong, and whether something did.
fn complained(done: Result<()>) -> bool {
    match done {
        Ok(()) => false,
        Err(error) => {
            eprintln!("{}", in_words(&error));
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_as_in_c() {
        assert_eq!(number("4096"), Ok(4096));
        assert_eq!(number("0x1000"), Ok(4096));
        assert_eq!(number("010"), Ok(8));
        assert_eq!(number("0"), Ok(0));
        assert!(number("4K").is_err() && number("-1").is_err());
    }
}
