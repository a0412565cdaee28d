//! Properties of datasets: the table of all native ones, their values and where each value comes from.
//!
//! [`table`] says which properties there are, [`mod@index`] what numbers mean in them, [`format`] how values look.

pub mod format;
pub mod index;
pub mod table;

pub use format::Style;
pub use table::{Attr, Desc, Kind, Prop, Types, is_user};
