//! A layer of a stack: a name, an address, and where it is not on this machine, the command that leads there.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// A layer of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Its kind.
    pub name: String,
    /// Where it is: a path, or the URI of an NBD export or of a disk behind iSCSI.
    pub at: String,
    /// The command that runs a shell where it is, where that is not here; then `at` is a path there
    /// ([`crate::remote`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Vec<String>>,
    /// The engine of the fio there, one of [`ENGINES`], where that is not the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
}

/// The engines that a fio elsewhere may have: the first is what is used here, and forbidden in some
/// containers.
pub const ENGINES: [&str; 2] = ["io_uring", "libaio"];

impl Layer {
    /// The engine of the fio that measures it.
    pub fn engine(&self) -> &str {
        self.engine.as_deref().unwrap_or(ENGINES[0])
    }

    /// The path of this machine that it is, where it is one.
    pub fn path(&self) -> Option<&Path> {
        (self.by.is_none() && !self.is_uri()).then(|| Path::new(&self.at))
    }

    /// The URI that it is, where it is one.
    pub fn uri(&self) -> Option<&str> {
        (self.by.is_none() && self.is_uri()).then_some(self.at.as_str())
    }

    /// What is wrong with its engine.
    pub(crate) fn fault_of_engine(&self) -> Option<String> {
        let engine = self.engine.as_deref()?;
        if self.by.is_none() {
            Some(format!("target {}: engine is for a remote fio: it needs `by`", self.title()))
        } else if !ENGINES.contains(&engine) {
            Some(format!("target {}: engine '{engine}' is not one of {}", self.title(), ENGINES.join(", ")))
        } else {
            None
        }
    }

    fn is_uri(&self) -> bool {
        self.at.contains("://")
    }

    /// It in words: its name, and where it is.
    pub fn title(&self) -> String {
        let by = self.by.as_ref().map_or_else(String::new, |by| format!(" by '{}'", by.join(" ")));
        format!("layer '{}' ({}{by})", self.name, self.at)
    }

    /// The faults of its address.
    pub(crate) fn fault(&self) -> Option<String> {
        let by = self.by.as_ref()?;
        let what = if by.first().is_none_or(String::is_empty) {
            "by is empty: it is the command that runs a shell where the layer is, for example [\"ssh\", \
             \"root@guest\"]; leave it out for layers of this machine"
        } else if self.is_uri() {
            "at is a URI, and with by it is the path of a file or device there: leave out by, or name the \
             path"
        } else if !self.at.starts_with('/') {
            "at is a path where by runs a shell, and must begin with '/'"
        } else if by.iter().chain([&self.at]).any(|word| word.contains('\0')) {
            "by and at can have no NUL in them"
        } else {
            return None;
        };
        Some(format!("target: layer '{}': {what}", self.name))
    }
}
