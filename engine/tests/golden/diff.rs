//! What happened to files between the snapshots of golden pools.

use std::sync::Arc;

use device::block_on;
use engine::Pool;
use engine::dsl::{Dsl, Kind, Walk};

use crate::diff_model::agree;
use crate::encrypted::load_keys;
use crate::support::{import_golden, objset};

/// All pairs of a snapshot and a later state of the filesystem or of a clone. Tells how many there are, and
/// their lines.
fn check(pool: &Arc<Pool>) -> (usize, usize) {
    let (mut pairs, mut lines) = (0, 0);
    let dsl = block_on(Dsl::open(pool)).unwrap();
    let entries = block_on(dsl.list(None, Walk::ALL)).unwrap();
    let states: Vec<_> = entries
        .iter()
        .filter(|entry| matches!(entry.kind, Kind::Filesystem | Kind::Snapshot { of_volume: false }))
        .filter_map(|entry| entry.dataset())
        .collect();
    for before in states.iter().filter(|state| state.is_snapshot()) {
        for after in &states {
            if block_on(dsl.is_earlier_snapshot(before, after)).unwrap() {
                let what = format!("{} {}", before.name, after.name);
                let (before, after) =
                    (objset(pool, &before.name).unwrap(), objset(pool, &after.name).unwrap());
                lines += block_on(agree(&before, &after, &what)).len();
                pairs += 1;
            }
        }
    }
    (pairs, lines)
}

#[test]
fn changes_between_golden_snapshots_are_those_of_reading_both() {
    // Between the snapshots of the third, files were only written again.
    let pools = [("single", (4, 52)), ("default24", (2, 26)), ("clones24", (3, 0)), ("gang24", (1, 0))];
    for (name, told) in pools {
        let Some(golden) = testkit::golden::pool(name) else { return };
        let pool = import_golden(&golden).unwrap();
        assert_eq!(check(&pool), told, "{name}: pairs and lines");
    }
}

#[test]
fn changes_of_encrypted_files_are_found_with_the_key() {
    let Some(golden) = testkit::golden::pool("crypt") else { return };
    let pool = import_golden(&golden).unwrap();
    load_keys(&golden, &pool);
    assert_eq!(check(&pool), (1, 0), "nothing happened since the snapshot");
    // Any two filesystems can be compared.
    for after in ["crypt/ccm", "crypt/gcm/child"] {
        let (before, after) = (objset(&pool, "crypt/gcm").unwrap(), objset(&pool, after).unwrap());
        assert!(!block_on(agree(&before, &after, "encrypted")).is_empty());
    }
}
