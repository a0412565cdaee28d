//! What can go wrong with a device in an object store.

use ::device::Cause;

use crate::bucket::BucketError;

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The store.
    #[error("{address}: {key}: {error}")]
    Store {
        /// Where it is.
        address: String,
        /// What was asked for.
        key: String,
        /// What it said.
        error: BucketError,
    },
    /// An object is not what it should be.
    #[error("the object {key} is damaged: {what}")]
    Damaged {
        /// The object.
        key: String,
        /// What is wrong.
        what: Damage,
    },
    /// There is no device.
    #[error("{address} has no device of Cenote")]
    NoDevice {
        /// Where.
        address: String,
    },
    /// There is one already.
    #[error("{address} has a device already; take another prefix, or remove what is there")]
    IsThere {
        /// Where.
        address: String,
    },
    /// A size that cannot be.
    #[error("a device has 64 MiB to 1 EiB, in whole units of 4 KiB")]
    Size,
    /// Another host has opened the device to write.
    #[error("another host has taken the device over; nothing was written since")]
    TakenOver,
    /// It has ended.
    #[error("the device is closed")]
    Closed,
}

/// What is wrong with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Its length.
    #[error("it is too short or too long")]
    Short,
    /// Not ours.
    #[error("it was not made by Cenote")]
    Foreign,
    /// Newer.
    #[error("it has version {0} of the format, which this program does not know")]
    Version(u16),
    /// Another kind.
    #[error("it is of another kind")]
    Kind,
    /// Checksum.
    #[error("its checksum is wrong")]
    Hash,
    /// Another device.
    #[error("it is of another device")]
    Device,
    /// Another number.
    #[error("it has another number than its name says")]
    Number,
    /// What it says.
    #[error("it says what cannot be")]
    Body,
    /// It is missing.
    #[error("it is missing")]
    Missing,
}

impl Error {
    /// As devices say it.
    pub(crate) fn cause(self) -> Cause {
        use BucketError::{Refused, TooLong, Unsure};
        match self {
            Self::TakenOver => Cause::TakenOver,
            Self::NoDevice { .. } => Cause::Missing,
            Self::Store { error: Unsure(_) | Refused(_) | TooLong, .. } => {
                Cause::Unreachable { said: self.to_string() }
            }
            error => Cause::Store { said: error.to_string() },
        }
    }

    /// An object is not what it should be.
    pub fn damaged(key: &str, what: Damage) -> Self {
        Self::Damaged { key: key.to_owned(), what }
    }
}
