//! The configuration of a pool that is written: what the MOS and the labels say about it.
//!
//! One tree of [`VdevConfig`]s, changed as vdevs are added or change, is the source of both. The MOS has all
//! of it, in a packed nvlist; each label has the top-level vdev that its device belongs to, without the
//! numbers of objects that only the MOS can lead to.
//!
//! Source of the facts: OpenZFS 2.3 `spa_config.c` (`spa_config_generate`), `vdev_label.c`
//! (`vdev_config_generate`).

use ondisk::nvlist::{ByteString, NvValue, Nvlist};
use ondisk::vdev_config::{PoolState, VdevConfig, VdevKind};
use ondisk::{Guid, Txg};

use crate::mos::LiveFeatures;

/// What software must know to read the pool's MOS.
#[derive(Debug, Clone)]
pub(super) struct Needed {
    /// The version of the pool.
    pub version: u64,
    /// Features, by their guids.
    pub features: Nvlist,
}

impl Needed {
    /// Of a pool that uses no features yet.
    pub(super) fn version(version: u64) -> Self {
        Self { version, features: Nvlist::new() }
    }

    /// Of a pool that is written, as of now.
    pub(super) fn of(features: &LiveFeatures) -> Self {
        Self { version: features.version(), features: features.for_labels() }
    }
}

/// What is said about the pool beside that.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub name: String,
    pub state: PoolState,
    pub guid: Guid,
    pub errata: u64,
    pub comment: Option<ByteString>,
    pub compatibility: Option<ByteString>,
    pub host: (u64, String),
    /// The root vdev; its children are the top-level vdevs.
    pub root: VdevConfig,
    /// Whether every vdev has a ZAP.
    pub has_vdev_zaps: bool,
}

impl Config {
    /// What the MOS holds.
    pub(super) fn for_mos(&self, txg: Txg, needed: Needed) -> Nvlist {
        let mut list = self.common(txg, needed.version);
        if self.has_vdev_zaps {
            list.push("com.delphix:has_per_vdev_zaps", NvValue::Boolean);
        }
        self.push_tops(&mut list);
        let mut root = self.root.clone();
        for top in &mut root.children {
            forget_bias(top);
        }
        list.push("vdev_tree", root.to_nvlist());
        list.push("features_for_read", needed.features);
        list
    }

    /// What the labels of `leaf`, a part of the top-level vdev `top`, hold.
    pub(super) fn for_label(&self, txg: Txg, top: &VdevConfig, leaf: Guid, needed: Needed) -> Nvlist {
        let mut list = self.common(txg, needed.version);
        list.push("top_guid", top.guid.get());
        list.push("guid", leaf.get());
        if top.leaves().iter().any(|of_top| of_top.guid == leaf && of_top.is_spare) {
            list.push("is_spare", 1u64);
        }
        if top.is_log {
            list.push("is_log", 1u64);
        }
        self.push_tops(&mut list);
        let mut top = top.clone();
        without_zaps(&mut top);
        forget_bias(&mut top);
        list.push("vdev_tree", top.to_nvlist());
        list.push("features_for_read", needed.features);
        list
    }

    /// What the labels of a former device hold, which was `leaf` below the top-level vdev `top`: only what
    /// finds it again when the pool goes back to a group that had it. It is of no group and names no pool, so
    /// that nothing else takes it for part of one.
    pub(super) fn for_former_label(&self, top: Guid, leaf: Guid, version: u64) -> Nvlist {
        let mut list = Nvlist::new();
        list.push("version", version);
        list.push("state", PoolState::Active as u64);
        list.push("txg", Txg::NONE.get());
        list.push("pool_guid", self.guid.get());
        list.push("top_guid", top.get());
        list.push("guid", leaf.get());
        list
    }

    fn common(&self, txg: Txg, version: u64) -> Nvlist {
        let mut list = Nvlist::new();
        list.push("version", version);
        list.push("name", self.name.as_str());
        list.push("state", self.state as u64);
        list.push("txg", txg.get());
        list.push("pool_guid", self.guid.get());
        list.push("errata", self.errata);
        if let Some(comment) = &self.comment {
            list.push("comment", comment.clone());
        }
        if let Some(compatibility) = &self.compatibility {
            list.push("compatibility", compatibility.clone());
        }
        let (host_id, host_name) = &self.host;
        if *host_id != 0 {
            list.push("hostid", *host_id);
        }
        list.push("hostname", host_name.as_str());
        list
    }

    fn push_tops(&self, list: &mut Nvlist) {
        let holes: Vec<u64> = (0u64..)
            .zip(&self.root.children)
            .filter(|(_, top)| top.kind == VdevKind::Hole)
            .map(|(id, _)| id)
            .collect();
        if !holes.is_empty() {
            list.push("hole_array", holes);
        }
        list.push("vdev_children", self.root.children.len() as u64);
    }

    /// The sum of all guids, which the uberblock states.
    pub(super) fn guid_sum(&self) -> u64 {
        fn sum(vdev: &VdevConfig) -> u64 {
            vdev.children.iter().map(sum).fold(vdev.guid.get(), u64::wrapping_add)
        }
        sum(&self.root)
    }

    /// The leaf of this guid, to be changed.
    pub(super) fn find_mut(&mut self, guid: Guid) -> Option<&mut VdevConfig> {
        fn find(vdev: &mut VdevConfig, guid: Guid) -> Option<&mut VdevConfig> {
            if vdev.guid == guid {
                return Some(vdev);
            }
            vdev.children.iter_mut().find_map(|child| find(child, guid))
        }
        self.root.children.iter_mut().find_map(|top| find(top, guid))
    }
}

/// The bias stands in the vdev's ZAP.
fn forget_bias(top: &mut VdevConfig) {
    top.allocation_bias = None;
}

fn without_zaps(vdev: &mut VdevConfig) {
    (vdev.root_zap, vdev.top_zap, vdev.leaf_zap) = (None, None, None);
    vdev.children.iter_mut().for_each(without_zaps);
}
