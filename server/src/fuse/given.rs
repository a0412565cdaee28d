//! Sessions that another daemon goes on with ([`crate::handover`]).
//!
//! The kernel knows a session by the descriptor of its connection, a file by its number in the filesystem,
//! and an open file by the number of a handle. The first is handed over, the second is the same in each
//! daemon, and what is open is told. What was agreed on when the session began stays agreed. Between two
//! daemons nothing reads requests, which wait in the kernel.
//!
//! What cannot go over is unmounted and mounted anew: sessions through rings, filesystems that are mounted
//! elsewhere only, and those in which files without a name are open or known to the kernel, which the next
//! opening of the filesystem frees.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::zpl::AclType;

use super::connection::MAX_DATA_BYTES;
use super::freeze::Freezable;
use super::mounted_datasets::MountedDatasets;
use super::mountpoint::Mountpoint;
use super::served::Served;
use super::session::Session;
use super::{FuseMount, MountError, MountOptions, Source};
use crate::api::Mounted;
use crate::handover::MountTold;

/// How long requests under way may take.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// How often it is tried where a file without a name is in the way, and after how long.
const TRIES: u32 = 20;
const AGAIN: Duration = Duration::from_millis(25);

/// A mounted filesystem whose requests wait for another daemon.
#[derive(Debug)]
pub struct GivenMount {
    /// How it is mounted, and what is open.
    pub told: MountTold,
    /// Its connection with the kernel.
    pub connection: OwnedFd,
}

/// A mount that could not be resumed.
#[derive(Debug)]
pub struct NotResumed {
    /// The mount.
    pub given: GivenMount,
    /// Why.
    pub why: String,
}

impl NotResumed {
    /// For this reason.
    pub fn new(given: GivenMount, why: impl Into<String>) -> Box<Self> {
        Box::new(Self { given, why: why.into() })
    }
}

impl GivenMount {
    /// Takes it away, because no daemon goes on with it.
    pub fn cut(self) {
        let MountTold { mounted, at, device, .. } = self.told;
        let place = Mountpoint::of_another(mounted.mountpoint, at, device);
        if let Err(error) = place.unmount(true) {
            tracing::warn!(%error, "a mount stays that no daemon serves");
        }
    }
}

impl FuseMount {
    /// Whether another daemon could go on with it.
    pub fn may_be_given(&self) -> bool {
        let is_plain = self.session().as_ref().is_some_and(|session| session.rings().is_none());
        let served = self.freezable.served();
        is_plain && !self.is_aside() && self.is_alive() && self.is_in_place() && served.is_some()
    }

    /// Stops answering, for another daemon to go on. Nothing where that cannot be: this one goes on then.
    pub fn give(&self, mounted: Mounted) -> Option<GivenMount> {
        if !self.may_be_given() {
            return None;
        }
        let mut session = self.session();
        let served = self.freezable.served()?;
        let connection = session.as_ref()?.connection().as_fd().try_clone_to_owned().ok()?;
        let mut tries = 0..TRIES;
        loop {
            let has_stopped = session.as_ref()?.stop(STOPS_WITHIN);
            if has_stopped && served.can_go_elsewhere() {
                break;
            }
            if let Err(error) = session.as_ref()?.start_again() {
                tracing::error!(dataset = self.dataset, %error, "a mount answers nothing any more");
                return None;
            }
            // The kernel lets go of a file that was just removed a moment later.
            if !has_stopped || tries.next().is_none() {
                return None;
            }
            std::thread::sleep(AGAIN);
        }
        let (handles, next_handle) = served.handles();
        let place = self.place();
        let told = MountTold {
            mounted,
            made: Vec::new(),
            at: place.path().to_owned(),
            device: place.device(),
            data_bytes: MAX_DATA_BYTES as u64,
            has_posix_acls: served.posix_acls,
            only_for: session.as_ref().and_then(Session::only_for),
            handles,
            next_handle,
            snapshots: served.trees.snapshot_places(),
        };
        // What it has open is let go with the last reference; the kernel is told nothing.
        drop(session.take());
        drop(self.freezable.end());
        Some(GivenMount { told, connection })
    }

    /// Goes on with a mount of another daemon.
    ///
    /// # Errors
    /// The mount, and why that cannot be.
    pub fn resume(
        source: Source,
        given: GivenMount,
        options: &MountOptions,
    ) -> Result<Self, Box<NotResumed>> {
        let MountTold { mounted, at, device, .. } = &given.told;
        let dataset = source.dataset().name.clone();
        let mut options = options.clone();
        match source.live() {
            Some(zpl) => options.apply_to(zpl),
            None => options = options.of_what_is_fixed(),
        }
        let agreed = (given.told.data_bytes, given.told.has_posix_acls);
        if agreed != (MAX_DATA_BYTES as u64, options.zpl.acl == AclType::Posix) {
            return Err(NotResumed::new(given, "what was agreed with the kernel is not so any more"));
        }
        let place = Mountpoint::of_another(mounted.mountpoint.clone(), at.clone(), *device);
        let opened = device::block_on(MountedDatasets::open(source, &options));
        let mut trees = match opened {
            Ok(trees) => trees,
            Err(error) => {
                let error = MountError::Open { dataset, error };
                return Err(NotResumed::new(given, error.to_string()));
            }
        };
        trees.take_snapshot_places(&given.told.snapshots);
        let served = Served::new(trees, &options);
        served.take_handles(&given.told.handles, given.told.next_handle);
        let freezable = Arc::new(Freezable::new(served));
        let connection = match given.connection.try_clone() {
            Ok(connection) => connection,
            Err(error) => return Err(NotResumed::new(given, error.to_string())),
        };
        let session = match Session::resume(&freezable, connection, given.told.only_for) {
            Ok(session) => session,
            Err(error) => return Err(NotResumed::new(given, error.to_string())),
        };
        if let Some(served) = freezable.served() {
            served.set_notifier(session.notifier());
        }
        Ok(Self {
            dataset,
            place: Mutex::new(place),
            aside: Mutex::default(),
            is_kept: AtomicBool::new(false),
            options: Mutex::new(options),
            updating: Mutex::default(),
            postponed: Mutex::default(),
            freezable,
            session: Mutex::new(Some(session)),
        })
    }
}
