//! Properties of datasets: the table of all native ones, their values and the sources of the values.
//!
//! [`table`] lists the properties, [`mod@index`] the meanings of their numbers. [`typed`] parses user input,
//! [`mod@format`] formats values, [`set`] determines the shown value and source for one dataset. [`kept`]
//! lists properties without effect here, [`special`] handles names with an argument. This module does not
//! know datasets: [`crate::dsl`] reads and sets their properties.

pub mod format;
pub mod index;
pub mod kept;
pub mod set;
mod shares;
pub mod special;
pub mod table;
pub mod typed;

pub use format::Style;
pub use set::{Environment, Mounted, PropertySet, Shown, Source, Value};
pub use special::UserProperty;
pub use table::{Attr, Desc, Kind, Prop, Types, is_user};
