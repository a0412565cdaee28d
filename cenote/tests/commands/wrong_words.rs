//! Names and values that are none: each is refused, with the one that may have been meant. And the JSON of
//! commands beside those of OpenZFS.

use std::fs::File;
use std::process::Command;

use serde_json::Value;

use crate::session::Session;

fn with_pool() -> (Session, String) {
    let session = Session::start();
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    let disk = disk.to_str().unwrap().to_owned();
    session.print(&["zpool", "create", "-O", "mountpoint=none", "tank", &disk]);
    (session, disk)
}

#[test]
fn names_that_there_are_not_are_refused_with_what_may_be_meant() {
    let (session, _) = with_pool();
    for (command, why) in [
        (&["top", "--once", "nosuch"][..], "cannot open 'nosuch': no such pool"),
        (
            &["hooks", "add", "-e", "faullt", "--command", "true", "h"],
            "no event 'faullt'; did you mean 'fault'?",
        ),
        (&["zpool", "set", "comment=a", "autotrim=on", "tank"], "sets one at a time"),
    ] {
        let refused = session.run(command);
        assert!(refused.code != 0 && refused.err.contains(why), "{command:?}: {refused:?}");
    }
    assert_eq!(session.print(&["hooks", "list"]), "no hooks\n");
    session.print(&["hooks", "add", "-e", "fault,scrub_*", "--command", "true", "h"]);
}

#[test]
fn shares_are_on_or_off_or_have_options_that_there_are() {
    let (session, disk) = with_pool();
    let other = format!("{disk}2");
    File::create(&other).unwrap().set_len(256 << 20).unwrap();
    let refused = session.run(&["zpool", "create", "-O", "sharenfs=ON", "other", &other]);
    assert!(refused.code == 1 && refused.err.contains("did you mean 'on'?"), "{refused:?}");
    for command in [
        &["zfs", "create", "-o", "sharenfs=ON", "tank/fs"][..],
        &["zfs", "set", "sharenfs=rw,no_rot_squash", "tank"],
        &["zfs", "set", "sharesmb=On", "tank"],
        &["zfs", "set", "sharenfs=", "tank"],
    ] {
        let refused = session.run(command);
        assert!(refused.code == 1 && refused.err.contains("cannot be set to invalid options"), "{refused:?}");
    }
    session.print(&["zfs", "set", "sharenfs=rw=@10.0.0.0/8,no_root_squash", "tank"]);
    session.print(&["zfs", "set", "sharesmb=on", "tank"]);
    let values = session.print(&["zfs", "get", "-Ho", "value", "sharenfs,sharesmb", "tank"]);
    assert_eq!(values, "rw=@10.0.0.0/8,no_root_squash\non\n");
}

#[test]
fn inherit_without_a_property_lists_those_that_there_are() {
    let session = Session::start();
    for command in [&["zfs", "inherit"][..], &["zfs", "set"]] {
        let ended = session.run(command);
        assert_eq!(ended.code, 2);
        let inherited: Vec<&str> = ended
            .err
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|words| words.get(1..3) == Some(&["YES", "YES"]))
            .map(|words| words[0])
            .collect();
        for name in ["compression", "mountpoint", "recordsize", "sharenfs"] {
            assert!(inherited.contains(&name), "{name}: {}", ended.err);
        }
        assert!(!inherited.contains(&"quota") && !inherited.contains(&"used"), "{inherited:?}");
    }
}

#[test]
fn commands_beside_those_of_openzfs_have_json() {
    let (session, disk) = with_pool();
    let json = |command: &[&str]| -> Value {
        let printed = session.print(command);
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{command:?}: {error}: {printed}"))
    };
    assert!(json(&["arcstat", "--json"])["read"].is_number());
    let groups = json(&["arcsummary", "--json"])["groups"].clone();
    let arc = groups.as_array().unwrap().iter().find(|group| group["name"] == "arcstats").unwrap();
    assert!(arc["counters"]["size"].is_number(), "{arc}");
    assert_eq!(json(&["attach", "--json"])["volumes"], Value::Array(Vec::new()));
    assert_eq!(json(&["scrub-schedule", "--json"])["schedules"][0]["pool"], "tank");
    let set = json(&["scrub-schedule", "--json", "tank", "weekly"]);
    assert_eq!(set["schedules"][0]["schedule"], "weekly");
    let added = json(&["inject", "--json", "-d", &disk, "-e", "io", "-T", "trim", "tank"]);
    let faults = json(&["inject", "--json"])["faults"].clone();
    assert_eq!(faults[0]["id"], added["handlers"][0]);
}

/// A user other than root beside the daemon of the machine, in a mount namespace where that is this test's.
#[test]
fn who_is_not_root_changes_no_daemon_unasked() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: a user beside root's daemon needs root");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let script = r#"
        set -u
        mount -t tmpfs none /run || exit 77
        chmod 755 "$1"; mkdir "$1/home"; chown 65534 "$1/home"; cp "$2" "$1/cenote"; chmod 755 "$1/cenote"
        unset CENOTE_SOCKET
        "$1/cenote" serve --cachefile none >"$1/log" 2>&1 & daemon=$!
        trap 'kill $daemon; wait $daemon' EXIT
        until [ -S /run/cenote/read.sock ]; do kill -0 $daemon || exit 78; sleep 0.05; done
        nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups env -i PATH="$PATH" HOME="$1/home" \
            XDG_RUNTIME_DIR="$1/home" "$1/cenote" "${@:2}"; }
        for command in "tunable set zfs_txg_timeout=1" "hooks add -e all --command true h" \
            "hooks list" "share tank/v iscsi" "scrub-schedule tank daily" "inject -a" \
            "zpool labelclear $1/log"; do
            nobody "$1" $command >"$1/out" 2>&1 && echo "accepted: $command"
            # 'share' may be allowed by 'zfs allow', so that the dataset is looked for first.
            grep -qE "permission denied|dataset does not exist" "$1/out" ||
                { echo "$command:"; cat "$1/out"; }
            [ ! -e "$1/home/cenote" ] || { echo "$command started a daemon"; break; }
        done
        "$1/cenote" tunable get zfs_txg_timeout
        # A pool of the user's own brings a daemon of the user's own, which says that it is that.
        setpriv --reuid=65534 --regid=65534 --clear-groups truncate -s 128M "$1/home/disk"
        nobody "$1" zpool create -O mountpoint=none own "$1/home/disk" 2>"$1/err" || cat "$1/err"
        grep -q "your own daemon is started" "$1/err" || { echo "create:"; cat "$1/err"; }
        nobody "$1" zpool list -Ho name 2>"$1/err"
        grep -q "your own daemon answers" "$1/err" || { echo "list:"; cat "$1/err"; }
        nobody "$1" zpool export own 2>/dev/null
        # It ends with the namespace of this test.
        for own in /proc/[0-9]*; do
            [ "$(stat -c %u "$own" 2>/dev/null)" = 65534 ] || continue
            [ "$(readlink "$own/exe" 2>/dev/null)" = "$1/cenote" ] && kill "${own#/proc/}"
        done
    "#;
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "bash", "-c", script, "users"]);
    let ended = shell.arg(place.path()).arg(env!("CARGO_BIN_EXE_cenote")).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!((ended.status.code(), &*out), (Some(0), "5\nown\n"), "{err}");
}
