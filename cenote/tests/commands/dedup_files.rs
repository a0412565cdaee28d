//! `cenote dedup-files`: equal blocks of files on mounts, and of volumes, become shared; nothing else
//! changes, whatever writers do meanwhile. Needs `/dev/fuse`; `CENOTE_SKIP=fuse` leaves it out.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::session::Session;

const RECORD: usize = 16 << 10;

/// Blocks that do not compress, one for each number.
fn data(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let block = |number| {
        let mut random = fastrand::Rng::with_seed(number);
        (0..RECORD).map(|_| random.u8(..)).collect::<Vec<u8>>()
    };
    numbers.into_iter().flat_map(block).collect()
}

/// A pool with two filesystems, mounted below a folder that is returned.
fn mounted(session: &Session) -> PathBuf {
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    let root = session.directory().join("root");
    let (disk, at) = (disk.to_str().unwrap(), root.to_str().unwrap());
    session.print(&["zpool", "create", "-R", at, "-O", "recordsize=16K", "tank", disk]);
    for name in ["tank/a", "tank/b"] {
        session.print(&["zfs", "create", name]);
    }
    root.join("tank")
}

fn ask(session: &Session, arguments: &[&str]) -> serde_json::Value {
    let printed = session.print(&[&["dedup-files", "--json"], arguments].concat());
    serde_json::from_str(&printed).unwrap()
}

fn saved(session: &Session) -> u64 {
    session.print(&["zpool", "sync", "tank"]);
    session.print(&["zpool", "get", "-Hpo", "value", "bclonesaved", "tank"]).trim().parse().unwrap()
}

/// What of a file must not change.
fn seen(path: &Path) -> (Vec<u8>, u64, [(i64, i64); 2], u32) {
    let found = fs::metadata(path).unwrap();
    let times = [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())];
    (fs::read(path).unwrap(), found.len(), times, found.mode())
}

#[test]
fn equal_blocks_of_files_become_shared_and_nothing_else_changes() {
    if testkit::skipped("fuse", "dedup-files on mounts") {
        return;
    }
    let session = Session::start();
    let at = mounted(&session);
    let one = at.join("a/one");
    let two = at.join("b/deep/two");
    fs::create_dir(at.join("b/deep")).unwrap();
    fs::write(&one, data(0..40)).unwrap();
    // Half of it is the same, at other places; its end is not whole.
    let mut other = data((20..40).chain(100..120));
    other.truncate(other.len() - 5000);
    fs::write(&two, &other).unwrap();
    fs::write(at.join("a/small"), "small").unwrap();
    fs::hard_link(&one, at.join("a/again")).unwrap();
    let before = [seen(&one), seen(&two)];

    let paths = [at.join("a"), at.join("b")].map(|path| path.to_str().unwrap().to_owned());
    let paths = [&*paths[0], &*paths[1]];
    let told = ask(&session, &["--dry-run", paths[0], paths[1]]);
    assert_eq!(
        (&told["files"], &told["equal_blocks"], &told["shared_blocks"]),
        (&3.into(), &20.into(), &0.into())
    );
    assert_eq!(saved(&session), 0);

    let text = session.print(&["dedup-files", paths[0], paths[1]]);
    assert!(text.contains("looked at:      3 files") && text.contains("shared now:     20 blocks"), "{text}");
    assert!(text.contains("saved:          320K, once no snapshot"), "{text}");
    assert_eq!(saved(&session), 20 * RECORD as u64);
    assert!([seen(&one), seen(&two)] == before, "contents and times stay");

    let again = ask(&session, &paths);
    assert_eq!((&again["already_blocks"], &again["equal_blocks"]), (&20.into(), &0.into()), "{again}");

    // Each goes on alone.
    OpenOptions::new().write(true).open(&one).unwrap().write_all_at(&data([7]), 25 * RECORD as u64).unwrap();
    assert!(fs::read(&two).unwrap() == before[1].0);
    session.print(&["zpool", "export", "tank"]);
    let folder = session.directory().to_str().unwrap();
    session.print(&["zpool", "import", "-d", folder, "-R", at.parent().unwrap().to_str().unwrap(), "tank"]);
    assert!(fs::read(&two).unwrap() == before[1].0, "after an import");
    fs::remove_file(&two).unwrap();
    assert_eq!(saved(&session), 0);
    session.print(&["zpool", "export", "tank"]);
    let checked = session.run(&["zdb", "-bcc", "-e", "-p", folder, "tank"]);
    assert_eq!(checked.code, 0, "{} {}", checked.out, checked.err);
}

#[test]
fn a_file_that_is_written_meanwhile_keeps_what_was_written() {
    if testkit::skipped("fuse", "dedup-files on mounts") {
        return;
    }
    let session = Session::start();
    let at = mounted(&session);
    let (one, two) = (at.join("a/one"), at.join("a/two"));
    for path in [&one, &two] {
        fs::write(path, data((0..64).map(|number| number % 8))).unwrap();
    }
    let ends = AtomicBool::new(false);
    let (mut shared, mut rounds) = (0, 0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let files = [&one, &two].map(|path| OpenOptions::new().write(true).open(path).unwrap());
            let mut models = [&one, &two].map(|path| fs::read(path).unwrap());
            let mut random = fastrand::Rng::with_seed(5);
            while !ends.load(Ordering::Relaxed) {
                let (of, block) = (random.usize(..2), random.usize(..64));
                let bytes = data([random.u64(..8)]);
                files[of].write_all_at(&bytes, (block * RECORD) as u64).unwrap();
                models[of][block * RECORD..][..RECORD].copy_from_slice(&bytes);
            }
            models
        });
        while rounds < 8 || (shared == 0 && rounds < 100) {
            let told = ask(&session, &[at.join("a").to_str().unwrap()]);
            shared += told["shared_blocks"].as_u64().unwrap();
            rounds += 1;
        }
        ends.store(true, Ordering::Relaxed);
        let models = writer.join().unwrap();
        for (path, model) in [&one, &two].into_iter().zip(models) {
            assert!(fs::read(path).unwrap() == model, "{}", path.display());
        }
    });
    assert!(shared > 0, "something was shared beside the writer");
    session.print(&["zpool", "export", "tank"]);
    let folder = session.directory().to_str().unwrap();
    let checked = session.run(&["zdb", "-bcc", "-e", "-p", folder, "tank"]);
    assert_eq!(checked.code, 0, "{} {}", checked.out, checked.err);
}

#[test]
fn equal_blocks_of_volumes_become_shared() {
    let session = Session::start();
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    session.print(&["zpool", "create", "-m", "none", "tank", disk.to_str().unwrap()]);
    let source = session.directory().join("data");
    fs::write(&source, data(0..64)).unwrap();
    let uri = |name: &str| format!("nbd+unix:///{name}?socket={}", session.nbd_socket().display());
    let copy = |from: &str, to: &str| {
        let copied = Command::new("nbdcopy").args([from, to]).output();
        let copied = copied.expect("nbdcopy of the package libnbd-bin");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    };
    for name in ["tank/v", "tank/w"] {
        session.print(&["zfs", "create", "-V", "1M", "-o", "volblocksize=16K", name]);
        copy(source.to_str().unwrap(), &uri(name));
    }
    let told = ask(&session, &["tank/v", "tank/w"]);
    assert_eq!(
        (&told["volumes"], &told["blocks"], &told["shared_blocks"]),
        (&2.into(), &128.into(), &64.into())
    );
    assert_eq!(saved(&session), 64 * RECORD as u64);
    for name in ["tank/v", "tank/w"] {
        let back = session.directory().join("back");
        copy(&uri(name), back.to_str().unwrap());
        assert!(fs::read(back).unwrap() == data(0..64), "{name}");
    }
    session.print(&["zfs", "set", "readonly=on", "tank/w"]);
    let outside = session.directory().to_str().unwrap();
    for (path, why) in
        [("tank/no", "cannot look at 'tank/no'"), (outside, "not on a filesystem of an open pool")]
    {
        let ended = session.run(&["dedup-files", path]);
        assert!(ended.code == 1 && ended.err.contains(why), "{ended:?}");
    }
    session.print(&["zpool", "export", "tank"]);
}
