//! Any bytes read as what a client of the dashboard sends: for fuzzers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Extension;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;

use super::answer;
use super::origin::Names;
use super::routes::{self, Peer};
use crate::accounts::Signed;
use crate::api::{CreateDashboardToken, DashboardRole};
use crate::caller::Connection;
use crate::daemon::Daemon;

/// A request that ends the connection where those before are whole.
const LAST: &[u8] = b"GET /none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// How long nothing may come until the client has said all: the server may wait for the rest of a request.
const QUIET: Duration = Duration::from_millis(2);
/// What stands in the bytes for the token of a viewer.
const PLACEHOLDER: &[u8] = b"TOKEN";
/// Bytes on their way in each direction.
const PIPE_BYTES: usize = 1 << 20;
/// How long all answers may take together: nothing waits for a device or another program.
const LIMIT: Duration = Duration::from_secs(20);

/// A daemon without pools, and the token of a viewer. A viewer changes nothing, and runs no program.
struct Served {
    daemon: Arc<Daemon>,
    token: Option<String>,
    runtime: Option<Runtime>,
}

static SERVED: LazyLock<Served> = LazyLock::new(|| {
    let daemon = Arc::new(Daemon::with_cache(1 << 20));
    let root = Signed { name: "root".into(), role: DashboardRole::Admin, uid: Some(0) };
    let request = CreateDashboardToken { name: "fuzz".into(), role: DashboardRole::Viewer, days: None };
    let token = daemon.accounts().create_token(&root, &request).ok();
    let runtime = Builder::new_current_thread().enable_all().build().ok();
    Served { daemon, token: token.map(|token| token.token), runtime }
});

/// Takes the bytes as what comes over one connection, from the first request on. Where they have the word
/// `TOKEN`, the token of a viewer is put in its place. Returns for any bytes.
pub fn read(bytes: &[u8]) {
    let Some(answers) = answers(bytes, QUIET) else { return };
    assert!(answers.is_empty() || answers.starts_with(b"HTTP/1."), "this is no answer");
    // No password is right, and no token makes a session.
    assert!(!has(&answers, b"set-cookie"), "a session");
}

/// Whether a text is part of these bytes.
fn has(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text))
}

/// What is answered until the connection ends, or nothing comes for so long; none where there is nothing to
/// answer with.
fn answers(bytes: &[u8], quiet: Duration) -> Option<Vec<u8>> {
    let served = &*SERVED;
    let (token, runtime) = (served.token.as_ref()?, served.runtime.as_ref()?);
    let at = bytes.windows(PLACEHOLDER.len()).position(|part| part == PLACEHOLDER);
    let sent = match at {
        Some(at) => [&bytes[..at], token.as_bytes(), &bytes[at + PLACEHOLDER.len()..], LAST].concat(),
        None => [bytes, LAST].concat(),
    };
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let peer = Peer { address: local, local, port: 7227, has_tls: false, connection: Connection::default() };
    let router = routes::router(Arc::clone(&served.daemon), Names::default()).layer(Extension(peer));
    let (client, server) = duplex(PIPE_BYTES);
    let (_stopping, is_stopping) = watch::channel(());
    let answers = runtime.block_on(async {
        let answering = tokio::spawn(answer(server, router, is_stopping));
        let (mut from, mut to) = tokio::io::split(client);
        let mut answers = Vec::new();
        let exchange = async {
            // A server that refuses a request need not read the rest.
            let _ = to.write_all(&sent).await;
            // The feed of changes ends with its client.
            while !has(&answers, b"text/event-stream") {
                match timeout(quiet, from.read_buf(&mut answers)).await {
                    Ok(Ok(bytes)) if bytes > 0 => {}
                    Ok(_) => break,
                    // It sees the end of what is sent, and ends.
                    Err(_) => {
                        let _ = to.shutdown().await;
                        let _ = from.read_to_end(&mut answers).await;
                        break;
                    }
                }
            }
        };
        assert!(timeout(LIMIT, exchange).await.is_ok(), "an answer does not end");
        drop((from, to));
        // What is wrong with a request is an error of its connection.
        let _ = answering.await.is_ok_and(|ended| ended.is_ok());
        answers
    });
    Some(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_is_answered_and_a_stranger_refused() {
        let ask = |token: &str| {
            let head =
                format!("POST /v1/pool-list HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}");
            format!("{head}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}")
        };
        let answered = answers(ask("TOKEN").as_bytes(), LIMIT).unwrap();
        assert!(answered.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answered));
        assert!(answers(ask("cenote_x").as_bytes(), LIMIT).unwrap().starts_with(b"HTTP/1.1 401"));
        read(ask("TOKEN").as_bytes());
    }
}
