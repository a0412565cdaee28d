//! How many threads of a mount wait for requests.
//!
//! # The idea
//! The kernel gives a request to the thread that waits longest. With many that wait this is always one whose memory is in no cache any more, on a processor that sleeps; to wake it takes longer
//! than most answers (with eight threads a client gets a third of the answers that it gets with two). But whoever waits for a device must not hold up others. So there are
//! many threads, of which only [`MOST_READING`] wait for requests: who has answered while so many do *rests*, and is called when the last of them gets a request.
//!
//! A thread that nobody called goes back to reading after a while, where it learns that the mount has ended.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | the counts; for a few lines, and while a thread rests | taken alone |

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Threads that wait for requests: one to go on while another is at work.
const MOST_READING: usize = 2;
/// How long a thread rests.
const REST: Duration = Duration::from_secs(1);

/// The threads of a mount.
#[derive(Debug)]
pub struct Readers {
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Debug)]
struct State {
    /// Threads that wait for requests.
    reading: usize,
    resting: usize,
    /// Of those that rest, so many are to read again.
    called: usize,
    ended: bool,
}

/// A thread is at work, until this is dropped.
#[derive(Debug)]
pub struct Turn<'a>(&'a Readers);

impl Readers {
    /// So many threads, all of which read.
    pub fn new(threads: usize) -> Self {
        let state = State { reading: threads, resting: 0, called: 0, ended: false };
        Self { state: Mutex::new(state), called: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This thread got a request.
    pub fn turn(&self) -> Turn<'_> {
        let mut state = self.state();
        state.reading = state.reading.saturating_sub(1);
        if state.reading == 0 && state.called < state.resting {
            state.called += 1;
            self.called.notify_one();
        }
        Turn(self)
    }

    /// Nobody rests any more: the mount ends.
    pub fn end(&self) {
        self.state().ended = true;
        self.called.notify_all();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if state.reading >= MOST_READING && !state.ended {
            state.resting += 1;
            let until = Instant::now() + REST;
            while state.called == 0 && !state.ended {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                state = self.0.called.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            state.called = state.called.saturating_sub(1);
            state.resting -= 1;
        }
        state.reading += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn counts(readers: &Readers) -> (usize, usize) {
        let state = readers.state();
        (state.reading, state.resting)
    }

    fn wait_until(readers: &Readers, wanted: (usize, usize)) {
        while counts(readers) != wanted {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_rests_is_called_when_the_last_reader_gets_a_request() {
        let readers = Readers::new(3);
        std::thread::scope(|scope| {
            // Two get requests, and one of them has answered: two read again.
            let (first, second) = (readers.turn(), readers.turn());
            assert_eq!(counts(&readers), (1, 0));
            drop(first);
            assert_eq!(counts(&readers), (2, 0));
            // The other one is too many.
            let (tell, told) = mpsc::channel();
            scope.spawn(move || {
                drop(second);
                tell.send(()).unwrap();
            });
            // Whether it still rests, or its time was up, nobody is lost.
            while counts(&readers).0 + counts(&readers).1 < 3 {
                std::thread::yield_now();
            }
            let (_third, _fourth) = (readers.turn(), readers.turn());
            told.recv().unwrap();
            wait_until(&readers, (1, 0));
        });
    }

    #[test]
    fn nobody_rests_when_the_mount_ends() {
        let readers = Readers::new(MOST_READING + 1);
        readers.end();
        drop(readers.turn());
        assert_eq!(counts(&readers), (MOST_READING + 1, 0));
    }
}
