//! Disks that are read from a device, by shards that never sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::{Device, FileDevice};
use server::block::{Caller, Export, ExportError, Exports, Extent, FailureKind, Limits, Listed, Unopened};

use crate::harness::{Initiator, Served, TARGET};

/// A disk that is a file.
struct OnFile(FileDevice);

impl Export for OnFile {
    fn size_bytes(&self) -> u64 {
        1 << 20
    }

    fn block_bytes(&self) -> u32 {
        4096
    }

    async fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
        let failed =
            |error: device::IoError| ExportError { kind: FailureKind::Io, message: error.to_string() };
        let read = self.0.read(offset, into.len()).await.map_err(failed)?;
        into.copy_from_slice(&read);
        Ok(())
    }

    async fn extent(&self, offset: u64) -> Result<Extent, ExportError> {
        Ok(Extent { len_bytes: (1 << 20) - offset, is_hole: false })
    }
}

struct OneDisk(Arc<OnFile>);

impl Exports for OneDisk {
    type Export = OnFile;

    async fn listed(&self, _: Caller<'_>) -> Vec<Listed> {
        vec![Listed::to_all("tank/disk")]
    }

    async fn open(&self, _: &str, _: Caller<'_>) -> Result<Arc<OnFile>, Unopened> {
        Ok(Arc::clone(&self.0))
    }
}

#[test]
fn a_shard_that_never_sleeps_asks_its_devices_all_the_same() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, [7; 1 << 20]).unwrap();
    let disk = OneDisk(Arc::new(OnFile(FileDevice::open(file.path()).unwrap())));
    let served = Served::start_with(disk, None, Limits::default());
    let mut host = Initiator::log_in(&served, TARGET, &[]);
    let shards = served.shards.clone().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    for _ in 0..shards.count() {
        let is_over = Arc::clone(&is_over);
        shards.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
        });
    }
    for at in 0..8 {
        host.begin(&[0x28, 0, 0, 0, 0, at * 8, 0, 0, 8, 0], 4096, true, &[]);
    }
    let answers: Vec<_> = (0..8).map(|_| host.answer()).collect();
    is_over.store(true, Ordering::Relaxed);
    for answer in answers {
        assert_eq!(answer.expect("an answer").data, [7; 4096]);
    }
}
