//! Finds the golden pools and unpacks each tarball once.
//!
//! The tarballs (`NAME.tar.zst`: the vdevs `d0, d1, …` and `expect/`) lie in the directories that
//! `$CENOTE_GOLDEN` names (with colons between them), or else beside the checkout in `../shared/golden` (made
//! by OpenZFS 2.3) and `../shared/golden24` (by 2.4). These directories may also hold pools that are already
//! unpacked; those are used where they lie.
//!
//! Many test processes run at once, so that unpacking is guarded by a lock file for each pool and ends in a
//! rename: a directory that has its final name is complete. What was unpacked is shared by all tests and must
//! not be changed, which its file modes say too; a test that wants to write takes a
//! [`GoldenPool::private_copy`].

#![allow(unsafe_code, reason = "`flock` and `geteuid`")]

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::manifest::Manifest;

/// One unpacked golden pool.
#[derive(Clone, Debug)]
pub struct GoldenPool {
    /// Name of the pool.
    pub name: String,
    /// Directory that holds the vdevs.
    pub dir: PathBuf,
}

/// Whether a property came with OpenZFS 2.4, so that pools recorded by 2.3 have no row for it on such
/// datasets.
pub fn is_new_in_2_4(property: &str, of_volume: bool) -> bool {
    let is_new_feature = ["dynamic_gang_header", "block_cloning_endian", "physical_rewrite"]
        .contains(&property.strip_prefix("feature@").unwrap_or_default());
    let is_default_quota = property.starts_with("default") && property.ends_with("quota");
    is_new_feature || is_default_quota || (of_volume && property == "special_small_blocks")
}

/// The golden pool `name`, or `None` when `$CENOTE_SKIP` lists `golden`.
///
/// A test that cannot find its pool must not pass silently, hence the panic.
///
/// # Panics
/// When the pool cannot be found or unpacked; the message says what to set.
pub fn pool(name: &str) -> Option<GoldenPool> {
    if crate::skipped("golden", &format!("golden pool {name}")) {
        return None;
    }
    match GoldenPool::open(name) {
        Ok(pool) => Some(pool),
        Err(error) => panic!(
            "golden pool {name}: {error:#}\nSet CENOTE_GOLDEN to the directories of the golden tarballs, \
             or CENOTE_SKIP=golden to leave such tests out."
        ),
    }
}

/// The directories of the golden tarballs.
fn source_dirs() -> Vec<PathBuf> {
    match std::env::var_os("CENOTE_GOLDEN") {
        Some(dirs) => std::env::split_paths(&dirs).collect(),
        None => {
            let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
            vec![shared.join("golden"), shared.join("golden24")]
        }
    }
}

/// Names of all golden pools that can be found, in order.
pub fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for dir in source_dirs() {
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let entry = entry?;
            let file = entry.file_name().to_string_lossy().into_owned();
            if let Some(name) = file.strip_suffix(".tar.zst") {
                names.push(name.to_owned());
            } else if entry.path().join("expect").is_dir() {
                names.push(file);
            }
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

impl GoldenPool {
    /// Finds the pool `name` and unpacks it if this machine has not yet.
    pub fn open(name: &str) -> Result<Self> {
        ensure!(!name.is_empty() && !name.contains(['/', '.']), "not a pool's name: {name:?}");
        let sources = source_dirs();
        let ready =
            sources.iter().map(|source| source.join(name)).find(|ready| ready.join("expect").is_dir());
        if let Some(dir) = ready {
            return Ok(Self { name: name.to_owned(), dir });
        }
        let mut tarballs = sources.iter().map(|source| source.join(format!("{name}.tar.zst")));
        let tarball = tarballs.find(|tarball| tarball.is_file());
        let tarball = tarball.with_context(|| format!("there is no {name}.tar.zst in {sources:?}"))?;
        let dir = unpack(&tarball, name)?;
        Ok(Self { name: name.to_owned(), dir })
    }

    /// Whether the pool has features of OpenZFS 2.4, so that the tools of 2.3 cannot judge it.
    pub fn is_of_2_4(&self) -> bool {
        self.expect_text("pool.tsv").is_ok_and(|text| text.contains("feature@dynamic_gang_header"))
    }

    /// Paths of the vdevs `d0, d1, …`, in order.
    pub fn disks(&self) -> Vec<PathBuf> {
        (0..).map(|n| self.dir.join(format!("d{n}"))).take_while(|path| path.exists()).collect()
    }

    /// Path of a file in `expect/`.
    pub fn expect(&self, file: &str) -> PathBuf {
        self.dir.join("expect").join(file)
    }

    /// Text of a file in `expect/`.
    pub fn expect_text(&self, file: &str) -> Result<String> {
        let path = self.expect(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Names of the filesystems and snapshots that have a manifest, in order.
    pub fn filesystems(&self) -> Result<Vec<String>> {
        self.recorded(".jsonl")
    }

    /// Names of the volumes whose checksum is recorded, in order.
    pub fn volumes(&self) -> Result<Vec<String>> {
        self.recorded(".sha256")
    }

    fn recorded(&self, suffix: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.dir.join("expect"))? {
            let file = entry?.file_name().to_string_lossy().into_owned();
            if let Some(name) = file.strip_suffix(suffix) {
                names.push(name.replace('+', "/"));
            }
        }
        names.sort();
        Ok(names)
    }

    /// The manifest of the filesystem or snapshot `dataset`, without the rows that belong to child
    /// filesystems mounted in it.
    pub fn manifest(&self, dataset: &str) -> Result<Manifest> {
        let mut manifest = Manifest::load(&self.expect(&format!("{}.jsonl", dataset.replace('/', "+"))))?;
        let below = format!("{dataset}/");
        for name in self.filesystems()? {
            if let Some(child) = name.strip_prefix(&below).filter(|child| !child.contains('@')) {
                manifest.rows.remove(child.as_bytes());
                manifest.mountpoints.insert(child.as_bytes().to_vec());
            }
        }
        Ok(manifest)
    }

    /// Hexadecimal sha256 of the whole volume `dataset`.
    pub fn volume_sha256(&self, dataset: &str) -> Result<String> {
        let text = self.expect_text(&format!("{}.sha256", dataset.replace('/', "+")))?;
        text.split_whitespace().next().map(str::to_owned).context("empty checksum file")
    }

    /// Copies the vdevs into `to`, where the test may change them.
    pub fn private_copy(&self, to: &Path) -> Result<Vec<PathBuf>> {
        let mut copies = Vec::new();
        for disk in self.disks() {
            let copy = to.join(disk.file_name().context("vdev without a name")?);
            run(Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(&disk).arg(&copy))?;
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
            copies.push(copy);
        }
        Ok(copies)
    }
}

/// Where unpacked pools are kept: one directory a user, private to them.
fn unpack_root() -> Result<PathBuf> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let uid = unsafe { libc::geteuid() };
    let root = std::env::temp_dir().join(format!("cenote-golden-{uid}"));
    match fs::DirBuilder::new().mode(0o700).create(&root) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).with_context(|| format!("cannot create {}", root.display())),
    }
    let meta = fs::symlink_metadata(&root)?;
    ensure!(meta.is_dir() && meta.uid() == uid, "{} belongs to another user", root.display());
    Ok(root)
}

fn unpack(tarball: &Path, name: &str) -> Result<PathBuf> {
    let meta = fs::metadata(tarball).with_context(|| format!("cannot find {}", tarball.display()))?;
    // Another edition of the tarball is another directory.
    let root = unpack_root()?;
    let edition = root.join(format!("{name}-{:x}-{:x}", meta.len(), meta.mtime()));
    let dir = edition.join(name);
    let lock = File::create(root.join(format!("{name}.lock")))?;
    // SAFETY: the descriptor is open for as long as `lock` lives.
    if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) } != 0 {
        bail!("cannot lock {name}: {}", std::io::Error::last_os_error());
    }
    if dir.join("expect").is_dir() {
        return Ok(dir);
    }
    let partial = root.join(format!("{name}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir(&partial)?;
    let mut zstd =
        Command::new("zstd").args(["-dcq", "--long=27"]).arg(tarball).stdout(Stdio::piped()).spawn()?;
    let stdout = zstd.stdout.take().context("no pipe from zstd")?;
    let untar = run(Command::new("tar").args(["-x", "--no-same-owner", "-C"]).arg(&partial).stdin(stdout));
    let unzip = zstd.wait()?;
    untar?;
    ensure!(unzip.success(), "zstd could not unpack {}", tarball.display());
    for entry in fs::read_dir(partial.join(name))? {
        let path = entry?.path();
        if path.is_file() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o444))?;
        }
    }
    fs::rename(&partial, &edition)?;
    Ok(dir)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}
