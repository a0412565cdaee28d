//! The load that virtual machines put on a vhost-user-blk device, whatever serves it.
//!
//! Each client is a machine with a connection and a ring of its own, which keeps as many requests under way
//! as it is asked for. A single client has a thread; more of them share two. An answer that is not good ends
//! the process, because requests that fail are no figure.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::driver::{self, Machine, OK, Options, READ, SLOTS, WRITE};

/// What clients ask for.
#[derive(Clone, Copy)]
pub struct Work {
    /// Whether they write, and do not read.
    pub is_write: bool,
    /// Anywhere, or one after the other.
    pub is_random: bool,
    /// Bytes of a request, at most those of a slot ([`driver::DATA_BYTES`]).
    pub request_bytes: u64,
    /// Bytes of the device.
    pub size_bytes: u64,
    /// Requests of a client under way; more than [`SLOTS`] are as many as those.
    pub depth: u16,
    pub clients: usize,
    /// Not counted: both sides touch all pages of the machines' memory.
    pub warming: Duration,
    /// How long requests are counted after that.
    pub timed: Duration,
    /// Another one takes other places.
    pub seed: u64,
}

/// Requests of all clients that were answered.
#[derive(Clone, Copy, Default)]
pub struct Done {
    /// After the time of warming.
    pub timed: u64,
    /// From the first to the last one.
    pub all: u64,
}

/// Where a client reads or writes next.
struct Places {
    seed: u64,
    work: Work,
}

impl Places {
    /// A sector.
    fn next(&mut self) -> u64 {
        let Work { is_random, request_bytes, size_bytes, .. } = self.work;
        self.seed = match is_random {
            true => self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1),
            false => self.seed + 1,
        };
        let number = if is_random { self.seed >> 33 } else { self.seed };
        number % (size_bytes / request_bytes) * request_bytes / 512
    }
}

/// What a thread's clients had answered.
fn load(mut machines: Vec<Machine>, mut places: Places) -> Done {
    let Work { is_write, request_bytes, depth, warming, timed, .. } = places.work;
    let kind = if is_write { WRITE } else { READ };
    let pieces = [request_bytes as u32];
    let mut ask = |machine: &mut Machine, slots: &[u16]| {
        let before = machine.available(0);
        for slot in slots {
            let head = machine.prepare(0, *slot, (kind, places.next()), &pieces);
            machine.offer(0, head);
        }
        machine.kick(0, before);
    };
    let all: Vec<u16> = (0..depth.min(SLOTS)).collect();
    machines.iter_mut().for_each(|machine| ask(machine, &all));
    let begun = Instant::now();
    let mut done = Done::default();
    let mut before = None;
    while begun.elapsed() < warming + timed {
        if before.is_none() && begun.elapsed() >= warming {
            before = Some(done.all);
        }
        let mut moved = false;
        for machine in &mut machines {
            let answered = machine.answered(0);
            if answered.is_empty() {
                continue;
            }
            moved = true;
            done.all += answered.len() as u64;
            let slots: Vec<u16> = answered.iter().map(|(head, _)| machine.slot(*head)).collect();
            assert!(slots.iter().all(|slot| machine.status(0, *slot) == OK), "a request failed");
            ask(machine, &slots);
        }
        if !moved {
            // All are to tell of their next answer; who has one already is not waited for.
            if machines.iter_mut().all(|machine| machine.wants_call(0)) {
                let calls: Vec<i32> = machines.iter().map(|machine| machine.call(0)).collect();
                driver::any_readable(&calls, Duration::from_millis(100));
            }
        }
    }
    done.timed = done.all - before.unwrap_or(done.all);
    // What is under way ends before its memory goes.
    for machine in machines {
        let _ = machine.stop(0);
    }
    done
}

/// Puts the load on; clients share the sockets.
pub fn measure(sockets: &[PathBuf], work: Work) -> Done {
    let threads = if work.clients == 1 { 1 } else { 2 };
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let own = (thread..work.clients).step_by(threads).map(|client| {
                let options = Options { has_inflight: false, ..Options::default() };
                Machine::connect(&sockets[client % sockets.len()], options)
            });
            let own: Vec<Machine> = own.collect();
            if work.is_write {
                own.iter().for_each(|machine| fill(machine, work));
            }
            let first = if work.is_random { thread as u64 * 7919 + 1 } else { thread as u64 * 100 };
            let places = Places { seed: work.seed + first, work };
            thread::spawn(move || load(own, places))
        })
        .collect();
    workers
        .into_iter()
        .map(|worker| worker.join().expect("a client"))
        .fold(Done::default(), |sum, done| Done { timed: sum.timed + done.timed, all: sum.all + done.all })
}

/// Puts what does not compress into the slots of a machine.
fn fill(machine: &Machine, work: Work) {
    let mut state = work.seed | 1;
    for slot in 0..work.depth.min(SLOTS) {
        let words = (0..work.request_bytes / 8).flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state ^ state >> 29).to_le_bytes()
        });
        machine.set_data(0, slot, &words.collect::<Vec<u8>>());
    }
}
