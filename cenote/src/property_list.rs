//! The table of `zpool get` and `zfs get`: a line for each property, with its source.
//!
//! The widths follow OpenZFS's rules, which look at the columns that the properties would have in a listing:
//! the column of values is as wide as the widest of those columns, headings included. Source of the facts:
//! OpenZFS 2.3 `libzfs_util.c` (`zprop_print_headers`).

use anyhow::Result;
use server::api::Source;

use crate::columns::Wanted;
use crate::output::usage;
use crate::table::{Column, Layout};

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Of what.
    Name,
    /// Which property.
    Property,
    /// Its value.
    Value,
    /// The value received with a send stream.
    Received,
    /// Where the value comes from.
    Source,
}

impl Field {
    const ALL: [(Field, &'static str); 5] = [
        (Field::Name, "name"),
        (Field::Property, "property"),
        (Field::Value, "value"),
        (Field::Received, "received"),
        (Field::Source, "source"),
    ];

    /// The columns in a comma-separated list; pools have none for received values.
    pub fn parse(list: &str, with_received: bool) -> Result<Vec<Field>> {
        let known = Self::ALL.iter().filter(|(field, _)| with_received || *field != Field::Received);
        if list == "all" {
            return Ok(known.map(|(field, _)| *field).collect());
        }
        let mut fields = Vec::new();
        for word in list.split(',') {
            let field = known.clone().find(|(_, name)| *name == word).map(|(field, _)| *field);
            fields.push(match field {
                Some(_) if fields.len() == known.clone().count() => {
                    return Err(usage("too many fields given to -o option"));
                }
                Some(field) => field,
                None if word == "all" => {
                    return Err(usage("\"all\" conflicts with specific fields given to -o option"));
                }
                None => return Err(usage(format!("invalid column name '{word}'"))),
            });
        }
        Ok(fields)
    }
}

/// A line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// Of what.
    pub name: String,
    /// Which property.
    pub property: String,
    /// Its value.
    pub value: String,
    /// The value received with a send stream.
    pub received: Option<String>,
    /// Where the value comes from.
    pub source: Source,
}

/// The texts that determine the widths, besides the headings.
#[derive(Debug, Clone, Copy, Default)]
pub struct Widths {
    /// Longest name of a thing.
    pub name: usize,
    /// Longest name of a property.
    pub property: usize,
    /// Widest column that a property would have in a listing.
    pub value: usize,
    /// Longest received value.
    pub received: usize,
}

impl Widths {
    /// Makes room for a property and the width of its column.
    pub fn grow(&mut self, wanted: &Wanted) {
        self.property = self.property.max(wanted.name.len());
        self.value = self.value.max(wanted.column.width);
    }
}

/// The table as text. Without rows there are no headings either.
pub fn render(rows: &[Row], fields: &[Field], widths: Widths, scripted: bool) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let columns = fields.iter().map(|field| {
        let (title, width) = match field {
            Field::Name => ("NAME", widths.name),
            Field::Property => ("PROPERTY", widths.property),
            Field::Value => ("VALUE", widths.value),
            Field::Received => ("RECEIVED", widths.received),
            // The longest source names the longest dataset.
            Field::Source if widths.name > "NAME".len() => ("SOURCE", widths.name + "inherited from".len()),
            Field::Source => ("SOURCE", 0),
        };
        let column = Column::left(title);
        Column { width: column.width.max(width), ..column }
    });
    let layout = Layout { columns: columns.collect(), scripted };
    let mut text = layout.header();
    for row in rows {
        let source = row.source.to_string();
        let values: Vec<&str> = fields
            .iter()
            .map(|field| match field {
                Field::Name => row.name.as_str(),
                Field::Property => row.property.as_str(),
                Field::Value => row.value.as_str(),
                Field::Received => row.received.as_deref().unwrap_or("-"),
                Field::Source => source.as_str(),
            })
            .collect();
        text.push_str(&layout.row(&values));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_parsed_in_order() {
        assert_eq!(Field::parse("value,name", true).unwrap(), [Field::Value, Field::Name]);
        assert_eq!(Field::parse("all", false).unwrap().len(), 4);
        assert!(Field::parse("received", false).is_err());
    }

    #[test]
    fn the_last_field_is_not_padded() {
        let row = Row {
            name: "tank/fs".into(),
            property: "used".into(),
            value: "24K".into(),
            received: None,
            source: Source::None,
        };
        let widths = Widths { name: 7, property: 4, value: 5, received: 0 };
        let fields = Field::parse("name,property,value,source", true).unwrap();
        let text = render(&[row], &fields, widths, false);
        assert_eq!(text, "NAME     PROPERTY  VALUE  SOURCE\ntank/fs  used      24K    -\n");
    }
}
