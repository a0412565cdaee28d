//! Parity of a row: P, Q and R from the data columns.
//!
//! With data columns `D_0 … D_(n-1)`, each padded with zeros to the length of the longest:
//!
//! | column | sum over `i` of |
//! |---|---|
//! | P | `D_i` |
//! | Q | `2^(n-1-i) * D_i` |
//! | R | `4^(n-1-i) * D_i` |
//!
//! The factors depend on `n`, so phantom columns count. Source: OpenZFS 2.3 `vdev_raidz.c`.

use super::combine::{Input, combine};
use super::field::power_of_two;
use super::{Error, MAX_CHILDREN, MAX_PARITY};

/// Factor of data column `index` of `count` in parity column `parity` (0 = P).
pub(super) fn factor(parity: usize, index: usize, count: usize) -> u8 {
    power_of_two(parity * (count - 1 - index))
}

/// Fills the parity columns of a row from its data columns, all of them, phantoms as empty slices.
///
/// Parity columns are as long as the longest data column, or longer.
pub fn generate(parity: &mut [&mut [u8]], data: &[&[u8]]) -> Result<(), Error> {
    let longest = data.iter().map(|column| column.len()).max().unwrap_or(0);
    if parity.len() > MAX_PARITY || parity.len() + data.len() > MAX_CHILDREN {
        return Err(Error::Columns("too many columns"));
    }
    if parity.iter().any(|column| column.len() < longest) {
        return Err(Error::Columns("a parity column is shorter than a data column"));
    }
    let inputs: Vec<Input<'_>> = data
        .iter()
        .enumerate()
        .map(|(index, &bytes)| Input {
            bytes,
            weights: std::array::from_fn(|p| factor(p, index, data.len())),
        })
        .collect();
    combine(&inputs, parity);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Horner's scheme, byte by byte, as the definition in the literature has it.
    fn horner(generator: u8, data: &[Vec<u8>], at: usize) -> u8 {
        data.iter().fold(0, |sum, column| {
            super::super::field::product(sum, generator) ^ column.get(at).copied().unwrap_or(0)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn parity_is_horners_polynomial_at_1_2_and_4(data in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..20)) {
            let longest = data.iter().map(Vec::len).max().unwrap();
            let mut parity = vec![vec![0xff; longest]; 3];
            let borrowed: Vec<&[u8]> = data.iter().map(|column| &column[..]).collect();
            generate(&mut parity.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>(), &borrowed).unwrap();
            for (column, generator) in parity.iter().zip([1, 2, 4]) {
                for (at, byte) in column.iter().enumerate() {
                    prop_assert_eq!(*byte, horner(generator, &data, at));
                }
            }
        }
    }

    #[test]
    fn short_parity_columns_are_refused() {
        assert!(generate(&mut [&mut [0; 3]], &[&[1, 2, 3, 4]]).is_err());
    }
}
