//! Blocks of encrypted object sets: encrypted, or authenticated, before their checksum is made.
//!
//! # The idea
//! A request of an encrypted object set has a [`Seal`]: the key of its dataset. After the block is
//! compressed, the seal does with it what its place and type ask for (`codec::crypt` has the formats):
//!
//! | block | what happens to it | what the pointer gets |
//! |---|---|---|
//! | level 0 of a private type | encrypted, in its physical size | salt and IV in place of the third address, MAC in half of the checksum |
//! | came with a raw stream | nothing: it is stored as it came ([`super::encode`]) | salt, IV and MAC of the sender |
//! | dnodes | private bonus areas are encrypted, the rest is authenticated | the same |
//! | level 0 of other types | nothing | a MAC |
//! | above level 0 | nothing | a hash of the MACs in its pointers |
//! | object set | its maker put two MACs into it | no MAC |
//!
//! Only the third address is lost to a pointer of a private type, so such blocks have at most two copies.
//! They are not embedded in pointers, are no nop-writes, and are never overwritten in place. A gang is
//! encrypted as a whole; its members are parts of the ciphertext and know nothing of it.
//!
//! # Deduplicated blocks
//! In a dataset with `dedup`, salt and IV of a block of data come from an HMAC of its bytes, as they are
//! after compression, with the dataset's HMAC key ([`Seal::for_dedup`]). Equal blocks of one key become equal
//! ciphertexts with equal MACs, so they have one entry in a dedup table, and an attacker sees that they are
//! equal: that is the price of `dedup`. Blocks of different keys never look equal. The entry keeps the third
//! address of its pointer, which is the salt and most of the IV. The rest of the IV is in no entry, but each
//! writer of the same bytes knows it.
//!
//! # No two plaintexts have one initialization vector
//! An IV that is used for two different plaintexts under one block key betrays both, and with GCM the key of
//! the MACs. A block key is made of the dataset's key and a salt. So no (key, salt, IV) may ever be used
//! for two plaintexts:
//!
//! - Those of deduplicated blocks are 160 bits of HMAC-SHA512 of the plaintext under a key that only the
//!   dataset has. They come again with the same plaintext alone, and then all that is written is the same
//!   ciphertext once more. Two plaintexts meet after 2^80 blocks. This holds for early writes, for blocks
//!   that become ordinary ones because a table is full, and over rollbacks and crashes, since nothing but the
//!   plaintext decides. A random salt is one of these with a probability of `blocks / 2^64`, and then its IVs
//!   still differ.
//! - For all others, each import and each key has a random salt of 64 bits of its own ([`Ivs`]), and another
//!   one after [`MAX_SALT_USES`] blocks. Each block has a random IV of 96 bits. Both come from the
//!   environment ([`Env::fill_secret`]), for each write anew: nothing is counted on from a stored state.
//!   Therefore a rollback, a rewind, a crash and a replay of an intent log, or a clone that shares the key,
//!   cannot bring back an IV that was used since.
//! - A block is encrypted once for each time that it is written. What is written again after an error of a
//!   device are the same bytes. Log blocks get their IV when they are allocated, and are written once; a
//!   block that was allocated for a log before a crash is not written to again (`zil::claim`).
//! - Blocks that come with a raw stream have the salts and IVs of their sender, who used each for that block
//!   alone: nothing is encrypted when they are stored, so no pair is used once more. What is written to the
//!   dataset here afterwards, under the same key, has a salt of this import, and the sender goes on with
//!   salts of its own. Two of these salts of 64 bits are as seldom equal as those of two imports.
//! - A random IV meets another one under its salt with a probability of `uses^2 / 2^97`: with so many uses,
//!   about one in 10^12.
//!
//! Source of the facts: OpenZFS 2.3 `zio.c` (`zio_encrypt`), `zio_crypt.c`, `dsl_crypt.c`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use codec::crypt::{DatasetKey, IV_BYTES, SALT_BYTES, encrypt_block, indirect_mac};
use device::{IgnorePoison, IoBuf, SharedBuf};
use ondisk::ByteOrder;
use ondisk::blkptr::CryptParts;
use ondisk::dmu::DmuType;

use super::WriteRequest;
use super::encode::{Encoded, level_of};
use crate::env::Env;
use crate::error::{Error, Result};

/// The most blocks that are encrypted under one salt (`ZFS_KEY_MAX_SALT_USES_DEFAULT`).
const MAX_SALT_USES: u64 = 400_000_000;

/// How a block of an encrypted object set is protected.
#[derive(Debug, Clone)]
pub struct Seal {
    /// `None` for an object set whose MACs stay as they are.
    key: Option<Arc<DatasetKey>>,
    from: Source,
}

/// Where salt and initialization vector of a block come from.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// They are not chosen yet, and not needed by every block.
    Nowhere,
    /// They were chosen at random.
    Random([u8; SALT_BYTES], [u8; IV_BYTES]),
    /// They follow from the block's bytes.
    Bytes,
}

/// A sealed block.
#[derive(Debug)]
pub(super) struct Sealed {
    pub bytes: SharedBuf,
    pub crypt: CryptParts,
}

impl Seal {
    /// The protection of blocks of a dataset with this key.
    pub fn of(key: Arc<DatasetKey>) -> Self {
        Self { key: Some(key), from: Source::Nowhere }
    }

    /// The same for a block that is deduplicated, or may be later.
    pub(crate) fn for_dedup(self) -> Self {
        Self { from: Source::Bytes, ..self }
    }

    /// The protection of an object set whose key is not loaded, and of which nothing has changed that its
    /// MACs cover. Nothing else can be written so.
    pub(crate) fn kept() -> Self {
        Self { key: None, from: Source::Nowhere }
    }

    /// The key, if there is one.
    pub(crate) fn key(&self) -> Option<&Arc<DatasetKey>> {
        self.key.as_ref()
    }

    /// Seals a block. `compressed` are the bytes to be stored, if they are not the block's own.
    pub(super) fn seal(&self, request: &WriteRequest, compressed: Option<IoBuf>) -> Result<Sealed> {
        let (ty, order) = (request.dmu_type, ByteOrder::Little);
        let refused = |error: codec::crypt::Error| Error::Invalid(format!("{}: {error}", request.at));
        let stored =
            |compressed: Option<IoBuf>| compressed.map_or_else(|| request.data.to_shared(), SharedBuf::from);
        let mut crypt = CryptParts::default();
        if level_of(request).0 > 0 {
            crypt.mac = indirect_mac(&request.data, order).map_err(refused)?;
            return Ok(Sealed { bytes: stored(compressed), crypt });
        }
        if ty == DmuType::OBJSET {
            return Ok(Sealed { bytes: stored(compressed), crypt });
        }
        let key = self.key.as_ref().ok_or(Error::KeyNotLoaded { at: request.at })?;
        if !ty.is_encrypted() {
            let bytes = stored(compressed);
            crypt.mac = key.mac(&bytes);
            return Ok(Sealed { bytes, crypt });
        }
        let mut bytes = compressed.unwrap_or_else(|| IoBuf::from(&request.data[..]));
        (crypt.salt, crypt.iv) = match self.from {
            Source::Bytes => key.dedup_salt_and_iv(&bytes),
            Source::Random(salt, iv) => (salt, iv),
            Source::Nowhere => {
                let why = format!("{}: a block without an initialization vector", request.at);
                return Err(Error::Invalid(why));
            }
        };
        crypt.mac = encrypt_block(key, ty, order, crypt.salt, crypt.iv, &mut bytes).map_err(refused)?;
        Ok(Sealed { bytes: SharedBuf::from(bytes), crypt })
    }
}

/// Where salts and initialization vectors come from. Cheap to clone; clones share the salts.
#[derive(Debug, Clone)]
pub(super) struct Ivs {
    env: Arc<dyn Env>,
    /// The present salt of each key, by its guid, and how many blocks it was used for. The lock is held for a
    /// few lines.
    salts: Arc<Mutex<HashMap<u64, Salt>>>,
}

#[derive(Debug, Clone, Copy)]
struct Salt {
    bytes: [u8; SALT_BYTES],
    uses: u64,
}

impl Ivs {
    pub fn new(env: Arc<dyn Env>) -> Self {
        Self { env, salts: Arc::default() }
    }

    /// Gives a request the salt and IV that it needs: others than it may have had.
    pub fn give(&self, request: &mut WriteRequest) -> Result<()> {
        let needs_one = request.dmu_type.is_encrypted() && level_of(request).0 == 0;
        if let Some(seal) = request.seal.as_mut().filter(|_| needs_one)
            && let (Some(key), Source::Nowhere | Source::Random(..)) = (&seal.key, seal.from)
        {
            let (salt, iv) = self.next(key)?;
            seal.from = Source::Random(salt, iv);
        }
        Ok(())
    }

    /// Reports the salts and IVs that followed from the bytes of a batch.
    pub fn note(&self, batch: &[WriteRequest], encoded: &[Encoded]) {
        for (request, encoded) in batch.iter().zip(encoded) {
            if let (Some(seal), Encoded::Stored(block)) = (&request.seal, encoded)
                && let (Some(key), Source::Bytes, Some(crypt)) = (&seal.key, seal.from, &block.crypt)
                && request.dmu_type.is_encrypted()
                && level_of(request).0 == 0
            {
                self.env.note_iv_of_bytes(key.guid(), (crypt.salt, crypt.iv), crypt.mac);
            }
        }
    }

    /// Salt and IV for a block that will be encrypted with `key`.
    pub fn next(&self, key: &DatasetKey) -> Result<([u8; SALT_BYTES], [u8; IV_BYTES])> {
        let salt = {
            let mut salts = self.salts.lock().ignore_poison();
            let salt = match salts.get(&key.guid()).filter(|salt| salt.uses < MAX_SALT_USES) {
                Some(salt) => Salt { uses: salt.uses + 1, ..*salt },
                None => {
                    let mut bytes = [0; SALT_BYTES];
                    self.env.fill_secret(&mut bytes)?;
                    Salt { bytes, uses: 1 }
                }
            };
            salts.insert(key.guid(), salt);
            salt.bytes
        };
        let mut iv = [0; IV_BYTES];
        self.env.fill_secret(&mut iv)?;
        self.env.note_iv(key.guid(), salt, iv);
        Ok((salt, iv))
    }
}

#[cfg(test)]
mod tests {
    use codec::crypt::Suite;

    use super::*;
    use crate::env::Seeded;

    #[test]
    fn a_salt_stays_and_ivs_do_not_come_twice() {
        let ivs = Ivs::new(Arc::new(Seeded::new(7)));
        let key = |guid| DatasetKey::from_random(Suite::Aes256Gcm, guid, [1; 32], [2; 64]);
        let (one, other) = (key(1), key(2));
        let (salt, first) = ivs.next(&one).unwrap();
        let (same, second) = ivs.clone().next(&one).unwrap();
        assert_eq!(salt, same);
        assert_ne!(first, second);
        assert_ne!(ivs.next(&other).unwrap().0, salt);
        ivs.salts.lock().unwrap().get_mut(&1).unwrap().uses = MAX_SALT_USES;
        assert_ne!(ivs.next(&one).unwrap().0, salt);
    }
}
