//! Other machines that commands can manage: which one is meant, and what is kept of them.
//!
//! # Which one
//! `cenote --remote NAME` names one, else `CENOTE_REMOTE` does. A name is one that was kept by `cenote remote
//! add`, or `HOST[:PORT]`; an address that was kept counts as its name, so that its certificate is checked in
//! the same way. Without TLS only this machine itself is spoken to (`http://localhost`, as through a tunnel).
//!
//! # What is kept
//! A file of the user (`remotes.json` below `$XDG_CONFIG_HOME/cenote`, else `~/.config/cenote`), which no
//! other user may read: it has tokens. One that others can read is not used. It is replaced atomically. A
//! token of `CENOTE_TOKEN` goes before the kept one; none is ever taken from the command line, which all users
//! of a machine can see.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use server::api::Secret;
use server::outgoing::{Address, Fingerprint, is_loopback_name};

/// Names the machine that commands manage.
pub const VARIABLE: &str = "CENOTE_REMOTE";
/// Has the token.
pub const TOKEN_VARIABLE: &str = "CENOTE_TOKEN";
/// The port where none is said: the dashboard's.
const USUAL_PORT: u16 = 7227;
/// The name of the file.
const FILE_NAME: &str = "remotes.json";
/// The form of the file.
const FORM: u32 = 1;
/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The most machines.
const MAX_REMOTES: usize = 1000;
/// The longest name and the longest token, in bytes.
const MAX_NAME_BYTES: usize = 64;
const MAX_TOKEN_BYTES: usize = 512;

/// What the command line names.
static NAMED: OnceLock<String> = OnceLock::new();

/// Has all commands of this process manage this machine.
pub fn choose(name: String) {
    // It is named once.
    let _ = NAMED.set(name);
}

/// The name of the machine that commands manage; none for this one.
pub fn named() -> Option<String> {
    let of_variable = || std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
    NAMED.get().cloned().or_else(of_variable)
}

/// Whether commands manage another machine.
pub fn is_afar() -> bool {
    named().is_some()
}

/// Refuses what can only be done on the machine itself, where another one is meant.
///
/// # Errors
/// Another one is meant.
pub fn only_here(why: &str) -> Result<()> {
    match named() {
        Some(name) => {
            bail!("this cannot be done on '{}' from here: {why}; run it there", name.escape_debug())
        }
        None => Ok(()),
    }
}

/// Another machine.
#[derive(Debug, Clone)]
pub struct Remote {
    /// As the user calls it.
    pub name: String,
    /// Where its dashboard listens.
    pub address: Address,
    /// The only certificate that is trusted; by authorities without.
    pub fingerprint: Option<Fingerprint>,
    /// What lets in.
    pub token: Option<Secret>,
}

impl Remote {
    /// It in words.
    pub fn label(&self) -> String {
        let place = self.address.host_and_port();
        match self.name == place || self.name == self.address.host {
            true => place,
            false => format!("{} ({place})", self.name),
        }
    }

    /// Its address as it is kept.
    pub fn url(&self) -> String {
        format!("{}://{}", self.address.scheme.name(), self.address.host_and_port())
    }
}

/// The machine that commands manage, with its token; none for this one.
///
/// # Errors
/// It makes no sense; the file cannot be used.
pub fn chosen() -> Result<Option<Remote>> {
    static CHOSEN: OnceLock<Remote> = OnceLock::new();
    if let Some(found) = CHOSEN.get() {
        return Ok(Some(found.clone()));
    }
    let Some(name) = named() else { return Ok(None) };
    let found = find(&name).with_context(|| format!("cannot use '{}'", name.escape_debug()))?;
    Ok(Some(CHOSEN.get_or_init(|| found).clone()))
}

fn find(name: &str) -> Result<Remote> {
    let kept = kept()?;
    let is_kept = kept.iter().any(|remote| remote.name == name);
    let address = address(name);
    let is_meant = |remote: &&Remote| match is_kept {
        true => remote.name == name,
        false => address.as_ref().is_ok_and(|address| remote.address.is_same_server(address)),
    };
    let mut remote = match kept.iter().find(is_meant) {
        Some(remote) => remote.clone(),
        None => Remote { name: name.to_owned(), address: address?, fingerprint: None, token: None },
    };
    if let Some(token) = token_of_environment()? {
        remote.token = Some(token);
    }
    Ok(remote)
}

/// The token of the environment.
///
/// # Errors
/// It can be none.
pub fn token_of_environment() -> Result<Option<Secret>> {
    match std::env::var_os(TOKEN_VARIABLE).filter(|token| !token.is_empty()) {
        Some(token) => {
            let token = Secret::from(token.into_encoded_bytes());
            check_token(&token).with_context(|| format!("{TOKEN_VARIABLE} makes no sense"))?;
            Ok(Some(token))
        }
        None => Ok(None),
    }
}

/// Whether this can be a token.
///
/// # Errors
/// Why not.
pub fn check_token(token: &Secret) -> Result<()> {
    let bytes = token.bytes();
    let is_plain = bytes.iter().all(u8::is_ascii_graphic);
    ensure!(!bytes.is_empty() && is_plain && bytes.len() <= MAX_TOKEN_BYTES, "this is no token");
    Ok(())
}

/// The address that a text names: `HOST`, `HOST:PORT`, the same with `https://` in front, or with `http://`
/// for this machine itself.
///
/// # Errors
/// It names none.
pub fn address(text: &str) -> Result<Address> {
    let is_url = text.contains("://");
    let (scheme, rest) = text.split_once("://").filter(|_| is_url).unwrap_or(("https", text));
    ensure!(scheme == "https" || scheme == "http", "a machine is named as HOST or HOST:PORT");
    let place = rest.strip_suffix('/').unwrap_or(rest);
    let is_bare_ipv6 = place.parse::<std::net::Ipv6Addr>().is_ok();
    let place = if is_bare_ipv6 { format!("[{place}]") } else { place.to_owned() };
    let has_port =
        place.rsplit_once(':').is_some_and(|(before, _)| !before.starts_with('[') || before.ends_with(']'));
    let has_port = has_port && !is_bare_ipv6;
    let place = if has_port { place } else { format!("{place}:{USUAL_PORT}") };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    ensure!(place.chars().all(is_plain), "a machine is named as HOST or HOST:PORT");
    let address = Address::web(&format!("{scheme}://{place}")).map_err(|why| anyhow!(why))?;
    if scheme == "http" {
        ensure!(
            is_loopback_name(&address.host),
            "without TLS only this machine itself is spoken to: its token could be read on the way"
        );
        return Ok(Address { is_for_loopback_only: true, ..address });
    }
    Ok(address)
}

/// Whether a machine may be called so.
///
/// # Errors
/// Why not.
pub fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    ensure!(
        begins && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_plain),
        "'{}' is no name for a machine: it has letters, digits and any of '-_.', and begins with a letter or \
         digit",
        name.escape_debug()
    );
    Ok(())
}

/// What the file has.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    form: u32,
    remotes: Vec<StoredRemote>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRemote {
    name: String,
    address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
}

/// A token in the file, which is shown nowhere.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl StoredRemote {
    fn remote(self) -> Result<Remote> {
        let fingerprint = self.fingerprint.map(|text| text.parse::<Fingerprint>()).transpose();
        let token = self.token.map(|Token(token)| Secret::from(token.into_bytes()));
        token.as_ref().map_or(Ok(()), check_token)?;
        Ok(Remote {
            address: address(&self.address)?,
            name: self.name,
            fingerprint: fingerprint.map_err(|why| anyhow!(why))?,
            token,
        })
    }

    fn of(remote: &Remote) -> Self {
        let text = |token: &Secret| Token(String::from_utf8_lossy(token.bytes()).into_owned());
        Self {
            name: remote.name.clone(),
            address: remote.url(),
            fingerprint: remote.fingerprint.map(|fingerprint| fingerprint.to_string()),
            token: remote.token.as_ref().map(text),
        }
    }
}

/// The file; none for a user without a home.
fn file() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|path| Path::new(path).is_absolute());
    let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(Path::new(&variable("HOME")?).join(".config")))?;
    Some(folder.join("cenote").join(FILE_NAME))
}

/// The machines that are kept, by name.
///
/// # Errors
/// The file cannot be used.
pub fn kept() -> Result<Vec<Remote>> {
    let Some(file) = file() else { return Ok(Vec::new()) };
    read(&file).with_context(|| format!("{} cannot be used", file.display()))
}

fn read(path: &Path) -> Result<Vec<Remote>> {
    let file = match File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let metadata = file.metadata()?;
    ensure!(metadata.is_file(), "it is no regular file");
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own || metadata.mode() & 0o077 != 0 {
        bail!("it has tokens, and others can read or change it; see to its owner, and 'chmod 600' it");
    }
    let mut bytes = Vec::new();
    ensure!(file.take(MAX_BYTES + 1).read_to_end(&mut bytes)? as u64 <= MAX_BYTES, "it is too large");
    let stored: Stored = serde_json::from_slice(&bytes)?;
    ensure!(stored.form == FORM, "its form is {}, and this version knows {FORM}", stored.form);
    ensure!(stored.remotes.len() <= MAX_REMOTES, "it names too many machines");
    stored.remotes.into_iter().map(StoredRemote::remote).collect()
}

/// Keeps a machine, in the place of the one of that name.
///
/// # Errors
/// The file cannot be used or written.
pub fn keep(remote: &Remote) -> Result<()> {
    let mut all = kept()?;
    all.retain(|other| other.name != remote.name);
    ensure!(all.len() < MAX_REMOTES, "there are {MAX_REMOTES} machines already");
    all.push(remote.clone());
    write(&all)
}

/// Forgets a machine; whether there was one of that name.
///
/// # Errors
/// The file cannot be used or written.
pub fn forget(name: &str) -> Result<bool> {
    let mut all = kept()?;
    let before = all.len();
    all.retain(|remote| remote.name != name);
    let is_known = all.len() < before;
    if is_known {
        write(&all)?;
    }
    Ok(is_known)
}

fn write(remotes: &[Remote]) -> Result<()> {
    let path = file().context("there is no place for the file: HOME is not set")?;
    write_to(&path, remotes).with_context(|| format!("cannot write {}", path.display()))
}

fn write_to(path: &Path, remotes: &[Remote]) -> Result<()> {
    let folder = path.parent().context("it has no folder")?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut stored: Vec<StoredRemote> = remotes.iter().map(StoredRemote::of).collect();
    stored.sort_by(|a, b| a.name.cmp(&b.name));
    let bytes = serde_json::to_vec_pretty(&Stored { form: FORM, remotes: stored })?;
    // Two commands at once have files of their own; the last one is kept.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(&bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // What is left of it has tokens.
        let _ = fs::remove_file(&new);
    }
    Ok(written?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn machines_are_named_by_host_and_port() {
        for (text, place) in [
            ("nas", "nas:7227"),
            ("nas.example.org:443", "nas.example.org:443"),
            ("192.0.2.7", "192.0.2.7:7227"),
            ("fe80::1", "[fe80::1]:7227"),
            ("[::1]:80", "[::1]:80"),
            ("[::1]", "[::1]:7227"),
            ("https://nas/", "nas:7227"),
            ("http://localhost:8000", "localhost:8000"),
            ("http://127.0.0.1", "127.0.0.1:7227"),
        ] {
            let found = address(text).unwrap();
            assert_eq!(found.host_and_port(), place, "{text}");
            assert_eq!(found.is_for_loopback_only, text.starts_with("http://"));
        }
        for wrong in
            ["", "a b", "nas:0", "nas:70000", "a@nas", "nas/path", "ftp://nas", "nas:x", "http://nas"]
        {
            assert!(address(wrong).is_err(), "{wrong}");
        }
        assert!(format!("{:#}", address("http://192.0.2.7").unwrap_err()).contains("without TLS"));
    }

    #[test]
    fn machines_are_kept_in_a_file_that_others_cannot_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("cenote/remotes.json");
        assert!(read(&path).unwrap().is_empty());
        let remote = Remote {
            name: "nas".into(),
            address: address("nas.example.org").unwrap(),
            fingerprint: Some(Fingerprint::of(b"x")),
            token: Some(b"cenote_secret".to_vec().into()),
        };
        assert!(!format!("{remote:?}").contains("secret"));
        write_to(&path, std::slice::from_ref(&remote)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let [kept] = &read(&path).unwrap()[..] else { panic!("one") };
        assert_eq!((kept.name.as_str(), &kept.address), ("nas", &remote.address));
        assert_eq!((kept.fingerprint, &kept.token), (remote.fingerprint, &remote.token));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "{\"form\": 9, \"remotes\": []}").unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn names_and_tokens_are_plain() {
        check_name("nas-1.home").unwrap();
        for wrong in ["", "-nas", "a b", "a/b", "é", &"x".repeat(65)] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
        check_token(&b"cenote_abc-DEF".to_vec().into()).unwrap();
        for wrong in [&b""[..], b"a b", b"a\n", &[0xff], &[b'x'; 513]] {
            assert!(check_token(&wrong.to_vec().into()).is_err());
        }
    }
}
