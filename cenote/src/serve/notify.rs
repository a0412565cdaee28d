//! Tells a service manager how the daemon is (`sd_notify`): one datagram to the socket that `$NOTIFY_SOCKET`
//! names, if it does.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::time::Duration;

use server::handover::Manager;

/// It can be asked.
pub const READY: &str = "READY=1";
/// It is about to end.
pub const STOPPING: &str = "STOPPING=1";

/// It lives.
const WATCHDOG: &str = "WATCHDOG=1";

/// Says again and again that the daemon lives, twice as often as the service manager wants to hear it. Where
/// it does not want to, this returns at once. A runtime whose threads hang says nothing.
pub async fn keep_alive() {
    let Some(micros) = manager().watchdog_micros else { return };
    let patience = Duration::from_micros(micros);
    loop {
        tell(WATCHDOG);
        tokio::time::sleep(patience / 2).await;
    }
}

/// How long the service manager waits for a sign of life of this process, in microseconds.
fn patience(micros: Option<String>, pid: Option<String>) -> Option<u64> {
    if pid.is_some_and(|pid| pid != std::process::id().to_string()) {
        return None;
    }
    micros?.parse().ok().filter(|micros| *micros > 0)
}

/// The service manager.
static MANAGER: OnceLock<Manager> = OnceLock::new();

/// The service manager: as the environment says, unless that of another daemon was taken over.
pub fn manager() -> &'static Manager {
    MANAGER.get_or_init(|| Manager {
        socket: std::env::var("NOTIFY_SOCKET").ok(),
        watchdog_micros: patience(std::env::var("WATCHDOG_USEC").ok(), std::env::var("WATCHDOG_PID").ok()),
    })
}

/// Has the service manager of the daemon that ran before told of this one.
pub fn take_over(manager: Manager) {
    if manager.socket.is_some() {
        // The first to ask would make it that of the environment: nothing asked yet.
        let _ = MANAGER.set(manager);
    }
}

/// What says that another process is the daemon.
pub fn owner(process: u32) -> String {
    format!("MAINPID={process}")
}

/// Notifies the service manager that started the daemon, if there is one.
pub fn tell(state: &str) {
    if let Some(at) = &manager().socket
        && let Err(error) = tell_at(OsStr::new(at), state)
    {
        tracing::warn!(%error, "cannot notify the service manager: {state}");
    }
}

/// A path, or behind `@` an abstract name.
fn tell_at(at: &OsStr, state: &str) -> io::Result<()> {
    let address = match at.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        Some((b'/', _)) => SocketAddr::from_pathname(at)?,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "NOTIFY_SOCKET is not a Unix socket")),
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_life_is_wanted_as_often_as_the_variable_says() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(patience(text("2000000"), None), Some(2_000_000));
        assert_eq!(patience(text("2000000"), text("1")), None, "another process is meant");
        let own = Some(std::process::id().to_string());
        assert_eq!(patience(text("500"), own), Some(500));
        assert_eq!([None, text("0"), text("x")].map(|micros| patience(micros, None)), [None; 3]);
    }

    #[test]
    fn who_listens_is_told_at_a_path_and_at_an_abstract_name() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let name = format!("cenote-notify-{}", std::process::id());
        let told = |listening: UnixDatagram, at: &OsStr| {
            tell_at(at, READY).unwrap();
            let mut bytes = [0; 64];
            let length = listening.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"READY=1");
        };
        told(UnixDatagram::bind(&path).unwrap(), path.as_os_str());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        told(UnixDatagram::bind_addr(&address).unwrap(), OsStr::new(&format!("@{name}")));
        assert!(tell_at(OsStr::new("vsock:2:1"), READY).is_err());
    }
}
