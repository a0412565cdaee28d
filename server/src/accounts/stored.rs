//! Users and tokens in their file.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::passwords::Hashed;
use super::{MAX_TOKENS, MAX_USERS, check_name};
use crate::api::DashboardRole;

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The form of the file.
const FORM: u32 = 1;

/// What the file has.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    form: u32,
    #[serde(default)]
    pub users: Vec<StoredUser>,
    #[serde(default)]
    pub tokens: Vec<StoredToken>,
}

impl Default for Stored {
    fn default() -> Self {
        Self { form: FORM, users: Vec::new(), tokens: Vec::new() }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredUser {
    pub name: String,
    pub role: DashboardRole,
    pub created: u64,
    pub password: Hashed,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredToken {
    pub name: String,
    /// The user who made it, and its number where it is one of the machine.
    pub user: String,
    #[serde(default)]
    pub uid: Option<u32>,
    pub role: DashboardRole,
    pub created: u64,
    pub ends: Option<u64>,
    pub hash: String,
}

impl Stored {
    /// The role that a token has by now: at most that of its user. None if its user is gone.
    pub(super) fn role_of(&self, token: &StoredToken) -> Option<DashboardRole> {
        match token.uid {
            Some(_) => Some(token.role),
            None => {
                let user = self.users.iter().find(|user| user.name == token.user)?;
                Some(token.role.min(user.role))
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.form != FORM {
            return Err(format!("its form is {}, and this version knows {FORM}", self.form));
        }
        if self.users.len() > MAX_USERS || self.tokens.len() > MAX_TOKENS {
            return Err("it has too many users or tokens".to_owned());
        }
        for user in &self.users {
            check_name(&user.name)?;
            user.password.check()?;
        }
        self.tokens.iter().try_for_each(|token| check_name(&token.name))
    }
}

/// What a file has; nothing where there is none.
///
/// # Errors
/// It cannot be read, or makes no sense.
pub(super) fn read(path: &Path) -> io::Result<Stored> {
    let file = match File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Stored::default()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    if file.take(MAX_BYTES + 1).read_to_end(&mut bytes)? as u64 > MAX_BYTES {
        return Err(io::Error::other("it is too large"));
    }
    let stored: Stored = serde_json::from_slice(&bytes)?;
    stored.check().map_err(io::Error::other)?;
    Ok(stored)
}

/// Replaces the file, which only the daemon's user can read, atomically.
///
/// # Errors
/// What the system says. The file is what it was then.
pub(super) fn write(path: &Path, stored: &Stored) -> io::Result<()> {
    replace(path, &serde_json::to_vec_pretty(stored)?)
}

/// Replaces a file, which only the daemon's user can read, atomically.
///
/// # Errors
/// What the system says. The file is what it was then.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().ok_or_else(|| io::Error::other("it has no directory"))?;
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let new = path.with_extension("new");
    // What lies there is left from a process that died, or a link that leads elsewhere.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}
