//! The traces: numbers of blocks, in the order in which they are read.
//!
//! | trace | what it is |
//! |---|---|
//! | zipf | few blocks are read often: an object store, a file server |
//! | scan | the same, and now and then a pass over as many blocks that are read once: a backup |
//! | loop | all blocks in turn, again and again: a table that is scanned |
//! | mixed | zipf, random and streams at once |
//! | boot | many virtual machines of one image start, one after the other |
//! | shift | few blocks are read often, and they change: the working day |
//! | recent | what was written lately is read, older blocks less and less: logs, mail, databases |

/// Reads of each trace.
pub const READS: usize = 600_000;
const BLOCKS: u64 = 40_000;

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most.max(1)
    }

    fn part(&mut self) -> f64 {
        self.below(1 << 30) as f64 / (1u64 << 30) as f64
    }
}

/// Blocks of which the first are read most.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(blocks: u64, exponent: f64) -> Self {
        let mut sum = 0.0;
        Self(
            (1..=blocks)
                .map(|rank| {
                    sum += (rank as f64).powf(-exponent);
                    sum
                })
                .collect(),
        )
    }

    fn next(&self, random: &mut Random) -> u64 {
        let wanted = random.part() * self.0.last().copied().unwrap_or(0.0);
        self.0.partition_point(|sum| *sum < wanted) as u64
    }
}

/// All traces, by name.
pub fn traces() -> Vec<(&'static str, Vec<u64>)> {
    let mut random = Random(1);
    let zipf = Zipf::new(BLOCKS, 0.9);
    let of = |next: &mut dyn FnMut(usize) -> u64| (0..READS).map(next).collect::<Vec<u64>>();
    let plain = of(&mut |_| zipf.next(&mut random));
    let scan = of(&mut |n| match n % 60_000 {
        within if within < 15_000 => BLOCKS + (n / 60_000) as u64 * 15_000 + within as u64,
        _ => zipf.next(&mut random),
    });
    let turn = of(&mut |n| n as u64 % 12_000);
    let mut streams = [0u64; 4];
    let mixed = of(&mut |n| match random.below(4) {
        0 | 1 => zipf.next(&mut random),
        2 => BLOCKS + random.below(BLOCKS),
        _ => {
            streams[n % 4] += 1;
            (10 + n as u64 % 4) * BLOCKS + streams[n % 4]
        }
    });
    // A machine reads the image, of which it has changed a tenth, nearly in order.
    let image = 6_000u64;
    let boot = of(&mut |n| {
        let (machine, at) = (n as u64 / (image * 3 / 2), n as u64 % (image * 3 / 2));
        let block = (at + random.below(64)) % image;
        match (block.wrapping_mul(2_654_435_761) ^ machine.wrapping_mul(97)) % 10 {
            0 => (100 + machine) * BLOCKS + block,
            _ => block,
        }
    });
    let hot = Zipf::new(BLOCKS, 1.1);
    let shift = of(&mut |n| (hot.next(&mut random) + (n / 50_000) as u64 * 7_919) % BLOCKS);
    let age = Zipf::new(BLOCKS, 1.0);
    let recent = of(&mut |n| (1 << 20) + (n as u64 / 4) - age.next(&mut random));
    vec![
        ("zipf", plain),
        ("scan", scan),
        ("loop", turn),
        ("mixed", mixed),
        ("boot", boot),
        ("shift", shift),
        ("recent", recent),
    ]
}
