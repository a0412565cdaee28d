//! What objects of a device in a store say, behind their checksums: these are of no key, so that another
//! program may have made them.

use bytes::Bytes;
use objects::Address;
use objects::format::{Checkpoint, Commit, page, read_page, read_segment, segment_body};
use objects::lease::Lease;

use crate::Input;

/// Sectors and regions of a device of 1 TiB.
const SECTORS: u64 = 1 << 28;
const REGIONS: u64 = 1 << 10;

/// Bodies of commits, segments and checkpoints, pages of the map, leases, addresses.
pub fn objects(bytes: &[u8]) {
    let mut input = Input(bytes);
    let kind = input.u8();
    let body = input.0;
    match kind % 6 {
        0 => {
            if let Ok(commit) = Commit::read("commit", body, SECTORS) {
                assert_eq!(commit.body(), body);
                assert!(commit.entries.len() <= body.len());
            }
        }
        1 => {
            if let Ok(entries) = read_segment("segment", body, SECTORS) {
                assert_eq!(segment_body(&entries), body);
            }
        }
        2 => {
            if let Ok(checkpoint) = Checkpoint::read("checkpoint", body, REGIONS) {
                assert_eq!(checkpoint.body(), body);
            }
        }
        3 => {
            if let Ok(runs) = read_page("map", body) {
                assert_eq!(page(runs.into_iter()), body);
            }
        }
        4 => {
            // Its checksum is over all of it.
            let _ = Lease::decode(&Bytes::copy_from_slice(body));
        }
        _ => {
            if let Ok(text) = std::str::from_utf8(body)
                && let Ok(address) = text.parse::<Address>()
            {
                let again: Address = address.to_string().parse().expect("what is shown is an address");
                assert_eq!(again.to_string(), address.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use objects::format::{Entry, Live, ObjectId, PagePlace, Place, Run, Sequence};

    use super::*;

    /// What is right is read, so that the target gets behind the first check. With `CENOTE_WRITE_CORPUS` the
    /// files of the corpus are made of it.
    #[test]
    fn what_is_right_is_accepted() {
        let id = ObjectId::new(Sequence(7), 3).unwrap();
        let place = Some(Place { id, offset: 80 });
        let entries = vec![
            Entry { sector: 5, sectors: 2, place, hash: 9 },
            Entry { sector: 9, sectors: 4, place: None, hash: 0 },
        ];
        let commit = Commit {
            epoch: Sequence(7),
            checkpoint: objects::format::CheckpointNumber(2),
            takes_over: false,
            entries: entries.clone(),
        };
        let checkpoint = Checkpoint {
            sequence: Sequence(8),
            epoch: Sequence(7),
            objects: vec![(id, Live { live: 2, total: 4 })],
            regions: vec![(3, PagePlace { id, offset: 80, bytes: 24, hash: 1 })],
        };
        let run = Run { start: 5, sectors: 2, place: Place { id, offset: 80 } };
        let bodies = [
            commit.body(),
            segment_body(&entries),
            checkpoint.body(),
            page([run].into_iter()),
            Vec::new(),
            b"s3://bucket/a/b?endpoint=http://127.0.0.1:9000&region=x&size=10G".to_vec(),
        ];
        assert!(Commit::read("commit", &bodies[0], SECTORS).is_ok());
        assert!(read_segment("segment", &bodies[1], SECTORS).is_ok());
        assert!(Checkpoint::read("checkpoint", &bodies[2], REGIONS).is_ok());
        assert!(read_page("map", &bodies[3]).is_ok());
        assert!(std::str::from_utf8(&bodies[5]).unwrap().parse::<Address>().is_ok());
        for (kind, body) in (0_u8..).zip(bodies) {
            let input: Vec<u8> = std::iter::once(kind).chain(body).collect();
            objects(&input);
            if std::env::var_os("CENOTE_WRITE_CORPUS").is_some() {
                std::fs::create_dir_all("corpus/objects").unwrap();
                std::fs::write(format!("corpus/objects/kind{kind}"), input).unwrap();
            }
        }
    }
}
