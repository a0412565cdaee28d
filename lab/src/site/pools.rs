//! Pools that the lab makes: what volumes, filesystems and guests have in common.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Used, is_not};
use crate::design::Design;
use crate::reference::{Key, OVERWRITE, SIZE, key};
use crate::size::Size;

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

fn one_device() -> String {
    "1".to_owned()
}

/// Their keys of the reference.
pub(super) const POOL_KEYS: [Key; 7] = [
    SIZE,
    key(
        "layout",
        "vdevs",
        Some("\"1\""),
        "\"mirror 2 + mirror 2\"",
        "The pool's vdevs: 1, mirror 2, raidz1 3, draid2:4d:1s 11, several with +",
    ),
    key(
        "device_size",
        "a size",
        None,
        "\"1G\"",
        "Size of each device's file; by default twice what the variants need",
    ),
    key(
        "devices",
        "a medium",
        None,
        "\"hdd-7200+10%\"",
        "The medium that the files play, here a tenth slower; by default real files",
    ),
    key(
        "link",
        "a link",
        None,
        "\"1gbe\"",
        "The link between clients and pool: 1gbe, 10gbe; by default none",
    ),
    key(
        "disks",
        "paths",
        Some("[]"),
        "[\"/dev/sdx\", \"/dev/sdy\"]",
        "Disks or files for the pools, each pool on the first of them, in turns; by default files of the lab",
    ),
    OVERWRITE,
];

/// What every site does alike that is a wrapper of [`Pools`]: for its implementation of [`super::Site`].
macro_rules! of_pools {
    () => {
        fn used(&self) -> $crate::site::Used {
            self.0.used()
        }

        fn pools(&self) -> Option<&$crate::site::Pools> {
            Some(&self.0)
        }

        fn pools_mut(&mut self) -> Option<&mut $crate::site::Pools> {
            Some(&mut self.0)
        }
    };
}
pub(super) use of_pools;

impl Pools {
    pub(super) fn used(&self) -> Used {
        Used { size: self.size, overwrite: self.overwrite }
    }

    /// Them in words: on what something lies.
    pub(super) fn described(&self, design: Design<'_>) -> String {
        let one = |layout: &str| if layout == "1" { "one device".to_owned() } else { layout.to_owned() };
        let layouts = design.compared("layout").unwrap_or_else(|| vec![&self.layout]);
        let layouts: Vec<String> = layouts.into_iter().map(one).collect();
        let devices = match (self.disks.len(), design.compared("devices"), &self.devices) {
            (0, Some(models), _) => format!("files that play {}", models.join(" or ")),
            (0, None, Some(model)) => format!("files that play {model}"),
            (0, None, None) => "files".to_owned(),
            (count, ..) => format!("the first of {count} disks that were named"),
        };
        let link = self.link.as_ref().map_or_else(String::new, |link| format!(", behind a link of {link}"));
        format!("in a pool of {}, on {devices}{link}", layouts.join(" or "))
    }
}
