//! `cenote up`: imports, mounts and serves a pool in the foreground, until Ctrl-C.
//!
//! It needs no daemon: it is one, with sockets of its own in a private directory, so that the other commands
//! can ask it too (`CENOTE_SOCKET`). Everything is mounted below a directory of the user, never over the
//! system's own. Without root that takes fusermount3, and each filesystem gets a directory of its own,
//! because none can be mounted inside another. Without FUSE the volumes are served all the same.
//!
//! Without the name of a pool it makes one, to try things out (`default_pool`). Named pools are opened
//! read-only unless `--write` is given.

mod default_pool;
mod host;
mod show;

use std::io::IsTerminal;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use server::api::{
    DatasetKind, DiscoverPools, ErrorKind, ImportPool, ListDatasets, ListKeys, ListMounts, ListVolumes,
    LoadKey, Mount, Mounted, Rewind, ServedVolume,
};
use server::daemon::Daemon;

use crate::prompt;
use crate::serving::{MemoryArguments, TcpArguments, nbd_limits};
use host::Host;

/// How often a passphrase is asked for.
const PASSPHRASE_TRIES: usize = 3;

/// Arguments of `cenote up`.
#[derive(Debug, clap::Args)]
#[command(after_help = nbd_limits())]
pub struct UpArguments {
    /// Name or guid of the pool; may be left out if only one is found with -d. Without both, make a pool in
    /// ./cenote
    pub pool: Option<String>,
    /// Open the pool for writing
    #[arg(short = 'w', long)]
    pub write: bool,
    /// Directory or device to look into (may be repeated; default: the places under /dev)
    #[arg(short = 'd', long = "device", value_name = "DIR|DEVICE")]
    pub search: Vec<PathBuf>,
    /// Directory below which everything is mounted (default: ./POOL.mnt)
    #[arg(short = 'R', long = "mount-at", visible_alias = "altroot", value_name = "DIR")]
    pub mount_at: Option<PathBuf>,
    /// Mount each filesystem in a directory of its own, whatever its mountpoint (always so without root)
    #[arg(long)]
    pub flat: bool,
    /// Mount nothing
    #[arg(short = 'N', long)]
    pub no_mount: bool,
    /// Open the pool even if another host seems to use it
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Open the pool even if log devices are missing or cannot be read
    #[arg(short = 'm', long)]
    pub missing_log: bool,
    /// Go back to an earlier state if the newest does not load
    #[arg(short = 'F', long)]
    pub rewind: bool,
    /// Go back to this transaction group
    #[arg(short = 'T', long, value_name = "TXG")]
    pub txg: Option<u64>,
    /// Open the pool as it was at its checkpoint
    #[arg(long)]
    pub rewind_to_checkpoint: bool,
    /// Open a destroyed pool too
    #[arg(short = 'D', long)]
    pub destroyed: bool,
    /// Read a key from a file instead of asking for it (may be repeated)
    #[arg(short = 'k', long = "key", value_name = "DATASET=FILE", value_parser = parse_key_file)]
    pub key_files: Vec<(String, PathBuf)>,
    /// How much memory it takes.
    #[command(flatten)]
    pub memory: MemoryArguments,
    /// How volumes are served over TCP.
    #[command(flatten)]
    pub tcp: TcpArguments,
    /// Print filesystems and volumes as one JSON object
    #[arg(short = 'j', long)]
    pub json: bool,
}

fn parse_key_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((dataset, file)) if !dataset.is_empty() && !file.is_empty() => {
            Ok((dataset.to_owned(), file.into()))
        }
        _ => Err("expected DATASET=FILE".to_owned()),
    }
}

/// The running pool.
#[derive(Serialize)]
struct Up {
    pool: String,
    guid: u64,
    txg: u64,
    readonly: bool,
    mounts: Vec<Mounted>,
    volumes: Vec<ServedVolume>,
    socket: PathBuf,
    warnings: Vec<String>,
}

impl Up {
    fn show(&self, as_json: bool) {
        // There may be no reader, and the pool is up all the same.
        let _ = if as_json { show::print_json(self) } else { show::print_text(self) };
    }
}

/// Brings a pool up, waits, and takes it down.
pub fn run(arguments: &UpArguments) -> Result<()> {
    server::descriptors::raise_limit();
    let daemon = Arc::new(arguments.memory.daemon());
    daemon.start_agents().context("cannot start the thread that acts on events")?;
    if arguments.pool.is_none() && arguments.search.is_empty() {
        return default_pool::run(&daemon, arguments);
    }
    let (pool, name) = find(&daemon, arguments)?;
    let mut warnings = Vec::new();
    let no_mount = arguments.no_mount || {
        let missing = fuse_missing();
        warnings.extend(
            missing.as_ref().map(|why| format!("{why}: filesystems are not mounted, only volumes served")),
        );
        missing.is_some()
    };
    let imported = daemon.ask(&import_request(arguments, &pool, &name)?);
    let imported = imported.map_err(|error| match error.kind {
        ErrorKind::Busy if !arguments.force => anyhow!("{error} (-f does that)"),
        ErrorKind::NotFound => anyhow!("{error}; {}", what_is_there(&daemon, arguments)),
        _ => error.into(),
    })?;
    let Some(opened) = imported.pools.into_iter().next() else { bail!("cannot import '{name}'") };
    warnings.extend(opened.warnings);
    for (dataset, file) in &arguments.key_files {
        let key = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let load = LoadKey { dataset: dataset.clone(), key: Some(key.into()), ..LoadKey::default() };
        warnings.extend(daemon.ask(&load)?.warnings);
    }
    warnings.extend(load_keys(&daemon, &opened.name)?);

    let directory = PrivateDirectory::make(&opened.name)?;
    let socket = directory.0.join("api.sock");
    let host = Host::start(&daemon, &socket, &arguments.tcp)?;
    warnings.extend(daemon.waiting_listeners());
    if !no_mount && (arguments.flat || !is_root()) {
        let directory = mount_directory(arguments, &name)?;
        warnings.extend(mount_flat(&daemon, &opened.name, &directory)?);
    } else if !no_mount {
        let mount = Mount { pool: Some(opened.name.clone()), ..Mount::default() };
        let changed = daemon.ask(&mount)?;
        // Of keys that are not loaded the hints tell already.
        warnings.extend(changed.failed.into_iter().map(|error| error.message));
    }
    let up = Up {
        pool: opened.name,
        guid: opened.guid,
        txg: opened.txg,
        readonly: !arguments.write,
        mounts: daemon.list_mounts(ListMounts {})?,
        volumes: daemon.list_volumes(ListVolumes {})?,
        socket,
        warnings,
    };
    up.show(arguments.json);
    host.wait(&daemon)
}

/// The names of the pool: the given one, and its own.
fn find(daemon: &Arc<Daemon>, arguments: &UpArguments) -> Result<(String, String)> {
    if let Some(pool) = &arguments.pool {
        return Ok((pool.clone(), pool.clone()));
    }
    let found = daemon.ask(&discovery(arguments))?;
    match found.as_slice() {
        [only] => Ok((only.guid.to_string(), only.name.clone())),
        [] => bail!("no pool was found; say where to look with -d DIR"),
        several => {
            let names: Vec<String> =
                several.iter().map(|pool| format!("  {} ({})", pool.name, pool.guid)).collect();
            bail!("several pools were found; say which, by name or guid:\n{}", names.join("\n"))
        }
    }
}

fn discovery(arguments: &UpArguments) -> DiscoverPools {
    DiscoverPools {
        search: arguments.search.clone(),
        destroyed: arguments.destroyed,
        ..DiscoverPools::default()
    }
}

/// Names the pools that exist, for a user who named one that does not.
fn what_is_there(daemon: &Arc<Daemon>, arguments: &UpArguments) -> String {
    let found = daemon.ask(&discovery(arguments)).unwrap_or_default();
    let names: Vec<_> = found.iter().map(|pool| pool.name.as_str()).collect();
    match names.as_slice() {
        [] => "nor any other pool: -d names the directory of its disks or files, not one above it".into(),
        names => format!("there is {}", names.join(", ")),
    }
}

fn import_request(arguments: &UpArguments, pool: &str, name: &str) -> Result<ImportPool> {
    Ok(ImportPool {
        pool: Some(pool.to_owned()),
        search: arguments.search.clone(),
        destroyed: arguments.destroyed,
        force: arguments.force,
        rewind: (arguments.rewind || arguments.txg.is_some())
            .then(|| Rewind { txg: arguments.txg, ..Rewind::default() }),
        rewind_to_checkpoint: arguments.rewind_to_checkpoint,
        missing_log: arguments.missing_log,
        no_mount: true,
        altroot: Some(mount_directory(arguments, name)?),
        properties: if arguments.write { Vec::new() } else { vec![("readonly".into(), "on".into())] },
        ..ImportPool::default()
    })
}

/// Below which directory everything is mounted.
fn mount_directory(arguments: &UpArguments, name: &str) -> Result<PathBuf> {
    let directory = match &arguments.mount_at {
        Some(path) => path.clone(),
        None => format!("{name}.mnt").into(),
    };
    std::path::absolute(directory).context("cannot find out where to mount")
}

/// Mounts every filesystem that may be mounted in a directory of its own: `pool`, `pool+home`,
/// `pool+home+anna`.
fn mount_flat(daemon: &Arc<Daemon>, pool: &str, directory: &Path) -> Result<Vec<String>> {
    let list = ListDatasets {
        names: vec![pool.to_owned()],
        depth: None,
        kinds: vec![DatasetKind::Filesystem],
        properties: ["canmount", "keystatus"].map(str::to_owned).to_vec(),
        ..ListDatasets::default()
    };
    let listed = daemon.ask(&list)?;
    let mut warnings: Vec<String> = listed.failed.into_iter().map(|error| error.message).collect();
    for filesystem in listed.entries {
        let is = |property, value| {
            filesystem.property(property).and_then(|told| told.parsable.as_deref()) == Some(value)
        };
        if is("canmount", "off") || is("keystatus", "unavailable") {
            continue;
        }
        let at = directory.join(filesystem.name.replace('/', "+"));
        let mount = Mount { dataset: Some(filesystem.name), at: Some(at), ..Mount::default() };
        if let Err(error) = daemon.ask(&mount) {
            warnings.push(error.message);
        }
    }
    Ok(warnings)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Why filesystems cannot be mounted at all.
fn fuse_missing() -> Option<String> {
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/fuse") {
        return Some(format!("FUSE is not available (/dev/fuse: {error})"));
    }
    let in_path = || {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join("fusermount3").is_file())
    };
    (!is_root() && !in_path()).then(|| "without root, mounting needs fusermount3 (package fuse3)".to_owned())
}

/// Loads the keys that lie where the pool says, and asks for the others. Hints for those that stay unloaded.
fn load_keys(daemon: &Arc<Daemon>, pool: &str) -> Result<Vec<String>> {
    let roots = daemon.ask(&ListKeys { dataset: Some(pool.to_owned()), recursive: true })?;
    let mut hints = Vec::new();
    let with_terminal = std::io::stdin().is_terminal();
    for root in roots.into_iter().filter(|root| !root.loaded) {
        let name = &root.dataset;
        let mut why = String::new();
        if root.location != "prompt" {
            match daemon.ask(&LoadKey { dataset: name.clone(), ..LoadKey::default() }) {
                Ok(_) => continue,
                Err(error) => why = format!(" ({})", error.message),
            }
        }
        let hint = format!(
            "the key of '{name}' is not loaded{why}, so datasets encrypted with it are not shown; give it \
             with -k {name}=FILE, or later with 'cenote zfs load-key {name}'"
        );
        if root.format == "raw" || !with_terminal {
            hints.push(hint);
            continue;
        }
        let mut loaded = false;
        for _ in 0..PASSPHRASE_TRIES {
            let question = format!("Enter {} for '{name}' (empty to skip): ", root.format);
            let Ok(key) = prompt::secret(&question) else { break };
            if key.bytes().is_empty() {
                break;
            }
            let load = LoadKey { dataset: name.clone(), key: Some(key), ..LoadKey::default() };
            match daemon.ask(&load) {
                Ok(_) => {
                    loaded = true;
                    break;
                }
                Err(error) => eprintln!("{error}"),
            }
        }
        if !loaded {
            hints.push(hint);
        }
    }
    Ok(hints)
}

/// A directory for sockets, of this user alone, removed when dropped.
struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    fn make(pool: &str) -> Result<Self> {
        let base = match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(path) if Path::new(&path).is_dir() => path.into(),
            _ => std::env::temp_dir(),
        };
        let path = base.join(format!("cenote-{pool}-{}", std::process::id()));
        // Must not exist yet: another user might own it.
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
