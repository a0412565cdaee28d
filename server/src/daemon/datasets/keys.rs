//! Encryption keys: loading, unloading, and reading keys from files.
//!
//! A key is loaded for an encryption root and serves all datasets that inherit from it. After loading, its
//! volumes are served; its filesystems are mounted on request. A key in use cannot be unloaded.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;

use engine::dsl::keys::EncryptionRoot;
use engine::events::feed::What;

use crate::api::{self, ApiError, KeyEntry, KeyLoaded};
use crate::daemon::open_pool::Changing;
use crate::daemon::volumes::clients::Connected;
use crate::daemon::{Daemon, OpenPool, dataset_error};

/// The longest file that is read for a key: the longest passphrase, and its line end.
const MAX_KEY_FILE_BYTES: u64 = 4096;

impl Daemon {
    /// Loads the key of an encryption root, or only checks it.
    ///
    /// # Errors
    /// A key that is wrong, already loaded, or cannot be read.
    pub async fn load_key(&self, request: api::LoadKey) -> Result<KeyLoaded, ApiError> {
        let pool = self.pool_of(&request.dataset)?;
        let changing = pool.change().await?;
        let name = &request.dataset;
        let failed = |error| dataset_error("load key for", name, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let root = dsl.encryption_root_of(name).await.map_err(failed)?;
        let material = match (&request.key, request.location.as_deref().unwrap_or(&root.location)) {
            (Some(key), _) => key.clone(),
            (None, location) => read_location(name, location)?,
        };
        load(&pool, &changing, name, &material, request.dry_run).await
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
        for root in roots.iter().filter(|root| !root.loaded && root.location != "prompt") {
            let loaded = async {
                let material = read_location(&root.dir.name, &root.location)?;
                load(pool, changing, &root.dir.name, &material, false).await
            };
            match loaded.await {
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
        let mut users = HashSet::new();
        for dir in dsl.dirs(dsl.root()).await.map_err(failed)? {
            let used = dsl.encryption_root(&dir).await.map_err(failed)?;
            if used.is_some_and(|used| used.object == root.dir.object) {
                users.insert(dir.name.clone());
            }
        }
        let is_user = |dataset: &str| users.contains(dataset.split('@').next().unwrap_or(dataset));
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
        dsl.unload_key(name).await.map_err(failed)?;
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

async fn load(
    pool: &OpenPool,
    _: &Changing<'_>,
    name: &str,
    material: &[u8],
    dry_run: bool,
) -> Result<KeyLoaded, ApiError> {
    let loaded = async { pool.dsl().await?.load_key(name, material, dry_run).await };
    let datasets = loaded.await.map_err(|error| dataset_error("load key for", name, error))? as u64;
    let mut warnings = Vec::new();
    if !dry_run {
        pool.tell(What::Served { name: name.to_owned(), how: "key-loaded" });
        if let Err(error) = pool.find_volumes().await {
            warnings.push(format!("not all volumes of '{}' are served: {error}", pool.name()));
        }
    }
    Ok(KeyLoaded { datasets, warnings })
}

/// Reads the key at a `keylocation`.
fn read_location(name: &str, location: &str) -> Result<Vec<u8>, ApiError> {
    let Some(path) = location.strip_prefix("file://") else {
        let why = match location {
            "prompt" => "its key has to be given".to_owned(),
            other => format!("a key location like '{other}' is not supported; give the key itself"),
        };
        return Err(ApiError::refused(format!("cannot load key for '{name}': {why}")));
    };
    let read = || {
        let mut material = Vec::new();
        File::open(path)?.take(MAX_KEY_FILE_BYTES + 1).read_to_end(&mut material)?;
        Ok::<_, std::io::Error>(material)
    };
    let material =
        read().map_err(|error| ApiError::failed(format!("cannot load key for '{name}': {path}: {error}")))?;
    if material.len() as u64 > MAX_KEY_FILE_BYTES {
        return Err(ApiError::invalid(format!("cannot load key for '{name}': {path} is too long for a key")));
    }
    Ok(material)
}
