//! What a daemon needs to hand over, or to take over ([`crate::handover`]): its gates and its sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::{Daemon, lock};
use crate::gate::Gate;
use crate::listening::Listening;
use crate::socket::Inherited;
use crate::{iscsi, nbd};

/// A listening socket, with its service and its place.
pub type HandedSocket = (String, String, Arc<OwnedFd>);

/// The gates and sockets of a daemon.
#[derive(Debug, Default)]
pub(super) struct Handing {
    /// Clients of volumes.
    clients: Gate,
    /// Requests to the API, and readers of metrics.
    requests: Gate,
    sockets: Mutex<Vec<HandedSocket>>,
    listening: Mutex<Vec<(&'static str, Listening)>>,
    /// Another daemon owns everything.
    is_over: AtomicBool,
    /// Pools are opened as they were, whose mounts wait for it.
    takes_up: AtomicBool,
}

/// Pools are opened as they were, until this is dropped.
#[derive(Debug)]
pub(super) struct TakingUp<'a>(&'a AtomicBool);

impl Drop for TakingUp<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Daemon {
    /// The same, which serves no client before it took over.
    #[must_use]
    pub fn taking_over(mut self) -> Self {
        self.handing = Handing { clients: Gate::closed(), requests: Gate::closed(), ..Handing::default() };
        self
    }

    /// What holds clients of volumes back.
    pub fn clients_gate(&self) -> &Gate {
        &self.handing.clients
    }

    /// What holds requests back.
    pub fn requests_gate(&self) -> &Gate {
        &self.handing.requests
    }

    /// It listens on this Unix socket, whose file is at `path`.
    pub fn has_socket_at(&self, socket: &impl AsFd, path: &Path) {
        // One that cannot be handed over is made anew.
        if let (Ok(copy), Some(place)) = (socket.as_fd().try_clone_to_owned(), path.to_str()) {
            lock(&self.handing.sockets).push((Inherited::UNIX.to_owned(), place.to_owned(), Arc::new(copy)));
        }
    }

    /// It listens at these places for a service.
    pub(crate) fn listens(&self, service: &'static str, listening: Listening) {
        lock(&self.handing.listening).push((service, listening));
    }

    /// Opens pools as they were from now on: mounts that answer nothing are to be resumed.
    pub(super) fn takes_up(&self) -> TakingUp<'_> {
        self.handing.takes_up.store(true, Ordering::Release);
        TakingUp(&self.handing.takes_up)
    }

    /// Whether mounts that answer nothing are to be resumed.
    pub(super) fn is_taking_up(&self) -> bool {
        self.handing.takes_up.load(Ordering::Acquire)
    }

    /// All sockets on which it listens.
    pub fn handed_sockets(&self) -> Vec<HandedSocket> {
        let mut sockets = lock(&self.handing.sockets).clone();
        for (service, listening) in &*lock(&self.handing.listening) {
            let more = listening.sockets().into_iter();
            sockets.extend(more.map(|(place, socket)| ((*service).to_owned(), place, socket)));
        }
        sockets
    }

    /// Whether clients of a protocol, as those that are handed over name it, are served.
    pub(crate) fn serves_protocol(&self, protocol: &str) -> bool {
        match protocol {
            nbd::PROTOCOL => true,
            nbd::PROTOCOL_OVER_TCP => self.nbd.get().is_some_and(|nbd| nbd.tcp.is_some()),
            iscsi::PROTOCOL => self.iscsi.get().is_some(),
            _ => false,
        }
    }

    /// Another daemon owns everything: this one ends without touching any of it.
    pub(crate) fn is_succeeded(&self) {
        self.handing.is_over.store(true, Ordering::Release);
        self.stop.notify_one();
    }

    /// Whether another daemon owns everything.
    pub fn was_succeeded(&self) -> bool {
        self.handing.is_over.load(Ordering::Acquire)
    }
}
