//! The reads of an open pool, as the lab's models take them.

use anyhow::{Result, bail};
use lab::models::cache_reads::{CacheReads, Reads};
use lab::size::Size;
use server::api::{Curve, GetWhatIf, PoolWhatIf};

use crate::client;

/// What cache devices of one size, or of several, would do for a pool.
///
/// # Errors
/// No daemon runs, the pool is not open, or nothing was read yet.
pub fn cache_reads(pool: &str, size: Option<Size>) -> Result<CacheReads> {
    let Some(listed) = client::call_running(&GetWhatIf { pools: vec![pool.to_owned()] })? else {
        bail!("no daemon runs, so no reads of {pool} are known; any command on the pool starts one");
    };
    let Some(found) = listed.entries.into_iter().next() else {
        bail!("{}", listed.failed.first().map_or("no such pool", |failed| failed.message.as_str()));
    };
    let Some(curve) = of_all(&found) else { bail!("{pool}: nothing was read since the pool was opened") };
    let reads = Reads {
        pool,
        samples: curve.samples,
        arc: Size(found.arc_bytes),
        block: curve.mean_stored_bytes(),
        stored: curve.distinct_stored_bytes,
        metadata_misses: curve.metadata_misses(found.arc_bytes),
        answered: &|memory, device| curve.hit_ratio_with_device(memory, device),
    };
    Ok(CacheReads::of(&reads, size)?)
}

fn of_all(pool: &PoolWhatIf) -> Option<&Curve> {
    pool.curves.iter().find(|curve| curve.dataset.is_none())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_lab_counts_headers_as_the_engine_does() {
        assert_eq!(lab::models::l2arc::HEADER_BYTES, engine::l2arc::HEADER_BYTES);
    }
}
