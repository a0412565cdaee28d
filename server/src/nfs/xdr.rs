//! XDR: numbers and bytes as RPC has them, in both directions.
//!
//! | type | bytes |
//! |---|---|
//! | unsigned, enum, boolean | 4, the highest first |
//! | hyper | 8 |
//! | fixed opaque | as they are, filled up to a multiple of 4 |
//! | opaque, string | length 4, then as fixed opaque |
//!
//! Source of the facts: RFC 4506.

/// Arguments that are no such thing: too short, too long, or with a number that means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Garbage;

/// Reads arguments.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// From the beginning.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Garbage> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Garbage)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next number of 4 bytes.
    pub fn number(&mut self) -> Result<u32, Garbage> {
        let bytes = self.take(4)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    /// The next number of 8 bytes.
    pub fn long(&mut self) -> Result<u64, Garbage> {
        Ok(u64::from(self.number()?) << 32 | u64::from(self.number()?))
    }

    /// The next boolean.
    pub fn flag(&mut self) -> Result<bool, Garbage> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// So many bytes.
    pub fn fixed(&mut self, length: usize) -> Result<&'a [u8], Garbage> {
        let taken = self.take(length)?;
        self.take(length.next_multiple_of(4) - length)?;
        Ok(taken)
    }

    /// Bytes of a length that they begin with, of at most `most`.
    pub fn opaque(&mut self, most: usize) -> Result<&'a [u8], Garbage> {
        let length = self.number()? as usize;
        if length > most { Err(Garbage) } else { self.fixed(length) }
    }
}

/// Writes an answer.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// The length so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// A number of 4 bytes.
    pub fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    /// A number of 8 bytes.
    pub fn long(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    /// A boolean.
    pub fn flag(&mut self, flag: bool) {
        self.number(u32::from(flag));
    }

    /// Bytes without their length.
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.fill();
    }

    /// Bytes with their length.
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u32);
        self.fixed(bytes);
    }

    /// Up to `most` bytes with their length, as `fill` fills them; it says how many they are.
    pub fn filled<E>(
        &mut self,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let at = self.0.len();
        self.0.resize(at + 4 + most, 0);
        let length = fill(&mut self.0[at + 4..]).map(|length| length.min(most));
        let kept = *length.as_ref().unwrap_or(&0);
        self.0.truncate(at + 4 + kept);
        self.set(at, kept as u32);
        self.fill();
        length
    }

    /// Changes a number that was written at a place.
    pub fn set(&mut self, at: usize, number: u32) {
        if let Some(place) = self.0.get_mut(at..at + 4) {
            place.copy_from_slice(&number.to_be_bytes());
        }
    }

    /// Takes back what was written after so many bytes.
    pub fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }

    /// What was written.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    fn fill(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut writer = Writer::default();
        writer.number(7);
        writer.long(1 << 40);
        writer.flag(true);
        writer.opaque(b"abcde");
        let filled = writer.filled(100, |into| {
            into[..3].copy_from_slice(b"xyz");
            Ok::<_, Garbage>(3)
        });
        assert_eq!(filled, Ok(3));
        writer.fixed(b"1234");
        let bytes = writer.finish();
        assert_eq!(bytes.len() % 4, 0);
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.number(), Ok(7));
        assert_eq!(reader.long(), Ok(1 << 40));
        assert_eq!(reader.flag(), Ok(true));
        assert_eq!(reader.opaque(5), Ok(&b"abcde"[..]));
        assert_eq!(reader.opaque(3), Ok(&b"xyz"[..]));
        assert_eq!(reader.fixed(4), Ok(&b"1234"[..]));
        assert_eq!(reader.number(), Err(Garbage));
    }

    #[test]
    fn lengths_beyond_the_bytes_or_the_bound_are_garbage() {
        let mut bytes = u32::MAX.to_be_bytes().to_vec();
        bytes.extend_from_slice(&[0; 16]);
        assert_eq!(Reader::new(&bytes).opaque(usize::MAX), Err(Garbage));
        assert_eq!(Reader::new(&[0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0]).opaque(4), Err(Garbage));
        assert_eq!(Reader::new(&[0, 0, 0, 5, 1, 2, 3, 4, 5]).opaque(8), Err(Garbage), "not filled up");
        assert_eq!(Reader::new(&[0, 0, 0, 2]).flag(), Err(Garbage));
    }
}
