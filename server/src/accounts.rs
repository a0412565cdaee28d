//! Who may come by the dashboard: users with passwords, one-time links, sessions, tokens of programs.
//!
//! # Three ways in
//! | what | made by | kept | lasts |
//! |---|---|---|---|
//! | a link | a process of root or of the daemon's user, by the socket (`cenote dashboard`) | a hash, in memory | five minutes, and is used once |
//! | a user with a password | an admin | a salted hash (argon2id), in a file | until it is removed |
//! | a token | an admin, for programs | a hash, in a file | until its end, or until it is removed |
//!
//! A link or a password begins a *session*: a random number in a cookie, of which the daemon keeps a hash in
//! memory. Sessions end some time after they were used last ([`sessions::IDLE`]) and some time after they
//! began ([`sessions::LONGEST`]), with the daemon, when they are signed out, and when their user is removed
//! or gets another role or password. Answers that last end with them.
//!
//! Tokens belong to the user who made them, and never have more than that user has by now.
//!
//! # What is random, and what is compared
//! Links, sessions and tokens have 256 random bits. Only SHA-256 of them is kept, so that the file and the
//! memory give no way in. Hashes are compared in constant time.
//!
//! # What guessing costs
//! Each wrong try counts for the address and for the name ([`throttle`]). Hashing takes 19 MiB for some tens
//! of milliseconds, and few are hashed at a time ([`passwords`]). A name that is not there takes as long.
//!
//! # The file
//! `dashboard.json` beside the cache file, readable for the daemon's user only. Without a cache file, users
//! and tokens are kept in memory. A file that makes no sense lets no user in, and is not overwritten: links
//! work all the same.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Accounts::kept` | users and tokens; while the file is written | before that of sessions |
//! | `Sessions`, `Links`, `Throttle` | their tables, for a few lines | taken alone |

pub mod links;
pub mod passwords;
mod secrets;
pub mod sessions;
mod stored;
pub mod throttle;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use device::IgnorePoison;

use crate::api::{
    ApiError, CreateDashboardToken, DashboardRole, DashboardToken, DashboardUser, NewDashboardToken,
    Password, SetDashboardUser,
};
use crate::caller::SessionId;
use links::Links;
use passwords::{Hashed, Passwords};
use sessions::Sessions;
pub(crate) use stored::replace;
use stored::{Stored, StoredToken, StoredUser};
use throttle::Throttle;

/// The name of the file, beside the cache file.
pub const FILE_NAME: &str = "dashboard.json";
/// The most users.
const MAX_USERS: usize = 256;
/// The most tokens.
const MAX_TOKENS: usize = 256;
/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The longest time of a token, in days.
const MAX_DAYS: u32 = 3650;
/// What tokens begin with, so that programs that look for lost ones find them.
const TOKEN_PREFIX: &str = "cenote_";

/// A user who may sign in, or has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: DashboardRole,
    /// The user of the machine that it is; none for a user with a password.
    pub uid: Option<u32>,
}

/// All of this of a daemon. See the module documentation.
#[derive(Debug)]
pub struct Accounts {
    file: Option<PathBuf>,
    kept: Mutex<Kept>,
    /// One-time links.
    pub links: Links,
    /// Sessions.
    pub sessions: Sessions,
    /// Tries to sign in.
    pub throttle: Throttle,
    /// Hashing.
    pub passwords: Passwords,
}

#[derive(Debug, Default)]
struct Kept {
    stored: Stored,
    /// Why the file cannot be used.
    fault: Option<String>,
    /// When tokens were used last.
    used: BTreeMap<String, u64>,
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Accounts {
    /// Those of this file; in memory without one.
    pub fn open(file: Option<PathBuf>) -> Self {
        let mut kept = Kept::default();
        if let Some(file) = &file {
            match stored::read(file) {
                Ok(stored) => kept.stored = stored,
                Err(error) => {
                    let fault = format!("{} cannot be used: {error}", file.display());
                    tracing::error!("users of the dashboard cannot sign in: {fault}");
                    kept.fault = Some(fault);
                }
            }
        }
        Self {
            file,
            kept: Mutex::new(kept),
            links: Links::default(),
            sessions: Sessions::default(),
            throttle: Throttle::default(),
            passwords: Passwords::default(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().ignore_poison()
    }

    /// The user of this name, and its password as it is kept.
    pub fn user(&self, name: &str) -> Option<(Signed, Hashed)> {
        let kept = self.kept();
        let user = kept.stored.users.iter().find(|user| user.name == name)?;
        let signed = Signed { name: user.name.clone(), role: user.role, uid: None };
        Some((signed, user.password.clone()))
    }

    /// The user of a token that counts now, and the token's name. The role is what both have.
    pub fn by_token(&self, token: &str) -> Option<(Signed, String)> {
        let hash = secrets::hash(token.strip_prefix(TOKEN_PREFIX)?);
        let mut kept = self.kept();
        // All are compared, so that the time tells nothing.
        let mut found = None;
        for kept in &kept.stored.tokens {
            if secrets::are_same(kept.hash.as_bytes(), hash.as_bytes()) {
                found = Some(kept.clone());
            }
        }
        let found = found.filter(|token| token.ends.is_none_or(|ends| now() < ends))?;
        let role = kept.stored.role_of(&found)?;
        kept.used.insert(found.name.clone(), now());
        Some((Signed { name: found.user, role, uid: found.uid }, found.name))
    }

    /// All users, with their tokens.
    pub fn list(&self) -> Vec<DashboardUser> {
        let kept = self.kept();
        let tokens = |name: &str, of_machine: bool| -> Vec<DashboardToken> {
            let own = kept.stored.tokens.iter();
            let own = own.filter(|token| token.user == name && token.uid.is_some() == of_machine);
            own.map(|token| DashboardToken {
                name: token.name.clone(),
                role: token.role,
                created: token.created,
                ends: token.ends,
                last_used: kept.used.get(&token.name).copied(),
            })
            .collect()
        };
        let mut users: Vec<DashboardUser> = kept
            .stored
            .users
            .iter()
            .map(|user| DashboardUser {
                name: user.name.clone(),
                role: user.role,
                has_password: true,
                created: user.created,
                sessions: self.sessions.count_of(&user.name, false),
                tokens: tokens(&user.name, false),
            })
            .collect();
        let mut of_machine = self.sessions.of_machine();
        of_machine.extend(
            kept.stored.tokens.iter().filter(|token| token.uid.is_some()).map(|token| token.user.clone()),
        );
        of_machine.sort_unstable();
        of_machine.dedup();
        users.extend(of_machine.into_iter().map(|name| DashboardUser {
            role: DashboardRole::Admin,
            has_password: false,
            created: 0,
            sessions: self.sessions.count_of(&name, true),
            tokens: tokens(&name, true),
            name,
        }));
        users
    }

    /// Makes a user, or changes it, which ends its sessions. The password was hashed already.
    ///
    /// # Errors
    /// A name or a role that cannot be; a new user without role or password; too many users; the file cannot
    /// be written.
    pub fn set_user(&self, request: &SetDashboardUser, password: Option<Hashed>) -> Result<(), ApiError> {
        let doing = || format!("cannot set the user of the dashboard '{}'", request.name.escape_debug());
        check_name(&request.name).map_err(|why| ApiError::invalid(format!("{}: {why}", doing())))?;
        if request.role == Some(DashboardRole::Metrics) {
            let why = "the role 'metrics' is for tokens; users are viewer, operator or admin";
            return Err(ApiError::invalid(format!("{}: {why}", doing())));
        }
        self.change(|stored| {
            if let Some(user) = stored.users.iter_mut().find(|user| user.name == request.name) {
                if request.role.is_none() && password.is_none() {
                    return Err(ApiError::invalid(format!(
                        "{}: neither a role nor a password is given",
                        doing()
                    )));
                }
                user.role = request.role.unwrap_or(user.role);
                user.password = password.unwrap_or_else(|| user.password.clone());
                return Ok(());
            }
            let (Some(role), Some(password)) = (request.role, password) else {
                let why = "there is none of that name, and a new one needs a role and a password";
                return Err(ApiError::invalid(format!("{}: {why}", doing())));
            };
            if stored.users.len() >= MAX_USERS {
                return Err(ApiError::refused(format!("{}: there are {MAX_USERS} users already", doing())));
            }
            stored.users.push(StoredUser { name: request.name.clone(), role, created: now(), password });
            Ok(())
        })?;
        self.sessions.end_of(&request.name);
        Ok(())
    }

    /// Gives a user another password in the place of the one that was checked, and ends its other sessions.
    ///
    /// # Errors
    /// The user is gone or has another password by now; the file cannot be written.
    pub(crate) fn set_password(
        &self,
        name: &str,
        old: &Hashed,
        new: Hashed,
        session: &SessionId,
    ) -> Result<(), ApiError> {
        self.change(|stored| {
            let user = stored.users.iter_mut().find(|user| user.name == name && user.password == *old);
            let why = "cannot change the own password: it was changed meanwhile";
            user.ok_or_else(|| ApiError::busy(why))?.password = new;
            Ok(())
        })?;
        self.sessions.end_others_of(name, session);
        Ok(())
    }

    /// Removes a user with a password, its sessions and its tokens.
    ///
    /// # Errors
    /// There is none of that name; the file cannot be written.
    pub fn remove_user(&self, name: &str) -> Result<(), ApiError> {
        self.change(|stored| {
            let before = stored.users.len();
            stored.users.retain(|user| user.name != name);
            if stored.users.len() == before {
                let shown = name.escape_debug();
                return Err(ApiError::not_found(format!(
                    "cannot remove the user of the dashboard '{shown}': there is none of that name with a \
                     password"
                )));
            }
            stored.tokens.retain(|token| token.user != name || token.uid.is_some());
            Ok(())
        })?;
        self.sessions.end_of(name);
        Ok(())
    }

    /// Makes a token of this user.
    ///
    /// # Errors
    /// A name that cannot be or is there; a time that cannot be; too many; the file cannot be written.
    pub fn create_token(
        &self,
        of: &Signed,
        request: &CreateDashboardToken,
    ) -> Result<NewDashboardToken, ApiError> {
        let doing = || format!("cannot create the token '{}'", request.name.escape_debug());
        check_name(&request.name).map_err(|why| ApiError::invalid(format!("{}: {why}", doing())))?;
        if request.days.is_some_and(|days| days == 0 || days > MAX_DAYS) {
            return Err(ApiError::invalid(format!("{}: it lasts 1 to {MAX_DAYS} days", doing())));
        }
        let secret = secrets::random().map_err(|why| ApiError::failed(format!("{}: {why}", doing())))?;
        let hash = secrets::hash(&secret);
        let ends = request.days.map(|days| now() + u64::from(days) * 24 * 60 * 60);
        self.change(|stored| {
            // Those that have ended make room.
            stored.tokens.retain(|token| token.ends.is_none_or(|ends| now() < ends));
            if stored.tokens.iter().any(|token| token.name == request.name) {
                return Err(ApiError::refused(format!("{}: there is one of that name already", doing())));
            }
            if stored.tokens.len() >= MAX_TOKENS {
                return Err(ApiError::refused(format!("{}: there are {MAX_TOKENS} tokens already", doing())));
            }
            stored.tokens.push(StoredToken {
                name: request.name.clone(),
                user: of.name.clone(),
                uid: of.uid,
                role: request.role,
                created: now(),
                ends,
                hash,
            });
            Ok(())
        })?;
        Ok(NewDashboardToken { token: format!("{TOKEN_PREFIX}{secret}"), ends })
    }

    /// Removes a token.
    ///
    /// # Errors
    /// There is none of that name; the file cannot be written.
    pub fn remove_token(&self, name: &str) -> Result<(), ApiError> {
        self.change(|stored| {
            let before = stored.tokens.len();
            stored.tokens.retain(|token| token.name != name);
            match stored.tokens.len() < before {
                true => Ok(()),
                false => {
                    let name = name.escape_debug();
                    Err(ApiError::not_found(format!(
                        "cannot remove the token '{name}': there is none of that name"
                    )))
                }
            }
        })
    }

    /// Changes what is kept, in the file first.
    fn change(&self, change: impl FnOnce(&mut Stored) -> Result<(), ApiError>) -> Result<(), ApiError> {
        let mut kept = self.kept();
        if let Some(fault) = &kept.fault {
            return Err(ApiError::failed(format!(
                "{fault}; mend it or move it away, and start the daemon anew"
            )));
        }
        let mut changed = kept.stored.clone();
        change(&mut changed)?;
        if let Some(file) = &self.file {
            let cannot = |error| ApiError::failed(format!("cannot write {}: {error}", file.display()));
            stored::write(file, &changed).map_err(cannot)?;
        }
        kept.stored = changed;
        let Kept { stored, used, .. } = &mut *kept;
        used.retain(|name, _| stored.tokens.iter().any(|token| token.name == *name));
        Ok(())
    }
}

/// Whether a name may be one of a user or a token.
///
/// # Errors
/// Why not, for a person.
fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_@+".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    match begins && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "a name has letters, digits and any of .-_@+, begins with a letter or digit, and is at most \
             {MAX_NAME_BYTES} long"
        )),
    }
}

/// How long a link lasts, in whole seconds.
pub const LINK_LASTS: Duration = links::LASTS;

/// Hashes the password of a request, which blocks the thread for some time.
///
/// # Errors
/// It is too short, or the system gives no random bytes.
pub fn hashed(name: &str, password: &Password) -> Result<Hashed, ApiError> {
    let doing = || format!("cannot set the user of the dashboard '{}'", name.escape_debug());
    passwords::check_new(password).map_err(|why| ApiError::invalid(format!("{}: {why}", doing())))?;
    Hashed::of(password).map_err(|why| ApiError::failed(format!("{}: {why}", doing())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, role: Option<DashboardRole>) -> SetDashboardUser {
        SetDashboardUser { name: name.into(), role, password: None }
    }

    fn token(name: &str, role: DashboardRole, days: Option<u32>) -> CreateDashboardToken {
        CreateDashboardToken { name: name.into(), role, days }
    }

    #[test]
    fn users_and_tokens_outlive_the_daemon_and_only_hashes_are_kept() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("state/dashboard.json");
        let accounts = Accounts::open(Some(file.clone()));
        let password = Password::from("correct horse battery".to_owned());
        let hash = hashed("ann", &password).unwrap();
        assert!(accounts.set_user(&user("ann", None), Some(hash.clone())).is_err(), "a role is needed");
        assert!(accounts.set_user(&user("ann", Some(DashboardRole::Metrics)), Some(hash.clone())).is_err());
        for name in ["", "a b", "-x", "a\n", "<b>", &"x".repeat(65)] {
            assert!(accounts.set_user(&user(name, Some(DashboardRole::Viewer)), Some(hash.clone())).is_err());
        }
        accounts.set_user(&user("ann", Some(DashboardRole::Operator)), Some(hash)).unwrap();
        let (ann, _) = accounts.user("ann").unwrap();
        let made = accounts.create_token(&ann, &token("backup", DashboardRole::Admin, Some(2))).unwrap();
        assert!(accounts.create_token(&ann, &token("backup", DashboardRole::Admin, None)).is_err());
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("horse") && !text.contains(&made.token[TOKEN_PREFIX.len()..]), "{text}");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

        let accounts = Accounts::open(Some(file));
        let (ann, kept) = accounts.user("ann").unwrap();
        assert!(kept.is_of(&password) && !kept.is_of(&Password::from("wrong horse".to_owned())));
        // No more than its user has.
        let (signed, name) = accounts.by_token(&made.token).unwrap();
        assert_eq!((signed.role, name.as_str()), (DashboardRole::Operator, "backup"));
        assert!(accounts.by_token(&made.token[..made.token.len() - 1]).is_none());
        assert!(accounts.by_token("").is_none() && accounts.by_token(TOKEN_PREFIX).is_none());
        accounts.set_user(&user("ann", Some(DashboardRole::Viewer)), None).unwrap();
        assert_eq!(accounts.by_token(&made.token).unwrap().0.role, DashboardRole::Viewer);
        let session = accounts.sessions.begin(ann).unwrap();
        assert_eq!(accounts.list()[0].sessions, 1);
        accounts.remove_user("ann").unwrap();
        assert!(accounts.by_token(&made.token).is_none(), "it goes with its user");
        assert!(accounts.sessions.find(&session).is_none());
        assert!(accounts.remove_user("ann").is_err());
    }

    #[test]
    fn a_token_ends() {
        let accounts = Accounts::open(None);
        let root = Signed { name: "root".into(), role: DashboardRole::Admin, uid: Some(0) };
        let made = accounts.create_token(&root, &token("a", DashboardRole::Metrics, Some(1))).unwrap();
        assert_eq!(accounts.by_token(&made.token).unwrap().0.role, DashboardRole::Metrics);
        let [listed] = &accounts.list()[..] else { panic!("{:?}", accounts.list()) };
        assert_eq!((listed.name.as_str(), listed.has_password, listed.tokens.len()), ("root", false, 1));
        accounts.kept().stored.tokens[0].ends = Some(now());
        assert!(accounts.by_token(&made.token).is_none());
        assert!(accounts.create_token(&root, &token("b", DashboardRole::Viewer, Some(0))).is_err());
        accounts.create_token(&root, &token("a", DashboardRole::Viewer, None)).unwrap();
        accounts.remove_token("a").unwrap();
        assert!(accounts.remove_token("a").is_err());
    }

    #[test]
    fn a_file_that_makes_no_sense_lets_no_user_in_and_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("dashboard.json");
        std::fs::write(&file, "{\"users\": [").unwrap();
        let accounts = Accounts::open(Some(file.clone()));
        let hash = hashed("ann", &Password::from("correct horse battery".to_owned())).unwrap();
        let error = accounts.set_user(&user("ann", Some(DashboardRole::Admin)), Some(hash)).unwrap_err();
        assert!(error.message.contains("cannot be used"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"users\": [");
    }
}
