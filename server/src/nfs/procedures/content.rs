//! Reading, writing, making stable.

use engine::zpl::live::WriteOptions;
use ondisk::zpl::FileType;

use super::{MOST_BYTES, Outcome};
use crate::files::{Files, Share, Shares};
use crate::nfs::call::Context;
use crate::nfs::handle;
use crate::nfs::permission::{READ, WRITE};
use crate::nfs::rules::Rules;
use crate::nfs::status::Status;
use crate::nfs::xdr::{Garbage, Reader, Writer};

/// A write that need not be stable when it is answered.
const UNSTABLE: u32 = 0;
/// One that is to be with all that belongs to it.
const FILE_SYNC: u32 = 2;
/// Set-user-id and set-group-id.
const PRIVILEGES: u32 = 0o6000;

/// READLINK.
pub fn read_link<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let handle = handle::read(a)?;
    let mut act = || {
        let (opened, file) = c.open(handle)?;
        let attributes = opened.stat(file)?;
        if attributes.kind != FileType::Symlink {
            return Err(Status::INVAL);
        }
        let target = opened.files.read_link(file).map_err(|error| opened.told("read", file, &error))?;
        w.flag(true);
        opened.write_attributes(w, &attributes);
        w.opaque(&target);
        Ok(())
    };
    Ok(act())
}

/// READ.
pub fn read<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let (handle, offset, count) = (handle::read(a)?, a.long()?, a.number()?);
    let mut act = || {
        let (opened, file) = c.open(handle)?;
        let attributes = opened.stat(file)?;
        opened.require_content(&attributes, READ)?;
        let count = u64::from(count.min(MOST_BYTES)).min(attributes.size.saturating_sub(offset)) as usize;
        w.flag(true);
        opened.write_attributes(w, &attributes);
        let at = w.len();
        w.number(0);
        w.flag(false);
        let read = w.filled(count, |into| opened.files.read(file, offset, into));
        let read = read.map_err(|error| opened.told("read", file, &error))? as u64;
        w.set(at, read as u32);
        w.set(at + 4, u32::from(offset.saturating_add(read) >= attributes.size));
        c.server.clients.note(c.peer.ip(), |client| client.read_bytes += read);
        c.server.clients.counted.read(read);
        Ok(())
    };
    Ok(act())
}

/// WRITE.
pub fn write<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let (handle, offset, count, stability) = (handle::read(a)?, a.long()?, a.number()?, a.number()?);
    let data = a.opaque(MOST_BYTES as usize)?;
    let data = data.get(..count as usize).ok_or(Garbage)?;
    if stability > FILE_SYNC {
        return Err(Garbage);
    }
    let mut act = || {
        let (opened, file) = c.open(handle)?;
        let attributes = opened.stat(file)?;
        opened.require_content(&attributes, WRITE)?;
        opened.require_changeable(file)?;
        let by = &opened.by;
        let told = |error| opened.told("write to", file, &error);
        opened.files.require_writable(file, by.is_root()).map_err(told)?;
        let loses = !by.is_root() && attributes.mode & PRIVILEGES != 0;
        let options = WriteOptions {
            kill_privileges: loses,
            kill_setgid: loses && !by.is_of(attributes.gid),
            ..WriteOptions::default()
        };
        if !data.is_empty() {
            opened.files.write(file, offset, data, &options).map_err(told)?;
        }
        let verifier = opened.files.verifier();
        if stability != UNSTABLE {
            opened.files.make_stable(file).map_err(told)?;
        }
        opened.write_change(w, file);
        w.number(count);
        w.number(if stability == UNSTABLE { UNSTABLE } else { FILE_SYNC });
        w.long(verifier);
        c.server.clients.note(c.peer.ip(), |client| client.written_bytes += u64::from(count));
        c.server.clients.counted.written(u64::from(count));
        Ok(())
    };
    Ok(act())
}

/// COMMIT.
pub fn commit<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let (handle, _, _) = (handle::read(a)?, a.long()?, a.number()?);
    let mut act = || {
        let (opened, file) = c.open(handle)?;
        let attributes = opened.stat(file)?;
        opened.require_content(&attributes, WRITE)?;
        opened.files.make_stable(file).map_err(|error| opened.told("make stable", file, &error))?;
        opened.write_change(w, file);
        w.long(opened.files.verifier());
        Ok(())
    };
    Ok(act())
}
