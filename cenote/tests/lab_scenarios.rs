//! Scenarios of the lab in their quick form, by the binary: what their reports say.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn lab(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cenote"))
        .arg("lab")
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Plays a scenario. Gives its figures.
fn played(name: &str) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let output = lab(directory.path(), &["run", name, "-o", "results", "--quick", "--json"]);
    assert!(output.status.success(), "{}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["scenario"], &report["quick"]), (&name.into(), &true.into()));
    let mut left: Vec<String> = std::fs::read_dir(directory.path().join("results"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["report.html", "report.json", "report.md"], "the disks are gone");
    let page = std::fs::read_to_string(directory.path().join("results/report.html")).unwrap();
    let kinds = |kind: &str| page.matches(&format!("\"kind\":\"{kind}\"")).count();
    assert!(page.contains(&format!("<title>{name}</title>")) && kinds("table") > 0, "{page}");
    let document = &report["document"];
    assert_eq!((&document["title"], document["blocks"].is_array()), (&name.into(), true));
    let bars = document["blocks"].as_array().unwrap().iter().filter(|block| block["kind"] == "bars");
    assert!(kinds("bars") > 0 && bars.count() == kinds("bars"), "{page}");
    report["figures"].as_array().unwrap().clone()
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("{key}: {of}"))
}

/// A size as the book writes it.
fn bytes(words: &str) -> u64 {
    let (number, unit) = words.split_once(' ').unwrap_or((words, "B"));
    let unit = ["B", "KiB", "MiB", "GiB"].iter().position(|it| *it == unit).unwrap();
    (number.parse::<f64>().unwrap() * f64::from(1 << (10 * unit))) as u64
}

/// Compares the book's table of what a scrub with bad hardware does to a mirror with what it did.
fn is_as_in_the_book(outcomes: &[Value]) {
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/lab.md");
    let book = std::fs::read_to_string(book).unwrap();
    let (_, table) = book.split_once("| what is bad | scrub overwrote |").unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), outcomes.len(), "{rows:?}");
    for (row, it) in rows.iter().zip(outcomes) {
        let [what, overwritten, reported, mended, lost] = row[..] else { panic!("{row:?}") };
        // It depends on the order of reads how much fails twice.
        let is_certain = it["act"] != "memory, now and then";
        if overwritten != "-" {
            let (told, did) = (bytes(overwritten), number(it, "overwritten_bytes"));
            assert!(
                if is_certain { told == did } else { (did / 2..=did * 2).contains(&told) },
                "{what}: {it}"
            );
            assert_eq!(reported, number(it, "unrepaired").to_string(), "{what}: {it}");
        }
        assert_eq!(bytes(mended), number(it, "mended_bytes"), "{what}: {it}");
        let of = |word| (number(&it["lost"], word), word);
        let most = [of("wrong"), of("unreadable")].into_iter().find(|(count, _)| *count > 0);
        assert_eq!(
            lost,
            most.map_or("0".to_owned(), |(count, word)| format!("{count} {word}")),
            "{what}: {it}"
        );
    }
}

#[test]
fn a_scrub_with_bad_hardware_loses_nothing_and_bad_writes_do() {
    let outcomes = played("scrub-of-death");
    assert_eq!(outcomes.len(), 14);
    is_as_in_the_book(&outcomes[..7]);
    for it in &outcomes {
        let act = it["act"].as_str().unwrap();
        let (wrong, unreadable) = (number(&it["lost"], "wrong"), number(&it["lost"], "unreadable"));
        let (overwritten, mended) = (number(it, "overwritten_bytes"), number(it, "mended_bytes"));
        assert!(number(it, "flipped") > 0, "{it}");
        match act {
            "memory before checksums" => {
                assert!(wrong > 0 && unreadable == 0, "{it}");
                assert_eq!((number(it, "found"), mended), (0, 0), "no checksum can find it: {it}");
            }
            "memory after checksums" | "controllers at writes" => {
                assert!(wrong == 0 && unreadable > 0 && number(it, "unmended") == unreadable, "{it}");
            }
            _ => {
                assert_eq!((wrong, unreadable, number(it, "unmended")), (0, 0, 0), "{it}");
                let is_spoiled = number(it, "overwritten_wrong_sectors") > 0;
                assert_eq!(is_spoiled, act.starts_with("controller"), "{it}");
                // What fails is read again: it depends on the order of reads what fails twice.
                let is_certain = act != "memory, now and then";
                assert!(!is_certain || (overwritten == 0) == (act == "memory, every buffer"), "{it}");
                assert_eq!(mended > 0, is_spoiled, "{it}");
                let is_reported = act == "memory, every buffer" || act == "controllers in turn";
                assert!(!is_reported || number(it, "unrepaired") > 0, "{it}");
            }
        }
    }
}

#[test]
fn a_resilver_of_modelled_disks_is_measured_beside_what_is_predicted() {
    let outcomes = played("resilver");
    let layouts: Vec<&str> = outcomes.iter().map(|it| it["layout"].as_str().unwrap()).collect();
    assert_eq!(layouts, ["mirror 2", "raidz1 4", "raidz2 6"]);
    for it in &outcomes {
        let held = number(it, "held_bytes") as f64;
        for of in [&it["idle"], &it["loaded"]] {
            // Labels and changed metadata come with what the disk held.
            let written = number(of, "written_bytes") as f64 / held;
            assert!((0.9..1.5).contains(&written), "{of}");
            let read = number(of, "read_bytes") as f64 / it["predicted"]["read"].as_f64().unwrap();
            assert!((0.8..2.0).contains(&read), "{it}");
            assert!(of["seconds"].as_f64() >= it["predicted"]["seconds_at_best"].as_f64().map(|it| it * 0.8));
        }
        assert!(number(&it["before"], "reads") > 10 && number(&it["loaded"]["during"], "reads") > 0, "{it}");
    }
}

#[test]
fn mirrors_give_space_after_two_larger_disks_and_raidz_after_all() {
    let outcomes = played("grow");
    for it in &outcomes {
        let before = number(it, "usable_bytes");
        let grown: Vec<bool> = it["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| number(step, "usable_bytes") > before)
            .collect();
        let is_mirror = it["layout"].as_str().unwrap().starts_with("mirror");
        assert_eq!(grown, [false, is_mirror, is_mirror, true], "{it}");
        assert_eq!(number(&it["lost"], "wrong") + number(&it["lost"], "unreadable"), 0, "{it}");
    }
    assert_eq!(outcomes.len(), 3);
}

#[test]
fn scenarios_are_listed_and_refuse_what_is_for_experiments() {
    let directory = tempfile::tempdir().unwrap();
    let listed = lab(directory.path(), &["recipes"]);
    assert!(["scrub-of-death", "resilver", "grow"].iter().all(|name| text(&listed).contains(name)));
    let listed: Value =
        serde_json::from_slice(&lab(directory.path(), &["recipes", "--json"]).stdout).unwrap();
    let is_scenario = |it: &&Value| it["scenario"] == true;
    assert_eq!(listed.as_array().unwrap().iter().filter(is_scenario).count(), 3);
    let refused = lab(directory.path(), &["run", "grow", "--rounds", "3"]);
    assert!(!refused.status.success() && text(&refused).contains("scenario"), "{}", text(&refused));
    let refused = lab(directory.path(), &["new", "grow", "-o", "grow.toml"]);
    assert!(
        !refused.status.success() && text(&refused).contains("cenote lab run grow"),
        "{}",
        text(&refused)
    );
    std::fs::create_dir(directory.path().join("full")).unwrap();
    std::fs::write(directory.path().join("full/x"), "x").unwrap();
    let refused = lab(directory.path(), &["run", "grow", "-o", "full"]);
    assert!(!refused.status.success() && text(&refused).contains("empty"), "{}", text(&refused));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is made");
}
