//! OpenZFS's kernel module as a judge, in a virtual machine.
//!
//! `scripts/make-kernel-vm` makes the machine: a kernel with the module, and nothing on top but busybox and
//! OpenZFS's commands. It is emulated, so that neither KVM nor root is needed; a boot takes about half a
//! minute. A [`Job`] is a shell script and the disks that it finds by the names that [`Job::disk_name`]
//! tells: `/dev/vdb`, `/dev/vdc`, ...; what it prints comes back. Disks are changed in place.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::skip::skipped;

/// How long a job may take when it does not say.
const PATIENCE: Duration = Duration::from_secs(900);
/// Where on the machine's bus disks begin, and how many share a slot: there are more disks than slots.
const FIRST_SLOT: usize = 2;
const DISKS_PER_SLOT: usize = 8;

/// The machine.
#[derive(Debug, Clone)]
pub struct KernelVm {
    dir: PathBuf,
}

/// A job for a machine.
#[derive(Debug, Clone)]
pub struct Job {
    /// For `sh`. Ends the job with the first failure when it says `set -e`.
    pub script: String,
    /// Raw images.
    pub disks: Vec<PathBuf>,
    /// The machine is switched off after that long.
    pub limit: Duration,
}

impl Job {
    /// A job with the usual time limit.
    pub fn new(script: impl Into<String>, disks: Vec<PathBuf>) -> Self {
        Self { script: script.into(), disks, limit: PATIENCE }
    }

    /// The name in `/dev` of the disk with this number.
    pub fn disk_name(number: usize) -> String {
        // The script is on the first.
        let number = number + 1;
        let letter = |number: usize| char::from(b'a' + (number % 26) as u8);
        let first = (number / 26).checked_sub(1).map(letter);
        "vd".chars().chain(first).chain([letter(number)]).collect()
    }
}

/// The result of a job.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The output of the script.
    pub output: String,
    /// Its exit code; absent when the machine went down before its end.
    pub code: Option<i32>,
}

impl KernelVm {
    /// The machine, or `None` when `$CENOTE_SKIP` lists `kernel`.
    ///
    /// # Panics
    /// When it was not made: a test without its judge must not pass.
    pub fn find() -> Option<Self> {
        if skipped("kernel", "the kernel module's judgement") {
            return None;
        }
        let made = std::env::var_os("CENOTE_KERNEL_VM").map(PathBuf::from);
        let dir = made.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kernel-vm"));
        let there = ["vmlinuz", "initrd"].iter().all(|name| dir.join(name).exists());
        assert!(
            there,
            "there is no virtual machine in {}; make it with scripts/make-kernel-vm, or set \
             CENOTE_SKIP=kernel to leave such tests out",
            dir.display()
        );
        Some(Self { dir })
    }

    /// Boots the machine, runs the job, and waits until it is off.
    pub fn run(&self, job: &Job) -> Result<Outcome> {
        let script = tempfile::NamedTempFile::new()?;
        self.write_script(script.path(), &job.script)?;
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-accel", "tcg,tb-size=128", "-cpu", "max", "-m", "1536", "-smp", "2"])
            .args(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"])
            .arg("-kernel")
            .arg(self.dir.join("vmlinuz"))
            .arg("-initrd")
            .arg(self.dir.join("initrd"))
            .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"]);
        let disks = std::iter::once(script.path()).chain(job.disks.iter().map(PathBuf::as_path));
        for (number, path) in disks.enumerate() {
            let (slot, function) = (FIRST_SLOT + number / DISKS_PER_SLOT, number % DISKS_PER_SLOT);
            let drive = format!("file={},format=raw,if=none,id=disk{number},cache=unsafe", path.display());
            let device =
                format!("virtio-blk-pci,drive=disk{number},addr={slot:x}.{function},multifunction=on");
            command.args(["-drive", &drive, "-device", &device]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().context("qemu-system-x86_64 cannot be run")?;
        let console = watch(child, job.limit)?;
        let after = console.split_once("@@ begin").map(|(_, after)| after);
        let Some(after) = after else { bail!("the machine did not come up:\n{console}") };
        let after = after.replace('\r', "");
        Ok(match after.split_once("@@ end ") {
            Some((output, code)) => Outcome {
                output: output.into(),
                code: code.lines().next().and_then(|code| code.trim().parse().ok()),
            },
            None => Outcome { output: after, code: None },
        })
    }

    /// A disk of whole sectors that begins with the script.
    fn write_script(&self, path: &Path, script: &str) -> Result<()> {
        let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
        file.write_all(script.as_bytes())?;
        file.seek(SeekFrom::Start(0))?;
        file.set_len((script.len() as u64).next_multiple_of(1 << 20))?;
        Ok(())
    }
}

/// All that the console shows until the machine is off. One that takes too long is switched off.
fn watch(mut child: Child, limit: Duration) -> Result<String> {
    let (send, receive) = mpsc::channel();
    let streams = [
        child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
        child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
    ];
    for mut stream in streams.into_iter().flatten() {
        let send = send.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                if send.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
    }
    drop(send);
    let end = Instant::now() + limit;
    let mut console = Vec::new();
    loop {
        match receive.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(bytes) => console.extend(bytes),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                bail!("the machine took more than {limit:?}:\n{}", String::from_utf8_lossy(&console));
            }
        }
    }
    child.wait()?;
    Ok(String::from_utf8_lossy(&console).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_after_the_script_are_named_as_the_kernel_names_them() {
        assert_eq!([0, 24, 25, 50, 51].map(Job::disk_name), ["vdb", "vdz", "vdaa", "vdaz", "vdba"]);
    }
}
