//! Links that sign in once.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use device::IgnorePoison;

use super::{Signed, secrets};

/// How long a link lasts.
pub const LASTS: Duration = Duration::from_secs(300);
/// The most links; the oldest makes room.
const MAX_LINKS: usize = 16;

/// The links that were made and not used.
#[derive(Debug, Default)]
pub struct Links(Mutex<Vec<Link>>);

#[derive(Debug)]
struct Link {
    hash: String,
    until: Instant,
    of: Signed,
}

impl Links {
    /// The secret of a new link for this user.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn make(&self, of: Signed) -> Result<String, String> {
        self.make_until(of, Instant::now() + LASTS)
    }

    fn make_until(&self, of: Signed, until: Instant) -> Result<String, String> {
        let secret = secrets::random()?;
        let mut links = self.0.lock().ignore_poison();
        links.retain(|link| Instant::now() < link.until);
        if links.len() >= MAX_LINKS {
            links.remove(0);
        }
        links.push(Link { hash: secrets::hash(&secret), until, of });
        Ok(secret)
    }

    /// The user of a link, which is used up by this.
    pub fn take(&self, secret: &str) -> Option<Signed> {
        let hash = secrets::hash(secret);
        let mut links = self.0.lock().ignore_poison();
        links.retain(|link| Instant::now() < link.until);
        let mut found = None;
        for (place, link) in links.iter().enumerate() {
            if secrets::are_same(link.hash.as_bytes(), hash.as_bytes()) {
                found = Some(place);
            }
        }
        found.map(|place| links.remove(place).of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::DashboardRole;

    #[test]
    fn a_link_is_used_once_and_not_late() {
        let root = Signed { name: "root".into(), role: DashboardRole::Admin, uid: Some(0) };
        let links = Links::default();
        let secret = links.make(root.clone()).unwrap();
        assert_eq!(links.take("x"), None);
        assert_eq!(links.take(&secret), Some(root.clone()));
        assert_eq!(links.take(&secret), None);
        let late = links.make_until(root.clone(), Instant::now()).unwrap();
        assert_eq!(links.take(&late), None);
        let first = links.make(root.clone()).unwrap();
        let later: Vec<String> = (0..MAX_LINKS).map(|_| links.make(root.clone()).unwrap()).collect();
        assert_eq!(links.take(&first), None, "it made room");
        assert!(later.iter().all(|secret| links.take(secret).is_some()));
    }
}
