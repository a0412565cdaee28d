//! Deduplication in encrypted datasets: equal blocks of one key are one ciphertext, those of two keys are
//! two, and a block that is deduplicated is as secret as another one.

use std::sync::Arc;

use device::block_on;
use engine::Error;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::live::{LivePool, Syncing};
use engine::zpl::LiveZpl;
use ondisk::ObjectId;
use ondisk::blkptr::{Blkptr, Protection};
use ondisk::vdev_config::PoolState;
use testkit::search;

use crate::dedup::{
    BLOCK, born, check, content, create, deduplicating, export, mirror, of_number, open, pointers, set,
    snapshot, unlock,
};
use crate::dedup_traps::{commit_groups, write};
use crate::random::encrypted;
use crate::scrub::scrubbed;
use crate::support::{Disks, committing};

async fn add(pool: &Arc<LivePool>, name: &str, properties: &[(&str, &str)]) -> Arc<LiveZpl> {
    let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let new =
        NewDataset { name: name.into(), contents: NewContents::Filesystem, properties: properties.collect() };
    pool.change(|s: Syncing| async move { edit::create(&s, &new).await }).await.unwrap();
    open(pool, name).await
}

async fn first(zpl: &LiveZpl, file: ObjectId) -> Blkptr {
    pointers(zpl, file).await[0]
}

#[test]
fn equal_blocks_of_one_key_are_one_ciphertext_and_those_of_others_are_not() {
    for (is_fast, suite) in [(true, "aes-256-gcm"), (false, "aes-192-ccm")] {
        let disks = Disks::new(128 << 20);
        block_on(async {
            let new = encrypted(deduplicating(mirror(&disks), "on", is_fast), suite, &[("copies", "2")]);
            let pool = born(new, 1).await;
            let zpl = open(&pool, "tank").await;
            let plain = add(&pool, "tank/plain", &[("encryption", "off")]).await;
            // A dataset has a key of its own, also where it inherits that of its user.
            let below = add(&pool, "tank/below", &[]).await;
            let file = create(&zpl, "file").await;
            write(&zpl, file, 0, [1, 1, 2].into_iter()).await;
            pool.sync().await.unwrap();
            snapshot(&pool, "tank@s").await;
            let clone = |s: Syncing| async move { edit::clone(&s, "tank@s", "tank/clone", &[]).await };
            pool.change(clone).await.unwrap();
            let clone = open(&pool, "tank/clone").await;
            let mut found = Vec::new();
            for zpl in [&zpl, &clone, &below, &plain] {
                let file = create(zpl, "one more").await;
                write(zpl, file, 0, [1].into_iter()).await;
                pool.sync().await.unwrap();
                found.push(first(zpl, file).await);
            }
            check(&pool).await;
            let here = pointers(&zpl, file).await;
            assert_eq!(here[0].dva(0), here[1].dva(0));
            let [again, in_clone, below_it, in_plain] = found[..] else { panic!("{found:?}") };
            for same in [&again, &in_clone, &here[1]] {
                assert!(same.is_dedup() && same.protection() == Protection::Encrypted, "{same}");
                assert!(same.dvas().eq(here[0].dvas()) && same.copies() == 2, "{same}");
                let sealed = |bp: &Blkptr| (bp.salt(), bp.iv(), bp.mac(), bp.checksum());
                assert_eq!(sealed(same), sealed(&here[0]));
            }
            for other in [&here[2], &below_it, &in_plain] {
                assert!(other.is_dedup() && other.dva(0) != here[0].dva(0), "{other}");
                assert_ne!(other.checksum(), here[0].checksum());
            }
            assert_ne!((here[2].salt(), here[2].iv()), (here[0].salt(), here[0].iv()));
            assert_eq!(in_plain.protection(), Protection::None);
            // Two copies of three references to one block.
            assert_eq!(pool.saved_by_clones(), 2 * 3 * BLOCK);
            drop((zpl, plain, below, clone));
            export(pool, &disks).await;
            // Without a key, and with it.
            for with_key in [false, true] {
                let pool = disks.import("tank", 2).await;
                pool.start().unwrap();
                let scan = scrubbed(&pool).await;
                assert_eq!((scan.processed, scan.errors), (0, 0));
                if with_key {
                    unlock(&pool).await;
                    let zpl = open(&pool, "tank").await;
                    let bytes: Vec<u8> = [1, 1, 2].into_iter().flat_map(of_number).collect();
                    assert!(content(&zpl, file).await == bytes);
                }
                pool.close(PoolState::Exported).await.unwrap();
            }
        });
        disks.judge("tank");
    }
}

/// What goes away without the key is freed once, and what is left is read with it.
#[test]
fn references_go_without_the_key_that_made_them() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let new = encrypted(deduplicating(mirror(&disks), "verify", true), "aes-256-gcm", &[]);
        let pool = born(new, 1).await;
        let zpl = open(&pool, "tank").await;
        let file = create(&zpl, "file").await;
        write(&zpl, file, 0, 0..20).await;
        pool.sync().await.unwrap();
        snapshot(&pool, "tank@s").await;
        // The snapshot has ten of these blocks alone.
        zpl.truncate(file, 10 * BLOCK).await.unwrap();
        let other = create(&zpl, "other").await;
        write(&zpl, other, 0, 5..15).await;
        check(&pool).await;
        drop(zpl);
        export(pool, &disks).await;

        let pool = disks.import("tank", 2).await;
        let locked = pool.filesystem(id(&pool).await).await.unwrap_err();
        assert!(matches!(locked, Error::KeyNotLoaded { .. }), "{locked}");
        crate::dedup::destroy_snapshot(&pool, "tank@s").await;
        commit_groups(&pool).await;
        check(&pool).await;
        assert_eq!(pool.saved_by_clones(), 5 * BLOCK);
        unlock(&pool).await;
        let zpl = open(&pool, "tank").await;
        for (file, numbers) in [(file, 0..10), (other, 5..15)] {
            assert!(content(&zpl, file).await == numbers.flat_map(of_number).collect::<Vec<u8>>());
        }
        drop(zpl);
        export(pool, &disks).await;
    });
}

async fn id(pool: &Arc<LivePool>) -> ondisk::ObjsetId {
    Dsl::open(&pool.view()).await.unwrap().find("tank").await.unwrap().objset_id()
}

#[test]
fn nothing_of_a_deduplicated_block_is_readable_on_the_devices() {
    let disks = Disks::new(128 << 20);
    let planted = of_number(7);
    block_on(async {
        let new = encrypted(deduplicating(mirror(&disks), "on", true), "aes-256-gcm", &[]);
        let pool = born(new, 1).await;
        let zpl = open(&pool, "tank").await;
        for name in ["one", "other"] {
            let file = create(&zpl, name).await;
            write(&zpl, file, 0, [7].into_iter()).await;
            pool.sync().await.unwrap();
        }
        assert_eq!(pool.saved_by_clones(), BLOCK);
        committing(&pool, set(&pool, "tank", "dedup", "off")).await;
        let file = create(&zpl, "plain").await;
        write(&zpl, file, 0, [7].into_iter()).await;
        check(&pool).await;
        let [dedup, alone] = [b"one", b"plain" as &[u8]].map(|name| zpl.lookup(zpl.zpl().root(), name));
        let (dedup, alone) = (dedup.await.unwrap().unwrap(), alone.await.unwrap().unwrap());
        let (dedup, alone) = (first(&zpl, dedup).await, first(&zpl, alone).await);
        assert!(dedup.is_dedup() && !alone.is_dedup());
        assert_ne!((dedup.salt(), dedup.iv()), (alone.salt(), alone.iv()), "not from the bytes");
        drop(zpl);
        export(pool, &disks).await;
    });
    for disk in ["d0", "d1"] {
        assert_eq!(search::find(&disks.file(disk), &planted[..64]).unwrap(), None, "{disk}");
    }
}
