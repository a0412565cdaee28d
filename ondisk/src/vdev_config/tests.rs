use proptest::prelude::*;

use super::*;

fn list(pairs: &[(&str, NvValue)]) -> Nvlist {
    let mut list = Nvlist::new();
    for (name, value) in pairs {
        list.push(*name, value.clone());
    }
    list
}

fn file(id: u64) -> Nvlist {
    list(&[("type", "file".into()), ("id", id.into()), ("guid", (100 + id).into()), ("path", "/d".into())])
}

fn parent(kind: &str, children: u64, more: &[(&str, NvValue)]) -> Nvlist {
    let mut parent = list(&[("type", kind.into()), ("id", 0u64.into()), ("guid", 7u64.into())]);
    more.iter().for_each(|(name, value)| parent.push(*name, value.clone()));
    parent.push("children", (0..children).map(file).collect::<Vec<_>>());
    parent
}

#[test]
fn a_mirror_keeps_what_its_configuration_says() {
    let mirror = parent(
        "mirror",
        2,
        &[("ashift", 12u64.into()), ("asize", (1u64 << 30).into()), ("DTL", 5u64.into())],
    );
    let config = VdevConfig::parse(&mirror).unwrap();
    assert_eq!((config.kind.clone(), config.ashift), (VdevKind::Mirror, Some(12)));
    assert_eq!((config.asize, config.dtl_object), (Some(Asize(1 << 30)), Some(ObjectId(5))));
    let guids: Vec<u64> = config.leaves().iter().map(|leaf| leaf.guid.0).collect();
    assert_eq!(guids, [100, 101]);
}

#[test]
fn impossible_layouts_are_refused() {
    let raidz = |children, nparity: u64| {
        VdevConfig::parse(&parent("raidz", children, &[("nparity", nparity.into())]))
    };
    assert!(raidz(3, 2).is_ok());
    assert!(raidz(2, 2).is_err());
    assert!(raidz(5, 4).is_err());
    assert!(raidz(5, 0).is_err());
    let draid = |children, ndata: u64, nspares: u64| {
        let more = [
            ("nparity", 2u64.into()),
            ("draid_ndata", ndata.into()),
            ("draid_nspares", nspares.into()),
            ("draid_ngroups", 7u64.into()),
        ];
        VdevConfig::parse(&parent("draid", children, &more))
    };
    assert!(draid(8, 4, 1).is_ok());
    assert!(draid(6, 4, 1).is_err());
    assert!(draid(8, 0, 1).is_err());
    assert!(VdevConfig::parse(&parent("mirror", 0, &[])).is_err());
    assert!(VdevConfig::parse(&parent("file", 1, &[])).is_err());
    assert!(VdevConfig::parse(&parent("mirror", 2, &[("ashift", 64u64.into())])).is_err());
    assert!(matches!(VdevConfig::parse(&parent("raid5", 2, &[])), Err(Error::Unsupported { .. })));
}

#[test]
fn an_expanded_raidz_must_have_begun_wider_than_its_parity() {
    let expanded = |children: u64, txgs: Vec<u64>| {
        VdevConfig::parse(&parent(
            "raidz",
            children,
            &[("nparity", 1u64.into()), ("raidz_expand_txgs", txgs.into())],
        ))
    };
    assert_eq!(
        expanded(5, vec![40, 50]).unwrap().kind,
        VdevKind::Raidz { nparity: 1, expanding: false, expand_txgs: vec![Txg(40), Txg(50)] }
    );
    assert!(expanded(3, vec![40, 50]).is_err());
}

#[test]
fn depth_is_bounded() {
    let mut tree = file(0);
    for _ in 0..MAX_DEPTH {
        let mut outer = list(&[("type", "mirror".into()), ("guid", 1u64.into())]);
        outer.push("children", vec![tree]);
        tree = outer;
    }
    assert!(matches!(VdevConfig::parse(&tree), Err(Error::TooLarge { .. })));
}

#[test]
fn the_label_of_a_spare_has_no_pool() {
    let label = list(&[("version", 5000u64.into()), ("state", 3u64.into()), ("guid", 9u64.into())]);
    let config = PoolConfig::parse(label).unwrap();
    assert_eq!((config.state, config.guid, config.pool_guid), (PoolState::Spare, Some(Guid(9)), None));
    assert!(config.vdev_tree.is_none());
}

#[test]
fn a_pool_lists_the_features_that_readers_need() {
    let features =
        list(&[("com.delphix:hole_birth", NvValue::Boolean), ("org.openzfs:draid", NvValue::Boolean)]);
    let pool = list(&[
        ("version", 5000u64.into()),
        ("name", "tank".into()),
        ("state", 1u64.into()),
        ("txg", 32u64.into()),
        ("pool_guid", 1u64.into()),
        ("vdev_children", 1u64.into()),
        ("vdev_tree", parent("mirror", 2, &[]).into()),
        ("features_for_read", features.into()),
    ]);
    let config = PoolConfig::parse(pool).unwrap();
    assert_eq!(config.features_for_read, ["com.delphix:hole_birth".into(), "org.openzfs:draid".into()]);
    assert_eq!((config.txg, config.vdev_children), (Some(Txg(32)), Some(1)));
    assert_eq!(config.vdev_tree.unwrap().children.len(), 2);
}

fn flag() -> impl Strategy<Value = bool> {
    any::<bool>()
}

proptest! {
    #[test]
    fn trees_round_trip(
        kind in 0usize..9, flags in proptest::collection::vec(flag(), 14), ashift in 9u8..=16, object in 1u64..,
        txg: u64, children in 5u64..9,
    ) {
        let kinds = [
            VdevKind::Mirror, VdevKind::Replacing, VdevKind::Spare,
            VdevKind::Raidz { nparity: 2, expanding: flags[0], expand_txgs: vec![Txg(txg)] },
            VdevKind::Draid { nparity: 1, ndata: 3, nspares: 1, ngroups: 9 },
            VdevKind::DraidSpare { top_guid: Guid(object), spare_id: 3 },
            VdevKind::Disk, VdevKind::Indirect, VdevKind::Hole,
        ];
        let kind = kinds[kind].clone();
        let children = if kind.is_leaf() { 0 } else { children };
        let some = |flag: usize, id: u64| flags[flag].then_some(ObjectId(id));
        let config = VdevConfig {
            children: (0..children).map(|id| VdevConfig::parse(&file(id)).unwrap()).collect(),
            kind,
            path: flags[2].then(|| "/dev/sda".into()),
            whole_disk: Some(flags[3]),
            not_present: flags[4],
            is_spare: flags[5],
            is_log: flags[6],
            allocation_bias: flags[7].then_some(AllocationBias::Special),
            metaslab_array: some(8, object),
            metaslab_shift: Some(29),
            ashift: Some(ashift),
            asize: flags[9].then_some(Asize(txg)),
            non_allocating: flags[10],
            removing: flags[11],
            dtl_object: some(1, object),
            indirect_object: some(12, object),
            prev_indirect_vdev: flags[13].then_some(VdevId(4)),
            create_txg: Some(Txg(txg)),
            top_zap: some(2, object),
            leaf_zap: some(3, object),
            root_zap: some(4, object),
            resilver_deferred: flags[5],
            offline: flags[6],
            faulted: flags[7],
            degraded: flags[8],
            removed: flags[9],
            unspare: flags[10],
            aux_state: flags[11].then(|| "external".into()),
            resilver_txg: flags[12].then_some(Txg(txg)),
            rebuild_txg: flags[13].then_some(Txg(txg)),
            orig_guid: flags[0].then_some(Guid(object)),
            ..VdevConfig::parse(&file(3)).unwrap()
        };
        prop_assert_eq!(VdevConfig::parse(&config.to_nvlist()).unwrap(), config);
    }
}
