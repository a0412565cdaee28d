//! The two sides of a replication: `zfs` of this program, or what is called so on another machine.
//!
//! Both are asked by their command lines, so that the other side may be OpenZFS's. What a command says on
//! standard error is kept, and told where it fails.

use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// The end of what OpenZFS and this program say of a dataset that is not there.
const IS_ABSENT: &str = "dataset does not exist";
/// The longest path of the folder with ssh's socket, in bytes: a socket's has 107, and ssh adds to it.
const MAX_FOLDER: usize = 80;
/// At most so much of what a command says on standard error is kept.
const MAX_SAID: u64 = 64 << 10;

/// Where `zfs` is run.
#[derive(Debug, Clone)]
pub enum Side {
    /// By this program.
    Here,
    /// On another machine.
    There {
        /// The command that gets there, such as `ssh`, with its options.
        shell: Vec<String>,
        /// The machine.
        host: String,
        /// The command there, such as `sudo zfs`.
        zfs: Vec<String>,
        /// The connection that all commands share, where it can be shared.
        shared: Option<Arc<Shared>>,
    },
}

/// One connection of ssh for all commands: each of its own would begin with an exchange of keys. The first
/// command makes it, and it stays for those that follow. It is of this program alone, and ends with it.
#[derive(Debug)]
pub struct Shared {
    folder: TempDir,
    program: String,
    host: String,
}

impl Shared {
    /// For this command; none where it is not ssh.
    fn of(shell: &[String], host: &str) -> Option<Self> {
        let program = shell.first()?;
        if Path::new(program).file_name()? != "ssh" {
            return None;
        }
        let folder = tempfile::Builder::new().prefix("cenote-").tempdir().ok()?;
        if folder.path().as_os_str().len() > MAX_FOLDER {
            return None;
        }
        Some(Self { folder, program: program.clone(), host: host.to_owned() })
    }

    /// The options by which commands find it.
    fn options(&self) -> [String; 6] {
        let path = format!("ControlPath={}/ssh", self.folder.path().display());
        let option = || "-o".to_owned();
        [option(), "ControlMaster=auto".into(), option(), path, option(), "ControlPersist=60".into()]
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(self.options()).args(["-O", "exit"]).arg(&self.host);
        // Where there is none, there is nothing to end.
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// A command that runs, with what it says on standard error.
pub struct Running {
    pub child: Child,
    said: JoinHandle<String>,
}

impl Running {
    /// Waits for its end. What it said, where it failed.
    pub fn end(mut self) -> Result<Option<String>> {
        let status = self.child.wait().context("cannot wait for a command")?;
        let said = self.said.join().unwrap_or_default();
        let said = said.trim_end();
        Ok(match (status.success(), said.is_empty()) {
            (true, _) => None,
            (false, true) => Some(format!("the command ended with {status}")),
            (false, false) => Some(said.to_owned()),
        })
    }
}

impl Side {
    /// Another machine, which this command reaches.
    pub fn there(shell: Vec<String>, host: &str, zfs: Vec<String>) -> Self {
        let shared = Shared::of(&shell, host).map(Arc::new);
        Self::There { shell, host: host.to_owned(), zfs, shared }
    }

    /// The command for these words.
    fn command(&self, words: &[&str]) -> Result<Command> {
        match self {
            Self::Here => {
                let program = std::env::current_exe().context("cannot find this program")?;
                let mut command = Command::new(program);
                command.arg("zfs").args(words);
                Ok(command)
            }
            Self::There { shell, host, zfs, shared } => {
                let (program, options) = shell.split_first().context("--rsh names no command")?;
                let words = zfs.iter().map(String::as_str).chain(words.iter().copied());
                let line: Vec<String> = words.map(quoted).collect();
                let mut command = Command::new(program);
                let of_shared = shared.as_ref().map(|shared| shared.options());
                command.args(options).args(of_shared.into_iter().flatten()).arg(host).arg(line.join(" "));
                Ok(command)
            }
        }
    }

    /// Starts a command.
    pub fn start(&self, words: &[&str], input: Stdio, output: Stdio) -> Result<Running> {
        let mut command = self.command(words)?;
        let started = command.stdin(input).stdout(output).stderr(Stdio::piped()).spawn();
        let mut child = started.with_context(|| format!("cannot run {:?}", command.get_program()))?;
        let stderr = child.stderr.take();
        let said = std::thread::spawn(move || stderr.map(heard).unwrap_or_default());
        Ok(Running { child, said })
    }

    /// What a command prints; what it says where it fails.
    fn ask(&self, words: &[&str]) -> Result<Result<String, String>> {
        let mut running = self.start(words, Stdio::null(), Stdio::piped())?;
        let mut text = String::new();
        if let Some(output) = running.child.stdout.as_mut() {
            output.read_to_string(&mut text).context("a command printed no text")?;
        }
        Ok(running.end()?.map_or(Ok(text), Err))
    }

    /// What a command prints that must not fail.
    pub fn print(&self, words: &[&str]) -> Result<String> {
        match self.ask(words)? {
            Ok(text) => Ok(text),
            Err(said) => bail!("{}{said}", self.prefix()),
        }
    }

    /// The same, where it may be that the dataset is not there.
    pub fn print_if_there(&self, words: &[&str]) -> Result<Option<String>> {
        match self.ask(words)? {
            Ok(text) => Ok(Some(text)),
            Err(said) if said.trim_end().ends_with(IS_ABSENT) => Ok(None),
            Err(said) => bail!("{}{said}", self.prefix()),
        }
    }

    /// The name of a dataset with that of its machine.
    pub fn named(&self, dataset: &str) -> String {
        match self {
            Self::Here => dataset.to_owned(),
            Self::There { host, .. } => format!("{host}:{dataset}"),
        }
    }

    /// What messages of this side begin with.
    pub fn prefix(&self) -> String {
        match self {
            Self::Here => String::new(),
            Self::There { host, .. } => format!("{host}: "),
        }
    }
}

/// What a command says, up to a limit; the rest is read and dropped, so that the command does not wait.
fn heard(mut stderr: ChildStderr) -> String {
    let mut bytes = Vec::new();
    // Of a pipe that breaks, what came before is told.
    let _ = stderr.by_ref().take(MAX_SAID).read_to_end(&mut bytes);
    let _ = std::io::copy(&mut stderr, &mut std::io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A word as a shell takes it for itself.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=,:@%+".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ssh_shares_a_connection() {
        let of = |word: &str| Shared::of(&[word.to_owned(), "-p".into(), "22".into()], "host");
        assert!(of("rsh").is_none() && of("/opt/not-ssh").is_none() && Shared::of(&[], "host").is_none());
        let shared = of("/nowhere/ssh").unwrap();
        let [_, master, _, path, ..] = shared.options();
        assert_eq!((master.as_str(), path.starts_with("ControlPath=/")), ("ControlMaster=auto", true));
    }

    #[test]
    fn words_reach_the_other_shell_as_they_are() {
        assert_eq!(
            ["tank/a@b", "a b", "", "it's", "$(x)"].map(quoted),
            ["tank/a@b", "'a b'", "''", r"'it'\''s'", "'$(x)'"]
        );
    }
}
