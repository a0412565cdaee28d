//! Creating, removing, moving, linking, setting attributes.

use engine::Error;
use engine::zpl::Time;
use engine::zpl::live::{NewKind, NewNode, SetAttributes};
use ondisk::zpl::FileType;

use super::Outcome;
use crate::files::{Attributes, FileId, Files, Named, Share, Shares};
use crate::nfs::call::{Context, Opened, Place, Wanted, When, time};
use crate::nfs::handle;
use crate::nfs::permission::{WRITE, may_take};
use crate::nfs::rpc::Credentials;
use crate::nfs::rules::Rules;
use crate::nfs::status::Status;
use crate::nfs::xdr::{Garbage, Reader, Writer};

/// Set-group-id, and with it the right that it is for.
const SETGID: u32 = 0o2000;
/// The longest target of a symbolic link.
const MOST_TARGET_BYTES: usize = 4096;
/// The largest numbers of devices.
const MOST_MAJOR: u32 = 0xfff;
const MOST_MINOR: u32 = 0xf_ffff;
/// The bits of a minor number.
const MINOR_BITS: u32 = 20;

/// SETATTR.
pub fn set_attributes<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let (handle, wanted) = (handle::read(a)?, Wanted::read(a)?);
    let guard = if a.flag()? { Some(time(a)?) } else { None };
    let mut act = || {
        let (opened, file) = c.open(handle)?;
        let before = opened.stat(file)?;
        opened.require_changeable(file)?;
        let is_changed = |guard: Time| {
            guard.seconds != before.ctime.seconds || guard.nanoseconds != before.ctime.nanoseconds
        };
        if guard.is_some_and(is_changed) {
            return Err(Status::NOT_SYNC);
        }
        set(&opened, &before, &wanted)?;
        opened.settle(file)?;
        opened.write_change(w, file);
        Ok(())
    };
    Ok(act())
}

/// Sets attributes of a file for the user of a call, as far as they may be.
fn set<F: Files>(opened: &Opened<F>, before: &Attributes, wanted: &Wanted) -> Result<(), Status> {
    if *wanted == Wanted::default() {
        return Ok(());
    }
    let set = allowed(&opened.by, before, wanted, || match before.kind {
        FileType::Directory => opened.may(before, WRITE),
        _ => opened.require_content(before, WRITE).map(|()| true),
    })?;
    let told = |error| opened.told("change the attributes of", before.id, &error);
    if wanted.size.is_some() {
        opened.require_content(before, WRITE)?;
        opened.files.require_writable(before.id, opened.by.is_root()).map_err(told)?;
    }
    opened.files.set(before.id, &set).map_err(told)
}

/// What is set of what is wanted; `may_write` says whether the user may write the file.
fn allowed(
    by: &Credentials,
    before: &Attributes,
    wanted: &Wanted,
    may_write: impl Fn() -> Result<bool, Status>,
) -> Result<SetAttributes, Status> {
    let is_owner = by.is_root() || by.uid == before.uid;
    let must_own = |is_wanted: bool| if is_owner || !is_wanted { Ok(()) } else { Err(Status::PERM) };
    must_own(wanted.mode.is_some())?;
    let is_given = wanted.uid.is_some_and(|uid| uid != before.uid);
    if is_given && !by.is_root() {
        return Err(Status::PERM);
    }
    let new_group = wanted.gid.filter(|gid| *gid != before.gid);
    must_own(new_group.is_some())?;
    if new_group.is_some_and(|gid| !by.is_root() && !by.is_of(gid)) {
        return Err(Status::PERM);
    }
    let is_at = |when: Option<When>| matches!(when, Some(When::At(_)));
    must_own(is_at(wanted.atime) || is_at(wanted.mtime))?;
    let touches = wanted.atime.is_some() || wanted.mtime.is_some();
    if touches && !is_owner && !may_write()? {
        return Err(Status::ACCES);
    }
    let given = |when: When| match when {
        When::At(time) => time,
        When::Now => Time::now(),
    };
    let is_strange = !by.is_root() && !by.is_of(wanted.gid.unwrap_or(before.gid));
    let mode = wanted.mode.map(|mode| if is_strange { mode & !SETGID } else { mode });
    let changes_owner = wanted.uid.is_some() || wanted.gid.is_some();
    let loses = before.kind != FileType::Directory
        && mode.is_none()
        && (changes_owner || (wanted.size.is_some() && !by.is_root()));
    Ok(SetAttributes {
        mode,
        uid: wanted.uid,
        gid: wanted.gid,
        size: wanted.size,
        atime: wanted.atime.map(given),
        mtime: wanted.mtime.map(given),
        touched: (wanted.atime, wanted.mtime) == (Some(When::Now), Some(When::Now)),
        kill_privileges: loses,
        kill_setgid: loses && is_strange,
        ..SetAttributes::default()
    })
}

/// What a new file is.
#[derive(Clone, Copy)]
struct New<'a> {
    kind: NewKind<'a>,
    wanted: Wanted,
}

/// Creates a file in a directory that the user may change, with the attributes that are wanted.
fn created<F: Files>(
    opened: &Opened<F>,
    dir: &Attributes,
    name: &[u8],
    new: New<'_>,
) -> Result<Attributes, Error> {
    let by = &opened.by;
    // A directory with set-group-id passes its group on.
    let gid = if dir.mode & SETGID != 0 { dir.gid } else { by.gid };
    let mut mode = new.wanted.mode.unwrap_or(match new.kind {
        NewKind::Directory => 0o777,
        NewKind::Symlink(_) => 0o777,
        _ => 0,
    });
    if new.kind != NewKind::Directory && !by.is_root() && !by.is_of(gid) {
        mode &= !SETGID;
    }
    let node = NewNode { kind: new.kind, mode, umask: 0, uid: by.uid, gid: by.gid };
    opened.files.create(Named { dir: dir.id, name }, &node)
}

/// Answers that a file is there now.
fn write_created<F: Files>(opened: &Opened<F>, w: &mut Writer, file: FileId, dir: FileId) {
    w.flag(true);
    opened.write_handle(w, file);
    opened.write_after(w, file);
    opened.write_change(w, dir);
}

/// Creates what is no regular file, and answers.
fn create_other<S: Shares>(
    c: &Context<'_, S>,
    place: Place<'_>,
    new: New<'_>,
    w: &mut Writer,
) -> Result<(), Status>
where
    S::Share: Share<Rules = Rules>,
{
    let (opened, dir) = c.open(place.dir)?;
    let parent = opened.changeable_directory(dir)?;
    let name = place.own(Status::EXIST)?;
    if let NewKind::Special(FileType::CharDevice | FileType::BlockDevice, _) = new.kind
        && !opened.by.is_root()
    {
        return Err(Status::PERM);
    }
    let file =
        created(&opened, &parent, name, new).map_err(|error| opened.told("create a file in", dir, &error))?;
    let rest = Wanted { mode: None, size: None, ..new.wanted };
    set(&opened, &file, &rest)?;
    opened.settle(dir)?;
    write_created(&opened, w, file.id, dir);
    Ok(())
}

/// How a regular file is created.
enum How {
    /// It may be there.
    Unchecked(Wanted),
    /// It must not be there.
    Guarded(Wanted),
    /// It must not be there, unless the same request made it: then its times are these numbers.
    Exclusive(u32, u32),
}

/// CREATE.
pub fn create<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let place = Place::read(a)?;
    let how = match a.number()? {
        0 => How::Unchecked(Wanted::read(a)?),
        1 => How::Guarded(Wanted::read(a)?),
        2 => How::Exclusive(a.number()?, a.number()?),
        _ => return Err(Garbage),
    };
    let mut act = || {
        let (opened, dir) = c.open(place.dir)?;
        let parent = opened.directory(dir)?;
        let name = place.own(Status::EXIST)?;
        let at = Named { dir, name };
        let wanted = match how {
            How::Unchecked(wanted) | How::Guarded(wanted) => wanted,
            How::Exclusive(first, second) => {
                let at = |seconds: u32| Some(When::At(Time { seconds: seconds.into(), nanoseconds: 0 }));
                Wanted { atime: at(first), mtime: at(second), ..Wanted::default() }
            }
        };
        // Who may not change the directory may still open a file that is there.
        let changeable = opened.changeable_directory(dir);
        let made = match changeable {
            Ok(_) => created(&opened, &parent, name, New { kind: NewKind::Regular, wanted }),
            Err(status) => {
                opened.require(&parent, crate::nfs::permission::EXECUTE)?;
                match opened.lookup(at)? {
                    Some(_) => Err(Error::Exists(String::new())),
                    None => return Err(status),
                }
            }
        };
        let file = match made {
            Ok(file) => {
                let rest = Wanted { mode: None, size: wanted.size.filter(|size| *size > 0), ..wanted };
                set(&opened, &file, &rest)?;
                file
            }
            Err(Error::Exists(_)) => existing(&opened, at, &how)?,
            Err(error) => return Err(opened.told("create a file in", dir, &error)),
        };
        opened.settle(dir)?;
        write_created(&opened, w, file.id, dir);
        Ok(())
    };
    Ok(act())
}

/// What is there already, if that is what is asked for.
fn existing<F: Files>(opened: &Opened<F>, at: Named<'_>, how: &How) -> Result<Attributes, Status> {
    let file = opened.lookup(at)?.ok_or(Status::NOENT)?;
    let is_regular = file.kind == FileType::Regular;
    match *how {
        How::Unchecked(wanted) if is_regular => {
            if wanted.size.is_some_and(|size| size != file.size) {
                opened.require_changeable(file.id)?;
                set(opened, &file, &Wanted { size: wanted.size, ..Wanted::default() })?;
            }
            Ok(file)
        }
        How::Unchecked(_) if file.kind == FileType::Directory => Err(Status::ISDIR),
        How::Exclusive(first, second)
            if is_regular
                && file.atime.seconds == i64::from(first)
                && file.mtime.seconds == i64::from(second) =>
        {
            Ok(file)
        }
        _ => Err(Status::EXIST),
    }
}

/// MKDIR.
pub fn make_directory<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let (place, wanted) = (Place::read(a)?, Wanted::read(a)?);
    Ok(create_other(c, place, New { kind: NewKind::Directory, wanted }, w))
}

/// SYMLINK.
pub fn symlink<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let (place, wanted) = (Place::read(a)?, Wanted::read(a)?);
    let target = a.opaque(2 * MOST_TARGET_BYTES)?;
    if target.is_empty() || target.contains(&0) {
        return Ok(Err(Status::INVAL));
    }
    if target.len() >= MOST_TARGET_BYTES {
        return Ok(Err(Status::NAMETOOLONG));
    }
    // The mode of a link is always the same.
    let wanted = Wanted { mode: None, size: None, ..wanted };
    Ok(create_other(c, place, New { kind: NewKind::Symlink(target), wanted }, w))
}

/// MKNOD.
pub fn make_node<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let place = Place::read(a)?;
    let kind = match a.number()? {
        3 => FileType::BlockDevice,
        4 => FileType::CharDevice,
        6 => FileType::Socket,
        7 => FileType::Fifo,
        1 | 2 | 5 => return Ok(Err(Status::BADTYPE)),
        _ => return Err(Garbage),
    };
    let wanted = Wanted::read(a)?;
    let device = match kind {
        FileType::BlockDevice | FileType::CharDevice => {
            let (major, minor) = (a.number()?, a.number()?);
            if major > MOST_MAJOR || minor > MOST_MINOR {
                return Ok(Err(Status::INVAL));
            }
            u64::from(major) << MINOR_BITS | u64::from(minor)
        }
        _ => 0,
    };
    let wanted = Wanted { size: None, ..wanted };
    Ok(create_other(c, place, New { kind: NewKind::Special(kind, device), wanted }, w))
}

/// REMOVE.
pub fn remove<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let place = Place::read(a)?;
    Ok(taken(c, place, false, w))
}

/// RMDIR.
pub fn remove_directory<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let place = Place::read(a)?;
    Ok(taken(c, place, true, w))
}

fn taken<S: Shares>(
    c: &Context<'_, S>,
    place: Place<'_>,
    is_directory: bool,
    w: &mut Writer,
) -> Result<(), Status>
where
    S::Share: Share<Rules = Rules>,
{
    let (opened, dir) = c.open(place.dir)?;
    let parent = opened.changeable_directory(dir)?;
    let name = place.own(if place.name == b"." { Status::INVAL } else { Status::EXIST })?;
    let at = Named { dir, name };
    let file = opened.lookup(at)?.ok_or(Status::NOENT)?;
    match (file.kind == FileType::Directory, is_directory) {
        (true, false) => return Err(Status::ISDIR),
        (false, true) => return Err(Status::NOTDIR),
        _ => {}
    }
    if !may_take(&parent, &file, &opened.by) {
        return Err(Status::ACCES);
    }
    let removed = if is_directory { opened.files.remove_directory(at) } else { opened.files.unlink(at) };
    removed.map_err(|error| opened.told("remove a name from", dir, &error))?;
    opened.settle(dir)?;
    opened.write_change(w, dir);
    Ok(())
}

/// RENAME.
pub fn rename<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let (from, to) = (Place::read(a)?, Place::read(a)?);
    let mut act = || {
        let (opened, old) = c.open(from.dir)?;
        let to_handle = to.dir.ok_or(Status::BADHANDLE)?;
        if to_handle.filesystem != opened.id {
            return Err(Status::XDEV);
        }
        let new = to_handle.file;
        let old_dir = opened.changeable_directory(old)?;
        let new_dir = opened.changeable_directory(new)?;
        let from = Named { dir: old, name: from.own(Status::INVAL)? };
        let to = Named { dir: new, name: to.own(Status::INVAL)? };
        let moved = opened.lookup(from)?.ok_or(Status::NOENT)?;
        let replaced = opened.lookup(to)?;
        let may_replace = replaced.is_none_or(|file| may_take(&new_dir, &file, &opened.by));
        if !may_take(&old_dir, &moved, &opened.by) || !may_replace {
            return Err(Status::ACCES);
        }
        if moved.kind == FileType::Directory && old != new {
            // Its entry `..` changes.
            opened.require(&moved, WRITE)?;
        }
        opened.files.rename(from, to).map_err(|error| opened.told("rename in", old, &error))?;
        opened.settle(old)?;
        opened.write_change(w, old);
        opened.write_change(w, new);
        Ok(())
    };
    Ok(act())
}

/// LINK.
pub fn link<S: Shares>(c: &Context<'_, S>, a: &mut Reader<'_>, w: &mut Writer) -> Outcome
where
    S::Share: Share<Rules = Rules>,
{
    let (handle, place) = (handle::read(a)?, Place::read(a)?);
    let mut act = || {
        let (opened, file) = c.open(handle)?;
        let dir_handle = place.dir.ok_or(Status::BADHANDLE)?;
        if dir_handle.filesystem != opened.id {
            return Err(Status::XDEV);
        }
        let dir = dir_handle.file;
        let linked = opened.stat(file)?;
        opened.changeable_directory(dir)?;
        opened.require_changeable(file)?;
        let name = place.own(Status::EXIST)?;
        if linked.kind == FileType::Directory {
            return Err(Status::PERM);
        }
        let told = |error| opened.told("create a name in", dir, &error);
        opened.files.link(file, Named { dir, name }).map_err(told)?;
        opened.settle(dir)?;
        opened.write_after(w, file);
        opened.write_change(w, dir);
        Ok(())
    };
    Ok(act())
}
