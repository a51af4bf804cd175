//! The numbers a tunnel lives by. Every one is bounded; none is negotiated upwards by the peer.

use std::time::Duration;

/// Which end of the tunnel a core is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Opens streams, sends requests.
    Gateway,
    /// Accepts streams, owns the app's sockets and the evidence.
    Agent,
}

/// Numbers of one tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Credit given to a fresh stream, bytes. It bounds what one stalled reader can hold.
    pub initial_window: u32,
    /// Largest window a fast stream may grow to, bytes.
    pub max_window: u32,
    /// The same, and what is retained, on a path whose measured round trip is at least `long_path`:
    /// there a window is the speed limit (8 MiB fill 100 ms at 670 Mbit/s).
    pub long_window: u32,
    /// Round trip from which on a path is long.
    pub long_path: Duration,
    /// Bytes a stream may queue before they are emitted; keeps the writer's source in its socket.
    pub queue_limit: usize,
    /// Bytes a sender keeps that the peer has not consumed, whatever credit the peer grants.
    pub retain_limit: u64,
    /// Silence after which a side pings.
    pub ping_after: Duration,
    /// Silence after which the peer counts as dead.
    pub dead_after: Duration,
    /// How long an advance of consumption may stay untold. Short, because the first-frame window
    /// counts from the moment the app took the request.
    pub credit_delay: Duration,
    /// Bytes this side may hold for all streams of the tunnel before those without progress are given
    /// up. A thousand fresh windows.
    pub held_limit: u64,
    /// Streams that may live at once.
    pub max_streams: u32,
    /// How long a fenced, fully written exchange is kept for its late answer.
    pub linger: Duration,
    /// How long a tunnel waits for its next carrier; zero: it ends with its carrier.
    pub resume_window: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            initial_window: 256 * 1024,
            max_window: 1024 * 1024,
            long_window: 8 * 1024 * 1024,
            long_path: Duration::from_millis(20),
            queue_limit: 64 * 1024,
            retain_limit: 1024 * 1024,
            ping_after: Duration::from_secs(2),
            dead_after: Duration::from_secs(6),
            credit_delay: Duration::from_millis(20),
            held_limit: 256 * 1024 * 1024,
            max_streams: 10_000,
            linger: Duration::from_secs(60),
            resume_window: Duration::ZERO,
        }
    }
}
