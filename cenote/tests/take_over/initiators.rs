//! Initiators of iSCSI.
