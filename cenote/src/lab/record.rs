//! `cenote lab record`: what clients ask of a volume, into a file that fio replays.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::trace::{Event, Operation, Writer};
use server::api::{TakeTrace, TracedOperation, TracedRequest};

use super::{output_file, progress::interrupted};
use crate::client;
use crate::output::print;

/// How often the daemon is asked.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The longest that it may last: a year.
const MOST_SECONDS: f64 = 31_536_000.0;

/// Records until the time is over, Ctrl-C is pressed, or the file has so many requests.
pub fn run(volume: &str, output: &Path, force: bool, seconds: Option<f64>, most: usize) -> Result<()> {
    if let Some(seconds) = seconds.filter(|seconds| !(0.1..=MOST_SECONDS).contains(seconds)) {
        bail!("--seconds {seconds}: a number from 0.1 to {MOST_SECONDS}; without it, it ends by Ctrl-C");
    }
    output_file::require(output, force)?;
    let stops = interrupted(Some("ended at once; the end of the trace may be missing"))?;
    let ask = |stop| {
        let asked = client::call_running(&TakeTrace { volume: volume.to_owned(), stop })?;
        asked.context("no daemon runs, so there are no volumes to record")
    };
    // The first look begins it; the file is made when that has worked.
    ask(false)?;
    let file = output_file::open(output, force)?;
    let failed = || format!("cannot write {}", output.display());
    let mut file = Writer::new(BufWriter::new(file)).with_context(failed)?;
    let began = Instant::now();
    let (mut written, mut lost) = (0, 0);
    loop {
        std::thread::sleep(LOOK_INTERVAL);
        let is_over = seconds.is_some_and(|seconds| began.elapsed().as_secs_f64() >= seconds);
        let stop = is_over || stops.load(std::sync::atomic::Ordering::Acquire);
        let traced = ask(stop)?;
        lost += traced.lost;
        for request in traced.requests.iter().take(most - written) {
            file.write(&event(request)).with_context(failed)?;
            written += 1;
        }
        if !stop && written == most {
            ask(true)?;
        }
        if stop || written == most {
            break;
        }
    }
    file.into_inner().flush().with_context(failed)?;
    print(&format!("{written} requests in {}\n", output.display()))?;
    if lost > 0 {
        bail!("{lost} more requests came faster than they could be fetched and are missing from it");
    }
    Ok(())
}

fn event(request: &TracedRequest) -> Event {
    let operation = match request.operation {
        TracedOperation::Read => Operation::Read,
        TracedOperation::Write => Operation::Write,
        TracedOperation::Trim => Operation::Trim,
        TracedOperation::Flush => Operation::Sync,
    };
    Event { at_us: request.at_us, operation, offset: request.offset, length: request.length }
}
