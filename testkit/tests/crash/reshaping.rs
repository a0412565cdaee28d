//! Power cuts while a volume gets another block size.
//!
//! # The idea
//! A volume is written in slots, each write stable, while it is copied; now and then the copy is paused and
//! resumed, or a range is trimmed. Clients are held for the exchange and go on after it. At many points of
//! the log the pool is imported as a power cut could have left it: `vol` must hold what was promised, whether
//! it is the old volume or the new one. Then the copy goes on to its end, on some states through a second
//! power cut, and the volume must still hold it.

use std::sync::Arc;

use engine::Result;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::jobs::JobState;
use engine::pool::live::{Layout, LivePool, NewLeaf, NewTop, Swapped, VolumeUsers};
use engine::vdev::Class;
use engine::zvol::LiveZvol;
use futures_util::future::LocalBoxFuture;
use futures_util::lock::Mutex;
use ondisk::vdev_config::PoolState;
use testkit::Rng;
use testkit::crash::{Disk, Player, Recorder};

use super::healing::{SLOT_BYTES, SLOTS, Written, check_all, content};
use super::judge::{Care, verify_blocks, zdb};
use super::support::{self, POOL, new_pool, objset_of};
use super::{fail, pools};

const DISK_BYTES: u64 = 64 << 20;
/// Points at which a story is looked at.
const POINTS: usize = 24;
/// Block sizes before and after.
const SIZES: [(u64, u64); 4] =
    [(8 << 10, 32 << 10), (64 << 10, 16 << 10), (16 << 10, 4 << 10), (4 << 10, 8 << 10)];

/// How much was tried.
#[derive(Debug, Default)]
pub struct Tally {
    stories: usize,
    states: usize,
    second_cuts: usize,
    /// States in which the copy had taken the volume's place.
    swapped: usize,
    /// States in which there was a copy that was not complete.
    copying: usize,
    asked_zdb: usize,
}

/// The client of the volume.
struct Client {
    pool: Arc<LivePool>,
    volume: Mutex<Arc<LiveZvol>>,
}

impl Client {
    async fn of(pool: &Arc<LivePool>) -> std::result::Result<Arc<Self>, String> {
        let id = objset_of(pool, "vol").await.map_err(|error| format!("tank/vol: {error}"))?;
        let volume = pool.volume(id).await.map_err(|error| format!("the volume: {error}"))?;
        Ok(Arc::new(Self { pool: Arc::clone(pool), volume: Mutex::new(volume) }))
    }

    fn may_be_held(self: &Arc<Self>) {
        let users: Arc<dyn VolumeUsers> = Arc::<Self>::clone(self);
        self.pool.set_volume_users(Arc::downgrade(&users));
    }
}

impl VolumeUsers for Client {
    fn exchange<'a>(
        &'a self,
        _: &'a str,
        exchange: LocalBoxFuture<'a, Result<Swapped>>,
    ) -> LocalBoxFuture<'a, Result<Option<Swapped>>> {
        Box::pin(async move {
            let mut held = self.volume.lock().await;
            let swapped = exchange.await?;
            *held = self.pool.volume(objset_of(&self.pool, "vol").await?).await?;
            Ok(Some(swapped))
        })
    }
}

/// What happened.
struct Story {
    recorder: Recorder,
    begin: usize,
    writes: Vec<Written>,
}

async fn write(client: &Client, recorder: &Recorder, writes: &mut Vec<Written>, slot: u64) {
    let version = writes.len() as u64;
    let bytes = content(slot, version);
    let volume = client.volume.lock().await;
    let begun = recorder.position();
    volume.write_at(slot * SLOT_BYTES, &bytes, true).await.unwrap();
    writes.push(Written { slot, version, begun, promised: recorder.position() });
}

/// The states that a copy can be in.
fn is_over(pool: &LivePool) -> bool {
    pool.reshapes().iter().all(|reshape| matches!(reshape.job.state, JobState::Complete | JobState::Canceled))
}

async fn told(seed: u64) -> Story {
    let mut rng = Rng::new(seed ^ 0x5e5a);
    let recorder = Recorder::new(seed);
    let device = recorder.device(pools::device_path(0), Disk::new(DISK_BYTES));
    let leaf = NewLeaf { device, path: pools::device_path(0), is_file: false, whole_disk: false };
    let tops = vec![NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] }];
    let pool = LivePool::create(new_pool(tops, 12), support::surroundings(seed)).await.unwrap();
    pool.start().unwrap();
    let (from, to) = SIZES[seed as usize % SIZES.len()];
    let new = NewDataset {
        name: format!("{POOL}/vol"),
        contents: NewContents::Volume { size: SLOTS * SLOT_BYTES, sparse: true },
        properties: vec![("compression".into(), "off".into()), ("volblocksize".into(), from.to_string())],
    };
    pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
    let client = Client::of(&pool).await.unwrap();
    let mut writes = Vec::new();
    for slot in (0..SLOTS).filter(|_| !rng.once_in(4)) {
        write(&client, &recorder, &mut writes, slot).await;
    }
    let begin = recorder.position();
    pool.reshape("tank/vol", to).await.unwrap();
    for step in 0..40 {
        write(&client, &recorder, &mut writes, rng.below(SLOTS)).await;
        match rng.below(12) {
            0 => pool.pause_reshape("tank/vol").await.unwrap_or_default(),
            1 => pool.resume_reshape("tank/vol").await.unwrap_or_default(),
            2 => pool.change(|_| async { Ok(()) }).await.unwrap(),
            _ if step == 20 => client.may_be_held(),
            _ => {}
        }
    }
    client.may_be_held();
    while !is_over(&pool) {
        let _ = pool.resume_reshape("tank/vol").await;
        write(&client, &recorder, &mut writes, rng.below(SLOTS)).await;
    }
    for _ in 0..6 {
        write(&client, &recorder, &mut writes, rng.below(SLOTS)).await;
    }
    let kept = pool.reshapes().remove(0).kept;
    assert!(kept.is_some(), "the copy is complete");
    drop(client);
    pool.close(PoolState::Exported).await.unwrap();
    Story { recorder, begin, writes }
}

/// Imports what a power cut at `point` left, and has the copy go on to its end. Returns what was recorded
/// meanwhile.
fn judge(
    writes: &[Written],
    point: usize,
    disks: Vec<Disk>,
    seed: u64,
    tally: &mut Tally,
) -> std::result::Result<Recorder, String> {
    let recorder = Recorder::new(seed);
    device::block_on(async {
        let pool = pools::import(&recorder, disks, &[], seed).await?;
        let client = Client::of(&pool).await?;
        let volume = client.volume.lock().await.clone();
        check_all(writes, point, &volume).await.map_err(|error| format!("after the import: {error}"))?;
        drop(volume);
        pool.start().map_err(|error| format!("start: {error}"))?;
        match pool.reshapes().first() {
            Some(_) => tally.copying += 1,
            None => {
                let kept = engine::dsl::Dsl::open(&pool.view()).await.map_err(|error| error.to_string())?;
                let names =
                    kept.list(None, engine::dsl::Walk::HEADS).await.map_err(|error| error.to_string())?;
                tally.swapped +=
                    usize::from(names.iter().any(|entry| entry.name().contains(".volblocksize-")));
            }
        }
        client.may_be_held();
        let _ = pool.resume_reshape("tank/vol").await;
        pool.wait_for_jobs(|_, state| state == JobState::Active).await;
        if !is_over(&pool) {
            return Err(format!("the copy does not go on: {:?}", pool.reshapes()));
        }
        let volume = client.volume.lock().await.clone();
        check_all(writes, point, &volume).await.map_err(|error| format!("at the end: {error}"))?;
        drop(volume);
        drop(client);
        pool.close(PoolState::Exported).await.map_err(|error| format!("export: {error}"))
    })?;
    Ok(recorder)
}

/// Tells a story, and looks at what power cuts leave of it.
pub fn tell(seed: u64, tally: &mut Tally, is_over: &impl Fn() -> bool) {
    let Story { recorder, begin, writes } = device::block_on(told(seed));
    tally.stories += 1;
    let mut rng = Rng::new(seed);
    let mut player = Player::new(&recorder);
    let events = player.end() - begin;
    for number in 0..POINTS {
        let point = begin + events * number / POINTS + rng.index((events / POINTS).max(1));
        player.advance(point);
        let of_state = rng.next_u64();
        let mut dice = Rng::new(of_state);
        let disks = player.disks_after_power_cut(&mut dice);
        let where_from = format!("reshape, CENOTE_CRASH_SEED={seed}, point {point}, state {of_state}");
        tally.states += 1;
        let recorded = judge(&writes, point, disks.clone(), of_state, tally);
        let recorded = recorded.unwrap_or_else(|error| fail(&disks, &where_from, &error));
        if dice.once_in(3) {
            let after = recorded.disks();
            let asks_zdb = dice.once_in(6);
            tally.asked_zdb += usize::from(asks_zdb);
            let verified = if asks_zdb { zdb(&after, &[]) } else { Ok(()) };
            let verified = verified.and_then(|()| verify_blocks(after.clone(), of_state, &Care::default()));
            verified.unwrap_or_else(|error| fail(&after, &where_from, &error));
        }
        if dice.once_in(2) {
            let mut again = Player::new(&recorded);
            let cut = dice.index(again.end() + 1);
            again.advance(cut);
            let disks = again.disks_after_power_cut(&mut dice);
            tally.second_cuts += 1;
            let where_from = format!("{where_from}, cut again at {cut}");
            let judged = judge(&writes, point, disks.clone(), of_state ^ 2, tally);
            judged.map(drop).unwrap_or_else(|error| fail(&disks, &where_from, &error));
        }
        if is_over() {
            return;
        }
    }
}
