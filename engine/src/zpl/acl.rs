//! The ACL of every file: NFSv4 entries, which the mode summarizes.
//!
//! The Linux port stores these entries but neither shows nor obeys them; access is by mode, and by POSIX ACLs
//! with `acltype=posix`. They are available here for tools that inspect a pool.

use ondisk::sa::Attr;
use ondisk::zpl::{Ace, AclPhys, parse_aces};

use super::Znode;
use crate::Result;

/// The longest list of entries (OpenZFS allows 1024, of at most 48 bytes).
const MAX_BYTES: usize = 64 << 10;
/// The version of entries in files that have system attributes.
const VERSION: u16 = 1;

impl Znode {
    /// The entries of the file's ACL, in order.
    pub async fn acl(&self) -> Result<Vec<Ace>> {
        let attributes = &self.attributes;
        if !attributes.is_old() {
            let Some(bytes) = attributes.bytes(Attr::DaclAces) else {
                return Ok(Vec::new());
            };
            let count = attributes.required(Attr::DaclCount)?;
            let order = attributes.order(Attr::DaclAces);
            return parse_aces(bytes, VERSION, count, order).map_err(|error| self.object.corrupt(error));
        }
        let Some(bytes) = attributes.bytes(Attr::ZnodeAcl) else {
            return Ok(Vec::new());
        };
        let acl = AclPhys::parse(bytes, attributes.order(Attr::ZnodeAcl))
            .map_err(|error| self.object.corrupt(error))?;
        let Some(id) = acl.external else {
            return acl.inline_aces().map_err(|error| self.object.corrupt(error));
        };
        let object = self.zpl.objset().object(id).await?;
        let order = object.block(0).await?.map_or(acl.order, |first| first.order);
        let bytes = object.read_all(acl.size, MAX_BYTES).await?;
        parse_aces(&bytes, acl.version, acl.count, order).map_err(|error| object.corrupt(error))
    }
}
