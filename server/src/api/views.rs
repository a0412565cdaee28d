//! A committed state of an open pool, kept for a program that reads the pool's devices itself.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Form, Part, Role};

/// Asks where the devices of an open pool are, and at which uberblock they can be read.
///
/// The answer is one line of JSON. The daemon keeps the state that it names for as long as the connection is
/// open: until then no space of that state is used again. The daemon ends the connection when the pool is
/// closed or needs the space that it keeps for the state.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HoldView {
    /// The pool.
    pub pool: String,
}

/// A committed state of a pool, and the devices that hold it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct HeldView {
    /// Name under which the pool is open.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// The transaction group of the state.
    pub txg: u64,
    /// The uberblock of the state, as labels hold it, without a checksum.
    pub uberblock: Vec<u8>,
    /// Paths of the devices that the daemon has open.
    pub devices: Vec<PathBuf>,
}

impl Action for HoldView {
    const DECLARED: Declaration = Declaration::reads(
        "pool-view",
        Part::Pools,
        Role::Admin,
        "Holds a committed state that a program reads from the devices itself",
    )
    .in_words("open", "pool")
    .answered(Form::HeldOpen)
    .on_this_machine();
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = HeldView;
}
