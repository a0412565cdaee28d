//! `SharedBuf`: a window onto a buffer that several writes use at once.
//!
//! A mirror writes the same bytes to each child, a raidz the columns of one block to several, and the cache
//! may keep the block meanwhile. No copy is needed: the bytes do not change any more, so all of them hold the
//! same [`IoBuf`].

use std::{
    fmt,
    ops::{Deref, Range},
    sync::Arc,
};

use crate::{IoBuf, copy};

/// A window onto a shared buffer; cheap to clone and to cut.
#[derive(Clone)]
pub struct SharedBuf {
    buf: Arc<IoBuf>,
    start: usize,
    len: usize,
}

impl SharedBuf {
    /// The part `range` of this window.
    ///
    /// # Panics
    /// When the range does not lie within the window.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} lies outside of {} bytes",
            self.len
        );
        Self { buf: Arc::clone(&self.buf), start: self.start + range.start, len: range.len() }
    }

    /// The bytes as a buffer of the caller's own; copied only if they are shared.
    pub fn into_buf(self) -> IoBuf {
        let window = self.start..self.start + self.len;
        match Arc::try_unwrap(self.buf) {
            Ok(buf) => buf.narrow(window),
            Err(shared) => IoBuf::from(&shared[window]),
        }
    }

    /// One buffer of all the parts, one after the other.
    pub fn join(mut parts: Vec<Self>) -> IoBuf {
        if parts.len() == 1
            && let Some(part) = parts.pop()
        {
            return part.into_buf();
        }
        let mut joined = IoBuf::for_overwrite(parts.iter().map(|part| part.len).sum());
        let mut rest = &mut joined[..];
        for part in &parts {
            let (target, after) = rest.split_at_mut(part.len);
            copy(target, part);
            rest = after;
        }
        joined
    }

    /// Whether it begins at a multiple of `unit_bytes` in memory and is as long as one.
    pub(crate) fn is_made_of(&self, unit_bytes: usize) -> bool {
        self.as_ptr().addr().is_multiple_of(unit_bytes) && self.len.is_multiple_of(unit_bytes)
    }
}

impl From<IoBuf> for SharedBuf {
    fn from(buf: IoBuf) -> Self {
        Arc::new(buf).into()
    }
}

impl From<Arc<IoBuf>> for SharedBuf {
    fn from(buf: Arc<IoBuf>) -> Self {
        Self { start: 0, len: buf.len(), buf }
    }
}

impl Deref for SharedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for SharedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuf({} of {} bytes)", self.len, self.buf.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_somebody_else_holds_is_copied() {
        let whole = SharedBuf::from(IoBuf::from(&[1, 2, 3, 4, 5][..]));
        let place = whole.as_ptr();
        let part = whole.slice(1..4).slice(1..3);
        assert_eq!(*part, [3, 4]);
        assert_ne!(part.clone().into_buf().as_ptr(), place.wrapping_add(2));
        drop(whole);
        let own = part.into_buf();
        assert_eq!((&*own, own.as_ptr()), (&[3, 4][..], place.wrapping_add(2)));
    }

    #[test]
    fn parts_are_joined_in_their_order() {
        let whole = SharedBuf::from(IoBuf::from(&[1, 2, 3, 4, 5][..]));
        assert_eq!(
            *SharedBuf::join(vec![whole.slice(3..5), whole.slice(0..1), whole]),
            [4, 5, 1, 1, 2, 3, 4, 5]
        );
        assert!(SharedBuf::join(Vec::new()).is_empty());
    }
}
