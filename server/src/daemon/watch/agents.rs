//! What the daemon does by itself when something happens to a pool: the part of OpenZFS's event daemon
//! (`zed`).
//!
//! One thread follows the feed of changes. For each event it runs the hooks that want it ([`super::hooks`]),
//! and decides whether a device must be acted on:
//!
//! | event | action |
//! |---|---|
//! | a leaf became `FAULTED`, `UNAVAIL` or `REMOVED`, or `DEGRADED` by errors | a hot spare takes its place |
//! | none; every few seconds | hot spares are looked at, and devices whose work is done are detached |
//! | none; every few seconds | devices that were gone and are back are taken online, and their spares go back; with `autoreplace=on` empty devices replace those that are gone |
//! | none; every few seconds | pools that another host took over end with an error for all who wait |
//! | none; every few seconds | requests of volumes' clients that take long are reported |
//! | none; every minute, and soon after the start | scrubs that are due by schedule begin, and so do snapshots |
//! | none; any change | what follows the feed is brought in line ([`super::following`]), unless an action does so |
//!
//! A leaf is acted on once for each time that it leaves `ONLINE`, and again when more spares are free. What
//! is decided is logged. Pools that are suspended are left alone, because nothing can be changed in them:
//! their devices are looked after when they go on, and so are those of a pool that was imported with devices
//! that had failed.
//!
//! The thread also writes the events down now and then. It ends with the daemon. It sleeps until something
//! changes or the next look is due, so that an idle daemon is woken every five seconds.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use engine::events::Event;
use engine::pool::live::LivePool;
use engine::vdev::{State, Vdev};
use ondisk::Guid;

use crate::daemon::{Daemon, OpenPool};

/// After so long a pool is looked at again that an action was changing.
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// How often it looks for devices that are back.
const LOOK_FOR_DEVICES: Duration = Duration::from_secs(5);
/// How often it looks for scrubs and snapshots that are due.
const LOOK_FOR_DUE: Duration = Duration::from_secs(60);
/// How often events are written down.
const KEEP_EVENTS: Duration = Duration::from_secs(5);

/// The agents of a daemon.
struct Agents {
    daemon: Weak<Daemon>,
    /// The last change that was seen.
    last_change: u64,
    /// The last event that was read.
    last_eid: u64,
    /// Leaves that were acted on, by pool, and how many spares were free then.
    acted_on: HashMap<(u64, Guid), usize>,
    /// A pool was being changed when it was to be brought in line.
    is_behind: bool,
    looked: Instant,
    /// When it looked for what is due by schedule; none before the first time.
    looked_for_due: Option<Instant>,
    kept: Instant,
    has_new: bool,
}

impl Daemon {
    /// Begins to act on events by itself, and to keep them in a file. Before any pool is open.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start_agents(self: &Arc<Self>) -> std::io::Result<()> {
        self.restore_events();
        self.load_hooks();
        let now = Instant::now();
        let mut agents = Agents {
            daemon: Arc::downgrade(self),
            last_change: self.feed().last(),
            last_eid: self.events().last_eid(),
            acted_on: HashMap::new(),
            is_behind: false,
            looked: now,
            looked_for_due: None,
            kept: now,
            has_new: false,
        };
        let run = move || while agents.step() {};
        std::thread::Builder::new().name("agents".into()).stack_size(device::STACK_BYTES).spawn(run).map(drop)
    }

    /// The agents end, and events are written down.
    pub(in crate::daemon) fn end_agents(&self) {
        self.events().end();
        self.keep_events();
    }
}

impl Agents {
    /// When there is something to be done although nothing changes.
    fn next_look(&self) -> Instant {
        let mut next = self.looked + LOOK_FOR_DEVICES;
        if self.has_new {
            next = next.min(self.kept + KEEP_EVENTS);
        }
        if self.is_behind {
            next = next.min(Instant::now() + TRY_AGAIN);
        }
        next
    }

    /// Waits for changes and acts on them. Returns false at the end of the daemon.
    fn step(&mut self) -> bool {
        let Some(feed) = self.daemon.upgrade().map(|daemon| daemon.feed()) else { return false };
        feed.wait_after(self.last_change, self.next_look());
        self.last_change = feed.last();
        drop(feed);
        let Some(daemon) = self.daemon.upgrade() else { return false };
        let events = daemon.events();
        let since = events.since(self.last_eid);
        let is_over = events.is_over();
        drop(events);
        self.last_eid = since.last_eid;
        self.has_new |= !since.events.is_empty();
        for event in &since.events {
            daemon.run_hooks(event);
            if !is_over {
                self.act(&daemon, event);
            }
        }
        if self.has_new && self.kept.elapsed() >= KEEP_EVENTS {
            daemon.keep_events();
            (self.kept, self.has_new) = (Instant::now(), false);
        }
        if !is_over {
            self.is_behind = device::block_on(daemon.catch_up_idle());
        }
        if !is_over && self.looked.elapsed() >= LOOK_FOR_DEVICES {
            daemon.open_pools().iter().for_each(|open| open.tell_of_slow_requests());
            daemon.look_for_lost();
            look_at_spares(&daemon);
            take_back(&daemon);
            replace_absent(&daemon);
            if self.looked_for_due.is_none_or(|looked| looked.elapsed() >= LOOK_FOR_DUE) {
                device::block_on(daemon.begin_due_scrubs());
                daemon.run_due_snapshot_schedules();
                self.looked_for_due = Some(Instant::now());
            }
            daemon.open_pools().iter().for_each(|open| self.help(open));
            self.looked = Instant::now();
        }
        !is_over
    }

    /// Acts on one event.
    fn act(&mut self, daemon: &Arc<Daemon>, event: &Event) {
        let Some(pool) = event.number("pool_guid") else { return };
        let Some(leaf) = event.vdev() else { return };
        if event.class != "resource.fs.zfs.statechange" {
            return;
        }
        if event.number("vdev_state") == Some(State::Healthy.number()) {
            self.acted_on.remove(&(pool, leaf));
        } else if let Some(open) = daemon.open_pools().into_iter().find(|open| open.guid().get() == pool) {
            self.help(&open);
        }
    }

    /// Looks after the devices of a pool that are not what they should be, and were not acted on yet.
    fn help(&mut self, open: &OpenPool) {
        let Some(live) = open.live().filter(|_| !open.is_suspended()) else { return };
        let needs_help = |leaf: &&Vdev| match leaf.status().state {
            State::Faulted | State::CantOpen | State::Removed | State::Degraded => true,
            State::Offline | State::Healthy => false,
        };
        let vdevs = live.pool().vdevs();
        let leaves: Vec<Guid> = vdevs.leaves().filter(needs_help).map(|leaf| leaf.guid).collect();
        for leaf in leaves {
            let (place, free) = ((open.guid().get(), leaf), live.free_spares());
            if self.acted_on.insert(place, free).is_none_or(|then| then < free) {
                device::block_on(kick_in_spare(live, leaf));
                self.acted_on.insert(place, live.free_spares());
            }
        }
    }
}

/// Has a hot spare take the place of a leaf, if there is one.
async fn kick_in_spare(live: &Arc<LivePool>, leaf: Guid) {
    let pool = live.pool().name();
    match live.kick_in_spare(leaf).await {
        Ok(Some(spare)) => {
            tracing::warn!(pool, vdev = %leaf, %spare, "a hot spare takes the place of a device")
        }
        Ok(None) => tracing::info!(pool, vdev = %leaf, "no hot spare takes the place of a device"),
        Err(error) => tracing::warn!(pool, vdev = %leaf, %error, "no hot spare takes the place of a device"),
    }
}

/// Replaces devices that are gone by new ones in their places, in pools that want it.
fn replace_absent(daemon: &Arc<Daemon>) {
    for open in daemon.open_pools() {
        if let Err(error) = device::block_on(daemon.autoreplace(&open)) {
            tracing::info!(pool = open.name(), error = error.message, "devices are not looked for");
        }
    }
}

/// Looks whether hot spares are where they were, and detaches devices whose work is done.
fn look_at_spares(daemon: &Daemon) {
    for open in daemon.open_pools() {
        if let Some(live) = open.live().filter(|_| !open.is_suspended()) {
            device::block_on(live.look_at_spares(false));
            live.detach_done();
        }
    }
}

/// Takes devices online that were gone and are back.
fn take_back(daemon: &Arc<Daemon>) {
    for open in daemon.open_pools() {
        let Some(live) = open.live() else { continue };
        let pool = open.name();
        for leaf in device::block_on(live.devices_that_are_back()) {
            match open.is_suspended() {
                // Going on is left to a person: the device may go again.
                true => tracing::info!(pool, vdev = %leaf, "a device is back; see zpool clear"),
                false => match device::block_on(live.online(leaf)) {
                    Ok(status) => {
                        tracing::info!(pool, vdev = %leaf, state = %status.state, "a device is back");
                        if let Err(error) = device::block_on(live.unspare(vec![leaf])) {
                            tracing::warn!(pool, vdev = %leaf, %error, "its hot spare stays");
                        }
                    }
                    Err(error) => {
                        tracing::warn!(pool, vdev = %leaf, %error, "a device is back and not usable")
                    }
                },
            }
        }
    }
}
