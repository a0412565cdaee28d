//! NFS version 3: its procedures.
//!
//! | module | procedures |
//! |---|---|
//! | here | the table |
//! | `look` | attributes, looking up, permissions, listing, figures |
//! | `content` | reading, writing, making stable |
//! | `change` | creating, removing, moving, linking, setting attributes |
//!
//! Source of the facts: RFC 1813.

mod change;
mod content;
mod look;

use super::call::Context;
use super::rpc::{Refusal, done};
use super::rules::Rules;
use super::status::Status;
use super::xdr::{Garbage, Reader, Writer};
use crate::files::{Share, Shares};

/// The number of the program.
pub const PROGRAM: u32 = 100_003;
/// Its version.
pub const VERSION: u32 = 3;
/// The most bytes that are read or written at once.
pub const MOST_BYTES: u32 = 1 << 20;

/// Procedures that change names or attributes: done twice they fail, or undo what came between.
pub fn is_once(procedure: u32) -> bool {
    matches!(procedure, 2 | 8..=15)
}

/// How a procedure ends: its status, unless its arguments make no sense.
type Outcome = Result<Result<(), Status>, Garbage>;

/// Does a procedure; the answer.
pub fn act<S: Shares>(context: &Context<'_, S>, arguments: &mut Reader<'_>) -> Result<Vec<u8>, Refusal>
where
    S::Share: Share<Rules = Rules>,
{
    let mut writer = done(context.call.number);
    let counted = |is_error| context.server.clients.counted.done(context.call.procedure, is_error);
    if context.call.procedure == 0 {
        counted(false);
        return Ok(writer.finish());
    }
    let begin = writer.len();
    writer.number(0);
    let (outcome, absent) = table(context, arguments, &mut writer).ok_or(Refusal::NoProcedure)?;
    counted(!matches!(outcome, Ok(Ok(()))));
    if let Err(status) = outcome.map_err(|Garbage| Refusal::Arguments)? {
        writer.truncate(begin);
        writer.number(status.0);
        (0..absent).for_each(|_| writer.flag(false));
    }
    Ok(writer.finish())
}

/// Does a procedure by its number, and says how many absent attributes the answer has where it fails.
fn table<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Option<(Outcome, usize)>
where
    S::Share: Share<Rules = Rules>,
{
    Some(match c.call.procedure {
        1 => (look::attributes(c, a, w), 0),
        2 => (change::set_attributes(c, a, w), 2),
        3 => (look::lookup(c, a, w), 1),
        4 => (look::access(c, a, w), 1),
        5 => (content::read_link(c, a, w), 1),
        6 => (content::read(c, a, w), 1),
        7 => (content::write(c, a, w), 2),
        8 => (change::create(c, a, w), 2),
        9 => (change::make_directory(c, a, w), 2),
        10 => (change::symlink(c, a, w), 2),
        11 => (change::make_node(c, a, w), 2),
        12 => (change::remove(c, a, w), 2),
        13 => (change::remove_directory(c, a, w), 2),
        14 => (change::rename(c, a, w), 4),
        15 => (change::link(c, a, w), 3),
        16 => (look::list(c, a, w), 1),
        17 => (look::list_with_attributes(c, a, w), 1),
        18 => (look::space(c, a, w), 1),
        19 => (look::limits(c, a, w), 1),
        20 => (look::names(c, a, w), 1),
        21 => (content::commit(c, a, w), 2),
        _ => return None,
    })
}
