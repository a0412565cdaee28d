//! [`Settings`]: the properties of a dataset that apply to its open filesystem.
//!
//! They are read when a dataset is opened and whenever a property is set that it has or inherits, so that
//! `zfs set` affects filesystems that are in use. Some of them concern only new files, as in OpenZFS.
//!
//! Source: OpenZFS 2.3 `zfs_vfsops.c` (property callbacks), `dmu_objset.c` (`dnodesize_changed_cb`).

use super::live::{AtimeMode, XattrPlace};
use super::{AclRules, AclType, ZplOptions};

/// Slots of new dnodes with `dnodesize=auto`.
const AUTO_SLOTS: u64 = 2;
const SLOT_BYTES: u64 = 512;

/// The properties of a filesystem that is open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// `recordsize`, in bytes.
    pub record_size: u32,
    /// `dnodesize`, in slots of 512 bytes.
    pub dnode_slots: u8,
    /// `atime` and `relatime`.
    pub atime: AtimeMode,
    /// `xattr`: the place of new extended attributes; `None` for `off`.
    pub xattrs: Option<XattrPlace>,
    /// `acltype`.
    pub acl: AclType,
    /// `aclinherit` and `aclmode`.
    pub acl_rules: AclRules,
    /// `longname`.
    pub long_names: bool,
}

impl Default for Settings {
    /// The defaults of the properties.
    fn default() -> Self {
        Self {
            record_size: 128 << 10,
            dnode_slots: 1,
            atime: AtimeMode::Relative,
            xattrs: Some(XattrPlace::Attributes),
            acl: AclType::Off,
            acl_rules: AclRules::default(),
            long_names: false,
        }
    }
}

impl Settings {
    /// How a filesystem with these settings is shown.
    pub fn options(&self) -> ZplOptions {
        ZplOptions {
            snapshot: false,
            xattr: self.xattrs.is_some(),
            acl: self.acl,
            long_names: self.long_names,
        }
    }

    /// The number of slots for a value of `dnodesize`.
    pub(crate) fn slots(dnodesize: u64) -> u8 {
        match dnodesize {
            0 => 1,
            1 => AUTO_SLOTS as u8,
            bytes => (bytes / SLOT_BYTES).clamp(1, 32) as u8,
        }
    }

    /// The mode for values of `atime` and `relatime`.
    pub(crate) fn atime(atime: bool, relatime: bool) -> AtimeMode {
        match (atime, relatime) {
            (false, _) => AtimeMode::Off,
            (true, false) => AtimeMode::On,
            (true, true) => AtimeMode::Relative,
        }
    }
}
