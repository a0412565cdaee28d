//! Mount options: from the filesystem's properties, and those of the caller that override them.

use engine::properties::{Prop, PropertySet, Style};
use engine::zil::SyncMode;
use engine::zpl::live::AtimeMode;
use engine::zpl::{AclType, LiveZpl, ZplOptions};

/// Whether `.zfs` is visible in the root directory of a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Snapdir {
    /// There is none.
    Disabled,
    /// It can be entered, but is not listed.
    Hidden,
    /// It is listed.
    Visible,
}

/// How a filesystem is mounted.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Users other than the one who mounts may look in. Needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Requests come through rings (`ring`), where the kernel has them.
    pub ring: bool,
    /// Changes are accepted (`readonly=off`), where the pool is open for writing and this is no snapshot.
    pub writable: bool,
    /// Programs may be run (`exec`).
    pub exec: bool,
    /// Set-user-id bits count (`setuid`). Ignored where the mount is not made by root.
    pub setuid: bool,
    /// Device nodes work (`devices`). Ignored where the mount is not made by root.
    pub devices: bool,
    /// Whether `.zfs` is visible (`snapdir`).
    pub snapdir: Snapdir,
    /// How files are shown (`xattr`, `acltype`, `longname`).
    pub zpl: ZplOptions,
    /// When access times change (`atime`, `relatime`).
    pub atime: AtimeMode,
    /// When changes are stable (the property `sync`).
    pub sync: SyncMode,
    /// All changes are stable before they are answered (the mount option `sync`).
    pub sync_all: bool,
    /// Changes of names are (the mount option `dirsync`).
    pub sync_names: bool,
    /// Listing a directory counts as an access (not with the mount option `nodiratime`).
    pub directories_accessed: bool,
    /// Largest block of new files, in bytes (`recordsize`).
    pub record_bytes: u32,
    /// Size of the dnodes of new files, in units of 512 bytes (`dnodesize`).
    pub dnode_slots: u8,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            allow_other: false,
            ring: false,
            writable: true,
            exec: true,
            setuid: true,
            devices: true,
            snapdir: Snapdir::Hidden,
            zpl: ZplOptions::default(),
            atime: AtimeMode::Relative,
            sync: SyncMode::Standard,
            sync_all: false,
            sync_names: false,
            directories_accessed: true,
            record_bytes: 128 << 10,
            dnode_slots: 1,
        }
    }
}

impl MountOptions {
    /// The options from the dataset's properties. Access for other users, and the transport of requests, are
    /// left to the caller.
    pub fn from_properties(properties: &PropertySet) -> Self {
        let is_on = |prop| properties.number(prop) != Some(0);
        let word = |prop| properties.get(prop, Style::PARSABLE).map(|shown| shown.value);
        Self {
            allow_other: false,
            ring: false,
            writable: properties.number(Prop::Readonly) != Some(1),
            exec: is_on(Prop::Exec),
            setuid: is_on(Prop::Setuid),
            devices: is_on(Prop::Devices),
            snapdir: match word(Prop::Snapdir).as_deref() {
                Some("visible") => Snapdir::Visible,
                Some("disabled") => Snapdir::Disabled,
                _ => Snapdir::Hidden,
            },
            zpl: ZplOptions::from_properties(properties),
            atime: match (is_on(Prop::Atime), is_on(Prop::Relatime)) {
                (false, _) => AtimeMode::Off,
                (true, false) => AtimeMode::On,
                (true, true) => AtimeMode::Relative,
            },
            sync: match properties.number(Prop::Sync) {
                Some(1) => SyncMode::Always,
                Some(2) => SyncMode::Disabled,
                _ => SyncMode::Standard,
            },
            sync_all: false,
            sync_names: false,
            directories_accessed: true,
            record_bytes: properties
                .number(Prop::Recordsize)
                .and_then(|bytes| u32::try_from(bytes).ok())
                .unwrap_or(128 << 10),
            dnode_slots: match properties.number(Prop::Dnodesize) {
                // `auto`: room for attributes of files that have some.
                Some(1) => 2,
                Some(bytes) => u8::try_from(bytes / 512).unwrap_or(1).max(1),
                None => 1,
            },
        }
    }

    /// Whether a word of a list of mount options is one.
    pub fn knows(word: &str) -> bool {
        Self::default().apply_word(word).is_ok()
    }

    /// Lets a word of `-o` override what properties say.
    ///
    /// # Errors
    /// A word that means nothing, as a sentence.
    pub fn apply_word(&mut self, word: &str) -> Result<(), String> {
        match word {
            "defaults" | "nomand" | "zfsutil" => {}
            "sync" => self.sync_all = true,
            "async" => self.sync_all = false,
            "dirsync" => self.sync_names = true,
            "diratime" => self.directories_accessed = true,
            "nodiratime" => self.directories_accessed = false,
            "ro" => self.writable = false,
            "rw" => self.writable = true,
            "atime" if self.atime == AtimeMode::Off => self.atime = AtimeMode::On,
            "norelatime" if self.atime == AtimeMode::Relative => self.atime = AtimeMode::On,
            "atime" | "norelatime" => {}
            "strictatime" => self.atime = AtimeMode::On,
            "noatime" => self.atime = AtimeMode::Off,
            "relatime" => self.atime = AtimeMode::Relative,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "suid" | "setuid" => self.setuid = true,
            "nosuid" | "nosetuid" => self.setuid = false,
            "dev" | "devices" => self.devices = true,
            "nodev" | "nodevices" => self.devices = false,
            "xattr" => self.zpl.xattr = true,
            "noxattr" => self.zpl.xattr = false,
            "allow_other" => self.allow_other = true,
            "ring" => self.ring = true,
            "noring" => self.ring = false,
            _ => return Err(format!("unknown mount option '{word}'")),
        }
        Ok(())
    }

    /// The words of the mount table, for the properties that a mount overrides: options, and `acltype` where
    /// another session has to begin first.
    pub fn words(&self) -> Vec<String> {
        let word = |on: bool, name: &str| if on { name.to_owned() } else { format!("no{name}") };
        let mut words = vec![
            if self.writable { "rw".into() } else { "ro".into() },
            word(self.exec, "exec"),
            word(self.setuid, "suid"),
            word(self.devices, "dev"),
            word(self.atime != AtimeMode::Off, "atime"),
            word(self.zpl.xattr, "xattr"),
            match self.zpl.acl {
                AclType::Off => "noacl".into(),
                AclType::Posix => "posixacl".into(),
                AclType::Nfs4 => "nfs4acl".into(),
            },
        ];
        for (is_on, name) in [
            (self.sync_all, "sync"),
            (self.sync_names, "dirsync"),
            (!self.directories_accessed, "nodiratime"),
        ] {
            words.extend(is_on.then(|| name.to_owned()));
        }
        if self.atime != AtimeMode::Off {
            words.push(word(self.atime == AtimeMode::Relative, "relatime"));
        }
        words
    }

    /// The same for what never changes.
    pub(super) fn of_what_is_fixed(self) -> Self {
        Self { writable: false, atime: AtimeMode::Off, ..self }
    }

    /// Lets a filesystem that is written follow what the engine decides of it.
    pub(super) fn apply_to(&self, zpl: &LiveZpl) {
        zpl.set_record_size(self.record_bytes);
        zpl.set_dnode_slots(self.dnode_slots);
        zpl.set_atime(self.atime);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_override_properties_and_unknown_ones_are_refused() {
        let mut options = MountOptions::default();
        for word in ["noexec", "ro", "noatime"] {
            options.apply_word(word).unwrap();
        }
        assert_eq!(options.words()[..2], ["ro", "noexec"]);
        assert!(options.words().contains(&"noatime".to_owned()));
        assert!(options.apply_word("user_xattr2").is_err());
        assert!(!options.ring);
        assert!(!options.words().contains(&"sync".to_owned()));
        for word in ["sync", "dirsync", "nodiratime"] {
            options.apply_word(word).unwrap();
            assert!(options.words().contains(&word.to_owned()));
        }
        options.apply_word("ring").unwrap();
        assert!(options.ring);
        options.apply_word("noring").unwrap();
        assert!(!options.ring);
    }
}
