//! A filesystem of the host on a volume, for the image of a guest.
//!
//! # The idea
//! The volume becomes a block device of this machine, gets ext4, and is mounted; the image on it is the
//! guest's disk. A kernel with ublk or an NBD client makes the device by itself (`cenote attach`). Where it
//! has neither, QEMU's storage daemon shows the export as a file (FUSE), and a loop device is made of the
//! file: two more layers below ext4, of which the notes of the runs tell.
//!
//! | part | comes from | goes by |
//! |---|---|---|
//! | block device of the volume | the daemon that serves it | the daemon, as soon as the volume goes |
//! | file of the export | `qemu-storage-daemon` | its end |
//! | loop device | `losetup`, with direct I/O where that keeps what is written | the end of its mount: `losetup -d` while it is in use asks for that |
//! | filesystem | `mkfs.ext4`, `mount` | `umount` |
//!
//! All of it needs root. Parts go in the opposite order, also where a later one could not be made. Of a lab
//! that was killed the mount remains, and the next lab takes it away with the folder.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::machine::goes_with_this_process;
use crate::error::{Error, Result};
use crate::export::Export;
use crate::subprocess::output;

/// The programs that it needs where the kernel makes no block device of a volume.
pub(crate) const PROGRAMS: [&str; 5] = ["qemu-storage-daemon", "losetup", "mkfs.ext4", "mount", "umount"];
/// How long the file of an export may take to come, and a filesystem to be free.
const LIMIT: Duration = Duration::from_secs(60);
/// What is written to find out whether a loop device works: 4 MiB, which are several requests.
const PROBE_PAGES: u32 = 1 << 10;
/// Bytes of a page.
const PAGE_BYTES: u32 = 4096;
/// Pages from one that is written to the next one. With the number of pages it has no factor in common.
const PROBE_STEP: u32 = 389;
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);

/// A mounted filesystem on a volume.
#[derive(Debug)]
pub(crate) struct HostFilesystem {
    /// Goes after the mount.
    device: BlockDevice,
    mountpoint: PathBuf,
    is_mounted: bool,
}

/// A volume as a block device of this machine.
#[derive(Debug)]
enum BlockDevice {
    /// The kernel's, which the daemon takes away with the volume.
    Attached(PathBuf),
    /// A loop device of a file that is the export.
    Loop { device: Option<PathBuf>, file: PathBuf, daemon: Child },
}

impl HostFilesystem {
    /// Makes ext4 on the volume behind `uri`, and mounts it in `folder`, which is new. `attached` is the
    /// kernel's block device of it, or why there is none.
    ///
    /// # Errors
    /// What a program says.
    pub(crate) fn make(attached: Result<PathBuf>, uri: &str, folder: &Path) -> Result<Self> {
        fs::create_dir(folder).map_err(Error::file(folder))?;
        let device = match attached {
            Ok(device) => BlockDevice::Attached(device),
            Err(_) => BlockDevice::of_file(uri, folder)?,
        };
        let mountpoint = folder.join("ext4");
        fs::create_dir(&mountpoint).map_err(Error::file(&mountpoint))?;
        let mut filesystem = Self { device, mountpoint, is_mounted: false };
        let device = filesystem.device.path()?;
        output(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(device))?;
        output(Command::new("mount").args(["-t", "ext4"]).arg(device).arg(&filesystem.mountpoint))?;
        filesystem.is_mounted = true;
        filesystem.device.go_with_the_mount()?;
        Ok(filesystem)
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.mountpoint
    }
}

impl Drop for HostFilesystem {
    fn drop(&mut self) {
        let began = Instant::now();
        // A guest that was just killed may hold its image for a moment.
        while self.is_mounted && began.elapsed() < LIMIT {
            self.is_mounted = output(Command::new("umount").arg(&self.mountpoint)).is_err();
            if self.is_mounted {
                std::thread::sleep(LOOK);
            }
        }
    }
}

impl BlockDevice {
    /// A loop device of the export's file.
    fn of_file(uri: &str, folder: &Path) -> Result<Self> {
        let unfit = |what: String| Error::Experiment(what);
        let export = Export::parse(uri).map_err(unfit)?;
        let (socket, name) = export
            .socket()
            .ok_or_else(|| Error::Experiment(format!("{uri} has no Unix socket for a block device of it")))?;
        let file = folder.join("export");
        File::create(&file).map_err(Error::file(&file))?;
        let said = folder.join("storage-daemon");
        let log = File::create(&said).map_err(Error::file(&said))?;
        // A comma within a value is doubled.
        let of = |text: &str| text.replace(',', ",,");
        let node = format!(
            "driver=nbd,node-name=volume,export={},server.type=unix,server.path={},discard=unmap,\
             cache.direct=on",
            of(name),
            of(&socket.display().to_string())
        );
        let export = format!(
            "type=fuse,id=file,node-name=volume,mountpoint={},writable=on,growable=off",
            of(&file.display().to_string())
        );
        let mut command = Command::new("qemu-storage-daemon");
        command.args(["--blockdev", &node, "--export", &export]);
        // Ctrl-C is for the lab, which ends it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        goes_with_this_process(&mut command);
        let program = "qemu-storage-daemon".to_owned();
        let daemon = command.spawn().map_err(|error| Error::Missing { program, error })?;
        let mut made = Self::Loop { device: None, file: file.clone(), daemon };
        made.wait_for_file(&said)?;
        for direct in ["on", "off"] {
            made.go_with_the_mount()?;
            let mut command = Command::new("losetup");
            command.arg(format!("--direct-io={direct}")).args(["-f", "--show"]).arg(&file);
            let looped = PathBuf::from(output(&mut command)?.trim());
            if let Self::Loop { device, .. } = &mut made {
                *device = Some(looped.clone());
            }
            if keeps_what_is_written(&looped, &file).map_err(Error::file(&looped))? {
                return Ok(made);
            }
        }
        Err(unfit(format!("a loop device of {uri} has other bytes than those that were written to it")))
    }

    /// Waits until the file has the size of the volume.
    fn wait_for_file(&mut self, said: &Path) -> Result<()> {
        let Self::Loop { file, daemon, .. } = self else { return Ok(()) };
        let began = Instant::now();
        while fs::metadata(&*file).map_or(0, |it| it.len()) == 0 {
            let has_ended = matches!(daemon.try_wait(), Ok(Some(_)));
            if has_ended || began.elapsed() > LIMIT {
                let words = fs::read_to_string(said).unwrap_or_default();
                let command = "qemu-storage-daemon".to_owned();
                let output = format!("it shows no file of the volume: {}", words.trim());
                return Err(Error::Failed { command, output });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Has the kernel give up a loop device when it is not in use any more.
    fn go_with_the_mount(&mut self) -> Result<()> {
        match self {
            Self::Loop { device, .. } => match device.take() {
                Some(device) => output(Command::new("losetup").arg("-d").arg(device)).map(drop),
                None => Ok(()),
            },
            Self::Attached(_) => Ok(()),
        }
    }

    fn path(&self) -> Result<&Path> {
        let device = match self {
            Self::Attached(device) => Some(device),
            Self::Loop { device, .. } => device.as_ref(),
        };
        device.map(PathBuf::as_path).ok_or_else(|| Error::Experiment("there is no loop device".into()))
    }
}

/// Whether the file has what is written to its loop device, which is overwritten.
///
/// Linux 6.18 writes bytes to wrong places there when a loop device does direct I/O to a file of FUSE. It does
/// so where pages that follow one another in a request do not in memory. Pages that were written in order may
/// lie in one piece by chance, so they are written in another order.
fn keeps_what_is_written(device: &Path, file: &Path) -> io::Result<bool> {
    let page = |number: u32| -> Vec<u8> {
        let words = number * (PAGE_BYTES / 4)..(number + 1) * (PAGE_BYTES / 4);
        words.flat_map(u32::to_le_bytes).collect()
    };
    let device = File::options().write(true).open(device)?;
    for step in 0..PROBE_PAGES {
        let number = step * PROBE_STEP % PROBE_PAGES;
        device.write_all_at(&page(number), u64::from(number * PAGE_BYTES))?;
    }
    device.sync_all()?;
    let mut found = vec![0; (PROBE_PAGES * PAGE_BYTES) as usize];
    File::open(file)?.read_exact(&mut found)?;
    Ok(found.chunks_exact(PAGE_BYTES as usize).zip(0..).all(|(found, number)| found == page(number)))
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        let _ = self.go_with_the_mount();
        if let Self::Loop { daemon, .. } = self {
            // By its own end, which takes the file's mount away.
            if let Some(id) = i32::try_from(daemon.id()).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
            }
            let _ = daemon.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, make_image};
    use super::*;
    use crate::size::Size;
    use crate::subprocess::is_program;

    /// Needs root, loop devices, FUSE and QEMU's programs; `CENOTE_SKIP=fuse` leaves it out.
    #[test]
    fn an_image_lies_on_ext4_on_a_volume_and_nothing_is_left_of_it() {
        if testkit::skipped("fuse", "an image on ext4 on a volume") {
            return;
        }
        let missing: Vec<_> =
            PROGRAMS.iter().chain(&["qemu-nbd", "qemu-img"]).filter(|it| !is_program(it)).collect();
        assert!(missing.is_empty(), "{missing:?} are missing: install them, or set CENOTE_SKIP=fuse");
        let folder = tempfile::tempdir().unwrap();
        let (volume, socket) = (folder.path().join("volume"), folder.path().join("nbd"));
        File::create(&volume).unwrap().set_len(256 << 20).unwrap();
        let mut server = Command::new("qemu-nbd")
            .args(["-t", "-f", "raw", "-x", "tank/v", "--discard=unmap", "-k"])
            .args([&socket, &volume])
            .spawn()
            .unwrap();
        let began = Instant::now();
        while !socket.exists() {
            assert!(began.elapsed() < LIMIT && server.try_wait().unwrap().is_none(), "no NBD server");
            std::thread::yield_now();
        }
        let uri = format!("nbd+unix:///tank/v?socket={}", socket.display());
        let loops = || output(Command::new("losetup").arg("-a")).unwrap();
        let place = folder.path().join("host");
        let no_device = Err(Error::Experiment("this kernel makes none".into()));
        let made = HostFilesystem::make(no_device, &uri, &place).map(|filesystem| {
            let file = place.join("export").display().to_string();
            let image = filesystem.path().join("disk.img");
            make_image(Format::Qcow2, &image, Size(64 << 20)).unwrap();
            let checked =
                output(Command::new("qemu-img").args(["check", "-f", "qcow2"]).arg(&image)).unwrap();
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
            (
                checked,
                mounts.contains(&filesystem.path().display().to_string()),
                loops().contains(&file),
                file,
            )
        });
        let _ = server.kill();
        server.wait().unwrap();
        let (checked, is_mounted, has_loop, file) = made.unwrap();
        assert!(checked.contains("No errors") && is_mounted && has_loop, "{checked} {is_mounted} {has_loop}");
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(&place.display().to_string()) && !loops().contains(&file), "{mounts}");
    }
}
