//! `cenote replicate`: from pool to pool, and to another daemon as if by ssh.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::session::{Ended, Session};

fn create(session: &Session, pool: &str) {
    let disk = session.directory().join(pool);
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    session.print(&["zpool", "create", "-O", "mountpoint=none", pool, disk.to_str().unwrap()]);
}

fn both() -> Session {
    let session = Session::start();
    create(&session, "tank");
    create(&session, "back");
    session
}

/// The snapshots below a dataset, without its name, oldest first.
fn snapshots(session: &Session, dataset: &str) -> Vec<String> {
    let listed =
        session.print(&["zfs", "list", "-Hr", "-t", "snapshot", "-o", "name", "-s", "createtxg", dataset]);
    listed.lines().map(|name| name.strip_prefix(dataset).unwrap().to_owned()).collect()
}

fn guid(session: &Session, name: &str) -> String {
    session.print(&["zfs", "get", "-Hpo", "value", "guid", name])
}

fn holds(session: &Session, name: &str) -> Vec<String> {
    let listed = session.print(&["zfs", "holds", "-H", name]);
    listed.lines().map(|line| line.split('\t').nth(1).unwrap().to_owned()).collect()
}

fn replicate(session: &Session, arguments: &[&str]) -> Vec<Value> {
    let printed = session.print(&[&["replicate", "--json"], arguments].concat());
    let document: Value = serde_json::from_str(&printed).unwrap();
    document["datasets"].as_array().unwrap().clone()
}

fn states(outcomes: &[Value]) -> Vec<&str> {
    outcomes.iter().map(|outcome| outcome["state"].as_str().unwrap()).collect()
}

fn refused(session: &Session, arguments: &[&str]) -> String {
    let ended = session.run(&[&["replicate"], arguments].concat());
    assert_eq!((ended.code, &*ended.out), (1, ""), "{arguments:?}: {}", ended.err);
    ended.err
}

#[test]
fn datasets_with_all_below_come_over_and_then_what_changed() {
    let session = both();
    session.print(&["zfs", "create", "tank/a"]);
    session.print(&["zfs", "create", "tank/a/b"]);
    session.print(&["zfs", "create", "-s", "-V", "8M", "tank/a/v"]);
    session.print(&["zfs", "snapshot", "-r", "tank/a@one"]);
    session.print(&["zfs", "snapshot", "tank/a@two"]);
    let would = session.print(&["replicate", "-rn", "tank/a", "back/a"]);
    assert_eq!(would.lines().count(), 3, "{would}");
    assert!(would.starts_with("would send tank/a@cenote-replicate_2"), "{would}");
    assert_eq!(snapshots(&session, "tank").len(), 4, "a dry run takes nothing");

    let first = replicate(&session, &["-r", "--no-snapshot", "tank/a", "back/a"]);
    assert_eq!(states(&first), ["sent"; 3]);
    assert_eq!(snapshots(&session, "back/a"), ["@one", "@two", "/b@one", "/v@one"].map(String::from));
    assert_eq!(guid(&session, "tank/a/v@one"), guid(&session, "back/a/v@one"));
    let shown = session.print(&["zfs", "get", "-Ho", "value,source", "readonly", "back/a/b"]);
    assert_eq!(shown, "on\tlocal\n");
    assert_eq!(holds(&session, "back/a@two"), ["cenote-replicate"]);
    assert_eq!(holds(&session, "tank/a@two"), ["cenote-replicate:back/a"]);
    let again = replicate(&session, &["-r", "--no-snapshot", "tank/a", "back/a"]);
    assert_eq!(states(&again), ["up-to-date"; 3]);

    let more = replicate(&session, &["-r", "tank/a", "back/a"]);
    assert_eq!(states(&more), ["sent"; 3]);
    assert_eq!(more[0]["from"], "tank/a@two");
    let target = more[0]["to"].as_str().unwrap();
    assert_eq!(holds(&session, target), ["cenote-replicate:back/a"]);
    assert_eq!(holds(&session, "tank/a@two"), Vec::<String>::new(), "the hold went on");
    assert_eq!(holds(&session, "back/a@two"), Vec::<String>::new());
    let mark = session.print(&["zfs", "get", "-Ho", "value", "org.cenote:replicate", target]);
    assert_eq!(mark, "back/a\n");
}

#[test]
fn what_is_sent_from_may_be_a_bookmark_and_names_do_not_matter() {
    let session = both();
    session.print(&["zfs", "create", "tank/a"]);
    session.print(&["zfs", "snapshot", "tank/a@one"]);
    replicate(&session, &["--no-snapshot", "--no-holds", "tank/a", "back/a"]);
    assert_eq!(holds(&session, "back/a@one"), Vec::<String>::new());
    session.print(&["zfs", "bookmark", "tank/a@one", "tank/a#mark"]);
    session.print(&["zfs", "destroy", "tank/a@one"]);
    session.print(&["zfs", "rename", "back/a@one", "back/a@renamed"]);
    session.print(&["zfs", "snapshot", "tank/a@two"]);
    let sent = replicate(&session, &["--no-snapshot", "tank/a", "back/a"]);
    assert_eq!((states(&sent), &sent[0]["from"]), (vec!["sent"], &Value::from("tank/a#mark")));
    assert_eq!(snapshots(&session, "back/a"), ["@renamed", "@two"].map(String::from));
}

#[test]
fn what_the_destination_has_of_its_own_is_never_destroyed_unasked() {
    let session = both();
    session.print(&["zfs", "create", "tank/a"]);
    session.print(&["zfs", "snapshot", "tank/a@one"]);
    // Another dataset of that name, with a snapshot of the same name.
    session.print(&["zfs", "create", "back/a"]);
    let said = refused(&session, &["--no-snapshot", "tank/a", "back/a"]);
    assert!(said.contains("'back/a' is there and has no snapshot"), "{said}");
    session.print(&["zfs", "snapshot", "back/a@one"]);
    for force in [&[][..], &["--force"]] {
        let said = refused(&session, &[&["--no-snapshot", "tank/a", "back/a"], force].concat());
        assert!(said.contains("have no snapshot in common"), "{said}");
    }
    assert_eq!(snapshots(&session, "back/a"), ["@one"]);
    refused(&session, &["tank/a", "back/a"]);
    assert_eq!(snapshots(&session, "tank/a"), ["@one"], "what could not be sent was not kept");
    session.print(&["zfs", "rename", "back/a", "back/old"]);

    replicate(&session, &["--no-snapshot", "tank/a", "back/a"]);
    session.print(&["zfs", "snapshot", "back/a@own"]);
    assert_eq!(states(&replicate(&session, &["--no-snapshot", "tank/a", "back/a"])), ["up-to-date"]);
    session.print(&["zfs", "snapshot", "tank/a@two"]);
    let said = refused(&session, &["--no-snapshot", "tank/a", "back/a"]);
    assert!(said.contains("would be destroyed: back/a@own."), "{said}");
    assert_eq!(snapshots(&session, "back/a"), ["@one", "@own"].map(String::from));
    replicate(&session, &["--no-snapshot", "--force", "tank/a", "back/a"]);
    assert_eq!(snapshots(&session, "back/a"), ["@one", "@two"].map(String::from));

    for (arguments, words) in [
        (["tank/none", "back/b"], "cannot open 'tank/none': dataset does not exist"),
        (["tank/a", "back/none/b"], "'back/none' does not exist there"),
        (["tank/a", "tank/a/b"], "into itself"),
    ] {
        let said = refused(&session, &arguments);
        assert!(said.contains(words), "{said}");
    }
    session.print(&["zfs", "create", "tank/empty"]);
    assert!(
        refused(&session, &["--no-snapshot", "tank/empty", "back/e"]).contains("has no snapshot to send")
    );
    assert_eq!(session.run(&["replicate", "tank/a@one", "back/e"]).code, 2);
    assert_eq!(session.run(&["replicate", "--keep", "0", "tank/a", "back/e"]).code, 2);
}

#[test]
fn beyond_what_is_kept_goes_what_replication_took_and_brought() {
    let session = both();
    session.print(&["zfs", "create", "tank/a"]);
    session.print(&["zfs", "snapshot", "tank/a@mine"]);
    let own = |hour: u32| format!("tank/a@cenote-replicate_2020-01-01_{hour:02}:00:00");
    for hour in 0..4 {
        session.print(&["zfs", "snapshot", "-o", "org.cenote:replicate=back/a", &own(hour)]);
    }
    session.print(&["zfs", "snapshot", &own(5)]);
    session.print(&["zfs", "snapshot", "-o", "org.cenote:replicate=host:back/a", &own(6)]);
    for hour in 0..3 {
        session.print(&["zfs", "snapshot", &format!("tank/a@autosnap_2020-01-01_0{hour}:00:00_hourly")]);
    }
    session.print(&["zfs", "hold", "keep", &own(1)]);
    let sent = replicate(&session, &["--keep", "replicate=2,hourly=1", "tank/a", "back/a"]);
    let newest = sent[0]["to"].as_str().unwrap().split_once('@').unwrap().1.to_owned();
    let short = |name: String| name.split_once('@').unwrap().1.to_owned();
    let hourly = |hour: u32| format!("autosnap_2020-01-01_0{hour}:00:00_hourly");
    let expected = |all: Vec<String>| all.into_iter().map(|name| format!("@{name}")).collect::<Vec<_>>();
    // Here: only what was taken for this destination, and not what is held.
    let here = [own(1), own(3), own(5), own(6)].map(short).to_vec();
    let here = [vec!["mine".to_owned()], here, (0..3).map(hourly).collect(), vec![newest.clone()]].concat();
    assert_eq!(snapshots(&session, "tank/a"), expected(here));
    // There: of each series that was brought; what a person named stays.
    let there = vec!["mine".to_owned(), short(own(6)), hourly(2), newest];
    assert_eq!(snapshots(&session, "back/a"), expected(there));
    session.print(&["zfs", "snapshot", "back/a@own"]);
    session.print(&["zfs", "destroy", "back/a@own"]);
}

/// What stands for ssh: it runs the line on another daemon.
fn rsh(there: &Session) -> PathBuf {
    let script = there.directory().join("rsh");
    let socket = there.directory().join("api.sock");
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = -q ] && shift\n[ \"$1\" = host ] || {{ echo 'no such host' >&2; exit 255; }}\n\
         export CENOTE_SOCKET='{}'\nshift\nexec sh -c \"$*\"\n",
        socket.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

#[test]
fn another_machine_gets_them_and_what_broke_off_is_resumed() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let stream = fs::read(golden.expect("streams").join("full")).unwrap();
    let (here, there) = (Session::start(), Session::start());
    create(&here, "tank");
    create(&there, "back");
    let received = here.run_with(&["zfs", "receive", "-u", "tank/a"], &stream);
    assert_eq!(received.code, 0, "{}", received.err);
    // What breaks the stream off, as long as the file is there.
    let (script, broken) = (there.directory().join("zfs"), there.directory().join("broken"));
    let program = env!("CARGO_BIN_EXE_cenote");
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = receive ] && [ -e '{0}' ]; then\n\
         head -c 3000000 | '{program}' zfs \"$@\"\nelse\n  exec '{program}' zfs \"$@\"\nfi\n",
        broken.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let rsh = format!("{} -q", rsh(&there).display());
    let run = |destination: &str, options: &[&str]| -> Ended {
        let words = ["replicate", "--rsh", &rsh, "--remote-zfs", script.to_str().unwrap(), "tank/a"];
        here.run(&[&words[..], &[destination], options].concat())
    };
    let unknown = run("elsewhere:back/a", &[]);
    assert_eq!((unknown.code, unknown.err.contains("elsewhere: no such host")), (1, true), "{}", unknown.err);

    fs::write(&broken, "").unwrap();
    let ended = run("host:back/a", &["--no-snapshot"]);
    assert_eq!(ended.code, 1, "{}", ended.out);
    assert!(ended.err.starts_with("cannot replicate 'tank/a' to 'host:back/a': host: "), "{}", ended.err);
    let token = there.print(&["zfs", "get", "-Ho", "value", "receive_resume_token", "back/a"]);
    assert_ne!(token, "-\n");
    fs::remove_file(&broken).unwrap();
    let would = run("host:back/a", &["--no-snapshot", "--dry-run"]);
    assert_eq!(would.out, "would resume tank/a to host:back/a\n", "{}", would.err);
    let ended = run("host:back/a", &["--no-snapshot"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.starts_with("tank/a to host:back/a, resumed: "), "{}", ended.out);
    assert_eq!(guid(&here, "tank/a@a"), guid(&there, "back/a@a"));
    assert_eq!(holds(&there, "back/a@a"), ["cenote-replicate"]);
    assert_eq!(holds(&here, "tank/a@a"), ["cenote-replicate:host:back/a"]);
    let ended = run("host:back/a", &["--raw", "--props"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(snapshots(&there, "back/a").len(), 2);
}
