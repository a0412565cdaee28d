"""The participants: how each is set up, filled by size, measured and taken down again."""

import json
import os
import shutil
import socket
import struct
import subprocess
import time
from pathlib import Path

from beside.cells import NOISE_PERCENT, SECONDS

# Beside the seconds that a measurement takes: a start, an import and the sync of what is dirty.
PATIENCE_SECONDS = 60
# glibc's copy is slow on some processors where this is not set; the same for all.
TUNABLES = "glibc.cpu.x86_rep_movsb_threshold=1073741824"


# ozbench keeps the pool's configuration here.
CACHE_OF_OZBENCH = Path("/tmp/ozbench.cache")


class Failed(Exception):
    """Something that was measured did not work; the message says what."""


class Machine:
    """Runs programs, bounded, and ends them all at the end."""

    def __init__(self, work, arc_mib):
        self.work, self.arc_mib = Path(work), arc_mib
        self.children = []
        self.environment = dict(
            os.environ,
            GLIBC_TUNABLES=TUNABLES,
            CENOTE_LOG="error",
            CENOTE_SOCKET=str(self.work / "api.sock"),
            CENOTE_CACHEFILE="none",
            ARC_MB=str(arc_mib),
            RANDPCT=str(NOISE_PERCENT),
        )
        self.environment["PATH"] += ":/usr/sbin:/sbin"

    def sizes(self):
        """Bytes of what fits the ARC, and of what is four times the ARC."""
        return {"fits": self.arc_mib << 19, "four": self.arc_mib << 22}

    def run(self, *command, seconds=0.0, **environment):
        """The standard output of a program. In a session of its own, so that Ctrl-C is ours alone to handle."""
        command = [str(word) for word in command]
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(self.environment, **environment),
            start_new_session=True,
        )
        self.children.append(child)
        try:
            out, err = child.communicate(timeout=seconds + PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failed(f"'{shown(command)}' was not done after {seconds + PATIENCE_SECONDS:.0f} s") from None
        finally:
            end(child)
            self.children.remove(child)
        if child.returncode:
            said = err.decode(errors="replace").strip().splitlines() or ["no message"]
            # Of an assertion, libzpool prints a whole stack.
            line = next((line for line in said if line.startswith("ASSERT")), said[-1])
            raise Failed(f"'{shown(command)}' failed: {line.replace(str(self.work), '...')}")
        return out.decode(errors="replace")

    def start(self, *command):
        """A program that goes on until it is ended."""
        log = open(self.work / "servers.log", "ab")
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=self.environment,
            start_new_session=True,
        )
        log.close()
        self.children.append(child)
        return child

    def stop(self, child):
        end(child)
        if child in self.children:
            self.children.remove(child)

    def close(self):
        for child in list(self.children):
            self.stop(child)

    def fio(self, *arguments, seconds=SECONDS):
        """What fio says of its one job."""
        out = self.run(
            "fio",
            "--name=beside",
            "--output-format=json",
            "--group_reporting",
            "--scramble_buffers=0",
            "--randrepeat=0",
            "--norandommap",
            f"--buffer_compress_percentage={100 - NOISE_PERCENT}",
            "--buffer_compress_chunk=2048",
            *arguments,
            seconds=seconds,
        )
        try:
            return json.loads(out[out.index("{") :])["jobs"][0]
        except (ValueError, KeyError, IndexError):
            raise Failed("fio printed no report") from None


def shown(command):
    """A command without paths, for messages that the page may have."""
    words = [Path(word).name if "/" in word else word for word in command]
    return " ".join(words[:6]) + (" ..." if len(words) > 6 else "")


def end(child):
    """Ends a program: asked first, killed after five seconds."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def until(condition, child, what):
    """Waits until a server is there."""
    deadline = time.monotonic() + 20
    while not condition():
        if child.poll() is not None:
            raise Failed(f"{what} ended at once")
        if time.monotonic() > deadline:
            raise Failed(f"{what} did not come up")
        time.sleep(0.02)


def flush_nbd(path, export):
    """Asks an NBD server for a flush, and waits for it."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_SECONDS)
        client.connect(str(path))
        stream = client.makefile("rwb")
        stream.read(18)
        name = export.encode()
        stream.write(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(name)) + name)
        stream.flush()
        stream.read(10)
        stream.write(struct.pack(">IHHQQI", 0x25609513, 0, 3, 1, 0, 0))
        stream.flush()
        reply = stream.read(16)
        if len(reply) != 16 or reply[4:8] != b"\0\0\0\0":
            raise Failed("a flush over NBD failed")


def fio_words(cell, participant, size):
    """fio's options for a cell."""
    rw = {"read": "read", "write": "write", "sync": "write", "mix": "rw"}[cell.kind]
    words = [f"--bs={cell.block}", f"--iodepth={cell.depth(participant)}", f"--size={size}"]
    words += [f"--rw={rw if cell.pattern == 'seq' else 'rand' + rw}", "--rwmixread=70"]
    if cell.pattern == "zipf":
        # fio does not take an exponent of just 1.
        words.append("--random_distribution=zipf:1.01")
    return words


class OverFio:
    """What fio reads and writes: `where` says how it gets there, `settle` makes durable what was written."""

    name = "?"
    flush = "--fdatasync=1"
    caches = False

    def __init__(self, machine, group):
        self.machine, self.block = machine, group[0]

    def make(self):
        """What there has to be before it is filled. `close` takes it away, also when this failed half-way."""

    def fill(self):
        """By size, so that no read meets a hole."""
        four = self.machine.sizes()["four"]
        self.machine.fio(*self.where(), "--rw=write", "--bs=1M", "--iodepth=4", f"--size={four}")
        self.settle()

    def measure(self, cell):
        """Operations a second, what was written being durable at the end."""
        size = self.machine.sizes()[cell.set]
        if self.caches and cell.set == "fits":
            self.warm_up(size)
        words = [*self.where(), *fio_words(cell, self.name, size), "--time_based", f"--runtime={SECONDS}"]
        if cell.kind == "sync":
            words.append(self.flush)
        return self.rate(words, cell.kind != "read")

    def warm_up(self, size):
        """Reads it into the cache."""
        self.machine.fio(*self.where(), "--rw=read", "--bs=1M", "--iodepth=4", f"--size={size}")

    def rate(self, words, writes):
        job = self.machine.fio(*words)
        began = time.monotonic()
        if writes:
            self.settle()
        took = max(job[kind]["runtime"] for kind in ("read", "write")) / 1000 + time.monotonic() - began
        done = sum(job[kind]["total_ios"] for kind in ("read", "write"))
        if not done or not took:
            raise Failed("fio did nothing")
        return done / took

    def close(self):
        pass


class Raw(OverFio):
    name = "raw"

    def __init__(self, machine, group):
        super().__init__(machine, group)
        self.path = machine.work / "raw"

    def where(self):
        return ["--ioengine=io_uring", "--direct=1", f"--filename={self.path}"]

    def settle(self):
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())

    def close(self):
        self.path.unlink(missing_ok=True)


class Btrfs(Raw):
    """On a loop device with direct I/O, so that the file below it is cached no more than the raw one."""

    name = "btrfs"

    def __init__(self, machine, group):
        super().__init__(machine, group)
        self.image, self.at, self.loop = machine.work / "btrfs.img", machine.work / "btrfs", None
        self.path = self.at / "file"

    def make(self):
        with open(self.image, "wb") as file:
            file.truncate(disk_bytes(self.machine))
        self.loop = self.machine.run("losetup", "--find", "--show", "--direct-io=on", self.image).strip()
        self.machine.run("mkfs.btrfs", "-q", "-f", self.loop)
        self.at.mkdir()
        self.machine.run("mount", "-t", "btrfs", "-o", "noatime", self.loop, self.at)

    def close(self):
        subprocess.run(["umount", "-l", self.at], stderr=subprocess.DEVNULL, check=False)
        if self.loop:
            subprocess.run(["losetup", "--detach", self.loop], stderr=subprocess.DEVNULL, check=False)
        self.image.unlink(missing_ok=True)
        if self.at.exists():
            self.at.rmdir()


class OverNbd(OverFio):
    flush = "--fsync=1"
    export = ""

    def where(self):
        return ["--ioengine=nbd", f"--uri=nbd+unix:///{self.export}?socket={self.socket}"]


class Qcow2(OverNbd):
    name = "qcow2"

    def __init__(self, machine, group):
        super().__init__(machine, group)
        self.path, self.socket, self.server = machine.work / "disk.qcow2", machine.work / "qemu.sock", None

    def make(self):
        self.machine.run("qemu-img", "create", "-q", "-f", "qcow2", self.path, self.machine.sizes()["four"])
        self.serve()

    def serve(self, pinned=()):
        if self.server:
            self.machine.stop(self.server)
        self.socket.unlink(missing_ok=True)
        self.server = self.machine.start(
            *pinned,
            "qemu-nbd",
            "--format=qcow2",
            "--cache=none",
            "--aio=io_uring",
            "--persistent",
            "--shared=128",
            f"--socket={self.socket}",
            self.path,
        )
        until(self.socket.exists, self.server, "qemu-nbd")

    def settle(self):
        flush_nbd(self.socket, "")

    def close(self):
        if self.server:
            self.machine.stop(self.server)
        self.path.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)


class Nbd(OverNbd):
    """`cenote serve` with a pool on one file."""

    name = "nbd"
    export = "beside/vol"
    caches = True

    def __init__(self, machine, group):
        super().__init__(machine, group)
        self.folder, self.socket, self.server = machine.work / "served", machine.work / "nbd.sock", None

    def make(self):
        [disk] = make_disks(self.folder, self.machine, 1)
        self.serve()
        self.ask("zpool", "create", "-f", "-o", "ashift=12", "-m", "none", "beside", disk)
        self.ask(
            "zfs",
            "create",
            "-s",
            "-V",
            self.machine.sizes()["four"],
            "-o",
            f"volblocksize={self.block}",
            "-o",
            "compression=off",
            self.export,
        )

    def ask(self, *words):
        return self.machine.run(self.machine.cenote, *words)

    def serve(self, pinned=()):
        """Starts the daemon, anew where it runs; the pool is imported again then."""
        again = self.server is not None
        if again:
            self.ask("zpool", "export", "beside")
            self.machine.stop(self.server)
        api = Path(self.machine.environment["CENOTE_SOCKET"])
        api.unlink(missing_ok=True)
        self.server = self.machine.start(*pinned, self.machine.cenote, "serve", "--arc-max", f"{self.machine.arc_mib}M")
        until(api.exists, self.server, "cenote serve")
        if again:
            self.ask("zpool", "import", "-N", "-d", self.folder, "beside")

    def settle(self):
        self.ask("zpool", "sync", "beside")

    def close(self):
        if self.server:
            self.machine.stop(self.server)
        shutil.rmtree(self.folder, ignore_errors=True)


def disk_bytes(machine):
    """Room for three times the set, whatever the layout takes."""
    return 3 * machine.sizes()["four"] + (256 << 20)


def make_disks(folder, machine, count):
    """Sparse files."""
    folder.mkdir()
    files = [folder / f"d{number}" for number in range(count)]
    for file in files:
        with open(file, "wb") as disk:
            disk.truncate(disk_bytes(machine))
    return files


DISKS = {"single": 1, "mirror": 2, "raidz1": 3}


class InProcess:
    """An engine in a program of its own, which imports the pool for each measurement."""

    def __init__(self, machine, group):
        self.machine = machine
        self.block, self.layout, self.compression = group
        self.folder, self.files = machine.work / self.name, []

    def make(self):
        self.files = make_disks(self.folder, self.machine, DISKS[self.layout])

    def rate(self, out):
        for line in out.splitlines():
            if '"iops_counted"' in line:
                return float(json.loads(line)["iops_counted"])
        raise Failed("the engine printed no rate")

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Cenote(InProcess):
    name = "cenote"

    def fill(self):
        mib = self.machine.sizes()["four"] >> 20
        self.machine.run(
            self.machine.drive,
            "create",
            self.folder,
            self.layout,
            self.block,
            self.compression,
            mib,
            *self.files,
        )

    def measure(self, cell):
        size = self.machine.sizes()[cell.set]
        read_first = {"BESIDE_READ": "1"} if cell.set == "fits" else {}
        return self.rate(
            self.machine.run(
                self.machine.drive,
                "run",
                self.folder,
                cell.kind,
                cell.pattern,
                cell.block,
                cell.depth(self.name),
                SECONDS,
                size,
                seconds=SECONDS,
                **read_first,
            )
        )


class OpenZfs(InProcess):
    name = "openzfs"

    def __init__(self, machine, group):
        super().__init__(machine, group)
        shim = {"LD_PRELOAD": str(machine.shim)} if machine.shim else {}
        self.environment = dict(shim, BESIDE_DIR=str(self.folder))

    def fill(self):
        layout = {"single": "stripe"}.get(self.layout, self.layout)
        mib = self.machine.sizes()["four"] >> 20
        # Its zstd is the default level, which is 3.
        compression = self.compression.removesuffix("-3")
        CACHE_OF_OZBENCH.unlink(missing_ok=True)
        self.machine.run(
            self.machine.ozbench, "create", "beside", layout, self.block, compression, "off", mib, *self.files
        )
        self.run("write", 131072, 1, 0.1, BESIDE_FILL="1")

    def run(self, operation, block, threads, seconds, **environment):
        # What a run that failed left there would be a second pool of that name.
        CACHE_OF_OZBENCH.unlink(missing_ok=True)
        return self.machine.run(
            self.machine.ozbench,
            "run",
            "beside",
            self.folder,
            operation,
            block,
            threads,
            seconds,
            seconds=seconds,
            **self.environment,
            **environment,
        )

    def measure(self, cell):
        operation = {"read": "randread", "write": "randwrite", "mix": "randrw", "sync": "randwrite"}[cell.kind]
        more = {"BESIDE_PICK": cell.pattern, "BESIDE_BYTES": str(self.machine.sizes()[cell.set])}
        if cell.kind == "sync":
            more["BESIDE_SYNC"] = "1"
        # Its ARC is empty after the import; what does not fit is read with what the reads themselves leave there.
        seconds = SECONDS
        if cell.set == "fits":
            more["BESIDE_READ"] = "1"
            # Its clock runs while the set is read, ours does not.
            seconds += 1.0
        return self.rate(self.run(operation, cell.block, cell.depth(self.name), seconds, **more))


PARTICIPANTS = {of.name: of for of in (Cenote, OpenZfs, Nbd, Raw, Btrfs, Qcow2)}
