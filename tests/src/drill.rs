//! Drills: a whole gateway under a load that it cannot serve, measured by what its clients were told.
//!
//! Owns the offered load and the sums. Must not judge: bounds stand in the test and in the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::app::{App, Conn};
use crate::client::H1;
use crate::wait;
use crate::world::{World, setup};

/// An overload to try.
#[derive(Clone, Copy, Debug)]
pub struct Overload {
    /// How long the app takes for one request.
    pub takes: Duration,
    /// Requests that the gateway gives it at once.
    pub in_flight: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// How much more than its capacity is offered.
    pub factor: u32,
    /// How long each of the two measurements lasts.
    pub lasts: Duration,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Answers a second with exactly as many clients as places.
    pub capacity: f64,
    /// Requests a second that were sent under overload.
    pub offered: f64,
    /// Answers a second under overload.
    pub goodput: f64,
    /// Requests that were refused without a wait.
    pub refused: usize,
    /// Requests that waited in vain.
    pub timed_out: usize,
    /// Anything else; there should be none.
    pub other: usize,
    /// Refusals that did not say `not_delivered`.
    pub unproven: usize,
    /// Requests that the app saw, and that were answered. They must agree.
    pub seen: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// The slowest but one percent of the refusals without a wait.
    pub refusal_p99: Duration,
}

impl Outcome {
    /// Goodput as a part of capacity.
    pub fn part(&self) -> f64 {
        self.goodput / self.capacity.max(1.0)
    }
}

#[derive(Default)]
struct Sums {
    answered: u64,
    refused: Vec<Duration>,
    timed_out: usize,
    other: usize,
    unproven: usize,
    sent: usize,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.refused.extend(other.refused);
        self.timed_out += other.timed_out;
        self.other += other.other;
        self.unproven += other.unproven;
        self.sent += other.sent;
    }
}

/// Runs it: first the capacity, then the overload.
pub async fn overload(plan: Overload) -> Outcome {
    let seen = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&seen);
    let script = move |conn: Conn| slow(conn, plan.takes, Arc::clone(&counter));
    let app = App::start(script).await;
    let limits = format!("in_flight = {}\nqueue = {}", plan.in_flight, plan.queue);
    let world = setup().app("demo", &limits).start().await;
    let _agent = world.join("a1", &[("demo", &app.target())]).await;
    let first = load(&world, plan.in_flight, None, plan.lasts).await;
    let capacity = first.answered as f64 / plan.lasts.as_secs_f64();
    let rate = capacity * f64::from(plan.factor);
    // As many as can be under way, and some that find no place.
    let clients = plan.in_flight + plan.queue + 100;
    let second = load(&world, clients, Some(rate), plan.lasts).await;
    let mut refused = second.refused;
    refused.sort_unstable();
    let p99 = refused.get(refused.len() * 99 / 100).copied();
    Outcome {
        capacity,
        offered: second.sent as f64 / plan.lasts.as_secs_f64(),
        goodput: second.answered as f64 / plan.lasts.as_secs_f64(),
        refused: refused.len(),
        timed_out: second.timed_out,
        other: first.other + second.other,
        unproven: second.unproven,
        seen: seen.load(Ordering::Relaxed),
        answered: first.answered + second.answered,
        refusal_p99: p99.unwrap_or_default(),
    }
}

/// An app that works on one request of a connection at a time.
async fn slow(mut conn: Conn, takes: Duration, seen: Arc<AtomicU64>) {
    while conn.read_head().await.is_some() {
        seen.fetch_add(1, Ordering::Relaxed);
        wait::dawdle(takes).await;
        if !conn.answer("done").await {
            return;
        }
    }
}

/// `clients` connections, each with one request at a time; with a `rate` the requests of all leave on
/// a common schedule, as far as a client is free.
async fn load(world: &World, clients: usize, rate: Option<f64>, lasts: Duration) -> Sums {
    let begun = Instant::now();
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (public, host) = (world.places.public, world.host("demo"));
        let next = Arc::clone(&next);
        tasks.spawn(async move {
            let mut sums = Sums::default();
            let mut client = H1::connect(public).await;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let due = rate.map_or(Duration::ZERO, |rate| {
                    Duration::from_secs_f64(number as f64 / rate)
                });
                if due.max(begun.elapsed()) >= lasts {
                    return sums;
                }
                wait::dawdle(due.saturating_sub(begun.elapsed())).await;
                sums.sent += 1;
                let sent = Instant::now();
                let answer = client.ask("GET", "/", &host, &[], b"").await;
                let code = answer.header("bridgehead-code");
                let proven = answer.header("bridgehead-delivery") == Some("not_delivered");
                sums.unproven += usize::from(code.is_some() && !proven);
                match (answer.status, code) {
                    (200, None) => sums.answered += 1,
                    (503, Some("QUEUE_OVERFLOW")) => sums.refused.push(sent.elapsed()),
                    (504, Some("QUEUE_TIMEOUT")) => sums.timed_out += 1,
                    _ => sums.other += 1,
                }
            }
        });
    }
    let mut all = Sums::default();
    while let Some(sums) = tasks.join_next().await {
        all.add(sums.expect("no client panics"));
    }
    all
}
