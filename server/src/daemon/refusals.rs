//! Refusals that many requests have in common.

use crate::api::{ApiError, ErrorKind};

/// An error in a sentence that says what was being done.
pub(super) fn refused(doing: &str, error: engine::Error) -> ApiError {
    let ApiError { kind, message } = error.into();
    ApiError { kind, message: format!("{doing}: {message}") }
}

/// The error about a pool whose devices are missing.
pub(super) fn suspended(doing: &str) -> ApiError {
    ApiError::refused(format!("{doing}: pool I/O is currently suspended"))
}

/// The message of a change for an engine's error, after the operation: OpenZFS's sentence where it has one.
pub(super) fn said(doing: &str, error: engine::Error) -> ApiError {
    let (kind, why) = match error {
        engine::Error::NotFound(_) => (ErrorKind::NotFound, "dataset does not exist".to_owned()),
        engine::Error::Exists(_) => (ErrorKind::Busy, "dataset already exists".to_owned()),
        // The engine says how much there is where it knows how much is needed.
        engine::Error::NoSpace(detail) if detail.ends_with(" is available") => {
            (ErrorKind::Failed, format!("out of space: {detail}"))
        }
        engine::Error::NoSpace(_) | engine::Error::Quota(_) => (ErrorKind::Failed, "out of space".to_owned()),
        other => {
            let ApiError { kind, message } = other.into();
            (kind, message)
        }
    };
    ApiError { kind, message: format!("{doing}: {why}") }
}
