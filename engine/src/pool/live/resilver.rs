//! Looking whether devices must be resilvered.

use std::sync::Arc;

use super::LivePool;

impl LivePool {
    /// A device came back, or a new one was attached: if it misses groups that other devices have, a resilver
    /// begins.
    pub(super) fn look_for_resilver(self: &Arc<Self>) {}
}
