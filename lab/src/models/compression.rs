//! Ratio and speed of each algorithm on real data.
//!
//! Blocks are drawn from the files by chance, each as likely as any other, and stored by every algorithm as a
//! pool would: a block of zeros is a hole, what compresses to 112 bytes lies in the block pointer, else
//! compression must save an eighth of the block in whole sectors, or the block is stored as it is. The ratio
//! is bytes before over bytes after, as the property `compressratio` has it: holes of a file, and blocks of
//! zeros, which any compression makes holes of, are in neither, so that all algorithms are told of the same
//! blocks. Its interval is a bootstrap over the blocks. The speed is that of one core of this machine: the
//! blocks are packed and unpacked again and again, and the median pass counts, for the first has cold caches
//! and any may be interrupted.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use codec::compress::{compress, decompress, zstd_level_code};
use ondisk::blkptr::{CompressType, EMBEDDED_PAYLOAD_MAX};
use serde::Serialize;

use super::{Model, bytes, sample};
use crate::error::{Error, Result};
use crate::size::Size;
use crate::stats::{CONFIDENCE, Estimate};
use crate::table;

/// A sample is in memory as a whole, and each algorithm goes over it several times.
const MOST_SAMPLE: Size = Size(1 << 30);
/// Samples drawn for an interval.
const DRAWS: usize = 500;
/// Passes over the blocks at most for a speed.
const MOST_PASSES: usize = 15;
/// No pass begins after so long, but for the first three.
const PASSES_TIME: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 300 });
const LEAST_PASSES: usize = if cfg!(test) { 1 } else { 3 };
/// A pass that takes as long is a mean over what interrupts it.
const LONG_PASS: Duration = Duration::from_secs(2);

/// An algorithm with its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Algorithm {
    kind: CompressType,
    level: u8,
}

impl Algorithm {
    /// The one that the property `compression` calls `name`.
    pub fn named(name: &str) -> Result<Self> {
        let unknown = || Error::Experiment(format!("there is no compression '{name}'"));
        let zstd = |level: i32| {
            let level = zstd_level_code(level).ok_or_else(unknown)?;
            Ok(Self { kind: CompressType::Zstd, level })
        };
        let number = |text: &str| text.parse::<i32>().map_err(|_| unknown());
        match name {
            "off" => Ok(Self { kind: CompressType::Off, level: 0 }),
            "on" => Self::named("lz4"),
            "gzip" => Self::named("gzip-6"),
            "zstd" => zstd(3),
            "zstd-fast" => zstd(-1),
            _ => {
                if let Some(level) = name.strip_prefix("zstd-fast-") {
                    return zstd(-number(level)?);
                }
                if let Some(level) = name.strip_prefix("zstd-") {
                    return zstd(number(level)?);
                }
                let stands = |kind: &&CompressType| {
                    kind.name() == name
                        && !matches!(kind, CompressType::Inherit | CompressType::On | CompressType::Empty)
                };
                let kind = *CompressType::ALL.iter().find(stands).ok_or_else(unknown)?;
                Ok(Self { kind, level: 0 })
            }
        }
    }
}

/// Those that are compared.
const NAMES: [&str; 22] = [
    "lz4",
    "lzjb",
    "zle",
    "zstd-fast-10",
    "zstd-fast-1",
    "zstd-1",
    "zstd-3",
    "zstd-6",
    "zstd-9",
    "zstd-12",
    "zstd-15",
    "zstd-19",
    "gzip-1",
    "gzip-2",
    "gzip-3",
    "gzip-4",
    "gzip-5",
    "gzip-6",
    "gzip-7",
    "gzip-8",
    "gzip-9",
    "off",
];

/// How a block is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    /// It is zeros.
    Hole,
    /// In its pointer.
    Embedded,
    /// Compressed, in so many bytes that were written of whole sectors.
    Compressed(usize),
    /// As it is.
    Plain,
}

impl Stored {
    /// Bytes on devices, in sectors of `2^ashift`.
    pub(super) fn bytes(self, block: usize, ashift: u32) -> u64 {
        match self {
            Self::Hole | Self::Embedded => 0,
            Self::Compressed(len) => (len as u64).next_multiple_of(1 << ashift),
            Self::Plain => (block as u64).next_multiple_of(1 << ashift),
        }
    }
}

/// How `block` is stored; `packed`, which is as long at least, gets its compressed bytes.
pub(super) fn store(algorithm: Algorithm, ashift: u32, block: &[u8], packed: &mut [u8]) -> Stored {
    if algorithm.kind == CompressType::Off {
        return Stored::Plain;
    }
    if codec::is_all_zero(block) {
        return Stored::Hole;
    }
    let most = block.len() - block.len() / 8;
    let whole = most >> ashift << ashift;
    let room = if whole == 0 { EMBEDDED_PAYLOAD_MAX.min(most) } else { whole };
    let Some(packed) = packed.get_mut(..room) else { return Stored::Plain };
    match compress(algorithm.kind, algorithm.level, block, packed) {
        Some(len) if len <= EMBEDDED_PAYLOAD_MAX => Stored::Embedded,
        Some(len) => Stored::Compressed(len),
        None => Stored::Plain,
    }
}

/// The size of a block, checked.
pub(super) fn block_bytes(block: Size, ashift: u32) -> Result<usize> {
    let is_right = block.0.is_power_of_two() && (512..=16 << 20).contains(&block.0);
    if !is_right || !(9..=16).contains(&ashift) {
        return Err(Error::Experiment(format!(
            "block {block}, ashift {ashift}: a power of two from 512 to 16M, and 9 to 16"
        )));
    }
    usize::try_from(block.0).map_err(|error| Error::Experiment(error.to_string()))
}

/// The results of each algorithm on some data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compression {
    /// Size of a block.
    pub block: Size,
    /// Blocks that were drawn.
    pub sampled: usize,
    /// Of those, blocks of zeros: holes with any compression, and stored as they are without.
    pub zeros: usize,
    /// Bytes of all files, without holes.
    pub whole: u64,
    /// Each algorithm.
    pub algorithms: Vec<AlgorithmResult>,
}

/// The results of one algorithm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlgorithmResult {
    /// As the property `compression` has it.
    pub name: String,
    /// How many times less space data take; where nothing is left to store, none.
    pub ratio: Option<Estimate>,
    /// Bytes a second that it compresses; none where it does nothing.
    pub compresses: Option<f64>,
    /// Bytes a second that it gives back; none where nothing was compressed.
    pub decompresses: Option<f64>,
}

impl Compression {
    /// Of the files at `paths`, in blocks of `block` bytes with sectors of `2^ashift`, from a sample of
    /// `most` bytes.
    pub fn of(paths: &[PathBuf], block: Size, ashift: u32, most: Size) -> Result<Self> {
        let block_bytes = block_bytes(block, ashift)?;
        super::require_size("sample", most, block, MOST_SAMPLE)?;
        let (blocks, whole) = draw(&sample::data(paths)?, block_bytes, most.0 / block.0)?;
        if blocks.is_empty() {
            return Err(sample::no_data());
        }
        let (zeros, blocks): (Vec<_>, Vec<_>) =
            blocks.into_iter().partition(|block| codec::is_all_zero(block));
        let algorithms = NAMES.iter().map(|name| {
            let mut told = tell(name, Algorithm::named(name)?, ashift, &blocks);
            if *name == "off" {
                // Zeros too are stored by it.
                told.ratio = told.ratio.or(Some(Estimate { value: 1.0, low: 1.0, high: 1.0 }));
            }
            Ok(told)
        });
        let algorithms = algorithms.collect::<Result<_>>()?;
        Ok(Self { block, sampled: blocks.len() + zeros.len(), zeros: zeros.len(), whole, algorithms })
    }
}

/// Blocks of the files by chance, the same each time; all of them, where they are no more than `most`. And
/// bytes of all.
fn draw(files: &[(PathBuf, u64)], block: usize, most: u64) -> Result<(Vec<Vec<u8>>, u64)> {
    let (mut all, mut whole) = (0, 0);
    for (path, size) in files {
        let file = File::open(path).map_err(Error::file(path))?;
        let count = |range: Range<u64>| {
            all += range.end - range.start;
            whole += (range.end * block as u64).min(*size) - range.start * block as u64;
            Ok(())
        };
        sample::ranges(&file, *size, block, count).map_err(Error::file(path))?;
    }
    let mut rng = fastrand::Rng::with_seed(1);
    let mut chosen: Vec<u64> = match all <= most {
        true => (0..all).collect(),
        false => (0..most).map(|_| rng.u64(..all)).collect(),
    };
    chosen.sort_unstable();
    let mut blocks = Vec::with_capacity(chosen.len());
    let mut chosen = chosen.into_iter().peekable();
    let mut first = 0;
    for (path, size) in files {
        if chosen.peek().is_none() {
            break;
        }
        let file = File::open(path).map_err(Error::file(path))?;
        let read = |range: Range<u64>| {
            let end = first + (range.end - range.start);
            while let Some(number) = chosen.next_if(|next| *next < end) {
                blocks.push(sample::block(&file, *size, block, range.start + number - first)?);
            }
            first = end;
            Ok(())
        };
        sample::ranges(&file, *size, block, read).map_err(Error::file(path))?;
    }
    Ok((blocks, whole))
}

fn tell(name: &str, algorithm: Algorithm, ashift: u32, blocks: &[Vec<u8>]) -> AlgorithmResult {
    let longest = blocks.iter().map(Vec::len).max().unwrap_or(0);
    let mut packed: Vec<Vec<u8>> = blocks.iter().map(|block| vec![0; block.len()]).collect();
    let mut plain = vec![0; longest];
    let mut stored = vec![Stored::Plain; blocks.len()];
    let packing = median_time(PASSES_TIME, || {
        for ((block, packed), stored) in blocks.iter().zip(&mut packed).zip(&mut stored) {
            *stored = store(algorithm, ashift, block, packed);
        }
    });
    let mut unpacked = 0;
    let unpacking = median_time(PASSES_TIME, || {
        unpacked = 0;
        for ((block, packed), stored) in blocks.iter().zip(&packed).zip(&stored) {
            // What was just made is right; were it not, it would not count.
            if let Stored::Compressed(len) = stored
                && decompress(algorithm.kind, &packed[..*len], &mut plain[..block.len()]).is_ok()
            {
                unpacked += block.len();
            }
        }
    });
    let sizes: Vec<(u64, u64)> = blocks
        .iter()
        .zip(&stored)
        .map(|(block, stored)| (block.len() as u64, stored.bytes(block.len(), ashift)))
        .collect();
    let all: u64 = sizes.iter().map(|(before, _)| before).sum();
    let rate = |bytes: f64, time: Duration| bytes / time.as_secs_f64().max(1e-9);
    AlgorithmResult {
        name: name.to_owned(),
        ratio: ratio(&sizes),
        compresses: (algorithm.kind != CompressType::Off).then(|| rate(all as f64, packing)),
        decompresses: (unpacked > 0).then(|| rate(unpacked as f64, unpacking)),
    }
}

/// The median time of passes, of which none begins when so much time is over.
fn median_time(most: Duration, mut pass: impl FnMut()) -> Duration {
    let (began, mut times) = (Instant::now(), Vec::<Duration>::new());
    let is_long = |times: &[Duration]| times.first().is_some_and(|first| *first > LONG_PASS);
    while times.is_empty()
        || (times.len() < LEAST_PASSES && !is_long(&times))
        || (times.len() < MOST_PASSES && began.elapsed() < most)
    {
        let began = Instant::now();
        pass();
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// Bytes before over bytes after, with its interval; none of blocks of which nothing is stored.
fn ratio(sizes: &[(u64, u64)]) -> Option<Estimate> {
    if sizes.iter().all(|(_, after)| *after == 0) {
        return None;
    }
    let of = |drawn: &mut dyn Iterator<Item = (u64, u64)>| {
        let (before, after) = drawn.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        // Where nothing is left to store of what was drawn, a sector stands for it.
        before as f64 / after.max(512) as f64
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let mut ratios: Vec<f64> = (0..DRAWS)
        .map(|_| of(&mut (0..sizes.len()).filter_map(|_| sizes.get(rng.usize(..sizes.len())).copied())))
        .collect();
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share).round() as usize];
    Some(Estimate {
        value: of(&mut sizes.iter().copied()),
        low: at((1.0 - CONFIDENCE) / 2.0),
        high: at((1.0 + CONFIDENCE) / 2.0),
    })
}

impl Model for Compression {
    const FORMULA: &'static str = "ratio = sum of block sizes / sum of sizes stored in whole sectors, where \
        compression saves an eighth; speed: bytes / median time of many passes on one core";
    const SOURCE: &'static str =
        "OpenZFS 2.3, zio.c (zio_write_compress); Efron 1979 (bootstrap); measured on this machine";
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks of {} out of {}", self.sampled, self.block, bytes(self.whole as f64))?;
        if self.zeros > 0 {
            write!(
                f,
                ", {} of zeros, which are holes with any compression, are stored without, and are in no \
                 ratio",
                self.zeros
            )?;
        }
        writeln!(f, "; one core of this machine\n")?;
        let best = self.algorithms.iter().filter_map(|it| it.ratio).map(|it| it.value).fold(1.0, f64::max);
        let speed =
            |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.0}", rate / 1e6));
        let rows: Vec<Vec<String>> = self
            .algorithms
            .iter()
            .map(|it| {
                vec![
                    it.name.clone(),
                    it.ratio.map_or_else(|| "-".to_owned(), |it| format!("{:.2}", it.value)),
                    it.ratio.map_or_else(
                        || "nothing is stored".to_owned(),
                        |it| format!("{:.2} to {:.2}", it.low, it.high),
                    ),
                    speed(it.compresses),
                    speed(it.decompresses),
                    super::bar(it.ratio.map_or(1.0, |it| it.value / best)),
                ]
            })
            .collect();
        f.write_str(&table::plain(&["algorithm", "ratio", "interval", "MB/s in", "MB/s out", ""], &rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(len: usize) -> Vec<u8> {
        let mut rng = fastrand::Rng::with_seed(2);
        let words = ["pool ", "block ", "tree ", "of ", "the ", "and ", "disk ", "write\n"];
        let mut text = Vec::new();
        while text.len() < len {
            text.extend_from_slice(words[rng.usize(..words.len())].as_bytes());
        }
        text.truncate(len);
        text
    }

    #[test]
    fn blocks_are_stored_by_the_rules_of_a_pool() {
        let mut packed = vec![0; 8192];
        let mut noise = vec![0; 8192];
        fastrand::Rng::with_seed(1).fill(&mut noise);
        let lz4 = Algorithm::named("lz4").unwrap();
        let mut stored = |algorithm, ashift, block: &[u8]| store(algorithm, ashift, block, &mut packed);
        assert_eq!(stored(lz4, 9, &[0; 8192]), Stored::Hole);
        assert_eq!(stored(lz4, 9, &[1; 8192]), Stored::Embedded);
        assert_eq!(stored(lz4, 9, &noise), Stored::Plain);
        assert!(matches!(stored(lz4, 9, &text(8192)), Stored::Compressed(len) if len < 7168));
        // Saving less than a sector saves nothing.
        assert_eq!(stored(lz4, 12, &text(4096)), Stored::Plain);
        assert_eq!(stored(Algorithm::named("off").unwrap(), 9, &[0; 8192]), Stored::Plain);
        assert_eq!(Stored::Compressed(513).bytes(8192, 9), 1024);
    }

    #[test]
    fn every_algorithm_has_a_name() {
        for name in NAMES {
            Algorithm::named(name).unwrap();
        }
        assert_eq!(Algorithm::named("zstd").unwrap(), Algorithm::named("zstd-3").unwrap());
        assert_eq!(Algorithm::named("on").unwrap(), Algorithm::named("lz4").unwrap());
        for wrong in ["", "inherit", "zstd-20", "zstd-x", "gzip-0", "empty"] {
            assert!(Algorithm::named(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pass_that_is_interrupted_is_no_speed() {
        let mut passes = 0;
        let time = median_time(Duration::from_secs(1), || {
            passes += 1;
            // The first is cold, and the third has to wait.
            if [1, 3].contains(&passes) {
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        assert!(passes >= 5 && time < Duration::from_millis(10), "{passes} {time:?}");
    }

    #[test]
    fn a_sample_has_the_ratio_of_the_whole() {
        let directory = tempfile::tempdir().unwrap();
        let mut noise = vec![0; 2 << 20];
        fastrand::Rng::with_seed(1).fill(&mut noise);
        std::fs::write(directory.path().join("noise"), &noise).unwrap();
        std::fs::write(directory.path().join("text"), text(2 << 20)).unwrap();
        let of =
            |most| Compression::of(&[directory.path().to_owned()], Size(16 << 10), 9, Size(most)).unwrap();
        let (whole, sampled) = (of(64 << 20), of(1 << 20));
        assert_eq!((whole.sampled, sampled.sampled), (256, 64));
        let ratio = |of: &Compression, name: &str| {
            of.algorithms.iter().find(|it| it.name == name).unwrap().ratio.unwrap()
        };
        for name in ["lz4", "gzip-6", "zstd-3"] {
            let (whole, sampled) = (ratio(&whole, name), ratio(&sampled, name));
            assert!((sampled.low..=sampled.high).contains(&whole.value), "{name}: {sampled:?} {whole:?}");
            assert!(whole.value > 1.2 && whole.value < 2.0, "{name}: {whole:?}");
        }
        assert_eq!(ratio(&whole, "off").value, 1.0);
        // What does nothing has no speed, and what stores nothing no ratio.
        assert_eq!(
            whole.algorithms.last().map(|off| (off.name.as_str(), off.compresses)),
            Some(("off", None))
        );
        std::fs::write(directory.path().join("holes"), vec![0; 1 << 20]).unwrap();
        let holes =
            Compression::of(&[directory.path().join("holes")], Size(16 << 10), 9, Size(1 << 20)).unwrap();
        assert_eq!(holes.algorithms[0].ratio, None);
        assert_eq!((holes.sampled, holes.zeros), (64, 64));
        assert_eq!(ratio(&holes, "off").value, 1.0);
        assert!(holes.to_string().contains("nothing is stored"), "{holes}");
    }

    #[test]
    fn holes_are_in_no_ratio() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sparse");
        let mut noise = vec![0; 1 << 20];
        fastrand::Rng::with_seed(1).fill(&mut noise);
        if !sample::sparse(&path, &[(64 << 20, &noise), (128 << 20, &[0; 1 << 20])]) {
            return;
        }
        let of = |path: &PathBuf, most| {
            Compression::of(std::slice::from_ref(path), Size(128 << 10), 12, Size(most))
        };
        for most in [64 << 20, 1 << 20] {
            let told = of(&path, most).unwrap();
            assert_eq!(told.whole, 2 << 20);
            assert!(told.zeros > 0 && told.zeros < told.sampled, "{told}");
            for algorithm in &told.algorithms {
                assert_eq!(algorithm.ratio.map(|it| it.value), Some(1.0), "{told}");
            }
        }
        sample::sparse(&path, &[]);
        assert!(of(&path, 64 << 20).unwrap_err().to_string().contains("no data"));
    }
}
