//! From the greeting to an opened export (fixed newstyle).
//!
//! The client sends options one by one, each answered before the next is read. An unknown or malformed option
//! is answered with an error, and the client may go on; only breaking the framing ends the connection. If TLS
//! is required, no other option is answered before it has begun. If TLS is not available, it is refused with
//! a hint about the Unix socket.

use std::{io, sync::Arc};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{MAX_REQUEST_BYTES, protocol::*};
use crate::block::{Export, Exports, Resources, Seat, Unopened, Visit};

/// The longest option that is read: a name of the length that the protocol allows (4096), and many context
/// queries.
const MAX_OPTION_BYTES: u32 = 16 << 10;

/// How many options a client may send.
const MAX_OPTIONS: usize = 256;

/// The negotiated options of a connection.
pub(super) struct Session<E> {
    pub export: Arc<E>,
    /// Replies to reads come in chunks.
    pub structured: bool,
    /// The client may ask for block status.
    pub base_allocation: bool,
}

/// The role of TLS in a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Security {
    /// It is not offered.
    None,
    /// It must begin before anything is told.
    Required,
    /// It has begun.
    Begun,
}

/// How a handshake ends.
pub(super) enum Outcome<E> {
    /// The client left in good order without choosing an export.
    Left,
    /// TLS is to begin on the socket, and then [`resume`] goes on.
    Secure(ClientFlags),
    /// The client chose, and there is a seat for it.
    Chosen(Session<E>, Seat),
}

/// The client's answer to the greeting.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientFlags {
    no_zeroes: bool,
}

/// The state of a handshake.
struct Handshake<'a, S, X> {
    socket: &'a mut S,
    exports: &'a Visit<'a, X>,
    resources: &'a Arc<Resources>,
    security: Security,
    client: ClientFlags,
    structured: bool,
    /// The export for which the client chose `base:allocation`.
    allocation_of: Option<String>,
}

/// How an option leaves the handshake.
enum Next<E> {
    Continue,
    End(Outcome<E>),
}

/// Leads the handshake.
pub(super) async fn negotiate<S, X>(
    socket: &mut S,
    exports: &Visit<'_, X>,
    resources: &Arc<Resources>,
    security: Security,
) -> io::Result<Outcome<X::Export>>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    let mut greeting = Vec::with_capacity(18);
    greeting.extend(GREETING_MAGIC.to_be_bytes());
    greeting.extend(OPTION_MAGIC.to_be_bytes());
    greeting.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    socket.write_all(&greeting).await?;

    let client_flags = socket.read_u32().await?;
    if client_flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
        return Err(violation("unknown client flags"));
    }
    let client = ClientFlags { no_zeroes: client_flags & u32::from(FLAG_NO_ZEROES) != 0 };
    serve_options(socket, exports, resources, security, client).await
}

/// Goes on over TLS, from the beginning of the options.
pub(super) async fn resume<S, X>(
    socket: &mut S,
    exports: &Visit<'_, X>,
    resources: &Arc<Resources>,
    client: ClientFlags,
) -> io::Result<Outcome<X::Export>>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    serve_options(socket, exports, resources, Security::Begun, client).await
}

async fn serve_options<S, X>(
    socket: &mut S,
    exports: &Visit<'_, X>,
    resources: &Arc<Resources>,
    security: Security,
    client: ClientFlags,
) -> io::Result<Outcome<X::Export>>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    let mut handshake =
        Handshake { socket, exports, resources, security, client, structured: false, allocation_of: None };
    for _ in 0..MAX_OPTIONS {
        if let Next::End(outcome) = handshake.serve_option().await? {
            // What was answered in pieces is sent before the socket changes its owner.
            handshake.socket.flush().await?;
            return Ok(outcome);
        }
    }
    Err(violation("too many options"))
}

impl<S, X> Handshake<'_, S, X>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    async fn serve_option(&mut self) -> io::Result<Next<X::Export>> {
        if self.socket.read_u64().await? != OPTION_MAGIC {
            return Err(violation("no option magic"));
        }
        let option = self.socket.read_u32().await?;
        let len = self.socket.read_u32().await?;
        if len > MAX_OPTION_BYTES {
            return Err(violation("an option is too long"));
        }
        let mut data = vec![0; len as usize];
        self.socket.read_exact(&mut data).await?;

        if self.security == Security::Required && !matches!(option, option::STARTTLS | option::ABORT) {
            if option == option::EXPORT_NAME {
                return Err(violation("an export was chosen without TLS"));
            }
            self.reply(option, reply::ERR_TLS_REQD, b"only with TLS").await?;
            return Ok(Next::Continue);
        }
        match option {
            option::EXPORT_NAME => return self.export_name(&data).await,
            option::INFO | option::GO => return self.info(option, &data).await,
            option::ABORT => {
                // The client need not wait for the answer.
                let _ = self.reply(option, reply::ACK, &[]).await;
                return Ok(Next::End(Outcome::Left));
            }
            option::LIST => self.list(&data).await?,
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                self.reply(option, reply::ACK, &[]).await?;
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(option, &data).await?,
            option::STARTTLS if self.security == Security::None => {
                let advice = b"TLS is not offered; use the Unix socket, or a tunnel";
                self.reply(option, reply::ERR_POLICY, advice).await?;
            }
            option::STARTTLS if self.security == Security::Required && data.is_empty() => {
                self.reply(option, reply::ACK, &[]).await?;
                return Ok(Next::End(Outcome::Secure(self.client)));
            }
            option::STARTTLS => self.reply(option, reply::ERR_INVALID, &[]).await?,
            option::STRUCTURED_REPLY => self.reply(option, reply::ERR_INVALID, &[]).await?,
            _ => self.reply(option, reply::ERR_UNSUP, &[]).await?,
        }
        Ok(Next::Continue)
    }

    async fn reply(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        let mut message = Vec::with_capacity(20 + data.len());
        message.extend(OPTION_REPLY_MAGIC.to_be_bytes());
        message.extend(option.to_be_bytes());
        message.extend(kind.to_be_bytes());
        message.extend((data.len() as u32).to_be_bytes());
        message.extend(data);
        self.socket.write_all(&message).await
    }

    async fn list(&mut self, data: &[u8]) -> io::Result<()> {
        if !data.is_empty() {
            return self.reply(option::LIST, reply::ERR_INVALID, &[]).await;
        }
        for name in self.exports.names().await {
            let entry = [&(name.len() as u32).to_be_bytes(), name.as_bytes()].concat();
            self.reply(option::LIST, reply::SERVER, &entry).await?;
        }
        self.reply(option::LIST, reply::ACK, &[]).await
    }

    /// Opens an export. Without a name it is the only one, where there is only one. What takes so long that
    /// the handshake would end is given up before that, so that the client hears of it.
    async fn open(&self, name: &str) -> Result<Arc<X::Export>, Unopened> {
        let opened = async {
            if name.is_empty() {
                return match self.exports.names().await.as_slice() {
                    [only] => self.exports.open(only).await,
                    _ => Err(Unopened::Unknown),
                };
            }
            self.exports.open(name).await
        };
        let patience = self.resources.limits.handshake / 2;
        let late = |_| {
            Err(Unopened::Unavailable(format!("'{name}' cannot be opened now: its devices do not answer")))
        };
        tokio::time::timeout(patience, opened).await.unwrap_or_else(late)
    }

    /// Tells the client that there is no such export, or none at present.
    async fn unopened(&mut self, option: u32, name: &str, why: Unopened) -> io::Result<()> {
        match why {
            Unopened::Unknown => {
                let advice = format!("there is no volume '{name}'");
                self.reply(option, reply::ERR_UNKNOWN, advice.as_bytes()).await
            }
            Unopened::Unavailable(why) => self.reply(option, reply::ERR_POLICY, why.as_bytes()).await,
        }
    }

    fn session(&self, name: &str, export: Arc<X::Export>) -> Session<X::Export> {
        let base_allocation = self.allocation_of.as_deref() == Some(name);
        Session { export, structured: self.structured, base_allocation }
    }

    fn transmission_flags(&self, export: &X::Export) -> u16 {
        use transmission::*;
        let access = match export.is_writable() {
            true => SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO,
            false => READ_ONLY,
        };
        let structured = if self.structured { SEND_DF } else { 0 };
        HAS_FLAGS | CAN_MULTI_CONN | access | structured
    }

    /// The old way to choose an export, which knows no error.
    async fn export_name(&mut self, data: &[u8]) -> io::Result<Next<X::Export>> {
        let name = std::str::from_utf8(data).map_err(|_| violation("a name is not UTF-8"))?;
        let export = self.open(name).await.map_err(|why| match why {
            Unopened::Unknown => io::Error::new(io::ErrorKind::NotFound, format!("no export '{name}'")),
            Unopened::Unavailable(why) => io::Error::other(why),
        })?;
        let Some(seat) = self.resources.seat() else { return Err(violation("too many clients")) };
        let mut message = Vec::with_capacity(10 + EXPORT_NAME_ZEROES);
        message.extend(export.size_bytes().to_be_bytes());
        message.extend(self.transmission_flags(&export).to_be_bytes());
        if !self.client.no_zeroes {
            message.extend([0; EXPORT_NAME_ZEROES]);
        }
        self.socket.write_all(&message).await?;
        Ok(Next::End(Outcome::Chosen(self.session(name, export), seat)))
    }

    /// `NBD_OPT_INFO` and `NBD_OPT_GO`: facts about an export, and for the latter its opening.
    async fn info(&mut self, option: u32, data: &[u8]) -> io::Result<Next<X::Export>> {
        let Some((name, asked)) = parse_info(data) else {
            self.reply(option, reply::ERR_INVALID, &[]).await?;
            return Ok(Next::Continue);
        };
        let export = match self.open(name).await {
            Ok(export) => export,
            Err(why) => {
                self.unopened(option, name, why).await?;
                return Ok(Next::Continue);
            }
        };
        let seat = match option {
            option::GO => match self.resources.seat() {
                None => {
                    let advice = format!("too many clients: {} are served", self.resources.limits.clients);
                    self.reply(option, reply::ERR_POLICY, advice.as_bytes()).await?;
                    return Ok(Next::Continue);
                }
                seat => seat,
            },
            _ => None,
        };
        let mut facts = Vec::with_capacity(32);
        facts.extend(info::EXPORT.to_be_bytes());
        facts.extend(export.size_bytes().to_be_bytes());
        facts.extend(self.transmission_flags(&export).to_be_bytes());
        self.reply(option, reply::INFO, &facts).await?;

        if asked.contains(&info::NAME) {
            let named = [&info::NAME.to_be_bytes(), name.as_bytes()].concat();
            self.reply(option, reply::INFO, &named).await?;
        }
        facts.clear();
        facts.extend(info::BLOCK_SIZE.to_be_bytes());
        for bytes in [1, export.block_bytes().clamp(512, MAX_REQUEST_BYTES), MAX_REQUEST_BYTES] {
            facts.extend(bytes.to_be_bytes());
        }
        self.reply(option, reply::INFO, &facts).await?;
        self.reply(option, reply::ACK, &[]).await?;
        Ok(match seat {
            Some(seat) => Next::End(Outcome::Chosen(self.session(name, export), seat)),
            None => Next::Continue,
        })
    }

    async fn meta_context(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let sets = option == option::SET_META_CONTEXT;
        if sets {
            self.allocation_of = None;
        }
        let Some((name, queries)) = parse_meta_context(data) else {
            return self.reply(option, reply::ERR_INVALID, &[]).await;
        };
        if !self.structured {
            let advice = b"structured replies must be negotiated first";
            return self.reply(option, reply::ERR_INVALID, advice).await;
        }
        if let Err(why) = self.open(name).await {
            return self.unopened(option, name, why).await;
        }
        let wanted =
            queries.contains(&BASE_ALLOCATION) || !sets && (queries.is_empty() || queries.contains(&"base:"));
        if wanted {
            // In a list the number means nothing.
            let id = if sets { BASE_ALLOCATION_ID } else { 0 };
            let context = [&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()].concat();
            self.reply(option, reply::META_CONTEXT, &context).await?;
            if sets {
                self.allocation_of = Some(name.to_owned());
            }
        }
        self.reply(option, reply::ACK, &[]).await
    }
}

/// The export's name, and which kinds of information are asked for.
fn parse_info(data: &[u8]) -> Option<(&str, Vec<u16>)> {
    let mut data = OptionData(data);
    let name = data.string()?;
    let count = data.u16()?;
    let asked = (0..count).map(|_| data.u16()).collect::<Option<_>>()?;
    data.end()?;
    Some((name, asked))
}

/// The export's name, and the contexts that are asked for.
fn parse_meta_context(data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let mut data = OptionData(data);
    let name = data.string()?;
    let count = data.u32()?;
    // Each takes at least four bytes: the count cannot make us loop past the data.
    let queries = (0..count).map(|_| data.string()).collect::<Option<_>>()?;
    data.end()?;
    Some((name, queries))
}

fn violation(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("handshake: {what}"))
}
