//! Counters of the process, and of the datasets, vdevs and transaction groups of pools.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use engine::dsl::Dsl;
use engine::stats::{
    Amplification, Arcstats, DMU_TX, DdtStats, DmuTxStats, FmStats, Group, MemoryStats, ObjsetStats,
    StoreStats, TxgRecord, VdevStats, ZFETCH, ZIL, ZfetchStats, ZilStats,
};
use engine::tunables;
use engine::vdev::Vdev;
use ondisk::{ObjectId, ObjsetId};

use super::memory::{arc_min, reserve};
use crate::api::{
    self, ApiError, Client, CountedDataset, CountedVdev, CounterGroup, Counters, Numbers, PoolTxgs, TxgTimes,
};
use crate::daemon::volumes::clients::transfers;
use crate::daemon::{Daemon, OpenPool};

/// The group of the transaction groups of pools.
const TXGS: &str = "txgs";
/// The group of tunables: the values that count now.
const TUNABLES: &str = "tunables";
/// The group of clients.
const CLIENTS: &str = "clients";

impl Daemon {
    /// Counters.
    ///
    /// # Errors
    /// A group that does not exist.
    pub async fn counters(&self, request: api::GetCounters) -> Result<Counters, ApiError> {
        let wanted = Wanted::parse(&request.groups)?;
        let (pools, failed) = self.pools_named(&request.pools);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut counters = Counters {
            time_ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
            failed: failed.into_iter().map(Into::into).collect(),
            ..Counters::default()
        };
        let groups = &mut counters.groups;
        if wanted.has(Arcstats::NAME) {
            groups.push(group(&self.arcstats()));
        }
        if wanted.has(ZfetchStats::NAME) {
            groups.push(group(&ZFETCH.snapshot()));
        }
        if wanted.has(ZilStats::NAME) {
            groups.push(group(&ZIL.snapshot()));
        }
        if wanted.has(DmuTxStats::NAME) {
            groups.push(group(&DMU_TX.snapshot()));
        }
        if wanted.has(FmStats::NAME) {
            groups.push(group(&FmStats::snapshot()));
        }
        if wanted.has(MemoryStats::NAME) {
            groups.push(group(&self.memory_stats()));
        }
        if wanted.has(TUNABLES) {
            let values = tunables::all().iter().map(|tunable| (tunable.name().to_owned(), tunable.get()));
            let counters = Numbers(values.collect());
            groups.push(CounterGroup { name: TUNABLES.to_owned(), counters, ..CounterGroup::default() });
        }
        for pool in pools {
            if wanted.has(ObjsetStats::NAME) || wanted.has(Amplification::NAME) {
                of_datasets(&pool, &wanted, groups).await;
            }
            if wanted.has(DdtStats::NAME)
                && let Some(stats) = of_dedup_tables(&pool).await
            {
                let pool = Some(pool.name().to_owned());
                groups.push(CounterGroup { pool, ..group(&stats) });
            }
            if wanted.has(CLIENTS) {
                counters.clients.extend(clients(&pool).await);
            }
            if wanted.has(VdevStats::NAME) {
                of_vdevs(&pool, groups, |vdev| Some(group(&vdev.counters())));
            }
            if wanted.has(StoreStats::NAME) {
                of_vdevs(&pool, groups, |vdev| vdev.store_counters().map(|stats| group(&stats)));
            }
            if let Some(live) = pool.live().filter(|_| wanted.has(TXGS)) {
                let txgs = live.txgs().history().snapshot().iter().map(of_txg).collect();
                counters.txgs.push(PoolTxgs { pool: pool.name().to_owned(), txgs });
            }
        }
        Ok(counters)
    }

    /// The counters of the ARC, with those of the machine's memory and of cache devices.
    fn arcstats(&self) -> Arcstats {
        let (memory, total) = (Memory::now(), device::machine_memory_bytes());
        let (most, reserve) = (self.arc_max(), reserve(total));
        let need_free = reserve.saturating_sub(memory.available);
        let mut stats = Arcstats {
            c_max: most,
            c_min: arc_min(total).min(most),
            arc_dnode_limit: most,
            arc_sys_free: reserve,
            arc_need_free: need_free,
            arc_no_grow: u64::from(need_free > 0),
            memory_all_bytes: total,
            memory_free_bytes: memory.free,
            memory_available_bytes: memory.available,
            ..self.cache.arcstats()
        };
        engine::l2arc::stats::show(&mut stats);
        for pool in self.open_pools() {
            pool.view().l2arc().add_to(&mut stats);
        }
        stats
    }
}

/// The groups that were asked for.
struct Wanted<'a>(&'a [String]);

impl<'a> Wanted<'a> {
    fn parse(names: &'a [String]) -> Result<Self, ApiError> {
        let is_known = |name: &str| {
            [TXGS, CLIENTS, TUNABLES].contains(&name)
                || name.starts_with("objset-0x")
                || engine::stats::GROUPS.iter().any(|(known, _)| *known == name)
        };
        match names.iter().find(|name| !is_known(name)) {
            None => Ok(Self(names)),
            Some(unknown) => {
                let groups = engine::stats::GROUPS.iter().map(|(known, _)| *known);
                let known: Vec<_> = groups.chain([TXGS, CLIENTS, TUNABLES]).collect();
                let known = known.join(", ");
                let why = format!("there is no group of counters '{unknown}': there are {known}");
                Err(ApiError::invalid(why))
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        let is_of = |wanted: &String| {
            wanted == name || (name == ObjsetStats::NAME && wanted.starts_with("objset-0x"))
        };
        self.0.is_empty() || self.0.iter().any(is_of)
    }

    /// Whether the counters of one object set are wanted.
    fn has_objset(&self, name: &str) -> bool {
        let is_of = |wanted: &String| wanted == ObjsetStats::NAME || wanted == name;
        self.0.is_empty() || self.0.iter().any(is_of)
    }
}

fn numbers<G: Group>(stats: &G) -> Vec<(String, u64)> {
    G::FIELDS.iter().map(|field| field.name.to_owned()).zip(stats.values()).collect()
}

fn group<G: Group>(stats: &G) -> CounterGroup {
    CounterGroup { name: G::NAME.to_owned(), counters: Numbers(numbers(stats)), ..CounterGroup::default() }
}

/// With more datasets than this, all names are read at once.
const FEW: usize = 16;

/// The names of datasets, by the numbers of their object sets.
struct Names {
    /// Absent of a pool whose devices are away.
    dsl: Option<Arc<Dsl>>,
    /// The heads, if there are more than a few datasets.
    heads: HashMap<ObjectId, String>,
}

impl Names {
    async fn of(pool: &OpenPool, datasets: usize) -> Self {
        let dsl = pool.dsl().await.ok();
        let mut heads = HashMap::new();
        if let Some(dsl) = dsl.as_ref().filter(|_| datasets > FEW) {
            let dirs = dsl.dirs(dsl.root()).await.unwrap_or_default();
            heads.extend(dirs.iter().map(|dir| (dir.phys.head_dataset, dir.name.clone())));
        }
        Self { dsl, heads }
    }

    /// The name; none of a dataset that is gone, or that cannot be read.
    async fn name(&self, id: ObjsetId) -> Option<String> {
        let id = ObjectId(id.get());
        match self.heads.get(&id) {
            Some(name) => Some(name.clone()),
            None => self.dsl.as_ref()?.name_of_object(id).await.ok(),
        }
    }
}

/// The counters of the datasets of a pool. Those that are gone are left out.
async fn of_datasets(pool: &OpenPool, wanted: &Wanted<'_>, groups: &mut Vec<CounterGroup>) {
    let view = pool.view();
    let all = view.dataset_stats().all();
    let names = Names::of(pool, all.len()).await;
    for (id, stats) in all {
        let name = match id.get() {
            // What belongs to the pool itself.
            0 => None,
            _ => match names.name(id).await {
                Some(name) => Some(name),
                None => continue,
            },
        };
        let dataset = CountedDataset { name, objset: id.get() };
        let of_dataset = |name: String, counters| CounterGroup {
            name,
            pool: Some(pool.name().to_owned()),
            dataset: Some(dataset.clone()),
            counters: Numbers(counters),
            ..CounterGroup::default()
        };
        let objset = format!("objset-0x{:x}", id.get());
        if id.get() != 0 && wanted.has_objset(&objset) {
            let mut counters = numbers(&stats.objset());
            counters.extend(numbers(&stats.zil().snapshot()));
            groups.push(of_dataset(objset, counters));
        }
        if wanted.has(Amplification::NAME) {
            groups.push(of_dataset(Amplification::NAME.to_owned(), numbers(&stats.amplification())));
        }
    }
}

/// The dedup tables of a pool; none of one that has no tables, or whose devices are away.
async fn of_dedup_tables(pool: &OpenPool) -> Option<DdtStats> {
    let dsl = pool.dsl().await.ok()?;
    let dedup = &dsl.pool_space().await.ok()?.dedup;
    let total = dedup.total();
    if dedup.entries == 0 && dedup.table_bytes == 0 {
        return None;
    }
    let live = pool.live().map(|live| live.dedup_counters()).unwrap_or_default();
    Some(DdtStats {
        entries: dedup.entries,
        table_bytes: dedup.table_bytes,
        memory_bytes: dedup.memory_bytes,
        logged_entries: live.logged_entries,
        flushing_entries: live.flushing_entries,
        filter_bytes: live.filter_bytes,
        surely_new: live.surely_new,
        found: live.found,
        not_found: live.not_found,
        cached_bytes: dsl.dedup_cached_bytes().await.ok()?,
        stored_blocks: total.blocks,
        stored_bytes: total.dsize,
        references: total.ref_blocks,
        referenced_bytes: total.ref_dsize,
    })
}

/// Connections and mounts.
async fn clients(pool: &OpenPool) -> Vec<Client> {
    let mut clients = pool.connected_clients();
    let mounts = pool.mountpoints();
    if mounts.is_empty() {
        return clients;
    }
    let view = pool.view();
    let all = view.dataset_stats().all();
    let names = Names::of(pool, all.len()).await;
    for (id, stats) in all.into_iter().filter(|(id, _)| id.get() != 0) {
        let Some(name) = names.name(id).await else { continue };
        if let Some(mountpoint) = mounts.get(&name) {
            let done = stats.objset();
            clients.push(Client {
                kind: "mount".into(),
                id: id.get(),
                pool: pool.name().to_owned(),
                mountpoint: Some(mountpoint.clone()),
                dataset: name,
                counters: transfers([done.reads, done.nread, done.writes, done.nwritten]),
                client: None,
                waiting: Vec::new(),
            });
        }
    }
    clients
}

fn of_vdevs(pool: &OpenPool, groups: &mut Vec<CounterGroup>, of: impl Fn(&Vdev) -> Option<CounterGroup>) {
    let view = pool.view();
    let vdevs = view.vdevs();
    let auxiliary = vdevs.spares.iter().chain(vdevs.l2cache.iter());
    for vdev in vdevs.tops.iter().chain(auxiliary).flat_map(Vdev::walk) {
        let Some(counted) = of(vdev) else { continue };
        groups.push(CounterGroup {
            pool: Some(pool.name().to_owned()),
            vdev: Some(CountedVdev {
                name: vdev.name.to_string(),
                guid: vdev.guid.0,
                is_leaf: vdev.children.is_empty(),
            }),
            ..counted
        });
    }
}

fn of_txg(record: &TxgRecord) -> TxgTimes {
    let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    TxgTimes {
        txg: record.txg.get(),
        birth_ns: record.birth_ns,
        state: record.state.letter().to_string(),
        ndirty: record.ndirty,
        nread: record.io.nread,
        nwritten: record.io.nwritten,
        reads: record.io.reads,
        writes: record.io.writes,
        otime_ns: ns(record.open),
        qtime_ns: ns(record.quiesce),
        wtime_ns: ns(record.wait),
        stime_ns: ns(record.sync),
    }
}

/// Memory of the machine, in bytes.
#[derive(Default)]
struct Memory {
    free: u64,
    available: u64,
}

impl Memory {
    fn now() -> Self {
        std::fs::read_to_string("/proc/meminfo").map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kibibytes.checked_mul(1024)
        };
        Self { free: of("MemFree").unwrap_or(0), available: of("MemAvailable").unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_machine_is_read_in_bytes() {
        let memory = Memory::parse("MemTotal:  1000 kB\nMemFree:     12 kB\nMemAvailable:   30 kB\n");
        assert_eq!((memory.free, memory.available), (12 << 10, 30 << 10));
        assert_eq!(Memory::parse("nothing").free, 0);
    }

    #[test]
    fn groups_are_asked_for_by_name_and_datasets_by_number() {
        let names = ["zil".to_owned(), "objset-0x36".to_owned()];
        let wanted = Wanted::parse(&names).unwrap();
        assert!(wanted.has("zil") && wanted.has("objset") && !wanted.has("arcstats"));
        assert!(wanted.has_objset("objset-0x36") && !wanted.has_objset("objset-0x37"));
        let unknown = ["teastats".to_owned()];
        assert!(Wanted::parse(&unknown).is_err_and(|error| error.message.contains("arcstats")));
    }
}
