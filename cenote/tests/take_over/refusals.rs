//! What is not handed over, and daemons that die meanwhile.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use server::handover::{Channel, Message};

use crate::daemons::{LIMIT, Place, fio, longest, until};

/// A place with a pool and a volume.
fn with_volume() -> Place {
    let place = Place::start(&[]);
    let disk = place.disk("disk", 256);
    place.print(&["zpool", "create", "-m", "none", "tank", &disk]);
    place.print(&["zfs", "create", "-V", "64M", "tank/vol"]);
    place
}

/// How a daemon ended that did not take over.
pub fn refused(mut successor: Child) -> String {
    let mut why = String::new();
    successor.stderr.take().unwrap().read_to_string(&mut why).unwrap();
    assert!(!successor.wait().unwrap().success(), "{why}");
    why
}

fn ask(place: &Place) -> Channel {
    let mut channel = Channel::new(UnixStream::connect(place.hand_over_socket()).unwrap());
    channel.send(&Message::TakeOver { version: "test".into(), force: false }, &[], None).unwrap();
    channel
}

/// Takes all that is handed over, up to so many messages. Whether that was all of it.
fn take(channel: &mut Channel, most: usize) -> bool {
    for _ in 0..most {
        match channel.receive().unwrap().unwrap().message {
            Message::Given => return true,
            Message::Refused { why } => panic!("{why}"),
            _ => {}
        }
    }
    false
}

#[test]
fn the_daemon_goes_on_when_the_other_one_dies_at_any_message() {
    if testkit::skipped("fio", "the_daemon_goes_on_when_the_other_one_dies_at_any_message") {
        return;
    }
    let mut place = with_volume();
    let mut working = fio(&place, "fio", &place.uri("tank/vol"));
    until("fio does not write", || {
        let written = place.print(&["zfs", "get", "-Hpo", "value", "logicalused", "tank/vol"]);
        written.trim().parse::<u64>().unwrap() > 1 << 20
    });
    let id = place.daemon.id();
    let mut messages = 0;
    loop {
        let mut channel = ask(&place);
        let was_all = take(&mut channel, messages);
        drop(channel);
        assert_eq!(place.print(&["zpool", "list", "-H", "-o", "name,health"]), "tank\tONLINE\n");
        messages += 1;
        if was_all {
            break;
        }
    }
    assert!(messages > 5, "{messages}");
    // One that could not, and says so.
    let mut channel = ask(&place);
    assert!(take(&mut channel, usize::MAX));
    channel.send(&Message::Failed { why: "a test".into() }, &[], None).unwrap();
    drop(channel);
    // Real ones, killed after various times.
    for milliseconds in [20, 60, 120, 200] {
        let mut successor = place.successor();
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        successor.kill().unwrap();
        successor.wait().unwrap();
        let began = std::time::Instant::now();
        loop {
            if place.daemon.try_wait().unwrap().is_some() {
                // The one that was killed had taken over: a crash, which clients see.
                let _ = working.kill();
                let _ = working.wait();
                return;
            }
            let listed = place.run_with(&["zpool", "list", "-H", "-o", "name,health"], b"");
            if listed.status.success() && listed.stdout == b"tank\tONLINE\n" {
                break;
            }
            assert!(began.elapsed() < LIMIT, "the daemon before neither goes on nor ends: {listed:?}");
        }
    }
    assert_eq!(place.daemon.id(), id);
    place.replace();
    let pause = longest(&place, "fio", working);
    eprintln!("{messages} daemons that died; the longest request took {pause} ms");
}

#[test]
fn of_two_that_take_over_one_is_refused() {
    let mut place = with_volume();
    let mut first = ask(&place);
    assert!(take(&mut first, usize::MAX));
    let why = refused(place.successor());
    assert!(why.contains("another process is taking over already"), "{why}");
    drop(first);
    until("the pool does not come back", || place.print(&["zpool", "list", "-H", "-o", "name"]) == "tank\n");
    place.replace();
}

#[test]
fn a_suspended_pool_is_named_and_nothing_happens() {
    let mut place = with_volume();
    let limit = |bytes: &str, place: &Place| {
        let id = place.daemon.id().to_string();
        let set =
            Command::new("prlimit").args(["--pid", &id, &format!("--fsize={bytes}:unlimited")]).status();
        assert!(set.unwrap().success());
    };
    place.print(&["zpool", "set", "failmode=continue", "tank"]);
    limit("0", &place);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| place.run_with(&["zfs", "create", "tank/waited"], b""));
        until("it is not suspended", || {
            place.print(&["zpool", "list", "-H", "-o", "health"]) == "SUSPENDED\n"
        });
        let why = refused(place.successor());
        assert!(why.contains("pool 'tank' is suspended"), "{why}");
        limit("unlimited", &place);
        place.print(&["zpool", "clear", "tank"]);
        assert!(waiting.join().unwrap().status.success());
    });
    place.replace();
    place.print(&["zfs", "list", "tank/waited"]);
}

#[test]
fn without_a_daemon_there_is_nothing_to_take_over() {
    let mut place = with_volume();
    place.daemon.kill().unwrap();
    place.daemon.wait().unwrap();
    let why = refused(place.successor());
    assert!(why.contains("cannot take over from the daemon on"), "{why}");
}
