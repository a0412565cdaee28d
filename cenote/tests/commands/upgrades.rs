//! Pools and filesystems of old versions: made, written, listed and upgraded, in OpenZFS's words.

use crate::created::{assert_judged_good, disks, words};
use crate::session::Session;

#[test]
fn pools_of_old_versions_are_made_and_upgraded() {
    let session = Session::start();
    let (place, disks) = disks(&session, "old", 3);
    let print = |line: &str| session.print(&words(line, &disks));
    let refused = |line: &str| {
        let ended = session.run(&words(line, &disks));
        assert_ne!(ended.code, 0, "{line}");
        ended.err
    };
    let get = |property: &str, pool: &str| print(&format!("zpool get -Ho value {property} {pool}"));
    print("zpool create -m none -o version=26 numbered %0");
    print("zpool create -m none -d bare %1");
    print("zpool create -m none -o compatibility=legacy kept %2");
    assert_eq!(get("version", "numbered"), "26\n");
    assert_eq!(get("version", "bare"), "-\n");
    assert_eq!(get("feature@lz4_compress", "bare"), "disabled\n");
    print("zfs create -o version=4 numbered/fs");
    assert!(refused("zfs create -o compression=lz4 bare/x").contains("lz4_compress"));
    assert!(refused("zfs set version=3 numbered/fs").contains("already at version 4"));

    let listed = print("zpool upgrade");
    let older = "VER  POOL\n---  ------------\n26   numbered\n\nUse 'zpool upgrade -v' for a list";
    assert!(listed.contains(older), "{listed}");
    assert!(listed.contains("POOL  FEATURE\n---------------\nbare\n      async_destroy\n"), "{listed}");
    assert!(
        listed.contains("      large_microzap\n      dynamic_gang_header(*)\n      block_cloning_endian\n"),
        "{listed}"
    );
    let versions = print("zpool upgrade -v");
    let endian = format!("{:<37} (read-only compatible)", "block_cloning_endian");
    for feature in [&format!("{:<37}", "dynamic_gang_header"), &endian] {
        assert!(versions.contains(&format!("\n{feature}\n")), "{versions}");
    }
    assert!(
        versions.contains("\n 28  Multiple vdev replacements\n")
            || versions.contains(" 28   Multiple vdev replacements\n"),
        "{versions}"
    );
    assert!(refused("zpool upgrade -V 29 numbered").contains("invalid version '29'\n"));
    assert!(refused("zpool upgrade -V 28").contains("-V option is incompatible with other arguments"));

    let head = "This system supports ZFS pool feature flags.\n\n";
    let upgrade = |line: &str| print(line).strip_prefix(head).unwrap().to_owned();
    let older = "Pool 'bare' is already formatted using more current version '5000'.\n\n";
    assert_eq!(upgrade("zpool upgrade -V 28 bare"), older);
    let step = "Successfully upgraded 'numbered' from version 26 to version 27.\n\n";
    assert_eq!(upgrade("zpool upgrade -V 27 numbered"), step);
    let same = "Pool 'numbered' is already formatted using version 27.\n\n";
    assert_eq!(upgrade("zpool upgrade -V 27 numbered"), same);
    print("zpool set version=28 numbered");
    assert_eq!(get("version", "numbered"), "28\n");
    assert!(refused("zpool set version=27 numbered").contains("28"));
    let done = upgrade("zpool upgrade numbered");
    let begins = "Successfully upgraded 'numbered' from version 28 to feature flags.\n\
                  Enabled the following features on 'numbered':\n  async_destroy\n";
    assert!(done.starts_with(begins) && done.ends_with("\n\n"), "{done}");
    assert_eq!(get("version", "numbered"), "-\n");

    // What the lists of `compatibility` name and the pool does not have, and the other way round.
    let status = || print("zpool status kept");
    assert!(!status().contains("status:"), "{}", status());
    print("zpool set compatibility=compat-2018 kept");
    assert!(
        status().contains("status: Some supported and requested features are not enabled"),
        "{}",
        status()
    );
    print("zpool set compatibility=legacy kept");

    let kept = "Pool 'kept' already has all supported and requested features enabled.\n";
    assert_eq!(upgrade("zpool upgrade kept"), kept);
    print("zpool set feature@lz4_compress=enabled bare");
    assert_eq!(get("feature@lz4_compress", "bare"), "active\n");
    assert_eq!(get("feature@hole_birth", "bare"), "disabled\n");
    assert!(upgrade("zpool upgrade -a").starts_with("Enabled the following features on 'bare':\n"));
    let all = "All pools are already formatted using feature flags.\n\n\
               Every feature flags pool already has all supported and requested features enabled.\n";
    assert_eq!(upgrade("zpool upgrade -a"), all);
    assert_eq!(get("feature@dynamic_gang_header", "bare"), "disabled\n");
    let listed = print("zpool upgrade");
    assert!(listed.contains("\nbare\n      dynamic_gang_header(*)\n"), "{listed}");
    print("zpool set feature@dynamic_gang_header=enabled bare");
    assert_eq!(get("feature@dynamic_gang_header", "bare"), "enabled\n");
    assert!(!print("zpool upgrade").contains("\nbare\n"));

    let running = "This system is currently running ZFS filesystem version 5.\n\n";
    let listed = print("zfs upgrade");
    assert!(
        listed.starts_with(running)
            && listed.contains("VER  FILESYSTEM\n---  ------------\n 4   numbered/fs\n"),
        "{listed}"
    );
    assert!(print("zfs upgrade -v").contains(" 5   System attributes\n"));
    assert!(refused("zfs upgrade -V 6 numbered/fs").contains("invalid version 6"));
    assert!(session.run(&words("zfs upgrade -r", &disks)).code == 2);
    let down = session.run(&words("zfs upgrade -V 3 numbered/fs", &disks));
    let said = "numbered/fs: can not be downgraded; it is already at version 4\n0 filesystems upgraded\n";
    assert_eq!((down.code, down.out.as_str()), (1, said));
    let done = "1 filesystems upgraded\n1 filesystems already at this version\n";
    assert_eq!(print("zfs upgrade -r numbered"), done);
    assert_eq!(print("zfs get -Ho value version numbered/fs"), "5\n");
    let all = format!("{running}All filesystems are formatted with the current version.\n");
    assert_eq!(print("zfs upgrade"), all);
    assert_eq!(print("zfs upgrade -a"), "0 filesystems upgraded\n4 filesystems already at this version\n");

    for pool in ["numbered", "bare", "kept"] {
        print(&format!("zpool export {pool}"));
        assert_judged_good(&place, pool);
    }
}

#[test]
fn a_pool_of_version_1_is_written_and_taken_on() {
    let session = Session::start();
    let (place, disks) = disks(&session, "first", 3);
    let print = |line: &str| session.print(&words(line, &disks));
    let refused = |line: &str, why: &str| {
        let ended = session.run(&words(line, &disks));
        assert!(ended.code == 1 && ended.err.contains(why), "{line}: {} {}", ended.out, ended.err);
    };
    print("zpool create -m none -o version=1 first %0");
    print("zfs create first/fs");
    print("zfs create -V 8M first/vol");
    assert_eq!(print("zfs get -Ho value version first/fs"), "2\n");
    assert_ne!(print("zfs get -Ho value reservation first/vol"), "none\n");
    assert_eq!(print("zfs get -Ho value refreservation first/vol"), "none\n");
    let too_old = "pool must be upgraded to set this property or value";
    for line in [
        "zfs set copies=2 first/fs",
        "zfs set compression=gzip first/fs",
        "zfs set compression=zle first/fs",
        "zfs set refquota=1G first/fs",
        "zfs set aclinherit=passthrough-x first/fs",
        "zfs create -o version=3 first/newer",
        "zfs snapshot -o user:a=b first/fs@a",
    ] {
        refused(line, too_old);
    }
    refused("zpool set bootfs=first/fs first", "pool must be upgraded to support 'bootfs' property");
    refused("zpool add first spare %1", "pool must be upgraded to add hot spares");
    refused("zpool add first log %1", "pool must be upgraded to add these vdevs");
    print("zfs snapshot first/fs@a");
    refused("zfs hold tag first/fs@a", "pool must be upgraded");
    print("zfs clone first/fs@a first/clone");
    let old = session.run(&words("zfs upgrade first/fs", &disks));
    let said = "first/fs: can not be upgraded; the pool version needs to first be upgraded\nto version 24\n\n\
                0 filesystems upgraded\n";
    assert_eq!((old.code, old.out.as_str()), (1, said));
    for version in [9, 12, 18, 26] {
        print(&format!("zpool upgrade -V {version} first"));
        assert_eq!(print("zpool get -Ho value version first"), format!("{version}\n"));
    }
    print("zfs set refquota=1G first/fs");
    print("zfs hold tag first/fs@a");
    print("zfs promote first/clone");
    print("zpool upgrade first");
    assert_eq!(print("zfs upgrade first/fs"), "1 filesystems upgraded\n");
    print("zfs release tag first/clone@a");
    print("zfs destroy -r first/fs");
    print("zfs destroy first/clone@a");
    print("zpool export first");
    assert_judged_good(&place, "first");
}

#[test]
fn what_old_pools_cannot_be_is_said_before_anything_is_made() {
    let session = Session::start();
    let (_, disks) = disks(&session, "refused", 6);
    for (line, why) in [
        ("zpool create -o version=29 x %0", "property 'version' number 29 is invalid."),
        (
            "zpool create -o version=2 x raidz2 %0 %1 %2",
            "pool must be upgraded to add these vdevs: it has version 2, and 3 is needed",
        ),
        ("zpool create -o version=6 x %0 log %1", "pool must be upgraded to add these vdevs"),
        ("zpool create -o version=2 x %0 spare %1", "pool must be upgraded to add hot spares"),
        ("zpool create -o version=9 x %0 cache %1", "pool must be upgraded to add cache devices"),
        ("zpool create -o version=1 -O copies=2 x %0", "pool must be upgraded to set this property or value"),
        (
            "zpool create -o version=28 -o feature@lz4_compress=enabled x %0",
            "'feature@' and 'version' properties cannot be specified together",
        ),
        ("zpool create -d x draid1:2d:1s %0 %1 %2 %3 %4", "the feature 'draid' is not enabled"),
        ("zpool create -f -d x %0 special %1", "the feature 'allocation_classes' is not enabled"),
    ] {
        let ended = session.run(&words(line, &disks));
        assert!(ended.code == 1 && ended.err.contains(why), "{line}: {} {}", ended.out, ended.err);
    }
    session.print(&words("zpool create -m none x %0", &disks));
}
