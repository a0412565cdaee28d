//! The output of `cenote up` when its pool is up.

use std::io::Write;
use std::path::Path;

use super::Up;

/// As one JSON object.
pub fn print_json(up: &Up) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, up)?;
    writeln!(out)?;
    out.flush()
}

/// For people.
pub fn print_text(up: &Up) -> std::io::Result<()> {
    for warning in &up.warnings {
        eprintln!("cenote: {warning}");
    }
    let mut out = std::io::stdout().lock();
    match up.readonly {
        true => writeln!(out, "Pool '{}' is open, read-only, as of transaction group {}.", up.pool, up.txg)?,
        false => writeln!(out, "Pool '{}' is open for reading and writing.", up.pool)?,
    }
    if !up.mounts.is_empty() {
        writeln!(out)?;
        let names = up.mounts.iter().map(|mount| mount.dataset.as_str());
        let width = width(names, "FILESYSTEM");
        writeln!(out, "{:width$}  MOUNTED AT", "FILESYSTEM")?;
        for mount in &up.mounts {
            writeln!(out, "{:width$}  {}", mount.dataset, mount.mountpoint.display())?;
        }
        writeln!(out, "\nSnapshots are below .zfs/snapshot of each filesystem.")?;
    }
    if let Some(first) = up.volumes.first() {
        writeln!(out)?;
        let width = width(up.volumes.iter().map(|volume| volume.name.as_str()), "VOLUME");
        writeln!(out, "{:width$}  {:>15}  URI", "VOLUME", "BYTES")?;
        for volume in &up.volumes {
            if let Some(why) = &volume.unavailable {
                writeln!(out, "{:width$}  {:>15}  not served: {why}", volume.name, "-")?;
                continue;
            }
            let uri = volume.uri.as_deref().unwrap_or("-");
            writeln!(out, "{:width$}  {:>15}  {uri}", volume.name, volume.size_bytes)?;
            for uri in volume.tcp_uris.iter().chain(&volume.iscsi_uris) {
                writeln!(out, "{:width$}  {:>15}  {uri}", "", "")?;
            }
            if let Some(socket) = &volume.vhost_user_socket {
                writeln!(out, "{:width$}  {:>15}  vhost-user:{}", "", "", socket.display())?;
            }
        }
        let first = up.volumes.iter().find(|volume| volume.unavailable.is_none()).unwrap_or(first);
        if let Some(socket) = &first.vhost_user_socket {
            writeln!(out)?;
            writeln!(out, "For a machine:     qemu-system-x86_64 -m 2G {}", qemu_options(socket))?;
        }
        if let Some(uri) = &first.uri {
            let file = first.name.rsplit('/').next().unwrap_or("volume");
            writeln!(out)?;
            if up.readonly {
                writeln!(out, "To copy one out:   nbdcopy --progress '{uri}' '{file}.img'")?;
                writeln!(out, "                   qemu-img convert -p -O qcow2 '{uri}' '{file}.qcow2'")?;
            } else {
                writeln!(
                    out,
                    "To try it:         fio --name=try --ioengine=nbd --uri='{uri}' --rw=randwrite --bs=8k \
                     --iodepth=32 --size=1G --verify=crc32c"
                )?;
                writeln!(out, "To copy one in:    nbdcopy --progress disk.img '{uri}'")?;
                writeln!(out, "or out:            nbdcopy --progress '{uri}' '{file}.img'")?;
                writeln!(
                    out,
                    "For a machine:     qemu-system-x86_64 -m 2G -drive \
                     file='{uri}',format=raw,if=virtio,discard=unmap"
                )?;
            }
        }
    }
    if up.mounts.is_empty() && up.volumes.is_empty() {
        writeln!(out, "Nothing in it is mounted or served.")?;
    }
    writeln!(out, "\nTo ask about it:   export CENOTE_SOCKET='{}'", up.socket.display())?;
    let program = std::env::args_os().next().unwrap_or_else(|| "cenote".into());
    writeln!(out, "                   {} zpool status", program.display())?;
    writeln!(out, "In a browser:      {} dashboard --open", program.display())?;
    writeln!(out, "Ctrl-C takes everything down.")?;
    out.flush()
}

/// What has QEMU use a volume through its vhost-user socket. The memory has the size that `-m` says.
fn qemu_options(socket: &Path) -> String {
    // QEMU takes two commas for one.
    let socket = socket.display().to_string().replace(',', ",,");
    format!(
        "-object memory-backend-memfd,id=mem,size=2G,share=on -machine memory-backend=mem -chardev \
         'socket,id=disk,path={socket},reconnect-ms=1000' -device vhost-user-blk-pci,chardev=disk"
    )
}

fn width<'a>(names: impl Iterator<Item = &'a str>, heading: &str) -> usize {
    names.map(|name| name.chars().count()).chain([heading.len()]).max().unwrap_or(0)
}
