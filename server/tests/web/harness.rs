//! A daemon with a dashboard, and a client that speaks HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use server::api::{
    Action, AuditEntry, DashboardLink, DashboardRole, GetAudit, GetDashboardLink, SetDashboardUser,
};
use server::audit::AuditLog;
use server::caller::Caller;
use server::daemon::{Daemon, dispatch_for};
use server::web::{self, Dashboard, Options};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// How long an answer may take that must come.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A password that is long enough.
pub const PASSWORD: &str = "correct horse battery";

/// A daemon of the test's own, with its dashboard.
pub struct Served {
    pub daemon: Arc<Daemon>,
    pub place: TempDir,
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// One that listens on this machine.
    pub fn start() -> Self {
        Self::start_with("127.0.0.1:0", |options| options)
    }

    /// One with other options.
    pub fn start_with(listen: &str, options: impl FnOnce(Options) -> Options) -> Self {
        let place = tempfile::tempdir().unwrap();
        let given = Options {
            listen: vec![listen.parse().unwrap()],
            folder: Some(place.path().to_owned()),
            ..Options::default()
        };
        Self::start_in(place, options(given)).0
    }

    /// One that listens nowhere yet, or where the options say.
    pub fn start_in(place: TempDir, options: Options) -> (Self, Vec<SocketAddr>) {
        let log = AuditLog::new(place.path().join("audit.log"));
        let daemon = Daemon::with_cache(64 << 20).auditing(Some(log));
        let daemon = Arc::new(daemon.keeping(Some(place.path().join("zpool.cache"))));
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let serving = Arc::clone(&daemon);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let dashboard = Dashboard::bind(options).await;
                let addresses = dashboard.addresses();
                let serve = web::serve(dashboard, serving, async move { drop(stopped.await) });
                let mut serve = std::pin::pin!(serve);
                // Its first step tells the daemon of it.
                tokio::select! { biased; ended = &mut serve => panic!("{ended:?}"), () = async {} => {} }
                ready.send(addresses).unwrap();
                serve.await.unwrap();
            });
        });
        let addresses = is_ready.recv().unwrap();
        let address = addresses.first().copied().unwrap_or_else(|| "127.0.0.1:1".parse().unwrap());
        (Self { daemon, place, address, stop: Some(stop), thread: Some(thread) }, addresses)
    }

    /// Asks as root does by the socket.
    pub fn as_root<A: Action>(&self, request: &A) -> Result<A::Reply, server::api::ApiError> {
        let body = serde_json::to_vec(request).unwrap();
        let reply = dispatch_for(&self.daemon, &Caller::own(), A::NAME, &body)?;
        Ok(serde_json::from_slice(&reply).unwrap())
    }

    /// Makes a user.
    pub fn user(&self, name: &str, role: DashboardRole) {
        let password = Some(PASSWORD.to_owned().into());
        self.as_root(&SetDashboardUser { name: name.into(), role: Some(role), password }).unwrap();
    }

    /// A link, and the secret in it.
    pub fn link(&self) -> (DashboardLink, String) {
        let link = self.as_root(&GetDashboardLink::default()).unwrap();
        let secret = link.url.split_once("#sign-in=").unwrap().1.to_owned();
        (link, secret)
    }

    /// The audit log.
    pub fn audit(&self) -> Vec<AuditEntry> {
        self.as_root(&GetAudit { count: 1000 }).unwrap()
    }

    /// A browser of a user who has signed in with a link.
    pub fn admin(&self) -> Browser {
        let mut browser = Browser::new(self.address);
        let (_, secret) = self.link();
        let answer = browser.sign_in(&json!({ "link": secret }));
        assert_eq!(answer.status, 200, "{answer:?}");
        browser
    }

    /// A browser of a user who has signed in with its password.
    pub fn browser_of(&self, name: &str, role: DashboardRole) -> Browser {
        self.user(name, role);
        let mut browser = Browser::new(self.address);
        let answer = browser.sign_in(&json!({ "user": name, "password": PASSWORD }));
        assert_eq!(answer.status, 200, "{answer:?}");
        browser
    }

    /// A file beside the cache file.
    pub fn file(&self, name: &str) -> std::path::PathBuf {
        Path::new(self.place.path()).join(name)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// Takes what came apart.
    pub fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// What an error says.
    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// Sends what is given, and reads all that comes.
pub fn exchange(stream: &mut (impl Read + Write), request: &[u8]) -> Answer {
    // A server that refuses a request need not read it.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    Answer::parse(&bytes)
}

/// A client with the cookie and the token of a session, if it has one.
#[derive(Debug, Clone)]
pub struct Browser {
    pub address: SocketAddr,
    pub host: String,
    pub cookie: Option<String>,
    pub csrf: Option<String>,
}

impl Browser {
    /// One that has not signed in.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, host: address.to_string(), cookie: None, csrf: None }
    }

    /// The bytes of a request.
    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.host);
        if let Some(cookie) = &self.cookie {
            head += &format!("Cookie: other=1; {cookie}\r\n");
        }
        if let Some(csrf) = &self.csrf {
            head += &format!("x-cenote-csrf: {csrf}\r\n");
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    /// Sends a request.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        exchange(&mut stream, &self.request(method, path, headers, body))
    }

    /// Gets a path.
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    /// Asks for an action.
    pub fn act(&self, action: &str, body: &Value) -> Answer {
        let body = serde_json::to_vec(body).unwrap();
        self.send("POST", &format!("/v1/{action}"), &[("Content-Type", "application/json")], &body)
    }

    /// Signs in, and keeps what comes of it.
    pub fn sign_in(&mut self, body: &Value) -> Answer {
        let body = serde_json::to_vec(body).unwrap();
        let answer = self.send("POST", "/sign-in", &[("Content-Type", "application/json")], &body);
        if let Some(cookie) = answer.header("set-cookie") {
            self.cookie = Some(cookie.split(';').next().unwrap().to_owned());
            self.csrf = answer.json()["csrf"].as_str().map(str::to_owned);
        }
        answer
    }
}
