//! The limit of open files of this process.
//!
//! Systems give programs few descriptors (1024), for the sake of those that use `select`, and let them take
//! more. A daemon needs one for each mount, each connection and each device, and more while it is busy.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process have as many files open as the system allows. To be called once, at the start.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "cannot raise the limit of open files above {}", current.unwrap_or(u64::MAX));
    }
}

/// Descriptors of a thread that answers requests of a mount: of the connection, of its ring, and of who wakes
/// it.
const OF_A_THREAD: u64 = 4;
/// How many such threads there may be beside the first of each mount: half of all files are left for devices,
/// clients and the mounts themselves.
static MOST: LazyLock<u64> =
    LazyLock::new(|| getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / (2 * OF_A_THREAD));
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The descriptors of one more thread of a mount, reserved as long as this lives.
#[derive(Debug)]
pub(crate) struct Share(());

impl Share {
    /// `None` where others have them all.
    pub(crate) fn take() -> Option<Self> {
        let more = |taken| (taken < *MOST).then_some(taken + 1);
        TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(()))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_leave_half_of_all_files_to_others() {
        let shares: Vec<_> = std::iter::from_fn(Share::take).take(100_000).collect();
        assert!(shares.len() as u64 <= *MOST);
        if (shares.len() as u64) < 100_000 {
            assert!(Share::take().is_none());
        }
        drop(shares);
        assert!(Share::take().is_some());
    }

    #[test]
    fn as_many_files_can_be_open_as_the_system_allows() {
        raise_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
