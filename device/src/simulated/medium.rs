//! How long a medium takes.
//!
//! # The idea
//! A medium serves a number of commands at once (its lanes: many for flash). Each command waits for a lane,
//! spends its own latency there, and then moves its bytes over the one path that all share, at the medium's
//! bandwidth. That yields the known curves: IOPS that grow with the queue until the lanes are full, and
//! throughput that no queue lifts above the bandwidth. One with an arm is a [`Disk`].

use super::disk::Disk;
use super::model::Model;
use crate::Operation;

/// A medium at work: what is busy until when.
#[derive(Debug)]
pub struct Medium {
    model: Model,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Lanes { free_at_ns: Vec<u64>, path_free_at_ns: u64 },
    Disk(Disk),
}

impl Medium {
    /// One of `size_bytes`. The seed says where the platter stands when.
    pub fn new(model: Model, size_bytes: u64, seed: u64) -> Self {
        let way = match model.arm {
            Some(arm) => Way::Disk(Disk::new(model, arm, size_bytes, seed)),
            None => Way::Lanes { free_at_ns: vec![0; model.lanes.max(1)], path_free_at_ns: 0 },
        };
        Self { model, way }
    }

    /// Its numbers.
    pub fn model(&self) -> Model {
        self.model
    }

    /// Queues a command that arrives at `now_ns` and says when it completes.
    pub fn serve(&mut self, now_ns: u64, operation: Operation, offset: u64, len: u64) -> u64 {
        let (free_at_ns, path_free_at_ns) = match &mut self.way {
            Way::Lanes { free_at_ns, path_free_at_ns } => (free_at_ns, path_free_at_ns),
            Way::Disk(disk) => return disk.serve(now_ns, operation, offset, len),
        };
        if operation == Operation::Flush {
            // It completes after all that came before it.
            let busy_until_ns = free_at_ns.iter().copied().max().unwrap_or(0);
            return now_ns.max(busy_until_ns) + self.model.flush_ns;
        }
        let Some(lane_free_at_ns) = free_at_ns.iter_mut().min() else { return now_ns };
        let ready_at_ns = now_ns.max(*lane_free_at_ns) + self.model.latency_ns(operation);
        let transfer_ns = self.model.transfer_ns(operation, len);
        let done_at_ns = ready_at_ns.max(*path_free_at_ns).saturating_add(transfer_ns);
        *path_free_at_ns = done_at_ns;
        *lane_free_at_ns = done_at_ns;
        done_at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::fault::Random;

    const BLOCK_BYTES: u64 = 4096;
    const SIZE_BYTES: u64 = 1 << 40;

    /// What ten thousand operations at random places take, with `queue` always waiting.
    fn time_ns(model: Model, queue: usize) -> u64 {
        let mut medium = Medium::new(model, SIZE_BYTES, 1);
        let mut places = Random::new(2);
        let mut arrivals = vec![0; queue];
        let mut last_ns = 0;
        for index in 0..10_000 {
            let offset = places.below(SIZE_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
            last_ns = medium.serve(arrivals[index % queue], Operation::Read, offset, BLOCK_BYTES);
            arrivals[index % queue] = last_ns;
        }
        last_ns
    }

    /// Such operations a second.
    fn iops(model: Model, queue: usize) -> u64 {
        10_000 * 1_000_000_000 / time_ns(model, queue)
    }

    #[test]
    fn media_have_the_iops_that_they_are_known_for() {
        assert!((50..120).contains(&iops(Model::HDD_7200, 1)), "{}", iops(Model::HDD_7200, 1));
        assert!((8_000..10_000).contains(&iops(Model::SATA_SSD, 1)), "{}", iops(Model::SATA_SSD, 1));
        assert!((80_000..140_000).contains(&iops(Model::SATA_SSD, 32)), "{}", iops(Model::SATA_SSD, 32));
        assert!((400_000..900_000).contains(&iops(Model::NVME, 64)), "{}", iops(Model::NVME, 64));
    }

    #[test]
    fn a_medium_can_be_asked_for_that_is_slower_than_it_is() {
        for (name, queue) in [("hdd-7200", 1), ("hdd-7200", 8), ("sata-ssd", 32), ("nvme", 64)] {
            let model = Model::device(name).unwrap();
            for percent in [3, 10, 50] {
                let slower = Model::device(&format!("{name}+{percent}%")).unwrap();
                assert_eq!(slower.to_string(), format!("{name}+{percent}%"));
                let ratio = time_ns(slower, queue) as f64 / time_ns(model, queue) as f64;
                let expected = 1.0 + f64::from(percent) / 100.0;
                assert!((ratio / expected - 1.0).abs() < 0.005, "{slower}, {queue} at once: {ratio}");
            }
        }
        assert_eq!(Model::device("nvme+0%"), Some(Model::NVME));
        assert_eq!(Model::NVME.to_string(), "nvme");
        for wrong in ["nvme+%", "nvme+ 3%", "nvme+-3%", "nvme+2000%", "nvme3%", "tape+3%", "1gbe+3%"] {
            assert_eq!(Model::device(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sequential_reads_reach_the_bandwidth_also_on_a_disk() {
        for model in [Model::HDD_7200, Model::SATA_SSD, Model::NVME, Model::GIGABIT_ETHERNET] {
            let mut medium = Medium::new(model, SIZE_BYTES, 1);
            let chunk_bytes = 16 << 20;
            let mut done_ns = 0;
            for index in 0..100 {
                done_ns = medium.serve(done_ns, Operation::Read, index * chunk_bytes, chunk_bytes);
            }
            let rate = u128::from(100 * chunk_bytes) * 1_000_000_000 / u128::from(done_ns);
            let share_percent = rate * 100 / u128::from(model.read_bytes_per_second);
            assert!((90..=100).contains(&share_percent), "{model:?}: {share_percent} %");
        }
    }
}
