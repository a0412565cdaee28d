//! Adding to the pool's history, as part of a group's sync.
//!
//! A record goes to the end of the ring. Where there is no room for it, the oldest records are given up. The
//! first command makes everything up to its own end permanent: the ring begins behind it.

use std::sync::Arc;

use ondisk::dmu::DmuType;
use ondisk::history::{HistoryPhys, HistoryRecord, MAX_RING_BYTES, encode_record, key};
use ondisk::nvlist::{NvValue, Nvlist};
use ondisk::pool_directory::{self, DIRECTORY_OBJECT};
use ondisk::{ByteOrder, ObjectId};

use crate::dmu::zap::edit as zap;
use crate::dmu::{LiveObject, LiveObjset, NewObject};
use crate::error::{Error, Result};
use crate::txg::Tx;

/// Smallest ring.
const MIN_RING_BYTES: u64 = 128 << 10;
/// The object's block size (`SPA_OLD_MAXBLOCKSIZE`).
const BLOCK_BYTES: u32 = 128 << 10;
/// The length before each record.
const LENGTH_BYTES: u64 = 8;

/// A command of a user.
pub fn command(text: &str, seconds: u64, uid: u64, host: &str) -> HistoryRecord {
    let mut nvlist = Nvlist::new();
    nvlist.push(key::COMMAND, NvValue::String(text.into()));
    nvlist.push(key::ZONE, NvValue::String("linux".into()));
    nvlist.push(key::WHO, NvValue::Uint64(uid));
    nvlist.push(key::TIME, NvValue::Uint64(seconds));
    nvlist.push(key::HOST, NvValue::String(host.into()));
    HistoryRecord { nvlist }
}

/// A request of OpenZFS's kernel module, or what stands for one here.
pub fn ioctl(name: &str, input: Nvlist, seconds: u64, uid: u64, host: &str) -> HistoryRecord {
    let mut nvlist = Nvlist::new();
    nvlist.push(key::IOCTL, NvValue::String(name.into()));
    if !input.is_empty() {
        nvlist.push(key::INPUT, NvValue::Nvlist(input));
    }
    nvlist.push(key::ZONE, NvValue::String("linux".into()));
    nvlist.push(key::WHO, NvValue::Uint64(uid));
    nvlist.push(key::TIME, NvValue::Uint64(seconds));
    nvlist.push(key::HOST, NvValue::String(host.into()));
    HistoryRecord { nvlist }
}

/// Something that the pool did itself. `dataset` is its name and object number.
pub fn event(
    name: &str,
    text: &str,
    dataset: Option<(&str, u64)>,
    txg: u64,
    seconds: u64,
    host: &str,
) -> HistoryRecord {
    let mut nvlist = Nvlist::new();
    if let Some((dataset, id)) = dataset {
        nvlist.push(key::DATASET_NAME, NvValue::String(dataset.into()));
        nvlist.push(key::DATASET_ID, NvValue::Uint64(id));
    }
    nvlist.push(key::INTERNAL_TEXT, NvValue::String(text.into()));
    nvlist.push(key::INTERNAL_NAME, NvValue::String(name.into()));
    nvlist.push(key::TXG, NvValue::Uint64(txg));
    nvlist.push(key::TIME, NvValue::Uint64(seconds));
    nvlist.push(key::HOST, NvValue::String(host.into()));
    HistoryRecord { nvlist }
}

/// Adds a record. `pool_bytes` is the space of the normal class less parity, from which a pool without
/// history gets a ring of a suitable size. A record that the ring cannot hold is left out.
pub async fn append(mos: &Arc<LiveObjset>, tx: &Tx, record: &HistoryRecord, pool_bytes: u64) -> Result<()> {
    let object = open_or_create(mos, tx, pool_bytes).await?;
    let corrupt = |error| object.corrupt(error);
    let mut phys = HistoryPhys::parse(&object.bonus(), ByteOrder::Little).map_err(corrupt)?;
    phys.extents().map_err(corrupt)?;
    let bytes = encode_record(record).map_err(Error::format("a history record"))?;
    let length = bytes.len() as u64;
    let ring = phys.phys_max_off - phys.pool_create_len;
    if length >= ring {
        return Ok(());
    }
    while ring - (phys.eof - phys.bof) <= length {
        drop_oldest(&object, &mut phys).await?;
    }
    let at = physical(&phys, phys.eof);
    let before_wrap = length.min(phys.phys_max_off - at) as usize;
    let (first, rest) = bytes.split_at(before_wrap);
    object.write_at(tx, at, first).await?;
    if !rest.is_empty() {
        object.write_at(tx, phys.pool_create_len, rest).await?;
    }
    phys.eof += length;
    if phys.pool_create_len == 0 && record.nvlist.contains(key::COMMAND) {
        phys.pool_create_len = phys.eof;
        phys.bof = phys.eof;
    }
    object.set_bonus(tx, DmuType::SPA_HISTORY_OFFSETS, &phys.encode(ByteOrder::Little));
    Ok(())
}

async fn open_or_create(mos: &Arc<LiveObjset>, tx: &Tx, pool_bytes: u64) -> Result<Arc<LiveObject>> {
    let directory = mos.object(DIRECTORY_OBJECT).await?;
    if let Some(id) = zap::lookup_u64(&directory, pool_directory::HISTORY).await? {
        return mos.object(ObjectId(id)).await;
    }
    let phys_max_off = (pool_bytes / 1000).clamp(MIN_RING_BYTES, MAX_RING_BYTES);
    let phys = HistoryPhys { pool_create_len: 0, phys_max_off, bof: 0, eof: 0, records_lost: 0 };
    let new = NewObject {
        dmu_type: DmuType::SPA_HISTORY,
        block_size: BLOCK_BYTES,
        bonus_type: DmuType::SPA_HISTORY_OFFSETS,
        bonus: phys.encode(ByteOrder::Little),
        slots: 1,
    };
    let object = mos.allocate(tx, new).await?;
    zap::set_u64(&directory, tx, pool_directory::HISTORY, object.id().0).await?;
    Ok(object)
}

/// Offset in the object of a logical offset. The ring is not empty.
fn physical(phys: &HistoryPhys, logical: u64) -> u64 {
    let ring = phys.phys_max_off - phys.pool_create_len;
    (logical - phys.pool_create_len) % ring + phys.pool_create_len
}

/// Gives up the oldest record in the ring.
async fn drop_oldest(object: &Arc<LiveObject>, phys: &mut HistoryPhys) -> Result<()> {
    let at = physical(phys, phys.bof);
    let before_wrap = LENGTH_BYTES.min(phys.phys_max_off - at) as usize;
    let mut length = [0; LENGTH_BYTES as usize];
    let (first, rest) = length.split_at_mut(before_wrap);
    object.read_at(at, first).await?;
    object.read_at(phys.pool_create_len, rest).await?;
    let size = u64::from_le_bytes(length).checked_add(LENGTH_BYTES);
    let size = size.filter(|size| *size <= phys.eof - phys.bof);
    phys.bof += size.ok_or_else(|| object.corrupt("a record of the history longer than the history"))?;
    phys.records_lost += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use device::block_on;
    use ondisk::history;
    use ondisk::objset::ObjsetType;
    use ondisk::{ObjsetId, Txg};

    use super::*;
    use crate::dmu::forge::Forge;

    async fn all(object: &Arc<LiveObject>) -> Vec<HistoryRecord> {
        let phys = HistoryPhys::parse(&object.bonus(), ByteOrder::Little).unwrap();
        let mut bytes = Vec::new();
        for extent in phys.extents().unwrap() {
            let mut part = vec![0; (extent.end - extent.start) as usize];
            object.read_at(extent.start, &mut part).await.unwrap();
            bytes.append(&mut part);
        }
        history::records(&bytes).collect::<ondisk::Result<_>>().unwrap()
    }

    #[test]
    fn the_first_command_stays_and_the_newest_records_follow() {
        let Some(forge) = Forge::new(ByteOrder::Little) else { return };
        let tx = Tx::syncing(Txg(4));
        let mos = LiveObjset::create(
            &forge.pool,
            ObjsetId(0),
            ObjsetType::Meta,
            crate::dmu::live::tests::policy(),
            &tx,
        );
        block_on(async {
            let new = zap::NewZap::of(DmuType::OBJECT_DIRECTORY);
            let directory = mos.claim(&tx, DIRECTORY_OBJECT, new.object()).await.unwrap();
            zap::initialize(&directory, &tx, new).await.unwrap();
            let mut written = vec![event("create", "version 5000", None, 4, 1, "host")];
            written.push(command("zpool create", 1, 0, "host"));
            for index in 0..3000 {
                let text = format!("zfs set a={index} {}", "x".repeat(index % 150));
                written.push(command(&text, index as u64, 0, "host"));
            }
            for record in &written {
                append(&mos, &tx, record, 1 << 20).await.unwrap();
            }
            let too_large = command(&"x".repeat(1 << 18), 1, 0, "host");
            append(&mos, &tx, &too_large, 1 << 20).await.unwrap();
            let id = zap::lookup_u64(&directory, pool_directory::HISTORY).await.unwrap().unwrap();
            let object = mos.object(ObjectId(id)).await.unwrap();
            let found = all(&object).await;
            let phys = HistoryPhys::parse(&object.bonus(), ByteOrder::Little).unwrap();
            assert_eq!(found[..2], written[..2]);
            assert_eq!(found[2..], written[written.len() - (found.len() - 2)..]);
            assert_eq!(phys.records_lost as usize + found.len(), written.len());
            assert!(found.len() > 300 && object.end() <= 128 << 10);
        });
    }
}
