//! Pools that are tortured.

use engine::pool::live::Layout;
use engine::vdev::Class;

/// Smallest size of a device.
pub const DEVICE_BYTES: u64 = 96 << 20;

/// What a pool is made of at first.
pub struct Shape {
    pub name: &'static str,
    /// Layout, class and number of devices of each top-level vdev.
    pub tops: &'static [(Layout, Class, usize)],
    /// Hot spares.
    pub spares: usize,
    /// Bytes of each device.
    pub device_bytes: u64,
}

const fn mirror(count: usize) -> (Layout, Class, usize) {
    (Layout::Mirror, Class::Normal, count)
}

const fn raidz(nparity: u8, count: usize) -> (Layout, Class, usize) {
    (Layout::Raidz { nparity }, Class::Normal, count)
}

const fn shape(name: &'static str, tops: &'static [(Layout, Class, usize)], spares: usize) -> Shape {
    Shape { name, tops, spares, device_bytes: DEVICE_BYTES }
}

const SINGLE: (Layout, Class, usize) = (Layout::Single, Class::Normal, 1);
const DRAID: Layout = Layout::Draid { nparity: 1, ndata: 2, nspares: 1 };

/// All shapes.
pub const SHAPES: &[Shape] = &[
    shape("mirror", &[mirror(2)], 0),
    shape("raidz2", &[raidz(2, 5)], 1),
    shape("mirrors", &[mirror(2), mirror(3)], 1),
    shape("raidz1", &[raidz(1, 3)], 0),
    shape("single", &[SINGLE], 0),
    shape("special", &[mirror(2), (Layout::Mirror, Class::Special, 2), (Layout::Mirror, Class::Log, 2)], 0),
    shape("raidz3", &[raidz(3, 6)], 0),
    Shape { name: "draid", tops: &[(DRAID, Class::Normal, 5)], spares: 0, device_bytes: 160 << 20 },
];
