//! The CCM mode over a block cipher of the `aes` crate: counter mode for secrecy, CBC-MAC for authenticity.
//!
//! The mode is our own only because its one crate (`ccm`) enters the cipher anew for each 16 bytes and
//! reaches a fifth of what the chained MAC allows; datasets of OpenZFS 0.8 are in this mode by default. That
//! crate is the oracle of the tests.
//!
//! With 12 bytes of nonce, 3 are left for the length of the text, so it has less than 16 MiB. Formats of the
//! blocks (NIST SP 800-38C, RFC 3610):
//!
//! | block | bytes |
//! |---|---|
//! | first of the MAC | flags `0x3a` (plus `0x40` with AAD), nonce, length of the text (3, big-endian) |
//! | AAD | its length (2 bytes, or `ff fe` and 4 bytes from 65280 on), the AAD, zeros to a whole block |
//! | counter `i` | flags `0x02`, nonce, `i` (3, big-endian); block 0 masks the MAC |

use super::{Error, IV_BYTES, MAC_BYTES, Result};
use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser};

type Block = Array<u8, U16>;

const BLOCK_BYTES: usize = 16;
/// Flags of a counter block.
const COUNTER: u8 = 2;
const LONGEST_TEXT: usize = (1 << 24) - 1;
/// AAD of this length and more states its length in six bytes.
const LONG_AAD: usize = 0xff00;

/// Decrypts `text` in place; on an error its content is meaningless.
pub(super) fn open<C: BlockCipherEncrypt<BlockSize = U16>>(
    cipher: &C,
    nonce: &[u8; IV_BYTES],
    aad: &[u8],
    text: &mut [u8],
    mac: &[u8; MAC_BYTES],
) -> Result<()> {
    let mut chain = Chain::start(cipher, nonce, aad, text.len())?;
    chain.crypt::<C, true>(cipher, nonce, text);
    if chain.finish(cipher, nonce) == *mac { Ok(()) } else { Err(Error::Authentication) }
}

/// Encrypts `text` in place and returns its MAC.
pub(super) fn seal<C: BlockCipherEncrypt<BlockSize = U16>>(
    cipher: &C,
    nonce: &[u8; IV_BYTES],
    aad: &[u8],
    text: &mut [u8],
) -> Result<[u8; MAC_BYTES]> {
    let mut chain = Chain::start(cipher, nonce, aad, text.len())?;
    chain.crypt::<C, false>(cipher, nonce, text);
    Ok(chain.finish(cipher, nonce))
}

fn formatted(flags: u8, nonce: &[u8; IV_BYTES], number: u32) -> Block {
    let mut block = Block::default();
    block[0] = flags;
    block[1..13].copy_from_slice(nonce);
    block[13..].copy_from_slice(&number.to_be_bytes()[1..]);
    block
}

/// The CBC-MAC so far.
struct Chain(Block);

impl Chain {
    fn start<C: BlockCipherEncrypt<BlockSize = U16>>(
        cipher: &C,
        nonce: &[u8; IV_BYTES],
        aad: &[u8],
        text_bytes: usize,
    ) -> Result<Self> {
        if text_bytes > LONGEST_TEXT {
            return Err(Error::Malformed("too long for the cipher"));
        }
        let aad_bytes = u32::try_from(aad.len()).map_err(|_| Error::Malformed("too long for the cipher"))?;
        let flags = if aad.is_empty() { 0x3a } else { 0x7a };
        let mut chain = Self(Block::default());
        chain.update(cipher, &formatted(flags, nonce, text_bytes as u32));
        if aad.is_empty() {
            return Ok(chain);
        }
        let length = aad_bytes.to_be_bytes();
        let mut head = Vec::with_capacity(BLOCK_BYTES);
        if aad.len() < LONG_AAD {
            head.extend_from_slice(&length[2..]);
        } else {
            head.extend_from_slice(&[0xff, 0xfe]);
            head.extend_from_slice(&length);
        }
        let (beside_length, rest) = aad.split_at(aad.len().min(BLOCK_BYTES - head.len()));
        head.extend_from_slice(beside_length);
        chain.update(cipher, &head);
        chain.update(cipher, rest);
        Ok(chain)
    }

    /// Chains `bytes`, the last block padded with zeros.
    fn update<C: BlockCipherEncrypt<BlockSize = U16>>(&mut self, cipher: &C, bytes: &[u8]) {
        cipher.encrypt_with_backend(Update { state: &mut self.0, bytes });
    }

    /// Adds the key stream to `text` and chains what it is (`OPENING`: becomes) in the clear.
    fn crypt<C: BlockCipherEncrypt<BlockSize = U16>, const OPENING: bool>(
        &mut self,
        cipher: &C,
        nonce: &[u8; IV_BYTES],
        text: &mut [u8],
    ) {
        cipher.encrypt_with_backend(Crypt::<OPENING> { state: &mut self.0, nonce, text });
    }

    fn finish<C: BlockCipherEncrypt<BlockSize = U16>>(
        self,
        cipher: &C,
        nonce: &[u8; IV_BYTES],
    ) -> [u8; MAC_BYTES] {
        let mut mask = formatted(COUNTER, nonce, 0);
        cipher.encrypt_block(&mut mask);
        sum(&self.0.into(), &mask.into())
    }
}

/// One entry into the cipher for many blocks.
struct Update<'a> {
    state: &'a mut Block,
    bytes: &'a [u8],
}

impl BlockSizeUser for Update<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Update<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut state = *self.state;
        let (blocks, rest) = self.bytes.as_chunks::<BLOCK_BYTES>();
        for block in blocks {
            state = sum(&state.into(), block).into();
            backend.encrypt_block((&mut state).into());
        }
        if !rest.is_empty() {
            state.iter_mut().zip(rest).for_each(|(sum, byte)| *sum ^= *byte);
            backend.encrypt_block((&mut state).into());
        }
        *self.state = state;
    }
}

/// Both modes in one pass, block by block: a step of the MAC waits for the one before, and meanwhile the
/// processor has the counters to encrypt.
struct Crypt<'a, const OPENING: bool> {
    state: &'a mut Block,
    nonce: &'a [u8; IV_BYTES],
    text: &'a mut [u8],
}

impl<const OPENING: bool> BlockSizeUser for Crypt<'_, OPENING> {
    type BlockSize = U16;
}

impl<const OPENING: bool> BlockCipherEncClosure for Crypt<'_, OPENING> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut state = *self.state;
        let mut number = 0;
        let mut step = |block: &mut [u8; BLOCK_BYTES], bytes: usize| {
            number += 1;
            let mut stream = formatted(COUNTER, self.nonce, number);
            backend.encrypt_block((&mut stream).into());
            // The last block is padded with zeros for the MAC, in the clear.
            stream[bytes..].fill(0);
            let other = sum(block, &stream.into());
            let clear = if OPENING { &other } else { &*block };
            state = sum(&state.into(), clear).into();
            backend.encrypt_block((&mut state).into());
            *block = other;
        };
        let (blocks, rest) = self.text.as_chunks_mut::<BLOCK_BYTES>();
        for block in blocks {
            step(block, BLOCK_BYTES);
        }
        if !rest.is_empty() {
            let mut padded = [0; BLOCK_BYTES];
            padded[..rest.len()].copy_from_slice(rest);
            step(&mut padded, rest.len());
            rest.copy_from_slice(&padded[..rest.len()]);
        }
        *self.state = state;
    }
}

#[inline(always)]
fn sum(one: &[u8; BLOCK_BYTES], other: &[u8; BLOCK_BYTES]) -> [u8; BLOCK_BYTES] {
    (u128::from_ne_bytes(*one) ^ u128::from_ne_bytes(*other)).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::KeyInit;
    use ccm::aead::AeadInOut;
    use ccm::consts::U12;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn equals_the_ccm_crate(
            key: [u8; 32], nonce: [u8; 12], aad in proptest::collection::vec(any::<u8>(), 0..200),
            text in proptest::collection::vec(any::<u8>(), 0..3000),
        ) {
            let cipher = aes::Aes256::new(&key.into());
            let oracle = ccm::Ccm::<aes::Aes256, U16, U12>::new(&key.into());
            let mut ours = text.clone();
            let mut theirs = text.clone();
            let mac = seal(&cipher, &nonce, &aad, &mut ours).unwrap();
            let expected = oracle.encrypt_inout_detached(&nonce.into(), &aad, theirs.as_mut_slice().into()).unwrap();
            prop_assert_eq!(&mac[..], &expected[..]);
            prop_assert_eq!(&ours, &theirs);
            prop_assert_eq!(open(&cipher, &nonce, &aad, &mut ours, &mac), Ok(()));
            prop_assert_eq!(ours, text);
        }
    }

    #[test]
    fn long_aad_states_its_length_in_six_bytes() {
        let cipher = aes::Aes128::new(&[1; 16].into());
        let oracle = ccm::Ccm::<aes::Aes128, U16, U12>::new(&[1; 16].into());
        for length in [LONG_AAD - 1, LONG_AAD, 100_000] {
            let aad = vec![5; length];
            let mac = seal(&cipher, &[2; 12], &aad, &mut [3; 20]).unwrap();
            let expected =
                oracle.encrypt_inout_detached(&[2; 12].into(), &aad, (&mut [3; 20][..]).into()).unwrap();
            assert_eq!(mac[..], expected[..]);
        }
    }

    #[test]
    fn text_of_16_mebibytes_is_refused() {
        let cipher = aes::Aes128::new(&[1; 16].into());
        assert!(seal(&cipher, &[2; 12], &[], &mut vec![0; 1 << 24]).is_err());
    }
}
