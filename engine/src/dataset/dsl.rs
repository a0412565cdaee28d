//! DSL directories and datasets: names, snapshots, clones, bookmarks, holds.
