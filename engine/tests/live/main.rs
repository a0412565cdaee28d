//! Pools that the engine writes, judged by its own reader and by OpenZFS's `zdb`.

mod create;
mod datasets;
mod faults;
mod filesystem;
mod full;
mod golden;
mod log;
mod multihost;
mod space;
mod support;
mod volumes;
