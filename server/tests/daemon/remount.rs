//! Where filesystems are mounted when properties, names and snapshots change around them. Needs `/dev/fuse`;
//! `CENOTE_SKIP=fuse` leaves these tests out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use device::block_on;
use server::api::{
    ApiError, CreateDataset, CreatePool, DestroyDataset, ErrorKind, ExportPool, ImportPool, ListMounts,
    Mount, MountsChanged, NewDevices, NewLayout, NewVdev, OpenedPool, RenameDataset, SetProperties, Unmount,
};

use crate::filesystems::{again, again_as, create, errno, judge, names, set, snapshot, start};
use crate::harness::Running;

/// Where what is mounted, below the altroot.
fn mounted(running: &Running) -> BTreeMap<String, String> {
    let mounts = running.daemon.list_mounts(ListMounts {}).unwrap();
    let altroot = running.altroot();
    let shown = |at: PathBuf| match at.strip_prefix(&altroot) {
        Ok(inside) => format!("/{}", inside.display()),
        Err(_) => at.display().to_string(),
    };
    mounts.into_iter().map(|mount| (mount.dataset, shown(mount.mountpoint))).collect()
}

fn at(running: &Running, name: &str) -> Option<String> {
    mounted(running).remove(name)
}

fn place(at: &str) -> Option<String> {
    Some(at.to_owned())
}

fn mount(running: &Running, mount: Mount) -> MountsChanged {
    let changed = block_on(running.daemon.mount(mount)).unwrap();
    assert!(changed.failed.is_empty(), "{:?}", changed.failed);
    changed
}

fn mount_one(running: &Running, name: &str, at: Option<&Path>) {
    let at = at.map(Path::to_owned);
    mount(running, Mount { dataset: Some(name.into()), at, ..Mount::default() });
}

fn unmount(running: &Running, name: &str) {
    block_on(running.daemon.unmount(Unmount { target: Some(name.into()), ..Unmount::default() })).unwrap();
}

fn rename(running: &Running, from: &str, to: &str, no_remount: bool) {
    let rename = RenameDataset { from: from.into(), to: to.into(), no_remount, ..RenameDataset::default() };
    assert_eq!(block_on(running.daemon.rename_dataset(rename)).unwrap().warnings, Vec::<String>::new());
}

#[test]
fn only_what_is_to_be_elsewhere_is_moved_and_what_was_unmounted_is_mounted() {
    let Some((running, _)) = start() else { return };
    create(&running, "tank/a", &[]);
    for name in ["tank/a/b", "tank/a/left", "tank/a/auto"] {
        create(&running, name, &[]);
    }
    create(&running, "tank/a/own", &[("mountpoint", "/own")]);
    unmount(&running, "tank/a/left");
    // What is mounted is not asked for `canmount`, unless that becomes `off`.
    set(&running, "tank/a/auto", "canmount", "noauto");
    assert_eq!(at(&running, "tank/a/auto"), place("/tank/a/auto"));
    let used = File::create(running.altroot().join("own/file")).unwrap();
    set(&running, "tank/a", "mountpoint", "/moved");
    assert_eq!(at(&running, "tank/a"), place("/moved"));
    assert_eq!(at(&running, "tank/a/b"), place("/moved/b"));
    assert_eq!(at(&running, "tank/a/auto"), place("/moved/auto"));
    assert_eq!(
        (at(&running, "tank/a/own"), at(&running, "tank/a/left")),
        (place("/own"), place("/moved/left"))
    );
    // Where it is already.
    unmount(&running, "tank/a/left");
    unmount(&running, "tank/a/auto");
    let inside = File::create(running.altroot().join("moved/file")).unwrap();
    set(&running, "tank/a", "mountpoint", "/moved");
    (&inside).write_all(b"there").unwrap();
    drop(inside);
    assert_eq!((at(&running, "tank/a/left"), at(&running, "tank/a/auto")), (place("/moved/left"), None));
    unmount(&running, "tank/a/left");
    set(&running, "tank/a/left", "canmount", "on");
    assert_eq!(at(&running, "tank/a/left"), None);
    set(&running, "tank/a/b", "canmount", "off");
    assert_eq!(at(&running, "tank/a/b"), None);
    // What is zoned is a container's, with all that inherits it.
    create(&running, "tank/zone", &[]);
    create(&running, "tank/zone/in", &[]);
    create(&running, "tank/zone/own", &[("zoned", "off")]);
    let busy = File::create(running.altroot().join("tank/zone/in/file")).unwrap();
    let properties = vec![("zoned".into(), "on".into())];
    let zone = SetProperties { datasets: vec!["tank/zone".into()], properties, ..SetProperties::default() };
    let refused = block_on(running.daemon.set_properties(zone)).unwrap().failed;
    assert!(refused.len() == 1 && refused[0].kind == ErrorKind::Busy, "{refused:?}");
    assert_eq!(at(&running, "tank/zone/in"), place("/tank/zone/in"));
    drop(busy);
    set(&running, "tank/zone", "zoned", "on");
    assert_eq!((at(&running, "tank/zone"), at(&running, "tank/zone/in")), (None, None));
    assert_eq!(at(&running, "tank/zone/own"), place("/tank/zone/own"));
    let request = Mount { dataset: Some("tank/zone/in".into()), ..Mount::default() };
    let refused = block_on(running.daemon.mount(request)).unwrap_err();
    assert_eq!(refused.message, "cannot mount 'tank/zone/in': dataset is exported to a local zone");
    for property in ["mountpoint", "sharenfs"] {
        let why = format!("'{property}' cannot be set on dataset in a non-global zone");
        let properties = vec![(property.to_owned(), "/elsewhere".to_owned())];
        let datasets = vec!["tank/zone/in".to_owned()];
        let request = SetProperties { datasets, properties: properties.clone(), ..SetProperties::default() };
        let refused = block_on(running.daemon.set_properties(request)).unwrap().failed;
        assert_eq!(refused[0].message, format!("cannot set property for 'tank/zone/in': {why}"));
        let request = CreateDataset { name: "tank/zone/new".into(), properties, ..CreateDataset::default() };
        let refused = block_on(running.daemon.create_dataset(request)).unwrap_err();
        assert_eq!(refused.message, format!("cannot create 'tank/zone/new': {why}"));
    }
    create(&running, "tank/far", &[("mountpoint", "/far")]);
    rename(&running, "tank/far", "tank/zone/far", false);
    assert_eq!(at(&running, "tank/zone/far"), None);
    set(&running, "tank/zone", "zoned", "off");
    assert_eq!(at(&running, "tank/zone"), None, "until somebody mounts it");
    mount_one(&running, "tank/zone/in", None);
    (&used).write_all(b"used").unwrap();
    drop(used);
    judge(&running);
}

#[test]
fn a_place_where_there_was_none_mounts_all_that_inherit_it() {
    let Some((running, _)) = start() else { return };
    create(&running, "tank/x", &[("mountpoint", "none")]);
    create(&running, "tank/x/y", &[]);
    create(&running, "tank/x/auto", &[("canmount", "noauto")]);
    assert_eq!((at(&running, "tank/x"), at(&running, "tank/x/y")), (None, None));
    set(&running, "tank/x", "mountpoint", "/x");
    assert_eq!((at(&running, "tank/x"), at(&running, "tank/x/y")), (place("/x"), place("/x/y")));
    assert_eq!(at(&running, "tank/x/auto"), None);
    set(&running, "tank/x", "mountpoint", "legacy");
    assert_eq!((at(&running, "tank/x"), at(&running, "tank/x/y")), (None, None));
}

#[test]
fn what_a_rename_left_behind_the_next_one_takes_along() {
    let Some((running, at)) = start() else { return };
    create(&running, "tank/one", &[]);
    create(&running, "tank/one/child", &[]);
    fs::write(at.join("one/child/file"), b"kept").unwrap();
    rename(&running, "tank/one", "tank/two", true);
    assert_eq!(fs::read(at.join("one/child/file")).unwrap(), b"kept");
    rename(&running, "tank/two", "tank/three", false);
    assert_eq!(fs::read(at.join("three/child/file")).unwrap(), b"kept");
    assert!(!at.join("one").exists() && !at.join("two").exists());
    // Also when it is to be where it is.
    rename(&running, "tank/three", "tank/four", true);
    rename(&running, "tank/four", "tank/three", false);
    assert_eq!(fs::read(at.join("three/child/file")).unwrap(), b"kept");
    judge(&running);
}

#[test]
fn a_renamed_filesystem_loses_no_mount() {
    let Some((running, _)) = start() else { return };
    let by_hand = running.place.path().join("by hand");
    create(&running, "tank/a", &[]);
    create(&running, "tank/a/auto", &[("canmount", "noauto")]);
    create(&running, "tank/a/legacy", &[("mountpoint", "legacy")]);
    create(&running, "tank/a/own", &[("mountpoint", "/own")]);
    snapshot(&running, "tank/a/own@one");
    mount_one(&running, "tank/a/auto", None);
    let options = ["nosuid", "noatime"].map(str::to_owned).to_vec();
    let legacy = Some("tank/a/legacy".into());
    let by_hand_again = Mount { at: Some(by_hand.clone()), options, ..Mount::default() };
    mount(&running, Mount { dataset: legacy, ..by_hand_again.clone() });
    mount_one(&running, "tank/a/own@one", Some(&running.place.path().join("one")));
    let (own, one) = (running.altroot().join("own"), running.place.path().join("one"));
    let called = || [&by_hand, &own, &one].map(|at| in_table(at).0);
    let files = [by_hand.join("file"), own.join("file")].map(|path| File::create(path).unwrap());
    rename(&running, "tank/a", "tank/z", false);
    assert_eq!(called(), ["tank/a/legacy", "tank/a/own", "tank/z/own@one"], "somebody is in the first two");
    let now = mounted(&running);
    let expected = [
        ("tank", "/tank".to_owned()),
        ("tank/z", "/tank/z".to_owned()),
        ("tank/z/auto", "/tank/z/auto".to_owned()),
        ("tank/z/legacy", by_hand.display().to_string()),
        ("tank/z/own", "/own".to_owned()),
        ("tank/z/own@one", running.place.path().join("one").display().to_string()),
    ];
    assert_eq!(now, expected.map(|(name, at)| (name.to_owned(), at)).into());
    for mut file in files {
        file.write_all(b"as before").unwrap();
    }
    // The mount that stayed is the one whose properties are set.
    set(&running, "tank/z/own", "readonly", "on");
    assert_eq!(errno(fs::write(running.altroot().join("own/file"), b"x")), libc::EROFS);

    // Without a remount, writing goes on.
    let mut file = File::create(running.altroot().join("tank/z/file")).unwrap();
    rename(&running, "tank/z", "tank/q", true);
    file.write_all(b"still").unwrap();
    assert_eq!(at(&running, "tank/q"), place("/tank/z"));
    drop(file);
    unmount(&running, "tank/q");
    mount_one(&running, "tank/q", None);
    mount_one(&running, "tank/q/own", None);
    mount(&running, Mount { dataset: Some("tank/q/legacy".into()), ..by_hand_again });
    assert_eq!(fs::read(running.altroot().join("tank/q/file")).unwrap(), b"still");
    assert_eq!(called(), ["tank/q/legacy", "tank/q/own", "tank/z/own@one"]);

    // Otherwise the kernel's table has the new name too, of the same filesystem with the same options.
    share(&by_hand);
    let before = [&by_hand, &own].map(|at| (in_table(at).1, fs::metadata(at).unwrap().dev()));
    assert!(before[0].0.contains("nosuid") && before[0].0.contains("shared:"), "{before:?}");
    rename(&running, "tank/q", "tank/r", false);
    assert_eq!(called(), ["tank/r/legacy", "tank/r/own", "tank/r/own@one"]);
    assert_eq!(before, [&by_hand, &own].map(|at| (in_table(at).1, fs::metadata(at).unwrap().dev())));
    assert_eq!(fs::read(own.join("file")).unwrap(), b"as before");
    set(&running, "tank/r/own", "readonly", "off");
    fs::write(own.join("file"), b"after it").unwrap();
    judge(&running);
}

#[test]
fn all_means_those_that_nobody_mounts_by_name() {
    let Some((running, _)) = start() else { return };
    let by_hand = running.place.path().join("by hand");
    create(&running, "tank/a", &[]);
    create(&running, "tank/a/b", &[]);
    create(&running, "tank/other", &[]);
    create(&running, "tank/legacy", &[("mountpoint", "legacy")]);
    create(&running, "tank/auto", &[("canmount", "noauto"), ("mountpoint", "/auto")]);
    snapshot(&running, "tank@one");
    let legacy = Mount { dataset: Some("tank/legacy".into()), at: Some(by_hand.clone()), ..Mount::default() };
    mount(&running, Mount { legacy: true, ..legacy });
    mount_one(&running, "tank/auto", None);
    mount_one(&running, "tank@one", Some(&running.place.path().join("one")));
    // By name as by path: a mount by the system's `mount` is unmounted by `umount`.
    for target in ["tank/legacy", by_hand.to_str().unwrap()] {
        let unmount = Unmount { target: Some(target.into()), force: true, ..Unmount::default() };
        let error = block_on(running.daemon.unmount(unmount)).unwrap_err();
        assert!(error.message.starts_with("cannot unmount 'tank/legacy': legacy mountpoint\n"), "{error}");
    }
    let all = block_on(running.daemon.unmount(Unmount::default())).unwrap();
    assert!(all.failed.is_empty(), "{:?}", all.failed);
    let left: Vec<String> = mounted(&running).into_keys().collect();
    assert_eq!(left, ["tank/auto", "tank/legacy", "tank@one"]);
    rename(&running, "tank@one", "tank@first", false);
    let error = destroy(&running, "tank@first").unwrap_err();
    assert!(error.kind == ErrorKind::Busy && error.message.contains("is mounted at"), "{error}");
    assert!(running.place.path().join("one/a").is_dir());
    unmount(&running, "tank@first");
    destroy(&running, "tank@first").unwrap();

    let below = Mount { dataset: Some("tank/a".into()), recursive: true, ..Mount::default() };
    let done = mount(&running, below).done;
    assert_eq!(done.iter().map(|mount| &mount.dataset[..]).collect::<Vec<_>>(), ["tank/a", "tank/a/b"]);
    block_on(running.daemon.unmount(Unmount::default())).unwrap();
    let options = vec!["noatime".to_owned(), "noexec".to_owned()];
    let done = mount(&running, Mount { options, ..Mount::default() }).done;
    assert_eq!(done.len(), 4);
    for mount in done {
        let has = |word: &str| mount.options.contains(&word.to_owned());
        assert!(has("noatime") && has("noexec"), "{mount:?}");
    }
    block_on(running.daemon.unmount(Unmount::default())).unwrap();
    // Where nothing has to be made for mountpoints.
    create(&running, "tank/top", &[("mountpoint", "/top")]);
    unmount(&running, "tank/top");
    let done = mount(
        &running,
        Mount {
            dataset: Some("tank/top".into()),
            recursive: true,
            options: vec!["ro".into()],
            ..Mount::default()
        },
    )
    .done;
    assert_eq!(done.len(), 1);
    assert_eq!(errno(fs::write(running.altroot().join("top/file"), b"x")), libc::EROFS);
}

#[test]
fn what_is_mounted_read_only_follows_the_filesystem() {
    let Some((running, _)) = start() else { return };
    create(&running, "tank/r", &[]);
    let inside = running.altroot().join("tank/r");
    let bytes: Vec<u8> =
        (0..3 << 20).map(|number: u32| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(inside.join("file"), &bytes).unwrap();
    set(&running, "tank/r", "readonly", "on");
    again(&running);
    snapshot(&running, "tank/r@later");
    assert_eq!(names(&inside.join(".zfs/snapshot")), ["later"], "a snapshot that is newer than the mount");
    let quota = SetProperties {
        datasets: vec!["tank/r".into()],
        properties: vec![("userquota@0".into(), "1G".into())],
        ..SetProperties::default()
    };
    let quota = block_on(running.daemon.set_properties(quota)).unwrap();
    assert!(quota.failed.is_empty() && quota.warnings.is_empty(), "{quota:?}");
    for round in 0..4 {
        fs::write(running.altroot().join("tank/churn"), vec![round; 1 << 20]).unwrap();
        snapshot(&running, &format!("tank@{round}"));
    }
    assert_eq!(fs::read(inside.join("file")).unwrap(), bytes);
    assert_eq!(errno(fs::write(inside.join("file"), b"x")), libc::EROFS);
    set(&running, "tank/r", "readonly", "off");
    fs::write(inside.join("file"), b"x").unwrap();
    judge(&running);
}

fn destroy(running: &Running, name: &str) -> Result<(), ApiError> {
    let destroy = DestroyDataset { name: name.into(), ..DestroyDataset::default() };
    block_on(running.daemon.destroy_dataset(destroy)).map(|_| ())
}

#[test]
fn what_cannot_be_unmounted_stays_whole_and_what_was_covered_goes_too() {
    let Some((running, at)) = start() else { return };
    create(&running, "tank/x", &[]);
    create(&running, "tank/x/y", &[]);
    let before = mounted(&running);
    let held = File::create(at.join("x/held")).unwrap();
    let unmount_x = Unmount { target: Some("tank/x".into()), ..Unmount::default() };
    assert_eq!(block_on(running.daemon.unmount(unmount_x.clone())).unwrap_err().kind, ErrorKind::Busy);
    assert_eq!(mounted(&running), before);
    drop(held);
    unmount(&running, "tank/x");
    mount_one(&running, "tank/x/y", None);
    mount_one(&running, "tank/x", None);
    block_on(running.daemon.unmount(Unmount { force: true, ..unmount_x })).unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let below = format!("{}/x", at.canonicalize().unwrap().display());
    assert!(!table.contains(&below), "{table}");
    again(&running);
    assert_eq!(mounted(&running), before);
    judge(&running);
}

/// Makes mounts of a directory appear wherever else it is mounted, as under systemd.
fn share(at: &Path) {
    let at = std::ffi::CString::new(at.to_str().unwrap()).unwrap();
    // SAFETY: it is terminated and lives through the call; nothing else is used.
    let code =
        unsafe { libc::mount(c"".as_ptr(), at.as_ptr(), c"".as_ptr(), libc::MS_SHARED, std::ptr::null()) };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn who_is_mounted_around_others_hides_none_of_them() {
    let Some((running, top)) = start() else { return };
    for name in ["tank/x", "tank/x/y", "tank/x/y/z", "tank/x/y2"] {
        create(&running, name, &[]);
    }
    let before = mounted(&running);
    for is_shared in [false, true] {
        unmount(&running, "tank/x");
        assert_eq!(names(&top.join("x")), [] as [&str; 0], "nothing is left of what was made for others");
        if is_shared {
            share(&top);
        }
        for name in ["tank/x/y", "tank/x/y/z", "tank/x/y2"] {
            mount_one(&running, name, None);
        }
        let path = top.join(format!("x/y/z/{is_shared}"));
        let mut held = File::create(&path).unwrap();
        mount_one(&running, "tank/x", None);
        assert_eq!(mounted(&running), before);
        held.write_all(b"there").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"there");
        assert_eq!(names(&top.join("x")), ["y", "y2"]);
        fs::write(top.join("x/y2/file"), b"").unwrap();
        drop(held);
    }
    create(&running, "tank/fixed", &[("readonly", "on"), ("canmount", "noauto")]);
    unmount(&running, "tank/x");
    let inside = top.join("fixed/inside");
    mount_one(&running, "tank/x/y", Some(&inside));
    let fixed = Mount { dataset: Some("tank/fixed".into()), ..Mount::default() };
    let error = block_on(running.daemon.mount(fixed)).unwrap_err();
    assert!(error.message.contains("would hide 'tank/x/y'"), "{error}");
    assert_eq!(at(&running, "tank/fixed"), None);
    assert!(inside.join("z").exists());
    judge(&running);
}

#[test]
fn a_snapshot_in_which_a_file_is_open_is_busy() {
    let Some((running, top)) = start() else { return };
    fs::write(top.join("file"), vec![7; 1 << 20]).unwrap();
    for name in ["tank@one", "tank@two"] {
        snapshot(&running, name);
    }
    fs::write(top.join("file"), b"changed").unwrap();
    let inside = top.join(".zfs/snapshot/one/file");
    let mut file = File::open(&inside).unwrap();
    let error = destroy(&running, "tank@one").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    assert!(destroy(&running, "tank@two,one").is_err());
    assert_eq!(names(&top.join(".zfs/snapshot")), ["one", "two"]);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, vec![7; 1 << 20]);
    // It can still be entered after what was refused.
    assert_eq!(fs::read(top.join(".zfs/snapshot/two/file")).unwrap().len(), 1 << 20);
    drop(file);
    // The kernel tells a moment later that it is closed.
    let deadline = Instant::now() + Duration::from_secs(10);
    while destroy(&running, "tank@two,one").is_err() {
        assert!(Instant::now() < deadline, "nobody has it open");
        std::thread::yield_now();
    }
    assert_eq!(names(&top.join(".zfs/snapshot")), [] as [&str; 0]);
    assert_eq!(errno(File::open(&inside)), libc::ENOENT);
    judge(&running);
}

/// Keeps a directory from being opened: an attempt waits.
fn hold_up(path: &Path) -> OwnedFd {
    let terminated = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path is terminated and lives through the calls; the descriptor is new and not shared.
    unsafe {
        let group = libc::fanotify_init(libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC, libc::O_RDONLY as u32);
        assert!(group >= 0, "{}", std::io::Error::last_os_error());
        let group = OwnedFd::from_raw_fd(group);
        let mask = libc::FAN_OPEN_PERM | libc::FAN_ONDIR;
        let marked = libc::fanotify_mark(
            group.as_raw_fd(),
            libc::FAN_MARK_ADD,
            mask,
            libc::AT_FDCWD,
            terminated.as_ptr(),
        );
        assert_eq!(marked, 0, "{}", std::io::Error::last_os_error());
        group
    }
}

#[test]
fn a_remount_that_hangs_holds_up_no_listing() {
    let Some((running, top)) = start() else { return };
    let held_up = hold_up(&top);
    std::thread::scope(|scope| {
        let remount = scope.spawn(|| {
            let options = vec!["remount".to_owned(), "ro".to_owned()];
            let remount = Mount { dataset: Some("tank".into()), options, ..Mount::default() };
            block_on(running.daemon.mount(remount))
        });
        // It looks into the directory to have written back what is mapped.
        let mut waits = libc::pollfd { fd: held_up.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, which lives through the call.
        assert_eq!(unsafe { libc::poll(&mut waits, 1, 20_000) }, 1, "it never came to that");
        assert_eq!(at(&running, "tank"), place("/tank"));
        let listed = block_on(running.daemon.list_datasets(server::api::ListDatasets::default())).unwrap();
        assert_eq!(listed.entries.len(), 1);
        assert!(!remount.is_finished());
        // The waiting program goes on.
        drop(held_up);
        remount.join().unwrap().unwrap();
    });
    assert_eq!(errno(fs::write(top.join("file"), b"x")), libc::EROFS);
}

#[test]
fn what_somebody_else_mounted_and_does_not_answer_holds_up_nobody() {
    let Some((running, _)) = start() else { return };
    let hung = running.altroot().join("hung");
    fs::create_dir_all(&hung).unwrap();
    let connection = mount_unserved("other", &hung);
    let properties = vec![("mountpoint".to_owned(), "/hung".to_owned())];
    let create = CreateDataset { name: "tank/fs".into(), properties, ..CreateDataset::default() };
    let created = block_on(running.daemon.create_dataset(create)).unwrap();
    assert!(created.unmounted[0].contains("does not answer"), "{:?}", created.unmounted);
    // The waiting program goes on.
    drop(connection);
    unmount_lazily(&hung);
    mount_one(&running, "tank/fs", None);
}

/// Mounts a filesystem of this name that says nothing as long as the connection is kept, and is gone then.
fn mount_unserved(source: &str, at: &Path) -> File {
    let connection = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", connection.as_raw_fd());
    let terminated = |text: &str| std::ffi::CString::new(text).unwrap();
    let (source, at, options) = (terminated(source), terminated(at.to_str().unwrap()), terminated(&options));
    // SAFETY: all are terminated and live through the call.
    let code = unsafe {
        libc::mount(source.as_ptr(), at.as_ptr(), c"fuse.zfs".as_ptr(), 0, options.as_ptr().cast())
    };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    connection
}

fn unmount_lazily(at: &Path) {
    let at = std::ffi::CString::new(at.to_str().unwrap()).unwrap();
    // SAFETY: it is terminated and lives through the call.
    assert_eq!(unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) }, 0);
}

/// What the kernel calls the mount at a path, of which it lists one, and its options.
fn in_table(at: &Path) -> (String, String) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = at.canonicalize().unwrap().display().to_string().replace(' ', "\\040");
    let rows: Vec<_> = table.lines().filter(|line| line.split(' ').nth(4) == Some(&at)).collect();
    let [row] = rows[..] else { panic!("{rows:?}") };
    let (mount, filesystem) = row.split_once(" - ").unwrap();
    let options: Vec<&str> = mount.split(' ').skip(5).collect();
    (filesystem.split(' ').nth(1).unwrap().to_owned(), options.join(" "))
}

/// What the kernel lists as mounted below a directory.
fn table(below: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let places = table.lines().filter_map(|line| line.split(' ').nth(4));
    places.filter(|at| Path::new(at).starts_with(below)).map(str::to_owned).collect()
}

#[test]
fn what_a_killed_daemon_left_mounted_anywhere_goes_with_the_import() {
    let Some((running, _)) = start() else { return };
    let place = running.place.path().join("stale");
    for (name, source) in [("hand", "tank/by-hand"), ("snapshot", "tank@one"), ("other", "other/fs")] {
        let at = place.join(name);
        fs::create_dir_all(&at).unwrap();
        let connection = mount_unserved(source, &at);
        // There is no answer any more.
        drop(connection);
    }
    assert_eq!(table(&place).len(), 3);
    again(&running);
    let other = place.join("other");
    assert_eq!(table(&place), [other.to_str().unwrap()], "what is of another pool is none of ours");
    drop(mount_unserved("tank/by-hand", &place.join("hand")));
    again_as(&running, Some("barrel"));
    assert_eq!(table(&place), [other.to_str().unwrap()], "nor by the name that it had");
    unmount_lazily(&other);
}

/// One more pool on a file, below the same altroot.
fn create_pool(running: &Running, name: &str, root_properties: &[(&str, &str)]) -> OpenedPool {
    let disk = running.place.path().join(name);
    File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    create_pool_on(running, name, disk, root_properties)
}

fn create_pool_on(
    running: &Running,
    name: &str,
    disk: PathBuf,
    root_properties: &[(&str, &str)],
) -> OpenedPool {
    let vdev = NewVdev { layout: NewLayout::Single, class: Default::default(), devices: vec![disk] };
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let create = CreatePool {
        name: name.into(),
        devices: NewDevices { vdevs: vec![vdev], ..NewDevices::default() },
        root_properties: root_properties.iter().map(owned).collect(),
        altroot: Some(running.altroot()),
        ..CreatePool::default()
    };
    block_on(running.daemon.create_pool(create)).unwrap()
}

fn export(running: &Running, pool: &str, force: bool) -> Result<(), ApiError> {
    let export = ExportPool { pools: vec![pool.into()], force, ..ExportPool::default() };
    block_on(running.daemon.export(export)).map(drop)
}

#[test]
fn children_are_unmounted_wherever_they_are() {
    let Some((running, top)) = start() else { return };
    create(&running, "tank/a", &[]);
    create(&running, "tank/a/near", &[]);
    create(&running, "tank/a/far", &[("mountpoint", "/far")]);
    create(&running, "tank/a/far/off", &[("mountpoint", "/off")]);
    let path = top.join("a");
    for target in ["tank/a", path.to_str().unwrap()] {
        unmount(&running, target);
        assert_eq!(mounted(&running).into_keys().collect::<Vec<_>>(), ["tank"]);
        mount(&running, Mount::default());
    }
    // All stay where one of them is in use.
    let before = mounted(&running);
    let used = File::create(running.altroot().join("off/file")).unwrap();
    let request = Unmount { target: Some("tank/a".into()), ..Unmount::default() };
    assert_eq!(block_on(running.daemon.unmount(request)).unwrap_err().kind, ErrorKind::Busy);
    assert_eq!(mounted(&running), before);
    drop(used);
}

#[test]
fn over_all_pools_mounts_come_and_go_from_the_inside_out() {
    let Some((running, _)) = start() else { return };
    create(&running, "tank/outer", &[("mountpoint", "/outer")]);
    create_pool(&running, "pond", &[("canmount", "off"), ("mountpoint", "/outer")]);
    fs::create_dir(running.altroot().join("outer/inner")).unwrap();
    create(&running, "pond/inner", &[]);
    // And the other way round.
    create(&running, "pond/house", &[("mountpoint", "/house")]);
    fs::create_dir(running.altroot().join("house/room")).unwrap();
    create(&running, "tank/room", &[("mountpoint", "/house/room")]);
    let before = mounted(&running);
    assert_eq!(before["pond/inner"], place("/outer/inner").unwrap());
    for _ in 0..2 {
        let all = block_on(running.daemon.unmount(Unmount::default())).unwrap();
        assert!(all.failed.is_empty(), "{:?}", all.failed);
        assert!(mounted(&running).is_empty());
        let all = mount(&running, Mount::default());
        assert!(all.failed.is_empty(), "{:?}", all.failed);
        assert_eq!(mounted(&running), before);
    }
    block_on(running.daemon.unmount(Unmount::default())).unwrap();
}

#[test]
fn a_pool_below_an_altroot_makes_nothing_in_others_and_leaves_their_mounts_where_they_are() {
    let Some((running, top)) = start() else { return };
    create(&running, "tank/data", &[("mountpoint", "/guest/data")]);
    let data = running.altroot().join("guest/data/file");
    fs::write(&data, b"there").unwrap();

    // It would hide one, and a directory would have to be made in it.
    create_pool(&running, "guest", &[("mountpoint", "none")]);
    let properties = vec![("mountpoint".into(), "/guest".into())];
    let request = SetProperties { datasets: vec!["guest".into()], properties, ..SetProperties::default() };
    let refused = block_on(running.daemon.set_properties(request)).unwrap().failed;
    assert!(refused[0].message.contains("it would hide 'tank/data'"), "{refused:?}");
    assert_eq!((at(&running, "guest"), fs::read(&data).unwrap()), (None, b"there".to_vec()));
    let properties = vec![("mountpoint".into(), "/tank/sub".into())];
    let request = CreateDataset { name: "guest/sub".into(), properties, ..CreateDataset::default() };
    let warnings = block_on(running.daemon.create_dataset(request))
        .map(|created| created.warnings.into_iter().chain(created.unmounted).collect::<Vec<_>>().join(" "));
    let said = warnings.unwrap_or_else(|error| error.message);
    assert!(said.contains("would be made in 'tank', a filesystem of another pool"), "{said}");
    assert!(!top.join("sub").exists());

    // Where there is a directory it is shown, and stays when the pool goes.
    mount_one(&running, "guest", Some(&running.place.path().join("aside")));
    fs::create_dir(running.place.path().join("aside/data")).unwrap();
    unmount(&running, "guest");
    mount_one(&running, "guest", None);
    assert_eq!((at(&running, "guest"), at(&running, "tank/data")), (place("/guest"), place("/guest/data")));
    let busy = export(&running, "guest", false).unwrap_err();
    assert!(busy.message.contains("in use by the mount of 'tank/data'"), "{busy}");
    let mut open = File::options().read(true).write(true).open(&data).unwrap();
    export(&running, "guest", true).unwrap();
    assert_eq!(at(&running, "tank/data"), place("/guest/data"));
    assert_eq!(fs::read(&data).unwrap(), b"there");
    open.write_all(b"still").unwrap();
    assert_eq!(fs::read(&data).unwrap(), b"still");
}

#[test]
fn who_keeps_a_mount_busy_is_told() {
    let Some((running, _)) = start() else { return };
    create(&running, "tank/a", &[]);
    let path = running.altroot().join("tank/a/file");
    let file = File::create(&path).unwrap();
    let own = std::process::id();
    let request = || Unmount { target: Some("tank/a".into()), ..Unmount::default() };
    let busy = block_on(running.daemon.unmount(request())).unwrap_err();
    let (first, second) = busy.message.split_once('\n').unwrap();
    assert!(first.ends_with("/tank/a': pool or dataset is busy"), "{first}");
    let expected = format!("(process {own}: {} is open)", path.display());
    assert!(second.starts_with("in use by ") && second.ends_with(&expected), "{second}");
    let busy = export(&running, "tank", false).unwrap_err();
    assert!(busy.message.starts_with("cannot export 'tank': ") && busy.message.contains(&expected), "{busy}");
    let busy = destroy(&running, "tank/a").unwrap_err();
    assert!(busy.message.contains(&expected), "{busy}");
    drop(file);
    let mut there = std::process::Command::new("sleep");
    there.arg("1000").current_dir(path.parent().unwrap()).stdout(std::process::Stdio::null());
    let mut there = there.stderr(std::process::Stdio::null()).spawn().unwrap();
    let busy = block_on(running.daemon.unmount(request()));
    there.kill().unwrap();
    there.wait().unwrap();
    let expected = format!("in use by sleep (process {}: its working directory)", there.id());
    assert!(busy.unwrap_err().message.ends_with(&expected));
}

#[test]
fn a_pool_on_files_of_a_mount_is_told_and_goes_before_what_it_lies_on() {
    let Some((running, top)) = start() else { return };
    let disk = top.join("disk");
    File::create(&disk).unwrap().set_len(100 << 20).unwrap();
    let opened = create_pool_on(&running, "inner", disk.clone(), &[]);
    assert!(opened.warnings[0].contains("'inner' lies on files of 'tank'"), "{:?}", opened.warnings);
    let file = running.altroot().join("inner/file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let busy = export(&running, "tank", false).unwrap_err();
    assert!(busy.message.contains("disk is open"), "{busy}");
    // Both at once, by force, as at the end of the daemon.
    let all = ExportPool { all: true, force: true, ..ExportPool::default() };
    assert_eq!(block_on(running.daemon.export(all)).unwrap(), ["inner", "tank"]);
    let import = |pool: &str, search: PathBuf| {
        let (pool, search) = (Some(pool.to_owned()), vec![search]);
        let import = ImportPool { pool, search, altroot: Some(running.altroot()), ..ImportPool::default() };
        block_on(running.daemon.import(import)).unwrap()
    };
    import("tank", running.place.path().join("disk"));
    let ashift = {
        let label = block_on(engine::pool::discovery::scan(&[&disk])).unwrap();
        format!("{:?}", label[0])
    };
    assert!(ashift.contains("ashift: Some(9)"), "{ashift}");
    import("inner", disk);
    assert_eq!(fs::read(&file).unwrap(), vec![7; 1 << 20]);
}

#[test]
fn what_left_its_place_with_open_files_comes_back_as_it_is() {
    let Some((running, _)) = start() else { return };
    create(&running, "tank/a", &[("exec", "off")]);
    let path = running.altroot().join("tank/a/file");
    let mut file = File::create(&path).unwrap();
    let device = fs::metadata(&path).unwrap().dev();
    unmount_lazily(path.parent().unwrap());
    file.write_all(b"before").unwrap();
    assert_eq!(at(&running, "tank/a"), None);
    mount_one(&running, "tank/a", None);
    file.write_all(b" and after").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"before and after");
    assert_eq!(fs::metadata(&path).unwrap().dev(), device, "the same session");
    assert!(in_table(path.parent().unwrap()).1.contains("noexec"));
    drop(file);
    judge(&running);
}
