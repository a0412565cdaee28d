//! Mail by a relay: SMTP as far as one letter needs it.
//!
//! # The idea
//! A relay takes letters and brings them further: greeting, `EHLO`, TLS, authentication, an envelope, the
//! letter. TLS begins at once (`smtps://`), or by `STARTTLS` where the relay offers it (`smtp://`). A
//! password is sent only by TLS, or to this machine itself. A relay that offers TLS and cannot be trusted
//! gets nothing, and neither does one that had something to say before TLS began, which another could have
//! said.
//!
//! A recipient that the relay refuses does not keep the others from the letter; the caller is told. What the
//! relay says is bounded in lines and bytes, and shown in part. The caller bounds the time.
//!
//! | what | source |
//! |---|---|
//! | dialogue, replies, dots | RFC 5321 |
//! | `STARTTLS` | RFC 3207 |
//! | `AUTH PLAIN`, `AUTH LOGIN` | RFC 4954, RFC 4616 |

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::api::wipe;
use crate::outgoing::{self, Address, Stream, Trust};

/// How long an address may take to be reached, and to begin TLS.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The longest line of a reply, in bytes, and the most lines.
const MAX_LINE_BYTES: usize = 2048;
const MAX_LINES: usize = 100;
/// What is shown of a reply, in characters.
const MAX_SHOWN: usize = 200;
/// The longest address, in bytes.
const MAX_ADDRESS_BYTES: usize = 254;
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 4096;

/// A letter in its envelope.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    /// The sender.
    pub from: String,
    /// Those who get it.
    pub to: Vec<String>,
    /// Headers and text, with `\r\n` at the end of each line.
    pub text: String,
}

/// Whether a text can be an address of mail: `NAME@HOST`, without anything that has a meaning for a relay.
pub(crate) fn is_address(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"<>()[],;:\\\"@".contains(&byte);
    let Some((name, host)) = text.rsplit_once('@') else { return false };
    text.len() <= MAX_ADDRESS_BYTES
        && !name.is_empty()
        && name.bytes().all(is_plain)
        && !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        && !host.starts_with(['-', '.'])
}

/// Gives a letter to a relay. The user of the relay's address is let in by this password.
///
/// # Errors
/// Why not, for a person; also where only some of the recipients were refused.
pub(crate) async fn deliver(
    relay: &Address,
    password: Option<&[u8]>,
    trust: &Trust,
    letter: &Letter,
) -> Result<(), String> {
    let in_words = |fault: outgoing::Fault| fault.to_string();
    let stream = Stream::open(relay, trust, CONNECT_LIMIT).await.map_err(in_words)?;
    let local = stream.tcp().local_addr().ok();
    let mut dialogue = Dialogue { stream, came: Vec::new() };
    dialogue.expect("greeted", 220).await?;
    let mut offers = dialogue.hello(local).await?;
    let mut is_private = relay.is_private();
    if !relay.scheme.is_secure() && offers.has("STARTTLS") {
        dialogue.say("STARTTLS\r\n").await?;
        dialogue.expect("answered STARTTLS with", 220).await?;
        if !dialogue.came.is_empty() {
            return Err("the relay went on without TLS, as a stranger on the way would".to_owned());
        }
        let Stream::Plain(plain) = dialogue.stream else { return Err("TLS began twice".to_owned()) };
        let connector = trust.connector()?;
        let begun = outgoing::begin_tls(relay, &connector, plain, CONNECT_LIMIT).await;
        let stream = Stream::Tls(Box::new(begun.map_err(in_words)?));
        dialogue = Dialogue { stream, came: Vec::new() };
        offers = dialogue.hello(local).await?;
        is_private = true;
    }
    if let (Some(user), Some(password)) = (&relay.user, password) {
        if !is_private {
            return Err("the relay offers no TLS, and the password could be read on the way".to_owned());
        }
        dialogue.authenticate(&offers, user.as_bytes(), password).await?;
    }
    let refused = dialogue.send(letter).await?;
    // The letter is delivered whatever comes of this.
    let _ = dialogue.say("QUIT\r\n").await;
    match refused.is_empty() {
        true => Ok(()),
        false => Err(format!("the letter was not taken for {}", refused.join(", "))),
    }
}

/// What a relay offers: the lines of its answer to `EHLO`.
#[derive(Debug, Default)]
struct Offers(Vec<String>);

impl Offers {
    fn line(&self, keyword: &str) -> Option<&str> {
        self.0.iter().find_map(|line| {
            let (word, rest) = line.split_once([' ', '=']).unwrap_or((line, ""));
            word.eq_ignore_ascii_case(keyword).then_some(rest)
        })
    }

    fn has(&self, keyword: &str) -> bool {
        self.line(keyword).is_some()
    }

    fn authenticates_by(&self, mechanism: &str) -> bool {
        let mut known = self.line("AUTH").unwrap_or_default().split_ascii_whitespace();
        known.any(|known| known.eq_ignore_ascii_case(mechanism))
    }
}

/// A reply of a relay.
#[derive(Debug)]
struct Reply {
    code: u16,
    lines: Vec<String>,
}

impl Reply {
    /// It in words, as far as it is shown.
    fn shown(&self) -> String {
        let text = format!("{} {}", self.code, self.lines.join(" "));
        text.trim_end().escape_debug().take(MAX_SHOWN).collect()
    }
}

struct Dialogue {
    stream: Stream,
    /// What came and was not looked at yet.
    came: Vec<u8>,
}

impl Dialogue {
    async fn say(&mut self, text: &str) -> Result<(), String> {
        let broke = |error: std::io::Error| format!("the relay went away: {error}");
        self.stream.write_all(text.as_bytes()).await.map_err(broke)?;
        self.stream.flush().await.map_err(broke)
    }

    /// Reads a line, without its end.
    async fn line(&mut self) -> Result<String, String> {
        loop {
            if let Some(end) = self.came.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.came.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
            }
            if self.came.len() > MAX_LINE_BYTES {
                return Err("the relay's answer has lines that are too long".to_owned());
            }
            let mut piece = [0; PIECE_BYTES];
            match self.stream.read(&mut piece).await {
                Ok(0) => return Err("the relay closed the connection".to_owned()),
                Ok(length) => self.came.extend_from_slice(&piece[..length]),
                Err(error) => return Err(format!("the relay went away: {error}")),
            }
        }
    }

    async fn reply(&mut self) -> Result<Reply, String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line().await?;
            let code = line.get(..3).and_then(|code| code.parse::<u16>().ok());
            let goes_on = line.as_bytes().get(3) == Some(&b'-');
            let Some(code) = code.filter(|code| (200..600).contains(code)) else {
                let shown: String = line.escape_debug().take(MAX_SHOWN).collect();
                return Err(format!("this is no relay of mail: it says '{shown}'"));
            };
            lines.push(line.get(4..).unwrap_or_default().to_owned());
            if !goes_on {
                return Ok(Reply { code, lines });
            }
            if lines.len() >= MAX_LINES {
                return Err("the relay's answer is too long".to_owned());
            }
        }
    }

    /// The lines of a reply that has this code.
    async fn expect(&mut self, what: &str, code: u16) -> Result<Vec<String>, String> {
        let reply = self.reply().await?;
        match reply.code == code {
            true => Ok(reply.lines),
            false => Err(format!("the relay {what} '{}'", reply.shown())),
        }
    }

    async fn hello(&mut self, local: Option<SocketAddr>) -> Result<Offers, String> {
        // A literal is right wherever the machine's own name may not be known.
        let own = match local.map(|local| local.ip().to_canonical()) {
            Some(IpAddr::V4(address)) => format!("[{address}]"),
            Some(IpAddr::V6(address)) => format!("[IPv6:{address}]"),
            None => "[127.0.0.1]".to_owned(),
        };
        self.say(&format!("EHLO {own}\r\n")).await?;
        let lines = self.expect("answered EHLO with", 250).await?;
        Ok(Offers(lines.into_iter().skip(1).collect()))
    }

    async fn authenticate(&mut self, offers: &Offers, user: &[u8], password: &[u8]) -> Result<(), String> {
        let refused = "refused the name or the password:";
        if offers.authenticates_by("PLAIN") {
            let mut both = [&[0], user, &[0], password].concat();
            let mut line = format!("AUTH PLAIN {}\r\n", STANDARD.encode(&both)).into_bytes();
            wipe(&mut both);
            let said = self.say_secret(&mut line).await;
            said?;
        } else if offers.authenticates_by("LOGIN") {
            self.say("AUTH LOGIN\r\n").await?;
            self.expect("answered AUTH LOGIN with", 334).await?;
            self.say(&format!("{}\r\n", STANDARD.encode(user))).await?;
            self.expect(refused, 334).await?;
            let mut line = format!("{}\r\n", STANDARD.encode(password)).into_bytes();
            self.say_secret(&mut line).await?;
        } else {
            return Err("the relay takes passwords neither by AUTH PLAIN nor by AUTH LOGIN".to_owned());
        }
        self.expect(refused, 235).await.map(drop)
    }

    /// Says something that is wiped afterwards.
    async fn say_secret(&mut self, line: &mut [u8]) -> Result<(), String> {
        let said = match self.stream.write_all(line).await {
            Ok(()) => self.stream.flush().await,
            error => error,
        };
        wipe(line);
        said.map_err(|error| format!("the relay went away: {error}"))
    }

    /// Sends the letter. The recipients that the relay refused, with its words.
    async fn send(&mut self, letter: &Letter) -> Result<Vec<String>, String> {
        self.say(&format!("MAIL FROM:<{}>\r\n", letter.from)).await?;
        self.expect(&format!("refused the sender {}:", letter.from), 250).await?;
        let mut refused = Vec::new();
        for recipient in &letter.to {
            self.say(&format!("RCPT TO:<{recipient}>\r\n")).await?;
            let reply = self.reply().await?;
            if !matches!(reply.code, 250 | 251) {
                refused.push(format!("{recipient} ('{}')", reply.shown()));
            }
        }
        if refused.len() == letter.to.len() {
            return Err(format!("the relay refused {}", refused.join(", ")));
        }
        self.say("DATA\r\n").await?;
        self.expect("answered DATA with", 354).await?;
        self.say(&stuffed(&letter.text)).await?;
        self.expect("refused the letter:", 250).await?;
        Ok(refused)
    }
}

/// A letter as it is sent: with one more dot in front of lines that begin with one, and the end.
fn stuffed(text: &str) -> String {
    let mut sent = String::with_capacity(text.len() + 16);
    for line in text.split("\r\n") {
        if line.starts_with('.') {
            sent.push('.');
        }
        sent += line;
        sent += "\r\n";
    }
    // The text ends with a line's end, after which there is nothing.
    if let Some(whole) = sent.strip_suffix("\r\n\r\n") {
        sent.truncate(whole.len() + 2);
    }
    sent + ".\r\n"
}

#[cfg(test)]
mod tests;
