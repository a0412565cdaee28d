//! Rebuilding lost columns of a row.
//!
//! The parity columns give one linear equation each in the data columns. With `k` data columns lost, `k`
//! usable parity columns make a `k` by `k` system, which always has a solution: the factors are powers of 1,
//! 2 and 4 to different exponents below 255. Its inverse yields every lost data column as a weighted sum of
//! the columns that are left, and by substitution every lost parity column too. The sums are then computed in
//! one pass (`super::combine`). One lost data column with P usable comes out as a plain XOR.

use super::combine::{Input, combine};
use super::field::{inverse, product};
use super::parity::factor;
use super::{Error, MAX_CHILDREN, MAX_PARITY};

/// Rebuilds the columns `missing` of a row in place.
///
/// `columns` is a whole row, `[P, Q, R, data…]` with `nparity` parity columns; short data columns count as
/// padded with zeros, phantom columns are empty slices. The content of missing columns is ignored and
/// overwritten. A missing parity column that is not needed may be an empty slice.
pub fn reconstruct(nparity: usize, columns: &mut [&mut [u8]], missing: &[usize]) -> Result<(), Error> {
    let data_count = columns.len().saturating_sub(nparity);
    if !(1..=MAX_PARITY).contains(&nparity) || data_count == 0 || columns.len() > MAX_CHILDREN {
        return Err(Error::Columns("number of columns"));
    }
    if missing.iter().any(|&index| index >= columns.len()) {
        return Err(Error::Columns("no such column"));
    }
    let lost = |index: usize| missing.contains(&index);
    let lost_data: Vec<usize> = (nparity..columns.len())
        .filter(|&index| lost(index) && !columns[index].is_empty())
        .map(|index| index - nparity)
        .collect();
    let lost_parity: Vec<usize> =
        (0..nparity).filter(|&index| lost(index) && !columns[index].is_empty()).collect();
    let usable_parity: Vec<usize> = (0..nparity).filter(|&index| !lost(index)).collect();
    if lost_data.len() > usable_parity.len() {
        return Err(Error::TooManyMissing { missing: lost_data.len(), parity: usable_parity.len() });
    }
    let longest = columns[nparity..].iter().map(|column| column.len()).max().unwrap_or(0);
    if usable_parity.iter().chain(&lost_parity).any(|&parity| columns[parity].len() < longest) {
        return Err(Error::Columns("a parity column is shorter than a data column"));
    }
    let used_parity = &usable_parity[..lost_data.len()];
    let weights = Weights::solve(data_count, &lost_data, &lost_parity, used_parity)?;

    let mut inputs = Vec::with_capacity(columns.len());
    let mut outputs = Vec::with_capacity(MAX_PARITY);
    for (index, column) in columns.iter_mut().enumerate() {
        let column: &mut [u8] = column;
        if column.is_empty() {
            continue;
        }
        match index.checked_sub(nparity) {
            _ if lost(index) => outputs.push(column),
            Some(data) => inputs.push(Input { bytes: column, weights: weights.of_data(data) }),
            None => {
                if let Some(position) = used_parity.iter().position(|&used| used == index) {
                    inputs.push(Input { bytes: column, weights: weights.of_parity(position) });
                }
            }
        }
    }
    combine(&inputs, &mut outputs);
    Ok(())
}

/// The weights with which the columns that are left add up to the lost ones. Outputs are in the order of the
/// row: lost parity, then lost data.
struct Weights<'a> {
    data_count: usize,
    lost_data: &'a [usize],
    lost_parity: &'a [usize],
    used_parity: &'a [usize],
    /// `inverse[x][s]`: weight of equation `s` (used parity) in lost data column `x`.
    inverse: [[u8; MAX_PARITY]; MAX_PARITY],
}

impl<'a> Weights<'a> {
    fn solve(
        data_count: usize,
        lost_data: &'a [usize],
        lost_parity: &'a [usize],
        used_parity: &'a [usize],
    ) -> Result<Self, Error> {
        let mut matrix = [[0; MAX_PARITY]; MAX_PARITY];
        for (row, &parity) in matrix.iter_mut().zip(used_parity) {
            for (entry, &data) in row.iter_mut().zip(lost_data) {
                *entry = factor(parity, data, data_count);
            }
        }
        let inverse = invert(matrix, lost_data.len())
            .ok_or(Error::Columns("equations do not determine the lost columns"))?;
        Ok(Self { data_count, lost_data, lost_parity, used_parity, inverse })
    }

    /// What a column contributes to each output when it contributes `to_equations` to the used equations and
    /// `to_parity(p)` to lost parity column `p`.
    fn outputs(&self, to_equations: [u8; MAX_PARITY], to_parity: impl Fn(usize) -> u8) -> [u8; MAX_PARITY] {
        let to_lost_data = self.inverse.map(|row| {
            row.iter().zip(to_equations).fold(0, |sum, (&weight, part)| sum ^ product(weight, part))
        });
        let parity = self.lost_parity.iter().map(|&parity| {
            let through_lost_data = self
                .lost_data
                .iter()
                .zip(to_lost_data)
                .fold(0, |sum, (&data, part)| sum ^ product(factor(parity, data, self.data_count), part));
            to_parity(parity) ^ through_lost_data
        });
        let mut outputs = [0; MAX_PARITY];
        let all = parity.chain(to_lost_data.into_iter().take(self.lost_data.len()));
        outputs.iter_mut().zip(all).for_each(|(slot, weight)| *slot = weight);
        outputs
    }

    fn of_data(&self, data: usize) -> [u8; MAX_PARITY] {
        let mut to_equations = [0; MAX_PARITY];
        for (slot, &parity) in to_equations.iter_mut().zip(self.used_parity) {
            *slot = factor(parity, data, self.data_count);
        }
        self.outputs(to_equations, |parity| factor(parity, data, self.data_count))
    }

    fn of_parity(&self, equation: usize) -> [u8; MAX_PARITY] {
        let mut to_equations = [0; MAX_PARITY];
        to_equations[equation] = 1;
        self.outputs(to_equations, |_| 0)
    }
}

/// Inverts the upper left `size` by `size` part by Gauss-Jordan elimination.
fn invert(mut matrix: [[u8; MAX_PARITY]; MAX_PARITY], size: usize) -> Option<[[u8; MAX_PARITY]; MAX_PARITY]> {
    let mut result = [[0; MAX_PARITY]; MAX_PARITY];
    for (diagonal, row) in result.iter_mut().enumerate().take(size) {
        row[diagonal] = 1;
    }
    for pivot in 0..size {
        let row = (pivot..size).find(|&row| matrix[row][pivot] != 0)?;
        matrix.swap(pivot, row);
        result.swap(pivot, row);
        let scale = inverse(matrix[pivot][pivot])?;
        matrix[pivot] = matrix[pivot].map(|entry| product(entry, scale));
        result[pivot] = result[pivot].map(|entry| product(entry, scale));
        for row in (0..size).filter(|&row| row != pivot) {
            let scale = matrix[row][pivot];
            for column in 0..size {
                matrix[row][column] ^= product(scale, matrix[pivot][column]);
                result[row][column] ^= product(scale, result[pivot][column]);
            }
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::super::parity::generate;
    use super::*;

    /// A row with `data` columns, the last third one sector shorter, and its parity in front.
    fn row(nparity: usize, data: usize, long: usize, short: usize) -> Vec<Vec<u8>> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let length = |index| if 3 * index >= 2 * data { short } else { long };
        let mut columns = vec![vec![0; long]; nparity];
        columns.extend((0..data).map(|index| (0..length(index)).map(|_| next()).collect::<Vec<u8>>()));
        let (parity, data) = columns.split_at_mut(nparity);
        let data: Vec<&[u8]> = data.iter().map(|column| &column[..]).collect();
        generate(&mut parity.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>(), &data).unwrap();
        columns
    }

    fn rebuild(nparity: usize, original: &[Vec<u8>], missing: &[usize]) -> Result<Vec<Vec<u8>>, Error> {
        let mut columns = original.to_vec();
        missing.iter().for_each(|&index| columns[index].fill(0x5a));
        reconstruct(
            nparity,
            &mut columns.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>(),
            missing,
        )?;
        Ok(columns)
    }

    fn subsets(count: usize, largest: usize) -> impl Iterator<Item = Vec<usize>> {
        (0u32..1 << count)
            .filter(move |set| set.count_ones() as usize <= largest)
            .map(move |set| (0..count).filter(|bit| set >> bit & 1 != 0).collect())
    }

    #[test]
    fn every_pattern_of_losses_is_recovered() {
        for nparity in 1..=3 {
            for data in [1, 2, 3, 5, 8, 13] {
                for (long, short) in [(520, 520), (520, 264), (7, 0)] {
                    let original = row(nparity, data, long, short);
                    for missing in subsets(nparity + data, nparity) {
                        assert_eq!(
                            rebuild(nparity, &original, &missing).unwrap(),
                            original,
                            "parity {nparity}, data {data}, lost {missing:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_widest_vdev_is_recovered() {
        let original = row(3, 252, 64, 32);
        for missing in [[3, 4, 5], [3, 128, 254], [0, 3, 254], [252, 253, 254]] {
            assert_eq!(rebuild(3, &original, &missing).unwrap(), original);
        }
    }

    #[test]
    fn parity_that_was_not_read_is_neither_used_nor_rebuilt() {
        let original = row(3, 6, 512, 512);
        let mut columns = original.clone();
        columns[0].clear();
        columns[2].clear();
        columns[7].fill(0);
        reconstruct(3, &mut columns.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>(), &[0, 2, 7])
            .unwrap();
        assert_eq!(columns[7], original[7]);
        assert!(columns[0].is_empty() && columns[2].is_empty());
    }

    #[test]
    fn more_losses_than_parity_are_refused() {
        let original = row(2, 4, 64, 64);
        assert_eq!(rebuild(2, &original, &[2, 3, 4]), Err(Error::TooManyMissing { missing: 3, parity: 2 }));
        assert_eq!(rebuild(2, &original, &[0, 3, 4]), Err(Error::TooManyMissing { missing: 2, parity: 1 }));
        assert_eq!(rebuild(2, &original, &[0, 1]).unwrap(), original);
        assert!(reconstruct(2, &mut [&mut [0u8; 4], &mut [0; 4], &mut [0; 4]], &[3]).is_err());
    }
}
