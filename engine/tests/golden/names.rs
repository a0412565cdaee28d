//! Looking up names, walking directories in pieces, and finding holes, in golden filesystems.

use crate::support::{EngineTree, import_golden};
use device::block_on;
use engine::zpl::Znode;
use testkit::Tree;

fn at(tree: &EngineTree, path: &str) -> Znode {
    block_on(async {
        let mut node = tree.0.node(tree.0.root()).await.unwrap();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let id = node.lookup(name.as_bytes()).await.unwrap().expect(name);
            node = tree.0.node(id).await.unwrap();
        }
        node
    })
}

#[test]
fn names_are_found_in_any_case_and_form_where_the_properties_say_so() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let pool = import_golden(&golden).unwrap();
    let tree = EngineTree::open(&pool, "single/ci").unwrap();
    let root = tree.root().unwrap();
    let find = |name: &str| block_on(root.lookup(name.as_bytes())).unwrap().map(|id| id.0);
    for name in ["ReadMe", "README", "readme"] {
        assert_eq!(find(name), Some(2), "{name}");
    }
    for name in ["\u{dc}n\u{ef}", "U\u{308}ni\u{308}", "\u{fc}N\u{cf}", "u\u{308}NI\u{308}"] {
        assert_eq!(find(name), Some(3), "{name}");
    }
    for name in ["ReadMee", "Un\u{ef}", "U\u{301}ni\u{308}", ""] {
        assert_eq!(find(name), None, "{name}");
    }

    let exact = EngineTree::open(&pool, "single/fs").unwrap();
    let root = exact.root().unwrap();
    assert!(block_on(root.lookup(b"tiny")).unwrap().is_some());
    assert!(block_on(root.lookup(b"Tiny")).unwrap().is_none());
}

#[test]
fn an_object_number_leads_back_to_a_path() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let pool = import_golden(&golden).unwrap();
    let tree = EngineTree::open(&pool, "single/xdir").unwrap();
    let path_of = |id| block_on(tree.0.path_of(id)).unwrap().map(|path| String::from_utf8(path).unwrap());
    for path in ["/", "/tiny", "/a/b/c/d/e"] {
        assert_eq!(path_of(at(&tree, path).id()).as_deref(), Some(path));
    }
}

#[test]
fn the_acl_of_a_file_says_what_its_mode_says() {
    use ondisk::zpl::{AceType, AceWho, ace_mask};
    for (name, dataset) in [("single", "single/fs"), ("legacy28", "legacy28/fs")] {
        let Some(golden) = testkit::golden::pool(name) else { return };
        let pool = import_golden(&golden).unwrap();
        let tree = EngineTree::open(&pool, dataset).unwrap();
        for (_, node) in tree.list(&tree.root().unwrap()).unwrap() {
            let aces = block_on(node.acl()).unwrap();
            let allowed = |who: AceWho, mask: u32| {
                let mut entries = aces.iter().filter(|ace| ace.who() == who && ace.mask & mask != 0);
                entries.next().is_some_and(|ace| ace.ace_type == AceType::Allow)
            };
            let permissions = [(AceWho::Owner, 6), (AceWho::OwningGroup, 3), (AceWho::Everyone, 0)];
            for (who, shift) in permissions {
                assert_eq!(allowed(who, ace_mask::READ_DATA), node.mode() >> shift & 4 != 0, "{aces:?}");
                assert_eq!(allowed(who, ace_mask::EXECUTE), node.mode() >> shift & 1 != 0, "{aces:?}");
            }
        }
    }
}

#[test]
fn a_walk_goes_on_from_any_cookie() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let pool = import_golden(&golden).unwrap();
    let tree = EngineTree::open(&pool, "single/fs").unwrap();
    for path in ["", "many", "few"] {
        let dir = at(&tree, path);
        let walk = |cookie| {
            block_on(async {
                let mut cursor = dir.read_dir(cookie).await.unwrap();
                let mut found = Vec::new();
                while let Some(entry) = cursor.next().await.unwrap() {
                    found.push(entry);
                }
                found
            })
        };
        let all = walk(0);
        assert_eq!(
            all.iter().filter(|entry| entry.name != b"." && entry.name != b"..").count() as u64,
            dir.size() - 2
        );
        for (number, entry) in all.iter().enumerate().step_by(37) {
            assert_eq!(walk(entry.cookie), all[number + 1..], "{path} after {:?}", entry.name);
        }
        assert_eq!(walk(u64::MAX), []);
    }
}

#[test]
fn holes_of_a_sparse_file_are_found_without_reading_it() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let pool = import_golden(&golden).unwrap();
    let tree = EngineTree::open(&pool, "single/fs").unwrap();
    let huge = at(&tree, "huge");
    let record = huge.object().block_size();
    block_on(async {
        let mut runs = Vec::new();
        let mut at = 0;
        while let Some(start) = huge.next_data(at).await.unwrap() {
            at = huge.next_hole(start).await.unwrap().unwrap();
            runs.push((start, at));
        }
        // What zdb calls the segments of the file; its size was then set to 2 TiB and a byte.
        assert_eq!(runs, [(1 << 30, (1 << 30) + record), (1 << 40, (1 << 40) + record)]);
        assert_eq!(huge.next_hole(0).await.unwrap(), Some(0));
        assert_eq!(huge.next_data(huge.size()).await.unwrap(), None);
        assert_eq!(huge.next_hole(huge.size()).await.unwrap(), None);
    });
}

#[test]
fn reads_in_order_and_out_of_order_give_the_same_bytes() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let pool = import_golden(&golden).unwrap();
    let tree = EngineTree::open(&pool, "single/r4k").unwrap();
    let node = at(&tree, "overwritten");
    let mut whole = vec![0; node.size() as usize];
    block_on(async {
        assert_eq!(node.read_at(0, &mut whole).await.unwrap(), whole.len());
        let file = node.open_file();
        for (offset, length) in
            [(0, 100), (100, 5000), (5100, 100_000), (1_000_000, 9), (4095, 2), (2_097_000, 500)]
        {
            let mut piece = vec![1; length];
            let got = file.read_at(offset as u64, &mut piece).await.unwrap();
            assert_eq!(got, length.min(whole.len() - offset));
            assert_eq!(piece[..got], whole[offset..offset + got]);
        }
    });
}
