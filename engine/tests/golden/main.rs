//! Golden pools, made by OpenZFS, read by the engine and compared with what was recorded of them.

mod encrypted;
mod filesystems;
mod mos;
mod names;
mod support;
mod volumes;
