//! Inputs of the targets that compute with raidz and dRAID: parameters of real vdevs, places of real blocks,
//! and rows of real data.
//!
//! Each input is laid out as its target takes it apart (`src/geometry.rs`).

use ondisk::blkptr::Blkptr;
use ondisk::vdev_config::{VdevConfig, VdevKind};

use crate::Corpus;

/// Places that the targets look at in one call.
const PLACES: usize = 4;
/// Bytes of a column that is reconstructed.
const COLUMN: usize = 64;

/// The vdev of a pool that has parity, and blocks that lie on it.
#[derive(Default)]
pub struct Layouts {
    vdev: Option<(u8, VdevConfig)>,
    blocks: Vec<[u64; 3]>,
}

impl Layouts {
    /// Takes the vdev that a label tells of.
    pub fn take_vdev(&mut self, top: VdevConfig) {
        self.vdev = top.ashift.map(|ashift| (ashift, top));
    }

    /// Takes the place of a block: offset, size, birth.
    pub fn take_block(&mut self, bp: &Blkptr) {
        let size = bp.psize().get();
        let places = bp.dvas().map(|dva| [dva.offset.get(), size, bp.physical_birth().get()]);
        self.blocks.extend(places.filter(|place| !self.blocks.contains(place)).collect::<Vec<_>>());
    }

    /// The parameters of the vdev, before some of the places and before others.
    pub fn keep(&self, corpus: &mut Corpus) {
        let Some((ashift, top)) = &self.vdev else { return };
        let children = top.children.len() as u16;
        let (target, front) = match &top.kind {
            VdevKind::Raidz { nparity, expand_txgs, .. } => {
                let mut front = vec![*ashift, *nparity];
                front.extend(children.to_le_bytes());
                front.extend([0, expand_txgs.len() as u8]);
                for txg in expand_txgs {
                    front.extend(txg.get().to_le_bytes());
                    front.push(0);
                }
                ("raidz", front)
            }
            VdevKind::Draid { nparity, ndata, nspares, ngroups } => {
                ("draid", vec![*ndata, *nparity, *nspares, *ngroups, children as u8, *ashift])
            }
            _ => return,
        };
        for (kind, places) in (0u8..).zip(self.blocks.chunks(PLACES).take(2)) {
            let mut bytes = front.clone();
            for [offset, size, birth] in places {
                // Each number is followed by how far it is shifted.
                bytes.extend(offset.to_le_bytes());
                bytes.push(0);
                bytes.extend(size.to_le_bytes());
                bytes.push(0);
                match target {
                    "raidz" => bytes.extend(birth.to_le_bytes()),
                    _ => bytes.extend([0; 4]),
                }
            }
            corpus.keep(target, kind, &bytes);
        }
    }

    /// A row of as many columns as the vdev has, with some of them missing.
    pub fn keep_row(&self, data: &[u8], corpus: &mut Corpus) {
        let Some((_, top)) = &self.vdev else { return };
        let (VdevKind::Raidz { nparity, .. } | VdevKind::Draid { nparity, .. }) = top.kind else { return };
        let columns = top.children.len().saturating_sub(nparity.into());
        if data.len() < columns * COLUMN {
            return;
        }
        for missing in 1..=nparity {
            let mut bytes = vec![nparity, missing];
            // The last parity and the first data, or more of both.
            bytes.extend((0..missing).map(|index| nparity - 1 + index));
            bytes.extend([columns as u8, COLUMN as u8]);
            for column in data.chunks(COLUMN).take(columns) {
                bytes.push(0);
                bytes.extend(column);
            }
            corpus.keep("reconstruct", missing, &bytes);
        }
    }
}
