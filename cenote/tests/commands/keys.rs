//! `zfs load-key`, `zfs unload-key` on the golden encrypted pool, whose key locations are files of the
//! machine that made it; and encrypted datasets that are created here.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::created::{assert_judged_good, disks};
use crate::session::Session;

#[test]
fn keys_are_checked_loaded_and_unloaded() {
    let Some(golden) = testkit::golden::pool("crypt") else { return };
    let session = Session::start();
    session.import(&golden.dir, "crypt");
    let key = |file: &str| std::fs::read(golden.expect(file)).unwrap();
    let load = |options: &[&str], input: &[u8]| {
        let arguments = [&["zfs", "load-key", "-L", "prompt"], options].concat();
        let ended = session.run_with(&arguments, input);
        (ended.code, ended.out, ended.err)
    };
    let said = |code: i32, out: &str, err: &str| (code, out.to_owned(), err.to_owned());
    let status = |name: &str| session.print(&["zfs", "get", "-Ho", "value", "keystatus", name]);

    let wrong = "Key load error: Incorrect key provided for 'crypt/gcm'.\n";
    assert_eq!(load(&["crypt/gcm"], b"not the passphrase\n"), said(1, "", wrong));
    let verified = "1 / 1 key(s) successfully verified\n";
    assert_eq!(load(&["-n", "crypt/gcm"], &key("pass")), said(0, verified, ""));
    assert_eq!(status("crypt/gcm"), "unavailable\n");
    assert_eq!(load(&["crypt/gcm"], &key("pass")), said(0, "", ""));
    assert_eq!(status("crypt/gcm/child"), "available\n");
    let again = "Key load error: Key already loaded for 'crypt/gcm'.\n";
    assert_eq!(load(&["crypt/gcm"], &key("pass")), said(1, "", again));
    let child = "Key load error: Keys must be loaded for encryption root of 'crypt/gcm/child' (crypt/gcm).\n";
    assert_eq!(load(&["crypt/gcm/child"], b""), said(1, "", child));
    assert_eq!(load(&["crypt"], b""), said(1, "", "Key load error: 'crypt' is not encrypted.\n"));
    assert_eq!(load(&["crypt/ccm"], &key("rawkey")), said(0, "", ""));

    let location = format!("file://{}", golden.expect("hex").display());
    session.print(&["zfs", "load-key", "-L", &location, "crypt/vol"]);
    assert_eq!(session.print(&["zfs", "unload-key", "-r", "crypt"]), "3 / 3 key(s) successfully unloaded\n");
    let ended = session.run(&["zfs", "unload-key", "crypt/vol"]);
    let message = "Key unload error: Key already unloaded for 'crypt/vol'.\n";
    assert_eq!((ended.code, ended.err.as_str()), (1, message));
}

/// What a command with something on its standard input says on standard error, and whether it failed.
fn refused(session: &Session, arguments: &[&str], input: &[u8]) -> String {
    let ended = session.run_with(arguments, input);
    assert_ne!(ended.code, 0, "{arguments:?}: {}", ended.err);
    ended.err
}

fn done(session: &Session, arguments: &[&str], input: &[u8]) {
    let ended = session.run_with(arguments, input);
    assert_eq!((ended.code, &*ended.err), (0, ""), "{arguments:?}");
}

/// The test cases of OpenZFS's `zfs_create_encrypted`, `zfs_change-key*` and `zpool_create_encrypted`, and of
/// keys that cannot be one.
#[test]
fn encrypted_datasets_are_created_and_their_keys_changed() {
    let session = Session::start();
    let (place, files) = disks(&session, "p", 1);
    let disk = files[0].as_str();
    let secret = b"planted passphrase\n";
    for options in [
        &["-O", "keylocation=prompt"][..],
        &["-O", "keyformat=passphrase"],
        &["-O", "encryption=off", "-O", "keyformat=passphrase"],
        &["-O", "encryption=on"],
        &["-O", "encryption=on", "-O", "keylocation=prompt"],
    ] {
        let line = [&["zpool", "create", "-O", "mountpoint=none"], options, &["tank", disk]].concat();
        refused(&session, &line, secret);
    }
    let line = ["zpool", "create", "-O", "mountpoint=none", "tank", disk];
    done(&session, &line, b"");
    let create = |options: &[&str], name: &str| -> Vec<String> {
        let line = [&["zfs", "create"], options, &[name]].concat();
        line.into_iter().map(str::to_owned).collect()
    };
    let fails = |options: &[&str], name: &str, input: &[u8]| {
        let line = create(options, name);
        refused(&session, &line.iter().map(String::as_str).collect::<Vec<_>>(), input)
    };
    let makes = |options: &[&str], name: &str, input: &[u8]| {
        let line = create(options, name);
        done(&session, &line.iter().map(String::as_str).collect::<Vec<_>>(), input);
    };
    let on = ["-o", "encryption=on"];
    let phrase = ["-o", "keyformat=passphrase", "-o", "pbkdf2iters=100000"];
    let must = "cannot create 'tank/x': Encryption must be turned on to set encryption properties.\n";
    assert_eq!(fails(&phrase, "tank/x", secret), must);
    assert_eq!(fails(&["-o", "keylocation=prompt"], "tank/x", secret), must);
    let format = "cannot create 'tank/x': Keyformat required for new encryption root.\n";
    assert_eq!(fails(&on, "tank/x", secret), format);
    let both = [on, [phrase[0], phrase[1]], [phrase[2], phrase[3]]].concat();
    for (input, why) in [
        (&b"seven77\n"[..], "Passphrase too short (min 8)."),
        (&[b'a'; 513][..], "Passphrase too long (max 512)."),
    ] {
        assert_eq!(fails(&both, "tank/x", input), format!("cannot create 'tank/x': {why}\n"));
    }
    let few = ["-o", "encryption=on", "-o", "keyformat=passphrase", "-o", "pbkdf2iters=99999"];
    assert!(fails(&few, "tank/x", secret).contains("minimum pbkdf2 iterations is 100000"));
    let hex = ["-o", "encryption=on", "-o", "keyformat=hex"];
    assert!(fails(&hex, "tank/x", b"0123\n").contains("Hex key too short (expected 64)."));
    let raw = ["-o", "encryption=on", "-o", "keyformat=raw"];
    assert!(fails(&raw, "tank/x", &[1; 33]).contains("Raw key too long (expected 32)."));

    makes(&both, "tank/e", secret);
    makes(&[], "tank/e/c1", b"");
    makes(&["-o", "encryption=off"], "tank/e/c2", b"");
    makes(&["-o", "encryption=aes-128-ccm"], "tank/e/c3", b"");
    assert!(
        fails(&["-o", "encryption=off", "-o", "keylocation=prompt"], "tank/e/x", secret)
            .contains("turned on")
    );
    let key_file = session.directory().join("rawkey");
    std::fs::write(&key_file, [9; 32]).unwrap();
    let location = format!("keylocation=file://{}", key_file.display());
    makes(&["-o", "keyformat=raw", "-o", &location, "-s", "-V", "16M"], "tank/e/vol", b"");
    let value = |property: &str, name: &str| session.print(&["zfs", "get", "-Hpo", "value", property, name]);
    for (property, name, expected) in [
        ("encryption", "tank/e", "aes-256-gcm"),
        ("encryption", "tank/e/c2", "off"),
        ("encryption", "tank/e/c3", "aes-128-ccm"),
        ("encryptionroot", "tank/e/c3", "tank/e"),
        ("encryptionroot", "tank/e/vol", "tank/e/vol"),
        ("keyformat", "tank/e/c1", "passphrase"),
        ("keylocation", "tank/e", "prompt"),
        ("keylocation", "tank/e/c1", "none"),
        ("pbkdf2iters", "tank/e", "100000"),
        ("keystatus", "tank/e/c1", "available"),
        ("keystatus", "tank/e/c2", "-"),
    ] {
        assert_eq!(value(property, name), format!("{expected}\n"), "{property} of {name}");
    }

    // Another passphrase, another format, another root, and back.
    done(&session, &["zfs", "change-key", "tank/e"], b"another passphrase\n");
    done(&session, &["zfs", "unload-key", "tank/e"], b"");
    assert_eq!(value("keystatus", "tank/e/c3"), "unavailable\n");
    let wrong = refused(&session, &["zfs", "load-key", "tank/e"], secret);
    assert_eq!(wrong, "Key load error: Incorrect key provided for 'tank/e'.\n");
    let locked = refused(&session, &["zfs", "change-key", "tank/e"], secret);
    assert_eq!(locked, "Key change error: Key must be loaded.\n");
    done(&session, &["zfs", "load-key", "tank/e"], b"another passphrase\nand a second line\n");
    let no_format = refused(&session, &["zfs", "change-key", "tank/e/c1"], secret);
    assert_eq!(no_format, "Key change error: Keyformat required for new encryption root.\n");
    done(&session, &["zfs", "change-key", "-o", "keyformat=hex", "tank/e/c1"], &[b'a'; 64]);
    assert_eq!(value("encryptionroot", "tank/e/c1"), "tank/e/c1\n");
    done(&session, &["zfs", "change-key", "-i", "-o", "user:prop=value", "tank/e/c1"], b"");
    assert_eq!(value("encryptionroot", "tank/e/c1"), "tank/e\n");
    assert_eq!(value("user:prop", "tank/e/c1"), "value\n");
    let fixed = refused(&session, &["zfs", "change-key", "-i", "-o", "keyformat=raw", "tank/e"], b"");
    assert_eq!(fixed, "Key change error: Only user properties may be set with 'zfs change-key -i'\n");
    let plain = refused(&session, &["zfs", "change-key", "tank"], secret);
    assert_eq!(plain, "Key change error: Dataset not encrypted.\n");
    done(&session, &["zfs", "unload-key", "tank/e/vol"], b"");
    std::fs::write(&key_file, [8; 32]).unwrap();
    let wrong = refused(&session, &["zfs", "load-key", "tank/e/vol"], b"");
    assert_eq!(wrong, "Key load error: Incorrect key provided for 'tank/e/vol'.\n");
    std::fs::write(&key_file, [9; 32]).unwrap();
    done(&session, &["zfs", "change-key", "-l", "tank/e/vol"], b"");

    // Destroyed with keys unloaded; nothing secret was noted anywhere.
    session.print(&["zfs", "unload-key", "-r", "tank"]);
    done(&session, &["zfs", "destroy", "-r", "tank/e"], b"");
    let history = session.print(&["zpool", "history", "-il", "tank"]);
    assert!(history.contains("zfs create") && history.contains("zfs change-key"), "{history}");
    for text in ["planted", "another passphrase", "aaaaaaaa"] {
        assert!(!history.contains(text), "{text} in {history}");
    }
    session.print(&["zpool", "export", "tank"]);
    assert_judged_good(&place, "tank");
}

/// Answers one request with a key, or with what it is given.
fn answer(listener: &TcpListener, answer: &[u8]) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        let read = stream.read(&mut part).unwrap();
        assert_ne!(read, 0);
        request.extend_from_slice(&part[..read]);
    }
    stream.write_all(answer).unwrap();
}

fn with_key(key: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", key.len()).as_bytes(), key].concat()
}

#[test]
fn keys_come_from_a_server_that_holds_nothing_up() {
    let session = Session::start();
    let (_place, files) = disks(&session, "p", 1);
    let line = ["zpool", "create", "-O", "mountpoint=none", "tank", &files[0]];
    done(&session, &line, b"");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/tank/e", listener.local_addr().unwrap());
    let location = format!("keylocation={address}");
    let create = ["zfs", "create", "-o", "encryption=on", "-o", "keyformat=raw", "-o", &location, "tank/e"];
    std::thread::scope(|scope| {
        scope.spawn(|| answer(&listener, &with_key(&[7; 32])));
        done(&session, &create, b"");
    });
    done(&session, &["zfs", "unload-key", "tank/e"], b"");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            answer(&listener, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
            answer(&listener, &with_key(&[8; 32]));
            answer(&listener, &with_key(&[7; 32]));
        });
        let missing = refused(&session, &["zfs", "load-key", "tank/e"], b"");
        assert_eq!(missing, format!("Key load error: Couldn't GET {address}: 404 Not Found\n"));
        let wrong = refused(&session, &["zfs", "load-key", "-a"], b"");
        assert!(wrong.contains("Incorrect key provided for 'tank/e'."), "{wrong}");
        done(&session, &["zfs", "load-key", "tank/e"], b"");
    });
    done(&session, &["zfs", "unload-key", "tank/e"], b"");
    std::thread::scope(|scope| {
        let load = scope.spawn(|| refused(&session, &["zfs", "load-key", "tank/e"], b""));
        let (silent, _) = listener.accept().unwrap();
        // The pool is changed meanwhile, and exported if asked.
        done(&session, &["zfs", "create", "tank/other"], b"");
        done(&session, &["zfs", "set", "compression=off", "tank/e"], b"");
        assert!(!load.is_finished());
        drop(silent);
        let error = load.join().unwrap();
        assert!(error.contains(&address), "{error}");
    });
    let both = refused(&session, &["zfs", "load-key", "-L", "https://me:word@localhost/", "tank/e"], b"");
    assert!(both.contains("name or password"), "{both}");
}

#[test]
fn volumes_whose_key_is_not_loaded_are_listed_as_such() {
    let session = Session::start();
    let (_place, files) = disks(&session, "p", 1);
    done(&session, &["zpool", "create", "-O", "mountpoint=none", "tank", &files[0]], b"");
    let key = session.directory().join("rawkey");
    std::fs::write(&key, [9; 32]).unwrap();
    let location = format!("keylocation=file://{}", key.display());
    let options = ["-o", "encryption=on", "-o", "keyformat=raw", "-o", &location, "-s", "-V", "16M"];
    done(&session, &[&["zfs", "create"], &options[..], &["tank/vol"]].concat(), b"");
    let shares = || session.print(&["shares", "tank/vol"]);
    assert!(!shares().contains("not loaded"), "{}", shares());
    done(&session, &["zfs", "unload-key", "tank/vol"], b"");
    assert!(shares().contains("its encryption key is not loaded"), "{}", shares());
    done(&session, &["zfs", "load-key", "tank/vol"], b"");
    assert!(!shares().contains("not loaded"), "{}", shares());
}
