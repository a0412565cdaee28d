//! A session with the kernel: from the mount to the last request.
//!
//! [`fuser`] negotiates capabilities with the kernel and sends it notifications ([`fuser::Notifier`]).
//! Requests come to threads of our own, and `mountpoint` does the mounting. The session ends when the kernel
//! ends the connection: after the last unmount, also of mounts at other places, and after the last open file
//! is closed.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::Duration;

use device::IgnorePoison;
use fuser::{InitFlags, KernelConfig, Notifier, SessionACL};

use super::THREADS;
use super::channel::Channel;
use super::connection::{Device, Life, MAX_DATA_BYTES};
use super::filesystem::Mounted;
use super::freeze::Freezable;
use super::ring::{self, Missing, Prepared, Rings};
use super::served::Served;

/// A session.
#[derive(Debug)]
pub struct Session {
    /// Its other end goes when the last thread that answers ends.
    lives: Mutex<mpsc::Receiver<()>>,
    /// Present where requests come through them.
    rings: Option<Arc<Rings>>,
    /// The kernel's side.
    kernel: Arc<fuser::Session<Handshake>>,
}

impl Session {
    /// Begins on the connection of a mount, and answers requests out of what is behind `freeze`: through
    /// rings, if they are wanted and the kernel has them.
    ///
    /// # Errors
    /// The error of the system.
    pub fn begin(
        freezable: &Arc<Freezable>,
        connection: OwnedFd,
        acl: SessionACL,
        wants_rings: bool,
    ) -> io::Result<Self> {
        let served = freezable.served().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTCONN))?;
        let served = &served;
        let mut prepared = match wants_rings.then(Prepared::new).transpose() {
            Ok(prepared) => prepared,
            Err(why) => {
                log_without_rings(served, &why);
                None
            }
        };
        let agreed = prepared.is_some().then(Arc::<AtomicBool>::default);
        let handshake = Handshake { freezable: Arc::clone(freezable), rings: agreed.clone() };
        let kernel = Arc::new(fuser::Session::from_fd(handshake, connection, acl, fuser::Config::default())?);
        if agreed.is_some_and(|agreed| !agreed.load(Ordering::Acquire)) {
            log_without_rings(served, &Missing::NotOffered);
            prepared = None;
        }
        let only_for = match acl {
            SessionACL::All => None,
            _ => Some(rustix::process::geteuid().as_raw()),
        };
        let mounted = Mounted { freezable: Arc::clone(freezable), only_for, waiters: Arc::default() };
        let device: Device = Arc::<fuser::Session<Handshake>>::clone(&kernel);
        let mut rings = prepared.as_ref().map(|prepared| Arc::clone(prepared.rings()));
        let (sender, lives) = mpsc::channel();
        let life = Arc::new(Life::new(Arc::clone(freezable), sender));
        if let Some(prepared) = prepared
            && let Err(error) = prepared.start(&device, &mounted, &life)
        {
            if let Err(error) = ring::take_back(&device) {
                tracing::error!(%error, "the kernel waits for rings; unmount '{}' by force", served.name());
            }
            log_without_rings(served, &Missing::NotBegun(error));
            rings = None;
        }
        let most = if rings.is_some() { 1 } else { THREADS };
        Channel::begin(device, mounted, most, life)?;
        if let Some(rings) = &rings {
            tracing::info!("'{}' is mounted with rings: {}", served.name(), rings.queues());
        }
        Ok(Self { lives: Mutex::new(lives), rings, kernel })
    }

    /// The rings through which requests come, if there are any.
    pub fn rings(&self) -> Option<&Arc<Rings>> {
        self.rings.as_ref()
    }

    /// Its connection.
    pub fn connection(&self) -> Device {
        Arc::<fuser::Session<Handshake>>::clone(&self.kernel)
    }

    /// Tells the kernel what it does not know.
    pub fn notifier(&self) -> Notifier {
        self.kernel.notifier()
    }

    fn lives(&self) -> MutexGuard<'_, mpsc::Receiver<()>> {
        self.lives.lock().ignore_poison()
    }

    /// Whether the kernel has ended it.
    pub fn is_finished(&self) -> bool {
        // Nothing is ever sent. Who waits for the end holds the lock.
        match self.lives.try_lock() {
            Ok(lives) => lives.try_recv() == Err(mpsc::TryRecvError::Disconnected),
            Err(_) => false,
        }
    }

    /// Waits for a while until the kernel ends it. Whether it has.
    pub fn ends_within(&self, limit: Duration) -> bool {
        self.lives().recv_timeout(limit) != Err(mpsc::RecvTimeoutError::Timeout)
    }

    /// Waits until the kernel ends it.
    pub fn join(self) {
        let _ = self.lives().recv();
    }
}

fn log_without_rings(served: &Served, why: &Missing) {
    tracing::warn!("'{}' is mounted without rings: {why}", served.name());
}

/// The capabilities that are negotiated when a session begins.
#[derive(Debug)]
struct Handshake {
    freezable: Arc<Freezable>,
    /// Set when the kernel agrees to rings; absent when they are not wanted.
    rings: Option<Arc<AtomicBool>>,
}

impl fuser::Filesystem for Handshake {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let served = self.freezable.served().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTCONN))?;
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
        // Not FUSE_ASYNC_DIO: the kernel would leave pages in its cache that were read while they were
        // written past it.
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
