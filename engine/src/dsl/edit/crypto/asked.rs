//! What the properties of a new dataset ask for: `encryption`, `keyformat`, `keylocation`, `pbkdf2iters`.
//!
//! | parent | `encryption` | `keyformat` | `keylocation` | the dataset is |
//! |---|---|---|---|---|
//! | any | not given: as the parent, or off | no | no | as its parent, with the key of the same root |
//! | any | `off` | no | no | not encrypted |
//! | not encrypted | a suite | yes | perhaps | an encryption root |
//! | encrypted | a suite | no | no | encrypted with that suite, with the key of its parent's root |
//! | encrypted | a suite or not given | yes | perhaps | an encryption root |
//!
//! All other combinations are refused, in OpenZFS's words. `encryption`, `keyformat` and `pbkdf2iters` are no
//! stored properties: the key object says them. `keylocation` is stored at roots only.
//!
//! Source of the facts: OpenZFS 2.4 `libzfs_crypto.c` (`zfs_crypto_create`), `dsl_crypt.c`
//! (`dmu_objset_create_crypt_check`), `zfs_prop.c`.

use std::sync::Arc;

use codec::crypt::Suite;
use ondisk::crypto_key::KeyFormat;
use ondisk::features::Feature;

use super::super::properties::{Assignment, assigned};
use super::{root_of, suite_of, wrapping_of};
use crate::dsl::SyncTask;
use crate::dsl::edit::FoundHead;
use crate::dsl::keys::{UserKey, check_iterations};
use crate::error::{Error, Result};
use crate::properties::{Prop, Value};

/// `on` and `off` of `encryption`.
const ON: u64 = 1;
const OFF: u64 = 2;
/// Where the key of something new is found, unless its maker says it.
const PROMPT: &str = "prompt";
/// The location of what has no key.
const NONE: &str = "none";
/// The most copies of a block that is encrypted: the place of the third holds salt and IV.
const MAX_COPIES: u64 = 2;

/// How a new dataset is encrypted.
#[derive(Debug, Clone)]
pub(in crate::dsl::edit) enum Encryption {
    Off,
    /// With a key that is wrapped as that of its parent.
    Inherited(Suite),
    /// As an encryption root, with this key of its user's.
    Root(Suite, Arc<UserKey>),
}

fn refuse<T>(why: &str) -> Result<T> {
    Err(Error::Invalid(why.to_owned()))
}

/// What is asked for, before it is known whether there is a key for it.
enum Wanted {
    Off,
    Inherited(Suite),
    Root(Suite, KeyFormat),
}

fn location(plan: &[Assignment]) -> Option<&str> {
    let found = plan.iter().find(|one| one.name == Prop::Keylocation.desc().name);
    match found.map(|one| &one.value) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// What a plan asks for below a parent that is encrypted like this.
fn wanted(plan: &[Assignment], parent: Option<Suite>, is_enabled: bool) -> Result<Wanted> {
    let asked = assigned(plan, Prop::Encryption);
    let format = assigned(plan, Prop::Keyformat).and_then(|raw| KeyFormat::from_raw(raw).ok());
    let iterations = assigned(plan, Prop::Pbkdf2Iters);
    let location = location(plan);
    let is_asked_for = asked.is_some_and(|suite| suite != OFF)
        || location.is_some_and(|location| location != NONE)
        || assigned(plan, Prop::Keyformat).is_some()
        || iterations.is_some();
    if !is_enabled && is_asked_for {
        return refuse("Encryption feature not enabled.");
    }
    let suite = match asked {
        None => parent,
        Some(OFF) => None,
        Some(ON) => Some(Suite::Aes256Gcm),
        Some(raw) => Some(Suite::from_raw(raw).map_err(|error| Error::Invalid(error.to_string()))?),
    };
    let Some(suite) = suite else {
        return match is_asked_for {
            true => refuse("Encryption must be turned on to set encryption properties."),
            false => Ok(Wanted::Off),
        };
    };
    if assigned(plan, Prop::Copies).is_some_and(|copies| copies > MAX_COPIES) {
        return refuse("encrypted datasets cannot have 3 copies");
    }
    let Some(format) = format else {
        return match parent.is_some() && location.is_none() && iterations.is_none() {
            true => Ok(Wanted::Inherited(suite)),
            false => refuse("Keyformat required for new encryption root."),
        };
    };
    if location == Some(NONE) {
        return refuse("Invalid keylocation.");
    }
    if iterations.is_some() && format != KeyFormat::Passphrase {
        return refuse("Cannot specify pbkdf2iters with a non-passphrase keyformat.");
    }
    Ok(Wanted::Root(suite, format))
}

/// Checks what the properties of the root filesystem of a new pool ask for.
pub(in crate::dsl::edit) fn check_pool(
    plan: &[Assignment],
    is_enabled: impl Fn(Feature) -> bool,
) -> Result<()> {
    wanted(plan, None, can_encrypt(is_enabled)).map(drop)
}

fn can_encrypt(is_enabled: impl Fn(Feature) -> bool) -> bool {
    is_enabled(Feature::Encryption) && is_enabled(Feature::BookmarkV2)
}

/// What a new dataset's properties ask for, with the key that its maker gave. The location of a new root's
/// key becomes one of them where it was not given. With `without_key` it is not missed: nothing is created.
pub(in crate::dsl::edit) async fn plan(
    s: &SyncTask,
    plan: &mut Vec<Assignment>,
    parent: Option<&FoundHead>,
    key: Option<&Arc<UserKey>>,
    without_key: bool,
) -> Result<Encryption> {
    let of_parent = match parent {
        Some(parent) => suite_of(s, parent.phys.dir).await?,
        None => None,
    };
    let wanted = wanted(plan, of_parent, can_encrypt(|feature| s.feature_enabled(feature)))?;
    let (suite, format) = match wanted {
        Wanted::Off | Wanted::Inherited(_) if key.is_some() => {
            return refuse("a key is given for what is no encryption root; give keyformat too");
        }
        Wanted::Off => return Ok(Encryption::Off),
        Wanted::Inherited(suite) => {
            if let Some(parent) = parent {
                wrapping_of(s, parent.phys.dir).await?;
            }
            return Ok(Encryption::Inherited(suite));
        }
        Wanted::Root(suite, format) => (suite, format),
    };
    if location(plan).is_none() {
        plan.push(Assignment::of(Prop::Keylocation, Value::Text(PROMPT.to_owned())));
    }
    match key {
        Some(key) if key.format == format => Ok(Encryption::Root(suite, Arc::clone(key))),
        Some(_) => refuse("the key is of another format than keyformat says"),
        None if without_key => Ok(Encryption::Off),
        None => refuse("no key was given for the new encryption root"),
    }
}

/// The properties of encryption among those that were typed.
pub(in crate::dsl::edit) fn typed(properties: &[(String, String)]) -> Result<Vec<Assignment>> {
    let of_encryption = [Prop::Encryption, Prop::Keyformat, Prop::Keylocation, Prop::Pbkdf2Iters];
    let mut plan: Vec<Assignment> = Vec::new();
    for (name, text) in properties {
        let Some(prop) = Prop::from_name(name).filter(|prop| of_encryption.contains(prop)) else { continue };
        let value = crate::properties::typed::parse(prop, text)?;
        check_value(prop, &value)?;
        plan.retain(|other| other.name != prop.desc().name);
        plan.push(Assignment::of(prop, value));
    }
    Ok(plan)
}

/// Refuses properties of encryption where they follow from the origin.
pub(in crate::dsl::edit) fn check_nothing_asked(properties: &[(String, String)]) -> Result<()> {
    let of_encryption = [Prop::Encryption, Prop::Keyformat, Prop::Keylocation, Prop::Pbkdf2Iters];
    let is_one = |name: &str| Prop::from_name(name).is_some_and(|prop| of_encryption.contains(&prop));
    match properties.iter().any(|(name, _)| is_one(name)) {
        true => refuse("Encryption properties must inherit from origin dataset."),
        false => Ok(()),
    }
}

/// Checks a value of a property alone, without its dataset. Nothing for other properties.
pub(in crate::dsl::edit) fn check_value(prop: Prop, value: &Value) -> Result<()> {
    match (prop, value) {
        (Prop::Pbkdf2Iters, Value::Number(iterations)) => check_iterations(*iterations),
        (Prop::Pbkdf2Salt, _) => refuse("'pbkdf2salt' is readonly"),
        (Prop::Keylocation, Value::Text(location)) if !is_location(location) => refuse("invalid keylocation"),
        _ => Ok(()),
    }
}

fn is_location(location: &str) -> bool {
    let begins = |scheme: &str| location.len() > scheme.len() && location.starts_with(scheme);
    matches!(location, NONE | PROMPT) || ["file:///", "https://", "http://"].into_iter().any(begins)
}

/// Checks properties of encryption that are set on a dataset that is there.
pub(in crate::dsl::edit) async fn check_set(
    s: &SyncTask,
    head: &FoundHead,
    assignment: &Assignment,
) -> Result<()> {
    let dir = head.phys.dir;
    match Prop::from_stored_name(&assignment.name) {
        Some(Prop::Copies) if assignment.number() > MAX_COPIES => match root_of(s, dir).await? {
            Some(_) => refuse("encrypted datasets cannot have 3 copies"),
            None => Ok(()),
        },
        Some(Prop::Keylocation) => {
            let is_none = assignment.value == Value::Text(NONE.to_owned());
            match root_of(s, dir).await? {
                None if is_none => Ok(()),
                None => refuse("keylocation must be 'none' for unencrypted datasets"),
                Some(_) if is_none => refuse("keylocation must not be 'none' for encrypted datasets"),
                Some(root) if root == dir => Ok(()),
                Some(_) => refuse("keylocation may only be set on encryption roots"),
            }
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(typed: &[(Prop, u64)], at: Option<&str>, parent: Option<Suite>) -> String {
        let mut plan: Vec<_> =
            typed.iter().map(|(prop, number)| Assignment::of(*prop, Value::Number(*number))).collect();
        plan.extend(at.map(|at| Assignment::of(Prop::Keylocation, Value::Text(at.to_owned()))));
        match wanted(&plan, parent, true) {
            Ok(Wanted::Off) => "off".to_owned(),
            Ok(Wanted::Inherited(suite)) => format!("inherits, {suite}"),
            Ok(Wanted::Root(suite, format)) => format!("root, {suite}, {}", format.name()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_combinations_of_openzfs_are_allowed_and_refused() {
        use Prop::{Encryption as E, Keyformat as F, Pbkdf2Iters as I};
        let must_be_on = "Encryption must be turned on to set encryption properties.";
        let no_format = "Keyformat required for new encryption root.";
        let parent = Some(Suite::Aes128Ccm);
        // Below one that is not encrypted.
        assert_eq!(said(&[], None, None), "off");
        assert_eq!(said(&[(E, OFF)], None, None), "off");
        assert_eq!(said(&[(E, OFF)], Some("none"), None), "off");
        for (typed, at) in [
            (&[][..], Some("prompt")),
            (&[(F, 3)], None),
            (&[(F, 3)], Some("prompt")),
            (&[(I, 200_000)], None),
            (&[(E, OFF)], Some("prompt")),
            (&[(E, OFF), (F, 3)], None),
            (&[(E, OFF), (F, 3)], Some("prompt")),
        ] {
            assert_eq!(said(typed, at, None), must_be_on, "{typed:?} {at:?}");
        }
        assert_eq!(said(&[(E, ON)], None, None), no_format);
        assert_eq!(said(&[(E, ON)], Some("prompt"), None), no_format);
        assert_eq!(said(&[(E, ON), (F, 3)], None, None), "root, aes-256-gcm, passphrase");
        assert_eq!(said(&[(E, 4), (F, 1)], Some("file:///k"), None), "root, aes-192-ccm, raw");
        // Below one that is.
        assert_eq!(said(&[], None, parent), "inherits, aes-128-ccm");
        assert_eq!(said(&[], Some("prompt"), parent), no_format);
        assert_eq!(said(&[(F, 2)], None, parent), "root, aes-128-ccm, hex");
        assert_eq!(said(&[(E, OFF)], None, parent), "off");
        assert_eq!(said(&[(E, OFF), (F, 2)], None, parent), must_be_on);
        assert_eq!(said(&[(E, ON)], None, parent), "inherits, aes-256-gcm");
        assert_eq!(said(&[(E, ON)], Some("prompt"), parent), no_format);
        assert_eq!(said(&[(E, ON), (F, 3)], Some("prompt"), parent), "root, aes-256-gcm, passphrase");
        assert_eq!(said(&[(E, ON), (F, 3)], Some("none"), parent), "Invalid keylocation.");
        let of_no_passphrase = "Cannot specify pbkdf2iters with a non-passphrase keyformat.";
        assert_eq!(said(&[(E, ON), (F, 1), (I, 200_000)], None, parent), of_no_passphrase);
        assert_eq!(said(&[(E, ON), (F, 3), (Prop::Copies, 3)], None, parent), {
            "encrypted datasets cannot have 3 copies"
        });
    }

    #[test]
    fn locations_are_prompt_none_and_addresses() {
        for good in ["none", "prompt", "file:///k", "https://k", "http://k"] {
            check_value(Prop::Keylocation, &Value::Text(good.to_owned())).unwrap();
        }
        for bad in ["", "foobar", "file://", "file:///", "file://k", "https://", "/etc/key", "ftp://x"] {
            assert!(check_value(Prop::Keylocation, &Value::Text(bad.to_owned())).is_err(), "{bad}");
        }
    }
}
