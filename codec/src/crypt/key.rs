//! Keys: from what the user types to the cipher of one block.
//!
//! | step | how |
//! |---|---|
//! | passphrase to wrapping key | PBKDF2-HMAC-SHA1 over the passphrase, salt property as 8 little-endian bytes, `pbkdf2iters` rounds, 32 bytes out |
//! | hex, raw to wrapping key | the 32 bytes themselves |
//! | wrapping key to dataset key | AES-256 in the mode of the suite; text: master key (16, 24 or 32 bytes), then HMAC key (64); AAD: guid, suite, version, each 8 bytes little-endian (version 0: guid only) |
//! | dataset key to block key | HKDF-SHA512 of the master key, no salt, info: the 8-byte salt of the block |
//!
//! Source: OpenZFS 2.3 `libzfs_crypto.c`, `zio_crypt.c`, `hkdf.c`.

use super::cipher::{Cipher, Suite};
use super::locked::Locked;
use super::{Error, IV_BYTES, MAC_BYTES, Result, SALT_BYTES};
use ring::{hkdf, hmac, pbkdf2};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock};

const WRAPPING_KEY_BYTES: usize = 32;
const HMAC_KEY_BYTES: usize = 64;
const MASTER_KEY_MAX_BYTES: usize = 32;

/// Newest format of the MACs, and the only one written.
pub(super) const CURRENT_VERSION: u64 = 1;

/// How many block keys a dataset key keeps. A new salt is chosen at each import and every 400 million blocks.
const CACHED_BLOCK_KEYS: usize = 64;

/// Bytes that are wiped when dropped.
struct Secret<const N: usize>([u8; N]);

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.0.fill(0);
        // Makes the stores observable, so that they are not removed as dead.
        std::hint::black_box(&self.0);
    }
}

/// The key that opens a dataset's key; what the user knows.
pub struct WrappingKey(Locked<Secret<WRAPPING_KEY_BYTES>>);

impl WrappingKey {
    /// `keyformat=passphrase`, with the properties `pbkdf2salt` and `pbkdf2iters`.
    pub fn from_passphrase(passphrase: &[u8], salt: u64, iterations: u64) -> Result<Self> {
        let iterations = u32::try_from(iterations).ok().and_then(NonZeroU32::new);
        let iterations = iterations.ok_or(Error::KeyFormat("number of PBKDF2 iterations"))?;
        let mut key = Secret([0; WRAPPING_KEY_BYTES]);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, iterations, &salt.to_le_bytes(), passphrase, &mut key.0);
        Ok(Self(Locked::new(key)))
    }

    /// `keyformat=hex`: 64 digits.
    pub fn from_hex(digits: &[u8]) -> Result<Self> {
        if digits.len() != 2 * WRAPPING_KEY_BYTES {
            return Err(Error::KeyFormat("a hex key has 64 digits"));
        }
        let mut key = Secret([0; WRAPPING_KEY_BYTES]);
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            for &digit in pair {
                let value =
                    char::from(digit).to_digit(16).ok_or(Error::KeyFormat("not a hexadecimal digit"))?;
                *byte = *byte << 4 | value as u8;
            }
        }
        Ok(Self(Locked::new(key)))
    }

    /// `keyformat=raw`: 32 bytes.
    pub fn from_raw(bytes: &[u8]) -> Result<Self> {
        let key = bytes.try_into().map_err(|_| Error::KeyFormat("a raw key has 32 bytes"))?;
        Ok(Self(Locked::new(Secret(key))))
    }

    /// The bytes that [`WrappingKey::from_raw`] takes, for another process of the same user that goes on with
    /// what this one has open. Whatever they are copied to has to be wiped.
    pub fn for_another_process(&self) -> &[u8; WRAPPING_KEY_BYTES] {
        &self.0.0
    }
}

impl fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrappingKey(…)")
    }
}

/// A dataset's key as the pool stores it: the ZAP entries of a DSL crypto key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKey {
    /// `DSL_CRYPTO_SUITE`
    pub suite: Suite,
    /// `DSL_CRYPTO_GUID`
    pub guid: u64,
    /// `DSL_CRYPTO_VERSION`, 0 when absent
    pub version: u64,
    /// `DSL_CRYPTO_IV`
    pub iv: [u8; IV_BYTES],
    /// `DSL_CRYPTO_MAC`
    pub mac: [u8; MAC_BYTES],
    /// `DSL_CRYPTO_MASTER_KEY_1`; shorter keys fill the front
    pub master_key: [u8; MASTER_KEY_MAX_BYTES],
    /// `DSL_CRYPTO_HMAC_KEY_1`
    pub hmac_key: [u8; HMAC_KEY_BYTES],
}

impl WrappedKey {
    fn aad(&self) -> ([u8; 24], usize) {
        let mut aad = [0; 24];
        for (slot, word) in aad.chunks_exact_mut(8).zip([self.guid, self.suite as u64, self.version]) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        (aad, if self.version == 0 { 8 } else { 24 })
    }

    /// Opens the key. [`Error::WrongKey`] when `wrapping_key` is not the one it was wrapped with.
    pub fn unwrap(&self, wrapping_key: &WrappingKey) -> Result<DatasetKey> {
        if self.version > CURRENT_VERSION {
            return Err(Error::UnknownVersion(self.version));
        }
        let key_bytes = self.suite.key_bytes();
        let mut text = Secret([0; MASTER_KEY_MAX_BYTES + HMAC_KEY_BYTES]);
        let text = &mut text.0[..key_bytes + HMAC_KEY_BYTES];
        text[..key_bytes].copy_from_slice(&self.master_key[..key_bytes]);
        text[key_bytes..].copy_from_slice(&self.hmac_key);
        let (aad, aad_bytes) = self.aad();
        let cipher = Cipher::new(self.suite.wrapping(), &wrapping_key.0.0)?;
        cipher.open(&self.iv, &aad[..aad_bytes], text, &self.mac).map_err(|_| Error::WrongKey)?;

        let mut master_key = Secret([0; MASTER_KEY_MAX_BYTES]);
        master_key.0[..key_bytes].copy_from_slice(&text[..key_bytes]);
        let mut hmac_key = Secret([0; HMAC_KEY_BYTES]);
        hmac_key.0.copy_from_slice(&text[key_bytes..]);
        Ok(DatasetKey::new(self.suite, self.guid, self.version, master_key, hmac_key))
    }
}

/// An opened dataset key. All blocks of a dataset, its snapshots and clones are read and written with it.
///
/// The cache of block keys is behind a lock that is held for a look-up only; hits share it.
pub struct DatasetKey {
    suite: Suite,
    guid: u64,
    version: u64,
    keys: Locked<Keys>,
    block_keys: RwLock<BlockKeys>,
}

/// What must be known by no one of a dataset's key.
struct Keys {
    master: Secret<MASTER_KEY_MAX_BYTES>,
    hmac: Secret<HMAC_KEY_BYTES>,
    /// The same, expanded.
    expanded: hmac::Key,
}

impl DatasetKey {
    fn new(suite: Suite, guid: u64, version: u64, master_key: Secret<32>, hmac_key: Secret<64>) -> Self {
        let expanded = hmac::Key::new(hmac::HMAC_SHA512, &hmac_key.0);
        let keys = Locked::new(Keys { master: master_key, hmac: hmac_key, expanded });
        Self { suite, guid, version, keys, block_keys: RwLock::default() }
    }

    /// A new key from random bytes.
    pub fn from_random(suite: Suite, guid: u64, master_key: [u8; 32], hmac_key: [u8; 64]) -> Self {
        Self::new(suite, guid, CURRENT_VERSION, Secret(master_key), Secret(hmac_key))
    }

    /// The cipher of the dataset.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Guid of the key, the same for a dataset and its clones.
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// Format version of MACs under this key.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Wraps the key for storage. `iv` is random and never used again.
    pub fn wrap(&self, wrapping_key: &WrappingKey, iv: [u8; IV_BYTES]) -> Result<WrappedKey> {
        let key_bytes = self.suite.key_bytes();
        let mut wrapped = WrappedKey {
            suite: self.suite,
            guid: self.guid,
            version: self.version,
            iv,
            mac: [0; MAC_BYTES],
            master_key: [0; MASTER_KEY_MAX_BYTES],
            hmac_key: [0; HMAC_KEY_BYTES],
        };
        let mut text = Secret([0; MASTER_KEY_MAX_BYTES + HMAC_KEY_BYTES]);
        let text = &mut text.0[..key_bytes + HMAC_KEY_BYTES];
        text[..key_bytes].copy_from_slice(&self.keys.master.0[..key_bytes]);
        text[key_bytes..].copy_from_slice(&self.keys.hmac.0);
        let (aad, aad_bytes) = wrapped.aad();
        let cipher = Cipher::new(self.suite.wrapping(), &wrapping_key.0.0)?;
        wrapped.mac = cipher.seal(&iv, &aad[..aad_bytes], text)?;
        wrapped.master_key[..key_bytes].copy_from_slice(&text[..key_bytes]);
        wrapped.hmac_key.copy_from_slice(&text[key_bytes..]);
        Ok(wrapped)
    }

    /// HMAC-SHA512 of `data`, cut to the length of a MAC.
    pub fn mac(&self, data: &[u8]) -> [u8; MAC_BYTES] {
        truncate(hmac::sign(&self.keys.expanded, data).as_ref())
    }

    /// Salt and IV of a block under dedup: from its plaintext, so that equal blocks become equal ciphertext.
    pub fn dedup_salt_and_iv(&self, plaintext: &[u8]) -> ([u8; SALT_BYTES], [u8; IV_BYTES]) {
        let tag = hmac::sign(&self.keys.expanded, plaintext);
        let digest: [u8; SALT_BYTES + IV_BYTES] = truncate(tag.as_ref());
        (truncate(&digest), truncate(&digest[SALT_BYTES..]))
    }

    /// Starts an HMAC-SHA512 with the dataset's HMAC key.
    pub(super) fn hmac(&self) -> hmac::Context {
        hmac::Context::with_key(&self.keys.expanded)
    }

    /// The cipher of the blocks with this salt.
    pub(super) fn block_cipher(&self, salt: [u8; SALT_BYTES]) -> Result<Arc<Locked<Cipher>>> {
        // A poisoned cache is still a cache: entries are complete before they are put in.
        if let Some(cipher) = self.block_keys.read().unwrap_or_else(PoisonError::into_inner).get(salt) {
            return Ok(cipher);
        }
        let cipher = Arc::new(Locked::new(self.derive(salt)?));
        self.block_keys.write().unwrap_or_else(PoisonError::into_inner).put(salt, Arc::clone(&cipher));
        Ok(cipher)
    }

    fn derive(&self, salt: [u8; SALT_BYTES]) -> Result<Cipher> {
        struct Length(usize);
        impl hkdf::KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        let key_bytes = self.suite.key_bytes();
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA512, &[]).extract(&self.keys.master.0[..key_bytes]);
        let mut block_key = Secret([0; MASTER_KEY_MAX_BYTES]);
        let block_key = &mut block_key.0[..key_bytes];
        let info = [&salt[..]];
        let filled = extracted.expand(&info, Length(key_bytes)).and_then(|output| output.fill(block_key));
        filled.map_err(|_| Error::KeyFormat("length"))?;
        Cipher::new(self.suite, block_key)
    }
}

impl fmt::Debug for DatasetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatasetKey({}, guid {}, …)", self.suite, self.guid)
    }
}

/// The first `N` bytes; `bytes` has at least as many.
fn truncate<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut head = [0; N];
    head.copy_from_slice(&bytes[..N]);
    head
}

/// The block keys used last, replaced in turn.
#[derive(Default)]
struct BlockKeys {
    entries: Vec<([u8; SALT_BYTES], Arc<Locked<Cipher>>)>,
    oldest: usize,
}

impl BlockKeys {
    fn get(&self, salt: [u8; SALT_BYTES]) -> Option<Arc<Locked<Cipher>>> {
        self.entries.iter().find(|(entry, _)| *entry == salt).map(|(_, cipher)| Arc::clone(cipher))
    }

    fn put(&mut self, salt: [u8; SALT_BYTES], cipher: Arc<Locked<Cipher>>) {
        if self.entries.len() < CACHED_BLOCK_KEYS {
            self.entries.push((salt, cipher));
        } else if let Some(entry) = self.entries.get_mut(self.oldest) {
            *entry = (salt, cipher);
            self.oldest = (self.oldest + 1) % CACHED_BLOCK_KEYS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_wrapping_key_opens_a_dataset_key() {
        let right = WrappingKey::from_raw(&[1; 32]).unwrap();
        let wrong = WrappingKey::from_raw(&[2; 32]).unwrap();
        for suite in Suite::ALL {
            let key = DatasetKey::from_random(suite, 99, [3; 32], [4; 64]);
            let wrapped = key.wrap(&right, [5; 12]).unwrap();
            let opened = wrapped.unwrap(&right).unwrap();
            let used = suite.key_bytes();
            assert_eq!(
                (opened.guid, opened.keys.master.0[..used].to_vec(), opened.keys.hmac.0),
                (99, vec![3; used], [4; 64])
            );
            assert_eq!(wrapped.unwrap(&wrong).unwrap_err(), Error::WrongKey);
            let moved = WrappedKey { guid: 98, ..wrapped.clone() };
            assert_eq!(moved.unwrap(&right).unwrap_err(), Error::WrongKey);
            let future = WrappedKey { version: 2, ..wrapped };
            assert_eq!(future.unwrap(&right).unwrap_err(), Error::UnknownVersion(2));
        }
    }

    #[test]
    fn keys_of_the_wrong_form_are_refused() {
        assert!(WrappingKey::from_raw(&[0; 31]).is_err());
        assert!(WrappingKey::from_raw(&[0; 33]).is_err());
        assert!(WrappingKey::from_hex(&[b'a'; 63]).is_err());
        assert!(WrappingKey::from_hex(&[b'g'; 64]).is_err());
        assert!(WrappingKey::from_passphrase(b"secret", 1, 0).is_err());
        assert_eq!(WrappingKey::from_hex(&[b'A'; 64]).unwrap().0.0, [0xaa; 32]);
    }

    #[test]
    fn keys_are_not_printed() {
        let key = DatasetKey::from_random(Suite::Aes256Gcm, 7, [0xab; 32], [0xcd; 64]);
        assert_eq!(format!("{key:?}"), "DatasetKey(aes-256-gcm, guid 7, …)");
    }

    #[test]
    fn more_salts_than_the_cache_holds_still_give_right_keys() {
        let key = DatasetKey::from_random(Suite::Aes256Gcm, 7, [0xab; 32], [0xcd; 64]);
        let mac_of =
            |salt: u64| key.block_cipher(salt.to_le_bytes()).unwrap().seal(&[0; 12], b"x", &mut []).unwrap();
        let first: Vec<_> = (0..200).map(mac_of).collect();
        let again: Vec<_> = (0..200).map(mac_of).collect();
        assert_eq!(first, again);
        assert!(key.block_keys.read().unwrap().entries.len() <= CACHED_BLOCK_KEYS);
    }
}
