//! Mode, owner, times, flags and size.

use std::sync::atomic::Ordering;

use ondisk::ObjectId;
use ondisk::accounting::Counted;
use ondisk::sa::Attr;
use ondisk::zpl::{FileType, ZnodeFlags};

use super::nodes::{Node, Values};
use super::quotas::Owners;
use super::{LiveZpl, errno};
use crate::error::Result;
use crate::patience;
use crate::txg::Tx;
use crate::zpl::nfs4::{FileAcl, Subject};
use crate::zpl::{Time, Znode};

/// The permission bits of a mode; the others are the file's type.
const PERMISSIONS: u32 = 0o7777;
/// Flags that can be set: DOS attributes, immutable and the like.
pub(super) const SETTABLE: u64 = ZnodeFlags::READONLY.0
    | ZnodeFlags::HIDDEN.0
    | ZnodeFlags::SYSTEM.0
    | ZnodeFlags::ARCHIVE.0
    | ZnodeFlags::IMMUTABLE.0
    | ZnodeFlags::NOUNLINK.0
    | ZnodeFlags::APPENDONLY.0
    | ZnodeFlags::NODUMP.0
    | ZnodeFlags::OPAQUE.0
    | ZnodeFlags::REPARSE.0
    | ZnodeFlags::OFFLINE.0
    | ZnodeFlags::SPARSE.0
    | ZnodeFlags::PROJINHERIT.0;

/// Set-user-id and set-group-id.
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
/// With [`AtimeMode::Relative`] an access time older than this is updated.
const ATIME_SECONDS: i64 = 24 * 3600;

/// Attributes to change; the others stay.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttributes {
    /// Permission bits. `aclmode` determines the new NFSv4 ACL; a POSIX ACL follows the mode.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size of a regular file.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<Time>,
    /// Last modification of the content.
    pub mtime: Option<Time>,
    /// Last change of the attributes; now, if not given.
    pub ctime: Option<Time>,
    /// Creation.
    pub btime: Option<Time>,
    /// Flags of ZFS: the settable ones get the given values.
    pub flags: Option<ZnodeFlags>,
    /// Project.
    pub project: Option<u64>,
    /// Both times are set to the present time, as for a caller that may only append to the file.
    pub touched: bool,
    /// Clears set-user-id, and set-group-id of a file that its group may execute, as for a change by a caller
    /// without privileges.
    pub kill_privileges: bool,
    /// In addition, clears set-group-id in any case: a change by a caller that is not in the group either.
    pub kill_setgid: bool,
}

/// When reads update the access times of files: the properties `atime` and `relatime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtimeMode {
    /// `atime=off`: never.
    Off,
    /// `atime=on`, `relatime=off`: always.
    On,
    /// `relatime=on`: when the file was changed since, or a day ago.
    Relative,
}

/// A mode without the privileges that a change by another user clears; set-group-id `in_any_case`, or if the
/// group may execute.
pub(super) fn without_privileges(mode: u32, in_any_case: bool) -> u32 {
    let setgid = if in_any_case || mode & GROUP_EXECUTE != 0 { SETGID } else { 0 };
    mode & !(SETUID | setgid)
}

/// The given owners of a file; its flags record whether it has a project.
fn owned(mut values: Values, set: &SetAttributes) -> Values {
    let owners = [
        (Attr::Uid, set.uid.map(u64::from)),
        (Attr::Gid, set.gid.map(u64::from)),
        (Attr::ProjectId, set.project),
    ];
    for (attr, id) in owners {
        if let Some(id) = id {
            values = values.number(attr, id);
        }
    }
    values
}

impl LiveZpl {
    /// Changes attributes of a file, all of them or none.
    pub async fn set_attributes(&self, file: ObjectId, set: &SetAttributes) -> Result<()> {
        let changed = async {
            self.change_attributes(file, set).await?;
            if set.mode.is_some() { self.follow_mode(file).await } else { Ok(()) }
        };
        self.settled(patience::once_changed(changed).await).await
    }

    pub(super) async fn change_attributes(&self, file: ObjectId, set: &SetAttributes) -> Result<()> {
        if let Some(size) = set.size {
            self.prepare_resize(file, size, set).await?;
        }
        let _content = match set.size {
            Some(_) => Some(self.locks.whole(file).await),
            None => None,
        };
        let _locked = self.locks.lock(&[file]).await;
        let node = self.node(file).await?;
        node.require_settable(set)?;
        if set.size.is_some() {
            self.require_content(&node)?;
        }
        self.require_owners(&node, set).await?;
        let mut values = Values::default();
        let old = node.flags()?.0;
        let mut flags = old;
        if let Some(given) = set.flags {
            flags = flags & !SETTABLE | given.0 & SETTABLE;
        }
        let mut mode = node.znode.mode();
        if let Some(acl) = self.changed_acl(&node, set).await? {
            (mode, flags) = (acl.mode, acl.flags_after(flags));
            let (count, aces) = acl.stored()?;
            values = values.number(Attr::DaclCount, count).bytes(Attr::DaclAces, &aces);
        }
        if set.kill_privileges && !node.is_directory() {
            mode = without_privileges(mode, set.kill_setgid);
        }
        if mode != node.znode.mode() {
            values = values.number(Attr::Mode, mode.into());
        }
        values = owned(values, set);
        let mut set = *set;
        if set.size.is_some() {
            set.mtime = set.mtime.or_else(|| Some(Time::now()));
            flags |= ZnodeFlags::ARCHIVE.0 | ZnodeFlags::AV_MODIFIED.0;
        }
        for (attr, time) in [(Attr::Atime, set.atime), (Attr::Mtime, set.mtime), (Attr::Crtime, set.btime)] {
            if let Some(time) = time {
                values = values.time(attr, time);
            }
        }
        if set.project.is_some() {
            flags |= ZnodeFlags::PROJID.0;
        }
        if flags != old {
            values = values.number(Attr::Flags, flags);
        }
        values = values.time(Attr::Ctime, set.ctime.unwrap_or_else(Time::now));
        if let Some(size) = set.size {
            self.range(file, size, 0)?;
            node.object.prepare_punch(size..u64::MAX).await?;
            values = values.number(Attr::Size, size);
        }
        if mode != node.znode.mode() {
            set.mode = Some(mode);
        }
        let tx = match set.size {
            Some(size) => self.begin_resizing(&node, size).await?,
            None => self.begin_freeing().await?,
        };
        self.log_attributes(&tx, &node, &set)?;
        if let Some(size) = set.size {
            self.resize(&node, &tx, size).await?;
        }
        self.update(&node.object, &tx, values).await?;
        self.give_xattrs(&node, &tx, &set).await
    }

    /// Makes most of what a large file loses a hole, if the file may be changed so.
    async fn prepare_resize(&self, file: ObjectId, size: u64, set: &SetAttributes) -> Result<()> {
        let node = self.node(file).await?;
        if !node.object.has_parts() {
            return Ok(());
        }
        node.require_settable(set)?;
        self.require_content(&node)?;
        self.require_owners(&node, set).await?;
        self.range(file, size, 0)?;
        self.punch_parts(file, size..u64::MAX).await
    }

    /// The NFSv4 ACL that goes with another mode or owner.
    async fn changed_acl(&self, node: &Node, set: &SetAttributes) -> Result<Option<FileAcl>> {
        let old = node.znode.mode();
        let file = Subject {
            kind: node.znode.file_type(),
            mode: set.mode.map_or(old, |given| old & !PERMISSIONS | given & PERMISSIONS),
            owner: set.uid.map_or(node.number(Attr::Uid)?, u64::from),
            group: set.gid.map_or(node.number(Attr::Gid)?, u64::from),
        };
        match (set.mode, set.uid.or(set.gid)) {
            (Some(_), _) => self.acl_of_mode(node, file).await.map(Some),
            (None, Some(_)) => self.acl_of_owner(node, file).await,
            (None, None) => Ok(None),
        }
    }

    /// Gives the files of its extended attributes the owners of a file.
    async fn give_xattrs(&self, node: &Node, tx: &Tx, set: &SetAttributes) -> Result<()> {
        if set.uid.is_none() && set.gid.is_none() && set.project.is_none() {
            return Ok(());
        }
        for id in self.xattr_objects(node).await? {
            let node = self.node(id).await?;
            let mut values = owned(Values::default(), set);
            if set.project.is_some() {
                values = values.number(Attr::Flags, node.flags()?.0 | ZnodeFlags::PROJID.0);
            }
            self.update(&node.object, tx, values).await?;
        }
        Ok(())
    }

    /// Fails when the new owners of the file have used up their quotas, or the file cannot have a project.
    async fn require_owners(&self, node: &Node, set: &SetAttributes) -> Result<()> {
        let old = node.owners()?;
        let project = set.project.filter(|project| *project != 0);
        let old_flags = node.flags()?.0;
        let passes_on = set.flags.is_some_and(|new| (new.0 ^ old_flags) & ZnodeFlags::PROJINHERIT.0 != 0);
        if passes_on && !self.objset.can_count_projects() {
            return Err(self.refuse(format!("object {}: passes no project on", node.id()), errno::ENOTSUP));
        }
        if let Some(project) = set.project {
            let fits = node.is_directory() || node.znode.file_type() == FileType::Regular;
            let fits = fits && !node.znode.attributes.is_old();
            if !fits || !self.objset.can_count_projects() {
                return Err(self.refuse(format!("object {}: has no project", node.id()), errno::ENOTSUP));
            }
            // If projects are not counted yet, the count of all files will include this one.
            self.objset.note_use();
            if u32::try_from(project).map_or(true, |project| project == u32::MAX) {
                return Err(self.refuse(format!("project {project}"), errno::EINVAL));
            }
        }
        let owners = Owners {
            user: set.uid.map(u64::from).filter(|id| Some(*id) != old.user),
            group: set.gid.map(u64::from).filter(|id| Some(*id) != old.group),
            project: project.filter(|id| Some(*id) != old.project),
        };
        self.require_quota(owners, &[Counted::Bytes, Counted::Objects]).await
    }

    /// Sets when access times are updated.
    pub fn set_atime(&self, mode: AtimeMode) {
        self.atime.store(mode as u8, Ordering::Release);
    }

    /// Whether a read of a file at `now` updates its access time, according to the properties.
    pub async fn access_is_due(&self, file: ObjectId, now: Time) -> Result<bool> {
        if self.atime.load(Ordering::Acquire) == AtimeMode::Off as u8 {
            return Ok(false);
        }
        self.changes_atime(&self.zpl.node(file).await?, now)
    }

    fn changes_atime(&self, node: &Znode, now: Time) -> Result<bool> {
        let stat = node.stat()?;
        Ok(self.atime.load(Ordering::Acquire) == AtimeMode::On as u8
            || stat.atime <= stat.mtime.max(stat.ctime)
            || now.seconds.saturating_sub(stat.atime.seconds) >= ATIME_SECONDS)
    }

    /// Notes that a file was read: its access time becomes `now` if the properties ask for that, and nothing
    /// else changes. Returns whether it did.
    pub async fn accessed(&self, file: ObjectId, now: Time) -> Result<bool> {
        if !self.access_is_due(file, now).await? {
            return Ok(false);
        }
        let _locked = self.locks.lock(&[file]).await;
        let node = self.node(file).await?;
        if !self.changes_atime(&node.znode, now)? {
            return Ok(false);
        }
        let tx = self.begin_freeing().await?;
        self.update(&node.object, &tx, Values::default().time(Attr::Atime, now)).await?;
        Ok(true)
    }
}
