//! Block status: which parts of a range are holes (`base:allocation`).

use super::protocol::*;
use crate::block::{Export, ExportError, Extent};

/// How many extents one reply tells of at most; the client asks again from where they end.
const MAX_EXTENTS: usize = 1024;

/// How many steps one request takes at most: each may read an indirect block.
const MAX_STEPS: usize = 8192;

/// The payload of a block status chunk about the range: the context's number, then length and state of each
/// extent.
pub(super) async fn describe<E: Export>(
    export: &E,
    offset: u64,
    len_bytes: u32,
    only_first: bool,
) -> Result<Vec<u8>, ExportError> {
    let end = offset + u64::from(len_bytes);
    let mut at = offset;
    let mut extents: Vec<Extent> = Vec::new();
    for _ in 0..MAX_STEPS {
        if at >= end {
            break;
        }
        let found = export.extent(at).await?;
        // An empty extent would keep us here; what is not known to be a hole is data.
        let found = if found.len_bytes == 0 { Extent { len_bytes: end - at, is_hole: false } } else { found };
        let len_bytes = found.len_bytes.min(end - at);
        let is_last = extents.len() == if only_first { 1 } else { MAX_EXTENTS };
        match extents.last_mut() {
            Some(last) if last.is_hole == found.is_hole => last.len_bytes += len_bytes,
            Some(_) if is_last => break,
            _ => extents.push(Extent { len_bytes, ..found }),
        }
        at += len_bytes;
    }
    let mut payload = Vec::with_capacity(4 + 8 * extents.len());
    payload.extend(BASE_ALLOCATION_ID.to_be_bytes());
    for extent in extents {
        // Together they are no longer than the range, whose length is a u32.
        payload.extend((extent.len_bytes as u32).to_be_bytes());
        payload.extend(if extent.is_hole { STATE_HOLE | STATE_ZERO } else { 0 }.to_be_bytes());
    }
    Ok(payload)
}
