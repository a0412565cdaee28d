//! LUKS under a pool: devices that dm-crypt encrypts, and what an encrypted dataset gets its key from.
//!
//! # The idea
//! With `device_luks = "on"` each file of a pool becomes a container of LUKS (`cryptsetup luksFormat`), and
//! the pool is made on what `cryptsetup open` makes of it. The container of a file lies on a loop device,
//! which cryptsetup makes and takes away itself. All of it needs root and the kernel's device mapper: where
//! one of these is missing, [`fault`] says which.
//!
//! The name of an opened container has the experiment's directory in it, as a number. So `lab clean` finds
//! and closes what a lab left that was killed.
//!
//! Keys are random and made for the experiment. They lie in a file of the lab's, which only this user reads,
//! and are never on a command line. What they protect are data of a measurement.
//!
//! Sources: cryptsetup(8), cryptsetup-luksFormat(8).

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::created_files;
use crate::error::{Error, Result};
use crate::subprocess::{is_program, output};

/// Where the kernel has the devices of its device mapper.
pub(super) const MAPPER: &str = "/dev/mapper";
/// The file with the key, in the directory of the devices.
const KEY: &str = "key";
/// Bytes of a raw key of a dataset.
const KEY_BYTES: usize = 32;
/// What LUKS takes of a file for itself: 16 MiB.
pub(super) const HEADER_BYTES: u64 = 16 << 20;
/// How often a container that is busy is tried to be closed, and the pauses between.
const BUSY_TRIES: usize = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// Why there can be no LUKS under pools on this machine.
pub fn fault() -> Option<String> {
    let control = Path::new(MAPPER).join("control");
    let why = if !rustix::process::geteuid().is_root() {
        "only root may open its devices".to_owned()
    } else if !is_program("cryptsetup") {
        "cryptsetup is not on the PATH".to_owned()
    } else if let Err(error) = File::open(&control) {
        format!("this kernel has no device mapper ({}: {error})", control.display())
    } else {
        return None;
    };
    Some(why)
}

/// The file with the key of an experiment, which is made where there is none.
pub(super) fn key(devices: &Path) -> Result<PathBuf> {
    let path = created_files::take(devices, KEY)?;
    let make = || {
        let mut key = [0; KEY_BYTES];
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        file.write_all(&key)
    };
    match make() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(path),
        Err(error) => Err(Error::file(&path)(error)),
        Ok(()) => Ok(path),
    }
}

/// What the names of an experiment's opened containers begin with.
fn prefix(devices: &Path) -> String {
    let bytes = devices.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("cenote-lab-{hash:016x}-")
}

/// Makes a container of a file whose name the pool's name begins, and opens it: the device to use.
pub(super) fn open(devices: &Path, file: &Path) -> Result<PathBuf> {
    let key = key(devices)?;
    let of_file = file.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("{}{of_file}", prefix(devices));
    // A quick way to the key: what is measured is what becomes of the data.
    let words =
        ["-q", "luksFormat", "--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
    output(Command::new("cryptsetup").args(words).arg("--key-file").arg(&key).arg(file))?;
    output(Command::new("cryptsetup").arg("open").arg("--key-file").arg(&key).arg(file).arg(&name))?;
    Ok(Path::new(MAPPER).join(name))
}

/// Closes the containers of a pool of the experiment, or of all its pools.
pub(super) fn close(devices: &Path, pool: Option<&str>) -> Result<()> {
    let prefix = prefix(devices) + &pool.map(|pool| format!("{pool}-")).unwrap_or_default();
    let Ok(entries) = fs::read_dir(MAPPER) else { return Ok(()) };
    let mut first = Ok(());
    for entry in entries.flatten() {
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if name.starts_with(&prefix) {
            first = first.and(close_one(&name));
        }
    }
    first
}

/// Others look at a device that was just closed, as udev does: for so long it is busy.
fn close_one(name: &str) -> Result<()> {
    for _ in 1..BUSY_TRIES {
        if output(Command::new("cryptsetup").args(["close", name])).is_ok() {
            return Ok(());
        }
        thread::sleep(BUSY_PAUSE);
    }
    output(Command::new("cryptsetup").args(["close", name])).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_user_reads_it() {
        let place = tempfile::tempdir().unwrap();
        let devices = place.path().join("devices");
        created_files::make(&devices).unwrap();
        let path = key(&devices).unwrap();
        let made = fs::read(&path).unwrap();
        assert_eq!((made.len(), key(&devices).unwrap()), (KEY_BYTES, path.clone()));
        assert_eq!(fs::read(&path).unwrap(), made);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_ne!(made, [0; KEY_BYTES]);
    }

    #[test]
    fn containers_of_experiments_have_different_names() {
        assert_ne!(prefix(Path::new("/a/devices")), prefix(Path::new("/b/devices")));
        close(Path::new("/no/such/devices"), None).unwrap();
    }
}
