//! The intent log.

use crate::error::Result;
use crate::txg::Tx;

/// The intent log of one dataset.
#[derive(Debug)]
pub struct Zil {}

impl Zil {
    /// Notes a change of the group of `tx` in memory. `record` is the encoded record (`lr_*`) without its sequence number.
    pub fn note(&self, _tx: &Tx, _object: u64, _record: Vec<u8>) {
        todo!()
    }

    /// Makes all that was noted so far stable.
    pub async fn commit(&self) -> Result<()> {
        todo!()
    }
}
