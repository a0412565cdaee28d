//! `zfs send`: snapshots as streams on standard output.
//!
//! The daemon makes the streams and sends them in frames, with what is to be told in between. The bytes go to
//! standard output as they come, and no further ones are taken meanwhile: a slow reader slows the daemon.
//!
//! Source of the facts: OpenZFS 2.4 `zfs_main.c`, `libzfs_sendrecv.c`, `zfs-send.8`.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use engine::properties::format::{nicebytes, nicenum};
use server::api::{SendPart, SendSnapshot};

use super::absent;
use crate::client::{self, Frame};
use crate::output::{self, Exit, FAILED, usage};
use crate::progress::Progress;

/// How often `-v` tells how far a stream is.
const EACH: Duration = Duration::from_secs(1);

/// Arguments of `zfs send`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, disable_help_flag = true, disable_version_flag = true)]
#[allow(clippy::struct_excessive_bools, reason = "options of a command")]
pub struct Arguments {
    /// Incremental: only what changed since this snapshot or bookmark
    #[arg(short = 'i', value_name = "SNAPSHOT|BOOKMARK", action = clap::ArgAction::Append)]
    since: Vec<String>,
    /// The same with all snapshots in between
    #[arg(short = 'I', value_name = "SNAPSHOT", action = clap::ArgAction::Append)]
    all_since: Vec<String>,
    /// With all children, their snapshots and properties
    #[arg(short = 'R', long)]
    replicate: bool,
    /// With -R: leave out children without the snapshot
    #[arg(short = 's', long)]
    skip_missing: bool,
    /// With -R: leave out these datasets and all below them
    #[arg(short = 'X', long, value_name = "DATASET", value_delimiter = ',')]
    exclude: Vec<String>,
    /// With properties
    #[arg(short = 'p', long)]
    props: bool,
    /// With received properties only, as a backup got them
    #[arg(short = 'b', long)]
    backup: bool,
    /// With holds
    #[arg(short = 'h', long)]
    holds: bool,
    /// Records may be larger than 128 KiB
    #[arg(short = 'L', long)]
    large_block: bool,
    /// Blocks that are embedded in pointers stay so
    #[arg(short = 'e', long)]
    embed: bool,
    /// Blocks stay compressed as they are on disk
    #[arg(short = 'c', long)]
    compressed: bool,
    /// Blocks as they are on disk, encrypted ones too; no key is needed
    #[arg(short = 'w', long)]
    raw: bool,
    /// Send encrypted datasets decrypted though properties go along
    #[arg(short = 'U', long)]
    no_preserve_encryption: bool,
    /// Resume where a receiver was interrupted: the value of its property receive_resume_token
    #[arg(short = 't', long = "resume", value_name = "TOKEN")]
    token: Option<String>,
    /// Send what a receiver got of an interrupted stream (not there yet)
    #[arg(short = 'S', long)]
    saved: bool,
    /// Leave out what a redaction bookmark lists (not there yet)
    #[arg(short = 'd', long, value_name = "BOOKMARK")]
    redact: Option<String>,
    /// Without effect: streams are not deduplicated any more
    #[arg(short = 'D', long)]
    dedup: bool,
    /// Send nothing; with -v or -P say what would be sent
    #[arg(short = 'n', long)]
    dryrun: bool,
    /// Say how large the stream is, and each second how far it is
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Numbers and tabs for programs
    #[arg(short = 'P', long)]
    parsable: bool,
    /// Show how far the stream is in the name of the process
    #[arg(short = 'V', long)]
    proctitle: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The snapshot
    #[arg(value_name = "SNAPSHOT|FILESYSTEM|VOLUME")]
    names: Vec<String>,
}

/// What is told while streams go.
struct Teller {
    is_dry: bool,
    is_parsable: bool,
    has_progress: bool,
    has_title: bool,
    verbosity: u8,
    is_many: bool,
    is_told: bool,
    estimated_bytes: u64,
    is_estimated: bool,
    current: Option<String>,
    sent_bytes: u64,
    told_at: Instant,
    /// The command ends with an error.
    has_failed: bool,
    is_whole: bool,
    progress: Progress,
}

impl Arguments {
    /// Whether a bar shows how far it is: where people watch, and nothing else tells them.
    fn has_bar(&self) -> bool {
        let is_quiet = self.verbose == 0 && !self.parsable && !self.proctitle && !self.dryrun;
        is_quiet && std::io::stderr().is_terminal() && !std::io::stdout().is_terminal()
    }

    /// Whether the sizes of streams are wanted for that. With a token or a bookmark they may have to be found
    /// by making the stream.
    fn is_estimated_for_bar(&self) -> bool {
        self.has_bar() && self.token.is_none() && self.from().is_none_or(|from| !from.contains('#'))
    }

    /// Sends.
    pub fn run(self) -> Result<()> {
        self.check()?;
        if self.dedup {
            eprintln!(
                "WARNING: deduplicated send is no longer supported.  A regular,\n\
                 non-deduplicated stream will be generated.\n"
            );
        }
        if !self.dryrun && std::io::stdout().is_terminal() {
            anyhow::bail!(
                "Error: Stream can not be written to a terminal.\nYou must redirect standard output."
            );
        }
        let request = self.request();
        let mut teller = Teller::new(&self);
        let mut out = std::io::stdout().lock();
        let answered = client::call_in_frames(&request, EACH, |frame| match frame {
            Frame::Bytes(bytes) => {
                out.write_all(bytes).map_err(|error| cannot_send(&request, &error))?;
                teller.sent(bytes.len());
                Ok(())
            }
            Frame::Part(part) => teller.part(part),
            Frame::Nothing => {
                teller.sent(0);
                Ok(())
            }
        })?;
        out.flush().map_err(|error| cannot_send(&request, &error))?;
        if answered.is_none() {
            anyhow::bail!(absent(&request.snapshot));
        }
        anyhow::ensure!(
            teller.is_whole,
            "warning: cannot send '{}': the daemon ended before the stream did",
            request.snapshot
        );
        if teller.has_failed { Err(Exit(FAILED).into()) } else { Ok(()) }
    }

    fn check(&self) -> Result<()> {
        let is_incremental = self.from().is_some();
        if self.since.len() + self.all_since.len() > 1 {
            return Err(usage("-i and -I say once what the stream is incremental from"));
        }
        if !self.exclude.is_empty() && !self.replicate {
            anyhow::bail!("Cannot specify dataset exclusion (-X) on a non-recursive send.");
        }
        if let Some(name) = self.exclude.iter().find(|name| !name.contains('/') || name.contains(['@', '#']))
        {
            return Err(usage(format!("-X {name}: not a valid non-root dataset name.")));
        }
        if self.token.is_some() {
            let others = self.replicate || self.props || self.backup || self.holds || self.saved;
            if is_incremental || others || self.redact.is_some() {
                return Err(usage("invalid flags combined with -t"));
            }
        }
        match (self.token.is_some(), self.names.len()) {
            (true, 0) | (false, 1) => {}
            (false, 0) => return Err(usage("missing snapshot argument")),
            _ => return Err(usage("too many arguments")),
        }
        if self.saved {
            anyhow::bail!("what a receiver got of an interrupted stream is not sent yet; resume it with -t");
        }
        if self.redact.is_some() {
            anyhow::bail!("redacted streams are not made yet");
        }
        if self.skip_missing && !self.replicate {
            return Err(usage("skip-missing flag can only be used in conjunction with replicate"));
        }
        let is_many = self.replicate || !self.all_since.is_empty();
        if is_many && self.from().is_some_and(|from| from.contains('#')) {
            anyhow::bail!("Error: multiple snapshots cannot be sent from a bookmark.");
        }
        if is_many && !self.names.iter().all(|name| name.contains('@')) {
            anyhow::bail!("Error: Unsupported flag with filesystem or bookmark.");
        }
        Ok(())
    }

    fn from(&self) -> Option<&str> {
        self.since.first().or(self.all_since.first()).map(String::as_str)
    }

    fn request(&self) -> SendSnapshot {
        let snapshot = self.names.first().cloned().unwrap_or_default();
        let is_many = self.replicate || !self.all_since.is_empty();
        SendSnapshot {
            from: self.from().map(|from| full_from(from, &snapshot, is_many)),
            snapshot,
            token: self.token.clone(),
            all_between: !self.all_since.is_empty(),
            replicate: self.replicate,
            skip_missing: self.skip_missing,
            excluded: self.exclude.clone(),
            properties: self.props,
            backup: self.backup,
            holds: self.holds,
            no_preserve_encryption: self.no_preserve_encryption,
            large_blocks: self.large_block,
            embedded: self.embed,
            compressed: self.compressed,
            raw: self.raw,
            estimate: self.verbose > 0 || self.parsable || self.proctitle || self.is_estimated_for_bar(),
            dry_run: self.dryrun,
        }
    }
}

/// The full name of what a stream is incremental from.
fn full_from(from: &str, snapshot: &str, is_many: bool) -> String {
    let head = snapshot.split('@').next().unwrap_or_default();
    if from.starts_with(['@', '#']) {
        return format!("{head}{from}");
    }
    if from.contains(['@', '#']) {
        return from.to_owned();
    }
    if !is_many {
        eprintln!(
            "Warning: incremental source didn't specify type, assuming snapshot. Use '@' or '#' prefix to \
             avoid ambiguity."
        );
    }
    format!("{head}@{from}")
}

fn cannot_send(request: &SendSnapshot, error: &std::io::Error) -> anyhow::Error {
    let text = output::in_words(&anyhow::anyhow!("{error}"));
    anyhow::anyhow!("warning: cannot send '{}': {text}", request.snapshot)
}

impl Teller {
    fn new(arguments: &Arguments) -> Self {
        Self {
            is_dry: arguments.dryrun,
            is_parsable: arguments.parsable,
            has_progress: arguments.verbose > 0,
            has_title: arguments.proctitle,
            verbosity: arguments.verbose,
            is_many: arguments.replicate || !arguments.all_since.is_empty(),
            is_told: arguments.verbose > 0
                || arguments.parsable
                || arguments.replicate
                || !arguments.all_since.is_empty(),
            estimated_bytes: 0,
            is_estimated: false,
            current: None,
            sent_bytes: 0,
            told_at: Instant::now(),
            has_failed: false,
            is_whole: false,
            progress: if arguments.has_bar() { Progress::shown(None) } else { Progress::hidden() },
        }
    }

    /// A line about what is sent: where nothing is, it is what the user wants.
    fn say(&self, line: &str) -> Result<()> {
        if self.is_dry {
            return output::print(&format!("{line}\n"));
        }
        self.progress.suspend(|| eprintln!("{line}"));
        Ok(())
    }

    fn part(&mut self, part: SendPart) -> Result<()> {
        match part {
            SendPart::Warning(text) => self.progress.suspend(|| eprintln!("{text}")),
            SendPart::Note(text) if self.verbosity > 0 || self.is_parsable => eprintln!("{text}"),
            SendPart::Note(_) => {}
            SendPart::Token(lines) => {
                self.say("resume token contents:")?;
                lines.iter().try_for_each(|line| self.say(line))?;
            }
            SendPart::Estimated { to, from, bytes } => {
                self.is_estimated = true;
                self.progress.expect(bytes);
                self.estimated_bytes = self.estimated_bytes.wrapping_add(bytes);
                if self.is_told {
                    self.say(&estimate_line(&to, from.as_deref(), bytes, self.is_parsable))?;
                }
            }
            SendPart::Begun { to } => {
                self.total()?;
                if self.has_progress && !self.is_parsable {
                    let blocks = if self.verbosity >= 2 { "   BLOCKS    " } else { "" };
                    eprintln!("TIME        SENT   {blocks}SNAPSHOT {to}");
                }
                self.progress.name(&to);
                self.current = Some(to);
                self.sent_bytes = 0;
                self.told_at = Instant::now();
            }
            SendPart::Failed(error) => {
                self.is_whole = true;
                self.has_failed = true;
                self.progress.suspend(|| eprintln!("{}", output::in_words(&error.into())));
            }
            SendPart::Complete { is_partial } => {
                self.total()?;
                self.is_whole = true;
                self.has_failed |= is_partial;
            }
        }
        Ok(())
    }

    /// Once, after all estimates.
    fn total(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_estimated) || !self.is_told {
            return Ok(());
        }
        let bytes = self.estimated_bytes;
        self.say(&match (self.is_parsable, self.is_many) {
            (true, _) => format!("size\t{bytes}"),
            (false, true) => format!("total estimated size is {}", nicebytes(bytes)),
            (false, false) => format!("total estimated size is {}", nicenum(bytes)),
        })
    }

    /// So many bytes went out.
    fn sent(&mut self, bytes: usize) {
        self.sent_bytes = self.sent_bytes.saturating_add(bytes as u64);
        self.progress.advance(bytes as u64);
        if !(self.has_progress || self.has_title) || self.told_at.elapsed() < EACH {
            return;
        }
        let Some(name) = &self.current else { return };
        self.told_at += EACH;
        if self.has_title {
            let percent = self.sent_bytes.saturating_mul(100) / self.estimated_bytes.max(1);
            // What shows processes has the first 15 bytes of it.
            let title = format!("send {}% {name}", percent.min(100));
            let _ = std::fs::write("/proc/self/comm", title);
        }
        if !self.has_progress {
            return;
        }
        let time = output::clock(output::now());
        match self.is_parsable {
            true => eprintln!("{time}\t{}\t{name}", self.sent_bytes),
            false => eprintln!("{time}   {:>5}   {name}", nicebytes(self.sent_bytes)),
        }
    }
}

fn estimate_line(to: &str, from: Option<&str>, bytes: u64, is_parsable: bool) -> String {
    if is_parsable {
        return match from {
            Some(from) => format!("incremental\t{from}\t{to}\t{bytes}"),
            None => format!("full\t{to}\t{bytes}"),
        };
    }
    let size = if bytes == 0 { String::new() } else { format!(" estimated size is {}", nicebytes(bytes)) };
    match from {
        Some(from) if from.contains(['@', '#']) => format!("send from {from} to {to}{size}"),
        Some(from) => format!("send from @{from} to {to}{size}"),
        None => format!("full send of {to}{size}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_type_are_snapshots_of_the_same_filesystem() {
        for (from, full) in
            [("@a", "t/f@a"), ("#a", "t/f#a"), ("a", "t/f@a"), ("t/o@a", "t/o@a"), ("t/f#b", "t/f#b")]
        {
            assert_eq!(full_from(from, "t/f@b", true), full);
        }
    }

    #[test]
    fn estimates_are_told_in_openzfs_words() {
        assert_eq!(estimate_line("t@a", None, 2048, false), "full send of t@a estimated size is 2K");
        assert_eq!(estimate_line("t@a", None, 0, false), "full send of t@a");
        assert_eq!(estimate_line("t@b", Some("a"), 1, false), "send from @a to t@b estimated size is 1B");
        assert_eq!(estimate_line("t@b", Some("t#a"), 1, false), "send from t#a to t@b estimated size is 1B");
        assert_eq!(estimate_line("t@b", Some("t@a"), 7, true), "incremental\tt@a\tt@b\t7");
        assert_eq!(estimate_line("t@a", None, 7, true), "full\tt@a\t7");
    }
}
