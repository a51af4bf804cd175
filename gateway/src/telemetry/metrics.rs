//! Every metric of the gateway, in one file: names, types, labels.
//!
//! Owns its registry (never the crate's global one). It must not know where a number comes from:
//! callers count through typed values, so no free text becomes a label. Invariants: gauges move
//! only through guards and return to zero; the number of series is bounded ([`MAX_APPS`] apps, the
//! rest share one name); the path of a successful exchange looks up no label by its text.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use super::labels::{
    AgentLimit, CarrierKind, ConnectionKind, HandshakeResult, LedgerState, Listener, MemoryKind,
    ResumeResult, StreamState, TunnelState,
};
use super::memory;

mod app;
mod listener;
mod process;

pub use self::app::AppMetrics;
use self::app::PerApp;
pub use self::listener::ListenerMetrics;
pub use self::process::ProcessMetrics;

/// Apps that get series of their own. Names can come from agents (inside their pattern), so a
/// hostile agent must not be able to make more.
pub const MAX_APPS: usize = 1000;
/// As many of them may have names that agents brought; the rest is kept for configured apps.
pub const MAX_BROUGHT: usize = 750;

/// App label of exchanges that never found a route. No app can have this name.
pub const UNROUTED: &str = "_unrouted";
/// App label of requests to the gateway's own hosts.
pub const OWN: &str = "_own";
/// App label shared by apps beyond [`MAX_APPS`].
pub const OTHER: &str = "_other";

/// Upper bounds in seconds: from a local app's millisecond to past the default windows (15, 30 s).
const BUCKETS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0,
];

/// Upper bounds in seconds: from counts that came a little late to a report after ten minutes.
const LATE_BUCKETS: &[f64] = &[
    0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// Who gave an app its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The configuration.
    ByOperator,
    /// An agent, inside a pattern.
    ByAgent,
}

/// Apps with series of their own, by name.
type KnownApps = BTreeMap<Box<str>, (Named, Arc<AppMetrics>)>;

/// All metrics of one gateway.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    per_app: PerApp,
    process: ProcessMetrics,
    agents: IntGaugeVec,
    apps: Mutex<KnownApps>,
    tunnels: Vec<IntGauge>,
    carriers: Vec<IntGauge>,
    streams: Vec<IntGauge>,
    handshakes: Vec<IntCounter>,
    agent_limits: Vec<IntCounter>,
    resumes: Vec<IntCounter>,
    resumed_bytes: IntCounter,
    starved: IntCounter,
    connections: Vec<IntGauge>,
    listeners: Vec<ListenerMetrics>,
    memory: Vec<IntGauge>,
    access_dropped: IntCounter,
    ledger: Vec<IntGauge>,
    ledger_resolved: Vec<IntCounter>,
    ledger_seconds: Vec<Histogram>,
}

impl Metrics {
    /// Register every metric in a fresh registry.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let families = Families(Registry::new());
        let per_app = PerApp::register(&families);
        let process = ProcessMetrics::register(&families);
        let agents = families.gauges(
            "app_agents",
            "Agents that take requests of the app",
            &["app"],
        );
        let build = families.gauges(
            "build_info",
            "Always 1; the labels say what runs",
            &["version"],
        );
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let tunnels = families.gauges("tunnels", "Tunnels by state", &["state"]);
        let carriers = families.gauges("carriers", "Connections that carry tunnels", &["kind"]);
        let streams = families.gauges("streams", "Streams in all tunnels by state", &["state"]);
        let handshakes = families.counters(
            "handshakes_total",
            "Attempts of agents to join",
            &["result"],
        );
        let agent_limits = families.counters(
            "agent_limits_total",
            "Times that agents met a bound that their token shares with others",
            &["limit"],
        );
        let resumes = families.counters(
            "resumes_total",
            "Waits of tunnels for their next connection",
            &["result"],
        );
        let resumed_bytes = families.counters(
            "resumed_bytes_total",
            "Bytes sent to agents a second time",
            &[],
        );
        let starved = families.counters(
            "starved_streams_total",
            "Streams given up because they held a tunnel's memory without progress",
            &[],
        );
        let connections = families.gauges("connections", "Accepted connections", &["kind"]);
        let listeners = ListenerMetrics::register(&families);
        let memory = families.gauges("memory_bytes", "Memory of the process", &["kind"]);
        let access_dropped = families.counters(
            "access_log_dropped_total",
            "Access lines lost because the log's reader was too slow",
            &[],
        );
        let ledger = families.gauges(
            "ledger_entries",
            "Exchanges in the outcome ledger by state",
            &["state"],
        );
        let ledger_resolved = families.counters(
            "ledger_resolved_total",
            "Exchanges whose uncertain end became known, or was forgotten unknown",
            &["state"],
        );
        let ledger_seconds = families.histograms_with(
            "ledger_resolve_seconds",
            "Time from an uncertain end until it became known",
            &["state"],
            LATE_BUCKETS,
        );
        Arc::new(Self {
            registry: families.0,
            per_app,
            process,
            agents,
            apps: Mutex::default(),
            tunnels: each(TunnelState::ALL, |s| {
                tunnels.with_label_values(&[s.as_str()])
            }),
            carriers: each(CarrierKind::ALL, |k| {
                carriers.with_label_values(&[k.as_str()])
            }),
            streams: each(StreamState::ALL, |s| {
                streams.with_label_values(&[s.as_str()])
            }),
            handshakes: each(HandshakeResult::ALL, |r| {
                handshakes.with_label_values(&[r.as_str()])
            }),
            agent_limits: each(AgentLimit::ALL, |l| {
                agent_limits.with_label_values(&[l.as_str()])
            }),
            resumes: each(ResumeResult::ALL, |r| {
                resumes.with_label_values(&[r.as_str()])
            }),
            resumed_bytes: resumed_bytes.with_label_values::<&str>(&[]),
            starved: starved.with_label_values::<&str>(&[]),
            connections: each(ConnectionKind::ALL, |k| {
                connections.with_label_values(&[k.as_str()])
            }),
            listeners,
            memory: each(MemoryKind::ALL, |k| memory.with_label_values(&[k.as_str()])),
            access_dropped: access_dropped.with_label_values::<&str>(&[]),
            ledger: each(LedgerState::ALL, |s| {
                ledger.with_label_values(&[s.as_str()])
            }),
            ledger_resolved: each(LedgerState::RESOLVED, |s| {
                ledger_resolved.with_label_values(&[s.as_str()])
            }),
            ledger_seconds: each(LedgerState::KNOWN, |s| {
                ledger_seconds.with_label_values(&[s.as_str()])
            }),
        })
    }

    /// The ready counters of one app. Callers keep the result beside the route; asking again gives
    /// the same one. `name` is an app's name or one of the names of this file that begin with `_`.
    #[must_use]
    pub fn app(&self, name: &str) -> Arc<AppMetrics> {
        self.app_named(name, Named::ByOperator)
    }

    /// The same for an app whose name somebody else gave.
    #[must_use]
    pub fn app_named(&self, name: &str, named: Named) -> Arc<AppMetrics> {
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = apps.get(name) {
            return Arc::clone(known);
        }
        let brought = apps.values().filter(|(by, _)| *by == Named::ByAgent);
        let full = match named {
            _ if name.starts_with('_') => false,
            Named::ByOperator => apps.len() >= MAX_APPS,
            Named::ByAgent => apps.len() >= MAX_APPS || brought.count() >= MAX_BROUGHT,
        };
        let label = if full { OTHER } else { name };
        if let Some((_, known)) = apps.get(label) {
            return Arc::clone(known);
        }
        let made = Arc::new(AppMetrics::resolve(label, &self.per_app));
        let named = if full { Named::ByOperator } else { named };
        apps.insert(label.into(), (named, Arc::clone(&made)));
        made
    }

    /// Removes the series of an app that has no route any more. Exchanges of it that still run count
    /// nothing from here on; an app that comes back begins at zero.
    pub fn forget(&self, name: &str) {
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, gone)) = apps.remove(name) {
            gone.forget();
        }
    }

    /// What is told of the process itself.
    #[must_use]
    pub fn process(&self) -> &ProcessMetrics {
        &self.process
    }

    /// Set how many agents take requests of each app; read at a scrape. An app that is not named is
    /// forgotten.
    pub fn set_agents<'a>(&self, now: impl Iterator<Item = (&'a str, usize)>) {
        self.agents.reset();
        for (place, (app, count)) in now.enumerate() {
            let label = if place < MAX_APPS { app } else { OTHER };
            let gauge = self.agents.with_label_values(&[label]);
            gauge.add(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Count a tunnel in `state` until the guard is dropped.
    pub fn tunnel(&self, state: TunnelState) -> GaugeGuard {
        GaugeGuard::raise(&self.tunnels[state as usize])
    }

    /// Count a carrier until the guard is dropped.
    pub fn carrier(&self, kind: CarrierKind) -> GaugeGuard {
        GaugeGuard::raise(&self.carriers[kind as usize])
    }

    /// Set how many streams all tunnels have in `state`: counted by their cores, read at a scrape.
    pub fn set_streams(&self, state: StreamState, count: usize) {
        self.streams[state as usize].set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Count an accepted connection until the guard is dropped.
    pub fn connection(&self, kind: ConnectionKind) -> GaugeGuard {
        GaugeGuard::raise(&self.connections[kind as usize])
    }

    /// The counters of a kind of listener.
    #[must_use]
    pub fn listener(&self, listener: Listener) -> ListenerMetrics {
        self.listeners[listener as usize].clone()
    }

    /// Count the end of an agent's attempt to join.
    pub fn handshake(&self, result: HandshakeResult) {
        self.handshakes[result as usize].inc();
    }

    /// Count that an agent met a bound.
    pub fn agent_limit(&self, limit: AgentLimit) {
        self.agent_limits[limit as usize].inc();
    }

    /// Count the end of a tunnel's wait for its next carrier.
    pub fn resumed(&self, result: ResumeResult) {
        self.resumes[result as usize].inc();
    }

    /// Count bytes that had to be sent a second time.
    pub fn resent(&self, bytes: u64) {
        self.resumed_bytes.inc_by(bytes);
    }

    /// Count streams that were given up because they held memory without progress.
    pub fn starved(&self, streams: u64) {
        self.starved.inc_by(streams);
    }

    /// Say how much memory the gateway may use.
    pub fn set_memory_budget(&self, bytes: u64) {
        self.memory[MemoryKind::Budget as usize].set(clamp(bytes));
    }

    /// Set how many exchanges of the ledger are in `state`; read at a scrape.
    pub fn set_ledger(&self, state: LedgerState, count: usize) {
        self.ledger[state as usize].set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Count the end of an uncertainty: it became known after a while, or was forgotten unknown.
    pub fn ledger_resolved(&self, state: LedgerState, after: Option<Duration>) {
        let place = |all: &[LedgerState]| all.iter().position(|known| *known == state);
        if let Some(place) = place(LedgerState::RESOLVED) {
            self.ledger_resolved[place].inc();
        }
        if let (Some(place), Some(after)) = (place(LedgerState::KNOWN), after) {
            self.ledger_seconds[place].observe(after.as_secs_f64());
        }
    }

    /// Set how many bytes running exchanges hold: asked of their streams, read at a scrape.
    pub fn set_held_bytes(&self, bytes: u64) {
        self.memory[MemoryKind::Streams as usize].set(clamp(bytes));
    }

    /// Count access lines that could not be written.
    pub(super) fn access_lines_dropped(&self, lines: u64) {
        self.access_dropped.inc_by(lines);
    }

    /// Everything in the Prometheus text format.
    ///
    /// # Errors
    /// Only if the encoder finds a family inconsistent, which would be a fault of this file.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        self.process.look();
        if let Some(bytes) = memory::resident() {
            self.memory[MemoryKind::Resident as usize].set(clamp(bytes));
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// One unit of a gauge, taken back by its drop.
#[derive(Debug)]
#[must_use = "the gauge falls when this is dropped"]
pub struct GaugeGuard(IntGauge);

impl GaugeGuard {
    fn raise(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Makes and registers families under the common prefix. A failure means that two families of this
/// file share a name or a name is malformed; the tests of this file build them all.
struct Families(Registry);

impl Families {
    fn add<C: prometheus::core::Collector + Clone + 'static>(
        &self,
        family: Result<C, prometheus::Error>,
    ) -> C {
        let family = family.expect("names and labels in this file are well formed");
        self.0
            .register(Box::new(family.clone()))
            .expect("names in this file are unique");
        family
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(options(name, help), labels))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.add(IntGaugeVec::new(options(name, help), labels))
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
        self.histograms_with(name, help, labels, BUCKETS)
    }

    fn histograms_with(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> HistogramVec {
        let options = HistogramOpts::from(options(name, help)).buckets(buckets.to_vec());
        self.add(HistogramVec::new(options, labels))
    }
}

fn options(name: &str, help: &str) -> Opts {
    Opts::new(format!("bridgehead_{name}"), help)
}

/// One metric per label value, at the place of its discriminant.
fn each<L: Copy, M>(all: &[L], make: impl Fn(L) -> M) -> Vec<M> {
    all.iter().map(|label| make(*label)).collect()
}

fn clamp(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use bridgehead_protocol::verdict::{Code, Delivery, Reason};

    use super::*;
    use crate::telemetry::labels::{Direction, Outcome};

    fn value(metrics: &Metrics, line: &str) -> Option<String> {
        let text = metrics.render().expect("consistent families");
        text.lines()
            .find_map(|l| l.strip_prefix(line)?.strip_prefix(' '))
            .map(str::to_owned)
    }

    #[test]
    fn a_gauge_falls_when_its_guard_is_dropped() {
        let metrics = Metrics::new();
        let app = metrics.app("demo");
        let line = r#"bridgehead_in_flight{app="demo"}"#;
        let guards = (app.in_flight(), app.in_flight());
        assert_eq!(value(&metrics, line).as_deref(), Some("2"));
        drop(guards);
        assert_eq!(value(&metrics, line).as_deref(), Some("0"));
    }

    #[test]
    fn the_same_app_has_one_set_of_counters() {
        let metrics = Metrics::new();
        assert!(Arc::ptr_eq(&metrics.app("demo"), &metrics.app("demo")));
    }

    #[test]
    fn apps_beyond_the_bound_share_one_name() {
        let metrics = Metrics::new();
        for n in 0..MAX_APPS + 50 {
            metrics.app(&format!("shop-{n}")).bytes(Direction::In, 1);
        }
        let other = r#"bridgehead_bytes_total{app="_other",direction="in"}"#;
        assert_eq!(value(&metrics, other).as_deref(), Some("50"));
        assert!(!metrics.render().expect("consistent").contains("shop-1049"));
    }

    #[test]
    fn names_of_agents_leave_room_for_those_of_the_operator() {
        let metrics = Metrics::new();
        for n in 0..MAX_APPS {
            drop(metrics.app_named(&format!("brought-{n}"), Named::ByAgent));
        }
        metrics.app("mine").bytes(Direction::In, 7);
        let mine = r#"bridgehead_bytes_total{app="mine",direction="in"}"#;
        assert_eq!(value(&metrics, mine).as_deref(), Some("7"));
        let text = metrics.render().expect("consistent");
        assert!(text.contains("brought-749\"") && !text.contains("brought-750\""));
    }

    #[test]
    fn an_app_that_is_forgotten_leaves_no_series_and_makes_room() {
        let metrics = Metrics::new();
        for n in 0..MAX_BROUGHT {
            drop(metrics.app_named(&format!("brought-{n}"), Named::ByAgent));
        }
        let gone = metrics.app_named("brought-7", Named::ByAgent);
        let used = |app: &AppMetrics| {
            app.ended(
                Outcome::Refused,
                Some(Delivery::NotDelivered),
                Some(Code::RateLimited),
            );
            app.ended(Outcome::Answered, Some(Delivery::Delivered), None);
            app.refused(Code::RateLimited, Reason::Rate);
            app.retried(Reason::ConnectRefused);
        };
        used(&gone);
        assert!(
            metrics
                .render()
                .expect("consistent")
                .contains("brought-7\"")
        );
        metrics.forget("brought-7");
        used(&gone);
        assert!(
            !metrics
                .render()
                .expect("consistent")
                .contains("brought-7\"")
        );
        let next = metrics.app_named("next", Named::ByAgent);
        next.bytes(Direction::In, 1);
        let line = r#"bridgehead_bytes_total{app="next",direction="in"}"#;
        assert_eq!(value(&metrics, line).as_deref(), Some("1"));
    }

    #[test]
    fn an_app_that_is_gone_has_no_agents_any_more_and_those_beyond_the_bound_share_a_name() {
        let metrics = Metrics::new();
        metrics.set_agents([("old", 1)].into_iter());
        let names: Vec<String> = (0..MAX_APPS + 2).map(|n| format!("shop-{n}")).collect();
        metrics.set_agents(names.iter().map(|name| (name.as_str(), 2)));
        let line = |app: &str| format!("bridgehead_app_agents{{app=\"{app}\"}}");
        assert_eq!(value(&metrics, &line("old")), None);
        assert_eq!(value(&metrics, &line("shop-0")).as_deref(), Some("2"));
        assert_eq!(value(&metrics, &line("_other")).as_deref(), Some("4"));
    }

    #[test]
    fn a_reload_that_failed_leaves_the_time_of_the_last_that_did_not() {
        let metrics = Metrics::new();
        let at = |seconds| std::time::UNIX_EPOCH + Duration::from_secs(seconds);
        let process = metrics.process();
        process.started(at(100));
        process.reload_succeeded(at(200));
        process.reload_failed();
        for (name, told) in [
            ("bridgehead_start_time_seconds", "100"),
            ("bridgehead_reload_timestamp_seconds", "200"),
            ("bridgehead_reload_success", "0"),
        ] {
            assert_eq!(value(&metrics, name).as_deref(), Some(told), "{name}");
        }
    }

    #[test]
    fn the_ready_counter_and_the_looked_up_one_are_the_same_series() {
        let metrics = Metrics::new();
        let app = metrics.app("demo");
        app.ended(Outcome::Answered, Some(Delivery::Delivered), None);
        app.ended(Outcome::ClientLeft, None, None);
        let ok = r#"bridgehead_exchanges_total{app="demo",code="",delivery="delivered",outcome="answered"}"#;
        let left =
            r#"bridgehead_exchanges_total{app="demo",code="",delivery="",outcome="client_left"}"#;
        assert_eq!(value(&metrics, ok).as_deref(), Some("1"));
        assert_eq!(value(&metrics, left).as_deref(), Some("1"));
    }
}
