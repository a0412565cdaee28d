//! Committed states that are read for longer than a request takes: other programs read them from the pool's
//! devices themselves, and `zfs diff` compares two datasets of one.
//!
//! # The idea
//! A view of a pool keeps the space of its state from being used again. A program that asks for a view
//! ([`api::HoldView`]) gets the devices and the uberblock, and the daemon lends it the view as long as the
//! program's connection is open. So a program in a process of its own reads a whole, unchanging pool, and a
//! fault of that program cannot harm the pool.
//!
//! A view ends earlier when the pool needs its space (the engine lends views under that condition, because a
//! program that takes for ever must not fill the pool), and when the pool is closed, because another host may
//! use its devices next. The program sees that its connection is closed.

use std::sync::{Arc, Mutex, Weak};

use engine::Pool;
use engine::pool::live::Lent;
use engine::vdev::{Kind, Vdev};

use crate::api::{self, Action, ApiError};
use crate::caller::Caller;
use crate::daemon::open_pool::Held;
use crate::daemon::{Daemon, OpenPool, lock};

/// Most views of one pool that are lent at a time.
const MAX_LENT: usize = 32;

/// The views of one pool that programs have.
#[derive(Debug, Default)]
pub(in crate::daemon) struct LentViews(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    lent: Vec<Weak<Lent>>,
    is_closed: bool,
}

impl LentViews {
    fn add(&self, lent: &Arc<Lent>) -> Result<(), &'static str> {
        let mut state = lock(&self.0);
        if state.is_closed {
            return Err("it is being closed");
        }
        state.lent.retain(|lent| lent.strong_count() > 0);
        if state.lent.len() >= MAX_LENT {
            return Err("too many programs are reading its devices; wait until one of them ends");
        }
        state.lent.push(Arc::downgrade(lent));
        Ok(())
    }

    /// Ends all of them, and takes no more.
    pub(in crate::daemon) fn close(&self) {
        let mut state = lock(&self.0);
        state.is_closed = true;
        let lent = std::mem::take(&mut state.lent);
        drop(state);
        lent.iter().filter_map(Weak::upgrade).for_each(|lent| lent.end());
    }
}

impl OpenPool {
    /// Its last committed state, for a reader that may take its time.
    ///
    /// # Errors
    /// There are many such readers already, or the pool is being closed.
    pub(in crate::daemon) fn lend(&self) -> Result<(Arc<Pool>, Arc<Lent>), ApiError> {
        let (view, lent) = match self.held() {
            Held::Reading(dsl) => (Arc::clone(dsl.pool()), Lent::of(Arc::clone(dsl.pool()))),
            Held::Writing(live, _) => live.lend_view(),
        };
        let added = self.holds.add(&lent);
        added.map_err(|why| ApiError::busy(format!("cannot read '{}': {why}", self.name())))?;
        Ok((view, lent))
    }
}

/// Lends what a request asks for: [`crate::daemon::dispatch_for`] for the one action whose connection stays
/// open.
///
/// # Errors
/// As those of [`crate::daemon::dispatch_for`].
pub fn dispatch_view(
    daemon: &Daemon,
    caller: &Caller,
    body: &[u8],
) -> Result<(api::HeldView, Arc<Lent>), ApiError> {
    daemon.hold_view(&daemon.admit_by_role(caller, api::HoldView::NAME, body)?.request()?)
}

impl Daemon {
    /// Lends the last committed state of a pool, and tells how to read it. Waits for no device.
    ///
    /// # Errors
    /// The pool is not open, or many programs read it already.
    pub fn hold_view(&self, request: &api::HoldView) -> Result<(api::HeldView, Arc<Lent>), ApiError> {
        let open = self.pool(&request.pool)?;
        let (view, lent) = open.lend()?;
        let told = api::HeldView {
            name: open.name().to_owned(),
            guid: view.guid().0,
            txg: view.uberblock().txg.0,
            uberblock: view.uberblock().encode(),
            devices: devices(&view),
        };
        Ok((told, lent))
    }

    /// Ends all views that programs have.
    pub(in crate::daemon) fn end_views(&self) {
        self.open_pools().iter().for_each(|open| open.holds.close());
    }
}

/// Paths of the devices that are open. Devices in memory (of tests) have none.
fn devices(view: &Pool) -> Vec<std::path::PathBuf> {
    let vdevs = view.vdevs();
    let all = vdevs.tops.iter().chain(vdevs.spares.iter()).chain(vdevs.l2cache.iter());
    let device = |vdev: &Vdev| match &vdev.kind {
        Kind::Leaf(slot) => slot.device().map(|device| device.path().to_owned()),
        _ => None,
    };
    all.flat_map(Vdev::walk).filter_map(device).filter(|path| path.is_absolute()).collect()
}
