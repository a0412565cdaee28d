//! Random histories of devices on a store: power cuts at any request, several owners, and the model of what
//! must be there. Each program of tests takes what it needs.

#![allow(dead_code, reason = "each program takes a part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use objects::bucket::{Bucket, Fault, FaultyBucket};
use objects::format::SECTOR_BYTES;
use objects::{Core, Error, Options};
use tokio::task::LocalSet;

/// A store, empty below its prefix.
#[derive(Debug, Clone)]
pub struct Place {
    pub store: Arc<dyn Bucket>,
    /// Whether it answers in time of the clock.
    pub is_real: bool,
}

impl Place {
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(!self.is_real).build().unwrap();
        LocalSet::new().block_on(&runtime, future)
    }

    /// A client of it, with these faults besides its own.
    fn client(&self, fault: Fault, seed: u64) -> Arc<FaultyBucket> {
        Arc::new(FaultyBucket::new(Arc::clone(&self.store), fault, seed))
    }
}

pub const SIZE: u64 = 64 << 20;
/// Sectors that histories write, so that they overwrite each other.
pub const SECTORS: u64 = 2000;

pub fn options() -> Options {
    Options {
        segment_bytes: 256 << 10,
        inline_bytes: 64 << 10,
        unsent_bytes: 1 << 20,
        patience: Duration::from_secs(100_000),
        checkpoint_entries: 60,
        checkpoint_commits: 10,
        garbage_share: 0.5,
        map_runs: 300,
        ..Options::default()
    }
}

/// What may be read of each sector: values since the last flush that was acknowledged, the newest last.
#[derive(Debug, Default, Clone)]
pub struct Model(pub BTreeMap<u64, Vec<u64>>);

impl Model {
    pub fn write(&mut self, sector: u64, value: u64) {
        self.0.entry(sector).or_insert_with(|| vec![0]).push(value);
    }

    /// What is read now is the newest, and after a flush nothing else.
    pub fn flushed(&mut self) {
        for values in self.0.values_mut() {
            values.drain(..values.len() - 1);
        }
    }
}

pub fn sector_of(value: u64) -> Vec<u8> {
    let words = (0..SECTOR_BYTES / 8).map(|at| if value == 0 { 0 } else { value ^ at << 48 });
    words.flat_map(u64::to_le_bytes).collect()
}

pub fn value_of(bytes: &[u8]) -> u64 {
    let value = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, sector_of(value), "a sector is torn");
    value
}

/// Reads all, and takes it as what is there from now on.
pub async fn check(core: &Core, model: &mut Model, why: &str) {
    let bytes = core.read(0, (SECTORS * SECTOR_BYTES) as usize).await.unwrap();
    for sector in 0..SECTORS {
        let at = (sector * SECTOR_BYTES) as usize;
        let value = value_of(&bytes[at..at + SECTOR_BYTES as usize]);
        let values = model.0.entry(sector).or_insert_with(|| vec![0]);
        assert!(values.contains(&value), "{why}: sector {sector} has {value:x}, and may have {values:x?}");
        *values = vec![value];
    }
}

/// Sectors of a step are fewer.
pub const STEP_SECTORS: u64 = 40;

/// One step of a client; whether it was done.
async fn step(core: &Core, model: &mut Model, rng: &mut Rng, next: &mut u64) -> Result<(), Error> {
    let sector = rng.u64(..SECTORS - STEP_SECTORS);
    step_at(core, model, (rng, next), sector).await
}

/// One step of a client, from this sector on.
pub async fn step_at(
    core: &Core,
    model: &mut Model,
    (rng, next): (&mut Rng, &mut u64),
    sector: u64,
) -> Result<(), Error> {
    let sectors = rng.u64(1..STEP_SECTORS);
    match rng.u32(..100) {
        0..60 => {
            let values: Vec<u64> = (0..sectors).map(|at| *next + at).collect();
            *next += sectors;
            // It may be done in part if it is not done.
            (0..sectors).for_each(|at| model.write(sector + at, values[at as usize]));
            let data: Vec<u8> = values.into_iter().flat_map(sector_of).collect();
            core.write(sector * SECTOR_BYTES, Bytes::from(data)).await
        }
        60..70 => {
            (0..sectors).for_each(|at| model.write(sector + at, 0));
            core.discard(sector * SECTOR_BYTES, sectors * SECTOR_BYTES).await
        }
        70..90 => {
            let bytes = core.read(sector * SECTOR_BYTES, (sectors * SECTOR_BYTES) as usize).await?;
            for at in 0..sectors {
                let part = &bytes[(at * SECTOR_BYTES) as usize..][..SECTOR_BYTES as usize];
                let newest = model.0.get(&(sector + at)).map_or(0, |values| values[values.len() - 1]);
                assert_eq!(value_of(part), newest, "sector {}", sector + at);
            }
            Ok(())
        }
        _ => {
            core.flush().await?;
            model.flushed();
            Ok(())
        }
    }
}

pub fn faults(rng: &mut Rng) -> Fault {
    let mut one = |most: u64| if rng.bool() { rng.u64(4..most) } else { 0 };
    Fault {
        errors: one(40),
        lost_answers: one(40),
        late_copies: one(40),
        old_lists: one(10),
        short_bodies: one(40),
    }
}

/// A history with power cuts.
pub fn history(seed: u64, place: &Place) {
    // That of waits.
    fastrand::seed(seed);
    let mut rng = Rng::with_seed(seed);
    let (mut model, mut next) = (Model::default(), 1);
    place.run(objects::create(&*place.store, SIZE, &options())).unwrap();
    for life in 0..rng.u32(2..6) {
        let fault = faults(&mut rng);
        let client = place.client(fault, rng.u64(..));
        let steps = rng.u32(1..200);
        let cut = if rng.u32(..4) > 0 { rng.u64(1..400) } else { u64::MAX };
        place.run(async {
            client.cut_after(cut);
            let of = Arc::clone(&client) as Arc<dyn Bucket>;
            let live = async {
                let core = objects::open(of, options()).await.unwrap();
                check(&core, &mut model, &format!("seed {seed}, life {life}")).await;
                for _ in 0..steps {
                    step(&core, &mut model, &mut rng, &mut next).await.unwrap();
                }
                if rng.bool() {
                    core.flush().await.unwrap();
                    model.flushed();
                    core.settle().await;
                }
            };
            // A request of a machine without power never ends, and its time does not go by.
            let dark = async {
                while !client.is_cut() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            };
            tokio::select! { () = live => {}, () = dark => {} }
        });
        place.run(client.do_late_copies());
    }
    place.run(async {
        let core = objects::open(Arc::clone(&place.store), options()).await.unwrap();
        check(&core, &mut model, &format!("seed {seed}, at the end")).await;
    });
}

/// An owner that was taken over writes.
async fn wake(old: &Core, late: &FaultyBucket, seed: u64) {
    late.do_late_copies().await;
    let data = Bytes::from(sector_of(u64::MAX >> 16));
    let written = old.write(seed % SECTORS * SECTOR_BYTES, data).await;
    let told = if written.is_ok() { old.flush().await } else { written };
    assert_eq!(told, Err(Error::TakenOver), "seed {seed}");
}

/// Two owners who do not know of each other: what one was told is durable, the other finds, as long as it
/// took over later.
pub fn split(seed: u64, place: &Place) {
    fastrand::seed(seed);
    let mut rng = Rng::with_seed(seed);
    place.run(objects::create(&*place.store, SIZE, &options())).unwrap();
    place.run(async {
        let (mut model, mut next) = (Model::default(), 1);
        let client = |rng: &mut Rng| {
            let fault = faults(rng);
            place.client(fault, rng.u64(..))
        };
        let first = client(&mut rng);
        let mut owner = objects::open(Arc::clone(&first) as Arc<dyn Bucket>, options()).await.unwrap();
        let mut olds: Vec<(Core, Arc<FaultyBucket>)> = vec![];
        let mut bucket = first;
        for _ in 0..rng.u32(1..5) {
            for _ in 0..rng.u32(..300) {
                step(&owner, &mut model, &mut rng, &mut next).await.unwrap();
            }
            // The old owner has written what it has not flushed, and begins to: that may be there or not.
            let flushing = rng.bool();
            let mut own = model.clone();
            let taken = client(&mut rng);
            let opening = objects::open(Arc::clone(&taken) as Arc<dyn Bucket>, options());
            let (flushed, new) =
                tokio::join!(async { if flushing { owner.flush().await.is_ok() } else { false } }, opening);
            let new = new.unwrap();
            if flushed {
                model.flushed();
                own.flushed();
            }
            check(&new, &mut model, &format!("seed {seed}")).await;
            olds.push((owner, bucket));
            (owner, bucket) = (new, taken);
            // Old owners go on to write, some after a long sleep, and are never told that it is durable.
            for (old, late) in olds.extract_if(.., |_| rng.u32(..3) == 0) {
                wake(&old, &late, seed).await;
            }
        }
        for _ in 0..40 {
            step(&owner, &mut model, &mut rng, &mut next).await.unwrap();
        }
        owner.flush().await.unwrap();
        model.flushed();
        owner.settle().await;
        for (old, late) in olds {
            wake(&old, &late, seed).await;
        }
        owner.flush().await.unwrap();
        drop(owner);
        let again = objects::open(Arc::clone(&place.store), options()).await.unwrap();
        check(&again, &mut model, &format!("seed {seed}, again")).await;
    });
}
