//! Whether what is left after a power cut is right.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use engine::dmu::Objset;
use engine::dsl::{Dataset, Dsl, edit};
use engine::pool::import::{ImportOptions, import as import_to_read};
use engine::pool::live::LivePool;
use engine::pool::verify::{DedupReport, Depth, Progress, VerifyOptions, verify};
use engine::zvol::Zvol;
use ondisk::vdev_config::PoolState;
use testkit::crash::{Disk, Recorder, SECTOR_BYTES};
use testkit::tree::Tree;

use super::administrator::Deed;
use super::contents::{Contents, fill};
use super::healing::scrubbed;
use super::history::{History, Lane, SPARE_SECTORS};
use super::keys::Root;
use super::support::{POOL, committing};
use super::{keys, pools};

/// How a state is looked at.
#[derive(Debug, Clone, Default)]
pub struct Care {
    /// Write to the pool once more, close it, and verify every block.
    pub verify: bool,
    /// Ask `zdb` too.
    pub zdb: bool,
    /// Devices that are not found.
    pub missing: Vec<usize>,
    /// Devices may lack what was written while they were away: what redundancy makes good is no mistake.
    pub stale: bool,
    /// Scrub it without its keys first.
    pub locked: bool,
    /// Entries that may have been pruned from dedup tables: so many blocks may be without one.
    pub pruned: u64,
}

/// Imports what a power cut at `point` left, and compares it with the history. Gives what was recorded
/// meanwhile.
pub fn judge(
    history: &History,
    point: usize,
    disks: Vec<Disk>,
    seed: u64,
    care: &Care,
) -> Result<Recorder, String> {
    let disks = match care.locked {
        true => scrubbed_without_keys(history, disks, seed ^ 5, care)?,
        false => disks,
    };
    let recorder = Recorder::new(seed);
    pools::run(async {
        let pool = pools::import_counting(&recorder, disks, &care.missing, seed, &history.ivs).await?;
        keys::unlock(&pool, |root| history.keys(root, point)).await?;
        pools::feed(&pool).await;
        contents(history, point, &pool).await?;
        if care.verify || care.zdb {
            go_on(&pool).await.map_err(|error| format!("writing on: {error}"))?;
            contents(history, point, &pool).await.map_err(|error| format!("after writing on: {error}"))?;
            let closed = committing(&pool, pool.close(PoolState::Exported)).await;
            closed.map_err(|error| format!("export: {error}"))?;
        }
        Ok::<_, String>(())
    })?;
    if care.verify || care.zdb {
        let disks = recorder.disks();
        if care.zdb {
            zdb(&disks, &care.missing)?;
        }
        verify_with_keys(disks, seed, care, |root| history.keys(root, point))?;
    }
    history.ivs.count()?;
    Ok(recorder)
}

/// Without any key the pool is imported, scrubbed and exported. Scrubs find nothing, and what follows shows
/// that intent logs have stayed. Gives what is on the disks then.
fn scrubbed_without_keys(
    history: &History,
    disks: Vec<Disk>,
    seed: u64,
    care: &Care,
) -> Result<Vec<Disk>, String> {
    let recorder = Recorder::new(seed);
    let scrub = async || {
        let pool = pools::import_counting(&recorder, disks, &care.missing, seed, &history.ivs).await?;
        pool.start().map_err(|error| format!("start: {error}"))?;
        // The first one may find a log block that was on its way to one half of a mirror.
        let first = scrubbed(&pool).await?;
        let second = scrubbed(&pool).await?;
        let complete = care.missing.is_empty() && !care.stale;
        if first.errors + second.errors > 0 || (complete && second.processed > 0) {
            return Err(format!("scrubs find {first:?}, {second:?}"));
        }
        let closed = pool.close(PoolState::Exported).await;
        closed.map_err(|error| format!("export: {error}"))
    };
    // The pool's own threads compute: this one is the only one of its kind.
    let done = std::thread::scope(|scope| scope.spawn(|| device::block_on(scrub())).join());
    match done {
        Ok(done) => done.map_err(|error| format!("without keys: {error}"))?,
        Err(_) => return Err("without keys: a panic".to_owned()),
    }
    Ok(recorder.disks())
}

/// Volumes and snapshots are those that there may be, and hold what they may.
async fn contents(history: &History, point: usize, pool: &Arc<LivePool>) -> Result<(), String> {
    let dsl = Dsl::open(&pool.view()).await.map_err(|error| format!("datasets: {error}"))?;
    let found = datasets(&dsl).await.map_err(|error| format!("datasets: {error}"))?;
    let names: BTreeSet<&str> = found.keys().map(String::as_str).collect();
    let (must, next) = history.trees(point);
    let next_tree = next.map(|asked| &asked.tree);
    let trees: Vec<&Tree<Contents>> =
        [Some(must), next_tree].into_iter().flatten().filter(|tree| tree.names() == names).collect();
    if trees.is_empty() {
        let next = next.map(|asked| &asked.deed);
        return Err(format!("there are {names:?}; expected {:?}, or that after {next:?}", must.names()));
    }
    let torn = matches!(next.map(|asked| &asked.deed), Some(Deed::Fill { .. }));
    // A snapshot that is there proves that all it holds is.
    let mut least: Vec<(usize, usize)> = history.lanes.iter().map(|lane| lane.model.bounds(point)).collect();
    for (name, dataset) in
        found.iter().filter(|(name, _)| !matches!(must.contents(name), Some(Contents::Live(_))))
    {
        let bytes = read(pool, name, dataset).await.map_err(|error| format!("{name}: {error}"))?;
        let mut allowed = trees.iter().filter_map(|tree| tree.contents(name));
        match allowed.next() {
            Some(Contents::Moment { volume, bounds }) => {
                for (index, lane) in lanes_of(history, volume) {
                    // A snapshot that was never answered may hold all that was begun.
                    let (from, to) = bounds.get(index).copied().unwrap_or((0, usize::MAX));
                    let most = to.min(lane.model.bounds(point).1);
                    let judged = lane.model.judge(part(&bytes, lane)?, from, most);
                    judged.map_err(|error| format!("{name}: {error}"))?;
                    least[index].0 = least[index].0.max(from);
                }
            }
            Some(Contents::Filled(first)) => {
                let others = allowed.filter_map(|other| match other {
                    Contents::Filled(step) => Some(*step),
                    _ => None,
                });
                let steps: BTreeSet<u64> = others.chain([*first]).collect();
                filled(&bytes, &steps, torn).map_err(|error| format!("{name}: {error}"))?;
            }
            Some(Contents::Live(_)) | None => return Err(format!("{name}: it should not be there")),
        }
    }
    for name in volumes(history) {
        let dataset = found.get(name).ok_or_else(|| format!("{name}: it is not there"))?;
        let bytes = read(pool, name, dataset).await.map_err(|error| format!("volume {name}: {error}"))?;
        for (index, lane) in lanes_of(history, name) {
            lane.model.judge_sectors(part(&bytes, lane)?, least[index].0, least[index].1)?;
        }
    }
    Ok(())
}

/// All volumes and snapshots, without the pool's name.
async fn datasets(dsl: &Dsl) -> engine::Result<BTreeMap<String, Dataset>> {
    let mut found = BTreeMap::new();
    let prefix = format!("{POOL}/");
    for dir in dsl.dirs(dsl.root()).await? {
        let Some(name) = dir.name.strip_prefix(&prefix).filter(|name| !name.starts_with('$')) else {
            continue;
        };
        let head = dsl.head(&dir).await?;
        for snapshot in dsl.snapshots(&head).await? {
            let short = snapshot.name.rsplit('@').next().unwrap_or_default();
            found.insert(format!("{name}@{short}"), snapshot);
        }
        found.insert(name.to_owned(), head);
    }
    Ok(found)
}

/// A volume was filled with one of these steps; with some of them if writing it was under way.
fn filled(bytes: &[u8], steps: &BTreeSet<u64>, torn: bool) -> Result<(), String> {
    let is = |step: u64, sector: usize, bytes: &[u8]| fill(step, sector as u64) == bytes;
    let mut sectors = bytes.chunks_exact(SECTOR_BYTES).enumerate();
    let right = match torn {
        true => sectors.all(|(sector, bytes)| steps.iter().any(|step| is(*step, sector, bytes))),
        false => steps.iter().any(|step| sectors.clone().all(|(sector, bytes)| is(*step, sector, bytes))),
    };
    if right { Ok(()) } else { Err(format!("not what steps {steps:?} filled it with")) }
}

/// The pool takes writes, stable ones too, and a snapshot comes and goes.
async fn go_on(pool: &Arc<LivePool>) -> engine::Result<()> {
    let volume = pools::open_volume(pool, "b").await?;
    let bytes = vec![0xa5; SPARE_SECTORS as usize * SECTOR_BYTES];
    let start = volume.size() - bytes.len() as u64;
    committing(pool, volume.write_at(start, &bytes, true)).await?;
    let name = format!("{POOL}/b@after");
    let new = vec![edit::NewSnapshot { name: name.clone(), properties: Vec::new() }];
    pool.change(|s| async move { edit::snapshot(&s, &new).await }).await?;
    volume.trim(start, bytes.len() as u64 / 2, false).await?;
    pool.sync().await?;
    pool.change(|s| async move { edit::destroy_snapshots(&s, &[name], false).await }).await?;
    pool.sync().await?;
    Ok(())
}

/// Our own reader finds nothing wrong with any block, and space maps that say what is used.
pub fn verify_blocks(disks: Vec<Disk>, seed: u64, care: &Care) -> Result<(), String> {
    verify_with_keys(disks, seed, care, |_| Vec::new())
}

/// The same; each block of an encrypted dataset is what its key made.
pub fn verify_with_keys(
    disks: Vec<Disk>,
    seed: u64,
    care: &Care,
    keys: impl Fn(Root) -> Vec<u64>,
) -> Result<(), String> {
    let recorder = Recorder::new(seed);
    let pool = pools::run(async {
        let found = pools::find(&recorder, disks, &care.missing).await?;
        let pool = import_to_read(&found, &ImportOptions::read_only())
            .await
            .map_err(|error| format!("import to read: {error}"))?;
        keys::load(&pool, keys).await?;
        Ok::<_, String>(pool)
    })?;
    let options = VerifyOptions { threads: 1, depth: Depth::Everything, check_space: true };
    let report = verify(&pool, options, &Progress::default()).map_err(|error| format!("verify: {error}"))?;
    let complete = care.missing.is_empty() && !care.stale;
    let blocks = report.unreadable_blocks == 0 && (report.damaged_blocks == 0 || !complete);
    let space = report.space.as_ref().is_none_or(|space| space.is_clean());
    let is_right = |dedup: &DedupReport| dedup.wrong_entries == 0 && dedup.without_entry <= care.pruned;
    let dedup = report.dedup.as_ref().is_none_or(is_right);
    match blocks && space && dedup && report.notes.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "verify: {:?} {:?} {:?} {:?}",
            report.errors, report.space, report.dedup, report.notes
        )),
    }
}

/// OpenZFS finds nothing wrong either.
pub fn zdb(disks: &[Disk], missing: &[usize]) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    save(disks, missing, dir.path())?;
    match testkit::oracle::complaint(dir.path(), POOL) {
        Some(complaint) => Err(complaint),
        None => Ok(()),
    }
}

/// Writes disks as files, for zdb or a developer to examine.
pub fn save(disks: &[Disk], missing: &[usize], dir: &Path) -> Result<(), String> {
    for (number, disk) in disks.iter().enumerate().filter(|(number, _)| !missing.contains(number)) {
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
fn part<'a>(bytes: &'a [u8], lane: &Lane) -> Result<&'a [u8], String> {
    let first = lane.first_sector as usize * SECTOR_BYTES;
    let part = bytes.get(first..first + lane.model.sectors() as usize * SECTOR_BYTES);
    part.ok_or_else(|| format!("volume {}: only {} bytes", lane.volume, bytes.len()))
}

/// All bytes of a volume or snapshot.
async fn read(pool: &Arc<LivePool>, name: &str, dataset: &Dataset) -> engine::Result<Vec<u8>> {
    if name.contains('@') {
        let objset = Objset::open(&pool.view(), dataset.objset_id(), &dataset.phys.bp).await?;
        let volume = Zvol::open(&objset).await?;
        let mut bytes = vec![0; volume.size() as usize];
        volume.read_at(0, &mut bytes).await?;
        return Ok(bytes);
    }
    let volume = pools::open_volume(pool, name).await?;
    let mut bytes = vec![0; volume.size() as usize];
    volume.read_at(0, &mut bytes).await?;
    Ok(bytes)
}
