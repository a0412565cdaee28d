//! `cenote extract`: files, filesystems and volumes out of an exported pool.
//!
//! What cannot be read is reported with its file and offset, and left as a hole; all the rest is extracted.
//! Directories get their modes and times after their content. A file with several names is written once and
//! linked.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use engine::dsl::{Dsl, Kind, Walk};
use engine::zpl::{DirCursor, Stat, Znode, Zpl};
use engine::zvol::Zvol;
use indicatif::{ProgressBar, ProgressStyle};
use ondisk::ObjectId;
use ondisk::zpl::FileType;

use super::sink::{Dir, write_sparse};
use super::target::{Content, Target, find, open_dataset};
use crate::exported::PoolPlace;
use crate::output::in_words;

/// Bytes of one read.
const PIECE_BYTES: u64 = 1 << 20;
/// After a failed read, what follows is read in steps of this size, to save all that can be read.
const RESCUE_BYTES: u64 = 4096;
/// Directories nested deeper than this are taken for a loop; each level holds a descriptor open.
const MAX_DEPTH: usize = 900;
/// Suffix of a volume's image when children are extracted.
const IMAGE_SUFFIX: &str = ".raw";

/// Arguments of `cenote extract`.
#[derive(Debug, clap::Args)]
pub struct ExtractArguments {
    #[command(flatten)]
    place: PoolPlace,
    /// Also the child filesystems and volumes (a volume becomes NAME.raw)
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Leave out extended attributes and ACLs
    #[arg(long)]
    no_xattrs: bool,
    /// Do not show progress
    #[arg(short = 'q', long)]
    quiet: bool,
    /// What to extract: POOL/FS[@SNAPSHOT][:/PATH]
    target: Target,
    /// Where to: a directory (made if it does not exist), or a new file for a single file or volume
    destination: PathBuf,
}

/// Extracts it.
pub fn run(arguments: &ExtractArguments) -> Result<()> {
    device::block_on(async {
        let target = &arguments.target;
        ensure!(
            !arguments.recursive || target.path.is_empty() && !target.dataset.contains('@'),
            "--recursive is for whole filesystems, not for '{target}'"
        );
        let (dsl, content, not_shown) = target.open(&arguments.place).await?;
        let mut extractor = Extractor::new(arguments, &dsl, &target.dataset).await?;
        match content {
            Content::Volume(volume) => {
                ensure!(target.path.is_empty(), "'{}' is a volume; it has no files", target.dataset);
                let name = target.dataset.rsplit('/').next().unwrap_or_default();
                let (dir, name) = single(&arguments.destination, name)?;
                extractor.volume(&volume, &dir, &name, &target.dataset).await;
            }
            Content::Filesystem(zpl) => {
                let node = find(&zpl, &target.path).await?;
                if node.file_type() == FileType::Directory {
                    let root = destination_directory(&arguments.destination)?;
                    extractor.tree(&zpl, node, root, &target.dataset).await;
                } else {
                    let name = target.path.rsplit('/').next().unwrap_or_default();
                    let (dir, name) = single(&arguments.destination, name)?;
                    extractor.file(&node, &dir, &name, &target.to_string()).await;
                }
            }
        }
        if arguments.recursive {
            extractor.children(&dsl).await?;
        }
        let is_wanted = |name: &&String| {
            let below = name.strip_prefix(&target.dataset).filter(|_| arguments.recursive);
            **name == target.dataset || below.is_some_and(|rest| rest.starts_with('/'))
        };
        // Told when the pool was opened.
        extractor.failures += not_shown.iter().filter(is_wanted).count() as u64;
        extractor.finish()
    })
}

/// The destination of a whole tree: new, or an empty directory.
fn destination_directory(path: &Path) -> Result<Dir> {
    let shown = path.display();
    match std::fs::read_dir(path) {
        Ok(mut entries) => ensure!(entries.next().is_none(), "{shown} is not empty; name a new directory"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir(path).with_context(|| format!("cannot make {shown}"))?;
        }
        Err(error) => return Err(error).with_context(|| format!("cannot use {shown}")),
    }
    Dir::open(path).with_context(|| format!("cannot open {shown}"))
}

/// The destination of a single file: in a directory that exists, under its own name, or a new name.
fn single(path: &Path, name: &str) -> Result<(Dir, Vec<u8>)> {
    use std::os::unix::ffi::OsStrExt;
    let (dir, name) = if path.is_dir() {
        (path, name.as_bytes().to_vec())
    } else {
        let name = path.file_name().with_context(|| format!("{} names no file", path.display()))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        (parent, name.as_bytes().to_vec())
    };
    Ok((Dir::open(dir).with_context(|| format!("cannot open {}", dir.display()))?, name))
}

struct Extractor<'a> {
    arguments: &'a ExtractArguments,
    progress: ProgressBar,
    owner: bool,
    files: u64,
    failures: u64,
    buffer: Vec<u8>,
}

/// A directory whose content is being extracted.
struct Open {
    node: Znode,
    cursor: DirCursor,
    dir: Dir,
    /// What messages call it.
    path: String,
    /// Its place below the tree's root, with a slash at the end; empty for the root.
    below: Vec<u8>,
}

impl<'a> Extractor<'a> {
    async fn new(arguments: &'a ExtractArguments, dsl: &Dsl, dataset: &str) -> Result<Self> {
        let progress = match arguments.quiet {
            true => ProgressBar::hidden(),
            false => ProgressBar::new(dsl.find(dataset).await?.phys.uncompressed_bytes),
        };
        let style = "{bar:30} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left  {wide_msg}";
        progress.set_style(ProgressStyle::with_template(style)?);
        let owner = rustix::process::geteuid().is_root();
        Ok(Self { arguments, progress, owner, files: 0, failures: 0, buffer: vec![0; PIECE_BYTES as usize] })
    }

    fn failed(&mut self, what: &str, why: impl std::fmt::Display) {
        self.failures += 1;
        self.progress.suspend(|| eprintln!("cenote: {what}: {why}"));
    }

    /// A directory with all below it, into `dir`.
    async fn tree(&mut self, zpl: &Arc<Zpl>, node: Znode, dir: Dir, path: &str) {
        // Where the first name of a file with several names is, below the tree's root.
        let mut links: HashMap<ObjectId, Vec<u8>> = HashMap::new();
        let root = match dir.again() {
            Ok(root) => root,
            Err(error) => return self.failed(path, error),
        };
        let mut stack = Vec::new();
        match node.read_dir(0).await {
            Ok(cursor) => stack.push(Open { node, cursor, dir, path: format!("{path}:"), below: Vec::new() }),
            Err(error) => return self.failed(path, error),
        }
        loop {
            let depth = stack.len();
            let Some(open) = stack.last_mut() else { break };
            let entry = match open.cursor.next().await {
                Ok(Some(entry)) => entry,
                ended => {
                    let Some(done) = stack.pop() else { break };
                    if let Err(error) = ended {
                        self.failed(&done.path, format!("cannot list: {error}"));
                    }
                    self.close(done).await;
                    continue;
                }
            };
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let path = format!("{}/{}", open.path, entry.name.escape_ascii());
            let node = match zpl.node(entry.object).await {
                Ok(node) => node,
                Err(error) => {
                    self.failed(&path, error);
                    continue;
                }
            };
            if node.file_type() == FileType::Directory {
                if depth >= MAX_DEPTH {
                    self.failed(&path, format!("nested deeper than {MAX_DEPTH}"));
                    continue;
                }
                let made = open.dir.make_dir(&entry.name);
                let below = [&open.below, &entry.name[..], b"/"].concat();
                match (made, node.read_dir(0).await) {
                    (Ok(dir), Ok(cursor)) => stack.push(Open { node, cursor, dir, path, below }),
                    (Err(error), _) => self.failed(&path, error),
                    (_, Err(error)) => self.failed(&path, error),
                }
                continue;
            }
            if let Some(first) = links.get(&entry.object) {
                if let Err(error) = open.dir.make_hard_link(&entry.name, &root, first) {
                    self.failed(&path, format!("cannot link: {error}"));
                }
                continue;
            }
            let made = self.file(&node, &open.dir, &entry.name, &path).await;
            if made && node.stat().is_ok_and(|stat| stat.nlink > 1) {
                links.insert(entry.object, [&open.below[..], &entry.name].concat());
            }
        }
    }

    /// The last strokes on a directory.
    async fn close(&mut self, open: Open) {
        self.xattrs(&open.node, &open.dir, None, &open.path).await;
        let finished = match open.node.stat() {
            Ok(stat) => open.dir.finish_self(&stat, self.owner).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = finished {
            self.failed(&open.path, error);
        }
    }

    /// One file that is no directory. False when it could not be made at all.
    async fn file(&mut self, node: &Znode, dir: &Dir, name: &[u8], path: &str) -> bool {
        self.progress.set_message(path.to_owned());
        let stat = match node.stat() {
            Ok(stat) => stat,
            Err(error) => {
                self.failed(path, error);
                return false;
            }
        };
        let kind = node.file_type();
        if let Err(error) = self.make(node, &stat, kind, dir, name, path).await {
            self.failed(path, in_words(&error));
            return false;
        }
        self.files += 1;
        self.xattrs(node, dir, Some(name), path).await;
        if let Err(error) = dir.finish(name, &stat, kind, self.owner) {
            self.failed(path, error);
        }
        true
    }

    async fn make(
        &mut self,
        node: &Znode,
        stat: &Stat,
        kind: FileType,
        dir: &Dir,
        name: &[u8],
        path: &str,
    ) -> Result<()> {
        match kind {
            FileType::Symlink => dir.make_link(name, &node.read_link().await?)?,
            FileType::CharDevice | FileType::BlockDevice | FileType::Fifo | FileType::Socket => {
                dir.make_node(name, kind, stat.device)?;
            }
            _ => {
                let out = dir.make_file(name)?;
                out.set_len(node.size())?;
                let source = node.open_file();
                let mut at = 0;
                while at < node.size() {
                    let span = node.span(at).await?;
                    let end = span.end.max(at + 1).min(node.size());
                    if !span.is_hole {
                        let read =
                            async |offset, into: &mut [u8]| source.read_at(offset, into).await.map(drop);
                        self.copy(&out, at, end, path, read).await?;
                    }
                    at = end;
                }
            }
        }
        Ok(())
    }

    /// A volume as an image.
    async fn volume(&mut self, volume: &Arc<Zvol>, dir: &Dir, name: &[u8], dataset: &str) {
        self.progress.set_message(dataset.to_owned());
        if let Err(error) = self.image(volume, dir, name, dataset).await {
            self.failed(dataset, in_words(&error));
        }
        self.files += 1;
    }

    async fn image(&mut self, volume: &Arc<Zvol>, dir: &Dir, name: &[u8], dataset: &str) -> Result<()> {
        let out = dir.make_file(name)?;
        out.set_len(volume.size())?;
        let mut at = 0;
        while at < volume.size() {
            let extents = volume.extents(at, (volume.size() - at).min(64 * PIECE_BYTES), 64).await?;
            for extent in extents {
                if !extent.is_hole {
                    let read = async |offset, into: &mut [u8]| volume.read_at(offset, into).await;
                    self.copy(&out, at, at + extent.length, dataset, read).await?;
                }
                at += extent.length;
            }
        }
        Ok(())
    }

    /// Copies a run of data. What cannot be read is reported and stays a hole; an error is one of writing.
    async fn copy(
        &mut self,
        out: &File,
        start: u64,
        end: u64,
        path: &str,
        read: impl AsyncFn(u64, &mut [u8]) -> engine::Result<()>,
    ) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut at = start;
        let mut lost: Option<(u64, u64, engine::Error)> = None;
        let mut rescue_until = start;
        while at < end {
            let step = if at < rescue_until { RESCUE_BYTES } else { PIECE_BYTES };
            let length = step.min(end - at);
            let piece = &mut buffer[..length as usize];
            match read(at, piece).await {
                Ok(()) => {
                    write_sparse(out, at, piece).context("cannot write")?;
                    at += length;
                }
                Err(_) if length > RESCUE_BYTES => {
                    rescue_until = at + length;
                    continue;
                }
                Err(error) => {
                    let (_, bytes, _) = lost.get_or_insert((at, 0, error));
                    *bytes += length;
                    at += length;
                }
            }
            self.progress.inc(length);
        }
        self.buffer = buffer;
        if let Some((first, bytes, error)) = lost {
            self.failed(path, format!("{bytes} bytes lost from offset {first} on: {error}"));
        }
        Ok(())
    }

    async fn xattrs(&mut self, node: &Znode, dir: &Dir, name: Option<&[u8]>, path: &str) {
        if self.arguments.no_xattrs {
            return;
        }
        let names = match node.list_xattrs().await {
            Ok(names) => names,
            Err(error) => return self.failed(path, format!("cannot list the extended attributes: {error}")),
        };
        for attribute in names {
            let shown = attribute.escape_ascii().to_string();
            match node.xattr(&attribute).await {
                Ok(Some(value)) => {
                    if let Err(error) = dir.set_xattr(name, &attribute, &value) {
                        self.failed(path, format!("cannot set the extended attribute '{shown}': {error}"));
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    self.failed(path, format!("cannot read the extended attribute '{shown}': {error}"))
                }
            }
        }
    }

    /// The datasets below the one that was named.
    async fn children(&mut self, dsl: &Arc<Dsl>) -> Result<()> {
        let top = &self.arguments.target.dataset;
        for entry in dsl.list(Some(top), Walk::HEADS).await? {
            let Some(below) =
                entry.name().strip_prefix(top.as_str()).and_then(|below| below.strip_prefix('/'))
            else {
                continue;
            };
            let Some(dataset) = entry.dataset() else { continue };
            if let Err(error) = self.child(dsl, dataset, below, entry.kind).await {
                self.failed(entry.name(), in_words(&error));
            }
        }
        Ok(())
    }

    async fn child(
        &mut self,
        dsl: &Arc<Dsl>,
        dataset: &engine::dsl::Dataset,
        below: &str,
        kind: Kind,
    ) -> Result<()> {
        let mut dir = Dir::open(&self.arguments.destination)?;
        let mut names: Vec<&str> = below.split('/').collect();
        let last = names.pop().unwrap_or_default();
        for name in names {
            dir = dir.enter_or_make(name.as_bytes())?;
        }
        self.progress.inc_length(dataset.phys.uncompressed_bytes);
        match open_dataset(&self.arguments.place, dsl, dataset).await? {
            Content::Volume(volume) => {
                debug_assert_eq!(kind, Kind::Volume);
                let name = format!("{last}{IMAGE_SUFFIX}");
                self.volume(&volume, &dir, name.as_bytes(), &dataset.name).await;
            }
            Content::Filesystem(zpl) => {
                let root = zpl.node(zpl.root()).await?;
                let dir = dir.enter_or_make(last.as_bytes())?;
                self.tree(&zpl, root, dir, &dataset.name).await;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        self.progress.finish_and_clear();
        if !self.arguments.quiet {
            eprintln!("{} files extracted to {}", self.files, self.arguments.destination.display());
        }
        match self.failures {
            0 => Ok(()),
            1 => bail!("one failure, reported above; all else was extracted"),
            failures => bail!("{failures} failures, reported above; all else was extracted"),
        }
    }
}
