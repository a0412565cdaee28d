//! The limit of the size of dedup tables: the pool property `dedup_table_quota`.
//!
//! Over the quota, blocks that have no entry yet get none, and are ordinary blocks; entries that exist go on
//! counting. The figure is that of the last group, so a group may go beyond the quota by what it adds.
//!
//! With `auto`, which is the default, the vdevs that are meant for tables are the limit: those of the class
//! `dedup`, or of `special` where there are none, when 85 % of them are allocated, or all but 8 GiB where
//! that is more. Without such vdevs there is no limit.
//!
//! Source of the facts: OpenZFS 2.4 `ddt.c` (`ddt_over_quota`, `ddt_special_over_quota`).

use ondisk::ObjectId;
use ondisk::pool_directory::PROPS;

use crate::alloc::ClassSpace;
use crate::dmu::zap::edit;
use crate::error::Result;
use crate::mos::MosTask;
use crate::vdev::Class;

const NAME: &str = "dedup_table_quota";
const NONE: u64 = 0;
const AUTO: u64 = u64::MAX;
/// What large classes keep free.
const KEPT_BYTES: u64 = 8 << 30;

/// Whether tables of so many bytes are over the quota of the pool.
pub(super) async fn is_over(m: &MosTask, table_bytes: u64) -> Result<bool> {
    let quota = match m.directory_u64(PROPS).await?.filter(|props| *props != 0) {
        Some(props) => edit::lookup_u64(&m.mos().object(ObjectId(props)).await?, NAME).await?,
        None => None,
    };
    Ok(match quota.unwrap_or(AUTO) {
        NONE => false,
        AUTO => {
            let classes = [Class::Dedup, Class::Special].map(|class| m.allocator().space(class));
            let class = classes.into_iter().find(|space| space.size_bytes > 0);
            class.is_some_and(|space| is_full(&space))
        }
        bytes => table_bytes > bytes,
    })
}

fn is_full(space: &ClassSpace) -> bool {
    let most = space.size_bytes.saturating_sub(KEPT_BYTES).max(space.size_bytes / 100 * 85);
    space.allocated_bytes >= most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_classes_are_full_at_85_percent_and_large_ones_with_8_gib_left() {
        let space =
            |size_bytes, allocated_bytes| ClassSpace { size_bytes, allocated_bytes, ..Default::default() };
        assert!(!is_full(&space(1000 << 20, 849 << 20)) && is_full(&space(1000 << 20, 850 << 20)));
        assert!(!is_full(&space(1000 << 30, 991 << 30)) && is_full(&space(1000 << 30, 992 << 30)));
    }
}
