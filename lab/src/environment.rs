//! The machine that figures belong to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::medium::Medium;
use crate::target::output;

/// What a reader must know of a machine to judge figures.
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
    /// The frequency governor, where there is one.
    pub governor: Option<String>,
    /// Whether this is a virtual machine, as far as the processor tells.
    pub is_virtual: bool,
    /// Versions of OpenZFS, its commands' and its kernel module's, where that is measured.
    #[serde(default)]
    pub openzfs: Vec<String>,
    /// Bytes that its cache may take.
    #[serde(default)]
    pub arc_max_bytes: Option<u64>,
    /// What is measured, and what it lies on.
    #[serde(default)]
    pub media: Vec<(PathBuf, Medium)>,
    /// Version of this program.
    pub version: String,
}

/// Instructions that make checksums, parity and encryption fast.
const FLAGS: [&str; 12] = [
    "aes",
    "pclmulqdq",
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

impl Environment {
    /// That of this machine. What cannot be found out is empty.
    pub fn of_this_machine() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line =
                cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
            line.and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let flags = field("flags");
        let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib: u64 = kib
            .and_then(|line| line.split_whitespace().next())
            .and_then(|word| word.parse().ok())
            .unwrap_or(0);
        let one_line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        Self {
            cpu: field("model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_flags: FLAGS.iter().filter(|flag| has(flag)).map(|flag| (*flag).to_owned()).collect(),
            memory_bytes: kib << 10,
            kernel: one_line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            governor: one_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            is_virtual: has("hypervisor"),
            openzfs: Vec::new(),
            arc_max_bytes: None,
            media: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// With the versions of this host's OpenZFS, as `zfs` tells them, and the limit of its cache.
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
    fn what_does_not_exist_yet_lies_where_its_directory_does() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let environment = Environment::default().with(&path);
        assert_eq!(environment.media, [(path, Medium::of(directory.path()))]);
        let json = serde_json::to_string(&environment).unwrap();
        assert_eq!(serde_json::from_str::<Environment>(&json).unwrap(), environment);
    }
}
