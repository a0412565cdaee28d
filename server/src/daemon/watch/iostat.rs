//! Reads and writes of open pools.

use engine::pool::status;
use engine::vdev::Vdev;
use engine::vdev::stats::{Queue, Transfer};
use engine::zio::write::WrittenBytes;

use crate::api::edge::Edge;
use crate::api::{self, ActiveTransfers, ApiError, Listed, PoolIo, Queued, Transfers, VdevIo, Written};
use crate::daemon::{Daemon, OpenPool};

impl Daemon {
    /// The counters of pools.
    ///
    /// # Errors
    /// None: a pool that is not open becomes an entry of `failed`.
    pub async fn io_stats(&self, request: api::GetIoStats) -> Result<Listed<PoolIo>, ApiError> {
        let (pools, failed) = self.pools_named(&request.pools);
        let mut listed = Listed { entries: Vec::new(), failed };
        for pool in pools {
            listed.entries.push(of_pool(&pool).await);
        }
        Ok(listed)
    }
}

async fn of_pool(open: &OpenPool) -> PoolIo {
    let view = open.view();
    // Of a pool whose devices are away, without space.
    let with_space = match open.dsl().await {
        Ok(dsl) => status::vdevs_with_space(&dsl).await.ok(),
        Err(_) => None,
    };
    let vdevs = view.vdevs();
    let auxiliary = vdevs.spares.iter().chain(vdevs.l2cache.iter());
    let counters = vdevs.tops.iter().chain(auxiliary).flat_map(Vdev::walk).map(of_vdev).collect();
    let age = vdevs.tops.iter().map(|top| top.stats.age()).max().unwrap_or_default();
    PoolIo {
        name: open.name().to_owned(),
        guid: open.guid().0,
        age_ns: u64::try_from(age.as_nanos()).unwrap_or(u64::MAX),
        vdevs: with_space.unwrap_or_else(|| status::vdevs(&view)).edge(),
        suspended: open.live().and_then(|live| live.suspended()).map(|(why, _)| why.to_string()),
        written: open.live().map(|live| written(&live.writer().written())),
        counters,
    }
}

fn written(bytes: &WrittenBytes) -> Written {
    Written {
        logical_bytes: bytes.data.logical,
        compressed_bytes: bytes.data.physical,
        allocated_bytes: bytes.data.allocated,
        device_bytes: bytes.data.devices,
        metadata_bytes: bytes.metadata.allocated,
        metadata_device_bytes: bytes.metadata.devices,
        log_bytes: bytes.log_bytes,
        log_device_bytes: bytes.log_device_bytes,
    }
}

fn of_vdev(vdev: &Vdev) -> VdevIo {
    let transfers = |kind| {
        let counted = vdev.stats.snapshot(kind);
        Transfers {
            operations: counted.operations,
            bytes: counted.bytes,
            total_ns: counted.total_ns,
            latency: counted.latency.to_vec(),
            total_latency: counted.total.to_vec(),
            sizes: counted.sizes.to_vec(),
        }
    };
    let queued = |queue| {
        let counted = vdev.stats.queued(queue);
        Queued { waited: counted.waited.to_vec(), joined: counted.joined.to_vec() }
    };
    VdevIo {
        guid: vdev.guid.0,
        read: transfers(Transfer::Read),
        scrub: transfers(Transfer::Scrub),
        write: transfers(Transfer::Write),
        sync_write: transfers(Transfer::SyncWrite),
        flush: transfers(Transfer::Flush),
        trim: transfers(Transfer::Discard),
        under_way: ActiveTransfers {
            sync_read: vdev.stats.under_way(Queue::SyncRead),
            sync_write: vdev.stats.under_way(Queue::SyncWrite),
            async_write: vdev.stats.under_way(Queue::AsyncWrite),
            scrub: vdev.stats.under_way(Queue::Scrub),
            trim: vdev.stats.under_way(Queue::Trim),
            async_write_pending: vdev.stats.pending(Queue::AsyncWrite),
        },
        async_queue: queued(Queue::AsyncWrite),
        sync_queue: queued(Queue::SyncWrite),
    }
}
