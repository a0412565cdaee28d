//! Encryption keys: loading, unloading and changing them, and reading keys from files.
//!
//! A key is loaded for an encryption root and serves all datasets that inherit from it. After loading, its
//! volumes are served; its filesystems are mounted on request. A key in use cannot be unloaded.
//!
//! The key itself comes with the request, or from a file that the daemon reads. A passphrase becomes a key
//! before the right to change the pool is asked for, as that takes a while by design. Material is wiped when
//! it was used; it reaches no log, no history and no error.

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

/// The longest file that is read for a key: the longest passphrase, and its line end.
const MAX_KEY_FILE_BYTES: u64 = 4096;
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
        let derived = {
            let dsl = pool.dsl().await.map_err(failed)?;
            let root = dsl.encryption_root_of(name).await.map_err(failed)?;
            let location = request.location.as_deref().unwrap_or(&root.location);
            let material = material(&format!("cannot load key for '{name}'"), request.key, location)?;
            dsl.derive_key(name, material.bytes()).await.map_err(failed)?
        };
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

    /// Loads all keys of a pool that lie in files. A warning for each that could not be loaded.
    pub(in crate::daemon) async fn load_keys_from_files(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
    ) -> Vec<String> {
        let listed = async { pool.dsl().await?.encryption_roots(None).await };
        let roots = match listed.await {
            Ok(roots) => roots,
            Err(error) => return vec![format!("cannot list the keys of '{}': {error}", pool.name())],
        };
        let mut warnings = Vec::new();
        for root in roots.iter().filter(|root| !root.loaded && root.location != PROMPT) {
            let loaded = async {
                let name = &root.dir.name;
                let material = material(&format!("cannot load key for '{name}'"), None, &root.location)?;
                let derived = pool.dsl().await?.derive_key(name, material.bytes()).await;
                let derived = derived.map_err(|error| dataset_error("load key for", name, error))?;
                load(pool, changing, name, &derived, false).await
            };
            match loaded.await {
                Ok(loaded) => warnings.extend(loaded.warnings),
                Err(error) => warnings.push(error.message),
            }
        }
        warnings
    }

    /// Loads a key that was loaded before the pool was opened again. What to say beside it.
    pub(in crate::daemon) async fn load_again(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        root: &str,
        key: &Arc<WrappingKey>,
    ) -> Result<Vec<String>, ApiError> {
        Ok(load(pool, changing, root, key, false).await?.warnings)
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
        let of_key = users.clone();
        let doing = format!("cannot unload key for '{name}'");
        let _shares = pool.close_shares(&doing, move |dataset| of_key.contains(dataset))?;
        let in_use = pool.in_use_where(is_user);
        pool.detach_devices(|_| true, false);
        if let Some(user) = in_use.first() {
            return Err(ApiError::busy(format!("cannot unload key for '{name}': '{user}' is in use")));
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

/// A key that came with a request, or that lies at a `keylocation`.
fn material(doing: &str, given: Option<Secret>, location: &str) -> Result<Secret, ApiError> {
    if let Some(key) = given {
        return Ok(key);
    }
    let Some(path) = location.strip_prefix("file://") else {
        let why = match location {
            PROMPT => "its key has to be given".to_owned(),
            other => format!("a key location like '{other}' is not supported; give the key itself"),
        };
        return Err(ApiError::refused(format!("{doing}: {why}")));
    };
    let read = || {
        // One piece of memory, of which no copy is left behind.
        let mut material = Vec::with_capacity(MAX_KEY_FILE_BYTES as usize + 64);
        // A pipe that nothing writes to must not keep the request.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        file.take(MAX_KEY_FILE_BYTES + 1).read_to_end(&mut material)?;
        Ok::<_, std::io::Error>(Secret::from(material))
    };
    let material = read().map_err(|error| ApiError::failed(format!("{doing}: {path}: {error}")))?;
    if material.bytes().len() as u64 > MAX_KEY_FILE_BYTES {
        return Err(ApiError::invalid(format!("{doing}: {path} is too long for a key")));
    }
    Ok(material)
}
