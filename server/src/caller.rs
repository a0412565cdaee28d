//! Who asks, and the role that it has: the process at the other end of a Unix socket, or a person who signed
//! in to the dashboard.
//!
//! # Processes
//! The kernel keeps the credentials that a process had when it connected: user, group, process, and the
//! further groups (`SO_PEERCRED`, `SO_PEERGROUPS`). A process cannot choose them. The number of the process
//! is for people only: it may belong to another process by the time it is read.
//!
//! | role | who has it |
//! |---|---|
//! | admin | root, and the user who runs the daemon |
//! | operator | members of a group of `cenote serve --operator` |
//! | viewer | members of a group of `--viewer`; all users where no such group is named |
//!
//! A user without a role is refused everything. [`Caller::scope`] makes the caller known to all that a
//! request does, which writes it into the history of pools, and lets creators have what `zfs allow -c` says.
//!
//! # Persons
//! A person has the role of its account or of its token, and nothing else: no user and no group of the
//! system, so that nothing that `zfs allow` granted counts for it, and it is never root. What an admin asks
//! for is done as what root asks for. The history and the audit log show its name and its address. A person
//! who came by a one-time link is known to be a user of the system, whose number the history has then; for
//! others it has [`NO_USER`].

#![allow(unsafe_code, reason = "the groups at the other end of a socket")]

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::dsl::Asker;
use tokio::net::UnixStream;

use crate::api::Role;
use crate::users;

/// More groups than any kernel lets a process have (`NGROUPS_MAX` of Linux).
const MAX_GROUPS: usize = 1 << 16;
/// Groups for which there is room at first.
const FIRST_GROUPS: usize = 64;

tokio::task_local! {
    static CALLER: Caller;
}

/// The user of what no user of the system asked for. No process can have it.
pub const NO_USER: u32 = u32::MAX;

/// Who asks, over which connection.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who it is.
    pub who: Who,
    /// Its connection.
    pub connection: Connection,
}

/// Who asks.
#[derive(Debug, Clone)]
pub enum Who {
    /// A process of this machine.
    Process(Process),
    /// A person.
    Person(Arc<Person>),
}

/// The process at the other end of a connection, as it was when it connected.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// The further groups; none where the kernel does not say.
    pub groups: Vec<u32>,
    /// Its number, where there is one.
    pub pid: Option<i32>,
}

/// A person who signed in to the dashboard, or a program with a token of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The name of its account.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The token by which it came, if any.
    pub token: Option<String>,
    /// The session by which it came, if any.
    pub session: Option<SessionId>,
    /// The user of the system that it is, if that is known.
    pub uid: Option<u32>,
    /// Where it comes from.
    pub address: IpAddr,
}

/// Which session of the dashboard it is: the hash of its number, with which no client is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionId(pub(crate) String);

/// How long a connection of a caller may last. Clones are about the same one.
#[derive(Debug, Clone, Default)]
pub struct Connection(Arc<AtomicBool>);

impl Connection {
    /// It may last: the caller was admitted to something that takes long.
    pub fn may_last(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it may.
    pub fn lasts(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Caller {
    /// The process at the other end of a connection.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of(stream: &UnixStream) -> io::Result<Self> {
        let peer = stream.peer_cred()?;
        // Kernels that do not tell give less than there is, which allows less.
        let groups = peer_groups(stream).unwrap_or_default();
        let process = Process { uid: peer.uid(), gid: peer.gid(), groups, pid: peer.pid() };
        Ok(Self::process_of(process))
    }

    /// A process.
    pub fn process_of(process: Process) -> Self {
        Self { who: Who::Process(process), connection: Connection::default() }
    }

    /// This process.
    pub fn own() -> Self {
        let own = std::process::id();
        Self::process_of(Process {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: Vec::new(),
            pid: i32::try_from(own).ok(),
        })
    }

    /// A person.
    pub fn person_of(person: Person) -> Self {
        Self { who: Who::Person(Arc::new(person)), connection: Connection::default() }
    }

    /// The process, if it is one.
    pub fn process(&self) -> Option<&Process> {
        match &self.who {
            Who::Process(process) => Some(process),
            Who::Person(_) => None,
        }
    }

    /// The person, if it is one.
    pub fn person(&self) -> Option<&Person> {
        match &self.who {
            Who::Process(_) => None,
            Who::Person(person) => Some(person),
        }
    }

    /// Its user; [`NO_USER`] for a person of whom none is known.
    pub fn uid(&self) -> u32 {
        match &self.who {
            Who::Process(process) => process.uid,
            Who::Person(person) => person.uid.unwrap_or(NO_USER),
        }
    }

    /// The name of its user, if it has one.
    pub fn user(&self) -> Option<String> {
        match &self.who {
            Who::Process(process) => users::name(process.uid.into()),
            Who::Person(person) => Some(person.name.clone()),
        }
    }

    /// Does what this caller asked for.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        CALLER.scope(self, work).await
    }

    /// The caller of the request that is being answered.
    pub fn current() -> Option<Self> {
        CALLER.try_with(Self::clone).ok()
    }

    /// On whose behalf something is done: of the request that is being answered, else of the daemon itself.
    pub fn asker() -> Asker {
        match Self::current().map(|caller| caller.who) {
            Some(Who::Process(process)) if !process.is_root() => {
                let Process { uid, gid, groups, .. } = process;
                Asker::User { uid, gid, groups }
            }
            Some(Who::Person(person)) if person.role != Role::Admin => {
                Asker::User { uid: NO_USER, gid: NO_USER, groups: Vec::new() }
            }
            _ => Asker::Root,
        }
    }

    /// The user on whose behalf something is done: of the request that is being answered, else the own.
    pub fn current_uid() -> u32 {
        let of_request = CALLER.try_with(Self::uid).ok();
        of_request.unwrap_or_else(|| rustix::process::geteuid().as_raw())
    }

    /// The user who is given what a creator gets; none for a person, who has no permissions.
    pub fn current_creator() -> Option<u32> {
        match Self::current().map(|caller| caller.who) {
            Some(Who::Person(_)) => None,
            _ => Some(Self::current_uid()),
        }
    }

    /// A host's name as the history of pools has it: with the person who asked, if it was one.
    pub fn on_host(host: &str) -> String {
        match CALLER.try_with(|caller| caller.person().map(Person::label)) {
            Ok(Some(label)) => format!("{host} ({label})"),
            _ => host.to_owned(),
        }
    }
}

impl Process {
    /// Whether it is of a group.
    pub fn is_of_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether it is root, or the user who runs the daemon.
    pub fn is_root(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

impl Person {
    /// It in words: name, token and address.
    pub fn label(&self) -> String {
        let token = self.token.as_ref().map(|token| format!(", token {token}")).unwrap_or_default();
        format!("dashboard: {}{token}, {}", self.name, self.address)
    }
}

/// The further groups of the process at the other end.
fn peer_groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; FIRST_GROUPS];
    loop {
        let room = groups.len() * size_of::<libc::gid_t>();
        let mut bytes = libc::socklen_t::try_from(room).map_err(io::Error::other)?;
        // SAFETY: the buffer has so many bytes and may hold any bytes; the length says what was written.
        let code = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = usize::try_from(bytes).map_err(io::Error::other)? / size_of::<libc::gid_t>();
        if code == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // The kernel says how much room it needs.
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() || count > MAX_GROUPS {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

/// Which groups have which role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles {
    operators: Vec<u32>,
    viewers: Vec<u32>,
}

impl Roles {
    /// The roles of groups, by name or number.
    ///
    /// # Errors
    /// There is no such group.
    pub fn of_groups(operators: &[String], viewers: &[String]) -> Result<Self, String> {
        let gid = |option: &str, group: &String| {
            let named = || u32::try_from(users::gid(group)?).ok();
            let number = group.parse().ok().or_else(named);
            number.ok_or_else(|| format!("--{option} {group}: there is no such group"))
        };
        let all = |option: &str, groups: &[String]| -> Result<Vec<u32>, String> {
            groups.iter().map(|group| gid(option, group)).collect()
        };
        Ok(Self { operators: all("operator", operators)?, viewers: all("viewer", viewers)? })
    }

    /// Whether any group has a role.
    pub fn are_given(&self) -> bool {
        !self.operators.is_empty() || !self.viewers.is_empty()
    }

    /// The role of a caller; none for a user who may ask for nothing.
    pub fn of(&self, caller: &Caller) -> Option<Role> {
        let process = match &caller.who {
            Who::Process(process) => process,
            Who::Person(person) => return Some(person.role),
        };
        let is_in = |groups: &[u32]| groups.iter().any(|group| process.is_of_group(*group));
        if process.is_root() {
            return Some(Role::Admin);
        }
        if is_in(&self.operators) {
            return Some(Role::Operator);
        }
        (self.viewers.is_empty() || is_in(&self.viewers)).then_some(Role::Viewer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller::process_of(Process { uid, gid, groups: groups.to_vec(), pid: None })
    }

    #[test]
    fn a_person_has_a_role_and_is_never_root() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let address = "192.0.2.7".parse().unwrap();
        let name = "ann".to_owned();
        let person =
            |role| Person { name: name.clone(), role, token: None, session: None, uid: None, address };
        for role in [Role::Viewer, Role::Operator, Role::Admin] {
            let caller = Caller::person_of(person(role));
            assert_eq!(Roles::default().of(&caller), Some(role));
            assert!(caller.process().is_none());
            let (asker, uid, creator, host) = runtime.block_on(caller.scope(async {
                let host = Caller::on_host("nas");
                (Caller::asker(), Caller::current_uid(), Caller::current_creator(), host)
            }));
            assert_eq!(asker == Asker::Root, role == Role::Admin);
            assert_eq!((uid, creator), (NO_USER, None));
            assert_eq!(host, "nas (dashboard: ann, 192.0.2.7)");
        }
        assert_eq!(Caller::on_host("nas"), "nas");
        assert_eq!(Caller::current_creator(), Some(Caller::own().uid()));
    }

    #[test]
    fn roles_come_from_groups_and_the_user_of_the_daemon_has_all() {
        let none = Roles::default();
        assert_eq!(none.of(&caller(0, 0, &[])), Some(Role::Admin));
        assert_eq!(none.of(&Caller::own()), Some(Role::Admin));
        assert_eq!(none.of(&caller(70_000, 70_000, &[1])), Some(Role::Viewer));
        let some = Roles::of_groups(&["70001".into()], &["70002".into(), "root".into()]).unwrap();
        assert_eq!(some.of(&caller(70_000, 70_001, &[])), Some(Role::Operator));
        assert_eq!(some.of(&caller(70_000, 1, &[9, 70_001])), Some(Role::Operator));
        assert_eq!(some.of(&caller(70_000, 1, &[70_002])), Some(Role::Viewer));
        assert_eq!(some.of(&caller(70_000, 0, &[])), Some(Role::Viewer));
        assert_eq!(some.of(&caller(70_000, 1, &[2])), None);
        let error = Roles::of_groups(&[], &["no-such-group".into()]).unwrap_err();
        assert_eq!(error, "--viewer no-such-group: there is no such group");
    }

    #[test]
    fn the_kernel_says_who_is_at_the_other_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (here, _there) = UnixStream::pair().unwrap();
            let caller = Caller::of(&here).unwrap();
            let process = caller.process().unwrap().clone();
            assert_eq!(
                (process.uid, process.gid),
                (Caller::own().uid(), rustix::process::getegid().as_raw())
            );
            assert_eq!(process.pid, Caller::own().process().unwrap().pid);
            let own: Vec<u32> =
                rustix::process::getgroups().unwrap().into_iter().map(|group| group.as_raw()).collect();
            assert_eq!(process.groups, own);
            let other = Caller::process_of(Process { uid: 12, ..process });
            assert_eq!(other.clone().scope(async { Caller::current_uid() }).await, 12);
            let asker = other.scope(async { Caller::asker() }).await;
            assert!(matches!(asker, Asker::User { uid: 12, .. }), "{asker:?}");
            assert_eq!(Caller::asker(), Asker::Root);
            assert_eq!(Caller::current_uid(), Caller::own().uid());
        });
    }
}
