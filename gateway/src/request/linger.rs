//! Fenced exchanges that wait for a late answer of their app.
//!
//! Nobody is told here: the client has its answer. What comes is read and thrown away, so that the
//! app may finish and the agent is not kept waiting for credit. Bounded in number and in time.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bridgehead_protocol::conn::Settings;

use super::Shared;
use crate::tunnel::connection::AppConnection;

/// Exchanges that may wait at once, per gateway; beyond it the app's connection is closed.
const MAX_LINGERING: usize = 1000;
/// Beyond the agent's own limit, for its word to arrive.
const SLACK: Duration = Duration::from_secs(5);

/// A counted place; given back by its drop.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(count: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(Arc::clone(count));
        (count.fetch_add(1, Ordering::Relaxed) < MAX_LINGERING).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps the connection until its end, the agent's limit, or the gateway's drain.
pub(super) fn watch(shared: &Shared, connection: AppConnection) {
    let (Some(place), Some(mut stream)) =
        (Place::take(&shared.lingering), connection.into_stream())
    else {
        return;
    };
    let mut shutdown = shared.shutdown.clone();
    let limit = Settings::default().linger + SLACK;
    drop(shared.tasks.spawn("linger", async move {
        let _place = place;
        let drained = poll_fn(|cx| {
            loop {
                match stream.poll_read(cx, usize::MAX) {
                    Poll::Ready(Ok(Some(_))) => {}
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        });
        tokio::select! {
            biased;
            () = shutdown.draining() => {}
            () = drained => {}
            () = tokio::time::sleep(limit) => {}
        }
    }));
}
