//! ACLs of files during changes. With `acltype=posix`, a change of the mode updates the POSIX ACL and vice
//! versa, and new files inherit the default ACL of their directory instead of losing the bits of the umask.
//! Every file has an NFSv4 ACL, which the rules in [`super::super::nfs4`] update.
//!
//! A change of the mode and one of the POSIX ACL are two changes, as in OpenZFS.
//!
//! Source: behaviour of OpenZFS 2.3 `zpl_xattr.c` (`zpl_init_acl`, `zpl_set_acl_impl`, `zpl_chmod_acl`).

use ondisk::ObjectId;
use ondisk::nvlist::{ByteString, Encoding, NvValue, Nvlist, UNIQUE_NAME};
use ondisk::zpl::{FileType, ZnodeFlags};

use super::names::{NewKind, NewNode};
use super::nodes::Node;
use super::{LiveZpl, SetAttributes, XattrSet, errno};
use crate::error::{Error, Result};
use crate::range_locks::Access;
use crate::zpl::nfs4::{AclMode, FileAcl, Subject};
use crate::zpl::posix_acl::PosixAcl;
use crate::zpl::{AclType, POSIX_ACL_ACCESS, POSIX_ACL_DEFAULT};

/// The permissions and ACLs that a new file inherits from its directory.
pub(super) struct Inherited {
    /// Permission bits.
    pub(super) mode: u32,
    /// Its extended attributes, packed.
    pub(super) xattrs: Option<Vec<u8>>,
}

impl Node {
    /// Whether new files in it inherit entries of its NFSv4 ACL.
    pub(super) fn passes_acl_on(&self) -> Result<bool> {
        let flags = self.flags()?;
        Ok(flags.contains(ZnodeFlags::INHERIT_ACE) && !flags.contains(ZnodeFlags::XATTR))
    }
}

impl LiveZpl {
    /// Whether an extended attribute of this name is an ACL.
    pub(super) fn is_acl(&self, name: &[u8]) -> bool {
        (name == POSIX_ACL_ACCESS || name == POSIX_ACL_DEFAULT) && self.zpl.options().acl == AclType::Posix
    }

    async fn acl(&self, node: &Node, name: &[u8]) -> Result<Option<PosixAcl>> {
        if !self.is_acl(name) {
            return Ok(None);
        }
        match node.znode.xattr(name).await? {
            Some(bytes) => PosixAcl::parse(&bytes).map_err(|error| node.object.corrupt(error)),
            None => Ok(None),
        }
    }

    /// The permissions and ACLs of new files in a directory.
    pub(super) async fn inherit(&self, parent: &Node, new: &NewNode<'_>) -> Result<Inherited> {
        let plain = Inherited { mode: new.mode & !(new.umask & 0o777), xattrs: None };
        if matches!(new.kind, NewKind::Symlink(_)) {
            return Ok(Inherited { mode: new.mode, xattrs: None });
        }
        let Some(default) = self.acl(parent, POSIX_ACL_DEFAULT).await? else { return Ok(plain) };
        let (access, mode) = default.inherited(new.mode);
        let mut list = Nvlist::new();
        list.flags = UNIQUE_NAME;
        let mut add = |name: &[u8], acl: &PosixAcl| {
            list.push(ByteString::new(name), NvValue::ByteArray(acl.encode()));
        };
        if new.kind == NewKind::Directory {
            add(POSIX_ACL_DEFAULT, &default);
        }
        if !access.is_mode() {
            add(POSIX_ACL_ACCESS, &access);
        }
        if list.is_empty() {
            return Ok(Inherited { mode, xattrs: None });
        }
        let packed = list.encode(Encoding::Xdr).map_err(Error::format("extended attributes"))?;
        Ok(Inherited { mode, xattrs: Some(packed) })
    }

    /// The NFSv4 ACL of new files in a directory.
    pub(super) async fn acl_of_new(&self, parent: &Node, file: Subject) -> Result<FileAcl> {
        if parent.passes_acl_on()? {
            return Ok(FileAcl::inherited(&parent.znode.acl().await?, self.acl_rules(), file));
        }
        Ok(FileAcl::trivial(file.mode, file.kind == FileType::Directory))
    }

    /// The NFSv4 ACL of a file whose mode will change.
    pub(super) async fn acl_of_mode(&self, node: &Node, file: Subject) -> Result<FileAcl> {
        let (flags, rules) = (node.flags()?, self.acl_rules());
        if flags.contains(ZnodeFlags::ACL_TRIVIAL) || rules.mode == AclMode::Discard {
            return Ok(FileAcl::changed(Vec::new(), flags, rules, file));
        }
        if rules.mode == AclMode::Restricted && !node.is_replayed {
            let what = format!("object {}: it has an ACL (aclmode=restricted)", node.id());
            return Err(self.refuse(what, errno::EPERM));
        }
        Ok(FileAcl::changed(node.znode.acl().await?, flags, rules, file))
    }

    /// The NFSv4 ACL of a file whose owner will change, if that may matter.
    pub(super) async fn acl_of_owner(&self, node: &Node, file: Subject) -> Result<Option<FileAcl>> {
        let flags = node.flags()?;
        if flags.contains(ZnodeFlags::ACL_TRIVIAL) || self.zpl.options().acl == AclType::Posix {
            return Ok(None);
        }
        Ok(Some(FileAcl::given_away(node.znode.acl().await?, flags, file)))
    }

    /// Sets or removes an ACL of a file.
    pub(super) async fn set_acl(&self, file: ObjectId, name: &[u8], value: &[u8]) -> Result<()> {
        let node = self.node(file).await?;
        if node.znode.file_type() == FileType::Symlink {
            return Err(self.refuse(name, errno::ENOTSUP));
        }
        let acl = PosixAcl::parse(value).map_err(|_| self.refuse(name, errno::EINVAL))?;
        if name == POSIX_ACL_DEFAULT && !node.is_directory() {
            return if acl.is_none() { Ok(()) } else { Err(self.refuse(name, errno::EACCES)) };
        }
        if name == POSIX_ACL_ACCESS
            && let Some(acl) = &acl
            && acl.mode(node.znode.mode()) != node.znode.mode()
        {
            let mode = Some(acl.mode(node.znode.mode()));
            self.change_attributes(file, &SetAttributes { mode, ..SetAttributes::default() }).await?;
        }
        let stored = acl.filter(|acl| name == POSIX_ACL_DEFAULT || !acl.is_mode());
        match stored {
            Some(acl) => self.store_xattr(file, name, &acl.encode(), XattrSet::Any, self.xattr_place()).await,
            None => match self.remove_one_xattr(file, name).await {
                Err(Error::Os { errno: errno::ENODATA, .. }) => Ok(()),
                removed => removed,
            },
        }
    }

    /// Updates the access ACL of a file to its present mode.
    pub(super) async fn follow_mode(&self, file: ObjectId) -> Result<()> {
        if !self.is_acl(POSIX_ACL_ACCESS) {
            return Ok(());
        }
        let (node, old) = {
            let _locked = self.locks.describe(file, Access::Shared).await;
            let node = self.node(file).await?;
            let acl = self.acl(&node, POSIX_ACL_ACCESS).await?;
            (node, acl)
        };
        let Some(old) = old else { return Ok(()) };
        let mut acl = old.clone();
        acl.set_mode(node.znode.mode());
        if acl == old {
            return Ok(());
        }
        self.store_xattr(file, POSIX_ACL_ACCESS, &acl.encode(), XattrSet::Any, self.xattr_place()).await
    }
}
