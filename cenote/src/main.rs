//! OpenZFS-compatible storage in userspace: one binary for pools, volumes and filesystems.

// The doc comments of arguments are their help texts, where brackets mean what may be left out.
#![allow(rustdoc::broken_intra_doc_links)]

mod cli;
mod client;
mod columns;
mod copy;
mod exported;
mod lab;
mod mount_helper;
mod output;
mod prompt;
mod property_list;
mod serve;
mod table;
mod typed;
mod up;
mod version;
mod zdb;
mod zfs;
mod zpool;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("CENOTE_LOG").unwrap_or_else(|_| "warn".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    let arguments = cli::arguments(std::env::args_os());
    let command = cli::Cli::parse_from(arguments).command;
    if !matches!(command, cli::Command::Serve(_) | cli::Command::Up(_)) {
        // A reader that goes away (`| head`) ends the program quietly. Servers must outlive theirs.
        // SAFETY: no other thread runs yet, and the default action needs no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<output::Exit>() {
            Some(exit) => ExitCode::from(exit.0),
            None => {
                eprintln!("cenote: {error:#}");
                ExitCode::from(output::FAILED)
            }
        },
    }
}
