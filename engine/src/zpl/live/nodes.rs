//! Reading and changing a file's attributes.

use std::ops::Range;
use std::sync::Arc;

use ondisk::dmu::DmuType;
use ondisk::sa::Attr;
use ondisk::zpl::{FileType, ZnodeFlags};
use ondisk::{ByteOrder, ObjectId};

use super::LiveZpl;
use crate::dmu::LiveObject;
use crate::error::{Error, Result};
use crate::txg::Tx;
use crate::zpl::{Time, Znode};

/// A file whose lock is held.
pub(super) struct Node {
    pub(super) object: Arc<LiveObject>,
    pub(super) znode: Znode,
    /// Whether it is changed by a replay: logged changes were allowed, so the rules for users do not apply.
    pub(super) is_replayed: bool,
}

/// New values of attributes, one behind the other in one buffer; an attribute without a value is removed.
#[derive(Default)]
pub(super) struct Values {
    bytes: Vec<u8>,
    places: Vec<(Attr, Option<Range<usize>>)>,
}

impl Values {
    pub(super) fn number(self, attr: Attr, value: u64) -> Self {
        self.bytes(attr, &value.to_le_bytes())
    }

    pub(super) fn time(self, attr: Attr, time: Time) -> Self {
        self.bytes(attr, &time.stored())
    }

    pub(super) fn bytes(mut self, attr: Attr, bytes: &[u8]) -> Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.places.push((attr, Some(start..self.bytes.len())));
        self
    }

    pub(super) fn without(mut self, attr: Attr) -> Self {
        self.places.push((attr, None));
        self
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Attr, Option<&[u8]>)> {
        self.places.iter().map(|(attr, place)| (*attr, place.clone().and_then(|place| self.bytes.get(place))))
    }

    /// The value of one attribute, if it is set, and the others.
    pub(super) fn take(self, attr: Attr) -> (Option<Vec<u8>>, Self) {
        let mut value = None;
        let mut rest = Self::default();
        for (other, bytes) in self.iter() {
            match bytes {
                Some(bytes) if other == attr => value = Some(bytes.to_vec()),
                Some(bytes) => rest = rest.bytes(other, bytes),
                None => rest = rest.without(other),
            }
        }
        (value, rest)
    }

    /// The new values, if no attribute is removed.
    pub(super) fn given(&self) -> Option<Vec<(Attr, &[u8])>> {
        self.iter().map(|(attr, value)| Some((attr, value?))).collect()
    }
}

impl Node {
    pub(super) fn id(&self) -> ObjectId {
        self.object.id()
    }

    pub(super) fn is_directory(&self) -> bool {
        self.znode.file_type() == FileType::Directory
    }

    /// An attribute that every file has.
    pub(super) fn number(&self, attr: Attr) -> Result<u64> {
        self.znode.attributes.required(attr)
    }

    pub(super) fn flags(&self) -> Result<ZnodeFlags> {
        self.number(Attr::Flags).map(ZnodeFlags)
    }
}

impl LiveZpl {
    /// The present state of a file.
    pub(super) async fn node(&self, id: ObjectId) -> Result<Node> {
        let object = self.objset.object(id).await?;
        let znode = self.zpl.node(id).await?;
        if znode.attributes.is_old() && znode.attributes.order(Attr::Mode) != ByteOrder::Little {
            let what = format!("objset {}, object {id}", self.objset.id());
            return Err(Error::Unsupported(format!(
                "{what}: written by a big-endian machine before system attributes, can only be read"
            )));
        }
        Ok(Node { object, znode, is_replayed: self.journal.is_applying() })
    }

    /// Changes attributes of a file.
    pub(super) async fn update(&self, object: &Arc<LiveObject>, tx: &Tx, values: Values) -> Result<()> {
        if object.bonus_type() == DmuType::ZNODE {
            return self.update_old(object, tx, &values).await;
        }
        let registry = self.registry()?;
        if let Some(same) = values.given()
            && registry.overwrite(object, tx, &same)?
        {
            return Ok(());
        }
        let mut set = registry.read(object).await?;
        let changes: Vec<_> = values.iter().collect();
        registry.change(&mut set, &changes)?;
        registry.write(object, tx, &set).await
    }

    /// Sets the attributes of a file that was just created.
    pub(super) async fn fill(&self, object: &Arc<LiveObject>, tx: &Tx, values: Values) -> Result<()> {
        if object.bonus_type() == DmuType::ZNODE {
            return self.fill_old(object, tx, values).await;
        }
        let registry = self.registry()?;
        let mut set = Default::default();
        let changes: Vec<_> = values.iter().collect();
        registry.change(&mut set, &changes)?;
        registry.write(object, tx, &set).await
    }

    /// The attributes of a directory after it got or lost entries: `entries` more entries, and `links` more
    /// directories in it than in `node`.
    pub(super) async fn directory_changed(
        &self,
        node: &Node,
        tx: &Tx,
        entries: i64,
        links: i64,
        now: Time,
    ) -> Result<()> {
        let size = node.number(Attr::Size)?.saturating_add_signed(entries);
        let links = node.number(Attr::Links)?.saturating_add_signed(links);
        let flags = node.flags()?.0 | ZnodeFlags::ARCHIVE.0 | ZnodeFlags::AV_MODIFIED.0;
        let values = Values::default()
            .number(Attr::Size, size)
            .number(Attr::Links, links)
            .number(Attr::Flags, flags)
            .time(Attr::Mtime, now)
            .time(Attr::Ctime, now);
        self.update(&node.object, tx, values).await
    }
}
