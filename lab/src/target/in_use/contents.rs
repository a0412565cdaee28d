//! What a file or device holds: labels of pools, signatures, and bytes of no known kind. Files that the lab
//! made are marked, and known by that.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use codec::checksum::verify_label;
use device::signatures::{SIGNATURE_BYTES, signature};
use ondisk::Txg;
use ondisk::label::{LABELS, VDEV_PHYS, label_offset, parse_config};
use ondisk::vdev_config::{PoolConfig, PoolState};
use rustix::fs::{SeekFrom, XattrFlags, getxattr, seek, setxattr};
use rustix::io::Errno;

use super::Usage;
use super::system::{Number, System, Thing};
use crate::error::{Error, Result};

/// The attribute of files that the lab made.
const MADE: &str = "user.cenote.lab";
/// Where bytes are looked for that no signature shows: so much at both ends, and at so many places
/// between, so much each.
const END_BYTES: usize = 1 << 20;
const PLACES: u64 = 64;
const PLACE_BYTES: usize = 4096;

impl System {
    /// All that is found at a path that is to be written; nothing where nothing is there yet.
    pub(super) fn look(&self, path: &Path) -> Result<Usage> {
        let mut found = Usage::default();
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(Error::file(path)(error)),
        };
        if metadata.is_dir() {
            return Ok(found);
        }
        let is_block = metadata.file_type().is_block_device();
        let thing = Thing::of(&metadata);
        found.uses = self.all_uses(&thing, &mut Vec::new());
        if let Thing::Device(number) = &thing {
            for (name, partition) in self.partitions(number) {
                let device = self.device(&name);
                if Number::at(&device).as_ref() == Some(&partition) {
                    let writers = self.writers(&device).into_iter();
                    found.uses.extend(writers.map(|use_| format!("has {name}, which {use_}")));
                    let held = self.held(&device, &mut found.uses)?;
                    found.holds.extend(held.into_iter().map(|what| format!("has {name}, which {what}")));
                }
            }
        }
        found.uses.extend(self.writers(path));
        let mut held = self.held(path, &mut found.uses)?;
        if held.is_empty() && found.holds.is_empty() && (is_block || !is_made(path)) {
            let holds_bytes = holds_bytes(path).map_err(Error::file(path))?;
            held.extend(holds_bytes.then(|| BYTES.to_owned()));
        }
        found.holds.splice(0..0, held);
        Ok(found)
    }

    /// The contents of a device or file, by labels and signatures. An imported pool is a use.
    pub(super) fn held(&self, path: &Path, uses: &mut Vec<String>) -> Result<Vec<String>> {
        let file = File::open(path).map_err(Error::file(path))?;
        let size = size(&file).map_err(Error::file(path))?;
        let mut held = Vec::new();
        if let Some((pool, state)) = label(&file, size) {
            match state {
                PoolState::Active if self.has_imported(&pool) => {
                    uses.push(format!("is part of the imported pool '{pool}'"));
                }
                PoolState::Active => {
                    held.push(format!("has the label of pool '{pool}', which was not exported"));
                }
                PoolState::Exported => held.push(format!("has the label of the exported pool '{pool}'")),
                PoolState::Destroyed => held.push(format!("has the label of the destroyed pool '{pool}'")),
                PoolState::Spare => held.push("has the label of a pool's spare".to_owned()),
                PoolState::L2cache => held.push("has the label of a pool's cache device".to_owned()),
            }
        }
        let mut start = vec![0; usize::try_from(size).unwrap_or(usize::MAX).min(SIGNATURE_BYTES)];
        let read = file.read_exact_at(&mut start, 0);
        read.map_err(Error::file(path))?;
        if let Some(found) = signature(&start) {
            held.push(match found.is_table {
                true => format!("has a table of partitions ({})", found.kind),
                false => format!("has the signature of {}", found.kind),
            });
        }
        Ok(held)
    }
}

/// The words for contents of no known kind.
pub(super) const BYTES: &str = "holds data of no known kind";

/// The end of a block device or file.
pub(crate) fn size(file: &File) -> io::Result<u64> {
    Ok(seek(file, SeekFrom::End(0))?)
}

/// The pool that a device's best label names, and its state.
fn label(file: &File, size: u64) -> Option<(String, PoolState)> {
    let labels = (0..LABELS).filter_map(|index| {
        let position = label_offset(size, index)?.get() + VDEV_PHYS.start;
        let mut area = vec![0; (VDEV_PHYS.end - VDEV_PHYS.start) as usize];
        file.read_exact_at(&mut area, position).ok()?;
        verify_label(&area, position).ok()?;
        PoolConfig::parse(parse_config(&area).ok()?).ok()
    });
    let label = labels.max_by_key(|label| label.txg)?;
    // It was to become part of a pool, and no group of that was committed.
    let is_of_none = label.state == PoolState::Active && label.txg.is_none_or(|txg| txg == Txg::NONE);
    let name = label.name.as_ref().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
    (!is_of_none).then(|| (name.unwrap_or_default(), label.state))
}

/// Whether there are bytes other than zero, at both ends or at places between.
fn holds_bytes(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let size = size(&file)?;
    // A file of holes alone has nothing to be read.
    if file.metadata()?.is_file() && matches!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO)) {
        return Ok(false);
    }
    let end = (END_BYTES as u64).min(size);
    let step = (size / (PLACES + 1)).max(1);
    let places = (1..=PLACES).map(|at| (at * step, PLACE_BYTES as u64));
    for (at, bytes) in [(0, end), (size - end, end)].into_iter().chain(places) {
        let bytes = bytes.min(size.saturating_sub(at));
        let mut piece = vec![0; bytes as usize];
        file.read_exact_at(&mut piece, at)?;
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a file was made by the lab.
pub(crate) fn is_made(path: &Path) -> bool {
    getxattr(path, MADE, &mut [0_u8; 16]).is_ok()
}

/// Whether a file was made by the lab and filled since.
pub(crate) fn is_filled(path: &Path) -> bool {
    let mut value = [0_u8; 16];
    getxattr(path, MADE, &mut value).is_ok_and(|length| value.get(..length) == Some(b"filled"))
}

/// Notes that a file was made by the lab, and whether it is filled. Where a filesystem has no such
/// attributes, nothing is known later, and overwriting needs consent.
pub(crate) fn mark(path: &Path, is_filled: bool) {
    let value: &[u8] = if is_filled { b"filled" } else { b"made" };
    let _ = setxattr(path, MADE, value, XattrFlags::empty());
}
