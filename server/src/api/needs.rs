//! What an action needs of a user whose role is not enough: permissions that `zfs allow` granted.
//!
//! Each action says this ([`Delegated`]), from the request alone; the daemon looks up who has what. What an
//! action does not name is refused. The rules are OpenZFS's, of Linux: a user other than root mounts and
//! unmounts nothing, so that requests are done without that, or refused where they would have to.
//!
//! Source of the facts: OpenZFS 2.4 `zfs_ioctl.c` (`zfs_secpolicy_*`), `zfs-allow(8)`.

use engine::properties::Prop;

use super::{ApiError, CreateDataset, DestroyDataset, Rollback};
use crate::block::shares;

/// Something that a caller needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// A permission on a filesystem, volume or snapshot.
    On(String, String),
    /// A permission on a filesystem or volume and on all below it.
    Below(String, String),
    /// A permission on the parent of something new, and on those in between that are to be made.
    Above(String, String),
    /// A permission on a filesystem or volume, or above it where it does not exist.
    At(String, String),
    /// A permission on something new, as its creator would have it.
    New(String, String),
    /// A permission on the snapshot that a clone was made of.
    Origin(String, String),
    /// `destroy` and `mount` on all that a request would destroy.
    Destroy(DestroyDataset),
    /// The same for what a rollback would destroy.
    Later(Rollback),
    /// A filesystem, with all below it, is not mounted.
    Unmounted(String),
    /// All these users are the caller.
    Own(Vec<String>),
    /// One of these.
    Any(Vec<Need>),
    /// What no user has but root.
    Never,
}

impl Need {
    /// A permission on a filesystem, volume or snapshot.
    pub fn on(permission: &str, name: &str) -> Self {
        Self::On(permission.to_owned(), name.to_owned())
    }

    /// A permission on a filesystem or volume and on all below it.
    pub fn below(permission: &str, name: &str) -> Self {
        Self::Below(permission.to_owned(), name.to_owned())
    }

    /// A permission on the parent of something new.
    pub fn above(permission: &str, name: &str) -> Self {
        Self::Above(permission.to_owned(), name.to_owned())
    }
}

/// What a request is for a caller who has permissions, and which.
pub type Needs<A> = fn(A) -> Result<(A, Vec<Need>), ApiError>;

/// What permissions make of an action.
#[derive(Debug, Clone, Copy)]
pub enum Delegated<A> {
    /// Nothing: the role alone decides.
    Never,
    /// Callers with certain permissions may ask for it: their names, for the book, and how they follow from a
    /// request. The request comes back as it is done for them. No needs at all are refused.
    Needs(&'static str, Needs<A>),
}

/// The filesystem or volume of a snapshot or bookmark; the name itself for others.
pub(super) fn head_of(name: &str) -> &str {
    name.split(['@', '#']).next().unwrap_or(name)
}

/// The permission that setting a property takes.
pub(super) fn to_set(property: &str) -> Result<String, ApiError> {
    // `userquota@joe`
    if let Some((kind, _)) = property.split_once('@')
        && kind.ends_with("quota")
        && engine::dsl::delegation::permission(kind) == Some(kind)
    {
        return Ok(kind.to_owned());
    }
    if engine::properties::is_user(property) {
        return match property {
            shares::PROPERTY => Ok("share".to_owned()),
            own if is_own(own) => Err(own_is_refused(own)),
            _ => Ok("userprop".to_owned()),
        };
    }
    let known = engine::dsl::delegation::permission(property).filter(|name| Prop::from_name(name).is_some());
    known.map(str::to_owned).ok_or_else(|| ApiError::invalid(format!("invalid property '{property}'")))
}

/// Whether a user property is one with which Cenote itself does something.
fn is_own(property: &str) -> bool {
    property.starts_with("org.cenote:")
}

fn own_is_refused(property: &str) -> ApiError {
    ApiError::refused(format!("cannot set property '{property}': permission denied"))
}

/// Refuses properties of new snapshots with which Cenote itself does something: a snapshot of a volume can be
/// served.
pub(super) fn require_no_own(properties: &[(String, String)]) -> Result<(), ApiError> {
    match properties.iter().find(|(name, _)| is_own(name)) {
        Some((name, _)) => Err(own_is_refused(name)),
        None => Ok(()),
    }
}

/// Needs for the properties of something new. What fixes its contents needs none.
pub(super) fn for_new(name: &str, properties: &[(String, String)]) -> Result<Vec<Need>, ApiError> {
    let mut needs = Vec::new();
    for (property, _) in properties {
        let fixed = [
            Prop::Volsize,
            Prop::Volblocksize,
            Prop::Version,
            Prop::Utf8only,
            Prop::Normalization,
            Prop::Casesensitivity,
        ];
        if Prop::from_name(property).is_some_and(|prop| fixed.contains(&prop)) {
            continue;
        }
        needs.push(Need::New(to_set(property)?, name.to_owned()));
    }
    Ok(needs)
}

/// `create` and `mount` above something new.
pub(super) fn to_create(name: &str) -> Vec<Need> {
    vec![Need::above("create", name), Need::above("mount", name)]
}

/// Needs for a new filesystem or volume.
pub(super) fn for_create(request: CreateDataset) -> Result<(CreateDataset, Vec<Need>), ApiError> {
    let mut needs = to_create(&request.name);
    needs.extend(for_new(&request.name, &request.properties)?);
    // Root's daemon would read a file, or an address, that a user names.
    let is_of_key = |name: &str| Prop::from_name(name) == Some(Prop::Keyformat);
    if request.key.is_none() && request.properties.iter().any(|(name, _)| is_of_key(name)) && !request.dry_run
    {
        needs.push(Need::Never);
    }
    if request.volume_bytes.is_some() && !request.sparse {
        needs.push(Need::New("refreservation".to_owned(), request.name.clone()));
    }
    // Only root mounts.
    Ok((CreateDataset { no_mount: true, ..request }, needs))
}

/// Needs for setting a property of datasets, or taking it away.
pub(super) fn for_property(
    property: &str,
    datasets: &[String],
    recursive: bool,
    moves_mounts: bool,
) -> Result<Vec<Need>, ApiError> {
    let mut needs = Vec::new();
    let permission = to_set(property)?;
    let prop = Prop::from_name(property);
    for name in datasets {
        needs.push(match recursive {
            true => Need::Below(permission.clone(), name.clone()),
            false => Need::On(permission.clone(), name.clone()),
        });
        match prop {
            // What is mounted would be mounted elsewhere.
            Some(Prop::Mountpoint | Prop::Canmount) if moves_mounts => {
                needs.push(Need::Unmounted(name.clone()));
            }
            Some(Prop::Zoned) => needs.push(Need::Never),
            // The reservation goes with it.
            Some(Prop::Volsize) => needs.push(Need::on("refreservation", name)),
            _ => {}
        }
    }
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_have_permissions_of_their_names() {
        for (property, permission) in [
            ("compress", "compression"),
            ("org:note", "userprop"),
            ("userquota@joe", "userquota"),
            ("groupobjquota@7", "groupobjquota"),
            ("quota", "quota"),
            ("org.cenote:share", "share"),
        ] {
            assert_eq!(to_set(property).unwrap(), permission);
        }
        // A subcommand is no property.
        for none in [
            "snapshot",
            "destroy",
            "used",
            "written@x",
            "mlslabel",
            "",
            "send:raw@x",
            "userused@x",
            "org.cenote:scrub",
        ] {
            assert!(to_set(none).is_err(), "{none}");
        }
    }

    #[test]
    fn a_new_dataset_needs_what_its_properties_need_but_for_what_fixes_its_contents() {
        let properties = [("volblocksize", "8K"), ("compression", "on"), ("a:b", "c")];
        let request = CreateDataset {
            name: "tank/a/v".into(),
            volume_bytes: Some(1 << 20),
            properties: properties.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            ..CreateDataset::default()
        };
        let (done, needs) = for_create(request.clone()).unwrap();
        assert!(done.no_mount);
        let new = |permission: &str| Need::New(permission.into(), "tank/a/v".into());
        let above = to_create("tank/a/v");
        assert_eq!(
            needs,
            [&above[..], &[new("compression"), new("userprop"), new("refreservation")]].concat()
        );
        let (_, sparse) = for_create(CreateDataset { sparse: true, ..request }).unwrap();
        assert!(!sparse.contains(&new("refreservation")));
    }
}
