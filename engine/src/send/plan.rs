//! Which streams a command makes, and in which order.
//!
//! One stream of one snapshot is made as it is asked for, with a list before it where properties or holds go
//! along. `-I` and `-R` make a stream for each snapshot of a dataset; with `-R` those of a clone come after
//! those of its origin, and those of children after their parents'. The rules and words are those of `zfs`,
//! whose receiver relies on the order.

use std::collections::HashSet;
use std::sync::Arc;

use ondisk::send::package::{Package, PackagedDataset};
use ondisk::send::{Begin, HeaderType, Record, StreamWriter, feature};
use ondisk::{ByteOrder, Guid};

use super::begin::HEAD;
use super::estimate::{self, Base};
use super::gather::{Gathered, Gatherer, Scope};
use super::{Ancestor, Flags, NOT_EARLIER, Piece, Request};
use crate::dsl::{Dataset, Dir, Dsl, Found, Since};
use crate::error::{Error, Result};

/// What a user asks for.
#[derive(Debug, Clone, Default)]
pub struct Order {
    /// The snapshot; without `-R` and `-I` a filesystem or volume too.
    pub to: String,
    /// Full name of the snapshot or bookmark that the stream is incremental from.
    pub from: Option<String>,
    /// What the receiver takes.
    pub flags: Flags,
    /// All snapshots in between too (`-I`).
    pub all_between: bool,
    /// With all children and properties (`-R`).
    pub replicate: bool,
    /// Children without the snapshot are left out (`-s`).
    pub skip_missing: bool,
    /// With properties (`-p`).
    pub properties: bool,
    /// With received properties only (`-b`).
    pub backup: bool,
    /// With holds (`-h`).
    pub holds: bool,
    /// Encrypted datasets are sent decrypted though properties go along (`-U`).
    pub no_preserve_encryption: bool,
    /// Datasets that are left out with all below them (`-X`).
    pub excluded: Vec<String>,
}

/// What a user is told before the streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// In any case.
    Always(String),
    /// Where that is asked for.
    Verbose(String),
}

/// A stream that is to be made.
#[derive(Debug, Clone)]
pub struct Planned {
    /// What it has.
    pub request: Request,
    /// What it is incremental from, as users are told.
    pub shown_from: Option<String>,
    pub(super) base: Base,
    /// Bytes that the receiver has already.
    pub(super) sent_bytes: u64,
}

/// All streams of one command.
#[derive(Debug)]
pub struct Plan {
    /// The record, or records, before them; none for a single stream without properties.
    list: Option<(String, u64, Option<Package>)>,
    /// The streams in order.
    pub streams: Vec<Planned>,
    /// What the user is told first.
    pub warnings: Vec<Warning>,
    /// Something could not be sent; the rest is.
    pub has_failed: bool,
}

impl Order {
    pub(super) fn is_excluded(&self, name: &str) -> bool {
        let below = |excluded: &String| {
            let rest = name.strip_prefix(excluded.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
        };
        self.excluded.iter().any(below)
    }

    fn has_list(&self) -> bool {
        self.properties || self.backup || self.holds
    }
}

impl Planned {
    /// Bytes that it will have, as far as that follows from what the datasets count; none where only making
    /// it tells.
    ///
    /// # Errors
    /// What datasets count cannot be read.
    pub async fn estimate(&self, dsl: &Dsl) -> Result<Option<u64>> {
        let Flags { compressed, raw, .. } = self.request.flags;
        let bytes = estimate::estimate(dsl, &self.request.dataset, &self.base, compressed || raw).await?;
        Ok(bytes.map(|bytes| bytes.wrapping_sub(self.sent_bytes)))
    }
}

impl Plan {
    /// Finds what is to be sent.
    ///
    /// # Errors
    /// Something does not exist, does not belong together, or cannot be read.
    pub async fn make(dsl: &Dsl, order: &Order) -> Result<Plan> {
        match order.replicate || order.all_between {
            true => Many::plan(dsl, order).await,
            false => Self::one(dsl, order).await,
        }
    }

    async fn one(dsl: &Dsl, order: &Order) -> Result<Plan> {
        let to = dataset(dsl, &order.to).await?;
        let (from, base) = match &order.from {
            None => (None, Base::Nothing),
            Some(name) => {
                let (from, base) = ancestor(dsl, name, &to).await?;
                (Some(from), base)
            }
        };
        let (mut list, mut warnings) = (None, Vec::new());
        if order.has_list() {
            let snapshot = order.to.split_once('@').map_or(&HEAD[1..], |(_, snapshot)| snapshot);
            let scope = Scope { from: None, to: snapshot, is_recursive: false, has_all_snapshots: false };
            let gathered = Gatherer::new(dsl, order, scope).gather(&to.dir).await?;
            warnings = gathered.warnings;
            list = Some((order.to.clone(), features(order), Some(gathered.package)));
        }
        let request = Request { dataset: to, from, flags: order.flags, resume: None };
        let planned = Planned { request, shown_from: order.from.clone(), base, sent_bytes: 0 };
        Ok(Plan { list, streams: vec![planned], warnings, has_failed: false })
    }

    /// One stream by itself.
    pub(super) fn single(planned: Planned) -> Plan {
        Plan { list: None, streams: vec![planned], warnings: Vec::new(), has_failed: false }
    }

    /// What comes before the streams; empty for a single plain one.
    ///
    /// # Errors
    /// The list is larger than one can be.
    pub fn header(&self) -> Result<Vec<Piece>> {
        let Some((name, features, package)) = &self.list else { return Ok(Vec::new()) };
        let payload = package.as_ref().map_or(Ok(Vec::new()), Package::encode);
        let payload = payload.map_err(Error::format("send stream"))?;
        let begin = Begin {
            header: HeaderType::Compound,
            features: *features,
            creation_time: 0,
            objset_type: 0,
            flags: 0,
            to_guid: Guid(0),
            from_guid: Guid(0),
            to_name: name.clone().into_bytes(),
            payload_bytes: u32::try_from(payload.len())
                .map_err(|_| Error::Invalid("the list of snapshots is too large".to_owned()))?,
        };
        let mut writer = StreamWriter::new(ByteOrder::Little);
        let begin = writer.put(&Record::Begin(begin), &payload).map_err(Error::format("send stream"))?;
        Ok(vec![Piece::Bytes([begin, payload, writer.end_of_list()].concat())])
    }

    /// What comes after the streams; empty for a single plain one.
    pub fn conclusion(&self) -> Vec<Piece> {
        match &self.list {
            Some(_) => vec![Piece::Bytes(StreamWriter::new(ByteOrder::Little).conclusion())],
            None => Vec::new(),
        }
    }
}

fn features(order: &Order) -> u64 {
    if order.holds { feature::HOLDS } else { 0 }
}

/// A filesystem, volume or snapshot.
async fn dataset(dsl: &Dsl, name: &str) -> Result<Dataset> {
    match dsl.lookup(name).await? {
        Found::Dataset(dataset) => Ok(*dataset),
        Found::Bookmark(_) => {
            let detail = "operation not applicable to bookmarks".to_owned();
            Err(Error::WrongType { what: format!("cannot open '{name}'"), detail })
        }
    }
}

/// The snapshot or bookmark of this name.
async fn ancestor(dsl: &Dsl, name: &str, to: &Dataset) -> Result<(Ancestor, Base)> {
    match dsl.lookup(name).await? {
        Found::Dataset(from) if from.is_snapshot() => {
            let ancestor = Ancestor::snapshot(dsl, &from, to).await?;
            Ok((ancestor, Base::Since(Since::snapshot(&from))))
        }
        Found::Dataset(_) => Err(Error::Invalid(NOT_EARLIER.to_owned())),
        Found::Bookmark(mark) => {
            let head = name.split('#').next().unwrap_or_default();
            let dir = dsl.find_dir(head).await?;
            let ancestor = Ancestor::bookmark(dsl, &dir, &mark, to).await?;
            let base = Since::bookmark(&mark.phys).map_or(Base::Unknown, Base::Since);
            Ok((ancestor, base))
        }
    }
}

/// The streams of `-I` and `-R`.
struct Many<'a> {
    dsl: &'a Dsl,
    order: &'a Order,
    /// The parts behind the `@`.
    from: Option<&'a str>,
    to: &'a str,
    /// The first stream is incremental from the origin.
    is_from_origin: bool,
    /// All snapshots, not only the first and the last.
    has_all: bool,
    streams: Vec<Planned>,
    warnings: Vec<Warning>,
    has_failed: bool,
    /// Whether the last dataset had the last snapshot.
    has_ended: bool,
}

impl<'a> Many<'a> {
    async fn plan(dsl: &'a Dsl, order: &'a Order) -> Result<Plan> {
        let (head, to) = order.to.split_once('@').ok_or_else(|| {
            Error::Invalid("Error: Unsupported flag with filesystem or bookmark.".to_owned())
        })?;
        let dir = dsl.find_dir(head).await?;
        let is_from_origin = order.from.is_some() && dsl.origin(&dir).await? == order.from;
        let from = match &order.from {
            Some(name) if !is_from_origin => Some(from_of(name, head)?),
            _ => None,
        };
        dataset(dsl, &order.to).await?;
        if let Some(from) = from {
            dataset(dsl, &format!("{head}@{from}")).await?;
        }
        let mut many = Many {
            dsl,
            order,
            from,
            to,
            is_from_origin,
            has_all: order.all_between || order.replicate && from.is_none(),
            streams: Vec::new(),
            warnings: Vec::new(),
            has_failed: false,
            has_ended: false,
        };
        let mut package = None;
        if order.replicate || order.properties || order.holds {
            let scope = Scope {
                from,
                to,
                is_recursive: order.replicate,
                has_all_snapshots: many.has_all || order.replicate,
            };
            let gathered: Gathered = Gatherer::new(dsl, order, scope).gather(&dir).await?;
            many.warnings = gathered.warnings;
            package = Some(gathered.package);
        }
        match &package {
            Some(package) if order.replicate => many.replicate(package).await?,
            _ => many.dataset(&dir, &HashSet::new()).await?,
        }
        if !many.has_ended {
            let why = many.warnings.iter().filter_map(|warning| match warning {
                Warning::Always(why) => Some(why.as_str()),
                Warning::Verbose(_) => None,
            });
            let why = why.collect::<Vec<_>>().join("\n");
            return Err(if why.is_empty() { Error::NotFound(order.to.clone()) } else { Error::Invalid(why) });
        }
        let list = Some((order.to.clone(), features(order), package));
        Ok(Plan { list, streams: many.streams, warnings: many.warnings, has_failed: many.has_failed })
    }

    /// The streams of all datasets: each after its parent and its origin.
    async fn replicate(&mut self, package: &Package) -> Result<()> {
        let origins: HashSet<Guid> = package.datasets.iter().filter_map(|dataset| dataset.origin).collect();
        let owner = |guid: Guid| {
            let has = |of: &&PackagedDataset| of.snapshot_of(guid).is_some();
            package.datasets.iter().find(has).map(|of| of.guid)
        };
        let mut sent: HashSet<Guid> = HashSet::new();
        while sent.len() < package.datasets.len() {
            let before = sent.len();
            for dataset in &package.datasets {
                let parent = Some(dataset.parent_from_snapshot).filter(|guid| *guid != Guid(0));
                let mut needed = [parent, dataset.origin].into_iter().flatten().filter_map(owner);
                let waits = needed.any(|guid| guid != dataset.guid && !sent.contains(&guid));
                if waits || sent.contains(&dataset.guid) {
                    continue;
                }
                let name = dataset.name.to_str().unwrap_or_default();
                let dir = self.dsl.find_dir(name).await?;
                self.dataset(&dir, &origins).await?;
                sent.insert(dataset.guid);
            }
            if sent.len() == before {
                let waiting = package.datasets.iter().filter(|dataset| !sent.contains(&dataset.guid));
                return Err(self.wait_for_each_other(&waiting.collect::<Vec<_>>()));
            }
        }
        Ok(())
    }

    /// The error where datasets can be received only after each other. A clone below its own origin that was
    /// promoted is the origin of what it lies in.
    fn wait_for_each_other(&self, waiting: &[&PackagedDataset]) -> Error {
        let pair = waiting.iter().find_map(|above| {
            let origin = above.origin?;
            let inside = format!("{}/", above.name);
            let is_it = |below: &&&PackagedDataset| {
                below.name.to_string().starts_with(&inside) && below.snapshot_of(origin).is_some()
            };
            let below = waiting.iter().find(is_it)?;
            let snapshot = below.snapshot_of(origin)?;
            Some((above.name.to_string(), format!("{}@{snapshot}", below.name)))
        });
        let to = &self.order.to;
        match pair {
            Some((above, origin)) => Error::Invalid(format!(
                "cannot send '{to}' recursively: '{above}' is a clone of '{origin}', which lies below it, \
                 so that no receiver could create either of them first\nrename one of the two away from the \
                 other, promote '{above}', or leave one out with -X"
            )),
            None => {
                let names: Vec<String> =
                    waiting.iter().map(|dataset| format!("'{}'", dataset.name)).collect();
                Error::Invalid(format!(
                    "cannot send '{to}' recursively: each of these can only be received after another one of \
                     them, as its clone or below it: {}",
                    names.join(", ")
                ))
            }
        }
    }

    /// The streams of one dataset. Snapshots that are `origins` of clones are not left out.
    async fn dataset(&mut self, dir: &Arc<Dir>, origins: &HashSet<Guid>) -> Result<()> {
        let (dsl, name) = (self.dsl, &dir.name);
        let head = dsl.head(dir).await?;
        let Some(to) = dsl.snapshot(&head, self.to).await? else {
            self.fail(format!("WARNING: could not send {name}@{}: does not exist", self.to));
            return Ok(());
        };
        let from = match self.from {
            Some(from) => dsl.snapshot(&head, from).await?,
            None => None,
        };
        let is_missing = self.order.replicate && self.from.is_some() && from.is_none();
        let mut has_begun = self.from.is_none() || is_missing;
        self.has_ended = false;
        let mut previous: Option<Dataset> = None;
        for snapshot in self.candidates(&head, from.as_ref(), &to).await? {
            let short = snapshot.name.rsplit('@').next().unwrap_or_default().to_owned();
            let is_from = self.from == Some(short.as_str());
            if !has_begun && is_from {
                has_begun = true;
                previous = Some(snapshot);
                continue;
            }
            if self.has_ended || !has_begun {
                continue;
            }
            let is_to = short == self.to;
            self.has_ended |= is_to;
            let is_origin = self.order.replicate && origins.contains(&snapshot.phys.guid);
            let is_wanted = self.has_all || is_from || is_to || is_origin;
            if !is_wanted || self.order.is_excluded(&snapshot.name) {
                continue;
            }
            let planned = self.stream(&snapshot, previous.as_ref()).await?;
            self.streams.push(planned);
            previous = Some(snapshot);
        }
        let (to, from) = (self.to, self.from.unwrap_or_default());
        if !has_begun {
            self.fail(format!(
                "WARNING: could not send {name}@{to}:\nincremental source ({name}@{from}) does not exist"
            ));
        } else if !self.has_ended {
            self.fail(format!(
                "WARNING: could not send {name}@{to}:\nincremental source ({name}@{from}) is not earlier \
                 than it"
            ));
        }
        Ok(())
    }

    fn fail(&mut self, why: String) {
        self.warnings.push(Warning::Always(why));
        self.has_failed = true;
    }

    /// The snapshots of a dataset that are looked at, oldest first.
    async fn candidates(&self, head: &Dataset, from: Option<&Dataset>, to: &Dataset) -> Result<Vec<Dataset>> {
        if !self.has_all && !self.order.replicate {
            return Ok(from.into_iter().chain([to]).cloned().collect());
        }
        let mut snapshots = self.dsl.snapshots(head).await?;
        if !self.order.replicate {
            let first = from.map(|from| from.phys.creation_txg).unwrap_or_default();
            snapshots.retain(|snapshot| (first..=to.phys.creation_txg).contains(&snapshot.phys.creation_txg));
        }
        Ok(snapshots)
    }

    async fn stream(&self, snapshot: &Dataset, previous: Option<&Dataset>) -> Result<Planned> {
        let origin = match previous {
            None if self.is_from_origin || self.order.replicate => self.origin(snapshot).await?,
            _ => None,
        };
        let from = match previous.or(origin.as_ref()) {
            Some(from) => Some(Ancestor::snapshot(self.dsl, from, snapshot).await?),
            None => None,
        };
        let short = |name: &str| name.rsplit('@').next().unwrap_or_default().to_owned();
        let request = Request { dataset: snapshot.clone(), from, flags: self.order.flags, resume: None };
        Ok(Planned {
            request,
            // Users are told nothing of origins here.
            shown_from: previous.map(|previous| short(&previous.name)),
            base: previous.map_or(Base::Nothing, |previous| Base::Since(Since::snapshot(previous))),
            sent_bytes: 0,
        })
    }

    async fn origin(&self, snapshot: &Dataset) -> Result<Option<Dataset>> {
        match self.dsl.origin(&snapshot.dir).await? {
            Some(_) => self.dsl.dataset_of_object(snapshot.dir.phys.origin).await.map(Some),
            None => Ok(None),
        }
    }
}

/// The snapshot that streams of several snapshots are incremental from.
fn from_of<'n>(name: &'n str, head: &str) -> Result<&'n str> {
    if name.contains('#') {
        let why = "Error: multiple snapshots cannot be sent from a bookmark.";
        return Err(Error::Invalid(why.to_owned()));
    }
    let Some((of, snapshot)) = name.split_once('@') else { return Ok(name) };
    if !of.is_empty() && of != head {
        return Err(Error::Invalid("incremental source must be in same filesystem".to_owned()));
    }
    if snapshot.is_empty() || snapshot.contains(['@', '/']) {
        return Err(Error::Invalid("invalid incremental source".to_owned()));
    }
    Ok(snapshot)
}
