//! Data survive whatever is done to disks within their redundancy.
//!
//! Clients write to a plain volume and an encrypted one and verify what they read, while disks are
//! corrupted, pulled, returned, slowed, replaced, attached and detached, scrubs are started, paused and
//! crashed into, and the key is unloaded. A *round* is one such act. An *epoch* is a pool of one shape, some
//! rounds, and its recovery: everything is returned, resilvered and scrubbed; then the pool must be ONLINE,
//! a scrub must find nothing, every byte must be right, and every block is verified. Some pools are shown to
//! `zdb`.
//!
//! Acts never exceed the redundancy, as the torturer knows it (`harm`). So no client may ever get an error or
//! a wrong byte, and no scrub may find what it cannot repair.
//!
//! A seed names the acts and the steps of each client; how these interleave is up to the machine.
//!
//! | module | what it owns |
//! |---|---|
//! | `layouts` | shapes of pools |
//! | `rig` | the pool and its devices |
//! | `harm` | what the devices have suffered, and what more they can |
//! | `load` | the clients |
//! | `ivs` | no initialization vector comes twice |
//! | `acts` | the acts |
//! | `caches` | acts on cache devices |
//!
//! | variable | meaning |
//! |---|---|
//! | `CENOTE_TORTURE_SECONDS` | how long to go on; without it about 40 seconds |
//! | `CENOTE_TORTURE_SEED` | the first seed; printed with each failure. With `CENOTE_TORTURE_SECONDS=0` it is the only one |

#![allow(clippy::unwrap_used, reason = "a test")]

mod acts;
mod caches;
mod harm;
#[path = "../../../engine/tests/live/ivs.rs"]
mod ivs;
mod layouts;
mod load;
mod rig;
#[allow(dead_code, reason = "parts of it are for others")]
#[path = "../../../engine/tests/live/support.rs"]
mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use testkit::Rng;

use acts::Torture;
use layouts::SHAPES;

/// Acts on one pool.
const ROUNDS: usize = 48;
/// One pool in so many is shown to `zdb`.
const ZDB_ONCE_IN: u64 = 8;

#[derive(Debug, Default)]
struct Tally {
    epochs: usize,
    rounds: usize,
    steps: u64,
    asked_zdb: usize,
    acts: BTreeMap<&'static str, usize>,
}

/// A number that the environment gives.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn data_survive_what_is_done_to_disks() {
    let limit = Duration::from_secs(number("CENOTE_TORTURE_SECONDS").unwrap_or(40));
    let only_one = limit.is_zero();
    let first = number("CENOTE_TORTURE_SEED").unwrap_or(1);
    let began = Instant::now();
    let mut tally = Tally::default();
    for seed in first.. {
        let shape = &SHAPES[seed as usize % SHAPES.len()];
        let mut torture = Torture::begin(shape, seed);
        let outcome = epoch(&mut torture, seed, &mut tally);
        if let Err(error) = outcome {
            let acts = torture.log().join("\n  ");
            let devices = torture.describe();
            let kept = torture.keep();
            panic!(
                "{}, CENOTE_TORTURE_SECONDS=0 CENOTE_TORTURE_SEED={seed}: {error}\n  {acts}\n{devices}\
                 the devices are in {}",
                shape.name,
                kept.display()
            );
        }
        tally.epochs += 1;
        if only_one || began.elapsed() >= limit {
            break;
        }
    }
    // Past what captures the output of tests: how much was tried is part of the result.
    let _ = writeln!(std::io::stderr(), "torture: {tally:?} in {:?}", began.elapsed());
}

fn epoch(torture: &mut Torture, seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut rng = Rng::new(seed ^ 0x7047);
    for _ in 0..ROUNDS {
        let act = torture.round(&mut rng)?;
        *tally.acts.entry(act).or_default() += 1;
        tally.rounds += 1;
    }
    torture.recover()?;
    tally.steps += torture.steps();
    torture.judge(rng.once_in(ZDB_ONCE_IN).then(|| tally.asked_zdb += 1).is_some())
}
