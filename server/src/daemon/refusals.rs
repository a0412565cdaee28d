//! Refusals that many requests have in common.

use crate::api::ApiError;

/// An error in a sentence that says what was being done.
pub(super) fn refused(doing: &str, error: engine::Error) -> ApiError {
    let ApiError { kind, message } = error.into();
    ApiError { kind, message: format!("{doing}: {message}") }
}

/// The error about a pool whose devices are missing.
pub(super) fn suspended(doing: &str) -> ApiError {
    ApiError::refused(format!("{doing}: pool I/O is currently suspended"))
}
