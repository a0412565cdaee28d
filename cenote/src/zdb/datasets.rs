//! `-d`: the object sets of a pool, and what belongs to a dataset beside its objects: intent log, deadlist,
//! bookmarks.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use engine::dmu::Objset;
use engine::dmu::zap::{Zap, lookup_u64};
use engine::dsl::{Dataset, Dir};
use engine::vdev::Vdev;
use ondisk::bpobj::{self, BpobjPhys};
use ondisk::deadlist::{self, DeadlistPhys};
use ondisk::dmu::DmuType;
use ondisk::dsl_dir::DslDirPhys;
use ondisk::pool_directory::{self, DIRECTORY_OBJECT, hidden_dir};
use ondisk::{ObjectId, Txg};
use serde_json::{Value, json};

use super::objects::{self, Range};
use super::objset_view::ObjsetView;
use super::text::pointer;
use super::{Out, View, intent_log};

/// Name and creation of the pool's own object set, which no dataset has.
const MOS_NAME: &str = "mos";
/// Most datasets in a directory, snapshots of one, and entries of a deadlist.
const MAX_ENTRIES: usize = 1 << 20;
/// Most lists of blocks that are shown of one list that includes them.
const MAX_LISTS: usize = 1 << 20;
/// How deep lists of blocks may include each other in what is shown.
const MAX_INCLUDED: usize = 64;

/// The pool's own object set and all datasets.
pub(super) async fn dump_all(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    dump_objset(view, None, &view.mos, out).await?;
    if view.arguments.datasets >= 3 {
        let lists = [
            (pool_directory::SYNC_BPOBJ, "Deferred frees"),
            (pool_directory::FREE_BPOBJ, "Pool snapshot frees"),
            (pool_directory::OBSOLETE_BPOBJ, "Pool obsolete blocks"),
        ];
        let directory = view.mos.object(DIRECTORY_OBJECT).await?;
        for (entry, name) in lists {
            if let Some(id) = lookup_u64(&directory, entry).await? {
                dump_list(view, ObjectId(id), name, out).await?;
            }
        }
    }
    if view.arguments.datasets >= 3 {
        write_missing(view, out)?;
    }
    for_each(view, async |dataset| dump_dataset(view, dataset, out).await).await
}

/// All datasets, snapshots before what they are of.
async fn for_each(view: &View<'_>, mut visit: impl AsyncFnMut(&Dataset) -> Result<()>) -> Result<()> {
    for dir in dirs(view).await? {
        let Ok(head) = view.dsl.head(&dir).await else { continue };
        for name in names(view, head.phys.snapnames_zap).await? {
            if let Some(snapshot) = view.dsl.snapshot(&head, &name).await? {
                visit(&snapshot).await?;
            }
        }
        visit(&head).await?;
    }
    Ok(())
}

/// The object sets for programs: of the whole pool, or the one that is the target.
pub(super) async fn json(view: &View<'_>) -> Result<Value> {
    let (_, whole_pool) = view.arguments.pool();
    let mut all = Vec::new();
    if whole_pool {
        all.push(objset_json(view, None, &view.mos).await?);
        for_each(view, async |dataset| {
            all.push(dataset_json(view, dataset).await?);
            Ok(())
        })
        .await?;
    } else {
        all.push(match target(view).await? {
            Some(dataset) => dataset_json(view, &dataset).await?,
            None => objset_json(view, None, &view.mos).await?,
        });
    }
    Ok(all.into())
}

async fn dataset_json(view: &View<'_>, dataset: &Dataset) -> Result<Value> {
    if dataset.phys.bp.is_hole() {
        return Ok(json!({"name": dataset.name, "type": null}));
    }
    let what = || format!("cannot open '{}'", dataset.name);
    let objset = open_objset(view, dataset).await.with_context(what)?;
    objset_json(view, Some(dataset), &objset).await
}

async fn objset_json(view: &View<'_>, dataset: Option<&Dataset>, objset: &Objset) -> Result<Value> {
    let (name, created, used) = facts(view, dataset).await?;
    Ok(json!({
        "name": name,
        "type": objset.objset_type().to_string(),
        "id": objset.id().get(),
        "creation_txg": created.get(),
        "used_bytes": used,
        "objects": objset.root().fill(),
        "root_bp": objset.root().to_string(),
        "snapshot": dataset.is_some_and(Dataset::is_snapshot),
        "inconsistent": dataset.is_some_and(Dataset::is_inconsistent),
    }))
}

/// Name, creation and space of an object set. `dataset` is `None` for the pool's own.
async fn facts<'d>(view: &View<'_>, dataset: Option<&'d Dataset>) -> Result<(&'d str, Txg, u64)> {
    Ok(match dataset {
        Some(dataset) => (&dataset.name, dataset.phys.creation_txg, dataset.phys.referenced_bytes),
        None => (MOS_NAME, Txg::INITIAL, mos_used_bytes(view).await?),
    })
}

/// The dirty time logs: in which transaction groups each vdev missed writes.
fn write_missing(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    writeln!(out, "\nDirty time logs:\n\n\t{}", view.dsl.pool().name())?;
    let mut pending: Vec<(&Vdev, usize)> =
        view.dsl.pool().vdevs().tops.iter().rev().map(|top| (top, 4)).collect();
    while let Some((vdev, indent)) = pending.pop() {
        writeln!(out, "\t{:indent$}{}", "", vdev.name)?;
        for (start, end) in vdev.missing_txgs.ranges().ranges() {
            let length = end.saturating_sub(*start);
            writeln!(out, "\t{:indent$}  missing [{start},{end}) length {length}", "")?;
        }
        pending.extend(vdev.children.iter().rev().map(|child| (child, indent + 4)));
    }
    writeln!(out)?;
    Ok(())
}

/// All directories that are shown to users, children before their parents.
async fn dirs(view: &View<'_>) -> Result<Vec<Arc<Dir>>> {
    let mut dirs = Vec::new();
    let mut pending = vec![Arc::clone(view.dsl.root())];
    while let Some(dir) = pending.pop() {
        for name in names(view, dir.phys.child_dir_zap).await? {
            if !hidden_dir::is_hidden(name.as_bytes()) {
                pending.extend(view.dsl.child(&dir, &name).await?);
            }
        }
        dirs.push(dir);
    }
    dirs.reverse();
    Ok(dirs)
}

/// The names in a ZAP, in the order in which it keeps them.
async fn names(view: &View<'_>, zap: ObjectId) -> Result<Vec<String>> {
    if zap.is_none() {
        return Ok(Vec::new());
    }
    let entries = Zap::open(&view.mos.object(zap).await?).await?.entries(MAX_ENTRIES).await?;
    let names = entries.iter().filter_map(|entry| entry.key.name());
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// The dataset that the target names, or whose object number it gives; `None` for the pool's own object set.
pub(super) async fn target(view: &View<'_>) -> Result<Option<Dataset>> {
    let target = view.target();
    let target = target.trim_end_matches('/');
    let number = target.split_once('/').and_then(|(_, rest)| rest.parse::<u64>().ok());
    if number == Some(0) {
        return Ok(None);
    }
    match (view.dsl.find(target).await, number) {
        (Ok(dataset), _) => Ok(Some(dataset)),
        (Err(_), Some(number)) => Ok(Some(view.dsl.dataset_of_object(ObjectId(number)).await?)),
        (Err(error), None) => Err(anyhow!(error).context(format!("cannot open '{target}'"))),
    }
}

/// The dataset that is the target.
pub(super) async fn dump_target(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    match target(view).await? {
        Some(dataset) => dump_dataset(view, &dataset, out).await,
        None => dump_objset(view, None, &view.mos, out).await,
    }
}

async fn dump_dataset(view: &View<'_>, dataset: &Dataset, out: &mut Out<'_>) -> Result<()> {
    if dataset.phys.bp.is_hole() {
        writeln!(out, "Dataset {} was never written", dataset.name)?;
        return Ok(());
    }
    let what = || format!("cannot open '{}'", dataset.name);
    let objset = open_objset(view, dataset).await.with_context(what)?;
    dump_objset(view, Some(dataset), &objset, out).await
}

/// The object set of a dataset; of an encrypted one without its key, what it shows without.
pub(super) async fn open_objset(view: &View<'_>, dataset: &Dataset) -> Result<Arc<Objset>> {
    let Some(root) = view.dsl.encryption_root(&dataset.dir).await? else {
        return Ok(view.dsl.open_objset(dataset).await?);
    };
    if !view.dsl.key_is_loaded(dataset) {
        if let Some(key) = &view.arguments.key {
            view.dsl.load_key(&root.name, key.as_bytes(), false).await?;
        } else if view.arguments.key_file.is_some() {
            view.arguments.place().unlock(&view.dsl, dataset).await?;
        }
    }
    match view.dsl.key_is_loaded(dataset) {
        true => Ok(view.dsl.open_objset(dataset).await?),
        false => {
            let pool = view.dsl.pool();
            Ok(Objset::open_without_key(pool, dataset.objset_id(), &dataset.phys.bp).await?)
        }
    }
}

/// An object set: its line, and as much more as was asked for. `dataset` is `None` for the pool's own.
pub(super) async fn dump_objset(
    view: &View<'_>,
    dataset: Option<&Dataset>,
    objset: &Arc<Objset>,
    out: &mut Out<'_>,
) -> Result<()> {
    let verbosity = view.arguments.datasets;
    let (name, created, used) = facts(view, dataset).await?;
    let root = objset.root();
    writeln!(
        out,
        "Dataset {name} [{}], ID {}, cr_txg {created}, {}, {} objects{}{}",
        objset.objset_type(),
        objset.id(),
        view.numbers.show(used),
        root.fill(),
        if verbosity >= 4 { format!(", rootbp {root}") } else { String::new() },
        if dataset.is_some_and(Dataset::is_inconsistent) { " (inconsistent)" } else { "" },
    )?;
    let mut objects = ObjsetView::new(view, objset).await;
    if verbosity > 0 && !view.arguments.objects.is_empty() {
        for range in &view.arguments.objects {
            let range = Range::parse(range)?;
            objects::dump_range(&mut objects, &range, out).await?;
        }
        writeln!(out)?;
        return Ok(());
    }
    if view.arguments.intent_log > 0 || verbosity >= 2 {
        intent_log::dump(&objects, out).await?;
    }
    if let Some(dataset) = dataset {
        dump_deadlist(view, dataset.phys.deadlist, "Deadlist", out).await?;
        if !dataset.is_snapshot()
            && let Some(livelist) = view.dsl.livelist(&dataset.dir).await?
        {
            dump_deadlist(view, livelist, "Livelist", out).await?;
        }
        if verbosity >= 4 && !dataset.is_snapshot() {
            dump_bookmarks(view, dataset, out).await?;
        }
    }
    if verbosity >= 2 {
        objects::dump_all(&mut objects, out).await?;
    }
    Ok(())
}

/// Space that the pool's own objects take.
async fn mos_used_bytes(view: &View<'_>) -> Result<u64> {
    let children = view.dsl.root().phys.child_dir_zap;
    if children.is_none() {
        return Ok(0);
    }
    let names = view.mos.object(children).await?;
    let Some(id) = lookup_u64(&names, hidden_dir::MOS).await? else { return Ok(0) };
    let dir = view.mos.object(ObjectId(id)).await?;
    let (bonus, order) = dir.bonus();
    Ok(DslDirPhys::parse(bonus, order).map_err(|error| dir.corrupt(error))?.used_bytes)
}

async fn dump_deadlist(view: &View<'_>, id: ObjectId, name: &str, out: &mut Out<'_>) -> Result<()> {
    let verbosity = view.arguments.datasets;
    if verbosity < 3 || id.is_none() {
        return Ok(());
    }
    let object = view.mos.object(id).await?;
    if object.dnode().dmu_type == DmuType::BPOBJ {
        return dump_list(view, id, "old-format deadlist", out).await;
    }
    let (bonus, order) = object.bonus();
    let phys = DeadlistPhys::parse(bonus, order).map_err(|error| object.corrupt(error))?;
    let entries = Zap::open(&object).await?.entries(MAX_ENTRIES).await?;
    let mut lists = Vec::new();
    for entry in &entries {
        let key = entry.key.name().unwrap_or_default();
        let since = deadlist::parse_key(key).map_err(|error| object.corrupt(error))?;
        lists.push((since, entry.value.as_u64().unwrap_or(0)));
    }
    lists.sort_unstable();
    let show = |value| view.numbers.show(value);
    writeln!(
        out,
        "\n    {name}: {} ({}/{} comp), {} entries",
        show(phys.used_bytes),
        show(phys.comp_bytes),
        show(phys.uncomp_bytes),
        show(lists.len() as u64)
    )?;
    if verbosity < 4 {
        return Ok(());
    }
    writeln!(out)?;
    for (since, list) in lists {
        let name = format!("mintxg {since} -> obj {list}");
        match verbosity {
            4 => writeln!(out, "{name}")?,
            _ => dump_list(view, ObjectId(list), &name, out).await?,
        }
    }
    Ok(())
}

/// A list of block pointers and those that it includes; with `-ddddd` the pointers.
async fn dump_list(view: &View<'_>, id: ObjectId, name: &str, out: &mut Out<'_>) -> Result<()> {
    let show = |value| view.numbers.show(value);
    let mut pending = vec![(id, name.to_owned(), 0usize)];
    for _ in 0..MAX_LISTS {
        let Some((id, name, depth)) = pending.pop() else { break };
        let object = view.mos.object(id).await?;
        let (bonus, order) = object.bonus();
        let phys = BpobjPhys::parse(bonus, order).map_err(|error| object.corrupt(error))?;
        let freed = phys.num_freed.map_or_else(String::new, |freed| format!(", {freed} freed"));
        let (count, bytes) = (phys.num_blkptrs, show(phys.bytes));
        let indent = depth * 8;
        let included = phys.included();
        if included.object.is_none() {
            writeln!(out, "    {name:>indent$}: object {id}, {count} blkptrs{freed}, {bytes}")?;
        } else {
            let space = phys.space.unwrap_or_default();
            writeln!(
                out,
                "    {name:>indent$}: object {id}, {count} local blkptrs{freed}, {} subobjs in object {}, \
                 {bytes} ({}/{} comp)",
                included.count,
                included.object,
                show(space.comp_bytes),
                show(space.uncomp_bytes),
            )?;
        }
        if view.arguments.datasets >= 5 {
            let mut left = usize::try_from(count).unwrap_or(usize::MAX);
            for block in 0..=object.dnode().max_block_id.get() {
                // A list has no holes.
                let Some(found) = object.block(block).await? else { break };
                for bp in bpobj::blkptrs(&found.block, found.order).take(left) {
                    let bp = bp.map_err(|error| object.corrupt(error))?;
                    let freed = if bpobj::is_free(&bp) { " FREE" } else { "" };
                    writeln!(out, "\t{}{freed}", pointer(&bp, view.arguments))?;
                    left -= 1;
                }
                if left == 0 {
                    break;
                }
            }
        }
        if included.count > 0 && depth < MAX_INCLUDED {
            let of = view.mos.object(included.object).await?;
            let mut left = usize::try_from(included.count).unwrap_or(usize::MAX);
            let before = pending.len();
            for block in 0..=of.dnode().max_block_id.get() {
                let Some(found) = of.block(block).await? else { break };
                for list in bpobj::subobjs(&found.block, found.order).take(left) {
                    pending.push((list, "subobj".to_owned(), depth + 1));
                    left -= 1;
                }
                if left == 0 {
                    break;
                }
            }
            pending[before..].reverse();
        }
    }
    if view.arguments.datasets >= 5 {
        writeln!(out)?;
    }
    Ok(())
}

async fn dump_bookmarks(view: &View<'_>, dataset: &Dataset, out: &mut Out<'_>) -> Result<()> {
    for bookmark in view.dsl.bookmarks(dataset).await? {
        let name = bookmark.name.rsplit('#').next().unwrap_or_default();
        let phys = &bookmark.phys;
        writeln!(
            out,
            "\t#{name}: {{guid: {:x} creation_txg: {} creation_time: {} redaction_obj: {}}}",
            phys.guid.get(),
            phys.creation_txg,
            phys.creation_time,
            phys.redaction_list
        )?;
    }
    Ok(())
}
