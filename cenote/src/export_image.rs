//! `cenote export-image`: devices in object stores as plain files, which OpenZFS opens.
//!
//! # Why an image is consistent
//! A device in a store is always in the state of one commit, and a commit is what a flush made durable. So an
//! image is what a disk has whose power was cut after a flush: the pool on it is that of its last uberblock.
//! Of a pool with several devices the images belong together only if the pool is exported. Labels keep the
//! addresses as paths; an import looks for devices by their labels (`zpool import -d DIR`).
//!
//! An owner that writes meanwhile may remove what is superseded while it is read. Then the copy fails, and
//! its file is removed.

use std::fs::{self, File};
use std::io::{IsTerminal as _, stderr};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use device::{Device, OpenOptions, block_on};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::output;
use crate::progress::Progress;

/// Bytes that are read at once, and how many of such reads.
const CHUNK_BYTES: u64 = 16 << 20;
const AT_ONCE: usize = 6;
/// Zeros of this many bytes become a hole.
const HOLE_BYTES: usize = 64 << 10;

/// What the help says below the options.
const AFTER_HELP: &str = "\
Each file has the size of its device, and takes only the space of what is in use. Export the pool before, so \
that the images of several devices belong together. Then OpenZFS opens them:

  cenote export-image s3://bucket/tank /images/tank.img
  zpool import -d /images tank";

/// Arguments of `cenote export-image`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// Addresses of devices, as 'zpool status' shows them, each with the file to write
    #[arg(value_names = ["ADDRESS", "FILE"], num_args = 2.., required = true)]
    devices: Vec<String>,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        if !self.devices.len().is_multiple_of(2) {
            return Err(output::usage("each ADDRESS needs a FILE after it"));
        }
        let pairs: Vec<(&Path, PathBuf)> =
            self.devices.chunks(2).map(|pair| (Path::new(&pair[0]), PathBuf::from(&pair[1]))).collect();
        for (address, file) in &pairs {
            ensure!(
                device::address::is_address(address),
                "'{}' is not the address of a device in an object store, such as s3://bucket/prefix",
                address.display()
            );
            ensure!(!file.exists(), "'{}' is there already", file.display());
        }
        for (address, file) in &pairs {
            let copied = copy(address, file);
            copied.with_context(|| format!("cannot copy '{}' to '{}'", address.display(), file.display()))?;
        }
        Ok(())
    }
}

fn copy(address: &Path, path: &Path) -> Result<()> {
    let device = OpenOptions::read_only().open_device(address)?;
    let file = File::options().write(true).create_new(true).open(path)?;
    let copied = fill(&*device, &file, path);
    if copied.is_err() {
        // What is there is no image.
        let _ = fs::remove_file(path);
    }
    copied
}

fn fill(device: &dyn Device, file: &File, path: &Path) -> Result<()> {
    let size = device.size_bytes();
    file.set_len(size)?;
    let mut progress = if stderr().is_terminal() { Progress::shown(Some(size)) } else { Progress::hidden() };
    progress.name(&path.display().to_string());
    let chunks = (0..size.div_ceil(CHUNK_BYTES)).map(|at| at * CHUNK_BYTES);
    let read = async |offset: u64| {
        let length = CHUNK_BYTES.min(size - offset);
        Ok::<_, anyhow::Error>((offset, device.read(offset, length as usize).await?))
    };
    block_on(async {
        let mut all = std::pin::pin!(stream::iter(chunks).map(read).buffered(AT_ONCE));
        while let Some((offset, bytes)) = all.try_next().await? {
            for (at, data) in pieces(&bytes) {
                file.write_all_at(data, offset + at as u64)?;
            }
            progress.advance(bytes.len() as u64);
        }
        Ok::<_, anyhow::Error>(())
    })?;
    file.sync_all()?;
    Ok(())
}

/// The parts that are not zeros, with where they are, neighbours together.
fn pieces(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (number, piece) in bytes.chunks(HOLE_BYTES).enumerate() {
        let start = number * HOLE_BYTES;
        if piece.iter().all(|byte| *byte == 0) {
            continue;
        }
        match found.last_mut() {
            Some((_, end)) if *end == start => *end += piece.len(),
            _ => found.push((start, start + piece.len())),
        }
    }
    found.into_iter().map(|(start, end)| (start, &bytes[start..end])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_left_out_and_neighbours_are_written_at_once() {
        let mut bytes = vec![0; HOLE_BYTES * 5 + 100];
        (bytes[HOLE_BYTES], bytes[HOLE_BYTES * 2 + 7], bytes[HOLE_BYTES * 5 + 99]) = (1, 2, 3);
        let ranges: Vec<(usize, usize)> =
            pieces(&bytes).iter().map(|(start, data)| (*start, data.len())).collect();
        assert_eq!(ranges, [(HOLE_BYTES, HOLE_BYTES * 2), (HOLE_BYTES * 5, 100)]);
        assert!(pieces(&vec![0; HOLE_BYTES * 3]).is_empty());
    }
}
