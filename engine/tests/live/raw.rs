//! Raw streams: what is received without any key is what was sent, once the key is there. The judges are the
//! MACs of the sender, which the reader verifies; the stream that is made of the copy; a scrub; and `zdb`.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::block_on;
use engine::dsl::edit::{self, KeyChange, NewSnapshot};
use engine::dsl::keys::{KeyFormat, UserKey};
use engine::dsl::{Dsl, Entry, Walk};
use engine::env::Seeded;
use engine::pool::live::{LivePool, Syncing};
use engine::properties::{Environment, Prop, Style, UserProperty};
use engine::receive::{ReceiveTarget, Receiver, Records};
use engine::send::{Flags, Order, Plan, Stream};
use engine::zpl::live::{WriteOptions, XattrPlace};
use engine::zpl::{LiveZpl, Zpl};
use engine::zvol::Zvol;
use engine::{Error, Pool};
use ondisk::ByteOrder;
use ondisk::nvlist::{Encoding, NvValue, Nvlist};
use ondisk::send::{Begin, KeyData, Record, StreamWriter, begin_key, feature, record_flag};
use ondisk::vdev_config::PoolState;
use testkit::{GoldenPool, Rng};

use crate::encrypted::{load_keys, plant};
use crate::files::{FILE, Seen, change, see};
use crate::golden_support;
use crate::receive::{pool_on, receive, records};
use crate::scrub::scrubbed;
use crate::support::{Disks, POOL, committing};

const FILESYSTEMS: [&str; 3] = ["gcm", "gcm/child", "ccm"];
const VOLUME: &str = "vol";
const KEYS: [(&str, &str); 4] = [("gcm", "pass"), ("gcm/child", "pass"), ("ccm", "rawkey"), ("vol", "hex")];

/// A pool with encrypted datasets, open with its keys, and one into which they are received.
pub(crate) struct Pair {
    golden: GoldenPool,
    pub(crate) source: Arc<LivePool>,
    target: Arc<LivePool>,
    source_disks: Disks,
    target_disks: Disks,
    random: Seeded,
}

impl Pair {
    pub(crate) async fn new(seed: u64) -> Option<Self> {
        let golden = testkit::golden::pool("crypt")?;
        let source_disks = Disks::of_golden("crypt")?;
        let source = source_disks.import("crypt", seed).await;
        committing(&source, load_keys(&golden, &source)).await;
        let target_disks = Disks::new(512 << 20);
        let target = pool_on(&target_disks).await;
        source.start().unwrap();
        target.start().unwrap();
        Some(Self { golden, source, target, source_disks, target_disks, random: Seeded::new(seed) })
    }

    /// The user's key of a dataset.
    pub(crate) fn key(&self, name: &str) -> Vec<u8> {
        let (_, file) = KEYS.iter().find(|(of, _)| *of == name).unwrap();
        let key = std::fs::read(self.golden.expect(file)).unwrap();
        if *file == "rawkey" { key } else { key.trim_ascii_end().to_vec() }
    }

    pub(crate) async fn filesystem(&self, name: &str) -> Arc<LiveZpl> {
        filesystem(&self.source, &format!("crypt/{name}")).await
    }

    async fn change_all(&self, count: usize) {
        for name in FILESYSTEMS {
            let zpl = self.filesystem(name).await;
            for _ in 0..count {
                committing(&self.source, change(&zpl, &self.random, XattrPlace::Attributes)).await;
            }
        }
        let volume = self.source.volume(id(&self.source, "crypt/vol").await).await.unwrap();
        for _ in 0..count / 2 {
            let offset = self.random_below(volume.size() / 4096 - 64) * 4096;
            let bytes = vec![self.random_below(255) as u8 + 1; 4096 * (1 + self.random_below(60) as usize)];
            committing(&self.source, volume.write_at(offset, &bytes, false)).await.unwrap();
        }
    }

    fn random_below(&self, most: u64) -> u64 {
        engine::env::Env::random(&self.random) % most.max(1)
    }

    pub(crate) async fn snapshot(&self, name: &str) {
        let all = FILESYSTEMS.iter().chain([&VOLUME]);
        let names: Vec<String> = all.map(|of| format!("crypt/{of}@{name}")).collect();
        snapshot(&self.source, &names).await;
    }

    pub(crate) async fn sent(&self, name: &str, from: Option<&str>, raw: bool) -> Vec<u8> {
        sent(&self.source.view(), &format!("crypt/{name}"), from, raw).await
    }

    async fn receive(&self, bytes: &[u8], to: &str) -> Result<Vec<String>, Error> {
        self.receive_as(bytes, to, &ReceiveTarget::default()).await
    }

    async fn receive_as(
        &self,
        bytes: &[u8],
        to: &str,
        settings: &ReceiveTarget,
    ) -> Result<Vec<String>, Error> {
        let to = format!("tank/{}", to.split('/').next().unwrap());
        committing(&self.target, receive(&self.target, bytes, &to, settings)).await
    }

    /// Sends and receives raw.
    async fn copy(&self, name: &str, snapshot: &str, from: Option<&str>) -> Vec<u8> {
        let bytes = self.sent(&format!("{name}@{snapshot}"), from, true).await;
        self.receive(&bytes, name).await.unwrap();
        bytes
    }

    async fn load(&self, name: &str) {
        let dsl = Dsl::open(&self.target.view()).await.unwrap();
        dsl.load_key(&format!("tank/{name}"), &self.key(name), false).await.unwrap();
    }

    /// What a snapshot holds, on the one side and the other.
    async fn assert_same(&self, name: &str) {
        let (source, target) = (self.source.view(), self.target.view());
        let (one, other) = (format!("crypt/{name}"), format!("tank/{name}"));
        match name.starts_with(VOLUME) {
            true => assert!(content(&source, &one).await == content(&target, &other).await, "{name}"),
            false => {
                let (one, other) = (seen(&source, &one).await, seen(&target, &other).await);
                let differing = one.iter().find(|(path, seen)| other.get(*path) != Some(*seen));
                assert!(one == other, "{name}: {:?}", differing.map(|(path, _)| path));
            }
        }
    }

    pub(crate) async fn close(self) -> (Disks, Disks) {
        for pool in [&self.source, &self.target] {
            pool.close(PoolState::Exported).await.unwrap();
        }
        (self.source_disks, self.target_disks)
    }
}

async fn id(pool: &Arc<LivePool>, name: &str) -> ondisk::ObjsetId {
    Dsl::open(&pool.view()).await.unwrap().find(name).await.unwrap().objset_id()
}

async fn filesystem(pool: &Arc<LivePool>, name: &str) -> Arc<LiveZpl> {
    committing(pool, pool.filesystem(id(pool, name).await)).await.unwrap()
}

async fn snapshot(pool: &Arc<LivePool>, names: &[String]) {
    let new = |name: &String| NewSnapshot { name: name.clone(), properties: Vec::new() };
    let new: Vec<_> = names.iter().map(new).collect();
    committing(pool, pool.change(|s| async move { edit::snapshot(&s, &new).await })).await.unwrap();
}

async fn change_pool<T: Send + 'static, F>(
    pool: &Arc<LivePool>,
    task: impl FnOnce(Syncing) -> F + Send + 'static,
) -> engine::Result<T>
where
    F: Future<Output = engine::Result<T>> + Send + 'static,
{
    committing(pool, pool.change(task)).await
}

async fn sent(pool: &Arc<Pool>, to: &str, from: Option<&str>, raw: bool) -> Vec<u8> {
    let dsl = Dsl::open(pool).await.unwrap();
    let of = to.split('@').next().unwrap();
    let from = from.map(|from| if from.contains('@') { from.to_owned() } else { format!("{of}@{from}") });
    let flags = Flags { raw, large_blocks: true, ..Flags::default() };
    let order = Order { to: to.to_owned(), from, flags, ..Order::default() };
    let plan = Plan::make(&dsl, &order).await.unwrap();
    let mut bytes = Vec::new();
    let mut sent = Stream::open(&dsl, &plan.streams[0].request).await.unwrap();
    while let Some(pieces) = sent.next().await.unwrap() {
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece.as_ref()));
    }
    bytes
}

pub(crate) async fn seen(pool: &Arc<Pool>, name: &str) -> BTreeMap<String, Seen> {
    let objset = golden_support::objset(pool, name).unwrap();
    see(&Zpl::open(&objset, Default::default()).await.unwrap()).await
}

async fn content(pool: &Arc<Pool>, name: &str) -> Vec<u8> {
    let objset = golden_support::objset(pool, name).unwrap();
    let volume = Zvol::open(&objset).await.unwrap();
    let mut bytes = vec![0; volume.size() as usize];
    volume.read_at(0, &mut bytes).await.unwrap();
    bytes
}

fn key_data(payload: &[u8]) -> KeyData {
    let list = Nvlist::parse(payload).unwrap();
    KeyData::parse(list.get_nvlist(begin_key::CRYPT_KEYDATA).unwrap()).unwrap()
}

/// What two raw streams must agree in: keys and structure, objects, blocks, and with what they are protected.
fn assert_same_blocks(what: &str, one: &[u8], other: &[u8]) {
    let kept = |bytes: &[u8]| -> Vec<(Record, Vec<u8>)> {
        let (mut spills, others): (Vec<_>, Vec<_>) =
            records(bytes).into_iter().partition(|(record, _)| matches!(record, Record::Spill(_)));
        for (record, _) in &mut spills {
            let Record::Spill(spill) = record else { continue };
            // One that the receiver wrote anew comes elsewhere in the stream.
            spill.flags &= !record_flag::SPILL_UNMODIFIED;
        }
        let all = others.into_iter().chain(spills);
        all.filter_map(|(record, payload)| match record {
            Record::Object(_) | Record::ObjectRange(_) | Record::Spill(_) => Some((record, payload)),
            Record::Write(mut write) => {
                // With what the block is found on its pool.
                (write.key, write.checksum) = Default::default();
                write.flags &= !record_flag::CHECKSUM_DEDUP;
                Some((Record::Write(write), payload))
            }
            _ => None,
        })
        .collect()
    };
    let first = |bytes: &[u8]| match records(bytes).remove(0) {
        (Record::Begin(begin), payload) => (begin.to_guid, begin.from_guid, key_data(&payload)),
        _ => panic!("{what}: no stream"),
    };
    assert_eq!(first(one), first(other), "{what}");
    let (one, other) = (kept(one), kept(other));
    let at = one.iter().zip(&other).position(|(one, other)| one != other);
    let differing = at.map(|at| (&one[at].0, &other[at].0));
    assert!(one == other, "{what}: {} and {} records, {at:?}: {differing:#?}", one.len(), other.len());
}

#[test]
fn raw_streams_become_what_was_sent_without_a_key() {
    let disks = block_on(async {
        let pair = Pair::new(1).await?;
        for (number, name) in FILESYSTEMS.iter().enumerate() {
            let zpl = pair.filesystem(name).await;
            committing(&pair.source, plant(&zpl, number as u64)).await;
        }
        let mut from: Option<String> = None;
        let mut rounds = Vec::new();
        for round in 0..4 {
            pair.change_all(40).await;
            let now = format!("round{round}");
            pair.snapshot(&now).await;
            for name in FILESYSTEMS.iter().chain([&VOLUME]) {
                let came = pair.copy(name, &now, from.as_deref()).await;
                let to = format!("tank/{name}@{now}");
                let again = sent(&pair.target.view(), &to, from.as_deref(), true).await;
                assert_same_blocks(&to, &came, &again);
            }
            rounds.push(now.clone());
            from = Some(now);
        }
        // A full stream of the last one is another way to the same.
        assert_eq!(scrubbed(&pair.target).await.errors, 0, "without keys");
        for name in FILESYSTEMS.iter().chain([&VOLUME]) {
            pair.load(name).await;
            for round in &rounds {
                pair.assert_same(&format!("{name}@{round}")).await;
            }
            let head = format!("tank/{name}");
            let entry = Dsl::open(&pair.target.view()).await.unwrap();
            let root = entry.encryption_root_of(&head).await.unwrap();
            assert_eq!((&*root.dir.name, &*root.location), (&*head, "prompt"));
        }
        // The copies are written on, with the key.
        for name in FILESYSTEMS {
            let zpl = filesystem(&pair.target, &format!("tank/{name}")).await;
            for _ in 0..20 {
                change(&zpl, &pair.random, XattrPlace::Attributes).await;
            }
            zpl.sync_all().await.unwrap();
        }
        assert_eq!(scrubbed(&pair.target).await.errors, 0, "with keys");
        Some(pair.close().await)
    });
    let Some((source, target)) = disks else { return };
    source.judge("crypt");
    target.judge(POOL);
}

/// What users use, as the dataset counts it.
async fn used(pool: &Arc<LivePool>, name: &str, property: &str) -> Option<u64> {
    let (property, who) = UserProperty::parse(property).unwrap();
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let head = dsl.find(name).await.unwrap();
    dsl.user_property(&head, property, who.parse().unwrap()).await.unwrap()
}

/// The counts of what was received raw are right once it is used with its key; also where a raw stream comes
/// on top of what was counted already, as it does when it is sent back to where it began.
#[test]
fn space_of_users_is_counted_from_nothing_after_a_raw_stream() {
    let disks = block_on(async {
        let pair = Pair::new(2).await?;
        let zpl = pair.filesystem("gcm").await;
        committing(&pair.source, plant(&zpl, 1)).await;
        drop(zpl);
        pair.snapshot("a").await;
        pair.copy("gcm", "a", None).await;
        pair.load("gcm").await;
        let counts = ["userused@7", "userobjused@7", "groupused@8", "userused@0", "userobjused@0"];
        let count = async |pool: &Arc<LivePool>, name: &str| {
            committing(pool, pool.count_all(id(pool, name).await)).await.unwrap();
            let mut all = Vec::new();
            for property in counts {
                all.push(used(pool, name, property).await);
            }
            all
        };
        let of_source = count(&pair.source, "crypt/gcm").await;
        let of_target = count(&pair.target, "tank/gcm").await;
        assert_eq!(of_source[1], of_target[1], "files");
        assert!(of_target[0] > Some(0) && of_target[1] > Some(0), "{of_source:?} {of_target:?}");
        // Something new on the copy, sent back.
        let zpl = filesystem(&pair.target, "tank/gcm").await;
        committing(&pair.target, plant(&zpl, 2)).await;
        drop(zpl);
        snapshot(&pair.target, &["tank/gcm@b".to_owned()]).await;
        let back = sent(&pair.target.view(), "tank/gcm@b", Some("a"), true).await;
        let settings = ReceiveTarget { force: true, ..ReceiveTarget::default() };
        committing(&pair.source, receive(&pair.source, &back, "crypt/gcm", &settings)).await.unwrap();
        let (of_source, of_target) =
            (count(&pair.source, "crypt/gcm").await, count(&pair.target, "tank/gcm").await);
        assert_eq!(of_source[1], of_target[1], "{of_source:?} {of_target:?}");
        let view = pair.source.view();
        assert!(seen(&view, "crypt/gcm@b").await == seen(&pair.target.view(), "tank/gcm@b").await);
        drop(view);
        Some(pair.close().await)
    });
    let Some((source, target)) = disks else { return };
    source.judge("crypt");
    target.judge(POOL);
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

/// openzfs/zfs#8758 and its kin: what is mixed is refused by name, or the key is asked for.
#[test]
fn raw_and_plain_streams_are_not_mixed() {
    let disks = block_on(async {
        let pair = Pair::new(3).await?;
        pair.snapshot("a").await;
        pair.change_all(20).await;
        pair.snapshot("b").await;
        pair.change_all(20).await;
        pair.snapshot("c").await;
        let (full, plain) = (pair.sent("ccm@a", None, true).await, pair.sent("ccm@a", None, false).await);
        let raw_b = pair.sent("ccm@b", Some("a"), true).await;
        let raw_c = pair.sent("ccm@c", Some("b"), true).await;
        let plain_b = pair.sent("ccm@b", Some("a"), false).await;
        // Raw onto plain.
        pair.receive(&plain, "plain").await.unwrap();
        let refused = refusal(pair.receive(&raw_b, "plain").await);
        assert!(refused.contains("on top of existing unencrypted dataset"), "{refused}");
        let force = ReceiveTarget { force: true, ..ReceiveTarget::default() };
        let refused = refusal(pair.receive_as(&full, "plain", &force).await);
        assert!(refused.contains("must destroy them to overwrite it"), "{refused}");
        // Plain onto raw takes the key.
        pair.receive(&full, "ccm").await.unwrap();
        assert_eq!(refusal(pair.receive(&plain_b, "ccm").await), "inherited key must be loaded");
        let refused = refusal(pair.receive_as(&plain, "ccm", &force).await);
        assert!(refused.contains("must destroy them to overwrite it"), "{refused}");
        // A further stream than the next one, and one of another key.
        assert!(refusal(pair.receive(&raw_c, "ccm").await).contains("does not match incremental source"));
        let other = pair.sent("gcm@b", Some("a"), true).await;
        assert!(refusal(pair.receive(&other, "ccm").await).contains("does not match incremental source"));
        // Properties of encryption come with the stream.
        let asked = ReceiveTarget {
            encryption: vec![("encryption".into(), "off".into())],
            ..ReceiveTarget::default()
        };
        assert!(refusal(pair.receive_as(&full, "other", &asked).await).contains("for raw streams"));
        pair.load("ccm").await;
        pair.receive(&plain_b, "ccm").await.unwrap();
        // The snapshot has other IVs than that of the sender now.
        let refused = refusal(pair.receive(&raw_c, "ccm").await);
        assert!(refused.contains("IV set guid mismatch"), "{refused}");
        pair.assert_same("ccm@b").await;
        // Back to the last snapshot that was received raw.
        pair.receive_as(&raw_b, "ccm", &force).await.unwrap_err();
        let gone = vec!["tank/ccm@b".to_owned()];
        change_pool(&pair.target, |s| async move { edit::destroy_snapshots(&s, &gone, false).await })
            .await
            .unwrap();
        let refused = refusal(pair.receive(&raw_b, "ccm").await);
        assert!(refused.contains("has been modified"), "{refused}");
        pair.receive_as(&raw_b, "ccm", &force).await.unwrap();
        pair.receive(&raw_c, "ccm").await.unwrap();
        for name in ["ccm@a", "ccm@b", "ccm@c"] {
            pair.assert_same(name).await;
        }
        // A snapshot in between, though nothing changed, has a set of IVs of its own.
        pair.snapshot("d").await;
        snapshot(&pair.target, &["tank/ccm@between".to_owned()]).await;
        let raw_d = pair.sent("ccm@d", Some("c"), true).await;
        assert!(refusal(pair.receive(&raw_d, "ccm").await).contains("has been modified"));
        Some(pair.close().await)
    });
    let Some((_, target)) = disks else { return };
    target.judge(POOL);
}

/// Streams into, below and out of encrypted datasets that are not raw (openzfs/zfs#12014, #17340: snapshots
/// are taken while a stream is made).
#[test]
fn plain_streams_are_encrypted_where_their_place_is() {
    let disks = block_on(async {
        let pair = Pair::new(4).await?;
        pair.snapshot("a").await;
        pair.change_all(20).await;
        pair.snapshot("b").await;
        let key = UserKey::new(KeyFormat::Raw, &[9; 32], None, &**pair.target.env()).unwrap();
        let root = |key: &UserKey| ReceiveTarget {
            encryption: vec![("encryption".into(), "aes-128-gcm".into()), ("keyformat".into(), "raw".into())],
            key: Some(Arc::new(key.clone())),
            ..ReceiveTarget::default()
        };
        let full = pair.sent("gcm@a", None, false).await;
        pair.receive_as(&full, "gcm", &root(&key)).await.unwrap();
        pair.assert_same("gcm@a").await;
        // While it is being sent, its dataset gets snapshots.
        let (view, more) = (pair.source.view(), pair.sent("gcm@b", Some("a"), false).await);
        let dsl = Dsl::open(&view).await.unwrap();
        let order = Order { to: "crypt/gcm@b".into(), ..Order::default() };
        let plan = Plan::make(&dsl, &order).await.unwrap();
        let mut stream = Stream::open(&dsl, &plan.streams[0].request).await.unwrap();
        let (mut bytes, mut taken) = (Vec::new(), 0);
        while let Some(pieces) = stream.next().await.unwrap() {
            pieces.iter().for_each(|piece| bytes.extend_from_slice(piece.as_ref()));
            if taken < 8 {
                snapshot(&pair.source, &[format!("crypt/gcm@during{taken}")]).await;
                taken += 1;
            }
        }
        drop((dsl, view));
        pair.receive(&more, "gcm").await.unwrap();
        // Below it, with the key of its root and without.
        let child = pair.sent("gcm/child@b", None, false).await;
        pair.receive(&child, "gcm").await.unwrap();
        let dsl = Dsl::open(&pair.target.view()).await.unwrap();
        for (name, suite) in [("tank/gcm", "aes-128-gcm"), ("tank/gcm/child", "aes-128-gcm")] {
            assert_eq!(dsl.encryption_root_of(name).await.unwrap().dir.name, "tank/gcm", "{name}");
            assert_eq!(property(&pair.target, name, Prop::Encryption).await, suite);
        }
        drop(dsl);
        for name in ["gcm@a", "gcm@b", "gcm/child@b"] {
            pair.assert_same(name).await;
        }
        // What the stream of the busy dataset has is what the snapshot has.
        pair.receive(&bytes, "busy").await.unwrap();
        assert!(
            seen(&pair.target.view(), "tank/busy@b").await == seen(&pair.source.view(), "crypt/gcm@b").await
        );
        // Without the key nothing comes.
        pair.target.unload_key("tank/gcm").await.unwrap();
        pair.change_all(5).await;
        pair.snapshot("c").await;
        let locked = pair.sent("gcm@c", Some("b"), false).await;
        assert_eq!(refusal(pair.receive(&locked, "gcm").await), "inherited key must be loaded");
        let below = refusal(receive_below(&pair, &child).await);
        assert_eq!(below, "encryption root's key is not loaded or provided");
        Some(pair.close().await)
    });
    let Some((_, target)) = disks else { return };
    target.judge(POOL);
}

async fn receive_below(pair: &Pair, bytes: &[u8]) -> Result<Vec<String>, Error> {
    let settings = ReceiveTarget::default();
    let mut input = bytes;
    let mut stream = Records::new(&mut input);
    let Some((Record::Begin(begin), payload)) = stream.next_record()? else { panic!("no stream") };
    let target = ReceiveTarget { dataset: "tank/gcm/late".into(), snapshot: "b".into(), ..settings };
    let (payload, order) = (payload.to_vec(), stream.order());
    let begun = Receiver::begin(&pair.target, (&begin, &payload, order), &target);
    committing(&pair.target, begun).await.map(|_| Vec::new())
}

async fn property(pool: &Arc<LivePool>, name: &str, prop: Prop) -> String {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let entry: Entry = dsl.entry(name).await.unwrap();
    let set = dsl.properties(&entry, &Environment::UNMOUNTED).await.unwrap();
    set.get(prop, Style::PARSABLE).map(|shown| shown.value).unwrap_or_default()
}

/// openzfs/zfs#18739: another key of the user's on the received side, then an export and an import. And one
/// on the sending side, which comes with the next stream.
#[test]
fn keys_change_on_either_side() {
    let disks = block_on(async {
        let pair = Pair::new(5).await?;
        pair.snapshot("a").await;
        for name in ["gcm", "gcm/child"] {
            pair.copy(name, "a", None).await;
        }
        // The child has the key of its parent again, as on the sender; that takes no key.
        change_pool(&pair.target, |s| async move { edit::inherit_unasked(&s, "tank/gcm/child").await })
            .await
            .unwrap();
        pair.load("gcm").await;
        pair.assert_same("gcm/child@a").await;
        let new = Arc::new(UserKey::new(KeyFormat::Hex, &[b'a'; 64], None, &**pair.target.env()).unwrap());
        let to = KeyChange::New { key: new, location: None };
        change_pool(&pair.target, |s| async move { edit::change_key(&s, "tank/gcm", &to, &[]).await })
            .await
            .unwrap();
        pair.target.close(PoolState::Exported).await.unwrap();
        pair.target_disks.judge(POOL);
        let Pair { golden, source, target, source_disks, target_disks, random } = pair;
        drop(target);
        let target = target_disks.import(POOL, 50).await;
        target.start().unwrap();
        let pair = Pair { golden, source, target, source_disks, target_disks, random };
        let dsl = Dsl::open(&pair.target.view()).await.unwrap();
        assert!(dsl.load_key("tank/gcm", &pair.key("gcm"), false).await.is_err(), "the old key");
        assert_eq!(dsl.load_key("tank/gcm", &[b'a'; 64], false).await.unwrap(), 2);
        drop(dsl);
        pair.assert_same("gcm@a").await;
        pair.assert_same("gcm/child@a").await;
        // The sender's key changes too, and comes with the next stream.
        let new = Arc::new(UserKey::new(KeyFormat::Raw, &[3; 32], None, &**pair.source.env()).unwrap());
        let to = KeyChange::New { key: new, location: None };
        change_pool(&pair.source, |s| async move { edit::change_key(&s, "crypt/gcm", &to, &[]).await })
            .await
            .unwrap();
        pair.change_all(10).await;
        pair.snapshot("b").await;
        for name in ["gcm", "gcm/child"] {
            pair.copy(name, "b", Some("a")).await;
            // What was loaded stays usable.
            pair.assert_same(&format!("{name}@b")).await;
        }
        pair.target.unload_key("tank/gcm").await.unwrap();
        let dsl = Dsl::open(&pair.target.view()).await.unwrap();
        assert!(dsl.load_key("tank/gcm", &[b'a'; 64], false).await.is_err(), "the key of before");
        assert_eq!(dsl.load_key("tank/gcm", &[3; 32], false).await.unwrap(), 2);
        drop(dsl);
        pair.assert_same("gcm@b").await;
        Some(pair.close().await)
    });
    let Some((_, target)) = disks else { return };
    target.judge(POOL);
}

/// Clones share the key of their origin; and all of it goes again without any key.
#[test]
fn clones_come_raw_and_everything_goes_without_keys() {
    let disks = block_on(async {
        let pair = Pair::new(6).await?;
        pair.snapshot("a").await;
        pair.copy("ccm", "a", None).await;
        change_pool(
            &pair.source,
            |s| async move { edit::clone(&s, "crypt/ccm@a", "crypt/clone", &[]).await },
        )
        .await
        .unwrap();
        let zpl = filesystem(&pair.source, "crypt/clone").await;
        committing(&pair.source, plant(&zpl, 3)).await;
        drop(zpl);
        snapshot(&pair.source, &["crypt/clone@b".to_owned()]).await;
        let bytes = sent(&pair.source.view(), "crypt/clone@b", Some("crypt/ccm@a"), true).await;
        let of = |origin: &str| ReceiveTarget { origin: Some(origin.into()), ..ReceiveTarget::default() };
        pair.receive_as(&bytes, "clone", &of("tank/ccm@a")).await.unwrap();
        pair.load("ccm").await;
        pair.assert_same("clone@b").await;
        // One that comes while the key is loaded can be read at once.
        pair.receive_as(&bytes, "second", &of("tank/ccm@a")).await.unwrap();
        let (one, other) = (
            seen(&pair.target.view(), "tank/second@b").await,
            seen(&pair.source.view(), "crypt/clone@b").await,
        );
        assert!(one == other);
        pair.target.unload_key("tank/ccm").await.unwrap();
        let dsl = Dsl::open(&pair.target.view()).await.unwrap();
        let walk = Walk { snapshots: true, ..Walk::HEADS };
        let all = dsl.list(Some(POOL), walk).await.unwrap();
        let mut names: Vec<String> =
            all.iter().filter_map(Entry::dataset).map(|one| one.name.clone()).collect();
        drop((all, dsl));
        names.retain(|name| name != POOL);
        names.sort_by_key(|name| (name.contains("ccm"), !name.contains('@')));
        for name in names {
            if !name.contains('@') {
                let id = id(&pair.target, &name).await;
                committing(&pair.target, pair.target.close_log(id)).await.unwrap();
            }
            let is_snapshot = name.contains('@');
            change_pool(&pair.target, move |s| async move {
                match is_snapshot {
                    true => edit::destroy_snapshots(&s, &[name], false).await,
                    false => edit::destroy(&s, &name).await.map(drop),
                }
            })
            .await
            .unwrap();
        }
        Some(pair.close().await)
    });
    let Some((_, target)) = disks else { return };
    target.judge(POOL);
}

/// Spill blocks come, change, stay and go (openzfs/zfs#9811, #10523, #11688, #12594, #12720, #12785, #13788).
#[test]
fn spill_blocks_come_change_stay_and_go() {
    let disks = block_on(async {
        let pair = Pair::new(7).await?;
        let zpl = pair.filesystem("ccm").await;
        let root = zpl.zpl().root();
        let at = XattrPlace::Attributes;
        let set = async |file, name: &str, length: usize| {
            let any = engine::zpl::live::XattrSet::Any;
            let value = vec![b'v'; length];
            committing(&pair.source, zpl.set_xattr(file, name.as_bytes(), &value, any, at)).await.unwrap();
        };
        let mut files = Vec::new();
        for number in 0..40 {
            let name = format!("spill{number}");
            let file = committing(&pair.source, zpl.create(root, name.as_bytes(), &FILE)).await.unwrap();
            if number % 2 == 0 {
                set(file, "user.long", 400 + 100 * number).await;
            }
            files.push(file);
        }
        let mut from = None;
        for (round, now) in ["a", "b", "c", "d"].into_iter().enumerate() {
            for (number, file) in files.iter().enumerate() {
                match (number + round) % 5 {
                    0 => set(*file, "user.long", 200 + 300 * round).await,
                    1 => {
                        let removed = zpl.remove_xattr(*file, b"user.long");
                        let _ = committing(&pair.source, removed).await;
                    }
                    2 => {
                        let (bytes, options) = ([round as u8; 3000], WriteOptions::default());
                        committing(&pair.source, zpl.write(*file, 0, &bytes, &options)).await.unwrap();
                    }
                    _ => {}
                }
            }
            pair.snapshot(now).await;
            let came = pair.copy("ccm", now, from).await;
            let again = sent(&pair.target.view(), &format!("tank/ccm@{now}"), from, true).await;
            assert_same_blocks(now, &came, &again);
            from = Some(now);
        }
        drop(zpl);
        pair.load("ccm").await;
        for now in ["a", "b", "c", "d"] {
            pair.assert_same(&format!("ccm@{now}")).await;
        }
        Some(pair.close().await)
    });
    let Some((_, target)) = disks else { return };
    target.judge(POOL);
}

/// The stream again, with other records.
fn rewritten(bytes: &[u8], mut change: impl FnMut(usize, &mut Record, &mut Vec<u8>) -> bool) -> Vec<u8> {
    let mut writer = StreamWriter::new(ByteOrder::Little);
    let mut made = Vec::new();
    for (at, (mut record, mut payload)) in records(bytes).into_iter().enumerate() {
        if change(at, &mut record, &mut payload)
            && let Ok(put) = writer.put(&record, &payload)
        {
            made.extend(put);
            made.extend(payload);
        }
    }
    made
}

fn with_keys(bytes: &[u8], change: impl Fn(&mut Nvlist)) -> Vec<u8> {
    rewritten(bytes, |_, record, payload| {
        if let Record::Begin(begin) = record {
            let mut list = Nvlist::parse(payload).unwrap();
            let mut keys = list.get_nvlist(begin_key::CRYPT_KEYDATA).unwrap().clone();
            change(&mut keys);
            list.set(begin_key::CRYPT_KEYDATA, keys);
            *payload = list.encode(Encoding::Native(ByteOrder::Little)).unwrap();
            *begin = Begin { payload_bytes: payload.len() as u32, ..begin.clone() };
        }
        true
    })
}

/// Forged keys, lengths, MACs and ends: an error that says what is wrong, or one at the first read with the
/// key. Nothing of it stops the pool.
#[test]
fn raw_streams_that_lie_harm_nothing() {
    let disks = block_on(async {
        let pair = Pair::new(8).await?;
        let zpl = pair.filesystem("ccm").await;
        committing(&pair.source, plant(&zpl, 1)).await;
        drop(zpl);
        pair.snapshot("a").await;
        pair.change_all(20).await;
        pair.snapshot("b").await;
        let full = pair.sent("ccm@a", None, true).await;
        let more = pair.sent("ccm@b", Some("a"), true).await;
        let number = |name: &'static str, value: u64| move |keys: &mut Nvlist| keys.set(name, value);
        for (name, value) in [
            ("DSL_CRYPTO_SUITE", 77),
            ("DSL_CRYPTO_SUITE", 2),
            ("DSL_CRYPTO_VERSION", 0),
            ("keyformat", 12),
            ("pbkdf2iters", 350_000),
            ("mdn_nlevels", 200),
            ("mdn_blksz", 1 << 40),
            ("mdn_indblkshift", 63),
            ("mdn_maxblkid", u64::MAX),
        ] {
            let forged = with_keys(&full, number(name, value));
            let refused = refusal(pair.receive(&forged, "forged").await);
            assert!(refused.contains("key") || refused.contains("crypto"), "{name}: {refused}");
        }
        let short = with_keys(&full, |keys| keys.set("DSL_CRYPTO_MAC", NvValue::Uint8Array(vec![0; 3])));
        assert!(refusal(pair.receive(&short, "forged").await).contains("DSL_CRYPTO_MAC"));
        let none = rewritten(&full, |_, record, payload| {
            if let Record::Begin(begin) = record {
                payload.clear();
                begin.payload_bytes = 0;
            }
            true
        });
        assert!(refusal(pair.receive(&none, "forged").await).contains("its keys"));
        // More rounds of PBKDF2 than are done in a lifetime: the key is refused when it is loaded.
        let passphrase = pair.sent("gcm@a", None, true).await;
        let slow = with_keys(&passphrase, number("pbkdf2iters", u64::from(u32::MAX)));
        pair.receive(&slow, "slow").await.unwrap();
        let dsl = Dsl::open(&pair.target.view()).await.unwrap();
        let refused = refusal(dsl.load_key("tank/slow", &pair.key("gcm"), false).await);
        assert!(refused.contains("rounds of PBKDF2"), "{refused}");
        drop(dsl);
        // A MAC that is wrong is found by the reader.
        let wrong = rewritten(&full, |_, record, _| {
            if let Record::Write(write) = record
                && write.dmu_type == 19
            {
                write.crypt.mac[3] ^= 1;
            }
            true
        });
        pair.receive(&wrong, "wrong").await.unwrap();
        let dsl = Dsl::open(&pair.target.view()).await.unwrap();
        dsl.load_key("tank/wrong", &pair.key("ccm"), false).await.unwrap();
        drop(dsl);
        let objset = golden_support::objset(&pair.target.view(), "tank/wrong@a").unwrap();
        let (mut at, mut refused) = (ondisk::ObjectId(1), 0);
        loop {
            match objset.next_object(at).await {
                Ok(None) => break,
                Ok(Some(id)) => {
                    let read = async { objset.object(id).await?.block(0).await.map(drop) };
                    refused += u32::from(matches!(read.await, Err(Error::Authentication { .. })));
                    at = ondisk::ObjectId(id.get() + 1);
                }
                Err(Error::Authentication { .. }) => {
                    refused += 1;
                    at = ondisk::ObjectId((at.get() / 32 + 1) * 32);
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 0, "what its MACs do not fit is not read");
        // Ends early, everywhere.
        for cut in [3, 313, 600, full.len() / 3, full.len() - 313, full.len() - 1] {
            let refused = refusal(pair.receive(&full[..cut], "cut").await);
            assert!(refused.contains("incomplete") || refused.contains("invalid"), "{cut}: {refused}");
        }
        // At random.
        pair.receive(&full, "ccm").await.unwrap();
        let (mut received, mut refused) = (0, 0);
        for seed in 1..=60u64 {
            let mut rng = Rng::new(seed);
            let (truth, name) = match rng.index(2) {
                0 => (&full, format!("new{seed}")),
                _ => (&more, "ccm".to_owned()),
            };
            let often = 20 + rng.below(200);
            let bytes = rewritten(truth, |at, record, payload| {
                if at == 0 || matches!(record, Record::End(_)) || !rng.once_in(often) {
                    return true;
                }
                let mut bytes = record.encode(ByteOrder::Little);
                let place = 8 + rng.index(112);
                bytes[place] = rng.next_u64() as u8;
                if let Ok(changed) = Record::parse(&bytes, ByteOrder::Little)
                    && changed.payload_bytes() <= 16 << 20
                {
                    *record = changed;
                }
                payload.resize(record.payload_bytes() as usize, 7);
                !rng.once_in(4)
            });
            let settings = ReceiveTarget { force: true, ..ReceiveTarget::default() };
            match pair.receive_as(&bytes, &name, &settings).await {
                Ok(_) => received += 1,
                Err(_) => refused += 1,
            }
            let stopped = pair.target.txgs().stopped();
            assert!(stopped.is_none(), "seed {seed}: {stopped:?}");
        }
        assert!(received > 0 && refused > 0, "{received} were received, {refused} refused");
        Some(pair.close().await)
    });
    let Some((_, target)) = disks else { return };
    target.judge(POOL);
}

/// The stream that goes on where an interrupted receive of a raw one says.
pub(crate) async fn rest_for(source: &Arc<LivePool>, target: &Arc<LivePool>, name: &str) -> Vec<u8> {
    let token = property(target, name, Prop::ReceiveResumeToken).await;
    let token = engine::send::Token::parse(&token).unwrap();
    let dsl = Dsl::open(&source.view()).await.unwrap();
    let plan = token.plan(&dsl, Flags::default()).await.unwrap();
    let request = &plan.streams[0].request;
    assert!(request.flags.raw, "{request:?}");
    let (mut bytes, mut stream) = (Vec::new(), Stream::open(&dsl, request).await.unwrap());
    while let Some(pieces) = stream.next().await.unwrap() {
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece.as_ref()));
    }
    bytes
}

/// A stream that breaks off is resumed from where its token says, without a key; what OpenZFS sent is
/// received too.
#[test]
fn a_raw_stream_is_resumed_without_a_key() {
    let disks = block_on(async {
        let pair = Pair::new(9).await?;
        let zpl = pair.filesystem("ccm").await;
        for number in 0..4 {
            committing(&pair.source, plant(&zpl, number)).await;
        }
        drop(zpl);
        pair.snapshot("a").await;
        let full = pair.sent("ccm@a", None, true).await;
        let resumable = ReceiveTarget { resumable: true, ..ReceiveTarget::default() };
        for part in 1..6 {
            let name = format!("part{part}");
            let cut = full.len() * part / 6;
            let to = format!("tank/{name}");
            let broken = receive(&pair.target, &full[..cut], &to, &resumable);
            committing(&pair.target, broken).await.unwrap_err();
            let rest = rest_for(&pair.source, &pair.target, &to).await;
            let (first, _) = records(&rest).remove(0);
            assert!(matches!(first, Record::Begin(begin) if begin.features & feature::RESUMING != 0));
            committing(&pair.target, receive(&pair.target, &rest, &to, &resumable)).await.unwrap();
            let again = sent(&pair.target.view(), &format!("{to}@a"), None, true).await;
            assert_same_blocks(&to, &full, &again);
            let dsl = Dsl::open(&pair.target.view()).await.unwrap();
            dsl.load_key(&to, &pair.key("ccm"), false).await.unwrap();
            let view = pair.target.view();
            assert!(seen(&view, &format!("{to}@a")).await == seen(&pair.source.view(), "crypt/ccm@a").await);
        }
        let of_openzfs = {
            let file = pair.golden.expect("raw.zstream.zst");
            let unpacked = std::process::Command::new("zstd").arg("-dcq").arg(file).output().unwrap();
            assert!(unpacked.status.success());
            unpacked.stdout
        };
        pair.receive(&of_openzfs, "gcm").await.unwrap();
        let again = sent(&pair.target.view(), "tank/gcm@s", None, true).await;
        assert_same_blocks("of OpenZFS", &of_openzfs, &again);
        pair.load("gcm").await;
        pair.assert_same("gcm@s").await;
        Some(pair.close().await)
    });
    let Some((_, target)) = disks else { return };
    target.judge(POOL);
}
