//! Every block of the golden pool's encrypted datasets is authenticated and decrypted.
//!
//! The walk here is the least that reaches the blocks: newest uberblock, MOS, dataset, object set, dnodes, block trees, all from the first leg of the mirror. The wrapped keys
//! and the dataset objects' numbers are those that `zdb -dddd crypt` prints.

use codec::crypt::{DatasetKey, verify_objset_macs};
use codec::crypt::{Error, Suite, WrappedKey, WrappingKey, decrypt_block, verify_indirect_mac};
use codec::{checksum, compress};
use ondisk::blkptr::{Blkptr, Protection};
use ondisk::dmu::DmuType;
use ondisk::dnode::Dnode;
use ondisk::objset::Objset;
use ondisk::uberblock::Uberblock;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

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

/// Reads blocks of one dataset, or of the MOS when there is no key, and counts them by protection.
struct Walk<'a> {
    disk: &'a File,
    key: Option<&'a DatasetKey>,
    seen: BTreeMap<(&'static str, bool), u32>,
}

impl Walk<'_> {
    fn read(&mut self, bp: &Blkptr) -> Vec<u8> {
        let lsize = bp.lsize().get() as usize;
        if let Some(embedded) = bp.embedded() {
            let mut block = vec![0; lsize];
            compress::decompress(embedded.compress, embedded.bytes(), &mut block).unwrap();
            return block;
        }
        let mut stored = vec![0; bp.psize().get() as usize];
        self.disk.read_exact_at(&mut stored, bp.dva(0).unwrap().offset.get() + (4 << 20)).unwrap();
        let (ty, order, expected) = (bp.checksum_type(), bp.byte_order(), bp.checksum());
        if bp.uses_crypt() && bp.dmu_type() != DmuType::OBJSET {
            checksum::verify_encrypted(ty, &stored, order, None, &expected).unwrap();
        } else {
            checksum::verify(ty, &stored, order, None, &expected).unwrap();
        }
        if let Some(key) = self.key {
            decrypt_block(key, bp, &mut stored).unwrap_or_else(|error| panic!("{bp}: {error}"));
        }
        let mut block = vec![0; lsize];
        compress::decompress(bp.compress(), &stored, &mut block)
            .unwrap_or_else(|error| panic!("{bp}: {error}"));
        let kind = match bp.protection() {
            Protection::None => "none",
            Protection::Encrypted => "encrypted",
            Protection::Authenticated => "authenticated",
            Protection::IndirectMac => {
                verify_indirect_mac(bp, &block).unwrap_or_else(|error| panic!("{bp}: {error}"));
                "indirect"
            }
        };
        *self.seen.entry((kind, bp.dmu_type() == DmuType::DNODE)).or_default() += 1;
        block
    }

    /// The level 0 blocks below `bp`, by block id.
    fn data(&mut self, bp: &Blkptr, id: usize, data: &mut BTreeMap<usize, Vec<u8>>) {
        if bp.is_hole() {
            return;
        }
        let block = self.read(bp);
        if bp.level().get() == 0 {
            data.insert(id, block);
            return;
        }
        let fanout = block.len() / Blkptr::SIZE;
        for (index, child) in block.chunks_exact(Blkptr::SIZE).enumerate() {
            self.data(&Blkptr::parse(child, bp.byte_order()).unwrap(), id * fanout + index, data);
        }
    }

    fn object(&mut self, dnode: &Dnode) -> BTreeMap<usize, Vec<u8>> {
        let mut data = BTreeMap::new();
        dnode.spill.iter().for_each(|bp| self.data(bp, 0, &mut BTreeMap::new()));
        dnode.blkptrs.iter().enumerate().for_each(|(id, bp)| self.data(bp, id, &mut data));
        data
    }

    /// All dnodes of an object set by object number.
    fn dnodes(&mut self, root: &Blkptr) -> (Objset, BTreeMap<usize, Dnode>) {
        let objset = Objset::parse(&self.read(root), root.byte_order()).unwrap();
        let mut dnodes = BTreeMap::new();
        for (id, block) in self.object(&objset.meta_dnode) {
            let mut slot = 0;
            while slot < 32 {
                let dnode = Dnode::parse(&block[512 * slot..], objset.order).unwrap();
                let used = dnode.as_ref().map_or(1, Dnode::slots);
                dnode.map(|dnode| dnodes.insert(32 * id + slot, dnode));
                slot += used as usize;
            }
        }
        (objset, dnodes)
    }
}

/// The root block pointers of the datasets, read through the newest uberblock.
fn dataset_roots(disk: &File) -> BTreeMap<usize, Blkptr> {
    let uberblocks = (0..128).filter_map(|slot| {
        let mut bytes = [0; 1024];
        disk.read_exact_at(&mut bytes, (128 << 10) + 1024 * slot).unwrap();
        Uberblock::parse(&bytes).ok()
    });
    let newest = uberblocks.max_by_key(|uberblock| uberblock.recency()).unwrap();
    let mut mos = Walk { disk, key: None, seen: BTreeMap::new() };
    let (_, dnodes) = mos.dnodes(&newest.root_bp);
    let datasets = dnodes.iter().filter(|(_, dnode)| dnode.bonus_type == DmuType::DSL_DATASET);
    datasets
        .map(|(&object, dnode)| (object, Blkptr::parse(&dnode.bonus[128..256], dnode.order).unwrap()))
        .collect()
}

fn walk(dataset: &Dataset, wrapping_key: &WrappingKey, disk: &File) {
    let key = dataset.wrapped_key().unwrap(wrapping_key).unwrap();
    let root = dataset_roots(disk)[&dataset.object];
    let mut walk = Walk { disk, key: Some(&key), seen: BTreeMap::new() };
    let (objset, dnodes) = walk.dnodes(&root);
    let accounting = [&objset.user_used_dnode, &objset.group_used_dnode, &objset.project_used_dnode];
    for dnode in accounting.into_iter().flatten().chain(dnodes.values()) {
        walk.object(dnode);
    }
    for kind in ["encrypted", "authenticated", "indirect"] {
        let count =
            walk.seen.iter().filter(|((seen, _), _)| *seen == kind).map(|(_, count)| count).sum::<u32>();
        assert!(count > 0, "no {kind} block in {:?}", walk.seen);
    }
    assert!(walk.seen[&("encrypted", true)] > 0, "no encrypted dnode block");
    assert!(!walk.seen.contains_key(&("none", false)), "unprotected blocks: {:?}", walk.seen);

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
