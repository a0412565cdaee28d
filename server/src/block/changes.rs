//! Tells protocols that the exports may be others than before.

use std::future::pending;

use tokio::sync::watch;

/// Tells all that listen. Clones tell the same ones.
#[derive(Debug, Clone)]
pub struct Announcer(watch::Sender<()>);

impl Default for Announcer {
    fn default() -> Self {
        Self(watch::channel(()).0)
    }
}

impl Announcer {
    /// Exports came or went, are shared otherwise, or have another size.
    pub fn announce(&self) {
        self.0.send_replace(());
    }

    /// What is announced from now on.
    pub fn listen(&self) -> Changes {
        Changes(Some(self.0.subscribe()))
    }
}

/// What is announced. Several changes may be announced as one.
#[derive(Debug, Clone, Default)]
pub struct Changes(Option<watch::Receiver<()>>);

impl Changes {
    /// Of exports that stay as they are.
    pub fn none() -> Self {
        Self::default()
    }

    /// Ready after a change that was not seen yet. None is lost when this is dropped.
    pub async fn next(&mut self) {
        if let Some(changes) = &mut self.0
            && changes.changed().await.is_ok()
        {
            return;
        }
        self.0 = None;
        pending().await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_change_is_told_once_and_none_is_lost() {
        let announcer = Announcer::default();
        let (mut one, mut none) = (announcer.listen(), Changes::none());
        assert!(one.next().now_or_never().is_none());
        announcer.announce();
        announcer.clone().announce();
        assert!(one.next().now_or_never().is_some());
        assert!(one.next().now_or_never().is_none());
        announcer.announce();
        drop(announcer);
        assert!(one.next().now_or_never().is_some());
        assert!(one.next().now_or_never().is_none(), "there is none to come");
        assert!(none.next().now_or_never().is_none());
    }
}
