//! What happened to the pool, for `zpool events` and those who react to it.

use ondisk::Guid;

use super::LivePool;

impl LivePool {
    /// Notes that something happened: to the pool, or to one of its vdevs. `name` is OpenZFS's name of the
    /// event without its class, such as `pool_reguid` or `vdev_attach`.
    pub(super) fn sysevent(&self, name: &str, vdev: Option<Guid>) {
        let _ = (name, vdev);
    }
}
