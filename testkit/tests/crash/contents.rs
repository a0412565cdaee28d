//! What the volumes and snapshots of a run hold.

use testkit::Rng;
use testkit::crash::SECTOR_BYTES;

/// What a volume or snapshot holds.
#[derive(Clone, Debug)]
pub enum Contents {
    /// What clients write to the volume of that name.
    Live(&'static str),
    /// What such a volume held at some moment.
    Moment {
        volume: &'static str,
        /// For each lane: steps that it must hold, and steps that it may.
        bounds: Vec<(usize, usize)>,
    },
    /// The same in each sector: what this step filled it with; zeroes for step 0.
    Filled(u64),
}

impl Contents {
    /// Whether the administrator alone writes it.
    pub fn is_filled(&self) -> bool {
        matches!(self, Self::Filled(_))
    }
}

/// What step `step` fills a sector with.
pub fn fill(step: u64, sector: u64) -> Vec<u8> {
    if step == 0 {
        return vec![0; SECTOR_BYTES];
    }
    let mut rng = Rng::new(step << 20 ^ sector);
    // Half of it compresses.
    let noise: Vec<u8> = (0..SECTOR_BYTES / 16).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    let mut bytes = step.to_le_bytes().repeat(SECTOR_BYTES / 8);
    bytes[SECTOR_BYTES / 2..].copy_from_slice(&noise);
    bytes
}
