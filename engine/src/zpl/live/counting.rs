//! Completing the counts of a filesystem, after the pool got features that need them
//! ([`LiveObjset::begin_counting`]).
//!
//! All files are written again, a few in each group. Users of the filesystem continue meanwhile. The
//! filesystem may be closed; the next time it is opened, the counting begins anew.
//!
//! [`LiveObjset::begin_counting`]: crate::dmu::LiveObjset

use std::sync::Weak;

use ondisk::ObjectId;

use super::LiveZpl;
use crate::error::{Error, Result};

/// The number of files after which the filesystem is checked for users.
const AT_ONCE: usize = 256;

impl LiveZpl {
    /// Goes through all files while the filesystem is open and `goes_on`, which is called after each object,
    /// returns true. Returns whether all files were counted.
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
            // The file was freed meanwhile.
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
