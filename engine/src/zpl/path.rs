//! From an object number to a path.

use std::sync::Arc;

use ondisk::ObjectId;

use super::{Znode, Zpl};
use crate::Result;
use crate::dmu::sa::Attr;

/// The deepest path that is followed. Linux limits only the length of a path, to 4096 bytes.
const MAX_DEPTH: usize = 2048;
/// The component of a path for the hidden directory of a file's extended attributes.
const XATTR_DIR: &[u8] = b"<xattrdir>";

impl Zpl {
    /// A path of the object `id` from the root of the filesystem, beginning with a slash; of several hard
    /// links the newest one. `None` when it has no name: it was unlinked, or a directory above it does not
    /// list it.
    pub async fn path_of(self: &Arc<Self>, id: ObjectId) -> Result<Option<Vec<u8>>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut node = self.node(id).await?;
        while node.id() != self.root() {
            let parent = self.node(node.parent()?).await?;
            if names.len() >= MAX_DEPTH || parent.id() == node.id() {
                return Ok(None);
            }
            if parent.attributes.number(Attr::Xattr) == Some(node.id().0) {
                names.push(XATTR_DIR.to_vec());
            } else {
                match parent.name_of(node.id()).await? {
                    Some(name) => names.push(name),
                    None => return Ok(None),
                }
            }
            node = parent;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Ok(Some(if path.is_empty() { b"/".to_vec() } else { path }))
    }
}

impl Znode {
    /// The first name of object `id` in this directory.
    pub async fn name_of(&self, id: ObjectId) -> Result<Option<Vec<u8>>> {
        // From the first entry after `.` and `..`.
        let mut entries = self.read_dir(2).await?;
        while let Some(entry) = entries.next().await? {
            if entry.object == id {
                return Ok(Some(entry.name));
            }
        }
        Ok(None)
    }
}
