//! The ciphers: AES with three key lengths, in GCM or CCM mode, with IVs of 12 bytes and MACs of 16.
//!
//! GCM with 128 and 256 bits comes from `ring` (fastest), with 192 bits, which `ring` lacks, from RustCrypto;
//! the CCM mode (`super::ccm`) runs RustCrypto's AES.

use super::ccm;
use super::{Error, IV_BYTES, MAC_BYTES, Result};
use aes::cipher::KeyInit;
use aes::cipher::consts::U12;
use aes_gcm::AesGcm;
use aes_gcm::aead::AeadInOut;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use std::fmt;

/// The cipher of a dataset: the numbers of OpenZFS's `zio_encrypt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Suite {
    /// `aes-128-ccm`
    Aes128Ccm = 3,
    /// `aes-192-ccm`
    Aes192Ccm = 4,
    /// `aes-256-ccm`
    Aes256Ccm = 5,
    /// `aes-128-gcm`
    Aes128Gcm = 6,
    /// `aes-192-gcm`
    Aes192Gcm = 7,
    /// `aes-256-gcm`
    Aes256Gcm = 8,
}

impl Suite {
    /// All suites.
    pub const ALL: [Suite; 6] = [
        Self::Aes128Ccm,
        Self::Aes192Ccm,
        Self::Aes256Ccm,
        Self::Aes128Gcm,
        Self::Aes192Gcm,
        Self::Aes256Gcm,
    ];

    /// The suite of a number found on disk.
    pub fn from_raw(raw: u64) -> Result<Self> {
        Self::ALL.into_iter().find(|&suite| suite as u64 == raw).ok_or(Error::UnknownSuite(raw))
    }

    /// The value of the `encryption` property.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Ccm => "aes-128-ccm",
            Self::Aes192Ccm => "aes-192-ccm",
            Self::Aes256Ccm => "aes-256-ccm",
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes192Gcm => "aes-192-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
        }
    }

    /// Bytes of the master key and of the keys derived from it.
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes128Gcm => 16,
            Self::Aes192Ccm | Self::Aes192Gcm => 24,
            Self::Aes256Ccm | Self::Aes256Gcm => 32,
        }
    }

    /// The suite of the same mode with which keys of this suite are wrapped: always 256 bits.
    pub(super) const fn wrapping(self) -> Self {
        match self {
            Self::Aes128Ccm | Self::Aes192Ccm | Self::Aes256Ccm => Self::Aes256Ccm,
            Self::Aes128Gcm | Self::Aes192Gcm | Self::Aes256Gcm => Self::Aes256Gcm,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A cipher with its key expanded.
pub(super) enum Cipher {
    Ring(LessSafeKey),
    Gcm192(AesGcm<aes::Aes192, U12>),
    Ccm128(aes::Aes128),
    Ccm192(aes::Aes192),
    Ccm256(aes::Aes256),
}

impl Cipher {
    /// `key` has as many bytes as the suite says.
    pub fn new(suite: Suite, key: &[u8]) -> Result<Self> {
        let unfit = Error::KeyFormat("length");
        Ok(match suite {
            Suite::Aes128Gcm => {
                Self::Ring(LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).map_err(|_| unfit)?))
            }
            Suite::Aes256Gcm => {
                Self::Ring(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).map_err(|_| unfit)?))
            }
            Suite::Aes192Gcm => Self::Gcm192(KeyInit::new_from_slice(key).map_err(|_| unfit)?),
            Suite::Aes128Ccm => Self::Ccm128(KeyInit::new_from_slice(key).map_err(|_| unfit)?),
            Suite::Aes192Ccm => Self::Ccm192(KeyInit::new_from_slice(key).map_err(|_| unfit)?),
            Suite::Aes256Ccm => Self::Ccm256(KeyInit::new_from_slice(key).map_err(|_| unfit)?),
        })
    }

    /// Decrypts `text` in place. After an error its content is meaningless.
    pub fn open(
        &self,
        iv: &[u8; IV_BYTES],
        aad: &[u8],
        text: &mut [u8],
        mac: &[u8; MAC_BYTES],
    ) -> Result<()> {
        match self {
            Self::Ring(key) => {
                let (nonce, tag) = (Nonce::assume_unique_for_key(*iv), Tag::from(*mac));
                let opened = key.open_in_place_separate_tag(nonce, Aad::from(aad), tag, text, 0..);
                opened.map(drop).map_err(|_| Error::Authentication)
            }
            Self::Gcm192(key) => {
                let opened = key.decrypt_inout_detached(iv.into(), aad, text.into(), mac.into());
                opened.map_err(|_| Error::Authentication)
            }
            Self::Ccm128(key) => ccm::open(key, iv, aad, text, mac),
            Self::Ccm192(key) => ccm::open(key, iv, aad, text, mac),
            Self::Ccm256(key) => ccm::open(key, iv, aad, text, mac),
        }
    }

    /// Encrypts `text` in place and returns the MAC. An IV must never be used twice with one key.
    pub fn seal(&self, iv: &[u8; IV_BYTES], aad: &[u8], text: &mut [u8]) -> Result<[u8; MAC_BYTES]> {
        let too_long = Error::Malformed("too long for the cipher");
        let wrong_length = Error::Malformed("MAC length");
        match self {
            Self::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(*iv);
                let tag =
                    key.seal_in_place_separate_tag(nonce, Aad::from(aad), text).map_err(|_| too_long)?;
                tag.as_ref().try_into().map_err(|_| wrong_length)
            }
            Self::Gcm192(key) => {
                let tag = key.encrypt_inout_detached(iv.into(), aad, text.into());
                tag.map(Into::into).map_err(|_| too_long)
            }
            Self::Ccm128(key) => ccm::seal(key, iv, aad, text),
            Self::Ccm192(key) => ccm::seal(key, iv, aad, text),
            Self::Ccm256(key) => ccm::seal(key, iv, aad, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_opens_what_it_sealed_and_nothing_else() {
        for suite in Suite::ALL {
            assert_eq!(Suite::from_raw(suite as u64), Ok(suite));
            let cipher = Cipher::new(suite, &[7; 32][..suite.key_bytes()]).unwrap();
            let mut text = *b"a block of data that is not a multiple of sixteen";
            let plain = text;
            let mac = cipher.seal(&[1; 12], b"aad", &mut text).unwrap();
            assert_ne!(text, plain, "{suite}");
            let sealed = text;
            for (iv, aad) in [([2; 12], b"aad"), ([1; 12], b"abd")] {
                let mut text = sealed;
                assert_eq!(cipher.open(&iv, aad, &mut text, &mac), Err(Error::Authentication), "{suite}");
            }
            assert_eq!(cipher.open(&[1; 12], b"aad", &mut text, &mac), Ok(()), "{suite}");
            assert_eq!(text, plain, "{suite}");
        }
        assert_eq!(Suite::from_raw(2), Err(Error::UnknownSuite(2)));
        assert_eq!(Suite::from_raw(9), Err(Error::UnknownSuite(9)));
    }

    /// The test cases of McGrew and Viega's GCM specification with 60 bytes of text and 20 of AAD: numbers 4,
    /// 10 and 16.
    #[test]
    fn gcm_matches_its_published_vectors() {
        let bytes = |hex: &str| -> Vec<u8> {
            hex.as_bytes()
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect()
        };
        let key = bytes("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
        let iv: [u8; 12] = bytes("cafebabefacedbaddecaf888").try_into().unwrap();
        let aad = bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        for (suite, sealed, tag) in [
            (Suite::Aes128Gcm, "42831ec221777424", "5bc94fbc3221a5db94fae95ae7121a47"),
            (Suite::Aes192Gcm, "3980ca0b3c00e841", "2519498e80f1478f37ba55bd6d27618c"),
            (Suite::Aes256Gcm, "522dc1f099567d07", "76fc6ece0f4e1768cddf8853bb2d551b"),
        ] {
            let mut text = bytes(
                "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
            );
            let cipher = Cipher::new(suite, &key[..suite.key_bytes()]).unwrap();
            let mac = cipher.seal(&iv, &aad, &mut text).unwrap();
            assert_eq!((mac.to_vec(), text[..8].to_vec()), (bytes(tag), bytes(sealed)), "{suite}");
        }
    }
}
