//! Opening devices for writing.
//!
//! The search for pools opens every device that it finds, for reading and without a lock. Before a pool is
//! written, its own devices are opened again: for reading and writing, and locked, so that neither another
//! process nor another pool of this process writes to them meanwhile. A block device is also claimed from the
//! kernel (`O_EXCL`), which refuses when it is mounted or part of an array.
//!
//! Data that were read from a device before it was locked may have changed since. So the code that opens a
//! pool for writing reads labels and uberblocks again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Cause, Device, FileDevice, IoError, OpenOptions};

use super::gpt::{Table, partition_path};

/// The interval between checks for a partition that the system does not show yet.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Opens a device for writing that is open for reading; `None` when it is not there any more. A device that
/// is already writable stays as it is. `ashift` is the sector size of the vdev as a power of two: writes need
/// no larger alignment.
///
/// # Errors
/// The device is in use, or cannot be written.
pub fn reopen_for_writing(device: &Arc<dyn Device>, ashift: u32) -> Result<Option<Arc<dyn Device>>, IoError> {
    if !device.is_read_only() {
        return Ok(Some(Arc::clone(device)));
    }
    match open_for_writing(device.path(), ashift) {
        Ok(device) => Ok(Some(device)),
        Err(error)
            if matches!(error.errno(), libc_errno::ENOENT | libc_errno::ENXIO | libc_errno::ENODEV) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Opens a file or block device for writing in sectors of `1 << ashift` bytes.
///
/// # Errors
/// See [`reopen_for_writing`].
pub fn open_for_writing(path: &Path, ashift: u32) -> Result<Arc<dyn Device>, IoError> {
    for_sectors(ashift).open_device(path)
}

/// The same for a pool that is open and had the device open before: not one that another host has opened
/// since.
///
/// # Errors
/// See [`reopen_for_writing`].
pub(super) fn open_again(path: &Path, ashift: u32) -> Result<Arc<dyn Device>, IoError> {
    for_sectors(ashift).continuing().open_device(path)
}

fn for_sectors(ashift: u32) -> OpenOptions {
    OpenOptions::read_write().unit_at_most(1u32.checked_shl(ashift).unwrap_or(512))
}

/// Prepares a whole disk for a pool: partitions it, and opens the pool's partition. All data on the disk are
/// lost. Waits at most `patience` until the system shows the partition, so a thread that serves other
/// requests must not call it. `random` makes the guids.
///
/// # Errors
/// The disk is in use, too small, or cannot be partitioned.
pub async fn take_whole_disk(
    disk: &Path,
    patience: Duration,
    random: impl FnMut() -> u64,
) -> Result<(FileDevice, PathBuf), IoError> {
    let error = |cause| IoError::new(disk, device::Operation::Open, 0, 0, cause);
    let device = OpenOptions::read_write().open(disk)?;
    let sector_bytes = device.sector_sizes().logical_bytes;
    let table = Table::whole_disk(device.size_bytes(), sector_bytes, random)
        .ok_or_else(|| error(Cause::OutOfRange { size_bytes: device.size_bytes() }))?;
    table.write(&device).await?;
    device.reread_partitions()?;
    // The partition can be claimed only after the disk is released.
    drop(device);
    let partition = partition_path(disk);
    let start = Instant::now();
    loop {
        match OpenOptions::read_write().open(&partition) {
            // The system shows the old table until it has read the new one.
            Ok(device) if device.size_bytes() == table.partition.end - table.partition.start => {
                return Ok((device, partition));
            }
            Err(error) if start.elapsed() >= patience => return Err(error),
            Ok(_) if start.elapsed() >= patience => return Err(error(Cause::Missing)),
            _ => std::thread::sleep(LOOK_INTERVAL),
        }
    }
}

/// Linux's error numbers for a device that is not there.
mod libc_errno {
    pub const ENOENT: i32 = 2;
    pub const ENXIO: i32 = 6;
    pub const ENODEV: i32 = 19;
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::{IoBuf, block_on};

    #[test]
    fn a_device_is_opened_for_writing_once_and_only_while_it_is_there() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 20).expect("grows");
        let readable: Arc<dyn Device> = Arc::new(FileDevice::open(&file).expect("opens"));
        let writable = reopen_for_writing(&readable, 9).expect("opens").expect("is there");
        block_on(writable.write(512, IoBuf::zeroed(512))).expect("writes single sectors");
        let same = reopen_for_writing(&writable, 9).expect("stays").expect("is there");
        assert!(Arc::ptr_eq(&writable, &same));
        assert_eq!(reopen_for_writing(&readable, 9).unwrap_err().cause, Cause::InUse);
        drop((writable, same));
        file.close().expect("is removed");
        assert!(reopen_for_writing(&readable, 9).expect("is no failure").is_none());
    }
}
