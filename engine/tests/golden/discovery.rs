//! Devices that were renamed, moved, copied, lost or left behind.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use device::block_on;
use engine::pool::discovery::{FoundPool, scan};
use engine::pool::import::{ImportError, ImportOptions, Rewind, import, select, uberblocks};
use engine::pool::status::{Preview, Reason, preview};
use engine::vdev::{Aux, State};
use ondisk::label;
use ondisk::uberblock::Uberblock;
use testkit::GoldenPool;

/// Puts copies of the devices of a golden pool into `dir`, by other names.
fn renamed(name: &str, dir: &Path) -> Option<Vec<PathBuf>> {
    let golden: GoldenPool = testkit::golden::pool(name)?;
    let elsewhere = tempfile::tempdir_in(dir).expect("a directory");
    let copies = golden.private_copy(elsewhere.path()).expect("the devices can be copied");
    let moved = (0..).zip(copies).map(|(index, copy)| {
        let path = dir.join(format!("{name}-moved-{index}"));
        fs::rename(copy, &path).expect("renames");
        path
    });
    Some(moved.collect())
}

fn find(dir: &Path) -> Vec<FoundPool> {
    block_on(scan(&[dir])).expect("the directory can be listed")
}

fn look(found: &FoundPool) -> Preview {
    block_on(preview(found, 0))
}

#[test]
fn names_and_places_of_devices_mean_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(_) = renamed("rz1s9", dir.path()) else { return };
    let Some(_) = renamed("legacy28", dir.path()) else { return };
    fs::write(dir.path().join("not-a-device"), vec![7; 6 << 20]).expect("a file");
    let pools = find(dir.path());
    let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(pools.len(), 2, "{names:?}");
    for found in &pools {
        let pool = block_on(import(found, &ImportOptions::read_only())).expect("imports");
        let by_guid = select(pools.clone(), &pool.guid().to_string()).expect("found by guid");
        assert_eq!(by_guid.name, pool.name());
    }
    assert!(matches!(select(pools, "no-such-pool"), Err(ImportError::NotFound(_))));
}

#[test]
fn of_two_devices_with_one_identity_the_newer_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(paths) = renamed("rz1s9", dir.path()) else { return };
    let again = tempfile::tempdir().expect("a directory");
    let Some(copies) = renamed("rz1s9", again.path()) else { return };
    fs::copy(&copies[0], dir.path().join("zz-copy")).expect("the device can be copied");
    let pools = find(dir.path());
    let [found] = pools.as_slice() else { panic!("{} pools", pools.len()) };
    assert_eq!(found.duplicates, [dir.path().join("zz-copy")]);
    assert_eq!(found.candidates.len(), paths.len());
    block_on(import(found, &ImportOptions::read_only())).expect("imports");
}

#[test]
fn a_missing_device_is_told_with_what_it_means() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(paths) = renamed("rz1s9", dir.path()) else { return };
    assert_eq!(look(&find(dir.path())[0]).reason, Reason::Ok);
    fs::remove_file(&paths[1]).expect("removes");
    let seen = look(&find(dir.path())[0]);
    assert_eq!((seen.state, seen.reason), (State::Degraded, Reason::MissingReplicas));
    let lost: Vec<_> = seen.vdevs.walk().filter(|node| node.not_present).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].aux, Aux::OpenFailed);
    assert!(lost[0].path.as_deref().is_some_and(|path| path.ends_with("/d1")), "{:?}", lost[0].path);
    fs::remove_file(&paths[2]).expect("removes");
    let found = &find(dir.path())[0];
    let seen = look(found);
    assert_eq!((seen.state, seen.reason), (State::CantOpen, Reason::MissingNoReplicas));
    assert!(block_on(import(found, &ImportOptions::read_only())).is_err());
}

#[test]
fn a_missing_log_device_is_refused_unless_it_may_be_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(paths) = renamed("classes", dir.path()) else { return };
    fs::remove_file(&paths[4]).expect("removes");
    let found = &find(dir.path())[0];
    let options = ImportOptions::read_only();
    assert!(matches!(block_on(import(found, &options)), Err(ImportError::MissingLog { .. })));
    let without = ImportOptions { missing_log: true, ..options };
    block_on(import(found, &without)).expect("imports without its log");
}

#[test]
fn a_pool_in_use_elsewhere_needs_force() {
    let Some(golden) = testkit::golden::pool("zilreplay") else { return };
    let found = &find(&golden.dir)[0];
    let polite = ImportOptions { force: false, ..ImportOptions::read_only() };
    assert!(matches!(block_on(import(found, &polite)), Err(ImportError::InUse { .. })));
    let same_host = ImportOptions { host_id: found.label.host_id.unwrap_or(0), ..polite };
    block_on(import(found, &same_host)).expect("the last host may open it again");
}

#[test]
fn the_past_can_be_opened_by_txg_and_by_checkpoint() {
    let Some(golden) = testkit::golden::pool("checkpoint") else { return };
    let found = &find(&golden.dir)[0];
    let all = block_on(uberblocks(found));
    assert!(all.is_sorted_by(|a, b| a.txg > b.txg));
    let back = ImportOptions { rewind_to_checkpoint: true, ..ImportOptions::read_only() };
    let pool = block_on(import(found, &back)).expect("opens at its checkpoint");
    let now = block_on(import(found, &ImportOptions::read_only())).expect("opens as it is");
    assert_eq!(Some(pool.uberblock().txg), now.checkpoint().map(|uberblock| uberblock.txg));
    assert!(pool.uberblock().txg < now.uberblock().txg);
    let earlier = all.iter().find(|uberblock| uberblock.txg < now.uberblock().txg).expect("an older state");
    let to_txg = ImportOptions { rewind: Rewind::ToTxg(earlier.txg), ..ImportOptions::read_only() };
    let pool = block_on(import(found, &to_txg)).expect("opens at an earlier txg");
    assert_eq!(pool.uberblock().txg, earlier.txg);
}

/// Overwrites all copies of the MOS's root block, as of this state.
fn destroy(devices: &[PathBuf], uberblock: &Uberblock) {
    let [device] = devices else { panic!("{} devices", devices.len()) };
    let device = fs::File::options().write(true).open(device).expect("opens");
    for dva in uberblock.root_bp.dvas() {
        device.write_all_at(&[0xaa; 512], label::FRONT_SIZE + dva.offset.get()).expect("writes");
    }
}

#[test]
fn a_damaged_state_leads_to_the_one_before_it_however_long_ago_that_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(devices) = renamed("single", dir.path()) else { return };
    let all = block_on(uberblocks(&find(dir.path())[0]));
    assert!(all[1].txg.get() + 2 < all[0].txg.get(), "the states are far apart");
    let opened = |rewind| {
        let options = ImportOptions { rewind, ..ImportOptions::read_only() };
        block_on(import(&find(dir.path())[0], &options)).map(|pool| pool.uberblock().txg)
    };
    let advised = || match opened(Rewind::Never) {
        Err(ImportError::Damaged { rewind: Some(point), .. }) => (point.txg, point.extreme),
        other => panic!("{other:?}"),
    };
    destroy(&devices, &all[0]);
    assert_eq!(advised(), (all[1].txg, false));
    assert_eq!(opened(Rewind::Recent).expect("opens"), all[1].txg);
    destroy(&devices, &all[1]);
    assert_eq!(advised(), (all[2].txg, true));
    assert!(matches!(opened(Rewind::Recent), Err(ImportError::Damaged { .. })));
    assert!(matches!(opened(Rewind::ToTxg(all[1].txg)), Err(ImportError::Damaged { .. })));
    assert_eq!(opened(Rewind::Extreme).expect("opens"), all[2].txg);
}

#[test]
fn a_missing_checkpoint_is_refused() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let found = &find(&golden.dir)[0];
    let back = ImportOptions { rewind_to_checkpoint: true, ..ImportOptions::read_only() };
    assert!(matches!(block_on(import(found, &back)), Err(ImportError::NoCheckpoint(_))));
}
