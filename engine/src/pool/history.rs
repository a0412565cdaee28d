//! The command history kept in the pool.
