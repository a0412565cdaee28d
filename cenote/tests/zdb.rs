//! `cenote zdb` prints what OpenZFS's `zdb` prints.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::{Command, Output};

use testkit::oracle;

fn cenote(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cenote")).arg("zdb").args(arguments).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Lines that only one side prints, with the reason.
const LEFT_OUT: [(&str, &str); 11] = [
    ("Unlocked encryption root", "a key that is wrong is an error here"),
    ("Verified ", "the counts of features that are checked on the way"),
    ("loading concrete vdev", "progress"),
    ("Log Space Map Obsolete Entry Statistics", "how much of the logs is out of date"),
    ("valid entries out of", "how much of the logs is out of date"),
    ("Normal class", "without what is in log space maps there, with it here"),
    ("Embedded log class", "chosen when a pool is opened for writing"),
    (" number of (compressed) bytes", "histogram of embedded blocks"),
    ("traversed in", "time is not compared"),
    ("In-memory histogram", "of loaded metaslabs"),
    ("Special class", "as the normal one"),
];

/// The lines that are compared. Histograms of ZAP leaves and of embedded blocks are left out.
fn lines(output: &str) -> Vec<String> {
    let titles =
        ["Leafs with 2^n pointers", "Blocks with n*5", "Blocks n/10", "Entries with n", "Buckets with n"];
    let is_bar = |line: &str| {
        let Some((bucket, _)) = line.strip_prefix("\t\t\t").and_then(|line| line.split_once(": ")) else {
            return false;
        };
        bucket.trim().parse::<u32>().is_ok()
    };
    output
        .split(['\n', '\r'])
        .map(|line| line.split(" in memory)").next().unwrap_or_default())
        .map(|line| if line.contains("indirect vdev id") { line.split(" (").next().unwrap() } else { line })
        .filter(|line| !line.trim().is_empty() && !is_bar(line))
        .filter(|line| !LEFT_OUT.iter().any(|(left_out, _)| line.contains(left_out)))
        .filter(|line| !titles.iter().any(|title| line.contains(title)))
        .map(str::to_owned)
        .collect()
}

/// Compares the lines of both for some letters; `more` are the arguments after the target.
fn same(pool: &str, letters: &str, target: &str, more: &[&str]) {
    let Some(golden) = testkit::golden::pool(pool) else { return };
    let Some(theirs) = oracle::zdb_of(&golden.dir, letters, target, more) else { return };
    let output = cenote(&[&["-p", text(&golden.dir), letters, target], more].concat());
    let what = format!("zdb {letters} {target} {}", more.join(" "));
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    compare(&what, &String::from_utf8_lossy(&output.stdout), &theirs);
}

fn compare(what: &str, ours: &str, theirs: &str) {
    let (ours, theirs) = (lines(ours), lines(theirs));
    assert!(!theirs.is_empty(), "{what}: zdb prints nothing");
    if let Some((ours, theirs)) = ours.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs) {
        panic!("{what}: here\n{ours}\nand there\n{theirs}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
}

#[test]
fn every_label_and_uberblock_is_shown() {
    for pool in ["single", "legacy28", "rz1s9", "dr2"] {
        let Some(golden) = testkit::golden::pool(pool) else { return };
        for disk in golden.disks() {
            let Some(theirs) = oracle::zdb(&["-luuu", text(&disk)]) else { return };
            let ours = cenote(&["-luuu", text(&disk)]);
            compare(pool, &String::from_utf8_lossy(&ours.stdout), &theirs);
            for letters in ["-ll", "-lll"] {
                let Some(theirs) = oracle::zdb(&[letters, text(&disk)]) else { return };
                let ours = cenote(&[letters, text(&disk)]);
                compare(pool, &String::from_utf8_lossy(&ours.stdout), &theirs);
            }
        }
    }
}

#[test]
fn the_checkpoint_is_shown_and_what_the_pool_was_at_it() {
    same("checkpoint", "-u", "checkpoint", &[]);
    same("checkpoint", "-kd", "checkpoint", &[]);
    let Some(golden) = testkit::golden::pool("checkpoint") else { return };
    let shown = |letters: &str, target: &str| {
        let output = cenote(&["-p", text(&golden.dir), letters, target]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(shown("-u", "checkpoint").contains("\nCheckpointed uberblock found:\n\tmagic = "));
    let before = shown("-kd", "checkpoint");
    assert!(!before.contains("Checkpointed uberblock found"));
    assert!(before.contains("Dataset checkpoint_CHECKPOINTED_UNIVERSE ["), "{before}");
    assert!(shown("-kd", "checkpoint/0").starts_with("Dataset mos "));
    let Some(none) = testkit::golden::pool("single") else { return };
    assert_eq!(cenote(&["-p", text(&none.dir), "-k", "-u", "single"]).status.code(), Some(1));
}

#[test]
fn vdevs_are_shown_with_their_free_runs_and_livelists_are_checked() {
    for pool in ["single", "classes", "rz1"] {
        same(pool, "-M", pool, &[]);
        same(pool, "-MM", pool, &[]);
    }
    for pool in ["single", "removed", "checkpoint", "clones24"] {
        let Some(golden) = testkit::golden::pool(pool) else { return };
        let output = cenote(&["-p", text(&golden.dir), "-y", pool]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("Verifying deleted livelist entries\n"));
    }
}

#[test]
fn the_uberblock_and_the_configuration_are_shown() {
    for pool in ["single", "legacy28", "expanded", "removed", "classes", "dr2"] {
        same(pool, "-uC", pool, &[]);
    }
}

#[test]
fn all_datasets_are_listed() {
    for pool in ["single", "legacy28", "removed", "crypt", "volumes"] {
        same(pool, "-d", pool, &[]);
    }
}

#[test]
fn objects_are_shown_with_what_they_mean() {
    same("single", "-ddddd", "single/fs", &["1:-1"]);
    same("single", "-dddd", "single/sa", &["1:-1"]);
    same("legacy28", "-ddddd", "legacy28", &["1:20"]);
    same("removed", "-ddddd", "removed", &["1:40"]);
}

#[test]
fn ranges_of_objects_are_of_types_with_their_whole_pointers() {
    for types in ["0:-1:f", "0:-1:A-f-d", "0:-1:A"] {
        same("single", "-dd", "single/fs", &[types]);
    }
    same("single", "-dd", "single", &["0:-1:mz"]);
    same("single", "-Zdddddbbbbbb", "single/fs", &["1:-1"]);
}

#[test]
fn a_damaged_label_is_shown_as_such() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(&golden.disks()[0], copy.path()).unwrap();
    // The checksum of a label is at the end of its config.
    let file = std::fs::OpenOptions::new().write(true).open(copy.path()).unwrap();
    for label in [0, 256 << 10] {
        std::os::unix::fs::FileExt::write_all_at(&file, &[0x5a; 32], label + (128 << 10) - 32).unwrap();
    }
    let ours = cenote(&["-l", text(copy.path())]);
    assert_eq!(ours.status.code(), Some(1));
    let Some(theirs) = oracle::zdb(&["-l", text(copy.path())]) else { return };
    compare("-l", &String::from_utf8_lossy(&ours.stdout), &theirs);
}

#[test]
fn encrypted_datasets_show_their_structure_without_a_key_and_all_with_it() {
    let Some(golden) = testkit::golden::pool("crypt") else { return };
    let key = golden.expect_text("pass").unwrap();
    same("crypt", "-dddd", "crypt/gcm", &[]);
    same("crypt", "-ddddd", "crypt/gcm", &["1:-1", "-K", key.trim_end()]);
    let wrong = cenote(&["-p", text(&golden.dir), "-d", "-K", "not the passphrase", "crypt/gcm"]);
    assert_eq!(wrong.status.code(), Some(1));
}

#[test]
fn metaslabs_and_space_maps_are_shown() {
    for pool in ["single", "rz1", "dr2", "removed"] {
        same(pool, "-m", pool, &[]);
        same(pool, "-mm", pool, &[]);
    }
}

#[test]
fn dedup_tables_are_shown_to_their_entries() {
    for pool in ["dedupold", "dedupfast"] {
        same(pool, "-D", pool, &[]);
        same(pool, "-DDDDD", pool, &[]);
    }
}

#[test]
fn dedup_is_simulated() {
    for pool in ["single", "dedupold", "dedupfast", "bclone", "crypt"] {
        same(pool, "-S", pool, &[]);
    }
}

#[test]
fn objects_are_found_by_their_paths_and_copied_out() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let place = text(&golden.dir);
    let path = "rand-odd";
    same("single", "-O", "single/fs", &[path]);
    same("single", "-Ovv", "single/fs", &[path]);
    same("single", "-Ov", "single/fs", &["few"]);
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    let copied = cenote(&["-p", place, "-r", "single/fs", path, text(&copy)]);
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let row = &golden.manifest("single/fs").unwrap().rows[path.as_bytes()];
    let sum = testkit::manifest::hex_sha256(&std::fs::read(&copy).unwrap());
    assert_eq!(Some(sum), row.sha256);
    // The same by the number of its object.
    let shown = String::from_utf8(copied.stdout).unwrap();
    let number = shown.split(' ').nth(2).unwrap();
    let again = copies.path().join("again");
    assert!(cenote(&["-p", place, "-rO", "single/fs", number, text(&again)]).status.success());
    assert_eq!(std::fs::read(&again).unwrap(), std::fs::read(&copy).unwrap());
    for wrong in [&["-O", "single/fs"][..], &["-O", "single/fs", "no/such"], &["-r", "single/fs", path]] {
        let refused = cenote(&[&["-p", place][..], wrong].concat());
        assert_eq!(refused.status.code(), Some(1), "{wrong:?}");
    }
}

#[test]
fn what_makes_no_sense_fails() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let named_nothing = cenote(&["-p", text(&golden.dir), "-R", "single"]);
    assert_eq!(named_nothing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&named_nothing.stderr).contains("VDEV:OFFSET:SIZE"));
    let empty = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(cenote(&["-l", text(empty.path())]).status.code(), Some(2));
    assert!(cenote(&["-p", text(&golden.dir), "-AAA", "-u", "single"]).status.success());
    for range in ["0:1:+", "0:1:A-", ":1", "0:", "0::f"] {
        let refused = cenote(&["-p", text(&golden.dir), "-dd", "single", range]);
        assert_eq!(refused.status.code(), Some(1), "{range}");
    }
    // A place is nothing to look at.
    assert_eq!(cenote(&["-p", text(&golden.dir)]).status.code(), Some(1));
}

#[test]
fn intent_logs_and_the_history_are_shown() {
    same("zilreplay", "-iiii", "zilreplay/vol", &[]);
    same("zilreplay", "-h", "zilreplay", &[]);
}

#[test]
fn blocks_are_counted_by_type_level_and_size() {
    for pool in ["single", "crypt", "dedupold", "removed", "rz3", "dr2", "bclone", "legacy28"] {
        same(pool, "-bbbcc", pool, &[]);
    }
}

#[test]
fn programs_get_the_facts_that_people_see() {
    let Some(golden) = testkit::golden::pool("volumes") else { return };
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&cenote(arguments).stdout).unwrap()
    };
    let place = text(&golden.dir);
    let disk = &golden.disks()[0];
    let labels = json(&["-lu", "--json", text(disk)]);
    let (all, ring) = (labels["labels"].as_array().unwrap(), labels["uberblocks"].as_array().unwrap());
    assert!(all.len() == 4 && all.iter().all(|label| label["config"]["name"] == "volumes"), "{labels}");
    let newest = ring.iter().map(|uberblock| uberblock["txg"].as_u64().unwrap()).max();
    let document = json(&["-p", place, "-udb", "--json", "volumes"]);
    assert_eq!(document["uberblock"]["txg"].as_u64(), newest);

    let listed = String::from_utf8(cenote(&["-p", place, "-dP", "volumes"]).stdout).unwrap();
    let lines = listed.lines().filter(|line| line.starts_with("Dataset "));
    let told = document["datasets"].as_array().unwrap().iter().map(|dataset| {
        let of = |key: &str| dataset[key].to_string().trim_matches('"').to_owned();
        format!(
            "Dataset {} [{}], ID {}, cr_txg {}, {}, {} objects",
            of("name"),
            of("type"),
            of("id"),
            of("creation_txg"),
            of("used_bytes"),
            of("objects")
        )
    });
    assert_eq!(told.collect::<Vec<_>>(), lines.collect::<Vec<_>>());
    let snapshots =
        document["datasets"].as_array().unwrap().iter().filter(|dataset| dataset["snapshot"] == true);
    assert_eq!(snapshots.count(), listed.lines().filter(|line| line.contains('@')).count());
    assert_eq!(document["blocks"]["unreadable_blocks"], 0);

    let one = json(&["-p", place, "-d", "--json", "volumes/0"]);
    assert_eq!(one["datasets"][0]["name"], "mos");
    assert_eq!(cenote(&["-p", place, "-h", "--json", "volumes"]).status.code(), Some(1));
}

#[test]
fn a_block_is_shown_by_its_address() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let shown = cenote(&["-p", text(&golden.dir), "--json", "-u", "single"]);
    let document: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let pointer = document["uberblock"]["root_bp"].as_str().unwrap().to_owned();
    // DVA[0]=<vdev:offset:size> ... cksum=...
    let dva = pointer.split(['<', '>']).nth(1).unwrap();
    let checksum = pointer.rsplit("cksum=").next().unwrap();
    let address = format!("{dva}:c");
    let shown = cenote(&["-p", text(&golden.dir), "-R", "single", &address]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let fletcher4 = shown.lines().find(|line| line.contains("fletcher4")).unwrap();
    assert!(fletcher4.ends_with(checksum), "{fletcher4}\n{pointer}");
    let Some(theirs) = oracle::zdb_of(&golden.dir, "-R", "single", &[dva]) else { return };
    let ours = cenote(&["-p", text(&golden.dir), "-R", "single", dva]);
    compare("-R", &String::from_utf8_lossy(&ours.stdout), &theirs);
}

#[test]
fn a_gang_header_has_as_many_pointers_as_its_size_has_room_for() {
    let Some(golden) = testkit::golden::pool("gang24") else { return };
    for (size, pointers) in [("200", 3), ("1000", 31)] {
        let address = format!("0:185000:{size}:g");
        let shown = cenote(&["-p", text(&golden.dir), "-R", "gang24", &address]);
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert_eq!(shown.lines().count(), pointers, "{shown}");
        assert!(shown.starts_with("DVA[0]=<0:"), "{shown}");
    }
}

#[test]
fn an_embedded_block_is_decoded() {
    // Five bytes, not compressed: sizes in the properties, payload from the first word on.
    let mut words = [0u64; 16];
    words[0] = u64::from_le_bytes(*b"hello\0\0\0");
    words[6] = 4 | 4 << 25 | 2 << 32 | 1 << 39 | 19 << 48 | 1 << 63;
    words[10] = 7;
    let text: Vec<String> = words.iter().map(|word| format!("{word:x}")).collect();
    let shown = cenote(&["-E", &text.join(":")]);
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    assert_eq!(shown.stdout, b"hello");
}

#[test]
fn damage_is_told_with_its_place_and_fails() {
    let Some(golden) = testkit::golden::pool("corrupt") else { return };
    let output = cenote(&["-p", text(&golden.dir), "-bcc", "corrupt"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("damaged, and can be read"), "{shown}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("all can be read"));
}
