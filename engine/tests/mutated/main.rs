//! A thousand mutated golden pools: no panic, no hang, no unbounded memory, and never wrong data.
//!
//! Each seed damages one pool, imports it, reads all that it shows and, for every third, verifies it. Half of
//! the damage is what checksums must find: then every file equals its manifest or says that it cannot be
//! read. The other half is forged under right checksums: then all that is asked is that reading ends, in
//! bounded time and memory. What is forged in an encrypted dataset is found all the same, by MACs.
//!
//! ```text
//! CENOTE_MUTANTS=1000 cargo test -p cenote-engine --test mutated      all of them (the default is a part)
//! CENOTE_MUTANT=17 cargo test -p cenote-engine --test mutated         one again
//! CENOTE_MUTANT_POOLS=single,rz2 …                                    of these pools only
//! CENOTE_MUTANTS_SEALED=1 CENOTE_MUTANT_POOLS=crypt …                 forged in encrypted datasets only
//! … --test mutated -- --nocapture                                     tell what is done
//! ```

#![allow(unsafe_code, reason = "an allocator that counts")]

mod damage;
mod forge;
mod overlay;
mod walk;

use std::alloc::{GlobalAlloc, Layout, System};
use std::env;
use std::fmt::Write as _;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use device::{Device, IgnorePoison, block_on};
use engine::Pool;
use engine::cache::ArcCache;
use engine::pool::discovery::{Candidate, FoundPool, group};
use engine::pool::import::{ImportOptions, Rewind, import};
use engine::pool::verify::{Depth, Progress, VerifyOptions, verify};
use ondisk::Txg;
use testkit::{GoldenPool, Rng};

use overlay::{Base, Overlay};

/// Mutants of a normal run.
const DEFAULT_MUTANTS: u64 = 250;
/// Memory that one mutant may take, its cache included.
const MAX_BYTES: usize = 256 << 20;
/// The pool with encrypted datasets.
const ENCRYPTED: &str = "crypt";
/// Budget of each mutant's cache.
const CACHE_BYTES: u64 = 32 << 20;
/// Processor time that one mutant may take, in a build without optimization.
const MAX_CPU: Duration = Duration::from_secs(20);
/// After this much processor time, or that much time of any kind, a mutant is given up, and with it the run.
const HANGS_AFTER: (Duration, Duration) = (Duration::from_secs(90), Duration::from_secs(900));

/// Counts what is allocated.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are passed on to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed).saturating_add(layout.size());
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The mutant that is at work, and the processor time when it began.
static SEED: AtomicU64 = AtomicU64::new(0);
static BEGAN_NS: AtomicU64 = AtomicU64::new(u64::MAX);
/// Panics of any thread.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A golden pool, imported as it is.
struct Original {
    golden: GoldenPool,
    bases: Vec<Arc<Base>>,
    found: FoundPool,
    pool: Arc<Pool>,
}

fn main() -> ExitCode {
    let only = number("CENOTE_MUTANT");
    let seeds = match only {
        Some(seed) => seed..seed + 1,
        None => 0..number("CENOTE_MUTANTS").unwrap_or(DEFAULT_MUTANTS),
    };
    let is_loud = only.is_some() || env::args().any(|arg| arg == "--nocapture");
    let originals = originals();
    if originals.is_empty() {
        return ExitCode::SUCCESS;
    }
    panic::set_hook(Box::new(|info| {
        let at = std::backtrace::Backtrace::force_capture().to_string();
        let ours: Vec<&str> =
            at.lines().filter(|line| line.contains("/src/") && line.contains("at ./")).take(12).collect();
        PANICS.lock().ignore_poison().push(format!("{info}\n{}", ours.join("\n")));
    }));
    thread::spawn(give_up_on_hangs);
    let mut failed = 0;
    for seed in seeds {
        SEED.store(seed, Ordering::Relaxed);
        if let Err(why) = judged(seed, &originals, is_loud) {
            println!(
                "FAILED: {why}\n  replay: CENOTE_MUTANT={seed} cargo test -p cenote-engine --test mutated"
            );
            failed += 1;
        }
    }
    println!("{failed} mutants failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn originals() -> Vec<Original> {
    let wanted = env::var("CENOTE_MUTANT_POOLS").ok();
    let names = testkit::golden::names().unwrap_or_default();
    let names = names
        .iter()
        .filter(|name| wanted.as_ref().is_none_or(|list| list.split(',').any(|one| one == *name)));
    names
        .filter_map(|name| {
            let golden = testkit::golden::pool(name)?;
            let bases: Vec<_> =
                golden.disks().iter().map(|disk| Base::open(disk).expect("the pool's files open")).collect();
            let found = discover(&damage::whole(&bases)).into_iter().next().expect("the pool is found");
            let pool = block_on(import(&found, &options(64 << 20))).expect("the pool is imported");
            Some(Original { golden, bases, found, pool })
        })
        .collect()
}

fn options(cache_bytes: u64) -> ImportOptions {
    ImportOptions { cache: Some(Arc::new(ArcCache::new(cache_bytes))), ..ImportOptions::read_only() }
}

fn discover(devices: &[Arc<Overlay>]) -> Vec<FoundPool> {
    let examined =
        devices.iter().map(|device| block_on(Candidate::examine(device.clone() as Arc<dyn Device>)));
    group(examined.flatten().collect())
}

/// Runs one mutant under the bounds.
fn judged(seed: u64, originals: &[Original], loud: bool) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let original = &originals[rng.index(originals.len())];
    let name = &original.golden.name;
    let (began, held) = (process_cpu(), HELD.load(Ordering::Relaxed));
    MOST.store(held, Ordering::Relaxed);
    BEGAN_NS.store(began.as_nanos() as u64, Ordering::Relaxed);
    let mut what = String::new();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| mutant(&mut rng, seed, original, &mut what)));
    BEGAN_NS.store(u64::MAX, Ordering::Relaxed);
    let (took, most) = (process_cpu() - began, MOST.load(Ordering::Relaxed).saturating_sub(held));
    if loud {
        println!("{name}, {what}: {} ms, {} MiB", took.as_millis(), most >> 20);
    }
    let panics = std::mem::take(&mut *PANICS.lock().ignore_poison());
    let failed = |why: String| Err(format!("mutant {seed} of {name}, {what}: {why}"));
    if !panics.is_empty() || outcome.is_err() {
        return failed(panics.join("\n"));
    }
    if let Ok(lies) = outcome
        && !lies.is_empty()
    {
        return failed(format!("{} lies\n  {}", lies.len(), lies[..lies.len().min(8)].join("\n  ")));
    }
    if most > MAX_BYTES {
        return failed(format!("{} MiB of memory", most >> 20));
    }
    if took > MAX_CPU {
        return failed(format!("{} s of processor time", took.as_secs()));
    }
    Ok(())
}

/// Whether all mutants of the encrypted pool are forged below a MAC.
fn is_only_sealed() -> bool {
    env::var_os("CENOTE_MUTANTS_SEALED").is_some()
}

/// Damages, imports and reads. Gives what was read and is wrong.
fn mutant(rng: &mut Rng, seed: u64, original: &Original, what: &mut String) -> Vec<String> {
    let is_sealed = original.golden.name == ENCRYPTED && (is_only_sealed() || rng.once_in(2));
    let forged = (is_sealed || rng.once_in(2)).then(|| {
        let devices = damage::whole(&original.bases);
        let forge = if is_sealed { forge::forge_sealed } else { forge::forge };
        let what = forge(rng, &original.pool, &original.found, &devices)?;
        Some((devices, format!("forged {what}")))
    });
    let (devices, is_forged) = match forged.flatten() {
        Some((devices, done)) => {
            *what = done;
            // What has a MAC is found to be forged.
            (devices, !is_sealed)
        }
        None => {
            let (devices, done) = damage::damage(rng, &original.bases);
            done.clone_into(what);
            (devices, false)
        }
    };
    let mut options = options(CACHE_BYTES);
    options.missing_log = rng.once_in(2);
    options.rewind = match rng.below(8) {
        0 => Rewind::Recent,
        1 => Rewind::Extreme,
        2 => Rewind::ToTxg(Txg(rng.next_u64() >> rng.below(64))),
        _ => Rewind::Never,
    };
    let mut lies = Vec::new();
    for found in discover(&devices).into_iter().take(3) {
        let pool = match block_on(import(&found, &options)) {
            Ok(pool) => pool,
            Err(error) => {
                let _ = write!(what, ", not imported ({error})");
                continue;
            }
        };
        what.push_str(", imported");
        // An older state is a right answer to damage, and not what the manifest describes. The manifest of
        // one pool describes what its intent log leads to, which reading alone does not replay.
        let is_present =
            pool.uberblock().txg == original.pool.uberblock().txg && original.golden.name != "zilreplay";
        if !is_forged && is_present {
            lies.extend(
                walk::lies(&original.golden, &pool).unwrap_or_else(|error| vec![format!("{error:#}")]),
            );
        } else {
            walk::everything(&pool);
        }
        if seed.is_multiple_of(3) {
            let depth = if seed.is_multiple_of(2) { Depth::Metadata } else { Depth::Structure };
            let options = VerifyOptions { threads: 1, depth, check_space: true };
            let _ = verify(&pool, options, &Progress::default());
        }
    }
    lies
}

/// Ends the process when a mutant does not end.
fn give_up_on_hangs() {
    let mut last = (u64::MAX, Instant::now());
    loop {
        thread::sleep(Duration::from_secs(1));
        let seed = SEED.load(Ordering::Relaxed);
        if last.0 != seed {
            last = (seed, Instant::now());
        }
        let began = Duration::from_nanos(BEGAN_NS.load(Ordering::Relaxed));
        if process_cpu().saturating_sub(began) > HANGS_AFTER.0 || last.1.elapsed() > HANGS_AFTER.1 {
            println!(
                "FAILED: mutant {seed} hangs\n  replay: CENOTE_MUTANT={seed} cargo test -p cenote-engine --test mutated"
            );
            std::process::exit(1);
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
