//! The checked settings of a running agent; also what the gateway's `dev` mode fills in by hand.
//!
//! Plain values. Whoever holds one may run it: everything that can be checked without a network was.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::time::Duration;

use crate::app::table::AppSpec;
use crate::carrier::address::GatewayAddress;
use crate::carrier::proxy::Proxies;
use crate::carrier::tls::{OwnCertificate, Roots};

use super::secret::TokenSource;

/// Tunnels held by default: one may be lost or drained without anybody noticing.
pub const DEFAULT_TUNNELS: NonZeroU8 = match NonZeroU8::new(2) {
    Some(two) => two,
    None => NonZeroU8::MIN,
};

/// Most tunnels one agent may hold.
pub const MOST_TUNNELS: u8 = 16;

/// Default time for what runs to finish when the agent stops.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// Default number of streams (connections to apps) a tunnel accepts at once.
pub const DEFAULT_STREAMS: u32 = 4096;

/// Everything a running agent needs to know.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Gateways to hold tunnels to; tunnel `n` dials number `n`, round and round, the next one after a failure.
    pub gateways: Vec<GatewayAddress>,
    /// Who the agent is.
    pub token: TokenSource,
    /// Agent id; identity together with the token's subject.
    pub agent: String,
    /// Apps served.
    pub apps: Vec<AppSpec>,
    /// Tunnels held.
    pub tunnels: NonZeroU8,
    /// Whom to trust as a gateway.
    pub roots: Roots,
    /// What to show to a gateway that asks for a certificate.
    pub certificate: Option<OwnCertificate>,
    /// The way out, if it leads through a proxy.
    pub proxies: Proxies,
    /// Time for what runs to finish when the agent stops.
    pub grace: Duration,
    /// Streams a tunnel accepts at once.
    pub max_streams: u32,
    /// Where `/healthz` and `/readyz` are served; nowhere unless asked for.
    pub health: Option<SocketAddr>,
    /// Command to start the app with; empty if the app runs by itself.
    pub command: Vec<OsString>,
    /// Seed of the waiting times and of the instance id; random per process.
    pub seed: u64,
}

impl RunOptions {
    /// An agent with the defaults and no apps yet.
    #[must_use]
    pub fn new(gateway: GatewayAddress, token: TokenSource) -> Self {
        Self {
            gateways: vec![gateway],
            token,
            agent: random_agent_id(),
            apps: Vec::new(),
            tunnels: DEFAULT_TUNNELS,
            roots: Roots::System,
            certificate: None,
            proxies: Proxies::none(),
            grace: DEFAULT_GRACE,
            max_streams: DEFAULT_STREAMS,
            health: None,
            command: Vec::new(),
            seed: rand::random(),
        }
    }

    /// With one more app.
    #[must_use]
    pub fn with_app(mut self, app: AppSpec) -> Self {
        self.apps.push(app);
        self
    }
}

/// An agent id for a process that was given none: several agents beside each other then never take each
/// other's place.
#[must_use]
pub fn random_agent_id() -> String {
    format!("agent-{:016x}", rand::random::<u64>())
}
