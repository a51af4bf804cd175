//! The thread that writes access lines, and the bounded queue in front of it.
//!
//! Owns the destination. The data path only appends a pointer under a short lock and never waits:
//! when the reader of the log is too slow, lines are lost, counted, and the loss is said in the log
//! and in a metric. Invariant: a line is written whole or not at all, in the order of endings.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::access::Exchange;
use super::line;
use super::metrics::Metrics;
use crate::clock::Clock;

/// Lines that may wait: a quarter of a second at full speed, and some 8 MiB at the very most.
const QUEUED: usize = 16_384;

/// How long the first line waits for company. One write and one wake-up of the thread then serve
/// hundreds of lines; without it every exchange pays for both.
const GATHER: Duration = Duration::from_millis(5);

/// Longest wait for the last lines when the log is dropped; a blocked pipe must not stop the end.
const LAST_FLUSH: Duration = Duration::from_secs(2);

/// How lines look, for the access log and the process log alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line.
    #[default]
    Json,
    /// For people.
    Text,
}

/// The access log: a queue and its thread.
#[derive(Debug)]
pub struct AccessLog {
    queue: Arc<Queue>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    work: Condvar,
    rest: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<Arc<Exchange>>,
    lost: u64,
    busy: bool,
    closed: bool,
}

impl AccessLog {
    /// Start the thread that writes lines of `format` to `out`.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(
        format: Format,
        out: impl Write + Send + 'static,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let writer = Writer {
            queue: Arc::clone(&queue),
            metrics: Arc::clone(&metrics),
            format,
            clock,
            out,
        };
        std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || writer.run())?;
        Ok(Self { queue, metrics })
    }

    /// Queue one finished exchange. Never waits.
    pub(super) fn write(&self, exchange: Arc<Exchange>) {
        let mut state = self.queue.lock();
        if state.lines.len() >= QUEUED {
            state.lost += 1;
            drop(state);
            self.metrics.access_lines_dropped(1);
            return;
        }
        let sleeping = state.lines.is_empty() && !state.busy;
        state.lines.push(exchange);
        drop(state);
        if sleeping {
            self.queue.work.notify_one();
        }
    }

    /// Wait until nothing is queued or half written, at most `limit`.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let state = self.queue.lock();
        let (_state, waited) = self
            .queue
            .rest
            .wait_timeout_while(state, limit, |s| s.busy || !s.lines.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out()
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.work.notify_one();
        self.flush(LAST_FLUSH);
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Writer<W> {
    queue: Arc<Queue>,
    metrics: Arc<Metrics>,
    format: Format,
    clock: Clock,
    out: W,
}

impl<W: Write> Writer<W> {
    fn run(mut self) {
        let mut batch = Vec::new();
        let mut text = Vec::new();
        while let Some(lost) = self.next(&mut batch) {
            if lost > 0 {
                tracing::warn!(
                    lines = lost,
                    "access lines lost: the log's reader is too slow"
                );
            }
            let lines = batch.len() as u64;
            for exchange in batch.drain(..) {
                line::append(&mut text, &exchange, self.format, self.clock);
            }
            if let Err(error) = self.out.write_all(&text).and_then(|()| self.out.flush()) {
                tracing::warn!(%error, lines, "access lines lost: the log cannot be written");
                self.metrics.access_lines_dropped(lines);
            }
            text.clear();
        }
    }

    /// Take everything queued, with how many lines were lost before it; `None` at the end.
    fn next(&self, batch: &mut Vec<Arc<Exchange>>) -> Option<u64> {
        let mut state = self.queue.lock();
        state.busy = false;
        if state.lines.is_empty() {
            self.queue.rest.notify_all();
        }
        let mut state = self
            .queue
            .work
            .wait_while(state, |s| s.lines.is_empty() && !s.closed)
            .unwrap_or_else(PoisonError::into_inner);
        if state.lines.is_empty() {
            return None;
        }
        // Whoever comes while the thread gathers need not wake it.
        state.busy = true;
        let (mut state, _) = self
            .queue
            .work
            .wait_timeout_while(state, GATHER, |s| !s.closed)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.lines, batch);
        Some(std::mem::take(&mut state.lost))
    }
}
