//! The streams of a tunnel that was lost while their apps were at work: they are read on, and the first
//! byte of each answer is noted among the fates, so that the gateway's ledger learns of it.
//!
//! Nothing is ever written. The rest of an answer is read and thrown away, so that the app may finish.
//! Bounded in number for the whole agent ([`MOST`]) and in time ([`LONGEST`], and what the gateway
//! asked for as `linger`).
//! Limit: whether a request was written whole is known to the gateway alone; an app that still waits
//! for the rest of one waits so long as well.

use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::wire::StreamId;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::serve::Orphan;

use super::agent::Agent;

/// Connections of apps that may be kept for a late answer; beyond it they are closed with their tunnel.
pub(super) const MOST: usize = 1000;

/// Longest time for an answer to begin and end. Short, because the gateway alone knows whether a request
/// was written whole: an app that waits for the rest of one may serve nobody else meanwhile.
const LONGEST: Duration = Duration::from_secs(10);

/// News is gathered for so long: each batch makes every tunnel look through what it has to report.
const GATHER: Duration = Duration::from_millis(50);

/// An app that says nothing more for so long has said all of its answer.
const SAID_ALL: Duration = Duration::from_secs(1);

/// What a lost tunnel left.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    pub(super) tunnel: u128,
    pub(super) streams: Vec<Orphan>,
    pub(super) linger: Duration,
}

/// Reads them to the end of each answer, or of the time.
pub(super) async fn read_on(agent: Arc<Agent>, orphans: Orphans) {
    let Orphans {
        tunnel,
        streams,
        linger,
    } = orphans;
    let until = Instant::now() + linger.min(LONGEST);
    let (news, mut answers) = mpsc::channel(streams.len().max(1));
    let mut reading = JoinSet::new();
    for orphan in streams {
        let Ok(place) = Arc::clone(&agent.late_answers).try_acquire_owned() else {
            break;
        };
        let read = read_one(orphan, until, news.clone(), place);
        reading.spawn(agent.outside.pace.clone().keep(read));
    }
    drop(news);
    let mut batch = Vec::new();
    while answers.recv_many(&mut batch, usize::MAX).await > 0 {
        agent.learn_answers(tunnel, &batch);
        batch.clear();
        sleep(GATHER).await;
    }
    while reading.join_next().await.is_some() {}
}

/// Tells once, with how many bytes the answer began.
async fn read_one(
    mut orphan: Orphan,
    until: Instant,
    news: mpsc::Sender<(StreamId, u64)>,
    _place: OwnedSemaphorePermit,
) {
    let Ok(count @ 1..) = timeout_at(until, orphan.read()).await else {
        return;
    };
    // There is a place for each, and who listens does so until all are done.
    let _ = news.try_send((orphan.stream(), count as u64));
    drop(news);
    while Instant::now() < until && matches!(timeout(SAID_ALL, orphan.read()).await, Ok(1..)) {}
}
