//! Pools that the engine writes, judged by its own reader and by OpenZFS's `zdb`.

mod clone;
mod create;
mod datasets;
mod faults;
mod files;
mod filesystem;
mod full;
mod golden;
mod log;
mod multihost;
mod quotas;
mod space;
mod support;
mod trim;
mod volumes;
