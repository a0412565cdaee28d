//! The kernel's requests: the method of [`Served`] for each, and its answer. Requests of both transports
//! enter the [`Freezable`] first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use engine::zpl::live::NewKind;
use fuser::{Errno, FileHandle, FopenFlags, INodeNo};

use super::changes::Creator;
use super::commit_threads::CommitThreads;
use super::files::Access;
use super::freeze::{Entered, Freezable};
use super::listing::Part;
use super::lookup::FoundNode;
use super::node::{Node, Tree};
use super::seek_hole::{Seek, SeekResult, WHAT, told};
use super::served::Served;
use super::wire::{Caller, Figures, NameAnswer, Operation, Request, Room};
use crate::cpu_latency;

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer: an error, or how many bytes of it were written.
    Answer(Result<usize, Errno>),
    /// An answer when [`Mounted::make_stable`] is done, which takes as long as a device takes.
    WhenStable(INodeNo),
    /// An answer when the kernel wrote back pages: by [`Mounted::look_for_with_pages`], not on a thread that
    /// reads requests.
    WhenWrittenBack(Seek),
    /// An answer when a snapshot of this name was taken: by [`Mounted::take_snapshot`], not on a thread that
    /// others wait for.
    WhenTaken(Vec<u8>, Caller),
    /// No request waits for an answer.
    Nothing,
    /// An answer, and then no more requests.
    End,
}

/// The served filesystem, and its users.
#[derive(Debug, Clone)]
pub struct Mounted {
    /// The served filesystem.
    pub freezable: Arc<Freezable>,
    /// The only user who may look in, unless all may.
    pub only_for: Option<u32>,
    /// Where requests wait for a commit that came through the device.
    pub waiters: Arc<CommitThreads>,
}

impl Mounted {
    /// Does what is asked, and writes the answer into `room`. The request is inside until what comes
    /// with the answer is dropped.
    pub fn answer(&self, request: &Request<'_>, room: &mut [u8]) -> (Outcome, Option<Entered<'_>>) {
        if let Operation::MakeDirectory { name, .. } = request.operation
            && Node::from_number(request.node) == Node::SnapshotDir
        {
            // Not inside: it may wait for what waits until nothing is.
            return (self.when_taken(name, request.by), None);
        }
        let entered = self.freezable.enter();
        let outcome = unless_it_panics(|| self.answered(request, room, entered.as_ref()));
        (outcome.unwrap_or(Outcome::Answer(Err(Errno::EIO))), entered)
    }

    fn when_taken(&self, name: &[u8], by: Caller) -> Outcome {
        match self.only_for.is_some_and(|owner| owner != by.uid) {
            true => Outcome::Answer(Err(Errno::EACCES)),
            false => Outcome::WhenTaken(name.to_vec(), by),
        }
    }

    fn answered(&self, request: &Request<'_>, room: &mut [u8], entered: Option<&Entered<'_>>) -> Outcome {
        let Request { operation, node, by, .. } = *request;
        if self.only_for.is_some_and(|owner| owner != by.uid) && !operation.may_be_nobodys() {
            return Outcome::Answer(Err(Errno::EACCES));
        }
        let Some(served) = entered else {
            return match operation {
                Operation::Forget | Operation::ForgetMany(_) => Outcome::Nothing,
                Operation::Destroy => Outcome::End,
                _ => Outcome::Answer(Err(Errno::ENOTCONN)),
            };
        };
        match operation {
            Operation::Forget => {
                served.forget(node);
                Outcome::Nothing
            }
            Operation::ForgetMany(forgotten) => {
                forgotten.nodes().for_each(|node| served.forget(node));
                Outcome::Nothing
            }
            Operation::Write { payload, from_page: true, .. } if served.drops_writeback => {
                // Requests have no 4 GiB.
                Outcome::Answer(Room::new(room).count(payload.len() as u32))
            }
            _ if served.is_stale(request) => Outcome::Answer(Err(Errno::ESTALE)),
            Operation::Sync => {
                cpu_latency::note_request();
                Outcome::WhenStable(node)
            }
            Operation::Destroy => Outcome::End,
            Operation::Seek { handle, offset, whence } => {
                cpu_latency::note_request();
                let seek = match Seek::new(node, handle, offset, whence) {
                    Ok(seek) => seek,
                    Err(error) => return Outcome::Answer(Err(error)),
                };
                Outcome::Answer(match served.look_for(&seek, &(0..0)) {
                    Ok(SeekResult::Perhaps(_)) => return Outcome::WhenWrittenBack(seek),
                    Ok(SeekResult::At(found)) => told(found).and_then(|found| Room::new(room).offset(found)),
                    Err(error) => Err(served.failed(WHAT, node, &error)),
                })
            }
            _ => Outcome::Answer(served.answered(request, room)),
        }
    }

    /// Returns when a file is stable.
    pub fn make_stable(&self, number: INodeNo) -> Result<usize, Errno> {
        let served = self.freezable.enter().ok_or(Errno::ENOTCONN)?;
        unless_it_panics(|| served.done("make stable", number, served.fsync(number)))
            .unwrap_or(Err(Errno::EIO))
    }
}

/// Does what a request asks for. A panic ends the request alone, whose client gets an error: its thread goes
/// on, and no program waits for an answer for ever. A change that is half done stops its pool
/// ([`engine::txg::Tx`]).
pub(super) fn unless_it_panics<T>(work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    if done.is_err() {
        tracing::error!("a request of a mount ended with a panic");
    }
    done.ok()
}

impl Served {
    /// An answer without content.
    fn done(&self, what: &str, number: INodeNo, result: engine::Result<()>) -> Result<usize, Errno> {
        result.map(|()| 0).map_err(|error| self.failed(what, number, &error))
    }

    fn answered(&self, request: &Request<'_>, bytes: &mut [u8]) -> Result<usize, Errno> {
        if !matches!(request.operation, Operation::Flush | Operation::Release { .. }) {
            cpu_latency::note_request();
        }
        let answer = self.acted(request, bytes)?;
        if let Some(changed) = self.to_be_stable(request) {
            self.done("make stable", changed, self.fsync(changed))?;
        }
        Ok(answer)
    }

    /// The file or directory whose change is to be stable before it is answered, on a mount with `sync` or
    /// `dirsync`.
    fn to_be_stable(&self, request: &Request<'_>) -> Option<INodeNo> {
        let (changed, is_of_names) = match request.operation {
            Operation::Symlink { .. }
            | Operation::MakeNode { .. }
            | Operation::MakeDirectory { .. }
            | Operation::Unlink { .. }
            | Operation::RemoveDirectory { .. }
            | Operation::Rename { .. }
            | Operation::Create { .. } => (request.node, true),
            Operation::Link { file, .. } => (file, true),
            Operation::SetAttributes(_)
            | Operation::Write { .. }
            | Operation::SetXattr { .. }
            | Operation::RemoveXattr { .. }
            | Operation::Ioctl { .. }
            | Operation::Allocate { .. } => (request.node, false),
            Operation::CopyRange { to, .. } => (to, false),
            _ => return None,
        };
        let habits = self.habits();
        let is_due = habits.sync_all || (habits.sync_names && is_of_names);
        (is_due && self.is_writable()).then_some(changed)
    }

    fn acted(&self, request: &Request<'_>, bytes: &mut [u8]) -> Result<usize, Errno> {
        let Request { node, by, .. } = *request;
        let failed = |what: &str, error: engine::Error| self.failed(what, node, &error);
        let room = Room::new(bytes);
        let entry = |room: Room<'_>, what: &str, told: engine::Result<FoundNode>| match told {
            Ok(told) => room.entry(&told.entry()),
            Err(error) => Err(failed(what, error)),
        };
        match request.operation {
            Operation::Lookup { name } => {
                let found = self.find(node, name);
                let told =
                    found.map(|told| told.unwrap_or_else(|| FoundNode::nothing(self.names_last(node))));
                entry(room, "look up a name in", told)
            }
            Operation::GetAttributes => match self.stat(node) {
                Ok((attributes, lasts)) => room.attributes(&attributes, lasts),
                Err(error) => Err(gone(failed("read the attributes of", error))),
            },
            Operation::SetAttributes(wanted) => {
                let set = self.set_attributes(node, &wanted, by);
                match set.and_then(|()| self.stat(node)) {
                    Ok((attributes, lasts)) => room.attributes(&attributes, lasts),
                    Err(error) => Err(failed("change the attributes of", error)),
                }
            }
            Operation::StatX => match self.stat(node) {
                Ok((attributes, lasts)) => room.statx(&attributes, lasts),
                Err(error) => Err(gone(failed("read the attributes of", error))),
            },
            Operation::ReadLink => match self.read_link(node) {
                Ok(target) => room.data(&target),
                Err(error) => Err(failed("read the link", error)),
            },
            Operation::Symlink { name, target } => {
                let by = Creator::new(by, 0o777, 0);
                entry(room, "create a link in", self.create(node, name, NewKind::Symlink(target), by))
            }
            Operation::MakeNode { name, mode, umask, rdev } => {
                let by = Creator::new(by, mode, umask);
                entry(room, "create a node in", self.make_node(node, name, rdev, by))
            }
            Operation::MakeDirectory { name, mode, umask } => {
                let by = Creator::new(by, mode, umask);
                entry(room, "create a directory in", self.create(node, name, NewKind::Directory, by))
            }
            Operation::Unlink { name } => self.done("remove a name from", node, self.unlink(node, name)),
            Operation::RemoveDirectory { name } => {
                self.done("remove a directory from", node, self.rmdir(node, name))
            }
            Operation::Rename { name, to, new_name, flags } => {
                self.done("rename in", node, self.rename((node, name), (to, new_name), flags, by))
            }
            Operation::Link { file, name } => entry(room, "create a name in", self.link(file, node, name)),
            Operation::Open { flags } => match self.open(node, flags, by) {
                Ok(handle) => {
                    self.is_opened(handle, flags);
                    let keeps = self.may_keep(node, flags);
                    room.opened(handle, if keeps { FILE_FLAGS } else { FopenFlags::FOPEN_NOFLUSH }.bits())
                }
                Err(error) => Err(gone(failed("open", error))),
            },
            Operation::Create { name, mode, umask, flags } => {
                let by = Creator::new(by, mode, umask);
                let is_new = flags & libc::O_EXCL != 0;
                match self.create_and_open(node, name, by, is_new, Access::of(flags)) {
                    Ok((told, handle)) => {
                        self.is_opened(handle, flags);
                        // The attributes of an empty file last: nothing of it changes with the commit.
                        let entry = NameAnswer { lasts: told.name_lasts, ..told.entry() };
                        room.created(&entry, handle, FILE_FLAGS.bits())
                    }
                    Err(error) => Err(failed("create a file in", error)),
                }
            }
            Operation::CreateNameless { mode, umask, flags } => {
                let by = Creator::new(by, mode, umask);
                match self.create_nameless(node, by, flags & libc::O_EXCL == 0) {
                    Ok((told, handle)) => {
                        self.is_opened(handle, flags);
                        room.created(&told.entry(), handle, FILE_FLAGS.bits())
                    }
                    Err(error) => Err(failed("create a file without a name in", error)),
                }
            }
            Operation::Read { handle, offset, size } => {
                // Less than was asked for would be the end of the file. The kernel never asks for more than
                // was agreed on.
                let into = bytes.get_mut(..size as usize).ok_or(Errno::EINVAL)?;
                let read = self.read(node, handle, offset, into);
                read.map_err(|error| failed(&format!("read offset {offset} of"), error))
            }
            Operation::Write { offset, payload, kill_privileges, from_page } => {
                match self.write(node, offset, (payload, from_page), kill_privileges.then_some(by)) {
                    // Requests have no 4 GiB.
                    Ok(()) => room.count(payload.len() as u32),
                    Err(error) => Err(failed(&format!("write offset {offset} of"), error)),
                }
            }
            // What was written is here already, and locks are the kernel's.
            Operation::Flush => Ok(0),
            Operation::Release { handle } => {
                self.release(handle);
                Ok(0)
            }
            Operation::OpenDirectory { flags } => self.open_directory(node, flags, room),
            Operation::ReadDirectory { handle, cookie, room: wanted } => {
                let mut room = Room::new(up_to(bytes, wanted));
                let part = Part { handle, cookie, with_attributes: None };
                let walked = self.walk(node, part, &mut |entry| {
                    !room.push_name(entry.ino, entry.cookie, entry.type_bits, entry.name)
                });
                walked.map_err(|error| failed("list", error))?;
                room.end()
            }
            Operation::ReadDirectoryPlus { handle, cookie, room: wanted } => {
                let wanted = if cookie == 0 { wanted.min(FIRST_PLUS_BYTES) } else { wanted };
                let mut room = Room::new(up_to(bytes, wanted));
                let part = Part { handle, cookie, with_attributes: Some(room.entries()) };
                let walked = self.walk(node, part, &mut |entry| {
                    let told = self.told_of(node, &entry);
                    !room.push_entry(&told.entry(), entry.ino, entry.cookie, entry.name)
                });
                walked.map_err(|error| failed("list", error))?;
                room.end()
            }
            Operation::StatFs => {
                let stat = self.trees.statfs(self.place(node));
                room.figures(&Figures {
                    blocks: stat.blocks,
                    free: stat.free_blocks,
                    files: stat.inodes,
                    free_files: stat.free_inodes,
                    block_size: u32::try_from(stat.block_size).unwrap_or(u32::MAX),
                    longest_name: stat.max_name,
                })
            }
            Operation::SetXattr { name, value, flags } => {
                let set = self.set_xattr(node, name, value, flags, by);
                self.done("set an extended attribute of", node, set)
            }
            Operation::GetXattr { name, room: wanted } => match self.xattr(node, name) {
                Ok(Some(value)) => sized(room, wanted, &value),
                Ok(None) => Err(Errno::ENODATA),
                Err(error) => Err(failed("read an extended attribute of", error)),
            },
            Operation::ListXattr { room: wanted } => match self.xattr_names(node, by) {
                Ok(list) => sized(room, wanted, &list),
                Err(error) => Err(failed("list the extended attributes of", error)),
            },
            Operation::RemoveXattr { name } => {
                self.done("remove an extended attribute of", node, self.remove_xattr(node, name))
            }
            Operation::Ioctl { command, argument } => match self.ioctl(node, command, argument, by) {
                Ok(answer) => room.ioctl(&answer),
                Err(error) => Err(failed("change the flags of", error)),
            },
            Operation::Allocate { offset, length, mode } => {
                let allocated = self.allocate(node, offset, length, mode, by);
                self.done("allocate in", node, allocated)
            }
            Operation::CopyRange { offset, to, to_offset, length } => {
                // The answer has 32 bits for what was copied. What goes on behind it begins with a block, so
                // that it can be shared as this was.
                let length = length.min(MOST_COPIED_BYTES);
                match self.copy_range((node, offset), (to, to_offset), length, by) {
                    Ok(copied) => room.count(u32::try_from(copied).unwrap_or(u32::MAX)),
                    Err(error) => Err(self.failed("copy into", to, &error)),
                }
            }
            Operation::Malformed => Err(Errno::EINVAL),
            Operation::Seek { .. }
            | Operation::Unknown
            | Operation::Forget
            | Operation::ForgetMany(_)
            | Operation::Sync
            | Operation::Destroy => Err(Errno::ENOSYS),
        }
    }

    fn open_directory(&self, number: INodeNo, flags: i32, room: Room<'_>) -> Result<usize, Errno> {
        // A directory that is removed while it is open can still be asked for its attributes.
        let opened = match (self.place(number), self.live()) {
            (Some((Tree::Head, object)), Some(live)) => {
                let access = Access::of_directory(flags, self.habits());
                self.open_object(Tree::Head, object, access).map(|handle| {
                    // What the kernel keeps is listed without us. It is to ask once where that is an access
                    // to be noted.
                    let is_noted = access == Access::Noted && self.access_is_due(live, object);
                    (handle, if is_noted { FopenFlags::empty() } else { DIRECTORY_FLAGS })
                })
            }
            _ => {
                let comes_and_goes = Node::from_number(number) == Node::SnapshotDir && self.live().is_some();
                let flags = if comes_and_goes { FopenFlags::empty() } else { DIRECTORY_FLAGS };
                Ok((FileHandle(self.next_handle()), flags))
            }
        };
        match opened {
            Ok((handle, flags)) => room.opened(handle, flags.bits()),
            Err(error) => Err(self.failed("open", number, &error)),
        }
    }
}

/// Bytes of the first answer with attributes. The kernel asks for attributes with each directory's first
/// entries, wanted or not, and goes on asking for them only if a program looked at the
/// files; so a mere list of names pays for few, and `ls -l` gets all the others at once.
const FIRST_PLUS_BYTES: u32 = 1 << 10;
/// Most bytes that one request copies: a multiple of every size of blocks.
const MOST_COPIED_BYTES: u64 = 1 << 30;

/// The error for a file that is known by its number and does not exist any more: the kernel looks a name up
/// again, and a handle is stale.
fn gone(error: Errno) -> Errno {
    if error.code() == libc::ENOENT { Errno::ESTALE } else { error }
}

const FILE_FLAGS: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_NOFLUSH);
const DIRECTORY_FLAGS: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_CACHE_DIR);

/// The first `wanted` bytes, or all.
fn up_to(bytes: &mut [u8], wanted: u32) -> &mut [u8] {
    let most = bytes.len().min(wanted as usize);
    &mut bytes[..most]
}

/// Answers with a value, with its size where only that was asked for, or that there is too little room.
fn sized(room: Room<'_>, wanted: u32, value: &[u8]) -> Result<usize, Errno> {
    match u32::try_from(value.len()) {
        Ok(length) if wanted == 0 => room.count(length),
        Ok(length) if length <= wanted => room.data(value),
        Ok(_) => Err(Errno::ERANGE),
        Err(_) => Err(Errno::E2BIG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_panics_ends_alone() {
        assert_eq!(unless_it_panics(|| 7), Some(7));
        assert_eq!(unless_it_panics(|| -> u32 { panic!("on purpose") }), None);
    }
}
