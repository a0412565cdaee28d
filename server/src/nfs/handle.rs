//! File handles: which filesystem, snapshot, object and generation, as numbers that a file keeps.
//!
//! | bytes | what |
//! |---|---|
//! | 0-3 | `CNF1` |
//! | 4-11 | guid of the pool |
//! | 12-19 | guid of the dataset |
//! | 20-27 | guid of the snapshot, 0 for the filesystem itself |
//! | 28-35 | object number |
//! | 36-43 | generation |
//!
//! A handle says nothing that gives rights: each request is checked for the client's address and the user, as
//! if it came with the name of the file.

use super::xdr::{Garbage, Reader, Writer};
use crate::files::{FileId, FilesystemId};

const MAGIC: u32 = u32::from_be_bytes(*b"CNF1");
/// The longest handle of the protocol.
const MOST_BYTES: usize = 64;
/// The length of one of ours.
pub const BYTES: usize = 44;

/// A file of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The share.
    pub filesystem: FilesystemId,
    /// The file.
    pub file: FileId,
}

/// A handle that a client sent; `None` for one that is not ours.
pub fn read(reader: &mut Reader<'_>) -> Result<Option<Handle>, Garbage> {
    let bytes = reader.opaque(MOST_BYTES)?;
    if bytes.len() != BYTES {
        return Ok(None);
    }
    let mut fields = Reader::new(bytes);
    if fields.number()? != MAGIC {
        return Ok(None);
    }
    let filesystem = FilesystemId { pool: fields.long()?, dataset: fields.long()? };
    let (snapshot, object, generation) = (fields.long()?, fields.long()?, fields.long()?);
    Ok(Some(Handle { filesystem, file: FileId { snapshot, object, generation } }))
}

/// Writes a handle.
pub fn write(writer: &mut Writer, handle: Handle) {
    let Handle { filesystem, file } = handle;
    writer.number(BYTES as u32);
    writer.number(MAGIC);
    for field in [filesystem.pool, filesystem.dataset, file.snapshot, file.object, file.generation] {
        writer.long(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_comes_back_and_others_are_not_ours() {
        let handle = Handle {
            filesystem: FilesystemId { pool: 1 << 63, dataset: 2 },
            file: FileId { snapshot: 3, object: 4, generation: u64::MAX },
        };
        let mut writer = Writer::default();
        write(&mut writer, handle);
        let bytes = writer.finish();
        assert_eq!(bytes.len(), 4 + BYTES);
        assert_eq!(read(&mut Reader::new(&bytes)), Ok(Some(handle)));
        let mut other = bytes.clone();
        other[4] ^= 1;
        assert_eq!(read(&mut Reader::new(&other)), Ok(None));
        assert_eq!(read(&mut Reader::new(&[0, 0, 0, 4, 1, 2, 3, 4])), Ok(None));
        assert_eq!(read(&mut Reader::new(&[0, 0, 0, 68])), Err(Garbage));
    }
}
