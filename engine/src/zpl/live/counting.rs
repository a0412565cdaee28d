//! Making complete what a filesystem counts, after the pool got features that ask for it
//! ([`LiveObjset::begin_counting`]).
//!
//! All files are written again, a few in each group. Whoever uses the filesystem goes on meanwhile; it may be
//! closed, and the next who opens it begins anew.
//!
//! [`LiveObjset::begin_counting`]: crate::dmu::LiveObjset

use std::sync::Weak;

use ondisk::ObjectId;

use super::LiveZpl;
use crate::error::{Error, Result};

/// Files after which is looked whether anybody still has the filesystem.
const AT_ONCE: usize = 256;

impl LiveZpl {
    /// Goes through all files, as long as somebody has the filesystem open and `goes_on`, which is asked
    /// after each object, says so. Whether it came to the end.
    pub(crate) async fn count_all(zpl: &Weak<Self>, goes_on: &dyn Fn() -> bool) -> Result<bool> {
        if let Some(zpl) = zpl.upgrade() {
            zpl.objset.start_counting();
        }
        let mut next = ObjectId(1);
        while let Some(zpl) = zpl.upgrade() {
            for _ in 0..AT_ONCE {
                let Some(id) = zpl.objset.next_object(next).await? else {
                    let tx = zpl.begin_freeing().await?;
                    zpl.objset.end_counting(&tx);
                    return Ok(true);
                };
                zpl.count_one(id).await?;
                next = ObjectId(id.0 + 1);
                if !goes_on() {
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }

    async fn count_one(&self, id: ObjectId) -> Result<()> {
        let _locked = self.locks.lock(&[id]).await;
        match self.objset.object(id).await {
            Ok(object) => object.touch(&self.begin_freeing().await?),
            // Freed meanwhile.
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
