//! What the lab's models and its advice say, beside what pools, zdb and measurements say.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::oracle::zdb_command;

/// A daemon of a test's own, and a directory for its devices.
struct Daemon {
    directory: tempfile::TempDir,
    child: Child,
}

impl Daemon {
    fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("api.sock");
        fs::create_dir_all(directory.path().join("modelled/hdd-7200")).unwrap();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_cenote"));
        serve.arg("serve").arg("--socket").arg(&socket).args(arguments).current_dir(directory.path());
        let child = serve.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !socket.exists() {
            assert!(Instant::now() < deadline, "the daemon does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { directory, child }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn device(&self, name: &str, bytes: u64) -> String {
        let path = self.path(name);
        fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path.display().to_string()
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command
            .args(arguments)
            .env("CENOTE_SOCKET", self.path("api.sock"))
            .current_dir(self.directory.path());
        command.output().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(arguments)).unwrap()
    }

    fn fio(&self, volume: &str, arguments: &[&str]) -> Value {
        let uri = format!("--uri=nbd+unix:///{volume}?socket={}", self.path("nbd.sock").display());
        let mut fio = Command::new("fio");
        fio.args(["--name=job", "--ioengine=nbd", "--output-format=json", &uri]).args(arguments);
        let output = fio.output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.output(&["zpool", "export", "-a", "-f"]);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

fn model(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    let output = command.args(["lab", "model", "--json"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    all[0]["result"].clone()
}

/// Data of which a part is there twice, a part is text and a part zeros, in blocks of 16 KiB.
fn data(path: &Path, blocks: u32) {
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let mut bytes = Vec::new();
    for block in 0..blocks {
        let mut content = vec![0; 16 << 10];
        match block % 10 {
            0 => {}
            1..=4 => content.iter_mut().for_each(|byte| *byte = b'a' + (random() % 6) as u8),
            _ => content.iter_mut().for_each(|byte| *byte = random() as u8),
        }
        bytes.extend_from_slice(&content);
        if block % 3 == 0 {
            bytes.extend_from_slice(&content);
        }
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn the_lines_of_the_books_table_work_as_they_are_typed_there() {
    let directory = tempfile::tempdir().unwrap();
    data(&directory.path().join("data"), 40);
    let lab = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.arg("lab").args(words).current_dir(directory.path()).output().unwrap()
    };
    let book = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/lab.md")).unwrap();
    let table = book.lines().skip_while(|line| !line.starts_with("| question |"));
    let table: String = table.take_while(|line| line.starts_with('|')).collect();
    let typed: BTreeSet<&str> =
        table.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("cenote lab ")).collect();
    let listed: Value = serde_json::from_slice(&lab(&["recipes", "--json"]).stdout).unwrap();
    let (mut models, mut runs) = (BTreeSet::new(), 0);
    for line in typed {
        let words: Vec<&str> = line.split('\'').enumerate().fold(Vec::new(), |mut words, (at, part)| {
            if at % 2 == 1 {
                words.push(part)
            } else {
                words.extend(part.split_whitespace())
            }
            words
        });
        match words[0] {
            // Of a pool in use there is none here.
            "model" if !words.contains(&"--from") => {
                let told = lab(&words);
                assert!(told.status.success() && !told.stdout.is_empty(), "{line}: {}", text(&told));
                models.insert(words[1]);
            }
            "run" => {
                let is_there = listed.as_array().unwrap().iter().any(|recipe| recipe["name"] == words[1]);
                assert!(is_there, "{line}");
                runs += 1;
            }
            _ => {}
        }
    }
    let all =
        ["compression", "dedup", "l2arc", "layouts", "object-store", "rebuild", "slog", "space", "speed"];
    assert_eq!(models, BTreeSet::from(all));
    assert!(runs >= 14, "{runs}");
    // Without any argument too.
    for model in all {
        let told = lab(&["model", model]);
        assert!(told.status.success(), "{model}: {}", text(&told));
    }
}

#[test]
fn dedup_and_compression_foretell_what_zdb_and_a_pool_say_of_the_same_data() {
    let daemon = Daemon::start(&[]);
    let device = daemon.device("d0", 512 << 20);
    let path = daemon.path("data");
    data(&path, 1200);
    // A hole before more of it: nothing of it is stored, and nothing is told of it.
    let file = fs::File::options().write(true).open(&path).unwrap();
    let begin = fs::metadata(&path).unwrap().len() + (64 << 20);
    file.write_all_at(b"the end".repeat(4000).as_slice(), begin).unwrap();
    file.set_len((begin + (64 << 20)).next_multiple_of(16 << 10)).unwrap();
    let bytes = fs::metadata(&path).unwrap().len();
    daemon.run(&["zpool", "create", "-o", "ashift=12", "-O", "mountpoint=none", "tank", &device]);
    let size = bytes.to_string();
    daemon.run(&[
        "zfs",
        "create",
        "-s",
        "-V",
        &size,
        "-o",
        "volblocksize=16K",
        "-o",
        "compression=lz4",
        "tank/v",
    ]);
    let uri = format!("nbd+unix:///tank/v?socket={}", daemon.path("nbd.sock").display());
    let copied = Command::new("nbdcopy").arg(&path).arg(uri).output().unwrap();
    assert!(copied.status.success(), "{}", text(&copied));
    daemon.run(&["zpool", "sync", "tank"]);
    let ratio = daemon.json(&["zfs", "get", "-j", "-p", "compressratio", "tank/v"]);
    let ratio: f64 = ratio["datasets"]["tank/v"]["properties"]["compressratio"]["value"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let of_pool: Value =
        serde_json::from_str(&daemon.run(&["lab", "model", "--json", "dedup", "--from", "tank"])).unwrap();
    let of_pool = &of_pool[0]["result"];
    daemon.run(&["zpool", "export", "tank"]);

    let zdb = zdb_command()
        .arg("-e")
        .arg("-p")
        .arg(daemon.directory.path())
        .args(["-P", "-S", "tank"])
        .output()
        .unwrap();
    assert!(zdb.status.success(), "{}", text(&zdb));
    let zdb = text(&zdb);
    let total =
        zdb.lines().find(|line| line.trim_start().starts_with("Total")).unwrap_or_else(|| panic!("{zdb}"));
    let numbers: Vec<f64> = total.split_whitespace().skip(1).map(nice).collect();
    let (entries, blocks) = (numbers[0], numbers[4]);
    assert_eq!(of_pool["one_in"], 1, "a small pool is looked at whole");
    for (name, expected) in [("entries", entries), ("blocks", blocks)] {
        let got = of_pool[name].as_f64().unwrap();
        assert!((got / expected - 1.0).abs() < 0.01, "{name}: {got}, zdb {expected}\n{zdb}");
    }
    let path = path.display().to_string();
    let told = model(&["dedup", &path, "--block", "16K"]);
    for (name, expected) in [("entries", entries), ("blocks", blocks)] {
        let got = told[name].as_f64().unwrap();
        assert!((got / expected - 1.0).abs() < 0.1, "{name}: {got}, zdb {expected}\n{zdb}");
    }

    let told = model(&["compression", &path, "--block", "16K", "--sample", "64M"]);
    let lz4 = told["algorithms"].as_array().unwrap().iter().find(|it| it["name"] == "lz4").unwrap();
    let got = lz4["ratio"]["value"].as_f64().unwrap();
    assert!((got / ratio - 1.0).abs() < 0.1, "{got}, the pool says {ratio}");
}

/// A number as zdb prints it.
fn nice(word: &str) -> f64 {
    let (digits, unit) = match word.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => word.split_at(at),
        None => (word, ""),
    };
    let factor = match unit {
        "K" => 1024.0,
        "M" => 1_048_576.0,
        "G" => 1_073_741_824.0,
        _ => 1.0,
    };
    digits.parse::<f64>().unwrap() * factor
}

#[test]
fn entries_and_memory_of_a_dedup_table_are_what_zdb_says_of_a_golden_pool() {
    let Some(pool) = testkit::golden::pool("dedupfast") else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut extract = Command::new(env!("CARGO_BIN_EXE_cenote"));
    extract
        .args(["extract", "-r", "-d"])
        .arg(&pool.dir)
        .args(["dedupfast/sha256"])
        .arg(directory.path().join("out"));
    let extracted = extract.output().unwrap();
    assert!(extracted.status.success(), "{}", text(&extracted));
    let zdb = zdb_command().arg("-e").arg("-p").arg(&pool.dir).args(["-DD", "dedupfast"]).output().unwrap();
    let zdb = text(&zdb);
    let line = zdb
        .lines()
        .find(|line| line.starts_with("DDT-sha256-zap-unique:"))
        .unwrap_or_else(|| panic!("{zdb}"));
    let field = |name: &str| -> f64 {
        line.split("; ")
            .find_map(|field| field.split(": ").last()?.strip_prefix(name))
            .unwrap()
            .parse()
            .unwrap()
    };
    let out = directory.path().join("out").display().to_string();
    let told = model(&["dedup", &out, "--block", "8K", "--ashift", "9"]);
    for (name, expected) in [("entries", field("entries=")), ("memory", field("mspace="))] {
        let got = told[name].as_f64().unwrap();
        assert!((got / expected - 1.0).abs() < 0.1, "{name}: {got}, zdb {expected}\n{zdb}");
    }
}

#[test]
fn advice_finds_what_is_wrong_with_a_pool_and_its_proofs_can_be_made() {
    let daemon = Daemon::start(&[]);
    let none = daemon.run(&["lab", "advise"]);
    assert!(none.starts_with("no pool is open: `cenote zpool import`"), "{none}");
    let devices: Vec<String> = (0..3).map(|index| daemon.device(&format!("d{index}"), 256 << 20)).collect();
    let mut create = vec!["zpool", "create", "-o", "ashift=9", "-O", "mountpoint=none", "tank", "raidz1"];
    create.extend(devices.iter().map(String::as_str));
    daemon.run(&create);
    daemon.run(&[
        "zfs",
        "create",
        "-s",
        "-V",
        "32M",
        "-o",
        "volblocksize=4K",
        "-o",
        "sync=disabled",
        "-o",
        "compression=off",
        "-o",
        "checksum=off",
        "-o",
        "redundant_metadata=none",
        "tank/v",
    ]);
    let more: Vec<String> = (0..4).map(|index| daemon.device(&format!("e{index}"), 256 << 20)).collect();
    let [half, other, log, cache] = &more[..] else { panic!("four devices") };
    let two = [
        "zpool",
        "create",
        "-O",
        "mountpoint=none",
        "two",
        "mirror",
        half,
        other,
        "log",
        log,
        "cache",
        cache,
    ];
    daemon.run(&two);
    daemon.run(&["zpool", "offline", "two", other]);
    let about_two = daemon.json(&["lab", "advise", "--json", "two"]);
    let advice = about_two[0]["advice"].as_array().unwrap();
    for (rule, about) in [("stale-half", other), ("unmirrored-log", log)] {
        let found = advice.iter().find(|it| it["rule"] == rule && it["about"] == **about);
        let evidence = found.unwrap_or_else(|| panic!("{rule}: {about_two}"))["evidence"].as_str().unwrap();
        assert!(evidence.contains(about.as_str()), "{evidence}");
    }
    let told = daemon.run(&["lab", "advise", "two"]);
    assert!(told.contains(&format!("(cenote zpool online two {other})")), "{told}");
    let advised = daemon.json(&["lab", "advise", "--json", "tank"]);
    let advice = advised[0]["advice"].as_array().unwrap();
    let found = |rule: &str, about: &str| advice.iter().any(|it| it["rule"] == rule && it["about"] == about);
    assert!(found("sync-disabled", "tank/v") && found("uncompressed", "tank/v"), "{advised}");
    assert!(found("checksum-off", "tank/v") && found("few-metadata", "tank/v"), "{advised}");
    assert!(found("misaligned", "raidz1-0") && !found("degraded", "tank"), "{advised}");
    for advice in advice {
        let proof = advice["proof"].as_str().unwrap();
        let Some(command) = proof.strip_prefix("cenote lab new ") else { continue };
        let made = Command::new("sh")
            .arg("-c")
            .arg(format!(
                "rm -f *.toml; {} lab new {}",
                env!("CARGO_BIN_EXE_cenote"),
                command.split(" && ").next().unwrap()
            ))
            .current_dir(daemon.directory.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{proof}: {}", text(&made));
    }
    let told = daemon.run(&["lab", "advise", "tank"]);
    assert!(told.starts_with("DANGER tank/v: set sync=standard"), "{told}");
    daemon.run(&["zfs", "set", "sync=standard", "tank/v"]);
    assert!(!daemon.run(&["lab", "advise", "tank"]).contains("sync=standard\n"));
    daemon.run(&["zpool", "offline", "tank", &devices[1]]);
    let told = daemon.run(&["lab", "advise", "tank"]);
    assert!(told.starts_with("DANGER tank: bring missing devices back"), "{told}");
    assert!(told.contains(&format!("{} is OFFLINE", devices[1])), "{told}");
    assert!(!daemon.output(&["lab", "advise", "no-such-pool"]).status.success());
}

/// A pool `tank` of these vdevs on modelled disks, each with its number of disks, with a volume `tank/v` of
/// so many MiB that is written.
fn modelled_pool(daemon: &Daemon, vdevs: &[(&str, usize)], mib: u64) {
    let mut create: Vec<String> =
        ["zpool", "create", "-o", "ashift=12", "-O", "mountpoint=none", "-f", "tank"]
            .map(str::to_owned)
            .to_vec();
    let mut next = 0;
    for (kind, count) in vdevs {
        create.push((*kind).to_owned());
        for _ in 0..*count {
            create.push(daemon.device(&format!("modelled/hdd-7200/d{next}"), (256 << 20).max(mib << 20)));
            next += 1;
        }
    }
    daemon.run(&create.iter().map(String::as_str).collect::<Vec<_>>());
    let size = format!("{mib}M");
    let properties = ["-o", "volblocksize=16K", "-o", "compression=off"];
    daemon.run(&[&["zfs", "create", "-s", "-V", &size], &properties[..], &["tank/v"]].concat());
    daemon.fio("tank/v", &["--rw=write", "--bs=1M", &format!("--size={size}"), "--iodepth=4"]);
}

#[test]
fn pools_on_modelled_disks_say_so() {
    let daemon = Daemon::start(&["--modelled", "modelled"]);
    modelled_pool(&daemon, &[("mirror", 2)], 64);
    for _ in 0..2 {
        let status = daemon.run(&["zpool", "status", "tank"]);
        assert_eq!(status.matches("(modelled hdd-7200)").count(), 2, "{status}");
        let status = daemon.run(&["zpool", "status", "-j", "tank"]);
        assert!(status.contains("\"modelled\":\"hdd-7200\""), "{status}");
        assert!(daemon.run(&["zpool", "list", "-v", "tank"]).contains("modelled/hdd-7200/d0"));
        // Opened again, they are what they were.
        daemon.run(&["zpool", "export", "tank"]);
        daemon.run(&["zpool", "import", "-d", "modelled/hdd-7200", "tank"]);
    }
    daemon.fio("tank/v", &["--rw=randread", "--bs=16K", "--size=64M", "--io_size=1M"]);
    daemon.run(&["zpool", "destroy", "-f", "tank"]);
}

/// Measures random reads of a layout on modelled disks, whose volume has so many MiB, and compares them with
/// what the model of layouts says.
fn reads_as_foretold(layout: &str, vdevs: &[(&str, usize)], mib: u64) {
    let daemon = Daemon::start(&["--modelled", "modelled"]);
    modelled_pool(&daemon, vdevs, mib);
    let mut wrong = Vec::new();
    for depth in [1, 4, 8] {
        // Nothing is cached but, after a few reads, the indirect blocks.
        daemon.run(&["zpool", "export", "tank"]);
        let of_vdevs = metaslabs(&daemon.run(&["zdb", "-p", "modelled/hdd-7200", "-m", "tank"]));
        assert_eq!(of_vdevs.len(), vdevs.len(), "{layout}");
        let join = |words: Vec<String>| words.join(",");
        let used = join(of_vdevs.iter().map(|metaslabs| spread(metaslabs).to_string()).collect());
        let widths = vdevs.iter().map(|(_, width)| *width as u64);
        let begins =
            join(of_vdevs.iter().zip(widths).map(|(metaslabs, width)| begins(metaslabs, width)).collect());
        daemon.run(&["zpool", "import", "-d", "modelled/hdd-7200", "tank"]);
        let size = format!("--size={mib}M");
        let reads = ["--rw=randread", "--bs=16K", &size, "--randrepeat=0"];
        daemon.fio("tank/v", &[&reads[..], &["--io_size=512K", "--iodepth=8"]].concat());
        let depth_word = format!("--iodepth={depth}");
        let run = daemon.fio("tank/v", &[&reads[..], &["--io_size=8M", &depth_word]].concat());
        let measured = run["jobs"][0]["read"]["iops"].as_f64().unwrap();
        let placed = ["--used", &used, "--metaslabs", &begins];
        let told = model(&[&["speed", layout, "--block", "16K"], &placed[..]].concat());
        let all = told["random_reads"].as_array().unwrap();
        let predicted = all.iter().find(|it| it["depth"] == depth).unwrap()["iops"].as_f64().unwrap();
        eprintln!("{layout}, depth {depth}: {measured:.1} measured, {predicted:.1} predicted");
        if (measured / predicted - 1.0).abs() > MOST_OFF {
            wrong.push((depth, measured, predicted));
        }
    }
    daemon.run(&["zpool", "destroy", "-f", "tank"]);
    assert!(wrong.is_empty(), "{layout}: {wrong:?}");
}

/// How far measurements may be from predictions, as a share.
const MOST_OFF: f64 = 0.15;

#[test]
#[ignore = "measures time: run it alone on a quiet machine"]
fn mirrors_of_modelled_disks_read_as_foretold() {
    reads_as_foretold("mirror 2", &[("mirror", 2)], 64);
}

#[test]
#[ignore = "measures time: run it alone on a quiet machine"]
fn two_mirrors_of_modelled_disks_read_as_foretold() {
    reads_as_foretold("mirror 2 + mirror 2", &[("mirror", 2), ("mirror", 2)], 64);
}

#[test]
#[ignore = "measures time: run it alone on a quiet machine"]
fn raidz1_of_modelled_disks_reads_as_foretold() {
    reads_as_foretold("raidz1 3", &[("raidz1", 3)], 64);
}

#[test]
#[ignore = "measures time: run it alone on a quiet machine"]
fn raidz2_of_modelled_disks_reads_as_foretold() {
    reads_as_foretold("raidz2 6", &[("raidz2", 6)], 64);
}

#[test]
#[ignore = "measures time: run it alone on a quiet machine"]
fn draid_of_modelled_disks_reads_as_foretold() {
    // Rows that are permuted are alike only over much of the vdev.
    reads_as_foretold("draid1:2d:6c:1s 6", &[("draid1:2d:6c:1s", 6)], 640);
}

/// The way is what a stable write takes beside its log device: from a log of known time it is known for all
/// others.
#[test]
#[ignore = "measures time: run it alone on a quiet machine"]
fn stable_writes_take_the_way_and_the_log_device() {
    let daemon = Daemon::start(&["--modelled", "modelled"]);
    modelled_pool(&daemon, &[("mirror", 2)], 64);
    daemon.run(&["zfs", "set", "sync=always", "tank/v"]);
    let mut way_ns = None;
    let mut wrong = Vec::new();
    for log in ["optane", "nvme", "sata-ssd", "hdd-7200"] {
        fs::create_dir_all(daemon.path(&format!("modelled/{log}"))).unwrap();
        let device = daemon.device(&format!("modelled/{log}/log"), 256 << 20);
        daemon.run(&["zpool", "add", "-f", "tank", "log", &device]);
        let writes = ["--rw=randwrite", "--bs=4K", "--size=64M", "--iodepth=1", "--time_based"];
        // The first make the chain.
        daemon.fio("tank/v", &[&writes[..], &["--runtime=1"]].concat());
        let run = daemon.fio("tank/v", &[&writes[..], &["--runtime=3"]].concat());
        let measured_ns = run["jobs"][0]["write"]["lat_ns"]["mean"].as_f64().unwrap();
        let told = |way: &str| model(&["speed", "mirror 2", "--log", log, "--way", way]);
        let way = *way_ns.get_or_insert_with(|| measured_ns - told("0us")["log_ns"].as_f64().unwrap());
        let foretold_ns = 1e9 / told(&format!("{way:.0}ns"))["stable_writes"].as_f64().unwrap();
        let us = |ns: f64| format!("{:.0} us", ns / 1e3);
        eprintln!(
            "log {log}: {} measured, {} predicted, the way {}",
            us(measured_ns),
            us(foretold_ns),
            us(way)
        );
        if (measured_ns / foretold_ns - 1.0).abs() > MOST_OFF {
            wrong.push((log, measured_ns, foretold_ns));
        }
        daemon.run(&["zpool", "remove", "tank", &device]);
    }
    daemon.run(&["zpool", "destroy", "-f", "tank"]);
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Of each vdev where each metaslab that zdb lists begins, and how many bytes are allocated in it.
fn metaslabs(listed: &str) -> Vec<Vec<(u64, f64)>> {
    let mut all: Vec<Vec<(u64, f64)>> = Vec::new();
    for line in listed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["vdev", ..] => all.push(Vec::new()),
            ["metaslab", _, "offset", offset, "spacemap", _, "free", free] => {
                let begin = u64::from_str_radix(offset, 16).unwrap();
                all.last_mut().unwrap().push((begin, nice(free)));
            }
            _ => {}
        }
    }
    let allocated = |of: Vec<(u64, f64)>| -> Vec<(u64, f64)> {
        let size = of[1].0 as f64;
        of.into_iter().map(|(begin, free)| (begin, (size - free).max(0.0))).collect()
    };
    all.into_iter().map(allocated).collect()
}

/// On how many of `width` devices metaslabs with data begin: so many of the model's are like them.
fn begins(metaslabs: &[(u64, f64)], width: u64) -> String {
    let size = metaslabs[1].0 as f64;
    let with_data = metaslabs.iter().filter(|(_, allocated)| *allocated > size / 16.0);
    with_data.map(|(begin, _)| begin / 4096 % width).collect::<BTreeSet<_>>().len().max(1).to_string()
}

/// The share of a device over which data would have to lie evenly for the arm to move as it does over these
/// metaslabs.
fn spread(metaslabs: &[(u64, f64)]) -> f64 {
    let size = metaslabs[1].0 as f64;
    let mut places = Vec::new();
    for (begin, allocated) in metaslabs {
        let points = (allocated / size * 40.0) as u32;
        places.extend((0..points).map(|point| *begin as f64 + f64::from(point) / 40.0 * size));
    }
    let whole = size * metaslabs.len() as f64;
    let pairs = places.iter().flat_map(|a| places.iter().map(move |b| ((a - b).abs() / whole).sqrt()));
    let mean = pairs.sum::<f64>() / (places.len() * places.len()) as f64;
    // Evenly over all of it the mean is 8/15.
    (mean * 15.0 / 8.0).powi(2).clamp(0.001, 1.0)
}

#[test]
fn a_modelled_link_is_the_limit_of_its_clients() {
    let daemon = Daemon::start(&["--modelled-link", "1gbe"]);
    let device = daemon.device("d0", 256 << 20);
    daemon.run(&["zpool", "create", "-O", "mountpoint=none", "tank", &device]);
    daemon.run(&["zfs", "create", "-s", "-V", "64M", "tank/v"]);
    let run = daemon.fio("tank/v", &["--rw=write", "--bs=1M", "--size=32M", "--iodepth=4"]);
    let rate = run["jobs"][0]["write"]["bw_bytes"].as_f64().unwrap();
    assert!(rate < 1.1 * 117e6, "{rate}");
    let refused = daemon.output(&["serve", "--socket", "other.sock", "--modelled-link", "2gbe"]);
    assert!(!refused.status.success() && text(&refused).contains("2gbe"), "{}", text(&refused));
}
