//! The field of 256 elements in which raidz parity is computed.
//!
//! Elements are bytes, addition is XOR, multiplication is that of polynomials modulo
//! `x^8 + x^4 + x^3 + x^2 + 1`. The element 2 generates all others but 0. All tables are built at compile
//! time. Source of the polynomial: OpenZFS 2.3 `vdev_raidz.c`.

/// The modulus without its highest term.
const MODULUS: u8 = 0x1d;

const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { MODULUS } else { 0 }
}

const fn slow_product(a: u8, b: u8) -> u8 {
    let (mut product, mut shifted, mut bit) = (0, a, 0);
    while bit < 8 {
        if b >> bit & 1 != 0 {
            product ^= shifted;
        }
        shifted = double(shifted);
        bit += 1;
    }
    product
}

/// `EXP[i]` is 2 to the power of `i`, over two periods so that sums of two logarithms need no reduction.
const EXP: [u8; 510] = {
    let mut table = [1; 510];
    let mut i = 1;
    while i < 510 {
        table[i] = double(table[i - 1]);
        i += 1;
    }
    table
};

const LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
};

/// For each factor its products with the 16 low nibbles, then with the 16 high nibbles: a product is one
/// entry of each half, added.
pub(super) static NIBBLE_PRODUCTS: [[u8; 32]; 256] = {
    let mut table = [[0; 32]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            table[factor][nibble] = slow_product(factor as u8, nibble as u8);
            table[factor][16 + nibble] = slow_product(factor as u8, (nibble << 4) as u8);
            nibble += 1;
        }
        factor += 1;
    }
    table
};

/// For each factor the 8 by 8 bit matrix that multiplies by it, in the form that `GF2P8AFFINEQB` takes: byte
/// `7 - i` selects the input bits that make up output bit `i`.
pub(super) static MATRICES: [u64; 256] = {
    let mut table = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut input_bit = 0;
        while input_bit < 8 {
            let product = slow_product(factor as u8, 1 << input_bit);
            let mut output_bit = 0;
            while output_bit < 8 {
                if product >> output_bit & 1 != 0 {
                    table[factor] |= 1 << ((7 - output_bit) * 8 + input_bit);
                }
                output_bit += 1;
            }
            input_bit += 1;
        }
        factor += 1;
    }
    table
};

/// 2 to the power of `exponent`.
pub(super) fn power_of_two(exponent: usize) -> u8 {
    EXP[exponent % 255]
}

/// `a * b`.
pub(super) fn product(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)])]
}

/// `1 / a`; `None` for 0.
pub(super) fn inverse(a: u8) -> Option<u8> {
    if a == 0 { None } else { Some(EXP[255 - usize::from(LOG[usize::from(a)])]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_agree_with_the_definition() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let expected = slow_product(a, b);
                assert_eq!(product(a, b), expected);
                let nibbles = &NIBBLE_PRODUCTS[usize::from(a)];
                assert_eq!(nibbles[usize::from(b & 15)] ^ nibbles[16 + usize::from(b >> 4)], expected);
                let matrix = MATRICES[usize::from(a)].to_be_bytes();
                let by_matrix =
                    (0..8).fold(0, |sum, bit| sum | ((matrix[bit] & b).count_ones() as u8 & 1) << bit);
                assert_eq!(by_matrix, expected);
            }
        }
    }

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        assert_eq!(inverse(0), None);
        assert!((1..=255).all(|a| product(a, inverse(a).unwrap()) == 1));
    }

    #[test]
    fn two_generates_the_field() {
        let powers: std::collections::HashSet<u8> = (0..255).map(power_of_two).collect();
        assert_eq!(powers.len(), 255);
        assert_eq!(power_of_two(255), 1);
    }
}
