//! What clients of volumes and of the dashboard send.

/// Units, keys, commands and parameters of iSCSI.
pub fn iscsi(bytes: &[u8]) {
    server::iscsi::untrusted::read(bytes);
}

/// Chains of descriptors, requests, and what is kept of those under way, of vhost-user-blk.
pub fn vhost_user(bytes: &[u8]) {
    server::vhost_user::untrusted::read(bytes);
}

/// Requests of HTTP, from their heads to the bodies of actions.
pub fn web(bytes: &[u8]) {
    server::web::untrusted::read(bytes);
}
