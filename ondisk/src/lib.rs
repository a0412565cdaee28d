//! OpenZFS on-disk structures: bytes to types and back, no I/O, no policy.
