//! Names of hosts, which a list of clients may have: whether an address is one of a host's.
//!
//! # The idea
//! A name is resolved to its addresses, and not an address to a name: so only the owner of the name decides.
//! The system resolves (`/etc/hosts`, DNS). That may take long, and a request asks each time: so addresses
//! are kept for [`FRESH`], and asked for again beside the requests, which are answered by the old ones. Only
//! the first request that needs a name waits for it, for [`PATIENCE`] at most. Where a name cannot be
//! resolved any more, its addresses hold for [`KEPT`].
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Names::known` | what is known; for a few lines, and while an answer is waited for | taken alone |

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use device::IgnorePoison;

/// How long addresses are taken to be right.
const FRESH: Duration = Duration::from_secs(60);
/// How long they hold while they cannot be asked for.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// How long a request waits for a name that it needs first.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most names that are known. Names beyond that let no client in.
const MOST: usize = 4096;

/// Those that the process asks for.
static NAMES: LazyLock<Arc<Names>> = LazyLock::new(|| Arc::new(Names::asking(resolve)));

/// Whether an address is one of a host's. May block the thread.
pub fn is_of(name: &str, address: IpAddr) -> bool {
    NAMES.has(name, address)
}

fn resolve(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip().to_canonical()).collect())
}

/// Names and their addresses.
#[derive(Debug)]
struct Names {
    ask: fn(&str) -> io::Result<Vec<IpAddr>>,
    known: Mutex<HashMap<String, Known>>,
    answered: Condvar,
}

/// What is known of a name.
#[derive(Debug, Default)]
struct Known {
    addresses: Vec<IpAddr>,
    /// When the addresses were told last.
    told: Option<Instant>,
    /// When an answer came last, whatever it was.
    asked: Option<Instant>,
    is_being_asked: bool,
}

impl Names {
    fn asking(ask: fn(&str) -> io::Result<Vec<IpAddr>>) -> Self {
        Self { ask, known: Mutex::default(), answered: Condvar::new() }
    }

    fn has(self: &Arc<Self>, name: &str, address: IpAddr) -> bool {
        let mut known = self.known.lock().ignore_poison();
        if !known.contains_key(name) && known.len() >= MOST {
            known.retain(|_, known| known.asked.is_none_or(|asked| asked.elapsed() < KEPT));
            if known.len() >= MOST {
                return false;
            }
        }
        let of = known.entry(name.to_owned()).or_default();
        let is_old = of.asked.is_none_or(|asked| asked.elapsed() >= FRESH);
        if is_old && !of.is_being_asked {
            of.is_being_asked = self.ask_for(name);
        }
        let waits = |known: &mut HashMap<String, Known>| {
            known.get(name).is_some_and(|known| known.asked.is_none() && known.is_being_asked)
        };
        let (known, _) = self.answered.wait_timeout_while(known, PATIENCE, waits).ignore_poison();
        known.get(name).is_some_and(|known| known.addresses.contains(&address.to_canonical()))
    }

    /// Asks beside the requests. Whether there is a thread for it.
    fn ask_for(self: &Arc<Self>, name: &str) -> bool {
        let (names, name) = (Arc::clone(self), name.to_owned());
        let asks = move || {
            let told = (names.ask)(&name);
            let mut all = names.known.lock().ignore_poison();
            let known = all.entry(name.clone()).or_default();
            (known.asked, known.is_being_asked) = (Some(Instant::now()), false);
            match told {
                Ok(addresses) => (known.addresses, known.told) = (addresses, known.asked),
                Err(error) => {
                    tracing::warn!(host = name, %error, "the name of a client of NFS cannot be resolved");
                    if known.told.is_none_or(|told| told.elapsed() >= KEPT) {
                        known.addresses.clear();
                    }
                }
            }
            drop(all);
            names.answered.notify_all();
        };
        thread::Builder::new().name("nfs-name".into()).spawn(asks).is_ok()
    }
}

/// Whether a word can be the name of a host.
pub fn is_name(word: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
    word.len() <= 255
        && word.starts_with(|first: char| first.is_ascii_alphanumeric())
        && word.chars().all(is_plain)
        && !word.chars().all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_by_the_addresses_of_its_name() {
        let names = Arc::new(Names::asking(|name| match name {
            "two.example" => Ok(["10.0.0.1", "fd00::1"].map(|address| address.parse().unwrap()).into()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }));
        let has = |name: &str, address: &str| names.has(name, address.parse().unwrap());
        assert!(has("two.example", "10.0.0.1") && has("two.example", "::ffff:10.0.0.1"));
        assert!(has("two.example", "fd00::1") && !has("two.example", "10.0.0.2"));
        assert!(!has("none.example", "10.0.0.1"));
        // What was told holds while nothing better is known.
        names.known.lock().unwrap().get_mut("two.example").unwrap().asked = None;
        assert!(has("two.example", "10.0.0.1"));
    }

    #[test]
    fn addresses_patterns_and_netgroups_are_no_names() {
        for name in ["host", "a.example", "0a-b_c.example"] {
            assert!(is_name(name), "{name}");
        }
        for word in ["", "@group", "*.example", "300.1.1.1", "host/8", "-x", "a b", "fd00::1"] {
            assert!(!is_name(word), "{word}");
        }
    }
}
