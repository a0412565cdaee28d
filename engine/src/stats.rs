//! Counters: what the engine did, under the names that OpenZFS gives it.
//!
//! # The idea
//! A *group* is a table of named numbers: a kstat of OpenZFS. Its definition is one list of fields, each with
//! its name, its kind and a sentence that says what it counts here. The list makes three things: a type with
//! one public field for each number, the table of descriptions, and, for groups that are counted in place, a
//! twin of atomic counters. So the API, the commands, `/metrics` and the manual cannot differ in what they
//! call a number.
//!
//! | group | where it is counted | of what |
//! |---|---|---|
//! | `arcstats` | in the shards of the ARC, under the lock that an access holds anyway | process |
//! | `zfetchstats` | [`ZFETCH`], striped | process |
//! | `zil` | [`ZIL`] and [`DatasetStats::zil`] | process, dataset |
//! | `dmu_tx` | [`DMU_TX`] | process |
//! | `ddt` | in the dedup tables themselves, as they are on disk | pool |
//! | `fm` | [`crate::events`], where errors become events | process |
//! | `memory` | by the daemon, of the system and of what holds memory | process |
//! | `objset` | [`DatasetStats`], striped | dataset |
//! | `amplification` | [`DatasetStats`] | dataset |
//! | `txgs` | [`TxgHistory`] | pool |
//!
//! The counters of vdevs (`vdev`) are those of [`crate::vdev::stats`], which have histograms besides.
//!
//! # What counting costs
//! All counters are relaxed atomics. A cached read adds to counters of its ARC shard, whose lock it holds,
//! and to striped counters of its dataset. A thread has a cache line of its own in a striped counter
//! (`Striped`), so that threads on different cores do not share a line. Nothing here allocates or takes a
//! lock on the way of a cached read. A reader of counters sums the lines; it may see an operation in one
//! number and not yet in another.
//!
//! Numbers of kind [`Kind::Counter`] only grow while the process lives, so a reader takes differences.
//! Numbers of kind [`Kind::Gauge`] are states.
//!
//! Source of names and meanings: OpenZFS 2.4 `arc_impl.h`, `dmu_zfetch.c`, `zil.h`, `dmu_tx.c`,
//! `dataset_kstats.c`, `spa_stats.c`.

mod arcstats;
mod datasets;
mod ddt;
mod dmu;
mod fields;
mod fm;
mod memory;
mod stores;
mod striped;
mod txgs;
mod vdevs;
mod zil;

pub use arcstats::Arcstats;
pub use datasets::Layer;
pub(crate) use datasets::Layers;
pub use datasets::{Amplification, DatasetStats, Datasets, ObjsetStats};
pub use ddt::DdtStats;
pub(crate) use dmu::Zfetch;
pub use dmu::{DMU_TX, DmuTxStats, ZFETCH, ZfetchStats};
pub use fields::{Counter, Field, Group, Kind};
pub(crate) use fields::{counted, counters};
pub use fm::FmStats;
pub use memory::MemoryStats;
pub use stores::StoreStats;
pub(crate) use striped::Striped;
pub use txgs::{Io, TxgHistory, TxgRecord, TxgState};
pub use vdevs::VdevStats;
pub(crate) use zil::ZilCounters;
pub use zil::{ZIL, ZilStats};

/// All groups by name, with their fields, for lists and the manual.
pub const GROUPS: [(&str, &[Field]); 11] = [
    (Arcstats::NAME, Arcstats::FIELDS),
    (ZfetchStats::NAME, ZfetchStats::FIELDS),
    (ZilStats::NAME, ZilStats::FIELDS),
    (DmuTxStats::NAME, DmuTxStats::FIELDS),
    (FmStats::NAME, FmStats::FIELDS),
    (MemoryStats::NAME, MemoryStats::FIELDS),
    (ObjsetStats::NAME, ObjsetStats::FIELDS),
    (Amplification::NAME, Amplification::FIELDS),
    (DdtStats::NAME, DdtStats::FIELDS),
    (VdevStats::NAME, VdevStats::FIELDS),
    (StoreStats::NAME, StoreStats::FIELDS),
];
