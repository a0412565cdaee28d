//! `cenote serve`: the daemon in the foreground, until SIGINT, SIGTERM or a request to shut down.

#![allow(unsafe_code, reason = "the allocator gives memory back")]

mod background;
mod notify;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use device::IgnorePoison;
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
use server::socket::{self, Inherited, SocketFile};
use server::takeover::{self, Taken};
use server::web::{self, Dashboard};
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
    dashboard: Option<Dashboard>,
    /// For a daemon that takes over.
    hand_over: Option<(UnixListener, SocketFile)>,
}

impl Sockets {
    /// Listens on the API's socket, on the socket `nbd.sock` beside it, and on TCP addresses where asked for.
    pub async fn bind(api: &Path, tcp: &TcpArguments) -> Result<Self> {
        Self::bind_with(api, tcp, &mut Inherited::default()).await
    }

    /// The same, with sockets that listen already where there are some.
    pub async fn bind_with(api: &Path, tcp: &TcpArguments, inherited: &mut Inherited) -> Result<Self> {
        let nbd = api.with_file_name("nbd.sock");
        let listening = |path: &Path| format!("cannot listen on {}", path.display());
        Ok(Self {
            api: ApiSocket::bind_with(api, inherited).await.with_context(|| listening(api))?,
            nbd: inherited.listen(&nbd).await.with_context(|| listening(&nbd))?,
            others: Endpoints {
                tcp: tcp.listen(inherited).await,
                has_tls: tcp.tls_certificate.is_some(),
                iscsi: tcp.listen_iscsi(inherited).await,
                nfs: tcp.listen_nfs(inherited).await,
                vhost_user: tcp.vhost_user_folder()?,
            },
            public: None,
            metrics: None,
            dashboard: None,
            hand_over: None,
        })
    }

    /// Hands everything over to a daemon that asks for it, on a socket beside the API's.
    pub async fn and_for_successors(self, api: &Path, inherited: &mut Inherited) -> Result<Self> {
        let path = takeover::path_beside(api);
        let socket = inherited.listen(&path).await;
        Ok(Self {
            hand_over: Some(socket.with_context(|| format!("cannot listen on {}", path.display()))?),
            ..self
        })
    }

    /// Listens on a socket beside the API's too, on which all users may ask for what their roles allow.
    pub async fn and_for_anyone(self, api: &Path, inherited: &mut Inherited) -> Result<Self> {
        let path = api.with_file_name(public::FILE_NAME);
        let socket = PublicSocket::bind_with(&path, inherited).await;
        Ok(Self {
            public: Some(socket.with_context(|| format!("cannot listen on {}", path.display()))?),
            ..self
        })
    }

    /// Serves metrics on a TCP address too, where asked for.
    pub async fn and_metrics(self, place: Option<HostPort>, inherited: &mut Inherited) -> Self {
        let Some(place) = place else { return self };
        Self { metrics: Some(MetricsSocket::bind_with(place, inherited).await), ..self }
    }

    /// Serves the dashboard too, from the start or from when it is asked for.
    pub async fn and_dashboard(self, options: web::Options, inherited: &mut Inherited) -> Self {
        Self { dashboard: Some(Dashboard::bind_with(options, inherited).await), ..self }
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
            let _file = match self.hand_over {
                Some((listener, file)) => {
                    let tell = Box::new(|process| notify::tell(&notify::owner(process)));
                    daemon.has_socket_at(&listener, file.path());
                    takeover::give_on(listener, daemon, notify::manager().clone(), tell)?;
                    Some(file)
                }
                None => None,
            };
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
            let dashboard = async {
                match self.dashboard {
                    Some(dashboard) => web::serve(dashboard, Arc::clone(daemon), stop.clone()).await,
                    None => Ok(()),
                }
            };
            tokio::try_join!(for_owner, for_anyone, metrics, dashboard).map(|_| ())
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

/// Opens what was taken over, on a thread of its own, and says so.
async fn open_taken(daemon: &Arc<Daemon>, taken: Taken, importing: Importing) -> Result<()> {
    let (done, is_done) = oneshot::channel();
    let daemon = Arc::clone(daemon);
    let open = move || {
        let began = Instant::now();
        let confirmed = taken.confirm(&daemon);
        if confirmed.is_ok() {
            // The terminal, or what waits for this line, may be gone.
            let _ = writeln!(
                std::io::stdout(),
                "took over as process {}; pools were opened in {} ms",
                std::process::id(),
                began.elapsed().as_millis()
            );
        }
        let is_open = confirmed.is_ok();
        let _ = done.send(confirmed);
        drop(importing);
        if is_open {
            // Those that the other daemon did not have open.
            daemon.import_cached();
        }
    };
    let thread = std::thread::Builder::new().name("import".into()).stack_size(device::STACK_BYTES);
    thread.spawn(open).context("cannot start a thread that opens pools")?;
    is_done.await.context("the thread that opens pools ended")?.context("cannot take over")
}

/// Serves until it has to stop.
pub fn run(arguments: &ServeArguments) -> Result<()> {
    if arguments.between {
        return background::start_orphan();
    }
    if arguments.background {
        return background::take_over();
    }
    if let Some(between) = arguments.orphan_of {
        background::wait_for_manager(between)?;
    }
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
    let folder = cachefile.as_deref().and_then(Path::parent).map(Path::to_owned);
    let dashboard = arguments.dashboard.options(folder);
    let daemon = daemon.with_roles(roles).auditing(audit).keeping(cachefile);
    let mut daemon = arguments.stand_by(daemon)?;
    // As late as can be: clients wait from here on.
    let mut taken = None;
    if arguments.take_over {
        daemon = daemon.taking_over();
        let from = takeover::path_beside(&socket);
        taken = Some(takeover::take(&from, arguments.force).map_err(anyhow::Error::msg)?);
    }
    let mut inherited = Inherited::default();
    if let Some(taken) = &mut taken {
        inherited = std::mem::take(&mut taken.sockets);
        notify::take_over(std::mem::take(&mut taken.manager));
    }
    let daemon = Arc::new(daemon);
    daemon.load_tunables();
    daemon.start_sizing().context("cannot start the thread that sizes the ARC")?;
    daemon.start_agents().context("cannot start the thread that acts on events")?;
    daemon.start_standby().context("cannot start the threads that stand by for pools")?;
    let served = runtime.block_on(async {
        // As long as the runtime lives.
        tokio::spawn(notify::keep_alive());
        // Clients may come from here on.
        let importing = daemon.expect_imports();
        let sockets = Sockets::bind_with(&socket, &arguments.tcp, &mut inherited).await?;
        let sockets = sockets.and_metrics(arguments.metrics.clone(), &mut inherited).await;
        let sockets = sockets.and_dashboard(dashboard, &mut inherited).await;
        let mut sockets = sockets.and_for_successors(&socket, &mut inherited).await?;
        // Other users' directories are closed to others, unless they were made otherwise.
        if rustix::process::geteuid().is_root() || has_groups {
            sockets = sockets.and_for_anyone(&socket, &mut inherited).await?;
        }
        // Those that are not asked for any more.
        drop(inherited);
        let (fail, failing) = oneshot::channel::<anyhow::Error>();
        let failure = Arc::new(Mutex::new(None));
        let failed = Arc::clone(&failure);
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let asked = Arc::clone(&daemon);
        let stop = async move {
            tokio::select! {
                _ = interrupt.recv() => {},
                _ = terminate.recv() => {},
                () = asked.stopped() => {}
                Ok(error) = failing => {
                    *failed.lock().ignore_poison() = Some(error);
                    // It never had anything.
                    return;
                }
            }
            if asked.was_succeeded() {
                return;
            }
            notify::tell(notify::STOPPING);
            // As long as it is answered.
            let experiments = Arc::clone(&asked);
            let _ = tokio::task::spawn_blocking(move || experiments.end_experiments()).await;
            // As long as volumes are served.
            let detached = tokio::task::spawn_blocking(move || asked.detach_all_devices());
            let _ = tokio::time::timeout(DEVICES_GRACE, detached).await;
        };
        let ready = async {
            match taken {
                None => import_cached(&daemon, importing).await,
                Some(taken) => {
                    if let Err(error) = open_taken(&daemon, taken, importing).await {
                        let _ = fail.send(error);
                        return std::future::pending::<()>().await;
                    }
                }
            }
            notify::tell(notify::READY);
        };
        let served = sockets.serve(&daemon, ready, stop).await;
        let failure = failure.lock().ignore_poison().take();
        failure.map_or(served, Err)
    });
    // A request that hangs must not keep the process.
    runtime.shutdown_background();
    if daemon.was_succeeded() {
        // Pools, files and events are the other daemon's.
        return served;
    }
    // What is in use leaves the tree at once; what was acknowledged to clients is committed with the rest.
    let closed = daemon.close_all();
    served?;
    closed.context("not all pools could be closed in order")
}
