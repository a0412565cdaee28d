//! Measuring and printing.

/// Block sizes that every codec is measured at.
pub const SIZES: [usize; 3] = [4 << 10, 16 << 10, 128 << 10];

/// Rounds of each implementation; their median counts.
const ROUNDS: usize = 9;
/// Length of a round.
const ROUND_NS: u64 = 12_000_000;
/// Turns of ours and a peer that measures itself. Each one's best counts: neighbours on the processor slow
/// whole seconds by a third, and speed up none.
const TURNS: usize = 5;
/// Length of our part of a turn.
const TURN_NS: u64 = 200_000_000;

/// What ours is compared with.
pub struct Peer<'a> {
    /// Its name in the table.
    pub name: &'a str,
    /// Does what ours does, once.
    pub run: &'a mut dyn FnMut(),
}

/// Prints rows as they are measured.
pub struct Table {
    filter: Option<String>,
}

impl Table {
    /// A table of the rows whose name contains `filter`.
    pub fn new(filter: Option<String>) -> Self {
        println!(
            "{:<26} {:>6} {:>9}   {:<22} {:>9} {:>6}",
            "codec", "block", "ours GB/s", "other", "GB/s", "ratio"
        );
        Table { filter }
    }

    /// Whether a row of this name is wanted, to spare its preparation.
    pub fn wants(&self, name: &str) -> bool {
        self.filter.as_deref().is_none_or(|filter| name.contains(filter))
    }

    /// Whether the filter begins with `name`: naming it accepts that it takes long.
    pub fn names(&self, name: &str) -> bool {
        self.filter.as_deref().is_some_and(|filter| filter.starts_with(name))
    }

    /// Measures `ours` beside the rate of a peer that measured itself, in GB/s.
    pub fn row_beside(&mut self, name: &str, bytes: usize, ours: &mut dyn FnMut(), peer: &str, theirs: f64) {
        if self.wants(name) {
            let ours = median(&mut [ours])[0].rate(bytes);
            print(name, bytes, ours, peer, theirs);
        }
    }

    /// Measures `ours` in turns with `theirs`, which measures itself and reports GB/s, if it can. A call of
    /// `ours` handles `batch` bytes in blocks of `bytes`; what `prepare` does before each is not counted; it
    /// hears whether a turn begins.
    pub fn row_in_turns(
        &mut self,
        name: &str,
        (bytes, batch): (usize, usize),
        (prepare, ours): (&mut dyn FnMut(bool), &mut dyn FnMut()),
        (peer, theirs): (&str, &mut dyn FnMut() -> Option<f64>),
    ) {
        if !self.wants(name) {
            return;
        }
        let (mut our_rates, mut their_rates) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let mut rates = Vec::new();
            let end = thread_cpu_ns() + TURN_NS;
            while thread_cpu_ns() < end {
                prepare(rates.is_empty());
                let start = thread_cpu_ns();
                ours();
                rates.push(batch as f64 / (thread_cpu_ns() - start) as f64);
            }
            our_rates.push(middle(rates));
            their_rates.extend(theirs());
        }
        let best = |rates: Vec<f64>| rates.into_iter().max_by(f64::total_cmp);
        match (best(our_rates), best(their_rates)) {
            (Some(ours), Some(theirs)) => print(name, bytes, ours, peer, theirs),
            (ours, _) => print_alone(name, bytes, ours.unwrap_or(f64::NAN)),
        }
    }

    /// Measures `ours`, which handles `bytes` of logical data in a call, beside `peer`.
    pub fn row(&mut self, name: &str, bytes: usize, ours: &mut dyn FnMut(), peer: Option<Peer<'_>>) {
        if !self.wants(name) {
            return;
        }
        let Some(peer) = peer else {
            return print_alone(name, bytes, median(&mut [ours])[0].rate(bytes));
        };
        let rates = median(&mut [ours, peer.run]);
        print(name, bytes, rates[0].rate(bytes), peer.name, rates[1].rate(bytes));
    }
}

fn print(name: &str, bytes: usize, ours: f64, peer: &str, theirs: f64) {
    let block = format!("{}K", bytes >> 10);
    println!("{name:<26} {block:>6} {ours:>9.3}   {peer:<22} {theirs:>9.3} {:>6.2}", ours / theirs);
}

fn print_alone(name: &str, bytes: usize, ours: f64) {
    let block = format!("{}K", bytes >> 10);
    println!("{name:<26} {block:>6} {ours:>9.3}");
}

/// The median. There is at least one figure.
fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The cost of one call.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Cost {
    ns: f64,
}

impl Cost {
    fn rate(self, bytes: usize) -> f64 {
        bytes as f64 / self.ns
    }
}

/// The median cost of each candidate, measured in turns so that a slow moment of the machine hits them alike.
fn median(candidates: &mut [&mut dyn FnMut()]) -> Vec<Cost> {
    let calls: Vec<u64> = candidates.iter_mut().map(|run| calibrate(*run)).collect();
    let mut rounds = vec![Vec::with_capacity(ROUNDS); candidates.len()];
    for _ in 0..ROUNDS {
        for (at, run) in candidates.iter_mut().enumerate() {
            let start = thread_cpu_ns();
            for _ in 0..calls[at] {
                run();
            }
            rounds[at].push((thread_cpu_ns() - start) as f64 / calls[at] as f64);
        }
    }
    rounds.into_iter().map(|costs| Cost { ns: middle(costs) }).collect()
}

/// How many calls fill a round.
fn calibrate(run: &mut dyn FnMut()) -> u64 {
    let mut calls = 1;
    loop {
        let start = thread_cpu_ns();
        (0..calls).for_each(|_| run());
        let spent = thread_cpu_ns() - start;
        if spent > ROUND_NS / 8 {
            return (calls * ROUND_NS / spent).max(1);
        }
        calls *= 2;
    }
}

/// CPU time of this thread: what others on the machine do counts little.
fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local that lives across the call; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
