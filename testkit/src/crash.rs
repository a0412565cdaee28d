//! Power cuts: what the devices of a pool may hold after the power failed at any moment.
//!
//! # The idea
//! A [`Recorder`] makes devices of memory that log, in one order for all of them, when each write began, when
//! it was answered, and what each flush covered. A run on such devices is one log. A [`Player`] goes through
//! the log and at any point gives the disks as a power cut could leave them:
//!
//! - Writes that were answered before a flush of their device began, where that flush was answered before the
//!   point, are there.
//! - Of all other writes that had begun, any subset is there, some of them in part: a power cut tears a write
//!   at sectors of 512 bytes.
//!
//! That is all that a device promises, and less than most keep. Nothing is promised between devices. Which
//! subset it is follows from a seed, so that a point and a seed name one state for ever.
//!
//! What must be on the disks afterwards a [`Volume`] knows: it keeps what was written and what was answered
//! when. A snapshot must be exactly what some moment had; what an intent log brought back must be, sector by
//! sector, of some moment between the last promise and the cut.
//!
//! Devices answer late and in turns that depend on the seed, so that code that does not wait for an answer
//! before it relies on it is found out.
//!
//! | module | what it owns |
//! |---|---|
//! | `disk` | sparse contents of a device, cheap to copy |
//! | `record` | the devices and their log |
//! | `replay` | from the log to disks after a power cut |
//! | `volume` | a volume's history, and which contents are right |

mod disk;
mod record;
mod replay;
mod volume;

pub use disk::Disk;
pub use record::{Recorder, RecordingDevice};
pub use replay::Player;
pub use volume::{SECTOR_BYTES, Step, Volume};
