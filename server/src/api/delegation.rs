//! Who may do what with datasets: `zfs allow` and `zfs unallow`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Need, Part, Role};

/// To whom something is granted, as typed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Grantees {
    /// These: users where there are such users, else groups. Names or numbers.
    Named(Vec<String>),
    /// These users.
    Users(Vec<String>),
    /// These groups.
    Groups(Vec<String>),
    /// Everyone.
    #[default]
    Everyone,
    /// Who creates a dataset below, for that dataset.
    Creator,
    /// The set of permissions of this name, `@` included, wherever it is granted.
    Set(String),
}

/// Grants permissions on a filesystem or volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AllowPermissions {
    /// The dataset.
    pub dataset: String,
    /// To whom.
    pub to: Grantees,
    /// On the dataset itself. Neither this nor the next stands for both.
    pub local: bool,
    /// On all below it.
    pub descendent: bool,
    /// Names of permissions, and of sets with `@`.
    pub permissions: Vec<String>,
    /// For the history.
    pub command: Option<String>,
}

impl Action for AllowPermissions {
    const DECLARED: Declaration = Declaration::changes(
        "delegation-allow",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS,
        "Grants permissions on a dataset",
    )
    .in_words("set permissions on", "dataset");
    /// Not `allow` itself, nor sets: who gets these could grant more than the caller has.
    const DELEGATED: Delegated<Self> = Delegated::Needs("`allow`, and what is granted", |request| {
        let mut needs = vec![Need::on("allow", &request.dataset)];
        for permission in &request.permissions {
            needs.push(match permission.as_str() {
                "allow" => Need::Never,
                set if set.starts_with('@') => Need::Never,
                permission => Need::on(permission, &request.dataset),
            });
        }
        Ok((request, needs))
    });
    type Reply = ();
}

/// Takes permissions on a filesystem or volume away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UnallowPermissions {
    /// The dataset.
    pub dataset: String,
    /// From whom.
    pub from: Grantees,
    /// On the dataset itself. Neither this nor the next stands for both.
    pub local: bool,
    /// On all below it.
    pub descendent: bool,
    /// Names of permissions, and of sets with `@`; none for all.
    pub permissions: Vec<String>,
    /// Also from what is granted by datasets below.
    pub recursive: bool,
    /// For the history.
    pub command: Option<String>,
}

impl Action for UnallowPermissions {
    const DECLARED: Declaration = Declaration::changes(
        "delegation-unallow",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS,
        "Takes permissions on a dataset away",
    )
    .in_words("remove permissions on", "dataset");
    /// Who may grant may only give up what is the own.
    const DELEGATED: Delegated<Self> = Delegated::Needs("`allow`, from the caller itself", |request| {
        let allow = match request.recursive {
            true => Need::below("allow", &request.dataset),
            false => Need::on("allow", &request.dataset),
        };
        let own = match &request.from {
            Grantees::Named(users) | Grantees::Users(users) => Need::Own(users.clone()),
            _ => Need::Never,
        };
        Ok((request, vec![allow, own]))
    });
    type Reply = ();
}

/// Asks what is granted on a filesystem or volume, and on those above it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListPermissions {
    /// The dataset.
    pub dataset: String,
}

/// What is granted by one dataset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GrantedBy {
    /// The dataset.
    pub dataset: String,
    /// What it grants, in OpenZFS's order.
    pub grants: Vec<Granted>,
}

/// Permissions that a user, a group or all have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Granted {
    /// Who.
    pub to: Grantee,
    /// On the dataset itself; false for creators and sets.
    pub local: bool,
    /// On all below it; false for creators and sets.
    pub descendent: bool,
    /// Names of permissions, and of sets with `@`.
    pub permissions: Vec<String>,
}

/// Who has permissions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Grantee {
    /// The set of permissions of this name.
    Set(String),
    /// Who creates a dataset below, for that dataset.
    Creator,
    /// A user: the number, and the name if there is one.
    User(u64, Option<String>),
    /// A group: the number, and the name if there is one.
    Group(u64, Option<String>),
    /// Everyone.
    Everyone,
}

impl Action for ListPermissions {
    const DECLARED: Declaration = Declaration::reads(
        "delegation-list",
        Part::Datasets,
        Role::Viewer,
        "What a dataset and those above it grant to whom",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// The dataset itself first; none without grants.
    type Reply = Vec<GrantedBy>;
}
