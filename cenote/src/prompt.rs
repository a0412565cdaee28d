//! Asking for a secret: on a terminal without echo, otherwise the first line of the standard input.

#![allow(unsafe_code, reason = "signals and the terminal")]

use std::io::{IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use anyhow::{Context, Result, ensure};
use server::api::Secret;

/// Longest line that is taken, in bytes: twice the longest passphrase.
const MAX_BYTES: usize = 1024;

/// Shows `question` (on a terminal) and reads one line, without its end.
pub fn secret(question: &str) -> Result<Secret> {
    let stdin = std::io::stdin();
    let terminal = stdin.is_terminal();
    let _quiet = if terminal {
        eprint!("{question}");
        std::io::stderr().flush()?;
        Some(NoEcho::begin(stdin.as_raw_fd(), libc::ECHO)?)
    } else {
        None
    };
    let mut line = read(MAX_BYTES + 1, Some(b'\n')).context("cannot read the passphrase")?;
    if terminal {
        eprintln!();
    }
    ensure!(!line.is_empty(), "no passphrase was given");
    ensure!(line.len() <= MAX_BYTES, "the passphrase is longer than {MAX_BYTES} bytes");
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(line.into())
}

/// Reads standard input up to so many bytes, or to the end of a line. Byte by byte, as a buffer of the
/// standard library would keep a copy.
pub fn read(most: usize, end: Option<u8>) -> std::io::Result<Vec<u8>> {
    // One piece of memory, of which no copy is left behind.
    let mut bytes = Vec::with_capacity(most);
    let mut byte = [0];
    while bytes.len() < most && (end.is_none() || bytes.last().copied() != end) {
        match rustix::io::read(std::io::stdin(), &mut byte) {
            Ok(0) => break,
            Ok(_) => bytes.push(byte[0]),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

/// A terminal that shows nothing of what is typed, until dropped. Ctrl-C too leaves it as it was.
pub struct NoEcho {
    terminal: i32,
    before: Box<libc::termios>,
    handlers: Vec<(i32, libc::sigaction)>,
}

/// What a signal that ends the program restores; null when there is nothing.
static BEFORE: AtomicPtr<libc::termios> = AtomicPtr::new(ptr::null_mut());

/// Restores the terminal. The signal then ends the program, since its handler was for one time only.
extern "C" fn restore(signal: libc::c_int) {
    let before = BEFORE.load(Ordering::Acquire);
    if !before.is_null() {
        // SAFETY: the settings live as long as the pointer is set. Both calls may be made from a signal
        // handler.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, before) };
    }
    // SAFETY: raising a signal has no preconditions.
    unsafe { libc::raise(signal) };
}

impl NoEcho {
    /// Takes these local modes away: `ECHO`, and `ICANON` and `ISIG` where each key counts.
    pub fn begin(terminal: i32, modes: libc::tcflag_t) -> Result<Self> {
        // SAFETY: termios is plain integers, for which zeroes are a valid value.
        let mut before: Box<libc::termios> = Box::new(unsafe { std::mem::zeroed() });
        // SAFETY: `before` lives through the call; the descriptor is the process's standard input.
        let got = unsafe { libc::tcgetattr(terminal, &mut *before) };
        ensure!(got == 0, "cannot turn off the terminal's echo: {}", std::io::Error::last_os_error());
        let mut quiet = *before;
        quiet.c_lflag &= !modes;
        BEFORE.store(&mut *before, Ordering::Release);
        let handlers = [libc::SIGINT, libc::SIGTERM].map(|signal| (signal, handle_once(signal)));
        let guard = Self { terminal, before, handlers: handlers.to_vec() };
        // SAFETY: as above.
        let set = unsafe { libc::tcsetattr(terminal, libc::TCSAFLUSH, &quiet) };
        ensure!(set == 0, "cannot turn off the terminal's echo: {}", std::io::Error::last_os_error());
        Ok(guard)
    }
}

/// Has a signal handled by [`restore`], once. What was done with it before.
fn handle_once(signal: i32) -> libc::sigaction {
    // SAFETY: sigaction is plain data, for which zeroes are a valid value (an empty mask, the default
    // action).
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    new.sa_sigaction = restore as extern "C" fn(libc::c_int) as usize;
    new.sa_flags = libc::SA_RESETHAND;
    // SAFETY: both live through the call, and the handler does only what a handler may.
    unsafe { libc::sigaction(signal, &new, &mut old) };
    old
}

impl Drop for NoEcho {
    fn drop(&mut self) {
        for (signal, old) in &self.handlers {
            // SAFETY: `old` is what sigaction gave for this signal.
            unsafe { libc::sigaction(*signal, old, ptr::null_mut()) };
        }
        BEFORE.store(ptr::null_mut(), Ordering::Release);
        // SAFETY: `before` is what tcgetattr gave for this descriptor.
        unsafe { libc::tcsetattr(self.terminal, libc::TCSAFLUSH, &*self.before) };
    }
}
