//! The vdev tree: mirror, raidz, draid, indirect, replacing, spare, missing, hole; labels; error counters.
