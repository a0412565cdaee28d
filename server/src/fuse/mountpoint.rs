//! The mountpoint of a filesystem: mounting there, finding out whether it is still mounted, unmounting.
//!
//! # Which mount is ours
//! Other programs mount and unmount too: over our mount, in its place, or the same filesystem at another
//! place (a bind mount, a container). So no mount is removed by its path alone: the mount at the path must
//! have the device number that the kernel gave to our filesystem, which no other filesystem has as long as
//! the session lives. A session that ended leaves a mount only if its connection broke; such a mount answers
//! "transport endpoint is not connected", and only such a mount is removed then.
//!
//! Paths are kept as they were at mounting, without symbolic links.
//!
//! # Mounted at other places
//! A filesystem that is unmounted from its mountpoint lives on while it is mounted somewhere else: bound to
//! another directory, or in another mount namespace. To bring it back with the same session, a [`SpareMount`]
//! in no directory is made before. It keeps the filesystem alive as every mount does, so it is dropped when
//! no other mount is found ([`elsewhere`](super::elsewhere)).
//!
//! # Filesystems that hang
//! Another program's filesystem that does not answer would block every call about its paths. So a path is
//! used only after [`answers`] tried it on a thread of its own.
//!
//! # Without root
//! The helper `fusermount3` mounts and unmounts what its user may. It passes the connection through a socket,
//! which it gets as its standard input.

#![allow(unsafe_code, reason = "system calls on mounts, and descriptors that come through a socket")]

mod table;

use std::ffi::{CStr, CString, OsString};
use std::fs::OpenOptions;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use engine::zpl::live::AtimeMode;

pub use self::table::{Row, Table};
use super::detached_mount::{clone_mount, move_mount};
use super::holders::Holders;
use super::{MountError, MountOptions};

/// The helper, and where it finds the number of the socket.
const HELPER: &str = "fusermount3";
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// The type of mounts: the kernel adds the second word to that of FUSE. Programs know this one from the first
/// OpenZFS in userspace.
const KIND: &CStr = c"fuse.zfs";
/// The types of mounts of daemons, also of those that older ones left behind.
const KINDS: [&str; 2] = ["fuse.zfs", "fuse.cenote"];

/// How long a filesystem may take to say anything about itself.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// How often and for how long it is tried to unmount what is busy.
const PASSING: u32 = 5;
const PASSES_WITHIN: Duration = Duration::from_millis(50);

/// Where a filesystem is mounted.
#[derive(Debug, Clone)]
pub struct Mountpoint {
    /// As it was asked for.
    shown: PathBuf,
    /// Without symbolic links.
    at: PathBuf,
    /// The number by which the kernel knows the filesystem.
    device: libc::dev_t,
}

/// The state of a mountpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    Ours,
    Another,
    /// The system does not say.
    Unknown,
}

impl Mountpoint {
    /// Mounts a dataset at a directory. The place, and the connection on which the kernel begins a session.
    ///
    /// # Errors
    /// The error of the system.
    pub fn mount(dataset: &str, at: &Path, options: &MountOptions) -> io::Result<(Self, OwnedFd)> {
        let shown = at.to_owned();
        let at = at.canonicalize()?;
        let connection = match mount_as_root(dataset, &at, options) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                mount_by_helper(dataset, &at, options)?
            }
            mounted => mounted?,
        };
        match device_at(&at) {
            Ok(device) => Ok((Self { shown, at, device }, connection)),
            Err(error) => {
                let _ = unmount_path(&at, true);
                Err(error)
            }
        }
    }

    /// A place that is made up.
    #[cfg(test)]
    pub fn at(at: PathBuf, device: libc::dev_t) -> Self {
        Self { shown: at.clone(), at, device }
    }

    /// Where another daemon mounted it.
    pub fn of_another(shown: PathBuf, at: PathBuf, device: libc::dev_t) -> Self {
        Self { shown, at, device }
    }

    /// The path as it was asked for.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// The number by which the kernel knows the filesystem.
    pub fn device(&self) -> libc::dev_t {
        self.device
    }

    fn lies(&self) -> Lies {
        match device_at(&self.at) {
            Ok(device) if device == self.device => Lies::Ours,
            Ok(_) => Lies::Another,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Lies::Another,
            Err(_) => Lies::Unknown,
        }
    }

    /// Whether the filesystem, whose session lives, is at its place. True where that cannot be found out.
    pub fn is_taken(&self) -> bool {
        self.lies() != Lies::Another
    }

    /// Takes it away, if it is there. False if it is not.
    ///
    /// # Errors
    /// As [`unmount_path`].
    pub fn unmount(&self, lazily: bool) -> Result<bool, MountError> {
        if !self.is_taken() {
            return Ok(false);
        }
        // A program that asks for its figures (`df`) uses it for a moment.
        let mut passing = PASSING;
        loop {
            match unmount_path(&self.at, lazily) {
                Err(MountError::Busy { .. }) if passing > 0 => {
                    passing -= 1;
                    std::thread::sleep(PASSES_WITHIN / PASSING);
                }
                unmounted => return unmounted.map(|()| true),
            }
        }
    }

    /// Whether something else lies over it. False where that cannot be found out.
    pub fn is_covered(&self) -> bool {
        self.lies() == Lies::Another && Table::read().is_ok_and(|table| table.has(self))
    }

    /// Puts one more mount of the filesystem aside.
    ///
    /// # Errors
    /// The error of the system: only root may.
    pub fn aside(&self) -> io::Result<SpareMount> {
        if self.lies() == Lies::Ours {
            return SpareMount::of(&self.at);
        }
        let elsewhere = Table::read()?.whole(self.device);
        SpareMount::of(&elsewhere.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?)
    }

    /// Ends the connection where the filesystem is not at its place. Nothing where the system does not list
    /// connections.
    pub fn abort(&self) {
        let minor = libc::minor(self.device);
        // Not listed: who uses it is told that there is nothing any more.
        let _ = std::fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1");
    }

    /// Takes away what a session left that broke off.
    pub fn clear(&self) {
        if self.lies() == Lies::Ours && is_stale(&self.at) {
            let _ = unmount_path(&self.at, true);
        }
    }
}

/// A mount of a filesystem that is in no directory.
#[derive(Debug)]
pub struct SpareMount(OwnedFd);

impl SpareMount {
    fn of(at: &Path) -> io::Result<Self> {
        let path = CString::new(at.as_os_str().as_bytes())?;
        clone_mount(libc::AT_FDCWD, &path, libc::AT_SYMLINK_NOFOLLOW).map(Self)
    }

    /// One that was just made.
    pub fn new(mount: OwnedFd) -> Self {
        Self(mount)
    }

    /// Puts it at a directory.
    ///
    /// # Errors
    /// The error of the system; the mount is still in no directory then.
    pub fn put(&self, shown: &Path) -> io::Result<Mountpoint> {
        let at = shown.canonicalize()?;
        move_mount(self.0.as_raw_fd(), &at)?;
        let device = device_at(&at)?;
        Ok(Mountpoint { shown: shown.to_owned(), at, device })
    }

    /// Its root directory.
    ///
    /// # Errors
    /// The error of the system.
    pub fn directory(&self) -> io::Result<std::fs::File> {
        std::fs::File::open(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// The result of a call on a thread of its own; `None` if it takes too long.
pub fn within<T: Send + 'static>(limit: Duration, ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::channel();
    let asking = move || {
        // The receiver may be gone.
        let _ = tell.send(ask());
    };
    std::thread::Builder::new().name("fuse-ask".into()).spawn(asking).ok()?;
    told.recv_timeout(limit).ok()
}

/// Whether what is at a path, or on the way to it, says anything.
pub fn answers(at: &Path) -> bool {
    let path = at.to_owned();
    // What the kernel remembers of a path tells nothing of who is to answer the next question.
    let ask = move || path.ancestors().for_each(|path| drop(statfs(path)));
    within(ANSWERS_WITHIN, ask).is_some()
}

/// The number of the filesystem at a path, of which the kernel knows by itself: no session is asked.
pub fn device_at(at: &Path) -> io::Result<libc::dev_t> {
    device_by(at, libc::AT_SYMLINK_NOFOLLOW)
}

/// The same of what a link of `/proc` leads to.
pub fn device_of_link(link: &Path) -> io::Result<libc::dev_t> {
    device_by(link, 0)
}

fn device_by(at: &Path, flags: libc::c_int) -> io::Result<libc::dev_t> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT | flags;
    // SAFETY: an all-zero `statx` is a valid one.
    let mut answer: libc::statx = unsafe { mem::zeroed() };
    // Without other requests, the kernel reports this to every process.
    // SAFETY: `path` is a terminated string, and both live through the call.
    let code = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, 0, &mut answer) };
    match code {
        0 => Ok(libc::makedev(answer.stx_dev_major, answer.stx_dev_minor)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The options of a mount that the kernel keeps: as flags, and as words for the helper.
fn flags(options: &MountOptions) -> (libc::c_ulong, Vec<&'static str>) {
    // Access times are the filesystem's own, and the kernel keeps none; but a program that reads its table,
    // as `mount -o remount` does, is to find what holds.
    let mut all = match options.atime {
        AtimeMode::Off => (libc::MS_NOATIME, vec!["noatime"]),
        // The helper of those who are not root knows no words for the other two.
        AtimeMode::Relative => (libc::MS_RELATIME, Vec::new()),
        AtimeMode::On => (libc::MS_STRICTATIME, Vec::new()),
    };
    for (wanted, flag, word) in [
        (!options.writable, libc::MS_RDONLY, "ro"),
        (!options.exec, libc::MS_NOEXEC, "noexec"),
        (!options.setuid, libc::MS_NOSUID, "nosuid"),
        (!options.devices, libc::MS_NODEV, "nodev"),
        (options.sync_all, libc::MS_SYNCHRONOUS, "sync"),
        (options.sync_names, libc::MS_DIRSYNC, "dirsync"),
    ] {
        if wanted {
            all.0 |= flag;
            all.1.push(word);
        }
    }
    all
}

/// A name as the mount table shows it: a comma would end the option early.
pub fn shown(dataset: &str) -> String {
    dataset.replace(',', "_")
}

fn mount_as_root(dataset: &str, at: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let connection: OwnedFd =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open("/dev/fuse")?.into();
    let mode = at.metadata()?.mode();
    // SAFETY: these have no preconditions and cannot fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let mut data = format!(
        "fd={},rootmode={mode:o},user_id={user},group_id={group},default_permissions",
        connection.as_raw_fd()
    );
    if options.allow_other {
        data += ",allow_other";
    }
    let (source, path, data) =
        (CString::new(shown(dataset))?, CString::new(at.as_os_str().as_bytes())?, CString::new(data)?);
    // SAFETY: all are terminated strings that live through the call.
    let code = unsafe {
        libc::mount(source.as_ptr(), path.as_ptr(), KIND.as_ptr(), flags(options).0, data.as_ptr().cast())
    };
    if code == 0 { Ok(connection) } else { Err(io::Error::last_os_error()) }
}

fn mount_by_helper(dataset: &str, at: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut words = vec![format!("fsname={},subtype=zfs,default_permissions", shown(dataset))];
    words.extend(flags(options).1.into_iter().map(str::to_owned));
    words.extend(options.allow_other.then(|| "allow_other".to_owned()));
    let mut helper = Command::new(HELPER);
    // Ctrl-C goes to the whole group of the terminal; it must not end the helper half-way.
    helper.process_group(0);
    helper.arg("-o").arg(words.join(",")).arg("--").arg(at);
    helper.env(HELPER_SOCKET, "0").stdin(Stdio::from(OwnedFd::from(theirs)));
    let output = helper.stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    // It has the other end of the socket, which must be closed here: so nothing is waited for that does not
    // come.
    drop(helper);
    if output.status.success() {
        return receive(&ours);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = match said.contains("user_allow_other") {
        true => io::ErrorKind::PermissionDenied,
        false => io::ErrorKind::Other,
    };
    Err(io::Error::new(kind, said))
}

/// The descriptor that the other end of a socket sent.
fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    /// Room for one descriptor, aligned as its header must be.
    #[repr(C, align(8))]
    struct Control([u8; 64]);

    let mut byte = [0u8];
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    // SAFETY: an all-zero `msghdr` is a valid one.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the descriptor is open, and what `message` points to lives through the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel filled in `message`; a header that is found in it is within `control`.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_descriptor = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS;
        is_descriptor.then(|| libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned())
    };
    match sent {
        // SAFETY: the kernel opened it for this process, and no other code knows it.
        Some(descriptor) => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        None => Err(io::Error::other(format!("{HELPER} mounted the filesystem but sent no connection"))),
    }
}

/// Tells the kernel what holds for a mount from now on. Only root may.
pub fn remount(at: &Path, options: &MountOptions) -> io::Result<()> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let flags = libc::MS_REMOUNT | flags(options).0;
    // SAFETY: `path` is a terminated string that lives through the call; no other argument is used by a
    // remount.
    let code =
        unsafe { libc::mount(std::ptr::null(), path.as_ptr(), std::ptr::null(), flags, std::ptr::null()) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether every access answers "transport endpoint is not connected". One that does not answer has a daemon
/// who may yet do it.
fn is_stale(at: &Path) -> bool {
    let path = at.to_owned();
    let ask = move || statfs(&path).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN));
    within(ANSWERS_WITHIN, ask).unwrap_or(false)
}

/// Asks a filesystem itself: attributes and names may be known from before.
fn statfs(at: &Path) -> io::Result<()> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    // SAFETY: an all-zero `statfs` is a valid one.
    let mut answer: libc::statfs = unsafe { mem::zeroed() };
    // SAFETY: `path` is a terminated string, and both live through the call.
    match unsafe { libc::statfs(path.as_ptr(), &mut answer) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes away a mount whose daemon is gone: where every access answers "transport endpoint is not connected".
pub fn clear_stale(at: &Path) {
    if !is_stale(at) {
        return;
    }
    // The kernel takes nothing away at the other end of a link.
    let real = at.canonicalize().unwrap_or_else(|_| at.to_owned());
    // Several may lie upon each other.
    for _ in 0..16 {
        if !is_stale(&real) || unmount_path(&real, true).is_err() {
            return;
        }
        tracing::info!(at = %at.display(), "unmounted a mount whose daemon is gone");
    }
}

/// Takes away what daemons left behind that are gone: mounts of this pool's datasets, wherever they are.
pub fn clear_stale_of(pool: &str) {
    let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else { return };
    // Those that were mounted first come first: what is mounted in them goes with them.
    for at in mounts_of(pool, &table) {
        clear_stale(&at);
    }
}

/// Mounts whose daemon is gone, so that every access fails: what is mounted, and where.
pub fn dead_mounts() -> Vec<(String, PathBuf)> {
    let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else { return Vec::new() };
    let mut mounts = mounts_in(&table);
    mounts.retain(|(_, at)| is_stale(at));
    mounts.into_iter().map(|(name, at)| (String::from_utf8_lossy(&name).into_owned(), at)).collect()
}

/// Where datasets of a pool are mounted, by the kernel's table of mounts.
fn mounts_of(pool: &str, table: &str) -> Vec<PathBuf> {
    let is_of_pool = |name: &[u8]| {
        let rest = name.strip_prefix(pool.as_bytes());
        rest.is_some_and(|rest| rest.first().is_none_or(|next| b"/@".contains(next)))
    };
    let mounts = mounts_in(table).into_iter().filter(|(name, _)| is_of_pool(name));
    mounts.map(|(_, at)| at).collect()
}

/// What is mounted by daemons, and where, by the kernel's table of mounts.
fn mounts_in(table: &str) -> Vec<(Vec<u8>, PathBuf)> {
    let mut found = Vec::new();
    for line in table.lines() {
        // The mountpoint is the fifth word; behind a dash come the type and what is mounted.
        let Some((before, behind)) = line.split_once(" - ") else { continue };
        let (Some(at), Some((kind, behind))) = (before.split(' ').nth(4), behind.split_once(' ')) else {
            continue;
        };
        if !KINDS.contains(&kind) {
            continue;
        }
        let dataset = unescaped(behind.split(' ').next().unwrap_or_default());
        found.push((dataset, PathBuf::from(OsString::from_vec(unescaped(at)))));
    }
    found
}

/// A word of the table of mounts, in which blanks and the like are octal numbers.
pub(crate) fn unescaped(word: &str) -> Vec<u8> {
    let number = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&first, later)) = rest.split_first() {
        let escaped = later.get(..3).filter(|_| first == b'\\').and_then(number);
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { later.get(3..).unwrap_or_default() } else { later };
    }
    bytes
}

/// Takes away what is mounted at a path.
fn unmount_path(at: &Path, lazily: bool) -> Result<(), MountError> {
    let failed = |error: String| MountError::Unmount { at: at.to_owned(), error };
    let path = CString::new(at.as_os_str().as_bytes()).map_err(|error| failed(error.to_string()))?;
    // By force the kernel ends the connection, so that no program waits for an answer.
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH | libc::MNT_FORCE } else { 0 };
    // SAFETY: `path` is a terminated string that lives through the call.
    if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EBUSY) => return Err(MountError::Busy { at: at.to_owned(), holders: Holders::default() }),
        Some(libc::EPERM) => {}
        _ => return Err(failed(error.to_string())),
    }
    // Not root: the helper may unmount what its user mounted.
    let mut helper = Command::new(HELPER);
    helper.process_group(0);
    helper.arg("-u").args(lazily.then_some("-z")).arg("--").arg(at);
    let output = helper.output().map_err(|error| failed(format!("{HELPER}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // Unmounted meanwhile.
    if said.contains("not found in /etc/mtab") {
        return Ok(());
    }
    if said.contains("busy") {
        Err(MountError::Busy { at: at.to_owned(), holders: Holders::default() })
    } else {
        Err(failed(said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_up_is_left() {
        let (_held, waits) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(1), move || waits.recv().is_ok()), None);
        assert_eq!(within(Duration::from_secs(60), || 5), Some(5));
    }
}
