//! Every block of the raidz and dRAID pools is found where the maps say, and rebuilt from the parity that
//! OpenZFS wrote.

use crate::walk::{Walk, read_front, uberblock};
use codec::draid::{Draid, DraidConfig};
use codec::raidz::{Map, Raidz, reconstruct};
use ondisk::blkptr::Blkptr;
use ondisk::label::{VDEV_PHYS, parse_config};
use ondisk::vdev_config::{VdevConfig, VdevKind};
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Of how many blocks one is rebuilt under every pattern of losses.
const REBUILD_EVERY: usize = 16;

enum Layout {
    Raidz(Raidz),
    Draid(Draid),
}

impl Layout {
    fn of(vdev: &VdevConfig) -> Self {
        let (children, ashift) = (vdev.children.len(), vdev.ashift.unwrap().into());
        match &vdev.kind {
            VdevKind::Raidz { nparity, expanding: false, expand_txgs } => {
                let txgs: Vec<u64> = expand_txgs.iter().map(|txg| txg.get()).collect();
                Self::Raidz(Raidz::expanded(ashift, (*nparity).into(), children, &txgs, None).unwrap())
            }
            &VdevKind::Draid { nparity, ndata, nspares, ngroups } => {
                let (data, nparity, spares, groups) =
                    (ndata.into(), nparity.into(), nspares.into(), ngroups.into());
                Self::Draid(
                    Draid::new(DraidConfig { data, nparity, spares, groups, children, ashift }).unwrap(),
                )
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    fn map(&self, offset: u64, psize: u64, txg: u64) -> (Map, u64) {
        match self {
            Self::Raidz(raidz) => (raidz.map(offset, psize, txg).unwrap(), raidz.asize(psize, txg).unwrap()),
            Self::Draid(draid) => (draid.map(offset, psize).unwrap(), draid.asize(psize).unwrap()),
        }
    }
}

/// Asserts that each loss of as many columns as there is parity is made good.
fn rebuild_in_every_way(nparity: usize, row: &[Vec<u8>]) {
    for set in 0u32..1 << row.len() {
        let missing: Vec<usize> = (0..row.len()).filter(|column| set >> column & 1 != 0).collect();
        if missing.len() != nparity {
            continue;
        }
        let mut columns = row.to_vec();
        missing.iter().for_each(|&column| columns[column].fill(0x5a));
        reconstruct(nparity, &mut columns.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(), &missing)
            .unwrap();
        assert!(columns == row, "without columns {missing:?}");
    }
}

fn read_pool(name: &str) {
    let Some(pool) = testkit::golden::pool(name) else { return };
    let disks: Vec<File> = pool.disks().iter().map(|path| File::open(path).unwrap()).collect();
    let mut label = vec![0; (VDEV_PHYS.end - VDEV_PHYS.start) as usize];
    disks[0].read_exact_at(&mut label, VDEV_PHYS.start).unwrap();
    let config = parse_config(&label).unwrap();
    let layout = Layout::of(&VdevConfig::parse(config.find_nvlist("vdev_tree").unwrap()).unwrap());

    let blocks = Cell::new(0usize);
    let fetch = |bp: &Blkptr| {
        blocks.set(blocks.get() + 1);
        let dva = bp.dva(0).unwrap();
        let (map, asize) = layout.map(dva.offset.get(), bp.psize().get(), bp.physical_birth().get());
        assert_eq!(asize, dva.asize.get(), "{bp}");
        let columns: Vec<Vec<u8>> = map
            .columns()
            .iter()
            .map(|column| read_front(&disks[column.child], column.offset, column.size))
            .collect();
        if blocks.get().is_multiple_of(REBUILD_EVERY) {
            columns.chunks(map.width()).for_each(|row| rebuild_in_every_way(map.nparity(), row));
        }
        let mut data = vec![0; map.data_bytes() as usize];
        for (index, (column, bytes)) in map.columns().iter().zip(&columns).enumerate() {
            if index % map.width() >= map.nparity() {
                data[column.block_offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        data.truncate(bp.psize().get() as usize);
        data
    };
    let uberblock = uberblock(&disks[0]);
    let mut walk = Walk::new(&fetch, None);
    let (mos, dnodes) = walk.dnodes(&uberblock.root_bp);
    walk.objects(&mos, &dnodes);
    for root in walk.dataset_roots(&uberblock).values() {
        let (objset, dnodes) = walk.dnodes(root);
        walk.objects(&objset, &dnodes);
    }
    assert!(blocks.get() > 100, "only {} blocks found", blocks.get());
}

#[test]
fn raidz1_with_large_and_small_sectors() {
    read_pool("rz1");
    read_pool("rz1s9");
}

#[test]
fn raidz2() {
    read_pool("rz2");
}

#[test]
fn raidz3() {
    read_pool("rz3");
}

#[test]
fn raidz_before_and_after_its_expansion() {
    read_pool("expanded");
}

#[test]
fn draid() {
    read_pool("dr2");
}
