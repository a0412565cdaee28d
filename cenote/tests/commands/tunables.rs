//! Numbers of the daemon that are set while it runs.

use std::fs;

use crate::session::Session;

#[test]
fn tunables_are_listed_set_and_reset() {
    let session = Session::start();
    let all = session.print(&["tunable", "list"]);
    assert!(all.contains("zfs_txg_timeout") && all.contains("l2arc_write_max"), "{all}");
    assert!(!all.contains("(set)"), "{all}");
    let set = session.print(&["tunable", "set", "zfs_txg_timeout=2", "l2arc_write_max=64M"]);
    assert_eq!(set, "zfs_txg_timeout=2\nl2arc_write_max=67108864\n");
    assert_eq!(session.print(&["tunable", "get", "l2arc_write_max", "zfs_txg_timeout"]), "67108864\n2\n");
    let described = session.print(&["tunable", "list", "-v", "zfs_txg_timeout"]);
    assert!(
        described.contains("value: 2 s, set; default: 5 s; from 1 s to 86400 s; counts at once"),
        "{described}"
    );
    let of_one: serde_json::Value =
        serde_json::from_str(&session.print(&["tunable", "list", "--json", "--set"])).unwrap();
    let names: Vec<&str> =
        of_one["tunables"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["l2arc_write_max", "zfs_txg_timeout"]);
    let path = "/sys/module/zfs/parameters/zfs_txg_timeout";
    assert_eq!(session.print(&["tunable", "set", &format!("{path}=3")]), "zfs_txg_timeout=3\n");
    assert_eq!(session.print(&["tunable", "get", path]), "3\n");
    session.print(&["tunable", "reset", "--all"]);
    assert_eq!(session.print(&["tunable", "list", "--set"]), "");
}

#[test]
fn what_cannot_be_set_says_why_and_sets_nothing() {
    let session = Session::start();
    for (setting, message) in [
        ("nonsense=1", "no such tunable 'nonsense'; 'cenote tunable list' shows all"),
        ("zio_taskq_read=4", "'zio_taskq_read' has no effect here: "),
        ("zfs_txg_timeout=soon", "'soon' is not a value of zfs_txg_timeout"),
        ("zfs_txg_timeout=0", "zfs_txg_timeout cannot be 0: it is at least 1 and at most 86400"),
        ("zfs_txg_timeout", "'zfs_txg_timeout' is not NAME=VALUE"),
    ] {
        let refused = session.run(&["tunable", "set", "l2arc_write_max=1M", setting]);
        assert!(refused.code != 0 && refused.err.contains(message), "{setting}: {}", refused.err);
    }
    assert_eq!(session.print(&["tunable", "list", "--set"]), "");
}

#[test]
fn what_is_saved_counts_after_the_next_start() {
    let place = tempfile::tempdir().unwrap();
    let cachefile = place.path().join("zpool.cache");
    let session = Session::start_keeping(&cachefile, &[]);
    session.print(&["tunable", "set", "--save", "zfs_txg_timeout=3", "zfs_zevent_len_max=64"]);
    session.print(&["tunable", "set", "zfs_txg_history=7"]);
    session.stop();
    let file = place.path().join("tunables.conf");
    assert_eq!(fs::read_to_string(&file).unwrap(), "zfs_txg_timeout=3\nzfs_zevent_len_max=64\n");
    fs::write(&file, "# mine\nnonsense=1\nzfs_txg_timeout=4\nzfs_zevent_len_max=64\n").unwrap();
    let session = Session::start_keeping(&cachefile, &[]);
    let values =
        session.print(&["tunable", "get", "zfs_txg_timeout", "zfs_zevent_len_max", "zfs_txg_history"]);
    assert_eq!(values, "4\n64\n100\n");
    session.print(&["tunable", "reset", "--save", "zfs_txg_timeout"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "# mine\nnonsense=1\nzfs_zevent_len_max=64\n");
    // A daemon that keeps nothing says so.
    let other = Session::start();
    let refused = other.run(&["tunable", "set", "--save", "zfs_txg_timeout=3"]);
    assert!(refused.err.contains("keeps nothing for its next start"), "{}", refused.err);
    assert_eq!(other.print(&["tunable", "get", "zfs_txg_timeout"]), "5\n");
}
