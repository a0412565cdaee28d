//! The thread that answers requests while a pool is up, and the shutdown.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::Result;
use server::api::ExportPool;
use server::daemon::Daemon;
use server::socket::Inherited;
use server::web;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::serve::Sockets;
use crate::serving::TcpArguments;

/// Why the end has come.
enum End {
    /// Ctrl-C: politely at first.
    Interrupt,
    /// SIGTERM, a closed terminal, or a request: no user is there to answer.
    Final,
    /// The sockets failed.
    Failed(anyhow::Error),
}

/// The thread that answers requests and hears signals.
pub struct Host {
    ends: mpsc::Receiver<End>,
    /// Dropped to stop it.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Host {
    /// Starts answering.
    pub fn start(daemon: &Arc<Daemon>, socket: &Path, tcp: &TcpArguments) -> Result<Self> {
        let runtime = server::runtime::for_requests()?;
        let daemon = Arc::clone(daemon);
        let sockets = runtime.block_on(async {
            let sockets = Sockets::bind(socket, tcp).await?;
            // It begins when it is asked for.
            let options = web::Options::default();
            anyhow::Ok(sockets.and_dashboard(options, &mut Inherited::default()).await)
        })?;
        let (sender, ends) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready_sender, ready) = mpsc::channel();
        let thread = thread::Builder::new().name("host".into()).spawn(move || {
            let failed = sender.clone();
            let served = runtime.block_on(async {
                tokio::spawn(hear_signals(Signals::listen()?, sender, Arc::clone(&daemon)));
                let stop = async {
                    // Either way its other end is gone.
                    let _ = stopped.await;
                };
                let serving = sockets.serve(&daemon, std::future::ready(()), stop);
                let mut serving = std::pin::pin!(serving);
                // Its first step tells the daemon where the volumes are.
                tokio::select! { biased; served = &mut serving => return served, () = std::future::ready(()) => {} }
                let _ = ready_sender.send(());
                serving.await
            });
            // A request that hangs must not keep the process.
            runtime.shutdown_background();
            if let Err(error) = served {
                let _ = failed.send(End::Failed(error));
            }
        })?;
        // An error instead comes out of `ends`.
        let _ = ready.recv();
        Ok(Self { ends, stop: Some(stop), thread: Some(thread) })
    }

    /// Waits for the end, and takes everything down.
    pub fn wait(mut self, daemon: &Arc<Daemon>) -> Result<()> {
        let mut asked_before = false;
        let result = loop {
            // Without a client that could ask, it ends too.
            let end = self.ends.recv().unwrap_or(End::Final);
            if let End::Interrupt = end
                && !asked_before
            {
                let politely = ExportPool { all: true, ..ExportPool::default() };
                match daemon.ask(&politely) {
                    Ok(_) => break Ok(()),
                    Err(error) if daemon.open_pools().is_empty() => break Err(error.into()),
                    Err(error) => {
                        // The terminal may be gone.
                        let mut err = std::io::stderr();
                        let _ = writeln!(err, "cenote: {error}\ncenote: Ctrl-C again takes it down by force");
                    }
                }
                asked_before = true;
                continue;
            }
            daemon.end_experiments();
            let closed = daemon.close_all();
            break match end {
                End::Failed(error) => Err(error),
                End::Interrupt | End::Final => closed.map_err(Into::into),
            };
        };
        // Where all was exported politely.
        daemon.end_experiments();
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        result
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// From here on they no longer end the process.
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

async fn hear_signals(mut signals: Signals, ends: mpsc::Sender<End>, daemon: Arc<Daemon>) {
    loop {
        let end = tokio::select! {
            _ = signals.interrupt.recv() => End::Interrupt,
            _ = signals.terminate.recv() => End::Final,
            _ = signals.hangup.recv() => End::Final,
            () = daemon.stopped() => End::Final,
        };
        if ends.send(end).is_err() {
            return;
        }
    }
}
