//! Tasks of the process: every one has a name, is counted, and can be waited for.
//!
//! Owns the counts, nothing else; it cancels nobody (that is `shutdown`'s word to the tasks
//! themselves). Invariant: a name's count is the number of its futures that are not yet dropped,
//! on every exit, a panic included.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The set of running tasks; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    live: Mutex<BTreeMap<&'static str, usize>>,
    changed: Notify,
}

impl Tasks {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Run `future` on the current runtime under `name`. Dropping the handle detaches the task; it
    /// stays counted.
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let place = self.enter(name);
        tokio::spawn(async move {
            let _place = place;
            future.await
        })
    }

    /// Count work that runs in a task of somebody else, until the place is dropped.
    pub fn enter(&self, name: &'static str) -> Place {
        self.inner.change(name, |count| count.saturating_add(1));
        Place {
            inner: Arc::clone(&self.inner),
            name,
        }
    }

    /// Names that have running tasks, with how many.
    #[must_use]
    pub fn live(&self) -> Vec<(&'static str, usize)> {
        let live = self.inner.lock();
        live.iter().map(|(name, count)| (*name, *count)).collect()
    }

    /// Wait until no task is left. Cancel safe; the caller sets the deadline.
    pub async fn idle(&self) {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            // Enrolled before looking, so that a task ending in between is not missed.
            changed.as_mut().enable();
            if self.inner.lock().is_empty() {
                return;
            }
            changed.await;
        }
    }
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, usize>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, name: &'static str, step: impl FnOnce(usize) -> usize) {
        let mut live = self.lock();
        let count = live.entry(name).or_insert(0);
        *count = step(*count);
        if *count == 0 {
            live.remove(name);
        }
        let empty = live.is_empty();
        drop(live);
        if empty {
            self.changed.notify_waiters();
        }
    }
}

/// A counted place in the set, given back by its drop.
#[derive(Debug)]
#[must_use = "the place is given back when this is dropped"]
pub struct Place {
    inner: Arc<Inner>,
    name: &'static str,
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(task = self.name, "task panicked");
        }
        self.inner
            .change(self.name, |count| count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_is_counted_under_its_name_until_it_ends() {
        let tasks = Tasks::new();
        let (release, wait) = tokio::sync::oneshot::channel::<()>();
        let handle = tasks.spawn("tunnel", wait);
        assert_eq!(tasks.live(), [("tunnel", 1)]);
        release.send(()).expect("the task waits");
        tasks.idle().await;
        assert_eq!(tasks.live(), []);
        handle.await.expect("no panic").expect("released");
    }

    #[tokio::test]
    async fn a_panic_gives_the_place_back() {
        let tasks = Tasks::new();
        let handle = tasks.spawn("fragile", async { panic!("on purpose") });
        assert!(handle.await.expect_err("it panicked").is_panic());
        tasks.idle().await;
        assert_eq!(tasks.live(), []);
    }

    #[tokio::test]
    async fn an_aborted_task_gives_its_place_back() {
        let tasks = Tasks::new();
        let handle = tasks.spawn("endless", std::future::pending::<()>());
        handle.abort();
        tasks.idle().await;
        assert!(handle.await.expect_err("aborted").is_cancelled());
    }
}
