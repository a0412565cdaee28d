//! Completion of command lines: scripts for shells, and what they ask.
//!
//! The script of a shell knows nothing: it hands what was typed to `cenote complete`, which answers with one
//! candidate a line. So pools, datasets, snapshots, devices and properties are completed as they are at that
//! moment, and so are the linked names `zpool`, `zfs` and `zdb`. What an argument stands for is read off its
//! name in the definition of the command line (`POOL`, `SNAPSHOT`, `PROPERTY=VALUE`), so that a new command
//! is completed as soon as it is there. Where nothing is known the shell completes files.
//!
//! A daemon that does not run is not started, and errors are kept quiet: completion must not disturb what is
//! typed.

mod names;

use std::ffi::OsStr;

use clap::{Arg, ArgAction, Command};

use crate::remotes;

/// Arguments of `cenote completion`.
#[derive(Debug, clap::Args)]
pub struct ScriptArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// The shells that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl ScriptArguments {
    /// The script, to be sourced.
    pub fn script(&self) -> &'static str {
        match self.shell {
            Shell::Bash => include_str!("completion/bash.sh"),
            Shell::Zsh => include_str!("completion/zsh.sh"),
            Shell::Fish => include_str!("completion/fish.fish"),
        }
    }
}

/// Arguments of `cenote complete`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The words of the command line up to the cursor, the program's name first; the last one is what is
    /// completed
    #[arg(value_name = "WORD", allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

impl Arguments {
    /// The candidates, one a line, of the commands of `root`. `applet` knows links to this program.
    pub fn candidates(&self, root: Command, applet: Applet) -> String {
        let Some((word, before)) = self.words.split_last() else { return String::new() };
        // What is typed is about the machine that is named in front of it.
        match before.get(1).map(|word| (word.as_str(), word.strip_prefix("--remote="))) {
            Some(("--remote", _)) => before.get(2).into_iter().for_each(|name| remotes::choose(name.clone())),
            Some((_, Some(name))) => remotes::choose(name.to_owned()),
            _ => {}
        }
        let place = place(root, applet, before);
        candidates(&place, word).iter().map(|candidate| format!("{candidate}\n")).collect()
    }
}

/// The name of the command that a program's name stands for, where it is a link to this program.
type Applet = fn(&OsStr) -> Option<&str>;

/// Where the cursor stands.
struct Place {
    command: Command,
    /// `zpool`, `zfs` or another command of the first level.
    program: String,
    /// The words before it that are neither options nor commands.
    positionals: Vec<String>,
    /// The option whose value comes next.
    option: Option<Arg>,
}

fn candidates(place: &Place, word: &str) -> Vec<String> {
    let found = if let Some(option) = &place.option {
        values(option, place, word)
    } else if word.starts_with('-') {
        options(&place.command)
    } else if place.command.has_subcommands() {
        let visible = place.command.get_subcommands().filter(|command| !command.is_hide_set());
        visible.map(|command| command.get_name().to_owned()).collect()
    } else {
        let mut arguments: Vec<&Arg> = place.command.get_positionals().collect();
        arguments.sort_by_key(|argument| argument.get_index());
        // The last one takes all the rest, where it takes several.
        let several = |argument: &&&Arg| matches!(argument.get_action(), ArgAction::Append);
        let argument = arguments.get(place.positionals.len()).or_else(|| arguments.last().filter(several));
        argument.map_or_else(Vec::new, |argument| values(argument, place, word))
    };
    found.into_iter().filter(|candidate| candidate.starts_with(word)).collect()
}

fn place(mut command: Command, applet: Applet, before: &[String]) -> Place {
    command.build();
    let mut place = Place { command, program: String::new(), positionals: Vec::new(), option: None };
    let mut words = before.iter();
    let called = words.next().map_or("", String::as_str);
    if let Some(linked) = applet(called.as_ref()) {
        place.descend(linked);
    }
    for word in words {
        if place.option.take().is_some() {
            continue;
        }
        if word.starts_with('-') && word.len() > 1 {
            place.option = option_that_takes(&place.command, word);
        } else if !place.descend(word) {
            place.positionals.push(word.clone());
        }
    }
    place
}

impl Place {
    /// Goes on with the command of this name, where there is one.
    fn descend(&mut self, name: &str) -> bool {
        let Some(found) = self.command.find_subcommand(name).cloned() else { return false };
        if self.program.is_empty() {
            found.get_name().clone_into(&mut self.program);
        }
        self.command = found;
        true
    }
}

/// The option whose value is the word after this one.
fn option_that_takes(command: &Command, word: &str) -> Option<Arg> {
    let takes = |option: &&Arg| option.get_action().takes_values();
    let option = match word.strip_prefix("--") {
        Some(long) => command.get_arguments().find(|option| option.get_long() == Some(long)),
        None => command.get_arguments().find(|option| option.get_short() == word.chars().last()),
    };
    option.filter(takes).cloned()
}

fn options(command: &Command) -> Vec<String> {
    let shown = command.get_arguments().filter(|option| !option.is_positional() && !option.is_hide_set());
    let mut names = Vec::new();
    for option in shown {
        names.extend(option.get_short().map(|short| format!("-{short}")));
        names.extend(option.get_long().map(|long| format!("--{long}")));
    }
    names
}

/// What an argument can be, as far as is known.
fn values(argument: &Arg, place: &Place, word: &str) -> Vec<String> {
    // A list is completed element by element.
    let list = word.rfind(',').map_or("", |end| &word[..=end]);
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|value| !value.is_hide_set());
        return shown.map(|value| format!("{list}{}", value.get_name())).collect();
    }
    let name = argument.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    // `zpool create -O` is about the root filesystem.
    let of_pools = place.program == "zpool" && argument.get_short() != Some('O');
    let given = &place.positionals;
    match name {
        "REMOTE" => names::remotes(),
        "PROPERTY=VALUE… DATASET" if word.contains('=') || given.is_empty() => {
            names::assignments(of_pools, word)
        }
        "PROPERTY=VALUE… DATASET" => [names::assignments(of_pools, word), names::datasets(word)].concat(),
        _ if name.starts_with("PROPERTY=VALUE") => names::assignments(of_pools, word),
        "PROPERTY" => names::properties(of_pools),
        "PROPERTY,…" => {
            let all = std::iter::once("all".to_owned()).chain(names::properties(of_pools));
            all.map(|name| format!("{list}{name}")).collect()
        }
        "VDEV" if argument.get_id() == "vdevs" => names::vdev_words(),
        // The pool is the word in front of it: of `zpool set` the second one.
        "VDEV" => given.last().map_or_else(Vec::new, |pool| names::devices(pool)),
        _ if name.starts_with("POOL")
            && !given.is_empty()
            && (name.contains("DEVICE") || name.contains("VDEV")) =>
        {
            [names::devices(&given[0]), names::pools()].concat()
        }
        _ if name.starts_with("POOL") => names::pools(),
        _ if word.contains('@') || name.starts_with("SNAPSHOT") || name.contains("@SNAPSHOT") => {
            names::snapshots(word)
        }
        "SIZE" if argument.get_id() == "volblocksize" => names::block_sizes(),
        _ if ["FILESYSTEM", "DATASET", "CLONE", "VOLUME"].iter().any(|kind| name.starts_with(kind)) => {
            names::datasets(word)
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::{self, Cli};

    fn complete(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (word, before) = words.split_last().unwrap();
        candidates(&place(Cli::command(), cli::applet, before), word)
    }

    #[test]
    fn commands_and_options_are_completed_under_every_name() {
        assert_eq!(complete("cenote zpo"), ["zpool"]);
        assert_eq!(complete("/usr/sbin/zpool che"), ["checkpoint"]);
        assert_eq!(complete("cenote zfs prom"), ["promote"]);
        assert_eq!(complete("zpool nonsense"), [""; 0]);
        assert!(complete("zpool create -").contains(&"-O".to_owned()));
        assert_eq!(complete("cenote completion z"), ["zsh"]);
        assert_eq!(complete("cenote reshape tank/vol --volblocksize 1"), ["16K", "128K", "1M", "16M"]);
        assert_eq!(complete("cenote reshape tank/vol --vol"), ["--volblocksize"]);
        assert_eq!(complete("zpool wait -t resh"), ["reshape"]);
    }

    #[test]
    fn properties_and_their_values_are_completed() {
        assert_eq!(complete("zfs set compressi"), ["compression="]);
        assert_eq!(complete("zfs set compression=lz"), ["compression=lzjb", "compression=lz4"]);
        assert_eq!(complete("zfs get -r compressi"), ["compression"]);
        assert_eq!(complete("zfs list -o name,compressi"), ["name,compression"]);
        assert_eq!(complete("zpool get capa"), ["capacity"]);
        assert_eq!(complete("zpool set autotr"), ["autotrim="]);
        assert_eq!(complete("cenote zpool create -O atime=o"), ["atime=off", "atime=on"]);
        assert_eq!(complete("zpool create -o failmode=w"), ["failmode=wait"]);
        assert_eq!(complete("zpool set feature@lz4"), ["feature@lz4_compress="]);
        assert_eq!(complete("zpool create tank mirr"), ["mirror"]);
        assert_eq!(complete("zpool wait -t discard,tr"), ["discard,trim"]);
    }
}
