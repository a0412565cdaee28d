//! Connections to a store: HTTP/1.1, over TLS where the endpoint says `https`.
//!
//! A client of `hyper-util` keeps connections for the next request. A connection is a task of the runtime in
//! which it was made, so each runtime gets a client of its own: a device is made in one and used in another.
//! Redirects are not followed, since a signed request is good for one host. Answers are bounded where they
//! are read.

use std::error::Error;
use std::fmt::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::device::IgnorePoison;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::TRANSFER_ENCODING;
use hyper::{Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use tokio::runtime::{Handle, Id};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::parameters::S3Error;

/// How long one address of a host may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// When a connection that is not in use is closed. Stores close theirs after about a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// The most bytes of an answer with credentials.
const MAX_CREDENTIALS_BYTES: usize = 64 << 10;

type Connections = Client<HttpsConnector<HttpConnector>, HttpRequestBody>;

/// What sends requests.
pub(super) struct Sender {
    connector: HttpsConnector<HttpConnector>,
    /// The most connections that are kept.
    idle: usize,
    /// The client of the runtime that asked last. Locked alone, never across an `.await`.
    client: Mutex<Option<(Id, Connections)>>,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("idle", &self.idle).finish_non_exhaustive()
    }
}

impl Sender {
    /// One that trusts what the system trusts. `must_trust`: without that it is of no use.
    pub fn new(idle: usize, must_trust: bool) -> Result<Self, S3Error> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        if must_trust && roots.is_empty() {
            let why = found.errors.first().map_or("there are no authorities".into(), ToString::to_string);
            return Err(S3Error::Trust(why));
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let tls = tls.map_err(|error| S3Error::Trust(error.to_string()))?;
        let tls = tls.with_root_certificates(roots).with_no_client_auth();
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.set_keepalive(Some(IDLE_TIMEOUT));
        // The scheme is looked at by `is_allowed` and where the endpoint is parsed.
        http.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Ok(Self { connector, idle, client: Mutex::default() })
    }

    fn client(&self) -> Result<Connections, String> {
        let runtime = Handle::try_current().map_err(|error| error.to_string())?.id();
        let mut client = self.client.lock().ignore_poison();
        match &*client {
            Some((of, client)) if *of == runtime => return Ok(client.clone()),
            _ => {}
        }
        let new = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(self.idle)
            .build(self.connector.clone());
        *client = Some((runtime, new.clone()));
        Ok(new)
    }

    /// Sends a request, and returns what begins to come.
    pub async fn send(&self, request: HttpRequest) -> Result<Response<Incoming>, String> {
        let client = self.client()?;
        client.request(request).await.map_err(|error| chain(&error))
    }
}

/// An error with what it comes from: those of `hyper-util` say little alone.
fn chain(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        let said = error.to_string();
        if !words.contains(&said) {
            // Writing to a string does not fail.
            let _ = write!(words, ": {said}");
        }
        below = error.source();
    }
    words
}

/// Why a body is not there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    /// It says that it has more bytes than this.
    TooLong,
    /// It did not come to its end.
    Cut(String),
}

/// The body of an answer, if it has at most so many bytes. No more of it than that comes into memory.
pub(super) async fn body(response: Response<Incoming>, limit: u64) -> Result<Bytes, BodyError> {
    let length = response.body().size_hint().exact();
    let ends = length.is_some() || response.headers().contains_key(TRANSFER_ENCODING);
    if !ends {
        return Err(BodyError::Cut("the answer does not say where it ends".into()));
    }
    if length.is_some_and(|length| length > limit) {
        return Err(BodyError::TooLong);
    }
    let mut bytes = BytesMut::with_capacity(length.unwrap_or(0) as usize);
    let mut incoming = response.into_body();
    while let Some(frame) = incoming.frame().await {
        let frame =
            frame.map_err(|error| BodyError::Cut(format!("the answer was cut short: {}", chain(&error))))?;
        let Ok(data) = frame.into_data() else { continue };
        if data.len() as u64 > limit - bytes.len() as u64 {
            // A store says how long an object is. This is none, and says nothing of the object.
            return Err(BodyError::Cut("the answer is longer than what was asked for".into()));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// What asks for credentials, as `object_store` wants it.
#[derive(Debug)]
pub(super) struct Connector(pub Arc<Sender>);

/// A client of it.
#[derive(Debug)]
struct Service {
    sender: Arc<Sender>,
    /// Whether it may ask without TLS: of the machine's own metadata.
    is_plain_allowed: bool,
}

impl object_store::client::HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp);
        let is_plain_allowed = plain.is_some_and(|value| value == "true");
        Ok(HttpClient::new(Service { sender: Arc::clone(&self.0), is_plain_allowed }))
    }
}

impl Service {
    fn is_allowed(&self, uri: &Uri) -> bool {
        self.is_plain_allowed || uri.scheme_str() == Some("https")
    }

    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let failed = |why: String| HttpError::new(HttpErrorKind::Unknown, std::io::Error::other(why));
        if !self.is_allowed(request.uri()) {
            return Err(failed("credentials are not asked for without TLS".into()));
        }
        let response = self.sender.send(request).await.map_err(failed)?;
        Ok(response.map(|body| {
            let limited = Limited::new(body, MAX_CREDENTIALS_BYTES);
            HttpResponseBody::new(limited.map_err(|error| HttpError::new_boxed(HttpErrorKind::Decode, error)))
        }))
    }
}

impl HttpService for Service {
    // The trait is made by `async_trait`; this is what its functions are.
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.answer(request))
    }
}
