//! `cenote serve`: the daemon in the foreground, until SIGINT or SIGTERM.

use std::sync::Arc;

use anyhow::{Context, Result};
use server::daemon::Daemon;
use server::http::{self, ApiSocket};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::ServeArguments;

/// Serves until it is told to stop.
pub fn run(arguments: &ServeArguments) -> Result<()> {
    let socket = arguments.socket.clone().unwrap_or_else(http::default_socket);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = ApiSocket::bind(&socket)
            .await
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let stop = async move {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        };
        http::serve(listener, Arc::new(Daemon::default()), stop).await.context("the API server failed")
    })
}
