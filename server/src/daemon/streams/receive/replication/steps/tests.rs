use super::*;

fn sent(name: &str, origin: u64, snapshots: &[(&str, u64)]) -> PackagedDataset {
    PackagedDataset {
        name: name.into(),
        origin: Some(Guid(origin)).filter(|origin| *origin != Guid(0)),
        snapshots: snapshots.iter().map(|(name, guid)| ((*name).into(), Guid(*guid))).collect(),
        ..PackagedDataset::default()
    }
}

fn here(name: &str, origin: u64, snapshots: &[(&str, u64)]) -> Local {
    Local {
        name: name.to_owned(),
        origin: Some(Guid(origin)).filter(|origin| *origin != Guid(0)),
        snapshots: snapshots.iter().map(|(name, guid)| ((*name).to_owned(), Guid(*guid))).collect(),
    }
}

fn package(datasets: Vec<PackagedDataset>) -> Package {
    Package { from_snapshot: Some("a".into()), to_snapshot: "b".into(), datasets, ..Package::default() }
}

/// What was sent as `s…` is received as `t…`.
fn of(package: &Package, force: bool) -> Sent<'_> {
    Sent::new(package, ("t", force, "7"), |sent| Some(sent.name.to_string().replacen('s', "t", 1)))
}

/// Takes all steps that only change names, and gives all steps in their order.
fn all_steps(sent: &Sent<'_>, local: &mut [Local]) -> Vec<Step> {
    let mut taken = Vec::new();
    for _ in 0..sent.bound(local) {
        let Some(step) = sent.steps(local).into_iter().next() else { return taken };
        match &step {
            Step::Rename { from, to } | Step::SetAside { from, to } => renamed(local, from, to),
            Step::Promote(_) | Step::Branch { .. } => panic!("{step:?}"),
        }
        taken.push(step);
    }
    panic!("no end: {taken:?}")
}

fn rename(from: &str, to: &str) -> Step {
    Step::Rename { from: from.into(), to: to.into() }
}

#[test]
fn what_has_the_same_guids_gets_the_same_names() {
    let package = package(vec![
        sent("s", 0, &[("a", 1), ("b", 2)]),
        sent("s/new", 0, &[("a", 11), ("b", 12)]),
        sent("s/new/deep", 0, &[("a", 21)]),
    ]);
    let mut local =
        vec![here("t", 0, &[("was", 1)]), here("t/deep", 0, &[("a", 21)]), here("t/old", 0, &[("a", 11)])];
    let expected = [rename("t@was", "t@a"), rename("t/old", "t/new"), rename("t/deep", "t/new/deep")];
    assert_eq!(all_steps(&of(&package, false), &mut local), expected);
    assert!(of(&package, false).is_settled(&local));
}

#[test]
fn names_are_exchanged_and_nests_turned_over() {
    let package = package(vec![
        sent("s", 0, &[("a", 1)]),
        sent("s/x", 0, &[("a", 11), ("2", 12)]),
        sent("s/y", 0, &[("a", 21)]),
        sent("s/in", 0, &[("a", 31)]),
        sent("s/in/out", 0, &[("a", 41)]),
    ]);
    let mut local = vec![
        here("t", 0, &[("a", 1)]),
        here("t/out", 0, &[("a", 41)]),
        here("t/out/in", 0, &[("a", 31)]),
        here("t/x", 0, &[("a", 21)]),
        here("t/y", 0, &[("2", 11), ("a", 12)]),
    ];
    all_steps(&of(&package, false), &mut local);
    let names: Vec<(&str, Guid)> = local.iter().map(|one| (&*one.name, one.snapshots[0].1)).collect();
    let expected = [("t", 1), ("t/in", 31), ("t/in/out", 41), ("t/x", 11), ("t/y", 21)];
    assert_eq!(names, expected.map(|(name, guid)| (name, Guid(guid))));
    assert_eq!(local[3].snapshots[0].0, "a");
}

#[test]
fn a_clone_that_took_over_its_origin_is_promoted() {
    let local =
        [here("t", 0, &[("a", 1)]), here("t/x", 0, &[("i", 11), ("a", 12)]), here("t/y", 11, &[("a", 22)])];
    let promoted = package(vec![
        sent("s", 0, &[("a", 1)]),
        sent("s/x", 11, &[("a", 12)]),
        sent("s/y", 0, &[("i", 11), ("a", 22)]),
    ]);
    assert_eq!(of(&promoted, false).steps(&local), [Step::Promote("t/y".into())]);
    // The first one, and what was common to both, are destroyed on the sender.
    let alone = package(vec![sent("s", 0, &[("a", 1)]), sent("s/y", 0, &[("a", 22)])]);
    assert_eq!(of(&alone, false).steps(&local), [Step::Promote("t/y".into())]);
    // Nothing happened to the clone.
    let same = package(vec![
        sent("s", 0, &[("a", 1)]),
        sent("s/x", 0, &[("i", 11), ("a", 12)]),
        sent("s/y", 11, &[("a", 22)]),
    ]);
    assert_eq!(of(&same, true).steps(&local), []);
}

#[test]
fn a_new_dataset_that_took_snapshots_over_begins_with_those_that_are_here() {
    let package = package(vec![
        sent("s", 0, &[("a", 1)]),
        sent("s/b", 11, &[("a", 12), ("b", 13)]),
        sent("s/c", 0, &[("1", 11), ("b", 23)]),
    ]);
    let local = [here("t", 0, &[("a", 1)]), here("t/b", 0, &[("1", 11), ("a", 12)])];
    let branch = Step::Branch { snapshot: "t/b@1".into(), to: "t/c".into() };
    assert_eq!(of(&package, true).steps(&local), [branch]);
    assert_eq!(of(&package, true).gone(&local), Vec::<String>::new());
}

#[test]
fn what_the_sender_has_not_goes_at_the_end_and_leaves_its_name_before() {
    let package = package(vec![
        sent("s", 0, &[("a", 1), ("b", 2), ("new", 3)]),
        sent("s/k", 0, &[("a", 11)]),
        sent("s/m", 0, &[("b", 21)]),
    ]);
    let mut local = vec![
        here("t", 0, &[("a", 1), ("new", 7)]),
        here("t/k", 0, &[("a", 8)]),
        here("t/k/l", 0, &[]),
        here("t/n", 0, &[("a", 9)]),
    ];
    assert_eq!(of(&package, false).steps(&local), []);
    let aside = |from: &str, to: &str| Step::SetAside { from: from.into(), to: to.into() };
    let expected = [aside("t@new", "t@recv-7-1"), aside("t/k", "t/recv-7-1")];
    assert_eq!(all_steps(&of(&package, true), &mut local), expected);
    let gone = ["t/recv-7-1/l", "t/recv-7-1@a", "t/recv-7-1", "t/n@a", "t/n", "t@recv-7-1"];
    assert_eq!(of(&package, true).gone(&local), gone);
}

#[test]
fn the_nearest_copy_is_meant() {
    let names = ["p/one/fs@1", "p/two/fs@1", "p/two/deep/fs@1"];
    assert_eq!(nearest(names.into_iter(), "p/two/clone"), Some("p/two/fs@1"));
    assert_eq!(nearest(names.into_iter(), "p/other"), Some("p/one/fs@1"));
    assert_eq!(nearest([].into_iter(), "p/other"), None);
}
