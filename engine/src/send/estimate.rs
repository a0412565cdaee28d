//! How large a stream will be, from what the datasets count.
//!
//! Nothing is read of the data: all is taken for blocks of the record size, without what small objects take.
//! The numbers are OpenZFS's.

use ondisk::send::RECORD_SIZE;

use crate::dsl::{Dataset, Dsl, Kind, Since};
use crate::error::{Error, Result};
use crate::properties::{Environment, Prop};

/// Bytes of a block pointer, which indirect blocks have for each block.
const POINTER_BYTES: u64 = 128;

/// What a stream is incremental from, as its estimate needs it.
#[derive(Debug, Clone, Copy)]
pub enum Base {
    /// Nothing: the stream is full.
    Nothing,
    /// A snapshot, or a bookmark that says what was referenced.
    Since(Since),
    /// A bookmark that does not.
    Unknown,
}

/// Bytes of a stream of `dataset`; none where only making it tells.
pub(super) async fn estimate(
    dsl: &Dsl,
    dataset: &Dataset,
    base: &Base,
    is_compressed: bool,
) -> Result<Option<u64>> {
    if !dataset.is_snapshot() {
        return Err(Error::Invalid(format!("'{}' is not a snapshot", dataset.name)));
    }
    let (uncompressed, compressed) = match base {
        Base::Nothing => (dataset.phys.uncompressed_bytes, dataset.phys.compressed_bytes),
        Base::Since(since) => {
            let space = dsl.space_written(dataset, since).await?;
            (space.uncompressed_bytes, space.compressed_bytes)
        }
        Base::Unknown => return Ok(None),
    };
    let blocks = uncompressed / block_bytes(dsl, dataset).await?.max(1);
    let record_bytes = RECORD_SIZE as u64;
    let bytes = if is_compressed { compressed } else { uncompressed };
    let bytes = bytes.wrapping_sub(blocks.wrapping_mul(POINTER_BYTES));
    let bytes = bytes.wrapping_add(blocks.wrapping_mul(record_bytes));
    // Those of `BEGIN` and `END`.
    Ok(Some(bytes.wrapping_add(2 * record_bytes)))
}

/// The size that all blocks are taken to have. Volumes have the default, whatever theirs is: OpenZFS does not
/// find the property of a volume by its snapshot.
async fn block_bytes(dsl: &Dsl, dataset: &Dataset) -> Result<u64> {
    let head = dsl.entry(&dataset.dir.name).await?;
    if head.kind == Kind::Volume {
        return Ok(Prop::Volblocksize.desc().default_number());
    }
    let set = dsl.properties(&head, &Environment::UNMOUNTED).await?;
    Ok(set.stored_number(Prop::Recordsize))
}
