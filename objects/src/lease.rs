//! The lease: a sign of life of the owner, for hosts that stand by.
//!
//! # The idea
//! The owner writes the object `lease` every few seconds, with a counter. A host that stands by reads it, and
//! measures by its own clock for how long it has not changed. No clock is compared with another one. When the
//! lease has not changed for some intervals, it is over, and the device may be taken over ([`crate::open`]).
//!
//! # What does not depend on it
//! That data are right. Any host may take the device over at any time, and commits fence the owner before.
//! The lease only says when that is sensible. So it may be lost, late, or old.
//!
//! # What it says
//! | state | meaning for those that stand by |
//! |---|---|
//! | held | the owner lives, as long as it changes |
//! | free | the owner closed the device, and any host may go on at once |
//! | exported | a person took the device out of service: it is left alone until it is asked for by name |
//!
//! # An owner that slept
//! The owner reads the lease before it writes it. A lease of another opening with a newer epoch says that the
//! device was taken over: the owner ends, also where it had nothing to write. A lease of an older epoch,
//! which an owner that slept may write over the newer one, renews nothing for those that watch.
//!
//! # Reads
//! What an owner has in memory is old once another host has the device, and reading it asks no store. So the
//! owner keeps when it began the last look that found the device its own, after which it wrote the lease
//! ([`Claim`]). Hosts that stand by count from a later moment, and for three intervals; requests of clients
//! are held back after two, until there is a new proof. Both clocks of the system count: one goes on while a
//! process is stopped, the other is set after a machine slept.
//!
//! # A store that is away
//! The owner cannot write the lease then, and hosts that stand by cannot read it. A read that fails begins
//! the measure anew, so that the owner has the time of all intervals once the store is back. Before a host
//! takes over, it waits for a random time and looks again: of several hosts one is first, and the others see
//! it.
//!
//! # The object
//! A head as those of all objects ([`crate::format`]), its number the counter. The body:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | epoch: the commit that began the opening |
//! | 8 | 4 | interval in milliseconds |
//! | 12 | 2 | state: 0 held, 1 free, 2 exported |
//! | 14 | 2 | bytes of the name |
//! | 16 | | name of the host, UTF-8, at most 255 bytes |
//!
//! # In this process
//! [`fate`] says what became of devices that this process opened, by their addresses. One lock guards that;
//! it is taken alone, for a few lines.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use ::device::IgnorePoison;
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::address::Address;
use crate::bucket::Bucket;
use crate::core::Core;
use crate::error::{Damage, Error};
use crate::format::{
    self, DEVICE_KEY, HEAD_BYTES, Head, Kind, MAX_OBJECT_BYTES, Origin, Reader, Sequence, Writer,
};
use crate::requests;

/// The key of the lease.
pub const LEASE_KEY: &str = "lease";
/// How often the owner writes it, unless it is told otherwise.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// Intervals without a change after which it is over.
pub const INTERVALS: u32 = 3;
/// The most bytes of the object.
const MAX_BYTES: u64 = 4096;
/// The most bytes of a name.
const MAX_NAME_BYTES: usize = 255;
/// Intervals that a lease may name.
const INTERVAL_BOUNDS: std::ops::RangeInclusive<u32> = 10..=3_600_000;
/// How long a request is made again that failed: a connection may have been given up meanwhile.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long the end of an owner may take to write it.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// What the owner says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// It lives.
    #[default]
    Held,
    /// It is closed; another host may go on.
    Free,
    /// It is closed on purpose; no host goes on by itself.
    Exported,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Whose it is.
    pub origin: Origin,
    /// The commit that began the opening.
    pub epoch: Sequence,
    /// One more each time.
    pub counter: u64,
    /// How often it is written.
    pub interval: Duration,
    /// What it says.
    pub state: State,
    /// The owner's host.
    pub host: String,
}

impl Lease {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut end = self.host.len().min(MAX_NAME_BYTES);
        while !self.host.is_char_boundary(end) {
            end -= 1;
        }
        let host = &self.host.as_bytes()[..end];
        let state = match self.state {
            State::Held => 0,
            State::Free => 1,
            State::Exported => 2,
        };
        let mut body = Writer::default();
        let milliseconds = u32::try_from(self.interval.as_millis()).unwrap_or(u32::MAX);
        let milliseconds = milliseconds.clamp(*INTERVAL_BOUNDS.start(), *INTERVAL_BOUNDS.end());
        body.u64(self.epoch.0).u32(milliseconds).u16(state).u16(host.len() as u16).raw(host);
        let head = Head { origin: self.origin, number: self.counter, data_bytes: 0 };
        format::encode(Kind::Lease, head, vec![0; HEAD_BYTES], &body.into_bytes())
    }

    /// A lease of any device.
    ///
    /// # Errors
    /// The bytes are no lease.
    pub fn decode(bytes: &Bytes) -> Result<Self, Error> {
        let (head, _) = format::decode_head(LEASE_KEY, bytes, Kind::Lease)?;
        let object = format::decode(LEASE_KEY, bytes, Kind::Lease, None, head.number)?;
        let mut from = Reader::new(&object.body);
        let mut read = || {
            let (epoch, interval, state) = (from.u64()?, from.u32()?, from.u16()?);
            let length = usize::from(from.u16()?);
            let host = from.take(length).filter(|_| length <= MAX_NAME_BYTES && from.is_empty())?;
            let state = match state {
                0 => State::Held,
                1 => State::Free,
                2 => State::Exported,
                _ => return None,
            };
            INTERVAL_BOUNDS.contains(&interval).then_some(())?;
            Some(Self {
                origin: head.origin,
                epoch: Sequence(epoch),
                counter: head.number,
                interval: Duration::from_millis(interval.into()),
                state,
                host: std::str::from_utf8(host).ok()?.to_owned(),
            })
        };
        read().ok_or_else(|| Error::damaged(LEASE_KEY, Damage::Body))
    }
}

/// Reads the lease; none where there is none.
///
/// # Errors
/// The store; the object is no lease.
async fn read(bucket: &dyn Bucket) -> Result<Option<Lease>, Error> {
    let bytes = requests::object(bucket, LEASE_KEY, MAX_BYTES, PATIENCE).await?;
    bytes.map(|bytes| Lease::decode(&bytes)).transpose()
}

/// What became of a device that this process opened to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fate {
    /// Another host has taken it over.
    pub is_taken_over: bool,
    /// That host, as far as it is known.
    pub by: Option<String>,
}

/// Whether a device that this process has open is still its own.
#[derive(Debug)]
pub struct Claim {
    is_taken_over: AtomicBool,
    /// The device is closed.
    is_over: AtomicBool,
    /// When the last look began that found it so, by [`clocks`].
    proven: [AtomicU64; 2],
    /// How long that counts.
    limit: Duration,
    changed: Notify,
}

/// Milliseconds by the two clocks of the system, from some moment.
fn clocks() -> [u64; 2] {
    static BEGAN: OnceLock<std::time::Instant> = OnceLock::new();
    let steady = BEGAN.get_or_init(std::time::Instant::now).elapsed();
    let of_day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    [steady, of_day].map(|time| time.as_millis() as u64)
}

impl Claim {
    fn new(interval: Duration) -> Self {
        Self {
            is_taken_over: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            proven: clocks().map(AtomicU64::new),
            limit: interval * (INTERVALS - 1),
            changed: Notify::new(),
        }
    }

    /// Whether another host has the device. It is so before the first operation on the device is told.
    pub fn is_taken_over(&self) -> bool {
        self.is_taken_over.load(Ordering::Acquire)
    }

    /// Whether it is not known at the moment that the device is this host's.
    pub fn is_unproven(&self) -> bool {
        let limit = self.limit.as_millis() as u64;
        let is_old =
            |(now, proven): (u64, &AtomicU64)| now.saturating_sub(proven.load(Ordering::Acquire)) > limit;
        clocks().into_iter().zip(&self.proven).any(is_old) && !self.is_over.load(Ordering::Acquire)
    }

    /// Waits until that is known again, or the device is another host's, or closed.
    pub async fn proven(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if self.is_taken_over() || !self.is_unproven() {
                return;
            }
            changed.await;
        }
    }

    /// Another host has the device.
    pub(crate) fn take_over(&self) {
        self.is_taken_over.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    fn prove(&self, began: [u64; 2]) {
        self.proven.iter().zip(began).for_each(|(proven, began)| proven.store(began, Ordering::Release));
        self.changed.notify_waiters();
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }
}

/// A device that this process has open.
#[derive(Debug, Clone)]
struct Own {
    claim: Arc<Claim>,
    by: Option<String>,
    /// What the lease is to say at the end; none for nothing.
    leaves: Option<State>,
}

/// Devices that are open, by address and opening.
static OWN: Mutex<BTreeMap<(String, u64), Own>> = Mutex::new(BTreeMap::new());

fn of_address(address: &str, act: impl FnMut(&mut Own)) {
    let mut own = OWN.lock().ignore_poison();
    own.iter_mut().filter(|((of, _), _)| of == address).map(|(_, own)| own).for_each(act);
}

/// A place as this module knows it, of the address that labels have. All functions here that name a device
/// take that.
pub fn place(address: &str) -> Option<String> {
    let bucket = address.parse::<Address>().ok()?.bucket(false).ok()?;
    Some(bucket.address().to_owned())
}

/// The claims to devices at this place that this process has open to write.
pub fn claims(address: &str) -> Vec<Arc<Claim>> {
    let mut found = Vec::new();
    of_address(address, |own| found.push(Arc::clone(&own.claim)));
    found
}

/// What became of the device at this place, if this process has it open to write.
pub fn fate(address: &str) -> Option<Fate> {
    let mut found: Option<Fate> = None;
    of_address(address, |own| {
        if found.as_ref().is_none_or(|found| !found.is_taken_over) {
            let is_taken_over = own.claim.is_taken_over();
            found = Some(Fate { is_taken_over, by: own.by.clone() });
        }
    });
    found
}

/// What the lease is to say when this process closes the device: by default that it is free. `None` leaves it
/// as it is, for a process of this host that goes on.
pub fn leave_as(address: &str, state: Option<State>) {
    of_address(address, |own| own.leaves = state);
}

/// Writes the lease as long as the device is open.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// To be told when an operation finds that the device was taken over.
    pub claim: Arc<Claim>,
    end: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Keeper {
    /// Begins. None for a device that is only read, or where the interval is zero.
    pub(crate) fn begin(core: &Rc<Core>, bucket: Arc<dyn Bucket>, interval: Duration) -> Option<Self> {
        let (origin, epoch) = core.opening();
        if epoch.is_none() || interval.is_zero() {
            return None;
        }
        let (end, is_ended) = oneshot::channel();
        let key = (bucket.address().to_owned(), origin.opening);
        let claim = Arc::new(Claim::new(interval));
        let own = Own { claim: Arc::clone(&claim), by: None, leaves: Some(State::Free) };
        OWN.lock().ignore_poison().insert(key.clone(), own);
        let of_task = Arc::clone(&claim);
        let writing = Writing { core: Rc::clone(core), bucket, interval, key, claim: of_task, counter: 0 };
        let task = tokio::task::spawn_local(writing.until(is_ended));
        Some(Self { claim, end, task })
    }

    /// Ends, and says in the lease how the device was left.
    pub(crate) async fn end(self) {
        drop(self.end);
        // It has panicked at worst, which it has told.
        let _ = self.task.await;
    }
}

/// The owner's part.
struct Writing {
    core: Rc<Core>,
    bucket: Arc<dyn Bucket>,
    interval: Duration,
    key: (String, u64),
    claim: Arc<Claim>,
    counter: u64,
}

impl Writing {
    async fn until(mut self, mut is_ended: oneshot::Receiver<()>) {
        loop {
            let mut is_over = false;
            tokio::select! {
                () = self.once() => {}
                _ = &mut is_ended => is_over = true,
            }
            if !is_over {
                tokio::select! {
                    () = sleep(self.interval) => {}
                    _ = &mut is_ended => is_over = true,
                }
            }
            if is_over {
                break;
            }
        }
        let own = OWN.lock().ignore_poison().remove(&self.key);
        self.claim.end();
        let left = own.filter(|own| !own.claim.is_taken_over()).and_then(|own| own.leaves);
        if let (Some(state), None) = (left, self.core.ended())
            && let Err(error) = timeout(LEAVE_LIMIT, self.write(state)).await.unwrap_or(Ok(()))
        {
            tracing::warn!(%error, "the lease does not say that the device is closed");
        }
    }

    /// Looks whether the device is still its own, and says so.
    async fn once(&mut self) {
        if matches!(self.core.ended(), Some(Error::TakenOver)) {
            self.claim.take_over();
            if let Ok(Some(lease)) = read(&*self.bucket).await
                && lease.origin.opening != self.key.1
            {
                self.note_owner(lease.host);
            }
            return;
        }
        let (origin, epoch) = self.core.opening();
        let began = clocks();
        let found = read(&*self.bucket).await;
        let is_answered = matches!(found, Ok(_) | Err(Error::Damaged { .. }));
        match found {
            Ok(Some(lease))
                if lease.origin.device == origin.device
                    && lease.origin.opening != origin.opening
                    && epoch.is_some_and(|epoch| lease.epoch > epoch) =>
            {
                tracing::error!(device = self.key.0, host = lease.host, "taken over by another host");
                self.note_owner(lease.host);
                self.claim.take_over();
                self.core.is_taken_over();
                return;
            }
            // What cannot be read is of no owner: writing tells whether the store is there.
            Ok(_) | Err(_) => {}
        }
        match self.write(State::Held).await {
            Ok(()) if is_answered => self.claim.prove(began),
            Ok(()) => {}
            Err(error) => tracing::warn!(%error, "the lease is not written"),
        }
    }

    fn note_owner(&self, host: String) {
        if let Some(own) = OWN.lock().ignore_poison().get_mut(&self.key) {
            own.by = Some(host);
        }
    }

    async fn write(&mut self, state: State) -> Result<(), Error> {
        let (origin, epoch) = self.core.opening();
        self.counter += 1;
        let lease = Lease {
            origin,
            epoch: epoch.unwrap_or_default(),
            counter: self.counter,
            interval: self.interval,
            state,
            host: host_name(),
        };
        let bytes = lease.encode();
        let put = async || self.bucket.put(LEASE_KEY, bytes.clone()).await;
        requests::ask(&*self.bucket, LEASE_KEY, PATIENCE, put).await
    }
}

/// The name of this host; `CENOTE_HOST_NAME` gives another one, for several daemons of one machine.
pub fn host_name() -> String {
    if let Some(name) = std::env::var("CENOTE_HOST_NAME").ok().filter(|name| !name.is_empty()) {
        return name;
    }
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// What a host that stands by finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The owner lives, as far as is known.
    Held {
        /// Its lease; none where there is none so far.
        lease: Option<Lease>,
        /// For how long it has not changed.
        unchanged: Duration,
    },
    /// The lease is over, or there has been none for as long.
    Over(Option<Lease>),
    /// The owner closed the device.
    Free(Lease),
    /// The owner closed the device for good.
    Exported(Lease),
    /// The lease cannot be read, and why.
    Unknown(String),
}

impl Seen {
    /// Whether another host may go on now.
    pub fn may_be_taken(&self) -> bool {
        matches!(self, Self::Over(_) | Self::Free(_))
    }
}

/// What tells one writing of a lease from the next: opening and counter; none where there is no lease.
type Sign = Option<(u64, u64)>;

/// Watches the lease of another host.
#[derive(Debug)]
pub struct Watch {
    bucket: Arc<dyn Bucket>,
    intervals: u32,
    /// The newest epoch that was seen.
    newest: Sequence,
    /// What was read last, since when, and how often it was the same.
    last: Option<(Sign, Instant, u32)>,
    interval: Duration,
}

impl Watch {
    /// Begins. The lease is over after so many intervals without a change.
    pub fn new(bucket: Arc<dyn Bucket>, intervals: u32) -> Self {
        Self { bucket, intervals: intervals.max(1), newest: Sequence(0), last: None, interval: INTERVAL }
    }

    /// How long to wait before the next look.
    pub fn pause(&self) -> Duration {
        // The counting of looks then takes no longer than that of time.
        self.interval.mul_f64(0.5)
    }

    /// Looks at the lease once.
    pub async fn look(&mut self) -> Seen {
        let limit = self.interval.max(Duration::from_secs(1));
        let read = match timeout(limit, self.read()).await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(_) => Err(format!("{}: no answer in {} s", self.bucket.address(), limit.as_secs())),
        };
        let lease = match read {
            Ok(lease) => lease,
            Err(why) => {
                // The owner may have no better store: it gets the time of all intervals again.
                self.last = None;
                return Seen::Unknown(why);
            }
        };
        // One of an owner that slept renews nothing.
        let is_old = lease.as_ref().is_some_and(|lease| lease.epoch < self.newest);
        if let Some(lease) = lease.as_ref().filter(|_| !is_old) {
            self.newest = lease.epoch;
            self.interval = lease.interval;
            match lease.state {
                State::Free => return Seen::Free(lease.clone()),
                State::Exported => return Seen::Exported(lease.clone()),
                State::Held => {}
            }
        }
        let now = Instant::now();
        let found = lease.as_ref().map(|lease| (lease.origin.opening, lease.counter));
        let (since, looks) = match self.last.take() {
            Some((last, since, looks)) if last == found || is_old => (since, looks + 1),
            _ => (now, 0),
        };
        self.last = Some((found, since, looks));
        let unchanged = now - since;
        // Looks are counted too: a host that slept itself does not judge by its clock alone.
        match looks >= self.intervals && unchanged >= self.interval * self.intervals {
            true => Seen::Over(lease),
            false => Seen::Held { lease, unchanged },
        }
    }

    /// The lease; none where a device never had one.
    async fn read(&self) -> Result<Option<Lease>, Error> {
        let lease = read(&*self.bucket).await?;
        if lease.is_none() {
            let device = requests::object(&*self.bucket, DEVICE_KEY, MAX_OBJECT_BYTES, PATIENCE).await?;
            device.ok_or_else(|| Error::NoDevice { address: self.bucket.address().to_owned() })?;
        }
        Ok(lease)
    }

    /// Waits for a random time, and says whether the device may still be taken over.
    pub async fn confirm(&mut self) -> bool {
        sleep(self.interval.mul_f64(fastrand::f64() / 2.0)).await;
        self.look().await.may_be_taken()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::task::{LocalSet, spawn_local};

    use super::*;
    use crate::bucket::{BucketError, BucketFuture, Listed, MemoryBucket};
    use crate::core::Options;
    use crate::opening;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        LocalSet::new().block_on(&runtime, future)
    }

    /// A store in memory that may be away.
    #[derive(Debug)]
    struct Store {
        objects: MemoryBucket,
        address: String,
        is_away: Mutex<bool>,
    }

    impl Store {
        fn new(address: &str) -> Arc<Self> {
            let (address, is_away) = (address.to_owned(), Mutex::default());
            Arc::new(Self { objects: MemoryBucket::default(), address, is_away })
        }

        fn is_away(&self, is_away: bool) {
            *self.is_away.lock().unwrap() = is_away;
        }

        fn unless_away<'a, T: Send + 'a>(&self, answer: BucketFuture<'a, T>) -> BucketFuture<'a, T> {
            match *self.is_away.lock().unwrap() {
                true => Box::pin(async { Err(BucketError::Unsure("away".into())) }),
                false => answer,
            }
        }
    }

    impl Bucket for Store {
        fn address(&self) -> &str {
            &self.address
        }
        fn create(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
            self.unless_away(self.objects.create(key, body))
        }
        fn put(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
            self.unless_away(self.objects.put(key, body))
        }
        fn get(&self, key: &str, range: std::ops::Range<u64>) -> BucketFuture<'_, Bytes> {
            self.unless_away(self.objects.get(key, range))
        }
        fn get_all(&self, key: &str, limit: u64) -> BucketFuture<'_, Bytes> {
            self.unless_away(self.objects.get_all(key, limit))
        }
        fn delete(&self, key: &str) -> BucketFuture<'_, ()> {
            self.unless_away(self.objects.delete(key))
        }
        fn list(&self, prefix: &str, after: &str, limit: usize) -> BucketFuture<'_, Vec<Listed>> {
            self.unless_away(self.objects.list(prefix, after, limit))
        }
    }

    async fn owner(store: &Arc<Store>) -> (Rc<Core>, Keeper) {
        let core = Rc::new(opening::open(store.clone(), Options::default()).await.unwrap());
        let keeper = Keeper::begin(&core, store.clone(), INTERVAL).unwrap();
        (core, keeper)
    }

    async fn made(address: &str) -> Arc<Store> {
        let store = Store::new(address);
        opening::create(&*store, 64 << 20, &Options::default()).await.unwrap();
        store
    }

    /// Looks as a daemon does for so long, and says after which time the device might be taken.
    async fn watch(watch: &mut Watch, limit: Duration) -> Option<Duration> {
        let began = Instant::now();
        while began.elapsed() < limit {
            if watch.look().await.may_be_taken() {
                return Some(began.elapsed());
            }
            sleep(watch.pause()).await;
        }
        None
    }

    fn some_lease() -> Lease {
        let origin = Origin { device: [3; 16], opening: 77 };
        Lease {
            origin,
            epoch: Sequence(9),
            counter: 12,
            interval: INTERVAL,
            state: State::Free,
            host: "über".into(),
        }
    }

    #[test]
    fn a_lease_is_read_as_it_was_written_and_a_changed_byte_is_found() {
        let lease = some_lease();
        let bytes = lease.encode();
        assert_eq!(Lease::decode(&bytes).unwrap(), lease);
        for at in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[at] ^= 1;
            assert!(Lease::decode(&changed.into()).is_err(), "{at}");
        }
        let long = Lease { host: "ü".repeat(200), ..lease };
        assert_eq!(Lease::decode(&long.encode()).unwrap().host, "ü".repeat(127));
    }

    #[test]
    fn a_lease_that_changes_is_held_and_one_that_does_not_is_over() {
        run(async {
            let store = made("test:held").await;
            let (core, keeper) = owner(&store).await;
            let mut standby = Watch::new(store.clone(), INTERVALS);
            assert_eq!(watch(&mut standby, Duration::from_secs(300)).await, None);
            // It dies: nothing is written any more.
            keeper.task.abort();
            let after = watch(&mut standby, Duration::from_secs(300)).await.unwrap();
            assert!(after >= INTERVAL * 2 && after <= INTERVAL * 5, "{after:?}");
            assert!(standby.confirm().await);
            drop(core);
        });
    }

    #[test]
    fn an_owner_says_how_it_left() {
        run(async {
            let store = made("test:left").await;
            for (leaves, expected) in
                [(None, false), (Some(State::Exported), false), (Some(State::Free), true)]
            {
                let (_core, keeper) = owner(&store).await;
                let mut standby = Watch::new(store.clone(), INTERVALS);
                sleep(Duration::from_secs(1)).await;
                leave_as("test:left", leaves);
                keeper.end().await;
                let seen = standby.look().await;
                assert_eq!(seen.may_be_taken(), expected, "{leaves:?}: {seen:?}");
                assert_eq!(fate("test:left"), None);
            }
        });
    }

    #[test]
    fn an_owner_that_slept_ends_although_it_has_nothing_to_write() {
        run(async {
            let store = made("test:slept").await;
            let (first, keeper) = owner(&store).await;
            sleep(Duration::from_secs(1)).await;
            // Its machine sleeps: another host takes the device over meanwhile.
            keeper.task.abort();
            let (second, other) = owner(&store).await;
            sleep(Duration::from_secs(1)).await;
            let mut standby = Watch::new(store.clone(), INTERVALS);
            assert!(matches!(standby.look().await, Seen::Held { .. }));
            let awake = Keeper::begin(&first, store.clone(), INTERVAL).unwrap();
            sleep(Duration::from_secs(1)).await;
            assert_eq!(first.ended(), Some(Error::TakenOver));
            assert!(awake.claim.is_taken_over() && !other.claim.is_taken_over());
            assert!(fate("test:slept").unwrap().is_taken_over);
            assert!(first.read(0, 4096).await.is_err());
            assert_eq!(second.ended(), None);
            awake.end().await;
            assert!(matches!(standby.look().await, Seen::Held { .. }), "it says nothing at its end");
            other.end().await;
            assert!(matches!(standby.look().await, Seen::Free(_)));
        });
    }

    #[test]
    fn a_lease_of_an_older_epoch_renews_nothing() {
        run(async {
            let store = made("test:older").await;
            let newer = Lease { epoch: Sequence(8), state: State::Held, ..some_lease() };
            store.put(LEASE_KEY, newer.encode()).await.unwrap();
            let mut standby = Watch::new(store.clone(), INTERVALS);
            assert!(!standby.look().await.may_be_taken());
            let (writes, writer) = (store.clone(), newer.clone());
            let sleeper = spawn_local(async move {
                for counter in 100.. {
                    let origin = Origin { opening: 1, ..writer.origin };
                    let old = Lease { epoch: Sequence(7), counter, origin, ..writer.clone() };
                    writes.put(LEASE_KEY, old.encode()).await.unwrap();
                    sleep(INTERVAL).await;
                }
            });
            assert!(watch(&mut standby, INTERVAL * 5).await.is_some());
            sleeper.abort();
        });
    }

    #[test]
    fn a_store_that_is_away_makes_no_host_take_over() {
        run(async {
            let store = made("test:away").await;
            let (_core, keeper) = owner(&store).await;
            let mut standby = Watch::new(store.clone(), INTERVALS);
            assert_eq!(watch(&mut standby, Duration::from_secs(20)).await, None);
            store.is_away(true);
            assert_eq!(watch(&mut standby, Duration::from_secs(600)).await, None);
            assert!(matches!(standby.look().await, Seen::Unknown(_)));
            store.is_away(false);
            assert_eq!(watch(&mut standby, Duration::from_secs(600)).await, None);
            keeper.task.abort();
        });
    }

    #[test]
    fn a_claim_that_is_not_renewed_is_unproven_until_it_is() {
        let claim = Claim::new(INTERVAL);
        assert!(!claim.is_unproven());
        let long_ago = clocks().map(|now| now.saturating_sub(60_000));
        claim.prove([clocks()[0], long_ago[1]]);
        assert!(claim.is_unproven(), "the machine slept");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ::device::block_on(claim.proven()));
            claim.prove(clocks());
            waiting.join().unwrap();
        });
        claim.prove([clocks()[0], long_ago[1]]);
        claim.take_over();
        ::device::block_on(claim.proven());
        let closed = Claim::new(Duration::ZERO);
        closed.end();
        assert!(!closed.is_unproven());
    }

    #[test]
    fn a_place_without_a_device_is_not_taken_over() {
        run(async {
            let mut standby = Watch::new(Store::new("test:nothing"), INTERVALS);
            assert_eq!(watch(&mut standby, Duration::from_secs(100)).await, None);
            let seen = standby.look().await;
            assert!(matches!(&seen, Seen::Unknown(why) if why.contains("no device")), "{seen:?}");
            // One that never had a lease is taken by the first to find that.
            let mut standby = Watch::new(made("test:no-lease").await, INTERVALS);
            assert!(watch(&mut standby, Duration::from_secs(100)).await.is_some());
        });
    }

    #[test]
    fn of_several_hosts_that_stand_by_one_takes_over() {
        run(async {
            let store = made("test:several").await;
            let taken = Rc::new(std::cell::Cell::new(0));
            let hosts: Vec<_> = (0..4)
                .map(|_| {
                    let (store, taken) = (store.clone(), Rc::clone(&taken));
                    spawn_local(async move {
                        let mut standby = Watch::new(store.clone(), INTERVALS);
                        loop {
                            if standby.look().await.may_be_taken() && standby.confirm().await {
                                taken.set(taken.get() + 1);
                                let _owner = owner(&store).await;
                                return std::future::pending::<()>().await;
                            }
                            sleep(standby.pause()).await;
                        }
                    })
                })
                .collect();
            sleep(Duration::from_secs(900)).await;
            hosts.iter().for_each(tokio::task::JoinHandle::abort);
            assert_eq!(taken.get(), 1);
        });
    }

    proptest! {
        # [test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, body: Vec<u8>) {
            let _ = Lease::decode(&bytes.into());
            let head = Head { origin: Origin::default(), number: 1, data_bytes: 0 };
            let _ = Lease::decode(&format::encode(Kind::Lease, head, Vec::new(), &body));
        }
    }
}
