//! The settings of guests: their names and values. What they mean together, [`crate::guest`] knows.

use super::Settings;

/// The disk that needs root: an image on a filesystem of the host, which lies on a volume.
pub const ON_EXT4: &str = "qcow2-on-ext4";

/// A setting of a guest.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// Its name.
    pub name: &'static str,
    /// Its values, the default first.
    pub values: &'static [&'static str],
}

const fn knob(name: &'static str, values: &'static [&'static str]) -> Knob {
    Knob { name, values }
}

/// All of them.
pub const KNOBS: [Knob; 9] = [
    knob("disk", &["vhost-user", "nbd", "iscsi", "raw", "qcow2", "qcow2-sparse", ON_EXT4]),
    knob("cache", &["none", "writethrough", "writeback", "directsync"]),
    knob("bus", &["virtio-blk", "virtio-scsi", "ahci", "ide"]),
    knob("iothread", &["off", "on"]),
    knob("aio", &["threads", "native", "io_uring"]),
    knob("lvm", &["off", "on"]),
    knob("luks", &["off", "on", "without-aes"]),
    knob("guest_fs", &["none", "ext2", "ext3", "ext4", "xfs"]),
    knob("accel", &["auto", "tcg", "kvm"]),
];

impl Knob {
    /// That of this name.
    pub fn named(name: &str) -> Option<Self> {
        KNOBS.into_iter().find(|knob| knob.name == name)
    }

    /// Its value among `settings`; the default where it is not there.
    pub(crate) fn of(self, settings: &Settings) -> &str {
        settings.get(self.name).map_or(self.values[0], String::as_str)
    }
}
