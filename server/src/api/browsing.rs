//! Looking into filesystems and snapshots, and bringing back a file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

/// Asks for the entries of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListFiles {
    /// The filesystem, or a snapshot of one. It need not be mounted.
    pub dataset: String,
    /// The directory, below the root of the filesystem; empty or `/` for the root.
    pub path: String,
    /// The `next` of the list before this one.
    pub after: Option<String>,
    /// About how many entries; at most 1000, and 0 for that.
    pub limit: usize,
}

/// Entries of a directory, in the order in which the filesystem has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FileList {
    /// The entries.
    pub entries: Vec<FileEntry>,
    /// Where the next list goes on; none at the end.
    pub next: Option<String>,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileEntry {
    /// Its name.
    pub name: String,
    /// Whether the name is exactly this: others are no UTF-8, and cannot be asked for.
    pub is_exact: bool,
    /// What it is.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// When its content was changed, in seconds since 1970.
    pub modified: i64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A pipe, a socket or a device.
    Other,
    /// It cannot be read.
    Unknown,
}

impl Action for ListFiles {
    const DECLARED: Declaration = Declaration::reads(
        "file-list",
        Part::Datasets,
        Role::Admin,
        "Lists the entries of a directory of a filesystem or snapshot",
    )
    .in_words("list files of", "dataset");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = FileList;
}

/// Copies a regular file, a symbolic link or a folder from a snapshot into its filesystem.
///
/// A folder that is there by now is filled, not replaced. One request copies a limited number of files and
/// bytes; where more is left, its reply says where the next one goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RestoreFile {
    /// The snapshot.
    pub snapshot: String,
    /// The file or folder, below the root of the filesystem.
    pub path: String,
    /// Where it is to be; by default where it was. Its directory must be there.
    pub to: Option<String>,
    /// Replaces files that are there by now. What is a directory on one side only is never replaced.
    pub overwrite: bool,
    /// Leaves alone what is there by now, and copies the rest: so a folder is taken up that was copied in
    /// part.
    pub keep: bool,
    /// The `next` of the request before this one.
    pub after: Option<String>,
}

/// What was brought back by a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RestoredFile {
    /// Where it is, below the root of the filesystem.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Files and symbolic links.
    pub files: u64,
    /// Folders that were not there.
    pub folders: u64,
    /// How many were there and were left alone.
    pub kept: u64,
    /// How many are neither files, links nor folders, and were passed over.
    pub passed_over: u64,
    /// Where the next request goes on; none at the end.
    pub next: Option<String>,
}

impl Action for RestoreFile {
    const DECLARED: Declaration = Declaration::changes(
        "file-restore",
        Part::Datasets,
        Role::Admin,
        Effects::MOUNTS,
        "Copies a file or a folder from a snapshot into its filesystem",
    )
    .in_words("restore a file from", "snapshot");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = RestoredFile;
}
