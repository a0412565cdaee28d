//! [`KeyData`]: the list `crypt_keydata` in the `BEGIN` of a raw stream.
//!
//! It has the wrapped keys of the dataset as they are stored ([`crate::crypto_key`]), how a passphrase
//! becomes the key with which they are wrapped, and what the receiver's dnode of all dnodes must be for its
//! blocks to be those of the sender.
//!
//! | name | value |
//! |---|---|
//! | `DSL_CRYPTO_SUITE`, `DSL_CRYPTO_GUID`, `DSL_CRYPTO_VERSION` | u64 |
//! | `DSL_CRYPTO_MASTER_KEY_1`, `DSL_CRYPTO_HMAC_KEY_1` | 32 and 64 bytes, wrapped |
//! | `DSL_CRYPTO_IV`, `DSL_CRYPTO_MAC` | 12 and 16 bytes, of the wrapping |
//! | `portable_mac` | 32 bytes, of the object set |
//! | `keyformat`, `pbkdf2iters`, `pbkdf2salt` | u64, of the encryption root |
//! | `mdn_checksum`, `mdn_compress`, `mdn_nlevels`, `mdn_blksz`, `mdn_indblkshift`, `mdn_nblkptr`, `mdn_maxblkid` | u64 |
//! | `to_ivset_guid`, `from_ivset_guid` | u64, not there in streams of old versions |
//!
//! A list that parses is complete, and its numbers are in their bounds.
//!
//! Source of the facts: OpenZFS 2.4 `dsl_crypt.c` (`dsl_crypto_recv_raw_*_check`).

use crate::blkptr::{ChecksumType, CompressType};
use crate::crypto_key::{KeyFormat, key};
use crate::dnode::{DNODE_BLOCK_SIZE, Dnode};
use crate::nvlist::Nvlist;
use crate::{BlockId, Error, Guid, Result};

const WHAT: &str = "keys of a raw stream";
/// The only version of wrapped keys in streams.
const KEY_VERSION: u64 = 1;
/// Block pointers of the dnode of all dnodes.
const POINTERS: u64 = 3;
/// log2 of the sizes that indirect blocks have.
const INDIRECT_SHIFTS: std::ops::RangeInclusive<u64> = 12..=17;

/// What a raw stream says of keys and structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyData {
    /// Cipher, a number of `zio_encrypt`.
    pub suite: u64,
    /// Identity of the master key.
    pub guid: Guid,
    /// Version of the wrapping.
    pub version: u64,
    /// Master key, wrapped.
    pub master_key: [u8; 32],
    /// HMAC key, wrapped.
    pub hmac_key: [u8; 64],
    /// IV of the wrapping.
    pub iv: [u8; 12],
    /// MAC of the wrapping.
    pub mac: [u8; 16],
    /// Format of the user's key.
    pub keyformat: KeyFormat,
    /// Iterations of PBKDF2, 0 without passphrase.
    pub pbkdf2_iters: u64,
    /// Salt of PBKDF2, 0 without passphrase.
    pub pbkdf2_salt: u64,
    /// The object set.
    pub objset: RawObjset,
    /// The set of IVs of the snapshot that is sent; 0 where it is not told.
    pub to_ivset: Guid,
    /// The set of IVs of the snapshot from which the stream goes on; 0 where it is not told.
    pub from_ivset: Guid,
}

/// What an object set must be for the blocks of a raw stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawObjset {
    /// The MAC over what all machines have in common of it.
    pub portable_mac: [u8; 32],
    /// Checksum function of the dnode of all dnodes.
    pub checksum: ChecksumType,
    /// Its compression.
    pub compress: CompressType,
    /// Its levels.
    pub levels: u8,
    /// log2 of the size of its indirect blocks.
    pub indirect_block_shift: u8,
    /// Its last block.
    pub max_block_id: BlockId,
}

impl KeyData {
    /// From the list.
    pub fn parse(list: &Nvlist) -> Result<KeyData> {
        let number = |name: &str| list.get_u64(name);
        let version = number(key::VERSION)?;
        if version != KEY_VERSION {
            return Err(Error::unsupported(WHAT, format!("keys of version {version}")));
        }
        let keyformat = KeyFormat::from_raw(number(key::KEYFORMAT)?)?;
        let (pbkdf2_iters, pbkdf2_salt) = (number(key::PBKDF2_ITERS)?, number(key::PBKDF2_SALT)?);
        let is_passphrase = keyformat == KeyFormat::Passphrase;
        if is_passphrase != (pbkdf2_iters != 0) || is_passphrase != (pbkdf2_salt != 0) {
            return Err(Error::invalid(WHAT, "rounds and salt of PBKDF2 do not fit its key format"));
        }
        Ok(KeyData {
            suite: number(key::SUITE)?,
            guid: Guid(number(key::GUID)?),
            version,
            master_key: bytes(list, key::MASTER_KEY)?,
            hmac_key: bytes(list, key::HMAC_KEY)?,
            iv: bytes(list, key::IV)?,
            mac: bytes(list, key::MAC)?,
            keyformat,
            pbkdf2_iters,
            pbkdf2_salt,
            objset: RawObjset::parse(list)?,
            to_ivset: Guid(list.find_u64("to_ivset_guid").unwrap_or(0)),
            from_ivset: Guid(list.find_u64("from_ivset_guid").unwrap_or(0)),
        })
    }
}

impl RawObjset {
    fn parse(list: &Nvlist) -> Result<RawObjset> {
        let number = |name: &str| list.get_u64(name);
        let refused = |name: &str, value: u64| Error::invalid(WHAT, format!("{name} is {value}"));
        let small = |name: &str| {
            let value = number(name)?;
            u8::try_from(value).map_err(|_| refused(name, value))
        };
        let levels = small("mdn_nlevels")?;
        if levels == 0 || levels > Dnode::MAX_LEVELS {
            return Err(refused("mdn_nlevels", levels.into()));
        }
        let shift = number("mdn_indblkshift")?;
        let indirect_block_shift = match u8::try_from(shift) {
            Ok(fits) if INDIRECT_SHIFTS.contains(&shift) => fits,
            _ => return Err(refused("mdn_indblkshift", shift)),
        };
        for (name, only) in [("mdn_nblkptr", POINTERS), ("mdn_blksz", DNODE_BLOCK_SIZE as u64)] {
            let value = number(name)?;
            if value != only {
                return Err(Error::unsupported(WHAT, format!("{name} is {value}, and must be {only}")));
            }
        }
        let max_block_id = number("mdn_maxblkid")?;
        let shift = (u32::from(indirect_block_shift) - crate::blkptr::Blkptr::SHIFT)
            .saturating_mul(u32::from(levels) - 1);
        if max_block_id.checked_shr(shift).unwrap_or(0) >= POINTERS {
            return Err(refused("mdn_maxblkid", max_block_id));
        }
        Ok(RawObjset {
            portable_mac: bytes(list, "portable_mac")?,
            checksum: ChecksumType::from_raw(small("mdn_checksum")?)?,
            compress: CompressType::from_raw(small("mdn_compress")?)?,
            levels,
            indirect_block_shift,
            max_block_id: BlockId(max_block_id),
        })
    }
}

fn bytes<const N: usize>(list: &Nvlist, name: &str) -> Result<[u8; N]> {
    let found = list.get_byte_array(name)?;
    let length = || Error::invalid(WHAT, format!("{name} has {} bytes, and must have {N}", found.len()));
    found.try_into().map_err(|_| length())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvlist::NvValue;

    fn sample() -> Nvlist {
        let mut list = Nvlist::new();
        for (name, value) in [
            (key::SUITE, 8),
            (key::GUID, 77),
            (key::VERSION, 1),
            (key::KEYFORMAT, 3),
            (key::PBKDF2_ITERS, 350_000),
            (key::PBKDF2_SALT, 5),
            ("mdn_checksum", 0),
            ("mdn_compress", 0),
            ("mdn_nlevels", 7),
            ("mdn_blksz", 16384),
            ("mdn_indblkshift", 17),
            ("mdn_nblkptr", 3),
            ("mdn_maxblkid", 4),
            ("to_ivset_guid", 9),
        ] {
            list.push(name, value);
        }
        for (name, length) in
            [(key::MASTER_KEY, 32), (key::HMAC_KEY, 64), (key::IV, 12), (key::MAC, 16), ("portable_mac", 32)]
        {
            list.push(name, NvValue::Uint8Array(vec![1; length]));
        }
        list
    }

    #[test]
    fn a_list_has_all_that_a_key_object_has() {
        let data = KeyData::parse(&sample()).unwrap();
        assert_eq!((data.suite, data.guid, data.keyformat), (8, Guid(77), KeyFormat::Passphrase));
        assert_eq!((data.to_ivset, data.from_ivset), (Guid(9), Guid(0)));
        assert_eq!((data.objset.levels, data.objset.max_block_id), (7, BlockId(4)));
    }

    #[test]
    fn lists_that_lack_something_or_are_out_of_bounds_are_refused() {
        let names: Vec<_> = sample().iter().map(|(name, _)| name.to_string()).collect();
        for name in names.iter().filter(|name| *name != "to_ivset_guid") {
            let mut list = sample();
            list.remove(name);
            assert!(KeyData::parse(&list).is_err(), "without {name}");
            list.push(name.as_str(), NvValue::Uint8Array(vec![0; 13]));
            assert!(KeyData::parse(&list).is_err(), "{name} of 13 bytes");
        }
        for (name, value) in [
            (key::VERSION, 0),
            (key::KEYFORMAT, 1),
            (key::KEYFORMAT, 9),
            (key::PBKDF2_SALT, 0),
            ("mdn_nlevels", 0),
            ("mdn_nlevels", 31),
            ("mdn_blksz", 512),
            ("mdn_indblkshift", 9),
            ("mdn_indblkshift", 24),
            ("mdn_nblkptr", 1),
            ("mdn_maxblkid", u64::MAX),
            ("mdn_checksum", 300),
            ("mdn_compress", 99),
        ] {
            let mut list = sample();
            list.set(name, value);
            assert!(KeyData::parse(&list).is_err(), "{name} is {value}");
        }
    }
}
