//! ZAP: dictionaries from names, or from arrays of numbers, to arrays of integers.

pub mod normalize;
