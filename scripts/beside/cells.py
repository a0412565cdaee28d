"""The design: which cells are measured, and who takes part in each.

The full product of the axes (3 blocks, 3 patterns, 4 kinds, 2 sets, 3 layouts, 3 compressions: 648 cells) does not fit
an hour. So there is a base (8K blocks, random, four times the ARC, one device, no compression), and one axis is varied
at a time, each with all four kinds of work. Added are cells that people ask for: streams of 128K, on redundant layouts
and with compression, and what fits the ARC.

Cells with the same block, layout and compression share one pool for each participant, which is filled once, whole and
in order. Reads come before writes, so that they read what was written in order, not what the writes left.
"""

from dataclasses import dataclass, field

ROUNDS = 3
SECONDS = 2.0
RANDOM_DEPTH = 32
STREAM_DEPTH = 8
# How much of the data does not compress, in per cent: half a block of 8K or more is saved.
NOISE_PERCENT = 40

ENGINES = ("cenote", "openzfs")
BLOCKS = ("nbd", "raw", "btrfs", "qcow2")
PARTICIPANTS = {
    "cenote": "Cenote's engine, in process",
    "openzfs": "OpenZFS's engine, in process",
    "nbd": "Cenote over NBD",
    "raw": "the raw file",
    "btrfs": "a file on btrfs",
    "qcow2": "qcow2 over qemu-nbd",
}

KINDS = ("read", "mix", "write", "sync")
KIND_WORDS = {"read": "read", "mix": "70/30", "write": "write", "sync": "sync write"}
PATTERN_WORDS = {"seq": "sequential", "random": "random", "zipf": "zipf"}
SET_WORDS = {"fits": "fits", "four": "4x ARC"}


@dataclass(frozen=True)
class Cell:
    block: int
    pattern: str
    kind: str
    set: str
    layout: str
    compression: str
    quick: bool = field(default=False, compare=False)

    @property
    def group(self):
        return (self.block, self.layout, self.compression)

    @property
    def name(self):
        words = [
            f"{self.block >> 10}K",
            PATTERN_WORDS[self.pattern],
            KIND_WORDS[self.kind],
            SET_WORDS[self.set],
        ]
        return ", ".join([" ".join(words[:3]), words[3], self.layout, self.compression])

    def depth(self, participant):
        """Requests under way. In process a stream is read by one reader, as a copy reads; fio has eight requests."""
        if self.kind == "sync":
            return 1
        if self.pattern == "seq":
            return 1 if participant in ENGINES else STREAM_DEPTH
        return RANDOM_DEPTH

    def takes_part(self, participant):
        return participant in ENGINES or (self.layout == "single" and self.compression == "off")


def cells():
    """All cells, those of a group together, reads first."""
    found = {}

    def add(block=8, pattern="random", set="four", layout="single", compression="off", kinds=KINDS, quick=()):
        for kind in kinds:
            cell = Cell(block << 10, pattern, kind, set, layout, compression, kind in quick)
            key = (cell.group, cell.pattern, cell.kind, cell.set)
            found.setdefault(key, cell)

    # The base, and each axis.
    add(quick=("read", "write", "sync"))
    add(pattern="seq")
    add(pattern="zipf")
    add(set="fits", quick=("read",))
    add(block=16)
    add(block=128)
    add(layout="mirror")
    add(layout="raidz1")
    add(compression="lz4", quick=("read", "write"))
    add(compression="zstd-3")
    # What people ask for.
    add(pattern="zipf", set="fits", kinds=("read",))
    add(block=16, set="fits", kinds=("read",))
    add(block=128, pattern="seq", kinds=("read", "write"))
    add(block=128, pattern="seq", set="fits", kinds=("read",))
    add(block=128, pattern="seq", compression="lz4", kinds=("read", "write"))
    add(block=128, pattern="seq", compression="zstd-3", kinds=("read", "write"))
    add(block=128, pattern="seq", layout="raidz1", kinds=("read", "write"))
    add(block=128, pattern="seq", layout="mirror", kinds=("read", "write"))
    groups = {}
    for cell in found.values():
        groups.setdefault(cell.group, []).append(cell)
    order = {"read": 0, "mix": 1, "sync": 2, "write": 3}
    return [sorted(group, key=lambda cell: order[cell.kind]) for group in groups.values()]


# Clients of one volume over NBD, each with one request under way.
CLIENTS = (1, 4, 16, 64)
CLIENT_WORKS = (
    ("randread", "8K random reads that fit the ARC"),
    ("randwrite", "8K random writes, four times the ARC"),
)
CLIENT_PARTICIPANTS = ("nbd", "qcow2")

# What the flame graphs show: a name for the file, a title, and how fio works meanwhile.
FLAMES = (
    ("cached-reads", "8K random reads that fit the ARC, depth 32", "8k", "randread", "fits", 32, False),
    ("cold-reads", "8K random reads of four times the ARC, depth 32", "8k", "randread", "four", 32, False),
    ("random-writes", "8K random writes, depth 32", "8k", "randwrite", "four", 32, False),
    ("stream-writes", "128K sequential writes, depth 8", "128k", "write", "four", 8, False),
    ("sync-writes", "8K random writes, each with a flush, depth 1", "8k", "randwrite", "four", 1, True),
)
