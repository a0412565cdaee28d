//! Properties, set and inherited.
//!
//! A local value is in the properties ZAP of the dataset's directory under the property's name, a
//! received one under `name$recvd`. *Inheriting* takes the local value away, and says with `name$inherit`
//! that a received one does not count either. Space properties are stored the same way and have an effect on
//! counts besides ([`apply_space`]); what a filesystem or volume keeps in its own objects (its size, how it
//! compares names) is not stored here at all.
//!
//! All that is asked for at once is checked before any of it is done.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_prop.c`, `dsl_dir.c`, `dsl_dataset.c`, `zfs_ioctl.c`,
//! `libzfs_dataset.c`.

use ondisk::blkptr::{ChecksumType, LARGE_BLOCK_BYTES};
use ondisk::dmu::DmuType;
use ondisk::dsl_dataset::FLAG_UNIQUE_ACCURATE;
use ondisk::dsl_dir::DslDirPhys;
use ondisk::dsl_dir::prop_suffix::{INHERIT, IUV, RECEIVED};
use ondisk::features::Feature;
use ondisk::nearest::meant;
use ondisk::objset::ObjsetType;
use ondisk::pool_version as version;
use ondisk::zap::ZapValue;
use ondisk::{ObjectId, ObjsetId};

use super::create::{NewContents, NewDataset};
use super::policy;
use super::space::{self, Change, Used, did_use};
use super::{
    FoundHead, account, contents, crypto, events, features, find_head, find_snapshot, limits, objects,
};
use crate::dmu::zap::edit::NewZap;
use crate::dsl::{Spare, SyncTask};
use crate::error::{Error, Result};
use crate::properties::table::TABLE;
use crate::properties::{Prop, Types, Value, is_user, typed};

/// Longest name of a property, its end included (`ZAP_MAXNAMELEN`).
const MAX_NAME_BYTES: usize = 256;
/// Largest record that may be asked for (`zfs_max_recordsize`).
const MAX_RECORD_BYTES: u64 = 16 << 20;
/// Texts of old pools are shorter than this (`ZAP_OLDMAXVALUELEN`).
const OLD_VALUE_BYTES: usize = 1024;
/// Blocks that a property takes.
const BLOCKS: u64 = 2;
/// `off` of `dedup`.
const OFF: u64 = 2;
/// The bit of values of `dedup` that have blocks compared.
const VERIFY: u64 = 1 << 8;
/// The block size of a new volume, unless the caller gives one.
pub(super) const DEFAULT_VOLUME_BLOCK_BYTES: u64 = 16 << 10;

/// What a value is for beside being stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting {
    /// Nothing.
    Stored,
    /// A quota or reservation.
    Space(Prop),
    /// Something that the dataset's own objects say.
    Contents(Prop),
    /// Something that its key says.
    Key,
}

/// A value for a property, checked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Assignment {
    pub name: String,
    pub value: Value,
    pub setting: Setting,
}

impl Assignment {
    pub(super) fn number(&self) -> u64 {
        match &self.value {
            Value::Number(number) => *number,
            Value::Text(_) => 0,
        }
    }

    pub(super) fn of(prop: Prop, value: Value) -> Assignment {
        let setting = match prop {
            Prop::Quota | Prop::Reservation | Prop::Refquota | Prop::Refreservation => Setting::Space(prop),
            Prop::Volsize
            | Prop::Volblocksize
            | Prop::Version
            | Prop::Utf8only
            | Prop::Normalization
            | Prop::Casesensitivity => Setting::Contents(prop),
            Prop::Encryption | Prop::Keyformat | Prop::Pbkdf2Iters | Prop::Pbkdf2Salt => Setting::Key,
            quota if quota.default_quota().is_some() => Setting::Contents(prop),
            _ => Setting::Stored,
        };
        Assignment { name: prop.desc().name.to_owned(), value, setting }
    }
}

/// The number that was assigned to a property.
pub(super) fn assigned(plan: &[Assignment], prop: Prop) -> Option<u64> {
    plan.iter().find(|assignment| assignment.name == prop.desc().name).map(Assignment::number)
}

// ---- Reading.

fn key(prop: Prop, suffix: &str) -> crate::dmu::zap::Key {
    objects::name(&format!("{}{suffix}", prop.desc().name))
}

/// The number that a properties ZAP gives to a property: local or, unless that does not count, received.
pub(super) async fn number_at(s: &SyncTask, zap: ObjectId, prop: Prop) -> Result<Option<u64>> {
    if zap.is_none() {
        return Ok(None);
    }
    if let Some(iuv) = objects::lookup(s, zap, &key(prop, IUV)).await?
        && prop.desc().knows_index(iuv) == Some(true)
    {
        return Ok(Some(iuv));
    }
    if let Some(local) = objects::lookup(s, zap, &key(prop, "")).await? {
        return Ok(Some(local));
    }
    if objects::lookup(s, zap, &key(prop, INHERIT)).await?.is_some() {
        return Ok(None);
    }
    objects::lookup(s, zap, &key(prop, RECEIVED)).await
}

/// The number of a property that is not inherited, of the head of a directory.
pub(super) async fn number(s: &SyncTask, dir: ObjectId, prop: Prop) -> Result<u64> {
    let zap = objects::dir(s, dir).await?.props_zap;
    Ok(number_at(s, zap, prop).await?.unwrap_or_else(|| prop.desc().default_number()))
}

/// The number of a property that may be inherited; `chain` are the directory and those above it.
pub(super) async fn effective(s: &SyncTask, chain: &[(ObjectId, DslDirPhys)], prop: Prop) -> Result<u64> {
    for (_, phys) in chain {
        if let Some(number) = number_at(s, phys.props_zap, prop).await? {
            return Ok(number);
        }
        if !prop.desc().inheritable() {
            break;
        }
    }
    Ok(prop.desc().default_number())
}

// ---- Storing.

pub(super) fn stored(value: &Value) -> ZapValue {
    match value {
        Value::Number(number) => objects::one(*number),
        Value::Text(text) => ZapValue::U8(text.bytes().chain([0]).collect()),
    }
}

async fn store_at(s: &SyncTask, zap: ObjectId, assignment: &Assignment) -> Result<()> {
    let name = assignment.name.as_str();
    objects::remove(s, zap, &objects::name(&format!("{name}{INHERIT}"))).await?;
    let newer = objects::name(&format!("{name}{IUV}"));
    let mut value = stored(&assignment.value);
    match Prop::from_stored_name(name).filter(|prop| is_newer_word(*prop, assignment.number())) {
        Some(prop) => {
            objects::set(s, zap, &newer, &value).await?;
            value = objects::one(prop.desc().default_number());
        }
        None => {
            objects::remove(s, zap, &newer).await?;
        }
    }
    objects::set(s, zap, &objects::name(name), &value).await
}

/// Words that came later than their property: software without them finds the default.
fn is_newer_word(prop: Prop, value: u64) -> bool {
    match prop {
        Prop::RedundantMetadata => matches!(value, 2 | 3),
        Prop::Snapdir => value == 2,
        _ => false,
    }
}

/// Stores a value in a directory, unless it belongs into the dataset's own objects or its key.
pub(super) async fn store(s: &SyncTask, dir: ObjectId, assignment: &Assignment) -> Result<()> {
    if let Setting::Contents(_) | Setting::Key = assignment.setting {
        return Ok(());
    }
    store_at(s, objects::dir(s, dir).await?.props_zap, assignment).await
}

/// Stores user properties of a snapshot, as local ones, or with [`RECEIVED`] as those of a stream.
pub(super) async fn store_snapshot(
    s: &SyncTask,
    snapshot: ObjectId,
    properties: &[(String, String)],
    suffix: &str,
) -> Result<()> {
    if properties.is_empty() {
        return Ok(());
    }
    let mut zap = objects::dataset(s, snapshot).await?.props;
    if zap.is_none() {
        zap = objects::create_zap(s, NewZap::of(DmuType::DSL_PROPS)).await?;
        objects::change_dataset(s, snapshot, |snapshot| snapshot.props = zap).await?;
    }
    for (name, text) in properties {
        let value = Value::Text(text.clone());
        let assignment = Assignment { name: format!("{name}{suffix}"), value, setting: Setting::Stored };
        store_at(s, zap, &assignment).await?;
    }
    Ok(())
}

/// Stores the number of a property that is not inherited as a local value.
pub(super) async fn set_number(s: &SyncTask, dir: ObjectId, prop: Prop, number: u64) -> Result<()> {
    store(s, dir, &Assignment::of(prop, Value::Number(number))).await
}

// ---- Checking.

/// Checks the size of a volume's blocks.
pub(super) fn check_block_size(s: &SyncTask, block: u64) -> Result<()> {
    let assignment = Assignment::of(Prop::Volblocksize, Value::Number(block));
    check_value(s.version(), |feature| s.feature_enabled(feature), &assignment)
}

fn check_user(name: &str, text: &str) -> Result<()> {
    if !is_user(name) {
        let meant = meant(name, TABLE.iter().filter(|desc| desc.visible).map(|desc| desc.name));
        return Err(Error::Invalid(format!("invalid property '{name}'{meant}")));
    }
    if name.len() >= MAX_NAME_BYTES || text.len() >= 8192 || text.contains('\0') {
        return Err(Error::Invalid(format!("'{name}': the name or the value is too long")));
    }
    Ok(())
}

/// Snapshots take user properties only, and those of old pools none.
pub(super) fn check_user_only(s: &SyncTask, properties: &[(String, String)]) -> Result<()> {
    if !properties.is_empty() && !s.has_version(version::SNAP_PROPS) {
        return Err(too_old());
    }
    for (name, text) in properties {
        if Prop::from_name(name).is_some() {
            return Err(Error::Invalid(format!("'{name}' cannot be set on snapshots")));
        }
        check_user(name, text)?;
        check_length(s.version(), text)?;
    }
    Ok(())
}

/// What OpenZFS says where a pool is too old for what a dataset is to be.
fn too_old() -> Error {
    Error::Unsupported("pool must be upgraded to set this property or value".to_owned())
}

/// Old pools keep shorter texts.
fn check_length(version: u64, text: &str) -> Result<()> {
    match text.len() >= OLD_VALUE_BYTES && version < version::LONG_VALUES {
        true => Err(too_old()),
        false => Ok(()),
    }
}

/// What typed properties mean for a dataset of these types. Several of the same name are an error.
fn parse_all(properties: &[(String, String)], types: Types, new: bool) -> Result<Vec<Assignment>> {
    let mut all: Vec<Assignment> = Vec::new();
    for (name, text) in properties {
        let assignment = match Prop::from_name(name) {
            None => {
                check_user(name, text)?;
                let value = Value::Text(text.clone());
                Assignment { name: name.clone(), value, setting: Setting::Stored }
            }
            Some(prop) => {
                let desc = prop.desc();
                if !desc.valid_for(types, false) {
                    let detail = "does not apply to datasets of this type";
                    return Err(Error::Invalid(format!("'{name}' {detail}")));
                }
                if desc.readonly() && !(new && desc.set_once()) {
                    return Err(Error::Invalid(format!("'{name}' is readonly")));
                }
                Assignment::of(prop, typed::parse(prop, text)?)
            }
        };
        if all.iter().any(|other| other.name == assignment.name) {
            return Err(Error::Invalid(format!("'{name}' is given more than once")));
        }
        all.push(assignment);
    }
    Ok(all)
}

/// What values of properties need of the pool.
fn check_pool_version(version: u64, prop: Prop, value: u64) -> Result<()> {
    const GZIP: std::ops::RangeInclusive<u64> = 5..=13;
    const ZLE: u64 = 14;
    const PASSTHROUGH_X: u64 = 5;
    let needed = match prop {
        Prop::Compression if GZIP.contains(&value) => version::GZIP,
        Prop::Compression if value == ZLE => version::ZLE,
        Prop::Copies => version::DITTO_BLOCKS,
        Prop::Refquota | Prop::Refreservation => version::REFRESERVATION,
        Prop::Aclinherit if value == PASSTHROUGH_X => version::PASSTHROUGH_X,
        Prop::Dedup if value != OFF => version::DEDUP,
        Prop::Version if value > version::newest_filesystem(version) => version::FEATURES,
        _ => version::OLDEST,
    };
    if version < needed { Err(too_old()) } else { Ok(()) }
}

/// Checks a value against what the pool can do, and its own bounds.
pub(super) fn check_value(
    version: u64,
    is_enabled: impl Fn(Feature) -> bool,
    assignment: &Assignment,
) -> Result<()> {
    let Some(prop) = Prop::from_stored_name(&assignment.name) else {
        return match &assignment.value {
            Value::Text(text) => check_length(version, text),
            Value::Number(_) => Ok(()),
        };
    };
    check_pool_version(version, prop, assignment.number())?;
    crypto::check_value(prop, &assignment.value)?;
    let (name, value) = (assignment.name.as_str(), assignment.number());
    let needs = |feature: Feature| match is_enabled(feature) {
        true => Ok(()),
        false => Err(Error::Unsupported(format!(
            "'{name}' needs the pool's feature {}, which is not enabled",
            feature.name()
        ))),
    };
    let is_block_size = |most: u64| value.is_power_of_two() && (512..=most).contains(&value);
    match prop {
        Prop::Recordsize | Prop::Volblocksize => {
            if !is_block_size(MAX_RECORD_BYTES) {
                return Err(Error::Invalid(format!("'{name}' must be power of 2 from 512B to 16M")));
            }
            if value > LARGE_BLOCK_BYTES {
                needs(Feature::LargeBlocks)?;
            }
        }
        Prop::SpecialSmallBlocks if value > MAX_RECORD_BYTES => {
            return Err(Error::Invalid(format!("'{name}' must be between zero and 16M")));
        }
        Prop::Compression if value & 0x7f == 16 => needs(Feature::ZstdCompress)?,
        Prop::Compression if value & 0x7f == 15 => needs(Feature::Lz4Compress)?,
        Prop::Checksum | Prop::Dedup => {
            let checksum =
                u8::try_from(value & !VERIFY).ok().and_then(|raw| ChecksumType::from_raw(raw).ok());
            if let Some(feature) = checksum.and_then(features::of_checksum) {
                needs(feature)?;
            }
        }
        Prop::Dnodesize if value != 0 => needs(Feature::LargeDnode)?,
        Prop::Longname if value != 0 => needs(Feature::Longname)?,
        Prop::FilesystemLimit | Prop::SnapshotLimit => needs(Feature::FilesystemLimits)?,
        Prop::Mlslabel if assignment.value != Value::Text("none".to_owned()) => {
            return Err(Error::Unsupported("mlslabels are unsupported".to_owned()));
        }
        _ => {}
    }
    Ok(())
}

/// Checks what is known of the properties of a new dataset of such a type before there is a pool for it,
/// which will have the given version.
pub fn check_properties(
    types: Types,
    properties: &[(String, String)],
    version: u64,
    is_enabled: impl Fn(Feature) -> bool,
) -> Result<()> {
    let plan = parse_all(properties, types, true)?;
    check_names(&plan)?;
    crypto::check_pool(&plan, &is_enabled)?;
    plan.iter().try_for_each(|assignment| check_value(version, &is_enabled, assignment))
}

/// Names that are compared by normal forms must have some.
fn check_names(plan: &[Assignment]) -> Result<()> {
    let normalization = assigned(plan, Prop::Normalization).unwrap_or(0);
    if normalization != 0 && assigned(plan, Prop::Utf8only) == Some(0) {
        let detail = "'utf8only' must be set 'on' if normalization chosen";
        return Err(Error::Invalid(detail.to_owned()));
    }
    Ok(())
}

/// Normal forms that are asked for need names that have some, whatever the parent's are; and where names need
/// not have any, they are not compared by normal forms.
fn follow_names(plan: &mut Vec<Assignment>) {
    match (assigned(plan, Prop::Normalization), assigned(plan, Prop::Utf8only)) {
        (Some(1..), None) => plan.push(Assignment::of(Prop::Utf8only, Value::Number(1))),
        (None, Some(0)) => plan.push(Assignment::of(Prop::Normalization, Value::Number(0))),
        _ => {}
    }
}

/// Checks the properties of a new dataset, and adds what follows from others. `parent` is none for the pool's
/// root.
pub(super) async fn plan_new(
    s: &SyncTask,
    new: &NewDataset,
    parent: Option<&FoundHead>,
) -> Result<Vec<Assignment>> {
    let plan = plan_without_room(s, new)?;
    check_room(s, &plan, parent).await?;
    Ok(plan)
}

/// The same, whether there is room for what is reserved or not.
pub(super) fn plan_without_room(s: &SyncTask, new: &NewDataset) -> Result<Vec<Assignment>> {
    let types = match new.contents {
        NewContents::Filesystem => Types::FILESYSTEM,
        NewContents::Volume { .. } => Types::VOLUME,
    };
    let mut plan = parse_all(&new.properties, types, true)?;
    if let NewContents::Volume { size, sparse } = new.contents {
        plan.retain(|assignment| assignment.setting != Setting::Contents(Prop::Volsize));
        plan.push(Assignment::of(Prop::Volsize, Value::Number(size)));
        let block = assigned(&plan, Prop::Volblocksize).unwrap_or(DEFAULT_VOLUME_BLOCK_BYTES);
        if assigned(&plan, Prop::Volblocksize).is_none() {
            plan.push(Assignment::of(Prop::Volblocksize, Value::Number(block)));
        }
        check_volume_size(size, block)?;
        let copies = assigned(&plan, Prop::Copies).unwrap_or(1);
        let whole = volume_reservation(s, size, block, copies);
        // Before there were refreservations, reservations were made.
        let reserving = match s.has_version(version::REFRESERVATION) {
            true => Prop::Refreservation,
            false => Prop::Reservation,
        };
        let asked = plan.iter_mut().find(|one| one.setting == Setting::Space(reserving));
        match asked {
            Some(asked) if asked.value == Value::Number(typed::AUTO) => asked.value = Value::Number(whole),
            Some(_) => {}
            None if sparse => {}
            None => plan.push(Assignment::of(reserving, Value::Number(whole))),
        }
    }
    check_names(&plan)?;
    follow_names(&mut plan);
    for assignment in &plan {
        check_value(s.version(), |feature| s.feature_enabled(feature), assignment)?;
        if assignment.setting == Setting::Space(Prop::Refreservation) && assignment.number() == typed::AUTO {
            return Err(Error::Invalid("'refreservation' can be auto on volumes only".to_owned()));
        }
    }
    Ok(plan)
}

/// Checks that what a new dataset reserves fits below its parent, and into its own quotas.
pub(super) async fn check_room(s: &SyncTask, plan: &[Assignment], parent: Option<&FoundHead>) -> Result<()> {
    let room = match parent {
        Some(parent) => space::available(s, parent.phys.dir, None).await?,
        None => space::pool_bytes(s),
    };
    let (quota, refquota) = (assigned(plan, Prop::Quota), assigned(plan, Prop::Refquota));
    for (prop, most) in [(Prop::Reservation, quota), (Prop::Refreservation, refquota.or(quota))] {
        let wanted = assigned(plan, prop).unwrap_or(0);
        if wanted > room || most.is_some_and(|most| most != 0 && wanted > most) {
            let room = most.filter(|most| *most != 0).map_or(room, |most| most.min(room));
            return Err(space::short_of(&format!("its {} of", prop.desc().name), wanted, room));
        }
    }
    Ok(())
}

fn check_volume_size(size: u64, block: u64) -> Result<()> {
    if size == 0 || block == 0 || !size.is_multiple_of(block) {
        return Err(Error::Invalid(format!(
            "'volsize' must be a multiple of the volume's block size ({block} bytes), and not zero"
        )));
    }
    Ok(())
}

/// What a volume can occupy at most: its blocks, as the widest vdev stores them, and the blocks that lead to
/// them (`zvol_volsize_to_reservation`).
pub fn volume_reservation(s: &SyncTask, size: u64, block: u64, copies: u64) -> u64 {
    const PER_INDIRECT: u64 = 1024;
    const INDIRECT_BYTES: u64 = 128 << 10;
    let mut blocks = size / block.max(1);
    let data = deflated(s, block, blocks).unwrap_or(size).max(size);
    let mut metadata = 7u64;
    while blocks > 1 {
        blocks = blocks.div_ceil(PER_INDIRECT);
        metadata += blocks;
    }
    let metadata = metadata.saturating_mul((copies + 1).min(3)).saturating_mul(INDIRECT_BYTES);
    data.saturating_mul(copies).saturating_add(metadata)
}

/// What so many blocks count for that take so many bytes each when they are compressed, as the widest vdev
/// stores them.
pub(super) fn deflated(s: &SyncTask, stored_bytes: u64, blocks: u64) -> Option<u64> {
    let stored = |top: &crate::vdev::Vdev| -> Option<u64> {
        let typical = top.psize_to_asize(LARGE_BLOCK_BYTES, s.txg().get())? >> 9;
        let asize = top.psize_to_asize(stored_bytes, s.txg().get())?;
        let raw = blocks.checked_mul(asize)?;
        raw.checked_div(typical)?.checked_mul(LARGE_BLOCK_BYTES >> 9)
    };
    s.pool().vdevs().tops.iter().filter_map(stored).max()
}

// ---- Space.

/// Gives a space property of a head its effect. The value is stored already.
pub(super) async fn apply_space(s: &SyncTask, head: ObjectId, prop: Prop, old: u64, new: u64) -> Result<()> {
    let dir = objects::dataset(s, head).await?.dir;
    match prop {
        Prop::Quota => objects::change_dir(s, dir, |dir| dir.quota = new).await,
        Prop::Reservation => space::set_reservation(s, dir, new).await,
        Prop::Refreservation => count_refreservation(s, head, old, new).await,
        _ => Ok(()),
    }
}

/// The directory counts what a head's unique bytes lack to its refreservation.
async fn count_refreservation(s: &SyncTask, head: ObjectId, old: u64, new: u64) -> Result<()> {
    if !objects::dataset(s, head).await?.has(FLAG_UNIQUE_ACCURATE) {
        account::recount_unique(s, head).await?;
    }
    let phys = objects::dataset(s, head).await?;
    let lacking =
        |reserved: u64| i64::try_from(reserved.saturating_sub(phys.unique_bytes)).unwrap_or(i64::MAX);
    did_use(s, phys.dir, Used::RefReserved, Change::used(lacking(new) - lacking(old))).await
}

/// Checks a space property of a head that is there (`dsl_dir_set_quota_check` and its kin).
pub(super) async fn check_space(
    s: &SyncTask,
    head: &FoundHead,
    prop: Prop,
    old: u64,
    new: u64,
) -> Result<()> {
    let dir = objects::dir(s, head.phys.dir).await?;
    let phys = &head.phys;
    let refuse = |why: &str| Err(Error::Invalid(why.to_owned()));
    match prop {
        Prop::Quota if new != 0 && new < dir.used_bytes.max(dir.reserved) => {
            refuse("size is less than current used or reserved space")
        }
        Prop::Refquota if new != 0 => {
            let reserved = number(s, phys.dir, Prop::Refreservation).await?;
            match new < phys.referenced_bytes.max(reserved) {
                true => refuse("size is less than current used or reserved space"),
                false => Ok(()),
            }
        }
        Prop::Reservation => {
            let available = match dir.parent.is_none() {
                true => space::pool_bytes(s).saturating_sub(dir.used_bytes),
                false => space::available(s, dir.parent, None).await?,
            };
            let more = dir.used_bytes.max(new).saturating_sub(dir.used_bytes.max(dir.reserved));
            match more > 0 && (more > available || (dir.quota > 0 && new > dir.quota)) {
                true => refuse("size is greater than available space"),
                false => Ok(()),
            }
        }
        Prop::Refreservation => {
            let unique = phys.unique_bytes;
            let more = unique.max(new).saturating_sub(unique.max(old));
            let quota = number(s, phys.dir, Prop::Refquota).await?;
            let available = space::available(s, phys.dir, None).await?;
            match more > 0 && (more > available || (quota > 0 && new > quota)) {
                true => refuse("size is greater than available space"),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

// ---- What callers do.

/// What users that have a dataset open must do after its properties changed.
#[derive(Debug, Clone, Default)]
pub struct Changed {
    /// Object sets that are written in another way from now on: the dataset and those below it.
    pub policies: Vec<ObjsetId>,
    /// The volume is to have this size; only the volume itself can change that.
    pub volsize: Option<u64>,
    /// The filesystem is to have this version; only the filesystem itself can change that.
    pub version: Option<u64>,
}

/// Sets properties of a filesystem, volume or snapshot, as typed: all or none.
pub async fn set_properties(s: &SyncTask, name: &str, properties: &[(String, String)]) -> Result<Changed> {
    if name.contains('@') {
        check_user_only(s, properties)?;
        let snapshot = find_snapshot(s, name).await?;
        s.require_for_change(Spare::Reserved, BLOCKS.saturating_mul(properties.len() as u64))?;
        store_snapshot(s, snapshot.object, properties, "").await?;
        properties.iter().for_each(|(property, _)| events::set(s, name, snapshot.phys.guid, property));
        return Ok(Changed::default());
    }
    let head = find_head(s, name).await?;
    let types = types_of(s, &head).await?;
    let mut plan = parse_all(properties, types, false)?;
    resolve_auto(s, &head, types, &mut plan).await?;
    let mut effects = Vec::new();
    for assignment in &plan {
        check_value(s.version(), |feature| s.feature_enabled(feature), assignment)?;
        crypto::check_set(s, &head, assignment).await?;
        match assignment.setting {
            Setting::Space(prop) => {
                let (old, new) = (number(s, head.phys.dir, prop).await?, assignment.number());
                check_space(s, &head, prop, old, new).await?;
                effects.push((prop, old, new));
            }
            Setting::Contents(Prop::Volsize) => check_resize(s, &head, assignment.number()).await?,
            Setting::Contents(Prop::Version) => {
                let (now, wanted) = (contents::version(s, &head).await?, assignment.number());
                if wanted < now {
                    return Err(Error::Invalid(format!(
                        "'version' can not be {wanted}: the filesystem is already at version {now}"
                    )));
                }
            }
            Setting::Contents(prop) => {
                let detail = "cannot be changed by this version";
                return Err(Error::Unsupported(format!("'{}' {detail}", prop.desc().name)));
            }
            Setting::Stored | Setting::Key => {}
        }
    }
    // Quotas and reservations may be what keeps others from working.
    let spare = match plan.iter().all(|one| matches!(one.setting, Setting::Space(_))) {
        true => Spare::Extra,
        false => Spare::Reserved,
    };
    s.require_for_change(spare, BLOCKS.saturating_mul(plan.len() as u64))?;
    let mut changed = Changed::default();
    for assignment in &plan {
        match Prop::from_stored_name(&assignment.name) {
            Some(Prop::FilesystemLimit | Prop::SnapshotLimit) => keep_counts(s, head.phys.dir).await?,
            Some(Prop::Volsize) => changed.volsize = Some(assignment.number()),
            Some(Prop::Version) => changed.version = Some(assignment.number()),
            _ => {}
        }
        store(s, head.phys.dir, assignment).await?;
    }
    for (prop, old, new) in effects {
        apply_space(s, head.object, prop, old, new).await?;
    }
    for Assignment { name: property, value, .. } in &plan {
        let text = match value {
            Value::Number(number) => format!("{property}={number}"),
            Value::Text(text) => format!("{property}={text}"),
        };
        events::note(s, "set", name, head.object, &text).await?;
        events::set(s, name, head.phys.guid, property);
    }
    changed.policies = super::objsets_below(s, name).await?;
    policy::refresh(s, &changed.policies).await?;
    Ok(changed)
}

/// Goes back to the inherited value of a property; with `received`, to the received one if there is one.
pub async fn inherit_property(s: &SyncTask, name: &str, property: &str, received: bool) -> Result<Changed> {
    let native = Prop::from_name(property);
    let stored_name = native.map_or(property, |prop| prop.desc().name);
    if name.contains('@') {
        let snapshot = find_snapshot(s, name).await?;
        check_user_only(s, &[(property.to_owned(), String::new())])?;
        events::set(s, name, snapshot.phys.guid, stored_name);
        return inherit_of_snapshot(s, snapshot.object, stored_name).await;
    }
    let head = find_head(s, name).await?;
    let dir = objects::dir(s, head.phys.dir).await?;
    if let Some(prop) = native {
        check_inheritable(s, &head, prop, received).await?;
    } else {
        check_user(property, "")?;
    }
    let space_prop =
        native.filter(|prop| matches!(Assignment::of(*prop, Value::Number(0)).setting, Setting::Space(_)));
    let old = match space_prop {
        Some(prop) => number(s, head.phys.dir, prop).await?,
        None => 0,
    };
    if let Some(prop) = space_prop {
        let received_value = objects::lookup(s, dir.props_zap, &key(prop, RECEIVED)).await?;
        let new = received_value.filter(|_| received).unwrap_or(0);
        check_space(s, &head, prop, old, new).await?;
    }
    s.require_for_change(Spare::Extra, BLOCKS)?;
    let zap = dir.props_zap;
    objects::remove(s, zap, &objects::name(stored_name)).await?;
    objects::remove(s, zap, &objects::name(&format!("{stored_name}{IUV}"))).await?;
    let inherit = objects::name(&format!("{stored_name}{INHERIT}"));
    let was_received = objects::mos(s).value(zap, "$hasrecvd").await?.is_some();
    if !received && was_received {
        objects::set(s, zap, &inherit, &objects::one(0)).await?;
    } else {
        objects::remove(s, zap, &inherit).await?;
    }
    if let Some(prop) = space_prop {
        let new = number(s, head.phys.dir, prop).await?;
        apply_space(s, head.object, prop, old, new).await?;
    }
    events::note(s, "inherit", name, head.object, &format!("{stored_name}=")).await?;
    events::set(s, name, head.phys.guid, stored_name);
    let policies = super::objsets_below(s, name).await?;
    policy::refresh(s, &policies).await?;
    Ok(Changed { policies, ..Changed::default() })
}

async fn inherit_of_snapshot(s: &SyncTask, snapshot: ObjectId, name: &str) -> Result<Changed> {
    let zap = objects::dataset(s, snapshot).await?.props;
    if !zap.is_none() {
        objects::remove(s, zap, &objects::name(name)).await?;
        if objects::entries(s, zap).await?.is_empty() {
            objects::change_dataset(s, snapshot, |snapshot| snapshot.props = ObjectId::default()).await?;
            objects::free_object(s, zap).await?;
        }
    }
    Ok(Changed::default())
}

async fn check_inheritable(s: &SyncTask, head: &FoundHead, prop: Prop, received: bool) -> Result<()> {
    let desc = prop.desc();
    if desc.readonly() {
        return Err(Error::Invalid(format!("'{}' is readonly", desc.name)));
    }
    if !desc.inheritable() && !received {
        return Err(Error::Invalid(format!("'{}' property cannot be inherited", desc.name)));
    }
    if !desc.valid_for(types_of(s, head).await?, false) {
        return Err(Error::Invalid(format!("'{}' does not apply to datasets of this type", desc.name)));
    }
    if matches!(prop, Prop::Volsize | Prop::Version) {
        return Err(Error::Invalid(format!("'{}' property cannot be inherited", desc.name)));
    }
    Ok(())
}

pub(super) async fn types_of(s: &SyncTask, head: &FoundHead) -> Result<Types> {
    Ok(match contents::kind(s, head).await? {
        ObjsetType::Zvol => Types::VOLUME,
        _ => Types::FILESYSTEM,
    })
}

/// `refreservation=auto` means what the volume can occupy; and a volume that had that much reserved keeps
/// doing so when its size changes.
async fn resolve_auto(
    s: &SyncTask,
    head: &FoundHead,
    types: Types,
    plan: &mut Vec<Assignment>,
) -> Result<()> {
    let refreservation = Setting::Space(Prop::Refreservation);
    let asked = plan.iter().find(|one| one.setting == refreservation).map(Assignment::number);
    if types != Types::VOLUME {
        return match asked {
            Some(typed::AUTO) => {
                Err(Error::Invalid("'refreservation' can be auto on volumes only".to_owned()))
            }
            _ => Ok(()),
        };
    }
    let new_size = assigned(plan, Prop::Volsize);
    if asked != Some(typed::AUTO) && (asked.is_some() || new_size.is_none()) {
        return Ok(());
    }
    let (size, block) = contents::volume_size(s, head).await?;
    let chain = space::chain(s, head.phys.dir).await?;
    let copies = effective(s, &chain, Prop::Copies).await?;
    let whole = volume_reservation(s, new_size.unwrap_or(size), block, copies);
    if asked.is_some() {
        for one in plan.iter_mut().filter(|one| one.setting == refreservation) {
            one.value = Value::Number(whole);
        }
    } else if number(s, head.phys.dir, Prop::Refreservation).await?
        == volume_reservation(s, size, block, copies)
    {
        plan.push(Assignment::of(Prop::Refreservation, Value::Number(whole)));
    }
    Ok(())
}

async fn check_resize(s: &SyncTask, head: &FoundHead, size: u64) -> Result<()> {
    let chain = space::chain(s, head.phys.dir).await?;
    if effective(s, &chain, Prop::Readonly).await? != 0 {
        return Err(Error::ReadOnly(format!("volume {}", head.name)));
    }
    let (_, block) = contents::volume_size(s, head).await?;
    check_volume_size(size, block)
}

/// Counts are kept from now on, at a directory and below it.
pub(super) async fn keep_counts(s: &SyncTask, dir: ObjectId) -> Result<()> {
    if !features::is_active(s, Feature::FilesystemLimits).await? {
        s.use_feature(Feature::FilesystemLimits, 1).await?;
    }
    limits::initialize(s, dir).await
}
