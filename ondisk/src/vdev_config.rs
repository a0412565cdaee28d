//! Pool configuration: the vdev tree and what a pool says about itself, from a label or from the MOS.
//!
//! Each label holds a packed nvlist with the identity of the pool and the tree of the one top-level vdev that
//! the device belongs to. The MOS holds the configuration of the whole pool; a label tells just enough to
//! read it. Labels of spares and cache devices carry no pool at all.
//!
//! Names are those of OpenZFS's `ZPOOL_CONFIG_*`. What is absent is `None` or its default; an unknown name is
//! kept in [`PoolConfig::raw`] and otherwise ignored. The tree is bounded in depth and in number of vdevs,
//! and a parsed [`VdevConfig`] is consistent in itself: parity and data columns fit the number of children,
//! leaves have no children, shifts can be shifted by.
//!
//! | list | names, each a u64 unless stated |
//! |---|---|
//! | pool | `version`, `state`, `name` (text), `pool_guid`, `txg`, `hostid`, `hostname` (text), `errata`, `comment`, `compatibility` (texts), `vdev_tree` (list) |
//! | pool, in a label | `top_guid`, `guid`, `vdev_children`, `hole_array` (array), `is_spare`, `is_log`, `create_txg`, `features_for_read` (list of names), `split_guid`, `splitcfg` (list) |
//! | vdev | `type` (text), `id`, `guid`, `create_txg`, `children` (lists), `DTL`, `com.delphix:vdev_zap_leaf`, `_top`; of the root `com.klarasystems:vdev_zap_root` |
//! | top-level vdev | `metaslab_array`, `metaslab_shift`, `ashift`, `asize`, `is_log`, `alloc_bias` (text), `removing`, `non_allocating`, `com.delphix:indirect_object`, `indirect_births`, `prev_indirect_vdev` |
//! | raidz, draid | `nparity`; `raidz_expanding`, `raidz_expand_txgs` (array); `draid_ndata`, `draid_nspares`, `draid_ngroups` |
//! | leaf | `path`, `devid`, `phys_path`, `vdev_enc_sysfs_path` (texts), `whole_disk`, `not_present`, `offline`, `faulted`, `degraded`, `removed`, `aux_state` (text), `resilver_txg`, `rebuild_txg` |
//!
//! Source: OpenZFS 2.3 `fs/zfs.h`, `vdev_label.c`, `spa_config.c`, `vdev_raidz.c`, `vdev_draid.c`.

use crate::nvlist::{ByteString, NvValue, Nvlist};
use crate::{Asize, Error, Guid, ObjectId, Result, Txg, VdevId};

const WHAT: &str = "vdev configuration";
/// Deepest vdev tree that is accepted, the root included.
const MAX_DEPTH: usize = 16;
/// Most vdevs that a tree may have.
const MAX_VDEVS: usize = 1 << 16;
/// Largest sector shift that OpenZFS supports.
const MAX_ASHIFT: u64 = 16;

/// The kind of a vdev in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VdevKind {
    /// The pool: its children are the top-level vdevs.
    Root,
    /// A block device.
    Disk,
    /// A regular file.
    File,
    /// Copies on all children.
    Mirror,
    /// A mirror of an old device and its successor during resilver.
    Replacing,
    /// A mirror of a device and the hot spare that replaces it.
    Spare,
    /// Rotating parity.
    Raidz {
        /// Parity columns, 1 to 3.
        nparity: u8,
        /// An expansion is in progress.
        expanding: bool,
        /// Txgs at which expansions completed, oldest first.
        expand_txgs: Vec<Txg>,
    },
    /// Declustered parity.
    Draid {
        /// Parity columns of a group, 1 to 3.
        nparity: u8,
        /// Data columns of a group.
        ndata: u8,
        /// Distributed spares.
        nspares: u8,
        /// Groups that make up one slice.
        ngroups: u8,
    },
    /// A distributed spare of a draid vdev.
    DraidSpare {
        /// Guid of the draid vdev.
        top_guid: Guid,
        /// Which of its spares.
        spare_id: u64,
    },
    /// A removed top-level vdev, whose blocks were moved elsewhere.
    Indirect,
    /// The place of a removed log device.
    Hole,
    /// A top-level vdev of which no label was found.
    Missing,
}

impl VdevKind {
    /// The type's name in the configuration.
    pub const fn type_name(&self) -> &'static str {
        match self {
            VdevKind::Root => "root",
            VdevKind::Disk => "disk",
            VdevKind::File => "file",
            VdevKind::Mirror => "mirror",
            VdevKind::Replacing => "replacing",
            VdevKind::Spare => "spare",
            VdevKind::Raidz { .. } => "raidz",
            VdevKind::Draid { .. } => "draid",
            VdevKind::DraidSpare { .. } => "dspare",
            VdevKind::Indirect => "indirect",
            VdevKind::Hole => "hole",
            VdevKind::Missing => "missing",
        }
    }

    /// The vdev has no children.
    pub const fn is_leaf(&self) -> bool {
        use VdevKind::*;
        matches!(self, Disk | File | DraidSpare { .. } | Indirect | Hole | Missing)
    }

    fn parse(list: &Nvlist, children: usize) -> Result<VdevKind> {
        let small = |name: &str, range: std::ops::RangeInclusive<u64>| -> Result<u8> {
            let value = list.get_u64(name)?;
            if !range.contains(&value) {
                return Err(Error::invalid(WHAT, format!("{name} is {value}")));
            }
            u8::try_from(value).map_err(|_| Error::invalid(WHAT, format!("{name} is {value}")))
        };
        Ok(match list.get_str("type")? {
            "root" => VdevKind::Root,
            "disk" => VdevKind::Disk,
            "file" => VdevKind::File,
            "mirror" => VdevKind::Mirror,
            "replacing" => VdevKind::Replacing,
            "spare" => VdevKind::Spare,
            "raidz" => {
                // The first pools had single parity only and did not say so.
                let nparity = if list.contains("nparity") { small("nparity", 1..=3)? } else { 1 };
                let expand_txgs: Vec<Txg> = list
                    .find_u64_array("raidz_expand_txgs")
                    .unwrap_or_default()
                    .iter()
                    .map(|txg| Txg(*txg))
                    .collect();
                let expanding = list.contains("raidz_expanding");
                let added = expand_txgs.len() + usize::from(expanding);
                if children.saturating_sub(added) <= usize::from(nparity) || children > 255 {
                    return Err(Error::invalid(
                        WHAT,
                        format!("raidz{nparity} of {children} children, {added} of them added"),
                    ));
                }
                VdevKind::Raidz { nparity, expanding, expand_txgs }
            }
            "draid" => {
                let nparity = small("nparity", 1..=3)?;
                let ndata = small("draid_ndata", 1..=255)?;
                let nspares = small("draid_nspares", 0..=100)?;
                let ngroups = small("draid_ngroups", 1..=255)?;
                let needed = usize::from(nparity) + usize::from(ndata) + usize::from(nspares);
                if children < needed || children > 255 {
                    return Err(Error::invalid(
                        WHAT,
                        format!("draid{nparity}:{ndata}d:{nspares}s of {children} children"),
                    ));
                }
                VdevKind::Draid { nparity, ndata, nspares, ngroups }
            }
            "dspare" => VdevKind::DraidSpare {
                top_guid: Guid(list.get_u64("top_guid")?),
                spare_id: list.get_u64("spareid")?,
            },
            "indirect" => VdevKind::Indirect,
            "hole" => VdevKind::Hole,
            "missing" => VdevKind::Missing,
            other => return Err(Error::unsupported(WHAT, format!("vdev type {other:?}"))),
        })
    }
}

/// Blocks for which a top-level vdev is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationBias {
    /// Intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

impl AllocationBias {
    /// The bias of this name, as in a configuration or in the vdev's ZAP.
    pub fn from_name(name: &[u8]) -> Option<AllocationBias> {
        match name {
            b"log" => Some(AllocationBias::Log),
            b"special" => Some(AllocationBias::Special),
            b"dedup" => Some(AllocationBias::Dedup),
            _ => None,
        }
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            AllocationBias::Log => "log",
            AllocationBias::Special => "special",
            AllocationBias::Dedup => "dedup",
        }
    }
}

/// A vdev and everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VdevConfig {
    /// Its kind.
    pub kind: VdevKind,
    /// Index among the children of its parent; absent for spares and cache devices.
    pub id: Option<VdevId>,
    /// Identity.
    pub guid: Guid,
    /// Where the device was last seen.
    pub path: Option<ByteString>,
    /// Stable hardware identity of the device.
    pub devid: Option<ByteString>,
    /// Physical location of the device.
    pub phys_path: Option<ByteString>,
    /// Enclosure slot of the device.
    pub enc_sysfs_path: Option<ByteString>,
    /// The pool partitioned the whole disk itself.
    pub whole_disk: Option<bool>,
    /// The device was absent when the pool was last imported.
    pub not_present: bool,
    /// In use as a hot spare.
    pub is_spare: bool,
    /// Reserved for the intent log.
    pub is_log: bool,
    /// Reserved for certain blocks. Pools keep this in the vdev's ZAP; only cached configurations say it
    /// here.
    pub allocation_bias: Option<AllocationBias>,
    /// Object with the space map of each metaslab (top-level vdevs).
    pub metaslab_array: Option<ObjectId>,
    /// log2 of the size of a metaslab (top-level vdevs).
    pub metaslab_shift: Option<u8>,
    /// log2 of the sector size (top-level vdevs), at most 16.
    pub ashift: Option<u8>,
    /// Allocatable size (top-level vdevs).
    pub asize: Option<Asize>,
    /// No new blocks are placed here.
    pub non_allocating: bool,
    /// Being evacuated.
    pub removing: bool,
    /// Space map object of the txgs that the device missed.
    pub dtl_object: Option<ObjectId>,
    /// Object with the mapping of a removed vdev.
    pub indirect_object: Option<ObjectId>,
    /// Object that tells when parts of a removed vdev were moved.
    pub indirect_births: Option<ObjectId>,
    /// Previous vdev in the chain of removed ones.
    pub prev_indirect_vdev: Option<VdevId>,
    /// Txg in which the vdev was added.
    pub create_txg: Option<Txg>,
    /// When the device last grew, in seconds since 1970.
    pub expansion_time: Option<u64>,
    /// ZAP of the root vdev.
    pub root_zap: Option<ObjectId>,
    /// ZAP of a top-level vdev.
    pub top_zap: Option<ObjectId>,
    /// ZAP of a leaf vdev.
    pub leaf_zap: Option<ObjectId>,
    /// A resilver of this device waits for another.
    pub resilver_deferred: bool,
    /// Taken offline on purpose.
    pub offline: bool,
    /// Persistently faulted.
    pub faulted: bool,
    /// Persistently degraded.
    pub degraded: bool,
    /// Was pulled.
    pub removed: bool,
    /// The spare may be detached when its resilver is done.
    pub unspare: bool,
    /// Why it is faulted or degraded: `external` (forced by a person) or `err_exceeded`.
    pub aux_state: Option<ByteString>,
    /// Txg up to which a resilver has come.
    pub resilver_txg: Option<Txg>,
    /// Txg at which a sequential rebuild began.
    pub rebuild_txg: Option<Txg>,
    /// Guid before the pool was split.
    pub orig_guid: Option<Guid>,
    /// The vdevs below.
    pub children: Vec<VdevConfig>,
}

impl VdevConfig {
    /// A vdev of which nothing is known but its kind and guid.
    pub fn blank(kind: VdevKind, guid: Guid) -> VdevConfig {
        VdevConfig {
            kind,
            id: None,
            guid,
            path: None,
            devid: None,
            phys_path: None,
            enc_sysfs_path: None,
            whole_disk: None,
            not_present: false,
            is_spare: false,
            is_log: false,
            allocation_bias: None,
            metaslab_array: None,
            metaslab_shift: None,
            ashift: None,
            asize: None,
            non_allocating: false,
            removing: false,
            dtl_object: None,
            indirect_object: None,
            indirect_births: None,
            prev_indirect_vdev: None,
            create_txg: None,
            expansion_time: None,
            root_zap: None,
            top_zap: None,
            leaf_zap: None,
            resilver_deferred: false,
            offline: false,
            faulted: false,
            degraded: false,
            removed: false,
            unspare: false,
            aux_state: None,
            resilver_txg: None,
            rebuild_txg: None,
            orig_guid: None,
            children: Vec::new(),
        }
    }

    /// Parses a vdev tree.
    pub fn parse(list: &Nvlist) -> Result<VdevConfig> {
        let mut budget = MAX_VDEVS;
        VdevConfig::parse_at(list, 1, &mut budget)
    }

    fn parse_at(list: &Nvlist, depth: usize, budget: &mut usize) -> Result<VdevConfig> {
        if depth > MAX_DEPTH {
            return Err(Error::TooLarge { what: "depth of the vdev tree", limit: MAX_DEPTH as u64 });
        }
        *budget = budget
            .checked_sub(1)
            .ok_or(Error::TooLarge { what: "number of vdevs", limit: MAX_VDEVS as u64 })?;
        let children = list.find_nvlist_array("children").unwrap_or_default();
        let kind = VdevKind::parse(list, children.len())?;
        if kind.is_leaf() && !children.is_empty() {
            return Err(Error::invalid(WHAT, format!("{} with children", kind.type_name())));
        }
        if matches!(kind, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare) && children.is_empty() {
            return Err(Error::invalid(WHAT, format!("{} without children", kind.type_name())));
        }
        let children = children
            .iter()
            .map(|child| VdevConfig::parse_at(child, depth + 1, budget))
            .collect::<Result<Vec<_>>>()?;
        let number = |name| list.find_u64(name);
        let truth = |name| list.find_u64(name).is_some_and(|value| value != 0);
        let text = |name| list.find_string(name).cloned();
        let object = |name| list.find_u64(name).filter(|object| *object != 0).map(ObjectId);
        let vdev_id = |name| -> Result<Option<VdevId>> {
            number(name)
                .map(|id| {
                    u32::try_from(id).map(VdevId).map_err(|_| Error::invalid(WHAT, format!("{name} is {id}")))
                })
                .transpose()
        };
        let shift = |name, limit: u64| -> Result<Option<u8>> {
            match number(name) {
                Some(value) if value > limit => Err(Error::invalid(WHAT, format!("{name} is {value}"))),
                found => Ok(found.map(|value| value as u8)),
            }
        };
        Ok(VdevConfig {
            kind,
            id: vdev_id("id")?,
            guid: Guid(list.get_u64("guid")?),
            path: text("path"),
            devid: text("devid"),
            phys_path: text("phys_path"),
            enc_sysfs_path: text("vdev_enc_sysfs_path"),
            whole_disk: number("whole_disk").map(|value| value != 0),
            not_present: truth("not_present"),
            is_spare: truth("is_spare"),
            is_log: truth("is_log"),
            allocation_bias: list
                .find_string("alloc_bias")
                .and_then(|name| AllocationBias::from_name(name.as_bytes())),
            metaslab_array: object("metaslab_array"),
            metaslab_shift: shift("metaslab_shift", 63)?,
            ashift: shift("ashift", MAX_ASHIFT)?,
            asize: number("asize").map(Asize),
            non_allocating: truth("non_allocating"),
            removing: truth("removing"),
            dtl_object: object("DTL"),
            indirect_object: object("com.delphix:indirect_object"),
            indirect_births: object("com.delphix:indirect_births"),
            prev_indirect_vdev: vdev_id("com.delphix:prev_indirect_vdev")?,
            create_txg: number("create_txg").map(Txg),
            expansion_time: number("expansion_time"),
            root_zap: object("com.klarasystems:vdev_zap_root"),
            top_zap: object("com.delphix:vdev_zap_top"),
            leaf_zap: object("com.delphix:vdev_zap_leaf"),
            resilver_deferred: list.contains("com.datto:resilver_defer"),
            offline: truth("offline"),
            faulted: truth("faulted"),
            degraded: truth("degraded"),
            removed: truth("removed"),
            unspare: truth("unspare"),
            aux_state: text("aux_state"),
            resilver_txg: number("resilver_txg").map(Txg),
            rebuild_txg: number("rebuild_txg").map(Txg),
            orig_guid: number("orig_guid").map(Guid),
            children,
        })
    }

    /// The tree as OpenZFS writes it.
    pub fn to_nvlist(&self) -> Nvlist {
        let mut list = Nvlist::new();
        list.push("type", self.kind.type_name());
        let number = |list: &mut Nvlist, name: &str, value: Option<u64>| {
            if let Some(value) = value {
                list.push(name, value);
            }
        };
        let truth = |list: &mut Nvlist, name: &str, value: bool| number(list, name, value.then_some(1));
        let object =
            |list: &mut Nvlist, name: &str, id: Option<ObjectId>| number(list, name, id.map(|id| id.0));
        let text = |list: &mut Nvlist, name: &str, value: &Option<ByteString>| {
            if let Some(value) = value {
                list.push(name, value.clone());
            }
        };
        number(&mut list, "id", self.id.map(|id| id.0.into()));
        list.push("guid", self.guid.0);
        text(&mut list, "path", &self.path);
        text(&mut list, "devid", &self.devid);
        text(&mut list, "phys_path", &self.phys_path);
        text(&mut list, "vdev_enc_sysfs_path", &self.enc_sysfs_path);
        match &self.kind {
            VdevKind::Raidz { nparity, expanding, expand_txgs } => {
                list.push("nparity", u64::from(*nparity));
                if *expanding {
                    list.push("raidz_expanding", NvValue::Boolean);
                }
                if !expand_txgs.is_empty() {
                    list.push("raidz_expand_txgs", expand_txgs.iter().map(|txg| txg.0).collect::<Vec<_>>());
                }
            }
            VdevKind::Draid { nparity, ndata, nspares, ngroups } => {
                list.push("nparity", u64::from(*nparity));
                list.push("draid_ndata", u64::from(*ndata));
                list.push("draid_nspares", u64::from(*nspares));
                list.push("draid_ngroups", u64::from(*ngroups));
            }
            VdevKind::DraidSpare { top_guid, spare_id } => {
                list.push("top_guid", top_guid.0);
                list.push("spareid", *spare_id);
            }
            _ => {}
        }
        number(&mut list, "whole_disk", self.whole_disk.map(u64::from));
        truth(&mut list, "not_present", self.not_present);
        truth(&mut list, "is_spare", self.is_spare);
        // Top-level vdevs, which have an asize, always say these two.
        let top = self.asize.is_some();
        object(&mut list, "metaslab_array", self.metaslab_array.or(top.then_some(ObjectId(0))));
        number(&mut list, "metaslab_shift", self.metaslab_shift.map(u64::from));
        number(&mut list, "ashift", self.ashift.map(u64::from));
        number(&mut list, "asize", self.asize.map(|asize| asize.0));
        number(&mut list, "is_log", (self.is_log || top).then_some(self.is_log.into()));
        truth(&mut list, "non_allocating", self.non_allocating);
        truth(&mut list, "removing", self.removing);
        if let Some(bias) = self.allocation_bias {
            list.push("alloc_bias", bias.name());
        }
        object(&mut list, "DTL", self.dtl_object);
        object(&mut list, "com.delphix:indirect_object", self.indirect_object);
        object(&mut list, "com.delphix:indirect_births", self.indirect_births);
        number(&mut list, "com.delphix:prev_indirect_vdev", self.prev_indirect_vdev.map(|id| id.0.into()));
        number(&mut list, "create_txg", self.create_txg.map(|txg| txg.0));
        number(&mut list, "expansion_time", self.expansion_time);
        object(&mut list, "com.delphix:vdev_zap_leaf", self.leaf_zap);
        object(&mut list, "com.delphix:vdev_zap_top", self.top_zap);
        object(&mut list, "com.klarasystems:vdev_zap_root", self.root_zap);
        if self.resilver_deferred {
            list.push("com.datto:resilver_defer", NvValue::Boolean);
        }
        if !self.children.is_empty() {
            list.push("children", self.children.iter().map(VdevConfig::to_nvlist).collect::<Vec<_>>());
        }
        truth(&mut list, "offline", self.offline);
        number(&mut list, "resilver_txg", self.resilver_txg.map(|txg| txg.0));
        number(&mut list, "rebuild_txg", self.rebuild_txg.map(|txg| txg.0));
        truth(&mut list, "faulted", self.faulted);
        truth(&mut list, "degraded", self.degraded);
        truth(&mut list, "removed", self.removed);
        truth(&mut list, "unspare", self.unspare);
        truth(&mut list, "is_hole", self.kind == VdevKind::Hole);
        text(&mut list, "aux_state", &self.aux_state);
        number(&mut list, "orig_guid", self.orig_guid.map(|guid| guid.0));
        list
    }

    /// The tree's leaves, from left to right.
    pub fn leaves(&self) -> Vec<&VdevConfig> {
        let mut leaves = Vec::new();
        let mut pending = vec![self];
        while let Some(vdev) = pending.pop() {
            if vdev.kind.is_leaf() {
                leaves.push(vdev);
            }
            pending.extend(vdev.children.iter().rev());
        }
        leaves
    }

    /// The spares or cache devices listed in an object of the MOS; `name` is `spares` or `l2cache`.
    pub fn parse_auxiliary(list: &Nvlist, name: &str) -> Result<Vec<VdevConfig>> {
        list.find_nvlist_array(name).unwrap_or_default().iter().map(VdevConfig::parse).collect()
    }
}

/// State of a pool, or use of a device, as a label says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum PoolState {
    /// Imported somewhere, or its host went down without exporting.
    Active = 0,
    /// Exported.
    Exported = 1,
    /// Destroyed; can be imported again.
    Destroyed = 2,
    /// The device is a hot spare.
    Spare = 3,
    /// The device is a read cache.
    L2cache = 4,
}

impl PoolState {
    /// The state of this number.
    pub fn from_raw(raw: u64) -> Result<PoolState> {
        Ok(match raw {
            0 => PoolState::Active,
            1 => PoolState::Exported,
            2 => PoolState::Destroyed,
            3 => PoolState::Spare,
            4 => PoolState::L2cache,
            _ => return Err(Error::unsupported("pool configuration", format!("state {raw}"))),
        })
    }
}

/// A pool's description of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// Pool version: 5000 with feature flags.
    pub version: u64,
    /// State; labels of spares and cache devices tell their use here.
    pub state: PoolState,
    /// Name of the pool; absent for spares and cache devices.
    pub name: Option<ByteString>,
    /// Guid of the pool; absent for spares and cache devices.
    pub pool_guid: Option<Guid>,
    /// Txg in which this configuration was written; 0 in the label of a device that is being added.
    pub txg: Option<Txg>,
    /// Host that imported the pool last.
    pub host_id: Option<u64>,
    /// Name of that host.
    pub host_name: Option<ByteString>,
    /// Guid of the top-level vdev that the labelled device belongs to (labels only).
    pub top_guid: Option<Guid>,
    /// Guid of the labelled device (labels only).
    pub guid: Option<Guid>,
    /// Number of top-level vdevs.
    pub vdev_children: Option<u64>,
    /// Places of top-level vdevs that are holes.
    pub hole_array: Vec<u64>,
    /// The labelled device is in use as a spare (labels only).
    pub is_spare: bool,
    /// The labelled device belongs to a log vdev (labels only).
    pub is_log: bool,
    /// Txg in which the labelled device was added, while it is being added (labels only).
    pub create_txg: Option<Txg>,
    /// Feature guids that a reader must support.
    pub features_for_read: Vec<ByteString>,
    /// Known defect of the software that wrote the pool.
    pub errata: u64,
    /// Comment property.
    pub comment: Option<ByteString>,
    /// Compatibility property.
    pub compatibility: Option<ByteString>,
    /// Guid of the pool that this was split from.
    pub split_guid: Option<Guid>,
    /// The vdevs that a split moves to the new pool (MOS only).
    pub split: Option<Nvlist>,
    /// All vdevs have ZAPs (MOS only).
    pub has_per_vdev_zaps: bool,
    /// The whole tree (MOS), or the top-level vdev that the labelled device belongs to (labels); absent for
    /// spares and cache devices.
    pub vdev_tree: Option<VdevConfig>,
    /// Everything as it was stored.
    pub raw: Nvlist,
}

impl PoolConfig {
    /// Parses the nvlist of a label or of the MOS.
    pub fn parse(raw: Nvlist) -> Result<PoolConfig> {
        let text = |name| raw.find_string(name).cloned();
        let truth = |name| raw.find_u64(name).is_some_and(|value| value != 0);
        let features = raw.find_nvlist("features_for_read");
        Ok(PoolConfig {
            version: raw.get_u64("version")?,
            state: PoolState::from_raw(raw.get_u64("state")?)?,
            name: text("name"),
            pool_guid: raw.find_u64("pool_guid").map(Guid),
            txg: raw.find_u64("txg").map(Txg),
            host_id: raw.find_u64("hostid"),
            host_name: text("hostname"),
            top_guid: raw.find_u64("top_guid").map(Guid),
            guid: raw.find_u64("guid").map(Guid),
            vdev_children: raw.find_u64("vdev_children"),
            hole_array: raw.find_u64_array("hole_array").unwrap_or_default().to_vec(),
            is_spare: truth("is_spare"),
            is_log: truth("is_log"),
            create_txg: raw.find_u64("create_txg").map(Txg),
            features_for_read: features
                .map(|list| list.iter().map(|(name, _)| name.clone()).collect())
                .unwrap_or_default(),
            errata: raw.find_u64("errata").unwrap_or(0),
            comment: text("comment"),
            compatibility: text("compatibility"),
            split_guid: raw.find_u64("split_guid").map(Guid),
            split: raw.find_nvlist("splitcfg").cloned(),
            has_per_vdev_zaps: raw.contains("com.delphix:has_per_vdev_zaps"),
            vdev_tree: raw.find_nvlist("vdev_tree").map(VdevConfig::parse).transpose()?,
            raw,
        })
    }
}

#[cfg(test)]
mod tests;
