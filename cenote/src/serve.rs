//! `cenote serve`: the daemon in the foreground, until SIGINT, SIGTERM or a request to shut down.

#![allow(unsafe_code, reason = "the allocator gives memory back")]

mod notify;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use device::modelled::Link;
use device::simulated::Model;
use futures_util::FutureExt;
use server::audit::{self, AuditLog};
use server::caller::Roles;
use server::daemon::{Daemon, Endpoints, Importing};
use server::http::{self, ApiSocket};
use server::listening::HostPort;
use server::metrics::{self, MetricsSocket};
use server::public::{self, PublicSocket};
use server::runtime::Shards;
use server::socket::{self, SocketFile};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::parameters::Parameters;
use crate::serving::{ServeArguments, TcpArguments};

/// How long requests under way may take once the daemon is to stop.
const GRACE: Duration = Duration::from_secs(5);
/// How long the kernel may write then what it keeps of volumes that are its block devices.
const DEVICES_GRACE: Duration = Duration::from_secs(20);
/// How long the pools of the cache file may take before requests are answered. What is not open by then comes
/// later.
const IMPORT_LIMIT: Duration = Duration::from_secs(30);
/// How long unneeded memory is kept; at most twice as long.
const MEMORY_LOOK: Duration = Duration::from_secs(5);

/// Where a daemon is reached.
pub struct Sockets {
    api: ApiSocket,
    nbd: (UnixListener, SocketFile),
    others: Endpoints,
    public: Option<PublicSocket>,
    metrics: Option<MetricsSocket>,
}

impl Sockets {
    /// Listens on the API's socket, on the socket `nbd.sock` beside it, and on TCP addresses where asked for.
    pub async fn bind(api: &Path, tcp: &TcpArguments) -> Result<Self> {
        let nbd = api.with_file_name("nbd.sock");
        let listening = |path: &Path| format!("cannot listen on {}", path.display());
        Ok(Self {
            api: ApiSocket::bind(api).await.with_context(|| listening(api))?,
            nbd: socket::listen(&nbd).await.with_context(|| listening(&nbd))?,
            others: Endpoints {
                tcp: tcp.listen().await,
                has_tls: tcp.tls_certificate.is_some(),
                iscsi: tcp.listen_iscsi().await,
                nfs: tcp.listen_nfs().await,
                vhost_user: tcp.vhost_user_folder()?,
            },
            public: None,
            metrics: None,
        })
    }

    /// Listens on a socket beside the API's too, on which all users may ask for what their roles allow.
    pub async fn and_for_anyone(self, api: &Path) -> Result<Self> {
        let path = api.with_file_name(public::FILE_NAME);
        let socket = PublicSocket::bind(&path).await;
        Ok(Self {
            public: Some(socket.with_context(|| format!("cannot listen on {}", path.display()))?),
            ..self
        })
    }

    /// Serves metrics on a TCP address too, where asked for.
    pub async fn and_metrics(self, place: Option<HostPort>) -> Self {
        let Some(place) = place else { return self };
        Self { metrics: Some(MetricsSocket::bind(place).await), ..self }
    }

    /// Serves volumes, and answers requests once `ready` completes, until `stop` completes.
    pub async fn serve(
        self,
        daemon: &Arc<Daemon>,
        ready: impl Future<Output = ()>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<()> {
        // A write beyond the largest file that this process may have is to fail, and not to end it.
        let _too_large = signal(SignalKind::from_raw(libc::SIGXFSZ))?;
        let shards = Arc::new(Shards::start().context("cannot start the threads that serve volumes")?);
        let volumes = Arc::clone(daemon).serve_volumes(self.nbd, self.others, shards);
        let (stopping, is_stopping) = oneshot::channel::<()>();
        let stop = async move {
            stop.await;
            drop(stopping);
        }
        .shared();
        let requests = async {
            tokio::select! { () = ready => {}, () = stop.clone() => return Ok(()) }
            let for_owner = http::serve(self.api, Arc::clone(daemon), stop.clone());
            let for_anyone = async {
                match self.public {
                    Some(socket) => public::serve(socket, Arc::clone(daemon), stop.clone()).await,
                    None => Ok(()),
                }
            };
            let metrics = async {
                match self.metrics {
                    Some(socket) => metrics::serve(socket, Arc::clone(daemon), stop.clone()).await,
                    None => Ok(()),
                }
            };
            tokio::try_join!(for_owner, for_anyone, metrics).map(|_| ())
        };
        let grace = async move {
            // Its other end is dropped, which is what it is for.
            let _ = is_stopping.await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            served = requests => served.context("the API server failed"),
            served = volumes => served.context("the NBD server failed"),
            () = grace => Ok(()),
            () = give_memory_back() => Ok(()),
        }
    }
}

/// Gives memory that was not needed for a while back to the system, again and again.
async fn give_memory_back() {
    loop {
        tokio::time::sleep(MEMORY_LOOK).await;
        device::give_back_unused();
        // The allocator would keep what small blocks took until the next allocation.
        // SAFETY: it may be called at any time, by any thread.
        unsafe { libmimalloc_sys::mi_collect(true) };
    }
}

/// The file with the pools that come back.
fn cachefile(arguments: &ServeArguments, socket: &Path) -> Result<Option<PathBuf>> {
    match arguments.cachefile.as_deref() {
        None => Ok(server::cachefile::default_path(socket)),
        Some(path) if path == Path::new("none") => Ok(None),
        Some(path) => Ok(Some(std::path::absolute(path).context("cannot find the cache file's directory")?)),
    }
}

/// The file of the audit log.
fn audit_log(arguments: &ServeArguments, cachefile: Option<&Path>) -> Result<Option<AuditLog>> {
    let path = match arguments.audit.as_deref() {
        None => cachefile.map(|cachefile| cachefile.with_file_name(audit::FILE_NAME)),
        Some(path) if path == Path::new("none") => None,
        Some(path) => Some(std::path::absolute(path).context("cannot find the audit log's directory")?),
    };
    Ok(path.map(AuditLog::new))
}

/// Imports the pools of the cache file, on a thread of its own, after what daemons left behind that died is
/// gone. Those that take long are open later.
async fn import_cached(daemon: &Arc<Daemon>, importing: Importing) {
    let (done, is_done) = oneshot::channel::<()>();
    let daemon = Arc::clone(daemon);
    let import = move || {
        let _done = (done, importing);
        daemon.clear_left_devices();
        daemon.import_cached();
    };
    match std::thread::Builder::new().name("import".into()).spawn(import) {
        Ok(_) => drop(tokio::time::timeout(IMPORT_LIMIT, is_done).await),
        Err(error) => tracing::error!(%error, "the pools of the cache file are not imported"),
    }
}

/// Serves until it has to stop.
pub fn run(arguments: &ServeArguments) -> Result<()> {
    server::descriptors::raise_limit();
    let socket: PathBuf = arguments.socket.clone().unwrap_or_else(socket::default_socket);
    if let Some(directory) = &arguments.modelled {
        let cannot = || format!("cannot model devices in {}", directory.display());
        device::modelled::serve_models_in(directory).with_context(cannot)?;
    }
    let link = match &arguments.modelled_link {
        Some(name) => {
            let model = Model::link(name).with_context(|| format!("there is no model of a link '{name}'"))?;
            Some(Arc::new(Link::new(model)))
        }
        None => None,
    };
    let runtime = server::runtime::for_requests()?;
    let daemon = arguments.memory.daemon();
    let mut daemon = daemon.behind(link).giving_up(arguments.give_up).taking_loads(arguments.take_loads);
    if let Some(folder) = &arguments.parameters {
        let parameters = Parameters::follow(folder.clone());
        let parameters = parameters.context("cannot start the thread that follows parameters")?;
        daemon = daemon.before_requests(move || parameters.apply());
    }
    let roles = Roles::of_groups(&arguments.operator, &arguments.viewer).map_err(anyhow::Error::msg)?;
    let has_groups = roles.are_given();
    let cachefile = cachefile(arguments, &socket)?;
    let audit = audit_log(arguments, cachefile.as_deref())?;
    let daemon = Arc::new(daemon.with_roles(roles).auditing(audit).keeping(cachefile));
    daemon.load_tunables();
    daemon.start_sizing().context("cannot start the thread that sizes the ARC")?;
    daemon.start_agents().context("cannot start the thread that acts on events")?;
    let served = runtime.block_on(async {
        // As long as the runtime lives.
        tokio::spawn(notify::keep_alive());
        // Clients may come from here on.
        let importing = daemon.expect_imports();
        let sockets = Sockets::bind(&socket, &arguments.tcp).await?;
        let mut sockets = sockets.and_metrics(arguments.metrics.clone()).await;
        // Other users' directories are closed to others, unless they were made otherwise.
        if rustix::process::geteuid().is_root() || has_groups {
            sockets = sockets.and_for_anyone(&socket).await?;
        }
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let asked = Arc::clone(&daemon);
        let stop = async move {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, () = asked.stopped() => {} }
            notify::tell(notify::STOPPING);
            // As long as volumes are served.
            let detached = tokio::task::spawn_blocking(move || asked.detach_all_devices());
            let _ = tokio::time::timeout(DEVICES_GRACE, detached).await;
        };
        let ready = async {
            import_cached(&daemon, importing).await;
            notify::tell(notify::READY);
        };
        sockets.serve(&daemon, ready, stop).await
    });
    // A request that hangs must not keep the process.
    runtime.shutdown_background();
    // What is in use leaves the tree at once; what was acknowledged to clients is committed with the rest.
    let closed = daemon.close_all();
    served?;
    closed.context("not all pools could be closed in order")
}
