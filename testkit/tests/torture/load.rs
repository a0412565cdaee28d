//! A verified load: clients that write parts of a volume and know what each of their sectors must hold.
//!
//! Each client has a *lane*, which no other client writes. A sector names the version that wrote it; version 0
//! is zeroes. For each sector the client keeps the versions that it may hold after a crash: from the last one
//! that was promised to be stable to the last one that was begun. Without a crash it must hold exactly the
//! last one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use device::{IgnorePoison, block_on};
use engine::zvol::LiveZvol;
use testkit::Rng;

pub const SECTOR_BYTES: usize = 4096;
/// The longest transfer of a client.
const MOST_SECTORS: u64 = 48;

/// What a sector of a lane holds after the write of `version`. Half of it does not compress.
pub fn content(lane: u64, version: u64, sector: u64) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR_BYTES];
    if version > 0 {
        for (at, word) in [lane + 1, version, sector].iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        let mut state = (lane << 48) ^ (version << 20) ^ sector ^ 0x9e37_79b9_7f4a_7c15;
        for chunk in bytes[24..SECTOR_BYTES / 2].chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            chunk.copy_from_slice(&state.to_le_bytes());
        }
    }
    bytes
}

/// The volumes: a plain one and an encrypted one.
pub type Volumes = [Arc<LiveZvol>; 2];

/// A part of one of the volumes, and what its sectors may hold.
pub struct Lane {
    id: u64,
    first_sector: u64,
    /// By sector: the versions from the last stable one to the last that was begun.
    possible: Vec<Vec<u64>>,
    version: u64,
    rng: Rng,
}

impl Lane {
    pub fn new(id: u64, first_sector: u64, sectors: u64, seed: u64) -> Self {
        let possible = vec![vec![0]; sectors as usize];
        Self { id, first_sector, possible, version: 0, rng: Rng::new(seed ^ (id + 1)) }
    }

    /// The volume that it is a part of.
    fn volume<'a>(&self, volumes: &'a Volumes) -> &'a Arc<LiveZvol> {
        &volumes[self.id as usize % volumes.len()]
    }

    /// The version that a sector's bytes name, if they are what it wrote.
    fn version_of(&self, sector: u64, bytes: &[u8]) -> Result<u64, String> {
        let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap_or_default());
        match content(self.id, version, sector) == bytes {
            true => Ok(version),
            false => Err(format!("lane {}, sector {sector}: bytes that were never written there", self.id)),
        }
    }

    /// Reads all of the lane. After a crash a sector may hold any of its possible versions, and holds exactly
    /// that one from then on.
    pub fn verify(&mut self, volumes: &Volumes, after_crash: bool) -> Result<(), String> {
        let volume = self.volume(volumes);
        let count = self.possible.len() as u64;
        for first in (0..count).step_by(256) {
            let sectors = 256.min(count - first);
            let bytes = self.read(volume, first, sectors)?;
            for (sector, bytes) in (first..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
                let version = self.version_of(sector, bytes)?;
                let possible = &mut self.possible[sector as usize];
                let right = match after_crash {
                    true => possible.contains(&version),
                    false => possible.last() == Some(&version),
                };
                if !right {
                    return Err(format!(
                        "lane {}, sector {sector}: version {version}, and it may be {possible:?}",
                        self.id
                    ));
                }
                *possible = vec![version];
            }
        }
        Ok(())
    }

    fn read(&self, volume: &LiveZvol, first: u64, sectors: u64) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; sectors as usize * SECTOR_BYTES];
        let offset = (self.first_sector + first) * SECTOR_BYTES as u64;
        block_on(volume.read_at(offset, &mut bytes))
            .map_err(|error| format!("lane {}, read of sectors {first}+{sectors}: {error}", self.id))?;
        Ok(bytes)
    }

    fn step(&mut self, volume: &LiveZvol) -> Result<(), String> {
        let count = self.possible.len() as u64;
        let most = if self.rng.once_in(4) { MOST_SECTORS } else { 4 };
        let sectors = 1 + self.rng.below(most);
        let first = self.rng.below(count - sectors + 1);
        let offset = (self.first_sector + first) * SECTOR_BYTES as u64;
        let range = first as usize..(first + sectors) as usize;
        let failed = |what: &str, error| format!("lane {}, {what} of {first}+{sectors}: {error}", self.id);
        match self.rng.below(16) {
            0 => {
                block_on(volume.flush()).map_err(|error| failed("flush", error))?;
                for possible in &mut self.possible {
                    let last = possible.len() - 1;
                    possible.drain(..last);
                }
            }
            1..=5 => {
                let bytes = self.read(volume, first, sectors)?;
                for (sector, bytes) in (first..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
                    let version = self.version_of(sector, bytes)?;
                    if self.possible[sector as usize].last() != Some(&version) {
                        let is = &self.possible[sector as usize];
                        return Err(format!("lane {}, sector {sector}: read {version}, is {is:?}", self.id));
                    }
                }
            }
            kind => {
                let version = if kind == 6 { 0 } else { self.version + 1 };
                self.version += 1;
                let stable = self.rng.once_in(3);
                for possible in &mut self.possible[range.clone()] {
                    possible.push(version);
                }
                if version == 0 {
                    let length = sectors * SECTOR_BYTES as u64;
                    block_on(volume.write_zeroes(offset, length, false, stable))
                        .map_err(|error| failed("zeroes", error))?;
                } else {
                    let sectors = first..first + sectors;
                    let bytes: Vec<u8> =
                        sectors.flat_map(|sector| content(self.id, version, sector)).collect();
                    block_on(volume.write_at(offset, &bytes, stable))
                        .map_err(|error| failed("write", error))?;
                }
                if stable {
                    self.possible[range].iter_mut().for_each(|possible| *possible = vec![version]);
                }
            }
        }
        Ok(())
    }
}

/// What the clients share with the one who disturbs them.
#[derive(Default)]
struct Control {
    ends: AtomicBool,
    /// The pool crashes: errors are expected.
    crashes: AtomicBool,
    steps: AtomicU64,
    trouble: Mutex<Option<String>>,
}

/// Clients at work.
pub struct Load {
    control: Arc<Control>,
    threads: Vec<JoinHandle<Lane>>,
}

impl Load {
    /// Starts a client for each lane.
    pub fn start(volumes: &Volumes, lanes: Vec<Lane>) -> Self {
        let control = Arc::<Control>::default();
        let client = |mut lane: Lane| {
            let (control, volume) = (Arc::clone(&control), Arc::clone(lane.volume(volumes)));
            std::thread::spawn(move || {
                while !control.ends.load(Ordering::Relaxed) {
                    if let Err(error) = lane.step(&volume) {
                        if !control.crashes.load(Ordering::Acquire) {
                            control.trouble.lock().ignore_poison().get_or_insert(error);
                        }
                        break;
                    }
                    control.steps.fetch_add(1, Ordering::Relaxed);
                    if lane.rng.once_in(8) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                lane
            })
        };
        let threads = lanes.into_iter().map(client).collect();
        Self { control, threads }
    }

    /// What went wrong so far.
    pub fn trouble(&self) -> Option<String> {
        self.control.trouble.lock().ignore_poison().clone()
    }

    /// From now on errors are no trouble.
    pub fn expect_crash(&self) {
        self.control.crashes.store(true, Ordering::Release);
    }

    /// Ends the clients. Gives their lanes, and how many steps they made.
    pub fn end(self) -> Result<(Vec<Lane>, u64), String> {
        self.control.ends.store(true, Ordering::Relaxed);
        let lanes: Result<Vec<Lane>, _> = self.threads.into_iter().map(JoinHandle::join).collect();
        let lanes = lanes.map_err(|_| "a client panicked".to_owned())?;
        match self.control.trouble.lock().ignore_poison().take() {
            Some(trouble) => Err(trouble),
            None => Ok((lanes, self.control.steps.load(Ordering::Relaxed))),
        }
    }
}
