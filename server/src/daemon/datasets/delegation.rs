//! `zfs allow` and `zfs unallow`: what is granted, and whether a caller has what a request needs.
//!
//! A caller whose role is not enough may do what [`Need`]s that the action names allow, all of them. Whether
//! a caller has one is looked up in the last commit, right before the request is done. A dataset that gets
//! another name between the two is the only thing that could make a difference, and who renames it is allowed
//! to do so; OpenZFS asks in the same order.
//!
//! Source of the facts: OpenZFS 2.4 `zfs_ioctl.c` (`zfs_secpolicy_*`), `zfs_main.c` (`zfs_do_allow_unallow`),
//! `dsl_deleg.c`.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::dsl::delegation::{self, Delegation, Subject, User};
use engine::dsl::edit::Grant;
use engine::dsl::{Dir, Dsl};
use futures_util::future::LocalBoxFuture;
use ondisk::accounting::AccountingObject;
use ondisk::deleg::{DelegKey, Scope, Who};

use crate::api::{self, ApiError, DestroyDataset, Granted, GrantedBy, Grantee, Grantees, Need, Rollback};
use crate::caller::Caller;
use crate::daemon::names::is_at_or_below;
use crate::daemon::refusals::said;
use crate::daemon::{Daemon, OpenPool, dataset_error, lock};
use crate::daemon::{names, sync_tasks};
use crate::users;

/// What a caller is told whose request would need a filesystem to be unmounted.
const IS_MOUNTED: &str = "it is mounted, and only root may unmount";

impl Daemon {
    /// Whether a caller has all that a request needs, which is something.
    ///
    /// # Errors
    /// What the request is about does not exist, or grants do not count there.
    pub(in crate::daemon) async fn has_all(&self, caller: &Caller, needs: &[Need]) -> Result<bool, ApiError> {
        for need in needs {
            if !self.has(caller, need).await? {
                return Ok(false);
            }
        }
        Ok(!needs.is_empty())
    }

    /// Whether a caller has what is needed.
    fn has<'a>(&'a self, caller: &'a Caller, need: &'a Need) -> LocalBoxFuture<'a, Result<bool, ApiError>> {
        Box::pin(async move {
            match need {
                Need::On(permission, name) => self.may_on(caller, permission, name).await,
                Need::Below(permission, name) => self.may_below(caller, permission, name).await,
                Need::Above(permission, name) => self.may_above(caller, permission, name).await,
                Need::At(permission, name) => match self.exists(name).await? {
                    true => self.may_on(caller, permission, name).await,
                    false => self.may_above(caller, permission, name).await,
                },
                Need::New(permission, name) => match self.exists(name).await? {
                    true => self.may_on(caller, permission, name).await,
                    false => {
                        let (chain, _) = self.chain_above(name).await?;
                        Ok(chain.allows(Subject::New, caller, permission))
                    }
                },
                Need::Origin(permission, name) => {
                    let pool = self.pool_of(name)?;
                    let open = |error| dataset_error("open", name, error);
                    let dsl = pool.dsl().await.map_err(open)?;
                    let dir = dsl.find_dir(name).await.map_err(open)?;
                    match dsl.origin(&dir).await.map_err(open)? {
                        Some(origin) => self.may_on(caller, permission, &origin).await,
                        // It is no clone, which is what will be said.
                        None => Ok(true),
                    }
                }
                Need::Destroy(request) => self.may_destroy(caller, request).await,
                Need::Later(request) => self.may_destroy_later(caller, request).await,
                Need::Unmounted(name) => self.is_unmounted(name),
                Need::Own(who) => Ok(caller.process().is_some()
                    && !who.is_empty()
                    && who
                        .iter()
                        .all(|who| users::id(AccountingObject::User, who) == Some(caller.uid().into()))),
                Need::Any(needs) => {
                    for need in needs {
                        if self.has(caller, need).await? {
                            return Ok(true);
                        }
                    }
                    Ok(false)
                }
                Need::Never => Ok(false),
            }
        })
    }

    async fn may_on(&self, caller: &Caller, permission: &str, name: &str) -> Result<bool, ApiError> {
        let pool = self.pool_of_any(name)?;
        let open = |error| dataset_error("open", name, error);
        let dsl = pool.dsl().await.map_err(open)?;
        let dir = dsl.find_dir(name.split(['@', '#']).next().unwrap_or(name)).await.map_err(open)?;
        let chain = DelegationChain::of(&dsl, &dir).await.map_err(open)?;
        let subject = if name.contains('@') { Subject::Snapshot } else { Subject::Dataset };
        Ok(chain.allows(subject, caller, permission))
    }

    async fn may_below(&self, caller: &Caller, permission: &str, name: &str) -> Result<bool, ApiError> {
        let pool = self.pool_of(name)?;
        let open = |error| dataset_error("open", name, error);
        let dsl = pool.dsl().await.map_err(open)?;
        let top = dsl.find_dir(name).await.map_err(open)?;
        // The name itself comes first, and most who may not have it end there.
        if !DelegationChain::of(&dsl, &top).await.map_err(open)?.allows(Subject::Dataset, caller, permission)
        {
            return Ok(false);
        }
        for dir in dsl.dirs(&top).await.map_err(open)? {
            if !DelegationChain::of(&dsl, &dir).await.map_err(open)?.allows(
                Subject::Dataset,
                caller,
                permission,
            ) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn may_above(&self, caller: &Caller, permission: &str, name: &str) -> Result<bool, ApiError> {
        let (chain, is_parent) = self.chain_above(name).await?;
        // What is made in between is made by the caller.
        Ok(chain.allows(Subject::Dataset, caller, permission)
            && (is_parent || chain.allows(Subject::New, caller, permission)))
    }

    async fn exists(&self, name: &str) -> Result<bool, ApiError> {
        let pool = self.pool_of(name)?;
        let open = |error| dataset_error("open", name, error);
        match pool.dsl().await.map_err(open)?.find_dir(name).await {
            Ok(_) => Ok(true),
            Err(engine::Error::NotFound(_)) => Ok(false),
            Err(error) => Err(open(error)),
        }
    }

    /// The nearest dataset above a name, and whether that is its parent.
    async fn chain_above(&self, name: &str) -> Result<(DelegationChain, bool), ApiError> {
        let pool = self.pool_of(name)?;
        let open = |error| dataset_error("open", name, error);
        let dsl = pool.dsl().await.map_err(open)?;
        let (mut above, mut is_parent) = (names::parent_of(name), true);
        while let Some(parent) = above {
            match dsl.find_dir(parent).await {
                Ok(dir) => return Ok((DelegationChain::of(&dsl, &dir).await.map_err(open)?, is_parent)),
                Err(engine::Error::NotFound(_)) => {}
                Err(error) => return Err(open(error)),
            }
            (above, is_parent) = (names::parent_of(parent), false);
        }
        Err(ApiError::not_found(format!("cannot open '{name}': dataset does not exist")))
    }

    /// Whether a caller may destroy all that a request would.
    async fn may_destroy(&self, caller: &Caller, request: &DestroyDataset) -> Result<bool, ApiError> {
        // First, as what else goes is no matter then.
        if !self.may_destroy_one(caller, &request.name).await? {
            return Ok(false);
        }
        let would = DestroyDataset { dry_run: true, command: None, ..request.clone() };
        for name in self.destroy_dataset(would).await?.names {
            if !self.may_destroy_one(caller, &name).await? || !self.is_unmounted(&name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn may_destroy_one(&self, caller: &Caller, name: &str) -> Result<bool, ApiError> {
        Ok(self.may_on(caller, "mount", name).await? && self.may_on(caller, "destroy", name).await?)
    }

    /// Whether a caller may destroy what is later than the snapshot that is gone back to.
    async fn may_destroy_later(&self, caller: &Caller, request: &Rollback) -> Result<bool, ApiError> {
        if !request.destroy_later && !request.destroy_clones {
            return Ok(true);
        }
        let name = &request.snapshot;
        let pool = self.pool_of(name)?;
        let open = |error| dataset_error("open", name, error);
        let dsl = pool.dsl().await.map_err(open)?;
        let snapshot = dsl.find(name).await.map_err(open)?;
        let head = dsl.head(&snapshot.dir).await.map_err(open)?;
        let since = snapshot.phys.creation_txg;
        let bookmarks = dsl.bookmarks(&head).await.map_err(open)?;
        if bookmarks.iter().any(|mark| mark.phys.creation_txg > since)
            && !self.may_on(caller, "destroy", &head.name).await?
        {
            return Ok(false);
        }
        for later in dsl.snapshots(&head).await.map_err(open)? {
            if later.phys.creation_txg <= since {
                continue;
            }
            let clones = request.destroy_clones;
            let gone = DestroyDataset { name: later.name, clones, ..DestroyDataset::default() };
            let may = match clones {
                true => self.may_destroy(caller, &gone).await?,
                false => self.may_destroy_one(caller, &gone.name).await?,
            };
            if !may {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether neither a filesystem nor one below it is mounted.
    ///
    /// # Errors
    /// One is, and the caller may not unmount it.
    fn is_unmounted(&self, name: &str) -> Result<bool, ApiError> {
        let Some(pool) = self.find_pool(names::pool_of(name)) else { return Ok(true) };
        match lock(&pool.mounts).keys().find(|mounted| is_at_or_below(mounted, name)) {
            Some(mounted) => Err(ApiError::refused(format!("cannot unmount '{mounted}': {IS_MOUNTED}"))),
            None => Ok(true),
        }
    }
}

/// What is granted on a dataset and above it.
struct DelegationChain {
    chain: Vec<(String, Delegation)>,
}

impl DelegationChain {
    async fn of(dsl: &Dsl, dir: &Arc<Dir>) -> engine::Result<Self> {
        if !dsl.has_delegation().await? {
            let text = "delegated administration is disabled on pool";
            return Err(engine::Error::Unsupported(text.to_owned()));
        }
        Ok(Self { chain: dsl.delegations(dir).await? })
    }

    fn allows(&self, subject: Subject, caller: &Caller, permission: &str) -> bool {
        // Nothing is granted to a person.
        let Some(process) = caller.process() else { return false };
        let user = User { uid: process.uid, gid: process.gid, groups: &process.groups };
        delegation::allows(self.chain.iter().map(|(_, here)| here), subject, &user, permission)
    }
}

// ---- Granting, and what is granted.

impl Daemon {
    /// Grants permissions.
    ///
    /// # Errors
    /// There is no such dataset, user, group or permission.
    pub async fn allow(&self, request: api::AllowPermissions) -> Result<(), ApiError> {
        let name = request.dataset;
        let doing = format!("cannot set permissions on '{name}'");
        if request.permissions.is_empty() {
            return Err(ApiError::invalid(format!("{doing}: no permissions are named")));
        }
        let scopes = (request.local, request.descendent);
        let grants = grants(&request.to, scopes, &request.permissions)?;
        let pool = self.pool_with(&name).await?;
        let live = pool.writable(&doing)?;
        let _adding = pool.add().await?;
        let done = sync_tasks::change(live, request.command, move |s| async move {
            sync_tasks::allow(&s, &name, &grants).await
        });
        done.await.map_err(|error| said(&doing, error))
    }

    /// Takes permissions away.
    ///
    /// # Errors
    /// There is no such dataset, user, group or permission.
    pub async fn unallow(&self, request: api::UnallowPermissions) -> Result<(), ApiError> {
        let name = request.dataset;
        let doing = format!("cannot remove permissions on '{name}'");
        let scopes = (request.local, request.descendent);
        let grants = grants(&request.from, scopes, &request.permissions)?;
        let pool = self.pool_with(&name).await?;
        let live = pool.writable(&doing)?;
        let _changing = pool.change().await?;
        let mut datasets = vec![name.clone()];
        if request.recursive {
            let failed = |error| said(&doing, error);
            let dsl = pool.dsl().await.map_err(failed)?;
            let top = dsl.find_dir(&name).await.map_err(failed)?;
            let below = dsl.dirs(&top).await.map_err(failed)?.into_iter().map(|dir| dir.name.clone());
            datasets = below.filter(|name| !engine::dsl::is_hidden(name)).collect();
        }
        let done = sync_tasks::change(live, request.command, move |s| async move {
            for dataset in &datasets {
                sync_tasks::unallow(&s, dataset, &grants).await?;
            }
            Ok(())
        });
        done.await.map_err(|error| said(&doing, error))
    }

    /// What a dataset and those above it grant.
    ///
    /// # Errors
    /// There is no such dataset.
    pub async fn granted(&self, request: api::ListPermissions) -> Result<Vec<GrantedBy>, ApiError> {
        let name = &request.dataset;
        let pool = self.pool_with(name).await?;
        let open = |error| dataset_error("open", name, error);
        let dsl = pool.dsl().await.map_err(open)?;
        let dir = dsl.find_dir(name).await.map_err(open)?;
        let chain = dsl.delegations(&dir).await.map_err(open)?;
        let granting = chain.into_iter().filter(|(_, here)| !here.lists.is_empty());
        Ok(granting.map(|(dataset, here)| GrantedBy { dataset, grants: shown(&here) }).collect())
    }

    /// The pool of a filesystem or volume, which must exist.
    async fn pool_with(&self, name: &str) -> Result<Arc<OpenPool>, ApiError> {
        if let Some(delimiter) = ['@', '#'].into_iter().find(|delimiter| name.contains(*delimiter)) {
            let what = if delimiter == '@' { "snapshot" } else { "bookmark" };
            return Err(ApiError::invalid(format!(
                "cannot open '{name}': {what} delimiter '{delimiter}' is not expected here"
            )));
        }
        let pool = self.pool_of(name)?;
        let open = |error| dataset_error("open", name, error);
        pool.dsl().await.map_err(open)?.find_dir(name).await.map_err(open)?;
        Ok(pool)
    }
}

/// The grants that are meant. Neither scope stands for both.
fn grants(to: &Grantees, scopes: (bool, bool), permissions: &[String]) -> Result<Vec<Grant>, ApiError> {
    let (mut plain, mut sets) = (Vec::new(), Vec::new());
    for name in permissions {
        if name.starts_with('@') && delegation::is_set_name(name) {
            sets.push(name.clone());
            continue;
        }
        let known = delegation::permission(name);
        let known = known.ok_or_else(|| ApiError::invalid(format!("invalid permission '{name}'")))?;
        plain.push(known.to_owned());
    }
    let (local, descendent) = if scopes == (false, false) { (true, true) } else { scopes };
    let scoped: Vec<Scope> = [(local, Scope::Local), (descendent, Scope::Descendent)]
        .into_iter()
        .filter(|(is, _)| *is)
        .map(|(_, scope)| scope)
        .collect();
    let places: Vec<(Who, Vec<Scope>)> = match to {
        Grantees::Everyone => vec![(Who::Everyone, scoped)],
        Grantees::Creator => vec![(Who::Creator, vec![Scope::None])],
        Grantees::Set(name) if delegation::is_set_name(name) => {
            vec![(Who::NamedSet(name.clone()), vec![Scope::None])]
        }
        Grantees::Set(name) => return Err(ApiError::invalid(format!("invalid set name '{name}'"))),
        Grantees::Users(all) => with_scopes(all, &scoped, user)?,
        Grantees::Groups(all) => with_scopes(all, &scoped, group)?,
        Grantees::Named(all) => with_scopes(all, &scoped, user_or_group)?,
    };
    let mut grants = Vec::new();
    for (who, scopes) in places {
        for scope in scopes {
            for (is_of_sets, names) in [(false, &plain), (true, &sets)] {
                // No permissions at all stand for those of both kinds.
                if !names.is_empty() || permissions.is_empty() {
                    let key = DelegKey { who: who.clone(), scope, sets: is_of_sets };
                    grants.push(Grant { key, permissions: names.clone() });
                }
            }
        }
    }
    Ok(grants)
}

fn with_scopes(
    all: &[String],
    scopes: &[Scope],
    find: impl Fn(&str) -> Result<Who, ApiError>,
) -> Result<Vec<(Who, Vec<Scope>)>, ApiError> {
    all.iter().map(|who| Ok((find(who)?, scopes.to_vec()))).collect()
}

fn user(who: &str) -> Result<Who, ApiError> {
    let id = users::id(AccountingObject::User, who);
    id.map(Who::User).ok_or_else(|| ApiError::invalid(format!("invalid user {who}")))
}

fn group(who: &str) -> Result<Who, ApiError> {
    let id = users::id(AccountingObject::Group, who);
    id.map(Who::Group).ok_or_else(|| ApiError::invalid(format!("invalid group {who}")))
}

/// A user if there is such a user, else a group.
fn user_or_group(who: &str) -> Result<Who, ApiError> {
    let known = |owner| users::id(owner, who).filter(|id| users::name_of(owner, *id).is_some());
    if let Some(id) = known(AccountingObject::User) {
        return Ok(Who::User(id));
    }
    if let Some(id) = known(AccountingObject::Group) {
        return Ok(Who::Group(id));
    }
    Err(ApiError::invalid(format!("invalid user/group {who}")))
}

/// Permissions by their names: whether they are given here, and below.
type Permissions = BTreeMap<String, (bool, bool)>;

/// What a directory grants, as OpenZFS shows it: sets, creators, then users, groups and everyone, by number
/// as text.
fn shown(here: &Delegation) -> Vec<Granted> {
    let mut all: BTreeMap<(u8, String), (Grantee, Permissions)> = BTreeMap::new();
    for (key, names) in &here.lists {
        let (order, to) = match &key.who {
            Who::NamedSet(name) => ((0, name.clone()), Grantee::Set(name.clone())),
            Who::Creator => ((1, String::new()), Grantee::Creator),
            Who::User(id) => ((2, id.to_string()), Grantee::User(*id, users::name(*id))),
            Who::Group(id) => {
                let name = users::name_of(AccountingObject::Group, *id);
                ((3, id.to_string()), Grantee::Group(*id, name))
            }
            Who::Everyone => ((4, String::new()), Grantee::Everyone),
        };
        let (_, permissions) = all.entry(order).or_insert_with(|| (to, BTreeMap::new()));
        for name in names {
            let (local, descendent) = permissions.entry(name.clone()).or_default();
            *local |= key.scope == Scope::Local;
            *descendent |= key.scope == Scope::Descendent;
        }
    }
    let mut shown = Vec::new();
    for (to, permissions) in all.into_values() {
        for scopes in [(true, false), (false, true), (true, true), (false, false)] {
            let of = permissions.iter().filter(|(_, found)| **found == scopes);
            let names: Vec<String> = of.map(|(name, _)| name.clone()).collect();
            if !names.is_empty() {
                let (local, descendent) = scopes;
                shown.push(Granted { to: to.clone(), local, descendent, permissions: names });
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(grants: &[Grant]) -> Vec<(String, String)> {
        grants.iter().map(|grant| (grant.key.encode(), grant.permissions.join(","))).collect()
    }

    fn words(text: &str) -> Vec<String> {
        text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn what_is_typed_becomes_keys() {
        let root = Grantees::Named(words("root"));
        let pair = |key: &str, permissions: &str| (key.to_owned(), permissions.to_owned());
        let both = grants(&root, (false, false), &words("create,@set,compress")).unwrap();
        let plain = "create,compression";
        assert_eq!(
            keys(&both),
            [pair("ul$0", plain), pair("Ul$0", "@set"), pair("ud$0", plain), pair("Ud$0", "@set")]
        );
        let local = grants(&Grantees::Groups(words("70001")), (true, false), &words("mount")).unwrap();
        assert_eq!(keys(&local), [pair("gl$70001", "mount")]);
        let all = grants(&Grantees::Everyone, (false, true), &[]).unwrap();
        assert_eq!(keys(&all), [pair("ed$", ""), pair("Ed$", "")]);
        let set = grants(&Grantees::Set("@a".into()), (false, false), &words("mount,@b")).unwrap();
        assert_eq!(keys(&set), [pair("s-$@a", "mount"), pair("S-$@a", "@b")]);
        let creator = grants(&Grantees::Creator, (false, false), &words("destroy")).unwrap();
        assert_eq!(keys(&creator), [pair("c-$", "destroy")]);
        for (to, permissions, error) in [
            (Grantees::Named(words("no-such-one")), "mount", "invalid user/group no-such-one"),
            (Grantees::Users(words("no-such-one")), "mount", "invalid user no-such-one"),
            (Grantees::Groups(words("no-such-one")), "mount", "invalid group no-such-one"),
            (Grantees::Everyone, "scrub", "invalid permission 'scrub'"),
            (Grantees::Everyone, "@", "invalid permission '@'"),
            (Grantees::Set("a".into()), "mount", "invalid set name 'a'"),
        ] {
            assert_eq!(grants(&to, (false, false), &words(permissions)).unwrap_err().message, error);
        }
    }

    #[test]
    fn grants_are_shown_by_who_has_them_and_where() {
        let list =
            |key: &str, names: &str| (DelegKey::parse(key).unwrap(), words(names).into_iter().collect());
        let lists = [
            list("ed$", "send"),
            list("ul$70000", "create,mount"),
            list("ud$70000", "mount"),
            list("Ul$70000", "@a"),
            list("s-$@a", "hold"),
            list("c-$", "destroy"),
        ];
        let shown = shown(&Delegation { lists: lists.into() });
        let granted =
            |to, local, descendent, names| Granted { to, local, descendent, permissions: words(names) };
        let user = Grantee::User(70_000, None);
        assert_eq!(
            shown,
            [
                granted(Grantee::Set("@a".into()), false, false, "hold"),
                granted(Grantee::Creator, false, false, "destroy"),
                granted(user.clone(), true, false, "@a,create"),
                granted(user, true, true, "mount"),
                granted(Grantee::Everyone, false, true, "send"),
            ]
        );
    }
}
