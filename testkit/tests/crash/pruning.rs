//! Power cuts while clones are made beside groups that prune dedup tables.
//!
//! # The idea
//! A file lies in a pool with dedup. Its entries are pruned part by part, each time by a group that is
//! written while a client clones ranges of the file, makes some of the clones stable through the intent log,
//! and cuts holes into the file. The turns of all of them follow from the seed, so that a clone is looked up,
//! logged and counted at any moment between two writes of a group that prunes.
//!
//! After a cut the pool is imported, which replays the log, and one group is written. Then
//!
//! - each block of each file holds what it may: its bytes, or zeroes where the write is not promised or a
//!   hole is cut;
//! - no block reference table counts a clone, because a block without an entry is copied;
//! - entries count as many references as a walk over all blocks finds, and all space has an owner.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use engine::pool::live::{LivePool, Prune};
use engine::zpl::LiveZpl;
use engine::zpl::live::WriteOptions;
use ondisk::ObjectId;
use ondisk::features::Feature;
use testkit::Rng;
use testkit::crash::{Disk, Player, Recorder, SECTOR_BYTES};

use super::contents::fill;
use super::filesystem::{FILE, open};
use super::history::{all, turns};
use super::judge::{Care, verify_blocks};
use super::pools::{self, KINDS};
use super::{fail, support};

const BLOCK_BYTES: u64 = 4096;
/// Blocks of the file that is cloned.
const BLOCKS: u64 = 60;
/// Prunes of a story, and clones.
const PRUNES: usize = 5;
const CLONES: usize = 12;
/// Points at which a story is looked at, if there is not time for all.
const POINTS: usize = 60;
/// Groups after which no entry is in a log.
const GROUPS: usize = 40;

/// How much was tried.
#[derive(Debug, Default)]
pub struct Tally {
    stories: usize,
    states: usize,
    /// States in the middle of a group that prunes.
    pruning: usize,
    /// Clones that were made meanwhile.
    cloned_meanwhile: usize,
    /// Entries that were pruned in all stories.
    pruned: u64,
}

/// When something happened, as places in the log of the devices.
#[derive(Debug, Clone, Copy)]
struct Span {
    begun: usize,
    answered: Option<usize>,
    promised: Option<usize>,
}

impl Span {
    fn is_begun(&self, point: usize) -> bool {
        self.begun <= point
    }

    fn is_promised(&self, point: usize) -> bool {
        self.promised.is_some_and(|at| at <= point)
    }
}

/// Blocks of a file that were written, or cut out, in one go.
#[derive(Debug, Clone)]
struct Deed {
    file: usize,
    first: u64,
    /// The contents of the blocks; none for holes.
    contents: Option<Vec<u64>>,
    blocks: u64,
    span: Span,
}

/// What the parties of a story share.
struct Shared {
    recorder: Recorder,
    deeds: RefCell<Vec<Deed>>,
    /// When prunes began and were answered, and how many entries they took.
    prunes: RefCell<Vec<(usize, usize, u64)>>,
    is_pruning: Cell<bool>,
    cloned_meanwhile: Cell<usize>,
    /// Parties that are not done.
    parties: Cell<usize>,
}

impl Shared {
    fn begin(&self, file: usize, first: u64, blocks: u64, contents: Option<Vec<u64>>) -> usize {
        let span = Span { begun: self.recorder.position(), answered: None, promised: None };
        let mut deeds = self.deeds.borrow_mut();
        deeds.push(Deed { file, first, contents, blocks, span });
        deeds.len() - 1
    }

    fn answered(&self, deed: usize) {
        self.deeds.borrow_mut()[deed].span.answered = Some(self.recorder.position());
    }

    /// What was answered up to `until`, of this file or of all, is promised from now on.
    fn promise(&self, until: usize, file: Option<usize>) {
        let now = self.recorder.position();
        for deed in self.deeds.borrow_mut().iter_mut() {
            let is_meant = file.is_none_or(|file| file == deed.file);
            if is_meant && deed.span.answered.is_some_and(|at| at <= until) {
                deed.span.promised.get_or_insert(now);
            }
        }
    }
}

/// What happened.
struct Story {
    recorder: Recorder,
    begin: usize,
    deeds: Vec<Deed>,
    prunes: Vec<(usize, usize, u64)>,
    cloned_meanwhile: usize,
}

fn name(file: usize) -> String {
    format!("file{file}")
}

fn bytes_of(content: u64) -> Vec<u8> {
    (0..BLOCK_BYTES / SECTOR_BYTES as u64).flat_map(|sector| fill(content, sector)).collect()
}

async fn create(zpl: &LiveZpl, file: usize) -> ObjectId {
    zpl.create(zpl.zpl().root(), name(file).as_bytes(), &FILE).await.unwrap()
}

fn told(seed: u64) -> Story {
    pools::run(async move {
        let recorder = Recorder::new(seed);
        let mut rng = Rng::new(seed ^ 0x9a7e);
        let kind = KINDS.iter().find(|kind| kind.name == "dedup").unwrap();
        let pool = pools::create(&recorder, kind, 12, seed).await.pool;
        let zpl = open(&pool, false).await.unwrap();
        zpl.set_record_size(BLOCK_BYTES as u32);
        let shared = Shared {
            recorder: recorder.clone(),
            deeds: RefCell::default(),
            prunes: RefCell::default(),
            is_pruning: Cell::new(false),
            cloned_meanwhile: Cell::new(0),
            parties: Cell::new(2),
        };
        let file = create(&zpl, 0).await;
        let written = shared.begin(0, 0, BLOCKS, Some((1..=BLOCKS).collect()));
        let bytes: Vec<u8> = (1..=BLOCKS).flat_map(bytes_of).collect();
        zpl.write(file, 0, &bytes, &WriteOptions::default()).await.unwrap();
        shared.answered(written);
        for _ in 0..GROUPS {
            pool.sync().await.unwrap();
        }
        assert!(!pool.has_logged_dedup());
        shared.promise(recorder.position(), None);
        let begin = recorder.position();
        all(vec![
            Box::pin(prunes(&shared, &pool, Rng::new(rng.next_u64()))),
            Box::pin(clones(&shared, &zpl, file, Rng::new(rng.next_u64()))),
            Box::pin(commits(&shared, &pool, Rng::new(rng.next_u64()))),
        ])
        .await;
        let Shared { deeds, prunes, cloned_meanwhile, .. } = shared;
        let (deeds, prunes) = (deeds.into_inner(), prunes.into_inner());
        Story { recorder, begin, deeds, prunes, cloned_meanwhile: cloned_meanwhile.get() }
    })
}

async fn prunes(shared: &Shared, pool: &Arc<LivePool>, mut rng: Rng) {
    for _ in 0..PRUNES {
        turns(rng.below(60)).await;
        let begun = shared.recorder.position();
        shared.is_pruning.set(true);
        let pruned = pool.prune_dedup(Prune::Percent(20 + rng.below(40))).await.unwrap();
        shared.is_pruning.set(false);
        shared.prunes.borrow_mut().push((begun, shared.recorder.position(), pruned));
    }
    shared.parties.set(shared.parties.get() - 1);
}

async fn clones(shared: &Shared, zpl: &Arc<LiveZpl>, file: ObjectId, mut rng: Rng) {
    for number in 1..=CLONES {
        turns(rng.below(80)).await;
        let to = create(zpl, number).await;
        let first = rng.below(BLOCKS);
        let blocks = 1 + rng.below(BLOCKS - first);
        // What the holes left.
        let contents = (first..first + blocks).map(|block| held(&shared.deeds.borrow(), block)).collect();
        let was_pruning = shared.is_pruning.get();
        let deed = shared.begin(number, 0, blocks, Some(contents));
        let length = blocks * BLOCK_BYTES;
        let copied = zpl.copy_range(file, first * BLOCK_BYTES, to, 0, length).await.unwrap();
        assert_eq!(copied, length);
        shared.answered(deed);
        let meanwhile = usize::from(was_pruning || shared.is_pruning.get());
        shared.cloned_meanwhile.set(shared.cloned_meanwhile.get() + meanwhile);
        if rng.once_in(2) {
            let until = shared.recorder.position();
            zpl.fsync(to).await.unwrap();
            shared.promise(until, Some(number));
        }
        if rng.once_in(3) {
            let (first, blocks) = (rng.below(BLOCKS), 1 + rng.below(4));
            let deed = shared.begin(0, first, blocks.min(BLOCKS - first), None);
            zpl.punch(file, first * BLOCK_BYTES, blocks * BLOCK_BYTES).await.unwrap();
            shared.answered(deed);
        }
    }
    shared.parties.set(shared.parties.get() - 1);
}

/// The content of a block of the file that is cloned; 0 for a hole.
fn held(deeds: &[Deed], block: u64) -> u64 {
    let is_cut = |deed: &&Deed| deed.file == 0 && deed.contents.is_none() && covers(deed, block);
    if deeds.iter().any(|deed| is_cut(&deed)) { 0 } else { block + 1 }
}

fn covers(deed: &Deed, block: u64) -> bool {
    (deed.first..deed.first + deed.blocks).contains(&block)
}

async fn commits(shared: &Shared, pool: &Arc<LivePool>, mut rng: Rng) {
    while shared.parties.get() > 0 {
        turns(rng.below(60)).await;
        let until = shared.recorder.position();
        pool.sync().await.unwrap();
        shared.promise(until, None);
    }
}

/// Whether a block holds what it may.
fn judge_block(deeds: &[Deed], file: usize, block: u64, found: &[u8], point: usize) -> Result<(), String> {
    let of_block = || deeds.iter().filter(|deed| deed.file == file && covers(deed, block));
    let written = of_block().find_map(|deed| {
        let contents = deed.contents.as_ref()?;
        Some((contents[(block - deed.first) as usize], deed.span))
    });
    let cuts = || of_block().filter(|deed| deed.contents.is_none()).map(|deed| deed.span);
    let Some((content, span)) = written else { return Err(format!("block {block} was never written")) };
    let may_be_zero = content == 0 || !span.is_promised(point) || cuts().any(|cut| cut.is_begun(point));
    let may_be_there = span.is_begun(point) && !cuts().any(|cut| cut.is_promised(point));
    let is_zero = found.iter().all(|byte| *byte == 0);
    match (is_zero, found == bytes_of(content)) {
        (true, _) if may_be_zero => Ok(()),
        (_, true) if may_be_there => Ok(()),
        (is_zero, is_there) => Err(format!(
            "block {block} of {}: zero {is_zero}, its bytes {is_there}; written {span:?}, cut {:?}",
            name(file),
            cuts().collect::<Vec<_>>()
        )),
    }
}

async fn judge_files(deeds: &[Deed], zpl: &LiveZpl, point: usize) -> Result<(), String> {
    for file in 0..=CLONES {
        let failed = |error: engine::Error| format!("{}: {error}", name(file));
        let blocks = deeds.iter().filter(|deed| deed.file == file).map(|deed| deed.first + deed.blocks).max();
        let found = zpl.lookup(zpl.zpl().root(), name(file).as_bytes()).await.map_err(failed)?;
        // What is not there, or shorter, reads as zeroes.
        let mut bytes = vec![0; (blocks.unwrap_or(0) * BLOCK_BYTES) as usize];
        if let Some(id) = found {
            zpl.read(id, 0, &mut bytes).await.map_err(failed)?;
        }
        for (block, bytes) in (0..).zip(bytes.chunks_exact(BLOCK_BYTES as usize)) {
            judge_block(deeds, file, block, bytes, point)?;
        }
    }
    Ok(())
}

/// Imports what a power cut at `point` left, and goes on for a group.
fn judge(story: &Story, point: usize, disks: Vec<Disk>, seed: u64) -> Result<(), String> {
    let recorder = Recorder::new(seed);
    pools::run(async {
        let pool = pools::import(&recorder, disks, &[], seed).await?;
        let zpl = open(&pool, false).await.map_err(|error| format!("the filesystem: {error}"))?;
        judge_files(&story.deeds, &zpl, point).await?;
        let made = support::committing(&pool, create(&zpl, CLONES + 1));
        made.await;
        pool.sync().await.map_err(|error| format!("going on: {error}"))?;
        judge_files(&story.deeds, &zpl, point).await.map_err(|error| format!("going on: {error}"))?;
        match pool.feature_count(Feature::BlockCloning) {
            Some(0) => Ok(()),
            count => Err(format!("the block reference table is in use: {count:?}")),
        }
    })?;
    let begun = story.prunes.iter().filter(|(begun, ..)| *begun <= point);
    let pruned = begun.map(|(.., pruned)| pruned).sum();
    verify_blocks(recorder.disks(), seed, &Care { verify: true, pruned, ..Care::default() })
}

/// Tells a story, and looks at what power cuts leave of it: at each point if this is the `only_one`.
pub fn tell(seed: u64, tally: &mut Tally, only_one: bool, is_over: &impl Fn() -> bool) {
    let story = told(seed);
    tally.stories += 1;
    tally.cloned_meanwhile += story.cloned_meanwhile;
    tally.pruned += story.prunes.iter().map(|(.., pruned)| pruned).sum::<u64>();
    let mut rng = Rng::new(seed);
    let mut player = Player::new(&story.recorder);
    let step = if only_one { 1 } else { ((player.end() - story.begin) / POINTS).max(1) };
    let mut point = story.begin + rng.index(step);
    while point <= player.end() {
        player.advance(point);
        let of_state = rng.next_u64();
        let disks = player.disks_after_power_cut(&mut Rng::new(of_state));
        tally.states += 1;
        let is_pruning = story.prunes.iter().any(|(begun, ended, _)| (*begun..*ended).contains(&point));
        tally.pruning += usize::from(is_pruning);
        if let Err(error) = judge(&story, point, disks.clone(), of_state) {
            let seed = format!("CENOTE_CRASH_SECONDS=0 CENOTE_CRASH_SEED={seed}");
            fail(&disks, &format!("prunes and clones, {seed}, point {point}, state {of_state}"), &error);
        }
        if is_over() {
            return;
        }
        point += step;
    }
}
