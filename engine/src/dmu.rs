//! Objects: dnodes, block trees, ZAP and SA over blocks.
