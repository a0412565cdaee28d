//! The protocol by which clients mount: version 3, on the port of NFS.
//!
//! | number | procedure | answer |
//! |---|---|---|
//! | 0 | nothing | |
//! | 1 | mount a directory | status, handle, flavours of credentials |
//! | 2 | what is mounted | of all clients, as far as they said so |
//! | 3, 4 | unmount a directory, or all | |
//! | 5 | what is shared | each with those to whom |
//!
//! The directory is the mountpoint of a share or one inside it. A symbolic link on the way there is not
//! followed.
//!
//! Source of the facts: RFC 1813, appendix I.

use std::net::SocketAddr;
use std::sync::Arc;

use ondisk::zpl::FileType;

use super::call::Context;
use super::handle::Handle;
use super::rpc::{Refusal, SYSTEM, done};
use super::rules::Rules;
use super::status::Status;
use super::xdr::{Garbage, Reader};
use crate::files::{FileId, Files, Named, Share, Shares};

/// The number of the program.
pub const PROGRAM: u32 = 100_005;
/// Its version.
pub const VERSION: u32 = 3;
/// The longest path.
const MOST_PATH_BYTES: usize = 1024;
/// Most lines of a listing.
const MOST_LINES: usize = 4096;

/// Does a procedure; the answer.
pub fn act<S: Shares>(context: &Context<'_, S>, arguments: &mut Reader<'_>) -> Result<Vec<u8>, Refusal>
where
    S::Share: Share<Rules = Rules>,
{
    let garbage = |_: Garbage| Refusal::Arguments;
    let mut writer = done(context.call.number);
    let address = context.peer.ip();
    let clients = &context.server.clients;
    match context.call.procedure {
        0 => {}
        1 => {
            let path = arguments.opaque(MOST_PATH_BYTES).map_err(garbage)?;
            match mount(context, path) {
                Ok((handle, dataset)) => {
                    clients.mounted(address, path, &dataset);
                    writer.number(0);
                    super::handle::write(&mut writer, handle);
                    writer.number(1);
                    writer.number(SYSTEM);
                }
                Err(status) => writer.number(status.0),
            }
        }
        2 => {
            for client in clients.all().iter().take(MOST_LINES) {
                for path in client.mounts.keys() {
                    writer.flag(true);
                    writer.opaque(client.address.to_string().as_bytes());
                    writer.opaque(path);
                }
            }
            writer.flag(false);
        }
        3 => {
            let path = arguments.opaque(MOST_PATH_BYTES).map_err(garbage)?;
            clients.note(address, |client| drop(client.mounts.remove(path)));
        }
        4 => clients.note(address, |client| client.mounts.clear()),
        5 => {
            for share in context.server.shares.listed().iter().take(MOST_LINES) {
                let Some(rules) = share.rules() else { continue };
                writer.flag(true);
                writer.opaque(share.path());
                for client in rules.clients() {
                    writer.flag(true);
                    writer.opaque(client.as_bytes());
                }
                writer.flag(false);
            }
            writer.flag(false);
        }
        _ => return Err(Refusal::NoProcedure),
    }
    Ok(writer.finish())
}

/// The handle of a directory that is mounted, and the name of its dataset.
fn mount<S: Shares>(context: &Context<'_, S>, path: &[u8]) -> Result<(Handle, String), Status>
where
    S::Share: Share<Rules = Rules>,
{
    let (share, inside) =
        found(&context.server.shares, path).ok_or_else(|| match context.server.shares.is_complete() {
            true => Status::NOENT,
            false => Status::SERVERFAULT,
        })?;
    let refused = |status: Status| {
        log_refused(context.peer, share.name(), status);
        // The client would take it for a lack of time.
        if status == Status::JUKEBOX { Status::SERVERFAULT } else { status }
    };
    let opened = context.open_share(&share).map_err(refused)?;
    let root = opened.files.root().map_err(|error| {
        let none = FileId { snapshot: 0, object: 0, generation: 0 };
        opened.told("open the root of the filesystem by", none, &error)
    })?;
    let mut at = root;
    for name in inside {
        if at.kind != FileType::Directory {
            return Err(Status::NOTDIR);
        }
        at = opened.lookup(Named { dir: at.id, name })?.ok_or(Status::NOENT)?;
    }
    if at.kind != FileType::Directory {
        return Err(Status::NOTDIR);
    }
    tracing::info!(client = %context.peer.ip(), dataset = share.name(), "an NFS client mounts");
    Ok((Handle { filesystem: opened.id, file: at.id }, share.name().to_owned()))
}

fn log_refused(peer: SocketAddr, dataset: &str, status: Status) {
    let why = match status {
        Status::ACCES => {
            "its address or its port is not let in; without 'insecure' clients come from ports below 1024"
        }
        _ => "the filesystem cannot be opened now",
    };
    tracing::info!(client = %peer, dataset, "an NFS client is refused: {why}");
}

/// The names of a path; `None` where it is none that begins at the root.
fn names(path: &[u8]) -> Option<Vec<&[u8]>> {
    let path = path.strip_prefix(b"/")?;
    let names: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect();
    (!names.iter().any(|name| *name == b".." || name.contains(&0))).then_some(names)
}

/// A share, and names below its root.
type Found<'a, S> = (Arc<S>, Vec<&'a [u8]>);

/// The share in which a path is, and the names from its root on.
fn found<'a, S: Shares>(shares: &S, path: &'a [u8]) -> Option<Found<'a, S::Share>> {
    let names = names(path)?;
    let listed = shares.listed();
    let depth = |share: &Arc<S::Share>| {
        let at = self::names(share.path())?;
        names.starts_with(&at).then_some(at.len())
    };
    let (depth, share) =
        listed.iter().filter_map(|share| Some((depth(share)?, share))).max_by_key(|(depth, _)| *depth)?;
    Some((Arc::clone(share), names.get(depth..)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_nowhere_else() {
        assert_eq!(names(b"/tank//fs/./a/"), Some(vec![&b"tank"[..], b"fs", b"a"]));
        assert_eq!(names(b"/"), Some(vec![]));
        for path in [&b"tank"[..], b"", b"/tank/../etc", b"/a\0b"] {
            assert_eq!(names(path), None);
        }
    }
}
