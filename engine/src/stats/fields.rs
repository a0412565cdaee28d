//! How a group of counters is defined.

use std::sync::atomic::{AtomicU64, Ordering};

/// What kind of number a field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// A state, which grows and shrinks.
    Gauge,
    /// A state that may be negative: the bits of an `i64`.
    Signed,
}

/// One number of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The name, as OpenZFS has it where it has such a number.
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
    /// What it counts here.
    pub text: &'static str,
}

/// A group of counters at one moment.
pub trait Group {
    /// The name of the group.
    const NAME: &'static str;
    /// Its fields, in the order of OpenZFS.
    const FIELDS: &'static [Field];
    /// The numbers, in the order of [`Group::FIELDS`].
    fn values(&self) -> Vec<u64>;
}

/// A number that is counted in place.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `more`.
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Adds one.
    pub(crate) fn bump(&self) {
        self.add(1);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Defines a group: a type with one field for each number.
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $Name:ident in $group:literal {
            $($field:ident: $kind:ident, $text:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $Name {
            $(#[doc = $text] pub $field: u64,)*
        }

        impl $crate::stats::Group for $Name {
            const NAME: &'static str = $group;
            const FIELDS: &'static [$crate::stats::Field] = &[
                $($crate::stats::Field {
                    name: stringify!($field),
                    kind: $crate::stats::Kind::$kind,
                    text: $text,
                },)*
            ];

            fn values(&self) -> Vec<u64> {
                vec![$(self.$field,)*]
            }
        }
    };
}

/// Defines a group as `counters` does, and a twin that counts it.
macro_rules! counted {
    (
        $(#[$meta:meta])*
        $Name:ident by $Live:ident in $group:literal {
            $($field:ident: $kind:ident, $text:literal;)*
        }
    ) => {
        $crate::stats::counters! {
            $(#[$meta])*
            $Name in $group {
                $($field: $kind, $text;)*
            }
        }

        #[doc = concat!("Counts [`", stringify!($Name), "`].")]
        #[derive(Debug, Default)]
        pub struct $Live {
            $(#[doc = $text] pub(crate) $field: $crate::stats::Counter,)*
        }

        impl $Live {
            /// All zero.
            pub(crate) const fn new() -> Self {
                Self { $($field: $crate::stats::Counter::new(),)* }
            }

            /// The numbers now.
            pub fn snapshot(&self) -> $Name {
                $Name { $($field: self.$field.get(),)* }
            }
        }
    };
}

pub(crate) use {counted, counters};

#[cfg(test)]
mod tests {
    use super::super::Group;

    counted! {
        /// Cups of tea.
        Tea by TeaCounters in "tea" {
            cups: Counter, "Cups that were drunk.";
            pots: Gauge, "Pots on the table.";
        }
    }

    #[test]
    fn a_group_has_its_numbers_in_the_order_of_its_fields() {
        let tea = TeaCounters::new();
        tea.cups.add(3);
        tea.pots.bump();
        let now = tea.snapshot();
        assert_eq!((now.cups, now.values()), (3, vec![3, 1]));
        let names: Vec<_> = Tea::FIELDS.iter().map(|field| field.name).collect();
        assert_eq!((Tea::NAME, names), ("tea", vec!["cups", "pots"]));
    }
}
