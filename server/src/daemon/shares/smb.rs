//! Filesystems that Samba shares: usershares ([`crate::smb`]) that follow the property `sharesmb` and mounts.
//!
//! A filesystem is shared by SMB while its property says so and it is mounted at its mountpoint, because
//! Samba serves directories. It follows the feed of changes ([`crate::daemon::watch::following`]): what is
//! mounted, unmounted, renamed, or has the property set is noted, and looked at again by a caller with the
//! right to change the pool. So all usershares of a pool are looked at after its import, which also removes
//! those that a daemon left behind that died.
//!
//! A usershare goes before its filesystem is unmounted, so that Samba's servers let go of it. If that fails,
//! it comes back.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `PoolSmb::state` | what is noted, wanted and made; for a few lines, and while a usershare is removed for an unmount | taken alone |

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use engine::dsl::Dsl;
use engine::events::feed::{Change, What};
use engine::properties::{Environment, Prop, Style};

use crate::daemon::names::is_at_or_below;
use crate::daemon::{Daemon, OpenPool, lock};
use crate::smb::{Options, Usershare, Usershares};

/// Said where Samba is not there.
pub(super) const NO_SAMBA: &str =
    "Samba's program 'net' is not there: install Samba (the packages samba and samba-common-bin)";

/// What Samba shares of a pool.
#[derive(Debug, Default)]
pub(in crate::daemon) struct PoolSmb {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Filesystems that may be shared otherwise than before; with `true` those below them too.
    behind: BTreeSet<(String, bool)>,
    /// Filesystems that are not shared until that is said.
    unshared: BTreeSet<String>,
    /// The usershares that there should be, by filesystem.
    wanted: BTreeMap<String, Usershare>,
    /// Those that were made.
    made: BTreeMap<String, Usershare>,
    /// Why filesystems are not shared although their properties say so.
    faults: BTreeMap<String, String>,
    /// What daemons left behind that died is removed.
    is_cleared: bool,
    /// Who has them.
    keeper: Option<Arc<dyn Usershares>>,
}

impl State {
    fn is_behind(&self, name: &str) -> bool {
        self.behind.iter().any(|(of, below)| name == of || *below && is_at_or_below(name, of))
    }
}

impl PoolSmb {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn note(&self, name: &str, below: bool) {
        self.state().behind.insert((name.to_owned(), below));
    }
}

impl OpenPool {
    /// Notes what may be shared otherwise after a change of the feed.
    pub(in crate::daemon) fn note_smb(&self, change: &Change) {
        let smb = &self.shares.smb;
        match &change.what {
            What::Opened => smb.note(self.name(), true),
            What::Set { name, property, .. } if property == Prop::Sharesmb.desc().name => {
                smb.note(name, true)
            }
            What::Renamed { from, to, .. } if !from.contains('@') => {
                smb.note(from, true);
                smb.note(to, true);
            }
            What::Replaced { name, .. } => smb.note(name, true),
            What::Served { name, how: "mounted" | "unmounted" } if !name.contains('@') => {
                smb.note(name, false);
            }
            _ => {}
        }
    }

    /// Notes that everything may be shared otherwise.
    pub(in crate::daemon) fn note_all_smb(&self) {
        self.shares.smb.note(self.name(), true);
    }

    /// Whether anything is noted.
    pub(in crate::daemon) fn is_smb_behind(&self) -> bool {
        !self.shares.smb.state().behind.is_empty()
    }

    /// Removes the usershare of a filesystem that is about to be unmounted. It comes back if the filesystem
    /// is still mounted afterwards. Blocks the thread.
    pub(in crate::daemon) fn end_smb(&self, name: &str) {
        let mut state = self.shares.smb.state();
        state.unshared.remove(name);
        let (Some(made), Some(keeper)) = (state.made.remove(name), state.keeper.clone()) else { return };
        state.behind.insert((name.to_owned(), false));
        if let Err(error) = keeper.remove(&made.name) {
            tracing::warn!(%error, share = made.name, "a usershare of Samba stays");
        }
    }

    /// Takes a filesystem out of what is shared by SMB, or puts it back. Whether it was otherwise.
    pub(super) fn hide_smb(&self, name: &str, is_hidden: bool) -> bool {
        let mut state = self.shares.smb.state();
        state.behind.insert((name.to_owned(), false));
        match is_hidden {
            true => state.made.contains_key(name) && state.unshared.insert(name.to_owned()),
            false => state.unshared.remove(name) || !state.made.contains_key(name),
        }
    }

    /// Puts all back.
    pub(super) fn unhide_all_smb(&self) {
        self.shares.smb.state().unshared.clear();
        self.note_all_smb();
    }

    /// The filesystems that Samba shares, and where they are mounted.
    pub(super) fn shared_by_smb(&self) -> Vec<(String, PathBuf)> {
        let state = self.shares.smb.state();
        state.made.iter().map(|(name, made)| (name.clone(), made.path.clone())).collect()
    }

    /// Filesystems that are unshared until that is said.
    pub(super) fn unshared_by_smb(&self) -> Vec<String> {
        self.shares.smb.state().unshared.iter().cloned().collect()
    }

    /// Another daemon says so.
    pub(super) fn unshare_by_smb(&self, names: &[String]) {
        self.shares.smb.state().unshared.extend(names.iter().cloned());
    }

    /// Why filesystems at or below a name are not shared.
    pub(super) fn smb_faults(&self, below: &str) -> Vec<(String, String)> {
        let state = self.shares.smb.state();
        let faults = state.faults.iter().filter(|(name, _)| is_at_or_below(name, below));
        faults.map(|(name, why)| (name.clone(), why.clone())).collect()
    }

    /// Finds out which usershares there should be. Whether there may be something to do.
    async fn want_smb(&self) -> engine::Result<bool> {
        let mounted = self.mountpoints();
        let (names, unshared) = {
            let mut state = self.shares.smb.state();
            state.wanted.retain(|name, _| mounted.contains_key(name));
            state.faults.retain(|name, _| mounted.contains_key(name));
            let meant = mounted.keys().filter(|name| !name.contains('@') && state.is_behind(name));
            let names: Vec<String> = meant.cloned().collect();
            (names, state.unshared.clone())
        };
        let mut found = Vec::new();
        if !names.is_empty() {
            let dsl = self.dsl().await?;
            for name in names {
                let said = said(&dsl, &name).await?.filter(|_| !unshared.contains(&name));
                found.push((name, said));
            }
        }
        let mut state = self.shares.smb.state();
        state.behind.clear();
        for (name, said) in found {
            state.wanted.remove(&name);
            state.faults.remove(&name);
            match (said, mounted.get(&name)) {
                (Some(Ok(options)), Some(path)) => {
                    let share = options.of(&name, path);
                    state.wanted.insert(name, share);
                }
                (Some(Err(why)), _) => {
                    state.faults.insert(name, why);
                }
                _ => {}
            }
        }
        Ok(state.wanted != state.made)
    }
}

/// What the property of a filesystem says; nothing where it is off, or the filesystem is not there.
async fn said(dsl: &Dsl, name: &str) -> engine::Result<Option<Result<Options, String>>> {
    let entry = match dsl.entry(name).await {
        Err(engine::Error::NotFound(_)) => return Ok(None),
        entry => entry?,
    };
    let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await?;
    let word = |prop| properties.get(prop, Style::PARSABLE).map(|shown| shown.value).unwrap_or_default();
    let text = word(Prop::Sharesmb);
    let is_shared = !text.is_empty() && text != "off" && word(Prop::Zoned) != "on";
    Ok(is_shared.then(|| text.parse()))
}

impl Daemon {
    /// The same, with usershares kept otherwise: for tests.
    #[must_use]
    pub fn keeping_usershares(self, usershares: Arc<dyn Usershares>) -> Self {
        Self { usershares, ..self }
    }

    /// Brings the usershares of a pool in line with its mounts and properties, for a caller with the right to
    /// change it. What could not be done is told to the log when it is new.
    pub(in crate::daemon) async fn settle_smb_of(&self, pool: &OpenPool) {
        match pool.want_smb().await {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => {
                tracing::warn!(%error, pool = pool.name(), "what Samba shares cannot be listed");
                return;
            }
        }
        let keeper = &self.usershares;
        let (wanted, made, is_cleared) = {
            let mut state = pool.shares.smb.state();
            state.keeper = Some(Arc::clone(keeper));
            (state.wanted.clone(), state.made.clone(), state.is_cleared)
        };
        let listed = match keeper.is_there() {
            true => keeper.list().map_err(|error| error.to_string()),
            false => Err(NO_SAMBA.to_owned()),
        };
        let mut faults = BTreeMap::new();
        match listed {
            Ok(listed) => {
                let is_stale = |share: &Usershare, dataset: &str| {
                    wanted.get(dataset).is_none_or(|wanted| !wanted.is_called(&share.name))
                };
                let mine = listed.iter().filter(|share| {
                    let dataset = share.dataset().filter(|dataset| is_at_or_below(dataset, pool.name()));
                    dataset.is_some_and(|of| is_stale(share, of) && (!is_cleared || made.contains_key(of)))
                });
                for share in mine {
                    if let Err(error) = keeper.remove(&share.name) {
                        tracing::warn!(%error, share = share.name, "a usershare of Samba stays");
                    }
                }
                for (name, share) in wanted.iter().filter(|(name, share)| made.get(*name) != Some(share)) {
                    if let Err(why) = self.put_usershare(&listed, &wanted, name, share) {
                        faults.insert(name.clone(), why);
                    }
                }
            }
            Err(why) => faults.extend(wanted.keys().map(|name| (name.clone(), why.clone()))),
        }
        let mut state = pool.shares.smb.state();
        state.is_cleared |= keeper.is_there();
        state.made = wanted.into_iter().filter(|(name, _)| !faults.contains_key(name)).collect();
        for (name, why) in faults {
            if state.faults.get(&name) != Some(&why) {
                tracing::warn!(dataset = name, "not shared by SMB: {why}");
            }
            // It is tried again when something changes.
            state.wanted.remove(&name);
            state.faults.insert(name, why);
        }
    }

    fn put_usershare(
        &self,
        listed: &[Usershare],
        wanted: &BTreeMap<String, Usershare>,
        name: &str,
        share: &Usershare,
    ) -> Result<(), String> {
        let of_another = |other: &&Usershare| {
            other.is_called(&share.name)
                && other.dataset().is_none_or(|of| of != name && self.has_filesystem_mounted(of))
        };
        let taken =
            || format!("there is another share '{}'; choose a name with 'sharesmb=name=NAME'", share.name);
        // Of two of one pool the first one has it.
        let is_second = wanted.iter().any(|(other, of)| other.as_str() < name && of.is_called(&share.name));
        if is_second || listed.iter().any(|other| of_another(&other)) {
            return Err(taken());
        }
        self.usershares.put(share).map_err(|error| error.to_string())
    }

    fn has_filesystem_mounted(&self, name: &str) -> bool {
        self.pool_of(name).is_ok_and(|pool| pool.mountpoints().contains_key(name))
    }
}
