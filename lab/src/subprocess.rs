//! Programs that the lab starts: their output, read as it arrives, up to a limit, and only while the program
//! runs; how they are ended.
//!
//! Each of the two outputs has a thread that reads it to its end. That end may come long after the program's
//! own end, or never: a process that the program started may keep the output open, as the connection that
//! `ssh` leaves behind for the next one (`ControlPersist`) keeps its standard error. So the lab does not wait
//! for these threads. It takes the output that is there within `REST_LIMIT` after the program has ended. A
//! thread whose output stays open stays too, and keeps no more than the limit.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use device::IgnorePoison;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use crate::error::{Error, Result};

/// How long what an ended program said may take to arrive.
const REST_LIMIT: Duration = Duration::from_secs(1);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(5);

/// One output, as far as it was read.
#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
    has_ended: bool,
}

/// Both outputs of a program.
#[derive(Debug)]
pub(crate) struct SubprocessOutput {
    /// Standard output, standard error.
    outputs: [Arc<Mutex<Output>>; 2],
    most: usize,
}

fn look<T>(output: &Mutex<Output>, of: impl FnOnce(&mut Output) -> T) -> T {
    of(&mut output.lock().ignore_poison())
}

impl SubprocessOutput {
    /// Begins to read what a program says, `most` bytes and one more of each output.
    pub(crate) fn of(child: &mut Child, most: usize) -> Self {
        let stdout = child.stdout.take().map(|it| Box::new(it) as Box<dyn Read + Send>);
        let stderr = child.stderr.take().map(|it| Box::new(it) as Box<dyn Read + Send>);
        Self { outputs: [stdout, stderr].map(|from| read(from, most)), most }
    }

    /// Whether its output is too long.
    pub(crate) fn is_too_much(&self) -> bool {
        self.outputs.iter().any(|output| look(output, |output| output.bytes.len() > self.most))
    }

    /// The output of a program that has ended, on standard output and standard error. Where it `succeeded`,
    /// errors are not waited for.
    pub(crate) fn rest(self, succeeded: bool) -> [Vec<u8>; 2] {
        let ended = Instant::now();
        let waited_for = if succeeded { &self.outputs[..1] } else { &self.outputs[..] };
        let is_all = || waited_for.iter().all(|output| look(output, |output| output.has_ended));
        while !is_all() && !self.is_too_much() && ended.elapsed() < REST_LIMIT {
            thread::sleep(LOOK);
        }
        self.outputs.map(|output| look(&output, |output| std::mem::take(&mut output.bytes)))
    }
}

fn read(from: Option<Box<dyn Read + Send>>, most: usize) -> Arc<Mutex<Output>> {
    let output = Arc::new(Mutex::new(Output { bytes: Vec::new(), has_ended: from.is_none() }));
    let Some(from) = from else { return output };
    let of_thread = Arc::clone(&output);
    thread::spawn(move || {
        let mut from = from.take(most as u64 + 1);
        let mut piece = [0; 16 << 10];
        loop {
            match from.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => look(&of_thread, |output| output.bytes.extend_from_slice(&piece[..count])),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        look(&of_thread, |output| output.has_ended = true);
    });
    output
}

/// Whether a program is on the PATH.
pub(crate) fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// Runs a program to its end; what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    // Ctrl-C is for the lab, which ends in order.
    let output = command
        .stdin(Stdio::null())
        .process_group(0)
        .output()
        .map_err(|error| Error::Missing { program, error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Failed { command: words.join(" "), output: said })
}

/// Whether a program has ended; it stays there, and its number with it, until it is waited for.
pub(crate) fn has_ended(child: &Child) -> io::Result<bool> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a process has no number"))?;
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(pid), how)?.is_some())
}

/// Sends a signal to a program that was started in a group of its own, and to the processes that it started.
pub(crate) fn end(child: &Child, signal: Signal) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended just now.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(script: &str, most: usize) -> (SubprocessOutput, bool) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let heard = SubprocessOutput::of(&mut child, most);
        let succeeded = child.wait().unwrap().success();
        (heard, succeeded)
    }

    #[test]
    fn what_was_said_is_told_and_no_more_of_it_than_anybody_would_read() {
        let (whole, succeeded) = heard("echo one; echo two >&2", 1 << 20);
        assert!(!whole.is_too_much());
        assert_eq!(whole.rest(!succeeded), [b"one\n".to_vec(), b"two\n".to_vec()]);
        let (endless, _) = heard("yes | head -c 1000000; exit 1", 4096);
        let [said, _] = endless.rest(false);
        assert_eq!(said.len(), 4097);
    }

    #[test]
    fn nobody_waits_for_whom_a_program_left_behind() {
        let began = Instant::now();
        // Its own session, as a connection that is kept has one.
        let (left, succeeded) = heard("echo said; setsid sleep 30 >/dev/null &", 4096);
        assert_eq!((left.rest(succeeded)[0].as_slice(), succeeded), (&b"said\n"[..], true));
        assert!(began.elapsed() < REST_LIMIT, "errors of what succeeded are nobody's");
        let (left, succeeded) = heard("echo why >&2; setsid sleep 30 & exit 3", 4096);
        assert_eq!((left.rest(succeeded)[1].as_slice(), succeeded), (&b"why\n"[..], false));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
