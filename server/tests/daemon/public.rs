//! The socket that anyone may ask.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use device::block_on;
use server::api::{AllowPermissions, Grantees, TakeSnapshots};
use server::public::{self, PublicSocket};
use server::socket;
use tokio::sync::oneshot;

use crate::feed::Follower;
use crate::harness::Running;
use crate::volumes::new_volume;

/// A user who is not root.
const ANOTHER: libc::uid_t = 12345;

/// Does `work` as another user, which root can. Credentials are a thread's own.
fn as_another<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let as_user = move || {
            // SAFETY: numbers are all that this needs.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, ANOTHER, ANOTHER, ANOTHER) }, 0);
            work()
        };
        scope.spawn(as_user).join().unwrap()
    })
}

fn ask(path: &Path, action: &str, body: &str) -> (u16, serde_json::Value) {
    let mut stream = UnixStream::connect(path).unwrap();
    let head = format!(
        "POST /v1/{action} HTTP/1.1\r\nHost: cenote\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses a body need not read it.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn another_user_sees_pools_and_changes_only_what_was_allowed() {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let running = Running::start();
    new_volume(&running);
    std::fs::set_permissions(running.place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = running.place.path().join("read.sock");
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (daemon, at) = (Arc::clone(&running.daemon), path.clone());
    let serving = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = PublicSocket::bind(&at).await.unwrap();
            ready.send(()).unwrap();
            public::serve(socket, daemon, async move { drop(stopped.await) }).await.unwrap();
        });
    });
    is_ready.recv().unwrap();
    let of_volume = r#"{"names": ["tank/vol@theirs"]}"#;
    as_another(|| assert_eq!(ask(&path, "snapshot-create", of_volume).0, 422));
    let allow = AllowPermissions {
        dataset: "tank/vol".into(),
        to: Grantees::Users(vec![ANOTHER.to_string()]),
        permissions: vec!["snapshot".into()],
        ..AllowPermissions::default()
    };
    running.daemon.ask(&allow).unwrap();
    as_another(|| assert_eq!(ask(&path, "snapshot-create", of_volume).0, 200));
    let nbd = running.place.path().join("nbd.sock");
    let (as_root, asked) = std::sync::mpsc::channel();
    let daemon = Arc::clone(&running.daemon);
    let taking = thread::spawn(move || {
        asked.recv().unwrap();
        let names = vec!["tank/vol@seen".to_owned()];
        block_on(daemon.take_snapshots(TakeSnapshots { names, ..TakeSnapshots::default() })).unwrap();
    });
    as_another(move || {
        assert!(UnixStream::connect(&nbd).is_err(), "volumes are not for anyone");
        let (status, pools) = ask(&path, "pool-list", r#"{"properties": ["size", "health"]}"#);
        assert_eq!((status, &pools["entries"][0]["name"]), (200, &"tank".into()));
        let (status, datasets) = ask(
            &path,
            "dataset-list",
            r#"{"names": [], "depth": null, "kinds": [], "properties": ["used"]}"#,
        );
        assert_eq!((status, datasets["entries"].as_array().map(Vec::len)), (200, Some(3)), "{datasets}");
        assert_eq!(ask(&path, "pool-status", r#"{"pools": [], "files": true, "dedup": false}"#).0, 200);
        for (action, body) in [
            ("pool-destroy", r#"{"pool": "tank", "force": true, "command": null}"#),
            ("pool-history", r#"{"pools": ["tank"]}"#),
            ("pool-view", r#"{"pool": "tank"}"#),
            ("shutdown", "{}"),
        ] {
            let (status, refused) = ask(&path, action, body);
            assert_eq!(status, 422, "{action}");
            assert!(refused["message"].as_str().unwrap().contains("permission denied"), "{refused}");
        }
        assert_eq!(ask(&path, "pool-list", &" ".repeat(128 << 10)).0, 413);
        // The feed has what all may see, and no events.
        let mut follower = Follower::begin(&path, None);
        assert_eq!(follower.next().unwrap().0, "snapshot");
        as_root.send(()).unwrap();
        let until_created = std::iter::from_fn(|| follower.next())
            .find(|(name, data)| name == "event" || name == "change" && data["kind"] == "created");
        assert_eq!(until_created.unwrap().1["name"], "tank/vol@seen");
        // The client trusts it, for it is root's.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { socket::connect(&path).await.unwrap() });
    });
    taking.join().unwrap();
    assert_eq!(running.daemon.open_pools().len(), 1);
    stop.send(()).unwrap();
    serving.join().unwrap();
}
