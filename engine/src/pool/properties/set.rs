//! [`PoolProperties`]: every property of a pool, read once, shown as often as one likes.
//!
//! Numbers come from the space accounting and the configuration; what users set is in a ZAP that the pool
//! directory names. `version` is shown as `-` where features took its place, `fragmentation` where no
//! histograms are kept. Source of the facts: OpenZFS 2.3 `spa.c` (`spa_prop_get`), `libzfs_pool.c`.

use std::collections::BTreeMap;

use ondisk::ObjectId;
use ondisk::features::Feature;
use ondisk::pool_directory::{self, DIRECTORY_OBJECT, hidden_dir};
use ondisk::zap::ZapValue;

use super::table::{POOL_TABLE, PoolProp, VERSION_FEATURES};
use crate::dsl::pool_features::Features;
use crate::dsl::{Dsl, ValueExt};
use crate::error::{Error, Result};
use crate::pool::status::{SUSPENDED, state_of};
use crate::properties::set::Value;
use crate::properties::{Kind, Shown, Source, Style, index, is_user};

/// What pool properties depend on that is no part of the pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolEnvironment<'a> {
    /// Where the configuration is cached, when not in the usual place: a path or `none`.
    pub cachefile: Option<&'a str>,
    /// A number drawn at each import.
    pub load_guid: u64,
    /// The pool waits for its devices.
    pub suspended: bool,
    /// The pool is open for reading only.
    pub read_only: bool,
    /// `dedupcached`, for callers that ask for it: [`Dsl::dedup_cached_bytes`], which takes a look at the ARC
    /// for each block of the tables.
    pub dedup_cached_bytes: u64,
}

/// Every property of a pool.
#[derive(Debug, Clone)]
pub struct PoolProperties {
    values: BTreeMap<PoolProp, (Value, Source)>,
    user: Vec<(String, String)>,
    features: Features,
}

impl PoolProperties {
    /// Reads the properties of a pool.
    pub async fn load(dsl: &Dsl, environment: &PoolEnvironment<'_>) -> Result<PoolProperties> {
        let features = Features::load(dsl.mos()).await?;
        let mut set = PoolProperties { values: BTreeMap::new(), user: Vec::new(), features };
        set.add_space(dsl).await?;
        set.add_config(dsl, environment).await?;
        set.add_stored(dsl).await?;
        Ok(set)
    }

    fn number(&mut self, prop: PoolProp, number: u64) {
        self.values.insert(prop, (Value::Number(number), Source::None));
    }

    fn local(&mut self, prop: PoolProp, text: Option<impl ToString>) {
        if let Some(text) = text {
            self.values.insert(prop, (Value::Text(text.to_string()), Source::Local));
        }
    }

    async fn add_space(&mut self, dsl: &Dsl) -> Result<()> {
        let space = dsl.pool_space().await?;
        self.number(PoolProp::Size, space.size_bytes());
        self.number(PoolProp::Allocated, space.allocated_bytes());
        self.number(PoolProp::Free, space.free_bytes());
        self.number(PoolProp::Capacity, space.capacity());
        self.number(PoolProp::Fragmentation, space.fragmentation().unwrap_or(u64::MAX));
        self.number(PoolProp::Checkpoint, space.checkpoint_bytes);
        self.number(PoolProp::Expandsize, dsl.pool().vdevs().expandable_bytes());
        self.number(PoolProp::Dedupratio, space.dedup.ratio());
        self.number(PoolProp::DedupTableSize, space.dedup.table_bytes);
        self.number(PoolProp::Bcloneused, space.clones.used_bytes);
        self.number(PoolProp::Bclonesaved, space.clones.saved_bytes);
        self.number(PoolProp::Bcloneratio, space.clones.ratio());
        for (prop, name) in [(PoolProp::Freeing, hidden_dir::FREE), (PoolProp::Leaked, hidden_dir::LEAK)] {
            let dir = dsl.child(dsl.root(), name).await?;
            self.number(prop, dir.map_or(0, |dir| dir.phys.used_bytes));
        }
        Ok(())
    }

    async fn add_config(&mut self, dsl: &Dsl, environment: &PoolEnvironment<'_>) -> Result<()> {
        let pool = dsl.pool();
        let config = dsl.mos().config().await?;
        self.values.insert(PoolProp::Name, (Value::Text(pool.name().to_owned()), Source::None));
        self.number(PoolProp::Readonly, environment.read_only.into());
        self.number(PoolProp::Guid, pool.guid().0);
        self.number(PoolProp::LoadGuid, environment.load_guid);
        self.number(PoolProp::Dedupcached, environment.dedup_cached_bytes);
        let health = match environment.suspended {
            true => SUSPENDED.to_owned(),
            false => state_of(pool).to_string(),
        };
        self.values.insert(PoolProp::Health, (Value::Text(health), Source::None));
        let source = if config.version == VERSION_FEATURES { Source::Default } else { Source::Local };
        self.values.insert(PoolProp::Version, (Value::Number(config.version), source));
        let scrubbed = dsl.mos().u64(DIRECTORY_OBJECT, pool_directory::LAST_SCRUBBED_TXG).await?;
        self.number(PoolProp::LastScrubbedTxg, scrubbed.unwrap_or(0));
        let large =
            |feature, with: u64, without: u64| if self.features.is_enabled(feature) { with } else { without };
        let block = large(Feature::LargeBlocks, 16 << 20, 128 << 10);
        let dnode = large(Feature::LargeDnode, 16 << 10, 512);
        self.number(PoolProp::Maxblocksize, block);
        self.number(PoolProp::Maxdnodesize, dnode);
        self.local(PoolProp::Comment, config.comment.as_ref());
        self.local(PoolProp::Compatibility, config.compatibility.as_ref());
        self.local(PoolProp::Altroot, pool.altroot().map(|root| root.display()));
        self.local(PoolProp::Cachefile, environment.cachefile);
        Ok(())
    }

    /// Adds what users set.
    async fn add_stored(&mut self, dsl: &Dsl) -> Result<()> {
        let Some(zap) = dsl.mos().u64(DIRECTORY_OBJECT, pool_directory::PROPS).await? else { return Ok(()) };
        for (name, value) in dsl.mos().entries(ObjectId(zap)).await? {
            let (value, source) = match (PoolProp::from_stored_name(&name), value) {
                (Some(PoolProp::Bootfs), ZapValue::U64(words)) => {
                    let object = words.first().copied().unwrap_or(0);
                    match dsl.name_of_object(ObjectId(object)).await {
                        Ok(name) => (Value::Text(name), Source::Local),
                        Err(Error::NotFound(_)) => continue,
                        Err(other) => return Err(other),
                    }
                }
                (Some(prop), ZapValue::U64(words)) => {
                    let number = words.first().copied().unwrap_or(0);
                    let default = number == prop.desc().default_number();
                    (Value::Number(number), if default { Source::Default } else { Source::Local })
                }
                (Some(_), value) => (Value::Text(value.text().unwrap_or_default()), Source::Default),
                (None, value) => {
                    if let Some(text) = value.text().filter(|_| is_user(&name)) {
                        self.user.push((name, text));
                    }
                    continue;
                }
            };
            if let Some(prop) = PoolProp::from_stored_name(&name) {
                self.values.insert(prop, (value, source));
            }
        }
        Ok(())
    }

    /// Everything that `zpool get all` shows, in its order.
    pub fn all(&self, style: Style) -> Vec<Shown> {
        let native =
            POOL_TABLE.iter().filter(|desc| desc.visible).filter_map(|desc| self.get(desc.prop, style));
        let user = self.user.iter().map(|(name, value)| shown(name.clone(), value.clone(), Source::Local));
        let features = Feature::ALL.iter().map(|feature| self.feature(*feature));
        let unknown =
            self.features.unknown().filter_map(|guid| self.get_named(&format!("unsupported@{guid}"), style));
        native.chain(user).chain(features).chain(unknown).collect()
    }

    /// The property called `name`: a native one, a user property, `feature@…` or `unsupported@…`.
    pub fn get_named(&self, name: &str, style: Style) -> Option<Shown> {
        if let Some(feature) = name.strip_prefix("feature@") {
            return Feature::from_name(feature).map(|feature| self.feature(feature));
        }
        if let Some(guid) = name.strip_prefix("unsupported@") {
            let count = self.features.count(guid).filter(|_| Feature::from_guid(guid).is_none())?;
            let value = if count == 0 { "inactive" } else { "readonly" };
            return Some(shown(name.to_owned(), value.to_owned(), Source::Local));
        }
        if let Some(prop) = PoolProp::from_name(name) {
            return self.get(prop, style);
        }
        let (name, value) = self.user.iter().find(|(user, _)| user == name)?;
        Some(shown(name.clone(), value.clone(), Source::Local))
    }

    fn feature(&self, feature: Feature) -> Shown {
        shown(format!("feature@{}", feature.name()), self.features.state(feature).to_string(), Source::Local)
    }

    /// The features behind the `feature@…` properties.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The number behind a numeric or index property.
    pub fn value(&self, prop: PoolProp) -> u64 {
        match self.values.get(&prop) {
            Some((Value::Number(number), _)) => *number,
            _ => prop.desc().default_number(),
        }
    }

    /// The native property as `zpool get` shows it.
    pub fn get(&self, prop: PoolProp, style: Style) -> Option<Shown> {
        let desc = prop.desc();
        let (value, source) = match (self.values.get(&prop), desc.kind) {
            (Some((Value::Text(text), source)), _) => (text.clone(), source.clone()),
            (None, Kind::Text(default)) => (default.unwrap_or("-").to_owned(), Source::Default),
            (Some((Value::Number(number), source)), _) => (word(prop, *number, style)?, source.clone()),
            (None, _) => (word(prop, desc.default_number(), style)?, Source::Default),
        };
        Some(shown(desc.name.to_owned(), value, source))
    }
}

pub(super) fn shown(name: String, value: String, source: Source) -> Shown {
    Shown { name, value, source }
}

/// The words for `number`; `None` for a number that an index property has no word for.
fn word(prop: PoolProp, number: u64, style: Style) -> Option<String> {
    Some(match prop {
        PoolProp::DedupTableQuota if number == u64::MAX => "auto".to_owned(),
        PoolProp::DedupTableQuota if number == 0 && !style.parsable => "none".to_owned(),
        PoolProp::Expandsize | PoolProp::Checkpoint if number == 0 => "-".to_owned(),
        PoolProp::Expandsize | PoolProp::Checkpoint => style.bytes(number),
        PoolProp::Fragmentation if number == u64::MAX => "-".to_owned(),
        PoolProp::Capacity | PoolProp::Fragmentation => style.percent(number),
        PoolProp::Dedupratio | PoolProp::Bcloneratio => style.ratio(number),
        PoolProp::Version if number >= VERSION_FEATURES => "-".to_owned(),
        PoolProp::Version | PoolProp::Guid | PoolProp::LoadGuid | PoolProp::LastScrubbedTxg => {
            number.to_string()
        }
        _ => match prop.desc().kind {
            Kind::Index(_, names) => index::word(names, number)?.to_owned(),
            _ => style.number(number),
        },
    })
}
