//! Which policy the cache should have: hit ratios of several on traces, beside the best that is possible.
//!
//!     cargo bench -p cenote-engine --bench policies
//!
//! A row is a trace with a size of cache, in blocks. `ours` is the product's own [`ArcCache`]; the other
//! policies are the textbook's, as short as they can be, and only count. `best` knows the future (Belady).
//! Nothing here depends on the machine, and each run prints the same.
//!
//!     CENOTE_TRACES=DIR cargo bench -p cenote-engine --bench policies
//!
//! also reads the traces as blocks of a volume, through all of the engine (`volume`), and writes them to
//! files in `DIR`, so that another program can read the same blocks with as much memory.

mod traces;
mod volume;

#[path = "../support/mod.rs"]
mod support;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use device::{IoBuf, block_on};
use engine::cache::arc::Key;
use engine::cache::{ArcCache, Block, Retain};

use self::traces::{READS, traces};

const SIZES: [usize; 3] = [2_000, 8_000, 20_000];
const BLOCK_BYTES: usize = 4096;

/// A cache that only counts: whether a block was there when it was read.
trait Policy {
    fn read(&mut self, block: u64) -> bool;
}

fn main() {
    println!("hit ratios in per cent, {READS} reads\n");
    println!(
        "{:<8} {:>6}  {:>6} {:>6} {:>7} {:>6} {:>9} {:>6}",
        "trace", "blocks", "ours", "LRU", "S3-FIFO", "SIEVE", "W-TinyLFU", "best"
    );
    for (name, trace) in traces() {
        for size in SIZES {
            let mut policies: Vec<Box<dyn Policy>> = vec![
                Box::new(Ours::new(size)),
                Box::new(Lru::new(size)),
                Box::new(S3Fifo::new(size)),
                Box::new(Sieve::new(size)),
                Box::new(TinyLfu::new(size)),
            ];
            let mut ratios: Vec<f64> =
                policies.iter_mut().map(|policy| ratio(policy.as_mut(), &trace)).collect();
            ratios.push(best(size, &trace));
            let [ours, lru, s3, sieve, tiny, best] = ratios[..] else { return };
            println!(
                "{name:<8} {size:>6}  {ours:>6.1} {lru:>6.1} {s3:>7.1} {sieve:>6.1} {tiny:>9.1} {best:>6.1}"
            );
        }
    }
    if let Some(dir) = std::env::var_os("CENOTE_TRACES") {
        volume::read_traces(std::path::Path::new(&dir), &SIZES);
    }
}

fn ratio(policy: &mut dyn Policy, trace: &[u64]) -> f64 {
    let hits = trace.iter().filter(|block| policy.read(**block)).count();
    hits as f64 * 100.0 / trace.len() as f64
}

struct Ours {
    cache: ArcCache,
    block: Block,
}

impl Ours {
    fn new(size: usize) -> Self {
        // What a block costs besides its bytes is the cache's own affair.
        let cache = ArcCache::new((size * (BLOCK_BYTES + 128)) as u64);
        Self { cache, block: Block::from(IoBuf::from([0u8; BLOCK_BYTES].as_slice())) }
    }
}

impl Policy for Ours {
    fn read(&mut self, block: u64) -> bool {
        let key = Key { pool: 0, vdev: 0, offset_bytes: block << 12, birth: 1, checksum_word: 0 };
        let is_hit = self.cache.get(&key, Retain::In).is_some();
        if !is_hit {
            let bytes = &self.block;
            let load = || async { Ok(bytes.clone()) };
            block_on(self.cache.get_or_load(key, Retain::In, load)).expect("it loads");
        }
        is_hit
    }
}

/// Blocks in the order of their last use.
struct Lru {
    size: usize,
    now: u64,
    used: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl Lru {
    fn new(size: usize) -> Self {
        Self { size, now: 0, used: HashMap::new(), order: BTreeMap::new() }
    }

    fn touch(&mut self, block: u64) -> bool {
        self.now += 1;
        let before = self.used.insert(block, self.now);
        before.map(|then| self.order.remove(&then));
        self.order.insert(self.now, block);
        before.is_some()
    }

    fn evict(&mut self) -> Option<u64> {
        let (_, block) = self.order.pop_first()?;
        self.used.remove(&block);
        Some(block)
    }

    fn remove(&mut self, block: u64) {
        if let Some(then) = self.used.remove(&block) {
            self.order.remove(&then);
        }
    }
}

impl Policy for Lru {
    fn read(&mut self, block: u64) -> bool {
        let is_hit = self.touch(block);
        if self.used.len() > self.size {
            self.evict();
        }
        is_hit
    }
}

/// Three queues (Yang and others, SOSP 2023): a small one for new blocks, a main one, and ghosts.
struct S3Fifo {
    size: usize,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: VecDeque<u64>,
    is_ghost: HashSet<u64>,
    uses: HashMap<u64, u8>,
}

impl S3Fifo {
    fn new(size: usize) -> Self {
        let queue = VecDeque::new;
        Self {
            size,
            small: queue(),
            main: queue(),
            ghosts: queue(),
            is_ghost: HashSet::new(),
            uses: HashMap::new(),
        }
    }

    fn make_room(&mut self) {
        while self.small.len() + self.main.len() >= self.size {
            if self.small.len() >= self.size / 10 {
                let Some(block) = self.small.pop_front() else { continue };
                if self.uses.get(&block).copied().unwrap_or(0) > 1 {
                    self.uses.insert(block, 0);
                    self.main.push_back(block);
                    continue;
                }
                self.uses.remove(&block);
                self.ghosts.push_back(block);
                self.is_ghost.insert(block);
                if self.ghosts.len() > self.size * 9 / 10
                    && let Some(oldest) = self.ghosts.pop_front()
                {
                    self.is_ghost.remove(&oldest);
                }
            } else if let Some(block) = self.main.pop_front() {
                match self.uses.get_mut(&block) {
                    Some(uses) if *uses > 0 => {
                        *uses -= 1;
                        self.main.push_back(block);
                    }
                    _ => drop(self.uses.remove(&block)),
                }
            }
        }
    }
}

impl Policy for S3Fifo {
    fn read(&mut self, block: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&block) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        self.make_room();
        self.uses.insert(block, 0);
        match self.is_ghost.remove(&block) {
            true => self.main.push_back(block),
            false => self.small.push_back(block),
        }
        false
    }
}

/// One queue and a hand that passes over it (Zhang and others, NSDI 2024).
struct Sieve {
    size: usize,
    /// Blocks by when they came in.
    queue: BTreeMap<u64, u64>,
    visited: HashMap<u64, bool>,
    hand: u64,
    now: u64,
}

impl Sieve {
    fn new(size: usize) -> Self {
        Self { size, queue: BTreeMap::new(), visited: HashMap::new(), hand: 0, now: 0 }
    }

    fn evict(&mut self) {
        loop {
            let next = self.queue.range(self.hand..).next().or_else(|| self.queue.iter().next());
            let Some((&at, &block)) = next else { return };
            self.hand = at + 1;
            match self.visited.get_mut(&block) {
                Some(visited) if *visited => *visited = false,
                _ => {
                    self.queue.remove(&at);
                    self.visited.remove(&block);
                    return;
                }
            }
        }
    }
}

impl Policy for Sieve {
    fn read(&mut self, block: u64) -> bool {
        if let Some(visited) = self.visited.get_mut(&block) {
            *visited = true;
            return true;
        }
        if self.visited.len() >= self.size {
            self.evict();
        }
        self.now += 1;
        self.queue.insert(self.now, block);
        self.visited.insert(block, false);
        false
    }
}

/// A window of a hundredth, and a segmented main part that takes what is used more often than what it would
/// replace (Einziger and others, 2017).
struct TinyLfu {
    size: usize,
    window: Lru,
    probation: Lru,
    protected: Lru,
    uses: HashMap<u64, u8>,
    counted: usize,
}

impl TinyLfu {
    fn new(size: usize) -> Self {
        let window = (size / 100).max(1);
        let main = size - window;
        Self {
            size: main,
            window: Lru::new(window),
            probation: Lru::new(main),
            protected: Lru::new(main * 8 / 10),
            uses: HashMap::new(),
            counted: 0,
        }
    }

    fn count(&mut self, block: u64) {
        let uses = self.uses.entry(block).or_insert(0);
        *uses = (*uses + 1).min(15);
        self.counted += 1;
        if self.counted >= self.size * 10 {
            self.counted /= 2;
            self.uses.retain(|_, uses| {
                *uses /= 2;
                *uses > 0
            });
        }
    }

    fn uses_of(&self, block: u64) -> u8 {
        self.uses.get(&block).copied().unwrap_or(0)
    }
}

impl Policy for TinyLfu {
    fn read(&mut self, block: u64) -> bool {
        self.count(block);
        if self.window.used.contains_key(&block) {
            return self.window.touch(block);
        }
        if self.protected.used.contains_key(&block) {
            return self.protected.touch(block);
        }
        if self.probation.used.contains_key(&block) {
            self.probation.remove(block);
            self.protected.touch(block);
            if self.protected.used.len() > self.protected.size
                && let Some(demoted) = self.protected.evict()
            {
                self.probation.touch(demoted);
            }
            return true;
        }
        self.window.touch(block);
        if self.window.used.len() > self.window.size
            && let Some(candidate) = self.window.evict()
        {
            if self.probation.used.len() + self.protected.used.len() < self.size {
                self.probation.touch(candidate);
            } else if let Some((_, &victim)) = self.probation.order.iter().next()
                && self.uses_of(candidate) > self.uses_of(victim)
            {
                self.probation.evict();
                self.probation.touch(candidate);
            }
        }
        false
    }
}

/// The ratio of a cache that evicts what is needed last.
fn best(size: usize, trace: &[u64]) -> f64 {
    let mut next = vec![usize::MAX; trace.len()];
    let mut seen: HashMap<u64, usize> = HashMap::new();
    for (index, block) in trace.iter().enumerate().rev() {
        next[index] = seen.insert(*block, index).unwrap_or(usize::MAX);
    }
    let mut held: HashMap<u64, (usize, u64)> = HashMap::new();
    let mut by_next: BTreeMap<(usize, u64), ()> = BTreeMap::new();
    let mut hits = 0usize;
    for (index, block) in trace.iter().enumerate() {
        if let Some(at) = held.remove(block) {
            by_next.remove(&at);
            hits += 1;
        } else if held.len() >= size
            && let Some(((_, victim), ())) = by_next.pop_last()
        {
            held.remove(&victim);
        }
        held.insert(*block, (next[index], *block));
        by_next.insert((next[index], *block), ());
    }
    hits as f64 * 100.0 / trace.len() as f64
}
