//! Node numbers: how the kernel names a file to us.
//!
//! | node number | what |
//! |---|---|
//! | 1 | the root directory (FUSE's rule) |
//! | 2 … 2^48-3 | the object of that number in the mounted filesystem |
//! | 2^48-1, 2^48-3 | `.zfs`, `.zfs/snapshot` (OpenZFS gives them these inode numbers; objects never reach them) |
//! | n·2^48 + object | object of the n-th snapshot, n from 1 |
//!
//! Programs see the same numbers as inode numbers, but for the mounted root, whose object number they see. In
//! OpenZFS a snapshot is a mount with a device number of its own, so that its files can have the object
//! numbers there; here they share the device of the mounted filesystem, and with the live file's number they
//! would be taken for the live file (`cp` would not restore them, `rsync -H` would link them). The low 48
//! bits are the object number.

use fuser::INodeNo;
use ondisk::ObjectId;

const OBJECT_BITS: u32 = 48;
const OBJECT_MASK: u64 = (1 << OBJECT_BITS) - 1;

/// The name of the control directory in the root of a filesystem.
pub const ZFS_NAME: &[u8] = b".zfs";
/// The name of the directory of snapshots in it.
pub const SNAPSHOT_NAME: &[u8] = b"snapshot";
/// `.zfs` (`ZFSCTL_INO_ROOT`).
pub const ZFS_DIR: u64 = 0x0000_ffff_ffff_ffff;
/// `.zfs/snapshot` (`ZFSCTL_INO_SNAPDIR`).
pub const SNAPSHOT_DIR: u64 = 0x0000_ffff_ffff_fffd;

/// Most snapshots that node numbers have room for.
pub const MAX_SNAPSHOTS: usize = (1 << (64 - OBJECT_BITS)) - 2;

/// Which filesystem a node is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// The one that is mounted.
    Head,
    /// The snapshot of this place in the list of snapshots.
    Snapshot(usize),
}

/// The object of a node number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// The mounted root.
    Root,
    /// The directory `.zfs`.
    ZfsDir,
    /// The directory `.zfs/snapshot`.
    SnapshotDir,
    /// A file of a filesystem.
    Object(Tree, ObjectId),
}

impl Node {
    /// The object of `number`.
    pub fn from_number(number: INodeNo) -> Self {
        let object = ObjectId(number.0 & OBJECT_MASK);
        match (number.0, number.0 >> OBJECT_BITS) {
            (1, _) => Self::Root,
            (ZFS_DIR, _) => Self::ZfsDir,
            (SNAPSHOT_DIR, _) => Self::SnapshotDir,
            (_, 0) => Self::Object(Tree::Head, object),
            (_, place) => Self::Object(Tree::Snapshot(place as usize - 1), object),
        }
    }

    /// The number of an object of a tree; `None` for one that no file can have.
    pub fn number_of(tree: Tree, object: ObjectId) -> Option<INodeNo> {
        if object.0 <= 1 || object.0 >= SNAPSHOT_DIR {
            return None;
        }
        match tree {
            Tree::Head => Some(INodeNo(object.0)),
            Tree::Snapshot(place) if place < MAX_SNAPSHOTS => {
                Some(INodeNo(((place as u64 + 1) << OBJECT_BITS) | object.0))
            }
            Tree::Snapshot(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_nodes_are_one_to_one() {
        for tree in [Tree::Head, Tree::Snapshot(0), Tree::Snapshot(MAX_SNAPSHOTS - 1)] {
            for object in [2, 34, 1 << 40, SNAPSHOT_DIR - 1] {
                let number = Node::number_of(tree, ObjectId(object)).unwrap();
                assert_eq!(Node::from_number(number), Node::Object(tree, ObjectId(object)));
            }
        }
        assert_eq!(Node::number_of(Tree::Head, ObjectId(1)), None, "the number of the mounted root");
        assert_eq!(Node::number_of(Tree::Snapshot(MAX_SNAPSHOTS), ObjectId(2)), None);
        assert_eq!(Node::from_number(INodeNo(ZFS_DIR)), Node::ZfsDir);
    }
}
