//! A session with the kernel: from the mount to the last request.
//!
//! [`fuser`] agrees with the kernel on what both can and tells it what it does not know ([`fuser::Notifier`]). Requests come to threads of our own, and mounting is `place`'s.
//! The session ends when the kernel ends the connection: after the last unmount, wherever else it is mounted, and when nobody has a file open any more.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::{InitFlags, KernelConfig, Notifier, SessionACL};

use super::filesystem::Mounted;
use super::gate::Gate;
use super::readers::Readers;
use super::ring::{self, Missing, Prepared, Rings};
use super::served::Served;
use super::{THREADS, channel};

/// Most bytes of a read or write: what the kernel's pages for one request hold.
pub const MAX_DATA_BYTES: usize = 1 << 20;

/// A session.
#[derive(Debug)]
pub struct Session {
    /// The threads that answer.
    guard: JoinHandle<()>,
    /// Its other end goes when they end.
    lives: Mutex<mpsc::Receiver<()>>,
    /// Present where requests come through them.
    rings: Option<Arc<Rings>>,
    /// The kernel's side.
    kernel: fuser::Session<Handshake>,
}

impl Session {
    /// Begins on the connection of a mount, and answers requests out of what is behind `gate`: through rings, if they are wanted and the kernel has them.
    ///
    /// # Errors
    /// What the system says.
    pub fn begin(
        gate: &Arc<Gate>,
        connection: OwnedFd,
        acl: SessionACL,
        wants_rings: bool,
    ) -> io::Result<Self> {
        let served = gate.served().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTCONN))?;
        let served = &served;
        let mut prepared = match wants_rings.then(Prepared::new).transpose() {
            Ok(prepared) => prepared,
            Err(why) => {
                log_without_rings(served, &why);
                None
            }
        };
        let agreed = prepared.is_some().then(Arc::<AtomicBool>::default);
        let handshake = Handshake { gate: Arc::clone(gate), rings: agreed.clone() };
        let kernel = fuser::Session::from_fd(handshake, connection, acl, fuser::Config::default())?;
        if agreed.is_some_and(|agreed| !agreed.load(Ordering::Acquire)) {
            log_without_rings(served, &Missing::NotOffered);
            prepared = None;
        }
        let only_for = match acl {
            SessionACL::All => None,
            // SAFETY: geteuid has no preconditions and cannot fail.
            _ => Some(unsafe { libc::geteuid() }),
        };
        let mounted = Mounted { gate: Arc::clone(gate), only_for, waiters: Arc::default() };
        let device = Arc::new(File::from(kernel.as_fd().try_clone_to_owned()?));
        let mut rings = prepared.as_ref().map(|prepared| Arc::clone(prepared.rings()));
        let (report, begun) = mpsc::channel();
        let (life, lives) = mpsc::channel();
        let guard = thread::Builder::new().name("fuse".into()).spawn(move || {
            let _life: mpsc::Sender<()> = life;
            answer(device, &mounted, prepared, report);
            if let Some(served) = mounted.gate.end() {
                served.release_all();
            }
        })?;
        // A thread that panicked reports nothing.
        match begun.recv().unwrap_or_else(|_| Err(io::Error::other("the session did not begin"))) {
            Ok(()) => {}
            Err(error) => {
                log_without_rings(served, &Missing::NotBegun(error));
                rings = None;
            }
        }
        if let Some(rings) = &rings {
            tracing::info!("'{}' is mounted with rings: {}", served.name(), rings.queues());
        }
        Ok(Self { guard, lives: Mutex::new(lives), rings, kernel })
    }

    /// The rings through which requests come, if there are any.
    pub fn rings(&self) -> Option<&Arc<Rings>> {
        self.rings.as_ref()
    }

    /// Tells the kernel what it does not know.
    pub fn notifier(&self) -> Notifier {
        self.kernel.notifier()
    }

    /// Whether the kernel has ended it.
    pub fn is_finished(&self) -> bool {
        self.guard.is_finished()
    }

    /// Waits for a while until the kernel ends it. Whether it has.
    pub fn ends_within(&self, limit: Duration) -> bool {
        let lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is ever sent.
        lives.recv_timeout(limit) != Err(mpsc::RecvTimeoutError::Timeout)
    }

    /// Waits until the kernel ends it.
    pub fn join(self) {
        if self.guard.join().is_err() {
            tracing::error!("the thread of a FUSE session panicked");
        }
    }
}

/// Answers what comes, through rings or through the device, until the connection ends. Reports when rings serve, or why they do not and the device serves instead.
fn answer(
    device: Arc<File>,
    mounted: &Mounted,
    prepared: Option<Prepared>,
    report: mpsc::Sender<io::Result<()>>,
) {
    thread::scope(|scope| {
        let with_rings = prepared.is_some();
        let begun = prepared.map_or(Ok(()), |prepared| prepared.start(scope, &device, mounted));
        let threads = if with_rings && begun.is_ok() { 1 } else { THREADS };
        if begun.is_err()
            && let Err(error) = ring::take_back(&device)
        {
            tracing::error!(%error, "the kernel waits for rings; unmount by force");
        }
        // The mount is told; it may be gone.
        let _ = report.send(begun);
        let clones = (1..threads).map_while(|_| {
            let clone = channel::another(&device);
            clone.inspect_err(|error| tracing::warn!(%error, "fewer threads for a FUSE session")).ok()
        });
        let mut devices: Vec<_> = clones.map(Arc::new).collect();
        devices.push(device);
        let readers = Arc::<Readers>::default();
        for (number, device) in devices.into_iter().enumerate() {
            let readers = Arc::clone(&readers);
            let serve = move || {
                if let Err(error) = channel::serve(device, mounted, &readers) {
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

fn log_without_rings(served: &Served, why: &Missing) {
    tracing::warn!("'{}' is mounted without rings: {why}", served.name());
}

/// What is agreed on when a session begins.
#[derive(Debug)]
struct Handshake {
    gate: Arc<Gate>,
    /// Set when the kernel agrees to rings; absent when they are not wanted.
    rings: Option<Arc<AtomicBool>>,
}

impl fuser::Filesystem for Handshake {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let served = self.gate.served().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTCONN))?;
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
        if served.posix_acls {
            wanted |= InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        }
        // One by one: an older kernel lacks some, and none is needed.
        for flag in wanted.iter() {
            let _ = config.add_capabilities(flag);
        }
        if let Some(agreed) = &self.rings {
            let is_offered = config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).is_ok();
            agreed.store(is_offered, Ordering::Release);
        }
        let data = MAX_DATA_BYTES as u32;
        if let Err(most) = config.set_max_readahead(data) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_write(data);
        let _ = config.set_max_background(64);
        if let Some(live) = served.live() {
            live.remember_unlinked();
        }
        Ok(())
    }
}
