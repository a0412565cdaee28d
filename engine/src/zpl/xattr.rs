//! Extended attributes: in the file's own system attributes, or as files in a hidden directory.
//!
//! With `xattr=sa` small attributes are an nvlist inside the system attribute `ZPL_DXATTR`. With `xattr=on`
//! (or `dir`), and when an attribute is too large, each is a file in a directory whose number is in the
//! system attribute `ZPL_XATTR`. A file may have both kinds; of two with one name the first kind is shown.
//!
//! POSIX ACLs are extended attributes too, in the encoding that Linux uses between kernel and programs.

use ondisk::ObjectId;
use ondisk::nvlist::{NvValue, Nvlist};

use super::Znode;
use super::xattr_names::Visible;
use crate::Result;
use crate::dmu::sa::Attr;

/// The most attributes of one file that are listed.
const MAX_NAMES: usize = 1 << 16;
/// The longest value (Linux's own limit is 64 KiB).
const MAX_VALUE: usize = 1 << 20;

impl Znode {
    fn visible(&self) -> Visible {
        let options = self.zpl.options();
        Visible { user: options.xattr, acl: options.acl }
    }

    /// Names of all extended attributes, with the prefixes that Linux knows.
    pub async fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        let visible = self.visible();
        let mut names: Vec<Vec<u8>> = Vec::new();
        if let Some(list) = self.attribute_list()? {
            names.extend(list.iter().filter_map(|(name, _)| visible.shown(name.as_bytes())));
        }
        if let Some(dir) = self.xattr_dir().await? {
            let mut cursor = dir.read_dir(2).await?;
            while let Some(entry) = cursor.next().await? {
                if names.len() >= MAX_NAMES {
                    return Err(self.object.corrupt(format!("more than {MAX_NAMES} extended attributes")));
                }
                if let Some(name) = visible.shown(&entry.name)
                    && !names.contains(&name)
                {
                    names.push(name);
                }
            }
        }
        Ok(names)
    }

    /// The value of the extended attribute `name`.
    pub async fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        for stored in self.visible().stored(name) {
            if let Some(value) = self.stored_xattr(stored).await? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    async fn stored_xattr(&self, stored: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(list) = self.attribute_list()?
            && let Some(value) = list.get_bytes(stored)
        {
            return match value {
                NvValue::ByteArray(bytes) => Ok(Some(bytes.to_vec())),
                _ => Err(self.object.corrupt("an extended attribute that is not bytes")),
            };
        }
        // `.` and `..` are not attributes.
        if matches!(stored, b"." | b"..") {
            return Ok(None);
        }
        let Some(dir) = self.xattr_dir().await? else {
            return Ok(None);
        };
        let Some(id) = dir.lookup(stored).await? else {
            return Ok(None);
        };
        let file = self.zpl.node(id).await?;
        file.object.read_all(file.size(), MAX_VALUE).await.map(Some)
    }

    /// The attributes that are stored with the system attributes.
    fn attribute_list(&self) -> Result<Option<Nvlist>> {
        let Some(packed) = self.attributes.bytes(Attr::Dxattr).filter(|packed| !packed.is_empty()) else {
            return Ok(None);
        };
        Nvlist::parse(packed).map(Some).map_err(|error| self.object.corrupt(error))
    }

    /// The directory of the attributes that are files.
    async fn xattr_dir(&self) -> Result<Option<Znode>> {
        match self.attributes.number(Attr::Xattr).unwrap_or(0) {
            0 => Ok(None),
            id => Box::pin(self.zpl.node(ObjectId(id))).await.map(Some),
        }
    }
}
