//! The rules: what a machine must have for what, what it costs where it has not, and what to do.

use engine::properties::format::nicebytes;
use serde::Serialize;

use super::machine::{Limit, Machine, Module};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    /// It is good to know.
    Note,
    /// Something does not work.
    Lacks,
    /// Nothing works.
    Broken,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Lacks => "lacks",
            Self::Broken => "broken",
        }
    }
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    pub state: State,
    /// What is there.
    pub found: String,
    /// What that costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

fn ok(check: &'static str, found: impl Into<String>) -> Finding {
    Finding { check, state: State::Ok, found: found.into(), cost: None, advice: None }
}

fn bad(state: State, check: &'static str, found: impl Into<String>, cost: &str, advice: &str) -> Finding {
    let (cost, advice) = (Some(cost.to_owned()), Some(advice.to_owned()));
    Finding { check, state, found: found.into(), cost, advice }
}

/// Ports where clients look for what the daemon can serve.
const PORTS: [(u16, &str); 3] = [(10_809, "NBD"), (3260, "iSCSI"), (9134, "metrics")];
/// Fewer open files than these run out with some hundred volumes, mounts and clients.
const FEW_FILES: u64 = 65_536;
/// Pages with keys count against this limit, and what rings of old kernels pin.
const FEW_LOCKED_BYTES: u64 = 64 << 20;
/// With less memory a pool works, slowly.
const LITTLE_MEMORY_BYTES: u64 = 1 << 30;
/// The share of the machine's memory that the ARC may have, and the bounds of that.
const ARC_SHARE: u64 = 4;
const ARC_BYTES: std::ops::RangeInclusive<u64> = 64 << 20..=32 << 30;

/// All findings, in the order of the table.
pub fn all(machine: &Machine) -> Vec<Finding> {
    vec![
        daemon(machine),
        ring(machine),
        fuse(machine),
        others(machine),
        ublk(machine),
        nbd(machine),
        open_files(machine.open_files),
        locked(machine),
        memory(machine),
        ports(machine),
        clock(machine.is_clock_in_sync),
        propagation(machine),
        module(machine),
        hostid(machine),
    ]
}

fn daemon(machine: &Machine) -> Finding {
    let name = "daemon";
    let own = env!("CARGO_PKG_VERSION");
    match &machine.daemon {
        Some((version, pid)) if version == own => ok(name, format!("runs, version {version}, process {pid}")),
        Some((version, _)) => bad(
            State::Note,
            name,
            format!("version {version} runs, this program is {own}"),
            "commands that only one of the two knows are refused",
            "restart the daemon when its clients can do without it: systemctl restart cenote",
        ),
        None => bad(
            State::Note,
            name,
            "none runs",
            "no pool is open; a command that needs a daemon starts one",
            "systemctl enable --now cenote",
        ),
    }
}

fn ring(machine: &Machine) -> Finding {
    let name = "io_uring";
    let Some(fault) = &machine.ring_fault else { return ok(name, "works") };
    let disabled = machine.text("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let advice = match disabled.trim() {
        "1" => "sysctl kernel.io_uring_disabled=0, or add the user to the group kernel.io_uring_group",
        "2" => "sysctl kernel.io_uring_disabled=0",
        _ => "use Linux 5.11 or later; in a container, a seccomp profile that allows io_uring_setup",
    };
    let found = format!("no ring can be made: {}", device::in_words(fault));
    bad(State::Broken, name, found, "no pool can be opened", advice)
}

fn fuse(machine: &Machine) -> Finding {
    let name = "FUSE";
    match &machine.fuse_fault {
        None => ok(name, "/dev/fuse opens"),
        Some(fault) => bad(
            State::Lacks,
            name,
            format!("/dev/fuse: {}", device::in_words(fault)),
            "filesystems cannot be mounted; volumes, streams, 'cenote ls' and 'cat' work without",
            "modprobe fuse; in a container, --device /dev/fuse and CAP_SYS_ADMIN",
        ),
    }
}

fn others(machine: &Machine) -> Finding {
    let name = "mounts for others";
    if machine.is_root {
        return ok(name, "root needs no fusermount3");
    }
    let programs = ["/bin/fusermount3", "/usr/bin/fusermount3"];
    if !programs.iter().any(|program| machine.has(program)) {
        let cost = "without root nothing can be mounted";
        return bad(State::Lacks, name, "no fusermount3", cost, "apt-get install fuse3");
    }
    let configured = machine.text("/etc/fuse.conf").unwrap_or_default();
    if configured.lines().any(|line| line.trim() == "user_allow_other") {
        return ok(name, "fusermount3, user_allow_other");
    }
    bad(
        State::Note,
        name,
        "/etc/fuse.conf has no user_allow_other",
        "mounts of a daemon without root are seen by its user alone",
        "write the line user_allow_other into /etc/fuse.conf",
    )
}

fn ublk(machine: &Machine) -> Finding {
    let name = "ublk";
    match (machine.has("/dev/ublk-control"), machine.module("ublk_drv")) {
        (true, _) => ok(name, "/dev/ublk-control is there"),
        (_, Module::Loaded | Module::Installed) => bad(
            State::Note,
            name,
            "the module ublk_drv is not loaded",
            "'cenote attach' takes the kernel's NBD client, which is slower",
            "modprobe ublk_drv (a file in /etc/modules-load.d for the next start)",
        ),
        (_, Module::Absent) => bad(
            State::Note,
            name,
            "this kernel has no ublk_drv",
            "'cenote attach' takes the kernel's NBD client, which is slower",
            "use a kernel with CONFIG_BLK_DEV_UBLK (Linux 6.0 or later)",
        ),
    }
}

fn nbd(machine: &Machine) -> Finding {
    let name = "NBD client";
    let has_ublk = machine.has("/dev/ublk-control");
    match machine.module("nbd") {
        Module::Loaded => ok(name, "the module nbd is loaded"),
        Module::Installed => {
            let cost = "'cenote attach' needs ublk or this one to make block devices of volumes";
            let advice = "modprobe nbd (a file in /etc/modules-load.d for the next start)";
            bad(State::Note, name, "the module nbd is not loaded", cost, advice)
        }
        Module::Absent if has_ublk => ok(name, "no module nbd; ublk does it"),
        Module::Absent => bad(
            State::Lacks,
            name,
            "neither nbd nor ublk",
            "volumes cannot be block devices of this kernel; clients of NBD, iSCSI and vhost-user work",
            "install the modules of this kernel (linux-modules-extra on Ubuntu)",
        ),
    }
}

fn open_files(limit: Limit) -> Finding {
    let name = "open files";
    match limit {
        Some(files) if files < FEW_FILES => bad(
            State::Lacks,
            name,
            format!("at most {files}"),
            "with many volumes, mounts or clients, new ones are refused",
            "LimitNOFILE=1048576 in the unit; ulimit -n in a shell",
        ),
        Some(files) => ok(name, format!("at most {files}")),
        None => ok(name, "no limit"),
    }
}

fn locked(machine: &Machine) -> Finding {
    let name = "locked memory";
    match machine.locked_bytes {
        Some(bytes) if bytes < FEW_LOCKED_BYTES && !machine.is_root => bad(
            State::Note,
            name,
            format!("at most {}", nicebytes(bytes)),
            "keys of encrypted datasets beyond that may be swapped out; before Linux 5.12 rings are refused \
             when there are many threads",
            "LimitMEMLOCK=infinity in the unit; ulimit -l in a shell",
        ),
        Some(bytes) => ok(name, format!("at most {}", nicebytes(bytes))),
        None => ok(name, "no limit"),
    }
}

/// The least limit of the control groups that this process is in.
fn group_limit(machine: &Machine) -> Option<u64> {
    let groups = machine.text("/proc/self/cgroup")?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut limits = Vec::new();
    let mut at = Some(path.trim());
    while let Some(path) = at {
        let text = machine.text(&format!("/sys/fs/cgroup/{path}/memory.max"));
        limits.extend(text.and_then(|text| text.trim().parse::<u64>().ok()));
        at = match path.rsplit_once('/') {
            Some((above, _)) => Some(above),
            None => Some("").filter(|_| !path.is_empty()),
        };
    }
    limits.into_iter().min()
}

fn memory(machine: &Machine) -> Finding {
    let name = "memory";
    let all = machine.memory_bytes;
    let arc = (all / ARC_SHARE).clamp(*ARC_BYTES.start(), *ARC_BYTES.end());
    let found = format!("{}, of which the ARC may have {}", nicebytes(all), nicebytes(arc));
    if let Some(limit) = group_limit(machine).filter(|limit| *limit < arc.saturating_mul(2)) {
        return bad(
            State::Lacks,
            name,
            format!("{found}, and this control group {} in all", nicebytes(limit)),
            "the kernel ends the daemon when it uses what it may",
            "serve --arc-max with half of the limit at most, or a higher MemoryMax",
        );
    }
    if all < LITTLE_MEMORY_BYTES {
        let cost = "metadata is read from disks again and again; deduplication is slow";
        return bad(State::Note, name, found, cost, "1 GiB or more");
    }
    ok(name, found)
}

/// The TCP ports where something listens.
fn listening(machine: &Machine) -> Vec<u16> {
    let mut ports = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in machine.text(table).unwrap_or_default().lines().skip(1) {
            let mut fields = line.split_whitespace().skip(1);
            let (local, state) = (fields.next().unwrap_or_default(), fields.nth(1));
            let port = local.rsplit_once(':').and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
            ports.extend(port.filter(|_| state == Some("0A")));
        }
    }
    ports
}

fn ports(machine: &Machine) -> Finding {
    let name = "ports";
    let listening = listening(machine);
    let is_foreign = |(port, _): &&(u16, &str)| listening.contains(port) && machine.own_port != Some(*port);
    let used: Vec<String> =
        PORTS.iter().filter(is_foreign).map(|(port, what)| format!("{port} ({what})")).collect();
    if used.is_empty() {
        return ok(name, "those of NBD, iSCSI and metrics are free, or the daemon's");
    }
    bad(
        State::Note,
        name,
        format!("in use: {}", used.join(", ")),
        "where that is not the daemon itself, it can serve only at other ports",
        "ss -ltnp says by which program; 'cenote serve' takes another ADDRESS:PORT",
    )
}

fn clock(is_in_sync: Option<bool>) -> Finding {
    let name = "clock";
    match is_in_sync {
        Some(true) => ok(name, "in sync"),
        Some(false) => bad(
            State::Note,
            name,
            "not in sync with any other",
            "snapshots by schedule and files have wrong times; the other machine of 'multihost' may disagree",
            "apt-get install systemd-timesyncd, or chrony",
        ),
        None => bad(State::Note, name, "the system does not tell", "unknown", "look at it: timedatectl"),
    }
}

fn propagation(machine: &Machine) -> Finding {
    let name = "mount propagation";
    if let Some((_, pid)) = &machine.daemon
        && machine.is_same_link("/proc/self/ns/mnt", &format!("/proc/{pid}/ns/mnt")) == Some(false)
    {
        return bad(
            State::Lacks,
            name,
            "the daemon has a mount namespace of its own",
            "what it mounts may not be seen here",
            "no ProtectSystem=, PrivateTmp= and the like in its unit",
        );
    }
    let mounts = machine.text("/proc/self/mountinfo").unwrap_or_default();
    let is_root = |line: &&str| line.split(' ').nth(4) == Some("/");
    // The topmost mount is the last.
    let root = mounts.lines().rfind(is_root).unwrap_or_default();
    let optional = root.split(" - ").next().unwrap_or_default();
    if optional.split(' ').any(|field| field.starts_with("shared:")) {
        return ok(name, "/ is shared");
    }
    bad(
        State::Note,
        name,
        "/ is private",
        "what the daemon mounts later is not seen in containers and services that run already",
        "mount --make-rshared / (systemd does so at the start of a machine)",
    )
}

fn module(machine: &Machine) -> Finding {
    let name = "OpenZFS's module";
    if machine.module("zfs") != Module::Loaded {
        return ok(name, "not loaded");
    }
    let mut pools = machine.directories("/proc/spl/kstat/zfs");
    pools.retain(|pool| !pool.starts_with('$'));
    let found = match pools.as_slice() {
        [] => "loaded, without pools".to_owned(),
        pools => format!("loaded, with the pools {}", pools.join(", ")),
    };
    bad(
        State::Note,
        name,
        found,
        "a pool can be open in one of the two; its commands zpool and zfs may be first in PATH",
        "export a pool there before it is imported here; 'cenote zpool' is always this program",
    )
}

fn hostid(machine: &Machine) -> Finding {
    let name = "hostid";
    if machine.has("/etc/hostid") {
        return ok(name, "/etc/hostid is there");
    }
    bad(
        State::Note,
        name,
        "no /etc/hostid",
        "the id follows from the address of the host: when that changes, import asks for -f; no multihost",
        "head -c 4 /dev/urandom > /etc/hostid, with all pools exported",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io;

    /// A machine of these files that has all that is needed otherwise.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let place = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine {
            root: place.path().to_owned(),
            is_root: true,
            memory_bytes: 8 << 30,
            ring_fault: None,
            fuse_fault: None,
            is_clock_in_sync: Some(true),
            open_files: Some(1 << 20),
            locked_bytes: None,
            daemon: Some((env!("CARGO_PKG_VERSION").to_owned(), 1)),
            own_port: None,
        };
        (place, machine)
    }

    const GOOD: [(&str, &str); 4] = [
        ("dev/ublk-control", ""),
        ("etc/hostid", "1234"),
        ("proc/self/mountinfo", "21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"),
        ("sys/module/nbd/x", ""),
    ];

    fn of(machine: &Machine, check: &str) -> Finding {
        all(machine).into_iter().find(|finding| finding.check == check).unwrap()
    }

    #[test]
    fn a_machine_that_has_all_is_fine() {
        let (_place, machine) = machine(&GOOD);
        let findings = all(&machine);
        assert!(findings.iter().all(|finding| finding.state == State::Ok), "{findings:#?}");
    }

    #[test]
    fn what_does_not_work_has_its_cost_and_what_to_do() {
        let (_place, mut machine) = machine(&[
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("lib/modules/6.1.0/modules.dep", "kernel/drivers/block/ublk_drv.ko.xz: x.ko\n"),
            ("proc/sys/kernel/io_uring_disabled", "2\n"),
            ("proc/self/mountinfo", "21 1 8:1 / / rw - ext4 /dev/sda1 rw shared:1\n"),
            ("sys/module/zfs/x", ""),
            ("proc/spl/kstat/zfs/rpool/x", ""),
            ("proc/net/tcp", "  sl  local\n 0: 0100007F:0CBC 00000000:0000 0A\n 1: 0100007F:2A39 0:0 01\n"),
        ]);
        machine.ring_fault = Some(io::Error::from_raw_os_error(libc::EPERM));
        machine.fuse_fault = Some(io::Error::from_raw_os_error(libc::ENOENT));
        machine.is_root = false;
        machine.open_files = Some(1024);
        machine.is_clock_in_sync = Some(false);
        machine.daemon = None;
        for finding in all(&machine) {
            let is_told = finding.cost.is_some() && finding.advice.is_some();
            assert_eq!(finding.state != State::Ok, is_told, "{finding:?}");
        }
        assert_eq!(of(&machine, "io_uring").state, State::Broken);
        assert_eq!(of(&machine, "io_uring").advice.unwrap(), "sysctl kernel.io_uring_disabled=0");
        assert_eq!(of(&machine, "ublk").found, "the module ublk_drv is not loaded");
        assert_eq!(of(&machine, "NBD client").state, State::Lacks);
        assert_eq!(of(&machine, "ports").found, "in use: 3260 (iSCSI)");
        assert_eq!(of(&machine, "OpenZFS's module").found, "loaded, with the pools rpool");
        assert_eq!(of(&machine, "mount propagation").found, "/ is private");
        assert_eq!(of(&machine, "mounts for others").found, "no fusermount3");
    }

    #[test]
    fn a_control_group_that_is_smaller_than_the_arc_is_told() {
        let (_place, machine) = machine(&[
            ("proc/self/cgroup", "0::/system.slice/cenote.service\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/system.slice/cenote.service/memory.max", "max\n"),
        ]);
        let finding = of(&machine, "memory");
        assert_eq!(finding.state, State::Lacks);
        assert!(finding.found.ends_with("this control group 1G in all"), "{}", finding.found);
    }
}
