//! Is a block all zero?

/// True when every byte is zero. Stops at the first 256 bytes that are not.
pub fn is_all_zero(data: &[u8]) -> bool {
    // Whole strides without a branch inside become vector code.
    let (strides, rest) = data.as_chunks::<256>();
    let any = |bytes: &[u8]| bytes.iter().fold(0, |any, byte| any | byte);
    strides.iter().all(|stride| any(stride) == 0) && any(rest) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_anywhere_is_found() {
        for len in [0, 1, 7, 255, 256, 257, 1000] {
            let mut data = vec![0; len];
            assert!(is_all_zero(&data));
            for at in 0..len {
                data[at] = 0x80;
                assert!(!is_all_zero(&data), "{at} of {len}");
                data[at] = 0;
            }
        }
    }
}
