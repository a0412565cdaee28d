//! Encryption keys: loading, unloading and changing them, and getting keys from where they lie.
//!
//! A key is loaded for an encryption root and serves all datasets that inherit from it. After loading, its
//! volumes are served; its filesystems are mounted on request. A key in use cannot be unloaded.
//!
//! The key itself comes with the request, from a file that the daemon reads, or from a server that it asks
//! ([`crate::key_server`]). It is got, and a passphrase becomes a key, before the right to change the pool is
//! asked for, as that takes a while; no state of the pool is held while a server is waited for. Material is
//! wiped when it was used; it reaches no log, no history and no error.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use engine::dsl::edit::{self, KeyChange};
use engine::dsl::keys::{self, EncryptionRoot, KeyFormat, UserKey, WrappingKey};
use engine::env::Env;
use engine::events::feed::What;
use engine::properties::{Prop, is_user};

use crate::api::{self, ApiError, KeyEntry, KeyLoaded, Secret};
use crate::daemon::open_pool::Changing;
use crate::daemon::refusals::said;
use crate::daemon::volumes::clients::Connected;
use crate::daemon::{Daemon, OpenPool, dataset_error, sync_tasks};
use crate::key_server::{self, Failure, MAX_BYTES};

/// Where a key is found that is given with each request.
const PROMPT: &str = "prompt";

impl Daemon {
    /// Loads the key of an encryption root, or only checks it.
    ///
    /// # Errors
    /// A key that is wrong, already loaded, or cannot be read.
    pub async fn load_key(&self, request: api::LoadKey) -> Result<KeyLoaded, ApiError> {
        let pool = self.pool_of(&request.dataset)?;
        let name = &request.dataset;
        let failed = |error| dataset_error("load key for", name, error);
        let location = {
            let dsl = pool.dsl().await.map_err(failed)?;
            let root = dsl.encryption_root_of(name).await.map_err(failed)?;
            request.location.unwrap_or(root.location)
        };
        let material = material(&format!("cannot load key for '{name}'"), request.key, &location)?;
        let derived = async { pool.dsl().await?.derive_key(name, material.bytes()).await };
        let derived = derived.await.map_err(failed)?;
        let changing = pool.change().await?;
        load(&pool, &changing, name, &derived, request.dry_run).await
    }

    /// Changes the key that a user gives for a dataset, or has it inherited.
    ///
    /// # Errors
    /// A key that is not loaded, or cannot be one; properties that do not go.
    pub async fn change_key(&self, request: api::ChangeKey) -> Result<(), ApiError> {
        let name = &request.dataset;
        let doing = format!("cannot change key for '{name}'");
        let pool = self.pool_of(name)?;
        let live = pool.writable(&doing)?;
        let properties = &request.properties;
        let is_of_key = |name: &str| {
            let of_key = [Prop::Keyformat, Prop::Keylocation, Prop::Pbkdf2Iters];
            Prop::from_name(name).is_some_and(|prop| of_key.contains(&prop))
        };
        let refuse = |why: &str| Err(ApiError::invalid(format!("{doing}: {why}")));
        if request.inherit && !properties.iter().all(|(name, _)| is_user(name)) {
            return refuse("Only user properties may be set with 'zfs change-key -i'");
        }
        if !properties.iter().all(|(name, _)| is_user(name) || is_of_key(name)) {
            return refuse(
                "Only keyformat, keylocation, pbkdf2iters, and user properties may be set with this command.",
            );
        }
        let own: Vec<_> = properties.iter().filter(|(name, _)| is_user(name)).cloned().collect();
        let change = match request.inherit {
            true => KeyChange::Inherit,
            false => {
                let failed = |error| dataset_error("change key for", name, error);
                let dsl = pool.dsl().await.map_err(failed)?;
                let root = dsl.encryption_root_of(name).await.map_err(|error| match error {
                    engine::Error::WrongType { .. } => {
                        ApiError::invalid(format!("{doing}: Dataset not encrypted."))
                    }
                    other => failed(other),
                })?;
                let is_root = root.dir.name == *name;
                let dataset = dsl.find(name).await.map_err(failed)?;
                if !dsl.key_is_loaded(&dataset) {
                    return Err(ApiError::refused(format!("{doing}: Key must be loaded.")));
                }
                if dsl.origin(&dataset.dir).await.map_err(failed)?.is_some() {
                    return refuse("Keys cannot be changed on clones.");
                }
                drop(dsl);
                let (format, iterations) = keys::asked(properties).map_err(|error| said(&doing, error))?;
                let format = match format.or(is_root.then_some(root.format)) {
                    Some(format) => format,
                    None => return refuse("Keyformat required for new encryption root."),
                };
                let given = given_location(properties).map(str::to_owned);
                if request.dry_run {
                    return Ok(());
                }
                let location = given.clone().or(is_root.then_some(root.location));
                let location = location.unwrap_or_else(|| PROMPT.to_owned());
                let material = material(&doing, request.key, &location)?;
                let key = new_key(&doing, &**live.env(), format, &material, iterations)?;
                KeyChange::New { key, location: given }
            }
        };
        if request.dry_run {
            return Ok(());
        }
        let _changing = pool.change().await?;
        let dataset = name.clone();
        let done = sync_tasks::change(live, request.command, move |s| async move {
            edit::change_key(&s, &dataset, &change, &own).await
        });
        done.await.map_err(|error| said(&doing, error))
    }

    /// Gets the keys of a pool that are not loaded and lie where the daemon can get them: all of them, or
    /// those that a dataset needs, with all below it or without. This takes a while, so that it comes before
    /// others are kept from changing the pool.
    pub(in crate::daemon) async fn find_keys(
        &self,
        pool: &OpenPool,
        dataset: Option<(&str, bool)>,
    ) -> FoundKeys {
        let mut found = FoundKeys::default();
        let roots = match roots_of(pool, dataset).await {
            Ok(roots) => roots,
            Err(error) => {
                found.warnings.push(format!("cannot list the keys of '{}': {error}", pool.name()));
                return found;
            }
        };
        // One server that does not answer is waited for once.
        let mut silent = HashSet::new();
        for (name, location) in roots {
            let doing = format!("cannot load key for '{name}'");
            let server = key_server::server_of(&location);
            if let Some(server) = server.as_ref().filter(|server| silent.contains(*server)) {
                found.warnings.push(format!("{doing}: {location}: {server} did not answer before"));
                continue;
            }
            let material = match material_at(&location) {
                Ok(material) => material,
                Err(failure) => {
                    found.warnings.push(format!("{doing}: {failure}"));
                    silent.extend(server.filter(|_| failure.is_silent));
                    continue;
                }
            };
            let derived = async { pool.dsl().await?.derive_key(&name, material.bytes()).await };
            match derived.await {
                Ok(derived) => found.keys.push((name, derived)),
                Err(error) => found.warnings.push(dataset_error("load key for", &name, error).message),
            }
        }
        found
    }

    /// Loads keys that were found. A warning for each that could not be got or loaded.
    pub(in crate::daemon) async fn load_found(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        found: FoundKeys,
    ) -> Vec<String> {
        let mut warnings = found.warnings;
        for (name, key) in &found.keys {
            match load(pool, changing, name, key, false).await {
                Ok(loaded) => warnings.extend(loaded.warnings),
                Err(error) => warnings.push(error.message),
            }
        }
        warnings
    }

    /// Forgets the key of an encryption root.
    ///
    /// # Errors
    /// A key that is not loaded or in use.
    pub async fn unload_key(&self, request: api::UnloadKey) -> Result<(), ApiError> {
        let pool = self.pool_of(&request.dataset)?;
        let _changing = pool.change().await?;
        let name = &request.dataset;
        let failed = |error| dataset_error("unload key for", name, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let root = dsl.encryption_root_of(name).await.map_err(failed)?;
        let users = dsl.key_users(&root.dir).await.map_err(failed)?;
        let users: HashSet<_> = users.iter().map(|dir| dir.name.clone()).collect();
        let is_user = |dataset: &str| users.contains(dataset.split('@').next().unwrap_or(dataset));
        let in_use = pool.in_use_where(is_user);
        pool.detach_devices(|_| true, false);
        if let Some(user) = in_use.first() {
            let how = match pool.mountpoints().get(user) {
                Some(at) => format!("is mounted at {}", at.display()),
                None => "is in use".to_owned(),
            };
            return Err(ApiError::busy(format!("cannot unload key for '{name}': '{user}' {how}")));
        }
        let connected = pool.connected_settled();
        if let Some(Connected { volume, client }) = connected.iter().find(|one| is_user(&one.volume)) {
            return Err(ApiError::busy(format!(
                "cannot unload key for '{name}': '{volume}' is in use: {client} is connected to it"
            )));
        }
        match pool.live() {
            None => dsl.unload_key(name).await.map_err(failed)?,
            Some(live) => {
                drop((dsl, root));
                live.unload_key(name).await.map_err(failed)?;
            }
        }
        pool.tell(What::Served { name: name.clone(), how: "key-unloaded" });
        pool.find_volumes().await.map_err(failed)
    }

    /// Lists encryption roots.
    ///
    /// # Errors
    /// A dataset that does not exist or is not encrypted.
    pub async fn list_keys(&self, request: api::ListKeys) -> Result<Vec<KeyEntry>, ApiError> {
        let roots = match &request.dataset {
            Some(name) => {
                let pool = self.pool_of(name)?;
                let roots = async {
                    let dsl = pool.dsl().await?;
                    match request.recursive {
                        true => dsl.encryption_roots(Some(name)).await,
                        false => dsl.encryption_root_of(name).await.map(|root| vec![root]),
                    }
                };
                roots.await.map_err(|error| dataset_error("open", name, error))?
            }
            None => {
                let mut all = Vec::new();
                for pool in self.open_pools() {
                    all.extend(pool.dsl().await?.encryption_roots(None).await?);
                }
                all
            }
        };
        Ok(roots.into_iter().map(describe).collect())
    }
}

fn describe(root: EncryptionRoot) -> KeyEntry {
    KeyEntry {
        dataset: root.dir.name.clone(),
        format: root.format.name().to_owned(),
        location: root.location,
        loaded: root.loaded,
    }
}

/// The key of a new encryption root, where a dataset's properties make it one.
///
/// # Errors
/// Material that is missing or cannot be a key.
pub(in crate::daemon) fn key_of_new(
    doing: &str,
    env: &dyn Env,
    properties: &[(String, String)],
    given: Option<Secret>,
) -> Result<Option<Arc<UserKey>>, ApiError> {
    let (format, iterations) = keys::asked(properties).map_err(|error| said(doing, error))?;
    let Some(format) = format else {
        return match given {
            Some(_) => Err(ApiError::invalid(format!("{doing}: a key is given without a keyformat"))),
            None => Ok(None),
        };
    };
    let material = material(doing, given, given_location(properties).unwrap_or(PROMPT))?;
    new_key(doing, env, format, &material, iterations).map(Some)
}

fn given_location(properties: &[(String, String)]) -> Option<&str> {
    let is_location = |name: &str| Prop::from_name(name) == Some(Prop::Keylocation);
    properties.iter().rev().find(|(name, _)| is_location(name)).map(|(_, location)| location.as_str())
}

fn new_key(
    doing: &str,
    env: &dyn Env,
    format: KeyFormat,
    material: &Secret,
    iterations: Option<u64>,
) -> Result<Arc<UserKey>, ApiError> {
    let key = UserKey::new(format, material.bytes(), iterations, env);
    key.map(Arc::new).map_err(|error| said(doing, error))
}

async fn load(
    pool: &OpenPool,
    _: &Changing<'_>,
    name: &str,
    key: &Arc<WrappingKey>,
    dry_run: bool,
) -> Result<KeyLoaded, ApiError> {
    let loaded = async { pool.dsl().await?.load_derived_key(name, key, dry_run).await };
    let datasets = loaded.await.map_err(|error| dataset_error("load key for", name, error))? as u64;
    let mut warnings = Vec::new();
    if !dry_run {
        pool.tell(What::Served { name: name.to_owned(), how: "key-loaded" });
        if let Some(live) = pool.live()
            && let Err(error) = live.replay_unlocked().await
        {
            warnings.push(format!("not all intent logs of '{}' are replayed: {error}", pool.name()));
        }
        if let Err(error) = pool.find_volumes().await {
            warnings.push(format!("not all volumes of '{}' are served: {error}", pool.name()));
        }
    }
    Ok(KeyLoaded { datasets, warnings })
}

/// The encryption roots whose keys are not loaded and need not be asked for, each with the location of its
/// key.
async fn roots_of(pool: &OpenPool, dataset: Option<(&str, bool)>) -> engine::Result<Vec<(String, String)>> {
    let dsl = pool.dsl().await?;
    let mut roots = match dataset {
        Some((_, false)) => Vec::new(),
        Some((name, true)) => dsl.encryption_roots(Some(name)).await?,
        None => dsl.encryption_roots(None).await?,
    };
    if let Some((name, _)) = dataset {
        match dsl.encryption_root_of(name).await {
            Ok(above) if roots.iter().all(|root| root.dir.object != above.dir.object) => roots.push(above),
            Ok(_) | Err(engine::Error::WrongType { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let missing = roots.into_iter().filter(|root| !root.loaded && root.location != PROMPT);
    Ok(missing.map(|root| (root.dir.name.clone(), root.location)).collect())
}

/// Keys that were got from where they lie.
#[derive(Default)]
pub(in crate::daemon) struct FoundKeys {
    keys: Vec<(String, Arc<WrappingKey>)>,
    warnings: Vec<String>,
}

/// A key that came with a request, or that lies at a `keylocation`.
fn material(doing: &str, given: Option<Secret>, location: &str) -> Result<Secret, ApiError> {
    match given {
        Some(key) => Ok(key),
        None if location == PROMPT => Err(ApiError::refused(format!("{doing}: its key has to be given"))),
        None => material_at(location).map_err(|failure| ApiError::failed(format!("{doing}: {failure}"))),
    }
}

/// A key that lies in a file or on a server.
fn material_at(location: &str) -> Result<Secret, Failure> {
    if key_server::is_address(location) {
        return key_server::fetch(location);
    }
    let failed = |message: String| Failure { message, is_silent: false };
    let Some(path) = location.strip_prefix("file://") else {
        let why = format!("a key location like '{location}' is not supported; give the key itself");
        return Err(failed(why));
    };
    let read = || {
        // One piece of memory, of which no copy is left behind.
        let mut material = Vec::with_capacity(MAX_BYTES + 64);
        // A pipe that nothing writes to must not keep the request.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut material)?;
        Ok::<_, std::io::Error>(Secret::from(material))
    };
    let material = read().map_err(|error| failed(format!("{path}: {error}")))?;
    if material.bytes().len() > MAX_BYTES {
        return Err(failed(format!("{path} is too long for a key")));
    }
    Ok(material)
}
