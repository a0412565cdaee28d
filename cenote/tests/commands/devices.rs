//! Devices that are taken away and come back, through the binary.

use std::fs::{self, File};
use std::path::Path;

use crate::session::Session;

/// Sparse files in a directory of the session.
fn disks(session: &Session, count: usize) -> Vec<String> {
    let place = session.directory().join("disks");
    fs::create_dir_all(&place).unwrap();
    let disk = |number: usize| {
        let path = place.join(format!("d{number}"));
        File::create(&path).unwrap().set_len(128 << 20).unwrap();
        path.to_str().unwrap().to_owned()
    };
    (0..count).map(disk).collect()
}

#[test]
fn devices_are_taken_offline_and_back_in_openzfs_s_words() {
    let session = Session::start();
    let disks = disks(&session, 2);
    let [first, second] = [&*disks[0], &*disks[1]];
    let place = session.directory().join("disks");
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", first, second]);
    session.print(&["zpool", "offline", "tank", first]);
    let status = session.print(&["zpool", "status", "tank"]);
    assert!(status.contains("state: DEGRADED"), "{status}");
    assert!(status.contains("One or more devices has been taken offline by the administrator."), "{status}");
    let line = |status: &str, disk: &str| {
        let line = status.lines().find(|line| line.contains(disk)).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{disk} in {status}"))
    };
    assert!(line(&status, first).contains("OFFLINE"), "{status}");
    let refused = session.run(&["zpool", "offline", "tank", "d1"]);
    assert_eq!((refused.code, &*refused.err), (1, "cannot offline d1: no valid replicas\n"));
    session.print(&["zfs", "create", "tank/while-away"]);
    assert_eq!(session.print(&["zpool", "online", "tank", "d0"]), "");
    // It gets what it missed.
    let resilvers = || {
        assert_eq!(session.print(&["zpool", "wait", "-t", "resilver", "tank"]), "");
        let status = session.print(&["zpool", "status", "tank"]);
        assert!(status.contains("state: ONLINE") && status.contains("  scan: resilvered "), "{status}");
        assert!(status.contains(" with 0 errors on ") && !status.contains("(awaiting"), "{status}");
        assert_eq!(session.print(&["zpool", "status", "-x"]), "all pools are healthy\n");
    };
    resilvers();
    session.print(&["zpool", "export", "tank"]);
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "tank"]);
    resilvers();

    session.print(&["zpool", "offline", "-f", "tank", "d0"]);
    let faulted = line(&session.print(&["zpool", "status", "tank"]), first);
    assert!(faulted.contains("FAULTED") && faulted.contains("external device fault"), "{faulted}");
    let told = session.print(&["zpool", "online", "tank", "d0"]);
    assert!(told.contains("remains in faulted state\nuse 'zpool clear'"), "{told}");
    session.print(&["zpool", "clear", "tank", first]);
    resilvers();
    // Both kinds of faults are cleared; only one of them outlives an import.
    let import = || {
        session.print(&["zpool", "export", "tank"]);
        session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "tank"]);
        line(&session.print(&["zpool", "status", "tank"]), first)
    };
    session.print(&["zpool", "offline", "-tf", "tank", "d0"]);
    assert!(line(&session.print(&["zpool", "status", "tank"]), first).contains("external device fault"));
    assert!(import().contains("ONLINE"));
    session.print(&["zpool", "offline", "-f", "tank", "d0"]);
    assert!(import().contains("FAULTED"));
    session.print(&["zpool", "clear", "tank", first]);
    session.print(&["zpool", "offline", "-t", "tank", "d0"]);
    assert!(import().contains("ONLINE"));
    let history = session.print(&["zpool", "history", "tank"]);
    for command in ["zpool offline -f tank d0", "zpool clear tank", "zpool online tank d0"] {
        assert!(history.contains(command), "{history}");
    }
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn a_file_that_was_away_comes_back_and_another_one_in_its_place_does_not() {
    let session = Session::start();
    let disks = disks(&session, 2);
    let place = session.directory().join("disks");
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", &disks[0], &disks[1]]);
    session.print(&["zpool", "export", "tank"]);
    let away = session.directory().join("away");
    fs::rename(&disks[0], &away).unwrap();
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "tank"]);
    let state = || session.print(&["zpool", "list", "-H", "-o", "health", "tank"]);
    assert_eq!(state(), "DEGRADED\n");
    session.print(&["zfs", "create", "tank/while-away"]);
    // Something else in its place.
    File::create(&disks[0]).unwrap().set_len(128 << 20).unwrap();
    let told = session.print(&["zpool", "online", "tank", &disks[0]]);
    assert!(told.contains("use 'zpool replace'"), "{told}");
    assert_eq!(state(), "DEGRADED\n");
    fs::rename(&away, &disks[0]).unwrap();
    session.print(&["zpool", "online", "tank", &disks[0]]);
    session.print(&["zpool", "wait", "-t", "resilver", "tank"]);
    assert_eq!(state(), "ONLINE\n");
    session.print(&["zfs", "create", "tank/after"]);
    session.print(&["zpool", "export", "tank"]);
    let Some(verdict) = testkit::oracle::zdb_of(Path::new(&place), "-bcc", "tank", &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
}

#[test]
fn a_pool_grows_with_its_devices() {
    let session = Session::start();
    let disks = disks(&session, 2);
    let place = session.directory().join("disks");
    let list = |columns: &str| session.print(&["zpool", "list", "-Hp", "-o", columns, "tank"]);
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", &disks[0], &disks[1]]);
    let before = list("size");
    let grow = |bytes: u64| {
        for disk in &disks {
            File::options().write(true).open(disk).unwrap().set_len(bytes).unwrap();
        }
    };
    grow(256 << 20);
    session.print(&["zpool", "reopen", "tank"]);
    assert_eq!(list("size,expandsize"), format!("{}\t{}\n", before.trim_end(), 128 << 20));
    let verbose = session.print(&["zpool", "list", "-vHp", "tank"]);
    let mirror = verbose.lines().find(|line| line.contains("mirror-0")).unwrap();
    assert_eq!(mirror.split('\t').nth(6), Some("134217728"), "{verbose}");
    assert_eq!(session.print(&["zpool", "online", "-e", "tank", "d1"]), "");
    let size = |text: &str| text.trim_end().parse::<u64>().unwrap();
    assert_eq!(size(&list("size")), size(&before) + (128 << 20));
    assert_eq!(list("expandsize"), "-\n");
    session.print(&["zpool", "set", "autoexpand=on", "tank"]);
    grow(512 << 20);
    session.print(&["zpool", "reopen", "tank"]);
    assert_eq!(size(&list("size")), size(&before) + (384 << 20));
    session.print(&["zpool", "set", "autoreplace=on", "tank"]);
    assert_eq!(list("autoreplace"), "on\n");
    session.print(&["zpool", "export", "tank"]);
    let Some(verdict) = testkit::oracle::zdb_of(Path::new(&place), "-bcc", "tank", &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
}

#[test]
fn pools_are_administered() {
    let session = Session::start();
    let disks = disks(&session, 5);
    let place = session.directory().join("disks");
    let print = |line: &str| {
        let words = line.split(' ').map(|word| match word.strip_prefix('%') {
            Some(number) => &*disks[number.parse::<usize>().unwrap()],
            None => word,
        });
        session.print(&words.collect::<Vec<_>>())
    };
    print("zpool create -m none -t other tank mirror %0 %1");
    assert_eq!(print("zpool list -H -o name"), "other\n");
    print("zpool add other spare %2 cache %3 log %4");
    let status = print("zpool status other");
    assert!(status.contains("spares\n") && status.contains("cache\n") && status.contains("logs"), "{status}");
    print("zfs create -V 16M other/v");
    print("zpool sync other");
    let before = print("zpool get -Hp -o value guid other");
    print("zpool sync -f other");
    print("zpool reguid -g -2 other");
    assert_eq!(print("zpool get -Hp -o value guid other"), format!("{}\n", u64::MAX - 1));
    assert!(session.run(&["zpool", "reguid", "-g", "x1", "other"]).code == 2);
    print("zpool reguid other");
    let after = print("zpool get -Hp -o value guid other");
    assert_ne!(before, after);
    let io = print("zpool iostat -Hpv other");
    let written: u64 = io.lines().next().unwrap().split('\t').nth(6).unwrap().parse().unwrap();
    assert!(written > 0 && io.lines().count() == 6, "{io}");
    assert!(print("zpool iostat -w other").starts_with("\nother"));
    // Nothing was to be durable at once: all that was written is in the column of asynchronous writes.
    let sizes = print("zpool iostat -Hpr other");
    let column = |column: usize| -> u64 {
        sizes.lines().filter_map(|line| line.split('\t').nth(column)?.parse::<u64>().ok()).sum()
    };
    assert!((column(3), column(7) > 0) == (0, true), "{sizes}");
    // The root has properties too.
    print("zpool set comment=all other root");
    print("zpool set org:mine=yes other %0");
    assert_eq!(print("zpool get -H -o name,value comment other root"), "root-0\tall\n");
    assert_eq!(print("zpool get -H -o value org:mine other %0"), "yes\n");
    // An empty value takes a property of the user's own away.
    print("zpool set org:mine= other %0");
    assert_eq!(print("zpool get -H -o value,source org:mine other %0"), "-\tdefault\n");
    print("zpool set org:mine=too other");
    print("zpool set org:mine= other");
    assert_eq!(print("zpool get -H -o value,source org:mine other"), "-\tdefault\n");
    let names = print("zpool get -H -o name name other all-vdevs");
    let expected = format!("root-0\nmirror-0\n{}\n{}\n{}\n", disks[0], disks[1], disks[4]);
    assert_eq!(names, expected);
    for (assignment, why) in [
        ("size=1", "'size' is readonly"),
        ("failfast=off", "does not act on it"),
        ("coment=x", "did you mean 'comment'?"),
    ] {
        let refused = session.run(&["zpool", "set", assignment, "other", "root"]);
        assert!(refused.code == 1 && refused.err.contains(why), "{refused:?}");
    }
    print("zpool remove other %2 %3 %4");
    let refused = session.run(&["zpool", "remove", "other", &disks[0]]);
    assert!(refused.code == 1 && refused.err.contains("can be removed"), "{refused:?}");
    let status = print("zpool status other");
    let gone = ["spares\n", "cache\n", "logs"];
    assert!(gone.iter().all(|section| !status.contains(section)), "{status}");
    let unknown = session.run(&["zpool", "labelclear", "-f", &disks[4]]);
    assert!(unknown.err.contains("failed to read label"), "it is nobody's: {unknown:?}");
    print("zpool wait other");
    print("zpool add other log %4");
    print("zpool checkpoint other");
    let refused = session.run(&["zpool", "remove", "other", &disks[4]]);
    assert!(refused.code == 1 && refused.err.contains("checkpoint exists"), "{refused:?}");
    let status = print("zpool status other");
    assert!(status.contains("checkpoint: created "), "{status}");
    assert_ne!(print("zpool list -H -o ckpoint other"), "-\n");
    print("zpool checkpoint -d -w other");
    print("zpool wait -t discard,trim other");
    print("zpool remove other %4");
    print("zpool export other");
    let Some(verdict) = testkit::oracle::zdb_of(&place, "-bcc", "tank", &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "-t", "tank", "temporary"]);
    assert_eq!(print("zpool list -H -o name,guid"), format!("temporary\t{after}"));
    print("zpool destroy temporary");
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "-D", "tank"]);
    assert_eq!(print("zpool list -H -o name"), "tank\n");
    print("zpool export tank");
}

#[test]
fn log_and_cache_devices_go_offline_and_come_back_and_spares_do_not() {
    let session = Session::start();
    let disks = disks(&session, 5);
    let place = session.directory().join("elsewhere");
    fs::create_dir(&place).unwrap();
    let data = place.join("data");
    fs::rename(&disks[0], &data).unwrap();
    let data = data.to_str().unwrap();
    let [_, log, cache, spare, other] = &disks[..] else { panic!("{disks:?}") };
    session
        .print(&["zpool", "create", "-m", "none", "tank", data, "log", log, "cache", cache, "spare", spare]);
    session.print(&["zfs", "create", "-V", "8M", "-o", "sync=always", "tank/v"]);
    let write = || {
        let uri = format!("nbd+unix:///tank/v?socket={}", session.nbd_socket().display());
        let io = std::process::Command::new("qemu-io")
            .args(["-f", "raw", &uri, "-c", "write -P 7 0 1M", "-c", "flush"])
            .output()
            .expect("qemu-io cannot be run; install qemu-utils");
        assert!(io.status.success(), "{io:?}");
    };
    let state = |disk: &str| {
        let status = session.print(&["zpool", "status", "tank"]);
        let mut lines = status.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let words = lines.find(|words| words.len() > 1 && words[0] == disk);
        words.unwrap_or_else(|| panic!("{disk}: {status}"))[1].to_owned()
    };
    write();
    for line in [["zpool", "offline", "tank", log], ["zpool", "offline", "tank", cache]] {
        session.print(&line);
    }
    write();
    assert_eq!([state(log), state(cache), state("tank")], ["OFFLINE", "OFFLINE", "DEGRADED"]);
    for line in [["zpool", "clear", "tank", spare], ["zpool", "offline", "tank", spare]] {
        let refused = session.run(&line);
        assert!(refused.err.ends_with(": device is reserved as a hot spare\n"), "{refused:?}");
    }
    let refused = session.run(&["zpool", "clear", "tank", "nonsense"]);
    assert_eq!(refused.err, "cannot clear errors for nonsense: no such device in pool\n");
    // Spares and cache devices are found where they were, whatever directory the pool was looked for in.
    let import = |paths: &[&str]| {
        session.print(&["zpool", "export", "tank"]);
        let places: Vec<&str> = paths.iter().flat_map(|path| ["-d", *path]).collect();
        session.print(&[&["zpool", "import"], &places[..], &["tank"]].concat());
    };
    import(&[data, log]);
    assert_eq!([state(log), state(cache), state(spare)], ["OFFLINE", "OFFLINE", "AVAIL"]);
    write();
    for line in [["zpool", "online", "tank", log], ["zpool", "online", "tank", cache]] {
        session.print(&line);
    }
    assert_eq!([state(log), state(cache), state("tank")], ["ONLINE"; 3]);
    let written = || {
        let io = session.print(&["zpool", "iostat", "-Hpv", "tank"]);
        let line = io.lines().find(|line| line.contains(log.as_str())).unwrap().to_owned();
        line.split('\t').nth(6).unwrap().parse::<u64>().unwrap()
    };
    let before = written();
    write();
    assert!(written() > before, "the log device is used again");
    // Vdevs without their pool are those of any.
    let alone = session.print(&["zpool", "iostat", "-Hpv", log, data]);
    let names: Vec<_> = alone.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert!(names.contains(&log.as_str()) && !names.contains(&"tank"), "{alone}");
    assert_eq!(session.run(&["zpool", "iostat", log, "nonsense"]).code, 1);
    import(&[data, log]);
    assert_eq!([state(log), state(cache)], ["ONLINE"; 2]);
    // What `add -n` shows: what is there, and what comes to it.
    let listed = session.print(&["zpool", "add", "-n", "tank", other]);
    let expected = format!(
        "would update 'tank' to the following configuration:\n\n\ttank\n\t  {data}\n\t  {other}\n\tlogs\n\t  \
         {log}\n\
         \tcache\n\t  {cache}\n\tspares\n\t  {spare}\n"
    );
    assert_eq!(listed, expected);
    session.print(&["zpool", "export", "tank"]);
    fs::rename(log, place.join("log")).unwrap();
    let Some(verdict) = testkit::oracle::zdb_of(&place, "-bcc", "tank", &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
}

#[test]
fn a_frozen_pool_grows_its_logs_only_and_one_that_is_read_only_is_not_destroyed() {
    let session = Session::start();
    let disks = disks(&session, 1);
    let place = session.directory().join("disks");
    session.print(&["zpool", "create", "-m", "none", "tank", &disks[0]]);
    session.print(&["zfs", "create", "-V", "8M", "-o", "compression=off", "tank/v"]);
    let io = |commands: &[&str]| {
        let uri = format!("nbd+unix:///tank/v?socket={}", session.nbd_socket().display());
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        let io = std::process::Command::new("qemu-io")
            .args(["-f", "raw", &uri])
            .args(commands)
            .output()
            .expect("qemu-io cannot be run; install qemu-utils");
        let said = String::from_utf8_lossy(&io.stdout).into_owned();
        assert!(io.status.success() && !said.contains("failed"), "{said}");
    };
    // There must be a log that can grow.
    io(&["write -P 1 0 1M", "flush"]);
    session.print(&["zpool", "freeze", "tank"]);
    io(&["write -P 2 1M 1M", "flush", "write -P 3 2M 64k", "flush"]);
    let refused = session.run(&["zfs", "create", "tank/other"]);
    assert!(refused.code == 1 && refused.err.contains("the pool is frozen"), "{refused:?}");
    session.print(&["zpool", "export", "tank"]);
    let in_use = session.run(&["zpool", "import", "-d", place.to_str().unwrap()]);
    assert!(in_use.out.contains("pool: tank"), "{in_use:?}");
    session.print(&["zpool", "import", "-f", "-d", place.to_str().unwrap(), "tank"]);
    io(&["read -P 1 0 1M", "read -P 2 1M 1M", "read -P 3 2M 64k"]);
    session.print(&["zpool", "export", "tank"]);
    session.print(&["zpool", "import", "-o", "readonly=on", "-d", place.to_str().unwrap(), "tank"]);
    let destroyed = session.run(&["zpool", "destroy", "tank"]);
    assert!(destroyed.code == 0 && destroyed.err.contains("was not destroyed"), "{destroyed:?}");
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "tank"]);
    session.print(&["zpool", "destroy", "tank"]);
}

#[test]
fn trims_outlive_devices_that_go_away_and_keep_their_rates() {
    let session = Session::start();
    let disks = disks(&session, 2);
    let [first, second] = [&*disks[0], &*disks[1]];
    let place = session.directory().join("disks");
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", first, second]);
    let trim = || {
        let status = session.print(&["zpool", "status", "-t", "tank"]);
        status.lines().find(|line| line.contains(first)).unwrap().to_owned()
    };
    // So slow that it is never done.
    session.print(&["zpool", "trim", "-r", "1K", "tank", first]);
    session.print(&["zpool", "offline", "tank", first]);
    assert!(trim().contains("% trimmed, started at"), "{}", trim());
    session.print(&["zpool", "export", "tank"]);
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "tank"]);
    assert!(trim().contains("% trimmed, started at"), "{}", trim());
    session.print(&["zpool", "online", "tank", first]);
    assert!(trim().contains("% trimmed, started at"), "{}", trim());
    let busy = session.run(&["zpool", "trim", "tank", first]);
    assert!(busy.err.contains("currently trimming"), "{busy:?}");
    // Begun anew at full speed it would be done at once.
    session.print(&["zpool", "trim", "-s", "tank", first]);
    session.print(&["zpool", "trim", "tank"]);
    // The other one has no limit: it may be done already.
    session.run(&["zpool", "trim", "-c", "tank", second]);
    assert!(trim().contains("% trimmed, started at"), "{}", trim());
    // Who waits for one device does not wait for others.
    let begin = ["zpool", "trim", "-r", "1K", "-w", "tank", second];
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| session.run(&begin));
        let is_begun = || {
            let status = session.print(&["zpool", "status", "-t", "tank"]);
            status.lines().any(|line| line.contains(second) && line.contains("% trimmed, started"))
        };
        while !is_begun() {
            std::thread::yield_now();
        }
        session.print(&["zpool", "trim", "-c", "tank", second]);
        assert_eq!(waiting.join().unwrap().code, 0);
        let waiting = scope.spawn(|| session.run(&["zpool", "wait", "-t", "trim", "tank"]));
        session.print(&["zpool", "trim", "-c", "tank", first]);
        assert_eq!(waiting.join().unwrap().code, 0);
    });
    assert!(trim().contains("(untrimmed)"), "{}", trim());
    // One of a device that failed is given up.
    session.print(&["zpool", "trim", "-r", "1K", "tank", first]);
    session.print(&["zpool", "offline", "-f", "tank", first]);
    assert!(trim().contains("(untrimmed)"), "{}", trim());
    session.print(&["zpool", "clear", "tank", first]);
    assert!(trim().contains("(untrimmed)"), "{}", trim());
    // Of one that was not open since the pool was imported it is not known whether it can.
    session.print(&["zpool", "offline", "-f", "tank", first]);
    session.print(&["zpool", "export", "tank"]);
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "tank"]);
    assert!(trim().contains("(trim unsupported)"), "{}", trim());
    session.print(&["zpool", "clear", "tank", first]);
    assert!(trim().contains("(untrimmed)"), "{}", trim());
    session.print(&["zpool", "export", "tank"]);
}
