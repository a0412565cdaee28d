//! What clients of NFS asked for since the daemon started: by procedure, with the outcome, and bytes.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names of the procedures, by their numbers, as node exporter has them.
const NAMES: [&str; 22] = [
    "Null",
    "GetAttr",
    "SetAttr",
    "Lookup",
    "Access",
    "ReadLink",
    "Read",
    "Write",
    "Create",
    "MkDir",
    "SymLink",
    "MkNod",
    "Remove",
    "RmDir",
    "Rename",
    "Link",
    "ReadDir",
    "ReadDirPlus",
    "FsStat",
    "FsInfo",
    "PathConf",
    "Commit",
];

/// The requests of one procedure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Procedure {
    /// Its name.
    pub name: &'static str,
    /// Requests that were answered.
    pub requests: u64,
    /// Those that were answered with an error.
    pub errors: u64,
}

/// Counters.
#[derive(Debug)]
pub struct Counted {
    procedures: [(AtomicU64, AtomicU64); NAMES.len()],
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Default for Counted {
    fn default() -> Self {
        let procedures = array::from_fn(|_| Default::default());
        Self { procedures, read_bytes: AtomicU64::new(0), written_bytes: AtomicU64::new(0) }
    }
}

impl Counted {
    /// A request of a procedure was done.
    pub(super) fn done(&self, procedure: u32, is_error: bool) {
        let counted = usize::try_from(procedure).ok().and_then(|number| self.procedures.get(number));
        if let Some((requests, errors)) = counted {
            requests.fetch_add(1, Ordering::Relaxed);
            errors.fetch_add(u64::from(is_error), Ordering::Relaxed);
        }
    }

    /// A client got bytes.
    pub(super) fn read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A client gave bytes.
    pub(super) fn written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that clients read and wrote.
    pub fn bytes(&self) -> (u64, u64) {
        (self.read_bytes.load(Ordering::Relaxed), self.written_bytes.load(Ordering::Relaxed))
    }

    /// All procedures.
    pub fn procedures(&self) -> impl Iterator<Item = Procedure> {
        NAMES.iter().zip(&self.procedures).map(|(name, (requests, errors))| Procedure {
            name,
            requests: requests.load(Ordering::Relaxed),
            errors: errors.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_by_procedure_and_outcome() {
        let counted = Counted::default();
        counted.done(6, false);
        counted.done(6, true);
        counted.done(99, true);
        counted.read(7);
        counted.written(8);
        let read = counted.procedures().find(|procedure| procedure.name == "Read").unwrap();
        assert_eq!((read.requests, read.errors, counted.bytes()), (2, 1, (7, 8)));
        assert_eq!(counted.procedures().map(|procedure| procedure.requests).sum::<u64>(), 2);
    }
}
