//! How often signing in may be tried: by address and by name.
//!
//! The first tries are free. Each further one that fails has to wait twice as long as the one before, up to
//! a limit, and a try while it has to wait is refused without being looked at. The wait begins at the end of
//! a try. A right one makes the count begin anew; so does a time without tries. A try counts as wrong from
//! its beginning, so that many at once are counted too.
//!
//! A name waits for less than an address, so that a stranger cannot keep a user out for long. Both tables are
//! bounded: the entry that was tried the longest time ago makes room.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use device::IgnorePoison;

/// Tries of an address that are free, and the longest wait.
const FREE_OF_ADDRESS: u32 = 5;
const LONGEST_OF_ADDRESS: Duration = Duration::from_secs(300);
/// The same of a name.
const FREE_OF_NAME: u32 = 10;
const LONGEST_OF_NAME: Duration = Duration::from_secs(30);
/// The first wait; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// After how long without a try the count begins anew.
const FORGOTTEN: Duration = Duration::from_secs(15 * 60);
/// The most entries of a table.
const MAX_ENTRIES: usize = 4096;

/// Counts tries.
#[derive(Debug, Default)]
pub struct Throttle {
    addresses: Table<IpAddr>,
    names: Table<String>,
}

/// A try, which is wrong unless it is said to be right.
#[derive(Debug)]
#[must_use]
pub struct Try<'a> {
    throttle: &'a Throttle,
    address: IpAddr,
    name: Option<String>,
    is_right: bool,
}

impl Throttle {
    /// Begins a try from an address, and for a name.
    ///
    /// # Errors
    /// How long it has to wait.
    pub fn begin(&self, address: IpAddr, name: Option<&str>) -> Result<Try<'_>, Duration> {
        let address = network_of(address);
        let now = Instant::now();
        let of_address = self.addresses.wait(&address, now);
        let of_name = name.and_then(|name| self.names.wait(name, now));
        if let Some(wait) = of_address.max(of_name) {
            return Err(wait);
        }
        self.addresses.count(address, now);
        if let Some(name) = name {
            self.names.count(name.to_owned(), now);
        }
        let attempt = Try { throttle: self, address, name: name.map(str::to_owned), is_right: false };
        // Others of the same have to wait from now on, too.
        attempt.begin_waits(now);
        Ok(attempt)
    }
}

impl Try<'_> {
    /// It was right.
    pub fn was_right(mut self) {
        self.is_right = true;
        self.throttle.addresses.forget(&self.address);
        if let Some(name) = &self.name {
            self.throttle.names.forget(name);
        }
    }
}

impl Try<'_> {
    fn begin_waits(&self, now: Instant) {
        self.throttle.addresses.begin_wait(&self.address, now, FREE_OF_ADDRESS, LONGEST_OF_ADDRESS);
        if let Some(name) = &self.name {
            self.throttle.names.begin_wait(name, now, FREE_OF_NAME, LONGEST_OF_NAME);
        }
    }
}

impl Drop for Try<'_> {
    fn drop(&mut self) {
        if !self.is_right {
            self.begin_waits(Instant::now());
        }
    }
}

/// What counts as one address: of IPv6 a network, all of which one party usually has.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[derive(Debug)]
struct Table<K>(Mutex<HashMap<K, Entry>>);

#[derive(Debug)]
struct Entry {
    tries: u32,
    last: Instant,
    until: Instant,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq + Clone> Table<K> {
    /// How long it has to wait, if it has to.
    fn wait<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Instant) -> Option<Duration>
    where
        K: std::borrow::Borrow<Q>,
    {
        let table = self.0.lock().ignore_poison();
        let wait = table.get(key)?.until.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }

    /// One more try.
    fn count(&self, key: K, now: Instant) {
        let mut table = self.0.lock().ignore_poison();
        if !table.contains_key(&key) && table.len() >= MAX_ENTRIES {
            table.retain(|_, entry| now.duration_since(entry.last) < FORGOTTEN);
            if table.len() >= MAX_ENTRIES {
                let oldest = table.iter().min_by_key(|(_, entry)| entry.last).map(|(key, _)| key.clone());
                oldest.and_then(|oldest| table.remove(&oldest));
            }
        }
        let entry = table.entry(key).or_insert(Entry { tries: 0, last: now, until: now });
        if now.duration_since(entry.last) >= FORGOTTEN {
            entry.tries = 0;
        }
        entry.tries = entry.tries.saturating_add(1);
        entry.last = now;
    }

    /// The next one has to wait, from now on.
    fn begin_wait<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Instant, free: u32, longest: Duration)
    where
        K: std::borrow::Borrow<Q>,
    {
        let mut table = self.0.lock().ignore_poison();
        let Some(entry) = table.get_mut(key) else { return };
        if let Some(more) = entry.tries.checked_sub(free) {
            let factor = 1u32.checked_shl(more).unwrap_or(u32::MAX);
            entry.until = now + FIRST_WAIT.saturating_mul(factor).min(longest);
        }
    }

    fn forget<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: std::borrow::Borrow<Q>,
    {
        self.0.lock().ignore_poison().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_a_name_wait_after_wrong_tries() {
        let throttle = Throttle::default();
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        for _ in 0..FREE_OF_ADDRESS {
            let _ = throttle.begin(address, None).unwrap();
        }
        assert!(throttle.begin(address, None).unwrap_err() <= FIRST_WAIT);
        throttle.begin("192.0.2.8".parse().unwrap(), Some("ann")).unwrap().was_right();
        // From many addresses.
        for number in 0..FREE_OF_NAME {
            let address = IpAddr::from([10, 0, 0, u8::try_from(number).unwrap()]);
            let _ = throttle.begin(address, Some("ann")).unwrap();
        }
        assert!(throttle.begin("10.0.1.1".parse().unwrap(), Some("ann")).is_err());
        assert!(throttle.begin("10.0.1.1".parse().unwrap(), Some("ben")).is_ok());
        // Neighbours in IPv6 are one.
        for number in 0..FREE_OF_ADDRESS {
            let address: IpAddr = format!("2001:db8::{number}").parse().unwrap();
            let _ = throttle.begin(address, None).unwrap();
        }
        assert!(throttle.begin("2001:db8::77".parse().unwrap(), None).is_err());
        assert!(throttle.begin("2001:db8:1::77".parse().unwrap(), None).is_ok());
    }

    #[test]
    fn a_right_try_begins_anew_and_tables_are_bounded() {
        let throttle = Throttle::default();
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        for _ in 0..20 {
            let _ = throttle.begin(address, Some("ann")).unwrap();
            throttle.begin(address, Some("ann")).unwrap().was_right();
        }
        for number in 0..2 * MAX_ENTRIES as u32 {
            let _ = throttle.begin(IpAddr::from((0x0a00_0000 + number).to_be_bytes()), None);
        }
        assert_eq!(throttle.addresses.0.lock().unwrap().len(), MAX_ENTRIES);
    }
}
