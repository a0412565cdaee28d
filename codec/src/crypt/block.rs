//! Decrypting and encrypting one block in place.
//!
//! The secret parts of a block (`super::layout`) are gathered into one text, run through the cipher of the
//! block's salt, and put back. A block that is secret as a whole, which is nearly every one, is run where it
//! stands.

use super::key::DatasetKey;
use super::layout::{Layout, intent_log_mac};
use super::mac::verify_objset_macs;
use super::{Error, IV_BYTES, MAC_BYTES, Result, SALT_BYTES};
use ondisk::ByteOrder;
use ondisk::blkptr::{Blkptr, Protection};
use ondisk::dmu::DmuType;

/// Verifies the block that `bp` points to, and decrypts it in place if it is encrypted.
///
/// `block` is the block as stored, of physical size, its checksum already verified. After an error its
/// content is meaningless. Blocks that carry no protection of their own, and indirect blocks (see
/// [`super::verify_indirect_mac`]), are left alone.
pub fn decrypt_block(key: &DatasetKey, bp: &Blkptr, block: &mut [u8]) -> Result<()> {
    let (ty, order) = (bp.dmu_type(), bp.byte_order());
    match bp.protection() {
        Protection::None | Protection::IndirectMac => Ok(()),
        Protection::Authenticated if ty == DmuType::OBJSET => verify_objset_macs(key, block, order),
        Protection::Authenticated if key.mac(block) == bp.mac() => Ok(()),
        Protection::Authenticated => Err(Error::Authentication),
        Protection::Encrypted => {
            let mac = if ty == DmuType::INTENT_LOG { intent_log_mac(block)? } else { bp.mac() };
            let cipher = key.block_cipher(bp.salt())?;
            transform(key, ty, order, block, |aad, text| cipher.open(&bp.iv(), aad, text, &mac))
        }
    }
}

/// Encrypts a level 0 block of this type in place and returns its MAC, which goes into the block pointer (of
/// an intent log block: into its header).
///
/// `iv` must never have been used with this salt, except for the same bytes
/// ([`DatasetKey::dedup_salt_and_iv`]).
pub fn encrypt_block(
    key: &DatasetKey,
    ty: DmuType,
    order: ByteOrder,
    salt: [u8; SALT_BYTES],
    iv: [u8; IV_BYTES],
    block: &mut [u8],
) -> Result<[u8; MAC_BYTES]> {
    let cipher = key.block_cipher(salt)?;
    transform(key, ty, order, block, |aad, text| cipher.seal(&iv, aad, text))
}

/// Runs `cipher` over the secret parts of the block as one text, and wipes what belongs to no part.
fn transform<T>(
    key: &DatasetKey,
    ty: DmuType,
    order: ByteOrder,
    block: &mut [u8],
    cipher: impl FnOnce(&[u8], &mut [u8]) -> Result<T>,
) -> Result<T> {
    let layout = Layout::of(ty, key.version(), order, block)?;
    let result = match &layout.secret[..] {
        [whole] => cipher(&layout.aad, &mut block[whole.clone()])?,
        parts => {
            let mut text: Vec<u8> = parts.iter().flat_map(|part| &block[part.clone()]).copied().collect();
            let result = cipher(&layout.aad, &mut text)?;
            let mut rest = &text[..];
            for part in parts {
                let (head, tail) = rest.split_at(part.len());
                block[part.clone()].copy_from_slice(head);
                rest = tail;
            }
            result
        }
    };
    block[layout.end..].fill(0);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypt::Suite;
    use ondisk::blkptr::{BlkptrParts, ChecksumType, CompressType, CryptParts, Dva};
    use ondisk::{Asize, ByteOffset, Level, Lsize, Psize, Txg, VdevId};
    use proptest::prelude::*;

    const SALT: [u8; SALT_BYTES] = *b"saltsalt";
    const IV: [u8; IV_BYTES] = *b"never twice!";

    fn pointer(ty: DmuType, order: ByteOrder, size: usize, mac: [u8; MAC_BYTES]) -> Blkptr {
        let parts = BlkptrParts {
            dvas: vec![Dva { vdev: VdevId(0), offset: ByteOffset(0), asize: Asize(4096), gang: false }],
            lsize: Lsize(size as u64),
            psize: Psize(size as u64),
            compress: CompressType::Off,
            checksum_type: ChecksumType::Fletcher4,
            checksum: [0; 4],
            dmu_type: ty,
            level: Level(0),
            dedup: false,
            byte_order: order,
            logical_birth: Txg(4),
            physical_birth: Txg(4),
            fill: 1,
            crypt: Some(CryptParts { salt: SALT, iv: IV, mac }),
        };
        parts.build().unwrap()
    }

    /// A block of one dnode with a private bonus area, then free slots.
    fn dnode_block() -> Vec<u8> {
        let mut block = vec![0; 16384];
        block[0] = DmuType::PLAIN_FILE_CONTENTS.raw();
        block[3] = 1;
        block[4] = DmuType::SA.raw();
        block[10] = 100;
        block[192..512].fill(0x77);
        block
    }

    #[test]
    fn core_of_a_dnode_stays_readable_and_is_protected() {
        let key = DatasetKey::from_random(Suite::Aes256Gcm, 1, [1; 32], [2; 64]);
        let mut block = dnode_block();
        let mac = encrypt_block(&key, DmuType::DNODE, ByteOrder::Little, SALT, IV, &mut block).unwrap();
        assert_eq!(block[..192], dnode_block()[..192]);
        assert_ne!(block[192..512], dnode_block()[192..512]);
        let bp = pointer(DmuType::DNODE, ByteOrder::Little, block.len(), mac);
        let mut opened = block.clone();
        assert_eq!(decrypt_block(&key, &bp, &mut opened), Ok(()));
        assert_eq!(opened, dnode_block());
        // Space used may change without the key, the size of data blocks may not.
        let mut moved = block.clone();
        moved[24] ^= 1;
        assert_eq!(decrypt_block(&key, &bp, &mut moved), Ok(()));
        for at in [8, 200, 1000] {
            let mut changed = block.clone();
            changed[at] ^= 1;
            assert_eq!(decrypt_block(&key, &bp, &mut changed), Err(Error::Authentication), "byte {at}");
        }
    }

    #[test]
    fn authenticated_blocks_are_judged_and_left_readable() {
        let key = DatasetKey::from_random(Suite::Aes128Ccm, 1, [1; 32], [2; 64]);
        let block = vec![5; 512];
        let bp = pointer(DmuType::MASTER_NODE, ByteOrder::Little, 512, key.mac(&block));
        assert_eq!(decrypt_block(&key, &bp, &mut block.clone()), Ok(()));
        assert_eq!(decrypt_block(&key, &bp, &mut vec![6; 512]), Err(Error::Authentication));
    }

    #[test]
    fn an_intent_log_block_carries_its_own_mac() {
        let key = DatasetKey::from_random(Suite::Aes256Gcm, 1, [1; 32], [2; 64]);
        let mut block = vec![0; 4096];
        block[136..144].copy_from_slice(&(184u64 + 72).to_le_bytes());
        block[184] = 1;
        block[192] = 72;
        block[216..256].fill(0x33);
        let plain = block.clone();
        block[300] = 9;
        let mac = encrypt_block(&key, DmuType::INTENT_LOG, ByteOrder::Little, SALT, IV, &mut block).unwrap();
        block[168..184].copy_from_slice(&mac);
        let bp = pointer(DmuType::INTENT_LOG, ByteOrder::Little, block.len(), [0; 16]);
        assert_eq!(decrypt_block(&key, &bp, &mut block), Ok(()));
        assert_eq!(block[184..], plain[184..]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn what_is_encrypted_can_be_decrypted_with_every_suite(
            text in proptest::collection::vec(any::<u8>(), 1..9), sectors in 1usize..9, big: bool, suite in 0usize..6, flip: proptest::sample::Index,
        ) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let key = DatasetKey::from_random(Suite::ALL[suite], 1, [1; 32], [2; 64]);
            let plain: Vec<u8> = text.iter().copied().cycle().take(sectors * 512).collect();
            let ty = DmuType::PLAIN_FILE_CONTENTS;
            let mut block = plain.clone();
            let mac = encrypt_block(&key, ty, order, SALT, IV, &mut block).unwrap();
            let bp = pointer(ty, order, plain.len(), mac);
            let mut changed = block.clone();
            *flip.get_mut(&mut changed) ^= 0x10;
            prop_assert_eq!(decrypt_block(&key, &bp, &mut changed), Err(Error::Authentication));
            prop_assert_eq!(decrypt_block(&key, &bp, &mut block), Ok(()));
            prop_assert_eq!(block, plain);
        }
    }
}
