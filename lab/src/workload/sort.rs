//! Sorts of files, by which a copy takes some and leaves others.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A sort of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// Texts that are not compressed: of the first bytes all are characters, and neither these nor the name
    /// are those of an archive.
    Text,
    /// Executable files: programs and libraries, as Linux has them.
    Programs,
}

/// Bytes by which a file's sort is found.
const TOLD_BY: usize = 4096;
/// The endings of compressed files' names.
const COMPRESSED: [&str; 16] = [
    "gz", "xz", "bz2", "zst", "lz4", "lzma", "zip", "br", "7z", "jar", "png", "jpg", "woff2", "mo", "pdf",
    "svgz",
];
/// The magic number of programs.
const ELF: [u8; 4] = [0x7f, b'E', b'L', b'F'];

impl Sort {
    /// It in a word, for messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::Text => "texts",
            Self::Programs => "programs",
        }
    }

    /// Whether a file is of it.
    pub(crate) fn has(self, path: &Path, file: &mut File) -> bool {
        let mut first = Vec::with_capacity(TOLD_BY);
        if file.take(TOLD_BY as u64).read_to_end(&mut first).is_err() {
            return false;
        }
        match self {
            Self::Programs => first.starts_with(&ELF),
            Self::Text => {
                let ending = path.extension().map(|it| it.to_string_lossy().to_ascii_lowercase());
                let is_named = ending.is_some_and(|ending| COMPRESSED.contains(&ending.as_str()));
                // A character may be cut in two at the end of what was read.
                let is_text = match str::from_utf8(&first) {
                    Ok(_) => true,
                    Err(error) => first.len() == TOLD_BY && error.error_len().is_none(),
                };
                let is_control = |byte: &u8| *byte < 0x20 && !b"\t\n\x0b\x0c\r\x1b".contains(byte);
                !is_named && is_text && !first.iter().any(is_control)
            }
        }
    }
}
