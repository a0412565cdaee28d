//! The state of a pool and of each vdev, as data for `zpool status`.
