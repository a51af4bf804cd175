//! Every default of the configuration, in one place.
//!
//! Owns numbers and why they are what they are. Must not parse. Invariant: the defaults together
//! pass `check` (apart from certificates, which have none).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::admission::Admission;
use super::media::MediaTypes;
use super::settings::{
    AdminSettings, AppSettings, GatewaySettings, Go, HostHeader, Limits, MemoryBudget,
    ProxyProtocol, PublicSettings, TunnelSettings,
};
use bridgehead_protocol::config::Percent;

/// Public port without TLS.
pub const HTTP_PORT: u16 = 8080;
/// Public port with TLS.
pub const HTTPS_PORT: u16 = 8443;
/// Port where agents dial in.
pub const TUNNEL_PORT: u16 = 7000;
/// Port of the admin API.
pub const ADMIN_PORT: u16 = 9090;
/// Silence after which a tunnel's peer counts as dead; a resume window must outlast it.
pub const DEAD_AFTER: Duration = Duration::from_secs(6);

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

pub(super) fn everywhere(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)
}

pub(super) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            node: "gw-1".to_owned(),
            workers: 0,
            memory: MemoryBudget::Percent(Percent::THREE_QUARTERS),
            grace: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
            hosts: Vec::new(),
        }
    }
}

impl Default for PublicSettings {
    fn default() -> Self {
        Self {
            http: vec![everywhere(HTTP_PORT)],
            https: Vec::new(),
            domain: None,
            tls: Vec::new(),
            trusted_proxies: Vec::new(),
            proxy_protocol: ProxyProtocol::Off,
            catch_all: None,
        }
    }
}

impl Default for TunnelSettings {
    fn default() -> Self {
        Self {
            listen: vec![everywhere(TUNNEL_PORT)],
            tls: Vec::new(),
            agent_ca: None,
            plain: false,
            // The death of a connection noticed (6 s), a few dials that fail, a handshake (5 s).
            resume_window: Duration::from_secs(20),
            handshake: Duration::from_secs(10),
            // A tenth of the port: a fleet behind one address that comes back together finds room, and it
            // takes ten addresses to fill the port with silence.
            handshakes_per_ip: 2_000,
            // A fleet of five hundred with one token, or of a hundred that all restart at once.
            tunnels_per_agent: 1_000,
            // One app for each of them. An agent names at most 128 at a time.
            apps_per_agent: 500,
        }
    }
}

impl Default for AdminSettings {
    fn default() -> Self {
        Self {
            listen: loopback(ADMIN_PORT),
            token_hash: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_size: u64::from(32 * KIB),
            head_fields: 100,
            uri_size: u64::from(8 * KIB),
            head_time: Duration::from_secs(10),
            upload_idle: Duration::from_secs(30),
            upload_rate: u64::from(KIB),
            upload_rate_after: Duration::from_secs(10),
            write_stall: Duration::from_secs(30),
            keep_alive_idle: Duration::from_secs(60),
            connections: 10_000,
            connections_per_ip: 1_000,
            tls_handshake: Duration::from_secs(5),
            app_connect: Duration::from_secs(5),
            // Below the 5 s after which common app servers close idle connections themselves.
            app_keep_alive_idle: Duration::from_secs(4),
            app_idle_connections: 64,
            h2_streams: 100,
            h2_stream_window: 64 * KIB,
            h2_connection_window: MIB,
            h2_send_buffer: u64::from(128 * KIB),
            h2_pending_resets: 20,
            // One transfer on a long path; beside it some kilobytes for each of a hundred streams. With what
            // is on its way through, a connection stays below four mebibytes one way, before apps of HTTP/1.
            h2_held: u64::from(MIB),
            h2_ping: Duration::from_secs(20),
            h2_ping_timeout: Duration::from_secs(10),
        }
    }
}

/// Answers of these types are meant to pause.
const STREAMING_TYPES: [&str; 4] = [
    "text/event-stream",
    "application/grpc*",
    "multipart/x-mixed-replace",
    "application/x-ndjson",
];

impl Default for AppSettings {
    fn default() -> Self {
        Self {
            first_frame_window: Duration::from_secs(30),
            stall_window: Duration::from_secs(15),
            streaming_stall_window: Duration::from_secs(300),
            streaming_types: MediaTypes::new(STREAMING_TYPES.map(Into::into).to_vec()),
            hold: Duration::from_secs(10),
            go: Go::Unsafe,
            repeat_reads: false,
            cors: true,
            max_body: None,
            host_header: HostHeader::Upstream,
            admission: Admission::default(),
        }
    }
}
