//! A session with the kernel: from the mount to the last request.
//!
//! [`fuser`] negotiates capabilities with the kernel.
//! Requests come to threads of our own, and `mountpoint` does the mounting. The session ends when the kernel
//! ends the connection: after the last unmount, also of mounts at other places, and after the last open file
//! is closed.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak, mpsc};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use fuser::{InitFlags, KernelConfig, SessionACL};

use super::THREADS;
use super::channel::{Channel, Waking};
use super::connection::{Device, Life, MAX_DATA_BYTES};
use super::filesystem::Mounted;
use super::freeze::Freezable;
use super::notifier::Notifier;
use super::ring::{self, Missing, Prepared, Rings};
use super::served::Served;

/// A session.
pub struct Session {
    /// Its other end goes when the last thread that answers ends.
    lives: Mutex<mpsc::Receiver<()>>,
    /// Present where requests come through them.
    rings: Option<Arc<Rings>>,
    /// Its connection with the kernel.
    device: Device,
    mounted: Mounted,
    /// What answers from there.
    channel: Mutex<Weak<Channel>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("rings", &self.rings).finish_non_exhaustive()
    }
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
        let kernel = fuser::Session::from_fd(handshake, connection, acl, fuser::Config::default())?;
        if agreed.is_some_and(|agreed| !agreed.load(Ordering::Acquire)) {
            log_without_rings(served, &Missing::NotOffered);
            prepared = None;
        }
        let only_for = match acl {
            SessionACL::All => None,
            _ => Some(rustix::process::geteuid().as_raw()),
        };
        let mounted = Mounted { freezable: Arc::clone(freezable), only_for, waiters: Arc::default() };
        let device: Device = Arc::new(kernel);
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
        let channel = Channel::begin(Arc::clone(&device), mounted.clone(), most, life)?;
        if let Some(rings) = &rings {
            tracing::info!("'{}' is mounted with rings: {}", served.name(), rings.queues());
        }
        Ok(Self { lives: Mutex::new(lives), rings, device, mounted, channel: Mutex::new(channel) })
    }

    /// Goes on with a session that began in another process, or with other threads.
    ///
    /// # Errors
    /// The error of the system.
    pub fn resume(
        freezable: &Arc<Freezable>,
        connection: OwnedFd,
        only_for: Option<u32>,
    ) -> io::Result<Self> {
        if let Some(live) = freezable.served().as_ref().and_then(|served| served.live()) {
            live.remember_unlinked();
        }
        let mounted = Mounted { freezable: Arc::clone(freezable), only_for, waiters: Arc::default() };
        let (sender, lives) = mpsc::channel();
        let life = Arc::new(Life::new(Arc::clone(freezable), sender));
        let device: Device = Arc::new(connection);
        let channel = Channel::begin(Arc::clone(&device), mounted.clone(), THREADS, life)?;
        Ok(Self { lives: Mutex::new(lives), rings: None, device, mounted, channel: Mutex::new(channel) })
    }

    /// The only user who may look in, unless all may.
    pub fn only_for(&self) -> Option<u32> {
        self.mounted.only_for
    }

    /// Has all threads end with what they answer, while the connection goes on. Whether nothing is under way
    /// within the limit.
    pub fn stop(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let _waking = Waking::begin();
        // Not to be kept: the threads have ended when it is gone.
        if let Some(channel) = self.channel.lock().ignore_poison().upgrade() {
            channel.stop();
        }
        if !self.ends_within(limit) {
            return false;
        }
        while !self.mounted.waiters.is_quiet() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Answers requests again after [`Session::stop`].
    ///
    /// # Errors
    /// The error of the system.
    pub fn start_again(&self) -> io::Result<()> {
        let (sender, lives) = mpsc::channel();
        let life = Arc::new(Life::new(Arc::clone(&self.mounted.freezable), sender));
        let channel = Channel::begin(Arc::clone(&self.device), self.mounted.clone(), THREADS, life)?;
        *self.lives() = lives;
        *self.channel.lock().ignore_poison() = channel;
        Ok(())
    }

    /// The rings through which requests come, if there are any.
    pub fn rings(&self) -> Option<&Arc<Rings>> {
        self.rings.as_ref()
    }

    /// Its connection.
    pub fn connection(&self) -> Device {
        Arc::clone(&self.device)
    }

    /// Tells the kernel what it does not know.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(&self.device)
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
