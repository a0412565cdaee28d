//! What a person finds out at the prompt: completion in a shell, what is missing, and figures in refusals.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::session::Session;

/// The candidates of bash for a line that is typed so far.
fn in_bash(session: &Session, line: &str) -> Vec<String> {
    let script = "source <(cenote completion bash)
        COMP_LINE=\"$1\" COMP_POINT=${#1}
        _cenote && printf '%s\\n' \"${COMPREPLY[@]}\"";
    let program = Path::new(env!("CARGO_BIN_EXE_cenote")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let said = Command::new("bash")
        .args(["-c", script, "bash", line])
        .env("PATH", path)
        .env("CENOTE_SOCKET", session.directory().join("api.sock"))
        .output()
        .unwrap();
    assert!(said.status.success(), "{line}: {said:?}");
    String::from_utf8(said.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_prompt_knows_pools_datasets_and_what_is_missing() {
    let session = Session::start();
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let disk = disk.to_str().unwrap();
    for line in [
        vec!["zpool", "create", "-m", "none", "tank", disk],
        vec!["zfs", "create", "tank/some"],
        vec!["zfs", "create", "tank/some/below"],
        vec!["zfs", "snapshot", "tank/some@first"],
        vec!["zfs", "snapshot", "tank/some@second"],
    ] {
        session.print(&line);
    }
    for (line, expected) in [
        ("zpool export ", &["tank"][..]),
        ("cenote zpool status ta", &["tank"]),
        ("zpool offline tank ", &[disk, "tank"]),
        ("zfs list tank/", &["tank/some"]),
        ("zfs list -r tank/some/", &["tank/some/below"]),
        ("cenote zfs set atime=off tank/s", &["tank/some"]),
        ("zfs rollback tank/some@", &["first", "second"]),
        ("zfs destroy tank/some@f", &["first"]),
        ("zfs set atime=", &["off", "on"]),
        ("zpool get capac", &["capacity"]),
        ("zdb nothing-is-known", &[]),
    ] {
        let found = in_bash(&session, line);
        let found: Vec<&str> = found.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
        assert_eq!(found, expected, "{line}");
    }
    for (line, code, text) in [
        ("zpool split tank b", 1, "zpool split is not there yet; OpenZFS splits pools"),
        ("zpool remove -s tank", 1, "zpool remove -s is not there yet; "),
        ("zfs redact tank@a b", 1, "zfs redact is not there yet; "),
        ("zpool sync -Q", 2, "invalid option 'Q'\n"),
        ("zpool set", 2, "missing property=value argument\nusage: zpool set "),
        ("zfs create -V 1T tank/v", 1, "is available; -s reserves nothing for a volume"),
    ] {
        let ended = session.run(&line.split(' ').collect::<Vec<_>>());
        assert!(ended.code == code && ended.err.contains(text), "{line}: {ended:?}");
    }
    let help = session.print(&["--help"]);
    assert!(help.contains("CENOTE_SOCKET") && help.contains("--arc-max"), "{help}");
    session.print(&["zpool", "export", "tank"]);
}
