//! The memory of the daemon: what it keeps to, and how it says where the memory is.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::session::Session;

const MIB: u64 = 1 << 20;
/// How long memory may take to go back, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A number of the group `memory`, in bytes.
fn memory(session: &Session, name: &str) -> u64 {
    let text = session.print(&["counters", "--json", "memory"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["groups"][0]["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}: {json}"))
}

/// Lets `clients` at a time write a volume each, with the largest requests that there are, all at once.
fn write_with_large_requests(session: &Session, clients: usize) {
    let started: Vec<_> = (0..clients)
        .map(|client| {
            let volume = format!("tank/of-{client}");
            session.run(&["zfs", "create", "-s", "-V", "128M", "-o", "compression=off", &volume]);
            let uri = format!("nbd+unix:///{volume}?socket={}", session.nbd_socket().display());
            let requests = (0..4).map(|n| format!("aio_write -P 0x62 {}M 32M", n * 32));
            let requests = requests.chain(["aio_flush".to_owned(), "read -P 0x62 96M 32M".to_owned()]);
            let requests = requests.flat_map(|request| ["-c".to_owned(), request]);
            let command = Command::new("qemu-io").args(["-f", "raw"]).args(requests).arg(&uri).spawn();
            command.unwrap_or_else(|error| panic!("qemu-io: {error}; see scripts/install-test-tools"))
        })
        .collect();
    for mut client in started {
        assert!(client.wait().unwrap().success());
    }
}

#[test]
fn the_process_keeps_to_its_size_and_gives_back_what_a_smaller_arc_frees() {
    let session = Session::start();
    session.print(&["tunable", "set", "zfs_arc_max=128M"]);
    let disk = session.directory().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(2 << 30).unwrap();
    session.print(&["zpool", "create", "tank", disk.to_str().unwrap()]);
    // Small blocks, which an allocator serves badly, and large ones, which come in bursts.
    for (name, block) in [("small", "8K"), ("large", "128K")] {
        let properties = [format!("volblocksize={block}"), "compression=off".to_owned()];
        let volume = format!("tank/{name}");
        let create =
            ["zfs", "create", "-s", "-V", "192M", "-o", &properties[0], "-o", &properties[1], &volume];
        let created = session.run(&create);
        assert_eq!(created.code, 0, "{}", created.err);
        let uri = format!("nbd+unix:///{volume}?socket={}", session.nbd_socket().display());
        let requests = ["write", "read"]
            .iter()
            .flat_map(|what| (0..48).map(move |n| format!("{what} -P 0x61 {}M 4M", n * 4)));
        let requests = requests.flat_map(|request| ["-c".to_owned(), request]);
        let output = Command::new("qemu-io").args(["-f", "raw"]).args(requests).arg(&uri).output();
        let output =
            output.unwrap_or_else(|error| panic!("qemu-io: {error}; see scripts/install-test-tools"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    write_with_large_requests(&session, 6);
    session.print(&["zpool", "sync"]);
    let of = |name: &str| memory(&session, name);
    assert_eq!(of("resident_limit"), 128 * MIB * 3 / 2 + 96 * MIB);
    assert!(of("arc_blocks") > 64 * MIB, "the ARC is in use: {}", of("arc_blocks"));
    assert!(
        of("resident_most") <= of("resident_limit"),
        "{} of {}",
        of("resident_most"),
        of("resident_limit")
    );
    assert_eq!((of("requests"), of("requests_limit")), (0, 32 * MIB), "what requests had came back");
    // All of it is in one place.
    let parts = ["program", "shared", "buffers", "buffers_kept", "heap"].map(of).iter().sum::<u64>();
    assert!(parts.abs_diff(of("resident")) < 32 * MIB, "{parts} {}", of("resident"));

    session.print(&["tunable", "set", "zfs_arc_max=64M"]);
    let began = Instant::now();
    while of("arc_blocks") > 64 * MIB || of("resident") > of("resident_limit") {
        assert!(began.elapsed() < PATIENCE, "{} of {}", of("resident"), of("resident_limit"));
        std::thread::sleep(Duration::from_millis(100));
    }
    let refused = session.run(&["tunable", "set", "zfs_arc_max=32M"]);
    assert!(refused.code == 1 && refused.err.contains("at least 67108864"), "{}", refused.err);
    let report = session.print(&["arcsummary", "-s", "arc"]);
    assert!(report.contains("Process memory breakdown:"), "{report}");
}
