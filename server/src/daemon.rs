//! The daemon's state and its actions.

use crate::api::{self, Action, ApiError, ErrorKind};

/// The pools of this machine that are open, and how they are served.
#[derive(Debug, Default)]
pub struct Daemon {}

/// Answers one request: `action` is the last part of its path, `body` its JSON. The reply is JSON too.
///
/// # Errors
/// An unknown action, a body that is not of the action's type, or what the action itself refuses.
pub async fn dispatch(daemon: &Daemon, action: &str, body: &[u8]) -> Result<Vec<u8>, ApiError> {
    match action {
        api::Hello::NAME => answer(body, async |request| daemon.hello(request)).await,
        _ => Err(ApiError { kind: ErrorKind::NotFound, message: format!("there is no action '{action}'") }),
    }
}

async fn answer<A: Action>(
    body: &[u8],
    act: impl AsyncFnOnce(A) -> Result<A::Reply, ApiError>,
) -> Result<Vec<u8>, ApiError> {
    let request: A = serde_json::from_slice(body)
        .map_err(|error| ApiError { kind: ErrorKind::Invalid, message: format!("{}: {error}", A::NAME) })?;
    let reply = act(request).await?;
    serde_json::to_vec(&reply)
        .map_err(|error| ApiError { kind: ErrorKind::Failed, message: error.to_string() })
}

impl Daemon {
    fn hello(&self, _: api::Hello) -> Result<api::DaemonInfo, ApiError> {
        Ok(api::DaemonInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            pools: Vec::new(),
            nbd_socket: None,
            nbd_address: None,
        })
    }
}
