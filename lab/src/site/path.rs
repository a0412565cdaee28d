//! A file, directory or block device.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Facts, Kind, Named, Site, Used, Words, is_not, make_absolute};
use crate::design::Design;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::reference::{OVERWRITE, SIZE, TableOf, key};
use crate::size::Size;
use crate::subprocess::is_program;

/// A file, directory or block device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtPath {
    /// Where.
    pub path: PathBuf,
    /// How much of it is used.
    pub size: Size,
    /// Whether what it holds may be overwritten.
    #[serde(default, skip_serializing_if = "is_not")]
    pub overwrite: bool,
}

pub(super) const KIND: Kind = Kind {
    name: "path",
    tables: &[TableOf {
        head: "[target] kind = \"path\"",
        about: "A file (made if it is missing), a file in a directory, or a block device. A target that no \
            workload writes is only read",
        keys: &[key("path", "a path", None, "\"/dev/sdx\"", "Its address; required"), SIZE, OVERWRITE],
    }],
    words: Some(Words {
        about: "a path that begins with / or ./",
        fields: |text| (text.starts_with('/') || text.starts_with("./")).then(|| vec![("path", text)]),
    }),
};

const FACTS: Facts = Facts {
    no_limit: Some("the file or device itself is measured, and nothing of the lab lies below it"),
    ..Facts::NAMED
};

impl Site for AtPath {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn used(&self) -> Used {
        Used { size: self.size, overwrite: self.overwrite }
    }

    fn named(&self) -> Vec<Named<'_>> {
        vec![Named::Path(&self.path)]
    }

    fn make_absolute(&mut self) -> Result<()> {
        make_absolute(&mut self.path)
    }

    /// Of a directory, only files of the lab's own in it are read.
    fn is_as_found(&self) -> bool {
        !self.path.is_dir()
    }

    fn holds_files(&self) -> bool {
        self.path.is_dir()
    }

    fn described(&self, _: Design<'_>) -> String {
        format!("Measured was {} of {}.", self.size, self.path.display())
    }
}

/// How many bytes a file or device has.
fn length(path: &Path) -> Result<u64> {
    let file = File::open(path).map_err(Error::file(path))?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(|error| Error::file(path)(error.into()))
}

/// Says why a path cannot be measured, where it cannot, before anything is made.
///
/// A name below `/dev` that does not exist is a device that is not there: a file made in its place would be
/// in memory. So is where a link leads that leads nowhere.
pub(crate) fn require(path: &Path) -> Result<()> {
    let refused = |what: &str| Err(Error::Experiment(format!("target {}: {what}", path.display())));
    if let Ok(metadata) = fs::metadata(path) {
        let kind = metadata.file_type();
        return match kind.is_file() || kind.is_dir() || kind.is_block_device() {
            true => Ok(()),
            false => refused("it is not a file, directory or block device"),
        };
    }
    if fs::symlink_metadata(path).is_ok() {
        return refused("it is a link that leads nowhere");
    }
    let exists = path.ancestors().skip(1).find_map(|above| fs::canonicalize(above).ok());
    if path.starts_with("/dev") || exists.is_some_and(|above| above.starts_with("/dev")) {
        let what = "there is no such device (`lsblk` lists the devices)".to_owned();
        let needs = needs(path, &Machine::default(), &is_program);
        return refused(&needs.map_or(what.clone(), |needs| format!("{what}; {needs}")));
    }
    Ok(())
}

/// What makes devices of a kind: how their paths begin, what the kernel calls their driver, the program, and
/// how it is called.
const MAKERS: [(&str, &str, &str, &str); 3] = [
    (
        "/dev/mapper/",
        "device-mapper",
        "cryptsetup",
        "`cryptsetup open DEVICE NAME` makes it of an encrypted device",
    ),
    (
        "/dev/nbd",
        "nbd",
        "nbd-client",
        "`nbd-client -N EXPORT -unix SOCKET PATH` makes it of an export, which may also be measured by its \
         URI",
    ),
    ("/dev/zvol/", "zvol", "zfs", "OpenZFS's kernel module makes it of a volume"),
];

/// What has to be done for a device of a layer that is not there, and what of that this machine does not
/// have.
fn needs(path: &Path, machine: &Machine, is_program: &dyn Fn(&str) -> bool) -> Option<String> {
    let text = path.to_str()?;
    let (_, driver, program, how) = MAKERS.into_iter().find(|(prefix, ..)| text.starts_with(prefix))?;
    let drivers = machine.read("proc/devices").unwrap_or_default();
    let has_driver = drivers.lines().any(|line| line.split_whitespace().nth(1) == Some(driver));
    let missing = [
        (!has_driver)
            .then(|| format!("the kernel has no driver '{driver}' here, or has not loaded it (modprobe)")),
        (!is_program(program)).then(|| format!("{program} is not on the PATH")),
    ];
    let missing: Vec<String> = missing.into_iter().flatten().collect();
    let missing =
        if missing.is_empty() { String::new() } else { format!("; but {}", missing.join(", and ")) };
    Some(format!("{how}{missing}"))
}

/// Says that a file or device which is only read has fewer bytes than are to be read, where that is so.
pub(crate) fn require_length(path: &Path, size: Size) -> Result<()> {
    let length = length(path)?;
    if length >= size.0 {
        return Ok(());
    }
    Err(Error::Experiment(format!(
        "target {} has {length} bytes, fewer than its size of {size}, and no workload writes to it, so it is \
         not extended: make `size` smaller",
        path.display()
    )))
}

/// Says that a device which is written has fewer bytes than are to be used, where that is so. A file is made
/// as long as it must be.
pub(crate) fn require_device_length(path: &Path, size: Size) -> Result<()> {
    let is_device = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device());
    if !is_device {
        return Ok(());
    }
    let length = length(path)?;
    if length >= size.0 {
        return Ok(());
    }
    Err(Error::Experiment(format!(
        "target {} has {length} bytes, fewer than its size of {size}: make `size` smaller",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_layer_needs_that_is_not_there_is_told() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        let told = |path: &str, devices: &str, has_program: bool| {
            fs::write(root.path().join("proc/devices"), devices).unwrap();
            needs(Path::new(path), &Machine::below(root.path()), &|_| has_program)
        };
        let crypt = told("/dev/mapper/secret", "Block devices:\n253 virtblk\n", false).unwrap();
        for named in ["cryptsetup open", "no driver 'device-mapper'", "cryptsetup is not on the PATH"] {
            assert!(crypt.contains(named), "{crypt}");
        }
        let crypt = told("/dev/mapper/secret", "Block devices:\n252 device-mapper\n", true).unwrap();
        assert!(!crypt.contains("but"), "{crypt}");
        assert!(told("/dev/nbd3", "", true).unwrap().contains("no driver 'nbd'"));
        assert_eq!(told("/dev/sdx", "", false), None);
    }

    #[test]
    fn a_device_that_is_not_there_is_no_file_to_be_made() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "x").unwrap();
        for (link, to) in [("nowhere", "/no/such"), ("link", "file"), ("dev", "/dev")] {
            std::os::unix::fs::symlink(to, at(link)).unwrap();
        }
        for right in [at("file"), at("link"), at("new"), at("new/below"), directory.path().to_owned()] {
            require(&right).unwrap();
        }
        for (wrong, named) in [
            ("/dev/no-such-disk".into(), "no such device"),
            ("/dev/mapper/no/such".into(), "no such device"),
            (at("dev/no-such-disk"), "no such device"),
            ("/dev/null".into(), "not a file, directory or block device"),
            (at("nowhere"), "leads nowhere"),
        ] {
            let error = require(&wrong).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains(wrong.to_str().unwrap()), "{error}");
        }
    }
}
