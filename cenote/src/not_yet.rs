//! What OpenZFS's `zpool` and `zfs` have and these do not yet.
//!
//! A person who knows OpenZFS types what it has. What is missing here is called so, with what to do instead;
//! never is another command suggested because its name is similar. What OpenZFS does not have either is an
//! invalid option, in OpenZFS's words.
//!
//! Source of the facts: OpenZFS 2.4 `zpool_main.c`, `zfs_main.c` (command tables, `getopt`).

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use ondisk::nearest::meant;

use crate::cli::Cli;
use crate::output::{FAILED, USAGE};

/// Commands that are missing, and what to do instead.
const COMMANDS: [(&str, &str, &str); 7] = [
    ("zpool", "split", "OpenZFS splits pools that were exported here"),
    ("zfs", "jail", "jails are FreeBSD's"),
    ("zfs", "program", "a script of 'zfs' commands does the same, each command on its own"),
    ("zfs", "redact", "OpenZFS redacts snapshots in pools that were exported here"),
    ("zfs", "unjail", "jails are FreeBSD's"),
    (
        "zfs",
        "unzone",
        "filesystems are not given to user namespaces; a container gets the mountpoint by a bind mount",
    ),
    (
        "zfs",
        "zone",
        "filesystems are not given to user namespaces; a container gets the mountpoint by a bind mount",
    ),
];

/// Options of OpenZFS that are missing from commands that are there, and what to do instead.
const OPTIONS: [(&str, &str, &[&str], &str); 7] = [
    ("zpool", "clear", &["-F", "-n", "-X"], "'zpool import -F' goes back to an earlier transaction group"),
    ("zpool", "clear", &["--power"], POWER),
    ("zpool", "offline", &["--power"], POWER),
    ("zpool", "online", &["--power"], POWER),
    ("zpool", "status", &["--power"], POWER),
    (
        "zpool",
        "remove",
        &["-n", "-p", "-s", "-w"],
        "spares, cache and log devices are removed at once; vdevs that hold data cannot be removed",
    ),
    ("zpool", "wait", &["-H", "-p", "-T"], "'zpool status' and 'zpool iostat' show how far it is"),
];

/// What is said of the power of slots.
const POWER: &str = "the power of slots is switched by tools of the enclosure";

/// A refusal of the command line in place of clap's own: what to say, and the exit code.
pub fn explain(error: &clap::Error, arguments: &[OsString]) -> Option<(String, u8)> {
    let program = arguments.get(1)?.to_str().filter(|program| matches!(*program, "zpool" | "zfs"))?;
    let command = arguments.get(2)?.to_str()?;
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let of = |missing: &&(&str, &str, &str)| (missing.0, missing.1) == (program, command);
            if let Some((_, _, instead)) = COMMANDS.iter().find(of) {
                return Some((format!("{program} {command} is not there yet; {instead}"), FAILED));
            }
            let cli = Cli::command();
            let known = cli.find_subcommand(program).into_iter().flat_map(clap::Command::get_subcommands);
            let meant = meant(command, known.map(clap::Command::get_name));
            let help = format!("For more information, try '{program} --help'.");
            Some((format!("unrecognized command '{command}'{meant}\n{help}"), USAGE))
        }
        ErrorKind::UnknownArgument => {
            let option = context(ContextKind::InvalidArg).filter(|option| option.starts_with('-'))?;
            let option = option.split('=').next().unwrap_or(option);
            let of = |missing: &&(&str, &str, &[&str], &str)| {
                (missing.0, missing.1) == (program, command) && missing.2.contains(&option)
            };
            if let Some((_, _, _, instead)) = OPTIONS.iter().find(of) {
                return Some((format!("{program} {command} {option} is not there yet; {instead}"), FAILED));
            }
            let letter = option.trim_start_matches('-');
            let help = format!("For more information, try '{program} {command} --help'.");
            Some((format!("invalid option '{letter}'\n{help}"), USAGE))
        }
        // A word of a list (`-t scrub,foo`) is called by what the list is of.
        ErrorKind::InvalidValue if (program, command) == ("zpool", "wait") => {
            let value = context(ContextKind::InvalidValue).filter(|value| !value.is_empty())?;
            let Some(ContextValue::Strings(words)) = error.get(ContextKind::ValidValue) else { return None };
            let help = format!("Activities: {}\nusage: zpool wait [-t ACTIVITY,...] POOL", words.join(", "));
            Some((format!("invalid activity '{value}'\n{help}"), USAGE))
        }
        // OpenZFS has no such option, so that a script that gives it is wrong; a person gets what was asked
        // for.
        ErrorKind::DisplayHelp if arguments[3..].iter().any(has_letter_h) => {
            Some((format!("invalid option 'h'\n{error}"), USAGE))
        }
        _ => None,
    }
}

/// Whether this is letters, alone or joined (`-rph`), with an `h` among them.
fn has_letter_h(argument: &OsString) -> bool {
    let letters = argument.to_str().and_then(|text| text.strip_prefix('-'));
    letters.is_some_and(|letters| !letters.starts_with('-') && letters.contains('h'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Option<(String, u8)> {
        use clap::Parser;
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        explain(&Cli::try_parse_from(&arguments).err()?, &arguments)
    }

    #[test]
    fn what_is_missing_is_called_so_with_what_to_do_instead() {
        // One that comes to be there is no mistake of the line any more, and its entry is not looked at.
        let check = |line: String, begins: String| {
            if let Some((text, code)) = said(&line) {
                assert!(text.starts_with(&begins) && code == FAILED, "{line}: {text}");
            }
        };
        for (program, command, _) in COMMANDS {
            check(
                format!("cenote {program} {command} tank"),
                format!("{program} {command} is not there yet; "),
            );
        }
        for (program, command, options, _) in OPTIONS {
            for option in options {
                check(
                    format!("cenote {program} {command} {option} tank"),
                    format!("{program} {command} {option} is not there yet; "),
                );
            }
        }
        assert!(said("cenote zpool status --power").is_some());
    }

    #[test]
    fn what_nobody_has_is_invalid_without_a_tip() {
        let (text, code) = said("cenote zpool sync -Q tank").unwrap();
        assert_eq!(text, "invalid option 'Q'\nFor more information, try 'zpool sync --help'.");
        assert_eq!(code, USAGE);
        let (text, code) = said("cenote zpool destry tank").unwrap();
        let expected = "unrecognized command 'destry'; did you mean 'destroy'?\nFor more information, try \
            'zpool --help'.";
        assert_eq!((&*text, code), (expected, USAGE));
        assert!(said("cenote zfs nonsense").unwrap().0.starts_with("unrecognized command 'nonsense'\n"));
        assert_eq!(said("cenote ls -Q"), None);
        let (text, code) = said("cenote zfs get -h all tank").unwrap();
        assert!(text.starts_with("invalid option 'h'\n") && text.contains("--help") && code == USAGE);
        assert_eq!(said("cenote zfs get -rph all tank").unwrap().1, USAGE);
        assert_eq!(said("cenote zfs get --help"), None);
    }

    #[test]
    fn an_activity_that_is_none_is_called_so() {
        for (line, named) in
            [("zpool wait -t foo tank", "foo"), ("zpool wait -t free,scrub=no tank", "scrub=no")]
        {
            let (text, code) = said(&format!("cenote {line}")).unwrap();
            assert!(
                text.starts_with(&format!("invalid activity '{named}'\nActivities: discard, free, ")),
                "{text}"
            );
            assert!(text.contains("\nusage: zpool wait ") && code == USAGE, "{text}");
        }
    }
}
