//! Tunables: numbers that a user may set while everything runs.
//!
//! # The idea
//! OpenZFS's kernel module has parameters (`/sys/module/zfs/parameters`). Those that mean something here are
//! here under the same names, with the same units, as [`Tunable`]s in one [table](all). Most users need none
//! of them: the defaults are meant to be right, and the lab measures whether another value is better on a
//! machine.
//!
//! A tunable belongs to the process, not to a pool. It is a static: code reads it where it needs it, with
//! one relaxed load ([`Tunable::get`]). A value that was never set is the default of the table; some
//! defaults depend on the machine or the pool, and the code asks for [`Tunable::given`] then. Setting checks
//! the range, so no reader needs to.
//!
//! Names of OpenZFS that mean nothing here are known too, with the reason ([`refusal`]): a user who sets one
//! is told why it would do nothing, instead of that there is no such tunable.
//!
//! | module | what it owns |
//! |---|---|
//! | `table` | the tunables |
//! | `refused` | OpenZFS's others, and why they are not here |
//! | `size` | values as users type them |
//! | `file` | the file that is read at start |
//!
//! Source of names, units and meanings: OpenZFS's manual page `zfs(4)`.

mod file;
mod refused;
mod size;
mod table;

use std::sync::atomic::{AtomicU64, Ordering};

pub use file::{FileError, apply_file};
pub use refused::refusal;
pub use table::*;

/// The value of a tunable that was not set.
const NOT_GIVEN: u64 = u64::MAX;

/// What the number of a tunable counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// 0 for off, other values for on.
    Switch,
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// Hundredths.
    Percent,
    /// Seconds.
    Seconds,
    /// Thousandths of a second.
    Milliseconds,
    /// Transaction groups.
    Groups,
}

/// When a new value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// At once.
    AtOnce,
    /// For what begins after it was set, such as the next scrub or the next volume that is opened.
    ForNew,
    /// For pools that are imported or created after it was set.
    AtImport,
}

/// A number that a user may set.
#[derive(Debug)]
pub struct Tunable {
    name: &'static str,
    text: &'static str,
    unit: Unit,
    default: u64,
    least: u64,
    most: u64,
    effect: Effect,
    value: AtomicU64,
}

/// Why a tunable was not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TunableError {
    /// Neither this program nor OpenZFS has it.
    #[error("no such tunable '{0}'; 'cenote tunable list' shows all")]
    Unknown(String),
    /// OpenZFS has it, and it means nothing here.
    #[error("'{name}' has no effect here: {reason}")]
    Refused {
        /// The name.
        name: String,
        /// The reason.
        reason: &'static str,
    },
    /// Not a number.
    #[error("'{value}' is not a value of {name}: it takes a number, such as 1048576, 0x100000 or 1M")]
    NotANumber {
        /// The name.
        name: &'static str,
        /// What was given.
        value: String,
    },
    /// Out of range.
    #[error(
        "{name} cannot be {value}: it is at least {least} and at most {most}{}",
        or_default(*default, *least)
    )]
    OutOfRange {
        /// The name.
        name: &'static str,
        /// What was given.
        value: u64,
        /// The least value.
        least: u64,
        /// The largest value.
        most: u64,
        /// The default, which may always be set.
        default: u64,
    },
}

impl Tunable {
    const fn new(
        name: &'static str,
        text: &'static str,
        unit: Unit,
        (default, least, most): (u64, u64, u64),
        effect: Effect,
    ) -> Self {
        Self { name, text, unit, default, least, most, effect, value: AtomicU64::new(NOT_GIVEN) }
    }

    /// The value that counts now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.given().unwrap_or(self.default)
    }

    /// The value as a length in memory.
    #[inline]
    pub fn size(&self) -> usize {
        usize::try_from(self.get()).unwrap_or(usize::MAX)
    }

    /// Whether the value is not 0.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.get() != 0
    }

    /// The value that was set; nothing when none was.
    #[inline]
    pub fn given(&self) -> Option<u64> {
        let value = self.value.load(Ordering::Relaxed);
        (value != NOT_GIVEN).then_some(value)
    }

    /// Sets the value. The default may be 0 outside of the range: it leaves the value to the code.
    ///
    /// # Errors
    /// [`TunableError::OutOfRange`].
    pub fn set(&self, value: u64) -> Result<(), TunableError> {
        let (name, least, most, default) = (self.name, self.least, self.most, self.default);
        if !(least..=most).contains(&value) && value != default {
            return Err(TunableError::OutOfRange { name, value, least, most, default });
        }
        self.value.store(value, Ordering::Relaxed);
        Ok(())
    }

    /// Back to the default.
    pub fn reset(&self) {
        self.value.store(NOT_GIVEN, Ordering::Relaxed);
    }

    /// The name, as OpenZFS has it where it has one.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it does, in one or a few sentences.
    pub fn text(&self) -> &'static str {
        self.text.trim()
    }

    /// What the number counts.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The value while none is set.
    pub fn default_value(&self) -> u64 {
        self.default
    }

    /// The least and the largest value.
    pub fn range(&self) -> (u64, u64) {
        (self.least, self.most)
    }

    /// When a new value counts.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// A value as users type it.
    ///
    /// # Errors
    /// [`TunableError::NotANumber`].
    pub fn parse(&self, value: &str) -> Result<u64, TunableError> {
        let not_a_number = || TunableError::NotANumber { name: self.name, value: value.to_owned() };
        size::parse(value).ok_or_else(not_a_number)
    }
}

/// What else than the range may be set.
fn or_default(default: u64, least: u64) -> String {
    if default < least { format!(", or {default} for the default") } else { String::new() }
}

/// All tunables, by name.
pub fn all() -> &'static [&'static Tunable] {
    ALL
}

/// The name of a tunable as users and scripts of OpenZFS's machines give it: alone, or as the file of the
/// kernel module's parameter (`/sys/module/zfs/parameters/zfs_arc_max`).
pub fn bare(name: &str) -> &str {
    let of_module = name.strip_prefix("/sys/module/").and_then(|rest| rest.split_once("/parameters/"));
    match of_module {
        Some((module, parameter)) if ["zfs", "spl"].contains(&module) => parameter,
        _ => name,
    }
}

/// The tunable of a name, which may be the path of the kernel module's parameter.
///
/// # Errors
/// There is none, or OpenZFS has it and it means nothing here.
pub fn named(name: &str) -> Result<&'static Tunable, TunableError> {
    let name = bare(name.trim());
    match (ALL.iter().find(|tunable| tunable.name == name), refusal(name)) {
        (Some(tunable), _) => Ok(tunable),
        (None, Some(reason)) => Err(TunableError::Refused { name: name.to_owned(), reason }),
        (None, None) => Err(TunableError::Unknown(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PROBE: Tunable = Tunable::new("probe", " Text. ", Unit::Count, (5, 2, 9), Effect::AtOnce);

    #[test]
    fn a_value_that_is_set_counts_until_it_is_reset() {
        assert_eq!((PROBE.get(), PROBE.given(), PROBE.text()), (5, None, "Text."));
        PROBE.set(9).unwrap();
        assert_eq!((PROBE.get(), PROBE.given()), (9, Some(9)));
        let error = PROBE.set(10).unwrap_err();
        assert_eq!(error.to_string(), "probe cannot be 10: it is at least 2 and at most 9");
        assert_eq!(PROBE.get(), 9);
        PROBE.reset();
        assert_eq!((PROBE.get(), PROBE.given()), (5, None));
    }

    #[test]
    fn the_table_is_sorted_and_its_defaults_are_in_range() {
        assert!(
            ALL.is_sorted_by(|a, b| a.name < b.name),
            "{:?}",
            ALL.iter().map(|t| t.name).collect::<Vec<_>>()
        );
        for tunable in all() {
            let (least, most) = tunable.range();
            let default = tunable.default_value();
            assert!(default == 0 || (least..=most).contains(&default), "{tunable:?}");
            assert!(least <= most && most < NOT_GIVEN, "{tunable:?}");
            assert!(tunable.text().ends_with('.') && tunable.text().len() > 20, "{tunable:?}");
            assert_eq!(refusal(tunable.name()), None, "{tunable:?}");
        }
    }

    #[test]
    fn names_of_openzfs_that_mean_nothing_here_are_refused_with_the_reason() {
        assert_eq!(named("zfs_txg_timeout").unwrap().name(), "zfs_txg_timeout");
        let message = |name| named(name).unwrap_err().to_string();
        assert!(message("zio_taskq_read").starts_with("'zio_taskq_read' has no effect here: "));
        assert!(message("zfs_vdev_async_read_max_active").contains("has no effect here"));
        for name in
            ["zfs_max_missing_tvds_scan", "l2arc_dwpd_limit", "zfs_active_allocator", "zil_slog_limit"]
        {
            assert!(message(name).contains("has no effect here"), "{name}");
        }
        assert_eq!(message("nonsense"), "no such tunable 'nonsense'; 'cenote tunable list' shows all");
    }

    #[test]
    fn the_path_of_a_parameter_of_the_kernel_module_is_its_name() {
        assert_eq!(named("/sys/module/zfs/parameters/zfs_txg_timeout").unwrap().name(), "zfs_txg_timeout");
        let refused = named("/sys/module/spl/parameters/spl_hostid").unwrap_err().to_string();
        assert!(refused.starts_with("'spl_hostid' has no effect here: "), "{refused}");
        for wrong in ["/sys/module/ext4/parameters/zfs_txg_timeout", "/etc/zfs_txg_timeout"] {
            assert!(matches!(named(wrong), Err(TunableError::Unknown(_))), "{wrong}");
        }
    }

    #[test]
    fn a_value_below_the_floor_is_refused_and_zero_is_the_default() {
        static FLOOR: Tunable = Tunable::new("floor", "Text.", Unit::Bytes, (0, 64, 99), Effect::AtOnce);
        let error = FLOOR.set(63).unwrap_err().to_string();
        assert_eq!(error, "floor cannot be 63: it is at least 64 and at most 99, or 0 for the default");
        FLOOR.set(0).unwrap();
        FLOOR.set(64).unwrap();
        assert_eq!(FLOOR.get(), 64);
    }
}
