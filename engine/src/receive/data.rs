//! The bytes of blocks as they are stored: decompressed, and in this machine's order.

use device::IoBuf;
use ondisk::ByteOrder;
use ondisk::blkptr::CompressType;
use ondisk::byteswap::{self, Turned};
use ondisk::dmu::DmuType;

use crate::Block;
use crate::error::{Error, Result};

/// A block of `bytes` from a payload. What the payload does not fill is zeroes.
pub(super) fn block(
    payload: &[u8],
    compress: CompressType,
    (filled, bytes): (usize, usize),
    (order, dmu_type): (ByteOrder, DmuType),
) -> Result<Block> {
    let mut buffer = match compress {
        CompressType::Off if payload.len() == bytes => IoBuf::from(payload),
        _ => {
            let mut buffer = IoBuf::zeroed(bytes);
            let place = buffer.get_mut(..filled);
            let place =
                place.ok_or_else(|| Error::Invalid(format!("{filled} bytes in a block of {bytes}")))?;
            codec::compress::decompress(compress, payload, place)
                .map_err(|error| Error::Invalid(format!("a block does not decompress: {error}")))?;
            buffer
        }
    };
    if let Some(turned) = turned(&buffer, order, dmu_type)?
        && turned.len() == buffer.len()
    {
        buffer.copy_from_slice(&turned);
    }
    Ok(Block::from(buffer))
}

/// A compressed block of `bytes` that is stored as it came. It is decompressed all the same: a payload that
/// is not what it claims to be must not reach the pool, and readers want the bytes.
pub(super) fn packed(payload: &[u8], compress: CompressType, bytes: usize) -> Result<Block> {
    let mut buffer = IoBuf::zeroed(bytes);
    codec::compress::decompress(compress, payload, &mut buffer)
        .map_err(|error| Error::Invalid(format!("a block does not decompress: {error}")))?;
    Ok(Block::packed(buffer, compress, payload))
}

/// Bytes in this machine's order, where that is another one.
pub(super) fn turned(bytes: &[u8], order: ByteOrder, dmu_type: DmuType) -> Result<Option<Vec<u8>>> {
    if order == ByteOrder::Little || bytes.is_empty() {
        return Ok(None);
    }
    match byteswap::to_little(bytes, dmu_type, 0) {
        Ok(Turned::Same) => Ok(None),
        Ok(Turned::Bytes(turned)) => Ok(Some(turned)),
        Ok(Turned::Not) => Err(Error::Unsupported(
            "streams of big-endian machines with system attributes cannot be received by this version"
                .to_owned(),
        )),
        Err(error) => Err(Error::Invalid(format!("a block of a big-endian machine: {error}"))),
    }
}
