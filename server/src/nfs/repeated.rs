//! Answers to requests that must not be done twice.
//!
//! A client that lost its connection sends what was not answered again. A name that was removed by the first
//! of two such requests would be missing for the second. So the answers of the last [`MOST`] requests that
//! change names or attributes are kept, and a request that was seen gets the same answer. One that is still
//! under way gets none: the client asks again.
//!
//! Requests are the same when they have the same number, come from the same address, and have the same bytes.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Mutex;

use device::IgnorePoison;

/// Most answers that are kept.
const MOST: usize = 4096;

/// What a request is recognized by: its client, its number, and a sum of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(IpAddr, u32, u64);

impl Key {
    /// Of a request.
    pub fn of(address: IpAddr, number: u32, record: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        record.hash(&mut hasher);
        Self(address, number, hasher.finish())
    }
}

/// What is known of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// It is new: it is to be done, and its answer to be kept.
    Never,
    /// It is under way.
    UnderWay,
    /// It was answered so.
    Answered(Vec<u8>),
}

/// The answers.
#[derive(Debug, Default)]
pub struct Repeated(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// No answer for those that are under way.
    answers: HashMap<Key, Option<Vec<u8>>>,
    order: VecDeque<Key>,
}

impl Repeated {
    /// Looks for a request, and notes one that is new.
    pub fn begin(&self, key: Key) -> Seen {
        let mut kept = self.0.lock().ignore_poison();
        match kept.answers.entry(key) {
            Entry::Occupied(known) => {
                return known.get().clone().map_or(Seen::UnderWay, Seen::Answered);
            }
            Entry::Vacant(place) => {
                place.insert(None);
            }
        }
        kept.order.push_back(key);
        while kept.order.len() > MOST {
            if let Some(oldest) = kept.order.pop_front() {
                kept.answers.remove(&oldest);
            }
        }
        Seen::Never
    }

    /// Keeps the answer; without one, the request may be done again.
    pub fn end(&self, key: Key, answer: Option<&[u8]>) {
        let mut kept = self.0.lock().ignore_poison();
        match answer {
            Some(answer) => {
                if let Some(place) = kept.answers.get_mut(&key) {
                    *place = Some(answer.to_vec());
                }
            }
            None => {
                kept.answers.remove(&key);
                kept.order.retain(|other| *other != key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_comes_again_is_not_done_again() {
        let repeated = Repeated::default();
        let address = "10.0.0.1".parse().unwrap();
        let key = Key::of(address, 7, b"remove a");
        assert_eq!(repeated.begin(key), Seen::Never);
        assert_eq!(repeated.begin(key), Seen::UnderWay);
        repeated.end(key, Some(b"done"));
        assert_eq!(repeated.begin(key), Seen::Answered(b"done".to_vec()));
        assert_eq!(repeated.begin(Key::of(address, 7, b"remove b")), Seen::Never, "another one");
        assert_eq!(repeated.begin(Key::of("10.0.0.2".parse().unwrap(), 7, b"remove a")), Seen::Never);
        let failed = Key::of(address, 8, b"");
        assert_eq!(repeated.begin(failed), Seen::Never);
        repeated.end(failed, None);
        assert_eq!(repeated.begin(failed), Seen::Never);
        for number in 0..2 * MOST as u32 {
            repeated.begin(Key::of(address, number, b"x"));
        }
        assert_eq!(repeated.0.lock().unwrap().answers.len(), MOST);
        assert_eq!(repeated.begin(key), Seen::Never, "it is too old");
    }
}
