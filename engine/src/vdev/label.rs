//! Reading the labels of a device, wiping them, and what is left of those of a former device.
//!
//! Each device has four labels, two at each end, so that no single misplaced write can destroy all. A label
//! is a config (an nvlist) and a ring of uberblocks; both have checksums that include their position on the
//! device. A label with a bad checksum is ignored; among the good ones the one with the highest txg is valid.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_label.c`.

use codec::checksum::{seal_label, verify_label};
use device::{Device, IoBuf, IoError, copy};
use ondisk::ByteOrder;
use ondisk::label::{
    LABEL_SIZE, LABELS, TRAILER_SIZE, UBERBLOCK_RING, VDEV_PHYS, label_offset, parse_config, uberblock_count,
    uberblock_shift, uberblock_slot,
};
use ondisk::nvlist::{Encoding, NvValue, Nvlist};
use ondisk::uberblock::Uberblock;
use ondisk::vdev_config::{PoolConfig, PoolState};

use super::LABEL_START_BYTES;
use crate::error::{Error, Result};

/// Bytes of the header of a cache device, which is at the start of the data area, in sectors of its own size.
const CACHE_HEADER_BYTES: usize = 512;

/// One label of a device.
pub type Label = Result<PoolConfig>;

/// The configs of the four labels, or the error of each.
pub async fn read_labels(device: &dyn Device) -> [Label; LABELS] {
    let mut labels = Vec::with_capacity(LABELS);
    for index in 0..LABELS {
        labels.push(read_label(device, index).await);
    }
    // The loop above makes exactly this many.
    labels.try_into().unwrap_or_else(|_| std::array::from_fn(|_| Err(Error::Invalid("no label".into()))))
}

async fn read_label(device: &dyn Device, index: usize) -> Label {
    let what = || format!("{}: label {index}", device.path().display());
    let Some(start) = label_offset(device.size_bytes(), index) else {
        return Err(Error::corrupt(what(), "the device is too small to have labels"));
    };
    let position = start.get() + VDEV_PHYS.start;
    let area = device
        .read(position, (VDEV_PHYS.end - VDEV_PHYS.start) as usize)
        .await
        .map_err(|error| Error::corrupt(what(), error))?;
    verify_label(&area, position).map_err(|error| Error::corrupt(what(), error))?;
    let config = parse_config(&area).map_err(Error::format(what()))?;
    PoolConfig::parse(config).map_err(Error::format(what()))
}

/// Whether the places of all four labels can be read: only then no label means that there is none.
pub async fn can_read_labels(device: &dyn Device) -> bool {
    for index in 0..LABELS {
        let Some(start) = label_offset(device.size_bytes(), index) else { continue };
        let length = (VDEV_PHYS.end - VDEV_PHYS.start) as usize;
        if device.read(start.get() + VDEV_PHYS.start, length).await.is_err() {
            return false;
        }
    }
    true
}

/// The valid label: the highest txg among the good ones.
pub fn best_label(labels: [Label; LABELS]) -> Option<PoolConfig> {
    // `max_by_key` takes the last of equals; the first label is preferred.
    labels.into_iter().filter_map(Result::ok).rev().max_by_key(|config| config.txg)
}

/// Removes a device from its pool: wipes the configs and uberblocks of its labels, and the header of a cache
/// device. A place without a label may hold other data, and is left as it is; so is the space for boot
/// loaders before a config.
///
/// # Errors
/// One of them could not be written, or not made durable; the others are wiped.
pub async fn wipe_labels(device: &dyn Device) -> Result<(), IoError> {
    let mut wiped = Ok(());
    let mut is_cache = false;
    for index in 0..LABELS {
        let Some(start) = label_offset(device.size_bytes(), index) else { continue };
        let Some(state) = state_in(device, start.get() + VDEV_PHYS.start).await else { continue };
        is_cache |= state == PoolState::L2cache;
        let zeros = IoBuf::zeroed((LABEL_SIZE - VDEV_PHYS.start) as usize);
        wiped = wiped.and(device.write(start.get() + VDEV_PHYS.start, zeros).await.map(drop));
    }
    if is_cache {
        let header = CACHE_HEADER_BYTES.max(device.sector_sizes().logical_bytes as usize);
        wiped = wiped.and(device.write(LABEL_START_BYTES, IoBuf::zeroed(header)).await.map(drop));
    }
    wiped.and(device.flush().await)
}

/// Removes a device from its pool as [`wipe_labels`] does, and leaves `config` in the place of each label
/// that was there: with it the device is found again when the pool goes back to a group that had it.
///
/// # Errors
/// As those of [`wipe_labels`]; `config` fits no label.
pub async fn leave_former_labels(device: &dyn Device, config: &Nvlist) -> Result<()> {
    let failed = |error: IoError| Error::Os { what: error.to_string(), errno: error.errno() };
    let what = || format!("the label of {}", device.path().display());
    let packed = config.encode(Encoding::Xdr).map_err(Error::format(what()))?;
    let mut area = IoBuf::zeroed((VDEV_PHYS.end - VDEV_PHYS.start) as usize);
    let room = area.len() - TRAILER_SIZE;
    let place = area.get_mut(..packed.len()).filter(|_| packed.len() <= room);
    copy(place.ok_or_else(|| Error::Invalid(format!("{}: too large", what())))?, &packed);
    let mut places = Vec::with_capacity(LABELS);
    for index in 0..LABELS {
        let Some(start) = label_offset(device.size_bytes(), index) else { continue };
        let position = start.get() + VDEV_PHYS.start;
        if state_in(device, position).await.is_some() {
            places.push(position);
        }
    }
    wipe_labels(device).await.map_err(failed)?;
    for position in places {
        let mut area = IoBuf::from(&area[..]);
        seal_label(&mut area, position, ByteOrder::Little).map_err(|error| Error::corrupt(what(), error))?;
        device.write(position, area).await.map_err(failed)?;
    }
    device.flush().await.map_err(failed)
}

/// The config of a label with a bad checksum: for tools that show damaged labels, never for opening a pool.
pub async fn read_damaged_label(device: &dyn Device, index: usize) -> Option<PoolConfig> {
    let start = label_offset(device.size_bytes(), index)?;
    PoolConfig::parse(config_in(device, start.get() + VDEV_PHYS.start).await?).ok()
}

/// The config at the position of a label's config, whatever its checksum.
async fn config_in(device: &dyn Device, position: u64) -> Option<Nvlist> {
    let area = device.read(position, (VDEV_PHYS.end - VDEV_PHYS.start) as usize).await.ok()?;
    parse_config(&area).ok()
}

/// The state in the config of a label, if there is one. Its checksum does not matter: a damaged label is
/// still a label.
async fn state_in(device: &dyn Device, position: u64) -> Option<PoolState> {
    let config = config_in(device, position).await?;
    let number = |name: &str| match config.get(name) {
        Some(NvValue::Uint64(number)) => Some(*number),
        _ => None,
    };
    number("guid").filter(|guid| *guid != 0)?;
    PoolState::from_raw(number("state")?).ok()
}

/// All intact uberblocks of a device, in the order of labels and slots.
pub async fn read_uberblocks(device: &dyn Device, ashift: u32) -> Vec<(usize, u64, Uberblock)> {
    let mut found = Vec::new();
    for index in 0..LABELS {
        let Some(start) = label_offset(device.size_bytes(), index) else { continue };
        let ring = start.get() + UBERBLOCK_RING.start;
        let size = (UBERBLOCK_RING.end - UBERBLOCK_RING.start) as usize;
        let Ok(bytes) = device.read(ring, size).await else { continue };
        for slot in 0..uberblock_count(ashift) {
            let position = start.get() + uberblock_slot(ashift, slot).get();
            let within = (position - ring) as usize;
            let Some(bytes) = bytes.get(within..within + (1 << uberblock_shift(ashift))) else { continue };
            // Most slots of a young pool are empty: look at the magic before hashing.
            let Ok(uberblock) = Uberblock::parse(bytes) else { continue };
            if verify_label(bytes, position).is_ok() {
                found.push((index, slot, uberblock));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use device::{MemoryDevice, SectorSizes, block_on};

    use super::*;

    /// A cache device with sectors of 4 KiB whose first label has a config without a valid checksum.
    fn cache_device() -> MemoryDevice {
        let sectors = SectorSizes { logical_bytes: 4096, physical_bytes: 4096 };
        let disk = MemoryDevice::new("<cache>", 64 << 20).with_sector_sizes(sectors);
        let mut config = Nvlist::default();
        config.push("version", 5000u64);
        config.push("guid", 7u64);
        config.push("state", PoolState::L2cache as u64);
        let mut area = config.encode(Encoding::Xdr).unwrap();
        area.resize((VDEV_PHYS.end - VDEV_PHYS.start) as usize, 0);
        for (offset, bytes) in [(VDEV_PHYS.start, area), (LABEL_START_BYTES, vec![0xff; 8192])] {
            block_on(disk.write(offset, IoBuf::from(bytes.as_slice()))).unwrap();
        }
        disk
    }

    #[test]
    fn the_header_of_a_cache_device_goes_in_whole_sectors() {
        let disk = cache_device();
        block_on(wipe_labels(&disk)).unwrap();
        let header = block_on(disk.read(LABEL_START_BYTES, 8192)).unwrap();
        assert!(
            header[..4096].iter().all(|byte| *byte == 0) && header[4096..].iter().all(|byte| *byte == 0xff)
        );
        let label = block_on(disk.read(VDEV_PHYS.start, 4096)).unwrap();
        assert!(label.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_former_device_has_only_the_label_that_says_so() {
        let disk = cache_device();
        let mut config = Nvlist::default();
        for (name, value) in [("version", 5000u64), ("state", 0), ("txg", 0), ("pool_guid", 3), ("guid", 7)] {
            config.push(name, value);
        }
        block_on(leave_former_labels(&disk, &config)).unwrap();
        let labels = block_on(read_labels(&disk));
        let [first, others @ ..] = labels;
        assert_eq!(first.unwrap().guid, Some(ondisk::Guid(7)));
        assert!(others.iter().all(Result::is_err), "where no label was there may be other data");
        assert!(block_on(read_uberblocks(&disk, 9)).is_empty());
    }

    #[test]
    fn a_label_with_a_wrong_checksum_is_read_for_tools_only() {
        let disk = cache_device();
        assert!(block_on(read_labels(&disk)).iter().all(Result::is_err));
        let shown = block_on(read_damaged_label(&disk, 0)).unwrap();
        assert_eq!(shown.raw.get("guid"), Some(&NvValue::Uint64(7)));
        assert!(block_on(read_damaged_label(&disk, 1)).is_none());
    }
}
