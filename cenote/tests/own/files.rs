//! One file on the mount, read and changed in every way that a kernel has, against a model. The pool is in another process: a process that maps files of a mount that it
//! serves itself waits for itself.

use testkit::exercise::{self, Exercise};

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
        exercise::run(
            &at.join(format!("file{seed}")),
            Exercise { seed, steps, max_bytes: 300 << 10, direct },
        );
    }
    assert!(up.end(libc::SIGINT).success());
    judge(place.path());
}
