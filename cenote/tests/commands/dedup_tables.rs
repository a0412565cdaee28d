//! `zpool ddtprune` and `zpool prefetch`.

use std::process::Command;

use crate::session::Session;

/// A pool with 64 different deduplicated blocks.
fn pool(session: &Session) {
    let disk = session.directory().join("d0");
    std::fs::File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let disk = disk.to_str().unwrap();
    session.print(&["zpool", "create", "-O", "dedup=on", "-O", "compression=off", "tank", disk]);
    session.print(&["zfs", "create", "-s", "-V", "16M", "-o", "volblocksize=16K", "tank/v"]);
    let uri = format!("nbd+unix:///tank/v?socket={}", session.nbd_socket().display());
    let writes = (0..64).map(|block| format!("write -P {} {}k 16k", block + 1, block * 16));
    let mut io = Command::new("qemu-io");
    io.args(["-f", "raw"]);
    for write in writes.chain(["flush".to_owned()]) {
        io.args(["-c", &write]);
    }
    let io = io.arg(&uri).output();
    let io = io.unwrap_or_else(|error| panic!("qemu-io: {error}; see scripts/install-test-tools"));
    assert!(io.status.success(), "{}", String::from_utf8_lossy(&io.stdout));
    session.print(&["zpool", "sync", "tank"]);
}

fn value(session: &Session, property: &str) -> u64 {
    let value = session.print(&["zpool", "get", "-Hp", "-o", "value", property, "tank"]);
    value.trim().parse().unwrap_or_else(|_| panic!("{property}: {value}"))
}

#[test]
fn a_table_is_pruned_and_read_ahead() {
    let session = Session::start();
    pool(&session);
    assert!(value(&session, "dedup_table_size") > 0);
    let status = session.print(&["zpool", "status", "-D", "tank"]);
    assert!(status.contains("in logs 64, "), "{status}");
    // The log is flushed by and by.
    for _ in 0..24 {
        session.print(&["zpool", "sync", "tank"]);
    }
    session.print(&["zpool", "export", "tank"]);
    session.print(&["zpool", "import", "-d", session.directory().to_str().unwrap(), "tank"]);
    session.print(&["zpool", "prefetch", "-t", "brt", "tank"]);
    let before = value(&session, "dedupcached");
    session.print(&["zpool", "prefetch", "-t", "ddt", "tank"]);
    let cached = value(&session, "dedupcached");
    assert!(cached > before, "{before} {cached}");
    assert!(cached >= 64 * 100 && cached <= value(&session, "dedup_table_size") * 16, "{cached}");
    assert!(!session.print(&["zpool", "status", "-D", "tank"]).contains("cached"));
    let status = session.print(&["zpool", "status", "-DDp", "tank"]);
    let line = status.lines().find(|line| line.starts_with(" dedup: ")).unwrap();
    assert!(line.contains(" in core, ") && line.ends_with("%)"), "{line}");
    session.print(&["zpool", "prefetch", "tank"]);
    session.print(&["zpool", "ddtprune", "-d", "1", "tank"]);
    session.print(&["zpool", "ddtprune", "-p", "100", "tank"]);
    session.print(&["zpool", "wait", "-t", "ddt_prune", "tank"]);
    assert_eq!(value(&session, "dedup_table_size"), 0, "all had one reference");
    let history = session.print(&["zpool", "history", "tank"]);
    assert!(history.contains("zpool ddtprune -p 100 tank"), "{history}");
    session.print(&["zfs", "destroy", "tank/v"]);
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn wrong_words_of_both_are_refused() {
    let session = Session::start();
    pool(&session);
    for (arguments, message) in [
        ("ddtprune tank", "missing amount option (-d|-p <value>)"),
        ("ddtprune -d 1 -p 1 tank", "-d option cannot be combined with -p option"),
        ("ddtprune -d 0 tank", "invalid days value"),
        ("ddtprune -d soon tank", "invalid days value"),
        ("ddtprune -p 101 tank", "invalid percentage value"),
        ("ddtprune -p 1", "missing pool argument"),
        ("ddtprune -p 1 tank other", "too many arguments"),
        ("prefetch -t zap tank", "unsupported prefetch type 'zap'"),
        ("prefetch -t ddt", "missing pool name argument"),
    ] {
        let words: Vec<&str> = ["zpool"].into_iter().chain(arguments.split(' ')).collect();
        let ended = session.run(&words);
        assert!(
            ended.code == 2 && ended.err.starts_with(message),
            "{arguments}: {} {}",
            ended.code,
            ended.err
        );
    }
    for arguments in ["ddtprune -p 1 none", "prefetch none"] {
        let words: Vec<&str> = ["zpool"].into_iter().chain(arguments.split(' ')).collect();
        let ended = session.run(&words);
        assert!(ended.code == 1 && ended.err.contains("no such pool"), "{arguments}: {}", ended.err);
    }
}
