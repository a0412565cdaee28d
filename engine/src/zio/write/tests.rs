//! Encoding and placing on plain data. Tests with pools cover whole batches (`engine/tests/write`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use codec::checksum;
use codec::compress::decompress;
use device::IoBuf;
use ondisk::blkptr::{BlkptrParts, EMBEDDED_PAYLOAD_MAX, gang_pointers};
use ondisk::{Asize, ByteOffset, Level, Psize, Reader, VdevId};
use proptest::prelude::*;

use super::place::Space;
use super::*;

const TXG: Txg = Txg(50);
/// A current pool, except for its gang headers.
fn with_headers(gang_headers: GangHeaders) -> WriterFeatures {
    WriterFeatures { gang_headers, ..WriterFeatures::ALL }
}

const UNITS: Units = Units { min_alloc: 4096, gcd_alloc: 4096 };

/// Bytes of which `noise` in 255 parts are noise; the rest compresses well.
fn bytes(length: usize, seed: u64, noise: u8) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|index| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if index < length * usize::from(noise) / 255 { (state >> 56) as u8 } else { (index / 64) as u8 }
        })
        .collect()
}

fn request(data: &[u8]) -> WriteRequest {
    WriteRequest {
        at: Bookmark::data(5, 6, 7),
        data: Block::from(IoBuf::from(data)),
        dmu_type: DmuType::PLAIN_FILE_CONTENTS,
        checksum: ChecksumType::Fletcher4,
        compress: CompressType::Lz4,
        zstd_level: 3,
        copies: 1,
        class: Class::Normal,
        small_bytes: 0,
        may_embed: true,
        may_gang: true,
        nopwrite: false,
        dedup: None,
        previous: None,
        retain: Retain::In,
        may_feed: true,
        seal: None,
        fill: 1,
    }
}

fn stored(encoded: Encoded) -> Stored {
    match encoded {
        Encoded::Stored(stored) => stored,
        other => panic!("{other:?}"),
    }
}

#[test]
fn zeroes_are_a_hole_unless_compression_is_off() {
    let zeroes = request(&[0; 8192]);
    assert!(matches!(encode(&zeroes, &UNITS, None, TXG), Ok(Encoded::Hole)));
    let plain = WriteRequest { compress: CompressType::Off, ..zeroes };
    let block = stored(encode(&plain, &UNITS, None, TXG).unwrap());
    assert_eq!((block.psize, block.compress), (Psize(8192), CompressType::Off));
}

#[test]
fn what_compresses_to_112_bytes_stands_in_the_pointer_where_it_may() {
    let mut data = vec![0; 16384];
    data[100] = 7;
    let small = request(&data);
    let Encoded::Embedded(bp) = encode(&small, &UNITS, None, TXG).unwrap() else { panic!("not embedded") };
    let embedded = bp.embedded().unwrap();
    assert!(embedded.bytes().len() <= EMBEDDED_PAYLOAD_MAX);
    let mut out = vec![1; data.len()];
    decompress(embedded.compress, embedded.bytes(), &mut out).unwrap();
    assert_eq!((out, bp.logical_birth(), bp.dmu_type()), (data.clone(), TXG, small.dmu_type));

    let stored_instead = [
        WriteRequest { may_embed: false, ..small.clone() },
        WriteRequest { dmu_type: DmuType::DNODE, ..small.clone() },
        WriteRequest { dmu_type: DmuType::OBJSET, ..small.clone() },
        WriteRequest { at: Bookmark { level: 1, ..small.at }, ..small },
    ];
    for request in stored_instead {
        assert_eq!(stored(encode(&request, &UNITS, None, TXG).unwrap()).psize, Psize(4096));
    }
}

#[test]
fn compression_that_saves_less_than_an_eighth_is_not_used() {
    for noise in [0u8, 60, 120, 180, 220, 240, 255] {
        for length in [512usize, 4096, 8192, 32768, 131072] {
            let data = bytes(length, 3, noise);
            let block = match encode(&request(&data), &UNITS, None, TXG).unwrap() {
                Encoded::Stored(block) => block,
                _ => continue,
            };
            let psize = block.psize.get() as usize;
            match block.compress {
                CompressType::Off => assert_eq!(psize, length),
                _ => assert!(psize <= length - length / 8 && psize.is_multiple_of(4096)),
            }
            assert_eq!(block.bytes.len(), psize);
        }
    }
}

#[test]
fn sizes_of_a_block_written_again_in_its_group_only_grow() {
    let good = bytes(32768, 1, 30);
    let bad = bytes(32768, 1, 120);
    let first = stored(encode(&request(&bad), &UNITS, None, TXG).unwrap());
    let alone = stored(encode(&request(&good), &UNITS, None, TXG).unwrap());
    assert!(alone.psize < first.psize && first.psize < Psize(32768));
    let again = WriteRequest { previous: Some(pointer(first.psize, TXG)), ..request(&good) };
    let block = stored(encode(&again, &UNITS, None, TXG).unwrap());
    assert_eq!((block.psize, block.compress), (first.psize, CompressType::Lz4));
    assert!(place_of(&again, &block, TXG).is_some());
    let mut out = vec![0; good.len()];
    decompress(block.compress, &block.bytes, &mut out).unwrap();
    assert_eq!(out, good);
    // A block of an earlier group is never overwritten.
    let later = stored(encode(&again, &UNITS, None, Txg(51)).unwrap());
    assert_eq!(later.psize, alone.psize);
    assert!(place_of(&again, &later, Txg(51)).is_none());
    // And a block that was stored uncompressed stays so.
    let plain = WriteRequest { previous: Some(pointer(Psize(32768), TXG)), ..request(&good) };
    assert_eq!(stored(encode(&plain, &UNITS, None, TXG).unwrap()).compress, CompressType::Off);
}

fn pointer(psize: Psize, birth: Txg) -> Blkptr {
    let parts = BlkptrParts {
        dvas: vec![Dva {
            vdev: VdevId(0),
            offset: ByteOffset(1 << 20),
            asize: Asize(psize.get()),
            gang: false,
        }],
        lsize: Lsize(32768),
        psize,
        compress: CompressType::Lz4,
        checksum_type: ChecksumType::Fletcher4,
        checksum: [1, 2, 3, 4],
        dmu_type: DmuType::PLAIN_FILE_CONTENTS,
        level: Level::DATA,
        dedup: false,
        byte_order: ByteOrder::Little,
        logical_birth: birth,
        physical_birth: birth,
        fill: 1,
        crypt: None,
    };
    parts.build().unwrap()
}

#[test]
fn impossible_blocks_are_refused() {
    for length in [0, 100, 513, (16 << 20) + 512] {
        assert!(encode(&request(&vec![1; length]), &UNITS, None, TXG).is_err(), "{length}");
    }
    let unsalted = WriteRequest { checksum: ChecksumType::Blake3, may_embed: false, ..request(&[1; 512]) };
    assert!(encode(&unsalted, &UNITS, None, TXG).is_err());
    let on = WriteRequest { checksum: ChecksumType::On, may_embed: false, ..request(&[1; 512]) };
    assert!(encode(&on, &UNITS, None, TXG).is_err());
}

/// Two vdevs on which no run is longer than `longest`, with room for `left` allocations.
struct Chopped {
    longest: u64,
    left: Cell<usize>,
    next: RefCell<[u64; 2]>,
    /// Whether the special class takes data, and the classes that were asked.
    takes_small: bool,
    asked: RefCell<Vec<Class>>,
}

impl Chopped {
    fn new(longest: u64, left: usize) -> Self {
        let next = RefCell::new([0; 2]);
        Self { longest, left: Cell::new(left), next, takes_small: true, asked: RefCell::default() }
    }
}

impl Space for Chopped {
    fn takes_small_blocks(&self) -> bool {
        self.takes_small
    }

    fn min_alloc_of(&self, _: &[Dva]) -> u64 {
        4096
    }

    fn allocate(&self, class: Class, psize: u64, copies: usize, _: Txg) -> Result<Vec<Dva>, Denied> {
        self.asked.borrow_mut().push(class);
        if psize > self.longest || self.left.get() < copies {
            return Err(Denied::NoSpace);
        }
        self.left.set(self.left.get() - copies);
        let asize = psize.next_multiple_of(4096);
        let dva = |copy: usize| {
            let next = &mut self.next.borrow_mut()[copy % 2];
            let offset = *next;
            *next += 2 * asize;
            Dva {
                vdev: VdevId(copy as u32 % 2),
                offset: ByteOffset(offset),
                asize: Asize(asize),
                gang: false,
            }
        };
        Ok((0..copies).map(dva).collect())
    }
}

type Disk = BTreeMap<(u32, u64), Vec<u8>>;

/// The contents of the devices after these pieces.
fn apply(disk: &mut Disk, pieces: Vec<crate::vdev::write::Piece>) {
    for piece in pieces {
        disk.insert((piece.top, piece.offset_bytes), piece.data.to_vec());
    }
}

/// Joins a gang as a reader would, and counts the bytes allocated for each copy; verifies every checksum on
/// the way.
fn join(disk: &Disk, bp: &Blkptr, copy: usize, allocated: &mut u64) -> (Vec<u8>, GangTree) {
    let first = bp.dva(0).unwrap();
    let dva = bp.dva(copy).unwrap();
    let header = &disk[&(dva.vdev.get(), dva.offset.get())][..];
    let (vdev, offset) = (first.vdev.get().into(), first.offset.get());
    checksum::verify_gang(header, vdev, offset, TXG.get(), bp.uses_crypt()).unwrap();
    *allocated += 4096;
    let mut reader = Reader::new("gang header", header, ByteOrder::Little);
    let mut data = Vec::new();
    let mut tree = GangTree { members: Vec::new() };
    for _ in 0..gang_pointers(header.len()) {
        let member = Blkptr::read(&mut reader).unwrap();
        if member.is_hole() {
            continue;
        }
        let size = member.psize().get() as usize;
        let (part, below) = if member.is_gang() {
            let (part, below) = join(disk, &member, copy, allocated);
            (part, Some(below))
        } else {
            let dva = member.dva(copy).unwrap();
            *allocated += dva.asize.get();
            (disk[&(dva.vdev.get(), dva.offset.get())][..size].to_vec(), None)
        };
        assert_eq!(part.len(), size);
        let order = ByteOrder::Little;
        checksum::verify(member.checksum_type(), &part, order, None, &member.checksum()).unwrap();
        data.extend(part);
        tree.members.push((member, below));
    }
    (data, tree)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_gang_joins_to_the_block_and_stays_where_it_is(
        sectors in 2u64..260, longest in 1u64..40, copies in 1u8..=3, large: bool,
    ) {
        let longest = longest * 4096;
        let length = (sectors * 4096) as usize;
        prop_assume!(length as u64 > longest);
        let space = Chopped::new(longest, usize::MAX);
        let mut disk = Disk::new();
        let data = bytes(length, 5, 255);
        let request = WriteRequest { copies, compress: CompressType::Off, ..request(&data) };
        let block = stored(encode(&request, &UNITS, None, TXG).unwrap());
        let gang_headers = if large { GangHeaders::Large } else { GangHeaders::SmallYet };
        let mut placement = Placement::new(&space, UNITS, with_headers(gang_headers), TXG);
        let bp = store(&mut placement, 0, &request, block, (None, false), None).unwrap();
        let wants_larger = placement.wants_larger_headers;
        let fresh: u64 = placement.fresh.iter().map(|dva| dva.asize.get()).sum();
        apply(&mut disk, placement.pieces);
        prop_assert!(bp.is_gang());
        prop_assert_eq!(bp.copies(), usize::from(copies).max(2));
        prop_assert_eq!(bp.asize().get(), fresh, "the pointer accounts for all that was allocated");
        for copy in 0..usize::from(copies) {
            let mut allocated = 0;
            let (joined, _) = join(&disk, &bp, copy, &mut allocated);
            prop_assert!(joined == data);
            prop_assert_eq!(bp.dva(copy).unwrap().asize.get(), allocated);
        }

        // Overwritten in its group: the same places, other bytes.
        let (_, tree) = join(&disk, &bp, 0, &mut 0);
        let below = |tree: &GangTree| tree.members.iter().filter(|(_, below)| below.is_some()).count();
        prop_assert_eq!(wants_larger, !large && below(&tree) > 0, "a part was cut again");
        prop_assert!(!large || sectors > 31 * (longest / 4096) || below(&tree) == 0, "31 pointers were enough");
        let data = bytes(length, 6, 255);
        let again = WriteRequest { previous: Some(bp), ..super::tests::request(&data) };
        let again = WriteRequest { copies, compress: CompressType::Off, ..again };
        let block = stored(encode(&again, &UNITS, None, TXG).unwrap());
        let full = Chopped::new(0, 0);
        let mut placement = Placement::new(&full, UNITS, with_headers(gang_headers), TXG);
        let second = store(&mut placement, 0, &again, block, (Some(&tree), false), None).unwrap();
        apply(&mut disk, placement.pieces);
        prop_assert!(second.dvas().eq(bp.dvas()));
        let (joined, _) = join(&disk, &second, usize::from(copies) - 1, &mut 0);
        prop_assert!(joined == data);
        prop_assert_ne!(second.checksum(), bp.checksum());
    }
}

#[test]
fn a_block_that_finds_no_room_in_parts_is_refused_and_all_its_parts_are_known() {
    for left in 0..12 {
        let space = Chopped::new(4096, left);
        let request = WriteRequest { compress: CompressType::Off, ..request(&[9; 32768]) };
        let block = stored(encode(&request, &UNITS, None, TXG).unwrap());
        let mut placement = Placement::new(&space, UNITS, with_headers(GangHeaders::Small), TXG);
        let refused = store(&mut placement, 0, &request, block, (None, false), None);
        assert!(matches!(refused, Err(Unplaced::Failed(Error::NoSpace(_)))), "{left}");
        assert_eq!(placement.fresh.len() + space.left.get(), left, "what was allocated can be given back");
    }
}

#[test]
fn parts_of_a_gang_are_as_large_as_finds_room() {
    let space = Chopped::new(64 << 10, usize::MAX);
    let request = WriteRequest { compress: CompressType::Off, ..request(&[9; 128 << 10]) };
    let block = stored(encode(&request, &UNITS, None, TXG).unwrap());
    let mut placement = Placement::new(&space, UNITS, with_headers(GangHeaders::Large), TXG);
    store(&mut placement, 0, &request, block, (None, false), None).unwrap();
    // Two members, and two copies of the header.
    assert_eq!(placement.fresh.len(), 4);
    assert!(!placement.wants_larger_headers);
}

#[test]
fn a_block_in_the_smallest_unit_is_never_a_gang() {
    let space = Chopped::new(0, 9);
    let request = WriteRequest { compress: CompressType::Off, ..request(&[9; 4096]) };
    let block = stored(encode(&request, &UNITS, None, TXG).unwrap());
    let mut placement = Placement::new(&space, UNITS, with_headers(GangHeaders::Small), TXG);
    assert!(matches!(
        store(&mut placement, 0, &request, block, (None, false), None),
        Err(Unplaced::Failed(Error::NoSpace(_)))
    ));
    assert!(placement.fresh.is_empty());
}

#[test]
fn what_is_small_as_it_is_stored_goes_to_the_special_class_while_that_takes_data() {
    let noise = bytes(16384, 7, 255);
    let flat = bytes(16384, 7, 60);
    for (data, takes_small, class) in
        [(&flat, true, Class::Special), (&flat, false, Class::Normal), (&noise, true, Class::Normal)]
    {
        let space = Chopped { takes_small, ..Chopped::new(u64::MAX, 9) };
        let request = WriteRequest { small_bytes: 8192, may_embed: false, ..request(data) };
        let block = stored(encode(&request, &UNITS, None, TXG).unwrap());
        store(
            &mut Placement::new(&space, UNITS, with_headers(GangHeaders::Small), TXG),
            0,
            &request,
            block,
            (None, false),
            None,
        )
        .unwrap();
        assert_eq!(*space.asked.borrow(), [class]);
    }
}

#[test]
fn a_deduplicated_block_that_becomes_a_gang_is_an_ordinary_one() {
    for (longest, is_dedup) in [(u64::MAX, true), (4096, false)] {
        let space = Chopped::new(longest, usize::MAX);
        let request = WriteRequest {
            compress: CompressType::Off,
            dedup: Some(super::Dedup::ByChecksum),
            ..request(&bytes(16384, 5, 255))
        };
        let block = stored(encode(&request, &UNITS, None, TXG).unwrap());
        let mut placement = Placement::new(&space, UNITS, with_headers(GangHeaders::Small), TXG);
        let bp = store(&mut placement, 0, &request, block, (None, true), None).unwrap();
        assert_eq!((bp.is_dedup(), bp.is_gang()), (is_dedup, !is_dedup));
    }
}

#[test]
fn zeroes_are_never_deduplicated_and_nothing_is_overwritten_for_it() {
    let zeroes = WriteRequest {
        compress: CompressType::Off,
        dedup: Some(super::Dedup::ByChecksum),
        ..request(&[0; 4096])
    };
    assert!(matches!(encode(&zeroes, &UNITS, None, TXG).unwrap(), Encoded::Hole));
    let good = bytes(32768, 5, 255);
    let before = WriteRequest { previous: Some(pointer(Psize(32768), TXG)), ..request(&good) };
    assert!(predecessor(&before, TXG).is_some());
    assert!(predecessor(&WriteRequest { dedup: zeroes.dedup, ..before }, TXG).is_none());
}

#[test]
fn sealed_blocks_of_all_kinds_open_with_their_pointers_alone_or_in_gangs() {
    use codec::crypt::{DatasetKey, Suite};
    use ondisk::blkptr::Protection;

    use crate::env::Seeded;
    use crate::zio::decode;

    let key = Arc::new(DatasetKey::from_random(Suite::Aes256Gcm, 5, [1; 32], [2; 64]));
    let other = DatasetKey::from_random(Suite::Aes256Gcm, 6, [3; 32], [2; 64]);
    let ivs = Ivs::new(Arc::new(Seeded::new(1)));
    let file = DmuType::PLAIN_FILE_CONTENTS;
    for (dmu_type, level, protection) in [
        (file, 0, Protection::Encrypted),
        (file, 1, Protection::IndirectMac),
        (DmuType::MASTER_NODE, 0, Protection::Authenticated),
    ] {
        for (noise, longest) in [(40, u64::MAX), (255, u64::MAX), (255, 8192)] {
            // What points on consists of holes here.
            let data = if level == 0 { bytes(131_072, 3, noise) } else { vec![0; 131_072] };
            let mut request = WriteRequest { seal: Some(Seal::of(Arc::clone(&key))), ..request(&data) };
            request.dmu_type = dmu_type;
            request.at.level = level;
            request.compress = if level == 0 { CompressType::Lz4 } else { CompressType::Off };
            request.copies = 2;
            ivs.give(&mut request).unwrap();
            let block = stored(encode(&request, &UNITS, None, TXG).unwrap());
            let is_compressed = block.compress != CompressType::Off;
            assert_eq!(is_compressed, level == 0 && noise == 40);
            assert_eq!(block.plain.is_some(), is_compressed);
            let (space, mut disk) = (Chopped::new(longest, usize::MAX), Disk::new());
            let headers = with_headers(GangHeaders::Large);
            let mut placement = Placement::new(&space, UNITS, headers, TXG);
            let psize = block.psize.get();
            let bp = store(&mut placement, 0, &request, block, (None, false), None).unwrap();
            apply(&mut disk, placement.pieces);
            assert_eq!((bp.protection(), bp.is_gang()), (protection, psize > longest));
            let there = match bp.is_gang() {
                true => join(&disk, &bp, 1, &mut 0).0,
                false => {
                    let dva = bp.dva(1).unwrap();
                    disk[&(dva.vdev.get(), dva.offset.get())].clone()
                }
            };
            assert_eq!(there == data, !is_compressed && protection != Protection::Encrypted);
            checksum::verify_encrypted(bp.checksum_type(), &there, ByteOrder::Little, None, &bp.checksum())
                .unwrap();
            let opened = |bytes: &[u8], key: &DatasetKey| {
                decode(&bp, &request.at, IoBuf::from(bytes), Some(key)).map(|block| block.to_vec())
            };
            assert!(opened(&there, &key).unwrap() == data);
            assert!(
                protection == Protection::IndirectMac || opened(&there, &other).is_err() || dmu_type != file
            );
            let mut changed = there;
            for at in [5, 50] {
                changed[at] ^= 1;
            }
            assert!(opened(&changed, &key).is_err(), "{protection:?}");
            // Written again, it gets another IV, and no place that it had.
            let mut again = WriteRequest { previous: Some(bp), ..request.clone() };
            ivs.give(&mut again).unwrap();
            assert!(predecessor(&again, TXG).is_none());
            let block = stored(encode(&again, &UNITS, None, TXG).unwrap());
            let iv = block.crypt.unwrap().iv;
            assert_eq!(iv != bp.iv(), protection == Protection::Encrypted);
        }
    }
}

#[test]
fn equal_blocks_of_one_key_are_sealed_alike_where_they_are_deduplicated() {
    use codec::crypt::{DatasetKey, Suite};

    use crate::env::Seeded;

    let ivs = Ivs::new(Arc::new(Seeded::new(1)));
    let key = |master: u8, hmac: u8| {
        Arc::new(DatasetKey::from_random(Suite::Aes128Ccm, 5, [master; 32], [hmac; 64]))
    };
    let sealed = |key: &Arc<DatasetKey>, data: &[u8], compress: CompressType| {
        let seal = Some(Seal::of(Arc::clone(key)).for_dedup());
        let mut request = WriteRequest { seal, compress, ..request(data) };
        request.dmu_type = DmuType::PLAIN_FILE_CONTENTS;
        request.checksum = ChecksumType::Sha256;
        ivs.give(&mut request).unwrap();
        let block = stored(encode(&request, &UNITS, None, TXG).unwrap());
        let crypt = block.crypt.unwrap();
        (block.digest, (crypt.salt, crypt.iv, crypt.mac), block.bytes.to_vec())
    };
    let (data, others) = (bytes(65_536, 3, 40), bytes(65_536, 4, 40));
    let one = key(1, 2);
    for compress in [CompressType::Lz4, CompressType::Off] {
        let first = sealed(&one, &data, compress);
        assert!(first == sealed(&one, &data, compress));
        let ciphertext = |(_, _, bytes): &(_, _, Vec<u8>)| bytes.clone();
        let of_others = sealed(&one, &others, compress);
        assert!(
            of_others.1.0 != first.1.0 && of_others.1.1 != first.1.1,
            "salt and IV follow from the bytes"
        );
        for other in [key(9, 2), key(1, 9)] {
            let other = sealed(&other, &data, compress);
            assert!(ciphertext(&other) != ciphertext(&first) && other.0 != first.0);
        }
    }
}

#[test]
fn what_is_sealed_without_a_key_is_an_object_set() {
    let data = bytes(4096, 3, 255);
    let request = WriteRequest { seal: Some(Seal::kept()), compress: CompressType::Off, ..request(&data) };
    assert!(matches!(encode(&request, &UNITS, None, TXG), Err(Error::KeyNotLoaded { .. })));
    let objset = WriteRequest { dmu_type: DmuType::OBJSET, ..request };
    let block = stored(encode(&objset, &UNITS, None, TXG).unwrap());
    assert!(block.crypt.is_some());
    assert_eq!(
        block.digest,
        checksum::compute(ChecksumType::Fletcher4, &data, ByteOrder::Little, None).unwrap()
    );
}
