//! Send streams: the module makes the same ones of a pool of ours, byte for byte.

use std::path::PathBuf;
use std::sync::Arc;

use device::block_on;
use engine::Pool;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewSnapshot};
use engine::pool::discovery;
use engine::pool::import::{ImportOptions, import as import_to_read, select};
use engine::pool::live::{Layout, LivePool, NewLeaf, NewPool, NewTop, default_features};
use engine::receive::{ReceiveTarget, Receiver, Records};
use engine::send::{Flags, Order, Piece, Plan, Stream};
use engine::vdev::Class;
use ondisk::send::Record;
use ondisk::vdev_config::PoolState;
use testkit::kernel::{Job, KernelVm};
use testkit::manifest::hex_sha256;

use super::diff::{STATES, history};
use super::scrub::import;
use super::{DISK_BYTES, content, create};

/// All that a command sends.
pub async fn bytes(pool: &Arc<Pool>, order: &Order) -> engine::Result<Vec<u8>> {
    let dsl = Dsl::open(pool).await?;
    let plan = Plan::make(&dsl, order).await?;
    let mut bytes = Vec::new();
    let mut add =
        |pieces: Vec<Piece>| pieces.iter().for_each(|piece| bytes.extend_from_slice(piece.as_ref()));
    add(plan.header()?);
    for planned in &plan.streams {
        let mut stream = Stream::open(&dsl, &planned.request).await?;
        while let Some(pieces) = stream.next().await? {
            add(pieces);
        }
    }
    add(plan.conclusion());
    Ok(bytes)
}

/// The checksum of all that a command sends, and how much that is.
async fn sent(pool: &Arc<Pool>, order: &Order) -> engine::Result<String> {
    let bytes = bytes(pool, order).await?;
    Ok(format!("{} {}", hex_sha256(&bytes), bytes.len()))
}

/// The order of a command's arguments.
pub fn order(arguments: &str) -> Order {
    let mut order = Order::default();
    let mut words = arguments.split(' ').peekable();
    while let Some(word) = words.next() {
        let Some(options) = word.strip_prefix('-') else {
            order.to = word.to_owned();
            continue;
        };
        for option in options.chars() {
            let Flags { large_blocks, embedded, compressed, raw } = &mut order.flags;
            match option {
                'L' => *large_blocks = true,
                'e' => *embedded = true,
                'c' => *compressed = true,
                'w' => (*large_blocks, *embedded, *compressed, *raw) = (true, true, true, true),
                'p' => order.properties = true,
                'h' => order.holds = true,
                'R' => order.replicate = true,
                'i' | 'I' => {
                    order.all_between = option == 'I';
                    order.from = words.next().map(str::to_owned);
                }
                other => panic!("-{other}"),
            }
        }
    }
    order
}

/// A clone with changes, a bookmark, a hold, and snapshots of all.
async fn more(pool: &Arc<LivePool>) {
    let change = async |what: &str| {
        let what = what.to_owned();
        let done = pool.change(move |s| async move {
            match what.split(' ').collect::<Vec<_>>()[..] {
                ["clone", origin, name] => edit::clone(&s, origin, name, &[]).await.map(drop),
                ["bookmark", mark, source] => edit::create_bookmark(&s, mark, source).await,
                ["snapshot", name] => {
                    let all = ["tank", "tank/fs", "tank/vol", "tank/clone"];
                    let new =
                        all.map(|of| NewSnapshot { name: format!("{of}@{name}"), properties: Vec::new() });
                    edit::snapshot(&s, &new).await
                }
                _ => panic!("{what}"),
            }
        });
        done.await.expect("a change");
    };
    change("clone tank/fs@2 tank/clone").await;
    change("bookmark tank/fs#mark tank/fs@1").await;
    let id = Dsl::open(&pool.view()).await.unwrap().find("tank/clone").await.unwrap().objset_id();
    let zpl = pool.filesystem(id).await.expect("a filesystem");
    let random = engine::env::Seeded::new(78);
    for _ in 0..60 {
        super::log::files::change(&zpl, &random, engine::zpl::live::XattrPlace::Attributes).await;
    }
    drop(zpl);
    change("snapshot all").await;
}

#[test]
fn the_kernel_makes_the_same_streams() {
    let Some(vm) = KernelVm::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let disks: Vec<PathBuf> = vec![folder.path().join("d0")];
    std::fs::File::create(&disks[0]).and_then(|file| file.set_len(DISK_BYTES)).expect("a disk");
    create(Layout::Single, &disks, &content(4 << 20));
    block_on(async {
        let pool = import(&disks, 2).await;
        history(&pool, &[1, 2, 4]).await;
        more(&pool).await;
        pool.close(PoolState::Exported).await.expect("an export");
    });
    let mut commands: Vec<String> = ["", "-L ", "-e ", "-c ", "-Le ", "-Lec ", "-w ", "-p ", "-h "]
        .iter()
        .flat_map(|options| ["tank/fs@0", "tank/fs@4", "tank/vol@all"].map(|of| format!("{options}{of}")))
        .collect();
    for options in ["-", "-Lec", "-w"] {
        for to in 1..STATES {
            for from in 0..to {
                commands.push(format!("{options}i tank/fs@{from} tank/fs@{to}"));
            }
        }
        commands.push(format!("{options}i tank/fs#mark tank/fs@3"));
        commands.push(format!("{options}i tank/fs@2 tank/clone@all"));
        commands.push(format!("{options}I tank/fs@0 tank/fs@4"));
        commands.push(format!("{options}i tank/vol@ours tank/vol@all"));
        commands.push(format!("{options}RI tank/fs@0 tank/fs@all"));
        commands.push(format!("{}R tank/fs@all", options));
        commands.push(format!("{}R tank@all", options));
    }
    commands.extend(["-R tank/clone@all".into(), "-Rh tank/fs@4".into(), "-pI tank/fs@1 tank/fs@4".into()]);
    let all: String = commands
        .iter()
        .map(|arguments| {
            format!("zfs send {arguments} > /tmp/s; echo \"## $(sha256sum < /tmp/s) $(stat -c %s /tmp/s)\"\n")
        })
        .collect();
    let script = format!("set -e\nzpool import -d /dev -o readonly=on tank\n{all}zpool export tank\n");
    let outcome = vm.run(&Job::new(script, disks.clone())).expect("the machine runs");
    assert_eq!(outcome.code, Some(0), "{}", outcome.output);
    let theirs: Vec<String> = outcome
        .output
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|line| line.replace("  -", ""))
        .collect();
    assert_eq!(theirs.len(), commands.len(), "{}", outcome.output);
    let ours: Vec<String> = block_on(async {
        let found = discovery::scan(&[folder.path()]).await.expect("a scan");
        let found = select(found, "tank").expect("the pool");
        let pool = import_to_read(&found, &ImportOptions::read_only()).await.expect("an import");
        let mut ours = Vec::new();
        for arguments in &commands {
            ours.push(sent(&pool, &order(arguments)).await.unwrap_or_else(|error| error.to_string()));
        }
        ours
    });
    let all = commands.iter().zip(ours.iter().zip(&theirs));
    let different: Vec<_> = all.filter(|(_, (ours, theirs))| ours != theirs).collect();
    assert!(different.is_empty(), "{} of {}: {different:#?}", different.len(), commands.len());
}

/// Receives a stream.
pub async fn receive(pool: &Arc<LivePool>, bytes: &[u8], target: ReceiveTarget) {
    let mut input = bytes;
    let mut records = Records::new(&mut input);
    let Some((Record::Begin(begin), payload)) = records.next_record().expect("a record") else {
        panic!("no stream")
    };
    let payload = payload.to_vec();
    let order = records.order();
    let what = format!("{}@{}", target.dataset, target.snapshot);
    let mut receiver = Receiver::begin(pool, (&begin, &payload, order), &target).await.expect(&what);
    receiver.run(&mut records).await.expect(&what);
    receiver.end().await.expect(&what);
}

/// An empty pool on a disk.
pub async fn empty(name: &str, path: &PathBuf) -> Arc<LivePool> {
    let leaf = NewLeaf { device: super::open(path), path: path.clone(), is_file: false, whole_disk: false };
    let new = NewPool {
        name: name.into(),
        tops: vec![NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] }],
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(12),
        version: ondisk::pool_version::FEATURES,
        features: default_features(),
        properties: Vec::new(),
        root_properties: vec![("recordsize".into(), "1M".into()), ("compression".into(), "lz4".into())],
        altroot: None,
        command: None,
    };
    // Pools that are imported together need guids of their own.
    let seed = name.bytes().map(u64::from).sum();
    let pool = LivePool::create(new, super::surroundings(seed)).await.expect("a pool");
    pool.start().expect("a thread");
    pool
}

/// What a shell prints of all files below the working folder, their data and attributes.
pub const SEE: &str = "see() {
    cd $1
    find . ! -name '*unlinked*' -exec stat -c '%n %f %h %s %Y %u %g' {} + | sort | sha256sum
    find . -type f -exec sha256sum {} + | sort | sha256sum
    getfattr -Rdhm - . 2>/dev/null | sha256sum
    cd /
}
";

#[test]
fn the_kernel_reads_what_was_received_and_goes_on_with_it() {
    let Some(vm) = KernelVm::find() else { return };
    let (sender, receiver) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let disks: Vec<PathBuf> = [&sender, &receiver].map(|folder| folder.path().join("d0")).into();
    for disk in &disks {
        std::fs::File::create(disk).and_then(|file| file.set_len(DISK_BYTES)).expect("a disk");
    }
    create(Layout::Single, &disks[..1], &content(4 << 20));
    // Streams of each kind, and where they go. What `-` begins goes on from the one before.
    let streams = [
        ("tank/fs@0", "copy/fs", None),
        ("-Lec tank/fs@0", "copy/packed", None),
        ("-i tank/fs@0 tank/fs@1", "copy/fs", None),
        ("-Lei tank/fs@0 tank/fs@1", "copy/packed", None),
        ("-i tank/fs@1 tank/fs@3", "copy/fs", None),
        ("-Lci tank/fs@1 tank/fs@4", "copy/packed", None),
        ("-i tank/fs#mark3 tank/fs@4", "copy/fs", None),
        ("tank/vol@ours", "copy/vol", None),
        ("-ci tank/vol@ours tank/vol@all", "copy/vol", None),
        ("-i tank/fs@2 tank/clone@all", "copy/clone", Some("copy/second@2")),
        ("tank/fs@2", "copy/second", None),
    ];
    block_on(async {
        let pool = import(&disks[..1], 2).await;
        history(&pool, &[1, 2, 4]).await;
        more(&pool).await;
        let mark =
            pool.change(|s| async move { edit::create_bookmark(&s, "tank/fs#mark3", "tank/fs@3").await });
        mark.await.expect("a bookmark");
        pool.sync().await.expect("a commit");
        let copy = empty("copy", &disks[1]).await;
        let view = pool.view();
        // The origin of the clone before the clone.
        let of_origin = streams.iter().filter(|(_, _, origin)| origin.is_none());
        for &(arguments, to, origin) in
            of_origin.chain(streams.iter().filter(|(_, _, origin)| origin.is_some()))
        {
            let order = order(arguments);
            let bytes = bytes(&view, &order).await.expect(arguments);
            let target = ReceiveTarget {
                dataset: to.into(),
                snapshot: order.to.split('@').nth(1).expect("a snapshot").into(),
                origin: origin.map(str::to_owned),
                ..ReceiveTarget::default()
            };
            receive(&copy, &bytes, target).await;
        }
        drop(view);
        copy.close(PoolState::Exported).await.expect("an export");
        pool.close(PoolState::Exported).await.expect("an export");
    });
    let pairs: [(&str, &str); 8] = [
        ("tank/fs@0", "copy/fs@0"),
        ("tank/fs@1", "copy/fs@1"),
        ("tank/fs@3", "copy/fs@3"),
        ("tank/fs@4", "copy/fs@4"),
        ("tank/fs@1", "copy/packed@1"),
        ("tank/fs@4", "copy/packed@4"),
        ("tank/clone@all", "copy/clone@all"),
        ("tank/fs@all", "copy/fs@all"),
    ];
    let seen = |name: &str| format!("mount -t zfs -o ro {name} /m; see /m; umount /m\n");
    let compared: String = pairs.iter().map(|(a, b)| format!("echo '## '\n{}{}", seen(a), seen(b))).collect();
    let script = format!(
        "set -e\n{SEE}mkdir -p /m\n\
         zpool import -d /dev -o readonly=on -N tank\nzpool import -d /dev -N copy\n\
         zpool scrub -w copy\nzpool status -v copy\n\
         zfs send -i tank/fs@4 tank/fs@all | zfs receive -u copy/fs\n{compared}echo '## '\n\
         for i in $(seq 20); do [ -e /dev/zd16 ] && break; sleep 1; done\n\
         sha256sum < /dev/zd0; sha256sum < /dev/zd16\n\
         zfs userspace -Hpn tank/fs@4; zfs userspace -Hpn copy/fs@4\necho '## '\n\
         zpool scrub -w copy; zpool status copy\nzpool export copy\nzpool export tank\n"
    );
    let outcome = vm.run(&Job::new(script, disks.clone())).expect("the machine runs");
    let output = &outcome.output;
    assert_eq!(outcome.code, Some(0), "{output}");
    assert_eq!(output.matches("errors: No known data errors").count(), 2, "{output}");
    let parts: Vec<Vec<&str>> = output.split("## \n").skip(1).map(|part| part.lines().collect()).collect();
    assert_eq!(parts.len(), 10, "{output}");
    for (pair, lines) in pairs.iter().zip(&parts[..8]) {
        assert_eq!(lines.len(), 6, "{output}");
        assert_eq!(lines[..3], lines[3..], "{pair:?}\n{output}");
    }
    // Objects of each user; what they use depends on the compression.
    let objects = |line: &&str| {
        line.split('\t')
            .enumerate()
            .filter(|(at, _)| [1, 4].contains(at))
            .fold(String::new(), |text, (_, word)| text + " " + word)
    };
    let users: Vec<String> = parts[8][2..].iter().map(objects).collect();
    let (sent, received) = users.split_at(users.len() / 2);
    assert!(sent.len() > 1 && sent == received, "{output}");
    assert_eq!(parts[8][0], parts[8][1], "the volume differs\n{output}");
}
