//! What reports on pools show on request: what scripts say of devices, and the time.

use std::os::unix::fs::PermissionsExt;

use crate::session::{Ended, Session};

/// A script that says more of a device.
const SCRIPT: &str = r#"#!/bin/sh
if [ "$1" = "-h" ]; then echo "Show the name."; exit; fi
echo "disk=${VDEV_PATH##*/}"
echo "of=$POOL_NAME"
echo "home=$HOME"
[ "$VDEV_UPATH" = "$VDEV_PATH" ] && echo "a file"
"#;

#[test]
fn scripts_say_more_of_each_device() {
    let Some(golden) = testkit::golden::pool("rz1") else { return };
    let session = Session::start();
    session.import(&golden.dir, "rz1");
    let scripts = session.directory().join("scripts");
    std::fs::create_dir(&scripts).unwrap();
    let script = scripts.join("name");
    std::fs::write(&script, SCRIPT).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(scripts.join("notes"), "not executable").unwrap();
    let run = |more: &[(&str, &str)], arguments: &[&str]| -> Ended {
        let path = [("ZPOOL_SCRIPTS_PATH", scripts.to_str().unwrap())];
        session.run_in(&[&path[..], more].concat(), arguments)
    };
    let allowed = [("ZPOOL_SCRIPTS_AS_ROOT", "1")];

    let status = run(&allowed, &["zpool", "status", "-c", "name", "rz1"]);
    assert_eq!((status.code, status.err.as_str()), (0, ""));
    let line = |text: &str, start: &str| -> String {
        text.lines()
            .find(|line| line.contains(start))
            .unwrap_or_else(|| panic!("{start} in {text}"))
            .to_owned()
    };
    assert!(line(&status.out, "NAME").ends_with("CKSUM  disk   of  home"), "{}", status.out);
    assert!(line(&status.out, "/d2").ends_with("0     0     0    d2  rz1     -  a file"), "{}", status.out);
    assert!(line(&status.out, "raidz1-0").ends_with("0     0     0"), "{}", status.out);

    let iostat = run(&allowed, &["zpool", "iostat", "-c", "name", "rz1"]);
    assert!(line(&iostat.out, "alloc").ends_with("write  disk   of  home"), "{}", iostat.out);
    assert!(line(&iostat.out, "-----").ends_with("-----  ----  ---  ----"), "{}", iostat.out);
    assert!(line(&iostat.out, "/d2").ends_with("  d2  rz1     -  a file"), "{}", iostat.out);
    let alone = run(&allowed, &["zpool", "iostat", "-c", "name", "rz1", "raidz1-0"]);
    assert!(line(&alone.out, "alloc").ends_with("write"), "no device is shown:\n{}", alone.out);

    let status = run(&allowed, &["zpool", "status", "-j", "-c", "name", "rz1"]).out;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let devices = &status["pools"]["rz1"]["vdevs"]["rz1"]["vdevs"]["raidz1-0"]["vdevs"];
    let device = &devices[golden.disks()[2].to_str().unwrap()];
    assert_eq!((&device["disk"], &device["extra_1"]), (&"d2".into(), &"a file".into()), "{status}");

    assert!(
        run(&allowed, &["zpool", "status", "-c"])
            .out
            .ends_with(&format!("\n  name{}Show the name.\n", " ".repeat(12)))
    );
    for (environment, script, message) in [
        (&allowed[..], "notes", "no script 'notes' in "),
        (&allowed[..], "../scripts/name", "no script '../scripts/name' in "),
        (&[("ZPOOL_SCRIPTS_ENABLED", "no")][..], "name", "Can't run -c, disabled by ZPOOL_SCRIPTS_ENABLED."),
    ] {
        let refused = run(environment, &["zpool", "status", "-c", script]);
        assert_eq!((refused.code, refused.out.as_str()), (1, ""));
        assert!(refused.err.starts_with(message), "{}", refused.err);
    }
    if rustix::process::geteuid().is_root() {
        let refused = run(&[], &["zpool", "iostat", "-c", "name"]);
        assert_eq!((refused.code, refused.out.as_str()), (1, ""));
        assert!(refused.err.contains("unless ZPOOL_SCRIPTS_AS_ROOT is set"), "{}", refused.err);
    }
}

#[test]
fn reports_are_repeated_with_the_time_above_each() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let session = Session::start();
    session.import(&golden.dir, "single");
    for command in ["status", "list", "iostat"] {
        let is_time = |line: &&str| line.parse::<u64>().is_ok();
        let text = session.print(&["zpool", command, "-T", "u", "single", "0.01", "2"]);
        assert_eq!(text.lines().filter(is_time).count(), 2, "{text}");
        assert!(text.lines().next().is_some_and(|line| is_time(&line)), "{text}");
        let text = session.print(&["zpool", command, "-Td", "single"]);
        let words: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
        assert_eq!((words.len(), words[4]), (6, "UTC"), "{text}");
        assert_eq!(session.run(&["zpool", command, "-T", "x"]).code, 2);
        let text = session.print(&["zpool", command, "-j", "--json-int", "-Tu", "single"]);
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(document["time"].is_u64(), "{text}");
    }
}

#[test]
fn the_tools_end_with_a_core_file_where_openzfs_s_variable_asks_for_that() {
    let session = Session::start();
    for tool in ["zpool", "zfs"] {
        let ended = session.run_in(&[("ZFS_ABORT", "yes")], &[tool, "list"]);
        // By a signal, so without a code.
        assert_eq!((ended.code, ended.err.contains("dumping core")), (-1, true), "{tool}: {}", ended.err);
    }
    assert_eq!(session.run_in(&[("ZFS_ABORT", "yes")], &["counters", "--list"]).code, 0);
}
