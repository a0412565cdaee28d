//! The token with which an interrupted stream is resumed: what a receiver has got so far.
//!
//! `zfs get receive_resume_token` of the receiver shows it. It is `version-checksum-length-payload`: the
//! first word of the payload's fletcher4 checksum and the length of the list in it, in hexadecimal, and the
//! list itself, compressed with zlib, in hexadecimal digits. Source of the facts: OpenZFS 2.4
//! `libzfs_sendrecv.c`.

use codec::checksum::fletcher4;
use ondisk::blkptr::CompressType;
use ondisk::nvlist::Nvlist;
use ondisk::send::begin_key;
use ondisk::{ByteOrder, Guid, ObjectId};

use super::Flags;
use super::estimate::Base;
use super::plan::{Plan, Planned};
use super::{Ancestor, Request};
use crate::dsl::{Dataset, Dsl, Found, Since};
use crate::error::{Error, Result};

/// The only version.
const VERSION: &str = "1";
/// Largest list, in bytes: it has two names at most.
const MAX_LIST_BYTES: usize = 1 << 20;

/// What a receiver has got.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Name of the snapshot that is sent.
    pub to_name: String,
    to_guid: Guid,
    from_guid: Option<Guid>,
    object: ObjectId,
    offset: u64,
    bytes: u64,
    flags: Flags,
    is_redacted: bool,
    list: Nvlist,
}

fn corrupt(why: &str) -> Error {
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    Error::Invalid(format!("cannot resume send: resume token is corrupt{why}"))
}

impl Token {
    /// Reads a token.
    ///
    /// # Errors
    /// It is none, or was changed on its way.
    pub fn parse(text: &str) -> Result<Token> {
        let parts: Vec<&str> = text.trim().split('-').collect();
        let [version, checksum, length, payload] = parts[..] else { return Err(corrupt("invalid format")) };
        if version != VERSION {
            return Err(corrupt(&format!("invalid version {version}")));
        }
        let number = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| corrupt("invalid format"));
        let (checksum, length) = (number(checksum)?, number(length)?);
        let packed = bytes_of(payload).ok_or_else(|| corrupt("payload is not hex-encoded"))?;
        let [sum, ..] = fletcher4(&packed, ByteOrder::Little);
        if sum != checksum {
            return Err(corrupt("incorrect checksum"));
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= MAX_LIST_BYTES);
        let mut list = vec![0; length.ok_or_else(|| corrupt("decompression failed"))?];
        codec::compress::decompress(CompressType::Gzip6, &packed, &mut list)
            .map_err(|_| corrupt("decompression failed"))?;
        Token::of(Nvlist::parse(&list).map_err(|_| corrupt("nvlist_unpack failed"))?)
    }

    fn of(list: Nvlist) -> Result<Token> {
        let number = |name: &str| list.find_u64(name).ok_or_else(|| corrupt(""));
        let to_name = list.find_string("toname").and_then(|name| name.to_str()).ok_or_else(|| corrupt(""))?;
        Ok(Token {
            to_name: to_name.to_owned(),
            to_guid: Guid(number("toguid")?),
            from_guid: list.find_u64("fromguid").filter(|guid| *guid != 0).map(Guid),
            object: ObjectId(number("object")?),
            offset: number("offset")?,
            bytes: number("bytes")?,
            flags: Flags {
                large_blocks: list.contains("largeblockok"),
                embedded: list.contains("embedok"),
                compressed: list.contains("compressok"),
                raw: list.contains("rawok"),
            },
            is_redacted: list.contains(begin_key::REDACT_SNAPS) || list.contains("book_redact_snaps"),
            list,
        })
    }

    /// What it says, by name.
    pub fn list(&self) -> &Nvlist {
        &self.list
    }

    /// What is to be sent, with the flags of the token and those given.
    ///
    /// # Errors
    /// The snapshot, or the one that it is incremental from, is not there any more.
    pub async fn plan(&self, dsl: &Dsl, flags: Flags) -> Result<Plan> {
        if self.is_redacted {
            let why = "cannot resume send: redacted streams are not made yet";
            return Err(Error::Unsupported(why.to_owned()));
        }
        let dataset = self.dataset(dsl).await?;
        let (from, shown_from, base) = match self.from_guid {
            None => (None, None, Base::Nothing),
            Some(guid) => {
                let (ancestor, name, base) = self.ancestor(dsl, guid, &dataset).await?;
                (Some(ancestor), Some(name), base)
            }
        };
        let flags = Flags {
            large_blocks: flags.large_blocks || self.flags.large_blocks,
            embedded: flags.embedded || self.flags.embedded,
            compressed: flags.compressed || self.flags.compressed,
            raw: flags.raw || self.flags.raw,
        };
        let begins = self.object == ObjectId(0) && self.offset == 0;
        let resume = (!begins).then_some((self.object, self.offset));
        let request = Request { dataset, from, flags, resume };
        Ok(Plan::single(Planned { request, shown_from, base, sent_bytes: self.bytes }))
    }

    /// The filesystem or volume that was sent itself, and no snapshot of it.
    pub fn head(&self) -> Option<&str> {
        self.to_name.strip_suffix(super::begin::HEAD)
    }

    async fn dataset(&self, dsl: &Dsl) -> Result<Dataset> {
        let name = &self.to_name;
        let is_there = match dsl.lookup(self.head().unwrap_or(name)).await {
            Ok(Found::Dataset(dataset)) if dataset.phys.guid == self.to_guid => return Ok(*dataset),
            Ok(_) => true,
            Err(Error::NotFound(_) | Error::Invalid(_)) => false,
            Err(other) => return Err(other),
        };
        if let Some(Found::Dataset(dataset)) = with_guid(dsl, self.to_guid, false).await? {
            return Ok(*dataset);
        }
        let why = match is_there {
            true => format!("'{name}' is no longer the same snapshot used in the initial send"),
            false => format!("'{name}' used in the initial send no longer exists"),
        };
        Err(Error::Invalid(format!("cannot resume send: {why}")))
    }

    async fn ancestor(&self, dsl: &Dsl, guid: Guid, to: &Dataset) -> Result<(Ancestor, String, Base)> {
        let gone = || {
            let guid = guid.get();
            Error::Invalid(format!("cannot resume send: incremental source {guid:#x} no longer exists"))
        };
        match with_guid(dsl, guid, true).await?.ok_or_else(gone)? {
            Found::Dataset(from) => {
                let ancestor = Ancestor::snapshot(dsl, &from, to).await?;
                Ok((ancestor, from.name.clone(), Base::Since(Since::snapshot(&from))))
            }
            Found::Bookmark(mark) => {
                let dir = dsl.find_dir(mark.name.split('#').next().unwrap_or_default()).await?;
                let ancestor = Ancestor::bookmark(dsl, &dir, &mark, to).await?;
                let base = Since::bookmark(&mark.phys).map_or(Base::Unknown, Base::Since);
                Ok((ancestor, mark.name, base))
            }
        }
    }
}

/// The snapshot with this guid, or else a bookmark of one where that may be.
async fn with_guid(dsl: &Dsl, guid: Guid, may_be_bookmark: bool) -> Result<Option<Found>> {
    let mut mark = None;
    for dir in dsl.dirs(dsl.root()).await? {
        let head = dsl.head(&dir).await?;
        let mut snapshots = dsl.snapshots(&head).await?.into_iter();
        if let Some(found) = snapshots.find(|snapshot| snapshot.phys.guid == guid) {
            return Ok(Some(Found::Dataset(Box::new(found))));
        }
        if may_be_bookmark && mark.is_none() {
            mark = dsl.bookmarks(&head).await?.into_iter().find(|mark| mark.phys.guid == guid);
        }
    }
    Ok(mark.map(Found::Bookmark))
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| pairs.map(byte).collect::<Option<Vec<u8>>>())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token of this list.
    fn packed(list: &Nvlist) -> String {
        let bytes = list.encode(ondisk::nvlist::Encoding::Native(ByteOrder::Little)).unwrap();
        let mut compressed = vec![0; bytes.len() + 64];
        let length = codec::compress::compress(CompressType::Gzip6, 0, &bytes, &mut compressed).unwrap();
        let compressed = &compressed[..length];
        let [sum, ..] = fletcher4(compressed, ByteOrder::Little);
        let digits: String = compressed.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("1-{sum:x}-{:x}-{digits}", bytes.len())
    }

    #[test]
    fn a_token_says_what_is_missing() {
        let mut list = Nvlist::new();
        for (name, number) in [("object", 17u64), ("offset", 131_072), ("bytes", 9), ("toguid", 5)] {
            list.push(name, number);
        }
        list.push("toname", "pool/fs@snap");
        list.push("compressok", ondisk::nvlist::NvValue::Boolean);
        let token = Token::parse(&packed(&list)).unwrap();
        assert_eq!((token.object, token.offset, token.bytes), (ObjectId(17), 131_072, 9));
        assert_eq!((token.to_name.as_str(), token.to_guid, token.from_guid), ("pool/fs@snap", Guid(5), None));
        assert_eq!(token.flags, Flags { compressed: true, ..Flags::default() });
        assert_eq!(token.list(), &list);
        list.remove("toname");
        assert_eq!(
            Token::parse(&packed(&list)).unwrap_err().to_string(),
            "cannot resume send: resume token is corrupt"
        );
    }

    #[test]
    fn what_was_changed_is_no_token() {
        for (text, why) in [
            ("", "invalid format"),
            ("1-2-3", "invalid format"),
            ("2-0-0-00", "invalid version 2"),
            ("1-0-8-0g", "payload is not hex-encoded"),
            ("1-1-8-00000000", "incorrect checksum"),
            ("1-0-ffffffffffff-00000000", "decompression failed"),
            ("1-0-10-00000000", "decompression failed"),
        ] {
            let error = Token::parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("cannot resume send: resume token is corrupt ({why})"), "{text}");
        }
    }
}
