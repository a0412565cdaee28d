//! Damage that checksums do not find: a block is changed, and every checksum on the way up to the label is
//! made right.
//!
//! # How
//! From the uberblock a random way down is taken: object set, indirect blocks, dnodes, a dataset's object set
//! … until a block that is changed. Then the changed block is written, uncompressed, to a place near the end
//! of the vdev that nothing uses, its parent's pointer to it is made anew, the parent is written elsewhere in
//! turn, up to an uberblock of a later time in all labels. So the parsers and walkers see what no OpenZFS
//! ever wrote, under checksums that are right.
//!
//! In an encrypted dataset that is what an attacker with the devices and without the key can do
//! ([`forge_sealed`]): pointers change places, within a block and between files and datasets; MACs and
//! private bytes are changed; and the MACs of indirect blocks, which need no key, are made right all the way
//! up. There each file is still what it was, or cannot be read. One thing is left out: sizes and compression
//! of a block whose pointer is in an indirect block are under no MAC, in OpenZFS's format.

use std::sync::Arc;

use codec::checksum::{beside_mac, fletcher4, seal_gang, seal_label};
use codec::crypt::indirect_mac;
use device::block_on;
use engine::pool::discovery::FoundPool;
use engine::{Bookmark, Pool};
use ondisk::blkptr::{Blkptr, BlkptrParts, ChecksumType, CompressType, CryptParts, Dva, Protection};
use ondisk::dmu::DmuType;
use ondisk::label::{self, FRONT_SIZE, LABELS, VDEV_PHYS};
use ondisk::vdev_config::{VdevConfig, VdevKind};
use ondisk::{Asize, ByteOffset, Psize, VdevId};
use testkit::Rng;
use testkit::mutate::put_number;

use crate::overlay::Overlay;

/// Levels of a way down, from the MOS to a file's data.
const MAX_STEPS: usize = 24;
/// Space at the end of a vdev that forged blocks are written to.
const ARENA_BYTES: u64 = 40 << 20;
/// Place of the block pointer in the bonus of a dataset.
const DATASET_POINTER: usize = 128;

/// A block on the way down.
struct Step {
    /// The pointer to it.
    pointer: Blkptr,
    /// Its content.
    content: Vec<u8>,
    /// Where in it the pointer to the next step stands.
    place: usize,
}

/// Changes one thing in a pool, under right checksums. Says what; `None` when the pool gives no chance to.
pub fn forge(rng: &mut Rng, pool: &Arc<Pool>, found: &FoundPool, devices: &[Arc<Overlay>]) -> Option<String> {
    match rng.below(12) {
        0 => forge_config(rng, devices),
        1 => {
            let mut bytes = pool.uberblock().encode();
            for _ in 0..1 + rng.below(3) {
                let at = rng.index(bytes.len()) & !7;
                put_number(rng, &mut bytes, at);
            }
            write_uberblock(found, devices, pool, &bytes);
            Some("the uberblock".into())
        }
        2 => forge_gang(rng, pool, found, devices),
        _ => forge_block(rng, pool, found, devices),
    }
}

/// Changes numbers in the config of labels.
fn forge_config(rng: &mut Rng, devices: &[Arc<Overlay>]) -> Option<String> {
    let changes: Vec<(usize, u64)> =
        (0..1 + rng.below(4)).map(|_| (rng.index(3000) & !3, rng.next_u64())).collect();
    for device in devices {
        for index in 0..LABELS {
            let start =
                label::label_offset(device::Device::size_bytes(&**device), index)?.get() + VDEV_PHYS.start;
            let mut area = device.peek(start, (VDEV_PHYS.end - VDEV_PHYS.start) as usize);
            for (at, seed) in &changes {
                // The same change everywhere, at a word that holds something.
                let at = (*at..area.len()).step_by(4).find(|at| area[*at..at + 4] != [0; 4]).unwrap_or(0);
                put_number(&mut Rng::new(*seed), &mut area, at);
            }
            seal_label(&mut area, start, ondisk::ByteOrder::HOST).ok()?;
            device.poke(start, &area);
        }
    }
    Some("the config in labels".into())
}

fn forge_block(
    rng: &mut Rng,
    pool: &Arc<Pool>,
    found: &FoundPool,
    devices: &[Arc<Overlay>],
) -> Option<String> {
    let mut arena = Arena::of(found, devices)?;
    let mut steps = way_down(rng, pool, false)?;
    let mut last = steps.pop()?;
    let what =
        format!("{} level {} of {} bytes", last.pointer.dmu_type(), last.pointer.level(), last.content.len());
    let pointers: Vec<Blkptr> = steps.iter().map(|step| step.pointer).chain([last.pointer]).collect();
    let changes = change(rng, &last, &pointers);
    let mut new_content = std::mem::take(&mut last.content);
    for (at, bytes) in changes {
        for (to, from) in new_content.iter_mut().skip(at).zip(bytes) {
            *to = from;
        }
    }
    let pointer = arena.write(&last.pointer, &new_content)?;
    write_way_up(steps, pointer, &mut arena, pool, found, devices)?;
    Some(what)
}

/// A way into an encrypted dataset.
fn way_into_sealed(rng: &mut Rng, pool: &Arc<Pool>) -> Option<Vec<Step>> {
    (0..200).find_map(|_| {
        let steps = way_down(rng, pool, true)?;
        steps.last()?.pointer.uses_crypt().then_some(steps)
    })
}

/// Changes one thing in an encrypted dataset, without its key. Says what.
pub fn forge_sealed(
    rng: &mut Rng,
    pool: &Arc<Pool>,
    found: &FoundPool,
    devices: &[Arc<Overlay>],
) -> Option<String> {
    let mut arena = Arena::of(found, devices)?;
    let mut steps = way_into_sealed(rng, pool)?;
    let last = steps.pop()?;
    let order = last.pointer.byte_order();
    let places = pointers_in(&last.pointer, &last.content);
    let is_indirect = last.pointer.level().0 > 0;
    let mut content = last.content.clone();
    let mut put = |place: usize, pointer: &Blkptr| {
        content[place..place + Blkptr::SIZE].copy_from_slice(&pointer.encode(order));
    };
    let what = match rng.below(if is_indirect { 3 } else { 4 }) {
        0 => {
            let (one, other) = (rng.pick(&places)?, rng.pick(&places)?);
            put(one.0, &other.1);
            put(other.0, &one.1);
            "two pointers exchanged".to_owned()
        }
        1 => {
            // From elsewhere: another file, another dataset, another key.
            let (place, old) = *rng.pick(&places)?;
            let mut others = (0..20).filter_map(|_| {
                let other = way_into_sealed(rng, pool)?.pop()?;
                let like = |child: &Blkptr| {
                    (child.level(), child.dmu_type()) == (old.level(), old.dmu_type()) && *child != old
                };
                let all = pointers_in(&other.pointer, &other.content);
                all.into_iter().map(|(_, child)| child).find(like)
            });
            let other = others.next()?;
            put(place, &other);
            "a pointer from elsewhere".to_owned()
        }
        2 => {
            let (place, old) = *rng.pick(&places)?;
            let mac = place + 112 + rng.index(16);
            content[mac] ^= 1 << rng.below(8);
            format!("the MAC of a {}", old.dmu_type())
        }
        _ => {
            for _ in 0..1 + rng.below(3) {
                let at = rng.index(content.len());
                content[at] ^= 1 << rng.below(8);
            }
            "some bits".to_owned()
        }
    };
    let pointer = arena.write(&last.pointer, &content)?;
    let of = format!("{} level {}", last.pointer.dmu_type(), last.pointer.level());
    write_way_up(steps, pointer, &mut arena, pool, found, devices)?;
    Some(format!("{what} in a sealed {of}"))
}

/// Writes the blocks of a way anew, from the last but one to the uberblock; `pointer` leads to the last.
fn write_way_up(
    mut steps: Vec<Step>,
    mut pointer: Blkptr,
    arena: &mut Arena<'_>,
    pool: &Pool,
    found: &FoundPool,
    devices: &[Arc<Overlay>],
) -> Option<()> {
    while let Some(mut parent) = steps.pop() {
        let order = parent.pointer.byte_order();
        parent
            .content
            .get_mut(parent.place..parent.place + Blkptr::SIZE)?
            .copy_from_slice(&pointer.encode(order));
        pointer = arena.write(&parent.pointer, &parent.content)?;
    }
    let mut uberblock = pool.uberblock().clone();
    uberblock.root_bp = pointer;
    uberblock.timestamp += 1;
    write_uberblock(found, devices, pool, &uberblock.encode());
    Some(())
}

/// Makes a block a gang whose headers lead to themselves, or to each other by so many ways that no one lives
/// to see their end.
fn forge_gang(
    rng: &mut Rng,
    pool: &Arc<Pool>,
    found: &FoundPool,
    devices: &[Arc<Overlay>],
) -> Option<String> {
    let mut arena = Arena::of(found, devices)?;
    let mut steps = way_down(rng, pool, false)?;
    let last = steps.pop()?;
    let itself = rng.once_in(2);
    let depth = 1 + rng.below(20);
    let size = last.content.len() as u64;
    // What the deepest header leads to: nothing that can be read.
    let mut pointer = arena.gang(&last.pointer, None, 512)?;
    for level in (0..depth).rev() {
        let size = if itself { size } else { size.checked_sub(512 * level)?.max(1024) };
        let members = if itself { [None, None, None] } else { [Some(pointer), Some(pointer), None] };
        let header = arena.gang(&last.pointer, None, size)?;
        let place = header.dva(0)?;
        let order = header.byte_order();
        let mut block = [0; 512];
        for (index, member) in members.into_iter().enumerate() {
            let rest = if index == 0 { size - 512 } else { 512 };
            let member = match member {
                _ if itself => header,
                Some(below) => arena.gang(&below, Some(below.dva(0)?), rest)?,
                None => Blkptr::HOLE,
            };
            block[index * Blkptr::SIZE..][..Blkptr::SIZE].copy_from_slice(&member.encode(order));
        }
        let birth = header.physical_birth().get();
        seal_gang(&mut block, place.vdev.get().into(), place.offset.get(), birth, false, order).ok()?;
        arena.put(place.offset.get(), &block);
        pointer = header;
    }
    write_way_up(steps, pointer, &mut arena, pool, found, devices)?;
    Some(format!("gang of {size} bytes, {depth} deep"))
}

/// Takes random turns from the MOS downwards; `is_sealed`: into encrypted datasets too.
fn way_down(rng: &mut Rng, pool: &Arc<Pool>, is_sealed: bool) -> Option<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut pointer = *pool.root_blkptr();
    // Mostly the end of a way is wanted, where most kinds of blocks are.
    let wanted = if rng.once_in(3) { 1 + rng.index(8) } else { MAX_STEPS };
    while steps.len() < wanted {
        // Keys are not loaded, so that the number of the object set does not matter.
        let at = Bookmark::objset_root(0);
        let read = match pointer.protection() {
            Protection::None => block_on(pool.read_block(&pointer, &at)),
            _ if is_sealed => block_on(pool.read_block_without_key(&pointer, &at)),
            _ => break,
        };
        let Ok(block) = read else { break };
        let content = block.to_vec();
        let places = pointers_in(&pointer, &content);
        // There are many dnodes of files and few of anything else: a kind is drawn first.
        let mut kinds: Vec<_> =
            places.iter().map(|(_, child)| (child.dmu_type().raw(), child.level().0)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let kind = rng.pick(&kinds).copied();
        let of_kind: Vec<_> = places
            .into_iter()
            .filter(|(_, child)| Some((child.dmu_type().raw(), child.level().0)) == kind)
            .collect();
        let chosen = rng.pick(&of_kind).copied();
        steps.push(Step { pointer, content, place: chosen.map_or(0, |(place, _)| place) });
        match chosen {
            Some((_, child)) => pointer = child,
            None => break,
        }
    }
    (!steps.is_empty()).then_some(steps)
}

/// All pointers of a block that lead on.
fn pointers_in(pointer: &Blkptr, content: &[u8]) -> Vec<(usize, Blkptr)> {
    let order = pointer.byte_order();
    let mut found = Vec::new();
    let mut look = |place: usize| {
        if let Some(bytes) = content.get(place..place + Blkptr::SIZE)
            && let Ok(child) = Blkptr::parse(bytes, order)
            && !child.is_hole()
            && !child.is_embedded()
        {
            found.push((place, child));
        }
    };
    let dnode = |start: usize, look: &mut dyn FnMut(usize)| {
        let count = content.get(start + 3).map_or(0, |count| usize::from(*count).min(3));
        (0..count).for_each(|index| look(start + 64 + index * Blkptr::SIZE));
        // A dataset's pointer leads to its object set.
        if content.get(start + 4) == Some(&DmuType::DSL_DATASET.raw()) {
            look(start + 64 + count * Blkptr::SIZE + DATASET_POINTER);
        }
    };
    match pointer.dmu_type() {
        _ if pointer.level().0 > 0 => (0..content.len()).step_by(Blkptr::SIZE).for_each(look),
        DmuType::OBJSET => [0, 1024, 1536].into_iter().for_each(|start| dnode(start, &mut look)),
        DmuType::DNODE => {
            let mut start = 0;
            while start + 512 <= content.len() {
                dnode(start, &mut look);
                start += 512 * (1 + usize::from(content[start + 12]));
            }
        }
        _ => {}
    }
    found
}

/// One to four changes of fields that hold something, or an exchange of pointers or object numbers.
fn change(rng: &mut Rng, step: &Step, pointers: &[Blkptr]) -> Vec<(usize, Vec<u8>)> {
    let content = &step.content;
    let order = step.pointer.byte_order();
    let places = pointers_in(&step.pointer, content);
    if !places.is_empty() && rng.once_in(3) {
        // A pointer to one of its own ancestors, or to a sibling: cycles and wrong types.
        let (to, _) = places[rng.index(places.len())];
        let with = if rng.once_in(2) {
            pointers[rng.index(pointers.len())]
        } else {
            places[rng.index(places.len())].1
        };
        return vec![(to, with.encode(order).to_vec())];
    }
    // Small numbers are mostly those of objects: what leads to another one makes circles and wrong types.
    let small = |at: &usize| {
        content
            .get(*at..at + 8)
            .and_then(|word| word.try_into().ok())
            .is_some_and(|word| (1..512).contains(&order.u64(word)))
    };
    let numbers: Vec<usize> = (0..content.len()).step_by(8).filter(small).collect();
    if !numbers.is_empty() && rng.once_in(3) {
        return (0..1 + rng.below(3))
            .map(|_| (numbers[rng.index(numbers.len())], order.u64_bytes(rng.below(160)).to_vec()))
            .collect();
    }
    (0..1 + rng.below(4))
        .map(|_| {
            let mut at = rng.index(content.len());
            // What holds something is used; half of the time that is what is changed.
            if rng.once_in(2)
                && let Some(used) =
                    (0..content.len()).map(|i| (at + i) % content.len()).find(|i| content[*i] != 0)
            {
                at = used;
            }
            if rng.once_in(2) {
                at &= !7;
            }
            let end = content.len().min(at + 8);
            let mut bytes = content[at..end].to_vec();
            if rng.once_in(3) {
                let byte = rng.index(bytes.len());
                bytes[byte] ^= 1 << rng.below(8);
            } else {
                put_number(rng, &mut bytes, 0);
            }
            (at, bytes)
        })
        .collect()
}

/// Unused space of a top-level vdev whose layout is plain.
struct Arena<'a> {
    vdev: VdevId,
    devices: Vec<&'a Arc<Overlay>>,
    next: u64,
    end: u64,
}

impl<'a> Arena<'a> {
    fn of(found: &FoundPool, devices: &'a [Arc<Overlay>]) -> Option<Arena<'a>> {
        let is_plain = |top: &&VdevConfig| {
            matches!(top.kind, VdevKind::Disk | VdevKind::File | VdevKind::Mirror)
                && top.children.iter().all(|c| c.kind.is_leaf())
        };
        let top = found.tree.children.iter().find(is_plain)?;
        let leaves: Vec<_> = top.leaves().iter().map(|leaf| leaf.guid).collect();
        let paths: Vec<_> =
            leaves.iter().filter_map(|guid| Some(found.candidates.get(guid)?.path())).collect();
        let devices: Vec<_> =
            devices.iter().filter(|device| paths.contains(&device::Device::path(&***device))).collect();
        let end = top.asize?.get();
        (!devices.is_empty()).then_some(Arena {
            vdev: top.id?,
            devices,
            next: end.checked_sub(ARENA_BYTES)?,
            end,
        })
    }

    fn put(&self, offset: u64, content: &[u8]) {
        for device in &self.devices {
            device.poke(FRONT_SIZE + offset, content);
        }
    }

    /// A pointer to a gang of `size` bytes, all three copies of whose header are at one place: this, or a new
    /// one.
    fn gang(&mut self, like: &Blkptr, place: Option<Dva>, size: u64) -> Option<Blkptr> {
        let place = match place {
            Some(place) => place,
            None => {
                let offset = self.next;
                self.next += 64 << 10;
                (self.next <= self.end).then_some(())?;
                Dva { vdev: self.vdev, offset: ByteOffset(offset), asize: Asize(4096), gang: true }
            }
        };
        BlkptrParts {
            dvas: vec![place; 3],
            lsize: like.lsize(),
            psize: Psize(size),
            compress: CompressType::Lz4,
            checksum_type: ChecksumType::Fletcher4,
            checksum: [1; 4],
            dmu_type: like.dmu_type(),
            level: like.level(),
            dedup: false,
            byte_order: like.byte_order(),
            logical_birth: like.logical_birth(),
            physical_birth: like.physical_birth(),
            fill: like.fill(),
            crypt: None,
        }
        .build()
        .ok()
    }

    /// Writes a block and gives the pointer to it, which is as `old` in all else.
    fn write(&mut self, old: &Blkptr, content: &[u8]) -> Option<Blkptr> {
        let offset = self.next;
        let size = (content.len() as u64).next_multiple_of(64 << 10);
        self.next += size;
        if self.next > self.end {
            return None;
        }
        self.put(offset, content);
        let order = old.byte_order();
        let mut checksum = fletcher4(content, order);
        let mut crypt = None;
        if old.uses_crypt() {
            let is_indirect = old.level().0 > 0;
            let mac = if is_indirect { indirect_mac(content, order).ok()? } else { old.mac() };
            crypt = Some(CryptParts { salt: old.salt(), iv: old.iv(), mac });
            if old.dmu_type() != DmuType::OBJSET {
                let [first, second] = beside_mac(ChecksumType::Fletcher4, checksum);
                checksum = [first, second, 0, 0];
            }
        }
        BlkptrParts {
            dvas: vec![Dva { vdev: self.vdev, offset: ByteOffset(offset), asize: Asize(size), gang: false }],
            lsize: old.lsize(),
            psize: Psize(old.lsize().get()),
            compress: CompressType::Off,
            checksum_type: ChecksumType::Fletcher4,
            checksum,
            dmu_type: old.dmu_type(),
            level: old.level(),
            dedup: false,
            byte_order: order,
            logical_birth: old.logical_birth(),
            physical_birth: old.physical_birth(),
            fill: old.fill(),
            crypt,
        }
        .build()
        .ok()
    }
}

/// Writes an uberblock, sealed, to its slot of all labels.
fn write_uberblock(found: &FoundPool, devices: &[Arc<Overlay>], pool: &Pool, bytes: &[u8]) {
    for device in devices {
        let candidate =
            found.candidates.values().find(|candidate| candidate.path() == device::Device::path(&**device));
        let Some(ashift) = candidate.and_then(|candidate| candidate.label.vdev_tree.as_ref()?.ashift) else {
            continue;
        };
        let ashift = u32::from(ashift);
        let slot = label::uberblock_slot_of(ashift, pool.uberblock().txg, false);
        for index in 0..LABELS {
            let Some(start) = label::label_offset(device::Device::size_bytes(&**device), index) else {
                continue;
            };
            let at = start.get() + label::uberblock_slot(ashift, slot).get();
            let mut block = bytes.to_vec();
            block.resize(1 << label::uberblock_shift(ashift), 0);
            if seal_label(&mut block, at, pool.uberblock().order).is_ok() {
                device.poke(at, &block);
            }
        }
    }
}
