//! Guests of variants: one beside each volume or image, from when that is made until it is destroyed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Bench, Placement};
use crate::error::{Error, Result};
use crate::fio::{self, Endpoint};
use crate::guest::{
    Accelerator, Attached, Boots, Disk, HostFilesystem, Purpose, Spec, VirtualMachine, Wire, make_image,
};
use crate::progress::Progress;
use crate::size::Size;

/// The file of an image in its filesystem.
const IMAGE: &str = "disk.img";
/// The device of KVM.
const KVM: &str = "/dev/kvm";

/// The guest of a variant. The machine ends before the filesystem that its disk is on.
struct Guest {
    machine: VirtualMachine,
    _filesystem: Option<HostFilesystem>,
}

/// The guests that run.
pub(super) struct Guests {
    /// By what is measured in them.
    running: BTreeMap<Placement, Guest>,
    /// What carries out their instructions, as soon as that is known.
    accelerator: Option<Accelerator>,
    /// How long they took to boot.
    boots: Boots,
}

impl Guests {
    /// None as yet; each may take `boot_seconds` to boot, where that is set.
    pub(super) fn of(boot_seconds: Option<f64>) -> Self {
        Self { running: BTreeMap::new(), accelerator: None, boots: Boots::of(boot_seconds) }
    }

    /// Whether none runs.
    pub(super) fn is_none(&self) -> bool {
        self.running.is_empty()
    }

    /// Ends the guest of a placement, where it has one.
    pub(super) fn end(&mut self, lodging: &Placement) {
        self.running.remove(lodging);
    }

    /// Ends all of them.
    pub(super) fn end_all(&mut self) {
        self.running.clear();
    }

    /// How long a run may take until it is given up, of `seconds`, or that moves so many bytes, where it is
    /// not on this machine: on a machine that boots guests slowly it has more time beyond its own.
    pub(super) fn limit(&self, seconds: f64, bytes: u64) -> Duration {
        let beyond = if self.running.is_empty() { Duration::ZERO } else { self.boots.beyond() };
        fio::limit(seconds, bytes).saturating_add(beyond)
    }

    /// What carries out the guests' instructions: KVM where a guest boots with it, which is tried once; with
    /// a note that says which it is.
    fn accelerator(
        &mut self,
        spec: &Spec,
        attached: &Attached,
        folder: &Path,
        size: Size,
        progress: &dyn Progress,
    ) -> Result<(Accelerator, Option<String>)> {
        let (accelerator, why) = match (spec.accelerator, self.accelerator) {
            (Some(chosen), _) => (chosen, "it was asked for"),
            (None, Some(known)) => return Ok((known, None)),
            (None, None) if std::fs::File::options().read(true).write(true).open(KVM).is_err() => {
                (Accelerator::Tcg, "/dev/kvm cannot be opened here")
            }
            (None, None) => {
                let folder = folder.join("guest-probe");
                let stopped = AtomicBool::new(false);
                let stops = || {
                    let stops = progress.stops();
                    stopped.fetch_or(stops, Ordering::Relaxed);
                    stops
                };
                let kvm = Accelerator::Kvm;
                match VirtualMachine::start(spec, attached, kvm, Purpose::Probe, &folder, size, &stops) {
                    Ok(_) => (Accelerator::Kvm, "a guest booted with it"),
                    Err(_) if stopped.load(Ordering::Relaxed) => return Err(Error::Stopped),
                    Err(_) => (Accelerator::Tcg, "a guest does not boot with /dev/kvm here"),
                }
            }
        };
        self.accelerator = Some(accelerator);
        let note = match accelerator {
            Accelerator::Kvm => format!("Guests ran with KVM: {why}."),
            Accelerator::Tcg => format!(
                "Guests were emulated (QEMU's TCG, without KVM: {why}). Their processor is many times slower \
                 than a real one: read the ratios of their figures, not the figures."
            ),
        };
        Ok((accelerator, Some(note)))
    }
}

impl Bench<'_> {
    /// Boots the guest of a volume or image that was just made and is at `endpoint`; where fio works in it.
    pub(super) fn start_guest(
        &mut self,
        lodging: &Placement,
        endpoint: Endpoint,
        spec: &Spec,
        progress: &dyn Progress,
    ) -> Result<Endpoint> {
        let size = self.experiment.target.size();
        let home = self.homes.get(lodging);
        let home = home.cloned().ok_or_else(|| Error::Experiment("this guest has no disk".into()))?;
        let number = self.homes.number();
        let programs = self.servers.programs(&home.server)?;
        let folder = programs.sockets()?;
        let image = |format, directory: &Path| {
            let path = directory.join(IMAGE);
            make_image(format, &path, spec.disk_bytes(size))?;
            Ok::<_, Error>(path.display().to_string())
        };
        let (mut filesystem, mut note) = (None, None);
        let at = match (spec.disk, &endpoint) {
            (Disk::Image(format), Endpoint::Directory(directory)) => image(format, directory)?,
            (Disk::ImageOnVolume(format), Endpoint::Nbd(uri)) => {
                let device = programs.block_device(&home.dataset);
                note = device.as_ref().err().map(|why| {
                    format!(
                        "The block device below ext4 was a loop device of the export as a file, two layers \
                         more than the kernel's own would be: {why}."
                    )
                });
                let made = HostFilesystem::make(device, uri, &folder.join(format!("host-{number}")))?;
                let at = image(format, made.path())?;
                filesystem = Some(made);
                at
            }
            (Disk::Volume(Wire::Nbd), Endpoint::Nbd(uri)) => uri.clone(),
            (Disk::Volume(wire), _) => programs.wire(&home.dataset, wire)?,
            (Disk::Image(_), _) => return Err(Error::Experiment("an image needs a filesystem".into())),
            (Disk::ImageOnVolume(_), _) => return Err(Error::Experiment("this image needs a volume".into())),
        };
        note.into_iter().for_each(|note| self.remarks.note(note));
        let attached = Attached { at };
        let (accelerator, note) = self.guests.accelerator(spec, &attached, &folder, size, progress)?;
        note.into_iter().for_each(|note| self.remarks.note(note));
        let folder = folder.join(format!("guest-{number}"));
        let purpose = Purpose::Measured(&mut self.guests.boots);
        let stops = || progress.stops();
        let machine = VirtualMachine::start(spec, &attached, accelerator, purpose, &folder, size, &stops)?;
        let (by, path) = (machine.by()?, machine.at.clone());
        self.guests.running.insert(lodging.clone(), Guest { machine, _filesystem: filesystem });
        Ok(Endpoint::Elsewhere { by, path, engine: "io_uring".to_owned() })
    }

    /// What the guest of a variant and the server of its disk are doing: for the error of a run that does not
    /// end.
    pub(crate) fn seen(&self, lodging: &Placement) -> Option<String> {
        let guest = self.guests.running.get(lodging)?.machine.seen();
        let home = self.homes.get(lodging);
        let waiting = home.and_then(|home| self.servers.programs(&home.server).ok()?.waiting(&home.dataset));
        let server = match waiting.as_deref() {
            None => "it is not known what the server of its disk does".to_owned(),
            Some([]) => "its server has no request of its disk that takes long".to_owned(),
            Some(some) => format!("its server has requests of its disk that take long: {}", some.join("; ")),
        };
        Some(format!("the guest is stuck, or slower than it should be; {guest}; {server}"))
    }
}
