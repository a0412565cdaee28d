//! Space maps and metaslabs, read for verification.
