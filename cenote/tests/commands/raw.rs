//! `zfs receive` of raw streams, and of plain ones into encrypted datasets: encryption roots, keys, what may
//! be given on the command line. Test cases of OpenZFS: `zfs_receive_raw`, `zfs_receive_raw_-d`,
//! `zfs_receive_raw_incremental`, `zfs_receive_from_encrypted`, `zfs_receive_to_encrypted`,
//! `zfs_receive_encrypted_keylocation`, `send_encrypted_hierarchy`, `send_mixed_raw`.

use crate::created::{assert_judged_good, disks};
use crate::session::{Ended, Session};

const SECRET: &[u8] = b"a passphrase of the sender\n";
const OTHER: &[u8] = b"another passphrase\n";

fn ended(session: &Session, line: &str, input: &[u8]) -> Ended {
    session.run_with(&line.split(' ').collect::<Vec<_>>(), input)
}

fn done(session: &Session, line: &str, input: &[u8]) {
    let ended = ended(session, line, input);
    assert_eq!((ended.code, &*ended.err), (0, ""), "{line}");
}

fn refused(session: &Session, line: &str, input: &[u8], why: &str) {
    let ended = ended(session, line, input);
    assert!(ended.code != 0 && ended.err.contains(why), "{line}: {} {}", ended.code, ended.err);
}

fn sent(session: &Session, line: &str) -> Vec<u8> {
    let arguments: Vec<&str> = line.split(' ').collect();
    let (bytes, ended) = session.run_bytes(&[&["zfs", "send"], &arguments[..]].concat());
    assert_eq!((ended.code, &*ended.err), (0, ""), "{line}");
    bytes
}

fn value(session: &Session, property: &str, name: &str) -> String {
    session.print(&["zfs", "get", "-Hpo", "value", property, name]).trim_end().to_owned()
}

fn created(session: &Session) -> std::path::PathBuf {
    let (place, files) = disks(session, "p", 1);
    done(session, &format!("zpool create -O mountpoint=none tank {}", files[0]), b"");
    place
}

fn end(session: &Session, place: &std::path::Path) {
    session.print(&["zpool", "export", "tank"]);
    assert_judged_good(place, "tank");
}

/// The encryption roots of a tree are those of the sender after `-R -w`, and stay so.
#[test]
fn a_raw_replication_has_the_encryption_roots_of_its_sender() {
    let session = Session::start();
    let place = created(&session);
    let root = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";
    done(&session, &format!("zfs create {root} tank/s"), SECRET);
    for line in [
        "zfs create tank/s/a",
        "zfs create tank/s/a/b",
        "zfs create -s -V 8M tank/s/vol",
        "zfs create -o encryption=off tank/s/plain",
    ] {
        done(&session, line, b"");
    }
    done(&session, &format!("zfs create {root} tank/s/own"), OTHER);
    done(&session, "zfs create tank/s/own/below", b"");
    done(&session, "zfs snapshot -r tank/s@1", b"");
    done(&session, "zfs clone tank/s/a@1 tank/s/clone", b"");
    done(&session, "zfs snapshot tank/s/clone@1", b"");
    let stream = sent(&session, "-Rw tank/s@1");
    // Nothing is asked of keys.
    done(&session, "zfs receive tank/r", &stream);
    let roots = |top: &str| -> Vec<String> {
        let names = ["", "/a", "/a/b", "/vol", "/plain", "/own", "/own/below", "/clone"];
        let of = |name: &&str| {
            let root = value(&session, "encryptionroot", &format!("{top}{name}"));
            format!(
                "{name} {} {}",
                root.replacen(top, "", 1),
                value(&session, "encryption", &format!("{top}{name}"))
            )
        };
        names.iter().map(of).collect()
    };
    assert_eq!(roots("tank/r"), roots("tank/s"));
    for (property, expected) in [("keystatus", "unavailable"), ("keylocation", "prompt"), ("mounted", "no")] {
        assert_eq!(value(&session, property, "tank/r"), expected, "{property}");
    }
    assert_eq!(value(&session, "keylocation", "tank/r/a"), "none");
    done(&session, "zfs load-key tank/r", SECRET);
    for name in ["/a/b", "/vol", "/clone"] {
        assert_eq!(value(&session, "keystatus", &format!("tank/r{name}")), "available", "{name}");
    }
    refused(&session, "zfs load-key tank/r/own", SECRET, "Incorrect key");
    done(&session, "zfs load-key tank/r/own", OTHER);
    // More datasets, another root, another key of the sender.
    done(&session, "zfs create tank/s/a/new", b"");
    done(&session, "zfs change-key tank/s/own", SECRET);
    done(&session, "zfs snapshot -r tank/s@2", b"");
    let more = sent(&session, "-Rw -I @1 tank/s@2");
    done(&session, "zfs receive -F tank/r", &more);
    assert_eq!(roots("tank/r"), roots("tank/s"));
    assert_eq!(value(&session, "encryptionroot", "tank/r/a/new"), "tank/r");
    assert_eq!(value(&session, "keystatus", "tank/r/a/new"), "available");
    done(&session, "zfs unload-key -a", b"");
    refused(&session, "zfs load-key tank/r/own", OTHER, "Incorrect key");
    done(&session, "zfs load-key tank/r/own", SECRET);
    done(&session, "zfs load-key tank/r", SECRET);
    // Below another root: the key of the copy becomes that of its parent.
    done(&session, &format!("zfs create {root} tank/other"), OTHER);
    done(&session, "zfs receive -d tank/other", &stream);
    assert_eq!(value(&session, "encryptionroot", "tank/other/s/a"), "tank/other/s");
    done(&session, "zfs load-key tank/other/s", SECRET);
    done(&session, "zfs change-key -i tank/other/s", b"");
    assert_eq!(value(&session, "encryptionroot", "tank/other/s/a/b"), "tank/other");
    // What comes is wrapped with another passphrase, and stays readable with that of its parent.
    done(&session, "zfs unload-key -a", b"");
    done(&session, "zfs load-key tank/other", OTHER);
    done(&session, "zfs load-key tank/s", SECRET);
    let one = sent(&session, "-w -i @1 tank/s/a/b@2");
    done(&session, "zfs receive -F tank/other/s/a/b", &one);
    done(&session, "zfs unload-key tank/other", b"");
    done(&session, "zfs load-key tank/other", OTHER);
    assert_eq!(value(&session, "keystatus", "tank/other/s/a/b"), "available");
    // Everything goes without keys.
    done(&session, "zfs unload-key -a", b"");
    for name in ["tank/r", "tank/other", "tank/s"] {
        done(&session, &format!("zfs destroy -R {name}"), b"");
    }
    end(&session, &place);
}

#[test]
fn what_may_be_given_with_raw_and_with_plain_streams() {
    let session = Session::start();
    let place = created(&session);
    let key = session.directory().join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    let location = format!("keylocation=file://{}", key.display());
    let root = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";
    done(&session, &format!("zfs create {root} tank/e"), SECRET);
    done(&session, "zfs create -o org:note=here tank/plain", b"");
    done(&session, "zfs snapshot tank/e@1", b"");
    done(&session, "zfs snapshot tank/plain@1", b"");
    let (raw, decrypted) = (sent(&session, "-w tank/e@1"), sent(&session, "tank/e@1"));
    let (plain, with_properties) = (sent(&session, "tank/plain@1"), sent(&session, "-p tank/plain@1"));
    // Raw: encryption comes with it.
    for options in ["-o encryption=off", "-o keyformat=hex", "-x encryption", "-o pbkdf2iters=200000"] {
        let line = format!("zfs receive {options} tank/r");
        refused(&session, &line, &raw, "cannot be set or excluded for raw streams");
    }
    done(&session, &format!("zfs receive -o {location} tank/r"), &raw);
    assert_eq!(value(&session, "keylocation", "tank/r"), format!("file://{}", key.display()));
    done(&session, "zfs destroy -r tank/r", b"");
    // Plain: as its place is.
    done(&session, "zfs receive tank/out", &decrypted);
    assert_eq!(value(&session, "encryption", "tank/out"), "off");
    done(&session, "zfs receive tank/e/in", &plain);
    assert_eq!(value(&session, "encryptionroot", "tank/e/in"), "tank/e");
    done(&session, "zfs receive tank/e/off", &with_properties);
    assert_eq!(value(&session, "encryption", "tank/e/off"), "off");
    assert_eq!(value(&session, "org:note", "tank/e/off"), "here");
    done(&session, "zfs receive -x encryption tank/e/as", &with_properties);
    assert_eq!(value(&session, "encryptionroot", "tank/e/as"), "tank/e");
    done(&session, "zfs receive -o encryption=off tank/e/no", &plain);
    assert_eq!(value(&session, "encryption", "tank/e/no"), "off");
    let own = format!("-o encryption=aes-128-ccm -o keyformat=raw -o {location}");
    done(&session, &format!("zfs receive {own} tank/own"), &plain);
    assert_eq!(value(&session, "encryption", "tank/own"), "aes-128-ccm");
    assert_eq!(value(&session, "keylocation", "tank/own"), format!("file://{}", key.display()));
    refused(&session, "zfs receive -o encryption=on tank/x", &plain, "Keyformat required");
    let line = format!("zfs receive -o keyformat=raw -o {location} tank/x");
    refused(&session, &line, &plain, "turned on");
    let asked = "zfs receive -o encryption=on -o keyformat=passphrase tank/x";
    refused(&session, asked, &plain, "keylocation");
    // What goes on.
    session.print(&["zfs", "set", "org:more=1", "tank/plain"]);
    done(&session, "zfs snapshot tank/plain@2", b"");
    let more = sent(&session, "-i @1 tank/plain@2");
    refused(
        &session,
        "zfs receive -o encryption=off tank/e/in",
        &more,
        "cannot be set for incremental streams",
    );
    done(&session, "zfs receive tank/e/in", &more);
    done(&session, "zfs unload-key tank/own", b"");
    refused(&session, "zfs receive tank/own", &more, "inherited key must be loaded");
    done(&session, "zfs load-key tank/own", b"");
    done(&session, "zfs receive tank/own", &more);
    // Nothing encrypted is overwritten, and nothing by what is encrypted.
    let why = "cannot be used to destroy an encrypted filesystem or overwrite an unencrypted one";
    done(&session, "zfs create tank/empty", b"");
    refused(&session, "zfs receive -F tank/empty", &raw, why);
    done(&session, "zfs create tank/e/empty", b"");
    refused(&session, "zfs receive -F tank/e/empty", &decrypted, why);
    refused(&session, "zfs receive tank/out", &sent(&session, "-w -i @1 tank/own@2"), "does not match");
    end(&session, &place);
}
