//! Mapped memory whose file a client may make shorter: an access beyond the file's end must not end the
//! daemon.
//!
//! # The idea
//! A page beyond the end of a mapped file cannot be accessed: the kernel sends SIGBUS. Guest memory belongs
//! to the client, which can truncate its file at any time. Other backends trust their clients in this. Here
//! a handler of SIGBUS looks whether the address lies in a [`Guard`]ed mapping. If so, it puts anonymous
//! memory in place of the mapping and marks the guard, and the access goes on. Who uses the mapping looks at
//! the mark after each batch of accesses, and before what was read is used: see [`Guard::is_intact`]. Any
//! other address is left to the handler that was there before.
//!
//! Mappings are in a table of fixed size that the handler can read without a lock.

#![allow(unsafe_code, reason = "a handler of a signal")]

use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use device::IgnorePoison;

/// Mappings that can be guarded at once.
const MOST: usize = 4096;

/// One mapping. Free where `start` is 0.
struct Slot {
    start: AtomicUsize,
    len: AtomicUsize,
    is_broken: AtomicBool,
}

static SLOTS: [Slot; MOST] = [const {
    Slot { start: AtomicUsize::new(0), len: AtomicUsize::new(0), is_broken: AtomicBool::new(false) }
}; MOST];

/// Held while a slot is taken.
static TAKING: Mutex<()> = Mutex::new(());

/// What was done with SIGBUS before. Set before the handler can be called.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A guarded mapping, until it is dropped, which must be before the mapping goes.
#[derive(Debug)]
pub(super) struct Guard(usize);

impl Guard {
    /// Guards a mapping that is there.
    ///
    /// # Errors
    /// There are too many, or the handler cannot be installed.
    pub fn new(start: *mut u8, len: usize) -> io::Result<Self> {
        install()?;
        let _taking = TAKING.lock().ignore_poison();
        let free = SLOTS.iter().position(|slot| slot.start.load(Ordering::Relaxed) == 0);
        let (Some(number), Some(slot)) = (free, free.and_then(|free| SLOTS.get(free))) else {
            return Err(io::Error::other("too many regions of guest memory"));
        };
        slot.len.store(len, Ordering::Relaxed);
        slot.is_broken.store(false, Ordering::Relaxed);
        slot.start.store(start.addr(), Ordering::Release);
        Ok(Self(number))
    }

    /// Whether all that was accessed until now was there.
    pub fn is_intact(&self) -> bool {
        SLOTS.get(self.0).is_some_and(|slot| !slot.is_broken.load(Ordering::Acquire))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(slot) = SLOTS.get(self.0) {
            slot.start.store(0, Ordering::Release);
        }
    }
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut is_installed = INSTALLED.lock().ignore_poison();
    if *is_installed {
        return Ok(());
    }
    // SAFETY: the structures are plain numbers that the calls fill or read, and the handler keeps to what a
    // handler may do. What was there before is known before the handler can need it.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        let _ = BEFORE.set(before);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGBUS, &raw const action, null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    *is_installed = true;
    Ok(())
}

/// Puts memory where a mapping's file has none any more.
extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure, and for SIGBUS it has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    for slot in &SLOTS {
        let start = slot.start.load(Ordering::Acquire);
        let len = slot.len.load(Ordering::Relaxed);
        if start == 0 || !(start..start + len).contains(&address) {
            continue;
        }
        slot.is_broken.store(true, Ordering::Release);
        // SAFETY: a system call, which a handler may make. The mapping is one that a guard has, so it is
        // there, and only ever accessed as memory that others may change at any time. `errno` is put back.
        unsafe {
            let errno = *libc::__errno_location();
            let mapped = libc::mmap(
                std::ptr::with_exposed_provenance_mut(start),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            );
            *libc::__errno_location() = errno;
            if mapped != libc::MAP_FAILED {
                return;
            }
        }
    }
    pass_on(signal, info, context);
}

/// Does what was done before this handler was there.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(before) = BEFORE.get() else { return };
    match before.sa_sigaction {
        // The access is made again, and ends the process then.
        // SAFETY: a system call with a constant.
        libc::SIG_DFL | libc::SIG_IGN => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the flag says that it is a function of this kind.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without the flag it is a function of this kind.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
