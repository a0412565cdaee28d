//! The daemon's ring of events, and the file in which it outlives the daemon.
//!
//! The file lies beside the cache file; a daemon without a cache file keeps events in memory only. It holds
//! the newest events, one JSON document a line, and is replaced atomically when there are new events, at
//! most every few seconds and at the end.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::IgnorePoison;
use engine::events::feed::What;
use engine::events::{Event, Events};

use crate::api::edge::Edge;
use crate::api::{self, ApiError, EventList};
use crate::daemon::names::pool_name_fault;
use crate::daemon::{Daemon, OpenPool};

/// The name of the file, beside the cache file.
const FILE_NAME: &str = "events.json";
/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;

impl Daemon {
    /// The events of all pools.
    pub fn events(&self) -> Arc<Events> {
        Arc::clone(&self.events.read().ignore_poison())
    }

    /// The file in which events outlive the daemon, if there is one.
    pub(in crate::daemon) fn events_file(&self) -> Option<PathBuf> {
        Some(self.cachefile.as_ref()?.with_file_name(FILE_NAME))
    }

    /// Goes on with the events of the last daemon. Before any pool is open.
    pub(in crate::daemon) fn restore_events(&self) {
        let Some(file) = self.events_file() else { return };
        match read(&file) {
            Ok(events) if events.is_empty() => {}
            Ok(events) => *self.events.write().ignore_poison() = Arc::new(Events::restored(events)),
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "the events of earlier are not read")
            }
        }
    }

    /// Writes the events down.
    pub(in crate::daemon) fn keep_events(&self) {
        let Some(file) = self.events_file() else { return };
        let _turn = self.keeping_events.lock().ignore_poison();
        if let Err(error) = write(&file, &self.events().since(0).events) {
            tracing::warn!(%error, file = %file.display(), "events are not written down");
        }
    }

    /// The events after one.
    ///
    /// # Errors
    /// No pool can have the name that is asked for.
    pub fn list_events(&self, request: api::GetEvents) -> Result<EventList, ApiError> {
        if let Some(name) = request.pool.as_deref().filter(|name| pool_name_fault(name).is_some()) {
            return Err(ApiError::invalid(format!("invalid pool name '{name}'")));
        }
        let since = self.events().since(request.after);
        let is_asked_for = |event: &Event| {
            request.pool.is_none() || event.pool().is_none() || event.pool() == request.pool.as_deref()
        };
        Ok(EventList {
            events: since.events.into_iter().filter(is_asked_for).map(Edge::edge).collect(),
            dropped: since.dropped,
            last_eid: since.last_eid,
        })
    }

    /// Forgets all events.
    ///
    /// # Errors
    /// None.
    pub fn clear_events(&self, _: api::ClearEvents) -> Result<u64, ApiError> {
        Ok(self.events().clear() as u64)
    }

    /// Has a pool that was just opened post its events here, the first of which is `name`.
    pub(in crate::daemon) fn report_events_of(&self, open: &OpenPool, name: &str) {
        let view = open.view();
        let reporter = view.vdevs().reporter();
        reporter.attach(&self.events());
        reporter.tell(What::Opened);
        reporter.sysevent(name, None, Vec::new());
    }
}

fn read(file: &Path) -> std::io::Result<Vec<Event>> {
    let opened = match fs::File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    opened.take(MAX_BYTES).read_to_string(&mut text)?;
    // A line that is no event is one of another version.
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

fn write(file: &Path, events: &[Event]) -> std::io::Result<()> {
    let mut text = String::new();
    for event in events {
        text.push_str(&serde_json::to_string(event).map_err(std::io::Error::other)?);
        text.push('\n');
    }
    replace(file, text.as_bytes())
}

/// Replaces a file of the daemon, which only its user can read, atomically.
pub(in crate::daemon) fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    }
    let new = file.with_extension("new");
    let mut opened = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    opened.write_all(bytes)?;
    opened.sync_all()?;
    fs::rename(&new, file)
}
