//! A session with the kernel: from the mount to the last request.
//!
//! [`fuser`] mounts, agrees with the kernel on what both can, tells it what it does not know ([`fuser::Notifier`]) and unmounts. Requests come to threads of our own.
//! The session ends when the kernel ends the connection: after the last unmount, when nobody has a file open any more.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use fuser::{InitFlags, KernelConfig, Notifier, SessionACL};

use super::filesystem::Mounted;
use super::served::Served;
use super::{THREADS, channel};

/// Most bytes of a read or write: what the kernel's pages for one request hold.
pub const MAX_DATA_BYTES: usize = 1 << 20;

/// A session.
#[derive(Debug)]
pub struct Session {
    /// The threads that answer.
    guard: JoinHandle<()>,
    /// The kernel's side. Dropping it unmounts.
    kernel: fuser::Session<Handshake>,
}

impl Session {
    /// Mounts at a directory, and answers requests out of `served`.
    ///
    /// # Errors
    /// What the system says.
    pub fn begin(served: &Arc<Served>, at: &Path, config: &fuser::Config) -> io::Result<Self> {
        let kernel = fuser::Session::new(Handshake(Arc::clone(served)), at, config)?;
        let only_for = match config.acl {
            SessionACL::All => None,
            // SAFETY: geteuid has no preconditions and cannot fail.
            _ => Some(unsafe { libc::geteuid() }),
        };
        let mounted = Mounted { served: Arc::clone(served), only_for };
        let device = Arc::new(File::from(kernel.as_fd().try_clone_to_owned()?));
        let guard = thread::Builder::new().name("fuse".into()).spawn(move || {
            answer(device, &mounted);
            mounted.served.release_all();
        })?;
        Ok(Self { guard, kernel })
    }

    /// Tells the kernel what it does not know.
    pub fn notifier(&self) -> Notifier {
        self.kernel.notifier()
    }

    /// Whether the kernel has ended it.
    pub fn is_finished(&self) -> bool {
        self.guard.is_finished()
    }

    /// Waits until the kernel ends it.
    pub fn join(self) {
        if self.guard.join().is_err() {
            tracing::error!("the thread of a FUSE session panicked");
        }
    }
}

/// Answers what comes through the device until the connection ends.
fn answer(device: Arc<File>, mounted: &Mounted) {
    let clones = (1..THREADS).map_while(|_| {
        let clone = channel::another(&device);
        clone.inspect_err(|error| tracing::warn!(%error, "fewer threads for a FUSE session")).ok()
    });
    let mut devices: Vec<_> = clones.map(Arc::new).collect();
    devices.push(device);
    thread::scope(|scope| {
        for (number, device) in devices.into_iter().enumerate() {
            let serve = move || {
                if let Err(error) = channel::serve(device, mounted) {
                    tracing::error!(%error, "a thread of a FUSE session ended");
                }
            };
            let spawned = thread::Builder::new().name(format!("fuse-{number}")).spawn_scoped(scope, serve);
            if let Err(error) = spawned {
                tracing::error!(%error, "a FUSE session has a thread less");
            }
        }
    });
}

/// What is agreed on when a session begins.
#[derive(Debug)]
struct Handshake(Arc<Served>);

impl fuser::Filesystem for Handshake {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_HAS_IOCTL_DIR
            | InitFlags::FUSE_MAX_PAGES;
        // Not FUSE_ASYNC_DIO: the kernel would leave pages in its cache that somebody read while they were written past it.
        if self.0.posix_acls {
            wanted |= InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        }
        // One by one: an older kernel lacks some, and none is needed.
        for flag in wanted.iter() {
            let _ = config.add_capabilities(flag);
        }
        let data = MAX_DATA_BYTES as u32;
        if let Err(most) = config.set_max_readahead(data) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_write(data);
        let _ = config.set_max_background(64);
        if let Some(live) = self.0.live() {
            live.remember_unlinked();
        }
        Ok(())
    }
}
