//! Leaf devices: files and block devices through io_uring, memory, simulated faults.
