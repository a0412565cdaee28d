//! Sessions: who signed in, by the hash of the number in its cookie.
//!
//! The token against forged requests (CSRF) follows from the number: a page of another origin can have the
//! browser send the cookie, but cannot read it, and so cannot know the token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use tokio::sync::watch;

use super::{Signed, secrets};
use crate::caller::SessionId;

/// How long a session lasts that is not used. An answer that lasts is use.
pub const IDLE: Duration = Duration::from_secs(2 * 60 * 60);
/// How long a session lasts at most.
pub const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);
/// The most sessions. The one that was not used for the longest time makes room.
const MAX_SESSIONS: usize = 256;
/// The most sessions of one user.
const MAX_OF_USER: usize = 16;
/// The most answers that last of one session.
const MAX_LASTING: usize = 16;

/// Which session has this number.
pub fn id_of(number: &str) -> SessionId {
    SessionId(secrets::hash(number))
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<HashMap<String, Entry>>);

#[derive(Debug)]
struct Entry {
    of: Signed,
    began: Instant,
    used: Instant,
    /// Held by answers that last.
    lasting: Arc<()>,
    /// Dropped with the session, which ends what waits for that.
    ended: watch::Sender<()>,
}

impl Entry {
    fn is_over(&self, now: Instant) -> bool {
        let is_idle = now.duration_since(self.used) >= IDLE && Arc::strong_count(&self.lasting) == 1;
        is_idle || now.duration_since(self.began) >= LONGEST
    }
}

/// A session that was found.
#[derive(Debug, Clone)]
pub struct Session {
    /// Its user.
    pub of: Signed,
    /// The token against forged requests.
    pub csrf: String,
    /// When it ends at the latest.
    pub ends: Instant,
    /// As long as an answer lasts.
    lasting: Arc<()>,
    ended: watch::Receiver<()>,
}

impl Session {
    /// Whether a client knows the token.
    pub fn has_csrf(&self, given: &[u8]) -> bool {
        secrets::are_same(self.csrf.as_bytes(), given)
    }

    /// Whether one more answer of it may last. One counts as long as its copy of the session is there.
    pub fn may_last(&self) -> bool {
        // One is the table's, one this copy's.
        Arc::strong_count(&self.lasting) <= MAX_LASTING + 2
    }

    /// Completes when it has ended.
    pub async fn ended(mut self) {
        let over = async { while self.ended.changed().await.is_ok() {} };
        // It makes no difference which it was.
        let _ = tokio::time::timeout_at(self.ends.into(), over).await;
    }
}

fn csrf_of(number: &str) -> String {
    secrets::hash(&format!("csrf {number}"))
}

impl Sessions {
    fn table(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        let mut table = self.0.lock().ignore_poison();
        let now = Instant::now();
        table.retain(|_, entry| !entry.is_over(now));
        table
    }

    /// Begins a session; its number, for the cookie.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn begin(&self, of: Signed) -> Result<String, String> {
        let number = secrets::random()?;
        let mut table = self.table();
        let own = table.values().filter(|entry| entry.of.name == of.name).count();
        if own >= MAX_OF_USER {
            remove_oldest(&mut table, |entry| entry.of.name == of.name);
        } else if table.len() >= MAX_SESSIONS {
            remove_oldest(&mut table, |_| true);
        }
        let (began, used) = (Instant::now(), Instant::now());
        let entry = Entry { of, began, used, lasting: Arc::default(), ended: watch::channel(()).0 };
        table.insert(secrets::hash(&number), entry);
        Ok(number)
    }

    /// The session with this number, which is used by that.
    pub fn find(&self, number: &str) -> Option<Session> {
        let mut table = self.table();
        let entry = table.get_mut(&secrets::hash(number))?;
        entry.used = Instant::now();
        Some(Session {
            of: entry.of.clone(),
            csrf: csrf_of(number),
            ends: entry.began + LONGEST,
            lasting: Arc::clone(&entry.lasting),
            ended: entry.ended.subscribe(),
        })
    }

    /// Ends the session with this number.
    pub fn end(&self, number: &str) {
        self.table().remove(&secrets::hash(number));
    }

    /// Ends those of a user with a password.
    pub fn end_of(&self, name: &str) {
        self.table().retain(|_, entry| entry.of.name != name || entry.of.uid.is_some());
    }

    /// The same, but for one of them.
    pub fn end_others_of(&self, name: &str, kept: &SessionId) {
        let goes =
            |hash: &String, entry: &Entry| entry.of.name == name && entry.of.uid.is_none() && *hash != kept.0;
        self.table().retain(|hash, entry| !goes(hash, entry));
    }

    /// How many a user has.
    pub(super) fn count_of(&self, name: &str, of_machine: bool) -> u64 {
        let table = self.table();
        let is_own = |entry: &&Entry| entry.of.name == name && entry.of.uid.is_some() == of_machine;
        table.values().filter(is_own).count() as u64
    }

    /// The users of the machine who have some.
    pub(super) fn of_machine(&self) -> Vec<String> {
        let table = self.table();
        table.values().filter(|entry| entry.of.uid.is_some()).map(|entry| entry.of.name.clone()).collect()
    }
}

/// Ends the one of those that are meant that was not used for the longest time.
fn remove_oldest(table: &mut HashMap<String, Entry>, is_meant: impl Fn(&Entry) -> bool) {
    let meant = table.iter().filter(|(_, entry)| is_meant(entry));
    let oldest = meant.min_by_key(|(_, entry)| entry.used).map(|(hash, _)| hash.clone());
    if let Some(oldest) = oldest {
        table.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::DashboardRole;

    fn user(name: &str) -> Signed {
        Signed { name: name.into(), role: DashboardRole::Viewer, uid: None }
    }

    /// Lets time go by for all.
    fn age(sessions: &Sessions, by: Duration) {
        for entry in sessions.0.lock().unwrap().values_mut() {
            entry.began = entry.began.checked_sub(by).unwrap();
            entry.used = entry.used.checked_sub(by).unwrap();
        }
    }

    #[test]
    fn sessions_end_by_themselves_and_with_their_user() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let sessions = Sessions::default();
            let (ann, ben) = (sessions.begin(user("ann")).unwrap(), sessions.begin(user("ben")).unwrap());
            let found = sessions.find(&ann).unwrap();
            assert_eq!(found.of.name, "ann");
            assert!(found.has_csrf(sessions.find(&ann).unwrap().csrf.as_bytes()));
            assert!(!found.has_csrf(sessions.find(&ben).unwrap().csrf.as_bytes()) && !found.has_csrf(b""));
            let other = sessions.begin(user("ann")).unwrap();
            sessions.end_others_of("ann", &id_of(&ann));
            assert!(sessions.find(&ann).is_some() && sessions.find(&other).is_none());
            sessions.end_of("ann");
            found.ended().await;
            assert!(sessions.find(&ann).is_none());
            age(&sessions, IDLE - Duration::from_secs(60));
            let held = sessions.find(&ben).unwrap();
            age(&sessions, IDLE);
            let again = sessions.find(&ben).expect("an answer lasts");
            drop((held, again));
            age(&sessions, IDLE);
            assert!(sessions.find(&ben).is_none());
            let ben = sessions.begin(user("ben")).unwrap();
            let held = sessions.find(&ben).unwrap();
            age(&sessions, LONGEST);
            assert!(sessions.find(&ben).is_none(), "none lasts longer");
            held.ended().await;
        });
    }

    #[test]
    fn sessions_are_bounded_and_the_idle_ones_make_room() {
        let sessions = Sessions::default();
        let all: Vec<String> = (0..MAX_OF_USER + 1).map(|_| sessions.begin(user("ann")).unwrap()).collect();
        assert!(sessions.find(&all[0]).is_none());
        assert!(all[1..].iter().all(|number| sessions.find(number).is_some()));
        for number in 0..MAX_SESSIONS {
            sessions.begin(user(&number.to_string())).unwrap();
        }
        assert_eq!(sessions.0.lock().unwrap().len(), MAX_SESSIONS);
        let number = sessions.begin(user("ben")).unwrap();
        let kept: Vec<Session> =
            std::iter::from_fn(|| sessions.find(&number).filter(Session::may_last)).collect();
        assert_eq!(kept.len(), MAX_LASTING + 1);
    }
}
