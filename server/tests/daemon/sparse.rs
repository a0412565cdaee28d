//! Copies of files with holes, by what `lseek` says of them. Needs `/dev/fuse`; `CENOTE_SKIP=fuse` leaves
//! these tests out.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::filesystems::start;

/// Ranges that `lseek` calls data.
fn data_of(file: &File) -> Vec<std::ops::Range<i64>> {
    let seek = |from, whence| {
        // SAFETY: the descriptor is open; the rest are numbers.
        unsafe { libc::lseek(file.as_raw_fd(), from, whence) }
    };
    let mut found = Vec::new();
    let mut at = seek(0, libc::SEEK_DATA);
    while at >= 0 {
        let end = seek(at, libc::SEEK_HOLE);
        found.push(at..end);
        at = seek(end, libc::SEEK_DATA);
    }
    found
}

#[test]
fn what_a_program_mapped_and_wrote_is_data_to_who_copies() {
    const SIZE: usize = (1 << 20) + 77;
    let Some((_running, at)) = start() else { return };
    let places = [0, 300_000, 1 << 20];
    for (name, is_sparse) in [("hole", true), ("written", false)] {
        let path = at.join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(SIZE as u64).unwrap();
        if !is_sparse {
            file.write_all_at(b"x", 0).unwrap();
            file.sync_all().unwrap();
        }
        // SAFETY: the file has that many bytes and keeps them; the mapping goes before the test ends.
        let mapped = unsafe {
            let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
            libc::mmap(std::ptr::null_mut(), SIZE, access, libc::MAP_SHARED, fd, 0).cast::<u8>()
        };
        assert_ne!(mapped.cast(), libc::MAP_FAILED);
        for round in 0..3u8 {
            let mut whole = vec![0; SIZE];
            if !is_sparse {
                whole[0] = b'x';
            }
            for place in places {
                // SAFETY: inside the mapping.
                unsafe { *mapped.add(place) = b'a' + round };
                whole[place] = b'a' + round;
            }
            let reader = File::open(&path).unwrap();
            // What is copied by what `lseek` says.
            let mut sparse = vec![0; SIZE];
            let data = data_of(&reader);
            for range in &data {
                let (start, end) = (range.start as usize, range.end as usize);
                reader.read_exact_at(&mut sparse[start..end], start as u64).unwrap();
            }
            assert!(sparse == whole, "{name}, round {round}: {data:?}");
            // What is copied by us.
            let copy = at.join(format!("{name}.{round}"));
            let to = File::create(&copy).unwrap();
            let (mut copied, mut offset) = (0, 0);
            while copied < SIZE {
                // SAFETY: both are open, and the offset lives through the call.
                let more = unsafe {
                    let (from, to) = (reader.as_raw_fd(), to.as_raw_fd());
                    libc::copy_file_range(from, &raw mut offset, to, std::ptr::null_mut(), SIZE, 0)
                };
                assert!(more > 0, "{more}: {}", std::io::Error::last_os_error());
                copied += more as usize;
            }
            assert!(fs::read(&copy).unwrap() == whole, "{name}, round {round}");
            assert!(fs::metadata(&path).unwrap().blocks() > 0, "tar takes a file of no blocks for a hole");
        }
        // SAFETY: it was mapped, and is not used any more.
        unsafe { libc::munmap(mapped.cast(), SIZE) };
    }
    // A hole without writes stays one, also where the file is open for reading and writing.
    let file = File::options().read(true).write(true).create_new(true).open(at.join("holes")).unwrap();
    file.set_len(8 << 20).unwrap();
    file.write_all_at(&[7; 4096], 4 << 20).unwrap();
    let data = data_of(&file);
    assert!(data.len() == 1 && data[0].start > 0 && data[0].end < 8 << 20, "{data:?}");
}
