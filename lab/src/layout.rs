//! Layouts of pools as users write them: `mirror 2 + mirror 2`, `raidz2 6`, `draid2:4d:1s 11`, `4`.
//!
//! Each part is a top-level vdev, its type and its devices; a number alone means so many vdevs of one device
//! each. The type is what `zpool create` takes.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, Result};

/// Devices that a layout may have.
const MOST_DEVICES: u64 = 255;
/// Data columns of a dRAID group where it does not say, as far as there are children.
const DRAID_DATA: u64 = 8;

/// The kind of a vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Vdev {
    /// One device.
    Disk,
    /// Each device has everything.
    Mirror {
        /// How many.
        ways: u64,
    },
    /// Blocks are spread over all devices, with parity.
    Raidz {
        /// How many may fail.
        parity: u64,
        /// How many there are.
        width: u64,
    },
    /// Groups of data and parity are spread over more devices, with room for spares on all of them.
    Draid {
        /// How many may fail.
        parity: u64,
        /// Data columns of a group.
        data: u64,
        /// Devices.
        children: u64,
        /// Devices' worth of spare room.
        spares: u64,
    },
}

impl Vdev {
    /// How many devices it has.
    pub fn devices(self) -> u64 {
        match self {
            Self::Disk => 1,
            Self::Mirror { ways } => ways,
            Self::Raidz { width, .. } => width,
            Self::Draid { children, .. } => children,
        }
    }

    /// How many of them may fail at once.
    pub fn tolerance(self) -> u64 {
        match self {
            Self::Disk => 0,
            Self::Mirror { ways } => ways - 1,
            Self::Raidz { parity, .. } | Self::Draid { parity, .. } => parity,
        }
    }

    /// How often it has everything: parity is no copy.
    pub fn copies(self) -> u64 {
        match self {
            Self::Mirror { ways } => ways,
            Self::Disk | Self::Raidz { .. } | Self::Draid { .. } => 1,
        }
    }

    /// The share of its space that is data, were there no rounding.
    pub fn ideal(self) -> f64 {
        match self {
            Self::Disk => 1.0,
            Self::Mirror { ways } => 1.0 / ways as f64,
            Self::Raidz { parity, width } => (width - parity) as f64 / width as f64,
            Self::Draid { parity, data, children, spares } => {
                data as f64 / (data + parity) as f64 * (children - spares) as f64 / children as f64
            }
        }
    }

    /// Its type, as `zpool create` takes it; none for a single device.
    pub fn keyword(self) -> Option<String> {
        match self {
            Self::Disk => None,
            Self::Mirror { .. } => Some("mirror".to_owned()),
            Self::Raidz { parity, .. } => Some(format!("raidz{parity}")),
            Self::Draid { parity, data, children, spares } => {
                Some(format!("draid{parity}:{data}d:{children}c:{spares}s"))
            }
        }
    }

    fn parse(kind: &str, devices: u64) -> Option<Self> {
        if kind == "mirror" {
            return (devices >= 2).then_some(Self::Mirror { ways: devices });
        }
        let parity_of = |digits: &str| match digits {
            "" => Some(1),
            digits => digits.parse().ok().filter(|parity| (1..=3).contains(parity)),
        };
        if let Some(digits) = kind.strip_prefix("raidz") {
            let parity = parity_of(digits)?;
            return (devices > parity).then_some(Self::Raidz { parity, width: devices });
        }
        let mut parts = kind.strip_prefix("draid")?.split(':');
        let parity = parity_of(parts.next()?)?;
        let (mut data, mut spares) = (None, 0);
        for part in parts {
            let number = |unit| part.strip_suffix(unit).and_then(|digits: &str| digits.parse::<u64>().ok());
            match (number('d'), number('c'), number('s')) {
                (Some(count), _, _) => data = Some(count),
                (_, Some(count), _) if count == devices => {}
                (_, _, Some(count)) => spares = count,
                _ => return None,
            }
        }
        let most = devices.checked_sub(spares)?.checked_sub(parity)?;
        let data = data.unwrap_or(most.min(DRAID_DATA));
        (data >= 1 && data <= most).then_some(Self::Draid { parity, data, children: devices, spares })
    }
}

/// The vdevs of a pool that hold its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Layout {
    vdevs: Vec<Vdev>,
}

impl Layout {
    /// The vdevs, at least one.
    pub fn vdevs(&self) -> &[Vdev] {
        &self.vdevs
    }

    /// Devices in all.
    pub fn devices(&self) -> u64 {
        self.vdevs.iter().map(|vdev| vdev.devices()).sum()
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::Experiment(format!(
                "layout '{text}': write for example '1', 'mirror 2 + mirror 2', 'raidz1 3' or 'draid2:4d:1s \
                 11'"
            ))
        };
        let mut vdevs = Vec::new();
        let mut devices = 0;
        for part in text.split('+') {
            let words: Vec<&str> = part.split_whitespace().collect();
            let (kind, count) = match words.as_slice() {
                [count] => (None, count),
                [kind, count] => (Some(*kind), count),
                _ => return Err(wrong()),
            };
            let count: u64 = count.parse().map_err(|_| wrong())?;
            devices += count;
            if count == 0 || count > MOST_DEVICES || devices > MOST_DEVICES {
                return Err(wrong());
            }
            match kind {
                None => vdevs.extend((0..count).map(|_| Vdev::Disk)),
                Some(kind) => vdevs.push(Vdev::parse(kind, count).ok_or_else(wrong)?),
            }
        }
        Ok(Self { vdevs })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let single = self.vdevs.iter().filter(|vdev| **vdev == Vdev::Disk).count();
        let mut parts: Vec<String> = self
            .vdevs
            .iter()
            .filter_map(|vdev| Some(format!("{} {}", vdev.keyword()?, vdev.devices())))
            .collect();
        if single > 0 {
            parts.push(single.to_string());
        }
        f.write_str(&parts.join(" + "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdevs(text: &str) -> Vec<Vdev> {
        text.parse::<Layout>().unwrap().vdevs
    }

    #[test]
    fn layouts_are_vdevs_with_their_devices() {
        let mirror = Vdev::Mirror { ways: 2 };
        assert_eq!(vdevs("3"), [Vdev::Disk; 3]);
        assert_eq!(vdevs("mirror 2 + mirror 2"), [mirror, mirror]);
        assert_eq!(vdevs("raidz 3"), [Vdev::Raidz { parity: 1, width: 3 }]);
        let draid = Vdev::Draid { parity: 2, data: 4, children: 11, spares: 1 };
        assert_eq!(vdevs("draid2:4d:1s 11"), [draid]);
        assert_eq!(vdevs("draid2:4d:11c:1s 11"), [draid]);
        assert_eq!(vdevs("draid 4"), [Vdev::Draid { parity: 1, data: 3, children: 4, spares: 0 }]);
        for text in ["mirror 2 + raidz1 3", "2", "draid2:4d:11c:1s 11", "raidz3 8 + 2"] {
            assert_eq!(text.parse::<Layout>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_layout_is_refused() {
        for wrong in [
            "",
            "mirror",
            "mirror 0",
            "mirror 1",
            "mirror two",
            "a b c",
            "a 2",
            "256",
            "mirror 200 + mirror 200",
            "raidz4 8",
            "raidz2 2",
            "raidz0 3",
            "draid2:4d:7c 8",
            "draid1:9d 8",
            "draid1:2x 8",
            "draid9 20",
            "2 +",
        ] {
            assert!(wrong.parse::<Layout>().is_err(), "{wrong}");
        }
    }
}
