//! How many connections there are, in all and of one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use device::IgnorePoison;

/// Most connections.
const MAX_CONNECTIONS: usize = 256;
/// Most connections of one address. A proxy is one address.
const MAX_OF_ADDRESS: usize = 64;

/// Connections by their addresses.
#[derive(Debug, Default)]
pub struct Seats(Mutex<HashMap<IpAddr, usize>>);

impl Seats {
    /// One more, unless there are too many.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<Seat> {
        let mut counts = self.0.lock().ignore_poison();
        let own = counts.get(&address).copied().unwrap_or(0);
        if own >= MAX_OF_ADDRESS || counts.values().sum::<usize>() >= MAX_CONNECTIONS {
            return None;
        }
        counts.insert(address, own + 1);
        Some(Seat { seats: Arc::clone(self), address })
    }
}

/// A connection.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    address: IpAddr,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.seats.0.lock().ignore_poison();
        if let Some(count) = counts.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leaves_room_for_others() {
        let seats = Arc::<Seats>::default();
        let of = |number: u8| IpAddr::from([192, 0, 2, number]);
        let mut own: Vec<Seat> = std::iter::from_fn(|| seats.take(of(1))).collect();
        assert_eq!(own.len(), MAX_OF_ADDRESS);
        let others: Vec<Seat> = (2..100).filter_map(|number| seats.take(of(number))).collect();
        assert_eq!(others.len(), 98);
        own.pop();
        assert!(seats.take(of(1)).is_some());
        let all: Vec<Seat> = (100..=255).filter_map(|number| seats.take(of(number))).collect();
        assert_eq!(all.len() + own.len() + others.len(), MAX_CONNECTIONS);
        drop((own, others, all));
        assert!(seats.0.lock().unwrap().is_empty());
    }
}
