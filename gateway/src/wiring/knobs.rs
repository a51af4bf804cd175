//! What a reload turns while the gateway runs: bounds of connections, of exchanges, of new tunnels, and
//! the memory budget.
//!
//! Each is one swap, read when something begins: what runs keeps the bounds that it began with, unless a
//! bound is asked for at every request. Owns the handles; what may be turned at all is said by
//! `config::changes`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bridgehead_protocol::conn;
use bridgehead_protocol::handshake::Terms;
use bridgehead_protocol::wire::PeerLimits;

use crate::accept::Limits;
use crate::accept::gate::Gate;
use crate::accept::opening::Opening;
use crate::config::defaults::DEAD_AFTER;
use crate::config::{Config, MemoryBudget, ProxyProtocol};
use crate::request::{Bounds, Shared};
use crate::telemetry::labels::Listener;
use crate::tunnel::enroll::TunnelTerms;
use crate::tunnel::pool::PoolLimits;

/// Connections on the tunnel port at once; strangers count as long as their handshake may take.
const TUNNEL_CONNECTIONS: usize = 20_000;

/// The handles.
#[derive(Clone)]
pub(super) struct Knobs {
    pub(super) limits: Arc<ArcSwap<Limits>>,
    pub(super) opening: Arc<ArcSwap<Opening>>,
    /// Clients' connections.
    pub(super) gate: Arc<Gate>,
    /// Agents' connections; those of one address count until it is known whose they are.
    pub(super) tunnel_gate: Arc<Gate>,
    pub(super) budget: Arc<Budget>,
}

impl Knobs {
    pub(super) fn new(config: &Config, shared: &Shared) -> Self {
        let (most, each) = (config.limits.connections, config.limits.connections_per_ip);
        let (metrics, pressure) = (shared.sinks.metrics(), &shared.pressure);
        let budget = Budget::default();
        budget.set(config.gateway.memory);
        Self {
            limits: Arc::new(ArcSwap::from_pointee(Limits::configured(
                &config.limits,
                pressure,
            ))),
            opening: Arc::new(ArcSwap::from_pointee(opening(config))),
            gate: Gate::new(most, each, metrics.listener(Listener::Public)),
            tunnel_gate: Gate::new(
                TUNNEL_CONNECTIONS,
                config.tunnel.handshakes_per_ip,
                metrics.listener(Listener::Tunnel),
            ),
            budget: Arc::new(budget),
        }
    }

    /// Puts the bounds of `next` in place.
    pub(super) fn turn(&self, next: &Config, shared: &Shared) {
        let limits = Limits::configured(&next.limits, &shared.pressure);
        self.limits.store(Arc::new(limits));
        self.opening.store(Arc::new(opening(next)));
        self.gate
            .resize(next.limits.connections, next.limits.connections_per_ip);
        self.tunnel_gate
            .resize(TUNNEL_CONNECTIONS, next.tunnel.handshakes_per_ip);
        self.budget.set(next.gateway.memory);
        self.tell_budget(shared);
        // As for the listeners of agents, which stay as they began.
        let plain_tunnels = shared.bounds.load().plain_tunnels;
        shared.bounds.store(Arc::new(Bounds {
            plain_tunnels,
            ..bounds(next)
        }));
        shared.enroll.terms.store(Arc::new(tunnel_terms(next)));
    }
}

impl Knobs {
    /// Shows the budget; zero where there is none.
    pub(super) fn tell_budget(&self, shared: &Shared) {
        let bytes = self.budget.bytes().unwrap_or(0);
        shared.sinks.metrics().set_memory_budget(bytes);
    }
}

fn opening(config: &Config) -> Opening {
    Opening {
        trusted: config.public.trusted_proxies.clone(),
        proxy_headers: config.public.proxy_protocol == ProxyProtocol::FromTrusted,
        patience: config.limits.head_time,
    }
}

/// What every request is asked about.
pub(super) fn bounds(config: &Config) -> Bounds {
    Bounds {
        rules: (&config.limits).into(),
        trusted_proxies: config.public.trusted_proxies.clone(),
        plain_tunnels: config.tunnel.plain,
        app_connect: config.limits.app_connect,
        app_idle: config.limits.app_keep_alive_idle,
    }
}

/// What a tunnel begins with, and how long it may take to end.
pub(super) fn tunnel_terms(config: &Config) -> TunnelTerms {
    let settings = conn::Settings {
        dead_after: DEAD_AFTER,
        resume_window: config.tunnel.resume_window,
        ..conn::Settings::default()
    };
    let limits = PeerLimits {
        max_streams: settings.max_streams,
        initial_credit: settings.initial_window,
        linger: settings.linger,
    };
    TunnelTerms {
        told: Terms {
            node: config.gateway.node.clone(),
            features: Vec::new(),
            ping_after: settings.ping_after,
            resume_window: settings.resume_window,
            limits,
            nodes: Vec::new(),
        },
        settings,
        pool: PoolLimits {
            idle: config.limits.app_keep_alive_idle,
            per_app: config.limits.app_idle_connections,
        },
        handshake: config.tunnel.handshake,
        per_agent: config.tunnel.tunnels_per_agent,
        grace: config.gateway.grace,
    }
}

/// The memory that the process may use, in bytes.
#[derive(Debug, Default)]
pub(super) struct Budget(AtomicU64);

impl Budget {
    /// Zero stands for a machine that does not say how much there is.
    fn set(&self, to: MemoryBudget) {
        let bytes = match to {
            MemoryBudget::Bytes(bytes) => bytes,
            MemoryBudget::Percent(percent) => crate::telemetry::memory::limit()
                .map_or(0, |total| total / 100 * u64::from(percent.value())),
        };
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// The budget, if there is one.
    pub(super) fn bytes(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}
