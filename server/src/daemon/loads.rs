//! Load on volumes, put on them by this process itself ([`crate::load`]).
//!
//! Each client opens the volume on its shard, as a connection does. All of them end with the first that
//! fails, and with the request: whoever drops its future has no load left behind, but for what is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;

use super::{Daemon, OpenPool};
use crate::api::{self, ApiError};
use crate::load::{self, Noise, Tally};

/// A load under way.
#[derive(Debug)]
struct Run {
    pool: Arc<OpenPool>,
    request: api::RunLoad,
    noise: Noise,
    is_over: AtomicBool,
}

/// Ends a load when it is dropped.
struct Ends(Arc<Run>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

impl Run {
    /// Is one client. When it is done its handle on the volume is gone.
    async fn client(&self, number: u32) -> Result<Tally, ApiError> {
        let api::RunLoad { volume, load } = &self.request;
        // No link is modelled: nothing is between this and the volume.
        let export = self.pool.connect(volume, None).await?;
        let done = load::client(&*export, load, number, &self.noise, &self.is_over).await;
        done.map_err(|error| ApiError::failed(format!("the load on '{volume}' failed: {error}")))
    }
}

impl Daemon {
    /// Puts a load on a volume.
    ///
    /// # Errors
    /// A daemon that does not take loads, a load or volume that makes no sense, a request of the load that
    /// failed.
    pub async fn run_load(&self, request: api::RunLoad) -> Result<api::Loaded, ApiError> {
        if !self.takes_loads {
            return Err(ApiError::refused(
                "this daemon runs no load on volumes: 'cenote serve --take-loads' does, and overwrites their \
                 data",
            ));
        }
        let name = &request.volume;
        let pool = self.pool_of(name)?;
        let volume = pool.volumes().into_iter().find(|volume| volume.name() == name);
        let volume = volume.ok_or_else(|| ApiError::not_found(format!("there is no volume '{name}'")))?;
        load::check(&request.load, volume.size_bytes())?;
        let Some(shards) = self.shards.get().and_then(std::sync::Weak::upgrade) else {
            return Err(ApiError::refused("this daemon serves no volumes"));
        };
        let (clients, noise) = (request.load.clients, Noise::new(request.load.seed));
        let run = Arc::new(Run { pool, request, noise, is_over: AtomicBool::new(false) });
        let ends = Ends(Arc::clone(&run));
        let mut results = Vec::new();
        for number in 0..clients {
            let (sender, result) = oneshot::channel();
            let run = Arc::clone(&run);
            shards.spawn(async move {
                let done = run.client(number).await;
                if done.is_err() {
                    run.is_over.store(true, Ordering::Relaxed);
                }
                drop(run);
                // Who asked may have gone away.
                let _ = sender.send(done);
            });
            results.push(result);
        }
        drop((run, shards));
        let mut all = Ok(Tally::default());
        for result in results {
            let done = result.await;
            let done = done.unwrap_or_else(|_| Err(ApiError::failed("the daemon ended during the load")));
            all = all.and_then(|mut all: Tally| {
                all.add(&done?);
                Ok(all)
            });
        }
        drop(ends);
        all.map(|tally| tally.figures())
    }
}
