//! `-O`: the object of a path in a dataset. `-r`: its bytes, copied into a file.

use std::fs::File;
use std::io::Write;

use anyhow::{Context, Result, bail, ensure};
use engine::zpl::{Zpl, ZplOptions};
use ondisk::ObjectId;
use ondisk::zpl::FileType;

use super::objects::{self, Range};
use super::objset_view::ObjsetView;
use super::{Arguments, Out, View, datasets};
use crate::copy::target::find;

/// Bytes of one read.
const PIECE_BYTES: usize = 1 << 20;

/// The object of a path.
pub(super) async fn dump_object(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    let [path] = view.arguments.objects.as_slice() else { bail!("-O needs a dataset and a path: {USAGE}") };
    let dataset = datasets::target(view).await?.context("the pool's own objects have no paths")?;
    let objset = datasets::open_objset(view, &dataset).await?;
    let files = Zpl::open(&objset, ZplOptions::default()).await?;
    let node = find(&files, path).await.with_context(|| format!("dataset={}", dataset.name))?;
    let is_shown = matches!(node.file_type(), FileType::Regular | FileType::Directory);
    ensure!(is_shown, "object {} is neither a file nor a directory", node.id());
    let mut shown = ObjsetView::new(view, &objset).await;
    objects::dump_range(&mut shown, &Range::of(node.id()), out).await
}

/// Copies a file out of a dataset. With `-O` it is named by the number of its object.
pub(super) async fn copy_out(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    let [source, destination] = view.arguments.objects.as_slice() else {
        bail!("-r needs a dataset, a path and a destination: {USAGE}")
    };
    let dataset = datasets::target(view).await?.context("the pool's own objects are no files")?;
    let objset = datasets::open_objset(view, &dataset).await?;
    let files = Zpl::open(&objset, ZplOptions::default()).await?;
    let node = match view.arguments.object_of_path {
        false => find(&files, source).await.with_context(|| format!("dataset={}", dataset.name))?,
        true => {
            let number =
                source.parse().with_context(|| format!("'{source}' is not the number of an object"))?;
            files.node(ObjectId(number)).await?
        }
    };
    ensure!(node.file_type() == FileType::Regular, "object {} is not a file", node.id());
    writeln!(out, "Copying object {} to file {destination}", node.id())?;
    writeln!(out, "Object {} is {} bytes", node.id(), node.size())?;
    let cannot = || format!("cannot write '{destination}'");
    let mut file = File::create(destination).with_context(cannot)?;
    let (source, mut buffer, mut offset) = (node.open_file(), vec![0; PIECE_BYTES], 0);
    loop {
        let read = source.read_at(offset, &mut buffer).await;
        let read = read.with_context(|| format!("cannot read object {} at offset {offset}", node.id()))?;
        if read == 0 {
            return Ok(());
        }
        if view.arguments.verbose > 3 {
            writeln!(out, "Read offset={offset} size={read} error=0")?;
        }
        file.write_all(buffer.get(..read).unwrap_or_default()).with_context(cannot)?;
        offset = offset.saturating_add(read as u64);
    }
}

const USAGE: &str =
    "zdb -O DATASET PATH, zdb -r DATASET PATH DESTINATION, zdb -rO DATASET OBJECT DESTINATION";

/// Whether one of these two is asked for.
pub(super) fn is_asked(arguments: &Arguments) -> bool {
    arguments.object_of_path || arguments.copy_out
}
