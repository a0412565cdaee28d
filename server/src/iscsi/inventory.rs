//! Which volumes are the units of a target.
//!
//! A session follows them: what is shared with its target becomes a unit, and what is shared no longer is
//! taken away, without another login. A volume is recognized by its number, because the name of a snapshot
//! changes with that of its volume.

use std::collections::BTreeMap;

use super::names;
use crate::block::Listed;

/// The volumes that are units of a target, by their numbers; the first that has a number keeps it. `own` is
/// the volume that the session's target belongs to, if it is a volume's own: that one stays, whatever its
/// name is now.
pub(super) fn members(listed: Vec<Listed>, target: &str, own: Option<u64>) -> BTreeMap<u8, Listed> {
    let own = own.filter(|own| listed.iter().any(|one| one.share.target.is_none() && one.guid == *own));
    let is_meant = |one: &Listed| match (own, &one.share.target) {
        (Some(own), None) => one.guid == own,
        _ => names::of(&one.name, &one.share).as_deref() == Some(target),
    };
    let mut members = BTreeMap::new();
    for one in listed.into_iter().filter(is_meant) {
        members.entry(one.share.lun).or_insert(one);
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Share;

    fn volume(name: &str, guid: u64, target: Option<&str>, lun: u8) -> Listed {
        let share = Share { target: target.map(str::to_owned), lun, ..Share::default() };
        Listed { name: name.into(), guid, share }
    }

    #[test]
    fn a_volume_keeps_its_target_when_it_has_another_name() {
        let target = "iqn.2026-11.org.cenote:tank:a--40then";
        let listed = || vec![volume("tank/a@then", 7, None, 0), volume("tank/b@then", 5, None, 0)];
        let guids = |own| members(listed(), target, own).values().map(|one| one.guid).collect::<Vec<_>>();
        assert_eq!(guids(None), [7]);
        assert_eq!(guids(Some(5)), [5], "it was a@then before");
        assert_eq!(guids(Some(9)), [7], "it is gone");
    }

    #[test]
    fn the_first_that_has_a_number_keeps_it() {
        let listed = vec![
            volume("tank/a", 1, Some("vms"), 3),
            volume("tank/b", 2, Some("vms"), 3),
            volume("tank/c", 3, Some("others"), 1),
            volume("tank/d", 4, Some("vms"), 0),
        ];
        let members = members(listed, "iqn.2026-11.org.cenote:vms", None);
        let found: Vec<_> = members.iter().map(|(lun, one)| (*lun, one.guid)).collect();
        assert_eq!(found, [(0, 4), (3, 1)]);
    }
}
