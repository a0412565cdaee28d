//! Mounts without requests, which share one thread.
//!
//! A machine may have thousands of mounts, most of them idle. The last thread of a mount that had no request
//! for a while *parks* the mount and ends. One thread of the process waits for all parked mounts together.
//! When a request comes, it takes the mount out and begins a thread for it, and it never answers anything
//! itself. So mounts with requests share nothing: a request that waits delays none of another mount.
//!
//! The end of a connection wakes a mount as a request does; the thread that begins then ends the session.
//! Where no thread can begin (a limit of threads or memory), that is tried again ([`AGAIN`]).
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `parked` | which mounts wait; held for a few lines | taken alone |

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use device::IgnorePoison;
use rustix::event::{Timespec, epoll};

use super::connection::Device;

/// After this time a thread that could not begin is tried again.
const AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Events that are taken at once.
const EVENTS: usize = 64;
/// The thread only begins others.
const STACK_BYTES: usize = 256 << 10;

/// Begins a thread for a mount; tried again where it fails.
pub type Wake = Box<dyn Fn() -> io::Result<()> + Send>;

struct Parked {
    device: Device,
    wake: Wake,
}

/// The parked mounts and the thread that waits for them.
#[derive(Clone)]
pub struct Idle {
    epoll: Arc<OwnedFd>,
    parked: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    mounts: HashMap<u64, Parked>,
    /// Numbers are not used again, so that no event is taken for that of another mount.
    next: u64,
}

impl Idle {
    /// That of this process, which begins with the first mount.
    ///
    /// # Errors
    /// It cannot begin; the next call tries again.
    pub fn of_the_process() -> io::Result<Self> {
        static OF_THE_PROCESS: OnceLock<Idle> = OnceLock::new();
        static BEGINS: Mutex<()> = Mutex::new(());
        let _begins = BEGINS.lock().ignore_poison();
        match OF_THE_PROCESS.get() {
            Some(idle) => Ok(idle.clone()),
            None => {
                let idle = Self::begin()?;
                Ok(OF_THE_PROCESS.get_or_init(|| idle).clone())
            }
        }
    }

    fn begin() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let idle = Self { epoll: Arc::new(epoll), parked: Arc::default() };
        let waits = idle.clone();
        let thread = thread::Builder::new().name("fuse-idle".into()).stack_size(STACK_BYTES);
        thread.spawn(move || waits.wait_for_ever())?;
        Ok(idle)
    }

    /// Has `wake` called when a request comes on `device` or its connection ends.
    ///
    /// # Errors
    /// The system cannot wait for one more.
    pub fn park(&self, device: &Device, wake: Wake) -> io::Result<()> {
        let number = {
            let mut parked = self.parked.lock().ignore_poison();
            parked.next += 1;
            let number = parked.next;
            parked.mounts.insert(number, Parked { device: Arc::clone(device), wake });
            number
        };
        let data = epoll::EventData::new_u64(number);
        if let Err(error) = epoll::add(&*self.epoll, device.as_fd(), data, epoll::EventFlags::IN) {
            self.take(number);
            return Err(error.into());
        }
        Ok(())
    }

    /// Waits for a mount no longer, if it did.
    pub fn unpark(&self, device: &Device) {
        let same = |other: &Device| std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(device));
        let mut parked = self.parked.lock().ignore_poison();
        let numbers: Vec<u64> =
            parked.mounts.iter().filter(|(_, one)| same(&one.device)).map(|(number, _)| *number).collect();
        let taken: Vec<Parked> = numbers.iter().filter_map(|number| parked.mounts.remove(number)).collect();
        drop(parked);
        for one in taken {
            if let Err(error) = epoll::delete(&*self.epoll, one.device.as_fd()) {
                tracing::debug!(%error, "a mount that is not waited for any more is");
            }
        }
    }

    fn take(&self, number: u64) -> Option<Parked> {
        self.parked.lock().ignore_poison().mounts.remove(&number)
    }

    fn wait_for_ever(&self) {
        let mut again: Vec<Parked> = Vec::new();
        let mut events = Vec::with_capacity(EVENTS);
        let mut has_failed = false;
        loop {
            let limit = (!again.is_empty()).then_some(&AGAIN);
            let waited = epoll::wait(&*self.epoll, rustix::buffer::spare_capacity(&mut events), limit);
            if let Err(error) = waited
                && error != rustix::io::Errno::INTR
            {
                tracing::error!(%error, "cannot wait for requests of idle mounts");
                thread::sleep(std::time::Duration::from_secs(1));
            }
            for event in events.drain(..) {
                let Some(parked) = self.take(event.data.u64()) else { continue };
                // Its own threads wait for it from now on.
                if let Err(error) = epoll::delete(&*self.epoll, parked.device.as_fd()) {
                    tracing::debug!(%error, "an idle mount is waited for twice");
                }
                again.push(parked);
            }
            again.retain(|parked| match (parked.wake)() {
                Ok(()) => false,
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(%error, "a request waits for a thread; check the limits of threads \
                            and memory");
                    }
                    true
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_is_parked_is_woken_once_by_a_request_or_the_end_and_until_a_thread_begins() {
        let idle = Idle::begin().unwrap();
        let (tell, told) = mpsc::channel();
        let park = |name: &'static str, fails: usize| {
            let (near, far) = UnixStream::pair().unwrap();
            let (tell, tries) = (tell.clone(), AtomicUsize::new(0));
            let wake = move || {
                if tries.fetch_add(1, Ordering::Relaxed) < fails {
                    return Err(io::Error::other("no thread"));
                }
                tell.send(name).unwrap();
                Ok(())
            };
            let near = Arc::new(near);
            let device: Device = Arc::<UnixStream>::clone(&near);
            idle.park(&device, Box::new(wake)).unwrap();
            (near, far)
        };
        let (asked, mut asks) = park("asked", 0);
        let (_ended, ends) = park("ended", 0);
        let (_hindered, mut hinders) = park("hindered", 2);
        let (_never, _quiet) = park("never", 0);
        asks.write_all(b"1").unwrap();
        assert_eq!(told.recv().unwrap(), "asked");
        // It is not waited for any more, though there is something to read.
        drop(ends);
        assert_eq!(told.recv().unwrap(), "ended");
        hinders.write_all(b"1").unwrap();
        assert_eq!(told.recv().unwrap(), "hindered");
        assert_eq!(idle.parked.lock().unwrap().mounts.len(), 1);
        // What came before it is parked again counts too.
        let (tell_again, told_again) = mpsc::channel();
        let device: Device = Arc::<UnixStream>::clone(&asked);
        let wake = move || {
            tell_again.send(()).unwrap();
            Ok(())
        };
        idle.park(&device, Box::new(wake)).unwrap();
        told_again.recv().unwrap();
        (&*asked).read_exact(&mut [0]).unwrap();
    }
}
