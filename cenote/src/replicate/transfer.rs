//! A stream from one side to the other.

use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::side::Side;
use crate::progress::Progress;

/// So much is moved at a time.
const STEP_BYTES: usize = 1 << 20;

/// Sends what these words say from one side, and has it received as these say at the other. The bytes that
/// went through. A bar shows how far it is where a person watches.
pub fn run((from, send): (&Side, &[&str]), (to, receive): (&Side, &[&str]), may_show: bool) -> Result<u64> {
    let is_shown = may_show && std::io::stderr().is_terminal();
    let mut progress = if is_shown { Progress::shown(None) } else { Progress::hidden() };
    if is_shown && let Some(bytes) = estimate(from, send) {
        progress.expect(bytes);
    }
    progress.name(send.last().copied().unwrap_or_default());
    let mut sender = from.start(send, Stdio::null(), Stdio::piped())?;
    let mut receiver = match to.start(receive, Stdio::piped(), Stdio::null()) {
        Ok(receiver) => receiver,
        Err(error) => {
            // The sender ends when nothing takes its stream.
            drop(sender.child.stdout.take());
            let _ = sender.end();
            return Err(error);
        }
    };
    let (output, input) = (sender.child.stdout.take(), receiver.child.stdin.take());
    let (mut output, mut input) = match (output, input) {
        (Some(output), Some(input)) => (output, input),
        _ => bail!("a command has no pipe"),
    };
    let mut buffer = vec![0; STEP_BYTES];
    let mut bytes = 0_u64;
    let moved = loop {
        let count = match output.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => break Err(error).context("cannot read the stream"),
        };
        if let Err(error) = buffer.get(..count).map_or(Ok(()), |some| input.write_all(some)) {
            break Err(error).context("the receiver takes no more of the stream");
        }
        bytes += count as u64;
        progress.advance(count as u64);
    };
    // Each of them ends when the other end of its pipe is gone.
    drop(output);
    drop(input);
    let (received, sent) = (receiver.end()?, sender.end()?);
    drop(progress);
    let of_sender = || format!("{}{}", from.prefix(), sent.clone().unwrap_or_default());
    match (received, &sent, moved) {
        (None, None, Ok(())) => Ok(bytes),
        // A stream that breaks off is the sender's fault, whatever the receiver says of it.
        (_, Some(_), Ok(())) => bail!("{}", of_sender()),
        (Some(said), ..) => bail!("{}{said}", to.prefix()),
        (None, Some(_), Err(_)) => bail!("{}", of_sender()),
        (None, None, Err(error)) => Err(error),
    }
}

/// How long the stream will be, where that can be said.
fn estimate(from: &Side, send: &[&str]) -> Option<u64> {
    let (first, rest) = send.split_first()?;
    let words: Vec<&str> = [*first, "-n", "-P"].into_iter().chain(rest.iter().copied()).collect();
    let told = from.print(&words).ok()?;
    told.lines().find_map(|line| line.strip_prefix("size\t")?.parse().ok())
}
