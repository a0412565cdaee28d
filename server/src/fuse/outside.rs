//! Changes of a mounted filesystem that did not come from its kernel.
//!
//! A kernel keeps names, attributes and pages, because it knows all changes. Those of another protocol (NFS)
//! it does not know: it is told to forget what it has of the file or the name. Changes of its own programs
//! go through at once, so that the other protocol sees them without being told.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::INodeNo;
use ondisk::ObjectId;

use super::FuseMount;
use super::node::Tree;
use super::notifier::Notifier;
use super::served::Served;

/// What was changed.
#[derive(Debug, Clone, Copy)]
pub enum Outside<'a> {
    /// A name in a directory: it came, went, or is another file's.
    Name(ObjectId, &'a [u8]),
    /// The attributes of a file.
    Attributes(ObjectId),
    /// The content of a file from an offset on, so many bytes; all behind it where there are none.
    Content(ObjectId, u64, u64),
}

impl FuseMount {
    /// Has the kernel forget what it knows of what was changed. Not for a thread that answers its requests.
    pub fn changed_outside(&self, changes: &[Outside<'_>]) {
        let Some(served) = self.freezable.served() else { return };
        for change in changes {
            if let Outside::Name(dir, _) = change {
                served.listings.changed(*dir);
            }
            if let Some(notifier) = served.notifier() {
                served.tell_outside(notifier, change);
            }
        }
    }
}

impl Served {
    fn tell_outside(&self, notifier: &Notifier, change: &Outside<'_>) {
        let number = |object| self.number(Tree::Head, object).unwrap_or(INodeNo(0));
        let told = match *change {
            Outside::Name(dir, name) => {
                let forgotten = notifier.inval_entry(number(dir), OsStr::from_bytes(name));
                // How the directory is listed, and its times.
                forgotten.and(notifier.inval_inode(number(dir), 0, 0))
            }
            Outside::Attributes(file) => notifier.inval_inode(number(file), -1, 0),
            Outside::Content(file, offset, length) => {
                let bounded = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
                notifier.inval_inode(number(file), bounded(offset), bounded(length))
            }
        };
        if let Err(error) = told {
            tracing::debug!(%error, ?change, "the kernel keeps what was changed by another protocol");
        }
    }
}
