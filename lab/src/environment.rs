//! The machine that figures belong to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::medium::Medium;
use crate::subprocess::output;

/// Facts about a machine that a reader needs to judge figures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Environment {
    /// The processor's name.
    pub cpu: String,
    /// Processors that programs may use.
    pub cores: usize,
    /// Instructions that storage uses, of those that the processor has.
    pub cpu_flags: Vec<String>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's version.
    pub kernel: String,
    /// The frequency governors of its processors, where there are some: one, or how many have which.
    pub governor: Option<String>,
    /// The load averages of one, five and fifteen minutes when the experiment began.
    #[serde(default)]
    pub load: Option<String>,
    /// Whether this is a virtual machine, according to the processor.
    pub is_virtual: bool,
    /// Versions of OpenZFS, its commands' and its kernel module's, where that is measured.
    #[serde(default)]
    pub openzfs: Vec<String>,
    /// Bytes that its cache may take.
    #[serde(default)]
    pub arc_max_bytes: Option<u64>,
    /// The target, and its medium.
    #[serde(default)]
    pub media: Vec<(PathBuf, Medium)>,
    /// The machines of remote layers, by the layers' names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub guests: BTreeMap<String, RemoteMachine>,
    /// Version of this program.
    pub version: String,
}

/// Another machine, on which a layer of a stack is: a guest, a container, another host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RemoteMachine {
    /// The command that runs a shell there.
    pub by: Vec<String>,
    /// The processor's name.
    pub cpu: String,
    /// Processors that programs may use; 0 if unknown.
    pub cores: usize,
    /// Instructions that storage uses, of those that its processor has.
    pub cpu_flags: Vec<String>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's version.
    pub kernel: String,
    /// Whether it is a virtual machine, according to its processor.
    pub is_virtual: bool,
    /// The version of its fio.
    pub fio: String,
}

impl RemoteMachine {
    /// Instructions that `host` has and it has not; none if that is unknown.
    pub fn lacks<'a>(&self, host: &'a Environment) -> Vec<&'a str> {
        if self.cpu.is_empty() && self.cpu_flags.is_empty() {
            return Vec::new();
        }
        let is_lacking = |flag: &&String| !self.cpu_flags.contains(flag);
        host.cpu_flags.iter().filter(is_lacking).map(String::as_str).collect()
    }
}

/// Instructions that make checksums, parity and encryption fast.
const FLAGS: [&str; 16] = [
    "aes",
    "pclmulqdq",
    // Of ARM.
    "pmull",
    "sha2",
    "sha3",
    "sha512",
    "vaes",
    "vpclmulqdq",
    "sha_ni",
    "ssse3",
    "avx",
    "avx2",
    "avx512f",
    "avx512bw",
    "gfni",
    "bmi2",
];

/// Vendor names of virtual machines.
const VIRTUAL_MAKERS: [&str; 5] = ["QEMU", "KVM", "VMware", "Xen", "innotek"];

impl Environment {
    /// That of this machine. What cannot be found out is empty.
    pub fn of_this_machine() -> Self {
        Self::of(&Machine::default())
    }

    /// The same of a machine.
    pub fn of(machine: &Machine) -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            governor: machine.governor(),
            load: machine.load(),
            ..Self::of_files(&|path| machine.read(path))
        }
    }

    /// What files below `/proc` and `/sys` report about their machine, each read by its path
    /// without the first slash.
    pub(crate) fn of_files(read: &dyn Fn(&str) -> Option<String>) -> Self {
        let cpuinfo = read("proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line =
                cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
            line.and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        // ARM calls them features.
        let flags = [field("flags"), field("Features")].join(" ");
        let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
        let meminfo = read("proc/meminfo").unwrap_or_default();
        let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib: u64 = kib
            .and_then(|line| line.split_whitespace().next())
            .and_then(|word| word.parse().ok())
            .unwrap_or(0);
        // Processors of ARM do not tell it.
        let maker = read("sys/class/dmi/id/sys_vendor").unwrap_or_default();
        let is_guest = VIRTUAL_MAKERS.iter().any(|virtual_maker| maker.starts_with(virtual_maker));
        Self {
            cpu: field("model name"),
            cpu_flags: FLAGS.iter().filter(|flag| has(flag)).map(|flag| (*flag).to_owned()).collect(),
            memory_bytes: kib << 10,
            kernel: read("proc/sys/kernel/osrelease").unwrap_or_default(),
            is_virtual: has("hypervisor") || is_guest,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Self::default()
        }
    }

    /// With the versions of this host's OpenZFS, as `zfs` prints them, and the limit of its cache.
    #[must_use]
    pub fn with_openzfs(mut self) -> Self {
        // Where it cannot be run, the experiment will tell why.
        let told = output(Command::new("zfs").arg("version")).unwrap_or_default();
        self.openzfs =
            told.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
        let arc = fs::read_to_string("/proc/spl/kstat/zfs/arcstats").unwrap_or_default();
        let most = arc.lines().map(str::split_whitespace).find_map(|mut words| {
            (words.next() == Some("c_max")).then(|| words.next_back().and_then(|bytes| bytes.parse().ok()))
        });
        self.arc_max_bytes = most.flatten();
        self
    }

    /// With what a path lies on, or where it does not exist yet the directory that it will be in.
    #[must_use]
    pub fn with(mut self, path: &Path) -> Self {
        if let Some(exists) = path.ancestors().find(|path| path.exists()) {
            self.media.push((path.to_owned(), Medium::of(exists)));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_of_arm_too_and_older_results_stay_readable() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        std::fs::create_dir_all(root.path().join("sys/class/dmi/id")).unwrap();
        let write = |cpuinfo: &str| std::fs::write(root.path().join("proc/cpuinfo"), cpuinfo).unwrap();
        write("processor\t: 0\nFeatures\t: fp asimd aes pmull sha2 atomics\n");
        std::fs::write(root.path().join("sys/class/dmi/id/sys_vendor"), "QEMU\n").unwrap();
        let of = || Environment::of(&Machine::below(root.path()));
        assert_eq!(
            (of().cpu_flags, of().is_virtual),
            (vec!["aes".into(), "pmull".into(), "sha2".into()], true)
        );
        write("processor\t: 0\nflags\t\t: fpu avx2 hypervisor\n");
        assert_eq!(of().cpu_flags, ["avx2"]);
        let mut old = serde_json::to_value(Environment::default()).unwrap();
        old.as_object_mut().unwrap().remove("load");
        assert!(old.get("guests").is_none());
        assert_eq!(serde_json::from_value::<Environment>(old).unwrap(), Environment::default());
    }

    #[test]
    fn what_a_guest_lacks_of_its_host_is_known_where_it_tells_what_it_has() {
        let flags = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let host = Environment { cpu_flags: flags("aes avx2 bmi2"), ..Environment::default() };
        let guest = |cpu: &str, has: &str| RemoteMachine {
            cpu: cpu.into(),
            cpu_flags: flags(has),
            ..RemoteMachine::default()
        };
        assert_eq!(guest("QEMU Virtual CPU", "bmi2").lacks(&host), ["aes", "avx2"]);
        assert!(guest("x", "aes avx2 bmi2 gfni").lacks(&host).is_empty());
        assert!(guest("", "").lacks(&host).is_empty());
    }

    #[test]
    fn what_does_not_exist_yet_lies_where_its_directory_does() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let environment = Environment::default().with(&path);
        assert_eq!(environment.media, [(path, Medium::of(directory.path()))]);
        let json = serde_json::to_string(&environment).unwrap();
        assert_eq!(serde_json::from_str::<Environment>(&json).unwrap(), environment);
    }
}
