//! A gateway without doors: connections are handed to it, and it starts no thread and no listener.
//!
//! The same rooms as in [`super::run`], on the caller's runtime and on whatever its connections are
//! made of: the simulation lives here. Invariant: nothing is decided here that a running gateway
//! decides otherwise.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bridgehead_protocol::io::carrier::Carrier;

use super::gateway::{self, Ground};
use super::knobs::Knobs;
use super::workers::Fronts;
use crate::accept::Transport;
use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::Config;
use crate::request::Shared;
use crate::request::front::{ClientInfo, RawClient};
use crate::shutdown::Shutdown;
use crate::telemetry::metrics::Metrics;
use crate::tunnel::enroll::Newcomer;

/// Calendar of a gateway whose runs repeat themselves.
const ZERO_WALL: Duration = Duration::from_secs(1_800_000_000);

/// A gateway to which connections are handed.
pub struct Handed {
    shared: Arc<Shared>,
    fronts: Fronts,
    public: Shutdown,
    tunnels: Shutdown,
}

impl Handed {
    /// A gateway that begins now. Its random bits follow `seed` and its calendar does not follow the
    /// system's, so that a run can be repeated: never serve strangers with it. Writes no access log.
    #[must_use]
    pub fn repeatable(config: &Config, seed: u64) -> Self {
        let ground = Ground {
            clock: Clock::start_at(UNIX_EPOCH + ZERO_WALL),
            chance: Arc::new(Chance::planted(seed)),
            metrics: Metrics::new(),
        };
        let (public, tunnels) = (Shutdown::new(), Shutdown::new());
        let (shared, _) = gateway::share(config, &public, ground, None);
        let knobs = Knobs::new(config, &shared);
        let fronts = gateway::fronts(&knobs, &shared, &public, &tunnels);
        Self {
            shared,
            fronts,
            public,
            tunnels,
        }
    }

    /// Serves a client's connection to its end. Dropping the future cuts it.
    pub fn client<IO: Transport>(
        &self,
        io: IO,
        info: ClientInfo,
    ) -> impl Future<Output = ()> + Send + use<IO> {
        let front = self.fronts.http.clone();
        async move { front.plain(io, info).await }
    }

    /// Serves a connection to a TCP app to its end. Dropping the future cuts it.
    pub fn tcp<IO: RawClient>(
        &self,
        io: IO,
        info: ClientInfo,
        app: &'static str,
    ) -> impl Future<Output = ()> + Send + use<IO> {
        let exchanges = self.fronts.tcp.corridor.exchanges.clone();
        async move { exchanges.serve_tcp(io, info, app).await }
    }

    /// Serves an agent's carrier to its end. Dropping the future cuts it.
    pub fn carrier(
        &self,
        carrier: Carrier,
        peer: SocketAddr,
    ) -> impl Future<Output = ()> + Send + use<> {
        let front = self.fronts.tunnel.clone();
        let newcomer = Newcomer {
            carrier,
            peer,
            token: None,
            place: None,
        };
        async move { front.enroll.serve(newcomer, front.signal).await }
    }

    /// What its exchanges share.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Begins to drain, as on SIGTERM: agents are told to dial elsewhere, clients are served to the
    /// end of their connections.
    pub fn drain(&self) {
        self.public.drain();
        self.tunnels.drain();
    }

    /// The grace is over: what still runs is given up and told. Connections are cut by whoever has them.
    pub fn end(&self) {
        self.drain();
        self.shared.end();
    }
}
