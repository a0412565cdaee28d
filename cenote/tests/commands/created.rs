//! Pools that are created, changed, exported and judged by OpenZFS's `zdb`, through the binary alone.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::session::Session;

/// Size of each file that is a disk.
const DISK_BYTES: u64 = 256 << 20;

/// Sparse files in a directory of the session.
pub fn disks(session: &Session, directory: &str, count: usize) -> (PathBuf, Vec<String>) {
    let place = session.directory().join(directory);
    std::fs::create_dir_all(&place).unwrap();
    let disk = |number: usize| {
        let path = place.join(format!("d{number}"));
        File::create(&path).unwrap().set_len(DISK_BYTES).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let disks = (0..count).map(disk).collect();
    (place, disks)
}

/// The words of a command line with the disks in place of `%0`, `%1`, ….
pub fn words<'a>(line: &'a str, disks: &'a [String]) -> Vec<&'a str> {
    let word = |word: &'a str| match word.strip_prefix('%') {
        Some(number) => disks[number.parse::<usize>().unwrap()].as_str(),
        None => word,
    };
    line.split(' ').map(word).collect()
}

/// What `zdb` must say of an exported pool: all blocks are right, and none leaked.
pub fn assert_judged_good(place: &Path, pool: &str) {
    let Some(verdict) = testkit::oracle::zdb_of(place, "-bcc", pool, &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
}

/// What `zdb` must say of the counts of features, and that it finds these datasets.
fn assert_counted_right(place: &Path, pool: &str, datasets: &[&str]) {
    let Some(told) = testkit::oracle::zdb_of(place, "-d", pool, &[]) else { return };
    for dataset in datasets {
        assert!(told.contains(&format!("Dataset {dataset} [")), "{dataset} in\n{told}");
    }
    assert!(told.contains("Verified large_blocks feature refcount of 0 is correct"), "{told}");
    assert!(!told.contains("mismatch"), "{told}");
}

#[test]
fn pools_of_every_layout_are_created_and_judged_good() {
    let session = Session::start();
    for (name, count, layout) in [
        ("single", 1, "%0"),
        ("stripe", 2, "%0 %1"),
        ("mirror", 4, "mirror %0 %1 mirror %2 %3"),
        ("raidz1", 3, "raidz %0 %1 %2"),
        ("raidz2", 4, "raidz2 %0 %1 %2 %3"),
        ("raidz3", 5, "raidz3 %0 %1 %2 %3 %4"),
        ("draid", 5, "draid1:2d:1s %0 %1 %2 %3 %4"),
        ("classes", 6, "mirror %0 %1 special mirror %2 %3 log %4 spare %5"),
    ] {
        let pool = format!("t{name}");
        let (place, disks) = disks(&session, name, count);
        let create = format!("zpool create -f -m none {pool} {layout}");
        session.print(&words(&create, &disks));
        session.print(&["zfs", "create", "-o", "compression=lz4", &format!("{pool}/fs")]);
        session.print(&["zfs", "create", "-s", "-V", "32M", &format!("{pool}/vol")]);
        session.print(&["zfs", "snapshot", "-r", &format!("{pool}@now")]);
        let listing = ["zfs", "list", "-Hp", "-t", "all", "-o", "name,type,guid,creation,refer", "-r", &pool];
        let before = session.print(&listing);
        assert_eq!(before.lines().count(), 6, "{before}");
        let state = session.print(&["zpool", "list", "-H", "-o", "health", &pool]);
        assert_eq!(state, "ONLINE\n", "{pool}");
        session.print(&["zpool", "export", &pool]);
        session.print(&["zpool", "import", "-N", "-d", place.to_str().unwrap(), &pool]);
        assert_eq!(session.print(&listing), before);
        session.print(&["zpool", "export", &pool]);
        assert_judged_good(&place, &pool);
    }
}

#[test]
fn datasets_are_changed_and_the_pool_stays_good() {
    let session = Session::start();
    let (place, disks) = disks(&session, "disks", 2);
    session.print(&words("zpool create -m none tank mirror %0 %1", &disks));
    let names = || session.print(&["zfs", "list", "-H", "-o", "name", "-t", "all", "-r", "tank"]);
    for line in [
        "zfs create -p tank/a/b",
        "zfs create -V 16M -o compression=zstd tank/a/v",
        "zfs snapshot tank/a/b@1",
        "zfs snapshot -o org:why=test tank/a/b@2 tank/a/v@2",
        "zfs snapshot -r tank/a@3",
        "zfs hold keep tank/a/b@1",
        "zfs bookmark tank/a/b@2 #mark",
        "zfs bookmark tank/a/b#mark tank/a/b#copy",
        "zfs clone tank/a/b@2 tank/clone",
        "zfs set atime=off org:mine=yes tank/a tank/clone",
        "zfs set quota=100M tank/a/b",
        "zfs inherit atime tank/clone",
        "zfs rename -r tank/a@3 tank/a@three",
    ] {
        assert_eq!(session.print(&words(line, &[])), "", "{line}");
    }
    let expected = "tank\ntank/a\ntank/a@three\ntank/a/b\ntank/a/b@1\ntank/a/b@2\ntank/a/b@three\ntank/a/b#copy\ntank/a/b#mark\n\
                    tank/a/v\ntank/a/v@2\ntank/a/v@three\ntank/clone\n";
    assert_eq!(names(), expected);
    let marks = words("zfs get -Hpo value guid,createtxg tank/a/b#mark tank/a/b#copy", &[]);
    let marks = session.print(&marks);
    let marks: Vec<&str> = marks.lines().collect();
    assert_eq!(marks[..2], marks[2..]);
    let since = session.print(&words(
        "zfs get -Hpo value written@2,written#mark,written#tank/a/b#copy,written@#copy tank/a/b",
        &[],
    ));
    let since: Vec<&str> = since.lines().collect();
    assert!(since.len() == 4 && since[0] != "-" && since.iter().all(|one| *one == since[0]), "{since:?}");
    let get =
        |property: &str, name: &str| session.print(&["zfs", "get", "-Hpo", "value,source", property, name]);
    assert_eq!(get("atime", "tank/a/b"), "off\tinherited from tank/a\n");
    assert_eq!(get("atime", "tank/clone"), "on\tdefault\n");
    assert_eq!(get("org:mine", "tank/clone"), "yes\tlocal\n");
    assert_eq!(get("quota", "tank/a/b"), "104857600\tlocal\n");
    assert_eq!(get("volsize", "tank/a/v"), "16777216\tlocal\n");
    assert_eq!(get("origin", "tank/clone"), "tank/a/b@2\t-\n");

    for (line, message) in [
        ("zfs create tank/a", "cannot create 'tank/a': dataset already exists\n"),
        ("zfs create tank/no/where", "cannot create 'tank/no/where': parent does not exist\n"),
        ("zfs create tank/a/v/x", "cannot create 'tank/a/v/x': parent is not a filesystem\n"),
        ("zfs create tank/a%b", "cannot create 'tank/a%b': invalid character '%' in name\n"),
        (
            "zfs create -o normalization=formC -o utf8only=off tank/x",
            "cannot create 'tank/x': 'utf8only' must be set 'on' if normalization chosen\n",
        ),
        ("zfs create nopool/x", "cannot create 'nopool/x': no such pool 'nopool'\n"),
        ("zfs snapshot tank/a/b@1", "cannot create snapshot 'tank/a/b@1': dataset already exists\n"),
        ("zfs destroy tank/a/b@nothing", "could not find any snapshots to destroy; check snapshot names.\n"),
        (
            "zfs hold keep tank/a/b@1",
            "cannot hold snapshot 'tank/a/b@1': tag already exists on this dataset\n",
        ),
        ("zfs promote tank/a", "cannot promote 'tank/a': not a cloned filesystem\n"),
        ("zfs set nonsense=x tank/a", "cannot set property for 'tank/a': invalid property 'nonsense'\n"),
        ("zfs set quota=abc tank/a", "cannot set property for 'tank/a': bad numeric value 'abc'\n"),
        (
            "zfs set quota=0 tank/a",
            "cannot set property for 'tank/a': use 'none' to disable quota/refquota\n",
        ),
        (
            "zfs set quota=1K tank/a",
            "cannot set property for 'tank/a': size is less than current used or reserved space\n",
        ),
        (
            "zfs set reservation=1P tank/a",
            "cannot set property for 'tank/a': size is greater than available space\n",
        ),
        (
            "zfs set compression=best tank/a",
            "cannot set property for 'tank/a': 'compression' must be one of 'on | off | lzjb | gzip | \
             gzip-[1-9] | zle | lz4 | zstd | zstd-fast | zstd-[1-19] | \
             zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]'\n",
        ),
        (
            "zfs set userquota@0=1G tank/a/b@1",
            "cannot set property for 'tank/a/b@1': this property can not be modified for snapshots\n",
        ),
        (
            "zfs set projectobjquota@0=1G tank/a/v",
            "cannot set property for 'tank/a/v': this property does not apply to datasets of this type\n",
        ),
        (
            "zfs userspace tank/a/v",
            "cannot open 'tank/a/v': operation is only applicable to filesystems and their snapshots\n",
        ),
        (
            "zfs set org:x=y tank/a/b#mark",
            "cannot open 'tank/a/b#mark': operation not applicable to datasets of this type\n",
        ),
        (
            "zfs bookmark tank/a/b#mark tank/a/v#mark",
            "cannot create bookmark 'tank/a/v#mark': tank/a/b#mark is not a bookmark of tank/a/v\n",
        ),
        (
            "zfs bookmark tank/a/b#nothing tank/a/b#other",
            "cannot create bookmark 'tank/a/b#other': dataset does not exist\n",
        ),
        (
            "zfs promote tank/a/b#mark",
            "cannot open 'tank/a/b#mark': operation not applicable to datasets of this type\n",
        ),
        (
            "zfs mount -R tank/a/v",
            "cannot open 'tank/a/v': operation not applicable to datasets of this type\n",
        ),
        (
            "zfs inherit exec tank/a/b@1",
            "cannot inherit exec for 'tank/a/b@1': 'exec' cannot be set on snapshots\n",
        ),
        (
            "zfs inherit snapdir tank/a/v",
            "cannot inherit snapdir for 'tank/a/v': 'snapdir' does not apply to datasets of this type\n",
        ),
        ("zpool iostat nopool", "cannot open 'nopool': no such pool\n"),
        (
            "zfs inherit quota tank/a/b",
            "'quota' property cannot be inherited\nuse 'zfs set quota=none' to clear\n",
        ),
        (
            "zfs destroy tank/a/b@2",
            "cannot destroy 'tank/a/b@2': snapshot has dependent clones\n\
             use '-R' to destroy the following datasets:\ntank/clone\n",
        ),
        (
            "zfs rollback tank/a/b@2",
            "cannot rollback to 'tank/a/b@2': more recent snapshots or bookmarks exist\n\
             use '-r' to force deletion of the following snapshots and bookmarks:\ntank/a/b@three\n",
        ),
        (
            "zfs destroy tank",
            "cannot destroy 'tank': operation does not apply to pools\n\
             use 'zfs destroy -r tank' to destroy all datasets in the pool\n\
             use 'zpool destroy tank' to destroy the pool itself\n",
        ),
    ] {
        let ended = session.run(&words(line, &[]));
        assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (1, "", message), "{line}");
    }
    for line in
        ["zfs create", "zfs set tank", "zfs snapshot", "zfs inherit nonsense tank", "zfs create -s tank/x"]
    {
        assert_eq!(session.run(&words(line, &[])).code, 2, "{line}");
    }
    assert_eq!(names(), expected, "refusals change nothing");

    // What is kept for OpenZFS is said to be.
    for line in [
        "zfs set sharenfs=on atime=off context=a:b:c tank/a tank/clone",
        "zfs create -o sharenfs=on -o context=a:b:c -n tank/shared",
    ] {
        let ended = session.run(&words(line, &[]));
        let notes = "note: 'context' is kept for OpenZFS and has no effect here\n\
                     note: 'sharenfs' is set and nothing is shared by it: this daemon does not serve NFS: start \
                     it with --nfs ADDRESS:PORT\n";
        assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (0, "", notes), "{line}");
    }
    assert_eq!(get("sharenfs", "tank/a/b"), "on\tinherited from tank/a\n");
    let silent = session.run(&words("zfs set sharenfs=off context=none direct=standard tank/a", &[]));
    assert_eq!((silent.code, silent.err.as_str()), (0, ""));

    for line in [
        // Not of the volume, which has none.
        "zfs inherit -r snapdir tank/a",
        "zfs release keep tank/a/b@1",
        "zfs rollback -r tank/a/b@2",
        "zfs promote tank/clone",
        "zfs rename tank/clone tank/master",
        "zfs destroy -r tank/a",
    ] {
        assert_eq!(session.print(&words(line, &[])), "", "{line}");
    }
    assert_eq!(
        names(),
        "tank\ntank/master\ntank/master@1\ntank/master@2\ntank/master#copy\ntank/master#mark\n"
    );
    let told = session.print(&["zfs", "destroy", "-nv", "tank/master@1%2"]);
    assert!(
        told.starts_with("would destroy tank/master@1\nwould destroy tank/master@2\nwould reclaim "),
        "{told}"
    );
    session.print(&["zfs", "destroy", "tank/master@1,2"]);
    // The pool's own snapshot is hidden: all filesystems are clones of its empty snapshot.
    for line in ["zfs snapshot -r tank@e", "zfs clone tank/master@e tank/k", "zfs inherit -r atime tank"] {
        assert_eq!(session.print(&words(line, &[])), "", "{line}");
    }
    let ended = session.run(&words("zfs destroy -r tank@%", &[]));
    let message = "cannot destroy 'tank@%': snapshot has dependent clones\n\
                   use '-R' to destroy the following datasets:\ntank/k\n";
    assert_eq!((ended.code, ended.err.as_str()), (1, message));
    let told = session.print(&words("zfs destroy -Rnv tank", &[]));
    let told: Vec<&str> = told.lines().collect();
    assert_eq!(
        told,
        ["tank/k", "tank/master@e", "tank/master", "tank@e"].map(|name| format!("would destroy {name}"))
    );
    session.print(&words("zfs destroy -R tank@%", &[]));
    assert_eq!(names(), "tank\ntank/master\ntank/master#copy\ntank/master#mark\n");
    for line in ["zfs snapshot tank@alone", "zfs snapshot tank/master@kept", "zfs destroy -R tank@alone"] {
        assert_eq!(session.print(&words(line, &[])), "", "{line}");
    }
    assert_eq!(names(), "tank\ntank/master\ntank/master@kept\ntank/master#copy\ntank/master#mark\n");
    for line in ["zfs clone tank/master@kept tank/k", "zfs destroy -R tank"] {
        assert_eq!(session.print(&words(line, &[])), "", "{line}");
    }
    assert_eq!(names(), "tank\n", "all but what the pool begins with");
    session.print(&words("zfs create tank/again", &[]));
    session.print(&words("zfs destroy -r tank", &[]));
    assert_eq!(names(), "tank\n");
    session.print(&words("zfs create -o casesensitivity=mixed -o normalization=formKD tank/n", &[]));
    session.print(&words("zfs create -o casesensitivity=sensitive tank/n/below", &[]));
    session.print(&words("zfs create tank/n/below/it", &[]));
    let told = session.print(&words(
        "zfs get -Ho value casesensitivity,normalization,utf8only tank/n tank/n/below tank/n/below/it",
        &[],
    ));
    let told: Vec<&str> = told.lines().collect();
    assert_eq!(told, ["mixed", "formKD", "on", "sensitive", "formKD", "on", "sensitive", "formKD", "on"]);
    let history = session.print(&["zpool", "history", "tank"]);
    assert!(history.lines().any(|line| line.ends_with(" zfs promote tank/clone")), "{history}");
    session.print(&["zpool", "export", "tank"]);
    assert_judged_good(&place, "tank");
    assert_counted_right(&place, "tank", &["mos", "tank", "tank/n", "tank/n/below", "tank/n/below/it"]);
}

#[test]
fn devices_in_use_and_bad_layouts_are_refused() {
    let session = Session::start();
    let (place, disks) = disks(&session, "disks", 5);
    let missing = place.join("missing");
    let small = place.join("small");
    File::create(&small).unwrap().set_len(32 << 20).unwrap();
    let disks: Vec<String> =
        disks.into_iter().chain([missing, small].map(|path| path.to_str().unwrap().to_owned())).collect();
    let refused = |line: &str, message: &str| {
        let ended = session.run(&words(line, &disks));
        assert_eq!((ended.code, ended.err.as_str()), (1, message), "{line}");
    };
    refused("zpool create tank %5", &format!("cannot open '{}': No such file or directory\n", disks[5]));
    refused(
        "zpool create tank %6",
        &format!(
            "cannot create 'tank': one or more devices is less than the minimum size (64M): {} (32M)\n",
            disks[6]
        ),
    );
    refused(
        "zpool create mirror %0",
        "cannot create 'mirror': name is reserved\npool name may have been omitted\n",
    );
    refused("zpool create 9lives %0", "cannot create '9lives': name must begin with a letter\n");
    refused(
        "zpool create tank mirror %0",
        "invalid vdev specification: mirror requires at least 2 devices\n",
    );
    refused(
        "zpool create -o ashift=20 tank %0",
        "cannot create 'tank': property 'ashift' number 20 is invalid, only values between 9 and 16 are \
         allowed\n",
    );
    refused(
        "zpool create tank mirror %0 %1 raidz2 %2 %3 %4",
        "invalid vdev specification\nuse '-f' to override the following errors:\n\
         mismatched replication level: raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are \
         present\n",
    );
    refused(
        "zpool create -R m tank %0",
        "cannot create 'tank': bad alternate root 'm': it must be an absolute path in UTF-8\n",
    );
    // Words that are neither devices nor groups.
    for (words_of, why) in [
        ("miror %0 %1", "cannot open 'miror': no such file or device; did you mean 'mirror'?"),
        ("nothing.img", "nothing.img does not exist\nfiles are given by their full path"),
        ("-O compresion=on %0", "invalid property 'compresion'; did you mean 'compression'?"),
        ("-o autotrimm=on %0", "invalid property 'autotrimm'; did you mean 'autotrim'?"),
    ] {
        let (options, vdevs) = match words_of.rsplit_once(' ').filter(|_| words_of.starts_with('-')) {
            Some((options, vdev)) => (format!("{options} "), vdev),
            None => (String::new(), words_of),
        };
        let line = format!("zpool create {options}tank {vdevs}");
        let ended = session.run(&words(&line, &disks));
        assert!(ended.code == 1 && ended.err.contains(why), "{line}: {ended:?}");
    }
    // Dry runs check all that the pool would be refused.
    for (property, why) in [
        ("-O nonsense=x", "invalid property 'nonsense'"),
        ("-o nonsense=x", "invalid property 'nonsense'"),
        ("-O atime=maybe", "'atime' must be one of 'off | on'"),
        ("-o dedup_table_quota=much", "property 'dedup_table_quota': a number is needed"),
        ("-o version=29", "property 'version' number 29 is invalid"),
    ] {
        let line = format!("zpool create -n {property} tank %0");
        let ended = session.run(&words(&line, &disks));
        assert!(ended.code == 1 && ended.err.contains(why), "{line}: {ended:?}");
    }
    let layout = session.print(&words("zpool create -n tank mirror %0 %1 log %2", &disks));
    let expected = format!(
        "would create 'tank' with the following layout:\n\n\ttank\n\t  mirror\n\t    {}\n\t    \
         {}\n\tlogs\n\t  {}\n",
        disks[0], disks[1], disks[2]
    );
    assert_eq!(layout, expected);

    // A refusal leaves nothing behind that would have to be overridden.
    refused(
        "zpool create -m none -O nonsense=x tank %0",
        "cannot create 'tank': invalid property 'nonsense'\n",
    );
    session.print(&words("zpool create -m none tank %0", &disks));
    let in_use = |how: &str, which: &str| {
        format!("invalid vdev specification\n{how}\n{} is part of {which} pool 'tank'\n", disks[0])
    };
    let repair = "the following errors must be manually repaired:";
    refused("zpool create -f other %0", &in_use(repair, "active"));
    refused("zpool create tank %1", "cannot create 'tank': pool already exists\n");
    // Another daemon finds the device locked, whatever its labels say.
    let second = Session::start();
    let ended = second.run(&["zpool", "import", "-f", "-N", "-d", place.to_str().unwrap(), "tank"]);
    let message = format!("cannot import 'tank': {} is in use by another process\n", disks[0]);
    assert_eq!((ended.code, ended.err), (1, message));
    session.print(&["zpool", "export", "tank"]);
    refused("zpool create other %0", &in_use("use '-f' to override the following errors:", "exported"));
    session.print(&words("zpool create -f -m none other %0", &disks));
    session.print(&["zpool", "destroy", "other"]);
    session.print(&words("zpool create -m none third %0", &disks));
    assert_eq!(session.run(&["zpool", "create", "tank"]).code, 2);
    assert_eq!(session.run(&["zpool", "create"]).code, 2);
}

#[test]
fn vdevs_of_equal_redundancy_go_together_and_added_draids_have_their_spares() {
    let session = Session::start();
    let (place, disks) = disks(&session, "disks", 6);
    let run = |line: &str| session.print(&words(line, &disks));
    for (create, add) in [
        ("raidz %0 %1 %2 special mirror %3 %4", None),
        ("mirror %0 %1", Some("raidz %2 %3 %4")),
        ("raidz %0 %1", Some("special mirror %2 %3")),
        ("raidz %0 %1", Some("draid1:1d %2 %3 %4")),
        ("draid:1s %0 %1 %2", Some("draid:1s %3 %4 %5")),
    ] {
        run(&format!("zpool create -m none tank {create}"));
        if let Some(add) = add {
            run(&format!("zpool add -n tank {add}"));
            run(&format!("zpool add tank {add}"));
        }
        if create.starts_with("draid") {
            run("zpool export tank");
            assert_judged_good(&place, "tank");
            run(&format!("zpool import -d {} tank", place.display()));
            let status = run("zpool status tank");
            assert!(status.contains("draid1-0-0") && status.contains("draid1-1-0"), "{status}");
        }
        run("zpool destroy tank");
    }
}

#[test]
fn added_vdevs_have_the_sectors_of_the_pool_unless_others_are_allowed() {
    let session = Session::start();
    let (_, disks) = disks(&session, "disks", 5);
    let run = |line: &str| session.run(&words(line, &disks));
    let print = |line: &str| session.print(&words(line, &disks));
    print("zpool create -m none -o ashift=9 tank %0");
    assert_eq!(print("zpool get -H -o value,source ashift tank"), "9\tlocal\n");
    let ashift = |disk: &str| print(&format!("zpool get -H -o value ashift tank {disk}"));
    // The pool's property decides by default.
    print("zpool add tank %1");
    assert_eq!([ashift("%0"), ashift("%1")], ["9\n", "9\n"]);
    let refused = run("zpool add -n -o ashift=12 tank %2");
    let why = "cannot add to 'tank': adding devices with different physical sector sizes is not allowed\n";
    assert_eq!((refused.code, &*refused.err), (1, why));
    assert_eq!(run("zpool add -f --allow-ashift-mismatch -o ashift=12 tank %2").code, 2);
    print("zpool add --allow-ashift-mismatch -o ashift=12 tank %2");
    assert_eq!(ashift("%2"), "12\n");
    let refused = run("zpool add --allow-in-use tank mirror %3 %4");
    assert!(
        refused.code == 1 && refused.err.contains("pool uses file and new vdev is mirror"),
        "{refused:?}"
    );
    print("zpool add --allow-replication-mismatch tank mirror %3 %4");
    print("zpool destroy tank");
}

#[test]
fn a_destroyed_pool_comes_back_until_its_labels_are_cleared() {
    let session = Session::start();
    let (place, disks) = disks(&session, "disks", 1);
    let place = place.to_str().unwrap();
    session.print(&words("zpool create -m none -o comment=mine tank %0", &disks));
    session.print(&["zpool", "set", "comment=yours", "tank"]);
    session.print(&["zpool", "sync", "tank"]);
    let ended = session.run(&["zpool", "set", "size=1", "tank"]);
    let message = "cannot set property for 'tank': 'size' is readonly\n";
    assert_eq!((ended.code, ended.err.as_str()), (1, message));
    session.print(&["zpool", "set", "dedup_table_quota=1.5G", "tank"]);
    let quota = session.print(&["zpool", "get", "-Hpo", "value", "dedup_table_quota", "tank"]);
    assert_eq!(quota, "1610612736\n");
    let ended = session.run(&["zpool", "set", "dedup_table_quota=much", "tank"]);
    let message = "cannot set property for 'tank': property 'dedup_table_quota': a number is needed\n";
    assert_eq!((ended.code, ended.err.as_str()), (1, message));
    session.print(&["zpool", "destroy", "tank"]);
    let ended = session.run(&["zpool", "import", "-d", place]);
    assert_eq!((ended.code, ended.err.as_str()), (0, "no pools available to import\n"));
    session.print(&["zpool", "import", "-D", "-N", "-d", place, "tank"]);
    assert_eq!(session.print(&["zpool", "get", "-Ho", "value", "comment", "tank"]), "yours\n");
    assert_eq!(session.print(&["zpool", "get", "-Ho", "value,source", "readonly", "tank"]), "off\t-\n");
    session.print(&["zpool", "export", "tank"]);
    assert_judged_good(place.as_ref(), "tank");
    let ended = session.run(&["zpool", "labelclear", &disks[0]]);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("is a member of exported pool \"tank\""), "{}", ended.err);
    // Foreign data over two of the labels stay, and so does the room for boot loaders.
    let other = vec![0xa5u8; 4 << 20];
    let disk = File::options().read(true).write(true).open(&disks[0]).unwrap();
    disk.write_all_at(&other, 0).unwrap();
    session.print(&["zpool", "labelclear", "-f", &disks[0]]);
    let mut found = vec![0; 4 << 20];
    disk.read_exact_at(&mut found, 0).unwrap();
    assert!(found == other, "what was no label was cleared");
    let ended = session.run(&["zpool", "labelclear", "-f", &disks[0]]);
    assert_eq!((ended.code, ended.err), (1, format!("failed to read label from {}\n", disks[0])));
    let ended = session.run(&["zpool", "import", "-d", place]);
    assert_eq!(ended.err, "no pools available to import\n");
}

#[test]
fn labels_of_cache_devices_and_spares_are_cleared_with_the_header_of_the_cache() {
    let session = Session::start();
    let (_, disks) = disks(&session, "disks", 3);
    session.print(&words("zpool create -m none tank %0 cache %1 spare %2", &disks));
    session.print(&["zpool", "export", "tank"]);
    for (number, header) in [(1, 0), (2, 0xa5)] {
        let disk = File::options().read(true).write(true).open(&disks[number]).unwrap();
        disk.write_all_at(&[0xa5; 1024], 4 << 20).unwrap();
        session.print(&["zpool", "labelclear", "-f", &disks[number]]);
        let mut found = [1; 1024];
        disk.read_exact_at(&mut found, 4 << 20).unwrap();
        assert_eq!((found[0], found[511], found[512]), (header, header, 0xa5), "{number}");
        let mut label = vec![1; 256 << 10];
        for at in [0, 256 << 10, DISK_BYTES - (512 << 10), DISK_BYTES - (256 << 10)] {
            disk.read_exact_at(&mut label, at).unwrap();
            assert!(label[16 << 10..].iter().all(|byte| *byte == 0), "{number}: {at}");
        }
    }
}

#[test]
fn volumes_have_blocks_of_any_size_and_openzfs_says_which_waste_space() {
    let session = Session::start();
    let (place, disks) = disks(&session, "wide", 10);
    let create = "zpool create -f -m none -o ashift=12 wide draid1:8d %0 %1 %2 %3 %4 %5 %6 %7 %8 %9";
    session.print(&words(create, &disks));
    let volume = |options: &str, name: &str| {
        let line = format!("zfs create -s {options} -V 64M wide/{name}");
        let ended = session.run(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!((ended.code, ended.out.as_str()), (0, ""), "{options}: {}", ended.err);
        let size = session.print(&["zfs", "get", "-Hpo", "value", "volblocksize", &format!("wide/{name}")]);
        (size.trim().to_owned(), ended.err)
    };
    assert_eq!(volume("", "default"), ("32768".into(), String::new()));
    let (size, said) = volume("-b 8K", "small");
    assert_eq!(size, "8192");
    assert!(
        said.contains("volblocksize (8192) is less than the default minimum block size (16384)."),
        "{said}"
    );
    assert!(said.contains("To reduce wasted space a volblocksize of 32768 is recommended."), "{said}");
    let (_, said) = volume("-o volblocksize=16K", "medium");
    assert!(said.contains("unit (32768), which wastes at least 50% of space."), "{said}");
    for (number, bytes) in [512, 4096, 131_072, 1 << 20, 16 << 20].into_iter().enumerate() {
        let (size, said) = volume(&format!("-b {bytes}"), &format!("v{number}"));
        assert_eq!((size, said.is_empty()), (bytes.to_string(), bytes > 8192), "{said}");
        let nbd = session.directory().join("nbd.sock");
        let uri = format!("nbd+unix:///wide/v{number}?socket={}", nbd.display());
        let written = Command::new("qemu-io")
            .args(["-f", "raw", &uri, "-c", "write -P 7 0 5M", "-c", "flush", "-c", "read -P 7 1M 4M"])
            .output()
            .expect("qemu-io cannot be run; install qemu-utils");
        let said = String::from_utf8_lossy(&written.stdout);
        assert!(written.status.success() && !said.contains("failed"), "{said}");
    }
    let refused = session.run(&["zfs", "create", "-s", "-b", "32M", "-V", "64M", "wide/v"]);
    assert!(refused.code == 1 && refused.err.contains("power of 2 from 512B to 16M"), "{}", refused.err);
    session.print(&["zpool", "export", "wide"]);
    assert_judged_good(&place, "wide");
    let Some(told) = testkit::oracle::zdb_of(&place, "-d", "wide", &[]) else { return };
    assert!(told.contains("Verified large_blocks feature refcount of 2 is correct"), "{told}");
}

#[test]
fn a_pool_that_is_open_is_looked_at_wherever_its_devices_are() {
    let session = Session::start();
    let (place, disks) = disks(&session, "live", 2);
    session.print(&words("zpool create -m none live mirror %0 %1", &disks));
    session.print(&["zfs", "create", "-V", "8M", "live/vol"]);
    session.print(&["zpool", "sync", "live"]);
    let shown = session.print(&["zdb", "-Cud", "live"]);
    for expected in ["MOS Configuration:", disks[0].as_str(), "Uberblock:", "Dataset live/vol [ZVOL]"] {
        assert!(shown.contains(expected), "{expected} in\n{shown}");
    }
    let verified = session.print(&["zdb", "-bcc", "live"]);
    assert!(verified.contains("No leaks (block sum matches space maps exactly)"), "{verified}");
    assert!(session.print(&["zdb", "-dd", "live/vol", "0:1"]).contains("zvol object"));
    // The name that it has now counts, wherever the devices say otherwise.
    session.print(&["zpool", "export", "live"]);
    let place = place.to_str().unwrap();
    session.print(&["zpool", "import", "-N", "-t", "-d", place, "live", "other"]);
    assert!(session.print(&["zdb", "-d", "other"]).contains("Dataset other/vol [ZVOL]"));
    session.print(&["zpool", "export", "other"]);
    assert_eq!(session.run(&["zdb", "-C", "other"]).code, 1);
    assert!(session.print(&["zdb", "-e", "-p", place, "-C", "live"]).contains("MOS Configuration:"));
}

#[test]
fn what_is_given_at_create_is_kept_or_refused_and_dry_runs_check_all_of_it() {
    let session = Session::start();
    let (_, disks) = disks(&session, "disks", 3);
    let said = |line: &str| {
        let ended = session.run(&words(line, &disks));
        (ended.code, ended.err)
    };
    let refused = |line: &str, why: &str| {
        let (code, err) = said(line);
        assert!(code != 0 && err.contains(why), "{line}: {code} {err}");
    };
    refused("zpool create -n -O doesnotexist=on tank %0", "invalid property 'doesnotexist'");
    refused("zpool create -n -O checksum=nonsense tank %0", "'checksum' must be one of");
    session.print(&words("zpool create -m none -o ashift=9 -O userquota@root=1000000 tank %0", &disks));
    let get = |line: &str| session.print(&words(&format!("{line} tank"), &[]));
    assert_eq!(get("zpool get -Ho value,source ashift"), "9\tlocal\n");
    assert_eq!(get("zfs get -Hpo value userquota@root"), "1000000\n");
    // Vdevs that are added have the same sectors.
    session.print(&words("zpool add tank %1", &disks));
    let sectors = session.print(&words("zpool get -Ho value ashift tank all-vdevs", &[]));
    // The first line is the root's, which has none.
    assert_eq!(sectors.lines().skip(1).collect::<Vec<_>>(), ["9", "9"], "{sectors}");

    session.print(&words("zfs create -o groupobjquota@7=12 tank/a", &[]));
    assert_eq!(session.print(&words("zfs get -Hpo value groupobjquota@7 tank/a", &[])), "12\n");
    // What was answered is seen at once.
    for value in ["13", "14", "15"] {
        session.print(&words(&format!("zfs set groupobjquota@7={value} tank/a"), &[]));
        let seen = session.print(&words("zfs get -Hpo value groupobjquota@7 tank/a", &[]));
        assert_eq!(seen.trim_end(), value);
    }
    for unknown in ["userquota@no_such_user", "groupused@", "projectquota@abc"] {
        let shown = session.print(&["zfs", "get", "-Ho", "value,source", unknown, "tank/a"]);
        assert_eq!(shown, "-\t-\n", "{unknown}");
    }
    refused("zfs create -o userquota@0=1G -V 10m tank/v", "do not apply to volumes");
    session.print(&words("zfs create -o version=3 tank/b", &[]));
    assert_eq!(session.print(&words("zfs get -Ho value version tank/b", &[])), "3\n");
    refused("zfs create -n -o nosuchprop=42 tank/x", "cannot verify 'tank/x': invalid property 'nosuchprop'");
    refused("zfs create -p -n -o checksum=nonsense tank/x/y", "'checksum' must be one of");
    refused("zfs create -p -o checksum=nonsense tank/x/y", "'checksum' must be one of");
    refused("zfs list tank/x", "dataset does not exist");
    refused("zfs list -t volume tank/a", "not applicable to datasets of this type");
    assert_eq!(said("zfs list -H -d 0 -t snapshot tank/a"), (0, String::new()));
    refused("zfs create -V 10m -u tank/v", "'-u' can only be used when creating a filesystem");
    let verbose = session.print(&words("zfs create -p -P -s -b 16K -V 10m tank/p/v", &[]));
    assert_eq!(
        verbose,
        "create_ancestors\ttank/p/v\ncreate\ttank/p/v\nproperty\tvolsize\t10485760\nproperty\tvolblocksize\t16384\n"
    );
    let verbose = session.print(&words("zfs create -n -v -V 10m tank/p/w", &[]));
    assert!(verbose.starts_with("would create tank/p/w\n\tvolsize=10485760\n\trefreservation="), "{verbose}");
    // Whether there is room is asked when it is created.
    assert_eq!(said("zfs create -n -V 100T tank/p/w"), (0, String::new()));
    refused("zfs create -V 100T tank/p/w", "out of space");
    refused("zfs create -s -V 1z tank/p/w", "value is too large");
    assert_eq!(said("zfs create -p -V 10m tank/p/v"), (0, String::new()));
    refused("zfs create -p tank/p/v", "dataset already exists");
    session.print(&words("zfs snapshot tank/p/v@s", &[]));
    for _ in 0..2 {
        assert_eq!(said("zfs clone -p tank/p/v@s tank/x/y"), (0, String::new()));
    }
    session.print(&words("zfs snapshot tank/b@s", &[]));
    assert_eq!(said("zfs clone -o version=3 tank/b@s tank/c"), (0, String::new()));
    refused("zfs clone -o version=2 tank/b@s tank/d", "already at version 3");
    refused("zfs clone -o version=5 tank/b@s tank/d", "'zfs upgrade' can take it to version 5");

    session.print(&words("zfs create -o normalization=formC tank/n", &[]));
    session.print(&words("zfs create -o utf8only=off tank/n/off", &[]));
    let names = session.print(&words("zfs get -Ho value normalization,utf8only tank/n/off", &[]));
    assert_eq!(names, "none\noff\n");
    refused("zfs create -o utf8only=off -o normalization=formD tank/n/x", "must be set 'on'");

    session.print(&words("zfs snapshot tank/a@s", &[]));
    for (bootfs, shown) in [("tank/a@s", "tank/a@s"), ("tank/a", "tank/a"), ("", "-")] {
        session.print(&["zpool", "set", &format!("bootfs={bootfs}"), "tank"]);
        assert_eq!(get("zpool get -Ho value bootfs"), format!("{shown}\n"));
    }
    refused("zpool set bootfs=tank/p/v tank", "is no filesystem");
    session.print(&words("zpool set a:b=hello tank", &[]));
    session.print(&words("zpool set a:b= tank", &[]));
    assert_eq!(get("zpool get -Ho value,source a:b"), "-\tdefault\n");

    session.print(&words("zpool create -m none other %2", &disks));
    refused("zfs snapshot tank@x other@x", "must be in one pool");
    refused("zfs snapshot tank@x tank@y", "multiple snapshots of same fs not allowed");
    assert!(!session.print(&words("zfs list -Ho name -t snapshot", &[])).contains("@x"));
}

#[test]
fn the_history_tells_what_became_of_datasets() {
    let session = Session::start();
    let (_, disks) = disks(&session, "disks", 1);
    session.print(&words("zpool create -m none tank %0", &disks));
    for line in [
        "zfs create tank/a",
        "zfs snapshot -r tank@s",
        "zfs hold keep tank/a@s",
        "zfs release keep tank/a@s",
        "zfs rename tank/a@s tank/a@t",
        "zfs bookmark tank/a@t tank/a#m",
        "zfs destroy tank/a#m",
        "zfs rollback tank/a@t",
        "zfs set atime=off tank/a",
        "zfs inherit atime tank/a",
        "zfs clone tank/a@t tank/c",
        "zfs promote tank/c",
        "zfs rename tank/c tank/d",
        "zfs destroy tank/a",
        "zfs destroy -r tank/d",
    ] {
        session.print(&words(line, &[]));
    }
    let history = session.print(&words("zpool history -i tank", &[]));
    let event = |line: &str| {
        let (_, event) =
            line.split_once("] ").filter(|(_, event)| !event.starts_with("create pool version"))?;
        let words = event.split(' ').map(|word| match word.bytes().any(|byte| byte.is_ascii_digit()) {
            true => "N",
            false => word,
        });
        Some(words.collect::<Vec<_>>().join(" ").trim_end().to_owned())
    };
    let events: Vec<String> = history.lines().filter_map(event).collect();
    let expected = [
        "create tank/a N",
        "snapshot tank@s N",
        "snapshot tank/a@s N",
        "hold tank/a@s N tag=keep N N",
        "release tank/a@s N tag=keep N",
        "rename tank/a@s N -> @t",
        "bookmark tank/a N name=m N N N",
        "remove bookmark tank/a N name=m",
        "clone swap tank/a/%rollback N parent=a",
        "destroy tank/a/%rollback N",
        "set tank/a N N",
        "inherit tank/a N atime=",
        "clone tank/c N origin=tank/a@t N",
        "promote tank/c N",
        "rename tank/c N -> tank/d",
        "destroy tank/a N",
        "destroy tank/d@t N",
        "destroy tank/d N",
    ];
    assert_eq!(events, expected, "{history}");
    // What was asked for, with all names.
    let ioctls = history.lines().filter_map(|line| line.split_once(" ioctl ")).map(|(_, name)| name);
    let expected = [
        "create",
        "snapshot",
        "hold",
        "release",
        "bookmark",
        "destroy_bookmarks",
        "rollback",
        "clone",
        "destroy_snaps",
    ];
    assert_eq!(ioctls.collect::<Vec<_>>(), expected, "{history}");
    for name in ["tank@s", "tank/a@s"] {
        assert!(history.lines().any(|line| line.trim_start() == name && line.starts_with(' ')), "{history}");
    }
}
