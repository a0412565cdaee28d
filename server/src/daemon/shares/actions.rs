//! `zfs share`, `zfs unshare`, the listing of what is shared, and serving it.
//!
//! Source of the facts about texts: OpenZFS 2.3 `zfs_main.c` (`share_mount_one`, `unshare_unmount`).

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use engine::dsl::Kind;
use engine::properties::{Environment, Prop, Style};

use super::{FileShare, NfsServer, SharedFilesystems};
use crate::api::{self, ApiError, Mounted, NfsClient, NfsListing, NfsShare, SharesChanged};
use crate::daemon::{Daemon, OpenPool, dataset_error, not_of_this_type};
use crate::listening::Listener;
use crate::nfs::{self, Client, Clients};

/// Said where nothing serves what is shared.
const NOT_SERVED: &str = "this daemon does not serve NFS: start it with --nfs ADDRESS:PORT";

impl Daemon {
    /// Serves what is shared by NFS, where that is asked for, until the future is dropped.
    pub(in crate::daemon) async fn serve_files(
        self: Arc<Self>,
        listener: Option<Listener>,
    ) -> std::io::Result<()> {
        let Some(listener) = listener else { return Ok(()) };
        let clients = Arc::<Clients>::default();
        let server = NfsServer { listening: listener.listening(), clients: Arc::clone(&clients) };
        // Only the first server is known; there is one a process.
        let _ = self.nfs.set(server);
        let never: Infallible = nfs::serve(listener, SharedFilesystems(self), clients).await?;
        match never {}
    }

    /// What a user should know who shares filesystems.
    pub(in crate::daemon) fn nfs_notes(&self, properties: &[(String, String)]) -> Vec<String> {
        let shared = properties
            .iter()
            .find(|(name, text)| Prop::from_name(name) == Some(Prop::Sharenfs) && text != "off");
        let Some((_, text)) = shared else { return Vec::new() };
        let fault = text.parse::<nfs::Rules>().err();
        let not_served = self.nfs.get().is_none().then(|| NOT_SERVED.to_owned());
        let why = fault.or(not_served);
        why.map(|why| format!("note: 'sharenfs' is set and nothing is shared by it: {why}"))
            .into_iter()
            .collect()
    }

    /// Shares one filesystem, or all whose properties say so.
    ///
    /// # Errors
    /// Where one was asked for, why it cannot be shared.
    pub async fn share_filesystems(&self, request: api::ShareFilesystems) -> Result<SharesChanged, ApiError> {
        let mut changed = SharesChanged::default();
        match &request.dataset {
            Some(name) => {
                let pool = self.pool_of(name)?;
                let share = pool.shareable(name).await?;
                if !pool.hide_share(share.dataset, false) {
                    return Err(ApiError::busy(format!("cannot share '{name}': filesystem already shared")));
                }
                changed.done.push(name.clone());
            }
            None => {
                for pool in self.open_pools() {
                    for share in pool.file_shares().iter() {
                        match &share.rules {
                            Err(why) => changed.failed.push(cannot_share(&share.name, why)),
                            Ok(_) if pool.hide_share(share.dataset, false) => {
                                changed.done.push(share.name.clone());
                            }
                            Ok(_) => {}
                        }
                    }
                }
            }
        }
        if self.nfs.get().is_none() {
            changed.warnings.push(NOT_SERVED.to_owned());
        }
        Ok(changed)
    }

    /// Ends the sharing of one filesystem, or of all.
    ///
    /// # Errors
    /// Where one was asked for, why its sharing cannot end.
    pub async fn unshare_filesystems(
        &self,
        request: api::UnshareFilesystems,
    ) -> Result<SharesChanged, ApiError> {
        let mut changed = SharesChanged::default();
        let Some(target) = &request.target else {
            for pool in self.open_pools() {
                for share in pool.shared_now() {
                    pool.unshare(&share)?;
                    changed.done.push(share.name.clone());
                }
            }
            return Ok(changed);
        };
        let is_path = target.starts_with('/');
        let is_meant = |share: &Arc<FileShare>| match is_path {
            true => share.path == Path::new(target),
            false => share.name == *target,
        };
        if !is_path {
            let pool = self.pool_of(target)?;
            let failed = |error| dataset_error("open", target, error);
            let kind = pool.dsl().await.map_err(failed)?.entry(target).await.map_err(failed)?.kind;
            if kind != Kind::Filesystem {
                return Err(not_of_this_type(target));
            }
        }
        for pool in self.open_pools() {
            let shared = pool.shared_now();
            if let Some(share) = shared.iter().find(|share| is_meant(share)) {
                pool.unshare(share)?;
                changed.done.push(share.name.clone());
                return Ok(changed);
            }
        }
        Err(ApiError::invalid(format!("cannot unshare '{target}': not currently shared")))
    }

    /// Shares filesystems again that are mounted, or ends the sharing of those that are unmounted.
    pub(in crate::daemon) fn shares_follow(&self, pool: &OpenPool, done: &[Mounted], are_mounted: bool) {
        if self.nfs.get().is_none() || done.is_empty() {
            return;
        }
        let all = pool.file_shares();
        for share in all.iter().filter(|share| done.iter().any(|mount| mount.dataset == share.name)) {
            if are_mounted {
                pool.hide_share(share.dataset, false);
            } else if let Err(error) = pool.unshare(share) {
                tracing::warn!(%error, "a filesystem was unmounted, and an NFS client still asks for it");
            }
        }
    }

    /// What is shared by NFS, and the clients.
    ///
    /// # Errors
    /// None.
    pub fn list_nfs(&self, _: api::ListNfs) -> Result<NfsListing, ApiError> {
        let mut listing = NfsListing::default();
        for pool in self.open_pools() {
            let shared = pool.shared_now();
            for share in pool.file_shares().iter() {
                let is_shared = shared.iter().any(|other| other.dataset == share.dataset);
                listing.shares.push(describe(share, is_shared));
            }
        }
        if let Some(server) = self.nfs.get() {
            listing.addresses = server.listening.addresses();
            listing.waiting = server.listening.waiting();
            listing.clients = server.clients.all().into_iter().map(describe_client).collect();
        }
        Ok(listing)
    }
}

impl OpenPool {
    fn unshare(&self, share: &FileShare) -> Result<(), ApiError> {
        self.hide_share(share.dataset, true);
        let (name, doing) = (share.name.clone(), format!("cannot unshare '{}'", share.name));
        // Requests that are under way end before it is said to be done.
        self.close_shares(&doing, move |other| other == name).map(drop)
    }

    /// The share of a filesystem, or why there is none.
    async fn shareable(&self, name: &str) -> Result<Arc<FileShare>, ApiError> {
        let failed = |error| dataset_error("open", name, error);
        let dsl = self.dsl().await.map_err(failed)?;
        let entry = dsl.entry(name).await.map_err(failed)?;
        if entry.kind != Kind::Filesystem {
            return Err(not_of_this_type(name));
        }
        let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await.map_err(failed)?;
        drop(dsl);
        let word = |prop| properties.get(prop, Style::PARSABLE).map(|shown| shown.value).unwrap_or_default();
        if word(Prop::Sharenfs) == "off" {
            return Err(cannot_share(
                name,
                "legacy share\nuse exports(5) or smb.conf(5) to share this filesystem, or set the sharenfs or \
                 sharesmb property",
            ));
        }
        match word(Prop::Mountpoint).as_str() {
            "legacy" => return Err(cannot_share(name, "legacy mountpoint")),
            "none" => return Err(cannot_share(name, "no mountpoint set")),
            _ if word(Prop::Canmount) == "off" => {
                return Err(cannot_share(name, "'canmount' property is set to 'off'"));
            }
            _ if word(Prop::Keystatus) == "unavailable" => {
                return Err(cannot_share(name, "encryption key not loaded"));
            }
            _ => {}
        }
        let all = self.file_shares();
        let share = all.iter().find(|share| share.name == name).cloned();
        let share = share.ok_or_else(|| cannot_share(name, "it cannot be shared as it is now"))?;
        match &share.rules {
            Ok(_) => Ok(share),
            Err(why) => Err(cannot_share(name, why)),
        }
    }
}

fn cannot_share(name: &str, why: &str) -> ApiError {
    ApiError::refused(format!("cannot share '{name}': {why}"))
}

fn describe(share: &FileShare, is_shared: bool) -> NfsShare {
    let (options, fault) = match &share.rules {
        Ok(rules) => (rules.to_string(), (!is_shared).then(|| "unshared; see 'zfs share'".to_owned())),
        Err(why) => ("-".to_owned(), Some(format!("sharenfs: {why}"))),
    };
    NfsShare { dataset: share.name.clone(), path: share.path.clone(), options, fault }
}

fn describe_client(client: Client) -> NfsClient {
    let last = client.last.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    NfsClient {
        address: client.address,
        connections: client.connections,
        mounts: client.mounts.keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
        requests: client.requests,
        read_bytes: client.read_bytes,
        written_bytes: client.written_bytes,
        last_seconds: last.as_secs(),
    }
}
