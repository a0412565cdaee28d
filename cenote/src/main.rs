//! OpenZFS-compatible storage in userspace: one binary for pools, volumes and filesystems.

// The doc comments of arguments are their help texts, where brackets mean what may be left out.
#![allow(rustdoc::broken_intra_doc_links)]

mod api;
mod arcstat;
mod arcsummary;
mod attach;
mod audit;
mod cli;
mod client;
mod columns;
mod command_line;
mod completion;
mod copy;
mod counters;
mod dashboard;
mod dead_mounts;
mod dedup_files;
mod doctor;
#[cfg(test)]
mod documented;
mod exported;
mod feed;
mod hooks;
mod inject;
mod lab;
mod man;
mod mount_helper;
mod nfs;
mod not_yet;
mod output;
mod parameters;
mod progress;
mod prompt;
mod property_list;
mod remote;
mod remotes;
mod replicate;
mod reshape;
mod scrub_schedule;
mod serve;
mod serving;
mod share;
mod snapshot_schedule;
mod table;
mod top;
mod tunable;
mod unmount_helper;
mod up;
mod version;
mod what_if;
mod zdb;
mod zfs;
mod zpool;
mod zstream;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let shown = std::env::var("CENOTE_LOG").ok().and_then(|words| words.parse::<Targets>().ok());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // An error of logging would go to standard error, which may be a file on a full disk: the thread that
        // logs, for example one that commits groups, would end with a panic.
        .log_internal_errors(false);
    tracing_subscriber::registry()
        .with(lines.with_filter(shown.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN))))
        .init();
    objects::register();
    let mut arguments = cli::arguments(std::env::args_os());
    if let Some(name) = cli::take_remote(&mut arguments) {
        remotes::choose(name);
    }
    arguments = cli::with_ours(arguments);
    if std::env::var_os("POSIXLY_CORRECT").is_some() {
        arguments = cli::in_posix_order(arguments);
    }
    let done = run(&arguments);
    if is_to_dump_core(&arguments) {
        let _ = writeln!(std::io::stderr(), "dumping core by request");
        std::process::abort();
    }
    done
}

/// OpenZFS's tools end with a core file where this variable is set, for those who look into it (zpool(8)).
fn is_to_dump_core(arguments: &[OsString]) -> bool {
    let is_tool = arguments.get(1).is_some_and(|word| word == "zfs" || word == "zpool");
    is_tool && std::env::var_os("ZFS_ABORT").is_some()
}

/// Does what the command line asks for.
fn run(arguments: &[OsString]) -> ExitCode {
    let command = match cli::Cli::try_parse_from(arguments) {
        Ok(cli) => {
            // Behind other options, where it was not looked for.
            if let Some(name) = cli.remote {
                remotes::choose(name);
            }
            cli.command
        }
        Err(error) => match not_yet::explain(&error, arguments) {
            Some((text, code)) => {
                let _ = writeln!(std::io::stderr(), "{text}");
                return ExitCode::from(code);
            }
            None => {
                let _ = error.print();
                return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(output::USAGE));
            }
        },
    };
    if !matches!(command, cli::Command::Serve(_) | cli::Command::Up(_) | cli::Command::Replicate(_)) {
        // A reader that goes away (`| head`) ends the program quietly. Servers must outlive theirs, and so
        // must what moves a stream, to say why its receiver went away.
        #[allow(unsafe_code, reason = "`signal`")]
        // SAFETY: no other thread runs yet, and the default action needs no handler.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL)
        };
    }
    match command.run_where_meant() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match (error.downcast_ref::<output::Exit>(), error.downcast_ref::<output::Misuse>()) {
            (Some(exit), _) => ExitCode::from(exit.0),
            (None, Some(misuse)) => {
                let _ = writeln!(std::io::stderr(), "{misuse}\n{}", cli::usage_of(arguments));
                ExitCode::from(output::USAGE)
            }
            (None, None) => {
                // If the message cannot be written, the exit code says it.
                let _ = writeln!(std::io::stderr(), "cenote: {}", output::in_words(&error));
                ExitCode::from(output::FAILED)
            }
        },
    }
}
