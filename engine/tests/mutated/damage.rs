//! Damage that checksums must find: flipped bits, zeroed ranges, exchanged sectors, devices that are short,
//! missing or exchanged.

use std::sync::Arc;

use ondisk::label::{BACK_SIZE, UBERBLOCK_RING};
use testkit::Rng;

use crate::overlay::{Base, Overlay, SECTOR};

/// Front of a device that holds labels.
const FRONT_LABELS: u64 = 512 << 10;

/// Overlays of all devices, as they are.
pub fn whole(bases: &[Arc<Base>]) -> Vec<Arc<Overlay>> {
    let name = |base: &Base| base.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    bases.iter().map(|base| Arc::new(Overlay::new(base, &name(base), base.size_bytes))).collect()
}

/// Damages devices by seed, in one of several ways. Says what was done.
pub fn damage(rng: &mut Rng, bases: &[Arc<Base>]) -> (Vec<Arc<Overlay>>, &'static str) {
    let mut devices = whole(bases);
    let what = match rng.below(10) {
        0 => {
            for _ in 0..1 + rng.below(60) {
                let device = &devices[rng.index(devices.len())];
                let within = rng.below(FRONT_LABELS + BACK_SIZE);
                let at = if within < FRONT_LABELS {
                    within
                } else {
                    // The labels at the end begin where the size is a multiple of a label's.
                    device_end(device).saturating_sub(BACK_SIZE) + within - FRONT_LABELS
                };
                flip(rng, device, at);
            }
            "bits of labels"
        }
        1 => {
            // The newest uberblocks of all labels but a few slots.
            for device in &devices {
                for label in [0, FRONT_LABELS / 2] {
                    let length = UBERBLOCK_RING.end - UBERBLOCK_RING.start;
                    let first = rng.below(length);
                    let zeroes = vec![0; rng.below(length - first) as usize];
                    device.poke(label + UBERBLOCK_RING.start + first, &zeroes);
                }
            }
            "uberblocks"
        }
        2..=5 => {
            let most = 1 << rng.below(10);
            for _ in 0..1 + rng.below(most) {
                let index = rng.index(devices.len());
                let Some(at) = sector(rng, &bases[index]) else { continue };
                sector_damage(rng, &devices[index], &bases[index], at);
            }
            "sectors"
        }
        6 => {
            let index = rng.index(devices.len());
            let at = sector(rng, &bases[index]).unwrap_or(0);
            devices[index].poke(at, &vec![0; (64 << 10) << rng.below(7)]);
            "a range of zeroes"
        }
        7 => {
            let index = rng.index(devices.len());
            let base = &bases[index];
            let kept = match rng.below(3) {
                0 => rng.below(base.size_bytes),
                1 => base.size_bytes / 2,
                _ => base.size_bytes.saturating_sub(SECTOR << rng.below(14)),
            };
            devices[index] = Arc::new(Overlay::new(base, "short", kept));
            "a short device"
        }
        8 => {
            devices.remove(rng.index(devices.len()));
            "a missing device"
        }
        _ => {
            let (one, other) = (rng.index(devices.len()), rng.index(devices.len()));
            // One device shows what another holds, behind its own labels.
            let Some(at) = sector(rng, &bases[other]) else { return (devices, "nothing") };
            let bytes = devices[other].peek(at, 1 << 20);
            devices[one].poke(at.max(FRONT_LABELS), &bytes);
            devices.swap(one, other);
            "exchanged parts"
        }
    };
    (devices, what)
}

fn device_end(device: &Overlay) -> u64 {
    ondisk::label::aligned_size(device::Device::size_bytes(device))
}

fn flip(rng: &mut Rng, device: &Overlay, at: u64) {
    let mut byte = device.peek(at, 1);
    byte[0] ^= 1 << rng.below(8);
    device.poke(at, &byte);
}

/// A random sector that is not in a hole, and in no label.
fn sector(rng: &mut Rng, base: &Base) -> Option<u64> {
    (0..20).find_map(|_| {
        let (start, length) = *rng.pick(&base.data)?;
        let at = start + rng.below(length / SECTOR) * SECTOR;
        (at >= FRONT_LABELS && at + BACK_SIZE < base.size_bytes).then_some(at)
    })
}

fn sector_damage(rng: &mut Rng, device: &Overlay, base: &Base, at: u64) {
    match rng.below(4) {
        0 => {
            let at = at + rng.below(SECTOR);
            flip(rng, device, at);
        }
        1 => device.poke(at, &[0; SECTOR as usize]),
        2 => {
            let noise: Vec<u8> = (0..SECTOR).map(|_| rng.next_u64() as u8).collect();
            device.poke(at, &noise);
        }
        _ => {
            // Bytes of another place: right in themselves, and wrong here.
            if let Some(from) = sector(rng, base) {
                let length = (SECTOR << rng.below(6)) as usize;
                device.poke(at, &device.peek(from, length));
            }
        }
    }
}
