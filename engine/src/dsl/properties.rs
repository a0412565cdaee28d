//! Reading all properties of a dataset into a [`PropertySet`].
//!
//! Stored values come from the properties ZAP of the dataset's directory, then from those of its ancestors as
//! far as the property is inheritable; a snapshot may have a ZAP of its own, and inherits from its directory.
//! In a ZAP the bare name holds the local value, `name$recvd` the received one, `name$inherit` says that the
//! received one does not count, and `name$iuv` holds an index value that older versions would not understand,
//! which then goes first. Computed values are laid over that. Source of the facts: OpenZFS 2.3 `dsl_prop.c`,
//! `dsl_dataset.c`, `dsl_dir.c`, `dsl_crypt.c`, `zvol.c`.

mod resume;
mod special;

use std::collections::HashMap;
use std::sync::Arc;

use ondisk::ObjectId;
use ondisk::crypto_key::key;
use ondisk::dsl_dataset;
use ondisk::dsl_dir::{self, prop_suffix};
use ondisk::features::Feature;
use ondisk::objset::ObjsetType;
use ondisk::zap::ZapValue;
use ondisk::zpl::MASTER_NODE;

use super::{Dataset, DatasetBookmark, Dir, Dsl, Entry, Found, ValueExt, zap_value};
use crate::cache::Primary;
use crate::dmu::Objset;
use crate::error::{Error, Result};
use crate::properties::set::{Origin, Value, ZplProperties};
use crate::properties::{Environment, Prop, PropertySet, Types};
use crate::zvol;

/// Which properties are to be read: a dataset may have thousands of snapshots, each with objects of its own
/// that some properties stand in.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// These native ones; all without.
    props: Option<&'a [Prop]>,
    /// User properties.
    user: bool,
}

impl<'a> Wanted<'a> {
    /// All that there are.
    pub const ALL: Wanted<'static> = Wanted { props: None, user: true };

    /// These, and user properties or not.
    pub const fn of(props: &'a [Prop], user: bool) -> Self {
        Self { props: Some(props), user }
    }

    fn has(&self, prop: Prop) -> bool {
        self.props.is_none_or(|props| props.contains(&prop))
    }

    fn has_any(&self, props: &[Prop]) -> bool {
        props.iter().any(|prop| self.has(*prop))
    }

    /// Whether values count that are stored with the snapshot or above it.
    fn has_stored_of_snapshot(&self) -> bool {
        let may_be_stored = |prop: &Prop| {
            let desc = prop.desc();
            desc.valid_for(Types::SNAPSHOT, false) && (!desc.readonly() || desc.set_once())
        };
        self.user || self.props.is_none_or(|props| props.iter().any(may_be_stored))
    }
}

/// Properties of an encrypted dataset.
const OF_KEYS: [Prop; 9] = [
    Prop::Keystatus,
    Prop::Encryption,
    Prop::KeyGuid,
    Prop::Keyformat,
    Prop::Keylocation,
    Prop::Pbkdf2Salt,
    Prop::Pbkdf2Iters,
    Prop::IvsetGuid,
    Prop::EncryptionRoot,
];

/// Properties that stand in the objects of a dataset, beside its default quotas.
const OF_CONTENTS: [Prop; 7] = [
    Prop::Useraccounting,
    Prop::Version,
    Prop::Normalization,
    Prop::Utf8only,
    Prop::Casesensitivity,
    Prop::Volsize,
    Prop::Volblocksize,
];

impl Dsl {
    /// All properties of a filesystem, volume, snapshot or bookmark.
    pub async fn properties(&self, entry: &Entry, environment: &Environment<'_>) -> Result<PropertySet> {
        self.properties_of(entry, environment, &Wanted::ALL).await
    }

    /// The same with those at least that are wanted.
    pub async fn properties_of(
        &self,
        entry: &Entry,
        environment: &Environment<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<PropertySet> {
        let mut set = PropertySet::new(entry.name(), entry.kind.types(), entry.kind.head_types());
        match &entry.found {
            Found::Bookmark(bookmark) => add_bookmark(bookmark, &mut set),
            Found::Dataset(dataset) => {
                let is_head = !dataset.is_snapshot();
                set.altroot = self.pool().altroot().map(|root| root.to_string_lossy().into_owned());
                set.mounted = (environment.mounted)(&dataset.name);
                if is_head || wanted.has_stored_of_snapshot() {
                    self.add_stored(dataset, &mut set).await?;
                }
                self.add_space(dataset, wanted, &mut set).await?;
                self.add_identity(dataset, wanted, &mut set).await?;
                if is_head || wanted.has_any(&OF_KEYS) {
                    self.add_crypt(dataset, &mut set).await?;
                }
                let has_contents = !dataset.is_inconsistent() && !dataset.phys.bp.is_hole();
                if has_contents
                    && (wanted.has_any(&OF_CONTENTS) || wanted.has_any(&ZplProperties::DEFAULT_QUOTAS))
                {
                    self.add_contents(dataset, &mut set).await?;
                }
            }
        }
        Ok(set)
    }

    /// `primarycache` and `secondarycache` of a dataset.
    pub(crate) async fn cached(&self, dataset: &Dataset) -> Result<[Primary; 2]> {
        let mut set = PropertySet::new(&*dataset.name, Types::DATASET, Types::DATASET);
        self.add_stored(dataset, &mut set).await?;
        let value = |prop| Primary::from_number(set.stored_number(prop));
        Ok([value(Prop::Primarycache), value(Prop::Secondarycache)])
    }

    /// The user property `name` of a filesystem, volume or snapshot: its own or an inherited one.
    pub async fn user_text(&self, dataset: &Dataset, name: &str) -> Result<Option<String>> {
        let mut set = PropertySet::new(&*dataset.name, Types::DATASET, Types::DATASET);
        self.add_stored(dataset, &mut set).await?;
        Ok(set.user(name).map(|shown| shown.value))
    }

    async fn add_stored(&self, dataset: &Dataset, set: &mut PropertySet) -> Result<()> {
        let snapshot = dataset.is_snapshot();
        if !dataset.phys.props.is_none() {
            self.add_zap(dataset.phys.props, &dataset.name, snapshot, false, set).await?;
        }
        let mut dir: Option<&Dir> = Some(&dataset.dir);
        let mut inheriting = snapshot;
        while let Some(at) = dir {
            if !at.phys.props_zap.is_none() {
                self.add_zap(at.phys.props_zap, &at.name, snapshot, inheriting, set).await?;
            }
            inheriting = true;
            dir = at.parent.as_deref();
        }
        Ok(())
    }

    /// Adds the values of one properties ZAP, which belongs to the dataset `owner`.
    async fn add_zap(
        &self,
        zap: ObjectId,
        owner: &str,
        snapshot: bool,
        inheriting: bool,
        set: &mut PropertySet,
    ) -> Result<()> {
        let entries = self.mos().entries(zap).await?;
        let names: HashMap<&str, &ZapValue> =
            entries.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let has = |name: &str, suffix: &str| names.contains_key(format!("{name}{suffix}").as_str());
        for (stored_name, value) in &entries {
            let (name, suffix) = match stored_name.find('$') {
                Some(at) => stored_name.split_at(at),
                None => (stored_name.as_str(), ""),
            };
            let local = Origin::Dataset(owner.to_owned());
            let desc = Prop::from_stored_name(name).map(Prop::desc);
            let origin = match suffix {
                "" if !has(name, prop_suffix::IUV) => local,
                prop_suffix::RECEIVED => {
                    if !inheriting {
                        set.add_received(name, to_value(value));
                    }
                    if has(name, "") || has(name, prop_suffix::INHERIT) {
                        continue;
                    }
                    if inheriting { local } else { Origin::Received }
                }
                prop_suffix::IUV => {
                    let known = desc.zip(value.first()).and_then(|(desc, number)| desc.knows_index(number));
                    if known != Some(true) {
                        continue;
                    }
                    local
                }
                _ => continue,
            };
            let wanted = desc.is_none_or(|desc| {
                (!inheriting || desc.inheritable()) && (!snapshot || desc.valid_for(Types::SNAPSHOT, false))
            });
            if wanted {
                set.add_stored(name, to_value(value), origin);
            }
        }
        Ok(())
    }

    /// Adds what the directory and the dataset count.
    async fn add_space(&self, dataset: &Dataset, wanted: &Wanted<'_>, set: &mut PropertySet) -> Result<()> {
        let phys = &dataset.phys;
        let refratio = ratio(phys.uncompressed_bytes, phys.compressed_bytes);
        set.add_number(Prop::Refratio, refratio);
        set.add_number(Prop::LogicalReferenced, phys.uncompressed_bytes);
        set.add_number(Prop::Referenced, phys.referenced_bytes);
        set.add_number(Prop::Unique, phys.unique_bytes);
        if dataset.is_snapshot() {
            set.add_number(Prop::CompressRatio, refratio);
            set.add_number(Prop::Used, phys.unique_bytes);
            set.add_number(Prop::Numclones, phys.num_children.saturating_sub(1));
            if wanted.has(Prop::Clones) {
                set.clones = self.clones(dataset).await?;
            }
        } else {
            self.add_dir_space(dataset, set).await?;
        }
        if wanted.has(Prop::Written)
            && let Some(written) = self.written(dataset).await?
        {
            set.add_number(Prop::Written, written);
        }
        Ok(())
    }

    async fn add_dir_space(&self, head: &Dataset, set: &mut PropertySet) -> Result<()> {
        let refquota = set.stored_number(Prop::Refquota);
        let refreservation = set.stored_number(Prop::Refreservation);
        let available = self.available(head, refquota, refreservation).await?;
        let dir = &head.dir;
        let phys = &dir.phys;
        set.add_number(Prop::CompressRatio, ratio(phys.uncompressed_bytes, phys.compressed_bytes));
        set.add_number(Prop::Used, phys.used_bytes);
        set.add_number(Prop::Quota, phys.quota);
        set.add_number(Prop::Reservation, phys.reserved);
        set.add_number(Prop::LogicalUsed, phys.uncompressed_bytes);
        if let Some(used) = phys.used_breakdown() {
            set.add_number(Prop::UsedBySnapshots, used.snap);
            set.add_number(Prop::UsedByDataset, used.head);
            set.add_number(Prop::UsedByRefreservation, used.refreserved);
            set.add_number(Prop::UsedByChildren, used.child.saturating_add(used.child_reserved));
        }
        for (prop, field) in [
            (Prop::FilesystemCount, dsl_dir::field::FILESYSTEM_COUNT),
            (Prop::SnapshotCount, dsl_dir::field::SNAPSHOT_COUNT),
        ] {
            if let Some(count) = self.dir_field(dir, field).await? {
                set.add_number(prop, count);
            }
        }
        if let Some(origin) = self.origin(dir).await? {
            set.add_text(Prop::Origin, origin);
        }
        set.add_number(Prop::Available, available);
        set.add_number(Prop::Refquota, refquota);
        set.add_number(Prop::Refreservation, refreservation);
        Ok(())
    }

    /// Adds who the dataset is: numbers, dates, holds, what it is redacted for, where a receive stopped.
    async fn add_identity(
        &self,
        dataset: &Dataset,
        wanted: &Wanted<'_>,
        set: &mut PropertySet,
    ) -> Result<()> {
        let phys = &dataset.phys;
        set.add_number(Prop::Creation, phys.creation_time);
        set.add_number(Prop::Createtxg, phys.creation_txg.0);
        set.add_number(Prop::Guid, phys.guid.0);
        set.add_number(Prop::Objsetid, dataset.object.0);
        if wanted.has(Prop::Userrefs) {
            set.add_number(Prop::Userrefs, self.holds(dataset).await?.len() as u64);
        }
        set.add_number(Prop::DeferDestroy, u64::from(phys.has(dsl_dataset::FLAG_DEFER_DESTROY)));
        set.add_number(Prop::Inconsistent, u64::from(dataset.is_inconsistent()));
        if wanted.has(Prop::SnapshotsChanged) {
            let changed = self.dir_field(&dataset.dir, dsl_dir::field::SNAPSHOTS_CHANGED).await?;
            set.add_number(Prop::SnapshotsChanged, changed.unwrap_or(0));
        }
        if dataset.zapified && wanted.has_any(&[Prop::Redacted, Prop::RedactSnaps]) {
            let redacted = self.mos().value(dataset.object, Feature::RedactedDatasets.guid()).await?;
            set.add_number(Prop::Redacted, u64::from(redacted.is_some()));
            set.redact_snaps = redacted.map(|value| value.to_u64s());
        }
        if !dataset.is_snapshot() {
            let has_previous = !phys.prev_snap.is_none() && Some(phys.prev_snap) != self.origin_snapshot();
            if has_previous && wanted.has(Prop::PrevSnap) {
                set.add_text(Prop::PrevSnap, self.name_of_object(phys.prev_snap).await?);
            }
            if wanted.has(Prop::ReceiveResumeToken)
                && let Some(token) = self.resume_token(dataset).await?
            {
                set.add_text(Prop::ReceiveResumeToken, token);
            }
        }
        Ok(())
    }

    async fn add_crypt(&self, dataset: &Dataset, set: &mut PropertySet) -> Result<()> {
        let Some(object) = self.crypto_object(&dataset.dir).await? else { return Ok(()) };
        set.add_number(Prop::Keystatus, if self.key_is_loaded(dataset) { 2 } else { 1 });
        for (prop, field) in [
            (Prop::Encryption, key::SUITE),
            (Prop::KeyGuid, key::GUID),
            (Prop::Keyformat, key::KEYFORMAT),
            (Prop::Pbkdf2Salt, key::PBKDF2_SALT),
            (Prop::Pbkdf2Iters, key::PBKDF2_ITERS),
        ] {
            if let Some(number) = self.mos().u64(object, field).await? {
                set.add_number(prop, number);
            }
        }
        if let Some(guid) = self.dataset_field(dataset, dsl_dataset::field::IVSET_GUID).await? {
            set.add_number(Prop::IvsetGuid, guid);
        }
        if let Some(root) = self.encryption_root(&dataset.dir).await? {
            set.add_text(Prop::EncryptionRoot, root.name.clone());
        }
        Ok(())
    }

    /// The object set for those who want nothing secret of it: no key is needed, but with one all is
    /// authenticated.
    pub(super) async fn clear_objset(&self, dataset: &Dataset) -> Result<Arc<Objset>> {
        if self.key_is_loaded(dataset) {
            return self.mos().open_objset(dataset).await;
        }
        Objset::open_without_key(self.pool(), dataset.objset_id(), &dataset.phys.bp).await
    }

    /// Adds what is in the dataset's own objects.
    async fn add_contents(&self, dataset: &Dataset, set: &mut PropertySet) -> Result<()> {
        let objset = self.clear_objset(dataset).await?;
        set.add_number(Prop::Useraccounting, u64::from(objset.user_used().is_some()));
        match objset.objset_type() {
            ObjsetType::Zfs => {
                // A filesystem that was never made whole has no master node; it shows defaults.
                let master = match objset.object(MASTER_NODE).await {
                    Ok(master) => Some(master),
                    Err(Error::NotFound(_)) => None,
                    Err(other) => return Err(other),
                };
                let number = async |name: &str, default: u64| -> Result<u64> {
                    let value = match &master {
                        Some(master) => zap_value(master, name).await?,
                        None => None,
                    };
                    Ok(value.and_then(|value| value.first()).unwrap_or(default))
                };
                let mut default_quotas = [0; ZplProperties::DEFAULT_QUOTAS.len()];
                for (quota, prop) in default_quotas.iter_mut().zip(ZplProperties::DEFAULT_QUOTAS) {
                    *quota = number(prop.desc().name, 0).await?;
                }
                set.zpl = Some(ZplProperties {
                    default_quotas,
                    version: number("VERSION", 5).await?,
                    normalization: number("normalization", 0).await?,
                    utf8only: number("utf8only", 0).await?,
                    casesensitivity: number("casesensitivity", 0).await?,
                });
            }
            ObjsetType::Zvol => {
                let zap = objset.object(zvol::PROPERTIES).await?;
                let size = zap_value(&zap, "size").await?;
                let size = size.and_then(|value| value.first());
                set.add_number(Prop::Volsize, size.ok_or_else(|| zap.corrupt("says no size"))?);
                let data = objset.object(zvol::CONTENT).await?;
                set.add_number(Prop::Volblocksize, data.block_size());
            }
            _ => {}
        }
        Ok(())
    }
}

fn add_bookmark(bookmark: &DatasetBookmark, set: &mut PropertySet) {
    let phys = &bookmark.phys;
    set.add_number(Prop::Guid, phys.guid.0);
    set.add_number(Prop::Createtxg, phys.creation_txg.0);
    set.add_number(Prop::Creation, phys.creation_time);
    set.add_number(Prop::IvsetGuid, phys.ivset_guid.0);
    if let Some((referenced, _)) = phys.written() {
        set.add_number(Prop::Referenced, referenced.referenced_bytes);
        set.add_number(Prop::LogicalReferenced, referenced.uncompressed_bytes);
        set.add_number(Prop::Refratio, ratio(referenced.uncompressed_bytes, referenced.compressed_bytes));
    }
}

/// A compression ratio, as a hundredfold.
fn ratio(uncompressed: u64, compressed: u64) -> u64 {
    match compressed {
        0 => 100,
        _ => u64::try_from(u128::from(uncompressed) * 100 / u128::from(compressed)).unwrap_or(u64::MAX),
    }
}

pub(crate) fn to_value(value: &ZapValue) -> Value {
    match value.text() {
        Some(text) => Value::Text(text),
        None => Value::Number(value.first().unwrap_or(0)),
    }
}
