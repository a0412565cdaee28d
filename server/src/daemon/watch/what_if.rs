//! What a cache of another size would do, by the reads of open pools.

use engine::cache::what_if::Report;
use ondisk::ObjectId;

use crate::api::{self, ApiError, Curve, Listed, Points, PoolWhatIf, Prediction};
use crate::daemon::{Daemon, OpenPool};

impl Daemon {
    /// The miss-ratio curves of pools.
    ///
    /// # Errors
    /// None: a pool that is not open becomes an entry of `failed`.
    pub async fn what_if(&self, request: api::GetWhatIf) -> Result<Listed<PoolWhatIf>, ApiError> {
        let (pools, failed) = self.pools_named(&request.pools);
        let mut listed = Listed { entries: Vec::new(), failed };
        for pool in pools {
            let mut curves = Vec::new();
            for report in pool.view().what_if() {
                if let Some(mut curve) = curve(&pool, report).await {
                    curve.now = curve.prediction(self.cache.budget_bytes());
                    curves.push(curve);
                }
            }
            listed.entries.push(PoolWhatIf {
                name: pool.name().to_owned(),
                arc_bytes: self.cache.budget_bytes(),
                arc_max_bytes: self.arc_max(),
                curves,
            });
        }
        Ok(listed)
    }
}

/// The curve with the name of its dataset; none where that is gone, or is no dataset.
async fn curve(pool: &OpenPool, report: Report) -> Option<Curve> {
    let dataset = match report.readers.objset {
        None => None,
        Some(objset) => {
            let dataset = pool.dsl().await.ok()?.dataset_of_object(ObjectId(objset)).await.ok()?;
            (!dataset.dir.is_internal()).then_some(dataset.name)?.into()
        }
    };
    let Report { samples, rate, followed_blocks, passes, distinct_blocks, distinct_bytes, .. } = report;
    Some(Curve {
        dataset,
        samples,
        rate,
        followed_blocks,
        passes,
        now: Prediction::default(),
        distinct_blocks,
        distinct_bytes,
        distinct_stored_bytes: report.distinct_stored_bytes,
        distinct_metadata_bytes: report.distinct_metadata_bytes,
        metadata_share: report.metadata_share,
        points: Points(report.points.0),
        least_points: Points(report.least_points.0),
        metadata_points: Points(report.metadata_points.0),
    })
}
