//! Properties of datasets: the table of all native ones, their values and where each value comes from.
//!
//! [`table`] says which properties there are, [`mod@index`] what numbers mean in them, [`typed`] what people
//! may type, [`mod@format`] how values look, [`set`] which value and source is shown for one dataset,
//! [`kept`] which ones change nothing here, [`special`] is for names with an argument. Nothing here knows
//! datasets: [`crate::dsl`] reads and sets what they have.

pub mod format;
pub mod index;
pub mod kept;
pub mod set;
pub mod special;
pub mod table;
pub mod typed;

pub use format::Style;
pub use set::{Environment, Mounted, PropertySet, Shown, Source, Value};
pub use special::UserProperty;
pub use table::{Attr, Desc, Kind, Prop, Types, is_user};
