//! What is written until a pool is full, and what of it must be there afterwards.
//!
//! Contents come in *slots*. Each write fills one slot with a pattern of its own number, in one group, so
//! that a slot always holds what some write put there. What was flushed last, and all that was written since,
//! is what a slot may hold after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::Error;
use engine::Result;
use engine::zpl::LiveZpl;
use engine::zpl::live::WriteOptions;
use engine::zvol::LiveZvol;
use ondisk::ObjectId;
use testkit::Rng;

use crate::files::FILE;

/// Bytes that do not compress, of which slots are pieces.
pub struct Noise(Vec<u8>);

impl Noise {
    pub fn new(rng: &mut Rng) -> Self {
        Self((0..1 << 18).flat_map(|_| rng.next_u64().to_le_bytes()).collect())
    }

    /// The pattern of a write; compressible ones compress to about a half.
    fn pattern(&self, number: u64, length: usize, is_compressible: bool) -> Vec<u8> {
        let from = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (self.0.len() - length) as u64) as usize;
        let mut bytes = self.0[from..from + length].to_vec();
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        if is_compressible {
            bytes.chunks_exact_mut(512).for_each(|sector| sector[256..].fill(0));
        }
        bytes
    }
}

/// Where slots are.
pub enum Place {
    Volume(Arc<LiveZvol>),
    /// One file.
    File(Arc<LiveZpl>, ObjectId),
    /// A file for each slot.
    Files(Arc<LiveZpl>),
}

/// A slot: the number of the write that was flushed last, and those since. 0 is nothing.
#[derive(Clone, Debug, Default)]
struct Slot {
    flushed: u64,
    since: Vec<u64>,
}

impl Slot {
    fn now(&self) -> u64 {
        self.since.last().copied().unwrap_or(self.flushed)
    }
}

pub struct Target<'a> {
    /// Absent between two lives of its pool.
    pub place: Option<Place>,
    pub slot_bytes: u64,
    pub is_compressible: bool,
    noise: &'a Noise,
    slots: BTreeMap<u64, Slot>,
    /// Those that may hold what is not flushed.
    changed: BTreeSet<u64>,
    writes: u64,
}

fn name(slot: u64) -> Vec<u8> {
    format!("file{slot}").into_bytes()
}

impl<'a> Target<'a> {
    pub fn new(place: Place, slot_bytes: u64, is_compressible: bool, noise: &'a Noise) -> Self {
        Self {
            place: Some(place),
            slot_bytes,
            is_compressible,
            noise,
            slots: BTreeMap::new(),
            changed: BTreeSet::new(),
            writes: 0,
        }
    }

    fn place(&self) -> &Place {
        self.place.as_ref().expect("its pool is open")
    }

    /// Slots that hold something.
    pub fn used(&self) -> Vec<u64> {
        self.slots.iter().filter(|(_, slot)| slot.now() != 0).map(|(number, _)| *number).collect()
    }

    /// Writes a slot. Files that were made for it stay, if empty, when there is no room.
    pub async fn write(&self, slot: u64, number: u64, stable: bool) -> Result<()> {
        let bytes = self.noise.pattern(number, self.slot_bytes as usize, self.is_compressible);
        match self.place() {
            Place::Volume(volume) => volume.write_at(slot * self.slot_bytes, &bytes, stable).await,
            Place::File(zpl, file) => {
                zpl.write(*file, slot * self.slot_bytes, &bytes, &WriteOptions::default()).await?;
                if stable { zpl.fsync(*file).await } else { Ok(()) }
            }
            Place::Files(zpl) => {
                let root = zpl.zpl().root();
                let file = match zpl.create(root, &name(slot), &FILE).await {
                    Err(Error::Exists(_)) => zpl.lookup(root, &name(slot)).await?.expect("it exists"),
                    created => created?,
                };
                zpl.write(file, 0, &bytes, &WriteOptions::default()).await?;
                if stable { zpl.fsync(file).await } else { Ok(()) }
            }
        }
    }

    /// The number of the next write.
    pub fn next(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    /// A slot was written; all that a volume or a file was given before is as stable.
    pub fn wrote(&mut self, slot: u64, number: u64, stable: bool) {
        self.slots.entry(slot).or_default().since.push(number);
        self.changed.insert(slot);
        match self.place() {
            _ if !stable => {}
            Place::Files(_) => flush(self.slots.entry(slot).or_default()),
            _ => self.flushed(),
        }
    }

    /// Everything is stable.
    pub fn flushed(&mut self) {
        for slot in std::mem::take(&mut self.changed) {
            flush(self.slots.entry(slot).or_default());
        }
    }

    /// Takes away what a slot holds.
    pub async fn remove(&self, slot: u64) -> Result<()> {
        match self.place() {
            Place::Volume(volume) => volume.trim(slot * self.slot_bytes, self.slot_bytes, false).await,
            Place::File(zpl, file) => zpl.punch(*file, slot * self.slot_bytes, self.slot_bytes).await,
            Place::Files(zpl) => zpl.unlink(zpl.zpl().root(), &name(slot)).await,
        }
    }

    pub fn removed(&mut self, slot: u64) {
        self.slots.entry(slot).or_default().since.push(0);
        self.changed.insert(slot);
    }

    /// What slots hold is something that they may hold; from now on that is what they held before. Gives how
    /// many hold what was flushed, or more.
    pub async fn check(&mut self) -> usize {
        let mut checked = 0;
        let mut slots = std::mem::take(&mut self.slots);
        for (number, slot) in &mut slots {
            let bytes = self.read(*number).await;
            let mut candidates = slot.since.iter().rev().chain(std::iter::once(&slot.flushed));
            let found = candidates.find(|candidate| self.holds(&bytes, **candidate));
            let Some(found) = found else {
                panic!("slot {number} holds {:?}…: {slot:?}", &bytes[..bytes.len().min(16)])
            };
            *slot = Slot { flushed: *found, since: Vec::new() };
            checked += 1;
        }
        self.slots = slots;
        checked
    }

    async fn read(&self, slot: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.slot_bytes as usize];
        match self.place() {
            Place::Volume(volume) => {
                volume.read_at(slot * self.slot_bytes, &mut bytes).await.expect("it can be read")
            }
            Place::File(zpl, file) => {
                zpl.read(*file, slot * self.slot_bytes, &mut bytes).await.expect("it can be read");
            }
            Place::Files(zpl) => {
                let file = zpl.lookup(zpl.zpl().root(), &name(slot)).await.expect("it can be looked up");
                let Some(file) = file else { return Vec::new() };
                let length = zpl.read(file, 0, &mut bytes).await.expect("it can be read");
                bytes.truncate(length);
            }
        }
        bytes
    }

    fn holds(&self, bytes: &[u8], number: u64) -> bool {
        match number {
            // Nothing, or a file that is still empty.
            0 => bytes.iter().all(|byte| *byte == 0),
            _ => bytes == self.noise.pattern(number, self.slot_bytes as usize, self.is_compressible),
        }
    }
}

fn flush(slot: &mut Slot) {
    *slot = Slot { flushed: slot.now(), since: Vec::new() };
}
