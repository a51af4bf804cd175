//! Exchanges that wait for an agent's report before they end. Who waits bounds the wait.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bridgehead_protocol::handshake::Identity;

use super::Ledger;
use super::known::Fact;
use super::store::StreamName;

/// One waker for each exchange that waits; an entry goes with its exchange's [`Awaited`].
#[derive(Debug, Default)]
pub(super) struct Awaiting(Mutex<BTreeMap<StreamName, Waker>>);

impl Awaiting {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<StreamName, Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was reported: each looks again, and waits on if it was not for it.
    pub(super) fn wake(&self) {
        let all = std::mem::take(&mut *self.lock());
        all.into_values().for_each(Waker::wake);
    }
}

/// Ready with what the agent reports of a stream whose exchange has not ended yet.
#[derive(Debug)]
pub struct Awaited<'a> {
    ledger: &'a Ledger,
    owner: &'a Identity,
    stream: StreamName,
}

impl Ledger {
    /// What the agent `owner` reports of a stream of a tunnel that was lost, for an exchange that has
    /// not ended yet. Cancel safe.
    #[must_use]
    pub fn reported<'a>(
        &'a self,
        owner: &'a Identity,
        tunnel: &Arc<str>,
        stream: u32,
    ) -> Awaited<'a> {
        Awaited {
            ledger: self,
            owner,
            stream: (Arc::clone(tunnel), stream),
        }
    }
}

impl Future for Awaited<'_> {
    type Output = Fact;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Fact> {
        // Before the look, so that no report falls between the two.
        let waker = cx.waker().clone();
        self.ledger
            .awaiting
            .lock()
            .insert(self.stream.clone(), waker);
        let known = self.ledger.store().reported(self.owner, &self.stream);
        known.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.ledger.awaiting.lock().remove(&self.stream);
    }
}
