//! Every block of the encrypted datasets is authenticated and decrypted.
//!
//! The wrapped keys and the numbers of the dataset objects are those that `zdb -dddd crypt` prints.

use crate::walk::{Walk, read_front, uberblock};
use codec::checksum::verify_zilog;
use codec::crypt::{Error, Suite, WrappedKey, WrappingKey, decrypt_block, verify_objset_macs};
use ondisk::ByteOrder;
use ondisk::blkptr::{Blkptr, Protection};
use std::fs::File;

struct Dataset {
    object: usize,
    suite: Suite,
    guid: i64,
    iv: &'static str,
    mac: &'static str,
    master_key: &'static str,
    hmac_key: &'static str,
}

const GCM: Dataset = Dataset {
    object: 138,
    suite: Suite::Aes256Gcm,
    guid: -6800626243779327783,
    iv: "33065d1aa9038f6e194a39e2",
    mac: "0c83d4b5be15dca6f3b8297925f5bb69",
    master_key: "0b5cceb9c5031b31f9e21b3d66c1df946ec4b149b628009a97cbbee221ac4db0",
    hmac_key: "f882620fa8cbad3fa7786638e04540b2a45268d63a61445e1ee9430b1cf6567b9865fd21943f5394f43b8f06de8ae7d74744a17dc0a2f153bd02908bf6f1771e",
};

/// Inherits the passphrase of its parent.
const GCM_CHILD: Dataset = Dataset {
    object: 149,
    suite: Suite::Aes256Gcm,
    guid: -6768613040072943544,
    iv: "191bf140956868aa3a9bf3a6",
    mac: "9f679469e53513007e1b6011ed56d197",
    master_key: "49a1d7d9789ab88cee5be09fc4932c34d1a7313674fda3dab187e59b0d8a5feb",
    hmac_key: "b48dc3566dbe171dbdf8333a03fbb4df01bc3b50ddc92769b309c10dfabe886c4aa76daef6c921da18c389a443720e5717d636f5ec9a0f30bbda534e4f44e842",
};

const CCM: Dataset = Dataset {
    object: 77,
    suite: Suite::Aes128Ccm,
    guid: 5660297133215679979,
    iv: "6fd92a3fc442d0e9ee64186f",
    mac: "e3f49cdb37f82f1714edea3de77307e3",
    master_key: "3fa0beb58915aa8086df1aa74b261c0d00000000000000000000000000000000",
    hmac_key: "4f5626917daea8d60017925420ec2ac83838b9a889f81e4ddb1cd1fe8cc6b54d9f5684a5e5624dad1327763057dc3d9b2ac0a969accc652ca610811900ebbb75",
};

const VOLUME: Dataset = Dataset {
    object: 160,
    suite: Suite::Aes256Gcm,
    guid: 6997272302369279016,
    iv: "5eb69e48e039c3d1649ace2a",
    mac: "939da2684792f6cea577228c87549cdf",
    master_key: "eafca80641810797a0e522715591bda4390bdab70536c5b255c2e9f7d6d4bf54",
    hmac_key: "c243fef1dd93e4feb798ed126e4894c17bb740e3979081fa7669698e34a8b4e31463412b197627ff4388464d6342d47b8a3dc470e54b1525e3d533a0d801037b",
};

const SALT: i64 = -4661126270285459544;
const ITERATIONS: u64 = 350_000;

fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
}

impl Dataset {
    fn wrapped_key(&self) -> WrappedKey {
        WrappedKey {
            suite: self.suite,
            guid: self.guid.cast_unsigned(),
            version: 1,
            iv: bytes(self.iv),
            mac: bytes(self.mac),
            master_key: bytes(self.master_key),
            hmac_key: bytes(self.hmac_key),
        }
    }
}

fn walk(dataset: &Dataset, wrapping_key: &WrappingKey, disk: &File) {
    let key = dataset.wrapped_key().unwrap(wrapping_key).unwrap();
    let fetch = |bp: &Blkptr| read_front(disk, bp.dva(0).unwrap().offset.get(), bp.psize().get());
    let root = Walk::new(&fetch, None).dataset_roots(&uberblock(disk))[&dataset.object];
    let mut walk = Walk::new(&fetch, Some(&key));
    let (objset, dnodes) = walk.dnodes(&root);
    walk.objects(&objset, &dnodes);
    for protection in [Protection::Encrypted, Protection::Authenticated, Protection::IndirectMac] {
        assert!(
            walk.seen.iter().any(|&(seen, _)| seen == protection),
            "no {protection:?} block in {:?}",
            walk.seen
        );
    }
    assert!(walk.seen.contains(&(Protection::Encrypted, true)), "no encrypted dnode block");
    assert!(
        walk.seen.iter().all(|&(seen, _)| seen != Protection::None),
        "unprotected blocks: {:?}",
        walk.seen
    );

    // The type of the object set is under a MAC.
    let mut block = walk.read(&root);
    block[704] ^= 1;
    assert_eq!(verify_objset_macs(&key, &block, root.byte_order()), Err(Error::Authentication));
}

fn disk() -> Option<(testkit::GoldenPool, File)> {
    let pool = testkit::golden::pool("crypt")?;
    let disk = File::open(&pool.disks()[0]).unwrap();
    Some((pool, disk))
}

#[test]
fn datasets_under_a_passphrase_are_decrypted() {
    let Some((pool, disk)) = disk() else { return };
    let passphrase = pool.expect_text("pass").unwrap();
    let key =
        WrappingKey::from_passphrase(passphrase.trim_end().as_bytes(), SALT.cast_unsigned(), ITERATIONS)
            .unwrap();
    walk(&GCM, &key, &disk);
    walk(&GCM_CHILD, &key, &disk);
    let wrong = WrappingKey::from_passphrase(b"correct horse 2", SALT.cast_unsigned(), ITERATIONS).unwrap();
    assert_eq!(GCM.wrapped_key().unwrap(&wrong).unwrap_err(), Error::WrongKey);
}

#[test]
fn a_dataset_under_a_raw_key_in_ccm_mode_is_decrypted() {
    let Some((pool, disk)) = disk() else { return };
    let key = WrappingKey::from_raw(&std::fs::read(pool.expect("rawkey")).unwrap()).unwrap();
    walk(&CCM, &key, &disk);
}

#[test]
fn a_volume_under_a_hex_key_is_decrypted() {
    let Some((pool, disk)) = disk() else { return };
    let key = WrappingKey::from_hex(pool.expect_text("hex").unwrap().trim_end().as_bytes()).unwrap();
    walk(&VOLUME, &key, &disk);
}

/// The logs are empty since the export, but the first log block of the filesystem and of the volume still lie
/// on the disk, as do the object sets that led to them.
#[test]
fn intent_log_blocks_are_authenticated() {
    let Some((pool, disk)) = disk() else { return };
    let passphrase = pool.expect_text("pass").unwrap();
    let passphrase = passphrase.trim_end().as_bytes();
    let passphrase_key = WrappingKey::from_passphrase(passphrase, SALT.cast_unsigned(), ITERATIONS).unwrap();
    let hex_key = WrappingKey::from_hex(pool.expect_text("hex").unwrap().trim_end().as_bytes()).unwrap();
    for (dataset, wrapping_key, objset_at) in [(GCM, passphrase_key, 0x2f_cc00), (VOLUME, hex_key, 0x75_8c00)]
    {
        let key = dataset.wrapped_key().unwrap(&wrapping_key).unwrap();
        let zil_header = read_front(&disk, objset_at + 512, 192);
        let bp = Blkptr::parse(&zil_header[16..144], ByteOrder::Little).unwrap();
        let mut block = read_front(&disk, bp.dva(0).unwrap().offset.get(), bp.psize().get());
        let order = verify_zilog(bp.checksum_type(), &block, &bp.checksum(), true);
        assert_eq!(order, Ok(ByteOrder::Little));
        let mut changed = block.clone();
        changed[20] ^= 1;
        assert_eq!(decrypt_block(&key, &bp, &mut block), Ok(()));
        assert_eq!(decrypt_block(&key, &bp, &mut changed), Err(Error::Authentication));
    }
}
