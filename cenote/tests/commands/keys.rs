//! `zfs load-key`, `zfs unload-key` on the golden encrypted pool. Its key locations are files of the machine
//! that made it.

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
