//! One stream: whether it fits its destination, the properties that come with it, and its end.

use std::time::Duration;

use engine::dsl::edit::{self, PropertyChanges, StoredProperties};
use engine::dsl::{Dsl, Entry, Kind, Walk};
use engine::properties::{Environment, Prop, Style};
use engine::receive::{RECEIVE_CHILD, ReceiveTarget, Receiver, Records};
use ondisk::send::{Begin, PackagedDataset, PackagedProperty, begin_flag, feature};

use super::encryption;
use super::replication::nearest;
use super::target::Destination;
use super::{Receive, name_of};
use crate::api::{ApiError, Appends, ErrorKind};
use crate::caller::Caller;
use crate::daemon::OpenPool;
use crate::daemon::datasets::entry;
use crate::daemon::names;
use crate::daemon::names::is_at_or_below;
use crate::daemon::refusals::said;
use crate::daemon::sync_tasks::{self, New};
use crate::daemon::volumes::clients::Connected;
use crate::daemon::volumes::held_clients::InUse;

/// How long requests of clients may take that the exchange of contents waits for.
const REQUESTS_LIMIT: Duration = Duration::from_secs(30);

/// What is to be received, and where.
struct Plan {
    to: Destination,
    target: ReceiveTarget,
    /// Datasets above it that are to be created.
    parents: Vec<String>,
    /// What the sender said of the dataset.
    sent: Option<PackagedDataset>,
    /// A new dataset that is no clone.
    is_new: bool,
    is_raw: bool,
    doing: &'static str,
}

/// What is done with a stream.
enum Verdict {
    Receive(Box<Plan>),
    /// Its snapshot is there.
    Skip(String),
}

/// The message of an error of a receive, in OpenZFS's words where it has some.
fn refusal(doing: &str, to: &Destination, error: engine::Error) -> ApiError {
    let (kind, why) = match error {
        engine::Error::Quota(_) => {
            (ErrorKind::Failed, format!("destination {} space quota exceeded.", to.dataset))
        }
        engine::Error::NoSpace(_) => (ErrorKind::Failed, "out of space".to_owned()),
        other => {
            let ApiError { kind, message } = other.into();
            (kind, message)
        }
    };
    ApiError { kind, message: format!("{doing}: {why}") }
}

impl Receive<'_> {
    /// Receives a stream. False where its snapshot is there already.
    pub(super) async fn receive_stream(
        &mut self,
        begin: &Begin,
        payload: &[u8],
        records: &mut Records<'_>,
    ) -> Result<bool, ApiError> {
        let plan = match self.plan(begin).await? {
            Verdict::Receive(plan) => plan,
            Verdict::Skip(snapshot) => {
                if self.request.verbose {
                    self.told(format!("snap {snapshot} already exists; ignoring"));
                }
                records.skip().map_err(|error| super::failed_to_read(&error))?;
                return Ok(false);
            }
        };
        if self.request.verbose || self.request.dry_run {
            let verb = if self.request.dry_run { "would receive" } else { "receiving" };
            let kind = if begin.from_guid.get() == 0 { "full" } else { "incremental" };
            if self.request.verbose {
                self.told(format!("{verb} {kind} stream of {} into {}", name_of(begin)?, plan.to.full()));
            }
        }
        if self.request.dry_run {
            engine::receive::check_stream(begin).map_err(|error| refusal(plan.doing, &plan.to, error))?;
            records.skip().map_err(|error| super::failed_to_read(&error))?;
            self.new.push(plan.to.dataset.clone());
            return Ok(true);
        }
        let (mut receiver, changes) = self.begin(&plan, begin, payload, records).await?;
        let received = async {
            receiver.run(records).await.map_err(|error| refusal(plan.doing, &plan.to, error))?;
            self.end(&plan, &mut receiver).await
        };
        let received = received.await;
        let Err(error) = received else { return Ok(true) };
        let changes = changes.filter(|_| !receiver.is_new() && !self.request.resumable);
        let abandoned = receiver.abandon().await;
        if let Some(changes) = changes {
            self.take_back(&plan, changes).await;
        }
        if let Err(error) = abandoned {
            self.warn(format!("what was received of '{}' is not given up yet: {error}", plan.to.full()));
        }
        Err(self.with_token(&plan.to, error).await)
    }

    /// An error, with the token to resume what was received where there is some.
    async fn with_token(&self, to: &Destination, error: ApiError) -> ApiError {
        let token = async {
            let dsl = self.pool.dsl().await?;
            let entry = dsl.entry(&to.dataset).await?;
            let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await?;
            Ok::<_, engine::Error>(properties.get(Prop::ReceiveResumeToken, Style::PARSABLE))
        };
        let token = token.await.ok().flatten().map(|shown| shown.value);
        match token.filter(|token| token.contains('-') && token.len() > 1) {
            Some(token) => ApiError {
                kind: error.kind,
                message: format!(
                    "{}.\nPartially received snapshot is saved.\n\
                     A resuming stream can be generated on the sending system by running:\n    \
                     zfs send -t {token}",
                    error.message.trim_end_matches('.')
                ),
            },
            None => error,
        }
    }

    async fn plan(&self, begin: &Begin) -> Result<Verdict, ApiError> {
        let to = Destination::of(self.request, name_of(begin)?, &self.top)?;
        let resumes = begin.features & feature::RESUMING != 0;
        let is_clone = begin.flags & begin_flag::CLONE != 0 || self.request.origin.is_some();
        let is_full = begin.from_guid.get() == 0;
        let wants_new = (is_full || is_clone) && !resumes;
        let doing = match (wants_new, is_full) {
            (true, _) => "cannot receive new filesystem stream",
            (false, false) => "cannot receive incremental stream",
            (false, true) => "cannot receive",
        };
        let failed = |error| said(doing, error);
        let dsl = self.pool.dsl().await.map_err(failed)?;
        let there = entry(&dsl, &to.dataset).await.map_err(failed)?;
        let snapshot = entry(&dsl, &to.full()).await.map_err(failed)?;
        let has = |entry: &Entry| entry.dataset().is_some_and(|found| found.phys.guid == begin.to_guid);
        // What is sent anew is not meant for what is there, unless it belongs to a sequence of streams.
        let is_one_of_many = self.package.as_ref().is_some_and(|package| package.from_snapshot.is_some());
        if snapshot.as_ref().is_some_and(has) && (is_one_of_many || !wants_new) {
            return Ok(Verdict::Skip(to.full()));
        }
        let given = &self.request.name;
        let follows_sender = self.request.appends != Appends::Below && !given.contains('@');
        if follows_sender && entry(&dsl, given).await.map_err(failed)?.is_none() {
            return Err(ApiError::not_found(format!("{doing}: specified fs ({given}) does not exist")));
        }
        let mut parents = Vec::new();
        match &there {
            Some(_) if wants_new && !self.request.force => {
                let name = &to.dataset;
                let message =
                    format!("{doing}: destination '{name}' exists\nmust specify -F to overwrite it");
                return Err(ApiError::busy(message));
            }
            Some(_) => {}
            None if self.request.dry_run && self.new.contains(&to.dataset) => {}
            None if !wants_new => {
                let name = &to.dataset;
                return Err(ApiError::not_found(format!("{doing}: destination '{name}' does not exist")));
            }
            None => parents = self.missing_parents(&dsl, &to, doing).await?,
        }
        let mut origin = self.request.origin.clone();
        if wants_new && origin.is_none() && !is_full {
            origin = Some(self.origin_of(&dsl, begin, &to, doing).await?);
        }
        let sent = self.package.as_ref().and_then(|package| package.with_snapshot(begin.to_guid));
        let sent = sent.map(|(dataset, _)| dataset.clone());
        let is_raw = encryption::Kind::is_raw(begin);
        let kind = encryption::Kind {
            to: &to,
            is_raw,
            is_new: wants_new && origin.is_none(),
            is_one_of_many: self.package.as_ref().is_some_and(|package| !package.not_recursive),
            sent: sent.as_ref(),
        };
        let is_new = kind.is_new;
        let (encryption, key) = self.encryption_of(&kind, doing)?;
        let target = ReceiveTarget {
            dataset: to.dataset.clone(),
            snapshot: to.snapshot.clone(),
            origin: if wants_new { origin } else { None },
            force: self.request.force,
            resumable: self.request.resumable,
            asker: Caller::asker(),
            encryption,
            key,
        };
        Ok(Verdict::Receive(Box::new(Plan { to, target, parents, sent, is_new, is_raw, doing })))
    }

    /// The datasets above a new one that do not exist. Only names that follow what was sent may need some.
    async fn missing_parents(
        &self,
        dsl: &Dsl,
        to: &Destination,
        doing: &str,
    ) -> Result<Vec<String>, ApiError> {
        let mut missing = Vec::new();
        let mut above = names::parent_of(&to.dataset);
        while let Some(parent) = above {
            match entry(dsl, parent).await.map_err(|error| said(doing, error))? {
                None if self.request.dry_run && self.new.iter().any(|new| new == parent) => break,
                Some(found) if found.kind == Kind::Filesystem => break,
                Some(_) => {
                    let why = format!("destination parent '{parent}' is not a filesystem.");
                    return Err(ApiError::invalid(format!("{doing}: {why}")));
                }
                None if self.request.appends == Appends::Below || self.request.name == parent => {
                    return Err(ApiError::not_found(format!(
                        "{doing}: destination '{parent}' does not exist"
                    )));
                }
                None => missing.push(parent.to_owned()),
            }
            above = names::parent_of(parent);
        }
        missing.reverse();
        Ok(missing)
    }

    /// The snapshot of which a clone was sent. There may be several copies of it: the nearest is meant.
    async fn origin_of(
        &self,
        dsl: &Dsl,
        begin: &Begin,
        to: &Destination,
        doing: &str,
    ) -> Result<String, ApiError> {
        let walk = Walk { snapshots: true, ..Walk::HEADS };
        let all = dsl.list(None, walk).await.map_err(|error| said(doing, error))?;
        let found = all.iter().filter_map(Entry::dataset);
        let origins = found.filter(|one| one.is_snapshot() && one.phys.guid == begin.from_guid);
        let origins: Vec<&str> = origins.map(|origin| origin.name.as_str()).collect();
        let sent = name_of(begin)?;
        let missing =
            || ApiError::not_found(format!("{doing}: local origin for clone {sent} does not exist"));
        nearest(origins.into_iter(), &to.dataset).map(str::to_owned).ok_or_else(missing)
    }

    /// Creates what is filled, and gives it its properties. Gives what that changed.
    async fn begin(
        &mut self,
        plan: &Plan,
        begin: &Begin,
        payload: &[u8],
        records: &Records<'_>,
    ) -> Result<(Receiver, Option<PropertyChanges>), ApiError> {
        let pool = std::sync::Arc::clone(&self.pool);
        let live = pool.writable(plan.doing)?;
        let _changing = pool.change().await?;
        pool.refuse_reshaped(plan.doing, |volume| volume == plan.to.dataset)?;
        if !plan.parents.is_empty() {
            let parents = plan.parents.clone();
            let created = sync_tasks::change(live, None, move |s| async move {
                for name in parents {
                    sync_tasks::create(&s, &New::filesystem(name)).await?;
                }
                Ok(())
            });
            created.await.map_err(|error| refusal(plan.doing, &plan.to, error))?;
            self.new.extend(plan.parents.iter().cloned());
        }
        let begun = Receiver::begin(live, (begin, payload, records.order()), &plan.target).await;
        let receiver = begun.map_err(|error| refusal(plan.doing, &plan.to, error))?;
        if receiver.is_new() {
            let name = plan.to.dataset.clone();
            let granted = sync_tasks::change(live, None, move |s| async move {
                sync_tasks::grant_to_creator(&s, &name).await
            });
            if let Err(error) = granted.await {
                self.warn(format!("'{}' does not have what its creator gets: {error}", plan.to.dataset));
            }
        }
        match self.set_properties(plan, begin, live).await {
            Ok(changes) => Ok((receiver, changes)),
            Err(error) => {
                if let Err(error) = receiver.abandon().await {
                    self.warn(format!("what was begun of '{}' is not given up: {error}", plan.to.full()));
                }
                Err(error)
            }
        }
    }

    /// The properties of the stream and of the command, before there are data. Gives what changed.
    async fn set_properties(
        &mut self,
        plan: &Plan,
        begin: &Begin,
        live: &std::sync::Arc<engine::pool::live::LivePool>,
    ) -> Result<Option<PropertyChanges>, ApiError> {
        let request = self.request;
        let is_top = plan.to.is_top;
        let inherits = |name: &str| Prop::from_name(name).is_none_or(|prop| prop.desc().inheritable());
        let mut excluded: Vec<String> = request.excluded.clone();
        let mut typed = request.properties.clone();
        let is_volume = engine::receive::is_of_volume(begin);
        let given = excluded.iter().chain(typed.iter().map(|(name, _)| name));
        let foreign: Vec<String> = given.filter(|name| !edit::applies(name, is_volume)).cloned().collect();
        // Of several datasets that come together some may be of the other type.
        let meant = |name: &&String| plan.sent.is_none() && typed.iter().any(|(typed, _)| typed == *name);
        if let Some(name) = foreign.iter().find(meant) {
            let why = format!("property '{name}' does not apply to datasets of this type");
            return Err(refusal(plan.doing, &plan.to, engine::Error::Invalid(why)));
        }
        for name in foreign {
            let of = &plan.to.dataset;
            self.warn(format!("Warning: {of}: property '{name}' does not apply to datasets of this type"));
        }
        let kind = encryption::Kind {
            to: &plan.to,
            is_raw: plan.is_raw,
            is_new: plan.is_new,
            is_one_of_many: false,
            sent: plan.sent.as_ref(),
        };
        // The key says the rest.
        let is_value = |name: &str| edit::applies(name, is_volume) && !encryption::is_taken(name, &kind);
        excluded.retain(|name| is_value(name));
        typed.retain(|(name, _)| is_value(name));
        if !is_top {
            // Those below the first one inherit from it what it was given.
            excluded.extend(typed.iter().filter(|(name, _)| inherits(name)).map(|(name, _)| name.clone()));
            typed.clear();
        }
        let received: Option<Vec<PackagedProperty>> =
            plan.sent.as_ref().and_then(|sent| sent.properties.clone()).map(|mut all| {
                // Where a key is found is set when it is known which datasets are encryption roots.
                let is_location = |name: &str| Prop::from_stored_name(name) == Some(Prop::Keylocation);
                let is_kept = |name: &str| {
                    !is_location(name) && (inherits(name) || !excluded.iter().any(|other| other == name))
                };
                all.retain(|property| is_kept(&property.name.to_string()));
                all
            });
        excluded.retain(|name| inherits(name));
        if received.is_none() && typed.is_empty() && excluded.is_empty() {
            return Ok(None);
        }
        let name = plan.to.dataset.clone();
        let set = sync_tasks::change(live, None, move |s| async move {
            let before = StoredProperties::of(&s, &name).await?;
            let mut left_out = Vec::new();
            if let Some(received) = received {
                left_out = edit::receive_properties(&s, &name, &received).await?;
            }
            if !typed.is_empty() {
                edit::set_properties(&s, &name, &typed).await?;
            }
            for property in excluded {
                // A value that the destination has of its own counts before one that is received.
                if !edit::has_local_property(&s, &name, &property).await? {
                    edit::inherit_property(&s, &name, &property, false).await?;
                }
            }
            Ok((left_out, before.changes(&StoredProperties::of(&s, &name).await?)))
        });
        let (left_out, changes) = set.await.map_err(|error| refusal(plan.doing, &plan.to, error))?;
        left_out.into_iter().for_each(|text| self.warn(text));
        Ok(Some(changes))
    }

    /// A stream broke off: its destination has the properties of before again.
    async fn take_back(&mut self, plan: &Plan, changes: PropertyChanges) {
        let (pool, name) = (std::sync::Arc::clone(&self.pool), plan.to.dataset.clone());
        let taken_back =
            async {
                let live = pool.writable(plan.doing)?;
                let _changing = pool.change().await?;
                let taken_back = sync_tasks::change(live, None, move |s| async move {
                    edit::take_back(&s, &name, &changes).await
                });
                taken_back.await.map_err(|error| refusal(plan.doing, &plan.to, error))
            };
        if let Err(error) = taken_back.await {
            let of = &plan.to.dataset;
            self.warn(format!("'{of}' keeps the properties of the stream: {}", error.message));
        }
    }

    /// The stream is there: exchanges the contents, where there were some, and serves them.
    async fn end(&mut self, plan: &Plan, receiver: &mut Receiver) -> Result<(), ApiError> {
        let pool = std::sync::Arc::clone(&self.pool);
        let live = pool.writable(plan.doing)?;
        if receiver.is_new() {
            receiver.end().await.map_err(|error| refusal(plan.doing, &plan.to, error))?;
            self.new.push(plan.to.dataset.clone());
            let _changing = pool.change().await?;
            self.find_volumes(&pool).await;
        } else {
            self.exchange(plan, receiver).await?;
            // Mounts follow the properties that were set.
            let changing = pool.change().await?;
            let is_meant = |mounted: &str| is_at_or_below(mounted, &plan.to.dataset);
            let failed = self.daemon.update_mounts(&pool, &changing, false, is_meant).await;
            failed.into_iter().for_each(|error| self.warn(error.message));
        }
        self.finish_snapshot(plan, live).await
    }

    pub(super) async fn find_volumes(&mut self, pool: &OpenPool) {
        if let Err(error) = pool.find_volumes().await {
            self.warn(format!("not all volumes of '{}' are served: {error}", pool.name()));
        }
    }

    /// Puts the contents in their place while users of the destination wait.
    async fn exchange(&mut self, plan: &Plan, receiver: &mut Receiver) -> Result<(), ApiError> {
        let (doing, of) = (plan.doing, plan.to.dataset.as_str());
        let pool = std::sync::Arc::clone(&self.pool);
        let (daemon, live) = (self.daemon, pool.writable(doing)?);
        let changing = pool.change().await?;
        let clients = pool.hold_clients(of, REQUESTS_LIMIT).map_err(|InUse(connected)| {
            let clients = Connected::clients(&connected);
            ApiError::busy(format!("{doing}: requests to '{of}' do not finish, of {clients}"))
        })?;
        let share = of.to_owned();
        let _shares = pool.close_shares(doing, move |name| name == share)?;
        let inside = pool.mounted_inside(of);
        pool.keep_mounts(&inside);
        let filled = format!("{of}/{RECEIVE_CHILD}");
        let begun = async {
            let exchange = daemon.begin_rollback(&pool, &changing, doing, of, &filled).await?;
            match daemon.close_log(&pool, of).await {
                Ok(()) => Ok(exchange),
                Err(error) => {
                    daemon.cancel_rollback(&pool, &changing, exchange).await;
                    Err(error)
                }
            }
        };
        let exchange = match begun.await {
            Ok(exchange) => exchange,
            Err(error) => {
                daemon.mount_displaced(&pool, &changing, inside).await;
                return Err(error);
            }
        };
        let done = receiver.end().await.map_err(|error| refusal(doing, &plan.to, error));
        match &done {
            Ok(_) => {
                if let Err(error) = daemon.finish_rollback(&pool, &changing, of, exchange).await {
                    self.warn(error.message);
                }
                let went_on = async {
                    let dataset = pool.dsl().await?.find(of).await?;
                    clients.go_on_with(live, &dataset).await
                };
                if let Err(error) = went_on.await {
                    self.warn(format!("clients of '{of}' were disconnected: {error}"));
                }
            }
            Err(_) => daemon.cancel_rollback(&pool, &changing, exchange).await,
        }
        daemon.mount_displaced(&pool, &changing, inside).await;
        self.find_volumes(&pool).await;
        done.map(drop)
    }

    /// What the sender said of the snapshot.
    async fn finish_snapshot(
        &mut self,
        plan: &Plan,
        live: &std::sync::Arc<engine::pool::live::LivePool>,
    ) -> Result<(), ApiError> {
        let full = plan.to.full();
        let (mut properties, mut tags) = (Vec::new(), Vec::new());
        if let Some(sent) = &plan.sent {
            let is_meant = |name: &ondisk::nvlist::ByteString| {
                sent.guid_of(name.as_bytes()).is_some()
                    && name.to_str().is_some_and(|n| n == plan.to.snapshot)
            };
            let of = sent.snapshot_properties.iter().find(|(name, _)| is_meant(name));
            properties = of.map(|(_, all)| all.clone()).unwrap_or_default();
            let holds = sent.holds.as_ref().filter(|_| !self.request.skip_holds);
            let of = holds.and_then(|holds| holds.iter().find(|(name, _)| is_meant(name)));
            tags = of
                .map(|(_, holds)| holds.iter().map(|hold| hold.tag.to_string()).collect())
                .unwrap_or_default();
        }
        let (name, command) = (full.clone(), self.request.command.clone());
        let done = sync_tasks::change(live, command, move |s| async move {
            let mut left_out = Vec::new();
            if !properties.is_empty() {
                left_out = edit::receive_properties(&s, &name, &properties).await?;
            }
            for tag in tags {
                if let Err(error) = sync_tasks::hold(&s, std::slice::from_ref(&name), &tag).await {
                    left_out.push(format!("cannot hold snapshot {name}: {error}"));
                }
            }
            Ok(left_out)
        });
        match done.await {
            Ok(left_out) => left_out.into_iter().for_each(|text| self.warn(text)),
            Err(error) => self.warn(format!("{full} was received, but: {error}")),
        }
        Ok(())
    }
}
