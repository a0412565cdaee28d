//! What happened to the files of a filesystem between two of its states.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, ApiError, Declaration, Delegated, Form, Need, Part, Role, needs};

/// Compares a snapshot of a filesystem with a later one, or with the filesystem as it is now.
///
/// The answer is a line of JSON for each [`DiffPart`], sent while the comparison goes on. What is compared
/// is kept for as long as the connection is open, unless the pool is closed or needs the space.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CompareFiles {
    /// The snapshot. `@name` is one of the filesystem of `to`.
    pub from: String,
    /// The later snapshot, or a filesystem. `@name` is one of the filesystem of `from`. Without it, the
    /// filesystem of `from` as it is now.
    pub to: Option<String>,
}

impl Action for CompareFiles {
    const DECLARED: Declaration = Declaration::reads(
        "diff",
        Part::Datasets,
        Role::Admin,
        "What happened to the files of a filesystem since a snapshot",
    )
    .in_words("compare the files of", "from")
    .answered(Form::Parts);
    const DELEGATED: Delegated<Self> = Delegated::Needs("`diff`", |request| {
        let to = request.to.as_deref().unwrap_or(needs::head_of(&request.from));
        let needs = vec![Need::on("diff", &request.from), Need::on("diff", to)];
        Ok((request, needs))
    });
    type Reply = DiffPart;
}

/// A line of the answer. A whole answer ends with [`DiffPart::Complete`] or [`DiffPart::Failed`].
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiffPart {
    /// The first line.
    Begun {
        /// Full name of the snapshot.
        from: String,
        /// Full name of the later snapshot, or of the filesystem.
        to: String,
    },
    /// What happened, in the order of object numbers.
    Changes(Vec<FileChange>),
    /// Why it cannot be told what happened to one object.
    Unreadable(String),
    /// The comparison was given up.
    Failed(ApiError),
    /// That is all.
    Complete,
}

/// What happened to a file. Paths begin with the mountpoint of the filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// What it was.
    pub kind: FileChangeKind,
    /// The file.
    pub path: FilePath,
    /// Its path now, where it was renamed.
    pub new_path: Option<FilePath>,
    /// Hard links that it got, or lost.
    pub links: i64,
    /// File type and permission bits, after the change unless it was removed.
    pub mode: u32,
    /// When the file itself changed last (`ctime`), in seconds since 1970.
    pub ctime: i64,
    /// Nanoseconds after that second.
    pub ctime_nanoseconds: u32,
}

/// What happens to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Its content, its attributes or the number of its hard links are others.
    Modified,
    /// Its path is another one.
    Renamed,
}

/// A path: a string, or its bytes where they are not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "PathForm", into = "PathForm")]
pub struct FilePath(pub Vec<u8>);

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum PathForm {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<PathForm> for FilePath {
    fn from(form: PathForm) -> Self {
        Self(match form {
            PathForm::Text(text) => text.into_bytes(),
            PathForm::Bytes(bytes) => bytes,
        })
    }
}

impl From<FilePath> for PathForm {
    fn from(path: FilePath) -> Self {
        match String::from_utf8(path.0) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Bytes(error.into_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_strings_where_they_can_be() {
        for (path, json) in [(&b"/t/\xc3\xbc \\"[..], r#""/t/ü \\""#), (b"/\xff", "[47,255]")] {
            let path = FilePath(path.to_vec());
            assert_eq!(serde_json::to_string(&path).unwrap(), json);
            assert_eq!(serde_json::from_str::<FilePath>(json).unwrap(), path);
        }
    }
}
