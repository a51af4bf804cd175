//! The clock and the tasks of a run: requests leave when they are due, whatever became of the others.
//!
//! Owns what was told of each failed request until it has been judged. Invariants: no answer is waited
//! for before the next request leaves; memory is bounded by the requests under way and the failures told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::exchange::{Clients, asks_to_fail};
use super::judge::{Lie, judge};
use super::plan::{Arrival, FIRST_ID, Kind, Plan};
use super::report::{OfKind, Regret, Report, Resumed, Times, Words};
use super::target::Target;
use super::told::Told;
use crate::metrics::Snapshot;
use crate::oracle::{Book, Level};
use crate::wait;

/// How a run is done; what is asked stands in the [`Plan`].
#[derive(Clone)]
pub struct Settings {
    /// The gateway.
    pub target: Target,
    /// Its admin listener, to ask for resumptions.
    pub admin: Option<SocketAddr>,
    /// How long a client waits for its answer.
    pub patience: Duration,
    /// Requests under way at once; beyond, they are shed and counted.
    pub most: usize,
}

impl Settings {
    /// Ninety seconds of patience, above every window of a gateway; ten thousand at once.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            admin: None,
            patience: Duration::from_secs(90),
            most: 10_000,
        }
    }
}

/// Where a run is, readable while it goes on.
#[derive(Debug, Default)]
pub struct Counts {
    /// Sent.
    pub asked: AtomicU64,
    /// Ended.
    pub ended: AtomicU64,
    /// Ended whole and right.
    pub right: AtomicU64,
    /// Failed or broken.
    pub failed: AtomicU64,
    /// Judged a lie at once.
    pub lies: AtomicU64,
}

impl Counts {
    /// Under way.
    pub fn in_flight(&self) -> u64 {
        let ended = self.ended.load(Ordering::Relaxed);
        self.asked.load(Ordering::Relaxed).saturating_sub(ended)
    }
}

#[derive(Default)]
struct Heap {
    report: Report,
    times: Times,
    /// All that did not end right.
    told: Vec<(u64, Told)>,
    lies: Vec<Lie>,
}

/// A finished run, which can be judged again.
pub struct Finished {
    /// The report.
    pub report: Report,
    told: Vec<(u64, Told)>,
    lies: Vec<Lie>,
}

/// Runs a plan to the last answer.
pub async fn run(
    plan: &Plan,
    settings: &Settings,
    book: &Arc<Book>,
    counts: &Arc<Counts>,
) -> Finished {
    let before = resumed(settings.admin).await;
    let clients = Arc::new(Clients::new(
        settings.target.clone(),
        book.run(),
        plan.messages,
        settings.patience,
    ));
    let heap = Arc::new(Mutex::new(Heap::default()));
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    let mut shed = 0;
    for arrival in plan.arrivals() {
        let due = begun + arrival.at;
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            wait::dawdle(left).await;
        }
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= settings.most {
            shed += 1;
            continue;
        }
        counts.asked.fetch_add(1, Ordering::Relaxed);
        let (clients, heap) = (Arc::clone(&clients), Arc::clone(&heap));
        let (book, counts) = (Arc::clone(book), Arc::clone(counts));
        tasks.spawn(async move { one(&clients, &heap, &book, &counts, arrival, due).await });
    }
    while tasks.join_next().await.is_some() {}
    let mut heap = std::mem::take(&mut *heap.lock().unwrap_or_else(PoisonError::into_inner));
    heap.report.seed = plan.seed;
    heap.report.seconds = begun.elapsed().as_secs_f64();
    heap.report.shed = shed;
    heap.report.fragments = book.fragments();
    heap.report.resumed = difference(before, resumed(settings.admin).await);
    finish(heap, book)
}

/// Sends one request outside of any plan: a probe.
pub async fn ask_once(settings: &Settings, book: &Book, arrival: &Arrival) -> Told {
    let clients = Clients::new(
        settings.target.clone(),
        book.run(),
        (1, Duration::ZERO),
        settings.patience,
    );
    clients.ask(arrival).await.told
}

/// Judges a finished run again: what reached the app since then counts.
pub fn settle(finished: &mut Finished, book: &Book) {
    let mut lies = finished.lies.clone();
    lies.extend(
        finished
            .told
            .iter()
            .filter_map(|(id, told)| judge(*id, told, book.seen(*id))),
    );
    let repeated = book.repeated().into_iter();
    lies.extend(
        repeated
            .filter(|(id, _)| *id >= FIRST_ID)
            .filter_map(|(id, _)| judge(id, &Told::Right, book.seen(id))),
    );
    lies.sort_by_key(|lie| lie.id);
    lies.dedup_by_key(|lie| lie.id);
    finished.report.set_lies(lies);
}

async fn one(
    clients: &Clients,
    heap: &Mutex<Heap>,
    book: &Book,
    counts: &Counts,
    arrival: Arrival,
    due: Instant,
) {
    let outcome = clients.ask(&arrival).await;
    let total = due.elapsed();
    let lie = judge(arrival.id, &outcome.told, book.seen(arrival.id));
    let right = outcome.told == Told::Right;
    counts.ended.fetch_add(1, Ordering::Relaxed);
    let count = if right { &counts.right } else { &counts.failed };
    count.fetch_add(1, Ordering::Relaxed);
    counts
        .lies
        .fetch_add(u64::from(lie.is_some()), Ordering::Relaxed);
    let mut heap = heap.lock().unwrap_or_else(PoisonError::into_inner);
    let name = arrival.kind.as_str();
    let of: &mut OfKind = heap.report.kinds.entry(name).or_default();
    of.asked += 1;
    of.right += u64::from(right);
    heap.report.add(&outcome.told, asks_to_fail(arrival.action));
    if let Some(head) = outcome.head {
        heap.times.head.add(head.saturating_duration_since(due));
    }
    if right {
        heap.times.kinds.entry(name).or_default().add(total);
        if !matches!(arrival.kind, Kind::Sse | Kind::Ws) {
            heap.times.all.add(total);
        }
    } else {
        heap.report.websockets_broken += u64::from(arrival.kind == Kind::Ws);
        heap.told.push((arrival.id, outcome.told));
    }
    heap.lies.extend(lie);
}

fn finish(mut heap: Heap, book: &Book) -> Finished {
    let mut verdicts: BTreeMap<Words, u64> = BTreeMap::new();
    for (id, told) in &heap.told {
        let Told::Refused(verdict) = told else {
            continue;
        };
        let words = Words {
            code: verdict.code.clone(),
            delivery: verdict.delivery.clone(),
            reason: verdict.reason.clone(),
        };
        *verdicts.entry(words).or_default() += 1;
        if verdict.delivery == "unknown" {
            let regret: &mut Regret = heap
                .report
                .regret
                .entry(verdict.reason.clone())
                .or_default();
            regret.unknown += 1;
            regret.unseen += u64::from(book.seen(*id).level == Level::Nothing);
        }
    }
    heap.report.verdicts = verdicts.into_iter().collect();
    heap.report.latency_ms = heap.times.all.percentiles();
    heap.report.head_ms = heap.times.head.percentiles();
    for (kind, times) in &heap.times.kinds {
        heap.report.kinds.entry(kind).or_default().latency_ms = times.percentiles();
    }
    let mut finished = Finished {
        report: heap.report,
        told: heap.told,
        lies: heap.lies,
    };
    settle(&mut finished, book);
    finished
}

async fn resumed(admin: Option<SocketAddr>) -> Option<Resumed> {
    let snapshot = Snapshot::try_read(admin?).await?;
    let resumes = snapshot.by_label("resumes_total", "result");
    let whole = |n: &f64| *n as u64;
    let resumes = resumes
        .iter()
        .map(|(label, n)| (label.clone(), whole(n)))
        .collect();
    Some(Resumed {
        resumes,
        bytes: snapshot.sum("resumed_bytes_total", &[]) as u64,
    })
}

fn difference(before: Option<Resumed>, after: Option<Resumed>) -> Option<Resumed> {
    let (before, after) = (before.unwrap_or_default(), after?);
    // A gateway that was restarted meanwhile counts from zero.
    let since = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now);
    let moved = |(label, n): (&String, &u64)| {
        (
            label.clone(),
            since(*n, before.resumes.get(label).copied().unwrap_or(0)),
        )
    };
    let resumes = after
        .resumes
        .iter()
        .map(moved)
        .filter(|(_, n)| *n > 0)
        .collect();
    Some(Resumed {
        resumes,
        bytes: since(after.bytes, before.bytes),
    })
}
