//! Volumes that get another block size: what is written meanwhile, what stays, what is refused.

use std::sync::{Arc, Mutex};

use device::block_on;
use engine::dsl::edit::{self, NewContents, NewDataset, NewSnapshot};
use engine::dsl::{Dsl, Kind, Walk};
use engine::env::{Env, Seeded};
use engine::jobs::JobState;
use engine::pool::live::{Layout, LivePool, Swapped, Syncing, VolumeUsers};
use engine::properties::{Environment, Prop};
use engine::vdev::Class;
use engine::zvol::{LiveZvol, Zvol};
use engine::{Error, Result};
use futures_util::future::LocalBoxFuture;
use futures_util::lock::Mutex as AsyncMutex;
use ondisk::vdev_config::PoolState;

use crate::dedup::{born, unlock};
use crate::random::{KEYS, encrypted, user_key};
use crate::support::{Disks, crashed, new_pool, objset_of, surroundings};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 24 * MIB;

/// The only client of a volume: its requests, and what it must read.
struct Client {
    pool: Arc<LivePool>,
    volume: AsyncMutex<Arc<LiveZvol>>,
    model: Mutex<Vec<u8>>,
    random: Seeded,
}

impl Client {
    async fn new(pool: &Arc<LivePool>, model: Vec<u8>, seed: u64) -> Arc<Self> {
        let volume = pool.volume(objset_of(pool, "vol").await.unwrap()).await.unwrap();
        let (volume, random) = (AsyncMutex::new(volume), Seeded::new(seed));
        Arc::new(Self { pool: Arc::clone(pool), volume, model: Mutex::new(model), random })
    }

    fn pick(&self, below: u64) -> u64 {
        self.random.random() % below
    }

    /// One request: a write, a trim or zeroes, stable or not.
    async fn request(&self) {
        let length = 1 + if self.pick(4) == 0 { self.pick(400_000) } else { self.pick(20_000) };
        let offset = self.pick(SIZE - length + 1);
        let (range, stable) = (offset as usize..(offset + length) as usize, self.pick(3) == 0);
        let volume = self.volume.lock().await;
        match self.pick(6) {
            0 => {
                volume.write_zeroes(offset, length, false, stable).await.unwrap();
                self.model.lock().unwrap()[range].fill(0);
            }
            1 => {
                volume.trim(offset, length, stable).await.unwrap();
                let mut left = vec![0; length as usize];
                volume.read_at(offset, &mut left).await.unwrap();
                self.model.lock().unwrap()[range].copy_from_slice(&left);
            }
            _ => {
                let mut state = self.random.random() | 1;
                let bytes: Vec<u8> = (0..length)
                    .map(|_| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                        (state >> 56) as u8
                    })
                    .collect();
                volume.write_at(offset, &bytes, stable).await.unwrap();
                self.model.lock().unwrap()[range].copy_from_slice(&bytes);
            }
        }
    }

    async fn check(&self) {
        let mut bytes = vec![0; SIZE as usize];
        self.volume.lock().await.read_at(0, &mut bytes).await.unwrap();
        assert!(bytes == *self.model.lock().unwrap(), "the volume holds something else");
    }

    /// Lets complete copies take the volume's place from now on.
    fn may_be_held(self: &Arc<Self>) {
        let users: Arc<dyn VolumeUsers> = Arc::<Self>::clone(self);
        self.pool.set_volume_users(Arc::downgrade(&users));
    }
}

impl VolumeUsers for Client {
    fn exchange<'a>(
        &'a self,
        name: &'a str,
        exchange: LocalBoxFuture<'a, Result<Swapped>>,
    ) -> LocalBoxFuture<'a, Result<Option<Swapped>>> {
        Box::pin(async move {
            assert_eq!(name, "tank/vol");
            let mut held = self.volume.lock().await;
            let swapped = exchange.await?;
            *held = self.pool.volume(objset_of(&self.pool, "vol").await?).await?;
            Ok(Some(swapped))
        })
    }
}

fn typed(properties: &[(&str, &str)]) -> Vec<(String, String)> {
    properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn create(pool: &Arc<LivePool>, name: &str, sparse: bool, properties: &[(&str, &str)]) {
    let contents = NewContents::Volume { size: SIZE, sparse };
    let new = NewDataset { name: format!("tank/{name}"), contents, properties: typed(properties) };
    pool.change(move |s: Syncing| async move { edit::create(&s, &new).await }).await.unwrap();
}

async fn snapshot(pool: &Arc<LivePool>, name: &str) {
    let new = vec![NewSnapshot { name: name.to_owned(), properties: Vec::new() }];
    pool.change(move |s: Syncing| async move { edit::snapshot(&s, &new).await }).await.unwrap();
}

async fn begun(disks: &Disks, layout: (Layout, usize), block: &str) -> Arc<LivePool> {
    begun_as(disks, layout, block, None).await
}

/// The same, in a pool that is encrypted with a suite, or not.
async fn begun_as(
    disks: &Disks,
    (layout, count): (Layout, usize),
    block: &str,
    suite: Option<&str>,
) -> Arc<LivePool> {
    let new = new_pool(vec![disks.top(layout, Class::Normal, "d", count)], 12);
    let new = if let Some(suite) = suite { encrypted(new, suite, &[]) } else { new };
    let pool = born(new, 3).await;
    pool.start().unwrap();
    create(&pool, "vol", true, &[("volblocksize", block), ("compression", "lz4"), ("org.test:a", "b")]).await;
    pool
}

async fn settled(pool: &LivePool) {
    pool.wait_for_jobs(|_, state| state == JobState::Active).await;
}

/// Names of all volumes and snapshots.
async fn names(pool: &Arc<LivePool>) -> Vec<String> {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let mut names = Vec::new();
    for entry in dsl.list(None, Walk::HEADS).await.unwrap() {
        let Some(head) = entry.dataset().filter(|_| entry.kind == Kind::Volume) else { continue };
        names.push(head.name.clone());
        names.extend(dsl.snapshots(head).await.unwrap().into_iter().map(|snapshot| snapshot.name));
    }
    names
}

async fn number(pool: &Arc<LivePool>, name: &str, prop: Prop) -> u64 {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let entry = dsl.entry(name).await.unwrap();
    dsl.properties(&entry, &Environment::UNMOUNTED).await.unwrap().number(prop).unwrap()
}

async fn content(pool: &Arc<LivePool>, name: &str) -> Vec<u8> {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let objset = dsl.open_objset(&dsl.find(name).await.unwrap()).await.unwrap();
    let mut bytes = vec![0; SIZE as usize];
    Zvol::open(&objset).await.unwrap().read_at(0, &mut bytes).await.unwrap();
    bytes
}

#[test]
fn a_volume_gets_another_block_size_while_it_is_written() {
    let layouts = [(Layout::Single, 1), (Layout::Raidz { nparity: 1 }, 3), (Layout::Mirror, 2)];
    let sizes = [("8K", 64 << 10), ("64K", 4 << 10), ("16K", 1 << 20)];
    for ((layout, (from, to)), seed) in layouts.into_iter().zip(sizes).zip(1..) {
        let disks = Disks::new(192 * MIB);
        block_on(async {
            let pool = begun(&disks, layout, from).await;
            let client = Client::new(&pool, vec![0; SIZE as usize], seed).await;
            for _ in 0..120 {
                client.request().await;
            }
            snapshot(&pool, "tank/vol@before").await;
            let before = client.model.lock().unwrap().clone();
            let own = Dsl::open(&pool.view()).await.unwrap().find("tank/vol").await.unwrap().phys.guid;
            let plan = pool.reshape("tank/vol", to).await.unwrap();
            assert!(matches!(pool.reshape("tank/vol", to).await, Err(Error::Busy(_))));
            // A pass after the other, and requests beside them; the copy waits until clients may be held.
            for _ in 0..60 {
                client.request().await;
            }
            while pool.reshapes()[0].last_pass.is_none() {
                client.request().await;
            }
            for _ in 0..60 {
                client.request().await;
            }
            client.may_be_held();
            settled(&pool).await;
            let status = pool.reshapes().remove(0);
            assert_eq!(status.kept.as_deref(), Some(plan.kept.as_str()), "{status:?}");
            client.check().await;
            for _ in 0..20 {
                client.request().await;
            }
            client.check().await;
            pool.change(|_| async { Ok(()) }).await.unwrap();

            let kept = format!("tank/vol.volblocksize-{from}");
            assert_eq!(names(&pool).await, ["tank/vol", &kept, &format!("{kept}@before")]);
            assert_eq!(number(&pool, "tank/vol", Prop::Volblocksize).await, to);
            assert!(content(&pool, &format!("{kept}@before")).await == before);
            let dsl = Dsl::open(&pool.view()).await.unwrap();
            let (new, old) = (dsl.find("tank/vol").await.unwrap(), dsl.find(&kept).await.unwrap());
            assert_eq!(dsl.identity(&new).await.unwrap(), own, "clients know the disk by it");
            assert_eq!(dsl.identity(&old).await.unwrap(), new.phys.guid);
            assert!(!dsl.is_unfinished_copy(&new).await.unwrap());
            let entry = dsl.entry("tank/vol").await.unwrap();
            let set = dsl.properties(&entry, &Environment::UNMOUNTED).await.unwrap();
            assert_eq!(set.number(Prop::Readonly), Some(0));
            assert_eq!(set.number(Prop::Compression), Some(15));
            drop(dsl);
            let model = client.model.lock().unwrap().clone();
            drop(client);
            pool.close(PoolState::Exported).await.unwrap();
            drop(pool);
            disks.judge("tank");
            let pool = disks.import("tank", 9).await;
            assert!(content(&pool, "tank/vol").await == model);
            assert!(pool.reshapes().is_empty());
        });
    }
}

#[test]
fn an_encrypted_volume_stays_encrypted_with_the_same_users_key() {
    let disks = Disks::new(192 * MIB);
    block_on(async {
        let pool = begun_as(&disks, (Layout::Mirror, 2), "16K", Some("aes-128-ccm")).await;
        let client = Client::new(&pool, vec![0; SIZE as usize], 5).await;
        let volume = client.volume.lock().await.clone();
        let text = b"only the owner of the key may ever read this".repeat(3000);
        volume.write_at(MIB, &text, true).await.unwrap();
        client.model.lock().unwrap()[MIB as usize..][..text.len()].copy_from_slice(&text);
        drop(volume);
        for _ in 0..60 {
            client.request().await;
        }
        pool.reshape("tank/vol", 64 << 10).await.unwrap();
        for _ in 0..30 {
            client.request().await;
        }
        let busy = pool.unload_key("tank").await.unwrap_err();
        assert!(matches!(busy, Error::Busy(_)), "{busy}");
        client.may_be_held();
        settled(&pool).await;
        assert!(pool.reshapes()[0].kept.is_some(), "{:?}", pool.reshapes());
        client.check().await;
        for name in ["tank/vol", "tank/vol.volblocksize-16K"] {
            let root = Dsl::open(&pool.view()).await.unwrap().encryption_root_of(name).await.unwrap();
            assert_eq!(root.dir.name, "tank", "{name}");
            // Of its suite, too.
            assert_eq!(number(&pool, name, Prop::Encryption).await, 3, "{name}");
        }
        // One that is a root of its own, and one whose key is not there.
        let env = surroundings(4).env;
        let key = user_key(KEYS[1], &*env);
        let contents = NewContents::Volume { size: SIZE, sparse: true };
        let properties = typed(&[("encryption", "on"), ("keyformat", "hex"), ("volblocksize", "16K")]);
        let new = NewDataset { name: "tank/own".into(), contents, properties };
        pool.change(|s| async move { edit::create_with_key(&s, &new, Some(&key)).await }).await.unwrap();
        let refused = pool.reshape("tank/own", 64 << 10).await.unwrap_err();
        assert!(refused.to_string().contains("zfs change-key -i"), "{refused}");
        let model = client.model.lock().unwrap().clone();
        drop(client);
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        for disk in ["d0", "d1"] {
            let found = testkit::search::find(&disks.file(disk), &text[..44]).unwrap();
            assert_eq!(found, None, "{disk}");
        }
        disks.judge("tank");
        let pool = disks.import("tank", 9).await;
        let locked = pool.reshape("tank/vol", 4 << 10).await.unwrap_err();
        assert!(matches!(locked, Error::KeyNotLoaded { .. }), "{locked}");
        unlock(&pool).await;
        assert!(content(&pool, "tank/vol").await == model);
    });
}

#[test]
fn holes_stay_holes() {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let pool = begun(&disks, (Layout::Single, 1), "16K").await;
        let client = Client::new(&pool, vec![0; SIZE as usize], 1).await;
        let volume = client.volume.lock().await.clone();
        for mib in [1, 2, 3, 9] {
            volume.write_at(mib * MIB, &vec![7; MIB as usize], false).await.unwrap();
        }
        drop(volume);
        pool.reshape("tank/vol", 64 << 10).await.unwrap();
        while pool.reshapes()[0].last_pass.is_none() {
            pool.change(|_| async { Ok(()) }).await.unwrap();
        }
        client.volume.lock().await.trim(2 * MIB, MIB, true).await.unwrap();
        client.may_be_held();
        settled(&pool).await;
        let volume = client.volume.lock().await.clone();
        let extents = volume.extents(0, SIZE, 100).await.unwrap();
        let extents: Vec<_> = extents.iter().map(|extent| (extent.length / MIB, extent.is_hole)).collect();
        assert_eq!(
            extents,
            [(1, true), (1, false), (1, true), (1, false), (5, true), (1, false), (SIZE / MIB - 10, true)]
        );
    });
}

#[test]
fn a_copy_goes_on_after_an_export_and_after_a_crash() {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let pool = begun(&disks, (Layout::Single, 1), "8K").await;
        let client = Client::new(&pool, vec![0; SIZE as usize], 5).await;
        for _ in 0..60 {
            client.request().await;
        }
        pool.reshape("tank/vol", 32 << 10).await.unwrap();
        pool.pause_reshape("tank/vol").await.unwrap();
        let model = client.model.lock().unwrap().clone();
        drop(client);
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        disks.judge("tank");

        let pool = disks.import("tank", 6).await;
        pool.start().unwrap();
        assert_eq!(pool.reshapes()[0].job.state, JobState::Suspended);
        let client = Client::new(&pool, model, 6).await;
        client.check().await;
        for _ in 0..30 {
            client.request().await;
        }
        pool.resume_reshape("tank/vol").await.unwrap();
        while pool.reshapes()[0].last_pass.is_none() {
            client.request().await;
        }
        for _ in 0..30 {
            client.request().await;
        }
        client.volume.lock().await.flush().await.unwrap();
        let model = client.model.lock().unwrap().clone();
        let copy = crashed(&disks);
        drop(client);
        drop(pool);

        let pool = copy.import("tank", 7).await;
        pool.start().unwrap();
        assert_eq!(pool.reshapes()[0].job.state, JobState::Active);
        let client = Client::new(&pool, model, 7).await;
        client.check().await;
        client.request().await;
        client.may_be_held();
        settled(&pool).await;
        client.check().await;
        assert_eq!(number(&pool, "tank/vol", Prop::Volblocksize).await, 32 << 10);
        assert_eq!(names(&pool).await, ["tank/vol", "tank/vol.volblocksize-8K"]);
        drop(client);
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        copy.judge("tank");
    });
}

#[test]
fn what_is_reserved_goes_to_the_new_volume_and_a_canceled_copy_leaves_nothing() {
    let disks = Disks::new(256 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(3)).await.unwrap();
        pool.start().unwrap();
        create(&pool, "vol", false, &[("volblocksize", "8K")]).await;
        let reserved = number(&pool, "tank/vol", Prop::Refreservation).await;
        let client = Client::new(&pool, vec![0; SIZE as usize], 8).await;
        for _ in 0..30 {
            client.request().await;
        }
        pool.reshape("tank/vol", 128 << 10).await.unwrap();
        let held = names(&pool).await;
        pool.cancel_reshape("tank/vol").await.unwrap();
        assert_eq!(names(&pool).await, ["tank/vol"], "before: {held:?}");
        assert!(pool.cancel_reshape("tank/vol").await.is_err());
        client.check().await;

        client.may_be_held();
        pool.reshape("tank/vol", 128 << 10).await.unwrap();
        settled(&pool).await;
        client.check().await;
        let now = number(&pool, "tank/vol", Prop::Refreservation).await;
        assert!(now > SIZE && now < reserved, "fewer blocks need less: {now} of {reserved}");
        assert_eq!(number(&pool, "tank/vol.volblocksize-8K", Prop::Refreservation).await, 0);
        drop(client);
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        disks.judge("tank");
    });
}

#[test]
fn what_cannot_be_done_is_refused() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let pool = begun(&disks, (Layout::Single, 1), "8K").await;
        let begin = async |name: &str, block: u64| pool.reshape(name, block).await.unwrap_err().to_string();
        assert!(begin("tank/vol", 8 << 10).await.contains("already"));
        assert!(begin("tank/vol", 3000).await.contains("power of 2"));
        assert!(begin("tank/vol", 32 << 20).await.contains("power of 2"));
        assert!(begin("tank/vol", 16 << 20).await.contains("multiple"));
        assert!(begin("tank", 8 << 10).await.contains("volume"));
        assert!(begin("tank/none", 8 << 10).await.contains("none"));
        // More data than there is room for once more.
        create(&pool, "large", true, &[("volblocksize", "8K"), ("compression", "off")]).await;
        let large = pool.volume(objset_of(&pool, "large").await.unwrap()).await.unwrap();
        for mib in 0..SIZE / MIB {
            large.write_at(mib * MIB, &vec![1; MIB as usize], false).await.unwrap();
        }
        create(&pool, "more", true, &[]).await;
        pool.change(|_| async { Ok(()) }).await.unwrap();
        let refused = pool.reshape("tank/large", 64 << 10).await.unwrap_err();
        assert!(matches!(refused, Error::NoSpace(_)), "{refused}");
        let plan = pool.plan_reshape("tank/large", 64 << 10).await.unwrap();
        assert!(plan.needed_bytes > SIZE && plan.needed_bytes > plan.available_bytes, "{plan:?}");
        assert_eq!(names(&pool).await, ["tank/large", "tank/more", "tank/vol"]);
    });
}
