//! Bytes that must not be on a device, looked for in its raw file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

const CHUNK_BYTES: usize = 1 << 20;

/// Where `wanted` is in a file for the first time, if it is there.
///
/// # Errors
/// The file cannot be read.
pub fn find(path: &Path, wanted: &[u8]) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    // The end of what was read before stays in front, for what lies across two pieces.
    let mut bytes = Vec::new();
    let mut start = 0;
    loop {
        let read = file.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut bytes)?;
        if let Some(at) = position(&bytes, wanted) {
            return Ok(Some(start + at as u64));
        }
        if read == 0 {
            return Ok(None);
        }
        let done = bytes.len().saturating_sub(wanted.len());
        bytes.drain(..done);
        start += done as u64;
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = wanted.first()?;
    let mut from = 0;
    loop {
        let at = from + bytes.get(from..)?.iter().position(|byte| byte == first)?;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_across_pieces_is_found_and_a_part_of_it_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for at in [0, 7, CHUNK_BYTES - 3, CHUNK_BYTES, 3 * CHUNK_BYTES - 1] {
            let mut bytes = vec![b'p'; at];
            bytes.extend(b"planted");
            bytes.resize(4 * CHUNK_BYTES, 0);
            std::fs::write(file.path(), &bytes).unwrap();
            assert_eq!(find(file.path(), b"planted").unwrap(), Some(at as u64));
            assert_eq!(find(file.path(), b"plantet").unwrap(), None);
        }
        std::fs::write(file.path(), b"plante").unwrap();
        assert_eq!(find(file.path(), b"planted").unwrap(), None);
    }
}
