//! A run: clients that write to volumes, an administrator who changes the tree of datasets, groups that are
//! committed, a device that dies; all recorded.
//!
//! Everything happens on one thread, in turns that follow from the seed.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use engine::dsl::edit;
use engine::pool::live::LivePool;
use engine::zil::SyncMode;
use engine::zvol::LiveZvol;
use testkit::Rng;
use testkit::crash::{Recorder, SECTOR_BYTES, Step, Volume};
use testkit::tree::Tree;

use super::administrator::{Asked, Deed, OWN, OWN_SECTORS, administrator};
use super::contents::Contents;
use super::ivs::Ivs;
use super::keys::{self, Root};
use super::logs::{Logs, Moves};
use super::pools::{self, Created, Kind};
use super::support::POOL;

/// Volumes of a run, and for each the sectors that its clients have to themselves.
const VOLUMES: &[(&str, u64, &[u64])] = &[("a", 8192, &[96, 64]), ("b", 16384, &[96])];
/// Sectors at the end of these that no client uses: they are written when a pool goes on after a power cut.
pub const SPARE_SECTORS: u64 = 16;

/// Part of a volume that one client writes.
pub struct Lane {
    pub volume: &'static str,
    pub first_sector: u64,
    pub model: Volume,
    /// Steps that were answered.
    answered: usize,
}

/// All that was done.
pub struct History {
    pub recorder: Recorder,
    pub lanes: Vec<Lane>,
    /// The tree at the beginning, and what was done to it, in order.
    pub tree: Tree<Contents>,
    pub deeds: Vec<Asked>,
    /// The device that died, and when.
    pub died: Option<(usize, usize)>,
    /// Log vdevs that were taken away and given back.
    pub moves: Moves,
    /// From this point on there are a pool and its volumes.
    pub begin: usize,
    pub seed: u64,
    pub kind: &'static Kind,
    /// What was used to encrypt, also in what became of the run.
    pub ivs: Ivs,
}

impl History {
    /// The numbers of the keys that may open an encryption root after a cut at `point`: the last that was
    /// answered, and the next if it was begun.
    pub fn keys(&self, root: Root, point: usize) -> Vec<u64> {
        let mut numbers = vec![0];
        for asked in self.deeds.iter().filter(|asked| asked.begun_at <= point) {
            if let Deed::ChangeKey(of, number) = asked.deed
                && of == root
            {
                if asked.done_at.is_some_and(|at| at <= point) {
                    numbers.clear();
                }
                numbers.push(number);
            }
        }
        numbers
    }

    /// The tree that the last answered deed left, and the one that the next would leave, if it was begun
    /// before `point`.
    pub fn trees(&self, point: usize) -> (&Tree<Contents>, Option<&Asked>) {
        let done = self.deeds.iter().take_while(|asked| asked.done_at.is_some_and(|at| at <= point)).count();
        let tree =
            done.checked_sub(1).and_then(|last| self.deeds.get(last)).map_or(&self.tree, |asked| &asked.tree);
        (tree, self.deeds.get(done).filter(|asked| asked.begun_at <= point))
    }
}

impl History {
    /// Most entries that were pruned from dedup tables up to `point`.
    pub fn pruned(&self, point: usize) -> u64 {
        let begun = self.deeds.iter().filter(|asked| asked.begun_at <= point);
        begun.map(|asked| asked.pruned).sum()
    }
}

/// What the parties of a run share.
pub struct Shared {
    pub recorder: Recorder,
    pub deeds: RefCell<Vec<Asked>>,
    pub logs: Logs,
    /// Parties that change the pool and are not done yet.
    pub changers: Cell<usize>,
    lanes: RefCell<Vec<Lane>>,
    clients: Cell<usize>,
    died: Cell<Option<(usize, usize)>>,
    trouble: RefCell<Option<String>>,
}

impl Shared {
    /// Steps of each lane that were answered.
    pub fn answered(&self) -> Vec<usize> {
        self.lanes.borrow().iter().map(|lane| lane.answered).collect()
    }

    /// Steps of each lane that were begun.
    pub fn begun(&self) -> Vec<usize> {
        self.lanes.borrow().iter().map(|lane| lane.model.steps()).collect()
    }

    /// Something failed that must not: the run is over.
    pub fn trouble(&self, what: String) {
        self.trouble.borrow_mut().get_or_insert(what);
    }

    fn is_over(&self) -> bool {
        self.clients.get() == 0 || self.trouble.borrow().is_some()
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

type Party<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Makes a pool and runs `steps` steps on each lane.
pub fn run(seed: u64, kind: &'static Kind, steps: usize) -> History {
    pools::run(async move {
        let recorder = Recorder::new(seed);
        let mut rng = Rng::new(seed);
        let ashift = *rng.pick(&[9, 12, 12, 13]).unwrap_or(&12);
        let Created { pool, more, logs, ivs } = pools::create(&recorder, kind, ashift, seed).await;
        create_volumes(&pool, kind).await;
        let mut lanes = Vec::new();
        for (volume, _, parts) in VOLUMES {
            let mut first_sector = 0;
            for sectors in *parts {
                let model = Volume::new(lanes.len() as u64 + 1, *sectors);
                lanes.push(Lane { volume, first_sector, model, answered: 0 });
                first_sector += sectors;
            }
        }
        let live = VOLUMES.iter().map(|(name, ..)| ((*name).to_owned(), Contents::Live(name)));
        let tree = Tree::new(live.chain([(OWN.to_owned(), Contents::Filled(0))]));
        let begin = recorder.position();
        let shared = Shared {
            recorder: recorder.clone(),
            deeds: RefCell::default(),
            logs,
            changers: Cell::new(2),
            clients: Cell::new(lanes.len()),
            lanes: RefCell::new(lanes),
            died: Cell::new(None),
            trouble: RefCell::new(None),
        };
        let mut volumes = Vec::new();
        for (name, ..) in VOLUMES {
            let volume = pools::open_volume(&pool, name).await.unwrap();
            let mode = match rng.below(6) {
                0 | 1 => SyncMode::Always,
                2 => SyncMode::Disabled,
                _ => SyncMode::Standard,
            };
            volume.zil().set_sync_mode(mode);
            volumes.push((*name, volume, mode));
        }
        let mut parties: Vec<Party<'_>> = Vec::new();
        for index in 0..shared.lanes.borrow().len() {
            let name = shared.lanes.borrow()[index].volume;
            let (_, volume, mode) = volumes.iter().find(|(of, ..)| *of == name).expect("opened above");
            let rng = Rng::new(rng.next_u64());
            parties.push(Box::pin(client(&shared, index, Arc::clone(volume), *mode, rng, steps)));
        }
        parties.push(Box::pin(committer(&shared, &pool, Rng::new(rng.next_u64()))));
        let more = Some((more, ashift));
        parties.push(Box::pin(administrator(
            &shared,
            &pool,
            tree.clone(),
            more,
            kind,
            Rng::new(rng.next_u64()),
        )));
        parties.push(Box::pin(move_logs(&shared, &pool, Rng::new(rng.next_u64()))));
        if kind.spare_devices() > 0 && rng.once_in(3) {
            parties.push(Box::pin(death(&shared, kind, Rng::new(rng.next_u64()))));
        }
        all(parties).await;
        let Shared { lanes, deeds, logs, died, trouble, .. } = shared;
        if let Some(trouble) = trouble.into_inner() {
            panic!("{}, CENOTE_CRASH_SEED={seed}: {trouble}", kind.name);
        }
        let (lanes, deeds, died) = (lanes.into_inner(), deeds.into_inner(), died.get());
        History { recorder, lanes, tree, deeds, died, moves: logs.into_moves(), begin, seed, kind, ivs }
    })
}

/// In an encrypted pool the first volume inherits the key of the root, the second is plain, and that of the
/// administrator has a key of its own.
async fn create_volumes(pool: &Arc<LivePool>, kind: &Kind) {
    let of_clients = VOLUMES
        .iter()
        .map(|(name, block_size, parts)| (*name, *block_size, parts.iter().sum::<u64>() + SPARE_SECTORS));
    for (name, block_size, sectors) in of_clients.chain([(OWN, 16384, OWN_SECTORS)]) {
        let (encryption, key) = match (kind.encryption, name) {
            (Some(suite), OWN) => (keys::properties(suite), Some(Root::Own.key(0, &**pool.env()))),
            (Some(_), "b") => (vec![("encryption".into(), "off".into())], None),
            _ => (Vec::new(), None),
        };
        let mut new = edit::NewDataset {
            name: format!("{POOL}/{name}"),
            contents: edit::NewContents::Volume { size: sectors * SECTOR_BYTES as u64, sparse: true },
            properties: vec![
                ("volblocksize".into(), block_size.to_string()),
                // The log of one of them has pointers, that of the others data.
                ("logbias".into(), if name == "b" { "throughput" } else { "latency" }.into()),
            ],
        };
        new.properties.extend(encryption);
        let create = pool.change(|s| async move { edit::create_with_key(&s, &new, key.as_ref()).await });
        create.await.unwrap();
    }
}

/// Polls all of them each time, in their order, until all are done.
pub async fn all(mut parties: Vec<Party<'_>>) {
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

/// Lets others go first for some turns, or until the clients are done: then true.
pub async fn wait_or_end(shared: &Shared, count: u64) -> bool {
    let mut wait = pin!(turns(count));
    poll_fn(|context| match shared.is_over() {
        true => Poll::Ready(true),
        false => wait.as_mut().poll(context).map(|()| false),
    })
    .await
}

async fn client(
    shared: &Shared,
    index: usize,
    volume: Arc<LiveZvol>,
    mode: SyncMode,
    mut rng: Rng,
    steps: usize,
) {
    for _ in 0..steps {
        if shared.is_over() {
            break;
        }
        if let Err(error) = step(shared, index, &volume, mode, &mut rng).await {
            shared.trouble(format!("client {index}: {error}"));
        }
        if rng.once_in(4) {
            turns(rng.below(20)).await;
        }
    }
    shared.clients.set(shared.clients.get() - 1);
}

async fn step(
    shared: &Shared,
    index: usize,
    volume: &LiveZvol,
    mode: SyncMode,
    rng: &mut Rng,
) -> Result<(), engine::Error> {
    let (name, base, size) = {
        let lane = &shared.lanes.borrow()[index];
        (lane.volume, lane.first_sector, lane.model.sectors())
    };
    if rng.once_in(6) {
        let answered = shared.answered();
        volume.flush().await?;
        if mode != SyncMode::Disabled {
            shared.promise(&answered, Some(name));
        }
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
    let zero = rng.once_in(6);
    // A trim gives back whole blocks only; the rest stays as it is.
    let unit = volume.block_size() / SECTOR_BYTES as u64;
    let (from, until) = ((base + first).next_multiple_of(unit), (base + first + sectors) / unit * unit);
    let trim = zero && from < until && rng.once_in(2);
    let step = match (zero, trim) {
        (false, _) => Step::Write { first, sectors },
        (true, false) => Step::Zero { first, sectors },
        (true, true) => Step::Zero { first: from - base, sectors: until - from },
    };
    let (number, bytes) = {
        let lane = &mut shared.lanes.borrow_mut()[index];
        let bytes = lane.model.begin(step, shared.recorder.position());
        (lane.model.steps(), bytes)
    };
    let (offset, length) = ((base + first) * SECTOR_BYTES as u64, sectors * SECTOR_BYTES as u64);
    match step {
        Step::Write { .. } => volume.write_at(offset, &bytes, stable).await?,
        Step::Zero { .. } if trim => volume.trim(offset, length, stable).await?,
        Step::Zero { .. } => volume.write_zeroes(offset, length, rng.once_in(3), stable).await?,
    }
    shared.lanes.borrow_mut()[index].answered = number;
    let promised = match mode {
        SyncMode::Standard => stable,
        SyncMode::Always => true,
        SyncMode::Disabled => false,
    };
    if promised {
        let now = shared.recorder.position();
        shared.lanes.borrow_mut()[index].model.promise(number, now);
    }
    Ok(())
}

/// Commits groups now and then, and whenever no other task can go on.
async fn committer(shared: &Shared, pool: &Arc<LivePool>, mut rng: Rng) {
    while shared.clients.get() > 0 || shared.changers.get() > 0 {
        turns(20 + rng.below(300)).await;
        let answered = shared.answered();
        match pool.sync().await {
            Ok(_) => shared.promise(&answered, None),
            Err(error) => return shared.trouble(format!("sync: {error}")),
        }
        pools::feed(pool).await;
    }
}

/// Takes log devices away and gives them back until the clients are done.
async fn move_logs(shared: &Shared, pool: &Arc<LivePool>, mut rng: Rng) {
    let dead = || shared.died.get().map(|(device, _)| device);
    let moved = shared.logs.come_and_go(pool, &shared.recorder, &mut rng, &|| shared.is_over(), &dead).await;
    if let Err(error) = moved {
        shared.trouble(error);
    }
    shared.changers.set(shared.changers.get() - 1);
}

/// A device dies that the pool can do without.
async fn death(shared: &Shared, kind: &Kind, mut rng: Rng) {
    if wait_or_end(shared, rng.below(6000)).await {
        return;
    }
    let device = kind.expendable(&mut rng, 1).pop();
    if let Some(device) = device.filter(|device| shared.logs.counts_on(*device)) {
        shared.died.set(Some((device, shared.recorder.position())));
        shared.recorder.kill(device);
    }
}
