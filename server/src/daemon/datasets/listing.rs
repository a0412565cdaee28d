//! Listings: pools, datasets with properties, holds, history.
//!
//! A name that is not found becomes an entry of `failed`, and the other entries are listed all the same, as
//! by OpenZFS's tools.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use engine::dsl::history::{self, Form};
use engine::dsl::{Dataset, Dsl, Entry, Found, Kind, Walk, order, order_of};
use engine::pool::properties::table::POOL_TABLE;
use engine::pool::properties::{PoolEnvironment, PoolProp, PoolProperties};
use engine::pool::status;
use engine::properties::table::TABLE;
use engine::properties::{Mounted as MountedAs, Prop, PropertySet, Shown, Style, UserProperty, is_user};
use ondisk::nearest::meant;

use crate::api::edge::Edge;
use crate::api::{
    self, ApiError, DatasetEntry, DatasetKind, DatasetPage, History, HistoryRecord, Hold, Listed, PoolEntry,
    Property, Source,
};
use crate::daemon::{Daemon, OpenPool, dataset_error, not_of_this_type};
use crate::users;

const PARSABLE: Style = Style::PARSABLE;
const HUMAN: Style = Style::HUMAN_UTC;

impl Daemon {
    /// Lists open pools with their properties.
    ///
    /// # Errors
    /// A property that does not exist.
    pub async fn list_pools(&self, request: api::ListPools) -> Result<Listed<PoolEntry>, ApiError> {
        let (pools, failed) = self.pools_named(&request.pools);
        let mut listed = Listed { entries: Vec::new(), failed };
        if let Some(unknown) = request.properties.iter().find(|name| !is_pool_property(name)) {
            let meant = meant(unknown, POOL_TABLE.iter().map(|desc| desc.name));
            let why = format!("bad property list: invalid property '{unknown}'{meant}");
            return Err(ApiError::invalid(why));
        }
        for pool in pools {
            match pool_entry(&pool, &request).await {
                Ok(entry) => listed.entries.push(entry),
                Err(error) => listed.failed.push(dataset_error("open", pool.name(), error)),
            }
        }
        Ok(listed)
    }

    /// Reads the command history of pools.
    ///
    /// # Errors
    /// None: a history that cannot be read becomes an entry of `failed`.
    pub async fn history(&self, request: api::PoolHistory) -> Result<Listed<History>, ApiError> {
        let (pools, failed) = self.pools_named(&request.pools);
        let mut listed = Listed { entries: Vec::new(), failed };
        let form = Form {
            internal: request.internal,
            long: request.long,
            utc_offset: |_| 0,
            user_name: &users::name,
        };
        for pool in pools {
            let read = async { history::read(&*pool.dsl().await?).await };
            let records = match read.await {
                Ok(records) => records,
                Err(error) => {
                    listed.failed.push(dataset_error("read the history of", pool.name(), error));
                    continue;
                }
            };
            let records = records.iter().filter_map(|record| {
                let line = history::render(record, &form)?;
                let time = record.time();
                let date = time.map(|time| history::date(time, form.utc_offset));
                let text = date.and_then(|date| line.strip_prefix(&date)).unwrap_or(&line);
                Some(HistoryRecord { time, text: text.to_owned() })
            });
            listed.entries.push(History { pool: pool.name().to_owned(), records: records.collect() });
        }
        Ok(listed)
    }

    /// Lists datasets with properties.
    ///
    /// # Errors
    /// A property that does not exist.
    pub async fn list_datasets(&self, request: api::ListDatasets) -> Result<DatasetPage, ApiError> {
        let after = request.after.as_deref().map(Place::parse).transpose()?;
        if request.limit == Some(0) {
            return Err(ApiError::invalid("cannot list datasets: a page has at least one"));
        }
        let wanted =
            request.properties.iter().map(|name| Wanted::parse(name)).collect::<Result<Vec<_>, _>>()?;
        if let Some(page) = self.page_of_snapshots(&request, after.as_ref(), &wanted).await {
            return Ok(page);
        }
        let mut listed = DatasetPage::default();
        let names = match request.names.is_empty() {
            true => self.open_pools().iter().map(|pool| pool.name().to_owned()).collect(),
            false => request.names.clone(),
        };
        let walk = Walk {
            depth: request.depth,
            snapshots: is_kind_wanted(&request, DatasetKind::Snapshot),
            bookmarks: is_kind_wanted(&request, DatasetKind::Bookmark),
            hidden: false,
        };
        let mut all = Vec::new();
        let mut seen = HashSet::new();
        for name in &names {
            let found = async {
                let pool = self.pool_of_any(name)?;
                let failed = |error| dataset_error("open", name, error);
                let dsl = pool.dsl().await.map_err(failed)?;
                Ok((dsl.list(Some(name), walk).await.map_err(failed)?, pool, dsl))
            };
            let (entries, pool, dsl) = match found.await {
                Ok(found) => found,
                Err(error) => {
                    listed.failed.push(error);
                    continue;
                }
            };
            for entry in entries {
                if is_kind_wanted(&request, kind_of(entry.kind)) {
                    if seen.insert(entry.name().to_owned()) {
                        all.push((entry, Arc::clone(&pool), Arc::clone(&dsl)));
                    }
                } else if request.depth == Some(0) && !request.pass_over {
                    listed.failed.push(not_of_this_type(name));
                }
            }
        }
        match request.newest_first {
            false => all.sort_by(|(a, ..), (b, ..)| order(a, b)),
            true => all.sort_by(|(a, ..), (b, ..)| createtxg(b).cmp(&createtxg(a)).then_with(|| order(a, b))),
        }
        if let Some(after) = &after {
            let is_before = |entry: &Entry| after.cmp(entry, request.newest_first) != Ordering::Less;
            let begin = all.partition_point(|(entry, ..)| is_before(entry));
            all.drain(..begin);
        }
        if let Some(limit) = request.limit
            && limit < all.len()
        {
            all.truncate(limit);
            listed.next = all.last().map(|(entry, ..)| Place::of(entry).text());
        }
        let needed = Needed::of(&wanted);
        let mounted = self.open_pools().iter().flat_map(|pool| pool.mounted()).collect();
        for (entry, pool, dsl) in &all {
            match dataset_entry(pool, dsl, entry, &wanted, &needed, &mounted).await {
                Ok(told) => listed.entries.push(told),
                Err(error) => listed.failed.push(dataset_error("read properties of", entry.name(), error)),
            }
        }
        Ok(listed)
    }

    /// A page of the snapshots of one dataset, of which there may be thousands: only those of the page are
    /// read. `None` for what has to be listed in the usual way.
    async fn page_of_snapshots(
        &self,
        request: &api::ListDatasets,
        after: Option<&Place>,
        wanted: &[Wanted],
    ) -> Option<DatasetPage> {
        let ([name], Some(limit), Some(1), [DatasetKind::Snapshot]) =
            (&request.names[..], request.limit, request.depth, &request.kinds[..])
        else {
            return None;
        };
        if name.contains(['@', '#']) {
            return None;
        }
        // What cannot be found or read is told by the usual way.
        let pool = self.pool_of_any(name).ok()?;
        let dsl = pool.dsl().await.ok()?;
        let head = dsl.find(name).await.ok()?;
        let of_volume = match dsl.kind(&head).await.ok()? {
            Kind::Volume => true,
            Kind::Filesystem => false,
            _ => return None,
        };
        let snapshot_of = |place: &Place| {
            let (of, snapshot) = place.name.split_once('@')?;
            (of == name).then(|| snapshot.to_owned())
        };
        let begin = match after {
            Some(place) => {
                let found = dsl.find(&place.name).await.ok()?;
                let is_it = found.phys.creation_txg.0 == place.createtxg;
                Some(snapshot_of(place).filter(|_| is_it)?)
            }
            None => None,
        };
        // One more tells whether there is another page.
        let most = limit.saturating_add(1);
        let found = dsl.some_snapshots(&head, begin.as_deref(), request.newest_first, most).await.ok()??;
        let is_hidden =
            |snapshot: &Dataset| engine::dsl::is_hidden(snapshot.name.rsplit('@').next().unwrap_or_default());
        if found.iter().any(is_hidden) {
            return None;
        }
        let has_more = found.len() > limit;
        let entries: Vec<Entry> = found
            .into_iter()
            .take(limit)
            .map(|snapshot| Entry {
                kind: Kind::Snapshot { of_volume },
                found: Found::Dataset(Box::new(snapshot)),
            })
            .collect();
        let next = entries.last().filter(|_| has_more).map(|entry| Place::of(entry).text());
        let mut listed = DatasetPage { next, ..DatasetPage::default() };
        let needed = Needed::of(wanted);
        let mounted = self.open_pools().iter().flat_map(|pool| pool.mounted()).collect();
        for entry in &entries {
            match dataset_entry(&pool, &dsl, entry, wanted, &needed, &mounted).await {
                Ok(told) => listed.entries.push(told),
                Err(error) => listed.failed.push(dataset_error("read properties of", entry.name(), error)),
            }
        }
        Some(listed)
    }

    /// Lists the holds on snapshots.
    ///
    /// # Errors
    /// None: a snapshot that does not exist becomes an entry of `failed`.
    pub async fn list_holds(&self, request: api::ListHolds) -> Result<Listed<Hold>, ApiError> {
        let mut listed = Listed::default();
        for name in &request.snapshots {
            match self.holds_of(name, request.recursive).await {
                Ok(holds) => listed.entries.extend(holds),
                Err(error) => listed.failed.push(error),
            }
        }
        Ok(listed)
    }

    async fn holds_of(&self, name: &str, recursive: bool) -> Result<Vec<Hold>, ApiError> {
        let Some((filesystem, snapshot)) = name.split_once('@') else {
            return Err(ApiError::invalid(format!("'{name}' is not a snapshot")));
        };
        let pool = self.pool_of(name)?;
        let failed = |error| dataset_error("open", name, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let top = dsl.find_dir(filesystem).await.map_err(failed)?;
        let dirs = match recursive {
            true => dsl.dirs(&top).await.map_err(failed)?,
            false => vec![top],
        };
        let (mut holds, mut exists) = (Vec::new(), false);
        for dir in dirs {
            let head = dsl.head(&dir).await.map_err(failed)?;
            let Some(dataset) = dsl.snapshot(&head, snapshot).await.map_err(failed)? else { continue };
            exists = true;
            for hold in dsl.holds(&dataset).await.map_err(failed)? {
                holds.push(Hold { snapshot: dataset.name.clone(), tag: hold.tag, time: hold.time });
            }
        }
        match exists {
            true => Ok(holds),
            false => Err(ApiError::not_found(format!("cannot open '{name}': dataset does not exist"))),
        }
    }
}

/// A property that was asked for.
enum Wanted {
    /// All that the dataset has.
    All,
    /// A native one.
    Native(Prop),
    /// A user property.
    User(String),
    /// Bytes written since a snapshot or bookmark: the whole name, and which one.
    WrittenSince(String, String),
    /// The space that a user, group or project uses, or may use: the whole name, the property and who it is,
    /// if there is one of that name.
    Counted(String, UserProperty, Option<u64>),
}

impl Wanted {
    fn parse(name: &str) -> Result<Self, ApiError> {
        if name == "all" {
            Ok(Self::All)
        } else if let Some(prop) = Prop::from_name(name) {
            Ok(Self::Native(prop))
        } else if let Some(since) = name.strip_prefix("written@") {
            Ok(Self::WrittenSince(name.to_owned(), since.to_owned()))
        } else if let Some(mark) = name.strip_prefix("written#") {
            let since = if mark.contains('#') { mark.to_owned() } else { format!("#{mark}") };
            Ok(Self::WrittenSince(name.to_owned(), since))
        } else if let Some((property, who)) = UserProperty::parse(name) {
            Ok(Self::Counted(name.to_owned(), property, users::id(property.owner, who)))
        } else if is_user(name) {
            Ok(Self::User(name.to_owned()))
        } else {
            let meant = meant(name, TABLE.iter().map(|desc| desc.name));
            Err(ApiError::invalid(format!("bad property list: invalid property '{name}'{meant}")))
        }
    }
}

/// The transaction group in which something was made.
fn createtxg(entry: &Entry) -> u64 {
    match &entry.found {
        Found::Dataset(dataset) => dataset.phys.creation_txg.0,
        Found::Bookmark(bookmark) => bookmark.phys.creation_txg.0,
    }
}

/// The place of an entry in a listing, which stays one where the entry is destroyed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    createtxg: u64,
    name: String,
}

impl Place {
    fn of(entry: &Entry) -> Self {
        Self { createtxg: createtxg(entry), name: entry.name().to_owned() }
    }

    fn text(&self) -> String {
        format!("{}:{}", self.createtxg, self.name)
    }

    fn parse(text: &str) -> Result<Self, ApiError> {
        let parts = text.split_once(':').and_then(|(txg, name)| Some((txg.parse().ok()?, name.to_owned())));
        let invalid = || ApiError::invalid("cannot list datasets: 'after' is no place in a list");
        parts.map(|(createtxg, name)| Self { createtxg, name }).ok_or_else(invalid)
    }

    /// Where it stands, as seen from an entry.
    fn cmp(&self, entry: &Entry, newest_first: bool) -> Ordering {
        let (name, createtxg) = (entry.name(), createtxg(entry));
        let by_name = order_of((&self.name, self.createtxg), (name, createtxg));
        match newest_first {
            false => by_name,
            true => createtxg.cmp(&self.createtxg).then(by_name),
        }
    }
}

/// What the properties that were asked for need of the engine.
struct Needed {
    all: bool,
    native: Vec<Prop>,
    user: bool,
}

impl Needed {
    fn of(wanted: &[Wanted]) -> Self {
        let native = |wanted: &Wanted| match wanted {
            Wanted::Native(prop) => Some(*prop),
            _ => None,
        };
        Self {
            all: wanted.iter().any(|wanted| matches!(wanted, Wanted::All)),
            native: wanted.iter().filter_map(native).collect(),
            user: wanted.iter().any(|wanted| matches!(wanted, Wanted::User(_))),
        }
    }

    fn wanted(&self) -> engine::dsl::Wanted<'_> {
        match self.all {
            true => engine::dsl::Wanted::ALL,
            false => engine::dsl::Wanted::of(&self.native, self.user),
        }
    }
}

async fn dataset_entry(
    pool: &OpenPool,
    dsl: &Dsl,
    entry: &Entry,
    wanted: &[Wanted],
    needed: &Needed,
    mounted: &HashMap<String, MountedAs>,
) -> engine::Result<DatasetEntry> {
    let name_alone = wanted.iter().all(|wanted| matches!(wanted, Wanted::Native(Prop::Name)));
    let set = match name_alone {
        true => PropertySet::new(entry.name(), entry.kind.types(), entry.kind.head_types()),
        false => pool.properties_of(dsl, entry, &needed.wanted(), mounted).await?,
    };
    let mut properties = Vec::new();
    for wanted in wanted {
        match wanted {
            Wanted::All => {
                let shown = set.all(HUMAN).into_iter();
                properties.extend(shown.map(|shown| {
                    let parsable = parsable_of(&set, &shown.name);
                    property(&set, shown, parsable)
                }));
            }
            Wanted::Native(prop) => properties.push(match set.get(*prop, HUMAN) {
                Some(shown) => {
                    let parsable = set.get(*prop, PARSABLE).map(|shown| shown.value);
                    property(&set, shown, parsable)
                }
                None => absent(prop.desc().name),
            }),
            Wanted::User(name) => properties.push(match set.user(name) {
                Some(shown) => {
                    let value = shown.value.clone();
                    property(&set, shown, Some(value))
                }
                None => absent(name),
            }),
            Wanted::WrittenSince(name, since) => {
                let told = match entry.dataset() {
                    Some(dataset) => written_since(dsl, dataset, name, since).await?,
                    None => None,
                };
                properties.push(told.unwrap_or_else(|| absent(name)));
            }
            Wanted::Counted(name, property, id) => {
                let told = match (entry.dataset(), id) {
                    (Some(dataset), Some(id)) => counted(dsl, dataset, name, *property, *id).await?,
                    _ => None,
                };
                properties.push(told.unwrap_or_else(|| absent(name)));
            }
        }
    }
    Ok(DatasetEntry {
        name: entry.name().to_owned(),
        kind: kind_of(entry.kind),
        createtxg: createtxg(entry),
        properties,
    })
}

fn parsable_of(set: &PropertySet, name: &str) -> Option<String> {
    let shown = match Prop::from_stored_name(name) {
        Some(prop) => set.get(prop, PARSABLE),
        None => set.user(name),
    };
    shown.map(|shown| shown.value)
}

fn property(set: &PropertySet, shown: Shown, parsable: Option<String>) -> Property {
    Property {
        received: set.received(&shown.name, HUMAN),
        received_parsable: set.received(&shown.name, PARSABLE),
        name: shown.name,
        value: Some(shown.value),
        parsable,
        source: shown.source.edge(),
    }
}

fn absent(name: &str) -> Property {
    Property {
        name: name.to_owned(),
        value: None,
        parsable: None,
        source: Source::None,
        received: None,
        received_parsable: None,
    }
}

/// A user property that a pool or vdev does not have. OpenZFS shows a dash there, as its default.
pub(in crate::daemon) fn unset(name: &str) -> Property {
    let dash = || Some("-".to_owned());
    Property { value: dash(), parsable: dash(), source: Source::Default, ..absent(name) }
}

/// `written@SNAPSHOT`, `written#BOOKMARK`, of this dataset or with a full name.
async fn written_since(
    dsl: &Dsl,
    dataset: &Dataset,
    name: &str,
    since: &str,
) -> engine::Result<Option<Property>> {
    let since = match since.starts_with('#') {
        true => format!("{}{since}", dataset.dir.name),
        false => since.to_owned(),
    };
    match dsl.written_property(dataset, &since).await {
        Ok(bytes) => Ok(Some(Property {
            value: Some(HUMAN.bytes(bytes)),
            parsable: Some(PARSABLE.bytes(bytes)),
            ..absent(name)
        })),
        Err(engine::Error::NotFound(_) | engine::Error::Invalid(_) | engine::Error::Unsupported(_)) => {
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

/// `userused@ROOT` and its kin.
async fn counted(
    dsl: &Dsl,
    dataset: &Dataset,
    name: &str,
    property: UserProperty,
    id: u64,
) -> engine::Result<Option<Property>> {
    let value = match dsl.user_property(dataset, property, id).await {
        Err(engine::Error::KeyNotLoaded { .. }) => None,
        other => other?,
    };
    Ok(value.map(|value| Property {
        value: Some(property.show(value, HUMAN)),
        parsable: Some(property.show(value, PARSABLE)),
        source: if property.quota { Source::Local } else { Source::None },
        ..absent(name)
    }))
}

fn kind_of(kind: Kind) -> DatasetKind {
    match kind {
        // The others are listed only when asked for by name, as filesystems without contents.
        Kind::Filesystem | Kind::Other => DatasetKind::Filesystem,
        Kind::Volume => DatasetKind::Volume,
        Kind::Snapshot { .. } => DatasetKind::Snapshot,
        Kind::Bookmark => DatasetKind::Bookmark,
    }
}

fn is_kind_wanted(request: &api::ListDatasets, kind: DatasetKind) -> bool {
    request.kinds.is_empty() || request.kinds.contains(&kind)
}

fn is_pool_property(name: &str) -> bool {
    name == "all"
        || name.starts_with("feature@")
        || name.starts_with("unsupported@")
        || PoolProp::from_name(name).is_some()
        || is_user(name)
}

async fn pool_entry(open: &OpenPool, request: &api::ListPools) -> engine::Result<PoolEntry> {
    let suspended = open.is_suspended();
    match read_pool_entry(open, request, suspended).await {
        // The rest stands on devices that are away.
        Err(_) if suspended => Ok(known_pool_entry(open, request)),
        entry => entry,
    }
}

/// The facts about a suspended pool that need no devices.
fn known_pool_entry(open: &OpenPool, request: &api::ListPools) -> PoolEntry {
    let pool = open.view();
    let known = |name: &str| match name {
        "name" => Some(open.name().to_owned()),
        "health" => Some(api::SUSPENDED.to_owned()),
        "guid" => Some(pool.guid().to_string()),
        _ => None,
    };
    let all = ["name", "health", "guid"].map(str::to_owned);
    let asked = request.properties.iter().flat_map(|name| match name.as_str() {
        "all" => &all[..],
        _ => std::slice::from_ref(name),
    });
    let property = |name: &String| Property { value: known(name), parsable: known(name), ..absent(name) };
    PoolEntry {
        name: open.name().to_owned(),
        guid: pool.guid().0,
        state: status::state_of(&pool).edge(),
        suspended: true,
        txg: pool.uberblock().txg.0,
        version: pool.config().version,
        properties: asked.map(property).collect(),
        vdevs: request.vdevs.then(|| status::vdevs(&pool).edge()),
    }
}

async fn read_pool_entry(
    open: &OpenPool,
    request: &api::ListPools,
    suspended: bool,
) -> engine::Result<PoolEntry> {
    let dsl = open.dsl().await?;
    let pool = dsl.pool();
    let state = status::state_of(pool).edge();
    let mut properties = Vec::new();
    if !request.properties.is_empty() {
        let cachefile = open.cachefile();
        let environment = PoolEnvironment {
            cachefile: cachefile.as_deref(),
            load_guid: open.load_guid(),
            suspended,
            read_only: open.live().is_none(),
            dedup_cached_bytes: match request.properties.iter().any(|name| name == "dedupcached") {
                true => dsl.dedup_cached_bytes().await?,
                false => 0,
            },
        };
        let set = PoolProperties::load(&dsl, &environment).await?;
        for name in &request.properties {
            if name == "all" {
                let shown = set.all(HUMAN).into_iter();
                properties.extend(shown.map(|shown| pool_property(&set, shown)));
                continue;
            }
            properties.push(match set.get_named(name, HUMAN) {
                Some(shown) => pool_property(&set, shown),
                None if is_user(name) => unset(name),
                None => absent(name),
            });
        }
    }
    let vdevs = match request.vdevs {
        true => Some(status::vdevs_with_space(&dsl).await?.edge()),
        false => None,
    };
    Ok(PoolEntry {
        name: open.name().to_owned(),
        guid: pool.guid().0,
        state,
        suspended,
        txg: pool.uberblock().txg.0,
        version: pool.config().version,
        properties,
        vdevs,
    })
}

fn pool_property(set: &PoolProperties, shown: Shown) -> Property {
    let parsable = set.get_named(&shown.name, PARSABLE).map(|shown| shown.value);
    Property { value: Some(shown.value), parsable, source: shown.source.edge(), ..absent(&shown.name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_list_is_a_text_that_is_checked() {
        let place = Place { createtxg: 7, name: "tank/a@b:c".into() };
        assert_eq!(Place::parse(&place.text()).unwrap(), place);
        for wrong in ["", "tank", "x:tank", "-1:tank"] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }
}
