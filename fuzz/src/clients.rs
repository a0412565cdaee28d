//! What clients of volumes send.

/// Units, keys, commands and parameters of iSCSI.
pub fn iscsi(bytes: &[u8]) {
    server::iscsi::untrusted::read(bytes);
}
