//! Import, export, listings.

use device::block_on;
use server::api::{
    DatasetKind, DiscoverPools, ErrorKind, ExportPool, GetStatus, ImportPool, ListDatasets, ListHolds,
    ListPools, PoolHistory, Reason, State,
};
use server::daemon::{Daemon, dispatch};

use crate::harness::{Running, golden, import_request};

fn without_mounts(running: &Running, golden: &testkit::GoldenPool) -> ImportPool {
    ImportPool { no_mount: true, ..import_request(&golden.name, &golden.dir, &running.altroot()) }
}

#[test]
fn a_pool_can_be_found_imported_once_and_exported() {
    let Some(golden) = golden("triple") else { return };
    let running = Running::start();
    let daemon = &running.daemon;
    let discover = DiscoverPools { search: vec![golden.dir.clone()], ..DiscoverPools::default() };
    let found = block_on(daemon.discover(discover.clone())).unwrap();
    assert_eq!(found.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["triple"]);
    assert_eq!((found[0].state, found[0].exported), (State::Healthy, true));

    let request = without_mounts(&running, &golden);
    let imported = block_on(daemon.import(request.clone())).unwrap();
    assert_eq!(imported.pools[0].guid, found[0].guid);
    // What is open is not offered again.
    assert!(block_on(daemon.discover(discover.clone())).unwrap().is_empty());
    assert_eq!(block_on(daemon.import(request.clone())).unwrap_err().kind, ErrorKind::NotFound);

    let export = ExportPool { pools: vec!["triple".into()], ..ExportPool::default() };
    assert_eq!(block_on(daemon.export(export.clone())).unwrap(), ["triple"]);
    assert_eq!(block_on(daemon.export(export)).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(block_on(daemon.discover(discover)).unwrap().len(), 1);
    block_on(daemon.import(request)).unwrap();
}

#[test]
fn two_imports_at_once_open_a_pool_once() {
    let Some(golden) = golden("triple") else { return };
    let running = Running::start();
    let request = without_mounts(&running, &golden);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let import = || block_on(running.daemon.import(request.clone()));
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(import)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    for error in outcomes.into_iter().filter_map(Result::err) {
        assert!(matches!(error.kind, ErrorKind::Busy | ErrorKind::NotFound), "{error}");
    }
}

#[test]
fn a_dry_run_opens_nothing() {
    let Some(golden) = golden("triple") else { return };
    let running = Running::start();
    let rewind = server::api::Rewind { dry_run: true, ..server::api::Rewind::default() };
    let request = ImportPool { rewind: Some(rewind), ..without_mounts(&running, &golden) };
    let imported = block_on(running.daemon.import(request)).unwrap();
    assert!(imported.pools[0].txg > 0);
    assert!(running.daemon.open_pools().is_empty());
}

#[test]
fn a_pool_can_get_another_name() {
    let Some(golden) = golden("triple") else { return };
    let running = Running::start();
    let request = ImportPool { new_name: Some("other".into()), ..without_mounts(&running, &golden) };
    block_on(running.daemon.import(request)).unwrap();
    let list = ListDatasets { depth: Some(0), properties: vec!["name".into()], ..ListDatasets::default() };
    let listed = block_on(running.daemon.list_datasets(list)).unwrap();
    assert_eq!(listed.entries[0].name, "other");
}

#[test]
fn datasets_are_listed_as_openzfs_lists_them() {
    let Some(golden) = golden("single") else { return };
    let running = Running::start();
    block_on(running.daemon.import(without_mounts(&running, &golden))).unwrap();
    let properties = ["name", "type", "creation"].map(str::to_owned).to_vec();
    let listed =
        block_on(running.daemon.list_datasets(ListDatasets { properties, ..ListDatasets::default() }))
            .unwrap();
    let told: Vec<Vec<&str>> = listed
        .entries
        .iter()
        .map(|entry| {
            entry.properties.iter().map(|property| property.parsable.as_deref().unwrap_or("-")).collect()
        })
        .collect();
    let expected = golden.expect_text("list.tsv").unwrap();
    let expected: Vec<Vec<&str>> = expected
        .lines()
        .map(|line| {
            line.split('\t')
                .enumerate()
                .filter(|(column, _)| ![2, 3].contains(column))
                .map(|(_, word)| word)
                .collect()
        })
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn what_does_not_exist_is_told_beside_what_does() {
    let Some(golden) = golden("single") else { return };
    let running = Running::start();
    block_on(running.daemon.import(without_mounts(&running, &golden))).unwrap();
    let names = ["single/fs", "single/none", "nopool/x", "single/fs@one"].map(str::to_owned).to_vec();
    let kinds = vec![DatasetKind::Filesystem];
    let properties = vec!["used".into()];
    let list = ListDatasets { names, depth: Some(0), kinds, properties, ..ListDatasets::default() };
    let listed = block_on(running.daemon.list_datasets(list)).unwrap();
    assert_eq!(listed.entries.len(), 1);
    let failed: Vec<&str> = listed.failed.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(
        failed,
        [
            "cannot open 'single/none': dataset does not exist",
            "cannot open 'nopool/x': dataset does not exist",
            "cannot open 'single/fs@one': operation not applicable to datasets of this type",
        ]
    );
    let bad = ListDatasets { properties: vec!["usd".into()], ..ListDatasets::default() };
    assert_eq!(block_on(running.daemon.list_datasets(bad)).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn holds_history_and_status_are_told() {
    let Some(golden) = golden("single") else { return };
    let running = Running::start();
    block_on(running.daemon.import(without_mounts(&running, &golden))).unwrap();
    let names = ListDatasets { kinds: vec![DatasetKind::Snapshot], ..ListDatasets::default() };
    let snapshots = block_on(running.daemon.list_datasets(names)).unwrap();
    let snapshots = snapshots.entries.into_iter().map(|entry| entry.name).collect();
    let holds = block_on(running.daemon.list_holds(ListHolds { snapshots, recursive: false })).unwrap();
    assert_eq!((holds.entries.len(), holds.failed.len()), (1, 0), "{holds:?}");

    let history = block_on(running.daemon.history(PoolHistory {
        internal: true,
        long: true,
        ..PoolHistory::default()
    }))
    .unwrap();
    let expected = golden.expect_text("history.txt").unwrap();
    let first = &history.entries[0].records[0];
    assert!(expected.contains(first.text.trim_end()), "{}", first.text);
    assert!(first.time.is_some());

    let status = block_on(running.daemon.status(GetStatus { files: true, ..GetStatus::default() })).unwrap();
    assert_eq!(
        (status.entries[0].health.state, status.entries[0].health.reason),
        (State::Healthy, Reason::Ok)
    );
    let pools = ListPools { properties: vec!["all".into()], vdevs: true, ..ListPools::default() };
    let pools = block_on(running.daemon.list_pools(pools)).unwrap();
    let root = pools.entries[0].vdevs.as_ref().unwrap();
    assert_eq!(root.space.unwrap().size, root.children[0].space.unwrap().size);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let daemon = std::sync::Arc::new(Daemon::default());
    let ask = |action: &str, body: &[u8]| dispatch(&daemon, action, body).map_err(|error| error.kind);
    assert_eq!(ask("pool-destroy-everything", b"{}"), Err(ErrorKind::NotFound));
    assert_eq!(ask("pool-import", b"[1"), Err(ErrorKind::Invalid));
    assert_eq!(ask("pool-export", br#"{"pools": ["none"]}"#), Err(ErrorKind::NotFound));
    assert!(ask("hello", b"{}").is_ok());
}
