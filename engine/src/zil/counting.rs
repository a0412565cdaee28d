//! What a log counts, for the process and for its dataset.

use ondisk::blkptr::Blkptr;

use super::Inner;
use super::plan::{Part, Planned};
use crate::stats::{ZIL, ZilCounters};

impl Inner {
    /// Counts something.
    pub(super) fn count(&self, what: impl Fn(&ZilCounters)) {
        what(&ZIL);
        if let Some(stats) = self.backing.stats() {
            what(stats);
        }
    }

    /// Counts a log block that is written.
    pub(super) fn count_block(&self, planned: &Planned, bp: &Blkptr) {
        let copied = planned.parts.iter().filter_map(|part| match part {
            Part::Write { length, .. } => Some(*length as u64),
            Part::Record(_) => None,
        });
        let (writes, bytes) = copied.fold((0, 0), |(writes, bytes), length| (writes + 1, bytes + length));
        let (used, written) = (planned.record_bytes() as u64, bp.psize().get());
        let (allocated, is_slog) = (bp.asize().get(), self.backing.is_on_log_device(bp));
        self.count(|zil| {
            zil.zil_itx_count.add(planned.parts.len() as u64);
            zil.zil_itx_needcopy_count.add(writes);
            zil.zil_itx_needcopy_bytes.add(bytes);
            let [blocks, records, sizes, space] = match is_slog {
                true => [
                    &zil.zil_itx_metaslab_slog_count,
                    &zil.zil_itx_metaslab_slog_bytes,
                    &zil.zil_itx_metaslab_slog_write,
                    &zil.zil_itx_metaslab_slog_alloc,
                ],
                false => [
                    &zil.zil_itx_metaslab_normal_count,
                    &zil.zil_itx_metaslab_normal_bytes,
                    &zil.zil_itx_metaslab_normal_write,
                    &zil.zil_itx_metaslab_normal_alloc,
                ],
            };
            blocks.bump();
            records.add(used);
            sizes.add(written);
            space.add(allocated);
        });
    }

    /// Counts a write that is logged by a pointer to its block.
    pub(super) fn count_indirect(&self, bytes: u64) {
        self.count(|zil| {
            zil.zil_itx_indirect_count.bump();
            zil.zil_itx_indirect_bytes.add(bytes);
        });
    }
}
