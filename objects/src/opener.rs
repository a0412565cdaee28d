//! Opening devices by their addresses, for [`::device::address`].
//!
//! # Who may open a device
//! Another host may take it over at any time. Another process of this host, or another opening in this
//! process, may not: a file that stands for the device is locked as long as it is open to be written. So two
//! commands of one host do not take a pool from each other by mistake.
//!
//! A pool that is open does not take a device back from another host: it opens it
//! [`continuing`](OpenOptions::continuing), and that succeeds only where no commit was made by others since
//! this process had it last.

use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::device::{Cause, Device, IgnorePoison, IoError, OpenOptions, Operation, address, in_words};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use tokio::runtime::Builder;

use crate::address::{Address, Scheme};
use crate::core::Options;
use crate::device::{Mode, ObjectDevice};
use crate::error::Error;
use crate::format::Sequence;
use crate::opening;
use crate::probe::{self, ProbeError};

/// The variable with the folder of the locks of this host.
pub const LOCKS_VARIABLE: &str = "CENOTE_HOST_LOCKS";
/// How long the store is tried for a device that is to be made or found.
const PROVIDING_PATIENCE: Duration = Duration::from_secs(10);
/// How long a lock is tried for that is held.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// From now on addresses are opened as devices in object stores.
pub fn register() {
    for scheme in Scheme::ALL {
        address::register(scheme.word(), open);
    }
}

/// The opening that this process had last, by device.
static HELD: Mutex<Option<HashMap<[u8; 16], Sequence>>> = Mutex::new(None);

/// This process has the device from this opening on.
pub(crate) fn is_held(device: [u8; 16], epoch: Sequence) {
    HELD.lock().ignore_poison().get_or_insert_default().insert(device, epoch);
}

/// The opening that this process had last.
pub(crate) fn held(device: [u8; 16]) -> Option<Sequence> {
    HELD.lock().ignore_poison().as_ref()?.get(&device).copied()
}

fn open(text: &str, options: OpenOptions) -> Result<Arc<dyn Device>, IoError> {
    let failed = |cause| IoError::new(Path::new(text), Operation::Open, 0, 0, cause);
    let said = |said: String| failed(Cause::Store { said });
    let address: Address = text.parse().map_err(|error: crate::AddressError| said(error.to_string()))?;
    let bucket = address.bucket(false).map_err(|error| said(error.to_string()))?;
    let (mode, lock) = match (options.is_for_writing(), options.is_continuing()) {
        (false, _) => (Mode::Read, None),
        (true, is_continuing) => {
            let lock = lock(&address).map_err(failed)?;
            (if is_continuing { Mode::Continue } else { Mode::Write }, Some(lock))
        }
    };
    let device =
        ObjectDevice::open(bucket, mode, Options::default()).map_err(|error| failed(error.cause()))?;
    Ok(Arc::new(device.at(PathBuf::from(address.to_string()), address.identity(), lock)))
}

/// Makes a device at an address that says its size, or finds the one that is there.
///
/// # Errors
/// The address; there is none, and no size to make one of; there is one of another size; the store.
pub fn provide(text: &str) -> Result<Address, ProvideError> {
    let address: Address = text.parse().map_err(ProvideError::Address)?;
    let bucket = address.bucket(address.size_bytes().is_some()).map_err(ProvideError::Address)?;
    let options = Options { patience: PROVIDING_PATIENCE, ..Options::default() };
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|_| Error::Closed)?;
    runtime.block_on(async {
        match (opening::device_of(&*bucket, &options).await, address.size_bytes()) {
            (Ok((_, there)), Some(asked)) if there != asked => Err(ProvideError::OtherSize { there, asked }),
            (Ok((device, _)), _) => Ok(opening::complete(&*bucket, device, &options).await?),
            (Err(Error::NoDevice { .. }), Some(size)) => {
                // Folders and memory do what is relied on.
                if address.scheme() == Scheme::S3 {
                    probe::probe(&*bucket, PROVIDING_PATIENCE).await?;
                }
                Ok(opening::create(&*bucket, size, &options).await?)
            }
            (Err(Error::NoDevice { address }), None) => Err(ProvideError::NoSize { address }),
            (Err(error), _) => Err(error.into()),
        }
    })?;
    Ok(address)
}

/// Why there is no device to make a pool of.
#[derive(Debug, thiserror::Error)]
pub enum ProvideError {
    /// The address.
    #[error("{0}")]
    Address(crate::AddressError),
    /// There is none, and it is not said how large it is to be.
    #[error("{address} has no device; say how large it is to be: '{address}?size=10G'")]
    NoSize {
        /// Where.
        address: String,
    },
    /// There is one of another size.
    #[error("there is a device of {there} bytes, and not of {asked}; leave size= away to use it")]
    OtherSize {
        /// What it has, in bytes.
        there: u64,
        /// What was asked for, in bytes.
        asked: u64,
    },
    /// The store is not safe.
    #[error("{0}")]
    Unsafe(#[from] ProbeError),
    /// The store, or what is there.
    #[error("{0}")]
    Store(#[from] Error),
}

/// The folder of locks.
fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os(LOCKS_VARIABLE) {
        return folder.into();
    }
    if rustix::process::geteuid().is_root() {
        return "/run/cenote/locks".into();
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    let uid = rustix::process::geteuid().as_raw();
    own.map_or_else(|| std::env::temp_dir().join(format!("cenote-{uid}")), |folder| folder.join("cenote"))
        .join("locks")
}

/// Locks the device against other openings of this host.
fn lock(address: &Address) -> Result<OwnedFd, Cause> {
    let folder = folder();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    let file = folder.join(format!("{:016x}.lock", address.identity()));
    // A folder for all users may have what another one has put there.
    let no_links = OFlags::NOFOLLOW.bits() as i32;
    let opened = made.and_then(|()| {
        fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(no_links)
            .open(&file)
    });
    let said = |error: &std::io::Error| Cause::Store {
        said: format!("its lock {} cannot be made: {}", file.display(), in_words(error)),
    };
    let opened: OwnedFd = opened.map_err(|error| said(&error))?.into();
    let deadline = std::time::Instant::now() + LOCK_PATIENCE;
    loop {
        match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(opened),
            Err(Errno::WOULDBLOCK) if std::time::Instant::now() < deadline => {
                std::thread::sleep(LOCK_PATIENCE / 50);
            }
            Err(Errno::WOULDBLOCK) => return Err(Cause::InUse),
            Err(errno) => return Err(said(&errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use ::device::{IoBuf, block_on};

    use super::*;

    #[test]
    fn a_device_is_made_where_its_size_is_said_and_opened_once() {
        register();
        assert!(matches!(provide("memory://once").unwrap_err(), ProvideError::NoSize { .. }));
        provide("memory://once?size=64M").unwrap();
        assert!(matches!(provide("memory://once?size=1G").unwrap_err(), ProvideError::OtherSize { .. }));
        let address = provide("memory://once").unwrap().to_string();
        let first = OpenOptions::read_write().open_device(&address).unwrap();
        let refused = OpenOptions::read_write().open_device(&address).unwrap_err();
        assert_eq!(refused.cause, Cause::InUse);
        let reader = OpenOptions::read_only().open_device(&address).unwrap();
        assert_eq!((first.identity(), first.size_bytes()), (reader.identity(), 64 << 20));
        drop(first);
        OpenOptions::read_write().open_device(&address).unwrap();
        let missing = OpenOptions::read_only().open_device("memory://nothing").unwrap_err();
        assert_eq!(missing.cause, Cause::Missing);
    }

    #[test]
    fn a_pool_that_is_open_takes_nothing_back_from_another_host() {
        register();
        let address = provide("memory://continued?size=64M").unwrap();
        let text = address.to_string();
        let bucket = address.bucket(false).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let device = runtime.block_on(opening::device_of(&*bucket, &Options::default())).unwrap().0;
        let again = || OpenOptions::read_write().continuing().open_device(&text);
        // It was never open here.
        assert_eq!(again().unwrap_err().cause, Cause::TakenOver);
        let own = OpenOptions::read_write().open_device(&text).unwrap();
        block_on(own.write(0, IoBuf::zeroed(4096))).unwrap();
        block_on(own.flush()).unwrap();
        drop(own);
        drop(again().unwrap());
        let before = held(device).unwrap();
        // Another host opens it, and writes nothing.
        drop(ObjectDevice::open(Arc::clone(&bucket), Mode::Write, Options::default()).unwrap());
        is_held(device, before);
        assert_eq!(again().unwrap_err().cause, Cause::TakenOver);
        // An import takes it over.
        drop(OpenOptions::read_write().open_device(&text).unwrap());
        again().unwrap();
    }
}
