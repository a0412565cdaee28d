//! Pools as a whole, and their vdevs: opening, closing, creating and growing them, and how they are.
//!
//! An open pool is plain data ([`super::open_pool`]); what is here makes such data and takes it away. Each
//! change of a pool holds the pool's right to change, checks against the last commit, and is answered when
//! the engine has committed it.
//!
//! | module | what it owns |
//! |---|---|
//! | `import` | opening pools |
//! | `import_cached` | the pools that come back when the daemon starts again |
//! | `handing_over` | closing all pools for another daemon, and opening pools as another one had them |
//! | `closing` | export, and the end of all pools, in any state |
//! | `creating`, `disks`, `replication` | new pools and vdevs: their devices, mismatched replication |
//! | `machine_disks` | the disks of the machine, with what lies on them |
//! | `properties`, `compatibility` | properties of pools, and sets of features |
//! | `attaching` | devices that are attached, replace others, and are detached |
//! | `devices` | offline, online, clearing errors |
//! | `vdevs` | vdevs with their properties |
//! | `dedup_tables` | pruning dedup tables, and reading tables ahead |
//! | `scans`, `scrub_schedule` | scrubs and resilvers, and scrubs that begin by themselves |
//! | `status` | health of pools, open or not |
//! | `inject` | faults on demand |
//! | `nested` | pools on files in a filesystem of this daemon |

mod attaching;
pub(super) mod closing;
mod compatibility;
mod creating;
mod dedup_tables;
mod devices;
mod disks;
pub(super) mod handing_over;
pub(super) mod import;
pub(super) mod import_cached;
mod inject;
mod machine_disks;
mod nested;
pub(super) mod properties;
mod replication;
mod scans;
mod scrub_schedule;
mod status;
pub(super) mod vdevs;
