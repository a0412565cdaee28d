//! Rows of raidz: parity of a block, and its repair, with 8 data columns of 4 KiB sectors.
//!
//! Beside each stands a plain loop over Horner's scheme, eight bytes in a word, that the compiler vectorises;
//! with a FILTER that begins with `raidz`, OpenZFS's best implementation as `raidz_test -B` measures it.

use crate::external::RaidzTest;
use crate::table::{Peer, SIZES, Table};
use codec::raidz::{Raidz, generate_parity, reconstruct};
use std::hint::black_box;

const ASHIFT: u32 = 12;
const DATA_COLUMNS: usize = 8;

/// Adds them.
pub fn rows(table: &mut Table) {
    let openzfs = table.names("raidz").then(RaidzTest::run);
    for (nparity, function) in [(1, "gen_p"), (2, "gen_pq"), (3, "gen_pqr")] {
        for size in SIZES {
            let mut row = Row::new(nparity, size);
            let mut plain = row.clone();
            let name = format!("raidz{nparity} parity");
            let (mut parity, data) = row.split();
            let mut ours = || generate_parity(&mut parity, black_box(&data)).expect("a valid row");
            match openzfs.as_ref().and_then(|peer| peer.best(function, size)) {
                Some((peer, rate)) => table.row_beside(&name, size, &mut ours, peer, rate),
                None => {
                    let mut run = || plain.generate_plainly();
                    table.row(&name, size, &mut ours, Some(Peer { name: "autovectorised", run: &mut run }));
                }
            }
        }
    }
    for (lost, missing, function) in
        [("D", &[1, 2, 3][..], "rec_p"), ("DD", &[2, 3, 4], "rec_pq"), ("DDD", &[3, 4, 5], "rec_pqr")]
    {
        let size = 128 << 10;
        let mut row = Row::new(3, size);
        for &unread in missing.iter().filter(|&&column| column < 3) {
            row.columns[unread].clear();
        }
        let mut columns: Vec<&mut [u8]> = row.columns.iter_mut().map(Vec::as_mut_slice).collect();
        let mut ours = || reconstruct(3, black_box(&mut columns), missing).expect("a recoverable row");
        let name = format!("raidz rebuild {lost}");
        match openzfs.as_ref().and_then(|peer| peer.best(function, size)) {
            Some((peer, rate)) => table.row_beside(&name, size, &mut ours, peer, rate),
            None => table.row(&name, size, &mut ours, None),
        }
    }
}

/// The columns of a block, `[P, Q, R, data…]`.
#[derive(Clone)]
struct Row {
    nparity: usize,
    columns: Vec<Vec<u8>>,
}

impl Row {
    fn new(nparity: usize, size: usize) -> Self {
        let map = Raidz::new(ASHIFT, nparity, nparity + DATA_COLUMNS)
            .and_then(|raidz| raidz.map(0, size as u64, 1));
        let columns = map.expect("a valid layout").columns().to_vec();
        let columns =
            columns.iter().enumerate().map(|(index, column)| vec![index as u8 + 1; column.size as usize]);
        Row { nparity, columns: columns.collect() }
    }

    fn split(&mut self) -> (Vec<&mut [u8]>, Vec<&[u8]>) {
        let (parity, data) = self.columns.split_at_mut(self.nparity);
        (parity.iter_mut().map(Vec::as_mut_slice).collect(), data.iter().map(Vec::as_slice).collect())
    }

    fn generate_plainly(&mut self) {
        let (parity, data) = self.columns.split_at_mut(self.nparity);
        for (power, parity) in parity.iter_mut().enumerate() {
            parity.fill(0);
            for column in black_box(&*data) {
                for (sum, word) in parity.chunks_exact_mut(8).zip(column.chunks_exact(8)) {
                    let mut scaled = (0..power).fold(load(sum), |sum, _| doubled(sum));
                    scaled ^= load(word);
                    sum.copy_from_slice(&scaled.to_ne_bytes());
                }
            }
        }
    }
}

fn load(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("a chunk of eight"))
}

/// Twice each of the eight elements.
fn doubled(elements: u64) -> u64 {
    let carries = elements >> 7 & 0x0101_0101_0101_0101;
    let shifted = elements << 1 & 0xfefe_fefe_fefe_fefe;
    shifted ^ carries ^ carries << 2 ^ carries << 3 ^ carries << 4
}
