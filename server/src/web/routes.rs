//! Requests and answers of the dashboard.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path as UrlPath, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::files;
use super::origin::Names;
use super::visitor::{By, Visitor};
use crate::accounts::passwords::Passwords;
use crate::accounts::sessions::{LONGEST, Session};
use crate::accounts::{Accounts, Signed};
use crate::api::{ApiError, DashboardRole, ErrorKind, FollowChanges, Form, Password};
use crate::caller::{Caller, Connection, Person};
use crate::daemon::{self, Daemon};
use crate::http;
use crate::metrics::Texts;

/// What the page may load, and who may put it into a frame.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                          connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; \
                          frame-ancestors 'none'";
/// Largest request, in bytes: an action's arguments, never data.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Largest request to sign in, in bytes.
const MAX_SIGN_IN_BYTES: usize = 8 << 10;
/// How long the body of a request may take, unless it is a stream.
const BODY_LIMIT: Duration = Duration::from_secs(30);
/// The longest name that is looked for, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// The address and the port that it connected to.
    pub local: IpAddr,
    /// See `local`.
    pub port: u16,
    /// Whether it came by TLS.
    pub has_tls: bool,
    /// How long the connection may last.
    pub connection: Connection,
}

impl Peer {
    /// The name of the cookie. Browsers send cookies to all ports of a host, where there may be several
    /// daemons.
    fn cookie_name(&self) -> String {
        let prefix = if self.has_tls { "__Host-" } else { "" };
        format!("{prefix}cenote-{}", self.port)
    }

    /// The value of the cookie of a request.
    pub fn cookie(&self, headers: &HeaderMap) -> Option<String> {
        let name = self.cookie_name();
        let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut all = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        all.find(|(of, _)| *of == name).map(|(_, value)| value.to_owned())
    }

    /// The header that sets the cookie for so many seconds.
    fn set_cookie(&self, value: &str, seconds: u64) -> (HeaderName, String) {
        let secure = if self.has_tls { "; Secure" } else { "" };
        let name = self.cookie_name();
        let text = format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}");
        (header::SET_COOKIE, text)
    }
}

/// Why a request is not answered, and with which status.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    error: ApiError,
    /// After how many seconds to try again.
    retry_after: Option<u64>,
}

impl Problem {
    /// A refusal.
    pub fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, error: ApiError::refused(why), retry_after: None }
    }

    /// The request is of no session.
    pub fn sign_in() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "sign in: there is no session, or it has ended")
    }

    fn too_many(wait: Duration) -> Self {
        let seconds = wait.as_secs() + 1;
        let why = format!("signing in failed too often; try again in {seconds} s");
        Self { status: StatusCode::TOO_MANY_REQUESTS, error: ApiError::busy(why), retry_after: Some(seconds) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = json(self.status, &self.error);
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// What answers.
struct Served {
    daemon: Arc<Daemon>,
    accounts: Arc<Accounts>,
    names: Names,
    texts: Texts,
}

/// All routes. A layer has to say which [`Peer`] it is.
pub fn router(daemon: Arc<Daemon>, names: Names) -> Router {
    let accounts = daemon.accounts();
    let texts = Texts::of(Arc::clone(&daemon));
    let served = Arc::new(Served { daemon, accounts, names, texts });
    let mut router = Router::new();
    for (number, file) in files::ALL.iter().enumerate() {
        let answer = move |headers: HeaderMap| async move { files::answer(number, &headers) };
        router = router.route(file.path, get(answer));
    }
    router
        .route("/session", get(session))
        .route("/sign-in", post(sign_in))
        .route("/sign-out", post(sign_out))
        .route("/metrics", get(metrics))
        .route("/v1/{action}", post(act).get(follow))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is no such page"))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(Arc::clone(&served), guard))
        .with_state(served)
}

/// Whether a path is answered to a token.
fn is_for_programs(path: &str) -> bool {
    path.starts_with("/v1/") || path == "/metrics"
}

/// Refuses what was not meant for this page, and says to browsers what the page may do.
async fn guard(
    State(served): State<Arc<Served>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let is_page = request.method() == Method::GET && files::ALL.iter().any(|file| file.path == path);
    let checked = match request.uri().authority() {
        Some(_) => Err("this is no proxy".to_owned()),
        // A page that was led here by a name of its own knows no token, and a browser adds none by itself.
        None if is_for_programs(path) && request.headers().contains_key(header::AUTHORIZATION) => Ok(()),
        None => served.names.check(request.headers(), peer.local, is_page),
    };
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(why) => Problem::new(StatusCode::FORBIDDEN, why).into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-embedder-policy", "require-corp"),
        ("x-frame-options", "DENY"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// A session as the page sees it.
#[derive(Debug, Serialize)]
struct Told<'a> {
    user: &'a str,
    role: DashboardRole,
    csrf: &'a str,
    version: &'static str,
    host: String,
    expires_in: u64,
}

impl Told<'_> {
    fn response(session: &Session) -> Response {
        let told = Told {
            user: &session.of.name,
            role: session.of.role,
            csrf: &session.csrf,
            version: env!("CARGO_PKG_VERSION"),
            host: daemon::machine_name(),
            expires_in: session.ends.saturating_duration_since(Instant::now()).as_secs(),
        };
        json(StatusCode::OK, &told)
    }
}

async fn session(
    State(served): State<Arc<Served>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    match Visitor::of(&served.accounts, &peer, &headers, false) {
        Ok(Visitor { by: By::Session(session, _), .. }) => Told::response(&session),
        Ok(_) => Problem::sign_in().into_response(),
        Err(problem) => problem.into_response(),
    }
}

/// What a request to sign in has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    #[serde(default)]
    link: Option<String>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    password: Option<Password>,
}

async fn sign_in(
    State(served): State<Arc<Served>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Response {
    let old = peer.cookie(request.headers());
    let signed = match asked(request).await {
        Ok(asked) => checked(&served, &peer, asked).await,
        Err(problem) => Err(problem),
    };
    let begun = signed.and_then(|signed| {
        let failed = |why| Problem {
            error: ApiError::failed(why),
            ..Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "")
        };
        let sessions = &served.accounts.sessions;
        let number = sessions.begin(signed).map_err(failed)?;
        if let Some(old) = old {
            sessions.end(&old);
        }
        let session = sessions.find(&number).ok_or_else(Problem::sign_in)?;
        Ok((session, number))
    });
    match begun {
        Ok((session, number)) => {
            let mut response = Told::response(&session);
            let (name, value) = peer.set_cookie(&number, LONGEST.as_secs());
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(name, value);
            }
            response
        }
        Err(problem) => problem.into_response(),
    }
}

/// Reads a request to sign in.
async fn asked(request: Request) -> Result<SignIn, Problem> {
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    // A form of another page cannot say so.
    if media.is_none_or(|media| media.split(';').next().unwrap_or_default().trim() != "application/json") {
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a request to sign in is JSON"));
    }
    let invalid = || Problem {
        error: ApiError::invalid("a request to sign in has a link, or a user and a password"),
        ..Problem::new(StatusCode::BAD_REQUEST, "")
    };
    let body = match timeout(BODY_LIMIT, http::read_whole(request)).await {
        Ok(Ok(body)) if body.len() <= MAX_SIGN_IN_BYTES => body,
        _ => return Err(invalid()),
    };
    serde_json::from_slice(&body).map_err(|_| invalid())
}

/// The user who signs in, if all is right. It is written down.
async fn checked(served: &Served, peer: &Peer, asked: SignIn) -> Result<Signed, Problem> {
    let accounts = &served.accounts;
    // A link cannot be guessed, so that strangers who guess keep its owner out of nothing.
    if let Some(signed) = asked.link.as_deref().and_then(|link| accounts.links.take(link)) {
        note(served, peer, &signed, "sign-in", Ok(()));
        return Ok(signed);
    }
    let name = asked.user.as_deref().filter(|name| name.len() <= MAX_NAME_BYTES);
    let attempt = accounts.throttle.begin(peer.address, name).map_err(Problem::too_many)?;
    let signed = match (asked.link, asked.password) {
        (Some(_), _) => Err("the link was used already, or is too old; 'cenote dashboard' makes another one"),
        (None, Some(password)) => {
            let user = name.and_then(|name| accounts.user(name));
            let Some(turn) = accounts.passwords.turn().await else {
                return Err(Problem::too_many(Duration::ZERO));
            };
            let kept = user.clone();
            // It computes for some time.
            let check = move || Passwords::is_right(kept.as_ref().map(|(_, kept)| kept), &password, turn);
            let is_right = tokio::task::spawn_blocking(check).await.unwrap_or(false);
            // It may have been changed meanwhile.
            let user = user.filter(|user| is_right && accounts.user(&user.0.name).as_ref() == Some(user));
            user.map(|(signed, _)| signed).ok_or("the name or the password is wrong")
        }
        _ => Err("a link, or a user and a password, is needed"),
    };
    match signed {
        Ok(signed) => {
            attempt.was_right();
            note(served, peer, &signed, "sign-in", Ok(()));
            Ok(signed)
        }
        Err(why) => {
            // A name that is not known may be a password that was typed in the wrong place.
            let known = name.and_then(|name| accounts.user(name)).map(|(signed, _)| signed);
            let none = Signed { name: "?".to_owned(), role: DashboardRole::Viewer, uid: None };
            note(served, peer, &known.unwrap_or(none), "sign-in", Err(why));
            Err(Problem::new(StatusCode::UNAUTHORIZED, why))
        }
    }
}

/// Writes into the audit log that a user came, could not come, or went.
fn note(served: &Served, peer: &Peer, signed: &Signed, what: &str, result: Result<(), &str>) {
    let Some(role) = signed.role.role() else { return };
    let (name, uid, address) = (signed.name.clone(), signed.uid, peer.address);
    let caller = Caller::person_of(Person { name, role, token: None, session: None, uid, address });
    served.daemon.note_visit(&caller, what, &result.map_err(ApiError::refused));
}

async fn sign_out(
    State(served): State<Arc<Served>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    match Visitor::of(&served.accounts, &peer, &headers, true) {
        Ok(Visitor { by: By::Session(_, number), signed }) => {
            served.accounts.sessions.end(&number);
            note(&served, &peer, &signed, "sign-out", Ok(()));
            let (name, value) = peer.set_cookie("", 0);
            (StatusCode::NO_CONTENT, [(name, value)]).into_response()
        }
        Ok(_) => Problem::sign_in().into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn metrics(
    State(served): State<Arc<Served>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    match Visitor::of(&served.accounts, &peer, &headers, false) {
        Ok(_) => served.texts.answer().await,
        Err(problem) => problem.into_response(),
    }
}

/// Does what a visitor asks for, as long as it may.
async fn act(
    State(served): State<Arc<Served>>,
    Extension(peer): Extension<Peer>,
    UrlPath(action): UrlPath<String>,
    request: Request,
) -> Response {
    let came = Visitor::of(&served.accounts, &peer, request.headers(), true);
    let (visitor, caller) = match came.and_then(|visitor| Ok((visitor.caller(&peer)?, visitor))) {
        Ok((caller, visitor)) => (visitor, caller),
        Err(problem) => return problem.into_response(),
    };
    let form = daemon::known(&action).map_or(Form::Once, |known| known.declared.form);
    let request = match form {
        Form::StreamIn => request,
        _ => request.map(in_time),
    };
    let lasts = !matches!(form, Form::Once | Form::OnceByServer);
    if lasts && !visitor.may_last() {
        return too_many_last();
    }
    let response = http::act_for(Arc::clone(&served.daemon), caller, action, request).await;
    match lasts && response.status().is_success() {
        true => response.map(|body| as_long_as(body, visitor, &served.accounts)),
        false => response,
    }
}

/// `GET /v1/events`, for programs that cannot ask by `POST`.
async fn follow(
    State(served): State<Arc<Served>>,
    Extension(peer): Extension<Peer>,
    UrlPath(path): UrlPath<String>,
    query: Query<FollowChanges>,
    headers: HeaderMap,
) -> Response {
    let came = Visitor::of(&served.accounts, &peer, &headers, false);
    let (visitor, caller) = match came.and_then(|visitor| Ok((visitor.caller(&peer)?, visitor))) {
        Ok((caller, visitor)) => (visitor, caller),
        Err(problem) => return problem.into_response(),
    };
    if !visitor.may_last() {
        return too_many_last();
    }
    let response = http::follow_for(Arc::clone(&served.daemon), caller, path, query.0, headers).await;
    match response.status().is_success() {
        true => response.map(|body| as_long_as(body, visitor, &served.accounts)),
        false => response,
    }
}

fn too_many_last() -> Response {
    let error =
        ApiError::new(ErrorKind::Busy, "the session follows too much at once; close another page of it");
    json(StatusCode::CONFLICT, &error)
}

/// A body that ends with the visitor's session or token.
fn as_long_as(body: Body, visitor: Visitor, accounts: &Arc<Accounts>) -> Body {
    let over = Box::pin(visitor.over(Arc::clone(accounts)));
    Body::from_stream(body.into_data_stream().take_until(over))
}

/// A body that breaks off when it takes too long.
fn in_time(body: Body) -> Body {
    let limit = Box::pin(tokio::time::sleep(BODY_LIMIT));
    let pieces = stream::unfold(Some((body.into_data_stream(), limit)), async |state| {
        let (mut pieces, mut limit) = state?;
        tokio::select! {
            piece = pieces.next() => Some((piece?, Some((pieces, limit)))),
            () = &mut limit => Some((Err(axum::Error::new("the body took too long")), None)),
        }
    });
    Body::from_stream(pieces)
}
