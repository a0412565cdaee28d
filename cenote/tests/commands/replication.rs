//! Copies of trees that follow their senders: promoted clones, names, properties, several copies in one pool.

use std::fs::{self, File};

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

/// All datasets of a tree with their origins and, of snapshots, guids.
fn tree(session: &Session, top: &str) -> Vec<String> {
    let listed =
        session.print(&["zfs", "list", "-Hrt", "filesystem,snapshot", "-o", "name,origin,guid", top]);
    let line = |line: &str| {
        let columns: Vec<String> = line.split('\t').map(|column| column.replacen(top, "", 1)).collect();
        let guid = if columns[0].contains('@') { columns[2].as_str() } else { "" };
        format!("{} {} {guid}", columns[0], columns[1])
    };
    listed.lines().map(line).collect()
}

fn end(session: &Session) {
    session.print(&["zpool", "export", "tank"]);
    if let Some(complaint) = testkit::oracle::complaint(session.directory(), "tank") {
        panic!("{complaint}");
    }
}

#[test]
fn a_copy_follows_promoted_clones_and_the_exchange_of_their_names() {
    let session = Session::start();
    create(&session);
    make(&session, "zfs create -u tank/s");
    make(&session, "zfs create -u tank/s/a");
    let mut last = String::new();
    let mut step = 0;
    for lines in [
        &[][..],
        &["zfs snapshot tank/s/a@img", "zfs clone tank/s/a@img tank/s/b"],
        &["zfs promote tank/s/b"],
        &["zfs destroy -r tank/s/a", "zfs rename tank/s/b tank/s/a"],
        &["zfs snapshot tank/s/a@img2", "zfs clone tank/s/a@img2 tank/s/b"],
        &["zfs promote tank/s/b", "zfs destroy -r tank/s/a", "zfs rename tank/s/b tank/s/a"],
        &["zfs set org:note=later tank/s/a"],
    ] {
        lines.iter().for_each(|line| make(&session, line));
        step += 1;
        make(&session, &format!("zfs snapshot -r tank/s@{step}"));
        let stream = sent(&session, &format!("-R{last} tank/s@{step}"));
        last = format!(" -I @{step}");
        received(&session, "-F tank/r", &stream);
        assert_eq!(tree(&session, "tank/r"), tree(&session, "tank/s"), "after {lines:?}");
    }
    assert_eq!(value(&session, "org:note", "tank/r/a"), "later received");
    end(&session);
}

/// The sender promoted a clone of an older snapshot than the last one that was sent.
#[test]
fn a_clone_that_took_snapshots_over_before_it_was_sent_does_so_at_the_copy() {
    let session = Session::start();
    create(&session);
    for line in [
        "zfs create -u tank/s",
        "zfs create -u tank/s/b",
        "zfs snapshot -r tank/s@1",
        "zfs snapshot -r tank/s@2",
    ] {
        make(&session, line);
    }
    received(&session, "tank/r", &sent(&session, "-R tank/s@2"));
    for line in [
        "zfs clone tank/s/b@1 tank/s/c",
        "zfs snapshot -r tank/s@3",
        "zfs promote tank/s/c",
        "zfs snapshot -r tank/s@4",
    ] {
        make(&session, line);
    }
    let more = sent(&session, "-R -I @2 tank/s@4");
    // A stream that breaks off costs the copy nothing.
    let before = tree(&session, "tank/r").len();
    let ended = receive(&session, "-F tank/r", &more[..more.len() - 700]);
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(tree(&session, "tank/r").len() > before);
    received(&session, "-F tank/r", &more);
    assert_eq!(tree(&session, "tank/r"), tree(&session, "tank/s"));
    end(&session);
}

#[test]
fn what_is_in_the_way_is_destroyed_only_when_all_has_come() {
    let session = Session::start();
    create(&session);
    for line in ["zfs create -u tank/s", "zfs create -u tank/s/k", "zfs snapshot -r tank/s@1"] {
        make(&session, line);
    }
    received(&session, "tank/r", &sent(&session, "-R tank/s@1"));
    for line in [
        "zfs destroy -r tank/s/k",
        "zfs create -u -o org:which=new tank/s/k",
        "zfs snapshot -r tank/s@2",
        "zfs set org:which=old tank/r/k",
        "zfs snapshot tank/r/k@mine",
    ] {
        make(&session, line);
    }
    let more = sent(&session, "-R -I @1 tank/s@2");
    let ended = receive(&session, "-F tank/r", &more[..more.len() - 1000]);
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert_eq!(value(&session, "org:which", "tank/r/k"), "old local", "it has its name again");
    make(&session, "zfs list tank/r/k@mine");
    // An end between two snapshots is no end.
    let ended = receive(&session, "-F tank/r", &more[..more.len() - 312]);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("incomplete stream") && ended.err.contains("between two snapshots"));
    received(&session, "-F tank/r", &more);
    assert_eq!(value(&session, "org:which", "tank/r/k"), "new received");
    assert_eq!(tree(&session, "tank/r"), tree(&session, "tank/s"));
    end(&session);
}

#[test]
fn each_copy_of_a_tree_has_its_origins_in_itself() {
    let session = Session::start();
    create(&session);
    for line in [
        "zfs create -u tank/s",
        "zfs create -u tank/s/fs",
        "zfs snapshot tank/s/fs@1",
        "zfs clone tank/s/fs@1 tank/s/clone",
        "zfs snapshot -r tank/s@2",
    ] {
        make(&session, line);
    }
    let stream = sent(&session, "-R tank/s@2");
    for copy in ["one", "two"] {
        received(&session, &format!("tank/{copy}"), &stream);
        assert_eq!(value(&session, "origin", &format!("tank/{copy}/clone")), format!("tank/{copy}/fs@1 -"));
    }
    end(&session);
}

#[test]
fn properties_of_snapshots_follow_where_the_snapshot_is_there_already() {
    let session = Session::start();
    create(&session);
    make(&session, "zfs create -u tank/s");
    make(&session, "zfs snapshot -o x:gone=yes tank/s@1");
    received(&session, "tank/r", &sent(&session, "-R tank/s@1"));
    assert_eq!(value(&session, "x:gone", "tank/r@1"), "yes received");
    for line in ["zfs set x:y=one tank/s@1", "zfs inherit x:gone tank/s@1", "zfs snapshot tank/s@2"] {
        make(&session, line);
    }
    received(&session, "tank/r", &sent(&session, "-R -I @1 tank/s@2"));
    assert_eq!(value(&session, "x:y", "tank/r@1"), "one received");
    assert_eq!(value(&session, "x:gone", "tank/r@1"), "- -");
    end(&session);
}

#[test]
fn properties_that_do_not_apply_to_volumes_are_left_out_with_a_warning() {
    let session = Session::start();
    create(&session);
    for line in [
        "zfs create -u tank/s",
        "zfs create -s -V 8M tank/s/vol",
        "zfs create -u tank/s/z",
        "zfs snapshot -r tank/s@1",
    ] {
        make(&session, line);
    }
    let (volume, all) = (sent(&session, "tank/s/vol@1"), sent(&session, "-R tank/s@1"));
    for (options, stream, warned) in [
        ("-x mountpoint tank/vol", &volume, "tank/vol"),
        ("-x mountpoint tank/b", &all, "tank/b/vol"),
        ("-o canmount=noauto tank/c", &all, "tank/c/vol"),
    ] {
        let ended = receive(&session, options, stream);
        assert_eq!(ended.code, 0, "{options}: {}", ended.err);
        let expected = format!("Warning: {warned}: property '");
        assert!(ended.err.starts_with(&expected), "{}", ended.err);
    }
    // A value for this dataset alone cannot be meant for another one.
    let ended = receive(&session, "-o canmount=noauto tank/alone", &volume);
    assert_eq!(ended.code, 1);
    assert!(
        ended.err.contains("property 'canmount' does not apply to datasets of this type"),
        "{}",
        ended.err
    );
    assert_eq!(session.run(&["zfs", "list", "tank/alone"]).code, 1);
    for name in ["tank/vol@1", "tank/b/vol@1", "tank/b/z@1", "tank/c/z@1"] {
        make(&session, &format!("zfs list {name}"));
    }
    assert_eq!(value(&session, "canmount", "tank/c"), "noauto local");
    end(&session);
}

#[test]
fn what_the_command_sets_is_taken_back_with_a_stream_that_breaks_off() {
    let session = Session::start();
    create(&session);
    make(&session, "zfs create -u -o compression=gzip tank/s");
    make(&session, "zfs snapshot tank/s@1");
    received(&session, "tank/r", &sent(&session, "-p tank/s@1"));
    make(&session, "zfs set quota=300M tank/r");
    make(&session, "zfs snapshot tank/s@2");
    let more = sent(&session, "-p -i @1 tank/s@2");
    let options = "-F -o copies=3 -o quota=100M -o compress=off -x recordsize tank/r";
    let before = session.print(&["zfs", "get", "-H", "all", "tank/r"]);
    let stable = |all: &str| -> Vec<String> {
        let is_stable = |line: &&str| !line.contains("\tused") && !line.contains("\tavailable");
        all.lines().filter(is_stable).map(str::to_owned).collect()
    };
    assert_eq!(receive(&session, options, &more[..more.len() - 700]).code, 1);
    let after = session.print(&["zfs", "get", "-H", "all", "tank/r"]);
    assert_eq!(stable(&after), stable(&before));
    received(&session, options, &more);
    assert_eq!(value(&session, "quota", "tank/r"), "100M local");
    assert_eq!(value(&session, "compression", "tank/r"), "off local");
    end(&session);
}

#[test]
fn a_full_stream_is_not_meant_for_what_is_there() {
    let session = Session::start();
    create(&session);
    make(&session, "zfs create -u tank/s");
    make(&session, "zfs snapshot tank/s@1");
    for stream in [sent(&session, "tank/s@1"), sent(&session, "-R tank/s@1")] {
        received(&session, "tank/r", &stream);
        let ended = receive(&session, "tank/r", &stream);
        let expected = "cannot receive new filesystem stream: destination 'tank/r' exists\n\
                        must specify -F to overwrite it\n";
        assert_eq!((ended.code, &*ended.err), (1, expected));
        let ended = receive(&session, "-F tank/r", &stream);
        assert!(ended.code == 1 && ended.err.contains("destination has snapshots (eg. tank/r@1)"));
        make(&session, "zfs destroy -r tank/r");
    }
    end(&session);
}

#[test]
fn a_clone_that_is_the_origin_of_what_it_lies_in_is_named() {
    let session = Session::start();
    create(&session);
    for line in [
        "zfs create -u tank/a",
        "zfs create -u tank/a/b",
        "zfs snapshot tank/a/b@1",
        "zfs clone tank/a/b@1 tank/a/b/clone",
        "zfs promote tank/a/b/clone",
        "zfs snapshot -r tank/a@2",
    ] {
        make(&session, line);
    }
    let (stream, ended) = session.run_bytes(&["zfs", "send", "-R", "tank/a@2"]);
    assert_eq!((ended.code, stream.len()), (1, 0));
    let expected = "'tank/a/b' is a clone of 'tank/a/b/clone@1', which lies below it";
    assert!(ended.err.contains(expected) && !ended.err.contains("damaged"), "{}", ended.err);
    sent(&session, "-R -X tank/a/b/clone tank/a@2");
    end(&session);
}

#[test]
fn a_filesystem_itself_is_sent_with_its_properties() {
    let session = Session::start();
    create(&session);
    make(&session, "zfs create -u -o org:note=yes tank/s");
    received(&session, "tank/r", &sent(&session, "-p tank/s"));
    assert_eq!(value(&session, "org:note", "tank/r"), "yes received");
    end(&session);
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

#[test]
fn compressed_blocks_are_stored_as_they_come() {
    if testkit::skipped("fuse", "a filesystem with data") {
        return;
    }
    let session = Session::start();
    let at = create(&session);
    let numbers: String = (0..400_000).fold(String::new(), |text, number| text + &format!("{number}\n"));
    for compression in ["zstd-9", "gzip-9", "lz4", "lzjb", "zle"] {
        make(&session, &format!("zfs create -o compression={compression} tank/s"));
        fs::write(format!("{at}/s/f"), &numbers).unwrap();
        make(&session, "zfs snapshot tank/s@1");
        let stream = sent(&session, "-c tank/s@1");
        for other in ["off", "lz4"] {
            received(&session, &format!("-o compression={other} tank/r"), &stream);
            let used = |name: &str| -> u64 {
                session.print(&["zfs", "get", "-Hp", "-o", "value", "used", name]).trim().parse().unwrap()
            };
            let (there, here) = (used("tank/s"), used("tank/r"));
            assert!(here <= there + there / 20, "{compression} as {other}: {there} bytes became {here}");
            make(&session, "zfs mount tank/r");
            assert_eq!(fs::read_to_string(format!("{at}/r/f")).unwrap(), numbers);
            // What is written over is compressed as the destination says.
            let file = File::options().write(true).open(format!("{at}/r/f")).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"other", 200_000).unwrap();
            drop(file);
            make(&session, "zpool sync tank");
            make(&session, "zfs destroy -r tank/r");
        }
        received(&session, &format!("-o compression=off tank/of-{compression}"), &stream);
        make(&session, "zfs destroy -r tank/s");
    }
    let active = session.print(&["zpool", "get", "-H", "-o", "value", "feature@zstd_compress", "tank"]);
    assert_eq!(active, "active\n");
    end(&session);
}

#[test]
fn compressed_blocks_get_the_copies_of_the_destination() {
    if testkit::skipped("fuse", "a filesystem with data") {
        return;
    }
    let session = Session::start();
    let at = create(&session);
    let mut numbers: String = (0..400_000).fold(String::new(), |text, number| text + &format!("{number}\n"));
    make(&session, "zfs create -o compression=zstd-9 tank/s");
    fs::write(format!("{at}/s/f"), &numbers).unwrap();
    make(&session, "zfs snapshot tank/s@1");
    let first = sent(&session, "-c tank/s@1");
    numbers.replace_range(500_000..500_005, "other");
    fs::write(format!("{at}/s/f"), &numbers).unwrap();
    make(&session, "zfs snapshot tank/s@2");
    let second = sent(&session, "-c -i @1 tank/s@2");
    received(&session, "-o compression=off -o copies=2 tank/r", &first);
    received(&session, "tank/r", &second);
    let space = |name: &str| -> u64 {
        session.print(&["zfs", "get", "-Hp", "-o", "value", "referenced", name]).trim().parse().unwrap()
    };
    let (there, here) = (space("tank/s"), space("tank/r"));
    assert!((there * 19 / 10..there * 21 / 10).contains(&here), "{there} bytes became {here}");
    make(&session, "zfs mount tank/r");
    assert_eq!(fs::read_to_string(format!("{at}/r/f")).unwrap(), numbers);
    received(&session, "-o dedup=on tank/d", &first);
    received(&session, "-o dedup=on tank/e", &first);
    let ratio = session.print(&["zpool", "get", "-Hp", "-o", "value", "dedupratio", "tank"]);
    assert_eq!(ratio, "2.00\n", "both have the same blocks");
    end(&session);
}

#[test]
fn streams_and_tokens_are_shown() {
    let session = Session::start();
    create(&session);
    make(&session, "zfs create -s -V 8M tank/s");
    make(&session, "zfs snapshot tank/s@1");
    let stream = sent(&session, "-p tank/s@1");
    let shown = session.run_with(&["zstream", "dump"], &stream);
    assert_eq!((shown.code, &*shown.err), (0, ""));
    for line in
        ["\ttoname = tank/s@1\n", "\thdrtype = 2\n", "\tTotal DRR_BEGIN records = 2 (", "END checksum = "]
    {
        assert!(shown.out.contains(line), "{line}: {}", shown.out);
    }
    assert!(shown.out.contains(&format!("\tTotal stream length = {} (", stream.len())), "{}", shown.out);
    assert!(!shown.out.contains("OBJECT object = "));
    let shown = session.run_with(&["zstream", "dump", "-v"], &stream);
    assert!(shown.out.contains("OBJECT object = 1 type = "), "{}", shown.out);
    let mut damaged = stream.clone();
    let place = damaged.len() - 700;
    damaged[place] ^= 1;
    let ended = session.run_with(&["zstream", "dump"], &damaged);
    assert!(ended.code == 1 && ended.err.contains("checksum mismatch"), "{}", ended.err);
    assert_eq!(session.run_with(&["zstream", "dump", "-C"], &damaged).code, 0);
    assert_eq!(session.run_with(&["zstream", "dump"], b"no stream").code, 1);

    assert_eq!(receive(&session, "-s tank/r", &stream[..stream.len() - 1000]).code, 1);
    let token = value(&session, "receive_resume_token", "tank/r");
    let shown = session.print(&["zstream", "token", token.split(' ').next().unwrap()]);
    assert!(shown.contains("     toname: 'tank/s@1'\n") && shown.contains("     toguid: "), "{shown}");
    let ended = session.run(&["zstream", "token", "1-2-3"]);
    let expected = "Unable to parse resume token: resume token is corrupt (invalid format)";
    assert!(ended.code == 1 && ended.err.contains(expected), "{}", ended.err);
    make(&session, "zfs receive -A tank/r");
    end(&session);
}

#[test]
fn every_command_helps() {
    let session = Session::start();
    let mut pending: Vec<Vec<String>> =
        ["zpool", "zfs", "zdb", "zstream"].iter().map(|name| vec![(*name).to_owned()]).collect();
    let mut count = 0;
    while let Some(command) = pending.pop() {
        let words: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let ended = session.run(&words);
        assert_eq!((ended.code, &*ended.err), (0, ""), "{words:?}");
        count += 1;
        let listed = ended.out.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in listed.take_while(|line| !line.is_empty()) {
            let name = line
                .strip_prefix("  ")
                .filter(|line| !line.starts_with(' '))
                .and_then(|line| line.split_whitespace().next().filter(|name| *name != "help"));
            pending.extend(name.map(|name| [&command[..], &[name.to_owned()]].concat()));
        }
    }
    assert!(count > 60, "{count} commands");
    assert_eq!(session.run(&["zfs", "recv", "--help"]).code, 0);
}

#[test]
fn versions_begin_with_openzfs_s_and_say_whose_they_are() {
    let session = Session::start();
    for words in [["zfs", "version"], ["zfs", "--version"], ["zpool", "version"], ["zpool", "--version"]] {
        let out = session.print(&words);
        let lines: Vec<&str> = out.lines().collect();
        let [program, daemon] = lines[..] else { panic!("{out}") };
        assert!(program.starts_with("zfs-2.4.0-cenote"), "{out}");
        assert!(daemon.starts_with("zfs-kmod-2.4.0-cenote"), "{out}");
    }
}
