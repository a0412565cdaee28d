use proptest::prelude::*;

use super::*;

fn text() -> impl Strategy<Value = ByteString> {
    proptest::collection::vec(1u8.., 0..12).prop_map(|bytes| ByteString::new(&bytes))
}

fn few<T: Strategy>(element: T) -> impl Strategy<Value = Vec<T::Value>> {
    proptest::collection::vec(element, 0..5)
}

fn value() -> impl Strategy<Value = NvValue> {
    let scalar = prop_oneof![
        Just(NvValue::Boolean),
        any::<u8>().prop_map(NvValue::Byte),
        any::<i16>().prop_map(NvValue::Int16),
        any::<u16>().prop_map(NvValue::Uint16),
        any::<i32>().prop_map(NvValue::Int32),
        any::<u32>().prop_map(NvValue::Uint32),
        any::<i64>().prop_map(NvValue::Int64),
        any::<u64>().prop_map(NvValue::Uint64),
        text().prop_map(NvValue::String),
        any::<i64>().prop_map(NvValue::Hrtime),
        any::<bool>().prop_map(NvValue::BooleanValue),
        any::<i8>().prop_map(NvValue::Int8),
        any::<u8>().prop_map(NvValue::Uint8),
        any::<i32>().prop_map(|number| NvValue::Double(number.into())),
    ];
    let array = prop_oneof![
        few(any::<u8>()).prop_map(NvValue::ByteArray),
        few(any::<i16>()).prop_map(NvValue::Int16Array),
        few(any::<u16>()).prop_map(NvValue::Uint16Array),
        few(any::<i32>()).prop_map(NvValue::Int32Array),
        few(any::<u32>()).prop_map(NvValue::Uint32Array),
        few(any::<i64>()).prop_map(NvValue::Int64Array),
        few(any::<u64>()).prop_map(NvValue::Uint64Array),
        few(text()).prop_map(NvValue::StringArray),
        few(any::<bool>()).prop_map(NvValue::BooleanArray),
        few(any::<i8>()).prop_map(NvValue::Int8Array),
        few(any::<u8>()).prop_map(NvValue::Uint8Array),
    ];
    prop_oneof![scalar, array].prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            list(inner.clone()).prop_map(NvValue::Nvlist),
            few(list(inner)).prop_map(NvValue::NvlistArray),
        ]
    })
}

fn list(value: impl Strategy<Value = NvValue>) -> impl Strategy<Value = Nvlist> {
    (any::<u32>(), few((text(), value))).prop_map(|(flags, pairs)| Nvlist { flags, pairs })
}

const ENCODINGS: [Encoding; 3] =
    [Encoding::Xdr, Encoding::Native(ByteOrder::Little), Encoding::Native(ByteOrder::Big)];

proptest! {
    #[test]
    fn every_encoding_round_trips(list in list(value())) {
        for encoding in ENCODINGS {
            let mut bytes = list.encode(encoding).unwrap();
            let length = bytes.len();
            bytes.extend_from_slice(&[0xff; 9]);
            let (parsed, found, consumed) = Nvlist::parse_packed(&bytes).unwrap();
            prop_assert_eq!(&parsed, &list);
            prop_assert_eq!((found, consumed), (encoding, length));
        }
    }

    #[test]
    fn damaged_lists_never_panic(list in list(value()), at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        for encoding in ENCODINGS {
            let mut bytes = list.encode(encoding).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Nvlist::parse(&bytes);
            let _ = Nvlist::parse(&bytes[..cut.index(bytes.len())]);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, native: bool) {
        if bytes.len() > 4 {
            bytes[..4].copy_from_slice(&[u8::from(!native), 1, 0, 0]);
        }
        let _ = Nvlist::parse(&bytes);
    }
}

#[test]
fn xdr_bytes_are_as_openzfs_packs_them() {
    let mut list = Nvlist::new();
    list.push("version", 5000u64);
    list.push("name", "tank");
    let bytes = list.encode(Encoding::Xdr).unwrap();
    let expected: &[&[u8]] = &[
        &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 36, 0, 0, 0, 32, 0, 0, 0, 7],
        b"version\0",
        &[0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x13, 0x88],
        &[0, 0, 0, 32, 0, 0, 0, 32, 0, 0, 0, 4],
        b"name",
        &[0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 4],
        b"tank",
        &[0; 8],
    ];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn nesting_is_bounded() {
    let mut list = Nvlist::new();
    for _ in 1..MAX_DEPTH {
        let mut outer = Nvlist::new();
        outer.push("list", list);
        list = outer;
    }
    for encoding in ENCODINGS {
        assert_eq!(Nvlist::parse(&list.encode(encoding).unwrap()).as_ref(), Ok(&list));
    }
    let mut outer = Nvlist::new();
    outer.push("list", list);
    assert!(outer.encode(Encoding::Xdr).is_err());
}

#[test]
fn getters_tell_absence_from_a_wrong_type() {
    let mut list = Nvlist::new();
    list.push("txg", 4u64);
    list.push("flag", NvValue::Boolean);
    assert_eq!(list.get_u64("txg"), Ok(4));
    assert_eq!(list.get_u64("guid"), Err(Error::missing("nvlist", "guid")));
    assert!(matches!(list.get_str("txg"), Err(Error::Invalid { .. })));
    assert!(list.flag("flag") && !list.flag("txg"));
    list.set("txg", 5u64);
    assert_eq!(list.get_u64("txg"), Ok(5));
    assert_eq!(list.to_string(), "txg: 5\nflag\n");
}
