"""What bounds the cells in which Cenote is slower than another.

First what the run itself says: a cell in which Cenote is as fast as the raw file is bound by the device, and one in
which it is as fast over NBD as reads that are all cached is bound by the way over NBD. Then what profiles said
(`perf record -g` of the daemon and of the engine's bench; the flame graphs of the page).
"""

# Shares from which on a bound counts as reached.
OF_DEVICE = 0.85
OF_PROTOCOL = 0.75

# In process, beside OpenZFS's engine.
ENGINE = {
    "sync": "one log write, and a flush of the device, at a time: both engines wait for the device",
    "read": "reads of the device: those that miss the cache are most of the time",
    "mix": "reads of the device: those that miss the cache are most of the time",
    "write": "the device: all copies and parity are written by the end",
}
# Over NBD.
PROTOCOL = {
    "sync": "a write and a flush are two round trips over the socket, then one log write and a flush of the device, one "
    "after the other",
    "read": "processor time: socket, copies and checksums on the two cores on which fio runs, too",
    "mix": "processor time: socket, copies and checksums on the two cores on which fio runs, too",
    "write": "processor time: each byte is received, copied and checksummed on the two cores on which fio runs, too; a "
    "third of the daemon's time is the sync of groups",
}


class Causes:
    def __init__(self, cells):
        """`cells` are pairs of a cell and its medians."""
        self.cells = cells

    def cached(self, block):
        """The most that reads of what fits the ARC give over NBD with such blocks."""
        rates = [by["nbd"] for cell, by in self.cells if reads_cached(cell) and cell.block == block and by.get("nbd")]
        return max(rates, default=None)

    def of(self, cell, by, beside):
        ours = by["cenote" if beside == "openzfs" else "nbd"]
        if by.get("raw") and beside != "raw" and cell.kind != "sync" and ours >= OF_DEVICE * by["raw"]:
            return f"the device: {ours / by['raw']:.2f} of what the raw file gives"
        if beside == "openzfs":
            return ENGINE[cell.kind]
        cached = self.cached(cell.block)
        if cached and cell.kind != "sync" and ours >= OF_PROTOCOL * cached:
            return f"the way over NBD: {ours / cached:.2f} of what it gives for reads that are all cached"
        return PROTOCOL[cell.kind]


def reads_cached(cell):
    return cell.kind == "read" and cell.set == "fits"
