//! What datasets do: their clients' reads and writes, and what these became on the way to the devices.
//!
//! # Amplification
//! A byte that a client writes becomes more or fewer bytes at each layer: a small write makes a whole block
//! dirty, compression makes the block smaller, copies and parity make it larger, and pointers and the intent
//! log are written with it. Each dataset counts the bytes of each layer, so their ratios are the write
//! amplification of that dataset. Blocks of the pool itself (object set 0) have an entry too: what it wrote
//! is metadata that belongs to no dataset alone.
//!
//! # Bounds
//! An entry exists for each dataset that was opened, read or written since the import, at most
//! [`MOST_ENTRIES`]. When there are more, those that are not open and had no client are dropped; if that does
//! not help, the rest share one entry that is not listed.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `entries` | which datasets have counters; not taken by a cached read | taken alone |

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use device::IgnorePoison;
use ondisk::ObjsetId;

use super::{Counter, Striped, ZilCounters, counters};

/// The most datasets of a pool with counters of their own.
const MOST_ENTRIES: usize = 8192;

counters! {
    /// What the clients of a dataset did.
    ObjsetStats in "objset" {
        writes: Counter, "Writes of clients.";
        nwritten: Counter, "Bytes of these writes.";
        reads: Counter, "Reads of clients.";
        nread: Counter, "Bytes of these reads.";
        nunlinks: Counter, "Files that lost their last name.";
        nunlinked: Counter, "Files without a name that were freed.";
    }
}

counters! {
    /// The bytes of a dataset, layer by layer.
    Amplification in "amplification" {
        client_written: Counter, "Bytes that clients wrote.";
        logical: Counter, "Bytes of the blocks that hold them: whole blocks, also where less was written.";
        compressed: Counter, "The same after compression.";
        allocated: Counter, "The same with parity, padding and copies.";
        devices: Counter, "The same, once for each device of a mirror.";
        metadata_allocated: Counter,
            "Space of pointers, dnodes and other metadata that were written with them.";
        metadata_devices: Counter, "The same, once for each device of a mirror.";
        log_allocated: Counter, "Space of the blocks of the intent log that were written.";
        log_devices: Counter, "The same, once for each device of a mirror.";
        client_read: Counter, "Bytes that clients read.";
        loads: Counter, "Blocks that the ARC did not have and that were read.";
        loaded_logical: Counter, "Bytes of these blocks.";
        loaded: Counter, "The same as stored: what was read from devices or an L2ARC, without parity.";
        dedup_new: Counter, "Blocks that were stored and got an entry of a dedup table.";
        dedup_found: Counter, "Blocks that were stored already, and got a pointer to what is there.";
        dedup_saved: Counter, "Bytes of these blocks after compression, which were not stored again.";
    }
}

/// The counters in a line of [`Striped`].
const WRITES: usize = 0;
const NWRITTEN: usize = 1;
const READS: usize = 2;
const NREAD: usize = 3;
const NUNLINKS: usize = 4;
const NUNLINKED: usize = 5;

/// Bytes of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layer {
    /// Before compression: whole blocks.
    pub logical: u64,
    /// After compression. Holes and embedded blocks have none.
    pub physical: u64,
    /// With copies, parity and padding.
    pub allocated: u64,
    /// The same, counted for each device of a mirror: a pool's space counts a mirror once.
    pub devices: u64,
}

/// Counts [`Layer`].
#[derive(Debug, Default)]
pub(crate) struct Layers {
    logical: Counter,
    physical: Counter,
    allocated: Counter,
    devices: Counter,
}

impl Layers {
    pub(crate) fn add(&self, bytes: Layer) {
        self.logical.add(bytes.logical);
        self.physical.add(bytes.physical);
        self.allocated.add(bytes.allocated);
        self.devices.add(bytes.devices);
    }

    pub(crate) fn snapshot(&self) -> Layer {
        Layer {
            logical: self.logical.get(),
            physical: self.physical.get(),
            allocated: self.allocated.get(),
            devices: self.devices.get(),
        }
    }
}

/// The counters of one dataset.
#[derive(Debug, Default)]
pub struct DatasetStats {
    clients: Striped,
    zil: ZilCounters,
    data: Layers,
    metadata: Layers,
    log: Layers,
    loads: Counter,
    loaded: Layers,
    dedup_new: Counter,
    dedup_found: Counter,
    dedup_saved: Counter,
}

impl DatasetStats {
    /// A client read `bytes`.
    pub(crate) fn count_read(&self, bytes: u64) {
        self.clients.add_both(READS, NREAD, bytes);
    }

    /// A client wrote `bytes`.
    pub(crate) fn count_write(&self, bytes: u64) {
        self.clients.add_both(WRITES, NWRITTEN, bytes);
    }

    /// A file lost its last name.
    pub(crate) fn count_unlink(&self) {
        self.clients.add(NUNLINKS, 1);
    }

    /// A file without a name was freed.
    pub(crate) fn count_unlinked(&self) {
        self.clients.add(NUNLINKED, 1);
    }

    /// A block was written.
    pub(crate) fn count_block(&self, is_data: bool, bytes: Layer) {
        if is_data { &self.data } else { &self.metadata }.add(bytes);
    }

    /// A block was stored, with an entry of a dedup table.
    pub(crate) fn count_dedup_new(&self) {
        self.dedup_new.bump();
    }

    /// A block was stored already, which takes so many bytes.
    pub(crate) fn count_dedup_found(&self, bytes: u64) {
        self.dedup_found.bump();
        self.dedup_saved.add(bytes);
    }

    /// A block of its intent log was written.
    pub(crate) fn count_log(&self, bytes: Layer) {
        self.log.add(bytes);
    }

    /// A block was read that was not in the ARC.
    pub(crate) fn count_load(&self, logical: u64, physical: u64) {
        self.loads.bump();
        self.loaded.add(Layer { logical, physical, ..Layer::default() });
    }

    /// The counters of its intent log.
    pub fn zil(&self) -> &ZilCounters {
        &self.zil
    }

    /// What its clients did.
    pub fn objset(&self) -> ObjsetStats {
        ObjsetStats {
            writes: self.clients.get(WRITES),
            nwritten: self.clients.get(NWRITTEN),
            reads: self.clients.get(READS),
            nread: self.clients.get(NREAD),
            nunlinks: self.clients.get(NUNLINKS),
            nunlinked: self.clients.get(NUNLINKED),
        }
    }

    /// Its bytes, layer by layer.
    pub fn amplification(&self) -> Amplification {
        let (data, metadata) = (self.data.snapshot(), self.metadata.snapshot());
        let (log, loaded) = (self.log.snapshot(), self.loaded.snapshot());
        Amplification {
            client_written: self.clients.get(NWRITTEN),
            logical: data.logical,
            compressed: data.physical,
            allocated: data.allocated,
            devices: data.devices,
            metadata_allocated: metadata.allocated,
            metadata_devices: metadata.devices,
            log_allocated: log.allocated,
            log_devices: log.devices,
            client_read: self.clients.get(NREAD),
            loads: self.loads.get(),
            loaded_logical: loaded.logical,
            loaded: loaded.physical,
            dedup_new: self.dedup_new.get(),
            dedup_found: self.dedup_found.get(),
            dedup_saved: self.dedup_saved.get(),
        }
    }

    fn had_clients(&self) -> bool {
        self.clients.get(READS) + self.clients.get(WRITES) > 0
    }
}

/// The counters of the datasets of a pool.
#[derive(Debug, Default)]
pub struct Datasets {
    entries: RwLock<HashMap<ObjsetId, Arc<DatasetStats>>>,
    /// For datasets that have none of their own.
    rest: Arc<DatasetStats>,
}

impl Datasets {
    /// The counters of a dataset. Takes a lock: a caller that counts often keeps them.
    pub(crate) fn of(&self, id: ObjsetId) -> Arc<DatasetStats> {
        if let Some(known) = self.entries.read().ignore_poison().get(&id) {
            return Arc::clone(known);
        }
        let mut entries = self.entries.write().ignore_poison();
        if entries.len() >= MOST_ENTRIES {
            entries.retain(|_, stats| Arc::strong_count(stats) > 1 || stats.had_clients());
        }
        if entries.len() >= MOST_ENTRIES {
            return Arc::clone(&self.rest);
        }
        Arc::clone(entries.entry(id).or_default())
    }

    /// All datasets with counters, by number.
    pub fn all(&self) -> Vec<(ObjsetId, Arc<DatasetStats>)> {
        let entries = self.entries.read().ignore_poison();
        let mut all: Vec<_> = entries.iter().map(|(id, stats)| (*id, Arc::clone(stats))).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_keeps_its_counters_and_the_rest_share_one() {
        let datasets = Datasets::default();
        datasets.of(ObjsetId(5)).count_read(100);
        datasets.of(ObjsetId(5)).count_write(7);
        let stats = datasets.of(ObjsetId(5)).objset();
        assert_eq!((stats.reads, stats.nread, stats.writes, stats.nwritten), (1, 100, 1, 7));
        let held: Vec<_> = (100..100 + MOST_ENTRIES as u64).map(|id| datasets.of(ObjsetId(id))).collect();
        assert_eq!(datasets.all().len(), MOST_ENTRIES);
        drop(held);
        datasets.of(ObjsetId(7));
        let left: Vec<_> = datasets.all().iter().map(|(id, _)| id.get()).collect();
        assert_eq!(left, [5, 7], "those without a client made room");
    }

    #[test]
    fn the_layers_of_a_write_are_counted_apart() {
        let stats = DatasetStats::default();
        stats.count_write(4096);
        stats.count_block(true, Layer { logical: 131_072, physical: 8192, allocated: 12288, devices: 24576 });
        stats.count_block(false, Layer { logical: 16384, physical: 4096, allocated: 8192, devices: 16384 });
        stats.count_log(Layer { allocated: 8192, devices: 8192, ..Layer::default() });
        stats.count_load(131_072, 8192);
        let now = stats.amplification();
        assert_eq!(
            (now.client_written, now.logical, now.compressed, now.devices),
            (4096, 131_072, 8192, 24576)
        );
        assert_eq!((now.metadata_allocated, now.log_allocated, now.loads, now.loaded), (8192, 8192, 1, 8192));
    }
}
