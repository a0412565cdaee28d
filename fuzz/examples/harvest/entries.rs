//! Inputs of the targets that read what ZAPs and attributes hold: values, and what is unpacked from them.

use codec::compress::decompress;
use engine::dmu::sa::Registry;
use engine::dmu::zap::{Entry, Key, lookup_u64};
use engine::dmu::{Object, Objset};
use ondisk::bookmark::BookmarkPhys;
use ondisk::bytes::ByteOrder;
use ondisk::ddt::{DdtHistogram, PackedPhys, PhysForm};
use ondisk::dmu::DmuType;
use ondisk::sa::Attr;
use ondisk::zpl::{AclPhys, Fuid, FuidTable, MASTER_NODE, master, parse_aces};
use std::sync::Arc;

use crate::Corpus;

/// Version of ACLs since system attributes.
const ACL_VERSION: u16 = 1;

/// Tables of domains: only machines in a domain write them, and the golden pools are not of such.
pub fn domains(corpus: &mut Corpus) {
    let mut table = FuidTable::default();
    for (index, domain) in (1..).zip(["S-1-5-21-1004336348-1177238915-682003330", "S-1-1", ""]) {
        if let Ok(packed) = table.encode() {
            corpus.keep("fuid", index as u8, &packed);
        }
        table.domains.insert(index, domain.into());
    }
}

/// The ACLs of a filesystem's objects.
pub struct Acls(Option<Registry>);

impl Acls {
    /// Of an object set; none if it is no filesystem.
    pub async fn of(objset: &Arc<Objset>) -> Self {
        let Ok(names) = objset.object(MASTER_NODE).await else { return Self(None) };
        match lookup_u64(&names, master::SA_ATTRS).await {
            Ok(Some(id)) => Self(Registry::load(objset, ondisk::ObjectId(id)).await.ok()),
            _ => Self(None),
        }
    }

    /// Keeps the ACL of an object: as it is, and as it stood in objects before system attributes.
    pub async fn keep(&self, object: &Object, corpus: &mut Corpus) {
        let Some(registry) = &self.0 else { return };
        let Ok(found) = registry.of(object).await else { return };
        let (Some(count), Some(aces)) = (found.number(Attr::DaclCount), found.bytes(Attr::DaclAces)) else {
            return;
        };
        // One input for each number of entries.
        let kind = 2 + count.min(16) as u8;
        let front = [&ACL_VERSION.to_le_bytes()[..], &count.to_le_bytes()].concat();
        corpus.keep_after("acl", kind, &front, aces);
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut acl = AclPhys {
                external: None,
                version: ACL_VERSION,
                count,
                size: aces.len() as u64,
                inline: [0; _],
                order,
            };
            let Some(inline) = acl.inline.get_mut(..aces.len()) else { continue };
            inline.copy_from_slice(aces);
            if parse_aces(aces, ACL_VERSION, count, found.order(Attr::DaclAces)).is_ok()
                && let Ok(bytes) = acl.encode()
            {
                corpus.keep("acl", 32 + kind + 32 * u8::from(order == ByteOrder::Big), &bytes);
            }
        }
        let owner = found.number(Attr::Uid).map(Fuid);
        if let Some(owner) = owner {
            corpus.keep("fuid", 32, &owner.0.to_le_bytes());
        }
    }
}

/// What an entry of a ZAP of this type is an input for.
pub fn entry(ty: DmuType, entry: &Entry, corpus: &mut Corpus) {
    let words = entry.value.to_u64s();
    let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    match (&entry.key, words.len()) {
        (_, 1) if ty == DmuType::DIRECTORY_CONTENTS => {
            corpus.keep("zpl", (words[0] >> 60) as u8, &bytes(&words));
        }
        (Key::Name(_), BookmarkPhys::WORDS_V1 | BookmarkPhys::WORDS_V2) => {
            corpus.keep("bookmark", words.len() as u8, &bytes(&words));
        }
        (Key::Name(_), DdtHistogram::WORDS) => corpus.keep("ddt", 0, &bytes(&words)),
        (Key::Words(key), _) if key.len() == 5 => {
            let Some(value) = entry.value.as_bytes() else { return };
            corpus.keep("ddt", 1, value);
            let Ok(packed) = PackedPhys::parse(value) else { return };
            for (kind, flags) in [(2, 0u64), (3, u64::MAX)] {
                let mut phys = vec![0; PhysForm::from_flags(flags).size()];
                if decompress(packed.compress, packed.bytes, &mut phys).is_ok() {
                    corpus.keep_after("ddt", kind, &flags.to_le_bytes(), &phys);
                    corpus.keep_after("ddt", kind + 2, &bytes(key), &phys);
                }
            }
        }
        _ => {}
    }
}
