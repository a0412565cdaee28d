use proptest::prelude::*;

use super::*;

fn parts() -> BlkptrParts {
    BlkptrParts {
        dvas: vec![Dva { vdev: VdevId(1), offset: ByteOffset(0x4000), asize: Asize(0x1000), gang: false }],
        lsize: Lsize(0x20000),
        psize: Psize(0x1000),
        compress: CompressType::Lz4,
        checksum_type: ChecksumType::Fletcher4,
        checksum: [1, 2, 3, 4],
        dmu_type: DmuType::PLAIN_FILE_CONTENTS,
        level: Level(0),
        dedup: false,
        byte_order: ByteOrder::Little,
        logical_birth: Txg(10),
        physical_birth: Txg(10),
        fill: 1,
        crypt: None,
    }
}

#[test]
fn display_is_the_line_of_zdb() {
    assert_eq!(
        parts().build().unwrap().to_string(),
        "DVA[0]=<1:4000:1000> [L0 ZFS plain file] fletcher4 lz4 unencrypted LE contiguous unique single \
         size=20000L/1000P birth=10L/10P fill=1 \
         cksum=0000000000000001:0000000000000002:0000000000000003:0000000000000004"
    );
    assert_eq!(Blkptr::HOLE.to_string(), "HOLE [L0 unallocated] size=200L birth=0L");
}

#[test]
fn an_encrypted_pointer_keeps_salt_iv_and_mac_and_two_copies() {
    let crypt = CryptParts { salt: *b"saltsalt", iv: *b"iviviviviviv", mac: *b"macmacmacmacmacm" };
    for byte_order in [ByteOrder::Little, ByteOrder::Big] {
        let bp = BlkptrParts { crypt: Some(crypt), byte_order, fill: 7, ..parts() }.build().unwrap();
        assert_eq!(bp.protection(), Protection::Encrypted);
        assert_eq!((bp.salt(), bp.iv(), bp.mac()), (crypt.salt, crypt.iv, crypt.mac));
        assert_eq!((bp.fill(), bp.copies()), (7, 1));
    }
    let dva = parts().dvas[0];
    assert!(BlkptrParts { crypt: Some(crypt), dvas: vec![dva; 3], ..parts() }.build().is_err());
    let authenticated =
        BlkptrParts { crypt: Some(crypt), dvas: vec![dva; 3], dmu_type: DmuType::ZAP_OTHER, ..parts() };
    assert_eq!(authenticated.build().unwrap().protection(), Protection::Authenticated);
}

#[test]
fn an_embedded_payload_comes_back() {
    let payload: Vec<u8> = (1..=112).collect();
    let bp = embed(&payload, Lsize(512), CompressType::Off, DmuType::ZAP_OTHER, Level(0), Txg(5)).unwrap();
    let bp = Blkptr::parse(&bp.encode(ByteOrder::Big), ByteOrder::Big).unwrap();
    assert_eq!(bp.embedded().unwrap().bytes(), payload);
    assert_eq!(bp.logical_birth(), Txg(5));
    assert!(!bp.is_hole() && bp.dvas().next().is_none());
    assert_eq!((bp.lsize(), bp.psize(), bp.fill()), (Lsize(512), Psize(0), 1));
}

#[test]
fn a_hole_remembers_its_size_type_level_and_birth() {
    let bp = hole(Lsize(0x4000), DmuType::PLAIN_FILE_CONTENTS, Level(2), Txg(77)).unwrap();
    let bp = Blkptr::parse(&bp.encode(ByteOrder::Little), ByteOrder::Little).unwrap();
    assert!(bp.is_hole() && !bp.is_embedded() && bp.dvas().next().is_none());
    assert_eq!((bp.lsize(), bp.level(), bp.logical_birth()), (Lsize(0x4000), Level(2), Txg(77)));
    assert_eq!(bp.dmu_type(), DmuType::PLAIN_FILE_CONTENTS);
    assert!(hole(Lsize(100), DmuType::ZVOL, Level(0), Txg(1)).is_err());
}

#[test]
fn malformed_pointers_are_refused() {
    let good = *parts().build().unwrap().words();
    let with = |index: usize, word: u64| {
        let mut words = good;
        words[index] = word;
        Blkptr::from_words(words)
    };
    let properties = good[PROPERTIES];
    assert!(with(PROPERTIES, properties | 0x7f << 48).is_err(), "type");
    assert!(with(PROPERTIES, properties | 0x7f << 32).is_err(), "compression");
    assert!(with(PROPERTIES, properties | 0xff << 40).is_err(), "checksum");
    assert!(with(PROPERTIES, properties | 0xffff).is_err(), "lsize");
    assert!(with(PROPERTIES, properties | 0xffff << 16).is_err(), "psize");
    assert!(with(0, 0).is_err(), "no address");
    assert!(with(1, 1 << 60).is_err(), "offset overflow");
    assert!(with(3, u64::MAX).is_ok(), "an absent second address is not looked at");
}

#[test]
fn physical_birth_defaults_to_logical() {
    assert_eq!(parts().build().unwrap().physical_birth(), Txg(10));
    let cloned = BlkptrParts { physical_birth: Txg(3), ..parts() }.build().unwrap();
    assert_eq!((cloned.logical_birth(), cloned.physical_birth()), (Txg(10), Txg(3)));
}

proptest! {
    #[test]
    fn arbitrary_words_never_panic_and_round_trip(words: [u64; 16], big: bool) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let bytes = Blkptr { words }.encode(order);
        if let Ok(bp) = Blkptr::parse(&bytes, order) {
            prop_assert_eq!(bp.encode(order), bytes);
            let _ = (bp.to_string(), bp.embedded(), bp.salt(), bp.iv(), bp.mac(), bp.asize());
        }
    }

    #[test]
    fn parts_come_back(
        vdev in 0u32..1 << 24, offset in 0u64..1 << 54, asize in 1u64..1 << 24, gang: bool,
        lsize in 1u64..=32768, psize in 1u64..=32768, compress in 0u8..17, checksum_type in 0u8..15,
        level in 0i8..32, dedup: bool, big: bool, checksum: [u64; 4], fill: u64,
    ) {
        let dva = Dva {
            vdev: VdevId(vdev), offset: ByteOffset(offset << 9), asize: Asize(asize << 9), gang,
        };
        let parts = BlkptrParts {
            dvas: vec![dva], lsize: Lsize(lsize << 9), psize: Psize(psize << 9),
            compress: CompressType::from_raw(compress).unwrap(),
            checksum_type: ChecksumType::from_raw(checksum_type).unwrap(),
            level: Level(level), dedup, checksum, fill,
            byte_order: if big { ByteOrder::Big } else { ByteOrder::Little },
            ..parts()
        };
        let bp = parts.build().unwrap();
        prop_assert_eq!(bp.dva(0), Some(dva));
        prop_assert_eq!(bp.dvas().count(), 1);
        prop_assert_eq!((bp.lsize(), bp.psize()), (parts.lsize, parts.psize));
        prop_assert_eq!((bp.compress(), bp.checksum_type()), (parts.compress, parts.checksum_type));
        prop_assert_eq!((bp.level(), bp.is_dedup(), bp.is_gang()), (Level(level), dedup, gang));
        prop_assert_eq!((bp.byte_order(), bp.checksum(), bp.fill()), (parts.byte_order, checksum, fill));
    }
}
