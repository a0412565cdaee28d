//! The leaves that hold a column of a raidz or draid vdev.
//!
//! A child of such a vdev is a leaf, or a spare or replacing vdev of which each leaf has the whole column.
//! The leaves are alternatives: when the bytes of one are wrong, those of another may be right. A
//! distributed spare has no device of its own; its bytes are on another child of its draid vdev, and its
//! errors are its own.

use super::mirror::favourite;
use super::read::{MAX_DEPTH, ReadResult, Request, behind_spare};
use super::{Kind, Vdev};

/// A leaf that has the bytes of a column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    /// The leaf whose device has them.
    pub leaf: &'a Vdev,
    /// The leaf whose bytes they are: `leaf`, or a distributed spare on it.
    pub owner: &'a Vdev,
    /// Whether the owner missed the txg of the column.
    pub is_stale: bool,
}

impl<'a> Source<'a> {
    /// Whether both are the same bytes of the same leaf.
    pub fn is(&self, other: &Self) -> bool {
        self.leaf.guid == other.leaf.guid && self.owner.guid == other.owner.guid
    }

    /// Reads the bytes; they are not judged.
    pub async fn read(&self, request: Request<'_>) -> ReadResult {
        self.leaf.read(Request { verdict: None, ..request }.deeper()).await
    }
}

impl Vdev {
    /// The leaves from which a column can be read, best first: those that did not miss its txg, then those
    /// with few transfers in progress.
    pub(super) fn sources<'a>(&'a self, request: &Request<'a>) -> Vec<Source<'a>> {
        let mut sources = Vec::with_capacity(1);
        self.add_sources(request, None, request.depth, &mut sources);
        let count = sources.len();
        if count > 1 {
            // Among equals the offset decides, as in a mirror.
            sources.rotate_left(favourite(request.offset, count));
            sources.sort_by_key(|source| (source.is_stale, source.leaf.load()));
        }
        sources
    }

    fn add_sources<'a>(
        &'a self,
        request: &Request<'a>,
        owner: Option<&'a Vdev>,
        depth: u32,
        sources: &mut Vec<Source<'a>>,
    ) {
        if !self.status().is_readable() || depth > MAX_DEPTH {
            return;
        }
        match &self.kind {
            Kind::Mirror | Kind::Replacing | Kind::Spare => {
                for child in &self.children {
                    child.add_sources(request, owner, depth + 1, sources);
                }
            }
            Kind::DraidSpare { top, spare } => {
                if let Some(child) = behind_spare(request.tree, request.offset, *top, *spare) {
                    child.add_sources(request, owner.or(Some(self)), depth + 1, sources);
                }
            }
            Kind::Leaf(_) => {
                let owner = owner.unwrap_or(self);
                let is_stale = owner.is_stale(request.txg);
                sources.push(Source { leaf: self, owner, is_stale });
            }
            _ => {}
        }
    }
}
