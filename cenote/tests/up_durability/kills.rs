//! `kill -9` again and again, at any moment of a client's writing, with `fio` writing and verifying beside
//! it.
//!
//! A client of our own keeps the books. Each write fills whole sectors of 4 KiB with a number of its own;
//! what a reply to it (FUA) or to a later flush promised must be there after the process died, as it was or
//! as a later write made it, and never anything else. `CENOTE_KILL_SECONDS` goes on for longer than a test
//! run does; `CENOTE_KILL_SEED` repeats a run's choices.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::Rng;

use super::{Up, judge};

const SECTOR: usize = 4096;
const SECTORS: u64 = 512;
/// Up to so many sectors are written at once: more than a block, and more than goes into the log as data.
const MAX_RUN: u64 = 32;
/// Rounds that a test run does.
const ROUNDS: usize = 5;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const FUA: u16 = 1;

/// The least of an NBD client. Any error means that the server died.
struct Client(UnixStream);

impl Client {
    fn connect(socket: &Path) -> std::io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.read_exact(&mut [0; 18])?;
        let name = b"tank/vol";
        let option = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &1u32.to_be_bytes(), &8u32.to_be_bytes(), name];
        stream.write_all(&option.concat())?;
        stream.read_exact(&mut [0; 10])?;
        Ok(Self(stream))
    }

    fn request(
        &mut self,
        (command, flags): (u16, u16),
        offset: u64,
        length: usize,
        data: &[u8],
    ) -> std::io::Result<()> {
        let head = [&0x2560_9513u32.to_be_bytes()[..], &flags.to_be_bytes(), &command.to_be_bytes(), &[0; 8]];
        let range = [&offset.to_be_bytes()[..], &(length as u32).to_be_bytes()].concat();
        self.0.write_all(&[&head.concat(), &range, data].concat())?;
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        assert_eq!(reply[4..8], [0; 4], "command {command} at {offset} failed");
        Ok(())
    }

    fn read(&mut self, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
        self.request((READ, 0), offset, length, &[])?;
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// What may be in each sector: the number that was promised last, and those that were written after it.
struct Books {
    sectors: Vec<Vec<u64>>,
    /// The number of the last write.
    last: u64,
}

impl Books {
    fn new() -> Self {
        Self { sectors: vec![vec![0]; SECTORS as usize], last: 0 }
    }

    /// All that was written up to now is promised. Nothing is under way.
    fn promise(&mut self, sectors: std::ops::Range<u64>) {
        for numbers in &mut self.sectors[sectors.start as usize..sectors.end as usize] {
            numbers.drain(..numbers.len() - 1);
        }
    }

    /// Writes until the server dies. Replies are counted.
    fn write(&mut self, client: &mut Client, rng: &mut Rng, replies: &AtomicU64) -> std::io::Error {
        loop {
            if let Err(error) = self.step(client, rng) {
                return error;
            }
            replies.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn step(&mut self, client: &mut Client, rng: &mut Rng) -> std::io::Result<()> {
        if rng.once_in(8) {
            client.request((FLUSH, 0), 0, 0, &[])?;
            self.promise(0..SECTORS);
            return Ok(());
        }
        let run = if rng.once_in(4) { 1 + rng.below(MAX_RUN) } else { 1 };
        let first = rng.below(SECTORS - run + 1);
        let is_stable = rng.once_in(2);
        self.last += 1;
        let number = self.last;
        self.sectors[first as usize..(first + run) as usize]
            .iter_mut()
            .for_each(|sector| sector.push(number));
        let data: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(run as usize * SECTOR).collect();
        let flags = if is_stable { FUA } else { 0 };
        client.request((WRITE, flags), first * SECTOR as u64, data.len(), &data)?;
        if is_stable {
            self.promise(first..first + run);
        }
        Ok(())
    }

    /// Compares with what is there, which is what counts from now on.
    fn check(&mut self, client: &mut Client, context: &str) {
        let bytes = client.read(0, SECTORS as usize * SECTOR).unwrap();
        for (place, (sector, numbers)) in bytes.chunks_exact(SECTOR).zip(&mut self.sectors).enumerate() {
            let found = u64::from_le_bytes(sector[..8].try_into().unwrap());
            assert!(
                sector.chunks_exact(8).all(|word| word == &sector[..8]),
                "{context}: sector {place} is torn"
            );
            assert!(
                numbers.contains(&found),
                "{context}: sector {place} has {found}, not one of {numbers:?}"
            );
            *numbers = vec![found];
        }
    }
}

/// Writes and verifies beside the client, in another part of the volume.
fn start_fio(uri: &str) -> Child {
    Command::new("fio")
        .args(["--name=load", "--ioengine=nbd", "--rw=randwrite", "--bsrange=4k-128k", "--iodepth=16"])
        .args(["--offset=1G", "--size=64M", "--fsync=16", "--verify=crc32c", "--verify_backlog=64"])
        .args(["--verify_fatal=1", "--verify_state_save=0", "--time_based", "--runtime=600"])
        .arg(format!("--uri={uri}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("fio cannot be run; install fio")
}

/// Ends when the server does; what it verified was right.
fn end_fio(fio: Child) {
    let output = fio.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(!said.contains("verify:") && !said.contains("bad magic"), "{said}");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{variable}={value}")))
}

#[test]
fn what_was_promised_survives_kill_after_kill() {
    let place = tempfile::tempdir().unwrap();
    let seed = number("CENOTE_KILL_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let soak = number("CENOTE_KILL_SECONDS").map(Duration::from_secs);
    let began = Instant::now();
    let mut rng = Rng::new(seed);
    let mut books = Books::new();
    let mut rounds = 0;
    while soak.map_or(rounds < ROUNDS, |soak| began.elapsed() < soak) {
        let context = format!("seed {seed}, round {rounds}");
        let up = Up::start(place.path());
        let mut client = Client::connect(&up.socket()).unwrap();
        books.check(&mut client, &context);
        let fio = start_fio(up.uri());
        let (replies, wanted) = (AtomicU64::new(0), 20 + rng.below(600));
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| books.write(&mut client, &mut rng, &replies));
            while replies.load(Ordering::Relaxed) < wanted && !writing.is_finished() {
                std::thread::yield_now();
            }
            up.end(libc::SIGKILL);
            writing.join().unwrap();
        });
        end_fio(fio);
        rounds += 1;
    }
    let up = Up::start(place.path());
    books.check(&mut Client::connect(&up.socket()).unwrap(), "at the end");
    assert!(up.end(libc::SIGINT).success());
    judge(place.path());
    println!("{rounds} kills, {} writes, seed {seed}", books.last);
}
