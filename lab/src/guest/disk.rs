//! How QEMU reaches a guest's disk.

use std::path::Path;
use std::process::Command;

use super::{Disk, Format, Spec};
use crate::error::Result;
use crate::size::Size;
use crate::subprocess::output;

/// A protocol by which a volume is a guest's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// QEMU is an NBD client.
    Nbd,
    /// QEMU is an initiator.
    Iscsi,
    /// The guest's queues are served by the process that has the pool open.
    VhostUser,
}

/// A disk and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attached {
    /// The file of an image, the URI of an export, or the path of a socket.
    pub at: String,
}

/// Makes an image of `bytes`.
///
/// # Errors
/// What `qemu-img` says.
pub(crate) fn make_image(format: Format, path: &Path, bytes: Size) -> Result<()> {
    let (name, options) = match format {
        Format::Raw => ("raw", "preallocation=off"),
        Format::Qcow2 => ("qcow2", "preallocation=full"),
        Format::Qcow2Sparse => ("qcow2", "preallocation=off"),
    };
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", name, "-o", options]).arg(path).arg(bytes.0.to_string());
    output(&mut command).map(drop)
}

/// QEMU's options for a guest's disk.
pub(super) fn arguments(spec: &Spec, attached: &Attached) -> Vec<String> {
    // A comma within a value is doubled.
    let at = attached.at.replace(',', ",,");
    if spec.disk == Disk::Volume(Wire::VhostUser) {
        let chardev = format!("socket,id=disk,path={at}");
        return ["-chardev", &chardev, "-device", "vhost-user-blk-pci,chardev=disk"]
            .map(str::to_owned)
            .to_vec();
    }
    let format = match spec.disk.image() {
        Some(Format::Qcow2 | Format::Qcow2Sparse) => "qcow2",
        Some(Format::Raw) | None => "raw",
    };
    let mut drive = format!("file={at},format={format},if=none,id=disk,cache={}", spec.cache);
    if spec.disk.image().is_some() {
        drive.push_str(&format!(",aio={}", spec.aio));
    }
    let thread = if spec.iothread { ",iothread=io" } else { "" };
    let devices = match spec.bus.as_str() {
        "virtio-scsi" => vec![format!("virtio-scsi-pci{thread}"), "scsi-hd,drive=disk".to_owned()],
        "ahci" => vec!["ich9-ahci,id=ahci".to_owned(), "ide-hd,bus=ahci.0,drive=disk".to_owned()],
        "ide" => vec!["ide-hd,bus=ide.0,drive=disk".to_owned()],
        _ => vec![format!("virtio-blk-pci,drive=disk{thread}")],
    };
    let mut all = Vec::new();
    if spec.iothread {
        all.extend(["-object".to_owned(), "iothread,id=io".to_owned()]);
    }
    all.extend(["-drive".to_owned(), drive]);
    all.extend(devices.into_iter().flat_map(|device| ["-device".to_owned(), device]));
    all
}
