//! From the first unit to a session.
//!
//! A login goes through up to two stages: security (`CSG` 0), in which the initiator says who it is and
//! which target it wants and proves it with CHAP, and operational (1), in which limits are agreed. Each unit
//! of the initiator is answered before the next is read. Where secrets are asked for, no other stage begins
//! before the initiator has proved that it knows one; nor is it told then which targets there are.
//!
//! Source of the facts: RFC 7143, sections 6, 11.12, 11.13 and 13.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::chap::{Challenge, MD5, MOST_CHALLENGE_BYTES, Secrets};
use super::pdu::{self, Digests, Header, Pdu, answer, request, violation};
use super::text::{Text, bytes, hex, number};
use super::{inventory, names};
use crate::block::{Caller, Export, Exports, Resources, Seat, Share, Unopened};

/// Units of a login.
const MOST_UNITS: usize = 64;
/// Bytes of data of a unit before something else is agreed.
pub(super) const LOGIN_DATA_BYTES: usize = 8192;
/// Bytes of keys and values that come in several units.
const MOST_TEXT_BYTES: usize = 64 << 10;
/// Bytes of data of a unit that this side takes.
pub(super) const OWN_DATA_BYTES: usize = 256 << 10;
/// The most bytes of a burst, which is what an initiator sends when it is asked once.
const MOST_BURST_BYTES: u32 = 1 << 20;

/// The most bytes that come with a command; so many of each command are kept while it waits for memory.
const MOST_FIRST_BYTES: u32 = 64 << 10;

/// The number of the only portal group.
pub(super) const PORTAL_GROUP: u16 = 1;

const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
const TRANSIT: u8 = 0x80;
const CONTINUE: u8 = 0x40;

/// Why a login fails: class and detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status(u8, u8);

impl Status {
    const MALFORMED: Self = Self(2, 0);
    const NOT_AUTHENTICATED: Self = Self(2, 1);
    const NOT_FOUND: Self = Self(2, 3);
    const VERSION: Self = Self(2, 5);
    const TOO_MANY_CONNECTIONS: Self = Self(2, 6);
    const MISSING: Self = Self(2, 7);
    const NO_SESSION_TYPE: Self = Self(2, 9);
    const UNAVAILABLE: Self = Self(3, 1);
    const OUT_OF_RESOURCES: Self = Self(3, 2);
}

/// What was agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed {
    pub digests: Digests,
    /// Bytes of data that the initiator takes in a unit.
    pub their_data_bytes: usize,
    pub burst_bytes: u32,
    pub first_burst_bytes: u32,
    pub immediate_data: bool,
}

impl Agreed {
    /// The most bytes that may come with a command.
    pub fn most_immediate_bytes(&self) -> usize {
        if self.immediate_data { self.first_burst_bytes as usize } else { 0 }
    }
}

impl Default for Agreed {
    fn default() -> Self {
        Self {
            digests: Digests::default(),
            their_data_bytes: LOGIN_DATA_BYTES,
            burst_bytes: 256 << 10,
            first_burst_bytes: 64 << 10,
            immediate_data: true,
        }
    }
}

/// Who logged in: the initiator's name and the session's number on its side.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Initiator {
    pub name: String,
    pub isid: [u8; 6],
}

/// A target with its volumes, by their numbers.
pub(super) struct Target<E> {
    pub name: String,
    /// The number of the volume that it belongs to, if it is a volume's own.
    pub own: Option<u64>,
    pub volumes: BTreeMap<u8, (Arc<E>, Share)>,
}

/// The initiator's name, its target, and its seat among those that are served.
type Finished<E> = (String, Option<Target<E>>, Seat);

/// What a login came to.
pub(super) struct Session<E> {
    pub initiator: Initiator,
    /// Its name as far as volumes that are shared with named initiators are concerned: none where it gave a
    /// proof that says nothing of its name.
    pub shared_with: Option<String>,
    /// None for discovery.
    pub target: Option<Target<E>>,
    pub agreed: Agreed,
    /// The number of the next command.
    pub command: u32,
    /// The number of the next answer.
    pub status: u32,
    /// The initiator's seat among those that are served.
    pub seat: Seat,
}

/// Who may log in to what.
pub(super) struct Door<'a, X> {
    pub exports: &'a X,
    pub secrets: Option<&'a Secrets>,
    pub resources: &'a Arc<Resources>,
    /// Where the initiator comes from.
    pub address: IpAddr,
    /// The number that the session gets.
    pub tsih: u16,
}

/// How far an initiator is with its proof.
#[derive(Debug)]
enum Proof {
    /// None is asked for, or it was given.
    Done,
    /// It has to agree to CHAP.
    Awaited,
    /// It has to choose an algorithm.
    Method,
    /// It has to answer.
    Challenged(Challenge),
}

struct Login<'a, X: Exports> {
    door: &'a Door<'a, X>,
    proof: Proof,
    initiator: Option<String>,
    /// The name is what was proven, or no proof is asked for.
    is_name_proven: bool,
    target: Option<String>,
    is_discovery: bool,
    session: Option<Target<X::Export>>,
    agreed: Agreed,
    /// The group of the portal was told.
    told_group: bool,
    /// The limits of this side were told.
    told_limits: bool,
    stage: u8,
}

/// Leads a login. `None` where it failed, which the initiator was told.
///
/// # Errors
/// The socket's; units that break the protocol.
pub(super) async fn log_in<S, X>(socket: &mut S, door: &Door<'_, X>) -> io::Result<Option<Session<X::Export>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    let proof = if door.secrets.is_some() { Proof::Awaited } else { Proof::Done };
    let mut login = Login {
        door,
        proof,
        initiator: None,
        is_name_proven: door.secrets.is_none(),
        target: None,
        is_discovery: false,
        session: None,
        agreed: Agreed::default(),
        told_group: false,
        told_limits: false,
        stage: SECURITY,
    };
    let (mut told, mut is_first) = (Vec::new(), true);
    let mut status_number = 0u32;
    for _ in 0..MOST_UNITS {
        let Pdu { header, data, .. } = pdu::read(socket, Digests::default(), LOGIN_DATA_BYTES).await?;
        if header.operation() != request::LOGIN {
            return Err(violation("a login begins with something else"));
        }
        if is_first {
            status_number = header.word(28);
            login.stage = header.flags() >> 2 & 3;
        }
        let command = header.word(24);
        let result = if told.len() + data.len() > MOST_TEXT_BYTES {
            Err(Status::OUT_OF_RESOURCES)
        } else {
            told.extend_from_slice(&data);
            match header.flags() & CONTINUE != 0 {
                true => Ok(Text::default()),
                false => {
                    let text = Text::parse(&std::mem::take(&mut told));
                    login.step(&header, text).await
                }
            }
        };
        is_first = false;
        let flags = header.flags();
        let reply = Header::new(answer::LOGIN).set(8, &header.array::<8>(8)).set_word(16, header.task_tag());
        let reply = reply.set_word(24, status_number).set_word(28, command).set_word(32, command);
        status_number = status_number.wrapping_add(1);
        let mut out = Vec::new();
        let text = match result {
            Ok(text) => text,
            Err(Status(class, detail)) => {
                let reply = reply.set_flags(flags & 0x0c).set(36, &[class, detail]);
                pdu::write(&mut out, reply, &[], Digests::default());
                socket.write_all(&out).await?;
                tracing::info!(initiator = login.initiator, class, detail, "an iSCSI login was refused");
                return Ok(None);
            }
        };
        let is_transit = flags & TRANSIT != 0 && flags & CONTINUE == 0 && matches!(login.proof, Proof::Done);
        let next = flags & 3;
        let flags = if is_transit { flags & 0x8f } else { flags & 0x0c };
        let is_done = is_transit && next == FULL_FEATURE;
        let finished = if is_done { Some(login.finish()) } else { None };
        let (reply, session) = match finished {
            Some(Err(Status(class, detail))) => (reply.set_flags(0).set(36, &[class, detail]), None),
            Some(Ok((initiator, target, seat))) => {
                let shared_with = login.is_name_proven.then(|| initiator.clone());
                let initiator = Initiator { name: initiator, isid: header.array(8) };
                let reply = reply.set_flags(flags).set(14, &door.tsih.to_be_bytes());
                let agreed = login.agreed;
                let status = status_number;
                let session = Session { initiator, shared_with, target, agreed, command, status, seat };
                (reply, Some(session))
            }
            None => (reply.set_flags(flags), None),
        };
        pdu::write(&mut out, reply, &text.to_bytes(), Digests::default());
        socket.write_all(&out).await?;
        if is_done {
            return Ok(session);
        }
        if is_transit {
            login.stage = next;
        }
    }
    Err(violation("a login takes too many units"))
}

impl<X: Exports> Login<'_, X> {
    /// Answers what the initiator said in one or more units.
    async fn step(&mut self, header: &Header, text: Option<Text>) -> Result<Text, Status> {
        let text = text.ok_or(Status::MALFORMED)?;
        if header.0[3] > 0 {
            return Err(Status::VERSION);
        }
        let (flags, stage) = (header.flags(), header.flags() >> 2 & 3);
        let is_stage_right = stage == self.stage && matches!(stage, SECURITY | OPERATIONAL);
        let is_next_right =
            flags & TRANSIT == 0 || matches!(flags & 3, OPERATIONAL | FULL_FEATURE) && flags & 3 > stage;
        if !is_stage_right || !is_next_right {
            return Err(Status::MALFORMED);
        }
        if self.initiator.is_none() {
            self.begin(header, &text)?;
        }
        if stage != SECURITY && !matches!(self.proof, Proof::Done) {
            return Err(Status::NOT_AUTHENTICATED);
        }
        let mut reply = Text::default();
        match stage {
            SECURITY => self.security(&text, flags & TRANSIT != 0, &mut reply)?,
            _ => self.operational(&text, &mut reply),
        }
        if matches!(self.proof, Proof::Done) && self.session.is_none() && !self.is_discovery {
            // The case of letters does not matter in names of targets.
            let name = self.target.take().ok_or(Status::MISSING)?.to_ascii_lowercase();
            self.session = Some(self.open(name).await?);
        }
        if !self.told_group && !self.is_discovery {
            self.told_group = true;
            reply.push("TargetPortalGroupTag", PORTAL_GROUP);
        }
        Ok(reply)
    }

    /// Opens the volumes of a target that the initiator may have. What cannot be opened now is left out,
    /// unless it is all.
    async fn open(&self, name: String) -> Result<Target<X::Export>, Status> {
        let name_of_initiator = self.initiator.as_deref().filter(|_| self.is_name_proven);
        let caller = Caller { address: Some(self.door.address), name: name_of_initiator };
        let (mut volumes, mut failure) = (BTreeMap::new(), Status::NOT_FOUND);
        let mut own = None;
        let mut members = inventory::members(self.door.exports.listed(caller).await, &name, None);
        if members.is_empty() {
            // It may be of a pool that is being imported. An initiator tries again then, but it gives up a
            // target that does not exist.
            if !self.door.exports.complete().await {
                failure = Status::UNAVAILABLE;
            }
            members = inventory::members(self.door.exports.listed(caller).await, &name, None);
        }
        if !inventory::members(self.door.exports.unavailable(caller).await, &name, None).is_empty() {
            // The same holds for what can be opened only after its key is loaded.
            failure = Status::UNAVAILABLE;
        }
        for (lun, listed) in members {
            match self.door.exports.open(&listed.name, caller).await {
                Ok(export) => {
                    own = own.or(listed.share.target.is_none().then(|| export.guid()));
                    volumes.insert(lun, (export, listed.share));
                }
                Err(Unopened::Unknown) => {}
                Err(Unopened::Unavailable(_)) => failure = Status::UNAVAILABLE,
            }
        }
        if volumes.is_empty() { Err(failure) } else { Ok(Target { name, own, volumes }) }
    }

    fn begin(&mut self, header: &Header, text: &Text) -> Result<(), Status> {
        if header.array::<2>(14) != [0, 0] {
            // A session has one connection.
            return Err(Status::TOO_MANY_CONNECTIONS);
        }
        let name = text.get("InitiatorName").filter(|name| !name.is_empty()).ok_or(Status::MISSING)?;
        if name.len() > names::MOST_NAME_BYTES {
            return Err(Status::MALFORMED);
        }
        self.initiator = Some(name.to_owned());
        self.is_discovery = match text.get("SessionType") {
            Some("Discovery") => true,
            Some("Normal") | None => false,
            Some(_) => return Err(Status::NO_SESSION_TYPE),
        };
        self.target = text.get("TargetName").map(str::to_owned);
        if !self.is_discovery && self.target.is_none() {
            return Err(Status::MISSING);
        }
        Ok(())
    }

    fn security(&mut self, text: &Text, goes_on: bool, reply: &mut Text) -> Result<(), Status> {
        let offered = |key, value| text.get(key).is_some_and(|list| list.split(',').any(|one| one == value));
        let Some(secrets) = self.door.secrets else {
            if let Some(methods) = text.get("AuthMethod") {
                if !methods.split(',').any(|method| method == "None") {
                    return Err(Status::NOT_AUTHENTICATED);
                }
                reply.push("AuthMethod", "None");
            }
            return Ok(());
        };
        match std::mem::replace(&mut self.proof, Proof::Awaited) {
            Proof::Done => self.proof = Proof::Done,
            Proof::Awaited => {
                if offered("AuthMethod", "CHAP") {
                    reply.push("AuthMethod", "CHAP");
                    self.proof = Proof::Method;
                } else if goes_on || text.get("AuthMethod").is_some() {
                    return Err(Status::NOT_AUTHENTICATED);
                }
            }
            Proof::Method => {
                if !offered("CHAP_A", MD5) {
                    return Err(Status::NOT_AUTHENTICATED);
                }
                let challenge = Challenge::new().map_err(|_| Status::OUT_OF_RESOURCES)?;
                reply.push("CHAP_A", MD5);
                reply.push("CHAP_I", challenge.identifier);
                reply.push("CHAP_C", hex(&challenge.bytes));
                self.proof = Proof::Challenged(challenge);
            }
            Proof::Challenged(challenge) => {
                let named = text.get("CHAP_N").zip(text.get("CHAP_R").and_then(|value| bytes(value, 16)));
                let initiator = self.initiator.as_deref().ok_or(Status::MISSING)?;
                let proven = named
                    .and_then(|(name, answered)| secrets.check(initiator, name, &challenge, &answered))
                    .ok_or(Status::NOT_AUTHENTICATED)?;
                if let Some(theirs) = text.get("CHAP_C") {
                    let theirs = bytes(theirs, MOST_CHALLENGE_BYTES).ok_or(Status::MALFORMED)?;
                    let identifier = text.get("CHAP_I").and_then(number).ok_or(Status::MALFORMED)? as u8;
                    // What this side sent must not come back as the answer to itself.
                    if theirs == challenge.bytes {
                        return Err(Status::NOT_AUTHENTICATED);
                    }
                    let (name, answered) =
                        proven.answer(identifier, &theirs).ok_or(Status::NOT_AUTHENTICATED)?;
                    reply.push("CHAP_N", name);
                    reply.push("CHAP_R", hex(&answered));
                }
                self.is_name_proven = proven.is_name;
                self.proof = Proof::Done;
            }
        }
        Ok(())
    }

    fn operational(&mut self, text: &Text, reply: &mut Text) {
        let agreed = &mut self.agreed;
        let number_of =
            |value: &str, least, most| number(value).filter(|number| (least..=most).contains(number));
        let most_bytes = (1 << 24) - 1;
        for (key, value) in &text.0 {
            let is_yes = value == "Yes";
            let answer = match key.as_str() {
                "InitiatorName" | "InitiatorAlias" | "SessionType" | "TargetName" | "AuthMethod" => continue,
                "HeaderDigest" | "DataDigest" => {
                    let chosen = value.split(',').find(|one| matches!(*one, "None" | "CRC32C"));
                    let is_on = chosen == Some("CRC32C");
                    match key.as_str() {
                        "HeaderDigest" => agreed.digests.header = is_on,
                        _ => agreed.digests.data = is_on,
                    }
                    chosen.unwrap_or("Reject").to_owned()
                }
                "MaxRecvDataSegmentLength" => match number_of(value, 512, most_bytes) {
                    Some(bytes) => {
                        agreed.their_data_bytes = bytes as usize;
                        continue;
                    }
                    None => "Reject".into(),
                },
                "MaxBurstLength" => match number_of(value, 512, most_bytes) {
                    Some(bytes) => {
                        agreed.burst_bytes = bytes.min(MOST_BURST_BYTES);
                        agreed.burst_bytes.to_string()
                    }
                    None => "Reject".into(),
                },
                "FirstBurstLength" => match number_of(value, 512, most_bytes) {
                    Some(bytes) => {
                        agreed.first_burst_bytes = bytes.min(MOST_FIRST_BYTES);
                        agreed.first_burst_bytes.to_string()
                    }
                    None => "Reject".into(),
                },
                // A write may have to wait for memory before more of it is sent than comes with the command.
                "InitialR2T" => "Yes".into(),
                "ImmediateData" => {
                    agreed.immediate_data = is_yes;
                    value.clone()
                }
                "MaxConnections" | "MaxOutstandingR2T" | "iSCSIProtocolLevel" => "1".into(),
                "ErrorRecoveryLevel" | "DefaultTime2Retain" => "0".into(),
                "DefaultTime2Wait" => number_of(value, 0, 3600).unwrap_or(2).max(2).to_string(),
                "DataPDUInOrder" | "DataSequenceInOrder" => "Yes".into(),
                "OFMarker" | "IFMarker" => "No".into(),
                "OFMarkInt" | "IFMarkInt" => "Irrelevant".into(),
                "TaskReporting" => "RFC3720".into(),
                _ => "NotUnderstood".into(),
            };
            reply.push(key, answer);
        }
        agreed.first_burst_bytes = agreed.first_burst_bytes.min(agreed.burst_bytes);
        if !self.told_limits {
            self.told_limits = true;
            reply.push("MaxRecvDataSegmentLength", OWN_DATA_BYTES);
        }
    }

    /// What the session is of.
    fn finish(&mut self) -> Result<Finished<X::Export>, Status> {
        let initiator = self.initiator.take().ok_or(Status::MISSING)?;
        let seat = self.door.resources.seat().ok_or(Status::OUT_OF_RESOURCES)?;
        Ok((initiator, self.session.take(), seat))
    }
}
