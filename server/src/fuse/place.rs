//! Where a filesystem is mounted: putting it there, telling whether it still is there, taking it away.
//!
//! # What is ours
//! Others mount and unmount too: above ours, in its place, the same filesystem elsewhere (a bind mount, a container). So nothing is taken away by its path alone: what lies at the place now must have the device
//! number that the kernel gave to ours, which no other filesystem has as long as its session lives. A session that ended leaves a mount only when its connection broke off; that answers
//! "transport endpoint is not connected", and only such a one is taken away then.
//!
//! Paths are kept as they were when it was mounted, without symbolic links.
//!
//! # Without root
//! The helper `fusermount3` mounts and unmounts what its user may. It hands over the connection through a socket, which it gets as its standard input.

use std::ffi::{CString, OsString};
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

use super::{MountError, MountOptions};

/// The helper, and where it finds the number of the socket.
const HELPER: &str = "fusermount3";
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// Where a filesystem is mounted.
#[derive(Debug)]
pub struct Place {
    /// Without symbolic links.
    at: PathBuf,
    /// The number by which the kernel knows the filesystem.
    device: libc::dev_t,
}

/// What lies at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    Ours,
    Another,
    /// The system does not say.
    Unknown,
}

impl Place {
    /// Mounts a dataset at a directory. The place, and the connection on which the kernel begins a session.
    ///
    /// # Errors
    /// What the system says.
    pub fn mount(dataset: &str, at: &Path, options: &MountOptions) -> io::Result<(Self, OwnedFd)> {
        let at = at.canonicalize()?;
        let connection = match mount_as_root(dataset, &at, options) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                mount_by_helper(dataset, &at, options)?
            }
            mounted => mounted?,
        };
        match device_at(&at) {
            Ok(device) => Ok((Self { at, device }, connection)),
            Err(error) => {
                let _ = unmount_path(&at, true);
                Err(error)
            }
        }
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
        unmount_path(&self.at, lazily).map(|()| true)
    }

    /// Takes away what a session left that broke off.
    pub fn clear(&self) {
        if self.lies() == Lies::Ours && is_stale(&self.at) {
            let _ = unmount_path(&self.at, true);
        }
    }
}

/// The number of the filesystem at a path, of which the kernel knows by itself: no session is asked.
fn device_at(at: &Path) -> io::Result<libc::dev_t> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT;
    // SAFETY: an all-zero `statx` is a valid one.
    let mut answer: libc::statx = unsafe { mem::zeroed() };
    // Asked for nothing else, the kernel tells this to everybody.
    // SAFETY: `path` is a terminated string, and both live through the call.
    let code = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, 0, &mut answer) };
    match code {
        0 => Ok(libc::makedev(answer.stx_dev_major, answer.stx_dev_minor)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the kernel itself keeps of a mount: flags, and the same as words for the helper.
fn flags(options: &MountOptions) -> (libc::c_ulong, Vec<&'static str>) {
    // Access times are the filesystem's own; the kernel would only ask for what it is not to do.
    let mut all = (libc::MS_NOATIME, vec!["noatime"]);
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
fn shown(dataset: &str) -> String {
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
    let kind = c"fuse.cenote";
    // SAFETY: all are terminated strings that live through the call.
    let code = unsafe {
        libc::mount(source.as_ptr(), path.as_ptr(), kind.as_ptr(), flags(options).0, data.as_ptr().cast())
    };
    if code == 0 { Ok(connection) } else { Err(io::Error::last_os_error()) }
}

fn mount_by_helper(dataset: &str, at: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut words = vec![format!("fsname={},subtype=cenote,default_permissions", shown(dataset))];
    words.extend(flags(options).1.into_iter().map(str::to_owned));
    words.extend(options.allow_other.then(|| "allow_other".to_owned()));
    let mut helper = Command::new(HELPER);
    // Ctrl-C goes to the whole group of the terminal; it must not end the helper half-way.
    helper.process_group(0);
    helper.arg("-o").arg(words.join(",")).arg("--").arg(at);
    helper.env(HELPER_SOCKET, "0").stdin(Stdio::from(OwnedFd::from(theirs)));
    let output = helper.stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    // It has the other end of the socket, which must be closed here: so nothing is waited for that does not come.
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
        // SAFETY: the kernel opened it for this process, and nobody else knows it.
        Some(descriptor) => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        None => Err(io::Error::other(format!("{HELPER} mounted it, but sent no connection"))),
    }
}

/// Tells the kernel what holds for a mount from now on. Only root may.
pub fn remount(at: &Path, options: &MountOptions) -> io::Result<()> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let flags = libc::MS_REMOUNT | flags(options).0;
    // SAFETY: `path` is a terminated string that lives through the call; no other argument is used by a remount.
    let code =
        unsafe { libc::mount(std::ptr::null(), path.as_ptr(), std::ptr::null(), flags, std::ptr::null()) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether every access answers "transport endpoint is not connected".
fn is_stale(at: &Path) -> bool {
    let Ok(path) = CString::new(at.as_os_str().as_bytes()) else { return false };
    // Asks the file system itself: attributes and names may be known from before.
    // SAFETY: an all-zero `statfs` is a valid one.
    let mut answer: libc::statfs = unsafe { mem::zeroed() };
    // SAFETY: `path` is a terminated string, and both live through the call.
    let code = unsafe { libc::statfs(path.as_ptr(), &mut answer) };
    code != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOTCONN)
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
        tracing::info!(at = %at.display(), "took away a mount whose daemon is gone");
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

/// Where datasets of a pool are mounted, by the kernel's table of mounts.
fn mounts_of(pool: &str, table: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in table.lines() {
        // The mountpoint is the fifth word; behind a dash come the type and what is mounted.
        let Some((before, behind)) = line.split_once(" - ") else { continue };
        let (Some(at), Some(("fuse.cenote", behind))) = (before.split(' ').nth(4), behind.split_once(' '))
        else {
            continue;
        };
        let dataset = unescaped(behind.split(' ').next().unwrap_or_default());
        let rest = dataset.strip_prefix(pool.as_bytes());
        if rest.is_some_and(|rest| rest.first().is_none_or(|next| b"/@".contains(next))) {
            found.push(PathBuf::from(OsString::from_vec(unescaped(at))));
        }
    }
    found
}

/// A word of the table of mounts, in which blanks and the like are octal numbers.
fn unescaped(word: &str) -> Vec<u8> {
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
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: `path` is a terminated string that lives through the call.
    if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EBUSY) => return Err(MountError::Busy { at: at.to_owned() }),
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
    // Unmounted meanwhile, by whoever.
    if said.contains("not found in /etc/mtab") {
        return Ok(());
    }
    if said.contains("busy") { Err(MountError::Busy { at: at.to_owned() }) } else { Err(failed(said)) }
}
