//! One file on the mount, read and changed in every way that a kernel has, against a model. The pool is in
//! another process: a process that maps files of a mount that it serves itself waits for itself.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use testkit::fsx::{self, Fsx};

use super::{Up, judge};

/// Operations on each file; `CENOTE_EXERCISE_STEPS` asks for more.
const STEPS: usize = 600;

#[test]
fn files_on_the_mount_are_what_was_written_in_any_way() {
    let place = tempfile::tempdir().unwrap();
    let up = Up::start(place.path());
    let Some(at) = up.mountpoint() else { return };
    let steps =
        std::env::var("CENOTE_EXERCISE_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(STEPS);
    for (seed, direct) in [(1, false), (2, true)] {
        // Larger than two records.
        fsx::run(&at.join(format!("file{seed}")), Fsx { seed, steps, max_bytes: 300 << 10, direct });
    }
    assert!(up.end(libc::SIGINT).success());
    judge(place.path());
}

#[test]
fn times_before_1970_come_back() {
    let place = tempfile::tempdir().unwrap();
    let up = Up::start(place.path());
    let Some(at) = up.mountpoint() else { return };
    let path = at.join("old");
    for (seconds, nanoseconds) in [(-2, 123_456_789), (-1, 0), (-86_400, 999_999_999)] {
        let file = fs::File::create(&path).unwrap();
        let time = libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        // SAFETY: the descriptor is open, and two times are what the call reads.
        assert_eq!(unsafe { libc::futimens(file.as_raw_fd(), [time; 2].as_ptr()) }, 0);
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (seconds, nanoseconds));
        assert_eq!((metadata.atime(), metadata.atime_nsec()), (seconds, nanoseconds));
    }
    assert!(up.end(libc::SIGINT).success());
    judge(place.path());
}

#[test]
fn what_a_process_knows_stays_when_it_loses_its_name() {
    let place = tempfile::tempdir().unwrap();
    let up = Up::start(place.path());
    let Some(at) = up.mountpoint() else { return };
    let (file, dir) = (at.join("file"), at.join("dir"));
    fs::write(&file, "content").unwrap();
    fs::create_dir(&dir).unwrap();
    let [known, known_dir] = [&file, &dir].map(|path| {
        // Looked up, but not open: the filesystem is told of no such thing.
        fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).unwrap()
    });
    fs::remove_file(&file).unwrap();
    fs::remove_dir(&dir).unwrap();
    fs::write(&file, "another").unwrap();
    let again = format!("/proc/self/fd/{}", known.as_raw_fd());
    assert_eq!(fs::read_to_string(&again).unwrap(), "content");
    assert_eq!((known.metadata().unwrap().nlink(), known_dir.metadata().unwrap().nlink()), (0, 0));
    fs::File::open(format!("/proc/self/fd/{}", known_dir.as_raw_fd())).unwrap();
    drop((known, known_dir));
    assert_eq!(fs::read_to_string(&file).unwrap(), "another");
    assert!(up.end(libc::SIGINT).success());
    judge(place.path());
}
