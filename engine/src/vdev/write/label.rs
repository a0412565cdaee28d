//! Writing labels and uberblocks.
//!
//! A label is replaced in two steps with a flush between them, so that two of the four labels are whole at
//! any time. The caller chooses the half to write ([`VdevTree::write_label`]). An uberblock goes into one
//! slot of the ring in all four labels. Its seal shows that it is valid, and the pool does not depend on it
//! while older slots exist. The other parts of a label (blank space, boot environment) are written only when
//! a device becomes part of a pool ([`VdevTree::initialize_label`]).
//!
//! When a device grows, its last two labels are at a new place, which may contain any data: they are made
//! copies of the first two ([`copy_labels_to_end`]).
//!
//! A write to the labels of a leaf succeeds when at least one of the labels has it: readers take the best of
//! the four.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_label.c` (`vdev_label_init`, `vdev_uberblock_sync`,
//! `vdev_label_sync`).

use std::ops::Range;
use std::sync::Arc;

use codec::checksum::{seal_label, verify_label};
use device::{Device, IoBuf, IoError, copy};
use futures_util::future::join_all;
use ondisk::label::{
    BOOT_ENV, LABEL_SIZE, LABELS, TRAILER_SIZE, UBERBLOCK_RING, VDEV_PHYS, label_offset, uberblock_count,
    uberblock_shift, uberblock_slot, uberblock_slot_of,
};
use ondisk::nvlist::{Encoding, Nvlist};
use ondisk::uberblock::Uberblock;
use ondisk::{ByteOrder, Guid, Txg};

use super::super::{Kind, Vdev, VdevTree};
use super::Round;
use crate::error::{Attempt, Failure, Result};

impl VdevTree {
    /// Writes an uberblock (the encoded bytes, unsealed) into the slot of its txg, in all four labels of the
    /// given leaves. Returns an error when no leaf took it. Not flushed.
    pub async fn write_uberblock(
        &self,
        leaves: &[Guid],
        txg: Txg,
        uberblock: &[u8],
    ) -> Result<(), Vec<Attempt>> {
        // With multihost protection the last slot belongs to the heartbeats.
        let round = self.label_rounds.enter(Round::Uberblock);
        let multihost = Uberblock::parse(uberblock).is_ok_and(|uberblock| uberblock.is_multihost());
        let writes = leaves.iter().map(|guid| self.leaf_uberblock(*guid, txg, uberblock, multihost, round));
        let mut failed = Vec::new();
        let mut taken = false;
        for result in join_all(writes).await {
            match result {
                Ok(()) => taken = true,
                Err(attempts) => failed.extend(attempts),
            }
        }
        if taken { Ok(()) } else { Err(failed) }
    }

    /// Writes a heartbeat (the encoded bytes of an uberblock) into the slot reserved for heartbeats, in one
    /// label of a leaf. Not flushed; other hosts see it.
    pub async fn write_heartbeat(
        &self,
        leaf: Guid,
        label: usize,
        uberblock: &[u8],
    ) -> Result<(), Vec<Attempt>> {
        let (leaf, device) = self.writable_leaf(leaf)?;
        let area = uberblock_area(leaf, uberblock)?;
        let last = uberblock_slot(leaf.ashift, uberblock_count(leaf.ashift) - 1);
        let Some(start) = label_offset(device.size_bytes(), label) else { return Err(too_small(leaf)) };
        let position = start.get() + last.get();
        let mut area = area;
        seal(leaf, &mut area, position)?;
        let written = device.write(position, area).await;
        written.map(drop).map_err(|error| leaf.failed(position, Failure::Io(error.to_string())))
    }

    async fn leaf_uberblock(
        &self,
        guid: Guid,
        txg: Txg,
        uberblock: &[u8],
        multihost: bool,
        round: u64,
    ) -> Result<(), Vec<Attempt>> {
        let (leaf, device) = self.writable_leaf(guid)?;
        let slot = uberblock_slot(leaf.ashift, uberblock_slot_of(leaf.ashift, txg, multihost));
        let area = uberblock_area(leaf, uberblock)?;
        let writes = (0..LABELS).map(|label| write_sealed(leaf, &device, round, label, slot.get(), &area));
        one_of(join_all(writes).await)
    }

    /// Writes the configuration into two of a leaf's labels: 0 and 2, or 1 and 3 (`odd`). Returns an error
    /// when neither took it. Not flushed.
    pub async fn write_label(&self, leaf: Guid, odd: bool, config: &Nvlist) -> Result<(), Vec<Attempt>> {
        let (leaf, device) = self.writable_leaf(leaf)?;
        let area = config_area(leaf, config)?;
        let round = self.label_rounds.enter(Round::Label { odd });
        let labels = (usize::from(odd)..LABELS).step_by(2);
        let writes = labels.map(|label| write_sealed(leaf, &device, round, label, VDEV_PHYS.start, &area));
        one_of(join_all(writes).await)
    }

    /// Makes a device a leaf: writes all parts of the four labels, with the configuration, an empty boot
    /// environment and no uberblock. Returns an error when one of them could not be written. Not flushed.
    pub async fn initialize_label(&self, leaf: Guid, config: &Nvlist) -> Result<(), Vec<Attempt>> {
        let (leaf, device) = self.writable_leaf(leaf)?;
        let config = config_area(leaf, config)?;
        let round = self.label_rounds.enter(Round::Label { odd: false });
        let boot_environment = IoBuf::zeroed((BOOT_ENV.end - BOOT_ENV.start) as usize);
        let areas = [(BOOT_ENV, &boot_environment), (VDEV_PHYS, &config)];
        let areas = &areas;
        let device = &device;
        let writes = (0..LABELS).map(|label| async move {
            let Some(start) = label_offset(device.size_bytes(), label) else { return Err(too_small(leaf)) };
            let mut bytes = IoBuf::zeroed(LABEL_SIZE as usize);
            for (place, area) in areas {
                let target = &mut bytes[place.start as usize..place.end as usize];
                copy(target, area);
                seal(leaf, target, start.get() + place.start)?;
            }
            write(leaf, device, round, start.get(), bytes).await
        });
        let failed: Vec<Attempt> =
            join_all(writes).await.into_iter().filter_map(|result| result.err()).flatten().collect();
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    /// The leaf with this guid, including spares and cache devices, if it can be written.
    fn writable_leaf(&self, guid: Guid) -> Result<(&Vdev, Arc<dyn Device>), Vec<Attempt>> {
        let Some(leaf) = self.find(guid) else {
            let failure = Failure::Malformed("there is no such vdev".into());
            return Err(vec![Attempt { vdev: guid.to_string(), offset_bytes: 0, failure }]);
        };
        match &leaf.kind {
            Kind::Leaf(slot) if leaf.status().is_readable() => match slot.device() {
                Some(device) => Ok((leaf, device)),
                None => Err(leaf.failed(0, Failure::Unavailable)),
            },
            _ => Err(leaf.failed(0, Failure::Unavailable)),
        }
    }
}

/// Fills the places of the last two labels with the good parts of the first label, or else of the second. Not
/// flushed; a failed write is repeated with the next change.
pub(in crate::vdev) async fn copy_labels_to_end(leaf: &Vdev, device: &dyn Device) {
    let slots = (0..uberblock_count(leaf.ashift)).map(|slot| uberblock_slot(leaf.ashift, slot).get());
    let slot_bytes = 1u64 << uberblock_shift(leaf.ashift);
    let areas: Vec<_> =
        [BOOT_ENV, VDEV_PHYS].into_iter().chain(slots.map(|start| start..start + slot_bytes)).collect();
    let mut source = None;
    for label in 0..LABELS / 2 {
        let Some(start) = label_offset(device.size_bytes(), label) else { continue };
        let Ok(bytes) = device.read(start.get(), LABEL_SIZE as usize).await else { continue };
        let is_good = |area: &&Range<u64>| {
            let bytes = bytes.get(area.start as usize..area.end as usize);
            bytes.is_some_and(|bytes| verify_label(bytes, start.get() + area.start).is_ok())
        };
        if is_good(&&VDEV_PHYS) {
            let good: Vec<_> = areas.iter().filter(is_good).cloned().collect();
            source = Some((bytes, good));
            break;
        }
    }
    let Some((source, good)) = source else { return };
    for start in (LABELS / 2..LABELS).filter_map(|label| label_offset(device.size_bytes(), label)) {
        let mut label = IoBuf::zeroed(LABEL_SIZE as usize);
        for area in &good {
            let range = area.start as usize..area.end as usize;
            let (Some(to), Some(from)) = (label.get_mut(range.clone()), source.get(range)) else { continue };
            copy(to, from);
            if seal(leaf, to, start.get() + area.start).is_err() {
                return;
            }
        }
        if let Err(error) = device.write(start.get(), label).await {
            leaf.errors.count_write(true);
            tracing::warn!(vdev = leaf.name, %error, "a label at the new end of a device is not written");
        }
    }
}

/// Uberblocks share the smallest slot with the trailer.
const TRAILER_LIMIT: usize = 1024 - TRAILER_SIZE;
const _: () = assert!(UBERBLOCK_RING.end == LABEL_SIZE);

/// A slot with this uberblock, not sealed yet.
fn uberblock_area(leaf: &Vdev, uberblock: &[u8]) -> Result<IoBuf, Vec<Attempt>> {
    let mut area = IoBuf::zeroed(1 << uberblock_shift(leaf.ashift));
    match area.get_mut(..uberblock.len()).filter(|_| uberblock.len() < TRAILER_LIMIT) {
        Some(place) => copy(place, uberblock),
        None => {
            return Err(leaf.failed(0, Failure::Malformed("the uberblock is larger than its slot".into())));
        }
    }
    Ok(area)
}

/// The area of the configuration, not sealed yet.
fn config_area(leaf: &Vdev, config: &Nvlist) -> Result<IoBuf, Vec<Attempt>> {
    let malformed = |why: String| leaf.failed(0, Failure::Malformed(why));
    let packed = config.encode(Encoding::Xdr).map_err(|error| malformed(error.to_string()))?;
    let mut area = IoBuf::zeroed((VDEV_PHYS.end - VDEV_PHYS.start) as usize);
    let room = area.len() - TRAILER_SIZE;
    match area.get_mut(..packed.len()).filter(|_| packed.len() <= room) {
        Some(place) => copy(place, &packed),
        None => return Err(malformed(format!("a configuration of {} bytes fits no label", packed.len()))),
    }
    Ok(area)
}

fn seal(leaf: &Vdev, area: &mut [u8], position: u64) -> Result<(), Vec<Attempt>> {
    let malformed = |error: codec::Error| leaf.failed(position, Failure::Malformed(error.to_string()));
    seal_label(area, position, ByteOrder::Little).map_err(malformed)
}

/// Writes an area to its place in label `label`, sealed for that place.
async fn write_sealed(
    leaf: &Vdev,
    device: &Arc<dyn Device>,
    round: u64,
    label: usize,
    offset: u64,
    area: &[u8],
) -> Result<(), Vec<Attempt>> {
    let Some(start) = label_offset(device.size_bytes(), label) else { return Err(too_small(leaf)) };
    let position = start.get() + offset;
    let mut area = IoBuf::from(area);
    seal(leaf, &mut area, position)?;
    write(leaf, device, round, position, area).await
}

async fn write(
    leaf: &Vdev,
    device: &Arc<dyn Device>,
    round: u64,
    position: u64,
    area: IoBuf,
) -> Result<(), Vec<Attempt>> {
    let result = device.write(position, area).await;
    leaf.unflushed.wrote_label(round);
    result.map(drop).map_err(|error: IoError| {
        leaf.errors.count_write(true);
        leaf.failed(position, Failure::Io(error.to_string()))
    })
}

fn too_small(leaf: &Vdev) -> Vec<Attempt> {
    leaf.failed(0, Failure::Malformed("the device is too small for labels".into()))
}

/// Success if one of them succeeded.
fn one_of(results: Vec<Result<(), Vec<Attempt>>>) -> Result<(), Vec<Attempt>> {
    if results.iter().any(Result::is_ok) {
        return Ok(());
    }
    Err(results.into_iter().filter_map(Result::err).flatten().collect())
}
