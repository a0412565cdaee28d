//! Whether a device holds data that its owner would miss, found by the signatures of known formats.
//!
//! The names are those of `blkid`. Pools are found by their labels, which have checksums, in another crate.
//!
//! Source of the facts: the formats' own documents, as libblkid's `superblocks` and `partitions` list them.

/// Bytes at the beginning of a device in which all signatures are.
pub const SIGNATURE_BYTES: usize = 128 << 10;

/// The kind of data that a signature stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The kind, as `blkid` calls it.
    pub kind: &'static str,
    /// Whether it is a partition table, of which others may say what its partitions hold.
    pub is_table: bool,
}

/// Where a kind has its signature, and what that is. Tables come last: some filesystems have the mark of one
/// too.
const SIGNATURES: [(usize, &[u8], &str); 26] = [
    (1080, &[0x53, 0xef], "ext"),
    (0, b"XFSB", "xfs"),
    (0x1_0040, b"_BHRfS_M", "btrfs"),
    (4086, b"SWAPSPACE2", "swap"),
    (4086, b"SWAP-SPACE", "swap"),
    (0, b"LUKS\xba\xbe", "crypto_LUKS"),
    (536, b"LVM2 001", "LVM2_member"),
    (3, b"NTFS    ", "ntfs"),
    (3, b"EXFAT   ", "exfat"),
    (82, b"FAT32   ", "vfat"),
    (54, b"FAT16   ", "vfat"),
    (54, b"FAT12   ", "vfat"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "f2fs"),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], "linux_raid_member"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "linux_raid_member"),
    (0, b"bluestore block device", "ceph_bluestore"),
    (32_769, b"CD001", "iso9660"),
    (32_768, b"JFS1", "jfs"),
    (1024, b"H+", "hfsplus"),
    (32, b"NXSB", "apfs"),
    (0, b"hsqs", "squashfs"),
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], "erofs"),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcache"),
    (512, b"EFI PART", "gpt"),
    (4096, b"EFI PART", "gpt"),
    (510, &[0x55, 0xaa], "dos"),
];

/// The format on a device, by its first [`SIGNATURE_BYTES`], or as many as it has; nothing where no signature
/// is known.
pub fn signature(start: &[u8]) -> Option<Signature> {
    let is_there = |(offset, bytes, _): &&(usize, &[u8], &str)| {
        start.get(*offset..).is_some_and(|at| at.starts_with(bytes))
    };
    let (_, _, kind) = SIGNATURES.iter().find(is_there)?;
    Some(Signature { kind, is_table: matches!(*kind, "gpt" | "dos") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_a_device_is_known_by_its_signature() {
        let with = |offset: usize, bytes: &[u8]| {
            let mut start = vec![0; SIGNATURE_BYTES];
            start[offset..offset + bytes.len()].copy_from_slice(bytes);
            start
        };
        for (offset, bytes, kind) in SIGNATURES {
            assert!(offset + bytes.len() <= SIGNATURE_BYTES, "{kind}");
            assert_eq!(signature(&with(offset, bytes)).unwrap().kind, kind);
        }
        let mut fat = with(82, b"FAT32   ");
        fat[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(signature(&fat), Some(Signature { kind: "vfat", is_table: false }));
        assert!(signature(&with(512, b"EFI PART")).is_some_and(|it| it.is_table));
        assert_eq!(signature(&with(0, b"")), None);
        assert_eq!(signature(b"XFS"), None);
    }
}
