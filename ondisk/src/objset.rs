//! Object sets: a dataset's tree of objects, or the pool's own (the MOS).
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 512 | meta_dnode | object whose content is the array of all dnodes |
//! | 512 | 192 | zil_header | head of the intent log, see the `zil` module |
//! | 704 | 8 | type | see [`ObjsetType`] |
//! | 712 | 8 | flags | see [`Objset`] |
//! | 720 | 32 | portable_mac | MAC of what a raw send preserves (encrypted datasets) |
//! | 752 | 32 | local_mac | MAC of the accounting dnodes (encrypted datasets) |
//! | 784 | 240 | | zero |
//! | 1024 | 512 | userused_dnode | space used per user: present when the block has at least 2048 bytes |
//! | 1536 | 512 | groupused_dnode | per group |
//! | 2048 | 512 | projectused_dnode | per project: present when the block has at least 4096 bytes |
//! | 2560 | 1536 | | zero |
//!
//! Source: OpenZFS 2.3 `dmu_objset.h`.

use std::fmt;

use crate::dnode::{DNODE_MIN_SIZE, Dnode};
use crate::{ByteOrder, Error, Reader, Result, Writer};

/// Size without accounting.
pub const OBJSET_SIZE_V1: usize = 1024;
/// Size with accounting per user and group.
pub const OBJSET_SIZE_V2: usize = 2048;
/// Size with accounting per project as well.
pub const OBJSET_SIZE_V3: usize = 4096;
/// Size of the intent log's header inside an object set.
pub const ZIL_HEADER_SIZE: usize = 192;

/// Space per user and group is fully counted.
pub const FLAG_USER_ACCOUNTING_COMPLETE: u64 = 1 << 0;
/// Objects of users and groups are counted too.
pub const FLAG_USER_OBJECT_ACCOUNTING_COMPLETE: u64 = 1 << 1;
/// Projects are counted too.
pub const FLAG_PROJECT_QUOTA_COMPLETE: u64 = 1 << 2;

/// The type of an object set (`dmu_objset_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ObjsetType {
    /// Not set.
    None = 0,
    /// The pool's own objects.
    Meta = 1,
    /// A filesystem.
    Zfs = 2,
    /// A volume.
    Zvol = 3,
    /// Used by tests only.
    Other = 4,
}

impl ObjsetType {
    /// The type of this number.
    pub fn from_raw(raw: u64) -> Result<ObjsetType> {
        Ok(match raw {
            0 => ObjsetType::None,
            1 => ObjsetType::Meta,
            2 => ObjsetType::Zfs,
            3 => ObjsetType::Zvol,
            4 => ObjsetType::Other,
            _ => return Err(Error::unsupported("object set", format!("type {raw}"))),
        })
    }

    /// The name that `zdb` prints.
    pub const fn name(self) -> &'static str {
        match self {
            ObjsetType::None => "NONE",
            ObjsetType::Meta => "META",
            ObjsetType::Zfs => "ZPL",
            ObjsetType::Zvol => "ZVOL",
            ObjsetType::Other => "OTHER",
        }
    }
}

impl fmt::Display for ObjsetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An object set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objset {
    /// Object whose content is the array of all dnodes.
    pub meta_dnode: Dnode,
    /// Header of the intent log as on disk.
    pub zil_header: [u8; ZIL_HEADER_SIZE],
    /// Its use.
    pub objset_type: ObjsetType,
    /// Raw flags.
    pub flags: u64,
    /// MAC of what a raw send preserves.
    pub portable_mac: [u8; 32],
    /// MAC of the accounting dnodes.
    pub local_mac: [u8; 32],
    /// Space used per user.
    pub user_used_dnode: Option<Dnode>,
    /// Space used per group.
    pub group_used_dnode: Option<Dnode>,
    /// Space used per project.
    pub project_used_dnode: Option<Dnode>,
    /// Size of the block: one of the three `OBJSET_SIZE_*`.
    pub size: usize,
    /// Byte order of the block.
    pub order: ByteOrder,
}

impl Objset {
    /// Parses the block of an object set.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Objset> {
        let size = bytes.len();
        if !matches!(size, OBJSET_SIZE_V1 | OBJSET_SIZE_V2 | OBJSET_SIZE_V3) {
            return Err(Error::unsupported("object set", format!("block of {size} bytes")));
        }
        let mut reader = Reader::new("object set", bytes, order);
        let meta_dnode = Dnode::parse(reader.bytes(DNODE_MIN_SIZE)?, order)?
            .ok_or_else(|| Error::invalid("object set", "meta-dnode is free"))?;
        let zil_header = reader.array()?;
        let objset_type = ObjsetType::from_raw(reader.u64()?)?;
        let flags = reader.u64()?;
        let portable_mac = reader.array()?;
        let local_mac = reader.array()?;
        let accounting = |offset: usize| match bytes.get(offset..offset + DNODE_MIN_SIZE) {
            Some(slot) => Dnode::parse(slot, order),
            None => Ok(None),
        };
        Ok(Objset {
            meta_dnode,
            zil_header,
            objset_type,
            flags,
            portable_mac,
            local_mac,
            user_used_dnode: accounting(OBJSET_SIZE_V1)?,
            group_used_dnode: accounting(OBJSET_SIZE_V1 + DNODE_MIN_SIZE)?,
            project_used_dnode: accounting(OBJSET_SIZE_V2)?,
            size,
            order,
        })
    }

    /// The block, [`Objset::size`] bytes in [`Objset::order`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut writer = Writer::new(self.order);
        writer.bytes(&self.meta_dnode.encode()?).bytes(&self.zil_header);
        writer.u64(self.objset_type as u64).u64(self.flags).bytes(&self.portable_mac).bytes(&self.local_mac);
        writer.zeros_to(OBJSET_SIZE_V1);
        for dnode in [&self.user_used_dnode, &self.group_used_dnode, &self.project_used_dnode] {
            match dnode {
                Some(dnode) => writer.bytes(&dnode.encode()?),
                None => writer.zeros(DNODE_MIN_SIZE),
            };
        }
        writer.zeros_to(OBJSET_SIZE_V3);
        let mut bytes = writer.finish();
        bytes.truncate(self.size);
        if Objset::parse(&bytes, self.order)? != *self {
            return Err(Error::invalid("object set", "parts contradict each other"));
        }
        Ok(bytes)
    }

    /// The same in little-endian order.
    pub fn into_little(mut self) -> Objset {
        if self.order == ByteOrder::Big {
            self.zil_header.chunks_exact_mut(8).for_each(<[u8]>::reverse);
        }
        self.order = ByteOrder::Little;
        let accounting =
            [&mut self.user_used_dnode, &mut self.group_used_dnode, &mut self.project_used_dnode];
        let dnodes = accounting.into_iter().flatten().chain([&mut self.meta_dnode]);
        // They have no bonus areas.
        dnodes.for_each(|dnode| dnode.order = ByteOrder::Little);
        self
    }

    /// Space per user and group is fully counted.
    pub fn is_user_accounting_complete(&self) -> bool {
        self.flags & FLAG_USER_ACCOUNTING_COMPLETE != 0
    }

    /// Objects per user and group are fully counted.
    pub fn is_user_object_accounting_complete(&self) -> bool {
        self.flags & FLAG_USER_OBJECT_ACCOUNTING_COMPLETE != 0
    }

    /// Space and objects per project are fully counted.
    pub fn is_project_quota_complete(&self) -> bool {
        self.flags & FLAG_PROJECT_QUOTA_COMPLETE != 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::BlockId;
    use crate::blkptr::{Blkptr, ChecksumType, CompressType};
    use crate::dmu::DmuType;

    fn dnode(order: ByteOrder, dmu_type: DmuType) -> Dnode {
        Dnode {
            dmu_type,
            indirect_block_shift: 17,
            levels: 6,
            blkptrs: vec![Blkptr::HOLE; 3],
            bonus_type: DmuType::NONE,
            checksum: ChecksumType::Inherit,
            compress: CompressType::Inherit,
            flags: 0,
            data_block_sectors: 32,
            extra_slots: 0,
            max_block_id: BlockId(0),
            used: 0,
            bonus: Box::new([]),
            spill: None,
            order,
        }
    }

    #[test]
    fn all_three_sizes_round_trip_in_both_orders() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for size in [OBJSET_SIZE_V1, OBJSET_SIZE_V2, OBJSET_SIZE_V3] {
                let accounting = |from: usize| (size >= from).then(|| dnode(order, DmuType::USERGROUP_USED));
                let objset = Objset {
                    meta_dnode: dnode(order, DmuType::DNODE),
                    zil_header: [9; ZIL_HEADER_SIZE],
                    objset_type: ObjsetType::Zfs,
                    flags: 5,
                    portable_mac: [1; 32],
                    local_mac: [2; 32],
                    user_used_dnode: accounting(OBJSET_SIZE_V2),
                    group_used_dnode: accounting(OBJSET_SIZE_V2),
                    project_used_dnode: accounting(OBJSET_SIZE_V3),
                    size,
                    order,
                };
                let bytes = objset.encode().unwrap();
                assert_eq!(bytes.len(), size);
                assert_eq!(Objset::parse(&bytes, order).unwrap(), objset);
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 1024), head: [u8; 16]) {
            bytes[..16].copy_from_slice(&head);
            bytes[0] = DmuType::DNODE.raw();
            let _ = (Objset::parse(&bytes, ByteOrder::Little), Objset::parse(&bytes, ByteOrder::Big));
        }
    }

    #[test]
    fn other_sizes_are_refused() {
        assert!(Objset::parse(&[0; 512], ByteOrder::Little).is_err());
        assert!(Objset::parse(&[0; 3072], ByteOrder::Little).is_err());
    }
}
