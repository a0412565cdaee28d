//! Keys that lie on a server: `keylocation=https://…` and `http://…`.
//!
//! # The idea
//! The daemon asks with `GET`, and the body of the answer is the key, as the content of a file would be.
//! What comes is not trusted before the key fits: the answer is bounded ([`MAX_BYTES`], whatever it claims),
//! and so are its head, the redirects and the time (`Limits`). An answer that breaks off is no key.
//!
//! | what | as in OpenZFS, which lets libcurl do it | here |
//! |---|---|---|
//! | time | 30 s for all | the same, and 10 s to reach an address |
//! | redirects | followed | at most [`MAX_REDIRECTS`], and none from `https` to `http` |
//! | statuses | 2xx are keys, all others errors | the same |
//! | authorities | the system's, `SSL_CA_CERT_FILE`, `SSL_CA_CERT_PATH` | the same, of the daemon |
//! | a server's own authority | trusted where it is one of these | where it is all of the first |
//! | own certificate | `SSL_CLIENT_CERT_FILE`, `SSL_CLIENT_KEY_FILE` | the same |
//! | name and password in the address | sent | refused: everyone who lists the dataset would read them |
//!
//! The caller is a thread of its own, which waits; it must hold no lock and no view of a pool meanwhile.
//! Buffers of ours with the key are wiped; the library of TLS keeps its own to itself.
//!
//! Source of the facts: OpenZFS 2.4 `libzfs_crypto.c` (`get_key_material_https`).

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{Request, Response, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::api::{Secret, wipe};

/// The longest answer, in bytes: as of a file with a key.
pub(crate) const MAX_BYTES: usize = 4096;
/// The longest head of an answer, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// The most lines in the head of an answer.
const MAX_HEADERS: usize = 64;
/// The most redirects that are followed.
const MAX_REDIRECTS: usize = 5;
/// What is shown of an address that a server names, in characters.
const MAX_SHOWN: usize = 200;

/// How long it may take.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Until an address of the server is reached, and until TLS has begun.
    connect: Duration,
    /// For all, names and redirects among it.
    total: Duration,
}

const LIMITS: Limits = Limits { connect: Duration::from_secs(10), total: Duration::from_secs(30) };

/// Why there is no key.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What to tell the user.
    pub(crate) message: String,
    /// The server did not answer in time.
    pub(crate) is_silent: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Whether a `keylocation` is on a server.
pub(crate) fn is_address(location: &str) -> bool {
    location.starts_with("https://") || location.starts_with("http://")
}

/// The server of an address, by which one that does not answer is known again.
pub(crate) fn server_of(location: &str) -> Option<String> {
    Target::parse(location).ok().map(|target| target.host_and_port())
}

/// Gets the key that lies at an address.
///
/// # Errors
/// No answer in time, another one than a key, and what keeps a connection from being trusted.
pub(crate) fn fetch(location: &str) -> Result<Secret, Failure> {
    fetch_with(location, &Trust::of_environment(), LIMITS)
}

fn fetch_with(location: &str, trust: &Trust, limits: Limits) -> Result<Secret, Failure> {
    let failed = |message| Failure { message, is_silent: false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(format!("cannot wait for {location}: {error}")))?;
    let got = runtime.block_on(async { timeout(limits.total, get(location, trust, limits)).await });
    // A name that is still looked up must not keep the thread.
    runtime.shutdown_background();
    match got {
        Ok(Ok(key)) => Ok(key),
        Ok(Err(Fault::Silent(what))) => {
            let message = format!("Failed to connect to {location}: {what}");
            Err(Failure { message, is_silent: true })
        }
        Ok(Err(Fault::Connection(why))) => Err(failed(format!("Failed to connect to {location}: {why}"))),
        Ok(Err(Fault::Answer(why))) => Err(failed(format!("Couldn't GET {location}: {why}"))),
        Err(_) => Err(Failure {
            message: format!(
                "Failed to connect to {location}: no answer in {} s",
                limits.total.as_secs_f32().ceil()
            ),
            is_silent: true,
        }),
    }
}

/// What went wrong.
enum Fault {
    /// An address did not answer in time.
    Silent(String),
    /// No connection that can be trusted.
    Connection(String),
    /// An answer that is no key.
    Answer(String),
}

/// Which servers are trusted, and how they know this one.
#[derive(Debug, Default)]
struct Trust {
    authorities: Option<PathBuf>,
    directory: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Trust {
    fn of_environment() -> Self {
        let path = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        Self {
            authorities: path("SSL_CA_CERT_FILE"),
            directory: path("SSL_CA_CERT_PATH"),
            certificate: path("SSL_CLIENT_CERT_FILE"),
            key: path("SSL_CLIENT_KEY_FILE"),
        }
    }

    fn connector(&self) -> Result<TlsConnector, String> {
        let found = match (&self.authorities, &self.directory) {
            (None, None) => rustls_native_certs::load_native_certs(),
            (file, directory) => {
                rustls_native_certs::load_certs_from_paths(file.as_deref(), directory.as_deref())
            }
        };
        let pinned = match (found.certs.as_slice(), &self.authorities) {
            ([only], Some(_)) => Some(only.clone()),
            _ => None,
        };
        let mut roots = RootCertStore::empty();
        // One bad certificate of a system's must not keep all others from being trusted.
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
            let hint = "install ca-certificates, or name a file by SSL_CA_CERT_FILE for the daemon";
            return Err(format!("no certificate of an authority is found{why} ({hint})"));
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let usual = usual.map_err(|error| error.to_string())?;
        let builder =
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Verifier { usual, pinned }));
        let config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let unusable = |file: &Path, why: &dyn fmt::Display| {
                    format!("cannot use {} as this machine's certificate: {why}", file.display())
                };
                let read =
                    CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
                let certificates = read.map_err(|error| unusable(file, &error))?;
                let key_file = self.key.as_ref().unwrap_or(file);
                let key =
                    PrivateKeyDer::from_pem_file(key_file).map_err(|error| unusable(key_file, &error))?;
                builder.with_client_auth_cert(certificates, key).map_err(|error| unusable(file, &error))?
            }
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// Verifies servers as usual, and knows the one whose own certificate the user gave. The library takes no
/// certificate of an authority as that of a server, which `openssl req -x509` makes by default.
#[derive(Debug)]
struct Verifier {
    usual: Arc<WebPkiServerVerifier>,
    pinned: Option<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // That the server has its key, the handshake proves.
        if self.pinned.as_ref().is_some_and(|pinned| pinned.as_ref() == server.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        self.usual.verify_server_cert(server, above, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls12_signature(message, server, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls13_signature(message, server, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// An address, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    is_secure: bool,
    /// Without the brackets of IPv6.
    host: String,
    port: u16,
    path: String,
}

impl Target {
    fn parse(address: &str) -> Result<Self, String> {
        let url: Uri = address.parse().map_err(|error| format!("it is no address: {error}"))?;
        let is_secure = match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err("it is no https:// or http:// address".to_owned()),
        };
        let authority = url.authority().filter(|of| !of.host().is_empty()).ok_or("it names no host")?;
        if authority.as_str().contains('@') {
            return Err("a name or password in the address is refused".to_owned());
        }
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        Ok(Self {
            is_secure,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            path: url.path_and_query().map_or("/", PathAndQuery::as_str).to_owned(),
        })
    }

    fn host_and_port(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Where a server sends its client on to.
    fn follow(&self, to: &str) -> Result<Self, String> {
        let shown: String = to.escape_debug().take(MAX_SHOWN).collect();
        let refuse = |why: &str| Err(format!("it leads on to '{shown}', which is not followed: {why}"));
        let scheme = if self.is_secure { "https" } else { "http" };
        let address = match to {
            whole if is_address(whole) => whole.to_owned(),
            hosts if hosts.starts_with("//") => format!("{scheme}:{hosts}"),
            path if path.starts_with('/') => format!("{scheme}://{}{path}", self.host_and_port()),
            _ => return refuse("it is neither an https:// or http:// address nor an absolute path"),
        };
        match Self::parse(&address) {
            Ok(next) if self.is_secure && !next.is_secure => refuse("the key would not be encrypted"),
            Ok(next) => Ok(next),
            Err(why) => refuse(&why),
        }
    }
}

async fn get(location: &str, trust: &Trust, limits: Limits) -> Result<Secret, Fault> {
    let mut target = Target::parse(location).map_err(Fault::Connection)?;
    let mut connector = None;
    for _ in 0..=MAX_REDIRECTS {
        let stream = reach(&target, limits).await?;
        let next = if target.is_secure {
            let connector = match &connector {
                Some(connector) => connector,
                None => connector.insert(trust.connector().map_err(Fault::Connection)?),
            };
            let name = ServerName::try_from(target.host.clone());
            let name = name.map_err(|error| Fault::Connection(error.to_string()))?;
            let begun = timeout(limits.connect, connector.connect(name, stream)).await;
            let silent = |_| Fault::Silent(format!("{} does not begin TLS", target.host_and_port()));
            let stream = begun.map_err(silent)?.map_err(|error| Fault::Connection(error.to_string()))?;
            ask(&target, stream).await?
        } else {
            ask(&target, stream).await?
        };
        match next {
            Answer::Key(key) => return Ok(key),
            Answer::Elsewhere(to) => target = target.follow(&to).map_err(Fault::Answer)?,
        }
    }
    Err(Fault::Answer(format!("it leads on more than {MAX_REDIRECTS} times")))
}

async fn reach(target: &Target, limits: Limits) -> Result<TcpStream, Fault> {
    let found = tokio::net::lookup_host((target.host.as_str(), target.port)).await;
    let found: Vec<SocketAddr> = found.map_err(|error| Fault::Connection(error.to_string()))?.collect();
    let mut last = Fault::Connection("its name stands for no address".to_owned());
    for address in found {
        last = match timeout(limits.connect, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => Fault::Connection(format!("{address}: {error}")),
            Err(_) => Fault::Silent(format!("{address} does not answer")),
        };
    }
    Err(last)
}

enum Answer {
    Key(Secret),
    Elsewhere(String),
}

/// Sends the request, and takes the answer.
async fn ask(
    target: &Target,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Answer, Fault> {
    let broken = |error: hyper::Error| Fault::Answer(in_full(&error));
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let connection = tokio::spawn(connection);
    let request = Request::get(&target.path)
        .header(header::HOST, target.host_and_port())
        .header(header::USER_AGENT, "cenote")
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new());
    let request = request.map_err(|error| Fault::Answer(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(broken)?;
    let status = response.status();
    if status.is_redirection() {
        let to = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
        return to
            .map(|to| Answer::Elsewhere(to.to_owned()))
            .ok_or_else(|| Fault::Answer(status.to_string()));
    }
    if !status.is_success() {
        return Err(Fault::Answer(status.to_string()));
    }
    let mut frames = Vec::new();
    let taken = take(response, &mut frames).await;
    // The connection's buffers go with it; what is left of them are the frames.
    connection.abort();
    let _ = connection.await;
    drop(sender);
    let taken = taken.map(|()| {
        // One piece of memory, of which no copy is left behind.
        let mut key = Vec::with_capacity(MAX_BYTES);
        frames.iter().for_each(|frame: &Bytes| key.extend_from_slice(frame));
        Answer::Key(key.into())
    });
    for frame in frames {
        if let Ok(mut bytes) = frame.try_into_mut() {
            wipe(&mut bytes);
        }
    }
    taken
}

/// Takes the body, as much as a key may have.
async fn take(response: Response<Incoming>, frames: &mut Vec<Bytes>) -> Result<(), Fault> {
    let mut body = response.into_body();
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Fault::Answer(format!("it broke off: {}", in_full(&error))))?;
        let Ok(data) = frame.into_data() else { continue };
        total += data.len();
        frames.push(data);
        if total > MAX_BYTES {
            return Err(Fault::Answer("it is too long for a key".to_owned()));
        }
    }
    Ok(())
}

/// An error with what is behind it.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
