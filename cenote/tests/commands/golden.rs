//! What the commands print of the golden pools, against what OpenZFS printed.
//!
//! The recordings were made while the pools were mounted and open for writing, a moment before their export.
//! What differs for that reason is in a table with the reason; whether numbers are exactly right is the
//! engine's test, here it is enough that they are close.

use testkit::GoldenPool;

use crate::session::Session;

/// How far numbers that the export moved may be from those recorded, in bytes.
const MOVED_BYTES: u64 = 4 << 20;
/// How far ratios and percentages that follow from them may be, in hundredths.
const MOVED_HUNDREDTHS: u64 = 5;

/// A property whose value may differ, and why.
struct Exception {
    properties: &'static [&'static str],
    #[allow(dead_code)] // For the reader.
    reason: &'static str,
    allow: fn(&str, &str) -> bool,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        properties: &[
            "used",
            "available",
            "referenced",
            "written",
            "usedbydataset",
            "usedbysnapshots",
            "usedbychildren",
            "usedbyrefreservation",
            "logicalused",
            "logicalreferenced",
            "allocated",
            "free",
            "checkpoint",
            "dedup_table_size",
        ],
        reason: "moved by the export",
        allow: |recorded, found| near(recorded, found, MOVED_BYTES),
    },
    Exception {
        properties: &["compressratio", "refcompressratio", "capacity", "fragmentation"],
        reason: "follows from what the export moved",
        allow: |recorded, found| near(&recorded.replace('.', ""), &found.replace('.', ""), MOVED_HUNDREDTHS),
    },
    Exception {
        properties: &["mounted"],
        reason: "imported with -N",
        allow: |recorded, found| (recorded, found) == ("yes", "no"),
    },
    Exception {
        properties: &["readonly"],
        reason: "imported read-only",
        allow: |recorded, found| (recorded, found) == ("off", "on"),
    },
    Exception {
        properties: &["available"],
        reason: "OpenZFS 2.3 did not count as room what special devices hold",
        allow: |recorded, found| near(recorded, found, 6 << 20),
    },
    Exception {
        properties: &["xattr"],
        reason: "OpenZFS 2.3 had another word",
        allow: |recorded, found| (recorded, found) == ("on", "sa"),
    },
    Exception { properties: &["load_guid"], reason: "drawn at each import", allow: |_, _| true },
];

fn near(recorded: &str, found: &str, by: u64) -> bool {
    match (recorded.parse::<u64>(), found.parse::<u64>()) {
        (Ok(recorded), Ok(found)) => recorded.abs_diff(found) <= by,
        _ => false,
    }
}

fn may_differ(property: &str, recorded: &str, found: &str) -> bool {
    let known = EXCEPTIONS.iter().filter(|exception| exception.properties.contains(&property));
    recorded == found || known.into_iter().any(|exception| (exception.allow)(recorded, found))
}

/// Compares tables of tab-separated values, line by line: `property` says which property a column of a line
/// is.
fn compare(what: &str, recorded: &str, found: &str, property: impl Fn(&[&str], usize) -> String) {
    let (recorded, found): (Vec<&str>, Vec<&str>) = (recorded.lines().collect(), found.lines().collect());
    for (recorded, found) in recorded.iter().zip(&found) {
        let (old, new): (Vec<&str>, Vec<&str>) =
            (recorded.split('\t').collect(), found.split('\t').collect());
        let same = old.len() == new.len()
            && (0..old.len()).all(|column| may_differ(&property(&old, column), old[column], new[column]));
        assert!(same, "{what}:\nrecorded {recorded}\nfound    {found}");
    }
    assert_eq!(recorded.len(), found.len(), "{what}: number of lines");
}

/// Property tables have the property's name in the second column and its value in the third.
fn property_of_row(row: &[&str], column: usize) -> String {
    if column == 2 { row[1].to_owned() } else { String::new() }
}

/// The lines of a property table that OpenZFS 2.3 would have printed, of a pool that it recorded.
fn without_newer(golden: &GoldenPool, found: &str) -> String {
    if golden.is_of_2_4() {
        return found.to_owned();
    }
    let rows = || found.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let volumes: Vec<_> =
        rows().filter(|row| row.get(1) == Some(&"volblocksize")).map(|row| row[0]).collect();
    let kept = rows().filter(|row| !testkit::golden::is_new_in_2_4(row[1], volumes.contains(&row[0])));
    kept.map(|row| row.join("\t") + "\n").collect()
}

fn recorded(golden: &GoldenPool, file: &str) -> Option<String> {
    golden.expect(file).exists().then(|| golden.expect_text(file).unwrap())
}

/// The golden pools that were exported, and a daemon that has them all open.
fn open_all() -> Option<(Session, Vec<GoldenPool>)> {
    let names = testkit::golden::names().unwrap_or_default();
    let exported = names.iter().filter(|name| *name != "zilreplay");
    let pools: Vec<GoldenPool> = exported.map(|name| testkit::golden::pool(name)).collect::<Option<_>>()?;
    // Without any this says how to get them.
    testkit::golden::pool("single")?;
    let session = Session::start();
    for golden in &pools {
        session.import(&golden.dir, &golden.name);
        if golden.name == "crypt" {
            for (dataset, file) in [("crypt/gcm", "pass"), ("crypt/ccm", "rawkey"), ("crypt/vol", "hex")] {
                let location = format!("file://{}", golden.expect(file).display());
                session.print(&["zfs", "load-key", "-L", &location, dataset]);
            }
        }
    }
    Some((session, pools))
}

#[test]
fn golden_pools_are_told_as_openzfs_told_them() {
    let Some((session, pools)) = open_all() else { return };
    for golden in &pools {
        let name = golden.name.as_str();
        let columns = ["name", "type", "used", "referenced", "creation"];
        if let Some(recorded) = recorded(golden, "list.tsv") {
            let found =
                session.print(&["zfs", "list", "-Hp", "-t", "all", "-o", &columns.join(","), "-r", name]);
            compare(&format!("{name} list"), &recorded, &found, |_, column| columns[column].to_owned());
        }
        if let Some(recorded) = recorded(golden, "props.tsv") {
            let found = session.print(&["zfs", "get", "-Hp", "-r", "-t", "all", "all", name]);
            let found = without_newer(golden, &found);
            compare(&format!("{name} properties"), &recorded, &found, property_of_row);
        }
        if let Some(recorded) = recorded(golden, "pool.tsv") {
            let found = session.print(&["zpool", "get", "-Hp", "all", name]);
            let found = without_newer(golden, &found);
            compare(&format!("{name} pool"), &recorded, &found, property_of_row);
        }
        if let Some(recorded) = recorded(golden, "history.txt") {
            let found = session.print(&["zpool", "history", "-il", name]);
            check_history(name, &recorded, &found);
        }
        if let Some(recorded) = recorded(golden, "status.txt") {
            let found = session.print(&["zpool", "status", name]);
            check_status(golden, &recorded, &found);
        }
    }
    let listed = session.print(&["zpool", "list", "-H", "-o", "name"]);
    let names: Vec<&str> = pools.iter().map(|golden| golden.name.as_str()).collect();
    assert_eq!(listed.lines().collect::<Vec<_>>(), names);
    session.print(&["zpool", "export", "-a"]);
    assert_eq!(session.print(&["zpool", "list"]), "no pools available\n");
}

/// The export itself added the last record.
fn check_history(pool: &str, recorded: &str, found: &str) {
    let mut lines: Vec<&str> = found.lines().collect();
    let export = format!("zpool export {pool}");
    lines.retain(|line| !line.contains(&export));
    let recorded: Vec<&str> = recorded.lines().collect();
    for (recorded, found) in recorded.iter().zip(&lines) {
        assert_eq!(recorded, found, "{pool} history");
    }
    assert_eq!(recorded.len(), lines.len(), "{pool} history");
}

/// Devices are elsewhere, so that the column of names has another width.
fn check_status(golden: &GoldenPool, recorded: &str, found: &str) {
    let squeeze = |line: &str| {
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        // What the checkpoint alone refers to is moved by the export.
        match words.as_slice() {
            ["checkpoint:", before @ .., _] => before.join(" "),
            words => words.join(" "),
        }
    };
    let moved = found.replace(golden.dir.to_str().unwrap(), &format!("/img/{}", golden.name));
    let (old, new): (Vec<String>, Vec<String>) =
        (recorded.lines().map(squeeze).collect(), moved.lines().map(squeeze).collect());
    assert_eq!(old, new, "{} status:\n{found}", golden.name);
    // The states stand below their heading.
    let column = found.lines().find_map(|line| line.find("STATE"));
    let rows = found.lines().filter(|line| line.starts_with('\t') && line.ends_with("0     0     0"));
    for row in rows {
        let state = row.split_whitespace().nth(1).and_then(|state| row.find(state));
        assert_eq!(state, column, "{} status:\n{found}", golden.name);
    }
}

#[test]
fn json_has_the_shape_of_openzfs() {
    let Some(golden) = testkit::golden::pool("classes") else { return };
    let session = Session::start();
    session.import(&golden.dir, "classes");
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&session.print(arguments)).unwrap()
    };
    let status = json(&["zpool", "status", "-j", "--json-int"]);
    assert_eq!(status["output_version"]["command"], "zpool status");
    let pool = &status["pools"]["classes"];
    assert_eq!(pool["state"], "ONLINE");
    assert_eq!(pool["error_count"], 0);
    assert_eq!(pool["vdevs"]["classes"]["vdevs"]["mirror-0"]["vdev_type"], "mirror");
    assert_eq!(pool["special"]["mirror-1"]["class"], "special");
    assert_eq!(pool["logs"].as_object().unwrap().len(), 1);
    assert_eq!(pool["l2cache"].as_object().unwrap().len(), 1);

    let guid = pool["pool_guid"].as_u64().unwrap().to_string();
    let list = json(&["zpool", "list", "-jv", "--json-pool-key-guid"]);
    let pool = &list["pools"][&guid];
    assert_eq!(pool["type"], "POOL");
    assert_eq!(pool["properties"]["health"]["value"], "ONLINE");
    assert_eq!(pool["properties"]["health"]["source"]["type"], "NONE");
    assert_eq!(pool["vdevs"]["mirror-0"]["properties"]["size"]["value"], "176M");
    assert!(pool["vdevs"]["special"]["mirror-1"].is_object());

    let list = json(&["zfs", "list", "--json", "-r", "classes"]);
    let dataset = &list["datasets"]["classes/fs"];
    assert_eq!((dataset["type"].as_str(), dataset["pool"].as_str()), (Some("FILESYSTEM"), Some("classes")));
    assert_eq!(dataset["properties"]["mountpoint"]["source"]["type"], "INHERITED");
    assert_eq!(dataset["properties"]["mountpoint"]["source"]["data"], "classes");
    let get = json(&["zfs", "get", "-j", "--json-int", "createtxg,used", "classes"]);
    assert!(get["datasets"]["classes"]["properties"]["createtxg"]["value"].is_u64());
    let get = json(&["zpool", "get", "-j", "feature@lz4_compress", "classes"]);
    assert_eq!(get["pools"]["classes"]["properties"]["feature@lz4_compress"]["value"], "active");
}

#[test]
fn listings_without_a_json_form_in_openzfs_have_one_too() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let session = Session::start();
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&session.print(arguments)).unwrap()
    };
    let directory = golden.dir.to_str().unwrap();
    let found = json(&["zpool", "import", "-j", "-d", directory]);
    assert_eq!(found["output_version"]["command"], "zpool import");
    let (guid, pool) = found["pools"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(
        (&pool["name"], &pool["state"], &pool["pool_guid"]),
        (&"single".into(), &"ONLINE".into(), &guid.as_str().into())
    );
    assert_eq!(pool["vdevs"].as_object().unwrap().len(), 1);
    assert_eq!(session.run(&["zpool", "import", "-j", "-d", directory, "single"]).code, 2);

    session.import(&golden.dir, "single");
    let history = json(&["zpool", "history", "-il", "-j", "--json-int", "single"]);
    let records = history["pools"]["single"]["history"].as_array().unwrap();
    let text = session.print(&["zpool", "history", "-il", "single"]);
    for record in records {
        assert!(record["time"].is_u64(), "{record}");
        assert!(text.contains(record["event"].as_str().unwrap()), "{record}");
    }
    assert!(records.iter().any(|record| record["event"].as_str().unwrap().starts_with("zpool create")));

    let line = session.print(&["zfs", "holds", "-Hp", "single/fs@one"]);
    let [snapshot, tag, time] = line.trim_end().split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
    let holds = json(&["zfs", "holds", "-j", "--json-int", "single/fs@one"]);
    assert_eq!(holds["holds"][snapshot][tag].to_string(), time);

    let lines = session.print(&["zfs", "userspace", "-Hpn", "-o", "name,used", "single/fs"]);
    let users = json(&["zfs", "userspace", "-jn", "--json-int", "-o", "name,used", "single/fs"]);
    assert_eq!(users["dataset"], "single/fs");
    let users = users["space"].as_array().unwrap().iter();
    let users = users.map(|user| format!("{}\t{}\n", user["name"].as_str().unwrap(), user["used"]));
    assert_eq!(users.collect::<String>(), lines);
}

#[test]
fn listings_sort_select_and_refuse_as_openzfs_does() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let session = Session::start();
    session.import(&golden.dir, "single");
    let names = |arguments: &[&str]| -> Vec<String> {
        let options = [&["zfs", "list", "-H", "-o", "name"], arguments].concat();
        session.print(&options).lines().map(str::to_owned).collect()
    };
    assert_eq!(names(&["-d", "0"]), ["single"]);
    assert_eq!(names(&["-t", "snapshot", "single/fs"]), ["single/fs@one", "single/fs@two"]);
    assert_eq!(names(&["single/fs@two"]), ["single/fs@two"]);
    assert_eq!(names(&["-t", "bookmark"]), ["single/fs#mark"]);
    let by_size = names(&["-d", "1", "-S", "used"]);
    assert_eq!(by_size[0], "single");
    let by_name = names(&["-d", "1", "-S", "name"]);
    assert_eq!(by_name.last().unwrap(), "single");

    let table = session.print(&["zfs", "get", "type,origin", "single"]);
    assert_eq!(
        table,
        "NAME    PROPERTY  VALUE       SOURCE\n\
         single  type      filesystem  -\n\
         single  origin    -           -\n"
    );
    assert_eq!(
        session.print(&["zfs", "get", "-s", "local", "-H", "-o", "property", "mounted", "single"]),
        ""
    );

    for (arguments, code, message) in [
        (&["zpool", "list", "tank"][..], 1, "cannot open 'tank': no such pool\n"),
        (&["zfs", "list", "tank/a"][..], 1, "cannot open 'tank/a': dataset does not exist\n"),
        (&["zfs", "list", "single/nothing"][..], 1, "cannot open 'single/nothing': dataset does not exist\n"),
        (&["zpool", "export", "tank"][..], 1, "cannot open 'tank': no such pool\n"),
        (&["zfs", "unmount", "single/fs"][..], 1, "cannot unmount 'single/fs': not currently mounted\n"),
    ] {
        let ended = session.run(arguments);
        assert_eq!((ended.code, ended.err.as_str()), (code, message), "{arguments:?}");
    }
    for arguments in [
        &["zfs", "list", "-o", "nonsense"][..],
        &["zfs", "get", "-t", "pool", "all"][..],
        &["zpool", "get"][..],
        &["zpool", "list", "--json-int"][..],
        &["zpool", "export"][..],
        &["zpool", "import", "-n", "single"][..],
        &["zfs", "load-key"][..],
    ] {
        assert_eq!(session.run(arguments).code, 2, "{arguments:?}");
    }
}

#[test]
fn without_a_daemon_there_are_no_pools() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(arguments).env("CENOTE_SOCKET", directory.path().join("none.sock")).output().unwrap()
    };
    let list = run(&["zpool", "list"]);
    assert_eq!((list.status.code(), &list.stdout[..]), (Some(0), &b"no pools available\n"[..]));
    let list = run(&["zfs", "list"]);
    assert_eq!((list.status.code(), &list.stderr[..]), (Some(0), &b"no datasets available\n"[..]));
    let named = run(&["zpool", "status", "tank"]);
    assert_eq!(
        (named.status.code(), &named.stderr[..]),
        (Some(1), &b"cannot open 'tank': no such pool\n"[..])
    );
}

/// The table of `zdb -DD` or `zpool status -D`, from its first line on.
fn histogram(text: &str) -> Vec<&str> {
    text.lines().skip_while(|line| !line.starts_with("bucket")).take_while(|line| !line.is_empty()).collect()
}

#[test]
fn dedup_statistics_are_those_of_zdb() {
    for name in ["dedupold", "dedupfast"] {
        let Some(golden) = testkit::golden::pool(name) else { return };
        let Some(zdb) = testkit::oracle::zdb_of(&golden.dir, "-DD", name, &[]) else { return };
        let session = Session::start();
        session.import(&golden.dir, name);
        let status = session.print(&["zpool", "status", "-D", name]);
        assert!(histogram(&zdb).len() > 4, "{zdb}");
        assert_eq!(histogram(&status), histogram(&zdb), "{name}");
    }
}

#[test]
fn vdevs_have_properties_too() {
    let Some(golden) = testkit::golden::pool("classes") else { return };
    let session = Session::start();
    session.import(&golden.dir, "classes");
    let table = session.print(&["zpool", "get", "state,size", "classes", "mirror-0"]);
    // A state counts as a number there, of five characters.
    assert_eq!(
        table,
        "NAME      PROPERTY  VALUE  SOURCE\n\
         mirror-0  state     ONLINE  -\n\
         mirror-0  size      176M   -\n"
    );
    let names = session.print(&["zpool", "get", "-Ho", "name", "guid", "classes", "all-vdevs"]);
    assert_eq!(names.lines().count(), 8, "the root, two mirrors, four disks in them, a log:\n{names}");
    let ended = session.run(&["zpool", "get", "state", "classes", "mirror-9"]);
    assert_eq!(ended.code, 2);
    assert!(
        ended.err.starts_with("Expected a list of vdevs in \"classes\", but got:\n\tmirror-9\n"),
        "{}",
        ended.err
    );
}
