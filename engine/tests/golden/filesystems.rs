//! Every filesystem and snapshot of the golden pools is what its manifest says.

use crate::support::{EngineTree, import_golden};

fn check(name: &str) {
    let Some(golden) = testkit::golden::pool(name) else { return };
    let pool = import_golden(&golden).unwrap();
    for dataset in golden.filesystems().unwrap() {
        let tree = EngineTree::open(&pool, &dataset).unwrap();
        golden.manifest(&dataset).unwrap().assert_same(&dataset, &tree);
    }
}

macro_rules! pools {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

pools! {
    single triple rz1 rz2 rz3 rz1s9 dr2 codecs dedupold dedupfast classes removed expanded bclone checkpoint
    legacy28 features0 degraded corrupt streams default24 clones24 gang24 classes24
}
