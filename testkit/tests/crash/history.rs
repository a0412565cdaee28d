//! A run: clients that write to volumes, somebody who takes snapshots, groups that are committed; all recorded.
//!
//! Everything happens on one thread, in turns that follow from the seed.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use engine::dataset::dsl::edit;
use engine::dataset::zvol::LiveZvol;
use engine::pool::live::LivePool;
use testkit::Rng;
use testkit::crash::{Recorder, SECTOR_BYTES, Step, Volume};

use super::pools::{self, POOL, Topology};

/// Volumes of a run, and for each the sectors that its clients have to themselves.
const VOLUMES: &[(&str, u64, &[u64])] = &[("a", 8192, &[160, 96]), ("b", 16384, &[128])];

/// Part of a volume that one client writes.
pub struct Lane {
    pub volume: &'static str,
    pub first_sector: u64,
    pub model: Volume,
    /// Steps that were answered.
    answered: usize,
}

/// A snapshot that was asked for.
pub struct Taken {
    pub name: String,
    pub volume: &'static str,
    pub begun_at: usize,
    /// When it was answered.
    pub taken_at: Option<usize>,
    /// For each lane: steps that it must hold, and steps that it may.
    pub bounds: Vec<(usize, usize)>,
}

/// All that was done.
pub struct History {
    pub recorder: Recorder,
    pub lanes: Vec<Lane>,
    pub snapshots: Vec<Taken>,
    /// From this point on there are a pool and its volumes.
    pub begin: usize,
    pub seed: u64,
}

/// What the parties of a run share.
struct Shared {
    recorder: Recorder,
    lanes: RefCell<Vec<Lane>>,
    snapshots: RefCell<Vec<Taken>>,
    clients: Cell<usize>,
    trouble: RefCell<Option<String>>,
}

impl Shared {
    fn answered(&self) -> Vec<usize> {
        self.lanes.borrow().iter().map(|lane| lane.answered).collect()
    }

    /// Steps of all lanes of `volume` (or all) up to `counts` are promised from now on.
    fn promise(&self, counts: &[usize], volume: Option<&str>) {
        let now = self.recorder.position();
        for (lane, count) in self.lanes.borrow_mut().iter_mut().zip(counts) {
            if volume.is_none_or(|volume| volume == lane.volume) {
                lane.model.promise(*count, now);
            }
        }
    }
}

/// Makes a pool and runs `steps` steps on each lane.
pub fn run(seed: u64, topology: Topology, steps: usize) -> History {
    device::block_on(async move {
        let recorder = Recorder::new(seed);
        let mut rng = Rng::new(seed);
        let ashift = if rng.once_in(2) { 9 } else { 12 };
        let pool = pools::create(&recorder, topology, ashift, seed).await;
        create_volumes(&pool).await;
        let mut lanes = Vec::new();
        for (volume, _, parts) in VOLUMES {
            let mut first_sector = 0;
            for sectors in *parts {
                let model = Volume::new(lanes.len() as u64 + 1, *sectors);
                lanes.push(Lane { volume, first_sector, model, answered: 0 });
                first_sector += sectors;
            }
        }
        let begin = recorder.position();
        let shared = Shared {
            recorder: recorder.clone(),
            clients: Cell::new(lanes.len()),
            lanes: RefCell::new(lanes),
            snapshots: RefCell::new(Vec::new()),
            trouble: RefCell::new(None),
        };
        let mut volumes = Vec::new();
        for (name, ..) in VOLUMES {
            volumes.push((*name, pools::volume(&pool, name).await.unwrap()));
        }
        let mut parties: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
        for index in 0..shared.lanes.borrow().len() {
            let name = shared.lanes.borrow()[index].volume;
            let volume = volumes.iter().find(|(of, _)| *of == name).map(|(_, volume)| Arc::clone(volume));
            let volume = volume.expect("opened above");
            let rng = Rng::new(rng.next_u64());
            parties.push(Box::pin(client(&shared, index, volume, rng, steps)));
        }
        parties.push(Box::pin(committer(&shared, &pool, Rng::new(rng.next_u64()))));
        parties.push(Box::pin(photographer(&shared, &pool, Rng::new(rng.next_u64()))));
        all(parties).await;
        let Shared { lanes, snapshots, trouble, .. } = shared;
        if let Some(trouble) = trouble.into_inner() {
            panic!("seed {seed}: {trouble}");
        }
        let (lanes, snapshots) = (lanes.into_inner(), snapshots.into_inner());
        History { recorder, lanes, snapshots, begin, seed }
    })
}

async fn create_volumes(pool: &Arc<LivePool>) {
    for (name, block_size, parts) in VOLUMES {
        let size = parts.iter().sum::<u64>() * SECTOR_BYTES as u64;
        let new = edit::NewDataset {
            name: format!("{POOL}/{name}"),
            contents: edit::NewContents::Volume { size, sparse: true },
            properties: vec![("volblocksize".into(), block_size.to_string())],
        };
        pool.change(|s| async move { edit::create(&s, &new).await }).await.unwrap();
    }
}

/// Polls all of them each time, in their order, until all are done.
async fn all(mut parties: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + '_>>>) {
    poll_fn(|context| {
        parties.retain_mut(|party| party.as_mut().poll(context).is_pending());
        if parties.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Lets others go first for some turns.
pub async fn turns(mut count: u64) {
    poll_fn(|context| {
        if count == 0 {
            return Poll::Ready(());
        }
        count -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn client(shared: &Shared, index: usize, volume: Arc<LiveZvol>, mut rng: Rng, steps: usize) {
    for _ in 0..steps {
        if shared.trouble.borrow().is_some() {
            break;
        }
        if let Err(error) = step(shared, index, &volume, &mut rng).await {
            shared.trouble.borrow_mut().get_or_insert(format!("client {index}: {error}"));
        }
        if rng.once_in(4) {
            turns(rng.below(20)).await;
        }
    }
    shared.clients.set(shared.clients.get() - 1);
}

async fn step(shared: &Shared, index: usize, volume: &LiveZvol, rng: &mut Rng) -> Result<(), engine::Error> {
    let (name, base, size) = {
        let lane = &shared.lanes.borrow()[index];
        (lane.volume, lane.first_sector, lane.model.sectors())
    };
    if rng.once_in(6) {
        let answered = shared.answered();
        volume.flush().await?;
        shared.promise(&answered, Some(name));
        return Ok(());
    }
    let sectors = match rng.below(8) {
        0 => 1 + rng.below(size),
        1..=2 => 1 + rng.below(16),
        _ => 1 + rng.below(3),
    };
    let sectors = sectors.min(size);
    let first = rng.below(size - sectors + 1);
    let stable = rng.once_in(3);
    let zero = rng.once_in(8);
    let step = if zero { Step::Zero { first, sectors } } else { Step::Write { first, sectors } };
    let (number, bytes) = {
        let lane = &mut shared.lanes.borrow_mut()[index];
        let bytes = lane.model.begin(step, shared.recorder.position());
        (lane.model.steps(), bytes)
    };
    let offset = (base + first) * SECTOR_BYTES as u64;
    match step {
        Step::Write { .. } => volume.write_at(offset, &bytes, stable).await?,
        Step::Zero { .. } => {
            volume.write_zeroes(offset, sectors * SECTOR_BYTES as u64, false, stable).await?;
        }
    }
    shared.lanes.borrow_mut()[index].answered = number;
    if stable {
        let now = shared.recorder.position();
        shared.lanes.borrow_mut()[index].model.promise(number, now);
    }
    Ok(())
}

/// Commits groups now and then, and whenever nobody else can go on.
async fn committer(shared: &Shared, pool: &Arc<LivePool>, mut rng: Rng) {
    while shared.clients.get() > 0 {
        turns(20 + rng.below(300)).await;
        let answered = shared.answered();
        match pool.sync().await {
            Ok(_) => shared.promise(&answered, None),
            Err(error) => {
                shared.trouble.borrow_mut().get_or_insert(format!("sync: {error}"));
                return;
            }
        }
    }
}

/// Takes a snapshot now and then.
async fn photographer(shared: &Shared, pool: &Arc<LivePool>, mut rng: Rng) {
    for number in 0.. {
        let mut wait = pin!(turns(200 + rng.below(1500)));
        let mut over = false;
        poll_fn(|context| {
            over = shared.clients.get() == 0;
            if over { Poll::Ready(()) } else { wait.as_mut().poll(context) }
        })
        .await;
        if over || shared.trouble.borrow().is_some() {
            return;
        }
        let Some((volume, ..)) = rng.pick(VOLUMES).copied() else { return };
        let name = format!("s{number}");
        let least = shared.answered();
        let begun_at = shared.recorder.position();
        shared.snapshots.borrow_mut().push(Taken {
            name: name.clone(),
            volume,
            begun_at,
            taken_at: None,
            bounds: Vec::new(),
        });
        let new = vec![edit::NewSnapshot { name: format!("{POOL}/{volume}@{name}"), properties: Vec::new() }];
        let taken = pool.change(|s| async move { edit::snapshot(&s, &new).await }).await;
        let most: Vec<usize> = shared.lanes.borrow().iter().map(|lane| lane.model.steps()).collect();
        if let Some(snapshot) = shared.snapshots.borrow_mut().last_mut() {
            snapshot.bounds = least.into_iter().zip(most).collect();
            snapshot.taken_at = Some(shared.recorder.position());
        }
        if let Err(error) = taken {
            shared.trouble.borrow_mut().get_or_insert(format!("snapshot: {error}"));
            return;
        }
    }
}
