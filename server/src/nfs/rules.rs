//! The property `sharenfs`: to whom a filesystem is shared, and how.
//!
//! The options are those of `exports(5)`, as OpenZFS on Linux passes them on. What is kept for the sake of
//! exports(5) alone, because there is nothing here that it could change, has no effect; what cannot be
//! honoured keeps the filesystem from being shared at all.
//!
//! | option | meaning |
//! |---|---|
//! | `rw`, `ro` | all clients may write, or only read; the default is `rw` |
//! | `rw=LIST`, `ro=LIST` | these may: addresses, networks and names of hosts with `:` between them, `@` before a network if wanted, those of IPv6 in brackets |
//! | `root=LIST` | root of these is root, unless all users are squashed |
//! | `root_squash`, `no_root_squash`, `all_squash`, `no_all_squash` | whose requests are those of the anonymous user: root's (the default), no user's, all users' |
//! | `anonuid=N`, `anon=N`, `anongid=N` | the anonymous user and group, 65534 without it |
//! | `sync`, `async` | changes of names and attributes are stable when they are answered (the default), or later |
//! | `secure`, `insecure` | clients come from ports below 1024 (the default), or from any |
//! | `nordirplus` | directories are listed without attributes |
//! | `sec=sys` | users are as the client says; the only kind that there is |
//!
//! Of several entries that have an address the one with the longest prefix counts, and a name as an address
//! does; of two alike `ro` does. Names are resolved ([`super::names`]); patterns of names and netgroups are
//! refused.
//!
//! Source of the facts: `exports(5)` of nfs-utils 2.6; OpenZFS 2.3 `os/linux/nfs.c`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::names;
use super::rpc::Credentials;
use crate::block::shares::Network;

/// The anonymous user and group.
const NOBODY: u32 = 65_534;
/// Ports that only root may use.
const RESERVED: u16 = 1024;

/// Options without effect here.
const INERT: [&str; 18] = [
    "wdelay",
    "no_wdelay",
    "hide",
    "nohide",
    "crossmnt",
    "subtree_check",
    "no_subtree_check",
    "nosub",
    "secure_locks",
    "insecure_locks",
    "auth_nlm",
    "no_auth_nlm",
    "acl",
    "no_acl",
    "no_pnfs",
    "mountpoint",
    "mp",
    "fsid",
];

/// Clients.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Who {
    All,
    Network(Network),
    Host(String),
}

impl Who {
    /// Whether an address is one of theirs. May block the thread.
    fn has(&self, address: IpAddr) -> bool {
        match self {
            Self::All => true,
            Self::Network(network) => network.has(address),
            Self::Host(name) => names::is_of(name, address),
        }
    }

    /// How closely they are named.
    fn rank(&self) -> i32 {
        match self {
            Self::All => -1,
            Self::Network(network) => i32::from(network.prefix_bits()),
            Self::Host(_) => 128,
        }
    }

    /// As the value of the property has them.
    fn in_list(&self) -> String {
        match self {
            Self::Network(network) => bracketed(&network.to_string()),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Network(network) => network.fmt(f),
            Self::Host(name) => f.write_str(name),
        }
    }
}

impl FromStr for Who {
    type Err = String;

    fn from_str(host: &str) -> Result<Self, String> {
        if host == "*" {
            return Ok(Self::All);
        }
        let plain = host.strip_prefix('@').unwrap_or(host).replacen(['[', ']'], "", 2);
        match plain.parse() {
            Ok(network) => Ok(Self::Network(network)),
            Err(()) if names::is_name(host) => Ok(Self::Host(host.to_ascii_lowercase())),
            Err(()) if host.starts_with('@') => Err(format!(
                "'{host}' is no network (@192.168.0.0/24, @[fd00::]/8), and netgroups are not looked up"
            )),
            Err(()) => Err(format!(
                "'{host}' is no address, network or name of a host (192.168.0.0/24, [fd00::]/8, \
                 host.example); patterns of names are not looked up"
            )),
        }
    }
}

/// Clients and what they may.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Client {
    who: Who,
    is_read_only: bool,
}

/// Whose requests are those of the anonymous user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Squash {
    None,
    Root,
    All,
}

/// How clients are let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    clients: Vec<Client>,
    /// Those whose root is root.
    roots: Vec<Who>,
    squash: Squash,
    anonymous: (u32, u32),
    is_sync: bool,
    needs_reserved_port: bool,
    lists_attributes: bool,
}

/// What a client may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// It may only read.
    pub is_read_only: bool,
    /// Changes of names and attributes are to be stable before they are answered.
    pub is_sync: bool,
    /// Directories may be listed with attributes.
    pub lists_attributes: bool,
    squash: Squash,
    anonymous: (u32, u32),
}

impl Grant {
    /// The user of a request.
    pub fn user(&self, by: Option<&Credentials>) -> Credentials {
        let (uid, gid) = self.anonymous;
        let Some(by) = by.filter(|_| self.squash != Squash::All) else {
            return Credentials { uid, gid, groups: Vec::new() };
        };
        let mut by = by.clone();
        if self.squash == Squash::Root {
            if by.uid == 0 {
                by.uid = uid;
            }
            by.groups
                .iter_mut()
                .chain([&mut by.gid])
                .filter(|group| **group == 0)
                .for_each(|group| *group = gid);
        }
        by
    }
}

impl Rules {
    /// What a client from an address and a port may; nothing if it is not let in. May block the thread.
    pub fn grant(&self, address: IpAddr, port: u16) -> Option<Grant> {
        if self.needs_reserved_port && port >= RESERVED {
            return None;
        }
        let meant = self.clients.iter().filter(|client| client.who.has(address));
        let client = meant.max_by_key(|client| (client.who.rank(), client.is_read_only))?;
        let is_root = self.squash == Squash::Root && self.roots.iter().any(|who| who.has(address));
        Some(Grant {
            is_read_only: client.is_read_only,
            is_sync: self.is_sync,
            lists_attributes: self.lists_attributes,
            squash: if is_root { Squash::None } else { self.squash },
            anonymous: self.anonymous,
        })
    }

    /// The addresses, networks and hosts that are let in, for a client that asks; `*` for all.
    pub fn clients(&self) -> impl Iterator<Item = String> {
        self.clients.iter().map(|client| client.who.to_string())
    }

    fn add(&mut self, list: Option<&str>, is_read_only: bool) -> Result<(), String> {
        let Some(list) = list else {
            self.clients.push(Client { who: Who::All, is_read_only });
            return Ok(());
        };
        for who in hosts(list).map(str::parse) {
            self.clients.push(Client { who: who?, is_read_only });
        }
        Ok(())
    }
}

/// A network as a list has it: without a colon outside of brackets.
fn bracketed(network: &str) -> String {
    match network.split_once('/') {
        _ if !network.contains(':') => network.to_owned(),
        Some((address, bits)) => format!("[{address}]/{bits}"),
        None => format!("[{network}]"),
    }
}

/// The parts of a list with colons between them, which addresses in brackets may have too.
fn hosts(list: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    let split = list.split(move |character: char| {
        is_inside = (is_inside || character == '[') && character != ']';
        character == ':' && !is_inside
    });
    split.filter(|host| !host.is_empty())
}

fn anonymous(option: &str, value: Option<&str>) -> Result<u32, String> {
    match value.map(str::parse::<i64>) {
        Some(Ok(-1)) => Ok(NOBODY),
        Some(Ok(number)) => u32::try_from(number).map_err(|_| format!("'{option}' needs a number")),
        _ => Err(format!("'{option}' needs a number")),
    }
}

impl FromStr for Rules {
    type Err = String;

    /// Reads the value of the property, which is not `off`.
    ///
    /// # Errors
    /// What cannot be honoured, for a person.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut rules = Self {
            clients: Vec::new(),
            roots: Vec::new(),
            squash: Squash::Root,
            anonymous: (NOBODY, NOBODY),
            is_sync: true,
            needs_reserved_port: true,
            lists_attributes: true,
        };
        let options = if text == "on" { "rw" } else { text };
        for option in options.split(',') {
            let (name, value) =
                option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
            match (name, value) {
                ("rw" | "ro", list) => rules.add(list, name == "ro")?,
                ("root", Some(list)) => {
                    rules.roots.extend(hosts(list).map(str::parse).collect::<Result<Vec<Who>, _>>()?);
                }
                ("root_squash", None) if rules.squash == Squash::None => rules.squash = Squash::Root,
                ("no_all_squash", None) if rules.squash == Squash::All => rules.squash = Squash::Root,
                ("root_squash" | "no_all_squash", None) => {}
                ("no_root_squash", None) if rules.squash == Squash::Root => rules.squash = Squash::None,
                ("no_root_squash", None) => {}
                ("all_squash", None) => rules.squash = Squash::All,
                ("anonuid" | "anon", value) => rules.anonymous.0 = anonymous(name, value)?,
                ("anongid", value) => rules.anonymous.1 = anonymous(name, value)?,
                ("sync", None) => rules.is_sync = true,
                ("async", None) => rules.is_sync = false,
                ("secure", None) => rules.needs_reserved_port = true,
                ("insecure", None) => rules.needs_reserved_port = false,
                ("nordirplus", None) => rules.lists_attributes = false,
                ("sec", Some(kinds)) if kinds.split(':').any(|kind| kind == "sys") => {}
                ("sec", _) => return Err(format!("'{option}' cannot be: there is only 'sec=sys'")),
                (name, _) if INERT.contains(&name) => {}
                _ => return Err(format!("'{name}' is no option that NFS is served with here")),
            }
        }
        if rules.clients.is_empty() {
            rules.clients.push(Client { who: Who::All, is_read_only: false });
        }
        Ok(rules)
    }
}

impl fmt::Display for Rules {
    /// The value of the property in a short form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        for client in &self.clients {
            let access = if client.is_read_only { "ro" } else { "rw" };
            words.push(match &client.who {
                Who::All => access.to_owned(),
                who => format!("{access}={}", who.in_list()),
            });
        }
        words.extend(self.roots.iter().map(|who| format!("root={}", who.in_list())));
        let (uid, gid) = self.anonymous;
        for (is_said, word) in [
            (self.squash == Squash::None, "no_root_squash".to_owned()),
            (self.squash == Squash::All, "all_squash".to_owned()),
            (uid != NOBODY, format!("anonuid={uid}")),
            (gid != NOBODY, format!("anongid={gid}")),
            (!self.is_sync, "async".to_owned()),
            (!self.needs_reserved_port, "insecure".to_owned()),
            (!self.lists_attributes, "nordirplus".to_owned()),
        ] {
            words.extend(is_said.then_some(word));
        }
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        text.parse().expect(text)
    }

    fn access(text: &str, address: &str) -> Option<bool> {
        rules(text).grant(address.parse().unwrap(), 700).map(|grant| grant.is_read_only)
    }

    #[test]
    fn an_address_gets_what_the_closest_entry_says() {
        assert_eq!(access("on", "10.0.0.1"), Some(false));
        assert_eq!(access("ro", "::1"), Some(true));
        assert_eq!(access("no_root_squash", "10.0.0.1"), Some(false), "for all without a list");
        let text = "rw=@192.168.0.0/24:10.1.1.1,ro=@192.168.0.0/16:@[fd00::]/8";
        assert_eq!(access(text, "192.168.0.9"), Some(false));
        assert_eq!(access(text, "192.168.1.9"), Some(true));
        assert_eq!(access(text, "10.1.1.1"), Some(false));
        assert_eq!(access(text, "10.1.1.2"), None);
        assert_eq!(access(text, "fd00::7"), Some(true));
        assert_eq!(access(text, "fe80::7"), None);
        assert_eq!(access("ro,rw=10.0.0.0/8", "10.0.0.1"), Some(false));
        assert_eq!(access("ro,rw=10.0.0.0/8", "11.0.0.1"), Some(true));
        assert_eq!(access("rw=10.0.0.0/8,ro=10.0.0.0/8", "10.0.0.1"), Some(true));
        assert_eq!(access("rw=127.0.0.1", "::ffff:127.0.0.1"), Some(false));
        assert_eq!(access("ro=localhost", "127.0.0.1"), Some(true), "the name of a host");
        assert_eq!(access("ro=localhost", "10.0.0.1"), None);
    }

    #[test]
    fn ports_of_any_user_are_let_in_only_where_that_is_said() {
        let port = |text: &str| rules(text).grant("::1".parse().unwrap(), 40_000).is_some();
        assert!(!port("on") && !port("rw,secure"));
        assert!(port("rw,insecure"));
    }

    #[test]
    fn users_are_squashed_as_asked_for() {
        let user = |text: &str, uid, gid, groups: &[u32]| {
            let by = Credentials { uid, gid, groups: groups.to_vec() };
            let grant = rules(text).grant("::1".parse().unwrap(), 1).unwrap();
            let user = grant.user(Some(&by));
            (user.uid, user.gid, user.groups)
        };
        assert_eq!(user("on", 0, 0, &[0, 5]), (65_534, 65_534, vec![65_534, 5]));
        assert_eq!(user("on", 7, 8, &[0]), (7, 8, vec![65_534]));
        assert_eq!(user("no_root_squash", 0, 0, &[0]), (0, 0, vec![0]));
        assert_eq!(user("all_squash,anonuid=12,anongid=13", 7, 8, &[9]), (12, 13, vec![]));
        assert_eq!(user("root=[::1]:10.0.0.1", 0, 0, &[0]), (0, 0, vec![0]));
        assert_eq!(user("root=10.0.0.1", 0, 1, &[]).0, 65_534);
        assert_eq!(user("root=[::1],all_squash", 0, 1, &[]).0, 65_534);
        assert_eq!(user("no_root_squash,root_squash,anon=5", 0, 1, &[]), (5, 1, vec![]));
        assert_eq!(user("anonuid=-1", 0, 1, &[]).0, 65_534);
        let grant = rules("no_root_squash").grant("::1".parse().unwrap(), 1).unwrap();
        assert_eq!(grant.user(None).uid, 65_534, "a client that says no user is not root");
    }

    #[test]
    fn what_cannot_be_honoured_is_named() {
        for (text, named) in [
            ("rw=*.example.org", "'*.example.org'"),
            ("root=host:@netgroup", "'@netgroup'"),
            ("rw=@netgroup", "'@netgroup'"),
            ("rw=192.168.0.0/255.255.0.0", "'192.168.0.0/255.255.0.0'"),
            ("sec=krb5", "'sec=krb5'"),
            ("fsuid", "'fsuid'"),
            ("refer=/a@b", "'refer'"),
            ("async=1", "'async'"),
        ] {
            let why = text.parse::<Rules>().expect_err(text);
            assert!(why.contains(named), "{text}: {why}");
        }
        for text in ["rw=host.example", "ro=10.0.0.0/8,root=10.1.1.1,root=[fd00::1]"] {
            assert_eq!(rules(text).to_string(), text);
        }
        for text in ["sec=krb5:sys,crossmnt,no_subtree_check,fsid=0,mp", "rw=*"] {
            assert_eq!(rules(text).to_string(), "rw");
        }
        let text = "rw=10.0.0.0/8,ro=[fd00::]/8,all_squash,anonuid=1,anongid=2,async,insecure,nordirplus";
        assert_eq!(rules(text).to_string(), text);
    }
}
