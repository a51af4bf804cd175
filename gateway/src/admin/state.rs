//! What admin asks of the gateway: one trait and plain values.
//!
//! `wiring` implements the trait over the registry and the route table; admin only turns the
//! values into JSON. The names of the fields are the interface. Nothing here may hold a token.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use bridgehead_protocol::conn::StreamCounts;
use serde::{Serialize, Serializer};
use uuid::Uuid;

use crate::clock::rfc3339;
use crate::ledger::{Counts, Said};

/// The gateway as its operator sees it. Calls are short and never wait.
pub trait AdminState: Send + Sync + 'static {
    /// Facts that decide whether this gateway should get traffic.
    fn readiness(&self) -> Readiness;

    /// The gateway itself.
    fn gateway(&self) -> GatewayInfo;

    /// Every app with a route, by name.
    fn apps(&self) -> Vec<AppInfo>;

    /// One app.
    fn app(&self, name: &str) -> Option<AppInfo> {
        self.apps().into_iter().find(|app| app.name == name)
    }

    /// Every tunnel that stands, oldest first.
    fn tunnels(&self) -> Vec<TunnelInfo>;

    /// One tunnel.
    fn tunnel(&self, id: &str) -> Option<TunnelInfo> {
        self.tunnels().into_iter().find(|tunnel| tunnel.id == id)
    }

    /// How many agents take requests of each app with a route, by name.
    fn agents(&self) -> Vec<(String, usize)>;

    /// Streams of all tunnels by state.
    fn streams(&self) -> StreamCounts;

    /// What became of an exchange, if it is in the outcome ledger.
    fn outcome(&self, request: Uuid) -> Option<Said>;

    /// Entries of the outcome ledger by state.
    fn ledger(&self) -> Counts;

    /// Bytes that running exchanges hold.
    fn held_bytes(&self) -> u64;

    /// Forget an agent's tokens until the next start and cut its tunnels. Answers how many there
    /// were; nothing if no token names this agent.
    fn revoke(&self, agent: &str) -> Option<usize>;

    /// Read the configuration again and put it in place, all or nothing. Reads files.
    ///
    /// # Errors
    /// All that is wrong with it, a line each.
    fn reload(&self) -> Result<Reloaded, Vec<String>>;

    /// Refuse new work, finish old work, then end. Repeating it changes nothing.
    fn drain(&self);
}

/// Memory use at which the gateway takes itself out of the load balancer; from here on it would
/// refuse new work anyway.
const NOT_READY_PERCENT: u8 = 90;

/// Facts behind `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Every configured listener accepts.
    pub listeners_up: bool,
    /// A drain has begun.
    pub draining: bool,
    /// Memory in use as a part of the budget, if there is a budget.
    pub memory_percent: Option<u8>,
}

impl Readiness {
    /// Why the gateway is not ready; empty if it is.
    #[must_use]
    pub fn reasons(&self) -> Vec<&'static str> {
        let mut reasons = Vec::new();
        if !self.listeners_up {
            reasons.push("listeners_down");
        }
        if self.draining {
            reasons.push("draining");
        }
        if self.memory_percent.is_some_and(|p| p >= NOT_READY_PERCENT) {
            reasons.push("memory");
        }
        reasons
    }
}

/// What a reload did, by the names of keys and entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// In effect now.
    pub changed: Vec<String>,
    /// Differs from what runs, and will not be in effect before a restart.
    pub needs_restart: Vec<String>,
}

/// `/v1/status`.
#[derive(Clone, Debug, Serialize)]
pub struct GatewayInfo {
    /// Name of this node.
    pub node: String,
    /// Version of the program.
    pub version: &'static str,
    /// When the process began.
    #[serde(serialize_with = "stamp")]
    pub since: SystemTime,
    /// Data-path threads.
    pub workers: usize,
    /// A drain has begun.
    pub draining: bool,
    /// Addresses of the public listeners.
    pub public: Vec<SocketAddr>,
    /// Addresses of the tunnel listeners.
    pub tunnel: Vec<SocketAddr>,
    /// Apps with a route.
    pub apps: usize,
    /// Tunnels that stand.
    pub tunnels: usize,
    /// Exchanges that occupy apps now.
    pub in_flight: u64,
    /// Upgraded, streaming and TCP exchanges now.
    pub long_lived: u64,
}

/// What an app admits, and what of that is used now.
#[derive(Clone, Debug, Serialize)]
pub struct AdmissionInfo {
    /// Exchanges it may have in flight.
    pub in_flight_limit: usize,
    /// Requests that wait for a place in flight.
    pub queued: usize,
    /// Requests whose app is away, waiting or trying again.
    pub held: usize,
    /// Requests that may wait, for a place or for the app.
    pub queue_limit: usize,
    /// Long-lived exchanges it may have.
    pub long_lived_limit: usize,
    /// Slots for large bodies that are taken.
    pub large_bodies: usize,
    /// Slots for large bodies.
    pub large_body_slots: usize,
    /// Seconds left of a quarantine; 0 while its end is being probed, null without one.
    pub quarantine: Option<u64>,
    /// Clients with a run of identical failures.
    pub failing_clients: usize,
    /// Percent of each of these limits that one client may use.
    pub client_share: u8,
    /// Clients that have as many exchanges in flight as one may.
    pub clients_at_share: usize,
}

/// One app of `/v1/apps`.
#[derive(Clone, Debug, Serialize)]
pub struct AppInfo {
    /// Its name.
    pub name: String,
    /// What it speaks: `http1`, `h2c` or `tcp`.
    pub kind: &'static str,
    /// Hosts that lead to it.
    pub hosts: Vec<String>,
    /// The best health that any of its agents reports.
    pub health: AppHealth,
    /// Agents that offer it.
    pub agents: Vec<AgentOfApp>,
    /// Exchanges that occupy it now.
    pub in_flight: u64,
    /// Upgraded, streaming and TCP exchanges now.
    pub long_lived: u64,
    /// What it admits, and what of that is used.
    pub admission: AdmissionInfo,
    /// The run of refusals that is going on, if one is.
    pub refusals: Option<Refusals>,
}

/// One agent that offers an app.
#[derive(Clone, Debug, Serialize)]
pub struct AgentOfApp {
    /// Id of the agent.
    pub agent: String,
    /// Id of the tunnel through which it offers the app.
    pub tunnel: String,
    /// What this agent reports of the app.
    pub health: AppHealth,
    /// It takes no new exchanges.
    pub draining: bool,
}

/// Health of an app, as reported by agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AppHealth {
    /// No agent offers it.
    NoAgent,
    /// An agent offers it and says nothing about its health.
    Unknown,
    /// An agent reached it.
    Ready,
    /// No agent reaches it.
    Unreachable,
}

/// A run of tries that the app or its agent refused, ended by the next success.
#[derive(Clone, Debug, Serialize)]
pub struct Refusals {
    /// When it began.
    #[serde(serialize_with = "stamp")]
    pub since: SystemTime,
    /// How many there were.
    pub count: u64,
    /// Reason of the last one.
    pub reason: &'static str,
}

/// One tunnel of `/v1/tunnels`.
#[derive(Clone, Debug, Serialize)]
pub struct TunnelInfo {
    /// Its id.
    pub id: String,
    /// Id of the agent.
    pub agent: String,
    /// Whose token it joined with; what revoking takes.
    pub subject: String,
    /// What carries it: `tcp`, `tls`, `ws` or `wss`.
    pub carrier: &'static str,
    /// Name of the gateway's thread that serves it.
    pub worker: String,
    /// Where the agent dialled from.
    pub peer: SocketAddr,
    /// Since when it stands.
    #[serde(serialize_with = "stamp")]
    pub since: SystemTime,
    /// `live` or `draining`.
    pub state: &'static str,
    /// Names of the apps that it offers.
    pub apps: Vec<String>,
    /// Streams that have not ended.
    pub streams: usize,
    /// Last measured round trip.
    #[serde(rename = "rtt_ms", serialize_with = "millis")]
    pub rtt: Option<Duration>,
    /// Bytes of frames from the agent.
    pub bytes_in: u64,
    /// Bytes of frames to the agent.
    pub bytes_out: u64,
    /// Bytes that its streams hold at the gateway.
    pub held_bytes: u64,
    /// Streams given up because they held memory without progress.
    pub starved_streams: u64,
}

fn stamp<S: Serializer>(at: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&rfc3339(*at))
}

fn millis<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    span.map(|s| s.as_micros() as f64 / 1000.0).serialize(to)
}
