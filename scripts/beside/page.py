"""The page: from the raw figures to docs/src/benchmarks.md and its pictures."""

import math
import statistics

from beside import plots
from beside.causes import Causes
from beside.cells import CLIENT_WORKS, CLIENTS, FLAMES, NOISE_PERCENT, PARTICIPANTS, Cell

WIDTH = 110


def median(rounds):
    """Of the rounds that worked."""
    worked = [value for value in rounds if value]
    return statistics.median(worked) if worked else None


def rate(value):
    if value is None:
        return "-"
    return f"{value / 1000:.1f}" if value < 100_000 else f"{value / 1000:.0f}"


def ratio(ours, theirs):
    return ours / theirs if ours and theirs else None


def shown(value):
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def geometric(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def wrapped(words, width=WIDTH):
    lines, line = [], ""
    for word in words.split():
        if len(line) + len(word) + 1 > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def rule(heads, numbers):
    """The columns of numbers stand at the right."""
    return "|---" + "".join("|---:" if at < numbers else "|---" for at in range(len(heads) - 1)) + "|"


def table(heads, rows, numbers=99):
    return "\n".join(
        [
            "| " + " | ".join(heads) + " |",
            rule(heads, numbers),
            *["| " + " | ".join(row) + " |" for row in rows],
        ]
    )


class Page:
    def __init__(self, found, pictures, where):
        self.found, self.pictures, self.where = found, pictures, where
        self.cells = [
            (
                Cell(**entry["cell"]),
                {name: median(all) for name, all in entry["rounds"].items()},
                entry["rounds"],
            )
            for entry in found["cells"]
        ]
        self.text = []

    def say(self, *paragraphs):
        self.text.extend(paragraphs)

    def picture(self, name, alt, svg):
        (self.pictures / f"benchmarks-{name}.svg").write_text(svg)
        self.say(f"![{alt}]({self.where}/benchmarks-{name}.svg)")

    def made(self):
        self.say("# Benchmarks, side by side")
        self.summary()
        self.how()
        self.engines()
        self.protocols()
        self.slower()
        self.clients()
        self.flames()
        self.missing()
        return "\n\n".join(self.text) + "\n"

    def ratios(self, ours, theirs):
        return [(cell, found) for cell, by, _ in self.cells if (found := ratio(by.get(ours), by.get(theirs)))]

    def summary(self):
        rows = []
        pairs = (("cenote", "openzfs"), ("raw", "openzfs"), ("nbd", "raw"), ("nbd", "btrfs"), ("nbd", "qcow2"))
        for ours, theirs in pairs:
            all = self.ratios(ours, theirs)
            if not all:
                continue
            worst = min(all, key=lambda one: one[1])
            below = sum(1 for _, value in all if value < (1.5 if theirs == "openzfs" else 1.0))
            rows.append(
                [
                    f"{PARTICIPANTS[ours]} / {PARTICIPANTS[theirs]}",
                    f"{len(all)}",
                    shown(geometric([value for _, value in all])),
                    f"{shown(worst[1])}: {worst[0].name}",
                    f"{below}",
                ]
            )
        self.say(
            wrapped(
                "`scripts/benchmarks` makes this page: the same work for Cenote and for others, in turns, on one machine. "
                "A ratio above 1 means that Cenote does more operations a second. The last column counts cells below 1.5 "
                "for OpenZFS's engine and below 1 for the others. The raw file beside OpenZFS's engine says what the device "
                "gives to a program that does nothing else: only a cache, larger requests and work that is done later can "
                "give more."
            ),
            table(["ours / theirs", "cells", "geometric mean", "worst cell", "below"], rows, 2),
        )

    def how(self):
        machine, sizes = self.found["machine"], self.found["sizes"]
        lines = [f"| {name} | {value} |" for name, value in machine.items()]
        self.say("## How it was measured", "\n".join(["| | |", "|---|---|", *lines]))
        mib = {name: value >> 20 for name, value in sizes.items()}
        self.say(
            wrapped(
                f"Each figure is the median of rounds of {self.found['plan']['seconds']:g} seconds "
                f"({self.found['plan']['rounds']} of them). In a round each participant runs once, in an order that moves on with each round, so that what "
                f"else the machine does falls on all. The ARC has {self.found['arc_mib']} MiB in both engines; a set that "
                f"fits it has {mib['fits']} MiB and is read once before, the other one has {mib['four']} MiB. Sets are "
                "written whole, by size and in order, before anything is measured, and reads are measured before writes. "
                f"Of the data, {NOISE_PERCENT} % do not compress."
            )
        )
        self.say(
            wrapped(
                "Rates of writes are durable ones: the time ends when the last group is synced (Cenote: `zpool sync`), the "
                "file is synced, or the server of qcow2 has flushed. A sync write is a write and a flush at depth 1. "
                "Random work has 32 requests under way; a stream has one reader in process, which reads ahead, and 8 "
                "requests over fio. All files are opened with O_DIRECT."
            )
        )
        self.say(
            wrapped(
                "The engines run in process, without any protocol, so that OpenZFS's engine in userspace (libzpool) can be "
                "compared. It gets a thread for each request, as its interface is a blocking one; Cenote's gets two "
                "threads, as its daemon has on two cores. A small library before libzpool "
                "(`scripts/beside/ozbench-shim.c`) opens its files with O_DIRECT, as Cenote does: otherwise the system's "
                "page cache is a second cache of any size. It bounds its ARC, whose limit is otherwise ignored below "
                "1/32 of the memory, adds zipf, streams of 70/30 and commits of the intent log, and takes away what the "
                "kernel module does not do: checksums that show whether a cached buffer was modified, and a system call "
                "for each random number. Debian builds libzpool with assertions, which stay: they make it slower than "
                "the module by an amount that was not measured."
            )
        )
        self.say(
            wrapped(
                "Over NBD, fio's `nbd` engine is the client of Cenote and of qemu-nbd; the raw file and the file on btrfs "
                "are opened by fio's `io_uring`. Raw, btrfs and qcow2 have no cache here, checksums only btrfs. "
                "The full product of the axes has 648 cells and does not fit an hour: there is a base (8K, random, four "
                "times the ARC, one device, no compression), one axis is varied at a time, each with all kinds of work, and "
                "cells that people ask for are added. Cells of redundant layouts and of compression are measured in "
                "process only, since raw files and qcow2 have neither."
            )
        )

    def engines(self):
        entries = [(cell, by, rounds) for cell, by, rounds in self.cells if by.get("cenote")]
        if not entries:
            return
        self.say("## Beside OpenZFS's engine, in process", "Thousands of operations a second.")
        rows = []
        for cell, by, rounds in entries:
            pairs = zip(rounds["cenote"], rounds.get("openzfs", []), strict=False)
            each = [shown(ratio(ours, theirs)) for ours, theirs in pairs]
            rows.append(
                [
                    cell.name,
                    rate(by.get("cenote")),
                    rate(by.get("openzfs")),
                    shown(ratio(by.get("cenote"), by.get("openzfs"))),
                    ", ".join(each) or "-",
                ]
            )
        self.say(table(["cell", "Cenote", "OpenZFS", "ratio", "of each round"], rows))
        dots = sorted(
            ((cell.name, {"OpenZFS's engine": value}) for cell, value in self.ratios("cenote", "openzfs")),
            key=lambda row: row[1]["OpenZFS's engine"],
        )
        if dots:
            self.picture("openzfs", "Ratios to OpenZFS's engine", plots.ratios(dots, {"OpenZFS's engine": "a"}))
            self.say(
                wrapped(
                    "Each dot is a cell, from the worst to the best: right of the red line Cenote's engine is faster. The "
                    "axis is logarithmic."
                )
            )

    def protocols(self):
        entries = [(cell, by) for cell, by, _ in self.cells if by.get("nbd")]
        if not entries:
            return
        self.say(
            "## Over NBD, beside the raw file, btrfs and qcow2",
            "Thousands of operations a second, and ratios.",
        )
        rows, dots = [], []
        for cell, by in entries:
            short = cell.name.rsplit(", ", 2)[0]
            ratios = {name: ratio(by["nbd"], by.get(name)) for name in ("raw", "btrfs", "qcow2")}
            rows.append(
                [
                    short,
                    rate(by["nbd"]),
                    *[f"{rate(by.get(name))} ({shown(ratios[name])})" for name in ratios],
                ]
            )
            dots.append((short, {PARTICIPANTS[name]: value for name, value in ratios.items() if value}))
        self.say(table(["cell", "Cenote", "raw", "btrfs", "qcow2"], rows))
        dots = [row for row in dots if row[1]]
        if dots:
            series = {PARTICIPANTS[name]: kind for name, kind in (("raw", "a"), ("btrfs", "b"), ("qcow2", "c"))}
            self.picture("nbd", "Ratios to the raw file, btrfs and qcow2", plots.ratios(dots, series))
            self.say(
                wrapped(
                    "Right of the red line Cenote over NBD is faster than the participant of that colour. The raw file has "
                    "neither a protocol nor checksums: it is the bound of the device and of fio."
                )
            )

    def slower(self):
        causes, rows = Causes([(cell, by) for cell, by, _ in self.cells]), []
        pairs = (("cenote", "openzfs", 1.5), ("nbd", "raw", 1), ("nbd", "btrfs", 1), ("nbd", "qcow2", 1))
        for ours, theirs, least in pairs:
            for cell, by, _ in self.cells:
                value = ratio(by.get(ours), by.get(theirs))
                if value and value < least:
                    rows.append((PARTICIPANTS[theirs], value, cell, causes.of(cell, by, theirs)))
        if not rows:
            return
        self.say(
            "## Where Cenote is slower, and why",
            wrapped(
                "Cells below 1.5 of OpenZFS's engine, and below 1 of the others. Where the last column has a figure, this run measured the bound; the "
                "other texts are what profiles suggest, and no experiment has tested them cell by cell."
            ),
        )
        self.say(
            table(
                ["beside", "ratio", "cell", "bound or cause"],
                [[name, shown(value), cell.name, why] for name, value, cell, why in rows],
                1,
            )
        )

    def clients(self):
        entries = self.found.get("clients") or []
        if not entries:
            return
        self.say(
            "## One to 64 clients, one core and two",
            wrapped(
                "Clients of one volume of 8K blocks over NBD, each with a connection and one request under way. The server "
                "is bound to one core, or has both; the clients run on the same two cores. Thousands of operations a "
                "second."
            ),
        )
        for work, words in CLIENT_WORKS:
            of = [entry for entry in entries if entry["work"] == work]
            if not of:
                continue
            rows, series = [], []
            for name in ("nbd", "qcow2"):
                for cores in (1, 2):
                    by = {
                        e["clients"]: median(e["rounds"])
                        for e in of
                        if e["participant"] == name and e["cores"] == cores
                    }
                    by = {clients: value for clients, value in by.items() if value}
                    label = f"{'Cenote' if name == 'nbd' else 'qcow2'}, {'one core' if cores == 1 else 'two cores'}"
                    if by:
                        rows.append([label, *[rate(by.get(clients)) for clients in CLIENTS]])
                        series.append((label, "a" if name == "nbd" else "c", cores == 1, by))
            self.say(f"### {words}", table(["", *[f"{clients}" for clients in CLIENTS]], rows))
            if series:
                self.picture(f"clients-{work}", f"Clients: {words}", plots.lines(words, CLIENTS, series))
                self.say("Both axes are logarithmic; dashed lines are servers on one core.")

    def flames(self):
        graphs = self.found.get("flames") or {}
        if not graphs:
            return
        self.say(
            "## Where the time goes",
            wrapped(
                "Flame graphs of `cenote serve` while fio works over NBD: the width of a frame is its share of the "
                "processor time of the daemon, functions of the kernel are blue. What is narrower than a thousandth is "
                "left out."
            ),
        )
        for name, title, *_ in FLAMES:
            if graphs.get(name):
                self.say(f"### {title}")
                self.picture(f"flame-{name}", title, plots.flame(title, graphs[name]))
                self.say(wrapped(plots.reading(graphs[name])))

    def missing(self):
        notes = list(dict.fromkeys(self.found.get("missing", [])))
        if notes:
            self.say(
                "## What is missing here",
                "\n".join(wrapped(f"- {note}", WIDTH - 2).replace("\n", "\n  ") for note in notes),
            )
        self.say(
            "## Again",
            wrapped(
                "`scripts/benchmarks` measures all of this anew and writes this page; it says what the machine lacks. "
                "`--quick` takes some minutes, `--only TEXT` takes cells by their names, and `--json FILE` keeps every "
                "round's figures, of which `--from FILE` makes the page again."
            ),
        )
