//! Every bound on a client's connection, with its default.

use std::sync::Arc;
use std::time::Duration;

use crate::config;
use crate::h1::HeadLimits;
use crate::pressure::Pressure;

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
    /// The same once the gateway drains: a request that is on its way then is still answered.
    pub drain_patience: Duration,
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
    /// HTTP/2: upload bytes that may be under way on one stream.
    pub stream_window: u32,
    /// HTTP/2: and on the connection.
    pub connection_window: u32,
    /// HTTP/2: answer bytes of one stream that wait for the socket.
    pub send_buffer: usize,
    /// HTTP/2: answer bytes that all streams of a connection may hold unread.
    pub held: u64,
    /// HTTP/2: streams that the client reset before we even looked at them (rapid reset).
    pub pending_resets: usize,
    /// How short memory is: idle connections then end sooner, and none is kept.
    pub pressure: Arc<Pressure>,
}

impl Limits {
    /// The configured bounds, and those that are not configurable.
    #[must_use]
    pub fn configured(limits: &config::Limits, pressure: &Arc<Pressure>) -> Self {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            head: HeadLimits {
                max_bytes: size(limits.head_size),
                max_fields: limits.head_fields,
                max_target: size(limits.uri_size),
            },
            head_time: limits.head_time,
            keep_alive: limits.keep_alive_idle,
            upload_idle: limits.upload_idle,
            upload_grace: limits.upload_rate_after,
            upload_rate: limits.upload_rate,
            write_stall: limits.write_stall,
            handshake: limits.tls_handshake,
            ping_interval: limits.h2_ping,
            ping_timeout: limits.h2_ping_timeout,
            streams: limits.h2_streams,
            stream_window: limits.h2_stream_window,
            connection_window: limits.h2_connection_window,
            send_buffer: size(limits.h2_send_buffer),
            held: limits.h2_held,
            pending_resets: limits.h2_pending_resets,
            drain_patience: Duration::from_secs(1),
            discard_time: Duration::from_secs(5),
            discard_bytes: 64 * 1024 * 1024,
            pressure: Arc::clone(pressure),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::configured(&config::Limits::default(), &Arc::default())
    }
}
