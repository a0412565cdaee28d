//! Requests about encryption keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::needs;
use super::{Action, Declaration, Delegated, Effects, Need, Part, Role, Secret};

/// Loads the key of an encryption root, or only checks it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LoadKey {
    /// The encryption root.
    pub dataset: String,
    /// The passphrase, hex digits or raw bytes, as the root's `keyformat` says; a line end after digits or a
    /// passphrase does not count. `None` reads the file, or asks the server, that the root's
    /// `keylocation` names.
    pub key: Option<Secret>,
    /// A location to read instead of the root's `keylocation`: `file:///…`, `https://…`, `http://…`.
    pub location: Option<String>,
    /// Check the key and load nothing.
    pub dry_run: bool,
}

impl Action for LoadKey {
    const DECLARED: Declaration = Declaration::changes(
        "key-load",
        Part::Mounts,
        Role::Admin,
        Effects::VOLUMES,
        "Loads a key, or checks it",
    )
    .in_words("load key for", "dataset")
    .with_secrets();
    const DELEGATED: Delegated<Self> =
        Delegated::Needs("`load-key`, with the key in the request", |request| {
            // Root's daemon would read a file, or an address, that a user names.
            let mut needs = vec![Need::on("load-key", &request.dataset)];
            if request.key.is_none() || request.location.is_some() {
                needs.push(Need::Never);
            }
            Ok((request, needs))
        });
    type Reply = KeyLoaded;
}

/// The result of loading a key.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct KeyLoaded {
    /// Datasets that can be read with it.
    pub datasets: u64,
    /// Things that went wrong without stopping it, each a sentence.
    pub warnings: Vec<String>,
}

/// Forgets the key of an encryption root. Its filesystems must not be mounted, its volumes not in use.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UnloadKey {
    /// The encryption root.
    pub dataset: String,
}

impl Action for UnloadKey {
    const DECLARED: Declaration =
        Declaration::changes("key-unload", Part::Mounts, Role::Admin, Effects::VOLUMES, "Forgets a key")
            .in_words("unload key for", "dataset");
    const DELEGATED: Delegated<Self> = Delegated::Needs("`load-key`", |request| {
        let needs = vec![Need::on("load-key", &request.dataset)];
        Ok((request, needs))
    });
    type Reply = ();
}

/// Changes the key that a user gives for a dataset, which must be loaded. All that inherits it from there
/// gets the new one. A dataset that inherits its key becomes an encryption root by this.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChangeKey {
    /// The filesystem or volume.
    pub dataset: String,
    /// It inherits the key of its parent from now on, and is no encryption root any more.
    pub inherit: bool,
    /// The new key, in the form that the new `keyformat` says. `None` reads the file, or asks the
    /// server, that the new `keylocation` names.
    pub key: Option<Secret>,
    /// `keyformat`, `keylocation` and `pbkdf2iters` as typed, where they change, and user properties.
    pub properties: Vec<(String, String)>,
    /// Check only what can be said without the key.
    pub dry_run: bool,
    /// For the history.
    pub command: Option<String>,
}

impl Action for ChangeKey {
    const DECLARED: Declaration = Declaration::changes(
        "key-change",
        Part::Mounts,
        Role::Admin,
        Effects::DATASETS,
        "Changes the key that a user gives for a dataset, or has it inherited",
    )
    .in_words("change key for", "dataset")
    .with_secrets();
    const DELEGATED: Delegated<Self> =
        Delegated::Needs("`change-key`, with the key in the request; its user properties", |request| {
            let mut needs = vec![Need::on("change-key", &request.dataset)];
            // Root's daemon would read a file, or an address, that a user names.
            if request.key.is_none() && !request.inherit {
                needs.push(Need::Never);
            }
            for (property, _) in &request.properties {
                if engine::properties::is_user(property) {
                    let datasets = std::slice::from_ref(&request.dataset);
                    needs.extend(needs::for_property(property, datasets, false, false)?);
                }
            }
            Ok((request, needs))
        });
    type Reply = ();
}

/// Lists encryption roots.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListKeys {
    /// The filesystem or volume to begin at; `None` for all pools.
    pub dataset: Option<String>,
    /// Also below it; otherwise the encryption root that the dataset uses, whether itself or one above.
    pub recursive: bool,
}

/// An encryption root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyEntry {
    /// The encryption root.
    pub dataset: String,
    /// How the key is given: `passphrase`, `hex` or `raw`.
    pub format: String,
    /// Where it is found: `prompt`, or a URI.
    pub location: String,
    /// Whether it is loaded.
    pub loaded: bool,
}

impl Action for ListKeys {
    const DECLARED: Declaration =
        Declaration::reads("key-list", Part::Mounts, Role::Operator, "Lists encryption roots");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<KeyEntry>;
}
