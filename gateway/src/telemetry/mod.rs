//! What the gateway says about itself: metrics, access lines, the memory of recent exchanges, logs.
//!
//! Everything here is told by others and asks nobody. It must not decide a verdict, block the data
//! path, or let a secret through: no query, cookie, authorization or token reaches a line.

pub mod access;
pub mod labels;
mod line;
pub mod log;
pub mod memory;
pub mod metrics;
mod remembered;
mod writer;

pub use access::{AppConn, ExchangeGuard, Protocol, Sinks};
pub use metrics::{AppMetrics, GaugeGuard, Metrics};
pub use writer::{AccessLog, Format};
