//! `cenote serve --take-over --background`: the new daemon in another process, for service managers.
//!
//! # Whose child it is
//! A service manager can wait for the end of its own children only, and systemd ends at once, by SIGKILL, what
//! it has to stop and cannot wait for. So the new daemon must be a child of the manager before the old one says
//! that it is the main process. Three processes do that:
//!
//! | process | what it does |
//! |---|---|
//! | the command | starts the one between, waits for it, and then for the first line of the daemon |
//! | the one between (`--between`) | starts the daemon, and ends: the daemon falls to the manager |
//! | the daemon (`--orphan-of`) | waits until it did, and takes over |

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long the process between may take to end.
const LIMIT: Duration = Duration::from_secs(10);

/// This program with the same arguments, without those of here.
fn again() -> Result<Command> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    let is_own = |argument: &OsString| argument == "--background" || argument == "--between";
    command.args(std::env::args_os().skip(1).filter(|argument| !is_own(argument)));
    Ok(command)
}

/// Takes over in another process, and returns when that serves.
///
/// # Errors
/// It did not, which it said on standard error.
pub fn take_over() -> Result<()> {
    let mut between = again()?
        .args(["--background", "--between"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // A group of its own: Ctrl-C in the terminal must not reach the daemon.
        .process_group(0)
        .spawn()
        .context("cannot start the daemon")?;
    let mut said = String::new();
    if let Some(from) = between.stdout.take() {
        // Its end without a line says that the daemon failed.
        let _ = BufReader::new(from).read_line(&mut said);
    }
    let status = between.wait().context("cannot wait for the daemon")?;
    if said.is_empty() || !status.success() {
        bail!("the new daemon did not take over");
    }
    print!("{said}");
    Ok(())
}

/// The process between: the daemon has its standard output.
///
/// # Errors
/// It cannot be started.
pub fn start_orphan() -> Result<()> {
    let own = std::process::id().to_string();
    again()?.args(["--orphan-of", &own]).spawn().context("cannot start the daemon")?;
    Ok(())
}

/// Waits until this process is no child of the one between any more.
///
/// # Errors
/// That does not end.
pub fn wait_for_manager(between: u32) -> Result<()> {
    let began = Instant::now();
    while std::os::unix::process::parent_id() == between {
        if began.elapsed() > LIMIT {
            bail!("the process that started the daemon does not end");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
