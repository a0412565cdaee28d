//! Partition tables of whole disks in a pool.
//!
//! # The idea
//! A disk without a partition table looks empty to other systems, which then offer to format it. So OpenZFS
//! puts a GPT on it: partition 1 for the pool, and partition 9, 8 MiB at the end, which stay unused so that a
//! replacement disk may be a little smaller. `zpool` still calls the device by the name of the disk.
//!
//! # Layout
//!
//! | where (sectors) | what |
//! |---|---|
//! | 0 | protective MBR: one partition of type `ee` over the disk |
//! | 1 | header, 92 bytes, little-endian (below) |
//! | 2 ... | 128 entries of 128 bytes |
//! | 1 MiB ... | partition 1, whose end is a multiple of 2048 sectors from its start |
//! | then 8 MiB | partition 9 |
//! | end - entries - 1 | the entries once more |
//! | last | the header once more, with places exchanged |
//!
//! | offset | size | header |
//! |---|---|---|
//! | 0 | 8 | `EFI PART` |
//! | 8 | 4 | revision 1.0 |
//! | 12 | 4 | size of the header, 92 |
//! | 16 | 4 | CRC32 of the header, with this field 0 |
//! | 24 | 8 | its own sector |
//! | 32 | 8 | sector of the other header |
//! | 40 | 16 | first and last usable sector |
//! | 56 | 16 | GUID of the disk |
//! | 72 | 8 | first sector of the entries |
//! | 80 | 8 | number and size of entries |
//! | 88 | 4 | CRC32 of all entries |
//!
//! An entry: type GUID, own GUID, first and last sector, attributes (8 bytes), name (36 UTF-16 units).
//!
//! Sources: UEFI 2.10, chapter 5; OpenZFS 2.3 `libzfs_pool_os.c` (`zpool_label_disk`), `rdwr_efi.c`,
//! `zutil_device_path_os.c` (`zfs_append_partition`).

use std::ops::Range;
use std::path::{Path, PathBuf};

use device::{Device, IoBuf, IoError};
use ondisk::{ByteOrder, Writer};

/// The number of entries in a table, and the bytes of one.
const ENTRIES: u64 = 128;
const ENTRY_BYTES: u64 = 128;
const HEADER_BYTES: usize = 92;
const REVISION_1_0: u32 = 0x0001_0000;
/// The start of partition 1.
const START_BYTES: u64 = 1 << 20;
/// The size of partition 9.
const RESERVED_BYTES: u64 = 8 << 20;
/// Its number, from 0.
const RESERVED_INDEX: usize = 8;
/// The length of partition 1 is a multiple of this many sectors.
const LENGTH_UNIT_SECTORS: u64 = 2048;
/// The smallest device that a pool accepts.
const MIN_PARTITION_BYTES: u64 = ondisk::label::MIN_DEVICE_SIZE;

/// The type of partition 1, `6a898cc3-1dd2-11b2-99a6-080020736631` (`BF01` in sgdisk, "Solaris /usr & Apple
/// ZFS"), in its stored form.
const TYPE_ZFS: [u8; 16] = solaris_type(0x6a89_8cc3);
/// The type of partition 9, `6a945a3b-1dd2-11b2-99a6-080020736631` (`BF07`, "Solaris reserved").
const TYPE_RESERVED: [u8; 16] = solaris_type(0x6a94_5a3b);

/// All Solaris types differ only in their first part. The first three parts are stored in little-endian
/// order.
const fn solaris_type(first: u32) -> [u8; 16] {
    let [a, b, c, d] = first.to_le_bytes();
    [a, b, c, d, 0xd2, 0x1d, 0xb2, 0x11, 0x99, 0xa6, 0x08, 0x00, 0x20, 0x73, 0x66, 0x31]
}

/// A partition table, ready to be written.
#[derive(Debug)]
pub struct Table {
    /// The bytes at the beginning of the disk: protective MBR, header, entries.
    pub front: Vec<u8>,
    /// The bytes at the end of the disk: entries, header.
    pub back: Vec<u8>,
    /// The offset of `back`, in bytes.
    pub back_offset: u64,
    /// Bytes of partition 1.
    pub partition: Range<u64>,
}

struct Entry {
    index: usize,
    of_type: [u8; 16],
    guid: [u8; 16],
    /// Sectors.
    range: Range<u64>,
    name: String,
}

impl Table {
    /// The table for a whole disk in a pool. `None` when the disk is too small. `random` makes the guids.
    pub fn whole_disk(size_bytes: u64, sector_bytes: u32, mut random: impl FnMut() -> u64) -> Option<Self> {
        if !sector_bytes.is_power_of_two() || !(512..=1 << 20).contains(&sector_bytes) {
            return None;
        }
        let sector = u64::from(sector_bytes);
        let sectors = size_bytes / sector;
        let of_entries = (ENTRIES * ENTRY_BYTES).div_ceil(sector);
        let usable = 2 + of_entries..sectors.checked_sub(1 + of_entries)?;
        let start = START_BYTES.div_ceil(sector).max(usable.start);
        let room = usable.end.checked_sub(start + RESERVED_BYTES.div_ceil(sector))?;
        let length = room / LENGTH_UNIT_SECTORS * LENGTH_UNIT_SECTORS;
        if length * sector < MIN_PARTITION_BYTES {
            return None;
        }
        let name = format!("zfs-{:016x}", random());
        let mut guid = || random_guid([random(), random()]);
        let disk = guid();
        let end = start + length;
        let entries = [
            Entry { index: 0, of_type: TYPE_ZFS, guid: guid(), range: start..end, name },
            Entry {
                index: RESERVED_INDEX,
                of_type: TYPE_RESERVED,
                guid: guid(),
                range: end..end + RESERVED_BYTES.div_ceil(sector),
                name: String::new(),
            },
        ];
        let mut entries = encode_entries(&entries);
        let checksum = crc32(&entries);
        entries.resize((of_entries * sector) as usize, 0);
        let header = |own: u64, other: u64, entries_at: u64| {
            let mut header = Writer::new(ByteOrder::Little);
            header.bytes(b"EFI PART").u32(REVISION_1_0).u32(HEADER_BYTES as u32).u32(0).u32(0);
            header.u64(own).u64(other).u64(usable.start).u64(usable.end - 1).bytes(&disk);
            header.u64(entries_at).u32(ENTRIES as u32).u32(ENTRY_BYTES as u32).u32(checksum);
            let mut header = header.finish();
            let checksum = crc32(&header);
            header[16..20].copy_from_slice(&checksum.to_le_bytes());
            header.resize(sector as usize, 0);
            header
        };
        let last = sectors - 1;
        let back_start = usable.end;
        let front = [protective_mbr(sectors, sector as usize), header(1, last, 2), entries.clone()].concat();
        let back = [entries, header(last, 1, back_start)].concat();
        Some(Self { front, back, back_offset: back_start * sector, partition: start * sector..end * sector })
    }

    /// Writes the table, its second copy first, and makes it durable. Old labels at the ends of the pool's
    /// partition are blanked, so that they are not found as a pool.
    pub async fn write(&self, disk: &dyn Device) -> Result<(), IoError> {
        let label_bytes = 2 * ondisk::label::LABEL_SIZE;
        for offset in [self.partition.start, self.partition.end - label_bytes] {
            disk.write(offset, IoBuf::zeroed(label_bytes as usize)).await?;
        }
        disk.write(self.back_offset, IoBuf::from(&self.back[..])).await?;
        disk.write(0, IoBuf::from(&self.front[..])).await?;
        disk.flush().await
    }
}

/// The path of partition 1 of a disk: `/dev/sda1`, `/dev/nvme0n1p1`, `/dev/disk/by-id/…-part1`.
pub fn partition_path(disk: &Path) -> PathBuf {
    let mut path = disk.as_os_str().to_owned();
    path.push(match path.as_encoded_bytes().last() {
        _ if disk.starts_with("/dev/disk") => "-part1",
        Some(last) if last.is_ascii_digit() => "p1",
        _ => "1",
    });
    path.into()
}

fn encode_entries(entries: &[Entry]) -> Vec<u8> {
    let mut table = vec![0; (ENTRIES * ENTRY_BYTES) as usize];
    for entry in entries {
        let mut writer = Writer::new(ByteOrder::Little);
        writer.bytes(&entry.of_type).bytes(&entry.guid);
        writer.u64(entry.range.start).u64(entry.range.end - 1).u64(0);
        for unit in entry.name.encode_utf16() {
            writer.u16(unit);
        }
        let bytes = writer.finish();
        let start = entry.index * ENTRY_BYTES as usize;
        table[start..start + bytes.len()].copy_from_slice(&bytes);
    }
    table
}

/// One partition over the whole disk, for systems that do not know GPT.
fn protective_mbr(sectors: u64, sector_bytes: usize) -> Vec<u8> {
    let length = u32::try_from(sectors - 1).unwrap_or(u32::MAX);
    let mut mbr = vec![0; sector_bytes];
    // Not bootable; first sector 1 as cylinder, head and sector; type; last sector, not expressible; first
    // sector and length.
    mbr[446..454].copy_from_slice(&[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff]);
    mbr[454..458].copy_from_slice(&1u32.to_le_bytes());
    mbr[458..462].copy_from_slice(&length.to_le_bytes());
    mbr[510..512].copy_from_slice(&[0x55, 0xaa]);
    mbr
}

/// A GUID of version 4, in its stored form.
fn random_guid(words: [u64; 2]) -> [u8; 16] {
    let mut guid = [0; 16];
    for (bytes, word) in guid.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    guid[7] = guid[7] & 0x0f | 0x40;
    guid[8] = guid[8] & 0x3f | 0x80;
    guid
}

/// CRC-32 as in IEEE 802.3, bit by bit: tables are small and rarely written.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    };
    !bytes.iter().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::{OpenOptions, block_on};

    #[test]
    fn crc32_is_the_one_of_ieee() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn both_copies_tell_the_same_partitions() {
        for (size, sector) in [(100 << 20, 512u32), ((1 << 30) + 4096, 4096)] {
            let table = Table::whole_disk(size, sector, || 7).expect("large enough");
            let sector = u64::from(sector);
            assert_eq!(table.back_offset + table.back.len() as u64, size);
            let entries = &table.front[2 * sector as usize..];
            assert!(table.back.starts_with(entries));
            assert_eq!(entries[..16], TYPE_ZFS);
            let field =
                |at: usize| entries[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes) * sector);
            assert_eq!(
                (field(32), field(40)),
                (Some(table.partition.start), Some(table.partition.end - sector))
            );
            assert_eq!(table.partition.start, 1 << 20);
            // Partition 9 follows and ends before the second copy.
            let reserved = 8 * 128;
            assert_eq!(field(reserved + 32), Some(table.partition.end));
            let end = field(reserved + 40).expect("there") + sector;
            assert!(end == table.partition.end + (8 << 20) && end <= table.back_offset);
        }
        assert!(Table::whole_disk(72 << 20, 512, || 7).is_none());
        assert!(Table::whole_disk(0, 512, || 7).is_none());
    }

    #[test]
    fn parted_sees_the_partitions() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(256 << 20).expect("grows");
        let mut seed = 0;
        let random = || {
            seed += 0x1234_5678_9abc_def1;
            seed
        };
        let table = Table::whole_disk(256 << 20, 512, random).expect("large enough");
        let device = OpenOptions::read_write().open(&file).expect("opens");
        block_on(table.write(&device)).expect("writes");
        let mut parted = std::process::Command::new("parted");
        parted.arg("-ms").arg(file.path()).args(["unit", "s", "print"]);
        let parted = parted.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").output();
        // `parted` may be missing; the checks above cover the layout too.
        let Ok(output) = parted else { return };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("gpt"), "{text}");
        assert!(text.contains("1:2048s:505855s:503808s::zfs-"), "{text}");
        assert!(text.contains("9:505856s:522239s:16384s"), "{text}");
    }

    #[test]
    fn the_partition_has_the_name_that_linux_gives_it() {
        for (disk, partition) in [
            ("/dev/sda", "/dev/sda1"),
            ("/dev/nvme0n1", "/dev/nvme0n1p1"),
            ("/dev/disk/by-id/ata-X_1", "/dev/disk/by-id/ata-X_1-part1"),
        ] {
            assert_eq!(partition_path(Path::new(disk)), Path::new(partition));
        }
    }
}
