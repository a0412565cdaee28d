//! Faults on demand: which device, file or block is meant, and whether its damage is wanted.

use std::path::Path;
use std::sync::Arc;

use engine::inject::{ALWAYS, Blocks, DeviceError, Fault, LabelPart, Operation};
use engine::pool::live::{LivePool, TakeOffline};
use engine::vdev::Kind;
use engine::zpl::{Zpl, ZplOptions};
use ondisk::objset::ObjsetType;
use ondisk::{Guid, ObjectId};

use super::devices::find;
use crate::api::edge::Edge;
use crate::api::{self, ApiError, BlockFault, InjectTarget, Injection};
use crate::daemon::refusals::refused;
use crate::daemon::{Daemon, OpenPool};

/// The object of a volume that holds its data.
const VOLUME_DATA: ObjectId = ObjectId(1);
/// Dnode slots of a block of the meta-dnode.
const DNODES_PER_BLOCK: u64 = 32;
/// The most names in the path of a file.
const MAX_NAMES: usize = 4096;

impl Daemon {
    /// Adds handlers for a fault.
    ///
    /// # Errors
    /// No such pool, device or file; the pool is open read-only; or damage that was not asked for by name.
    pub async fn inject_fault(&self, request: api::InjectFault) -> Result<Vec<u64>, ApiError> {
        const DOING: &str = "cannot inject";
        if request.target.is_none() && request.pool.is_empty() {
            let pools = self.open_pools();
            pools.iter().filter_map(|open| open.live()).for_each(|live| live.flush_cache());
            return Ok(Vec::new());
        }
        let (open, located) = match &request.target {
            Some(InjectTarget::File { path, .. }) => self.pool_of_path(path)?,
            _ => (self.pool(&request.pool)?, Located::default()),
        };
        let live = open
            .live()
            .ok_or_else(|| ApiError::refused(format!("{DOING}: pool '{}' is open read-only", open.name())))?;
        let is_read_from_devices = match request.target {
            // Blocks of a file are known by what is committed.
            Some(InjectTarget::File { .. }) => true,
            // What is not committed yet is read from memory.
            Some(InjectTarget::Device { operation: api::InjectedOperation::Read, .. }) => {
                !open.is_suspended()
            }
            _ => false,
        };
        if is_read_from_devices {
            let txgs = live.txgs();
            txgs.wait_synced(txgs.open_txg()).await.map_err(|error| refused(DOING, error))?;
        }
        if request.empty_cache {
            live.flush_cache();
        }
        let Some(target) = request.target else { return Ok(Vec::new()) };
        let faults = match target {
            InjectTarget::Declare { device, faulted } => {
                let leaf = leaf_called(&open, &device)?;
                match faulted {
                    true => live.offline(leaf, TakeOffline::Faulted).await,
                    false => live.degrade(leaf),
                }
                .map_err(|error| refused(DOING, error))?;
                return Ok(Vec::new());
            }
            target => faults(&open, live, target, &located).await?,
        };
        if !request.force && faults.iter().any(Fault::damages) {
            return Err(ApiError::refused(format!(
                "{DOING}: this damages what pool '{}' stores, or gives wrong bytes to its readers; \
                 --force does it all the same",
                open.name()
            )));
        }
        let frequency = if request.frequency == 0 { ALWAYS } else { request.frequency };
        let mut ids = Vec::new();
        for fault in faults {
            ids.push(live.inject(fault, frequency).map_err(|error| refused(DOING, error))?);
        }
        Ok(ids)
    }

    /// The faults that are being made.
    ///
    /// # Errors
    /// None.
    pub fn list_injections(&self, _: api::ListInjections) -> Result<Vec<Injection>, ApiError> {
        let mut all = Vec::new();
        for open in self.open_pools() {
            let Some(live) = open.live() else { continue };
            let view = open.view();
            for handler in live.injections() {
                let (matched, injected) = handler.counts();
                let leaf = handler.fault.leaf().and_then(|leaf| view.vdevs().find(leaf));
                all.push(Injection {
                    id: handler.id,
                    pool: open.name().to_owned(),
                    fault: handler.fault.clone().edge(),
                    device: leaf.map(|leaf| leaf.name.clone()),
                    frequency: handler.frequency,
                    matched,
                    injected,
                });
            }
        }
        Ok(all)
    }

    /// Stops making faults.
    ///
    /// # Errors
    /// There is no such fault.
    pub fn clear_injections(&self, request: api::ClearInjections) -> Result<u64, ApiError> {
        let pools = self.open_pools();
        let cleared: usize =
            pools.iter().filter_map(|open| Some(open.live()?.clear_injections(request.id))).sum();
        match request.id {
            Some(id) if cleared == 0 => Err(ApiError::not_found(format!("there is no handler {id}"))),
            _ => Ok(cleared as u64),
        }
    }

    /// The pool of a file in a mounted filesystem, or of a volume, with its dataset.
    fn pool_of_path(&self, path: &str) -> Result<(Arc<OpenPool>, Located), ApiError> {
        if !path.starts_with('/') {
            let located = Located { dataset: path.to_owned(), names: Vec::new() };
            return Ok((self.pool_of(path)?, located));
        }
        let mut found: Option<(usize, Arc<OpenPool>, Located)> = None;
        for open in self.open_pools() {
            for (dataset, mountpoint) in open.mountpoints() {
                let Ok(below) = Path::new(path).strip_prefix(&mountpoint) else { continue };
                let depth = mountpoint.components().count();
                if found.as_ref().is_none_or(|(deepest, ..)| depth > *deepest) {
                    let names = below.iter().map(|name| name.as_encoded_bytes().to_vec()).collect();
                    found = Some((depth, Arc::clone(&open), Located { dataset, names }));
                }
            }
        }
        found.map(|(_, open, located)| (open, located)).ok_or_else(|| {
            ApiError::not_found(format!("cannot inject: {path} is in no mounted filesystem of an open pool"))
        })
    }
}

/// A file by its dataset, and the names that lead to it.
#[derive(Debug, Default)]
struct Located {
    dataset: String,
    names: Vec<Vec<u8>>,
}

async fn faults(
    open: &OpenPool,
    live: &Arc<LivePool>,
    target: InjectTarget,
    located: &Located,
) -> Result<Vec<Fault>, ApiError> {
    let leaf = |device: &str| leaf_called(open, device).map(Guid::get);
    Ok(match target {
        InjectTarget::Device { device, error, operation, label } => {
            let (error, operation) = (error.edge(), operation.edge());
            vec![Fault::Device { leaf: leaf(&device)?, error, operation, label: label.edge() }]
        }
        InjectTarget::Delay { device, latency_ms, lanes, operation } => {
            if lanes == 0 {
                return Err(ApiError::invalid("cannot inject: a delay needs a lane"));
            }
            let latency = std::time::Duration::from_millis(latency_ms);
            vec![Fault::Delay { leaf: leaf(&device)?, latency, lanes, operation: operation.edge() }]
        }
        InjectTarget::Gone { device } => vec![Fault::Gone { leaf: leaf(&device)? }],
        InjectTarget::IgnoreWrites => {
            let vdevs = live.pool().vdevs();
            let leaves = vdevs.leaves().filter(|leaf| matches!(leaf.kind, Kind::Leaf(_)));
            let ignored = |leaf: u64| {
                let error = DeviceError::Noop;
                let parts = [None, Some(LabelPart::Nvlist), Some(LabelPart::Uber)];
                parts.map(|label| Fault::Device { leaf, error, operation: Operation::Write, label })
            };
            leaves.flat_map(|leaf| ignored(leaf.guid.get())).collect()
        }
        InjectTarget::Blocks { blocks, what } => vec![fault_of(blocks.edge(), what)],
        InjectTarget::File { path, dnode, level, range, copies, what } => {
            let file = file_of(open, located).await;
            let file = file.map_err(|error| refused(&format!("cannot inject into {path}"), error))?;
            let blocks = file.blocks(dnode, level, range)?;
            vec![fault_of(Blocks { copies, ..blocks }, what)]
        }
        // Done by the caller.
        InjectTarget::Declare { .. } => Vec::new(),
    })
}

fn fault_of(blocks: Blocks, what: BlockFault) -> Fault {
    match what {
        BlockFault::Read(error) => Fault::Block { blocks, error: error.edge() },
        BlockFault::Flip(flip) => Fault::Memory { blocks, flip: flip.edge() },
    }
}

fn leaf_called(open: &OpenPool, device: &str) -> Result<Guid, ApiError> {
    let found = find(open, device);
    found.ok_or_else(|| ApiError::not_found(format!("cannot inject into {device}: no such device in pool")))
}

/// An object, and how its blocks are laid out.
struct FoundFile {
    objset: u64,
    object: u64,
    block_bytes: u64,
    /// Pointers of an indirect block, as a power of two.
    indirect_shift: u32,
}

async fn file_of(open: &OpenPool, located: &Located) -> engine::Result<FoundFile> {
    let dsl = open.dsl().await?;
    let dataset = dsl.find(&located.dataset).await?;
    let objset = dsl.open_objset(&dataset).await?;
    let object = match objset.objset_type() {
        ObjsetType::Zvol => VOLUME_DATA,
        _ => {
            let zpl = Zpl::open(&objset, ZplOptions::default()).await?;
            let mut at = zpl.root();
            for name in located.names.iter().take(MAX_NAMES) {
                let found = zpl.node(at).await?.lookup(name).await?;
                let name = String::from_utf8_lossy(name);
                at = found.ok_or_else(|| engine::Error::NotFound(format!("{}:{name}", located.dataset)))?;
            }
            at
        }
    };
    let found = objset.object(object).await?;
    // A block pointer has 128 bytes.
    let indirect_shift = u32::from(found.dnode().indirect_block_shift).saturating_sub(7);
    Ok(FoundFile {
        objset: dataset.objset_id().get(),
        object: object.get(),
        block_bytes: found.block_size(),
        indirect_shift,
    })
}

impl FoundFile {
    fn blocks(&self, dnode: bool, level: i64, range: Option<(u64, u64)>) -> Result<Blocks, ApiError> {
        let at_level = |block: u64| {
            let shift = u64::from(self.indirect_shift).saturating_mul(u64::try_from(level).unwrap_or(0));
            block.checked_shr(u32::try_from(shift).unwrap_or(u32::MAX)).unwrap_or(0)
        };
        let objset = self.objset;
        if dnode {
            if range.is_some() {
                return Err(ApiError::invalid("cannot inject: a dnode has no range"));
            }
            let block = self.object / DNODES_PER_BLOCK;
            let block = if level == 0 { block } else { at_level(block) };
            let blocks = (block, block);
            return Ok(Blocks { objset, object: Some(0), level: Some(level), blocks, copies: 0 });
        }
        let blocks = match range {
            None => (0, u64::MAX),
            Some((first, last)) => {
                let block = |byte: u64| at_level(byte / self.block_bytes.max(1));
                (block(first), block(last.max(first)))
            }
        };
        Ok(Blocks { objset, object: Some(self.object), level: Some(level), blocks, copies: 0 })
    }
}
