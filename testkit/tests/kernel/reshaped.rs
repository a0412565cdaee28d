//! Volumes that got another volblocksize while they held data: the module reads them, and what they were.

use std::path::PathBuf;
use std::sync::Arc;

use device::block_on;
use engine::jobs::JobState;
use engine::pool::live::{Layout, Swapped, VolumeUsers};
use futures_util::future::LocalBoxFuture;
use ondisk::vdev_config::PoolState;
use testkit::kernel::{Job, KernelVm};
use testkit::manifest::hex_sha256;

use super::scrub::import;
use super::{DISK_BYTES, VOLUME_BYTES, content, create};

/// No client has the volume.
struct NoUsers;

impl VolumeUsers for NoUsers {
    fn exchange<'a>(
        &'a self,
        _: &'a str,
        exchange: LocalBoxFuture<'a, engine::Result<Swapped>>,
    ) -> LocalBoxFuture<'a, engine::Result<Option<Swapped>>> {
        Box::pin(async move { exchange.await.map(Some) })
    }
}

#[test]
fn the_kernel_reads_a_volume_that_got_other_blocks_and_the_old_one() {
    let Some(vm) = KernelVm::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let disks: Vec<PathBuf> = (0..3).map(|index| folder.path().join(format!("d{index}"))).collect();
    for disk in &disks {
        std::fs::File::create(disk).and_then(|file| file.set_len(DISK_BYTES)).expect("a disk");
    }
    let bytes = content(VOLUME_BYTES);
    create(Layout::Raidz { nparity: 1 }, &disks, &bytes);
    let kept = block_on(async {
        let pool = import(&disks, 2).await;
        let users: Arc<dyn VolumeUsers> = Arc::new(NoUsers);
        pool.set_volume_users(Arc::downgrade(&users));
        pool.reshape("tank/vol", 64 << 10).await.expect("a copy");
        pool.wait_for_jobs(|_, state| state == JobState::Active).await;
        let status = pool.reshapes().remove(0);
        assert_eq!(status.job.state, JobState::Complete, "{status:?}");
        pool.close(PoolState::Exported).await.expect("an export");
        status.kept.expect("the old volume")
    });
    let script = format!(
        "
        set -e
        zpool import -d /dev tank
        zpool scrub -w tank
        zpool status -v tank
        zfs get -H -o name,value volblocksize tank/vol {kept}
        zfs list -H -t snapshot -o name
        for i in $(seq 20); do [ -e /dev/zd0 ] && [ -e /dev/zd16 ] && break; sleep 1; done
        sha256sum /dev/zd0 /dev/zd16
        zfs rollback {kept}@ours
        dd if=/dev/zero of=/dev/zd0 bs=1M count=1 conv=notrunc,fsync 2>/dev/null
        dd if=/dev/zero of=/dev/zd16 bs=1M count=1 conv=notrunc,fsync 2>/dev/null
        zfs destroy -r {kept}
        zpool scrub -w tank
        zpool status -v tank
        zpool export tank
        "
    );
    let outcome = vm.run(&Job::new(script, disks.clone())).expect("the machine runs");
    let said = &outcome.output;
    assert_eq!(outcome.code, Some(0), "{said}");
    assert_eq!(said.matches("errors: No known data errors").count(), 2, "{said}");
    assert_eq!(said.matches(&hex_sha256(&bytes)).count(), 2, "both volumes: {said}");
    assert!(said.contains("tank/vol\t64K") && said.contains(&format!("{kept}\t16K")), "{said}");
    assert!(said.contains(&format!("{kept}@ours")), "{said}");
    block_on(async {
        let pool = import(&disks, 3).await;
        let id =
            engine::dsl::Dsl::open(&pool.view()).await.unwrap().find("tank/vol").await.unwrap().objset_id();
        let volume = pool.volume(id).await.expect("a volume");
        let mut found = vec![1; VOLUME_BYTES as usize];
        volume.read_at(0, &mut found).await.expect("a read");
        assert!(found[..1 << 20].iter().all(|byte| *byte == 0) && found[1 << 20..] == bytes[1 << 20..]);
        pool.close(PoolState::Exported).await.expect("an export");
    });
}
