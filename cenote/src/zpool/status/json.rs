//! `zpool status -j`: the same as a JSON object for each pool.

use serde_json::{Map, Value};
use server::api::{
    Dedup, DedupRow, PoolStatus, Progress, Pruning, ReshapeState, Reshaping, ScanKind, Sweep, SweepState,
    VdevClass, VdevNode,
};

use super::{Arguments, Shown, bytes_cached, has_problem, is_scanning, sweep_of, total};
use crate::output::Numbers;
use crate::zpool::scripts::Said;
use crate::zpool::vdevs::{Naming, SECTIONS, aux_identifier, of_class, pool_word, spare_word, vdev_json};
use crate::zpool::{pool_json, reason};

type Object = Map<String, Value>;

/// One pool.
pub fn pool(pool: &PoolStatus, arguments: &Arguments, said: &Said) -> Object {
    let Arguments { naming, shown, verbose, json_flat_vdevs: flat, .. } = *arguments;
    let numbers = arguments.json.base.numbers(shown.literal);
    let state = pool_word(pool.health.state, pool.health.is_suspended());
    let mut item = pool_json(&pool.name, pool.guid, pool.txg, &state, false, numbers);
    let (status, action) = reason::of_open_pool(pool);
    for (key, sentence) in [("status", status), ("action", action)] {
        if !sentence.is_empty() {
            item.insert(key.into(), sentence.into());
        }
    }
    if let Some(id) = reason::message_id(pool.health.reason) {
        item.insert("msgid".into(), id.into());
        item.insert("moreinfo".into(), format!("{}{id}", reason::MESSAGES).into());
    }
    add_progress(pool, numbers, &mut item);
    let tree = Tree { pool, naming, shown, numbers, flat, said };
    tree.add(&mut item);
    if let Some(dedup) = &pool.dedup {
        item.insert("dedup_stats".into(), dedup_json(dedup, numbers).into());
    }
    item.insert("error_count".into(), numbers.count(pool.health.error_count));
    if verbose && pool.health.error_count != 0 {
        item.insert("errlist".into(), pool.error_files.clone().into());
        // OpenZFS does not say which bytes.
        let ranges = pool.damaged.iter().map(|range| {
            let (offset, length) = (numbers.exact(range.offset), numbers.exact(range.length));
            serde_json::json!({"file": range.file, "offset": offset, "length": length})
        });
        item.insert("damaged".into(), ranges.collect::<Vec<_>>().into());
    }
    item
}

fn progress_word(state: Progress) -> &'static str {
    match state {
        Progress::None => "NONE",
        Progress::Running => "SCANNING",
        Progress::Finished => "FINISHED",
        Progress::Canceled => "CANCELED",
    }
}

/// Scrub, removal, checkpoint, expansion, counting, prunes, copies of volumes.
fn add_progress(pool: &PoolStatus, numbers: Numbers, item: &mut Object) {
    let exact = Numbers { literal: true, ..numbers };
    if let Some(scan) = &pool.health.scan {
        let function = match scan.kind {
            ScanKind::None => "NONE",
            ScanKind::Scrub => "SCRUB",
            ScanKind::Resilver => "RESILVER",
            ScanKind::ErrorScrub => "ERRORSCRUB",
        };
        item.insert(
            "scan_stats".into(),
            serde_json::json!({
                "function": function,
                "state": progress_word(scan.state),
                "start_time": numbers.date(scan.start_time),
                "end_time": numbers.date(scan.end_time),
                "to_examine": numbers.bytes(scan.to_examine),
                "examined": numbers.bytes(scan.examined),
                "skipped": numbers.bytes(scan.skipped),
                "processed": numbers.bytes(scan.processed),
                "errors": numbers.count(scan.errors),
                "bytes_per_scan": numbers.bytes(scan.pass_examined),
                "pass_start": numbers.date(scan.pass_start),
                "scrub_pause": numbers.date(scan.paused_time.unwrap_or(0)),
                "scrub_spent_paused": numbers.count(scan.pass_spent_paused),
                "issued_bytes_per_scan": numbers.bytes(scan.pass_issued),
                "issued": numbers.bytes(scan.issued),
            }),
        );
    }
    if let (Some(errors), Some(Value::Object(object))) =
        (&pool.health.error_scrub, item.get_mut("scan_stats"))
    {
        let state = match errors.state {
            Progress::Running => "ERRORSCRUBBING",
            state => progress_word(state),
        };
        object.insert("err_scrub_func".into(), "ERRORSCRUB".into());
        object.insert("err_scrub_state".into(), state.into());
        object.insert("err_scrub_start_time".into(), numbers.date(errors.start_time));
        object.insert("err_scrub_end_time".into(), numbers.date(errors.end_time));
        object.insert("err_scrub_examined".into(), numbers.count(errors.examined));
        object.insert("err_scrub_to_examine".into(), numbers.count(errors.to_examine));
        object.insert("err_scrub_pause".into(), numbers.date(errors.paused_time.unwrap_or(0)));
    }
    let top = |number: u64| {
        let vdev = usize::try_from(number).ok().and_then(|place| pool.health.vdevs.children.get(place));
        vdev.map_or_else(Object::new, |vdev| vdev_json(&vdev.name, vdev, numbers))
    };
    if let Some(removal) = pool.health.removal.as_ref().filter(|removal| removal.state != Progress::None) {
        let mut object = top(removal.vdev);
        object.insert("state".into(), progress_word(removal.state).into());
        object.insert("removing_vdev".into(), exact.exact(removal.vdev));
        object.insert("start_time".into(), numbers.date(removal.start_time));
        object.insert("end_time".into(), numbers.date(removal.end_time));
        object.insert("to_copy".into(), numbers.bytes(removal.to_copy));
        object.insert("copied".into(), numbers.bytes(removal.copied));
        object.insert("mapping_memory".into(), numbers.bytes(removal.mapping_memory));
        item.insert("removal_stats".into(), object.into());
    }
    if let Some(checkpoint) = &pool.health.checkpoint {
        let mut object = Object::new();
        let state = if checkpoint.discarding { "DISCARDING" } else { "EXISTS" };
        object.insert("state".into(), state.into());
        object.insert("start_time".into(), numbers.date(checkpoint.start_time));
        object.insert("space".into(), numbers.bytes(checkpoint.space));
        item.insert("checkpoint_stats".into(), object.into());
    }
    if let Some(expansion) = &pool.health.expansion {
        let mut object = top(expansion.vdev);
        object.insert("state".into(), progress_word(expansion.state).into());
        object.insert("expanding_vdev".into(), exact.exact(expansion.vdev));
        object.insert("start_time".into(), numbers.date(expansion.start_time));
        object.insert("end_time".into(), numbers.date(expansion.end_time));
        object.insert("to_reflow".into(), numbers.bytes(expansion.to_reflow));
        object.insert("reflowed".into(), numbers.bytes(expansion.reflowed));
        object.insert("waiting_for_resilver".into(), exact.exact(expansion.waiting_for_resilver.into()));
        item.insert("raidz_expand_stats".into(), object.into());
    }
    if let Some(counting) = &pool.counting {
        let mut object = Object::new();
        object.insert("filesystem".into(), counting.filesystem.as_str().into());
        object.insert("start_time".into(), numbers.date(counting.start_time));
        object.insert("to_count".into(), numbers.count(counting.to_count));
        object.insert("counted".into(), numbers.count(counting.counted));
        object.insert("waiting".into(), numbers.count(counting.waiting));
        item.insert("counting_stats".into(), object.into());
    }
    if let Some(pruning) = &pool.pruning {
        item.insert("pruning_stats".into(), pruning_json(pruning, numbers).into());
    }
    if !pool.reshapes.is_empty() {
        let reshapes = pool.reshapes.iter().map(|reshape| reshape_json(reshape, numbers));
        item.insert("reshape_stats".into(), reshapes.collect::<Vec<_>>().into());
    }
}

/// A prune of dedup tables.
fn pruning_json(pruning: &Pruning, numbers: Numbers) -> Object {
    let mut object = Object::new();
    object.insert("start_time".into(), numbers.date(pruning.start_time));
    object.insert("to_look_at".into(), numbers.count(pruning.to_look_at));
    object.insert("looked_at".into(), numbers.count(pruning.looked_at));
    object.insert("pruned".into(), numbers.count(pruning.pruned));
    object.insert("waiting".into(), numbers.count(pruning.waiting));
    object
}

/// A volume that gets another block size.
fn reshape_json(of: &Reshaping, numbers: Numbers) -> Value {
    let state = match of.state {
        ReshapeState::Active => "ACTIVE",
        ReshapeState::Paused => "PAUSED",
        ReshapeState::Complete => "FINISHED",
        ReshapeState::Canceled => "CANCELED",
    };
    serde_json::json!({
        "volume": of.volume,
        "copy": of.copy,
        "kept": of.kept,
        "state": state,
        "old_volblocksize": numbers.bytes(of.old_volblocksize),
        "new_volblocksize": numbers.bytes(of.new_volblocksize),
        "start_time": numbers.date(of.start_time),
        "to_copy": numbers.bytes(of.total_bytes),
        "copied": numbers.bytes(of.done_bytes),
        "pass": numbers.count(of.pass.into()),
        "error": of.error,
    })
}

/// The vdevs, nested or all beside each other.
struct Tree<'a> {
    pool: &'a PoolStatus,
    naming: Naming,
    shown: Shown,
    numbers: Numbers,
    flat: bool,
    said: &'a Said,
}

impl Tree<'_> {
    fn add(&self, item: &mut Object) {
        let root = &self.pool.health.vdevs;
        let mut vdevs = Object::new();
        let mut root_item = self.vdev(root);
        let mut children = Object::new();
        for top in of_class(root, VdevClass::Normal) {
            self.vdev_into(top, Some(&self.pool.name), if self.flat { &mut vdevs } else { &mut children });
        }
        if !children.is_empty() {
            root_item.insert("vdevs".into(), children.into());
        }
        vdevs.insert(self.pool.name.clone(), root_item.into());
        let auxiliary = [(VdevClass::L2cache, "l2cache"), (VdevClass::Spare, "spares")];
        let mut sections = Vec::new();
        for (class, key) in SECTIONS.into_iter().chain(auxiliary) {
            let mut section = Object::new();
            for top in of_class(root, class) {
                self.vdev_into(top, None, if self.flat { &mut vdevs } else { &mut section });
            }
            if !section.is_empty() {
                sections.push((key.to_owned(), Value::from(section)));
            }
        }
        item.insert("vdevs".into(), vdevs.into());
        item.extend(sections);
    }

    fn vdev_into(&self, vdev: &VdevNode, parent: Option<&str>, into: &mut Object) {
        if self.shown.unhealthy && !has_problem(vdev, self.shown) {
            return;
        }
        let name = self.naming.name(&self.pool.name, vdev);
        let mut item = self.vdev(vdev);
        if self.flat {
            if let Some(parent) = parent {
                item.insert("parent".into(), parent.into());
            }
            for child in &vdev.children {
                self.vdev_into(child, Some(&name), into);
            }
        } else {
            let mut children = Object::new();
            for child in &vdev.children {
                self.vdev_into(child, Some(&name), &mut children);
            }
            if !children.is_empty() {
                item.insert("vdevs".into(), children.into());
            }
        }
        into.insert(name, item.into());
    }

    /// A vdev without those below it.
    fn vdev(&self, vdev: &VdevNode) -> Object {
        let numbers = self.numbers;
        let exact = Numbers { literal: true, ..numbers };
        let mut item = vdev_json(&self.naming.name(&self.pool.name, vdev), vdev, numbers);
        if vdev.class == VdevClass::Spare {
            item.insert("state".into(), spare_word(vdev).into());
        } else {
            let space = vdev.space.as_ref();
            let expandable = space.filter(|_| vdev.kind != "root").map(|space| space.expandable);
            let sizes = [
                ("alloc_space", space.map(|space| space.allocated)),
                ("total_space", space.map(|space| space.size)),
                ("def_space", space.map(|space| space.deflated)),
                ("rep_dev_size", vdev.required_bytes),
                ("ex_dev_size", expandable),
                ("self_healed", Some(vdev.self_healed)),
                ("phys_space", vdev.device_bytes),
            ];
            for (key, bytes) in sizes {
                if let Some(bytes) = bytes.filter(|bytes| *bytes != 0) {
                    item.insert(key.into(), numbers.bytes(bytes));
                }
            }
            item.insert("read_errors".into(), numbers.count(vdev.read_errors));
            item.insert("write_errors".into(), numbers.count(vdev.write_errors));
            item.insert("checksum_errors".into(), numbers.count(vdev.checksum_errors));
            if vdev.children.is_empty() {
                item.insert("slow_ios".into(), numbers.count(vdev.slow_ios));
                let works = [Sweep::Initialize, Sweep::Trim].into_iter();
                works
                    .filter(|work| self.shown.shows(*work))
                    .for_each(|work| self.add_sweep(vdev, work, &mut item));
            }
        }
        if self.shown.direct {
            item.insert("dio_verify_errors".into(), numbers.count(0));
        }
        match &vdev.path {
            Some(path) if vdev.not_present => {
                item.insert("not_present".into(), exact.exact(1));
                item.insert("was".into(), path.as_str().into());
            }
            _ if vdev.aux != Default::default() => {
                item.insert("aux".into(), aux_identifier(vdev.aux).into());
            }
            _ if vdev.is_non_native() && reason::warns_of_sectors() => {
                item.insert("configured_ashift".into(), exact.exact(vdev.configured_ashift.into()));
                item.insert("physical_ashift".into(), exact.exact(vdev.physical_ashift.into()));
            }
            _ => {}
        }
        if vdev.is_being_removed {
            item.insert("removing".into(), exact.exact(1));
        } else if vdev.is_not_allocating {
            item.insert("noalloc".into(), exact.exact(1));
        }
        if vdev.resilver_deferred || (vdev.awaits_resilver && !is_scanning(self.pool)) {
            item.insert("resilver_deferred".into(), exact.exact(1));
        }
        if vdev.scan_processed != 0 {
            item.insert("scan_processed".into(), self.numbers.bytes(vdev.scan_processed));
        }
        self.said.add_json(&self.pool.name, vdev.path.as_deref(), &mut item);
        item
    }

    /// How far the free space of a device is gone through.
    fn add_sweep(&self, vdev: &VdevNode, work: Sweep, item: &mut Object) {
        let [state, done, to_do, time, unbegun] = match work {
            Sweep::Initialize => ["init_state", "initialized", "to_initialize", "init_time", "UNINITIALIZED"],
            Sweep::Trim => ["trim_state", "trimmed", "to_trim", "trim_time", "UNTRIMMED"],
        };
        if work == Sweep::Trim {
            let numbers = Numbers { literal: true, ..self.numbers };
            item.insert("trim_notsup".into(), numbers.exact(vdev.cannot_trim.into()));
        }
        let Some(sweep) = sweep_of(self.pool, vdev, work) else {
            item.insert(state.into(), unbegun.into());
            return;
        };
        let word = match sweep.state {
            SweepState::Active => "ACTIVE",
            SweepState::Suspended => "SUSPENDED",
            SweepState::Complete => "COMPLETE",
            SweepState::Canceled => "CANCELED",
        };
        item.insert(state.into(), word.into());
        item.insert(done.into(), self.numbers.bytes(sweep.done_bytes));
        item.insert(to_do.into(), self.numbers.bytes(sweep.total_bytes));
        item.insert(time.into(), self.numbers.date(sweep.time));
    }
}

fn dedup_json(dedup: &Dedup, numbers: Numbers) -> Object {
    let mut object = Object::new();
    object.insert("obj_count".into(), numbers.count(dedup.entries));
    if dedup.entries == 0 {
        object.insert("ddt_object_stats".into(), Object::new().into());
        return object;
    }
    object.insert("dspace".into(), numbers.count(dedup.bytes_on_disk));
    object.insert("mspace".into(), numbers.count(dedup.bytes_in_core));
    if let Some(cached) = bytes_cached(dedup) {
        object.insert("cspace".into(), numbers.count(cached));
    }
    let rows = dedup.histogram.iter().filter(|row| row.blocks != 0);
    let rows = rows.map(|row| (row.log2_references.to_string(), row_json(row, numbers).into()));
    let mut stats = Object::new();
    stats.insert("total".into(), row_json(&total(&dedup.histogram), numbers).into());
    stats.insert("histogram".into(), Value::Object(rows.collect()));
    object.insert("ddt_stats".into(), stats.into());
    object
}

fn row_json(row: &DedupRow, numbers: Numbers) -> Object {
    let mut object = Object::new();
    object.insert("blocks".into(), numbers.count(row.blocks));
    object.insert("logical_size".into(), numbers.bytes(row.lsize));
    object.insert("physical_size".into(), numbers.bytes(row.psize));
    object.insert("deflated_size".into(), numbers.bytes(row.dsize));
    object.insert("ref_blocks".into(), numbers.count(row.referenced_blocks));
    object.insert("ref_lsize".into(), numbers.bytes(row.referenced_lsize));
    object.insert("ref_psize".into(), numbers.bytes(row.referenced_psize));
    object.insert("ref_dsize".into(), numbers.bytes(row.referenced_dsize));
    object
}
