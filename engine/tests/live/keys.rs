//! Keys of encrypted datasets: made, shared, wrapped anew, moved and freed. What is written under them is
//! tested elsewhere; here the keys open again what they should, and nothing else.

use std::sync::Arc;

use codec::crypt::Suite;
use device::block_on;
use engine::dsl::edit::{self, KeyChange, NewContents, NewDataset, NewSnapshot};
use engine::dsl::keys::{KeyFormat, UserKey};
use engine::dsl::{Dsl, Found};
use engine::pool::live::{Layout, LivePool, NewPool, Syncing};
use engine::properties::{Environment, Prop, Style};
use engine::vdev::Class;
use engine::zpl::LiveZpl;
use engine::zpl::live::WriteOptions;
use engine::{Error, Result};
use ondisk::ObjsetId;
use ondisk::features::Feature;
use ondisk::vdev_config::PoolState;

use crate::files::FILE;
use crate::support::{Disks, POOL, full, new_pool, surroundings};

const RAW: &[u8] = &[7; 32];
const OTHER: &[u8] = &[8; 32];

/// A pool, and its devices.
struct Bed {
    pool: Arc<LivePool>,
    #[expect(dead_code, reason = "the devices are there as long as the pool")]
    disks: Disks,
}

fn typed(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

impl Bed {
    async fn new(seed: u64) -> Self {
        let disks = Disks::new(128 << 20);
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(seed)).await.unwrap();
        pool.start().unwrap();
        Self { pool, disks }
    }

    fn key(&self, format: KeyFormat, material: &[u8]) -> Arc<UserKey> {
        let iterations = (format == KeyFormat::Passphrase).then_some(100_000);
        Arc::new(UserKey::new(format, material, iterations, &**self.pool.env()).unwrap())
    }

    async fn change<T: Send + 'static, F>(
        &self,
        task: impl FnOnce(Syncing) -> F + Send + 'static,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.pool.change(task).await
    }

    async fn create(&self, name: &str, properties: &[(&str, &str)], key: Option<Arc<UserKey>>) -> Result<()> {
        let new =
            NewDataset { name: full(name), contents: NewContents::Filesystem, properties: typed(properties) };
        self.change(|s| async move { edit::create_with_key(&s, &new, key.as_ref()).await }).await.map(drop)
    }

    /// An encryption root with a raw key.
    async fn root(&self, name: &str, material: &[u8]) {
        let key = self.key(KeyFormat::Raw, material);
        self.create(name, &[("encryption", "on"), ("keyformat", "raw")], Some(key)).await.unwrap();
    }

    /// A filesystem that is as its parent.
    async fn child(&self, name: &str) {
        self.create(name, &[], None).await.unwrap();
    }

    async fn snapshot(&self, name: &str) {
        let new = vec![NewSnapshot { name: full(name), properties: Vec::new() }];
        self.change(|s| async move { edit::snapshot(&s, &new).await }).await.unwrap();
    }

    async fn clone(&self, of: &str, name: &str) -> Result<()> {
        let (of, name) = (full(of), full(name));
        self.change(|s| async move { edit::clone(&s, &of, &name, &[]).await }).await.map(drop)
    }

    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (full(from), full(to));
        self.change(|s| async move { edit::rename(&s, &from, &to).await }).await
    }

    async fn promote(&self, name: &str) -> Result<()> {
        let name = full(name);
        self.change(|s| async move { edit::promote(&s, &name).await }).await
    }

    async fn destroy(&self, name: &str) -> Result<()> {
        let name = full(name);
        match name.contains('@') {
            true => self.change(|s| async move { edit::destroy_snapshots(&s, &[name], false).await }).await,
            false => self.change(|s| async move { edit::destroy(&s, &name).await }).await.map(drop),
        }
    }

    async fn change_key(&self, name: &str, change: KeyChange) -> Result<()> {
        let name = full(name);
        self.change(|s| async move { edit::change_key(&s, &name, &change, &[]).await }).await
    }

    async fn new_key(&self, name: &str, material: &[u8]) -> Result<()> {
        let key = self.key(KeyFormat::Raw, material);
        self.change_key(name, KeyChange::New { key, location: None }).await
    }

    async fn dsl(&self) -> Dsl {
        Dsl::open(&self.pool.view()).await.unwrap()
    }

    /// The encryption root of a dataset, without the pool's name.
    async fn root_of(&self, name: &str) -> Option<String> {
        let dsl = self.dsl().await;
        let dir = dsl.find_dir(&full(name)).await.unwrap();
        let root = dsl.encryption_root(&dir).await.unwrap()?;
        Some(root.name.strip_prefix(&full("")).unwrap().to_owned())
    }

    async fn is_loaded(&self, name: &str) -> bool {
        let dsl = self.dsl().await;
        let dataset = dsl.find(&full(name)).await.unwrap();
        dsl.key_is_loaded(&dataset)
    }

    async fn unload(&self, name: &str) -> Result<()> {
        self.pool.unload_key(&full(name)).await
    }

    /// How many directories can be read with a root's key now.
    async fn load(&self, name: &str, material: &[u8]) -> Result<usize> {
        self.dsl().await.load_key(&full(name), material, false).await
    }

    /// The value of a property of a dataset whose key is not loaded.
    async fn property(&self, name: &str, prop: Prop) -> String {
        let dsl = self.dsl().await;
        let entry = dsl.entry(&full(name)).await.unwrap();
        assert!(matches!(entry.found, Found::Dataset(_)));
        let set = dsl.properties(&entry, &Environment::UNMOUNTED).await.unwrap();
        set.get(prop, Style::PARSABLE).map(|shown| shown.value).unwrap_or_default()
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn every_suite_and_format_makes_a_root_whose_key_opens_again() {
    block_on(async {
        let bed = Bed::new(1).await;
        let hex = [b'5'; 64];
        let formats = [
            (KeyFormat::Raw, RAW, OTHER),
            (KeyFormat::Hex, &hex[..], &[b'6'; 64][..]),
            (KeyFormat::Passphrase, b"correct horse", b"correct hors"),
        ];
        for suite in Suite::ALL {
            for (format, material, wrong) in formats {
                let name = format!("{suite}-{}", format.name());
                let properties = [("encryption", suite.name()), ("keyformat", format.name())];
                bed.create(&name, &properties, Some(bed.key(format, material))).await.unwrap();
                assert!(bed.is_loaded(&name).await, "{name}");
                let root = bed.dsl().await.encryption_root_of(&full(&name)).await.unwrap();
                assert_eq!((root.format, &*root.location, root.loaded), (format, "prompt", true));

                bed.unload(&name).await.unwrap();
                assert!(!bed.is_loaded(&name).await, "{name}");
                assert_eq!(bed.property(&name, Prop::Encryption).await, suite.name());
                assert_eq!(bed.property(&name, Prop::Keystatus).await, "unavailable");
                let refused = bed.load(&name, wrong).await.unwrap_err();
                assert!(matches!(refused, Error::WrongKey { .. }), "{name}: {refused}");
                assert!(!bed.is_loaded(&name).await, "{name}");
                assert_eq!(bed.load(&name, material).await.unwrap(), 1, "{name}");
                assert!(bed.is_loaded(&name).await, "{name}");
                assert!(matches!(bed.load(&name, material).await, Err(Error::Busy(_))), "{name}");
            }
        }
        let truncated = refusal(bed.dsl().await.load_key(&full("aes-256-gcm-raw"), &RAW[..31], true).await);
        assert_eq!(truncated, "Raw key too short (expected 32).");
        // A line behind the first is no part of a passphrase.
        let two_lines = b"correct horse\nbattery staple\n";
        let name = full("aes-128-ccm-passphrase");
        assert_eq!(bed.dsl().await.load_key(&name, two_lines, true).await.unwrap(), 1);
    });
}

#[test]
fn what_lies_below_a_root_inherits_its_key_unless_it_says_otherwise() {
    block_on(async {
        let bed = Bed::new(2).await;
        bed.root("r", RAW).await;
        bed.child("r/a").await;
        bed.child("r/a/b").await;
        bed.create("r/ccm", &[("encryption", "aes-128-ccm")], None).await.unwrap();
        bed.create("r/plain", &[("encryption", "off")], None).await.unwrap();
        bed.child("r/plain/x").await;
        let own = bed.key(KeyFormat::Raw, OTHER);
        bed.create("r/own", &[("keyformat", "raw"), ("keylocation", "file:///k")], Some(own)).await.unwrap();
        bed.child("r/own/c").await;
        for (name, root) in [
            ("r", Some("r")),
            ("r/a", Some("r")),
            ("r/a/b", Some("r")),
            ("r/ccm", Some("r")),
            ("r/plain", None),
            ("r/plain/x", None),
            ("r/own", Some("r/own")),
            ("r/own/c", Some("r/own")),
        ] {
            assert_eq!(bed.root_of(name).await.as_deref(), root, "{name}");
            assert_eq!(bed.is_loaded(name).await, root.is_some(), "{name}");
        }
        let no_key = bed.create("n", &[("encryption", "on"), ("keyformat", "raw")], None).await;
        assert_eq!(refusal(no_key), "no key was given for the new encryption root");
        let no_format = bed.create("n", &[("encryption", "on")], None).await;
        assert_eq!(refusal(no_format), "Keyformat required for new encryption root.");

        bed.unload("r").await.unwrap();
        let loaded =
            [bed.is_loaded("r/a/b").await, bed.is_loaded("r/ccm").await, bed.is_loaded("r/own").await];
        assert_eq!(loaded, [false, false, true]);
        assert_eq!(bed.property("r/ccm", Prop::Encryption).await, "aes-128-ccm");
        assert_eq!(bed.property("r", Prop::Keylocation).await, "prompt");
        assert_eq!(bed.property("r/a", Prop::Keylocation).await, "none");
        let locked = bed.create("r/late", &[], None).await;
        assert_eq!(refusal(locked), "encryption root's key is not loaded or provided");
        bed.create("r/late", &[("encryption", "off")], None).await.unwrap();
        assert_eq!(bed.load("r", RAW).await.unwrap(), 4);
        bed.child("r/after").await;
    });
}

#[test]
fn another_key_of_the_user_opens_all_below_and_the_old_one_nothing() {
    block_on(async {
        let bed = Bed::new(3).await;
        bed.root("r", RAW).await;
        bed.child("r/a").await;
        bed.snapshot("r/a@s").await;
        bed.clone("r/a@s", "elsewhere").await.unwrap();
        bed.child("elsewhere/below").await;
        assert_eq!(bed.root_of("elsewhere").await.unwrap(), "r");
        assert_eq!(bed.root_of("elsewhere/below").await.unwrap(), "r");
        assert_eq!(refusal(bed.new_key("elsewhere", OTHER).await), "Keys cannot be changed on clones.");

        bed.new_key("r", OTHER).await.unwrap();
        // The new key is used at once.
        bed.child("r/new").await;
        bed.unload("r").await.unwrap();
        assert!(!bed.is_loaded("r/a@s").await && !bed.is_loaded("elsewhere/below").await);
        assert!(matches!(bed.load("r", RAW).await, Err(Error::WrongKey { .. })));
        assert_eq!(refusal(bed.new_key("r", RAW).await), "Key must be loaded.");
        assert_eq!(bed.load("r", OTHER).await.unwrap(), 5);
        assert!(bed.is_loaded("r/a@s").await && bed.is_loaded("elsewhere/below").await);

        // Another format, then a root below, and back.
        let words = bed.key(KeyFormat::Passphrase, b"correct horse");
        let location = Some("file:///some/key".to_owned());
        bed.change_key("r", KeyChange::New { key: words, location }).await.unwrap();
        let root = bed.dsl().await.encryption_root_of(&full("r")).await.unwrap();
        assert_eq!((root.format, &*root.location), (KeyFormat::Passphrase, "file:///some/key"));
        assert_eq!(refusal(bed.change_key("r", KeyChange::Inherit).await), "Parent must be encrypted.");
        let not_root = bed.change_key("r/a", KeyChange::Inherit).await;
        assert_eq!(refusal(not_root), "Key inheritting can only be performed on encryption roots.");
        bed.new_key("r/a", RAW).await.unwrap();
        for (name, root) in [("r/a", "r/a"), ("elsewhere", "r/a"), ("elsewhere/below", "r/a"), ("r/new", "r")]
        {
            assert_eq!(bed.root_of(name).await.unwrap(), root, "{name}");
        }
        bed.unload("r").await.unwrap();
        assert!(bed.is_loaded("elsewhere/below").await);
        assert_eq!(refusal(bed.change_key("r/a", KeyChange::Inherit).await), "Parent key must be loaded.");
        assert_eq!(bed.load("r", b"correct horse").await.unwrap(), 2);
        bed.change_key("r/a", KeyChange::Inherit).await.unwrap();
        assert_eq!(bed.root_of("elsewhere/below").await.unwrap(), "r");
        bed.unload("r").await.unwrap();
        assert_eq!(bed.property("r/a", Prop::Keylocation).await, "none");
        assert!(!bed.is_loaded("elsewhere/below").await);
        assert_eq!(bed.load("r", b"correct horse").await.unwrap(), 5);
        bed.create("plain", &[], None).await.unwrap();
        assert_eq!(refusal(bed.new_key("plain", RAW).await), "Dataset not encrypted.");
    });
}

#[test]
fn a_key_is_changed_nowhere_where_it_cannot_be_everywhere() {
    block_on(async {
        let bed = Bed::new(4).await;
        bed.root("r", RAW).await;
        bed.child("r/a").await;
        // A root of its own, whose key is not loaded, is none of it.
        bed.root("r/own", OTHER).await;
        bed.unload("r/own").await.unwrap();
        bed.new_key("r", &[9; 32]).await.unwrap();
        assert_eq!(bed.load("r/own", OTHER).await.unwrap(), 1);
        bed.unload("r").await.unwrap();
        assert_eq!(bed.load("r", &[9; 32]).await.unwrap(), 2);
    });
}

#[test]
fn a_promoted_clone_takes_the_place_of_a_root() {
    block_on(async {
        let bed = Bed::new(5).await;
        bed.root("r", RAW).await;
        bed.child("r/a").await;
        bed.snapshot("r@s").await;
        bed.clone("r@s", "c").await.unwrap();
        bed.child("c/below").await;
        bed.promote("c").await.unwrap();
        for name in ["r", "r/a", "c", "c/below"] {
            assert_eq!(bed.root_of(name).await.unwrap(), "c", "{name}");
        }
        // The key goes on to be used where it is now.
        bed.child("r/a/more").await;
        assert!(matches!(bed.unload("r").await, Err(Error::Invalid(_))));
        bed.unload("c").await.unwrap();
        assert_eq!(bed.property("c", Prop::Keylocation).await, "prompt");
        assert_eq!(bed.property("r", Prop::Keylocation).await, "none");
        assert_eq!(bed.load("c", RAW).await.unwrap(), 5);

        // What inherits cannot take its origin's place outside of the root.
        bed.root("q", OTHER).await;
        bed.child("q/a").await;
        bed.snapshot("q/a@s").await;
        bed.clone("q/a@s", "outside").await.unwrap();
        bed.clone("q/a@s", "q/inside").await.unwrap();
        let refused = refusal(bed.promote("outside").await);
        assert_eq!(refused, "cannot promote dataset outside its encryption root");
        bed.promote("q/inside").await.unwrap();
        assert_eq!(bed.root_of("q/a").await.unwrap(), "q");
    });
}

#[test]
fn what_inherits_a_key_stays_below_its_root() {
    block_on(async {
        let bed = Bed::new(6).await;
        bed.root("r", RAW).await;
        bed.child("r/a").await;
        bed.child("r/a/b").await;
        bed.root("q", OTHER).await;
        bed.child("plain").await;
        let outside = "cannot move encrypted child outside of its encryption root";
        assert_eq!(refusal(bed.rename("r/a/b", "b").await), outside);
        assert_eq!(refusal(bed.rename("r/a/b", "q/b").await), outside);
        bed.rename("r/a/b", "r/a/c").await.unwrap();
        bed.rename("r/a/c", "r/c").await.unwrap();
        assert_eq!(bed.root_of("r/c").await.unwrap(), "r");
        // A root goes anywhere, and so does what is not encrypted.
        bed.rename("r", "q/r").await.unwrap();
        assert_eq!(bed.root_of("q/r/c").await.unwrap(), "q/r");
        bed.rename("plain", "q/plain").await.unwrap();
        assert_eq!(bed.root_of("q/plain").await, None);
        bed.unload("q/r").await.unwrap();
        assert_eq!(bed.load("q/r", RAW).await.unwrap(), 3);
    });
}

#[test]
fn keys_are_freed_with_the_last_directory_whether_loaded_or_not() {
    block_on(async {
        let bed = Bed::new(7).await;
        bed.root("r", RAW).await;
        bed.child("r/a").await;
        bed.snapshot("r/a@s").await;
        bed.clone("r/a@s", "c").await.unwrap();
        let count = || bed.pool.feature_count(Feature::Encryption);
        // Three heads and a snapshot.
        assert_eq!(count(), Some(4));
        bed.unload("r").await.unwrap();
        let guid = bed.property("r/a@s", Prop::IvsetGuid).await;
        assert!(guid.parse::<u64>().unwrap() != 0, "{guid}");
        bed.destroy("c").await.unwrap();
        // The object of the key is still that of its origin.
        assert_eq!(bed.load("r", RAW).await.unwrap(), 2);
        bed.unload("r").await.unwrap();
        for name in ["r/a@s", "r/a", "r"] {
            bed.destroy(name).await.unwrap();
        }
        assert_eq!(count(), Some(0));
        // Numbers of objects are used again, and nothing of an old key with them.
        bed.child("new").await;
        assert!(!bed.is_loaded("new").await);
    });
}

#[test]
fn properties_of_keys_are_set_where_they_mean_something() {
    block_on(async {
        let bed = Bed::new(8).await;
        bed.root("r", RAW).await;
        bed.child("r/a").await;
        bed.child("plain").await;
        let set = async |name: &str, property: &str, value: &str| {
            let (name, properties) = (full(name), typed(&[(property, value)]));
            let set = |s: Syncing| async move { edit::set_properties(&s, &name, &properties).await };
            bed.change(set).await.map(drop)
        };
        set("r", "keylocation", "file:///a/b").await.unwrap();
        set("plain", "keylocation", "none").await.unwrap();
        for (name, property, value, why) in [
            ("r", "keylocation", "none", "keylocation must not be 'none' for encrypted datasets"),
            ("r", "keylocation", "foobar", "invalid keylocation"),
            ("r/a", "keylocation", "prompt", "keylocation may only be set on encryption roots"),
            ("plain", "keylocation", "prompt", "keylocation must be 'none' for unencrypted datasets"),
            ("r", "copies", "3", "encrypted datasets cannot have 3 copies"),
            ("r", "keyformat", "hex", "'keyformat' is readonly"),
            ("r", "encryption", "off", "'encryption' is readonly"),
            ("r", "pbkdf2iters", "200000", "'pbkdf2iters' is readonly"),
        ] {
            assert_eq!(refusal(set(name, property, value).await), why, "{name} {property}={value}");
        }
        set("r", "copies", "2").await.unwrap();
        let root = bed.dsl().await.encryption_root_of(&full("r/a")).await.unwrap();
        assert_eq!(root.location, "file:///a/b");
        bed.snapshot("r@s").await;
        let (of, to) = (full("r@s"), full("c"));
        let given = typed(&[("keylocation", "prompt")]);
        let cloned = bed.change(|s| async move { edit::clone(&s, &of, &to, &given).await }).await;
        assert_eq!(refusal(cloned), "Encryption properties must inherit from origin dataset.");
    });
}

const TEXT: &[u8] = b"only the owner of the key may ever read this";

async fn id_of(pool: &Arc<LivePool>, name: &str) -> ObjsetId {
    Dsl::open(&pool.view()).await.unwrap().find(name).await.unwrap().objset_id()
}

async fn filesystem(pool: &Arc<LivePool>, name: &str) -> Arc<LiveZpl> {
    pool.filesystem(id_of(pool, name).await).await.unwrap()
}

async fn write(pool: &Arc<LivePool>, name: &str, file: &str) {
    let zpl = filesystem(pool, name).await;
    let file = zpl.create(zpl.zpl().root(), file.as_bytes(), &FILE).await.unwrap();
    zpl.write(file, 0, &TEXT.repeat(5000), &WriteOptions::default()).await.unwrap();
    zpl.fsync(file).await.unwrap();
}

async fn assert_reads(pool: &Arc<LivePool>, name: &str, file: &str) {
    let zpl = filesystem(pool, name).await;
    let id = zpl.lookup(zpl.zpl().root(), file.as_bytes()).await.unwrap();
    let id = id.unwrap_or_else(|| panic!("{name} has no {file}"));
    let mut bytes = vec![0; TEXT.len() * 5000];
    zpl.read(id, 0, &mut bytes).await.unwrap();
    assert!(bytes == TEXT.repeat(5000), "{name}/{file}");
}

/// What `zdb` says of a dataset with a key, which must not be a raw one: that it does not know.
fn judge_with(disks: &Disks, key: &str, dataset: &str) {
    let dir = disks.path().to_str().unwrap();
    let Some(text) = testkit::oracle::zdb(&["-e", "-p", dir, "-K", key, "-dddd", dataset]) else { return };
    assert!(text.contains("Dataset ") && text.contains("Object  lvl"), "{dataset}: {text}");
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An encrypted pool with a volume, a snapshot and a clone, one of which goes back to a snapshot, is exported
/// after the key of its user changed.
#[test]
fn an_encrypted_pool_is_read_with_the_new_key_of_its_user_and_not_with_the_old_one() {
    let disks = Disks::new(256 << 20);
    let volume_bytes = 1 << 20;
    block_on(async {
        let root_properties = typed(&[("encryption", "aes-256-ccm"), ("keyformat", "hex")]);
        let top = disks.top(Layout::Single, Class::Normal, "d", 1);
        let new = NewPool { root_properties, ..new_pool(vec![top], 12) };
        let env = surroundings(20);
        let key = Arc::new(UserKey::new(KeyFormat::Hex, hex(RAW).as_bytes(), None, &*env.env).unwrap());
        let pool = LivePool::create_with_key(new, Some(key), env).await.unwrap();
        pool.start().unwrap();
        let bed = Bed { pool: Arc::clone(&pool), disks: Disks::new(0) };
        bed.create("fs", &[("encryption", "aes-128-gcm"), ("dedup", "on")], None).await.unwrap();
        let contents = NewContents::Volume { size: volume_bytes, sparse: true };
        let volume = NewDataset { name: full("vol"), contents, properties: Vec::new() };
        bed.change(|s| async move { edit::create(&s, &volume).await }).await.unwrap();
        write(&pool, POOL, "top").await;
        write(&pool, &full("fs"), "before").await;
        bed.snapshot("fs@s").await;
        bed.clone("fs@s", "clone").await.unwrap();
        write(&pool, &full("fs"), "after").await;
        write(&pool, &full("clone"), "in the clone").await;
        let volume = pool.volume(id_of(&pool, &full("vol")).await).await.unwrap();
        volume.write_at(0, &vec![7; volume_bytes as usize], true).await.unwrap();
        drop(volume);
        // Back to the snapshot.
        let id = id_of(&pool, &full("fs")).await;
        pool.close_log(id).await.unwrap();
        let (name, to) = (full("fs"), full("fs@s"));
        bed.change(|s| async move { edit::rollback(&s, &name, Some(&to)).await }).await.unwrap();
        assert_reads(&pool, &full("fs"), "before").await;

        let key = bed.key(KeyFormat::Hex, hex(OTHER).as_bytes());
        let change = KeyChange::New { key, location: None };
        bed.change(|s| async move { edit::change_key(&s, POOL, &change, &[]).await }).await.unwrap();
        write(&pool, POOL, "with the new key").await;
        drop(bed);
        pool.close(PoolState::Exported).await.unwrap();
    });
    let bytes = std::fs::read(disks.file("d0")).unwrap();
    assert!(!bytes.windows(TEXT.len()).any(|window| window == TEXT), "plaintext on the device");
    disks.judge(POOL);
    for name in [POOL, "tank/fs", "tank/clone", "tank/vol"] {
        judge_with(&disks, &hex(OTHER), name);
    }
    block_on(async {
        let pool = disks.import(POOL, 21).await;
        pool.start().unwrap();
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        assert!(matches!(dsl.load_key(POOL, hex(RAW).as_bytes(), false).await, Err(Error::WrongKey { .. })));
        assert_eq!(dsl.load_key(POOL, hex(OTHER).as_bytes(), false).await.unwrap(), 4);
        drop(dsl);
        for (name, file) in
            [(POOL, "top"), (POOL, "with the new key"), ("tank/fs", "before"), ("tank/clone", "in the clone")]
        {
            assert_reads(&pool, name, file).await;
        }
        let zpl = filesystem(&pool, "tank/fs").await;
        assert_eq!(zpl.lookup(zpl.zpl().root(), b"after").await.unwrap(), None);
        drop(zpl);
        let volume = pool.volume(id_of(&pool, "tank/vol").await).await.unwrap();
        let mut read = vec![0; volume_bytes as usize];
        volume.read_at(0, &mut read).await.unwrap();
        assert!(read.iter().all(|byte| *byte == 7));
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
    });
}

/// Keys that OpenZFS made are wrapped anew, and its own `zdb` opens them.
#[test]
fn keys_of_the_golden_pool_are_changed() {
    let Some(golden) = testkit::golden::pool("crypt") else { return };
    let disks = Disks::of_golden("crypt").unwrap();
    let old = std::fs::read(golden.expect("pass")).unwrap();
    block_on(async {
        let pool = disks.import("crypt", 30).await;
        pool.start().unwrap();
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        dsl.load_key("crypt/gcm", &old, false).await.unwrap();
        drop(dsl);
        let key = UserKey::new(KeyFormat::Passphrase, b"another one", Some(100_000), &**pool.env()).unwrap();
        let change = KeyChange::New { key: Arc::new(key), location: Some("prompt".to_owned()) };
        pool.change(|s| async move { edit::change_key(&s, "crypt/gcm", &change, &[]).await }).await.unwrap();
        write(&pool, "crypt/gcm/child", "written after").await;
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("crypt");
    for name in ["crypt/gcm", "crypt/gcm/child"] {
        judge_with(&disks, "another one", name);
    }
    block_on(async {
        let pool = disks.import("crypt", 31).await;
        pool.start().unwrap();
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        assert!(matches!(dsl.load_key("crypt/gcm", &old, false).await, Err(Error::WrongKey { .. })));
        dsl.load_key("crypt/gcm", b"another one\n", false).await.unwrap();
        drop(dsl);
        assert_reads(&pool, "crypt/gcm/child", "written after").await;
        pool.close(PoolState::Exported).await.unwrap();
    });
}
