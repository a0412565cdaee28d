//! Times that a program set for a file that is mapped and changed.
//!
//! Changes of a mapped file reach the daemon when the kernel writes them back, perhaps after a program has
//! set the file's times. The set times must stay, because the change was before. So when times of a file are
//! set that may be mapped, the kernel has to write back and drop all its pages of the file, and these writes
//! change no times. Later changes count as later.
//!
//! The kernel waits for answers of the threads of the mount, so a separate thread of the mount asks it, for
//! one file after the other. Each file is queued once, however often its times are set meanwhile. The queue
//! holds [`MAX_LINE`] files; further ones are not queued, because no caller may wait here. The thread starts
//! when needed and ends when idle.
//!
//! All of this is in memory only and may be lost in a crash. Then mapped changes that were not written back
//! are lost as they would be anyway, times that were set are stored with the file, and data that `msync` or
//! `fsync` wrote back before are as stable as any write.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | the files, the queue and whether there is a thread; held for a few lines | taken alone |

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use device::IgnorePoison;
use fuser::INodeNo;

/// Most files in line. Times of more may change when mapped pages are written back.
const MAX_LINE: usize = 4096;
/// A thread that had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);

/// Has the kernel write back what it has of a file, and waits until it has.
type WriteBack = Box<dyn FnOnce(INodeNo) + Send>;

/// Files whose times stay.
#[derive(Debug, Clone, Default)]
pub struct MmapTimes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    /// Each with how many wait for it to be written back.
    files: HashMap<INodeNo, u32>,
    /// Files that are to be written back, each once.
    line: VecDeque<(Kept, WriteBack)>,
    has_thread: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("State");
        shown.field("files", &self.files).field("line", &self.line.len()).finish_non_exhaustive()
    }
}

/// The times of a file stay, as long as this lives.
#[derive(Debug)]
pub struct Kept {
    times: MmapTimes,
    file: INodeNo,
}

impl MmapTimes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().ignore_poison()
    }

    /// Pages of a file that are written back change no times from now on.
    pub fn keep(&self, file: INodeNo) -> Kept {
        *self.state().files.entry(file).or_default() += 1;
        Kept { times: self.clone(), file }
    }

    /// Whether pages of a file that are written back change no times.
    pub fn keeps(&self, file: INodeNo) -> bool {
        self.state().files.contains_key(&file)
    }

    /// Goes through the line, until nothing came for a while.
    fn serve(&self) {
        let mut state = self.state();
        loop {
            if let Some((kept, write_back)) = state.line.pop_front() {
                drop(state);
                write_back(kept.file);
                drop(kept);
                state = self.state();
                continue;
            }
            let waited = self.0.more.wait_timeout(state, IDLE);
            let (back, waited) = waited.ignore_poison();
            state = back;
            if waited.timed_out() && state.line.is_empty() {
                state.has_thread = false;
                return;
            }
        }
    }
}

impl Kept {
    /// Keeps them until the kernel wrote back what it has of the file, for which it is asked by `write_back`.
    /// Does not wait for that.
    pub fn until_written(self, write_back: impl FnOnce(INodeNo) + Send + 'static) {
        let times = self.times.clone();
        let mut state = times.state();
        if state.line.iter().any(|(other, _)| other.file == self.file) {
            // That comes after these times were set.
            return;
        }
        if state.line.len() >= MAX_LINE {
            tracing::debug!(
                file = self.file.0,
                "times that were set may change when mapped pages are written back"
            );
            return;
        }
        if !state.has_thread {
            let serving = times.clone();
            match std::thread::Builder::new().name("fuse-times".into()).spawn(move || serving.serve()) {
                Ok(_) => state.has_thread = true,
                Err(error) => {
                    tracing::debug!(%error, "times that were set may change when mapped pages are written \
                        back");
                    return;
                }
            }
        }
        state.line.push_back((self, Box::new(write_back)));
        times.0.more.notify_one();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut state = self.times.state();
        if let Some(count) = state.files.get_mut(&self.file) {
            *count -= 1;
            if *count == 0 {
                state.files.remove(&self.file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn times_stay_until_the_last_who_waits_is_done() {
        let times = MmapTimes::default();
        let (one, other) = (times.keep(INodeNo(7)), times.keep(INodeNo(7)));
        drop(one);
        assert!(times.keeps(INodeNo(7)) && !times.keeps(INodeNo(8)));
        drop(other);
        assert!(!times.keeps(INodeNo(7)));
    }

    #[test]
    fn files_are_written_back_by_one_thread_and_each_once_after_its_times_were_set() {
        let times = MmapTimes::default();
        let (told, tells) = mpsc::channel::<(INodeNo, ThreadId)>();
        let (begun, begins) = mpsc::channel();
        let (go_on, waits) = mpsc::channel::<()>();
        let tell = move |file| told.send((file, thread::current().id())).unwrap();
        let first = tell.clone();
        times.keep(INodeNo(1)).until_written(move |file| {
            begun.send(()).unwrap();
            waits.recv().unwrap();
            first(file);
        });
        begins.recv_timeout(PATIENCE).unwrap();
        // The first is being written back: what its times say now is not known to that.
        for _ in 0..100 {
            for file in 1..4 {
                times.keep(INodeNo(file)).until_written(tell.clone());
            }
        }
        drop(tell);
        assert!((1..4).all(|file| times.keeps(INodeNo(file))));
        go_on.send(()).unwrap();
        let all: Vec<_> = std::iter::from_fn(|| tells.recv_timeout(PATIENCE).ok()).collect();
        let (files, threads): (Vec<u64>, HashSet<ThreadId>) =
            all.into_iter().map(|(file, by)| (file.0, by)).unzip();
        assert_eq!((files, threads.len()), (vec![1, 1, 2, 3], 1));
        while (1..4).any(|file| times.keeps(INodeNo(file))) {
            thread::yield_now();
        }
    }
}
