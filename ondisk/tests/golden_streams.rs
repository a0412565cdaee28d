//! Send streams that OpenZFS made, against the counts that `zstream dump` gives for them.

use std::fs;

use ondisk::send::{Package, Record, StreamReader};

/// Name, then the number of records of each kind as `zstream dump NAME` counts them: BEGIN, OBJECT,
/// FREEOBJECTS, WRITE, FREE, END, WRITE_BYREF, SPILL, WRITE_EMBEDDED.
const STREAMS: [(&str, [usize; 9]); 8] = [
    ("full", [1, 759, 16, 352, 1241, 1, 0, 2, 0]),
    ("full-Lec", [1, 759, 16, 44, 1241, 1, 0, 1, 250]),
    ("full-Lp", [2, 80, 17, 75, 103, 3, 0, 4, 0]),
    ("inc", [1, 33, 5, 23, 45, 1, 0, 2, 0]),
    ("inc-I", [3, 65, 7, 26, 89, 4, 0, 4, 0]),
    ("inc-bm", [1, 33, 5, 23, 45, 1, 0, 2, 0]),
    ("repl", [5, 831, 25, 386, 1342, 6, 0, 6, 0]),
    ("vol", [1, 2, 1, 185, 3, 1, 0, 0, 0]),
];

#[test]
fn every_stream_is_read_to_its_end_with_all_checksums() {
    let Some(pool) = testkit::golden::pool("streams") else { return };
    for (name, expected) in STREAMS {
        let bytes = fs::read(pool.expect("streams").join(name)).expect(name);
        let mut counts = [0; 11];
        let mut reader = StreamReader::new();
        let mut input = &bytes[..];
        while let Some(item) = reader.next_in(&mut input).unwrap_or_else(|error| panic!("{name}: {error}")) {
            counts[item.record.kind_number() as usize] += 1;
            if let Record::Begin(begin) = &item.record {
                assert_eq!(begin.unknown_features(), 0, "{name}");
                assert!(begin.to_name.starts_with(b"streams/"), "{name}");
                if !item.payload.is_empty() {
                    ondisk::nvlist::Nvlist::parse(item.payload)
                        .unwrap_or_else(|error| panic!("{name}: {error}"));
                }
            }
        }
        assert_eq!(counts[..9], expected, "{name}");
    }
}

#[test]
fn what_a_compound_stream_says_of_its_datasets_is_written_as_openzfs_does() {
    let Some(pool) = testkit::golden::pool("streams") else { return };
    for (name, datasets) in [("repl", 2), ("full-Lp", 1)] {
        let bytes = fs::read(pool.expect("streams").join(name)).expect(name);
        let mut input = &bytes[..];
        let item = StreamReader::new().next_in(&mut input).unwrap().unwrap();
        let package = Package::parse(item.payload).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(package.datasets.len(), datasets, "{name}");
        assert_eq!(package.not_recursive, name == "full-Lp");
        assert_eq!(package.encode().unwrap(), item.payload, "{name}");
    }
}
