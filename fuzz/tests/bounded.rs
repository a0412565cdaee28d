//! A bounded run of all targets: the corpus as it is, then mutations of it by seed.
//!
//! The run is deterministic: what a call gets depends on the target, the seed and the corpus only. A call
//! fails when it panics (overflow included), takes more than [`MAX_BYTES`] of memory at once or more than
//! [`MAX_CPU`] of time. Failures name what replays them:
//!
//! ```text
//! CENOTE_FUZZ_SEED=SEED cargo test -p cenote-fuzz -- TARGET     one call
//! CENOTE_FUZZ_ITERATIONS=N cargo test -p cenote-fuzz            more of them
//! ```

#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, fs, process, thread};

use fuzz_targets::{TARGETS, Target};
use testkit::mutate::{Rng, mutate};

/// Memory that one call may hold at once.
const MAX_BYTES: usize = 64 << 20;
/// Processor time that one call may take; in a build without optimization.
const MAX_CPU: Duration = Duration::from_secs(2);
/// After this much processor time a call is given up, and with it the run.
const HANGS_AFTER: Duration = Duration::from_secs(30);
/// Calls for each target unless the environment says otherwise.
const DEFAULT_ITERATIONS: u64 = 16_000;

/// Counts what is allocated.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn count_more(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    MOST.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: all calls are passed on to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_more(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_more(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of the call that runs, and the processor time when it began.
static CALL: AtomicU64 = AtomicU64::new(0);
static BEGAN_NS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

fn main() -> ExitCode {
    let filters: Vec<String> = env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name == filter);
    let only_seed = number("CENOTE_FUZZ_SEED");
    let iterations = number("CENOTE_FUZZ_ITERATIONS").unwrap_or(DEFAULT_ITERATIONS);
    panic::set_hook(Box::new(|info| PANIC.with_borrow_mut(|text| *text = info.to_string())));
    thread::spawn(give_up_on_hangs);

    let mut failed = 0;
    let manifest = include_str!("../libfuzzer/Cargo.toml");
    for (name, _) in TARGETS.iter().filter(|(name, _)| !manifest.contains(&format!("name = \"{name}\""))) {
        println!("FAILED: {name} has no [[bin]] in libfuzzer/Cargo.toml");
        failed += 1;
    }
    for (name, target) in TARGETS.iter().filter(|(name, _)| wanted(name)) {
        let corpus = corpus(name);
        let seeds = match only_seed {
            Some(seed) => seed..seed.saturating_add(1),
            None => 0..corpus.len() as u64 + iterations,
        };
        let began = process_cpu();
        for seed in seeds {
            let input = input(name, seed, &corpus);
            if let Err(why) = call(*target, &input) {
                println!(
                    "FAILED: {name}, seed {seed}: {why}\n  replay: CENOTE_FUZZ_SEED={seed} cargo test -p \
                     cenote-fuzz -- {name}"
                );
                if only_seed.is_some() {
                    println!("  input: {:02x?}", &input[..input.len().min(4096)]);
                }
                failed += 1;
                break;
            }
        }
        let took = process_cpu() - began;
        if took > Duration::from_secs(2) {
            println!("{name}: {:.1} s", took.as_secs_f64());
        }
    }
    println!("{} targets, {failed} failed", TARGETS.iter().filter(|(name, _)| wanted(name)).count());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What the call number `seed` gets: first the corpus itself, then mutations.
fn input(name: &str, seed: u64, corpus: &[Vec<u8>]) -> Vec<u8> {
    if let Some(file) = usize::try_from(seed).ok().and_then(|index| corpus.get(index)) {
        return file.clone();
    }
    let of_name = name.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let mut rng = Rng::new(seed ^ of_name << 32);
    let mut bytes = rng.pick(corpus).cloned().unwrap_or_default();
    let other = rng.pick(corpus).cloned().unwrap_or_default();
    mutate(&mut rng, &mut bytes, &other);
    bytes
}

fn call(target: Target, input: &[u8]) -> Result<(), String> {
    let began = process_cpu();
    let held = HELD.load(Ordering::Relaxed);
    MOST.store(held, Ordering::Relaxed);
    CALL.fetch_add(1, Ordering::Relaxed);
    BEGAN_NS.store(began.as_nanos() as u64, Ordering::Relaxed);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| target(input)));
    BEGAN_NS.store(u64::MAX, Ordering::Relaxed);
    let (took, most) = (process_cpu() - began, MOST.load(Ordering::Relaxed).saturating_sub(held));
    if outcome.is_err() {
        return Err(PANIC.take());
    }
    if most > MAX_BYTES {
        return Err(format!("{} MiB of memory for {} bytes of input", most >> 20, input.len()));
    }
    if took > MAX_CPU {
        return Err(format!("{} ms for {} bytes of input", took.as_millis(), input.len()));
    }
    Ok(())
}

/// Ends the process when one call does not end.
fn give_up_on_hangs() {
    loop {
        thread::sleep(Duration::from_secs(1));
        let began = Duration::from_nanos(BEGAN_NS.load(Ordering::Relaxed));
        if process_cpu().saturating_sub(began) > HANGS_AFTER {
            println!(
                "FAILED: call {} hangs; run the targets one by one to see which",
                CALL.load(Ordering::Relaxed)
            );
            process::exit(1);
        }
    }
}

fn process_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// The files of a target's corpus by name, and two for targets without: of zeroes and of random bytes.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut files: Vec<Vec<u8>> = paths.iter().filter_map(|path| fs::read(path).ok()).collect();
    files.push(vec![0; 1024]);
    let mut rng = Rng::new(files.len() as u64);
    files.push((0..1024).map(|_| rng.next_u64() as u8).collect());
    files
}
