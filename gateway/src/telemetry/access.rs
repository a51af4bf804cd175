//! One exchange as telemetry sees it: filled by the corridor, told exactly once.
//!
//! [`ExchangeGuard`] travels with the exchange (inside the answer's body once there is one); its
//! drop is the only place that writes an access line and counts the exchange, so every exit counts
//! once. It decides nothing: verdicts come in ready. Invariant: what may hold secrets (query,
//! fragment, header values) is never stored here, so nothing downstream can leak it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::{Code, Delivery, Judgement, Reason, Stage, WindowKind};
use http::Method;
use uuid::Uuid;

use super::labels::{Direction, HoldResult, Outcome, Phase, SharedPlaces};
use super::line;
use super::metrics::{self, AppMetrics, GaugeGuard, Metrics};
use super::remembered::Remembered;
use super::writer::AccessLog;
use crate::admit::{Ending, Limit, Permit};
use crate::clock::Clock;
use crate::error::Failure;
use crate::request::front::ClientProtocol;

/// Bytes of a path (or method, or host) that are kept; bounds what 10,000 remembered exchanges weigh.
const MAX_TEXT: usize = 512;

/// Where finished exchanges go. One per process, shared by all workers.
#[derive(Debug)]
pub struct Sinks {
    metrics: Arc<Metrics>,
    clock: Clock,
    log: Option<AccessLog>,
    remembered: Remembered,
    unrouted: Arc<AppMetrics>,
    own: Arc<AppMetrics>,
    /// The gateway cuts what is left.
    ending: AtomicBool,
}

impl Sinks {
    /// Sinks that count in `metrics`, write to `log` (if any), and remember recent exchanges.
    #[must_use]
    pub fn new(clock: Clock, metrics: Arc<Metrics>, log: Option<AccessLog>) -> Arc<Self> {
        Arc::new(Self {
            unrouted: metrics.app(metrics::UNROUTED),
            own: metrics.app(metrics::OWN),
            metrics,
            clock,
            log,
            remembered: Remembered::new(),
            ending: AtomicBool::new(false),
        })
    }

    /// From here on an exchange that ends without an outcome was cut by the gateway.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// The metrics.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// What is known of an exchange, as a JSON object: the fields of its access line and `live`.
    #[must_use]
    pub fn exchange(&self, id: Uuid) -> Option<String> {
        let exchange = self.remembered.find(id)?;
        Some(line::view(&exchange, self.clock))
    }

    /// Wait until every line so far is written, at most `limit`; false if some are still queued.
    /// Blocks the thread: for the end of the process, not for the data path.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        self.log.as_ref().is_none_or(|log| log.flush(limit))
    }
}

/// What was spoken with the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP of some version.
    Http(ClientProtocol),
    /// Bytes of a TCP app.
    Tcp,
}

impl Protocol {
    /// The word in access lines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http(ClientProtocol::Http10) => "http/1.0",
            Self::Http(ClientProtocol::Http11) => "http/1.1",
            Self::Http(ClientProtocol::Http2) => "http/2",
            Self::Tcp => "tcp",
        }
    }
}

/// Which kind of connection to the app an exchange used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppConn {
    /// Made for this exchange.
    Fresh,
    /// Kept from an earlier exchange.
    Reused,
}

impl AppConn {
    /// The word in access lines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Reused => "reused",
        }
    }
}

/// An exchange, alive or finished. The guard writes, admin and the log's thread read.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) id: Uuid,
    pub(super) started: Moment,
    pub(super) client: IpAddr,
    pub(super) protocol: Protocol,
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    facts: Mutex<Facts>,
}

impl Exchange {
    pub(super) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What changes in the life of an exchange. Spans are measured from its start.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) app: Option<Arc<str>>,
    pub(super) method: Option<Method>,
    pub(super) host: Option<Box<str>>,
    pub(super) path: Option<Box<str>>,
    pub(super) status: Option<u16>,
    pub(super) code: Option<Code>,
    pub(super) delivery: Option<Delivery>,
    pub(super) reason: Option<Reason>,
    pub(super) stage: Option<Stage>,
    pub(super) window: Option<WindowKind>,
    pub(super) agent: Option<Arc<str>>,
    pub(super) tunnel: Option<Arc<str>>,
    pub(super) app_conn: Option<AppConn>,
    pub(super) admit: Option<Duration>,
    pub(super) open: Option<Duration>,
    pub(super) first: Option<Duration>,
    /// Set exactly when the exchange has ended.
    pub(super) total: Option<Duration>,
    pub(super) held: Duration,
    pub(super) retries: u32,
    pub(super) resumed: u32,
    pub(super) outcome: Option<Outcome>,
}

impl Facts {
    fn take_judgement(&mut self, judgement: Judgement) {
        self.delivery = Some(judgement.delivery);
        self.stage = Some(judgement.stage);
    }

    fn take_failure(&mut self, failure: &Failure) {
        self.code = Some(failure.code);
        self.reason = Some(failure.reason);
        self.delivery = Some(failure.delivery);
        self.stage = Some(failure.stage);
        self.window = failure.window;
    }
}

/// The one account of one exchange. Dropped without an outcome it says that the client left, or, when
/// the gateway ends, that it was cut.
#[derive(Debug)]
#[must_use = "the exchange ends when this is dropped"]
pub struct ExchangeGuard {
    sinks: Arc<Sinks>,
    exchange: Arc<Exchange>,
    app: Arc<AppMetrics>,
    load: Option<GaugeGuard>,
    permit: Option<Permit>,
    held: Option<GaugeGuard>,
    held_since: Option<Moment>,
    handed_over: bool,
}

impl ExchangeGuard {
    /// Begin the account of request `id`, whose head arrived at `started`.
    pub fn new(
        sinks: Arc<Sinks>,
        id: Uuid,
        started: Moment,
        client: IpAddr,
        protocol: Protocol,
    ) -> Self {
        let exchange = Arc::new(Exchange {
            id,
            started,
            client,
            protocol,
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            facts: Mutex::default(),
        });
        sinks.remembered.begin(&exchange);
        Self {
            app: Arc::clone(&sinks.unrouted),
            sinks,
            exchange,
            load: None,
            permit: None,
            held: None,
            held_since: None,
            handed_over: false,
        }
    }

    /// The request's id.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.exchange.id
    }

    /// What was asked. Everything of `path` from the first `?` or `#` on is thrown away here.
    pub fn request(&mut self, method: &Method, host: &str, path: &str) {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let mut facts = self.exchange.facts();
        // An extension method is as long as its sender likes.
        facts.method = (method.as_str().len() <= MAX_TEXT).then(|| method.clone());
        facts.host = Some(kept(host));
        facts.path = Some(kept(path));
    }

    /// The route that was found.
    pub fn app(&mut self, name: &Arc<str>, metrics: &Arc<AppMetrics>) {
        self.exchange.facts().app = Some(Arc::clone(name));
        self.app = Arc::clone(metrics);
    }

    /// The request is for the gateway itself.
    pub fn own(&mut self) {
        self.app = Arc::clone(&self.sinks.own);
    }

    /// Admission said yes. The permit stays here until the exchange ends.
    pub fn admitted(&mut self, now: Moment, permit: Permit) {
        self.exchange.facts().admit = Some(now - self.exchange.started);
        self.permit = Some(permit);
    }

    /// Gives the permit out for a wait; [`ExchangeGuard::readmitted`] brings it back.
    pub fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// The permit is back.
    pub fn readmitted(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    /// A tunnel was picked; the last one counts.
    pub fn tunnel(&mut self, agent: &Arc<str>, tunnel: &Arc<str>) {
        let mut facts = self.exchange.facts();
        facts.agent = Some(Arc::clone(agent));
        facts.tunnel = Some(Arc::clone(tunnel));
    }

    /// The agent said that the app's connection stands, and of which kind it is. A hold goes on:
    /// what only accepts connections for an app that is away closes them again.
    pub fn opened(&mut self, now: Moment, kind: AppConn) {
        let mut facts = self.exchange.facts();
        facts.open = Some(now - self.exchange.started);
        facts.app_conn = Some(kind);
    }

    /// From here on bytes of the request may reach the app.
    pub fn handed_over(&mut self) {
        self.handed_over = true;
    }

    /// What may be said of an exchange whose evidence is lost.
    #[must_use]
    pub fn judgement(&self) -> Judgement {
        self.judge(&self.exchange.facts())
    }

    fn judge(&self, facts: &Facts) -> Judgement {
        if facts.first.is_some() {
            Judgement {
                delivery: Delivery::Delivered,
                stage: Stage::AnswerBegun,
            }
        } else if self.handed_over {
            Judgement {
                delivery: Delivery::Unknown,
                stage: Stage::None,
            }
        } else {
            Judgement::NOT_DELIVERED
        }
    }

    /// The first byte of the app's answer is here: the request was delivered.
    pub fn first_byte(&mut self, now: Moment) {
        let mut facts = self.exchange.facts();
        facts.first.get_or_insert(now - self.exchange.started);
        facts.delivery = Some(Delivery::Delivered);
    }

    /// Status of the final head that goes to the client.
    pub fn status(&mut self, status: u16) {
        self.exchange.facts().status = Some(status);
    }

    /// Body bytes taken from the client.
    pub fn bytes_in(&mut self, count: u64) {
        self.exchange.bytes_in.fetch_add(count, Ordering::Relaxed);
        self.app.bytes(Direction::In, count);
    }

    /// Body bytes given to the client.
    pub fn bytes_out(&mut self, count: u64) {
        self.exchange.bytes_out.fetch_add(count, Ordering::Relaxed);
        self.app.bytes(Direction::Out, count);
    }

    /// From here on the exchange occupies the app; replaces `long_lived`.
    pub fn enter_in_flight(&mut self) {
        self.load = None;
        self.load = Some(self.app.in_flight());
    }

    /// From here on the exchange is an upgrade, a stream or a pipe; replaces `in_flight`, unless all
    /// places for long-lived ones are taken.
    pub fn enter_long_lived(&mut self) {
        if self.permit.as_mut().is_none_or(Permit::become_long_lived) {
            self.load = None;
            self.load = Some(self.app.long_lived());
        }
    }

    /// The exchange waits for its app to come back; while it does it is not in flight.
    ///
    /// # Errors
    /// The limit by which it may not wait; it has the place that it had.
    pub fn begin_hold(&mut self, now: Moment) -> Result<(), Limit> {
        let held = self.permit.as_mut().map_or(Ok(()), Permit::hold);
        if let Err(limit) = held {
            self.app.hold_ended(HoldResult::Refused);
            if let Limit::Share(_) = limit {
                self.app.share_reached(SharedPlaces::Queue);
            }
            return held;
        }
        self.load = None;
        self.held.get_or_insert_with(|| self.app.held());
        self.held_since.get_or_insert(now);
        held
    }

    /// The wait is over. Without a hold this does nothing.
    pub fn end_hold(&mut self, now: Moment, result: HoldResult) {
        if let Some(since) = self.held_since.take() {
            self.held = None;
            if let Some(permit) = &mut self.permit {
                permit.end_hold();
            }
            self.exchange.facts().held += now - since;
            self.app.hold_ended(result);
        }
    }

    /// The gateway tries again after a try that failed for `reason`.
    pub fn retried(&mut self, reason: Reason) {
        self.exchange.facts().retries += 1;
        self.app.retried(reason);
    }

    /// The exchange survived the loss of its carrier.
    pub fn resumed(&mut self, times: u32) {
        self.exchange.facts().resumed += times;
    }

    /// The client is gone and told nothing; this is how far the request got.
    pub fn left(&mut self, judgement: Judgement) {
        let mut facts = self.exchange.facts();
        facts.take_judgement(judgement);
        facts.outcome = Some(Outcome::ClientLeft);
    }

    /// The answer went out to its end.
    pub fn answered(&mut self) {
        self.exchange.facts().outcome = Some(Outcome::Answered);
    }

    /// The gateway answers in the app's place. Said when the answer is made: it stays the outcome
    /// even if the client does not wait for it.
    pub fn failed(&mut self, failure: &Failure) {
        let mut facts = self.exchange.facts();
        facts.take_failure(failure);
        facts.status = Some(failure.http_status());
        facts.outcome = Some(match failure.delivery {
            Delivery::NotDelivered => Outcome::Refused,
            Delivery::Unknown | Delivery::Delivered => Outcome::Failed,
        });
    }

    /// The client is turned away without an answer, for there is no way to give one.
    pub fn turned_away(&mut self, failure: &Failure) {
        let mut facts = self.exchange.facts();
        facts.take_failure(failure);
        facts.outcome = Some(Outcome::Refused);
    }

    /// Why an exchange ends of which nothing was said.
    fn cut_off(&self, facts: &mut Facts) -> Outcome {
        let (code, reason) = match std::thread::panicking() {
            true => (None, Reason::Internal),
            false if self.sinks.ending.load(Ordering::Acquire) => {
                (Some(Code::ServiceUnavailable), Reason::Draining)
            }
            false => return Outcome::ClientLeft,
        };
        (facts.code, facts.reason) = (code, Some(reason));
        facts.take_judgement(self.judge(facts));
        Outcome::Aborted
    }

    /// The app's answer is cut short, visibly; the status stays the one that went out.
    pub fn aborted(&mut self, failure: &Failure) {
        let mut facts = self.exchange.facts();
        facts.take_failure(failure);
        facts.outcome = Some(Outcome::Aborted);
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        let now = self.sinks.clock.now();
        self.end_hold(now, HoldResult::ClientLeft);
        self.load = None;
        let mut facts = self.exchange.facts();
        let outcome = match facts.outcome {
            Some(outcome) => outcome,
            None => self.cut_off(&mut facts),
        };
        facts.outcome = Some(outcome);
        facts.total = Some(now - self.exchange.started);
        count(&self.app, outcome, &facts);
        let ending = ending(outcome, &facts);
        drop(facts);
        if let (Some(permit), Some(ending)) = (&mut self.permit, ending) {
            permit.ended(now, ending);
        }
        self.permit = None;
        self.sinks.remembered.finish(self.exchange.id);
        if let Some(log) = &self.sinks.log {
            log.write(Arc::clone(&self.exchange));
        }
    }
}

/// What limits learn from the end; nothing from a client that left, or from a refusal that says
/// nothing about how the app treats requests.
fn ending(outcome: Outcome, facts: &Facts) -> Option<Ending> {
    match outcome {
        Outcome::Answered => facts.status.map(Ending::Answered),
        Outcome::Failed | Outcome::Aborted => facts
            .code
            .zip(facts.reason)
            .map(|(code, reason)| Ending::Failed(code, reason)),
        Outcome::Refused => facts
            .code
            .zip(facts.reason)
            .filter(|(code, _)| *code == Code::BhAppTimeout)
            .map(|(code, reason)| Ending::Failed(code, reason)),
        Outcome::ClientLeft => None,
    }
}

fn count(app: &AppMetrics, outcome: Outcome, facts: &Facts) {
    app.ended(outcome, facts.delivery, facts.code);
    if let (Outcome::Refused, Some(code), Some(reason)) = (outcome, facts.code, facts.reason) {
        app.refused(code, reason);
    }
    if let Some(window) = facts.window {
        app.window_fired(window);
    }
    let phases = [
        (Phase::Admit, facts.admit),
        (Phase::Open, facts.open),
        (Phase::FirstByte, facts.first),
        (Phase::Total, facts.total),
    ];
    for (phase, span) in phases {
        if let Some(span) = span {
            app.phase(phase, span.as_secs_f64());
        }
    }
}

/// The part of `text` that is stored.
fn kept(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(MAX_TEXT)].into()
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
