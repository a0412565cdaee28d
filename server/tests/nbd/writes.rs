//! Exports that can be written: by a client that says exactly what it is told to, and by the programs that
//! people use.

use std::{
    fs,
    process::Command,
    sync::{Arc, atomic::Ordering},
};

use crate::harness::{DeviceExport, Named, Served, Writes, pattern};
use crate::protocol::Client;

const SIZE_BYTES: usize = 8 << 20;
const MEMORY: &str = "tank/memory";
const FILE: &str = "tank/file";

const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_FLUSH: u16 = 3;
const CMD_TRIM: u16 = 4;
const CMD_WRITE_ZEROES: u16 = 6;

const FLAG_FUA: u16 = 1;
const FLAG_NO_HOLE: u16 = 2;
const FLAG_FAST_ZERO: u16 = 16;

const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const ENOTSUP: u32 = 95;

fn served(writes: &Arc<Writes>) -> Served {
    Served::start(|directory| {
        let file = DeviceExport::in_writable_file(&directory.join("disk"), SIZE_BYTES);
        Named::default()
            .with(MEMORY, DeviceExport::in_memory(vec![0; SIZE_BYTES]).with_writes(writes))
            .with(FILE, file.with_writes(writes))
    })
}

fn read(client: &mut Client, offset: u64, len: u32) -> Vec<u8> {
    client.request(0, CMD_READ, 77, offset, len);
    assert_eq!(client.simple_reply(), (0, 77));
    client.take_vec(len as usize)
}

#[test]
fn what_is_written_is_read_by_every_connection() {
    let writes = Arc::default();
    let served = served(&writes);
    for name in [MEMORY, FILE] {
        let mut writer = Client::chosen(&served, name, false);
        let mut reader = Client::chosen(&served, name, false);
        let mut expected = vec![0; SIZE_BYTES];
        for (cookie, (offset, len)) in
            [(0, 1), (511, 2), (4096, 4096), (100_001, 333_333), (1 << 20, 4 << 20)].into_iter().enumerate()
        {
            let data: Vec<u8> = pattern(len).iter().map(|byte| byte ^ cookie as u8).collect();
            writer.request(0, CMD_WRITE, cookie as u64, offset as u64, len as u32);
            writer.send(&[&data]);
            assert_eq!(writer.simple_reply(), (0, cookie as u64));
            expected[offset..offset + len].copy_from_slice(&data);
        }
        assert!(read(&mut reader, 0, SIZE_BYTES as u32) == expected, "{name}");
    }
}

#[test]
fn data_may_arrive_in_any_pieces() {
    let writes = Arc::default();
    let served = served(&writes);
    let mut client = Client::chosen(&served, MEMORY, false);
    let data = pattern(300_000);
    client.request(0, CMD_WRITE, 1, 1000, 300_000);
    for piece in data.chunks(70_001) {
        client.send(&[piece]);
        // A round trip on another connection: the server has seen the piece by then, or will see it with the
        // next.
        read(&mut Client::chosen(&served, MEMORY, false), 0, 1);
    }
    assert_eq!(client.simple_reply(), (0, 1));
    assert!(read(&mut client, 1000, 300_000) == data);
}

#[test]
fn many_writes_in_one_packet_are_all_done() {
    let writes = Arc::default();
    let served = served(&writes);
    let mut client = Client::chosen(&served, MEMORY, false);
    let mut sender = client.try_clone();
    let sending = std::thread::spawn(move || {
        for cookie in 0..2000u64 {
            sender.request(0, CMD_WRITE, cookie, cookie * 4096, 100 + cookie as u32);
            sender.send(&[&vec![cookie as u8 | 1; 100 + cookie as usize]]);
        }
    });
    for _ in 0..2000 {
        assert_eq!(client.simple_reply().0, 0);
    }
    sending.join().unwrap();
    for cookie in [0u64, 1, 999, 1999] {
        let len = 100 + cookie as u32;
        assert!(read(&mut client, cookie * 4096, len).iter().all(|byte| *byte == cookie as u8 | 1));
    }
}

#[test]
fn fua_and_flush_reach_the_export() {
    let writes = Arc::<Writes>::default();
    let served = served(&writes);
    let mut client = Client::chosen(&served, MEMORY, false);
    client.request(FLAG_FUA, CMD_WRITE, 1, 0, 512);
    client.send(&[&[7; 512]]);
    client.request(FLAG_FUA, CMD_TRIM, 2, 0, 512);
    client.request(FLAG_FUA, CMD_WRITE_ZEROES, 3, 0, 512);
    client.request(0, CMD_FLUSH, 4, 0, 0);
    for cookie in 1..5 {
        assert_eq!(client.simple_reply(), (0, cookie));
    }
    assert_eq!(writes.stable.load(Ordering::Relaxed), 3);
    assert_eq!(writes.flushes.load(Ordering::Relaxed), 1);
}

#[test]
fn zeroes_that_must_take_space_are_never_fast() {
    let writes = Arc::default();
    let served = served(&writes);
    let mut client = Client::chosen(&served, MEMORY, false);
    client.request(FLAG_NO_HOLE | FLAG_FAST_ZERO, CMD_WRITE_ZEROES, 1, 0, 512);
    client.request(FLAG_FAST_ZERO, CMD_WRITE_ZEROES, 2, 0, 512);
    client.request(FLAG_NO_HOLE, CMD_WRITE_ZEROES, 3, 0, 512);
    assert_eq!(client.simple_reply(), (ENOTSUP, 1));
    assert_eq!(client.simple_reply(), (0, 2));
    assert_eq!(client.simple_reply(), (0, 3));
}

#[test]
fn writes_that_make_no_sense_are_passed_over() {
    let writes = Arc::default();
    let served = served(&writes);
    let mut client = Client::chosen(&served, MEMORY, false);
    let size = SIZE_BYTES as u64;
    client.request(0, CMD_WRITE, 1, size - 1, 2);
    client.send(&[&[1; 2]]);
    client.request(1 << 9, CMD_WRITE, 2, 0, 70_000);
    client.send(&[&[1; 70_000]]);
    client.request(0, CMD_TRIM, 3, size, 1);
    client.request(0, CMD_TRIM, 4, 0, 0);
    client.request(0, CMD_WRITE_ZEROES, 5, u64::MAX, 1);
    client.request(0, CMD_READ, 6, 0, 4);
    for expected in [(ENOSPC, 1), (EINVAL, 2), (ENOSPC, 3), (EINVAL, 4), (ENOSPC, 5), (0, 6)] {
        assert_eq!(client.simple_reply(), expected);
    }
    assert_eq!(client.take_vec(4), [0; 4]);
}

#[test]
fn a_client_that_leaves_within_a_write_has_written_nothing() {
    let writes = Arc::default();
    let served = served(&writes);
    for len in [10u32, 100_000] {
        let mut client = Client::chosen(&served, MEMORY, false);
        client.request(0, CMD_WRITE, 1, 0, len);
        client.send(&[&vec![1; len as usize - 1]]);
        drop(client);
    }
    assert_eq!(read(&mut Client::chosen(&served, MEMORY, false), 0, 4), [0; 4]);
}

/// Runs a program and returns what it printed. `scripts/install-test-tools` installs all that are used here.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; see scripts/install-test-tools"));
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{errors}{printed}", output.status);
    printed
}

#[test]
fn nbdcopy_fills_a_volume_over_many_connections() {
    let writes = Arc::<Writes>::default();
    let served = served(&writes);
    let source = served.directory.path().join("source");
    let target = served.directory.path().join("target");
    let mut content = pattern(SIZE_BYTES);
    content[1 << 20..3 << 20].fill(0);
    fs::write(&source, &content).unwrap();
    for name in [MEMORY, FILE] {
        let uri = served.uri(name);
        run("nbdcopy", &["--connections=4", "--flush", source.to_str().unwrap(), &uri]);
        let _ = fs::remove_file(&target);
        run("nbdcopy", &[&uri, target.to_str().unwrap()]);
        assert!(fs::read(&target).unwrap() == content, "{name}");
    }
    assert!(writes.flushes.load(Ordering::Relaxed) > 0);
}

#[test]
fn qemu_io_writes_discards_and_reads_back() {
    let writes = Arc::<Writes>::default();
    let served = served(&writes);
    for name in [MEMORY, FILE] {
        let commands = [
            "write -P 17 0 1M",
            "write -f -P 18 64k 4k",
            "write -z 512k 64k",
            "discard 768k 64k",
            "flush",
            "read -P 17 0 64k",
            "read -P 18 64k 4k",
            "read -P 0 512k 64k",
            "read -P 0 768k 64k",
            "read -P 17 832k 192k",
        ];
        let mut arguments = vec!["-f", "raw", "-d", "unmap"];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        let uri = served.uri(name);
        arguments.push(&uri);
        let printed = run("qemu-io", &arguments);
        assert!(!printed.contains("failed"), "{printed}");
    }
    assert!(writes.trims.load(Ordering::Relaxed) > 0);
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !run("fio", &["--enghelp"]).lines().any(|line| line.trim() == "nbd") {
        eprintln!("skipped: this fio has no nbd engine");
        return;
    }
    let writes = Arc::default();
    let served = served(&writes);
    for name in [MEMORY, FILE] {
        let uri = format!("--uri={}", served.uri(name));
        let load = ["--rw=randwrite", "--bs=512-64k", "--iodepth=32", "--size=8M", "--verify=crc32c"];
        let load = [&load[..], &["--fsync=16", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0"]]
            .concat();
        run("fio", &[&["--name=writes", "--ioengine=nbd", &uri], &load[..]].concat());
    }
}

#[test]
fn nbdinfo_tells_what_can_be_done() {
    let writes = Arc::default();
    let served = served(&writes);
    let listed = run("nbdinfo", &["--json", &served.uri(MEMORY)]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let export = &listed["exports"][0];
    for can in ["can_flush", "can_fua", "can_trim", "can_zero", "can_fast_zero", "can_multi_conn"] {
        assert_eq!(export[can], true, "{can}");
    }
    assert_eq!(export["is_read_only"], false);
}
