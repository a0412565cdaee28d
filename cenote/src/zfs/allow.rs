//! `zfs allow` and `zfs unallow`: who may do what with datasets.
//!
//! Source of the facts: OpenZFS 2.4 `zfs_main.c` (`zfs_do_allow_unallow_impl`, `print_fs_perms`),
//! `zfs-allow(8)`.

use anyhow::Result;
use server::api::{
    AllowPermissions, Granted, GrantedBy, Grantee, Grantees, ListPermissions, UnallowPermissions,
};

use super::{absent, change};
use crate::command_line;
use crate::output::{self, usage};

/// What stands for all users, also where a user has this name.
const EVERYONE: &str = "everyone";
/// The width of a heading.
const HEADING: usize = 70;

/// Who is meant, and where.
#[derive(Debug, clap::Args)]
struct Who {
    /// On the dataset itself only
    #[arg(short)]
    local: bool,
    /// On all below it only
    #[arg(short)]
    descendent: bool,
    /// The names are those of users
    #[arg(short)]
    user: bool,
    /// The names are those of groups
    #[arg(short)]
    group: bool,
    /// Everyone
    #[arg(short)]
    everyone: bool,
    /// Who creates a dataset below, for that dataset
    #[arg(short)]
    create: bool,
    /// The set of permissions with this name, @ included
    #[arg(short)]
    set: bool,
}

impl Who {
    /// Whether it says anything.
    fn is_given(&self) -> bool {
        [self.local, self.descendent, self.user, self.group, self.everyone, self.create, self.set]
            .contains(&true)
    }

    /// Who is meant, taken from the front of the operands where they name users or groups. The dataset is the
    /// last of them.
    fn take(&self, operands: &mut Vec<String>) -> Result<Grantees> {
        let kinds = [self.user, self.group, self.everyone, self.create, self.set];
        if kinds.iter().filter(|is| **is).count() > 1 {
            return Err(usage("-u, -g, -e, -c, and -s are mutually exclusive"));
        }
        if (self.create || self.set) && (self.local || self.descendent) {
            return Err(usage("-l and -d do not go with -c and -s"));
        }
        if self.everyone {
            return Ok(Grantees::Everyone);
        }
        if self.create {
            return Ok(Grantees::Creator);
        }
        if operands.len() < 2 {
            return Err(usage("missing user, group, or set argument"));
        }
        let who = operands.remove(0);
        if self.set {
            return match who.starts_with('@') {
                true => Ok(Grantees::Set(who)),
                false => Err(usage(format!("invalid set name '{who}': it begins with @"))),
            };
        }
        if who == EVERYONE && !self.user && !self.group {
            return Ok(Grantees::Everyone);
        }
        let names: Vec<String> = who.split(',').map(str::to_owned).collect();
        Ok(match (self.user, self.group) {
            (true, _) => Grantees::Users(names),
            (_, true) => Grantees::Groups(names),
            _ => Grantees::Named(names),
        })
    }
}

/// The names of permissions in a list.
fn permissions(list: &str) -> Vec<String> {
    list.split(',').map(str::to_owned).collect()
}

/// Arguments of `zfs allow`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
zfs allow DATASET
    Show what DATASET and those above it grant
zfs allow [-ldug] USER|GROUP|everyone,... PERMISSION|@SET,... DATASET
zfs allow [-ld] -e PERMISSION|@SET,... DATASET
    Grant permissions: names of subcommands and of properties
zfs allow -c PERMISSION|@SET,... DATASET
    Grant permissions to who creates a dataset below
zfs allow -s @SET PERMISSION|@SET,... DATASET
    Add permissions to a set")]
pub struct AllowArguments {
    #[command(flatten)]
    who: Who,
    /// Who, permissions, and the dataset
    #[arg(value_name = "ARGUMENT")]
    operands: Vec<String>,
}

impl AllowArguments {
    /// Grants permissions, or shows what is granted.
    pub fn run(self) -> Result<()> {
        let mut operands = self.operands;
        if let ([dataset], false) = (&operands[..], self.who.is_given()) {
            return show(dataset);
        }
        let to = self.who.take(&mut operands)?;
        let [list, dataset] = &operands[..] else {
            return Err(usage(match operands.len() {
                0 | 1 => "missing permission or dataset argument",
                _ => "too many arguments",
            }));
        };
        let request = AllowPermissions {
            dataset: dataset.clone(),
            to,
            local: self.who.local,
            descendent: self.who.descendent,
            permissions: permissions(list),
            command: command_line::command(),
        };
        change(&request, || absent(dataset))
    }
}

/// Arguments of `zfs unallow`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
zfs unallow [-rldug] USER|GROUP|everyone,... [PERMISSION|@SET,...] DATASET
zfs unallow [-rld] -e [PERMISSION|@SET,...] DATASET
zfs unallow [-r] -c [PERMISSION|@SET,...] DATASET
zfs unallow [-r] -s @SET [PERMISSION|@SET,...] DATASET
    Take permissions away, or all of them. What is granted elsewhere still holds")]
pub struct UnallowArguments {
    #[command(flatten)]
    who: Who,
    /// Also what datasets below grant
    #[arg(short)]
    recursive: bool,
    /// From whom, permissions, and the dataset
    #[arg(value_name = "ARGUMENT")]
    operands: Vec<String>,
}

impl UnallowArguments {
    /// Takes permissions away.
    pub fn run(self) -> Result<()> {
        let mut operands = self.operands;
        let from = self.who.take(&mut operands)?;
        let (list, dataset) = match &operands[..] {
            [dataset] => (Vec::new(), dataset.clone()),
            [list, dataset] => (permissions(list), dataset.clone()),
            [] => return Err(usage("missing dataset argument")),
            _ => return Err(usage("too many arguments")),
        };
        let request = UnallowPermissions {
            dataset: dataset.clone(),
            from,
            local: self.who.local,
            descendent: self.who.descendent,
            permissions: list,
            recursive: self.recursive,
            command: command_line::command(),
        };
        change(&request, || absent(&dataset))
    }
}

/// Shows what a dataset and those above it grant.
fn show(dataset: &str) -> Result<()> {
    let request = ListPermissions { dataset: dataset.to_owned() };
    let found = change(&request, || absent(dataset))?;
    output::print(&found.iter().map(text).collect::<String>())
}

/// What a dataset grants, as OpenZFS shows it.
fn text(by: &GrantedBy) -> String {
    let mut text = format!("{:-<HEADING$}\n", format!("---- Permissions on {} ", by.dataset));
    let scopes = |granted: &Granted| (granted.local, granted.descendent);
    let is_set = |granted: &&Granted| matches!(granted.to, Grantee::Set(_));
    let is_creator = |granted: &&Granted| granted.to == Grantee::Creator;
    let is_who = |granted: &&Granted| !is_set(granted) && !is_creator(granted);
    let mut section = |heading: &str, grants: Vec<&Granted>| {
        if !grants.is_empty() {
            text.push_str(heading);
            text.push_str(":\n");
            grants.iter().for_each(|granted| text.push_str(&line(granted)));
        }
    };
    section("Permission sets", by.grants.iter().filter(is_set).collect());
    section("Create time permissions", by.grants.iter().filter(is_creator).collect());
    for (heading, wanted) in [
        ("Local permissions", (true, false)),
        ("Descendent permissions", (false, true)),
        ("Local+Descendent permissions", (true, true)),
    ] {
        let here = by.grants.iter().filter(is_who).filter(|granted| scopes(granted) == wanted);
        section(heading, here.collect());
    }
    text
}

fn line(granted: &Granted) -> String {
    let named = |id: u64, name: &Option<String>| name.clone().unwrap_or_else(|| format!("(unknown: {id})"));
    let who = match &granted.to {
        Grantee::Set(name) => format!("{name} "),
        Grantee::Creator => String::new(),
        Grantee::User(id, name) => format!("user {} ", named(*id, name)),
        Grantee::Group(id, name) => format!("group {} ", named(*id, name)),
        Grantee::Everyone => "everyone ".to_owned(),
    };
    format!("\t{who}{}\n", granted.permissions.join(","))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        who: Who,
        operands: Vec<String>,
    }

    fn taken(line: &str) -> Result<(Grantees, Vec<String>)> {
        let Line { who, mut operands } = Line::try_parse_from(["zfs"].into_iter().chain(line.split(' ')))?;
        Ok((who.take(&mut operands)?, operands))
    }

    #[test]
    fn who_is_meant_follows_from_options_and_names() {
        let words = |text: &str| permissions(text);
        for (line, to) in [
            ("alice,staff create tank", Grantees::Named(words("alice,staff"))),
            ("-u alice create tank", Grantees::Users(words("alice"))),
            ("-lg staff create tank", Grantees::Groups(words("staff"))),
            ("everyone create tank", Grantees::Everyone),
            ("-u everyone create tank", Grantees::Users(words("everyone"))),
            ("-e create tank", Grantees::Everyone),
            ("-c create tank", Grantees::Creator),
            ("-s @a create tank", Grantees::Set("@a".into())),
        ] {
            assert_eq!(taken(line).unwrap(), (to, words("create,tank")), "{line}");
        }
        for line in [
            "-c -l x y",
            "-c -d x y",
            "-c -e x y",
            "-c -s x y",
            "-u -e x y",
            "-s -e x y",
            "-s -l @a x y",
            "-u -g a b c",
            "-s a b c",
            "-u tank",
        ] {
            assert!(taken(line).is_err(), "{line}");
        }
    }

    #[test]
    fn grants_are_shown_as_openzfs_shows_them() {
        let granted = |to, local, descendent, list: &str| Granted {
            to,
            local,
            descendent,
            permissions: permissions(list),
        };
        let by = GrantedBy {
            dataset: "tank/users".into(),
            grants: vec![
                granted(Grantee::Set("@pset".into()), false, false, "create,destroy"),
                granted(Grantee::Creator, false, false, "destroy"),
                granted(Grantee::User(7, Some("cindys".into())), true, false, "quota"),
                granted(Grantee::User(7, Some("cindys".into())), true, true, "@pset,mount"),
                granted(Grantee::Group(70_001, None), true, true, "mount"),
                granted(Grantee::Everyone, false, true, "send"),
            ],
        };
        let expected = "\
---- Permissions on tank/users ---------------------------------------
Permission sets:
\t@pset create,destroy
Create time permissions:
\tdestroy
Local permissions:
\tuser cindys quota
Descendent permissions:
\teveryone send
Local+Descendent permissions:
\tuser cindys @pset,mount
\tgroup (unknown: 70001) mount
";
        assert_eq!(text(&by), expected);
    }
}
