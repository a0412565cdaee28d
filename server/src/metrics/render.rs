//! The text of all metrics.

use std::fmt::{Display, Write as _};
use std::sync::Arc;

use engine::stats::{
    Amplification, DdtStats, Field, GROUPS, Group, Kind, ObjsetStats, StoreStats, VdevStats, ZilStats,
};

use crate::api::{
    ApiError, CounterGroup, Counters, DatasetEntry, DatasetKind, GetCounters, GetIoStats, ListDatasets,
    ListNfs, ListPools, ListStandby, NfsListing, PoolEntry, PoolIo, StandbyPool, StandbyState, Transfers,
};
use crate::daemon::Daemon;

/// Properties of pools: name, metric, and how the value is a number.
const POOL_PROPERTIES: [(&str, &str, Form, &str); 9] = [
    ("allocated", "allocated_bytes", Form::Number, "Allocated space of the pool."),
    ("dedupratio", "deduplication_ratio", Form::Ratio, "How much deduplication saves."),
    ("fragmentation", "fragmentation_ratio", Form::Percent, "Fragmentation of the pool's free space."),
    ("free", "free_bytes", Form::Number, "Free space of the pool."),
    ("freeing", "freeing_bytes", Form::Number, "Space of destroyed datasets that is not free yet."),
    (
        "health",
        "health",
        Form::Health,
        "Health of the pool: 0 ONLINE, 1 DEGRADED, 2 FAULTED, 3 OFFLINE, 4 UNAVAIL, 5 REMOVED, 6 SUSPENDED.",
    ),
    ("leaked", "leaked_bytes", Form::Number, "Space that nothing refers to any more."),
    ("readonly", "readonly", Form::Switch, "Whether the pool is open for reading only."),
    ("size", "size_bytes", Form::Number, "Size of the pool."),
];

/// Properties of filesystems and volumes.
const DATASET_PROPERTIES: [(&str, &str, Form, &str); 11] = [
    ("available", "available_bytes", Form::Number, "Space that the dataset and those below it may take."),
    ("compressratio", "compression_ratio", Form::Ratio, "How much compression saves."),
    ("logicalused", "logical_used_bytes", Form::Number, "Used space before compression."),
    ("quota", "quota_bytes", Form::Number, "The most space that the dataset and those below it may use."),
    ("referenced", "referenced_bytes", Form::Number, "Space that the dataset refers to."),
    ("refquota", "referenced_quota_bytes", Form::Number, "The most space that the dataset may refer to."),
    ("used", "used_bytes", Form::Number, "Space of the dataset and of all below it."),
    ("usedbydataset", "used_by_dataset_bytes", Form::Number, "Space of the dataset itself."),
    ("usedbysnapshots", "used_by_snapshot_bytes", Form::Number, "Space of its snapshots alone."),
    ("volsize", "volume_size_bytes", Form::Number, "Size of the volume."),
    ("written", "written_bytes", Form::Number, "Referenced space that was written since the last snapshot."),
];

/// Sums over the devices of a pool, as the kstat `io` of pools had them: metric, kind, fields of a vdev.
const OF_ALL_DEVICES: [(&str, &str, &[&str], &str); 7] = [
    ("nread", "counter", &["nread"], "Bytes that devices of the pool read."),
    ("nwritten", "counter", &["nwritten"], "Bytes that devices of the pool wrote."),
    ("rcnt", "gauge", &["active"], "Transfers of devices of the pool that are under way."),
    ("reads", "counter", &["reads"], "Reads of devices of the pool."),
    (
        "rlentime",
        "counter",
        &["read_ns", "write_ns"],
        "How long reads and writes of devices of the pool took together, in nanoseconds.",
    ),
    (
        "wlentime",
        "counter",
        &["asyncq_wait_ns"],
        "How long writes of the pool waited before they went to devices, in nanoseconds.",
    ),
    ("writes", "counter", &["writes"], "Writes of devices of the pool."),
];

/// Healths of pools, in the order of `zfs_pool_health`.
const HEALTHS: [&str; 7] = ["ONLINE", "DEGRADED", "FAULTED", "OFFLINE", "UNAVAIL", "REMOVED", "SUSPENDED"];

/// How the text of a property becomes a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Digits, or a word for none.
    Number,
    /// `1.50`, with or without an `x`.
    Ratio,
    /// A percentage, reported as a ratio.
    Percent,
    /// `on` or `off`.
    Switch,
    /// A word of [`HEALTHS`].
    Health,
}

impl Form {
    fn number(self, text: &str) -> Option<f64> {
        match self {
            Self::Number if text == "none" => Some(0.0),
            Self::Number => text.parse::<u64>().ok().map(|number| number as f64),
            Self::Ratio => text.trim_end_matches('x').parse().ok(),
            Self::Percent => text.trim_end_matches('%').parse::<f64>().ok().map(|percent| percent / 100.0),
            Self::Switch => Some(f64::from(u8::from(text == "on"))),
            Self::Health => HEALTHS.iter().position(|health| *health == text).map(|code| code as f64),
        }
    }
}

/// All metrics, at most about `most` bytes.
///
/// # Errors
/// Those of the requests for counters and listings.
pub(super) fn text(daemon: &Arc<Daemon>, most: usize) -> Result<String, ApiError> {
    let counters = daemon.ask(&GetCounters::default())?;
    let io = daemon.ask(&GetIoStats::default())?.entries;
    let names = |properties: &[(&str, &str, Form, &str)]| {
        properties.iter().map(|(name, ..)| (*name).to_owned()).collect::<Vec<_>>()
    };
    let pools = ListPools { properties: names(&POOL_PROPERTIES), ..ListPools::default() };
    let pools = daemon.ask(&pools)?.entries;
    let kinds = vec![DatasetKind::Filesystem, DatasetKind::Volume];
    let of_mounts_too = ["mounted", "mountpoint"].map(str::to_owned);
    let properties = names(&DATASET_PROPERTIES).into_iter().chain(of_mounts_too).collect();
    let datasets = daemon.ask(&ListDatasets { kinds, properties, ..ListDatasets::default() })?.entries;
    let mut text = Text { out: String::new(), most, is_full: false };
    of_process(&mut text, &counters);
    of_pools(&mut text, &pools);
    of_io(&mut text, &counters);
    of_dedup_tables(&mut text, &counters);
    of_histograms(&mut text, &io);
    of_counted(&mut text, &counters);
    of_datasets(&mut text, &datasets);
    of_mounts(&mut text, &datasets);
    of_nfs(&mut text, &daemon.ask(&ListNfs {})?);
    of_standby(&mut text, &daemon.ask(&ListStandby {})?);
    Ok(text.end())
}

/// What is written so far.
struct Text {
    out: String,
    most: usize,
    is_full: bool,
}

impl Text {
    /// The head of a family of samples. False when no more is to be written.
    fn family(&mut self, name: &str, kind: &str, help: &str) -> bool {
        self.is_full |= self.out.len() >= self.most;
        if !self.is_full {
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        !self.is_full
    }

    /// One sample of the family that was begun.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.is_full |= self.out.len() >= self.most;
        if self.is_full {
            return;
        }
        self.out.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.out, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(text));
        }
        let _ = writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn end(mut self) -> String {
        let (name, is_full) = ("cenote_metrics_truncated", u8::from(self.is_full));
        let help = "Whether metrics were left out, because there are too many.";
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {is_full}");
        self.out
    }
}

/// The value of a label between its quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn kind(field: &Field) -> &'static str {
    if field.kind == Kind::Counter { "counter" } else { "gauge" }
}

/// A number, as the kind of its field has it.
fn shown(field: &Field, number: u64) -> String {
    // The bits of a signed number.
    if field.kind == Kind::Signed { (number as i64).to_string() } else { number.to_string() }
}

/// The groups of the whole process.
fn of_process(text: &mut Text, counters: &Counters) {
    if text.family("cenote_build_info", "gauge", "The version of the program.") {
        text.sample("cenote_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    }
    for (group, prefix) in [
        ("arcstats", "node_zfs_arc_"),
        ("zfetchstats", "node_zfs_zfetch_"),
        ("zil", "node_zfs_zil_"),
        ("dmu_tx", "node_zfs_dmu_tx_"),
        ("fm", "node_zfs_fm_"),
        ("memory", "cenote_memory_"),
    ] {
        let found = counters.groups.iter().find(|found| found.name == group);
        let fields = GROUPS.iter().find(|(name, _)| *name == group);
        let (Some(found), Some((_, fields))) = (found, fields) else { continue };
        for field in *fields {
            let name = format!("{prefix}{}", field.name);
            if text.family(&name, kind(field), field.text) {
                text.sample(&name, &[], shown(field, found.counters.get(field.name)));
            }
        }
    }
}

/// Properties and health of pools.
fn of_pools(text: &mut Text, pools: &[PoolEntry]) {
    let value = |pool: &PoolEntry, name: &str| {
        let property = pool.properties.iter().find(|property| property.name == name);
        property.and_then(|property| property.parsable.clone())
    };
    for (property, metric, form, help) in POOL_PROPERTIES {
        let name = format!("zfs_pool_{metric}");
        if !text.family(&name, "gauge", help) {
            return;
        }
        for pool in pools {
            let number = match form {
                Form::Health if pool.suspended => Form::Health.number("SUSPENDED"),
                _ => value(pool, property).and_then(|value| form.number(&value)),
            };
            if let Some(number) = number {
                text.sample(&name, &[("pool", &pool.name)], number);
            }
        }
    }
    let name = "node_zfs_zpool_state";
    if text.family(name, "gauge", "Whether the pool is in a state.") {
        for pool in pools {
            let now = match pool.suspended {
                true => "SUSPENDED".to_owned(),
                false => value(pool, "health").unwrap_or_default(),
            };
            for state in HEALTHS {
                let labels = [("zpool", pool.name.as_str()), ("state", &state.to_lowercase())];
                text.sample(name, &labels, u8::from(state == now));
            }
        }
    }
}

/// What pools transferred, and what each vdev did.
fn of_io(text: &mut Text, counters: &Counters) {
    let vdevs = || counters.groups.iter().filter(|group| group.name == VdevStats::NAME);
    let mut pools: Vec<&str> = vdevs().filter_map(|group| group.pool.as_deref()).collect();
    pools.dedup();
    for (metric, kind, fields, help) in OF_ALL_DEVICES {
        let name = format!("node_zfs_zpool_{metric}");
        if text.family(&name, kind, help) {
            for pool in &pools {
                let is_of = |group: &&CounterGroup| {
                    group.pool.as_deref() == Some(*pool)
                        && group.vdev.as_ref().is_some_and(|vdev| vdev.is_leaf)
                };
                let of =
                    |group: &CounterGroup| fields.iter().map(|field| group.counters.get(field)).sum::<u64>();
                let sum: u64 = vdevs().filter(is_of).map(of).sum();
                text.sample(&name, &[("zpool", pool)], sum);
            }
        }
    }
    for (of, field) in VdevStats::FIELDS
        .iter()
        .map(|field| (VdevStats::NAME, field))
        .chain(StoreStats::FIELDS.iter().map(|field| (StoreStats::NAME, field)))
    {
        let name = match field.name.strip_suffix("_ns") {
            Some(time) => format!("cenote_{of}_{time}_seconds"),
            None => format!("cenote_{of}_{}", field.name),
        };
        if !text.family(&name, kind(field), field.text) {
            return;
        }
        for group in counters.groups.iter().filter(|group| group.name == of) {
            let (Some(pool), Some(vdev)) = (&group.pool, &group.vdev) else { continue };
            let number = group.counters.get(field.name);
            let labels = [("pool", pool.as_str()), ("vdev", &vdev.name)];
            match field.name.ends_with("_ns") {
                true => text.sample(&name, &labels, number as f64 / 1e9),
                false => text.sample(&name, &labels, number),
            }
        }
    }
}

/// The dedup tables of pools.
fn of_dedup_tables(text: &mut Text, counters: &Counters) {
    for field in DdtStats::FIELDS {
        let name = format!("cenote_ddt_{}", field.name);
        if !text.family(&name, kind(field), field.text) {
            return;
        }
        for group in counters.groups.iter().filter(|group| group.name == DdtStats::NAME) {
            let pool = group.pool.as_deref().unwrap_or_default();
            text.sample(&name, &[("pool", pool)], group.counters.get(field.name));
        }
    }
}

/// Latencies of devices, as histograms.
fn of_histograms(text: &mut Text, pools: &[PoolIo]) {
    let name = "cenote_vdev_latency_seconds";
    if !text.family(name, "histogram", "How long transfers of a vdev took.") {
        return;
    }
    for pool in pools {
        for vdev in pool.vdevs.walk().filter(|vdev| vdev.kind != "root") {
            let Some(io) = pool.counters.iter().find(|io| io.guid == vdev.guid) else { continue };
            let shown = vdev.path.as_ref().unwrap_or(&vdev.name);
            for (operation, transfers) in
                [("read", &io.read), ("write", &io.write), ("flush", &io.flush), ("trim", &io.trim)]
            {
                histogram(text, name, [("pool", &pool.name), ("vdev", shown), ("op", operation)], transfers);
            }
        }
    }
}

fn histogram(text: &mut Text, name: &str, labels: [(&str, &str); 3], transfers: &Transfers) {
    let [pool, vdev, operation] = labels;
    let mut sum = 0;
    let bucket = format!("{name}_bucket");
    // From a microsecond on, each fourfold of the one before.
    for (at, count) in transfers.latency.iter().enumerate() {
        sum += count;
        if at >= 9 && (at - 9).is_multiple_of(2) && at + 1 < transfers.latency.len() {
            let end = ((2u64 << at) as f64 / 1e9).to_string();
            text.sample(&bucket, &[pool, vdev, operation, ("le", &end)], sum);
        }
    }
    text.sample(&bucket, &[pool, vdev, operation, ("le", "+Inf")], sum);
    text.sample(&format!("{name}_sum"), &labels, transfers.total_ns as f64 / 1e9);
    text.sample(&format!("{name}_count"), &labels, sum);
}

/// What the clients of datasets did, and the bytes of each layer.
fn of_counted(text: &mut Text, counters: &Counters) {
    let groups =
        |prefix: &'static str| counters.groups.iter().filter(move |group| group.name.starts_with(prefix));
    for field in ObjsetStats::FIELDS.iter().chain(ZilStats::FIELDS) {
        let name = format!("node_zfs_zpool_dataset_{}", field.name);
        if !text.family(&name, kind(field), field.text) {
            return;
        }
        for group in groups("objset-0x") {
            let dataset = group.dataset.as_ref().and_then(|dataset| dataset.name.as_deref());
            let (Some(pool), Some(dataset)) = (group.pool.as_deref(), dataset) else { continue };
            text.sample(&name, &[("zpool", pool), ("dataset", dataset)], group.counters.get(field.name));
        }
    }
    for field in Amplification::FIELDS {
        let unit = if field.name == "loads" { "" } else { "_bytes" };
        let name = format!("cenote_dataset_{}{unit}_total", field.name);
        if !text.family(&name, kind(field), field.text) {
            return;
        }
        for group in groups(Amplification::NAME) {
            let dataset = group.dataset.as_ref().and_then(|dataset| dataset.name.as_deref());
            let labels = [("pool", group.pool.as_deref().unwrap_or("")), ("dataset", dataset.unwrap_or(""))];
            text.sample(&name, &labels, group.counters.get(field.name));
        }
    }
}

/// The space of mounted filesystems, as node exporter reports it of those of OpenZFS.
fn of_mounts(text: &mut Text, datasets: &[DatasetEntry]) {
    let value = |dataset: &DatasetEntry, name: &str| {
        dataset.property(name).and_then(|property| property.parsable.clone())
    };
    let number = |dataset: &DatasetEntry, name: &str| value(dataset, name)?.parse::<u64>().ok();
    let is_mounted = |dataset: &&DatasetEntry| value(dataset, "mounted").as_deref() == Some("yes");
    for (metric, with_referenced, help) in [
        ("avail", false, "Space of a mounted filesystem that its users may take."),
        ("free", false, "Free space of a mounted filesystem."),
        ("size", true, "Size of a mounted filesystem: what it refers to, and what is free."),
    ] {
        let name = format!("node_filesystem_{metric}_bytes");
        if !text.family(&name, "gauge", help) {
            return;
        }
        for dataset in datasets.iter().filter(is_mounted) {
            let (free, mountpoint) = (number(dataset, "available"), value(dataset, "mountpoint"));
            let used = if with_referenced { number(dataset, "referenced") } else { Some(0) };
            let (Some(free), Some(used), Some(mountpoint)) = (free, used, mountpoint) else { continue };
            let labels = [("device", dataset.name.as_str()), ("fstype", "zfs"), ("mountpoint", &mountpoint)];
            text.sample(&name, &labels, free.saturating_add(used));
        }
    }
}

/// What clients of NFS asked for, as node exporter reports it of the kernel's server.
fn of_nfs(text: &mut Text, nfs: &NfsListing) {
    if nfs.procedures.is_empty() {
        return;
    }
    let name = "node_nfsd_requests_total";
    if text.family(name, "counter", "Requests of clients of NFS, by procedure.") {
        for procedure in &nfs.procedures {
            text.sample(name, &[("proto", "3"), ("method", &procedure.name)], procedure.requests);
        }
    }
    let name = "cenote_nfs_errors_total";
    if text.family(name, "counter", "Requests of clients of NFS that were answered with an error.") {
        for procedure in &nfs.procedures {
            text.sample(name, &[("method", &procedure.name)], procedure.errors);
        }
    }
    let connections: usize = nfs.clients.iter().map(|client| client.connections).sum();
    let connected = nfs.clients.iter().filter(|client| client.connections > 0).count();
    for (name, kind, help, value) in [
        ("node_nfsd_disk_bytes_read_total", "counter", "Bytes that clients of NFS read.", nfs.read_bytes),
        (
            "node_nfsd_disk_bytes_written_total",
            "counter",
            "Bytes that clients of NFS wrote.",
            nfs.written_bytes,
        ),
        ("cenote_nfs_connections", "gauge", "Connections of clients of NFS.", connections as u64),
        (
            "cenote_nfs_clients",
            "gauge",
            "Addresses from which clients of NFS are connected.",
            connected as u64,
        ),
    ] {
        if text.family(name, kind, help) {
            text.sample(name, &[], value);
        }
    }
}

/// Pools that this host stands by for.
fn of_standby(text: &mut Text, pools: &[StandbyPool]) {
    let name = "cenote_standby_state";
    if !pools.is_empty()
        && text.family(name, "gauge", "How a pool on standby is: 1 for the state that it has.")
    {
        for (pool, state) in pools.iter().flat_map(|pool| StandbyState::ALL.map(|state| (pool, state))) {
            let labels = [("pool", pool.pool.as_str()), ("state", state.word())];
            text.sample(name, &labels, u8::from(pool.state == state));
        }
    }
    type Value = fn(&StandbyPool) -> Option<f64>;
    let values: [(&str, &str, &str, Value); 3] = [
        (
            "cenote_standby_lease_unchanged_seconds",
            "gauge",
            "For how long the owner of a pool has given no sign of life.",
            |pool| pool.unchanged_ms.map(|milliseconds| milliseconds as f64 / 1000.0),
        ),
        ("cenote_standby_take_overs_total", "counter", "How often this host took a pool over.", |pool| {
            Some(pool.take_overs as f64)
        }),
        ("cenote_standby_take_over_seconds", "gauge", "How long the last take-over took.", |pool| {
            pool.took_ms.map(|milliseconds| milliseconds as f64 / 1000.0)
        }),
    ];
    for (name, kind, help, value) in values {
        if !pools.is_empty() && text.family(name, kind, help) {
            for pool in pools {
                if let Some(value) = value(pool) {
                    text.sample(name, &[("pool", &pool.pool)], value);
                }
            }
        }
    }
}

/// Properties of datasets.
fn of_datasets(text: &mut Text, datasets: &[DatasetEntry]) {
    for (property, metric, form, help) in DATASET_PROPERTIES {
        let name = format!("zfs_dataset_{metric}");
        if !text.family(&name, "gauge", help) {
            return;
        }
        for dataset in datasets {
            let value = dataset.property(property).and_then(|property| property.parsable.as_deref());
            let Some(number) = value.and_then(|value| form.number(value)) else { continue };
            let pool = dataset.name.split('/').next().unwrap_or_default();
            let labels = [("name", dataset.name.as_str()), ("pool", pool), ("type", dataset.kind.word())];
            text.sample(&name, &labels, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_cannot_end_their_quotes() {
        let mut text = Text { out: String::new(), most: 1 << 20, is_full: false };
        assert!(text.family("a_metric", "gauge", "Two\nlines."));
        text.sample("a_metric", &[("vdev", "/dev/\"x\\\n")], 7);
        text.sample("a_metric", &[], 0.5);
        let expected = "# HELP a_metric Two\\nlines.\n# TYPE a_metric gauge\n\
                        a_metric{vdev=\"/dev/\\\"x\\\\\\n\"} 7\na_metric 0.5\n";
        assert_eq!(text.out, expected);
    }

    #[test]
    fn a_text_has_an_end_and_says_what_it_left_out() {
        let mut text = Text { out: String::new(), most: 100, is_full: false };
        for n in 0..1000 {
            if text.family(&format!("metric_{n}"), "gauge", "A number.") {
                text.sample(&format!("metric_{n}"), &[], n);
            }
        }
        let text = text.end();
        assert!(text.len() < 400 && text.ends_with("cenote_metrics_truncated 1\n"), "{text}");
    }

    #[test]
    fn properties_are_numbers() {
        assert_eq!(Form::Number.number("1024"), Some(1024.0));
        assert_eq!((Form::Number.number("none"), Form::Number.number("-")), (Some(0.0), None));
        assert_eq!((Form::Ratio.number("1.50"), Form::Ratio.number("2.00x")), (Some(1.5), Some(2.0)));
        assert_eq!((Form::Percent.number("25"), Form::Percent.number("25%")), (Some(0.25), Some(0.25)));
        assert_eq!((Form::Switch.number("on"), Form::Health.number("FAULTED")), (Some(1.0), Some(2.0)));
    }
}
