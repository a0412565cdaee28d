//! What files are made of: system attributes, ACLs, FUIDs, directory entries.

use ondisk::sa::{AreaKind, Attr, Registration, Tables};
use ondisk::zpl::{AclPhys, parse_aces, write_aces};
use ondisk::zpl::{Dirent, FileType};
use ondisk::zpl::{Fuid, FuidTable};

use crate::input::{Input, ORDERS, stable};

/// Attributes under layouts that are hostile too.
pub fn sa(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut tables = [Tables::default(), usual_tables(), usual_tables()];
    if input.u8() & 1 != 0 {
        let entries: Vec<(&[u8], u64)> = (0..input.u8() % 24)
            .map(|_| {
                let name = input.pick(Attr::ALL).map_or("other", Attr::name);
                (name.as_bytes(), input.u64())
            })
            .collect();
        let layout: Vec<u16> = (0..input.u8()).map(|_| input.u16() % 32).collect();
        if let Ok(hostile) = Tables::new(entries, [(b"2".as_slice(), layout)]) {
            tables[2] = hostile;
        }
    }
    let area = input.0;
    for tables in &tables {
        for order in ORDERS {
            for kind in [AreaKind::Sa, AreaKind::Znode] {
                let Ok(located) = tables.locate(area, kind, order) else { continue };
                for attr in Attr::ALL {
                    let _ = (located.get(area, *attr), located.u64(area, *attr), located.pair(area, *attr));
                    // Places found in one area must not be taken on trust in a shorter one.
                    let _ = located.get(&area[..area.len() / 2], *attr);
                }
            }
        }
    }
}

/// All attributes, and the layout of a new file (2), of one with a link and an ACL (3).
fn usual_tables() -> Tables {
    let registry = Attr::ALL.iter().zip(0u16..).map(|(attr, number)| {
        (attr.name().as_bytes(), Registration { number, byteswap: 0, length: attr.length() }.to_raw())
    });
    let count = Attr::ALL.len() as u16;
    let layouts = [(b"2".as_slice(), (0..count.min(16)).collect()), (b"3".as_slice(), (0..count).collect())];
    Tables::new(registry, layouts).expect("the usual tables are right")
}

/// ACLs in all versions.
pub fn acl(bytes: &[u8]) {
    for order in ORDERS {
        let found = stable(bytes, |b| AclPhys::parse(b, order).ok(), |acl| acl.encode().ok());
        if let Some(acl) = found {
            let _ = acl.inline_aces();
        }
        let mut input = Input(bytes);
        let (version, count) = (input.u16(), input.u64());
        for version in [0, 1, version] {
            for count in [count, (input.0.len() / 8) as u64] {
                let Ok(aces) = parse_aces(input.0, version, count, order) else { continue };
                for ace in &aces {
                    let _ = ace.who();
                }
                let written = write_aces(&aces, version, order).expect("what was parsed encodes");
                let again = parse_aces(&written, version, aces.len() as u64, order);
                assert!(again.as_ref() == Ok(&aces), "written otherwise than read");
            }
        }
    }
}

/// Tables of FUID domains.
pub fn fuid(bytes: &[u8]) {
    let mut input = Input(bytes);
    let fuid = Fuid(input.u64());
    assert_eq!(Fuid::new(fuid.domain(), fuid.id()), fuid);
    let found = stable(bytes, |b| FuidTable::parse(b).ok(), |table| table.encode().ok());
    if let Some(table) = found {
        let _ = table.domain_of(fuid);
    }
}

/// Directory entries and types of files.
pub fn zpl(bytes: &[u8]) {
    let mut input = Input(bytes);
    let raw = input.u64();
    let entry = Dirent::from_raw(raw);
    assert_eq!(Dirent::from_raw(entry.to_raw()), entry);
    let _ = (FileType::from_mode(raw as u32), FileType::from_raw(raw as u8).raw());
}
