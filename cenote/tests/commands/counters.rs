//! What shows counters: `counters`, `arcstat`, `arcsummary`, `top`, `zpool iostat -w`.

use std::collections::BTreeMap;
use std::process::Command;

use crate::session::Session;

/// A pool with a volume that was written to and read.
fn worked() -> Session {
    let session = Session::start();
    let disk = session.directory().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    session.print(&["zpool", "create", "tank", disk.to_str().unwrap()]);
    session.print(&["zfs", "create", "-s", "-V", "8M", "tank/vol"]);
    let uri = format!("nbd+unix:///tank/vol?socket={}", session.nbd_socket().display());
    let requests = ["-c", "write -P 0x61 0 64k", "-c", "flush", "-c", "read -P 0x61 0 64k"];
    let output = Command::new("qemu-io").args(["-f", "raw"]).args(requests).arg(&uri).output();
    let output = output.unwrap_or_else(|error| panic!("qemu-io: {error}; see scripts/install-test-tools"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    session.print(&["zpool", "sync"]);
    session
}

/// A named kstat, as scripts read it: two lines of headings, then name, type and value.
fn kstat(text: &str) -> BTreeMap<&str, &str> {
    let mut lines = text.lines();
    let first: Vec<&str> = lines.next().unwrap().split(' ').collect();
    assert_eq!((first.len(), first[1], first[2]), (7, "1", "0x01"), "{text}");
    assert_eq!(lines.next(), Some("name                            type data"));
    let entries: Vec<(&str, &str)> = lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let (name, kind, value) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            assert!(["3", "4", "7"].contains(&kind) && words.next().is_none(), "{line}");
            (name, value)
        })
        .collect();
    assert_eq!(first[3].parse(), Ok(entries.len()), "{text}");
    entries.into_iter().collect()
}

#[test]
fn counters_are_listed_and_look_as_kstats_do() {
    let session = worked();
    let text = session.print(&["counters", "--kstat", "arcstats"]);
    let arc = kstat(&text);
    // All that OpenZFS 2.4 has.
    assert_eq!(arc.len(), 149);
    let of = |name: &str| arc[name].parse::<u64>().unwrap();
    assert_eq!(
        of("hits"),
        of("demand_data_hits")
            + of("demand_metadata_hits")
            + of("prefetch_data_hits")
            + of("prefetch_metadata_hits")
    );
    assert!(of("size") > 0 && of("memory_all_bytes") >= of("memory_available_bytes"));
    assert!(kstat(&session.print(&["counters", "--kstat", "zil"]))["zil_commit_count"] != "0");
    let listing = session.print(&["counters", "objset"]);
    let title = listing.lines().find(|line| line.ends_with(" tank tank/vol")).unwrap();
    let objset = title.split(' ').next().unwrap();
    let text = session.print(&["counters", "--kstat", objset]);
    let volume = kstat(&text);
    assert_eq!((volume["dataset_name"], volume["nwritten"], volume["nread"]), ("tank/vol", "65536", "65536"));
    let txgs = session.print(&["counters", "--kstat", "txgs"]);
    assert!(txgs.lines().nth(1).unwrap().starts_with("txg      birth            state"));
    let json: serde_json::Value =
        serde_json::from_str(&session.print(&["counters", "--json", "dmu_tx"])).unwrap();
    assert!(json["groups"][0]["counters"]["dmu_tx_assigned"].as_u64().unwrap() > 0, "{json}");
    assert!(session.print(&["counters", "--list"]).contains("zil_commit_count"));
    let refused = session.run(&["counters", "teastats"]);
    assert!(refused.code == 1 && refused.err.contains("arcstats"), "{}", refused.err);
    let none = session.run(&["counters", "--kstat", "objset-0xffff"]);
    assert!(none.code == 1 && none.err.contains("no such kstat"), "{}", none.err);
}

#[test]
fn arcstat_prints_the_columns_that_were_asked_for() {
    let session = worked();
    let lines = session.print(&["arcstat"]);
    let lines: Vec<&str> = lines.lines().collect();
    let heading = "    time  read  ddread  ddh%  dmread  dmh%  pread  ph%   size      c  avail";
    assert_eq!((lines.len(), lines[0]), (2, heading));
    assert_eq!(lines[1].split_whitespace().count(), 11, "{}", lines[1]);
    let lines = session.print(&["arcstat", "-p", "-s", ",", "-f", "hits,c,hit%,mfugsz,datasz%"]);
    let (heading, line) = lines.split_once('\n').unwrap();
    assert_eq!(heading, "hits,c,hit%,mfugsz,datasz%");
    let cells: Vec<&str> = line.trim_end().split(',').collect();
    assert!(cells[0].ends_with(".0") && cells[1].parse::<u64>().is_ok(), "{line}");
    let all = session.print(&["arcstat", "-a"]);
    let widths: Vec<usize> = all.lines().map(|line| line.split_whitespace().count()).collect();
    assert!(widths[0] > 120 && widths.iter().all(|width| *width == widths[0]), "{widths:?}");
    for (option, column) in [("-x", "mfug"), ("-z", "zissued")] {
        assert!(session.print(&["arcstat", option]).lines().next().unwrap().contains(column));
    }
    let two = session.print(&["arcstat", "1", "2"]);
    assert_eq!(two.lines().count(), 3);
    assert_eq!(session.run(&["arcstat", "-f", "tea"]).code, 1);
    assert!(session.run(&["arcstat", "-f", "l2hits"]).out.starts_with("No L2ARC Here"));
    assert!(session.print(&["arcstat", "-v"]).contains("      ddh% : "));
}

#[test]
fn arcsummary_has_its_sections() {
    let session = worked();
    let report = session.print(&["arcsummary"]);
    for line in [
        "ARC status:",
        "ARC total accesses:",
        "DMU predictive",
        "L2ARC not detected",
        "Tunables:",
        "ZIL committed",
    ] {
        assert!(report.lines().any(|text| text.starts_with(line)), "{line}: {report}");
    }
    assert!(
        report
            .lines()
            .filter(|line| line.contains("Bytes") || line.contains(" %"))
            .all(|line| line.len() <= 72)
    );
    assert!(session.print(&["arcsummary", "-s", "tunables", "-a"]).contains(" zfs_txg_history=100\n"));
    let one = session.print(&["arcsummary", "-s", "zil"]);
    assert!(one.contains("ZIL committed") && !one.contains("ARC status"));
    assert!(session.print(&["arcsummary", "-p", "1"]).contains("ARC status"));
    assert!(session.print(&["arcsummary", "-g"]).contains("|"));
    let raw = session.print(&["arcsummary", "-r"]);
    assert!(raw.contains("\nARCSTATS:\n") && raw.contains("\nZFETCHSTATS:\n"));
}

#[test]
fn top_prints_a_frame_that_fits_the_screen() {
    let session = worked();
    let text = session.print(&["top", "--once", "-d", "0.1"]);
    for word in ["cenote top", "POOL", "tank ONLINE", "DATASET", "tank/vol", "CLIENT", "DEVICE", "disk"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&session.print(&["top", "--json", "-d", "0.1"])).unwrap();
    assert_eq!(json["pools"][0]["name"], "tank");
    let datasets = json["datasets"].as_array().unwrap();
    let volume = datasets.iter().find(|dataset| dataset["name"] == "tank/vol").unwrap();
    assert!(volume["write_amplification"].as_f64().unwrap() > 0.0, "{volume}");
    assert_eq!(session.run(&["top", "-d", "0"]).code, 1);
}

#[test]
fn histograms_of_iostat_add_up_to_the_operations() {
    let session = worked();
    let sums = |option: &str| {
        let text = session.print(&["zpool", "iostat", "-Hp", option, "tank"]);
        let mut sums: Vec<u64> = Vec::new();
        for line in text.lines().skip(1) {
            let numbers = line.split('\t').skip(1).map(|number| number.parse::<u64>().unwrap());
            let numbers: Vec<u64> = numbers.collect();
            sums.resize(numbers.len(), 0);
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
        sums
    };
    session.print(&["zpool", "sync"]);
    let (latencies, sizes) = (sums("-w"), sums("-r"));
    let json: serde_json::Value =
        serde_json::from_str(&session.print(&["counters", "--json", "vdev"])).unwrap();
    let groups = json["groups"].as_array().unwrap();
    let leaf = groups.iter().find(|group| group["vdev"]["is_leaf"] == true).unwrap();
    let of = |name: &str| leaf["counters"][name].as_u64().unwrap();
    // total_wait and disk_wait of reads and writes.
    assert_eq!([latencies[0], latencies[2]], [of("reads"); 2]);
    assert_eq!([latencies[1], latencies[3]], [of("writes"); 2]);
    assert!(latencies[7] > 0, "writes of groups went through their queue");
    assert_eq!(sizes[2] + sizes[3], of("sync_writes"));
    assert_eq!(sizes[2] + sizes[3] + sizes[6] + sizes[7], of("writes"));
}
