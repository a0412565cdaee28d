//! How a stream begins: its features, and what the receiver must know before the first object.

use codec::crypt::DatasetKey;
use ondisk::crypto_key::key;
use ondisk::dsl_dataset::{self, field};
use ondisk::features::Feature;
use ondisk::nvlist::{Encoding, NvValue, Nvlist};
use ondisk::objset::ObjsetType;
use ondisk::send::{Begin, HeaderType, begin_flag, begin_key, feature};
use ondisk::{ByteOrder, Guid, ObjectId};
use std::sync::Arc;

use super::{Ancestor, Flags, Request};
use crate::dmu::Objset;
use crate::dsl::pool_features::Features;
use crate::dsl::{Dataset, Dsl, ValueExt, zap_value};
use crate::error::{Error, Result};

/// The first version of filesystems with system attributes (`ZPL_VERSION_SA`).
const VERSION_WITH_SA: u64 = 5;
/// The object that names the others of a filesystem.
const MASTER_NODE: ObjectId = ObjectId(1);
/// The only version of wrapped keys that is sent (`ZIO_CRYPT_KEY_CURRENT_VERSION`).
const KEY_VERSION: u64 = 1;
/// What follows the name of a stream of a filesystem or volume itself.
pub(super) const HEAD: &str = "@--head--";

/// What is sent, opened.
pub(super) struct Opened {
    pub objset: Arc<Objset>,
    /// The key with which blocks are decrypted; none where they are sent as they are.
    pub key: Option<Arc<DatasetKey>>,
    pub is_encrypted: bool,
    pub begin: Begin,
    /// What follows the record.
    pub payload: Vec<u8>,
}

impl Opened {
    pub(super) async fn open(dsl: &Dsl, request: &Request) -> Result<Opened> {
        let dataset = &request.dataset;
        let is_encrypted = dsl.crypto_object(&dataset.dir).await?.is_some();
        let is_raw = request.flags.raw && is_encrypted;
        refuse_redacted(dsl, request).await?;
        let key = dsl.pool().keystore().get(dataset.objset_id());
        if is_encrypted && !is_raw && key.is_none() {
            return Err(Error::KeyNotLoaded { at: crate::Bookmark::objset_root(dataset.object.0) });
        }
        let objset = match is_raw {
            true => Objset::open_without_key(dsl.pool(), dataset.objset_id(), &dataset.phys.bp).await?,
            false => Objset::open(dsl.pool(), dataset.objset_id(), &dataset.phys.bp).await?,
        };
        let features = features(dsl, request, &objset, is_encrypted).await?;
        let payload = list(dsl, request, &objset, is_raw).await?;
        let begin = Begin {
            header: HeaderType::Plain,
            features,
            creation_time: dataset.phys.creation_time,
            objset_type: objset.objset_type() as u32,
            flags: flags(request),
            to_guid: dataset.phys.guid,
            from_guid: request.from.as_ref().map_or(Guid(0), |from| from.guid),
            to_name: match dataset.is_snapshot() {
                true => dataset.name.clone().into_bytes(),
                false => format!("{}{HEAD}", dataset.name).into_bytes(),
            },
            payload_bytes: u32::try_from(payload.len())
                .map_err(|_| Error::corrupt(&dataset.name, "its key is too large"))?,
        };
        let key = key.filter(|_| !is_raw);
        Ok(Opened { objset, key, is_encrypted, begin, payload })
    }
}

/// Redacted datasets lack blocks, and receivers must be told which.
async fn refuse_redacted(dsl: &Dsl, request: &Request) -> Result<()> {
    let is_redacted = dsl.has_feature(&request.dataset, Feature::RedactedDatasets).await?;
    if is_redacted {
        let name = &request.dataset.name;
        return Err(Error::Unsupported(format!("'{name}' is redacted, and such datasets are not sent yet")));
    }
    if request.from.as_ref().is_some_and(|from| from.is_redacted) {
        let why = "the incremental source is redacted, and streams from such a source are not made yet";
        return Err(Error::Unsupported(why.to_owned()));
    }
    Ok(())
}

fn flags(request: &Request) -> u32 {
    let mut flags = begin_flag::FREERECORDS | begin_flag::SPILL_BLOCK;
    if request.from.as_ref().is_some_and(|from| from.is_other_dataset) {
        flags |= begin_flag::CLONE;
    }
    if request.dataset.phys.has(dsl_dataset::FLAG_CI_DATASET) {
        flags |= begin_flag::CI_DATA;
    }
    flags
}

async fn features(dsl: &Dsl, request: &Request, objset: &Arc<Objset>, is_encrypted: bool) -> Result<u64> {
    let Flags { large_blocks, embedded, compressed, raw } = request.flags;
    let dataset = &request.dataset;
    let pool = Features::of(dsl).await?;
    let mut features = 0;
    let mut set = |feature: u64, is_set: bool| features |= if is_set { feature } else { 0 };
    let has_sa = objset.objset_type() == ObjsetType::Zfs && version(objset).await? >= VERSION_WITH_SA;
    set(feature::SA_SPILL, has_sa);
    let has_large_blocks = (raw || large_blocks) && dsl.has_feature(dataset, Feature::LargeBlocks).await?;
    set(feature::LARGE_BLOCKS, has_large_blocks);
    let has_embedded = (embedded || raw) && !is_encrypted && pool.is_active(Feature::EmbeddedData);
    set(feature::EMBED_DATA, has_embedded);
    let is_compressed = compressed || raw;
    set(feature::COMPRESSED, is_compressed);
    set(feature::RAW, raw && is_encrypted);
    set(feature::LZ4, (has_embedded || is_compressed) && pool.is_active(Feature::Lz4Compress));
    set(feature::ZSTD, is_compressed && dsl.has_feature(dataset, Feature::ZstdCompress).await?);
    set(feature::RESUMING, request.resume.is_some());
    set(feature::LARGE_DNODE, dsl.has_feature(dataset, Feature::LargeDnode).await?);
    set(feature::LONGNAME, dsl.has_feature(dataset, Feature::Longname).await?);
    if dsl.has_feature(dataset, Feature::LargeMicrozap).await? {
        if !has_large_blocks {
            return Err(Error::Invalid(
                "source snapshot contains large microzaps, need -L (--large-block) or -w (--raw) to \
                 generate stream"
                    .to_owned(),
            ));
        }
        set(feature::LARGE_MICROZAP, true);
    }
    Ok(features)
}

/// The version of a filesystem.
async fn version(objset: &Arc<Objset>) -> Result<u64> {
    let master = objset.object(MASTER_NODE).await?;
    let version = zap_value(&master, "VERSION").await?.and_then(|value| value.first());
    version.ok_or_else(|| master.corrupt("says no version"))
}

/// The list that follows `BEGIN`, packed; empty where there is nothing to say.
async fn list(dsl: &Dsl, request: &Request, objset: &Arc<Objset>, is_raw: bool) -> Result<Vec<u8>> {
    let mut list = Nvlist::new();
    if let Some((object, offset)) = request.resume {
        list.push(begin_key::RESUME_OBJECT, object.0);
        list.push(begin_key::RESUME_OFFSET, offset);
    }
    if is_raw {
        list.push(begin_key::CRYPT_KEYDATA, key_data(dsl, request, objset).await?);
    }
    if list.is_empty() {
        return Ok(Vec::new());
    }
    // As OpenZFS up to 2.3 does it. Only machines of the same byte order read that form, so that others get
    // the form of later versions, padded for receivers that count in words.
    let native = objset.root().byte_order() == ByteOrder::Little;
    let encoding = if native { Encoding::Native(ByteOrder::Little) } else { Encoding::Xdr };
    let mut packed = list.encode(encoding).map_err(Error::format("send stream"))?;
    if !native {
        packed.resize(packed.len().next_multiple_of(8), 0);
    }
    Ok(packed)
}

/// The wrapped keys of a raw stream, and what the receiver's dnode of all dnodes must be for its blocks to be
/// the same.
async fn key_data(dsl: &Dsl, request: &Request, objset: &Arc<Objset>) -> Result<Nvlist> {
    let dataset = &request.dataset;
    let own = dsl.wrapped_key(&dataset.dir).await?;
    if own.version != KEY_VERSION {
        let name = &dataset.name;
        let why = format!("'{name}' has keys of version {}, which no receiver takes", own.version);
        return Err(Error::Unsupported(why));
    }
    let root = dsl.encryption_root(&dataset.dir).await?;
    let root = root.ok_or_else(|| Error::corrupt(&dataset.name, "encrypted without a root"))?;
    // How a passphrase becomes a key counts at the root alone.
    let root = dsl.wrapped_key(&root).await?;
    let to_ivset = dsl.dataset_field(dataset, field::IVSET_GUID).await?;
    let meta = &objset.phys().meta_dnode;
    let bytes = |bytes: &[u8]| NvValue::Uint8Array(bytes.to_vec());
    let mut list = Nvlist::new();
    list.push(key::SUITE, own.suite);
    list.push(key::GUID, own.guid.get());
    list.push(key::VERSION, own.version);
    list.push(key::MASTER_KEY, bytes(&own.master_key));
    list.push(key::HMAC_KEY, bytes(&own.hmac_key));
    list.push(key::IV, bytes(&own.iv));
    list.push(key::MAC, bytes(&own.mac));
    list.push("portable_mac", bytes(&objset.phys().portable_mac));
    list.push(key::KEYFORMAT, root.keyformat.raw());
    list.push(key::PBKDF2_ITERS, root.pbkdf2_iters);
    list.push(key::PBKDF2_SALT, root.pbkdf2_salt);
    list.push("mdn_checksum", u64::from(meta.checksum.raw()));
    list.push("mdn_compress", u64::from(meta.compress.raw()));
    list.push("mdn_nlevels", u64::from(meta.levels));
    list.push("mdn_blksz", meta.data_block_size());
    list.push("mdn_indblkshift", u64::from(meta.indirect_block_shift));
    list.push("mdn_nblkptr", meta.blkptrs.len() as u64);
    list.push("mdn_maxblkid", meta.max_block_id.0);
    list.push("to_ivset_guid", to_ivset.unwrap_or(0));
    list.push("from_ivset_guid", request.from.as_ref().map_or(0, |from| from.ivset_guid.get()));
    Ok(list)
}

impl Ancestor {
    /// A snapshot from which a stream of `to` is incremental.
    ///
    /// # Errors
    /// It is no earlier snapshot of the same dataset, or of what that is a clone of.
    pub async fn snapshot(dsl: &Dsl, from: &Dataset, to: &Dataset) -> Result<Ancestor> {
        if !dsl.is_earlier_snapshot(from, to).await? {
            return Err(Error::Invalid(super::NOT_EARLIER.to_owned()));
        }
        let ivset_guid = dsl.dataset_field(from, field::IVSET_GUID).await?;
        Ok(Ancestor {
            guid: from.phys.guid,
            txg: from.phys.creation_txg,
            ivset_guid: Guid(ivset_guid.unwrap_or(0)),
            is_other_dataset: from.dir.object != to.dir.object,
            is_redacted: dsl.has_feature(from, Feature::RedactedDatasets).await?,
        })
    }

    /// The same with a bookmark of the directory `dir`.
    ///
    /// # Errors
    /// As those of [`Ancestor::snapshot`].
    pub async fn bookmark(
        dsl: &Dsl,
        dir: &crate::dsl::Dir,
        mark: &crate::dsl::DatasetBookmark,
        to: &Dataset,
    ) -> Result<Ancestor> {
        if !dsl.is_earlier_place(dir, mark.phys.creation_txg, to).await? {
            return Err(Error::Invalid(super::NOT_EARLIER.to_owned()));
        }
        Ok(Ancestor {
            guid: mark.phys.guid,
            txg: mark.phys.creation_txg,
            ivset_guid: mark.phys.ivset_guid,
            is_other_dataset: dir.object != to.dir.object,
            is_redacted: !mark.phys.redaction_list.is_none(),
        })
    }
}
