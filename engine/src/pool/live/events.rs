//! What happened to the pool, for `zpool events` and those who react to it.
//!
//! The classes and their values are OpenZFS's. Events about errors come from the vdevs themselves
//! ([`crate::vdev`]); those here are about what was done with the pool.
//!
//! Source of the facts: OpenZFS 2.4 `spa.c` (`spa_event_notify` and its callers), `sys/sysevent/eventdefs.h`.

use ondisk::Guid;

use super::LivePool;
use crate::events::Value;

impl LivePool {
    /// Notes that something happened: to the pool, or to one of its vdevs. `name` is OpenZFS's name of the
    /// event without its class, such as `pool_reguid` or `vdev_attach`.
    pub fn sysevent(&self, name: &str, vdev: Option<Guid>) {
        self.sysevent_with(name, vdev, Vec::new());
    }

    /// The same, with more values, under OpenZFS's names.
    pub(super) fn sysevent_with(&self, name: &str, vdev: Option<Guid>, more: Vec<(String, Value)>) {
        let vdevs = self.pool.vdevs();
        let facts = vdev.and_then(|guid| vdevs.find(guid)).map(|vdev| vdevs.facts(vdev));
        vdevs.reporter().sysevent(name, facts.as_ref(), more);
    }
}
