//! Whether a request was meant for this page: by the names in its `Host` and its `Origin`.
//!
//! A page of a stranger can point a name of its own at this machine (DNS rebinding) and have the browser send
//! requests here. The browser says that name in `Host`. So `Host` must be the address that the client
//! connected to, `localhost`, or a name that was given at the start. Where a browser says the origin of a
//! request, it must be the same; `Sec-Fetch-Site` says it in other words.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, header};

/// The names besides addresses and `localhost`.
#[derive(Debug, Clone, Default)]
pub struct Names(Vec<String>);

impl Names {
    /// These.
    pub fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect())
    }

    /// Whether a host of a request is this one, for a client that connected to `local`.
    fn has(&self, host: &str, local: IpAddr) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse::<IpAddr>() {
            let (address, local) = (address.to_canonical(), local.to_canonical());
            // A tunnel may end at the other family.
            return address == local || address.is_loopback() && local.is_loopback();
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        name == "localhost" || self.0.contains(&name)
    }

    /// Checks the headers of a request of a client that connected to `local`. `is_page` for requests that
    /// follow a link to the page, which may come from anywhere.
    ///
    /// # Errors
    /// Why it is refused, for a person.
    pub fn check(&self, headers: &HeaderMap, local: IpAddr, is_page: bool) -> Result<(), String> {
        let host = only(headers, &header::HOST)?.ok_or("the request names no host")?;
        let authority = host.to_str().ok().and_then(|text| text.parse::<Authority>().ok());
        let authority = authority.filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or("the host that the request names makes no sense")?;
        if !self.has(authority.host(), local) {
            return Err(format!(
                "the dashboard is not called '{}' here; 'cenote serve --dashboard-host NAME' gives it a name",
                authority.host().escape_debug()
            ));
        }
        if let Some(origin) = only(headers, &header::ORIGIN)? {
            let of = origin
                .to_str()
                .ok()
                .and_then(|text| text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")));
            if !of.is_some_and(|of| of.eq_ignore_ascii_case(authority.as_str())) {
                return Err("the request comes from a page of another origin".to_owned());
            }
        }
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        match site {
            Some(b"cross-site" | b"same-site") if !is_page => {
                Err("the request comes from a page of another site".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The only value of a header, if it is there.
fn only<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<Option<&'a HeaderValue>, String> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(format!("the request has more than one '{name}'")),
        (found, None) => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(&'static str, &str)], is_page: bool) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        let names = Names::new(&["nas.example.".to_owned()]);
        names.check(&headers, "192.0.2.7".parse().unwrap(), is_page)
    }

    #[test]
    fn only_own_names_and_origins_are_taken() {
        for host in
            ["192.0.2.7:7227", "192.0.2.7", "localhost:80", "NAS.example:7227", "[::ffff:192.0.2.7]:1"]
        {
            assert_eq!(check(&[("host", host)], false), Ok(()), "{host}");
        }
        for host in
            ["", "evil.example", "192.0.2.8:7227", "127.0.0.1", "a@localhost", "localhost.evil", "[::1]"]
        {
            assert!(check(&[("host", host)], false).is_err(), "{host}");
        }
        assert!(check(&[], false).is_err());
        assert!(check(&[("host", "localhost"), ("host", "localhost")], false).is_err());
        let with =
            |name: &'static str, value: &str| check(&[("host", "localhost:7227"), (name, value)], false);
        for origin in ["http://localhost:7227", "https://LOCALHOST:7227"] {
            assert_eq!(with("origin", origin), Ok(()), "{origin}");
        }
        for origin in ["null", "http://evil.example", "http://localhost:7228", "localhost:7227", ""] {
            assert!(with("origin", origin).is_err(), "{origin}");
        }
        assert_eq!(with("sec-fetch-site", "same-origin"), Ok(()));
        assert!(with("sec-fetch-site", "cross-site").is_err());
        assert_eq!(check(&[("host", "localhost"), ("sec-fetch-site", "cross-site")], true), Ok(()));
    }
}
