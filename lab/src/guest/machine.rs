//! The process of a guest.

#![allow(unsafe_code, reason = "`pre_exec` before QEMU starts")]

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::patience::{Boots, Patience};
use super::{Attached, Luks, Spec, disk, image, monitor, shell};
use crate::error::{Error, Result};
use crate::size::Size;

/// The memory of a guest.
pub(crate) const MEMORY: Size = Size(512 << 20);
/// The file of what it says.
const CONSOLE: &str = "console";
/// What the guest says when it takes scripts.
const READY: &str = "cenote-lab ready";
/// How often it is looked whether it does.
const LOOK: Duration = Duration::from_millis(50);

/// Who carries out the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU.
    Tcg,
}

impl Accelerator {
    /// That of this name; nothing where it is to be found out.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "kvm" => Some(Self::Kvm),
            "tcg" => Some(Self::Tcg),
            _ => None,
        }
    }
}

/// Why a guest boots.
#[derive(Debug)]
pub(crate) enum Purpose<'a> {
    /// To find out whether KVM is of use here: where it does not run soon, KVM is not.
    Probe,
    /// To be measured; its boot is noted, and waited for as long as those before say.
    Measured(&'a mut Boots),
}

/// A guest that runs.
#[derive(Debug)]
pub(crate) struct VirtualMachine {
    child: Child,
    folder: PathBuf,
    /// What is measured in it.
    pub at: PathBuf,
}

impl VirtualMachine {
    /// Boots a guest with this disk, and prepares it. `folder` is new, has a short path, and is the guest's
    /// until it ends.
    ///
    /// # Errors
    /// QEMU's last words, or the guest's.
    pub(crate) fn start(
        spec: &Spec,
        attached: &Attached,
        accelerator: Accelerator,
        purpose: Purpose<'_>,
        folder: &Path,
        size: Size,
        stops: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let [kernel, initrd] = image::ready(stops)?;
        fs::create_dir(folder).map_err(Error::file(folder))?;
        let socket = |id: &str, name: &str| {
            format!("socket,id={id},path={},server=on,wait=off", folder.join(name).display())
        };
        let (name, processor) = match accelerator {
            Accelerator::Kvm => ("kvm", "host"),
            Accelerator::Tcg => ("tcg", "max"),
        };
        let without_aes = if spec.luks == Luks::WithoutAes { ",-aes" } else { "" };
        let megabytes = MEMORY.0 >> 20;
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", name, "-cpu", &format!("{processor}{without_aes}"), "-smp", "1"]);
        command.args(["-m", &format!("{megabytes}M"), "-nodefaults", "-no-user-config"]);
        command.args(["-display", "none", "-no-reboot", "-machine", "pc,memory-backend=mem"]);
        // Shared, because vhost-user needs that, and all are to have the same.
        command.args(["-object", &format!("memory-backend-memfd,id=mem,size={megabytes}M,share=on")]);
        command.arg("-kernel").arg(&kernel).arg("-initrd").arg(&initrd);
        command
            .args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check nowatchdog cryptomgr.notests=1"]);
        let console = folder.join(CONSOLE);
        command.args(["-chardev", &format!("file,id=console,path={}", console.display())]);
        command.args(["-serial", "chardev:console", "-chardev", &socket("requests", shell::REQUESTS)]);
        command.args(["-serial", "chardev:requests", "-chardev", &socket("replies", shell::REPLIES)]);
        command.args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=replies,name=lab"]);
        command.args([
            "-chardev",
            &socket("monitor", monitor::SOCKET),
            "-mon",
            "chardev=monitor,mode=control",
        ]);
        command.args(disk::arguments(spec, attached));
        let said = folder.join("qemu");
        let log = File::create(&said).map_err(Error::file(&said))?;
        // Ctrl-C is for the lab, which ends it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        goes_with_this_process(&mut command);
        let program = "qemu-system-x86_64".to_owned();
        let child = command.spawn().map_err(|error| Error::Missing { program, error })?;
        let mut machine = Self { child, folder: folder.to_owned(), at: PathBuf::new() };
        let patience = match purpose {
            Purpose::Probe => {
                let patience = Boots::patience_of_probe();
                machine.wait(&console, &said, patience, "", stops)?;
                patience
            }
            Purpose::Measured(boots) => {
                let patience = boots.patience(accelerator == Accelerator::Tcg);
                boots.note(machine.wait(&console, &said, patience, &boots.words(), stops)?);
                patience
            }
        };
        let prepared = machine.carry_out(&spec.preparation(size), patience, stops)?;
        machine.at = PathBuf::from(prepared.lines().last().unwrap_or_default().trim());
        Ok(machine)
    }

    /// Waits until the guest takes scripts; how long that took. `words` say where the limit comes from.
    fn wait(
        &mut self,
        console: &Path,
        said: &Path,
        patience: Patience,
        words: &str,
        stops: &dyn Fn() -> bool,
    ) -> Result<Duration> {
        let began = Instant::now();
        let failed = |output: String| Error::Failed { command: "qemu-system-x86_64".into(), output };
        loop {
            if last_words(console).contains(READY) {
                return Ok(began.elapsed());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(failed(format!("it ended at once ({status}): {}", last_words(said))));
            }
            if stops() {
                return Err(Error::Stopped);
            }
            if began.elapsed() > patience.boot {
                let (console, seconds) = (last_words(console), patience.boot.as_secs_f64());
                let console = if console.is_empty() { "nothing".to_owned() } else { console };
                return Err(failed(format!(
                    "the guest did not boot within {seconds:.0} s ({words}); its console said: {console}"
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Has it carry out a script; what that said.
    fn carry_out(&self, script: &str, patience: Patience, stops: &dyn Fn() -> bool) -> Result<String> {
        let failed = |output: String| Error::Failed { command: "the guest's preparation".into(), output };
        let began = Instant::now();
        let mut waits = || match (stops(), began.elapsed() > patience.preparation) {
            (true, _) => Err(io::Error::other("it is to stop")),
            (_, true) => {
                let seconds = patience.preparation.as_secs();
                let told = format!("the guest did not answer within {seconds} s");
                Err(io::Error::new(io::ErrorKind::TimedOut, told))
            }
            _ => Ok(()),
        };
        let said = match shell::run(&self.folder, script.as_bytes(), &mut waits) {
            Err(_) if stops() => return Err(Error::Stopped),
            said => said.map_err(|error| failed(error.to_string()))?,
        };
        if said.status != 0 {
            let words = String::from_utf8_lossy(&said.stderr).into_owned();
            return Err(failed(words.lines().take(6).collect::<Vec<_>>().join("; ")));
        }
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    }

    /// What it is doing, for a person who asks why it does not answer.
    pub(crate) fn seen(&self) -> String {
        let disk = monitor::seen(&self.folder).unwrap_or_else(|error| format!("QEMU does not say ({error})"));
        let console = last_words(&self.folder.join(CONSOLE));
        let console = if console.contains(READY) { String::new() } else { format!("; it said: {console}") };
        format!("{disk}{console}")
    }

    /// The command that runs a shell in it, by the program that this process runs.
    ///
    /// # Errors
    /// It is not known where that is.
    pub(crate) fn by(&self) -> Result<Vec<String>> {
        let program = std::env::current_exe().map_err(Error::file(Path::new("/proc/self/exe")))?;
        let words = [program.display().to_string(), "lab".into(), "in-guest".into()];
        Ok(words.into_iter().chain([self.folder.display().to_string()]).collect())
    }
}

/// The last lines of a file.
fn last_words(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let last: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    last[last.len().saturating_sub(4)..].join("; ")
}

/// A lab that is killed takes the process along.
pub(super) fn goes_with_this_process(command: &mut Command) {
    let orphan = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: it is one system call, with no memory and no lock in it.
    unsafe { command.pre_exec(orphan) };
}

impl Drop for VirtualMachine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
