//! A small NFS client, for what libnfs's programs do not do: all procedures, any user, and nonsense.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::FromRawFd;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use testkit::manifest::{Stat, Tree};

pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;

/// The statuses that tests look for.
pub const NOENT: u32 = 2;
pub const ACCES: u32 = 13;
pub const EXIST: u32 = 17;
pub const ROFS: u32 = 30;
pub const STALE: u32 = 70;
pub const BADHANDLE: u32 = 10_001;
pub const JUKEBOX: u32 = 10_008;

/// Bytes of a request.
#[derive(Debug, Default, Clone)]
pub struct Xdr(pub Vec<u8>);

impl Xdr {
    pub fn number(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub fn long(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub fn opaque(self, bytes: &[u8]) -> Self {
        let mut with = self.number(bytes.len() as u32);
        with.0.extend_from_slice(bytes);
        with.0.resize(with.0.len().next_multiple_of(4), 0);
        with
    }

    /// Attributes to set: a mode or nothing, a size or nothing.
    pub fn attributes(self, mode: Option<u32>, size: Option<u64>) -> Self {
        let with = match mode {
            Some(mode) => self.number(1).number(mode),
            None => self.number(0),
        };
        let with = with.number(0).number(0);
        let with = match size {
            Some(size) => with.number(1).long(size),
            None => with.number(0),
        };
        with.number(0).number(0)
    }
}

/// Bytes of an answer.
#[derive(Debug, Clone)]
pub struct Answer {
    bytes: Vec<u8>,
    at: usize,
}

impl Answer {
    pub fn number(&mut self) -> u32 {
        let bytes = self.bytes[self.at..self.at + 4].try_into().unwrap();
        self.at += 4;
        u32::from_be_bytes(bytes)
    }

    pub fn long(&mut self) -> u64 {
        u64::from(self.number()) << 32 | u64::from(self.number())
    }

    pub fn opaque(&mut self) -> Vec<u8> {
        let length = self.number() as usize;
        let bytes = self.bytes[self.at..self.at + length].to_vec();
        self.at += length.next_multiple_of(4);
        bytes
    }

    pub fn attributes(&mut self) -> Attributes {
        let [kind, mode, links, uid, gid] = std::array::from_fn(|_| self.number());
        let (size, used) = (self.long(), self.long());
        let device = (self.number(), self.number());
        let (filesystem, number) = (self.long(), self.long());
        let [atime, mtime, ctime] = std::array::from_fn(|_| (self.number(), self.number()));
        Attributes {
            kind,
            mode,
            links,
            uid,
            gid,
            size,
            used,
            device,
            filesystem,
            number,
            atime,
            mtime,
            ctime,
        }
    }

    /// Attributes that may be absent.
    pub fn after(&mut self) -> Option<Attributes> {
        (self.number() == 1).then(|| self.attributes())
    }

    /// Attributes before and after a change.
    pub fn change(&mut self) -> Option<Attributes> {
        assert_eq!(self.number(), 0, "attributes before are not told");
        self.after()
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    pub kind: u32,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub device: (u32, u32),
    pub filesystem: u64,
    pub number: u64,
    pub atime: (u32, u32),
    pub mtime: (u32, u32),
    pub ctime: (u32, u32),
}

/// The user of requests.
#[derive(Debug, Clone)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl User {
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new() }
    }

    pub fn of(uid: u32) -> Self {
        Self { uid, gid: uid, groups: Vec::new() }
    }
}

/// A connection. Each method panics where the protocol is broken.
#[derive(Debug)]
pub struct Client {
    pub socket: TcpStream,
    number: u32,
    pub user: Option<User>,
}

pub type Handle = Vec<u8>;
/// A result with a status of NFS.
pub type Nfs<T> = std::result::Result<T, u32>;

/// A name with what came beside it.
pub type Listed = (Vec<u8>, Option<Attributes>, Option<Handle>);

impl Client {
    pub fn connect(address: SocketAddr, user: User) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        Self::of(socket, user)
    }

    fn of(socket: TcpStream, user: User) -> Self {
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.set_nodelay(true).unwrap();
        // Other clients of the machine have other numbers.
        let number = u32::from(socket.local_addr().unwrap().port()) << 16;
        Self { socket, number, user: Some(user) }
    }

    /// From a port that only root may use, and another address of this machine.
    pub fn connect_reserved(address: SocketAddr, from: [u8; 4], user: User) -> Self {
        // SAFETY: plain system calls on a descriptor that is ours, with a structure of the right size.
        let socket = unsafe {
            let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            assert!(socket >= 0);
            let bound = (600..1023).any(|port: u16| {
                let mut own: libc::sockaddr_in = std::mem::zeroed();
                own.sin_family = libc::AF_INET as libc::sa_family_t;
                own.sin_port = port.to_be();
                own.sin_addr.s_addr = u32::from_ne_bytes(from);
                libc::bind(socket, (&raw const own).cast(), size_of_val(&own) as u32) == 0
            });
            assert!(bound, "no reserved port is free, or this is not root");
            let SocketAddr::V4(to) = address else { panic!("an address of IPv4") };
            let mut there: libc::sockaddr_in = std::mem::zeroed();
            there.sin_family = libc::AF_INET as libc::sa_family_t;
            there.sin_port = to.port().to_be();
            there.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
            assert_eq!(libc::connect(socket, (&raw const there).cast(), size_of_val(&there) as u32), 0);
            TcpStream::from_raw_fd(socket)
        };
        Self::of(socket, user)
    }

    /// A call up to its arguments.
    pub fn head(&self, number: u32, program: u32, version: u32, procedure: u32) -> Xdr {
        let call = [number, 0, 2, program, version, procedure];
        let head = call.into_iter().fold(Xdr::default(), Xdr::number);
        let head = match &self.user {
            None => head.number(0).number(0),
            Some(user) => {
                let body = Xdr::default().number(7).opaque(b"test").number(user.uid).number(user.gid);
                let body = body.number(user.groups.len() as u32);
                let body = user.groups.iter().fold(body, |body, group| body.number(*group));
                head.number(1).opaque(&body.0)
            }
        };
        head.number(0).number(0)
    }

    pub fn send(&mut self, record: &[u8]) {
        let mut bytes = (record.len() as u32 | 1 << 31).to_be_bytes().to_vec();
        bytes.extend_from_slice(record);
        self.socket.write_all(&bytes).unwrap();
    }

    /// The next answer; nothing where the connection ended.
    pub fn receive(&mut self) -> Option<Answer> {
        let mut head = [0; 4];
        self.socket.read_exact(&mut head).ok()?;
        let head = u32::from_be_bytes(head);
        assert_eq!(head >> 31, 1, "one fragment");
        let mut bytes = vec![0; (head & !(1 << 31)) as usize];
        self.socket.read_exact(&mut bytes).ok()?;
        Some(Answer { bytes, at: 0 })
    }

    /// The outcome of a call: 0 and its result, or another number.
    pub fn call_as(&mut self, program: u32, version: u32, procedure: u32, arguments: &Xdr) -> (u32, Answer) {
        self.number += 1;
        let mut record = self.head(self.number, program, version, procedure);
        record.0.extend_from_slice(&arguments.0);
        self.send(&record.0);
        let mut answer = self.receive().expect("the connection ended");
        assert_eq!((answer.number(), answer.number()), (self.number, 1));
        if answer.number() != 0 {
            return (u32::MAX, answer);
        }
        assert_eq!((answer.number(), answer.number()), (0, 0), "the verifier");
        (answer.number(), answer)
    }

    pub fn call(&mut self, procedure: u32, arguments: &Xdr) -> Nfs<Answer> {
        let (outcome, mut answer) = self.call_as(NFS, 3, procedure, arguments);
        assert_eq!(outcome, 0, "the call was refused");
        match answer.number() {
            0 => Ok(answer),
            status => Err(status),
        }
    }

    pub fn mount(&mut self, path: &str) -> Nfs<Handle> {
        let (outcome, mut answer) = self.call_as(MOUNT, 3, 1, &Xdr::default().opaque(path.as_bytes()));
        assert_eq!(outcome, 0);
        match answer.number() {
            0 => Ok(answer.opaque()),
            status => Err(status),
        }
    }

    /// What is shared, each with those to whom.
    pub fn exports(&mut self) -> Vec<(String, Vec<String>)> {
        let (outcome, mut answer) = self.call_as(MOUNT, 3, 5, &Xdr::default());
        assert_eq!(outcome, 0);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let mut found = Vec::new();
        while answer.number() == 1 {
            let path = text(answer.opaque());
            let mut clients = Vec::new();
            while answer.number() == 1 {
                clients.push(text(answer.opaque()));
            }
            found.push((path, clients));
        }
        assert!(answer.is_at_end());
        found
    }

    pub fn stat(&mut self, file: &[u8]) -> Nfs<Attributes> {
        self.call(1, &Xdr::default().opaque(file)).map(|mut answer| answer.attributes())
    }

    pub fn set(&mut self, file: &[u8], mode: Option<u32>, size: Option<u64>) -> Nfs<Option<Attributes>> {
        let arguments = Xdr::default().opaque(file).attributes(mode, size).number(0);
        self.call(2, &arguments).map(|mut answer| answer.change())
    }

    pub fn lookup(&mut self, dir: &[u8], name: &str) -> Nfs<Handle> {
        let arguments = Xdr::default().opaque(dir).opaque(name.as_bytes());
        self.call(3, &arguments).map(|mut answer| answer.opaque())
    }

    pub fn access(&mut self, file: &[u8], wanted: u32) -> Nfs<u32> {
        let mut answer = self.call(4, &Xdr::default().opaque(file).number(wanted))?;
        answer.after();
        Ok(answer.number())
    }

    pub fn read_link(&mut self, file: &[u8]) -> Nfs<Vec<u8>> {
        let mut answer = self.call(5, &Xdr::default().opaque(file))?;
        answer.after();
        Ok(answer.opaque())
    }

    /// Bytes, and whether the file ends behind them.
    pub fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Nfs<(Vec<u8>, bool)> {
        let mut answer = self.call(6, &Xdr::default().opaque(file).long(offset).number(count))?;
        answer.after();
        let (count, is_end) = (answer.number(), answer.number() == 1);
        let bytes = answer.opaque();
        assert_eq!(bytes.len(), count as usize);
        assert!(answer.is_at_end());
        Ok((bytes, is_end))
    }

    /// How stable it is, and the verifier.
    pub fn write(&mut self, file: &[u8], offset: u64, data: &[u8], stable: u32) -> Nfs<(u32, u64)> {
        let arguments = Xdr::default().opaque(file).long(offset).number(data.len() as u32);
        let mut answer = self.call(7, &arguments.number(stable).opaque(data))?;
        answer.change();
        assert_eq!(answer.number(), data.len() as u32);
        Ok((answer.number(), answer.long()))
    }

    /// A new file, or the one that is there.
    pub fn create(&mut self, dir: &[u8], name: &str, mode: u32) -> Nfs<Handle> {
        let arguments = Xdr::default().opaque(dir).opaque(name.as_bytes()).number(0);
        self.created(8, &arguments.attributes(Some(mode), None))
    }

    /// A new file, by `GUARDED` (1) or `EXCLUSIVE` (2) with this verifier.
    pub fn create_new(&mut self, dir: &[u8], name: &str, how: u32, verifier: u64) -> Nfs<Handle> {
        let arguments = Xdr::default().opaque(dir).opaque(name.as_bytes()).number(how);
        let arguments = match how {
            1 => arguments.attributes(Some(0o644), None),
            _ => arguments.long(verifier),
        };
        self.created(8, &arguments)
    }

    pub fn make_directory(&mut self, dir: &[u8], name: &str, mode: u32) -> Nfs<Handle> {
        let arguments = Xdr::default().opaque(dir).opaque(name.as_bytes());
        self.created(9, &arguments.attributes(Some(mode), None))
    }

    pub fn symlink(&mut self, dir: &[u8], name: &str, target: &str) -> Nfs<Handle> {
        let arguments = Xdr::default().opaque(dir).opaque(name.as_bytes()).attributes(None, None);
        self.created(10, &arguments.opaque(target.as_bytes()))
    }

    pub fn make_fifo(&mut self, dir: &[u8], name: &str) -> Nfs<Handle> {
        let arguments = Xdr::default().opaque(dir).opaque(name.as_bytes()).number(7);
        self.created(11, &arguments.attributes(Some(0o600), None))
    }

    pub fn make_device(&mut self, dir: &[u8], name: &str, device: (u32, u32)) -> Nfs<Handle> {
        let arguments = Xdr::default().opaque(dir).opaque(name.as_bytes()).number(4);
        let arguments = arguments.attributes(Some(0o600), None);
        self.created(11, &arguments.number(device.0).number(device.1))
    }

    fn created(&mut self, procedure: u32, arguments: &Xdr) -> Nfs<Handle> {
        let mut answer = self.call(procedure, arguments)?;
        assert_eq!(answer.number(), 1, "a handle");
        let handle = answer.opaque();
        assert!(answer.after().is_some());
        answer.change();
        assert!(answer.is_at_end());
        Ok(handle)
    }

    pub fn remove(&mut self, dir: &[u8], name: &str) -> Nfs<()> {
        self.call(12, &Xdr::default().opaque(dir).opaque(name.as_bytes())).map(drop)
    }

    pub fn remove_directory(&mut self, dir: &[u8], name: &str) -> Nfs<()> {
        self.call(13, &Xdr::default().opaque(dir).opaque(name.as_bytes())).map(drop)
    }

    pub fn rename(&mut self, from: (&[u8], &str), to: (&[u8], &str)) -> Nfs<()> {
        let arguments = Xdr::default().opaque(from.0).opaque(from.1.as_bytes());
        self.call(14, &arguments.opaque(to.0).opaque(to.1.as_bytes())).map(drop)
    }

    pub fn link(&mut self, file: &[u8], dir: &[u8], name: &str) -> Nfs<()> {
        self.call(15, &Xdr::default().opaque(file).opaque(dir).opaque(name.as_bytes())).map(drop)
    }

    /// All names of a directory, by requests with so many bytes each.
    pub fn list(&mut self, dir: &[u8], bytes: u32) -> Nfs<Vec<String>> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let arguments = Xdr::default().opaque(dir).long(cookie).long(0).number(bytes);
            let mut answer = self.call(16, &arguments)?;
            answer.after();
            answer.long();
            while answer.number() == 1 {
                answer.long();
                names.push(String::from_utf8_lossy(&answer.opaque()).into_owned());
                cookie = answer.long();
            }
            if answer.number() == 1 {
                return Ok(names);
            }
        }
    }

    /// All entries of a directory with their attributes and handles.
    pub fn list_all(&mut self, dir: &[u8], bytes: u32) -> Nfs<Vec<Listed>> {
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let arguments = Xdr::default().opaque(dir).long(cookie).long(0).number(bytes / 4).number(bytes);
            let mut answer = self.call(17, &arguments)?;
            answer.after();
            answer.long();
            while answer.number() == 1 {
                let number = answer.long();
                let name = answer.opaque();
                cookie = answer.long();
                let attributes = answer.after();
                assert!(attributes.is_none_or(|told| told.number == number));
                let handle = (answer.number() == 1).then(|| answer.opaque());
                entries.push((name, attributes, handle));
            }
            if answer.number() == 1 {
                return Ok(entries);
            }
        }
    }

    pub fn commit(&mut self, file: &[u8]) -> Nfs<u64> {
        let mut answer = self.call(21, &Xdr::default().opaque(file).long(0).number(0))?;
        answer.change();
        Ok(answer.long())
    }

    /// All bytes of a file.
    pub fn content(&mut self, file: &[u8]) -> Nfs<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let (bytes, is_end) = self.read(file, all.len() as u64, 300_000)?;
            all.extend_from_slice(&bytes);
            if is_end {
                return Ok(all);
            }
        }
    }
}

/// A share as a tree for the judge of golden pools.
pub struct Share {
    pub client: std::cell::RefCell<Client>,
    pub root: Handle,
}

fn failed(status: u32) -> anyhow::Error {
    anyhow::anyhow!("status {status}")
}

impl Tree for Share {
    type Node = Handle;

    fn root(&self) -> Result<Handle> {
        Ok(self.root.clone())
    }

    fn list(&self, dir: &Handle) -> Result<Vec<(Vec<u8>, Handle)>> {
        let mut client = self.client.borrow_mut();
        let mut found = Vec::new();
        for (name, attributes, handle) in client.list_all(dir, 32 << 10).map_err(failed)? {
            if name == b"." || name == b".." {
                continue;
            }
            let Some(handle) = handle else { bail!("no handle of {}", name.escape_ascii()) };
            ensure!(attributes == client.stat(&handle).ok(), "other attributes of {}", name.escape_ascii());
            found.push((name, handle));
        }
        Ok(found)
    }

    fn stat(&self, node: &Handle) -> Result<Stat> {
        let told = self.client.borrow_mut().stat(node).map_err(failed)?;
        let kind = match told.kind {
            1 => libc::S_IFREG,
            2 => libc::S_IFDIR,
            3 => libc::S_IFBLK,
            4 => libc::S_IFCHR,
            5 => libc::S_IFLNK,
            6 => libc::S_IFSOCK,
            7 => libc::S_IFIFO,
            other => bail!("type {other}"),
        };
        Ok(Stat {
            mode: kind | told.mode,
            uid: told.uid,
            gid: told.gid,
            nlink: told.links.into(),
            size: told.size,
            mtime_ns: i64::from(told.mtime.0) * 1_000_000_000 + i64::from(told.mtime.1),
            ino: told.number,
            rdev: told.device,
        })
    }

    fn read_link(&self, node: &Handle) -> Result<Vec<u8>> {
        self.client.borrow_mut().read_link(node).map_err(failed)
    }

    fn read(&self, node: &Handle, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut client = self.client.borrow_mut();
        let mut done = 0;
        while done < into.len() {
            let most = (into.len() - done).min(1 << 20) as u32;
            let (bytes, is_end) = client.read(node, offset + done as u64, most).map_err(failed)?;
            into[done..done + bytes.len()].copy_from_slice(&bytes);
            done += bytes.len();
            if is_end || bytes.is_empty() {
                break;
            }
        }
        Ok(done)
    }

    fn xattrs(&self, _: &Handle) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        // The protocol has none.
        Ok(BTreeMap::new())
    }
}
