//! An object set that is looked at, with what its objects mean.

use std::sync::Arc;

use engine::Error;
use engine::dmu::Objset;
use engine::dmu::sa::Registry;
use engine::dmu::zap::lookup_u64;
use engine::zpl::{Zpl, ZplOptions};
use ondisk::ObjectId;
use ondisk::objset::ObjsetType;
use ondisk::zpl::{MASTER_NODE, master};

use super::View;

/// An object set that is looked at, and what is needed to understand its objects.
pub(super) struct ObjsetView<'a> {
    pub view: &'a View<'a>,
    pub objset: &'a Arc<Objset>,
    /// Of an encrypted dataset without its key; much of it is ciphertext.
    pub keyless: bool,
    /// The tables of attributes, in a filesystem.
    pub attributes: Option<Registry>,
    /// The filesystem, for paths.
    pub files: Option<Arc<Zpl>>,
    /// The line of headings was not printed yet.
    pub header_due: bool,
}

impl<'a> ObjsetView<'a> {
    pub async fn new(view: &'a View<'a>, objset: &'a Arc<Objset>) -> Self {
        let keyless = objset.root().uses_crypt() && !view.dsl.pool().keystore().is_loaded(objset.id());
        let (mut attributes, mut files) = (None, None);
        if view.arguments.datasets >= 4 && has_files(objset) && !keyless {
            // Objects of a damaged filesystem are shown all the same, with less meaning.
            attributes = registry(objset).await.ok();
            files = Zpl::open(objset, ZplOptions::default()).await.ok();
        }
        Self { view, objset, keyless, attributes, files, header_due: true }
    }

    /// How often `-d` was given.
    pub fn verbosity(&self) -> u8 {
        self.view.arguments.datasets
    }
}

async fn registry(objset: &Arc<Objset>) -> Result<Registry, Error> {
    let master_node = objset.object(MASTER_NODE).await?;
    match lookup_u64(&master_node, master::SA_ATTRS).await? {
        Some(id) => Registry::load(objset, ObjectId(id)).await,
        None => Ok(Registry::default()),
    }
}

/// Whether files of an object set can be looked at: it is a filesystem.
pub(super) fn has_files(objset: &Objset) -> bool {
    objset.objset_type() == ObjsetType::Zfs
}
