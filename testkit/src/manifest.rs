//! The manifests of the golden pools, and the judge that compares a tree of files with one.
//!
//! A manifest has one JSON object a path. What it states is what a right reader sees through `lstat`,
//! `readlink`, `read` and `getxattr`; whatever it states must be equal, and a path, or an xattr, that it does
//! not state must not be there. The reader under test is a [`Tree`]; [`HostTree`] is one that looks at a
//! mounted filesystem.

#![allow(unsafe_code, reason = "system calls on extended attributes")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// The expected state of one path.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// Path below the root; `.` is the root itself.
    pub path: String,
    /// File type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of links.
    pub nlink: u64,
    /// Size in bytes; absent for directories.
    pub size: Option<u64>,
    /// Time of last modification, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Inode number.
    pub ino: u64,
    /// Major and minor number of a device.
    pub rdev: Option<(u32, u32)>,
    /// The target of a symbolic link.
    pub target: Option<String>,
    /// Where content was read, as (offset, length); absent when all of it was.
    pub ranges: Option<Vec<(u64, u64)>>,
    /// Hexadecimal sha256 of the content.
    pub sha256: Option<String>,
    /// Hexadecimal sha256 of each extended attribute's value.
    #[serde(default)]
    pub xattrs: BTreeMap<String, String>,
}

/// The expected state of one filesystem.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// Rows by path.
    pub rows: BTreeMap<Vec<u8>, Row>,
    /// Paths on which another filesystem may be mounted: neither judged nor entered.
    pub mountpoints: BTreeSet<Vec<u8>>,
}

/// The facts of a [`Tree`] about one of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// File type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of links.
    pub nlink: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of last modification, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Inode number.
    pub ino: u64,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
}

/// A tree of files under test.
pub trait Tree {
    /// A file of the tree.
    type Node;
    /// The root directory.
    fn root(&self) -> Result<Self::Node>;
    /// The entries of a directory, without `.` and `..`.
    fn list(&self, dir: &Self::Node) -> Result<Vec<(Vec<u8>, Self::Node)>>;
    /// The result of `lstat`.
    fn stat(&self, node: &Self::Node) -> Result<Stat>;
    /// The target of a symbolic link.
    fn read_link(&self, node: &Self::Node) -> Result<Vec<u8>>;
    /// Reads at `offset` until `into` is full or the file ends; tells how much was read.
    fn read(&self, node: &Self::Node, offset: u64, into: &mut [u8]) -> Result<usize>;
    /// All extended attributes.
    fn xattrs(&self, node: &Self::Node) -> Result<BTreeMap<Vec<u8>, Vec<u8>>>;
}

const TYPE_MASK: u32 = libc::S_IFMT;
/// Reads are made in pieces of this size, which no record size divides, so that pieces straddle records.
const PIECE_BYTES: usize = 1_000_003;
/// A tree deeper than this is taken for a loop.
const MAX_DEPTH: usize = 64;

impl Manifest {
    /// Reads a manifest.
    pub fn load(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut manifest = Self::default();
        for line in BufReader::new(file).lines() {
            let row: Row = serde_json::from_str(&line?)?;
            manifest.rows.insert(row.path.clone().into_bytes(), row);
        }
        ensure!(!manifest.rows.is_empty(), "{} is empty", path.display());
        Ok(manifest)
    }

    /// All differences between the manifest and `tree`, in words; empty when the tree is right.
    pub fn differences<T: Tree>(&self, tree: &T) -> Vec<String> {
        let judged = self.judge(tree);
        judged.unreadable.into_values().chain(judged.wrong).chain(judged.missing.into_values()).collect()
    }

    /// As [`Manifest::differences`]. But where this is not root, what it may not read is not judged.
    pub fn differences_as_far_as_allowed<T: Tree>(&self, tree: &T) -> Vec<String> {
        let mut judged = self.judge(tree);
        // SAFETY: it has no preconditions and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            judged.forget_what_is_forbidden();
        }
        judged.unreadable.into_values().chain(judged.wrong).chain(judged.missing.into_values()).collect()
    }

    /// As [`Manifest::differences`], without what says itself that it cannot be read: what is left is wrong
    /// data. What lies below an unreadable directory is not missed.
    pub fn lies<T: Tree>(&self, tree: &T) -> Vec<String> {
        let Judged { unreadable, wrong, mut missing, .. } = self.judge(tree);
        missing.retain(|path, _| !unreadable.keys().any(|dir| is_above(dir, path)));
        wrong.into_iter().chain(missing.into_values()).collect()
    }

    fn judge<T: Tree>(&self, tree: &T) -> Judged {
        let mut judge = Judge { manifest: self, tree, seen: BTreeSet::new(), judged: Judged::default() };
        match tree.root() {
            Ok(root) => judge.visit(b".", &root, 0),
            Err(error) => judge.unreadable(b".", "root", &error),
        }
        let Judge { seen, mut judged, .. } = judge;
        for path in self.rows.keys().filter(|path| !seen.contains(*path)) {
            judged.missing.insert(path.clone(), format!("{}: missing", path.escape_ascii()));
        }
        judged
    }

    /// Checks that `tree` is what the manifest says.
    ///
    /// # Panics
    /// When it is not, with the first differences.
    pub fn assert_same<T: Tree>(&self, what: &str, tree: &T) {
        Self::assert_none(what, self.differences(tree));
    }

    /// As [`Manifest::assert_same`], for a test that also runs as another user than root: see
    /// [`Manifest::differences_as_far_as_allowed`].
    ///
    /// # Panics
    /// When it is not, with the first differences.
    pub fn assert_same_as_far_as_allowed<T: Tree>(&self, what: &str, tree: &T) {
        Self::assert_none(what, self.differences_as_far_as_allowed(tree));
    }

    fn assert_none(what: &str, found: Vec<String>) {
        let count = found.len();
        let first = found.into_iter().take(20).collect::<Vec<_>>().join("\n  ");
        assert!(count == 0, "{what}: {count} differences from the manifest\n  {first}");
    }
}

struct Judge<'a, T> {
    manifest: &'a Manifest,
    tree: &'a T,
    seen: BTreeSet<Vec<u8>>,
    judged: Judged,
}

/// A deviation from the manifest.
#[derive(Default)]
struct Judged {
    /// By path: what could not be read.
    unreadable: BTreeMap<Vec<u8>, String>,
    /// The value that was read.
    wrong: Vec<String>,
    /// By path: what was not found.
    missing: BTreeMap<Vec<u8>, String>,
    /// Paths of what the system did not allow to read.
    forbidden: BTreeSet<Vec<u8>>,
    /// Extended attributes that only root sees, and that were not found.
    secret: Vec<String>,
}

impl Judged {
    /// What another user than root may not see is not a fault.
    fn forget_what_is_forbidden(&mut self) {
        let Self { unreadable, wrong, missing, forbidden, secret } = self;
        unreadable.retain(|path, _| !forbidden.contains(path));
        missing.retain(|path, _| !forbidden.iter().any(|dir| is_above(dir, path)));
        wrong.retain(|difference| !secret.contains(difference));
    }
}

fn is_above(dir: &[u8], path: &[u8]) -> bool {
    dir == b"." || path.strip_prefix(dir).is_some_and(|rest| rest.starts_with(b"/"))
}

impl<T: Tree> Judge<'_, T> {
    fn unreadable(&mut self, path: &[u8], what: &str, error: &anyhow::Error) {
        let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
        if causes.any(|cause| cause.kind() == std::io::ErrorKind::PermissionDenied) {
            self.judged.forbidden.insert(path.to_vec());
        }
        self.judged.unreadable.entry(path.to_vec()).or_insert_with(|| format!("{what}: {error:#}"));
    }

    fn visit(&mut self, path: &[u8], node: &T::Node, depth: usize) {
        let shown = path.escape_ascii().to_string();
        if self.manifest.mountpoints.contains(path) {
            return;
        }
        match self.manifest.rows.get(path) {
            None => self.judged.wrong.push(format!("{shown}: not in the manifest")),
            Some(row) => {
                self.seen.insert(path.to_vec());
                if let Err(error) = self.compare(&shown, row, node) {
                    self.unreadable(path, &shown, &error);
                }
            }
        }
        let is_dir = self.tree.stat(node).is_ok_and(|stat| stat.mode & TYPE_MASK == libc::S_IFDIR);
        if !is_dir || depth >= MAX_DEPTH {
            return;
        }
        let entries = match self.tree.list(node) {
            Ok(entries) => entries,
            Err(error) => return self.unreadable(path, &format!("{shown}: cannot list"), &error),
        };
        for (name, child) in entries {
            let below = if path == b"." { name } else { [path, b"/", &name].concat() };
            self.visit(&below, &child, depth + 1);
        }
    }

    fn compare(&mut self, shown: &str, row: &Row, node: &T::Node) -> Result<()> {
        let stat = self.tree.stat(node)?;
        self.same(shown, "mode", format_args!("{:o}", row.mode), format_args!("{:o}", stat.mode));
        self.same(shown, "uid", row.uid, stat.uid);
        self.same(shown, "gid", row.gid, stat.gid);
        self.same(shown, "nlink", row.nlink, stat.nlink);
        self.same(shown, "mtime_ns", row.mtime_ns, stat.mtime_ns);
        if !is_in_snapshot(stat.ino, row.ino) {
            self.same(shown, "ino", row.ino, stat.ino);
        }
        if let Some(size) = row.size {
            self.same(shown, "size", size, stat.size);
        }
        if let Some((major, minor)) = row.rdev {
            self.same(
                shown,
                "rdev",
                format_args!("{major}:{minor}"),
                format_args!("{}:{}", stat.rdev.0, stat.rdev.1),
            );
        }
        if let Some(target) = &row.target {
            let found = self.tree.read_link(node)?;
            self.same(shown, "target", target.as_bytes().escape_ascii(), found.escape_ascii());
        }
        if let Some(expected) = &row.sha256 {
            let found = self.content_sha256(node, row, stat.size)?;
            self.same(shown, "sha256", expected, found);
        }
        let found = self.tree.xattrs(node).context("xattrs")?;
        for (name, expected) in &row.xattrs {
            match found.get(name.as_bytes()) {
                None => {
                    let missing = format!("{shown}: xattr {name} missing");
                    if name.starts_with("trusted.") {
                        self.judged.secret.push(missing.clone());
                    }
                    self.judged.wrong.push(missing);
                }
                Some(value) => self.same(shown, name, expected, hex_sha256(value)),
            }
        }
        for name in
            found.keys().filter(|name| !std::str::from_utf8(name).is_ok_and(|n| row.xattrs.contains_key(n)))
        {
            self.judged.wrong.push(format!("{shown}: xattr {} not in the manifest", name.escape_ascii()));
        }
        Ok(())
    }

    fn content_sha256(&self, node: &T::Node, row: &Row, size: u64) -> Result<String> {
        let whole = [(0, size)];
        let ranges = row.ranges.as_deref().unwrap_or(&whole);
        let mut hash = Sha256::new();
        let mut piece = vec![0u8; PIECE_BYTES];
        for &(start, length) in ranges {
            let end = start.checked_add(length).context("range beyond the end of numbers")?;
            let mut offset = start;
            while offset < end {
                let want = usize::try_from(end - offset)?.min(piece.len());
                let got = self.tree.read(node, offset, &mut piece[..want])?;
                if got == 0 {
                    break;
                }
                hash.update(&piece[..got]);
                offset += got as u64;
            }
        }
        Ok(hex(&hash.finalize()))
    }

    fn same(&mut self, path: &str, what: &str, expected: impl ToString, found: impl ToString) {
        let (expected, found) = (expected.to_string(), found.to_string());
        if expected != found {
            self.judged.wrong.push(format!("{path}: {what} is {found}, expected {expected}"));
        }
    }
}

/// Hexadecimal sha256 of `bytes`.
pub fn hex_sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Whether `ino` is what a mount shows of a file in one of its snapshots that has the number `recorded` in
/// OpenZFS: that number below those of the snapshot. The root of a snapshot has one of `.zfs/snapshot` there
/// (they go down from 2^48).
fn is_in_snapshot(ino: u64, recorded: u64) -> bool {
    const BITS: u32 = 48;
    let is_root = recorded >> 16 == (1 << (BITS - 16)) - 1;
    ino >> BITS != 0 && (is_root || ino & ((1 << BITS) - 1) == recorded)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A directory of this machine, such as a mounted filesystem.
#[derive(Clone, Debug)]
pub struct HostTree {
    root: PathBuf,
}

impl HostTree {
    /// The tree below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

impl Tree for HostTree {
    type Node = PathBuf;

    fn root(&self) -> Result<PathBuf> {
        Ok(self.root.clone())
    }

    fn list(&self, dir: &PathBuf) -> Result<Vec<(Vec<u8>, PathBuf)>> {
        fs::read_dir(dir)?
            .map(|entry| {
                let entry = entry?;
                Ok((entry.file_name().into_vec(), entry.path()))
            })
            .collect()
    }

    fn stat(&self, node: &PathBuf) -> Result<Stat> {
        let meta = fs::symlink_metadata(node)?;
        Ok(Stat {
            mode: meta.mode(),
            uid: meta.uid(),
            gid: meta.gid(),
            nlink: meta.nlink(),
            size: meta.size(),
            mtime_ns: meta.mtime() * 1_000_000_000 + meta.mtime_nsec(),
            ino: meta.ino(),
            rdev: (libc::major(meta.rdev()), libc::minor(meta.rdev())),
        })
    }

    fn read_link(&self, node: &PathBuf) -> Result<Vec<u8>> {
        Ok(fs::read_link(node)?.into_os_string().into_vec())
    }

    fn read(&self, node: &PathBuf, offset: u64, into: &mut [u8]) -> Result<usize> {
        let file = File::open(node)?;
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], offset + done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }

    fn xattrs(&self, node: &PathBuf) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let path = CString::new(node.as_os_str().as_bytes())?;
        let names = grow(|buffer| {
            // SAFETY: `path` ends in a nul; the buffer is as long as is said.
            unsafe { libc::llistxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) }
        })?;
        let mut found = BTreeMap::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let c_name = CString::new(name)?;
            let value = grow(|buffer| {
                // SAFETY: both strings end in a nul; the buffer is as long as is said.
                unsafe {
                    libc::lgetxattr(path.as_ptr(), c_name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
                }
            });
            match value {
                Ok(value) => {
                    found.insert(name.to_vec(), value);
                }
                // A name may be listed and yet have no value, as the ACL of a file that has only a mode.
                Err(error) if is_no_data(&error) => {}
                Err(error) => return Err(error).with_context(|| format!("xattr {}", name.escape_ascii())),
            }
        }
        Ok(found)
    }
}

fn is_no_data(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) == Some(libc::ENODATA)
}

/// Calls `get` with buffers of growing size until one suffices. A filesystem without xattrs has none.
fn grow(mut get: impl FnMut(&mut [u8]) -> isize) -> Result<Vec<u8>> {
    for size in [256, 4096, 65536, 1 << 20] {
        let mut buffer = vec![0u8; size];
        let got = get(&mut buffer);
        if let Ok(length) = usize::try_from(got) {
            buffer.truncate(length);
            return Ok(buffer);
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ERANGE | libc::E2BIG) => {}
            Some(libc::EOPNOTSUPP) => return Ok(Vec::new()),
            _ => return Err(error.into()),
        }
    }
    bail!("extended attribute larger than 1 MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> (Vec<u8>, Row) {
        let row: Row = serde_json::from_str(text).unwrap();
        (row.path.clone().into_bytes(), row)
    }

    #[test]
    fn a_host_directory_is_judged_by_its_own_facts() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), b"content").unwrap();
        let tree = HostTree::new(dir.path());
        let facts = |name: &Path| tree.stat(&name.to_path_buf()).unwrap();
        let file = facts(&dir.path().join("file"));
        let root = facts(dir.path());
        let line = |path: &str, s: &Stat, more: String| {
            format!(
                r#"{{"path": "{path}", "mode": {}, "uid": {}, "gid": {}, "nlink": {}, "size": {}, "mtime_ns": {}, "ino": {}{more}}}"#,
                s.mode, s.uid, s.gid, s.nlink, s.size, s.mtime_ns, s.ino
            )
        };
        let sha = format!(r#", "sha256": "{}""#, hex_sha256(b"content"));
        let mut manifest = Manifest::default();
        manifest.rows.extend([row(&line("file", &file, sha)), row(&line(".", &root, String::new()))]);
        manifest.assert_same("host", &tree);

        manifest.rows.get_mut(b"file".as_slice()).unwrap().uid += 1;
        manifest.rows.extend([row(&line("gone", &file, String::new()))]);
        fs::write(dir.path().join("extra"), b"").unwrap();
        let found = manifest.differences(&tree).join("\n");
        assert!(found.contains("file: uid is"), "{found}");
        assert!(found.contains("gone: missing"), "{found}");
        assert!(found.contains("extra: not in the manifest"), "{found}");
    }

    #[test]
    fn what_is_forbidden_is_no_difference_and_all_else_is() {
        let named = |path: &str| path.as_bytes().to_vec();
        let said = |paths: &[&str]| paths.iter().map(|path| (named(path), (*path).to_owned())).collect();
        let mut judged = Judged {
            unreadable: said(&["dir", "damaged"]),
            wrong: vec!["xattr".into(), "mode".into()],
            missing: said(&["dir/in", "dirty/in"]),
            forbidden: BTreeSet::from([named("dir")]),
            secret: vec!["xattr".into()],
        };
        judged.forget_what_is_forbidden();
        assert_eq!(judged.unreadable.into_values().collect::<Vec<_>>(), ["damaged"]);
        assert_eq!(judged.wrong, ["mode"]);
        assert_eq!(judged.missing.into_values().collect::<Vec<_>>(), ["dirty/in"]);
    }
}
