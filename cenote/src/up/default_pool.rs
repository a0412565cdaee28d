//! The pool of `cenote up` without arguments: a mirror of two sparse files with a volume on it, and its
//! filesystem mounted below the same directory.
//!
//! Everything lies in one directory: the files, a lock that one process holds while the pool is up, and the
//! sockets. A second `cenote up` there reports where the first one runs. After a crash `cenote up` opens the
//! pool again, and all data that were promised to clients are there.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use server::api::{
    CreateDataset, CreatePool, DiscoverPools, ImportPool, ListDatasets, ListMounts, ListVolumes, Mount,
    NewDevices, NewLayout, NewVdev, OpenedPool,
};
use server::daemon::Daemon;

use super::host::Host;
use super::{Up, UpArguments};

/// Where it lies, below the working directory.
const DIRECTORY: &str = "cenote";
/// Where it lies when the working directory has something else of that name, as this program's source has.
const OTHER_DIRECTORY: &str = "cenote-data";
const POOL: &str = "tank";
const VOLUME: &str = "tank/vol";
const DISKS: [&str; 2] = ["disk0", "disk1"];
/// Size of each file. They are sparse: what was never written takes no space.
const DISK_BYTES: u64 = 10 << 30;
const VOLUME_BYTES: u64 = 4 << 30;
/// Longest path of a Unix socket.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The directory to use below `working`: one of ours, or an unused one.
fn free_directory(working: &Path) -> PathBuf {
    let usual = working.join(DIRECTORY);
    // A file of that name may well be this program itself.
    let is_free = match fs::read_dir(&usual) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let is_ours = DISKS.iter().any(|disk| usual.join(disk).exists()) || usual.join("lock").exists();
    if !is_free && !is_ours { working.join(OTHER_DIRECTORY) } else { usual }
}

/// Brings the pool up, waits, and takes it down.
pub fn run(daemon: &Arc<Daemon>, arguments: &UpArguments) -> Result<()> {
    let directory = std::path::absolute(free_directory(Path::new("")))
        .context("cannot find out the working directory")?;
    let socket = directory.join("api.sock");
    if socket.as_os_str().len() > MAX_SOCKET_PATH_BYTES {
        bail!(
            "the path {} is too long for a socket; run this in a directory with a shorter path",
            socket.display()
        );
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let _lock = Lock::take(&directory)?;
    let (opened, is_new) = open(daemon, &directory)?;
    let mut warnings = opened.warnings;
    if is_new || is_empty(daemon)? {
        let volume = CreateDataset {
            name: VOLUME.to_owned(),
            volume_bytes: Some(VOLUME_BYTES),
            sparse: true,
            command: Some(format!("zfs create -s -V {}G {VOLUME}", VOLUME_BYTES >> 30)),
            ..CreateDataset::default()
        };
        warnings.extend(daemon.ask(&volume)?.warnings);
    }
    warnings.extend(super::load_keys(daemon, &opened.name)?);
    match super::fuse_missing().filter(|_| !arguments.no_mount) {
        Some(why) => warnings.push(format!("{why}: filesystems are not mounted, only volumes served")),
        None if arguments.no_mount => {}
        None => {
            let changed = daemon.ask(&Mount { pool: Some(opened.name.clone()), ..Mount::default() })?;
            warnings.extend(changed.failed.into_iter().map(|error| error.message));
        }
    }
    let host = Host::start(daemon, &socket, &arguments.tcp)?;
    warnings.extend(daemon.waiting_listeners());
    let up = Up {
        pool: opened.name,
        guid: opened.guid,
        txg: opened.txg,
        readonly: false,
        mounts: daemon.list_mounts(ListMounts {})?,
        volumes: daemon.list_volumes(ListVolumes {})?,
        socket,
        warnings,
    };
    up.show(arguments.json);
    host.wait(daemon)
}

/// Opens the pool, or makes it. Whether it is new.
fn open(daemon: &Arc<Daemon>, directory: &Path) -> Result<(OpenedPool, bool)> {
    let disks: Vec<PathBuf> = DISKS.iter().map(|name| directory.join(name)).collect();
    let altroot = Some(directory.join("mnt"));
    // Its disks may have been replaced by files of other names.
    let search = vec![directory.to_owned()];
    let found = daemon.ask(&DiscoverPools { search: search.clone(), ..DiscoverPools::default() })?;
    if found.iter().any(|pool| pool.name == POOL) {
        let import = ImportPool {
            pool: Some(POOL.to_owned()),
            search,
            // The lock excludes other processes.
            force: true,
            no_mount: true,
            altroot,
            ..ImportPool::default()
        };
        let imported = daemon.ask(&import)?;
        let opened = imported.pools.into_iter().next();
        return Ok((opened.context("cannot import the pool")?, false));
    }
    // Files without a pool: the process that made them ended before it was created.
    for disk in &disks {
        let failed = || format!("cannot make {}", disk.display());
        let file =
            File::options().write(true).create(true).truncate(false).open(disk).with_context(failed)?;
        if file.metadata().with_context(failed)?.len() < DISK_BYTES {
            file.set_len(DISK_BYTES).with_context(failed)?;
        }
    }
    let names: Vec<String> = disks.iter().map(|disk| disk.display().to_string()).collect();
    let create = CreatePool {
        name: POOL.to_owned(),
        devices: NewDevices {
            vdevs: vec![NewVdev { layout: NewLayout::Mirror, class: Default::default(), devices: disks }],
            ..NewDevices::default()
        },
        // Files lie on filesystems whose blocks have 4 KiB.
        properties: vec![("ashift".into(), "12".into())],
        force: true,
        no_mount: true,
        altroot,
        command: Some(format!("zpool create -o ashift=12 {POOL} mirror {}", names.join(" "))),
        ..CreatePool::default()
    };
    Ok((daemon.ask(&create)?, true))
}

/// Whether nothing is in the pool.
fn is_empty(daemon: &Arc<Daemon>) -> Result<bool> {
    let list = ListDatasets { names: vec![POOL.to_owned()], depth: Some(1), ..ListDatasets::default() };
    Ok(daemon.ask(&list)?.entries.len() <= 1)
}

/// Held while the pool is up; names the process that holds it.
struct Lock {
    _file: File,
}

impl Lock {
    fn take(directory: &Path) -> Result<Self> {
        let path = directory.join("lock");
        let failed = || format!("cannot use {}", path.display());
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            bail!(
                "the pool in {} is up already, in process {}; Ctrl-C there takes it down.\n\
                 To use it from here:   export CENOTE_SOCKET='{}'",
                directory.display(),
                holder.trim(),
                directory.join("api.sock").display()
            );
        }
        file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).with_context(failed)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_somebody_else_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = || free_directory(folder.path());
        assert!(directory().ends_with(DIRECTORY));
        fs::create_dir(folder.path().join(DIRECTORY)).expect("a directory");
        assert!(directory().ends_with(DIRECTORY));
        fs::write(folder.path().join(DIRECTORY).join("Cargo.toml"), "").expect("a file");
        assert!(directory().ends_with(OTHER_DIRECTORY));
        fs::write(folder.path().join(DIRECTORY).join("disk1"), "").expect("a file");
        assert!(directory().ends_with(DIRECTORY));
        fs::remove_dir_all(folder.path().join(DIRECTORY)).expect("a directory");
        fs::write(folder.path().join(DIRECTORY), "the program").expect("a file");
        assert!(directory().ends_with(OTHER_DIRECTORY));
    }
}
