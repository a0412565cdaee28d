//! Owners that need not be POSIX ids: an id within a numbered domain.
//!
//! | bits | meaning |
//! |---|---|
//! | 0-31 | id within the domain |
//! | 32-63 | domain, 0: the id is a plain POSIX id |
//!
//! The filesystem's table of domains is a packed nvlist in an object of its own, whose bonus holds the list's
//! size: an array `fuid_nvlist` of lists with `fuid_idx`, `fuid_offset` (0) and `fuid_domain`.
//!
//! Source: OpenZFS 2.3 `zfs_fuid.h`, `zfs_fuid.c`.

use std::collections::BTreeMap;

use crate::nvlist::{ByteString, Encoding, Nvlist};
use crate::{Error, Result};

/// An owner, group or subject of an ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fuid(pub u64);

impl Fuid {
    /// Combines a domain and an id.
    pub const fn new(domain: u32, id: u32) -> Fuid {
        Fuid((domain as u64) << 32 | id as u64)
    }

    /// Number of the domain; 0: none.
    pub const fn domain(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Id within the domain.
    pub const fn id(self) -> u32 {
        self.0 as u32
    }
}

/// The domains of a filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FuidTable {
    /// Domains by number.
    pub domains: BTreeMap<u32, ByteString>,
}

impl FuidTable {
    /// Parses the packed list.
    pub fn parse(packed: &[u8]) -> Result<FuidTable> {
        let list = Nvlist::parse(packed)?;
        let entries = list.get_nvlist_array("fuid_nvlist")?.iter().map(|entry| {
            let index = entry.get_u64("fuid_idx")?;
            let index = u32::try_from(index)
                .map_err(|_| Error::invalid("table of domains", format!("domain {index}")))?;
            Ok((index, entry.get_string("fuid_domain")?.clone()))
        });
        Ok(FuidTable { domains: entries.collect::<Result<_>>()? })
    }

    /// Packs the list.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let entries = self.domains.iter().map(|(index, domain)| {
            let mut entry = Nvlist::new();
            entry.push("fuid_idx", u64::from(*index));
            entry.push("fuid_offset", 0u64);
            entry.push("fuid_domain", domain.clone());
            entry
        });
        let mut list = Nvlist::new();
        list.push("fuid_nvlist", entries.collect::<Vec<_>>());
        list.encode(Encoding::Xdr)
    }

    /// The domain of an owner; `None` for plain ids and unknown domains.
    pub fn domain_of(&self, fuid: Fuid) -> Option<&ByteString> {
        self.domains.get(&fuid.domain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_table_round_trips(domains in proptest::collection::btree_map(0u32.., "[A-Z0-9-]{0,30}", 0..8)) {
            let domains = domains.into_iter().map(|(index, domain)| (index, domain.as_str().into())).collect();
            let table = FuidTable { domains };
            proptest::prop_assert_eq!(FuidTable::parse(&table.encode().unwrap()), Ok(table));
        }

        #[test]
        fn an_owner_is_its_domain_and_id(raw: u64) {
            let fuid = Fuid(raw);
            proptest::prop_assert_eq!(Fuid::new(fuid.domain(), fuid.id()), fuid);
        }
    }

    #[test]
    fn domains_are_found_by_owner() {
        let table =
            FuidTable { domains: [(1, "S-1-5-21-1".into()), (2, "S-1-5-21-2".into())].into_iter().collect() };
        assert_eq!(table.domain_of(Fuid::new(2, 1000)).and_then(ByteString::to_str), Some("S-1-5-21-2"));
        assert_eq!(table.domain_of(Fuid(1000)), None);
    }
}
