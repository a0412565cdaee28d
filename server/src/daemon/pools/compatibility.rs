//! The sets of features that releases of OpenZFS and of other systems support, by the names of the files that
//! come with OpenZFS.
//!
//! If OpenZFS is installed, its files are used, because its administrator may have changed them; otherwise
//! these sets are. Each set is another one with additions.
//!
//! Source of the facts: OpenZFS 2.4 `cmd/zpool/compatibility.d`.

/// Names of a set, the name of the set that it contains, and what it has more.
type Set = (&'static [&'static str], &'static str, &'static str);

/// A set comes after the one that it contains.
#[rustfmt::skip]
const SETS: &[Set] = &[
    (&["zol-0.6.1"], "", "async_destroy empty_bpobj lz4_compress"),
    (&["zol-0.6.4"], "zol-0.6.1", "bookmarks embedded_data enabled_txg extensible_dataset hole_birth \
        spacemap_histogram"),
    (&["2018", "compat-2018", "zol-0.6.5"], "zol-0.6.4", "filesystem_limits large_blocks"),
    (&["freenas-9.10.2"], "2018", "multi_vdev_crash_dump"),
    (&["2019", "2020", "compat-2019", "compat-2020", "freebsd-11.0", "freebsd-11.1", "freenas-11.0", "freenas-11.1"], "freenas-9.10.2", "sha512 skein"),
    (&["grub2-2.06"], "zol-0.6.1", "allocation_classes block_cloning device_rebuild embedded_data \
        enabled_txg hole_birth log_spacemap resilver_defer spacemap_histogram spacemap_v2 zpool_checkpoint"),
    (&["openzfsonosx-1.7.0"], "2019", "edonr"),
    (&["freebsd-11.2", "freenas-11.2"], "2019", "device_removal obsolete_counts zpool_checkpoint"),
    (&["ubuntu-18.04", "zol-0.7"], "openzfsonosx-1.7.0", "large_dnode userobj_accounting"),
    (&["2021", "compat-2021", "freebsd-11.3", "freebsd-11.4", "freebsd-12.0", "freebsd-12.1", "freebsd-12.2", "freebsd-12.3", "freebsd-12.4", "freenas-11.3"], "freebsd-11.2", "spacemap_v2"),
    (&["openzfsonosx-1.8.1"], "2021", "edonr"),
    (&["grub2", "grub2-2.12"], "grub2-2.06", "bookmarks extensible_dataset filesystem_limits large_blocks \
        livelist project_quota userobj_accounting zilsaxattr"),
    (&["openzfsonosx-1.9.3", "openzfsonosx-1.9.4", "ubuntu-20.04", "zol-0.8"], "openzfsonosx-1.8.1", "allocation_classes bookmark_v2 encryption large_dnode project_quota resilver_defer userobj_accounting"),
    (&["openzfs-2.0-freebsd", "truenas-12.0"], "2021", "allocation_classes bookmark_v2 bookmark_written \
        device_rebuild encryption large_dnode livelist log_spacemap project_quota redacted_datasets \
        redaction_bookmarks resilver_defer userobj_accounting zstd_compress"),
    (&["freebsd-13.0", "freebsd-13.1", "freebsd-13.2", "openzfs-2.1-freebsd"], "openzfs-2.0-freebsd", "draid"),
    (&["openzfs-2.0-linux"], "openzfs-2.0-freebsd", "edonr"),
    (&["openzfs-2.1-linux", "ubuntu-22.04"], "freebsd-13.0", "edonr"),
    (&["openzfs-2.2", "openzfs-2.2-freebsd", "openzfs-2.2-linux"], "openzfs-2.1-linux", "blake3 block_cloning head_errlog vdev_zaps_v2 zilsaxattr"),
    (&["openzfs-2.3", "openzfs-2.3-freebsd", "openzfs-2.3-linux"], "openzfs-2.2", "fast_dedup large_microzap \
        longname raidz_expansion redaction_list_spill"),
    (&["openzfs-2.4", "openzfs-2.4-freebsd", "openzfs-2.4-linux"], "openzfs-2.3", "block_cloning_endian \
        dynamic_gang_header physical_rewrite"),
];

/// The names of the features of a set, if there is one of that name.
pub(in crate::daemon) fn built_in(name: &str) -> Option<Vec<&'static str>> {
    let mut features = Vec::new();
    let mut wanted = name;
    for (names, contained, more) in SETS.iter().rev() {
        if names.contains(&wanted) {
            features.extend(more.split_whitespace());
            wanted = contained;
        }
    }
    (!features.is_empty()).then_some(features)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ondisk::features::Feature;

    use super::*;

    #[test]
    fn every_set_has_known_features_each_once() {
        for name in SETS.iter().flat_map(|(names, _, _)| names.iter()) {
            let words = built_in(name).unwrap();
            let set: BTreeSet<Feature> = words.iter().map(|word| Feature::from_name(word).unwrap()).collect();
            assert_eq!(set.len(), words.len(), "{name} names a feature twice");
        }
        assert_eq!(built_in("openzfs-2.4-linux").unwrap().len(), Feature::ALL.len());
        assert_eq!(built_in("openzfs-9.9"), None);
    }

    #[test]
    fn the_sets_are_those_that_openzfs_installs() {
        let folder = std::path::Path::new("/usr/share/zfs/compatibility.d");
        for name in SETS.iter().flat_map(|(names, _, _)| names.iter()) {
            let Ok(text) = std::fs::read_to_string(folder.join(name)) else { continue };
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
            let words = lines.flat_map(|line| line.split([' ', '\t', ',']).filter(|word| !word.is_empty()));
            let installed: BTreeSet<&str> = words.collect();
            assert_eq!(built_in(name).unwrap().into_iter().collect::<BTreeSet<_>>(), installed, "{name}");
        }
    }
}
