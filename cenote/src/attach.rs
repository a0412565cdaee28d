//! `cenote attach`, `cenote detach`: volumes as block devices of the kernel.

use anyhow::{Result, anyhow};
use server::api::{AttachVolume, AttachedVolume, DetachVolume, ListAttached, Through};

use crate::{client, output};

/// Arguments of `cenote attach`.
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
pub struct AttachArguments {
    /// How the kernel gets at the volume; without it ublk, or NBD where the kernel has no ublk
    #[arg(long, value_name = "WAY", requires = "volume")]
    through: Option<Way>,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// The volume, or a snapshot of one; without it, list attached volumes
    #[arg(value_name = "VOLUME")]
    volume: Option<String>,
}

/// A way of the kernel to a volume.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Way {
    /// The kernel's ublk driver: /dev/ublkbN
    Ublk,
    /// The kernel's NBD client: /dev/nbdN
    Nbd,
}

impl From<Way> for Through {
    fn from(way: Way) -> Self {
        match way {
            Way::Ublk => Self::Ublk,
            Way::Nbd => Self::Nbd,
        }
    }
}

/// Arguments of `cenote detach`.
#[derive(Debug, clap::Args)]
pub struct DetachArguments {
    /// Detach it even if it is mounted or otherwise in use: programs that use it get errors
    #[arg(short)]
    force: bool,
    /// The volume
    #[arg(value_name = "VOLUME")]
    volume: String,
}

const ABOUT: &str = "\
The device is one of the kernel's ublk driver (/dev/ublkbN; 'modprobe ublk_drv', Linux 6.5 or later) or \
of its NBD client (/dev/nbdN; 'modprobe nbd'), with a link /dev/zvol/POOL/VOLUME. It is there until it \
is detached, the volume or its pool goes, or the daemon ends; the kernel writes before what it keeps of \
it. Volumes with volmode=dev or volmode=full get one by themselves, and with snapdev=visible their \
snapshots too. A new volsize is the device's at once, but before Linux 6.16 a ublk device keeps its size \
until nothing uses it.\n\n\
The daemon serves the device, so nothing that the daemon needs may depend on it: no swap, and no pool of \
the same daemon. With little memory left, the kernel may wait for the daemon to write what is dirty on \
the device while the daemon waits for memory. Leave memory free (vm.min_free_kbytes), keep dirty data \
small (vm.dirty_bytes), and use the volume's NBD socket for virtual machines instead.";

/// Makes the device of a volume, or lists those that there are.
pub fn attach(arguments: &AttachArguments) -> Result<()> {
    let absent = || anyhow!("no daemon runs: import the pool first");
    let Some(volume) = &arguments.volume else {
        let attached = client::call_running(&ListAttached {})?.unwrap_or_default();
        if arguments.json {
            return print_json(&attached);
        }
        let lines = attached
            .iter()
            .map(|it| format!("{}\t{}\t{}\n", it.volume, it.node.display(), it.link.display()));
        return output::print(&lines.collect::<String>());
    };
    let request = AttachVolume { volume: volume.clone(), through: arguments.through.map(Through::from) };
    let attached = client::call_running(&request)?.ok_or_else(absent)?;
    if arguments.json {
        return print_json(&[attached]);
    }
    output::print(&format!("{}\n", attached.node.display()))
}

fn print_json(volumes: &[AttachedVolume]) -> Result<()> {
    let mut document = output::document("cenote attach");
    document.insert("volumes".into(), serde_json::to_value(volumes)?);
    output::print_json(&document)
}

/// Ends the device of a volume.
pub fn detach(arguments: &DetachArguments) -> Result<()> {
    let request = DetachVolume { volume: arguments.volume.clone(), force: arguments.force };
    let absent = || anyhow!("cannot detach '{}': it is not attached", arguments.volume);
    client::call_running(&request)?.ok_or_else(absent)
}
