//! A running gateway: what all workers share, the workers, admin, and the way to the end.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bridgehead_protocol::conn;
use bridgehead_protocol::handshake::Terms;
use bridgehead_protocol::wire::{AppKind as WireKind, AppOffer, PeerLimits};
use tokio::sync::oneshot;

use super::WiringError;
use super::bound::{Bound, Door, Duty};
use super::end::Signals;
use super::state::State;
use super::tunnels::{TcpApp, TunnelFront};
use super::workers::{self, Fronts, Gates};
use crate::accept::gate::Gate;
use crate::accept::http::HttpFront;
use crate::accept::opening::Opening;
use crate::accept::tcp::TcpFront;
use crate::accept::{self};
use crate::admin::{self, Access, Admin};
use crate::clock::Clock;
use crate::config::{AppKind, AppName, Config, MemoryBudget, ProxyProtocol};
use crate::request::apps::Apps;
use crate::request::normalize::Rules;
use crate::request::{Exchanges, Shared};
use crate::route::RouteTable;
use crate::shutdown::Shutdown;
use crate::task::Tasks;
use crate::telemetry::access::Sinks;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::{AccessLog, Format};
use crate::tunnel::enroll::Enroll;
use crate::tunnel::live::Tunnels;
use crate::tunnel::pool::PoolLimits;
use crate::tunnel::token::Tokens;

/// Connections on the tunnel port at once; strangers count as long as their handshake may take.
const TUNNEL_CONNECTIONS: usize = 20_000;
/// How long the last log lines may take.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// Where access lines go.
pub(super) enum AccessTo {
    /// The output stream, after the `ready` line.
    Stdout(Format),
    /// The error stream, beside the log.
    Stderr(Format),
}

/// Where a gateway listens.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pub(super) public: Vec<(SocketAddr, &'static str)>,
    pub(super) tunnel: Vec<SocketAddr>,
    pub(super) tunnel_scheme: &'static str,
    pub(super) admin: SocketAddr,
}

impl Addresses {
    /// First public URL.
    pub(super) fn public_url(&self) -> String {
        self.public.first().map_or_else(String::new, |(address, scheme)| format!("{scheme}://{address}"))
    }

    /// First tunnel URL.
    pub(super) fn tunnel_url(&self) -> String {
        self.tunnel.first().map_or_else(String::new, |address| format!("{}://{address}", self.tunnel_scheme))
    }

    /// `public=… admin=… tunnel=…`, and the app in `dev`.
    pub(super) fn line(&self, app: Option<&AppName>) -> String {
        let mut line = format!("public={} admin=http://{} tunnel=", self.public_url(), self.admin);
        line.push_str(&self.tunnel.first().map_or_else(String::new, ToString::to_string));
        if let Some(app) = app {
            // Writing into a String cannot fail.
            let _ = write!(line, " app={}", app.as_str());
        }
        line
    }
}

/// A gateway whose workers run.
pub(super) struct Gateway {
    shared: Arc<Shared>,
    public: Arc<Shutdown>,
    tunnels: Shutdown,
    admin_end: oneshot::Sender<()>,
    admin: tokio::task::JoinHandle<()>,
    workers: Vec<JoinHandle<()>>,
    workers_done: oneshot::Receiver<()>,
    grace: Duration,
    addresses: Addresses,
}

impl Gateway {
    /// Starts everything.
    pub(super) async fn start(bound: Bound, access: AccessTo) -> Result<Self, WiringError> {
        let Bound { config, workers: count, doors, admin: admin_socket } = bound;
        let (public, tunnels) = (Arc::new(Shutdown::new()), Shutdown::new());
        let shared = share(&config, &public, &tunnels, access)?;
        let addresses = addresses(&config, &doors, &admin_socket)?;
        let fronts = fronts(&config, &shared, &public, &tunnels);
        let watched = doors_watch(&doors);
        let workers = workers::start(count, doors, &fronts)?;
        drop(fronts);
        let budget = memory_budget(config.gateway.memory);
        if let Some(budget) = budget {
            shared.sinks.metrics().set_memory_budget(budget);
        }
        let state = State {
            shared: Arc::clone(&shared),
            shutdown: Arc::clone(&public),
            since: SystemTime::now(),
            workers: count,
            public: addresses.public.iter().map(|(address, _)| *address).collect(),
            tunnel: addresses.tunnel.clone(),
            memory_budget: budget,
        };
        let (admin_end, ended) = oneshot::channel::<()>();
        let admin = serve_admin(&config, admin_socket, state, &shared, ended)?;
        let (done, workers_done) = oneshot::channel();
        let _ = (watched, done);
        Ok(Self {
            shared,
            public,
            tunnels,
            admin_end,
            admin,
            workers,
            workers_done,
            grace: config.gateway.grace,
            addresses,
        })
    }

    /// Where it listens.
    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }
}
