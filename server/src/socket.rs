//! Unix sockets that only their owner may connect to, or that any user may connect to.
//!
//! # Which processes are trusted
//! Keys travel through these sockets, so both sides check their peer. A socket lies in a directory in which
//! no other user can replace it: the directory belongs to its own user or root, and is not writable for
//! others, unless it is sticky as `/tmp` is. A client asks the kernel which process listens: it must belong
//! to the same user or to root. That holds also if another user made the directory first, which has a known
//! name in the temporary directory for users without `$XDG_RUNTIME_DIR`.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::{UnixListener, UnixStream};

/// Where the daemon of this user listens: `$CENOTE_SOCKET`, `/run/cenote/cenote.sock` for root, else under
/// `$XDG_RUNTIME_DIR`, else in a private directory under the temporary directory.
pub fn default_socket() -> PathBuf {
    if let Some(path) = std::env::var_os("CENOTE_SOCKET") {
        return path.into();
    }
    let uid = rustix::process::geteuid().as_raw();
    if uid == 0 {
        return "/run/cenote/cenote.sock".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => Path::new(&dir).join("cenote/cenote.sock"),
        None => std::env::temp_dir().join(format!("cenote-{uid}")).join("cenote.sock"),
    }
}

/// Whether the files of sockets stay, because another process listens on them now.
static FILES_STAY: AtomicBool = AtomicBool::new(false);

/// Whether the files of all sockets of this process stay in place from now on, because another process has
/// them.
pub fn keep_files(are_anothers: bool) {
    FILES_STAY.store(are_anothers, Ordering::Release);
}

/// Removes a socket's file when dropped.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl SocketFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !FILES_STAY.load(Ordering::Acquire) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

/// Sockets that listen already, and were another daemon's.
#[derive(Debug, Default)]
pub struct Inherited(Vec<(String, String, OwnedFd)>);

impl Inherited {
    /// The service of Unix sockets, whose places are their paths.
    pub const UNIX: &str = "unix";

    /// One more, of a service at a place.
    pub fn add(&mut self, service: String, place: String, socket: OwnedFd) {
        self.0.push((service, place, socket));
    }

    /// Those of a service at a place.
    pub fn take(&mut self, service: &str, place: &str) -> Vec<OwnedFd> {
        let (taken, rest) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(of, at, _)| of.as_str() == service && at.as_str() == place);
        self.0 = rest;
        let taken: Vec<(String, String, OwnedFd)> = taken;
        taken.into_iter().map(|(_, _, socket)| socket).collect()
    }

    /// The places of a service.
    pub fn places(&self, service: &str) -> Vec<String> {
        let mut places: Vec<String> =
            self.0.iter().filter(|(of, ..)| of == service).map(|(_, place, _)| place.clone()).collect();
        // One with several addresses has a socket for each.
        places.dedup();
        places
    }

    /// The one that listens on this path.
    ///
    /// # Errors
    /// It is no socket that can be used.
    fn at(&mut self, path: &Path) -> io::Result<Option<(UnixListener, SocketFile)>> {
        let place = path.to_str().unwrap_or_default();
        let Some(socket) = self.take(Self::UNIX, place).into_iter().next() else { return Ok(None) };
        let listener = std::os::unix::net::UnixListener::from(socket);
        listener.set_nonblocking(true)?;
        Ok(Some((UnixListener::from_std(listener)?, SocketFile(path.to_owned()))))
    }

    /// Listens on `path` as [`listen`] does, on the socket that is there already where there is one.
    ///
    /// # Errors
    /// As those of [`listen`].
    pub async fn listen(&mut self, path: &Path) -> io::Result<(UnixListener, SocketFile)> {
        match self.at(path)? {
            Some(there) => Ok(there),
            None => listen(path).await,
        }
    }

    /// The same as [`listen_to_anyone`] does.
    ///
    /// # Errors
    /// As those of [`listen_to_anyone`].
    pub async fn listen_to_anyone(&mut self, path: &Path) -> io::Result<(UnixListener, SocketFile)> {
        match self.at(path)? {
            Some(there) => Ok(there),
            None => listen_to_anyone(path).await,
        }
    }
}

/// Whether the process at the other end is one of this user or of root.
pub fn is_trusted(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own_user())
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Connects to `path`, where a process of this user or of root listens.
///
/// # Errors
/// `PermissionDenied` when another user's does; what the system says.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path).await?;
    if is_trusted(&stream) {
        return Ok(stream);
    }
    let message = format!(
        "a process of another user listens on {}, and nothing is sent to it; set CENOTE_SOCKET to a path in \
         a directory of your own",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// Whether only this user and root can replace files in a directory.
fn require_private(directory: &Path) -> io::Result<()> {
    let metadata = directory.metadata()?;
    let refuse = |why: &str| {
        let message = format!("will not listen in {}: {why}", directory.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    };
    if metadata.uid() != own_user() && metadata.uid() != 0 {
        return refuse(
            "the directory belongs to another user; set CENOTE_SOCKET to a path in a directory of \
            your own",
        );
    }
    let (others_write, sticky) = (metadata.mode() & 0o022 != 0, metadata.mode() & libc::S_ISVTX != 0);
    if others_write && !sticky {
        return refuse("other users may write to the directory; chmod 700 it");
    }
    Ok(())
}

/// Listens on `path` (mode 0600), making its directory where needed: closed to other users, but for root's,
/// in which there may be sockets that anyone may use. A file left by a process that died is replaced.
///
/// # Errors
/// Another process listens there, the directory is not private, or the system refuses.
pub async fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    listen_with_mode(path, 0o600).await
}

/// The same with a socket that anyone may connect to who can get to its directory.
///
/// # Errors
/// As those of [`listen`].
pub async fn listen_to_anyone(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    listen_with_mode(path, 0o666).await
}

async fn listen_with_mode(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    let mode_of_directory = if own_user() == 0 { 0o755 } else { 0o700 };
    std::fs::DirBuilder::new().recursive(true).mode(mode_of_directory).create(directory)?;
    require_private(directory)?;
    if path.exists() {
        if UnixStream::connect(path).await.is_ok() {
            let message = format!("another process already listens on {}", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let file = SocketFile(path.to_owned());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok((listener, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Does `work` as another user, which root can. Credentials are a thread's own.
    #[allow(unsafe_code, reason = "a system call")]
    fn as_another(work: impl FnOnce() + Send + 'static) {
        let as_user = move || {
            // SAFETY: a number is all that this needs.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 12345, 12345, 12345) }, 0);
            work();
        };
        std::thread::spawn(as_user).join().unwrap();
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused_unless_it_is_sticky() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("socket");
        let listen_in = |mode| {
            std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            runtime().block_on(async { listen(&path).await.map(drop) })
        };
        for (mode, fits) in [(0o700, true), (0o755, true), (0o777, false), (0o770, false), (0o1777, true)] {
            let listened = listen_in(mode);
            assert_eq!(listened.is_ok(), fits, "{mode:o}");
            let error = listened.err();
            assert!(error.is_none_or(|error| error.to_string().contains("chmod 700")), "{mode:o}");
        }
    }

    #[test]
    fn a_directory_and_a_listener_of_another_user_are_refused() {
        if own_user() != 0 {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        let theirs = place.path().join("theirs");
        let path = theirs.join("socket");
        let (made, listens) = std::sync::mpsc::channel();
        let at = path.clone();
        as_another(move || {
            std::fs::create_dir(at.parent().unwrap()).unwrap();
            made.send(std::os::unix::net::UnixListener::bind(&at).unwrap()).unwrap();
        });
        let listener = listens.recv().unwrap();
        let error = runtime().block_on(connect(&path)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("another user"), "{error}");
        drop(listener);
        let error = runtime().block_on(async { listen(&path).await.map(drop) }).unwrap_err();
        assert!(error.to_string().contains("the directory belongs to another user"), "{error}");
        // The user's own is trusted, and root's by every user.
        let own = place.path().join("own");
        runtime().block_on(async {
            let (_listener, _file) = listen(&own).await.unwrap();
            connect(&own).await.unwrap();
        });
    }
}
