//! Building a [`VdevTree`] from a config and the devices that were found.
//!
//! Devices are matched only by guid, so that renamed and moved devices find their place. A leaf without a
//! device becomes an unusable leaf, not an error: the states of its parents show whether the pool can do
//! without it.
//!
//! An import forgets that leaves were once *faulted* by errors or *removed*: a device that is back may be
//! good, and its dirty time log lists the groups that it missed. An import does not forget the decisions of
//! an administrator: *offline*, and *faulted* by force. OpenZFS does the same.
//!
//! Source of the facts: OpenZFS 2.3 `vdev.c` (`vdev_alloc`, `vdev_open`, `vdev_propagate_state`).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use codec::draid::{Draid, DraidConfig};
use codec::raidz::{Raidz, Reflow};
use device::Device;
use ondisk::Guid;
use ondisk::vdev_config::{VdevConfig, VdevKind};

use super::{
    Aux, Auxiliary, Class, ErrorCounters, Kind, Lasting, State, Status, Vdev, VdevTree,
    capacity::{in_use, usable_bytes},
    slot::{Slot, StatusCell},
    state_of_parent,
};
use crate::error::{Error, Result};

/// The devices of one pool, by vdev guid.
pub type Devices = HashMap<Guid, Arc<dyn Device>>;

/// Builds the tree under `root`, whose children are the top-level vdevs in order. `reflow` is the state of a
/// raidz expansion in progress, from the uberblock.
pub fn build_tree(root: &VdevConfig, devices: &Devices, reflow: Option<Reflow>) -> Result<VdevTree> {
    let builder = Builder { devices, reflow, old: None, renamed: None };
    let mut tops = Vec::with_capacity(root.children.len());
    for (index, config) in root.children.iter().enumerate() {
        if config.id.is_some_and(|id| id.get() as usize != index) {
            let detail = format!("top-level vdev {index} has the id {:?}", config.id);
            return Err(Error::corrupt("pool configuration", detail));
        }
        tops.push(builder.vdev(config, index as u64, Needs::of_top(config))?);
    }
    Ok(VdevTree { tops: tops.into_iter().collect(), ..Default::default() })
}

impl VdevTree {
    /// Adds a top-level vdev (`zpool add`), whose config has the next number. Returns that number. Blocks can
    /// be read and written there at once. The caller ensures that no other caller adds vdevs meanwhile.
    ///
    /// # Errors
    /// The config has another number, or cannot be built.
    pub fn add_top(&self, config: &VdevConfig, devices: &Devices) -> Result<u32> {
        let next = self.tops.len();
        let id = u32::try_from(next).map_err(|_| Error::Invalid("there are too many vdevs".into()))?;
        if config.id.is_none_or(|id| id.get() as usize != next) {
            return Err(Error::Invalid(format!("vdev {next} is to be added with the id {:?}", config.id)));
        }
        let builder = Builder { devices, reflow: None, old: None, renamed: None };
        self.tops.push(builder.vdev(config, next as u64, Needs::of_top(config))?);
        Ok(id)
    }
}

/// A leaf that gets another guid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Renamed {
    /// Its guid until now.
    pub from: Guid,
    /// Its guid from now on.
    pub to: Guid,
}

impl VdevTree {
    /// Gives a top-level vdev the shape of `config`: devices were attached, detached or replaced. Vdevs whose
    /// guids stay go on: their devices, states, counters and dirty time logs last. A leaf that is new gets
    /// its device from `devices`. `renamed` is a vdev that goes on under another guid: the last child of a
    /// mirror gets the mirror's. `prepare` sees the new vdev before others do. Then reads and writes go the
    /// new way; those that began before end in the old version. Returns the new vdev. The caller ensures that
    /// no other caller changes vdevs meanwhile.
    ///
    /// # Errors
    /// There is no such vdev, or the config cannot be built; nothing has changed then.
    pub(crate) fn rebuild_top(
        &self,
        id: u32,
        config: &VdevConfig,
        renamed: Option<Renamed>,
        devices: &Devices,
        prepare: impl FnOnce(&Vdev),
    ) -> Result<&Vdev> {
        let wrong = |why: &str| Error::Invalid(format!("top-level vdev {id} cannot change: {why}"));
        let old = self.top(id).ok_or_else(|| wrong("it does not exist"))?;
        if config.id.is_none_or(|of_config| of_config.get() != id) {
            return Err(wrong(&format!("its new configuration has the number {:?}", config.id)));
        }
        let needs = Needs::of_top(config);
        if needs.ashift != old.ashift {
            return Err(wrong("its sectors would have another size"));
        }
        let _turn = self.changes.turn();
        let new =
            Builder { devices, reflow: None, old: Some(old), renamed }.vdev(config, id.into(), needs)?;
        if let Some(class) = old.class.get() {
            // The Builder sets it for logs only, and to the same.
            let _ = new.class.set(*class);
        }
        new.set_asize(old.asize());
        new.refresh();
        prepare(&new);
        self.tops.replace(id as usize, new);
        self.changes.count();
        self.top(id).ok_or_else(|| wrong("it does not exist"))
    }

    /// Replaces a top-level vdev that holds no data any more by a hole. Its devices are closed.
    ///
    /// # Errors
    /// There is no such vdev, or the config is not a hole's.
    pub(crate) fn make_hole(&self, id: u32, config: &VdevConfig) -> Result<()> {
        let (devices, wrong) = (Devices::new(), || Error::Invalid(format!("vdev {id} cannot become a hole")));
        let builder = Builder { devices: &devices, reflow: None, old: None, renamed: None };
        let hole = builder.vdev(config, id.into(), Needs::of_top(config))?;
        let top = self.top(id).filter(|_| matches!(hole.kind, Kind::Hole)).ok_or_else(wrong)?;
        let leaves: Vec<&Vdev> = top.walk().collect();
        if !self.tops.replace(id as usize, hole) {
            return Err(wrong());
        }
        for leaf in leaves {
            if let Kind::Leaf(slot) = &leaf.kind {
                slot.replace(None);
            }
        }
        Ok(())
    }
}

/// Builds spares or cache devices from their list in the MOS.
pub fn build_auxiliary(configs: &[VdevConfig], devices: &Devices) -> Result<Auxiliary> {
    let builder = Builder { devices, reflow: None, old: None, renamed: None };
    let leaves = configs.iter().enumerate();
    leaves.map(|(index, config)| builder.vdev(config, index as u64, Needs::of_top(config))).collect()
}

/// The sizes that a vdev requires of its children.
#[derive(Clone, Copy)]
pub(super) struct Needs {
    pub ashift: u32,
    /// The least bytes that the vdev must have for its part of the top-level vdev; 0 if unknown.
    pub bytes: u64,
}

impl Needs {
    fn of_top(config: &VdevConfig) -> Self {
        let asize = config.asize.map_or(0, |asize| asize.get());
        let shift = config.metaslab_shift.filter(|shift| *shift < 64);
        Self { ashift: config.ashift.map_or(9, u32::from), bytes: in_use(asize, shift.map(u32::from)) }
    }

    /// The requirements of a vdev for each of this many children.
    pub fn of_child(self, kind: &VdevKind, children: usize) -> Self {
        let bytes = match kind {
            VdevKind::Raidz { .. } => self.bytes / children.max(1) as u64,
            // Its last rows may be uneven; devices that are too small show in their transfers.
            VdevKind::Draid { .. } => 0,
            _ => self.bytes,
        };
        Self { bytes, ..self }
    }
}

struct Builder<'a> {
    devices: &'a Devices,
    reflow: Option<Reflow>,
    /// The top-level vdev that the new one takes the place of. Vdevs with a guid of it go on.
    old: Option<&'a Vdev>,
    renamed: Option<Renamed>,
}

impl Builder<'_> {
    /// `VdevConfig`'s parser bounds the depth.
    fn vdev(&self, config: &VdevConfig, id: u64, needs: Needs) -> Result<Vdev> {
        let mut children = Vec::with_capacity(config.children.len());
        for (index, child) in config.children.iter().enumerate() {
            children.push(self.vdev(
                child,
                index as u64,
                needs.of_child(&config.kind, config.children.len()),
            )?);
        }
        let kind = self.kind(config, needs.ashift)?;
        let class = match config.is_log {
            true => OnceLock::from(Class::Log),
            false => OnceLock::new(),
        };
        let lasting = match self.old_vdev(config) {
            Some(old) => Arc::clone(&old.lasting),
            None => Arc::new(Lasting::new(config, &kind, &children, needs)),
        };
        Ok(Vdev {
            id,
            guid: config.guid,
            name: match &self.old {
                // The configuration has the present path, and the one of a device that is replaced by itself.
                Some(_) => name_in_config(config, &kind, id),
                None => name_of(config, &kind, id),
            },
            kind,
            class,
            ashift: needs.ashift,
            config: VdevConfig { children: Vec::new(), ..config.clone() },
            children,
            lasting,
        })
    }

    /// The vdev of which this config is the next version.
    fn old_vdev(&self, config: &VdevConfig) -> Option<&Vdev> {
        let renamed = self.renamed.filter(|renamed| renamed.to == config.guid && config.kind.is_leaf());
        let guid = renamed.map_or(config.guid, |renamed| renamed.from);
        let old = self.old?.walk().find(|vdev| vdev.guid == guid)?;
        (old.config.kind.is_leaf() == config.kind.is_leaf()).then_some(old)
    }

    fn kind(&self, config: &VdevConfig, ashift: u32) -> Result<Kind> {
        let layout = |error: codec::raidz::Error| Error::corrupt("pool configuration", error);
        Ok(match &config.kind {
            VdevKind::Disk | VdevKind::File => match self.old_vdev(config).map(|old| &old.kind) {
                Some(Kind::Leaf(slot)) => Kind::Leaf(slot.clone()),
                _ => Kind::Leaf(Slot::new(self.devices.get(&config.guid).cloned())),
            },
            VdevKind::Mirror => Kind::Mirror,
            VdevKind::Replacing => Kind::Replacing,
            VdevKind::Spare => Kind::Spare,
            VdevKind::Raidz { nparity, expanding, expand_txgs } => {
                let txgs: Vec<u64> = expand_txgs.iter().map(|txg| txg.get()).collect();
                let reflow = self.reflow.filter(|_| *expanding);
                let children = config.children.len();
                let nparity = usize::from(*nparity);
                Kind::Raidz(Raidz::expanded(ashift, nparity, children, &txgs, reflow).map_err(layout)?)
            }
            VdevKind::Draid { nparity, ndata, nspares, ngroups } => {
                let config = DraidConfig {
                    data: usize::from(*ndata),
                    nparity: usize::from(*nparity),
                    spares: usize::from(*nspares),
                    groups: usize::from(*ngroups),
                    children: config.children.len(),
                    ashift,
                };
                Kind::Draid(Draid::new(config).map_err(layout)?)
            }
            VdevKind::DraidSpare { top_guid, spare_id } => {
                Kind::DraidSpare { top: *top_guid, spare: usize::try_from(*spare_id).unwrap_or(usize::MAX) }
            }
            VdevKind::Indirect => Kind::Indirect(OnceLock::new()),
            VdevKind::Hole => Kind::Hole,
            VdevKind::Missing => Kind::Missing,
            VdevKind::Root => {
                return Err(Error::corrupt("pool configuration", "a root inside the vdev tree"));
            }
        })
    }
}

impl Lasting {
    /// Of a vdev that is new in the tree.
    fn new(config: &VdevConfig, kind: &Kind, children: &[Vdev], needs: Needs) -> Self {
        let status = status_of(config, kind, children, needs);
        // The abilities of a device that is not open are unknown.
        let is_closed = matches!(kind, Kind::Leaf(_)) && !status.is_readable();
        Self {
            asize: config.asize.map_or(0, |asize| asize.get()).into(),
            status: StatusCell::new(status),
            bytes_needed: needs.bytes.into(),
            errors: ErrorCounters::default(),
            stats: Default::default(),
            is_removed: Default::default(),
            cannot_discard: is_closed.into(),
            missing_txgs: Default::default(),
            absences: Default::default(),
            unflushed: Default::default(),
            stable: Default::default(),
            in_flight: Default::default(),
            cache_space: Default::default(),
        }
    }
}

fn status_of(config: &VdevConfig, kind: &Kind, children: &[Vdev], needs: Needs) -> Status {
    let of_children: Vec<Status> = children.iter().map(|child| child.status()).collect();
    match kind {
        _ if config.faulted && is_forced(config) => Status::new(State::Faulted, Aux::External),
        _ if config.offline => Status::new(State::Offline, Aux::None),
        Kind::Leaf(slot) => {
            let Some(device) = slot.device() else {
                return Status::new(State::CantOpen, Aux::OpenFailed);
            };
            if usable_bytes(device.size_bytes()) < needs.bytes {
                Status::new(State::CantOpen, Aux::TooSmall)
            } else if config.degraded {
                Status::new(
                    State::Degraded,
                    if is_forced(config) { Aux::External } else { Aux::ErrorsExceeded },
                )
            } else {
                Status::HEALTHY
            }
        }
        Kind::Mirror | Kind::Replacing | Kind::Spare => {
            state_of_parent(&of_children, children.len().saturating_sub(1))
        }
        Kind::Raidz(raidz) => state_of_parent(&of_children, raidz.nparity()),
        Kind::Draid(draid) => state_of_parent(&of_children, draid.config().nparity),
        Kind::DraidSpare { .. } | Kind::Indirect(_) | Kind::Hole => Status::HEALTHY,
        Kind::Missing => Status::new(State::CantOpen, Aux::OpenFailed),
    }
}

/// An administrator declared it faulted or degraded.
fn is_forced(config: &VdevConfig) -> bool {
    config.aux_state.as_ref().is_some_and(|state| state.as_bytes() == b"external")
}

fn name_of(config: &VdevConfig, kind: &Kind, id: u64) -> String {
    match kind {
        Kind::Leaf(slot) => match slot.device() {
            Some(device) => device.path().display().to_string(),
            None => name_in_config(config, kind, id),
        },
        _ => name_in_config(config, kind, id),
    }
}

fn name_in_config(config: &VdevConfig, kind: &Kind, id: u64) -> String {
    let path = || config.path.as_ref().map(|path| String::from_utf8_lossy(path.as_bytes()).into_owned());
    match kind {
        Kind::Leaf(_) | Kind::DraidSpare { .. } => path().unwrap_or_else(|| config.guid.to_string()),
        Kind::Raidz(raidz) => format!("raidz{}-{id}", raidz.nparity()),
        Kind::Draid(draid) => {
            let DraidConfig { data, nparity, spares, children, .. } = draid.config();
            format!("draid{nparity}:{data}d:{children}c:{spares}s-{id}")
        }
        _ => format!("{}-{id}", config.kind.type_name()),
    }
}

/// The path of a device according to a config, for display.
pub fn config_path(config: &VdevConfig) -> Option<PathBuf> {
    config.path.as_ref().and_then(|path| path.to_str()).map(PathBuf::from)
}
