//! Formulas that foretell what a layout costs; each is compared with what is really allocated.

pub mod raidz;
