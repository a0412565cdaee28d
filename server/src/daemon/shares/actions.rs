//! `zfs share`, `zfs unshare`, the listing of what is shared, and serving it.
//!
//! Source of the facts about texts: OpenZFS 2.3 `zfs_main.c` (`share_mount_one`, `unshare_unmount`).

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use engine::dsl::Kind;
use engine::properties::{Environment, Prop, Style};

use super::smb::NO_SAMBA;
use super::{FileShare, NfsServer, SharedFilesystems};
use crate::api::{
    self, ApiError, Mounted, NfsClient, NfsListing, NfsProcedure, NfsShare, ShareProtocol, SharesChanged,
};
use crate::daemon::{Daemon, OpenPool, dataset_error, not_of_this_type};
use crate::listening::Listener;
use crate::nfs::{self, Client, Clients};
use crate::smb;

/// Said where nothing serves what is shared.
const NOT_SERVED: &str = "this daemon does not serve NFS: start it with --nfs ADDRESS:PORT";

/// How a filesystem can be shared.
#[derive(Debug)]
struct Shareable {
    nfs: Option<Arc<FileShare>>,
    by_smb: bool,
}

/// Whether a protocol is meant.
fn is_meant(asked: Option<ShareProtocol>, protocol: ShareProtocol) -> bool {
    asked.is_none_or(|asked| asked == protocol)
}

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
        let shared = |prop: Prop| {
            let mut all = properties.iter().filter(|(_, text)| text != "off");
            all.find(|(name, _)| Prop::from_name(name) == Some(prop)).map(|(_, text)| text)
        };
        let by_nfs = shared(Prop::Sharenfs).and_then(|text| {
            let not_served = self.nfs.get().is_none().then(|| NOT_SERVED.to_owned());
            Some(("sharenfs", text.parse::<nfs::Rules>().err().or(not_served)?))
        });
        let by_smb = shared(Prop::Sharesmb).and_then(|text| {
            let not_there = (!self.usershares.is_there()).then(|| NO_SAMBA.to_owned());
            Some(("sharesmb", text.parse::<smb::Options>().err().or(not_there)?))
        });
        let notes = [by_nfs, by_smb].into_iter().flatten();
        notes.map(|(name, why)| format!("note: '{name}' is set and nothing is shared by it: {why}")).collect()
    }

    /// Shares one filesystem, or all whose properties say so.
    ///
    /// # Errors
    /// Where one was asked for, why it cannot be shared.
    pub async fn share_filesystems(&self, request: api::ShareFilesystems) -> Result<SharesChanged, ApiError> {
        let mut changed = SharesChanged::default();
        let by_nfs = is_meant(request.protocol, ShareProtocol::Nfs);
        let by_smb = is_meant(request.protocol, ShareProtocol::Smb);
        match &request.dataset {
            Some(name) => {
                let pool = self.pool_of(name)?;
                let shareable = pool.shareable(name, request.protocol).await?;
                let nfs = shareable.nfs.as_ref().is_some_and(|share| pool.hide_share(share.dataset, false));
                let smb = shareable.by_smb && pool.hide_smb(name, false);
                if !nfs && !smb {
                    return Err(ApiError::busy(format!("cannot share '{name}': filesystem already shared")));
                }
                self.share_by_smb(&pool, smb.then_some(name.as_str()), &mut changed).await;
                if shareable.nfs.is_some() && self.nfs.get().is_none() {
                    changed.warnings.push(NOT_SERVED.to_owned());
                }
                if changed.failed.is_empty() {
                    changed.done.push(name.clone());
                }
                return match changed.failed.pop() {
                    Some(error) => Err(error),
                    None => Ok(changed),
                };
            }
            None => {
                for pool in self.open_pools() {
                    for share in pool.file_shares().iter().filter(|_| by_nfs) {
                        match &share.rules {
                            Err(why) => changed.failed.push(cannot_share(&share.name, why)),
                            Ok(_) if pool.hide_share(share.dataset, false) => {
                                changed.done.push(share.name.clone());
                            }
                            Ok(_) => {}
                        }
                    }
                    if by_smb {
                        pool.unhide_all_smb();
                        self.share_by_smb(&pool, Some(pool.name()), &mut changed).await;
                    }
                }
            }
        }
        if by_nfs && self.nfs.get().is_none() {
            changed.warnings.push(NOT_SERVED.to_owned());
        }
        Ok(changed)
    }

    /// Lets Samba share what is noted of a pool. What is new of it, and what could not be shared at or below
    /// a filesystem, is added to the answer.
    async fn share_by_smb(&self, pool: &OpenPool, below: Option<&str>, changed: &mut SharesChanged) {
        let Some(below) = below else { return };
        let before = pool.shared_by_smb();
        // A pool that is being closed shares nothing.
        let Ok(_changing) = pool.change().await else { return };
        self.settle_smb_of(pool).await;
        let now = pool.shared_by_smb();
        let new = now.into_iter().filter(|share| !before.contains(share)).map(|(name, _)| name);
        changed.done.extend(new.filter(|name| name != below));
        let faults = pool.smb_faults(below);
        changed.failed.extend(faults.iter().map(|(name, why)| cannot_share(name, why)));
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
        let target = request.target.as_deref();
        let is_path = target.is_some_and(|target| target.starts_with('/'));
        if let Some(name) = target.filter(|_| !is_path) {
            let pool = self.pool_of(name)?;
            let failed = |error| dataset_error("open", name, error);
            let kind = pool.dsl().await.map_err(failed)?.entry(name).await.map_err(failed)?.kind;
            if kind != Kind::Filesystem {
                return Err(not_of_this_type(name));
            }
        }
        let is_target = |name: &str, path: &Path| match target {
            None => true,
            Some(target) if is_path => path == Path::new(target),
            Some(target) => name == target,
        };
        for pool in self.open_pools() {
            if is_meant(request.protocol, ShareProtocol::Nfs) {
                for share in pool.shared_now().iter().filter(|share| is_target(&share.name, &share.path)) {
                    pool.unshare(share)?;
                    changed.done.push(share.name.clone());
                }
            }
            if is_meant(request.protocol, ShareProtocol::Smb) {
                let shared = pool.shared_by_smb();
                let hidden = shared.iter().filter(|(name, path)| is_target(name, path));
                let hidden: Vec<_> = hidden.filter(|(name, _)| pool.hide_smb(name, true)).collect();
                if hidden.is_empty() {
                    continue;
                }
                let _changing = pool.change().await?;
                self.settle_smb_of(&pool).await;
                changed.done.extend(hidden.into_iter().map(|(name, _)| name.clone()));
            }
        }
        changed.done.sort();
        changed.done.dedup();
        match target.filter(|_| changed.done.is_empty()) {
            Some(target) => {
                Err(ApiError::invalid(format!("cannot unshare '{target}': not currently shared")))
            }
            None => Ok(changed),
        }
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
            listing.procedures = server.clients.counted.procedures().map(describe_procedure).collect();
            (listing.read_bytes, listing.written_bytes) = server.clients.counted.bytes();
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

    /// How a filesystem can be shared by a protocol, or by both, or why it cannot.
    async fn shareable(&self, name: &str, asked: Option<ShareProtocol>) -> Result<Shareable, ApiError> {
        let failed = |error| dataset_error("open", name, error);
        let dsl = self.dsl().await.map_err(failed)?;
        let entry = dsl.entry(name).await.map_err(failed)?;
        if entry.kind != Kind::Filesystem {
            return Err(not_of_this_type(name));
        }
        let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await.map_err(failed)?;
        drop(dsl);
        let word = |prop| properties.get(prop, Style::PARSABLE).map(|shown| shown.value).unwrap_or_default();
        let says = |protocol, prop| is_meant(asked, protocol) && !["", "off"].contains(&word(prop).as_str());
        let by_nfs = says(ShareProtocol::Nfs, Prop::Sharenfs);
        let by_smb = says(ShareProtocol::Smb, Prop::Sharesmb);
        if !by_nfs && !by_smb {
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
        if by_smb && !by_nfs && !self.mountpoints().contains_key(name) {
            return Err(cannot_share(name, "filesystem is not mounted, and Samba shares directories"));
        }
        let all = self.file_shares();
        let nfs = all.iter().find(|share| share.name == name).filter(|_| by_nfs).cloned();
        match nfs.as_ref().map(|share| &share.rules) {
            Some(Err(why)) => Err(cannot_share(name, why)),
            None if by_nfs => Err(cannot_share(name, "it cannot be shared as it is now")),
            Some(Ok(_)) | None => Ok(Shareable { nfs, by_smb }),
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

fn describe_procedure(procedure: nfs::Procedure) -> NfsProcedure {
    let nfs::Procedure { name, requests, errors } = procedure;
    NfsProcedure { name: name.to_owned(), requests, errors }
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
