//! The dashboard: its address, and who may sign in.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Action, Declaration, Delegated, Effects, Part, Role, wipe};

/// The longest password, in bytes.
const MAX_PASSWORD_BYTES: usize = 1024;

/// A role of a user or of a token of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DashboardRole {
    /// Reads counters for Prometheus, and nothing else. For tokens only.
    Metrics,
    /// Sees what any user of the machine may see.
    Viewer,
    /// Runs the machine from day to day, and destroys nothing.
    Operator,
    /// May do all that root may.
    Admin,
}

impl DashboardRole {
    /// The role for actions; none for one that may ask for none.
    pub const fn role(self) -> Option<Role> {
        match self {
            Self::Metrics => None,
            Self::Viewer => Some(Role::Viewer),
            Self::Operator => Some(Role::Operator),
            Self::Admin => Some(Role::Admin),
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self.role() {
            None => "metrics",
            Some(role) => role.name(),
        }
    }
}

impl From<Role> for DashboardRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Viewer => Self::Viewer,
            Role::Operator => Self::Operator,
            Role::Admin => Self::Admin,
        }
    }
}

/// A password: a text that is wiped when it is dropped, never shown, and never part of an error.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Password(Vec<u8>);

impl Password {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl Drop for Password {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

impl Serialize for Password {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Err(serde::ser::Error::custom("a password is a text")),
        }
    }
}

impl<'de> Deserialize<'de> for Password {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As it comes: what is no text would otherwise be shown in the error.
        deserializer.deserialize_any(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = Password;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a password")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Password, E> {
        match text.len() <= MAX_PASSWORD_BYTES {
            true => Ok(Password(text.as_bytes().to_vec())),
            false => Err(E::custom("the password is too long")),
        }
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Password, E> {
        Err(E::custom("a password is a text, not a number"))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Password, E> {
        Err(E::custom("a password is a text, not a number"))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Password, E> {
        Err(E::custom("a password is a text, not a number"))
    }
}

impl JsonSchema for Password {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Password".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// Asks for a link by which the caller signs in to the dashboard once. The dashboard begins to listen where
/// it does not yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GetDashboardLink {
    /// Where it is to listen, `ADDRESS:PORT`; by default where it does, else at 127.0.0.1:7227.
    pub listen: Option<String>,
}

/// A link that signs in once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DashboardLink {
    /// The address of the page, with the secret in its fragment, which browsers send to no server.
    pub url: String,
    /// How long it may be used, in seconds.
    pub expires_in: u64,
    /// The SHA-256 fingerprint of the certificate, where TLS is used.
    pub certificate_fingerprint: Option<String>,
    /// All addresses on which the dashboard listens.
    pub addresses: Vec<String>,
}

impl Action for GetDashboardLink {
    const DECLARED: Declaration = Declaration::changes(
        "dashboard-link",
        Part::Daemon,
        Role::Admin,
        Effects::SETTINGS,
        "A link that signs in to the dashboard once; begins the dashboard",
    )
    .in_words("open the dashboard", "")
    .on_this_machine();
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = DashboardLink;
}

/// Asks who may sign in to the dashboard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListDashboardUsers {}

/// A user of the dashboard: one with a password, or a user of the machine who made tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DashboardUser {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: DashboardRole,
    /// Whether it signs in with a password. A user of the machine comes by a link.
    pub has_password: bool,
    /// When it was made, in seconds since 1970; 0 for a user of the machine.
    pub created: u64,
    /// How many sessions it has now.
    pub sessions: u64,
    /// Its tokens.
    pub tokens: Vec<DashboardToken>,
}

/// A token: what it is, without its secret, of which only a hash is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DashboardToken {
    /// Its name.
    pub name: String,
    /// Its role. It has never more than its user.
    pub role: DashboardRole,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// When it ends, in seconds since 1970; never without.
    pub ends: Option<u64>,
    /// When it was used last, in seconds since 1970, as far as the daemon knows since its start.
    pub last_used: Option<u64>,
}

impl Action for ListDashboardUsers {
    const DECLARED: Declaration = Declaration::reads(
        "dashboard-users",
        Part::Daemon,
        Role::Admin,
        "Lists users of the dashboard, with their tokens",
    )
    .in_words("show users of the dashboard", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<DashboardUser>;
}

/// Makes a user of the dashboard, or changes its role or password, which ends its sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SetDashboardUser {
    /// Its name.
    pub name: String,
    /// Its role; needed for a new user.
    pub role: Option<DashboardRole>,
    /// Its password; needed for a new user.
    pub password: Option<Password>,
}

impl Action for SetDashboardUser {
    const DECLARED: Declaration = Declaration::changes(
        "dashboard-user-set",
        Part::Daemon,
        Role::Admin,
        Effects::SETTINGS,
        "Makes a user of the dashboard, or changes its role or password",
    )
    .in_words("set the user of the dashboard", "name")
    .with_secrets();
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Changes the own password, and ends the own other sessions. For a user with a password, who has signed in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SetDashboardPassword {
    /// The password as it is.
    pub old: Password,
    /// The password as it is to be.
    pub new: Password,
}

impl Action for SetDashboardPassword {
    const DECLARED: Declaration = Declaration::changes(
        "dashboard-password-set",
        Part::Daemon,
        Role::Viewer,
        Effects::SETTINGS,
        "Changes the own password",
    )
    .in_words("change the own password", "")
    .with_secrets();
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Removes a user of the dashboard, with its sessions and tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RemoveDashboardUser {
    /// Its name.
    pub name: String,
}

impl Action for RemoveDashboardUser {
    const DECLARED: Declaration = Declaration::changes(
        "dashboard-user-remove",
        Part::Daemon,
        Role::Admin,
        Effects::SETTINGS,
        "Removes a user of the dashboard, with its sessions and tokens",
    )
    .in_words("remove the user of the dashboard", "name");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Makes a token of the user who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreateDashboardToken {
    /// Its name, which no other token has.
    pub name: String,
    /// Its role.
    pub role: DashboardRole,
    /// After how many days it ends; never without.
    #[serde(default)]
    pub days: Option<u32>,
}

/// A new token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewDashboardToken {
    /// The token, as a client sends it (`authorization: Bearer TOKEN`). It is shown this once.
    pub token: String,
    /// When it ends, in seconds since 1970; never without.
    pub ends: Option<u64>,
}

impl Action for CreateDashboardToken {
    const DECLARED: Declaration = Declaration::changes(
        "dashboard-token-create",
        Part::Daemon,
        Role::Admin,
        Effects::SETTINGS,
        "Makes a token for programs, which is shown once",
    )
    .in_words("create the token", "name");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = NewDashboardToken;
}

/// Removes a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RemoveDashboardToken {
    /// Its name.
    pub name: String,
}

impl Action for RemoveDashboardToken {
    const DECLARED: Declaration = Declaration::changes(
        "dashboard-token-remove",
        Part::Daemon,
        Role::Admin,
        Effects::SETTINGS,
        "Removes a token",
    )
    .in_words("remove the token", "name");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_texts_and_are_shown_nowhere() {
        let request: SetDashboardUser =
            serde_json::from_str(r#"{"name": "ann", "password": "correct horse"}"#).unwrap();
        assert_eq!(request.password.as_ref().unwrap().bytes(), b"correct horse");
        assert!(!format!("{request:?}").contains("horse"));
        for wrong in ["7777", "-77", "7.7", "[\"sesame\"]", "{\"sesame\": 1}", "null"] {
            let text = format!(r#"{{"name": "ann", "role": "admin", "password": [{wrong}]}}"#);
            let error = serde_json::from_str::<SetDashboardUser>(&text).unwrap_err().to_string();
            assert!(!error.contains("sesame") && !error.contains("77"), "{error}");
            let error = serde_json::from_str::<Password>(wrong).unwrap_err().to_string();
            assert!(!error.contains("sesame") && !error.contains("77"), "{error}");
        }
        let long = serde_json::to_string(&"x".repeat(MAX_PASSWORD_BYTES + 1)).unwrap();
        assert!(serde_json::from_str::<Password>(&long).is_err());
    }
}
