//! The listing of pools that could be imported: `zpool import` without a pool.

use serde_json::{Map, Value};
use server::api::{Aux, ImportablePool, Reason, State, VdevClass, VdevNode};

use super::reason;
use super::vdevs::{Naming, SECTIONS, aux_identifier, aux_words, of_class, state_word, vdev_json};
use crate::output::Numbers;
use crate::table::pad_right;

/// The least width of the column of names.
const NAME_WIDTH: usize = 10;

/// Everything about one pool.
pub fn render(pool: &ImportablePool) -> String {
    // The label `comment:` is one letter longer than the others, which move to the right with it.
    let indent = if pool.comment.is_some() { " " } else { "" };
    let destroyed = if pool.destroyed { " (DESTROYED)" } else { "" };
    let state = state_word(pool.state, pool.vdevs.aux);
    let mut text = format!(
        "{indent}  pool: {}\n{indent}    id: {}\n{indent} state: {state}{destroyed}\n",
        pool.name, pool.guid
    );
    for (label, sentence) in [
        ("status", reason::of_importable(pool, indent)),
        ("action", reason::action_of_importable(pool, indent)),
    ] {
        if !sentence.is_empty() {
            text.push_str(&format!("{indent}{label}: {sentence}"));
        }
    }
    if let Some(comment) = &pool.comment {
        text.push_str(&format!("comment: {comment}\n"));
    }
    text.push_str(&damaged_advice(pool, indent));
    if let Some(id) = reason::message_id(pool.reason) {
        text.push_str(&format!("{indent}   see: {}{id}\n", reason::MESSAGES));
    }
    text.push_str(&format!("{indent}config:\n\n"));
    text.push_str(&config(pool));
    if pool.reason == Reason::BadGuidSum {
        text.push_str(&format!(
            "\n\t{indent}Additional devices are known to be part of this pool, though their\n\
             \t{indent}exact configuration cannot be determined.\n"
        ));
    }
    text
}

/// The same as a JSON object, in the form of `zpool status -j`.
pub fn json(pool: &ImportablePool, numbers: Numbers) -> Map<String, Value> {
    let mut item = Map::new();
    item.insert("name".into(), pool.name.as_str().into());
    item.insert("state".into(), state_word(pool.state, pool.vdevs.aux).into());
    item.insert("pool_guid".into(), Numbers { literal: true, ..numbers }.exact(pool.guid));
    item.insert("destroyed".into(), pool.destroyed.into());
    let sentences =
        [("status", reason::of_importable(pool, "")), ("action", reason::action_of_importable(pool, ""))];
    for (key, sentence) in sentences {
        if !sentence.is_empty() {
            item.insert(key.into(), sentence.trim_end().into());
        }
    }
    if let Some(id) = reason::message_id(pool.reason) {
        item.insert("msgid".into(), id.into());
        item.insert("moreinfo".into(), format!("{}{id}", reason::MESSAGES).into());
    }
    if let Some(comment) = &pool.comment {
        item.insert("comment".into(), comment.as_str().into());
    }
    let naming = Naming::default();
    let object = |class| -> Map<String, Value> {
        let of_class = of_class(&pool.vdevs, class).filter(|vdev| !is_placeholder(vdev));
        of_class.map(|vdev| tree_json(pool, vdev, &naming, numbers)).collect()
    };
    item.insert("vdevs".into(), object(VdevClass::Normal).into());
    let auxiliary = [(VdevClass::L2cache, "l2cache"), (VdevClass::Spare, "spares")];
    for (class, key) in SECTIONS.into_iter().chain(auxiliary) {
        let section = object(class);
        if !section.is_empty() {
            item.insert(key.into(), section.into());
        }
    }
    item
}

/// A vdev by name, with those below it.
fn tree_json(pool: &ImportablePool, vdev: &VdevNode, naming: &Naming, numbers: Numbers) -> (String, Value) {
    let name = naming.name(&pool.name, vdev);
    let mut item = vdev_json(&name, vdev, numbers);
    if vdev.aux != Aux::default() {
        item.insert("aux".into(), aux_identifier(vdev.aux).into());
    }
    if !vdev.children.is_empty() {
        let children = vdev.children.iter().map(|child| tree_json(pool, child, naming, numbers));
        item.insert("vdevs".into(), children.collect::<Map<_, _>>().into());
    }
    (name, item.into())
}

/// The advice for a pool that looks damaged because another host uses it.
fn damaged_advice(pool: &ImportablePool, indent: &str) -> String {
    if pool.state != State::CantOpen || pool.vdevs.aux != Aux::CorruptData {
        return String::new();
    }
    match (pool.destroyed, pool.exported) {
        (true, _) => {
            format!("\t{indent}The pool was destroyed, but can be imported using the '-Df' flags.\n")
        }
        (false, true) => String::new(),
        (false, false) => format!(
            "\t{indent}The pool may be active on another system, but can be imported using\n\
             \t{indent}the '-f' flag.\n"
        ),
    }
}

fn config(pool: &ImportablePool) -> String {
    let naming = Naming::default();
    let width = naming.width(&pool.name, &pool.vdevs, 0).max(NAME_WIDTH);
    let line = |vdev: &VdevNode, depth: usize| {
        let name = pad_right(&naming.name(&pool.name, vdev), width.saturating_sub(depth));
        let aux = aux_words(vdev).map_or_else(String::new, |words| format!("  {words}"));
        format!("\t{}{name}  {}{aux}\n", " ".repeat(depth), state_word(vdev.state, vdev.aux))
    };
    let mut text = line(&pool.vdevs, 0);
    for top in pool.vdevs.children.iter().filter(|top| top.class == VdevClass::Normal) {
        tree(top, 2, &line, &mut text);
    }
    for (class, heading) in [(VdevClass::L2cache, "cache"), (VdevClass::Spare, "spares")] {
        let names =
            of_class(&pool.vdevs, class).map(|vdev| format!("\t  {}\n", naming.name(&pool.name, vdev)));
        let names: String = names.collect();
        if !names.is_empty() {
            text.push_str(&format!("\t{heading}\n{names}"));
        }
    }
    for (class, heading) in SECTIONS {
        let mut section = String::new();
        for top in of_class(&pool.vdevs, class) {
            tree(top, 2, &line, &mut section);
        }
        if !section.is_empty() {
            text.push_str(&format!("\t{heading}\t\n{section}"));
        }
    }
    text
}

/// Stands for a vdev that is not there.
fn is_placeholder(vdev: &VdevNode) -> bool {
    vdev.kind == "missing" || vdev.kind == "hole"
}

fn tree(vdev: &VdevNode, depth: usize, line: &impl Fn(&VdevNode, usize) -> String, text: &mut String) {
    if is_placeholder(vdev) {
        return;
    }
    text.push_str(&line(vdev, depth));
    for child in &vdev.children {
        tree(child, depth + 2, line, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev(name: &str, kind: &str, class: VdevClass, children: Vec<VdevNode>) -> VdevNode {
        serde_json::from_value(serde_json::json!({
            "name": name, "kind": kind, "guid": 7, "path": null, "devid": null, "phys_path": null,
            "whole_disk": false, "not_present": false, "class": class, "state": "ONLINE", "aux": "none",
            "read_errors": 0, "write_errors": 0, "checksum_errors": 0, "device_bytes": null, "space": null,
            "children": children,
        }))
        .unwrap()
    }

    fn pool() -> ImportablePool {
        let data = vdev("/d0", "file", VdevClass::Normal, Vec::new());
        let log = vdev("/d1", "file", VdevClass::Log, Vec::new());
        ImportablePool {
            name: "tank".into(),
            guid: 42,
            state: State::Healthy,
            destroyed: false,
            exported: true,
            version: 5000,
            reason: Reason::Ok,
            errata: 0,
            comment: None,
            hostname: None,
            hostid: 0,
            timestamp: 0,
            unknown_features: Vec::new(),
            missing_tops: 0,
            vdevs: vdev("tank", "root", VdevClass::Normal, vec![data, log]),
            duplicates: Vec::new(),
        }
    }

    #[test]
    fn a_healthy_pool_tells_how_to_import_it() {
        let expected = "  pool: tank\n    id: 42\n state: ONLINE\n\
            action: The pool can be imported using its name or numeric identifier.\nconfig:\n\n\
            \ttank        ONLINE\n\t  /d0       ONLINE\n\tlogs\t\n\t  /d1       ONLINE\n";
        assert_eq!(render(&pool()), expected);
    }

    #[test]
    fn json_has_what_the_text_says() {
        let missing = vdev("gone", "missing", VdevClass::Normal, Vec::new());
        let mut listed = ImportablePool { reason: Reason::HostidMismatch, ..pool() };
        listed.vdevs.children.push(missing);
        let told = Value::from(json(&listed, Numbers { literal: true, as_integers: true }));
        assert_eq!(
            (&told["name"], &told["state"], &told["pool_guid"]),
            (&"tank".into(), &"ONLINE".into(), &42.into())
        );
        assert_eq!(told["status"], "The pool was last accessed by another system.");
        assert_eq!(told["msgid"], "ZFS-8000-EY");
        assert_eq!(told["vdevs"].as_object().map(Map::len), Some(1));
        assert_eq!(told["vdevs"]["/d0"]["vdev_type"], "file");
        assert_eq!(told["logs"]["/d1"]["class"], "log");
    }

    #[test]
    fn a_comment_moves_everything_by_one() {
        let text = render(&ImportablePool { comment: Some("mine".into()), ..pool() });
        assert!(text.starts_with("   pool: tank\n     id: 42\n  state: ONLINE\n action: The pool"), "{text}");
        assert!(text.contains("\ncomment: mine\n config:\n"), "{text}");
    }

    #[test]
    fn a_pool_of_another_host_needs_force() {
        let text = render(&ImportablePool { reason: Reason::HostidMismatch, exported: false, ..pool() });
        assert!(text.contains("status: The pool was last accessed by another system.\n"), "{text}");
        assert!(text.contains("numeric identifier and\n\tthe '-f' flag.\n"), "{text}");
        assert!(text.contains("   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-EY\n"), "{text}");
    }
}
