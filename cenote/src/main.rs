//! OpenZFS-compatible storage in userspace: one binary for pools, volumes and filesystems.

fn main() {}
