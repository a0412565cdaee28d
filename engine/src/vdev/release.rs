//! Giving devices back to the system.
//!
//! A pool that gives a device up lets go of it, and the device is closed with the last transfer that uses
//! it. Until then no other program can have it, and the kernel may keep a block device claimed a moment
//! longer: a transfer of the ring holds the file until it is cleaned up. A caller that is told that a device
//! was given up may use it for something else at once. So each change that gives up a device ends here: it
//! returns when the device could be claimed anew.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Cause, Device, Lock, OpenOptions};

use super::read::yield_now;

/// How long all of it may take. A device that does not answer must not keep the caller.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval between looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Waits until nothing here uses the devices any more, and closes them. No slot has them any more. Those that
/// were not claimed from the system, because they are only read or no files, are not waited for.
pub async fn release(devices: Vec<Arc<dyn Device>>) {
    let is_claimed = |device: &Arc<dyn Device>| !device.is_read_only() && device.identity().is_some();
    let began = Instant::now();
    let mut closed = Vec::with_capacity(devices.len());
    for device in devices.into_iter().filter(is_claimed) {
        while Arc::strong_count(&device) > 1 && began.elapsed() < PATIENCE {
            pause().await;
        }
        closed.push(device.path().to_owned());
    }
    for path in closed {
        while is_in_use(&path) {
            if began.elapsed() >= PATIENCE {
                tracing::warn!(path = %path.display(), "a device that was given up is still in use");
                break;
            }
            pause().await;
        }
    }
}

fn is_in_use(path: &std::path::Path) -> bool {
    let claimed = OpenOptions::read_only().buffered().lock(Lock::Exclusive).open(path);
    claimed.is_err_and(|error| error.cause == Cause::InUse)
}

/// Lets transfers of this thread and of others go on.
async fn pause() {
    yield_now().await;
    std::thread::sleep(LOOK_INTERVAL);
}

#[cfg(test)]
mod tests {
    use device::{FileDevice, block_on};

    use super::*;

    #[test]
    fn a_device_is_released_when_its_last_user_is_done() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 20).expect("grows");
        let claim = || OpenOptions::read_write().open(&file);
        let device: Arc<dyn Device> = Arc::new(claim().expect("opens"));
        let user = Arc::clone(&device);
        let (begin, begun) = std::sync::mpsc::channel();
        let waits = std::thread::spawn(move || {
            begin.send(()).expect("is waited for");
            block_on(release(vec![device]));
        });
        begun.recv().expect("begins");
        assert!(!waits.is_finished() && claim().is_err(), "it is in use");
        drop(user);
        waits.join().expect("ends");
        let again: FileDevice = claim().expect("is free");
        drop(again);
    }
}
