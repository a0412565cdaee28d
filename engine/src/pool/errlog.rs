//! The persistent error log: blocks known to be damaged, by dataset, object and path.
