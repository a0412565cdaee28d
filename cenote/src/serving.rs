//! The arguments of programs that serve pools: `cenote serve`, and what `cenote up` has in common with it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use server::block::{self, Limits};
use server::daemon::{Daemon, ISCSI_SERVICE, NFS_SERVICE, StandbyPlace, TCP_SERVICE};
use server::iscsi::Secrets;
use server::listening::{HostPort, Listener};
use server::nbd::{self, Tls};
use server::socket::Inherited;
use server::web;

/// Arguments of `cenote serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = nbd_limits())]
pub struct ServeArguments {
    /// Unix socket of the API (default: by user, or $CENOTE_SOCKET)
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Take over from the daemon that runs on this socket: its pools, keys, listening sockets and clients,
    /// which see a pause. Where that cannot be, it says why and goes on
    #[arg(long)]
    pub take_over: bool,
    /// With --take-over: return when the new daemon serves, for service managers
    #[arg(long, requires = "take_over")]
    pub background: bool,
    /// The process that starts it and ends
    #[arg(long, requires = "background", hide = true)]
    pub between: bool,
    /// The number of that process
    #[arg(long, requires = "take_over", hide = true)]
    pub orphan_of: Option<u32>,
    /// With --take-over: also what is in use and cannot be handed over, as mounted filesystems with open
    /// files, whose users get errors
    #[arg(long, requires = "take_over")]
    pub force: bool,
    /// File with the pools that are imported at the start: those that were open when the daemon ended ('none'
    /// for no file; default: $CENOTE_CACHEFILE, else /var/lib/cenote/zpool.cache for root and
    /// $XDG_STATE_HOME/cenote/zpool.cache for others, but no file for a daemon on another socket than the
    /// default one)
    #[arg(long, value_name = "FILE")]
    pub cachefile: Option<PathBuf>,
    /// Users of this group are operators: by the public socket they may do what keeps the machine running and
    /// destroys nothing (a name or a number; may be given several times)
    #[arg(long, value_name = "GROUP")]
    pub operator: Vec<String>,
    /// Only users of this group, operators, root and the daemon's user may see anything by the public socket
    /// (a name or a number; may be given several times; default: all users may)
    #[arg(long, value_name = "GROUP")]
    pub viewer: Vec<String>,
    /// File of the audit log: who asked for which change ('none' for no log; default: audit.log beside the
    /// cache file, and none where there is no such file)
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// Stand by for a pool in an object store (may be given several times; without a value: all pools of the
    /// cache file that are in object stores). It is not imported at the start, but taken over when the lease
    /// of its owner is over, or on command ('cenote standby take-over'). With it on all hosts, the first that
    /// finds no owner is the owner
    #[arg(long, value_name = "POOL=ADDRESS", num_args = 0..=1, default_missing_value = "")]
    pub standby: Vec<String>,
    /// What a pool on standby is taken over by: 'lease' (when the lease is over, and by command) or 'command'
    /// alone, for a manager such as Pacemaker that decides
    #[arg(long, value_name = "WHAT", default_value = "lease", value_parser = ["lease", "command"],
        requires = "standby")]
    pub standby_by: String,
    /// How much memory it takes.
    #[command(flatten)]
    pub memory: MemoryArguments,
    /// Where a pool would wait for devices that fail writes, let it fail at once: clients that write get the
    /// error, and nothing more is written until the pool is exported by force and imported again
    #[arg(long)]
    pub give_up: bool,
    /// For the lab: read and write volumes on request over the API, overwriting their data
    #[arg(long, hide = true)]
    pub take_loads: bool,
    /// For OpenZFS's test suite: a folder with files that are named like parameters of OpenZFS's kernel
    /// module; those that hold scans and bound events of checksums are looked at
    #[arg(long, hide = true, value_name = "DIR")]
    pub parameters: Option<PathBuf>,
    /// How volumes are served over TCP (they are always on the socket nbd.sock beside the API's).
    #[command(flatten)]
    pub tcp: TcpArguments,
    /// Serve counters and properties for Prometheus at http://ADDRESS:PORT/metrics, to every client that can
    /// connect; an address such as 127.0.0.1 keeps it to this machine. Nothing can be changed there
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<HostPort>,
    /// Where and how the dashboard is served.
    #[command(flatten)]
    pub dashboard: DashboardArguments,
    /// Slow files in DIR/MODEL down to the speed of such a device (MODEL: hdd-7200, hdd-5400, sata-ssd,
    /// nvme, optane, usb-flash; hdd-7200+10% takes a tenth longer)
    #[arg(long, value_name = "DIR")]
    pub modelled: Option<PathBuf>,
    /// Slow clients of volumes down to the speed of such a link (1gbe, 10gbe)
    #[arg(long, value_name = "MODEL")]
    pub modelled_link: Option<String>,
}

impl ServeArguments {
    /// The daemon that stands by for pools, where that is asked for.
    ///
    /// # Errors
    /// What is wrong with the pools that are named.
    pub fn stand_by(&self, daemon: Daemon) -> Result<Daemon> {
        if self.standby.is_empty() {
            return Ok(daemon);
        }
        let named = self.standby.iter().filter(|place| !place.is_empty());
        let places = named.map(|place| place.parse()).collect::<Result<Vec<StandbyPlace>, String>>();
        let daemon = places.and_then(|places| daemon.standing_by(&places, self.standby_by == "lease"));
        daemon.map_err(anyhow::Error::msg)
    }
}

/// How much memory a daemon takes.
#[derive(Debug, Default, clap::Args)]
pub struct MemoryArguments {
    /// Memory for cached blocks of all pools and for data not on disk yet, at least 64M (default: a quarter
    /// of the machine's). The process takes at most half as much and 96 MiB on top, for requests under way,
    /// maps of free space, mounts, and memory that it keeps for reuse; 'cenote counters memory' shows all
    #[arg(long, value_name = "SIZE", value_parser = parse_arc_max)]
    pub arc_max: Option<u64>,
}

/// A size of the ARC.
fn parse_arc_max(text: &str) -> Result<u64, String> {
    let least = engine::tunables::LEAST_ARC_BYTES;
    match server::sizes::parse_size(text)? {
        bytes if bytes < least => {
            Err(format!("the ARC cannot be that small: it is at least {}M", least >> 20))
        }
        bytes => Ok(bytes),
    }
}

impl MemoryArguments {
    /// A daemon that takes so much.
    pub fn daemon(&self) -> Daemon {
        self.arc_max.map_or_else(Daemon::default, Daemon::with_cache)
    }
}

/// How volumes are served over TCP.
#[derive(Debug, Default, clap::Args)]
pub struct TcpArguments {
    /// Serve volumes over TCP too, to every client that can connect; may be given several times, and takes a
    /// host's name for its addresses. An address that is not there yet is waited for
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub nbd_tcp: Vec<HostPort>,
    /// Only with TLS, as the server of this certificate (PEM, followed by certificates of its authorities)
    #[arg(long, value_name = "FILE", requires = "nbd_tcp", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Only to clients with a certificate that one of these authorities signed (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_ca: Option<PathBuf>,
    /// Serve volumes by iSCSI too, to every initiator that can connect and has a secret, if any is asked for;
    /// may be given several times (portals of one group), and takes names, as --nbd-tcp does
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub iscsi: Vec<HostPort>,
    /// Only to initiators that know a secret (CHAP): lines 'INITIATOR SECRET' or 'INITIATOR NAME SECRET', and
    /// 'target NAME SECRET' for those that ask the target for a proof too
    #[arg(long, value_name = "FILE", requires = "iscsi")]
    pub iscsi_secrets: Option<PathBuf>,
    /// Serve filesystems by NFS (version 3) too: those that the property sharenfs shares, to the clients that
    /// it lets in; may be given several times, and takes names, as --nbd-tcp does. Clients mount with
    /// port=PORT,mountport=PORT,nolock
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub nfs: Vec<HostPort>,
    /// Serve volumes to virtual machines on this machine too: each on a socket of its own in this folder,
    /// named like the volume (DIR/POOL/VOLUME.sock), as vhost-user-blk devices
    #[arg(long, value_name = "DIR")]
    pub vhost_user: Option<PathBuf>,
}

/// Where and how the dashboard is served.
#[derive(Debug, Default, clap::Args)]
pub struct DashboardArguments {
    /// Serve the dashboard, a page for browsers whose users sign in, from the start (default of ADDRESS:PORT:
    /// 127.0.0.1:7227; may be given several times). Beyond this machine it uses TLS, with a certificate of
    /// its own unless one is given. Without this option 'cenote dashboard' begins it
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = web::USUAL_PLACE)]
    pub dashboard: Vec<HostPort>,
    /// The certificate of the dashboard (PEM, followed by certificates of its authorities)
    #[arg(long, value_name = "FILE", requires = "dashboard_key")]
    pub dashboard_cert: Option<PathBuf>,
    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "dashboard_cert")]
    pub dashboard_key: Option<PathBuf>,
    /// A name by which browsers reach the dashboard, besides its addresses and localhost (may be given
    /// several times); requests for other names are refused
    #[arg(long, value_name = "NAME")]
    pub dashboard_host: Vec<String>,
    /// Serve the dashboard beyond this machine without TLS: passwords and keys can be read on the way
    #[arg(long, conflicts_with = "dashboard_cert")]
    pub dashboard_insecure: bool,
}

impl DashboardArguments {
    /// The same for the server. `folder` keeps a self-made certificate.
    pub fn options(&self, folder: Option<PathBuf>) -> web::Options {
        web::Options {
            listen: self.dashboard.clone(),
            certificate: self.dashboard_cert.clone().zip(self.dashboard_key.clone()),
            hosts: self.dashboard_host.clone(),
            is_insecure: self.dashboard_insecure,
            folder,
        }
    }
}

/// What NBD clients may take, for the help.
pub fn nbd_limits() -> String {
    let limits = Limits::default();
    let mib = |bytes: usize| bytes >> 20;
    format!(
        "NBD clients, on each socket: {} at once (one more gets an error that says so); requests of up to {} \
         MiB; memory for requests under way: {} MiB for each client, and a quarter of --arc-max, at most {} \
         MiB, that the clients of all sockets share. A client that holds shared memory and takes no replies \
         for {} s while others wait for it is disconnected, and so is a client that has not chosen a volume \
         after {} s.",
        limits.clients,
        mib(nbd::MAX_REQUEST_BYTES as usize),
        mib(block::OWN_BYTES),
        mib(block::MOST_SHARED_BYTES),
        limits.stall.as_secs(),
        limits.handshake.as_secs()
    )
}

impl TcpArguments {
    /// Listens for NBD, where that is asked for, once what TLS needs is there.
    pub async fn listen(&self, inherited: &mut Inherited) -> Option<Listener<Option<Tls>>> {
        if self.nbd_tcp.is_empty() {
            return None;
        }
        let files = self.tls_certificate.clone().zip(self.tls_key.clone());
        let authorities = self.tls_ca.clone();
        let load = move || {
            let Some((certificate, key)) = &files else { return Ok(None) };
            let loaded = Tls::load(certificate, key, authorities.as_deref());
            loaded.map(Some).map_err(|error| format!("cannot serve with TLS: {error}"))
        };
        Some(Listener::bind_with(TCP_SERVICE, self.nbd_tcp.clone(), load, inherited).await)
    }

    /// Listens for NFS, where that is asked for.
    pub async fn listen_nfs(&self, inherited: &mut Inherited) -> Option<Listener> {
        if self.nfs.is_empty() {
            return None;
        }
        Some(Listener::bind_with(NFS_SERVICE, self.nfs.clone(), || Ok(()), inherited).await)
    }

    /// The folder of sockets for virtual machines, as an absolute path.
    pub fn vhost_user_folder(&self) -> Result<Option<PathBuf>> {
        let absolute = |folder: &PathBuf| std::path::absolute(folder);
        let folder = self.vhost_user.as_ref().map(absolute).transpose();
        folder.context("cannot find the folder of sockets for virtual machines")
    }

    /// Listens for iSCSI, where that is asked for, once the secrets are there.
    pub async fn listen_iscsi(&self, inherited: &mut Inherited) -> Option<Listener<Option<Secrets>>> {
        if self.iscsi.is_empty() {
            return None;
        }
        let file = self.iscsi_secrets.clone();
        let load = move || {
            let Some(file) = &file else { return Ok(None) };
            let named =
                |error: &dyn std::fmt::Display| format!("cannot use secrets of {}: {error}", file.display());
            let text = std::fs::read_to_string(file).map_err(|error| named(&error))?;
            Secrets::parse(&text).map(Some).map_err(|error| named(&error))
        };
        Some(Listener::bind_with(ISCSI_SERVICE, self.iscsi.clone(), load, inherited).await)
    }
}
