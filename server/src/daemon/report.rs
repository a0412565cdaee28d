//! The health of pools: of those that are open, and of those that could be imported.
//!
//! States and counters are the vdev tree's. The *reason*, the one most severe thing to say, is found by going through the
//! possible ones from the worst on. A pool that could be imported is loaded for the report, so that it says what an
//! import would meet; where it does not load, the labels say what they can. Source of the facts: OpenZFS 2.3 `libzfs_status.c`
//! and `vdev.c` (`vdev_propagate_state`).

use engine::dataset::dsl::Dsl;
use engine::pool::Pool;
use engine::pool::discovery::FoundPool;
use engine::pool::errlog::{self, DamagedBlock};
use engine::pool::import::{self, ImportError, ImportOptions, Rewind};
use engine::pool::space::PoolSpace;
use engine::vdev::config::build_tree;
use engine::vdev::{Aux, Class, ErrorCounters, Kind, State, Status, Vdev, VdevTree};
use ondisk::Guid;
use ondisk::features::Feature;
use ondisk::vdev_config::{PoolConfig, PoolState, VdevConfig};

use super::{Daemon, OpenPool, pools::host_id};
use crate::api::{
    self, ApiError, Checkpoint, ImportablePool, Listed, PoolStatus, Reason, VdevClass, VdevNode, VdevSpace,
};

/// The version of all pools with feature flags.
const FEATURES_VERSION: u64 = 5000;
/// Devices are used in multiples of a label's size.
const LABEL_BYTES: u64 = 256 << 10;

impl Daemon {
    /// The health of open pools.
    ///
    /// # Errors
    /// None: a pool that cannot be told of becomes an entry of `failed`.
    pub async fn status(&self, request: api::GetStatus) -> Result<Listed<PoolStatus>, ApiError> {
        let (pools, failed) = self.pools_named(&request.pools);
        let mut listed = Listed { entries: Vec::new(), failed };
        for pool in pools {
            match pool_status(&pool, request.files).await {
                Ok(status) => listed.entries.push(status),
                Err(error) => listed.failed.push(ApiError {
                    message: format!("cannot read the status of '{}': {error}", pool.name()),
                    ..error.into()
                }),
            }
        }
        Ok(listed)
    }

    /// Looks for pools that could be imported.
    ///
    /// # Errors
    /// What the search says.
    pub async fn discover(&self, request: api::DiscoverPools) -> Result<Vec<ImportablePool>, ApiError> {
        let mut found = self.search(&request.search).await?;
        found.retain(|pool| (pool.state() == PoolState::Destroyed) == request.destroyed);
        if let Some(wanted) = &request.pool {
            found.retain(|pool| pool.name == *wanted || wanted.parse() == Ok(pool.guid.0));
        }
        found.sort_by(|a, b| (&a.name, a.guid).cmp(&(&b.name, b.guid)));
        let mut pools = Vec::new();
        for pool in &found {
            pools.push(self.importable(pool).await?);
        }
        Ok(pools)
    }

    async fn importable(&self, found: &FoundPool) -> Result<ImportablePool, ApiError> {
        let label = &found.label;
        let options = ImportOptions {
            missing_log: true,
            destroyed: true,
            rewind: Rewind::Never,
            cache: Some(self.cache().clone()),
            ..ImportOptions::read_only()
        };
        let unknown_features = import::unknown_features(label);
        let (vdevs, reason) = match import::import(found, &options).await {
            Ok(pool) => {
                let root = root_node(&pool, None);
                let root = VdevNode { name: found.name.clone(), ..root };
                let reason = match hostid_reason(label) {
                    Some(reason) => reason,
                    None => {
                        let dsl = Dsl::open(&pool).await?;
                        reason_of(&dsl, &root, false).await?
                    }
                };
                (root, reason)
            }
            Err(error) => {
                let root = labels_node(found, &error);
                let reason = hostid_reason(label).unwrap_or_else(|| match &error {
                    ImportError::Version { .. } => Reason::VersionNewer,
                    ImportError::UnsupportedFeatures { .. } => Reason::UnsupportedFeaturesRead,
                    ImportError::MissingLog { .. } => Reason::BadLog,
                    ImportError::MissingDevices { .. } => {
                        vdev_reason(&root, false).unwrap_or(Reason::BadGuidSum)
                    }
                    _ => vdev_reason(&root, false).unwrap_or(Reason::CorruptPool),
                });
                (root, reason)
            }
        };
        let newest = import::uberblocks(found).await.into_iter().next();
        let text = |text: &Option<ondisk::nvlist::ByteString>| {
            text.as_ref().map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned())
        };
        let missing = vdevs.children.iter().filter(|vdev| vdev.kind == "missing").count();
        Ok(ImportablePool {
            name: found.name.clone(),
            guid: found.guid.0,
            state: vdevs.state,
            destroyed: label.state == PoolState::Destroyed,
            exported: label.state != PoolState::Active,
            version: label.version,
            reason,
            errata: label.errata,
            comment: text(&label.comment),
            hostname: text(&label.host_name),
            hostid: label.host_id.unwrap_or(0),
            timestamp: newest.map_or(0, |uberblock| uberblock.timestamp),
            unknown_features,
            missing_tops: missing as u64,
            vdevs,
            duplicates: found.duplicates.clone(),
        })
    }
}

async fn pool_status(open: &OpenPool, files: bool) -> engine::Result<PoolStatus> {
    let pool = open.pool();
    let root = root_node(pool, None);
    let errors = errlog::read(open.dsl()).await?;
    let mut reason = reason_of(open.dsl(), &root, true).await?;
    if !errors.is_empty() && !hides_data_errors(reason) {
        reason = Reason::CorruptData;
    }
    let space = match pool.checkpoint() {
        Some(_) => open.dsl().pool_space().await?.checkpoint_bytes,
        None => 0,
    };
    Ok(PoolStatus {
        name: open.name().to_owned(),
        guid: pool.guid().0,
        state: root.state,
        txg: pool.uberblock().txg.0,
        version: pool.config().version,
        reason,
        errata: pool.config().errata,
        vdevs: root,
        scan: None,
        removal: None,
        expansion: None,
        checkpoint: pool
            .checkpoint()
            .map(|checkpoint| Checkpoint { start_time: checkpoint.timestamp, space }),
        error_count: errors.len() as u64,
        error_files: if files { error_files(open, &errors).await } else { Vec::new() },
        dedup: None,
    })
}

/// What damaged blocks are part of, each file once.
async fn error_files(open: &OpenPool, errors: &[DamagedBlock]) -> Vec<String> {
    let mountpoints = open.mountpoints();
    let mut files = Vec::new();
    for error in errors {
        let file = errlog::describe(open.dsl(), error, &|name| mountpoints.get(name).cloned()).await;
        if files.last() != Some(&file) {
            files.push(file);
        }
    }
    files
}

/// What is said of a pool rather than that it has data errors.
fn hides_data_errors(reason: Reason) -> bool {
    use Reason::*;
    matches!(
        reason,
        Resilvering
            | HostidMismatch
            | BadGuidSum
            | BadLog
            | FaultedNoReplicas
            | MissingNoReplicas
            | CorruptLabelNoReplicas
            | CorruptPool
    )
}

/// The most severe thing to say of a pool that loads.
async fn reason_of(dsl: &Dsl, root: &VdevNode, with_counters: bool) -> engine::Result<Reason> {
    if let Some(reason) = vdev_reason(root, with_counters) {
        return Ok(reason);
    }
    let config = dsl.pool().config();
    if config.errata != 0 {
        return Ok(Reason::Errata);
    }
    let compatibility = config.compatibility.as_ref().map_or(&b"off"[..], |set| set.as_bytes());
    if config.version < FEATURES_VERSION {
        return Ok(if compatibility == b"legacy" { Reason::Ok } else { Reason::VersionOlder });
    }
    // Other sets are files of the host that the pool comes from.
    let wants_all = matches!(compatibility, b"" | b"off");
    let features = dsl.features().await?;
    let lacks_some = Feature::ALL.iter().any(|feature| !features.is_enabled(*feature));
    Ok(if wants_all && lacks_some { Reason::FeaturesDisabled } else { Reason::Ok })
}

/// The pool was last used by another host, which did not export it.
fn hostid_reason(label: &PoolConfig) -> Option<Reason> {
    let host = label.host_id.unwrap_or(0);
    let elsewhere = host != 0 && host != host_id() && label.state == PoolState::Active;
    elsewhere.then_some(Reason::HostidMismatch)
}

/// The most severe thing to say of the vdevs.
fn vdev_reason(root: &VdevNode, with_counters: bool) -> Option<Reason> {
    let any = |is_problem: fn(&VdevNode) -> bool| has_problem(root, &is_problem);
    let faulted: fn(&VdevNode) -> bool = |vdev| vdev.state == State::Faulted;
    let missing: fn(&VdevNode) -> bool = |vdev| vdev.state == State::CantOpen && vdev.aux == Aux::OpenFailed;
    let broken: fn(&VdevNode) -> bool = |vdev| vdev.state == State::CantOpen;
    let unopenable = root.state == State::CantOpen;
    if unopenable && root.aux == Aux::BadGuidSum {
        return Some(Reason::BadGuidSum);
    }
    if unopenable {
        let reasons = [
            (faulted, Reason::FaultedNoReplicas),
            (missing, Reason::MissingNoReplicas),
            (broken, Reason::CorruptLabelNoReplicas),
        ];
        if let Some((_, reason)) = reasons.into_iter().find(|(problem, _)| any(*problem)) {
            return Some(reason);
        }
        return Some(Reason::CorruptPool);
    }
    let failing: fn(&VdevNode) -> bool = |vdev| {
        vdev.state == State::Degraded
            || vdev.read_errors != 0
            || vdev.write_errors != 0
            || vdev.checksum_errors != 0
    };
    let reasons: [(fn(&VdevNode) -> bool, Reason); 6] = [
        (faulted, Reason::FaultedReplicas),
        (missing, Reason::MissingReplicas),
        (broken, Reason::CorruptLabelReplicas),
        (if with_counters { failing } else { |_| false }, Reason::FailingDevice),
        (|vdev| vdev.state == State::Offline, Reason::OfflineDevice),
        (|vdev| vdev.state == State::Removed, Reason::RemovedDevice),
    ];
    reasons.into_iter().find(|(problem, _)| any(*problem)).map(|(_, reason)| reason)
}

/// Whether a leaf has a problem, those being replaced and hot spares aside.
fn has_problem(vdev: &VdevNode, is_problem: &impl Fn(&VdevNode) -> bool) -> bool {
    match vdev.kind.as_str() {
        "replacing" => false,
        _ if vdev.class == VdevClass::Spare => false,
        _ if vdev.children.is_empty() => is_problem(vdev),
        _ => vdev.children.iter().any(|child| has_problem(child, is_problem)),
    }
}

/// The state of a pool whose top-level vdevs have these states: a log that is lost degrades it, anything else that is lost breaks it.
fn root_status<'a>(tops: impl Iterator<Item = &'a Vdev>) -> Status {
    let (mut lost, mut degraded) = (false, false);
    for top in tops {
        match top.status.state {
            State::Healthy => {}
            State::Degraded => degraded = true,
            _ if top.class() == Class::Log => degraded = true,
            _ => lost = true,
        }
    }
    match (lost, degraded) {
        (true, _) => Status::new(State::CantOpen, Aux::NoReplicas),
        (false, true) => Status::new(State::Degraded, Aux::None),
        (false, false) => Status::HEALTHY,
    }
}

/// The state of an open pool.
pub(super) fn health(pool: &Pool) -> State {
    root_status(pool.vdevs().tops.iter()).state
}

/// All vdevs of an open pool, with their space where that is given.
pub(super) fn root_node(pool: &Pool, space: Option<&PoolSpace>) -> VdevNode {
    let mut root = tree_node(pool.name(), pool.vdevs());
    root.guid = pool.config().vdev_tree.as_ref().map_or(0, |tree| tree.guid.0);
    count(&mut root, pool.root_errors());
    if let Some(space) = space {
        root.space = Some(VdevSpace {
            size: space.size_bytes(),
            allocated: space.allocated_bytes(),
            free: space.free_bytes(),
            expandable: 0,
            fragmentation: space.fragmentation(),
            capacity: space.capacity(),
        });
        for vdev in &space.vdevs {
            let place = usize::try_from(vdev.id).ok();
            let Some(top) = place.and_then(|place| root.children.get_mut(place)) else { continue };
            top.space = Some(VdevSpace {
                size: vdev.size_bytes,
                allocated: vdev.allocated_bytes,
                free: vdev.free_bytes(),
                expandable: 0,
                fragmentation: vdev.fragmentation,
                capacity: vdev.capacity(),
            });
        }
    }
    root
}

/// The vdevs of a pool that does not load, as far as labels tell them.
fn labels_node(found: &FoundPool, error: &ImportError) -> VdevNode {
    let mut root = match build_tree(&found.tree, &found.devices(), None) {
        Ok(tree) => tree_node(&found.name, &tree),
        Err(_) => bare_node(&found.name, &found.tree),
    };
    root.guid = found.tree.guid.0;
    if root.state != State::CantOpen {
        // The vdevs are not what keeps it from loading.
        root.state = match error {
            ImportError::InUse { .. } | ImportError::Destroyed(_) => root.state,
            ImportError::MissingLog { .. } => State::Faulted,
            _ => State::CantOpen,
        };
        root.aux = match error {
            ImportError::MissingDevices { .. } => Aux::BadGuidSum,
            ImportError::Damaged { .. } | ImportError::NoUberblock(_) => Aux::CorruptData,
            _ => root.aux,
        };
    }
    root
}

fn tree_node(name: &str, tree: &VdevTree) -> VdevNode {
    let status = root_status(tree.tops.iter());
    let of_class = |class: VdevClass| move |vdev: &Vdev| node(vdev, class);
    let tops = tree.tops.iter().map(|top| {
        let class = match top.class() {
            Class::Normal => VdevClass::Normal,
            Class::Special => VdevClass::Special,
            Class::Dedup => VdevClass::Dedup,
            Class::Log => VdevClass::Log,
        };
        node(top, class)
    });
    let children = tops
        .chain(tree.spares.iter().map(of_class(VdevClass::Spare)))
        .chain(tree.l2cache.iter().map(of_class(VdevClass::L2cache)))
        .collect();
    VdevNode { kind: "root".into(), children, ..leafless(name, Guid(0), status) }
}

/// A vdev without anything below it and without a device.
fn leafless(name: &str, guid: Guid, status: Status) -> VdevNode {
    VdevNode {
        name: name.to_owned(),
        kind: String::new(),
        guid: guid.0,
        path: None,
        devid: None,
        phys_path: None,
        whole_disk: false,
        not_present: false,
        class: VdevClass::Normal,
        state: status.state,
        aux: status.aux,
        read_errors: 0,
        write_errors: 0,
        checksum_errors: 0,
        device_bytes: None,
        space: None,
        children: Vec::new(),
    }
}

/// A tree of which nothing is known but its configuration.
fn bare_node(name: &str, config: &VdevConfig) -> VdevNode {
    let status = Status::new(State::CantOpen, Aux::CorruptData);
    VdevNode {
        kind: config.kind.type_name().into(),
        children: config
            .children
            .iter()
            .map(|child| bare_node(&format!("{}-{}", child.kind.type_name(), child.guid), child))
            .collect(),
        ..leafless(name, config.guid, status)
    }
}

fn node(vdev: &Vdev, class: VdevClass) -> VdevNode {
    let text = |text: &Option<ondisk::nvlist::ByteString>| {
        text.as_ref().map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned())
    };
    let config = &vdev.config;
    let device = match &vdev.kind {
        Kind::Leaf(device) => device.as_ref(),
        _ => None,
    };
    let mut node = VdevNode {
        kind: config.kind.type_name().into(),
        path: device.map(|device| device.path().display().to_string()).or_else(|| text(&config.path)),
        devid: text(&config.devid),
        phys_path: text(&config.phys_path),
        whole_disk: config.whole_disk == Some(true),
        not_present: matches!(vdev.kind, Kind::Leaf(None)),
        class,
        device_bytes: device.map(|device| device.size_bytes() / LABEL_BYTES * LABEL_BYTES),
        children: vdev.children.iter().map(|child| node(child, class)).collect(),
        ..leafless(&vdev.name, vdev.guid, vdev.status)
    };
    count(&mut node, &vdev.errors);
    node
}

fn count(node: &mut VdevNode, errors: &ErrorCounters) {
    node.read_errors = errors.read();
    node.write_errors = errors.write();
    node.checksum_errors = errors.checksum();
}
