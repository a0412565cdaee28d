//! Attributes, looking up, permissions, listing, figures.

use ondisk::zpl::FileType;

use super::{MOST_BYTES, Outcome};
use crate::files::{Attributes, Entry, FileId, Files, Named, Share, Shares};
use crate::nfs::call::{Context, Opened, Place};
use crate::nfs::handle;
use crate::nfs::permission::{EXECUTE, READ, WRITE};
use crate::nfs::rules::Rules;
use crate::nfs::status::Status;
use crate::nfs::xdr::{Garbage, Reader, Writer};

/// Rights that a client asks for.
mod access {
    pub const READ: u32 = 1;
    pub const LOOKUP: u32 = 1 << 1;
    pub const MODIFY: u32 = 1 << 2;
    pub const EXTEND: u32 = 1 << 3;
    pub const DELETE: u32 = 1 << 4;
    pub const EXECUTE: u32 = 1 << 5;
}

/// Most entries of one answer.
const MOST_ENTRIES: usize = 4096;
/// The most bytes of one answer about a directory.
const MOST_LIST_BYTES: u32 = 1 << 20;
/// The bytes of an entry beside its name, and of what is told of it with attributes.
const ENTRY_BYTES: usize = 4 + 8 + 4 + 8;
const TOLD_BYTES: usize = 4 + 84 + 4 + 4 + handle::BYTES;

/// GETATTR.
pub fn attributes<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let handle = handle::read(a)?;
    let mut act = || {
        let (opened, file) = c.open(handle)?;
        let found = opened.stat(file)?;
        opened.write_attributes(w, &found);
        Ok(())
    };
    Ok(act())
}

/// LOOKUP.
pub fn lookup<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let place = Place::read(a)?;
    let mut act = || {
        let (opened, dir) = c.open(place.dir)?;
        let attributes = opened.directory(dir)?;
        opened.require(&attributes, EXECUTE)?;
        let name = place.checked()?;
        let found = opened.lookup(Named { dir, name })?.ok_or(Status::NOENT)?;
        opened.write_handle(w, found.id);
        w.flag(true);
        opened.write_attributes(w, &found);
        opened.write_after(w, dir);
        Ok(())
    };
    Ok(act())
}

/// ACCESS.
pub fn access<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let (handle, wanted) = (handle::read(a)?, a.number()?);
    let mut act = || {
        let (opened, file) = c.open(handle)?;
        let found = opened.stat(file)?;
        let is_directory = found.kind == FileType::Directory;
        let may_change = opened.require_changeable(file).is_ok();
        let mut granted = 0;
        for (right, needs) in [
            (access::READ, READ),
            (access::LOOKUP, if is_directory { EXECUTE } else { 0 }),
            (access::MODIFY | access::EXTEND, if is_directory { WRITE | EXECUTE } else { WRITE }),
            (access::DELETE, if is_directory { WRITE | EXECUTE } else { 0 }),
            (access::EXECUTE, if is_directory { 0 } else { EXECUTE }),
        ] {
            let is_change = needs & WRITE != 0;
            let asked = wanted & right;
            if asked != 0 && needs != 0 && (may_change || !is_change) && opened.may(&found, needs)? {
                granted |= asked;
            }
        }
        w.flag(true);
        opened.write_attributes(w, &found);
        w.number(granted);
        Ok(())
    };
    Ok(act())
}

/// A part of a directory that is asked for.
struct Wanted {
    handle: Option<handle::Handle>,
    cookie: u64,
    /// The longest answer.
    bytes: usize,
    /// The most bytes of names and numbers in it.
    name_bytes: usize,
    with_attributes: bool,
}

impl Wanted {
    fn read(a: &mut Reader<'_>, with_attributes: bool) -> Result<Self, Garbage> {
        let (handle, cookie) = (handle::read(a)?, a.long()?);
        // The verifier: positions stay what they are.
        a.long()?;
        let names = a.number()?.min(MOST_LIST_BYTES) as usize;
        let bytes = if with_attributes { a.number()?.min(MOST_LIST_BYTES) as usize } else { names };
        let name_bytes = if with_attributes { names.max(ENTRY_BYTES * 16) } else { bytes };
        Ok(Self { handle, cookie, bytes, name_bytes, with_attributes })
    }

    fn limit(&self) -> usize {
        let each = ENTRY_BYTES + 4 + if self.with_attributes { TOLD_BYTES } else { 0 };
        (self.bytes / each).clamp(1, MOST_ENTRIES)
    }
}

/// READDIR.
pub fn list<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let wanted = Wanted::read(a, false)?;
    Ok(listed(c, &wanted, w))
}

/// READDIRPLUS.
pub fn list_with_attributes<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let wanted = Wanted::read(a, true)?;
    Ok(listed(c, &wanted, w))
}

fn listed<S: Shares>(c: &Context<'_, S>, wanted: &Wanted, w: &mut Writer) -> Result<(), Status>
where
    S::Share: Share<Rules = Rules>,
{
    let (opened, dir) = c.open(wanted.handle)?;
    if wanted.with_attributes && !opened.grant.lists_attributes {
        return Err(Status::NOTSUPP);
    }
    let attributes = opened.directory(dir)?;
    opened.require(&attributes, READ)?;
    // What is in a directory may be looked at by those only who may look names up.
    let is_open = wanted.with_attributes && opened.may(&attributes, EXECUTE)?;
    w.flag(true);
    opened.write_attributes(w, &attributes);
    w.long(0);
    // Behind the entries: that there is none more, and whether they are all.
    let most = wanted.bytes.saturating_sub(8 + 88 + 4);
    let (begin, mut name_bytes, mut is_any) = (w.len(), 0, false);
    let part = opened.files.entries(dir, wanted.cookie, wanted.limit());
    let part = part.map_err(|error| opened.told("list", dir, &error))?;
    let mut is_end = part.is_end;
    for entry in &part.entries {
        let before = w.len();
        w.flag(true);
        w.long(entry.number);
        w.opaque(&entry.name);
        w.long(entry.cookie);
        name_bytes += w.len() - before;
        if wanted.with_attributes {
            write_told(&opened, w, (dir, entry), is_open);
        }
        if w.len() - begin > most || (is_any && name_bytes > wanted.name_bytes) {
            w.truncate(before);
            is_end = false;
            break;
        }
        is_any = true;
    }
    if !is_any && !is_end {
        return Err(Status::TOOSMALL);
    }
    w.flag(false);
    w.flag(is_end);
    Ok(())
}

/// What is told of an entry beside its name.
fn write_told<F: Files>(opened: &Opened<F>, w: &mut Writer, of: (FileId, &Entry), is_open: bool) {
    let (dir, entry) = of;
    let found: Option<Attributes> = if is_open { opened.files.attributes_of(dir, entry) } else { None };
    w.flag(found.is_some());
    if let Some(found) = &found {
        opened.write_attributes(w, found);
    }
    w.flag(found.is_some());
    if let Some(found) = found {
        opened.write_handle(w, found.id);
    }
}

/// FSSTAT.
pub fn space<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let handle = handle::read(a)?;
    let mut act = || {
        let (opened, file) = c.open(handle)?;
        let attributes = opened.stat(file)?;
        let space =
            opened.files.space(file).map_err(|error| opened.told("read the space of", file, &error))?;
        w.flag(true);
        opened.write_attributes(w, &attributes);
        w.long(space.blocks.saturating_mul(space.block_size));
        w.long(space.free_blocks.saturating_mul(space.block_size));
        w.long(space.free_blocks.saturating_mul(space.block_size));
        w.long(space.inodes);
        w.long(space.free_inodes);
        w.long(space.free_inodes);
        // It may be other in a moment.
        w.number(0);
        Ok(())
    };
    Ok(act())
}

/// FSINFO.
pub fn limits<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    /// Links, symbolic links; all files have the same limits, and times can be set.
    const PROPERTIES: u32 = 1 | 2 | 8 | 16;
    let handle = handle::read(a)?;
    let mut act = || {
        let (opened, file) = c.open(handle)?;
        let attributes = opened.stat(file)?;
        w.flag(true);
        opened.write_attributes(w, &attributes);
        for field in [MOST_BYTES, MOST_BYTES, 4096, MOST_BYTES, MOST_BYTES, 4096, 64 << 10] {
            w.number(field);
        }
        w.long(i64::MAX as u64);
        // Times are exact to the nanosecond.
        w.number(0);
        w.number(1);
        w.number(PROPERTIES);
        Ok(())
    };
    Ok(act())
}

/// PATHCONF.
pub fn names<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let handle = handle::read(a)?;
    let mut act = || {
        let (opened, file) = c.open(handle)?;
        let attributes = opened.stat(file)?;
        let space =
            opened.files.space(file).map_err(|error| opened.told("read the space of", file, &error))?;
        w.flag(true);
        opened.write_attributes(w, &attributes);
        w.number(u32::MAX);
        w.number(space.max_name);
        // Names that are too long are refused, files are not given away, and case is kept.
        w.flag(true);
        w.flag(true);
        w.flag(!opened.files.is_case_sensitive());
        w.flag(true);
        Ok(())
    };
    Ok(act())
}
