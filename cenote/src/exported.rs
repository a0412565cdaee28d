//! Opening a pool that is not imported, read-only, for commands that need no daemon.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use engine::Pool;
use engine::cache::ArcCache;
use engine::dsl::{Dataset, Dsl};
use engine::env::System;
use engine::pool::discovery;
use engine::pool::discovery::FoundPool;
use engine::pool::import::{ImportError, ImportOptions, import, select};
use engine::pool::live::Surroundings;
use engine::pool::replayed;
use engine::txg::Limits;
use ondisk::crypto_key::KeyFormat;
use server::api::Secret;

use crate::prompt;

/// Where a pool is looked for, and how its encrypted datasets are opened.
#[derive(Debug, Clone, clap::Args)]
pub struct PoolPlace {
    /// Directory with the pool's disks or image files, or one of them (may be repeated; default: /dev)
    #[arg(short = 'd', long = "dir", value_name = "DIR|DEVICE")]
    pub places: Vec<PathBuf>,
    /// File with the key or passphrase of encrypted datasets (default: ask)
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// The option of the command that names places, for messages.
    #[arg(skip = "-d")]
    pub option: &'static str,
}

/// Memory for cached blocks. Each block is read once or a few times in a row, so that more would not be hit
/// more often; and memory that is used again costs less than memory that the system must find and clear
/// first.
const CACHE_BYTES: u64 = 32 << 20;

/// Memory for what replaying intent logs writes.
const REPLAY_BYTES: u64 = 1 << 30;

/// Largest key file, in bytes: no format needs more.
const MAX_KEY_FILE_BYTES: u64 = 4096;

impl PoolPlace {
    /// The datasets of the pool of this name or guid, with what its intent logs hold, replayed in memory.
    /// Beside them, the names of those whose logs could not be replayed; that is reported on standard error.
    pub async fn open(&self, pool: &str) -> Result<(Arc<Dsl>, Vec<String>)> {
        let found = self.find(pool).await?;
        let options =
            ImportOptions { cache: Some(Arc::new(ArcCache::new(CACHE_BYTES))), ..ImportOptions::read_only() };
        let surroundings = Surroundings {
            env: Arc::new(System),
            cache: options.cache.clone(),
            limits: Limits::default(),
            host: (0, String::new()),
        };
        let opened = replayed::open(&found, &options, surroundings, REPLAY_BYTES).await?;
        let why = opened.why.unwrap_or_else(|| "the reason is unknown".into());
        for name in &opened.not_shown {
            eprintln!(
                "warning: the last changes of '{name}' before a crash are in its intent log and not shown \
                 here: {why}\n\
                 'zpool import' without readonly=on brings them back"
            );
        }
        let pool = opened.pool;
        let dsl = Dsl::open(&pool).await.with_context(|| format!("cannot open '{}'", pool.name()))?;
        Ok((Arc::new(dsl), opened.not_shown))
    }

    /// The pool of this name or guid.
    pub async fn open_pool(&self, pool: &str, options: &ImportOptions) -> Result<Arc<Pool>> {
        let found = self.find(pool).await?;
        let cache = options.cache.clone().unwrap_or_else(|| Arc::new(ArcCache::new(CACHE_BYTES)));
        Ok(import(&found, &ImportOptions { cache: Some(cache), ..options.clone() }).await?)
    }

    async fn find(&self, pool: &str) -> Result<FoundPool> {
        let defaults = discovery::DEFAULT_DIRECTORIES.map(PathBuf::from);
        let places: Vec<&Path> = match self.places.is_empty() {
            true => defaults.iter().map(PathBuf::as_path).filter(|place| place.exists()).collect(),
            false => self.places.iter().map(PathBuf::as_path).collect(),
        };
        let found = discovery::scan(&places).await?;
        let names: Vec<String> = found.iter().map(|pool| pool.name.clone()).collect();
        select(found, pool).map_err(|error| match error {
            ImportError::NotFound(_) => {
                let option = self.option;
                let (place, hint) = match (self.places.is_empty(), names.is_empty()) {
                    (true, _) => (
                        "on this machine's disks".to_owned(),
                        format!("; {option} DIR looks in another place"),
                    ),
                    (false, true) => (format!("in {}", shown(&self.places)), String::new()),
                    (false, false) => {
                        (format!("in {}", shown(&self.places)), format!(", only: {}", names.join(", ")))
                    }
                };
                anyhow!("cannot open '{pool}': no such pool exists {place}{hint}")
            }
            error => anyhow!(error),
        })
    }

    /// Makes sure that the key of `dataset` is loaded, if it needs one.
    pub async fn unlock(&self, dsl: &Dsl, dataset: &Dataset) -> Result<()> {
        let Some(root) = dsl.encryption_root(&dataset.dir).await? else { return Ok(()) };
        if dsl.key_is_loaded(dataset) {
            return Ok(());
        }
        let format = dsl.encryption_root_of(&root.name).await?.format;
        let material = match &self.key {
            Some(file) => Secret::from(read_key(file)?),
            None if format == KeyFormat::Passphrase => {
                prompt::secret(&format!("Enter passphrase for '{}': ", root.name))?
            }
            None => bail!("'{}' is encrypted; give its key with --key FILE", root.name),
        };
        dsl.load_key(&root.name, material.bytes(), false).await?;
        Ok(())
    }
}

fn read_key(file: &Path) -> Result<Vec<u8>> {
    let length = std::fs::metadata(file)
        .with_context(|| format!("cannot read the key file {}", file.display()))?
        .len();
    ensure!(
        length <= MAX_KEY_FILE_BYTES,
        "{} has {length} bytes; a key file has at most {MAX_KEY_FILE_BYTES}",
        file.display()
    );
    std::fs::read(file).with_context(|| format!("cannot read the key file {}", file.display()))
}

fn shown(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}
