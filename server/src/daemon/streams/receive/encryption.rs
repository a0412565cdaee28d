//! Encryption of what is received: what properties ask for, and encryption roots after a raw replication.
//!
//! # Plain streams
//! A new dataset is encrypted as one that is created at its place: below an encrypted one, or as `-o` says.
//! A stream with properties is of a dataset that is not encrypted, since others are not sent with properties
//! but raw. So what it becomes is not encrypted either, unless `-o encryption=…` or `-x encryption` says
//! otherwise. The key of a new encryption root lies in a file: standard input has the stream.
//!
//! # Raw streams
//! Encryption comes with the stream and cannot be chosen, but for `keylocation`. When all streams of a
//! package have come, its datasets are encryption roots where they are on the sender, and have the key of
//! their parents' roots where they have it there; the first one stays a root in any case.
//!
//! Source of the facts: OpenZFS 2.4 `libzfs_sendrecv.c` (`zfs_setup_cmdline_props`,
//! `recv_fix_encryption_hierarchy`).

use std::sync::Arc;

use engine::dsl::edit;
use engine::dsl::keys::UserKey;
use engine::properties::{Environment, Prop, Style};
use ondisk::send::{Begin, PackagedDataset, PackagedValue, feature};

use super::Receive;
use super::target::Destination;
use crate::api::ApiError;
use crate::daemon::datasets::key_of_new;
use crate::daemon::refusals::said;
use crate::daemon::sync_tasks;

const DOING: &str = "cannot receive";
const LOCATION: &str = "keylocation";

/// What a stream is, for the rules of encryption.
pub(super) struct Kind<'a> {
    pub to: &'a Destination,
    pub is_raw: bool,
    /// A new dataset that is no clone.
    pub is_new: bool,
    /// It came with others.
    pub is_one_of_many: bool,
    pub sent: Option<&'a PackagedDataset>,
}

impl Kind<'_> {
    pub(super) fn is_raw(begin: &Begin) -> bool {
        begin.features & feature::RAW != 0
    }
}

/// Whether a property cannot be changed without the key.
fn is_of_key(name: &str) -> bool {
    let prop = Prop::from_name(name);
    matches!(prop, Some(Prop::Encryption | Prop::Keyformat | Prop::Pbkdf2Iters | Prop::Pbkdf2Salt))
}

fn is_location(name: &str) -> bool {
    Prop::from_name(name) == Some(Prop::Keylocation)
}

/// Whether a property of the command belongs to the encryption of a new dataset, and is no value to be set.
pub(super) fn is_taken(name: &str, kind: &Kind<'_>) -> bool {
    is_of_key(name) || is_location(name) && kind.is_new && !kind.is_raw
}

/// Properties that are asked for, and the key of a new encryption root.
type Asked = (Vec<(String, String)>, Option<Arc<UserKey>>);

impl Receive<'_> {
    /// What is asked for of the encryption of a new dataset, with the key of a new encryption root.
    pub(super) fn encryption_of(&self, kind: &Kind<'_>, doing: &str) -> Result<Asked, ApiError> {
        let request = self.request;
        let typed = || request.properties.iter().filter(|(name, _)| is_of_key(name));
        let excluded = || request.excluded.iter().filter(|name| is_of_key(name));
        let refused = |name: &str, why: &str| {
            Err(ApiError::invalid(format!("{doing}: encryption property '{name}' cannot be {why}")))
        };
        if kind.is_raw {
            let first = typed().map(|(name, _)| name).chain(excluded()).next();
            return match first {
                Some(name) => refused(name, "set or excluded for raw streams."),
                None => Ok((Vec::new(), None)),
            };
        }
        if !kind.is_new {
            return match typed().next() {
                Some((name, _)) if !kind.is_one_of_many => refused(name, "set for incremental streams."),
                _ => Ok((Vec::new(), None)),
            };
        }
        let mut asked: Vec<(String, String)> = Vec::new();
        if kind.to.is_top {
            let is_taken = |name: &str| is_of_key(name) || is_location(name);
            asked.extend(request.properties.iter().filter(|(name, _)| is_taken(name)).cloned());
        }
        let is_encryption = |name: &str| Prop::from_name(name) == Some(Prop::Encryption);
        let mut says = request.properties.iter().map(|(name, _)| name).chain(&request.excluded);
        let has_properties = kind.sent.is_some_and(|sent| sent.properties.is_some());
        if has_properties && !says.any(|name| is_encryption(name)) {
            asked.push(("encryption".to_owned(), "off".to_owned()));
        }
        let has_format = asked.iter().any(|(name, _)| Prop::from_name(name) == Some(Prop::Keyformat));
        let has_file = asked.iter().any(|(name, at)| is_location(name) && at != "prompt");
        if has_format && !has_file {
            return Err(ApiError::invalid(format!(
                "{doing}: standard input has the stream, so that no key can be asked for: give a file with \
                 keylocation=file:///…"
            )));
        }
        let live = self.pool.writable(doing)?;
        let key = match request.dry_run {
            true => None,
            false => key_of_new(doing, &**live.env(), &asked, None)?,
        };
        Ok((asked, key))
    }

    /// All streams of a package have come: its encryption roots are those of the sender.
    pub(super) async fn restore_roots(&mut self) -> Result<(), ApiError> {
        let Some(package) = self.package.clone().filter(|package| package.raw) else { return Ok(()) };
        if self.request.dry_run {
            return Ok(());
        }
        let to = Destination::of(self.request, &format!("{}@{}", self.top, package.to_snapshot), &self.top)?;
        for local in self.local(&to.dataset).await? {
            if package.not_recursive && local.name != to.dataset {
                continue;
            }
            let sent = local.snapshots.iter().find_map(|(_, guid)| package.with_snapshot(*guid));
            let Some((sent, _)) = sent else { continue };
            let (is_clone, is_top) = (local.origin.is_some(), local.name == to.dataset);
            self.restore_root(&local.name, (is_clone, is_top), sent).await?;
        }
        let pool = Arc::clone(&self.pool);
        self.find_volumes(&pool).await;
        Ok(())
    }

    async fn restore_root(
        &mut self,
        name: &str,
        (is_clone, is_top): (bool, bool),
        sent: &PackagedDataset,
    ) -> Result<(), ApiError> {
        let doing = format!("{DOING}: key of '{name}'");
        let failed = |error| said(&doing, error);
        let pool = Arc::clone(&self.pool);
        let live = pool.writable(DOING)?;
        let _changing = pool.change().await?;
        let (is_root, location) = {
            let dsl = pool.dsl().await.map_err(failed)?;
            let dataset = dsl.find(name).await.map_err(failed)?;
            let Some(root) = dsl.encryption_root(&dataset.dir).await.map_err(failed)? else { return Ok(()) };
            let entry = dsl.entry(name).await.map_err(failed)?;
            let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await.map_err(failed)?;
            let location = properties.get(Prop::Keylocation, Style::PARSABLE).map(|shown| shown.value);
            (root.object == dataset.dir.object, location)
        };
        if !sent.is_encryption_root {
            if is_root && !is_top && !is_clone {
                let of = name.to_owned();
                let done =
                    sync_tasks::change(
                        live,
                        None,
                        move |s| async move { edit::inherit_unasked(&s, &of).await },
                    );
                done.await.map_err(failed)?;
            }
            return Ok(());
        }
        if is_clone {
            return Ok(());
        }
        let wanted = sent.properties.as_ref().and_then(|all| {
            let found = all.iter().find(|one| one.name.to_str() == Some(LOCATION))?;
            match &found.value {
                PackagedValue::Text(text) => text.to_str().map(str::to_owned),
                PackagedValue::Number(_) => None,
            }
        });
        let wanted = wanted.filter(|wanted| !is_root || location.as_ref() != Some(wanted));
        if is_root && wanted.is_none() {
            return Ok(());
        }
        let of = name.to_owned();
        let done = sync_tasks::change(live, None, move |s| async move {
            if !is_root {
                edit::become_root(&s, &of).await?;
            }
            if let Some(wanted) = wanted {
                edit::set_properties(&s, &of, &[(LOCATION.to_owned(), wanted)]).await?;
            }
            Ok(())
        });
        done.await.map_err(failed)
    }
}
