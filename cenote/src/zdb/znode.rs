//! The attributes of a file, from its bonus area and spill block.

use anyhow::Result;
use engine::dmu::Object;
use engine::dmu::sa::{Attr, Attributes};
use ondisk::nvlist::{NvValue, Nvlist};
use ondisk::zpl::{FileType, Fuid, ZnodeFlags};

use super::Out;
use super::objset_view::ObjsetView;
use super::text::printable;
use crate::output::ctime;

/// The attributes of `object`.
pub(super) async fn dump(objects: &ObjsetView<'_>, object: &Object, out: &mut Out<'_>) -> Result<()> {
    let Some(registry) = &objects.attributes else {
        return Ok(writeln!(out, "\t\t(the attributes are not registered)")?);
    };
    let attributes = match registry.of(object).await {
        Ok(attributes) => attributes,
        Err(error) => return Ok(writeln!(out, "\t\t({error})")?),
    };
    // Who looks an object up by its path knows that.
    if objects.view.arguments.datasets > 4 && !objects.view.arguments.object_of_path {
        write_path(objects, object, out).await?;
    }
    match write(objects, &attributes, out) {
        Err(error) => Ok(writeln!(out, "\t\t({error:#})")?),
        Ok(()) => Ok(()),
    }
}

async fn write_path(objects: &ObjsetView<'_>, object: &Object, out: &mut Out<'_>) -> Result<()> {
    let Some(files) = &objects.files else { return Ok(()) };
    let path = match files.path_of(object.id()).await {
        Ok(Some(path)) => printable(&path),
        Ok(None) if files.unlinked().await.is_ok_and(|unlinked| unlinked.contains(&object.id())) => {
            "on delete queue".to_owned()
        }
        Ok(None) => "path not found, possibly leaked".to_owned(),
        Err(error) => format!("path not found: {error}"),
    };
    writeln!(out, "\tpath\t{path}")?;
    Ok(())
}

fn write(objects: &ObjsetView<'_>, attributes: &Attributes, out: &mut Out<'_>) -> Result<()> {
    let number = |attr| attributes.required(attr);
    let mode = number(Attr::Mode)?;
    if FileType::from_mode(mode as u32) == FileType::Symlink {
        let target = match attributes.is_old() {
            true => attributes.after_znode().and_then(|after| after.get(..number(Attr::Size).ok()? as usize)),
            false => attributes.bytes(Attr::Symlink),
        };
        if let Some(target) = target {
            writeln!(out, "\ttarget\t{}", printable(target))?;
        }
    }
    for (name, attr) in [("uid", Attr::Uid), ("gid", Attr::Gid)] {
        let fuid = Fuid(number(attr)?);
        match fuid.domain() {
            0 => writeln!(out, "\t{name}     {}", fuid.id())?,
            domain => writeln!(out, "\t{name}     {:x} [domain {domain}, {}]", fuid.0, fuid.id())?,
        }
    }
    let times =
        [("atime", Attr::Atime), ("mtime", Attr::Mtime), ("ctime", Attr::Ctime), ("crtime", Attr::Crtime)];
    for (name, attr) in times {
        let [seconds, _] = attributes.pair(attr)?;
        writeln!(out, "\t{name}\t{}", ctime(seconds))?;
    }
    let flags = number(Attr::Flags)?;
    writeln!(out, "\tgen\t{}", number(Attr::Gen)?)?;
    writeln!(out, "\tmode\t{mode:o}")?;
    writeln!(out, "\tsize\t{}", number(Attr::Size)?)?;
    writeln!(out, "\tparent\t{}", number(Attr::Parent)?)?;
    writeln!(out, "\tlinks\t{}", number(Attr::Links)?)?;
    writeln!(out, "\tpflags\t{flags:x}")?;
    if ZnodeFlags(flags).contains(ZnodeFlags::PROJID)
        && let Some(project) = attributes.number(Attr::ProjectId)
    {
        writeln!(out, "\tprojid\t{project}")?;
    }
    if let Some(xattr) = attributes.number(Attr::Xattr) {
        writeln!(out, "\txattr\t{xattr}")?;
    }
    if let Some(rdev) = attributes.number(Attr::Rdev) {
        writeln!(out, "\trdev\t0x{rdev:016x}")?;
    }
    write_xattrs(objects, attributes, out)
}

fn write_xattrs(objects: &ObjsetView<'_>, attributes: &Attributes, out: &mut Out<'_>) -> Result<()> {
    let Some(packed) = attributes.bytes(Attr::Dxattr).filter(|packed| !packed.is_empty()) else {
        return Ok(());
    };
    let list = match Nvlist::parse(packed) {
        Ok(list) => list,
        Err(error) => return Ok(writeln!(out, "\tSA xattrs: {error}")?),
    };
    writeln!(out, "\tSA xattrs: {} bytes, {} entries\n", packed.len(), list.len())?;
    for (name, value) in list.iter() {
        let NvValue::ByteArray(bytes) = value else { continue };
        let shown = match objects.view.numbers.parsable {
            true => bytes.iter().map(|byte| format!("\\{byte:03o}")).collect(),
            false => printable(bytes),
        };
        writeln!(out, "\t\t{name} = {shown}")?;
    }
    Ok(())
}
