//! What is seen of dedup tables of pools made here, open and exported: `zpool list`, `zpool status -D`,
//! counters, and `zdb`, which prints what OpenZFS's `zdb` prints of the same pool.

use std::fs::{self, File};
use std::process::Command;

use testkit::oracle;

use crate::session::Session;

const BLOCK: u64 = 16 << 10;

/// Blocks that do not compress, one for each number.
fn data(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let block = |number| {
        let mut random = fastrand::Rng::with_seed(number);
        (0..BLOCK).map(|_| random.u8(..)).collect::<Vec<u8>>()
    };
    numbers.into_iter().flat_map(block).collect()
}

fn write_volume(session: &Session, name: &str, bytes: &[u8]) {
    let size = bytes.len().to_string();
    session.print(&["zfs", "create", "-V", &size, "-o", "volblocksize=16K", "-o", "dedup=on", name]);
    let source = session.directory().join("data");
    fs::write(&source, bytes).unwrap();
    let uri = format!("nbd+unix:///{name}?socket={}", session.nbd_socket().display());
    let copied = Command::new("nbdcopy").arg(source).arg(uri).output();
    let copied = copied.expect("nbdcopy of the package libnbd-bin");
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.trim().is_empty()).collect()
}

/// The table of `zdb -DD` or `zpool status -D`, from its first line on.
fn histogram(text: &str) -> Vec<&str> {
    text.lines().skip_while(|line| !line.starts_with("bucket")).take_while(|line| !line.is_empty()).collect()
}

fn tables_are_seen(feature: &str, kind: &str) {
    let session = Session::start();
    let place = session.directory().join("disks");
    fs::create_dir(&place).unwrap();
    let disk = place.join("disk");
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    session.print(&["zpool", "create", "-m", "none", "-o", feature, "tank", disk.to_str().unwrap()]);
    let none = session.print(&["zpool", "status", "-D", "tank"]);
    assert!(none.contains("dedup: no DDT entries"), "{none}");
    // A third of the blocks are there twice, and one many times.
    write_volume(&session, "tank/v", &data(0..96));
    write_volume(&session, "tank/w", &data((64..96).chain((0..32).map(|_| 0))));
    session.print(&["zpool", "sync", "tank"]);

    let get = |property: &str| session.print(&["zpool", "get", "-Hpo", "value", property, "tank"]);
    assert_eq!(get("dedupratio").trim(), "1.66");
    assert!(get("dedup_table_size").trim().parse::<u64>().unwrap() > 0);
    let list = session.print(&["zpool", "list", "-Ho", "dedup", "tank"]);
    assert_eq!(list.trim(), "1.66x");
    let counters = session.print(&["counters", "--json", "ddt"]);
    let counters: serde_json::Value = serde_json::from_str(&counters).unwrap();
    let of = |name: &str| counters["groups"][0]["counters"][name].as_u64().unwrap();
    assert_eq!((of("stored_blocks"), of("references"), of("entries")), (96, 160, 96), "{counters}");
    assert_eq!((of("stored_bytes"), of("referenced_bytes")), (96 * BLOCK, 160 * BLOCK), "{counters}");
    assert!(of("cached_bytes") > 0, "a table that was just written is in the ARC: {counters}");

    let status = session.print(&["zpool", "status", "-D", "tank"]);
    let live = session.print(&["zdb", "-DD", "tank"]);
    assert!(live.contains(kind) && histogram(&live).len() > 4, "{live}");
    assert_eq!(histogram(&status), histogram(&live));
    let simulated = session.print(&["zdb", "-S", "tank"]);
    assert!(simulated.contains("dedup = 1.67"), "{simulated}");

    session.print(&["zpool", "export", "tank"]);
    let folder = place.to_str().unwrap();
    for letters in ["-D", "-DD", "-DDD", "-DDDD", "-DDDDD", "-S"] {
        let Some(theirs) = oracle::zdb_of(&place, letters, "tank", &[]) else { return };
        let ours = session.print(&["zdb", "-e", "-p", folder, letters, "tank"]);
        assert_eq!(lines(&ours), lines(&theirs), "zdb {letters}");
    }
    assert_eq!(oracle::complaint(&place, "tank"), None);

    session.print(&["zpool", "import", "-d", folder, "tank"]);
    assert_eq!(get("dedupratio").trim(), "1.66", "after an import");
    session.print(&["zfs", "destroy", "tank/w"]);
    session.print(&["zpool", "wait", "-t", "free", "tank"]);
    assert_eq!(get("dedupratio").trim(), "1.00");
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn fast_tables_are_seen_as_openzfs_sees_them() {
    tables_are_seen("feature@fast_dedup=enabled", "[FDT]");
}

#[test]
fn traditional_tables_are_seen_as_openzfs_sees_them() {
    tables_are_seen("feature@fast_dedup=disabled", "[LEGACY]");
}
