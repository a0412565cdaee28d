//! Adding top-level vdevs, spares and cache devices to a pool that is written, removing the latter two (log
//! devices: [`super::remove`]), and giving the pool another guid.
//!
//! The new vdevs join the tree, the configuration and the allocator in the sync of one group. Their labels
//! name no group until then; the commit writes the first half of all labels before the uberblock, so that
//! an import that finds that uberblock finds labels on the new devices too. When something fails before, the
//! pool is what it was, and the devices belong to no pool.
//!
//! Spares and cache devices stand in lists of their own in the MOS, and their labels name no pool.
//!
//! Source of the facts: OpenZFS 2.3 `spa.c` (`spa_vdev_add`, `spa_change_guid`, `spa_sync_aux_dev`),
//! `vdev_removal.c` (`spa_vdev_remove`).

use std::sync::Arc;

use ondisk::Guid;
use ondisk::pool_directory as directory;
use ondisk::vdev_config::{PoolState, VdevConfig, VdevKind};

use super::attach::label_alone;
use super::claims::Wanted;
use super::create::{
    check_since, check_tops, distributed_spares, label_new, leaf_configs, random_guid, take_up_top,
    top_configs, write_auxiliary,
};
use super::{LivePool, NewLeaf, NewTop, Syncing, version};
use crate::error::{Error, Result};
use crate::pool::status;
use crate::vdev::config::{Devices, build_auxiliary};
use crate::vdev::release::release;
use crate::vdev::spares::shared_guid;
use crate::vdev::{Aux, Class, Kind, Vdev};

impl LivePool {
    /// Adds top-level vdevs; returns when that is committed. `ashift` as in a new pool. What the devices held
    /// is lost.
    pub async fn add(self: &Arc<Self>, tops: Vec<NewTop>, ashift: Option<u8>) -> Result<()> {
        self.check_addition(&tops, ashift, true)?;
        self.change(move |s| async move { add_tops(&s, &tops, ashift).await }).await?;
        self.sysevent("vdev_add", None);
        Ok(())
    }

    /// Refuses top-level vdevs that cannot be added. Their devices keep what they hold.
    ///
    /// # Errors
    /// A layout or class that needs a feature that is not enabled; devices that do not go; unless they may be
    /// `mixed`, sector sizes other than that of all vdevs for data.
    pub fn check_addition(&self, tops: &[NewTop], ashift: Option<u8>, mixed: bool) -> Result<()> {
        let configs =
            check_tops(tops, ashift, self.version(), |feature| self.features.count(feature).is_some())?;
        let is_data = |top: &&Vdev| top.class() != Class::Log && top.ashift != 0;
        let mut own = self.pool.vdevs().tops.iter().filter(is_data).map(|top| top.ashift);
        let Some(first) = own.next().filter(|first| !mixed && own.all(|ashift| ashift == *first)) else {
            return Ok(());
        };
        match configs.iter().find(|config| config.ashift.is_some_and(|ashift| u32::from(ashift) != first)) {
            Some(_) => Err(Error::Unsupported(
                "adding devices with different physical sector sizes is not allowed".into(),
            )),
            None => Ok(()),
        }
    }

    /// Adds spares or cache devices; returns when that is committed. What they held is lost.
    pub async fn add_auxiliary(self: &Arc<Self>, kind: Auxiliary, leaves: Vec<NewLeaf>) -> Result<()> {
        let (what, since) = match kind {
            Auxiliary::Spares => ("add hot spares", version::SPARES),
            Auxiliary::Cache => ("add cache devices", version::L2CACHE),
        };
        check_since(what, self.version(), since)?;
        self.change(move |s| async move { add_auxiliary(&s, kind, &leaves).await }).await?;
        self.sysevent("vdev_add", None);
        self.look_at_l2cache();
        Ok(())
    }

    /// Removes a spare or a cache device, which the pool does not need.
    ///
    /// # Errors
    /// It is neither, or it stands in for another device.
    pub(super) async fn remove_auxiliary(self: &Arc<Self>, guid: Guid) -> Result<()> {
        let removed = self.change(move |s| async move {
            for kind in [Auxiliary::Spares, Auxiliary::Cache] {
                let list = kind.of(&s.pool);
                let Some(vdev) = list.iter().find(|vdev| vdev.guid == guid) else { continue };
                let vdevs = s.pool.pool().vdevs();
                // Another pool that uses it does so whether this one has it or not.
                if vdev.status().aux == Aux::Spared && vdevs.user_of_spare(vdev).is_none() {
                    return Err(Error::Busy("device is in use as a spare".into()));
                }
                if matches!(vdev.config.kind, VdevKind::DraidSpare { .. }) {
                    return Err(Error::Unsupported("operation not supported on this type of vdev".into()));
                }
                let device = list.remove(vdev);
                s.pool.look_at_l2cache();
                kind.write(&s).await?;
                return Ok(device);
            }
            Err(Error::Unsupported(
                "only inactive hot spares, cache and log devices can be removed by this version".into(),
            ))
        });
        release(removed.await?.into_iter().collect()).await;
        Ok(())
    }

    /// The pool's guid, which can change.
    pub fn guid(&self) -> Guid {
        self.config().guid
    }

    /// Gives the pool another guid; returns when that is committed. `guid` must not be in use by another
    /// pool.
    ///
    /// # Errors
    /// Not all devices are there, so that some would not belong to the pool any more, or there is a
    /// checkpoint.
    pub async fn reguid(self: &Arc<Self>, guid: Option<Guid>) -> Result<()> {
        self.change(move |s| async move {
            s.pool.refuse_with_checkpoint()?;
            if !status::is_complete(s.pool.pool()) {
                return Err(Error::Busy("one or more devices is currently unavailable".into()));
            }
            let guid = guid.unwrap_or_else(|| random_guid(&**s.pool.env()));
            if guid.get() == 0 {
                return Err(Error::Invalid("a guid is not 0".into()));
            }
            let mut config = s.pool.config();
            (config.guid, config.root.guid) = (guid, guid);
            drop(config);
            s.pool.config_changed();
            // What is told of the pool from now on has its new guid.
            s.pool.pool.vdevs().reporter().set_pool(s.pool.pool.name(), guid);
            s.pool.sysevent("pool_reguid", None);
            Ok(())
        })
        .await
    }
}

/// The devices beside those that hold blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auxiliary {
    /// Hot spares.
    Spares,
    /// Cache devices.
    Cache,
}

impl Auxiliary {
    fn of(self, pool: &LivePool) -> &crate::vdev::Auxiliary {
        match self {
            Self::Spares => &pool.pool.vdevs().spares,
            Self::Cache => &pool.pool.vdevs().l2cache,
        }
    }

    fn state(self) -> PoolState {
        match self {
            Self::Spares => PoolState::Spare,
            Self::Cache => PoolState::L2cache,
        }
    }

    /// Writes the list into the MOS. As in OpenZFS the configuration of the pool is written too, which is an
    /// event.
    pub(super) async fn write(self, s: &Syncing) -> Result<()> {
        s.pool.config_changed();
        let name = match self {
            Self::Spares => directory::SPARES,
            Self::Cache => directory::L2CACHE,
        };
        let vdevs = self.of(&s.pool).iter();
        let configs: Vec<VdevConfig> = vdevs.map(|vdev| s.pool.auxiliary_config(vdev)).collect();
        write_auxiliary(s, name, &configs).await
    }
}

/// Adds spares or cache devices. They have their labels before any other task can use them.
async fn add_auxiliary(s: &Syncing, kind: Auxiliary, leaves: &[NewLeaf]) -> Result<()> {
    let wanted: Vec<Wanted<'_>> = leaves.iter().map(Wanted::from).collect();
    s.pool.refuse_placed(&wanted).await?;
    let mut devices = Devices::new();
    let configs = leaf_configs(leaves, kind == Auxiliary::Spares, &**s.pool.env(), &mut devices);
    for (config, leaf) in configs.iter().zip(leaves) {
        // A spare of another pool has its label.
        if shared_guid(&*leaf.device) != Some(config.guid) {
            label_alone(config, &leaf.device, &s.pool.auxiliary_label(config.guid, kind.state())).await?;
        }
    }
    let list = kind.of(&s.pool);
    for vdev in build_auxiliary(&configs, &devices)?.into_vdevs() {
        list.push(vdev);
    }
    if kind == Auxiliary::Spares {
        s.pool.list_spares();
    }
    kind.write(s).await
}

async fn add_tops(s: &Syncing, tops: &[NewTop], ashift: Option<u8>) -> Result<()> {
    let wanted: Vec<Wanted<'_>> = tops.iter().flat_map(|top| &top.leaves).map(Wanted::from).collect();
    s.pool.refuse_placed(&wanted).await?;
    let mut devices = Devices::new();
    let vdevs = s.pool.pool().vdevs();
    // All of them are checked before the first is added.
    let configs = top_configs(tops, vdevs.tops.len(), ashift, s.txg(), &**s.pool.env(), &mut devices)?;
    let spares = distributed_spares(&configs, &**s.pool.env());
    for (config, top) in configs.into_iter().zip(tops) {
        let id = vdevs.add_top(&config, &devices)?;
        if let Some(added) = vdevs.top(id) {
            let _ = added.class.set(top.class);
        }
        let pool_config = s.pool.config().clone();
        label_new(s.pool.pool(), s.version(), &pool_config, &config).await?;
        s.pool.config().root.children.push(config);
        take_up_top(s, id as usize).await?;
    }
    if spares.is_empty() {
        return Ok(());
    }
    for spare in build_auxiliary(&spares, &devices)?.into_vdevs() {
        vdevs.spares.push(spare);
    }
    Auxiliary::Spares.write(s).await
}

impl LivePool {
    /// Labels the spares and cache devices of a new pool.
    pub(super) async fn label_auxiliary(&self) -> Result<()> {
        let vdevs = self.pool.vdevs();
        let spares = vdevs.spares.iter().map(|vdev| (vdev, PoolState::Spare));
        let l2cache = vdevs.l2cache.iter().map(|vdev| (vdev, PoolState::L2cache));
        for (vdev, state) in spares.chain(l2cache) {
            let Kind::Leaf(slot) = &vdev.kind else { continue };
            let is_shared = slot.device().is_some_and(|device| shared_guid(&*device) == Some(vdev.guid));
            if is_shared && state == PoolState::Spare {
                continue;
            }
            let label = self.auxiliary_label(vdev.guid, state);
            vdevs.initialize_label(vdev.guid, &label).await.map_err(|tried| cannot_label(&tried))?;
        }
        self.writer().flush().await
    }
}

pub(super) fn cannot_label(tried: &[crate::error::Attempt]) -> Error {
    let tried: Vec<String> = tried.iter().map(ToString::to_string).collect();
    Error::Busy(format!("a device cannot be labelled: {}", tried.join("; ")))
}
