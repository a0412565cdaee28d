//! The client's side of a handshake: it chooses an export on a socket and then hands the socket over.
//!
//! It is for the kernel's NBD client, which takes a socket after the handshake ([`crate::blockdev`]). It
//! negotiates simple replies only: the kernel understands no others.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::protocol::*;

/// Longest option reply that is read.
const MAX_REPLY_BYTES: u32 = 64 << 10;
/// Most replies to one option.
const MAX_REPLIES: usize = 64;
/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// An export that was chosen.
#[derive(Debug)]
pub struct Chosen {
    /// The socket, on which requests may be sent.
    pub socket: UnixStream,
    /// Bytes of the export.
    pub size_bytes: u64,
    /// The export's capabilities, as the protocol's transmission flags.
    pub flags: u16,
}

impl Chosen {
    /// Whether it cannot be written.
    pub fn is_read_only(&self) -> bool {
        self.flags & transmission::READ_ONLY != 0
    }
}

/// Chooses an export of the server that listens on a Unix socket. Blocks the thread.
///
/// # Errors
/// The server is not there or refuses, with its words.
pub fn choose(server: &Path, export: &str) -> io::Result<Chosen> {
    let mut socket = UnixStream::connect(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut greeting = [0; 18];
    socket.read_exact(&mut greeting)?;
    let magic = [GREETING_MAGIC.to_be_bytes(), OPTION_MAGIC.to_be_bytes()].concat();
    if greeting.get(..16) != Some(magic.as_slice()) {
        return Err(unexpected("the greeting is not that of an NBD server"));
    }
    socket.write_all(&u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes())?;

    // Name, and no information is asked for: what the export is like is told anyway.
    let name = export.as_bytes();
    let name_bytes = u32::try_from(name.len()).map_err(|_| unexpected("the name is too long"))?;
    let data = [&name_bytes.to_be_bytes(), name, &0u16.to_be_bytes()].concat();
    let mut asked = OPTION_MAGIC.to_be_bytes().to_vec();
    asked.extend(option::GO.to_be_bytes());
    asked.extend((data.len() as u32).to_be_bytes());
    asked.extend(data);
    socket.write_all(&asked)?;

    let mut told = None;
    for _ in 0..MAX_REPLIES {
        let mut head = [0; 20];
        socket.read_exact(&mut head)?;
        let word = |at: usize| {
            head.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_be_bytes)
        };
        let (kind, length) = (word(12), word(16));
        if head.get(..8) != Some(OPTION_REPLY_MAGIC.to_be_bytes().as_slice()) || length > MAX_REPLY_BYTES {
            return Err(unexpected("an answer is not that of an NBD server"));
        }
        let mut data = vec![0; length as usize];
        socket.read_exact(&mut data)?;
        match kind {
            reply::INFO => told = export_info(&data).or(told),
            reply::ACK => {
                let (size_bytes, flags) = told.ok_or_else(|| {
                    unexpected(
                        "the server did not describe the \
                    export",
                    )
                })?;
                socket.set_read_timeout(None)?;
                socket.set_write_timeout(None)?;
                return Ok(Chosen { socket, size_bytes, flags });
            }
            _ => {
                let why = String::from_utf8_lossy(&data);
                return Err(io::Error::other(format!("'{export}' is refused: {why}")));
            }
        }
    }
    Err(unexpected("the answer has no end"))
}

/// Size and flags, where that is the information.
fn export_info(data: &[u8]) -> Option<(u64, u16)> {
    let (kind, rest) = data.split_first_chunk()?;
    let (size, rest) = rest.split_first_chunk()?;
    let (flags, _) = rest.split_first_chunk()?;
    (u16::from_be_bytes(*kind) == info::EXPORT)
        .then(|| (u64::from_be_bytes(*size), u16::from_be_bytes(*flags)))
}

fn unexpected(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("NBD handshake: {what}"))
}
