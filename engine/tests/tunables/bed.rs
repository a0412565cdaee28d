//! A pool with a volume, and the right to set tunables, which tests take in turn.

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use device::{IgnorePoison, block_on};
use engine::cache::ArcCache;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::dsl::with_room;
use engine::events::Events;
use engine::pool::import::ImportOptions;
use engine::pool::live::{Layout, LivePool, NewPool, ScrubRange, Surroundings};
use engine::pool::status::Progress;
use engine::tunables::{self, Tunable};
use engine::txg::Limits;
use engine::vdev::stats::Transfer;
use engine::vdev::{Class, Vdev};
use engine::zvol::LiveZvol;
use ondisk::Txg;
use ondisk::vdev_config::PoolState;

use crate::support::{Disks, full, new_pool, objset_of, surroundings};

pub const MIB: u64 = 1 << 20;

static TURN: Mutex<()> = Mutex::new(());

/// The right to set tunables. At its end all have their defaults.
pub struct Turn(#[allow(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

impl Turn {
    pub fn take() -> Self {
        Self(TURN.lock().ignore_poison())
    }

    pub fn set(&self, tunable: &Tunable, value: u64) {
        tunable.set(value).unwrap();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        tunables::all().iter().for_each(|tunable| tunable.reset());
    }
}

/// A pool with a volume, whose groups are only committed when something asks for it.
pub struct Bed {
    pub disks: Disks,
    pub pool: Arc<LivePool>,
    pub volume: Arc<LiveZvol>,
}

impl Bed {
    pub fn new() -> Self {
        Self::on(256 * MIB)
    }

    /// On a device of this size.
    pub fn on(bytes: u64) -> Self {
        let disks = Disks::new(bytes);
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        Self::of(disks, new)
    }

    /// Of a pool like this.
    pub fn of(disks: Disks, new: NewPool) -> Self {
        let pool = block_on(LivePool::create(new, lazy())).unwrap();
        pool.start().unwrap();
        let contents = NewContents::Volume { size: 64 * MIB, sparse: true };
        let properties = vec![("volblocksize".into(), "8K".into()), ("compression".into(), "off".into())];
        let new = NewDataset { name: full("vol"), contents, properties };
        block_on(pool.change(move |s| async move { edit::create(&s, &new).await })).unwrap();
        let volume = block_on(async { pool.volume(objset_of(&pool, "vol").await.unwrap()).await.unwrap() });
        Self { disks, pool, volume }
    }

    pub fn write(&self, at: u64, bytes: u64) {
        let data: Vec<u8> = (0..bytes).map(|byte| (byte * 7 + at) as u8 | 1).collect();
        block_on(with_room(self.pool.txgs(), || self.volume.write_at(at, &data, false))).unwrap();
    }

    /// Fills a block of 8 KiB with a number.
    pub fn write_word(&self, at: u64, word: u64) {
        let data = word.to_le_bytes().repeat(1024);
        block_on(with_room(self.pool.txgs(), || self.volume.write_at(at, &data, false))).unwrap();
    }

    pub fn commit(&self) {
        block_on(self.pool.txgs().wait_synced(self.pool.txgs().open_txg())).unwrap();
    }

    pub fn synced(&self) -> Txg {
        self.pool.view().uberblock().txg
    }

    /// Whether a group is committed within this time.
    pub fn commits_within(&self, patience: Duration) -> bool {
        let (before, until) = (self.synced(), Instant::now() + patience);
        while self.synced() == before && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.synced() != before
    }

    /// Bytes and number of reads of the devices.
    pub fn reads(&self, transfer: Transfer) -> (u64, u64) {
        let leaves = self.pool.pool().vdevs().leaves();
        let snapshots = leaves.map(|leaf| leaf.stats.snapshot(transfer));
        snapshots.fold((0, 0), |(bytes, count), of| (bytes + of.bytes, count + of.operations))
    }

    pub fn scrub(&self) -> u64 {
        let before = self.reads(Transfer::Scrub).1;
        block_on(self.pool.scrub(ScrubRange::default())).unwrap();
        self.wait_for_scan(Duration::from_secs(60));
        self.reads(Transfer::Scrub).1 - before
    }

    /// Groups that are committed for a scrub.
    pub fn groups_of_a_scrub(&self) -> u64 {
        let before = self.synced().get();
        self.scrub();
        self.synced().get() - before
    }

    pub fn wait_for_scan(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let runs = || self.pool.scan_status().is_none_or(|scan| scan.state == Progress::Running);
        while runs() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        !runs()
    }

    /// The pool after an export and an import, with nothing in memory.
    pub fn again(self) -> Self {
        Self::opened(self.close())
    }

    fn opened(disks: Disks) -> Self {
        let found = block_on(disks.found("tank"));
        let options = ImportOptions { force: true, ..ImportOptions::default() };
        let pool = block_on(LivePool::import(&found, &options, lazy())).unwrap();
        pool.start().unwrap();
        let volume = block_on(async { pool.volume(objset_of(&pool, "vol").await.unwrap()).await.unwrap() });
        Self { disks, pool, volume }
    }

    /// The pool after damage to the first file, given the file and what is in it.
    pub fn damaged(self, damage: impl FnOnce(&File, &[u8])) -> Self {
        self.commit();
        let disks = self.close();
        let path = disks.file("d0");
        let file = File::options().write(true).open(&path).unwrap();
        damage(&file, &std::fs::read(&path).unwrap());
        Self::opened(disks)
    }

    /// A leaf.
    pub fn leaf(&self, index: usize) -> &Vdev {
        self.pool.pool().vdevs().leaves().nth(index).unwrap()
    }

    /// What happens to the pool from now on.
    pub fn events(&self) -> Arc<Events> {
        let events = Arc::new(Events::default());
        self.pool.pool().vdevs().reporter().attach(&events);
        events
    }

    fn close(self) -> Disks {
        let Self { disks, pool, volume } = self;
        drop(volume);
        block_on(pool.close(PoolState::Exported)).unwrap();
        disks
    }

    pub fn end(self) {
        drop(self.close());
    }

    /// Ends it; `zdb` finds all blocks and no space without an owner.
    pub fn judged(self) {
        self.close().judge("tank");
    }
}

/// Surroundings in which a group is only committed when something asks for it.
pub fn lazy() -> Surroundings {
    let limits = Limits { timeout: Duration::from_secs(3600), ..Limits::default() };
    let cache = Some(Arc::new(ArcCache::new(64 << 20)));
    Surroundings { limits, cache, ..surroundings(1) }
}

/// The number of events of a class.
pub fn count(events: &Events, class: &str) -> usize {
    events.since(0).events.iter().filter(|event| event.class == class).count()
}
