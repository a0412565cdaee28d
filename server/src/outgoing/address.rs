//! Addresses of servers, taken apart.

use std::net::IpAddr;

use hyper::Uri;
use hyper::http::uri::PathAndQuery;

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP over TLS.
    Https,
    /// HTTP.
    Http,
    /// SMTP over TLS from the beginning.
    Smtps,
    /// SMTP, with TLS where the server offers it.
    Smtp,
}

impl Scheme {
    /// All.
    const ALL: [Self; 4] = [Self::Https, Self::Http, Self::Smtps, Self::Smtp];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
            Self::Smtps => "smtps",
            Self::Smtp => "smtp",
        }
    }

    /// The port where none is said.
    const fn usual_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
            Self::Smtps => 465,
            Self::Smtp => 25,
        }
    }

    /// Whether a connection begins with TLS.
    pub const fn is_secure(self) -> bool {
        matches!(self, Self::Https | Self::Smtps)
    }

    /// Whether it is one of the web.
    const fn is_web(self) -> bool {
        matches!(self, Self::Https | Self::Http)
    }
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// Who is let in, where the address says so.
    pub user: Option<String>,
    /// Without the brackets of IPv6.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The path, with what is asked.
    pub path: String,
    /// Whether only addresses of this machine are connected to.
    pub is_for_loopback_only: bool,
}

/// Whether an address or a name is this machine's own, as far as the text says.
pub fn is_loopback_name(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
    }
}

impl Address {
    /// An address of the web.
    ///
    /// # Errors
    /// Why it is none, for a person.
    pub fn web(text: &str) -> Result<Self, String> {
        let address = Self::parse(text).ok().filter(|address| address.scheme.is_web());
        let Some(address) = address else {
            return match text.parse::<Uri>() {
                Err(error) => Err(format!("it is no address: {error}")),
                Ok(url) if url.authority().is_some_and(|of| of.as_str().contains('@')) => {
                    Err("a name or password in the address is refused".to_owned())
                }
                Ok(_) => Err("it is no https:// or http:// address".to_owned()),
            };
        };
        match address.user {
            Some(_) => Err("a name or password in the address is refused".to_owned()),
            None => Ok(address),
        }
    }

    /// The address of a relay of mail.
    ///
    /// # Errors
    /// Why it is none, for a person.
    pub fn relay(text: &str) -> Result<Self, String> {
        let address = Self::parse(text).ok().filter(|address| !address.scheme.is_web());
        let is_bare = |address: &Self| address.path == "/" && !text.contains('?') && !text.contains('#');
        address
            .filter(is_bare)
            .ok_or_else(|| "a relay is smtp://[USER@]HOST[:PORT] or smtps://[USER@]HOST[:PORT]".to_owned())
    }

    fn parse(text: &str) -> Result<Self, String> {
        let url: Uri = text.parse().map_err(|error| format!("it is no address: {error}"))?;
        let scheme = url.scheme_str().unwrap_or_default();
        let scheme = Scheme::ALL.into_iter().find(|known| scheme.eq_ignore_ascii_case(known.name()));
        let scheme = scheme.ok_or("its beginning is not known")?;
        let authority = url.authority().filter(|of| !of.host().is_empty()).ok_or("it names no host")?;
        let (user, whole_host) = match authority.as_str().rsplit_once('@') {
            Some((user, host)) => (Some(decoded(user).ok_or("its name of a user makes no sense")?), host),
            None => (None, authority.as_str()),
        };
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let port = match whole_host.strip_prefix(authority.host()).unwrap_or_default() {
            "" => scheme.usual_port(),
            port => {
                let port = port.strip_prefix(':').and_then(|port| port.parse().ok());
                port.filter(|port| *port != 0).ok_or("its port makes no sense")?
            }
        };
        Ok(Self {
            scheme,
            user,
            host: host.to_owned(),
            port,
            path: url.path_and_query().map_or("/", PathAndQuery::as_str).to_owned(),
            is_for_loopback_only: false,
        })
    }

    /// Host and port, as a request names them.
    pub fn host_and_port(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Whether the way there cannot be read by others: by TLS, or because it does not leave this machine.
    pub fn is_private(&self) -> bool {
        self.scheme.is_secure() || is_loopback_name(&self.host)
    }

    /// Whether two lead to the same server, as the same user.
    pub fn is_same_server(&self, other: &Self) -> bool {
        let of = |address: &Self| (address.scheme, address.user.clone(), address.host.clone(), address.port);
        of(self) == of(other)
    }
}

/// The name of a user, in which `%40` stands for `@`. One with a password, or with control characters, is
/// none.
fn decoded(user: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(user.len());
    let mut rest = user.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit =
                    |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                bytes.push(digit(*high)? << 4 | digit(*low)?);
                rest = after;
            }
            (b'%' | b':', _) => return None,
            (byte, after) => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok().filter(|user| !user.is_empty() && !user.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let hook = Address::web("https://host/a?b=1").unwrap();
        assert_eq!((hook.host_and_port(), hook.path.as_str()), ("host:443".to_owned(), "/a?b=1"));
        assert!(hook.is_private());
        let plain = Address::web("http://[::1]:81").unwrap();
        assert_eq!((plain.host_and_port(), plain.path.as_str()), ("[::1]:81".to_owned(), "/"));
        assert!(plain.is_private() && !Address::web("http://nas").unwrap().is_private());
        for wrong in [
            "smtp://host",
            "ftp://host",
            "host",
            "http://:80/",
            "/a",
            "http://a@host/",
            "http://host/a b",
            "",
        ] {
            assert!(Address::web(wrong).is_err(), "{wrong}");
        }
        assert!(Address::web("http://a:b@host/").unwrap_err().contains("name or password"));
        let relay = Address::relay("smtps://ann%40example.org@mail.example.org").unwrap();
        assert_eq!(relay.user.as_deref(), Some("ann@example.org"));
        assert_eq!((relay.port, relay.scheme), (465, Scheme::Smtps));
        let relay = Address::relay("smtp://127.0.0.1:2525").unwrap();
        assert_eq!((relay.port, relay.user.clone(), relay.is_private()), (2525, None, true));
        for wrong in [
            "smtp://a:b@host",
            "smtp://host/path",
            "smtp://host?x",
            "smtp://%0a@host",
            "https://host",
            "smtp://@host",
            "mail.example.org",
            "smtp://host:0",
            "smtp://host:70000",
        ] {
            assert!(Address::relay(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_server_is_known_by_scheme_user_host_and_port() {
        let of = |text| Address::relay(text).unwrap();
        assert!(of("smtp://a@host").is_same_server(&of("smtp://a@host:25")));
        for other in ["smtps://a@host:25", "smtp://b@host", "smtp://a@host:26", "smtp://a@other"] {
            assert!(!of("smtp://a@host").is_same_server(&of(other)), "{other}");
        }
    }
}
