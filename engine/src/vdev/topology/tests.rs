use ondisk::{Asize, ObjectId, Txg};

use super::*;

const PARENT: Guid = Guid(900);

fn file(guid: u64, path: &str) -> VdevConfig {
    let mut leaf = VdevConfig::blank(VdevKind::File, Guid(guid));
    leaf.path = Some(ByteString::new(path.as_bytes()));
    leaf.create_txg = Some(Txg(4));
    leaf
}

fn spare(guid: u64, path: &str) -> VdevConfig {
    VdevConfig { is_spare: true, ..file(guid, path) }
}

/// A top-level vdev, with what belongs to its place.
fn top(mut vdev: VdevConfig) -> VdevConfig {
    (vdev.id, vdev.ashift, vdev.asize) = (Some(VdevId(2)), Some(12), Some(Asize(1 << 30)));
    (vdev.metaslab_array, vdev.metaslab_shift, vdev.top_zap) =
        (Some(ObjectId(7)), Some(24), Some(ObjectId(8)));
    number(&mut vdev);
    vdev
}

fn above(kind: VdevKind, guid: u64, children: Vec<VdevConfig>) -> VdevConfig {
    let mut vdev = VdevConfig { children, ..VdevConfig::blank(kind, Guid(guid)) };
    vdev.create_txg = Some(Txg(4));
    number(&mut vdev);
    vdev
}

/// The tree in words: kinds, guids, and what children are called.
fn shape(vdev: &VdevConfig) -> String {
    let inside: Vec<String> = vdev.children.iter().map(shape).collect();
    let inside = if inside.is_empty() { String::new() } else { format!("({})", inside.join(" ")) };
    assert!((0..).zip(&vdev.children).all(|(id, child)| child.id == Some(VdevId(id))), "numbers");
    format!("{}{}{inside}", if vdev.kind.is_leaf() { "" } else { vdev.kind.type_name() }, vdev.guid)
}

fn attached(top: &VdevConfig, at: u64, new: VdevConfig, purpose: Purpose) -> String {
    shape(&attach(top, Guid(at), new, purpose, PARENT).expect("is attached"))
}

fn refusal(top: &VdevConfig, at: u64, new: VdevConfig, purpose: Purpose) -> String {
    attach(top, Guid(at), new, purpose, PARENT).expect_err("is refused").to_string()
}

#[test]
fn a_device_without_copies_becomes_a_mirror_that_has_its_place() {
    let old = VdevConfig { is_log: true, ..top(file(1, "a")) };
    let new = attach(&old, Guid(1), file(2, "b"), Purpose::Mirror, PARENT).unwrap();
    assert_eq!(shape(&new), "mirror900(1 2)");
    let place = |vdev: &VdevConfig| {
        (
            vdev.id,
            vdev.ashift,
            vdev.asize,
            vdev.metaslab_array,
            vdev.metaslab_shift,
            vdev.top_zap,
            vdev.is_log,
        )
    };
    assert_eq!(place(&new), place(&old));
    let nothing = (Some(VdevId(0)), None, None, None, None, None, false);
    assert_eq!(place(&new.children[0]), nothing);
    assert_eq!((new.create_txg, new.children[1].create_txg), (Some(Txg(4)), Some(Txg(4))));

    // And back.
    let Detached { top: back, leaf, renamed, unspared } = detach(&new, Guid(2)).unwrap();
    assert_eq!((shape(&back), leaf.guid, unspared), ("900".into(), Guid(2), None));
    assert_eq!(renamed, Some(Renamed { from: Guid(1), to: PARENT }));
    assert_eq!((place(&back), back.path), (place(&old), old.path));
}

#[test]
fn a_mirror_takes_more_and_gives_them_back() {
    let mirror = top(above(VdevKind::Mirror, 9, vec![file(1, "a"), file(2, "b")]));
    assert_eq!(attached(&mirror, 2, file(3, "c"), Purpose::Mirror), "mirror9(1 2 3)");
    let three = attach(&mirror, Guid(2), file(3, "c"), Purpose::Mirror, PARENT).unwrap();
    let two = detach(&three, Guid(1)).unwrap();
    assert_eq!((shape(&two.top), two.renamed), ("mirror9(2 3)".into(), None));
}

#[test]
fn what_replaces_a_device_comes_beside_it() {
    let raidz = VdevKind::Raidz { nparity: 1, expanding: false, expand_txgs: Vec::new() };
    let raidz = top(above(raidz, 9, vec![file(1, "a"), file(2, "b"), file(3, "c")]));
    let replacing = attach(&raidz, Guid(2), file(4, "d"), Purpose::Replace, PARENT).unwrap();
    assert_eq!(shape(&replacing), "raidz9(1 replacing900(2 4) 3)");
    assert_eq!(attached(&replacing, 4, file(5, "e"), Purpose::Replace), "raidz9(1 replacing900(2 4 5) 3)");
    assert_eq!(shape(&detach(&replacing, Guid(2)).unwrap().top), "raidz9(1 4 3)");
    assert_eq!(shape(&detach(&replacing, Guid(4)).unwrap().top), shape(&raidz));
    assert_eq!(detach(&replacing, Guid(4)).unwrap().renamed, None);
    assert_eq!(attached(&raidz, 1, spare(4, "d"), Purpose::Replace), "raidz9(spare900(1 4) 2 3)");
    let mirror = top(above(VdevKind::Mirror, 9, vec![file(1, "a"), file(2, "b")]));
    assert_eq!(attached(&mirror, 1, file(3, "c"), Purpose::Replace), "mirror9(replacing900(1 3) 2)");
    assert_eq!(attached(&top(file(1, "a")), 1, file(3, "c"), Purpose::Replace), "replacing900(1 3)");
}

#[test]
fn what_cannot_be_attached_is_refused() {
    let raidz = VdevKind::Raidz { nparity: 1, expanding: false, expand_txgs: Vec::new() };
    let raidz = top(above(raidz, 9, vec![file(1, "a"), file(2, "b")]));
    assert!(refusal(&raidz, 1, file(3, "c"), Purpose::Mirror).contains("mirrors and top-level disks"));
    assert!(refusal(&raidz, 9, file(3, "c"), Purpose::Mirror).contains("expanding raidz"));
    assert!(refusal(&raidz, 77, file(3, "c"), Purpose::Mirror).contains("77"));
    let log = VdevConfig { is_log: true, ..top(file(1, "a")) };
    assert!(refusal(&log, 1, spare(3, "c"), Purpose::Replace).contains("log with a spare"));
    let spared = top(above(VdevKind::Spare, 9, vec![file(1, "a"), spare(2, "b")]));
    assert!(refusal(&spared, 1, spare(3, "c"), Purpose::Replace).contains("already in"));
    assert!(refusal(&spared, 2, file(3, "c"), Purpose::Replace).contains("another hot spare"));
    assert_eq!(attached(&spared, 2, spare(3, "c"), Purpose::Replace), "spare9(1 2 3)");
    assert_eq!(attached(&spared, 1, file(3, "c"), Purpose::Replace), "spare9(replacing900(1 3) 2)");
    assert!(detach(&raidz, Guid(1)).unwrap_err().to_string().contains("only applicable to mirror"));
    assert!(detach(&log, Guid(1)).is_err());
    assert!(detach(&spared, Guid(9)).is_err());
}

#[test]
fn a_device_that_is_replaced_by_itself_gets_another_path_meanwhile() {
    let path =
        |vdev: &VdevConfig| String::from_utf8_lossy(vdev.path.as_ref().unwrap().as_bytes()).into_owned();
    let replacing = attach(&top(file(1, "a")), Guid(1), file(2, "a"), Purpose::Replace, PARENT).unwrap();
    assert_eq!([path(&replacing.children[0]), path(&replacing.children[1])], ["a/old", "a"]);
    assert_eq!(path(&detach(&replacing, Guid(2)).unwrap().top), "a");
    assert_eq!(path(&detach(&replacing, Guid(1)).unwrap().top), "a");
}

#[test]
fn the_spare_of_a_device_that_is_detached_is_an_ordinary_device() {
    let mirror = vec![above(VdevKind::Spare, 9, vec![file(1, "a"), spare(2, "b")]), file(3, "c")];
    let mirror = top(above(VdevKind::Mirror, 8, mirror));
    let detached = detach(&mirror, Guid(1)).unwrap();
    assert_eq!((shape(&detached.top), detached.unspared), ("mirror8(2 3)".into(), Some(Guid(2))));
    assert!(!detached.top.children[0].is_spare && !detached.top.children[0].unspare);
    let detached = detach(&mirror, Guid(2)).unwrap();
    assert_eq!((shape(&detached.top), detached.unspared), ("mirror8(1 3)".into(), None));
}

/// Detaches all devices whose work is done. `lacking` have not everything, `needed` have something alone.
fn settled(top: &VdevConfig, lacking: &[u64], needed: &[u64]) -> VdevConfig {
    let has_all = |guid: Guid| !lacking.contains(&guid.get());
    let is_needed = |guid: Guid| needed.contains(&guid.get());
    let mut top = top.clone();
    for _ in 0..10 {
        let Some(Done { leaf, parent, holder }) = next_done(&top, &has_all, &is_needed) else { return top };
        assert!(has_all(holder) && find(&top, holder).is_some(), "{holder}");
        assert_eq!(parent_of(&top, leaf).map(|above| above.guid), Some(parent));
        top = detach(&top, leaf).expect("is one of several").top;
    }
    panic!("never done: {}", shape(&top))
}

fn mirror(first: VdevConfig) -> VdevConfig {
    top(above(VdevKind::Mirror, 90, vec![first, file(91, "z")]))
}

#[test]
fn a_replaced_device_goes_when_the_new_one_has_everything() {
    let replacing = mirror(above(VdevKind::Replacing, 9, vec![file(1, "a"), file(2, "b")]));
    assert_eq!(shape(&settled(&replacing, &[], &[])), "mirror90(2 91)");
    assert_eq!(shape(&settled(&replacing, &[2], &[])), shape(&replacing), "the new one lacks something");
    assert_eq!(shape(&settled(&replacing, &[], &[1])), shape(&replacing), "the old one is needed");
    let twice = mirror(above(VdevKind::Replacing, 9, vec![file(1, "a"), file(2, "b"), file(3, "c")]));
    assert_eq!(shape(&settled(&twice, &[], &[])), "mirror90(3 91)");
    assert_eq!(shape(&settled(&twice, &[3], &[])), shape(&twice));
}

#[test]
fn a_spare_goes_when_the_original_is_said_to_be_back() {
    let mut spared = mirror(above(VdevKind::Spare, 9, vec![file(1, "a"), spare(2, "b")]));
    assert_eq!(shape(&settled(&spared, &[], &[])), shape(&spared), "it may not be trusted yet");
    assert!(set_unspare(&mut spared, &[Guid(1)]) && !set_unspare(&mut spared, &[Guid(1)]));
    assert_eq!(shape(&settled(&spared, &[1], &[])), shape(&spared));
    assert_eq!(shape(&settled(&spared, &[], &[])), "mirror90(1 91)");
    let mut two = mirror(above(VdevKind::Spare, 9, vec![file(1, "a"), spare(2, "b"), spare(3, "c")]));
    assert_eq!(shape(&settled(&two, &[], &[])), "mirror90(spare9(1 3) 91)", "one is enough");
    assert!(set_unspare(&mut two, &[Guid(1)]));
    assert_eq!(shape(&settled(&two, &[], &[])), "mirror90(1 91)");
}

#[test]
fn spares_go_with_the_device_that_they_stood_in_for_however_they_are_nested() {
    let replacing = || above(VdevKind::Replacing, 8, vec![file(1, "a"), file(3, "c")]);
    let inside = mirror(above(VdevKind::Spare, 9, vec![replacing(), spare(2, "b")]));
    assert_eq!(shape(&settled(&inside, &[1], &[])), "mirror90(3 91)");
    assert_eq!(shape(&settled(&inside, &[1, 3], &[])), shape(&inside));
    let two = mirror(above(VdevKind::Spare, 9, vec![replacing(), spare(2, "b"), spare(4, "d")]));
    assert_eq!(shape(&settled(&two, &[1], &[])), "mirror90(3 91)");
    // The order in which they came: the device was being replaced before the spare came in.
    let spared = || above(VdevKind::Spare, 9, vec![file(1, "a"), spare(2, "b")]);
    let outside = mirror(above(VdevKind::Replacing, 8, vec![spared(), file(3, "c")]));
    assert_eq!(shape(&settled(&outside, &[1], &[])), "mirror90(3 91)");
    assert_eq!(shape(&settled(&outside, &[1, 3], &[])), shape(&outside));
    let top_level = top(above(VdevKind::Replacing, 8, vec![spared(), file(3, "c")]));
    assert_eq!(shape(&settled(&top_level, &[1], &[])), "8");
    // The new device failed, and its spare has everything.
    let of_new = above(VdevKind::Spare, 9, vec![file(3, "c"), spare(2, "b")]);
    let of_new = mirror(above(VdevKind::Replacing, 8, vec![file(1, "a"), of_new]));
    assert_eq!(shape(&settled(&of_new, &[3], &[])), "mirror90(spare9(3 2) 91)");
    // Each spare is one still when it goes.
    let done = next_done(&outside, &|guid| guid.get() != 1, &|_| false).expect("something is done");
    let detached = detach(&outside, done.leaf).expect("goes");
    assert!(detached.leaf.is_spare && detached.unspared.is_none());
}

#[test]
fn a_spare_stays_when_the_replacement_is_given_up() {
    let replacing = above(VdevKind::Replacing, 8, vec![file(1, "a"), file(3, "c")]);
    let inside = mirror(above(VdevKind::Spare, 9, vec![replacing, spare(2, "b")]));
    let given_up = detach(&inside, Guid(3)).unwrap().top;
    assert_eq!(shape(&settled(&given_up, &[], &[])), "mirror90(spare9(1 2) 91)");
}
