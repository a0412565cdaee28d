//! Speed of every codec on one core, beside a second implementation where there is one.
//!
//!     cargo bench -p cenote-codec [-- FILTER]
//!
//! FILTER keeps the rows whose name contains it. A number is GB/s of logical data (10^9 bytes), by the CPU
//! time of this thread; the two columns of a row are measured in turns, and each is the median of its rounds.
//! `ratio` is ours over theirs. See [`table`] for how it is measured.

#![allow(unsafe_code, reason = "libraries that are compared with")]

mod checksums;
mod ciphers;
mod compressors;
mod corpus;
mod external;
mod raidz;
mod table;

fn main() {
    // cargo passes --bench; a bare word is the filter.
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let mut table = table::Table::new(filter);
    checksums::rows(&mut table);
    compressors::rows(&mut table);
    ciphers::rows(&mut table);
    raidz::rows(&mut table);
}
