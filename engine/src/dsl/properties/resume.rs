//! The token with which an interrupted receive can be resumed.
//!
//! What a receive into a dataset has got so far is in fields of the dataset's object: its own for a new
//! dataset, those of its child `%recv` when the dataset existed. The token packs them: an nvlist, compressed
//! with zlib, in hexadecimal, behind a version, the first word of the fletcher4 checksum of the compressed
//! bytes, and the length before compression. Source of the facts: OpenZFS 2.3 `dsl_dataset.c`.

use std::fmt::Write as _;

use codec::checksum::fletcher4;
use ondisk::ByteOrder;
use ondisk::blkptr::CompressType;
use ondisk::dsl_dataset::field;
use ondisk::features::Feature;
use ondisk::nvlist::{Encoding, NvValue, Nvlist};

use crate::dsl::edit::receive::RECEIVE_CHILD;
use crate::dsl::{Dataset, Dsl, ValueExt};
use crate::error::{Error, Result};

/// Version of the token's form.
const TOKEN_VERSION: u32 = 1;

impl Dsl {
    /// The token of an interrupted receive into `head`, where there is one.
    pub(super) async fn resume_token(&self, head: &Dataset) -> Result<Option<String>> {
        if let Some(token) = self.own_resume_token(head).await? {
            return Ok(Some(token));
        }
        match self.child(&head.dir, RECEIVE_CHILD).await? {
            Some(child) => self.own_resume_token(&self.head(&child).await?).await,
            None => Ok(None),
        }
    }

    async fn own_resume_token(&self, dataset: &Dataset) -> Result<Option<String>> {
        if !dataset.zapified {
            return Ok(None);
        }
        let value = async |field: &str| self.mos().value(dataset.object, field).await;
        if value(field::RESUME_TOGUID).await?.is_none() {
            return Ok(None);
        }
        let mut list = Nvlist::new();
        for (field, name) in [
            (field::RESUME_FROMGUID, "fromguid"),
            (field::RESUME_OBJECT, "object"),
            (field::RESUME_OFFSET, "offset"),
            (field::RESUME_BYTES, "bytes"),
            (field::RESUME_TOGUID, "toguid"),
        ] {
            if let Some(number) = value(field).await?.and_then(|value| value.first()) {
                list.push(name, number);
            }
        }
        if let Some(name) = value(field::RESUME_TONAME).await?.and_then(|value| value.text()) {
            list.push("toname", name.as_str());
        }
        for (field, name) in [
            (field::RESUME_LARGEBLOCK, "largeblockok"),
            (field::RESUME_EMBEDOK, "embedok"),
            (field::RESUME_COMPRESSOK, "compressok"),
            (field::RESUME_RAWOK, "rawok"),
        ] {
            if value(field).await?.is_some() {
                list.push(name, NvValue::Boolean);
            }
        }
        for (field, name) in [
            (Feature::RedactedDatasets.guid(), "redact_snaps"),
            (field::RESUME_REDACT_BOOKMARK_SNAPS, "book_redact_snaps"),
        ] {
            if let Some(guids) = value(field).await?.map(|value| value.to_u64s()) {
                list.push(name, NvValue::Uint64Array(guids));
            }
        }
        pack(&list).map(Some).map_err(|detail| Error::corrupt(&dataset.name, detail))
    }
}

/// The token for what a receive has got.
fn pack(list: &Nvlist) -> std::result::Result<String, String> {
    let packed = list.encode(Encoding::Native(ByteOrder::Little)).map_err(|error| error.to_string())?;
    let mut compressed = vec![0; packed.len() + 64];
    let length = codec::compress::compress(CompressType::Gzip6, 0, &packed, &mut compressed);
    let compressed =
        length.and_then(|length| compressed.get(..length)).ok_or("resume state does not compress")?;
    let [checksum, ..] = fletcher4(compressed, ByteOrder::Little);
    let mut token = format!("{TOKEN_VERSION}-{checksum:x}-{:x}-", packed.len());
    for byte in compressed {
        let _ = write!(token, "{byte:02x}");
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_unpacks_to_what_it_was_made_from() {
        let mut list = Nvlist::new();
        list.push("object", 17u64);
        list.push("toname", "pool/fs@snap");
        list.push("rawok", NvValue::Boolean);
        let token = pack(&list).unwrap();
        let parts: Vec<&str> = token.split('-').collect();
        assert_eq!(parts[0], "1");
        let bytes: Vec<u8> = (0..parts[3].len() / 2)
            .map(|index| u8::from_str_radix(&parts[3][2 * index..2 * index + 2], 16).unwrap())
            .collect();
        let [checksum, ..] = fletcher4(&bytes, ByteOrder::Little);
        assert_eq!(parts[1], format!("{checksum:x}"));
        let mut unpacked = vec![0; usize::from_str_radix(parts[2], 16).unwrap()];
        codec::compress::decompress(CompressType::Gzip6, &bytes, &mut unpacked).unwrap();
        assert_eq!(Nvlist::parse(&unpacked).unwrap(), list);
    }
}
