//! Reading and checking every block of a pool.
