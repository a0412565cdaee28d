//! Where values of the engine become types of the API.
//!
//! The API's types are its own, so that a change of the engine does not change what travels without anyone's
//! noticing. [`mirrored`] declares one that has the fields (or the variants) of a type of the engine, and how
//! it is made from one. A field that the engine gets later does not compile until it is decided whether it
//! travels.

use std::path::PathBuf;
use std::time::Duration;

/// What becomes a `T` at the edge of the API.
pub(crate) trait Edge<T> {
    /// The value as it travels, or as it arrives.
    fn edge(self) -> T;
}

macro_rules! same {
    ($($type:ty),*) => { $(
        impl Edge<$type> for $type {
            fn edge(self) -> $type {
                self
            }
        }
    )* };
}

same!(bool, u8, u32, u64, i64, usize, String, PathBuf, Duration, (u64, u64), (u64, u32));

impl<T, E: Edge<T>> Edge<Option<T>> for Option<E> {
    fn edge(self) -> Option<T> {
        self.map(Edge::edge)
    }
}

impl<T, E: Edge<T>> Edge<Vec<T>> for Vec<E> {
    fn edge(self) -> Vec<T> {
        self.into_iter().map(Edge::edge).collect()
    }
}

/// A struct or an enum of the API with the fields or variants of one of the engine: `of` makes it from the
/// engine's, `for` also makes the engine's from it.
macro_rules! mirrored {
    (
        $(#[$meta:meta])*
        pub struct $name:ident of $engine:ty {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Edge<$name> for $engine {
            fn edge(self) -> $name {
                type Engine = $engine;
                let Engine { $($field),* } = self;
                $name { $($field: $field.edge()),* }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub enum $name:ident of $engine:ty {
            $($(#[$variant_meta:meta])* $variant:ident,)*
        }
    ) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl Edge<$name> for $engine {
            fn edge(self) -> $name {
                type Engine = $engine;
                match self {
                    $(Engine::$variant => $name::$variant,)*
                }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident for $engine:ty {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
        }
    ) => {
        mirrored! {
            $(#[$meta])*
            pub struct $name of $engine {
                $($(#[$field_meta])* pub $field: $type,)*
            }
        }

        impl Edge<$engine> for $name {
            fn edge(self) -> $engine {
                type Engine = $engine;
                let Self { $($field),* } = self;
                Engine { $($field: $field.edge()),* }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub enum $name:ident for $engine:ty {
            $($(#[$variant_meta:meta])* $variant:ident,)*
        }
    ) => {
        mirrored! {
            $(#[$meta])*
            pub enum $name of $engine {
                $($(#[$variant_meta])* $variant,)*
            }
        }

        impl Edge<$engine> for $name {
            fn edge(self) -> $engine {
                type Engine = $engine;
                match self {
                    $(Self::$variant => Engine::$variant,)*
                }
            }
        }
    };
}
pub(crate) use mirrored;
