//! Links to the dashboard, its users and tokens.
//!
//! What listens is above the daemon ([`crate::web`]): a request that has it begin goes there by a channel,
//! and what came of it comes back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::Daemon;
use super::host::host_name;
use crate::accounts::passwords::Passwords;
use crate::accounts::{self, Accounts, LINK_LASTS, Signed};
use crate::api::{
    ApiError, CreateDashboardToken, DashboardLink, DashboardRole, DashboardUser, GetDashboardLink,
    ListDashboardUsers, NewDashboardToken, RemoveDashboardToken, RemoveDashboardUser, SetDashboardPassword,
    SetDashboardUser,
};
use crate::caller::{Caller, Who};

/// Has the dashboard begin to listen, where it does not yet.
#[derive(Debug)]
pub struct Begin {
    /// Where; none for where it does, or its usual place.
    pub listen: Option<String>,
    /// What came of it.
    pub answer: oneshot::Sender<Result<Begun, ApiError>>,
}

/// The dashboard as it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// Where.
    pub addresses: Vec<SocketAddr>,
    /// Whether it uses TLS.
    pub has_tls: bool,
    /// The fingerprint of its certificate.
    pub fingerprint: Option<String>,
}

impl Begun {
    /// The address of the page, for a browser on this machine if that can be.
    fn url(&self) -> Option<String> {
        let is_here = |address: &&SocketAddr| address.ip().is_loopback() || address.ip().is_unspecified();
        let mut address = *self.addresses.iter().find(is_here).or_else(|| self.addresses.first())?;
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        let scheme = if self.has_tls { "https" } else { "http" };
        Some(format!("{scheme}://{address}/"))
    }
}

/// The name of this machine.
pub fn machine_name() -> String {
    host_name()
}

impl Daemon {
    /// Who may come by the dashboard.
    pub fn accounts(&self) -> Arc<Accounts> {
        let file = || self.cachefile.as_ref().map(|cachefile| cachefile.with_file_name(accounts::FILE_NAME));
        Arc::clone(self.accounts.get_or_init(|| Arc::new(Accounts::open(file()))))
    }

    /// There is a dashboard, which takes requests to begin.
    pub(crate) fn has_dashboard(&self, begins: mpsc::Sender<Begin>) {
        // There is one of them.
        let _ = self.dashboard.set(begins);
    }

    /// Makes a link that signs in once, and has the dashboard begin to listen.
    ///
    /// # Errors
    /// It cannot listen, or the daemon has none.
    pub async fn dashboard_link(&self, request: GetDashboardLink) -> Result<DashboardLink, ApiError> {
        let none = || ApiError::refused("cannot open the dashboard: this daemon serves none");
        let begins = self.dashboard.get().ok_or_else(none)?;
        let (answer, answered) = oneshot::channel();
        let begin = Begin { listen: request.listen, answer };
        begins.try_send(begin).map_err(|_| ApiError::busy("cannot open the dashboard: try again"))?;
        let begun = answered.await.map_err(|_| none())??;
        let failed = |why: String| ApiError::failed(format!("cannot open the dashboard: {why}"));
        let url = begun.url().ok_or_else(|| failed("it does not listen".to_owned()))?;
        let secret = self.accounts().links.make(signed_of_caller()).map_err(failed)?;
        Ok(DashboardLink {
            url: format!("{url}#sign-in={secret}"),
            expires_in: LINK_LASTS.as_secs(),
            certificate_fingerprint: begun.fingerprint,
            addresses: begun.addresses.iter().map(ToString::to_string).collect(),
        })
    }

    /// The users of the dashboard, with their tokens.
    ///
    /// # Errors
    /// None.
    pub fn dashboard_users(&self, _: ListDashboardUsers) -> Result<Vec<DashboardUser>, ApiError> {
        Ok(self.accounts().list())
    }

    /// Makes or changes a user of the dashboard. It takes some time, and blocks the thread.
    ///
    /// # Errors
    /// What cannot be, or the file cannot be written.
    pub fn set_dashboard_user(&self, request: SetDashboardUser) -> Result<(), ApiError> {
        let hash = |password| accounts::hashed(&request.name, password);
        let password = request.password.as_ref().map(hash).transpose()?;
        self.accounts().set_user(&request, password)
    }

    /// Changes the password of the user who asks. It takes some time, and blocks the thread.
    ///
    /// # Errors
    /// The caller has not signed in by a password; the old one is wrong, or was tried too often; the new one
    /// cannot be; the file cannot be written.
    pub async fn set_dashboard_password(&self, request: SetDashboardPassword) -> Result<(), ApiError> {
        let refused = |why: &str| ApiError::refused(format!("cannot change the own password: {why}"));
        let busy = |why: &str| ApiError::busy(format!("cannot change the own password: {why}"));
        let caller = Caller::current();
        let person = caller.as_ref().and_then(Caller::person).filter(|person| person.uid.is_none());
        let signed = person.and_then(|person| Some((person, person.session.as_ref()?)));
        let Some((person, session)) = signed else {
            return Err(refused(
                "this is for users who have signed in to the dashboard with a password; 'cenote dashboard' \
                 sets those of others",
            ));
        };
        let accounts = self.accounts();
        let (_, kept) = accounts.user(&person.name).ok_or_else(|| refused("the user is gone"))?;
        // A client with a session of another's must not try passwords faster than one without.
        let attempt = accounts.throttle.begin(person.address, Some(&person.name)).map_err(|wait| {
            busy(&format!("a wrong password was given too often; try again in {} s", wait.as_secs() + 1))
        })?;
        let turn = accounts.passwords.turn().await.ok_or_else(|| busy("many sign in now; try again"))?;
        if !Passwords::is_right(Some(&kept), &request.old, turn) {
            return Err(refused("the old password is wrong"));
        }
        attempt.was_right();
        let turn = accounts.passwords.turn().await.ok_or_else(|| busy("many sign in now; try again"))?;
        let new = accounts::hashed(&person.name, &request.new)?;
        drop(turn);
        accounts.set_password(&person.name, &kept, new, session)
    }

    /// Removes a user of the dashboard.
    ///
    /// # Errors
    /// There is none, or the file cannot be written.
    pub fn remove_dashboard_user(&self, request: RemoveDashboardUser) -> Result<(), ApiError> {
        self.accounts().remove_user(&request.name)
    }

    /// Makes a token of the caller.
    ///
    /// # Errors
    /// What cannot be, or the file cannot be written.
    pub fn create_dashboard_token(
        &self,
        request: CreateDashboardToken,
    ) -> Result<NewDashboardToken, ApiError> {
        self.accounts().create_token(&signed_of_caller(), &request)
    }

    /// Removes a token.
    ///
    /// # Errors
    /// There is none, or the file cannot be written.
    pub fn remove_dashboard_token(&self, request: RemoveDashboardToken) -> Result<(), ApiError> {
        self.accounts().remove_token(&request.name)
    }
}

/// The caller of the request as a user of the dashboard. Only admins ask for what needs it.
fn signed_of_caller() -> Signed {
    let caller = Caller::current().unwrap_or_else(Caller::own);
    let uid = match &caller.who {
        Who::Process(process) => Some(process.uid),
        Who::Person(person) => person.uid,
    };
    let name = caller.user().unwrap_or_else(|| format!("uid-{}", caller.uid()));
    Signed { name, role: DashboardRole::Admin, uid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_reached_on_this_machine_where_that_can_be() {
        let url = |addresses: &[&str], has_tls| {
            let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
            Begun { addresses, has_tls, fingerprint: None }.url()
        };
        assert_eq!(url(&["192.0.2.7:1", "0.0.0.0:2"], true).as_deref(), Some("https://127.0.0.1:2/"));
        assert_eq!(url(&["[::]:1"], false).as_deref(), Some("http://[::1]:1/"));
        assert_eq!(url(&["192.0.2.7:1"], true).as_deref(), Some("https://192.0.2.7:1/"));
        assert_eq!(url(&[], true), None);
    }
}
