//! The target of an experiment.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Metric, Place};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::preflight::is_program;
use crate::size::Size;
use crate::target::export::Export;

/// The target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Target {
    /// Volumes of pools that the lab makes, over NBD, or from inside the process that has their pool open.
    Volume(Pools),
    /// Filesystems of such pools, mounted.
    Filesystem(Pools),
    /// Volumes of such pools, or images on their filesystems, as the disks of guests ([`crate::guest`]).
    Guest(Pools),
    /// A file, directory or block device.
    Path {
        /// Where.
        path: PathBuf,
        /// How much of it is used.
        size: Size,
        /// Whether what it holds may be overwritten.
        #[serde(default, skip_serializing_if = "is_not")]
        overwrite: bool,
    },
    /// An NBD export.
    Nbd {
        /// Its URI.
        uri: String,
        /// How much of it is used.
        size: Size,
        /// Whether what it holds may be overwritten.
        #[serde(default, skip_serializing_if = "is_not")]
        overwrite: bool,
    },
    /// A disk behind iSCSI.
    Iscsi {
        /// Its URI.
        uri: String,
        /// How much of it is used.
        size: Size,
        /// Whether what it holds may be overwritten.
        #[serde(default, skip_serializing_if = "is_not")]
        overwrite: bool,
    },
    /// Layers of a stack, each measured by itself: the factor `layer` has them.
    Layers {
        /// The layers, from the lowest to the highest.
        #[serde(rename = "layer")]
        layers: Vec<Layer>,
        /// How much of each is used.
        size: Size,
        /// Whether what they hold may be overwritten.
        #[serde(default, skip_serializing_if = "is_not")]
        overwrite: bool,
    },
    /// Volumes on a host that runs OpenZFS.
    Host {
        /// The dataset below which they are made, and removed afterwards.
        dataset: String,
        /// Size of a volume.
        size: Size,
    },
}

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

    fn is_uri(&self) -> bool {
        self.at.contains("://")
    }

    /// It in words: its name, and where it is.
    pub fn title(&self) -> String {
        let by = self.by.as_ref().map_or_else(String::new, |by| format!(" by '{}'", by.join(" ")));
        format!("layer '{}' ({}{by})", self.name, self.at)
    }

    /// The faults of its address.
    fn fault(&self) -> Option<String> {
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

/// How many bytes a file or device has.
fn length(path: &Path) -> Result<u64> {
    let file = File::open(path).map_err(Error::file(path))?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(|error| Error::file(path)(error.into()))
}

/// Says why a path cannot be measured, where it cannot.
fn require(path: &Path) -> Result<()> {
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

/// Pools that the lab makes, on files in the experiment's directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pools {
    /// Size of a volume, or of the file that is worked on.
    pub size: Size,
    /// The vdevs, where the setting `layout` says nothing: `mirror 2`, `raidz1 3` …, several with `+`.
    #[serde(default = "one_device")]
    pub layout: String,
    /// Size of each device's file; what the variants need twice, where left out.
    #[serde(default)]
    pub device_size: Option<Size>,
    /// The medium that the devices play, where the setting `devices` says nothing: `hdd-7200` and others,
    /// `hdd-7200+10%` for one that takes a tenth longer; real files where left out.
    #[serde(default)]
    pub devices: Option<String>,
    /// The link that clients are behind: `1gbe`, `10gbe`; none where left out.
    #[serde(default)]
    pub link: Option<String>,
    /// Disks or files of the user that the pools are made of, each pool of the first of them, in
    /// turns; files of the lab's where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<PathBuf>,
    /// Whether what these hold may be overwritten.
    #[serde(default, skip_serializing_if = "is_not")]
    pub overwrite: bool,
}

fn is_not(it: &bool) -> bool {
    !*it
}

fn one_device() -> String {
    "1".to_owned()
}

impl Target {
    /// Bytes that workloads use.
    pub fn size(&self) -> Size {
        match self {
            Self::Volume(pools) | Self::Filesystem(pools) | Self::Guest(pools) => pools.size,
            Self::Path { size, .. }
            | Self::Nbd { size, .. }
            | Self::Iscsi { size, .. }
            | Self::Layers { size, .. }
            | Self::Host { size, .. } => *size,
        }
    }

    /// The pools that are made for it.
    pub fn pools(&self) -> Option<&Pools> {
        match self {
            Self::Volume(pools) | Self::Filesystem(pools) | Self::Guest(pools) => Some(pools),
            _ => None,
        }
    }

    /// The user's disks that pools are made of.
    pub fn disks(&self) -> &[PathBuf] {
        self.pools().map_or(&[], |pools| &pools.disks)
    }

    /// The same, to be changed; nothing where no pools are made.
    pub fn disks_mut(&mut self) -> Option<&mut Vec<PathBuf>> {
        match self {
            Self::Volume(pools) | Self::Filesystem(pools) | Self::Guest(pools) => Some(&mut pools.disks),
            _ => None,
        }
    }

    /// Why it has no figure of a metric; nothing where it has.
    pub(super) fn has_no(&self, metric: Metric) -> Option<&'static str> {
        let is_of_server = matches!(
            metric,
            Metric::Cpu | Metric::Memory | Metric::Amplification | Metric::ReadAmplification
        );
        match self {
            Self::Volume(_) | Self::Filesystem(_) | Self::Guest(_) => None,
            Self::Host { .. } => is_of_server.then_some(
                "a host's kernel reports neither what it uses for one volume nor what it does to devices for \
                 it",
            ),
            _ if metric == Metric::Space => {
                Some("space on devices is only reported of volumes and filesystems")
            }
            _ => is_of_server.then_some(
                "the server of this target does not report that; the lab's own volumes and filesystems do",
            ),
        }
    }

    /// Whether variants can differ in a setting of `place`.
    pub fn has(&self, place: Place) -> bool {
        match self {
            _ if place == Place::Job => true,
            Self::Guest(_) => place != Place::Layer,
            Self::Volume(_) => place != Place::Guest,
            Self::Filesystem(_) => !matches!(place, Place::Way | Place::Guest),
            Self::Host { .. } => place == Place::Dataset,
            Self::Layers { .. } => place == Place::Layer,
            Self::Path { .. } | Self::Nbd { .. } | Self::Iscsi { .. } => false,
        }
    }

    /// Whether the experiment says that what a file or device holds may be overwritten.
    pub fn may_overwrite(&self) -> bool {
        match self {
            Self::Path { overwrite, .. }
            | Self::Nbd { overwrite, .. }
            | Self::Iscsi { overwrite, .. }
            | Self::Layers { overwrite, .. } => *overwrite,
            Self::Volume(pools) | Self::Filesystem(pools) | Self::Guest(pools) => pools.overwrite,
            Self::Host { .. } => false,
        }
    }

    /// The layers of a stack; none of any other target.
    pub fn layers(&self) -> &[Layer] {
        match self {
            Self::Layers { layers, .. } => layers,
            _ => &[],
        }
    }

    /// The same, to be changed.
    pub(super) fn layers_mut(&mut self) -> &mut [Layer] {
        match self {
            Self::Layers { layers, .. } => layers,
            _ => &mut [],
        }
    }

    /// The path that it is, where it is one.
    pub(super) fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Path { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The paths that are measured by themselves: of the target, or of its layers.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            Self::Path { path, .. } => vec![path],
            Self::Layers { layers, .. } => layers.iter().filter_map(Layer::path).collect(),
            _ => Vec::new(),
        }
    }

    /// The URIs of exports that are measured by themselves: of the target, or of its layers.
    pub fn uris(&self) -> Vec<&str> {
        match self {
            Self::Nbd { uri, .. } | Self::Iscsi { uri, .. } => vec![uri],
            Self::Layers { layers, .. } => layers.iter().filter_map(Layer::uri).collect(),
            _ => Vec::new(),
        }
    }

    /// The remote layers, with the commands that run shells there.
    pub fn elsewhere(&self) -> impl Iterator<Item = &Layer> {
        self.layers().iter().filter(|layer| layer.by.is_some())
    }

    /// The faults of its layers' addresses, on any machine.
    pub(super) fn faults_of_layers(&self) -> Vec<String> {
        self.layers().iter().filter_map(Layer::fault).collect()
    }

    /// The faults of its URIs, on any machine.
    pub(super) fn faults_of_uris(&self) -> Vec<String> {
        let fault = |uri: &&str| match (Export::parse(uri), self) {
            (Err(what), _) => Some(format!("target: {what}")),
            (Ok(export), Self::Nbd { .. }) if export.is_iscsi() => {
                Some(format!("target: '{uri}' is a disk behind iSCSI: kind = \"iscsi\""))
            }
            (Ok(export), Self::Iscsi { .. }) if !export.is_iscsi() => {
                Some(format!("target: '{uri}' is an NBD export: kind = \"nbd\""))
            }
            _ => None,
        };
        self.uris().iter().filter_map(fault).collect()
    }

    /// Says which of its paths cannot be measured, where one cannot, before anything is made.
    ///
    /// A name below `/dev` that does not exist is a device that is not there: a file made in its place would
    /// be in memory. So is where a link leads that leads nowhere.
    pub fn require_paths(&self) -> Result<()> {
        self.paths().into_iter().try_for_each(require)
    }

    /// The same of one of them.
    pub(crate) fn require_path(&self, path: &Path) -> Result<()> {
        require(path)
    }

    /// Whether workloads that only read find data that the lab did not write, which is not to be written: of
    /// a directory, only files of the lab's own in it are read.
    pub(crate) fn is_as_found(&self) -> bool {
        match self {
            Self::Path { path, .. } => !path.is_dir(),
            Self::Nbd { .. } | Self::Iscsi { .. } | Self::Layers { .. } => true,
            Self::Volume(_) | Self::Filesystem(_) | Self::Guest(_) | Self::Host { .. } => false,
        }
    }

    /// Says that a file or device which is only read has fewer bytes than are to be read, where that is so.
    pub(crate) fn require_length(&self, path: &Path) -> Result<()> {
        let length = length(path)?;
        if length >= self.size().0 {
            return Ok(());
        }
        Err(Error::Experiment(format!(
            "target {} has {length} bytes, fewer than its size of {}, and no workload writes to it, so it is \
             not extended: make `size` smaller",
            path.display(),
            self.size()
        )))
    }

    /// Says that a device which is written has fewer bytes than are to be used, where that is so. A file is
    /// made as long as it must be.
    pub(crate) fn require_device_length(&self, path: &Path) -> Result<()> {
        let is_device = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device());
        if !is_device {
            return Ok(());
        }
        let length = length(path)?;
        if length >= self.size().0 {
            return Ok(());
        }
        Err(Error::Experiment(format!(
            "target {} has {length} bytes, fewer than its size of {}: make `size` smaller",
            path.display(),
            self.size()
        )))
    }

    /// Whether workloads can make files in it.
    pub fn holds_files(&self) -> bool {
        match self {
            Self::Filesystem(_) => true,
            Self::Path { path, .. } => path.is_dir(),
            _ => false,
        }
    }
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
