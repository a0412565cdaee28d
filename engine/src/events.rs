//! What happened to pools: events, as OpenZFS's kernel module posts them for `zpool events` and `zed`.
//!
//! # The idea
//! An [`Event`] is a class, a time and named values. There are three families: `ereport.fs.zfs.*` for errors,
//! `resource.fs.zfs.*` for changes of state, `sysevent.fs.zfs.*` for all other changes. A daemon has one ring
//! of [`Events`] for all pools. Each event gets the next number; the oldest events fall out of the ring.
//! Readers ask for all events after a number; the feed has the next ones.
//!
//! A pool posts its events through its [`Reporter`]. What is posted before the reporter has a ring, as
//! while a pool is opened, waits there. Errors of one vdev come in floods: the reporter passes on at most
//! `MAX_PER_SECOND` of a kind, and an error in the same place only once within `REPEATED`. The counters of
//! vdevs leave out the same repetitions, so that they agree with the events.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Reporter::state` | the pool's facts, recent errors; for a few lines | before `Events::ring` |
//! | `Events::ring` | the ring; for a few lines | before that of [`feed`] |
//!
//! Beside the ring lies the [`feed`] of all that changes in pools, into which events go too.
//!
//! Source of the facts: OpenZFS 2.4 `zfs_fm.c`, `fm.c`, `sys/fm/fs/zfs.h`, `zpool-events(8)`.

pub mod feed;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use device::IgnorePoison;
use ondisk::{Guid, ObjsetId, Txg};
use serde::{Deserialize, Serialize};

use self::feed::{Change, Feed, MAX_CHANGES, What};
use crate::{Bookmark, tunables};

/// Events that a ring keeps (`zfs_zevent_len_max`).
fn max_events() -> usize {
    tunables::ZFS_ZEVENT_LEN_MAX.size()
}

/// Errors of one kind and vdev that are passed on in a second, but for those that have a tunable.
const MAX_PER_SECOND: u32 = 20;
/// Errors of the process that became no event, because they came too often.
pub(crate) static DROPPED_EREPORTS: AtomicU64 = AtomicU64::new(0);
/// For this long, an error in the same place is not passed on again (`zfs_zevent_retain_expire_secs`).
const REPEATED: Duration = Duration::from_secs(900);
/// The most places of errors that are remembered (`zfs_zevent_retain_max`).
const MAX_PLACES: usize = 2000;
/// The classes of all events that are posted here. Hooks for others are refused, so that one that is missing
/// here cannot be asked for: [`Events::post`] checks that in tests.
pub const CLASSES: [&str; 46] = [
    "ereport.fs.zfs.checksum",
    "ereport.fs.zfs.data",
    "ereport.fs.zfs.delay",
    "ereport.fs.zfs.io",
    "ereport.fs.zfs.io_failure",
    "ereport.fs.zfs.probe_failure",
    "ereport.fs.zfs.vdev.bad_label",
    "ereport.fs.zfs.vdev.corrupt_data",
    "ereport.fs.zfs.vdev.open_failed",
    "resource.fs.zfs.removed",
    "resource.fs.zfs.statechange",
    "sysevent.fs.zfs.config_sync",
    "sysevent.fs.zfs.errorscrub_abort",
    "sysevent.fs.zfs.errorscrub_finish",
    "sysevent.fs.zfs.errorscrub_paused",
    "sysevent.fs.zfs.errorscrub_resume",
    "sysevent.fs.zfs.errorscrub_start",
    "sysevent.fs.zfs.history_event",
    HOOK_FAILED,
    "sysevent.fs.zfs.pool_create",
    "sysevent.fs.zfs.pool_destroy",
    "sysevent.fs.zfs.pool_export",
    "sysevent.fs.zfs.pool_import",
    "sysevent.fs.zfs.pool_reguid",
    "sysevent.fs.zfs.pool_taken_over",
    "sysevent.fs.zfs.resilver_finish",
    "sysevent.fs.zfs.resilver_start",
    "sysevent.fs.zfs.scrub_abort",
    "sysevent.fs.zfs.scrub_finish",
    "sysevent.fs.zfs.scrub_paused",
    "sysevent.fs.zfs.scrub_resume",
    "sysevent.fs.zfs.scrub_start",
    "sysevent.fs.zfs.trim_cancel",
    "sysevent.fs.zfs.trim_finish",
    "sysevent.fs.zfs.trim_resume",
    "sysevent.fs.zfs.trim_start",
    "sysevent.fs.zfs.trim_suspend",
    "sysevent.fs.zfs.vdev_add",
    "sysevent.fs.zfs.vdev_attach",
    "sysevent.fs.zfs.vdev_clear",
    "sysevent.fs.zfs.vdev_online",
    "sysevent.fs.zfs.vdev_remove",
    "sysevent.fs.zfs.vdev_remove_aux",
    "sysevent.fs.zfs.vdev_remove_dev",
    "sysevent.fs.zfs.vdev_spare",
    "sysevent.fs.zfs.volume_delay",
];

/// The class of the events by which a daemon tells that a hook failed. OpenZFS has none.
pub const HOOK_FAILED: &str = "sysevent.fs.zfs.hook_failed";

/// The most datasets that are remembered as written lately.
const MAX_WRITTEN: usize = 16;
/// The most events that wait for a ring.
const MAX_EARLY: usize = 64;
/// The error number of wrong bytes (`ECKSUM`, which is Linux's `EBADE`).
pub(crate) const ECKSUM: i32 = 52;

/// A value of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number without sign.
    Number(u64),
    /// A number with sign.
    Signed(i64),
    /// Text.
    Text(String),
    /// Numbers.
    Numbers(Vec<u64>),
    /// Texts.
    Texts(Vec<String>),
    /// Named values.
    Nested(Vec<(String, Value)>),
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number.
    pub eid: u64,
    /// When it happened: seconds since 1970, and nanoseconds.
    pub time: (u64, u32),
    /// Its class, such as `ereport.fs.zfs.checksum`.
    pub class: String,
    /// All else, in order, under OpenZFS's names.
    pub fields: Vec<(String, Value)>,
}

impl Event {
    /// The value under a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// The number under a name.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Value::Number(number)) => Some(*number),
            Some(Value::Signed(number)) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The text under a name.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The pool that it is about.
    pub fn pool(&self) -> Option<&str> {
        self.text("pool")
    }

    /// Its class without family: `checksum`, `statechange`, `pool_import`.
    pub fn subclass(&self) -> &str {
        self.class.split_once(".fs.zfs.").map_or(self.class.as_str(), |(_, name)| name)
    }

    /// The vdev that it is about.
    pub fn vdev(&self) -> Option<Guid> {
        self.number("vdev_guid").map(Guid)
    }
}

/// The ring of events of a daemon.
#[derive(Debug, Default)]
pub struct Events {
    ring: Mutex<Ring>,
    feed: Arc<Feed>,
}

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Event>,
    last_eid: u64,
    /// The last event that was cleared.
    cleared: u64,
    is_over: bool,
}

/// Events after one that a reader knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Since {
    /// The events that are there.
    pub events: Vec<Event>,
    /// How many fell out of the ring before they could be read.
    pub dropped: u64,
    /// The number of the last event of all.
    pub last_eid: u64,
}

impl Events {
    /// The feed of all changes, in which the events are too.
    pub fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    /// A ring that goes on after events of an earlier daemon.
    pub fn restored(events: Vec<Event>) -> Self {
        let last_eid = events.iter().map(|event| event.eid).max().unwrap_or(0);
        let mut events = VecDeque::from(events);
        while events.len() > max_events() {
            events.pop_front();
        }
        let ring = Ring { events, last_eid, ..Ring::default() };
        Self { ring: Mutex::new(ring), ..Self::default() }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().ignore_poison()
    }

    /// Adds an event, which gets the next number.
    pub fn post(&self, class: String, fields: Vec<(String, Value)>) -> u64 {
        debug_assert!(CLASSES.contains(&&*class), "'{class}' is not in the list of classes");
        let mut event = Event { eid: 0, time: now(), class, fields };
        let mut ring = self.ring();
        ring.last_eid += 1;
        event.eid = ring.last_eid;
        while ring.events.len() >= max_events() {
            ring.events.pop_front();
        }
        self.feed.publish([Change {
            pool: event.pool().unwrap_or_default().to_owned(),
            guid: Guid(event.number("pool_guid").unwrap_or(0)),
            txg: Txg::NONE,
            what: What::Event(Arc::new(event.clone())),
        }]);
        ring.events.push_back(event);
        ring.last_eid
    }

    /// All events after the one with this number, without waiting.
    pub fn since(&self, eid: u64) -> Since {
        self.ring().since(eid)
    }

    /// The number of the last event.
    pub fn last_eid(&self) -> u64 {
        self.ring().last_eid
    }

    /// Forgets all events. Returns how many there were.
    pub fn clear(&self) -> usize {
        let mut ring = self.ring();
        ring.cleared = ring.last_eid;
        std::mem::take(&mut ring.events).len()
    }

    /// No reader waits any more.
    pub fn end(&self) {
        self.ring().is_over = true;
        self.feed.end();
    }

    /// Whether [`Events::end`] was called.
    pub fn is_over(&self) -> bool {
        self.ring().is_over
    }
}

impl Ring {
    fn since(&self, eid: u64) -> Since {
        let events: Vec<Event> = self.events.iter().filter(|event| event.eid > eid).cloned().collect();
        let first = events.first().map_or(self.last_eid + 1, |event| event.eid);
        // A reader that begins has missed nothing, and neither has one since whose last event all was
        // cleared.
        let dropped = if eid == 0 { 0 } else { first - 1 - eid.max(self.cleared).min(first - 1) };
        Since { events, dropped, last_eid: self.last_eid }
    }
}

fn now() -> (u64, u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs(), now.subsec_nanos())
}

/// What an event says of a vdev.
#[derive(Debug, Clone, Default)]
pub struct VdevFacts {
    /// Its guid.
    pub guid: Guid,
    /// Its type.
    pub kind: String,
    /// The path of its device.
    pub path: Option<String>,
    /// Its sector size as a power of two.
    pub ashift: u32,
    /// OpenZFS's number of its state (`vdev_state_t`).
    pub state: u64,
    /// Failed reads and writes, and wrong checksums.
    pub errors: [u64; 3],
    /// Slow transfers.
    pub slow: u64,
    /// The vdev above it, with its type.
    pub parent: Option<(Guid, String)>,
}

/// A transfer that failed or was slow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ZioFacts {
    /// The error number; 0 for a slow transfer.
    pub errno: i32,
    /// What was done: OpenZFS's number (`zio_type_t`).
    pub kind: u64,
    /// Its priority (`zio_priority_t`).
    pub priority: u64,
    /// Where, in the allocatable space of the vdev.
    pub offset: Option<u64>,
    /// Bytes.
    pub size: u64,
    /// How long it took.
    pub duration: Duration,
    /// The block that it was for.
    pub at: Option<Bookmark>,
}

/// `ZIO_TYPE_READ`.
pub(crate) const ZIO_READ: u64 = 1;
/// `ZIO_TYPE_WRITE`.
pub(crate) const ZIO_WRITE: u64 = 2;
/// `ZIO_TYPE_FLUSH`.
pub(crate) const ZIO_FLUSH: u64 = 5;
/// `ZIO_TYPE_TRIM`.
pub(crate) const ZIO_TRIM: u64 = 6;

/// Posts the events of one pool.
#[derive(Debug, Default)]
pub struct Reporter {
    state: Mutex<ReporterState>,
}

#[derive(Debug, Default)]
struct ReporterState {
    ring: Option<Arc<Events>>,
    early: VecDeque<(String, Vec<(String, Value)>)>,
    pool: String,
    guid: Guid,
    failmode: &'static str,
    is_open: bool,
    /// By kind and vdev: the second, and how many were passed on in it.
    rates: HashMap<(&'static str, Guid), (Instant, u32)>,
    places: HashSet<Place>,
    by_time: VecDeque<(Instant, Place)>,
    /// Changes of groups that are not committed yet.
    announced: BTreeMap<Txg, Announced>,
    /// Datasets that were written lately, the last one at the end, while the feed has readers.
    written: VecDeque<ObjsetId>,
}

/// What a group changes.
#[derive(Debug, Default)]
struct Announced {
    changes: Vec<What>,
    /// There are more than can be told.
    is_too_much: bool,
}

type Place = (&'static str, Guid, Option<Bookmark>, Option<u64>, u64);

impl Reporter {
    fn state(&self) -> MutexGuard<'_, ReporterState> {
        self.state.lock().ignore_poison()
    }

    /// The pool's name and guid.
    pub(crate) fn set_pool(&self, name: &str, guid: Guid) {
        let mut state = self.state();
        name.clone_into(&mut state.pool);
        state.guid = guid;
    }

    /// The pool's name.
    pub(crate) fn pool_name(&self) -> String {
        self.state().pool.clone()
    }

    /// The word of the pool's `failmode`.
    pub(crate) fn set_failmode(&self, failmode: &'static str) {
        self.state().failmode = failmode;
    }

    /// The pool is open, and its events go to this ring from now on, with those that wait.
    pub fn attach(&self, ring: &Arc<Events>) {
        let mut state = self.state();
        state.is_open = true;
        for (class, fields) in std::mem::take(&mut state.early) {
            ring.post(class, fields);
        }
        state.ring = Some(Arc::clone(ring));
    }

    /// A change of the pool, or of one of its vdevs: `sysevent.fs.zfs.NAME`, with more values.
    pub fn sysevent(&self, name: &str, vdev: Option<&VdevFacts>, more: Vec<(String, Value)>) {
        self.resource("sysevent", name, vdev, more);
    }

    /// The feed that it tells of changes, once the pool is open.
    pub fn feed(&self) -> Option<Arc<Feed>> {
        self.state().ring.as_ref().map(|ring| Arc::clone(&ring.feed))
    }

    /// Something becomes different with this group: it is told when the group is committed.
    pub(crate) fn announce(&self, txg: Txg, what: What) {
        let mut state = self.state();
        if state.ring.is_none() {
            return;
        }
        let announced = state.announced.entry(txg).or_default();
        match announced.changes.len() < MAX_CHANGES {
            true => announced.changes.push(what),
            false => announced.is_too_much = true,
        }
    }

    /// A group is committed, and readers see it.
    pub(crate) fn committed(&self, txg: Txg) {
        let mut state = self.state();
        let later = state.announced.split_off(&Txg(txg.get() + 1));
        let announced = std::mem::replace(&mut state.announced, later);
        let Some(ring) = &state.ring else { return };
        for (txg, Announced { changes, is_too_much }) in announced {
            match is_too_much {
                true => ring.feed.lose(),
                false => ring.feed.publish(changes.into_iter().map(|what| state.change(txg, what))),
            }
        }
        ring.feed.moved();
    }

    /// Something became different that belongs to no group.
    pub fn tell(&self, what: What) {
        let state = self.state();
        if let Some(ring) = &state.ring {
            ring.feed.publish([state.change(Txg::NONE, what)]);
        }
    }

    /// A dataset is written with a group.
    pub(crate) fn wrote(&self, dataset: ObjsetId) {
        let mut state = self.state();
        if !state.ring.as_ref().is_some_and(|ring| ring.feed.has_readers()) {
            return;
        }
        state.written.retain(|other| *other != dataset);
        if state.written.len() >= MAX_WRITTEN {
            state.written.pop_front();
        }
        state.written.push_back(dataset);
    }

    /// Datasets that were written lately, while the feed had readers.
    pub fn written_lately(&self) -> Vec<ObjsetId> {
        self.state().written.iter().copied().collect()
    }

    /// Figures of the pool are others than before: space, or how far a job is.
    pub(crate) fn moved(&self) {
        if let Some(ring) = &self.state().ring {
            ring.feed.moved();
        }
    }

    /// The state of a leaf changed: `resource.fs.zfs.statechange`, and `removed` when it is gone. `before` is
    /// its previous state.
    pub(crate) fn state_changed(&self, vdev: &VdevFacts, before: u64) {
        const REMOVED: u64 = 3;
        if vdev.state == REMOVED {
            self.resource("resource", "removed", Some(vdev), Vec::new());
        }
        let more = vec![field("vdev_laststate", before)];
        self.resource("resource", "statechange", Some(vdev), more);
        self.tell(What::VdevState { guid: vdev.guid, path: vdev.path.clone(), state: vdev.state });
    }

    /// `resource.fs.zfs.NAME` or `sysevent.fs.zfs.NAME` (`zfs_event_create`).
    fn resource(&self, family: &str, name: &str, vdev: Option<&VdevFacts>, more: Vec<(String, Value)>) {
        let mut state = self.state();
        let mut fields = vec![field("version", 0)];
        fields.extend(state.of_pool());
        if let Some(vdev) = vdev {
            fields.extend([field("vdev_guid", vdev.guid.get()), field("vdev_state", vdev.state)]);
            fields.extend(vdev.path.as_ref().map(|path| text("vdev_path", path)));
        }
        fields.extend(more);
        state.post(format!("{family}.fs.zfs.{name}"), fields);
    }

    /// An error: `ereport.fs.zfs.KIND`. `prev_state` is the previous state of a vdev that failed as a whole.
    /// Returns false for an error in a place that was passed on a short while ago.
    pub(crate) fn ereport(
        &self,
        kind: &'static str,
        vdev: Option<&VdevFacts>,
        zio: Option<&ZioFacts>,
        prev_state: Option<u64>,
    ) -> bool {
        let mut state = self.state();
        let guid = vdev.map_or(Guid(0), |vdev| vdev.guid);
        if let Some(zio) = zio {
            let has_place = zio.offset.is_some() || zio.at.is_some();
            if has_place && state.is_repeated((kind, guid, zio.at, zio.offset, zio.size)) {
                return false;
            }
            if state.is_flood(kind, guid) {
                DROPPED_EREPORTS.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        let mut detector = vec![field("version", 0), text("scheme", "zfs"), field("pool", state.guid.get())];
        detector.extend(vdev.map(|vdev| field("vdev", vdev.guid.get())));
        let mut fields = vec![("detector".to_owned(), Value::Nested(detector))];
        fields.extend(state.of_pool());
        fields.push(text("pool_failmode", if state.failmode.is_empty() { "wait" } else { state.failmode }));
        if let Some(vdev) = vdev {
            fields.extend([field("vdev_guid", vdev.guid.get()), text("vdev_type", &vdev.kind)]);
            fields.extend(vdev.path.as_ref().map(|path| text("vdev_path", path)));
            fields.push(field("vdev_ashift", vdev.ashift.into()));
            let names = ["vdev_read_errors", "vdev_write_errors", "vdev_cksum_errors"];
            fields.extend(names.into_iter().zip(vdev.errors).map(|(name, count)| field(name, count)));
            fields.push(field("vdev_delays", vdev.slow));
            if let Some((guid, kind)) = &vdev.parent {
                fields.extend([field("parent_guid", guid.get()), text("parent_type", kind)]);
            }
        }
        if let Some(zio) = zio {
            fields.extend(zio.fields(vdev.is_some()));
        }
        fields.extend(prev_state.map(|before| field("prev_state", before)));
        state.post(format!("ereport.fs.zfs.{kind}"), fields);
        true
    }

    /// Forgets which errors were passed on, of one vdev or of all (`zfs_ereport_clear`).
    pub(crate) fn forget_errors(&self, vdev: Option<Guid>) {
        let mut state = self.state();
        let keeps = |place: &Place| vdev.is_some_and(|guid| place.1 != guid);
        state.places.retain(keeps);
        state.by_time.retain(|(_, place)| keeps(place));
    }
}

impl ReporterState {
    fn change(&self, txg: Txg, what: What) -> Change {
        Change { pool: self.pool.clone(), guid: self.guid, txg, what }
    }

    fn of_pool(&self) -> Vec<(String, Value)> {
        // `SPA_LOAD_NONE` and `SPA_LOAD_IMPORT`.
        let context = if self.is_open { 0 } else { 2 };
        vec![
            text("pool", &self.pool),
            field("pool_guid", self.guid.get()),
            field("pool_state", 0),
            field("pool_context", context),
        ]
    }

    fn post(&mut self, class: String, fields: Vec<(String, Value)>) {
        match &self.ring {
            Some(ring) => drop(ring.post(class, fields)),
            None if self.early.len() < MAX_EARLY => self.early.push_back((class, fields)),
            None => {}
        }
    }

    /// Whether an error in this place was passed on a short while ago.
    fn is_repeated(&mut self, place: Place) -> bool {
        while let Some((since, old)) = self.by_time.front()
            && (since.elapsed() > REPEATED || self.by_time.len() >= MAX_PLACES)
        {
            self.places.remove(old);
            self.by_time.pop_front();
        }
        let is_new = self.places.insert(place);
        if is_new {
            self.by_time.push_back((Instant::now(), place));
        }
        !is_new
    }

    /// Whether too many errors of this kind were passed on in this second.
    fn is_flood(&mut self, kind: &'static str, vdev: Guid) -> bool {
        let (since, count) = self.rates.entry((kind, vdev)).or_insert((Instant::now(), 0));
        if since.elapsed() >= Duration::from_secs(1) {
            (*since, *count) = (Instant::now(), 0);
        }
        *count += 1;
        let most = match kind {
            "checksum" => tunables::ZFS_CHECKSUM_EVENTS_PER_SECOND.get(),
            "delay" => tunables::ZFS_SLOW_IO_EVENTS_PER_SECOND.get(),
            // As in OpenZFS: the ring is bounded, and a device with many of them is given up.
            "io" => u64::MAX,
            _ => u64::from(MAX_PER_SECOND),
        };
        u64::from(*count) > most
    }
}

impl ZioFacts {
    fn fields(&self, has_vdev: bool) -> Vec<(String, Value)> {
        let mut fields = vec![
            ("zio_err".to_owned(), Value::Signed(self.errno.into())),
            field("zio_delta", u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX)),
            field("zio_type", self.kind),
            field("zio_priority", self.priority),
        ];
        if has_vdev {
            fields.extend(self.offset.map(|offset| field("zio_offset", offset)));
            fields.push(field("zio_size", self.size));
        }
        if let Some(at) = self.at {
            fields.extend([
                field("zio_objset", at.objset),
                field("zio_object", at.object),
                ("zio_level".to_owned(), Value::Signed(at.level)),
                field("zio_blkid", at.blkid),
            ]);
        }
        fields
    }
}

/// A number with its name.
pub fn field(name: &str, number: u64) -> (String, Value) {
    (name.to_owned(), Value::Number(number))
}

/// A text with its name.
pub fn text(name: &str, text: &str) -> (String, Value) {
    (name.to_owned(), Value::Text(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_learn_how_much_they_missed_and_clearing_is_no_miss() {
        let events = Events::default();
        for _ in 0..max_events() + 3 {
            events.post("sysevent.fs.zfs.config_sync".into(), Vec::new());
        }
        let all = events.since(0);
        assert_eq!((all.events.len(), all.dropped, all.events[0].eid), (max_events(), 0, 4));
        assert_eq!(events.since(1).dropped, 2);
        assert_eq!(events.since(3).dropped, 0);
        assert_eq!(events.clear(), max_events());
        let none = events.since(7);
        assert_eq!((none.events.len(), none.dropped, none.last_eid), (0, 0, all.last_eid));
        let restored = Events::restored(all.events);
        assert_eq!(restored.post("sysevent.fs.zfs.pool_import".into(), Vec::new()), all.last_eid + 1);
    }

    #[test]
    fn what_groups_change_is_told_when_they_are_committed() {
        let (reporter, ring) = (Reporter::default(), Arc::new(Events::default()));
        reporter.set_pool("tank", Guid(7));
        reporter.announce(Txg(3), What::Configured);
        reporter.attach(&ring);
        let set = |name: &str| What::PoolSet { property: name.to_owned() };
        reporter.announce(Txg(5), set("b"));
        reporter.announce(Txg(4), set("a"));
        assert_eq!(ring.feed().last(), 0);
        reporter.committed(Txg(4));
        reporter.tell(What::Suspended);
        reporter.committed(Txg(5));
        reporter.committed(Txg(6));
        let told = ring.feed().after(0, 10).changes.into_iter();
        let told: Vec<_> = told.map(|(_, change)| (change.txg, change.what.clone())).collect();
        let expected = [(Txg(4), set("a")), (Txg::NONE, What::Suspended), (Txg(5), set("b"))];
        assert_eq!(told, expected);
        (0..=MAX_CHANGES).for_each(|_| reporter.announce(Txg(7), What::Configured));
        reporter.committed(Txg(7));
        assert!(ring.feed().after(3, 10).missed);
    }

    #[test]
    fn an_error_in_the_same_place_is_passed_on_once_and_a_flood_is_cut() {
        let (reporter, ring) = (Reporter::default(), Arc::new(Events::default()));
        reporter.set_pool("tank", Guid(7));
        let vdev = VdevFacts { guid: Guid(9), kind: "file".into(), ..VdevFacts::default() };
        let post = |offset| {
            let zio = ZioFacts { errno: ECKSUM, offset: Some(offset), size: 4096, ..ZioFacts::default() };
            reporter.ereport("checksum", Some(&vdev), Some(&zio), None)
        };
        assert_eq!([post(0), post(0)], [true, false]);
        reporter.attach(&ring);
        assert_eq!(ring.since(0).events.len(), 1, "what waited for the ring");
        reporter.forget_errors(Some(Guid(8)));
        post(0);
        assert_eq!(ring.last_eid(), 1);
        reporter.forget_errors(None);
        assert!((0..100).all(|place| post(place * 4096)), "a flood is no repetition");
        assert!((20..=41).contains(&ring.last_eid()), "{}", ring.last_eid());
        let event = &ring.since(1).events[0];
        assert_eq!((event.subclass(), event.pool(), event.vdev()), ("checksum", Some("tank"), Some(Guid(9))));
        assert_eq!((event.number("zio_err"), event.number("zio_size")), (Some(52), Some(4096)));
    }
}
