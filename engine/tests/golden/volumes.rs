//! Every volume of the golden pools has the content that was recorded.

use std::sync::Arc;

use crate::support::{import_golden, objset};
use device::block_on;
use engine::zvol::Zvol;
use testkit::manifest::hex_sha256;

/// All bytes of a volume, read in order.
fn content(volume: &Arc<Zvol>) -> Vec<u8> {
    let mut bytes = vec![0; volume.size() as usize];
    block_on(async {
        for (number, piece) in bytes.chunks_mut(1_000_003).enumerate() {
            volume.read_at(number as u64 * 1_000_003, piece).await.unwrap();
        }
    });
    bytes
}

fn check(name: &str) {
    let Some(golden) = testkit::golden::pool(name) else { return };
    let pool = import_golden(&golden).unwrap();
    for dataset in golden.volumes().unwrap() {
        let volume = block_on(Zvol::open(&objset(&pool, &dataset).unwrap())).unwrap();
        let bytes = content(&volume);
        assert_eq!(hex_sha256(&bytes), golden.volume_sha256(&dataset).unwrap(), "{dataset}");

        // What is called a hole is zeroes, and the runs cover the volume.
        let extents = block_on(volume.extents(0, volume.size(), usize::MAX)).unwrap();
        let mut at = 0;
        for extent in extents {
            let end = at + extent.length as usize;
            assert!(
                !extent.is_hole || bytes[at..end].iter().all(|byte| *byte == 0),
                "{dataset}: hole at {at}"
            );
            at = end;
        }
        assert_eq!(at as u64, volume.size(), "{dataset}");
    }
}

macro_rules! pools {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

pools! { volumes rz1 rz2 rz3 streams default24 gang24 classes24 }
