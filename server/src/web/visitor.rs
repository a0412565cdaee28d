//! As whom a request comes: by the cookie of a session, or by a token.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};

use super::routes::{Peer, Problem};
use crate::accounts::sessions::{self, Session};
use crate::accounts::{Accounts, Signed};
use crate::api::DashboardRole;
use crate::caller::{Caller, Person, Who};

/// The header with the token against forged requests.
pub const CSRF_HEADER: &str = "x-cenote-csrf";
/// How often it is looked whether a token counts on, while an answer to it lasts.
const TOKEN_LOOK: Duration = Duration::from_secs(15);

/// Where a request came from.
#[derive(Debug)]
pub struct Visitor {
    /// Its user.
    pub signed: Signed,
    /// By what.
    pub by: By,
}

/// By what a request was let in.
#[derive(Debug)]
pub enum By {
    /// A session, with its number.
    Session(Session, String),
    /// A token, with its name.
    Token {
        /// Its name.
        name: String,
        /// The token.
        token: String,
    },
}

impl Visitor {
    /// The visitor of a request. `changes` for requests that other pages must not be able to make.
    ///
    /// # Errors
    /// It has not signed in, or the request may be another page's.
    pub fn of(accounts: &Accounts, peer: &Peer, headers: &HeaderMap, changes: bool) -> Result<Self, Problem> {
        if let Some(given) = headers.get(header::AUTHORIZATION) {
            let text = given.to_str().unwrap_or_default();
            let (scheme, token) = text.split_once(' ').unwrap_or_default();
            let found = match scheme.eq_ignore_ascii_case("bearer") {
                true => accounts.by_token(token.trim()),
                false => None,
            };
            let (signed, name) = found.ok_or_else(|| {
                Problem::new(StatusCode::UNAUTHORIZED, "the token is not known here, or has ended")
            })?;
            let token = token.trim().to_owned();
            return Ok(Self { signed, by: By::Token { name, token } });
        }
        let number = peer.cookie(headers).ok_or_else(Problem::sign_in)?;
        let session = accounts.sessions.find(&number).ok_or_else(Problem::sign_in)?;
        let given = headers.get(CSRF_HEADER);
        if changes && !given.is_some_and(|given| session.has_csrf(given.as_bytes())) {
            let why = format!("the request lacks the token of its session (the header '{CSRF_HEADER}')");
            return Err(Problem::new(StatusCode::FORBIDDEN, why));
        }
        Ok(Self { signed: session.of.clone(), by: By::Session(session, number) })
    }

    /// It as the one who asks for actions, whose connection may last from now on.
    ///
    /// # Errors
    /// Its role is for no actions.
    pub fn caller(&self, peer: &Peer) -> Result<Caller, Problem> {
        let Some(role) = self.signed.role.role() else {
            let name = DashboardRole::Metrics.name();
            let why = format!("a token of the role '{name}' reads /metrics, and nothing else");
            return Err(Problem::new(StatusCode::FORBIDDEN, why));
        };
        peer.connection.may_last();
        let person = Person {
            name: self.signed.name.clone(),
            role,
            token: match &self.by {
                By::Session(..) => None,
                By::Token { name, .. } => Some(name.clone()),
            },
            session: match &self.by {
                By::Session(_, number) => Some(sessions::id_of(number)),
                By::Token { .. } => None,
            },
            uid: self.signed.uid,
            address: peer.address,
        };
        Ok(Caller { who: Who::Person(Arc::new(person)), connection: peer.connection.clone() })
    }

    /// Whether one more answer to it may last.
    pub fn may_last(&self) -> bool {
        match &self.by {
            By::Session(session, _) => session.may_last(),
            By::Token { .. } => true,
        }
    }

    /// Completes when it may not go on: its session or its token has ended, or it has another role.
    pub async fn over(self, accounts: Arc<Accounts>) {
        match self.by {
            By::Session(session, _) => session.ended().await,
            By::Token { token, .. } => loop {
                tokio::time::sleep(TOKEN_LOOK).await;
                if accounts.by_token(&token).is_none_or(|(now, _)| now != self.signed) {
                    return;
                }
            },
        }
    }
}
