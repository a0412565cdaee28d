//! What `zfs list`, `zfs get` and `zpool get` say of the golden pools, against what OpenZFS said.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use device::block_on;
use engine::dsl::history::{self, Form};
use engine::dsl::{Dsl, Entry, Walk};
use engine::pool::discovery::scan;
use engine::pool::errlog::{self, DamagedBlock};
use engine::pool::import::{ImportOptions, import, select};
use engine::pool::properties::{PoolEnvironment, PoolProperties, VdevProp, VdevProperties};
use engine::properties::{Environment, Mounted, Prop, PropertySet, Shown, Source, Style, UserProperty};
use engine::{Error, Pool};
use ondisk::{BlockId, ObjectId, ObjsetId};
use testkit::{GoldenPool, golden};

/// What a row may say otherwise than OpenZFS did, and why. `*` stands for any pool.
struct Exception {
    pool: &'static str,
    property: &'static str,
    #[allow(dead_code)] // For the reader.
    reason: &'static str,
    allow: fn(expected: &str, found: &str) -> bool,
}

const fn exception(
    pool: &'static str,
    property: &'static str,
    reason: &'static str,
    allow: fn(&str, &str) -> bool,
) -> Exception {
    Exception { pool, property, reason, allow }
}

/// Whether two numbers differ by no more than `by`.
fn near(expected: &str, found: &str, by: u64) -> bool {
    match (expected.parse::<u64>(), found.parse::<u64>()) {
        (Ok(expected), Ok(found)) => expected.abs_diff(found) <= by,
        _ => false,
    }
}

/// The recording was made a moment before the export, which then synced access times, flushed logs and freed
/// blocks.
const EXPORT: &str = "moved by the export itself";
/// `used` and `allocated` moved by the same number of bytes: blocks were written between recording and
/// export.
const REWRITTEN: &str = "rewritten after the recording";
/// The same, of numbers that follow from those.
const FOLLOWS: &str = "follows from numbers that the export moved";

fn some_kib(expected: &str, found: &str) -> bool {
    near(expected, found, 160 << 10)
}

fn some_mib(expected: &str, found: &str) -> bool {
    near(expected, found, 1 << 20)
}

fn some_hundredths(expected: &str, found: &str) -> bool {
    near(&expected.replace('.', ""), &found.replace('.', ""), 5)
}

/// OpenZFS 2.4 has other words and sums than 2.3 for a few properties, which Cenote shows as 2.4 does.
const IN_2_3: &str = "OpenZFS 2.3 said it otherwise";

const EXCEPTIONS: &[Exception] = &[
    exception("*", "xattr", IN_2_3, |expected, found| (expected, found) == ("on", "sa")),
    exception(
        "classes",
        "available",
        "2.3 did not count as room what special devices hold",
        |expected, found| near(expected, found, 6 << 20),
    ),
    exception("classes24", "dedup_table_size", "the export emptied the logs", |_, found| found == "41472"),
    exception("gang24", "used", REWRITTEN, some_mib),
    exception("gang24", "available", REWRITTEN, some_mib),
    exception("gang24", "usedbychildren", REWRITTEN, some_mib),
    exception("gang24", "usedbysnapshots", REWRITTEN, some_mib),
    exception("gang24", "written", REWRITTEN, some_mib),
    exception("gang24", "allocated", "as zdb says of the exported pool", |_, found| found == "12267520"),
    exception("gang24", "free", "as zdb says of the exported pool", |_, found| found == "356831232"),
    exception("*", "used", EXPORT, some_kib),
    exception("*", "available", EXPORT, some_kib),
    exception("*", "referenced", EXPORT, some_kib),
    exception("*", "written", EXPORT, some_kib),
    exception("*", "usedbydataset", EXPORT, some_kib),
    exception("*", "usedbysnapshots", EXPORT, some_kib),
    exception("*", "usedbychildren", EXPORT, some_kib),
    exception("*", "usedbyrefreservation", EXPORT, some_kib),
    exception("*", "logicalused", EXPORT, some_kib),
    exception("*", "logicalreferenced", EXPORT, some_kib),
    exception("crypt", "used", REWRITTEN, some_mib),
    exception("crypt", "available", REWRITTEN, some_mib),
    exception("crypt", "written", REWRITTEN, some_mib),
    exception("crypt", "usedbysnapshots", REWRITTEN, some_mib),
    exception("crypt", "usedbychildren", REWRITTEN, some_mib),
    exception("crypt", "logicalused", REWRITTEN, some_mib),
    exception("*", "compressratio", FOLLOWS, some_hundredths),
    exception("*", "refcompressratio", FOLLOWS, some_hundredths),
    exception("*", "readonly", "opened for reading only", |expected, found| {
        (expected, found) == ("off", "on")
    }),
    exception("*", "load_guid", "drawn at each import", |_, _| true),
    exception("*", "allocated", EXPORT, some_kib),
    exception("*", "free", EXPORT, some_kib),
    exception("*", "checkpoint", EXPORT, some_kib),
    exception("corrupt", "allocated", "deferred frees were given back", |_, found| found == "6106624"),
    exception("corrupt", "free", "deferred frees were given back", |_, found| found == "178442752"),
    exception("corrupt", "capacity", FOLLOWS, |_, found| found == "3"),
    exception("crypt", "allocated", "allocated by the export", |_, found| found == "7846400"),
    exception("crypt", "free", "allocated by the export", |_, found| found == "243811840"),
    exception("crypt", "capacity", FOLLOWS, |_, found| found == "3"),
    exception("crypt", "fragmentation", "as zdb says of the exported pool", |_, found| found == "7"),
    exception("rz3", "fragmentation", "as zdb says of the exported pool", |_, found| found == "2"),
    exception("dedupfast", "dedup_table_size", "as zdb says: the export emptied the logs", |_, found| {
        found == "101376"
    }),
    exception("degraded", "health", "an import forgets that a device was faulted", |expected, found| {
        (expected, found) == ("DEGRADED", "ONLINE")
    }),
];

fn open(pool: &GoldenPool) -> Arc<Pool> {
    block_on(async {
        let found = scan(&[&pool.dir]).await.expect("scan");
        let found = select(found, &pool.name).expect("select");
        let mut options = ImportOptions::read_only();
        options.force = true;
        options.altroot = Some(format!("/m/{}", pool.name).into());
        import(&found, &options).await.expect("import")
    })
}

/// Names of the golden pools that have a recording `file`.
fn recorded(file: &str) -> Vec<GoldenPool> {
    let names = golden::names().expect("golden pools");
    let pools = names.iter().filter_map(|name| golden::pool(name));
    pools.filter(|pool| pool.expect(file).exists()).collect()
}

/// All filesystems are mounted, without options that override properties.
const MOUNTED: Environment<'static> =
    Environment { mounted: &|name| (!name.contains('@')).then(Mounted::default) };

async fn property_sets(dsl: &Dsl) -> Vec<(Entry, PropertySet)> {
    let mut sets = Vec::new();
    for entry in dsl.list(None, Walk::ALL).await.expect("list") {
        let set = dsl.properties(&entry, &MOUNTED).await;
        let set = set.unwrap_or_else(|error| panic!("{}: {error}", entry.name()));
        sets.push((entry, set));
    }
    sets
}

fn load_keys(dsl: &Dsl, pool: &GoldenPool) {
    for root in block_on(dsl.encryption_roots(None)).expect("encryption roots") {
        let file = root.location.strip_prefix("file:///").expect("key location");
        let material = std::fs::read(pool.expect(file)).expect("key material");
        block_on(dsl.load_key(&root.dir.name, &material, false)).expect("load key");
    }
}

/// Differences between rows, keyed by what they are about, in words.
fn differences(
    pool: &str,
    expected: &[(String, String, String)],
    found: &[(String, String, String)],
) -> String {
    let mut report = String::new();
    let about = |(dataset, property, _): &(String, String, String)| (dataset.clone(), property.clone());
    let order = |rows: &[(String, String, String)]| rows.iter().map(about).collect::<Vec<_>>();
    let values: BTreeMap<_, _> = found.iter().map(|row| (about(row), &row.2)).collect();
    for row in expected {
        match values.get(&about(row)) {
            None => writeln!(report, "{pool}: {} {}: missing, expected {:?}", row.0, row.1, row.2).unwrap(),
            Some(value) if **value != row.2 => {
                let excused = EXCEPTIONS.iter().any(|exception| {
                    let (expected, expected_source) = row.2.split_once('\t').unwrap_or_default();
                    let (found, source) = value.split_once('\t').unwrap_or_default();
                    (exception.pool == "*" || exception.pool == pool)
                        && exception.property == row.1
                        && expected_source == source
                        && (exception.allow)(expected, found)
                });
                if !excused {
                    let (dataset, property, expected) = row;
                    writeln!(report, "{pool}: {dataset} {property}: {value:?}, expected {expected:?}")
                        .unwrap();
                }
            }
            Some(_) => {}
        }
    }
    let known: BTreeMap<_, _> = expected.iter().map(|row| (about(row), ())).collect();
    let is_of_2_4 = expected.iter().any(|row| row.1.ends_with("quota") && row.1.starts_with("default"))
        || expected.iter().any(|row| row.1 == "feature@physical_rewrite");
    let is_volume = |name: &str| found.iter().any(|row| row.0 == name && row.1 == "volblocksize");
    let found: Vec<_> = found
        .iter()
        .filter(|row| is_of_2_4 || !golden::is_new_in_2_4(&row.1, is_volume(&row.0)))
        .cloned()
        .collect();
    for row in found.iter().filter(|row| !known.contains_key(&about(row))) {
        writeln!(report, "{pool}: {} {}: {:?} is not expected", row.0, row.1, row.2).unwrap();
    }
    if report.is_empty() && order(expected) != order(&found) {
        writeln!(report, "{pool}: the rows stand in another order").unwrap();
    }
    report
}

fn rows(text: &str) -> Vec<(String, String, String)> {
    let row = |line: &str| {
        let mut fields = line.splitn(3, '\t').map(str::to_owned);
        let mut next = || fields.next().unwrap_or_default();
        (next(), next(), next())
    };
    text.lines().map(row).collect()
}

fn shown_row(dataset: &str, shown: Shown) -> (String, String, String) {
    (dataset.to_owned(), shown.name, format!("{}\t{}", shown.value, shown.source))
}

#[test]
fn datasets_have_the_properties_that_openzfs_recorded() {
    let mut report = String::new();
    for pool in recorded("props.tsv") {
        let expected = rows(&pool.expect_text("props.tsv").unwrap());
        let opened = open(&pool);
        let dsl = block_on(Dsl::open(&opened)).expect("DSL");
        load_keys(&dsl, &pool);
        let mut found = Vec::new();
        for (entry, set) in block_on(property_sets(&dsl)) {
            found.extend(set.all(Style::PARSABLE).into_iter().map(|shown| shown_row(entry.name(), shown)));
        }
        report += &differences(&pool.name, &expected, &found);
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn without_its_key_a_dataset_shows_all_the_same_but_that_the_key_is_unavailable() {
    let Some(pool) = golden::pool("crypt") else { return };
    let opened = open(&pool);
    let dsl = block_on(Dsl::open(&opened)).expect("DSL");
    let all = |sets: Vec<(Entry, PropertySet)>| -> Vec<_> {
        let row = |(entry, set): &(Entry, PropertySet)| {
            let rows = set.all(Style::PARSABLE).into_iter();
            rows.map(|shown| shown_row(entry.name(), shown)).collect::<Vec<_>>()
        };
        sets.iter().flat_map(row).collect()
    };
    let without = all(block_on(property_sets(&dsl)));
    load_keys(&dsl, &pool);
    let mut with = all(block_on(property_sets(&dsl)));
    for row in with.iter_mut().filter(|row| row.1 == "keystatus") {
        assert_eq!(row.2, "available\t-");
        row.2 = "unavailable\t-".to_owned();
    }
    assert_eq!(without, with);
}

#[test]
fn keys_are_loaded_by_encryption_root_and_a_wrong_one_is_refused() {
    let Some(pool) = golden::pool("crypt") else { return };
    let opened = open(&pool);
    let dsl = block_on(Dsl::open(&opened)).expect("DSL");
    let roots = block_on(dsl.encryption_roots(None)).expect("roots");
    let names: Vec<_> = roots.iter().map(|root| (root.dir.name.as_str(), root.format.name())).collect();
    assert_eq!(names, [("crypt/ccm", "raw"), ("crypt/gcm", "passphrase"), ("crypt/vol", "hex")]);
    let load = |name: &str, material: &[u8]| block_on(dsl.load_key(name, material, false));
    assert!(matches!(load("crypt/gcm", b"not the passphrase"), Err(Error::WrongKey { .. })));
    assert!(matches!(load("crypt/vol", b"12"), Err(Error::Invalid(_))));
    assert!(matches!(load("crypt/gcm/child", b"passphrase"), Err(Error::Invalid(_))));
    assert!(matches!(load("crypt", b"passphrase"), Err(Error::WrongType { .. })));
    let passphrase = std::fs::read(pool.expect("pass")).unwrap();
    assert_eq!(load("crypt/gcm", &passphrase).unwrap(), 2);
    for name in ["crypt/gcm", "crypt/gcm@s", "crypt/gcm/child"] {
        assert!(dsl.key_is_loaded(&block_on(dsl.find(name)).unwrap()), "{name}");
    }
    assert!(!dsl.key_is_loaded(&block_on(dsl.find("crypt/vol")).unwrap()));
    assert!(matches!(load("crypt/gcm", &passphrase), Err(Error::Busy(_))));
    block_on(dsl.unload_key("crypt/gcm")).unwrap();
    assert!(!dsl.key_is_loaded(&block_on(dsl.find("crypt/gcm@s")).unwrap()));
}

#[test]
fn the_history_reads_as_openzfs_prints_it() {
    for pool in recorded("history.txt") {
        let opened = open(&pool);
        let dsl = block_on(Dsl::open(&opened)).expect("DSL");
        let records = block_on(history::read(&dsl)).expect("history");
        let user_name = |who: u64| (who == 0).then(|| "root".to_owned());
        let form = Form { internal: true, long: true, utc_offset: |_| 0, user_name: &user_name };
        let mut found = format!("History for '{}':\n", pool.name);
        found.extend(records.iter().filter_map(|record| history::render(record, &form)));
        let expected = pool.expect_text("history.txt").unwrap();
        // The export and what it did came after the recording.
        assert!(found.starts_with(expected.trim_end()), "{}:\n{found}", pool.name);
    }
}

#[test]
fn properties_with_an_argument_tell_what_users_use_and_what_was_written_since() {
    let Some(pool) = golden::pool("single") else { return };
    let opened = open(&pool);
    let dsl = block_on(Dsl::open(&opened)).expect("DSL");
    let fs = block_on(dsl.find("single/fs")).expect("single/fs");
    let (used, _) = UserProperty::parse("userused@0").unwrap();
    let (objects, _) = UserProperty::parse("userobjused@0").unwrap();
    let (quota, _) = UserProperty::parse("userquota@0").unwrap();
    let all = block_on(dsl.user_properties(&fs, used)).expect("userspace");
    let sum: u64 = all.iter().map(|(_, bytes)| bytes).sum();
    let counted: u64 =
        block_on(dsl.user_properties(&fs, objects)).unwrap().iter().map(|(_, count)| count).sum();
    // Each object is charged its dnode too; the master node and its like have no owner.
    let blocks = sum - 512 * counted;
    assert!(blocks > 0 && blocks <= fs.phys.referenced_bytes, "{blocks} of {}", fs.phys.referenced_bytes);
    for (id, bytes) in all {
        assert_eq!(block_on(dsl.user_property(&fs, used, id)).unwrap(), Some(bytes));
        assert!(block_on(dsl.user_property(&fs, objects, id)).unwrap().unwrap() > 0);
    }
    assert_eq!(block_on(dsl.user_property(&fs, quota, 0)).unwrap(), Some(0));
    let written = |since: &str| block_on(dsl.written_property(&fs, since)).unwrap();
    let set = block_on(dsl.properties(&block_on(dsl.entry("single/fs")).unwrap(), &MOUNTED)).unwrap();
    assert_eq!(Some(written("two")), set.number(Prop::Written));
    assert_eq!(written("one"), written("single/fs#mark"));
    assert!(written("one") >= written("two"));
    assert!(block_on(dsl.written_property(&fs, "none")).is_err());
}

#[test]
fn a_damaged_object_is_called_by_its_path() {
    let Some(pool) = golden::pool("single") else { return };
    let opened = open(&pool);
    let dsl = block_on(Dsl::open(&opened)).expect("DSL");
    assert_eq!(block_on(errlog::read(&dsl)).expect("error log"), []);
    let manifest = pool.manifest("single/fs").expect("manifest");
    let fs = block_on(dsl.find("single/fs")).expect("single/fs");
    let block = |object: u64| DamagedBlock {
        objset: fs.objset_id(),
        object: ObjectId(object),
        level: 0,
        block: BlockId(0),
    };
    let describe = |object: u64| block_on(errlog::describe(&dsl, &block(object), &|_| None));
    let deep = manifest.rows.values().filter(|row| row.nlink == 1 && row.path.contains('/')).take(5);
    for row in deep {
        assert_eq!(describe(row.ino), format!("single/fs:/{}", row.path));
    }
    assert_eq!(describe(1), "single/fs:<0x1>");
    let mos = DamagedBlock { objset: ObjsetId::MOS, ..block(31) };
    assert_eq!(block_on(errlog::describe(&dsl, &mos, &|_| None)), "<metadata>:<0x1f>");
}

#[test]
fn a_vdev_has_its_share_of_the_pools_space() {
    let Some(pool) = golden::pool("classes") else { return };
    let opened = open(&pool);
    let dsl = block_on(Dsl::open(&opened)).expect("DSL");
    let space = block_on(dsl.pool_space()).expect("space");
    for top in &opened.vdevs().tops {
        let set = block_on(VdevProperties::load(&dsl, top.guid)).expect("vdev properties");
        let value = |prop| set.get(prop, Style::PARSABLE).expect("shown").value;
        let share = space.vdevs.iter().find(|share| share.id == top.id).expect("share");
        assert_eq!(value(VdevProp::Allocated), share.allocated_bytes.to_string());
        assert_eq!(value(VdevProp::Parent), "classes");
        assert_eq!(value(VdevProp::State), "7");
        assert_eq!(
            set.all(Style::HUMAN_UTC).iter().filter(|shown| shown.name == "raidz_expanding").count(),
            0
        );
        for child in &top.children {
            let set = block_on(VdevProperties::load(&dsl, child.guid)).expect("leaf properties");
            let allocating = set.get(VdevProp::Allocating, Style::PARSABLE).expect("shown");
            assert_eq!((allocating.value.as_str(), allocating.source), ("-", Source::None));
        }
    }
}

#[test]
fn properties_of_columns_are_those_of_raidz_vdevs_and_their_devices_alone() {
    for (name, has_columns) in [("rz1", true), ("single", false)] {
        let Some(pool) = golden::pool(name) else { return };
        let opened = open(&pool);
        let dsl = block_on(Dsl::open(&opened)).expect("DSL");
        let shown = |guid, prop| {
            let set = block_on(VdevProperties::load(&dsl, guid)).expect("vdev properties");
            set.get(prop, Style::HUMAN_UTC).map(|shown| (shown.value, shown.source))
        };
        let top = &opened.vdevs().tops[0];
        let device = top.children.first().unwrap_or(top);
        let off = |source| Some(("off".to_owned(), source));
        assert_eq!(shown(top.guid, VdevProp::Autosit), off(Source::Default).filter(|_| has_columns));
        assert_eq!(shown(device.guid, VdevProp::SitOut), off(Source::None).filter(|_| has_columns));
        if has_columns {
            assert_eq!(
                (shown(top.guid, VdevProp::SitOut), shown(device.guid, VdevProp::Autosit)),
                (None, None)
            );
        }
        let on = Some(("on".to_owned(), Source::Default));
        assert_eq!(shown(device.guid, VdevProp::SlowIoEvents), on);
    }
}

/// Bytes allocated in all classes, as `zdb -b` counts the blocks of the exported pools. The logs of
/// `zilreplay`, which was never exported, are not folded into its space maps.
const ALLOCATED: [(&str, u64); 5] = [
    ("single", 11_673_088),
    ("classes", 3_332_608),
    ("dr2", 5_133_312),
    ("removed", 3_506_176),
    ("zilreplay", 540_672),
];

#[test]
fn space_maps_and_their_logs_add_up_to_what_zdb_counts() {
    for (name, expected) in ALLOCATED {
        let Some(pool) = golden::pool(name) else { return };
        let opened = open(&pool);
        let dsl = block_on(Dsl::open(&opened)).expect("DSL");
        let space = block_on(dsl.pool_space()).expect("space");
        assert_eq!(space.vdevs.iter().map(|vdev| vdev.allocated_bytes).sum::<u64>(), expected, "{name}");
    }
}

#[test]
fn what_the_root_uses_and_may_use_adds_up_to_the_same_space() {
    let mut report = String::new();
    for pool in recorded("props.tsv") {
        let expected = rows(&pool.expect_text("props.tsv").unwrap());
        let recorded = |property: &str| -> u64 {
            let row = expected.iter().find(|row| row.0 == pool.name && row.1 == property).expect("recorded");
            row.2.split('\t').next().unwrap().parse().unwrap()
        };
        let opened = open(&pool);
        let dsl = block_on(Dsl::open(&opened)).expect("DSL");
        let root = block_on(dsl.entry(&pool.name)).expect("root");
        let set = block_on(dsl.properties(&root, &MOUNTED)).expect("properties");
        let number = |prop| set.number(prop).expect("shown");
        let found = number(Prop::Used) + number(Prop::Available);
        let expected = recorded("used") + recorded("available");
        // The export moved what only the checkpoint holds, and without log space maps what waits to be freed.
        let moving = match pool.name.as_str() {
            "checkpoint" | "features0" | "legacy28" => 16 << 10,
            // OpenZFS 2.3 did not count as room what special devices hold.
            "classes" => 358_912,
            // The export wrote metadata there.
            "classes24" => 160 << 10,
            _ => 0,
        };
        if found.abs_diff(expected) > moving {
            writeln!(report, "{}: {found}, expected {expected}", pool.name).unwrap();
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn hidden_datasets_are_listed_when_asked_for() {
    let Some(pool) = golden::pool("single") else { return };
    let opened = open(&pool);
    let dsl = block_on(Dsl::open(&opened)).expect("DSL");
    let entries = block_on(dsl.list(None, Walk { hidden: true, ..Walk::ALL })).expect("list");
    let hidden: Vec<_> = entries.iter().filter(|entry| entry.name().contains('$')).collect();
    let names: Vec<_> = hidden.iter().map(|entry| entry.name()).collect();
    assert_eq!(names, ["single/$ORIGIN", "single/$ORIGIN@$ORIGIN"]);
    for entry in hidden {
        block_on(dsl.properties(entry, &Environment::UNMOUNTED)).expect("properties");
    }
}

#[test]
fn datasets_are_listed_in_the_order_of_openzfs() {
    let mut report = String::new();
    for pool in recorded("list.tsv") {
        let opened = open(&pool);
        let dsl = block_on(Dsl::open(&opened)).expect("DSL");
        // Sizes are the other test's business: the export moved them.
        let columns = [Prop::Name, Prop::Type, Prop::Creation];
        let row = |(_, set): (Entry, PropertySet)| -> Vec<String> {
            columns.iter().map(|prop| set.get(*prop, Style::PARSABLE).expect("shown").value).collect()
        };
        let found: Vec<_> = block_on(property_sets(&dsl)).into_iter().map(row).collect();
        let expected = pool.expect_text("list.tsv").unwrap();
        let pick = |line: &str| -> Vec<String> {
            let fields: Vec<&str> = line.split('\t').collect();
            [fields[0], fields[1], fields[4]].map(str::to_owned).to_vec()
        };
        if found != expected.lines().map(pick).collect::<Vec<_>>() {
            writeln!(report, "{}: {found:?}", pool.name).unwrap();
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn pools_have_the_properties_that_openzfs_recorded() {
    let mut report = String::new();
    for pool in recorded("pool.tsv") {
        let expected = rows(&pool.expect_text("pool.tsv").unwrap());
        let opened = open(&pool);
        let dsl = block_on(Dsl::open(&opened)).expect("DSL");
        let environment = PoolEnvironment {
            cachefile: Some("none"),
            load_guid: 0,
            suspended: false,
            read_only: true,
            dedup_cached_bytes: 0,
        };
        let set = block_on(PoolProperties::load(&dsl, &environment)).expect("properties");
        let all = set.all(Style::PARSABLE).into_iter();
        let found: Vec<_> = all.map(|shown| shown_row(&pool.name, shown)).collect();
        report += &differences(&pool.name, &expected, &found);
    }
    assert!(report.is_empty(), "\n{report}");
}
