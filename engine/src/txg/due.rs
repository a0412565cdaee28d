//! When the open group is due: what the sync thread waits for.
//!
//! All that makes a group due wakes the thread, so that a pool that is idle wakes no processor. Only how long
//! a group with changes stays open is looked at now and then, because a tunable says it.

use std::time::Duration;

use device::IgnorePoison;

use super::Txgs;
use crate::tunables;

/// The longest wait of the sync thread while something waits to be written.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl Txgs {
    /// The open group is committed when it is old enough, even without dirty data.
    pub(crate) fn want_in_time(&self) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.wanted_in_time, true) {
            self.due.notify_all();
        }
    }

    /// For the sync thread: waits until a group should be committed. Returns false when no more groups will
    /// be committed.
    pub(crate) fn wait_until_due(&self) -> bool {
        let mut state = self.state();
        state.has_committer = true;
        loop {
            if state.ending || state.stopped.is_some() {
                return false;
            }
            if state.frozen {
                state = self.due.wait(state).ignore_poison();
                continue;
            }
            let full = self.is_full(&state) || state.stream.is_due() || state.lanes.has_waiting();
            if state.wanted >= state.open || full {
                return true;
            }
            if state.dirty[0] == 0 && !state.wanted_in_time {
                // What is first to be written wakes this thread, as all that makes the group due does.
                state = self.due.wait(state).ignore_poison();
                continue;
            }
            let left = self.timeout().saturating_sub(state.opened_at.elapsed());
            if left.is_zero() {
                return true;
            }
            // Tunables may be set meanwhile.
            let waited = self.due.wait_timeout(state, left.min(LONGEST_WAIT));
            state = waited.ignore_poison().0;
        }
    }

    /// How long a group with changes stays open: as the tunable has it, where one was set.
    fn timeout(&self) -> Duration {
        tunables::ZFS_TXG_TIMEOUT.given().map_or(self.limits.timeout, Duration::from_secs)
    }
}
