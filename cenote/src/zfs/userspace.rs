//! `zfs userspace`, `zfs groupspace`, `zfs projectspace`: who uses how much of a filesystem.

use std::cmp::Ordering;

use anyhow::Result;
use engine::properties::format::{nicebytes, nicenum};
use serde_json::{Map, Value};
use server::api::{ListSpace, Owner, SpaceOf};

use super::{absent, change};
use crate::output::{self, JsonOptions, usage};
use crate::table::{Column, Layout};

/// Arguments of these commands.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Show numbers instead of names
    #[arg(short = 'n')]
    numeric: bool,
    /// No headings, tabs between the values
    #[arg(short = 'H')]
    scripted: bool,
    /// Show numbers in full
    #[arg(short = 'p')]
    parsable: bool,
    /// Columns, of type, name, used, quota, objused, objquota
    #[arg(short = 'o', value_name = "FIELD[,…]", default_value = "type,name,used,quota,objused,objquota")]
    fields: String,
    /// Sort by this field, the smallest first
    #[arg(short = 's', value_name = "FIELD", action = clap::ArgAction::Append)]
    ascending: Vec<String>,
    /// Sort by this field, the largest first
    #[arg(short = 'S', value_name = "FIELD", action = clap::ArgAction::Append)]
    descending: Vec<String>,
    /// Types to show: posixuser, smbuser, posixgroup, smbgroup, all
    #[arg(short = 't', value_name = "TYPE[,…]")]
    types: Option<String>,
    /// Translate identities of SMB to those of POSIX
    #[arg(short = 'i')]
    translate: bool,
    #[command(flatten)]
    json: JsonOptions,
    /// The filesystem or snapshot
    #[arg(value_name = "FILESYSTEM|SNAPSHOT")]
    dataset: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Type,
    Name,
    Used,
    Quota,
    Objects,
    ObjectQuota,
}

impl Field {
    fn parse(word: &str) -> Option<Self> {
        [Self::Type, Self::Name, Self::Used, Self::Quota, Self::Objects, Self::ObjectQuota]
            .into_iter()
            .find(|field| field.word() == word)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Name => "name",
            Self::Used => "used",
            Self::Quota => "quota",
            Self::Objects => "objused",
            Self::ObjectQuota => "objquota",
        }
    }

    fn column(self) -> Column {
        let right = !matches!(self, Self::Type | Self::Name);
        Column { right, ..Column::left(&self.word().to_uppercase()) }
    }

    fn compare(self, one: &Row, other: &Row, numeric: bool) -> Ordering {
        match self {
            Self::Type => one.owner.cmp(other.owner),
            Self::Name if numeric => one.space.id.cmp(&other.space.id),
            Self::Name => match (&one.space.name, &other.space.name) {
                (Some(one), Some(other)) => one.cmp(other),
                _ => one.space.id.cmp(&other.space.id),
            },
            Self::Used => one.space.used.cmp(&other.space.used),
            Self::Quota => one.space.quota.cmp(&other.space.quota),
            Self::Objects => one.space.objects.cmp(&other.space.objects),
            Self::ObjectQuota => one.space.object_quota.cmp(&other.space.object_quota),
        }
    }
}

#[derive(Debug)]
struct Row {
    owner: &'static str,
    space: SpaceOf,
}

impl Row {
    fn show(&self, field: Field, parsable: bool, numeric: bool) -> String {
        let limit = |value: u64, nice: fn(u64) -> String| match (value, parsable) {
            (_, true) => value.to_string(),
            (0, false) => "none".to_owned(),
            _ => nice(value),
        };
        let space = &self.space;
        match field {
            Field::Type => self.owner.to_owned(),
            Field::Name => space.name.clone().filter(|_| !numeric).unwrap_or_else(|| space.id.to_string()),
            Field::Used if parsable => space.used.to_string(),
            Field::Used => nicebytes(space.used),
            Field::Quota => limit(space.quota, nicebytes),
            Field::Objects => match space.objects {
                None => "-".to_owned(),
                Some(objects) if parsable => objects.to_string(),
                Some(objects) => nicenum(objects),
            },
            Field::ObjectQuota => limit(space.object_quota, nicenum),
        }
    }
}

impl Arguments {
    /// Prints who uses how much.
    pub fn run(self, owner: Owner) -> Result<()> {
        let fields = |given: &str, option: &str| {
            given
                .split(',')
                .map(|word| {
                    let wrong = || usage(format!("invalid type '{word}' for {option} option"));
                    Field::parse(word).ok_or_else(wrong)
                })
                .collect::<Result<Vec<Field>>>()
        };
        let shown = fields(&self.fields, "-o")?;
        let mut order: Vec<(Field, bool)> = Vec::new();
        for (given, reversed) in [(&self.ascending, false), (&self.descending, true)] {
            for word in given {
                let field = Field::parse(word).ok_or_else(|| usage(format!("invalid field '{word}'")))?;
                order.push((field, reversed));
            }
        }
        order.extend([(Field::Type, false), (Field::Name, false)]);
        if owner == Owner::Project {
            for (given, letter) in [(self.numeric, 'n'), (self.types.is_some(), 't'), (self.translate, 'i')] {
                if given {
                    return Err(usage(format!("invalid option '{letter}'")));
                }
            }
        }
        let mut owners = Vec::new();
        match &self.types {
            None => owners.push(owner),
            Some(types) => {
                for word in types.split(',') {
                    owners.extend(match word {
                        "posixuser" => vec![Owner::User],
                        "posixgroup" => vec![Owner::Group],
                        "smbuser" | "smbgroup" => vec![],
                        "all" => vec![Owner::User, Owner::Group],
                        _ => return Err(usage(format!("invalid type '{word}' for -t option"))),
                    });
                }
                owners.sort_by_key(|owner| *owner as u8);
                owners.dedup();
            }
        }
        let mut rows = Vec::new();
        for owner in owners {
            let request = ListSpace { dataset: self.dataset.clone(), owner };
            let word = match owner {
                Owner::User => "POSIX User",
                Owner::Group => "POSIX Group",
                Owner::Project => "Project",
            };
            let listed = change(&request, || absent(&self.dataset))?;
            rows.extend(listed.into_iter().map(|space| Row { owner: word, space }));
        }
        let numeric = self.numeric || owner == Owner::Project;
        rows.sort_by(|one, other| {
            order.iter().fold(Ordering::Equal, |so_far, (field, reversed)| {
                let compared = field.compare(one, other, numeric);
                so_far.then(if *reversed { compared.reverse() } else { compared })
            })
        });
        if self.json.json {
            return self.print_json(owner, &rows, &shown, numeric);
        }
        // Not even headings, as where projects are not counted.
        if rows.is_empty() {
            return Ok(());
        }
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| shown.iter().map(|field| row.show(*field, self.parsable, numeric)).collect())
            .collect();
        let mut columns: Vec<Column> = shown.iter().map(|field| field.column()).collect();
        for row in &rows {
            for (column, value) in columns.iter_mut().zip(row) {
                column.grow(value);
            }
        }
        let layout = Layout { columns, scripted: self.scripted };
        output::print(&rows.iter().fold(layout.header(), |text, row| text + &layout.row(row)))
    }

    /// OpenZFS has no such form; this follows that of its other listings.
    fn print_json(&self, owner: Owner, rows: &[Row], shown: &[Field], numeric: bool) -> Result<()> {
        let numbers = self.json.numbers(self.parsable);
        let value = |row: &Row, field: &Field| match (field, row.show(*field, numbers.literal, numeric)) {
            (Field::Type | Field::Name, text) => Value::String(text),
            (_, text) => numbers.property(&text),
        };
        let object = |row| {
            shown.iter().map(|field| (field.word().to_owned(), value(row, field))).collect::<Map<_, _>>()
        };
        let mut document = output::document(match owner {
            Owner::User => "zfs userspace",
            Owner::Group => "zfs groupspace",
            Owner::Project => "zfs projectspace",
        });
        document.insert("dataset".into(), self.dataset.as_str().into());
        document.insert("space".into(), rows.iter().map(object).collect::<Vec<_>>().into());
        output::print_json(&document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_quota_is_none_and_numbers_stand_for_those_without_a_name() {
        let space = SpaceOf { id: 12, used: 2048, quota: 1 << 20, objects: Some(3), ..SpaceOf::default() };
        let row = Row { owner: "POSIX User", space };
        let all = [Field::Name, Field::Used, Field::Quota, Field::Objects, Field::ObjectQuota];
        assert_eq!(all.map(|field| row.show(field, false, false)), ["12", "2K", "1M", "3", "none"]);
        assert_eq!(all.map(|field| row.show(field, true, false)), ["12", "2048", "1048576", "3", "0"]);
    }
}
