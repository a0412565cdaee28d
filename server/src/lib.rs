//! The daemon: HTTP API, NBD exports, FUSE mounts.
