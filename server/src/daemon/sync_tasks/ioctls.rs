//! The requests of OpenZFS's kernel module that correspond to changes of datasets, for the history
//! (`zpool history -i`): with their input, which no other record of the history contains.
//!
//! Source of the facts: OpenZFS 2.4 `zfs_ioctl.c` (`zfs_ioctl_init`, `zfsdev_ioctl_common`), `libzfs_core.c`.

use engine::dsl::history;
use engine::pool::live::Syncing;
use ondisk::nvlist::{NvValue, Nvlist};

use crate::caller::Caller;
use crate::daemon::host::host_name;

/// Kinds of datasets in the requests that make them.
const FILESYSTEM: i32 = 2;
const VOLUME: i32 = 3;

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::daemon) struct Ioctl {
    name: &'static str,
    input: Nvlist,
}

impl Ioctl {
    fn new(name: &'static str, input: impl IntoIterator<Item = (&'static str, NvValue)>) -> Self {
        let mut list = Nvlist::new();
        input.into_iter().for_each(|(key, value)| list.push(key, value));
        Self { name, input: list }
    }

    /// Snapshots are taken.
    pub(in crate::daemon) fn snapshot(names: &[String], properties: &[(String, String)]) -> Self {
        Self::new("snapshot", [("snaps", flags(names).into())].into_iter().chain(props(properties)))
    }

    /// Snapshots are destroyed, now or when nothing uses them any more.
    pub(in crate::daemon) fn destroy_snapshots(names: &[String], defer: bool) -> Self {
        let given = defer.then_some(("defer", NvValue::Boolean));
        Self::new("destroy_snaps", [("snaps", flags(names).into())].into_iter().chain(given))
    }

    /// Snapshots are held.
    pub(in crate::daemon) fn hold(names: &[String], tag: &str) -> Self {
        let holds: Vec<_> = names.iter().map(|name| (name.clone(), tag.to_owned())).collect();
        Self::new("hold", [("holds", texts(&holds).into())])
    }

    /// Holds are given up.
    pub(in crate::daemon) fn release(names: &[String], tag: &str) -> Self {
        let mut input = Nvlist::new();
        names.iter().for_each(|name| input.push(name.as_str(), flags(&[tag.to_owned()])));
        Self { name: "release", input }
    }

    /// A filesystem or volume is made.
    pub(in crate::daemon) fn create(is_volume: bool, properties: &[(String, String)]) -> Self {
        let kind = NvValue::Int32(if is_volume { VOLUME } else { FILESYSTEM });
        Self::new("create", [("type", kind)].into_iter().chain(props(properties)))
    }

    /// A clone is made of a snapshot.
    pub(in crate::daemon) fn clone_of(origin: &str, properties: &[(String, String)]) -> Self {
        let origin = NvValue::String(origin.into());
        Self::new("clone", [("origin", origin)].into_iter().chain(props(properties)))
    }

    /// A dataset goes back to a snapshot.
    pub(in crate::daemon) fn rollback(snapshot: &str) -> Self {
        Self::new("rollback", [("target", NvValue::String(snapshot.into()))])
    }

    /// A bookmark is made.
    pub(in crate::daemon) fn bookmark(name: &str, of: &str) -> Self {
        Self { name: "bookmark", input: texts(&[(name.to_owned(), of.to_owned())]) }
    }

    /// Bookmarks are destroyed.
    pub(in crate::daemon) fn destroy_bookmarks(names: &[String]) -> Self {
        Self { name: "destroy_bookmarks", input: flags(names) }
    }

    /// Adds it to the history.
    pub(in crate::daemon) async fn note(self, s: &Syncing) -> engine::Result<()> {
        let user = Caller::current_uid();
        let record =
            history::ioctl(self.name, self.input, s.now(), user.into(), &Caller::on_host(&host_name()));
        history::append(s.mos(), &s.tx, &record, s.pool.allocator().usable_bytes()).await
    }
}

/// A list of names without values.
fn flags(names: &[String]) -> Nvlist {
    let mut list = Nvlist::new();
    names.iter().for_each(|name| list.push(name.as_str(), NvValue::Boolean));
    list
}

/// A list of names with texts.
fn texts(pairs: &[(String, String)]) -> Nvlist {
    let mut list = Nvlist::new();
    pairs.iter().for_each(|(name, text)| list.push(name.as_str(), NvValue::String(text.as_str().into())));
    list
}

/// Properties, where there are any.
fn props(properties: &[(String, String)]) -> Option<(&'static str, NvValue)> {
    (!properties.is_empty()).then(|| ("props", texts(properties).into()))
}
