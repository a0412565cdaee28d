//! Whether another program needs the contents of a file or device that is to be written.
//!
//! Before anything of a named file or device is written, the lab looks for all of this and reports everything
//! it found:
//!
//! | found | of | may be written |
//! |---|---|---|
//! | it is mounted, used for swap, part of something else (md, dm, LVM, bcache), or in use according to the kernel | a device, its partitions | never |
//! | an imported pool has it; a process has it open for writing, as a virtual machine does, or locked, as a process with an open pool does; a loop device or swap lies on it | a device or file, and what a loop device lies on | never |
//! | the label of a pool, the signature of a filesystem or of something else, a partition table | a device, its partitions, a file | if the experiment says `overwrite` |
//! | bytes other than zero | a device, or a file that the lab did not make | if the experiment says `overwrite` |
//!
//! Files and devices are identified by their numbers, so that another name is no other file: a hard link, a
//! bind mount, a link below `/dev`. The file or device below a loop device is checked itself, with all loop
//! devices on it.
//!
//! A file or device that may be written is claimed as long as the experiment runs: a device exclusively, as
//! by a mount, a file by its lock. Claims are noted in the directory of results (`claims.json`). So a
//! continued experiment needs no new consent because of data that the lab itself left there, but does if
//! something else was put there meanwhile. Consent is recorded when the experiment begins, for everything
//! named then ([`consent`]): it is for the contents at that time, not for another file or device that has the
//! name later. A device without identification (no `wwid`, no `serial`) can only be recognized until the
//! machine restarts: after that a continued experiment asks for consent again and says why.
//!
//! The contents of an export, and its other users, cannot be checked from here. So writing to an export
//! always needs consent ([`fault_of_export`]).
//!
//! Files that the lab makes carry the attribute `user.cenote.lab`, which says whether they were filled.
//!
//! | module | what it owns |
//! |---|---|
//! | `system` | users of files and devices, as the kernel lists them |
//! | `contents` | what a file or device holds; files that the lab made |
//! | `claims` | taking files and devices, consent, and what is noted of both |

mod claims;
mod contents;
mod system;

use std::path::Path;

pub(super) use claims::{Claim, claim, claim_for_pool};
pub use claims::{consent, fault, fault_of_export, look};
pub(super) use contents::{is_filled, is_made, mark, size};
pub(super) use system::devices_of;

/// The findings about a file or device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Its users, each in words that follow its name.
    pub uses: Vec<String>,
    /// Its contents.
    pub holds: Vec<String>,
}

impl Usage {
    /// Why it may not be written; nothing where it may.
    pub fn fault(&self, path: &Path, may_overwrite: bool) -> Option<String> {
        let path = path.display();
        if !self.uses.is_empty() {
            return Some(format!(
                "target {path} {}: workloads would write to it, and the lab never writes to a device or file \
                 that is in use",
                self.uses.join("; it ")
            ));
        }
        (!may_overwrite && !self.holds.is_empty()).then(|| {
            format!(
                "target {path} {}: workloads would overwrite it; if they may, say so (--overwrite, or \
                 overwrite = true in [target])",
                self.holds.join("; it ")
            )
        })
    }
}
