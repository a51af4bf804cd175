//! What admin sees: the registry, the routes and the counters as plain values.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bridgehead_protocol::conn::StreamCounts;
use uuid::Uuid;

use super::knobs::Budget;
use super::reload::Reloader;
use crate::admin::{
    AdminState, AdmissionInfo, AgentOfApp, AppHealth, AppInfo, GatewayInfo, Readiness, Refusals,
    Reloaded, TunnelInfo,
};
use crate::admit::{Gate, GateView};
use crate::config::{Admission, AppKind};
use crate::ledger::{self, Counts, Said};
use crate::request::Shared;
use crate::route::AppRoute;
use crate::shutdown::Shutdown;
use crate::tunnel::live::LiveTunnel;
use crate::tunnel::registry::{Health, Registry};

/// The gateway as its operator sees it.
pub(super) struct State {
    pub(super) shared: Arc<Shared>,
    pub(super) shutdown: Arc<Shutdown>,
    pub(super) since: SystemTime,
    pub(super) workers: usize,
    pub(super) public: Vec<SocketAddr>,
    pub(super) tunnel: Vec<SocketAddr>,
    pub(super) budget: Arc<Budget>,
    pub(super) reloader: Arc<Reloader>,
}

impl State {
    /// Whoever sends clients here should stop.
    fn draining(&self) -> bool {
        self.shared.shutdown.is_leaving()
    }

    fn app_info(&self, route: &AppRoute, registry: &Registry<LiveTunnel>) -> AppInfo {
        // Looking makes nothing: an app that nobody asked for has nothing to show yet.
        let state = self.shared.apps.known(route.name.as_str());
        let offers = registry.offers(route.name.as_str());
        let agents = offers.iter().map(|offer| AgentOfApp {
            agent: offer.tunnel.agent.to_string(),
            tunnel: offer.tunnel.id.to_string(),
            health: health(offer.health),
            draining: !offer.tunnel.is_accepting(),
        });
        let best = offers
            .iter()
            .map(|offer| offer.health)
            .min_by_key(|health| rank(*health));
        let now = self.shared.clock.now();
        let gate = state
            .as_ref()
            .map_or_else(|| Gate::default().view(now), |state| state.gate.view(now));
        AppInfo {
            name: route.name.as_str().to_owned(),
            kind: kind(route.kind),
            hosts: self.shared.routes.load().hosts_of(route.name.as_str()),
            health: best.map_or(AppHealth::NoAgent, health),
            agents: agents.collect(),
            in_flight: gate.in_flight as u64,
            long_lived: (state.as_ref()).map_or(0, |state| state.metrics.long_lived_now()),
            admission: admission(&route.settings.admission, &gate),
            refusals: state
                .and_then(|state| state.refusals())
                .map(|run| Refusals {
                    since: self.shared.clock.wall(run.since),
                    count: run.count,
                    reason: run.reason.as_str(),
                }),
        }
    }
}

fn admission(limits: &Admission, now: &GateView) -> AdmissionInfo {
    AdmissionInfo {
        in_flight_limit: limits.in_flight,
        queued: now.queued,
        held: now.held,
        queue_limit: limits.queue,
        long_lived_limit: limits.long_lived,
        large_bodies: now.large_bodies,
        large_body_slots: limits.large_body_slots,
        // Rounded up: 0 says that the pause itself is over.
        quarantine: now
            .quarantine
            .map(|rest| rest.as_secs() + u64::from(rest.subsec_nanos() > 0)),
        failing_clients: now.failing_clients,
        client_share: limits.client_share.value(),
        clients_at_share: now.at_their_share,
    }
}

const fn rank(health: Health) -> u8 {
    match health {
        Health::Ready => 0,
        Health::Unknown => 1,
        Health::Down => 2,
    }
}

const fn health(health: Health) -> AppHealth {
    match health {
        Health::Ready => AppHealth::Ready,
        Health::Unknown => AppHealth::Unknown,
        Health::Down => AppHealth::Unreachable,
    }
}

const fn kind(kind: AppKind) -> &'static str {
    match kind {
        AppKind::Http1 => "http1",
        AppKind::H2c => "h2c",
        AppKind::Tcp => "tcp",
    }
}

impl AdminState for State {
    fn readiness(&self) -> Readiness {
        let used = crate::telemetry::memory::resident().zip(self.budget.bytes());
        let percent = used.map(|(used, budget)| used.saturating_mul(100) / budget.max(1));
        Readiness {
            listeners_up: true,
            draining: self.draining(),
            memory_percent: percent.map(|p| u8::try_from(p).unwrap_or(u8::MAX)),
        }
    }

    fn gateway(&self) -> GatewayInfo {
        let apps = self.apps();
        GatewayInfo {
            node: self.shared.node.clone(),
            version: env!("CARGO_PKG_VERSION"),
            since: self.since,
            workers: self.workers,
            draining: self.draining(),
            public: self.public.clone(),
            tunnel: self.tunnel.clone(),
            apps: apps.len(),
            tunnels: self.shared.tunnels.snapshot().tunnels().count(),
            in_flight: apps.iter().map(|app| app.in_flight).sum(),
            long_lived: apps.iter().map(|app| app.long_lived).sum(),
        }
    }

    fn apps(&self) -> Vec<AppInfo> {
        let registry = self.shared.tunnels.snapshot();
        let routes = self.shared.routes.load();
        routes
            .apps()
            .map(|route| self.app_info(route, &registry))
            .collect()
    }

    fn tunnels(&self) -> Vec<TunnelInfo> {
        let registry = self.shared.tunnels.snapshot();
        let info = |live: &Arc<LiveTunnel>| {
            let stats = live.tunnel.stats();
            let carried = live.carried();
            let offers = registry
                .apps()
                .filter(|app| registry.offers(app).iter().any(|o| o.number == live.number));
            TunnelInfo {
                id: live.id.to_string(),
                agent: live.agent.to_string(),
                subject: live.identity.subject.clone(),
                carrier: carried.kind.as_str(),
                worker: live.worker.to_string(),
                peer: carried.peer,
                since: live.since,
                state: live.state().as_str(),
                apps: offers.map(ToString::to_string).collect(),
                streams: stats.streams.total(),
                rtt: stats.rtt,
                bytes_in: stats.bytes_in,
                bytes_out: stats.bytes_out,
                held_bytes: stats.held,
                starved_streams: stats.starved,
            }
        };
        registry.tunnels().map(|(_, live)| info(live)).collect()
    }

    fn agents(&self) -> Vec<(String, usize)> {
        let registry = self.shared.tunnels.snapshot();
        let routes = self.shared.routes.load();
        let of = |route: &Arc<AppRoute>| {
            let offers = registry.offers(route.name.as_str()).iter();
            let taking = offers.filter(|offer| offer.tunnel.is_accepting());
            // Several tunnels of one start are one agent.
            let starts =
                taking.map(|offer| (&offer.tunnel.identity.subject, offer.tunnel.instance));
            let starts: BTreeSet<_> = starts.collect();
            (route.name.as_str().to_owned(), starts.len())
        };
        // Names that agents brought come last: what is beyond the bound of series shares one.
        let mut all: Vec<&Arc<AppRoute>> = routes.apps().collect();
        all.sort_by_key(|route| !route.configured);
        all.into_iter().map(of).collect()
    }

    fn streams(&self) -> StreamCounts {
        let mut all = StreamCounts::default();
        for (_, live) in self.shared.tunnels.snapshot().tunnels() {
            let counts = live.tunnel.stats().streams;
            all.opening += counts.opening;
            all.open += counts.open;
            all.closing += counts.closing;
        }
        all
    }

    fn outcome(&self, request: Uuid) -> Option<Said> {
        let clock = self.shared.clock;
        let outcome = self.shared.ledger.by_request(clock.now(), request)?;
        Some(ledger::said(&outcome, clock))
    }

    fn ledger(&self) -> Counts {
        self.shared.ledger.counts(self.shared.clock.now())
    }

    fn held_bytes(&self) -> u64 {
        self.shared.loads.held()
    }

    fn revoke(&self, agent: &str) -> Option<usize> {
        self.shared.enroll.revoke(agent)
    }

    fn reload(&self) -> Result<Reloaded, Vec<String>> {
        self.reloader.reload()
    }

    fn drain(&self) {
        // Whoever was answered finds it draining, unless it was told to go on for a while.
        match self.reloader.drain_delay().is_zero() {
            true => self.shutdown.drain(),
            false => self.shutdown.leave(),
        }
    }
}
