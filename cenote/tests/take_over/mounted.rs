//! Mounted filesystems (`CENOTE_SKIP=fuse` leaves these tests out).

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::daemons::Place;

/// A pool whose filesystems are mounted below the place's directory. Only root can mount.
fn with_filesystems(name: &str) -> Option<Place> {
    if testkit::skipped("fuse", name) || !rustix::process::geteuid().is_root() {
        return None;
    }
    let place = Place::start(&[]);
    let disk = place.disk("disk", 512);
    let at = place.path().join("mounted");
    place.print(&["zpool", "create", "-m", at.to_str().unwrap(), "tank", &disk]);
    place.print(&["zfs", "create", "tank/inner"]);
    Some(place)
}

/// Makes, writes, reads, renames and removes a file.
fn work(at: &Path, turn: usize) -> std::io::Result<()> {
    let (path, renamed) = (at.join(format!("file{turn}")), at.join(format!("renamed{turn}")));
    let content = vec![turn as u8; 20_000];
    fs::write(&path, &content)?;
    fs::rename(&path, &renamed)?;
    assert!(fs::read(&renamed)? == content, "{turn}");
    assert!(fs::read_dir(at)?.count() > 0);
    fs::remove_file(&renamed)
}

#[test]
fn programs_in_a_mounted_filesystem_see_a_pause() {
    let Some(mut place) = with_filesystems("programs_in_a_mounted_filesystem_see_a_pause") else { return };
    let root = place.path().join("mounted");
    let inner = root.join("inner");
    fs::write(inner.join("kept"), b"kept").unwrap();
    place.print(&["zfs", "snapshot", "tank/inner@then"]);
    let mut options = OpenOptions::new();
    let mut open =
        options.read(true).write(true).create(true).truncate(true).open(inner.join("open")).unwrap();
    open.write_all(b"before ").unwrap();
    let in_snapshot = File::open(inner.join(".zfs/snapshot/then/kept")).unwrap();
    let device = fs::metadata(&inner).unwrap().dev();
    let (is_over, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for at in [&root, &inner] {
            let (is_over, turns) = (&is_over, &turns);
            scope.spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    work(at, turns.fetch_add(1, Ordering::Relaxed)).unwrap();
                }
            });
        }
        for time in 1..=3 {
            let before = turns.load(Ordering::Relaxed);
            let took = place.replace();
            eprintln!("take-over {time}: {} ms from the start of the process", took.as_millis());
            crate::daemons::until("the programs do not go on", || {
                turns.load(Ordering::Relaxed) > before + 10
            });
        }
        is_over.store(true, Ordering::Release);
    });
    open.write_all(b"after").unwrap();
    let mut content = String::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_string(&mut content).unwrap();
    assert_eq!(content, "before after");
    let mut kept = [0; 4];
    in_snapshot.read_exact_at(&mut kept, 0).unwrap();
    assert_eq!(&kept, b"kept");
    assert_eq!(fs::metadata(&inner).unwrap().dev(), device, "it was mounted anew");
    // A file that is removed while it is open by a handle of a daemon before.
    fs::remove_file(inner.join("open")).unwrap();
    open.seek(SeekFrom::Start(0)).unwrap();
    content.clear();
    open.read_to_string(&mut content).unwrap();
    assert_eq!(content, "before after");
    drop((open, in_snapshot));
    place.print(&["zpool", "export", "tank"]);
    assert!(!inner.exists());
}

#[test]
fn a_removed_file_that_is_open_is_in_the_way_and_nothing_happens() {
    let Some(mut place) = with_filesystems("a_removed_file_that_is_open_is_in_the_way_and_nothing_happens")
    else {
        return;
    };
    let at = place.path().join("mounted/inner");
    let mut open = OpenOptions::new();
    let mut open = open.read(true).write(true).create(true).truncate(true).open(at.join("open")).unwrap();
    open.write_all(b"content").unwrap();
    fs::remove_file(at.join("open")).unwrap();
    let why = crate::refusals::refused(place.successor());
    assert!(why.contains("cannot hand over 'tank/inner'") && why.contains("still open"), "{why}");
    let mut content = String::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
    work(&at, 1).unwrap();
    drop(open);
    place.replace();
    work(&at, 2).unwrap();
    place.print(&["zpool", "export", "tank"]);
}
