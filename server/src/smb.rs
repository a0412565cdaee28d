//! Shares by SMB: the property `sharesmb`, and Samba's usershares, by which another program than
//! `smb.conf`'s editor shares a directory.
//!
//! Samba serves a mounted filesystem; nothing of the protocol is here. A usershare is made and removed by
//! Samba's program `net`, which knows where Samba keeps them and how many there may be.
//!
//! # Which usershares are ours
//! The comment of a usershare that the daemon made ends with `(cenote: DATASET)`. One that has the name and
//! not the comment is another's, and is neither replaced nor removed.
//!
//! | option of `sharesmb` | usershare |
//! |---|---|
//! | `on` | the name of the dataset in lower case, with `_` for what is no letter of it (`tank_home`), for all users that Samba lets in |
//! | `name=NAME` | that name |
//! | `description=TEXT` | the comment begins with it |
//! | `ro`, `rw` (the default) | whether clients may only read |
//! | `guestok`, `guestok=false` (the default) | whether users without a name are let in, if Samba is told `usershare allow guests = yes` |
//!
//! Source of the facts: `net(8)` and `smb.conf(5)` of Samba 4.17; OpenZFS 2.3 `os/linux/smb.c` for the name
//! and the command, `sharesmb` of illumos' `zfs(8)` for names of options.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The program, and the one that tells Samba's servers something.
const NET: &str = "net";
const CONTROL: &str = "smbcontrol";
/// Where programs are looked for besides `PATH`.
const PLACES: &str = "/usr/local/bin:/usr/bin:/usr/local/samba/bin";
/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(20);
/// The longest name, as Windows has it, and the longest comment, in bytes.
const MAX_NAME: usize = 80;
const MAX_COMMENT: usize = 255;
/// What Samba lets no name have.
const NOT_IN_NAMES: &str = "%<>*?|/\\+=;:\",";
/// All users, as a number: a name would be asked of a server that need not run.
const EVERYONE: &str = "S-1-1-0";

/// How a filesystem is shared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    name: Option<String>,
    description: Option<String>,
    is_read_only: bool,
    lets_guests_in: bool,
}

impl Options {
    /// The usershare of a dataset that is mounted at a path.
    pub fn of(&self, dataset: &str, path: &Path) -> Usershare {
        let plain = |letter: char| match letter {
            '/' | '-' | ':' | ' ' => '_',
            letter => letter,
        };
        let marker = marker(dataset);
        Usershare {
            // The server of Samba 4.17 crashes with clients of a name that has capitals; clients see no
            // difference.
            name: self.name.clone().unwrap_or_else(|| dataset.chars().map(plain).collect()).to_lowercase(),
            path: path.to_owned(),
            comment: self.description.as_ref().map_or(marker.clone(), |text| format!("{text} {marker}")),
            is_read_only: self.is_read_only,
            lets_guests_in: self.lets_guests_in,
        }
    }
}

impl FromStr for Options {
    type Err = String;

    /// Reads the value of the property, which is not `off`.
    ///
    /// # Errors
    /// What cannot be honoured, for a person.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for option in text.split(',').filter(|option| *option != "on") {
            match option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value))) {
                ("name", Some(name)) => options.name = Some(checked_name(name)?.to_owned()),
                ("description", Some(text)) => options.description = Some(checked_text(text)?.to_owned()),
                ("ro", None) => options.is_read_only = true,
                ("rw", None) => options.is_read_only = false,
                ("guestok", None | Some("true" | "yes")) => options.lets_guests_in = true,
                ("guestok", Some("false" | "no")) => options.lets_guests_in = false,
                ("name" | "description" | "guestok" | "ro" | "rw", _) => {
                    return Err(format!("'{option}' is not understood: see smb.md for what a share can say"));
                }
                (name, _) => return Err(format!("'{name}' is no option of a share by SMB")),
            }
        }
        Ok(options)
    }
}

fn checked_name(name: &str) -> Result<&str, String> {
    let is_plain = |letter: char| !letter.is_control() && !NOT_IN_NAMES.contains(letter);
    match !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_plain) {
        true => Ok(name),
        false => Err(format!("'name={name}' cannot be the name of a share")),
    }
}

fn checked_text(text: &str) -> Result<&str, String> {
    match text.len() <= MAX_COMMENT / 2 && !text.chars().any(char::is_control) {
        true => Ok(text),
        false => Err(format!("'description' of a share is a line of at most {} bytes", MAX_COMMENT / 2)),
    }
}

/// How the comment of a usershare of a dataset ends.
fn marker(dataset: &str) -> String {
    format!("(cenote: {dataset})")
}

/// A usershare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usershare {
    /// Its name.
    pub name: String,
    /// The directory.
    pub path: PathBuf,
    /// Its comment.
    pub comment: String,
    /// Clients may only read.
    pub is_read_only: bool,
    /// Users without a name are let in.
    pub lets_guests_in: bool,
}

impl Usershare {
    /// The dataset for which the daemon made it; `None` for one that another program made.
    pub fn dataset(&self) -> Option<&str> {
        let (_, dataset) = self.comment.strip_suffix(')')?.rsplit_once("(cenote: ")?;
        Some(dataset)
    }

    /// Whether that is its name: Samba does not tell cases apart.
    pub fn is_called(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// Why Samba could not take it.
    fn fault(&self) -> Option<String> {
        if let Err(why) = checked_name(&self.name) {
            return Some(format!("{why}; choose one with 'sharesmb=name=NAME'"));
        }
        (self.comment.len() > MAX_COMMENT).then(|| "its name is too long for the comment".to_owned())
    }
}

/// Who keeps the usershares of this machine.
pub trait Usershares: fmt::Debug + Send + Sync {
    /// Whether there is Samba.
    fn is_there(&self) -> bool;

    /// All that there are. Blocks the thread.
    ///
    /// # Errors
    /// The program's words.
    fn list(&self) -> io::Result<Vec<Usershare>>;

    /// Makes one, or replaces that of the same name. Blocks the thread.
    ///
    /// # Errors
    /// The program's words.
    fn put(&self, share: &Usershare) -> io::Result<()>;

    /// Removes one, and has Samba let go of its directory. Blocks the thread.
    ///
    /// # Errors
    /// The program's words.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// Samba's program.
#[derive(Debug, Clone)]
pub struct Net {
    program: Option<PathBuf>,
}

impl Default for Net {
    /// The program of this machine. Where it is installed later, the daemon finds it with its next start.
    fn default() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut places = std::env::split_paths(&path).chain(std::env::split_paths(PLACES));
        Self { program: places.find_map(|place| Some(place.join(NET)).filter(|program| program.is_file())) }
    }
}

impl Net {
    /// A program in its place.
    pub fn at(program: PathBuf) -> Self {
        Self { program: Some(program) }
    }

    fn run(&self, words: &[&OsStr]) -> io::Result<String> {
        let program = self.program.as_ref().ok_or(io::ErrorKind::NotFound)?;
        run(program, [OsStr::new("usershare")].iter().chain(words))
    }
}

impl Usershares for Net {
    fn is_there(&self) -> bool {
        self.program.is_some()
    }

    fn list(&self) -> io::Result<Vec<Usershare>> {
        Ok(parse(&self.run(&["info".as_ref(), "--long".as_ref()])?))
    }

    fn put(&self, share: &Usershare) -> io::Result<()> {
        if let Some(why) = share.fault() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let acl = format!("{EVERYONE}:{}", if share.is_read_only { "R" } else { "F" });
        let guests = if share.lets_guests_in { "guest_ok=y" } else { "guest_ok=n" };
        self.run(&[
            "add".as_ref(),
            share.name.as_ref(),
            share.path.as_os_str(),
            share.comment.as_ref(),
            acl.as_ref(),
            guests.as_ref(),
        ])
        .map(drop)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.run(&["delete".as_ref(), name.as_ref()])?;
        // A server of a client keeps a directory of the share as its own. Where none runs, there is nothing
        // to tell, and the program says so.
        if let Some(control) = self.program.as_ref().map(|net| net.with_file_name(CONTROL))
            && control.is_file()
            && let Err(error) = run(&control, ["smbd", "close-share", name].map(OsStr::new).iter())
        {
            tracing::debug!(%error, share = name, "Samba's servers were not told of a share that is gone");
        }
        Ok(())
    }
}

/// Runs a program to its end, or to that of its time.
fn run<'a>(program: &Path, words: impl Iterator<Item = &'a &'a OsStr>) -> io::Result<String> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    let id = child.id();
    let (tell, told) = mpsc::channel();
    thread::Builder::new().name("samba's net".into()).spawn(move || {
        // The caller may have given up.
        let _ = tell.send(child.wait_with_output());
    })?;
    let shown = program.display();
    let Ok(output) = told.recv_timeout(LIMIT) else {
        if let Some(id) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) {
            // It has not been waited for, so the number is still its own.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        }
        let seconds = LIMIT.as_secs();
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{shown} did not end in {seconds} s")));
    };
    let output = output?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let words: Vec<&str> = said.split_whitespace().take(60).collect();
            Err(io::Error::other(format!("{shown}: {}", words.join(" "))))
        }
    }
}

/// What `net usershare info` prints: sections, with a line for each field.
fn parse(text: &str) -> Vec<Usershare> {
    let mut shares: Vec<Usershare> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            shares.push(Usershare {
                name: name.to_owned(),
                path: PathBuf::new(),
                comment: String::new(),
                is_read_only: false,
                lets_guests_in: false,
            });
            continue;
        }
        let (Some(share), Some((field, value))) = (shares.last_mut(), line.split_once('=')) else { continue };
        match field {
            "path" => share.path = value.into(),
            "comment" => value.clone_into(&mut share.comment),
            "usershare_acl" => share.is_read_only = !value.contains(":F") && !value.contains(":f"),
            "guest_ok" => share.lets_guests_in = value == "y",
            _ => {}
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn share(text: &str) -> Usershare {
        text.parse::<Options>().expect(text).of("tank/My-files:old", Path::new("/tank/my"))
    }

    #[test]
    fn a_share_is_called_as_openzfs_calls_it_unless_the_property_names_it() {
        let plain = share("on");
        assert_eq!((plain.name.as_str(), plain.dataset()), ("tank_my_files_old", Some("tank/My-files:old")));
        assert!(!plain.is_read_only && !plain.lets_guests_in);
        let other = share("name=Docs,description=All of (them),ro,guestok");
        assert_eq!((other.name.as_str(), other.dataset()), ("docs", Some("tank/My-files:old")));
        assert!(other.comment.starts_with("All of (them) ") && other.is_read_only && other.lets_guests_in);
        assert!(!share("ro,rw,guestok=false").is_read_only);
        for (text, named) in [
            ("name=a/b", "'name=a/b'"),
            ("name=", "'name='"),
            ("abe=true", "'abe'"),
            ("guestok=perhaps", "'guestok=perhaps'"),
            ("ro=host", "'ro=host'"),
        ] {
            let why = text.parse::<Options>().expect_err(text);
            assert!(why.contains(named), "{text}: {why}");
        }
    }

    #[test]
    fn usershares_of_others_are_told_from_those_of_the_daemon() {
        let listed = parse(
            "[docs]\npath=/srv/docs\ncomment=by hand\nusershare_acl=Everyone:R,\nguest_ok=n\n\n\
             [tank_fs]\npath=/tank/fs=1\ncomment=(cenote: tank/fs)\nusershare_acl=S-1-1-0:F,\nguest_ok=y\n",
        );
        assert_eq!(listed.iter().map(Usershare::dataset).collect::<Vec<_>>(), [None, Some("tank/fs")]);
        assert!(listed[0].is_read_only && !listed[1].is_read_only && listed[1].lets_guests_in);
        assert_eq!(listed[1].path, Path::new("/tank/fs=1"));
        assert!(listed[1].is_called("TANK_FS"));
    }

    #[test]
    fn the_program_gets_each_word_whole_and_its_words_are_reported() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("net");
        let said = place.path().join("said");
        let script = format!(
            "#!/bin/sh\nprintf '%s\\n' \"$@\" >> {}\n\
             [ \"$2\" != delete ] || {{ echo not so >&2; exit 255; }}\n",
            said.display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let net = Net::at(program);
        net.put(&share("description=two words,ro")).unwrap();
        let words = "usershare\nadd\ntank_my_files_old\n/tank/my\ntwo words (cenote: tank/My-files:old)\n\
                     S-1-1-0:R\nguest_ok=n\n";
        assert_eq!(std::fs::read_to_string(&said).unwrap(), words);
        let refused = net.remove("x").unwrap_err().to_string();
        assert!(refused.ends_with("net: not so"), "{refused}");
        assert!(!Net { program: None }.is_there());
        let long = Options::default().of(&"x".repeat(200), Path::new("/x"));
        assert_eq!(net.put(&long).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
