//! Asking for a secret: on a terminal without echo, otherwise the first line of the standard input.

use std::io::{BufRead, IsTerminal, Write};
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};

/// Longest line that is taken, in bytes: twice the longest passphrase.
const MAX_BYTES: usize = 1024;

/// Shows `question` (on a terminal) and reads one line, without its end.
pub fn secret(question: &str) -> Result<Vec<u8>> {
    let stdin = std::io::stdin();
    let terminal = stdin.is_terminal();
    let _quiet = if terminal {
        eprint!("{question}");
        std::io::stderr().flush()?;
        Some(NoEcho::begin(stdin.as_raw_fd())?)
    } else {
        None
    };
    let mut line = Vec::new();
    let mut input = std::io::Read::take(stdin.lock(), MAX_BYTES as u64 + 1);
    input.read_until(b'\n', &mut line).context("cannot read the passphrase")?;
    if terminal {
        eprintln!();
    }
    ensure!(!line.is_empty(), "no passphrase was given");
    ensure!(line.len() <= MAX_BYTES, "the passphrase is longer than {MAX_BYTES} bytes");
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(line)
}

/// A terminal that shows nothing of what is typed, until dropped.
struct NoEcho {
    terminal: i32,
    before: libc::termios,
}

impl NoEcho {
    fn begin(terminal: i32) -> Result<Self> {
        // SAFETY: termios is plain integers, for which zeroes are a valid value.
        let mut before: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: `before` lives through the call; the descriptor is the process's standard input.
        let got = unsafe { libc::tcgetattr(terminal, &mut before) };
        ensure!(got == 0, "cannot turn off the terminal's echo: {}", std::io::Error::last_os_error());
        let mut quiet = before;
        quiet.c_lflag &= !libc::ECHO;
        // SAFETY: as above.
        let set = unsafe { libc::tcsetattr(terminal, libc::TCSAFLUSH, &quiet) };
        ensure!(set == 0, "cannot turn off the terminal's echo: {}", std::io::Error::last_os_error());
        Ok(Self { terminal, before })
    }
}

impl Drop for NoEcho {
    fn drop(&mut self) {
        // SAFETY: `before` is what tcgetattr gave for this descriptor.
        unsafe { libc::tcsetattr(self.terminal, libc::TCSAFLUSH, &self.before) };
    }
}
