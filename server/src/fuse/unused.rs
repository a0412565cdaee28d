//! Whether several filesystems can be unmounted, before one of them is.
//!
//! A command that unmounts many filesystems and finds the last one in use has to mount the others again. So
//! it asks first: one look at the tables of all mount namespaces, and one at the open files of all processes,
//! however many filesystems there are. Users that no look finds (loop devices, NFS, other users' programs
//! without root) are found when the filesystem is unmounted.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::elsewhere::Elsewhere;
use super::holders::Holders;
use super::{FuseMount, MountError};

/// How long a program may use a filesystem in passing, as `df` does.
const PASSES_WITHIN: Duration = Duration::from_millis(50);

/// Looks for what keeps mounts from going for good.
///
/// # Errors
/// [`MountError::BusyElsewhere`] for the first that stays mounted at another place, [`MountError::Busy`] for
/// the first that a process uses.
pub fn require_unused(mounts: &[Arc<FuseMount>]) -> Result<(), MountError> {
    let alive: Vec<_> = mounts.iter().filter(|mount| mount.is_alive()).collect();
    if alive.is_empty() {
        return Ok(());
    }
    if let Ok(all) = Elsewhere::read() {
        for mount in &alive {
            if let Some(place) = all.staying(&mount.place()) {
                return Err(mount.busy_elsewhere(Some(place.clone())));
            }
        }
    }
    let devices: HashSet<_> = alive.iter().map(|mount| mount.device()).collect();
    let mut used = Holders::of_any(&devices);
    if !used.is_empty() {
        std::thread::sleep(PASSES_WITHIN);
        used = Holders::of_any(&used.keys().copied().collect());
    }
    let mut found = alive.iter().filter_map(|mount| Some((mount, used.remove(&mount.device())?)));
    match found.next() {
        Some((mount, holders)) => Err(MountError::Busy { at: mount.mountpoint(), holders }),
        None => Ok(()),
    }
}
