//! DSL crypto keys: the wrapped keys of an encrypted dataset.
//!
//! Each encrypted dataset has a master key and an HMAC key of its own (clones share their origin's). They lie
//! encrypted ("wrapped") in a ZAP of the MOS, which the dataset's directory names under
//! [`CRYPTO_KEY_OBJ`](crate::dsl_dir::field::CRYPTO_KEY_OBJ). What they are wrapped with comes from the user,
//! and is the same for all datasets that inherit from one encryption root.
//!
//! | key | integers | meaning |
//! |---|---|---|
//! | `DSL_CRYPTO_SUITE` | 1 of 8 bytes | cipher (`zio_encrypt`) |
//! | `DSL_CRYPTO_GUID` | 1 of 8 | identity of the master key |
//! | `DSL_CRYPTO_VERSION` | 1 of 8 | version of the wrapping, 0 when absent |
//! | `DSL_CRYPTO_IV` | 12 of 1 | IV of the wrapping |
//! | `DSL_CRYPTO_MAC` | 16 of 1 | MAC of the wrapping |
//! | `DSL_CRYPTO_MASTER_KEY_1` | 32 of 1 | master key, wrapped; shorter keys fill the front |
//! | `DSL_CRYPTO_HMAC_KEY_1` | 64 of 1 | HMAC key, wrapped |
//! | `DSL_CRYPTO_ROOT_DDOBJ` | 1 of 8 | directory of the encryption root |
//! | `DSL_CRYPTO_REFCOUNT` | 1 of 8 | directories that use this object |
//! | `keyformat` | 1 of 8 | [`KeyFormat`] of the user's key |
//! | `pbkdf2salt`, `pbkdf2iters` | 1 of 8 | how a passphrase becomes a key |
//!
//! Format, salt and iterations are repeated in every key below an encryption root, but only the root's own
//! count.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_crypt.h`, `dsl_crypt.c`, `zio_crypt.h`.

use crate::zap::ZapValue;
use crate::{Error, Guid, ObjectId, Result};

const WHAT: &str = "crypto key";

/// Names of the entries.
pub mod key {
    /// Cipher.
    pub const SUITE: &str = "DSL_CRYPTO_SUITE";
    /// Identity of the master key.
    pub const GUID: &str = "DSL_CRYPTO_GUID";
    /// Version of the wrapping.
    pub const VERSION: &str = "DSL_CRYPTO_VERSION";
    /// IV of the wrapping.
    pub const IV: &str = "DSL_CRYPTO_IV";
    /// MAC of the wrapping.
    pub const MAC: &str = "DSL_CRYPTO_MAC";
    /// Master key.
    pub const MASTER_KEY: &str = "DSL_CRYPTO_MASTER_KEY_1";
    /// HMAC key.
    pub const HMAC_KEY: &str = "DSL_CRYPTO_HMAC_KEY_1";
    /// Directory of the encryption root.
    pub const ROOT_DDOBJ: &str = "DSL_CRYPTO_ROOT_DDOBJ";
    /// Directories that use this object.
    pub const REFCOUNT: &str = "DSL_CRYPTO_REFCOUNT";
    /// Format of the user's key.
    pub const KEYFORMAT: &str = "keyformat";
    /// Salt of PBKDF2.
    pub const PBKDF2_SALT: &str = "pbkdf2salt";
    /// Iterations of PBKDF2.
    pub const PBKDF2_ITERS: &str = "pbkdf2iters";
}

/// In which form the user gives the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyFormat {
    /// 32 bytes.
    Raw,
    /// 64 hexadecimal digits.
    Hex,
    /// A passphrase of 8 to 512 bytes, from which PBKDF2 makes the key.
    Passphrase,
}

impl KeyFormat {
    /// The format of this number.
    pub fn from_raw(raw: u64) -> Result<KeyFormat> {
        match raw {
            1 => Ok(KeyFormat::Raw),
            2 => Ok(KeyFormat::Hex),
            3 => Ok(KeyFormat::Passphrase),
            other => Err(Error::unsupported(WHAT, format!("key format {other}"))),
        }
    }

    /// The number on disk.
    pub const fn raw(self) -> u64 {
        match self {
            KeyFormat::Raw => 1,
            KeyFormat::Hex => 2,
            KeyFormat::Passphrase => 3,
        }
    }

    /// The value of the property `keyformat`.
    pub const fn name(self) -> &'static str {
        match self {
            KeyFormat::Raw => "raw",
            KeyFormat::Hex => "hex",
            KeyFormat::Passphrase => "passphrase",
        }
    }
}

/// The entries of a DSL crypto key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DslCryptoKey {
    /// Cipher, a number of `zio_encrypt`.
    pub suite: u64,
    /// Identity of the master key.
    pub guid: Guid,
    /// Version of the wrapping.
    pub version: u64,
    /// IV of the wrapping.
    pub iv: [u8; 12],
    /// MAC of the wrapping.
    pub mac: [u8; 16],
    /// Master key, wrapped.
    pub master_key: [u8; 32],
    /// HMAC key, wrapped.
    pub hmac_key: [u8; 64],
    /// Directory of the encryption root.
    pub root_dd: ObjectId,
    /// Directories that use this object.
    pub refcount: u64,
    /// Format of the user's key.
    pub keyformat: KeyFormat,
    /// Salt of PBKDF2, 0 without passphrase.
    pub pbkdf2_salt: u64,
    /// Iterations of PBKDF2, 0 without passphrase.
    pub pbkdf2_iters: u64,
}

impl DslCryptoKey {
    /// From all entries of the ZAP, in any order; unknown ones are ignored.
    pub fn from_entries<'a>(
        entries: impl IntoIterator<Item = (&'a [u8], &'a ZapValue)>,
    ) -> Result<DslCryptoKey> {
        let entries: Vec<_> = entries.into_iter().collect();
        let find =
            |name: &str| entries.iter().find(|(key, _)| *key == name.as_bytes()).map(|(_, value)| *value);
        let optional = |name: &str| match find(name) {
            None => Ok(None),
            Some(ZapValue::U64(words)) if words.len() == 1 => Ok(words.first().copied()),
            Some(_) => Err(wrong_form(name)),
        };
        let number = |name: &str| optional(name)?.ok_or_else(|| Error::missing(WHAT, name));
        Ok(DslCryptoKey {
            suite: number(key::SUITE)?,
            guid: Guid(number(key::GUID)?),
            version: optional(key::VERSION)?.unwrap_or(0),
            iv: bytes(key::IV, find(key::IV))?,
            mac: bytes(key::MAC, find(key::MAC))?,
            master_key: bytes(key::MASTER_KEY, find(key::MASTER_KEY))?,
            hmac_key: bytes(key::HMAC_KEY, find(key::HMAC_KEY))?,
            root_dd: ObjectId(number(key::ROOT_DDOBJ)?),
            refcount: optional(key::REFCOUNT)?.unwrap_or(1),
            keyformat: KeyFormat::from_raw(number(key::KEYFORMAT)?)?,
            pbkdf2_salt: optional(key::PBKDF2_SALT)?.unwrap_or(0),
            pbkdf2_iters: optional(key::PBKDF2_ITERS)?.unwrap_or(0),
        })
    }

    /// The entries of the ZAP.
    pub fn entries(&self) -> Vec<(&'static str, ZapValue)> {
        let number = |number: u64| ZapValue::U64(vec![number]);
        let bytes = |bytes: &[u8]| ZapValue::U8(bytes.to_vec());
        vec![
            (key::SUITE, number(self.suite)),
            (key::GUID, number(self.guid.get())),
            (key::VERSION, number(self.version)),
            (key::IV, bytes(&self.iv)),
            (key::MAC, bytes(&self.mac)),
            (key::MASTER_KEY, bytes(&self.master_key)),
            (key::HMAC_KEY, bytes(&self.hmac_key)),
            (key::ROOT_DDOBJ, number(self.root_dd.get())),
            (key::REFCOUNT, number(self.refcount)),
            (key::KEYFORMAT, number(self.keyformat.raw())),
            (key::PBKDF2_SALT, number(self.pbkdf2_salt)),
            (key::PBKDF2_ITERS, number(self.pbkdf2_iters)),
        ]
    }
}

fn wrong_form(name: &str) -> Error {
    Error::invalid(WHAT, format!("{name} has not the form that it must have"))
}

fn bytes<const N: usize>(name: &str, value: Option<&ZapValue>) -> Result<[u8; N]> {
    let value = value.ok_or_else(|| Error::missing(WHAT, name))?;
    value.as_bytes().and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| wrong_form(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> DslCryptoKey {
        DslCryptoKey {
            suite: 8,
            guid: Guid(1),
            version: 1,
            iv: [2; 12],
            mac: [3; 16],
            master_key: [4; 32],
            hmac_key: [5; 64],
            root_dd: ObjectId(6),
            refcount: 7,
            keyformat: KeyFormat::Passphrase,
            pbkdf2_salt: 8,
            pbkdf2_iters: 350_000,
        }
    }

    fn parse(entries: &[(&'static str, ZapValue)]) -> Result<DslCryptoKey> {
        DslCryptoKey::from_entries(entries.iter().map(|(name, value)| (name.as_bytes(), value)))
    }

    #[test]
    fn the_oldest_form_has_no_version() {
        let mut entries = sample().entries();
        entries.retain(|(name, _)| *name != key::VERSION);
        assert_eq!(parse(&entries).unwrap().version, 0);
    }

    #[test]
    fn a_key_that_lacks_a_part_or_has_it_in_another_size_is_refused() {
        for (at, (name, _)) in sample().entries().iter().enumerate() {
            let mut entries = sample().entries();
            entries[at].1 = ZapValue::U8(vec![0; 13]);
            assert!(parse(&entries).is_err(), "{name}");
        }
        let mut entries = sample().entries();
        entries.retain(|(name, _)| *name != key::MASTER_KEY);
        assert_eq!(parse(&entries), Err(Error::missing(WHAT, key::MASTER_KEY)));
    }

    proptest! {
        #[test]
        fn entries_round_trip(suite: u64, guid: u64, root: u64, format in 1..4u64, salt: u64, iv: [u8; 12]) {
            let mut expected = sample();
            expected.suite = suite;
            expected.guid = Guid(guid);
            expected.root_dd = ObjectId(root);
            expected.keyformat = KeyFormat::from_raw(format).unwrap();
            expected.pbkdf2_salt = salt;
            expected.iv = iv;
            prop_assert_eq!(parse(&expected.entries()).unwrap(), expected);
        }
    }
}
