//! [`PropertySet`]: every property of one dataset, read once, for any number of look-ups.
//!
//! A set holds the values that OpenZFS's kernel passes to its tools, each with its *origin*. A value found in
//! a properties ZAP comes from a dataset (this one or an ancestor) or was received; a computed one has no
//! origin; a settable one that merely equals its default is marked so. [`PropertySet::get`] applies the rules
//! by which `zfs get` turns this into a word and a source: defaults for values that are not stored, `none`
//! for limits, mount options that override, the mountpoint completed by the path below the dataset it is
//! inherited from, and no value for an absent read-only property. [`crate::dsl`] fills the set; this module
//! does not read the pool.

use std::collections::HashMap;

use super::format::Style;
use super::index;
use super::table::{Kind, Prop, TABLE, Types, is_user};

/// The source of a value, as in the SOURCE column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `-`: computed.
    None,
    /// `default`.
    Default,
    /// `local`.
    Local,
    /// `inherited from …`.
    Inherited(String),
    /// `received`.
    Received,
    /// `temporary`: a mount option overrides the property.
    Temporary,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::None => f.write_str("-"),
            Source::Default => f.write_str("default"),
            Source::Local => f.write_str("local"),
            Source::Inherited(from) => write!(f, "inherited from {from}"),
            Source::Received => f.write_str("received"),
            Source::Temporary => f.write_str("temporary"),
        }
    }
}

/// A property as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// Its value, in words.
    pub value: String,
    /// The source of the value.
    pub source: Source,
}

/// A stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number or index.
    Number(u64),
    /// A string.
    Text(String),
}

/// The origin of a stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Computed.
    Computed,
    /// It was not set, and equals the default.
    Default,
    /// Set on this dataset.
    Dataset(String),
    /// Received with a send stream.
    Received,
}

/// How a filesystem is mounted, if it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mounted {
    /// The words of its mount options (`ro`, `noatime`, …).
    pub options: Vec<String>,
}

/// Facts outside of the pool on which properties depend.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// How a filesystem or snapshot is mounted, by name.
    pub mounted: &'a (dyn Fn(&str) -> Option<Mounted> + Sync),
}

impl Environment<'_> {
    /// Nothing is mounted.
    pub const UNMOUNTED: Environment<'static> = Environment { mounted: &|_| None };
}

/// The values that a filesystem stores in its own master node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZplProperties {
    /// Version of the filesystem.
    pub version: u64,
    /// Unicode normalization flags.
    pub normalization: u64,
    /// Whether names must be UTF-8.
    pub utf8only: u64,
    /// Case sensitivity.
    pub casesensitivity: u64,
    /// Default quotas, in the order of [`ZplProperties::DEFAULT_QUOTAS`]; 0: none.
    pub default_quotas: [u64; 6],
}

impl ZplProperties {
    /// The properties that are default quotas.
    pub const DEFAULT_QUOTAS: [Prop; 6] = [
        Prop::DefaultUserQuota,
        Prop::DefaultGroupQuota,
        Prop::DefaultProjectQuota,
        Prop::DefaultUserObjQuota,
        Prop::DefaultGroupObjQuota,
        Prop::DefaultProjectObjQuota,
    ];
}

/// Every property of one dataset, snapshot or bookmark.
#[derive(Debug, Clone)]
pub struct PropertySet {
    /// Name of the dataset.
    pub name: String,
    /// Its type.
    pub kind: Types,
    /// For a snapshot, the type of its dataset; else its own type.
    pub head_kind: Types,
    /// The pool's altroot.
    pub altroot: Option<String>,
    /// How it is mounted.
    pub mounted: Option<Mounted>,
    /// The values in a filesystem's master node, if they could be read.
    pub zpl: Option<ZplProperties>,
    /// Clones of a snapshot.
    pub clones: Vec<String>,
    /// Guids of the snapshots for which it is redacted, if it is.
    pub redact_snaps: Option<Vec<u64>>,
    values: Vec<(String, Value, Origin)>,
    places: HashMap<String, usize>,
    received: Vec<(String, Value)>,
}

impl PropertySet {
    /// A set without values.
    pub fn new(name: impl Into<String>, kind: Types, head_kind: Types) -> Self {
        Self {
            name: name.into(),
            kind,
            head_kind,
            altroot: None,
            mounted: None,
            zpl: None,
            clones: Vec::new(),
            redact_snaps: None,
            values: Vec::new(),
            places: HashMap::new(),
            received: Vec::new(),
        }
    }

    /// Adds a value found in a properties ZAP, unless a nearer dataset had one.
    pub(crate) fn add_stored(&mut self, name: &str, value: Value, origin: Origin) {
        if !self.contains(name) {
            self.push(name, value, origin);
        }
    }

    /// Whether the set has a value with this `name`.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// The number stored for `prop`, or its default.
    pub(crate) fn stored_number(&self, prop: Prop) -> u64 {
        match self.kept(prop.desc().name) {
            Some((Value::Number(number), _)) => *number,
            _ => prop.desc().default_number(),
        }
    }

    /// Adds a value received with a send stream, for the RECEIVED column.
    pub(crate) fn add_received(&mut self, name: &str, value: Value) {
        self.received.push((name.to_owned(), value));
    }

    /// Adds a computed number; if the property was stored, its origin stays.
    pub(crate) fn add_number(&mut self, prop: Prop, number: u64) {
        let desc = prop.desc();
        if let Some(&place) = self.places.get(desc.name) {
            self.values[place].1 = Value::Number(number);
            return;
        }
        let settable = !desc.readonly() || desc.set_once();
        let default = settable && number == desc.default_number();
        let origin = if default { Origin::Default } else { Origin::Computed };
        self.push(desc.name, Value::Number(number), origin);
    }

    /// Adds a computed string; if the property was stored, its origin stays.
    pub(crate) fn add_text(&mut self, prop: Prop, text: impl Into<String>) {
        match self.places.get(prop.desc().name) {
            Some(&place) => self.values[place].1 = Value::Text(text.into()),
            None => self.push(prop.desc().name, Value::Text(text.into()), Origin::Computed),
        }
    }

    fn push(&mut self, name: &str, value: Value, origin: Origin) {
        self.places.insert(name.to_owned(), self.values.len());
        self.values.push((name.to_owned(), value, origin));
    }

    /// All stored and computed values with their origins, in the order in which they were found.
    pub(crate) fn all_kept(&self) -> impl Iterator<Item = (&str, &Value, &Origin)> {
        self.values.iter().map(|(name, value, origin)| (name.as_str(), value, origin))
    }

    /// All values that were received with a send stream.
    pub(crate) fn all_received(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.received.iter().map(|(name, value)| (name.as_str(), value))
    }

    fn kept(&self, name: &str) -> Option<(&Value, &Origin)> {
        let (_, value, origin) = &self.values[*self.places.get(name)?];
        Some((value, origin))
    }

    /// All properties that `zfs get all` shows, in its order: native properties, then user properties.
    pub fn all(&self, style: Style) -> Vec<Shown> {
        let native = TABLE.iter().filter(|desc| desc.visible).filter_map(|desc| self.get(desc.prop, style));
        native.chain(self.user_properties()).collect()
    }

    /// User properties, in the order in which they were found.
    pub fn user_properties(&self) -> impl Iterator<Item = Shown> + '_ {
        self.values.iter().filter(|(name, ..)| is_user(name)).filter_map(|(name, ..)| self.user(name))
    }

    /// The user property `name`.
    pub fn user(&self, name: &str) -> Option<Shown> {
        let (Value::Text(text), origin) = self.kept(name)? else { return None };
        Some(Shown { name: name.to_owned(), value: text.clone(), source: self.source(origin) })
    }

    /// The value of `name` that was received with a send stream.
    pub fn received(&self, name: &str, style: Style) -> Option<String> {
        let (_, value) = self.received.iter().find(|(received, _)| received == name)?;
        match (value, Prop::from_stored_name(name)) {
            (Value::Text(text), _) => Some(text.clone()),
            (Value::Number(number), Some(prop)) => word(prop, *number, style),
            (Value::Number(number), None) => Some(style.number(*number)),
        }
    }

    /// The number of a numeric or index property, for sorting and for computing; `None` if it is not shown.
    pub fn number(&self, prop: Prop) -> Option<u64> {
        if !prop.desc().valid_for(self.kind, false) {
            return None;
        }
        self.numeric(prop).map(|(number, _)| number)
    }

    /// The property as `zfs get` shows it; `None` if this dataset has no such value.
    pub fn get(&self, prop: Prop, style: Style) -> Option<Shown> {
        let desc = prop.desc();
        if !desc.valid_for(self.kind, false) {
            return None;
        }
        let (value, source) = match prop {
            Prop::Name => (self.name.clone(), Source::None),
            Prop::Type => (self.type_name().to_owned(), Source::None),
            Prop::Clones => (self.clone_list()?, Source::None),
            Prop::RedactSnaps => (self.redact_snap_list()?, Source::None),
            Prop::Mountpoint => self.mountpoint()?,
            _ => match desc.kind {
                Kind::Text(default) => self.text(desc.name, default)?,
                Kind::Number(_) | Kind::Index(..) => {
                    let (number, source) = self.numeric(prop)?;
                    (word(prop, number, style)?, source)
                }
            },
        };
        Some(Shown { name: desc.name.to_owned(), value, source })
    }

    fn type_name(&self) -> &'static str {
        match self.kind {
            Types::VOLUME => "volume",
            Types::SNAPSHOT => "snapshot",
            Types::BOOKMARK => "bookmark",
            _ => "filesystem",
        }
    }

    fn clone_list(&self) -> Option<String> {
        (!self.clones.is_empty()).then(|| self.clones.join(","))
    }

    fn redact_snap_list(&self) -> Option<String> {
        let guids = self.redact_snaps.as_ref()?;
        let list: Vec<String> = guids.iter().map(u64::to_string).collect();
        Some(if list.is_empty() { "none".to_owned() } else { list.join(",") })
    }

    fn text(&self, name: &str, default: Option<&str>) -> Option<(String, Source)> {
        match self.kept(name) {
            Some((Value::Text(text), origin)) => Some((text.clone(), self.source(origin))),
            Some((Value::Number(_), _)) => None,
            None => Some((default?.to_owned(), Source::Default)),
        }
    }

    /// A filesystem's mountpoint: the stored path below the altroot, with the names below the dataset that
    /// set it.
    fn mountpoint(&self) -> Option<(String, Source)> {
        let (path, source) = self.text("mountpoint", Prop::Mountpoint.desc().default_text())?;
        if !path.starts_with('/') {
            return Some((path, source));
        }
        let above = match &source {
            Source::Inherited(from) => from.as_str(),
            Source::Default => "",
            _ => self.name.as_str(),
        };
        let below = self.name.strip_prefix(above).unwrap_or_default();
        let below = below.strip_prefix('/').unwrap_or(below);
        let root = self.altroot.as_deref().filter(|root| *root != "/").unwrap_or_default();
        // A bare `/` before or after a path adds nothing, nor does an altroot of `/`.
        let bare = path == "/" && !(root.is_empty() && below.is_empty());
        let path = if bare { "" } else { path.as_str() };
        let joined = if below.is_empty() { format!("{root}{path}") } else { format!("{root}{path}/{below}") };
        Some((joined, source))
    }

    /// The number and source of a numeric property, including the special rules of some properties.
    fn numeric(&self, prop: Prop) -> Option<(u64, Source)> {
        let desc = prop.desc();
        if self.kind == Types::SNAPSHOT && !desc.valid_for(self.head_kind, true) {
            return None;
        }
        match prop {
            Prop::Mounted => return Some((u64::from(self.mounted.is_some()), Source::None)),
            Prop::Version => return Some((self.zpl?.version, Source::None)),
            Prop::Normalization => return Some((self.zpl?.normalization, Source::None)),
            Prop::Utf8only => return Some((self.zpl?.utf8only, Source::None)),
            Prop::Casesensitivity => return Some((self.zpl?.casesensitivity, Source::None)),
            _ => {}
        }
        if let Some(index) = ZplProperties::DEFAULT_QUOTAS.iter().position(|quota| *quota == prop) {
            return Some((self.zpl?.default_quotas.get(index).copied()?, Source::None));
        }
        let (number, origin) = match self.kept(desc.name) {
            Some((Value::Number(number), origin)) => (*number, origin),
            Some((Value::Text(_), _)) => return None,
            None => (desc.default_number(), &Origin::Default),
        };
        match prop {
            Prop::SnapshotsChanged if number == 0 => None,
            Prop::Canmount
            | Prop::Volsize
            | Prop::Quota
            | Prop::Refquota
            | Prop::Reservation
            | Prop::Refreservation
            | Prop::FilesystemLimit
            | Prop::SnapshotLimit
            | Prop::FilesystemCount
            | Prop::SnapshotCount => {
                let local = *origin == Origin::Computed;
                Some((number, if local { Source::Local } else { self.source(origin) }))
            }
            // An absent read-only value is not replaced by its default.
            _ if desc.readonly() && !desc.set_once() && *origin == Origin::Default => None,
            _ => match self.mount_override(prop, number) {
                Some(number) => Some((number, Source::Temporary)),
                None => Some((number, self.source(origin))),
            },
        }
    }

    /// The value of the present mount, by its options or because it cannot follow yet, if it differs.
    fn mount_override(&self, prop: Prop, number: u64) -> Option<u64> {
        let options = &self.mounted.as_ref()?.options;
        let has = |word: &str| options.iter().any(|option| option == word);
        let (on, off) = match prop {
            Prop::Acltype => {
                let now =
                    [("noacl", 0), ("posixacl", 1), ("nfs4acl", 2)].into_iter().find(|(word, _)| has(word));
                return now.map(|(_, now)| now).filter(|now| *now != number);
            }
            Prop::Atime => ("atime", "noatime"),
            Prop::Relatime => ("relatime", "norelatime"),
            Prop::Devices => ("dev", "nodev"),
            Prop::Exec => ("exec", "noexec"),
            Prop::Readonly => ("ro", "rw"),
            Prop::Setuid => ("suid", "nosuid"),
            Prop::Xattr => ("xattr", "noxattr"),
            Prop::Nbmand => ("mand", "nomand"),
            _ => return None,
        };
        match number {
            0 if has(on) => Some(1),
            1.. if has(off) => Some(0),
            _ => None,
        }
    }

    fn source(&self, origin: &Origin) -> Source {
        match origin {
            Origin::Computed => Source::None,
            Origin::Default => Source::Default,
            Origin::Received => Source::Received,
            Origin::Dataset(name) if *name == self.name => Source::Local,
            Origin::Dataset(name) => Source::Inherited(name.clone()),
        }
    }
}

/// The word for `number`; `None` if an index property has no word for it.
fn word(prop: Prop, number: u64, style: Style) -> Option<String> {
    Some(match prop {
        Prop::Creation => style.date(number),
        Prop::SnapshotsChanged => style.date_with_seconds(number),
        Prop::Quota | Prop::Refquota | Prop::Reservation | Prop::Refreservation => match number {
            0 if !style.parsable => "none".to_owned(),
            _ => style.bytes(number),
        },
        Prop::FilesystemLimit | Prop::SnapshotLimit | Prop::FilesystemCount | Prop::SnapshotCount => {
            match number {
                u64::MAX => "none".to_owned(),
                _ => style.number(number),
            }
        }
        Prop::Refratio | Prop::CompressRatio => style.ratio(number),
        Prop::Mounted => if number == 0 { "no" } else { "yes" }.to_owned(),
        Prop::Guid
        | Prop::KeyGuid
        | Prop::IvsetGuid
        | Prop::Createtxg
        | Prop::Objsetid
        | Prop::Pbkdf2Iters => number.to_string(),
        Prop::Referenced
        | Prop::Available
        | Prop::Used
        | Prop::UsedBySnapshots
        | Prop::UsedByDataset
        | Prop::UsedByRefreservation
        | Prop::UsedByChildren => style.bytes(number),
        _ => match prop.desc().kind {
            Kind::Index(_, names) => index::word(names, number)?.to_owned(),
            _ => style.number(number),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filesystem(name: &str) -> PropertySet {
        PropertySet::new(name, Types::FILESYSTEM, Types::FILESYSTEM)
    }

    fn shown(set: &PropertySet, prop: Prop) -> Option<(String, Source)> {
        set.get(prop, Style::PARSABLE).map(|shown| (shown.value, shown.source))
    }

    #[test]
    fn an_inherited_mountpoint_continues_with_the_names_below_its_source() {
        let mut set = filesystem("pool/a/b");
        assert_eq!(shown(&set, Prop::Mountpoint), Some(("/pool/a/b".into(), Source::Default)));
        set.add_stored("mountpoint", Value::Text("/srv".into()), Origin::Dataset("pool/a".into()));
        let inherited = Source::Inherited("pool/a".into());
        assert_eq!(shown(&set, Prop::Mountpoint), Some(("/srv/b".into(), inherited.clone())));
        set.altroot = Some("/mnt".into());
        assert_eq!(shown(&set, Prop::Mountpoint), Some(("/mnt/srv/b".into(), inherited)));
    }

    #[test]
    fn a_mountpoint_of_root_vanishes_under_an_altroot() {
        let mut set = filesystem("pool");
        set.add_stored("mountpoint", Value::Text("/".into()), Origin::Dataset("pool".into()));
        assert_eq!(shown(&set, Prop::Mountpoint), Some(("/".into(), Source::Local)));
        set.altroot = Some("/mnt".into());
        assert_eq!(shown(&set, Prop::Mountpoint), Some(("/mnt".into(), Source::Local)));
        set.altroot = Some("/".into());
        assert_eq!(shown(&set, Prop::Mountpoint), Some(("/".into(), Source::Local)));
    }

    #[test]
    fn legacy_mountpoints_stay_words() {
        let mut set = filesystem("pool/a");
        set.add_stored("mountpoint", Value::Text("legacy".into()), Origin::Received);
        assert_eq!(shown(&set, Prop::Mountpoint), Some(("legacy".into(), Source::Received)));
    }

    #[test]
    fn an_absent_read_only_value_is_not_shown() {
        let mut set = filesystem("pool");
        assert_eq!(shown(&set, Prop::Used), None);
        set.add_number(Prop::Used, 0);
        assert_eq!(shown(&set, Prop::Used), Some(("0".into(), Source::None)));
    }

    #[test]
    fn a_settable_number_that_equals_its_default_is_default_else_local() {
        let mut set = filesystem("pool");
        set.add_number(Prop::Quota, 0);
        assert_eq!(shown(&set, Prop::Quota), Some(("0".into(), Source::Default)));
        let mut set = filesystem("pool");
        set.add_number(Prop::Quota, 7);
        assert_eq!(shown(&set, Prop::Quota), Some(("7".into(), Source::Local)));
        let human = set.get(Prop::Reservation, Style::HUMAN_UTC).map(|shown| shown.value);
        assert_eq!(human.as_deref(), Some("none"));
    }

    #[test]
    fn mount_options_override_for_the_time_being() {
        let mut set = filesystem("pool");
        set.mounted = Some(Mounted { options: vec!["ro".into(), "noatime".into(), "posixacl".into()] });
        assert_eq!(shown(&set, Prop::Readonly), Some(("on".into(), Source::Temporary)));
        assert_eq!(shown(&set, Prop::Atime), Some(("off".into(), Source::Temporary)));
        assert_eq!(shown(&set, Prop::Exec), Some(("on".into(), Source::Default)));
        assert_eq!(shown(&set, Prop::Acltype), Some(("posix".into(), Source::Temporary)));
        set.add_stored("acltype", Value::Number(1), Origin::Received);
        assert_eq!(shown(&set, Prop::Acltype), Some(("posix".into(), Source::Received)));
        assert_eq!(shown(&set, Prop::Mounted), Some(("yes".into(), Source::None)));
    }

    #[test]
    fn a_snapshot_lacks_what_its_head_could_not_have() {
        let mut of_volume = PropertySet::new("p/v@s", Types::SNAPSHOT, Types::VOLUME);
        of_volume.add_number(Prop::Volsize, 4096);
        assert!(shown(&of_volume, Prop::Volsize).is_some());
        assert_eq!(shown(&of_volume, Prop::Devices), None);
        let of_filesystem = PropertySet::new("p/f@s", Types::SNAPSHOT, Types::FILESYSTEM);
        assert_eq!(shown(&of_filesystem, Prop::Volsize), None);
        assert_eq!(shown(&of_filesystem, Prop::Devices), Some(("on".into(), Source::Default)));
    }

    #[test]
    fn the_nearest_value_wins() {
        let mut set = filesystem("pool/a");
        set.add_stored("user:x", Value::Text("near".into()), Origin::Dataset("pool/a".into()));
        set.add_stored("user:x", Value::Text("far".into()), Origin::Dataset("pool".into()));
        let all: Vec<Shown> = set.user_properties().collect();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].value.as_str(), &all[0].source), ("near", &Source::Local));
    }
}
