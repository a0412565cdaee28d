//! Commits what was written to a filesystem before its unmounting is reported: when `umount` returns, the
//! data are safe.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use device::block_on;
use engine::pool::live::LivePool;

/// How often a pool is asked whether it is suspended meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Why what was written is not on disk yet.
#[derive(Debug, thiserror::Error)]
pub enum Uncommitted {
    /// The pool waits for its devices.
    #[error("the pool is suspended")]
    Suspended,
    /// It takes longer than it may.
    #[error("it takes longer than {} s", limit.as_secs())]
    Late {
        /// The time limit.
        limit: Duration,
    },
    /// The pool commits nothing any more.
    #[error("{0}")]
    Stopped(#[from] engine::Error),
    /// There is no thread for it.
    #[error("cannot start a thread for it: {0}")]
    NoThread(#[from] std::io::Error),
}

/// Returns when all that was written so far is on disk: within a limit, if there is one. Blocks the thread.
///
/// # Errors
/// It is not, and why. It may be later.
pub fn commit(live: &Arc<LivePool>, limit: Option<Duration>) -> Result<(), Uncommitted> {
    let begun = Instant::now();
    let (tell, told) = mpsc::channel();
    let committing = Arc::clone(live);
    let wait = move || {
        // The receiver may be gone.
        let _ = tell.send(block_on(committing.make_stable()));
    };
    if live.suspended().is_some() {
        return Err(Uncommitted::Suspended);
    }
    thread::Builder::new().name("commit".into()).stack_size(device::STACK_BYTES).spawn(wait)?;
    loop {
        match told.recv_timeout(LOOK_INTERVAL) {
            Ok(committed) => return Ok(committed?),
            Err(RecvTimeoutError::Disconnected) => return Err(Uncommitted::Suspended),
            Err(RecvTimeoutError::Timeout) if live.suspended().is_some() => {
                return Err(Uncommitted::Suspended);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(limit) = limit.filter(|limit| begun.elapsed() > *limit) {
            return Err(Uncommitted::Late { limit });
        }
    }
}
