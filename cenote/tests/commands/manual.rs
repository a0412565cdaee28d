//! The manual pages, and what `cenote doctor` tells.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::session::Session;

fn cenote(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_cenote")).args(arguments).output().unwrap()
}

/// The manual pages below a directory.
fn pages(place: &std::path::Path) -> Vec<PathBuf> {
    let written = cenote(&["man", place.to_str().unwrap()]);
    assert!(written.status.success(), "{written:?}");
    let sections = ["man7", "man8"].map(|section| fs::read_dir(place.join(section)).unwrap());
    let mut all: Vec<PathBuf> = sections.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn each_command_has_a_page_and_so_have_properties_and_tunables() {
    let place = tempfile::tempdir().unwrap();
    let pages = pages(place.path());
    assert!(pages.len() > 100, "{}", pages.len());
    for (name, words) in [
        ("man8/cenote.8", "snapshot\\-schedule"),
        ("man8/cenote-zfs-send.8", "Incremental"),
        ("man8/cenote-replicate.8", "remote\\-zfs"),
        ("man7/cenote-properties.7", "recordsize"),
        ("man7/cenote-pool-properties.7", "autoreplace"),
        ("man7/cenote-tunables.7", "zfs_txg_timeout"),
    ] {
        let text = fs::read_to_string(place.path().join(name)).unwrap();
        assert!(text.contains(words), "{name}: {text}");
    }
    assert!(!place.path().join("man8/cenote-complete.8").exists(), "what is hidden has none");
}

#[test]
fn mandoc_finds_nothing_wrong_with_the_pages() {
    if Command::new("mandoc").arg("-?").output().is_err() {
        eprintln!("left out: mandoc is not installed");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let looked =
        Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(pages(place.path())).output();
    let said = String::from_utf8(looked.unwrap().stdout).unwrap();
    // Pages have no date, so that they are the same each time they are made. What they refer to is looked for
    // where manual pages are installed.
    let is_fault =
        |line: &&str| !line.contains("missing date") && !line.contains("referenced manual not found");
    let faults: Vec<&str> = said.lines().filter(is_fault).collect();
    assert!(faults.is_empty(), "{} faults: {:#?}", faults.len(), &faults[..faults.len().min(20)]);
}

#[test]
fn the_doctor_says_what_is_lacking_what_it_costs_and_what_to_do() {
    let session = Session::start();
    let ended = session.run(&["doctor", "--json"]);
    let told: Value = serde_json::from_str(&ended.out).unwrap();
    let findings = told["findings"].as_array().unwrap();
    let is_bad = |finding: &&Value| finding["state"] == "lacks" || finding["state"] == "broken";
    assert_eq!(ended.code, i32::from(findings.iter().any(|finding| is_bad(&finding))), "{}", ended.out);
    for finding in findings {
        assert_eq!(finding["state"] != "ok", finding["advice"].is_string(), "{finding}");
    }
    let of = |check: &str| findings.iter().find(|finding| finding["check"] == check).unwrap();
    assert_eq!(of("io_uring")["state"], "ok", "tests need it");
    let daemon = of("daemon")["found"].as_str().unwrap();
    assert!(daemon.ends_with(&format!("process {}", session.daemon_id())), "{daemon}");
    let table = session.run(&["doctor"]);
    assert!(table.out.starts_with("CHECK ") && table.out.contains("\nhostid "), "{}", table.out);
    assert!(session.run(&["doctor", "--quiet"]).out.lines().count() < table.out.lines().count());
}
