//! Guests: virtual machines in which fio finds a volume or an image as its disk.
//!
//! # The idea
//! A variant of such an experiment has a volume, or an image on a filesystem of ours, as every variant of a
//! `volume` or `filesystem` has. Beside it runs QEMU with that as its second disk, and in it a guest that
//! does nothing but carry out scripts ([`shell`]): it puts LVM, LUKS and a filesystem on the disk where the
//! settings ask for these, and runs fio. To the rest of the lab it is a place elsewhere, reached by a command
//! that runs a shell there, as a layer with `by` is ([`crate::remote`]).
//!
//! Without a usable KVM the guest is emulated: its processor is then many times slower than a real one, and
//! only ratios of its figures say anything. The notes of the runs say so.
//!
//! | module | what it owns |
//! |---|---|
//! | `image` | kernel and initial RAM disk, made from Debian packages at first use |
//! | `disk` | how QEMU reaches a disk, and images |
//! | `host_filesystem` | a filesystem of the host on a volume, which holds an image |
//! | `machine` | the process of QEMU, from its start to its end |
//! | `monitor` | what QEMU says of a guest that does not answer |
//! | `patience` | how long guests are waited for |
//! | [`shell`] | scripts that the guest carries out |
//!
//! What the settings of guests ([`KNOBS`]) mean together (`Spec`) is here. Sources: QEMU 10's manual
//! (`qemu-system-x86_64(1)`, `qemu-img(1)`), lvm(8), cryptsetup(8).

mod disk;
mod host_filesystem;
mod image;
mod machine;
mod monitor;
mod patience;
pub mod shell;

use crate::error::{Error, Result};
use crate::setting::{GUEST, KNOBS, Knob, NBD, ON_EXT4, PROCESS, Settings, THROUGH};
use crate::size::Size;

pub use disk::Wire;
pub(crate) use disk::{Attached, make_image};
pub(crate) use host_filesystem::{HostFilesystem, PROGRAMS};
pub(crate) use machine::{Accelerator, MEMORY, Purpose, VirtualMachine};
pub(crate) use patience::Boots;

/// What a guest's disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    /// A volume, by this protocol.
    Volume(Wire),
    /// An image on a filesystem of ours.
    Image(Format),
    /// An image on a filesystem of the host, which lies on a volume.
    ImageOnVolume(Format),
}

impl Disk {
    /// The format of its image, where it is one.
    fn image(self) -> Option<Format> {
        match self {
            Self::Volume(_) => None,
            Self::Image(format) | Self::ImageOnVolume(format) => Some(format),
        }
    }
}

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// The bytes of the disk.
    Raw,
    /// QEMU's own, with all its clusters there from the beginning.
    Qcow2,
    /// The same, with clusters that are made when they are written.
    Qcow2Sparse,
}

/// The use of LUKS in a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Luks {
    Off,
    On,
    /// By a processor that has no instructions for AES.
    WithoutAes,
}

/// A guest, as its settings describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    pub disk: Disk,
    pub cache: String,
    pub bus: String,
    pub iothread: bool,
    /// How QEMU reads and writes an image.
    pub aio: String,
    pub lvm: bool,
    pub luks: Luks,
    /// What lies on it in the guest: the name that `mount` knows it by.
    pub filesystem: Option<String>,
    pub accelerator: Option<Accelerator>,
}

impl Spec {
    /// That of a variant; nothing where it is not measured in a guest.
    ///
    /// # Errors
    /// Values that mean nothing together.
    pub(crate) fn of(settings: &Settings) -> Result<Option<Self>> {
        let through = settings.get(THROUGH).map_or(GUEST, String::as_str);
        let wrong = |what: &str| Err(Error::Experiment(what.to_owned()));
        let set = |name: &str| {
            let knob = Knob::named(name)?;
            settings.get(name).filter(|value| *value != knob.values[0])
        };
        if [NBD, PROCESS].contains(&through) {
            let of_guests = KNOBS.iter().filter(|knob| !["disk", "accel"].contains(&knob.name));
            return match of_guests.filter_map(|knob| set(knob.name).map(|_| knob.name)).next() {
                Some(name) => wrong(&format!("'{name}' is of guests, and through={through} has none")),
                None => Ok(None),
            };
        }
        let value = |name: &str| Knob::named(name).map_or("", |knob| knob.of(settings)).to_owned();
        let disk = match value("disk").as_str() {
            "nbd" => Disk::Volume(Wire::Nbd),
            "iscsi" => Disk::Volume(Wire::Iscsi),
            "raw" => Disk::Image(Format::Raw),
            "qcow2" => Disk::Image(Format::Qcow2),
            "qcow2-sparse" => Disk::Image(Format::Qcow2Sparse),
            ON_EXT4 => Disk::ImageOnVolume(Format::Qcow2),
            _ => Disk::Volume(Wire::VhostUser),
        };
        let spec = Self {
            disk,
            cache: value("cache"),
            bus: value("bus"),
            iothread: value("iothread") == "on",
            aio: value("aio"),
            lvm: value("lvm") == "on",
            luks: match value("luks").as_str() {
                "on" => Luks::On,
                "without-aes" => Luks::WithoutAes,
                _ => Luks::Off,
            },
            filesystem: Some(value("guest_fs")).filter(|name| name != "none"),
            accelerator: Accelerator::named(&value("accel")),
        };
        match spec.fault() {
            Some(what) => wrong(what),
            None => Ok(Some(spec)),
        }
    }

    /// Why its settings mean nothing together, where they do not.
    fn fault(&self) -> Option<&'static str> {
        let is_vhost_user = self.disk == Disk::Volume(Wire::VhostUser);
        let is_direct = ["none", "directsync"].contains(&self.cache.as_str());
        if is_vhost_user && self.cache != "none" {
            Some("QEMU has no part in what a vhost-user disk reads and writes, so it has no cache mode")
        } else if is_vhost_user && self.bus != "virtio-blk" {
            Some("vhost-user-blk is a virtio-blk disk, and on no other bus")
        } else if is_vhost_user && self.iothread {
            Some("Cenote serves a vhost-user disk in its own process, where QEMU has no thread")
        } else if self.iothread && !self.bus.starts_with("virtio") {
            Some("QEMU's ide and ahci disks have no thread of their own")
        } else if self.aio != "threads" && self.disk.image().is_none() {
            Some("aio says how QEMU reads and writes a file, and this disk is none")
        } else if self.aio == "native" && !is_direct {
            Some("aio=native needs a cache mode around the page cache: none or directsync")
        } else {
            None
        }
    }

    /// Bytes of the disk so that `size` can be used on it: LVM, LUKS and filesystems have metadata, and xfs
    /// is no smaller than 300 MB.
    pub(crate) fn disk_bytes(&self, size: Size) -> Size {
        if !self.lvm && self.luks == Luks::Off && self.filesystem.is_none() {
            return size;
        }
        Size(with_metadata(size).0.max(512 << 20))
    }

    /// Bytes of the volume or filesystem that the disk lies on.
    pub(crate) fn dataset_bytes(&self, size: Size) -> Size {
        let disk = self.disk_bytes(size);
        if let Disk::ImageOnVolume(_) = self.disk { with_metadata(disk) } else { disk }
    }

    /// The script that brings about what is measured in the guest, and says by its last line where that is.
    pub(crate) fn preparation(&self, size: Size) -> String {
        let (modules, device) = match self.bus.as_str() {
            "virtio-scsi" => ("virtio_scsi sd_mod", "/dev/sda"),
            "ahci" => ("ahci sd_mod", "/dev/sda"),
            "ide" => ("ata_piix sd_mod", "/dev/sda"),
            _ => ("virtio_blk", "/dev/vda"),
        };
        let mut script = format!(
            "set -e\nneed {modules}\nat={device}\nfor try in $(seq 100); do [ -b $at ] && break; sleep 0.1; \
             done\n[ -b $at ] || {{ echo \"there is no $at\" >&2; exit 1; }}\n"
        );
        if self.lvm {
            script.push_str(
                "need dm_mod\nlvm pvcreate -q -ff -y $at >&2\n\
                 lvm vgcreate -q lab $at >&2\n\
                 lvm lvcreate -q -an -Zn -Wn -l 100%FREE -n disk lab >&2\n\
                 lvm vgchange -q -ay lab >&2\nat=/dev/mapper/lab-disk\n",
            );
        }
        if self.luks != Luks::Off {
            // A key of no secret, and a quick way to it: what is measured is what becomes of the data.
            script.push_str(
                "need dm_crypt xts sha256_generic\n! grep -q '\\<aes\\>' /proc/cpuinfo || need \
                 aesni_intel\necho lab > /tmp/key\ncryptsetup -q luksFormat --type luks2 --pbkdf pbkdf2 \
                 --pbkdf-force-iterations 1000 --key-file /tmp/key $at\ncryptsetup open --key-file /tmp/key \
                 $at secret\nat=/dev/mapper/secret\n",
            );
        }
        if let Some(name) = &self.filesystem {
            let make = match name.as_str() {
                "xfs" => "need xfs crc32c_generic\nmkfs.xfs -q -f".to_owned(),
                name => format!("need ext4 crc32c_generic\nmkfs.ext4 -q -F -t {name}"),
            };
            script.push_str(&format!(
                "{make} $at >&2\nmount -t {name} $at /mnt\ntruncate -s {} /mnt/data\nat=/mnt/data\n",
                size.0
            ));
        }
        script.push_str("echo $at\n");
        script
    }
}

/// Bytes of a filesystem that takes so many.
fn with_metadata(size: Size) -> Size {
    Size(size.0.saturating_add(size.0 / 4).saturating_add(64 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Option<Spec>> {
        let settings = text.split(' ').filter_map(|one| one.split_once('='));
        Spec::of(&settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn what_means_nothing_together_is_told() {
        for (wrong, named) in [
            ("cache=writeback", "no cache mode"),
            ("bus=ahci", "on no other bus"),
            ("iothread=on", "no thread"),
            ("disk=nbd bus=ide iothread=on", "no thread of their own"),
            ("disk=nbd aio=native", "aio says"),
            ("disk=qcow2-on-ext4 aio=native cache=writeback", "page cache"),
            ("disk=raw aio=native cache=writeback", "page cache"),
            ("through=process luks=on", "'luks' is of guests"),
        ] {
            let told = of(wrong).unwrap_err().to_string();
            assert!(told.contains(named), "{wrong}: {told}");
        }
        for right in ["", "disk=raw cache=writeback bus=ide", "disk=nbd iothread=on", "disk=raw aio=native"] {
            assert!(of(right).unwrap().is_some(), "{right}");
        }
        assert_eq!(of("through=nbd disk=raw accel=tcg").unwrap(), None);
    }

    #[test]
    fn what_lies_on_a_disk_has_room_there() {
        let bytes = |text: &str| of(text).unwrap().unwrap().disk_bytes(Size(64 << 20)).0 >> 20;
        assert_eq!([bytes(""), bytes("lvm=on"), bytes("guest_fs=xfs")], [64, 512, 512]);
        let image = of("disk=qcow2-on-ext4").unwrap().unwrap();
        assert_eq!(
            (image.disk_bytes(Size(64 << 20)).0, image.dataset_bytes(Size(64 << 20)).0 >> 20),
            (64 << 20, 144)
        );
        let script = of("lvm=on luks=on guest_fs=ext3").unwrap().unwrap().preparation(Size(1 << 20));
        let at = |what: &str| script.find(what).unwrap();
        assert!(at("pvcreate") < at("luksFormat") && at("luksFormat") < at("-t ext3"), "{script}");
    }
}
