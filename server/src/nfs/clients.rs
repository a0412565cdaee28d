//! The clients of shares: from where they come, what they mounted, how much they moved.
//!
//! NFS has no sessions: a client is an address that asked for something. One that asked for nothing for a day
//! is forgotten, and so is the one that was silent for longest where there are more than [`MOST`].

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use device::IgnorePoison;

use super::counted::Counted;

/// Most clients that are known.
const MOST: usize = 1024;
/// Most directories that a client is known to have mounted.
const MOST_MOUNTS: usize = 256;
/// A client that was silent for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(24 * 60 * 60);

/// What a client did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Where it comes from.
    pub address: IpAddr,
    /// The directories that it mounted, each with the name of the dataset.
    pub mounts: BTreeMap<Vec<u8>, String>,
    /// Connections that it has.
    pub connections: usize,
    /// Its requests.
    pub requests: u64,
    /// Bytes that it read.
    pub read_bytes: u64,
    /// Bytes that it wrote.
    pub written_bytes: u64,
    /// When it asked for something last.
    pub last: SystemTime,
    seen: Instant,
}

/// All clients.
#[derive(Debug, Default)]
pub struct Clients {
    known: Mutex<HashMap<IpAddr, Client>>,
    /// What all of them asked for together.
    pub counted: Counted,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Client>> {
        self.known.lock().ignore_poison()
    }

    /// Notes something of a client.
    pub fn note(&self, address: IpAddr, note: impl FnOnce(&mut Client)) {
        let mut clients = self.lock();
        if !clients.contains_key(&address) && clients.len() >= MOST {
            clients.retain(|_, client| client.connections > 0 || client.seen.elapsed() < FORGOTTEN);
            let idle = clients.values().filter(|client| client.connections == 0);
            let silent = idle.min_by_key(|client| client.seen).map(|client| client.address);
            match silent {
                Some(silent) if clients.len() >= MOST => drop(clients.remove(&silent)),
                None if clients.len() >= MOST => return,
                _ => {}
            }
        }
        let now = Instant::now();
        let client = clients.entry(address).or_insert_with(|| Client {
            address,
            mounts: BTreeMap::new(),
            connections: 0,
            requests: 0,
            read_bytes: 0,
            written_bytes: 0,
            last: SystemTime::now(),
            seen: now,
        });
        (client.last, client.seen) = (SystemTime::now(), now);
        note(client);
    }

    /// A client mounted a directory.
    pub fn mounted(&self, address: IpAddr, path: &[u8], dataset: &str) {
        self.note(address, |client| {
            if client.mounts.len() < MOST_MOUNTS {
                client.mounts.insert(path.to_vec(), dataset.to_owned());
            }
        });
    }

    /// All of them, by address.
    pub fn all(&self) -> Vec<Client> {
        let mut clients = self.lock();
        clients.retain(|_, client| client.connections > 0 || client.seen.elapsed() < FORGOTTEN);
        let mut all: Vec<Client> = clients.values().cloned().collect();
        all.sort_by_key(|client| client.address);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_silent_client_makes_room() {
        let clients = Clients::default();
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        clients.note(address(0), |client| client.connections += 1);
        for number in 1..=MOST as u32 {
            clients.mounted(address(number), b"/a", "a");
        }
        let all = clients.all();
        assert_eq!(all.len(), MOST);
        assert_eq!(all[0].address, address(0), "it is connected");
        assert_eq!(all[1].address, address(2));
        assert_eq!(all[1].mounts.get(&b"/a"[..]).map(String::as_str), Some("a"));
    }
}
