//! `-R`: what lies at an address, given as `VDEV:OFFSET:SIZE[:FLAGS]` in hexadecimal. `-E`: what an embedded
//! block pointer carries.
//!
//! `VDEV` is the number of a top-level vdev, with dots the numbers of children below it, or a path or guid of
//! a vdev. `SIZE` may be `LOGICAL/PHYSICAL`, as block pointers are shown (`20000L/400P`). The flags:
//!
//! | flag | shows |
//! |---|---|
//! | (none) | the bytes in hexadecimal and as text |
//! | `r` | the bytes as they are |
//! | `d` | the block decompressed, by whichever function fits |
//! | `i` | as an indirect block: all block pointers |
//! | `bOFFSET` | the block pointer at this offset |
//! | `g` | as a gang header of `SIZE`: as many block pointers as it has room for |
//! | `e` | words in the other byte order |
//! | `c` | all checksums of the block too |
//!
//! Nothing is verified: what a block should be, only its pointer knows.

use anyhow::{Context, Result, anyhow, bail, ensure};
use codec::compress::decompress;
use engine::Bookmark;
use engine::dmu::zap::lookup;
use engine::vdev::{Kind, LABEL_START_BYTES, Tops, Vdev};
use ondisk::blkptr::{
    Blkptr, BlkptrParts, ChecksumType, CompressType, Dva, EmbeddedType, MAX_BLOCK_SIZE, gang_pointers,
};
use ondisk::dmu::DmuType;
use ondisk::pool_directory::{CHECKSUM_SALT, DIRECTORY_OBJECT};
use ondisk::{Asize, ByteOffset, ByteOrder, Level, Lsize, Psize, Txg, VdevId};

use super::{Out, View};

/// Sectors that addresses and sizes are multiples of.
const SECTOR: u64 = 512;
/// How the block may have been compressed, the pickiest function first: the last two accept nearly anything.
const COMPRESSIONS: [CompressType; 5] =
    [CompressType::Zstd, CompressType::Lz4, CompressType::Gzip6, CompressType::Lzjb, CompressType::Zle];

/// An address, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    vdev: String,
    offset: u64,
    lsize: u64,
    psize: u64,
    flags: Flags,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Flags {
    raw: bool,
    decompress: bool,
    indirect: bool,
    pointer_at: Option<usize>,
    gang: bool,
    swap: bool,
    checksums: bool,
}

impl Address {
    fn parse(text: &str) -> Result<Self> {
        let wrong = || anyhow!("'{text}' is no address VDEV:OFFSET:SIZE[:FLAGS]");
        let hex = |part: &str| {
            u64::from_str_radix(part.trim_start_matches("0x"), 16).ok().filter(|number| number % SECTOR == 0)
        };
        let mut parts = text.splitn(4, ':');
        let vdev = parts.next().filter(|vdev| !vdev.is_empty()).ok_or_else(wrong)?.to_owned();
        let offset = parts.next().and_then(hex).ok_or_else(wrong)?;
        let size = parts.next().ok_or_else(wrong)?;
        let (lsize, psize) = size.split_once('/').unwrap_or((size, size));
        // As block pointers are shown: 20000L/400P.
        let size = |part: &str| hex(part.trim_end_matches(['L', 'P'])).ok_or_else(wrong);
        let (lsize, psize) = (size(lsize)?, size(psize)?);
        let sane = |size| (SECTOR..=MAX_BLOCK_SIZE).contains(&size);
        ensure!(sane(lsize) && sane(psize) && psize <= lsize, "'{text}': a block has 200 to 1000000 bytes");
        let flags = Flags::parse(parts.next().unwrap_or_default()).with_context(|| format!("'{text}'"))?;
        Ok(Self { vdev, offset, lsize, psize, flags })
    }
}

impl Flags {
    fn parse(text: &str) -> Result<Self> {
        let mut flags = Self::default();
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            rest = rest.get(letter.len_utf8()..).unwrap_or_default();
            match letter {
                'r' => flags.raw = true,
                'd' => flags.decompress = true,
                'i' => flags.indirect = true,
                'g' => flags.gang = true,
                'e' => flags.swap = true,
                'c' => flags.checksums = true,
                // More words while looking; nothing is left out here.
                'v' | ':' => {}
                'b' => {
                    let digits =
                        rest.find(|letter: char| !letter.is_ascii_hexdigit() || "dec".contains(letter));
                    let (offset, after) = rest.split_at(digits.unwrap_or(rest.len()));
                    rest = after;
                    let offset = if offset.is_empty() { 0 } else { usize::from_str_radix(offset, 16)? };
                    ensure!(offset.is_multiple_of(Blkptr::SIZE), "block pointers start at multiples of 80");
                    flags.pointer_at = Some(offset);
                }
                other => bail!("there is no flag '{other}'"),
            }
        }
        Ok(flags)
    }
}

/// What lies at an address.
pub(super) async fn dump(view: &View<'_>, text: &str, out: &mut Out<'_>) -> Result<()> {
    let address = Address::parse(text)?;
    let stored = read(view, &address).await?;
    let flags = &address.flags;
    let wants_pointers = flags.indirect || flags.pointer_at.is_some();
    let mut bytes = stored.clone();
    if flags.decompress || (wants_pointers && !holds_pointers(&stored, flags)) {
        bytes = decompressed(&stored, &address).ok_or_else(|| anyhow!("'{text}' cannot be decompressed"))?;
    }
    let order = if flags.swap { other_order() } else { ByteOrder::HOST };
    if let Some(offset) = flags.pointer_at {
        write_pointers(bytes.get(offset..).unwrap_or_default(), 1, order, out)?;
    } else if flags.raw {
        let swapped = bytes.iter().copied();
        match flags.swap {
            true => bytes
                .chunks(8)
                .try_for_each(|word| out.write_all(&word.iter().rev().copied().collect::<Vec<_>>()))?,
            false => out.write_all(&swapped.collect::<Vec<_>>())?,
        }
        return Ok(());
    } else if flags.indirect {
        // As many as the size that was asked for has, however long the block is when decompressed.
        write_pointers(&bytes, address.lsize as usize / Blkptr::SIZE, order, out)?;
    } else if flags.gang {
        write_pointers(&bytes, gang_pointers(bytes.len()), order, out)?;
    } else {
        write_hex(text, &bytes, flags.swap, out)?;
    }
    if flags.checksums && !flags.gang {
        write_checksums(view, &stored, order, out).await?;
    }
    Ok(())
}

fn other_order() -> ByteOrder {
    match ByteOrder::HOST {
        ByteOrder::Little => ByteOrder::Big,
        ByteOrder::Big => ByteOrder::Little,
    }
}

/// The bytes at the address: of a top-level vdev through its redundancy, of a leaf as they lie there.
async fn read(view: &View<'_>, address: &Address) -> Result<Vec<u8>> {
    let tree = view.dsl.pool().vdevs();
    let (top, vdev) =
        find(&tree.tops, &address.vdev).ok_or_else(|| anyhow!("there is no vdev '{}'", address.vdev))?;
    let size = address.psize;
    let device = match &vdev.kind {
        Kind::Leaf(slot) if !std::ptr::eq(top, vdev) => slot.device(),
        _ => None,
    };
    if let Some(device) = device {
        let place = address.offset.checked_add(LABEL_START_BYTES).context("the offset is too large")?;
        return Ok(device.read(place, size as usize).await?.to_vec());
    }
    ensure!(std::ptr::eq(top, vdev), "'{}' is neither a top-level vdev nor a device", address.vdev);
    let birth = Txg::INITIAL;
    let asize = top.psize_to_asize(size, birth.get()).context("the vdev has no space of its own")?;
    let parts = BlkptrParts {
        dvas: vec![Dva {
            vdev: VdevId(u32::try_from(top.id)?),
            offset: ByteOffset(address.offset),
            asize: Asize(asize),
            gang: false,
        }],
        lsize: Lsize(size),
        psize: Psize(size),
        compress: CompressType::Off,
        checksum_type: ChecksumType::Off,
        checksum: [0; 4],
        dmu_type: DmuType::PLAIN_OTHER,
        level: Level::DATA,
        dedup: false,
        byte_order: ByteOrder::HOST,
        logical_birth: birth,
        physical_birth: birth,
        fill: 1,
        crypt: None,
    };
    let bp = parts.build()?;
    Ok(view.dsl.pool().read_raw(&bp, &Bookmark::data(0, 0, 0)).await?.to_vec())
}

/// The vdev of a name, and the top-level vdev that it belongs to.
fn find<'a>(tops: &'a Tops, name: &str) -> Option<(&'a Vdev, &'a Vdev)> {
    let mut numbers = name.split('.').map(str::parse::<usize>);
    if let Some(Ok(number)) = numbers.next()
        && let Some(top) = tops.get(number)
    {
        let below = numbers.try_fold(top, |vdev, child| vdev.children.get(child.ok()?));
        return below.map(|vdev| (top, vdev));
    }
    let is_named = |vdev: &&Vdev| {
        let last = vdev.name.rsplit('/').next() == Some(name);
        vdev.name == name || last || vdev.guid.get().to_string() == name
    };
    tops.iter().find_map(|top| top.walk().find(is_named).map(|vdev| (top, vdev)))
}

fn holds_pointers(bytes: &[u8], flags: &Flags) -> bool {
    let bytes = bytes.get(flags.pointer_at.unwrap_or(0)..).unwrap_or_default();
    Blkptr::parse(bytes, ByteOrder::HOST).is_ok()
}

/// The block decompressed by the first function that fits. Without a logical size all powers of two are
/// tried.
fn decompressed(stored: &[u8], address: &Address) -> Option<Vec<u8>> {
    let sizes: Vec<u64> = match address.lsize == address.psize {
        false => vec![address.lsize],
        true => (9..=24).map(|power| 1 << power).filter(|size| *size >= address.psize).collect(),
    };
    let fits = |compress: CompressType, size: u64| {
        // A decompressor that leaves a byte of the block alone has failed.
        let mut blocks = [vec![0; size as usize], vec![0xff; size as usize]];
        let all = blocks.iter_mut().all(|block| decompress(compress, stored, block).is_ok());
        let [block, other] = blocks;
        (all && block == other).then_some(block)
    };
    COMPRESSIONS.iter().find_map(|compress| sizes.iter().find_map(|size| fits(*compress, *size)))
}

fn write_pointers(bytes: &[u8], count: usize, order: ByteOrder, out: &mut Out<'_>) -> Result<()> {
    for bytes in bytes.chunks_exact(Blkptr::SIZE).take(count) {
        match Blkptr::parse(bytes, order) {
            Ok(bp) => writeln!(out, "{bp}")?,
            Err(error) => writeln!(out, "no block pointer: {error}")?,
        }
    }
    Ok(())
}

fn write_hex(title: &str, bytes: &[u8], swap: bool, out: &mut Out<'_>) -> Result<()> {
    let columns =
        if swap { " 7 6 5 4 3 2 1 0   f e d c b a 9 8" } else { " 0 1 2 3 4 5 6 7   8 9 a b c d e f" };
    writeln!(out, "\n{title}\n{:>6}   {columns}  0123456789abcdef", "")?;
    for (offset, line) in (0..).step_by(16).zip(bytes.chunks(16)) {
        write!(out, "{offset:06x}:  ")?;
        for word in line.chunks(8) {
            let hex = |byte: &u8| format!("{byte:02x}");
            let text: String = match swap {
                true => word.iter().rev().map(hex).collect(),
                false => word.iter().map(hex).collect(),
            };
            write!(out, "{text}  ")?;
        }
        let text = line.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        });
        writeln!(out, "{}", text.collect::<String>())?;
    }
    Ok(())
}

async fn write_checksums(view: &View<'_>, bytes: &[u8], order: ByteOrder, out: &mut Out<'_>) -> Result<()> {
    let directory = view.mos.object(DIRECTORY_OBJECT).await?;
    let salt = lookup(&directory, CHECKSUM_SALT).await?;
    let salt: Option<[u8; 32]> = salt.as_ref().and_then(|salt| salt.as_bytes()?.try_into().ok());
    writeln!(out)?;
    for ty in ChecksumType::ALL {
        if ty.is_embedded() || matches!(ty, ChecksumType::Inherit | ChecksumType::On | ChecksumType::NoParity)
        {
            continue;
        }
        if let Ok([a, b, c, d]) = codec::checksum::compute(*ty, bytes, order, salt.as_ref()) {
            writeln!(out, "{:>12}\tcksum={a:016x}:{b:016x}:{c:016x}:{d:016x}", ty.name())?;
        }
    }
    Ok(())
}

/// What an embedded block pointer carries, given as 16 words in hexadecimal with colons between them.
pub(super) fn dump_embedded(text: &str, out: &mut Out<'_>) -> Result<()> {
    let words: Vec<u64> = text
        .split(':')
        .map(|word| u64::from_str_radix(word, 16))
        .collect::<Result<_, _>>()
        .context("a block pointer is 16 hexadecimal words with colons between them")?;
    let words: [u64; 16] = words
        .try_into()
        .map_err(|words: Vec<u64>| anyhow!("{} words, and a block pointer has 16", words.len()))?;
    let bp = Blkptr::from_words(words)?;
    let embedded = bp.embedded().context("the block pointer does not contain data, it points to data")?;
    ensure!(embedded.kind == EmbeddedType::Data, "the block pointer contains no data");
    // Bounded by the parser.
    let mut block = vec![0; embedded.lsize.get() as usize];
    match embedded.compress {
        CompressType::Off => {
            let length = embedded.bytes().len().min(block.len());
            block[..length].copy_from_slice(&embedded.bytes()[..length]);
        }
        compress => decompress(compress, embedded.bytes(), &mut block)?,
    }
    out.write_all(&block)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_hexadecimal_with_flags() {
        let address = Address::parse("0.1:4000:20000/400:db80r").unwrap();
        assert_eq!((address.vdev.as_str(), address.offset), ("0.1", 0x4000));
        assert_eq!((address.lsize, address.psize), (0x20000, 0x400));
        assert_eq!(Address::parse("0.1:4000:20000L/400P:db80r").unwrap(), address);
        let flags = Flags { decompress: true, pointer_at: Some(0x80), raw: true, ..Flags::default() };
        assert_eq!(address.flags, flags);
        for wrong in ["", "0", "0:1:200", "0:200:1", "0:0:0", "0:0:200:x", "0:0:200:b1", "0:0:2000000"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn compressed_blocks_are_recognized_with_and_without_their_size() {
        let block: Vec<u8> = (0..0x2000u32).map(|at| (at / 64) as u8).collect();
        let mut stored = vec![0; 0x1000];
        let length = codec::compress::compress(CompressType::Lz4, 0, &block, &mut stored).unwrap();
        stored.truncate(length.next_multiple_of(512));
        for lsize in [0x2000, stored.len() as u64] {
            let psize = stored.len() as u64;
            let address = Address { vdev: "0".into(), offset: 0, lsize, psize, flags: Flags::default() };
            assert_eq!(decompressed(&stored, &address).as_deref(), Some(&block[..]));
        }
    }
}
