//! The validated configuration: plain values that the rest of the gateway reads.
//!
//! Owns the shapes and nothing else; defaults stand in `defaults`, rules in `parse` and `check`.
//! Invariant: a value that exists has passed every rule.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bridgehead_protocol::handshake::{AppPattern, TokenHash};
pub use bridgehead_protocol::wire::AppKind;

use super::admission::Admission;
use super::media::MediaTypes;
use super::names::AppName;
use super::net::Cidr;
use crate::route::host::Host;
use crate::route::path::PathPrefix;
use bridgehead_protocol::config::Percent;

/// A whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[gateway]`.
    pub gateway: GatewaySettings,
    /// `[public]`.
    pub public: PublicSettings,
    /// `[tunnel]`.
    pub tunnel: TunnelSettings,
    /// `[admin]`.
    pub admin: AdminSettings,
    /// `[limits]`.
    pub limits: Limits,
    /// `[defaults]`: settings of an app that has no `[[app]]` or leaves them out.
    pub defaults: AppSettings,
    /// `[[agent]]`.
    pub agents: Vec<AgentEntry>,
    /// `[[app]]`.
    pub apps: Vec<AppEntry>,
}

/// `[gateway]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySettings {
    /// Name of this node in logs, answers and WELCOME.
    pub node: String,
    /// Worker threads; 0 = one for each core.
    pub workers: usize,
    /// What the process may use; above 90 % of it the gateway is not ready.
    pub memory: MemoryBudget,
    /// How long a drain waits for running exchanges.
    pub grace: Duration,
    /// How long clients are still accepted before a drain, while the gateway says that it is not ready.
    pub drain_delay: Duration,
    /// Hosts that are the gateway itself: tunnel over WebSocket, outcomes, code table.
    pub hosts: Vec<Host>,
}

/// Upper bound of the process' memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBudget {
    /// Of the cgroup's limit, or of the machine's memory without one; 1 to 100.
    Percent(Percent),
    /// Bytes.
    Bytes(u64),
}

/// `[public]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicSettings {
    /// Listeners without TLS.
    pub http: Vec<SocketAddr>,
    /// Listeners with TLS.
    pub https: Vec<SocketAddr>,
    /// App `demo` answers at `demo.<domain>`.
    pub domain: Option<Host>,
    /// Certificates of the TLS listeners, chosen by server name.
    pub tls: Vec<CertificateFiles>,
    /// Peers whose `Forwarded` fields are believed.
    pub trusted_proxies: Vec<Cidr>,
    /// Whether PROXY protocol headers are read.
    pub proxy_protocol: ProxyProtocol,
    /// The app that answers at every host that is no other's; only `dev` sets it.
    pub catch_all: Option<AppName>,
}

/// Files of one certificate chain and its key, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Chain, the server's certificate first.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Whether PROXY protocol headers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// Never.
    Off,
    /// From trusted proxies, which must send one; other peers must not.
    FromTrusted,
}

/// `[tunnel]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelSettings {
    /// Where agents dial in.
    pub listen: Vec<SocketAddr>,
    /// Certificates; those of `[public]` if none are given. Empty only if `plain`.
    pub tls: Vec<CertificateFiles>,
    /// Who issues the agents' certificates; `None` = they need none.
    pub agent_ca: Option<AgentCa>,
    /// The tunnel listener speaks plain TCP.
    pub plain: bool,
    /// How long a tunnel outlives its connection; zero = not at all.
    pub resume_window: Duration,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// Connections from one IPv4 address or IPv6 /64 whose agent is not let in yet.
    pub handshakes_per_ip: usize,
    /// Tunnels of one `[[agent]]`.
    pub tunnels_per_agent: usize,
    /// Apps without an `[[app]]` that one `[[agent]]` brings.
    pub apps_per_agent: usize,
}

/// Whose certificates agents show, beside their tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCa {
    /// CA certificates, PEM.
    pub file: PathBuf,
    /// What is asked of an agent.
    pub demand: Demand,
}

/// What is asked of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// A certificate that the CA has issued.
    Required,
    /// One, if it shows any.
    Optional,
}

/// `[admin]`.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// Where the admin API listens.
    pub listen: SocketAddr,
    /// Hash of the token callers must show; `None` only on a loopback address.
    pub token_hash: Option<TokenHash>,
}

/// `[limits]`: what one client, connection or app may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request head.
    pub head_size: u64,
    /// Fields of a request head; each cookie crumb counts.
    pub head_fields: usize,
    /// Bytes of the request target.
    pub uri_size: u64,
    /// Time for a whole request head.
    pub head_time: Duration,
    /// Time without a byte of an upload we wait for.
    pub upload_idle: Duration,
    /// Bytes a second below which an upload we wait for is too slow.
    pub upload_rate: u64,
    /// Time before `upload_rate` applies.
    pub upload_rate_after: Duration,
    /// Time in which a client takes no byte of its answer.
    pub write_stall: Duration,
    /// Time a client's connection may stay without a request.
    pub keep_alive_idle: Duration,
    /// Public connections.
    pub connections: usize,
    /// Public connections from one IPv4 address or IPv6 /64.
    pub connections_per_ip: usize,
    /// Time for a TLS handshake.
    pub tls_handshake: Duration,
    /// Time for the agent to connect to the app.
    pub app_connect: Duration,
    /// Time a connection to the app may stay without an exchange.
    pub app_keep_alive_idle: Duration,
    /// Idle connections kept for one app.
    pub app_idle_connections: usize,
    /// Streams of one HTTP/2 connection.
    pub h2_streams: u32,
    /// Receive window of an HTTP/2 stream, bytes.
    pub h2_stream_window: u32,
    /// Receive window of an HTTP/2 connection, bytes.
    pub h2_connection_window: u32,
    /// Bytes queued for sending in one HTTP/2 stream, and in all of a connection together.
    pub h2_send_buffer: u64,
    /// Streams reset by the client that may wait to be forgotten.
    pub h2_pending_resets: usize,
    /// HTTP/2: bytes of answers unread, and again of bodies untaken, that all streams of a connection may hold.
    pub h2_held: u64,
    /// Silence after which an HTTP/2 client is pinged.
    pub h2_ping: Duration,
    /// Time for its answer.
    pub h2_ping_timeout: Duration,
}

/// What an app inherits from `[defaults]` and may set for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppSettings {
    /// Time from the head's hand-over to the tunnel until the app's final head.
    pub first_frame_window: Duration,
    /// Time without progress of an answer.
    pub stall_window: Duration,
    /// The same for streaming types, except gRPC, which has none.
    pub streaming_stall_window: Duration,
    /// Content types of streaming answers; gRPC is one whatever the list says.
    pub streaming_types: MediaTypes,
    /// How long a request may wait for an app that is not there; zero = not at all.
    pub hold: Duration,
    /// Which requests wait for the app's connection before their first byte is sent.
    pub go: Go,
    /// `GET` and `HEAD` are reads and may be repeated once when a reused connection ended silently.
    pub repeat_reads: bool,
    /// Answers of the gateway carry CORS headers.
    pub cors: bool,
    /// Longest request body in bytes; `None` = unlimited.
    pub max_body: Option<u64>,
    /// Which `Host` the app sees.
    pub host_header: HostHeader,
    /// What it admits.
    pub admission: Admission,
}

/// Which requests wait for OPENED on a fresh app connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// All.
    Always,
    /// Those whose method is not safe (RFC 9110).
    Unsafe,
    /// None.
    Never,
}

/// Which `Host` the app sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostHeader {
    /// The client's own.
    Keep,
    /// What the agent announced for the app, else the client's own.
    Upstream,
    /// This host, with its port if it has one.
    Literal(String),
}

/// `[[agent]]`.
#[derive(Clone, Debug)]
pub struct AgentEntry {
    /// Subject of its tokens.
    pub id: String,
    /// Tokens that are valid; two during a rotation.
    pub keys: Vec<AgentKey>,
    /// Apps it may serve.
    pub apps: Vec<AppPattern>,
}

/// One token of an agent.
#[derive(Clone, Debug)]
pub struct AgentKey {
    /// The id part of the token.
    pub id: String,
    /// Hash of the whole token.
    pub hash: TokenHash,
    /// Second of the epoch from which on it is refused.
    pub expires: Option<u64>,
}

/// `[[app]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppEntry {
    /// Name, unique.
    pub name: AppName,
    /// Hosts beside `<name>.<domain>`.
    pub hosts: Vec<Host>,
    /// Prefixes it is limited to; never empty for HTTP (`/` = everything).
    pub paths: Vec<PathPrefix>,
    /// How the agent speaks to it.
    pub kind: AppKind,
    /// Public port of a TCP app.
    pub port: Option<u16>,
    /// Settings, inherited ones filled in.
    pub settings: AppSettings,
}
