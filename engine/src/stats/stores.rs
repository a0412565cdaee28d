//! `store`: what devices asked of the object stores that they lie in.

use device::StoreUse;

use super::counters;

counters! {
    /// What a device asked of the object store that it lies in, since it was opened.
    StoreStats in "store" {
        puts: Counter, "Requests that wrote an object.";
        put_bytes: Counter, "Bytes of those.";
        gets: Counter, "Requests that read.";
        got_bytes: Counter, "Bytes of those.";
        deletes: Counter, "Objects that were deleted.";
        written_bytes: Counter, "Bytes that were written to the device.";
        moved_bytes: Counter, "Bytes that were written again, so that objects could be deleted.";
        needed_bytes: Gauge, "Bytes of the device that are needed.";
        kept_bytes: Gauge, "Bytes of all objects with data.";
        micro_dollars: Counter, "What the requests cost at S3's published prices, in millionths of a dollar.";
    }
}

impl From<StoreUse> for StoreStats {
    fn from(used: StoreUse) -> Self {
        Self {
            puts: used.puts,
            put_bytes: used.put_bytes,
            gets: used.gets,
            got_bytes: used.got_bytes,
            deletes: used.deletes,
            written_bytes: used.written_bytes,
            moved_bytes: used.moved_bytes,
            needed_bytes: used.needed_bytes,
            kept_bytes: used.kept_bytes,
            micro_dollars: used.micro_dollars(),
        }
    }
}
