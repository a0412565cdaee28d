//! The records of a stream, from a source of bytes.
//!
//! One record and its payload are in memory at a time. A payload is read in pieces, so that memory follows
//! what came and not what was promised.

use std::fmt;
use std::io::Read;

use ondisk::ByteOrder;
use ondisk::send::{Record, StreamReader};

use crate::error::{Error, Result};

/// What is read at once, in bytes.
const PIECE_BYTES: usize = 1 << 20;
/// A buffer that is larger is not kept for the next record, in bytes.
const KEPT_BYTES: usize = 2 << 20;

/// A stream that is read.
pub struct Records<'a> {
    input: &'a mut (dyn Read + Send),
    reader: StreamReader,
    buffer: Vec<u8>,
    position: u64,
}

impl fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("position", &self.position).finish_non_exhaustive()
    }
}

impl<'a> Records<'a> {
    /// A stream, or several one after the other, from the beginning of `input`.
    pub fn new(input: &'a mut (dyn Read + Send)) -> Self {
        Self { input, reader: StreamReader::new(), buffer: Vec::new(), position: 0 }
    }

    /// The same, whatever the checksums are: to look at a damaged stream.
    pub fn unverified(input: &'a mut (dyn Read + Send)) -> Self {
        Self { reader: StreamReader::unverified(), ..Self::new(input) }
    }

    /// How many bytes were read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Byte order of the stream whose `BEGIN` was read last.
    pub fn order(&self) -> ByteOrder {
        self.reader.order()
    }

    /// The next record with its payload. `None` where the input ends between streams.
    ///
    /// # Errors
    /// The stream is damaged or ends early, with the byte at which it does.
    pub fn next_record(&mut self) -> Result<Option<(Record, &[u8])>> {
        loop {
            let started = self.position;
            let wanted = self.reader.wants();
            let found = self.fill(wanted)?;
            if found == 0 && self.reader.may_end() {
                return Ok(None);
            }
            if found < wanted {
                return Err(Error::Invalid(format!("incomplete stream: it ends at byte {}", self.position)));
            }
            // The payload is asked for after the record was verified, and lies in the buffer then.
            let accepted = self.reader.accept(&self.buffer).map_err(|error| at(started, error))?;
            if let Some(item) = accepted {
                let record = item.record;
                let has_payload = !item.payload.is_empty();
                return Ok(Some((record, if has_payload { &self.buffer } else { &[] })));
            }
        }
    }

    /// Reads past the end of the stream whose `BEGIN` was read.
    ///
    /// # Errors
    /// As those of [`Records::next_record`].
    pub fn skip(&mut self) -> Result<()> {
        loop {
            match self.next_record()? {
                Some((Record::End(_), _)) => return Ok(()),
                Some(_) => {}
                None => {
                    let at = self.position;
                    return Err(Error::Invalid(format!("incomplete stream: it ends at byte {at}")));
                }
            }
        }
    }

    /// Fills the buffer with so many bytes, or fewer where the input ends.
    fn fill(&mut self, wanted: usize) -> Result<usize> {
        self.buffer.clear();
        if self.buffer.capacity() > KEPT_BYTES && wanted <= KEPT_BYTES {
            self.buffer = Vec::new();
        }
        while self.buffer.len() < wanted {
            let before = self.buffer.len();
            self.buffer.resize(before + (wanted - before).min(PIECE_BYTES), 0);
            let mut filled = before;
            while let Some(rest) = self.buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                match self.input.read(rest) {
                    Ok(0) => {
                        self.buffer.truncate(filled);
                        return Ok(filled);
                    }
                    Ok(read) => {
                        filled += read;
                        self.position += read as u64;
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        let at = self.position;
                        return Err(Error::Invalid(format!("incomplete stream: byte {at}: {error}")));
                    }
                }
            }
        }
        Ok(wanted)
    }
}

fn at(position: u64, error: ondisk::Error) -> Error {
    let what = match error {
        ondisk::Error::BadChecksum { .. } => "invalid stream (checksum mismatch)".to_owned(),
        // What does not begin like a stream is none.
        ondisk::Error::BadMagic { .. } => "invalid stream (bad magic number)".to_owned(),
        _ if position == 0 => "invalid stream (bad magic number)".to_owned(),
        other => return Error::Invalid(format!("invalid stream at byte {position}: {other}")),
    };
    Error::Invalid(format!("{what} at byte {position}"))
}
