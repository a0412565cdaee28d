//! `zfs send`: streams on standard output, and what is told beside them.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use ondisk::send::{Record, StreamReader};

use crate::session::{Ended, Session};

/// What `zfs send` writes to standard output; it must not fail.
fn sent(session: &Session, arguments: &[&str]) -> Vec<u8> {
    let (bytes, Ended { code, err, .. }) = session.run_bytes(&[&["zfs", "send"], arguments].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
    bytes
}

/// The records of a whole stream.
fn records(stream: &[u8]) -> Vec<Record> {
    let (mut reader, mut input) = (StreamReader::new(), stream);
    let mut records = Vec::new();
    while let Some(item) = reader.next_in(&mut input).unwrap() {
        records.push(item.record);
    }
    assert!(reader.may_end());
    records
}

#[test]
fn streams_of_a_pool_of_openzfs_are_those_that_it_made() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let session = Session::start();
    session.import(&golden.dir, "streams");
    let commands: [(&str, &[&str]); 7] = [
        ("full", &["streams/fs@a"]),
        ("inc", &["-i", "@a", "streams/fs@b"]),
        ("inc-bm", &["-i", "#bm", "streams/fs@b"]),
        ("inc-I", &["-I", "@a", "streams/fs@c"]),
        ("full-Lp", &["-Lp", "streams/fs@b"]),
        ("repl", &["-R", "streams/fs@c"]),
        ("vol", &["streams/v@x"]),
    ];
    for (name, arguments) in commands {
        let expected = fs::read(golden.expect("streams").join(name)).unwrap();
        assert!(sent(&session, arguments) == expected, "{name}");
    }
}

#[test]
fn a_dry_run_tells_what_would_be_sent() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let session = Session::start();
    session.import(&golden.dir, "streams");
    let print = |arguments: &[&str]| session.print(&[&["zfs", "send", "-n"], arguments].concat());
    assert_eq!(print(&["streams/fs@a"]), "");
    let told = print(&["-v", "streams/fs@a"]);
    let size = told.lines().next().unwrap().strip_prefix("full send of streams/fs@a estimated size is ");
    assert_eq!(told.lines().nth(1).unwrap(), format!("total estimated size is {}", size.unwrap()), "{told}");
    let told = print(&["-P", "-i", "#bm", "streams/fs@b"]);
    let lines: Vec<&str> = told.lines().collect();
    let size = lines[0].strip_prefix("incremental\tstreams/fs#bm\tstreams/fs@b\t").unwrap();
    assert_eq!(lines[1], format!("size\t{size}"));
    let told = print(&["-P", "-I", "@a", "streams/fs@c"]);
    assert!(told.starts_with("incremental\ta\tstreams/fs@b\t"), "{told}");
    assert!(told.lines().nth(1).unwrap().starts_with("incremental\tb\tstreams/fs@c\t"), "{told}");
    let told = print(&["-v", "-R", "streams/fs@c"]);
    assert_eq!(told.lines().count(), 5, "four streams and their sum: {told}");
    // A stream that is sent tells the same on standard error.
    let (stream, ended) = session.run_bytes(&["zfs", "send", "-v", "streams/fs@a"]);
    assert_eq!(ended.err.lines().count(), 3, "{}", ended.err);
    assert!(ended.err.ends_with("TIME        SENT   SNAPSHOT streams/fs@a\n"), "{}", ended.err);
    assert!(!records(&stream).is_empty());
}

#[test]
fn what_cannot_be_sent_is_refused_in_openzfs_words() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let session = Session::start();
    session.import(&golden.dir, "streams");
    let refused: [(&[&str], &str); 9] = [
        (&["streams/none@a"], "cannot open 'streams/none@a': dataset does not exist\n"),
        (&["other/fs@a"], "cannot open 'other/fs@a': dataset does not exist\n"),
        (&["-i", "@none", "streams/fs@a"], "cannot open 'streams/fs@none': dataset does not exist\n"),
        (
            &["-i", "#none", "streams/fs@a"],
            "warning: cannot send 'streams/fs@a': incremental source (streams/fs#none) does not exist\n",
        ),
        (
            &["-i", "@b", "streams/fs@a"],
            "warning: cannot send 'streams/fs@a': not an earlier snapshot from the same fs\n",
        ),
        (&["-R", "streams/fs"], "Error: Unsupported flag with filesystem or bookmark.\n"),
        (&["-I", "#bm", "streams/fs@b"], "Error: multiple snapshots cannot be sent from a bookmark.\n"),
        (
            &["-X", "streams/fs/kid", "streams/fs@a"],
            "Cannot specify dataset exclusion (-X) on a non-recursive send.\n",
        ),
        (&["-t", "1-0-0-00"], "cannot resume send: resume token is corrupt (decompression failed)\n"),
    ];
    for (arguments, why) in refused {
        let (bytes, ended) = session.run_bytes(&[&["zfs", "send"], arguments].concat());
        assert_eq!((ended.code, ended.err.as_str(), bytes.len()), (1, why, 0), "{arguments:?}");
    }
    let usage = session.run(&["zfs", "send"]);
    assert!(usage.code == 2 && usage.err.starts_with("missing snapshot argument\n"), "{usage:?}");
    let usage = session.run(&["zfs", "send", "-s", "streams/fs@a"]);
    assert!(usage.code == 2 && usage.err.starts_with("skip-missing flag can only be used"), "{usage:?}");
}

#[test]
fn children_without_the_snapshot_are_left_out_where_that_is_asked_for() {
    let session = Session::start();
    pool_of(&session, 128);
    for name in ["tank/a", "tank/a/b", "tank/a/c"] {
        session.print(&["zfs", "create", "-u", name]);
    }
    session.print(&["zfs", "snapshot", "tank/a@s", "tank/a/b@s"]);
    let (_, ended) = session.run_bytes(&["zfs", "send", "-R", "tank/a@s"]);
    let why = "cannot send tank/a@s recursively: snapshot tank/a/c@s does not exist\n";
    assert_eq!((ended.code, ended.err.ends_with(why)), (1, true), "{}", ended.err);
    let (stream, ended) = session.run_bytes(&["zfs", "send", "-Rs", "tank/a@s"]);
    let why = "WARNING: skipping dataset tank/a/c and its children: snapshot s does not exist\n";
    assert_eq!((ended.code, ended.err.as_str()), (0, why));
    assert_eq!(begun(&stream), ["tank/a@s", "tank/a@s", "tank/a/b@s"]);
    session.print(&["zfs", "snapshot", "tank/a/c@s"]);
    let stream = sent(&session, &["-R", "-X", "tank/a/b", "tank/a@s"]);
    assert_eq!(begun(&stream), ["tank/a@s", "tank/a@s", "tank/a/c@s"]);
}

/// The names of the streams in a stream.
fn begun(stream: &[u8]) -> Vec<String> {
    let begins = records(stream).into_iter().filter_map(|record| match record {
        Record::Begin(begin) => Some(String::from_utf8(begin.to_name).unwrap()),
        _ => None,
    });
    begins.collect()
}

/// A pool of so many MiB.
fn pool_of(session: &Session, mib: u64) -> std::path::PathBuf {
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(mib << 20).unwrap();
    session.print(&["zpool", "create", "-O", "mountpoint=none", "tank", disk.to_str().unwrap()]);
    disk
}

/// A snapshot of a volume with 32 MiB that are not compressed.
fn large_snapshot(session: &Session) -> std::path::PathBuf {
    let disk = pool_of(session, 256);
    session.print(&["zfs", "create", "-V", "64M", "-o", "compression=off", "tank/v"]);
    write_volume(session, 1);
    session.print(&["zfs", "snapshot", "tank/v@a"]);
    disk
}

/// Fills the first 32 MiB of the volume with a byte.
fn write_volume(session: &Session, byte: u8) {
    let uri = format!("nbd+unix:///tank/v?socket={}", session.nbd_socket().display());
    let write = format!("write -P {byte} 0 32M");
    let io = Command::new("qemu-io").args(["-f", "raw", "-c", &write, "-c", "flush", &uri]).output();
    let io = io.unwrap_or_else(|error| panic!("qemu-io: {error}; see scripts/install-test-tools"));
    assert!(io.status.success(), "{}", String::from_utf8_lossy(&io.stdout));
}

#[test]
fn a_snapshot_that_is_destroyed_meanwhile_is_sent_to_its_end() {
    let session = Session::start();
    large_snapshot(&session);
    let expected = sent(&session, &["tank/v@a"]);
    let mut command = session.start_command(&["zfs", "send", "tank/v@a"]);
    let mut stream = vec![0; 1 << 20];
    let mut out = command.stdout.take().unwrap();
    out.read_exact(&mut stream).unwrap();
    session.print(&["zfs", "destroy", "tank/v@a"]);
    for seed in 2..5 {
        write_volume(&session, seed);
        session.print(&["zpool", "sync", "tank"]);
    }
    out.read_to_end(&mut stream).unwrap();
    assert!(command.wait().unwrap().success());
    assert!(stream == expected, "the snapshot's blocks were used again");
}

#[test]
fn a_client_that_goes_away_ends_its_stream() {
    let session = Session::start();
    large_snapshot(&session);
    let mut command = session.start_command(&["zfs", "send", "tank/v@a"]);
    let mut out = command.stdout.take().unwrap();
    out.read_exact(&mut [0; 4096]).unwrap();
    drop(out);
    let ended = command.wait_with_output().unwrap();
    assert_eq!(ended.status.signal(), Some(libc::SIGPIPE), "{ended:?}");
    // The pool would wait for a stream that reads it.
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn a_pool_that_is_exported_ends_its_streams_with_an_error() {
    let session = Session::start();
    large_snapshot(&session);
    let mut command = session.start_command(&["zfs", "send", "tank/v@a"]);
    let mut out = command.stdout.take().unwrap();
    out.read_exact(&mut [0; 4096]).unwrap();
    session.print(&["zpool", "export", "tank"]);
    out.read_to_end(&mut Vec::new()).unwrap();
    let ended = command.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("the pool is closed"), "{said}");
}

#[test]
fn a_daemon_that_dies_leaves_a_stream_without_its_end() {
    let session = Session::start();
    large_snapshot(&session);
    let mut command = session.start_command(&["zfs", "send", "tank/v@a"]);
    let mut out = command.stdout.take().unwrap();
    out.read_exact(&mut [0; 4096]).unwrap();
    session.kill();
    out.read_to_end(&mut Vec::new()).unwrap();
    let ended = command.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("broke off") || said.contains("ended before the stream did"), "{said}");
}

#[test]
fn damage_ends_a_stream_with_an_error() {
    let session = Session::start();
    let disk = large_snapshot(&session);
    session.print(&["zpool", "export", "tank"]);
    damage(&disk);
    let folder = session.directory().to_str().unwrap().to_owned();
    session.print(&["zpool", "import", "-N", "-d", &folder, "tank"]);
    let (stream, ended) = session.run_bytes(&["zfs", "send", "tank/v@a"]);
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.starts_with("warning: cannot send 'tank/v@a': objset "), "{}", ended.err);
    let mut reader = StreamReader::new();
    let mut input = &stream[..];
    while let Ok(Some(item)) = reader.next_in(&mut input) {
        assert!(!matches!(item.record, Record::End(_)), "a stream with damage looks whole");
    }
}

/// Changes a byte in the middle of what was written to the volume.
fn damage(disk: &Path) {
    let file = File::options().read(true).write(true).open(disk).unwrap();
    let mut block = vec![0; 4096];
    let mut written = Vec::new();
    for at in (8 << 20..200 << 20).step_by(4096) {
        file.read_exact_at(&mut block, at).unwrap();
        if block.iter().all(|byte| *byte == 1) {
            written.push(at);
        }
    }
    let at = written[written.len() / 2];
    file.read_exact_at(&mut block, at).unwrap();
    block[7] ^= 1;
    file.write_all_at(&block, at).unwrap();
}

#[test]
fn clones_are_sent_from_their_origins_and_after_them() {
    let session = Session::start();
    pool_of(&session, 128);
    session.print(&["zfs", "create", "-u", "tank/a"]);
    session.print(&["zfs", "create", "-u", "tank/a/z"]);
    session.print(&["zfs", "snapshot", "-r", "tank/a@old"]);
    session.print(&["zfs", "snapshot", "-r", "tank/a@one"]);
    session.print(&["zfs", "clone", "-u", "tank/a/z@old", "tank/a/clone"]);
    session.print(&["zfs", "snapshot", "-r", "tank/a@two"]);
    let of_origin = sent(&session, &["-i", "tank/a/z@old", "tank/a/clone@two"]);
    let Record::Begin(begin) = &records(&of_origin)[0] else { panic!("no beginning") };
    assert_eq!(begin.flags & ondisk::send::begin_flag::CLONE, ondisk::send::begin_flag::CLONE);
    let guid = session.print(&["zfs", "get", "-Hpo", "value", "guid", "tank/a/z@old"]);
    assert_eq!(begin.from_guid.get().to_string(), guid.trim());

    let all = begun(&sent(&session, &["-R", "tank/a@two"]));
    let place = |name: &str| all.iter().position(|begun| begun == name).unwrap();
    assert_eq!(all.len(), 1 + 3 + 3 + 1, "{all:?}");
    assert!(place("tank/a/clone@two") > place("tank/a/z@two"), "{all:?}");
    // The origin of the clone is sent, though it is older than the first snapshot.
    let since = begun(&sent(&session, &["-R", "-i", "@one", "tank/a@two"]));
    assert_eq!(since[1..3], ["tank/a@two", "tank/a/z@two"], "{since:?}");
    assert_eq!(since.len(), 4);
    let from_origin = begun(&sent(&session, &["-I", "tank/a/z@old", "tank/a/clone@two"]));
    assert_eq!(from_origin, ["tank/a/clone@two", "tank/a/clone@two"]);
    let refused = session.run(&["zfs", "send", "-I", "tank/a@one", "tank/a/z@two"]);
    assert!(refused.code == 1 && refused.err.contains("incremental source must be in same"), "{refused:?}");
}

#[test]
fn properties_and_holds_go_along_as_openzfs_chooses_them() {
    use ondisk::send::package::{Package, PackagedValue};

    let session = Session::start();
    pool_of(&session, 128);
    session.print(&["zfs", "create", "-u", "-o", "recordsize=64K", "-o", "user:note=a b", "tank/a"]);
    session.print(&["zfs", "set", "quota=32M", "tank/a"]);
    session.print(&["zfs", "snapshot", "-o", "user:of=snapshot", "tank/a@one"]);
    session.print(&["zfs", "hold", "keep", "tank/a@one"]);
    let package = |arguments: &[&str]| {
        let stream = sent(&session, &[arguments, &["tank/a@one"]].concat());
        Package::parse(StreamReader::new().next_in(&mut &stream[..]).unwrap().unwrap().payload).unwrap()
    };
    let with = package(&["-ph"]);
    assert!(with.not_recursive && with.from_snapshot.is_none());
    let dataset = &with.datasets[0];
    let mut properties: Vec<(String, PackagedValue)> = dataset
        .properties
        .iter()
        .flatten()
        .map(|property| (property.name.to_string(), property.value.clone()))
        .collect();
    properties.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("quota".to_owned(), PackagedValue::Number(32 << 20)),
        ("recordsize".to_owned(), PackagedValue::Number(64 << 10)),
        ("user:note".to_owned(), PackagedValue::Text("a b".into())),
    ];
    assert_eq!(properties, expected);
    assert_eq!(dataset.snapshot_properties[0].1.len(), 1, "{dataset:?}");
    assert_eq!(dataset.holds.as_ref().unwrap()[0].1[0].tag.as_bytes(), b"keep");
    let received = package(&["-b"]);
    assert_eq!(received.datasets[0].properties.as_deref(), Some(&[][..]), "nothing was received");
    assert_eq!(received.datasets[0].holds, None);
}
