//! Counters as clients ask for them, and as Prometheus reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use device::block_on;
use server::api::{CounterGroup, Counters, CreateDataset, GetCounters, GetIoStats};
use server::metrics::{self, MetricsSocket};
use tokio::sync::oneshot;

use crate::boards;
use crate::harness::Running;
use crate::volumes::new_volume;

const KIBIBYTE: u64 = 1 << 10;

fn counters(running: &Running, groups: &[&str]) -> Counters {
    let groups = groups.iter().map(|name| (*name).to_owned()).collect();
    block_on(running.daemon.counters(GetCounters { groups, pools: vec![] })).unwrap()
}

fn of_volume<'a>(counters: &'a Counters, prefix: &str) -> &'a CounterGroup {
    let is_of_volume = |group: &&CounterGroup| {
        let name = group.dataset.as_ref().and_then(|dataset| dataset.name.as_deref());
        name == Some("tank/vol") && group.name.starts_with(prefix)
    };
    counters.groups.iter().find(is_of_volume).unwrap()
}

/// Writes 64 KiB to the volume and reads it again, over NBD.
fn work(running: &Running) {
    let uri = format!("nbd+unix:///tank/vol?socket={}", running.place.path().join("nbd.sock").display());
    let requests = ["-c", "write -P 0x61 0 64k", "-c", "flush", "-c", "read -P 0x61 0 64k"];
    let output = Command::new("qemu-io").args(["-f", "raw"]).args(requests).arg(&uri).output();
    let output = output.unwrap_or_else(|error| panic!("qemu-io: {error}; see scripts/install-test-tools"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_client_counts_in_its_dataset_its_connection_and_the_log() {
    let running = Running::start();
    new_volume(&running);
    work(&running);
    let all = counters(&running, &[]);
    let names: BTreeSet<&str> = all.groups.iter().map(|group| group.name.as_str()).collect();
    for group in ["arcstats", "zfetchstats", "zil", "dmu_tx", "amplification", "vdev"] {
        assert!(names.contains(group), "{names:?}");
    }
    let objset = of_volume(&all, "objset-0x");
    let of = |name: &str| objset.counters.get(name);
    assert_eq!((of("nwritten"), of("nread")), (64 * KIBIBYTE, 64 * KIBIBYTE));
    assert!(of("writes") >= 1 && of("reads") >= 1 && of("zil_commit_count") >= 1);
    assert!(of_volume(&all, "amplification").counters.get("client_written") == 64 * KIBIBYTE);
    let txgs = &all.txgs[0];
    assert_eq!((txgs.pool.as_str(), txgs.txgs.last().unwrap().state.as_str()), ("tank", "O"));
    assert!(txgs.txgs.iter().any(|txg| txg.state == "C" && txg.nwritten > 0));

    // One group of one dataset.
    let one = counters(&running, &[&objset.name]);
    assert_eq!((one.groups.len(), one.groups[0].name.as_str()), (1, objset.name.as_str()));
    let unknown = GetCounters { groups: vec!["teastats".into()], pools: vec![] };
    assert!(block_on(running.daemon.counters(unknown)).is_err());
    let absent = GetCounters { groups: vec!["vdev".into()], pools: vec!["none".into()] };
    let absent = block_on(running.daemon.counters(absent)).unwrap();
    assert_eq!((absent.groups.len(), absent.failed.len()), (0, 1));
}

#[test]
fn datasets_are_named_however_many_there_are() {
    let running = Running::start();
    new_volume(&running);
    for n in 0..20 {
        let volume = CreateDataset {
            name: format!("tank/vol{n}"),
            volume_bytes: Some(1 << 20),
            sparse: true,
            ..CreateDataset::default()
        };
        block_on(running.daemon.create_dataset(volume)).unwrap();
    }
    let counted = counters(&running, &["objset"]);
    let name = |group: &CounterGroup| group.dataset.as_ref()?.name.clone();
    let names: BTreeSet<String> = counted.groups.iter().filter_map(name).collect();
    let all = (0..20).map(|n| format!("tank/vol{n}")).chain(["tank/vol".to_owned()]);
    let missing: Vec<_> = all.filter(|name| !names.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} of {names:?}");
}

#[test]
fn histograms_of_devices_add_up_to_their_operations() {
    let running = Running::start();
    new_volume(&running);
    work(&running);
    let pools = block_on(running.daemon.io_stats(GetIoStats::default())).unwrap().entries;
    let leaf = pools[0].counters.iter().find(|vdev| vdev.write.operations > 0).unwrap();
    for transfers in [&leaf.read, &leaf.write, &leaf.flush, &leaf.sync_write] {
        for histogram in [&transfers.latency, &transfers.total_latency, &transfers.sizes] {
            assert_eq!(histogram.iter().sum::<u64>(), transfers.operations);
        }
    }
    let queued = leaf.async_queue.waited.iter().chain(&leaf.sync_queue.waited).sum::<u64>();
    assert!(queued > 0 && queued <= leaf.write.operations, "{leaf:?}");
}

/// Samples by name and labels, of a text as Prometheus reads it. Panics where the text is malformed.
fn parsed(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut families) = (BTreeMap::new(), BTreeSet::new());
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(families.insert(family.clone()), "{family} begins twice");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, family);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let bare = name.split('{').next().unwrap();
        assert!(bare.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{line}");
        let of_family = ["", "_bucket", "_sum", "_count"].map(|end| format!("{family}{end}"));
        assert!(of_family.iter().any(|known| known == bare), "{line} is not of {family}");
        if let Some(labels) = name.strip_prefix(bare).filter(|labels| !labels.is_empty()) {
            assert!(labels.starts_with('{') && labels.ends_with("\"}"), "{line}");
        }
        assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{name} comes twice");
    }
    samples
}

fn fetch(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: cenote\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn prometheus_reads_the_names_that_boards_use_and_can_change_nothing() {
    let running = Running::start();
    new_volume(&running);
    work(&running);
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let daemon = Arc::clone(&running.daemon);
    let serving = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = MetricsSocket::bind("127.0.0.1:0".parse().unwrap()).await;
            ready.send(socket.address().unwrap()).unwrap();
            metrics::serve(socket, daemon, async move { drop(stopped.await) }).await.unwrap();
        });
    });
    let address = is_ready.recv().unwrap();
    let (status, text) = fetch(address, "GET /metrics");
    assert_eq!(status, 200, "{text}");
    let samples = parsed(&text);
    let of = |name: &str| *samples.get(name).unwrap_or_else(|| panic!("{name} in {text}"));
    assert!(of("node_zfs_arc_hits") > 0.0 && of("node_zfs_arc_c_max") > 0.0);
    assert!(of("node_zfs_zil_zil_commit_count") >= 1.0 && of("node_zfs_dmu_tx_dmu_tx_assigned") >= 1.0);
    assert!(samples.contains_key("node_zfs_zfetch_hits") && samples.contains_key("node_zfs_arc_l2_hits"));
    let dataset = r#"{zpool="tank",dataset="tank/vol"}"#;
    assert_eq!(of(&format!("node_zfs_zpool_dataset_nwritten{dataset}")), 65_536.0);
    assert_eq!(of(r#"node_zfs_zpool_state{zpool="tank",state="online"}"#), 1.0);
    assert_eq!(of(r#"node_zfs_zpool_state{zpool="tank",state="degraded"}"#), 0.0);
    assert!(of(r#"node_zfs_zpool_nwritten{zpool="tank"}"#) > 0.0);
    let families: std::collections::BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let missing: Vec<_> = boards::ASKED.iter().filter(|name| !families.contains(*name)).collect();
    assert!(missing.is_empty(), "boards ask for {missing:?}");
    let back: Vec<_> = boards::GONE.iter().filter(|name| families.contains(*name)).collect();
    assert!(back.is_empty(), "there now, so count the panels of boards again: {back:?}");
    let size = of(r#"zfs_pool_size_bytes{pool="tank"}"#);
    let (used, free) =
        (of(r#"zfs_pool_allocated_bytes{pool="tank"}"#), of(r#"zfs_pool_free_bytes{pool="tank"}"#));
    assert!(size > 0.0 && used + free <= size, "{size} {used} {free}");
    assert_eq!((of(r#"zfs_pool_health{pool="tank"}"#), of(r#"zfs_pool_readonly{pool="tank"}"#)), (0.0, 0.0));
    let volume = r#"{name="tank/vol",pool="tank",type="volume"}"#;
    assert_eq!(of(&format!("zfs_dataset_volume_size_bytes{volume}")), 8.0 * 1024.0 * 1024.0);
    assert_eq!(of(r#"cenote_dataset_client_written_bytes_total{pool="tank",dataset="tank/vol"}"#), 65_536.0);
    assert_eq!(of("cenote_metrics_truncated"), 0.0);
    let writes = samples.iter().filter(|(name, _)| {
        name.starts_with("cenote_vdev_latency_seconds_count") && name.contains(r#"op="write""#)
    });
    assert!(writes.map(|(_, count)| *count).sum::<f64>() > 0.0);

    for request in ["GET /", "GET /v1/hello", "POST /v1/shutdown", "POST /metrics", "DELETE /metrics"] {
        let (status, _) = fetch(address, request);
        assert!([404, 405].contains(&status), "{request}: {status}");
    }
    drop(stop);
    serving.join().unwrap();
}
