//! Tunables change what they say. They belong to the process, so this program has nothing else to test, and
//! its tests take turns.

#![allow(clippy::unwrap_used, reason = "a test")]

mod bed;
mod caches;
mod events;
mod groups;
mod hosts;
mod logs;
mod parts;
mod reading;
mod scans;
mod space;
#[path = "../live/support.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use engine::tunables;

/// The files with tests of effects, from the workspace's root.
const TESTS: [&str; 18] = [
    "cenote/tests/commands/delegation.rs",
    "engine/src/dsl/edit/freeing.rs",
    "engine/src/dsl/edit/livelist.rs",
    "engine/src/tables/ddt/filter.rs",
    "engine/src/tables/ddt/log.rs",
    "engine/src/vdev/indirect.rs",
    "engine/tests/live/l2arc.rs",
    "engine/tests/tunables/caches.rs",
    "engine/tests/tunables/events.rs",
    "engine/tests/tunables/groups.rs",
    "engine/tests/tunables/hosts.rs",
    "engine/tests/tunables/logs.rs",
    "engine/tests/tunables/parts.rs",
    "engine/tests/tunables/reading.rs",
    "engine/tests/tunables/scans.rs",
    "engine/tests/tunables/space.rs",
    "server/src/daemon/watch/memory.rs",
    "server/tests/daemon/attached.rs",
];

#[test]
fn each_tunable_is_set_by_a_test_of_its_effect() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text: String = TESTS.map(|file| std::fs::read_to_string(root.join(file)).unwrap()).concat();
    // `set(&tunables::NAME, value)` or, of one alone, `tunables::NAME.set(value)`; in some files by a helper,
    // and in tests of commands by its name.
    let is_set = |tunable: &&&tunables::Tunable| {
        let id = tunable.name().to_uppercase();
        let calls = ["set(&tunables::ID, ", "tunables::ID.set(", "after(&tunables::ID, "]
            .map(|it| it.replace("ID", &id));
        calls.iter().any(|call| text.contains(call)) || text.contains(&format!("\"{}=", tunable.name()))
    };
    let without: Vec<_> = tunables::all().iter().filter(|t| !is_set(t)).map(|t| t.name()).collect();
    assert!(without.is_empty(), "no test sets {without:?}: write one of the effect in engine/tests/tunables");
}
