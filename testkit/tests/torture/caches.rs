//! Acts on cache devices: nothing that happens to one may be seen by a client.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use device::block_on;
use device::simulated::Fault;
use engine::pool::live::{Auxiliary, TakeOffline};
use engine::vdev::State;
use ondisk::Guid;
use testkit::Rng;

use super::acts::{Torture, is_refusal, name};

/// Sparse, and large enough for log blocks.
const CACHE_BYTES: u64 = 1280 << 20;
/// What is ever written to one in a short run.
const WRITTEN_BYTES: u64 = 32 << 20;
/// Where the header is, and the blocks after it.
const HEADER: u64 = 4 << 20;
/// The most cache devices.
const MOST: usize = 3;

impl Torture {
    /// Does something to a cache device, or adds one. Gives what.
    pub fn trouble_cache(&mut self, rng: &mut Rng) -> Result<Option<String>, String> {
        let caches = self.caches();
        if caches.is_empty() || (caches.len() < MOST && rng.below(4) == 0) {
            return self.add_cache().map(Some);
        }
        let Some((guid, path)) = rng.pick(&caches).cloned() else { return Ok(None) };
        let pool = self.pool();
        let what = match rng.below(8) {
            0 => block_on(pool.remove(guid)).map(|()| "removed"),
            1 => {
                self.inject(&path, Fault::Missing);
                Ok("pulled")
            }
            2 => {
                self.inject(&path, Fault::Flaky { one_in: 3 });
                Ok("flaky")
            }
            3 => block_on(pool.offline(guid, TakeOffline::Temporarily)).map(|()| "offline"),
            4 => {
                self.heal(&path);
                match block_on(pool.online(guid)) {
                    Ok(status) if status.state == State::Faulted => {
                        block_on(pool.clear(Some(guid))).map(|()| "cleared")
                    }
                    online => online.map(|_| "online"),
                }
            }
            5 => {
                let Some((_, other)) = rng.pick(&caches) else { return Ok(None) };
                let mut bytes = vec![0; WRITTEN_BYTES as usize];
                let copied = std::fs::File::open(other)
                    .and_then(|from| from.read_exact_at(&mut bytes, HEADER))
                    .and_then(|()| std::fs::File::options().write(true).open(&path))
                    .and_then(|to| to.write_all_at(&bytes, HEADER));
                copied.map_err(|error| format!("copying {}: {error}", name(&path)))?;
                Ok("gets what another one has")
            }
            _ => {
                overwrite(&path, rng).map_err(|error| format!("overwriting {}: {error}", name(&path)))?;
                Ok("overwritten")
            }
        };
        match what {
            Ok(what) => Ok(Some(format!("{} {what}", name(&path)))),
            Err(error) if is_refusal(&error) => Ok(None),
            Err(error) => Err(format!("cache device {}: {error}", name(&path))),
        }
    }

    /// Brings all cache devices back, and removes those that do not work.
    pub fn return_caches(&mut self) -> Result<(), String> {
        let pool = self.pool();
        for (guid, path) in self.caches() {
            self.heal(&path);
            let status = block_on(pool.online(guid));
            if !status.is_ok_and(|status| status.is_readable()) {
                block_on(pool.remove(guid)).map_err(|error| format!("removing {}: {error}", name(&path)))?;
            }
        }
        Ok(())
    }

    fn add_cache(&mut self) -> Result<String, String> {
        let new = self.new_disk(CACHE_BYTES);
        let path = new.path.clone();
        match block_on(self.pool().add_auxiliary(Auxiliary::Cache, vec![new])) {
            Ok(()) => Ok(format!("{} added", name(&path))),
            Err(error) => Err(format!("adding {}: {error}", name(&path))),
        }
    }

    fn caches(&self) -> Vec<(Guid, PathBuf)> {
        let caches = self.pool().pool().vdevs().l2cache.iter();
        caches.map(|cache| (cache.guid, PathBuf::from(&cache.name))).collect()
    }
}

fn overwrite(path: &std::path::Path, rng: &mut Rng) -> std::io::Result<()> {
    let file = std::fs::File::options().write(true).open(path)?;
    let byte = rng.below(256) as u8;
    for _ in 0..1 + rng.below(40) {
        let start = HEADER + rng.below(WRITTEN_BYTES);
        file.write_all_at(&vec![byte; 1 + rng.below(256 << 10) as usize], start)?;
    }
    if rng.once_in(4) {
        file.write_all_at(&[byte; 64], HEADER + rng.below(512))?;
    }
    Ok(())
}
