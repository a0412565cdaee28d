//! What a client was told is stable survives a power cut, whichever protocol told it.
//!
//! # The idea
//! A pool on devices that record what is done to them ([`testkit::crash`]) is given to a daemon, which serves
//! its volumes as always. A client of each protocol writes to a volume of its own, all at the same time, and
//! notes after each answer what it may rely on: after a flush all that was answered before, after a stable
//! write that write too. At many points of the recording the disks are rebuilt as a power cut could have
//! left them, the pool is imported, and each volume is compared with what its client may rely on.
//!
//! The crash tests of `testkit` do the same below the protocols, with more kinds of pools and of trouble.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(unsafe_code, reason = "system calls of a machine's side")]

mod clients;
#[path = "../vhost_user/driver.rs"]
mod driver;
#[allow(dead_code, reason = "parts of it are for others")]
#[path = "../iscsi/harness.rs"]
mod iscsi;
#[path = "../daemon/nbd_client.rs"]
mod nbd;
#[path = "../iscsi/running.rs"]
mod running;
mod served;
#[allow(dead_code, reason = "parts of it are for others")]
#[path = "../../../engine/tests/live/support.rs"]
mod support;

use std::sync::Arc;
use std::thread;

use device::block_on;
use engine::pool::discovery::{Candidate, group};
use engine::pool::import::ImportOptions;
use engine::pool::live::{Layout, LivePool, NewLeaf, NewTop};
use engine::vdev::Class;
use engine::zvol::LiveZvol;
use testkit::Rng;
use testkit::crash::{Disk, Player, Recorder, SECTOR_BYTES, Step, Volume};

use clients::{Client, IscsiInitiator, NbdClient, VirtualMachine};
use served::Served;

const DISK_BYTES: u64 = 64 << 20;
/// Sectors of each volume.
const SECTORS: u64 = 256;
/// Steps of each client.
const STEPS: usize = 120;
/// Points at which the recording is looked at.
const POINTS: usize = 30;

/// The volumes, each with its client.
const VOLUMES: [(&str, ClientOf); 4] = [
    ("nbd", |served| Box::new(NbdClient::new(served))),
    ("iscsi", |served| Box::new(IscsiInitiator::new(served))),
    ("machine", |served| Box::new(VirtualMachine::new(served, "machine", false))),
    ("through", |served| Box::new(VirtualMachine::new(served, "through", true))),
];

type ClientOf = fn(&Served) -> Box<dyn Client>;

/// Vdevs of a pool: layout, class, leaves.
type Vdevs = &'static [(Layout, Class, usize)];
const POOLS: [Vdevs; 3] = [
    &[(Layout::Single, Class::Normal, 1)],
    &[(Layout::Mirror, Class::Normal, 2)],
    &[(Layout::Single, Class::Normal, 1), (Layout::Single, Class::Log, 1)],
];

async fn created(recorder: &Recorder, vdevs: Vdevs, seed: u64) -> Arc<LivePool> {
    let mut number = 0;
    let mut leaf = || {
        let path = format!("/dev/disk{number}");
        number += 1;
        let device = recorder.device(&path, Disk::new(DISK_BYTES));
        NewLeaf { device, path: path.into(), is_file: false, whole_disk: false }
    };
    let top = |&(layout, class, count): &(Layout, Class, usize)| NewTop {
        layout,
        class,
        leaves: (0..count).map(|_| leaf()).collect(),
    };
    let tops = vdevs.iter().map(top).collect();
    LivePool::create(support::new_pool(tops, 12), support::surroundings(seed)).await.unwrap()
}

async fn imported(recorder: &Recorder, disks: Vec<Disk>, seed: u64) -> Result<Arc<LivePool>, String> {
    let mut candidates = Vec::new();
    for (number, disk) in disks.into_iter().enumerate() {
        let device = recorder.device(format!("/dev/disk{number}"), disk);
        candidates.extend(Candidate::examine(device).await);
    }
    let found = group(candidates).into_iter().find(|found| found.name == support::POOL);
    let found = found.ok_or("no pool is found")?;
    let options = ImportOptions { force: true, ..ImportOptions::default() };
    let imported = LivePool::import(&found, &options, support::surroundings(seed)).await;
    imported.map_err(|error| format!("import: {error}"))
}

/// All bytes of a volume.
async fn contents(pool: &Arc<LivePool>, name: &str) -> engine::Result<Vec<u8>> {
    let dataset = pool.dataset(support::objset_of(pool, name).await?).await?;
    let volume = LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await?;
    let mut bytes = vec![0; volume.size() as usize];
    volume.read_at(0, &mut bytes).await?;
    Ok(bytes)
}

/// A client does its steps. What it may rely on.
fn load(client: &mut dyn Client, id: u64, recorder: &Recorder, mut rng: Rng) -> Volume {
    let mut volume = Volume::new(id, SECTORS);
    for _ in 0..STEPS {
        let sectors = 1 + rng.below(8);
        let first = rng.below(SECTORS - sectors + 1);
        let is_zero = rng.once_in(6);
        let step = if is_zero { Step::Zero { first, sectors } } else { Step::Write { first, sectors } };
        let bytes = volume.begin(step, recorder.position());
        let offset = first * SECTOR_BYTES as u64;
        let is_stable = if is_zero {
            client.zero(offset, sectors * SECTOR_BYTES as u64)
        } else {
            client.write(offset, &bytes, rng.once_in(5))
        };
        if is_stable {
            volume.promise(volume.steps(), recorder.position());
        } else if rng.once_in(8) {
            client.flush();
            volume.promise(volume.steps(), recorder.position());
        }
    }
    volume
}

/// Records a run, and gives what the clients may rely on.
fn recorded(recorder: &Recorder, vdevs: Vdevs, seed: u64) -> (usize, Vec<Volume>) {
    let pool = block_on(created(recorder, vdevs, seed));
    let served = Served::start(&pool, VOLUMES.map(|(name, _)| name), SECTORS * SECTOR_BYTES as u64);
    let begin = recorder.position();
    let volumes = thread::scope(|scope| {
        let run = |(index, &(_, client)): (usize, &(&str, ClientOf))| {
            let served = &served;
            let rng = Rng::new(seed * 100 + index as u64);
            scope.spawn(move || load(&mut *client(served), index as u64, recorder, rng))
        };
        let running: Vec<_> = VOLUMES.iter().enumerate().map(run).collect();
        // Groups are committed in between.
        while running.iter().any(|client| !client.is_finished()) {
            block_on(pool.change(|_| async { Ok(()) })).unwrap();
        }
        running.into_iter().map(|client| client.join().unwrap()).collect()
    });
    (begin, volumes)
}

#[test]
fn what_clients_were_told_is_stable_survives_power_cuts() {
    let first: u64 = std::env::var("CENOTE_CRASH_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut promised = 0;
    for (number, vdevs) in POOLS.into_iter().enumerate() {
        let seed = first + number as u64;
        let recorder = Recorder::new(seed);
        let (begin, volumes) = recorded(&recorder, vdevs, seed);
        let mut rng = Rng::new(seed);
        let mut player = Player::new(&recorder);
        let span = (player.end() - begin) as u64;
        let mut points: Vec<usize> = (0..POINTS).map(|_| begin + rng.below(span) as usize).collect();
        points.sort_unstable();
        for point in points {
            player.advance(point);
            let disks = player.disks_after_power_cut(&mut rng);
            let judged: Result<(), String> = block_on(async {
                let pool = imported(&Recorder::new(seed), disks, seed).await?;
                for ((name, _), volume) in VOLUMES.iter().zip(&volumes) {
                    let bytes = contents(&pool, name).await.map_err(|error| format!("{name}: {error}"))?;
                    let (least, most) = volume.bounds(point);
                    promised += least;
                    volume.judge_sectors(&bytes, least, most).map_err(|what| format!("{name}: {what}"))?;
                }
                Ok(())
            });
            judged.unwrap_or_else(|what| panic!("CENOTE_CRASH_SEED={first}: {vdevs:?} at {point}: {what}"));
        }
    }
    assert!(promised > POOLS.len() * POINTS * VOLUMES.len(), "{promised} steps were promised");
}
