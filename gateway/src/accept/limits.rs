//! Every bound on a client's connection, with its default.

use std::time::Duration;

use crate::h1::HeadLimits;

/// Bounds on clients. A value that a client reaches is answered or ends the connection; none is
/// silently stretched.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Sizes of a request head.
    pub head: HeadLimits,
    /// From the first byte of a head to its last.
    pub head_time: Duration,
    /// A connection without an exchange.
    pub keep_alive: Duration,
    /// While we wait for the client's upload: nothing came for this long.
    pub upload_idle: Duration,
    /// Waiting that is allowed before the rate counts.
    pub upload_grace: Duration,
    /// Bytes per second of waiting that an upload must reach.
    pub upload_rate: u64,
    /// The client took nothing of its answer for this long.
    pub write_stall: Duration,
    /// How long an unread body is discarded after its answer, so that the answer arrives.
    pub discard_time: Duration,
    /// How much of it.
    pub discard_bytes: u64,
    /// A TLS handshake, or the beginning of an HTTP/2 connection.
    pub handshake: Duration,
    /// HTTP/2: idle time after which a ping is sent.
    pub ping_interval: Duration,
    /// HTTP/2: how long its answer may take.
    pub ping_timeout: Duration,
    /// HTTP/2: concurrent streams of one connection.
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: HeadLimits::CLIENT,
            head_time: Duration::from_secs(10),
            keep_alive: Duration::from_secs(60),
            upload_idle: Duration::from_secs(30),
            upload_grace: Duration::from_secs(10),
            upload_rate: 1024,
            write_stall: Duration::from_secs(30),
            discard_time: Duration::from_secs(5),
            discard_bytes: 64 * 1024 * 1024,
            handshake: Duration::from_secs(5),
            ping_interval: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(10),
            streams: 100,
        }
    }
}
