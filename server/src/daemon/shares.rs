//! Filesystems that are shared with a network: which, with whom, and what becomes of their clients while a
//! filesystem is changed.
//!
//! # Which
//! A filesystem is shared by NFS when its property `sharenfs` says so and it has a mountpoint, which is its
//! path for clients. It need not be mounted: clients are served straight from the filesystem layer
//! ([`crate::files`]), beside programs that have it mounted. `zfs unshare` and `zfs unmount` take it away
//! until `zfs share` or `zfs mount`, or until the pool is imported again.
//!
//! Nothing follows changes for this: what is shared is looked at when a client asks, and again when the feed
//! of changes has one that may concern it. So it costs nothing where nothing is shared.
//!
//! # What becomes of clients
//! A filesystem is opened with the first request and stays open for the next ones. Before it is destroyed,
//! renamed, rolled back, exchanged by a receive, or its key or its pool goes, [`OpenPool::close_shares`]
//! waits for requests that are under way, and lets go of it. Requests that come meanwhile are told to come
//! again; then they find the filesystem as it is, or that it is gone.
//!
//! | module | what it does |
//! |---|---|
//! | here | what is shared, and what is open of it |
//! | `files` | the files of a share, as protocols ask for them |
//! | `browsing` | looking into filesystems, shared or not, and bringing back a file |
//! | `actions` | `zfs share`, `zfs unshare`, the listing |
//! | `smb` | usershares of Samba, which follow mounts and the property `sharesmb` |
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `PoolShares::listing` | that one thread lists; held while it reads blocks | before `state` |
//! | `PoolShares::state` | what is listed, open and closed; for a few lines | taken alone |

mod actions;
mod browsing;
mod files;
mod restoring;
mod smb;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use engine::dsl::{Kind, Walk};
use engine::events::feed::{Change, What};
use engine::properties::{Environment, Prop, Style};
use ondisk::ObjectId;

use super::{Daemon, OpenPool, lock};
use crate::api::ApiError;
use crate::files::{FilesystemId, Share, Shares};
use crate::fuse::MountOptions;
use crate::handover::Unshared;
use crate::listening::Listening;
use crate::nfs::{Clients, Rules};
use files::{OpenFiles, OpenedShare};

/// How long requests may take that are under way when a share is closed.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// The same where the pool is closed by force.
const ENDS_BY_FORCE: Duration = Duration::from_secs(5);
/// Changes that are looked at at once.
const MAX_BATCH: usize = 256;

/// Where NFS is served, and to whom.
#[derive(Debug, Clone)]
pub(super) struct NfsServer {
    pub(super) listening: Listening,
    pub(super) clients: Arc<Clients>,
}

/// A filesystem that is shared.
#[derive(Debug)]
pub(super) struct FileShare {
    id: FilesystemId,
    name: String,
    dataset: ObjectId,
    path: PathBuf,
    /// How it is shared, or why that is not understood.
    rules: Result<Rules, String>,
    options: MountOptions,
}

impl Share for FileShare {
    type Rules = Rules;

    fn id(&self) -> FilesystemId {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }

    fn rules(&self) -> Option<&Rules> {
        self.rules.as_ref().ok()
    }
}

/// What is shared of a pool.
#[derive(Debug, Default)]
pub(super) struct PoolShares {
    listing: Mutex<()>,
    state: Mutex<State>,
    /// A request ended.
    ended: Condvar,
    smb: smb::PoolSmb,
}

#[derive(Default)]
struct State {
    /// What was found, and the change of the feed as of which.
    listed: Option<(u64, Arc<Vec<Arc<FileShare>>>)>,
    /// Datasets that are not shared until that is said.
    unshared: HashSet<ObjectId>,
    /// By name.
    open: HashMap<String, Open>,
    /// What is closed, with the number of the guard.
    closed: Vec<(u64, IsMeant)>,
    next: u64,
}

/// Whether the filesystem of a name is meant.
type IsMeant = Arc<dyn Fn(&str) -> bool + Send + Sync>;

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("open", &self.open).finish_non_exhaustive()
    }
}

/// A share that is open.
#[derive(Debug, Default)]
struct Open {
    /// Requests under way.
    requests: usize,
    files: Option<Arc<OpenFiles>>,
}

/// Shares that answer nothing until this is dropped.
#[must_use]
pub(super) struct SharesClosed<'a> {
    shares: &'a PoolShares,
    number: u64,
}

impl Drop for SharesClosed<'_> {
    fn drop(&mut self) {
        self.shares.state().closed.retain(|(number, _)| *number != self.number);
    }
}

impl PoolShares {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A request begins. The files, if they are open.
    fn enter(&self, name: &str) -> engine::Result<Option<Arc<OpenFiles>>> {
        let mut state = self.state();
        if state.closed.iter().any(|(_, is_meant)| is_meant(name)) {
            return Err(engine::Error::Busy(format!("{name}: dataset is busy")));
        }
        let open = state.open.entry(name.to_owned()).or_default();
        open.requests += 1;
        Ok(open.files.clone())
    }

    /// The files were opened.
    fn opened(&self, name: &str, files: &Arc<OpenFiles>) {
        if let Some(open) = self.state().open.get_mut(name) {
            open.files = Some(Arc::clone(files));
        }
    }

    /// A request ended.
    fn leave(&self, name: &str) {
        let mut state = self.state();
        if let Some(open) = state.open.get_mut(name) {
            open.requests -= 1;
            if open.requests == 0 && open.files.is_none() {
                state.open.remove(name);
            }
        }
        drop(state);
        self.ended.notify_all();
    }

    fn close(&self, limit: Duration, is_meant: IsMeant) -> Result<SharesClosed<'_>, String> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.closed.push((number, Arc::clone(&is_meant)));
        let closed = SharesClosed { shares: self, number };
        let deadline = Instant::now() + limit;
        loop {
            let busy = state.open.iter().find(|(name, open)| open.requests > 0 && is_meant(name));
            let Some((name, _)) = busy else { break };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let name = name.clone();
                drop(state);
                drop(closed);
                return Err(name);
            }
            state = self.ended.wait_timeout(state, left).ignore_poison().0;
        }
        let gone: Vec<Open> = state.open.extract_if(|name, _| is_meant(name)).map(|(_, open)| open).collect();
        drop(state);
        drop(gone);
        Ok(closed)
    }

    /// Shares that clients used and that are open for the next request.
    fn open_names(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let state = self.state();
        state.open.keys().filter(|name| is_wanted(name)).cloned().collect()
    }
}

impl OpenPool {
    /// Closes the shares of filesystems, as long as what is returned is kept: waits for requests that are
    /// under way, and lets no more begin. Blocks the thread.
    ///
    /// # Errors
    /// Requests do not end.
    pub(super) fn close_shares(
        &self,
        doing: &str,
        is_meant: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<SharesClosed<'_>, ApiError> {
        self.shares.close(ENDS_WITHIN, Arc::new(is_meant)).map_err(|name| {
            ApiError::busy(format!("{doing}: requests of NFS clients to '{name}' do not finish"))
        })
    }

    /// The same for all, at the end of the pool. By force, requests that do not end are left behind.
    pub(super) fn close_all_shares(
        &self,
        doing: &str,
        force: bool,
    ) -> Result<Option<SharesClosed<'_>>, ApiError> {
        match self.shares.close(if force { ENDS_BY_FORCE } else { ENDS_WITHIN }, Arc::new(|_| true)) {
            Ok(closed) => Ok(Some(closed)),
            Err(name) if force => {
                tracing::warn!("{doing}: requests of NFS clients to '{name}' do not finish");
                Ok(None)
            }
            Err(name) => Err(ApiError::busy(format!(
                "{doing}: requests of NFS clients to '{name}' do not finish; force leaves them behind"
            ))),
        }
    }

    /// Filesystems that clients of a network have.
    pub(super) fn shares_in_use(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        self.shares.open_names(is_wanted)
    }

    /// Takes a filesystem out of what is shared, or puts it back. Whether it was otherwise.
    pub(super) fn hide_share(&self, dataset: ObjectId, is_hidden: bool) -> bool {
        let mut state = self.shares.state();
        match is_hidden {
            true => state.unshared.insert(dataset),
            false => state.unshared.remove(&dataset),
        }
    }

    /// What is not shared until that is said, for another daemon.
    pub(super) fn unshared(&self) -> Unshared {
        let mut nfs: Vec<u64> = self.shares.state().unshared.iter().map(|dataset| dataset.0).collect();
        nfs.sort_unstable();
        Unshared { nfs, smb: self.unshared_by_smb() }
    }

    /// Shares as little as another daemon did.
    pub(super) fn unshare_again(&self, unshared: &Unshared) {
        self.shares.state().unshared.extend(unshared.nfs.iter().map(|number| ObjectId(*number)));
        self.unshare_by_smb(&unshared.smb);
    }

    /// The filesystems with the property, shared or not at present. What could not be listed is what it was.
    fn file_shares(&self) -> Arc<Vec<Arc<FileShare>>> {
        if let Some(listed) = self.listed_shares() {
            return listed;
        }
        let _listing = lock(&self.shares.listing);
        // Another thread may have listed meanwhile.
        if let Some(listed) = self.listed_shares() {
            return listed;
        }
        let as_of = self.view().vdevs().reporter().feed().map_or(0, |feed| feed.last());
        match device::block_on(self.find_shares()) {
            Ok(found) => {
                let found = Arc::new(found);
                self.shares.state().listed = Some((as_of, Arc::clone(&found)));
                found
            }
            Err(error) => {
                tracing::warn!(%error, pool = self.name(), "what is shared cannot be listed");
                self.shares.state().listed.as_ref().map(|(_, listed)| Arc::clone(listed)).unwrap_or_default()
            }
        }
    }

    /// What was listed, if nothing changed that may concern it.
    fn listed_shares(&self) -> Option<Arc<Vec<Arc<FileShare>>>> {
        let feed = self.view().vdevs().reporter().feed();
        let mut state = self.shares.state();
        let (as_of, listed) = state.listed.as_mut()?;
        let Some(feed) = feed else { return Some(Arc::clone(listed)) };
        loop {
            let batch = feed.after(*as_of, MAX_BATCH);
            if batch.missed || batch.changes.iter().any(|(_, change)| concerns_shares(self.name(), change)) {
                return None;
            }
            match batch.changes.last() {
                Some((last, _)) => *as_of = *last,
                None => return Some(Arc::clone(listed)),
            }
        }
    }

    async fn find_shares(&self) -> engine::Result<Vec<Arc<FileShare>>> {
        let dsl = self.dsl().await?;
        let mut found = Vec::new();
        for entry in dsl.list(None, Walk::HEADS).await? {
            let (Kind::Filesystem, Some(dataset)) = (entry.kind, entry.dataset()) else { continue };
            if dataset.is_inconsistent() {
                continue;
            }
            let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await?;
            let word =
                |prop| properties.get(prop, Style::PARSABLE).map(|shown| shown.value).unwrap_or_default();
            let (text, path) = (word(Prop::Sharenfs), word(Prop::Mountpoint));
            let is_shared = !text.is_empty() && text != "off";
            let is_placed =
                path.starts_with('/') && word(Prop::Canmount) != "off" && word(Prop::Zoned) != "on";
            if !is_shared || !is_placed || word(Prop::Keystatus) == "unavailable" {
                continue;
            }
            found.push(Arc::new(FileShare {
                id: FilesystemId { pool: self.guid().get(), dataset: dataset.phys.guid.get() },
                name: dataset.name.clone(),
                dataset: dataset.object,
                path: path.into(),
                rules: text.parse(),
                options: MountOptions::from_properties(&properties),
            }));
        }
        Ok(found)
    }

    /// The filesystems that are shared now.
    fn shared_now(&self) -> Vec<Arc<FileShare>> {
        let all = self.file_shares();
        let state = self.shares.state();
        all.iter().filter(|share| !state.unshared.contains(&share.dataset)).cloned().collect()
    }
}

/// Whether other filesystems may be shared after a change, or be shared otherwise.
fn concerns_shares(pool: &str, change: &Change) -> bool {
    const PROPERTIES: [Prop; 7] = [
        Prop::Sharenfs,
        Prop::Mountpoint,
        Prop::Canmount,
        Prop::Zoned,
        Prop::Readonly,
        Prop::Snapdir,
        Prop::Acltype,
    ];
    let is_head = |name: &str| !name.contains(['@', '#']);
    change.pool == pool
        && match &change.what {
            What::Created { name, volume_bytes, .. } => volume_bytes.is_none() && is_head(name),
            What::Destroyed { name, .. } | What::Renamed { from: name, .. } => is_head(name),
            What::Replaced { .. } | What::Promoted { .. } | What::Opened => true,
            What::Set { property, .. } => PROPERTIES.iter().any(|of| of.desc().name == property),
            What::Served { how, .. } => how.starts_with("key-"),
            _ => false,
        }
}

/// The filesystems of all open pools, as a protocol serves them.
#[derive(Debug, Clone)]
pub(super) struct SharedFilesystems(pub(super) Arc<Daemon>);

impl Shares for SharedFilesystems {
    type Share = FileShare;
    type Files = OpenedShare;

    fn listed(&self) -> Vec<Arc<FileShare>> {
        self.0.open_pools().iter().flat_map(|pool| pool.shared_now()).collect()
    }

    fn find(&self, id: FilesystemId) -> Option<Arc<FileShare>> {
        let pool = self.pool(id)?;
        let found = pool.file_shares().iter().find(|share| share.id == id).cloned()?;
        (!pool.shares.state().unshared.contains(&found.dataset)).then_some(found)
    }

    fn open(&self, share: &Arc<FileShare>) -> engine::Result<OpenedShare> {
        let gone = || engine::Error::Busy(format!("{}: its pool is being closed", share.name));
        let pool = self.pool(share.id).ok_or_else(gone)?;
        if pool.is_suspended() {
            return Err(engine::Error::Suspended(format!("pool '{}' is suspended", pool.name())));
        }
        OpenedShare::open(pool, share)
    }

    fn is_complete(&self) -> bool {
        self.0.has_imported() && !self.0.clients_gate().is_closed()
    }
}

impl SharedFilesystems {
    fn pool(&self, id: FilesystemId) -> Option<Arc<OpenPool>> {
        self.0.open_pools().into_iter().find(|pool| pool.guid().get() == id.pool)
    }
}

#[cfg(test)]
mod tests {
    use ondisk::{Guid, Txg};

    use super::*;

    #[test]
    fn a_closed_share_answers_nothing_until_it_is_opened_again() {
        let shares = PoolShares::default();
        assert!(shares.enter("p/a").unwrap().is_none());
        let long = |name: &str| name.starts_with("p/a");
        let closed = shares.close(Duration::ZERO, Arc::new(long));
        assert_eq!(closed.err().as_deref(), Some("p/a"), "a request is under way");
        assert!(shares.enter("p/a").is_ok(), "the close that failed closes nothing");
        shares.leave("p/a");
        shares.leave("p/a");
        let closed = shares.close(Duration::ZERO, Arc::new(long)).ok().unwrap();
        let other = shares.close(Duration::ZERO, Arc::new(|name: &str| name == "p/ab")).ok().unwrap();
        assert!(matches!(shares.enter("p/a"), Err(engine::Error::Busy(_))));
        assert!(shares.enter("p/b").is_ok());
        drop(closed);
        assert!(shares.enter("p/a").is_ok());
        assert!(shares.enter("p/ab").is_err());
        drop(other);
        assert!(shares.enter("p/ab").is_ok());
    }

    #[test]
    fn what_is_shared_is_looked_at_only_when_it_may_be_other() {
        let (guid, name) = (Guid(7), |name: &str| name.to_owned());
        let set = |property: &str| What::Set { name: name("p"), guid, property: name(property) };
        for (what, expected) in [
            (What::Created { name: name("p/fs"), guid, volume_bytes: None }, true),
            (What::Created { name: name("p/v"), guid, volume_bytes: Some(1) }, false),
            (What::Created { name: name("p/fs@a"), guid, volume_bytes: None }, false),
            (What::Destroyed { name: name("p/fs@a"), guid }, false),
            (What::Destroyed { name: name("p/fs"), guid }, true),
            (set("sharenfs"), true),
            (set("atime"), false),
            (What::Served { name: name("p"), how: "key-loaded" }, true),
            (What::Served { name: name("p"), how: "mounted" }, false),
            (What::Configured, false),
        ] {
            let change = Change { pool: name("p"), guid, txg: Txg(9), what };
            assert_eq!(concerns_shares("p", &change), expected, "{change:?}");
            assert!(!concerns_shares("q", &change));
        }
    }
}
