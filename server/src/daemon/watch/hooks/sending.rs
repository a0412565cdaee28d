//! How events leave the machine: by HTTP to webhooks and ntfy, by mail.
//!
//! A server is trusted as servers of keys are ([`crate::outgoing`]): by the system's authorities. A secret
//! goes by TLS only, or to this machine itself; a redirect is not followed, so that it goes nowhere else.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::env::{Env, System};
use engine::events::Event;
use engine::properties::format::Civil;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;

use super::message::{Message, date, header_text};
use crate::api::{Hook, HookAction, Mail, Ntfy, Password};
use crate::outgoing::{Address, Stream, Trust, in_full};
use crate::smtp::{self, Letter};

/// How long an address may take to be reached, and to begin TLS.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The longest head of an answer, in bytes, and its most lines.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// The most recipients of a mail.
const MAX_RECIPIENTS: usize = 32;
/// Characters of a line of base64 in a mail.
const LINE: usize = 76;

/// Where a hook sends events; none for a command.
///
/// # Errors
/// It can be no such place, for a person.
pub(super) fn server_of(action: &HookAction) -> Result<Option<Address>, String> {
    match action {
        HookAction::Command(_) => Ok(None),
        HookAction::Webhook(url) => {
            let address = Address::web(url);
            address
                .map(Some)
                .map_err(|why| format!("a webhook is https://HOST[:PORT]/PATH or http://…: {why}"))
        }
        HookAction::Ntfy(ntfy) => {
            let address = Address::web(&ntfy.url).map_err(|why| format!("the address of a topic: {why}"))?;
            if ntfy.priority.is_some_and(|priority| !(1..=5).contains(&priority)) {
                return Err("a priority is from 1 to 5".to_owned());
            }
            Ok(Some(address))
        }
        HookAction::Mail(mail) => {
            let relay = Address::relay(&mail.relay)?;
            if mail.to.is_empty() || mail.to.len() > MAX_RECIPIENTS {
                return Err(format!("a mail is for 1 to {MAX_RECIPIENTS} addresses"));
            }
            match mail.to.iter().chain([&mail.from]).find(|address| !smtp::is_address(address)) {
                Some(wrong) => Err(format!("'{}' is no address of mail", wrong.escape_debug())),
                None => Ok(Some(relay)),
            }
        }
    }
}

/// Whether a secret may go to where a hook sends events.
///
/// # Errors
/// Why not, for a person.
pub(super) fn check_secret(action: &HookAction, server: Option<&Address>) -> Result<(), String> {
    match (action, server) {
        (HookAction::Command(_), _) | (_, None) => Err("a command has no secret".to_owned()),
        (HookAction::Mail(_), Some(relay)) if relay.user.is_none() => {
            Err("a relay with a password has a user too: smtp://USER@HOST, with %40 for an '@' in it"
                .to_owned())
        }
        // A relay may begin TLS later, without which it gets no password.
        (HookAction::Mail(_), Some(_)) => Ok(()),
        (_, Some(server)) if !server.is_private() => {
            Err("its secret could be read on the way: use https://".to_owned())
        }
        _ => Ok(()),
    }
}

/// Sends an event to where a hook says, in this time.
///
/// # Errors
/// Why it was not taken, for a person.
pub(super) fn send(hook: &Hook, event: &Event, host: &str, limit: Duration) -> Result<(), String> {
    let server = server_of(&hook.action)?.ok_or("it is sent nowhere")?;
    let place = server.host_and_port();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("its thread cannot wait for sockets: {error}"))?;
    let sent =
        runtime.block_on(async { tokio::time::timeout(limit, send_to(&server, hook, event, host)).await });
    // A name that is still looked up must not keep the thread.
    runtime.shutdown_background();
    match sent {
        Ok(sent) => sent.map_err(|why| format!("{place}: {why}")),
        Err(_) => Err(format!("{place}: no answer in {} s", limit.as_secs())),
    }
}

async fn send_to(server: &Address, hook: &Hook, event: &Event, host: &str) -> Result<(), String> {
    let trust = Trust::of_environment();
    let secret = hook.secret.as_ref();
    if secret.is_some() {
        check_secret(&hook.action, Some(server))?;
    }
    match &hook.action {
        HookAction::Command(_) => Err("it is a command".to_owned()),
        HookAction::Webhook(_) => {
            let body = serde_json::to_vec(event).map_err(|error| error.to_string())?;
            let json = vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
            post(server, &trust, secret, json, body).await
        }
        HookAction::Ntfy(ntfy) => {
            let message = Message::of(event, host);
            let body = message.text.clone().into_bytes();
            post(server, &trust, secret, ntfy_headers(ntfy, &message)?, body).await
        }
        HookAction::Mail(mail) => {
            let letter = letter(mail, &Message::of(event, host));
            smtp::deliver(server, secret.map(Password::bytes), &trust, &letter).await
        }
    }
}

fn ntfy_headers(ntfy: &Ntfy, message: &Message) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
    let priority = ntfy.priority.unwrap_or(message.priority);
    let tag = if message.priority > 3 { "warning" } else { "floppy_disk" };
    Ok(vec![
        (header::CONTENT_TYPE, value("text/plain; charset=utf-8")?),
        (HeaderName::from_static("title"), value(&header_text(&message.title))?),
        (HeaderName::from_static("priority"), value(&priority.to_string())?),
        (HeaderName::from_static("tags"), value(tag)?),
    ])
}

/// Sends a request; the body of the answer is not read.
async fn post(
    server: &Address,
    trust: &Trust,
    secret: Option<&Password>,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Vec<u8>,
) -> Result<(), String> {
    let stream = Stream::open(server, trust, CONNECT_LIMIT).await.map_err(|fault| fault.to_string())?;
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
    let broken = |error: hyper::Error| in_full(&error);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let connection = tokio::spawn(connection);
    let mut request = Request::post(&server.path)
        .header(header::HOST, server.host_and_port())
        .header(header::USER_AGENT, "cenote");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if let Some(secret) = secret {
        let bearer = [b"Bearer ", secret.bytes()].concat();
        let value = HeaderValue::from_bytes(&bearer).map_err(|_| "its secret cannot be sent in a header")?;
        let mut value = value;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await;
    connection.abort();
    match answer.map_err(broken)?.status() {
        status if status.is_success() => Ok(()),
        status if status.is_redirection() => Err(format!("it leads on elsewhere ({status})")),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err("it does not let the daemon in: the secret is wrong, or missing".to_owned())
        }
        status => Err(format!("it answered {status}")),
    }
}

/// A message as a letter. Its text is base64, so that no line is too long and none begins with a dot.
fn letter(mail: &Mail, message: &Message) -> Letter {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let written = i64::try_from(now).ok().and_then(Civil::at).map(date).unwrap_or_default();
    let random = System.random();
    let host = mail.from.rsplit('@').next().unwrap_or_default();
    let encoded = STANDARD.encode(message.text.replace('\n', "\r\n"));
    let lines: Vec<&str> =
        encoded.as_bytes().chunks(LINE).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    // A header's lines are short: each recipient, and each word of a subject, has its own.
    let subject = header_text(&message.title).replace("?= =?", "?=\r\n =?");
    let urgent = if message.priority > 4 { "Importance: high\r\n" } else { "" };
    let text = format!(
        "From: <{}>\r\nTo: <{}>\r\nSubject: {subject}\r\nDate: {written}\r\n\
         Message-ID: <{now}.{random:016x}@{host}>\r\n{urgent}Auto-Submitted: auto-generated\r\n\
         MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n{}\r\n",
        mail.from,
        mail.to.join(">,\r\n <"),
        lines.join("\r\n"),
    );
    Letter { from: mail.from.clone(), to: mail.to.clone(), text }
}
