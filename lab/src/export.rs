//! What can be found out about an NBD export or an iSCSI disk before anything is read or written.
//!
//! A URI is parsed on any machine ([`Export::parse`]). On the machine that runs the experiment its server is
//! asked ([`Export::look`]). An NBD server reports the size of an export and whether it may be written
//! (`NBD_OPT_INFO`, which begins no session). For an iSCSI disk, libiscsi's program reports the size
//! ([`READ_CAPACITY`]), under the name that fio logs in with. Without that program the disk is not measured,
//! because fio silently uses less of a disk that is too small. An NBD server behind TLS is asked by libnbd's
//! program ([`NBDINFO`]), which reads the same URI as fio, with the certificates that libnbd finds by itself.
//! Exports that are reached in another way (`vsock`, `ssh`) are not asked.
//!
//! Source: the NBD protocol (`doc/proto.md`: fixed newstyle negotiation) and its URIs (`doc/uri.md`);
//! libiscsi's `README` for `iscsi://[USER[%PASSWORD]@]HOST[:PORT]/TARGET/LUN`, and the output of its
//! programs.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::size::Size;

/// How long a server may take for anything.
const LIMIT: Duration = Duration::from_secs(5);
/// How often a program is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(5);
const NBD_PORT: u16 = 10_809;
const ISCSI_PORT: u16 = 3260;

/// libiscsi's program that says how large a disk is.
pub(crate) const READ_CAPACITY: &str = "iscsi-readcapacity16";
/// libnbd's program that says what an export is.
pub(crate) const NBDINFO: &str = "nbdinfo";
/// What names files in an NBD URI; libnbd opens none unless a program lets it, which fio does not (3.33:
/// "local file access is not allowed").
const OF_FILES: [&str; 2] = ["tls-certificates", "tls-psk-file"];
/// The name by which fio's engine logs in: a server may hide the disk from others.
const INITIATOR: &str = "iqn.2019-04.org.fio:fio";

const HELLO: &[u8; 8] = b"NBDMAGIC";
const OPTION: &[u8; 8] = b"IHAVEOPT";
const REPLY: u64 = 0x0003_e889_0455_65a9;
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
const ABORT: u32 = 2;
const INFO: u32 = 6;
const ACK: u32 = 1;
const TOLD: u32 = 3;
const UNSUPPORTED: u32 = (1 << 31) + 1;
/// A server describes an export in a few answers, each short.
const MOST_ANSWERS: usize = 64;
const MOST_BYTES: u32 = 64 << 10;

/// Where an export is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Export {
    way: Way,
    /// Its name, of NBD.
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    Tcp(String, u16),
    Unix(PathBuf),
    Iscsi {
        host: String,
        port: u16,
        uri: String,
    },
    /// NBD within TLS, by its URI.
    Tls(String),
    /// What is not asked.
    Other,
}

/// A server's description of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExportFacts {
    pub size: Size,
    /// Whether it says that nothing is written; a disk behind iSCSI is not asked that.
    pub is_read_only: bool,
}

impl Export {
    /// The Unix socket and the name of an NBD export that has one.
    pub fn socket(&self) -> Option<(&Path, &str)> {
        if let Way::Unix(socket) = &self.way { Some((socket, &self.name)) } else { None }
    }

    /// Reads a URI; what is wrong with it, where something is.
    pub fn parse(uri: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("'{uri}' is no URI of an export: {what}");
        let (scheme, rest) = uri.split_once("://").ok_or_else(|| {
            wrong(
                "write for example nbd://server/export, nbd+unix:///export?socket=/run/nbd.sock or \
                iscsi://server/TARGET/LUN",
            )
        })?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, name) = rest.split_once('/').unwrap_or((rest, ""));
        let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
        let decoded =
            |text: &str| decoded(text).ok_or_else(|| wrong("'%' stands before two hexadecimal digits"));
        let host = |port: u16| {
            let (host, given) = host_and_port(place).ok_or_else(|| wrong("its port is no number"))?;
            if host.is_empty() {
                return Err(wrong("it names no server"));
            }
            Ok((decoded(host)?, given.unwrap_or(port)))
        };
        let way = match scheme {
            "nbd" => host(NBD_PORT).map(|(host, port)| Way::Tcp(host, port))?,
            "nbds" => host(NBD_PORT).map(|_| Way::Tls(uri.to_owned()))?,
            "nbd+unix" | "nbds+unix" => {
                let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
                let socket = socket.filter(|socket| !socket.is_empty());
                let socket = socket.ok_or_else(|| wrong("it names no socket (?socket=/run/nbd.sock)"))?;
                match scheme {
                    "nbd+unix" => Way::Unix(decoded(socket)?.into()),
                    _ => Way::Tls(uri.to_owned()),
                }
            }
            "nbd+vsock" | "nbds+vsock" | "nbd+ssh" => Way::Other,
            "iscsi" => {
                let (host, port) = host(ISCSI_PORT)?;
                let is_disk = name
                    .split_once('/')
                    .is_some_and(|(target, lun)| !target.is_empty() && lun.parse::<u16>().is_ok());
                if !is_disk {
                    return Err(wrong(
                        "after the server it needs the name of a target and the number of a \
                        disk",
                    ));
                }
                Way::Iscsi { host, port, uri: uri.to_owned() }
            }
            _ => return Err(wrong("it begins with nbd://, nbds://, nbd+unix://, nbds+unix:// or iscsi://")),
        };
        let file = query.split('&').filter_map(|pair| pair.split_once('='));
        let file = file.map(|(key, _)| key).find(|key| OF_FILES.contains(key));
        if let (Way::Tls(_), Some(key)) = (&way, file) {
            return Err(wrong(&format!(
                "fio reads no files that a URI names ({key}). Leave it out: libnbd finds certificates in \
                 ~/.pki/libnbd by itself, for root in /etc/pki/libnbd; or connect a block device \
                 (nbd-client) and measure that"
            )));
        }
        Ok(Self { way, name: decoded(name)? })
    }

    /// Whether it is a disk behind iSCSI.
    pub fn is_iscsi(&self) -> bool {
        matches!(self.way, Way::Iscsi { .. })
    }

    /// The program that asks it what it is, where that is not done here.
    pub fn asked_by(&self) -> Option<&'static str> {
        match self.way {
            Way::Iscsi { .. } => Some(READ_CAPACITY),
            Way::Tls(_) => Some(NBDINFO),
            _ => None,
        }
    }

    /// Asks its server; nothing if that is unknown.
    pub fn look(&self) -> Result<Option<ExportFacts>, String> {
        let failed = |error: io::Error| format!("no server answers: {error}");
        match &self.way {
            Way::Tcp(host, port) => {
                let mut stream = connect(host, *port).map_err(failed)?;
                asked(&mut stream, &self.name)
            }
            Way::Unix(socket) => {
                let connected = UnixStream::connect(socket).and_then(|stream| {
                    stream.set_read_timeout(Some(LIMIT))?;
                    stream.set_write_timeout(Some(LIMIT))?;
                    Ok(stream)
                });
                let mut stream = connected
                    .map_err(|error| format!("no server answers at {}: {error}", socket.display()))?;
                asked(&mut stream, &self.name)
            }
            Way::Iscsi { host, port, uri } => {
                connect(host, *port).map_err(failed)?;
                capacity(capacity_of(uri), LIMIT)
            }
            Way::Tls(uri) => {
                let mut command = Command::new(NBDINFO);
                command.args(["--json", "--no-content", uri]);
                info(command, LIMIT)
            }
            Way::Other => Ok(None),
        }
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("there is no server '{host}'"));
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, LIMIT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(LIMIT))?;
                stream.set_write_timeout(Some(LIMIT))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The program that asks an iSCSI disk for its size.
fn capacity_of(uri: &str) -> Command {
    let mut command = Command::new(READ_CAPACITY);
    command.args(["-s", "-i", INITIATOR, uri]);
    command
}

/// The answer of such a command; nothing if its program is not installed.
fn capacity(command: Command, limit: Duration) -> Result<Option<ExportFacts>, String> {
    let size = |said: &str| said.trim().parse::<u64>().ok().filter(|size| *size > 0);
    let told = |said: &str| size(said).map(|size| ExportFacts { size: Size(size), is_read_only: false });
    asked_of(command, READ_CAPACITY, limit, told)
}

/// The same of what [`NBDINFO`] says as JSON.
fn info(command: Command, limit: Duration) -> Result<Option<ExportFacts>, String> {
    let told = |said: &str| {
        let said: serde_json::Value = serde_json::from_str(said).ok()?;
        let export = said.get("exports")?.get(0)?;
        let size = export.get("export-size")?.as_u64().filter(|size| *size > 0)?;
        let is_read_only = export.get("is_read_only").and_then(serde_json::Value::as_bool).unwrap_or(false);
        Some(ExportFacts { size: Size(size), is_read_only })
    };
    asked_of(command, NBDINFO, limit, told)
}

/// The answer of a program; nothing if it is not installed.
fn asked_of(
    mut command: Command,
    program: &str,
    limit: Duration,
    told: impl Fn(&str) -> Option<ExportFacts>,
) -> Result<Option<ExportFacts>, String> {
    let failed = |error: io::Error| format!("{program}, which reports its size: {error}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        spawned => spawned.map_err(failed)?,
    };
    let began = Instant::now();
    // What it says fits into a pipe, so that it ends without being read.
    while child.try_wait().map_err(failed)?.is_none() {
        if began.elapsed() > limit {
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            return Err(format!("the server did not report its size within {} s", limit.as_secs()));
        }
        thread::sleep(LOOK);
    }
    let ended = child.wait_with_output().map_err(failed)?;
    let said = String::from_utf8_lossy(&ended.stdout).trim().to_owned();
    match told(&said) {
        Some(told) if ended.status.success() => Ok(Some(told)),
        _ => {
            let why = String::from_utf8_lossy(&ended.stderr).trim().replace('\n', "; ");
            let why = if why.is_empty() { said } else { why };
            Err(format!("the server does not report its size ({program}: {why})"))
        }
    }
}

/// A host, without the brackets of an IPv6 address, and the port where one is given.
fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    match port {
        "" => Some((host, None)),
        port => Some((host, Some(port.strip_prefix(':')?.parse().ok()?))),
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digits = after.first_chunk::<2>()?;
            bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

/// Asks an NBD server of an export.
fn asked(stream: &mut (impl Read + Write), name: &str) -> Result<Option<ExportFacts>, String> {
    negotiated(stream, name).unwrap_or_else(|error| Err(format!("the server does not speak NBD: {error}")))
}

fn negotiated(
    stream: &mut (impl Read + Write),
    name: &str,
) -> io::Result<Result<Option<ExportFacts>, String>> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut hello = [0; 16];
    stream.read_exact(&mut hello)?;
    if hello[..8] != *HELLO {
        return Err(wrong("it greets otherwise"));
    }
    if hello[8..] != *OPTION {
        // The old way, which has no negotiation.
        return Ok(Ok(None));
    }
    let flags = u16::from_be_bytes(read(stream)?);
    if flags & FIXED_NEWSTYLE == 0 {
        return Ok(Ok(None));
    }
    stream.write_all(&u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes())?;
    let length = u32::try_from(name.len()).map_err(io::Error::other)?;
    let request = [&length.to_be_bytes(), name.as_bytes(), &0_u16.to_be_bytes()].concat();
    send(stream, INFO, &request)?;
    let mut told = None;
    for _ in 0..MOST_ANSWERS {
        if u64::from_be_bytes(read(stream)?) != REPLY || u32::from_be_bytes(read(stream)?) != INFO {
            return Err(wrong("it answers something else"));
        }
        let (kind, length) = (u32::from_be_bytes(read(stream)?), u32::from_be_bytes(read(stream)?));
        if length > MOST_BYTES {
            return Err(wrong("its answer is too long"));
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        match kind {
            ACK => {
                farewell(stream);
                return Ok(Ok(told));
            }
            TOLD => {
                // Of kind 0: the size, and flags of which the second says that nothing is written.
                if let (Some([0, 0]), Some(size), Some(flags)) =
                    (data.first_chunk(), data.get(2..10), data.get(10..12))
                {
                    let size = size.try_into().map(u64::from_be_bytes).map_err(io::Error::other)?;
                    told = Some(ExportFacts { size: Size(size), is_read_only: flags[1] & 2 != 0 });
                }
            }
            UNSUPPORTED => {
                farewell(stream);
                return Ok(Ok(None));
            }
            kind if kind >> 31 == 1 => {
                let said = String::from_utf8_lossy(&data).trim().to_owned();
                let why = match (kind & 0x7fff_ffff, said.is_empty()) {
                    (_, false) => said,
                    (2, _) => "policy".to_owned(),
                    (5, _) => "it wants TLS (nbds://)".to_owned(),
                    (6, _) => "there is no such export".to_owned(),
                    (code, _) => format!("error {code}"),
                };
                return Ok(Err(format!("the server refuses it: {why}")));
            }
            _ => {}
        }
    }
    Err(wrong("it does not end its answer"))
}

/// Ends the negotiation in order. A server that is gone already needs none of that.
fn farewell(stream: &mut impl Write) {
    let _ = send(stream, ABORT, &[]);
}

fn send(stream: &mut impl Write, option: u32, data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len()).map_err(io::Error::other)?;
    stream.write_all(&[OPTION.as_slice(), &option.to_be_bytes(), &length.to_be_bytes(), data].concat())
}

fn read<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    /// Serves an export `v` of so many bytes to as many as ask, as far as they ask what it is; until the test
    /// ends.
    pub(crate) fn serve(socket: &Path, size: u64, is_read_only: bool) {
        let listener = UnixListener::bind(socket).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = serve_one(&mut stream.unwrap(), size, is_read_only);
            }
        });
    }

    fn serve_one(stream: &mut UnixStream, size: u64, is_read_only: bool) -> io::Result<()> {
        stream.write_all(&[HELLO.as_slice(), OPTION, &3_u16.to_be_bytes()].concat())?;
        let _: [u8; 4] = read(stream)?;
        let _: [u8; 12] = read(stream)?;
        let mut data = vec![0; u32::from_be_bytes(read(stream)?) as usize];
        stream.read_exact(&mut data)?;
        let reply = |kind: u32, data: &[u8]| {
            let length = (data.len() as u32).to_be_bytes();
            [&REPLY.to_be_bytes(), INFO.to_be_bytes().as_slice(), &kind.to_be_bytes(), &length, data].concat()
        };
        if data[4..data.len() - 2] != *b"v" {
            return stream.write_all(&reply((1 << 31) + 6, b""));
        }
        let flags = if is_read_only { 3_u16 } else { 1 };
        let told = [&0_u16.to_be_bytes(), size.to_be_bytes().as_slice(), &flags.to_be_bytes()].concat();
        stream.write_all(&[reply(TOLD, &told), reply(ACK, b"")].concat())
    }

    #[test]
    fn exports_are_asked_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let look = |socket: &str, name: &str| {
            let socket = directory.path().join(socket);
            Export::parse(&format!("nbd+unix:///{name}?socket={}", socket.display())).unwrap().look()
        };
        for is_read_only in [false, true] {
            let socket = format!("socket {is_read_only}");
            serve(&directory.path().join(&socket), 3 << 20, is_read_only);
            assert_eq!(look(&socket, "%76"), Ok(Some(ExportFacts { size: Size(3 << 20), is_read_only })));
            assert!(look(&socket, "w").unwrap_err().contains("no such export"));
        }
        assert!(look("nowhere", "v").unwrap_err().contains("no server answers"));
        let mut other = std::io::Cursor::new(b"SSH-2.0-something else that is long".to_vec());
        assert!(asked(&mut other, "v").unwrap_err().contains("does not speak NBD"));
    }

    #[test]
    fn disks_behind_iscsi_are_asked_how_large_they_are() {
        let asked = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            capacity(command, Duration::from_secs(1))
        };
        let told = Some(ExportFacts { size: Size(32 << 20), is_read_only: false });
        assert_eq!(asked("echo 33554432"), Ok(told));
        for (script, said) in [
            ("echo 'Login Failed. No such target' >&2; exit 10", "Login Failed. No such target"),
            ("echo 33554432; exit 10", "does not report its size"),
            ("echo 0", "does not report its size"),
            ("echo something else", "something else"),
            ("exec sleep 60", "within 1 s"),
        ] {
            let error = asked(script).unwrap_err();
            assert!(error.contains(said), "{script}: {error}");
        }
        assert_eq!(capacity(Command::new("/no/such/program"), LIMIT), Ok(None));
    }

    #[test]
    fn exports_within_tls_are_asked_by_libnbd() {
        let asked = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            info(command, Duration::from_secs(1))
        };
        let json = |read_only: bool| {
            format!(
                r#"{{"protocol":"newstyle-fixed","TLS":true,"exports":[{{"export-name":"v","is_read_only":{read_only},"export-size":33554432}}]}}"#
            )
        };
        for is_read_only in [false, true] {
            let told = ExportFacts { size: Size(32 << 20), is_read_only };
            assert_eq!(asked(&format!("echo '{}'", json(is_read_only))), Ok(Some(told)));
        }
        for (script, said) in [
            ("echo 'nbdinfo: nbd_connect_uri: certificate' >&2; exit 1", "certificate"),
            ("echo '{}'", "does not report its size"),
            ("exec sleep 60", "within 1 s"),
        ] {
            let error = asked(script).unwrap_err();
            assert!(error.contains(said), "{script}: {error}");
        }
        assert_eq!(info(Command::new("/no/such/program"), LIMIT), Ok(None));
        for uri in ["nbds://h/v", "nbds+unix:///v?socket=/s&tls-verify-peer=false"] {
            let export = Export::parse(uri).unwrap();
            assert_eq!((export.asked_by(), export.way), (Some(NBDINFO), Way::Tls(uri.to_owned())));
        }
    }

    #[test]
    fn uris_name_a_server_and_what_it_serves() {
        let way = |uri: &str| Export::parse(uri).map(|export| export.way);
        let tcp = |host: &str, port| Ok(Way::Tcp(host.to_owned(), port));
        assert_eq!(way("nbd://h/v"), tcp("h", 10_809));
        assert_eq!(way("nbd://user@h:99"), tcp("h", 99));
        assert_eq!(way("nbd://[::1]:99/a/b"), tcp("::1", 99));
        assert_eq!(way("nbd+unix:///v?socket=/a%20b"), Ok(Way::Unix("/a b".into())));
        let uri = "iscsi://u%p@h/iqn.2016-02.com.example:disk/1";
        assert_eq!(way(uri), Ok(Way::Iscsi { host: "h".into(), port: 3260, uri: uri.into() }));
        for wrong in [
            "h/v",
            "file:///etc/passwd",
            "nbd:///v",
            "nbd://h:port/v",
            "nbd+unix:///v",
            "nbd+unix:///v?socket=",
            "nbd://h/%zz",
            "iscsi://h/v",
            "iscsi:///t/1",
            "nbds+unix:///v?socket=/s&tls-psk-file=/k",
            "nbds://h/v?tls-certificates=/c",
        ] {
            assert!(way(wrong).is_err_and(|error| error.contains(wrong)), "{wrong}");
        }
    }
}
