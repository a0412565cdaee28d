//! Commands that wait for what the daemon's feed of changes tells, and what that costs a daemon that is idle.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::session::Session;

/// How long a thing may take that must happen.
const LIMIT: Duration = Duration::from_secs(60);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A daemon with a pool on one file.
fn with_pool(more: &[&str]) -> Session {
    let session = Session::start();
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    session.print(&[&["zpool", "create"], more, &["tank", disk.to_str().unwrap()]].concat());
    session
}

/// How a command ended, and what it said.
fn ended(child: Child) -> (i32, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn events_are_followed_as_they_come_until_the_daemon_goes_away() {
    let session = with_pool(&["-O", "mountpoint=none"]);
    let mut following = session.start_command(&["zpool", "events", "-Hf", "tank"]);
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next_has = |class: &str| {
        while !lines.next().expect("the command ended").ends_with(class) {}
    };
    next_has("sysevent.fs.zfs.pool_create");
    session.print(&["zpool", "reguid", "tank"]);
    next_has("sysevent.fs.zfs.pool_reguid");
    session.print(&["zpool", "scrub", "-w", "tank"]);
    next_has("sysevent.fs.zfs.scrub_start");
    next_has("sysevent.fs.zfs.scrub_finish");
    session.kill();
    let (code, err) = ended(following);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("the daemon went away while this command waited"), "{err}");
}

#[test]
fn a_command_that_waits_ends_with_its_daemon() {
    let session = with_pool(&["-O", "mountpoint=none"]);
    // So slow that it is never done.
    session.print(&["zpool", "trim", "-r", "1K", "tank"]);
    // The daemon's ends of connections have the name of the socket.
    let socket = session.socket();
    let connections = || {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        sockets.lines().filter(|line| line.ends_with(socket.to_str().unwrap())).count()
    };
    let before = connections();
    let waiting = session.start_command(&["zpool", "wait", "-t", "trim", "tank"]);
    // It waits when the daemon has a client more that stays.
    let mut looks = 0;
    until("the command begins to wait", || {
        looks = if connections() > before { looks + 1 } else { 0 };
        looks > 5
    });
    session.stop();
    let (code, err) = ended(waiting);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("the daemon went away while this command waited"), "{err}");
}

#[test]
fn a_filesystem_is_waited_for_until_its_removed_files_are_closed() {
    if testkit::skipped("fuse", "mounts") {
        return;
    }
    let session = Session::start();
    let (disk, root) = (session.directory().join("disk"), session.directory().join("root"));
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    let (disk, root) = (disk.to_str().unwrap(), root.to_str().unwrap());
    session.print(&["zpool", "create", "-R", root, "tank", disk]);
    session.print(&["zfs", "wait", "-t", "deleteq", "tank"]);
    let path = format!("{root}/tank/file");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let open = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    session.print(&["zpool", "sync"]);
    let mut waiting = session.start_command(&["zfs", "wait", "tank"]);
    // A whole round of other commands is long enough for one that does not wait.
    (0..3).for_each(|_| drop(session.print(&["zpool", "sync"])));
    assert!(waiting.try_wait().unwrap().is_none(), "it did not wait");
    drop(open);
    assert_eq!(ended(waiting), (0, String::new()));
    for (words, said) in [
        (&["zfs", "wait"][..], "missing 'filesystem' argument"),
        (&["zfs", "wait", "a", "b"], "too many arguments"),
        (&["zfs", "wait", "-t", "foo", "tank"], "invalid activity 'foo'"),
    ] {
        let refused = session.run(words);
        assert!(refused.code == 2 && refused.err.contains(said), "{}", refused.err);
    }
    let refused = session.run(&["zfs", "wait", "tank/none"]);
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (1, "cannot open 'tank/none': dataset does not exist\n")
    );
    session.print(&["zpool", "export", "tank"]);
}

/// How often each thread of a process went to sleep so far.
fn sleeps(process: u32) -> HashMap<OsString, u64> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let of_task = |task: fs::DirEntry| {
        // A thread may end meanwhile.
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((task.file_name(), line.trim().parse().unwrap()))
    };
    tasks.filter_map(of_task).collect()
}

#[test]
fn an_idle_daemon_sleeps_although_clients_follow_it() {
    const MOST_A_SECOND: u64 = 5;
    const SECONDS: u64 = 10;
    let session = with_pool(&["-O", "mountpoint=none"]);
    let following: Vec<Child> = (0..5).map(|_| session.start_command(&["zpool", "events", "-Hf"])).collect();
    session.print(&["zpool", "sync"]);
    let idle = || {
        let before = sleeps(session.daemon_id());
        std::thread::sleep(Duration::from_secs(SECONDS));
        let after = sleeps(session.daemon_id()).into_iter();
        after.map(|(thread, count)| count - before.get(&thread).copied().unwrap_or(0)).sum::<u64>()
    };
    // What the commands above began comes to its end.
    until("the daemon becomes idle", || idle() < MOST_A_SECOND * SECONDS);
    for mut child in following {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
