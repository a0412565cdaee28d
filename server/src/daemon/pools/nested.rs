//! Pools on files that lie in a filesystem of this daemon.
//!
//! They work, and the outer pool never waits for the inner one, because each pool may always have some dirty
//! bytes. But two things differ from pools on other devices:
//! - A daemon that is killed leaves threads in the kernel that wait for answers which only the daemon could
//!   give. The process stays, and with it its locks, until the connection of the outer mount is aborted by
//!   hand (`/sys/fs/fuse/connections/N/abort`).
//! - When the outer pool is suspended, the inner one waits with it.
//!
//! The kernel's threads are unavoidable, so the user is warned.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use crate::daemon::{Daemon, OpenPool, lock};
use crate::fuse;

/// A filesystem of this daemon in which a pool has files.
struct Outer {
    pool: String,
    dataset: String,
    /// The number of its FUSE connection.
    connection: libc::c_uint,
}

impl Daemon {
    fn outer_of(&self, open: &OpenPool) -> Vec<Outer> {
        let pool = open.view();
        let leaves = pool.vdevs().leaves();
        let devices: HashSet<libc::dev_t> =
            leaves.filter_map(|leaf| fuse::device_at(Path::new(&leaf.name)).ok()).collect();
        let mut outer = Vec::new();
        for host in self.open_pools() {
            let mounts = lock(&host.mounts);
            for (dataset, mount) in mounts.iter() {
                let device = mount.fuse().device();
                if devices.contains(&device) {
                    let (pool, dataset) = (host.name().to_owned(), dataset.clone());
                    outer.push(Outer { pool, dataset, connection: libc::minor(device) });
                }
            }
        }
        outer
    }

    /// Whether a path leads into a filesystem that this daemon serves.
    pub(in crate::daemon) fn serves(&self, path: &Path) -> bool {
        let Ok(device) = fuse::device_at(path) else { return false };
        let pools = self.open_pools();
        pools.iter().any(|pool| lock(&pool.mounts).values().any(|mount| mount.fuse().device() == device))
    }

    /// The warning about a pool that has devices in a filesystem which this daemon serves.
    pub(in crate::daemon) fn nested(&self, open: &OpenPool) -> Option<String> {
        let Outer { dataset, connection, .. } = self.outer_of(open).into_iter().next()?;
        let name = open.name();
        Some(format!(
            "warning: '{name}' lies on files of '{dataset}', which this daemon serves itself: if the daemon \
             is killed, its process stays until 'echo 1 > /sys/fs/fuse/connections/{connection}/abort'; \
             export '{name}' first"
        ))
    }

    /// Pools in the order in which they can be closed: those of one group side by side, inner ones before
    /// those that they lie on.
    pub(in crate::daemon) fn inside_out(&self, mut pools: Vec<Arc<OpenPool>>) -> Vec<Vec<Arc<OpenPool>>> {
        if pools.len() < 2 {
            return vec![pools];
        }
        let outer: Vec<(Arc<OpenPool>, Vec<String>)> = pools
            .iter()
            .map(|pool| (Arc::clone(pool), self.outer_of(pool).into_iter().map(|outer| outer.pool).collect()))
            .collect();
        let mut groups = Vec::new();
        while !pools.is_empty() {
            let is_outer = |pool: &Arc<OpenPool>| {
                let inner =
                    outer.iter().filter(|(inner, _)| pools.iter().any(|left| Arc::ptr_eq(left, inner)));
                inner.into_iter().any(|(_, names)| names.iter().any(|name| name == pool.name()))
            };
            let (outside, inside): (Vec<_>, Vec<_>) = pools.iter().cloned().partition(is_outer);
            if inside.is_empty() {
                groups.push(outside);
                break;
            }
            groups.push(inside);
            pools = outside;
        }
        groups
    }
}
