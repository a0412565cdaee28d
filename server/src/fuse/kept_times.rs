//! Times that somebody set, of files that are mapped and changed.
//!
//! What a program changes where it mapped a file comes when the kernel writes it back, which may be after somebody set the file's times. Those must stay: the change was before. So as soon as times are set of
//! a file that may be mapped, the kernel is made to write back and to let go of all that it has of the file, and what it writes until that is done changes no times. What is changed
//! later comes later.
//!
//! The kernel is asked by a thread of its own: it waits for answers of those that serve the mount.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{INodeNo, Notifier};

/// Files whose times stay, each with how many wait for it to be written back.
#[derive(Debug, Clone, Default)]
pub struct KeptTimes(Arc<Mutex<HashMap<INodeNo, u32>>>);

/// The times of a file stay, as long as this lives.
#[derive(Debug)]
pub struct Kept {
    times: KeptTimes,
    file: INodeNo,
}

impl KeptTimes {
    fn files(&self) -> MutexGuard<'_, HashMap<INodeNo, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages of a file that are written back change no times from now on.
    pub fn keep(&self, file: INodeNo) -> Kept {
        *self.files().entry(file).or_default() += 1;
        Kept { times: self.clone(), file }
    }

    /// Whether pages of a file that are written back change no times.
    pub fn keeps(&self, file: INodeNo) -> bool {
        self.files().contains_key(&file)
    }
}

impl Kept {
    /// Keeps them until the kernel wrote back what it has of the file.
    pub fn until_written(self, notifier: &Notifier) {
        let notifier = notifier.clone();
        let write = move || {
            // One that is not known has no pages.
            let _ = notifier.inval_inode(self.file, 0, 0);
            drop(self);
        };
        if let Err(error) = std::thread::Builder::new().name("fuse-times".into()).spawn(write) {
            tracing::debug!(%error, "times that were set may change when mapped pages are written back");
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut files = self.times.files();
        if let Some(count) = files.get_mut(&self.file) {
            *count -= 1;
            if *count == 0 {
                files.remove(&self.file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stay_until_the_last_who_waits_is_done() {
        let times = KeptTimes::default();
        let (one, other) = (times.keep(INodeNo(7)), times.keep(INodeNo(7)));
        drop(one);
        assert!(times.keeps(INodeNo(7)) && !times.keeps(INodeNo(8)));
        drop(other);
        assert!(!times.keeps(INodeNo(7)));
    }
}
