//! Pools with devices missing or full of wrong bytes read right as long as their redundancy suffices, and
//! refuse when it does not.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use device::{Device, IoBuf, IoFuture, SectorSizes, block_on};
use engine::Pool;
use engine::pool::discovery::{FoundPool, scan};
use engine::pool::import::{ImportError, ImportOptions, import, select};
use engine::pool::verify::{Depth, Progress, Report, VerifyOptions, verify};
use engine::vdev::{LABEL_END_BYTES, LABEL_START_BYTES, State};
use ondisk::Guid;

/// A device whose labels are fine and whose data are all wrong.
#[derive(Debug)]
struct Garbled(Arc<dyn Device>);

impl Device for Garbled {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn sector_sizes(&self) -> SectorSizes {
        self.0.sector_sizes()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            let mut bytes = self.0.read(offset, len).await?;
            let data = LABEL_START_BYTES..self.size_bytes() - LABEL_END_BYTES;
            for (position, byte) in (offset..).zip(bytes.iter_mut()) {
                if data.contains(&position) {
                    *byte ^= 0xa5;
                }
            }
            Ok(bytes)
        })
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        self.0.write(offset, data)
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        self.0.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.0.discard(offset, len)
    }
}

fn found(name: &str) -> Option<FoundPool> {
    let golden = testkit::golden::pool(name)?;
    let pools = block_on(scan(&[&golden.dir])).expect("the directory can be listed");
    Some(select(pools, name).expect("the pool is found by its name"))
}

/// The guids of the pool's leaves under its first top-level vdev, in order.
fn leaves(found: &FoundPool) -> Vec<Guid> {
    found.tree.children[0].leaves().iter().map(|leaf| leaf.guid).collect()
}

fn open(found: &FoundPool) -> Arc<Pool> {
    block_on(import(found, &ImportOptions::read_only())).unwrap_or_else(|error| panic!("{error}"))
}

fn read_all(pool: &Arc<Pool>) -> Report {
    let options = VerifyOptions { threads: 2, depth: Depth::Everything, check_space: false };
    verify(pool, options, &Progress::default()).unwrap_or_else(|error| panic!("{}: {error}", pool.name()))
}

/// Choices of `count` leaves: neighbours, so that each leaf is part of one.
fn neighbours(leaves: &[Guid], count: usize) -> Vec<BTreeSet<Guid>> {
    let around = || leaves.iter().chain(leaves).copied();
    (0..leaves.len()).map(|first| around().skip(first).take(count).collect()).collect()
}

const REDUNDANT: [(&str, usize); 8] = [
    ("rz1", 1),
    ("rz1s9", 1),
    ("rz2", 2),
    ("rz3", 3),
    ("dr2", 2),
    ("expanded", 1),
    ("triple", 2),
    ("classes", 1),
];

#[test]
fn missing_devices_are_made_up_for() {
    for (name, spare) in REDUNDANT {
        let Some(whole) = found(name) else { return };
        for missing in neighbours(&leaves(&whole), spare) {
            let mut found = whole.clone();
            found.candidates.retain(|guid, _| !missing.contains(guid));
            let pool = open(&found);
            assert_eq!(pool.vdevs().tops[0].status().state, State::Degraded, "{name}");
            let report = read_all(&pool);
            assert_eq!(
                report.unreadable_blocks,
                0,
                "{name} without {missing:?}: {:?}",
                report.errors.first()
            );
        }
    }
}

#[test]
fn one_device_too_few_is_refused_by_name() {
    for (name, spare) in REDUNDANT {
        let Some(mut found) = found(name) else { return };
        let missing = neighbours(&leaves(&found), spare + 1).remove(0);
        found.candidates.retain(|guid, _| !missing.contains(guid));
        match block_on(import(&found, &ImportOptions::read_only())) {
            Err(ImportError::MissingDevices { missing, .. }) => assert_eq!(missing.len(), 1, "{name}"),
            // The labels alone may not lead to the MOS any more.
            Err(ImportError::Damaged { .. }) => {}
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn silent_damage_is_found_made_up_for_and_counted_where_it_is() {
    for (name, spare) in REDUNDANT {
        let Some(whole) = found(name) else { return };
        for garbled in neighbours(&leaves(&whole), spare).into_iter().step_by(3) {
            let mut found = whole.clone();
            for (guid, candidate) in &mut found.candidates {
                if garbled.contains(guid) {
                    candidate.device = Arc::new(Garbled(Arc::clone(&candidate.device)));
                }
            }
            let pool = open(&found);
            let report = read_all(&pool);
            assert_eq!(report.unreadable_blocks, 0, "{name}, {garbled:?}: {:?}", report.errors.first());
            assert!(report.damaged_blocks > 0, "{name}");
            let counted: BTreeSet<Guid> = pool
                .vdevs()
                .leaves()
                .filter(|leaf| leaf.errors.checksum() > 0)
                .map(|leaf| leaf.guid)
                .collect();
            // A child of a small draid may hold nothing but spare space.
            assert!(
                !counted.is_empty() && counted.is_subset(&garbled),
                "{name}: {counted:?}, not {garbled:?}"
            );
        }
    }
}

#[test]
fn damage_beyond_repair_is_an_error_and_never_wrong_bytes() {
    for (name, spare) in [("rz1", 1), ("dr2", 2), ("triple", 2)] {
        let Some(mut found) = found(name) else { return };
        let garbled = neighbours(&leaves(&found), spare + 1).remove(0);
        for (guid, candidate) in &mut found.candidates {
            if garbled.contains(guid) {
                candidate.device = Arc::new(Garbled(Arc::clone(&candidate.device)));
            }
        }
        match block_on(import(&found, &ImportOptions::read_only())) {
            Err(ImportError::Damaged { .. }) => {}
            Ok(pool) => assert!(read_all(&pool).unreadable_blocks > 0, "{name}"),
            Err(other) => panic!("{name}: {other}"),
        }
    }
}
