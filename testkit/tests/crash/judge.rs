//! Whether what is left after a power cut is right.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use engine::dataset::dsl::Dsl;
use engine::dataset::zvol::{LiveZvol, Zvol};
use engine::dmu::Objset;
use engine::pool::import::{ImportOptions, import as import_to_read};
use engine::pool::live::LivePool;
use engine::pool::verify::{Depth, Progress, VerifyOptions, verify};
use futures_util::future::join;
use ondisk::vdev_config::PoolState;
use testkit::crash::{Disk, Recorder, SECTOR_BYTES};

use super::history::{History, Lane, turns};
use super::pools::{self, POOL};

/// How thoroughly a state is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Care {
    /// Write to the pool once more, close it, and verify every block.
    pub verify: bool,
    /// Ask `zdb` too.
    pub zdb: bool,
}

/// Imports what a power cut at `point` left, and compares it with the history. Gives what was recorded meanwhile.
pub fn judge(
    history: &History,
    point: usize,
    disks: Vec<Disk>,
    seed: u64,
    care: Care,
) -> Result<Recorder, String> {
    let recorder = Recorder::new(seed);
    device::block_on(async {
        let pool = pools::import(&recorder, disks, seed).await?;
        contents(history, point, &pool).await?;
        if care.verify || care.zdb {
            go_on(&pool).await?;
            contents_after(history, &pool).await?;
            close(&pool).await?;
        }
        Ok::<_, String>(())
    })?;
    if care.verify || care.zdb {
        let disks = recorder.disks();
        if care.zdb {
            zdb(&disks)?;
        }
        verify_blocks(disks, seed)?;
    }
    Ok(recorder)
}

/// Volumes and snapshots hold what they may.
async fn contents(history: &History, point: usize, pool: &Arc<LivePool>) -> Result<(), String> {
    let dsl = Dsl::open(&pool.view()).await.map_err(|error| format!("datasets: {error}"))?;
    let mut least: Vec<(usize, usize)> = history.lanes.iter().map(|lane| lane.model.bounds(point)).collect();
    for snapshot in history.snapshots.iter().filter(|snapshot| snapshot.begun_at <= point) {
        let name = format!("{POOL}/{}@{}", snapshot.volume, snapshot.name);
        let must = snapshot.taken_at.is_some_and(|at| at <= point);
        let found = match dsl.find(&name).await {
            Ok(found) => found,
            Err(engine::Error::NotFound(_)) if !must => continue,
            Err(error) => return Err(format!("{name}: {error}")),
        };
        let read = async {
            let objset = Objset::open(&pool.view(), found.objset_id(), &found.phys.bp).await?;
            let volume = Zvol::open(&objset).await?;
            read_snapshot(&volume).await
        };
        let bytes = read.await.map_err(|error| format!("{name}: {error}"))?;
        for (index, lane) in lanes_of(history, snapshot.volume) {
            // A snapshot that was never answered may hold all that was begun.
            let (from, to) = snapshot.bounds.get(index).copied().unwrap_or((0, usize::MAX));
            let most = to.min(lane.model.bounds(point).1);
            lane.model.judge(part(&bytes, lane), from, most).map_err(|error| format!("{name}: {error}"))?;
            least[index].0 = least[index].0.max(from);
        }
    }
    for name in volumes(history) {
        let volume = pools::volume(pool, name).await?;
        let bytes = read(&volume).await.map_err(|error| format!("volume {name}: {error}"))?;
        for (index, lane) in lanes_of(history, name) {
            lane.model.judge_sectors(part(&bytes, lane), least[index].0, least[index].1)?;
        }
    }
    Ok(())
}

/// The pool takes writes, stable ones too.
async fn go_on(pool: &Arc<LivePool>) -> Result<(), String> {
    let volume = pools::volume(pool, "b").await?;
    let bytes = vec![0xa5; SECTOR_BYTES];
    let end = volume.size() - SECTOR_BYTES as u64;
    let write = async {
        volume.write_at(end, &bytes, false).await?;
        pool.sync().await?;
        pool.sync().await
    };
    write.await.map_err(|error| format!("writing on: {error}"))?;
    Ok(())
}

async fn contents_after(history: &History, pool: &Arc<LivePool>) -> Result<(), String> {
    for name in volumes(history) {
        let volume = pools::volume(pool, name).await?;
        read(&volume).await.map_err(|error| format!("volume {name} after writing on: {error}"))?;
    }
    Ok(())
}

/// Nobody else commits groups, and closing the logs waits for some.
async fn close(pool: &Arc<LivePool>) -> Result<(), String> {
    let done = Cell::new(false);
    let close = async {
        let closed = pool.close(PoolState::Exported).await;
        done.set(true);
        closed.map_err(|error| format!("export: {error}"))
    };
    let commit = async {
        while !done.get() && pool.sync().await.is_ok() {
            // Whoever waits for its turn to commit gets it.
            turns(4).await;
        }
    };
    join(close, commit).await.0
}

/// Our own reader finds nothing wrong with any block, and space maps that say what is used.
fn verify_blocks(disks: Vec<Disk>, seed: u64) -> Result<(), String> {
    let recorder = Recorder::new(seed);
    let pool = device::block_on(async {
        let found = pools::find(&recorder, disks).await?;
        import_to_read(&found, &ImportOptions::read_only())
            .await
            .map_err(|error| format!("import to read: {error}"))
    })?;
    let options = VerifyOptions { threads: 1, depth: Depth::Everything, check_space: true };
    let report = verify(&pool, options, &Progress::default()).map_err(|error| format!("verify: {error}"))?;
    match report.is_clean() && report.notes.is_empty() {
        true => Ok(()),
        false => Err(format!("verify: {:?} {:?} {:?}", report.errors, report.space, report.notes)),
    }
}

/// OpenZFS finds nothing wrong either.
fn zdb(disks: &[Disk]) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    save(disks, dir.path())?;
    for letters in ["-bcc", "-d"] {
        let Some(text) = testkit::oracle::zdb_of(dir.path(), letters, POOL, &[]) else { return Ok(()) };
        let bad =
            ["leaked space", "ASSERT", "error:", "errors in", "Deadlist", "can't", "block traversal size"];
        if let Some(bad) = bad.iter().find(|bad| text.contains(**bad)) {
            return Err(format!("zdb {letters} says '{bad}':\n{text}"));
        }
        if letters == "-bcc" && !text.contains("No leaks (block sum matches space maps exactly)") {
            return Err(format!("zdb {letters}:\n{text}"));
        }
    }
    Ok(())
}

/// Writes disks as files, for zdb or somebody to look at.
pub fn save(disks: &[Disk], dir: &Path) -> Result<(), String> {
    for (number, disk) in disks.iter().enumerate() {
        disk.save(&dir.join(format!("disk{number}"))).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn volumes(history: &History) -> Vec<&'static str> {
    let mut names: Vec<_> = history.lanes.iter().map(|lane| lane.volume).collect();
    names.dedup();
    names
}

fn lanes_of<'a>(history: &'a History, volume: &'a str) -> impl Iterator<Item = (usize, &'a Lane)> + 'a {
    history.lanes.iter().enumerate().filter(move |(_, lane)| lane.volume == volume)
}

/// The part of a volume's bytes that belongs to a lane.
fn part<'a>(bytes: &'a [u8], lane: &Lane) -> &'a [u8] {
    let first = lane.first_sector as usize * SECTOR_BYTES;
    &bytes[first..first + lane.model.sectors() as usize * SECTOR_BYTES]
}

async fn read(volume: &LiveZvol) -> Result<Vec<u8>, engine::Error> {
    let mut bytes = vec![0; volume.size() as usize];
    volume.read_at(0, &mut bytes).await?;
    Ok(bytes)
}

async fn read_snapshot(volume: &Zvol) -> Result<Vec<u8>, engine::Error> {
    let mut bytes = vec![0; volume.size() as usize];
    volume.read_at(0, &mut bytes).await?;
    Ok(bytes)
}
