//! What is still awaited of a try after its client was told: the late answer of an app, the late
//! counts of an agent.
//!
//! Nobody is told here; what comes is noted in the ledger. The body of a late answer is read and
//! thrown away, so that the app may finish and the agent is not kept waiting for credit. Bounded in
//! number and in time, and over when the gateway drains.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bridgehead_protocol::conn::Settings;
use bridgehead_protocol::verdict::Delivery;
use bridgehead_protocol::wire::ResetCode;

use super::Shared;
use super::app::{AppEvent, AppExchange, AppSide};
use super::evidence;
use super::forward::Finish;
use crate::clock::Clock;
use crate::ledger::{Fact, Ledger, Reply, TryRef};

/// Connections of apps that may be kept for a late answer, per gateway; beyond it they are closed.
const MAX_LINGERING: usize = 1000;
/// Streams whose counts may be awaited; they keep nothing at the app.
const MAX_COUNTING: usize = 10_000;
/// Beyond the agent's own limit, for its word to arrive; counts come within a resume window or never.
const SLACK: Duration = Duration::from_secs(5);

/// How many are waited for now.
#[derive(Debug, Default)]
pub struct Lingering {
    answers: Arc<AtomicUsize>,
    counts: Arc<AtomicUsize>,
}

impl Lingering {
    /// Tries whose answer or counts are awaited.
    #[must_use]
    pub fn total(&self) -> usize {
        self.answers.load(Ordering::Relaxed) + self.counts.load(Ordering::Relaxed)
    }

    fn place(&self, awaits: Awaits) -> Option<Place> {
        match awaits {
            Awaits::Answer => Place::take(&self.answers, MAX_LINGERING),
            Awaits::Counts => Place::take(&self.counts, MAX_COUNTING),
        }
    }
}

/// A counted place; given back by its drop.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(count: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        let place = Self(Arc::clone(count));
        (count.fetch_add(1, Ordering::Relaxed) < limit).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    /// The app's answer: it has the whole request and was not interrupted.
    Answer,
    /// How many bytes the app took.
    Counts,
}

/// A given-up exchange of which something may still come.
pub(super) struct Rest {
    app: AppExchange,
    awaits: Awaits,
}

impl Rest {
    /// What may still come of a try that was given up. The app is not stopped by a window: its
    /// connection stays until its late answer. Otherwise the counts may still prove something.
    pub(super) fn of(finish: Finish, delivery: Delivery, app: AppExchange) -> Option<Self> {
        let view = app.control().view();
        if view.ended.is_some() {
            return None;
        }
        let uninterrupted = matches!(finish, Finish::Window(_)) && app.offsets().whole.is_some();
        let provable = delivery == Delivery::Unknown && view.counted.is_none();
        let awaits = match (uninterrupted, provable) {
            (true, _) => Awaits::Answer,
            (false, true) => Awaits::Counts,
            (false, false) => return None,
        };
        Some(Self { app, awaits })
    }
}

/// Where what comes is noted; says that nothing more will when it is dropped.
struct Note {
    ledger: Arc<Ledger>,
    clock: Clock,
    which: TryRef,
}

impl Note {
    fn learn(&self, fact: Fact) {
        self.ledger.learn(self.clock.now(), self.which, fact);
    }

    fn reply(&self, status: Option<u16>, complete: bool) {
        self.learn(Fact::Answer(Reply { status, complete }));
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.ledger.unwatch(self.clock.now(), self.which);
    }
}

/// Waits for what may still come, until the agent's limit or the gateway's drain.
pub(super) fn watch(shared: &Shared, rest: Rest, which: TryRef) {
    let note = Note {
        ledger: Arc::clone(&shared.ledger),
        clock: shared.clock,
        which,
    };
    let Some(place) = shared.lingering.place(rest.awaits) else {
        return;
    };
    let mut shutdown = shared.shutdown.clone();
    let limit = Settings::default().linger + SLACK;
    drop(shared.tasks.spawn("linger", async move {
        let Rest { mut app, awaits } = rest;
        // Dropped in the order of need: first what is noted, last the place.
        let (_place, note) = (place, note);
        tokio::select! {
            biased;
            () = shutdown.draining() => {}
            () = wait(&mut app, awaits, &note) => {}
            () = tokio::time::sleep(limit) => {}
        }
    }));
}

async fn wait(app: &mut AppExchange, awaits: Awaits, note: &Note) {
    match awaits {
        Awaits::Answer => late_answer(app, note).await,
        Awaits::Counts => {
            let counted = poll_fn(|cx| app.control().poll_counted(cx));
            // With or without counts: the stream shows what there is.
            let _ = counted.await;
        }
    }
    note.learn(evidence::fact(&app.control().view(), app.offsets().start));
}

/// Reads the answer to its end, or to the end of the stream.
async fn late_answer(app: &mut AppExchange, note: &Note) {
    loop {
        match poll_fn(|cx| app.poll_event(cx)).await {
            Ok(AppEvent::Head(head)) => note.reply(Some(head.status.as_u16()), false),
            Ok(AppEvent::Informational(..)) => note.reply(None, false),
            Ok(AppEvent::Data(_)) => {}
            Ok(AppEvent::Trailers(_) | AppEvent::End) => {
                note.reply(None, true);
                // Everything was said: the app's connection may end in order.
                app.control().reset(ResetCode::Idle);
                return;
            }
            Err(_) => return,
        }
    }
}
