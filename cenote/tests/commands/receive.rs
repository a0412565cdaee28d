//! `zfs receive`: streams that OpenZFS made, through the command and the daemon.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::session::Session;

/// A pool that is mounted below the session's directory. Where `/tank` is then.
fn create(session: &Session) -> String {
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(512 << 20).unwrap();
    let root = session.directory().join("root");
    session.print(&["zpool", "create", "-R", root.to_str().unwrap(), "tank", disk.to_str().unwrap()]);
    root.join("tank").to_str().unwrap().to_owned()
}

fn stream(name: &str) -> Option<Vec<u8>> {
    let golden = testkit::golden::pool("streams")?;
    Some(fs::read(golden.expect("streams").join(name)).unwrap())
}

/// Receives, which must do. Gives what is printed.
fn receive(session: &Session, arguments: &[&str], stream: &[u8]) -> String {
    let ended = session.run_with(&[&["zfs", "receive"], arguments].concat(), stream);
    assert_eq!((ended.code, &*ended.err), (0, ""), "{arguments:?}");
    ended.out
}

/// Receives, which must not do. Gives the message.
fn refused(session: &Session, arguments: &[&str], stream: &[u8]) -> String {
    let ended = session.run_with(&[&["zfs", "receive"], arguments].concat(), stream);
    assert_eq!((ended.code, &*ended.out), (1, ""), "{arguments:?}: {}", ended.err);
    ended.err
}

fn names(session: &Session) -> Vec<String> {
    let listed = session.print(&["zfs", "list", "-H", "-t", "all", "-o", "name"]);
    listed.lines().map(str::to_owned).collect()
}

fn value(session: &Session, property: &str, name: &str) -> String {
    session.print(&["zfs", "get", "-H", "-o", "value,source", property, name]).trim_end().replace('\t', " ")
}

#[test]
fn a_mounted_filesystem_goes_on_with_what_it_received() {
    if testkit::skipped("fuse", "a filesystem that is received into") {
        return;
    }
    let (Some(full), Some(more)) = (stream("full"), stream("inc")) else { return };
    let session = Session::start();
    let at = create(&session);
    let out = receive(&session, &["-v", "-o", "atime=off", "tank/copy"], &full);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "receiving full stream of streams/fs@a into tank/copy@a");
    assert!(lines[1].starts_with("received 9.52M stream in "), "{out}");
    let copy = Path::new(&at).join("copy");
    assert!(copy.join("many").exists(), "it is mounted");
    let held = File::open(&copy).unwrap();
    receive(&session, &["tank/copy"], &more);
    assert!(!copy.join("many").exists() && copy.join("n").exists(), "the mount shows the new contents");
    drop(held);
    assert_eq!(names(&session), ["tank", "tank/copy", "tank/copy@a", "tank/copy@b"]);
    // The same snapshot again is no mistake.
    assert_eq!(receive(&session, &["-v", "tank/copy"], &more), "snap tank/copy@b already exists; ignoring\n");
    fs::write(copy.join("mine"), "mine").unwrap();
    let third = stream("inc-I").unwrap();
    let message = refused(&session, &["tank/copy"], &third);
    let expected = "cannot receive incremental stream: destination tank/copy has been modified\n\
        since most recent snapshot\n";
    assert_eq!(message, expected);
    receive(&session, &["-F", "tank/copy"], &third);
    assert!(!copy.join("mine").exists());
    assert_eq!(names(&session).last().unwrap(), "tank/copy@c");
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn what_is_received_is_called_after_what_was_sent() {
    let Some(all) = stream("repl") else { return };
    let session = Session::start();
    create(&session);
    session.print(&["zfs", "create", "-u", "tank/d"]);
    session.print(&["zfs", "create", "-u", "tank/e"]);
    let out = receive(&session, &["-n", "-v", "-d", "tank/d"], &all);
    assert!(out.ends_with("would receive full stream of streams/fs/kid@c into tank/d/fs/kid@c\n"), "{out}");
    assert_eq!(names(&session).len(), 3, "nothing was received");
    receive(&session, &["-u", "-d", "tank/d"], &all);
    receive(&session, &["-u", "-e", "-x", "compression", "-o", "recordsize=8K", "tank/e"], &all);
    receive(&session, &["-u", "tank/x"], &all);
    let expected = ["tank/x", "tank/x@a", "tank/x@b", "tank/x@c", "tank/x/kid", "tank/x/kid@c"];
    assert_eq!(names(&session)[names(&session).len() - 6..], expected);
    assert!(names(&session).contains(&"tank/d/fs/kid@c".to_owned()));
    assert!(names(&session).contains(&"tank/e/fs/kid@c".to_owned()));
    assert_eq!(value(&session, "compression", "tank/x"), "lz4 received");
    assert_eq!(value(&session, "recordsize", "tank/x"), "1M received");
    assert_eq!(value(&session, "recordsize", "tank/x/kid"), "1M inherited from tank/x");
    assert_eq!(value(&session, "recordsize", "tank/e/fs"), "8K local");
    assert_eq!(value(&session, "compression", "tank/e/fs"), "on default");
    session.print(&["zfs", "inherit", "-S", "recordsize", "tank/e/fs"]);
    assert_eq!(value(&session, "recordsize", "tank/e/fs"), "1M received");
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn an_interrupted_receive_is_kept_or_given_up() {
    let Some(full) = stream("full") else { return };
    let session = Session::start();
    create(&session);
    let half = &full[..full.len() / 2];
    let message = refused(&session, &["tank/copy"], half);
    assert!(message.starts_with("cannot receive new filesystem stream: incomplete stream"), "{message}");
    assert_eq!(names(&session), ["tank"]);
    let message = refused(&session, &["-s", "tank/copy"], half);
    assert!(message.contains(".\nPartially received snapshot is saved.\nA resuming stream can be generated"));
    let token = value(&session, "receive_resume_token", "tank/copy");
    let token = token.split(' ').next().unwrap();
    assert!(message.trim_end().ends_with(&format!("zfs send -t {token}")), "{message}");
    let message = refused(&session, &["-F", "tank/copy"], &full);
    assert!(message.contains("contains partially-complete state from \"zfs receive -s\"."), "{message}");
    // It survives the pool's way out and back.
    session.print(&["zpool", "export", "tank"]);
    session.print(&["zpool", "import", "-N", "-d", session.directory().to_str().unwrap(), "tank"]);
    assert_eq!(value(&session, "receive_resume_token", "tank/copy").split(' ').next().unwrap(), token);
    let mounted = session.run(&["zfs", "mount", "tank/copy"]);
    assert_eq!(mounted.code, 1, "{}", mounted.err);
    session.print(&["zfs", "receive", "-A", "tank/copy"]);
    assert_eq!(names(&session), ["tank"]);
    let again = session.run(&["zfs", "receive", "-A", "tank"]);
    assert_eq!(again.err, "'tank' does not have any resumable receive state to abort\n");
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn refusals_are_openzfs_s() {
    let (Some(full), Some(more)) = (stream("full"), stream("inc")) else { return };
    let session = Session::start();
    create(&session);
    let says = |arguments: &[&str], bytes: &[u8]| refused(&session, arguments, bytes);
    assert_eq!(says(&["tank/copy"], b""), "cannot receive: failed to read from stream\n");
    assert!(
        says(&["tank/copy"], &[7; 4096]).starts_with("cannot receive: invalid stream (bad magic number)")
    );
    assert_eq!(
        says(&["tank/copy"], &more),
        "cannot receive incremental stream: destination 'tank/copy' does not exist\n"
    );
    assert_eq!(
        says(&["tank/no/copy"], &full),
        "cannot receive new filesystem stream: destination 'tank/no' does not exist\n"
    );
    assert_eq!(
        says(&["tank"], &full),
        "cannot receive new filesystem stream: destination 'tank' exists\nmust specify -F to overwrite it\n"
    );
    receive(&session, &["-u", "tank/copy@mine"], &full);
    assert_eq!(
        says(&["-F", "tank/copy"], &full),
        "cannot receive new filesystem stream: destination has snapshots (eg. tank/copy@mine)\n\
         must destroy them to overwrite it\n"
    );
    session.print(&["zfs", "snapshot", "tank/copy@later"]);
    assert_eq!(session.run_with(&["zfs", "recv", "none/copy"], &full).code, 1);
    let usage = session.run_with(&["zfs", "receive", "-d", "-e", "tank"], &full);
    assert_eq!(usage.code, 2, "{}", usage.err);
    session.print(&["zpool", "export", "tank"]);
}

/// A command that receives and waits for more.
fn receiving(session: &Session, arguments: &[&str], part: &[u8]) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cenote"))
        .args([&["zfs", "receive"], arguments].concat())
        .env("CENOTE_SOCKET", session.directory().join("api.sock"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(part).unwrap();
    until(|| names(session).contains(&"tank/copy".to_owned()));
    child
}

/// Waits for a condition.
fn until(is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::yield_now();
    }
}

#[test]
fn a_client_or_a_pool_that_goes_away_ends_the_receive() {
    let Some(full) = stream("full") else { return };
    let session = Session::start();
    create(&session);
    let half = &full[..full.len() / 2];
    let mut child = receiving(&session, &["tank/copy"], half);
    let busy = session.run(&["zpool", "export", "tank"]);
    assert_eq!(busy.err, "cannot export 'tank': pool is busy: a stream is being received\n");
    let busy = session.run(&["zfs", "destroy", "tank/copy"]);
    assert!(busy.code == 1 && busy.err.contains("dataset is busy"), "{}", busy.err);
    let busy = refused(&session, &["-F", "tank/copy"], &full);
    assert!(busy.contains("is being received into"), "{busy}");
    child.kill().unwrap();
    child.wait().unwrap();
    until(|| names(&session) == ["tank"]);

    let child = receiving(&session, &["-s", "tank/copy"], half);
    session.print(&["zpool", "export", "-f", "tank"]);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && said.starts_with("cannot receive"), "{said}");
    session.print(&["zpool", "import", "-N", "-d", session.directory().to_str().unwrap(), "tank"]);
    assert_eq!(names(&session), ["tank", "tank/copy"]);
    // The daemon's end is one too.
    session.print(&["zfs", "receive", "-A", "tank/copy"]);
    let mut child = receiving(&session, &["tank/copy"], half);
    session.stop();
    child.wait().unwrap();
}

/// What `zfs send` writes.
fn sent(session: &Session, arguments: &[&str]) -> Vec<u8> {
    let (bytes, ended) = session.run_bytes(&[&["zfs", "send"], arguments].concat());
    assert_eq!((ended.code, &*ended.err), (0, ""), "{arguments:?}");
    bytes
}

/// The guids of snapshots below a dataset, by their names below it.
fn guids(session: &Session, below: &str) -> Vec<(String, String)> {
    let arguments = ["zfs", "get", "-r", "-H", "-t", "snapshot", "-o", "name,value", "guid", below];
    let listed = session.print(&arguments);
    let pair = |line: &str| {
        let (name, guid) = line.split_once('\t').unwrap();
        (name.strip_prefix(below).unwrap().to_owned(), guid.to_owned())
    };
    listed.lines().map(pair).collect()
}

#[test]
fn a_tree_of_datasets_is_kept_like_that_of_its_sender() {
    let session = Session::start();
    create(&session);
    let make = |line: &str| drop(session.print(&line.split(' ').collect::<Vec<_>>()));
    for line in [
        "zfs create -u -o quota=100M tank/s",
        "zfs create -u -o org.test:note=yes tank/s/kid",
        "zfs create -u tank/s/old",
        "zfs create -s -V 8M tank/s/vol",
        "zfs snapshot -r tank/s@one",
        "zfs clone -o mountpoint=none tank/s/kid@one tank/s/clone",
        "zfs snapshot -r tank/s@two",
        "zfs hold keep tank/s/kid@two",
    ] {
        make(line);
    }
    receive(&session, &["-u", "tank/r"], &sent(&session, &["-R", "-h", "tank/s@two"]));
    assert_eq!(guids(&session, "tank/r"), guids(&session, "tank/s"));
    assert_eq!(value(&session, "quota", "tank/r"), "100M received");
    assert_eq!(value(&session, "org.test:note", "tank/r/kid"), "yes received");
    assert_eq!(value(&session, "origin", "tank/r/clone"), "tank/r/kid@one -");
    assert_eq!(value(&session, "volsize", "tank/r/vol"), "8M local");
    assert!(session.print(&["zfs", "holds", "tank/r/kid@two"]).contains("keep"));

    for line in [
        "zfs rename tank/s/old tank/s/renamed",
        "zfs rename tank/s@one tank/s@first",
        "zfs create -u tank/s/kid/new",
        "zfs destroy tank/s/vol@one",
        "zfs inherit org.test:note tank/s/kid",
        "zfs set quota=50M tank/s",
        "zfs snapshot -r tank/s@three",
        // The receiver has something of its own.
        "zfs create -u tank/r/mine",
    ] {
        make(line);
    }
    let more = sent(&session, &["-R", "-I", "@two", "tank/s@three"]);
    receive(&session, &["-u", "-F", "tank/r"], &more);
    assert_eq!(guids(&session, "tank/r"), guids(&session, "tank/s"));
    assert!(!names(&session).contains(&"tank/r/mine".to_owned()));
    assert_eq!(value(&session, "quota", "tank/r"), "50M received");
    assert_eq!(value(&session, "org.test:note", "tank/r/kid"), "- -");
    // The same again changes nothing.
    receive(&session, &["-u", "-F", "tank/r"], &more);
    assert_eq!(guids(&session, "tank/r"), guids(&session, "tank/s"));
    session.print(&["zpool", "export", "tank"]);
    let disk = session.directory().to_owned();
    if let Some(complaint) = testkit::oracle::complaint(&disk, "tank") {
        panic!("{complaint}");
    }
}

#[test]
fn a_sender_goes_on_with_the_token_of_the_receiver() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let session = Session::start();
    create(&session);
    session.import(&golden.dir, "streams");
    let full = sent(&session, &["streams/fs@a"]);
    let mut stream = full.clone();
    for part in [4, 3, 2] {
        stream.truncate(stream.len() / part);
        refused(&session, &["-s", "tank/copy"], &stream);
        let token = value(&session, "receive_resume_token", "tank/copy");
        let token = token.split(' ').next().unwrap().to_owned();
        stream = sent(&session, &["-t", &token]);
        assert!(stream.len() < full.len());
    }
    receive(&session, &["-s", "-u", "tank/copy"], &stream);
    assert_eq!(value(&session, "receive_resume_token", "tank/copy"), "- -");
    let more = sent(&session, &["-i", "@a", "streams/fs@b"]);
    refused(&session, &["-s", "tank/copy"], &more[..more.len() / 2]);
    let token = value(&session, "receive_resume_token", "tank/copy");
    let token = token.split(' ').next().unwrap();
    receive(&session, &["-s", "tank/copy"], &sent(&session, &["-t", token]));
    assert_eq!(names(&session).last().unwrap(), "tank/copy@b");
    assert_eq!(value(&session, "guid", "tank/copy@b"), value(&session, "guid", "streams/fs@b"));
    session.print(&["zpool", "export", "streams"]);
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn what_a_broken_receive_left_goes_with_its_dataset() {
    let Some(full) = stream("full") else { return };
    let session = Session::start();
    create(&session);
    session.print(&["zfs", "create", "-u", "tank/empty"]);
    refused(&session, &["-s", "-F", "tank/empty"], &full[..full.len() / 2]);
    assert_ne!(value(&session, "receive_resume_token", "tank/empty"), "- -");
    session.print(&["zfs", "destroy", "tank/empty"]);
    assert_eq!(names(&session), ["tank"]);
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn a_stream_that_breaks_off_leaves_the_received_properties_as_they_were() {
    let session = Session::start();
    create(&session);
    session.print(&["zfs", "create", "-u", "-o", "compression=gzip-1", "-o", "org:user=one", "tank/from"]);
    session.print(&["zfs", "snapshot", "tank/from@1"]);
    receive(&session, &["-u", "tank/to"], &sent(&session, &["-p", "tank/from@1"]));
    session.print(&["zfs", "set", "compression=gzip-2", "tank/from"]);
    session.print(&["zfs", "inherit", "org:user", "tank/from"]);
    session.print(&["zfs", "snapshot", "tank/from@2"]);
    let more = sent(&session, &["-p", "-i", "@1", "tank/from@2"]);
    refused(&session, &["-F", "tank/to"], &more[..more.len() - 700]);
    session.print(&["zfs", "set", "org:kept=mine", "tank/to"]);
    assert_eq!(value(&session, "compression", "tank/to"), "gzip-1 received");
    assert_eq!(value(&session, "org:user", "tank/to"), "one received");
    receive(&session, &["-F", "-x", "org:kept", "tank/to"], &more);
    assert_eq!(value(&session, "org:kept", "tank/to"), "mine local");
    assert_eq!(value(&session, "compression", "tank/to"), "gzip-2 received");
    assert_eq!(value(&session, "org:user", "tank/to"), "- -");
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let session = Session::start();
    create(&session);
    session.print(&["zfs", "create", "-u", "tank/from"]);
    session.print(&["zfs", "snapshot", "tank/from@1"]);
    let stream = sent(&session, &["tank/from@1"]);
    let expected = "specified fs (tank/none) does not exist";
    assert!(refused(&session, &["-d", "tank/none"], &stream).contains(expected));
    for (arguments, why) in [
        (&["-x", "compress", "-x", "compression", "tank/to"][..], "specified multiple times"),
        (&["-o", "atime=off", "-x", "atime", "tank/to"], "specified multiple times"),
        (&["-x", "normalization", "tank/to"], "comes with the data"),
        (&["-x", "version", "tank/to"], "comes with the data"),
        (&["-V", "tank/to"], "invalid option 'V'"),
    ] {
        let ended = session.run_with(&[&["zfs", "receive"], arguments].concat(), &stream);
        assert_eq!(ended.code, 2, "{arguments:?}");
        assert!(ended.err.contains(why), "{}", ended.err);
    }
    let twice = session.run(&["zfs", "send", "-i", "@1", "-I", "@1", "tank/from@1"]);
    assert_eq!(twice.code, 2, "{}", twice.err);
    let same = session.run(&["zfs", "send", "-R", "-i", "1", "tank/from@1"]);
    let expected =
        "WARNING: could not send tank/from@1:\nincremental source (tank/from@1) is not earlier than it";
    assert_eq!(same.code, 1);
    assert!(same.err.contains(expected), "{}", same.err);
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn a_stream_of_a_filesystem_itself_is_resumed() {
    let session = Session::start();
    create(&session);
    session.print(&["zfs", "create", "-V", "8M", "tank/from"]);
    let whole = sent(&session, &["tank/from"]);
    refused(&session, &["-s", "tank/to"], &whole[..whole.len() - 700]);
    let token = value(&session, "receive_resume_token", "tank/to");
    let rest = sent(&session, &["-t", token.split(' ').next().unwrap()]);
    receive(&session, &["-s", "tank/to"], &rest);
    assert_eq!(names(&session), ["tank", "tank/from", "tank/to", "tank/to@--head--"]);
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn a_mount_shows_the_filesystem_that_took_the_place_of_another() {
    if testkit::skipped("fuse", "a filesystem that is received into") {
        return;
    }
    let Some(full) = stream("full") else { return };
    let session = Session::start();
    let at = create(&session);
    session.print(&["zfs", "create", "tank/other"]);
    let other = Path::new(&at).join("other");
    fs::write(other.join("mine"), "mine").unwrap();
    let root = File::open(&other).unwrap();
    receive(&session, &["-F", "-o", "atime=off", "tank/other"], &full);
    assert_eq!(value(&session, "atime", "tank/other"), "off local");
    assert!(!other.join("mine").exists() && other.join("many").exists());
    let listed = fs::read_dir(&other).unwrap().count();
    session.print(&["zfs", "clone", "tank/other@a", "tank/clone"]);
    assert_eq!(listed, fs::read_dir(Path::new(&at).join("clone")).unwrap().count());
    fs::write(other.join("new"), "new").unwrap();
    drop(root);
    session.print(&["zpool", "export", "tank"]);
}
