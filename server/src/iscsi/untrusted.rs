//! Any bytes read as what an initiator, or a pool, may hand over: for fuzzers. Nothing is done with it.

use futures_util::FutureExt;

use super::login::OWN_DATA_BYTES;
use super::pdu::{self, Digests};
use super::scsi;
use super::text::{self, Text};
use super::{Secrets, names};

/// Reads bytes as units of the protocol, as keys and values, as commands with their parameters, and as what
/// is kept of reservations. Returns for any bytes.
pub fn read(bytes: &[u8]) {
    for digests in [Digests::default(), Digests { header: true, data: true }] {
        let mut rest = bytes;
        // All bytes are there: nothing waits.
        while let Some(Ok(unit)) = pdu::read(&mut rest, digests, OWN_DATA_BYTES).now_or_never() {
            assert!(unit.data.len() <= OWN_DATA_BYTES);
        }
    }
    if let Some(keys) = Text::parse(bytes) {
        assert_eq!(Text::parse(&keys.to_bytes()).map(|again| again.0), Some(keys.0.clone()));
        for (_, value) in &keys.0 {
            let _ = (text::number(value), text::bytes(value, 1024), names::target(value));
        }
    }
    let _ = Secrets::parse(&String::from_utf8_lossy(bytes));
    scsi::read_untrusted(bytes);
}
