//! Properties of a vdev as `zpool get all POOL VDEV` shows them.
//!
//! Most are computed; what users set is in the vdev's ZAP: that of a top-level vdev, else that of the
//! leaf. Vdevs are named as the kernel does, by path or by type and number. Space is known for top-level
//! vdevs only, in deflated bytes. Source of the facts: OpenZFS 2.4 `vdev.c` (`vdev_prop_get`),
//! `libzfs_pool.c`.

use ondisk::label::aligned_size;
use ondisk::vdev_config::{VdevConfig, VdevKind};
use ondisk::{Guid, ObjectId};

use super::set::shown;
use super::table::{VDEV_TABLE, VdevProp};
use crate::dsl::pool_space::VdevSpace;
use crate::dsl::{Dsl, ValueExt};
use crate::error::{Error, Result};
use crate::pool::status::state_of;
use crate::properties::set::Value;
use crate::properties::{Attr, Kind, Shown, Source, Style, index, is_user};
use crate::vdev::capacity::usable_bytes;
use crate::vdev::stats::Transfer;
use crate::vdev::{State, Vdev};

/// What is known of one vdev.
#[derive(Debug, Clone)]
pub struct VdevProperties {
    values: Vec<(VdevProp, Value, Source)>,
    user: Vec<(String, String)>,
}

impl VdevProperties {
    /// Reads the properties of the vdev with this guid.
    pub async fn load(dsl: &Dsl, guid: Guid) -> Result<VdevProperties> {
        let missing = || Error::NotFound(format!("vdev {guid} of {}", dsl.pool().name()));
        let config = dsl.mos().config().await?;
        let tree = config.vdev_tree.as_ref().ok_or_else(missing)?;
        if guid == dsl.pool().guid() {
            return Self::load_root(dsl, tree).await;
        }
        let (parent, config) = find(tree, guid).ok_or_else(missing)?;
        let vdev = dsl.pool().vdevs().find(guid).ok_or_else(missing)?;
        let is_top = parent.guid == tree.guid;
        let space = dsl.pool_space().await?.vdevs.iter().find(|space| is_top && space.id == vdev.id);
        let mut set = VdevProperties { values: Vec::new(), user: Vec::new() };
        set.add_identity(config, vdev, if is_top { dsl.pool().name().to_owned() } else { name(parent) });
        set.add_space(space);
        let has_columns =
            |vdev: &VdevConfig| matches!(vdev.kind, VdevKind::Raidz { .. } | VdevKind::Draid { .. });
        let is_column = tree.children.iter().any(|top| has_columns(top) && find(top, guid).is_some());
        if has_columns(config) {
            set.values.push((VdevProp::Autosit, Value::Number(0), Source::Default));
        } else if is_column && config.children.is_empty() {
            // No column is ever left out because it is slow.
            set.number(VdevProp::SitOut, 0);
        }
        set.add_stored(dsl, config.top_zap.or(config.leaf_zap)).await?;
        if !is_top {
            set.number(VdevProp::Allocating, 2);
        }
        Ok(set)
    }

    /// Those of the root vdev: what its children have together.
    async fn load_root(dsl: &Dsl, tree: &VdevConfig) -> Result<VdevProperties> {
        let pool = dsl.pool();
        let mut set = VdevProperties { values: Vec::new(), user: Vec::new() };
        set.text(VdevProp::Name, Some("root-0"));
        set.number(VdevProp::Guid, pool.guid().get());
        set.number(VdevProp::State, state_number(state_of(pool)));
        let children: Vec<String> = tree.children.iter().map(name).collect();
        set.number(VdevProp::Numchildren, children.len() as u64);
        set.text(VdevProp::Children, (!children.is_empty()).then(|| children.join(",")));
        let space = dsl.pool_space().await?;
        let (size, allocated) = (space.size_bytes(), space.allocated_bytes());
        set.number(VdevProp::Size, size);
        set.number(VdevProp::Allocated, allocated);
        set.number(VdevProp::Free, size.saturating_sub(allocated));
        set.number(VdevProp::Capacity, space.capacity());
        set.number(VdevProp::Fragmentation, space.fragmentation().unwrap_or(u64::MAX));
        set.number(VdevProp::Allocating, 2);
        set.text(VdevProp::TrimSupport, Some("-"));
        let errors = pool.root_errors();
        set.number(VdevProp::ReadErrors, errors.read());
        set.number(VdevProp::WriteErrors, errors.write());
        set.number(VdevProp::ChecksumErrors, errors.checksum());
        set.add_stored(dsl, tree.root_zap).await?;
        Ok(set)
    }

    /// What users set.
    async fn add_stored(&mut self, dsl: &Dsl, zap: Option<ObjectId>) -> Result<()> {
        let Some(zap) = zap else { return Ok(()) };
        for (name, value) in dsl.mos().entries(zap).await? {
            let prop = VdevProp::from_stored_name(&name).filter(|prop| prop.desc().attr == Attr::Default);
            match (prop, value.text()) {
                (Some(prop), Some(text)) => self.values.push((prop, Value::Text(text), Source::Local)),
                (Some(prop), None) => {
                    let number = value.first().unwrap_or(0);
                    let default = number == prop.desc().default_number();
                    let source = if default { Source::Default } else { Source::Local };
                    self.values.push((prop, Value::Number(number), source));
                }
                (None, Some(text)) if is_user(&name) => self.user.push((name, text)),
                (None, _) => {}
            }
        }
        Ok(())
    }

    fn number(&mut self, prop: VdevProp, number: u64) {
        self.values.push((prop, Value::Number(number), Source::None));
    }

    fn text(&mut self, prop: VdevProp, text: Option<impl ToString>) {
        if let Some(text) = text {
            self.values.push((prop, Value::Text(text.to_string()), Source::None));
        }
    }

    fn add_identity(&mut self, config: &VdevConfig, vdev: &Vdev, parent: String) {
        self.text(VdevProp::Name, Some(name(config)));
        self.number(VdevProp::Guid, config.guid.0);
        self.number(VdevProp::State, state_number(vdev.status().state));
        self.number(VdevProp::Ashift, u64::from(vdev.ashift));
        let device_bytes = match &vdev.kind {
            crate::vdev::Kind::Leaf(slot) => {
                slot.device().map_or(0, |device| aligned_size(device.size_bytes()))
            }
            _ => 0,
        };
        let asize = match vdev.asize() {
            0 => usable_bytes(device_bytes),
            asize => asize,
        };
        self.number(VdevProp::Asize, asize);
        self.number(VdevProp::Psize, device_bytes);
        self.number(VdevProp::Expandsize, vdev.expandable_bytes());
        self.text(VdevProp::Path, config.path.as_ref());
        self.text(VdevProp::Devid, config.devid.as_ref());
        self.text(VdevProp::PhysPath, config.phys_path.as_ref());
        self.text(VdevProp::EncPath, config.enc_sysfs_path.as_ref());
        self.text(VdevProp::Parent, Some(parent));
        let children: Vec<String> = config.children.iter().map(name).collect();
        self.text(VdevProp::Children, (!children.is_empty()).then(|| children.join(",")));
        self.number(VdevProp::Numchildren, children.len() as u64);
        let (parity, expanding) = match &config.kind {
            VdevKind::Raidz { nparity, expanding, .. } => (*nparity, Some(*expanding)),
            VdevKind::Draid { nparity, .. } => (*nparity, None),
            _ => (0, None),
        };
        self.number(VdevProp::Parity, u64::from(parity));
        if let Some(expanding) = expanding {
            self.number(VdevProp::RaidzExpanding, u64::from(expanding));
        }
        self.number(VdevProp::Removing, u64::from(config.removing));
        self.number(VdevProp::ReadErrors, vdev.errors.read());
        self.number(VdevProp::WriteErrors, vdev.errors.write());
        self.number(VdevProp::ChecksumErrors, vdev.errors.checksum());
        self.number(VdevProp::SlowIos, if children.is_empty() { vdev.stats.slow() } else { 0 });
        for (operations, bytes, kind) in [
            (VdevProp::ReadOps, VdevProp::ReadBytes, Transfer::Read),
            (VdevProp::WriteOps, VdevProp::WriteBytes, Transfer::Write),
            (VdevProp::TrimOps, VdevProp::TrimBytes, Transfer::Discard),
        ] {
            let counted = vdev.stats.snapshot(kind);
            self.number(operations, counted.operations);
            self.number(bytes, counted.bytes);
        }
        let unknown = if children.is_empty() { "off" } else { "-" };
        self.text(VdevProp::TrimSupport, Some(unknown));
    }

    fn add_space(&mut self, space: Option<&VdevSpace>) {
        let size = space.map_or(0, VdevSpace::deflated_bytes);
        let allocated = space.map_or(0, |space| space.allocated_bytes);
        self.number(VdevProp::Size, size);
        self.number(VdevProp::Allocated, allocated);
        self.number(VdevProp::Free, size.saturating_sub(allocated));
        let capacity = u128::from(allocated) * 100;
        self.number(VdevProp::Capacity, capacity.checked_div(size.into()).unwrap_or(0) as u64);
        self.number(
            VdevProp::Fragmentation,
            space.map_or(0, |space| space.fragmentation.unwrap_or(u64::MAX)),
        );
        // OpenZFS counts these since import; a pool that is only read has none of them.
        for prop in [VdevProp::InitializeErrors, VdevProp::TrimErrors] {
            self.number(prop, 0);
        }
    }

    /// Everything that `zpool get all` shows, in its order.
    pub fn all(&self, style: Style) -> Vec<Shown> {
        let native =
            VDEV_TABLE.iter().filter(|desc| desc.visible).filter_map(|desc| self.get(desc.prop, style));
        let user = self.user.iter().map(|(name, value)| shown(name.clone(), value.clone(), Source::Local));
        native.chain(user).collect()
    }

    /// The property as `zpool get` shows it.
    pub fn get(&self, prop: VdevProp, style: Style) -> Option<Shown> {
        let desc = prop.desc();
        let kept = self.values.iter().rev().find(|(kept, ..)| *kept == prop);
        let (value, source) = match (kept, desc.kind) {
            (Some((_, Value::Text(text), source)), _) => (text.clone(), source.clone()),
            (Some((_, Value::Number(number), source)), _) => (word(prop, *number, style)?, source.clone()),
            (None, _) if matches!(prop, VdevProp::RaidzExpanding | VdevProp::SitOut | VdevProp::Autosit) => {
                return None;
            }
            (None, Kind::Text(default)) => (default.unwrap_or("-").to_owned(), Source::Default),
            (None, _) => (word(prop, desc.default_number(), style)?, Source::Default),
        };
        Some(shown(desc.name.to_owned(), value, source))
    }
}

/// The vdev of a guid, with its parent.
fn find(tree: &VdevConfig, guid: Guid) -> Option<(&VdevConfig, &VdevConfig)> {
    tree.children.iter().find_map(
        |child| {
            if child.guid == guid { Some((tree, child)) } else { find(child, guid) }
        },
    )
}

fn name(config: &VdevConfig) -> String {
    match &config.path {
        Some(path) => path.to_string(),
        None => format!("{}-{}", config.kind.type_name(), config.id.map_or(0, |id| id.0)),
    }
}

/// The kernel's number for a state.
fn state_number(state: State) -> u64 {
    match state {
        State::Offline => 2,
        State::Removed => 3,
        State::CantOpen => 4,
        State::Faulted => 5,
        State::Degraded => 6,
        State::Healthy => 7,
    }
}

fn state_word(number: u64) -> &'static str {
    match number {
        1 | 2 => "OFFLINE",
        3 => "REMOVED",
        4 => "UNAVAIL",
        5 => "FAULTED",
        6 => "DEGRADED",
        7 => "ONLINE",
        _ => "UNKNOWN",
    }
}

/// The words for `number`; `None` for a number that an index property has no word for.
fn word(prop: VdevProp, number: u64, style: Style) -> Option<String> {
    Some(match prop {
        VdevProp::State if !style.parsable => state_word(number).to_owned(),
        VdevProp::Expandsize if number == 0 => "-".to_owned(),
        VdevProp::ChecksumN
        | VdevProp::ChecksumT
        | VdevProp::IoN
        | VdevProp::IoT
        | VdevProp::SlowIoN
        | VdevProp::SlowIoT
        | VdevProp::Fragmentation
            if number == u64::MAX =>
        {
            "-".to_owned()
        }
        VdevProp::Fragmentation => format!("{number}%"),
        VdevProp::Capacity => style.percent(number),
        VdevProp::Guid | VdevProp::State | VdevProp::Ashift | VdevProp::Parity | VdevProp::Numchildren => {
            number.to_string()
        }
        _ => match prop.desc().kind {
            Kind::Index(_, names) => index::word(names, number)?.to_owned(),
            _ => style.number(number),
        },
    })
}
