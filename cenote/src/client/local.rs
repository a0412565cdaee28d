//! Which daemon of this machine is asked, and which is started. See [`super`].

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use server::api::{Action, CreatePool, DiscoverPools, ImportPool, ListPools, Listed, PoolEntry, Role};
use server::public;
use tokio::net::UnixStream;

use super::wire::{Wire, exchange};
use super::{IS_QUIET, Message, reply};

/// How long a daemon may take to listen after it was started.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Actions for which a user other than root gets a daemon of the own.
const BRINGS_POOLS: [&str; 3] = [CreatePool::NAME, ImportPool::NAME, DiscoverPools::NAME];

/// A connection to the daemon that is to do something, which is started where none answers.
pub(super) async fn open(message: &Message) -> Result<UnixStream> {
    let path = server::socket::default_socket();
    let is_root = rustix::process::geteuid().is_root();
    let starts = may_start(message.action, is_root || is_named());
    // Who only asks is not in need of a daemon of his own.
    let stream = match message.role == Role::Viewer || !starts {
        true => connect_or_read(&path).await?,
        false => match connect(&path).await {
            Ok(own) => {
                if own.is_some() {
                    tell_of_own(&path, &public_beside(&path), "answers").await;
                }
                own
            }
            // It is another user's, and may answer any user beside it.
            Err(error) => match server::socket::connect(&public_beside(&path)).await {
                Ok(stream) => Some(stream),
                Err(_) => return Err(error),
            },
        },
    };
    match stream {
        Some(stream) => Ok(stream),
        None if starts => {
            tell_of_own(&path, &public_beside(&path), "is started").await;
            start_daemon(&path).await
        }
        None => bail!(
            "no daemon runs that you may use, and this command starts none; 'cenote serve', or a pool that \
             you create or import, starts one of your own"
        ),
    }
}

/// A connection to the daemon that answers questions; `None` where none runs that this user may ask.
pub(super) async fn running() -> Result<Option<UnixStream>> {
    connect_or_read(&server::socket::default_socket()).await
}

/// Whether a daemon is started for an action where none answers: always for whom `is_owner` of it, root or
/// who named its socket.
fn may_start(action: &str, is_owner: bool) -> bool {
    is_owner || BRINGS_POOLS.contains(&action)
}

/// Whether the user named the daemon's socket.
fn is_named() -> bool {
    std::env::var_os("CENOTE_SOCKET").is_some()
}

/// The public socket of the daemon that is meant beside the own one.
fn public_beside(own: &Path) -> PathBuf {
    if is_named() { own.with_file_name(public::FILE_NAME) } else { public::of_the_machine() }
}

/// Says once that the user's own daemon is used, where the machine's is there too.
async fn tell_of_own(own: &Path, public: &Path, verb: &str) {
    // Sockets side by side are one daemon's.
    let is_other = own.parent() != public.parent() && UnixStream::connect(public).await.is_ok();
    if is_other && !IS_QUIET.swap(true, Ordering::Relaxed) {
        eprintln!(
            "note: your own daemon {verb} ({}), not the machine's, whose pools are others",
            own.display()
        );
    }
}

/// Connects to the daemon; `None` where none listens. An error if another user owns the socket: no daemon
/// could be started there either.
async fn connect(path: &Path) -> Result<Option<UnixStream>> {
    match server::socket::connect(path).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(error).with_context(|| format!("cannot use the daemon on {}", path.display()))
        }
        Err(_) => Ok(None),
    }
}

/// The same; where that is another user's daemon, one without pools, or none, the socket on which root's
/// daemon answers anyone what all may see. It refuses everything else, with a word about permissions.
async fn connect_or_read(path: &Path) -> Result<Option<UnixStream>> {
    connect_or_else(path, &public_beside(path)).await
}

async fn connect_or_else(path: &Path, public: &Path) -> Result<Option<UnixStream>> {
    let own = connect(path).await;
    // Sockets side by side are one daemon's, which tells its own user more on this one.
    if path.parent() == public.parent() && matches!(own, Ok(Some(_))) {
        return own;
    }
    if let Ok(Some(stream)) = own
        && has_pools(stream).await
    {
        tell_of_own(path, public, "answers").await;
        return connect(path).await;
    }
    match server::socket::connect(public).await {
        Ok(stream) => Ok(Some(stream)),
        Err(_) => connect(path).await,
    }
}

/// Whether the daemon at the other end has a pool open, as far as it says so. A failed command that needed a
/// daemon leaves one that has none.
async fn has_pools(daemon: UnixStream) -> bool {
    let Ok(message) = Message::of(&ListPools::default()) else { return true };
    let pools =
        exchange(Wire::Here(daemon), message).await.and_then(|body| reply::<Listed<PoolEntry>>(&body));
    pools.map_or(true, |listed| !listed.entries.is_empty())
}

async fn start_daemon(socket: &Path) -> Result<UnixStream> {
    let program =
        std::env::current_exe().context("cannot find this program's own file to start the daemon")?;
    let mut command = Command::new(program);
    command.arg("serve").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    {
        use std::os::unix::process::CommandExt;
        // A group of its own: Ctrl-C in the terminal must not reach the daemon.
        command.process_group(0);
    }
    let mut child = command.spawn().context("cannot start the daemon")?;
    let began = Instant::now();
    loop {
        if let Some(stream) = connect(socket).await? {
            return Ok(stream);
        }
        if let Some(status) = child.try_wait()? {
            bail!("the daemon ended at once ({status}); 'cenote serve' in a terminal shows why");
        }
        if began.elapsed() > START_LIMIT {
            bail!("the daemon does not listen on {} after {} s", socket.display(), START_LIMIT.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::future::pending;
    use std::sync::Arc;

    use server::api::{CreatePool, GetAudit, NewDevices, NewLayout, NewVdev};
    use server::audit::AuditLog;
    use server::daemon::Daemon;
    use server::http::ApiSocket;
    use server::public::PublicSocket;

    use super::super::runtime;
    use super::*;

    #[test]
    fn only_what_brings_pools_starts_a_daemon_of_a_users_own() {
        use server::api::{AddHook, ClearLabel, InjectFault, LoadKey, SetScrubSchedule, SetTunables};
        assert!(BRINGS_POOLS.iter().all(|action| may_start(action, false)));
        for action in [
            AddHook::NAME,
            ClearLabel::NAME,
            InjectFault::NAME,
            LoadKey::NAME,
            SetScrubSchedule::NAME,
            SetTunables::NAME,
        ] {
            assert!(!may_start(action, false) && may_start(action, true), "{action}");
        }
    }

    #[test]
    fn a_daemon_without_pools_leaves_questions_to_the_machines() {
        let place = tempfile::tempdir().unwrap();
        let (own, machine) = (place.path().join("own/api.sock"), place.path().join("machine/read.sock"));
        runtime().unwrap().block_on(async {
            // Only the own daemon keeps an audit log here.
            let is_own = async || {
                let stream = connect_or_else(&own, &machine).await.unwrap()?;
                let message = Message::of(&GetAudit { count: 1 }).unwrap();
                Some(exchange(Wire::Here(stream), message).await.is_ok())
            };
            assert_eq!(is_own().await, None);
            let public = PublicSocket::bind(&machine).await.unwrap();
            tokio::spawn(public::serve(public, Arc::default(), pending()));
            assert_eq!(is_own().await, Some(false), "there is no other");
            let log = AuditLog::new(place.path().join("audit.log"));
            let daemon = Arc::new(Daemon::with_cache(64 << 20).auditing(Some(log)));
            let socket = ApiSocket::bind(&own).await.unwrap();
            tokio::spawn(server::http::serve(socket, Arc::clone(&daemon), pending()));
            assert_eq!(is_own().await, Some(false), "there is one, but without pools");
            let disk = place.path().join("disk");
            File::create(&disk).unwrap().set_len(64 << 20).unwrap();
            let vdev = NewVdev { layout: NewLayout::Single, class: Default::default(), devices: vec![disk] };
            let devices = NewDevices { vdevs: vec![vdev], ..NewDevices::default() };
            let create = CreatePool { name: "tank".into(), devices, no_mount: true, ..CreatePool::default() };
            let to = Wire::Here(connect(&own).await.unwrap().unwrap());
            exchange(to, Message::of(&create).unwrap()).await.unwrap();
            assert_eq!(is_own().await, Some(true));
        });
    }
}
