//! Cache files: which pools are open, and where their devices are, for the next start.
//!
//! The file is OpenZFS's `zpool.cache`: a packed nvlist (XDR) with a pool's configuration under each pool's
//! name, as in the pool's MOS. So OpenZFS's `zdb -U` and `zpool import -c` read it too. By default it lies in
//! a place of our own, so that an installed OpenZFS and this program do not import each other's pools.
//!
//! Pools are added and removed one by one, and everything else in the file stays as it is: a pool that could
//! not be imported because a device was missing is there the next time too. A new file replaces the old one
//! atomically. Processes that change one file take turns by a lock on its directory.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use device::address::{is_address, is_complete};
use ondisk::Guid;
use ondisk::nvlist::{Encoding, NvValue, Nvlist};
use ondisk::vdev_config::{PoolConfig, VdevConfig};
use rustix::fs::FlockOperation;

/// Largest file that is read, in bytes: thousands of pools with hundreds of devices.
const MAX_BYTES: u64 = 64 << 20;
/// The variable that names the default file; empty or `none` for no file.
const VARIABLE: &str = "CENOTE_CACHEFILE";

/// Where the daemon that listens on `socket` keeps its pools by default: as `$CENOTE_CACHEFILE` says, else at
/// the system's place for root and below `$XDG_STATE_HOME` for other users. A daemon on a socket of its own
/// keeps nothing unless asked.
pub fn default_path(socket: &Path) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE) {
        return Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    }
    if std::env::var_os("CENOTE_SOCKET").is_some() || socket != crate::socket::default_socket() {
        return None;
    }
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/cenote/zpool.cache".into());
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.map(|state| state.join("cenote/zpool.cache"))
}

/// A pool in a cache file.
#[derive(Debug, Clone, PartialEq)]
pub struct Cached {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: Guid,
    /// Where its devices were, and their guids.
    pub devices: Vec<(Guid, PathBuf)>,
    /// Its configuration.
    pub config: Nvlist,
}

impl Cached {
    /// A pool of this configuration. `None` if that lacks something.
    pub fn of(name: &str, config: Nvlist) -> Option<Self> {
        let parsed = PoolConfig::parse(config.clone()).ok()?;
        let mut devices = Vec::new();
        if let Some(root) = &parsed.vdev_tree {
            collect(root, &mut devices);
        }
        Some(Self { name: name.to_owned(), guid: parsed.pool_guid?, devices, config })
    }

    /// Where its devices may be now. What else came to such a place must not keep other pools from being
    /// found.
    pub fn places(&self) -> impl Iterator<Item = &Path> {
        self.devices.iter().map(|(_, path)| path.as_path()).filter(|path| {
            is_address(path)
                || path.metadata().is_ok_and(|found| found.is_file() || found.file_type().is_block_device())
        })
    }
}

fn collect(vdev: &VdevConfig, devices: &mut Vec<(Guid, PathBuf)>) {
    let path = vdev.path.as_ref().filter(|_| vdev.children.is_empty());
    if let Some(path) = path.map(|path| Path::new(std::ffi::OsStr::from_bytes(path.as_bytes())))
        && is_complete(path)
    {
        devices.push((vdev.guid, path.to_owned()));
    }
    vdev.children.iter().for_each(|child| collect(child, devices));
}

/// The pools in a file; none where there is no file. Entries that are no pools are left out.
///
/// # Errors
/// The file cannot be read, is too large or is no nvlist.
pub fn read(path: &Path) -> io::Result<Vec<Cached>> {
    let list = read_list(path)?;
    let pools = list.iter().filter_map(|(name, value)| match value {
        NvValue::Nvlist(config) => Cached::of(name.to_str()?, config.clone()),
        _ => None,
    });
    Ok(pools.collect())
}

/// All that is in a file, as it is.
///
/// # Errors
/// As those of [`read`].
pub fn read_list(path: &Path) -> io::Result<Nvlist> {
    let file = match File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Nvlist::new()),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let mut bytes = Vec::new();
    if file.take(MAX_BYTES + 1).read_to_end(&mut bytes)? as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too large for a cache file"));
    }
    if bytes.is_empty() {
        return Ok(Nvlist::new());
    }
    Nvlist::parse(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

/// Enters a pool, in the place of what there was of its name or guid.
///
/// # Errors
/// The file cannot be read or written. Nothing is changed then.
pub fn enter(path: &Path, pool: &Cached) -> io::Result<()> {
    change(path, |list| {
        without(list, pool.guid);
        list.set(pool.name.as_str(), pool.config.clone());
    })
}

/// Removes a pool. A file in which nothing is left goes too, as OpenZFS does it.
///
/// # Errors
/// As those of [`enter`].
pub fn remove(path: &Path, guid: Guid) -> io::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    change(path, |list| without(list, guid))
}

fn without(list: &mut Nvlist, guid: Guid) {
    let of_pool = |value: &NvValue| match value {
        NvValue::Nvlist(config) => config.find_u64("pool_guid") == Some(guid.get()),
        _ => false,
    };
    let names: Vec<String> = list
        .iter()
        .filter(|(_, value)| of_pool(value))
        .filter_map(|(name, _)| name.to_str().map(str::to_owned))
        .collect();
    names.iter().for_each(|name| list.remove(name));
}

fn change(path: &Path, change: impl FnOnce(&mut Nvlist)) -> io::Result<()> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
    let directory = path.parent().ok_or_else(|| invalid("it has no directory"))?;
    let name = path.file_name().ok_or_else(|| invalid("it has no name"))?;
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let lock = File::open(directory)?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
    // A file that cannot be understood holds nothing that could be kept.
    let mut list = match read_list(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Nvlist::new(),
        read => read?,
    };
    change(&mut list);
    if list.is_empty() {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => return lock.sync_all(),
        }
    }
    let bytes = list.encode(Encoding::Xdr).map_err(|error| invalid(&error.to_string()))?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(".new");
    let beside = directory.join(beside);
    let written = write(&beside, &bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // A leftover would only take space.
        let _ = fs::remove_file(&beside);
    }
    written?;
    lock.sync_all()
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // What lies there is left from a process that died, or a link that leads elsewhere.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, guid: u64, disks: &[&str]) -> Cached {
        let leaf = |(id, path): (u64, &&str)| {
            let mut leaf = Nvlist::new();
            leaf.push("type", "file");
            leaf.push("id", id);
            leaf.push("guid", 100 * guid + id);
            leaf.push("path", *path);
            leaf
        };
        let mut root = Nvlist::new();
        root.push("type", "root");
        root.push("id", 0u64);
        root.push("guid", guid);
        root.push("children", (0u64..).zip(disks).map(leaf).collect::<Vec<_>>());
        let mut config = Nvlist::new();
        config.push("version", 5000u64);
        config.push("name", name);
        config.push("state", 0u64);
        config.push("pool_guid", guid);
        config.push("vdev_tree", root);
        Cached::of(name, config).unwrap()
    }

    #[test]
    fn pools_are_entered_replaced_and_removed_one_by_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("below/zpool.cache");
        assert_eq!(read(&path).unwrap(), []);
        let (one, two) = (config("one", 1, &["/d/a", "/d/b"]), config("two", 2, &["/d/c"]));
        enter(&path, &one).unwrap();
        enter(&path, &two).unwrap();
        assert_eq!(read(&path).unwrap(), [one.clone(), two.clone()]);
        assert_eq!(one.devices, [(Guid(100), "/d/a".into()), (Guid(101), "/d/b".into())]);
        // Another name, another place.
        let renamed = config("uno", 1, &["/e/a"]);
        enter(&path, &renamed).unwrap();
        assert_eq!(read(&path).unwrap(), [two, renamed]);
        remove(&path, Guid(2)).unwrap();
        remove(&path, Guid(7)).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        remove(&path, Guid(1)).unwrap();
        assert!(!path.exists());
        remove(&path, Guid(1)).unwrap();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn only_files_and_block_devices_are_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("file"), b"").unwrap();
        fs::create_dir(path("directory")).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let names = ["file", "directory", "socket", "nothing"].map(path);
        let pool = config("one", 1, &names.each_ref().map(String::as_str));
        assert_eq!(pool.places().collect::<Vec<_>>(), [Path::new(&names[0])]);
        drop(socket);
    }

    #[test]
    fn what_is_no_cache_file_is_an_error_until_something_is_entered() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("zpool.cache");
        fs::write(&path, b"not a list of pools at all").unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(read(place.path()).is_err());
        enter(&path, &config("one", 1, &["/d/a"])).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
    }
}
