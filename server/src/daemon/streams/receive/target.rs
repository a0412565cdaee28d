//! What is received is called after what was sent, in one of three ways.
//!
//! Source of the facts: OpenZFS 2.3 `libzfs_sendrecv.c` (`zfs_receive_one`), `zfs-receive.8`.

use crate::api::{ApiError, Appends, DatasetKind, ReceiveStream};
use crate::daemon::names;

/// Where a stream goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Destination {
    /// The filesystem or volume.
    pub dataset: String,
    /// The part of the snapshot's name behind the `@`.
    pub snapshot: String,
    /// Whether it is the first of those that were sent together.
    pub is_top: bool,
}

impl Destination {
    /// Where the snapshot `sent` goes, of those that were sent as `top` and what is below it.
    pub(super) fn of(request: &ReceiveStream, sent: &str, top: &str) -> Result<Self, ApiError> {
        let bad = |why: &str| ApiError::invalid(format!("cannot receive: invalid stream ({why})"));
        let (of, sent_snapshot) = sent.split_once('@').ok_or_else(|| bad("bad snapshot name"))?;
        let (base, given) = match request.name.split_once('@') {
            Some((base, snapshot)) => (base, Some(snapshot)),
            None => (request.name.as_str(), None),
        };
        let below = of.strip_prefix(top).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let appended = match request.appends {
            _ if given.is_some() => "",
            Appends::Below => below.ok_or_else(|| bad("a dataset that is not below the first one"))?,
            Appends::AllButPool => of.find('/').map_or("", |at| &of[at..]),
            Appends::Last => {
                let parent = top.rfind('/').unwrap_or(0);
                let rest = of.get(parent..).filter(|_| below.is_some());
                rest.ok_or_else(|| bad("a dataset that is not below the first one"))?
            }
        };
        let separator = if appended.is_empty() || appended.starts_with('/') { "" } else { "/" };
        let dataset = format!("{base}{separator}{appended}");
        let snapshot = given.unwrap_or(sent_snapshot).to_owned();
        names::check_dataset_name("receive", &format!("{dataset}@{snapshot}"), DatasetKind::Snapshot)?;
        Ok(Self { dataset, snapshot, is_top: of == top })
    }

    /// Full name of the snapshot.
    pub(super) fn full(&self) -> String {
        format!("{}@{}", self.dataset, self.snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(name: &str, appends: Appends, sent: &str, top: &str) -> String {
        let request = ReceiveStream { name: name.into(), appends, ..ReceiveStream::default() };
        Destination::of(&request, sent, top).map_or_else(|error| error.message, |to| to.full())
    }

    #[test]
    fn names_are_appended_as_openzfs_does_it() {
        use Appends::{AllButPool, Below, Last};
        assert_eq!(to("t/x", Below, "s/a/b@n", "s/a/b"), "t/x@n");
        assert_eq!(to("t/x@m", Below, "s/a/b@n", "s/a/b"), "t/x@m");
        assert_eq!(to("t/x", Below, "s/a/b/c@n", "s/a/b"), "t/x/c@n");
        assert_eq!(to("t/x", AllButPool, "s/a/b/c@n", "s/a/b"), "t/x/a/b/c@n");
        assert_eq!(to("t/x", AllButPool, "s@n", "s"), "t/x@n");
        assert_eq!(to("t/x", Last, "s/a/b@n", "s/a/b"), "t/x/b@n");
        assert_eq!(to("t/x", Last, "s/a/b/c@n", "s/a/b"), "t/x/b/c@n");
        assert_eq!(to("t/x", Last, "s/c@n", "s"), "t/x/s/c@n");
        assert!(to("t/x", Below, "s/other@n", "s/a").contains("not below"));
        assert!(to("t/x", Below, "s/ab@n", "s/a").contains("not below"));
        assert!(to("t/x", Below, "s/a@n%", "s/a").contains("invalid character"));
    }
}
