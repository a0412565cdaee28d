//! Receiving streams of `zfs send`.

use engine::properties::Prop;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, ApiError, Declaration, Delegated, Effects, Form, Need, Part, Role, needs};

/// Receives a stream. The body of the request is this as one line of JSON, and the stream behind it.
///
/// The answer is a line of JSON for each [`ReceivePart`], sent while the stream is received. When it ends
/// with an error, the rest of the stream is not read any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReceiveStream {
    /// A filesystem, volume or snapshot.
    pub name: String,
    /// Which part of the sent name follows `name`.
    pub appends: Appends,
    /// Give up what was changed since the last common snapshot (`-F`).
    pub force: bool,
    /// Unmount by force where a mounted filesystem cannot be held (`-M`).
    pub force_unmount: bool,
    /// What was received stays when the stream breaks off (`-s`).
    pub resumable: bool,
    /// Only say what would be received (`-n`).
    pub dry_run: bool,
    /// Tell of each stream (`-v`).
    pub verbose: bool,
    /// Do not mount what is new (`-u`).
    pub no_mount: bool,
    /// Leave out holds (`-h`).
    pub skip_holds: bool,
    /// The snapshot that a new dataset is to be a clone of.
    pub origin: Option<String>,
    /// Properties as given by `-o name=value`.
    pub properties: Vec<(String, String)>,
    /// Properties that are not to be received (`-x`).
    pub excluded: Vec<String>,
    /// Only a stream of one snapshot, without properties and names of datasets.
    pub only_one: bool,
    /// For the history.
    pub command: Option<String>,
}

/// Which part of the name of what was sent becomes part of the name of what is received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Appends {
    /// What is below the sent dataset.
    #[default]
    Below,
    /// All but the pool (`-d`).
    AllButPool,
    /// The last component and what is below it (`-e`).
    Last,
}

impl Action for ReceiveStream {
    const DECLARED: Declaration = Declaration::changes(
        "receive-stream",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Receives a stream",
    )
    .in_words("receive", "name")
    .answered(Form::StreamIn);
    const DELEGATED: Delegated<Self> =
        Delegated::Needs("`receive` (or `receive:append`), `create`, `mount`; its properties", |request| {
            let name = needs::head_of(&request.name).to_owned();
            // With other names, what is received where would be for the stream to say.
            let mut needs = if request.appends == Appends::Below { Vec::new() } else { vec![Need::Never] };
            let receive = Need::At("receive".to_owned(), name.clone());
            needs.push(match request.force {
                true => receive,
                false => Need::Any(vec![receive, Need::At("receive:append".to_owned(), name.clone())]),
            });
            needs.extend(["create", "mount"].map(|permission| Need::At(permission.to_owned(), name.clone())));
            needs.extend(needs::for_new(&name, &request.properties)?);
            // Root's daemon would read the file of the key, which a user names.
            let is_of_key = |name: &str| Prop::from_name(name) == Some(Prop::Keyformat);
            if request.properties.iter().any(|(name, _)| is_of_key(name)) {
                needs.push(Need::Never);
            }
            for property in &request.excluded {
                needs.push(Need::New(needs::to_set(property)?, name.clone()));
            }
            if let Some(origin) = &request.origin {
                needs.push(Need::on("clone", origin));
            }
            Ok((Self { no_mount: true, force_unmount: false, only_one: true, ..request }, needs))
        });
    type Reply = ReceivePart;
}

/// A line of the answer. A whole answer ends with [`ReceivePart::Complete`] or [`ReceivePart::Failed`].
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReceivePart {
    /// What is being received, for `-v`.
    Told(String),
    /// Something that is not as the stream has it.
    Warning(String),
    /// It failed.
    Failed(ApiError),
    /// All was received.
    Complete,
}

/// Gives up what an interrupted receive left (`zfs receive -A`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AbortReceive {
    /// The filesystem or volume.
    pub name: String,
    /// For the history.
    pub command: Option<String>,
}

impl Action for AbortReceive {
    const DECLARED: Declaration = Declaration::changes(
        "receive-abort",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS,
        "Gives up what an interrupted receive left",
    )
    .in_words("abort receive into", "name");
    const DELEGATED: Delegated<Self> = Delegated::Needs("`destroy`, `mount`", |request| {
        let needs = vec![Need::on("destroy", &request.name), Need::on("mount", &request.name)];
        Ok((request, needs))
    });
    type Reply = ();
}
