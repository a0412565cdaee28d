//! Copies of trees that follow their senders: promoted clones, names, properties, several copies in one pool.

use std::fs::File;

use crate::session::{Ended, Session};

/// A pool, and what is told of its datasets.
fn create(session: &Session) -> String {
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(512 << 20).unwrap();
    let root = session.directory().join("root");
    session.print(&["zpool", "create", "-R", root.to_str().unwrap(), "tank", disk.to_str().unwrap()]);
    root.join("tank").to_str().unwrap().to_owned()
}

fn make(session: &Session, line: &str) {
    session.print(&line.split(' ').collect::<Vec<_>>());
}

fn sent(session: &Session, line: &str) -> Vec<u8> {
    let arguments: Vec<&str> = line.split(' ').collect();
    let (bytes, ended) = session.run_bytes(&[&["zfs", "send"], &arguments[..]].concat());
    assert_eq!((ended.code, &*ended.err), (0, ""), "{line}");
    bytes
}

fn receive(session: &Session, line: &str, stream: &[u8]) -> Ended {
    let arguments: Vec<&str> = line.split(' ').collect();
    session.run_with(&[&["zfs", "receive", "-u"], &arguments[..]].concat(), stream)
}

fn received(session: &Session, line: &str, stream: &[u8]) {
    let ended = receive(session, line, stream);
    assert_eq!((ended.code, &*ended.err), (0, ""), "{line}");
}

fn value(session: &Session, property: &str, name: &str) -> String {
    session.print(&["zfs", "get", "-H", "-o", "value,source", property, name]).trim_end().replace('\t', " ")
}

fn end(session: &Session) {
    session.print(&["zpool", "export", "tank"]);
    if let Some(complaint) = testkit::oracle::complaint(session.directory(), "tank") {
        panic!("{complaint}");
    }
}

#[test]
fn hidden_datasets_are_shown_and_destroyed_and_nothing_else() {
    let session = Session::start();
    create(&session);
    for line in [
        "zfs create -s -V 8M tank/s",
        "zfs snapshot tank/s@1",
        "zfs set org:note=yes tank/s",
        "zfs snapshot tank/s@2",
    ] {
        make(&session, line);
    }
    let (full, more) = (sent(&session, "tank/s@1"), sent(&session, "-i @1 tank/s@2"));
    received(&session, "tank/r", &full);
    // All but its end.
    assert_eq!(receive(&session, "-s tank/r", &more[..more.len() - 312]).code, 1);
    assert_eq!(value(&session, "origin", "tank/r/%recv"), "tank/r@1 -");
    for line in [
        "zfs promote tank/r/%recv",
        "zfs rename tank/r/%recv tank/x",
        "zfs snapshot tank/r/%recv@x",
        "zfs set org:a=b tank/r/%recv",
        "zfs inherit org:a tank/r/%recv",
        "zfs send tank/r/%recv",
        "zfs clone tank/r/%recv@1 tank/x",
        "zfs create tank/r/%recv/x",
        "zfs receive -A tank/r/%recv",
    ] {
        let ended = session.run(&line.split(' ').collect::<Vec<_>>());
        assert!(ended.code == 1 && ended.err.contains('%'), "{line}: {} {}", ended.code, ended.err);
    }
    make(&session, "zfs destroy tank/r/%recv");
    received(&session, "tank/r", &more);
    make(&session, "zfs destroy -r tank/r");
    end(&session);
}
