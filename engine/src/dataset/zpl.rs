//! Filesystems (the ZFS POSIX layer).
