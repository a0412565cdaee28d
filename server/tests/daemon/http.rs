//! The API as it travels: HTTP on a Unix socket.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use server::daemon::Daemon;
use server::http::{self, ApiSocket};
use tempfile::TempDir;

/// An API server of the test's own. It ends with a request to shut down.
struct Served {
    place: TempDir,
    thread: JoinHandle<()>,
}

impl Served {
    fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("private/api.sock");
        // What a daemon that died left behind.
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let socket = ApiSocket::bind(&path).await.unwrap();
                assert!(ApiSocket::bind(&path).await.is_err(), "another daemon answers there");
                ready.send(()).unwrap();
                let daemon = Arc::new(Daemon::default());
                let stopping = Arc::clone(&daemon);
                http::serve(socket, daemon, async move { stopping.stopped().await }).await.unwrap();
            });
        });
        is_ready.recv().unwrap();
        Self { place, thread }
    }

    fn socket(&self) -> PathBuf {
        self.place.path().join("private/api.sock")
    }

    /// Sends a request; the status and the body of the answer.
    fn ask(&self, action: &str, body: &[u8]) -> (u16, serde_json::Value) {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let head = format!(
            "POST /v1/{action} HTTP/1.1\r\nHost: cenote\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses a body need not read it.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
    }
}

#[test]
fn requests_are_answered_until_the_daemon_is_shut_down() {
    let served = Served::start();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&served.socket()), 0o600);
    let (status, hello) = served.ask("hello", b"{}");
    assert_eq!((status, &hello["pid"]), (200, &std::process::id().into()));
    let (status, error) = served.ask("pool-export", br#"{"pools": ["none"]}"#);
    assert_eq!((status, error["kind"].as_str()), (404, Some("not-found")));
    assert_eq!(served.ask("hello", b"{").0, 400);
    assert_eq!(served.ask("no-such-action", b"{}").0, 404);
    assert_eq!(served.ask("hello", &vec![b' '; 2 << 20]).0, 413);
    assert_eq!(served.ask("shutdown", b"{}").0, 200);
    let socket = served.socket();
    served.thread.join().unwrap();
    assert!(!socket.exists());
}

#[test]
fn a_request_that_hangs_holds_up_no_other() {
    let served = Served::start();
    // Opening a file under a lease waits until the lease is given back; its holder is told by a signal
    // that would end it.
    let path = served.place.path().join("disk");
    let leased = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    leased.set_len(64 << 20).unwrap();
    // SAFETY: no handler is installed, and the descriptor is open.
    let lease = unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        libc::fcntl(leased.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
    };
    assert_eq!(lease, 0, "{}", std::io::Error::last_os_error());
    let body = serde_json::json!({ "search": [path] }).to_string();
    thread::scope(|scope| {
        let hanging = scope.spawn(|| served.ask("pool-discover", body.as_bytes()).0);
        for _ in 0..32 {
            assert_eq!(served.ask("hello", b"{}").0, 200);
        }
        assert!(!hanging.is_finished());
        drop(leased);
        assert_eq!(hanging.join().unwrap(), 200);
    });
    assert_eq!(served.ask("shutdown", b"{}").0, 200);
    served.thread.join().unwrap();
}
