//! Many mounts: what an export asks before it unmounts the first one, and what idle ones cost. Needs root and
//! `/dev/fuse`; `CENOTE_SKIP=fuse` leaves this out.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::mounts::{Container, root_session};
use crate::session::Session;

/// The mounts below a directory, with the numbers that the kernel gave them: a mount that went and came back
/// has another one.
fn mounts_below(directory: &Path) -> Vec<String> {
    let prefix = directory.canonicalize().unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let lines = table
        .lines()
        .filter(|line| line.split(' ').nth(4).is_some_and(|at| Path::new(at).starts_with(&prefix)));
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

fn with_more_filesystems(session: &Session) {
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        session.print(&["zfs", "create", name]);
    }
}

#[test]
fn an_export_that_a_container_forbids_names_it_and_unmounts_nothing() {
    let Some((session, disks)) = root_session("exports beside containers") else { return };
    with_more_filesystems(&session);
    let before = mounts_below(disks.path());
    assert!(before.len() >= 4, "{before:?}");
    let container = Container::start();
    for command in [&["zpool", "export", "tank"][..], &["zpool", "destroy", "tank"]] {
        let refused = session.run(command);
        assert_eq!(refused.code, 1, "{command:?}");
        let process = format!("process {} (sleep) has it mounted at ", container.process());
        assert!(refused.err.contains(&process) && refused.err.contains("nsenter"), "{}", refused.err);
        assert_eq!(mounts_below(disks.path()), before, "{command:?}");
    }
    // All come back with the sessions that they had, and go when it goes.
    session.print(&["zfs", "unmount", "-a"]);
    assert_eq!(mounts_below(disks.path()).len(), 0);
    session.print(&["zfs", "mount", "-a"]);
    assert_eq!(mounts_below(disks.path()).len(), before.len());
    drop(container);
    session.print(&["zpool", "export", "tank"]);
    assert_eq!(mounts_below(disks.path()).len(), 0);
}

#[test]
fn an_export_with_an_open_file_names_its_user_and_unmounts_nothing() {
    let Some((session, disks)) = root_session("exports with open files") else { return };
    with_more_filesystems(&session);
    // In the one that is unmounted last.
    let path = disks.path().join("root/tank/file");
    let open = File::create(&path).unwrap();
    let before = mounts_below(disks.path());
    let refused = session.run(&["zpool", "export", "tank"]);
    let user = format!("process {}: ", std::process::id());
    assert!(refused.code == 1 && refused.err.contains(&user), "{}", refused.err);
    assert_eq!(mounts_below(disks.path()), before);
    drop(open);
    session.print(&["zpool", "export", "tank"]);
}

/// The threads of a process that answer requests of mounts.
fn threads_of_mounts(process: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().filter_map(Result::ok);
    let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|name| name == "fuse\n").count()
}

#[test]
fn mounts_without_requests_have_no_threads_and_answer_the_next_one() {
    let Some((session, disks)) = root_session("threads of idle mounts") else { return };
    with_more_filesystems(&session);
    let file = disks.path().join("root/tank/a/b/file");
    fs::write(&file, "before").unwrap();
    let patience = Instant::now() + Duration::from_secs(120);
    for round in 0..2 {
        while threads_of_mounts(session.daemon_id()) > 0 {
            assert!(Instant::now() < patience, "round {round}: idle mounts keep threads");
            std::thread::yield_now();
        }
        // A file that the kernel does not know: this is a question to the daemon.
        fs::write(file.with_extension(round.to_string()), [round]).unwrap();
        assert!(threads_of_mounts(session.daemon_id()) > 0);
        assert_eq!(fs::read(&file).unwrap(), b"before");
    }
    // The end of a connection is found by a mount without threads too.
    while threads_of_mounts(session.daemon_id()) > 0 {
        assert!(Instant::now() < patience, "idle mounts keep threads");
        std::thread::yield_now();
    }
    session.print(&["zpool", "export", "tank"]);
    assert_eq!(mounts_below(disks.path()).len(), 0);
}
