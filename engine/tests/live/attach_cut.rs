//! Power cuts while devices are attached, detached and replaced: every state is a pool that has everything,
//! and goes on.

use std::path::PathBuf;
use std::sync::Arc;

use device::{Device, MemoryDevice, block_on};
use engine::pool::discovery::{Candidate, FoundPool, group};
use engine::pool::import::ImportOptions;
use engine::pool::live::{Auxiliary, Layout, LivePool, NewLeaf, NewTop, TakeOffline};
use engine::vdev::topology::Purpose;
use engine::vdev::{Class, Kind, Vdev};
use ondisk::{Guid, Txg};
use testkit::Rng;
use testkit::crash::{Disk, Player, Recorder};

use crate::attach::{MIB, commit, holds, pool_of, shape, top, write};
use crate::support::{POOL, surroundings};

/// States that are looked at in each story.
const STATES: usize = 60;
const DISK_BYTES: u64 = 64 * MIB;

/// A pool on devices that record what is written to them.
struct Story {
    recorder: Recorder,
    pool: Arc<LivePool>,
    spare_leaves: Vec<NewLeaf>,
}

impl Story {
    async fn begin(layout: Layout, count: usize, more: usize) -> Self {
        let recorder = Recorder::new(7);
        let leaf = |number: usize| {
            let path = PathBuf::from(format!("/dev/d{number}"));
            let device = recorder.device(&path, Disk::new(DISK_BYTES));
            NewLeaf { device, path, is_file: true, whole_disk: false }
        };
        let leaves = (0..count).map(leaf).collect();
        let spare_leaves = (count..count + more).map(leaf).collect();
        let pool = pool_of(vec![NewTop { layout, class: Class::Normal, leaves }]).await;
        write(&pool, 0).await;
        Self { recorder, pool, spare_leaves }
    }

    fn leaf(&self, number: usize) -> Guid {
        self.vdev(number).guid
    }

    fn vdev(&self, number: usize) -> &Vdev {
        let name = format!("/dev/d{number}");
        let mut leaves = self.pool.pool().vdevs().leaves();
        leaves
            .find(|leaf| leaf.name == name)
            .unwrap_or_else(|| panic!("{name} in {}", shape(top(&self.pool))))
    }

    async fn attach(&mut self, at: usize, purpose: Purpose) {
        let new = self.spare_leaves.remove(0);
        self.pool.attach(self.leaf(at), new, purpose, None).await.unwrap();
    }

    /// A resilver by hand: only of copies.
    async fn copy(&self, from: usize, to: usize) {
        commit(&self.pool).await;
        let device = |number| match &self.vdev(number).kind {
            Kind::Leaf(slot) => slot.device().unwrap(),
            _ => unreachable!(),
        };
        let (source, target) = (device(from), device(to));
        for offset in ((4 * MIB)..DISK_BYTES - MIB).step_by(MIB as usize) {
            let bytes = source.read(offset, MIB as usize).await.unwrap();
            if bytes.iter().any(|byte| *byte != 0) {
                target.write(offset, bytes).await.unwrap();
            }
        }
        target.flush().await.unwrap();
        self.vdev(to).missing_txgs.forget(Txg(0), Txg(u64::MAX));
        commit(&self.pool).await;
    }

    /// Looks at what power cuts since `start` leave.
    async fn judge(&self, start: usize) {
        let mut player = Player::new(&self.recorder);
        let end = player.end();
        assert!(end > start);
        let mut rng = Rng::new(3);
        let step = ((end - start) / STATES).max(1);
        for (number, point) in (start..=end).step_by(step).enumerate() {
            player.advance(point);
            let disks = player.disks_after_power_cut(&mut rng);
            let at = || format!("after {point} of {end} events");
            let pool = import(disks, number as u64).await.unwrap_or_else(|why| panic!("{}: {why}", at()));
            holds(&pool, 1).await;
            // It goes on.
            write(&pool, 1).await;
            holds(&pool, 2).await;
        }
    }
}

async fn import(disks: Vec<Disk>, seed: u64) -> Result<Arc<LivePool>, String> {
    let mut candidates = Vec::new();
    for (number, disk) in disks.into_iter().enumerate() {
        let mut bytes = vec![0; DISK_BYTES as usize];
        disk.read(0, &mut bytes);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_content(format!("/dev/d{number}"), bytes));
        candidates.extend(Candidate::examine(device).await);
    }
    let mut found: Vec<FoundPool> = group(candidates);
    found.retain(|pool| pool.name == POOL);
    let found = found.pop().ok_or("no pool is found")?;
    let options = ImportOptions { force: true, ..ImportOptions::default() };
    LivePool::import(&found, &options, surroundings(seed)).await.map_err(|error| format!("import: {error}"))
}

#[test]
fn a_single_device_becomes_a_mirror_and_another_single_device() {
    block_on(async {
        let mut story = Story::begin(Layout::Single, 1, 1).await;
        let start = story.recorder.position();
        story.attach(0, Purpose::Mirror).await;
        story.judge(start).await;
        story.copy(0, 1).await;
        let start = story.recorder.position();
        story.pool.detach(story.leaf(0)).await.unwrap();
        commit(&story.pool).await;
        story.judge(start).await;
    });
}

#[test]
fn a_device_of_a_mirror_is_replaced() {
    block_on(async {
        let mut story = Story::begin(Layout::Mirror, 2, 1).await;
        let start = story.recorder.position();
        story.attach(0, Purpose::Replace).await;
        story.judge(start).await;
        story.copy(0, 2).await;
        let start = story.recorder.position();
        story.pool.detach_resilvered().await.unwrap();
        assert_eq!(shape(top(&story.pool)), "mirror-0(d2 d1)");
        commit(&story.pool).await;
        story.judge(start).await;
    });
}

#[test]
fn a_spare_comes_and_goes() {
    block_on(async {
        let mut story = Story::begin(Layout::Raidz { nparity: 1 }, 3, 1).await;
        let spares = std::mem::take(&mut story.spare_leaves);
        story.pool.add_auxiliary(Auxiliary::Spares, spares).await.unwrap();
        story.pool.offline(story.leaf(1), TakeOffline::Faulted).await.unwrap();
        let start = story.recorder.position();
        assert!(story.pool.kick_in_spare(story.leaf(1)).await.unwrap().is_some());
        story.judge(start).await;
        let start = story.recorder.position();
        story.pool.detach(story.leaf(3)).await.unwrap();
        commit(&story.pool).await;
        story.judge(start).await;
    });
}
