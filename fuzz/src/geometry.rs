//! raidz and dRAID with parameters and offsets that no sane label has.

use codec::draid::{Draid, DraidConfig};
use codec::raidz::{self, Map, Raidz, Reflow};

use crate::input::Input;

/// Tries of the search for bad columns that are looked at.
const MAX_HYPOTHESES: usize = 50;

fn look_at(map: &Map, children: usize) {
    assert!(map.columns().iter().all(|column| column.child < children));
    assert_eq!(map.data_columns().map(|column| column.size).sum::<u64>(), map.data_bytes());
    for row in map.rows() {
        assert_eq!(row.len(), map.width());
        for (index, column) in row.iter().enumerate() {
            let _ = column.label_relative_offset();
            assert!(row[..index].iter().all(|other| other.child != column.child), "two columns on one child");
        }
    }
    for known_bad in [&[][..], &[0], &[0, children.saturating_sub(1)], &[usize::MAX]] {
        for hypothesis in map.hypotheses(known_bad).take(MAX_HYPOTHESES) {
            let _ = hypothesis;
        }
    }
}

/// raidz, expanded or not.
pub fn raidz(bytes: &[u8]) {
    let mut input = Input(bytes);
    let ashift = u32::from(input.u8() % 20);
    let (nparity, children) = (usize::from(input.u8() % 5), usize::from(input.u16() % 300));
    let reflow = (input.u8() & 1 != 0).then(|| Reflow::from_uberblock(input.u64()));
    let txgs: Vec<u64> = (0..input.u8() % 8).map(|_| input.u64() >> (input.u8() & 63)).collect();
    let Ok(raidz) = Raidz::expanded(ashift, nparity, children, &txgs, reflow) else { return };
    for _ in 0..4 {
        let (offset, psize, txg) =
            (input.u64() >> (input.u8() & 63), input.u64() >> (input.u8() & 63), input.u64());
        let psizes = [psize, psize & 0xff_fe00];
        for psize in psizes {
            for offset in [offset, offset & !((1 << ashift) - 1)] {
                let _ = raidz.asize(psize, txg);
                if let Ok(map) = raidz.map(offset, psize, txg) {
                    look_at(&map, raidz.children());
                }
            }
        }
    }
}

/// dRAID.
pub fn draid(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut number = |limit: u16| match input.u8() {
        0xff => input.u64() as usize,
        byte if byte >= 0xf0 => usize::from(input.u16()),
        byte => usize::from(byte) % usize::from(limit),
    };
    let config = DraidConfig {
        data: number(40),
        nparity: number(4),
        spares: number(8),
        groups: number(16),
        children: number(260),
        ashift: number(20) as u32,
    };
    // Most parameters contradict each other; a group count that fits lets more through.
    let fitting = config.data.checked_add(config.nparity).map(|width| DraidConfig {
        children: width.saturating_add(config.spares).min(300),
        groups: 1,
        ashift: 9 + config.ashift % 8,
        ..config
    });
    for config in [Some(config), fitting].into_iter().flatten() {
        let (children, ashift) = (config.children, config.ashift);
        let Ok(draid) = Draid::new(config) else { continue };
        let mut input = input;
        for _ in 0..4 {
            let (offset, psize) = (input.u64() >> (input.u8() & 63), input.u64() >> (input.u8() & 63));
            for psize in [psize, psize & 0xff_fe00] {
                for offset in [offset, offset & !((1 << ashift) - 1)] {
                    let _ = draid.asize(psize);
                    if let Ok(map) = draid.map(offset, psize) {
                        look_at(&map, children);
                    }
                    let _ = draid.spare_child(usize::from(input.u8()), offset);
                }
            }
        }
    }
}

/// Parity of columns of any lengths, and their reconstruction.
pub fn reconstruct(bytes: &[u8]) {
    let mut input = Input(bytes);
    let nparity = usize::from(input.u8() % 5);
    let missing: Vec<usize> = (0..input.u8() % 5).map(|_| usize::from(input.u8() % 20)).collect();
    let count = usize::from(input.u8() % 18);
    let longest = usize::from(input.u8());
    let data: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let length = longest.saturating_sub(usize::from(input.u8() >> 6));
            let mut column = input.take(length).to_vec();
            column.resize(length, 0x5a);
            column
        })
        .collect();
    let mut columns: Vec<Vec<u8>> = vec![vec![0; longest]; nparity];
    {
        let mut parity: Vec<&mut [u8]> = columns.iter_mut().map(Vec::as_mut_slice).collect();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        if raidz::generate_parity(&mut parity, &data).is_err() {
            return;
        }
    }
    columns.extend(data);
    let whole = columns.clone();
    for &index in &missing {
        if let Some(column) = columns.get_mut(index) {
            column.fill(0xee);
        }
    }
    let mut slices: Vec<&mut [u8]> = columns.iter_mut().map(Vec::as_mut_slice).collect();
    if raidz::reconstruct(nparity, &mut slices, &missing).is_ok() {
        assert!(columns == whole, "other bytes came back");
    }
}
